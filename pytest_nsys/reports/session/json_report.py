"""How does a session leave as JSON? Every assertion and every row of it; ``report.schema.json`` is generated from here.

A value appears twice: ``exact`` in the base of the metric's unit (whole nanoseconds, plain ratios, counts), a whole
number or ``"a/b"``; and ``text``, as people read it. There are no times in it: the same traces give the same
bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any

from msgspec import Meta, convert, field, to_builtins

from pytest_nsys.analysis.explained import BudgetChange, Cause, Explained
from pytest_nsys.analysis.structure import ContentKind
from pytest_nsys.analysis.windows import UsedWindow
from pytest_nsys.core.exact import as_exact, exact
from pytest_nsys.core.model import Label, Note, Value
from pytest_nsys.core.numbers import change_words, distance_words, format_value
from pytest_nsys.core.units import TIME
from pytest_nsys.core.version import VERSION
from pytest_nsys.core.words import printable
from pytest_nsys.gates.model import Comparator, JudgedRow, Outcome, Severity, Verdict
from pytest_nsys.merge_base.differences import FileKind
from pytest_nsys.reports.causes import budget_words, cause_words
from pytest_nsys.reports.explanation import limit_source
from pytest_nsys.reports.session.headline import of_session
from pytest_nsys.reports.session.record import Record
from pytest_nsys.reports.session.session import NOTHING_JUDGED, STATES, Session, find_run
from pytest_nsys.reports.session.story_json import ChangeShape, StoryShape, change_of, story_json
from pytest_nsys.reports.session.two_sides import significance
from pytest_nsys.reports.shapes import Count, Number, Shape, doc, one_of
from pytest_nsys.reports.tables import without_halves
from pytest_nsys.verdicts.comparison import Comparison, OneSided, Result, Side

Coordinates = dict[str, int | str]


FractionText = Annotated[str, Meta(pattern="^-?[0-9]+/[0-9]+$")]
Text = Annotated[str, doc("As people read it.")]


class PartShape(Shape):
    kind: Annotated[str, doc("What happened.")]
    kernel: Annotated[str, doc("Name of the kernels, empty for time of the window.")]
    change_ns: Annotated[int, doc("Its part of the change.")]
    before_ns: Annotated[int, doc("The quantity that changed, before.")]
    now_ns: Annotated[int, doc("The same now.")]
    was: Annotated[int, doc("Kernels of the name before.")]
    kernels: Annotated[int, doc("Kernels of the name now.")]
    ordinals: Annotated[list[int], doc("Those that changed most: places among the name in the stage, from 1 on.")]
    straggler: Annotated[int | None, doc("The rank that came last where one waited, or that was the slowest before.")]
    exposes: Annotated[str, doc("Of compute that overlaps less: the communication it overlapped. Else empty.")]
    text: Annotated[str, doc("The cause in words.")]


class BudgetMoved(Shape):
    change_ns: Annotated[int, doc("By how much the window is longer.")]
    before_ns: Annotated[int, doc("Its length before.")]
    now_ns: Annotated[int, doc("Its length now.")]
    parts: Annotated[dict[str, int], doc("By how much each part of its budget moved: together all of it.")]
    text: Annotated[str, doc("The same in words.")]


class CauseShape(Shape):
    labels: Annotated[Coordinates, doc("The row; of an aggregate the one that it was taken from.")]
    roots: Annotated[list[ChangeShape], doc("What is behind most of it, largest first; on the rank it waits for, too.")]
    change_ns: Annotated[int, doc("Value now minus before, of a ratio the exposed time behind it.")]
    unexplained_ns: Annotated[int, doc("What no part accounts for.")]
    budget: Annotated[BudgetMoved | None, doc("How the budget of the window moved; null where nothing says.")]
    parts: Annotated[list[PartShape], doc("The causes, largest first.")]


class Amount(Shape):
    exact: Annotated[int | FractionText, doc("In the base of the unit: nanoseconds, plain ratios, counts.")]
    text: Text


class RowShape(Shape):
    labels: Annotated[Coordinates, doc("Dimensions that are left after aggregation.")]
    outcome: Outcome
    limit_source: Annotated[
        str, doc("Where a baseline's limit comes from, or the GPU model of a constant; else empty.")
    ]
    test: Annotated[str, doc("What two sets of captures say of this row; the notes say how that was decided.")]
    waived: Annotated[bool, doc("Outside its limit as a waiver of the gate file allows.")]
    early_warning: Annotated[bool, doc("Holds, but not the limit of the early warning.")]
    value: Annotated[Amount | None, doc("Null where the row is gone.")]
    limit: Annotated[Amount | None, doc("Null where there is none to hold the row against.")]
    baseline: Annotated[Amount | None, doc("Null for a constant limit, and for a row that is new.")]
    tolerance: Amount | None
    noise: Annotated[Amount | None, doc("Bound of the measured noise; null where it was not measured.")]
    sees: Annotated[Amount | None, doc("The smallest change that the gate can see; null for a constant limit.")]
    margin: Annotated[Amount | None, doc("How far the value may still move; negative where it fails.")]
    ceiling: Annotated[Amount | None, doc("How far the waiver lets the value go; null where none does.")]
    serialization: Annotated[Amount | None, doc("What a pipeline's rule holds the row to as well; null without one.")]
    step: Annotated[Amount | None, doc("Length of the step that the values are shares of; null where they are none.")]
    change: Annotated[Amount | None, doc("From the baseline.")]
    times_tolerance: Annotated[float | None, doc("How much worse, in units of the tolerance; null without one.")]


class Worst(Shape):
    row: str
    value: str
    limit: str
    margin: str
    ceiling: Annotated[str, doc("How far a waived row may go, and what is left to there; in place of the margin.")]
    sees: str


class DifferenceShape(Shape):
    name: str
    now: str
    baseline: str


class AssertionShape(Shape):
    name: Annotated[str, doc("Name of the assertion, as of the pytest item, there with its configuration: its id.")]
    line: Number
    sentence: str
    metric: str
    unit: Annotated[str, doc("ns, % (a plain ratio), count, 1 (a bare ratio) or another; empty: nothing was judged.")]
    comparator: Annotated[str, one_of("", *Comparator), doc("Empty where a baseline is held on both sides.")]
    severity: Severity
    outcome: Annotated[Outcome, doc("The verdict.")]
    message: Annotated[str, doc("The verdict in one line.")]
    accepted_for: Annotated[str, doc("Of *accepted*: the reason of the branch's refresh; else empty.")]
    baseline: Annotated[str, doc("What was compared with: a file, or another trace; empty where nothing was.")]
    artifact: Annotated[str, doc("File with the window of a failed assertion (`--nsys-artifacts`); else empty.")]
    state: Annotated[str, one_of(*STATES), doc("The verdict, or why pytest takes it otherwise.")]
    good: Annotated[bool, doc("Whether its verdict, and pytest, take it as passed.")]
    on_base: Annotated[str, doc("How a constant limit ends on the base of a comparison; else empty.")]
    measured_as: Annotated[str, doc("Which of the file's windows.")]
    worst: Annotated[Worst, doc("The row that is nearest to failing, or fails worst, in words.")]
    differences: Annotated[list[DifferenceShape], doc("Circumstances that make the runs incomparable.")]
    details: Annotated[list[str], doc("What changed behind the rows that do not hold: kernels, their order.")]
    causes: Annotated[
        list[CauseShape], doc("The kernels behind each row that is worse: its parts add up to the change.")
    ]
    doubts: Annotated[list[str], doc("What makes its trace doubtful, within the bounds of quality.")]
    notes: list[str]
    warnings: list[str]
    next_steps: Annotated[list[str], doc("What to type or to write next.")]
    explanation: Annotated[str, doc("The whole verdict as the terminal has it; empty where the assertion passed.")]
    rows: Annotated[list[RowShape], doc("Every row that was judged, worst first.")]


class WindowShape(Shape):
    capture: Annotated[Number, doc("Number of the capture, from 1.")]
    rank: int
    name: str
    index: Annotated[int | None, doc("Number among the anchors, from 0; null where the window is none.")]
    count: int | None
    start_ns: int
    end_ns: int


class Windows(Shape):
    measured_as: Annotated[str, doc("Window, span and kernels mode, as the assertions name it.")]
    windows: list[WindowShape]


class GateFileShape(Shape):
    file: Annotated[str, doc("Path as it was given to pytest.")]
    configuration: Annotated[str, doc("That of the file's matrix; empty where it has none.")]
    run: Annotated[str, doc("What was judged, in words.")]
    traces: Annotated[list[str], doc("The captures, as they were given.")]
    key: Annotated[dict[str, Any] | None, doc("What makes runs comparable. Null where no trace could be read.")]
    windows: Annotated[list[Windows], doc("The windows that were measured.")]
    assertions: list[AssertionShape]


class SideShape(Shape):
    traces: Annotated[list[str], doc("The captures, as they were given.")]
    ranks: list[int]
    profilers: list[str]
    key: Annotated[dict[str, Any], doc("What makes runs comparable.")]
    notes: Annotated[list[str], doc("What no assertion says.")]


class Circumstance(DifferenceShape):
    must_agree: Annotated[bool, doc("Whether it makes the runs incomparable.")]


class OneSidedShape(Shape):
    kind: ContentKind
    name: str
    ranks: Annotated[list[int], Meta(min_length=1)]
    all_ranks: bool
    launches: Annotated[int | float, doc("In its windows over these ranks, median over the captures that have it.")]
    captures: Annotated[Number, doc("How many have it.")]


class KernelChangeShape(Shape):
    name: str
    base_ns: Annotated[int | FractionText, doc("Its time on base.")]
    head_ns: Annotated[int | FractionText, doc("Its time on head.")]


class ComparisonShape(Shape):
    result: Annotated[Result, doc("Exit code 0, 1, 3, 3.")]
    significance: Annotated[str, doc("What so many captures can tell.")]
    base: SideShape
    head: SideShape
    circumstances: Annotated[list[Circumstance], doc("In what the runs differ.")]
    windows: Annotated[list[Windows], doc("Those of base; those of head are the gate files'.")]
    not_held: Annotated[list[str], doc("Assertions that the history judges.")]
    looked_at: Annotated[str, doc("The windows that appeared and vanished tell of.")]
    appeared: Annotated[list[OneSidedShape], doc("What head alone has.")]
    vanished: Annotated[list[OneSidedShape], doc("What base alone has.")]
    kernels: Annotated[list[KernelChangeShape], doc("Those of both whose time differs, most first; not judged.")]
    kernels_per: Annotated[str, doc("What their times are of.")]


class JudgedGateShape(Shape):
    name: Annotated[str, doc("A gate file of the merge base, with its configuration.")]
    traces: list[str]
    passed: Count
    assertions: Count


class FileDifferenceShape(Shape):
    file: str
    kind: FileKind
    state: Annotated[str, doc("new, deleted, changed, or where it was before.")]
    added: Annotated[Count, doc("Lines that the merge base lacks.")]
    removed: Annotated[Count, doc("Lines that the branch lacks.")]


class MergeBaseShape(Shape):
    commit: Annotated[str, doc("The merge base; empty where there is none.")]
    good: bool
    headline: Annotated[str, doc("Its verdict in one line.")]
    reds: Annotated[list[str], doc("What does not hold by its gate files, with rows and reasons.")]
    accepted: Annotated[list[str], doc("What is worse and let pass: row, change and reason.")]
    judged: Annotated[list[JudgedGateShape], doc("Its gate files, and how many of their assertions passed.")]
    new: Annotated[list[str], doc("Typed paths that it lacks: the branch alone judges them.")]
    notes: list[str]
    differences: Annotated[list[FileDifferenceShape], doc("What the branch changes that a gate is judged by.")]


class NotRunShape(Shape):
    file: str
    configuration: Annotated[str, doc("That of the file's matrix; empty where it has none.")]
    assertions: Annotated[list[str], doc("Those that would have been judged.")]
    why: Annotated[str, doc("Which trace is missing, and the option that gives one.")]


class MistakeShape(Shape):
    file: str
    line: Number | None
    column: Number | None
    text: str


class CountsShape(Shape):
    passed: Count
    improved: Count
    inconclusive: Count
    accepted: Count
    failed: Count
    incomparable: Count
    no_data: Count = field(name="no data")
    error: Count
    warned: Count
    waived: Count
    xfailed: Count


class Report(Shape):
    """What `pytest --nsys-json=FILE` writes. A new key may come within a format; another meaning, or a key that goes,
    raises it.
    """

    format: Annotated[int, one_of(1), doc("Version of this shape.")]
    pytest_nsys: Annotated[str, doc("Version of the package.")]
    verdict: Annotated[
        str,
        one_of(*Outcome, NOTHING_JUDGED),
        doc(
            "The session in one word: the worst verdict that pytest takes as failed; else accepted, inconclusive or "
            "improved, where there is one; else passed. A mistake in a gate file, or a session that broke off or "
            "failed for another reason, is error."
        ),
    ]
    good: Annotated[bool, doc("Whether assertions were judged and nothing of the session was bad.")]
    headline: Annotated[str, doc("What happened, in one sentence: the step, the root that leads, and where.")]
    story: Annotated[StoryShape, doc("The same as facts: every red once, below what is at its root.")]
    exit_status: Annotated[Count, doc("Of pytest: 0 passed, 1 failed, 2 interrupted or a mistake, 3 internal error …")]
    counts: Annotated[CountsShape, doc("How many assertions ended in which state.")]
    mistakes: Annotated[list[MistakeShape], doc("Why files could not be collected.")]
    merge_base: Annotated[MergeBaseShape | None, doc("What its gate says; null without --nsys-baseline-ref.")]
    not_run: Annotated[list[NotRunShape], doc("Gate files that were skipped because no trace was given.")]
    refreshed: Annotated[list[str], doc("Baselines that this session wrote, a line each.")]
    comparison: Annotated[ComparisonShape | None, doc("What a comparison knows besides; null in a session of pytest.")]
    gate_files: Annotated[list[GateFileShape], doc("Every gate file that was judged, by path.")]


FORMAT = 1


def report_text(session: Session) -> str:
    """The file's text; ASCII alone, so that no name reaches a terminal as more than itself."""
    return without_halves(json.dumps(report(session), indent=1)) + "\n"


