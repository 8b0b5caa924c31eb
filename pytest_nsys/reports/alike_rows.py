"""On which other ranks did the same happen? Rows of one place, told as the worst of them and the ranks of the others.

They are alike where value and change are within a tenth of the worst one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.core.model import Value
from pytest_nsys.gates.model import JudgedRow

ALIKE = Fraction(10, 100)
"""By no more of the worst one's, two values are alike."""


class AlikeRows(NamedTuple):
    """The worst row of a place, and the other ``ranks`` on which it is alike."""

    worst: JudgedRow
    ranks: Sequence[int]


def alike(rows: Iterable[JudgedRow]) -> list[AlikeRows]:
    """Rows that come worst first, each standing for those of its place that are like it."""
    told: list[tuple[JudgedRow, list[int]]] = []
    by_place: dict[str, list[tuple[JudgedRow, list[int]]]] = {}
    for row in rows:
        rank = row.labels.get("rank")
        own = str(sorted((d, str(label)) for d, label in row.labels.items() if d != "rank"))
        there = by_place.setdefault(own, [])
        ranks = next((ranks for worst, ranks in there if _is_like(worst, row)), None)
        if ranks is not None and isinstance(rank, int):
            ranks.append(rank)
        else:
            there.append((row, []))
            told.append(there[-1])
    return [AlikeRows(worst, sorted(ranks)) for worst, ranks in told]


def _is_like(worst: JudgedRow, row: JudgedRow) -> bool:
    return worst.outcome is row.outcome and _near(worst.value, row.value) and _near(_moved(worst), _moved(row))


def _moved(row: JudgedRow) -> Value | None:
    if row.value is None or row.baseline is None:
        return None
    return Fraction(row.value) - row.baseline


def _near(worst: Value | None, value: Value | None) -> bool:
    if worst is None or value is None:
        return worst is value
    return abs(Fraction(worst) - value) <= abs(Fraction(worst)) * ALIKE
