"""What does the view of a two-stage pipeline show: is the second stage hidden behind the first, and what does a unit
cost?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from pytest_nsys.analysis.metrics.pipeline import Pipeline, measure_pipelines
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.model import Note, Span, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import BARE
from pytest_nsys.gates.judgement import HALFWAY
from pytest_nsys.reports.tables.formats import Cell, CellKind, make_number_columns, make_text_columns, make_time_columns
from pytest_nsys.reports.views.view import (
    AnyColumn,
    MetricColumn,
    RowCells,
    View,
    ViewRequest,
    ViewSummary,
    ViewTable,
    make_computed_column,
    make_metric_column,
)

MIN_SCORE = Fraction("0.30")
RULE_SENTENCE = "pipeline overlap_score >= 0.30"
"""The usual rule for pipelines, in gate-file syntax."""

QUANTILES = ("p50", "p90", "p99")


@memoize_method
def find_rank_pipelines(request: ViewRequest) -> Mapping[int, Pipeline]:
    """Return the pipeline of each requested rank that has one."""
    pipeline_by_rank = sorted(measure_pipelines(request.all_ranks_window).items())
    return {number: pipeline for number, pipeline in pipeline_by_rank if number in request.ranks}


def _list_pipeline_rows(request: ViewRequest) -> Iterator[RowCells]:
    for rank, pipeline in find_rank_pipelines(request).items():
        first_stage_ns, second_stage_ns = pipeline.stages_ns
        yield {
            "rank": rank,
            "units": len(pipeline.units),
            "unit_ns": pipeline.period_ns,
            "stage0_ns": first_stage_ns,
            "stage1_ns": second_stage_ns,
            "overlap_score": pipeline.score,
            "serialization": pipeline.serialization,
            "reading": describe_serialization(pipeline.serialization),
            "rule": "; ".join(_list_broken_rules(pipeline)) or "holds",
        }


def _list_rank_rows(request: ViewRequest) -> Iterator[RowCells]:
    return ({"rank": rank} for rank in find_rank_pipelines(request))


def _count_launches(request: ViewRequest, row: RowCells) -> Cell:
    launch_counts = [
        value for labels, value in request.measure_metric(METRICS["launches"]).rows if labels[0] == row["rank"]
    ]
    return sum(launch_counts) if launch_counts else None


def _list_spending_columns(request: ViewRequest) -> list[AnyColumn]:
    """Return the columns that split the period of a rank's unit, one for each block."""
    share = METRICS["share"]
    blocks = (
        sorted({str(labels[1]) for labels, _ in request.measure_metric(share).rows})
        if request.run.workload.blocks
        else []
    )
    return [
        *("rank", make_metric_column("anchors")),
        *(make_metric_column("period_ns", f"period_{quantile}_ns", quantile=quantile) for quantile in QUANTILES),
        *(
            make_computed_column("launches", _count_launches, CellKind.NUMBER),
            make_metric_column("gpu_gap_ns"),
            make_metric_column("syncs"),
        ),
        *(MetricColumn(f"share {sanitize_line(name)}", share, {"block": name}) for name in blocks),
    ]


def summarize_pipelines(request: ViewRequest) -> ViewSummary:
    """Return whether the rule holds, and the ranges of the stages."""
    stages = request.run.workload.pipeline
    assert stages is not None  # the view requires them
    stage_lines = list(stages.identity_words)
    return ViewSummary(
        lines_below=[_describe_rule(find_rank_pipelines(request))],
        facts={"stages": stage_lines},
        notes=[Note("; ".join(stage_lines))],
    )


PIPELINE = View(
    name="pipeline",
    tables=(
        ViewTable(
            columns=(
                "rank",
                *make_number_columns("units"),
                *make_time_columns("unit_ns", "stage0_ns", "stage1_ns"),
                *make_number_columns("overlap_score", "serialization"),
                *make_text_columns("reading", "rule"),
            ),
            list_rows=_list_pipeline_rows,
        ),
        ViewTable(columns=_list_spending_columns, list_rows=_list_rank_rows),
    ),
    metric_names=("overlap_score", "serialization", "period_ns", "anchors", "launches", "syncs"),
    span=Span.PERIOD,
    one_window_reason="pick one unit, of which launches and gaps are told",
    option_names=frozenset({"gate"}),
    summarize=summarize_pipelines,
    list_notes=lambda request: request.captures.list_notes(request.spec, METRICS["overlap_score"], METRICS["share"]),
)


def describe_serialization(serialization: Value | None) -> str:
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


def _list_broken_rules(pipeline: Pipeline) -> Iterator[str]:
    """Yield each condition of the rule that a pipeline breaks."""
    if pipeline.score < MIN_SCORE:
        yield "score below 0.30"
    if pipeline.serialization is None:
        yield "no serialization"
    elif pipeline.serialization >= HALFWAY:
        yield "period not nearer to the longer stage than to the sum"


def _describe_rule(pipeline_by_rank: Mapping[int, Pipeline]) -> str:
    """Return the line that says on which ranks the rule does not hold, with the values of the first of them."""
    broken_ranks = [number for number, pipeline in pipeline_by_rank.items() if any(_list_broken_rules(pipeline))]
    if not broken_ranks:
        place = (
            f"all {len(pipeline_by_rank)} ranks"
            if len(pipeline_by_rank) > 1
            else f"rank {next(iter(pipeline_by_rank))}"
        )
        return f"{RULE_SENTENCE}: holds on {place}"
    first = pipeline_by_rank[broken_ranks[0]]
    values = [first.score, *([] if first.serialization is None else [first.serialization])]
    value_text = ", serialization ".join(format_value(value, BARE) for value in values)
    place = (
        f"{len(broken_ranks)} of {len(pipeline_by_rank)} ranks; rank {broken_ranks[0]}"
        if len(pipeline_by_rank) > 1
        else f"rank {broken_ranks[0]}"
    )
    return f"{RULE_SENTENCE}: does not hold on {place}: score {value_text}: {', '.join(_list_broken_rules(first))}"
