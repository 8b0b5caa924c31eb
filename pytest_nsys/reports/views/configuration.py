"""How does a run of a stated configuration read as one report: throughput, overlap, network load, and its traffic?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from pytest_nsys.analysis.metrics.collectives import Found, Labels, Transfers, shares, transfers
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.metrics.throughput import check_world, shards_of, world_of
from pytest_nsys.analysis.windows.spans import RUN
from pytest_nsys.core.errors import NoRows, UsageMistake
from pytest_nsys.core.exact import exact, mean, median
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import RATIO
from pytest_nsys.core.workload import Parallel
from pytest_nsys.reports.tables.formats import Cell, CellKind, Column, numbers, ratios, texts, times
from pytest_nsys.reports.views.kernels import about_collectives
from pytest_nsys.reports.views.view import Key, Looked, Paragraph, Part, View, figure, told

NOT_STATED = "not stated"
RATES = ("step_time_ns", "samples_per_s", "tokens_per_s")


def _run(looked: Looked) -> Iterator[Key]:
    """Yield one row that says what was trained on which GPUs. Raises UsageMistake where the configuration is of another
    run.
    """
    if looked.asked:
        raise UsageMistake("the view config is of all ranks: leave --rank out")
    window, parallel = looked.together, looked.run.workload.parallel or Parallel()
    try:
        check_world(window, parallel)
        shard_count = shards_of(window, parallel)
    except NoRows as error:
        raise UsageMistake(f"{looked.captures.paths[0]}: {error}") from None
    start_time = looked.captures.began
    yield {
        "began": None if start_time is None else f"{start_time:%Y-%m-%d %H:%M:%S} UTC",
        "model": looked.run.workload.model or NOT_STATED,
        "gpus": world_of(window),
        "traced": len(window.by_rank),
        "dp_replicate": parallel.replicate,
        "dp_shard": shard_count,
        "tp": parallel.tensor,
        "pp": parallel.pipeline,
        "cp": parallel.context,
        "ep": parallel.expert,
    }


def _rates(looked: Looked) -> Iterator[Key]:
    """Yield one row where any of the rates is known."""
    if any(looked.table(METRICS[name]).rows for name in RATES):
        yield {}


def _tokens_per_gpu(looked: Looked, _: Key) -> Cell:
    rows = looked.table(METRICS["tokens_per_s"]).rows
    return exact(Fraction(rows[0].value) / world_of(looked.together)) if rows else None


def _all_ranks(looked: Looked) -> Found:
    """Return the transfers of all ranks together, by group and kind."""
    merged_transfers: dict[Labels, Transfers] = {}
    for window in looked.together.by_rank.values():
        for labels, rank_transfers in transfers(window).items():
            merged_transfers[labels] = merged_transfers.get(labels, Transfers()).and_(rank_transfers)
    return dict(sorted(merged_transfers.items()))


_STATISTICS: tuple[tuple[str, Callable[[Sequence[Value]], Value]], ...] = (
    *(("mean", mean), ("median", median)),
    *(("min", min), ("max", max)),
)


def _collectives(looked: Looked) -> Iterator[Key]:
    """Yield a row for each group and kind of collective over all ranks; shares are of the bytes of all of them."""
    merged_transfers, peak = _all_ranks(looked), looked.run.workload.peak_gb_per_s
    share_of = shares(merged_transfers)
    for (group, kind), kind_transfers in merged_transfers.items():
        algorithm_speeds = [
            gb_per_s for transfer in kind_transfers.recorded if (gb_per_s := transfer.algorithm_gb_per_s) is not None
        ]
        bus_speeds = kind_transfers.bus_gb_per_s
        yield {
            "group": group,
            "collective": kind,
            "group_size": kind_transfers.group_size,
            "count": kind_transfers.kernels,
            "bytes": kind_transfers.bytes,
            "time_ns": kind_transfers.in_window_ns,
            "algbw_mean": exact(Fraction(mean(algorithm_speeds))) if algorithm_speeds else None,
            **{
                f"busbw_{statistic}": exact(Fraction(compute_statistic(bus_speeds))) if bus_speeds else None
                for statistic, compute_statistic in _STATISTICS
            },
            "utilisation": kind_transfers.utilisation(peak),
            "traffic_share": share_of.get((group, kind)),
        }


def _about(looked: Looked) -> Paragraph:
    """Return the overlap of all ranks in one line, which ranks straggle, and what is not known."""
    collectives = about_collectives(looked)
    table = looked.table(METRICS["wall_overlap_all"])
    overlap_by_rank = {int(row.labels[0]): row.value for row in table.rows}
    line = "overlap: nothing communicates"
    if overlap_by_rank:
        # Of ranks with the same overlap the one with the smallest number is named, so that output does not change.
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
        f"no {name}: {metric_table.without}" for name in RATES if not (metric_table := looked.table(METRICS[name])).rows
    ]
    unknown_notes += ["no time: no trace says when it was taken"] if looked.captures.began is None else []
    return collectives._replace(below=[line, *collectives.below], notes=[*map(Note, unknown_notes), *collectives.notes])


def _columns_of_load() -> Sequence[Column]:
    bandwidths = ("algbw_mean", *(f"busbw_{statistic}" for statistic, _ in _STATISTICS))
    return (
        *texts("group", "collective"),
        *numbers("group_size", "count"),
        Column("bytes", CellKind.SIZE),
        *times("time_ns"),
        *(Column(name, CellKind.NUMBER, f"{name.replace('_', ' ')} GB/s") for name in bandwidths),
        *ratios("utilisation", "traffic_share"),
    )


CONFIG = View(
    name="config",
    parts=(
        Part(
            columns=(
                *texts("began", "model"),
                *numbers("gpus", "traced", "dp_replicate", "dp_shard", "tp", "pp", "cp", "ep"),
            ),
            keys=_run,
        ),
        Part(
            name="throughput",
            caption="Throughput:",
            columns=(*map(figure, RATES), told("tokens_per_s_per_gpu", _tokens_per_gpu, CellKind.NUMBER)),
            keys=_rates,
        ),
        Part(
            name="overlap",
            caption="Overlap, the share of the communication during which compute runs:",
            columns=("rank", figure("wall_overlap_all", "overlap"), figure("wall_exposed_all_ns", "exposed_ns")),
        ),
        Part(
            name="collectives",
            caption="Network load and traffic of all ranks:",
            columns=_columns_of_load(),
            keys=_collectives,
        ),
    ),
    reads=(*RATES, "wall_overlap_all", "wall_exposed_all_ns", "collective_bytes", "collective_wait_ns"),
    window=RUN,
    one_window="a report is of one",
    takes=frozenset({"config", "peak"}),
    paragraph=_about,
    notes=lambda request: request.captures.notes_of(request.spec, "unknown_communication"),
)
