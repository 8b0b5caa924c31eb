"""Which rows does a sentence judge, which values do they become, and which ranks lack a row that others have?

Selectors, aggregates and balance are exact. The worst row of 18 ranks says nothing about the other 6 of 24. All ranks
do the same work, except for their place in the pipeline, so each rank must have a row, and the same stages as the other
ranks with its ``pp`` coordinate; without such coordinates all ranks are one group. Dimensions that are sparse by nature
(groups, collectives, streams, kernels, ranges) are not checked, nor are metrics without a rank.
"""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from pytest_nsys.analysis.metrics.table import (
    LabelledValue,
    MetricTable,
    NothingSelected,
    Selector,
    is_selected,
    select_rows,
    selects_unstaged,
)
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.exact import resolve_aggregate, simplify_fraction
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.text_format import format_count, format_labels
from pytest_nsys.gates.model import Aggregate, AllowMissing, Assertion


def fold_rows(table: MetricTable, rows: Sequence[LabelledValue], assertion: Assertion) -> list[LabelledValue]:
    """Return the values that are compared with the limit: each row, its aggregates, or the worst balance.

    Raises NothingSelected where a rank lacks the mesh axis that is asked for.
    """
    if assertion.balance_across is not None:
        return measure_balance(table, rows, assertion.balance_across)
    for step in assertion.aggregates:
        rows = _aggregate_step(table, rows, step, fixed_dimensions=tuple(assertion.where))
    return list(rows)


_PICKING_AGGREGATES = re.compile(r"max|min|median|p[0-9]+")
"""Matches aggregates whose value is, or may be, the value of one row."""


def find_origin_row(
    table: MetricTable, rows: Sequence[LabelledValue], assertion: Assertion, folded_row: LabelledValue
) -> Mapping[str, Label]:
    """Return the labels, dropped by the aggregate, of the row that it took its value from; empty if no row has the
    value.

    ``rows`` are the aggregated rows. Of several rows with the value the first counts.
    """
    steps = assertion.aggregates
    if not steps or not all(_PICKING_AGGREGATES.fullmatch(step.word) for step in steps):
        return {}
    labels, value = folded_row
    for row_labels, candidate in rows:
        if candidate == value and all(
            table.find_label(row_labels, dimension) == label for dimension, label in labels.items()
        ):
            return {dimension: label for dimension, label in row_labels.items() if dimension not in labels}
    return {}


def _aggregate_step(
    table: MetricTable, rows: Sequence[LabelledValue], step: Aggregate, fixed_dimensions: Sequence[str]
) -> list[LabelledValue]:
    """Return one value for each combination of labels of the dimensions that the aggregate keeps."""

    def select_labels(labels: Mapping[str, Label]) -> dict[str, Label]:
        """Return the labels by which rows are grouped."""
        if step.over is None:
            mesh_labels = {
                dimension: label
                for dimension in fixed_dimensions
                if (label := table.find_label(labels, dimension)) is not None
            }
            return {
                dimension: label
                for dimension, label in {**labels, **mesh_labels}.items()
                if dimension in fixed_dimensions
            }
        for axis in step.over:
            labels = labels if axis in labels else _place_on_mesh(table, labels, axis)
        return {dimension: label for dimension, label in labels.items() if dimension not in step.over}

    groups = group_by_key((tuple(select_labels(labels).items()), value) for labels, value in rows)
    return [(dict(key), resolve_aggregate(step.word)(values)) for key, values in groups.items()]


def _place_on_mesh(table: MetricTable, labels: Mapping[str, Label], axis: str) -> Mapping[str, Label]:
    """Return the labels with the rank replaced by its mesh coordinates. Raises NothingSelected if the rank lacks
    ``axis``.
    """
    rank = labels.get("rank")
    if not isinstance(rank, int):
        raise NothingSelected(f"no row has a {axis} any more: its ranks were taken together before")
    mesh = table.coordinates.get(rank, {})
    if axis not in mesh:
        raise NothingSelected(f"rank {rank} has no {axis} coordinate: the trace has no setup label with {axis}")
    return {dimension: label for dimension, label in labels.items() if dimension != "rank"} | dict(mesh)


def measure_balance(table: MetricTable, rows: Sequence[LabelledValue], axis: str) -> list[LabelledValue]:
    """Return the worst ratio of maximum to minimum across one mesh axis, over the combinations of the other axes.

    Raises NothingSelected where a place on the axis has no row: a rank compared with itself is always in balance.
    """
    groups: dict[tuple[tuple[str, Label], ...], dict[Label, Value]] = {}
    for labels, value in rows:
        mesh = _place_on_mesh(table, labels, axis)
        other_coordinates = {dimension: label for dimension, label in mesh.items() if dimension != axis}
        groups.setdefault(tuple(sorted(other_coordinates.items())), {})[mesh[axis]] = value
    place_count = max(table.sizes.get(axis, 0), 2)
    ratios: list[LabelledValue] = []
    for key, values_by_place in groups.items():
        values = list(values_by_place.values())
        if len(values) < place_count:
            place = format_labels(key)
            raise NothingSelected(f"{len(values)} of {place_count} places on {axis} have a row ({place})")
        if min(values) == 0:
            raise NothingSelected(f"the minimum across {axis} is 0, so there is no ratio")
        ratios.append((dict(key), simplify_fraction(Fraction(max(values)) / Fraction(min(values)))))
    return [max(ratios, key=lambda row: row[1])]


MOST_NAMED_STAGES = 3
"""Most stages that a message names."""


