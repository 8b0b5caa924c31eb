"""Which rows does a selector match, in a table of several windows, ranks or captures whose rows have named dimensions?

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
from pytest_nsys.core.errors import suggest_word
from pytest_nsys.core.exact import median
from pytest_nsys.core.model import Label, Row, Value
from pytest_nsys.core.text_format import format_count
from pytest_nsys.core.units import HASH

LabelledValue = tuple[Mapping[str, Label], Value]
"""Pairs the labels of a row, by dimension, with its value."""


Coordinates = Mapping[int, Mapping[str, int]]
"""Maps a rank number to its mesh coordinates."""


class NothingSelected(Exception):
    """Reports that no row matches, or none matches one of the listed elements, so there is no data to judge."""


class Selector(NamedTuple):
    """Lists the labels that one dimension may have. Each of ``values`` must match a row, otherwise there is no data.

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
    counts_unstaged: bool = False  # kernels without a stage count unless a selector names stages
    no_row_reason: str = ""  # why there may be no row
    missing: Sequence[
        tuple[tuple[Label, ...], str]
    ] = ()  # rows that are missing in some capture or window, with the reason
    unseen: Mapping[tuple[Label, ...], Value] = field(
        default_factory=dict
    )  # by labels, the error that the value is below
    has_unknown_unseen: bool = False  # it is not known which rows are unseen

    def label_rows(self, rows: Iterable[tuple[tuple[Label, ...], Value]] | None = None) -> list[LabelledValue]:
        """Return rows with their dimensions by name, in order: the given ones, else all."""
        chosen_rows = self.rows if rows is None else rows
        return [(dict(zip(self.dimensions, labels, strict=True)), value) for labels, value in chosen_rows]

    def find_label(self, labels: Mapping[str, Label], dimension: str) -> Label | None:
        """Return the label of a dimension, which may be a mesh axis of the row's rank; None if there is none."""
        if dimension in labels:
            return labels[dimension]
        rank = labels.get("rank")
        return self.coordinates.get(rank, {}).get(dimension) if isinstance(rank, int) else None


STATISTIC_LABELS = ("median", "mean", "min", "max")
"""Lists the labels of the dimension ``statistic``, which says how a row summarizes its values."""

_DEFAULT_SELECTORS: Mapping[str, Selector] = {"statistic": Selector((STATISTIC_LABELS[0],))}
"""The selectors that apply if none names the dimension."""


def make_label_key(label: Label) -> tuple[int, int, str]:
    """Return the sort key of a label: numbers as numbers, before text."""
    return (0, label, "") if isinstance(label, int) else (1, 0, label)


def make_labels_key(labels: Sequence[Label]) -> list[tuple[int, int, str]]:
    """Return the sort key of a row's labels."""
    return [make_label_key(label) for label in labels]


def matches_label(element: str, label: Label) -> bool:
    """Return whether one element of a selector matches a label, or the label without its template arguments."""
    if isinstance(label, int):
        # ``int()`` refuses texts of thousands of digits; no label is that long.
        return re.fullmatch(r"-?[0-9]{1,18}", element) is not None and int(element) == label
    if label == element or label.startswith(f"{element}_"):
        return True
    # A kernel may be selected without its template arguments.
    return any(fnmatch.fnmatchcase(name, element) for name in (label, label.partition("<")[0]))


def select_meant_rows(table: MetricTable, where: Mapping[str, Selector]) -> list[LabelledValue]:
    """Return the rows that every selector matches; there may be none.

    Kernels without a stage are left out unless a selector asks for stage ``none``, or the table counts every stage.
    """
    counts_unstaged = table.counts_unstaged if "stage" not in where else selects_unstaged(where)
    staged_only = "stage" in table.dimensions and not counts_unstaged
    rows = [row for row in table.label_rows() if not (staged_only and row[0]["stage"] == NO_STAGE)]
    selectors = add_default_selectors(where, table.dimensions)
    return [row for row in rows if all(is_selected(table, row, dim, s.values) for dim, s in selectors.items())]


def add_default_selectors(where: Mapping[str, Selector], dimensions: Collection[str]) -> dict[str, Selector]:
    """Return the selectors, with the defaults for dimensions that they do not name."""
    return {d: selector for d, selector in _DEFAULT_SELECTORS.items() if d in dimensions} | dict(where)


def selects_unstaged(where: Mapping[str, Selector]) -> bool:
    """Whether the kernels without a stage are asked for."""
    return "stage" in where and NO_STAGE in where["stage"].values


