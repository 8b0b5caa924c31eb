"""A verdict as plain data: what every report shows of it, and what can cross from an xdist worker.

The table of its judged rows is made of it here too: the job summary and the page print the same columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from functools import lru_cache
from typing import Any

from pytest_nsys.analysis.windows import UsedWindow
from pytest_nsys.core.exact import Exact, as_exact, from_exact
from pytest_nsys.core.file_names import Address
from pytest_nsys.core.model import Note, Step
from pytest_nsys.core.numbers import Scale, change_words, distance_words, format_apart, format_value, scale_of
from pytest_nsys.core.words import printable
from pytest_nsys.gates.assertion import Assertion
from pytest_nsys.gates.verdict import Outcome, Verdict
from pytest_nsys.reports.causes import Plain, plain_causes, plain_labels
from pytest_nsys.reports.tables import CellKind, Column, Table, Told, number, table_by
from pytest_nsys.reports.text import (
    ANY_CHANGE,
    apart,
    ceiling_words,
    limit_cell,
    limit_source,
    limit_words,
    margin_words,
    place,
    reason_words,
    sees_words,
    subject,
    window_lines,
)

AMOUNTS = ("value", "limit", "baseline", "tolerance", "noise", "sees", "margin", "ceiling", "serialization")
"""What of a judged row is a value."""


@dataclass(frozen=True, slots=True)
class Record:
    """Only text, numbers, lists and dictionaries: a Fraction or a Path would not survive the way to another process.

    The texts up to ``warnings`` are of the row that is nearest to failing, or fails worst; ``judged`` holds them all,
    worst first, in numbers. ``sees`` is the smallest change that the gate can see, with what stands behind it;
    ``ceiling`` how far a waived row may go, which stands in place of its margin. ``artifact`` is the file that has the
    window, ``artifact_lost`` why there is none. ``explanation`` are the lines below the sentence. ``bound`` is the
    limit without where it comes from, ``reason`` why the verdict is bad, in a few words, ``subject`` what of the metric
    is judged; ``began`` is when the first trace did, in UTC. ``configuration`` is that of the gate file's matrix, empty
    where it has none.
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
    bound: str = ""
    reason: str = ""
    subject: str = ""
    began: str = ""
    configuration: str = ""

    def plain(self) -> dict[str, Any]:
        """The record as a dictionary of text, numbers, lists and dictionaries; a Note and a Step are tuples."""
        values = ((f.name, getattr(self, f.name)) for f in fields(self))
        found = {name: list(v) if isinstance(v, tuple) else v for name, v in values}
        return found | {name: [tuple(each) for each in getattr(self, name)] for name in ("notes", "next_steps")}

    def properties(self) -> list[tuple[str, object]]:
        """What JUnit shows of it; what is empty is left out."""
        names = ("outcome", "message", "value", "limit", "margin", "ceiling", "sees", "row", "rows", "run", "baseline")
        shown = {name: getattr(self, name) for name in names}
        shown |= {"window": "; ".join(self.windows), "measured_as": self.measured_as, "line": self.line}
        return [(f"nsys_{name}", value) for name, value in shown.items() if value not in ("", 0)]


def state(record: Plain) -> str:
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


LOOKED_AT = (Outcome.FAILED, Outcome.INCONCLUSIVE, Outcome.IMPROVED)
"""Outcomes of an assertion that pytest may take as passed, and that deserve a look all the same."""


def is_open(record: Plain) -> bool:
    """Whether a person should look at it."""
    return not record["good"] or record["outcome"] in LOOKED_AT


def notes_of(record: Plain) -> list[Note]:
    return [Note(*each) for each in record["notes"]]


def steps_of(record: Plain) -> list[Step]:
    return [Step(*each) for each in record["next_steps"]]


def explanation_of(record: Plain) -> str:
    """A bad verdict, whole: why, which pytest's short summary shows, the sentence with its line, and what stands below.

    Empty where there is nothing to explain.
    """
    if not record["explanation"]:
        return ""
    return "\n".join([record["reason"], sentence_at(record), *record["explanation"]])


def title_of(record: Plain) -> str:
    """The name of an assertion, with its configuration where it is judged on several: as pytest has it."""
    return f"{record['name']}[{record['configuration']}]" if record["configuration"] else str(record["name"])


def address_of(record: Plain) -> str:
    """The gate file, with its configuration where it has several."""
    return str(Address(record["file"], record["configuration"]))


def sentence_at(record: Plain) -> str:
    """Where an assertion is, and what it says."""
    return f"{record['file']}:{record['line']}: {record['sentence']}"


def error_record(assertion: Assertion, message: str, outcome: Outcome = Outcome.ERROR) -> Record:
    return _record(assertion, outcome, "; ".join(line.strip() for line in message.splitlines()))


def detects_words(record: Plain) -> str:
    """The smallest change that the gate detects, as people read it: ``≥ 50 us (uncalibrated)``."""
    seen = record["sees"]
    return f"≥ {seen}" if seen and seen != ANY_CHANGE else seen


def _record(assertion: Assertion, outcome: Outcome, message: str, **more: Any) -> Record:
    return Record(
        file=str(assertion.location.path),
        line=assertion.location.line,
        name=assertion.name,
        outcome=str(outcome),
        message=printable(message, 2000),
        severity=str(assertion.severity),
        sentence=assertion.sentence,
        metric=assertion.metric,
        **more,
    )


