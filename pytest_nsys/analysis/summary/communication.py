"""How much does a run communicate, how much of it is exposed, and how fast? By stage, or by collective if there are no
stages.

Each line is from the rank that exposes it longest. The total comes from the metrics that
:mod:`~pytest_nsys.analysis.metrics.stream_sharing` chooses. Communication on streams that also compute has no stage: if
it is the larger part, the lines are by collective; otherwise it has a line of its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.collectives import group_transfers, list_recorded_transfers
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.metrics.stream_sharing import StreamSharing, choose_wall_metrics, measure_sharing
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.columns import Column, group_indices_by, sum_column, take
from pytest_nsys.core.conventions import NO_STAGE, UNKNOWN_PURPOSE
from pytest_nsys.core.exact import median, simplify_fraction
from pytest_nsys.core.families import OTHER_KIND, extract_short_name, find_collective_kind
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Label, Value


@dataclass(frozen=True, slots=True)
class CommunicationFigures:
    """Holds the communication of one name on the rank that exposes it longest; unknown figures are None."""

    name: str
    rank: int
    total_ns: Value  # sum over kernels
    exposed_ns: Value  # time without concurrent compute
    overlap_share: Value | None
    bus_gb_per_s: Value | None = None  # median bandwidth of the links in GB/s


@dataclass(frozen=True, slots=True)
class RunCommunication:
    """Holds all communication of a run, the longest exposed first."""

    grouping: str  # ``stage`` or ``collective``
    sharing: StreamSharing
    parts: tuple[CommunicationFigures, ...]
    total: (
        CommunicationFigures | None
    )  # over all names, from the metrics that ``sharing`` requires; None if there is none
    reason: str = ""  # why there is no total

    @property
    def total_and_parts(self) -> tuple[CommunicationFigures, ...]:
        """The total, and its parts."""
        return self.parts if self.total is None else (self.total, *self.parts)

    @property
    def counts_shared_streams(self) -> bool:
        """Whether the figures include communication on streams that also compute, as the metrics ``…_all`` do."""
        return self.sharing.is_significant


def measure_communication(
    captures: Captures, spec: WindowSpec, windows: Mapping[int, Sequence[RankWindow]]
) -> RunCommunication:
    """Measure the communication in the windows of each rank."""
    all_windows = [window for rank_windows in windows.values() for window in rank_windows]
    sharing = measure_sharing(all_windows)
    if not sharing.all_kernels:
        return RunCommunication("collective", sharing, (), None, sharing.left_out_reason)

    def read_rows(name: str) -> _Rows:
        return {row.labels: row.value for row in captures.measure_rows(METRICS[name], spec, frozenset(windows)).rows}

    counts_shared, is_by_stage = (
        sharing.is_significant,
        any(labels[1] != NO_STAGE for labels in read_rows(_BY_STAGE[0])) and not sharing.is_most,
    )
    exposed, overlap = map(read_rows, choose_wall_metrics(sharing))
    sums = {
        n: [sum_column(take(w.durations_ns, _select_communication(w, counts_shared))) for w in rank_windows]
        for n, rank_windows in windows.items()
    }
    whole = [
        CommunicationFigures("all", int(str(labels[0])), median(sums[int(str(labels[0]))]), ns, overlap.get(labels))
        for labels, ns in exposed.items()
    ]
    parts = list(
        _list_stage_figures(*map(read_rows, _BY_STAGE))
        if is_by_stage
        else _list_collective_figures(windows, counts_shared=counts_shared)
    )
    parts += _list_shared_stream_figures(windows) if is_by_stage and counts_shared else ()
    if not whole:
        return RunCommunication("collective", sharing, (), None, "the communication kernels of the window take no time")
    return RunCommunication(
        "stage" if is_by_stage else "collective",
        sharing,
        tuple(_pick_worst_ranks(parts)),
        next(_pick_worst_ranks(whole)),
    )


SHARED_NAME = "on compute streams"
_BY_STAGE = ("comm_ns", "exposed_ns", "overlap")


def _select_communication(window: RankWindow, counts_shared: bool) -> Column:
    return window.all_communication if counts_shared else window.communication


def _pick_worst_ranks(figures: Sequence[CommunicationFigures]) -> Iterator[CommunicationFigures]:
    """Yield for each name the figures of the rank that exposes it longest, the longest exposed first."""
    worst_by_name = [
        max(same_name, key=_make_exposure_key)
        for same_name in group_by_key((item.name, item) for item in figures).values()
    ]
    yield from sorted(worst_by_name, key=_make_exposure_key, reverse=True)


def _make_exposure_key(figures: CommunicationFigures) -> tuple[Value, Value, int]:
    return figures.exposed_ns, figures.total_ns, -figures.rank


_Rows = Mapping[tuple[Label, ...], Value]


def _list_stage_figures(lengths: _Rows, exposed: _Rows, overlap: _Rows) -> Iterator[CommunicationFigures]:
    for labels, ns in lengths.items():
        rank, stage = labels
        yield CommunicationFigures(str(stage), int(str(rank)), ns, exposed[labels], overlap.get(labels))


def _list_shared_stream_figures(windows: Mapping[int, Sequence[RankWindow]]) -> Iterator[CommunicationFigures]:
    """Yield for each rank the communication on streams that compute, too."""
    for number, rank_windows in windows.items():
        if any(len(window.barriers) for window in rank_windows):
            run_times = [window.merge_run_times(window.barriers) for window in rank_windows]
            exposed = [
                time.total_ns - time.measure_common_ns(w.compute_time)
                for time, w in zip(run_times, rank_windows, strict=True)
            ]
            lengths = [sum_column(take(window.durations_ns, window.barriers)) for window in rank_windows]
            share = (
                simplify_fraction(1 - Fraction(sum(exposed), wall))
                if (wall := sum(time.total_ns for time in run_times))
                else None
            )
            yield CommunicationFigures(SHARED_NAME, number, median(lengths), median(exposed), share)


def _list_collective_figures(
    windows: Mapping[int, Sequence[RankWindow]], *, counts_shared: bool
) -> Iterator[CommunicationFigures]:
    """Yield figures by process group and kind, named as in the metrics of collectives."""
    for number, rank_windows in windows.items():
        window_figures = [dict(_measure_exposed(window, counts_shared=counts_shared)) for window in rank_windows]
        for labels in dict.fromkeys(labels for figures in window_figures for labels in figures):
            lengths, exposed, walls = zip(*(figures.get(labels, (0, 0, 0)) for figures in window_figures), strict=True)
            wall, group, kind = sum(walls), *labels
            speeds = [
                speed
                for window in rank_windows
                if (transfer := group_transfers(window).get(labels))
                for speed in transfer.bus_gb_per_s
            ]
            yield CommunicationFigures(
                kind if group == UNKNOWN_PURPOSE else f"{kind} ({group})",
                number,
                median([*lengths]),
                median([*exposed]),
                simplify_fraction(1 - Fraction(sum(exposed), wall)) if wall else None,
                simplify_fraction(Fraction(median(speeds))) if speeds else None,
            )


def _measure_exposed(
    window: RankWindow, *, counts_shared: bool
) -> Iterator[tuple[tuple[str, str], tuple[int, int, int]]]:
    """Yield by group and kind the sum of kernel lengths, the time without compute, and the time in which any kernel
    ran, in ns.
    """
    members = {*_select_communication(window, counts_shared)}
    labels_by_index = (
        {t.index: (t.group, t.kind) for t in list_recorded_transfers(window)} if window.track.collectives else {}
    )
    indices_by_labels: dict[tuple[str, str], list[int]] = group_by_key(
        (labels, i) for i, labels in labels_by_index.items() if i in members
    )
    names, rest = window.kernels.names, array("q", sorted(members - labels_by_index.keys()))
    rest_by_kind = group_indices_by(lambda name: _name_collective(names[name]), window.kernels.name, subset=rest)
    for kind, indices in rest_by_kind.items():
        indices_by_labels.setdefault((UNKNOWN_PURPOSE, kind), []).extend(indices)
    for labels, kernel_indices in indices_by_labels.items():
        sorted_indices = array("q", sorted(kernel_indices))
        run_time = window.merge_run_times(sorted_indices)
        exposed = run_time.total_ns - run_time.measure_common_ns(window.compute_time)
        yield labels, (sum_column(take(window.durations_ns, sorted_indices)), exposed, run_time.total_ns)


def _name_collective(name: str) -> str:
    """Return the name of the collective that a kernel runs; the kernel's own name if the collective is unknown."""
    kind = find_collective_kind(name)
    return extract_short_name(name) if kind == OTHER_KIND else kind
