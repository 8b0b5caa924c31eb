"""A kernel that computes on a communication stream: the red says which one, and not that communication appeared."""

import re

import pytest

from tests.support.gates import MS, Edit, Project
from tests.support.samples.builder import Process, TraceBuilder

GATE = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed_ns below baseline plus tolerance
  - wall_exposed_ns below baseline plus tolerance
  - barrier_ns below baseline plus tolerance
  - comm_streams == baseline
  - no barrier_ns
  - {id: streams, assert: sum over purpose of comm_streams == 1}
  - no compute on comm streams
  - stage4 overlap >= 60%
  - window_ns below baseline plus tolerance
"""
MIDDLE = 40 * MS + 1_000
SAID = (
    "rank {}: elementwise_add (1 kernel, 5 us) makes it a compute stream, so 2 communication kernels on it "
    "count as barriers"
)


def computing(*ranks: int, stream: int = 28, names: tuple[str, ...] = ("elementwise_add",)) -> Edit:
    """A kernel of 5 us for each name on the stream that communicates for 2 ms in the window."""

    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        for rank in ranks:
            for i, name in enumerate(names):
                at = MIDDLE + 9 * MS + 10_000 * i
                processes[rank].kernel(name, at, at + 5_000, stream=stream, launch_ns=MIDDLE + 100)

    return edit


def changes(project: Project, now: Edit, *arguments: str) -> dict[str, str]:
    """What stands behind ``change:`` by assertion."""
    project.trace(edit=now)
    cases = project.cases("--nsys-trace=run.sqlite", *arguments)
    found: dict[str, str] = {}
    for name, case in cases.items():
        lines = [line[10:] for line in case.text.splitlines() if line.startswith("  change: ")]
        found |= {name: lines[0]} if lines else {}
    return found


@pytest.mark.parametrize("against", [(), ("--nsys-against=base.sqlite",)], ids=["stored", "against"])
def test_every_red_of_it_names_the_kernel(project: Project, against: tuple[str, ...]) -> None:
    project.accepted(GATE, name="base.sqlite")
    said = changes(project, computing(1), *against)
    assert set(said.values()) == {SAID.format("1 stream 28")}
    assert len(said) == 8  # all but the window's length, which holds
    out = "\n".join(project.result.outlines)
    assert "SendRecv runs on another stream" in out
    assert "new collective" not in out


def test_ranks_are_told_together_and_of_many_kernels_the_longest(project: Project) -> None:
    project.gate("- no barrier_ns")
    assert changes(project, computing(0, 1)) == {"no barrier_ns": SAID.format("0, 1 stream 28")}
    two = changes(project, computing(0, names=("b", "a")))["no barrier_ns"]
    assert two.startswith("rank 0 stream 28: a (1 kernel, 5 us), b (1 kernel, 5 us) make it a compute stream")
    assert changes(project, computing(0, names=("a", "b", "c"))) == {}  # it mostly computes: a compute stream anyway


@pytest.mark.parametrize("against", [(), ("--nsys-against=base.sqlite",)], ids=["stored", "against"])
def test_a_stream_that_was_so_before_is_no_change(project: Project, against: tuple[str, ...]) -> None:
    """Rank 0's is not what makes the red of rank 0: another barrier came."""
    project.gate("tolerance: {rel: 5%}\nassertions:\n  - barrier_ns below baseline plus tolerance")
    project.trace("base.sqlite", edit=computing(0))
    project.refresh("--nsys-trace=base.sqlite")

    def another(trace: TraceBuilder, processes: list[Process]) -> None:
        computing(0)(trace, processes)
        at = MIDDLE + 14 * MS  # after the compute of its stream
        processes[0].kernel("ncclDevKernel_AllReduce", at, at + MS // 2, stream=7, launch_ns=MIDDLE + 1)

    assert changes(project, another, *against) == {}
    assert project.result.ret == 1


def test_a_comparison_without_a_gate_holds_what_shared_streams_leave_exposed(project: Project) -> None:
    project.pair(200, {(1, "stage4_f"): 600}, edit=computing(0, 1))
    project.trace("apart.sqlite")
    said = project.command("compare", "base.sqlite", "head.sqlite", code=1)
    assert re.search(r"worse +wall_exposed_all_ns +rank 1 +400 us +800 us", said)
    assert re.search(r"worse +wall_overlap_all +rank 1 +80% +60%", said)
    assert "wall_exposed_all_ns" in project.command("compare", "apart.sqlite", "head.sqlite", code=1)
    project.trace("head.sqlite", {(1, "stage4_f"): 600})
    told = project.command("compare", "apart.sqlite", "head.sqlite", "--verbose", code=1)
    assert "wall_exposed_ns" in told
    assert "_all" not in told  # the same rows twice
