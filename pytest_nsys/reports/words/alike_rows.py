"""On which other ranks did the same happen? Rows of one place, told as the worst of them and the ranks of the others.

They are alike where value and change are within a tenth of the worst one's.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from pytest_nsys.core.model import Value
from pytest_nsys.gates.model import JudgedRow

ALIKE = Fraction(10, 100)
"""By no more of the worst one's, two values are alike."""


def group_alike(rows: Iterable[JudgedRow]) -> list[tuple[JudgedRow, list[int]]]:
    """Return of rows that come worst first the worst of each place, each with the other ranks on which it is alike."""
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
    return [(worst, sorted(ranks)) for worst, ranks in told]


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
