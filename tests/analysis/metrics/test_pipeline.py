"""Is a two-stage pipeline judged as published: how much of the shorter stage is hidden, and what the period is near?"""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.pipeline import PipelineUnit
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import NothingMeasured, UsageMistake
from pytest_nsys.core.model import Value
from pytest_nsys.core.workload import TwoStages, Workload
from pytest_nsys.reports.views.pipeline import describe_serialization
from tests.support import commands
from tests.support.gate_files import mistakes
from tests.support.gates import Project
from tests.support.measure import captures
from tests.support.one_process import OneProcess
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.formats import ENDINGS, Format
from tests.support.samples.two_stages import TwoStageShape, write_two_stages

CONVENTION = replace(BUILT_IN_CONVENTIONS["generic"], anchor="unit %", part=True)
STAGES = TwoStages(("encode%",), ("decode%",), warm_up=0)
GATE = """
convention: {extends: generic, name: serving, anchor: unit %}
pipeline: {stage0: encode, stage1: decode}
"""


class Named(NamedTuple):
    """A range: name, start, end (None: never closed), thread."""

    name: str
    start: int
    end: int | None
    thread: int = 1


def write(path: Path, starts: Sequence[int], ranges: Sequence[Named]) -> Path:
    """One rank whose anchors start so, each with a kernel, and the ranges."""
    gpu = TraceBuilder().process()
    for k, start in enumerate(starts):
        gpu.range(f"unit {k}", start, start + 50, thread=9)
        gpu.kernel("gemm", start + 10, start + 20, launch_ns=start + 1)
    for name, start, end, thread in ranges:
        gpu.range(name, start, end, thread=thread)
    return gpu.trace.write(path)


def opened(
    path: Path, stages: TwoStages | None = STAGES, blocks: tuple[str, ...] = ()
) -> AbstractContextManager[Captures]:
    return captures(path, convention=CONVENTION, workload=Workload(pipeline=stages, blocks=blocks))


def values(
    path: Path, metric: str, stages: TwoStages | None = STAGES, blocks: tuple[str, ...] = ()
) -> Mapping[object, Value]:
    """The rows of a metric by their labels after the rank."""
    with opened(path, stages, blocks) as run:
        rows = run.measure_rows(METRICS[metric], run.make_spec("median")).rows
    return {row.labels[1:] if len(row.labels) > 1 else row.labels[0]: row.value for row in rows}


def notes(path: Path) -> list[str]:
    with opened(path) as run:
        return [note.text for note in run.list_notes(run.make_spec("median"), METRICS["overlap_score"])]


def even(stage0: int, stage1: int, period: int = 1_000, units: int = 6) -> tuple[list[int], list[Named]]:
    """Anchors and ranges of units that are all alike."""
    starts = [1_000 + period * k for k in range(units + 1)]
    return starts, [r for s in starts for r in (Named("encode", s, s + stage0), Named("decode", s, s + stage1, 2))]


# -- what is published


@pytest.mark.parametrize(
    ("stage0", "stage1", "period", "hidden"),
    [
        (1_000, 100, 1_090, Fraction(1, 10)),
        (600, 400, 500, Fraction(1)),  # more than the shorter stage: clamped
        (600, 400, 1_200, Fraction(0)),  # less than nothing: none
        (600, 0, 600, Fraction(0)),
        (0, 0, 0, Fraction(0)),
    ],
)
def test_hidden_part_of_a_unit(stage0: int, stage1: int, period: int, hidden: Fraction) -> None:
    assert PipelineUnit(period, stage0, stage1).hidden_share == hidden


