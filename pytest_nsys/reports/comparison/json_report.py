"""What does a program get of a comparison? One object as ``comparison.schema.json`` has it: nothing is rounded."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_nsys.core.model import Value
from pytest_nsys.gates.assertion import Comparator
from pytest_nsys.gates.verdict import JudgedRow, Verdict
from pytest_nsys.reports.causes import plain_causes
from pytest_nsys.reports.comparison import tables as tables
from pytest_nsys.reports.tables import as_json
from pytest_nsys.verdicts.comparison import Circumstance, ComparedRow, Comparison, OnHead, Side, Thing

SCHEMA = "pytest-nsys/comparison"
VERSION = 1


def as_json_report(comparison: Comparison) -> str:
    """The whole comparison."""
    return as_json(
        {
            "schema": SCHEMA,
            "version": VERSION,
            "result": str(comparison.result),
            "headline": tables.headline(comparison),
            "significance": tables.significance(comparison),
            "base": _side(comparison.base),
            "head": _side(comparison.head),
            "circumstances": [_circumstance(each) for each in comparison.circumstances],
            "counts": {
                "rows": len(comparison.rows),
                "worse": len(comparison.worse),
                "moved": len(comparison.moved),
                "unmoved": len(comparison.unmoved),
            },
            "moved": [_compared(each) for each in comparison.moved],
            "unmoved": [_compared(each) for each in comparison.unmoved],
            "assertions": [_verdict(gate, verdict) for gate, verdict in comparison.verdicts],
            "constants": [_constant(each) for each in comparison.constants],
            "not_held": list(comparison.not_held),
            "looked_at": comparison.looked_at,
            "appeared": [_thing(each) for each in comparison.appeared],
            "vanished": [_thing(each) for each in comparison.vanished],
        }
    )


def _side(side: Side) -> Mapping[str, object]:
    return {
        "traces": list(side.paths),
        "captures": side.captures,
        "ranks": list(side.ranks),
        **side.key.as_json(),
        "profilers": list(side.profilers),
        "windows": [
            {
                "measured_as": measured_as,
                "capture": used.capture,
                "rank": used.rank,
                "name": used.window.name,
                "index": used.window.index,
                "count": used.window.count,
                "start_ns": used.window.start_ns,
                "end_ns": used.window.end_ns,
            }
            for measured_as, windows in side.windows
            for used in windows
        ],
        "notes": list(map(str, side.notes)),
    }


def _circumstance(each: Circumstance) -> Mapping[str, object]:
    found = each.difference
    return {"name": found.name, "base": found.baseline, "head": found.now, "compared": each.compared}


def _compared(each: ComparedRow) -> Mapping[str, object]:
    assertion = each.assertion
    times = each.times_limit
    return {
        "gate": each.gate,
        "line": assertion.location.line,
        "assertion": assertion.name,
        "metric": assertion.metric,
        "subject": tables.subject(assertion),
        "unit": each.unit,
        "word": tables.word(each),
        "counts": each.counts,
        **_row(each.row, assertion.require.comparator),
        "times_tolerance": None if times is None else float(times),
    }


def _row(row: JudgedRow, comparator: Comparator | None) -> dict[str, object]:
    return {
        "outcome": str(row.outcome),
        "labels": dict(row.labels),
        "base": _number(row.baseline),
        "head": _number(row.value),
        "comparator": None if comparator is None else str(comparator),
        "limit": _number(row.limit),
        "tolerance": _number(row.tolerance),
        "margin": _number(row.margin),
        "test": row.test,
        "waived": row.waived,
        "ceiling": _number(row.ceiling),
        "serialization": _number(row.serialization),
    }


def _verdict(gate: str, verdict: Verdict) -> Mapping[str, object]:
    assertion = verdict.assertion
    return {
        "gate": gate,
        "line": assertion.location.line,
        "assertion": assertion.name,
        "sentence": assertion.sentence,
        "metric": assertion.metric,
        "severity": str(assertion.severity),
        "outcome": str(verdict.outcome),
        "message": verdict.message,
        "rows": len(verdict.rows),
        "measured_as": verdict.measured_as,
        "warnings": list(verdict.warnings),
        "details": list(verdict.details),
        "causes": plain_causes(verdict.causes),
    }


def _constant(each: OnHead) -> Mapping[str, object]:
    verdict = each.verdict
    comparator = verdict.assertion.require.comparator
    rows = [_row(row, comparator) for row in verdict.rows]
    base = None if each.base is None else str(each.base)
    return {**_verdict(each.gate, verdict), "unit": verdict.unit, "base": base, "judged": rows}


def _thing(each: Thing) -> Mapping[str, object]:
    return {
        "kind": str(each.kind),
        "name": each.name,
        "ranks": list(each.ranks),
        "all_ranks": each.all_ranks,
        "launches": _number(each.launches),
        "captures": each.captures,
    }


def _number(value: Value | None) -> int | float | None:
    """A whole number whole, a fraction as a program reads it."""
    return value if value is None or isinstance(value, int) else float(value)
