"""The times without compute of one window as plain data to draw: each part by its class, and who waited for whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, TypedDict

from pytest_nsys.analysis.blocking import Gap, Hold, Producer, budget_of
from pytest_nsys.analysis.budget_facts import BLOCKED, Part
from pytest_nsys.analysis.gpu_state import device_of
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Stream

PARTS = tuple(Part)
NOBODY = -1
Numbered = Callable[[str], int]
"""The number of a text among those of the timeline."""


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


class GapPart(NamedTuple):
    """One part of a gap, or ``number`` of one class that are too short to be told apart, which have no one ``gap``.
    ``hold``: what ran in it that was waited for.
    """

    start: int
    end: int
    part: Part
    number: int = 1
    gap: Gap | None = None
    hold: Hold | None = None


def parts_of_gaps(w: RankWindow) -> Iterator[GapPart]:
    """The parts of each gap that are any time, by start: as long together as those of ``parts_of``.

    Raises NoRows where the window has no budget.
    """
    communication = device_of(w).communication
    for gap in budget_of(w).each():
        if gap.issued_ns > gap.start_ns:
            yield GapPart(gap.start_ns, gap.issued_ns, Part.STARVED, gap=gap)
        at = gap.issued_ns
        for hold in gap.holds:
            yield from _stalled(at, hold.start_ns, communication, gap)
            yield GapPart(hold.start_ns, hold.end_ns, BLOCKED[hold.producer.kind], gap=gap, hold=hold)
            at = hold.end_ns
        yield from _stalled(at, gap.end_ns, communication, gap)


def _stalled(at: int, end_ns: int, communication: Intervals, gap: Gap) -> Iterator[GapPart]:
    """What of a gap nothing held up, by whether communication ran."""
    for start, end in (*communication.uncovered(at, end_ns), (end_ns, end_ns)):
        if start > at:
            yield GapPart(at, start, Part.BESIDE, gap=gap)
        if end > start:
            yield GapPart(start, end, Part.STALLED, gap=gap)
        at = end


def in_cells(parts: Iterable[GapPart], cell_ns: int) -> Iterator[GapPart]:
    """Of many parts those shorter than a cell as one for each class that starts in it, which takes as long as they did
    together and lies where they lay: no class is drawn for longer than it was.
    """
    for _, near in groupby(parts, lambda part: part.start // cell_ns):
        cell = list(near)
        short = [part for part in cell if part.end - part.start < cell_ns]
        if len(short) < 2:
            yield from cell
            continue
        at = short[0].start
        for kind, own in sorted(grouped((part.part, part) for part in short).items()):
            length = sum(part.end - part.start for part in own)
            one = own[0] if len(own) == 1 else GapPart(at, at, kind)
            yield GapPart(at, at + length, kind, len(own), one.gap, one.hold)
            at += length
        yield from cell[len(short) :]  # a longer one reaches beyond the cell: it is the last that starts here


def gaps_of(
    w: RankWindow, parts: Sequence[GapPart], lanes: Mapping[Stream, int], copies: int, words: tuple[Numbered, Numbered]
) -> TimelineGaps:
    """The parts as columns. ``lanes`` numbers the lane of each stream, ``copies`` is that of copies and memsets."""
    own = w.kernels
    started = {(own.start_ns[i], own.names[own.name[i]]): own.streams[own.stream[i]] for i in w.compute}
    names, stages = words

    def who(gap: Gap, by: Producer | None) -> Iterator[int]:
        waiting = None if gap.waiting is None else (gap.waiting, gap.waiting_stage)
        for pair in (waiting, None if by is None else (by.name, by.stage)):
            yield from (NOBODY, NOBODY) if pair is None else (names(pair[0]), stages(pair[1]))

    def arrow(gap: Gap, hold: Hold) -> list[int] | None:
        if gap.waiting_start_ns is None or gap.waiting is None:
            return None
        by = hold.producer
        begin = copies if by.kind in ("copy", "memset") else lanes.get(by.stream)
        waiting = started.get((gap.waiting_start_ns, gap.waiting))
        if begin is None or waiting is None:
            return None
        return [begin, hold.producer_end_ns - w.start_ns, lanes[waiting], gap.waiting_start_ns - w.start_ns]

    known = [(i, part.gap, part.hold) for i, part in enumerate(parts) if part.gap is not None]
    arrows = {i: arrow(gap, hold) for i, gap, hold in known if hold is not None}
    return TimelineGaps(
        starts=[part.start - w.start_ns for part in parts],
        lengths=[part.end - part.start for part in parts],
        parts=[PARTS.index(part.part) for part in parts],
        counts={i: part.number for i, part in enumerate(parts) if part.number > 1},
        waits={i: list(who(gap, None if hold is None else hold.producer)) for i, gap, hold in known},
        arrows={i: found for i, found in arrows.items() if found is not None},
    )