def report(session: Session) -> dict[str, Any]:
    """The session as ``report.schema.json`` describes it."""
    counts = session.counts
    told = Report(
        format=FORMAT,
        pytest_nsys=VERSION,
        verdict=session.verdict,
        good=session.good,
        headline=of_session(session),
        story=story_json(session.story),
        exit_status=session.exit_status,
        counts=CountsShape(**{word.replace(" ", "_"): counts[word] for word in STATES}),
        mistakes=[MistakeShape(each.file, each.line, each.column, each.text) for each in session.mistakes],
        merge_base=None if session.merge_base is None else convert(session.merge_base.as_json(), MergeBaseShape),
        not_run=[NotRunShape(one.file, one.configuration, [*one.assertions], one.why) for one in session.not_run],
        refreshed=[*session.refreshed],
        comparison=None if session.comparison is None else _comparison(session.comparison),
        gate_files=[*map(_gate_file, session.files.values())],
    )
    whole: dict[str, Any] = to_builtins(told)
    return whole


def plain_labels(labels: Mapping[str, Label]) -> dict[str, Label]:
    return {d: label if isinstance(label, int) else printable(label, 2000) for d, label in labels.items()}


def _comparison(comparison: Comparison) -> ComparisonShape:
    circumstances = comparison.circumstances.items()
    return ComparisonShape(
        result=comparison.result,
        significance=significance(comparison),
        base=_side(comparison.base, [note for side, note in comparison.notes if side == "base"]),
        head=_side(comparison.head, [note for side, note in comparison.notes if side == "head"]),
        circumstances=[Circumstance(*each, must_agree=must_agree) for each, must_agree in circumstances],
        windows=_windows(comparison.windows),
        not_held=[*comparison.not_held],
        looked_at=comparison.looked_at,
        appeared=[*map(_one_sided, comparison.appeared)],
        vanished=[*map(_one_sided, comparison.vanished)],
        kernels=[
            KernelChangeShape(printable(each.name, 2000), as_exact(each.base_ns), as_exact(each.head_ns))
            for each in comparison.kernels.kernels
        ],
        kernels_per=comparison.kernels.per,
    )


