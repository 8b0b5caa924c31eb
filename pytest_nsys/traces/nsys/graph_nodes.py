"""Where was a kernel of a CUDA graph issued from? There its node was created: while the program captured the graph.

nsys records the creation of nodes in a table that is optional, as ``--cuda-graph-trace=node`` alone fills it. A graph
that is instantiated or copied has clones of its nodes, each with the id of its original: what the program did says the
creation of the first one alone. Where that is not on record, the kernel was issued by the launch of its graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pytest_nsys.core.columns import find_nonzero
from pytest_nsys.core.model import NO_LAUNCH, Lane, Stream
from pytest_nsys.core.tables import Kernels, LaunchCalls
from pytest_nsys.traces.nsys.tables import (
    GRAPH_NODES_TABLE,
    KERNEL_TABLE,
    PLACE_COLUMNS,
    THREAD_BITS,
    read_strings,
)
from pytest_nsys.traces.sqlite.columns import check_integers, report_damage
from pytest_nsys.traces.sqlite.file import SqliteFile

# The table also has the end of nodes: one whose creation is not on record is not created when it is destroyed.
CREATION = "creation"


class NodeKey(NamedTuple):
    """Identifies a node of a CUDA graph: ids are those of its process."""

    global_pid: int
    node: int


class Creation(NamedTuple):
    """Says when a thread of the program created a node."""

    start_ns: int
    end_ns: int
    thread: int


def read_issue_calls(
    file: SqliteFile, kernels: Mapping[Lane, Kernels], launches: Mapping[Lane, LaunchCalls]
) -> Mapping[Lane, LaunchCalls]:
    """Return ``launches``, the creation of its node in place of the launch of each kernel of a graph that has one on
    record.

    Raises TraceError for a damaged row.
    """
    graph_lanes = [lane for lane, lane_kernels in kernels.items() if 1 in lane_kernels.graph_node]
    if (
        not graph_lanes
        or not file.has_columns(GRAPH_NODES_TABLE, "start", "globalTid", "graphNodeId")
        or not file.has_columns(KERNEL_TABLE, "graphNodeId")
    ):
        return launches
    with report_damage(file, GRAPH_NODES_TABLE):
        creations = _read_creations(file)
    with report_damage(file, KERNEL_TABLE):
        nodes_by_kernel = _read_nodes(file)
    issue_calls = dict(launches)
    for lane in graph_lanes:
        lane_kernels, lane_launches = kernels[lane], launches[lane]
        start_ns, end_ns, thread = (column[:] for column in lane_launches)
        for i in find_nonzero(lane_kernels.graph_node):
            stream = lane_kernels.streams[lane_kernels.stream[i]]
            node = nodes_by_kernel.get((lane.global_pid, stream, lane_kernels.correlation[i], lane_kernels.start_ns[i]))
            creation = None if node is None else creations.get(NodeKey(lane.global_pid, node))
            if creation is None:
                continue
            # A graph runs after it was made: ids that say otherwise are of another node.
            replayed_ns = lane_kernels.start_ns[i] if start_ns[i] == NO_LAUNCH else start_ns[i]
            if creation.start_ns <= replayed_ns:
                start_ns[i], end_ns[i], thread[i] = creation
        issue_calls[lane] = LaunchCalls(start_ns, end_ns, thread)
    return issue_calls


def _read_creations(file: SqliteFile) -> Mapping[NodeKey, Creation]:
    """Return the creation of each node, of a clone that of its first original."""
    end, name, original = (
        file.get_column(GRAPH_NODES_TABLE, column) for column in ("end", "nameId", "originalGraphNodeId")
    )
    sql = (
        f"SELECT globalTid, graphNodeId, {original}, start, ifnull({end}, start), {name} FROM {GRAPH_NODES_TABLE} "
        "WHERE graphNodeId IS NOT NULL AND globalTid IS NOT NULL"
    )
    rows = file.fetch_rows(sql)
    event_names = read_strings(file, {row[-1] for row in rows if isinstance(row[-1], int)})
    creations: dict[NodeKey, Creation] = {}
    originals: dict[NodeKey, NodeKey] = {}
    for thread, node, original_node, start_ns, end_ns, name_id in rows:
        check_integers(thread, node, start_ns, end_ns)
        key = NodeKey(thread & ~THREAD_BITS, node)
        if original_node and original_node != node:  # exports write 0 where there is none
            check_integers(original_node)
            originals[key] = NodeKey(key.global_pid, original_node)
        if CREATION in event_names.get(name_id, CREATION).lower():
            creation = Creation(start_ns, end_ns, thread & THREAD_BITS)
            creations[key] = min(creations.get(key, creation), creation)
    creations_by_node: dict[NodeKey, Creation] = {}
    for key in {*creations, *originals}:
        first = _find_first_original(key, originals)
        if first is not None and first in creations:
            creations_by_node[key] = creations[first]
    return creations_by_node


def _find_first_original(key: NodeKey, originals: Mapping[NodeKey, NodeKey]) -> NodeKey | None:
    """Return the node of which a node is a clone, or a clone of a clone; None in a circle of a damaged file."""
    followed = {key}
    while key in originals:
        key = originals[key]
        if key in followed:
            return None
        followed.add(key)
    return key


def _read_nodes(file: SqliteFile) -> Mapping[tuple[int, Stream, int, int], int]:
    """Return the node of each kernel by process, stream, correlation and start: replays run nodes side by side."""
    sql = (
        f"SELECT {', '.join(PLACE_COLUMNS)}, ifnull(correlationId, {NO_LAUNCH}), start, graphNodeId "
        f"FROM {KERNEL_TABLE} WHERE graphNodeId IS NOT NULL"
    )
    nodes: dict[tuple[int, Stream, int, int], int] = {}
    for pid, *place, correlation, start_ns, node in file.fetch_rows(sql):
        check_integers(pid, *place, correlation, start_ns, node)
        nodes[pid, Stream(*place), correlation, start_ns] = node
    return nodes
