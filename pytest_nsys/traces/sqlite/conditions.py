"""Which rows of a large table does a query let through? Builds conditions in SQL that drop what surely was not
requested.

A value that is no number passes every condition: the code that reads such a damaged row sees it and refuses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from pytest_nsys.core.model import Interval

# So many runs of ids are told apart by comparisons; more are looked up in a list sooner.
MAX_RUNS = 3
# So many ids are asked for at once: a statement of SQLite may have a million bytes (SQLITE_MAX_SQL_LENGTH).
MAX_LISTED_IDS = 20_000
MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1
# A row that ends before it starts, or was not timed: see ImpossibleRows of core.model.
IMPOSSIBLE_TIMES = "(end < start OR (start = 0 AND end = 0)) IS TRUE"
# A number or a blob where a name is; NULL is none. SQLite orders numbers below all texts, and blobs above them.
NOT_TEXT = "({0} < '' OR {0} >= x'')"


def build_bounds_condition(column: str, low: int | None = None, high: int | None = None) -> str:
    """Return SQL that drops the rows whose value is a number outside the bounds."""
    below_low = [f"({column} < {low} AND {column} >= {MIN_INT64})"] if low is not None else []
    above_high = [f"({column} > {high} AND {column} <= {MAX_INT64})"] if high is not None else []
    return f"({' OR '.join(below_low + above_high)}) IS NOT TRUE"


def build_membership_condition(column: str, numbers: Iterable[int]) -> str:
    """Return SQL that drops the rows whose value is another whole number."""
    return f"({column} IN ({format_ids(numbers)}) OR typeof({column}) <> 'integer')"


def build_name_condition(column: str, pattern: str) -> tuple[str, list[str]]:
    """Return SQL that lets through at least the names that match a ``%`` pattern, with the values of its placeholders.

    The condition is a range on the text where the pattern has a prefix.
    """
    prefix = pattern.split("%", 1)[0]
    if prefix == pattern:
        return f"{column} = ?", [pattern]
    if prefix and prefix[-1] not in "\ud7ff\U0010ffff":  # these have no successor that UTF-8 can write
        return f"({column} >= ? AND {column} < ?)", [prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)]
    glob = "".join("*" if c == "%" else f"[{c}]" if c in "*?[" else c for c in pattern)
    return f"{column} GLOB ?", [glob]


def build_names_condition(column: str, patterns: Sequence[str]) -> tuple[str, list[str]]:
    """Return SQL that lets through at least the names that match one of the patterns, with the values of its
    placeholders.
    """
    conditions = [build_name_condition(column, pattern) for pattern in patterns]
    return " OR ".join(c for c, _ in conditions), [bound for _, bounds in conditions for bound in bounds]


def build_touch_condition(span: Interval) -> str:
    """Return SQL that lets through the rows that touch the span, those without an end included."""
    return f"{build_bounds_condition('start', high=span[1])} AND {build_bounds_condition('end', low=span[0])}"


def build_ids_condition(column: str, ids: Collection[int]) -> str:
    """Return SQL that drops the rows whose value is NULL or another number."""
    # Names that are alike were mostly numbered together: where the ids are few runs a row costs some comparisons, which
    # are a half of looking it up in a list.
    runs = _find_runs(ids)
    range_conditions = " OR ".join(f"{column} BETWEEN {first} AND {last}" for first, last in runs)
    membership = range_conditions if len(runs) <= MAX_RUNS else f"{column} IN ({format_ids(ids)})"
    # What is no whole number differs from its own bits, which is quicker to see than its type.
    return f"({membership} OR ({column} | 0) <> +{column})"


def _find_runs(ids: Iterable[int]) -> list[Interval]:
    """Return the first and the last of each run of ids without a gap, ascending."""
    runs: list[Interval] = []
    for number in sorted(ids):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def format_ids(numbers: Iterable[int]) -> str:
    """Return ids as the comma-separated text of an SQL list."""
    return ",".join(str(int(n)) for n in numbers)