def _one_sided(each: OneSided) -> OneSidedShape:
    return OneSidedShape(
        kind=each.kind,
        name=each.name,
        ranks=[*each.ranks],
        all_ranks=each.all_ranks,
        launches=each.launches if isinstance(each.launches, int) else float(each.launches),
        captures=each.captures,
    )


def _side(side: Side, notes: Sequence[Note]) -> SideShape:
    return SideShape(
        traces=[*side.paths],
        ranks=[*side.ranks],
        profilers=[*side.profilers],
        key=side.key.as_json(),
        notes=[*map(str, notes)],
    )


def _gate_file(records: Sequence[Record]) -> GateFileShape:
    """One file; what its assertions share stands here once."""
    first, windows = find_run(records), dict[str, Sequence[UsedWindow]]()
    for verdict in (record.verdict for record in records if record.verdict.measured_as):
        windows.setdefault(verdict.measured_as, verdict.windows)
    return GateFileShape(
        file=first.file,
        configuration=first.configuration,
        run=first.run,
        traces=[*first.traces],
        key=None if first.key is None else first.key.as_json(),
        windows=_windows(windows),
        assertions=[*map(_assertion, records)],
    )


def _windows(windows: Mapping[str, Sequence[UsedWindow]]) -> list[Windows]:
    return [Windows(how, [*map(_window, used)]) for how, used in windows.items()]


