"""How much does a run communicate, how much of it is exposed, and how fast: by stage, or by collective where none has a
stage.

Each line is of the rank on which it is exposed longest. All of it together is what the metrics say that
:mod:`~pytest_nsys.analysis.metrics.sharing` chooses. What shares streams with compute is in no stage: where it is most
of it, the lines are by collective, else it is a line beside them.
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
    """Communication of one name on the rank that exposes it longest. ``ns`` sums kernels; ``exposed_ns`` is without
    compute. ``busbw`` is the median bandwidth of the links in GB/s; what is not known is None.
    """

    name: str
    rank: int
    ns: Value
    exposed_ns: Value
    overlap: Value | None
    busbw: Value | None = None


@dataclass(frozen=True, slots=True)
class RunCommunication:
    """All communication of a run, the longest exposed first. ``by`` is ``stage`` or ``collective``.

    ``whole`` is of all names together, by the metrics that ``sharing`` calls for; None where there is none, and
    ``why`` says why.
    """

    by: str
    sharing: Sharing
    each: tuple[Communicated, ...]
    whole: Communicated | None
    why: str = ""

    @property
    def every(self) -> tuple[Communicated, ...]:
        """The whole, and its parts."""
        return self.each if self.whole is None else (self.whole, *self.each)

    @property
    def shared(self) -> bool:
        """Whether the figures count what shares streams with compute, as the metrics ``…_all`` do."""
        return self.sharing.counts


def communication_of(
    captures: Captures, spec: WindowSpec, windows: Mapping[int, Sequence[RankWindow]]
) -> RunCommunication:
    """The communication in the windows of each rank."""
    every = [window for own in windows.values() for window in own]
    sharing = sharing_in(every)
    if not sharing.of:
        return RunCommunication("collective", sharing, (), None, sharing.why_not_in_own)

    def rows(name: str) -> _Rows:
        return {row.labels: row.value for row in captures.rows(METRICS[name], spec, frozenset(windows)).rows}

    shared, staged = sharing.counts, any(labels[1] != NO_STAGE for labels in rows(_BY_STAGE[0])) and not sharing.mostly
    exposed, overlap = map(rows, walls(sharing))
    sums = {n: [total(take(w.durations_ns, _members(w, shared))) for w in own] for n, own in windows.items()}
    whole = [
        Communicated("all", int(str(labels[0])), median(sums[int(str(labels[0]))]), ns, overlap.get(labels))
        for labels, ns in exposed.items()
    ]
    each = list(_stages(*map(rows, _BY_STAGE)) if staged else _collectives(windows, shared=shared))
    each += _on_compute_streams(windows) if staged and shared else ()
    if not whole:
        return RunCommunication("collective", sharing, (), None, "the communication kernels of the window take no time")
    return RunCommunication("stage" if staged else "collective", sharing, tuple(_worst(each)), next(_worst(whole)))


SHARED_NAME = "on compute streams"
_BY_STAGE = ("comm_ns", "exposed_ns", "overlap")


def _members(window: RankWindow, shared: bool) -> Column:
    return window.all_communication if shared else window.communication


def _worst(each: Sequence[Communicated]) -> Iterator[Communicated]:
    """Of each name the rank that exposes it longest, and these names in that order."""
    found = [max(own, key=_exposure) for own in grouped((one.name, one) for one in each).values()]
    yield from sorted(found, key=_exposure, reverse=True)


def _exposure(one: Communicated) -> tuple[Value, Value, int]:
    return one.exposed_ns, one.ns, -one.rank


_Rows = Mapping[tuple[Label, ...], Value]


def _stages(length: _Rows, exposed: _Rows, overlap: _Rows) -> Iterator[Communicated]:
    for labels, ns in length.items():
        rank, stage = labels
        yield Communicated(str(stage), int(str(rank)), ns, exposed[labels], overlap.get(labels))


def _on_compute_streams(windows: Mapping[int, Sequence[RankWindow]]) -> Iterator[Communicated]:
    for number, own in windows.items():
        if any(len(window.barriers) for window in own):
            ran = [window.time_of(window.barriers) for window in own]
            exposed = [time.total_ns - time.common_ns(w.compute_time) for time, w in zip(ran, own, strict=True)]
            lengths = [total(take(window.durations_ns, window.barriers)) for window in own]
            share = exact(1 - Fraction(sum(exposed), wall)) if (wall := sum(time.total_ns for time in ran)) else None
            yield Communicated(SHARED_NAME, number, median(lengths), median(exposed), share)


def _collectives(windows: Mapping[int, Sequence[RankWindow]], *, shared: bool) -> Iterator[Communicated]:
    """By process group and kind, as the metrics of collectives have them."""
    for number, own in windows.items():
        each = [dict(_exposed(window, shared=shared)) for window in own]
        for labels in dict.fromkeys(labels for one in each for labels in one):
            lengths, exposed, walls = zip(*(one.get(labels, (0, 0, 0)) for one in each), strict=True)
            wall, group, kind = sum(walls), *labels
            speeds = [
                speed for window in own if (found := transfers(window).get(labels)) for speed in found.bus_gb_per_s
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
    """By group and kind Σ length of the kernels, the time without compute, and the time that any of them ran."""
    members = {*_members(window, shared)}
    known = {t.index: (t.group, t.kind) for t in on_record(window)} if window.track.collectives else {}
    found: dict[tuple[str, str], list[int]] = grouped((own, i) for i, own in known.items() if i in members)
    names, rest = window.kernels.names, array("q", sorted(members - known.keys()))
    others = members_by(lambda name: _kind(names[name]), window.kernels.name, among=rest)
    for kind, indices in others.items():
        found.setdefault((UNKNOWN, kind), []).extend(indices)
    for labels, some in found.items():
        own = array("q", sorted(some))
        ran = window.time_of(own)
        exposed = ran.total_ns - ran.common_ns(window.compute_time)
        yield labels, (total(take(window.durations_ns, own)), exposed, ran.total_ns)


def _kind(name: str) -> str:
    """The collective that a kernel is, its own name where it is none that is known."""
    kind = kind_of(name)
    return short_name(name) if kind == OTHER_KIND else kind
