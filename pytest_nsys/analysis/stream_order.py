"""Does a stream keep its kernels in order, as a stream does?

Kernels that run wholly inside another one of their stream show that it is none: a profiler merged queues, or lost
their ids. Then its order proves nothing. A kernel that merely starts before the one before it ended is a programmatic
dependent launch, and nodes of CUDA graphs share the stream of the graph's launch: neither says anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from pytest_nsys.core.columns import minus, order, records, sums, take, where_not
from pytest_nsys.core.model import NO_STREAM, Stream
from pytest_nsys.core.tables import Kernels

MOST_INSIDE = Fraction(1, 100)
"""Of a stream's kernel time, at most: more inside other kernels, and it is none."""


def unordered(kernels: Kernels) -> Mapping[Stream, Fraction]:
    """The streams that are none, each with the share of its kernel time that ran inside other kernels of it."""
    own = where_not(kernels.graph_node)
    stream, start, end = (take(column, own) for column in (kernels.stream, kernels.start_ns, kernels.end_ns))
    lengths = minus(end, start)
    longest_first = order(stream, start, minus(start, end))
    inside = take(longest_first, where_not(records(*(take(column, longest_first) for column in (stream, end)))))
    if not inside:
        return {}
    size = len(kernels.streams)
    whole, part = sums(stream, lengths, size), sums(take(stream, inside), take(lengths, inside), size)
    return {
        each: Fraction(part[number], whole[number])
        for number, each in enumerate(kernels.streams)
        if each.number != NO_STREAM and part[number] > MOST_INSIDE * whole[number]
    }
