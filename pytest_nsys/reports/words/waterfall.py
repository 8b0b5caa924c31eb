"""What turned a row's baseline into its value? The base, what each cause added or took, and the head, in time.

The page draws it, and the Markdown shows it as a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from pytest_nsys.analysis.explain.breakdown_model import RowExplanation
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import Scale, choose_scale, format_signed, format_value
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.model import JudgedRow, Verdict
from pytest_nsys.reports.tables.formats import (
    UNLIMITED_LENGTH,
    CellKind,
    Column,
    Table,
    build_text_table,
    make_number_column,
)
from pytest_nsys.reports.words.cause_text import format_row_labels, group_by_cause, list_causes
from pytest_nsys.reports.words.verdict_text import format_subject

MAX_CAUSES = 6
"""So many causes have a step of their own; smaller ones share one."""


MIN_CHANGE_SHARE = Fraction(1, 2)
"""Where base and head are more alike than this, the axis begins near them: else no cause would be seen."""


class Waterfall(NamedTuple):
    """Holds how a row went from its baseline to its value: ``base_ns`` and the ns of all causes are ``head_ns``."""

    quantity: str  # what is judged, such as ``compute_ns``: a step may change by another amount
    place: str  # the labels of the row
    base_ns: Value
    causes: Sequence[tuple[Value, str]]  # what each added, in ns, and its words
    head_ns: Value

    @property
    def title(self) -> str:
        return f"What changed: {', '.join(filter(None, (self.quantity, self.place)))}"

    @property
    def scale(self) -> Scale:
        """The unit of all amounts."""
        return choose_scale([self.base_ns, self.head_ns], TIME)

    @property
    def levels(self) -> list[Fraction]:
        """The base, and what each cause after the other makes of it."""
        return [*accumulate((Fraction(ns) for ns, _ in self.causes), initial=Fraction(self.base_ns))]

    def choose_axis(self) -> tuple[Fraction, Fraction]:
        """Return where the axis begins and ends: at 0, or near the values where all of them are far from it; below 0
        where causes take more than the base, which others make up for.
        """
        levels = [*self.levels, Fraction(self.head_ns)]
        low, high = min(levels), max(levels)
        if low < MIN_CHANGE_SHARE * high:
            return min(low, Fraction(0)), high or Fraction(1)
        room = max(high - low, Fraction(1))
        return Fraction(max(0, round(low - room))), high

    @property
    def axis_note(self) -> str:
        """Where the bars begin; empty at 0."""
        start = self.choose_axis()[0]
        return f"The bars begin at {format_value(start, scale=self.scale)}." if start else ""

    def format_amounts(self) -> list[str]:
        """Return the base, what each cause added with its sign, and the head, all in one unit."""
        added = [format_signed(ns, scale=self.scale) for ns, _ in self.causes]
        return [format_value(self.base_ns, scale=self.scale), *added, format_value(self.head_ns, scale=self.scale)]


BAR_CELLS = 20
"""How many characters the longest bar of a table has."""


def build_waterfall_table(waterfall: Waterfall) -> Table:
    """Return the waterfall as a table of text: each amount, its bar, and what it is."""
    start, end = waterfall.choose_axis()
    levels = waterfall.levels
    spans = [(start, levels[0]), *pairwise(levels), (start, Fraction(waterfall.head_ns))]
    texts = ["base", *(text for _, text in waterfall.causes), "head"]
    bars = [_draw_bar((min(span) - start) / (end - start), (max(span) - start) / (end - start)) for span in spans]
    columns = (make_number_column("time"), Column("", CellKind.NAME), "what")
    rows = [*zip(waterfall.format_amounts(), bars, texts, strict=True)]
    return build_text_table(waterfall.title, columns, rows, max_length=UNLIMITED_LENGTH)


def _draw_bar(low: Fraction, high: Fraction) -> str:
    """Return a bar between two shares of the axis, at least one character long."""
    first = min(round(low * BAR_CELLS), BAR_CELLS - 1)
    last = max(round(high * BAR_CELLS), first + 1)
    return "░" * first + "█" * (last - first) + "░" * (BAR_CELLS - last)


def find_waterfall(verdict: Verdict) -> Waterfall | None:
    """Return the waterfall of the rank with the cause, where its row is explained by the cause of the worst row; else
    of the first explained row that has one.

    None where no value is a time, or where no cause has an amount.
    """
    alike_rows = group_by_cause(verdict.causes)[0] if verdict.causes else []
    for explanation in [*filter(_has_own_cause, alike_rows), *verdict.causes]:
        row = _find_judged_row(verdict, explanation)
        if row is not None and row.value is not None and row.baseline is not None:
            waterfall = build_waterfall(explanation, format_subject(verdict.assertion), row.baseline, row.value)
            if waterfall is not None:
                return waterfall
    return None


def _has_own_cause(row: RowExplanation) -> bool:
    """Return whether the cause is on the rank of the row: others that wait for it show how long they waited."""
    return bool(row.root_causes) and row.labels.get("rank") == row.root_causes[0].rank


def _find_judged_row(verdict: Verdict, explanation: RowExplanation) -> JudgedRow | None:
    """Return the row whose whole change is explained: the windows that explain it are those of its two values."""
    for row in verdict.rows if verdict.unit == TIME else ():
        if row.value is not None and row.baseline is not None and {**row.origin, **row.labels} == explanation.labels:
            return row if Fraction(row.value) - Fraction(row.baseline) == explanation.explanation.change_ns else None
    return None


def build_waterfall(explanation: RowExplanation, quantity: str, base_ns: Value, head_ns: Value) -> Waterfall | None:
    """Return how the causes of a row lead from its baseline to its value; None where no cause has an amount."""
    causes: list[tuple[Value, str]] = [(ns, text) for ns, text in list_causes(explanation, MAX_CAUSES) if ns]
    rest_ns = Fraction(head_ns) - Fraction(base_ns) - sum(ns for ns, _ in causes)
    if not causes:
        return None
    if rest_ns:
        causes.append((rest_ns, "other changes"))
    return Waterfall(quantity, format_row_labels(explanation.labels), base_ns, causes, head_ns)
