"""Which of many calls launched an operation of a GPU? The earliest of those that share its correlation."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.model import NO_LAUNCH
from pytest_nsys.core.operations import NO_CALLS, LaunchCalls


class CallTable(NamedTuple):
    """The earliest call of each of some ascending correlations, of one process."""

    ids: Column
    calls: LaunchCalls

    def of(self, correlation: Column) -> LaunchCalls:
        """The call of each correlation, NO_LAUNCH where there is none."""
        each = zip(self.calls, (NO_LAUNCH, NO_LAUNCH, 0), strict=True)
        return LaunchCalls(*(columns.joined(self.ids, own, missing, correlation) for own, missing in each))

    def starts(self) -> dict[int, int]:
        """The start of the call by correlation."""
        return dict(zip(self.ids, self.calls.start_ns, strict=True))


EMPTY = CallTable(array("q"), NO_CALLS)


def earliest_calls(correlation: Column, calls: LaunchCalls) -> CallTable:
    """The earliest of some calls by correlation; those whose correlation is NO_LAUNCH have none."""
    keys: list[Column] = [correlation, *calls]
    having = columns.where_not(columns.equal(correlation, NO_LAUNCH))
    if len(having) < len(correlation):
        keys = [columns.take(column, having) for column in keys]
    order, ids = columns.order(*keys), columns.values(keys[0])
    behind = columns.places(columns.take(keys[0], order), ids)
    first = columns.take(order, array("q", [0]) + behind[:-1]) if ids else ids
    return CallTable(ids, LaunchCalls(*(columns.take(column, first) for column in keys[1:])))