def has_no_stage(dimensions: Sequence[str], rows: Collection[tuple[Label, ...]]) -> bool:
    """Return whether rows are by stage but none has one: then a gate or baseline meant the rows without a stage."""
    return "stage" in dimensions and all(labels[dimensions.index("stage")] == NO_STAGE for labels in rows)


def count_unstaged(table: MetricTable) -> MetricTable:
    """Return the table with kernels without a stage counted, if no row has a stage, missing and unseen rows included.

    Otherwise, or if every stage counts already, the table itself is returned.
    """
    labels = [*(row.labels for row in table.rows), *(labels for labels, _ in table.missing), *table.unseen]
    if table.counts_unstaged or not has_no_stage(table.dimensions, labels):
        return table
    return replace(table, counts_unstaged=True)


def select_rows(table: MetricTable, where: Mapping[str, Selector]) -> list[LabelledValue]:
    """Return the rows that every selector matches. Raises NothingSelected if one of its elements matches none."""
    chosen_rows = select_meant_rows(table, where)
    if not table.rows and not table.unseen:
        raise NothingSelected(_explain_no_rows(table))
    default_rows = select_meant_rows(
        table, {d: s for d, s in where.items() if d in _DEFAULT_SELECTORS or (d == "stage" and selects_unstaged(where))}
    )
    unseen_rows = select_meant_rows(replace(table, rows=[*starmap(Row, table.unseen.items())]), {})
    stage_first = dict(
        sorted(where.items(), key=lambda item: item[0] != "stage")
    )  # the stage decides which rows count at all
    # A label that no row has is reported before a combination that no row has.
    for rows, selectors in ((default_rows, stage_first), (chosen_rows, where)):
        for dimension, selector in selectors.items():
            for element in selector.values:
                if not any(is_selected(table, row, dimension, (element,)) for row in (*rows, *unseen_rows)):
                    rest_text = " of the rows that the rest selects" if rows is chosen_rows and len(where) > 1 else ""
                    hint = (
                        suggest_word(element, _list_labels(table, dimension)) if dimension in _LISTED_DIMENSIONS else ""
                    )
                    existing_text = _describe_existing_labels(table, dimension)
                    raise NothingSelected(f"no row{rest_text} has {dimension} {element}{hint}; {existing_text}")
    if not chosen_rows:
        raise NothingSelected(UNSEEN_REASON if unseen_rows else _explain_no_rows(table))
    return chosen_rows


UNSEEN_REASON = "each value is below its error, since the ranks use several clocks"
"""Says why a table has no rows if all values are unseen."""


def _explain_no_rows(table: MetricTable) -> str:
    if table.rows and "stage" in table.dimensions:
        return (
            f"its {format_count(len(table.rows), 'row')} in the window have no stage: select stage {NO_STAGE} to "
            "judge them"
        )
    return f"it has no row in the window{f': {table.no_row_reason}' if table.no_row_reason else ''}"


def is_selected(table: MetricTable, row: LabelledValue, dimension: str, elements: Sequence[str]) -> bool:
    """Return whether one of the elements matches the row's label."""
    label = table.find_label(row[0], dimension)
    return label is not None and any(matches_label(element, label) for element in elements)


_LISTED_DIMENSIONS = {"family": "families"}
"""Maps dimensions whose labels are all known from a table to their plural; any other label is a typing error."""


def _list_labels(table: MetricTable, dimension: str) -> list[str]:
    """Return the labels that rows have, in order."""
    any_selector = {dimension: Selector(("*",))} if dimension in _DEFAULT_SELECTORS else {}
    labels = (table.find_label(labels, dimension) for labels, _ in select_meant_rows(table, any_selector))
    return [str(label) for label in sorted({label for label in labels if label is not None}, key=make_label_key)]


def _describe_existing_labels(table: MetricTable, dimension: str) -> str:
    labels = _list_labels(table, dimension)
    if not labels:
        return f"no row has a {dimension}" if select_meant_rows(table, {}) else _explain_no_rows(table)
    if dimension == "stage" and labels == [NO_STAGE]:
        return "no kernel of its rows has a stage: leave the stage out to judge them"
    plural = _LISTED_DIMENSIONS.get(dimension, f"{dimension}s")
    return f"{plural} with a row: {', '.join(labels[:16])}{' …' if len(labels) > 16 else ''}"


def keep_ranks(table: MetricTable, ranks: frozenset[int] | None) -> MetricTable:
    """Return only the rows of some ranks, if rows have the dimension rank."""
    if ranks is None or "rank" not in table.dimensions:
        return table
    rank_place = table.dimensions.index("rank")
    rows = tuple(row for row in table.rows if row.labels[rank_place] in ranks)
    unseen = {labels: error for labels, error in table.unseen.items() if labels[rank_place] in ranks}
    missing_rows = tuple(missing_row for missing_row in table.missing if missing_row[0][rank_place] in ranks)
    return replace(table, rows=rows, missing=missing_rows, unseen=unseen)


