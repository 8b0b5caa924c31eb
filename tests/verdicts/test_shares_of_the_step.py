"""``idle <= 10% of step``: a time over the window of its rank, in each window and capture, before any aggregate."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys import open_run
from pytest_nsys.analysis.metrics.registry import METRICS, find_metric, make_step_share
from pytest_nsys.gates.limits import SentenceMistake
from pytest_nsys.gates.model import Comparator, Constant
from tests.support.gate_files import asked, loaded, mistakes
from tests.support.gates import MS, Project, write_trace
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.nccl import NcclRanges

SHORT: dict[str, Any] = {"chunks_ms": (15,) * 5}
LONG: dict[str, Any] = {"chunks_ms": (20,) * 5}


@pytest.mark.parametrize(
    ("sentence", "metric", "comparator", "limit"),
    [
        ("idle <= 10% of step", "idle_ns of step", "<=", Fraction(1, 10)),
        ("idle_ns below 10 % of  step", "idle_ns of step", "<", Fraction(1, 10)),
        ("idle at most 7.5% of the step", "idle_ns of step", "<=", Fraction(3, 40)),
        ("max of stage2_f exposed <= 120% of step", "exposed_ns of step", "<=", Fraction(6, 5)),
        ("rank 3 collective_wait <= 5% of step", "collective_wait_ns of step", "<=", Fraction(1, 20)),
        ("collective blocking <= 5% of step", "blocking_ns of step", "<=", Fraction(1, 20)),
    ],
)
def test_sentences(sentence: str, metric: str, comparator: str, limit: Fraction) -> None:
    found = asked(sentence)
    assert (found.metric, found.measured_metric.name, found.limit_target.unit) == (metric, metric, "% of step")
    assert found.requirement.comparator is Comparator(comparator)
    assert found.requirement.limit == Constant(limit)
    assert find_metric(metric) == found.measured_metric


@pytest.mark.parametrize(
    ("sentence", "offset", "what"),
    [
        ("overlap >= 75% of step", 13, "overlap is not a time: leave out 'of step'"),
        ("syncs <= 5% of step", 10, "syncs is not a time: write wall exposed all <= 5% of step, or another time"),
        ("busbw >= 5% of step", 10, "busbw is not a time: write wall exposed all"),
        ("step time <= 5% of step", 14, "step_time_ns has no rank, so no step to be a share of: write a time"),
        ("gemm family_ns <= 5% of step", 19, "family_ns has no rank, so no step to be a share of: write a time"),
        ("p50 period <= 90% of step", 16, "period_ns is as long as a step, or more: write a time, as in <= 450ms"),
        ("window <= 90% of step", 12, "window_ns is as long as a step, or more: write a time, as in <= 450ms"),
        ("measured step_time <= 5% of step", 23, "measured step_time is not a time"),
        ("idle <= baseline + 5% of step", 8, "a share of the step is a constant: write idle_ns <= 5% of step, or "),
        ("idle <= 5ms of step", 12, "'of' comes after the end of the limit"),
        ("idle <= 5% of window", 8, "idle_ns is a time: write it in ns, us, ms or s, or 5% of step"),
        ("idle <= 5%", 8, "idle_ns is a time: write it in ns, us, ms or s, or 5% of step"),
        ("idle <= 100% of step", 5, "'<= 100% of step' cannot fail: idle_ns of step is never above 100% of step"),
        ("idle >= 0% of step", 5, "'>= 0% of step' cannot fail: idle_ns of step is never below 0% of step"),
        ("balance of idle across pp <= 5% of step", 29, "balance of idle_ns is a number without unit: write 0.05"),
    ],
)
def test_mistakes(sentence: str, offset: int, what: str) -> None:
    with pytest.raises(SentenceMistake) as caught:
        asked(sentence, ["pp"])
    assert str(caught.value).startswith(what)
    assert caught.value.offset == offset


def test_every_time_of_a_rank_is_one_but_periods() -> None:
    found = {name for name, metric in METRICS.items() if make_step_share(metric) is not None}
    times = {name for name, metric in METRICS.items() if metric.unit == "ns"}
    assert times - found == {
        *("window_ns", "period_ns", "pipeline_stage_ns", "step_time_ns"),
        *("family_ns", "total_kernel_ns", "step_minus_kernel_ns"),
    }
    assert found < times


HEAD = "version: 1\nassertions:\n"


def test_keys() -> None:
    entry = "{assert: max over rank of idle <= 10% of step, warn: <= 8% of step}"
    (found,) = loaded(f"{HEAD}- {entry}\n").assertions
    assert found.metric == "idle_ns of step"
    assert found.sentence == "max over rank of idle <= 10% of step"
    assert found.warn is not None
    assert found.warn.limit == Constant(Fraction(8, 100))


@pytest.mark.parametrize(
    ("entry", "mistake"),
    [
        ("assert: idle <= 10% of step, warn: <= 8%", "the limit is a share of the step: write 8% of step"),
        ("assert: idle <= 10% of step, warn: <= 8ms", "a share of the step: write 10% of step, not 8ms"),
        ("assert: idle <= 10ms, warn: <= 8% of step", "idle_ns is a time: write it in ns, us, ms or s"),
        ("assert: idle <= 10% of step, warn: <= 12% of step", "'<= 12% of step' never warns"),
    ],
)
def test_mistaken_keys(entry: str, mistake: str) -> None:
    (said,) = mistakes(f"{HEAD}- {{{entry}}}\n")
    assert mistake in said


def test_the_value_is_over_the_window_of_its_rank_and_capture(tmp_path: Path) -> None:
    """Of 15 and of 20 ms; the median of two captures is of shares."""
    paths = [write_trace(tmp_path / f"{n}.sqlite", **shape) for n, shape in enumerate((SHORT, LONG))]
    shares = []
    for path, length in zip(paths, (15 * MS, 20 * MS), strict=True):
        with open_run(path) as one:
            assert {row.value for row in one.rows("window_ns")} == {length}
            times = {row["rank"]: row.value for row in one.rows("idle_ns")}
            shares.append({row["rank"]: row.value for row in one.rows("idle of step")})
        assert shares[-1] == {rank: Fraction(value, length) for rank, value in times.items()}
    with open_run(paths) as both:
        found = {row["rank"]: row.value for row in both.rows("idle of step")}
    assert found == {rank: (shares[0][rank] + shares[1][rank]) / 2 for rank in shares[0]}


def test_waits_over_all_ranks_have_their_own_windows(tmp_path: Path) -> None:
    def reduced(trace: TraceBuilder, processes: list[Process]) -> None:
        nccl = NcclRanges(trace)
        for rank, process in enumerate(processes):
            nccl.communicator(process, 7, ranks=2, rank=rank)
            nccl.call(process, "ncclAllReduce", 50 * MS, 50 * MS + 5_000, 7, 1_000)
            start = 51 * MS + 300_000 * rank
            process.kernel("ncclDevKernel_AllReduce", start, 52 * MS, stream=77, launch_ns=50 * MS + 1_000)

    with open_run(write_trace(tmp_path / "a.sqlite", edit=reduced)) as one:
        lengths = {row["rank"]: row.value for row in one.rows("window_ns")}
        waits = {row["rank"]: row.value for row in one.rows("collective_wait_ns")}
        found = {row["rank"]: row.value for row in one.rows("collective_wait of step")}
    assert waits == {0: 300_000, 1: 0}
    assert found == {rank: Fraction(wait, lengths[rank]) for rank, wait in waits.items()}


GATE = """\
- idle <= 80% of step
- {id: alone, assert: max over rank of idle <= 80% of step}
- mean idle <= 80% of step
- {id: early, assert: idle <= 95% of step, warn: <= 80% of step}
"""


def test_a_red_tells_shares_and_times(project: Project) -> None:
    project.gated(GATE, **SHORT)
    written = [f"--nsys-{kind}={project.root / 'out'}.{kind}" for kind in ("json", "summary", "html")]
    text = project.pytest("--nsys-trace=run.sqlite", *written, code=1)
    assert "86.7% of step (13 ms) > 80% of step (12 ms), rank 0" in text
    assert "<= 80% of step (12 ms)" in text
    assert "86.7% of step > 80% of step" in text
    (gate,) = json.loads((project.root / "out.json").read_text())["gate_files"]
    row = gate["assertions"][0]["rows"][0]
    assert row["value"] == {"exact": "13/15", "text": "86.7% of step"}
    assert (row["step"], row["limit"]["text"]) == ({"exact": 15 * MS, "text": "15 ms"}, "80% of step")
    assert "86.7% of step (13 ms)" in (project.root / "out.summary").read_text()
    assert "86.7% of step (13 ms)" in (project.root / "out.html").read_text()


def test_a_waiver_has_a_share_for_its_ceiling(project: Project) -> None:
    waiver = "waivers:\n- {assertion: idle <= 80% of step, ceiling: CEILING, expires: 2100-01-01, reason: known}\n"
    for ceiling, state in (("90% of step", "passed"), ("90%", "passed"), ("82% of step", "failure")):
        project.gated("- idle <= 80% of step\n" + waiver.replace("CEILING", ceiling), **SHORT)
        (case,) = project.cases("--nsys-trace=run.sqlite").values()
        assert case.state == state, ceiling


def test_of_several_windows_the_step_is_that_of_the_row(project: Project) -> None:
    """A budget is that of one window, so its shares are of the step of that window, not of the median one."""
    for name, exposed, lengths in (("a", 200, (15,) * 5), ("b", 300, (18,) * 5), ("c", 450, (14, 14, 16, 17, 18, 19))):
        project.trace(f"{name}.sqlite", exposed, chunks_ms=lengths)
    project.gate("- {assert: launch_starved <= 1% of step, window: steady}")
    written = project.root / "out.json"
    traces = [f"--nsys-trace={name}.sqlite" for name in "abc"]
    project.pytest(*traces, f"--nsys-json={written}", code=1)
    (gate,) = json.loads(written.read_text())["gate_files"]
    rows = {row["labels"]["rank"]: row for row in gate["assertions"][0]["rows"]}
    with open_run([project.root / f"{name}.sqlite" for name in "abc"]) as run_of_all:
        times = {row["rank"]: row.value for row in run_of_all.rows("launch_starved_ns", window="steady")}
    assert {rank: Fraction(row["value"]["exact"]) * row["step"]["exact"] for rank, row in rows.items()} == times
