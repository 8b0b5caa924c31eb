"""Is it said first what takes most of a run, and not where it takes just less than most?

Each case is one timeline of 1 000 ns in nsys and in torch.profiler, whose shares are counted nanosecond by nanosecond.
"""

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_nsys.analysis.summary.dominant_activity import DominantActivityKind
from tests.support.commands import run
from tests.support.gates import Project
from tests.support.reference_data import REAL
from tests.support.samples.formats import ENDINGS, Format, write_one
from tests.support.summaries import summary

COPY = "copy"


class Ran(NamedTuple):
    """A kernel by its name, or a copy."""

    name: str
    start: int
    end: int
    stream: int = 7


class Case(NamedTuple):
    ran: tuple[Ran, ...]
    of: DominantActivityKind | None


CASES = {
    "copies": Case((Ran("gemm", 0, 250), Ran(COPY, 250, 750), Ran("norm", 750, 1_000)), DominantActivityKind.COPIES),
    "nearly copies": Case((Ran("gemm", 0, 251), Ran(COPY, 251, 750), Ran("norm", 750, 1_000)), None),
    "copies that compute hides": Case(
        (Ran("gemm", 0, 400), Ran(COPY, 0, 990, 9), Ran("norm", 400, 800), Ran("act", 800, 1_000)), None
    ),
    "idle": Case((Ran("gemm", 0, 250), Ran("norm", 750, 1_000)), DominantActivityKind.IDLE),
    "nearly idle": Case((Ran("gemm", 0, 250), Ran("norm", 749, 1_000)), None),
    "idle but for a copy": Case((Ran("gemm", 0, 250), Ran(COPY, 300, 400), Ran("norm", 750, 1_000)), None),
    "communication alone is neither": Case(
        (Ran("gemm", 0, 200), Ran("ncclDevKernel_AllReduce", 200, 800, 9), Ran("norm", 800, 1_000)), None
    ),
    "one kernel": Case(
        (Ran("gemm", 0, 300), Ran("norm", 300, 800), Ran("gemm", 800, 1_000)), DominantActivityKind.KERNEL
    ),
    "nearly one kernel": Case(
        (Ran("gemm", 0, 299), Ran("norm", 299, 700), Ran("act", 700, 800), Ran("gemm", 800, 1_000)), None
    ),
}


def write(folder: Path, format: Format, case: Case) -> Path:
    def put(gpu: Any) -> None:
        for each in case.ran:
            if each.name == COPY:
                gpu.memcpy(each.start, each.end, stream=each.stream, launch_ns=1, pinned=False)
            else:
                gpu.kernel(each.name, each.start, each.end, stream=each.stream, launch_ns=-20)

    return write_one(folder, format, put)


def share(case: Case) -> Fraction:
    """Of what the case is of, nanosecond by nanosecond."""
    found: Counter[DominantActivityKind] = Counter()
    for ns in range(1_000):
        names = {each.name for each in case.ran if each.start <= ns < each.end}
        found[DominantActivityKind.IDLE] += not names
        found[DominantActivityKind.COPIES] += names == {COPY}
    kernels: Counter[str] = Counter()
    for each in case.ran:
        if each.name != COPY and not each.name.startswith("nccl"):
            kernels[each.name] += each.end - each.start
    found[DominantActivityKind.KERNEL] = max(kernels.values())
    if case.of is None:
        assert max(found.values()) < 500
    return Fraction(found[case.of] if case.of else 0, 1_000)


@pytest.mark.parametrize("format", [Format.NSYS, Format.KINETO])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_takes_half_of_a_run_is_said_first(tmp_path: Path, format: Format, case: Case) -> None:
    trace = write(tmp_path, format, case)
    found, expected = summary(trace).dominant_activity, share(case)
    lines = run("show", trace).stdout.splitlines()
    told = [line for line in lines if line.startswith("mostly ")]
    if case.of is None:
        assert found is None
        assert not told
        return
    assert found is not None
    assert (found.kind, found.share) == (case.of, expected)
    assert told == [line for line in lines[:5] if f"mostly {case.of}: " in line]
    assert f"{float(100 * expected):.3g}% of the run" in told[0]


def test_one_gap_is_told_where_it_is_most_of_the_idle_time(tmp_path: Path) -> None:
    cases = {
        380: Case((Ran("gemm", 0, 100), Ran("gemm", 480, 500), Ran("gemm", 880, 1_000)), DominantActivityKind.IDLE),
        None: Case((Ran("gemm", 0, 100), Ran("gemm", 490, 500), Ran("gemm", 890, 1_000)), DominantActivityKind.IDLE),
    }
    for gap_ns, case in {
        600: Case((Ran("gemm", 0, 100), Ran("gemm", 700, 1_000)), DominantActivityKind.IDLE),
        **cases,
    }.items():
        (folder := tmp_path / str(gap_ns)).mkdir()
        found = summary(write(folder, Format.NSYS, case)).dominant_activity
        assert found is not None
        assert found.gap_ns == (gap_ns if gap_ns != 380 else None)


@pytest.mark.parametrize("format", [Format.NSYS, Format.KINETO])
def test_a_draft_has_it_in_its_head(project: Project, monkeypatch: pytest.MonkeyPatch, format: Format) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
    write(project.root, format, CASES["copies"])
    said = project.command("init", f"run.{ENDINGS[format]}", code=0)
    first = "mostly copies: for 50% of the run the GPU does nothing but copy"
    assert first in said
    text = " ".join((project.root / "gates.nsys.yaml").read_text(encoding="utf-8").replace("#", "").split())
    assert first in text
    assert "a gate on compute judges 50% of it: pin that memory and copy on another stream beside compute" in text
    project.pytest("gates.nsys.yaml", code=0)


@pytest.mark.reference
def test_a_real_run_that_copies() -> None:
    said = run("show", REAL / "h100_2gpu_1s.sqlite", code=0).stdout.splitlines()
    assert said[3:5] == [
        "mostly copies: for 97% of the run the GPU does nothing but copy, most of it pinned to device",
        "a gate on compute judges 2.33% of it: copy on another stream beside compute",
    ]
    assert "--anchor" not in "".join(said), "windows of kernels leave its copies out"
