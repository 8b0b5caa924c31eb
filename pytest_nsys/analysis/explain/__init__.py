"""What was a window made of, what changed between two of them, and what is the root cause?

This package holds plain data and compares it, without reading a trace or loading numpy. The data is measured in
:mod:`~pytest_nsys.analysis.budget`.
"""
