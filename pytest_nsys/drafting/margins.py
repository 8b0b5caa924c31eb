"""What was measured, and how far from it does a first limit stand? By the spread over captures, else a stated margin.

Of one capture nothing is known about the noise, so the margin is a guess: 5% of a time, 5 points of a ratio. Of two or
three captures it is three times their range, from four on the prediction bound of a new trace. Either way it is 2%, or
2 points, at least, so that a lucky set of captures does not make a gate that flakes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.words import printable
from pytest_nsys.gates.noise import FEWEST_RUNS, bound

Labels = tuple[Label, ...]


@dataclass(frozen=True)
class Figures:
    """What the captures hold under one window spec. Raises NothingMeasured where a window is empty."""

    captures: Captures
    spec: WindowSpec

    @property
    def count(self) -> int:
        """The number of captures."""
        return len(self.captures.runs)

    def rows(self, metric: str) -> dict[Labels, Value]:
        """The rows of a metric, medians over the captures; none where some capture lacks a row."""
        measured = self.captures.rows(METRICS[metric], self.spec)
        return {} if measured.missing else {row.labels: row.value for row in measured.rows}

    def each(self, metric: str) -> dict[Labels, list[Value]]:
        """The values of every row, one for each capture."""
        found: dict[Labels, list[Value]] = {labels: [] for labels in self.rows(metric)}
        for one in self.captures.each(METRICS[metric], self.spec):
            for row in one.rows:
                if row.labels in found:
                    found[row.labels].append(row.value)
        return found

    @property
    def windows(self) -> list[RankWindow]:
        """The windows of every rank of every capture."""
        return [window for run in self.captures.runs for window in run.measured(self.spec)]

    def largest(self, metric: str, among: Mapping[Labels, Value] | None = None) -> str:
        """The largest row, of all or of some, in words: ``1 278 us (rank 5, stage stage4_f)``."""
        rows = self.rows(metric) if among is None else among
        return self.named(metric, max(rows.items(), key=_by_value))

    def smallest(self, metric: str, among: Mapping[Labels, Value]) -> str:
        """The smallest of some rows in words."""
        return self.named(metric, min(among.items(), key=_by_value))

    def named(self, metric: str, row: tuple[Labels, Value]) -> str:
        """A value with the labels of its row."""
        labels, value = row
        where = ", ".join(f"{d} {label}" for d, label in zip(METRICS[metric].dimensions, labels, strict=True))
        return f"{format_value(value, METRICS[metric].unit)} ({printable(where, 60)})"


def _by_value(row: tuple[Labels, Value]) -> tuple[Value, str]:
    return row[1], str(row[0])


def by_stage(rows: Mapping[Labels, Value]) -> dict[str, dict[Labels, Value]]:
    """Rows per (rank, stage) by stage, stages ordered by name."""
    found: dict[str, dict[Labels, Value]] = {}
    for labels, value in rows.items():
        found.setdefault(str(labels[1]), {})[labels] = value
    return dict(sorted(found.items()))


GUESS = Fraction(5, 100)
LEAST = Fraction(2, 100)
FACTOR = 3
"""Of the range of two or three captures."""

SMALLEST_NS = 50_000
"""Times that differ by less are taken for equal, where the window is long enough for that."""


def smallest_ns(window_ns: Value) -> int:
    """The ``abs`` of times: under 1% of the window, so that a short one is not all tolerance; 1, 2 or 5 and zeros."""
    most = min(SMALLEST_NS, int(window_ns) // 100)
    steps = [number * 10**zeros for zeros in range(5) for number in (1, 2, 5)]
    return max([step for step in steps if step <= most], default=1)


def written_ns(time_ns: int) -> str:
    """A time as a gate file has it: ``50us``, ``200ns``."""
    return f"{time_ns // 1000}us" if time_ns % 1000 == 0 else f"{time_ns}ns"


def noise_of(captures: Sequence[Value], rows: int) -> Value | None:
    """How far one more capture may be from the median of these; None where there is one only."""
    if len(captures) >= FEWEST_RUNS:
        return bound(captures, rows=rows)
    return FACTOR * (max(captures) - min(captures)) if len(captures) > 1 else None


def relative(rows: Sequence[Sequence[Value]], smallest: Value = 0, guess: Fraction = GUESS) -> Fraction:
    """The share of a baseline that lets every row of these captures pass again, in whole percent.

    ``rows`` hold the captures of each row; amounts up to ``smallest`` are left to the tolerance's ``abs``.
    """
    noises = _noises(rows)
    if noises is None:
        return guess
    middles = (sorted(captures)[len(captures) // 2] for captures in rows)
    shares = (noise / abs(Fraction(m)) for noise, m in zip(noises, middles, strict=True) if noise > smallest and m)
    return Fraction(ceil(100 * max([LEAST, *shares])), 100)


def points(rows: Sequence[Sequence[Value]]) -> Fraction:
    """The distance of a ratio that lets every row of these captures pass again, as a plain fraction."""
    noises = _noises(rows)
    return GUESS if noises is None else max([LEAST, *noises])


def _noises(rows: Sequence[Sequence[Value]]) -> list[Fraction] | None:
    """How far one more capture of each row may be from its median; None where of some row there is one only."""
    found = [noise_of(captures, len(rows)) for captures in rows]
    return None if None in found else [Fraction(noise) for noise in found if noise is not None]


def percent_below(values: Iterable[Value], margin: Fraction) -> int:
    """The whole percentage that the least of some ratios exceeds by ``margin`` at least."""
    return floor(100 * (Fraction(min(values)) - margin))


def hundredths_above(value: Value, margin: Fraction) -> Fraction:
    """A bare ratio in hundredths that lies ``margin`` above ``value`` at least."""
    return Fraction(ceil(100 * (Fraction(value) + margin)), 100)
