"""What does the page show of one assertion? Its sentence, why it failed, its rows, and how its worst row varies.

A bar from the limit's line shows each row's margin: to the left the headroom, to the right the excess. The two
directions have separate scales, because a row far beyond its limit would hide the headroom of the others. The variation
over the steady windows is drawn as one dot for each window; the median window is marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from pytest_nsys.analysis.explain.breakdown_model import ChangeKind
from pytest_nsys.core.exact import median, percentile
from pytest_nsys.core.model import merge_notes
from pytest_nsys.core.numbers import MINUS, format_value
from pytest_nsys.core.text_format import format_count
from pytest_nsys.core.units import HASH
from pytest_nsys.gates.model import JudgedRow, Outcome, Verdict
from pytest_nsys.reports.drawings.pictures import Spread, VerdictPictures
from pytest_nsys.reports.page.templating import TemplateData, format_css_percent
from pytest_nsys.reports.session.headline import as_sentence
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.tables.formats import UNLIMITED_LENGTH, build_text_table
from pytest_nsys.reports.words.cause_text import build_cause_table
from pytest_nsys.reports.words.verdict_text import build_row_table, describe_one_sided_row, select_rows_to_show


def build_assertion_view(
    record: AssertionRecord, pictures: VerdictPictures | None, views: Mapping[str, TemplateData], told_causes: set[str]
) -> dict[str, Any]:
    """Return what the template draws of one assertion.

    Its key ``windows`` holds (id, title) of the assertion's timelines on the page; ``causes`` holds (row, change,
    parts) for each explained row. Causes in ``told_causes`` are already shown further up and left out; those of this
    assertion are added to it.
    """
    verdict = record.verdict
    spread = pictures.spread if pictures is not None else None
    keys = [picture.key for picture in pictures.windows] if pictures is not None else []
    untold_causes = {str(row): row for row in verdict.causes if str(row) not in told_causes}
    told_causes.update(untold_causes)
    return {
        "record": record,
        "others": 0,
        "configurations": None,
        "said": as_sentence(record.message),
        "figures": [*_list_figures(record)],
        "next": record.next_steps,
        "rows": _build_rows(verdict),
        "causes": [
            cause_table_view
            for explained_row in [*untold_causes.values()][:MAX_EXPLAINED_ROWS]
            if (cause_table_view := build_cause_table(explained_row))[2].rows
        ],
        "differences": build_text_table(
            "What differs", ("circumstance", "now", "baseline"), verdict.differences, max_length=UNLIMITED_LENGTH
        ),
        "spread": _build_spread_view(spread, verdict.unit) if spread is not None else None,
        "windows": [(views[key]["id"], views[key]["title"]) for key in keys if key in views],
        "notes": list_notes(record) if record.needs_attention else [],
    }


MAX_ONE_SIDED_ROWS = 2


def _list_figures(record: AssertionRecord) -> Iterator[str]:
    """Yield the texts next to the name: the worst row's value, limit, margin and place.

    For a row that only one side has, it yields what is new or gone.
    """
    verdict, worst = record.verdict, record.worst
    notable_rows = select_rows_to_show(verdict) if record.needs_attention else []
    if notable_rows and describe_one_sided_row(notable_rows[0], verdict):
        yield from filter(None, (describe_one_sided_row(row, verdict) for row in notable_rows[:MAX_ONE_SIDED_ROWS]))
    elif worst["value"]:
        place, limit = worst["row"], record.bound
        yield worst["value"] if verdict.unit != HASH else ""
        yield from [f"limit {limit}"] if limit else []
        yield from [describe_margin(worst["margin"], verdict)] if worst["margin"] else []
        yield from [f"ceiling {worst['ceiling']}"] if worst["ceiling"] else []
        yield place.removeprefix("(").removesuffix(")") if place.startswith("(") else place
    if record.outcome is Outcome.IMPROVED:
        root_changes = (change for row in verdict.causes for change in row.root_causes)
        gone_name = next((change.root.name for change in root_changes if change.root.kind is ChangeKind.GONE), "")
        yield f"because {gone_name} is gone" if gone_name else ""


def describe_margin(margin: str, verdict: Verdict) -> str:
    """Return a margin in words: ``headroom 1.2 ms``, ``over by 1.2 ms``."""
    row = verdict.nearest_row
    amount = margin.removeprefix(MINUS)
    if amount == margin or row is None or row.value is None or row.limit is None:
        return f"headroom {margin}"
    return f"{'over' if row.value > row.limit else 'short'} by {amount}"


def list_notes(record: AssertionRecord) -> list[str]:
    """Return the notes below an assertion's rows; doubts about its trace have a section of their own."""
    return [*record.verdict.warnings, *(note.text for note in record.verdict.notes if not note.warning)]


def list_doubts(records: Iterable[AssertionRecord]) -> list[str]:
    """Return the doubts about the traces of assertions, each once."""
    return [
        note.text for note in merge_notes(note for record in records for note in record.verdict.notes) if note.warning
    ]


BAR_WIDTH, BAR_MIDDLE = 140, 70
"""The width of a margin's bar in pixels, and the limit's position in it."""

MAX_EXPLAINED_ROWS = 8
"""At most this many rows of one assertion are explained: those of other ranks read alike."""

