"""Which rank, or stage of a rank, has no row of a metric where others have one? A worst row of 18 says nothing of 24.

Every rank of a run does the same work, but for what its place in the pipeline changes: so each must have a row, and of
the stages each must have those of the ranks of its own ``pp`` coordinate. Without such coordinates all are one group.
What is sparse by nature (groups, collectives, streams, kernels, ranges) is not compared, nor what knows no rank.
"""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pytest_nsys.analysis.table import Labelled, NothingSelected, Selector, Table, asks_for_none, select, selected
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.model import counted
from pytest_nsys.gates.assertion import AllowMissing

CALL = "call"
"""A dimension of what a rank may well never do: it has no row, and is no worse for it."""

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
    table: Table, where: Mapping[str, Selector] | None = None, allowed: AllowMissing | None = None
) -> list[Absence]:
    """The ranks that ``where`` means and that lack a row, by number; those that ``allowed`` excuses are left out."""
    if "rank" not in table.dimensions or CALL in table.dimensions:
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


def _held(table: Table, where: Mapping[str, Selector]) -> dict[int, frozenset[str]]:
    """The stages of which each rank of the run has a row, ``""`` of a metric without stages."""
    found: dict[int, set[str]] = {rank: set() for rank in table.coordinates}
    unstaged = table.every_stage or asks_for_none(where)
    for labels, _ in table.labelled():
        rank, stage = labels["rank"], str(labels.get("stage", ""))
        if isinstance(rank, int) and (unstaged or stage != NO_STAGE):
            found.setdefault(rank, set()).add(stage)
    return {rank: frozenset(own) for rank, own in found.items()}


def _place(table: Table, rank: int) -> int | None:
    return table.coordinates.get(rank, {}).get("pp")


def _meant(table: Table, where: Mapping[str, Selector], rank: int, stage: str) -> bool:
    """Whether the selectors mean the rank and the stage, whatever they ask of other dimensions."""
    own: Labelled = ({"rank": rank, "stage": stage}, 0)
    sparse = set(table.dimensions) - {"rank", "stage"}
    return all(selected(table, own, d, s.values) for d, s in where.items() if d not in sparse)


def _in(allowed: AllowMissing | None, rank: int, stage: str) -> bool:
    return any(rank in ranks and fnmatch.fnmatchcase(stage, glob) for glob, ranks in (allowed or {}).items())


def _other(table: Table, held: Mapping[int, frozenset[str]], rank: int, stage: str) -> int:
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


def complete(table: Table, where: Mapping[str, Selector], allowed: AllowMissing | None = None) -> Sequence[Labelled]:
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
