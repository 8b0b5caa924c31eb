"""How are many kernels processed at once? With a few exact operations on columns of integers.

A column is an ``array('q')``, or an ``array('i')`` if 32 bits are enough, as for numbers of names; flags are a
``bytearray`` of 0 and 1; indices are a column, flags or a range. numpy sees an array without a copy, and an element
read in Python is an ``int``, whose products never overflow. If a result might not fit in 64 bits, it is computed in
parts that fit, or refused; no operation wraps.
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
# The end of a span without an end: no time of a trace reaches it.
NO_END = (1 << 63) - 1

ColumnT = TypeVar("ColumnT", "array[int]", bytearray)
KeyT = TypeVar("KeyT", bound=Hashable)

# A table of this size is built faster than a few hundred elements are sorted.
_SMALL_TABLE = 1 << 16

# Above this mean nesting depth spans are swept one by one, because each is written over all moments it covers.
_MAX_MEAN_DEPTH = 32

# Whole numbers below it are exact as floats, in which numpy.bincount sums.
_EXACT_AS_FLOAT = 1 << 53
# 64 bits are split into three parts of this many bits, so that sums of 2**31 parts stay exact as floats.
_BITS = 22
_LIMBS = (0, _BITS, 2 * _BITS)


def _as_array(column: Indices) -> NDArray[Any]:
    if isinstance(column, range):
        return numpy.arange(column.start, column.stop, dtype=numpy.int64)
    if isinstance(column, bytearray):
        return numpy.frombuffer(column, numpy.uint8)
    return numpy.frombuffer(column, column.typecode)


def as_vector(column: Indices) -> Vector:
    """Return the column as a numpy vector of 64 bits, for operations that this module lacks, such as comparing rows of
    counts.
    """
    return _as_array(column).astype(numpy.int64, copy=False)


def _make_column(vector: NDArray[Any]) -> Column:
    narrow = vector.dtype == numpy.int32
    column = array("i" if narrow else "q")
    column.frombytes(numpy.ascontiguousarray(vector, numpy.int32 if narrow else numpy.int64).view(numpy.uint8).data)
    return column


def narrow_column(column: Column) -> Column:
    """Return the same numbers in half the memory if all of them fit in 32 bits, else the column itself."""
    vector = _as_array(column)
    low, high = _find_min_max(vector)
    return _make_column(vector.astype(numpy.int32)) if low >= -(1 << 31) and high < 1 << 31 else column


def _find_min_max(vector: NDArray[Any]) -> tuple[int, int]:
    """Return the least and the greatest element; (0, 0) if there are none."""
    return (int(vector.min()), int(vector.max())) if len(vector) else (0, 0)


def _is_int64(number: int) -> bool:
    return -(1 << 63) <= number < 1 << 63


def parse_int_list(text: str) -> Column:
    """Parse a JSON list of 64-bit integers into a column. Raises ValueError if the list holds anything else."""
    # numpy.fromstring stops at what is no number instead of refusing it.
    if any(sign in text for sign in '".en'):  # of a text, a fraction, an exponent, ``null`` or ``Inf``
        raise ValueError("not all are whole numbers")
    return _make_column(numpy.fromstring(text[1:-1], numpy.int64, sep=","))


def take(column: ColumnT, indices: Indices) -> ColumnT:
    """Return the elements at ``indices``, in that order."""
    if isinstance(indices, range):
        return column[indices.start : indices.stop]
    elements = _as_array(column)[_as_array(indices)]
    return bytearray(elements.data) if isinstance(column, bytearray) else _make_column(elements)


def concatenate_columns(columns: Sequence[Column]) -> Column:
    """Join columns one after the other. A single column is returned without a copy, so the result must not be
    modified.
    """
    if len(columns) == 1:
        return columns[0]
    chain = array("i" if columns and all(column.typecode == "i" for column in columns) else "q")
    for column in columns:
        chain.extend(column if column.typecode == chain.typecode else array("q", column))
    return chain


def find_nonzero(column: Column | Flags) -> Column:
    """Return the indices of the elements that are not 0, ascending."""
    return _make_column(numpy.flatnonzero(_as_array(column)))


def find_zeros(column: Column | Flags) -> Column:
    """Return the indices of the elements that are 0, ascending."""
    return _make_column(numpy.flatnonzero(_as_array(column) == 0))


def find_latest_flags(flags: Flags) -> Column:
    """Return for each place the number of the last set flag at or before it, counted from 0; -1 before the first."""
    return _make_column(numpy.cumsum(_as_array(flags), dtype=numpy.int64) - 1)


def mark_equal(column: Column | Flags, value: int) -> Flags:
    """Return flags that are 1 where an element is ``value``."""
    return bytearray((_as_array(column) == value).view(numpy.uint8).data)


def find_touching_spans(starts: Column, ends: Column, start: int, end: int) -> Column:
    """Return the indices of the spans that touch the one from ``start`` to ``end``, edges included."""
    return _make_column(numpy.flatnonzero((_as_array(starts) <= end) & (_as_array(ends) >= start)))


def sum_column(column: Column | Flags) -> int:
    """Return the exact sum of the elements, however large."""
    vector = _as_array(column)
    if _is_int64(max(map(abs, _find_min_max(vector))) * len(vector)):
        return int(vector.sum(dtype=numpy.int64))
    # The sum of the upper and of the lower half fits in 64 bits each.
    return (int((vector >> 32).sum()) << 32) + int((vector & 0xFFFFFFFF).sum())


def subtract(column: Column, subtrahend: Column) -> Column:
    """Subtract one column from another, element by element. Raises OverflowError for a difference beyond 64 bits."""
    a, b = as_vector(column), as_vector(subtrahend)
    (low, high), (other_low, other_high) = _find_min_max(a), _find_min_max(b)
    if not (_is_int64(low - other_high) and _is_int64(high - other_low)):
        return array("q", [x - y for x, y in zip(column, subtrahend, strict=True)])
    return _make_column(a - b)


def take_maximum(column: Column, other_column: Column) -> Column:
    """Return the greater of both elements at each place."""
    return _make_column(numpy.maximum(_as_array(column), _as_array(other_column)))


def take_minimum(column: Column, other_column: Column) -> Column:
    """Return the smaller of both elements at each place."""
    return _make_column(numpy.minimum(_as_array(column), _as_array(other_column)))


def clip(column: Column, low: int, high: int) -> Column:
    """Clip each element to the bounds ``low`` and ``high``."""
    return _make_column(as_vector(column).clip(low, high))


def _sort_stably(key: Vector) -> NDArray[Any]:
    """Return the indices that sort one key, equal elements in their order."""
    if (key[1:] >= key[:-1]).all():
        return numpy.arange(len(key))
    low, high = _find_min_max(key)
    # numpy sorts 16 bits by radix.
    small = low >= 0 and high < 1 << 16
    return (key.astype(numpy.uint16) if small else key).argsort(kind="stable")


def sort_indices(*keys: Column) -> Column:
    """Return the indices that sort by the first key, then by the next, and so on; equal rows keep their order."""
    indices = _sort_stably(_as_array(keys[-1]))
    for key in reversed(keys[:-1]):
        indices = indices[_sort_stably(_as_array(key)[indices])]
    return _make_column(indices)


def _number_elements(key: NDArray[Any]) -> tuple[Vector, Vector]:
    """Assign ascending numbers to the distinct elements; return each number, and the distinct elements."""
    key = key.astype(numpy.int64, copy=False)
    low, high = _find_min_max(key)
    if low == high:
        return numpy.zeros(len(key), numpy.int64), key[:1]
    if high - low > max(4 * len(key), _SMALL_TABLE):
        elements, numbers = numpy.unique(key, return_inverse=True)
        return numbers, elements
    occurs = _mark_occurring(key, low, high)
    return (numpy.cumsum(occurs) - 1)[key - low], numpy.flatnonzero(occurs) + low


def _mark_occurring(key: Vector, low: int, high: int) -> NDArray[numpy.bool_]:
    """Return which of the numbers from ``low`` to ``high`` occur."""
    occurs = numpy.zeros(high - low + 1, numpy.bool_)
    occurs[key - low] = True
    return occurs


def find_distinct_rows(*keys: Column | Flags) -> tuple[Column, list[tuple[int, ...]]]:
    """Assign ascending numbers to the distinct rows; return each row's number, and the distinct rows."""
    numbers, elements = _number_elements(_as_array(keys[0]))
    row_columns = [elements]
    for key in keys[1:]:
        key_numbers, values = _number_elements(_as_array(key))
        numbers, pairs = _number_elements(numbers * len(values) + key_numbers)
        row_columns = [*(column[pairs // len(values)] for column in row_columns), values[pairs % len(values)]]
    return _make_column(numbers), list(zip(*(column.tolist() for column in row_columns), strict=True))


def count_numbers(numbers: Column, size: int) -> list[int]:
    """Count how often each number below ``size`` occurs."""
    counts_by_number: list[int] = numpy.bincount(_as_array(numbers), minlength=size).tolist()
    return counts_by_number


def sum_by_number(numbers: Column, values: Column, size: int) -> list[int]:
    """Return the exact sum of the values of each number below ``size``, however large."""
    places, vector = _as_array(numbers), _as_array(values)
    if max(map(abs, _find_min_max(vector))) * len(vector) < _EXACT_AS_FLOAT:
        return _sum_as_floats(places, vector, size)
    low, middle = ((vector >> shift) & ((1 << _BITS) - 1) for shift in _LIMBS[:2])
    limbs = (_sum_as_floats(places, limb, size) for limb in (low, middle, vector >> _LIMBS[2]))
    return [
        sum(limb << shift for limb, shift in zip(limb_sums, _LIMBS, strict=True))
        for limb_sums in zip(*limbs, strict=True)
    ]


def _sum_as_floats(places: Vector, vector: Vector, size: int) -> list[int]:
    sums_by_number: list[int] = numpy.bincount(places, vector, size).astype(numpy.int64).tolist()
    return sums_by_number


def group_indices(numbers: Column, size: int) -> list[Column]:
    """Return, for each number below ``size``, the indices of its occurrences, ascending."""
    vector = _as_array(numbers)
    edges = numpy.cumsum(numpy.bincount(vector, minlength=size))[:-1]
    # In half the memory: they are kept, and no table of a trace has 2**31 rows.
    return (
        [_make_column(group) for group in numpy.split(_sort_stably(vector).astype(numpy.int32), edges)] if size else []
    )


def fill_column(indices: Column, values: Column, size: int, fill: int) -> Column:
    """Return a column of ``size`` with the values at the indices, each index once, and ``fill`` elsewhere."""
    values_by_index = numpy.full(size, fill, numpy.int64)
    values_by_index[_as_array(indices)] = _as_array(values)
    return _make_column(values_by_index)


def count_edges_before(edges: Column, values: Column) -> Column:
    """Count for each value how many of the ascending edges are at or before it."""
    return _make_column(_as_array(edges).searchsorted(_as_array(values), "right"))


def expand_stretches(firsts: Column, afters: Column) -> tuple[Column, Column]:
    """Expand index ranges into (owner, index) columns; each range goes from its first index to before its ``after``."""
    first = _as_array(firsts)
    lengths = _as_array(afters) - first
    owners = numpy.repeat(numpy.arange(len(first)), lengths)
    return _make_column(owners), _make_column(numpy.arange(len(owners)) + (first - lengths.cumsum() + lengths)[owners])


def split_by_union(
    starts: Column, ends: Column, from_ns: Column, until_ns: Column
) -> tuple[Column, Column, Column, Column]:
    """Split spans at the edges of a union; return (span, start, end, flag) of each part, with flag 1 inside of the
    union.

    The spans of the union are disjoint and ascending. No span is empty. The parts of a span follow each other.
    """
    if not len(from_ns):
        return array("q", range(len(starts))), starts, ends, array("q", bytes(8 * len(starts)))
    edges = numpy.stack([_as_array(from_ns), _as_array(until_ns)], axis=1).ravel()
    first_cell, after_cell = edges.searchsorted(_as_array(starts), "right"), edges.searchsorted(_as_array(ends)) + 1
    span, cell = map(_as_array, expand_stretches(_make_column(first_cell), _make_column(after_cell)))
    bounds = numpy.concatenate([[-NO_END], edges, [NO_END]])
    begins = _make_column(numpy.maximum(_as_array(starts)[span], bounds[cell]))
    reaches = _make_column(numpy.minimum(_as_array(ends)[span], bounds[cell + 1]))
    return _make_column(span), begins, reaches, _make_column(cell & 1)


def mark_records(groups: Column, values: Column) -> Flags:
    """Return flags that are 1 if a value is greater than all before it in its group; groups ascend."""
    # By rank among all values a later group is above each earlier one: so one pass finds the records of all.
    ranks, distinct_values = _number_elements(_as_array(values))
    keys = _number_elements(_as_array(groups))[0] * (len(distinct_values) + 1) + ranks
    flags = numpy.ones(len(keys), numpy.uint8)
    flags[1:] = keys[1:] > numpy.maximum.accumulate(keys)[:-1]
    return bytearray(flags.data)


def mark_outermost(groups: Column, starts: Column, ends: Column) -> Flags:
    """Return flags that are 1 if a span lies inside no earlier one of its group.

    Spans are sorted by group and start, the longest first. A span that begins where another ends is not inside it.
    """
    group, begins, reaches = _as_array(groups), _as_array(starts), _as_array(ends)
    flags = numpy.ones(len(group), numpy.uint8)
    edges = [0, *(numpy.flatnonzero(group[1:] != group[:-1]) + 1).tolist(), len(group)]
    for low, high in pairwise(edges):
        latest_end = numpy.maximum.accumulate(reaches[low:high])[:-1]
        flags[low + 1 : high] = (reaches[low + 1 : high] > latest_end) | (begins[low + 1 : high] >= latest_end)
    return bytearray(flags.data)


def _split_into_segments(starts: Column, ends: Column) -> tuple[Vector, Vector, NDArray[Any]]:
    """Return (start, end, owner) as vectors, as :func:`split_into_segments` does."""
    owners = _sort_stably(_as_array(starts))
    begins, reaches = _as_array(starts)[owners], _as_array(ends)[owners]
    begins[1:] = numpy.maximum(begins[1:], numpy.maximum.accumulate(reaches)[:-1])
    is_part = reaches > begins
    return begins[is_part], reaches[is_part], owners[is_part]


def split_into_segments(starts: Column, ends: Column) -> tuple[Column, Column, Column]:
    """Split time into disjoint ascending parts (begin, end, index); each moment belongs to the running span that began
    first.

    Among spans that begin together the lowest index wins. A span without length has no part.
    """
    begins, reaches, owners = _split_into_segments(starts, ends)
    return _make_column(begins), _make_column(reaches), _make_column(owners)


def merge_span_columns(starts: Column, ends: Column) -> tuple[Column, Column, Column]:
    """Merge spans into disjoint ascending ones; return (start, end, length of all before it) of each.

    A span without length covers nothing; spans that touch are merged. Raises OverflowError beyond 64 bits.
    """
    begins, reaches, _ = _split_into_segments(starts, ends)
    first = numpy.ones(len(begins) + 1, numpy.bool_)
    first[1:-1] = begins[1:] != reaches[:-1]
    firsts, lasts = _make_column(begins[first[:-1]]), _make_column(reaches[first[1:]])
    if len(begins) and not _is_int64(int(reaches[-1]) - int(begins[0])):
        lengths = (end - start for start, end in zip(firsts, lasts, strict=True))
        return firsts, lasts, array("q", [*accumulate(lengths, initial=0)][:-1])
    own_lengths = _as_array(lasts) - _as_array(firsts)
    return firsts, lasts, _make_column(numpy.cumsum(own_lengths) - own_lengths)


def measure_covered_before(starts: Column, ends: Column, before: Column, moments: Column) -> Column:
    """Measure how much of merged spans (:func:`merge_span_columns`) lies before each moment."""
    if not len(starts):
        return array("q", bytes(8 * len(moments)))
    times = _as_array(moments)
    i = _as_array(starts).searchsorted(times, "right") - 1
    lengths = numpy.minimum(times, _as_array(ends)[i]) - _as_array(starts)[i] + _as_array(before)[i]
    lengths[i < 0] = 0
    return _make_column(lengths)


def find_innermost(starts: Column, ends: Column, threads: Column, codes: Column) -> tuple[Column, Column, Flags]:
    """Find the shortest span at each moment; return (moments, codes, flags), with flag 1 if spans of two threads are
    open.

    Each code holds from its moment on. Before the first moment, and where no span is, the code is 0: there is one code
    more than moments. Spans are sorted by start, include their ends, and stay open if the end is NO_END; among equal
    lengths the highest index wins. Spans are written over all moments that they cover, the shortest last.
    """
    begins, reaches = _as_array(starts), _as_array(ends)
    if not len(begins) or not _is_int64(_find_min_max(reaches)[1] - _find_min_max(begins)[0]):
        return _sweep_innermost(starts, ends, threads, codes)
    has_end = reaches != NO_END
    edges = numpy.sort(numpy.concatenate([begins, reaches[has_end] + 1]))
    edges = edges[numpy.append(True, edges[1:] != edges[:-1])]  # numpy.unique hashes, and takes ten times as long
    first = edges.searchsorted(begins)
    cells = numpy.where(has_end, edges.searchsorted(reaches, "right"), len(edges)) - first
    cells = cells.clip(0)  # none of a span that ends before it begins
    if cells.sum() > _MAX_MEAN_DEPTH * len(edges):
        return _sweep_innermost(starts, ends, threads, codes)
    longest_first = (begins - reaches).argsort(kind="stable")
    first, cells = first[longest_first], cells[longest_first]
    cell_indices = numpy.arange(cells.sum()) + numpy.repeat(first - cells.cumsum() + cells + 1, cells)
    cell_codes = numpy.zeros(len(edges) + 1, numpy.int64)
    cell_codes[cell_indices] = numpy.repeat(_as_array(codes)[longest_first], cells)
    thread = numpy.repeat(_as_array(threads)[longest_first], cells)
    last_thread = numpy.zeros(len(edges) + 1, numpy.int64)
    last_thread[cell_indices] = thread
    has_two_threads = numpy.zeros(len(edges) + 1, numpy.uint8)
    has_two_threads[cell_indices[last_thread[cell_indices] != thread]] = 1
    return _make_column(edges), _make_column(cell_codes), bytearray(has_two_threads.data)


def _sweep_innermost(starts: Column, ends: Column, threads: Column, codes: Column) -> tuple[Column, Column, Flags]:
    """Do the same as :func:`find_innermost` span by span, in time that does not grow with nesting depth."""
    edges = sorted({*starts, *(end + 1 for end in ends if end != NO_END)})
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


def find_least_ratio(parts: Column, wholes: Column) -> int:
    """Return the index of the smallest ratio of part to whole, exactly; the first if several are equal.

    No part is negative, and no whole is 0.
    """
    # As floats each ratio is off by less than 2**-50 of itself; those that may be the least are compared exactly.
    ratios = _as_array(parts) / _as_array(wholes)
    smallest = ratios.min()
    if smallest == 0:
        return int(ratios.argmin())
    best, *candidates = numpy.flatnonzero(ratios <= smallest * (1 + 2.0**-48)).tolist()
    for i in candidates:
        if parts[i] * wholes[best] < parts[best] * wholes[i]:
            best = i
    return best


def list_distinct(column: Column) -> Column:
    """Return the distinct elements, ascending."""
    key = as_vector(column)
    if (key[1:] > key[:-1]).all():
        return _make_column(key)
    low, high = _find_min_max(key)
    if high - low > max(4 * len(key), _SMALL_TABLE):
        return _make_column(numpy.unique(key))
    return _make_column(numpy.flatnonzero(_mark_occurring(key, low, high)) + low)


def find_min_max(column: Column) -> tuple[int, int]:
    """Return the least and the greatest element; (0, 0) if there are none."""
    return _find_min_max(_as_array(column))


def is_exceeded(upper: Column, lower: Column) -> bool:
    """Return whether any element of ``upper`` is greater than the element of ``lower`` at the same index."""
    return bool((_as_array(upper) > _as_array(lower)).any())


def mark_impossible(starts: Column, ends: Column) -> Flags:
    """Return flags that are 1 if a span ends before it starts, or starts and ends at 0."""
    start, end = _as_array(starts), _as_array(ends)
    return bytearray(((end < start) | ((start | end) == 0)).view(numpy.uint8).data)


def group_indices_by(
    make_key: Callable[..., KeyT], *columns: Column, subset: Column | None = None
) -> dict[KeyT, Column]:
    """Group row indices, of all rows or of ``subset``, by a key that ``make_key`` computes once for each distinct
    row.
    """
    numbers, rows = find_distinct_rows(*(column if subset is None else take(column, subset) for column in columns))
    keys = [make_key(*row) for row in rows]
    number_by_key = {row_key: number for number, row_key in enumerate(dict.fromkeys(keys))}
    groups = group_indices(take(array("q", [number_by_key[row_key] for row_key in keys]), numbers), len(number_by_key))
    return {
        row_key: indices if subset is None else take(subset, indices)
        for row_key, indices in zip(number_by_key, groups, strict=True)
    }


def sum_values_by(make_key: Callable[..., KeyT], values: Column, *columns: Column) -> dict[KeyT, tuple[int, int]]:
    """Return (sum, count) of the values by a key that ``make_key`` computes once for each distinct row of the
    columns.
    """
    numbers, rows = find_distinct_rows(*columns)
    sums_by_key: dict[KeyT, tuple[int, int]] = {}
    row_sums = zip(rows, sum_by_number(numbers, values, len(rows)), count_numbers(numbers, len(rows)), strict=True)
    for row, value, number in row_sums:
        sum_so_far = sums_by_key.get(row_key := make_key(*row), (0, 0))
        sums_by_key[row_key] = (sum_so_far[0] + value, sum_so_far[1] + number)
    return sums_by_key


def _locate_keys(ids: Vector, keys: Vector) -> tuple[Vector, NDArray[numpy.bool_]]:
    """Return the position of each key among the ascending ids, and whether it is one of them."""
    lowest_key, highest_key = _find_min_max(keys)
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


def lower_to_minimum(ids: Column, minima: Sequence[Column], keys: Column, rows: Sequence[Column]) -> None:
    """Lower ``minima`` in place: for each of the ascending ``ids``, to the least row whose key is the id.

    Rows compare by their first column, then by the next.
    """
    if not (len(ids) and len(keys)):
        return
    positions, is_candidate = _locate_keys(_as_array(ids), _as_array(keys))
    candidates = [_as_array(row) for row in rows]
    for level, minimum in enumerate(minima):
        positions, candidates = positions[is_candidate], [row[is_candidate] for row in candidates]
        minimum_array = _as_array(minimum)
        previous = minimum_array[positions]
        numpy.minimum.at(minimum_array, positions, candidates[level])
        lowered_positions = positions[minimum_array[positions] < previous]
        for next_minimum in minima[level + 1 :]:
            _as_array(next_minimum)[lowered_positions] = NO_END
        is_candidate = minimum_array[positions] == candidates[level]


def look_up_keys(ids: Column, values: Column, default: int, keys: Column) -> Column:
    """Return for each key the value of its id among the ascending ``ids``; ``default`` if the key is not among them."""
    if not len(ids):
        return array("q", [default]) * len(keys)
    positions, is_known = _locate_keys(_as_array(ids), _as_array(keys))
    return _make_column(numpy.where(is_known, _as_array(values)[positions], default))


NO_SPAN = -1
"""Stands for the index of a span where there is none."""


def nest_spans(threads: Column, starts: Column, ends: Column) -> tuple[Column, Column]:
    """Return for each span the index of the one around it on its thread, NO_SPAN without one, and its depth from 0.

    Spans are sorted by thread and start, the longest first. One that begins inside another is inside it, even if it
    ends later: clocks are read at different moments. One that begins where another ends is not inside it.
    """
    parents, depths = array("q"), array("q")
    open_spans: list[tuple[int, int, int]] = []  # (index, start, end)
    open_thread: int | None = None
    for i, (thread, start, end) in enumerate(zip(threads, starts, ends, strict=True)):
        if thread != open_thread:
            open_thread, open_spans = thread, []
        while open_spans and open_spans[-1][2] <= start and open_spans[-1][1] < start:
            open_spans.pop()
        parents.append(open_spans[-1][0] if open_spans else NO_SPAN)
        depths.append(len(open_spans))
        open_spans.append((i, start, end))
    return parents, depths


def find_enclosing_spans(
    spans: tuple[Column, Column, Column, Column], moment_threads: Column, moments: Column
) -> Column:
    """Return the index of the innermost span that holds each moment on its thread, edges included; NO_SPAN without one.

    ``spans`` are thread, start, end and parent of each, sorted and nested as for :func:`nest_spans`.
    """
    threads, starts, ends, parents = (as_vector(column) for column in spans)
    times, found = as_vector(moments), numpy.full(len(moments), NO_SPAN, numpy.int64)
    if not len(threads):
        return _make_column(found)
    moment_thread = as_vector(moment_threads)
    for thread in numpy.unique(moment_thread).tolist():
        first, after = (int(threads.searchsorted(thread, side)) for side in ("left", "right"))
        if first == after:
            continue
        rows = numpy.flatnonzero(moment_thread == thread)
        candidate = starts[first:after].searchsorted(times[rows], "right") - 1 + first
        candidate[candidate < first] = NO_SPAN
        # From the last span that began to those around it, until one has not ended.
        ended = numpy.flatnonzero(candidate != NO_SPAN)
        ended = ended[ends[candidate[ended]] < times[rows[ended]]]
        while len(ended):
            candidate[ended] = parents[candidate[ended]]
            ended = ended[candidate[ended] != NO_SPAN]
            ended = ended[ends[candidate[ended]] < times[rows[ended]]]
        found[rows] = candidate
    return _make_column(found)


# So many pairs of a moment and an open span are made at once.
_OPEN_SPANS_AT_ONCE = 1 << 22


def list_open_spans(starts: Column, ends: Column, moments: Column) -> tuple[Column, Column]:
    """Return (moment, span) indices of all spans that hold a moment, edges included; those of a moment longest first.

    Moments ascend. Among spans of equal length the lower index is first.
    """
    begins, reaches, times = as_vector(starts), as_vector(ends).clip(max=NO_END >> 1), as_vector(moments)
    first, after = times.searchsorted(begins), times.searchsorted(reaches, "right")
    longest_first = (begins.clip(min=-(NO_END >> 1)) - reaches).argsort(kind="stable")
    first, cells = first[longest_first], (after - first).clip(0)[longest_first]
    owners: list[NDArray[Any]] = []
    spans: list[NDArray[Any]] = []
    edges = [0, *numpy.flatnonzero(numpy.diff(cells.cumsum() // _OPEN_SPANS_AT_ONCE)) + 1, len(cells)]
    for low, high in pairwise(edges):
        counts = cells[low:high]
        owners.append(numpy.arange(counts.sum()) + numpy.repeat(first[low:high] - counts.cumsum() + counts, counts))
        spans.append(numpy.repeat(longest_first[low:high], counts))
    owner, span = (numpy.concatenate(parts) for parts in (owners, spans))
    order = _sort_stably(owner)
    return _make_column(owner[order]), _make_column(span[order])
