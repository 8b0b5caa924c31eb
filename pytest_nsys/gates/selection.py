"""Which rows does a sentence judge, what do they become, and does a rank lack one that others have?

Selectors, aggregates and balance are exact. A worst row of 18 says nothing of 24: every rank of a run does the same
work, but for what its place in the pipeline changes. So each must have a row, and of the stages each must have those of
the ranks of its own ``pp`` coordinate; without such coordinates all are one group. What is sparse by nature (groups,
collectives, streams, kernels, ranges) is not compared, nor what knows no rank.
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
    Labelled,
    MetricTable,
    NothingSelected,
    Selector,
    asks_for_none,
    select,
    selected,
)
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.exact import aggregate, exact
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.words import counted, place_words
from pytest_nsys.gates.model import Aggregate, AllowMissing, Assertion


def fold(table: MetricTable, rows: Sequence[Labelled], assertion: Assertion) -> list[Labelled]:
    """The values that are held against the limit: each row, its aggregates, or the worst balance.

    Raises NothingSelected where a rank lacks the mesh axis that is asked for.
    """
    if assertion.balance_across is not None:
        return balance(table, rows, assertion.balance_across)
    for step in assertion.aggregates:
        rows = _aggregate(table, rows, step, fixed=tuple(assertion.where))
    return list(rows)


_PICKS = re.compile(r"max|min|median|p[0-9]+")
"""Aggregates whose value is, or may be, that of one of the rows."""


def origin(table: MetricTable, rows: Sequence[Labelled], assertion: Assertion, folded: Labelled) -> Mapping[str, Label]:
    """The row that an aggregate took its value from, by the labels that the aggregate lost; empty where there is none.

    ``rows`` are those that were taken together. Of several rows with the value it is the first.
    """
    steps = assertion.aggregates
    if not steps or not all(_PICKS.fullmatch(step.word) for step in steps):
        return {}
    labels, value = folded
    for own, candidate in rows:
        if candidate == value and all(table.label(own, d) == label for d, label in labels.items()):
            return {d: label for d, label in own.items() if d not in labels}
    return {}


def _aggregate(table: MetricTable, rows: Sequence[Labelled], step: Aggregate, fixed: Sequence[str]) -> list[Labelled]:
    """One value for each combination of the dimensions that the step does not take together."""

    def kept(labels: Mapping[str, Label]) -> dict[str, Label]:
        """The labels that a combination is told by."""
        if step.over is None:
            by_mesh = {d: label for d in fixed if (label := table.label(labels, d)) is not None}
            return {d: label for d, label in {**labels, **by_mesh}.items() if d in fixed}
        for axis in step.over:
            labels = labels if axis in labels else _on_mesh(table, labels, axis)
        return {d: label for d, label in labels.items() if d not in step.over}

    groups = grouped((tuple(kept(labels).items()), value) for labels, value in rows)
    return [(dict(key), aggregate(step.word)(values)) for key, values in groups.items()]


def _on_mesh(table: MetricTable, labels: Mapping[str, Label], axis: str) -> Mapping[str, Label]:
    """The labels with the rank's mesh coordinates in its place. Raises NothingSelected where it has no ``axis``."""
    rank = labels.get("rank")
    if not isinstance(rank, int):
        raise NothingSelected(f"no row has a {axis} any more: its ranks were taken together before")
    mesh = table.coordinates.get(rank, {})
    if axis not in mesh:
        raise NothingSelected(f"rank {rank} has no {axis} coordinate: the trace has no setup label with {axis}")
    return {d: label for d, label in labels.items() if d != "rank"} | dict(mesh)


def balance(table: MetricTable, rows: Sequence[Labelled], axis: str) -> list[Labelled]:
    """Maximum over minimum across one mesh axis, for each combination of the others; the worst one counts.

    Raises NothingSelected where a place on the axis has no row: a rank compared with itself is always in balance.
    """
    groups: dict[tuple[tuple[str, Label], ...], dict[Label, Value]] = {}
    for labels, value in rows:
        mesh = _on_mesh(table, labels, axis)
        rest = {d: label for d, label in mesh.items() if d != axis}
        groups.setdefault(tuple(sorted(rest.items())), {})[mesh[axis]] = value
    places = max(table.sizes.get(axis, 0), 2)
    found: list[Labelled] = []
    for key, by_place in groups.items():
        values = list(by_place.values())
        if len(values) < places:
            where = place_words(key)
            raise NothingSelected(f"{len(values)} of {places} places on {axis} have a row ({where})")
        if min(values) == 0:
            raise NothingSelected(f"the minimum across {axis} is 0, so there is no ratio")
        found.append((dict(key), exact(Fraction(max(values)) / Fraction(min(values)))))
    return [max(found, key=lambda row: row[1])]