class AbsentRank(NamedTuple):
    """Describes a rank without rows that other ranks have."""

    rank: int
    stages: tuple[str, ...]  # the lacking stages; ("",) for a metric without stages
    example_rank: int  # a rank that has these stages
    has_no_row: bool
    reason: str = ""  # why, if the metric knows

    def __str__(self) -> str:
        stages_text = (
            f"{', '.join(self.stages[:MOST_NAMED_STAGES])}{' …' if len(self.stages) > MOST_NAMED_STAGES else ''}"
        )
        of_stages = "" if self.has_no_row else f" of {'stage' if len(self.stages) == 1 else 'stages'} {stages_text}"
        return (
            f"rank {self.rank} has no row{of_stages}, though rank {self.example_rank} has"
            f"{f' ({self.reason})' if self.reason else ''}"
        )


def find_absent_ranks(
    table: MetricTable, where: Mapping[str, Selector] | None = None, excused: AllowMissing | None = None
) -> list[AbsentRank]:
    """Return the selected ranks that lack a row, by number; those that ``excused`` allows to lack it are left out."""
    if "rank" not in table.dimensions or table.has_unknown_unseen:
        return []
    selectors = where or {}
    stages_by_rank = _group_stages_by_rank(table, selectors)
    all_stages = frozenset[str]().union(*stages_by_rank.values())
    stages_by_place: dict[int | None, set[str]] = defaultdict(set)
    for rank, stages in stages_by_rank.items():
        stages_by_place[_find_pipeline_place(table, rank)] |= stages
    absent_ranks = []
    for rank, stages in sorted(stages_by_rank.items()):
        expected = stages_by_place[_find_pipeline_place(table, rank)] or all_stages
        if not selects_unstaged(selectors):
            expected = expected - {NO_STAGE} or expected
        missing_stages = tuple(
            stage
            for stage in sorted(expected - stages)
            if _is_selected(table, selectors, rank, stage) and not _is_excused(excused, rank, stage)
        )
        if missing_stages:
            absent_ranks.append(
                AbsentRank(
                    rank,
                    missing_stages,
                    _find_example_rank(table, stages_by_rank, rank, missing_stages[0]),
                    not stages,
                    table.no_row_reason,
                )
            )
    return absent_ranks


def _group_stages_by_rank(table: MetricTable, where: Mapping[str, Selector]) -> dict[int, frozenset[str]]:
    """Return the stages that each rank of the run has rows of, by rank; ``""`` for a metric without stages."""
    stages_by_rank: dict[int, set[str]] = {rank: set() for rank in table.coordinates}
    counts_all_stages = table.counts_unstaged or selects_unstaged(where)
    for labels, _ in chain(table.label_rows(), table.label_rows(table.unseen.items())):
        rank, stage = labels["rank"], str(labels.get("stage", ""))
        if isinstance(rank, int) and (counts_all_stages or stage != NO_STAGE):
            stages_by_rank.setdefault(rank, set()).add(stage)
    return {rank: frozenset(stages) for rank, stages in stages_by_rank.items()}


def _find_pipeline_place(table: MetricTable, rank: int) -> int | None:
    """Return the ``pp`` coordinate of a rank, its place in the pipeline; None where it has none."""
    return table.coordinates.get(rank, {}).get("pp")


def _is_selected(table: MetricTable, where: Mapping[str, Selector], rank: int, stage: str) -> bool:
    """Whether the selectors choose the rank and the stage, ignoring other dimensions."""
    row: LabelledValue = ({"rank": rank, "stage": stage}, 0)
    sparse_dimensions = set(table.dimensions) - {"rank", "stage"}
    return all(
        is_selected(table, row, dimension, selector.values)
        for dimension, selector in where.items()
        if dimension not in sparse_dimensions
    )


def _is_excused(excused: AllowMissing | None, rank: int, stage: str) -> bool:
    return any(rank in ranks and fnmatch.fnmatchcase(stage, glob) for glob, ranks in (excused or {}).items())


def _find_example_rank(table: MetricTable, stages_by_rank: Mapping[int, frozenset[str]], rank: int, stage: str) -> int:
    """Return a rank that has the stage that this one lacks, at the same place of the pipeline where there is one."""
    having_ranks = [candidate for candidate, stages in stages_by_rank.items() if stage in stages]
    return min(
        having_ranks,
        key=lambda candidate: (_find_pipeline_place(table, candidate) != _find_pipeline_place(table, rank), candidate),
    )


def format_allow_missing(absent_ranks: Iterable[AbsentRank]) -> str:
    """Return the line of a gate file that allows the absences: ``allow_missing: {stage2_f: [3], stage2_b: [3]}``."""
    ranks_by_stage: dict[str, set[int]] = defaultdict(set)
    for absent in absent_ranks:
        for stage in ('"*"',) if absent.has_no_row else absent.stages:
            ranks_by_stage[stage].add(absent.rank)
    entries = (f"{glob}: {sorted(ranks)}" for glob, ranks in sorted(ranks_by_stage.items()))
    return f"allow_missing: {{{', '.join(entries)}}}"


def select_complete_rows(
    table: MetricTable, where: Mapping[str, Selector], excused: AllowMissing | None = None
) -> Sequence[LabelledValue]:
    """Return the rows that match all selectors, after checking that no rank lacks one.

    Raises NothingSelected if a selector matches no row, or if a rank lacks a row and ``excused`` does not allow it.
    """
    rows = select_rows(table, where)
    if absent_ranks := find_absent_ranks(table, where, excused):
        raise NothingSelected(describe_absent_ranks(absent_ranks))
    return rows


def describe_absent_ranks(absent_ranks: Sequence[AbsentRank]) -> str:
    """Return in one line which ranks are absent, and what to write where that is right."""
    more_ranks = f" (and {format_count(len(absent_ranks) - 1, 'more rank')})" if absent_ranks[1:] else ""
    return (
        f"{absent_ranks[0]}{more_ranks}; where that is right, select other ranks or write "
        f"{format_allow_missing(absent_ranks)}"
    )
