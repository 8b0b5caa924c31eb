"""How is a window drawn: paths of each lane, ticks of the axis, the numbers beside, the data that hovering needs?

The picture is drawn here, so that it is whole without a script: x is nanoseconds since the window's start, or since
that of the first of several ranks that are drawn beside each other, y from 0 to 20. Base and head share one scale. A
bar is a stretch of a thick line: it takes half the bytes of a rectangle. What the template draws has the names that it
uses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pytest_nsys.analysis.budget.strips import RankStrip
from pytest_nsys.analysis.budget.timeline import Bar, Timeline, TimelineLane
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.analysis.explain.parts import Explained, What
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.family_table import XLA_ALONE
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.kernel_names import readable_names
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import NANOSECONDS
from pytest_nsys.core.words import counted
from pytest_nsys.reports.page.budget_view import REST, Shown, budget_view, css, large_parts
from pytest_nsys.reports.page.page import Drawn, label_of, percent
from pytest_nsys.reports.tables.formats import numbers, texts

if TYPE_CHECKING:
    from pytest_nsys.reports.drawings.pictures import Picture

HEIGHT = 20
WHOLE = (0, HEIGHT)
BODY = (4, 12)
"""Top and height of a kernel; exposed parts and barriers are as high as the lane, to be told without colour."""

UNDERLINE = (17, 3)
"""Top and height of what marks the kernels of a cause."""

MOST_LANES = 4
"""Of one side on a phone, so that its first screen has both; the others are folded."""

COLOURS = 6
"""Of the stages, used in turn."""

HUES: Mapping[str, str] = {
    **dict.fromkeys(("gemm", "convolution"), "gemm"),
    **dict.fromkeys(XLA_ALONE, "triton"),
    **dict.fromkeys(("attention", "rope", "state_space"), "attention"),
    **dict.fromkeys(("norm", "softmax", "reduce", "pooling", "sort"), "norm"),
    **dict.fromkeys(("memory", "index", "kv_cache", "quantize", "input_scatter_fusion"), "memory"),
    **{family: family for family in ("elementwise", "triton", "moe", "optimizer")},
}
"""The colour of compute by its family; families of a kind share one. Others have that of *other*."""

NAMELESS = "other"
MOST_MARKED = 4

LEAST_NAMED = Fraction(7, 100)
"""Of a picture's width that a bar takes into which its name is written, cut where it ends; the script knows better."""

LEAST_LATE = Fraction(1, 100)
"""Of a window: one that begins by less later than another begins with it."""

MOST_TIMES = 2
"""The longest window fits so often into what is drawn: of windows further apart one would see a line each."""

MOST_TICKS = 6
LEAST_PATTERN = Fraction(6, 360)
"""Of a picture's width: what is narrower has no pattern, of which a phone would show a line."""

PIXEL = Fraction(1, 400)
"""Of a picture on a phone: what the host launched late by less is not marked."""

USUAL_WIDTH = 900
"""Of a picture in pixels, for which its patterns are drawn; the script knows better."""

PARTS = [*BudgetPart]
NOBODY = -1
COLUMNS = (*texts("lane", "purpose"), *numbers("kernels", "busy", "exposed"))


class Mark(NamedTuple):
    """Kernels that caused what is bad; ``stage`` None: those of all stages. ``of_host``: a call, or the kernel that the
    host launched late.
    """

    name: str
    stage: str | None
    of_host: bool = False


Marks = Mapping[str, Collection[Mark]]
"""What is marked, by the key of a picture."""

NO_MARKS: Marks = MappingProxyType({})


class PlacedWindow(NamedTuple):
    """One window of a picture, of base or head; without a name where it is the only one. It is drawn ``lead_ns`` later
    than the first of its side.
    """

    name: str
    window: Timeline
    lead_ns: int = 0

    def x(self, time_ns: int) -> int:
        """Where a time is drawn."""
        return time_ns - self.window.start_ns + self.lead_ns


