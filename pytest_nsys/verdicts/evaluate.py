"""How does one assertion become a verdict: what was measured, compared with its limit, and what it takes to explain it?

A gate file of ``convention: auto`` is resolved once, before a key is formed of it. A stored baseline says its
convention, as it keeps the one that it was measured under; else the base does; else the run itself. Where the run alone
would be read otherwise, the two are not comparable: another anchor measures something else, and would be green because
of it.
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
"""Finds the convention that a run fits.

It is given the conventions of what the run is compared with, whose anchors need not be found once more. Raises
UsageMistake, TraceError.
"""


def resolved(
    gate: GateFile,
    alone: Fitting,
    base: Fitting | None = None,
    store: BaselineStore | None = None,
    *,
    renewing: bool = False,
) -> GateFile:
    """Return the gate file with its convention; unchanged where the file names one.

    ``fit_run`` finds the convention of the run by itself, ``fit_base`` that of the run it is compared with, ``store``
    has the baselines it is compared with; with ``is_refresh`` the run becomes one of these. Raises what the finding
    raises.
    """
    if gate.convention is not None:
        return gate
    if base is not None:
        base_choice = base(())
        base_found = FoundConvention("base", _alone(alone, [base_choice.convention]), base_choice.searched)
        return replace(gate, convention=base_choice.convention, found=base_found)
    baselines: list[Baseline] = []
    if store is not None:
        with contextlib.suppress(BaselineError):  # told by the assertions that are held against one
            baselines = [baseline for _, baseline in store.all()]
    known_conventions = [baseline.convention for baseline in baselines if baseline.convention is not None]
    if not known_conventions:
        choice = alone(())
        trace_found = FoundConvention("trace", choice.convention, choice.searched)
        return replace(gate, convention=choice.convention, found=trace_found)
    run_convention = _alone(alone, known_conventions)
    read_as = run_convention if run_convention in known_conventions or renewing else known_conventions[0]
    return replace(gate, convention=read_as, found=FoundConvention("baseline", run_convention))


def _alone(alone: Fitting, others: Sequence[Convention]) -> Convention:
    """Return the convention that the run alone is read under; a known one where the run fits several alike and it is
    among them.
    """
    try:
        return alone(others).convention
    except FitAlike as tie:
        shared_convention = next((convention for convention in others if convention.anchor in tie.anchors), None)
        if shared_convention is None:
            raise
        return shared_convention


@dataclass
class GateContext:
    """Holds all that the assertions of one gate file are judged with."""

    captures: Captures
    gate: GateFile
    baseline: ReferenceSource | None = None  # what an assertion with a baseline is compared with
    history: PastRuns | None = None  # what it is compared with where its limit names the history; knows past verdicts
    refresh: str = ""  # the command that makes the baseline
    folder: Path | None = None  # in the repository whose commit is judged, where one is
    lets_accepted_pass: bool = False  # whether the outcome *accepted* is green
    _resolved: dict[str, tuple[Assertion, Assertion]] = field(default_factory=dict, init=False, repr=False)

    def resolved(self, assertion: Assertion) -> Assertion:
        """Return the assertion as it is judged here, which every other method takes; looked up once.

        Raises what ``resolve_assertion`` raises.
        """
        resolved_pair = self._resolved.get(assertion.name)
        if resolved_pair is None or not any(assertion is known_assertion for known_assertion in resolved_pair):
            resolved_pair = self._resolved[assertion.name] = assertion, settled(assertion, self.captures, self.gate.run)
        return resolved_pair[1]

    def refreshed(self, assertion: Assertion) -> Refreshed | None:
        """Return what the branch made of the baseline rows that the assertion is compared with at the merge base; None
        where it made nothing.
        """
        source = self.source(assertion)
        return source.refreshed(assertion) if isinstance(source, StoredBaseline) else None

    def measure(self, assertion: Assertion) -> MetricTable:
        """Return the rows that the assertion judges.

        Raises TraceError where the traces are not good enough for them.
        """
        if assertion.outside is not None and self._of_another_run:
            raise TraceError(self._of_another_run)
        table = self.captures.measure(request_of(self.gate, assertion, self._usual_steps))
        if not assertion.measures.outside and self._of_an_earlier_commit:
            raise TraceError(self._of_an_earlier_commit)
        return table

    @cached_property
    def _of_an_earlier_commit(self) -> str:
        """Tell that the traces are older than the judged commit; empty where nothing says so."""
        age = age_at_commit(self.captures, self.folder, self.gate.quality) if self.folder is not None else None
        return age.error if age is not None and age.weight is Weight.ERROR else ""

    def notes(self, assertion: Assertion) -> Sequence[Note]:
        """Return the notes that a person should read about the rows that the assertion judges."""
        request = request_of(self.gate, assertion, self._usual_steps)
        return self.captures.notes(request.spec, assertion.measures, bounds=request.bounds)

    @cached_property
    def _usual_steps(self) -> int | None:
        """Return the number of steps of what the captures are compared with, 1 at least; None where the captures have
        several themselves.
        """
        if steps_of(self.captures.facts) > 1:
            return None
        with contextlib.suppress(NsysError):  # told by what is compared with it
            return max(self.baseline.steps if self.baseline is not None else 0, 1)
        return 1

    @property
    def store(self) -> BaselineStore | None:
        """Return the store that the baseline lies in; None where another trace stands for the baseline."""
        return self.baseline.store if isinstance(self.baseline, StoredBaseline) else None

    def reference(self, assertion: Assertion) -> Reference | NotComparable | None:
        """Return the reference that the assertion is compared with; None where it needs nothing. Raises BaselineError,
        TraceError.
        """
        limit = assertion.require.limit
        if not isinstance(limit, FromBaseline):
            if isinstance(self.baseline, StoredBaseline):
                self.baseline.refuse_dropped()
            return None
        source = self.source(assertion)
        if source is None:
            missing_text = "no baseline is" if limit.history is None else "no history is"
            return NotComparable(Outcome.NO_DATA, f"{missing_text} at hand here")
        return source.reference(assertion)

    def source(self, assertion: Assertion) -> ReferenceSource | None:
        """Return the source of the assertion's baseline; None where it has no baseline, or none is at hand."""
        limit = assertion.require.limit
        if not isinstance(limit, FromBaseline):
            return None
        return self.baseline if limit.history is None else self.history

    @cached_property
    def breakdowns(self) -> RunBreakdowns:
        """Return the broken-down windows of the run that is judged, which rows are explained by."""
        baseline_breakdowns = self.windows_before
        return RunBreakdowns(self.captures, baseline_breakdowns.ranks if baseline_breakdowns is not None else None)

    @property
    def windows_before(self) -> RunBreakdowns | None:
        """Return the broken-down windows of the baseline's run; None where there are none.

        They also explain what is compared with a history, which keeps values alone.
        """
        return self.baseline.windows_before if self.baseline is not None else None

    @cached_property
    def disagreements(self) -> tuple[Note, ...]:
        """Return a note for each fact of the run that the gate file states and the traces contradict; what the
        traces say counts.
        """
        return tuple(
            Note(f"the gate file states {name} {stated}, the traces say {traced}, which counts", True)
            for name, stated, traced in self.captures.key(self.gate.run).unlike(self.gate.run)
        )

    @property
    def same_as_baseline(self) -> tuple[Note, ...]:
        """Return a note where the trace is the one that the stored baseline was taken from."""
        same_capture = self.baseline.same if isinstance(self.baseline, StoredBaseline) else None
        return () if same_capture is None else (same_capture.note,)

    @cached_property
    def worse(self) -> bool:
        """Whether an assertion of the gate file is not met: what improved beside it may be the other side of that."""
        return any(map(self._is_worse, self.gate.assertions))

    def _is_worse(self, assertion: Assertion) -> bool:
        try:
            judgement = self.judged(self.resolved(assertion))
        except NsysError:
            return True
        return judgement.outcome not in (Outcome.PASSED, Outcome.IMPROVED)

    def judged(self, assertion: Assertion) -> Judgement:
        """Return what is decided of the assertion. Raises what measuring and reading its baseline raise."""
        return _judged(assertion, self, self.measure(assertion), self.reference(assertion))

    @cached_property
    def unheld(self) -> tuple[Note, ...]:
        """Return a note where the other trace is compared with nothing."""
        if not isinstance(self.baseline, OtherRun) or any(assertion.reads_stored for assertion in self.gate.assertions):
            return ()
        return (Note(f"nothing is compared with {self.baseline.name}: no assertion of this gate file has a baseline"),)

    @cached_property
    def unchecked(self) -> tuple[Note, ...]:
        """Return a note where nobody can tell whether the measurements are of the commit that is judged."""
        origins = [run.measurements.origin for run in self.captures.runs if run.measurements.origin.commit]
        if not origins or self.folder is None or heads_of(self.folder):
            return ()
        place, commit = origins[0].place, origins[0].commit
        return (Note(f"{place}: is of commit {commit}, which is not checked: git names no commit here", True),)

    @cached_property
    def _of_another_run(self) -> str:
        """Return why the measurements are not of the run that is judged; empty where nothing says so."""
        for origin in (run.measurements.origin for run in self.captures.runs):
            stated_run = origin.run if isinstance(origin.run, Mapping) else {}
            for name, stated_value, traced_value in self.captures.key(self.gate.run).unlike(stated_run):
                return (
                    f"{origin.place}: is from a different setup: {name} is {stated_value} there, "
                    f"and {traced_value} here"
                )
            commit = (origin.commit or "").lower()
            heads = heads_of(self.folder) if self.folder is not None and commit else ()
            if heads and not any(head.startswith(commit) for head in heads):
                head_commit = heads[0][:12]  # 12 digits tell commits apart in a large repository, too
                return (
                    f"{origin.place}: was measured at commit {commit}, and {head_commit} is checked out: measure again"
                )
        return ""


