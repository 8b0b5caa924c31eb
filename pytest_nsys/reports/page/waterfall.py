"""How does a page draw what turned a row's baseline into its value: the base, a bar for each cause, the head?

Below it stands a table of the kernels that changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from pytest_nsys.analysis.explain.breakdown_model import Change, RowActivity, RowExplanation
from pytest_nsys.core.kernel_names import make_display_names
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import choose_scale, format_signed, format_value
from pytest_nsys.core.text_format import format_count
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.model import JudgedRow, Verdict
from pytest_nsys.reports.page.templating import TemplateData, format_css_percent
from pytest_nsys.reports.tables.formats import Column, Table, build_text_table, make_number_columns
from pytest_nsys.reports.words.cause_text import format_row_labels, list_causes

MAX_CAUSES = 6
"""So many causes have a bar of their own; smaller ones share one."""

MIN_CHANGE_SHARE = Fraction(1, 2)
"""Where the bars of base and head are more alike than this, the axis begins near them: else no cause would be seen."""


def draw_waterfall(verdict: Verdict) -> TemplateData | None:
    """Return what the template draws of the first explained row that has bars.

    None where no value is a time, or where no cause has an amount.
    """
    for explanation in verdict.causes:
        row = _find_judged_row(verdict, explanation)
        if row is not None and row.value is not None and row.baseline is not None:
            bars = _build_bars(explanation, row.baseline, row.value)
            if bars is not None:
                return bars
    return None


def _find_judged_row(verdict: Verdict, explanation: RowExplanation) -> JudgedRow | None:
    """Return the row whose whole change is explained: the windows that explain it are those of its two values."""
    for row in verdict.rows if verdict.unit == TIME else ():
        if row.value is not None and row.baseline is not None and {**row.origin, **row.labels} == explanation.labels:
            return row if Fraction(row.value) - Fraction(row.baseline) == explanation.explanation.change_ns else None
    return None


def _build_bars(explanation: RowExplanation, base_ns: Value, head_ns: Value) -> TemplateData | None:
    causes: list[tuple[Value, str]] = [(ns, text) for ns, text in list_causes(explanation, MAX_CAUSES) if ns]
    rest_ns = Fraction(head_ns) - Fraction(base_ns) - sum(ns for ns, _ in causes)
    if not causes:
        return None
    if rest_ns:
        causes.append((rest_ns, "other changes"))
    levels = [Fraction(base_ns)]
    for ns, _ in causes:
        levels.append(levels[-1] + ns)
    start, end = _choose_axis([*levels, Fraction(head_ns)])
    scale = choose_scale([base_ns, head_ns], TIME)

    def make_bar(kind: str, amount: str, text: str, low: Fraction, high: Fraction) -> TemplateData:
        """Return one bar that reaches from ``low`` to ``high`` on the axis."""
        return {
            "kind": kind,
            "amount": amount,
            "text": text,
            "x": format_css_percent((low - start) / (end - start)),
            "width": format_css_percent((high - low) / (end - start)),
        }

    bars = [make_bar("total", format_value(base_ns, scale=scale), "base", start, levels[0])]
    for (ns, text), (low, high) in zip(causes, pairwise(levels), strict=True):
        kind = "more" if ns > 0 else "less"
        bars.append(make_bar(kind, format_signed(ns, scale=scale), text, min(low, high), max(low, high)))
    bars.append(make_bar("total", format_value(head_ns, scale=scale), "head", start, Fraction(head_ns)))
    return {
        "title": f"What changed: {format_row_labels(explanation.labels)}".rstrip(),
        "bars": bars,
        "note": f"The bars begin at {format_value(start, scale=scale)}." if start else "",
    }


def _choose_axis(levels: Sequence[Fraction]) -> tuple[Fraction, Fraction]:
    """Return where the axis begins and ends: at 0, or near the values where all of them are far from it."""
    low, high = min(levels), max(levels)
    if low < MIN_CHANGE_SHARE * high:
        return Fraction(0), high or Fraction(1)
    room = max(high - low, Fraction(1))
    return Fraction(max(0, round(low - room))), high


MIN_KERNEL_CHANGE_SHARE = Fraction(1, 100)
"""A kernel whose time changed by less than this share of the largest change is not in the table."""


def build_kernel_table(verdict: Verdict) -> Table | None:
    """Return the kernels whose time changed in the first explained row, largest change first; None where none did."""
    for explanation in verdict.causes:
        changes = [
            cause
            for cause in explanation.explanation.causes
            if cause.root.activity in _KERNEL_ACTIVITIES and cause.root.name
        ]
        largest_ns = max((abs(change.change_ns) for change in changes), default=0)
        shown = [change for change in changes if abs(change.change_ns) >= MIN_KERNEL_CHANGE_SHARE * largest_ns > 0]
        if shown:
            return _tabulate_kernels(explanation, shown, len(changes) - len(shown))
    return None


_KERNEL_ACTIVITIES = (RowActivity.KERNEL, RowActivity.COLLECTIVE)


def _tabulate_kernels(explanation: RowExplanation, changes: Sequence[Change], omitted_count: int) -> Table:
    names = make_display_names([change.root.name for change in changes])
    scale = choose_scale([ns for change in changes for ns in (change.baseline_ns, change.current_ns)], TIME)
    rows = [
        (
            names[change.root.name],
            *(str(count) for count in (change.baseline_count, change.current_count)),
            *(format_value(ns, scale=scale) for ns in (change.baseline_ns, change.current_ns)),
            format_signed(change.change_ns, scale=scale),
        )
        for change in changes
    ]
    smaller = f" ({format_count(omitted_count, 'smaller change')} left out)" if omitted_count else ""
    figures = ("launches, base", "launches, head", "time, base", "time, head", "change")
    columns: list[str | Column] = ["kernel", *make_number_columns(*figures)]
    place = format_row_labels(explanation.labels)
    return build_text_table(f"Kernels that changed{': ' if place else ''}{place}{smaller}", columns, rows)
