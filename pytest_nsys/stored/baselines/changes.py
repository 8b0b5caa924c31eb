"""Which rows of a stored baseline changed, from which value to which?

The value of a row is what it is judged by: the median over its accepted runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytest_nsys.analysis.metrics.table import row_key
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.words import label_words
from pytest_nsys.stored.baselines.baseline_file import RowLabels, SeriesId, StoredSeries


@dataclass(frozen=True, slots=True)
class RowChange:
    """Describes one row of a baseline that changed."""

    series: SeriesId
    unit: str
    labels: Mapping[str, Label]
    old: Value | None  # None where the row is new
    new: Value | None  # None where the row is gone

    @property
    def where(self) -> str:
        """The row's labels as text."""
        return label_words(self.labels)


def changes(old: Mapping[SeriesId, StoredSeries], new: Mapping[SeriesId, StoredSeries]) -> Iterator[RowChange]:
    """Yield the rows whose baseline value changed, sorted by series and labels."""
    for sid in sorted({*old, *new}):
        before, after = old.get(sid), new.get(sid)
        if before is not None and after is not None and _shape(before) != _shape(after):
            yield from _of_series(sid, before, None)  # a label or number of the one says nothing in the other
            yield from _of_series(sid, None, after)
        else:
            yield from _of_series(sid, before, after)


def _of_series(sid: SeriesId, before: StoredSeries | None, after: StoredSeries | None) -> Iterator[RowChange]:
    series = after or before
    assert series is not None
    old_values, new_values = _middles(before), _middles(after)
    for labels in sorted({*old_values, *new_values}, key=row_key):
        if old_values.get(labels) != new_values.get(labels):
            labels_by_dimension = dict(zip(series.dimensions, labels, strict=True))
            yield RowChange(sid, series.unit, labels_by_dimension, old_values.get(labels), new_values.get(labels))


def _shape(series: StoredSeries) -> tuple[tuple[str, ...], str]:
    return series.dimensions, series.unit


def _middles(series: StoredSeries | None) -> dict[RowLabels, Value]:
    return series.middles if series is not None else {}
