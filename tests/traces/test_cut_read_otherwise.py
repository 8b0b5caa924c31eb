"""Is a cut that is measured otherwise than it was cut equal to its trace, or an error? Never just another number."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.model import Interval, Lane
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from tests.support.commands import run
from tests.support.gates import MS, Project
from tests.support.reference_data import DUALPIPE
from tests.support.samples.builder import Process, TraceBuilder
from tests.traces.test_cut_trace import CONVENTIONS, FORMATS, cut, measured

WAYS = [
    {"span": span, "kernels": mode} for span, mode in product(("range", "period"), ("contained", "clipped", "launched"))
]


def differing(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[object, object]]:
    """The metrics that a cut has another value of than its trace, and does not refuse."""
    assert before.keys() == after.keys()
    return {
        name: (before[name], found)
        for name, found in after.items()
        if found != before[name] and not (isinstance(found, str) and "is a cut (" in found)
    }


def check(trace: Path, convention: str, window: str = "median", ways: Sequence[dict[str, str]] = WAYS) -> int:
    """Cut in each way, measure in each way; how often all metrics of another way had rows."""
    whole = [measured(trace, convention, window, **way)[0] for way in ways]
    others = 0
    for number, way in enumerate(ways):
        options = [
            f"--convention={convention}",
            f"--window={window}",
            *(f"--{key}={value}" for key, value in way.items()),
        ]
        small = cut(trace, *options)
        for at, other in enumerate(ways):
            after = measured(small, convention, window, **other)[0]
            assert not differing(whole[at], after), (way, other)
            others += number != at and isinstance(after["compute_ns"], tuple)
    return others


@pytest.mark.parametrize(("format", "window"), [*((f, "median") for f in FORMATS), ("pithtrain", "steady")])
@pytest.mark.sampled(5)
def test_each_way_of_a_cut_in_each_way(format: str, window: str, tmp_path: Path) -> None:
    trace = FORMATS[format](tmp_path)
    assert check(trace, CONVENTIONS.get(format, format), window) >= 2  # contained as clipped, and the other way round


@pytest.mark.reference
@pytest.mark.slow
def test_each_way_of_a_real_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.sqlite"
    trace.symlink_to(next(iter(sorted(DUALPIPE.glob("*.sqlite")))))
    assert check(trace, "pithtrain", ways=WAYS[:2] + WAYS[-1:]) >= 2


def crossing(_trace: TraceBuilder, processes: list[Process]) -> None:
    """A gemm over the beginning of each chunk; one without a launch row inside the third."""
    for process in processes:
        for k in range(5):
            begin = 20 * MS * k + 1_000
            process.kernel("gemm", begin - 500_000, begin + 300_000, launch_ns=begin - 600_000)
        process.kernel("lost_gemm", 43 * MS, 43 * MS + 100_000, launch=False)


def test_kernels_at_the_edge_are_kept_and_shown_as_not_measured(project: Project) -> None:
    trace = project.trace(edit=crossing)
    small, drawing = cut(trace), project.root / "drawing.json"
    run("cut", small, "--format=perfetto", "-o", drawing, code=0)
    events = json.loads(drawing.read_text())["traceEvents"]
    ends = {e["pid"]: e["ts"] + e["dur"] for e in events if e.get("cat") == "window"}
    outside = [e for e in events if e.get("cat") == "kernel" and e["args"].get("measured") is False]
    before = [e["name"] for e in outside if e["ts"] <= ends[e["pid"]]]
    assert before == ["gemm", "gemm"]  # one of each rank
    for kernels_mode in ("contained", "clipped"):
        tables = []
        for path in (trace, small):
            project.command(
                *("rows", "compute_ns", "launches", f"--kernels={kernels_mode}", "--format=csv"),
                "--trace",
                path,
                code=0,
            )
            tables.append(project.result.stdout.str())
        assert tables[0] == tables[1]


def test_a_gate_of_another_way_is_red_on_a_cut(project: Project) -> None:
    trace = project.trace(edit=crossing)
    cut(trace)
    for way in ("span: period", "kernels: launched"):
        project.gate(f"{way}\nquality: {{unlaunched: off}}\nassertions:\n  - compute_ns > 0ns")
        project.pytest(f"--nsys-trace={trace}", code=0)
        said = " ".join(project.pytest("--nsys-trace=window.sqlite.gz", code=1).split())
        assert (
            "is a cut (window median, kernels contained), and does not hold all kernels of this window: measure" in said
        )
        assert "pytest-nsys cut --gate FILE TRACES" in said
    assert "the same window, span and kernels" in project.command(
        "--view=overlap", "window.sqlite.gz", "--window=first", code=3
    )


def test_kernels_without_a_launch_are_counted_as_in_the_trace(project: Project) -> None:
    trace = project.trace(edit=crossing)
    cut(trace, "--kernels=launched")
    project.gate("kernels: launched\nquality: {unlaunched: 1%}\nassertions:\n  - compute_ns > 0ns")
    lines = []
    for path in (trace, "window.sqlite.gz"):
        said = project.pytest(f"--nsys-trace={path}", code=1)
        lines.append(next(line for line in said.splitlines() if "trace quality" in line).partition("trace quality")[2])
    assert lines[0] == lines[1]
    assert "without a launch" in lines[0] or "no launch" in lines[0], lines


def test_a_table_of_kernels_is_passed_once_for_all_ranks(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = project.trace(edit=crossing, ranks=4)
    asked: list[int] = []
    kernels = NsysSqlite.kernels

    def watched(self: NsysSqlite, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        asked.append(len(spans))
        return kernels(self, spans)

    monkeypatch.setattr(NsysSqlite, "kernels", watched)
    cut(trace, "--kernels=launched")
    assert set(asked) == {4}
    looks_ahead = 3  # until compute comes next, each eight times as far
    assert len(asked) == 1 + looks_ahead + 1  # and once for what is written
