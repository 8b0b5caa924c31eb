"""What belongs together? By the key of each, or of all that are alike: then the key is found once."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from pytest_nsys.core.columns import Column, counts, distinct, members, sums, take

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key in their order, the keys in that of their first value."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def members_by(key: Callable[..., K], *columns: Column, among: Column | None = None) -> dict[K, Column]:
    """The indices of each key, of all or ``among`` some; ``key`` is asked once for each distinct row of the columns."""
    numbers, rows = distinct(*(column if among is None else take(column, among) for column in columns))
    keys = [key(*row) for row in rows]
    place = {each: number for number, each in enumerate(dict.fromkeys(keys))}
    own = members(take(array("q", [place[each] for each in keys]), numbers), len(place))
    return {each: at if among is None else take(among, at) for each, at in zip(place, own, strict=True)}


def sums_by(key: Callable[..., K], values: Column, *columns: Column) -> dict[K, tuple[int, int]]:
    """(sum, number) of the values of each key, which is asked once for each distinct row of the columns."""
    numbers, rows = distinct(*columns)
    found: dict[K, tuple[int, int]] = {}
    each = zip(rows, sums(numbers, values, len(rows)), counts(numbers, len(rows)), strict=True)
    for row, value, number in each:
        before = found.get(own := key(*row), (0, 0))
        found[own] = (before[0] + value, before[1] + number)
    return found
