"""One window of one rank as plain data to draw: a lane for each stream, what of it is exposed, the stages on top.

Times are nanoseconds since the window's start on the GPU. Of many kernels those that are too short to be told apart are
taken together; the totals of a lane are always of all of its kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Literal, NamedTuple, TypedDict

from pytest_nsys.analysis.budget import GapPart, budget_of, facts_of
from pytest_nsys.analysis.budget_facts import BudgetFacts, Part
from pytest_nsys.analysis.common_clock import ALONE, ClockStanding
from pytest_nsys.analysis.rank_window import RankWindow, StreamUse
from pytest_nsys.core.columns import Column, take, total
from pytest_nsys.core.conventions import COMPUTE, NO_STAGE
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.families import OTHER, classifier
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.kept import grouped
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
"""Of more kernels only those that communicate are asked for their stage: it takes a read of every launch."""

LONGEST_NAME = 120


PARTS = tuple(Part)
NOBODY = -1

LaneKind = Literal["compute", "communication", "copies"]


class TimelineLane(TypedDict):
    """One stream, or the copies and memsets of all; ``kind``: what runs on it. ``starts`` to ``barriers`` are parallel,
    by start; ``count`` is how many kernels a bar stands for.

    ``exposed`` are (start, end); ``names`` and ``stages`` index those of the timeline, ``names`` its families too.
    """

    name: str
    purpose: str
    kind: LaneKind
    kernels: int
    busy_ns: int
    exposed_ns: int
    starts: list[int]
    lengths: list[int]
    counts: list[int]
    names: list[int]
    stages: list[int]
    exposed_each: list[int]
    barriers: list[int]
    exposed: list[list[int]]


class TimelineGaps(TypedDict):
    """Parallel columns, by start; ``parts`` index ``PARTS``. By the index of one that stands for several: ``counts``;
    of one that stands for itself: ``waits``, as (waiting kernel, its stage, producer, its stage), by the names and the
    stages of the timeline, -1 for nobody, and ``arrows``, as (lane of the producer, its end, lane of who waited, its
    start), where both are drawn.
    """

    starts: list[int]
    lengths: list[int]
    parts: list[int]
    counts: dict[int, int]
    waits: dict[int, list[int]]
    arrows: dict[int, list[int]]


class Timeline(TypedDict):
    """One window. ``bands`` are (start, length, stage): what the compute in it was launched for.

    ``began_ns`` is when it began on the clock of the first rank, None where it is unknown; ``clock`` says how well that
    is known, ``clock_error_ns`` by how much it may be wrong, None where it is unknown.

    ``budget`` is None where it has none, and ``budget_why`` says why; ``gaps`` are the times without compute.
    """

    rank: int
    place: str
    window: str
    measured: str
    length_ns: int
    began_ns: int | None
    clock: str
    clock_error_ns: int | None
    kernels: int
    taken_together: int
    names: list[str]
    families: list[str]
    stages: list[str]
    bands: list[list[int]]
    lanes: list[TimelineLane]
    budget: BudgetFacts | None
    budget_why: str
    gaps: TimelineGaps | None


class NamedStream(NamedTuple):
    """A stream as people read it: ``stream 28``, with device and context where two streams share the number."""

    name: str
    use: StreamUse

    @property
    def computes(self) -> bool:
        return self.use.purpose == COMPUTE


def in_order(uses: Iterable[StreamUse]) -> list[NamedStream]:
    """The streams with their names, those that compute first."""
    known = sorted(uses, key=lambda use: (use.purpose != COMPUTE, use.stream))
    labels = stream_labels(use.stream for use in known)
    return [NamedStream(f"stream {labels[use.stream]}", use) for use in known]


def exposed_parts(w: RankWindow) -> Iterator[tuple[int, Interval]]:
    """The parts of each communication kernel during which no compute ran, with its index in the window.

    Their lengths sum to ``exposed_ns``.
    """
    for i, (start, end) in zip(w.communication, w.spans(w.communication), strict=True):
        for gap in w.compute_time.uncovered(start, end):
            yield i, gap


class _Bar(NamedTuple):
    start: int
    end: int
    kernels: int
    name: str
    stage: str
    exposed: int
    barrier: bool
    family: str = OTHER


class _Words:
    """Texts by number, in the order of their first use; kernels of two families may share a name."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], int] = {}

    def __call__(self, text: str, family: str = OTHER) -> int:
        return self.numbers.setdefault((printable(text, LONGEST_NAME), family), len(self.numbers))


