"""What turned a row's baseline into its value? The base, what each cause added or took, and the head, in time.

The page draws it, and the Markdown shows it as a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.explain.breakdown_model import RowExplanation
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import Scale, choose_scale, format_signed, format_value
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.model import JudgedRow, Verdict
from pytest_nsys.reports.words.cause_text import format_row_labels, list_causes

MAX_CAUSES = 6
"""So many causes have a step of their own; smaller ones share one."""


class Waterfall(NamedTuple):
    """Holds how a row went from its baseline to its value: ``base_ns`` and the ns of all causes are ``head_ns``."""

    place: str  # the labels of the row
    base_ns: Value
    causes: Sequence[tuple[Value, str]]  # what each added, in ns, and its words
    head_ns: Value

    @property
    def title(self) -> str:
        return f"What changed: {self.place}".rstrip()

    @property
    def scale(self) -> Scale:
        """The unit of all amounts."""
        return choose_scale([self.base_ns, self.head_ns], TIME)

    def format_amounts(self) -> list[str]:
        """Return the base, what each cause added with its sign, and the head, all in one unit."""
        added = [format_signed(ns, scale=self.scale) for ns, _ in self.causes]
        return [format_value(self.base_ns, scale=self.scale), *added, format_value(self.head_ns, scale=self.scale)]


def find_waterfall(verdict: Verdict) -> Waterfall | None:
    """Return the waterfall of the first explained row that has one.

    None where no value is a time, or where no cause has an amount.
    """
    for explanation in verdict.causes:
        row = _find_judged_row(verdict, explanation)
        if row is not None and row.value is not None and row.baseline is not None:
            waterfall = build_waterfall(explanation, row.baseline, row.value)
            if waterfall is not None:
                return waterfall
    return None


def _find_judged_row(verdict: Verdict, explanation: RowExplanation) -> JudgedRow | None:
    """Return the row whose whole change is explained: the windows that explain it are those of its two values."""
    for row in verdict.rows if verdict.unit == TIME else ():
        if row.value is not None and row.baseline is not None and {**row.origin, **row.labels} == explanation.labels:
            return row if Fraction(row.value) - Fraction(row.baseline) == explanation.explanation.change_ns else None
    return None


def build_waterfall(explanation: RowExplanation, base_ns: Value, head_ns: Value) -> Waterfall | None:
    """Return how the causes of a row lead from its baseline to its value; None where no cause has an amount."""
    causes: list[tuple[Value, str]] = [(ns, text) for ns, text in list_causes(explanation, MAX_CAUSES) if ns]
    rest_ns = Fraction(head_ns) - Fraction(base_ns) - sum(ns for ns, _ in causes)
    if not causes:
        return None
    if rest_ns:
        causes.append((rest_ns, "other changes"))
    return Waterfall(format_row_labels(explanation.labels), base_ns, causes, head_ns)
