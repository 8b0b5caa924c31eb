"""How does a session leave as JSON? Every assertion and every row of it, as ``report.schema.json`` describes them.

A value appears twice: ``exact`` in the base of the metric's unit (whole nanoseconds, plain ratios, counts), a whole
number or ``"a/b"``; and ``text``, as people read it. The file has no date in it: the same traces give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.explain.parts import Explained
from pytest_nsys.analysis.windows.spans import UsedWindow
from pytest_nsys.core.exact import as_exact, exact
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.numbers import change_words, distance_words, format_value
from pytest_nsys.core.units import TIME
from pytest_nsys.core.version import VERSION
from pytest_nsys.core.words import printable
from pytest_nsys.gates.model import Difference, JudgedRow, Verdict
from pytest_nsys.reports.session.headline import of_session
from pytest_nsys.reports.session.record import Record
from pytest_nsys.reports.session.session import STATES, Session, find_run
from pytest_nsys.reports.session.story_json import LONGEST_NAME, Json, change_json, story_json
from pytest_nsys.reports.session.two_sides import significance
from pytest_nsys.reports.tables.formats import without_halves
from pytest_nsys.reports.words.causes import budget_words
from pytest_nsys.reports.words.explanation import limit_source
from pytest_nsys.reports.words.roots import cause_words
from pytest_nsys.verdicts.comparison import Comparison, OneSided, Side

FORMAT = 1


def report_text(session: Session) -> str:
    """Return the text of the JSON report, in ASCII, so that no name reaches a terminal as more than itself."""
    return without_halves(json.dumps(report(session), indent=1)) + "\n"


def report(session: Session) -> Json:
    """Return the session as ``report.schema.json`` describes it."""
    counts, merge_base, comparison = session.counts, session.merge_base, session.comparison
    return {
        "format": FORMAT,
        "pytest_nsys": VERSION,
        "verdict": session.verdict,
        "good": session.good,
        "headline": of_session(session),
        "story": story_json(session.story),
        "exit_status": session.exit_status,
        "counts": {state: counts[state] for state in STATES},
        "mistakes": [
            {"file": mistake.file, "line": mistake.line, "column": mistake.column, "text": mistake.text}
            for mistake in session.mistakes
        ],
        "merge_base": merge_base.as_json() if merge_base is not None else None,
        "not_run": [
            {
                "file": file.file,
                "configuration": file.configuration,
                "assertions": [*file.assertions],
                "why": file.why,
            }
            for file in session.not_run
        ],
        "refreshed": [*session.refreshed],
        "comparison": _comparison(comparison) if comparison is not None else None,
        "gate_files": [_gate_file(records) for records in session.files.values()],
    }


def plain_labels(labels: Mapping[str, Label]) -> dict[str, Label]:
    """Return labels whose texts are cut and show no control characters."""
    return {
        dimension: label if isinstance(label, int) else printable(label, LONGEST_NAME)
        for dimension, label in labels.items()
    }


def _comparison(comparison: Comparison) -> Json:
    return {
        "result": comparison.result,
        "significance": significance(comparison),
        "base": _side("base", comparison.base, comparison),
        "head": _side("head", comparison.head, comparison),
        "circumstances": [
            {**_difference(difference), "must_agree": must_agree}
            for difference, must_agree in comparison.circumstances.items()
        ],
        "windows": _windows(comparison.windows),
        "not_held": [*comparison.not_held],
        "looked_at": comparison.looked_at,
        "appeared": [_one_sided(one_sided) for one_sided in comparison.appeared],
        "vanished": [_one_sided(one_sided) for one_sided in comparison.vanished],
        "kernels": [
            {
                "name": printable(kernel.name, LONGEST_NAME),
                "base_ns": as_exact(kernel.base_ns),
                "head_ns": as_exact(kernel.head_ns),
            }
            for kernel in comparison.kernels.kernels
        ],
        "kernels_per": comparison.kernels.per,
    }


def _one_sided(each: OneSided) -> Json:
    return {
        "kind": each.kind,
        "name": each.name,
        "ranks": [*each.ranks],
        "all_ranks": each.all_ranks,
        "launches": each.launches if isinstance(each.launches, int) else float(each.launches),
        "captures": each.captures,
    }


def _side(name: str, side: Side, comparison: Comparison) -> Json:
    return {
        "traces": [*side.paths],
        "ranks": [*side.ranks],
        "profilers": [*side.profilers],
        "key": side.key.as_json(),
        "notes": [str(note) for side_name, note in comparison.notes if side_name == name],
    }


def _gate_file(records: Sequence[Record]) -> Json:
    """Return one gate file as JSON; what its assertions share stands there once."""
    first, windows = find_run(records), dict[str, Sequence[UsedWindow]]()
    for verdict in (record.verdict for record in records if record.verdict.measured_as):
        windows.setdefault(verdict.measured_as, verdict.windows)
    return {
        "file": first.file,
        "configuration": first.configuration,
        "run": first.run,
        "traces": [*first.traces],
        "key": None if first.key is None else first.key.as_json(),
        "windows": _windows(windows),
        "assertions": [_assertion(record) for record in records],
    }


def _windows(windows: Mapping[str, Sequence[UsedWindow]]) -> list[Json]:
    return [
        {
            "measured_as": measured_as,
            "windows": [
                {
                    "capture": used.capture + 1,
                    "rank": used.rank,
                    "name": printable(used.window.name, 400),
                    "index": used.window.index,
                    "count": used.window.count,
                    "start_ns": used.window.start_ns,
                    "end_ns": used.window.end_ns,
                }
                for used in used_windows
            ],
        }
        for measured_as, used_windows in windows.items()
    ]


def _difference(each: Difference) -> Json:
    return {"name": each.name, "now": each.now, "baseline": each.baseline}


def _assertion(record: Record) -> Json:
    verdict, assertion = record.verdict, record.assertion
    return {
        "name": record.name,
        "line": record.line,
        "sentence": assertion.sentence,
        "metric": assertion.metric,
        "unit": verdict.unit,
        "comparator": assertion.require.comparator or "",
        "severity": assertion.severity.failed,
        "outcome": verdict.outcome,
        "message": verdict.message,
        "accepted_for": verdict.accepted_for,
        "baseline": verdict.compared_with,
        "artifact": record.artifact,
        "state": record.state,
        "good": record.good,
        "on_base": verdict.on_base,
        "measured_as": verdict.measured_as,
        "worst": record.worst,
        "differences": [_difference(difference) for difference in verdict.differences],
        "details": [*verdict.details],
        "causes": [_cause(row) for row in verdict.causes],
        "doubts": [note.text for note in verdict.notes if note.warning],
        "notes": [note.text for note in verdict.notes if not note.warning],
        "warnings": [*verdict.warnings],
        "next_steps": [str(step) for step in record.next_steps],
        "explanation": record.explained,
        "rows": [_row(row, verdict) for row in verdict.rows],
    }


def _row(row: JudgedRow, verdict: Verdict) -> Json:
    unit = verdict.unit
    return {
        "labels": plain_labels(row.labels),
        "outcome": row.outcome,
        "limit_source": limit_source(verdict.assertion, unit, row),
        "test": printable(row.test),
        "waived": row.waived,
        "early_warning": row.early_warning,
        "value": amount(row.value, unit),
        "limit": amount(row.limit, unit),
        "baseline": amount(row.baseline, unit),
        "tolerance": amount(row.tolerance, unit, distance=True),
        "noise": amount(row.noise, unit, distance=True),
        "sees": amount(row.sees, unit, distance=True),
        "margin": amount(row.margin, unit, distance=True),
        "ceiling": amount(row.ceiling, unit),
        "serialization": amount(row.serialization, unit),
        "step": amount(row.step_ns, TIME),
        "change": _change(row, unit),
        "times_tolerance": None if row.times_tolerance is None else float(row.times_tolerance),
    }


def amount(value: Value | None, unit: str, *, distance: bool = False) -> Json | None:
    """Return a value as JSON, exact and as people read it; None where there is none.

    With ``is_distance`` the value is between two others: of ratios it reads in percentage points.
    """
    if value is None:
        return None
    return {"exact": as_exact(value), "text": (distance_words if distance else format_value)(value, unit)}


def _change(row: JudgedRow, unit: str) -> Json | None:
    if row.value is None or row.baseline is None:
        return None
    change = exact(Fraction(row.value) - row.baseline)
    return {"exact": as_exact(change), "text": change_words(row.value, row.baseline, unit)}


def _cause(row: Explained) -> Json:
    explanation, budget = row.explanation, row.explanation.budget
    return {
        "labels": plain_labels(row.labels),
        "roots": [change_json(change) for change in row.roots],
        "change_ns": explanation.change_ns,
        "unexplained_ns": explanation.unexplained_ns,
        "budget": None
        if budget is None
        else {
            "change_ns": budget.change_ns,
            "before_ns": budget.before_ns,
            "now_ns": budget.now_ns,
            "parts": {str(part): ns for part, ns in budget.parts},
            "text": budget_words(budget),
        },
        "parts": [
            {
                **change_json(cause),
                "change_ns": cause.change_ns,
                "straggler": cause.straggler,
                "exposes": printable(cause.exposes, LONGEST_NAME),
                "text": cause_words(cause),
            }
            for cause in explanation.causes
        ],
    }
