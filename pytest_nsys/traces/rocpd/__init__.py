"""How are databases of rocprofv3 (``rocpd``), AMD's profiler, read?"""
