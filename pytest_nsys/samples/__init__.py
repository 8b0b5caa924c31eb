"""How does one make a trace? What the demo, the tests and the benchmarks write their traces with.

``builder.TraceBuilder`` writes a trace of a few rows, ``dualpipe.write_dualpipe`` simulates a whole DualPipeV
step, and ``python -m pytest_nsys.samples`` writes one from the command line.
"""
