"""Which rows does a selector mean, in one table of several windows, ranks or captures whose rows have named dimensions?

Text matches exactly, or as a prefix before ``_`` (``stage3`` selects ``stage3_f``), or as a glob; numbers match as
numbers, so rank 1 is not rank 10. Each element of a selector must match a row of its own.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import NamedTuple

from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.errors import did_you_mean
from pytest_nsys.core.exact import median
from pytest_nsys.core.model import Label, Row, Value
from pytest_nsys.core.units import HASH
from pytest_nsys.core.words import counted

Labelled = tuple[Mapping[str, Label], Value]
"""Pairs the labels of a row, by dimension, with its value."""


Coordinates = Mapping[int, Mapping[str, int]]
"""Maps a rank number to its mesh coordinates."""


class NothingSelected(Exception):
    """Says that no row, or not a row for each element that was listed, is there: there is no data to judge."""


class Selector(NamedTuple):
    """Lists the labels that one dimension may have. Each of ``values`` must match a row, else there is no data.

    Text matches exactly, or as a prefix before ``_``, or as a glob; numbers match as numbers.
    """

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricTable:
    """Holds the rows of one metric, as measured or as stored."""

    dimensions: tuple[str, ...]
    rows: Sequence[Row]
    coordinates: Coordinates
    sizes: Mapping[str, int] = field(default_factory=dict)
    every_stage: bool = False  # kernels without a stage count where no selector asks for one
    without: str = ""  # why there may be no row
    missing: Sequence[tuple[tuple[Label, ...], str]] = ()  # rows that some capture or window lacks, with why
    unseen: Mapping[tuple[Label, ...], Value] = field(default_factory=dict)  # by labels the error that a value is below
    patchy: bool = False  # it is not known which rows are unseen

    def labelled(self, rows: Iterable[tuple[tuple[Label, ...], Value]] | None = None) -> list[Labelled]:
        """Return the rows with their dimensions by name, in order; of the given rows, where some are given."""
        chosen_rows = self.rows if rows is None else rows
        return [(dict(zip(self.dimensions, labels, strict=True)), value) for labels, value in chosen_rows]

    def label(self, labels: Mapping[str, Label], dimension: str) -> Label | None:
        """Return the label of a dimension, which may be a mesh axis of the row's rank; None where there is none."""
        if dimension in labels:
            return labels[dimension]
        rank = labels.get("rank")
        return self.coordinates.get(rank, {}).get(dimension) if isinstance(rank, int) else None


STATISTICS = ("median", "mean", "min", "max")
"""Lists the labels of the dimension ``statistic``: what a row takes of the values behind it."""

_USUAL: Mapping[str, Selector] = {"statistic": Selector((STATISTICS[0],))}
"""Selects the rows that are meant where no selector names the dimension."""


def label_key(label: Label) -> tuple[int, int, str]:
    """Return the sort key of a label: numbers as numbers, before text."""
    return (0, label, "") if isinstance(label, int) else (1, 0, label)


def row_key(labels: Sequence[Label]) -> list[tuple[int, int, str]]:
    """Return the sort key of a row's labels."""
    return [label_key(label) for label in labels]


def matches(element: str, label: Label) -> bool:
    """Whether one element of a selector means this label, or what stands before the arguments of a template."""
    if isinstance(label, int):
        # ``int()`` refuses texts of thousands of digits, and no label has as many.
        return re.fullmatch(r"-?[0-9]{1,18}", element) is not None and int(element) == label
    if label == element or label.startswith(f"{element}_"):
        return True
    # A kernel is known without the arguments of its template.
    return any(fnmatch.fnmatchcase(name, element) for name in (label, label.partition("<")[0]))


def meant(table: MetricTable, where: Mapping[str, Selector]) -> list[Labelled]:
    """Return the rows that every selector means; there may be none.

    Kernels without a stage are left out unless a selector asks for stage ``none``, or the table counts every stage.
    """
    counts_unstaged = table.every_stage if "stage" not in where else asks_for_none(where)
    staged_only = "stage" in table.dimensions and not counts_unstaged
    rows = [row for row in table.labelled() if not (staged_only and row[0]["stage"] == NO_STAGE)]
    selectors = with_usual(where, table.dimensions)
    return [row for row in rows if all(selected(table, row, dim, s.values) for dim, s in selectors.items())]


