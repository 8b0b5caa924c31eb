"""How is a window drawn: paths of each lane, ticks of the axis, the numbers next to it, the data for hovering?

The picture is drawn here, so that it is complete without a script. x is in nanoseconds since the window's start; y is
from 0 to 20. The windows of a run share one scale. A bar is a segment of a thick line, which takes half the bytes of a
rectangle. Template data has the names that the template uses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pytest_nsys.analysis.budget.strips import RankStrip
from pytest_nsys.analysis.budget.timeline import Bar, Timeline, TimelineLane
from pytest_nsys.analysis.explain.breakdown_model import NEXT_STEP, RowActivity, RowExplanation
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.family_table import XLA_ONLY_FAMILIES
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.kernel_names import make_display_names
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Interval
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import format_count
from pytest_nsys.core.units import NANOSECONDS
from pytest_nsys.reports.page.added_time import list_added_spans
from pytest_nsys.reports.page.budget_view import (
    REST_PART,
    ShownPart,
    build_budget_view,
    find_css_class,
    select_large_parts,
)
from pytest_nsys.reports.page.templating import TemplateData, choose_label, format_css_percent
from pytest_nsys.reports.tables.formats import make_number_columns, make_text_columns

if TYPE_CHECKING:
    from pytest_nsys.reports.drawings.pictures import Picture

LANE_HEIGHT = 20
FULL_SHAPE = (0, LANE_HEIGHT)
KERNEL_SHAPE = (4, 12)
"""Top and height of a kernel. Exposed parts and barriers are as high as the lane, so that they differ even without
colour.
"""

MARK_SHAPE = (17, 3)
"""Top and height of the mark on kernels of a cause."""

MAX_LANES = 4
"""A phone shows at most this many lanes of a side, so that both sides fit on its first screen; the others are
folded.
"""

STAGE_COLOURS = 24
"""The style has as many colours of stages; a window with more of them uses them in turn."""

HUES: Mapping[str, str] = {
    **dict.fromkeys(("gemm", "convolution"), "gemm"),
    **dict.fromkeys(XLA_ONLY_FAMILIES, "triton"),
    **dict.fromkeys(("attention", "rope", "state_space"), "attention"),
    **dict.fromkeys(("norm", "softmax", "reduce", "pooling", "sort"), "norm"),
    **dict.fromkeys(("memory", "index", "kv_cache", "quantize", "input_scatter_fusion"), "memory"),
    **{family: family for family in ("elementwise", "triton", "moe", "optimizer")},
}
"""The colour of compute by kernel family; similar families share one. Other families have the colour of *other*."""

OTHER_HUE = "other"
PLAIN_HUE = "family-gemm"
"""The colour that has no pattern; each other one has its own, for who does not see colours."""

ADDED = "added"
"""The class, and the pattern, of the time that was added to the base."""

MAX_NAMED_CAUSES = 4

MIN_NAMED_SHARE = Fraction(7, 100)
"""A bar of at least this share of a picture's width contains its name, cut off at its end; the script, which knows the
real width, decides anew.
"""

MIN_LATE_SHARE = Fraction(1, 100)
"""A window that begins later than another by less than this share of its length is not said to."""

MAX_TICKS = 6
MIN_PATTERN_SHARE = Fraction(6, 360)
"""Parts narrower than this share of a picture have no pattern: on a phone only a line of it would be visible."""

PHONE_PIXEL = Fraction(1, 400)
"""A pixel as a share of a picture on a phone: kernels that the host launched late by less are not marked."""

ASSUMED_WIDTH_PX = 900
"""The width of a picture in pixels for which its patterns are drawn; the script adapts them to the real width."""

PART_ORDER = [*BudgetPart]
NOBODY = -1
LANE_COLUMNS = (*make_text_columns("lane", "purpose"), *make_number_columns("kernels", "busy", "exposed"))


class BlamedKernels(NamedTuple):
    """Describes the kernels that caused a failure."""

    name: str
    stage: str | None  # None: in all stages
    is_host: bool = False  # whether it is a call, or the kernel that the host launched late


MarksByPicture = Mapping[str, Collection[BlamedKernels]]
"""The marks of each picture, by its key."""

NO_MARKS: MarksByPicture = MappingProxyType({})


class SideWindow(NamedTuple):
    """Describes one window of a picture: that of base or head."""

    name: str  # "base" or "head"; empty if it is the only window
    window: Timeline

    def locate(self, time_ns: int) -> int:
        """Return the x coordinate of a time: every window begins at the left end, so that base and head compare."""
        return time_ns - self.window.start_ns


class Frame(NamedTuple):
    """Describes the scale that the windows of several ranks share, and when the first of them began."""

    length_ns: int = 0  # 0: the picture has a scale of its own
    first_ns: int | None = None  # when the first head window began; None if unknown
    error_ns: int = 0  # the possible error of the time between two windows

    def describe_start(self, window: Timeline) -> Iterator[str]:
        """Yield when a head window began, and how well that is known."""
        if self.first_ns is None:
            return
        if window.common_start_ns is not None:
            late_ns = window.common_start_ns - self.first_ns
            if late_ns > self.error_ns and late_ns >= MIN_LATE_SHARE * window.length_ns:
                yield f"its window begins {format_value(late_ns)} after the first one here"
        if window.clock_text:
            yield window.clock_text


def list_sides(picture: Picture) -> list[SideWindow]:
    """Return the windows of a picture, base before head."""
    return [
        SideWindow(name, timeline)
        for name, timeline in (("base", picture.base), ("head", picture.head))
        if timeline is not None
    ]


def build_frame(pictures: Sequence[Picture]) -> Frame:
    """Return the frame of the windows of one run: the scale of the longest one."""
    windows = [side.window for picture in pictures for side in list_sides(picture)]
    heads = {picture.key: picture.head for picture in pictures if picture.head is not None}.values()
    starts_ns = [head.common_start_ns for head in heads if head.common_start_ns is not None]
    if len(heads) < 2 or not starts_ns:
        return Frame(max((window.length_ns for window in windows), default=0))
    errors_ns = sorted(head.clock_error_ns or 0 for head in heads)
    # Each error is relative to the first clock: between two windows it is at most the sum of the two largest.
    return Frame(max(window.length_ns for window in windows), min(starts_ns), sum(errors_ns[-2:]))


def build_timeline_views(
    pictures: Sequence[Picture], marks: MarksByPicture = NO_MARKS, run_names: Mapping[str, str] = MappingProxyType({})
) -> list[TemplateData]:
    """Return the template's data for some ranks; the ranks of one run share a scale and a time axis.

    ``run_names`` maps a picture's key to the name of its run, if there are several runs.
    """
    frames: dict[str, Frame] = {}
    for run_key, run_pictures in group_by_key((picture.run_key, picture) for picture in pictures).items():
        frames[run_key] = build_frame(run_pictures)
    return [
        _build_timeline_view(
            picture, number, frames[picture.run_key], marks.get(picture.key, ()), run_names.get(picture.key, "")
        )
        for number, picture in enumerate(pictures, 1)
    ]


_MARKED_KINDS = (RowActivity.KERNEL, RowActivity.COLLECTIVE, RowActivity.COPY, RowActivity.MEMSET)


def list_marks(rows: Iterable[RowExplanation], rank: int) -> list[BlamedKernels]:
    """Return the kernels, copies and calls of a rank that are roots of worse rows; for rows without a root, the leading
    cause.
    """
    found_marks: dict[BlamedKernels, None] = {}
    rows = list(rows)
    has_roots = any(row.root_causes for row in rows)
    for row in rows:
        for root in (change.root for change in row.root_causes if change.rank == rank):
            if root.activity in _MARKED_KINDS:
                found_marks[_make_mark(root.name, root.stage)] = None
            if root.activity in _MARKED_KINDS and root.instead_of:
                found_marks[_make_mark(root.instead_of, root.stage)] = None
            if root.activity in (RowActivity.CALL, RowActivity.HOST) and root.name:
                found_marks[BlamedKernels(root.name, None, is_host=True)] = None
        leading_cause = row.explanation.leading_cause
        if (
            not has_roots
            and leading_cause is not None
            and leading_cause.root.name
            and row.labels.get("rank", rank) == rank
        ):
            found_marks[_make_mark(leading_cause.root.name, str(row.labels.get("stage", "")))] = None
    return [*found_marks]


def _make_mark(name: str, stage: str) -> BlamedKernels:
    return BlamedKernels(name, stage if stage not in ("", NO_STAGE) else None)


def _find_bar_name_in_causes(bar: Bar) -> str:
    """Return the name that causes use for the kernel or transfer of a bar."""
    return bar.stable_name or bar.name


def _build_timeline_view(
    picture: Picture, number: int, frame: Frame, marks: Collection[BlamedKernels], run_name: str
) -> TemplateData:
    """Return the template's data for one rank, base above head, or ``why`` there is no picture."""
    head = picture.head
    sides = list_sides(picture)
    named_windows = sides if len(sides) > 1 else [side._replace(name="") for side in sides]
    title = f"rank {picture.rank}" + (f" of {run_name}" if run_name else "")
    title += f" ({head.coordinates_text})" if head is not None and head.coordinates_text else ""
    ident = f"window-{number}"
    length_ns = frame.length_ns or 1
    stages = list(dict.fromkeys(stage for side in named_windows for _, _, stage in side.window.bands))
    lanes = [lane for side in named_windows for lane in side.window.lanes]
    shown_parts = select_large_parts(
        [(name, timeline.budget) for name, timeline in named_windows if timeline.budget is not None]
    )
    # Compute is not a gap, so the legend of gaps does not name it.
    main_lanes, named_parts = _choose_main_lanes(lanes, marks, length_ns), frozenset(shown_parts - {BudgetPart.COMPUTE})
    added_spans = [*list_added_spans(picture.base, head)] if picture.base is not None and head is not None else []
    scene = _Scene(ident, length_ns, stages, marks, main_lanes, named_parts, added_spans)
    side_views = [_build_side_view(side, scene) for side in named_windows]
    bars = [bar for lane in lanes for bar in lane.bars]
    drawn_names = {_find_bar_name_in_causes(bar) for bar in bars}
    causes = [
        *dict.fromkeys(
            mark.name.strip("[]")
            for mark in marks
            if mark.name in drawn_names or (mark.is_host and _find_gap_of_host(mark) in named_parts)
        )
    ]
    joined_kernels = sum(bar.kernel_count for bar in bars if bar.kernel_count > 1)
    notes = [f"{joined_kernels} short kernels are drawn together with their neighbours"] if joined_kernels else []
    quiet_lanes = len({lane.name for lane in lanes} - main_lanes) + any(
        side_view["gaps"] and side_view["gaps"]["is_quiet"] for side_view in side_views
    )
    return {
        "id": ident,
        "rank": picture.rank,
        "title": title,
        "about": "; ".join(dict.fromkeys(side.window.window for side in named_windows)),
        "said": f"Timeline of {title}: " + "; ".join(f"{side['name']} {side['about']}".strip() for side in side_views),
        "length_ns": length_ns,
        "patterns": _list_patterns(named_windows, scene, [css for css, _ in _list_hues(lanes)]),
        "sides": side_views,
        "quiet": f"{format_count(quiet_lanes, 'more lane')}" if quiet_lanes else "",
        "ticks": [*_list_time_ticks(length_ns)],
        "hues": _list_hues(lanes),
        "stages": [(find_band_class(number), stage) for number, stage in enumerate(stages)],
        "added": _describe_added(added_spans),
        "causes": ", ".join(make_display_names(causes[:MAX_NAMED_CAUSES]).values())
        + (" …" if len(causes) > MAX_NAMED_CAUSES else ""),
        "has_barriers": any(bar.is_barrier for bar in bars),
        "has_communication": any(lane.kind == "communication" for lane in lanes),
        "has_copies": any(lane.kind == "copies" for lane in lanes),
        "has_exposed": any(lane.exposed_spans for lane in lanes),
        "data": {"length": length_ns, "sides": [_build_hover_data(side) for side in named_windows]},
        "budget": build_budget_view(
            [(name, timeline.budget) for name, timeline in named_windows if timeline.budget is not None],
            title,
            length_ns,
        ),
        "budget_why": [
            f" of {name}: {reason}" if name else f": {reason}"
            for name, timeline in named_windows
            if (reason := timeline.missing_budget_reason)
        ],
        "why": picture.missing_reason or ("" if named_windows else "its window was not kept"),
        "note": "; ".join([*notes, *(frame.describe_start(head) if head is not None else ())]),
    }


