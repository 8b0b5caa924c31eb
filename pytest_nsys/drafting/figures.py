"""The rows of a trace as a draft asks for them: of each capture, of the metrics that have any, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.model import Label, Value, printable
from pytest_nsys.core.units import format_value

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
