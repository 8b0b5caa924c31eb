"""Which of several captures of one program is unlike the others?

The median of three or more hides one that is far off. Of three or four nobody knows whether it is chance, so it is
named where it is more than a tenth from the median of the others, and several times what those differ by among
themselves. That is pooled over the rows, for two captures alone agree by chance; a small row counts on the scale of the
mean row. The factor falls with the number of captures as their range rises: together they stand for about six
deviations.

Of five or more one that is further from the nearest of the others than three times their range, and than the tolerance
of the row, is a hiccup: a gate leaves it out. Where two captures are such they are noise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Generic, NamedTuple, TypeVar

from pytest_nsys.core.exact import distance, mean, median
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.words import counted, printable

FEWEST = 3
"""Captures among which one can be the other: of two nobody knows which."""

FEWEST_FOR_HICCUP = 5
"""Four that agree are needed before the fifth is not a sample of the same noise."""

FAR = Fraction(1, 10)
RANGES = 18
"""Over the number of captures: how many times the range of the others is far."""

RANGES_OF_HICCUP = 3
"""How many times the range of the others lie between a hiccup and the nearest of them."""

K = TypeVar("K", bound=Hashable)


class Outlier(NamedTuple, Generic[K]):
    """A capture (by its place) with ``rows`` rows far from the others; the farthest, and the median of the others."""

    capture: int
    rows: int
    key: K
    value: Value
    others: Value

    def describe(self, row: str, unit: str) -> str:
        """Say how far off the row is: ``rank 1 stage stage2_f exposed_ns is 900 us, the others' median 200 us``."""
        value, others = (format_value(each, unit) for each in (self.value, self.others))
        more = f", and {counted(self.rows - 1, 'more row')} far off" if self.rows > 1 else ""
        return f"{printable(row)} is {value}, the median of the others {others}{more}"


def find_outliers(
    captures: Sequence[Mapping[K, Value]], tolerances: Mapping[K, Value] | None = None
) -> list[Outlier[K]]:
    """Return the captures that lie far from the others in some row that all of them have, by their place.

    ``tolerances`` are amounts by which a row may differ, as its gate says; a row without one may by a tenth.
    """
    shared = [key for key in captures[0] if all(key in capture for capture in captures)] if captures else []
    look = _find_far_rows if len(captures) < FEWEST_FOR_HICCUP else _find_hiccup_rows
    found = []
    for place, capture in enumerate(captures if len(captures) >= FEWEST else ()):
        rows = [
            _Row(key, capture[key], tuple(other[key] for i, other in enumerate(captures) if i != place))
            for key in shared
        ]
        if far := list(look(rows, tolerances or {})):
            _, row = max(far, key=lambda each: each[0])
            found.append(Outlier(place, len(far), row.key, row.value, row.middle))
    return found


def find_hiccup(
    captures: Sequence[Mapping[K, Value]], tolerances: Mapping[K, Value] | None = None
) -> Outlier[K] | None:
    """Return the one capture that is a hiccup; None where there is none, or where two are, which is noise."""
    found = find_outliers(captures, tolerances) if len(captures) >= FEWEST_FOR_HICCUP else []
    return found[0] if len(found) == 1 else None


class _Row(NamedTuple, Generic[K]):
    """A row of one capture, with the values that the others have."""

    key: K
    value: Value
    others: tuple[Value, ...]

    @property
    def middle(self) -> Value:
        return median(self.others)

    @property
    def range(self) -> Fraction:
        return Fraction(max(self.others) - min(self.others))


_Look = Callable[[Sequence[_Row[K]], Mapping[K, Value]], Iterator[tuple[Fraction, _Row[K]]]]


def _scales_of(rows: Sequence[_Row[K]]) -> list[Fraction]:
    """By what each row is large or small: itself, and at least the mean row; 0 where all are 0."""
    middles = [abs(Fraction(row.middle)) for row in rows]
    usual = Fraction(mean(middles)) if middles else Fraction(0)
    return [max(usual, middle) for middle in middles]


def _find_hiccup_rows(rows: Sequence[_Row[K]], tolerances: Mapping[K, Value]) -> Iterator[tuple[Fraction, _Row[K]]]:
    """Yield the rows that say that the capture is a hiccup, and how far off each is on its scale."""
    for row, scale in zip(rows, _scales_of(rows), strict=True):
        least = Fraction(tolerances[row.key]) if row.key in tolerances else FAR * scale
        gap = Fraction(min(distance(row.value, other) for other in row.others))
        if gap > max(RANGES_OF_HICCUP * row.range, least) and (scale or row.key in tolerances):
            yield gap / (scale or 1), row


def _find_far_rows(rows: Sequence[_Row[K]], _: Mapping[K, Value]) -> Iterator[tuple[Fraction, _Row[K]]]:
    """Yield the rows that are far, and how many times as far as they may be."""
    scales = _scales_of(rows)
    if not any(scales):
        return
    pooled = Fraction(median([row.range / scale for row, scale in zip(rows, scales, strict=True)]))
    for row, scale in zip(rows, scales, strict=True):
        times = Fraction(RANGES, len(row.others) + 1)
        reach = max(FAR * scale, times * max(row.range, pooled * scale))
        if (apart := Fraction(distance(row.value, row.middle))) > reach:
            yield apart / reach, row
