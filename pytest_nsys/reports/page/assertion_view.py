"""What does the page show of one assertion? Its sentence, why it is red, its rows, and how its worst row varies.

How near each row is to its limit is a bar from the line of the limit: to the left what is left, to the right what is
beyond it. Each side of an assertion has its own scale: a row far beyond would hide what is left of the others. How a
row varies over the steady windows is a dot for each window along the values, the median one marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from pytest_nsys.analysis.explain.parts import ChangeKind
from pytest_nsys.core.exact import median, percentile
from pytest_nsys.core.model import merged
from pytest_nsys.core.numbers import MINUS, format_value
from pytest_nsys.core.words import counted
from pytest_nsys.gates.model import JudgedRow, Outcome, Verdict
from pytest_nsys.reports.drawings.pictures import Pictures, Spread
from pytest_nsys.reports.page.page import Drawn, percent
from pytest_nsys.reports.session.headline import as_sentence
from pytest_nsys.reports.session.record import Record
from pytest_nsys.reports.tables.formats import WHOLE_TEXT, table_of
from pytest_nsys.reports.words.causes import cause_table
from pytest_nsys.reports.words.explanation import came_or_went, row_table, rows_to_show


def assertion_view(
    record: Record, pictures: Pictures | None, views: Mapping[str, Drawn], told: set[str]
) -> dict[str, Any]:
    """One assertion. ``windows`` are (id, title) of its timelines on the page; ``causes`` say of a row how much it
    changed and why: (row, change, parts). Those that are ``told`` above are left out; it gets these.
    """
    verdict = record.verdict
    spread = pictures.spread if pictures is not None else None
    keys = [one.key for one in pictures.windows] if pictures is not None else []
    causes = {str(row): row for row in verdict.causes if str(row) not in told}
    told.update(causes)
    return {
        "record": record,
        "others": 0,
        "configurations": None,
        "said": as_sentence(record.message),
        "figures": [*_figures(record)],
        "next": record.next_steps,
        "rows": _rows(verdict),
        "causes": [why for each in [*causes.values()][:MOST_EXPLAINED] if (why := cause_table(each))[2].rows],
        "differences": table_of(
            "What differs", ("circumstance", "now", "baseline"), verdict.differences, longest=WHOLE_TEXT
        ),
        "spread": _spread(spread, verdict.unit) if spread is not None else None,
        "windows": [(views[key]["id"], views[key]["title"]) for key in keys if key in views],
        "notes": notes_of(record) if record.is_open else [],
    }


MOST_CAME_OR_WENT = 2


def _figures(record: Record) -> Iterator[str]:
    """What stands beside the name: the worst row's value, its limit, what is left to it, and where the row is; of rows
    that one side alone has what came or went.
    """
    verdict, worst = record.verdict, record.worst
    bad = rows_to_show(verdict) if record.is_open else []
    if bad and came_or_went(bad[0], verdict):
        yield from filter(None, (came_or_went(row, verdict) for row in bad[:MOST_CAME_OR_WENT]))
    elif worst["value"]:
        row, limit = worst["row"], record.bound
        yield worst["value"]
        yield from [f"limit {limit}"] if limit else []
        yield from [margin_told(worst["margin"], verdict)] if worst["margin"] else []
        yield from [f"ceiling {worst['ceiling']}"] if worst["ceiling"] else []
        yield row.removeprefix("(").removesuffix(")") if row.startswith("(") else row
    if record.outcome is Outcome.IMPROVED:
        found = (change for row in verdict.causes for change in row.roots)
        gone = next((one.root.name for one in found if one.root.kind is ChangeKind.GONE), "")
        yield f"because {gone} is gone" if gone else ""


def margin_told(margin: str, verdict: Verdict) -> str:
    """``headroom 1.2 ms``, ``over by 1.2 ms``."""
    row = verdict.nearest
    beyond = margin.removeprefix(MINUS)
    if beyond == margin or row is None or row.value is None or row.limit is None:
        return f"headroom {margin}"
    return f"{'over' if row.value > row.limit else 'short'} by {beyond}"


def notes_of(record: Record) -> list[str]:
    """Return what an assertion tells beside its rows; what makes its trace doubtful stands above the table."""
    return [*record.verdict.warnings, *(note.text for note in record.verdict.notes if not note.warning)]


def doubts_in(records: Iterable[Record]) -> list[str]:
    """Return what makes the traces of assertions doubtful, each once."""
    return [note.text for note in merged(n for record in records for n in record.verdict.notes) if note.warning]


WIDTH, MIDDLE = 140, 70
"""Of a bar's picture in pixels: its length, and where the limit is."""

