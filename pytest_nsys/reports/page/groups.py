"""Which records are red for one cause? The cause of each, or that of another record which explains the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from pytest_nsys.analysis.explained import CauseKind, Explained
from pytest_nsys.analysis.metrics import metric_called
from pytest_nsys.core.kept import grouped
from pytest_nsys.gates.model import JudgedRow, Outcome
from pytest_nsys.reports.causes import cause_of
from pytest_nsys.reports.headline import cause_words
from pytest_nsys.reports.session.record import Record

NO_CAUSE = {"": "Cause not known", "no data": "No data", "error": "Not judged"}
"""What stands for a cause, by the outcome of what has none; of what failed nothing."""


class Group(NamedTuple):
    """Records of one cause, in their order; ``title`` tells it, also where there is none and ``caused`` is False."""

    title: str
    caused: bool
    records: Sequence[Record]


def groups(reds: Sequence[Record]) -> list[Group]:
    """Records by what caused them, in the order of the first of each group."""
    exposed = {
        (record.address, part.kernel, row.labels.get("rank")): cause_of(row)
        for record in reds
        for row in record.verdict.causes
        if (part := row.explanation.leading) is not None and part.kind is CauseKind.EXPOSED
    }

    def behind(record: Record, row: Explained) -> str:
        """A kernel that overlaps less of a communication is behind its exposed time, where another row tells that."""
        leading = row.explanation.leading
        hidden = (record.address, leading.exposes if leading is not None else "", row.labels.get("rank"))
        return exposed.get(hidden, cause_of(row))

    explained = {
        _place(record, row): behind(record, row)
        for record in reversed(reds)
        for row in record.verdict.causes
        if row.explanation.causes
    }
    found = grouped((_ground(record, explained), record) for record in reds)
    return [_group(ground, records, reds) for ground, records in found.items()]


def _group(ground: str, records: Sequence[Record], reds: Sequence[Record]) -> Group:
    caused = [record for record in reds if ground and any(cause_of(row) == ground for row in record.verdict.causes)]
    return Group(
        cause_words(ground, caused) if caused else NO_CAUSE.get(ground, ground.capitalize()), bool(caused), records
    )


def _place(record: Record, row: Explained | JudgedRow) -> tuple[str, str | None, str]:
    """What a row is of, and how it is explained, whichever assertion judges it: overlap as exposed time is."""
    metric = metric_called(record.assertion.metric)
    return record.address, metric.explained_by if metric is not None else None, str(dict(row.labels))


def _ground(record: Record, explained: Mapping[tuple[str, str | None, str], str]) -> str:
    """What a record is grouped by: the cause of the first of its rows that is explained, else how it ended."""
    verdict = record.verdict
    failed = (row for row in verdict.rows if row.outcome is Outcome.FAILED)
    rows: Iterable[Explained | JudgedRow] = chain(verdict.causes, failed)
    causes = (explained[place] for row in rows if (place := _place(record, row)) in explained)
    return next(filter(None, causes), "" if verdict.outcome in (Outcome.FAILED, Outcome.PASSED) else verdict.outcome)