def _window(used: UsedWindow) -> WindowShape:
    window = used.window
    return WindowShape(
        capture=used.capture + 1,
        rank=used.rank,
        name=printable(window.name, 400),
        index=window.index,
        count=window.count,
        start_ns=window.start_ns,
        end_ns=window.end_ns,
    )


def _assertion(record: Record) -> AssertionShape:
    verdict, assertion = record.verdict, record.assertion
    return AssertionShape(
        name=record.name,
        line=record.line,
        sentence=assertion.sentence,
        metric=assertion.metric,
        unit=verdict.unit,
        comparator=assertion.require.comparator or "",
        severity=assertion.severity.failed,
        outcome=verdict.outcome,
        message=verdict.message,
        accepted_for=verdict.accepted_for,
        baseline=verdict.compared_with,
        artifact=record.artifact,
        state=record.state,
        good=record.good,
        on_base=verdict.on_base,
        measured_as=verdict.measured_as,
        worst=Worst(**record.worst),
        differences=[DifferenceShape(*each) for each in verdict.differences],
        details=[*verdict.details],
        causes=[*map(_cause, verdict.causes)],
        doubts=[note.text for note in verdict.notes if note.warning],
        notes=[note.text for note in verdict.notes if not note.warning],
        warnings=[*verdict.warnings],
        next_steps=[*map(str, record.next_steps)],
        explanation=record.explained,
        rows=[_row(row, verdict) for row in verdict.rows],
    )