@pytest.mark.parametrize(
    ("stage0", "stage1", "period", "score", "serialization"),
    [
        (600, 400, 600, 1, 0),
        (600, 400, 1_000, 0, 1),
        (400, 600, 700, Fraction(3, 4), Fraction(1, 4)),
        (600, 400, 1_200, 0, Fraction(3, 2)),  # something else takes time
        (600, 400, 500, 1, Fraction(-1, 4)),  # units overlap each other
    ],
)
def test_like_units(tmp_path: Path, stage0: int, stage1: int, period: int, score: Value, serialization: Value) -> None:
    path = write(tmp_path / "a.sqlite", *even(stage0, stage1, period))
    assert values(path, "overlap_score") == {0: score}
    assert values(path, "serialization") == {0: serialization}
    assert values(path, "pipeline_stage_ns") == {("stage0",): stage0, ("stage1",): stage1}


class Oracle(NamedTuple):
    score: Fraction
    serialization: Fraction | None


def by_hand(starts: Sequence[int], ranges: Sequence[Named], warm_up: int) -> Oracle | None:
    """The definition, unit by unit and range by range; None where fewer than five units hold both stages."""
    units = []
    for k in range(warm_up, len(starts) - 1):
        inside = [r for r in ranges if starts[k] <= r.start < starts[k + 1]]
        lengths = {name: [r.end - r.start for r in inside if r.name == name and r.end] for name in ("encode", "decode")}
        if all(lengths.values()) and all(r.end for r in inside):
            units.append((starts[k + 1] - starts[k], sum(lengths["encode"]), sum(lengths["decode"])))
    if len(units) < 5 or len(starts) - 1 < warm_up + 5:
        return None
    ratios = [min(Fraction(1), Fraction(max(0, a + b - p), max(1, min(a, b)))) for p, a, b in units]
    period, first, second = (Fraction(median(map(Fraction, column))) for column in zip(*units, strict=True))
    longer, both = max(first, second), first + second
    return Oracle(median(ratios), (period - longer) / (both - longer) if both > longer else None)


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[list[int], list[Named], int]:
    """Anchors, of which some start together, ranges anywhere around them, and a warm-up."""
    gaps = draw(st.lists(st.integers(0, 8), min_size=5, max_size=12))
    starts = [100]
    for gap in gaps:
        starts.append(starts[-1] + gap)
    of_units = [Named(name, s, s + draw(st.integers(1, 9))) for s in starts for name in ("encode", "decode")]
    names, times = st.sampled_from(["encode", "decode"]), st.integers(90, starts[-1] + 5)
    more = draw(st.lists(st.tuples(names, times, st.integers(1, 9)), max_size=6))
    unclosed = draw(st.lists(st.tuples(names, times), max_size=1))
    stray = [Named(name, at, at + length) for name, at, length in more] + [
        Named(name, at, None) for name, at in unclosed
    ]
    kept = [r for r in of_units if draw(st.integers(0, 9))]
    return starts, kept + stray, draw(st.integers(0, 3))


@given(pipelines())
def test_any_pipeline(tmp_path_factory: pytest.TempPathFactory, drawn: tuple[list[int], list[Named], int]) -> None:
    starts, ranges, warm_up = drawn
    path = write(tmp_path_factory.mktemp("any") / "a.sqlite", starts, ranges)
    expected = by_hand(starts, ranges, warm_up)
    stages = STAGES._replace(warm_up=warm_up)
    if expected is None:
        with pytest.raises(NothingMeasured):
            values(path, "overlap_score", stages)
        return
    assert values(path, "overlap_score", stages) == {0: expected.score}
    if expected.serialization is None:
        with pytest.raises(NothingMeasured, match="takes 0 ns at the median"):
            values(path, "serialization", stages)
    else:
        assert values(path, "serialization", stages) == {0: expected.serialization}


# -- units of work


def test_several_ranges_make_up_a_stage(tmp_path: Path) -> None:
    starts, ranges = even(300, 400)
    more = [Named("encode tail", s + 500, s + 700) for s in starts]
    path = write(tmp_path / "a.sqlite", starts, [*ranges, *more])
    assert values(path, "pipeline_stage_ns")[("stage0",)] == 500
    assert not any("counts twice" in note for note in notes(path))


