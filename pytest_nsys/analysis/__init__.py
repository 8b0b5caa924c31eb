"""Pure measurements: windows, streams, stages, overlap. Nothing here knows a gate, a baseline or pytest.

Its packages import in one direction: summary, captures, facts and budget, steps and metrics, windows and explain. The
bounds within which a verdict accepts a doubtful trace are in ``fact_bounds``, because all but explain need them.
"""