def evaluate(assertion: Assertion, context: GateContext) -> Verdict:
    """Judge one assertion and return its verdict.

    Raises TraceError where the trace cannot be judged, BaselineError for a broken baseline.
    """
    assertion = context.resolved(assertion)
    metric = assertion.measures
    spec = spec_for(context.captures.convention, assertion)
    table = context.measure(assertion)
    reference = context.reference(assertion)
    baseline_reference = reference if isinstance(reference, Reference) else None
    raw_judgement = _judged(assertion, context, table, reference)
    has_failed = raw_judgement.outcome is Outcome.FAILED
    bad_runs = (
        context.history.here(assertion)
        if has_failed and context.history is not None and assertion.fail_after > 1
        else None
    )
    judgement = delayed(raw_judgement, assertion.fail_after, bad_runs)
    is_delayed = judgement is not raw_judgement
    branch_refresh = context.refreshed(assertion) if is_acceptable(assertion, judgement) else None
    judgement, acceptance = accept(assertion, judgement, table, branch_refresh, lets_pass=context.lets_accepted_pass)
    message = message_of(assertion, raw_judgement) + acceptance.words
    message += _of_earlier_runs(assertion, context.history, bad_runs) if has_failed else ""
    source = context.source(assertion)
    explanations = _why(assertion, judgement, context)
    objection = _beside(context, explanations.step, spec) if judgement.outcome is Outcome.IMPROVED else ""
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
            acceptance.warning,
            stored=isinstance(context.source(assertion), StoredBaseline),
            waits=is_delayed,
            beside=objection,
        ),
        cautions=(
            *_early(assertion, judgement),
            *judgement.warnings,
            *(baseline_reference.warnings if baseline_reference else ()),
            *context.captures.outlying(metric, spec),
        ),
        notes=(
            *(context.same_as_baseline if assertion.reads_stored else ()),
            *_of_the_run_before(assertion, judgement, context, explanations),
            *(note for note in context.notes(assertion) if note.text not in message),
            *context.disagreements,
            *context.unheld,
            *(context.unchecked if assertion.outside is not None else ()),
            *(baseline_reference.notes if baseline_reference else ()),
        ),
        next_step=context.refresh if assertion.reads_stored and not objection and not acceptance.reason else "",
        differences=reference.differences if isinstance(reference, NotComparable) else (),
        compared_with=baseline_reference.origin if baseline_reference else "",
        details=Red(assertion, judgement, context.captures, context.baseline if source is not None else None).lines(),
        causes=explanations.rows,
        step=explanations.step,
        looked_at=explanations.looked_at,
        delayed=is_delayed,
        accepted_for=acceptance.reason,
        lets_pass=bool(acceptance.warning),
        configuration=context.gate.configuration,
    )