def test_a_range_inside_another_of_its_stage_is_told(tmp_path: Path) -> None:
    starts, ranges = even(300, 400)
    inner = [Named("encode layer", s + 100, s + 200) for s in starts]
    path = write(tmp_path / "a.sqlite", starts, [*ranges, *inner])
    assert values(path, "pipeline_stage_ns")[("stage0",)] == 400
    assert any("rank 0: 6 ranges of a stage are inside another one" in note for note in notes(path))


def test_units_that_lack_a_stage_are_told(tmp_path: Path) -> None:
    starts, ranges = even(600, 400, units=9)
    gone = {("decode", 1_000), ("encode", 2_000), ("decode", 3_000), ("encode", 3_000)}
    left = [r for r in ranges if (r.name, r.start) not in gone]
    path = write(tmp_path / "a.sqlite", starts, [*left, Named("encode", 9_500, None)])
    assert values(path, "overlap_score") == {0: 0}
    (told,) = (note for note in notes(path) if "left out" in note)
    assert told == (
        "rank 0: 4 of 9 units after the warm-up are left out: "
        "1 with a range that was never closed, 1 without stage0, 1 without stage1, 1 without either"
    )


@pytest.mark.parametrize(
    ("stages", "units", "why"),
    [
        (STAGES._replace(warm_up=2), 6, r"7 anchors make 6 units .* lower warmup to 1 or less"),
        (STAGES, 4, r"5 anchors make 4 units .* capture 6 anchors at least"),
        (STAGES._replace(first=("encod", "prefill")), 6, r"no range of stage0, 'encod' or 'prefill'.*'decode' \(7\)"),
    ],
)
def test_too_little_is_no_data(tmp_path: Path, stages: TwoStages, units: int, why: str) -> None:
    path = write(tmp_path / "a.sqlite", *even(600, 400, units=units))
    for metric in ("overlap_score", "serialization", "pipeline_stage_ns"):
        with pytest.raises(NothingMeasured, match=why):
            values(path, metric, stages)


def test_few_units_with_both_stages_are_no_data(tmp_path: Path) -> None:
    starts, ranges = even(600, 400)
    path = write(tmp_path / "a.sqlite", starts, [r for r in ranges if (r.name, r.start) != ("decode", 1_000)])
    assert values(path, "overlap_score", STAGES._replace(warm_up=1)) == {0: 0}
    path = write(tmp_path / "b.sqlite", starts, [r for r in ranges if r.name != "decode" or r.start > 2_500])
    with pytest.raises(NothingMeasured, match=r"4 of 6 units .* hold both stages \(2 without stage1\), and it takes 5"):
        values(path, "overlap_score")


