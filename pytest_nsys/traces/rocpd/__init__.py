"""Databases of rocprofv3 (``rocpd``), AMD's profiler."""
