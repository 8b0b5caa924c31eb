"""On which other ranks did the same happen? Rows that differ only by rank are shown as the worst one, with the list of
the other ranks.

Rows are alike if value and change are within a tenth of the worst row's.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from pytest_nsys.core.model import Value
from pytest_nsys.gates.model import JudgedRow

ALIKE_VALUE_SHARE = Fraction(10, 100)
"""Two values are alike if they differ by no more than this share of the worst one."""


def group_alike_rows(rows: Iterable[JudgedRow]) -> list[tuple[JudgedRow, list[int]]]:
    """Return the worst row of each group of alike rows, with the ranks of the others. ``rows`` are sorted worst
    first.
    """
    groups: list[tuple[JudgedRow, list[int]]] = []
    by_place: dict[str, list[tuple[JudgedRow, list[int]]]] = {}
    for row in rows:
        rank = row.labels.get("rank")
        place = str(sorted((d, str(label)) for d, label in row.labels.items() if d != "rank"))
        groups_there = by_place.setdefault(place, [])
        ranks = next((ranks for worst, ranks in groups_there if _is_alike(worst, row)), None)
        if ranks is not None and isinstance(rank, int):
            ranks.append(rank)
        else:
            groups_there.append((row, []))
            groups.append(groups_there[-1])
    return [(worst, sorted(ranks)) for worst, ranks in groups]


def _is_alike(worst: JudgedRow, row: JudgedRow) -> bool:
    """Whether a row has the same outcome as the worst one, and about the same value and change."""
    return (
        worst.outcome is row.outcome
        and _is_near_value(worst.value, row.value)
        and _is_near_value(_subtract_baseline(worst), _subtract_baseline(row))
    )


def _subtract_baseline(row: JudgedRow) -> Value | None:
    if row.value is None or row.baseline is None:
        return None
    return Fraction(row.value) - row.baseline


def _is_near_value(worst: Value | None, value: Value | None) -> bool:
    """Whether two values are alike; two absent values are."""
    if worst is None or value is None:
        return worst is value
    return abs(Fraction(worst) - value) <= abs(Fraction(worst)) * ALIKE_VALUE_SHARE