def test_a_range_of_both_stages(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", *even(600, 400))
    with pytest.raises(UsageMistake, match="range 'decode' is of stage0 and of stage1"):
        values(path, "overlap_score", TwoStages(("%code",), ("decode",), 0))


def test_clocks_of_two_ranks_are_never_compared(tmp_path: Path) -> None:
    """The stages of one rank at times that are far from those of the other."""
    trace = TraceBuilder()
    for rank, zero in enumerate((1_000, 10**15)):
        gpu = trace.process(pid=100 + rank)
        for k in range(7):
            start = zero + 1_000 * k
            gpu.range(f"unit {k}", start, start + 50)
            gpu.kernel("gemm", start + 10, start + 20)
            gpu.range("encode", start, start + 600)
            gpu.range("decode", start, start + 400 + 100 * rank)
    assert values(trace.write(tmp_path / "a.sqlite"), "overlap_score") == {0: 0, 1: Fraction(100, 500)}


# -- blocks


def test_share_counts_ranges_of_one_name_once(tmp_path: Path) -> None:
    starts, _ = even(1, 1)
    nested = [
        Named("decode", s + a, s + b, thread)
        for s in starts
        for a, b, thread in ((0, 300, 1), (100, 200, 1), (200, 400, 2))
    ]
    path = write(tmp_path / "a.sqlite", starts, nested + [Named("decode head", s, s + 50) for s in starts])
    assert values(path, "share", None, ("decode%",)) == {("decode",): Fraction(2, 5), ("decode head",): Fraction(1, 20)}


def test_share_is_cut_at_the_edges_of_the_steady_periods(tmp_path: Path) -> None:
    """Seven anchors: those from the second to the sixth are steady, and their periods go from 2 to 7 us."""
    starts, _ = even(1, 1)
    path = write(tmp_path / "a.sqlite", starts, [Named("load", 1_000, 2_500), Named("load", 6_900, None)])
    assert values(path, "share", None, ("load",)) == {("load",): Fraction(500 + 100, 5_000)}


def test_share_of_a_run_without_anchors(gpu: OneProcess) -> None:
    gpu.range("load", 10, 90)
    gpu.kernel("gemm", 20, 30)
    path = Path(gpu)
    with opened(path, None, ("load",)) as run, pytest.raises(NothingMeasured, match="0 anchors make no steady period"):
        run.measure_rows(METRICS["share"], run.make_spec("run"))


def test_share_of_a_rank_without_the_block_is_0(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for rank in range(2):
        gpu = trace.process(pid=100 + rank)
        for k in range(7):
            start = 1_000 + 1_000 * k
            gpu.range(f"unit {k}", start, start + 50)
            gpu.kernel("gemm", start + 10, start + 20)
            gpu.range(f"block {rank}", start, start + 250)
    with opened(trace.write(tmp_path / "a.sqlite"), None, ("block %",)) as captures:
        rows = captures.measure_rows(METRICS["share"], captures.make_spec("median")).rows
    assert {row.labels: row.value for row in rows} == {
        (0, "block 0"): Fraction(1, 4),
        (0, "block 1"): 0,
        (1, "block 0"): 0,
        (1, "block 1"): Fraction(1, 4),
    }


def test_a_block_that_nobody_has_is_no_data(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", *even(600, 400))
    with pytest.raises(NothingMeasured, match=r"no range of block 'prefill'.*'encode' \(7\)"):
        values(path, "share", None, ("decode", "prefill"))


@pytest.mark.parametrize("metric", ["overlap_score", "serialization", "pipeline_stage_ns", "share"])
def test_nothing_is_measured_before_it_is_stated(tmp_path: Path, metric: str) -> None:
    assert values(write(tmp_path / "a.sqlite", *even(600, 400)), metric, None) == {}
    assert "stated" in METRICS[metric].no_row_reason


# -- the sentence


def outcome(project: Project, sentence: str, shape: TwoStageShape, head: str = GATE) -> tuple[str, str]:
    """What became of a sentence, and what was said of it."""
    write_two_stages(project.root / "run.sqlite", shape)
    project.gate(f"{head}assertions:\n  - {sentence}")
    (case,) = project.cases("--nsys-trace=run.sqlite").values()
    return case.properties["nsys_outcome"], case.text


RULED = "pipeline overlap_score >= 0.30"


def test_the_sentence_asks_for_both(project: Project) -> None:
    """Stages of 3 and 2 ms: from 3.2 ms of period on 1.8 ms are hidden, from 4.2 ms on 0.8."""
    assert outcome(project, RULED, TwoStageShape())[0] == "passed"
    found, said = outcome(project, RULED, TwoStageShape(period_ns=4_200_000))
    assert found == "failed"
    assert "the period is not nearer to the longer stage than to the sum of both" in said
    assert "score is below" not in said
    assert "0     0.4  >= 0.3  0.6            < 0.5" in said
    found, said = outcome(project, RULED, TwoStageShape(period_ns=4_900_000))
    assert "the score is below its limit, and the period is not nearer" in said
    assert outcome(project, RULED, TwoStageShape(period_ns=4_000_000))[0] == "failed"  # halfway is not nearer


def test_the_plain_score_asks_for_the_score_alone(project: Project) -> None:
    assert outcome(project, "overlap_score >= 0.30", TwoStageShape(period_ns=4_200_000))[0] == "passed"


def test_the_score_alone_fails_the_sentence(project: Project) -> None:
    """Medians of 19 and 10 in 20 us make a serialization of 0.1, but most units do one stage after the other."""
    starts = [1_000 + 20_000 * k for k in range(7)]
    lengths = ((19, 1), (1, 19), (19, 1), (1, 19), (19, 19), (19, 1), (1, 1))
    ranges = [
        Named(name, start, start + 1_000 * length, thread)
        for start, both in zip(starts, lengths, strict=True)
        for name, length, thread in (("encode", both[0], 1), ("decode", both[1], 2))
    ]
    write(project.root / "run.sqlite", starts, ranges)
    project.gate(f"{GATE.replace('decode}', 'decode, warmup: 0}')}assertions:\n  - pipeline overlap_score >= 0.30")
    said = project.pytest("--nsys-trace=run.sqlite", code=1)
    assert "failed: the score is below its limit\n" in said
    assert "0     0    >= 0.3  0.1            < 0.5" in said


def test_both_numbers_are_in_every_report(project: Project) -> None:
    write_two_stages(project.root / "run.sqlite", TwoStageShape())
    project.gate(f"{GATE}assertions:\n  - pipeline overlap_score >= 0.30")
    assert ">= 0.3" in project.pytest("-v", "--nsys-trace=run.sqlite", "--nsys-json=out.json", code=0)
    (row,) = json.loads((project.root / "out.json").read_text())["gate_files"][0]["assertions"][0]["rows"]
    assert (row["value"]["exact"], row["serialization"]["exact"], row["margin"]["exact"]) == ("9/10", "1/10", "2/5")


def test_a_waiver_is_no_leave_from_the_rule(project: Project) -> None:
    write_two_stages(project.root / "run.sqlite", TwoStageShape(period_ns=4_800_000))
    project.gate(
        f"{GATE}assertions:\n  - overlap_score >= 0.30\n  - pipeline overlap_score >= 0.30\nwaivers:\n"
        "  - {assertion: overlap_score >= 0.30, ceiling: 0.05, expires: 2999-12-31, reason: known}\n"
        "  - {assertion: pipeline overlap_score >= 0.30, ceiling: 0.05, expires: 2999-12-31, reason: known}\n"
    )
    cases = project.cases("--nsys-trace=run.sqlite", code=1)
    assert [case.state for case in cases.values()] == ["passed", "failure"]


def test_against_a_baseline(project: Project) -> None:
    project.gate(f"{GATE}assertions:\n  - pipeline overlap_score >= baseline - 0.05")
    write_two_stages(project.root / "base.sqlite", TwoStageShape())
    project.refresh("--nsys-trace=base.sqlite")
    for period_ns, code in ((3_300_000, 0), (3_301_000, 1)):
        write_two_stages(project.root / "run.sqlite", TwoStageShape(period_ns=period_ns))
        project.pytest("--nsys-trace=run.sqlite", code=code)


def test_other_stages_or_blocks_are_incomparable(project: Project) -> None:
    sentence = "{assert: pipeline_stage_ns <= baseline + 5%, where: {stage: stage0}}"
    head = f"{GATE}blocks: [decode]\n"
    write_two_stages(project.root / "run.sqlite")
    project.gate(f"{head}assertions:\n  - {sentence}")
    project.refresh("--nsys-trace=run.sqlite")
    found, said = outcome(project, sentence, TwoStageShape(), head.replace("[decode]", "[decode, sample]"))
    assert (found, "blocks: now" in said) == ("incomparable", True)
    stages = (STAGES, STAGES._replace(second=("decode", "sample")), STAGES._replace(warm_up=9))
    assert len({tuple(stated.identity_words) for stated in stages}) == len(stages)


@pytest.mark.parametrize(
    ("column", "sentence", "what"),
    [
        (3, "overlap_score >= 0.3", "overlap_score needs pipeline: {stage0: …, stage1: …} in this file"),
        (3, "pipeline overlap_score >= 0.3", "overlap_score needs pipeline: {stage0: …, stage1: …} in this file"),
        (3, "serialization < 0.5", "serialization needs pipeline: {stage0: …, stage1: …} in this file"),
        (3, "stage0 pipeline stage ns <= 1ms", "pipeline_stage_ns needs pipeline: {stage0: …, stage1: …}"),
        (3, "decode share <= 20%", "share needs blocks: […] in this file"),
        (20, "overlap_score >= 30%", "overlap_score is a number without unit: write 0.3, not 30%"),
        (
            3,
            "pipelin overlap_score >= 0.3",
            "'pipelin' selects nothing: overlap_score has no dimension but rank (did you",
        ),
        (3, "pipeline median overlap_score >= 0.3", "'pipeline' judges each rank by itself"),
        (3, "pipeline overlap_score <= 0.3", "'pipeline' asks for a score of at least so much: write >="),
        (3, "pipeline serialization <= 0.3", "'pipeline' selects nothing: serialization has no dimension but rank"),
    ],
)
def test_mistakes(column: int, sentence: str, what: str) -> None:
    found = mistakes(f"version: 1\nassertions:\n- {sentence}\n")
    assert any(mistake.startswith(f"3:{column}: {what}") for mistake in found), found


def test_a_mistake_in_the_stages_is_told_once() -> None:
    text = "version: 1\npipeline: {stage0: encode}\nassertions: [pipeline overlap_score >= 0.3]\n"
    (mistake,) = mistakes(text)
    assert "pipeline needs stage1" in mistake


# -- the command


def run(code: int, *arguments: str | Path) -> str:
    """What the command prints: for people with what it notes and complains of, for programs without."""
    quiet = not {"--format=json", "--format=csv"} & set(arguments)
    result = commands.run("--view=pipeline", *arguments, code=code)
    return result.output if quiet else result.stdout


UNITS = ("--convention=generic", "--anchor=unit %")


def stated(folder: Path, stages: str = "stage0: encode, stage1: decode", blocks: str = "") -> tuple[str, ...]:
    """The options that state the stages, in a gate file beside the trace."""
    gate = folder / "stages.nsys.yaml"
    said = f"version: 1\npipeline: {{{stages}}}\n" + (f"blocks: {blocks}\n" if blocks else "")
    gate.write_text(f"{said}assertions: [pipeline overlap_score >= 0.30]\n")
    return (*UNITS, f"--gate={gate}")


@pytest.mark.parametrize("format", Format)
def test_the_command_reads_every_input(tmp_path: Path, format: Format) -> None:
    path = write_two_stages(tmp_path / f"run.{ENDINGS[format]}", TwoStageShape(), format)
    (row,) = json.loads(run(0, path, *stated(tmp_path, blocks="[decode, sample]"), "--format=json"))["rows"]
    assert row == {
        "rank": 0,
        "units": 14,
        "unit_ns": 3_200_000,
        "stage0_ns": 3_000_000,
        "stage1_ns": 2_000_000,
        "overlap_score": 0.9,
        "serialization": 0.1,
        "reading": "nearly hidden",
        "rule": "holds",
        "anchors": 25,
        "period_p50_ns": 3_200_000,
        "period_p90_ns": 3_200_000,
        "period_p99_ns": 6_400_000,  # of two that are twice as long the first is not counted
        "launches": 2,
        "gpu_gap_ns": 0,
        "syncs": 0,
        "share decode": 0.625,
        "share sample": 0.15625,
    }


def test_the_command_says_whether_the_rule_holds(tmp_path: Path) -> None:
    path = write_two_stages(tmp_path / "run.sqlite", [TwoStageShape(), TwoStageShape(period_ns=4_200_000)])
    options = stated(tmp_path)
    said = " ".join(run(0, path, *options).split())
    assert (
        "pipeline overlap_score >= 0.30: does not hold on 1 of 2 ranks; rank 1: score 0.4, serialization 0.6: "
        "period not nearer to the longer stage than to the sum" in said
    )
    assert "stage0: encode; stage1: decode; warmup: 10" in said
    assert "pipeline overlap_score >= 0.30: holds on rank 0" in run(0, path, *options, "--rank=0")
    told = run(0, path, *options, "--rank=0", "--format=markdown")
    assert "- pipeline overlap_score &gt;= 0.30: holds on rank 0" in told


def test_the_command_takes_the_gate_file(project: Project) -> None:
    path = write_two_stages(project.root / "run.sqlite")
    stages = GATE.replace("decode}", "decode, warmup: 3}")
    gate = project.gate(f"{stages}blocks: decode\nassertions:\n  - pipeline overlap_score >= 0.30")
    said = run(0, path, f"--convention={gate}", f"--gate={gate}", "--format=csv")
    (row,) = csv.DictReader(io.StringIO(said))
    assert (row["units"], row["overlap_score"], row["share decode"]) == ("21", "0.9", "0.625")


@pytest.mark.parametrize(
    ("stages", "options", "code", "what"),
    [
        ("", (), 2, "--view pipeline needs the stages: --gate FILE"),
        ("stage0: encode", (), 2, "pipeline needs stage1"),
        ("stage0: encode, stage1: decod", (), 3, "no range of stage1, 'decod'"),
        ("stage0: encode, stage1: decode, warmup: 20", (), 3, "lower warmup to 19 or less"),
        ("stage0: encode, stage1: decode", ("--window=steady",), 2, "--window steady is many windows"),
        ("", ("--gate=none.yaml",), 2, "none.yaml:1:1: cannot be read"),
    ],
)
def test_mistakes_of_the_command(tmp_path: Path, stages: str, options: tuple[str, ...], code: int, what: str) -> None:
    path = write_two_stages(tmp_path / "run.sqlite")
    assert what in run(code, path, *(stated(tmp_path, stages) if stages else UNITS), *options)


def test_a_gate_file_without_stages_says_what_it_lacks(project: Project) -> None:
    path, gate = write_two_stages(project.root / "run.sqlite"), project.gate("assertions: [compute_ns <= 1s]")
    assert "states no pipeline: {stage0: …, stage1: …}" in run(2, path, *UNITS, f"--gate={gate}")


def test_a_failed_sentence_leads_to_the_command(project: Project) -> None:
    _, said = outcome(project, RULED, TwoStageShape(period_ns=4_900_000))
    step = next(line for line in said.splitlines() if "next:" in line)
    words = step.split("pytest-nsys ")[1].split()
    assert words[:3] == ["run.sqlite", "--view", "pipeline"]
    assert "nearly serial" in project.command(*words, code=0)


@pytest.mark.parametrize(
    ("serialization", "words"),
    [
        (None, "a stage is empty"),
        (Fraction(-1, 9), "shorter than the longer stage: units overlap each other"),
        (0, "hidden"),
        (Fraction(1, 4), "nearly hidden"),
        (Fraction(49, 100), "nearer hidden than serial"),
        (Fraction(1, 2), "halfway"),
        (Fraction(51, 100), "nearer serial than hidden"),
        (Fraction(3, 4), "nearly serial"),
        (1, "serial"),
        (2, "longer than both stages: something else takes time"),
    ],
)
def test_a_reading_in_words(serialization: Value | None, words: str) -> None:
    assert describe_serialization(serialization) == words


def test_a_comparison_shows_both_numbers(project: Project) -> None:
    write_two_stages(project.root / "base.sqlite")
    write_two_stages(project.root / "head.sqlite", TwoStageShape(period_ns=4_200_000))
    gate = project.gate(f"{GATE}assertions:\n  - {RULED}")
    result = commands.run(
        "compare", *(project.root / f"{side}.sqlite" for side in ("base", "head")), f"--gate={gate}", code=1
    )
    assert re.search(r"now +limit +serialization +limit\n +0 +0.4 +>= 0.3 +0.6 +< 0.5\n", result.output)