class Frame(NamedTuple):
    """What some ranks are drawn in: ``first_ns`` is when the first window of each side began, ``error_ns`` by how much
    what is between two of them may be wrong. Empty where they are not drawn beside each other, since they would take
    ``apart_ns``.
    """

    length_ns: int = 0
    first_ns: Mapping[str, int] = MappingProxyType({})
    error_ns: int = 0
    apart_ns: int = 0

    def placed(self, side: PlacedWindow) -> PlacedWindow:
        """The window where it is drawn; with the first of its side where it is unknown when it began."""
        began = side.window.began_ns
        return side._replace(lead_ns=began - self.first_ns[side.name]) if began is not None and self.first_ns else side

    def told(self, head: PlacedWindow) -> Iterator[str]:
        """What a person should know of where the window is drawn."""
        if self.apart_ns:
            apart = format_value(self.apart_ns)
            yield f"not drawn beside the other ranks: that would span {apart}"
        elif self.length_ns:
            if head.lead_ns > self.error_ns and head.lead_ns >= LEAST_LATE * head.window.length_ns:
                yield f"its window begins {format_value(head.lead_ns)} after the first one here"
            if head.window.clock:
                yield head.window.clock


def sides_of(picture: Picture) -> list[PlacedWindow]:
    """The windows of a picture, base before head."""
    return [
        PlacedWindow(name, one) for name, one in (("base", picture.base), ("head", picture.head)) if one is not None
    ]


def frame_of(pictures: Sequence[Picture]) -> Frame:
    """What the windows of one run are drawn in: as they were beside each other, where that can still be seen."""
    shown = [(name, one) for picture in pictures for name, one, _ in sides_of(picture)]
    known = [(name, one.began_ns, one.length_ns) for name, one in shown if one.began_ns is not None]
    if len({picture.key for picture in pictures if sides_of(picture)}) < 2 or not known:
        return Frame()
    first = {side: min(began for name, began, _ in known if name == side) for side, _, _ in known}
    length = max(began - first[side] + own for side, began, own in known)
    if length > MOST_TIMES * max(one.length_ns for _, one in shown):
        return Frame(apart_ns=length)
    errors = sorted(one.clock_error_ns or 0 for _, one in shown)
    return Frame(max(length, *(one.length_ns for _, one in shown)), first, sum(errors[-2:]))


def timeline_views(
    pictures: Sequence[Picture], marks: Marks = NO_MARKS, places: Mapping[str, str] = MappingProxyType({})
) -> list[Drawn]:
    """The pictures of some ranks; those of one run on one scale, each where it was beside the others. ``places`` say by
    key which run it is of, where there are several.
    """
    frames: dict[str, Frame] = {}
    for beside, own in grouped((picture.beside, picture) for picture in pictures).items():
        frames[beside] = frame_of(own)
    return [
        _timeline_view(each, number, frames[each.beside], marks.get(each.key, ()), places.get(each.key, ""))
        for number, each in enumerate(pictures, 1)
    ]


_DRAWN = (What.KERNEL, What.COLLECTIVE, What.COPY, What.MEMSET)


def marks_of(rows: Iterable[Explained], rank: int) -> list[Mark]:
    """The kernels, copies and calls of a rank at the root of why rows are worse; of one without a root what leads."""
    found: dict[Mark, None] = {}
    rows = list(rows)
    known = any(row.roots for row in rows)
    for row in rows:
        for root in (change.root for change in row.roots if change.rank == rank):
            if root.of in _DRAWN:
                found[_mark(root.name, root.stage)] = None
            if root.of in _DRAWN and root.instead_of:
                found[_mark(root.instead_of, root.stage)] = None
            if root.of in (What.CALL, What.HOST) and root.name:
                found[Mark(root.name, None, of_host=True)] = None
        leading = row.explanation.leading
        if not known and leading is not None and leading.root.name and row.labels.get("rank", rank) == rank:
            found[_mark(leading.root.name, str(row.labels.get("stage", "")))] = None
    return [*found]


def _mark(name: str, stage: str) -> Mark:
    return Mark(name, stage if stage not in ("", NO_STAGE) else None)


