"""How is a window drawn: paths of each lane, ticks of the axis, the numbers beside, the data that hovering needs?

The picture is drawn here, so that it is whole without a script: x is nanoseconds since the window's start, or since
that of the first of several ranks that are drawn beside each other, y from 0 to 20. Base and head share one scale. What
the template draws has the names that it uses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pytest_nsys.analysis.budget_facts import Part
from pytest_nsys.analysis.explained import Explained
from pytest_nsys.analysis.timeline import LONGEST_NAME, PARTS, Timeline, TimelineGaps, TimelineLane
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import NANOSECONDS
from pytest_nsys.core.words import counted, printable
from pytest_nsys.reports.headline import LESS_COVER
from pytest_nsys.reports.page.beside import Frame, frame_of, later, sides_of
from pytest_nsys.reports.page.budget_view import Sides, budget_view, css
from pytest_nsys.reports.page.drawing import LEAST_LABELLED, Drawn, percent
from pytest_nsys.reports.tables import numbers, texts

if TYPE_CHECKING:
    from pytest_nsys.reports.page.pictures import Picture

HEIGHT = 20
BODY = (4, 12)
"""Top and height of a kernel; exposed parts and barriers are as high as the lane, to be told without colour."""

UNDERLINE = (17, 3)
"""Top and height of what marks the kernels of a cause."""

COLOURS = 6
"""Of the stages, used in turn."""

HUES: Mapping[str, str] = {
    **dict.fromkeys(("gemm", "convolution"), "gemm"),
    **dict.fromkeys(("attention", "flash_attn"), "attention"),
    **dict.fromkeys(("norm", "softmax", "reduce"), "norm"),
    **dict.fromkeys(("memory", "index", "input_scatter_fusion"), "memory"),
    **{family: family for family in ("elementwise", "triton", "moe", "optimizer")},
}
"""The colour of compute by its family; families of a kind share one. Others have that of *other*."""

NAMELESS = "other"
MOST_MARKED = 4

MOST_TICKS = 6
COLUMNS = (*texts("lane", "purpose"), *numbers("kernels", "busy", "exposed"))


class Mark(NamedTuple):
    """Kernels that caused what is bad; ``stage`` None: those of all stages."""

    name: str
    stage: str | None


Marks = Mapping[str, Collection[Mark]]
"""What is marked, by the key of a picture."""

NO_MARKS: Marks = MappingProxyType({})


def timeline_views(pictures: Sequence[Picture], marks: Marks = NO_MARKS) -> list[Drawn]:
    """The pictures of some ranks; those of one run on one scale, each where it was beside the others."""
    frames: dict[str, Frame] = {}
    for beside, own in grouped((picture["beside"], picture) for picture in pictures).items():
        frames[beside] = frame_of(own)
    return [
        _timeline_view(each, number, frames[each["beside"]], marks.get(each["key"], ()))
        for number, each in enumerate(pictures, 1)
    ]


def marks_of(rows: Iterable[Explained], rank: int) -> list[Mark]:
    """The kernels that lead in why rows of a rank, or of no rank, are worse: in the stage of the row those that got
    longer, where there are none those that overlap less.
    """
    found: dict[bool, dict[Mark, None]] = {True: {}, False: {}}
    for row in rows:
        leading = row.explanation.leading
        if leading is not None and leading.kernel and row.labels.get("rank", rank) == rank:
            covers, stage = leading.kind in LESS_COVER, row.labels.get("stage")
            mark = Mark(printable(leading.kernel, LONGEST_NAME), None if covers or stage is None else str(stage))
            found[covers][mark] = None
    return [*(found[False] or found[True])]


def _timeline_view(picture: Picture, number: int, frame: Frame, marked: Collection[Mark]) -> Drawn:
    """The picture of one rank, base above head, or ``why`` there is none."""
    head = picture["head"]
    shown = [(name, one, frame.lead_ns(name, one)) for name, one in sides_of(picture)]
    found: Sides = [(name, later(one, lead)) for name, one, lead in shown]
    named = found if len(found) > 1 else [("", one) for _, one in found]
    windows = [(lead, one["length_ns"]) for _, one, lead in shown]
    place = f" ({head['place']})" if head is not None and head["place"] else ""
    title = f"rank {picture['rank']}{place}"
    length = max((frame.length_ns, *(start + own for start, own in windows)), default=1)
    stages = list(dict.fromkeys(one["stages"][band[2]] for _, one in named for band in one["bands"]))
    sides = [_side(each, window, length, stages, marked) for each, window in zip(named, windows, strict=True)]
    lanes = [lane for _, one in named for lane in one["lanes"]]
    drawn = {one["names"][n] for _, one in named for lane in one["lanes"] for n in lane["names"]}
    causes = [*dict.fromkeys(mark.name for mark in marked if mark.name in drawn)]
    together = sum(one["taken_together"] for _, one in named)
    notes = [f"{together} short kernels are drawn together with their neighbours"] if together else []
    return {
        "id": f"window-{number}",
        "title": title,
        "said": f"Timeline of {title}: " + "; ".join(f"{side['name']} {side['about']}".strip() for side in sides),
        "length_ns": length,
        "sides": sides,
        "ticks": [*_ticks(length)],
        "hues": _hues(one for _, one in named),
        "causes": ", ".join(causes[:MOST_MARKED]) + (" …" if len(causes) > MOST_MARKED else ""),
        "has_barriers": any(any(lane["barriers"]) for lane in lanes),
        "has_communication": any(lane["kind"] == "communication" for lane in lanes),
        "has_copies": any(lane["kind"] == "copies" for lane in lanes),
        "has_gaps": any(one["gaps"] and one["gaps"]["starts"] for _, one in named),
        "has_exposed": any(lane["exposed"] for lane in lanes),
        "data": {"length": length, "sides": [_data(name, one) for name, one in named]},
        "budget": budget_view(named, title),
        "budget_why": [
            f" of {name}: {why}" if name else f": {why}" for name, one in named if (why := one["budget_why"])
        ],
        "why": picture["why"] or ("" if named else "its window was not kept"),
        "note": "; ".join([*notes, *(frame.told(head) if head is not None else ())]),
    }


def _hue(family: str) -> str:
    return f"family-{HUES.get(family, NAMELESS)}"


def _hues(sides: Iterable[Timeline]) -> list[tuple[str, str]]:
    """Each colour of compute that is drawn, and the families that have it."""
    drawn = sorted(
        {
            (one["families"][n], int(barrier))
            for one in sides
            for lane in one["lanes"]
            if lane["kind"] == "compute"
            for n, barrier in zip(lane["names"], lane["barriers"], strict=True)
        }
    )
    hues = grouped((_hue(family), family) for family, barrier in drawn if not barrier)
    return [(hue, ", ".join(f for f in own if f in HUES) or NAMELESS) for hue, own in sorted(hues.items())]


def _side(
    named: tuple[str, Timeline],
    window: tuple[int, int],
    length: int,
    stages: Sequence[str],
    marked: Collection[Mark],
) -> Drawn:
    """One window, of such a start and length; ``stages`` are those of both sides, in the order of their colours."""
    name, one = named
    start, own = window
    beyond = _path([each for each in ((0, start), (start + own, length - start - own)) if each[1]], 0, HEIGHT)
    outside = [("outside", beyond)] if beyond else []
    by_colour: dict[int, list[tuple[int, int]]] = {}
    for start, own, stage in one["bands"]:
        by_colour.setdefault(stages.index(one["stages"][stage]) % COLOURS, []).append((start, own))
    about = f"{one['window']}, {format_value(one['length_ns'], 'ns')}, {counted(one['kernels'], 'kernel')}"
    return {
        "name": name,
        "about": f"{about} ({one['measured']})",
        "gaps": _gaps(one["gaps"], outside) if one["gaps"] else None,
        "lanes": [_lane(lane, one, length, outside, marked) for lane in one["lanes"]],
        "bands": [
            *(outside if by_colour else ()),
            *((f"band{colour}", _path(spans, 0, HEIGHT)) for colour, spans in sorted(by_colour.items())),
        ],
        "labels": [
            (percent(Fraction(2 * start + own, 2 * length)), one["stages"][stage])
            for start, own, stage in one["bands"]
            if own >= LEAST_LABELLED * length
        ],
    }


def _lane(
    lane: TimelineLane, one: Timeline, length: int, outside: Sequence[tuple[str, str]], marked: Collection[Mark]
) -> Drawn:
    """One lane: the paths by class, and what it amounts to in words and in numbers.

    ``labels`` are where a bar is that has room for a name, how wide, and the name.
    """
    bars = list(zip(lane["starts"], lane["lengths"], lane["barriers"], lane["names"], strict=True))
    kernels = (
        (one["names"][name], one["stages"][stage]) for name, stage in zip(lane["names"], lane["stages"], strict=True)
    )
    is_marked = [bool({Mark(name, stage), Mark(name, None)} & {*marked}) for name, stage in kernels]
    plain = grouped(
        (_hue(one["families"][name]) if lane["kind"] == "compute" else lane["kind"], (start, own))
        for start, own, barrier, name in bars
        if not barrier
    )
    drawn = (
        *((css, _path(spans, *BODY)) for css, spans in sorted(plain.items())),
        ("barrier", _path((bar[:2] for bar in bars if bar[2]), 0, HEIGHT)),
        ("exposed", _path(((start, end - start) for start, end in lane["exposed"]), 0, HEIGHT)),
        ("marked", _path((bar[:2] for bar, own in zip(bars, is_marked, strict=True) if own), *UNDERLINE)),
    )
    name, purpose, busy = lane["name"], lane["purpose"], format_value(lane["busy_ns"], "ns")
    exposed = format_value(lane["exposed_ns"], "ns") if lane["kind"] == "communication" else ""
    noun = "transfer" if lane["kind"] == "copies" else "kernel"
    said = f"{name}, {purpose}: {counted(lane['kernels'], noun)}, busy {busy}"
    return {
        "name": name,
        "kind": purpose,
        "paths": [*outside, *(each for each in drawn if each[1])],
        "labels": [
            (percent(Fraction(start, length)), percent(Fraction(own, length)), one["names"][name])
            for start, own, _, name in bars
            if own >= LEAST_LABELLED * length
        ],
        "said": said + (f", exposed {exposed}" if exposed else ""),
        "numbers": (name, purpose, str(lane["kernels"]), busy, exposed or "–"),
    }


SHAPES = {Part.STARVED: (HEIGHT // 2, HEIGHT // 2), Part.BESIDE: (3, 14), Part.STALLED: (7, 6)}
"""Top and height of a part of a gap; what was blocked is as high as the lane."""


def _gaps(gaps: TimelineGaps, outside: Sequence[tuple[str, str]]) -> Drawn:
    """The times without compute: a path for each class."""
    together, alone = sum(gaps["counts"].values()), len(gaps["starts"]) - len(gaps["counts"])
    spans: dict[Part, list[tuple[int, int]]] = {}
    for start, length, part in zip(gaps["starts"], gaps["lengths"], gaps["parts"], strict=True):
        spans.setdefault(PARTS[part], []).append((start, length))
    return {
        "paths": [
            *outside,
            *((css(part), _path(own, *SHAPES.get(part, (0, HEIGHT)))) for part, own in sorted(spans.items())),
        ],
        "said": f"without compute: {counted(together + alone, 'part')} of gaps",
    }


def _path(spans: Iterable[tuple[int, int]], top: int, height: int) -> str:
    """Rectangles as one path; absolute starts, for floats add up."""
    return "".join(f"M{start} {top}h{length}v{height}h-{length}z" for start, length in spans)


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


def _data(name: str, one: Timeline) -> Drawn:
    """What hovering shows."""
    lanes = [_lane_data(lane) for lane in one["lanes"]]
    idle = _gap_data(one["gaps"]) if one["gaps"] else None
    lists = {"names": one["names"], "stages": one["stages"], "bands": one["bands"]}
    return {"name": name, **lists, "lanes": lanes, "gaps": idle}


def _lane_data(lane: TimelineLane) -> Drawn:
    starts = lane["starts"]
    return {
        "name": f"{lane['name']}, {lane['purpose']}",
        "c": int(lane["kind"] != "communication"),
        "s": differences(starts),
        "d": lane["lengths"],
        "n": lane["names"],
        "g": lane["stages"],
        "x": lane["exposed_each"] if lane["kind"] == "communication" else [],
        "b": [i for i, barrier in enumerate(lane["barriers"]) if barrier],
    }


def _gap_data(gaps: TimelineGaps) -> Drawn:
    return {
        "name": "without compute",
        "kinds": [part.value for part in PARTS],
        "s": differences(gaps["starts"]),
        "d": gaps["lengths"],
        "k": gaps["parts"],
        "m": gaps["counts"],
        "w": gaps["waits"],
        "a": gaps["arrows"],
    }


def differences(starts: Sequence[int]) -> list[int]:
    """Each start minus the one before: they are short."""
    return [start - before for before, start in zip([0, *starts], starts, strict=False)]
