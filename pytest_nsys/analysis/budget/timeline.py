"""How is one window of one rank drawn: a lane for each stream, exposed parts, why no compute runs, and the stages?

If there are many kernels, those too short to be distinguished are merged; the totals of a lane always count all of its
kernels. Nothing here needs the trace: a timeline is sent from an xdist worker with the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Literal, NamedTuple, TypeVar

from pytest_nsys.analysis.budget.budget import GapPart, build_budget_facts, measure_rank_budgets
from pytest_nsys.analysis.budget.operations import Operation
from pytest_nsys.analysis.budget.surroundings import make_transfer_namer
from pytest_nsys.analysis.explain.budget_lines import BudgetFacts
from pytest_nsys.analysis.metrics.common_clock import EXACT_ALIGNMENT, ClockAlignment
from pytest_nsys.analysis.windows.rank_window import RankWindow, StreamUse
from pytest_nsys.core.columns import sum_column, take
from pytest_nsys.core.conventions import COMPUTE_PURPOSE, NO_STAGE, UNKNOWN_PURPOSE
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.families import OTHER_FAMILY, OTHER_KIND, find_collective_kind, make_classifier
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.kernel_names import make_display_names, make_stable_name
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Interval, Stream, label_streams
from pytest_nsys.core.tables import NO_KERNELS
from pytest_nsys.core.text_format import format_count, sanitize_line

MIN_MERGED_KERNELS = 1_000
"""The minimum number of kernels at which short ones are drawn as one."""

BAR_CELLS = 1_000
"""Bars that are shorter than this fraction of the window, and as close to each other, are drawn as one."""

GAP_CELLS = 500
"""The number of cells that the window has for gaps; of each class that starts in a cell, one gap is drawn."""

MAX_STAGED_KERNELS = 100_000  # looking up stages costs time per kernel
"""The maximum number of kernels whose stages are all looked up; beyond it, only those of communication are."""

MAX_DRAWN_NAME = 120
MAX_CARRIED_KINDS = 3


LaneKind = Literal["compute", "communication", "copies"]


class Bar(NamedTuple):
    """Describes one kernel or transfer, or several that are too short to be distinguished."""

    start_ns: int
    end_ns: int
    name: str  # display name
    stage: str = NO_STAGE
    family: str = OTHER_FAMILY
    kernel_count: int = 1  # number of kernels in the bar
    exposed_ns: int = 0
    is_barrier: bool = False
    stable_name: str = ""  # the name that is equal in two runs


class TimelineLane(NamedTuple):
    """Describes one stream, or all copies and memsets together. Its bars are sorted by start and do not overlap."""

    name: str
    purpose: str
    kind: LaneKind  # what runs on it
    kernel_count: int  # all kernels, including those that share a bar
    busy_ns: int
    bars: Sequence[Bar]
    exposed_ns: int = 0
    exposed_spans: Sequence[Interval] = ()


class TimelineGap(NamedTuple):
    """Describes one part of a gap, or several of one class that are too short to be distinguished and name no
    kernel.
    """

    part: GapPart
    part_count: int = 1  # number of merged parts
    # (lane of what was waited for, lane of what waited), if both are drawn.
    arrow_lanes: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Describes one window of one rank as it is drawn."""

    coordinates_text: str  # the coordinates of its rank
    window: str  # the name of the range, and which of the rank's windows it is
    window_rule: str  # the spec that picked it
    start_ns: int
    length_ns: int
    common_start_ns: int | None  # when it began on the clock of the first rank; None if unknown
    clock_text: str  # how well common_start_ns is known
    clock_error_ns: int | None  # maximum error of common_start_ns; None if unknown
    kernel_count: int
    bands: Sequence[tuple[int, int, str]]  # start, end, and the stage that the compute in it was launched for
    lanes: Sequence[TimelineLane]
    budget: BudgetFacts | None = None
    missing_budget_reason: str = ""  # why it has no budget
    gaps: Sequence[TimelineGap] = ()  # the times without compute, by start


