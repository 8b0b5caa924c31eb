"""How does one write a database of rocprofv3 of a few rows, so that a reader of the test sees what is in it?

    trace = RocpdBuilder(pid=100)
    trace.range("layer00.stage2_f", 1_000, 9_000)
    trace.kernel("ncclDevKernel_SendRecv", 4_000, 8_000, stream=28, launch_ns=2_000)
    trace.write(tmp_path / "100_results.db")

Its calls are those of the builder of exports. The tables are those of schema 3, as ROCm 7 writes it: names end in the
capture's uuid, views without it stand beside them, and events come before what they are of, call by call.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.support.samples.builder import EVENT_CALL_NS, LAUNCH_LEAD_NS, LAUNCH_LENGTH_NS

Cell = int | float | str | bytes | None

TABLES: Mapping[str, str] = {
    "string": "string:TEXT",
    "info_node": "hash machine_id:TEXT system_name:TEXT hostname:TEXT release:TEXT version:TEXT",
    "info_process": "nid ppid pid init fini start end command:TEXT environment:JSONB extdata:JSONB",
    "info_thread": "nid ppid pid tid name:TEXT start end extdata:JSONB",
    "info_agent": "nid pid type:TEXT absolute_index logical_index type_index uuid name:TEXT model_name:TEXT "
    "vendor_name:TEXT product_name:TEXT user_name:TEXT extdata:JSONB",
    "info_queue": "nid pid name:TEXT extdata:JSONB",
    "info_stream": "nid pid name:TEXT extdata:JSONB",
    "info_code_object": "nid pid agent_id uri:TEXT extdata:JSONB",
    "info_kernel_symbol": "nid pid code_object_id kernel_name:TEXT display_name:TEXT kernel_object extdata:JSONB",
    "track": "nid pid tid name_id extdata:JSONB",
    "event": "category_id stack_id parent_stack_id correlation_id call_stack:JSONB line_info:JSONB extdata:JSONB",
    "arg": "event_id position type:TEXT name:TEXT value:TEXT extdata:JSONB",
    "region": "nid pid tid start end name_id event_id extdata:JSONB",
    "sample": "track_id timestamp event_id extdata:JSONB",
    "kernel_dispatch": "nid pid tid agent_id kernel_id dispatch_id queue_id stream_id start end private_segment_size "
    "group_segment_size workgroup_size_x workgroup_size_y workgroup_size_z grid_size_x grid_size_y grid_size_z "
    "region_name_id event_id extdata:JSONB",
    "memory_copy": "nid pid tid start end name_id dst_agent_id dst_address src_agent_id src_address size queue_id "
    "stream_id region_name_id event_id extdata:JSONB",
    "memory_allocate": "nid pid tid agent_id type:TEXT level:TEXT start end address size queue_id stream_id event_id "
    "extdata:JSONB",
}
"""The columns of each table besides id and guid; those without a type are whole numbers."""

CPU_AGENT, FIRST_GPU_AGENT = 0, 4
"""Ids of agents are nodes of the machine's topology: its CPUs come first."""

COPIES = {1: "HOST_TO_DEVICE", 2: "DEVICE_TO_HOST", 8: "DEVICE_TO_DEVICE", 10: "DEVICE_TO_DEVICE"}
"""What a copy is called, by the number of its kind as CUDA has it."""

MARKER, HIP, HSA, RCCL = "MARKER_CORE_RANGE_API", "HIP_RUNTIME_API_EXT", "HSA_CORE_API", "RCCL_API"
DISPATCH, COPY, ALLOCATION = "KERNEL_DISPATCH", "MEMORY_COPY", "MEMORY_ALLOCATION"


