"""How does a pipeline of two stages read: is the second hidden behind the first, and what does a unit cost?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from pytest_nsys.analysis.metrics.pipeline import Pipeline, pipelines
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import Note, Span, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import BARE
from pytest_nsys.core.words import printable
from pytest_nsys.gates.judgement import HALFWAY
from pytest_nsys.reports.tables.formats import Cell, CellKind, numbers, texts, times
from pytest_nsys.reports.views.view import AnyColumn, Figure, Key, Looked, Paragraph, Part, View, figure, told

LEAST_SCORE = Fraction("0.30")
SENTENCE = "pipeline overlap_score >= 0.30"
"""The rule of the field, as a gate file has it."""

QUANTILES = ("p50", "p90", "p99")


@kept
def pipelines_of(looked: Looked) -> Mapping[int, Pipeline]:
    """The pipeline of each rank asked for."""
    found = sorted(pipelines(looked.together).items())
    return {number: own for number, own in found if number in looked.ranks}


def _hiding(looked: Looked) -> Iterator[Key]:
    for rank, found in pipelines_of(looked).items():
        first, second = found.stages_ns
        yield {
            "rank": rank,
            "units": len(found.units),
            "unit_ns": found.period_ns,
            "stage0_ns": first,
            "stage1_ns": second,
            "overlap_score": found.score,
            "serialization": found.serialization,
            "reading": reading(found.serialization),
            "rule": "; ".join(_broken(found)) or "holds",
        }


def _ranks(looked: Looked) -> Iterator[Key]:
    return ({"rank": rank} for rank in pipelines_of(looked))


def _launches(looked: Looked, key: Key) -> Cell:
    launched = [value for labels, value in looked.table(METRICS["launches"]).rows if labels[0] == key["rank"]]
    return sum(launched) if launched else None


def _spending(looked: Looked) -> list[AnyColumn]:
    """What a unit of each rank spends its period on, with a column for each block."""
    share = METRICS["share"]
    blocks = sorted({str(labels[1]) for labels, _ in looked.table(share).rows}) if looked.run.workload.blocks else []
    return [
        *("rank", figure("anchors")),
        *(figure("period_ns", f"period_{quantile}_ns", quantile=quantile) for quantile in QUANTILES),
        *(told("launches", _launches, CellKind.NUMBER), figure("gpu_gap_ns"), figure("syncs")),
        *(Figure(f"share {printable(name)}", share, {"block": name}) for name in blocks),
    ]


def about_pipelines(looked: Looked) -> Paragraph:
    """Whether the rule holds; of which ranges the stages are."""
    stages = looked.run.workload.pipeline
    assert stages is not None  # no view without
    said = list(stages.words)
    return Paragraph(below=[_verdict(pipelines_of(looked))], facts={"stages": said}, notes=[Note("; ".join(said))])


PIPELINE = View(
    name="pipeline",
    parts=(
        Part(
            columns=(
                "rank",
                *numbers("units"),
                *times("unit_ns", "stage0_ns", "stage1_ns"),
                *numbers("overlap_score", "serialization"),
                *texts("reading", "rule"),
            ),
            keys=_hiding,
        ),
        Part(columns=_spending, keys=_ranks),
    ),
    reads=("overlap_score", "serialization", "period_ns", "anchors", "launches", "syncs"),
    span=Span.PERIOD,
    one_window="pick one unit, of which launches and gaps are told",
    takes=frozenset({"gate"}),
    paragraph=about_pipelines,
    notes=lambda looked: looked.captures.notes(looked.spec, METRICS["overlap_score"], METRICS["share"]),
)


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
