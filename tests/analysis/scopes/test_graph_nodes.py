"""Has a step that is a CUDA graph the same scopes as the eager one, where nsys recorded how its nodes were made?"""

from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.analysis.scopes.scope_times import sum_scopes
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.scopes import ScopeKind
from tests.analysis.scopes.test_paths import scopes, whole_run
from tests.support.commands import run
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.sql import execute

PITHTRAIN = BUILT_IN_CONVENTIONS["pithtrain"]
PARTS = ("layer00.stage1_f", "layer00.stage3_f", "layer01.stage3_b")
CLONED = 1_000


def mark_program(gpu: Process, start: int) -> list[int]:
    """The ranges of a program that runs, or is captured, from a time on; returns when it launches each kernel."""
    launches = []
    for place, name in enumerate(PARTS):
        begin = start + 1_000 * place
        gpu.range(name, begin, begin + 900)
        gpu.range(f"aten::mm, op_id = {place}", begin + 100, begin + 800)
        launches.append(begin + 500)
    return launches


def write_eager(path: Path) -> Path:
    gpu = (trace := TraceBuilder()).process()
    gpu.range("step", 100_000, 190_000)
    for place, launch_ns in enumerate(mark_program(gpu, 110_000)):
        begin = 200_000 + 10_000 * place
        gpu.kernel("gemm", begin, begin + 1_000 * (place + 1), launch_ns=launch_ns, launch_length_ns=10)
    return Path(trace.write(path))


def write_graph(path: Path, *, recorded: bool = True, captures: int = 1, clones: bool = True) -> Path:
    """The same as a graph that was captured before, perhaps more than once: the last capture runs."""
    gpu = (trace := TraceBuilder()).process()
    nodes: list[tuple[int, int, int]] = []
    # The program calls a captured step by the same name.
    gpu.range("step", 9_000, 20_000)
    for capture in range(captures):
        for place, made_ns in enumerate(mark_program(gpu, 10_000 + 20_000 * capture)):
            original = 100 * capture + place + 1
            nodes.append((made_ns, original, 0))
            if clones:
                nodes.append((made_ns + 5_000, CLONED + original, original))
    gpu.range("step", 100_000, 190_000)
    number = gpu.api("cudaGraphLaunch_v10000", 110_000, 111_000)
    for place in range(len(PARTS)):
        begin, node = 200_000 + 10_000 * place, 100 * (captures - 1) + place + 1 + CLONED * clones
        gpu.kernel("gemm", begin, begin + 1_000 * (place + 1), correlation=number, graph_node=node)
    trace.write(path)
    if recorded:
        values = ", ".join(f"({at}, {at}, {gpu.global_tid()}, {node}, {original})" for at, node, original in nodes)
        execute(
            path,
            "CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INTEGER, end INTEGER, globalTid INTEGER, "
            "graphNodeId INTEGER, originalGraphNodeId INTEGER)",
            f"INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES {values}",
        )
    return path


@pytest.mark.parametrize("kind", ["module", "stage", "op", "range"])
@pytest.mark.parametrize("how", [{}, {"clones": False}, {"captures": 2}], ids=["cloned", "plain", "captured twice"])
def test_a_graph_has_the_scopes_of_its_eager_twin(tmp_path: Path, kind: str, how: dict[str, Any]) -> None:
    eager, graph = write_eager(tmp_path / "eager.sqlite"), write_graph(tmp_path / "graph.sqlite", **how)
    expected = scopes(eager, kind, PITHTRAIN)
    assert scopes(graph, kind, PITHTRAIN) == expected
    assert not any(path.startswith("(") for path, _ in expected)
    # To the nanosecond, too.
    with whole_run(eager, PITHTRAIN) as first, whole_run(graph, PITHTRAIN) as second:
        times = [
            {(found.tree.texts[code], direction): usage.time_ns for (code, direction), usage in found.exclusive.items()}
            for found in (sum_scopes(window, ScopeKind(kind)) for window in (first, second))
        ]
    assert times[0] == times[1]


def test_a_cut_of_a_graph_has_its_scopes(tmp_path: Path) -> None:
    path, cut = write_graph(tmp_path / "graph.sqlite"), tmp_path / "cut.sqlite"
    run("cut", path, "--convention", "pithtrain", "--window", "run", "-o", cut, code=0)
    for kind in ("module", "stage", "op", "range"):
        assert scopes(cut, kind, PITHTRAIN) == scopes(path, kind, PITHTRAIN), kind


def test_without_a_record_a_graph_is_one_launch(tmp_path: Path) -> None:
    path = write_graph(tmp_path / "graph.sqlite", recorded=False)
    assert scopes(path, "module", PITHTRAIN) == 3 * [("(inside a graph)", "none")]
    assert scopes(path, "range", PITHTRAIN) == 3 * [("step", "none")]


def test_a_node_that_was_made_before_the_recording_has_no_scope(tmp_path: Path) -> None:
    path = write_graph(tmp_path / "graph.sqlite")
    execute(path, "DELETE FROM CUDA_GRAPH_NODE_EVENTS WHERE originalGraphNodeId = 0 AND graphNodeId = 2")
    found = [scope for scope, _ in scopes(path, "module", PITHTRAIN)]
    assert found == ["layer00/stage1_f", "(inside a graph)", "layer01/stage3_b"]


def test_damaged_nodes_end_in_one_line(tmp_path: Path) -> None:
    path = write_graph(tmp_path / "graph.sqlite")
    # Two nodes that were made of each other have no first.
    execute(path, "UPDATE CUDA_GRAPH_NODE_EVENTS SET originalGraphNodeId = 1001 WHERE graphNodeId = 1")
    assert scopes(path, "module", PITHTRAIN)[0] == ("(inside a graph)", "none")
    execute(path, "UPDATE CUDA_GRAPH_NODE_EVENTS SET graphNodeId = 'x' WHERE graphNodeId = 2")
    with pytest.raises(TraceError, match="CUDA_GRAPH_NODE_EVENTS"):
        scopes(path, "module", PITHTRAIN)