class RocpdBuilder:
    """The capture of one process in memory, row by row, until :meth:`write`."""

    def __init__(
        self,
        pid: int = 100,
        *,
        device: int = 0,
        gpus: int = 8,
        gpu: str = "AMD Instinct MI300X",
        host: str = "node0",
        environment: Mapping[str, str] = {},
    ) -> None:
        self.pid, self.device, self.host = pid, device, host
        self.guid = sha256(f"{host} {pid}".encode()).hexdigest()[:32]
        self.rows: list[tuple[str, dict[str, Cell]]] = []
        self._ids: dict[str, Iterator[int]] = {}
        self._strings: dict[str, int] = {}
        self._symbols: dict[str, int] = {}
        self._threads: set[int] = set()
        self._stacks = itertools.count(1)
        self._event_of: dict[int, int] = {}
        self.node = int(sha256(host.encode()).hexdigest()[:7], 16)
        self.insert("info_node", id=self.node, hash=self.node, machine_id=f"id of {host}", hostname=host)
        self.insert("info_process", id=pid, nid=self.node, pid=pid, environment=json.dumps(dict(environment)))
        self._agent(CPU_AGENT, "CPU", 0, "AMD EPYC 9654")
        for number in range(gpus):
            self._agent(FIRST_GPU_AGENT + number, "GPU", number, gpu)

    def insert(self, kind: str, **columns: Cell) -> int:
        """Any row of any table, as it stands; returns its id."""
        number = columns.pop("id", None)
        if number is None:
            number = next(self._ids.setdefault(kind, itertools.count(1)))
        self.rows.append((kind, {"id": number, **columns}))
        assert isinstance(number, int)
        return number

    def string(self, text: str) -> int:
        """The id of a string."""
        if text not in self._strings:
            self._strings[text] = self.insert("string", string=text)
        return self._strings[text]

    def event(self, category: str, stack: int | None, parent: int | None = 0, message: str | None = None) -> int:
        """An event; a range keeps its name in it as ``message``."""
        more = "{}" if message is None else json.dumps({"message": message})
        return self.insert(
            "event",
            category_id=self.string(category),
            stack_id=stack,
            parent_stack_id=parent,
            correlation_id=0,
            extdata=more,
        )

    def range(self, name: str, start_ns: int, end_ns: int, *, thread: int | None = None) -> int:
        """A range of ROCTx."""
        return self._region(MARKER, "roctxThreadRangeA", start_ns, end_ns, thread, message=name)

    def api(
        self,
        name: str,
        start_ns: int,
        end_ns: int | None = None,
        *,
        thread: int | None = None,
        category: str = HIP,
        parent: int = 0,
    ) -> int:
        """A call; returns its stack id."""
        end_ns = start_ns + LAUNCH_LENGTH_NS if end_ns is None else end_ns
        return self._region(category, name, start_ns, end_ns, thread, parent=parent)

    def _region(
        self,
        category: str,
        name: str,
        start_ns: int,
        end_ns: int,
        thread: int | None,
        *,
        parent: int = 0,
        message: str | None = None,
    ) -> int:
        stack = next(self._stacks)
        event = self.event(category, stack, parent, message)
        place = {"nid": self.node, "pid": self.pid, "tid": self._thread(thread)}
        self.insert("region", id=stack, **place, start=start_ns, end=end_ns, name_id=self.string(name), event_id=event)
        return stack

    def kernel(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        stream: int = 7,
        queue: int = 1,
        launch_ns: int | None = None,
        device: int | None = None,
        thread: int | None = None,
        correlation: int | None = None,
        launch: bool = True,
        launch_length_ns: int = LAUNCH_LENGTH_NS,
    ) -> int:
        """A kernel and its launch; returns the stack id that both share. A ``correlation`` that is given gets none."""
        if correlation is None and launch:
            called_ns = start_ns - LAUNCH_LEAD_NS if launch_ns is None else launch_ns
            correlation = self.api("hipLaunchKernel", called_ns, called_ns + launch_length_ns, thread=thread)
        stack = next(self._stacks) if correlation is None else correlation
        if name not in self._symbols:
            self._symbols[name] = self.insert(
                "info_kernel_symbol",
                nid=self.node,
                pid=self.pid,
                code_object_id=1,
                kernel_name=f"_Z{len(name)}{name}v.kd",
                display_name=name,
            )
        number = next(self._ids.setdefault("dispatch", itertools.count(1)))
        self.insert(
            "kernel_dispatch",
            id=number,
            **self._place(thread),
            agent_id=FIRST_GPU_AGENT + (self.device if device is None else device),
            kernel_id=self._symbols[name],
            dispatch_id=number,
            queue_id=queue,
            stream_id=stream,
            start=start_ns,
            end=end_ns,
            event_id=self.event(DISPATCH, stack, stack),
        )
        return stack

    def memcpy(
        self,
        start_ns: int,
        end_ns: int,
        *,
        bytes: int = 4_096,
        kind: int = 1,
        stream: int | None = 7,
        launch_ns: int | None = None,
    ) -> int:
        """A copy and its call; kind 1 is host to device, 2 back, 8 on the device, 10 to a peer."""
        stack = self.api("hipMemcpyAsync", start_ns - LAUNCH_LEAD_NS if launch_ns is None else launch_ns)
        own, peer = FIRST_GPU_AGENT + self.device, FIRST_GPU_AGENT + self.device + 1
        source, target = {1: (CPU_AGENT, own), 2: (own, CPU_AGENT), 8: (own, own), 10: (own, peer)}[kind]
        self.insert(
            "memory_copy",
            **self._place(None),
            start=start_ns,
            end=end_ns,
            name_id=self.string(f"MEMORY_COPY_{COPIES[kind]}"),
            src_agent_id=source,
            dst_agent_id=target,
            size=bytes,
            stream_id=stream,
            event_id=self.event(COPY, stack, stack),
        )
        return stack

    def memset(self, start_ns: int, end_ns: int, *, stream: int = 7, launch_ns: int | None = None) -> int:
        """A memset, which is a kernel under ROCm."""
        return self.kernel("__amd_rocclr_fillBufferAligned", start_ns, end_ns, stream=stream, launch_ns=launch_ns)

    def event_record(self, call_ns: int, *, stream: int = 7) -> int:  # noqa: ARG002
        """An event is recorded: a call, of which nothing says on which stream. Returns its stack id."""
        return self.api("hipEventRecord", call_ns, call_ns + EVENT_CALL_NS)

    def stream_wait(self, call_ns: int, record: int | None = None, *, stream: int = 7) -> int:  # noqa: ARG002
        """A stream waits: a call, of which nothing says for what. Returns its stack id."""
        return self.api("hipStreamWaitEvent", call_ns, call_ns + EVENT_CALL_NS)

    def allocate(self, at_ns: int, size: int, *, address: int, on_gpu: bool = True, level: str = "REAL") -> None:
        """An allocation on the GPU, or on the CPU."""
        agent = FIRST_GPU_AGENT + self.device if on_gpu else CPU_AGENT
        self._memory("ALLOC", at_ns, size, address, level, agent)

    def free(self, at_ns: int, *, address: int, level: str = "REAL") -> None:
        """A free, which names the address alone."""
        self._memory("FREE", at_ns, 0, address, level, None)

    def _memory(self, kind: str, at_ns: int, size: int, address: int, level: str, agent: int | None) -> None:
        event = self.event(ALLOCATION, next(self._stacks))
        columns = {"agent_id": agent, "type": kind, "level": level, "start": at_ns, "end": at_ns + 900}
        place = self._place(None)
        self.insert("memory_allocate", **place, **columns, address=address, size=size, stream_id=0, event_id=event)

    def _place(self, thread: int | None) -> dict[str, Cell]:
        return {"nid": self.node, "pid": self.pid, "tid": self._thread(thread)}

    def _thread(self, thread: int | None) -> int:
        number = self.pid if thread is None else thread
        if number not in self._threads:
            self._threads.add(number)
            self.insert("info_thread", id=number, nid=self.node, pid=self.pid, tid=number)
        return number

    def _agent(self, number: int, kind: str, index: int, model: str) -> None:
        names = {"name": "gfx942" if kind == "GPU" else model, "product_name": model, "model_name": ""}
        place = {"nid": self.node, "pid": self.pid, "absolute_index": number, "type_index": index}
        self.insert("info_agent", id=number, type=kind, **place, **names)

    def write(self, path: Path, *others: RocpdBuilder, views: bool = True) -> Path:
        """Write the database, with the captures of ``others`` merged into it; the builder can go on and write again."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as database, database:
            for capture in (self, *others):
                capture._put(database)
            for kind in TABLES if views else ():
                each = " UNION ALL ".join(f'SELECT * FROM "{one.table(kind)}"' for one in (self, *others))
                database.execute(f"CREATE VIEW rocpd_{kind} AS {each}")
        return path

    def table(self, kind: str) -> str:
        """The name of a table of this capture."""
        return f"rocpd_{kind}_{self.guid}"

    def _put(self, database: sqlite3.Connection) -> None:
        database.execute(f'CREATE TABLE "{self.table("metadata")}" (id INTEGER PRIMARY KEY, tag TEXT, value TEXT)')
        stated = [("schema_version", "3"), ("uuid", f"_{self.guid}"), ("guid", self.guid)]
        database.executemany(f'INSERT INTO "{self.table("metadata")}" (tag, value) VALUES (?, ?)', stated)
        for kind, columns in TABLES.items():
            database.execute(f'CREATE TABLE "{self.table(kind)}" ({", ".join(_declared(self.guid, columns))})')
        for (kind, names), rows in _alike(self.rows):
            marks = ", ".join("?" * len(names))
            sql = f'INSERT INTO "{self.table(kind)}" ({", ".join(names)}) VALUES ({marks})'
            database.executemany(sql, rows)
        database.execute(f'CREATE INDEX "{self.table("event")}_category" ON "{self.table("event")}" (category_id)')


def _declared(guid: str, columns: str) -> Iterator[str]:
    yield from ("id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT", f"guid TEXT DEFAULT '{guid}' NOT NULL")
    for column in columns.split():
        name, _, kind = column.partition(":")
        yield f'"{name}" {kind or "INTEGER"}' + (" DEFAULT '{}' NOT NULL" if kind == "JSONB" else "")


def _alike(rows: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[tuple[tuple[str, tuple[str, ...]], list[list[Any]]]]:
    """The rows of one table that have the same columns, in order."""
    found: dict[tuple[str, tuple[str, ...]], list[list[Any]]] = {}
    for kind, columns in rows:
        found.setdefault((kind, tuple(columns)), []).append(list(columns.values()))
    return iter(found.items())
