"""How are many kernels worked on at once? With a few exact operations on columns of integers.

A column is an ``array('q')``, or an ``array('i')`` where 32 bits are enough, as for numbers of names; flags are a
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
# Stands for the end of a span that has none: no time of a trace reaches it.
NEVER = (1 << 63) - 1

ColumnT = TypeVar("ColumnT", "array[int]", bytearray)
KeyT = TypeVar("KeyT", bound=Hashable)

# A table of so many places is made sooner than a few hundred elements are sorted.
_TABLE = 1 << 16

# Spans so deep in each other, on average, are swept one by one: each is written over every moment that it covers.
_DEEPEST = 32

# Whole numbers below it are exact as floats, in which numpy.bincount sums.
_EXACT_AS_FLOAT = 1 << 53
# 64 bits are cut into three parts of so many, so that sums of 2**31 of each stay exact as floats.
_BITS = 22
_LIMBS = (0, _BITS, 2 * _BITS)


def _seen(column: Indices) -> NDArray[Any]:
    if isinstance(column, range):
        return numpy.arange(column.start, column.stop, dtype=numpy.int64)
    if isinstance(column, bytearray):
        return numpy.frombuffer(column, numpy.uint8)
    return numpy.frombuffer(column, column.typecode)


def as_vector(column: Indices) -> Vector:
    """Return the column as a numpy vector of 64 bits: to compare rows of counts, which no operation here does."""
    return _seen(column).astype(numpy.int64, copy=False)


def _column(vector: NDArray[Any]) -> Column:
    narrow = vector.dtype == numpy.int32
    column = array("i" if narrow else "q")
    column.frombytes(numpy.ascontiguousarray(vector, numpy.int32 if narrow else numpy.int64).view(numpy.uint8).data)
    return column


def narrowed(column: Column) -> Column:
    """Return the same numbers in half the memory where all of them fit in 32 bits, else the column itself."""
    vector = _seen(column)
    low, high = _span(vector)
    return _column(vector.astype(numpy.int32)) if low >= -(1 << 31) and high < 1 << 31 else column


def _span(vector: NDArray[Any]) -> tuple[int, int]:
    """Return the least and the greatest element, (0, 0) of none."""
    return (int(vector.min()), int(vector.max())) if len(vector) else (0, 0)


def _fits(number: int) -> bool:
    return -(1 << 63) <= number < 1 << 63


def parsed(text: str) -> Column:
    """Parse a JSON list of whole numbers of 64 bits into a column. Raises ValueError where anything else is in it."""
    # numpy.fromstring stops at what is no number instead of refusing it.
    if any(sign in text for sign in '".en'):  # of a text, a fraction, an exponent, ``null`` or ``Inf``
        raise ValueError("not all are whole numbers")
    return _column(numpy.fromstring(text[1:-1], numpy.int64, sep=","))


def take(column: ColumnT, indices: Indices) -> ColumnT:
    """Return the elements at ``indices``, in that order."""
    if isinstance(indices, range):
        return column[indices.start : indices.stop]
    elements = _seen(column)[_seen(indices)]
    return bytearray(elements.data) if isinstance(column, bytearray) else _column(elements)


def chained(columns: Sequence[Column]) -> Column:
    """Join columns one after the other; of a single one no second copy is made, so none is written to."""
    if len(columns) == 1:
        return columns[0]
    chain = array("i" if columns and all(column.typecode == "i" for column in columns) else "q")
    for column in columns:
        chain.extend(column if column.typecode == chain.typecode else array("q", column))
    return chain


def where(column: Column | Flags) -> Column:
    """Return the indices of the elements that are not 0, ascending."""
    return _column(numpy.flatnonzero(_seen(column)))


def where_not(column: Column | Flags) -> Column:
    """Return the indices of the elements that are 0, ascending."""
    return _column(numpy.flatnonzero(_seen(column) == 0))


def latest(flags: Flags) -> Column:
    """Return for each place the number of the last set flag at or before it, counted from 0; -1 before the first."""
    return _column(numpy.cumsum(_seen(flags), dtype=numpy.int64) - 1)


def equal(column: Column | Flags, value: int) -> Flags:
    """Return flags that are 1 where an element is ``value``."""
    return bytearray((_seen(column) == value).view(numpy.uint8).data)


def touching(starts: Column, ends: Column, low: int, high: int) -> Column:
    """Return the indices of the spans that touch the one from ``start`` to ``end``, edges included."""
    return _column(numpy.flatnonzero((_seen(starts) <= high) & (_seen(ends) >= low)))


def total(column: Column | Flags) -> int:
    """Return the exact sum of the elements, however large."""
    vector = _seen(column)
    if _fits(max(map(abs, _span(vector))) * len(vector)):
        return int(vector.sum(dtype=numpy.int64))
    # The sum of the upper and of the lower half fits in 64 bits each.
    return (int((vector >> 32).sum()) << 32) + int((vector & 0xFFFFFFFF).sum())


def minus(column: Column, other: Column) -> Column:
    """Subtract one column from another, element by element. Raises OverflowError for a difference beyond 64 bits."""
    a, b = as_vector(column), as_vector(other)
    (low, high), (other_low, other_high) = _span(a), _span(b)
    if not (_fits(low - other_high) and _fits(high - other_low)):
        return array("q", [x - y for x, y in zip(column, other, strict=True)])
    return _column(a - b)


def later(column: Column, other: Column) -> Column:
    """Return the greater of both elements at each place."""
    return _column(numpy.maximum(_seen(column), _seen(other)))


def earlier(column: Column, other: Column) -> Column:
    """Return the smaller of both elements at each place."""
    return _column(numpy.minimum(_seen(column), _seen(other)))


def within(column: Column, least: int, greatest: int) -> Column:
    """Clip each element to the bounds ``low`` and ``high``."""
    return _column(as_vector(column).clip(least, greatest))


def _ordered(key: Vector) -> NDArray[Any]:
    """Return the indices that sort one key, equal elements in their order."""
    if (key[1:] >= key[:-1]).all():
        return numpy.arange(len(key))
    low, high = _span(key)
    # numpy sorts 16 bits by radix.
    small = low >= 0 and high < 1 << 16
    return (key.astype(numpy.uint16) if small else key).argsort(kind="stable")


def order(*keys: Column) -> Column:
    """Return the indices that sort by the first key, then by the next; rows that are equal stay in their order."""
    indices = _ordered(_seen(keys[-1]))
    for key in reversed(keys[:-1]):
        indices = indices[_ordered(_seen(key)[indices])]
    return _column(indices)


def _numbered(key: NDArray[Any]) -> tuple[Vector, Vector]:
    """Assign ascending numbers to the distinct elements; return each number, and the distinct elements."""
    key = key.astype(numpy.int64, copy=False)
    low, high = _span(key)
    if low == high:
        return numpy.zeros(len(key), numpy.int64), key[:1]
    if high - low > max(4 * len(key), _TABLE):
        elements, numbers = numpy.unique(key, return_inverse=True)
        return numbers, elements
    occurs = _occurring(key, low, high)
    return (numpy.cumsum(occurs) - 1)[key - low], numpy.flatnonzero(occurs) + low


def _occurring(key: Vector, low: int, high: int) -> NDArray[numpy.bool_]:
    """Return which of the numbers from ``low`` to ``high`` occur."""
    occurs = numpy.zeros(high - low + 1, numpy.bool_)
    occurs[key - low] = True
    return occurs


def distinct(*keys: Column | Flags) -> tuple[Column, list[tuple[int, ...]]]:
    """Assign ascending numbers to the distinct rows; return each row's number, and the distinct rows."""
    numbers, elements = _numbered(_seen(keys[0]))
    row_columns = [elements]
    for key in keys[1:]:
        key_numbers, values = _numbered(_seen(key))
        numbers, pairs = _numbered(numbers * len(values) + key_numbers)
        row_columns = [*(column[pairs // len(values)] for column in row_columns), values[pairs % len(values)]]
    return _column(numbers), list(zip(*(column.tolist() for column in row_columns), strict=True))


def counts(numbers: Column, size: int) -> list[int]:
    """Count how often each number below ``size`` occurs."""
    counts_by_number: list[int] = numpy.bincount(_seen(numbers), minlength=size).tolist()
    return counts_by_number


def sums(numbers: Column, values: Column, size: int) -> list[int]:
    """Return the exact sum of the values of each number below ``size``, however large."""
    places, vector = _seen(numbers), _seen(values)
    if max(map(abs, _span(vector))) * len(vector) < _EXACT_AS_FLOAT:
        return _summed(places, vector, size)
    low, middle = ((vector >> shift) & ((1 << _BITS) - 1) for shift in _LIMBS[:2])
    limbs = (_summed(places, limb, size) for limb in (low, middle, vector >> _LIMBS[2]))
    return [
        sum(limb << shift for limb, shift in zip(limb_sums, _LIMBS, strict=True))
        for limb_sums in zip(*limbs, strict=True)
    ]


def _summed(at: Vector, vector: Vector, size: int) -> list[int]:
    sums_by_number: list[int] = numpy.bincount(at, vector, size).astype(numpy.int64).tolist()
    return sums_by_number


def members(numbers: Column, size: int) -> list[Column]:
    """Return the indices at which each number below ``size`` stands, ascending."""
    vector = _seen(numbers)
    edges = numpy.cumsum(numpy.bincount(vector, minlength=size))[:-1]
    # In half the memory: they are kept, and no table of a trace has 2**31 rows.
    return [_column(group) for group in numpy.split(_ordered(vector).astype(numpy.int32), edges)] if size else []


def spread(indices: Column, values: Column, size: int, fill: int) -> Column:
    """Return a column of ``size`` with the values at the indices, each index once, and ``fill`` elsewhere."""
    values_by_index = numpy.full(size, fill, numpy.int64)
    values_by_index[_seen(indices)] = _seen(values)
    return _column(values_by_index)


def places(edges: Column, values: Column) -> Column:
    """Count for each value how many of the ascending edges are at or before it."""
    return _column(_seen(edges).searchsorted(_seen(values), "right"))


def stretches(firsts: Column, afters: Column) -> tuple[Column, Column]:
    """Expand index ranges into rows of (owner, index): each range goes from its first index to before its after, no
    earlier.
    """
    first = _seen(firsts)
    lengths = _seen(afters) - first
    owners = numpy.repeat(numpy.arange(len(first)), lengths)
    return _column(owners), _column(numpy.arange(len(owners)) + (first - lengths.cumsum() + lengths)[owners])


def parted(starts: Column, ends: Column, from_ns: Column, until_ns: Column) -> tuple[Column, Column, Column, Column]:
    """Split spans at the edges of a union; return (span, start, end, 1 inside of the union or 0 outside) of each part.

    The union is disjoint and ascending. No span is empty. The parts of a span follow each other.
    """
    if not len(from_ns):
        return array("q", range(len(starts))), starts, ends, array("q", bytes(8 * len(starts)))
    edges = numpy.stack([_seen(from_ns), _seen(until_ns)], axis=1).ravel()
    first_cell, after_cell = edges.searchsorted(_seen(starts), "right"), edges.searchsorted(_seen(ends)) + 1
    span, cell = map(_seen, stretches(_column(first_cell), _column(after_cell)))
    bounds = numpy.concatenate([[-NEVER], edges, [NEVER]])
    begins = _column(numpy.maximum(_seen(starts)[span], bounds[cell]))
    reaches = _column(numpy.minimum(_seen(ends)[span], bounds[cell + 1]))
    return _column(span), begins, reaches, _column(cell & 1)


def records(groups: Column, values: Column) -> Flags:
    """Return flags that are 1 where a value is greater than all before it in its group; groups ascend."""
    # By rank among all values a later group is above each earlier one: so one pass finds the records of all.
    ranks, distinct_values = _numbered(_seen(values))
    keys = _numbered(_seen(groups))[0] * (len(distinct_values) + 1) + ranks
    flags = numpy.ones(len(keys), numpy.uint8)
    flags[1:] = keys[1:] > numpy.maximum.accumulate(keys)[:-1]
    return bytearray(flags.data)


def outermost(groups: Column, starts: Column, ends: Column) -> Flags:
    """Return flags that are 1 where a span lies in none before it of its group: in order of group and start, the
    longest first.

    What begins where the one before it ends lies beside it.
    """
    group, begins, reaches = _seen(groups), _seen(starts), _seen(ends)
    flags = numpy.ones(len(group), numpy.uint8)
    edges = [0, *(numpy.flatnonzero(group[1:] != group[:-1]) + 1).tolist(), len(group)]
    for low, high in pairwise(edges):
        latest_end = numpy.maximum.accumulate(reaches[low:high])[:-1]
        flags[low + 1 : high] = (reaches[low + 1 : high] > latest_end) | (begins[low + 1 : high] >= latest_end)
    return bytearray(flags.data)


def _segments(starts: Column, ends: Column) -> tuple[Vector, Vector, NDArray[Any]]:
    """Return (start, end, owner) as vectors, as :func:`split_into_segments` does."""
    owners = _ordered(_seen(starts))
    begins, reaches = _seen(starts)[owners], _seen(ends)[owners]
    begins[1:] = numpy.maximum(begins[1:], numpy.maximum.accumulate(reaches)[:-1])
    is_part = reaches > begins
    return begins[is_part], reaches[is_part], owners[is_part]


def segments(starts: Column, ends: Column) -> tuple[Column, Column, Column]:
    """Split time into disjoint ascending parts (begin, end, index), in which each moment is of the span that began
    first.

    Of spans that begin together it is the one of the lowest index. What ends where it starts has no part.
    """
    begins, reaches, owners = _segments(starts, ends)
    return _column(begins), _column(reaches), _column(owners)


def union(starts: Column, ends: Column) -> tuple[Column, Column, Column]:
    """Merge spans into disjoint ascending ones; return (start, end, length of all before it) of each.

    What ends where it starts covers nothing; spans that touch become one. Raises OverflowError beyond 64 bits.
    """
    begins, reaches, _ = _segments(starts, ends)
    first = numpy.ones(len(begins) + 1, numpy.bool_)
    first[1:-1] = begins[1:] != reaches[:-1]
    firsts, lasts = _column(begins[first[:-1]]), _column(reaches[first[1:]])
    if len(begins) and not _fits(int(reaches[-1]) - int(begins[0])):
        lengths = (end - start for start, end in zip(firsts, lasts, strict=True))
        return firsts, lasts, array("q", [*accumulate(lengths, initial=0)][:-1])
    own_lengths = _seen(lasts) - _seen(firsts)
    return firsts, lasts, _column(numpy.cumsum(own_lengths) - own_lengths)


def covered_before(starts: Column, ends: Column, before: Column, moments: Column) -> Column:
    """Measure how much of merged spans (:func:`merge_span_columns`) lies before each moment."""
    if not len(starts):
        return array("q", bytes(8 * len(moments)))
    times = _seen(moments)
    i = _seen(starts).searchsorted(times, "right") - 1
    lengths = numpy.minimum(times, _seen(ends)[i]) - _seen(starts)[i] + _seen(before)[i]
    lengths[i < 0] = 0
    return _column(lengths)


def innermost(starts: Column, ends: Column, threads: Column, codes: Column) -> tuple[Column, Column, Flags]:
    """Find the shortest span at each moment; return (moments, codes, flags), a flag 1 where spans of two threads are
    open.

    Each code holds from its moment on. Before the first moment, and where no span is, the code is 0: there is one code
    more than moments. Spans begin in order, include their ends, and stay open with the end NO_END; of equal lengths the
    highest index counts. Each span is written over all moments that it covers, the shortest last.
    """
    begins, reaches = _seen(starts), _seen(ends)
    if not len(begins) or not _fits(_span(reaches)[1] - _span(begins)[0]):
        return _swept(starts, ends, threads, codes)
    has_end = reaches != NEVER
    edges = numpy.sort(numpy.concatenate([begins, reaches[has_end] + 1]))
    edges = edges[numpy.append(True, edges[1:] != edges[:-1])]  # numpy.unique hashes, and takes ten times as long
    first = edges.searchsorted(begins)
    cells = numpy.where(has_end, edges.searchsorted(reaches, "right"), len(edges)) - first
    cells = cells.clip(0)  # none of a span that ends before it begins
    if cells.sum() > _DEEPEST * len(edges):
        return _swept(starts, ends, threads, codes)
    longest_first = (begins - reaches).argsort(kind="stable")
    first, cells = first[longest_first], cells[longest_first]
    cell_indices = numpy.arange(cells.sum()) + numpy.repeat(first - cells.cumsum() + cells + 1, cells)
    cell_codes = numpy.zeros(len(edges) + 1, numpy.int64)
    cell_codes[cell_indices] = numpy.repeat(_seen(codes)[longest_first], cells)
    thread = numpy.repeat(_seen(threads)[longest_first], cells)
    last_thread = numpy.zeros(len(edges) + 1, numpy.int64)
    last_thread[cell_indices] = thread
    has_two_threads = numpy.zeros(len(edges) + 1, numpy.uint8)
    has_two_threads[cell_indices[last_thread[cell_indices] != thread]] = 1
    return _column(edges), _column(cell_codes), bytearray(has_two_threads.data)


def _swept(starts: Column, ends: Column, threads: Column, codes: Column) -> tuple[Column, Column, Flags]:
    """Find the same as :func:`find_innermost` span by span, in time that does not grow with their depth."""
    edges = sorted({*starts, *(end + 1 for end in ends if end != NEVER)})
    edge_codes, has_two_threads = array("q", [0]), bytearray(1)
    open_spans: list[tuple[int, int, int, int]] = []  # (length, −index, end, code)
    open_ends: list[tuple[int, int]] = []  # (end, thread)
    open_on: Counter[int] = Counter()
    next_span = 0
    for time in edges:
        while next_span < len(starts) and starts[next_span] == time:
            end, thread = ends[next_span], threads[next_span]
            heapq.heappush(open_spans, (end - time, -next_span, end, codes[next_span]))
            heapq.heappush(open_ends, (end, thread))
            open_on[thread] += 1
            next_span += 1
        while open_ends and open_ends[0][0] < time:
            _, thread = heapq.heappop(open_ends)
            open_on[thread] -= 1
            if not open_on[thread]:
                del open_on[thread]
        while open_spans and open_spans[0][2] < time:
            heapq.heappop(open_spans)
        edge_codes.append(open_spans[0][3] if open_spans else 0)
        has_two_threads.append(len(open_on) > 1)
    return array("q", edges), edge_codes, has_two_threads


def least_ratio(parts: Column, wholes: Column) -> int:
    """Return the index of the smallest ratio of part to whole, exactly; of several the first. No part is negative, no
    whole 0.
    """
    # As floats each ratio is off by less than 2**-50 of itself; those that may be the least are compared exactly.
    ratios = _seen(parts) / _seen(wholes)
    smallest = ratios.min()
    if smallest == 0:
        return int(ratios.argmin())
    best, *candidates = numpy.flatnonzero(ratios <= smallest * (1 + 2.0**-48)).tolist()
    for i in candidates:
        if parts[i] * wholes[best] < parts[best] * wholes[i]:
            best = i
    return best


def values(column: Column) -> Column:
    """Return the distinct elements, ascending."""
    key = as_vector(column)
    if (key[1:] > key[:-1]).all():
        return _column(key)
    low, high = _span(key)
    if high - low > max(4 * len(key), _TABLE):
        return _column(numpy.unique(key))
    return _column(numpy.flatnonzero(_occurring(key, low, high)) + low)


def bounds(column: Column) -> tuple[int, int]:
    """Return the least and the greatest element, (0, 0) of none."""
    return _span(_seen(column))


def exceeds(column: Column, other: Column) -> bool:
    """Whether an element of ``upper`` is greater than the one of ``lower`` at its place."""
    return bool((_seen(column) > _seen(other)).any())


def impossible(starts: Column, ends: Column) -> Flags:
    """Return flags that are 1 where a span ends before it starts, or starts and ends at 0."""
    start, end = _seen(starts), _seen(ends)
    return bytearray(((end < start) | ((start | end) == 0)).view(numpy.uint8).data)


def members_by(key: Callable[..., KeyT], *columns: Column, among: Column | None = None) -> dict[KeyT, Column]:
    """Group row indices by a key that ``make_key`` makes, once for each distinct row; of all rows, or of ``subset``."""
    numbers, rows = distinct(*(column if among is None else take(column, among) for column in columns))
    keys = [key(*row) for row in rows]
    number_by_key = {row_key: number for number, row_key in enumerate(dict.fromkeys(keys))}
    groups = members(take(array("q", [number_by_key[row_key] for row_key in keys]), numbers), len(number_by_key))
    return {
        row_key: indices if among is None else take(among, indices)
        for row_key, indices in zip(number_by_key, groups, strict=True)
    }


def sums_by(key: Callable[..., KeyT], values: Column, *columns: Column) -> dict[KeyT, tuple[int, int]]:
    """Return (sum, count) of the values of each key, which ``make_key`` makes once for each distinct row of the
    columns.
    """
    numbers, rows = distinct(*columns)
    sums_by_key: dict[KeyT, tuple[int, int]] = {}
    row_sums = zip(rows, sums(numbers, values, len(rows)), counts(numbers, len(rows)), strict=True)
    for row, value, number in row_sums:
        sum_so_far = sums_by_key.get(row_key := key(*row), (0, 0))
        sums_by_key[row_key] = (sum_so_far[0] + value, sum_so_far[1] + number)
    return sums_by_key


def _places(ids: Vector, keys: Vector) -> tuple[Vector, NDArray[numpy.bool_]]:
    """Return the position of each key among the ascending ids, and whether it is one of them."""
    lowest_key, highest_key = _span(keys)
    first, last = int(ids.searchsorted(lowest_key)), int(ids.searchsorted(highest_key, "right"))
    # Of a whole trace's ids only those near the keys are looked at.
    near_ids = ids[first:last]
    if not len(near_ids):
        return numpy.zeros(len(keys), numpy.int64), numpy.zeros(len(keys), numpy.bool_)
    low, high = int(near_ids[0]), int(near_ids[-1])
    if high - low > 4 * (len(near_ids) + len(keys)):
        positions = near_ids.searchsorted(keys).clip(max=len(near_ids) - 1)
    else:
        table = numpy.zeros(high - low + 1, numpy.int64)
        table[near_ids - low] = numpy.arange(len(near_ids))
        positions = table[keys.clip(low, high) - low]
    return positions + first, near_ids[positions] == keys


def lower(ids: Column, found: Sequence[Column], keys: Column, rows: Sequence[Column]) -> None:
    """Reduce ``minima``, a row for each of the ascending ``ids``, in place to the least row whose key is the id.

    Rows compare by their first column, then by the next.
    """
    if not (len(ids) and len(keys)):
        return
    positions, is_candidate = _places(_seen(ids), _seen(keys))
    candidates = [_seen(row) for row in rows]
    for level, minimum in enumerate(found):
        positions, candidates = positions[is_candidate], [row[is_candidate] for row in candidates]
        minimum_array = _seen(minimum)
        previous = minimum_array[positions]
        numpy.minimum.at(minimum_array, positions, candidates[level])
        lowered_positions = positions[minimum_array[positions] < previous]
        for next_minimum in found[level + 1 :]:
            _seen(next_minimum)[lowered_positions] = NEVER
        is_candidate = minimum_array[positions] == candidates[level]


def joined(ids: Column, found: Column, missing: int, keys: Column) -> Column:
    """Return for each key the value at its id among the ascending ``ids``, ``default`` where it is none of them."""
    if not len(ids):
        return array("q", [missing]) * len(keys)
    positions, is_known = _places(_seen(ids), _seen(keys))
    return _column(numpy.where(is_known, _seen(found)[positions], missing))