def join_tables(tables: Sequence[MetricTable], empty: MetricTable) -> MetricTable:
    """Return the rows of several tables, no two of which have the same row."""
    rows = tuple(row for table in tables for row in table.rows)
    missing_rows = tuple(missing_row for table in tables for missing_row in table.missing)
    return replace(empty, rows=rows, missing=missing_rows, no_row_reason=_find_no_row_reason(tables, empty))


def _find_no_row_reason(tables: Sequence[MetricTable], empty: MetricTable) -> str:
    """Return why there is no row: a table's own reason, else the one that holds for the metric in general."""
    return next(
        (table.no_row_reason for table in tables if table.no_row_reason != empty.no_row_reason), empty.no_row_reason
    )


def merge_by_median(metric: Metric, tables: Sequence[MetricTable], noun: str, empty: MetricTable) -> MetricTable:
    """Merge tables row by row into medians; a row that one of them lacks is missing."""
    if len(tables) == 1:
        return tables[0]
    values: dict[tuple[Label, ...], list[Value]] = {}
    missing_rows = {labels: reason for table in tables for labels, reason in table.missing}
    for table in tables:
        for labels, value in table.rows:
            values.setdefault(labels, []).append(value)
    unseen: dict[tuple[Label, ...], Value] = {}
    for table in tables:
        unseen |= {labels: max(error_ns, unseen.get(labels, 0)) for labels, error_ns in table.unseen.items()}
    rows = []
    for labels, row_values in sorted(values.items(), key=lambda item: make_labels_key(item[0])):
        if labels in unseen:  # some values are unknown, so there is no median
            continue
        if metric.is_sparse:
            rows.append(Row(labels, median([*row_values, *[0] * (len(tables) - len(row_values))])))
        elif len(row_values) < len(tables):
            missing_rows.setdefault(labels, f"only {len(row_values)} of {len(tables)} {noun} have this row")
        elif metric.unit == HASH and len(set(row_values)) > 1:
            missing_rows.setdefault(labels, f"it is not the same in all {len(tables)} {noun}")
        elif labels not in missing_rows:
            rows.append(Row(labels, median(row_values)))
    no_row_reason = _find_no_row_reason(tables, empty)
    return replace(
        empty, rows=tuple(rows), missing=tuple(missing_rows.items()), unseen=unseen, no_row_reason=no_row_reason
    )


NOT_IN_THAT_WINDOW = "the window with the budget that is shown has no such row"
"""Says why a rank has no row of a budget, where other windows have some."""


def choose_median_tables(
    table_pairs: Sequence[tuple[MetricTable, MetricTable]], empty: MetricTable, *, are_captures: bool = False
) -> MetricTable:
    """Choose for each rank the rows of one table: the one whose paired table has the lower median of the rank's rows.

    Rows that add up in each table also add up in the result. Rows that only other windows of the rank have are missing
    if the chosen one has none; of captures, each must have rows of the rank.
    """
    by_rank: dict[Label, list[tuple[Value, int]]] = {}
    for pair_number, (_, key_table) in enumerate(table_pairs):
        for (rank,), value in key_table.rows:
            by_rank.setdefault(rank, []).append((value, pair_number))
    rows: list[Row] = []
    missing_rows = {labels: reason for table, _ in table_pairs for labels, reason in table.missing}
    for rank, ranked_values in sorted(by_rank.items(), key=lambda item: make_label_key(item[0])):
        rows_by_table = [[row for row in table.rows if row.labels[0] == rank] for table, _ in table_pairs]
        table_count, chosen_rows = (
            sum(map(bool, rows_by_table)),
            # The lower median, because its rows exist, unlike a mean of two.
            rows_by_table[sorted(ranked_values)[(len(ranked_values) - 1) // 2][1]],
        )
        if chosen_rows and (table_count == len(table_pairs) or not are_captures):
            rows += chosen_rows
            continue
        reason = (
            f"only {table_count} of {len(table_pairs)} captures have this row" if are_captures else NOT_IN_THAT_WINDOW
        )
        missing_rows |= {
            row.labels: missing_rows.get(row.labels, reason) for table_rows in rows_by_table for row in table_rows
        }
    no_row_reason = _find_no_row_reason([table for table, _ in table_pairs], empty)
    return replace(empty, rows=tuple(rows), missing=tuple(missing_rows.items()), no_row_reason=no_row_reason)
