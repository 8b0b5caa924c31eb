"""How much does a run communicate, how much of it is exposed, and how fast? By stage, or by collective without stages.

Each line is of the rank on which it is exposed longest. All of it together is what the metrics say that
:mod:`~pytest_nsys.analysis.metrics.stream_sharing` chooses. What shares streams with compute is in no stage: where it
is most of it, the lines are by collective, else it is a line beside them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.collectives import on_record, transfers
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.metrics.sharing import Sharing, sharing_in, walls
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.core.columns import Column, members_by, take, total
from pytest_nsys.core.conventions import NO_STAGE, UNKNOWN
from pytest_nsys.core.exact import exact, median
from pytest_nsys.core.families import OTHER_KIND, kind_of, short_name
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Label, Value


@dataclass(frozen=True, slots=True)
class Communicated:
    """Holds the communication of one name on the rank that exposes it longest; what is not known is None."""

    name: str
    rank: int
    ns: Value  # sums kernels
    exposed_ns: Value  # without compute beside it
    overlap: Value | None
    busbw: Value | None = None  # median bandwidth of the links in GB/s


@dataclass(frozen=True, slots=True)
class RunCommunication:
    """Holds all communication of a run, the longest exposed first."""

    by: str  # ``stage`` or ``collective``
    sharing: Sharing
    each: tuple[Communicated, ...]
    whole: Communicated | None  # of all names, by the metrics that ``sharing`` calls for; None: there is none
    why: str = ""  # why there is none

    @property
    def every(self) -> tuple[Communicated, ...]:
        """The total, and its parts."""
        return self.each if self.whole is None else (self.whole, *self.each)

    @property
    def shared(self) -> bool:
        """Whether the figures count what shares streams with compute, as the metrics ``…_all`` do."""
        return self.sharing.counts


def communication_of(
    captures: Captures, spec: WindowSpec, windows: Mapping[int, Sequence[RankWindow]]
) -> RunCommunication:
    """Measure the communication in the windows of each rank."""
    all_windows = [window for rank_windows in windows.values() for window in rank_windows]
    sharing = sharing_in(all_windows)
    if not sharing.of:
        return RunCommunication("collective", sharing, (), None, sharing.why_not_in_own)

    def read_rows(name: str) -> _Rows:
        return {row.labels: row.value for row in captures.rows(METRICS[name], spec, frozenset(windows)).rows}

    counts_shared, is_by_stage = (
        sharing.counts,
        any(labels[1] != NO_STAGE for labels in read_rows(_BY_STAGE[0])) and not sharing.mostly,
    )
    exposed, overlap = map(read_rows, walls(sharing))
    sums = {
        n: [total(take(w.durations_ns, _members(w, counts_shared))) for w in rank_windows]
        for n, rank_windows in windows.items()
    }
    whole = [
        Communicated("all", int(str(labels[0])), median(sums[int(str(labels[0]))]), ns, overlap.get(labels))
        for labels, ns in exposed.items()
    ]
    parts = list(_stages(*map(read_rows, _BY_STAGE)) if is_by_stage else _collectives(windows, shared=counts_shared))
    parts += _on_compute_streams(windows) if is_by_stage and counts_shared else ()
    if not whole:
        return RunCommunication("collective", sharing, (), None, "the communication kernels of the window take no time")
    return RunCommunication(
        "stage" if is_by_stage else "collective", sharing, tuple(_worst(parts)), next(_worst(whole))
    )


SHARED_NAME = "on compute streams"
_BY_STAGE = ("comm_ns", "exposed_ns", "overlap")


def _members(window: RankWindow, shared: bool) -> Column:
    return window.all_communication if shared else window.communication


def _worst(each: Sequence[Communicated]) -> Iterator[Communicated]:
    """Yield for each name the figures of the rank that exposes it longest, the longest exposed first."""
    worst_by_name = [
        max(same_name, key=_exposure) for same_name in grouped((item.name, item) for item in each).values()
    ]
    yield from sorted(worst_by_name, key=_exposure, reverse=True)


def _exposure(one: Communicated) -> tuple[Value, Value, int]:
    return one.exposed_ns, one.ns, -one.rank


_Rows = Mapping[tuple[Label, ...], Value]


def _stages(length: _Rows, exposed: _Rows, overlap: _Rows) -> Iterator[Communicated]:
    for labels, ns in length.items():
        rank, stage = labels
        yield Communicated(str(stage), int(str(rank)), ns, exposed[labels], overlap.get(labels))


def _on_compute_streams(windows: Mapping[int, Sequence[RankWindow]]) -> Iterator[Communicated]:
    """Yield for each rank the communication on streams that compute, too."""
    for number, rank_windows in windows.items():
        if any(len(window.barriers) for window in rank_windows):
            run_times = [window.time_of(window.barriers) for window in rank_windows]
            exposed = [
                time.total_ns - time.common_ns(w.compute_time) for time, w in zip(run_times, rank_windows, strict=True)
            ]
            lengths = [total(take(window.durations_ns, window.barriers)) for window in rank_windows]
            share = (
                exact(1 - Fraction(sum(exposed), wall)) if (wall := sum(time.total_ns for time in run_times)) else None
            )
            yield Communicated(SHARED_NAME, number, median(lengths), median(exposed), share)


def _collectives(windows: Mapping[int, Sequence[RankWindow]], *, shared: bool) -> Iterator[Communicated]:
    """Yield figures by process group and kind, as the metrics of collectives have them."""
    for number, rank_windows in windows.items():
        window_figures = [dict(_exposed(window, shared=shared)) for window in rank_windows]
        for labels in dict.fromkeys(labels for figures in window_figures for labels in figures):
            lengths, exposed, walls = zip(*(figures.get(labels, (0, 0, 0)) for figures in window_figures), strict=True)
            wall, group, kind = sum(walls), *labels
            speeds = [
                speed
                for window in rank_windows
                if (transfer := transfers(window).get(labels))
                for speed in transfer.bus_gb_per_s
            ]
            yield Communicated(
                kind if group == UNKNOWN else f"{kind} ({group})",
                number,
                median([*lengths]),
                median([*exposed]),
                exact(1 - Fraction(sum(exposed), wall)) if wall else None,
                exact(Fraction(median(speeds))) if speeds else None,
            )


def _exposed(window: RankWindow, *, shared: bool) -> Iterator[tuple[tuple[str, str], tuple[int, int, int]]]:
    """Yield by group and kind Σ length of the kernels, the time without compute, and the time that any of them ran, in
    ns.
    """
    members = {*_members(window, shared)}
    labels_by_index = {t.index: (t.group, t.kind) for t in on_record(window)} if window.track.collectives else {}
    indices_by_labels: dict[tuple[str, str], list[int]] = grouped(
        (labels, i) for i, labels in labels_by_index.items() if i in members
    )
    names, rest = window.kernels.names, array("q", sorted(members - labels_by_index.keys()))
    rest_by_kind = members_by(lambda name: _kind(names[name]), window.kernels.name, among=rest)
    for kind, indices in rest_by_kind.items():
        indices_by_labels.setdefault((UNKNOWN, kind), []).extend(indices)
    for labels, kernel_indices in indices_by_labels.items():
        sorted_indices = array("q", sorted(kernel_indices))
        run_time = window.time_of(sorted_indices)
        exposed = run_time.total_ns - run_time.common_ns(window.compute_time)
        yield labels, (total(take(window.durations_ns, sorted_indices)), exposed, run_time.total_ns)


def _kind(name: str) -> str:
    """Return the collective that a kernel is, its own name where it is none that is known."""
    kind = kind_of(name)
    return short_name(name) if kind == OTHER_KIND else kind
