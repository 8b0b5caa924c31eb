"""How does one write a trace of a few rows, so that a reader of the test sees what is in it?

    trace = TraceBuilder()
    gpu = trace.process(pid=100)
    gpu.range("layer00.stage2_f", 1_000, 9_000)
    gpu.kernel("ncclDevKernel_SendRecv", 4_000, 8_000, stream=28, launch_ns=2_000)
    trace.write(tmp_path / "trace.sqlite")

The same calls give the same bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.samples.schema import (
    CUDA_EVENT,
    CURRENT,
    KERNEL,
    MEMCPY,
    MEMSET,
    NVTX,
    PROCESSES,
    RUNTIME,
    SYNCHRONIZATION,
    Cell,
    Export,
    Schema,
    Strings,
)

PUSH_POP_RANGE, START_END_RANGE, MARK, DOMAIN_CREATE = 59, 60, 34, 75

RUNTIME_API, DRIVER_API = 0, 1
LAUNCH_NAMES = {RUNTIME_API: "cudaLaunchKernel_v7000", DRIVER_API: "cuLaunchKernelEx"}
LAUNCH_LENGTH_NS = 3_000
LAUNCH_LEAD_NS = 5_000
EVENT_CALL_NS = 700
STREAM_WAIT = 2
PAGEABLE, DEVICE = 0, 2
_MEMORY = {1: (PAGEABLE, DEVICE), 2: (DEVICE, PAGEABLE), 8: (DEVICE, DEVICE), 10: (DEVICE, DEVICE)}
"""What a copy reads and writes, by its kind, where the host's memory is pageable."""
NO_SYNC_ID = 0xFFFFFFFF


def global_pid(pid: int, hardware_id: int = 0, vm_id: int = 0) -> int:
    """The id as nsys serialises it: hardware 8, VM 8, process 24, thread 24 bits, read as signed 64 bits."""
    unsigned = hardware_id << 56 | vm_id << 48 | pid << 24
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


class TraceBuilder:
    """A trace in memory, row by row, until :meth:`write`."""

    def __init__(self, schema: Schema = CURRENT) -> None:
        self.schema = schema
        self.strings = Strings()
        self._rows: list[tuple[str, dict[str, Cell]]] = []
        self._gpus = itertools.count()

    def process(
        self,
        pid: int = 100,
        hardware_id: int = 1,
        vm_id: int = 0,
        *,
        thread: int | None = None,
        device: int = 0,
        context: int = 1,
        stream: int = 7,
        name: str = "python3",
    ) -> Process:
        """A process of the trace. The keywords are what its rows have where they say nothing else."""
        main = pid if thread is None else thread
        serial = global_pid(pid, hardware_id, vm_id)
        process = Process(self, pid, serial, main, {"deviceId": device, "contextId": context, "streamId": stream})
        self._insert_known(PROCESSES, globalPid=process.global_pid, pid=pid, name=name)
        return process

    def gpu(self, model: str, *, process: Process | None = None, device: int = 0) -> int:
        """A GPU of the machine, or with ``process`` the one that it knows as ``device``; returns its id."""
        number = next(self._gpus)
        self.insert("TARGET_INFO_GPU", id=number, name=model, cuDevice=number, pwGpuId=number)
        if process is not None:
            self.insert("TARGET_INFO_CUDA_DEVICE", gpuId=number, cudaId=device, pid=process.pid)
        return number

    def insert(self, table: str, **columns: Cell) -> None:
        """Any row of any table that the version has, as it stands."""
        known = self.schema.tables.get(table)
        if known is None:
            raise ValueError(f"schema {self.schema.version} has no table {table}")
        if missing := columns.keys() - known.columns.keys():
            raise ValueError(f"schema {self.schema.version} has no column {table}.{', '.join(sorted(missing))}")
        self._rows.append((table, columns))

    def write(self, path: Path) -> Path:
        """Write the trace, whole or not at all; the builder can go on and write again."""
        with Export(path, self.schema, self.strings) as export:
            by_table = sorted(self._rows, key=lambda row: row[0])
            for (table, *columns), rows in itertools.groupby(by_table, lambda row: (row[0], *row[1])):
                export.put(table, columns, [tuple(row.values()) for _, row in rows])
        return path

    def _insert_known(self, table: str, **columns: Cell) -> None:
        """Insert what the version can hold of the row: old versions lack some tables and columns."""
        if known := self.schema.tables.get(table):
            self.insert(table, **{name: value for name, value in columns.items() if name in known.columns})


