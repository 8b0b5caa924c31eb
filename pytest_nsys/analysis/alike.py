"""How alike is what two stretches of kernels hold, and of how many kinds are they?

A stretch is the multiset of the names of its kernels: two are alike as far as these are the same, counted plainly and
weighted by the mean length of each name. Numbers of a million kernels and matrices of stretches are numpy's here, not
operations on columns: what is compared are rows of counts, of which no other place has any.
"""

from __future__ import annotations

from functools import cached_property

import numpy
from numpy.typing import NDArray

from pytest_nsys.core.columns import Vector

Floats = NDArray[numpy.float64]

ALIKE = 0.90
"""What is less alike is of two kinds."""

MOST_COUNTS = 1 << 23
"""Stretches × names: more are not counted at once."""

_BLOCK = 256
"""Stretches that are compared before the next are counted: of those without kinds few are looked at."""

_PAGE = 4096
"""Kernels of which the names are counted once."""


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
        """How often each name stands in each of the stretches: (stretches, names)."""
        sizes = afters - firsts
        if int(sizes.sum()) > _PAGE * len(sizes):
            return self._counts_before(afters) - self._counts_before(firsts)
        rows = numpy.repeat(numpy.arange(len(firsts)), sizes)
        at = numpy.arange(len(rows)) + numpy.repeat(firsts - numpy.cumsum(sizes) + sizes, sizes)
        flat = numpy.bincount(rows * self.size + self.numbers[at], minlength=len(firsts) * self.size)
        return flat.reshape(len(firsts), self.size)

    def _counts_before(self, places: Vector) -> Vector:
        """How often each name stands before each of the places."""
        found = self._by_page[places // self._page]
        for row, place in zip(found, places.tolist(), strict=True):
            row += numpy.bincount(self.numbers[place - place % self._page : place], minlength=self.size)
        return found

    @cached_property
    def _page(self) -> int:
        return max(_PAGE, len(self) * self.size // MOST_COUNTS)

    @cached_property
    def _by_page(self) -> Vector:
        """How often each name stands before each page: a long stretch is counted by its edges."""
        pages = [self.numbers[low : low + self._page] for low in range(0, len(self), self._page)]
        each = [numpy.zeros(self.size, numpy.int64), *(numpy.bincount(page, minlength=self.size) for page in pages)]
        return numpy.cumsum(each, axis=0)

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
            own = slice(low, low + _BLOCK)
            counts = self.counts(firsts[own], afters[own])
            nearest = numpy.full(len(counts), -1.0)
            which = numpy.full(len(counts), -1)
            for number, leader in enumerate(leaders):
                _join(nearest, which, number, self.alike(leader, counts), 0)
            while len(strangers := numpy.flatnonzero(nearest < ALIKE)):
                at = int(strangers[0])
                if len(leaders) == most:
                    return None
                _join(nearest, which, len(leaders), self.alike(counts[at], counts[at:]), at)
                leaders.append(counts[at])
            kinds[own], best[own] = which, nearest
        return kinds, best, leaders


def _join(nearest: Floats, which: Vector, number: int, alike: Floats, low: int) -> None:
    closer = numpy.flatnonzero(alike > nearest[low:]) + low
    nearest[closer], which[closer] = alike[closer - low], number