def _named(causes: Sequence[str]) -> str:
    """The first few by names for people."""
    return ", ".join(readable_names(causes[:MOST_MARKED]).values()) + (" …" if len(causes) > MOST_MARKED else "")


def _known_by(bar: Bar) -> str:
    """By what a cause names it; transfers have but a name."""
    return bar.telling or bar.name


def _timeline_view(picture: Picture, number: int, frame: Frame, marked: Collection[Mark], of: str) -> Drawn:
    """The picture of one rank ``of`` a run, base above head, or ``why`` there is none."""
    head = picture.head
    found = [frame.placed(side) for side in sides_of(picture)]
    named = found if len(found) > 1 else [side._replace(name="") for side in found]
    title = f"rank {picture.rank}" + (f" of {of}" if of else "")
    title += f" ({head.place})" if head is not None and head.place else ""
    ident = f"window-{number}"
    length = max((frame.length_ns, *(lead + one.length_ns for _, one, lead in named)), default=1)
    stages = list(dict.fromkeys(stage for side in named for _, _, stage in side.window.bands))
    lanes = [lane for side in named for lane in side.window.lanes]
    shown = large_parts([(name, one.budget) for name, one, _ in named if one.budget is not None])
    telling, gaps = _telling(lanes, marked, length), frozenset(shown - {BudgetPart.COMPUTE})
    scene = _Scene(ident, length, stages, marked, telling, gaps)
    sides = [_side(side, scene) for side in named]
    bars = [bar for lane in lanes for bar in lane.bars]
    drawn = {_known_by(bar) for bar in bars}
    causes = [*dict.fromkeys(mark.name for mark in marked if mark.name in drawn or mark.of_host)]
    together = sum(bar.kernels for bar in bars if bar.kernels > 1)
    notes = [f"{together} short kernels are drawn together with their neighbours"] if together else []
    quiet = len({lane.name for lane in lanes} - telling) + any(s["gaps"] and s["gaps"]["is_quiet"] for s in sides)
    return {
        "id": ident,
        "rank": picture.rank,
        "title": title,
        "about": "; ".join(dict.fromkeys(side.window.window for side in named)),
        "said": f"Timeline of {title}: " + "; ".join(f"{side['name']} {side['about']}".strip() for side in sides),
        "length_ns": length,
        "patterns": _patterns(named, scene),
        "sides": sides,
        "quiet": f"{counted(quiet, 'more lane')}" if quiet else "",
        "ticks": [*_ticks(length)],
        "hues": _hues(lanes),
        "causes": ", ".join(readable_names(causes[:MOST_MARKED]).values())
        + (" …" if len(causes) > MOST_MARKED else ""),
        "has_barriers": any(bar.is_barrier for bar in bars),
        "has_communication": any(lane.kind == "communication" for lane in lanes),
        "has_copies": any(lane.kind == "copies" for lane in lanes),
        "has_exposed": any(lane.exposed for lane in lanes),
        "data": {"length": length, "sides": [_data(side) for side in named]},
        "budget": budget_view([(name, one.budget) for name, one, _ in named if one.budget is not None], title, length),
        "budget_why": [
            f" of {name}: {why}" if name else f": {why}" for name, one, _ in named if (why := one.budget_why)
        ],
        "why": picture.why or ("" if named else "its window was not kept"),
        "note": "; ".join([*notes, *(frame.told(found[-1]) if head is not None else ())]),
    }


class _Scene(NamedTuple):
    """What the sides of a picture share: ``stages`` are those of both in the order of their colours, ``telling`` the
    lanes that are never folded, ``named`` the parts of gaps that the legend has by name.
    """

    ident: str
    length_ns: int
    stages: Sequence[str]
    marked: Collection[Mark]
    telling: frozenset[str]
    named: frozenset[Shown]


