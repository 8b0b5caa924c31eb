"""Which rows of a stored baseline are others than before, from what to what?

The value of a row is what it is judged by, the median over its accepted runs.
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
    """One row of a baseline that changed: ``old`` None where it is new, ``new`` None where it is gone."""

    series: SeriesId
    unit: str
    labels: Mapping[str, Label]
    old: Value | None
    new: Value | None

    @property
    def where(self) -> str:
        """The row's labels in words."""
        return label_words(self.labels)


def changes(old: Mapping[SeriesId, StoredSeries], new: Mapping[SeriesId, StoredSeries]) -> Iterator[RowChange]:
    """The rows whose baseline is another one in ``new``, by series and labels."""
    for sid in sorted({*old, *new}):
        before, after = old.get(sid), new.get(sid)
        if before is not None and after is not None and _shape(before) != _shape(after):
            yield from _of_series(sid, before, None)  # a label or number of the one says nothing in the other
            yield from _of_series(sid, None, after)
        else:
            yield from _of_series(sid, before, after)


def _of_series(sid: SeriesId, before: StoredSeries | None, after: StoredSeries | None) -> Iterator[RowChange]:
    either = after or before
    assert either is not None
    was, now = _middles(before), _middles(after)
    for labels in sorted({*was, *now}, key=row_key):
        if was.get(labels) != now.get(labels):
            named = dict(zip(either.dimensions, labels, strict=True))
            yield RowChange(sid, either.unit, named, was.get(labels), now.get(labels))


def _shape(series: StoredSeries) -> tuple[tuple[str, ...], str]:
    return series.dimensions, series.unit


def _middles(series: StoredSeries | None) -> dict[RowLabels, Value]:
    return series.middles if series is not None else {}