class _Scene(NamedTuple):
    """Holds what both sides of a picture share."""

    ident: str
    length_ns: int
    stages: Sequence[str]  # in both sides, in the order of their colours
    marks: Collection[BlamedKernels]
    main_lanes: frozenset[str]  # lanes that are never folded
    named_parts: frozenset[ShownPart]  # parts of gaps that the legend names
    added_spans: Sequence[Interval]  # where the head falls behind the base


def _choose_main_lanes(
    lanes: Iterable[TimelineLane], marks: Collection[BlamedKernels], length_ns: int
) -> frozenset[str]:
    """Return the lanes that are always shown: first those of a cause, then those with compute, then by exposed time and
    busy time.

    Nearly empty lanes are excluded.
    """
    causes = {mark.name for mark in marks}

    def rate_lane(same_lanes: Sequence[TimelineLane]) -> tuple[bool, bool, int, int]:
        has_cause = any(_find_bar_name_in_causes(bar) in causes for lane in same_lanes for bar in lane.bars)
        busiest, most_exposed = max(lane.busy_ns for lane in same_lanes), max(lane.exposed_ns for lane in same_lanes)
        return has_cause, same_lanes[0].kind == "compute", most_exposed, busiest

    lanes_by_name = group_by_key((lane.name, lane) for lane in lanes)
    busy_names = [
        name
        for name, same_lanes in lanes_by_name.items()
        # A lane is nearly empty if it is busy for less than a hundredth of the picture.
        if rate_lane(same_lanes)[0] or max(lane.busy_ns for lane in same_lanes) * 100 >= length_ns
    ]
    return frozenset(sorted(busy_names, key=lambda name: rate_lane(lanes_by_name[name]), reverse=True)[:MAX_LANES])


