"""How did a row move over time: its values with their limits, what was accepted and why, and at which run it moved?

Rows of one unit stand on one scale: what moved by 0.1 % is not as tall as what moved by 297 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from pytest_nsys.core.exact import exact_value, median
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import change_words, format_apart
from pytest_nsys.core.units import SHARES
from pytest_nsys.core.words import printable
from pytest_nsys.stored.history.database import REFRESH, measured_text
from pytest_nsys.stored.history.reading import StoredRun, Track
from pytest_nsys.stored.history.shifts import Shift, shifts_of

SHORT_COMMIT = 10
LEAST_SPAN = Fraction(1, 20)
"""Of the scale, as a part of a row's median, or in points of a ratio: noise does not fill it."""

Ends = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True)
class Moment:
    """A row in one run. ``commit`` is empty for the run that is judged now; ``limit`` is the nearest of those that are
    known of this row, None without one. ``accepted`` is the reason of a refresh that took the run as the new normal.
    """

    value: Value
    time: str
    commit: str = ""
    limit: Value | None = None
    accepted: str | None = None

    @property
    def place(self) -> str:
        """``474e9573e0, 2026-01-10``; without a commit its time alone."""
        return f"{self.commit}, {self.time[:10]}" if self.commit else self.time


@dataclass(frozen=True, slots=True)
class Trend:
    """One row over time, oldest first; at least one run. ``quantity`` names what is measured.

    ``low`` and ``high`` are the ends of its axis, the same distance from its median as on others of its unit.
    """

    title: str
    quantity: str
    unit: str
    moments: tuple[Moment, ...]
    shifts: tuple[Shift, ...] = ()
    low: Value = 0
    high: Value = 0

    @property
    def values(self) -> list[Value]:
        """The value of each run."""
        return [moment.value for moment in self.moments]


Verdicts = Mapping[int, Sequence[Mapping[str, Any]]]
"""What was decided in each run, as the history keeps it."""


def trend_of(track: Track, verdicts: Verdicts, title: str = "", now: Moment | None = None) -> Trend:
    """The trend of a stored row; ``now`` is the run that the history has not got yet. On a scale of its own."""
    sid, unit = track.series.sid, track.series.unit
    moments = [
        _moment(run, value, [v for v in verdicts.get(run.id, ()) if v["measured"] == measured_text(sid)], track.place)
        for run, value in zip(track.runs, track.values, strict=True)
    ]
    moments += [now] if now is not None else []
    shifts = shifts_of([moment.value for moment in moments], unit)
    title = title or f"{sid.metric} {track.place}".rstrip()
    return on_one_scale([Trend(title, sid.metric, unit, tuple(moments), shifts)])[0]


def _moment(run: StoredRun, value: Value, verdicts: Sequence[Mapping[str, Any]], place: str) -> Moment:
    held = [v for v in verdicts if v["limit_value"] is not None and v["row"] == place]
    nearest = min(held, key=_room, default=None)
    reasons = [v["message"] or "" for v in verdicts if v["outcome"] == REFRESH]
    return Moment(
        value,
        run.time[:16].replace("T", " "),
        (run.commit or "")[:SHORT_COMMIT],
        exact_value(nearest["limit_value"]) if nearest is not None else None,
        printable(reasons[0], 400) if reasons else None,
    )


def _room(verdict: Mapping[str, Any]) -> tuple[bool, Value]:
    """What orders the limits of a row: the one that fails first, those without a distance last."""
    margin = verdict["margin"]
    return (True, 0) if margin is None else (False, exact_value(margin))


def on_one_scale(trends: Sequence[Trend]) -> list[Trend]:
    """The same, with axes as long for all of one unit: in parts of the row's median, of ratios in points. A limit may
    lie beyond them.
    """
    ends: dict[str, Ends] = {}
    parts = [_parts_of(trend) for trend in trends]
    for trend, (center, size) in zip(trends, parts, strict=True):
        off = [(Fraction(value) - center) / size for value in (min(trend.values), max(trend.values))]
        known = ends.get(trend.unit, (-LEAST_SPAN / 2, LEAST_SPAN / 2))
        ends[trend.unit] = min(known[0], *off), max(known[1], *off)
    return [
        replace(trend, low=center + ends[trend.unit][0] * size, high=center + ends[trend.unit][1] * size)
        for trend, (center, size) in zip(trends, parts, strict=True)
    ]


def _parts_of(trend: Trend) -> tuple[Fraction, Fraction]:
    """The median of a row, and what one part of its axis is: of a row that is 0 as a rule its largest value, for it has
    no parts.
    """
    center = Fraction(median(trend.values))
    if trend.unit in SHARES:
        return center, Fraction(1)
    return center, abs(center) or max(abs(Fraction(value)) for value in trend.values) or Fraction(1)


def shift_words(trend: Trend, shift: Shift) -> str:
    """``1.11 ms → 1.22 ms (+9.6%) at 474e9573e0, 2026-01-10``."""
    was, now = format_apart(shift.before, shift.after, trend.unit)
    change = change_words(shift.after, shift.before, trend.unit)
    return f"{was} → {now} ({change}) at {trend.moments[shift.at].place}"
