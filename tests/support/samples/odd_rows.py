"""Rows of a trace that no page of the documentation writes: replays of graphs, messages of the profiler."""

from tests.support.samples.builder import LAUNCH_LEAD_NS, LAUNCH_LENGTH_NS, Process, TraceBuilder
from tests.support.samples.schema import GRAPH_TRACE, Cell


def graph_trace(gpu: Process, start_ns: int, end_ns: int, *, launch_ns: int | None = None) -> int:
    """A replay of a CUDA graph that was traced as a whole: a span without kernels."""
    called_ns = start_ns - LAUNCH_LEAD_NS if launch_ns is None else launch_ns
    number = gpu.api("cudaGraphLaunch_v10000", called_ns, called_ns + LAUNCH_LENGTH_NS)
    gpu.trace.insert(GRAPH_TRACE, **gpu.gpu_span(start_ns, end_ns, number), graphId=1, graphExecId=1)
    return number


def raw(gpu: Process, table: str, **columns: Cell) -> None:
    """Any row with this process in its id column, unless the row says otherwise."""
    known = gpu.trace.schema.tables[table].columns
    if "globalTid" in known:
        columns.setdefault("globalTid", gpu.global_tid())
    elif "globalPid" in known:
        columns.setdefault("globalPid", gpu.global_pid)
    gpu.trace.insert(table, **columns)


def diagnostic(trace: TraceBuilder, severity: int, text: str) -> None:
    """A message of the profiler: severity 1 is information, 2 a warning, 3 an error, 4 verbose."""
    trace.insert("DIAGNOSTIC_EVENT", severity=severity, text=text)
