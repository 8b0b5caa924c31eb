"""How does one make a trace? What the demo and the pages of the documentation write their traces with.

``builder.TraceBuilder`` writes a trace of a few rows, ``dualpipe.write_dualpipe`` simulates a whole DualPipeV step.
"""
