"""What is done with many kernels at once: a few operations on columns, each in plain Python and in numpy.

A column is an ``array('q')``, or of shorter integers where a reader made it; flags are a ``bytearray`` of 0 and 1;
indices are a column or a range. ``plain`` says what each operation means, and does it for few elements; ``vectors``
does the same for many, and ``choice`` says when. Whichever runs, the answer is the same, of the same type, and exact.
"""

from pytest_nsys.core.columns import plain
from pytest_nsys.core.columns.choice import CHOICE, operation
from pytest_nsys.core.columns.plain import Column, Flags, Indices

__all__ = ["Column", "Flags", "Indices"]

expect = CHOICE.expect

take = operation(plain.take)
where = operation(plain.where)
where_not = operation(plain.where_not)
equal = operation(plain.equal)
total = operation(plain.total)
minus = operation(plain.minus)
later = operation(plain.later)
earlier = operation(plain.earlier)
within = operation(plain.within)
order = operation(plain.order)
distinct = operation(plain.distinct)
counts = operation(plain.counts)
sums = operation(plain.sums)
members = operation(plain.members)
spread = operation(plain.spread)
places = operation(plain.places)
stretches = operation(plain.stretches)
records = operation(plain.records)
segments = operation(plain.segments)
union = operation(plain.union)
covered_before = operation(plain.covered_before)
innermost = operation(plain.innermost)
least_ratio = operation(plain.least_ratio)
parsed = operation(plain.parsed)
values = operation(plain.values)
bounds = operation(plain.bounds)
exceeds = operation(plain.exceeds)
least = operation(plain.least)
joined = operation(plain.joined)
