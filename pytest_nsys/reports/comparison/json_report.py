"""What does a program get of a comparison? One object as ``comparison.schema.json`` has it: nothing is rounded."""

from __future__ import annotations

from typing import Any

from pytest_nsys.gates.assertion import Assertion
from pytest_nsys.gates.verdict import JudgedRow, Verdict
from pytest_nsys.reports.causes import plain_causes
from pytest_nsys.reports.comparison import shape, tables
from pytest_nsys.reports.session.shape import filled
from pytest_nsys.reports.tables import as_json
from pytest_nsys.verdicts.comparison import ComparedRow, OnHead, Side

SCHEMA = "pytest-nsys/comparison"
VERSION = 1


def as_json_report(shown: tables.Shown) -> str:
    """The whole comparison."""
    comparison = shown.comparison
    own = {
        "schema": SCHEMA,
        "version": VERSION,
        "headline": tables.headline(comparison),
        "significance": tables.significance(comparison),
        "base": _side(comparison.base),
        "head": _side(comparison.head),
        "circumstances": [
            filled(shape.Circumstance, {"base": d.baseline, "head": d.now}, each, d)
            for each in comparison.circumstances
            for d in [each.difference]
        ],
        "counts": {name: len(getattr(comparison, name)) for name in ("rows", "worse", "moved", "unmoved")},
        "moved": [*map(_compared, comparison.moved)],
        "unmoved": [*map(_compared, comparison.unmoved)],
        "assertions": [_verdict(gate, verdict) for gate, verdict in comparison.verdicts],
        "constants": [*map(_constant, comparison.constants)],
        "appeared": [filled(shape.Thing, each) for each in comparison.appeared],
        "vanished": [filled(shape.Thing, each) for each in comparison.vanished],
    }
    return as_json(filled(shape.Comparison, own, comparison))


def _side(side: Side) -> dict[str, Any]:
    windows = [
        filled(shape.Window, {"measured_as": measured_as}, used, used.window)
        for measured_as, windows in side.windows
        for used in windows
    ]
    own = {"traces": side.paths, "windows": windows, "notes": [*map(str, side.notes)]}
    return filled(shape.Side, own, side.key.as_json(), side)


def _compared(each: ComparedRow) -> dict[str, Any]:
    assertion, times = each.assertion, each.times_limit
    named = {"line": assertion.location.line, "assertion": assertion.name, "subject": tables.subject(assertion)}
    own = {**named, "word": tables.word(each), "times_tolerance": None if times is None else float(times)}
    found = filled(shape.Compared, own, _row(each.row, assertion), each, assertion)
    names = [key for key in found if key not in shape.Row.__struct_fields__ and key != "times_tolerance"]
    return {**dict.fromkeys(names), **found}  # which row it is comes first


def _row(row: JudgedRow, assertion: Assertion) -> dict[str, Any]:
    own = {"base": row.baseline, "head": row.value, "comparator": assertion.require.comparator}
    return filled(shape.Row, own, row)


def _verdict(gate: str, verdict: Verdict) -> dict[str, Any]:
    assertion = verdict.assertion
    own = {"gate": gate, "line": assertion.location.line, "assertion": assertion.name, "rows": len(verdict.rows)}
    return filled(shape.Assertion, {**own, "causes": plain_causes(verdict.causes)}, verdict, assertion)


def _constant(each: OnHead) -> dict[str, Any]:
    own = {"base": each.base, "judged": [_row(row, each.verdict.assertion) for row in each.verdict.rows]}
    return filled(shape.Constant, own, _verdict(each.gate, each.verdict), each.verdict)
