"""Which of several captures of one program is unlike the others?

The median of three or more captures hides one that is far off. Three or four cannot show whether that is chance, so
such a capture is only named. It is one that differs from the median of the others by more than a tenth, and by several
times the range of the others. That is pooled over the rows, because two captures alone agree by chance; a small row
counts on the scale of the mean row. The factor falls with the number of captures, because their range rises: together
they stand for about six standard deviations.

Of five or more captures, one is a hiccup if it differs from the nearest of the others by more than three times their
range, and by more than the tolerance of the row: a gate leaves it out. Two such captures are noise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Generic, NamedTuple, TypeVar

from pytest_nsys.core.exact import distance, mean, median
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import format_count, sanitize_line

MIN_CAPTURES = 3  # with two captures it is unknown which one is off
"""The minimum number of captures at which one can be unlike the others."""

MIN_CAPTURES_FOR_HICCUP = 5  # four that agree are needed before the fifth is not a sample of the same noise
"""The minimum number of captures at which one can be a hiccup."""

FAR_SHARE = Fraction(1, 10)  # as a share of the median of the others
FAR_RANGES = (
    18  # 6 ranges of two others, 3.6 of four: about six standard deviations each, for a range rises with the number
)
"""A capture is far off if it differs by more than this many ranges of the others, divided by the number of captures."""

HICCUP_RANGES = 3
"""A hiccup differs from the nearest of the others by more than this many ranges of the others."""

K = TypeVar("K", bound=Hashable)


class Outlier(NamedTuple, Generic[K]):
    """Describes a capture with rows far from those of the others; the farthest row stands for all."""

    capture_index: int  # its index among the captures
    row_count: int  # number of its rows that are far off
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
    """Return the captures that lie far from the others in a row that all of them have, in order.

    ``tolerances`` are the amounts by which a row may differ according to its gate; a row without one may differ by a
    tenth.
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
    """Return the only capture that is a hiccup; None if there is none, or if there are two, which is noise."""
    outliers = find_outliers(captures, tolerances) if len(captures) >= MIN_CAPTURES_FOR_HICCUP else []
    return outliers[0] if len(outliers) == 1 else None


class _ComparedRow(NamedTuple, Generic[K]):
    """Holds a row of one capture, with the values of the same row in the others."""

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
    """Return the scale of each row: its own median, but at least the mean over all rows; 0 if all are 0."""
    medians = [abs(Fraction(row.others_median)) for row in rows]
    mean_median = Fraction(mean(medians)) if medians else Fraction(0)
    return [max(mean_median, row_median) for row_median in medians]


def _find_hiccup_rows(
    rows: Sequence[_ComparedRow[K]], tolerances: Mapping[K, Value]
) -> Iterator[tuple[Fraction, _ComparedRow[K]]]:
    """Yield the rows that show the capture to be a hiccup, each with its distance as a multiple of its scale."""
    for row, scale in zip(rows, _measure_scales(rows), strict=True):
        tolerance = Fraction(tolerances[row.key]) if row.key in tolerances else FAR_SHARE * scale
        gap = Fraction(min(distance(row.value, other_value) for other_value in row.other_values))
        if gap > max(HICCUP_RANGES * row.others_range, tolerance) and (scale or row.key in tolerances):
            yield gap / (scale or 1), row


def _find_far_rows(rows: Sequence[_ComparedRow[K]], _: Mapping[K, Value]) -> Iterator[tuple[Fraction, _ComparedRow[K]]]:
    """Yield the rows that are far off, each with its distance as a multiple of the allowed one."""
    scales = _measure_scales(rows)
    if not any(scales):
        return
    pooled_range = Fraction(median([row.others_range / scale for row, scale in zip(rows, scales, strict=True)]))
    for row, scale in zip(rows, scales, strict=True):
        factor = Fraction(FAR_RANGES, len(row.other_values) + 1)
        reach = max(FAR_SHARE * scale, factor * max(row.others_range, pooled_range * scale))
        if (gap := Fraction(distance(row.value, row.others_median))) > reach:
            yield gap / reach, row