def _why(assertion: Assertion, judgement: Judgement, context: GateContext) -> Why:
    metric, spec = assertion.measures, spec_for(context.captures.convention, assertion)
    if metric.outside or not any(row.outcome in EXPLAINED for row in judgement.rows):
        return Why()
    baseline_breakdowns = context.windows_before
    if baseline_breakdowns is None:
        has_baseline_rows = any(row.outcome in WORSE and row.baseline is not None for row in judgement.rows)
        examined_window = looked_at(metric, spec, judgement.rows, context.breakdowns)
        lost_file = context.baseline.lost_windows if context.baseline is not None else ""
        return Why(
            looked_at=examined_window,
            lacks=(LOST.format(lost_file) if lost_file else NONE_KEPT) if has_baseline_rows else "",
        )
    explanations = explain_rows(metric, spec, judgement.rows, baseline_breakdowns, context.breakdowns)
    return (
        explanations
        if explanations.step is None
        else explanations._replace(step=_periods(spec, baseline_breakdowns.captures, context) or explanations.step)
    )


def _periods(spec: WindowSpec, before: Captures, context: GateContext) -> StepChange | None:
    """Return how the length of a step changed, whatever the window: by the median period of the anchors, else by the
    step time.

    None where neither is known of both runs, where a step has several anchors, or a window several steps.
    """
    captures = context.captures
    if captures.convention.marks_parts:
        return None
    names = (PERIOD, STEP_TIME) if captures.runs[0].workload.steps is None else (PERIOD,)
    with contextlib.suppress(NsysError):
        table_pairs = ((before.rows(METRICS[name], spec), captures.rows(METRICS[name], spec)) for name in names)
        step_changes = (between_steps(*tables) for tables in table_pairs)
        return next((step for step in step_changes if step is not None), None)
    return None


