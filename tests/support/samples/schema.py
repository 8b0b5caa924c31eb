"""Which tables and columns does nsys export, and how is such an export written?

The data is a column list of SQL in short: ``name:TYPE!=default``. INTEGER is the type where none is given, ``!`` means
NOT NULL, ``=`` is what the builder writes where a row says nothing. Exports declare no defaults: they are the builder's
alone.

Rows are staged in any order and stored in the order of nsys. They arrive in batches and wait in temporary tables of
SQLite, so that memory stays bounded; the end sorts them into the file. A file appears whole, under its name, or not at
all.
"""

import os
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

Cell = int | float | str | bytes | None

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CUDA_EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
GRAPH_NODES = "CUDA_GRAPH_NODE_EVENTS"
MEMORY_USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
GPU_METRICS, GPU_METRIC_NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
NVTX = "NVTX_EVENTS"
STRINGS = "StringIds"
PROCESSES = "PROCESSES"
SYNC_TYPES = "ENUM_CUPTI_SYNC_TYPE"

_COLUMN = re.compile(r"(?P<name>\w+?)(?P<key>!key)?(:(?P<type>TEXT|REAL))?(?P<required>!)?(=(?P<default>.+))?")


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``default`` is a literal of SQL."""

    name: str
    declaration: str
    default: str | None


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One table, with the order in which exports hold its rows (none: as they came)."""

    columns: Mapping[str, Column]
    order: str = ""


def _table(columns: str, order: str = "") -> TableSchema:
    return TableSchema({column.name: column for column in map(_column, columns.split())}, order)


def _column(text: str) -> Column:
    found = _COLUMN.fullmatch(text)
    if found is None:
        raise ValueError(f"not a column: {text!r}")
    needed = " NOT NULL" if found["required"] or found["key"] else ""
    declaration = (found["type"] or "INTEGER") + needed + (" PRIMARY KEY" if found["key"] else "")
    return Column(found["name"], declaration, found["default"])


_NAME_VALUE = "name:TEXT! value:TEXT"
_ENUM = "id!key name:TEXT label:TEXT"
_GPU_SPAN = "start! end! deviceId!=0 contextId!=1 greenContextId streamId!=7 correlationId globalPid "

