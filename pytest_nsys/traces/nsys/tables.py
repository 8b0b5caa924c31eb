"""Which tables and columns of an export are read?

A column that every version has is required where it stands in ``REQUIRED``; of a newer one
:meth:`~pytest_nsys.traces.sqlite_file.SqliteFile.column` gives NULL in versions without it. What each kernel is made of
is ``KERNEL_ROW``.
"""

from __future__ import annotations

from pytest_nsys.traces.sqlite_file import SqliteFile

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NVTX = "NVTX_EVENTS"
STRINGS = "StringIds"

REQUIRED = {
    KERNEL: "start end deviceId contextId streamId correlationId globalPid shortName demangledName",
    RUNTIME: "start globalTid correlationId nameId",
    NVTX: "start end eventType globalTid",
    STRINGS: "id value",
}

KERNEL_ROW = (
    *("start", "end", "correlationId", "deviceId", "contextId", "streamId"),
    *("shortName", "demangledName", "graphNodeId", "globalPid"),
)
"""The columns of a kernel in the order in which :class:`~pytest_nsys.traces.nsys.columns.Columns` takes them."""
DEVICE, PROCESS = KERNEL_ROW.index("deviceId"), KERNEL_ROW.index("globalPid")


def kernel_row(file: SqliteFile, table: str = KERNEL, name: str | None = None) -> str:
    """``KERNEL_ROW`` of a table, ``name`` in place of the names of a kernel."""
    named = {} if name is None else {"shortName": name, "demangledName": name}
    return ", ".join(named.get(column) or file.column(table, column) for column in KERNEL_ROW)