def _of_the_run_before(assertion: Assertion, judgement: Judgement, context: GateContext, why: Why) -> Iterator[Note]:
    """Yield what a person should know of the baseline's run that explains the change.

    That is: that there is no such run, that it is not the one the baseline is of, what is doubtful about it and not
    about this run. Who compares two runs by hand is told of each elsewhere.
    """
    if why.lacks and assertion.measures.is_explained:
        yield Note(f"no why: {why.lacks}")
    red_row = next((row for row in judgement.rows if row.outcome in WORSE and row.baseline is not None), None)
    is_gate_trace = isinstance(context.baseline, OtherRun) and not context.baseline.partly
    baseline_breakdowns = (
        context.windows_before if assertion.needs_baseline and (is_gate_trace or red_row is not None) else None
    )
    if baseline_breakdowns is None or (isinstance(context.baseline, OtherRun) and not is_gate_trace):
        return
    if (
        red_row is not None
        and (baseline_value := _in_windows(assertion, red_row, baseline_breakdowns, context)) is not None
    ):
        value_text = (
            "" if assertion.judged.unit == HASH else f": {format_value(baseline_value, assertion.judged.unit)} there"
        )
        yield Note(f"the windows of the run before are of another run than this baseline{value_text}")
    with contextlib.suppress(NsysError):
        spec, own_texts = (
            spec_for(context.captures.convention, assertion),
            {note.text for note in context.notes(assertion)},
        )
        facts = baseline_breakdowns.captures.facts_about(
            spec, request_of(context.gate, assertion, None).bounds, assertion.measures
        )
        path_prefix = "" if is_gate_trace else f"{baseline_breakdowns.captures.runs[0].path}: "  # where nobody finds it
        doubts = [
            text
            for fact in facts
            if fact.note.warning and (text := from_here(fact.note.text.replace(path_prefix, ""))) not in own_texts
            if is_gate_trace or fact.name != "missing_ranks"  # of a large world the windows of some ranks are kept
        ]
        yield from [Note(f"the run before: {'; '.join(doubts)}", True)] if doubts else []


