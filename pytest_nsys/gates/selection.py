"""Which rows does a sentence speak of, and what do they become? Selectors, aggregates and balance, all exact.

Text matches exactly, or as a prefix before ``_`` (``stage3`` selects ``stage3_f``), or as a glob; numbers match as
numbers, so rank 1 is not rank 10. Each element of a selector must match a row of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.table import Labelled, NothingSelected, Table
from pytest_nsys.core.model import Label, Value, label_words
from pytest_nsys.core.statistics import aggregate, exact
from pytest_nsys.gates.assertion import Aggregate, Assertion


def fold(table: Table, rows: Sequence[Labelled], assertion: Assertion) -> list[Labelled]:
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


def origin(table: Table, rows: Sequence[Labelled], assertion: Assertion, folded: Labelled) -> Mapping[str, Label]:
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


def _aggregate(table: Table, rows: Sequence[Labelled], step: Aggregate, fixed: Sequence[str]) -> list[Labelled]:
    """One value for each combination of the dimensions that the step does not take together."""

    def kept(labels: Mapping[str, Label]) -> dict[str, Label]:
        """The labels that a combination is told by."""
        if step.over is None:
            by_mesh = {d: label for d in fixed if (label := table.label(labels, d)) is not None}
            return {d: label for d, label in {**labels, **by_mesh}.items() if d in fixed}
        for axis in step.over:
            labels = labels if axis in labels else _on_mesh(table, labels, axis)
        return {d: label for d, label in labels.items() if d not in step.over}

    return _grouped(rows, kept, aggregate(step.word))


def _on_mesh(table: Table, labels: Mapping[str, Label], axis: str) -> Mapping[str, Label]:
    """The labels with the rank's mesh coordinates in its place. Raises NothingSelected where it has no ``axis``."""
    rank = labels.get("rank")
    if not isinstance(rank, int):
        raise NothingSelected(f"no row has a {axis} any more: its ranks were taken together before")
    mesh = table.coordinates.get(rank, {})
    if axis not in mesh:
        raise NothingSelected(f"rank {rank} has no {axis} coordinate: the trace has no setup label with {axis}")
    return {d: label for d, label in labels.items() if d != "rank"} | dict(mesh)


def _grouped(
    rows: Sequence[Labelled],
    kept: Callable[[Mapping[str, Label]], dict[str, Label]],
    combine: Callable[[Sequence[Value]], Value],
) -> list[Labelled]:
    groups: dict[tuple[tuple[str, Label], ...], list[Value]] = {}
    for labels, value in rows:
        groups.setdefault(tuple(kept(labels).items()), []).append(value)
    return [(dict(key), combine(values)) for key, values in groups.items()]


def balance(table: Table, rows: Sequence[Labelled], axis: str) -> list[Labelled]:
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
            where = label_words(key)
            raise NothingSelected(f"{len(values)} of {places} places on {axis} have a row ({where})")
        if min(values) == 0:
            raise NothingSelected(f"the minimum across {axis} is 0, so there is no ratio")
        found.append((dict(key), exact(Fraction(max(values)) / Fraction(min(values)))))
    return [max(found, key=lambda row: row[1])]
