"""Where could a unit of kernels begin, and what lies from each such place to the next?

A segment is a stretch of kernels, compared as :mod:`~pytest_nsys.analysis.alike` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy
from numpy.typing import NDArray

from pytest_nsys.analysis.alike import MOST_COUNTS, Floats, NamedKernels
from pytest_nsys.analysis.kernel_anchors import KernelOrder
from pytest_nsys.core.columns import Vector, as_vector, distinct, minus
from pytest_nsys.core.families import FAMILIES, classifier

MOST_MARKERS = 300
FEWEST_KERNELS = 4
"""Kernels in a segment, on average."""

MOST_KINDS = 12

WHOLE_LENGTH = (Fraction(98, 100), Fraction(110, 100))
"""The last segment ends with the trace: it is whole where it has so much of the median one's length."""

OPTIMIZER = "optimizer"
"""The family of the kernels that a training step ends with."""

_FIRST = 16
"""Segments that are compared before the rest: of most markers these are of too many kinds already."""


class Work(NamedKernels):
    """The kernels of a rank in their order, as numbers. Names are numbered by first appearance."""

    def __init__(self, order: KernelOrder) -> None:
        kernels, own = order.track.kernels, as_vector(order.kernels)
        self.order = order
        self.at_ns = as_vector(order.at_ns)
        self.heads = as_vector(order.heads)
        lengths = as_vector(minus(kernels.end_ns, kernels.start_ns))[own]
        rows, pairs = distinct(kernels.name, kernels.full_name)
        texts = [kernels.names.get(full) or kernels.names[short] for short, full in pairs]
        place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        spelled = numpy.array([place[text] for text in texts])[as_vector(rows)[own]]
        super().__init__(_distinct(spelled)[1], lengths)
        self.time_before = numpy.concatenate([[0], numpy.cumsum(lengths)])
        family = classifier(FAMILIES)
        flags = numpy.array(
            [family(kernels.names[short], kernels.names.get(full) or "") == OPTIMIZER for short, full in pairs]
        )
        optimizes = flags[as_vector(rows)[own]]
        self.optimizers_before = numpy.concatenate([[0], numpy.cumsum(optimizes)])

    @cached_property
    def hash_before(self) -> NDArray[numpy.uint64]:
        """Sums of a hash of each name: what lies between two places has that of its multiset."""
        hashes = _mixed(numpy.arange(1, self.size + 1, dtype=numpy.uint64))[self.numbers]
        return numpy.concatenate([numpy.zeros(1, numpy.uint64), numpy.cumsum(hashes, dtype=numpy.uint64)])


def _mixed(x: NDArray[numpy.uint64]) -> NDArray[numpy.uint64]:
    """Numbers as good as random, the same ones always (splitmix64)."""
    x = x * numpy.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


@dataclass(frozen=True, slots=True, eq=False)
class UnitMarker:
    """What could begin a unit, at ``places``: a name or, of level 1, a name that follows another. ``others`` are the
    places of those that take turns with it.
    """

    places: Vector
    level: int
    others: Vector

    @property
    def votes(self) -> int:
        """How many names, or pairs of them, begin the same unit."""
        return 1 + len(self.others)


def markers(work: Work, level: int) -> Iterator[UnitMarker]:
    """The markers, the rarest first, then the earliest."""
    names, places = work.numbers[work.heads], work.heads
    if level:
        names, places = names[:-1] * work.size + names[1:], places[1:]
    if not len(places):
        return
    ordered = names.argsort(kind="stable")
    edges = numpy.flatnonzero(numpy.diff(names[ordered], prepend=-1))
    counts = numpy.diff(edges, append=len(names))
    most = min(len(work) // FEWEST_KERNELS, MOST_COUNTS // work.size)
    found = 0
    for count in numpy.unique(counts[(counts >= 2) & (counts <= most)]).tolist():
        rows = places[ordered[edges[counts == count][:, None] + numpy.arange(count)]]
        rows = rows[rows[:, 0].argsort(kind="stable")]
        while len(rows):
            first, rest = rows[0], rows[1:]
            turns = (rest > first).all(axis=1) & (rest[:, :-1] < first[1:]).all(axis=1)
            yield UnitMarker(first, level, rest[turns])
            found += 1
            if found == MOST_MARKERS:
                return
            rows = rest[~turns]


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """From each place of a marker to the next, the last to the end. ``kind`` numbers what each is, −1 of an end that is
    none; ``leaders`` are the counts of the first of each kind, and ``alike`` how much each segment is like its leader.
    """

    marker: UnitMarker
    edges: Vector
    lengths_ns: Vector
    kind: Vector
    alike: Floats
    leaders: Vector


def segments(work: Work, marker: UnitMarker) -> Segments | None:
    """The segments of a marker by kind; None where there are too many kinds."""
    edges = numpy.append(marker.places, len(work))
    hashes = work.hash_before[edges[1:]] - work.hash_before[edges[:-1]]
    first, inverse = _distinct(hashes[:_FIRST])
    found = work.kinds(edges[first], edges[first + 1], MOST_KINDS)
    if found is not None and len(hashes) > _FIRST:
        first, inverse = _distinct(hashes)
        found = work.kinds(edges[first], edges[first + 1], MOST_KINDS)
    if found is None:
        return None
    kind, alike, leaders = found
    lengths = numpy.diff(work.at_ns[marker.places], append=work.at_ns[-1])
    kind = _without_cut_end(kind[inverse], lengths)
    return Segments(marker, edges, lengths, kind, alike[inverse], numpy.array(leaders))


def _distinct(hashes: NDArray[numpy.uint64]) -> tuple[Vector, Vector]:
    """(index of the first of each, which each is), by first appearance."""
    _, first, inverse = numpy.unique(hashes, return_index=True, return_inverse=True)
    order = first.argsort()
    rank = numpy.empty_like(order)
    rank[order] = numpy.arange(len(order))
    return first[order], rank[inverse]


def _without_cut_end(kind: Vector, lengths: Vector) -> Vector:
    """The kinds, with none for the last segment unless it is as long as the others of its kind."""
    same = numpy.flatnonzero(kind == kind[-1])
    shortest, longest = (share * float(numpy.median(lengths[same])) for share in WHOLE_LENGTH)
    if len(same) > 1 and shortest <= int(lengths[-1]) <= longest:
        return kind
    kind = kind.copy()
    kind[-1] = -1
    return kind
