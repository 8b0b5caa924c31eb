"""One window of one rank to draw: a lane for each stream, what of it is exposed, why no compute runs, the stages.

Of many kernels those that are too short to be told apart are taken together; the totals of a lane are always of all of
its kernels. Nothing here needs the trace: it crosses from an xdist worker with the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Literal, NamedTuple, TypeVar

from pytest_nsys.analysis.budget.budget import GapPart, facts_of, find_budgets
from pytest_nsys.analysis.budget.operations import Operation
from pytest_nsys.analysis.budget.surroundings import kind_of_transfer
from pytest_nsys.analysis.explain.budget_lines import BudgetFacts
from pytest_nsys.analysis.metrics.common_clock import ALONE, ClockStanding
from pytest_nsys.analysis.windows.rank_window import RankWindow, StreamUse
from pytest_nsys.core.columns import take, total
from pytest_nsys.core.conventions import COMPUTE, NO_STAGE, UNKNOWN
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.families import OTHER, OTHER_KIND, classifier, kind_of
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.kernel_names import readable_names, telling_name
from pytest_nsys.core.model import Interval, Stream, stream_labels
from pytest_nsys.core.tables import NO_KERNELS
from pytest_nsys.core.words import counted, printable

MANY_KERNELS = 1_000
"""From so many on, short ones are taken together."""

CELLS = 1_000
"""What is shorter than the window by this factor, and as near to its neighbour, is too short to be told apart."""

GAP_CELLS = 500
"""The same of gaps: of each class that starts in a cell there is one."""

MOST_STAGED = 100_000
"""Of more kernels only those that communicate are asked for their stage: it takes a look for each."""

LONGEST_NAME = 120
MOST_CARRIED = 3


LaneKind = Literal["compute", "communication", "copies"]


class Bar(NamedTuple):
    """One kernel or transfer, or so many ``kernels`` that are too short to be told apart. ``name`` is what a person
    calls the kernel, ``telling`` what it is known by in two runs.
    """

    start_ns: int
    end_ns: int
    name: str
    stage: str = NO_STAGE
    family: str = OTHER
    kernels: int = 1
    exposed_ns: int = 0
    is_barrier: bool = False
    telling: str = ""


class TimelineLane(NamedTuple):
    """One stream, or the copies and memsets of all; ``kind``: what runs on it. Its bars stand by start, and none
    overlaps another. ``exposed`` is when it was, in all ``exposed_ns``.
    """

    name: str
    purpose: str
    kind: LaneKind
    kernels: int
    busy_ns: int
    bars: Sequence[Bar]
    exposed_ns: int = 0
    exposed: Sequence[Interval] = ()


class DrawnGap(NamedTuple):
    """One part of a gap, or so many of one class that are too short to be told apart, of which no kernel is told.
    ``arrow`` goes from the lane of what was waited for to that of who waited, where both are drawn.
    """

    part: GapPart
    number: int = 1
    arrow: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """One window, from ``start_ns`` on. ``bands`` are (start, end, stage): what the compute in it was launched for.

    ``began_ns`` is when it began on the clock of the first rank, None where it is unknown; ``clock`` says how well that
    is known, ``clock_error_ns`` by how much it may be wrong, None where it is unknown.

    ``budget`` is None where it has none, and ``budget_why`` says why; ``gaps`` are the times without compute, by start.
    """

    place: str
    window: str
    measured: str
    start_ns: int
    length_ns: int
    began_ns: int | None
    clock: str
    clock_error_ns: int | None
    kernels: int
    bands: Sequence[tuple[int, int, str]]
    lanes: Sequence[TimelineLane]
    budget: BudgetFacts | None = None
    budget_why: str = ""
    gaps: Sequence[DrawnGap] = ()


def in_order(uses: Iterable[StreamUse]) -> list[tuple[str, StreamUse]]:
    """The streams as people read them, those that compute first: ``stream 28``, with device and context where two
    streams share the number.
    """
    known = sorted(uses, key=lambda use: (use.purpose != COMPUTE, use.stream))
    labels = stream_labels(use.stream for use in known)
    return [(f"stream {labels[use.stream]}", use) for use in known]


def exposed_parts(w: RankWindow) -> Iterator[tuple[int, Interval]]:
    """The parts of each communication kernel during which no compute ran, with its index in the window.

    Their lengths sum to ``exposed_ns``.
    """
    for i, (start, end) in zip(w.communication, w.spans(w.communication), strict=True):
        for gap in w.compute_time.uncovered(start, end):
            yield i, gap


def timeline_of(w: RankWindow, standing: ClockStanding = ALONE) -> Timeline:
    """The window; ``standing`` says where its clock stands beside those of other ranks."""
    own = w.window
    nth = f", window {own.index + 1} of {own.count}" if own.index is not None else ""
    streams, exposed, budget = in_order(w.streams), grouped(exposed_parts(w)), find_budgets({0: [w]})[0]
    gaps = () if isinstance(budget, NoRows) else [*budget.each()]
    whole = w.whole_names | {each.name for gap in gaps for each in (gap.waiting, gap.producer) if each is not None}
    called = readable_names(sorted(whole))
    lanes = [*(_lane(w, name, use, exposed, called) for name, use in streams), *_copies(w)]
    found = Timeline(
        place=" ".join(f"{axis}={at}" for axis, at in w.rank.coordinates.items()),
        window=printable(own.name) + nth,
        measured=str(w.spec),
        start_ns=w.start_ns,
        length_ns=max(w.length_ns, 1),
        began_ns=None if standing.ahead_ns is None else w.start_ns - standing.ahead_ns,
        clock=standing.words,
        clock_error_ns=standing.error_ns,
        kernels=len(w),
        bands=list(_bands(w)),
        lanes=lanes,
    )
    if isinstance(budget, NoRows):
        return replace(found, budget_why=printable(str(budget), 400))
    parts = [DrawnGap(gap) for gap in gaps]
    if len(parts) > MANY_KERNELS:
        parts = list(in_cells(parts, w.length_ns // GAP_CELLS))
    numbers = {use.stream: number for number, (_, use) in enumerate(streams)}
    return replace(found, budget=facts_of(budget), gaps=list(_drawn(w, parts, numbers, called)))


def in_cells(gaps: Iterable[DrawnGap], cell_ns: int) -> Iterator[DrawnGap]:
    """Of many parts those shorter than a cell as one for each class that starts in it, which takes as long as they did
    together and lies where they lay: no class is drawn for longer than it was.
    """
    for _, near in groupby(gaps, lambda gap: gap.part.start_ns // cell_ns):
        cell = list(near)
        short = [part for part, *_ in cell if part.end_ns - part.start_ns < cell_ns]
        if len(short) < 2:
            yield from cell
            continue
        at = short[0].start_ns
        for kind, own in sorted(grouped((part.part, part) for part in short).items()):
            end = at + sum(part.end_ns - part.start_ns for part in own)
            one = own[0] if len(own) == 1 else GapPart(at, end, kind)
            yield DrawnGap(one._replace(start_ns=at, end_ns=end), len(own))
            at = end
        yield from cell[len(short) :]  # a longer one reaches beyond the cell: it is the last that starts here


Named = TypeVar("Named", Bar, Operation)


def _named(one: Named) -> Named:
    """With names as a page may show them."""
    return one._replace(name=printable(one.name, LONGEST_NAME), stage=printable(one.stage, LONGEST_NAME))


def _drawn(
    w: RankWindow, gaps: Iterable[DrawnGap], lanes: Mapping[Stream, int], called: Mapping[str, str]
) -> Iterator[DrawnGap]:
    """The gaps with arrows, and kernels by what they are ``called``; ``lanes`` numbers the lane of each stream, and
    copies and memsets come after these.
    """
    streams = w.kernels.streams
    drawn = {(w.kernels.start_ns[i], streams[w.kernels.stream[i]]) for i in w.compute}

    for part, number, _ in gaps:
        by, waiting, arrow = part.producer, part.waiting, None
        if by is not None and waiting is not None and (waiting.start_ns, waiting.stream) in drawn:
            begin = len(lanes) if by.kind in ("copy", "memset") else lanes.get(by.stream)
            arrow = None if begin is None else (begin, lanes[waiting.stream])
        waiting, by = (each and _named(each._replace(name=called[each.name])) for each in (waiting, by))
        part = part._replace(waiting=waiting, producer=by)
        yield DrawnGap(part, number, arrow)


def _lane(
    w: RankWindow, name: str, use: StreamUse, exposed: Mapping[int, Sequence[Interval]], called: Mapping[str, str]
) -> TimelineLane:
    members = w.by_stream[use.stream]
    bars = _bars(w, members, called)
    if len(w) > MANY_KERNELS:
        bars = list(_together(bars, w.length_ns // CELLS))
    return TimelineLane(
        name=name,
        purpose=printable(_carried(bars) if use.purpose == UNKNOWN else use.purpose),
        kind="compute" if use.purpose == COMPUTE else "communication",
        kernels=len(members),
        busy_ns=use.communication_ns + use.compute_ns,
        bars=[_named(bar) for bar in bars],
        exposed_ns=total(take(w.exposed_ns, members)),
        exposed=list(Intervals.of(gap for i in members for gap in exposed.get(i, ()))),
    )


def _carried(bars: Iterable[Bar]) -> str:
    """What a stream of communication carries, by the kinds of its kernels, where its convention does not say."""
    kinds = dict.fromkeys(kind for bar in bars if (kind := kind_of(bar.name)) != OTHER_KIND)
    return ", ".join([*kinds][:MOST_CARRIED]) or UNKNOWN


def _copies(w: RankWindow) -> Iterator[TimelineLane]:
    """The copies and memsets that ran in the window, whatever their stream, as one lane; nothing where none did."""
    some = w.track.on_gpu.transfers or NO_KERNELS
    own = [i for i in range(len(some)) if some.start_ns[i] < w.end_ns and some.end_ns[i] > w.start_ns]
    if not own:
        return
    cut = some.take(own).cut(w.start_ns, w.end_ns)
    names = [cut.names[name] for name in cut.name]
    kind = kind_of_transfer(w)
    starts = [some.start_ns[i] for i in own]
    bars = [
        Bar(start, end, name, telling=kind(name, at))
        for start, end, name, at in zip(cut.start_ns, cut.end_ns, names, starts, strict=True)
    ]
    busy_ns = sum(bar.end_ns - bar.start_ns for bar in bars)
    if len(bars) > MANY_KERNELS:
        bars = list(_together(bars, w.length_ns // CELLS, attrgetter("name"), "short transfer"))
    yield TimelineLane("copies", "and memsets", "copies", len(own), busy_ns, bars)


def _bars(w: RankWindow, members: Sequence[int], called: Mapping[str, str]) -> list[Bar]:
    kernels, barriers, names = w.kernels, set(w.barriers), w.kernels.names
    family_of = classifier(w.track.convention.families)
    each = ((i, names[kernels.name[i]], names.get(kernels.full_name[i], "")) for i in members)
    return [
        Bar(
            start_ns=kernels.start_ns[i],
            end_ns=kernels.end_ns[i],
            name=called[full or short],
            stage=_stage(w, i),
            family=family_of(short, full),
            exposed_ns=w.exposed_ns[i],
            is_barrier=i in barriers,
            telling=telling_name(full or short),
        )
        for i, short, full in each
    ]


def _stage(w: RankWindow, i: int) -> str:
    return w.context(i)[0] if w.communicates[i] or len(w) <= MOST_STAGED else NO_STAGE


def _together(
    bars: Sequence[Bar],
    cell_ns: int,
    kind: Callable[[Bar], object] = attrgetter("is_barrier"),
    noun: str = "short kernel",
) -> Iterator[Bar]:
    """Neighbours of one ``kind`` that are too short to be told apart as one bar."""
    group: list[Bar] = []
    for bar in bars:
        short = bar.end_ns - bar.start_ns < cell_ns
        if group and not (short and bar.start_ns - group[-1].end_ns < cell_ns and kind(bar) == kind(group[-1])):
            yield _one(group, noun)
            group = []
        if short:
            group.append(bar)
        else:
            yield bar
    if group:
        yield _one(group, noun)


def _one(group: Sequence[Bar], noun: str) -> Bar:
    if len(group) == 1:
        return group[0]
    stages, families = {bar.stage for bar in group}, {bar.family for bar in group}
    return group[0]._replace(
        end_ns=max(bar.end_ns for bar in group),
        kernels=len(group),
        name=counted(len(group), noun),
        telling="",
        stage=stages.pop() if len(stages) == 1 else NO_STAGE,
        exposed_ns=sum(bar.exposed_ns for bar in group),
        family=families.pop() if len(families) == 1 else OTHER,
    )


def _bands(w: RankWindow) -> Iterator[tuple[int, int, str]]:
    """(start, end, stage) of each run of compute kernels that were launched for one stage.

    A band ends where the next one begins. Nothing where no stage is known.
    """
    if len(w) > MOST_STAGED:
        return
    staged = [(w.kernels.start_ns[i], w.kernels.end_ns[i], w.context(i)[0]) for i in w.compute]
    runs: list[tuple[int, int, str]] = []
    for start, end, stage in staged:
        if runs and runs[-1][2] == stage:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]), stage)
        else:
            runs.append((start, end, stage))
    ends = [min(a[1], b[0]) for a, b in pairwise(runs)] + [run[1] for run in runs[-1:]]
    for (start, _, stage), end in zip(runs, ends, strict=True):
        if stage != NO_STAGE and end > start:
            yield start, end, printable(stage, LONGEST_NAME)
