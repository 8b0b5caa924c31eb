"""How does one make a trace? What the demo and the pages of the documentation write their traces with.

``builder.TraceBuilder`` writes a trace of a few rows, ``fsdp.write_fsdp`` simulates an FSDP step, and
``dualpipe.write_dualpipe`` a DualPipeV step.
"""
