"""The operations on columns, one element after the other: what each means, and the way for few."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections import Counter
from typing import TypeAlias, TypeVar

Column: TypeAlias = "array[int]"
Flags: TypeAlias = bytearray
Indices: TypeAlias = "array[int] | range"
NEVER = (1 << 63) - 1
"""End of a span that has none."""

C = TypeVar("C", "array[int]", bytearray)


def take(column: C, indices: Indices) -> C:
    """The elements at ``indices``, in that order."""
    if isinstance(indices, range):
        return column[indices.start : indices.stop]
    if isinstance(column, bytearray):
        return bytearray([column[i] for i in indices])
    return array("q", [column[i] for i in indices])


def where(column: Column | Flags) -> Column:
    """The indices of what is not 0."""
    return array("q", [i for i, each in enumerate(column) if each])


def where_not(column: Column | Flags) -> Column:
    """The indices of what is 0."""
    return array("q", [i for i, each in enumerate(column) if not each])


def equal(column: Column, value: int) -> Flags:
    """1 where an element is ``value``."""
    return bytearray([each == value for each in column])


def total(column: Column | Flags) -> int:
    """The sum, however large."""
    return sum(column)


def minus(column: Column, other: Column) -> Column:
    """One less the other, element by element. Raises OverflowError for a difference beyond 64 bits."""
    return array("q", [a - b for a, b in zip(column, other, strict=True)])


def later(column: Column, other: Column) -> Column:
    """The greater of both, element by element."""
    return array("q", [a if a > b else b for a, b in zip(column, other, strict=True)])


def earlier(column: Column, other: Column) -> Column:
    """The smaller of both, element by element."""
    return array("q", [a if a < b else b for a, b in zip(column, other, strict=True)])


def within(column: Column, least: int, greatest: int) -> Column:
    """The column, with the nearer bound for what is outside of the bounds."""
    return array("q", [min(max(each, least), greatest) for each in column])


def order(*keys: Column) -> Column:
    """The indices by the first key, then by the next; what is equal stays in order."""
    rows = keys[0] if len(keys) == 1 else list(zip(*keys, strict=True))
    return array("q", sorted(range(len(rows)), key=rows.__getitem__))


def distinct(*keys: Column) -> tuple[Column, list[tuple[int, ...]]]:
    """The number of each row, and the distinct rows that have these numbers, ascending."""
    rows = list(zip(*keys, strict=True))
    known = sorted(set(rows))
    numbers = {row: number for number, row in enumerate(known)}
    return array("q", [numbers[row] for row in rows]), known


def counts(numbers: Column, size: int) -> list[int]:
    """How often each number below ``size`` occurs."""
    found = [0] * size
    for number in numbers:
        found[number] += 1
    return found


def sums(numbers: Column, values: Column, size: int) -> list[int]:
    """Σ of the values of each number below ``size``, however large."""
    found = [0] * size
    for number, value in zip(numbers, values, strict=True):
        found[number] += value
    return found


def members(numbers: Column, size: int) -> list[Column]:
    """The indices of each number below ``size``, ascending."""
    found: list[list[int]] = [[] for _ in range(size)]
    for i, number in enumerate(numbers):
        found[number].append(i)
    return [array("q", own) for own in found]


def spread(indices: Column, values: Column, size: int, fill: int) -> Column:
    """A column of ``size`` with the values at the indices, each index once, and ``fill`` elsewhere."""
    found = array("q", [fill]) * size
    for i, value in zip(indices, values, strict=True):
        found[i] = value
    return found


def places(edges: Column, values: Column) -> Column:
    """How many of the ascending edges are at or before each value."""
    return array("q", [bisect_right(edges, value) for value in values])


def stretches(firsts: Column, afters: Column) -> tuple[Column, Column]:
    """(owner, index): each index of each stretch from ``firsts`` on and before ``afters``, which lie no earlier."""
    pairs = enumerate(zip(firsts, afters, strict=True))
    each = [(owner, i) for owner, (first, after) in pairs for i in range(first, after)]
    return array("q", [owner for owner, _ in each]), array("q", [i for _, i in each])


def records(groups: Column, values: Column) -> Flags:
    """1 where a value is greater than all before it in its group; groups ascend."""
    found, highest = bytearray(len(values)), 0
    for i, value in enumerate(values):
        if not i or groups[i] != groups[i - 1] or value > highest:
            found[i], highest = 1, value
    return found


def segments(starts: Column, ends: Column) -> tuple[Column, Column, Column]:
    """(begin, end, index): disjoint ascending parts, in which each moment is of the span that began first.

    Of spans that begin together it is the one of the lowest index. What ends where it starts has no part.
    """
    begins, reaches, owners = array("q"), array("q"), array("q")
    for i in sorted(range(len(starts)), key=starts.__getitem__):
        begin = max(starts[i], reaches[-1]) if reaches else starts[i]
        if ends[i] > begin:
            begins.append(begin)
            reaches.append(ends[i])
            owners.append(i)
    return begins, reaches, owners


def union(starts: Column, ends: Column) -> tuple[Column, Column, Column]:
    """(start, end, length of all before) of the disjoint ascending spans that cover what some span covers.

    What ends where it starts covers nothing; what touches is one. Raises OverflowError beyond 64 bits.
    """
    firsts, lasts, before = array("q"), array("q"), array("q")
    covered, reach = 0, None
    for start, end in sorted(zip(starts, ends, strict=True)):
        if end <= start:
            continue
        if reach is None or start > reach:
            if reach is not None:
                lasts.append(reach)
                covered += reach - firsts[-1]
            firsts.append(start)
            before.append(covered)
            reach = end
        elif end > reach:
            reach = end
    if reach is not None:
        lasts.append(reach)
    return firsts, lasts, before


def covered_before(starts: Column, ends: Column, before: Column, moments: Column) -> Column:
    """How much of a :func:`union` lies before each moment."""
    found = array("q")
    for moment in moments:
        if i := bisect_right(starts, moment):
            end = ends[i - 1]
            found.append(before[i - 1] - starts[i - 1] + (moment if moment < end else end))
        else:
            found.append(0)
    return found


def innermost(starts: Column, ends: Column, threads: Column, codes: Column) -> tuple[Column, Column, Flags]:
    """(moments, codes, flags): from each moment on the code of the shortest span, and 1 where two threads have one.

    Before the first moment, and where no span is, the code is 0: there is one code more than moments. Spans begin in
    order, hold their ends, and stay open with the end NEVER; of equal lengths the highest index says.
    """
    edges = sorted({*starts, *(end + 1 for end in ends if end != NEVER)})
    found, twice = array("q", [0]), bytearray(1)
    spans: list[tuple[int, int, int, int]] = []  # (length, −index, end, code)
    closing: list[tuple[int, int]] = []  # (end, thread)
    open_on: Counter[int] = Counter()
    upcoming = 0
    for now in edges:
        while upcoming < len(starts) and starts[upcoming] == now:
            end, thread = ends[upcoming], threads[upcoming]
            heapq.heappush(spans, (end - now, -upcoming, end, codes[upcoming]))
            heapq.heappush(closing, (end, thread))
            open_on[thread] += 1
            upcoming += 1
        while closing and closing[0][0] < now:
            _, thread = heapq.heappop(closing)
            open_on[thread] -= 1
            if not open_on[thread]:
                del open_on[thread]
        while spans and spans[0][2] < now:
            heapq.heappop(spans)
        found.append(spans[0][3] if spans else 0)
        twice.append(len(open_on) > 1)
    return array("q", edges), found, twice


def least_ratio(parts: Column, wholes: Column) -> int:
    """The index of the smallest part of its whole, exactly, the first of several; no part is negative, no whole 0."""
    best, least, of = 0, parts[0], wholes[0]
    for i, (part, whole) in enumerate(zip(parts, wholes, strict=True)):
        if part * of < least * whole:
            best, least, of = i, part, whole
    return best


def parsed(text: str) -> Column:
    """The whole numbers of a text, which holds nothing but them and a comma between each two."""
    return array("q", map(int, text.split(",") if text else ()))


def values(column: Column) -> Column:
    """The distinct elements, ascending."""
    return array("q", sorted(set(column)))


def bounds(column: Column) -> tuple[int, int]:
    """The least and the greatest element, (0, 0) of none."""
    return (min(column), max(column)) if column else (0, 0)


def exceeds(column: Column, other: Column) -> bool:
    """Whether an element is greater than the other's in its place."""
    return any(a > b for a, b in zip(column, other, strict=True))


def least(ids: Column, found: Column, keys: Column, values: Column) -> Column:
    """``found``, which has one for each of the ascending ``ids``, lowered to the least value whose key is the id."""
    at = {id_: i for i, id_ in enumerate(ids)}
    lowered = found[:]
    for key, value in zip(keys, values, strict=True):
        i = at.get(key)
        if i is not None and value < lowered[i]:
            lowered[i] = value
    return lowered


def joined(ids: Column, found: Column, missing: int, keys: Column) -> Column:
    """What was found for each key, ``missing`` where it is none of the ascending ``ids``."""
    known = dict(zip(ids, found, strict=True))
    return array("q", [known.get(key, missing) for key in keys])