MAX_TABLE_ROWS = 500
"""At most this many rows of one assertion are shown; the JSON report has all."""

MAX_HELD_ROWS = 24
"""At most this many rows that hold are shown of one assertion, those nearest to their limits."""


def _build_rows(verdict: Verdict) -> dict[str, Any]:
    """Return the rows of one assertion, worst first: those that need attention, those that hold, and how many are left
    out.
    """
    rows = verdict.rows
    table = build_row_table(verdict, rows, MAX_TABLE_ROWS, with_headroom=True)
    margins = [Fraction(row.margin) for row in rows if row.margin is not None]
    side_scales = (
        max((-margin for margin in margins if margin < 0), default=None),
        max((margin for margin in margins if margin > 0), default=None),
    )
    bars = [_build_margin_bar(row, side_scales) for row in rows]
    lines = [
        {
            "word": "waived" if row.waived else "near" if row.early_warning else str(row.outcome),
            "cells": cells,
            "bar": bar,
        }
        for row, cells, bar in zip(rows, table.rows, bars, strict=False)
    ]
    holding = [line for line in lines if line["word"] == "passed"]
    omitted_count = table.omitted_count + len(holding[MAX_HELD_ROWS:])
    return {
        "columns": table.columns,
        "lines": [line for line in lines if line["word"] != "passed"],
        "holding": holding[:MAX_HELD_ROWS],
        "has_bars": any(bar is not None and bar["width"] for bar in bars),
        "more": f"… {format_count(omitted_count, 'more row')}, in the JSON report" if omitted_count else "",
    }


def _build_margin_bar(row: JudgedRow, side_scales: tuple[Fraction | None, Fraction | None]) -> dict[str, Any] | None:
    """Return the start, width and kind of the bar of a row's margin; None for a row without a limit.

    The kinds differ in shape, not only in colour.
    """
    margin = row.margin
    if margin is None:
        return None
    scale = side_scales[0] if margin < 0 else side_scales[1]
    # Two pixels stay free at the edge, so that the longest bar ends inside the picture.
    width = int(abs(Fraction(margin)) * (BAR_MIDDLE - 2) / scale) if scale else 0
    kind = "waived" if row.waived else "crossed" if margin < 0 or row.outcome is Outcome.FAILED else "held"
    return {"left": BAR_MIDDLE if margin < 0 else BAR_MIDDLE - width, "width": width, "kind": kind}


EDGE_SHARE = Fraction(4, 100)
"""The share of the width that is left free on each side."""

DOT_ROWS = 4
"""Dots are placed in this many rows in turn, so that equal values do not hide each other."""


def _build_spread_view(spread: Spread, unit: str) -> dict[str, Any]:
    """Return the distribution of the worst row over the steady windows, or why there is none; ``unit`` is that of its
    values.

    It consists of the dots, the box of the middle half, and the limit if it is near the values.
    """
    values, limit = spread.values, spread.limit
    if not values:
        return {"row": spread.row, "why": spread.missing_reason or "no steady window has this row"}
    sorted_values = sorted(value for _, value in values)
    if sorted_values[0] == sorted_values[-1]:
        value = format_value(sorted_values[0], unit)
        return {"row": spread.row, "same": f"All {len(sorted_values)} have {value}", "why": ""}
    drawn_values = [
        *sorted_values,
        *([limit] if limit is not None and _is_limit_near(limit, sorted_values[0], sorted_values[-1]) else []),
    ]
    low, high = Fraction(min(drawn_values)), Fraction(max(drawn_values))

    def locate(value: Fraction | int) -> Fraction:
        return (
            EDGE_SHARE + (1 - 2 * EDGE_SHARE) * (Fraction(value) - low) / (high - low) if high > low else Fraction(1, 2)
        )

    first, third = percentile(sorted_values, 25), percentile(sorted_values, 75)
    value_texts = [format_value(value, unit) for value in (sorted_values[0], median(sorted_values), sorted_values[-1])]
    dots = [
        (
            format_css_percent(locate(value)),
            n % DOT_ROWS,
            f"window {i + 1}: {format_value(value, unit)}",
            i == spread.median_index,
        )
        for n, (i, value) in enumerate(values)
    ]
    description = f"{len(sorted_values)} steady windows of {spread.row}: from {value_texts[0]} to {value_texts[2]}"
    description += f", median {value_texts[1]}"
    median_text = next((format_value(value, unit) for i, value in values if i == spread.median_index), "")
    description += f"; the median-indexed window has {median_text}" if median_text else ""
    return {
        "row": spread.row,
        "dots": dots,
        "box": (format_css_percent(locate(first)), format_css_percent(locate(third) - locate(first))),
        "middle": format_css_percent(locate(median(sorted_values))),
        "limit": format_css_percent(locate(limit)) if limit in drawn_values and limit is not None else "",
        "ends": (format_value(low, unit), format_value(high, unit)),
        "said": description,
        "same": "",
        "why": "",
    }


def _is_limit_near(limit: Fraction | int, low: Fraction | int, high: Fraction | int) -> bool:
    """Whether the dots can still be distinguished if the limit is drawn too."""
    # Three times the spread leaves the dots a quarter of the width; for equal values a twentieth counts as the spread.
    room = 3 * max(high - low, abs(Fraction(high)) / 20)
    return low - room <= limit <= high + room
