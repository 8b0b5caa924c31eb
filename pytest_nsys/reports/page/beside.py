"""Where is the window of a rank drawn beside those of other ranks? At its time on their common clock, on one scale.

Base and head have a clock each: the first window of either begins at 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pytest_nsys.analysis.timeline import Timeline
from pytest_nsys.core.numbers import format_value

if TYPE_CHECKING:
    from pytest_nsys.reports.page.pictures import Picture

MOST_TIMES = 2
"""The longest window fits so often into what is drawn: of windows further apart one would see a line each."""


class Side(NamedTuple):
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

    def placed(self, side: Side) -> Side:
        """The window where it is drawn; with the first of its side where it is unknown when it began."""
        began = side.window.began_ns
        return side._replace(lead_ns=began - self.first_ns[side.name]) if began is not None and self.first_ns else side

    def told(self, head: Side) -> Iterator[str]:
        """What a person should know of where the window is drawn."""
        if self.apart_ns:
            apart = format_value(self.apart_ns)
            yield f"it is not drawn beside the other ranks: they would take {apart}"
        elif self.length_ns:
            if head.lead_ns > self.error_ns:
                yield f"its window begins {format_value(head.lead_ns)} after the first one here"
            if head.window.clock:
                yield f"beside the other ranks it is {head.window.clock}"


def sides_of(picture: Picture) -> list[Side]:
    """The windows of a picture, base before head."""
    return [Side(name, one) for name, one in (("base", picture.base), ("head", picture.head)) if one is not None]


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
