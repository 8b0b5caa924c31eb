"""How does a session leave as JSON? Every assertion and every row of it, in the shape of ``report.schema.json``.

A value comes twice: ``exact`` in the base of the metric's unit (whole nanoseconds, plain ratios, counts), a whole
number or ``"a/b"``; and ``text``, as people read it. There are no times in it: the same traces give the same
bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from pytest_nsys.core.exact import Exact, from_exact
from pytest_nsys.core.model import printable
from pytest_nsys.core.units import format_value
from pytest_nsys.core.version import VERSION
from pytest_nsys.gates.gate_changes import GateChanges
from pytest_nsys.reports.causes import Plain
from pytest_nsys.reports.session import shape
from pytest_nsys.reports.session.digest import STATES, Digest, FileRecords
from pytest_nsys.reports.session.record import AMOUNTS, explanation_of, notes_of, state, steps_of
from pytest_nsys.reports.session.shape import filled
from pytest_nsys.reports.tables import without_halves
from pytest_nsys.reports.text import change_words, distance_words

FORMAT = 1

DIFFERENCES = ("tolerance", "noise", "sees", "margin")
"""Amounts that are distances: of a ratio, percentage points."""


def report_text(digest: Digest) -> str:
    """The file's text; ASCII alone, so that no name reaches a terminal as more than itself."""
    return without_halves(json.dumps(report(digest), indent=1)) + "\n"


def report(digest: Digest) -> dict[str, Any]:
    """The session as ``report.schema.json`` describes it."""
    counts = digest.counts
    return {
        "format": FORMAT,
        "pytest_nsys": VERSION,
        "verdict": digest.verdict,
        "good": digest.good,
        "headline": digest.headline,
        "exit_status": digest.exit_status,
        "counts": {word: counts[word] for word in STATES},
        "mistakes": [{"file": m.file, "line": m.line, "column": m.column, "text": m.text} for m in digest.mistakes],
        "gate_changes": None if digest.gate_changes is None else _gate_changes(digest.gate_changes),
        "left_out": [{**asdict(one), "name": one.name or None} for one in digest.left_out],
        "baseline_changes": list(digest.baseline_changes),
        "changed_baselines": [dict(each) for each in digest.changed_baselines],
        "refreshed": list(digest.refreshed),
        "gate_files": [*map(_gate_file, digest.files)],
    }


def _gate_changes(changes: GateChanges) -> dict[str, Any]:
    found = [filled(shape.GateChange, {"file": printable(e.file, 2000)}, e, e.change) for e in changes.found]
    return filled(shape.GateChanges, {"problem": printable(changes.problem, 2000), "changes": found}, changes)


def _gate_file(file: FileRecords) -> dict[str, Any]:
    """One file; what its assertions share stands here once."""
    windows: dict[str, Any] = {}
    for record in file.records:
        if record["measured_as"]:
            windows.setdefault(record["measured_as"], record["used_windows"])
    return {
        "file": file.name,
        "run": file.run,
        "traces": file.first("traces", []),
        "key": file.first("key", None),
        "windows": [
            {"measured_as": how, "windows": [filled(shape.Window, each) for each in used]}
            for how, used in windows.items()
        ],
        "assertions": [*map(_assertion, file.records)],
    }


def _assertion(record: Plain) -> dict[str, Any]:
    own = {
        "state": state(record),
        "worst": filled(shape.Worst, record),
        "notes": list(map(str, notes_of(record))),
        "next_steps": list(map(str, steps_of(record))),
        "explanation": explanation_of(record),
        "rows": [_row(row, record["unit"]) for row in record["judged"]],
    }
    return filled(shape.Assertion, own, record)


def _row(row: Plain, unit: str) -> dict[str, Any]:
    amounts = {name: amount(row[name], unit, distance=name in DIFFERENCES) for name in AMOUNTS}
    return filled(shape.Row, {**amounts, "change": _change(row, unit)}, row)


def amount(value: Exact, unit: str, *, distance: bool = False) -> dict[str, Any] | None:
    """A value, exact and as people read it; a ``distance`` between ratios is in percentage points."""
    number = from_exact(value)
    if number is None:
        return None
    return {"exact": value, "text": (distance_words if distance else format_value)(number, unit)}


def _change(row: Plain, unit: str) -> dict[str, Any] | None:
    value, baseline = from_exact(row["value"]), from_exact(row["baseline"])
    if value is None or baseline is None:
        return None
    moved = Fraction(value) - baseline
    exact = int(moved) if moved.denominator == 1 else str(moved)
    return {"exact": exact, "text": change_words(value, baseline, unit)}
