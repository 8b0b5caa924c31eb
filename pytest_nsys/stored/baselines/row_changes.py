"""Which rows of a stored baseline changed, from which value to which?

The value of a row is what it is judged by: the median over its accepted runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytest_nsys.analysis.metrics.table import make_labels_key
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.text_format import format_labels_in_full
from pytest_nsys.stored.baselines.baseline_file import RowLabels, SeriesId, StoredSeries


@dataclass(frozen=True, slots=True)
class RowChange:
    """Describes one row of a baseline that changed."""

    series: SeriesId
    unit: str
    labels: Mapping[str, Label]
    old_value: Value | None  # None where the row is new
    new_value: Value | None  # None where the row is gone

    @property
    def labels_text(self) -> str:
        """The row's labels as text."""
        return format_labels_in_full(self.labels)


def list_row_changes(
    old_series: Mapping[SeriesId, StoredSeries], new_series: Mapping[SeriesId, StoredSeries]
) -> Iterator[RowChange]:
    """Yield the rows whose baseline value changed, sorted by series and labels."""
    for sid in sorted({*old_series, *new_series}):
        before, after = old_series.get(sid), new_series.get(sid)
        if before is not None and after is not None and _get_shape(before) != _get_shape(after):
            yield from _list_series_changes(sid, before, None)  # a label or number of the one says nothing in the other
            yield from _list_series_changes(sid, None, after)
        else:
            yield from _list_series_changes(sid, before, after)


def _list_series_changes(sid: SeriesId, before: StoredSeries | None, after: StoredSeries | None) -> Iterator[RowChange]:
    series = after or before
    assert series is not None
    old_values, new_values = _get_baseline_values(before), _get_baseline_values(after)
    for labels in sorted({*old_values, *new_values}, key=make_labels_key):
        if old_values.get(labels) != new_values.get(labels):
            labels_by_dimension = dict(zip(series.dimensions, labels, strict=True))
            yield RowChange(sid, series.unit, labels_by_dimension, old_values.get(labels), new_values.get(labels))


def _get_shape(series: StoredSeries) -> tuple[tuple[str, ...], str]:
    return series.dimensions, series.unit


def _get_baseline_values(series: StoredSeries | None) -> dict[RowLabels, Value]:
    return series.baseline_values if series is not None else {}
