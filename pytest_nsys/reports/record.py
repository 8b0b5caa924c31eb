"""A verdict as plain data: what the summary and JUnit show of it, and what can cross from an xdist worker."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from pytest_nsys.gates.assertion import Assertion
from pytest_nsys.gates.units import format_apart, format_value
from pytest_nsys.gates.verdict import JudgedRow, Outcome, Verdict
from pytest_nsys.model import printable
from pytest_nsys.reports.text import limit_source, limit_words, margin_words, place, row_to_name, window_lines


@dataclass(frozen=True, slots=True)
class Record:
    """Only text and numbers: a Fraction or a Path would not survive the way to another process."""

    file: str
    line: int
    name: str
    outcome: str
    message: str
    severity: str
    value: str = ""
    limit: str = ""
    margin: str = ""
    row: str = ""
    rows: int = 0
    run: str = ""
    baseline: str = ""
    measured_as: str = ""
    windows: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """The record as a dictionary of text, numbers and lists."""
        values = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values}

    def properties(self) -> list[tuple[str, object]]:
        """What JUnit shows of it; what is empty is left out."""
        shown = {
            "nsys_outcome": self.outcome,
            "nsys_message": self.message,
            "nsys_value": self.value,
            "nsys_limit": self.limit,
            "nsys_margin": self.margin,
            "nsys_row": self.row,
            "nsys_rows": self.rows,
            "nsys_run": self.run,
            "nsys_baseline": self.baseline,
            "nsys_window": "; ".join(self.windows),
            "nsys_measured_as": self.measured_as,
            "nsys_line": self.line,
        }
        return [(name, value) for name, value in shown.items() if value not in ("", 0)]


def error_record(assertion: Assertion, message: str, outcome: Outcome = Outcome.ERROR) -> Record:
    """The record of an assertion that could not be judged."""
    return Record(
        file=str(assertion.location.path),
        line=assertion.location.line,
        name=assertion.name,
        outcome=str(outcome),
        message=printable(message, 2000),
        severity=str(assertion.severity),
    )


def record_of(verdict: Verdict, run: str, baseline: str) -> Record:
    """The record of a verdict, with the row that is nearest to failing, or fails worst."""
    worst = row_to_name(verdict)
    value, limit = _value_and_limit(verdict, worst)
    return Record(
        file=str(verdict.assertion.location.path),
        line=verdict.assertion.location.line,
        name=verdict.assertion.name,
        outcome=str(verdict.outcome),
        message=printable(verdict.message, 2000),
        severity=str(verdict.assertion.severity),
        value=value,
        limit=limit,
        margin=margin_words(worst, verdict) if worst is not None else "",
        row=place(worst) if worst is not None else "",
        rows=len(verdict.rows),
        run=printable(run, 1000),
        baseline=baseline,
        measured_as=verdict.measured_as,
        windows=window_lines(verdict.windows),
        notes=tuple(printable(note, 400) for note in verdict.notes),
        warnings=verdict.warnings,
    )


def _value_and_limit(verdict: Verdict, row: JudgedRow | None) -> tuple[str, str]:
    if row is None or row.value is None:
        return "", ""
    unit = verdict.unit
    if row.limit is None:
        return format_value(row.value, unit), ""
    same = row.value == row.limit
    value, limit = (format_value(row.value, unit),) * 2 if same else format_apart(row.value, row.limit, unit)
    source = limit_source(verdict.assertion, unit)
    words = limit_words(verdict.assertion, limit)
    return value, f"{words} ({source})" if source else words
