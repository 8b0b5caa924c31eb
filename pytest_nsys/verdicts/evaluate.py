"""One assertion in, one Verdict out: what was measured, held against its limit, with what it takes to explain it.

A gate file of ``convention: auto`` is resolved once, before a key is formed of it. The baseline that is stored says its
convention, as it keeps the one that it was measured under; else the base; else the run itself. Where the run alone
would be read otherwise, the two are not comparable: an anchor that is another one measures something else, and would be
green by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.explain.parts import StepChange
from pytest_nsys.analysis.facts.fact import Weight
from pytest_nsys.analysis.metrics.registry import METRICS, PERIOD, STEP, STEP_TIME
from pytest_nsys.analysis.metrics.table import MetricTable, NothingSelected
from pytest_nsys.analysis.steps.convention_fit import Choice, FitAlike
from pytest_nsys.analysis.windows.circumstances import steps_of
from pytest_nsys.analysis.windows.spans import WindowSpec, noun_of
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import BaselineError, NsysError, TraceError
from pytest_nsys.core.exact import distance
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import HASH
from pytest_nsys.core.words import counted, from_here, printable
from pytest_nsys.gates.accepted import Refreshed, accept, is_acceptable
from pytest_nsys.gates.found_convention import FoundConvention
from pytest_nsys.gates.judgement import (
    BadRuns,
    Judgement,
    NotComparable,
    Reference,
    breaks_rule,
    delayed,
    folded,
    judge,
    reaches_limit,
    row_key,
    with_rule,
)
from pytest_nsys.gates.model import (
    WORSE,
    Assertion,
    Comparator,
    FromBaseline,
    GateFile,
    JudgedRow,
    Outcome,
    Verdict,
    request_of,
    spec_for,
)
from pytest_nsys.gates.settling import settled
from pytest_nsys.stored.baselines.baseline_file import Baseline
from pytest_nsys.stored.baselines.store import BaselineStore
from pytest_nsys.tools.git import heads_of
from pytest_nsys.verdicts.apart import RunBreakdowns
from pytest_nsys.verdicts.causes import EXPLAINED, LOST, NONE_KEPT, Why, between_steps, explain_rows, looked_at
from pytest_nsys.verdicts.of_commit import age_at_commit
from pytest_nsys.verdicts.references import OtherRun, PastRuns, ReferenceSource
from pytest_nsys.verdicts.stored_baseline import StoredBaseline
from pytest_nsys.verdicts.structure_diff import Red

Fitting = Callable[[Sequence[Convention]], Choice]
"""Looks for the convention that a run fits; it is given those of what the run is held against, whose anchors nobody has
to find once more. Raises UsageMistake, TraceError.
"""


def resolved(
    gate: GateFile,
    alone: Fitting,
    base: Fitting | None = None,
    store: BaselineStore | None = None,
    *,
    renewing: bool = False,
) -> GateFile:
    """The gate file with its convention: as it is, where that is named.

    ``alone`` is what the run is read under by itself, ``base`` what it is compared with is, ``store`` has the baselines
    it is held against; ``renewing``: it becomes one of them. Raises as the looking does.
    """
    if gate.convention is not None:
        return gate
    if base is not None:
        of_base = base(())
        beside = FoundConvention("base", _alone(alone, [of_base.convention]), of_base.searched)
        return replace(gate, convention=of_base.convention, found=beside)
    stored: list[Baseline] = []
    if store is not None:
        with contextlib.suppress(BaselineError):  # told by the assertions that are held against one
            stored = [baseline for _, baseline in store.all()]
    known = [baseline.convention for baseline in stored if baseline.convention is not None]
    if not known:
        choice = alone(())
        found = FoundConvention("trace", choice.convention, choice.searched)
        return replace(gate, convention=choice.convention, found=found)
    own = _alone(alone, known)
    read_as = own if own in known or renewing else known[0]
    return replace(gate, convention=read_as, found=FoundConvention("baseline", own))


def _alone(alone: Fitting, others: Sequence[Convention]) -> Convention:
    """What the run alone is read under. Where it fits several alike and one of the ``others`` is among them, that."""
    try:
        return alone(others).convention
    except FitAlike as tie:
        among = next((convention for convention in others if convention.anchor in tie.anchors), None)
        if among is None:
            raise
        return among


@dataclass
class GateContext:
    """What the assertions of a gate file are judged with.

    ``baseline`` is what an assertion with a baseline is compared with, ``history`` where its limit names the history;
    the latter tells of earlier verdicts, too. ``refresh`` is the command that makes its baseline. ``folder`` lies in
    the repository whose commit is judged, where one is. ``lets_accepted_pass`` tells whether *accepted* is green.
    """

    captures: Captures
    gate: GateFile
    baseline: ReferenceSource | None = None
    history: PastRuns | None = None
    refresh: str = ""
    folder: Path | None = None
    lets_accepted_pass: bool = False
    _resolved: dict[str, tuple[Assertion, Assertion]] = field(default_factory=dict, init=False, repr=False)

    def resolved(self, assertion: Assertion) -> Assertion:
        """The assertion as it is judged here, which every other method takes: what it says is looked up once.

        Raises as ``settled`` does.
        """
        known = self._resolved.get(assertion.name)
        if known is None or not any(assertion is one for one in known):
            known = self._resolved[assertion.name] = assertion, settled(assertion, self.captures, self.gate.run)
        return known[1]

    def refreshed(self, assertion: Assertion) -> Refreshed | None:
        """What the branch made of the rows that the assertion is held against at the merge base, if anything."""
        source = self.source(assertion)
        return source.refreshed(assertion) if isinstance(source, StoredBaseline) else None

    def measure(self, assertion: Assertion) -> MetricTable:
        """The rows that the assertion judges.

        Raises TraceError where the traces are not good enough for them.
        """
        if assertion.outside is not None and self._of_another_run:
            raise TraceError(self._of_another_run)
        found = self.captures.measure(request_of(self.gate, assertion, self._usual_steps))
        if not assertion.measures.outside and self._of_an_earlier_commit:
            raise TraceError(self._of_an_earlier_commit)
        return found

    @cached_property
    def _of_an_earlier_commit(self) -> str:
        """That the traces are older than the commit that is judged; empty where nothing says so."""
        age = age_at_commit(self.captures, self.folder, self.gate.quality) if self.folder is not None else None
        return age.error if age is not None and age.weight is Weight.ERROR else ""

    def notes(self, assertion: Assertion) -> Sequence[Note]:
        """What a person should know about what the assertion judges."""
        asked = request_of(self.gate, assertion, self._usual_steps)
        return self.captures.notes(asked.spec, assertion.measures, bounds=asked.bounds)

    @cached_property
    def _usual_steps(self) -> int | None:
        """Of the captures, or of what they are held against where these have one step; None where they have others."""
        if steps_of(self.captures.facts) > 1:
            return None
        with contextlib.suppress(NsysError):  # told by what is compared with it
            return max(self.baseline.steps if self.baseline is not None else 0, 1)
        return 1

    @property
    def store(self) -> BaselineStore | None:
        """Where the stored baseline lies, None where another trace stands for it."""
        return self.baseline.store if isinstance(self.baseline, StoredBaseline) else None

    def reference(self, assertion: Assertion) -> Reference | NotComparable | None:
        """What the assertion is compared with; None where it needs nothing. Raises BaselineError, TraceError."""
        limit = assertion.require.limit
        if not isinstance(limit, FromBaseline):
            if isinstance(self.baseline, StoredBaseline):
                self.baseline.refuse_dropped()
            return None
        source = self.source(assertion)
        if source is None:
            what = "no baseline is" if limit.history is None else "no history is"
            return NotComparable(Outcome.NO_DATA, f"{what} at hand here")
        return source.reference(assertion)

    def source(self, assertion: Assertion) -> ReferenceSource | None:
        """Where the baseline of the assertion comes from; None where it has none, or none is at hand."""
        limit = assertion.require.limit
        if not isinstance(limit, FromBaseline):
            return None
        return self.baseline if limit.history is None else self.history

    @cached_property
    def breakdowns(self) -> RunBreakdowns:
        """The windows, to explain a row by."""
        before = self.windows_before
        return RunBreakdowns(self.captures, before.ranks if before is not None else None)

    @property
    def windows_before(self) -> RunBreakdowns | None:
        """Those of the run before, also to explain what is held against a history, which keeps values alone."""
        return self.baseline.windows_before if self.baseline is not None else None

    @cached_property
    def disagreements(self) -> tuple[Note, ...]:
        """What the gate file states of the run while the traces say something else, which counts."""
        return tuple(
            Note(f"the gate file states {name} {stated}, the traces say {found}, which counts", True)
            for name, stated, found in self.captures.key(self.gate.run).unlike(self.gate.run)
        )

    @property
    def same_as_baseline(self) -> tuple[Note, ...]:
        """That the trace is the one that the stored baseline was taken from."""
        same = self.baseline.same if isinstance(self.baseline, StoredBaseline) else None
        return () if same is None else (same.note,)

    @cached_property
    def worse(self) -> bool:
        """Whether an assertion of the gate file is not met: what improved beside it may be the other side of that."""
        return any(map(self._is_worse, self.gate.assertions))

    def _is_worse(self, assertion: Assertion) -> bool:
        try:
            found = self.judged(self.resolved(assertion))
        except NsysError:
            return True
        return found.outcome not in (Outcome.PASSED, Outcome.IMPROVED)

    def judged(self, assertion: Assertion) -> Judgement:
        """What is decided of it. Raises as what it measures and reads."""
        return _judged(assertion, self, self.measure(assertion), self.reference(assertion))

    @cached_property
    def unheld(self) -> tuple[Note, ...]:
        """That the other trace is compared with nothing."""
        if not isinstance(self.baseline, OtherRun) or any(each.reads_stored for each in self.gate.assertions):
            return ()
        return (Note(f"nothing is compared with {self.baseline.name}: no assertion of this gate file has a baseline"),)

    @cached_property
    def unchecked(self) -> tuple[Note, ...]:
        """That nobody can tell whether the measurements are of the commit that is judged."""
        said = [run.measurements.origin for run in self.captures.runs if run.measurements.origin.commit]
        if not said or self.folder is None or heads_of(self.folder):
            return ()
        place, commit = said[0].place, said[0].commit
        return (Note(f"{place}: is of commit {commit}, which is not checked: git names no commit here", True),)

    @cached_property
    def _of_another_run(self) -> str:
        """Why the measurements are not of the run that is judged; empty where nothing says so."""
        for origin in (run.measurements.origin for run in self.captures.runs):
            stated = origin.run if isinstance(origin.run, Mapping) else {}
            for name, said, found in self.captures.key(self.gate.run).unlike(stated):
                return f"{origin.place}: is from a different setup: {name} is {said} there, and {found} here"
            commit = (origin.commit or "").lower()
            heads = heads_of(self.folder) if self.folder is not None and commit else ()
            if heads and not any(head.startswith(commit) for head in heads):
                here = heads[0][:12]
                return f"{origin.place}: was measured at commit {commit}, and {here} is checked out: measure again"
        return ""


def evaluate(assertion: Assertion, context: GateContext) -> Verdict:
    """The verdict. Raises TraceError where the trace cannot be judged, BaselineError for a broken baseline."""
    assertion = context.resolved(assertion)
    metric = assertion.measures
    spec = spec_for(context.captures.convention, assertion)
    measured = context.measure(assertion)
    reference = context.reference(assertion)
    held = reference if isinstance(reference, Reference) else None
    judged = _judged(assertion, context, measured, reference)
    bad = judged.outcome is Outcome.FAILED
    before = (
        context.history.here(assertion) if bad and context.history is not None and assertion.fail_after > 1 else None
    )
    judgement = delayed(judged, assertion.fail_after, before)
    waits = judgement is not judged
    refreshed = context.refreshed(assertion) if is_acceptable(assertion, judgement) else None
    judgement, accepted = accept(assertion, judgement, measured, refreshed, lets_pass=context.lets_accepted_pass)
    message = message_of(assertion, judged) + accepted.words
    message += _of_earlier_runs(assertion, context.history, before) if bad else ""
    source = context.source(assertion)
    why = _why(assertion, judgement, context)
    beside = _beside(context, why.step, spec) if judgement.outcome is Outcome.IMPROVED else ""
    return Verdict(
        assertion=assertion,
        outcome=judgement.outcome,
        message=message,
        unit=assertion.judged.unit,
        rows=judgement.rows,
        windows=context.captures.windows(spec),
        measured_as=str(spec),
        restated=_restated(
            judgement,
            message,
            accepted.warning,
            stored=isinstance(context.source(assertion), StoredBaseline),
            waits=waits,
            beside=beside,
        ),
        cautions=(
            *_early(assertion, judgement),
            *judgement.warnings,
            *(held.warnings if held else ()),
            *context.captures.outlying(metric, spec),
        ),
        notes=(
            *(context.same_as_baseline if assertion.reads_stored else ()),
            *_of_the_run_before(assertion, judgement, context, why),
            *(note for note in context.notes(assertion) if note.text not in message),
            *context.disagreements,
            *context.unheld,
            *(context.unchecked if assertion.outside is not None else ()),
            *(held.notes if held else ()),
        ),
        next_step=context.refresh if assertion.reads_stored and not beside and not accepted.reason else "",
        differences=reference.differences if isinstance(reference, NotComparable) else (),
        compared_with=held.origin if held else "",
        details=Red(assertion, judgement, context.captures, context.baseline if source is not None else None).lines(),
        causes=why.rows,
        step=why.step,
        looked_at=why.looked_at,
        delayed=waits,
        accepted_for=accepted.reason,
        lets_pass=bool(accepted.warning),
        configuration=context.gate.configuration,
    )


def _why(assertion: Assertion, judgement: Judgement, context: GateContext) -> Why:
    metric, spec = assertion.measures, spec_for(context.captures.convention, assertion)
    if metric.outside or not any(row.outcome in EXPLAINED for row in judgement.rows):
        return Why()
    before = context.windows_before
    if before is None:
        held = any(row.outcome in WORSE and row.baseline is not None for row in judgement.rows)
        at = looked_at(metric, spec, judgement.rows, context.breakdowns)
        lost = context.baseline.lost_windows if context.baseline is not None else ""
        return Why(looked_at=at, lacks=(LOST.format(lost) if lost else NONE_KEPT) if held else "")
    why = explain_rows(metric, spec, judgement.rows, before, context.breakdowns)
    return why if why.step is None else why._replace(step=_periods(spec, before.captures, context) or why.step)


def _periods(spec: WindowSpec, before: Captures, context: GateContext) -> StepChange | None:
    """How long a step was and is, whatever the window: the median period of its anchors, else the step time, where both
    sides know it; None where a step has several of these, or a window several steps.
    """
    captures = context.captures
    if captures.convention.marks_parts:
        return None
    names = (PERIOD, STEP_TIME) if captures.runs[0].workload.steps is None else (PERIOD,)
    with contextlib.suppress(NsysError):
        each = ((before.rows(METRICS[name], spec), captures.rows(METRICS[name], spec)) for name in names)
        found = (between_steps(*sides) for sides in each)
        return next((step for step in found if step is not None), None)
    return None


def _of_the_run_before(assertion: Assertion, judgement: Judgement, context: GateContext, why: Why) -> Iterator[Note]:
    """What a person should know of the run that says why: that there is none, that it is not the one that the baseline
    is of, what is doubtful about it and not about this run. Who compares two runs by hand is told of each.
    """
    if why.lacks and assertion.measures.is_explained:
        yield Note(f"no why: {why.lacks}")
    red = next((row for row in judgement.rows if row.outcome in WORSE and row.baseline is not None), None)
    trace = isinstance(context.baseline, OtherRun) and not context.baseline.partly
    before = context.windows_before if assertion.needs_baseline and (trace or red is not None) else None
    if before is None or (isinstance(context.baseline, OtherRun) and not trace):
        return
    if red is not None and (was := _in_windows(assertion, red, before, context)) is not None:
        there = "" if assertion.judged.unit == HASH else f": {format_value(was, assertion.judged.unit)} there"
        yield Note(f"the windows of the run before are of another run than this baseline{there}")
    with contextlib.suppress(NsysError):
        spec, own = spec_for(context.captures.convention, assertion), {note.text for note in context.notes(assertion)}
        facts = before.captures.facts_about(spec, request_of(context.gate, assertion, None).bounds, assertion.measures)
        laid_down = "" if trace else f"{before.captures.runs[0].path}: "  # where nobody finds it
        doubts = [
            text
            for fact in facts
            if fact.note.warning and (text := from_here(fact.note.text.replace(laid_down, ""))) not in own
            if trace or fact.name != "missing_ranks"  # of a large world the windows of some ranks are kept
        ]
        yield from [Note(f"the run before: {'; '.join(doubts)}", True)] if doubts else []


def _in_windows(assertion: Assertion, row: JudgedRow, before: RunBreakdowns, context: GateContext) -> Value | None:
    """The value that a row has in the windows of the run before, where its baseline is further off than it may be."""
    some = len(before.ranks) < len(context.captures.runs[0].ranks)
    if row.baseline is None or (some and "rank" not in row.labels):  # which tells of all ranks
        return None
    with contextlib.suppress(NsysError, NothingSelected):
        spec = spec_for(context.captures.convention, assertion)
        was = folded(before.captures.rows(assertion.measures, spec), assertion).get(row_key(assertion, row.labels))
        return was if was is not None and distance(was, row.baseline) > (row.reach or 0) else None
    return None


def _judged(
    assertion: Assertion, context: GateContext, measured: MetricTable, reference: Reference | NotComparable | None
) -> Judgement:
    """What was measured, against the limit and, where the assertion asks for it, the rule of a pipeline."""
    judgement = judge(assertion, measured, reference)
    if assertion.measures.of_step:
        return _with_steps(assertion, judgement, context)
    if not assertion.pipeline or not judgement.rows:
        return judgement
    ruled = context.captures.rows(METRICS["serialization"], spec_for(context.captures.convention, assertion))
    return with_rule(judgement, {tuple(labels.items()): value for labels, value in ruled.labelled()})


def _with_steps(assertion: Assertion, judgement: Judgement, context: GateContext) -> Judgement:
    """The judgement, with how long the step is that each row of one rank is a share of: of several windows that which
    has the row.
    """
    spec = spec_for(context.captures.convention, assertion)
    steps = replace(METRICS[STEP], window_by=assertion.measures.window_by)
    lengths = {row.labels[0]: row.value for row in context.captures.rows(steps, spec).rows}

    def with_step(row: JudgedRow) -> JudgedRow:
        rank = {**row.origin, **row.labels}.get("rank")
        return row if rank is None else replace(row, step_ns=lengths.get(rank))

    return replace(judgement, rows=tuple(map(with_step, judgement.rows)))


_SIDE: Mapping[Comparator | None, str] = {
    Comparator.LT: "not below",
    Comparator.LE: "above",
    Comparator.GT: "not above",
    Comparator.GE: "below",
}


def message_of(assertion: Assertion, judgement: Judgement) -> str:
    """The one line that says what was decided."""
    rows = judgement.rows
    match judgement.outcome:
        case Outcome.FAILED:
            failed = sum(row.outcome is Outcome.FAILED for row in rows)
            limit = assertion.require.limit
            if isinstance(limit, FromBaseline) and limit.no is not None:
                kernels = assertion.require.text.removeprefix("has no ")
                return f"{kernels} in {counted(failed, 'row')} (of {len(rows)})"
            side = _SIDE.get(assertion.require.comparator, "off")
            if assertion.pipeline:
                return _pipeline_message(assertion, rows, side)
            return f"{failed} of {len(rows)} rows {side} their limit" if len(rows) > 1 else f"{side} its limit"
        case Outcome.NO_DATA | Outcome.INCOMPARABLE:
            return judgement.reason
        case Outcome.IMPROVED:
            better = sum(row.outcome is Outcome.IMPROVED for row in rows)
            return f"{better} of {len(rows)} rows are better than the baseline by more than the tolerance"
        case Outcome.INCONCLUSIVE:
            unclear = sum(row.outcome is Outcome.INCONCLUSIVE for row in rows)
            return f"{unclear} of {len(rows)} rows are beyond the tolerance, but within the measured noise"
    if judgement.reason:
        return f"nothing was judged: {judgement.reason}"
    waived = sum(row.waived for row in rows)
    if waived:
        return f"{len(rows) - waived} of {len(rows)} rows hold, {waived} outside the limit by a waiver"
    return f"all {len(rows)} rows hold" if len(rows) != 1 else "holds"


def _of_earlier_runs(assertion: Assertion, past: PastRuns | None, before: BadRuns | None) -> str:
    """That what is bad now was bad before, here or where the baseline comes from."""
    after, said = assertion.fail_after, ""
    if before is not None:
        nth = len(before.runs) + 1
        of = f" of {after}" if nth == after or not before.failing(after) else ""
        since = f", since {before.runs[-1]}" if before.runs else ""
        said = f"; bad run {nth}{of} in a row on {printable(before.branch, 60)}{since} (fail_after)"
    elif after > 1:
        if past is None or past.path is None:
            counts = "in a history (--nsys-history), and none is given here"
        elif past.branch is None:
            counts = "the runs of a branch, and git names none here"
        else:
            counts = f"the earlier runs of a branch, and the history has none of {printable(past.branch, 60)}"
        said = f"; fail_after counts {counts}: the first bad run fails"
    there = past.there(assertion) if past is not None else None
    if there is None or there.red_since is None or (before is not None and before.branch == there.branch):
        return said
    return f"{said}; already red on {printable(there.branch, 60)} since {there.red_since}"


def _pipeline_message(assertion: Assertion, rows: Sequence[JudgedRow], side: str) -> str:
    """Which of the two halves of the sentence does not hold, and in how many rows."""
    off = sum(row.outcome is Outcome.FAILED and not reaches_limit(row, assertion) for row in rows)
    serial = sum(breaks_rule(row) for row in rows)
    among = f" in {{}} of {len(rows)} rows" if len(rows) > 1 else ""
    said = [f"the score is {side} its limit{among.format(off)}"] if off else []
    if serial:
        said.append(f"the period is not nearer to the longer stage than to the sum of both{among.format(serial)}")
    return ", and ".join(said)


def _restated(
    judgement: Judgement, message: str, accepted: str, *, stored: bool, waits: bool, beside: str
) -> tuple[str, ...]:
    """The outcome as a warning, where pytest may take it for passed. ``beside`` speaks against a refresh of what
    improved, which only what is ``stored`` has; ``accepted`` is what is told of that.
    """
    match judgement.outcome:
        case Outcome.IMPROVED if not stored:
            return (message,)
        case Outcome.IMPROVED if beside:
            return (f"{message}, while {beside}: look at what it cost before you accept this run",)
        case Outcome.IMPROVED:
            return (f"the baseline is stale: {message}; refresh it",)
        case Outcome.INCONCLUSIVE:
            return (f"inconclusive: {message}" + ("" if waits else "; take more captures"),)
        case Outcome.ACCEPTED:
            return (accepted,) if accepted else ()
    return (message,) if judgement.outcome is Outcome.PASSED and judgement.reason else ()


_NOT = {"step": "faster", "window": "shorter"}
"""What windows have to be for an improvement to be one."""


def _beside(context: GateContext, step: StepChange | None, spec: WindowSpec) -> str:
    """Why what improved is no reason to accept the run; empty where it is one, as far as is known."""
    if context.worse:
        return "another assertion does not hold"
    if step is None or step.faster:
        return ""
    noun = noun_of(context.captures.windows(spec))
    return f"the {noun} is not {_NOT[noun]}"


def _early(assertion: Assertion, judgement: Judgement) -> list[str]:
    early = sum(row.early_warning for row in judgement.rows)
    if not early or assertion.warn is None:
        return []
    return [f"{early} of {len(judgement.rows)} rows do not reach the early warning {assertion.warn.text}"]


def rows_now(assertion: Assertion, context: GateContext) -> Judgement:
    """What the assertion would judge, without its baseline: its rows, or why there are none."""
    assertion = context.resolved(assertion)
    reference = NotComparable(Outcome.PASSED, "") if assertion.needs_baseline else None
    return _judged(assertion, context, context.measure(assertion), reference)
