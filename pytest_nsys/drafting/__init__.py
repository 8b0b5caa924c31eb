"""A first gate file for a trace: which convention and window, which assertions with which limits, each with why."""