def with_usual(where: Mapping[str, Selector], dimensions: Collection[str]) -> dict[str, Selector]:
    """Return the selectors, with those that are meant where nobody says."""
    return {d: selector for d, selector in _USUAL.items() if d in dimensions} | dict(where)


def asks_for_none(where: Mapping[str, Selector]) -> bool:
    """Whether the kernels without a stage are asked for."""
    return "stage" in where and NO_STAGE in where["stage"].values


def no_stage(dimensions: Sequence[str], rows: Collection[tuple[Label, ...]]) -> bool:
    """Whether rows are by stage, and none has one: who judged or stored them meant those."""
    return "stage" in dimensions and all(labels[dimensions.index("stage")] == NO_STAGE for labels in rows)


def count_unstaged(table: MetricTable) -> MetricTable:
    """Return the table so that kernels without a stage count where no row, missing and unseen ones too, has a stage.

    It is the table itself where some have one, or every stage counts already.
    """
    labels = [*(row.labels for row in table.rows), *(labels for labels, _ in table.missing), *table.unseen]
    if table.every_stage or not no_stage(table.dimensions, labels):
        return table
    return replace(table, every_stage=True)


def select(table: MetricTable, where: Mapping[str, Selector]) -> list[Labelled]:
    """Return the rows that every selector means. Raises NothingSelected where one of its elements means none."""
    chosen_rows = meant(table, where)
    if not table.rows and not table.unseen:
        raise NothingSelected(_why_no_rows(table))
    default_rows = meant(
        table, {d: s for d, s in where.items() if d in _USUAL or (d == "stage" and asks_for_none(where))}
    )
    unseen_rows = meant(replace(table, rows=[*starmap(Row, table.unseen.items())]), {})
    stage_first = dict(sorted(where.items(), key=lambda item: item[0] != "stage"))  # it decides which rows count at all
    # What no row has at all is named before what no row has together with the rest.
    for rows, selectors in ((default_rows, stage_first), (chosen_rows, where)):
        for dimension, selector in selectors.items():
            for element in selector.values:
                if not any(selected(table, row, dimension, (element,)) for row in (*rows, *unseen_rows)):
                    rest_text = " of the rows that the rest selects" if rows is chosen_rows and len(where) > 1 else ""
                    hint = did_you_mean(element, _labels(table, dimension)) if dimension in _LISTED else ""
                    existing_text = _what_exists(table, dimension)
                    raise NothingSelected(f"no row{rest_text} has {dimension} {element}{hint}; {existing_text}")
    if not chosen_rows:
        raise NothingSelected(UNSEEN if unseen_rows else _why_no_rows(table))
    return chosen_rows


UNSEEN = "each value is below its error, since the ranks use several clocks"
"""Says why there is no row where there would be some."""


def _why_no_rows(table: MetricTable) -> str:
    if table.rows and "stage" in table.dimensions:
        return (
            f"its {counted(len(table.rows), 'row')} in the window have no stage: select stage {NO_STAGE} to judge them"
        )
    return f"it has no row in the window{f': {table.without}' if table.without else ''}"


def selected(table: MetricTable, row: Labelled, dimension: str, elements: Sequence[str]) -> bool:
    """Whether one of the elements means the row's label."""
    label = table.label(row[0], dimension)
    return label is not None and any(matches(element, label) for element in elements)


_LISTED = {"family": "families"}
"""Maps dimensions whose labels are all known from a table to their plural: another label is a slip of the pen."""


def _labels(table: MetricTable, dimension: str) -> list[str]:
    """Return the labels that rows have, in order."""
    any_selector = {dimension: Selector(("*",))} if dimension in _USUAL else {}
    labels = (table.label(labels, dimension) for labels, _ in meant(table, any_selector))
    return [str(label) for label in sorted({label for label in labels if label is not None}, key=label_key)]


def _what_exists(table: MetricTable, dimension: str) -> str:
    labels = _labels(table, dimension)
    if not labels:
        return f"no row has a {dimension}" if meant(table, {}) else _why_no_rows(table)
    if dimension == "stage" and labels == [NO_STAGE]:
        return "no kernel of its rows has a stage: leave the stage out to judge them"
    plural = _LISTED.get(dimension, f"{dimension}s")
    return f"{plural} with a row: {', '.join(labels[:16])}{' …' if len(labels) > 16 else ''}"


