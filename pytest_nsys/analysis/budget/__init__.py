"""What took the time of a window, and what waited for what?

:mod:`~pytest_nsys.analysis.explain` compares what is measured here.
"""
