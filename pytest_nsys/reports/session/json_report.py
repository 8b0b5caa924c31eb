"""How is a session written as JSON? With every assertion and every row, as ``report.schema.json`` describes them.

A value appears twice: ``exact`` in the base of the metric's unit (whole nanoseconds, plain ratios, counts), a whole
number or ``"a/b"``; and ``text``, as people read it. The file contains no date, so that the same traces give the same
bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.explain.breakdown_model import RowExplanation
from pytest_nsys.analysis.windows.window_selection import UsedWindow
from pytest_nsys.core.exact import encode_exact, simplify_fraction
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.numbers import format_change, format_distance, format_value
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import TIME
from pytest_nsys.core.version import VERSION
from pytest_nsys.gates.model import Difference, JudgedRow, Verdict
from pytest_nsys.reports.session.comparison_tables import describe_significance
from pytest_nsys.reports.session.headline import format_headline
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.session import STATES, Session, find_run_record
from pytest_nsys.reports.session.story_json import LONGEST_NAME, Json, build_change_json, build_story_json
from pytest_nsys.reports.tables.formats import sanitize_json
from pytest_nsys.reports.words.cause_text import choose_row_names, describe_budget_change, list_causes
from pytest_nsys.reports.words.change_text import describe_cause, describe_lost_gain
from pytest_nsys.reports.words.verdict_text import describe_limit_source
from pytest_nsys.verdicts.comparison import Comparison, OneSidedItem, Side

FORMAT = 1


def render_report(session: Session) -> str:
    """Return the text of the JSON report, in ASCII, so that no name can send control characters to a terminal."""
    return sanitize_json(json.dumps(build_report(session), indent=1)) + "\n"


def build_report(session: Session) -> Json:
    """Return the session as ``report.schema.json`` describes it."""
    counts, merge_base, comparison = session.counts, session.merge_base, session.comparison
    return {
        "format": FORMAT,
        "pytest_nsys": VERSION,
        "verdict": session.verdict,
        "good": session.good,
        "headline": format_headline(session),
        "story": build_story_json(session.story),
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
        "comparison": _build_comparison_json(comparison) if comparison is not None else None,
        "gate_files": [_build_gate_file_json(records) for records in session.records_by_address.values()],
    }


def sanitize_labels(labels: Mapping[str, Label]) -> dict[str, Label]:
    """Return the labels with their texts shortened and without control characters."""
    return {
        dimension: label if isinstance(label, int) else sanitize_line(label, LONGEST_NAME)
        for dimension, label in labels.items()
    }


def _build_comparison_json(comparison: Comparison) -> Json:
    return {
        "result": comparison.result,
        "significance": describe_significance(comparison),
        "base": _build_side_json("base", comparison.base, comparison),
        "head": _build_side_json("head", comparison.head, comparison),
        "circumstances": [
            {**_build_difference_json(difference), "must_agree": must_agree}
            for difference, must_agree in comparison.circumstances.items()
        ],
        "windows": _build_windows_json(comparison.windows),
        "not_held": [*comparison.not_held],
        "looked_at": comparison.compared_window,
        "appeared": [_build_one_sided_json(one_sided) for one_sided in comparison.appeared],
        "vanished": [_build_one_sided_json(one_sided) for one_sided in comparison.vanished],
        "kernels": [
            {
                "name": sanitize_line(kernel.name, LONGEST_NAME),
                "base_ns": encode_exact(kernel.base_ns),
                "head_ns": encode_exact(kernel.head_ns),
            }
            for kernel in comparison.kernels.kernels
        ],
        "kernels_per": comparison.kernels.per_text,
    }


def _build_one_sided_json(one_sided: OneSidedItem) -> Json:
    return {
        "kind": one_sided.kind,
        "name": one_sided.name,
        "ranks": [*one_sided.ranks],
        "all_ranks": one_sided.all_ranks,
        "launches": one_sided.launches if isinstance(one_sided.launches, int) else float(one_sided.launches),
        "captures": one_sided.captures,
    }


def _build_side_json(name: str, side: Side, comparison: Comparison) -> Json:
    return {
        "traces": [*side.paths],
        "ranks": [*side.ranks],
        "profilers": [*side.profilers],
        "key": side.key.as_json(),
        "notes": [str(note) for side_name, note in comparison.notes if side_name == name],
    }


def _build_gate_file_json(records: Sequence[AssertionRecord]) -> Json:
    """Return one gate file as JSON; what its assertions share is written once."""
    first, windows = find_run_record(records), dict[str, Sequence[UsedWindow]]()
    for verdict in (record.verdict for record in records if record.verdict.measured_as):
        windows.setdefault(verdict.measured_as, verdict.windows)
    return {
        "file": first.file,
        "configuration": first.configuration,
        "run": first.run,
        "traces": [*first.traces],
        "key": None if first.key is None else first.key.as_json(),
        "windows": _build_windows_json(windows),
        "assertions": [_build_assertion_json(record) for record in records],
    }


def _build_windows_json(windows: Mapping[str, Sequence[UsedWindow]]) -> list[Json]:
    return [
        {
            "measured_as": measured_as,
            "windows": [
                {
                    # People count captures from 1, as all messages do.
                    "capture": used.capture + 1,
                    "rank": used.rank,
                    "name": sanitize_line(used.window.name, 400),
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


def _build_difference_json(difference: Difference) -> Json:
    return {"name": difference.name, "now": difference.current, "baseline": difference.baseline}


def _build_assertion_json(record: AssertionRecord) -> Json:
    verdict, assertion = record.verdict, record.assertion
    return {
        "name": record.name,
        "line": record.line,
        "sentence": assertion.sentence,
        "metric": assertion.metric,
        "unit": verdict.unit,
        "comparator": assertion.requirement.comparator or "",
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
        "differences": [_build_difference_json(difference) for difference in verdict.differences],
        "details": [*verdict.details],
        "causes": [_build_cause_json(row) for row in verdict.causes],
        "doubts": [note.text for note in verdict.notes if note.warning],
        "notes": [note.text for note in verdict.notes if not note.warning],
        "warnings": [*verdict.warnings],
        "next_steps": [str(step) for step in record.next_steps],
        "explanation": record.full_explanation,
        "rows": [_build_row_json(row, verdict) for row in verdict.rows],
    }


def _build_row_json(row: JudgedRow, verdict: Verdict) -> Json:
    unit = verdict.unit
    return {
        "labels": sanitize_labels(row.labels),
        "outcome": row.outcome,
        "limit_source": describe_limit_source(verdict.assertion, unit, row),
        "test": sanitize_line(row.test),
        "waived": row.waived,
        "early_warning": row.early_warning,
        "value": build_amount_json(row.value, unit),
        "limit": build_amount_json(row.limit, unit),
        "baseline": build_amount_json(row.baseline, unit),
        "tolerance": build_amount_json(row.tolerance, unit, is_distance=True),
        "noise": build_amount_json(row.noise, unit, is_distance=True),
        "sees": build_amount_json(row.visible_change, unit, is_distance=True),
        "margin": build_amount_json(row.margin, unit, is_distance=True),
        "ceiling": build_amount_json(row.ceiling, unit),
        "serialization": build_amount_json(row.serialization, unit),
        "step": build_amount_json(row.step_ns, TIME),
        "change": _build_change_amount_json(row, unit),
        "times_tolerance": None if row.times_tolerance is None else float(row.times_tolerance),
        **({} if row.claim is None else {"claim": row.claim._asdict()}),
    }


def build_amount_json(value: Value | None, unit: str, *, is_distance: bool = False) -> Json | None:
    """Return a value as JSON, both exact and as text for people; None if there is no value.

    With ``is_distance`` the value is a difference of two values: for ratios its text is in percentage points.
    """
    if value is None:
        return None
    return {"exact": encode_exact(value), "text": (format_distance if is_distance else format_value)(value, unit)}


def _build_change_amount_json(row: JudgedRow, unit: str) -> Json | None:
    if row.value is None or row.baseline is None:
        return None
    change = simplify_fraction(Fraction(row.value) - row.baseline)
    return {"exact": encode_exact(change), "text": format_change(row.value, row.baseline, unit)}


def _build_cause_json(row: RowExplanation) -> Json:
    explanation, budget, display_names = row.explanation, row.explanation.budget_change, choose_row_names(row)
    return {
        "labels": sanitize_labels(row.labels),
        "roots": [build_change_json(change) for change in row.root_causes],
        "change_ns": explanation.change_ns,
        "unexplained_ns": explanation.unexplained_ns,
        "why": [{"ns": ns, "text": text} for ns, text in list_causes(row)],
        "budget": None
        if budget is None
        else {
            "change_ns": budget.change_ns,
            "before_ns": budget.baseline_ns,
            "now_ns": budget.current_ns,
            "parts": {str(part): ns for part, ns in budget.parts},
            "text": describe_budget_change(budget),
        },
        "parts": [
            {
                **build_change_json(cause),
                "change_ns": cause.change_ns,
                "straggler": cause.straggler,
                "exposes": sanitize_line(cause.exposed_kernel, LONGEST_NAME),
                "text": describe_cause(cause, display_names),
            }
            for cause in explanation.causes
        ],
        **({} if row.lost_gain is None else {"lost_gain": describe_lost_gain(row.lost_gain)}),
    }