def _telling(lanes: Iterable[TimelineLane], marked: Collection[Mark], length_ns: int) -> frozenset[str]:
    """The lanes to see first: those of a cause, those that compute, then by how long they were exposed, and busy. Not
    those that are as good as empty.
    """
    causes = {mark.name for mark in marked}

    def weight(own: Sequence[TimelineLane]) -> tuple[bool, bool, int, int]:
        told = any(_known_by(bar) in causes for lane in own for bar in lane.bars)
        busiest, most = max(lane.busy_ns for lane in own), max(lane.exposed_ns for lane in own)
        return told, own[0].kind == "compute", most, busiest

    named = grouped((lane.name, lane) for lane in lanes)
    seen = [n for n, own in named.items() if weight(own)[0] or max(one.busy_ns for one in own) * 100 >= length_ns]
    return frozenset(sorted(seen, key=lambda name: weight(named[name]), reverse=True)[:MOST_LANES])


def _patterns(sides: Iterable[PlacedWindow], scene: _Scene) -> list[tuple[str, str, str]]:
    """Each pattern of what is drawn of gaps: its name here, what it is, and its scale, as it is not stretched."""
    drawn = {gap.part.part for side in sides for gap in side.window.gaps} & scene.named
    return _pattern_scales(scene.ident, drawn, scene.length_ns)


def _pattern_scales(ident: str, drawn: Collection[Shown], length_ns: int) -> list[tuple[str, str, str]]:
    scale = f"scale({max(length_ns // USUAL_WIDTH, 1)} 1)"
    return [(f"{ident}-{css(part)}", css(part), scale) for part in BudgetPart if part in drawn]


def _hue(family: str) -> str:
    return f"family-{HUES.get(family, NAMELESS)}"


def _hues(lanes: Iterable[TimelineLane]) -> list[tuple[str, str]]:
    """Each colour of compute that is drawn, and the families that have it."""
    compute = (bar for lane in lanes if lane.kind == "compute" for bar in lane.bars)
    drawn = sorted({bar.family for bar in compute if not bar.is_barrier})
    hues = grouped((_hue(family), family) for family in drawn)
    return [(hue, ", ".join(f for f in own if f in HUES) or NAMELESS) for hue, own in sorted(hues.items())]


class _Path(NamedTuple):
    """Bars of one class as stretches of a line of so much ``width``; ``pattern`` is what it is painted with."""

    css: str
    width: int
    d: str
    pattern: str = ""


def _path(css: str, spans: Iterable[tuple[int, int]], shape: tuple[int, int] = WHOLE, ident: str = "") -> _Path:
    """Absolute starts, for floats add up. ``ident`` is that of a picture with patterns."""
    top, height = shape
    middle = f"{top + height / 2:g}"
    d = "".join(f"M{start} {middle}h{end - start}" for start, end in spans)
    return _Path(css, height, d, f"url(#{ident}-{css})" if ident else "")


def _side(side: PlacedWindow, scene: _Scene) -> Drawn:
    """One window."""
    one, after, length = side.window, side.lead_ns + side.window.length_ns, scene.length_ns
    beyond = _path("outside", [span for span in ((0, side.lead_ns), (after, length)) if span[0] < span[1]])
    outside = [beyond] if beyond.d else []
    bands = [(side.x(start), side.x(end), stage) for start, end, stage in one.bands]
    by_colour = grouped((scene.stages.index(stage) % COLOURS, (start, end)) for start, end, stage in bands)
    about = f"{one.window}, {format_value(one.length_ns, 'ns')}, {counted(one.kernels, 'kernel')}"
    labelled = ((start, end, label_of(stage, Fraction(end - start, length))) for start, end, stage in bands)
    return {
        "name": side.name,
        "about": f"{about} ({one.measured})",
        "gaps": _gaps(side, outside, scene) if one.budget is not None else None,
        "lanes": [_lane(lane, side, outside, scene) for lane in one.lanes],
        "bands": [
            *(outside if by_colour else ()),
            *(_path(f"band{colour}", spans) for colour, spans in sorted(by_colour.items())),
        ],
        "labels": [
            (percent(Fraction(start + end, 2 * length)), *label) for start, end, label in labelled if label is not None
        ],
    }


