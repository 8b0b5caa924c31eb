"""A verdict as plain data: what every report shows of it, and what can cross from an xdist worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from pytest_nsys.analysis.windows import UsedWindow
from pytest_nsys.core.exact import as_exact
from pytest_nsys.core.model import Label, Note, Step, printable
from pytest_nsys.core.units import format_apart, format_value
from pytest_nsys.gates.assertion import Assertion
from pytest_nsys.gates.verdict import JudgedRow, Outcome, Verdict
from pytest_nsys.reports.causes import plain_causes
from pytest_nsys.reports.text import (
    ceiling_words,
    limit_source,
    limit_words,
    margin_words,
    place,
    rule_words,
    sees_words,
    window_lines,
)


@dataclass(frozen=True, slots=True)
class Record:
    """Only text, numbers, lists and dictionaries: a Fraction or a Path would not survive the way to another process.

    The texts up to ``warnings`` are of the row that is nearest to failing, or fails worst; ``judged`` holds them all,
    worst first, in numbers. ``sees`` is the smallest change that the gate can see, with what stands behind it;
    ``ceiling`` how far a waived row may go, which stands in place of its margin. ``artifact`` is the file that has the
    window, ``artifact_lost`` why there is none. ``explanation`` are the lines below the sentence.
    """

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
    notes: tuple[Note, ...] = ()
    warnings: tuple[str, ...] = ()
    sees: str = ""
    sentence: str = ""
    metric: str = ""
    unit: str = ""
    comparator: str = ""
    judged: tuple[Mapping[str, Any], ...] = ()
    used_windows: tuple[Mapping[str, Any], ...] = ()
    differences: tuple[Mapping[str, str], ...] = ()
    traces: tuple[str, ...] = ()
    key: Mapping[str, Any] = field(default_factory=dict)
    next_steps: tuple[Step, ...] = ()
    explanation: tuple[str, ...] = ()
    ceiling: str = ""
    details: tuple[str, ...] = ()
    causes: tuple[Mapping[str, Any], ...] = ()
    artifact: str = ""
    artifact_lost: str = ""

    def plain(self) -> dict[str, Any]:
        """The record as a dictionary of text, numbers, lists and dictionaries; a Note and a Step are tuples."""
        values = ((f.name, getattr(self, f.name)) for f in fields(self))
        found = {name: list(v) if isinstance(v, tuple) else v for name, v in values}
        return found | {name: [tuple(each) for each in getattr(self, name)] for name in ("notes", "next_steps")}

    def properties(self) -> list[tuple[str, object]]:
        """What JUnit shows of it; what is empty is left out."""
        shown = {
            "nsys_outcome": self.outcome,
            "nsys_message": self.message,
            "nsys_value": self.value,
            "nsys_limit": self.limit,
            "nsys_margin": self.margin,
            "nsys_ceiling": self.ceiling,
            "nsys_sees": self.sees,
            "nsys_row": self.row,
            "nsys_rows": self.rows,
            "nsys_run": self.run,
            "nsys_baseline": self.baseline,
            "nsys_window": "; ".join(self.windows),
            "nsys_measured_as": self.measured_as,
            "nsys_line": self.line,
        }
        return [(name, value) for name, value in shown.items() if value not in ("", 0)]


def state(record: Mapping[str, Any]) -> str:
    """How an assertion ended in one word: its outcome, or why pytest takes it otherwise.

    ``record`` is plain; ``good`` says that pytest takes it as passed, ``xfailed`` that it was expected to fail.
    """
    outcome = str(record["outcome"])
    if record.get("xfailed"):
        return "xfailed"
    if outcome in (Outcome.PASSED, Outcome.FAILED) and not record.get("good", True):
        return "failed"  # also by -W error, or as an expected failure that did not happen
    if outcome == Outcome.FAILED and record["severity"] == "warn":
        return "warned"
    if outcome == Outcome.PASSED and any(row["waived"] for row in record["judged"]):
        return "waived"
    return "warned" if outcome == Outcome.PASSED and record["warnings"] else outcome


def notes_of(record: Mapping[str, Any]) -> list[Note]:
    """The notes of a plain record."""
    return [Note(*each) for each in record["notes"]]


def steps_of(record: Mapping[str, Any]) -> list[Step]:
    """What a plain record says to do next."""
    return [Step(*each) for each in record["next_steps"]]


def explanation_of(record: Mapping[str, Any]) -> str:
    """A bad verdict, whole: the sentence with its line, and what stands below it; empty where nothing does."""
    head = f"{record['file']}:{record['line']}: {record['sentence']}"
    return "\n".join([head, *record["explanation"]]) if record["explanation"] else ""


def error_record(assertion: Assertion, message: str, outcome: Outcome = Outcome.ERROR) -> Record:
    """The record of an assertion that could not be judged."""
    return Record(
        file=str(assertion.location.path),
        line=assertion.location.line,
        name=assertion.name,
        outcome=str(outcome),
        message=printable("; ".join(line.strip() for line in message.splitlines()), 2000),
        severity=str(assertion.severity),
        sentence=assertion.sentence,
        metric=assertion.metric,
    )


def record_of(verdict: Verdict, run: str, baseline: str) -> Record:
    """The record of a verdict, with the row that is nearest to failing, or fails worst."""
    worst = verdict.nearest
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
        ceiling=ceiling_words(worst, verdict) if worst is not None else "",
        row=place(worst) if worst is not None else "",
        rows=len(verdict.rows),
        run=printable(run, 1000),
        baseline=baseline,
        measured_as=verdict.measured_as,
        windows=window_lines(verdict.windows),
        notes=tuple(note.printable(400) for note in verdict.notes),
        warnings=verdict.warnings,
        sees=sees_words(worst, verdict) if worst is not None else "",
        sentence=verdict.assertion.sentence,
        metric=verdict.assertion.metric,
        unit=verdict.unit,
        comparator=str(verdict.assertion.require.comparator or ""),
        judged=_judged(verdict),
        used_windows=_used(verdict.windows),
        details=tuple(printable(line, 2000) for line in verdict.details),
        causes=tuple(plain_causes(verdict.causes)),
        differences=tuple({"name": d.name, "now": d.now, "baseline": d.baseline} for d in verdict.differences),
    )


def _judged(verdict: Verdict) -> tuple[dict[str, Any], ...]:
    assertion, unit = verdict.assertion, verdict.unit
    usual = limit_source(assertion, unit)
    sources = (usual if row.noise is None else limit_source(assertion, unit, row) for row in verdict.rows)
    return tuple(_plain(row, source) for row, source in zip(verdict.rows, sources, strict=True))


def _plain(row: JudgedRow, source: str) -> dict[str, Any]:
    return {
        "labels": {dimension: _label(label) for dimension, label in row.labels.items()},
        "outcome": str(row.outcome),
        "value": as_exact(row.value),
        "limit": as_exact(row.limit),
        "limit_source": source,
        "baseline": as_exact(row.baseline),
        "tolerance": as_exact(row.tolerance),
        "noise": as_exact(row.noise),
        "sees": as_exact(row.sees),
        "margin": as_exact(row.margin),
        "ceiling": as_exact(row.ceiling),
        "serialization": as_exact(row.serialization),
        "test": printable(row.test),
        "waived": row.waived,
        "early_warning": row.early_warning,
    }


def _label(label: Label) -> Label:
    return label if isinstance(label, int) else printable(label, 2000)


@lru_cache(maxsize=256)
def _used(windows: tuple[UsedWindow, ...]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "capture": used.capture + 1,
            "rank": used.rank,
            "name": printable(used.window.name, 400),
            "index": used.window.index,
            "count": used.window.count,
            "start_ns": used.window.start_ns,
            "end_ns": used.window.end_ns,
        }
        for used in windows
    )


def _value_and_limit(verdict: Verdict, row: JudgedRow | None) -> tuple[str, str]:
    if row is None or row.value is None:
        return "", ""
    unit = verdict.unit
    if row.limit is None:
        return format_value(row.value, unit), ""
    same = row.value == row.limit
    value, limit = (format_value(row.value, unit),) * 2 if same else format_apart(row.value, row.limit, unit)
    source = limit_source(verdict.assertion, unit, row)
    words = limit_words(verdict.assertion, limit)
    return value, (f"{words} ({source})" if source else words) + rule_words(row)
