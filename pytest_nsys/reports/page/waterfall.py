"""How does a page draw what turned a row's baseline into its value: the base, a bar for each cause, the head?

Below it stands a table of the kernels that changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from pytest_nsys.analysis.explain.breakdown_model import Change, RowActivity, RowExplanation
from pytest_nsys.core.numbers import choose_scale, format_signed, format_value
from pytest_nsys.core.text_format import format_count
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.model import Verdict
from pytest_nsys.reports.page.templating import TemplateData, format_css_percent
from pytest_nsys.reports.tables.formats import Column, Table, build_text_table, make_number_columns
from pytest_nsys.reports.words.cause_text import choose_row_names, format_row_labels
from pytest_nsys.reports.words.change_text import format_place
from pytest_nsys.reports.words.waterfall import Waterfall, find_waterfall


def draw_waterfall(verdict: Verdict) -> TemplateData | None:
    """Return what the template draws of the first explained row that has a waterfall; None where none has."""
    waterfall = find_waterfall(verdict)
    return None if waterfall is None else _build_bars(waterfall)


def _build_bars(waterfall: Waterfall) -> TemplateData:
    levels, (start, end) = waterfall.levels, waterfall.choose_axis()
    base_amount, *cause_amounts, head_amount = waterfall.format_amounts()

    def make_bar(kind: str, amount: str, text: str, low: Fraction, high: Fraction) -> TemplateData:
        """Return one bar that reaches from ``low`` to ``high`` on the axis."""
        return {
            "kind": kind,
            "amount": amount,
            "text": text,
            "x": format_css_percent((low - start) / (end - start)),
            "width": format_css_percent((high - low) / (end - start)),
        }

    bars = [make_bar("total", base_amount, "base", start, levels[0])]
    for (ns, text), amount, (low, high) in zip(waterfall.causes, cause_amounts, pairwise(levels), strict=True):
        bars.append(make_bar("more" if ns > 0 else "less", amount, text, min(low, high), max(low, high)))
    bars.append(make_bar("total", head_amount, "head", start, Fraction(waterfall.head_ns)))
    return {
        "title": waterfall.title,
        "bars": bars,
        "note": waterfall.axis_note,
    }


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
    names, places = choose_row_names(explanation), [_find_place(explanation, change) for change in changes]
    scale = choose_scale([ns for change in changes for ns in (change.baseline_ns, change.current_ns)], TIME)
    rows = [
        (
            names[change.root.name],
            *(str(count) for count in (change.baseline_count, change.current_count)),
            *(format_value(ns, scale=scale) for ns in (change.baseline_ns, change.current_ns)),
            format_signed(change.change_ns, scale=scale),
            *([place] if any(places) else []),
        )
        for change, place in zip(changes, places, strict=True)
    ]
    smaller = f" ({format_count(omitted_count, 'smaller change')} left out)" if omitted_count else ""
    figures = ("launches, base", "launches, head", "time, base", "time, head", "change")
    columns: list[str | Column] = ["kernel", *make_number_columns(*figures)]
    columns += ["launched in"] if any(places) else []
    row_text = format_row_labels(explanation.labels)
    return build_text_table(f"Kernels that changed{': ' if row_text else ''}{row_text}{smaller}", columns, rows)


def _find_place(explanation: RowExplanation, change: Change) -> str:
    """Return the part of the program that launches the kernel of a change; empty where the traces do not say."""
    places = {root.name: place for root, place in explanation.places.items()}
    return format_place(places.get(change.root.name)).removeprefix(" in ")