def _list_patterns(sides: Iterable[SideWindow], scene: _Scene, hues: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return each pattern of the drawn gaps, kernel families and added time: its id in this picture, its name, and the
    scale that keeps it undistorted.
    """
    drawn_parts = {gap.part.part for side in sides for gap in side.window.gaps} & scene.named_parts
    patterned_hues = [hue for hue in hues if hue != PLAIN_HUE]
    names = [*_list_part_classes(drawn_parts), *patterned_hues, *([ADDED] if scene.added_spans else [])]
    return _list_scaled_patterns(scene.ident, names, scene.length_ns)


def _list_part_classes(drawn_parts: Collection[ShownPart]) -> list[str]:
    return [find_css_class(part) for part in BudgetPart if part in drawn_parts]


def _list_scaled_patterns(ident: str, names: Iterable[str], length_ns: int) -> list[tuple[str, str, str]]:
    scale = f"scale({max(length_ns // ASSUMED_WIDTH_PX, 1)} 1)"
    return [(f"{ident}-{name}", name, scale) for name in names]


def find_band_class(number: int) -> str:
    """Return the CSS class of the band of a stage by its number."""
    return f"band{number % STAGE_COLOURS}"


def _describe_added(spans: Sequence[Interval]) -> str:
    """Return how much time was added to the head; empty if none was."""
    if not spans:
        return ""
    added = format_value(sum(end - start for start, end in spans))
    return f"added to the base: {added}" + (f" in {len(spans)} places" if len(spans) > 1 else "")


def _find_hue(family: str) -> str:
    return f"family-{HUES.get(family, OTHER_HUE)}"


def _list_hues(lanes: Iterable[TimelineLane]) -> list[tuple[str, str]]:
    """Return each colour of drawn compute, with its kernel families."""
    compute = (bar for lane in lanes if lane.kind == "compute" for bar in lane.bars)
    drawn_families = sorted({bar.family for bar in compute if not bar.is_barrier})
    hues = group_by_key((_find_hue(family), family) for family in drawn_families)
    return [
        (hue, ", ".join(family for family in families if family in HUES) or OTHER_HUE)
        for hue, families in sorted(hues.items())
    ]


class _Path(NamedTuple):
    """Describes bars of one CSS class as segments of a line with a ``width``, painted with ``pattern``."""

    css: str
    width: int
    d: str
    pattern: str = ""


def _make_path(
    css: str, spans: Iterable[tuple[int, int]], shape: tuple[int, int] = FULL_SHAPE, ident: str = ""
) -> _Path:
    """Return the bars of one CSS class as a path; ``ident`` is the identifier of a picture with patterns."""
    top, height = shape
    middle = f"{top + height / 2:g}"
    # Coordinates are absolute: with relative ones, the browser's float errors would accumulate.
    d = "".join(f"M{start} {middle}h{end - start}" for start, end in spans)
    return _Path(css, height, d, f"url(#{ident}-{css})" if ident else "")


def _build_side_view(side: SideWindow, scene: _Scene) -> TemplateData:
    """Return the template's data for one window."""
    timeline, length_ns = side.window, scene.length_ns
    outside_path = _make_path("outside", [(timeline.length_ns, length_ns)] if timeline.length_ns < length_ns else [])
    outside_paths = [outside_path] if outside_path.d else []
    added_spans = scene.added_spans if side.name == "head" else []
    added_paths = [_make_path(ADDED, added_spans, ident=scene.ident)] if added_spans else []
    bands = [(side.locate(start), side.locate(end), stage) for start, end, stage in timeline.bands]
    by_colour = group_by_key((find_band_class(scene.stages.index(stage)), (start, end)) for start, end, stage in bands)
    facts_text = (
        f"{timeline.window}, {format_value(timeline.length_ns, 'ns')}, {format_count(timeline.kernel_count, 'kernel')}"
    )
    stage_labels = ((start, end, choose_label(stage, Fraction(end - start, length_ns))) for start, end, stage in bands)
    return {
        "name": side.name,
        "about": f"{facts_text} ({timeline.window_rule})",
        "gaps": _build_gap_view(side, outside_paths, scene) if timeline.budget is not None else None,
        "lanes": [
            # Not on the lane of an exchange: one that did not change would look as if it had.
            _build_lane_view(lane, side, [*outside_paths, *(added_paths if lane.kind == "compute" else ())], scene)
            for lane in timeline.lanes
        ],
        "bands": [
            *(outside_paths if by_colour else ()),
            *(_make_path(band, spans) for band, spans in sorted(by_colour.items())),
        ],
        "labels": [
            (format_css_percent(Fraction(start + end, 2 * length_ns)), *label)
            for start, end, label in stage_labels
            if label is not None
        ],
    }


def _build_lane_view(
    lane: TimelineLane, side: SideWindow, ground_paths: Sequence[_Path], scene: _Scene
) -> TemplateData:
    """Return the template's data for one lane: the paths by CSS class, and its totals in words and numbers.

    ``labels`` holds position, width and name for each bar with room for its name.
    """
    length_ns, marks = scene.length_ns, {*scene.marks}
    bars = [((side.locate(bar.start_ns), side.locate(bar.end_ns)), bar) for bar in lane.bars]
    spans_by_class = group_by_key(
        (_find_hue(bar.family) if lane.kind == "compute" else lane.kind, span)
        for span, bar in bars
        if not bar.is_barrier
    )
    marked_spans = (
        span
        for span, bar in bars
        if {BlamedKernels(_find_bar_name_in_causes(bar), bar.stage), BlamedKernels(_find_bar_name_in_causes(bar), None)}
        & marks
    )
    lane_paths = (
        *(
            _make_path(css, spans, KERNEL_SHAPE, scene.ident if lane.kind == "compute" and css != PLAIN_HUE else "")
            for css, spans in sorted(spans_by_class.items())
        ),
        _make_path("barrier", (span for span, bar in bars if bar.is_barrier)),
        _make_path("exposed", ((side.locate(start), side.locate(end)) for start, end in lane.exposed_spans)),
        _make_path("marked", marked_spans, MARK_SHAPE),
    )
    name, purpose, busy_text = lane.name, lane.purpose, format_value(lane.busy_ns, "ns")
    exposed_text = format_value(lane.exposed_ns, "ns") if lane.kind == "communication" else ""
    noun = "transfer" if lane.kind == "copies" else "kernel"
    description = f"{name}, {purpose}: {format_count(lane.kernel_count, noun)}, busy {busy_text}"
    return {
        "name": name,
        "kind": purpose,
        "is_quiet": name not in scene.main_lanes,
        "paths": [*ground_paths, *(path for path in lane_paths if path.d)],
        "labels": [
            (
                format_css_percent(Fraction(start, length_ns)),
                format_css_percent(Fraction(end - start, length_ns)),
                bar.name,
            )
            for (start, end), bar in bars
            if end - start >= MIN_NAMED_SHARE * length_ns
        ],
        "said": description + (f", exposed {exposed_text}" if exposed_text else ""),
        "numbers": (name, purpose, str(lane.kernel_count), busy_text, exposed_text or "–"),
    }


def _build_gap_view(side: SideWindow, ground_paths: Sequence[_Path], scene: _Scene) -> TemplateData:
    """Return the template's data for the times without compute: a path for each class in the legend, and one for the
    rest.

    If the host is a cause, the gaps before kernels that it launched late are marked.
    """
    gaps = side.window.gaps
    spans = group_by_key(
        (
            gap.part.part if gap.part.part in scene.named_parts else REST_PART,
            (side.locate(gap.part.start_ns), side.locate(gap.part.end_ns)),
        )
        for gap in gaps
    )
    paths = []
    for part, part_spans in sorted(spans.items(), key=lambda item: str(item[0])):
        paths += _make_part_paths(part, part_spans, scene.ident, scene.length_ns)
    late_parts = sorted({_find_gap_of_host(mark) for mark in scene.marks if mark.is_host})
    late_spans = [span for part in late_parts for span in spans.get(part, ())]
    paths.append(
        _make_path(
            "marked", [span for span in late_spans if span[1] - span[0] >= PHONE_PIXEL * scene.length_ns], MARK_SHAPE
        )
    )
    parts = format_count(sum(gap.part_count for gap in gaps), "part")
    description = f"no compute: {parts} of gaps"
    return {
        "paths": [*ground_paths, *(path for path in paths if path.d)],
        "said": description,
        "is_quiet": not scene.named_parts,
    }


def _find_gap_of_host(mark: BlamedKernels) -> BudgetPart:
    """Return the part of the budget in which the GPU waits for what the host did."""
    return BudgetPart.BETWEEN if mark.name == NEXT_STEP else BudgetPart.STARVED


def _make_part_paths(part: ShownPart, spans: Sequence[tuple[int, int]], ident: str, length_ns: int) -> list[_Path]:
    """Return the paths of one part of the budget; wide spans get the part's pattern."""
    wide_spans = [span for span in spans if part != REST_PART and span[1] - span[0] >= MIN_PATTERN_SHARE * length_ns]
    narrow_path = _make_path(find_css_class(part), [span for span in spans if span not in wide_spans])
    return [path for path in (narrow_path, _make_path(find_css_class(part), wide_spans, ident=ident)) if path.d]


def _list_time_ticks(length_ns: int) -> Iterator[tuple[str, str, str]]:
    """Yield round times in one unit: the position, the text anchor and the text of each."""
    step = 1
    while length_ns > MAX_TICKS * step:
        step *= 10
    # Ticks are multiples of 1, 2 or 5 times a power of ten nanoseconds.
    step = next((step // part for part in (5, 2) if step % part == 0 and length_ns <= MAX_TICKS * (step // part)), step)
    unit = next(unit for unit, scale in reversed([*NANOSECONDS.items()]) if step >= scale)
    for time_ns in range(0, length_ns + 1, step):
        share = Fraction(time_ns, length_ns)
        # At the ends of the axis a centred text would extend beyond the picture.
        anchor = "start" if share < Fraction(4, 100) else "end" if share > Fraction(94, 100) else "middle"
        number = Fraction(time_ns, NANOSECONDS[unit])
        yield format_css_percent(share), anchor, f"{number if number.denominator == 1 else float(number)} {unit}"


def _build_hover_data(side: SideWindow) -> TemplateData:
    """Return the data that hovering shows for one window."""
    names, stages = _TextNumbers(), _TextNumbers()
    timeline = side.window
    bands = [[side.locate(start), end - start, stages[stage]] for start, end, stage in timeline.bands]
    lanes = [_build_lane_data(lane, side, names, stages) for lane in timeline.lanes]
    gap_data = _build_gap_data(side, names, stages) if timeline.budget is not None else None
    return {
        "name": side.name,
        "names": [*names],
        "stages": [*stages],
        "bands": bands,
        "lanes": lanes,
        "gaps": gap_data,
    }


class _TextNumbers(dict[str, int]):
    """Maps texts to numbers, in the order of their first use."""

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, len(self))


def _build_lane_data(lane: TimelineLane, side: SideWindow, names: _TextNumbers, stages: _TextNumbers) -> TemplateData:
    """Return the data that hovering shows for one lane; the script documents the short keys."""
    return {
        "name": f"{lane.name}, {lane.purpose}",
        "c": int(lane.kind != "communication"),
        "s": encode_differences([side.locate(bar.start_ns) for bar in lane.bars]),
        "d": [bar.end_ns - bar.start_ns for bar in lane.bars],
        "n": [names[bar.name] for bar in lane.bars],
        "g": [stages[bar.stage] for bar in lane.bars],
        "x": [bar.exposed_ns for bar in lane.bars] if lane.kind == "communication" else [],
        "b": [i for i, bar in enumerate(lane.bars) if bar.is_barrier],
    }


def _build_gap_data(side: SideWindow, names: _TextNumbers, stages: _TextNumbers) -> TemplateData:
    """Return the data that hovering shows for the gaps: ``w`` says which kernel waited for what, ``a`` holds arrows by
    lane and time.
    """
    parts = [gap.part for gap in side.window.gaps]
    numbered_gaps = [*enumerate(side.window.gaps)]
    single_gaps = [
        (i, (part.waiting_kernel, part.producer), arrow) for i, (part, number, arrow) in numbered_gaps if number == 1
    ]
    return {
        "name": "without compute",
        "kinds": PART_ORDER,
        "s": encode_differences([side.locate(part.start_ns) for part in parts]),
        "d": [part.end_ns - part.start_ns for part in parts],
        "k": [PART_ORDER.index(part.part) for part in parts],
        "m": {i: number for i, (_, number, _) in numbered_gaps if number > 1},
        "w": {
            i: [
                n
                for operation in waiting_and_producer
                for n in ((names[operation.name], stages[operation.stage]) if operation else (NOBODY, NOBODY))
            ]
            for i, waiting_and_producer, _ in single_gaps
        },
        "a": {
            i: [arrow[0], side.locate(producer.end_ns), arrow[1], side.locate(waiting.start_ns)]
            for i, (waiting, producer), arrow in single_gaps
            if arrow is not None and waiting is not None and producer is not None
        },
    }


def encode_differences(starts: Sequence[int]) -> list[int]:
    """Return each start minus the previous one, which takes fewer characters."""
    return [start - previous for previous, start in zip([0, *starts], starts, strict=False)]


def build_strip_views(strips: Sequence[RankStrip], ident: str = "strips") -> TemplateData:
    """Return the template's data for the strips of ranks, on the scale of the longest window.

    ``ident`` is in the names of their patterns.
    """
    longest_ns = max((strip.length_ns for strip in strips), default=0) or 1
    parts = {gap.part for strip in strips for gap in strip.gaps}
    return {
        "length_ns": longest_ns,
        "patterns": _list_scaled_patterns(ident, _list_part_classes(parts), longest_ns),
        "rows": [_build_strip_view(strip, longest_ns, ident) for strip in strips],
    }


def _build_strip_view(strip: RankStrip, longest_ns: int, ident: str) -> TemplateData:
    """Return the template's data for one rank's strip."""
    by_part = group_by_key(
        (gap.part, (gap.start_ns - strip.start_ns, gap.end_ns - strip.start_ns)) for gap in strip.gaps
    )
    compute = Intervals.from_spans((gap.start_ns, gap.end_ns) for gap in strip.gaps).list_uncovered(
        strip.start_ns, strip.start_ns + strip.length_ns
    )
    spans = [(start - strip.start_ns, end - strip.start_ns) for start, end in compute]
    paths = [_make_path(find_css_class(BudgetPart.COMPUTE), spans)] if spans else []
    for part, spans in sorted(by_part.items()):
        paths += _make_part_paths(part, spans, ident, longest_ns)
    length = format_value(strip.length_ns)
    description = f"rank {strip.rank}, {length}: when it computed, and why not"
    return {"rank": strip.rank, "length": length, "paths": paths, "said": description, "why": strip.why}