def _row(row: JudgedRow, verdict: Verdict) -> RowShape:
    unit = verdict.unit
    return RowShape(
        labels=plain_labels(row.labels),
        outcome=row.outcome,
        limit_source=limit_source(verdict.assertion, unit, row),
        test=printable(row.test),
        waived=row.waived,
        early_warning=row.early_warning,
        value=amount(row.value, unit),
        limit=amount(row.limit, unit),
        baseline=amount(row.baseline, unit),
        tolerance=amount(row.tolerance, unit, distance=True),
        noise=amount(row.noise, unit, distance=True),
        sees=amount(row.sees, unit, distance=True),
        margin=amount(row.margin, unit, distance=True),
        ceiling=amount(row.ceiling, unit),
        serialization=amount(row.serialization, unit),
        step=amount(row.step_ns, TIME),
        change=_change(row, unit),
        times_tolerance=None if row.times_tolerance is None else float(row.times_tolerance),
    )


def amount(value: Value | None, unit: str, *, distance: bool = False) -> Amount | None:
    """A value, exact and as people read it; a ``distance`` between ratios is in percentage points."""
    if value is None:
        return None
    return Amount(as_exact(value), (distance_words if distance else format_value)(value, unit))


def _change(row: JudgedRow, unit: str) -> Amount | None:
    if row.value is None or row.baseline is None:
        return None
    moved = exact(Fraction(row.value) - row.baseline)
    return Amount(as_exact(moved), change_words(row.value, row.baseline, unit))


def _cause(row: Explained) -> CauseShape:
    told = row.explanation
    return CauseShape(
        labels=plain_labels(row.labels),
        roots=[*map(change_of, row.roots)],
        change_ns=told.change_ns,
        unexplained_ns=told.unexplained_ns,
        budget=None if told.budget is None else _budget(told.budget),
        parts=[*map(_part, told.causes)],
    )


def _part(cause: Cause) -> PartShape:
    return PartShape(
        kind=cause.kind,
        kernel=printable(cause.kernel, 2000),
        change_ns=cause.change_ns,
        before_ns=cause.before_ns,
        now_ns=cause.now_ns,
        was=cause.was,
        kernels=cause.kernels,
        ordinals=[*cause.ordinals],
        straggler=cause.straggler,
        exposes=printable(cause.exposes, 2000),
        text=cause_words(cause),
    )


def _budget(budget: BudgetChange) -> BudgetMoved:
    return BudgetMoved(
        change_ns=budget.change_ns,
        before_ns=budget.before_ns,
        now_ns=budget.now_ns,
        parts={str(part): ns for part, ns in budget.parts},
        text=budget_words(budget),
    )
