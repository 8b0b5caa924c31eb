"""Where is the window of a rank drawn beside those of other ranks? At its time on their common clock, on one scale.

Base and head have a clock each: the first window of either begins at 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pytest_nsys.analysis.timeline import Timeline, TimelineGaps, TimelineLane
from pytest_nsys.core.numbers import format_value
from pytest_nsys.reports.page.budget_view import Sides

if TYPE_CHECKING:
    from pytest_nsys.reports.page.pictures import Picture

MOST_TIMES = 2
"""The longest window fits so often into what is drawn: of windows further apart one would see a line each."""


class Frame(NamedTuple):
    """What some ranks are drawn in: ``first_ns`` is when the first window of each side began, ``error_ns`` by how much
    what is between two of them may be wrong. Empty where they are not drawn beside each other, since they would take
    ``apart_ns``.
    """

    length_ns: int = 0
    first_ns: Mapping[str, int] = MappingProxyType({})
    error_ns: int = 0
    apart_ns: int = 0

    def lead_ns(self, side: str, one: Timeline) -> int:
        """How much later than the first a window of the side began; 0 where it is unknown."""
        began = one["began_ns"]
        return began - self.first_ns[side] if began is not None and side in self.first_ns else 0

    def told(self, head: Timeline) -> Iterator[str]:
        """What a person should know of where the window is drawn."""
        if self.apart_ns:
            apart = format_value(self.apart_ns)
            yield f"it is not drawn beside the other ranks: they would take {apart}"
        elif self.length_ns:
            if (lead := self.lead_ns("head", head)) > self.error_ns:
                yield f"its window begins {format_value(lead)} after the first one here"
            if head["clock"]:
                yield f"beside the other ranks it is {head['clock']}"


def sides_of(picture: Picture) -> Sides:
    """The windows of a picture by side."""
    sides = (("base", picture["base"]), ("head", picture["head"]))
    return [(name, one) for name, one in sides if one is not None]


def frame_of(pictures: Sequence[Picture]) -> Frame:
    """What the windows of one run are drawn in: as they were beside each other, where that can still be seen."""
    shown = [(name, one) for picture in pictures for name, one in sides_of(picture)]
    known = [(name, one["began_ns"], one["length_ns"]) for name, one in shown if one["began_ns"] is not None]
    if len({picture["key"] for picture in pictures if sides_of(picture)}) < 2 or not known:
        return Frame()
    first = {side: min(began for name, began, _ in known if name == side) for side, _, _ in known}
    length = max(began - first[side] + own for side, began, own in known)
    if length > MOST_TIMES * max(one["length_ns"] for _, one in shown):
        return Frame(apart_ns=length)
    errors = sorted(one["clock_error_ns"] or 0 for _, one in shown)
    return Frame(max(length, *(one["length_ns"] for _, one in shown)), first, sum(errors[-2:]))


def later(one: Timeline, lead_ns: int) -> Timeline:
    """The same window, drawn so much later."""
    if not lead_ns:
        return one
    moved = Timeline(**one)
    moved["bands"] = [[start + lead_ns, *rest] for start, *rest in one["bands"]]
    moved["lanes"] = [_lane(lane, lead_ns) for lane in one["lanes"]]
    moved["gaps"] = None if one["gaps"] is None else _gaps(one["gaps"], lead_ns)
    return moved


def _lane(lane: TimelineLane, lead_ns: int) -> TimelineLane:
    moved = TimelineLane(**lane)
    moved["starts"] = [start + lead_ns for start in lane["starts"]]
    moved["exposed"] = [[start + lead_ns, end + lead_ns] for start, end in lane["exposed"]]
    return moved


def _gaps(gaps: TimelineGaps, lead_ns: int) -> TimelineGaps:
    moved = TimelineGaps(**gaps)
    moved["starts"] = [start + lead_ns for start in gaps["starts"]]
    moved["arrows"] = {
        i: [lane, end + lead_ns, waiting, start + lead_ns] for i, (lane, end, waiting, start) in gaps["arrows"].items()
    }
    return moved
