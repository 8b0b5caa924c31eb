"""How alike is what two stretches of kernels hold, and of how many kinds are they?

A stretch is the multiset of the names of its kernels: two are alike as far as these are the same, counted plainly and
weighted by the mean length of each name. Numbers of a million kernels and matrices of stretches are numpy's here, not
operations on columns: what is compared are rows of counts, of which no other place has any.
"""

from __future__ import annotations

from pytest_nsys.core.arrays import NDArray, numpy
from pytest_nsys.core.columns import Vector

Floats = NDArray[numpy.float64]

ALIKE = 0.90
"""What is less alike is of two kinds."""

MOST_COUNTS = 1 << 23
"""Stretches × names: more are not counted at once."""

_BLOCK = 256
"""Stretches that are compared before the next are counted: of those without kinds few are looked at."""


class NamedKernels:
    """Kernels in their order, by the numbers of their names, each of which one has at least, and with their lengths."""

    def __init__(self, numbers: Vector, lengths_ns: Vector) -> None:
        self.numbers = numbers
        self.size = int(numbers.max(initial=-1)) + 1
        counts = numpy.bincount(numbers, minlength=self.size)
        totals = numpy.bincount(numbers, lengths_ns, self.size)
        self.weights: Vector = numpy.maximum(1, numpy.rint(totals / counts)).astype(numpy.int64)

    def __len__(self) -> int:
        return len(self.numbers)

    def counts(self, firsts: Vector, afters: Vector) -> Vector:
        """Return how often each name stands in each of the stretches: (stretches, names)."""
        stretches = zip(firsts.tolist(), afters.tolist(), strict=True)
        rows = [numpy.bincount(self.numbers[first:after], minlength=self.size) for first, after in stretches]
        return numpy.array(rows, numpy.int64).reshape(len(rows), self.size)

    def alike(self, one: Vector, others: Vector) -> Floats:
        """How much each of the others is like the one: the smaller of both measures, 1 where they are the same."""
        apart, together = numpy.abs(others - one), others + one
        plain = apart.sum(axis=1) / numpy.maximum(1, together.sum(axis=1))
        weighted = (apart @ self.weights) / numpy.maximum(1, together @ self.weights)
        least: Floats = 1 - numpy.maximum(plain, weighted)
        return least

    def kinds(self, firsts: Vector, afters: Vector, most: int) -> tuple[Vector, Floats, list[Vector]] | None:
        """Of each stretch its kind, how much it is like the first of that, and the counts of the first of each; None
        of more than ``most`` kinds. Each stretch joins the most alike leader, or leads.
        """
        leaders: list[Vector] = []
        kinds = numpy.empty(len(firsts), numpy.int64)
        best = numpy.empty(len(firsts))
        for low in range(0, len(firsts), _BLOCK):
            block = slice(low, low + _BLOCK)
            counts = self.counts(firsts[block], afters[block])
            likeness = numpy.full((len(counts), most), -1.0)
            for number, leader in enumerate(leaders):
                likeness[:, number] = self.alike(leader, counts)
            while len(strangers := numpy.flatnonzero(likeness.max(axis=1) < ALIKE)):
                if len(leaders) == most:
                    return None
                first = int(strangers[0])
                likeness[first:, len(leaders)] = self.alike(counts[first], counts[first:])
                leaders.append(counts[first])
            kinds[block], best[block] = likeness.argmax(axis=1), likeness.max(axis=1)
        return kinds, best, leaders
