"""What was measured outside of the traces of one capture, as rows: which metrics are there, of which unit and labels?

All files of the capture are taken together. One name is one metric: of one unit, one direction and one set of labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.core.errors import NothingMeasured, TraceError, did_you_mean
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Row
from pytest_nsys.core.words import label_words, printable
from pytest_nsys.traces.measurements import Measurement, read_measurements

MAX_SHOWN = 12
NONE_GIVEN = (
    "no measurements: give pytest --nsys-measurements=FILE, or `pytest-nsys rows` --measurements FILE, or set "
    "`measurements:` in the gate file, or nsys_measurements in the ini file"
)


class Kind(NamedTuple):
    """What all measurements of one name have in common. ``unit`` is what they are judged in."""

    unit: str
    better: str | None
    dimensions: tuple[str, ...]

    def __str__(self) -> str:
        better = f"{self.better} is better" if self.better else "neither side better"
        return f"unit {self.unit}, {better}, labels {', '.join(self.dimensions) or 'none'}"


class Measurements:
    """The measurements of one capture, read when first asked for."""

    def __init__(self, paths: Sequence[Path] = ()) -> None:
        self.paths = tuple(paths)

    @property
    def shown(self) -> str:
        """The files in words."""
        names = ", ".join(str(path) for path in self.paths[:3])
        return printable(f"{names}{' …' if len(self.paths) > 3 else ''}", 1000)

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[Measurement]]:
        found = [each for path in self.paths for each in read_measurements(path)]
        for field in ("commit", "run"):
            _refuse_other(found, field, field)
        by_name = grouped((each.metric, each) for each in found)
        for own in by_name.values():
            _check_one(own)
        return by_name

    @property
    def origin(self) -> Measurement:
        """The first of them, whose commit and run are those of all. Raises as :attr:`names` does."""
        return next(iter(self._by_name.values()))[0]

    @property
    def names(self) -> Sequence[str]:
        """What was measured, sorted. Raises TraceError for files that cannot be meant."""
        return sorted(self._by_name)

    def kind(self, name: str) -> Kind:
        """What a name stands for. Raises NothingMeasured, and TraceError as :attr:`names` does."""
        first = self._entries(name)[0]
        return Kind(first.unit, first.better, _dimensions(first))

    def _entries(self, name: str) -> Sequence[Measurement]:
        if not self.paths:
            raise NothingMeasured(f"measured {printable(name, 60)}: {NONE_GIVEN}")
        if name not in self._by_name:
            names = ", ".join(map(printable, self.names[:MAX_SHOWN])) + (" …" if len(self.names) > MAX_SHOWN else "")
            meant = did_you_mean(name, self.names) or f": there are {names}"
            raise NothingMeasured(f"{self.shown}: nothing is called '{printable(name, 60)}'{meant}")
        return self._by_name[name]

    def rows(self, name: str) -> list[Row]:
        """The values of a name by its labels. Raises as :meth:`kind` does."""
        found = self._entries(name)
        dimensions = _dimensions(found[0])
        return [Row(tuple(each.labels[d] for d in dimensions), each.value) for each in found]


def _dimensions(measurement: Measurement) -> tuple[str, ...]:
    """The names of its labels, the rank first."""
    return tuple(sorted(measurement.labels, key=lambda name: (name != "rank", name)))


def _check_one(own: Sequence[Measurement]) -> None:
    """Raises TraceError where what has one name is not one metric."""
    for field, what in (("written", "unit"), ("better", "direction")):
        _refuse_other(own, field, what)
    labels: dict[frozenset[object], Measurement] = {}
    for each in own:
        if each.labels.keys() != own[0].labels.keys():
            first, here = (", ".join(_dimensions(one)) or "none" for one in (own[0], each))
            raise TraceError(
                f"{each.place}: has the labels {here}, and {own[0].place} has {first}: one metric has one set"
            )
        same = labels.setdefault(frozenset(each.labels.items()), each)
        if same is not each:
            where = label_words(each.labels)
            raise TraceError(
                f"{each.place}: appears twice{f' ({printable(where)})' if where else ''}: {same.place} has it"
            )


def _refuse_other(found: Sequence[Measurement], field: str, what: str) -> None:
    """Raises TraceError where one of them says another thing of it than the first."""
    for each in found[1:]:
        now, first = (getattr(one, field) for one in (each, found[0]))
        if now != first:
            said = [printable(str(one), 60) if one is not None else "none" for one in (now, first)]
            raise TraceError(f"{each.place}: has the {what} {said[0]}, and {found[0].place} has {said[1]}")
