"""Which rows outside their limit does the gate file let pass for a while, and which of its waivers are unneeded?

Only *failed* can be waived: a row without data, or a run that cannot be judged, never is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import date

from pytest_nsys.analysis.metrics.table import MetricTable, Selector, matches_label
from pytest_nsys.core.exact import simplify_fraction
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_distinctly
from pytest_nsys.core.text_format import format_count, format_labels, sanitize_line
from pytest_nsys.gates.model import Assertion, JudgedLabels, JudgedRow, Outcome, Waiver

SelectorMatch = Callable[[JudgedLabels, Mapping[str, Selector]], bool]
"""Returns whether selectors choose a row with these labels."""

UNDECIDED_OUTCOMES = (Outcome.INCONCLUSIVE, Outcome.INCOMPARABLE, Outcome.NO_DATA, Outcome.ERROR)
"""Outcomes of a row that leave open whether it needs its waiver."""


def make_selector_match(table: MetricTable) -> SelectorMatch:
    """Return the check whether selectors choose a judged row: by its labels, or by the mesh coordinates of its rank."""

    def matches_row(labels: JudgedLabels, where: Mapping[str, Selector]) -> bool:
        for dimension, selector in where.items():
            label = table.find_label(labels, dimension)
            if label is None or not any(matches_label(element, label) for element in selector.values):
                return False
        return True

    return matches_row


def waive(
    assertion: Assertion, unit: str, rows: Sequence[JudgedRow], matches_row: SelectorMatch, today: date
) -> tuple[tuple[JudgedRow, ...], tuple[str, ...]]:
    """Return the rows in their order, those that a waiver covers on ``today`` (in UTC) as passed; and the warnings.

    ``unit`` is that of the rows' values.
    """
    covered_rows: dict[int, list[JudgedRow]] = {n: [] for n in range(len(assertion.waivers))}
    uncovered_rows: list[JudgedRow] = []
    result_rows = []
    for row in rows:
        if row.outcome is Outcome.FAILED:
            waiver_index = _find_covering_waiver(assertion, row, matches_row, today)
            (uncovered_rows if waiver_index is None else covered_rows[waiver_index]).append(row)
            if waiver_index is not None:
                ceiling = simplify_fraction(assertion.waivers[waiver_index].ceiling)
                row = dataclasses.replace(row, outcome=Outcome.PASSED, waived=True, ceiling=ceiling)
        result_rows.append(row)
    warnings = []
    for n, waiver in enumerate(assertion.waivers):
        matching_rows = [row for row in result_rows if matches_row(row.labels, waiver.where)]
        red_rows = [row for row in uncovered_rows if matches_row(row.labels, waiver.where)]
        if covered_rows[n]:
            warnings.append(_describe_waiver_in_force(waiver, len(covered_rows[n])))
        if red_rows:
            warnings.append(_explain_red_rows(assertion, waiver, unit, red_rows, today))
        elif not covered_rows[n] and not any(row.outcome in UNDECIDED_OUTCOMES for row in matching_rows):
            warnings.append(_describe_unneeded_waiver(waiver, len(matching_rows), today))
    return tuple(result_rows), tuple(warnings)


def _find_covering_waiver(assertion: Assertion, row: JudgedRow, matches_row: SelectorMatch, today: date) -> int | None:
    """Return the index of the first unexpired waiver that selects the row and whose ceiling covers its value."""
    in_force = ((n, waiver) for n, waiver in enumerate(assertion.waivers) if today <= waiver.expires)
    return next(
        (
            n
            for n, waiver in in_force
            if matches_row(row.labels, waiver.where) and _is_within_ceiling(assertion, waiver, row)
        ),
        None,
    )


def _is_within_ceiling(assertion: Assertion, waiver: Waiver, row: JudgedRow) -> bool:
    """Whether the value is no further out than the ceiling.

    Where the limit has two sides, the ceiling is on one of them, and a value on the other is not waived.
    """
    assert row.value is not None  # a row without value is no data, not failed
    direction = _find_ceiling_direction(assertion, waiver, row)
    return direction * row.value <= direction * waiver.ceiling and not _is_on_other_side(assertion, waiver, row)


def _find_middle(row: JudgedRow) -> Value:
    """Return the middle of a limit with two sides."""
    middle = row.limit if row.baseline is None else row.baseline
    assert middle is not None  # a failed row has a limit
    return middle


def _find_ceiling_direction(assertion: Assertion, waiver: Waiver, row: JudgedRow) -> int:
    """Return the direction in which the ceiling lets a value go: 1 up, −1 down."""
    return assertion.requirement.worse_direction or (1 if waiver.ceiling >= _find_middle(row) else -1)


def _is_on_other_side(assertion: Assertion, waiver: Waiver, row: JudgedRow) -> bool:
    """Whether a value breaks a limit with two sides on the side without the ceiling."""
    value, middle = row.value or 0, _find_middle(row)
    return not assertion.requirement.worse_direction and (value < middle) != (waiver.ceiling < middle)


def _describe_waiver_in_force(waiver: Waiver, row_count: int) -> str:
    source = ", ".join(sanitize_line(text, 200) for text in (waiver.reason, waiver.link) if text)
    verb = "is" if row_count == 1 else "are"
    return f"{format_count(row_count, 'row')} {verb} waived until {waiver.expires} ({source})"


def _explain_red_rows(
    assertion: Assertion, waiver: Waiver, unit: str, red_rows: Sequence[JudgedRow], today: date
) -> str:
    """Explain why rows that a waiver selects fail all the same."""
    line = waiver.location.line
    more_rows = f" and {format_count(len(red_rows) - 1, 'more row')}" if len(red_rows) > 1 else ""
    if today > waiver.expires:
        place = _format_row_place(red_rows[0]) or "the value"
        verb = "are" if more_rows else "is"
        return f"the waiver on line {line} expired on {waiver.expires}: {place}{more_rows} {verb} outside the limit"
    worst = min(red_rows, key=lambda row: 0 if row.margin is None else row.margin)
    ceiling_text, reached_text = format_distinctly(waiver.ceiling, worst.value or 0, unit)
    forward, backward = ("up", "down") if _find_ceiling_direction(assertion, waiver, worst) > 0 else ("down", "up")
    limit_phrase = f"not {backward} to" if _is_on_other_side(assertion, waiver, worst) else "but"
    place = f" ({_format_row_place(worst)})" if worst.labels else ""
    return (
        f"waived {forward} to {ceiling_text} until {waiver.expires} (line {line}), "
        f"{limit_phrase} {reached_text}{place}{more_rows}"
    )


def _describe_unneeded_waiver(waiver: Waiver, matching_count: int, today: date) -> str:
    """Describe a waiver that covers no row: whether it expired, matches nothing, or is not needed here."""
    name = f"the waiver on line {waiver.location.line}"
    if today > waiver.expires:
        if waiver.shared:
            return f"{name} expired on {waiver.expires} and is not needed here: remove it if no other item needs it"
        return f"{name} expired on {waiver.expires} and is no longer needed: remove it"
    if not matching_count:
        return f"{name} matches no row of this assertion: correct its 'where', or remove it"
    if waiver.shared:
        return f"{name} is not needed here: let it name the items that need it"
    return f"{name} is not needed: remove it"


def _format_row_place(row: JudgedRow) -> str:
    return sanitize_line(format_labels(row.labels))
