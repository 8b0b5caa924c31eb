"""Which tables and columns did older and newer versions of nsys export than the one that the samples write?"""

from tests.support.samples.schema import (
    CUDA_EVENT,
    CURRENT,
    KERNEL,
    MEMCPY,
    NVTX,
    SYNCHRONIZATION,
    Column,
    Schema,
    TableSchema,
)

PRODUCTS = {
    "none": "2021.2.1",
    "2.9": "2022.2.1",
    "3.0": "2022.4.2",
    "3.7": "2023.4.4",
    "3.13": "2024.5.1",
    "3.24": "2025.5.2",
    "3.25": "2026.2.1",
    "3.28": "2026.4.1",
}
VERSIONS = tuple(PRODUCTS)

BROUGHT = {
    "2.9": f"PROCESSES META_DATA_EXPORT TARGET_INFO_SYSTEM_ENV {KERNEL}.mangledName",
    "3.0": "ENUM_NSYS_EVENT_TYPE ENUM_NSYS_EVENT_CLASS ENUM_CUDA_MEMCPY_OPER ENUM_CUPTI_SYNC_TYPE",
    "3.7": f"META_DATA_CAPTURE *.greenContextId {SYNCHRONIZATION}.deprecatedSyncType",
    "3.13": f"DIAGNOSTIC_EVENT TARGET_INFO_SESSION_START_TIME.systemClockNs {KERNEL}.qmdBulkReleaseDone "
    f"{KERNEL}.qmdPreexitDone {KERNEL}.qmdLastCtaDone {KERNEL}.clusterX {KERNEL}.clusterY {KERNEL}.clusterZ "
    f"{KERNEL}.clusterSchedulingPolicy {KERNEL}.maxPotentialClusterSize {KERNEL}.maxActiveClusters",
    "3.24": "CUPTI_ACTIVITY_KIND_GRAPH_TRACE CUDA_GRAPH_NODE_EVENTS "
    f"{KERNEL}.graphId {MEMCPY}.copyCount {SYNCHRONIZATION}.eventSyncId "
    f"{CUDA_EVENT}",
    "3.25": "TARGET_INFO_CUDA_DEVICE.uuid TARGET_INFO_CUDA_DEVICE.numMultiprocessors NVTX_PAYLOAD_SCHEMAS "
    f"NVTX_PAYLOAD_SCHEMA_ENTRIES {NVTX}.binaryData",
}
"""What each version was the first to have: tables, and columns of a table or of all (``*``)."""


def schema_of(version: str) -> Schema:
    """What a version exports."""
    later = VERSIONS[VERSIONS.index(version) + 1 :]
    lacks = {name for each in later for name in BROUGHT.get(each, "").split()}
    tables = {
        table: TableSchema({n: c for n, c in own.columns.items() if not {f"{table}.{n}", f"*.{n}"} & lacks}, own.order)
        for table, own in CURRENT.tables.items()
        if table not in lacks
    }
    if version == "3.28":
        columns = {**tables[NVTX].columns, "eventId": Column("eventId", "INTEGER", None)}
        tables[NVTX] = TableSchema(columns, tables[NVTX].order)
    metadata = None if version == "none" else "META_DATA_EXPORT"
    if version in ("2.9", "3.0"):
        metadata = "EXPORT_META_DATA"
        tables[metadata] = tables.pop("META_DATA_EXPORT")
    return Schema(version, PRODUCTS[version], tables, metadata)