def of_ranks(found: MetricTable, ranks: frozenset[int] | None) -> MetricTable:
    """Return the rows of some ranks, where rows are of ranks."""
    if ranks is None or "rank" not in found.dimensions:
        return found
    rank_place = found.dimensions.index("rank")
    rows = tuple(row for row in found.rows if row.labels[rank_place] in ranks)
    unseen = {labels: error for labels, error in found.unseen.items() if labels[rank_place] in ranks}
    missing_rows = tuple(missing_row for missing_row in found.missing if missing_row[0][rank_place] in ranks)
    return replace(found, rows=rows, missing=missing_rows, unseen=unseen)


def of_all(each: Sequence[MetricTable], empty: MetricTable) -> MetricTable:
    """Return the rows of several tables, of which no two have the same."""
    rows = tuple(row for table in each for row in table.rows)
    missing_rows = tuple(missing_row for table in each for missing_row in table.missing)
    return replace(empty, rows=rows, missing=missing_rows, without=_why(each, empty))


def _why(each: Sequence[MetricTable], empty: MetricTable) -> str:
    """Return what one of the tables says of having no row, before what is true of the metric anywhere."""
    return next((table.without for table in each if table.without != empty.without), empty.without)


def combined(metric: Metric, each: Sequence[MetricTable], of_what: str, empty: MetricTable) -> MetricTable:
    """Merge tables row by row into medians; a row that one of them lacks is missing."""
    if len(each) == 1:
        return each[0]
    values: dict[tuple[Label, ...], list[Value]] = {}
    missing_rows = {labels: reason for table in each for labels, reason in table.missing}
    for table in each:
        for labels, value in table.rows:
            values.setdefault(labels, []).append(value)
    unseen: dict[tuple[Label, ...], Value] = {}
    for table in each:
        unseen |= {labels: max(error_ns, unseen.get(labels, 0)) for labels, error_ns in table.unseen.items()}
    rows = []
    for labels, row_values in sorted(values.items(), key=lambda item: row_key(item[0])):
        if labels in unseen:  # of some of them no value is known, so no median is
            continue
        if metric.sparse:
            rows.append(Row(labels, median([*row_values, *[0] * (len(each) - len(row_values))])))
        elif len(row_values) < len(each):
            missing_rows.setdefault(labels, f"only {len(row_values)} of {len(each)} {of_what} have this row")
        elif metric.unit == HASH and len(set(row_values)) > 1:
            missing_rows.setdefault(labels, f"it is not the same in all {len(each)} {of_what}")
        elif labels not in missing_rows:
            rows.append(Row(labels, median(row_values)))
    no_row_reason = _why(each, empty)
    return replace(empty, rows=tuple(rows), missing=tuple(missing_rows.items()), unseen=unseen, without=no_row_reason)


NOT_IN_THAT_WINDOW = "the window with the budget that is shown has no such row"
"""Says why a rank has no row of a budget, where other windows have some."""


def of_one(
    each: Sequence[tuple[MetricTable, MetricTable]], empty: MetricTable, *, captures: bool = False
) -> MetricTable:
    """Choose for each rank the rows of the table whose row beside it is the lower median of the rank's.

    Rows that add up in each table add up here. What only other windows of the rank have is missing if that one has
    nothing; of captures each must have rows of the rank.
    """
    by_rank: dict[Label, list[tuple[Value, int]]] = {}
    for pair_number, (_, key_table) in enumerate(each):
        for (rank,), value in key_table.rows:
            by_rank.setdefault(rank, []).append((value, pair_number))
    rows: list[Row] = []
    missing_rows = {labels: reason for table, _ in each for labels, reason in table.missing}
    for rank, ranked_values in sorted(by_rank.items(), key=lambda item: label_key(item[0])):
        rows_by_table = [[row for row in table.rows if row.labels[0] == rank] for table, _ in each]
        table_count, chosen_rows = (
            sum(map(bool, rows_by_table)),
            # The lower median: rows that exist, no mean of two.
            rows_by_table[sorted(ranked_values)[(len(ranked_values) - 1) // 2][1]],
        )
        if chosen_rows and (table_count == len(each) or not captures):
            rows += chosen_rows
            continue
        reason = f"only {table_count} of {len(each)} captures have this row" if captures else NOT_IN_THAT_WINDOW
        missing_rows |= {
            row.labels: missing_rows.get(row.labels, reason) for table_rows in rows_by_table for row in table_rows
        }
    no_row_reason = _why([table for table, _ in each], empty)
    return replace(empty, rows=tuple(rows), missing=tuple(missing_rows.items()), without=no_row_reason)
