"""``pytest-nsys pipeline``: does a pipeline of two stages hide the shorter one, and where does the period go?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import click

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.pipeline import Pipeline, pipelines
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.cli.options import MeasureOptions, measuring, traces_argument
from pytest_nsys.cli.output import mode_of, print_answer
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.model import Note, Span, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import BARE
from pytest_nsys.core.words import printable
from pytest_nsys.core.workload import TwoStages, Workload
from pytest_nsys.gates.added_rules import HALFWAY
from pytest_nsys.gates.gate_file import load_one
from pytest_nsys.reports.tables import CellKind, Column, Format, Row, Table, numbers, texts, times

LEAST_SCORE = Fraction("0.30")
SENTENCE = "pipeline overlap_score >= 0.30"
"""The rule of the field, as a gate file has it."""

QUANTILES = ("p50", "p90", "p99")
MEASURED = ("overlap_score", "serialization", "share", "period_ns", "anchors", "launches", "gpu_gap_ns", "syncs")

HIDING = (
    *(*numbers("rank", "units"), *times("unit_ns", "stage0_ns", "stage1_ns")),
    *numbers("overlap_score", "serialization"),
    *texts("reading", "rule"),
)
SPENDING = (
    *(*numbers("anchors"), *times(*(f"period_{quantile}_ns" for quantile in QUANTILES))),
    *(*numbers("launches"), *times("gpu_gap_ns"), *numbers("syncs")),
)


@click.command()
@traces_argument
@click.option(
    "--stage0", metavar="PATTERN", multiple=True, help="Ranges (% is the wildcard) of the first stage (repeatable)."
)
@click.option("--stage1", metavar="PATTERN", multiple=True, help="Ranges of the second stage (repeatable).")
@click.option("--warmup", type=click.IntRange(0), metavar="N", help="Units to skip at the start. Default: 10.")
@click.option(
    "--block", "blocks", metavar="PATTERN", multiple=True, help="Ranges whose share of the period to show (repeatable)."
)
@click.option("--gate", metavar="FILE", help="Take stages, warm-up and blocks from this gate file.")
@measuring(no_steady=": pick one unit, of which launches and gaps are told")
def pipeline(
    asked: MeasureOptions,
    traces: tuple[str, ...],
    stage0: tuple[str, ...],
    stage1: tuple[str, ...],
    warmup: int | None,
    blocks: tuple[str, ...],
    gate: str | None,
) -> None:
    """Show how well the two stages of a pipeline overlap.

    TRACES: files, folders or globs of one run.

    A unit of work is one period of the anchor. --window picks the unit whose launches, gaps and synchronisations
    are shown.
    """
    workload = _stated(stage0, stage1, warmup, blocks, gate)
    measured = [name for name in MEASURED if workload.blocks or name != "share"]
    with asked.one_run(traces, workload, metrics=measured, span=Span.PERIOD) as (captures, spec):
        _print(asked, traces, captures, spec)


def _stated(
    stage0: tuple[str, ...], stage1: tuple[str, ...], warmup: int | None, blocks: tuple[str, ...], gate: str | None
) -> Workload:
    """What the options say, where they do; else the gate file. Raises UsageMistake where nobody names both stages."""
    if not all(pattern.strip() for pattern in (*stage0, *stage1, *blocks)):
        raise UsageMistake("a pattern is empty: write the name of a range, % stands for anything")
    found = load_one(Path(gate)).workload if gate is not None else Workload()
    said = found.pipeline
    if stage0 or stage1:
        if said is not None:
            raise UsageMistake("--gate states the stages: leave --stage0 and --stage1 out, or --gate")
        said = TwoStages(stage0, stage1)
    if said is None or not said.first or not said.second:
        raise UsageMistake("name the ranges of both stages: --stage0 PATTERN --stage1 PATTERN, or --gate FILE has them")
    warm_up = said.warm_up if warmup is None else warmup
    return found._replace(pipeline=said._replace(warm_up=warm_up), blocks=blocks or found.blocks)


def _print(asked: MeasureOptions, traces: Sequence[str], captures: Captures, spec: WindowSpec) -> None:
    (run,) = captures.runs
    ranks = asked.chosen(run.ranks)
    (together,) = run.measured(spec).together()
    chosen = {number: found for number, found in sorted(pipelines(together).items()) if number in ranks}
    named = METRICS["overlap_score"], METRICS["share"]
    stages = run.workload.pipeline
    assert stages is not None  # no command without
    notes = [*asked.notes, Note(str(spec)), Note("; ".join(stages.words)), *captures.notes(spec, *named)]
    hiding: list[Row] = [_hiding(number, found) for number, found in chosen.items()]
    columns, spending = _spending(captures, spec, chosen)
    if asked.format in (Format.JSON, Format.CSV):
        about = {"trace": list(traces), "kernels": mode_of(spec), "stages": list(stages.words)}
        rows = [(*first, *second) for first, second in zip(hiding, spending, strict=True)]
        print_answer(asked.format, Table((*HIDING, *columns), rows), about, notes)
        return
    print_answer(asked.format, Table(HIDING, hiding))
    click.echo()
    numbered = [(number, *cells) for number, cells in zip(chosen, spending, strict=True)]
    print_answer(asked.format, Table((HIDING[0], *columns), numbered), None, notes, below=[_verdict(chosen)])


def _hiding(number: int, found: Pipeline) -> Row:
    first, second = found.stages_ns
    numbers = (number, len(found.units), found.period_ns, first, second, found.score, found.serialization)
    return (*numbers, reading(found.serialization), "; ".join(_broken(found)) or "holds")


def reading(serialization: Value | None) -> str:
    if serialization is None:
        return "a stage is empty"
    said = (
        (serialization < 0, "shorter than the longer stage: units overlap each other"),
        (serialization == 0, "hidden"),
        (4 * serialization <= 1, "nearly hidden"),
        (serialization < HALFWAY, "nearer hidden than serial"),
        (serialization == HALFWAY, "halfway"),
        (4 * serialization < 3, "nearer serial than hidden"),
        (serialization < 1, "nearly serial"),
        (serialization == 1, "serial"),
    )
    return next((words for holds, words in said if holds), "longer than both stages: something else takes time")


def _broken(found: Pipeline) -> Iterator[str]:
    if found.score < LEAST_SCORE:
        yield "score below 0.30"
    if found.serialization is None:
        yield "no serialization"
    elif found.serialization >= HALFWAY:
        yield "period not nearer to the longer stage than to the sum"


def _verdict(chosen: Mapping[int, Pipeline]) -> str:
    """The rule's line: on which ranks does it not hold?"""
    broken = [number for number, found in chosen.items() if any(_broken(found))]
    if not broken:
        where = f"all {len(chosen)} ranks" if len(chosen) > 1 else f"rank {next(iter(chosen))}"
        return f"{SENTENCE}: holds on {where}"
    first = chosen[broken[0]]
    values = [first.score, *([] if first.serialization is None else [first.serialization])]
    shown = ", serialization ".join(format_value(value, BARE) for value in values)
    where = f"{len(broken)} of {len(chosen)} ranks; rank {broken[0]}" if len(chosen) > 1 else f"rank {broken[0]}"
    return f"{SENTENCE}: does not hold on {where}: score {shown}: {', '.join(_broken(first))}"


def _spending(
    captures: Captures, spec: WindowSpec, chosen: Mapping[int, Pipeline]
) -> tuple[list[Column], list[tuple[Value | None, ...]]]:
    """What a unit of each rank spends its period on, with a column for each block."""
    values = {
        name: {row.labels: row.value for row in captures.rows(METRICS[name], spec).rows}
        for name in (*MEASURED[3:], "share")
    }
    blocks = sorted({str(labels[1]) for labels in values["share"]})
    columns = [*SPENDING, *(Column(f"share {printable(name)}", CellKind.RATIO) for name in blocks)]
    rows = []
    for number in chosen:
        launched = [value for labels, value in values["launches"].items() if labels[0] == number]
        rows.append(
            (
                values["anchors"].get((number,)),
                *(values["period_ns"].get((number, quantile)) for quantile in QUANTILES),
                sum(launched) if launched else None,
                *(values[name].get((number,)) for name in ("gpu_gap_ns", "syncs")),
                *(values["share"].get((number, name)) for name in blocks),
            )
        )
    return columns, rows
