"""Where could a unit of kernels begin, and what lies from each such place to the next?

A segment is a stretch of kernels, compared as :mod:`~pytest_nsys.analysis.windows.likeness` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from pytest_nsys.analysis.windows.kernel_anchors import KernelOrder
from pytest_nsys.analysis.windows.likeness import MOST_COUNTS, Floats, NamedKernels
from pytest_nsys.core.arrays import NDArray, numpy
from pytest_nsys.core.columns import Vector, as_vector, minus
from pytest_nsys.core.families import FAMILIES, classifier

MOST_MARKERS = 300
FEWEST_KERNELS = 4
"""Kernels in a segment, on average."""

MOST_KINDS = 12

WHOLE_LENGTH = (Fraction(98, 100), Fraction(110, 100))
"""The last segment ends with the trace: it is whole where it has so much of the median one's length."""

OPTIMIZER = "optimizer"
"""The family of the kernels that a training step ends with."""

IN_A_ROW = 4

_FIRST = 16
"""Segments that are compared before the rest: of most markers these are of too many kinds already."""

Hashes = NDArray[numpy.uint64]


class Work(NamedKernels):
    """The kernels of a rank in their order, as numbers."""

    def __init__(self, order: KernelOrder) -> None:
        kernels, name = order.track.kernels, as_vector(order.name)
        self.order = order
        self.at_ns = as_vector(order.at_ns)
        self.heads = as_vector(order.heads)
        number: dict[str, int] = {}
        spelled = numpy.array([number.setdefault(full, len(number)) for _, full in order.names])
        lengths = as_vector(minus(kernels.end_ns, kernels.start_ns))[as_vector(order.kernels)]
        super().__init__(numpy.unique(spelled[name], return_inverse=True)[1], lengths)
        family = classifier(FAMILIES)
        optimizers = numpy.array([family(*names) == OPTIMIZER for names in order.names], numpy.int64)
        self.optimizers_before = _sums_before(optimizers[name])
        self.kernels_before = numpy.arange(len(name) + 1)
        self.time_before = _sums_before(lengths)

    def share(self, firsts: Vector, afters: Vector, low: int, high: int) -> float:
        """Return how much of what stands from one place to another is in these stretches: the smaller of the share of
        kernels and of that of their time.
        """
        inside = [places.clip(low, high) for places in (firsts, afters)]
        each = [(before[inside[1]] - before[inside[0]], before) for before in (self.kernels_before, self.time_before)]
        return min(int(own.sum()) / max(1, int(before[high] - before[low])) for own, before in each)

    @cached_property
    def _hashes(self) -> Hashes:
        """A number for each kernel, by its name: as good as random, and the same always."""
        mixed = numpy.arange(1, self.size + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):  # as splitmix64 has them
            mixed = (mixed ^ (mixed >> numpy.uint64(29))) * numpy.uint64(factor)
        return mixed[self.numbers]

    @cached_property
    def hash_before(self) -> Hashes:
        """Sums of the hashes: what lies between two places has that of its multiset."""
        return numpy.concatenate([numpy.zeros(1, numpy.uint64), numpy.cumsum(self._hashes, dtype=numpy.uint64)])

    @cached_property
    def hash_of_row(self) -> Hashes:
        """A hash of each kernel and the next three, in their order."""
        found = numpy.zeros(max(0, len(self) - IN_A_ROW + 1), numpy.uint64)
        for place in range(IN_A_ROW):
            found = found * numpy.uint64(0x9E3779B97F4A7C15) + self._hashes[place : place + len(found)]
        return found


def _sums_before(values: Vector) -> Vector:
    return numpy.concatenate([[0], numpy.cumsum(values)])


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


def find_markers(work: Work, level: int) -> Iterator[UnitMarker]:
    """The markers, the rarest first, then the earliest."""
    names, places = work.numbers[work.heads], work.heads
    if level:
        names, places = names[:-1] * work.size + names[1:], places[1:]
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

    work: Work
    marker: UnitMarker
    edges: Vector
    lengths_ns: Vector
    kind: Vector
    alike: Floats
    leaders: Vector


def cut_segments(work: Work, marker: UnitMarker) -> Segments | None:
    """The segments of a marker by kind; None where there are too many kinds."""
    edges = numpy.append(marker.places, len(work))
    found = _kinds(work, edges[: _FIRST + 1])
    if found is not None and len(edges) > _FIRST + 1:
        found = _kinds(work, edges)
    if found is None:
        return None
    kind, alike, leaders = found
    lengths = numpy.diff(work.at_ns[marker.places], append=work.at_ns[-1])
    return Segments(work, marker, edges, lengths, _without_cut_end(kind, lengths), alike, numpy.array(leaders))


def _kinds(work: Work, edges: Vector) -> tuple[Vector, Floats, list[Vector]] | None:
    """As :meth:`NamedKernels.kinds` has them; of segments of the same names one is compared."""
    hashes = numpy.diff(work.hash_before[edges])
    _, first, inverse = numpy.unique(hashes, return_index=True, return_inverse=True)
    by_place = first.argsort()
    first, which = first[by_place], by_place.argsort()[inverse]
    if (found := work.kinds(edges[first], edges[first + 1], MOST_KINDS)) is None:
        return None
    kind, alike, leaders = found
    return kind[which], alike[which], leaders


def _without_cut_end(kind: Vector, lengths: Vector) -> Vector:
    """The kinds, with none for the last segment unless it is as long as the others of its kind."""
    same = numpy.flatnonzero(kind == kind[-1])
    shortest, longest = (share * float(numpy.median(lengths[same])) for share in WHOLE_LENGTH)
    if len(same) == 1 or not shortest <= int(lengths[-1]) <= longest:
        kind[-1] = -1
    return kind
