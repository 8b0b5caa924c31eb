"""A verdict as plain data: what every report shows of it, and what can cross from an xdist worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from typing import Any

from pytest_nsys.analysis.windows import UsedWindow
from pytest_nsys.core.exact import as_exact, from_exact
from pytest_nsys.core.file_names import Address
from pytest_nsys.core.model import Note, Step
from pytest_nsys.core.words import printable
from pytest_nsys.gates.model import Assertion, JudgedRow, Outcome, Verdict
from pytest_nsys.reports.causes import Plain, plain_causes, plain_labels
from pytest_nsys.reports.text import (
    ANY_CHANGE,
    apart,
    ceiling_words,
    limit_cell,
    limit_of,
    limit_source,
    limit_words,
    margin_words,
    place,
    reason_words,
    sees_words,
    shown_windows,
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
    ``ceiling`` how far a waived row may go, which stands in place of its margin. ``windows`` are all that were judged,
    ``shown_windows`` those to show of a bad verdict. ``artifact`` is the file that has the window, ``artifact_lost``
    why there is none. ``explanation`` are the lines below the sentence. ``bound`` is the limit without where it comes
    from, ``reason`` why the verdict is bad, in a few words, ``subject`` what of the metric is judged; ``began`` is when
    the first trace did, in UTC. ``configuration`` is that of the gate file's matrix, empty where it has none.
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
    shown_windows: tuple[str, ...] = ()
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
        shown_windows=() if verdict.outcome is Outcome.PASSED else shown_windows(verdict),
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
        value, _ = apart(row, unit)
        words |= {"value": value, "limit": limit_cell(verdict.assertion, unit, row)}
        if row.limit is not None:
            words["bound"] = limit_words(
                verdict.assertion, limit_of(row, unit, two_sided=verdict.assertion.require.comparator is None)
            )
    return {**words, "sees": sees_words(row, verdict)}


def _judged(verdict: Verdict) -> tuple[dict[str, Any], ...]:
    assertion, unit = verdict.assertion, verdict.unit
    usual = limit_source(assertion, unit)
    return tuple(
        {
            **{name: as_exact(getattr(row, name)) for name in AMOUNTS},
            "labels": plain_labels(row.labels),
            "origin": plain_labels(row.origin),
            "outcome": str(row.outcome),
            "limit_source": usual if row.noise is None else limit_source(assertion, unit, row),
            "test": printable(row.test),
            "waived": row.waived,
            "early_warning": row.early_warning,
        }
        for row in verdict.rows
    )


def judged_row(row: Plain) -> JudgedRow:
    """A row of a plain record as it was judged."""
    own: dict[str, Any] = {name: from_exact(row[name]) for name in AMOUNTS if name != "sees"}
    own |= {name: row[name] for name in ("labels", "origin", "test", "waived", "early_warning")}
    return JudgedRow(outcome=Outcome(row["outcome"]), **own)


@lru_cache(maxsize=256)
def _used(windows: tuple[UsedWindow, ...]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {**asdict(w.window), "name": printable(w.window.name, 400), "capture": w.capture + 1, "rank": w.rank}
        for w in windows
    )
