"""Each operation on columns is held against what it means, written naively; but for ``lower`` none changes what it
was asked with.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from array import array
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.core import columns

small = st.integers(-6, 6)
large = st.one_of(small, st.integers(-(1 << 63), (1 << 63) - 1))
times = st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 8)), max_size=12)


def column(values: Any) -> array[int]:
    return array("q", values)


def spans_of(found: list[tuple[int, int]]) -> tuple[array[int], array[int]]:
    return column(start for start, _ in found), column(start + length for start, length in found)


def done(name: str, *asked: Any) -> Any:
    """The answer, which is columns of 64 bits, but for members, and flags; what was asked with stays as it was."""
    kept = [each[:] if isinstance(each, (array, bytearray)) else each for each in asked]
    found = getattr(columns, name)(*asked)
    assert list(asked) == kept
    for own in found if isinstance(found, tuple) else (found,):
        assert not isinstance(own, array) or own.typecode == "q"
    return found


@given(st.lists(large), st.data())
def test_elements_are_taken_found_and_counted(values: list[int], data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.sampled_from(range(len(values))), max_size=20) if values else st.just([]))
    assert done("take", column(values), column(indices)) == column(values[i] for i in indices)
    part = range(*sorted(data.draw(st.tuples(*2 * [st.integers(0, len(values))]))))
    assert done("take", column(values), part) == column(values[i] for i in part)
    flags = bytearray(value % 2 for value in values)
    assert done("take", flags, column(indices)) == bytearray(flags[i] for i in indices)
    assert done("take", flags, part) == flags[part.start : part.stop]
    for some in (flags, column(values)):
        assert done("find_nonzero", some) == column(i for i, each in enumerate(some) if each)
        assert done("find_zeros", some) == column(i for i, each in enumerate(some) if not each)
        assert done("sum_column", some) == sum(some)
    assert done("find_min_max", column(values)) == (min(values, default=0), max(values, default=0))
    for value in {0, *values[:2]}:
        assert done("mark_equal", column(values), value) == bytearray(each == value for each in values)


@given(st.lists(st.tuples(large, large)), large, large)
def test_differences_and_bounds(pairs: list[tuple[int, int]], one: int, other: int) -> None:
    a, b = column(a for a, _ in pairs), column(b for _, b in pairs)
    wanted = [x - y for x, y in pairs]
    if all(-(1 << 63) <= each < 1 << 63 for each in wanted):
        assert done("subtract", a, b) == column(wanted)
    else:
        with pytest.raises(OverflowError):
            done("subtract", a, b)
    low, high = sorted((one, other))
    assert done("clip", a, low, high) == column(min(max(each, low), high) for each in a)


@given(st.lists(st.tuples(large, small, st.integers(0, 70_000))))
def test_rows_are_ordered_numbered_and_summed(rows: list[tuple[int, int, int]]) -> None:
    keys = [column(key) for key in zip(*rows, strict=True)] or [column([])] * 3
    for chosen in ([0], [1], [2], [1, 0], [2, 1, 0]):
        asked = [tuple(row[i] for i in chosen) for row in rows]
        assert done("sort_indices", *(keys[i] for i in chosen)) == column(
            sorted(range(len(rows)), key=asked.__getitem__)
        )
        numbers, known = done("find_distinct_rows", *(keys[i] for i in chosen))
        assert known == sorted(set(asked))
        assert [known[number] for number in numbers] == asked
        size = len(known) + 2
        assert done("count_numbers", numbers, size) == [numbers.count(n) for n in range(size)]
        own = [[i for i, number in enumerate(numbers) if number == n] for n in range(size)]
        assert done("group_indices", numbers, size) == [column(each) for each in own]
        for values in keys:
            assert done("sum_by_number", numbers, values, size) == [sum(values[i] for i in each) for each in own]


@given(st.lists(large, unique=True), st.lists(large), large)
def test_values_are_spread_and_placed(edges: list[int], values: list[int], fill: int) -> None:
    ascending = sorted(edges)
    assert done("count_edges_before", column(ascending), column(values)) == column(
        sum(edge <= value for edge in ascending) for value in values
    )
    at = range(len(values), 2 * len(values))
    assert done("fill_column", column(at), column(values), 3 * len(values), fill) == column(
        values[i - at.start] if i in at else fill for i in range(3 * len(values))
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=8), st.lists(st.tuples(small, large)))
def test_stretches_are_walked_and_records_told(lengths: list[tuple[int, int]], rows: list[tuple[int, int]]) -> None:
    firsts, afters = column(first for first, _ in lengths), column(first + length for first, length in lengths)
    each = [(n, i) for n, (first, length) in enumerate(lengths) for i in range(first, first + length)]
    assert done("expand_stretches", firsts, afters) == (column(n for n, _ in each), column(i for _, i in each))
    rows.sort(key=lambda row: row[0])
    wanted = [all(v > w for group, w in rows[:i] if group == g) for i, (g, v) in enumerate(rows)]
    assert done("mark_records", column(g for g, _ in rows), column(v for _, v in rows)) == bytearray(wanted)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 8)), max_size=12))
def test_what_lies_in_no_other_span_of_its_group_is_outermost(rows: list[tuple[int, int, int]]) -> None:
    rows.sort(key=lambda row: (row[0], row[1], -row[2]))
    spans = [(group, start, start + length) for group, start, length in rows]
    wanted = []
    for i, (group, start, end) in enumerate(spans):
        until = [before for own, _, before in spans[:i] if own == group]
        wanted.append(not until or end > max(until) or start >= max(until))
    asked = (column(each) for each in (zip(*spans, strict=True) if spans else ((), (), ())))
    assert done("mark_outermost", *asked) == bytearray(wanted)


@given(times)
def test_a_moment_belongs_to_the_span_that_began_first(found: list[tuple[int, int]]) -> None:
    starts, ends = spans_of(found)
    begins, reaches, owners = done("split_into_segments", starts, ends)
    said = {t: i for begin, end, i in zip(begins, reaches, owners, strict=True) for t in range(begin, end)}
    assert sum(reaches) - sum(begins) == len(said)
    for t in range(-21, 30):
        running = [(starts[i], i) for i in range(len(starts)) if starts[i] <= t < ends[i]]
        assert said.get(t) == (min(running)[1] if running else None)


@given(times, st.lists(st.one_of(st.integers(-30, 40), large)))
def test_a_union_covers_what_a_span_covers(found: list[tuple[int, int]], moments: list[int]) -> None:
    starts, ends = spans_of(found)
    covered = {t for start, end in zip(starts, ends, strict=True) for t in range(start, end)}
    firsts, lasts, before = done("merge_span_columns", starts, ends)
    parts = list(zip(firsts, lasts, strict=True))
    assert [t for first, last in parts for t in range(first, last)] == sorted(covered)
    assert all(last < first for (_, last), (first, _) in pairwise(parts))
    asked = done("measure_covered_before", firsts, lasts, before, column(moments))
    assert asked == column(sum(t < moment for t in covered) for moment in moments)


@given(times, st.lists(st.tuples(st.integers(-25, 30), st.integers(1, 9)), max_size=6))
def test_spans_are_parted_at_edges_of_a_union(found: list[tuple[int, int]], spans: list[tuple[int, int]]) -> None:
    covered = {moment for start, length in found for moment in range(start, start + length)}
    expected = [
        (i, moments[0], moments[-1] + 1, int(inside))
        for i, (start, length) in enumerate(spans)
        for inside, each in groupby(range(start, start + length), covered.__contains__)
        for moments in [[*each]]
    ]
    parts = done("split_by_union", *spans_of(spans), *columns.merge_span_columns(*spans_of(found))[:2])
    assert [*zip(*parts, strict=True)] == expected


@given(st.lists(st.lists(large), max_size=4))
def test_columns_follow_each_other(some: list[list[int]]) -> None:
    assert list(done("concatenate_columns", [column(each) for each in some])) == [
        value for each in some for value in each
    ]
    short = array("i", [1, 2])
    assert (
        columns.concatenate_columns([short]) == columns.concatenate_columns([short[:1], short[1:]]) == array("q", short)
    )
    assert columns.concatenate_columns([short, column([columns.NO_END])]) == column([1, 2, columns.NO_END])


@given(st.lists(st.one_of(small, st.sampled_from([-(1 << 31), (1 << 31) - 1, 1 << 31])), min_size=1))
def test_what_fits_into_32_bits_takes_half_the_memory_and_no_answer_wraps(values: list[int]) -> None:
    wide = column(values)
    narrow = columns.narrow_column(wide)
    assert narrow == wide
    assert narrow.typecode == ("q" if 1 << 31 in values else "i") == columns.take(narrow, column([0])).typecode
    assert columns.subtract(narrow, narrow[::-1]) == columns.subtract(wide, wide[::-1])
    assert columns.clip(narrow, 0, columns.NO_END) == columns.clip(wide, 0, columns.NO_END)
    assert columns.find_distinct_rows(narrow, narrow) == columns.find_distinct_rows(wide, wide)
    assert columns.sum_column(narrow) == sum(values)


@given(st.lists(st.tuples(large, large)))
def test_a_union_is_exact_or_refused_at_the_ends_of_64_bits(pairs: list[tuple[int, int]]) -> None:
    parts: list[list[int]] = []
    for start, end in sorted(sorted(pair) for pair in pairs if pair[0] != pair[1]):
        if parts and start <= parts[-1][1]:
            parts[-1][1] = max(parts[-1][1], end)
        else:
            parts.append([start, end])
    covered = [sum(end - start for start, end in parts[:n]) for n in range(len(parts) + 1)]
    asked = [column(least_or_most(pair) for pair in pairs) for least_or_most in (min, max)]
    if max(covered[:-1], default=0) >= 1 << 63:
        with pytest.raises(OverflowError):
            done("merge_span_columns", *asked)
    else:
        found = zip(*done("merge_span_columns", *asked), strict=True)
        assert list(found) == [(*part, before) for part, before in zip(parts, covered, strict=False)]


nested = st.tuples(
    st.integers(-9, 9), st.one_of(st.integers(-3, 12), st.just(None)), st.integers(1, 3), st.integers(1, 4)
)


@given(st.lists(nested, max_size=12), st.booleans())
def test_the_shortest_span_around_a_moment_speaks(found: list[tuple[int, int | None, int, int]], deep: bool) -> None:
    spans = sorted((s, columns.NO_END if n is None else s + n, thread, code) for s, n, thread, code in found)
    asked = [column(each) for each in zip(*spans, strict=True)] or [column([])] * 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_MAX_MEAN_DEPTH", 0 if deep else columns._MAX_MEAN_DEPTH)
        edges, codes, twice = done("find_innermost", *asked)
    assert list(edges) == sorted(set(edges))
    for moment in range(-10, 25):
        around = [(end - start, -i) for i, (start, end, _, _) in enumerate(spans) if start <= moment <= end]
        at = sum(edge <= moment for edge in edges)
        assert codes[at] == (spans[-min(around)[1]][3] if around else 0)
        assert twice[at] == (len({spans[-i][2] for _, i in around}) > 1)


@pytest.mark.parametrize("left_open", [False, True], ids=["closed", "open"])
def test_spans_deep_in_each_other_take_no_memory_for_each_pair(left_open: bool) -> None:
    """Each of the spans, all inside the one before, would be written over all that it covers: 1.6 GB."""
    count = 20_000
    starts, threads = column(range(count)), column([1] * count)
    ends = column([columns.NO_END] * count if left_open else range(2 * count, count, -1))
    tracemalloc.start()
    edges, codes, _ = done("find_innermost", starts, ends, threads, column(range(1, count + 1)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1_000 * count
    assert codes[: count + 1] == column(range(count + 1))
    assert len(edges) == count if left_open else len(edges) > count


ratio = st.tuples(st.one_of(st.integers(0, 4), st.integers(0, (1 << 63) - 1)), st.integers(1, (1 << 63) - 1))


@given(st.lists(ratio, min_size=1))
def test_the_least_ratio_is_exact(pairs: list[tuple[int, int]]) -> None:
    best = done("find_least_ratio", column(part for part, _ in pairs), column(whole for _, whole in pairs))
    part, whole = pairs[best]
    assert all(part * other < own * whole for own, other in pairs[:best])
    assert all(part * other <= own * whole for own, other in pairs[best:])


def test_the_least_of_ratios_that_are_one_float_is_told_apart() -> None:
    wholes = column([(1 << 62) + 3, (1 << 62) + 2, (1 << 62) + 4])
    assert done("find_least_ratio", column([1 << 61] * 3), wholes) == 2


@given(st.lists(large), st.lists(st.tuples(small, large)))
def test_elements_are_told_apart_and_compared(numbers: list[int], pairs: list[tuple[int, int]]) -> None:
    assert done("list_distinct", column(numbers)) == column(sorted(set(numbers)))
    one, other = column(a for a, _ in pairs), column(b for _, b in pairs)
    assert done("is_exceeded", one, other) is any(a > b for a, b in pairs)


rows_of_keys = st.lists(st.tuples(large, small, small))


@given(st.sets(large), rows_of_keys, st.data())
def test_keys_join_to_their_least_row(ids: set[int], rows: list[tuple[int, int, int]], data: st.DataObject) -> None:
    if ids:
        rows += data.draw(st.lists(st.tuples(st.sampled_from(sorted(ids)), small, small)))
    known, most = column(sorted(ids)), (columns.NO_END, columns.NO_END)
    found = [column([each] * len(ids)) for each in most]
    for some in (rows[::2], rows[1::2]):
        columns.lower_to_minimum(
            known, found, *split([column(own) for own in zip(*some, strict=True)] or [column([])] * 3)
        )
    least = [min([row for key, *row in rows if key == number], default=[*most]) for number in sorted(ids)]
    assert [[*row] for row in zip(*found, strict=True)] == least
    keys = column(key for key, *_ in rows)
    wanted = dict(zip(known, found[0], strict=True))
    assert list(done("look_up_keys", known, found[0], -7, keys)) == [wanted.get(key, -7) for key in keys]


def split(some: list[array[int]]) -> tuple[array[int], list[array[int]]]:
    return some[0], some[1:]


@pytest.mark.parametrize("asked", [{}, {"OPENBLAS_THREAD_TIMEOUT": "9"}], ids=["unset", "set"])
def test_what_the_environment_asks_of_openblas_stays(asked: dict[str, str]) -> None:
    code = "import os, pytest_nsys.core.columns; print(os.environ.get('OPENBLAS_THREAD_TIMEOUT'))"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"} | asked
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [asked.get("OPENBLAS_THREAD_TIMEOUT", "None")]


threaded = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(0, 8)), max_size=12)


def sorted_spans(spans: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """(thread, start, end), sorted, the longest first."""
    return sorted(((t, start, start + length) for t, start, length in spans), key=lambda s: (s[0], s[1], -s[2]))


@given(threaded, st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 32)), max_size=12))
def test_spans_nest_and_the_last_that_is_open_is_innermost(
    spans: list[tuple[int, int, int]], moments: list[tuple[int, int]]
) -> None:
    rows = sorted_spans(spans)
    thread, start, end = (column(each) for each in zip(*rows, strict=True)) if rows else (column([]),) * 3
    parents, depths = done("nest_spans", thread, start, end)
    for i, (t, s, _) in enumerate(rows):
        # A span goes on until one begins that does not lie inside it.
        around: list[int] = []
        for j, (other, begins, _) in enumerate(rows[:i]):
            if other == t:
                while around and rows[around[-1]][2] <= begins and rows[around[-1]][1] < begins:
                    around.pop()
                around.append(j)
        while around and rows[around[-1]][2] <= s and rows[around[-1]][1] < s:
            around.pop()
        assert (parents[i], depths[i]) == (around[-1] if around else columns.NO_SPAN, len(around))
    threads, times = column(t for t, _ in moments), column(at for _, at in moments)
    found = done("find_enclosing_spans", (thread, start, end, parents), threads, times)
    for (t, at), index in zip(moments, found, strict=True):
        begun = [i for i, row in enumerate(rows) if row[0] == t and row[1] <= at]
        candidate = begun[-1] if begun else columns.NO_SPAN
        while candidate != columns.NO_SPAN and rows[candidate][2] < at:
            candidate = parents[candidate]
        assert index == candidate


@given(times, st.sets(st.integers(-22, 32), max_size=12), st.integers(1, 5))
def test_all_spans_that_are_open_are_listed_the_longest_first(
    spans: list[tuple[int, int]], moments: set[int], at_once: int
) -> None:
    starts, ends = spans_of(spans)
    ordered = column(sorted(moments))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_OPEN_SPANS_AT_ONCE", at_once)
        owners, found = done("list_open_spans", starts, ends, ordered)
    wanted = [
        (i, span)
        for i, at in enumerate(ordered)
        for span in sorted(range(len(spans)), key=lambda s: starts[s] - ends[s])
        if starts[span] <= at <= ends[span]
    ]
    assert [*zip(owners, found, strict=True)] == wanted
