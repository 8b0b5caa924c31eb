"""Traces in the trace event format: torch.profiler, JAX, and what `cut` writes."""
