"""What is done with many kernels at once: a few operations on columns, exact.

A column is an ``array('q')``, or an ``array('i')`` of what needs no more, as numbers of names; flags are a
``bytearray`` of 0 and 1; indices are a column, flags or a range. numpy sees an array without a copy, and what Python
takes out of one is an ``int``, whose product with another never overflows. Where 64 bits might not hold an answer it is
found in parts that they hold, or is refused: none wraps.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias, TypeVar

from pytest_nsys.core.arrays import NDArray, numpy

Column: TypeAlias = "array[int]"
Block: TypeAlias = "Sequence[Column]"
"""The columns of some rows."""
Flags: TypeAlias = bytearray
Indices: TypeAlias = "array[int] | range | bytearray"
Vector = NDArray[numpy.int64]
NEVER = (1 << 63) - 1
"""End of a span that has none."""

C = TypeVar("C", "array[int]", bytearray)
K = TypeVar("K", bound=Hashable)

_TABLE = 1 << 16
"""A table of so many places is made sooner than a few hundred elements are sorted."""

_DEEPEST = 32
"""Spans so deep in each other, on average, are swept one by one: each is written wherever it is."""

_EXACT_AS_FLOAT = 1 << 53
_BITS = 22
_LIMBS = (0, _BITS, 2 * _BITS)
"""Where 64 bits are cut into three, so that sums of 2**31 of each stay exact as floats."""


def _seen(column: Indices) -> NDArray[Any]:
    if isinstance(column, range):
        return numpy.arange(column.start, column.stop, dtype=numpy.int64)
    if isinstance(column, bytearray):
        return numpy.frombuffer(column, numpy.uint8)
    return numpy.frombuffer(column, column.typecode)


def as_vector(column: Indices) -> Vector:
    """The column for numpy, of 64 bits: to compare rows of counts, which no operation here does."""
    return _seen(column).astype(numpy.int64, copy=False)


def _column(vector: NDArray[Any]) -> Column:
    narrow = vector.dtype == numpy.int32
    found = array("i" if narrow else "q")
    found.frombytes(numpy.ascontiguousarray(vector, numpy.int32 if narrow else numpy.int64).view(numpy.uint8).data)
    return found


def narrowed(column: Column) -> Column:
    """The same numbers in half the memory, where all of them need no more than 32 bits."""
    vector = _seen(column)
    low, high = _span(vector)
    return _column(vector.astype(numpy.int32)) if low >= -(1 << 31) and high < 1 << 31 else column


def _span(vector: NDArray[Any]) -> tuple[int, int]:
    """The least and the greatest."""
    return (int(vector.min()), int(vector.max())) if len(vector) else (0, 0)


def _fits(number: int) -> bool:
    return -(1 << 63) <= number < 1 << 63


def parsed(text: str) -> Column:
    """The whole numbers of 64 bits in a list of JSON. Raises ValueError where anything else is in it."""
    if any(sign in text for sign in '".en'):  # of a text, a fraction, an exponent, ``null`` or ``Inf``
        raise ValueError("not all are whole numbers")
    return _column(numpy.fromstring(text[1:-1], numpy.int64, sep=","))


def take(column: C, indices: Indices) -> C:
    """The elements at ``indices``, in that order."""
    if isinstance(indices, range):
        return column[indices.start : indices.stop]
    taken = _seen(column)[_seen(indices)]
    return bytearray(taken.data) if isinstance(column, bytearray) else _column(taken)


def chained(columns: Sequence[Column]) -> Column:
    """One after the other; of a single one no second copy is made, so none is written to."""
    if len(columns) == 1:
        return columns[0]
    found = array("i" if columns and all(column.typecode == "i" for column in columns) else "q")
    for column in columns:
        found.extend(column if column.typecode == found.typecode else array("q", column))
    return found


def where(column: Column | Flags) -> Column:
    """The indices of what is not 0."""
    return _column(numpy.flatnonzero(_seen(column)))


def where_not(column: Column | Flags) -> Column:
    """The indices of what is 0."""
    return _column(numpy.flatnonzero(_seen(column) == 0))


def latest(flags: Flags) -> Column:
    """Of each place the number of the last flag at or before it that is set, -1 before the first."""
    return _column(numpy.cumsum(_seen(flags), dtype=numpy.int64) - 1)


def equal(column: Column | Flags, value: int) -> Flags:
    """1 where an element is ``value``."""
    return bytearray((_seen(column) == value).view(numpy.uint8).data)


def touching(starts: Column, ends: Column, low: int, high: int) -> Column:
    """The indices of the spans that touch the one from ``low`` to ``high``, edges included."""
    return _column(numpy.flatnonzero((_seen(starts) <= high) & (_seen(ends) >= low)))


def total(column: Column | Flags) -> int:
    """The sum, however large."""
    vector = _seen(column)
    if _fits(max(map(abs, _span(vector))) * len(vector)):
        return int(vector.sum(dtype=numpy.int64))
    return (int((vector >> 32).sum()) << 32) + int((vector & 0xFFFFFFFF).sum())


def minus(column: Column, other: Column) -> Column:
    """One less the other, element by element. Raises OverflowError for a difference beyond 64 bits."""
    a, b = as_vector(column), as_vector(other)
    (low, high), (least, greatest) = _span(a), _span(b)
    if not (_fits(low - greatest) and _fits(high - least)):
        return array("q", [x - y for x, y in zip(column, other, strict=True)])
    return _column(a - b)


def later(column: Column, other: Column) -> Column:
    """The greater of both, element by element."""
    return _column(numpy.maximum(_seen(column), _seen(other)))


def earlier(column: Column, other: Column) -> Column:
    """The smaller of both, element by element."""
    return _column(numpy.minimum(_seen(column), _seen(other)))


def within(column: Column, least: int, greatest: int) -> Column:
    """The column, with the nearer bound for what is outside of the bounds."""
    return _column(as_vector(column).clip(least, greatest))


def _ordered(key: Vector) -> NDArray[Any]:
    """The stable order of one key: numbers of 16 bits are sorted by radix, what is in order not at all."""
    if (key[1:] >= key[:-1]).all():
        return numpy.arange(len(key))
    low, high = _span(key)
    small = low >= 0 and high < 1 << 16
    return (key.astype(numpy.uint16) if small else key).argsort(kind="stable")


def order(*keys: Column) -> Column:
    """The indices by the first key, then by the next; what is equal stays in order."""
    found = _ordered(_seen(keys[-1]))
    for key in reversed(keys[:-1]):
        found = found[_ordered(_seen(key)[found])]
    return _column(found)


def _numbered(key: NDArray[Any]) -> tuple[Vector, Vector]:
    """The number of each element, and the distinct elements, ascending."""
    key = key.astype(numpy.int64, copy=False)
    low, high = _span(key)
    if low == high:
        return numpy.zeros(len(key), numpy.int64), key[:1]
    if high - low > max(4 * len(key), _TABLE):
        known, numbers = numpy.unique(key, return_inverse=True)
        return numbers, known
    occurs = _occurring(key, low, high)
    return (numpy.cumsum(occurs) - 1)[key - low], numpy.flatnonzero(occurs) + low


def _occurring(key: Vector, low: int, high: int) -> NDArray[numpy.bool_]:
    """Which numbers from ``low`` to ``high`` occur."""
    occurs = numpy.zeros(high - low + 1, numpy.bool_)
    occurs[key - low] = True
    return occurs


def distinct(*keys: Column | Flags) -> tuple[Column, list[tuple[int, ...]]]:
    """The number of each row, and the distinct rows that have these numbers, ascending."""
    numbers, known = _numbered(_seen(keys[0]))
    found = [known]
    for key in keys[1:]:
        own, values = _numbered(_seen(key))
        numbers, pairs = _numbered(numbers * len(values) + own)
        found = [*(each[pairs // len(values)] for each in found), values[pairs % len(values)]]
    return _column(numbers), list(zip(*(each.tolist() for each in found), strict=True))


def counts(numbers: Column, size: int) -> list[int]:
    """How often each number below ``size`` occurs."""
    found: list[int] = numpy.bincount(_seen(numbers), minlength=size).tolist()
    return found


def sums(numbers: Column, values: Column, size: int) -> list[int]:
    """Σ of the values of each number below ``size``, however large."""
    at, vector = _seen(numbers), _seen(values)
    if max(map(abs, _span(vector))) * len(vector) < _EXACT_AS_FLOAT:
        return _summed(at, vector, size)
    low, middle = ((vector >> shift) & ((1 << _BITS) - 1) for shift in _LIMBS[:2])
    limbs = (_summed(at, limb, size) for limb in (low, middle, vector >> _LIMBS[2]))
    return [sum(limb << shift for limb, shift in zip(each, _LIMBS, strict=True)) for each in zip(*limbs, strict=True)]


def _summed(at: Vector, vector: Vector, size: int) -> list[int]:
    found: list[int] = numpy.bincount(at, vector, size).astype(numpy.int64).tolist()
    return found


def members(numbers: Column, size: int) -> list[Column]:
    """The indices of each number below ``size``, ascending."""
    vector = _seen(numbers)
    edges = numpy.cumsum(numpy.bincount(vector, minlength=size))[:-1]
    # In half the memory: they are kept, and no table of a trace has 2**31 rows.
    return [_column(own) for own in numpy.split(_ordered(vector).astype(numpy.int32), edges)] if size else []


def spread(indices: Column, values: Column, size: int, fill: int) -> Column:
    """A column of ``size`` with the values at the indices, each index once, and ``fill`` elsewhere."""
    found = numpy.full(size, fill, numpy.int64)
    found[_seen(indices)] = _seen(values)
    return _column(found)


def places(edges: Column, values: Column) -> Column:
    """How many of the ascending edges are at or before each value."""
    return _column(_seen(edges).searchsorted(_seen(values), "right"))


def stretches(firsts: Column, afters: Column) -> tuple[Column, Column]:
    """(owner, index): each index of each stretch from ``firsts`` on and before ``afters``, which lie no earlier."""
    first = _seen(firsts)
    lengths = _seen(afters) - first
    owners = numpy.repeat(numpy.arange(len(first)), lengths)
    return _column(owners), _column(numpy.arange(len(owners)) + (first - lengths.cumsum() + lengths)[owners])


def parted(starts: Column, ends: Column, from_ns: Column, until_ns: Column) -> tuple[Column, Column, Column, Column]:
    """(span, start, end, 1 or 0): the parts of spans, none of which is empty, that lie inside of a union, or outside.

    The union is disjoint and ascending. The parts of a span follow each other.
    """
    if not len(from_ns):
        return array("q", range(len(starts))), starts, ends, array("q", bytes(8 * len(starts)))
    edges = numpy.stack([_seen(from_ns), _seen(until_ns)], axis=1).ravel()
    first, after = edges.searchsorted(_seen(starts), "right"), edges.searchsorted(_seen(ends)) + 1
    span, place = map(_seen, stretches(_column(first), _column(after)))
    bounds = numpy.concatenate([[-NEVER], edges, [NEVER]])
    begins = _column(numpy.maximum(_seen(starts)[span], bounds[place]))
    reaches = _column(numpy.minimum(_seen(ends)[span], bounds[place + 1]))
    return _column(span), begins, reaches, _column(place & 1)


def records(groups: Column, values: Column) -> Flags:
    """1 where a value is greater than all before it in its group; groups ascend.

    By rank among all values a later group is above each earlier one: so one pass finds the records of all.
    """
    ranks, known = _numbered(_seen(values))
    keys = _numbered(_seen(groups))[0] * (len(known) + 1) + ranks
    found = numpy.ones(len(keys), numpy.uint8)
    found[1:] = keys[1:] > numpy.maximum.accumulate(keys)[:-1]
    return bytearray(found.data)


def outermost(groups: Column, starts: Column, ends: Column) -> Flags:
    """1 where a span lies in none before it of its group; by group, by start, the longest first. What begins where the
    one before it ends lies beside it.
    """
    group, begins, reaches = _seen(groups), _seen(starts), _seen(ends)
    found = numpy.ones(len(group), numpy.uint8)
    edges = [0, *(numpy.flatnonzero(group[1:] != group[:-1]) + 1).tolist(), len(group)]
    for low, high in pairwise(edges):
        until = numpy.maximum.accumulate(reaches[low:high])[:-1]
        found[low + 1 : high] = (reaches[low + 1 : high] > until) | (begins[low + 1 : high] >= until)
    return bytearray(found.data)


def _segments(starts: Column, ends: Column) -> tuple[Vector, Vector, NDArray[Any]]:
    owners = _ordered(_seen(starts))
    begins, reaches = _seen(starts)[owners], _seen(ends)[owners]
    begins[1:] = numpy.maximum(begins[1:], numpy.maximum.accumulate(reaches)[:-1])
    parts = reaches > begins
    return begins[parts], reaches[parts], owners[parts]


def segments(starts: Column, ends: Column) -> tuple[Column, Column, Column]:
    """(begin, end, index): disjoint ascending parts, in which each moment is of the span that began first.

    Of spans that begin together it is the one of the lowest index. What ends where it starts has no part.
    """
    begins, reaches, owners = _segments(starts, ends)
    return _column(begins), _column(reaches), _column(owners)


def union(starts: Column, ends: Column) -> tuple[Column, Column, Column]:
    """(start, end, length of all before) of the disjoint ascending spans that cover what some span covers.

    What ends where it starts covers nothing; what touches is one. Raises OverflowError beyond 64 bits.
    """
    begins, reaches, _ = _segments(starts, ends)
    first = numpy.ones(len(begins) + 1, numpy.bool_)
    first[1:-1] = begins[1:] != reaches[:-1]
    firsts, lasts = _column(begins[first[:-1]]), _column(reaches[first[1:]])
    if len(begins) and not _fits(int(reaches[-1]) - int(begins[0])):
        lengths = (end - start for start, end in zip(firsts, lasts, strict=True))
        return firsts, lasts, array("q", [*accumulate(lengths, initial=0)][:-1])
    own = _seen(lasts) - _seen(firsts)
    return firsts, lasts, _column(numpy.cumsum(own) - own)


def covered_before(starts: Column, ends: Column, before: Column, moments: Column) -> Column:
    """How much of a :func:`union` lies before each moment."""
    if not len(starts):
        return array("q", bytes(8 * len(moments)))
    at = _seen(moments)
    i = _seen(starts).searchsorted(at, "right") - 1
    found = numpy.minimum(at, _seen(ends)[i]) - _seen(starts)[i] + _seen(before)[i]
    found[i < 0] = 0
    return _column(found)


def innermost(starts: Column, ends: Column, threads: Column, codes: Column) -> tuple[Column, Column, Flags]:
    """(moments, codes, flags): from each moment on the code of the shortest span, and 1 where two threads have one.

    Before the first moment, and where no span is, the code is 0: there is one code more than moments. Spans begin in
    order, hold their ends, and stay open with the end NEVER; of equal lengths the highest index says.

    Each span is written over all moments that it covers, the shortest last.
    """
    begins, reaches = _seen(starts), _seen(ends)
    if not len(begins) or not _fits(_span(reaches)[1] - _span(begins)[0]):
        return _swept(starts, ends, threads, codes)
    closed = reaches != NEVER
    edges = numpy.sort(numpy.concatenate([begins, reaches[closed] + 1]))
    edges = edges[numpy.append(True, edges[1:] != edges[:-1])]  # numpy.unique hashes, and takes ten times as long
    first = edges.searchsorted(begins)
    cells = numpy.where(closed, edges.searchsorted(reaches, "right"), len(edges)) - first
    cells = cells.clip(0)  # none of a span that ends before it begins
    if cells.sum() > _DEEPEST * len(edges):
        return _swept(starts, ends, threads, codes)
    ordered = (begins - reaches).argsort(kind="stable")
    first, cells = first[ordered], cells[ordered]
    at = numpy.arange(cells.sum()) + numpy.repeat(first - cells.cumsum() + cells + 1, cells)
    found = numpy.zeros(len(edges) + 1, numpy.int64)
    found[at] = numpy.repeat(_seen(codes)[ordered], cells)
    thread = numpy.repeat(_seen(threads)[ordered], cells)
    one = numpy.zeros(len(edges) + 1, numpy.int64)
    one[at] = thread
    twice = numpy.zeros(len(edges) + 1, numpy.uint8)
    twice[at[one[at] != thread]] = 1
    return _column(edges), _column(found), bytearray(twice.data)


def _swept(starts: Column, ends: Column, threads: Column, codes: Column) -> tuple[Column, Column, Flags]:
    """The same span by span, in time that does not grow with their depth."""
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
    """The index of the smallest part of its whole, exactly, the first of several; no part is negative, no whole 0.

    As floats each ratio is off by less than 2**-50 of itself; those that may be the least are compared exactly.
    """
    ratios = _seen(parts) / _seen(wholes)
    least = ratios.min()
    if least == 0:
        return int(ratios.argmin())
    best, *others = numpy.flatnonzero(ratios <= least * (1 + 2.0**-48)).tolist()
    for i in others:
        if parts[i] * wholes[best] < parts[best] * wholes[i]:
            best = i
    return best


def values(column: Column) -> Column:
    """The distinct elements, ascending."""
    key = as_vector(column)
    if (key[1:] > key[:-1]).all():
        return _column(key)
    low, high = _span(key)
    if high - low > max(4 * len(key), _TABLE):
        return _column(numpy.unique(key))
    return _column(numpy.flatnonzero(_occurring(key, low, high)) + low)


def bounds(column: Column) -> tuple[int, int]:
    """The least and the greatest element, (0, 0) of none."""
    return _span(_seen(column))


def exceeds(column: Column, other: Column) -> bool:
    """Whether an element is greater than the other's in its place."""
    return bool((_seen(column) > _seen(other)).any())


