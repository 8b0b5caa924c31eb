"""How similar are the kernels of two stretches, and how many kinds of stretches are there?

A stretch is the multiset of the names of its kernels. Similarity is the overlap of two multisets, both unweighted and
weighted by the mean length of each name. This module uses numpy, not columns, because it compares matrices of counts.
"""

from __future__ import annotations

from pytest_nsys.core.arrays import NDArray, numpy
from pytest_nsys.core.columns import Vector

Floats = NDArray[numpy.float64]

MIN_SIMILARITY = 0.90
"""The minimum similarity at which two stretches are of one kind."""

MAX_COUNT_CELLS = 1 << 23
"""The maximum number of cells (stretches × names) that are counted at once, which bounds memory to 64 MiB."""

_STRETCHES_PER_BLOCK = 256
"""Stretches that are compared before the next are counted: if there are too many kinds, the first block already shows
it.
"""


class KernelSequence:
    """Holds the kernels of a rank in order, each as the number of its name, with their lengths.

    Every number from 0 to the highest is the name of at least one kernel.
    """

    def __init__(self, name_codes: Vector, lengths_ns: Vector) -> None:
        self.name_codes = name_codes
        self.name_count = int(name_codes.max(initial=-1)) + 1
        counts = numpy.bincount(name_codes, minlength=self.name_count)
        totals = numpy.bincount(name_codes, lengths_ns, self.name_count)
        # Integers keep the weighted sums exact; a name whose kernels have no length still counts.
        self.weights_ns: Vector = numpy.maximum(1, numpy.rint(totals / counts)).astype(numpy.int64)

    def __len__(self) -> int:
        return len(self.name_codes)

    def count_names(self, starts: Vector, stops: Vector) -> Vector:
        """Count how often each name occurs in each stretch: an array of shape (stretches, names)."""
        stretches = zip(starts.tolist(), stops.tolist(), strict=True)
        rows = [numpy.bincount(self.name_codes[start:stop], minlength=self.name_count) for start, stop in stretches]
        return numpy.array(rows, numpy.int64).reshape(len(rows), self.name_count)

    def measure_similarity(self, counts: Vector, other_counts: Vector) -> Floats:
        """Measure how similar a stretch is to each of the others, from 0 to 1 (equal).

        It is the smaller of two similarities: of kernel counts, and of counts weighted by mean kernel length.
        """
        differences, sums = numpy.abs(other_counts - counts), other_counts + counts
        # Bray-Curtis distance: the difference as a share of the sum, from 0 (equal) to 1 (nothing in common).
        plain_distance = differences.sum(axis=1) / numpy.maximum(1, sums.sum(axis=1))
        weighted_distance = (differences @ self.weights_ns) / numpy.maximum(1, sums @ self.weights_ns)
        similarity: Floats = 1 - numpy.maximum(plain_distance, weighted_distance)
        return similarity

    def group_into_kinds(
        self, starts: Vector, stops: Vector, max_kinds: int
    ) -> tuple[Vector, Floats, list[Vector]] | None:
        """Group stretches into kinds, each represented by its first stretch, the leader. A stretch joins the most
        similar leader, or becomes the leader of a new kind.

        Returns the kind of each stretch, its similarity to the leader of that kind, and the name counts of each leader;
        None if there are more than ``max_kinds``.
        """
        leaders: list[Vector] = []
        kinds = numpy.empty(len(starts), numpy.int64)
        similarities = numpy.empty(len(starts))
        for block_start in range(0, len(starts), _STRETCHES_PER_BLOCK):
            block = slice(block_start, block_start + _STRETCHES_PER_BLOCK)
            counts = self.count_names(starts[block], stops[block])
            block_similarities = numpy.full((len(counts), max_kinds), -1.0)
            for kind, leader in enumerate(leaders):
                block_similarities[:, kind] = self.measure_similarity(leader, counts)
            while len(unmatched := numpy.flatnonzero(block_similarities.max(axis=1) < MIN_SIMILARITY)):
                if len(leaders) == max_kinds:
                    return None
                first = int(unmatched[0])
                block_similarities[first:, len(leaders)] = self.measure_similarity(counts[first], counts[first:])
                leaders.append(counts[first])
            kinds[block], similarities[block] = block_similarities.argmax(axis=1), block_similarities.max(axis=1)
        return kinds, similarities, leaders
