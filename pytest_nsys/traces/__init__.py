"""How does a trace file become the answers that are measured? One module per input format, and the choice among
them.
"""
