"""A red of `step time` names its causes: those of the slowest rank's step, whose parts add up to the change."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pytest_nsys.analysis.explain.breakdown_model import Change, ChangeKind, RootCause, RowActivity
from pytest_nsys.reports.words.change_text import describe_cause
from pytest_nsys.verdicts.row_causes import NO_WINDOWS_KEPT
from tests.support.gates import MS, Project, sign
from tests.support.reports import checked
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.kineto import KinetoBuilder

NSYS, TORCH = "{extends: generic, anchor: 'step%'}", "kineto"
GATE = """\
convention: {convention}
quality: {{anchors: off}}
assertions:
  - step time {how}
"""
FLASH = 2
"""All but this much of a step, in ms, is one kernel."""

Write = Callable[[Project, str, Sequence[int], int], None]


def nsys(project: Project, name: str, every_ms: Sequence[int], count: int) -> None:
    """A step of each rank takes ``every_ms``; launches are late by the name: no two runs are the same."""
    trace = TraceBuilder()
    for rank, every in enumerate(every_ms):
        process = trace.process(pid=100 + rank)
        process.range(f"rank={rank}; dp={rank}/{len(every_ms)}; mbs=1 seq=2048", 10, 20)
        late, shorter = 300 + len(name), 2_000
        for k in range(count):
            begin = 1_000 * (rank + len(name)) + every * MS * k
            process.range(f"step {k}", begin, begin + every * MS - 1_000)
            process.kernel("flash", begin + 500, begin + (every - FLASH) * MS, launch_ns=begin + 200)
            process.kernel("norm", begin + (every - 1) * MS, begin + every * MS - shorter, launch_ns=begin + late)
    (project.root / name).mkdir()
    sign(trace.write(project.root / name / f"{name}.sqlite"))


def torch(project: Project, name: str, every_ms: Sequence[int], count: int) -> None:
    """The same, of torch.profiler: a file for each rank, no two of which are the same to the nanosecond."""
    for rank, every in enumerate(every_ms):
        trace = KinetoBuilder(rank, len(every_ms))
        trace.kernel("warm_up", 100, 200 + 10 * len(name) + rank, launch_ns=50)
        late, shorter = 300 + len(name), 2_000 + len(name)
        for k in range(count):
            begin = 1_000 * (rank + len(name)) + every * MS * k
            trace.range(f"ProfilerStep#{k}", begin, begin + every * MS - 1_000)
            trace.kernel("flash", begin + 500, begin + (every - FLASH) * MS, launch_ns=begin + 200)
            trace.kernel("norm", begin + (every - 1) * MS, begin + every * MS - shorter, launch_ns=begin + late)
        trace.write(project.root / name / f"{name}_rank{rank}.json")


def red(project: Project, *more: str) -> tuple[dict[str, Any], str]:
    """What the report says of why the only assertion failed, and what the terminal says."""
    said = project.pytest("-v", "--nsys-trace=head", "--nsys-json=report.json", *more, code=1)
    (file,) = checked(project.root / "report.json")["gate_files"]
    (assertion,) = file["assertions"]
    (row,) = assertion["causes"]
    assert row["change_ns"] == row["unexplained_ns"] + sum(part["change_ns"] for part in row["parts"])
    return row, said


@pytest.mark.parametrize("against", [False, True], ids=["stored", "against"])
@pytest.mark.parametrize(("write", "convention"), [(nsys, NSYS), (torch, TORCH)], ids=["nsys", "torch"])
@pytest.mark.parametrize(
    ("was", "now", "count", "rank", "parts"),
    [
        ([20], [23], 6, 0, {"flash": 3}),
        ([20, 20], [20, 23], 6, 1, {"flash": 3}),
        ([20, 22], [20, 25], 6, 1, {"flash": 3}),
        ([20, 22], [26, 22], 6, 0, {"flash": 6, "": -2}),
        ([20, 22, 21], [20, 22, 26], 6, 2, {"flash": 5, "": -1}),
        ([20, 22], [20, 25], 2, 1, {"flash": 3}),
        ([20, 22], [26, 22], 1, 0, {"flash": 6, "": -2}),
    ],
    ids=["one rank", "one slower", "the same", "another", "another of three", "two steps", "one step"],
)
@pytest.mark.sampled(5)
def test_a_longer_step_is_explained_by_the_slowest_rank(
    project: Project,
    write: Write,
    convention: str,
    was: Sequence[int],
    now: Sequence[int],
    count: int,
    rank: int,
    parts: dict[str, int],
    against: bool,
) -> None:
    write(project, "run", was, count)
    write(project, "head", now, count)
    project.gate(GATE.format(convention=convention, how="<= baseline + 5%"))
    project.refresh("--nsys-trace=run")
    row, said = red(project, *(["--nsys-against=run"] if against else []))
    assert row["labels"] == {"rank": rank}
    assert (round(row["change_ns"], -1), row["unexplained_ns"]) == (MS * (max(now) - max(was)), 0)
    larger = {part["name"]: part["change_ns"] for part in row["parts"] if abs(part["change_ns"]) > 1}
    assert larger == {kernel: ms * MS for kernel, ms in parts.items()}
    assert f"why:    rank {rank}, +{max(now) - max(was)} ms:" in said
    first = was.index(max(was))
    slowest = f"rank {first} was the slowest before: {was[first]} ms, this rank {was[rank]} ms"
    assert (slowest in said) == ("" in parts)


def test_a_window_of_several_steps_is_explained_as_a_whole(project: Project) -> None:
    """The change of the window is told, which is that of the step as often as it holds one."""
    gate = GATE.replace("quality", "workload: {{steps: 4}}\nwindow: run\nquality")
    for name, every_ms in (("run", [20, 22]), ("head", [20, 25])):
        nsys(project, name, every_ms, 4)
    project.gate(gate.format(convention=NSYS, how="<= baseline + 5%"))
    project.refresh("--nsys-trace=run")
    row, said = red(project)
    assert row["labels"] == {"rank": 1, "window": "window of 4 steps"}
    assert (row["change_ns"], row["unexplained_ns"]) == (12 * MS, 0)
    assert "why:    rank 1 window of 4 steps, +12 ms:" in said


def test_a_comparison_explains_it_too(project: Project) -> None:
    nsys(project, "run", [20, 22], 6)
    nsys(project, "head", [26, 22], 6)
    project.gate(GATE.format(convention=NSYS, how="<= baseline + 5%"))
    said = project.command("compare", "run", "head", "--gate", project.name, code=1)
    assert re.search(
        r"why: +rank 0, \+4 ms:\n +\+6 ms +flash 33% longer \(18 → 24 ms\)\n +−2 ms +rank 1 was the slowest", said
    ), said


def test_the_step_is_explained_as_its_period_is(project: Project) -> None:
    nsys(project, "run", [20, 22], 6)
    nsys(project, "head", [20, 25], 6)
    project.gate(GATE.format(convention=NSYS, how="<= baseline + 5%\n  - p50 period <= baseline + 5%"))
    project.refresh("--nsys-trace=run")
    said = project.pytest("-v", "--nsys-trace=head", "--nsys-json=report.json", code=1)
    (file,) = checked(project.root / "report.json")["gate_files"]
    step, period = (assertion["causes"][0]["parts"] for assertion in file["assertions"])
    assert step == period
    (told,) = re.findall(r"^flash.* longer.*\n((?:  failed  .*\n)+)", said, re.MULTILINE)
    assert told.count("\n") == 2


@pytest.mark.parametrize(
    ("kept", "window", "why"),
    [
        (False, "median", NO_WINDOWS_KEPT),
        (True, "step%", "the trace does not hold a step that all ranks have, of the convention's anchors, in full"),
    ],
)
def test_what_cannot_be_explained_says_why(project: Project, kept: bool, window: str, why: str) -> None:
    nsys(project, "run", [20, 22], 6)
    nsys(project, "head", [20, 25], 6)
    project.gate(GATE.format(convention=NSYS, how=f"<= baseline + 5%\nwindow: {window}"))
    project.refresh("--nsys-trace=run", keeps_windows=kept)
    said = project.pytest("--nsys-trace=head", code=1)
    assert f"note: no why: {why}" in " ".join(said.split())
    assert "why:    " not in said


def test_ranks_that_were_nearly_as_slow_are_told_apart() -> None:
    cause = Change(RootCause(ChangeKind.ELSEWHERE, RowActivity.RANK, ""), 1, 16_092_700, 16_077_200, straggler=0)
    assert describe_cause(cause, {}) == "rank 0 was the slowest before: 16.09 ms, this rank 16.08 ms"