@dataclass
class Process:
    """One process of a trace, and the rows that it caused, at ``place`` where they say nothing else."""

    trace: TraceBuilder
    pid: int
    global_pid: int
    thread: int
    place: Mapping[str, int]
    _correlations: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _records: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def global_tid(self, thread: int | None = None) -> int:
        return self.global_pid | (self.thread if thread is None else thread)

    def range(
        self,
        name: str,
        start_ns: int,
        end_ns: int | None,
        *,
        thread: int | None = None,
        registered: bool = False,
        event_type: int = PUSH_POP_RANGE,
        domain: int = 0,
    ) -> None:
        """A named span of CPU time, open without ``end_ns``. ``registered``: the name is a shared string."""
        self.trace.insert(
            NVTX,
            start=start_ns,
            end=end_ns,
            eventType=event_type,
            text=None if registered else name,
            textId=self.trace.strings.id_of(name) if registered else None,
            globalTid=self.global_tid(thread),
            domainId=domain,
        )

    def kernel(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        stream: int | None = None,
        launch_ns: int | None = None,
        device: int | None = None,
        context: int | None = None,
        thread: int | None = None,
        demangled: str | None = None,
        graph_node: int | None = None,
        graph: int | None = None,
        correlation: int | None = None,
        launch: bool = True,
        launch_class: int = RUNTIME_API,
        launch_length_ns: int = LAUNCH_LENGTH_NS,
    ) -> int:
        """A kernel and its launch; returns the correlation id.

        ``launch=False`` leaves the launch out. A ``correlation`` that is given gets a launch of its own only
        with ``launch_ns``: that is how kernels of one CUDA graph share a launch.
        """
        if launch and (correlation is None or launch_ns is not None):
            called_ns = start_ns - LAUNCH_LEAD_NS if launch_ns is None else launch_ns
            correlation = self.api(
                LAUNCH_NAMES.get(launch_class, LAUNCH_NAMES[RUNTIME_API]),
                called_ns,
                called_ns + launch_length_ns,
                thread=thread,
                event_class=launch_class,
                correlation=correlation,
            )
        number = next(self._correlations) if correlation is None else correlation
        id_of = self.trace.strings.id_of
        self.trace._insert_known(
            KERNEL,
            **self.gpu_span(start_ns, end_ns, number, stream, device, context),
            shortName=id_of(name),
            demangledName=id_of(demangled or name),
            mangledName=id_of(f"_Z{len(name)}{name}v"),
            graphNodeId=graph_node,
            graphId=graph,
        )
        return number

    def api(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        thread: int | None = None,
        event_class: int = RUNTIME_API,
        correlation: int | None = None,
    ) -> int:
        """A call of the CUDA API; returns its correlation id."""
        number = next(self._correlations) if correlation is None else correlation
        self.trace.insert(
            RUNTIME,
            start=start_ns,
            end=end_ns,
            eventClass=event_class,
            globalTid=self.global_tid(thread),
            correlationId=number,
            nameId=self.trace.strings.id_of(name),
        )
        return number

    def memcpy(
        self,
        start_ns: int,
        end_ns: int,
        *,
        bytes: int = 4_096,
        kind: int = 1,
        stream: int | None = None,
        device: int | None = None,
        context: int | None = None,
        launch_ns: int | None = None,
        pinned: bool | None = None,
        until_ns: int | None = None,
    ) -> int:
        """A copy and its call, which returns ``until_ns``; kind 1 is host to device, 2 back, 8 on the device, 10 to a
        peer. ``pinned`` None: the export does not say what memory it reads and writes.
        """
        called_ns = start_ns - LAUNCH_LEAD_NS if launch_ns is None else launch_ns
        returned_ns = called_ns + LAUNCH_LENGTH_NS if until_ns is None else until_ns
        number = self.api("cudaMemcpyAsync_v3020", called_ns, returned_ns)
        span = self.gpu_span(start_ns, end_ns, number, stream, device, context)
        told = {}
        if pinned is not None:
            told = {
                end: max(memory, int(pinned)) for end, memory in zip(("srcKind", "dstKind"), _MEMORY[kind], strict=True)
            }
        self.trace.insert(MEMCPY, **span, bytes=bytes, copyKind=kind, **told)
        return number

    def memset(
        self, start_ns: int, end_ns: int, *, stream: int | None = None, launch_ns: int | None = None, bytes: int = 4
    ) -> int:
        """A memset and its call."""
        called_ns = start_ns - LAUNCH_LEAD_NS if launch_ns is None else launch_ns
        number = self.api("cudaMemsetAsync_v3020", called_ns, called_ns + LAUNCH_LENGTH_NS)
        self.trace.insert(MEMSET, **self.gpu_span(start_ns, end_ns, number, stream), bytes=bytes)
        return number

    def event_record(self, call_ns: int, *, stream: int | None = None, context: int | None = None) -> int:
        """An event is recorded on a stream; the number of the record, which :meth:`stream_wait` may wait for.

        Rows of events have no time of their own: the call alone says when.
        """
        number = next(self._records)
        correlation = self.api("cudaEventRecord_v3020", call_ns, call_ns + EVENT_CALL_NS)
        self.trace.insert(CUDA_EVENT, **self._event(correlation, stream, context), eventSyncId=number)
        return number

    def stream_wait(
        self, call_ns: int, record: int | None = None, *, stream: int | None = None, context: int | None = None
    ) -> int:
        """A stream waits for a record; None: for one of which the trace holds no row. Returns the correlation."""
        correlation = self.api("cudaStreamWaitEvent_v3020", call_ns, call_ns + EVENT_CALL_NS)
        span = {"start": call_ns + 1, "end": call_ns + 2, **self._event(correlation, stream, context), "deviceId": 0}
        sync_id = NO_SYNC_ID if record is None else record
        self.trace._insert_known(SYNCHRONIZATION, **span, syncType=STREAM_WAIT, eventId=1, eventSyncId=sync_id)
        return correlation

    def _event(self, correlation: int, stream: int | None, context: int | None) -> dict[str, int]:
        span = self.gpu_span(0, 0, correlation, stream, context=context)
        return {column: value for column, value in span.items() if column not in ("start", "end")}

    def gpu_span(
        self,
        start_ns: int,
        end_ns: int,
        correlation: int,
        stream: int | None = None,
        device: int | None = None,
        context: int | None = None,
    ) -> dict[str, int]:
        """The columns that a kernel and a copy have in common."""
        given = {"streamId": stream, "deviceId": device, "contextId": context}
        return {
            "start": start_ns,
            "end": end_ns,
            **self.place,
            **{column: value for column, value in given.items() if value is not None},
            "correlationId": correlation,
            "globalPid": self.global_pid,
        }
