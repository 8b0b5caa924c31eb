"""What does a program get of a comparison? One object: nothing is rounded. Its schema is generated from here."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from pytest_nsys.analysis.structure import ContentKind
from pytest_nsys.gates.model import Assertion as JudgedAssertion
from pytest_nsys.gates.model import Comparator, JudgedRow, Outcome, Severity, Verdict
from pytest_nsys.reports.comparison import tables
from pytest_nsys.reports.explanation import subject
from pytest_nsys.reports.session.json_report import CauseShape, Coordinates, Count, Number, causes, doc, filled, one_of
from pytest_nsys.reports.tables import as_json
from pytest_nsys.verdicts.comparison import ComparedRow, HeadVerdict, Result
from pytest_nsys.verdicts.comparison import Side as RunSide

Value = int | float | None
Details = Annotated[list[str], doc("What changed behind the rows that do not hold: kernels, their order.")]


class Window(Struct):
    measured_as: str
    capture: Count
    rank: int
    name: str
    index: int | None
    count: int | None
    start_ns: int
    end_ns: int


class Side(Struct):
    traces: Annotated[list[str], Meta(min_length=1)]
    captures: Number
    ranks: list[int]
    convention: str | None
    mesh: dict[str, int] | None
    micro_batch: int | None
    sequence_length: int | None
    world: int | None
    gpu: str | None
    profilers: list[str]
    windows: list[Window]
    notes: list[str]


class Circumstance(Struct):
    name: str
    base: str
    head: str
    compared: Annotated[bool, doc("Whether it makes the runs incomparable.")]


class Row(Struct):
    outcome: Outcome
    labels: Coordinates
    base: Value
    head: Value
    comparator: Annotated[str | None, one_of(*Comparator, None)]
    limit: Value
    tolerance: Value
    margin: Annotated[Value, doc("How far head may still move; negative where it fails.")]
    test: Annotated[str, doc("What the captures say of this row, in a word or two; 'significance' says how.")]
    waived: bool
    ceiling: Annotated[Value, doc("How far the waiver lets head go; null where none does.")]
    serialization: Annotated[Value, doc("What a pipeline's rule holds head to as well; null without one.")]


class Compared(Row):
    gate: str
    line: int
    assertion: str
    metric: str
    subject: str
    unit: str
    word: str
    counts: Annotated[bool, doc("Whether the row makes the comparison worse where it fails.")]
    times_tolerance: Annotated[Value, doc("How much worse, in units of the tolerance.")]


class Assertion(Struct):
    gate: str
    line: int
    assertion: str
    sentence: str
    metric: str
    severity: Severity
    outcome: Outcome
    message: str
    rows: int
    measured_as: str
    warnings: list[str]
    details: Details
    causes: Annotated[list[CauseShape], doc("For each row that is worse the kernels that account for it.")]


class Constant(Assertion):
    unit: str
    base: Outcome | None
    judged: list[Row]


class Thing(Struct):
    kind: ContentKind
    name: str
    ranks: Annotated[list[int], Meta(min_length=1)]
    all_ranks: bool
    launches: int | float
    captures: Number


class Counts(Struct):
    rows: Count
    worse: Count
    moved: Count
    unmoved: Count


class Comparison(Struct):
    """Times are nanoseconds, ratios fractions between 0 and 1, counts whole numbers; nothing is rounded. A field is
    added without a new version; a version changes where a field goes or means something else.
    """

    schema: Annotated[str, one_of("pytest-nsys/comparison")]
    version: Annotated[int, one_of(1)]
    result: Annotated[Result, doc("Exit code 0, 1, 3, 3.")]
    headline: str
    significance: Annotated[str, doc("What so many captures can tell.")]
    base: Side
    head: Side
    circumstances: Annotated[list[Circumstance], doc("In what the runs differ.")]
    counts: Counts
    moved: Annotated[list[Compared], doc("Worst first.")]
    unmoved: list[Compared]
    assertions: Annotated[list[Assertion], doc("Those held against base.")]
    constants: Annotated[list[Constant], doc("Those with a constant limit, judged on head; base: how they end there.")]
    not_held: Annotated[list[str], doc("Assertions that the history judges.")]
    looked_at: Annotated[str, doc("The windows that appeared and vanished tell of.")]
    appeared: list[Thing]
    vanished: list[Thing]


SCHEMA = "pytest-nsys/comparison"
VERSION = 1


def as_json_report(shown: tables.Shown) -> str:
    comparison = shown.comparison
    own = {
        "schema": SCHEMA,
        "version": VERSION,
        "headline": tables.headline(comparison),
        "significance": tables.significance(comparison),
        "base": _side(comparison.base),
        "head": _side(comparison.head),
        "circumstances": [
            filled(Circumstance, {"base": d.baseline, "head": d.now, "compared": compared}, d)
            for d, compared in comparison.circumstances.items()
        ],
        "counts": {name: len(getattr(comparison, name)) for name in ("rows", "worse", "moved", "unmoved")},
        "moved": [*map(_compared, comparison.moved)],
        "unmoved": [*map(_compared, comparison.unmoved)],
        "assertions": [
            _verdict(each.gate, each.verdict) for each in comparison.verdicts if each.verdict.assertion.needs_baseline
        ],
        "constants": [_constant(each) for each in comparison.verdicts if not each.verdict.assertion.needs_baseline],
        "appeared": [filled(Thing, each) for each in comparison.appeared],
        "vanished": [filled(Thing, each) for each in comparison.vanished],
    }
    return as_json(filled(Comparison, own, comparison))


def _side(side: RunSide) -> dict[str, Any]:
    windows = [
        filled(Window, {"measured_as": measured_as}, used, used.window)
        for measured_as, windows in side.windows
        for used in windows
    ]
    own = {"traces": side.paths, "windows": windows, "notes": [*map(str, side.notes)]}
    return filled(Side, own, side.key.as_json(), side)


def _compared(each: ComparedRow) -> dict[str, Any]:
    assertion, times = each.assertion, each.row.times_tolerance
    named = {"line": assertion.location.line, "assertion": assertion.name, "subject": subject(assertion)}
    own = {**named, "word": tables.word(each), "times_tolerance": None if times is None else float(times)}
    found = filled(Compared, own, _row(each.row, assertion), each, assertion)
    names = [key for key in found if key not in Row.__struct_fields__ and key != "times_tolerance"]
    return {**dict.fromkeys(names), **found}  # which row it is comes first


def _row(row: JudgedRow, assertion: JudgedAssertion) -> dict[str, Any]:
    own = {"base": row.baseline, "head": row.value, "comparator": assertion.require.comparator}
    return filled(Row, own, row)


def _verdict(gate: str, verdict: Verdict) -> dict[str, Any]:
    assertion = verdict.assertion
    own = {"gate": gate, "line": assertion.location.line, "assertion": assertion.name, "rows": len(verdict.rows)}
    return filled(Assertion, {**own, "causes": causes(verdict.causes)}, verdict, assertion)


def _constant(each: HeadVerdict) -> dict[str, Any]:
    own = {"base": each.on_base, "judged": [_row(row, each.verdict.assertion) for row in each.verdict.rows]}
    return filled(Constant, own, _verdict(each.gate, each.verdict), each.verdict)