def timeline_of(w: RankWindow, standing: ClockStanding = ALONE) -> Timeline:
    """The window as plain data; ``standing`` says where its clock stands beside those of other ranks."""
    names, stages = _Words(), _Words()
    own = w.window
    nth = f", {own.index + 1} of {own.count}" if own.index is not None else ""
    gaps = grouped((i, (start - w.start_ns, end - w.start_ns)) for i, (start, end) in exposed_parts(w))
    bands = [[start, end - start, stages(stage)] for start, end, stage in _bands(w)]
    streams = in_order(w.streams)
    lanes = [_lane(w, named, w.by_stream[named.use.stream], gaps, (names, stages)) for named in streams]
    numbers = {named.use.stream: number for number, named in enumerate(streams)}
    copies = len(lanes)
    lanes += _copies(w, (names, stages))
    facts, why, idle = _budget(w, numbers, copies, (names, stages))
    return Timeline(
        rank=w.rank.number,
        place=" ".join(f"{axis}={at}" for axis, at in w.rank.coordinates.items()),
        window=printable(own.name) + nth,
        measured=str(w.spec),
        length_ns=max(w.length_ns, 1),
        began_ns=None if standing.ahead_ns is None else w.start_ns - standing.ahead_ns,
        clock=standing.words,
        clock_error_ns=standing.error_ns,
        kernels=len(w),
        taken_together=sum(count for lane in lanes for count in lane["counts"] if count > 1),
        names=[name for name, _ in names.numbers],
        families=[family for _, family in names.numbers],
        stages=[stage for stage, _ in stages.numbers],
        bands=bands,
        lanes=lanes,
        budget=facts,
        budget_why=why,
        gaps=idle,
    )


