"""How is one window of one rank drawn: a lane for each stream, what of it is exposed, why no compute runs, the stages?

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
"""From how many kernels on short ones are drawn as one."""

CELLS = 1_000
"""How many times shorter than the window a bar is, and as near to its neighbour, to be drawn with it as one."""

GAP_CELLS = 500
"""How many cells the window has for gaps: of each class that starts in a cell one is drawn."""

MOST_STAGED = 100_000  # the stage takes a look for each kernel
"""Up to how many kernels each is asked for its stage; of more only those that communicate."""

LONGEST_NAME = 120
MOST_CARRIED = 3


LaneKind = Literal["compute", "communication", "copies"]


class Bar(NamedTuple):
    """Describes one kernel or transfer, or several that are too short to be told apart."""

    start_ns: int
    end_ns: int
    name: str  # as people read it
    stage: str = NO_STAGE
    family: str = OTHER
    kernels: int = 1  # how many it stands for
    exposed_ns: int = 0
    is_barrier: bool = False
    telling: str = ""  # the name by which two runs know the kernel


class TimelineLane(NamedTuple):
    """Describes one stream, or the copies and memsets of all. Its bars stand by start, and none overlaps another."""

    name: str
    purpose: str
    kind: LaneKind  # what runs on it
    kernels: int  # all of them, also those that share a bar
    busy_ns: int
    bars: Sequence[Bar]
    exposed_ns: int = 0
    exposed: Sequence[Interval] = ()


class DrawnGap(NamedTuple):
    """Describes one part of a gap, or several of one class that are too short to be told apart, without a kernel."""

    part: GapPart
    number: int = 1  # how many parts it stands for
    # From the lane of what was waited for to the lane of what waited, where both are drawn.
    arrow: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Describes one window of one rank as it is drawn."""

    place: str  # the coordinates of its rank
    window: str  # the name of the range, and which of the rank's windows it is
    measured: str  # the spec that picked it
    start_ns: int
    length_ns: int
    began_ns: int | None  # when it began on the clock of the first rank, None where that is unknown
    clock: str  # how well that is known
    clock_error_ns: int | None  # by how much it may be wrong, None where that is unknown
    kernels: int
    bands: Sequence[tuple[int, int, str]]  # start, end, and the stage that the compute in it was launched for
    lanes: Sequence[TimelineLane]
    budget: BudgetFacts | None = None
    budget_why: str = ""  # why it has no budget
    gaps: Sequence[DrawnGap] = ()  # the times without compute, by start


def in_order(uses: Iterable[StreamUse]) -> list[tuple[str, StreamUse]]:
    """Return the streams as people read them with their names, those that compute first: ``stream 28``.

    Device and context are named where two streams share the number.
    """
    sorted_uses = sorted(uses, key=lambda use: (use.purpose != COMPUTE, use.stream))
    labels = stream_labels(use.stream for use in sorted_uses)
    return [(f"stream {labels[use.stream]}", use) for use in sorted_uses]


def exposed_parts(w: RankWindow) -> Iterator[tuple[int, Interval]]:
    """Yield the parts of each communication kernel during which no compute ran, with its index in the window.

    Their lengths sum to ``exposed_ns``.
    """
    for i, (start, end) in zip(w.communication, w.spans(w.communication), strict=True):
        for gap in w.compute_time.uncovered(start, end):
            yield i, gap


