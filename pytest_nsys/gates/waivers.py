"""Which rows outside their limit does the gate file let pass for a while, and which of its waivers can go?

Only *failed* can be waived: a row without data, or a run that cannot be judged, never is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import date

from pytest_nsys.analysis.metrics.table import MetricTable, Selector, matches
from pytest_nsys.core.exact import exact
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_apart
from pytest_nsys.core.words import counted, place_words, printable
from pytest_nsys.gates.model import Assertion, JudgedRow, Labels, Outcome, Waiver

Means = Callable[[Labels, Mapping[str, Selector]], bool]
"""Returns whether selectors choose a row with these labels."""

UNDECIDED = (Outcome.INCONCLUSIVE, Outcome.INCOMPARABLE, Outcome.NO_DATA, Outcome.ERROR)
"""Outcomes of a row that leave open whether it needs its waiver."""


def meaning(table: MetricTable) -> Means:
    """Return the check whether selectors choose a judged row: by its labels, or by the mesh coordinates of its rank."""

    def matches_row(labels: Labels, where: Mapping[str, Selector]) -> bool:
        for dimension, selector in where.items():
            label = table.label(labels, dimension)
            if label is None or not any(matches(element, label) for element in selector.values):
                return False
        return True

    return matches_row


def waive(
    assertion: Assertion, unit: str, rows: Sequence[JudgedRow], means: Means, today: date
) -> tuple[tuple[JudgedRow, ...], tuple[str, ...]]:
    """Return the rows in their order, passed where a waiver covers them on ``today`` (in UTC); and what to warn of.

    ``unit`` is that of the rows' values.
    """
    covered_rows: dict[int, list[JudgedRow]] = {n: [] for n in range(len(assertion.waivers))}
    uncovered_rows: list[JudgedRow] = []
    result_rows = []
    for row in rows:
        if row.outcome is Outcome.FAILED:
            waiver_index = _covering(assertion, row, means, today)
            (uncovered_rows if waiver_index is None else covered_rows[waiver_index]).append(row)
            if waiver_index is not None:
                ceiling = exact(assertion.waivers[waiver_index].ceiling)
                row = dataclasses.replace(row, outcome=Outcome.PASSED, waived=True, ceiling=ceiling)
        result_rows.append(row)
    warnings = []
    for n, waiver in enumerate(assertion.waivers):
        matching_rows = [row for row in result_rows if means(row.labels, waiver.where)]
        red_rows = [row for row in uncovered_rows if means(row.labels, waiver.where)]
        if covered_rows[n]:
            warnings.append(_in_force(waiver, len(covered_rows[n])))
        if red_rows:
            warnings.append(_red(assertion, waiver, unit, red_rows, today))
        elif not covered_rows[n] and not any(row.outcome in UNDECIDED for row in matching_rows):
            warnings.append(_not_needed(waiver, len(matching_rows), today))
    return tuple(result_rows), tuple(warnings)


def _covering(assertion: Assertion, row: JudgedRow, means: Means, today: date) -> int | None:
    """Return the index of the first waiver in force that means the row and reaches as far as its value."""
    in_force = ((n, waiver) for n, waiver in enumerate(assertion.waivers) if today <= waiver.expires)
    return next(
        (n for n, waiver in in_force if means(row.labels, waiver.where) and _within(assertion, waiver, row)), None
    )


def _within(assertion: Assertion, waiver: Waiver, row: JudgedRow) -> bool:
    """Whether the value is no further out than the ceiling.

    Where the limit has two sides, the ceiling is on one of them, and a value on the other is not waived.
    """
    assert row.value is not None  # a row without value is no data, not failed
    direction = _way(assertion, waiver, row)
    return direction * row.value <= direction * waiver.ceiling and not _other_side(assertion, waiver, row)


def _middle(row: JudgedRow) -> Value:
    """Return the value that a limit with two sides lies around."""
    middle = row.limit if row.baseline is None else row.baseline
    assert middle is not None  # what failed, failed a limit
    return middle


def _way(assertion: Assertion, waiver: Waiver, row: JudgedRow) -> int:
    """Return which way a value may go as far as the ceiling: 1 up, −1 down."""
    return assertion.require.worse or (1 if waiver.ceiling >= _middle(row) else -1)


def _other_side(assertion: Assertion, waiver: Waiver, row: JudgedRow) -> bool:
    """Whether a value of a limit with two sides is not on the ceiling's."""
    value, middle = row.value or 0, _middle(row)
    return not assertion.require.worse and (value < middle) != (waiver.ceiling < middle)


def _in_force(waiver: Waiver, number: int) -> str:
    source = ", ".join(printable(text, 200) for text in (waiver.reason, waiver.link) if text)
    verb = "is" if number == 1 else "are"
    return f"{counted(number, 'row')} {verb} waived until {waiver.expires} ({source})"


def _red(assertion: Assertion, waiver: Waiver, unit: str, outside: Sequence[JudgedRow], today: date) -> str:
    """Explain why rows that a waiver names are red all the same."""
    line = waiver.location.line
    more_rows = f" and {counted(len(outside) - 1, 'more row')}" if len(outside) > 1 else ""
    if today > waiver.expires:
        place = _place(outside[0]) or "the value"
        verb = "are" if more_rows else "is"
        return f"the waiver on line {line} expired on {waiver.expires}: {place}{more_rows} {verb} outside the limit"
    worst = min(outside, key=lambda row: 0 if row.margin is None else row.margin)
    ceiling_text, reached_text = format_apart(waiver.ceiling, worst.value or 0, unit)
    forward, backward = ("up", "down") if _way(assertion, waiver, worst) > 0 else ("down", "up")
    limit_phrase = f"not {backward} to" if _other_side(assertion, waiver, worst) else "but"
    place = f" ({_place(worst)})" if worst.labels else ""
    return (
        f"waived {forward} to {ceiling_text} until {waiver.expires} (line {line}), "
        f"{limit_phrase} {reached_text}{place}{more_rows}"
    )


def _not_needed(waiver: Waiver, meant: int, today: date) -> str:
    """Describe a waiver that covers no row: whether it expired, matches nothing, or is not needed here."""
    name = f"the waiver on line {waiver.location.line}"
    if today > waiver.expires:
        if waiver.shared:
            return f"{name} expired on {waiver.expires} and is not needed here: remove it if no other item needs it"
        return f"{name} expired on {waiver.expires} and is no longer needed: remove it"
    if not meant:
        return f"{name} matches no row of this assertion: correct its 'where', or remove it"
    if waiver.shared:
        return f"{name} is not needed here: let it name the items that need it"
    return f"{name} is not needed: remove it"


def _place(row: JudgedRow) -> str:
    return printable(place_words(row.labels))