def record_of(verdict: Verdict, run: str, baseline: str) -> Record:
    return _record(
        verdict.assertion,
        verdict.outcome,
        verdict.message,
        **_worst(verdict),
        reason=reason_words(verdict),
        subject=subject(verdict.assertion),
        rows=len(verdict.rows),
        run=printable(run, 1000),
        baseline=baseline,
        measured_as=verdict.measured_as,
        windows=window_lines(verdict.windows),
        notes=tuple(note.printable(400) for note in verdict.notes),
        warnings=verdict.warnings,
        unit=verdict.unit,
        comparator=str(verdict.assertion.require.comparator or ""),
        judged=_judged(verdict),
        used_windows=_used(verdict.windows),
        details=tuple(printable(line, 2000) for line in verdict.details),
        causes=tuple(plain_causes(verdict.causes)),
        differences=tuple({"name": d.name, "now": d.now, "baseline": d.baseline} for d in verdict.differences),
    )


def _worst(verdict: Verdict) -> dict[str, Any]:
    row, unit = verdict.nearest, verdict.unit
    if row is None:
        return {}
    words = {"row": place(row), "margin": margin_words(row, verdict), "ceiling": ceiling_words(row, verdict)}
    if row.value is not None:
        value, limit = apart(row, unit)
        words |= {"value": value, "limit": limit_cell(verdict.assertion, unit, row)}
        if row.limit is not None:
            words["bound"] = limit_words(verdict.assertion, limit)
    return {**words, "sees": sees_words(row, verdict)}


def _judged(verdict: Verdict) -> tuple[dict[str, Any], ...]:
    assertion, unit = verdict.assertion, verdict.unit
    usual = limit_source(assertion, unit)
    return tuple(
        {
            **{name: as_exact(getattr(row, name)) for name in AMOUNTS},
            "labels": plain_labels(row.labels),
            "outcome": str(row.outcome),
            "limit_source": usual if row.noise is None else limit_source(assertion, unit, row),
            "test": printable(row.test),
            "waived": row.waived,
            "early_warning": row.early_warning,
        }
        for row in verdict.rows
    )


@lru_cache(maxsize=256)
def _used(windows: tuple[UsedWindow, ...]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {**asdict(w.window), "name": printable(w.window.name, 400), "capture": w.capture + 1, "rank": w.rank}
        for w in windows
    )


NO_VALUE = "–"


def coordinates(rows: Sequence[Plain]) -> list[Told[Plain]]:
    """A column for each dimension of these rows, in the order of the metric."""
    dimensions = dict.fromkeys(d for row in rows for d in row["labels"])
    return [(Column(d, CellKind.LABEL), _coordinate(d)) for d in dimensions]


def _coordinate(dimension: str) -> Callable[[Plain], str]:
    return lambda row: str(row["labels"].get(dimension, ""))


def row_table(record: Plain, rows: Sequence[Plain], limit: int, *, margins: bool = False) -> Table:
    """The first ``limit`` of these ``rows`` of a plain record: where each is, its value, its limit with its source.

    Before the limit, where something is stored, the baseline and the change; after it what is left to it, if
    ``margins``, and what a test says of two sets of captures.
    """
    unit = record["unit"]
    values = [from_exact(row[name]) for row in rows[:limit] for name in ("value", "baseline", "limit")]
    scale = scale_of(values, unit)
    stored: list[Told[Plain]] = [
        (number("baseline"), lambda row: _value(row["baseline"], unit, scale)),
        (number("change"), lambda row: change_words(from_exact(row["value"]), from_exact(row["baseline"]), unit)),
    ]
    columns: list[Told[Plain]] = [
        *coordinates(rows),
        (number("now"), lambda row: _apart(row, unit, scale)[0]),
        *(stored if any(row["baseline"] is not None or row["limit"] is None for row in rows) else ()),
        ("limit", lambda row: _limit(row, record, scale)),
    ]
    if margins:
        columns.append((number("headroom"), lambda row: _margin(row, unit)))
    if any(row["test"] for row in rows):
        columns.append(("test", lambda row: str(row["test"])))
    return table_by("", columns, rows, limit)


def _value(stored: Exact, unit: str, scale: Scale) -> str:
    value = from_exact(stored)
    return NO_VALUE if value is None else format_value(value, unit, scale=scale)


def _apart(row: Plain, unit: str, scale: Scale) -> tuple[str, str]:
    value, limit = from_exact(row["value"]), from_exact(row["limit"])
    if value is not None and limit is not None:
        return format_apart(value, limit, unit, scale, written=row["baseline"] is None)
    return "gone" if value is None else format_value(value, unit, scale=scale), _value(row["limit"], unit, scale)


def _limit(row: Plain, record: Plain, scale: Scale) -> str:
    if row["limit"] is None:
        return NO_VALUE
    source = f"({row['limit_source']})" if row["limit_source"] else ""
    return f"{record['comparator']} {_apart(row, record['unit'], scale)[1]} {source}".strip()


def _margin(row: Plain, unit: str) -> str:
    """What is left to the limit, negative where it is crossed; of a waived row what is left to its ceiling."""
    value, ceiling, margin = (from_exact(row[name]) for name in ("value", "ceiling", "margin"))
    if row["waived"] and value is not None and ceiling is not None:
        return f"{distance_words(abs(Fraction(ceiling) - value), unit)} to its ceiling"
    return NO_VALUE if margin is None else distance_words(margin, unit)