def impossible(starts: Column, ends: Column) -> Flags:
    """1 where a span ends before it starts, or starts and ends at 0."""
    start, end = _seen(starts), _seen(ends)
    return bytearray(((end < start) | ((start | end) == 0)).view(numpy.uint8).data)


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


def _places(ids: Vector, keys: Vector) -> tuple[Vector, NDArray[numpy.bool_]]:
    """Where each key is among the ids, and whether it is: of many ids only those near the keys are looked at."""
    least, greatest = _span(keys)
    first, last = int(ids.searchsorted(least)), int(ids.searchsorted(greatest, "right"))
    near = ids[first:last]
    if not len(near):
        return numpy.zeros(len(keys), numpy.int64), numpy.zeros(len(keys), numpy.bool_)
    low, high = int(near[0]), int(near[-1])
    if high - low > 4 * (len(near) + len(keys)):
        at = near.searchsorted(keys).clip(max=len(near) - 1)
    else:
        table = numpy.zeros(high - low + 1, numpy.int64)
        table[near - low] = numpy.arange(len(near))
        at = table[keys.clip(low, high) - low]
    return at + first, near[at] == keys


def lower(ids: Column, found: Sequence[Column], keys: Column, rows: Sequence[Column]) -> None:
    """Lower ``found``, which has a row for each of the ascending ``ids``, to the least of the rows whose key is the id:
    by the first column, then by the next.
    """
    if not (len(ids) and len(keys)):
        return
    at, left = _places(_seen(ids), _seen(keys))
    each = [_seen(row) for row in rows]
    for place, own in enumerate(found):
        at, each = at[left], [row[left] for row in each]
        least = _seen(own)
        before = least[at]
        numpy.minimum.at(least, at, each[place])
        lowered = at[least[at] < before]
        for after in found[place + 1 :]:
            _seen(after)[lowered] = NEVER
        left = least[at] == each[place]


def joined(ids: Column, found: Column, missing: int, keys: Column) -> Column:
    """What was found for each key, ``missing`` where it is none of the ascending ``ids``."""
    if not len(ids):
        return array("q", [missing]) * len(keys)
    at, known = _places(_seen(ids), _seen(keys))
    return _column(numpy.where(known, _seen(found)[at], missing))
