"""The executors that traces are read by: of this process, of this machine, of a cluster."""
