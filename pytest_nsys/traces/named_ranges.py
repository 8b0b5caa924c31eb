"""How do columns of ranges whose names are numbers become ranges in order?"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.conventions import COMMUNICATION_PREFIX
from pytest_nsys.core.ranges import Ranges


def named_ranges(known: Mapping[int, str], start: Column, end: Column, thread: Column, name: Column) -> Ranges:
    """Those of a known name, without NCCL's own, by start, end and name."""
    numbers = columns.values(name)
    texts = [known.get(number, COMMUNICATION_PREFIX) for number in numbers]
    names = list(dict.fromkeys(text for text in texts if not text.startswith(COMMUNICATION_PREFIX)))
    place = {text: i for i, text in enumerate(names)}
    name = columns.joined(numbers, array("q", [place.get(text, -1) for text in texts]), -1, name)
    if -1 in name:
        wanted = columns.where_not(columns.equal(name, -1))
        start, end, thread, name = (columns.take(column, wanted) for column in (start, end, thread, name))
    order = columns.order(start, end)
    _settle_ties(order, columns.take(start, order), columns.take(end, order), lambda i: names[name[i]])
    start, end, thread, name = (columns.take(column, order) for column in (start, end, thread, name))
    return Ranges(start, end, thread, name, names)


def _settle_ties(order: Column, start: Column, end: Column, name_of: Callable[[int], str]) -> None:
    """Put ranges of one span, which stand together in ``order``, in the order of their names."""
    high = 0
    for low in columns.where_not(columns.minus(start[1:], start[:-1])):
        if low >= high:
            high = low + 1
            while high < len(order) and (start[high], end[high]) == (start[low], end[low]):
                high += 1
            order[low:high] = array("q", sorted(order[low:high], key=name_of))
