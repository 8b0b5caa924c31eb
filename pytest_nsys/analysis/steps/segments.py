"""Where could a unit of kernels begin, and into which kinds do the segments between those positions fall?

A segment is a stretch of kernels. :mod:`~pytest_nsys.analysis.windows.kernel_similarity` compares segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from pytest_nsys.analysis.windows.kernel_anchors import KernelOrder
from pytest_nsys.analysis.windows.kernel_similarity import MAX_COUNT_CELLS, Floats, KernelSequence
from pytest_nsys.core.arrays import NDArray, numpy
from pytest_nsys.core.columns import Vector, as_vector, subtract
from pytest_nsys.core.families import FAMILIES, make_classifier

# Bounds the time: the rarest markers, which begin the largest units, come first.
MAX_MARKERS = 300
MIN_SEGMENT_KERNELS = 4
"""Minimum mean number of kernels per segment."""

# A marker whose segments fall into more kinds begins no unit.
MAX_SEGMENT_KINDS = 12

WHOLE_LENGTH_RANGE = (Fraction(98, 100), Fraction(110, 100))
"""The last segment ends with the trace; it is whole if its length is within these shares of the median."""

OPTIMIZER = "optimizer"
"""The family of the kernels that end a training step."""

HASHED_KERNELS = 4  # number of consecutive kernels in one hash

_FIRST_SEGMENTS = 16
"""Segments that are compared before the rest: most markers already exceed MAX_SEGMENT_KINDS here."""

Hashes = NDArray[numpy.uint64]


class RankSequence(KernelSequence):
    """Holds the kernels of a rank in order, each as the number of its name, with sums of counts and times up to each
    position.
    """

    def __init__(self, order: KernelOrder) -> None:
        kernels, name_codes = order.track.kernels, as_vector(order.name_codes)
        self.order = order
        self.times_ns = as_vector(order.times_ns)
        self.launch_heads = as_vector(order.launch_heads)
        code_by_name: dict[str, int] = {}
        codes = numpy.array([code_by_name.setdefault(full, len(code_by_name)) for _, full in order.names])
        lengths_ns = as_vector(subtract(kernels.end_ns, kernels.start_ns))[as_vector(order.kernels)]
        super().__init__(numpy.unique(codes[name_codes], return_inverse=True)[1], lengths_ns)
        classify = make_classifier(FAMILIES)
        is_optimizer = numpy.array([classify(*names) == OPTIMIZER for names in order.names], numpy.int64)
        self.optimizers_before = _sum_before_each(is_optimizer[name_codes])
        self.kernels_before = numpy.arange(len(name_codes) + 1)
        self.time_before_ns = _sum_before_each(lengths_ns)

    def measure_share(self, starts: Vector, stops: Vector, start: int, stop: int) -> float:
        """Measure the share of kernels, or of kernel time, whichever is smaller, that the stretches cover between two
        positions.
        """
        clipped_edges = [positions.clip(start, stop) for positions in (starts, stops)]
        inside_sums = [
            (sums_before[clipped_edges[1]] - sums_before[clipped_edges[0]], sums_before)
            for sums_before in (self.kernels_before, self.time_before_ns)
        ]
        return min(
            int(sums.sum()) / max(1, int(sums_before[stop] - sums_before[start])) for sums, sums_before in inside_sums
        )

    @cached_property
    def _hashes(self) -> Hashes:
        """A pseudo-random hash of each kernel's name, the same in every process."""
        mixed = numpy.arange(1, self.name_count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):  # constants of splitmix64
            mixed = (mixed ^ (mixed >> numpy.uint64(29))) * numpy.uint64(factor)
        return mixed[self.name_codes]

    @cached_property
    def hash_sums(self) -> Hashes:
        """Prefix sums of hashes: a difference of two identifies the multiset of kernels between them."""
        return numpy.concatenate([numpy.zeros(1, numpy.uint64), numpy.cumsum(self._hashes, dtype=numpy.uint64)])

    @cached_property
    def run_hashes(self) -> Hashes:
        """A hash of each kernel and the next three, in their order."""
        hashes = numpy.zeros(max(0, len(self) - HASHED_KERNELS + 1), numpy.uint64)
        for offset in range(HASHED_KERNELS):
            hashes = hashes * numpy.uint64(0x9E3779B97F4A7C15) + self._hashes[offset : offset + len(hashes)]
        return hashes


def _sum_before_each(values: Vector) -> Vector:
    return numpy.concatenate([[0], numpy.cumsum(values)])