TABLES: Mapping[str, TableSchema] = {
    STRINGS: _table("id!key value:TEXT!", order="id"),
    PROCESSES: _table("globalPid pid name:TEXT"),
    "META_DATA_CAPTURE": _table(_NAME_VALUE),
    "META_DATA_EXPORT": _table(_NAME_VALUE),
    "TARGET_INFO_SYSTEM_ENV": _table("globalVid devStateName:TEXT!='' name:TEXT! nameEnum!=0 value:TEXT!"),
    "TARGET_INFO_SESSION_START_TIME": _table("utcEpochNs utcTime:TEXT localTime:TEXT systemClockNs"),
    "ANALYSIS_DETAILS": _table("globalVid! duration! startTime! stopTime!"),
    "TARGET_INFO_GPU": _table(
        "vmId!=0 id! name:TEXT busLocation:TEXT isDiscrete=1 l2CacheSize totalMemory memoryBandwidth "
        "clockRate smCount pwGpuId uuid:TEXT luid chipName:TEXT cuDevice ctxswDevPath:TEXT ctrlDevPath:TEXT "
        "revision nodeMask constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin "
        "maxShmemPerSm maxRegistersPerSm threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm "
        "maxThreadsPerBlock maxBlockDimX maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ "
        "computeMajor computeMinor smMajor smMinor"
    ),
    "TARGET_INFO_CUDA_DEVICE": _table("gpuId! cudaId! pid! uuid:TEXT numMultiprocessors!=132"),
    "DIAGNOSTIC_EVENT": _table("timestamp!=0 timestampType!=1 source!=1 severity! text:TEXT! globalPid"),
    "NVTX_PAYLOAD_SCHEMAS": _table("domainId schemaId name:TEXT type flags numEntries payloadSize alignTo"),
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": _table(
        "domainId! schemaId! idx! flags type name:TEXT description:TEXT arrayOrUnionDetail offset"
    ),
    RUNTIME: _table(
        "start! end! eventClass!=0 globalTid correlationId nameId! returnValue!=0 callchainId",
        order="globalTid, eventClass, start",  # blocks, one per thread and class, each ascending
    ),
    KERNEL: _table(
        _GPU_SPAN + "demangledName! shortName! mangledName launchType=1 cacheConfig=1 registersPerThread!=32 "
        "gridX!=132 gridY!=1 gridZ!=1 blockX!=128 blockY!=1 blockZ!=1 staticSharedMemory!=0 "
        "dynamicSharedMemory!=0 localMemoryPerThread!=0 localMemoryTotal!=0 gridId!=0 sharedMemoryExecuted "
        "graphNodeId sharedMemoryLimitConfig=0 qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone "
        "graphId clusterX=0 clusterY=0 clusterZ=0 clusterSchedulingPolicy=1 "
        "maxPotentialClusterSize=0 maxActiveClusters=0",
        order="start",
    ),
    MEMCPY: _table(
        _GPU_SPAN + "bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId "
        "dstContextId migrationCause graphNodeId virtualAddress copyCount",
        order="start",
    ),
    MEMSET: _table(_GPU_SPAN + "value!=0 bytes! graphNodeId memKind!=2", order="start"),
    SYNCHRONIZATION: _table(_GPU_SPAN + "deprecatedSyncType syncType!=1 eventId!=0 eventSyncId", order="start"),
    CUDA_EVENT: _table(
        "timestamp=0 deviceId!=0 contextId!=1 greenContextId streamId!=7 correlationId globalPid eventId!=0 eventSyncId"
    ),
    GRAPH_NODES: _table("start! end eventClass!=0 globalTid nameId! graphNodeId! originalGraphNodeId", order="start"),
    GRAPH_TRACE: _table(_GPU_SPAN + "graphId!=1 graphExecId!=1", order="start"),
    MEMORY_USAGE: _table(
        "start! globalPid! deviceId!=0 contextId!=1 address! pc!=0 bytes! memKind!=2 memoryOperationType!=0 "
        "name:TEXT correlationId streamId localMemoryPoolAddress localMemoryPoolReleaseThreshold localMemoryPoolSize "
        "localMemoryPoolUtilizedSize importedMemoryPoolAddress importedMemoryPoolProcessId",
        order="start",
    ),
    GPU_METRIC_NAMES: _table("typeId! sourceId!=0 typeName:TEXT!='' metricId! metricName:TEXT!"),
    GPU_METRICS: _table("rawTimestamp timestamp typeId metricId value", order="timestamp"),
    NVTX: _table(
        "start! end eventType! rangeId category color text:TEXT globalTid endGlobalTid textId domainId "
        "uint64Value int64Value doubleValue:REAL uint32Value int32Value floatValue:REAL jsonTextId "
        "jsonText:TEXT binaryData:TEXT",
        order="start",
    ),
    "ENUM_NSYS_EVENT_TYPE": _table(_ENUM),
    "ENUM_NSYS_EVENT_CLASS": _table(_ENUM),
    "ENUM_CUDA_MEMCPY_OPER": _table(_ENUM),
    SYNC_TYPES: _table(_ENUM),
    "ENUM_CUDA_MEM_KIND": _table(_ENUM),
    "ENUM_CUDA_DEV_MEM_EVENT_OPER": _table(_ENUM),
}
"""In the order in which a file holds them."""

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
    SYNC_TYPES: (
        (1, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE", "Event sync"),
        (2, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT", "Stream wait sync"),
        (3, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE", "Stream sync"),
        (4, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE", "Context sync"),
    ),
}


class Schema(NamedTuple):
    """What one version of nsys writes. ``metadata`` is the table that names the version, where there is one."""

    version: str
    product: str
    tables: Mapping[str, TableSchema]
    metadata: str | None = "META_DATA_EXPORT"


CURRENT = Schema("3.25", "2026.2.1", TABLES)


class Strings:
    """The ids of the texts that rows share, in the order of their first use."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._last = 0

    def id_of(self, text: str) -> int:
        """The id of ``text``, the same for the same text."""
        if text not in self._ids:
            self._ids[text] = self.next_id()
        return self._ids[text]

    def next_id(self) -> int:
        """An id for a text that nothing else shares, which the caller stores itself."""
        self._last += 1
        return self._last

    def rows(self) -> list[tuple[int, str]]:
        return [(number, text) for text, number in self._ids.items()]


class Export:
    """A trace file in the making: a context manager that leaves a complete file, or none."""

    def __init__(self, path: Path, schema: Schema = CURRENT, strings: Strings | None = None) -> None:
        self.path = path
        self.schema = schema
        self.strings = strings or Strings()
        self._staged: set[str] = set()
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

    def _stage(self, table: str) -> None:
        columns = self.schema.tables[table].columns.values()
        body = ", ".join(
            f'"{c.name}" {c.declaration}' + (f" DEFAULT {c.default}" if c.default else "") for c in columns
        )
        self._database.execute(f'CREATE TEMP TABLE "{table}" ({body})')
        self._staged.add(table)

    def _finish(self) -> None:
        self._put_metadata()
        if texts := self.strings.rows():
            self.put(STRINGS, ("id", "value"), texts)
        for name, table in self.schema.tables.items():
            if name in self._staged:
                self._write(name, table)
        self._database.execute("COMMIT")

    def _put_metadata(self) -> None:
        if self.schema.metadata:
            major, minor = self.schema.version.split(".")
            rows = (
                ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
                ("EXPORT_PRODUCT_VERSION", self.schema.product),
                ("EXPORT_SCHEMA_VERSION", f"{self.schema.version}.0"),
                ("EXPORT_SCHEMA_VERSION_MAJOR", major),
                ("EXPORT_SCHEMA_VERSION_MINOR", minor),
                ("EXPORT_SCHEMA_VERSION_MICRO", "0"),
                ("SYNTHETIC_BY", "pytest_nsys.samples"),
            )
            self.put(self.schema.metadata, ("name", "value"), rows)
        for table, enum_rows in ENUM_ROWS.items():
            if table in self.schema.tables:
                self.put(table, ("id", "name", "label"), enum_rows)

    def _write(self, name: str, table: TableSchema) -> None:
        width = max(map(len, table.columns)) + 2
        body = ",\n".join(f"    {c.name:<{width}}{c.declaration}" for c in table.columns.values())
        self._database.execute(f"CREATE TABLE main.{name} (\n{body}\n)")
        order = f"{table.order}, rowid" if table.order else "rowid"
        select = f"SELECT * FROM temp.{name} ORDER BY {order}"
        self._database.execute(f"INSERT INTO main.{name} {select}")