def _in_windows(assertion: Assertion, row: JudgedRow, before: RunBreakdowns, context: GateContext) -> Value | None:
    """Return the value that a row has in the windows of the baseline's run, where it differs from the baseline by more
    than is allowed.
    """
    has_fewer_ranks = len(before.ranks) < len(context.captures.runs[0].ranks)
    if row.baseline is None or (has_fewer_ranks and "rank" not in row.labels):  # which tells of all ranks
        return None
    with contextlib.suppress(NsysError, NothingSelected):
        spec = spec_for(context.captures.convention, assertion)
        window_value = folded(before.captures.rows(assertion.measures, spec), assertion).get(
            row_key(assertion, row.labels)
        )
        return (
            window_value
            if window_value is not None and distance(window_value, row.baseline) > (row.reach or 0)
            else None
        )
    return None


def _judged(
    assertion: Assertion, context: GateContext, measured: MetricTable, reference: Reference | NotComparable | None
) -> Judgement:
    """Judge measured rows by the limit and, where the assertion asks for it, by the rule of a pipeline."""
    judgement = judge(assertion, measured, reference)
    if assertion.measures.of_step:
        return _with_steps(assertion, judgement, context)
    if not assertion.pipeline or not judgement.rows:
        return judgement
    rule_table = context.captures.rows(METRICS["serialization"], spec_for(context.captures.convention, assertion))
    return with_rule(judgement, {tuple(labels.items()): value for labels, value in rule_table.labelled()})


def _with_steps(assertion: Assertion, judgement: Judgement, context: GateContext) -> Judgement:
    """Return the judgement with the length of the step that each row of one rank is a share of, in ns.

    Of several windows it is the one that has the row.
    """
    spec = spec_for(context.captures.convention, assertion)
    step_metric = replace(METRICS[STEP], window_by=assertion.measures.window_by)
    lengths = {row.labels[0]: row.value for row in context.captures.rows(step_metric, spec).rows}

    def add_step_length(row: JudgedRow) -> JudgedRow:
        rank = {**row.origin, **row.labels}.get("rank")
        return row if rank is None else replace(row, step_ns=lengths.get(rank))

    return replace(judgement, rows=tuple(map(add_step_length, judgement.rows)))


_SIDE: Mapping[Comparator | None, str] = {
    Comparator.LT: "not below",
    Comparator.LE: "above",
    Comparator.GT: "not above",
    Comparator.GE: "below",
}


def message_of(assertion: Assertion, judgement: Judgement) -> str:
    """Return the one line that says what was decided."""
    rows = judgement.rows
    match judgement.outcome:
        case Outcome.FAILED:
            failed_count = sum(row.outcome is Outcome.FAILED for row in rows)
            limit = assertion.require.limit
            if isinstance(limit, FromBaseline) and limit.no is not None:
                kernels = assertion.require.text.removeprefix("has no ")
                return f"{kernels} in {counted(failed_count, 'row')} (of {len(rows)})"
            side = _SIDE.get(assertion.require.comparator, "off")  # an equality has no side to be on
            if assertion.pipeline:
                return _pipeline_message(assertion, rows, side)
            return f"{failed_count} of {len(rows)} rows {side} their limit" if len(rows) > 1 else f"{side} its limit"
        case Outcome.NO_DATA | Outcome.INCOMPARABLE:
            return judgement.reason
        case Outcome.IMPROVED:
            better_count = sum(row.outcome is Outcome.IMPROVED for row in rows)
            return f"{better_count} of {len(rows)} rows are better than the baseline by more than the tolerance"
        case Outcome.INCONCLUSIVE:
            unclear_count = sum(row.outcome is Outcome.INCONCLUSIVE for row in rows)
            return f"{unclear_count} of {len(rows)} rows are beyond the tolerance, but within the measured noise"
    if judgement.reason:
        return f"nothing was judged: {judgement.reason}"
    waived_count = sum(row.waived for row in rows)
    if waived_count:
        return f"{len(rows) - waived_count} of {len(rows)} rows hold, {waived_count} outside the limit by a waiver"
    return f"all {len(rows)} rows hold" if len(rows) != 1 else "holds"