def sort_streams(uses: Iterable[StreamUse]) -> list[tuple[str, StreamUse]]:
    """Return the streams with display names such as ``stream 28``, those that compute first.

    Device and context are named if two streams share the number.
    """
    sorted_uses = sorted(uses, key=lambda use: (use.purpose != COMPUTE_PURPOSE, use.stream))
    labels = label_streams(use.stream for use in sorted_uses)
    return [(f"stream {labels[use.stream]}", use) for use in sorted_uses]


def list_exposed_parts(window: RankWindow) -> Iterator[tuple[int, Interval]]:
    """Yield the parts of each communication kernel during which no compute ran, with its index in the window.

    Their lengths sum to ``exposed_ns``.
    """
    for i, (start, end) in zip(window.communication, window.iterate_intervals(window.communication), strict=True):
        for gap in window.compute_time.list_uncovered(start, end):
            yield i, gap


def build_timeline(window: RankWindow, clock_standing: ClockAlignment = EXACT_ALIGNMENT) -> Timeline:
    """Build the drawing of a window; ``clock_standing`` says how its clock is aligned with those of other ranks."""
    step = window.window
    index_text = f", window {step.index + 1} of {step.count}" if step.index is not None else ""
    streams, exposed, budget = (
        sort_streams(window.stream_uses),
        group_by_key(list_exposed_parts(window)),
        measure_rank_budgets({0: [window]})[0],
    )
    gaps = () if isinstance(budget, NoRows) else [*budget.list_gap_parts()]
    full_names = window.full_names | {
        operation.name for gap in gaps for operation in (gap.waiting_kernel, gap.producer) if operation is not None
    }
    readable = make_display_names(sorted(full_names))
    lanes = [*(_build_lane(window, name, use, exposed, readable) for name, use in streams), *_build_copy_lane(window)]
    timeline = Timeline(
        coordinates_text=" ".join(f"{axis}={coordinate}" for axis, coordinate in window.rank.coordinates.items()),
        window=sanitize_line(step.name) + index_text,
        window_rule=str(window.spec),
        start_ns=window.start_ns,
        length_ns=max(window.length_ns, 1),
        common_start_ns=None if clock_standing.ahead_ns is None else window.start_ns - clock_standing.ahead_ns,
        clock_text=clock_standing.description,
        clock_error_ns=clock_standing.error_ns,
        kernel_count=len(window),
        bands=list(_list_stage_bands(window)),
        lanes=lanes,
    )
    if isinstance(budget, NoRows):
        return replace(timeline, missing_budget_reason=sanitize_line(str(budget), 400))
    parts = [TimelineGap(gap) for gap in gaps]
    if len(parts) > MIN_MERGED_KERNELS:
        parts = list(merge_short_gaps(parts, window.length_ns // GAP_CELLS))
    numbers = {use.stream: number for number, (_, use) in enumerate(streams)}
    return replace(timeline, budget=build_budget_facts(budget), gaps=list(_draw_gaps(window, parts, numbers, readable)))


def merge_short_gaps(gaps: Iterable[TimelineGap], cell_ns: int) -> Iterator[TimelineGap]:
    """Merge the parts that are shorter than a cell into one for each class that starts in it.

    The merged part has the total length of these parts and lies where they lay, so no class is drawn longer than it
    was.
    """
    for _, cell_gaps in groupby(gaps, lambda gap: gap.part.start_ns // cell_ns):
        gaps_in_cell = list(cell_gaps)
        short_parts = [part for part, *_ in gaps_in_cell if part.end_ns - part.start_ns < cell_ns]
        if len(short_parts) < 2:
            yield from gaps_in_cell
            continue
        start_ns = short_parts[0].start_ns
        for kind, class_parts in sorted(group_by_key((part.part, part) for part in short_parts).items()):
            end_ns = start_ns + sum(part.end_ns - part.start_ns for part in class_parts)
            merged_part = class_parts[0] if len(class_parts) == 1 else GapPart(start_ns, end_ns, kind)
            yield TimelineGap(merged_part._replace(start_ns=start_ns, end_ns=end_ns), len(class_parts))
            start_ns = end_ns
        yield from gaps_in_cell[
            len(short_parts) :
        ]  # a longer one reaches beyond the cell: it is the last that starts here


NamedItem = TypeVar("NamedItem", Bar, Operation)


def _sanitize_names(item: NamedItem) -> NamedItem:
    """Return an item with names that are safe to show on a page."""
    return item._replace(name=sanitize_line(item.name, MAX_DRAWN_NAME), stage=sanitize_line(item.stage, MAX_DRAWN_NAME))


def _draw_gaps(
    window: RankWindow, gaps: Iterable[TimelineGap], lanes: Mapping[Stream, int], readable: Mapping[str, str]
) -> Iterator[TimelineGap]:
    """Yield the gaps with arrows and readable names of kernels.

    ``lanes`` numbers the lane of each stream; copies and memsets come after these.
    """
    streams = window.kernels.streams
    drawn_kernels = {(window.kernels.start_ns[i], streams[window.kernels.stream[i]]) for i in window.compute}

    for part, number, _ in gaps:
        producer, waiting_kernel, arrow = part.producer, part.waiting_kernel, None
        if (
            producer is not None
            and waiting_kernel is not None
            and (waiting_kernel.start_ns, waiting_kernel.stream) in drawn_kernels
        ):
            from_lane = len(lanes) if producer.kind in ("copy", "memset") else lanes.get(producer.stream)
            arrow = None if from_lane is None else (from_lane, lanes[waiting_kernel.stream])
        waiting_kernel, producer = (
            operation and _sanitize_names(operation._replace(name=readable[operation.name]))
            for operation in (waiting_kernel, producer)
        )
        part = part._replace(waiting_kernel=waiting_kernel, producer=producer)
        yield TimelineGap(part, number, arrow)


def _build_lane(
    window: RankWindow,
    name: str,
    use: StreamUse,
    exposed_by_kernel: Mapping[int, Sequence[Interval]],
    readable: Mapping[str, str],
) -> TimelineLane:
    members = window.kernels_by_stream[use.stream]
    bars = _build_bars(window, members, readable)
    if len(window) > MIN_MERGED_KERNELS:
        bars = list(_merge_short_bars(bars, window.length_ns // BAR_CELLS))
    return TimelineLane(
        name=name,
        purpose=sanitize_line(_describe_carried(bars) if use.purpose == UNKNOWN_PURPOSE else use.purpose),
        kind="compute" if use.purpose == COMPUTE_PURPOSE else "communication",
        kernel_count=len(members),
        busy_ns=use.communication_ns + use.compute_ns,
        bars=[_sanitize_names(bar) for bar in bars],
        exposed_ns=sum_column(take(window.exposed_ns, members)),
        exposed_spans=list(Intervals.from_spans(gap for i in members for gap in exposed_by_kernel.get(i, ()))),
    )


def _describe_carried(bars: Iterable[Bar]) -> str:
    """Describe what a communication stream carries, by the kinds of its kernels, because the convention does not say
    it.
    """
    kinds = dict.fromkeys(kind for bar in bars if (kind := find_collective_kind(bar.name)) != OTHER_KIND)
    return ", ".join([*kinds][:MAX_CARRIED_KINDS]) or UNKNOWN_PURPOSE


def _build_copy_lane(window: RankWindow) -> Iterator[TimelineLane]:
    """Yield one lane with the copies and memsets that ran in the window, on any stream; nothing if none ran."""
    transfers = window.track.gpu_track.transfers or NO_KERNELS
    rows = [
        i
        for i in range(len(transfers))
        if transfers.start_ns[i] < window.end_ns and transfers.end_ns[i] > window.start_ns
    ]
    if not rows:
        return
    clipped = transfers.take(rows).clip(window.start_ns, window.end_ns)
    names = [clipped.names[name] for name in clipped.name]
    name_transfer = make_transfer_namer(window)
    starts = [transfers.start_ns[i] for i in rows]
    bars = [
        Bar(start, end, name, stable_name=name_transfer(name, start_ns))
        for start, end, name, start_ns in zip(clipped.start_ns, clipped.end_ns, names, starts, strict=True)
    ]
    busy_ns = sum(bar.end_ns - bar.start_ns for bar in bars)
    if len(bars) > MIN_MERGED_KERNELS:
        bars = list(_merge_short_bars(bars, window.length_ns // BAR_CELLS, attrgetter("name"), "short transfer"))
    yield TimelineLane("copies", "and memsets", "copies", len(rows), busy_ns, bars)


def _build_bars(window: RankWindow, members: Sequence[int], readable: Mapping[str, str]) -> list[Bar]:
    kernels, barriers, names = window.kernels, set(window.barriers), window.kernels.names
    family_of = make_classifier(window.track.convention.families)
    named_kernels = ((i, names[kernels.name[i]], names.get(kernels.full_name[i], "")) for i in members)
    return [
        Bar(
            start_ns=kernels.start_ns[i],
            end_ns=kernels.end_ns[i],
            name=readable[full or short],
            stage=_find_kernel_stage(window, i),
            family=family_of(short, full),
            exposed_ns=window.exposed_ns[i],
            is_barrier=i in barriers,
            stable_name=make_stable_name(full or short),
        )
        for i, short, full in named_kernels
    ]


def _find_kernel_stage(window: RankWindow, kernel: int) -> str:
    return (
        window.get_context(kernel)[0] if window.communicates[kernel] or len(window) <= MAX_STAGED_KERNELS else NO_STAGE
    )


def _merge_short_bars(
    bars: Sequence[Bar],
    cell_ns: int,
    kind: Callable[[Bar], object] = attrgetter("is_barrier"),
    noun: str = "short kernel",
) -> Iterator[Bar]:
    """Merge neighbours of one kind that are too short to be distinguished into one bar."""
    group: list[Bar] = []
    for bar in bars:
        is_short = bar.end_ns - bar.start_ns < cell_ns
        if group and not (is_short and bar.start_ns - group[-1].end_ns < cell_ns and kind(bar) == kind(group[-1])):
            yield _merge_bars(group, noun)
            group = []
        if is_short:
            group.append(bar)
        else:
            yield bar
    if group:
        yield _merge_bars(group, noun)


def _merge_bars(group: Sequence[Bar], noun: str) -> Bar:
    if len(group) == 1:
        return group[0]
    stages, families = {bar.stage for bar in group}, {bar.family for bar in group}
    return group[0]._replace(
        end_ns=max(bar.end_ns for bar in group),
        kernel_count=len(group),
        name=format_count(len(group), noun),
        stable_name="",
        stage=stages.pop() if len(stages) == 1 else NO_STAGE,
        exposed_ns=sum(bar.exposed_ns for bar in group),
        family=families.pop() if len(families) == 1 else OTHER_FAMILY,
    )


def _list_stage_bands(window: RankWindow) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, stage) for each run of compute kernels that were launched for one stage.

    A band ends where the next one begins. Nothing where no stage is known.
    """
    if len(window) > MAX_STAGED_KERNELS:
        return
    staged_kernels = [
        (window.kernels.start_ns[i], window.kernels.end_ns[i], window.get_context(i)[0]) for i in window.compute
    ]
    runs: list[tuple[int, int, str]] = []
    for start, end, stage in staged_kernels:
        if runs and runs[-1][2] == stage:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]), stage)
        else:
            runs.append((start, end, stage))
    ends = [min(a[1], b[0]) for a, b in pairwise(runs)] + [run[1] for run in runs[-1:]]
    for (start, _, stage), end in zip(runs, ends, strict=True):
        if stage != NO_STAGE and end > start:
            yield start, end, sanitize_line(stage, MAX_DRAWN_NAME)