SHOWN = 3
"""Stages that a message names."""


class Absence(NamedTuple):
    """A rank without a row: ``at_all``, else of ``stages``, which rank ``other`` has.

    ``stages`` is ``("",)`` where the metric knows none. ``why`` it may be, where the metric can tell.
    """

    rank: int
    stages: tuple[str, ...]
    other: int
    at_all: bool
    why: str = ""

    def __str__(self) -> str:
        some = f"{', '.join(self.stages[:SHOWN])}{' …' if len(self.stages) > SHOWN else ''}"
        of = "" if self.at_all else f" of {'stage' if len(self.stages) == 1 else 'stages'} {some}"
        return f"rank {self.rank} has no row{of}, though rank {self.other} has{f' ({self.why})' if self.why else ''}"


def absences(
    table: MetricTable, where: Mapping[str, Selector] | None = None, allowed: AllowMissing | None = None
) -> list[Absence]:
    """The ranks that ``where`` means and that lack a row, by number; those that ``allowed`` excuses are left out."""
    if "rank" not in table.dimensions or table.patchy:
        return []
    asked = where or {}
    held = _held(table, asked)
    everywhere = frozenset[str]().union(*held.values())
    alike: dict[int | None, set[str]] = defaultdict(set)
    for rank, own in held.items():
        alike[_place(table, rank)] |= own
    found = []
    for rank, own in sorted(held.items()):
        expected = alike[_place(table, rank)] or everywhere
        if not asks_for_none(asked):
            expected = expected - {NO_STAGE} or expected
        lacks = tuple(s for s in sorted(expected - own) if _meant(table, asked, rank, s) and not _in(allowed, rank, s))
        if lacks:
            found.append(Absence(rank, lacks, _other(table, held, rank, lacks[0]), not own, table.without))
    return found


def _held(table: MetricTable, where: Mapping[str, Selector]) -> dict[int, frozenset[str]]:
    """The stages of which each rank of the run has a row, ``""`` of a metric without stages."""
    found: dict[int, set[str]] = {rank: set() for rank in table.coordinates}
    unstaged = table.every_stage or asks_for_none(where)
    for labels, _ in chain(table.labelled(), table.labelled(table.unseen.items())):
        rank, stage = labels["rank"], str(labels.get("stage", ""))
        if isinstance(rank, int) and (unstaged or stage != NO_STAGE):
            found.setdefault(rank, set()).add(stage)
    return {rank: frozenset(own) for rank, own in found.items()}


def _place(table: MetricTable, rank: int) -> int | None:
    return table.coordinates.get(rank, {}).get("pp")


def _meant(table: MetricTable, where: Mapping[str, Selector], rank: int, stage: str) -> bool:
    """Whether the selectors mean the rank and the stage, whatever they ask of other dimensions."""
    own: Labelled = ({"rank": rank, "stage": stage}, 0)
    sparse = set(table.dimensions) - {"rank", "stage"}
    return all(selected(table, own, d, s.values) for d, s in where.items() if d not in sparse)


def _in(allowed: AllowMissing | None, rank: int, stage: str) -> bool:
    return any(rank in ranks and fnmatch.fnmatchcase(stage, glob) for glob, ranks in (allowed or {}).items())


def _other(table: MetricTable, held: Mapping[int, frozenset[str]], rank: int, stage: str) -> int:
    """A rank that has what this one lacks, of the same place where there is one."""
    having = [other for other, own in held.items() if stage in own]
    return min(having, key=lambda other: (_place(table, other) != _place(table, rank), other))


def excuse(found: Iterable[Absence]) -> str:
    """What a gate file says of them where they are right: ``allow_missing: {stage2_f: [3], stage2_b: [3]}``."""
    ranks: dict[str, set[int]] = defaultdict(set)
    for each in found:
        for stage in ('"*"',) if each.at_all else each.stages:
            ranks[stage].add(each.rank)
    entries = (f"{glob}: {sorted(own)}" for glob, own in sorted(ranks.items()))
    return f"allow_missing: {{{', '.join(entries)}}}"


def complete(
    table: MetricTable, where: Mapping[str, Selector], allowed: AllowMissing | None = None
) -> Sequence[Labelled]:
    """The rows that every selector means. Raises NothingSelected where one means none, or a rank that they mean has
    none and is not excused.
    """
    rows = select(table, where)
    if found := absences(table, where, allowed):
        raise NothingSelected(told(found))
    return rows


def told(found: Sequence[Absence]) -> str:
    """Who is missing, in one line, and what to write where that is right."""
    more = f" (and {counted(len(found) - 1, 'more rank')})" if found[1:] else ""
    return f"{found[0]}{more}; where that is right, select other ranks or write {excuse(found)}"
