"""Which rows of a large table are let through? Conditions in SQL, which drop what is surely not asked for.

What is no number passes each of them: a damaged row is seen, and refused, by who reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from pytest_nsys.core.model import Interval

RUNS = 3
"""So many runs of ids are told apart by comparisons; more are looked up in a list sooner."""
LISTED = 20_000
"""So many ids are asked for at once: a statement may have a million bytes."""
FIRST, LAST = -(1 << 63), (1 << 63) - 1
IMPOSSIBLE = "(end < start OR (start = 0 AND end = 0)) IS TRUE"
"""A row that ends before it starts, or was not timed: see :class:`~pytest_nsys.core.model.ImpossibleRows`."""
NO_TEXT = "({0} < '' OR {0} >= x'')"
"""A number or a blob where a name is; NULL is none."""


def within(column: str, low: int | None = None, high: int | None = None) -> str:
    """Drops the rows whose value is a number outside the bounds."""
    below = [f"({column} < {low} AND {column} >= {FIRST})"] if low is not None else []
    above = [f"({column} > {high} AND {column} <= {LAST})"] if high is not None else []
    return f"({' OR '.join(below + above)}) IS NOT TRUE"


def among(column: str, numbers: Iterable[int]) -> str:
    """Drops the rows whose value is another number."""
    return f"({column} IN ({listed(numbers)}) OR typeof({column}) <> 'integer')"


def name_condition(column: str, pattern: str) -> tuple[str, list[str]]:
    """A filter that lets through at least the names that match: a range on the text where the pattern has a prefix."""
    prefix = pattern.split("%", 1)[0]
    if prefix == pattern:
        return f"{column} = ?", [pattern]
    if prefix and prefix[-1] not in "\ud7ff\U0010ffff":  # these have no successor that UTF-8 can write
        return f"({column} >= ? AND {column} < ?)", [prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)]
    glob = "".join("*" if c == "%" else f"[{c}]" if c in "*?[" else c for c in pattern)
    return f"{column} GLOB ?", [glob]


def any_name(column: str, patterns: Sequence[str]) -> tuple[str, list[str]]:
    """A filter that lets through at least the names that match one of the patterns."""
    conditions = [name_condition(column, pattern) for pattern in patterns]
    return " OR ".join(c for c, _ in conditions), [bound for _, bounds in conditions for bound in bounds]


def touches(span: Interval) -> str:
    """Rows that touch the span, those without an end included."""
    return f"{within('start', high=span[1])} AND {within('end', low=span[0])}"


def one_of(column: str, ids: Collection[int]) -> str:
    """Drops the rows whose value is NULL or another number. Names that are alike were mostly numbered together: where
    the ids are few runs a row costs some comparisons, which are a half of looking it up in a list. What is no whole
    number differs from its own bits, which is quicker to see than its type.
    """
    runs = _runs(ids)
    between = " OR ".join(f"{column} BETWEEN {first} AND {last}" for first, last in runs)
    known = between if len(runs) <= RUNS else f"{column} IN ({listed(ids)})"
    return f"({known} OR ({column} | 0) <> +{column})"


def _runs(ids: Iterable[int]) -> list[Interval]:
    """The ids as their runs of numbers without a gap, first and last of each."""
    found: list[Interval] = []
    for number in sorted(ids):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def listed(numbers: Iterable[int]) -> str:
    """Ids as the text of a list."""
    return ",".join(str(int(n)) for n in numbers)
