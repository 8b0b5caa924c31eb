"""Does a CUDA graph whose nodes nsys saw being created give the stages, purposes and collectives of its eager twin?"""

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import TraceError
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from tests.support.commands import run
from tests.support.measure import STEPS, captures, rows, rows_of
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.nccl import NcclRanges
from tests.support.samples.schema import GRAPH_NODES
from tests.support.sql import execute

STEP_NS, REPLAYS, FIRST_STEP_NS = 1_000_000, 4, 10_000_000
COMMUNICATOR = 0xABC
STEPPED = (
    *("comm_ns", "overlap", "exposed_ns", "comm_streams", "kernel_launches"),
    *("compute_ns", "collective_bytes", "collective_count"),
)


class Op(NamedTuple):
    """A kernel of the step: where it is issued, counted from the step's begin, and where it runs."""

    name: str
    stage: str
    stream: int
    issued_ns: int
    start_ns: int
    end_ns: int
    sent_bytes: int = 0


OPS = (
    Op("gemm", "stage1_f", 7, 20_000, 300_000, 400_003),
    Op("ncclDevKernel_AllGather_RING_LL", "stage2_f", 13, 40_000, 350_000, 450_007, 4_096),
    Op("gemm", "stage3_f", 7, 60_000, 450_001, 600_000),
    Op("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "stage4_f", 13, 80_000, 460_000, 700_001, 8_192),
)
"""The two gemms, and a replay's kernels of one name, are told apart by their stage alone."""


def issue(gpu: Process, nccl: NcclRanges, begin_ns: int) -> None:
    """The ranges of a step that a program issues its kernels in."""
    for op in OPS:
        called_ns = begin_ns + op.issued_ns
        gpu.range(f"0_{op.stage}", called_ns - 2_000, called_ns + 8_000)
        if op.sent_bytes:
            call = "ncclAllGather" if "AllGather" in op.name else "ncclReduceScatter"
            nccl.call(gpu, call, called_ns - 1_000, called_ns + 6_000, COMMUNICATOR, op.sent_bytes)


def create(
    gpu: Process, node: int, at_ns: int, *, original: int | None = None, event: str = "Graph Node Creation"
) -> None:
    """What nsys records of a node."""
    gpu.trace.insert(
        GRAPH_NODES,
        start=at_ns,
        end=at_ns + 100,
        globalTid=gpu.global_tid(),
        nameId=gpu.trace.strings.id_of(event),
        graphNodeId=node,
        originalGraphNodeId=original,
    )


Nodes = Literal["eager", "own", "cloned", "cloned twice", "destroyed", "none"]


def written(path: Path, nodes: Nodes, first_node: int = 500) -> Path:
    """A run whose steps are issued one by one, or captured once and replayed."""
    trace = TraceBuilder()
    gpu = trace.process()
    nccl = NcclRanges(trace)
    nccl.communicator(gpu, COMMUNICATOR, ranks=8)
    if nodes != "eager":
        issue(gpu, nccl, 1_000_000)
    clones = {"cloned": 1, "cloned twice": 2}.get(nodes, 0)
    for i, op in enumerate(OPS):
        node = first_node + i
        if nodes in ("own", "cloned", "cloned twice"):
            create(gpu, node, 1_000_000 + op.issued_ns)
        for clone in range(1, clones + 1):
            create(gpu, node + 100 * clone, 2_000_000 + clone, original=node + 100 * (clone - 1))
        if nodes == "destroyed":
            create(gpu, node, 1_000_000 + op.issued_ns, event="Graph Node Destruction")
    for step in range(REPLAYS):
        begin_ns = FIRST_STEP_NS + step * STEP_NS
        gpu.range(f"step{step}", begin_ns, begin_ns + STEP_NS - 10_000)
        if nodes == "eager":
            issue(gpu, nccl, begin_ns)
        replay = None
        if nodes != "eager":
            replay = gpu.api("cudaGraphLaunch_v10000", begin_ns + 20_000, begin_ns + 22_000)
        for i, op in enumerate(OPS):
            gpu.kernel(
                op.name,
                begin_ns + op.start_ns,
                begin_ns + op.end_ns,
                stream=op.stream,
                launch_ns=begin_ns + op.issued_ns if replay is None else None,
                correlation=replay,
                graph_node=None if replay is None else first_node + i + 100 * clones,
                graph=None if replay is None else 1,
            )
    return trace.write(path)


def figures(path: Path, metrics: Sequence[str] = STEPPED) -> Mapping[str, Mapping[object, object]]:
    """What every step is measured to be."""
    with captures(path, convention=STEPS) as run:
        return {
            f"{metric} {window}": dict(rows_of(run, metric, run.make_spec(window, None, None)))
            for metric in metrics
            for window in ("first", "median", "run")
        }


@pytest.mark.parametrize("nodes", ["own", "cloned", "cloned twice"])
def test_a_graph_has_the_figures_of_its_eager_twin(tmp_path: Path, nodes: Nodes) -> None:
    eager = figures(written(tmp_path / "eager.sqlite", "eager"))
    assert "stage3_f" in str(eager["kernel_launches median"])  # else there is nothing to lose
    assert figures(written(tmp_path / "graph.sqlite", nodes)) == eager


def test_a_graph_captured_again_has_the_same_figures(tmp_path: Path) -> None:
    once, again = (written(tmp_path / f"{first}.sqlite", "cloned", first) for first in (500, 9_000_000_000))
    assert figures(once) == figures(again)


@pytest.mark.parametrize("nodes", ["none", "destroyed"])
def test_a_node_created_before_the_recording_is_issued_by_its_launch(tmp_path: Path, nodes: Nodes) -> None:
    found = figures(written(tmp_path / "graph.sqlite", nodes), ("kernel_launches",))["kernel_launches median"]
    assert found
    assert "stage3_f" not in str(found)


def test_a_node_created_outside_of_stages_has_that_of_its_replay(tmp_path: Path) -> None:
    path = written(tmp_path / "graph.sqlite", "own")
    execute(path, "DELETE FROM NVTX_EVENTS WHERE start < 5000000 AND text LIKE '%stage%'")
    assert figures(path, ("kernel_launches",)) == figures(
        written(tmp_path / "none.sqlite", "none"), ("kernel_launches",)
    )


def test_ids_that_lead_in_a_circle_end(tmp_path: Path) -> None:
    path = written(tmp_path / "graph.sqlite", "cloned")
    execute(path, "UPDATE CUDA_GRAPH_NODE_EVENTS SET originalGraphNodeId = graphNodeId + 100 WHERE graphNodeId < 600")
    assert figures(path, ("compute_ns",)) == figures(written(tmp_path / "none.sqlite", "none"), ("compute_ns",))


def test_a_damaged_time_of_a_node_is_a_clear_line(tmp_path: Path) -> None:
    path = written(tmp_path / "graph.sqlite", "own")
    execute(path, "UPDATE CUDA_GRAPH_NODE_EVENTS SET start = 'x'")
    with pytest.raises(TraceError, match="CUDA_GRAPH_NODE_EVENTS"):
        figures(path, ("kernel_launches",))


def test_a_cut_keeps_where_its_nodes_were_created(tmp_path: Path) -> None:
    path, cut = written(tmp_path / "graph.sqlite", "cloned"), tmp_path / "cut.sqlite"
    gate = tmp_path / "gate.yaml"
    convention = "convention: {name: own, anchor: step%, stage: '(?P<stage>stage[1-5]_[fbw])'}"
    gate.write_text(f"version: 1\n{convention}\nassertions: [overlap >= 1%]\n")
    run("cut", path, "--gate", gate, "-o", cut, code=0)
    with sqlite3.connect(cut) as database:
        assert len(database.execute("SELECT * FROM CUDA_GRAPH_NODE_EVENTS").fetchall()) == len(OPS)
        names = {name for (name,) in database.execute("SELECT value FROM StringIds")}
    assert {f"0_{op.stage}" for op in OPS} <= names
    own = Convention(name="own", anchor="step%", stage="(?P<stage>stage[1-5]_[fbw])")
    of_the_run, of_the_cut = (rows(trace, "exposed_ns", convention=own) for trace in (path, cut))
    assert of_the_cut == of_the_run == {(0, "stage2_f"): 49_998, (0, "stage4_f"): 100_001}


def test_nodes_of_one_number_are_those_of_their_process(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for pid in (100, 200):
        gpu = trace.process(pid, device=pid // 200)
        create(gpu, 7, 1_000 + pid)
        replay = gpu.api("cudaGraphLaunch_v10000", 5_000, 6_000)
        gpu.kernel("gemm", 7_000, 8_000, correlation=replay, graph_node=7)
        gpu.kernel("gemm", 7_000, 8_000, stream=8, correlation=replay, graph_node=8)
    with contextlib.closing(NsysSqlite(Path(trace.write(tmp_path / "trace.sqlite")))) as opened:
        kernels = opened.kernels(dict.fromkeys(opened.lanes()))
        launches = opened.launch_calls(kernels)
        issued = [sorted(calls.start_ns) for calls in opened.issue_calls(kernels, launches).values()]
    assert issued == [[1_100, 5_000], [1_200, 5_000]]
