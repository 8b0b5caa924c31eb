"""What took the time of a window, and what waited for what?

What is measured here, :mod:`~pytest_nsys.analysis.explain` compares.
"""
