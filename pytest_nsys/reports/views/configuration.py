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
    """What was trained, on what. Raises UsageMistake where the configuration is of another run."""
    if looked.asked:
        raise UsageMistake("the view config is of all ranks: leave --rank out")
    window, parallel = looked.together, looked.run.workload.parallel or Parallel()
    try:
        check_world(window, parallel)
        shard = shards_of(window, parallel)
    except NoRows as why:
        raise UsageMistake(f"{looked.captures.paths[0]}: {why}") from None
    began = looked.captures.began
    yield {
        "began": None if began is None else f"{began:%Y-%m-%d %H:%M:%S} UTC",
        "model": looked.run.workload.model or NOT_STATED,
        "gpus": world_of(window),
        "traced": len(window.by_rank),
        "dp_replicate": parallel.replicate,
        "dp_shard": shard,
        "tp": parallel.tensor,
        "pp": parallel.pipeline,
        "cp": parallel.context,
        "ep": parallel.expert,
    }


def _rates(looked: Looked) -> Iterator[Key]:
    """One row, where anything of it is known."""
    if any(looked.table(METRICS[name]).rows for name in RATES):
        yield {}


def _tokens_per_gpu(looked: Looked, _: Key) -> Cell:
    rows = looked.table(METRICS["tokens_per_s"]).rows
    return exact(Fraction(rows[0].value) / world_of(looked.together)) if rows else None


def _all_ranks(looked: Looked) -> Found:
    """The transfers of every rank together, by group and kind."""
    found: dict[Labels, Transfers] = {}
    for window in looked.together.by_rank.values():
        for labels, own in transfers(window).items():
            found[labels] = found.get(labels, Transfers()).and_(own)
    return dict(sorted(found.items()))


_STATISTICS: tuple[tuple[str, Callable[[Sequence[Value]], Value]], ...] = (
    *(("mean", mean), ("median", median)),
    *(("min", min), ("max", max)),
)


def _collectives(looked: Looked) -> Iterator[Key]:
    """The communication of all ranks by group and kind; a share is of the bytes of all that communicates."""
    found, peak = _all_ranks(looked), looked.run.workload.peak_gb_per_s
    share_of = shares(found)
    for (group, kind), own in found.items():
        algorithm = [speed for t in own.recorded if (speed := t.algorithm_gb_per_s) is not None]
        bus = own.bus_gb_per_s
        yield {
            "group": group,
            "collective": kind,
            "group_size": own.group_size,
            "count": own.kernels,
            "bytes": own.bytes,
            "time_ns": own.in_window_ns,
            "algbw_mean": exact(Fraction(mean(algorithm))) if algorithm else None,
            **{f"busbw_{word}": exact(Fraction(take(bus))) if bus else None for word, take in _STATISTICS},
            "utilisation": own.utilisation(peak),
            "traffic_share": share_of.get((group, kind)),
        }


def _about(looked: Looked) -> Paragraph:
    """The overlap of all ranks in one line, who straggles, and what is not known."""
    said = about_collectives(looked)
    table = looked.table(METRICS["wall_overlap_all"])
    overlap = {int(row.labels[0]): row.value for row in table.rows}
    line = "overlap: nothing communicates"
    if overlap:
        least, most = min(overlap, key=lambda n: (overlap[n], n)), max(overlap, key=lambda n: (overlap[n], -n))
        average, low, high = (
            format_value(v, RATIO) for v in (mean([*overlap.values()]), overlap[least], overlap[most])
        )
        line = f"overlap: average {average}, minimum {low} (rank {least}), maximum {high} (rank {most})"
    unknown = [f"no {name}: {own.without}" for name in RATES if not (own := looked.table(METRICS[name])).rows]
    unknown += ["no time: no trace says when it was taken"] if looked.captures.began is None else []
    return said._replace(below=[line, *said.below], notes=[*map(Note, unknown), *said.notes])


def _columns_of_load() -> Sequence[Column]:
    bandwidths = ("algbw_mean", *(f"busbw_{word}" for word, _ in _STATISTICS))
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
    notes=lambda looked: looked.captures.notes_of(looked.spec, "unknown_communication"),
)
