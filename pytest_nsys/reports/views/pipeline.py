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
"""The rule of the field for pipelines, as a gate file writes it."""

QUANTILES = ("p50", "p90", "p99")


@kept
def pipelines_of(looked: Looked) -> Mapping[int, Pipeline]:
    """Return the pipeline of each requested rank that has one."""
    pipeline_by_rank = sorted(pipelines(looked.together).items())
    return {number: pipeline for number, pipeline in pipeline_by_rank if number in looked.ranks}


def _hiding(looked: Looked) -> Iterator[Key]:
    for rank, pipeline in pipelines_of(looked).items():
        first_stage_ns, second_stage_ns = pipeline.stages_ns
        yield {
            "rank": rank,
            "units": len(pipeline.units),
            "unit_ns": pipeline.period_ns,
            "stage0_ns": first_stage_ns,
            "stage1_ns": second_stage_ns,
            "overlap_score": pipeline.score,
            "serialization": pipeline.serialization,
            "reading": reading(pipeline.serialization),
            "rule": "; ".join(_broken(pipeline)) or "holds",
        }


def _ranks(looked: Looked) -> Iterator[Key]:
    return ({"rank": rank} for rank in pipelines_of(looked))


def _launches(looked: Looked, key: Key) -> Cell:
    launch_counts = [value for labels, value in looked.table(METRICS["launches"]).rows if labels[0] == key["rank"]]
    return sum(launch_counts) if launch_counts else None


def _spending(looked: Looked) -> list[AnyColumn]:
    """Return the columns of what a unit of each rank spends its period on, with one for each block."""
    share = METRICS["share"]
    blocks = sorted({str(labels[1]) for labels, _ in looked.table(share).rows}) if looked.run.workload.blocks else []
    return [
        *("rank", figure("anchors")),
        *(figure("period_ns", f"period_{quantile}_ns", quantile=quantile) for quantile in QUANTILES),
        *(told("launches", _launches, CellKind.NUMBER), figure("gpu_gap_ns"), figure("syncs")),
        *(Figure(f"share {printable(name)}", share, {"block": name}) for name in blocks),
    ]


def about_pipelines(looked: Looked) -> Paragraph:
    """Return whether the rule holds, and which ranges the stages are."""
    stages = looked.run.workload.pipeline
    assert stages is not None  # no view without
    stage_lines = list(stages.words)
    return Paragraph(
        below=[_verdict(pipelines_of(looked))], facts={"stages": stage_lines}, notes=[Note("; ".join(stage_lines))]
    )


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
    notes=lambda request: request.captures.notes(request.spec, METRICS["overlap_score"], METRICS["share"]),
)


def reading(serialization: Value | None) -> str:
    """Return what a serialization means in words: from *hidden* at 0 to *serial* at 1."""
    if serialization is None:
        return "a stage is empty"
    descriptions = (
        (serialization < 0, "shorter than the longer stage: units overlap each other"),
        (serialization == 0, "hidden"),
        # Quarters of the way from hidden (0) to serial (1); only the halfway point decides the rule.
        (4 * serialization <= 1, "nearly hidden"),
        (serialization < HALFWAY, "nearer hidden than serial"),
        (serialization == HALFWAY, "halfway"),
        (4 * serialization < 3, "nearer serial than hidden"),
        (serialization < 1, "nearly serial"),
        (serialization == 1, "serial"),
    )
    return next(
        (description for holds, description in descriptions if holds),
        "longer than both stages: something else takes time",
    )


def _broken(found: Pipeline) -> Iterator[str]:
    """Yield each part of the rule that a pipeline breaks."""
    if found.score < LEAST_SCORE:
        yield "score below 0.30"
    if found.serialization is None:
        yield "no serialization"
    elif found.serialization >= HALFWAY:
        yield "period not nearer to the longer stage than to the sum"


def _verdict(chosen: Mapping[int, Pipeline]) -> str:
    """Return the line that says on which ranks the rule does not hold, with the values of the first of them."""
    broken_ranks = [number for number, pipeline in chosen.items() if any(_broken(pipeline))]
    if not broken_ranks:
        place = f"all {len(chosen)} ranks" if len(chosen) > 1 else f"rank {next(iter(chosen))}"
        return f"{SENTENCE}: holds on {place}"
    first = chosen[broken_ranks[0]]
    values = [first.score, *([] if first.serialization is None else [first.serialization])]
    value_text = ", serialization ".join(format_value(value, BARE) for value in values)
    place = (
        f"{len(broken_ranks)} of {len(chosen)} ranks; rank {broken_ranks[0]}"
        if len(chosen) > 1
        else f"rank {broken_ranks[0]}"
    )
    return f"{SENTENCE}: does not hold on {place}: score {value_text}: {', '.join(_broken(first))}"
