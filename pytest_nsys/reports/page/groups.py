"""Which records are red for one cause? The cause of each, or that of another record which explains the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pytest_nsys.analysis.explained import CauseKind
from pytest_nsys.analysis.metrics import metric_called
from pytest_nsys.core.kept import grouped
from pytest_nsys.gates.model import Outcome
from pytest_nsys.reports.causes import Plain
from pytest_nsys.reports.headline import cause_words, leading
from pytest_nsys.reports.session.record import address_of

NO_CAUSE = {"": "Cause not known", "no data": "No data", "error": "Not judged"}
"""What stands for a cause, by the outcome of what has none; of what failed nothing."""


class Group(NamedTuple):
    """Records of one cause, in their order; ``title`` tells it, also where there is none and ``caused`` is False."""

    title: str
    caused: bool
    records: Sequence[Plain]


def groups(reds: Sequence[Plain]) -> list[Group]:
    """Records by what caused them, in the order of the first of each group."""
    exposed = {
        (address_of(record), part["kernel"], row["labels"].get("rank")): str(row["cause"])
        for record in reds
        for row in record["causes"]
        for part in leading(row)
        if part["kind"] == CauseKind.EXPOSED
    }

    def cause_of(record: Plain, row: Plain) -> str:
        """A kernel that overlaps less of a communication is behind its exposed time, where another row tells that."""
        hidden = ((address_of(record), part["exposes"], row["labels"].get("rank")) for part in leading(row))
        return next((exposed[place] for place in hidden if place in exposed), str(row["cause"]))

    explained = {
        _place(record, row): cause_of(record, row)
        for record in reversed(reds)
        for row in record["causes"]
        if row["parts"]
    }
    found = grouped((_ground(record, explained), record) for record in reds)
    return [_group(ground, records, reds) for ground, records in found.items()]


def _group(ground: str, records: Sequence[Plain], reds: Sequence[Plain]) -> Group:
    caused = [record for record in reds if ground and any(row["cause"] == ground for row in record["causes"])]
    return Group(
        cause_words(ground, caused) if caused else NO_CAUSE.get(ground, ground.capitalize()), bool(caused), records
    )


def _place(record: Plain, row: Plain) -> tuple[Any, ...]:
    """What a row is of, and how it is explained, whichever assertion judges it: overlap as exposed time is."""
    metric = metric_called(record["metric"])
    return address_of(record), metric.explained_by if metric is not None else None, str(row["labels"])


def _ground(record: Plain, explained: Mapping[tuple[Any, ...], str]) -> str:
    """What a record is grouped by: the cause of the first of its rows that is explained, else how it ended."""
    outcome = str(record["outcome"])
    rows = [*record["causes"], *(row for row in record["judged"] if row["outcome"] == Outcome.FAILED)]
    causes = (explained[place] for row in rows if (place := _place(record, row)) in explained)
    return next(filter(None, causes), outcome if outcome not in (Outcome.FAILED, Outcome.PASSED) else "")
