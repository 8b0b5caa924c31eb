"""Pure measurements: windows, streams, stages, overlap. Nothing here knows a gate, a baseline or pytest.

Its rooms import one way: summary, captures, facts and budget, steps and metrics, windows and explain. What a verdict
bears of a doubtful trace stands alone in ``fact_bounds``, because all of them but explain ask it.
"""
