"""How is a window drawn: paths of each lane, ticks of the axis, the numbers beside, the data that hovering needs?

The picture is drawn here, so that it is whole without a script: x is nanoseconds since the window's start, y from 0 to
20. Base and head share one scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pytest_nsys.analysis.timeline import Timeline, TimelineLane
from pytest_nsys.core.model import counted
from pytest_nsys.core.units import NANOSECONDS, format_value
from pytest_nsys.reports.tables import Column, number

if TYPE_CHECKING:
    from pytest_nsys.reports.page.pictures import Picture

HEIGHT = 20
BODY = (4, 12)
"""Top and height of a kernel; exposed parts and barriers are as high as the lane, to be told without colour."""

COLOURS = 6
"""Of the stages, used in turn."""

MOST_TICKS = 6
LEAST_LABELLED = Fraction(7, 100)
"""Of the window that a band takes whose name is written into it; the script knows better."""


@dataclass(frozen=True, slots=True)
class LaneView:
    """One lane: the paths by class, and what it amounts to in words."""

    name: str
    kind: str
    paths: tuple[tuple[str, str], ...]
    said: str
    numbers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SideView:
    """One window. ``name`` is base or head, empty where there is one. ``labels`` are (percent, stage)."""

    name: str
    about: str
    lanes: tuple[LaneView, ...]
    bands: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TimelineView:
    """One rank, base above head. ``ticks`` are (percent, anchor, label); ``data`` is what the script reads."""

    id: str
    title: str
    said: str
    length_ns: int
    sides: tuple[SideView, ...]
    ticks: tuple[tuple[str, str, str], ...]
    has_barriers: bool
    has_bands: bool
    has_exposed: bool
    data: dict[str, Any]
    why: str = ""
    note: str = ""


COLUMNS = (Column("lane"), Column("purpose"), *map(number, ("kernels", "busy", "exposed")))


def timeline_view(picture: Picture, number: int) -> TimelineView:
    """The picture of one rank, or why there is none."""
    head, base = picture["head"], picture["base"]
    found = [(name, one) for name, one in (("base", base), ("head", head)) if one is not None]
    named = found if len(found) > 1 else [("", one) for _, one in found]
    place = f" ({head['place']})" if head is not None and head["place"] else ""
    title = f"rank {picture['rank']}{place}"
    length = max((one["length_ns"] for _, one in named), default=1)
    stages = list(dict.fromkeys(one["stages"][band[2]] for _, one in named for band in one["bands"]))
    sides = tuple(_side(name, one, length, stages) for name, one in named)
    lanes = [lane for _, one in named for lane in one["lanes"]]
    together = sum(one["taken_together"] for _, one in named)
    return TimelineView(
        id=f"window-{number}",
        title=title,
        said=f"Timeline of {title}: " + "; ".join(f"{side.name} {side.about}".strip() for side in sides),
        length_ns=length,
        sides=sides,
        ticks=tuple(_ticks(length)),
        has_barriers=any(any(lane["barriers"]) for lane in lanes),
        has_bands=any(one["bands"] for _, one in named),
        has_exposed=any(lane["exposed"] for lane in lanes),
        data={"length": length, "sides": [_data(name, one) for name, one in named]},
        why=picture["why"] or ("" if named else "its window was not kept"),
        note=f"{together} short kernels are drawn together with their neighbours" if together else "",
    )


def _side(name: str, one: Timeline, length: int, stages: Sequence[str]) -> SideView:
    """One window; ``stages`` are those of both sides, in the order of their colours."""
    lanes = tuple(_lane(lane) for lane in one["lanes"])
    about = f"{one['window']}, {format_value(one['length_ns'], 'ns')}, {counted(one['kernels'], 'kernel')}"
    return SideView(name, f"{about} ({one['measured']})", lanes, _bands(one, stages), tuple(_labels(one, length)))


def _lane(lane: TimelineLane) -> LaneView:
    spans = list(zip(lane["starts"], lane["lengths"], strict=True))
    bodies = [span for span, barrier in zip(spans, lane["barriers"], strict=True) if not barrier]
    barriers = [span for span, barrier in zip(spans, lane["barriers"], strict=True) if barrier]
    exposed = [(start, end - start) for start, end in lane["exposed"]]
    drawn = (
        ("compute" if lane["computes"] else "communication", _path(bodies, *BODY)),
        ("barrier", _path(barriers, 0, HEIGHT)),
        ("exposed", _path(exposed, 0, HEIGHT)),
    )
    busy, open_ns = (format_value(lane[key], "ns") for key in ("busy_ns", "exposed_ns"))
    told = "" if lane["computes"] else open_ns
    many = counted(lane["kernels"], "kernel")
    said = f"{lane['name']}, {lane['purpose']}: {many}, busy {busy}" + (f", exposed {told}" if told else "")
    numbers = (lane["name"], lane["purpose"], str(lane["kernels"]), busy, told or "–")
    return LaneView(lane["name"], lane["purpose"], tuple(each for each in drawn if each[1]), said, numbers)


def _path(spans: Sequence[tuple[int, int]], top: int, height: int) -> str:
    """Rectangles as one path; absolute starts, for floats add up."""
    return "".join(f"M{start} {top}h{length}v{height}h-{length}z" for start, length in spans)


def _bands(one: Timeline, stages: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """A path for each colour."""
    by_colour: dict[int, list[tuple[int, int]]] = {}
    for start, length, stage in one["bands"]:
        by_colour.setdefault(stages.index(one["stages"][stage]) % COLOURS, []).append((start, length))
    return tuple((f"band{colour}", _path(spans, 0, HEIGHT)) for colour, spans in sorted(by_colour.items()))


def _labels(one: Timeline, length: int) -> Iterator[tuple[str, str]]:
    for start, own, stage in one["bands"]:
        if own >= LEAST_LABELLED * length:
            yield percent(Fraction(2 * start + own, 2 * length)), one["stages"][stage]


def percent(share: Fraction) -> str:
    """``12.5%``."""
    return f"{float(100 * share):.3f}".rstrip("0").rstrip(".") + "%"


def _ticks(length: int) -> Iterator[tuple[str, str, str]]:
    """Round times, in one unit."""
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


def _data(name: str, one: Timeline) -> dict[str, Any]:
    """What hovering shows: starts as differences, which are short."""
    return {
        "name": name,
        "names": one["names"],
        "stages": one["stages"],
        "bands": one["bands"],
        "lanes": [_lane_data(lane) for lane in one["lanes"]],
    }


def _lane_data(lane: TimelineLane) -> dict[str, Any]:
    starts = lane["starts"]
    steps = [start - before for before, start in zip([0, *starts], starts, strict=False)]
    return {
        "name": f"{lane['name']}, {lane['purpose']}",
        "c": int(lane["computes"]),
        "s": steps,
        "d": lane["lengths"],
        "n": lane["names"],
        "g": lane["stages"],
        "x": [] if lane["computes"] else lane["exposed_each"],
        "b": [i for i, barrier in enumerate(lane["barriers"]) if barrier],
    }