def timeline_of(w: RankWindow, standing: ClockStanding = ALONE) -> Timeline:
    """Build the drawing of a window; ``clock_standing`` says where its clock stands beside those of other ranks."""
    step = w.window
    index_text = f", window {step.index + 1} of {step.count}" if step.index is not None else ""
    streams, exposed, budget = in_order(w.streams), grouped(exposed_parts(w)), find_budgets({0: [w]})[0]
    gaps = () if isinstance(budget, NoRows) else [*budget.each()]
    full_names = w.whole_names | {
        operation.name for gap in gaps for operation in (gap.waiting, gap.producer) if operation is not None
    }
    readable = readable_names(sorted(full_names))
    lanes = [*(_lane(w, name, use, exposed, readable) for name, use in streams), *_copies(w)]
    timeline = Timeline(
        place=" ".join(f"{axis}={coordinate}" for axis, coordinate in w.rank.coordinates.items()),
        window=printable(step.name) + index_text,
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
        return replace(timeline, budget_why=printable(str(budget), 400))
    parts = [DrawnGap(gap) for gap in gaps]
    if len(parts) > MANY_KERNELS:
        parts = list(in_cells(parts, w.length_ns // GAP_CELLS))
    numbers = {use.stream: number for number, (_, use) in enumerate(streams)}
    return replace(timeline, budget=facts_of(budget), gaps=list(_drawn(w, parts, numbers, readable)))


def in_cells(gaps: Iterable[DrawnGap], cell_ns: int) -> Iterator[DrawnGap]:
    """Merge the parts that are shorter than a cell into one for each class that starts in it.

    It takes as long as they did together and lies where they lay: no class is drawn for longer than it was.
    """
    for _, cell_gaps in groupby(gaps, lambda gap: gap.part.start_ns // cell_ns):
        gaps_in_cell = list(cell_gaps)
        short_parts = [part for part, *_ in gaps_in_cell if part.end_ns - part.start_ns < cell_ns]
        if len(short_parts) < 2:
            yield from gaps_in_cell
            continue
        start_ns = short_parts[0].start_ns
        for kind, class_parts in sorted(grouped((part.part, part) for part in short_parts).items()):
            end_ns = start_ns + sum(part.end_ns - part.start_ns for part in class_parts)
            merged_part = class_parts[0] if len(class_parts) == 1 else GapPart(start_ns, end_ns, kind)
            yield DrawnGap(merged_part._replace(start_ns=start_ns, end_ns=end_ns), len(class_parts))
            start_ns = end_ns
        yield from gaps_in_cell[
            len(short_parts) :
        ]  # a longer one reaches beyond the cell: it is the last that starts here


Named = TypeVar("Named", Bar, Operation)


def _named(one: Named) -> Named:
    """Return an item with names as a page may show them."""
    return one._replace(name=printable(one.name, LONGEST_NAME), stage=printable(one.stage, LONGEST_NAME))


def _drawn(
    w: RankWindow, gaps: Iterable[DrawnGap], lanes: Mapping[Stream, int], called: Mapping[str, str]
) -> Iterator[DrawnGap]:
    """Yield the gaps with arrows and readable names of kernels.

    ``lanes`` numbers the lane of each stream; copies and memsets come after these.
    """
    streams = w.kernels.streams
    drawn_kernels = {(w.kernels.start_ns[i], streams[w.kernels.stream[i]]) for i in w.compute}

    for part, number, _ in gaps:
        producer, waiting_kernel, arrow = part.producer, part.waiting, None
        if (
            producer is not None
            and waiting_kernel is not None
            and (waiting_kernel.start_ns, waiting_kernel.stream) in drawn_kernels
        ):
            from_lane = len(lanes) if producer.kind in ("copy", "memset") else lanes.get(producer.stream)
            arrow = None if from_lane is None else (from_lane, lanes[waiting_kernel.stream])
        waiting_kernel, producer = (
            operation and _named(operation._replace(name=called[operation.name]))
            for operation in (waiting_kernel, producer)
        )
        part = part._replace(waiting=waiting_kernel, producer=producer)
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
    """Describe what a stream of communication carries, by the kinds of its kernels; its convention does not say it."""
    kinds = dict.fromkeys(kind for bar in bars if (kind := kind_of(bar.name)) != OTHER_KIND)
    return ", ".join([*kinds][:MOST_CARRIED]) or UNKNOWN


def _copies(w: RankWindow) -> Iterator[TimelineLane]:
    """Yield one lane with the copies and memsets that ran in the window, whatever their stream; none where none ran."""
    transfers = w.track.on_gpu.transfers or NO_KERNELS
    rows = [i for i in range(len(transfers)) if transfers.start_ns[i] < w.end_ns and transfers.end_ns[i] > w.start_ns]
    if not rows:
        return
    clipped = transfers.take(rows).cut(w.start_ns, w.end_ns)
    names = [clipped.names[name] for name in clipped.name]
    name_transfer = kind_of_transfer(w)
    starts = [transfers.start_ns[i] for i in rows]
    bars = [
        Bar(start, end, name, telling=name_transfer(name, start_ns))
        for start, end, name, start_ns in zip(clipped.start_ns, clipped.end_ns, names, starts, strict=True)
    ]
    busy_ns = sum(bar.end_ns - bar.start_ns for bar in bars)
    if len(bars) > MANY_KERNELS:
        bars = list(_together(bars, w.length_ns // CELLS, attrgetter("name"), "short transfer"))
    yield TimelineLane("copies", "and memsets", "copies", len(rows), busy_ns, bars)


def _bars(w: RankWindow, members: Sequence[int], called: Mapping[str, str]) -> list[Bar]:
    kernels, barriers, names = w.kernels, set(w.barriers), w.kernels.names
    family_of = classifier(w.track.convention.families)
    named_kernels = ((i, names[kernels.name[i]], names.get(kernels.full_name[i], "")) for i in members)
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
        for i, short, full in named_kernels
    ]


def _stage(w: RankWindow, i: int) -> str:
    return w.context(i)[0] if w.communicates[i] or len(w) <= MOST_STAGED else NO_STAGE


def _together(
    bars: Sequence[Bar],
    cell_ns: int,
    kind: Callable[[Bar], object] = attrgetter("is_barrier"),
    noun: str = "short kernel",
) -> Iterator[Bar]:
    """Merge neighbours of one kind that are too short to be told apart into one bar."""
    group: list[Bar] = []
    for bar in bars:
        is_short = bar.end_ns - bar.start_ns < cell_ns
        if group and not (is_short and bar.start_ns - group[-1].end_ns < cell_ns and kind(bar) == kind(group[-1])):
            yield _one(group, noun)
            group = []
        if is_short:
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
    """Yield (start, end, stage) for each run of compute kernels that were launched for one stage.

    A band ends where the next one begins. Nothing where no stage is known.
    """
    if len(w) > MOST_STAGED:
        return
    staged_kernels = [(w.kernels.start_ns[i], w.kernels.end_ns[i], w.context(i)[0]) for i in w.compute]
    runs: list[tuple[int, int, str]] = []
    for start, end, stage in staged_kernels:
        if runs and runs[-1][2] == stage:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]), stage)
        else:
            runs.append((start, end, stage))
    ends = [min(a[1], b[0]) for a, b in pairwise(runs)] + [run[1] for run in runs[-1:]]
    for (start, _, stage), end in zip(runs, ends, strict=True):
        if stage != NO_STAGE and end > start:
            yield start, end, printable(stage, LONGEST_NAME)
