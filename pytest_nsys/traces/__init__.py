"""Trace files in: one module per input format, and the recognition of which is which."""