MOST_EXPLAINED = 8
"""Rows of one assertion: those of other ranks read alike."""

MOST_ROWS = 500
"""Of one assertion; the JSON report has all of them."""


def _rows(verdict: Verdict) -> dict[str, Any]:
    """The rows of one assertion, worst first: those to look at, and those that hold. ``more`` says what is left out."""
    rows = verdict.rows
    table = row_table(verdict, rows, MOST_ROWS, margins=True)
    margins = [Fraction(row.margin) for row in rows if row.margin is not None]
    scales = max((-m for m in margins if m < 0), default=None), max((m for m in margins if m > 0), default=None)
    lines = [
        {
            "word": "waived" if row.waived else "near" if row.early_warning else str(row.outcome),
            "cells": cells,
            "bar": _bar(row, scales),
        }
        for row, cells in zip(rows, table.rows, strict=False)
    ]
    return {
        "columns": table.columns,
        "lines": [line for line in lines if line["word"] != "passed"],
        "holding": [line for line in lines if line["word"] == "passed"],
        "more": f"… {counted(table.more, 'more row')}, in the JSON report" if table.more else "",
    }


def _bar(row: JudgedRow, scales: tuple[Fraction | None, Fraction | None]) -> dict[str, Any] | None:
    """A bar from ``left`` of so much ``width``, None of a row without a limit; the kinds differ in shape too."""
    margin = row.margin
    if margin is None:
        return None
    scale = scales[0] if margin < 0 else scales[1]
    width = int(abs(Fraction(margin)) * (MIDDLE - 2) / scale) if scale else 0
    kind = "waived" if row.waived else "crossed" if margin < 0 or row.outcome is Outcome.FAILED else "held"
    return {"left": MIDDLE if margin < 0 else MIDDLE - width, "width": width, "kind": kind}


EDGE = Fraction(4, 100)
"""Of the width, left free at either side."""

ROWS = 4
"""Dots stand in so many rows, by turn, so that equal ones are all seen."""


def _spread(spread: Spread, unit: str) -> dict[str, Any]:
    """The distribution of an assertion's worst row: the dots, the box of the middle half, and the limit where it is
    among the values; or ``why`` there are none. ``unit`` is that of its values.
    """
    values, limit = spread.values, spread.limit
    if not values:
        return {"row": spread.row, "why": spread.why or "no steady window has this row"}
    own = sorted(value for _, value in values)
    shown = [*own, *([limit] if limit is not None and _is_near(limit, own[0], own[-1]) else [])]
    low, high = Fraction(min(shown)), Fraction(max(shown))

    def x(value: Fraction | int) -> Fraction:
        return EDGE + (1 - 2 * EDGE) * (Fraction(value) - low) / (high - low) if high > low else Fraction(1, 2)

    first, third = percentile(own, 25), percentile(own, 75)
    words = [format_value(value, unit) for value in (own[0], median(own), own[-1])]
    dots = [
        (percent(x(v)), n % ROWS, f"window {i + 1}: {format_value(v, unit)}", i == spread.median)
        for n, (i, v) in enumerate(values)
    ]
    said = f"{len(own)} steady windows of {spread.row}: from {words[0]} to {words[2]}, median {words[1]}"
    marked = next((format_value(v, unit) for i, v in values if i == spread.median), "")
    said += f"; the median-indexed window has {marked}" if marked else ""
    return {
        "row": spread.row,
        "dots": dots,
        "box": (percent(x(first)), percent(x(third) - x(first))),
        "middle": percent(x(median(own))),
        "limit": percent(x(limit)) if limit in shown and limit is not None else "",
        "ends": (format_value(low, unit), format_value(high, unit)),
        "said": said,
        "why": "",
    }


def _is_near(limit: Fraction | int, low: Fraction | int, high: Fraction | int) -> bool:
    """Whether the dots are still told apart beside it."""
    room = 3 * max(high - low, abs(Fraction(high)) / 20)
    return low - room <= limit <= high + room