def _lane(lane: TimelineLane, side: PlacedWindow, outside: Sequence[_Path], scene: _Scene) -> Drawn:
    """One lane: the paths by class, and what it amounts to in words and in numbers.

    ``labels`` are where a bar is that has room for a name, how wide, and the name.
    """
    length, marked = scene.length_ns, {*scene.marked}
    bars = [((side.x(bar.start_ns), side.x(bar.end_ns)), bar) for bar in lane.bars]
    plain = grouped(
        (_hue(bar.family) if lane.kind == "compute" else lane.kind, span) for span, bar in bars if not bar.is_barrier
    )
    underlined = (span for span, bar in bars if {Mark(_known_by(bar), bar.stage), Mark(_known_by(bar), None)} & marked)
    drawn = (
        *(_path(css, spans, BODY) for css, spans in sorted(plain.items())),
        _path("barrier", (span for span, bar in bars if bar.is_barrier)),
        _path("exposed", ((side.x(start), side.x(end)) for start, end in lane.exposed)),
        _path("marked", underlined, UNDERLINE),
    )
    name, purpose, busy = lane.name, lane.purpose, format_value(lane.busy_ns, "ns")
    exposed = format_value(lane.exposed_ns, "ns") if lane.kind == "communication" else ""
    noun = "transfer" if lane.kind == "copies" else "kernel"
    said = f"{name}, {purpose}: {counted(lane.kernels, noun)}, busy {busy}"
    return {
        "name": name,
        "kind": purpose,
        "is_quiet": name not in scene.telling,
        "paths": [*outside, *(each for each in drawn if each.d)],
        "labels": [
            (percent(Fraction(start, length)), percent(Fraction(end - start, length)), bar.name)
            for (start, end), bar in bars
            if end - start >= LEAST_NAMED * length
        ],
        "said": said + (f", exposed {exposed}" if exposed else ""),
        "numbers": (name, purpose, str(lane.kernels), busy, exposed or "–"),
    }


def _gaps(side: PlacedWindow, outside: Sequence[_Path], scene: _Scene) -> Drawn:
    """The times without compute: a path for each class that the legend names, and one of the rest. Where the host is a
    cause, what it launched late is marked.
    """
    gaps = side.window.gaps
    spans = grouped(
        (gap.part.part if gap.part.part in scene.named else REST, (side.x(gap.part.start_ns), side.x(gap.part.end_ns)))
        for gap in gaps
    )
    paths = []
    for part, own in sorted(spans.items(), key=lambda each: str(each[0])):
        paths += _part_paths(part, own, scene.ident, scene.length_ns)
    late = spans.get(BudgetPart.STARVED, ()) if any(mark.of_host for mark in scene.marked) else ()
    paths.append(_path("marked", [span for span in late if span[1] - span[0] >= PIXEL * scene.length_ns], UNDERLINE))
    parts = counted(sum(gap.number for gap in gaps), "part")
    said = f"no compute: {parts} of gaps"
    return {"paths": [*outside, *(each for each in paths if each.d)], "said": said, "is_quiet": not scene.named}


def _part_paths(part: Shown, spans: Sequence[tuple[int, int]], ident: str, length_ns: int) -> list[_Path]:
    """Return the paths of one part of the budget: what is wide has its pattern."""
    wide = [span for span in spans if part != REST and span[1] - span[0] >= LEAST_PATTERN * length_ns]
    narrow = _path(css(part), [span for span in spans if span not in wide])
    return [path for path in (narrow, _path(css(part), wide, ident=ident)) if path.d]


