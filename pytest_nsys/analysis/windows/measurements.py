"""Which metrics were measured outside of the traces of one capture, and with which units and labels?

All measurement files of the capture are read together. Each name is one metric, with one unit, one direction and one
set of labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.core.errors import NothingMeasured, TraceError, suggest_word
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Row
from pytest_nsys.core.text_format import format_labels_in_full, sanitize_line
from pytest_nsys.traces.sidecars.measurements import Measurement, read_measurements

MAX_SHOWN_METRICS = 12
NO_MEASUREMENT_FILES = (
    "no measurements: give pytest --nsys-measurements=FILE, or `pytest-nsys rows` --measurements FILE, or set "
    "`measurements:` in the gate file, or nsys_measurements in the ini file"
)


class MeasurementKind(NamedTuple):
    """Describes what all measurements of one name have in common; ``unit`` is the unit in which they are judged."""

    unit: str
    better: str | None
    dimensions: tuple[str, ...]

    def __str__(self) -> str:
        better = f"{self.better} is better" if self.better else "neither side better"
        return f"unit {self.unit}, {better}, labels {', '.join(self.dimensions) or 'none'}"


class OutsideMeasurements:
    """Holds the measurements of one capture; its files are read on first use."""

    def __init__(self, paths: Sequence[Path] = ()) -> None:
        self.paths = tuple(paths)

    @property
    def paths_text(self) -> str:
        """The paths of the files as text, three at most."""
        names = ", ".join(str(path) for path in self.paths[:3])
        return sanitize_line(f"{names}{' …' if len(self.paths) > 3 else ''}", 1000)

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[Measurement]]:
        entries = [entry for path in self.paths for entry in read_measurements(path)]
        # A capture has one commit and run: a file of another one was given by mistake.
        for field in ("commit", "run"):
            _check_same_field(entries, field, field)
        by_name = group_by_key((entry.metric, entry) for entry in entries)
        for metric_entries in by_name.values():
            _check_single_metric(metric_entries)
        return by_name

    @property
    def origin(self) -> Measurement:
        """The first measurement; all have its commit and run. Raises as :attr:`names` does."""
        return next(iter(self._by_name.values()))[0]

    @property
    def names(self) -> Sequence[str]:
        """The names of the measured metrics, sorted. Raises TraceError for files that contradict each other."""
        return sorted(self._by_name)

    def find_kind(self, name: str) -> MeasurementKind:
        """Return the unit, direction and dimensions of a name. Raises NothingMeasured for an unknown name, and
        TraceError as :attr:`names` does.
        """
        first = self._find_entries(name)[0]
        return MeasurementKind(first.unit, first.better, _list_dimensions(first))

    def _find_entries(self, name: str) -> Sequence[Measurement]:
        if not self.paths:
            raise NothingMeasured(f"measured {sanitize_line(name, 60)}: {NO_MEASUREMENT_FILES}")
        if name not in self._by_name:
            names = ", ".join(map(sanitize_line, self.names[:MAX_SHOWN_METRICS])) + (
                " …" if len(self.names) > MAX_SHOWN_METRICS else ""
            )
            hint = suggest_word(name, self.names) or f": there are {names}"
            raise NothingMeasured(f"{self.paths_text}: nothing is called '{sanitize_line(name, 60)}'{hint}")
        return self._by_name[name]

    def list_rows(self, name: str) -> list[Row]:
        """Return the values of a name as rows with their labels. Raises as :meth:`find_kind` does."""
        entries = self._find_entries(name)
        dimensions = _list_dimensions(entries[0])
        return [Row(tuple(entry.labels[d] for d in dimensions), entry.value) for entry in entries]


def _list_dimensions(measurement: Measurement) -> tuple[str, ...]:
    """Return the names of a measurement's labels, the rank first, the others sorted."""
    # Rows of traces have the rank first, too.
    return tuple(sorted(measurement.labels, key=lambda name: (name != "rank", name)))


def _check_single_metric(entries: Sequence[Measurement]) -> None:
    """Raise TraceError if entries of one name differ in unit, direction or labels, or one appears twice."""
    for field, field_noun in (("written_unit", "unit"), ("better", "direction")):
        _check_same_field(entries, field, field_noun)
    labels: dict[frozenset[object], Measurement] = {}
    for entry in entries:
        if entry.labels.keys() != entries[0].labels.keys():
            first_labels, labels_here = (
                ", ".join(_list_dimensions(other_entry)) or "none" for other_entry in (entries[0], entry)
            )
            raise TraceError(
                f"{entry.location}: has the labels {labels_here}, and {entries[0].location} has {first_labels}: "
                "one metric has one set"
            )
        twin = labels.setdefault(frozenset(entry.labels.items()), entry)
        if twin is not entry:
            labels_text = format_labels_in_full(entry.labels)
            raise TraceError(
                f"{entry.location}: appears twice{f' ({sanitize_line(labels_text)})' if labels_text else ''}: "
                f"{twin.location} has it"
            )


def _check_same_field(entries: Sequence[Measurement], field: str, field_noun: str) -> None:
    """Raise TraceError if an entry differs from the first one in a field."""
    for entry in entries[1:]:
        value, first_value = (getattr(compared_entry, field) for compared_entry in (entry, entries[0]))
        if value != first_value:
            value_texts = [
                sanitize_line(str(shown_value), 60) if shown_value is not None else "none"
                for shown_value in (value, first_value)
            ]
            raise TraceError(
                f"{entry.location}: has the {field_noun} {value_texts[0]}, and {entries[0].location} has "
                f"{value_texts[1]}"
            )
