"""Which tables and columns does each version of nsys export, and how is such an export written?

The data is a column list of SQL in short: ``name:TYPE!=default@since``. INTEGER is the type where none is
given, ``!`` means NOT NULL, ``=`` is what the builder writes where a row says nothing, ``@`` is the first schema
version that has the column. Exports declare no defaults: they are the builder's alone.

Rows are staged in any order and stored in the order of nsys. They arrive in batches and wait in temporary tables of
SQLite, so that memory stays bounded; the end sorts them into the file. A file appears whole, under its name, or not at
all.
"""

from __future__ import annotations

import functools
import os
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

Cell = int | float | str | bytes | None

VERSIONS = ("none", "2.9", "3.0", "3.7", "3.13", "3.24", "3.25", "3.28")
PRODUCT_VERSIONS = {
    "none": "2021.2.1",
    "2.9": "2022.2.1",
    "3.0": "2022.4.2",
    "3.7": "2023.4.4",
    "3.13": "2024.5.1",
    "3.24": "2025.5.2",
    "3.25": "2026.2.1",
    "3.28": "2026.4.1",
}

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NVTX = "NVTX_EVENTS"
STRINGS = "StringIds"
PROCESSES = "PROCESSES"

_ONE_BATCH = 50_000

_COLUMN = re.compile(r"(?P<name>\w+)(:(?P<type>TEXT|REAL))?(?P<required>!)?(=(?P<default>[^@]+))?(@(?P<since>.+))?")


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``default`` is a literal of SQL."""

    name: str
    declaration: str
    default: str | None


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One table of one version, with the order in which exports hold its rows (none: as they came)."""

    name: str
    columns: Mapping[str, Column]
    order: str


@dataclass(frozen=True, slots=True)
class _Source:
    columns: str
    order: str = ""
    since: str = "none"
    until: str = VERSIONS[-1]


_NAME_VALUE = "name:TEXT! value:TEXT"
_ENUM = "id!key name:TEXT label:TEXT"
_GPU_SPAN = "start! end! deviceId!=0 contextId!=1 greenContextId@3.7 streamId!=7 correlationId globalPid "

_SOURCES = {
    STRINGS: _Source("id!key value:TEXT!", order="id"),
    "ThreadNames": _Source("nameId! priority=20 globalTid"),
    PROCESSES: _Source("globalPid pid name:TEXT", since="2.9"),
    "EXPORT_META_DATA": _Source(_NAME_VALUE, since="2.9", until="3.0"),
    "META_DATA_CAPTURE": _Source(_NAME_VALUE, since="3.7"),
    "META_DATA_EXPORT": _Source(_NAME_VALUE, since="3.7"),
    "TARGET_INFO_SYSTEM_ENV": _Source(
        "globalVid devStateName:TEXT!='' name:TEXT! nameEnum!=0 value:TEXT!", since="2.9"
    ),
    "TARGET_INFO_SESSION_START_TIME": _Source("utcEpochNs utcTime:TEXT localTime:TEXT systemClockNs@3.13"),
    "ANALYSIS_DETAILS": _Source("globalVid! duration! startTime! stopTime!"),
    "TARGET_INFO_GPU": _Source(
        "vmId!=0 id! name:TEXT busLocation:TEXT isDiscrete=1 l2CacheSize totalMemory memoryBandwidth "
        "clockRate smCount pwGpuId uuid:TEXT luid chipName:TEXT cuDevice ctxswDevPath:TEXT ctrlDevPath:TEXT "
        "revision nodeMask constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin "
        "maxShmemPerSm maxRegistersPerSm threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm "
        "maxThreadsPerBlock maxBlockDimX maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ "
        "computeMajor computeMinor smMajor smMinor"
    ),
    "TARGET_INFO_CUDA_DEVICE": _Source("gpuId! cudaId! pid! uuid:TEXT@3.25 numMultiprocessors!=132@3.25"),
    "TARGET_INFO_CUDA_STREAM": _Source("streamId! hwId!=0 vmId!=0 processId! contextId!=1 priority!=0 flag!=1"),
    "DIAGNOSTIC_EVENT": _Source("timestamp!=0 timestampType!=1 source!=1 severity! text:TEXT! globalPid", since="3.13"),
    "NVTX_PAYLOAD_SCHEMAS": _Source(
        "domainId schemaId name:TEXT type flags numEntries payloadSize alignTo", since="3.25"
    ),
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": _Source(
        "domainId! schemaId! idx! flags type name:TEXT description:TEXT arrayOrUnionDetail offset", since="3.25"
    ),
    "DYNAMIC_NVTXPAYLOAD_0": _Source("nvtxEventId schemaId payload:TEXT", since="3.28"),
    "GENERIC_EVENTS": _Source("rawTimestamp timestamp typeId data:TEXT!='{}'", since="3.7"),
    "GPU_METRICS": _Source("timestamp typeId metricId! value!", since="3.7"),
    "PROFILER_OVERHEAD": _Source("start! end! globalTid nameId! overheadType!=0", since="3.7"),
    RUNTIME: _Source(
        "start! end! eventClass!=0 globalTid correlationId nameId! returnValue!=0 callchainId",
        order="globalTid, eventClass, start",  # blocks, one per thread and class, each ascending
    ),
    KERNEL: _Source(
        _GPU_SPAN + "demangledName! shortName! mangledName@2.9 launchType=1 cacheConfig=1 registersPerThread!=32 "
        "gridX!=132 gridY!=1 gridZ!=1 blockX!=128 blockY!=1 blockZ!=1 staticSharedMemory!=0 "
        "dynamicSharedMemory!=0 localMemoryPerThread!=0 localMemoryTotal!=0 gridId!=0 sharedMemoryExecuted "
        "graphNodeId sharedMemoryLimitConfig=0 qmdBulkReleaseDone@3.13 qmdPreexitDone@3.13 qmdLastCtaDone@3.13 "
        "graphId@3.24 clusterX=0@3.13 clusterY=0@3.13 clusterZ=0@3.13 clusterSchedulingPolicy=1@3.13 "
        "maxPotentialClusterSize=0@3.13 maxActiveClusters=0@3.13",
        order="start",
    ),
    MEMCPY: _Source(
        _GPU_SPAN + "bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId "
        "dstContextId migrationCause graphNodeId virtualAddress copyCount@3.24",
        order="start",
    ),
    MEMSET: _Source(_GPU_SPAN + "value!=0 bytes! graphNodeId memKind", order="start"),
    SYNCHRONIZATION: _Source(
        _GPU_SPAN + "deprecatedSyncType@3.7 syncType!=1 eventId!=0 eventSyncId@3.24", order="start"
    ),
    GRAPH_TRACE: _Source(_GPU_SPAN + "graphId!=1 graphExecId!=1", order="start", since="3.24"),
    NVTX: _Source(
        "start! end eventType! rangeId category color text:TEXT globalTid endGlobalTid textId domainId "
        "uint64Value int64Value doubleValue:REAL uint32Value int32Value floatValue:REAL jsonTextId "
        "jsonText:TEXT binaryData:TEXT@3.25 eventId@3.28",
        order="start",
    ),
    "ENUM_NSYS_EVENT_TYPE": _Source(_ENUM, since="3.0"),
    "ENUM_NSYS_EVENT_CLASS": _Source(_ENUM, since="3.0"),
    "ENUM_CUDA_MEMCPY_OPER": _Source(_ENUM, since="3.0"),
}