def _ticks(length: int) -> Iterator[tuple[str, str, str]]:
    """Round times in one unit: where, which end of the text stands there, the text."""
    step = 1
    while length > MOST_TICKS * step:
        step *= 10
    step = next((step // part for part in (5, 2) if step % part == 0 and length <= MOST_TICKS * (step // part)), step)
    word = next(word for word, scale in reversed([*NANOSECONDS.items()]) if step >= scale)
    for at in range(0, length + 1, step):
        share = Fraction(at, length)
        anchor = "start" if share < Fraction(4, 100) else "end" if share > Fraction(94, 100) else "middle"
        number = Fraction(at, NANOSECONDS[word])
        yield percent(share), anchor, f"{number if number.denominator == 1 else float(number)} {word}"


def _data(side: PlacedWindow) -> Drawn:
    """What hovering shows."""
    names, stages = _Numbers(), _Numbers()
    one = side.window
    bands = [[side.x(start), end - start, stages[stage]] for start, end, stage in one.bands]
    lanes = [_lane_data(lane, side, names, stages) for lane in one.lanes]
    idle = _gap_data(side, names, stages) if one.budget is not None else None
    return {
        "name": side.name,
        "names": [*names],
        "stages": [*stages],
        "bands": bands,
        "lanes": lanes,
        "gaps": idle,
    }


class _Numbers(dict[str, int]):
    """The number of each text, in the order of their first use."""

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, len(self))


def _lane_data(lane: TimelineLane, side: PlacedWindow, names: _Numbers, stages: _Numbers) -> Drawn:
    return {
        "name": f"{lane.name}, {lane.purpose}",
        "c": int(lane.kind != "communication"),
        "s": differences([side.x(bar.start_ns) for bar in lane.bars]),
        "d": [bar.end_ns - bar.start_ns for bar in lane.bars],
        "n": [names[bar.name] for bar in lane.bars],
        "g": [stages[bar.stage] for bar in lane.bars],
        "x": [bar.exposed_ns for bar in lane.bars] if lane.kind == "communication" else [],
        "b": [i for i, bar in enumerate(lane.bars) if bar.is_barrier],
    }


def _gap_data(side: PlacedWindow, names: _Numbers, stages: _Numbers) -> Drawn:
    """``w``: who waited and for what, by name and stage; ``a``: an arrow, by lane and time."""
    parts = [gap.part for gap in side.window.gaps]
    numbered = [*enumerate(side.window.gaps)]
    alone = [(i, (part.waiting, part.producer), arrow) for i, (part, number, arrow) in numbered if number == 1]
    return {
        "name": "without compute",
        "kinds": PARTS,
        "s": differences([side.x(part.start_ns) for part in parts]),
        "d": [part.end_ns - part.start_ns for part in parts],
        "k": [PARTS.index(part.part) for part in parts],
        "m": {i: number for i, (_, number, _) in numbered if number > 1},
        "w": {
            i: [n for each in who for n in ((names[each.name], stages[each.stage]) if each else (NOBODY, NOBODY))]
            for i, who, _ in alone
        },
        "a": {
            i: [arrow[0], side.x(by.end_ns), arrow[1], side.x(waiting.start_ns)]
            for i, (waiting, by), arrow in alone
            if arrow is not None and waiting is not None and by is not None
        },
    }


def differences(starts: Sequence[int]) -> list[int]:
    """Each start minus the one before: they are short."""
    return [start - before for before, start in zip([0, *starts], starts, strict=False)]


STRIPS = "strips"
"""Names the patterns of the strips on a page."""


def strip_views(strips: Sequence[RankStrip]) -> Drawn:
    """Return what the template draws of the ranks' strips, on the scale of the longest window."""
    longest_ns = max((strip.length_ns for strip in strips), default=0) or 1
    parts = {gap.part for strip in strips for gap in strip.gaps}
    return {
        "length_ns": longest_ns,
        "patterns": _pattern_scales(STRIPS, parts, longest_ns),
        "rows": [_strip_view(strip, longest_ns) for strip in strips],
    }


def _strip_view(strip: RankStrip, longest_ns: int) -> Drawn:
    by_part = grouped((gap.part, (gap.start_ns - strip.start_ns, gap.end_ns - strip.start_ns)) for gap in strip.gaps)
    paths = [_path(css(BudgetPart.COMPUTE), [(0, strip.length_ns)])] if strip.length_ns else []
    paths += [_path("outside", spans) for spans in by_part.values()]  # no compute shines through what is drawn on it
    for part, spans in sorted(by_part.items()):
        paths += _part_paths(part, spans, STRIPS, longest_ns)
    length = format_value(strip.length_ns)
    said = f"rank {strip.rank}, {length}: when it computed, and why not"
    return {"rank": strip.rank, "length": length, "paths": paths, "said": said, "why": strip.why}
