"""What was a window made of, what changed between two of them, and what is at the root of it?

Plain data and its differences: no trace is asked, and no numpy is loaded. It is measured in
:mod:`~pytest_nsys.analysis.budget`.
"""
