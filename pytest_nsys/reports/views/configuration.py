"""What does the report of a run with a stated configuration contain: throughput, overlap, network load and traffic?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from pytest_nsys.analysis.metrics.collectives import (
    CollectiveLabels,
    TotalsByLabels,
    TransferTotals,
    divide_bytes,
    group_transfers,
)
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.metrics.throughput import check_world, find_shard_degree, find_world_size
from pytest_nsys.analysis.windows.window_selection import RUN
from pytest_nsys.core.errors import NoRows, UsageMistake
from pytest_nsys.core.exact import mean, median, simplify_fraction
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import RATIO
from pytest_nsys.core.workload import Parallel
from pytest_nsys.reports.tables.formats import (
    Cell,
    CellKind,
    Column,
    make_number_columns,
    make_ratio_columns,
    make_text_columns,
    make_time_columns,
)
from pytest_nsys.reports.views.kernels import summarize_collectives
from pytest_nsys.reports.views.view import (
    RowCells,
    View,
    ViewRequest,
    ViewSummary,
    ViewTable,
    make_computed_column,
    make_metric_column,
)

NOT_STATED = "not stated"
RATES = ("step_time_ns", "samples_per_s", "tokens_per_s")


def _list_run_rows(request: ViewRequest) -> Iterator[RowCells]:
    """Yield one row that says what was trained on which GPUs. Raises UsageMistake if the configuration belongs to
    another run.
    """
    if request.requested_ranks:
        raise UsageMistake("the view config is of all ranks: leave --rank out")
    window, parallel = request.all_ranks_window, request.run.workload.parallel or Parallel()
    try:
        check_world(window, parallel)
        shard_count = find_shard_degree(window, parallel)
    except NoRows as error:
        raise UsageMistake(f"{request.captures.paths[0]}: {error}") from None
    start_time = request.captures.start_time
    yield {
        "began": None if start_time is None else f"{start_time:%Y-%m-%d %H:%M:%S} UTC",
        "model": request.run.workload.model or NOT_STATED,
        "gpus": find_world_size(window),
        "traced": len(window.by_rank),
        "dp_replicate": parallel.replicate,
        "dp_shard": shard_count,
        "tp": parallel.tensor,
        "pp": parallel.pipeline,
        "cp": parallel.context,
        "ep": parallel.expert,
    }


def _list_rate_rows(request: ViewRequest) -> Iterator[RowCells]:
    """Yield one row where any of the rates is known."""
    if any(request.measure_metric(METRICS[name]).rows for name in RATES):
        yield {}


def _compute_tokens_per_gpu(request: ViewRequest, _: RowCells) -> Cell:
    rows = request.measure_metric(METRICS["tokens_per_s"]).rows
    return simplify_fraction(Fraction(rows[0].value) / find_world_size(request.all_ranks_window)) if rows else None


def _merge_transfers(request: ViewRequest) -> TotalsByLabels:
    """Return the transfers summed over all ranks, by group and kind."""
    merged_transfers: dict[CollectiveLabels, TransferTotals] = {}
    for window in request.all_ranks_window.by_rank.values():
        for labels, rank_transfers in group_transfers(window).items():
            merged_transfers[labels] = merged_transfers.get(labels, TransferTotals()).add(rank_transfers)
    return dict(sorted(merged_transfers.items()))


_STATISTICS: tuple[tuple[str, Callable[[Sequence[Value]], Value]], ...] = (
    *(("mean", mean), ("median", median)),
    *(("min", min), ("max", max)),
)


def _list_collective_rows(request: ViewRequest) -> Iterator[RowCells]:
    """Yield a row for each group and kind of collective, summed over all ranks; shares are of the total bytes."""
    merged_transfers, peak = _merge_transfers(request), request.run.workload.peak_gb_per_s
    share_of = divide_bytes(merged_transfers)
    for (group, kind), kind_transfers in merged_transfers.items():
        algorithm_speeds = [
            gb_per_s
            for transfer in kind_transfers.recorded_transfers
            if (gb_per_s := transfer.algorithm_gb_per_s) is not None
        ]
        bus_speeds = kind_transfers.bus_gb_per_s
        yield {
            "group": group,
            "collective": kind,
            "group_size": kind_transfers.group_size,
            "count": kind_transfers.kernel_count,
            "bytes": kind_transfers.bytes,
            "time_ns": kind_transfers.in_window_ns,
            "algbw_mean": simplify_fraction(Fraction(mean(algorithm_speeds))) if algorithm_speeds else None,
            **{
                f"busbw_{statistic}": simplify_fraction(Fraction(compute_statistic(bus_speeds))) if bus_speeds else None
                for statistic, compute_statistic in _STATISTICS
            },
            "utilisation": kind_transfers.measure_utilisation(peak),
            "traffic_share": share_of.get((group, kind)),
        }


def _summarize_configuration(request: ViewRequest) -> ViewSummary:
    """Return the overlap of all ranks in one line, the stragglers, and what is unknown."""
    collectives = summarize_collectives(request)
    table = request.measure_metric(METRICS["wall_overlap_all"])
    overlap_by_rank = {int(row.labels[0]): row.value for row in table.rows}
    line = "overlap: nothing communicates"
    if overlap_by_rank:
        # Of ranks with equal overlap the lowest number is named, so that the output is stable.
        lowest_rank, highest_rank = (
            min(overlap_by_rank, key=lambda n: (overlap_by_rank[n], n)),
            max(overlap_by_rank, key=lambda n: (overlap_by_rank[n], -n)),
        )
        average, low, high = (
            format_value(v, RATIO)
            for v in (mean([*overlap_by_rank.values()]), overlap_by_rank[lowest_rank], overlap_by_rank[highest_rank])
        )
        line = f"overlap: average {average}, minimum {low} (rank {lowest_rank}), maximum {high} (rank {highest_rank})"
    unknown_notes = [
        f"no {name}: {metric_table.no_row_reason}"
        for name in RATES
        if not (metric_table := request.measure_metric(METRICS[name])).rows
    ]
    unknown_notes += ["no time: no trace says when it was taken"] if request.captures.start_time is None else []
    return collectives._replace(
        lines_below=[line, *collectives.lines_below], notes=[*map(Note, unknown_notes), *collectives.notes]
    )


def _list_load_columns() -> Sequence[Column]:
    bandwidths = ("algbw_mean", *(f"busbw_{statistic}" for statistic, _ in _STATISTICS))
    return (
        *make_text_columns("group", "collective"),
        *make_number_columns("group_size", "count"),
        Column("bytes", CellKind.SIZE),
        *make_time_columns("time_ns"),
        *(Column(name, CellKind.NUMBER, f"{name.replace('_', ' ')} GB/s") for name in bandwidths),
        *make_ratio_columns("utilisation", "traffic_share"),
    )


CONFIG = View(
    name="config",
    tables=(
        ViewTable(
            columns=(
                *make_text_columns("began", "model"),
                *make_number_columns("gpus", "traced", "dp_replicate", "dp_shard", "tp", "pp", "cp", "ep"),
            ),
            list_rows=_list_run_rows,
        ),
        ViewTable(
            name="throughput",
            caption="Throughput:",
            columns=(
                *map(make_metric_column, RATES),
                make_computed_column("tokens_per_s_per_gpu", _compute_tokens_per_gpu, CellKind.NUMBER),
            ),
            list_rows=_list_rate_rows,
        ),
        ViewTable(
            name="overlap",
            caption="Overlap, the share of the communication during which compute runs:",
            columns=(
                "rank",
                make_metric_column("wall_overlap_all", "overlap"),
                make_metric_column("wall_exposed_all_ns", "exposed_ns"),
            ),
        ),
        ViewTable(
            name="collectives",
            caption="Network load and traffic of all ranks:",
            columns=_list_load_columns(),
            list_rows=_list_collective_rows,
        ),
    ),
    metric_names=(*RATES, "wall_overlap_all", "wall_exposed_all_ns", "collective_bytes", "collective_wait_ns"),
    window=RUN,
    one_window_reason="a report is of one",
    option_names=frozenset({"config", "peak"}),
    summarize=_summarize_configuration,
    list_notes=lambda request: request.captures.list_notes_of(request.spec, "unknown_communication"),
)