def _of_earlier_runs(assertion: Assertion, past: PastRuns | None, before: BadRuns | None) -> str:
    """Tell that what is bad now was bad before, on this branch or on the one that the baseline comes from; empty where
    it was not.
    """
    fail_after, text = assertion.fail_after, ""
    if before is not None:
        nth = len(before.runs) + 1
        of_text = f" of {fail_after}" if nth == fail_after or not before.failing(fail_after) else ""
        since_text = f", since {before.runs[-1]}" if before.runs else ""
        text = f"; bad run {nth}{of_text} in a row on {printable(before.branch, 60)}{since_text} (fail_after)"
    elif fail_after > 1:
        if past is None or past.path is None:
            counted_runs = "in a history (--nsys-history), and none is given here"
        elif past.branch is None:
            counted_runs = "the runs of a branch, and git names none here"
        else:
            counted_runs = f"the earlier runs of a branch, and the history has none of {printable(past.branch, 60)}"
        text = f"; fail_after counts {counted_runs}: the first bad run fails"
    base_bad_runs = past.there(assertion) if past is not None else None
    if (
        base_bad_runs is None
        or base_bad_runs.red_since is None
        or (before is not None and before.branch == base_bad_runs.branch)
    ):
        return text
    return f"{text}; already red on {printable(base_bad_runs.branch, 60)} since {base_bad_runs.red_since}"


def _pipeline_message(assertion: Assertion, rows: Sequence[JudgedRow], side: str) -> str:
    """Return which of the two halves of a pipeline's sentence does not hold, and in how many rows."""
    failed_scores = sum(row.outcome is Outcome.FAILED and not reaches_limit(row, assertion) for row in rows)
    serial_count = sum(breaks_rule(row) for row in rows)
    rows_text = f" in {{}} of {len(rows)} rows" if len(rows) > 1 else ""
    clauses = [f"the score is {side} its limit{rows_text.format(failed_scores)}"] if failed_scores else []
    if serial_count:
        clauses.append(
            f"the period is not nearer to the longer stage than to the sum of both{rows_text.format(serial_count)}"
        )
    return ", and ".join(clauses)


def _restated(
    judgement: Judgement, message: str, accepted: str, *, stored: bool, waits: bool, beside: str
) -> tuple[str, ...]:
    """Return the outcome as a warning, where pytest may take it for passed.

    ``objection`` speaks against a refresh of what improved, which only a stored baseline has; ``acceptance_warning`` is
    what is shown of an accepted change.
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
"""Names what a step or window has to become for an improvement to be one."""


def _beside(context: GateContext, step: StepChange | None, spec: WindowSpec) -> str:
    """Return why an improvement is no reason to accept the run; empty where it is one, as far as is known."""
    if context.worse:
        return "another assertion does not hold"
    if step is None or step.faster:
        return ""
    noun = noun_of(context.captures.windows(spec))
    return f"the {noun} is not {_NOT[noun]}"


def _early(assertion: Assertion, judgement: Judgement) -> list[str]:
    early_count = sum(row.early_warning for row in judgement.rows)
    if not early_count or assertion.warn is None:
        return []
    return [f"{early_count} of {len(judgement.rows)} rows do not reach the early warning {assertion.warn.text}"]


def rows_now(assertion: Assertion, context: GateContext) -> Judgement:
    """Judge an assertion without its baseline: return its rows, or why there are none."""
    assertion = context.resolved(assertion)
    reference = NotComparable(Outcome.PASSED, "") if assertion.needs_baseline else None
    return _judged(assertion, context, context.measure(assertion), reference)
