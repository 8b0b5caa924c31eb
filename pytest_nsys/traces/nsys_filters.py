"""Which rows of an export are worth reading? SQL conditions that are plain comparisons, the cheapest first.

Only whole numbers of the trace that were checked become part of a condition; texts are parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pytest_nsys.model import Interval

THREAD_BITS = 0xFFFFFF


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


def by_process(column: str, conditions: Mapping[int, str]) -> str:
    """Each process's own condition, found by halving: eight ranks cost three comparisons a row, not eight."""

    def choose(pids: Sequence[int]) -> str:
        if len(pids) == 1:
            (pid,) = pids
            return f"({column} BETWEEN {pid} AND {pid | THREAD_BITS} AND ({conditions[pid]}))"
        middle = len(pids) // 2
        return f"CASE WHEN {column} < {pids[middle]} THEN {choose(pids[:middle])} ELSE {choose(pids[middle:])} END"

    return choose(sorted(conditions))


def touching(column: str, spans: Mapping[int, Interval]) -> str:
    """Ranges that touch the span of their process; the hull of all spans is looked at first."""
    low, high = min(lo for lo, _ in spans.values()), max(hi for _, hi in spans.values())
    own = {pid: f"start <= {hi} AND (end >= {lo} OR end IS NULL)" for pid, (lo, hi) in spans.items()}
    return f"start <= {high} AND (end >= {low} OR end IS NULL) AND {by_process(column, own)}"


def starting(column: str, spans: Mapping[int, Interval]) -> str:
    """Calls that start in the span of their process; the hull of all spans is looked at first."""
    low, high = min(lo for lo, _ in spans.values()), max(hi for _, hi in spans.values())
    own = {pid: f"start BETWEEN {lo} AND {hi}" for pid, (lo, hi) in spans.items()}
    return f"start BETWEEN {low} AND {high} AND {by_process(column, own)}"


def one_of(column: str, ids: Collection[int]) -> str:
    """A list of ids, behind the two comparisons that most rows fail."""
    return f"({column} BETWEEN {min(ids)} AND {max(ids)} AND {column} IN ({listed(ids)}))"


def listed(numbers: Iterable[int]) -> str:
    """Ids as the text of a list."""
    return ",".join(str(int(n)) for n in numbers)
