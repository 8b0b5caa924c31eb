"""How did a row change over time: its values and limits, the accepted baselines with their reasons, and the runs at
which it shifted?

Each row has its own axis, which covers its values and limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from pytest_nsys.core.exact import median, parse_exact
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_change, format_distinctly
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import SHARE_UNITS
from pytest_nsys.stored.history.database import REFRESH, format_measurement
from pytest_nsys.stored.history.shifts import Shift, find_shifts
from pytest_nsys.stored.history.stored_runs import RowTrack, StoredRun

COMMIT_LENGTH = 10
MIN_SPAN = Fraction(1, 20)
"""The least length of an axis as a share of the row's median (for a ratio, in absolute terms), so that noise does not
fill the picture.
"""

LIMIT_REACH = 3
"""A limit farther from the values than this many times their range is left off the axis: it would flatten the values to
a line.
"""


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """Describes a row in one run."""

    value: Value
    time: str
    commit: str = ""  # empty for the run that is judged now
    limit: Value | None = None  # the nearest of the row's limits, None if unknown
    acceptance_reason: str | None = None  # the reason of a refresh that made this run the baseline

    @property
    def run_text(self) -> str:
        """The run in words: ``474e9573e0, 2026-01-10``; without a commit its time alone."""
        return f"{self.commit}, {self.time[:10]}" if self.commit else self.time


@dataclass(frozen=True, slots=True)
class Trend:
    """Describes one row over time, the oldest run first; it has at least one run."""

    title: str
    quantity: str  # what is measured
    unit: str
    points: tuple[TrendPoint, ...]
    shifts: tuple[Shift, ...] = ()
    low: Value = 0  # the ends of the axis
    high: Value = 0

    @property
    def values(self) -> list[Value]:
        """The value of each run."""
        return [point.value for point in self.points]


StoredVerdicts = Mapping[int, Sequence[Mapping[str, Any]]]
"""The stored verdicts of each run, by the run's id."""


def build_trend(track: RowTrack, verdicts: StoredVerdicts, title: str = "", current: TrendPoint | None = None) -> Trend:
    """Return the trend of a stored row, on its own axis; ``current`` is the judged run, which the history has not
    stored yet.
    """
    series_id, unit = track.series.sid, track.series.unit
    points = [
        _make_point(
            run,
            value,
            [verdict for verdict in verdicts.get(run.id, ()) if verdict["measured"] == format_measurement(series_id)],
            track.labels_text,
        )
        for run, value in zip(track.runs, track.values, strict=True)
    ]
    points += [current] if current is not None else []
    shifts = find_shifts([point.value for point in points], unit)
    title = title or f"{series_id.metric} {track.labels_text}".rstrip()
    return fit_axis(Trend(title, series_id.metric, unit, tuple(points), shifts))


def _make_point(run: StoredRun, value: Value, verdicts: Sequence[Mapping[str, Any]], row_place: str) -> TrendPoint:
    """Return the point of a row in one stored run, with its nearest limit and the reason of a baseline refresh."""
    judged_verdicts = [
        verdict for verdict in verdicts if verdict["limit_value"] is not None and verdict["row"] == row_place
    ]
    nearest = min(judged_verdicts, key=_order_by_margin, default=None)
    reasons = [verdict["message"] or "" for verdict in verdicts if verdict["outcome"] == REFRESH]
    return TrendPoint(
        value,
        run.time[:16].replace("T", " "),
        (run.commit or "")[:COMMIT_LENGTH],
        parse_exact(nearest["limit_value"]) if nearest is not None else None,
        sanitize_line(reasons[0], 400) if reasons else None,
    )


def _order_by_margin(verdict: Mapping[str, Any]) -> tuple[bool, Value]:
    """Return the sort key of a row's limits: the limit with the least distance first, one without a distance last."""
    margin = verdict["margin"]
    return (True, 0) if margin is None else (False, parse_exact(margin))


def fit_axis(trend: Trend) -> Trend:
    """Return the trend with an axis that covers its values and limits; a limit far beyond the values is left
    outside.
    """
    center, size = _measure_axis(trend)
    room = MIN_SPAN / 2 * size
    low = min(Fraction(min(trend.values)), center - room)
    high = max(Fraction(max(trend.values)), center + room)
    reach = LIMIT_REACH * (high - low)
    limits = [Fraction(point.limit) for point in trend.points if point.limit is not None]
    near_limits = [limit for limit in limits if low - reach <= limit <= high + reach]
    return replace(trend, low=min([low, *near_limits]), high=max([high, *near_limits]))


def _measure_axis(trend: Trend) -> tuple[Fraction, Fraction]:
    """Return the row's median, which is the center of its axis, and the amount that counts as 100 %."""
    center = Fraction(median(trend.values))
    if trend.unit in SHARE_UNITS:
        return center, Fraction(1)
    # For a row with median 0 that is its largest value, or 1 if all are 0.
    return center, abs(center) or max(abs(Fraction(value)) for value in trend.values) or Fraction(1)


def describe_shift(trend: Trend, shift: Shift) -> str:
    """Return a shift in words: ``1.11 ms → 1.22 ms (+9.6%) at 474e9573e0, 2026-01-10``."""
    baseline_text, current_text = format_distinctly(shift.before, shift.after, trend.unit)
    change = format_change(shift.after, shift.before, trend.unit)
    return f"{baseline_text} → {current_text} ({change}) at {trend.points[shift.position].run_text}"