@dataclass(frozen=True, slots=True, eq=False)
class UnitMarker:
    """Describes what could begin a unit: a name or, at level 1, a name that directly follows a given other name."""

    positions: Vector  # positions at which the marker begins a unit
    level: int  # 0: one name, 1: a pair of names in a row
    alternating_positions: Vector  # one row per other marker whose positions interleave with these, one to one

    @property
    def votes(self) -> int:
        """The number of markers, this one included, that begin the same unit."""
        return 1 + len(self.alternating_positions)


def find_markers(sequence: RankSequence, level: int) -> Iterator[UnitMarker]:
    """Yield the markers of a level, the rarest first, then the earliest. At level 0 a marker is a name, at level 1 a
    pair of names in a row.
    """
    names, positions = sequence.name_codes[sequence.launch_heads], sequence.launch_heads
    if level:
        names, positions = names[:-1] * sequence.name_count + names[1:], positions[1:]
    by_name = names.argsort(kind="stable")
    edges = numpy.flatnonzero(numpy.diff(names[by_name], prepend=-1))
    counts = numpy.diff(edges, append=len(names))
    max_count = min(len(sequence) // MIN_SEGMENT_KERNELS, MAX_COUNT_CELLS // sequence.name_count)
    marker_count = 0
    for count in numpy.unique(counts[(counts >= 2) & (counts <= max_count)]).tolist():
        rows = positions[by_name[edges[counts == count][:, None] + numpy.arange(count)]]
        rows = rows[rows[:, 0].argsort(kind="stable")]
        while len(rows):
            first, rest = rows[0], rows[1:]
            is_alternating = (rest > first).all(axis=1) & (rest[:, :-1] < first[1:]).all(axis=1)
            yield UnitMarker(first, level, rest[is_alternating])
            marker_count += 1
            if marker_count == MAX_MARKERS:
                return
            rows = rest[~is_alternating]


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Holds the segments from each position of a marker to the next; the last one reaches to the end of the
    sequence.
    """

    sequence: RankSequence
    marker: UnitMarker
    edges: Vector  # positions, one more than segments
    lengths_ns: Vector
    kinds: Vector  # number of each segment's kind; −1 for a cut last segment
    similarities: Floats  # similarity of each segment to the leader of its kind
    leader_counts: Vector  # name counts of the first segment of each kind (its leader)


def cut_segments(sequence: RankSequence, marker: UnitMarker) -> Segments | None:
    """Cut the sequence at the positions of a marker and group the segments into kinds; None if there are more than
    MAX_SEGMENT_KINDS.
    """
    edges = numpy.append(marker.positions, len(sequence))
    grouping = _group_segments(sequence, edges[: _FIRST_SEGMENTS + 1])
    if grouping is not None and len(edges) > _FIRST_SEGMENTS + 1:
        grouping = _group_segments(sequence, edges)
    if grouping is None:
        return None
    kinds, similarities, leaders = grouping
    lengths_ns = numpy.diff(sequence.times_ns[marker.positions], append=sequence.times_ns[-1])
    return Segments(
        sequence, marker, edges, lengths_ns, _drop_cut_end(kinds, lengths_ns), similarities, numpy.array(leaders)
    )


def _group_segments(sequence: RankSequence, edges: Vector) -> tuple[Vector, Floats, list[Vector]] | None:
    """Group segments into kinds as :meth:`KernelSequence.group_into_kinds` does; only one of several segments with the
    same kernels is compared.
    """
    hashes = numpy.diff(sequence.hash_sums[edges])
    _, first, inverse = numpy.unique(hashes, return_index=True, return_inverse=True)
    by_position = first.argsort()
    first, distinct_numbers = first[by_position], by_position.argsort()[inverse]
    if (grouping := sequence.group_into_kinds(edges[first], edges[first + 1], MAX_SEGMENT_KINDS)) is None:
        return None
    kinds, similarities, leaders = grouping
    return kinds[distinct_numbers], similarities[distinct_numbers], leaders


def _drop_cut_end(kinds: Vector, lengths_ns: Vector) -> Vector:
    """Return the kinds; the last segment gets −1 unless it is about as long as the others of its kind."""
    same_kind = numpy.flatnonzero(kinds == kinds[-1])
    shortest, longest = (share * float(numpy.median(lengths_ns[same_kind])) for share in WHOLE_LENGTH_RANGE)
    if len(same_kind) == 1 or not shortest <= int(lengths_ns[-1]) <= longest:
        kinds[-1] = -1
    return kinds
