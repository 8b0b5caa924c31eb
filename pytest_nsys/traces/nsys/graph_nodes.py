"""Where was each node of a CUDA graph made? nsys records it where it traces the nodes of graphs.

A kernel carries the id of the node that ran. When a graph is instantiated, or cloned, each node is made anew from an
original one: the first of them was made while the program captured the graph, inside the ranges of what it captured.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_nsys.core.tables import KernelKey
from pytest_nsys.traces.nsys.tables import KERNEL_TABLE, THREAD_BITS
from pytest_nsys.traces.sqlite.columns import check_integers
from pytest_nsys.traces.sqlite.file import SqliteFile

GRAPH_NODES_TABLE = "CUDA_GRAPH_NODE_EVENTS"

NodeKey = tuple[int, int]
"""Identifies a node: the process, and its id there."""


def read_node_creations(file: SqliteFile) -> dict[int, dict[KernelKey, tuple[int, int]]]:
    """Return, by process, the thread and the time in ns where the node of a kernel was made first.

    A kernel whose first node was made before the recording began is left out, as are all where the version records no
    nodes. Raises TypeError for a damaged row.
    """
    has_nodes = file.has_columns(GRAPH_NODES_TABLE, "start", "globalTid", "graphNodeId")
    if not has_nodes or not file.has_columns(KERNEL_TABLE, "graphNodeId"):
        return {}
    places: dict[NodeKey, tuple[int, int]] = {}  # by node, time and thread of its first record
    originals: dict[NodeKey, int] = {}
    original_column = f"ifnull({file.get_column(GRAPH_NODES_TABLE, 'originalGraphNodeId')}, 0)"
    for start, tid, node, original in file.scan_rows(
        f"start, globalTid, graphNodeId, {original_column}", GRAPH_NODES_TABLE, "graphNodeId IS NOT NULL"
    ):
        check_integers(start, tid, node, original)
        key = tid & ~THREAD_BITS, node
        places[key] = min(places.get(key, (start, tid & THREAD_BITS)), (start, tid & THREAD_BITS))
        if original not in (0, node):
            originals.setdefault(key, original)
    firsts = {key: _find_first_place(key, places, originals) for key in places}
    creations_by_process: dict[int, dict[KernelKey, tuple[int, int]]] = {}
    for pid, correlation, start, node in file.scan_rows(
        "globalPid, correlationId, start, graphNodeId", KERNEL_TABLE, "graphNodeId IS NOT NULL AND graphNodeId != 0"
    ):
        check_integers(pid, correlation, start, node)
        if (place := firsts.get((pid, node))) is not None:
            time_ns, thread = place
            creations_by_process.setdefault(pid, {})[correlation, start] = thread, time_ns
    return creations_by_process


def _find_first_place(
    key: NodeKey, places: Mapping[NodeKey, tuple[int, int]], originals: Mapping[NodeKey, int]
) -> tuple[int, int] | None:
    """Return where the node was made that a node goes back to; None where that is not recorded."""
    seen = {key}
    while key in originals:
        key = key[0], originals[key]
        if key in seen:  # damaged: what was made of itself has no first
            return None
        seen.add(key)
    return places.get(key)