def _budget(
    w: RankWindow, lanes: Mapping[Stream, int], copies: int, words: tuple[_Words, _Words]
) -> tuple[BudgetFacts | None, str, TimelineGaps | None]:
    """The budget of the window and its gaps, or why there are none."""
    try:
        facts = facts_of(budget_of(w))
    except NoRows as nothing:
        return None, printable(str(nothing), 400), None
    parts = [(part, 1) for part in budget_of(w).each()]
    if len(parts) > MANY_KERNELS:
        parts = list(in_cells(parts, w.length_ns // GAP_CELLS))
    return facts, "", _gaps(w, parts, lanes, copies, words)


Counted = tuple[GapPart, int]
"""One part of a gap, or so many of one class that are too short to be told apart, of which no kernel is told."""


def in_cells(parts: Iterable[Counted], cell_ns: int) -> Iterator[Counted]:
    """Of many parts those shorter than a cell as one for each class that starts in it, which takes as long as they did
    together and lies where they lay: no class is drawn for longer than it was.
    """
    for _, near in groupby(parts, lambda each: each[0].start_ns // cell_ns):
        cell = list(near)
        short = [part for part, _ in cell if part.end_ns - part.start_ns < cell_ns]
        if len(short) < 2:
            yield from cell
            continue
        at = short[0].start_ns
        for kind, own in sorted(grouped((part.part, part) for part in short).items()):
            end = at + sum(part.end_ns - part.start_ns for part in own)
            one = own[0]._replace(start_ns=at, end_ns=end) if len(own) == 1 else GapPart(at, end, kind)
            yield one, len(own)
            at = end
        yield from cell[len(short) :]  # a longer one reaches beyond the cell: it is the last that starts here


def _gaps(
    w: RankWindow, parts: Sequence[Counted], lanes: Mapping[Stream, int], copies: int, words: tuple[_Words, _Words]
) -> TimelineGaps:
    """The parts as columns. ``lanes`` numbers the lane of each stream, ``copies`` is that of copies and memsets."""
    streams = w.kernels.streams
    drawn = {(w.kernels.start_ns[i], streams[w.kernels.stream[i]]) for i in w.compute}
    names, stages = words

    def who(part: GapPart) -> list[int]:
        found = (part.waiting, part.producer)
        return [n for one in found for n in ((NOBODY, NOBODY) if one is None else (names(one.name), stages(one.stage)))]

    def arrow(part: GapPart) -> list[int] | None:
        by, waiting = part.producer, part.waiting
        if by is None or waiting is None or (waiting.start_ns, waiting.stream) not in drawn:
            return None
        begin = copies if by.kind in ("copy", "memset") else lanes.get(by.stream)
        if begin is None:
            return None
        return [begin, by.end_ns - w.start_ns, lanes[waiting.stream], waiting.start_ns - w.start_ns]

    alone = [(i, part) for i, (part, number) in enumerate(parts) if number == 1]
    return TimelineGaps(
        starts=[part.start_ns - w.start_ns for part, _ in parts],
        lengths=[part.end_ns - part.start_ns for part, _ in parts],
        parts=[PARTS.index(part.part) for part, _ in parts],
        counts={i: number for i, (_, number) in enumerate(parts) if number > 1},
        waits={i: who(part) for i, part in alone},
        arrows={i: found for i, part in alone if (found := arrow(part)) is not None},
    )


def _lane(
    w: RankWindow,
    named: NamedStream,
    members: Column,
    gaps: dict[int, list[Interval]],
    words: tuple[_Words, _Words],
) -> TimelineLane:
    bars = _bars(w, members)
    if len(w) > MANY_KERNELS:
        bars = list(_together(bars, w.length_ns // CELLS))
    use = named.use
    lane = _drawn(named.name, use.purpose, "compute" if named.computes else "communication", bars, words)
    lane["kernels"], lane["busy_ns"] = len(members), use.communication_ns + use.compute_ns
    lane["exposed_ns"] = total(take(w.exposed_ns, members))
    lane["exposed"] = [[*span] for span in Intervals.of(gap for i in members for gap in gaps.get(i, ()))]
    return lane


def _drawn(name: str, purpose: str, kind: LaneKind, bars: Sequence[_Bar], words: tuple[_Words, _Words]) -> TimelineLane:
    """A lane of bars, of which nothing is exposed; none of them overlaps another."""
    return TimelineLane(
        name=name,
        purpose=printable(purpose),
        kind=kind,
        kernels=sum(bar.kernels for bar in bars),
        busy_ns=sum(bar.end - bar.start for bar in bars),
        exposed_ns=0,
        starts=[bar.start for bar in bars],
        lengths=[bar.end - bar.start for bar in bars],
        counts=[bar.kernels for bar in bars],
        names=[words[0](bar.name, bar.family) for bar in bars],
        stages=[words[1](bar.stage) for bar in bars],
        exposed_each=[bar.exposed for bar in bars],
        barriers=[int(bar.barrier) for bar in bars],
        exposed=[],
    )


def _copies(w: RankWindow, words: tuple[_Words, _Words]) -> Iterator[TimelineLane]:
    """The copies and memsets that ran in the window, whatever their stream, as one lane; nothing where none did."""
    some = w.track.on_gpu.transfers or NO_KERNELS
    own = [i for i in range(len(some)) if some.start_ns[i] < w.end_ns and some.end_ns[i] > w.start_ns]
    if not own:
        return
    cut = some.take(own).cut(w.start_ns, w.end_ns)
    bars = [
        _Bar(start - w.start_ns, end - w.start_ns, 1, cut.names[name], NO_STAGE, 0, False)
        for start, end, name in zip(cut.start_ns, cut.end_ns, cut.name, strict=True)
    ]
    busy_ns = sum(bar.end - bar.start for bar in bars)
    if len(bars) > MANY_KERNELS:
        bars = list(_together(bars, w.length_ns // CELLS, attrgetter("name"), "short transfer"))
    lane = _drawn("copies", "memsets too", "copies", bars, words)
    lane["busy_ns"] = busy_ns
    yield lane


_classifier = lru_cache(maxsize=4)(classifier)


def _bars(w: RankWindow, members: Sequence[int]) -> list[_Bar]:
    kernels, barriers = w.kernels, set(w.barriers)
    family_of, names = _classifier(w.track.convention.families), kernels.names
    return [
        _Bar(
            kernels.start_ns[i] - w.start_ns,
            kernels.end_ns[i] - w.start_ns,
            1,
            kernels.names[kernels.name[i]],
            _stage(w, i),
            w.exposed_ns[i],
            i in barriers,
            family_of(names[kernels.name[i]], names.get(kernels.full_name[i], "")),
        )
        for i in members
    ]


def _stage(w: RankWindow, i: int) -> str:
    return w.context(i)[0] if w.communicates[i] or len(w) <= MOST_STAGED else NO_STAGE


def _together(
    bars: Sequence[_Bar],
    cell_ns: int,
    kind: Callable[[_Bar], object] = attrgetter("barrier"),
    noun: str = "short kernel",
) -> Iterator[_Bar]:
    """Neighbours of one ``kind`` that are too short to be told apart as one bar."""
    group: list[_Bar] = []
    for bar in bars:
        short = bar.end - bar.start < cell_ns
        if group and not (short and bar.start - group[-1].end < cell_ns and kind(bar) == kind(group[-1])):
            yield _one(group, noun)
            group = []
        if short:
            group.append(bar)
        else:
            yield bar
    if group:
        yield _one(group, noun)


def _one(group: Sequence[_Bar], noun: str) -> _Bar:
    if len(group) == 1:
        return group[0]
    stages, families = {bar.stage for bar in group}, {bar.family for bar in group}
    return group[0]._replace(
        end=max(bar.end for bar in group),
        kernels=len(group),
        name=counted(len(group), noun),
        stage=stages.pop() if len(stages) == 1 else NO_STAGE,
        exposed=sum(bar.exposed for bar in group),
        family=families.pop() if len(families) == 1 else OTHER,
    )


def _bands(w: RankWindow) -> Iterator[tuple[int, int, str]]:
    """(start, end, stage) of each run of compute kernels that were launched for one stage, the windows's start at 0.

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
            yield start - w.start_ns, end - w.start_ns, stage
