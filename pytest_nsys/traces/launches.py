"""Which of many calls launched an operation of a GPU? The earliest of those that share its process and correlation.

Several calls of a correlation exist; of those that start together the one counts that ends first. A table is of one
process.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from pytest_nsys.core import columns
from pytest_nsys.core.columns import NEVER, Column
from pytest_nsys.core.model import NO_LAUNCH
from pytest_nsys.core.tables import NO_CALLS, LaunchCalls


class CallTable(NamedTuple):
    """The earliest call of each of some ascending correlations, of one process."""

    ids: Column
    calls: LaunchCalls

    def of(self, correlation: Column) -> LaunchCalls:
        """The call of each correlation, NO_LAUNCH where there is none."""
        each = zip(self.calls, (NO_LAUNCH, NO_LAUNCH, 0), strict=True)
        return LaunchCalls(*(columns.joined(self.ids, own, missing, correlation) for own, missing in each))

    def starts_of(self, correlation: Column) -> Column:
        """The start of the call of each correlation, NO_LAUNCH where there is none."""
        return columns.joined(self.ids, self.calls.start_ns, NO_LAUNCH, correlation)

    def starts(self) -> dict[int, int]:
        """The start of the call by correlation."""
        return dict(zip(self.ids, self.calls.start_ns, strict=True))


EMPTY = CallTable(array("q"), NO_CALLS)


class Earliest:
    """The earliest call of each of some correlations, while calls are read; NO_LAUNCH is no correlation."""

    def __init__(self, correlation: Column) -> None:
        ids = columns.values(correlation)
        self.ids = ids[1:] if ids and ids[0] == NO_LAUNCH else ids
        self._calls: list[Column] = []

    def see(self, correlation: Column, *calls: Column) -> None:
        """More calls, of other correlations too: start, end and thread of each, or always its start alone."""
        self._calls = self._calls or [array("q", [NEVER]) * len(self.ids) for _ in calls]
        columns.lower(self.ids, self._calls, correlation, calls)

    def table(self) -> CallTable:
        """What was seen; calls that were seen by their start alone have no end and no thread."""
        ids, calls = self.ids, self._calls or [*NO_CALLS]
        seen = columns.where_not(columns.equal(calls[0], NEVER))
        if len(seen) < len(ids):
            ids, *calls = (columns.take(column, seen) for column in (ids, *calls))
        return CallTable(ids, LaunchCalls(*calls, *NO_CALLS[len(calls) :]))


def earliest_calls(correlation: Column, calls: LaunchCalls) -> CallTable:
    """The earliest of some calls by correlation; those whose correlation is NO_LAUNCH have none."""
    found = Earliest(correlation)
    found.see(correlation, *calls)
    return found.table()