ENUM_ROWS: Mapping[str, tuple[tuple[int, str, str], ...]] = {
    "ENUM_NSYS_EVENT_TYPE": (
        (33, "NvtxCategory", "NvtxCategory"),
        (34, "NvtxMark", "NvtxMark"),
        (59, "NvtxPushPopRange", "NvtxPushPopRange"),
        (60, "NvtxStartEndRange", "NvtxStartEndRange"),
        (70, "NvtxtPushPopRange", "NvtxtPushPopRange"),
        (71, "NvtxtStartEndRange", "NvtxtStartEndRange"),
        (75, "NvtxDomainCreate", "NvtxDomainCreate"),
        (76, "NvtxDomainDestroy", "NvtxDomainDestroy"),
    ),
    "ENUM_NSYS_EVENT_CLASS": (
        (0, "TRACE_PROCESS_EVENT_CUDA_RUNTIME", "CUDA runtime"),
        (1, "TRACE_PROCESS_EVENT_CUDA_DRIVER", "CUDA driver"),
    ),
    "ENUM_CUDA_MEMCPY_OPER": (
        (1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device"),
        (2, "CUDA_MEMCPY_KIND_DTOH", "Device-to-Host"),
        (8, "CUDA_MEMCPY_KIND_DTOD", "Device-to-Device"),
        (10, "CUDA_MEMCPY_KIND_PTOP", "Peer-to-Peer"),
    ),
}


@functools.cache
def tables(version: str) -> Mapping[str, TableSchema]:
    """The tables that an export of ``version`` can have, in the order in which it holds them."""
    if version not in VERSIONS:
        raise ValueError(f"no schema version {version!r}: one of {', '.join(VERSIONS)}")
    at = VERSIONS.index(version)
    return {
        name: TableSchema(name, _columns(source.columns, at), source.order)
        for name, source in _SOURCES.items()
        if VERSIONS.index(source.since) <= at <= VERSIONS.index(source.until)
    }


def metadata_table(version: str) -> str | None:
    """The table that names the schema version, where there is one."""
    return next((name for name in ("META_DATA_EXPORT", "EXPORT_META_DATA") if name in tables(version)), None)


def _columns(source: str, at: int) -> dict[str, Column]:
    columns = {}
    for token in source.split():
        text = token.removesuffix("key")
        match = _COLUMN.fullmatch(text)
        if match is None:
            raise ValueError(f"not a column: {token!r}")
        if match["since"] and VERSIONS.index(match["since"]) > at:
            continue
        declaration = (match["type"] or "INTEGER") + (" NOT NULL" if match["required"] else "")
        if text != token:
            declaration += " PRIMARY KEY"
        columns[match["name"]] = Column(match["name"], declaration, match["default"])
    return columns


class Strings:
    """The ids of the texts that rows share, in the order of their first use."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._last = 0

    def id_of(self, text: str) -> int:
        """The id of ``text``, the same for the same text."""
        known = self._ids.get(text)
        return self._remember(text) if known is None else known

    def next_id(self) -> int:
        """An id for a text that nothing else shares, which the caller stores itself."""
        self._last += 1
        return self._last

    def rows(self) -> list[tuple[int, str]]:
        return [(number, text) for text, number in self._ids.items()]

    def _remember(self, text: str) -> int:
        self._ids[text] = number = self.next_id()
        return number


class Export:
    """A trace file in the making: a context manager that leaves a complete file, or none."""

    def __init__(self, path: Path, version: str = "3.25", strings: Strings | None = None) -> None:
        self.path = path
        self.version = version
        self.strings = strings or Strings()
        self._tables = tables(version)
        self._staged: set[str] = set()
        self._single_texts: list[tuple[int, str]] = []
        self._draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")

    def __enter__(self) -> Self:
        self._draft.unlink(missing_ok=True)
        self._database = sqlite3.connect(self._draft, isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "temp_store = FILE", "cache_size = -32000"):
            self._database.execute(f"PRAGMA {pragma}").close()
        self._database.execute("BEGIN")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        try:
            with closing(self._database):
                if kind is None:
                    self._finish()
            if kind is None:
                self._draft.replace(self.path)
        finally:
            with suppress(FileNotFoundError):
                self._draft.unlink()

    def put(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Stage ``rows``; columns that are not named take the schema's defaults."""
        if table not in self._staged:
            self._stage(table)
        names = ", ".join(f'"{name}"' for name in columns)
        values = ", ".join("?" * len(columns))
        self._database.executemany(f'INSERT INTO temp."{table}" ({names}) VALUES ({values})', rows)

    def single_text(self, text: str) -> int:
        """The id of a text that no other row names: stored, and forgotten here."""
        number = self.strings.next_id()
        self._single_texts.append((number, text))
        if len(self._single_texts) >= _ONE_BATCH:
            self._put_single_texts()
        return number

    def _put_single_texts(self) -> None:
        self.put(STRINGS, ("id", "value"), self._single_texts)
        self._single_texts.clear()

    def _stage(self, table: str) -> None:
        columns = self._tables[table].columns.values()
        body = ", ".join(
            f'"{c.name}" {c.declaration}' + (f" DEFAULT {c.default}" if c.default else "") for c in columns
        )
        self._database.execute(f'CREATE TEMP TABLE "{table}" ({body})')
        self._staged.add(table)

    def _finish(self) -> None:
        self._put_metadata()
        if self._single_texts:
            self._put_single_texts()
        if texts := self.strings.rows():
            self.put(STRINGS, ("id", "value"), texts)
        for table in self._tables.values():
            if table.name in self._staged:
                self._write(table)
        self._database.execute("COMMIT")

    def _put_metadata(self) -> None:
        if metadata := metadata_table(self.version):
            major, minor = self.version.split(".")
            rows = (
                ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
                ("EXPORT_PRODUCT_VERSION", PRODUCT_VERSIONS[self.version]),
                ("EXPORT_SCHEMA_VERSION", f"{self.version}.0"),
                ("EXPORT_SCHEMA_VERSION_MAJOR", major),
                ("EXPORT_SCHEMA_VERSION_MINOR", minor),
                ("EXPORT_SCHEMA_VERSION_MICRO", "0"),
                ("SYNTHETIC_BY", "pytest_nsys.samples"),
            )
            self.put(metadata, ("name", "value"), rows)
        for table, enum_rows in ENUM_ROWS.items():
            if table in self._tables:
                self.put(table, ("id", "name", "label"), enum_rows)

    def _write(self, table: TableSchema) -> None:
        width = max(map(len, table.columns)) + 2
        body = ",\n".join(f"    {c.name:<{width}}{c.declaration}" for c in table.columns.values())
        self._database.execute(f"CREATE TABLE main.{table.name} (\n{body}\n)")
        order = f"{table.order}, rowid" if table.order else "rowid"
        select = f"SELECT * FROM temp.{table.name} ORDER BY {order}"
        self._database.execute(f"INSERT INTO main.{table.name} {select}")
