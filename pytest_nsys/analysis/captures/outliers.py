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
from pytest_nsys.core.text_format import format_count, sanitize_line

MIN_CAPTURES = 3  # of two captures nobody knows which one is off
"""From how many captures on one can be unlike the others."""

MIN_CAPTURES_FOR_HICCUP = 5  # four that agree are needed before the fifth is not a sample of the same noise
"""From how many captures on one can be a hiccup."""

FAR_SHARE = Fraction(1, 10)  # of the median of the others
FAR_RANGES = (
    18  # 6 ranges of two others, 3.6 of four: about six standard deviations each, for a range rises with the number
)
"""How many times the range of the others is far, times the number of captures."""

HICCUP_RANGES = 3
"""How many times the range of the others lies between a hiccup and the nearest of them."""

K = TypeVar("K", bound=Hashable)


class Outlier(NamedTuple, Generic[K]):
    """Describes a capture with rows far from the others, by the farthest of them."""

    capture_index: int  # its index among the captures
    row_count: int  # how many of its rows are far off
    key: K  # of the farthest row
    value: Value
    others_median: Value  # the median of the others in that row

    def describe(self, row_name: str, unit: str) -> str:
        """Describe how far off the row is: ``rank 1 stage stage2_f exposed_ns is 900 us, the median of the others 200
        us``.
        """
        value, others_median = (format_value(number, unit) for number in (self.value, self.others_median))
        more_rows = f", and {format_count(self.row_count - 1, 'more row')} far off" if self.row_count > 1 else ""
        return f"{sanitize_line(row_name)} is {value}, the median of the others {others_median}{more_rows}"


def find_outliers(
    captures: Sequence[Mapping[K, Value]], tolerances: Mapping[K, Value] | None = None
) -> list[Outlier[K]]:
    """Return the captures that lie far from the others in some row that all of them have, by their place.

    ``tolerances`` are amounts by which a row may differ, as its gate says; a row without one may by a tenth.
    """
    common_keys = [key for key in captures[0] if all(key in capture for capture in captures)] if captures else []
    find_rows = _find_far_rows if len(captures) < MIN_CAPTURES_FOR_HICCUP else _find_hiccup_rows
    outliers = []
    for index, capture in enumerate(captures if len(captures) >= MIN_CAPTURES else ()):
        rows = [
            _ComparedRow(
                key, capture[key], tuple(other_capture[key] for i, other_capture in enumerate(captures) if i != index)
            )
            for key in common_keys
        ]
        if far_rows := list(find_rows(rows, tolerances or {})):
            _, row = max(far_rows, key=lambda entry: entry[0])
            outliers.append(Outlier(index, len(far_rows), row.key, row.value, row.others_median))
    return outliers


def find_hiccup(
    captures: Sequence[Mapping[K, Value]], tolerances: Mapping[K, Value] | None = None
) -> Outlier[K] | None:
    """Return the one capture that is a hiccup; None where there is none, or where two are, which is noise."""
    outliers = find_outliers(captures, tolerances) if len(captures) >= MIN_CAPTURES_FOR_HICCUP else []
    return outliers[0] if len(outliers) == 1 else None


class _ComparedRow(NamedTuple, Generic[K]):
    """Holds a row of one capture, with the values that the others have."""

    key: K
    value: Value
    other_values: tuple[Value, ...]

    @property
    def others_median(self) -> Value:
        return median(self.other_values)

    @property
    def others_range(self) -> Fraction:
        return Fraction(max(self.other_values) - min(self.other_values))


_RowSearch = Callable[[Sequence[_ComparedRow[K]], Mapping[K, Value]], Iterator[tuple[Fraction, _ComparedRow[K]]]]


def _measure_scales(rows: Sequence[_ComparedRow[K]]) -> list[Fraction]:
    """Return the scale on which each row counts as large or small: its own median, and at least the mean row; 0 if all
    are 0.
    """
    medians = [abs(Fraction(row.others_median)) for row in rows]
    mean_median = Fraction(mean(medians)) if medians else Fraction(0)
    return [max(mean_median, row_median) for row_median in medians]


def _find_hiccup_rows(
    rows: Sequence[_ComparedRow[K]], tolerances: Mapping[K, Value]
) -> Iterator[tuple[Fraction, _ComparedRow[K]]]:
    """Yield the rows that show the capture to be a hiccup, each with how far off it is on its scale."""
    for row, scale in zip(rows, _measure_scales(rows), strict=True):
        tolerance = Fraction(tolerances[row.key]) if row.key in tolerances else FAR_SHARE * scale
        gap = Fraction(min(distance(row.value, other_value) for other_value in row.other_values))
        if gap > max(HICCUP_RANGES * row.others_range, tolerance) and (scale or row.key in tolerances):
            yield gap / (scale or 1), row


def _find_far_rows(rows: Sequence[_ComparedRow[K]], _: Mapping[K, Value]) -> Iterator[tuple[Fraction, _ComparedRow[K]]]:
    """Yield the rows that are far off, each with how many times as far as it may be."""
    scales = _measure_scales(rows)
    if not any(scales):
        return
    pooled_range = Fraction(median([row.others_range / scale for row, scale in zip(rows, scales, strict=True)]))
    for row, scale in zip(rows, scales, strict=True):
        factor = Fraction(FAR_RANGES, len(row.other_values) + 1)
        reach = max(FAR_SHARE * scale, factor * max(row.others_range, pooled_range * scale))
        if (gap := Fraction(distance(row.value, row.others_median))) > reach:
            yield gap / reach, row
