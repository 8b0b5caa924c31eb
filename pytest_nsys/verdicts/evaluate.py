"""How does one assertion become a verdict? Its rows are measured, compared with their limits, and explained.

A gate file with ``convention: auto`` is resolved once, before the run key is built. The convention is that of the
stored baseline; without one that of the base; else the one found in the run. If the run alone would be read under
another convention, the two are not comparable: another anchor measures something else, and the assertion could pass
because of that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.explain.breakdown_model import StepChange
from pytest_nsys.analysis.facts.fact import Weight
from pytest_nsys.analysis.metrics.registry import METRICS, PERIOD_METRIC, STEP_TIME_METRIC, WINDOW_LENGTH_METRIC
from pytest_nsys.analysis.metrics.table import MetricTable, NothingSelected
from pytest_nsys.analysis.steps.convention_fit import AmbiguousConventions, ConventionChoice
from pytest_nsys.analysis.windows.run_conditions import count_stored_steps
from pytest_nsys.analysis.windows.window_selection import WindowSpec, choose_window_noun
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import BaselineError, NsysError, TraceError
from pytest_nsys.core.exact import distance
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import format_count, sanitize_line, shorten_paths
from pytest_nsys.core.units import HASH
from pytest_nsys.gates.accepted_rows import BranchRefresh, accept_rows, is_acceptable
from pytest_nsys.gates.assertion_resolution import resolve_assertion
from pytest_nsys.gates.found_convention import ConventionOrigin
from pytest_nsys.gates.judgement import (
    BadRuns,
    Judgement,
    NotComparable,
    Reference,
    apply_pipeline_rule,
    breaks_pipeline_rule,
    build_row_key,
    delay_failure,
    fold_table,
    is_limit_reached,
    judge_rows,
)
from pytest_nsys.gates.model import (
    OUTSIDE_LIMIT,
    Assertion,
    BaselineLimit,
    Comparator,
    GateFile,
    JudgedRow,
    Outcome,
    Verdict,
    build_request,
    resolve_window_spec,
)
from pytest_nsys.stored.baselines.baseline_file import Baseline
from pytest_nsys.stored.baselines.store import BaselineStore
from pytest_nsys.tools.git import list_heads
from pytest_nsys.verdicts.claims import describe_claim
from pytest_nsys.verdicts.commit_age import measure_capture_age_at_commit
from pytest_nsys.verdicts.references import OtherRun, PastRuns, ReferenceSource
from pytest_nsys.verdicts.row_causes import (
    NO_WINDOWS_KEPT,
    WINDOWS_LOST,
    RowExplanations,
    compare_steps,
    explain_rows,
    find_examined_window,
    is_explained,
)
from pytest_nsys.verdicts.stored_baseline import StoredBaseline
from pytest_nsys.verdicts.structure_diff import StructureFailure
from pytest_nsys.verdicts.window_breakdowns import RunBreakdowns

ConventionFitter = Callable[[Sequence[Convention]], ConventionChoice]
"""Finds the convention that a run fits.

The argument holds the conventions of what the run is compared with, whose anchors need no new search. Raises
UsageMistake, TraceError.
"""


def resolve_gate_convention(
    gate: GateFile,
    fit_run: ConventionFitter,
    fit_base: ConventionFitter | None = None,
    store: BaselineStore | None = None,
    *,
    is_refresh: bool = False,
) -> GateFile:
    """Return the gate file with its convention; unchanged where the file names one.

    ``fit_run`` finds the convention of the run alone, ``fit_base`` that of the base, ``store`` holds the stored
    baselines; with ``is_refresh`` the run becomes one of these. Raises what the fitters raise.
    """
    if gate.convention is not None:
        return gate
    if fit_base is not None:
        base_choice = fit_base(())
        base_found = ConventionOrigin("base", _fit_alone(fit_run, [base_choice.convention]), base_choice.search_result)
        return replace(gate, convention=base_choice.convention, found_convention=base_found)
    baselines: list[Baseline] = []
    if store is not None:
        with contextlib.suppress(BaselineError):  # assertions with a baseline report it
            baselines = [baseline for _, baseline in store.load_all()]
    known_conventions = [baseline.convention for baseline in baselines if baseline.convention is not None]
    if not known_conventions:
        choice = fit_run(())
        trace_found = ConventionOrigin("trace", choice.convention, choice.search_result)
        return replace(gate, convention=choice.convention, found_convention=trace_found)
    run_convention = _fit_alone(fit_run, known_conventions)
    read_as = run_convention if run_convention in known_conventions or is_refresh else known_conventions[0]
    return replace(gate, convention=read_as, found_convention=ConventionOrigin("baseline", run_convention))


def _fit_alone(fit_run: ConventionFitter, known_conventions: Sequence[Convention]) -> Convention:
    """Return the convention that the run alone is read under; if several fit equally, prefer one of
    ``known_conventions``.
    """
    try:
        return fit_run(known_conventions).convention
    except AmbiguousConventions as tie:
        shared_convention = next(
            (convention for convention in known_conventions if convention.anchor in tie.anchors), None
        )
        if shared_convention is None:
            raise
        return shared_convention


@dataclass
class GateContext:
    """Holds everything that judging the assertions of one gate file needs."""

    captures: Captures
    gate: GateFile
    baseline: ReferenceSource | None = None  # what an assertion with a baseline is compared with
    history: PastRuns | None = None  # the history, for limits that name it and for past verdicts
    refresh_command: str = ""  # the command that makes the baseline
    folder: Path | None = None  # a folder in the repository whose commit is judged, if any
    lets_accepted_pass: bool = False  # whether the outcome *accepted* is green
    _resolved_assertions: dict[str, tuple[Assertion, Assertion]] = field(default_factory=dict, init=False, repr=False)

    def resolve(self, assertion: Assertion) -> Assertion:
        """Return the assertion resolved for these captures, as every other method expects it; cached.

        Raises what ``resolve_assertion`` raises.
        """
        resolved_pair = self._resolved_assertions.get(assertion.name)
        if resolved_pair is None or not any(assertion is known_assertion for known_assertion in resolved_pair):
            resolved_pair = self._resolved_assertions[assertion.name] = (
                assertion,
                resolve_assertion(assertion, self.captures, self.gate.run),
            )
        return resolved_pair[1]

    def find_refreshed(self, assertion: Assertion) -> BranchRefresh | None:
        """Return the branch's refresh of the baseline rows that the assertion is compared with at the merge base; None
        if the branch left them unchanged.
        """
        source = self.find_source(assertion)
        return source.find_refreshed(assertion) if isinstance(source, StoredBaseline) else None

    def measure(self, assertion: Assertion) -> MetricTable:
        """Return the rows that the assertion judges.

        Raises TraceError if the traces are not good enough for the rows.
        """
        if assertion.outside_metric is not None and self._other_run_reason:
            raise TraceError(self._other_run_reason)
        table = self.captures.measure(build_request(self.gate, assertion, self._step_count))
        if not assertion.measured_metric.is_outside_trace and self._earlier_commit_reason:
            raise TraceError(self._earlier_commit_reason)
        return table

    @cached_property
    def _earlier_commit_reason(self) -> str:
        """Describe by how much the traces are older than the judged commit; empty if they are not known to be older."""
        age = (
            measure_capture_age_at_commit(self.captures, self.folder, self.gate.quality)
            if self.folder is not None
            else None
        )
        return age.error if age is not None and age.weight is Weight.ERROR else ""

    def list_notes(self, assertion: Assertion) -> Sequence[Note]:
        """Return the notes about the rows that the assertion judges."""
        request = build_request(self.gate, assertion, self._step_count)
        return self.captures.list_notes(request.spec, assertion.measured_metric, bounds=request.bounds)

    @cached_property
    def _step_count(self) -> int | None:
        """Return the number of steps of the reference that the captures are compared with, at least 1; None if the
        captures have several steps themselves.
        """
        if count_stored_steps(self.captures.facts) > 1:
            return None
        with contextlib.suppress(NsysError):  # comparing with it reports the error
            return max(self.baseline.steps if self.baseline is not None else 0, 1)
        return 1

    @property
    def store(self) -> BaselineStore | None:
        """Return the store of the baseline; None if another trace takes the place of the baseline."""
        return self.baseline.store if isinstance(self.baseline, StoredBaseline) else None

    def find_reference(self, assertion: Assertion) -> Reference | NotComparable | None:
        """Return the reference that the assertion is compared with; None where it needs nothing. Raises BaselineError,
        TraceError.
        """
        limit = assertion.requirement.limit
        if not isinstance(limit, BaselineLimit):
            if isinstance(self.baseline, StoredBaseline):
                self.baseline.refuse_dropped()
            return None
        source = self.find_source(assertion)
        if source is None:
            missing_text = "no baseline is" if limit.history is None else "no history is"
            return NotComparable(Outcome.NO_DATA, f"{missing_text} at hand here")
        return source.find_reference(assertion)

    def find_source(self, assertion: Assertion) -> ReferenceSource | None:
        """Return the source of the assertion's baseline; None if it has no baseline, or none is available."""
        limit = assertion.requirement.limit
        if not isinstance(limit, BaselineLimit):
            return None
        return self.baseline if limit.history is None else self.history

    @cached_property
    def breakdowns(self) -> RunBreakdowns:
        """Return the broken-down windows of the run that is judged, which rows are explained by."""
        baseline_breakdowns = self.baseline_breakdowns
        return RunBreakdowns(self.captures, baseline_breakdowns.ranks if baseline_breakdowns is not None else None)

    @property
    def baseline_breakdowns(self) -> RunBreakdowns | None:
        """Return the broken-down windows of the baseline's run; None where there are none.

        They also explain assertions on the history, which keeps only values.
        """
        return self.baseline.baseline_breakdowns if self.baseline is not None else None

    @cached_property
    def disagreement_notes(self) -> tuple[Note, ...]:
        """Return a note for each fact of the run that the gate file states and the traces contradict; what the
        traces say counts.
        """
        return tuple(
            Note(f"the gate file states {name} {stated}, the traces say {traced}, which counts", True)
            for name, stated, traced in self.captures.build_key(self.gate.run).list_contradictions(self.gate.run)
        )

    @property
    def same_capture_notes(self) -> tuple[Note, ...]:
        """Return a note where the trace is the one that the stored baseline was taken from."""
        same_capture = self.baseline.same_capture_fact if isinstance(self.baseline, StoredBaseline) else None
        return () if same_capture is None else (same_capture.note,)

    @cached_property
    def has_unmet_assertion(self) -> bool:
        """Whether an assertion of the gate file is not met: an improvement elsewhere may be the other side of that."""
        return any(map(self._is_unmet, self.gate.assertions))

    def _is_unmet(self, assertion: Assertion) -> bool:
        try:
            judgement = self.judge(self.resolve(assertion))
        except NsysError:
            return True
        return judgement.outcome not in (Outcome.PASSED, Outcome.IMPROVED)

    def judge(self, assertion: Assertion) -> Judgement:
        """Return the judgement of the assertion. Raises what measuring and reading its baseline raise."""
        return _judge_table(assertion, self, self.measure(assertion), self.find_reference(assertion))

    @cached_property
    def uncompared_run_notes(self) -> tuple[Note, ...]:
        """Return a note if no assertion compares with the other trace."""
        if not isinstance(self.baseline, OtherRun) or any(
            assertion.reads_stored_baseline for assertion in self.gate.assertions
        ):
            return ()
        return (Note(f"nothing is compared with {self.baseline.name}: no assertion of this gate file has a baseline"),)

    @cached_property
    def unchecked_notes(self) -> tuple[Note, ...]:
        """Return a note if it is unknown whether the measurements are of the judged commit."""
        origins = [run.measurements.origin for run in self.captures.runs if run.measurements.origin.commit]
        if not origins or self.folder is None or list_heads(self.folder):
            return ()
        place, commit = origins[0].location, origins[0].commit
        return (Note(f"{place}: is of commit {commit}, which is not checked: git names no commit here", True),)

    @cached_property
    def _other_run_reason(self) -> str:
        """Return why the measurements are not of the judged run; empty if nothing suggests that."""
        for origin in (run.measurements.origin for run in self.captures.runs):
            stated_run = origin.run if isinstance(origin.run, Mapping) else {}
            for name, stated_value, traced_value in self.captures.build_key(self.gate.run).list_contradictions(
                stated_run
            ):
                return (
                    f"{origin.location}: is from a different setup: {name} is {stated_value} there, "
                    f"and {traced_value} here"
                )
            commit = (origin.commit or "").lower()
            heads = list_heads(self.folder) if self.folder is not None and commit else ()
            if heads and not any(head.startswith(commit) for head in heads):
                head_commit = heads[0][:12]  # 12 digits are unique even in a large repository
                return (
                    f"{origin.location}: was measured at commit {commit}, and {head_commit} is checked out: measure "
                    "again"
                )
        return ""


def evaluate(assertion: Assertion, context: GateContext) -> Verdict:
    """Judge one assertion and return its verdict.

    Raises TraceError where the trace cannot be judged, BaselineError for a broken baseline.
    """
    assertion = context.resolve(assertion)
    metric = assertion.measured_metric
    spec = resolve_window_spec(context.captures.convention, assertion)
    table = context.measure(assertion)
    reference = context.find_reference(assertion)
    baseline_reference = reference if isinstance(reference, Reference) else None
    raw_judgement = _judge_table(assertion, context, table, reference)
    if assertion.is_claim and raw_judgement.outcome is Outcome.PASSED:
        raw_judgement = _refuse_unlike_work(raw_judgement, _explain_judgement(assertion, raw_judgement, context).step)
    has_failed = raw_judgement.outcome is Outcome.FAILED
    bad_runs = (
        context.history.find_own_bad_runs(assertion)
        if has_failed and context.history is not None and assertion.fail_after > 1
        else None
    )
    judgement = delay_failure(raw_judgement, assertion.fail_after, bad_runs)
    is_delayed = judgement is not raw_judgement
    branch_refresh = context.find_refreshed(assertion) if is_acceptable(assertion, judgement) else None
    judgement, acceptance = accept_rows(
        assertion, judgement, table, branch_refresh, lets_pass=context.lets_accepted_pass
    )
    message = format_verdict_message(assertion, raw_judgement) + acceptance.message_suffix
    message += _describe_earlier_runs(assertion, context.history, bad_runs) if has_failed else ""
    source = context.find_source(assertion)
    explanations = _explain_judgement(assertion, judgement, context)
    objection = _find_objection(context, explanations.step, spec) if judgement.outcome is Outcome.IMPROVED else ""
    return Verdict(
        assertion=assertion,
        outcome=judgement.outcome,
        message=message,
        unit=assertion.limit_target.unit,
        rows=judgement.rows,
        windows=context.captures.list_windows(spec),
        measured_as=str(spec),
        outcome_warnings=_format_outcome_warnings(
            judgement,
            message,
            acceptance.warning,
            is_stored=isinstance(context.find_source(assertion), StoredBaseline),
            is_delayed=is_delayed,
            objection=objection,
        ),
        cautions=(
            *_list_early_warnings(assertion, judgement),
            *judgement.warnings,
            *(baseline_reference.warnings if baseline_reference else ()),
            *context.captures.describe_outlying_captures(metric, spec),
        ),
        notes=(
            *(context.same_capture_notes if assertion.reads_stored_baseline else ()),
            *_list_baseline_run_notes(assertion, judgement, context, explanations),
            *(note for note in context.list_notes(assertion) if note.text not in message),
            *context.disagreement_notes,
            *context.uncompared_run_notes,
            *(context.unchecked_notes if assertion.outside_metric is not None else ()),
            *(baseline_reference.notes if baseline_reference else ()),
        ),
        next_step=context.refresh_command
        if assertion.reads_stored_baseline and not assertion.is_claim and not objection and not acceptance.reason
        else "",
        is_new=isinstance(reference, NotComparable) and reference.is_new,
        differences=reference.differences if isinstance(reference, NotComparable) else (),
        compared_with=baseline_reference.origin if baseline_reference else "",
        details=StructureFailure(
            assertion, judgement, context.captures, context.baseline if source is not None else None
        ).list_lines(),
        causes=explanations.rows,
        step=explanations.step,
        examined_window=explanations.examined_window,
        examined_baseline=explanations.examined_baseline,
        delayed=is_delayed,
        accepted_for=acceptance.reason,
        lets_pass=bool(acceptance.warning),
        configuration=context.gate.configuration,
    )


def _explain_judgement(assertion: Assertion, judgement: Judgement, context: GateContext) -> RowExplanations:
    metric, spec = assertion.measured_metric, resolve_window_spec(context.captures.convention, assertion)
    if metric.is_outside_trace or not any(map(is_explained, judgement.rows)):
        return RowExplanations()
    baseline_breakdowns = context.baseline_breakdowns
    if baseline_breakdowns is None:
        has_baseline_rows = any(row.outcome in OUTSIDE_LIMIT and row.baseline is not None for row in judgement.rows)
        examined_window = find_examined_window(metric, spec, judgement.rows, context.breakdowns)
        lost_file = context.baseline.lost_windows_file if context.baseline is not None else ""
        return RowExplanations(
            examined_window=examined_window,
            missing_reason=(WINDOWS_LOST.format(lost_file) if lost_file else NO_WINDOWS_KEPT)
            if has_baseline_rows
            else "",
        )
    explanations = explain_rows(metric, spec, judgement.rows, baseline_breakdowns, context.breakdowns)
    step = explanations.step
    if step is None:
        return explanations
    periods = _compare_periods(spec, baseline_breakdowns.captures, context) or step
    return explanations._replace(step=periods._replace(unlike_counts=step.unlike_counts))


def _compare_periods(spec: WindowSpec, baseline: Captures, context: GateContext) -> StepChange | None:
    """Return how the length of a step changed, whatever the window: by the median period of the anchors, else by the
    step time.

    None if neither is known of both runs, if a step has several anchors, or if a window has several steps.
    """
    captures = context.captures
    if captures.convention.marks_parts:
        return None
    names = (PERIOD_METRIC, STEP_TIME_METRIC) if captures.runs[0].workload.steps is None else (PERIOD_METRIC,)
    with contextlib.suppress(NsysError):
        table_pairs = (
            (baseline.measure_rows(METRICS[name], spec), captures.measure_rows(METRICS[name], spec)) for name in names
        )
        step_changes = (compare_steps(*tables) for tables in table_pairs)
        return next((step for step in step_changes if step is not None), None)
    return None


def _list_baseline_run_notes(
    assertion: Assertion, judgement: Judgement, context: GateContext, explanations: RowExplanations
) -> Iterator[Note]:
    """Yield notes on the baseline's run, by which the change is explained.

    They say that there is no such run, that it is not the run that the baseline was written from, or what is doubtful
    about that run and not about this one. A comparison of two runs shows this elsewhere.
    """
    if explanations.missing_reason and assertion.measured_metric.is_explained:
        yield Note(f"no why: {explanations.missing_reason}")
    red_row = next((row for row in judgement.rows if row.outcome in OUTSIDE_LIMIT and row.baseline is not None), None)
    is_gate_trace = isinstance(context.baseline, OtherRun) and not context.baseline.allows_shared_files
    baseline_breakdowns = (
        context.baseline_breakdowns if assertion.needs_baseline and (is_gate_trace or red_row is not None) else None
    )
    if baseline_breakdowns is None or (isinstance(context.baseline, OtherRun) and not is_gate_trace):
        return
    if (
        red_row is not None
        and (baseline_value := _find_contradicting_window_value(assertion, red_row, baseline_breakdowns, context))
        is not None
    ):
        value_text = (
            ""
            if assertion.limit_target.unit == HASH
            else f": {format_value(baseline_value, assertion.limit_target.unit)} there"
        )
        yield Note(f"the windows of the base are of another run than this baseline{value_text}")
    with contextlib.suppress(NsysError):
        spec, own_texts = (
            resolve_window_spec(context.captures.convention, assertion),
            {note.text for note in context.list_notes(assertion)},
        )
        facts = baseline_breakdowns.captures.list_facts(
            spec, build_request(context.gate, assertion, None).bounds, assertion.measured_metric
        )
        # A window file is unpacked to a temporary path, which is of no use in a note.
        path_prefix = "" if is_gate_trace else f"{baseline_breakdowns.captures.runs[0].path}: "
        doubts = [
            text
            for fact in facts
            if fact.note.warning and (text := shorten_paths(fact.note.text.replace(path_prefix, ""))) not in own_texts
            if is_gate_trace or fact.name != "missing_ranks"  # a baseline keeps the windows of some ranks only
        ]
        yield from [Note(f"the base: {'; '.join(doubts)}", True)] if doubts else []


def _find_contradicting_window_value(
    assertion: Assertion, row: JudgedRow, baseline: RunBreakdowns, context: GateContext
) -> Value | None:
    """Return the value of a row in the windows of the baseline's run if it contradicts the baseline: if it differs by
    more than the allowed change. Else None.
    """
    has_fewer_ranks = len(baseline.ranks) < len(context.captures.runs[0].ranks)
    if row.baseline is None or (has_fewer_ranks and "rank" not in row.labels):  # such a row depends on all ranks
        return None
    with contextlib.suppress(NsysError, NothingSelected):
        spec = resolve_window_spec(context.captures.convention, assertion)
        window_value = fold_table(baseline.captures.measure_rows(assertion.measured_metric, spec), assertion).get(
            build_row_key(assertion, row.labels)
        )
        return (
            window_value
            if window_value is not None and distance(window_value, row.baseline) > (row.allowed_change or 0)
            else None
        )
    return None


def _judge_table(
    assertion: Assertion, context: GateContext, table: MetricTable, reference: Reference | NotComparable | None
) -> Judgement:
    """Judge measured rows by the limit and, where the assertion asks for it, by the rule of a pipeline."""
    judgement = judge_rows(assertion, table, reference)
    if assertion.measured_metric.is_share_of_step:
        return _add_step_lengths(assertion, judgement, context)
    if not assertion.pipeline or not judgement.rows:
        return judgement
    rule_table = context.captures.measure_rows(
        METRICS["serialization"], resolve_window_spec(context.captures.convention, assertion)
    )
    return apply_pipeline_rule(judgement, {tuple(labels.items()): value for labels, value in rule_table.label_rows()})


def _add_step_lengths(assertion: Assertion, judgement: Judgement, context: GateContext) -> Judgement:
    """Return the judgement with the length in ns of the step that each row of one rank is a share of.

    Of several windows, the one that holds the row's value counts.
    """
    spec = resolve_window_spec(context.captures.convention, assertion)
    step_metric = replace(
        METRICS[WINDOW_LENGTH_METRIC], median_window_metric=assertion.measured_metric.median_window_metric
    )
    lengths = {row.labels[0]: row.value for row in context.captures.measure_rows(step_metric, spec).rows}

    def add_step_length(row: JudgedRow) -> JudgedRow:
        rank = {**row.origin, **row.labels}.get("rank")
        return row if rank is None else replace(row, step_ns=lengths.get(rank))

    return replace(judgement, rows=tuple(map(add_step_length, judgement.rows)))


_LIMIT_SIDES: Mapping[Comparator | None, str] = {
    Comparator.LT: "not below",
    Comparator.LE: "above",
    Comparator.GT: "not above",
    Comparator.GE: "below",
}


def format_verdict_message(assertion: Assertion, judgement: Judgement) -> str:
    """Return the message of a verdict, on one line."""
    rows = judgement.rows
    if assertion.is_claim and rows and judgement.outcome in (Outcome.PASSED, Outcome.FAILED):
        return describe_claim(assertion, rows)
    match judgement.outcome:
        case Outcome.FAILED:
            failed_count = sum(row.outcome is Outcome.FAILED for row in rows)
            limit = assertion.requirement.limit
            if isinstance(limit, BaselineLimit) and limit.forbidden_rows is not None:
                kernels = assertion.requirement.text.removeprefix("has no ")
                return f"{kernels} in {format_count(failed_count, 'row')} (of {len(rows)})"
            side = _LIMIT_SIDES.get(assertion.requirement.comparator, "off")  # an equality has no side to be on
            if assertion.pipeline:
                return _format_pipeline_message(assertion, rows, side)
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


def _describe_earlier_runs(assertion: Assertion, past_runs: PastRuns | None, bad_runs: BadRuns | None) -> str:
    """Describe earlier runs in which the assertion was bad as well, on this branch or on the baseline's; empty if there
    are none.
    """
    fail_after, text = assertion.fail_after, ""
    if bad_runs is not None:
        nth = len(bad_runs.runs) + 1
        of_text = f" of {fail_after}" if nth == fail_after or not bad_runs.is_failing(fail_after) else ""
        since_text = f", since {bad_runs.runs[-1]}" if bad_runs.runs else ""
        text = f"; bad run {nth}{of_text} in a row on {sanitize_line(bad_runs.branch, 60)}{since_text} (fail_after)"
    elif fail_after > 1:
        if past_runs is None or past_runs.path is None:
            counted_runs = "in a history (--nsys-history), and none is given here"
        elif past_runs.branch is None:
            counted_runs = "the runs of a branch, and git names none here"
        else:
            counted_runs = (
                f"the earlier runs of a branch, and the history has none of {sanitize_line(past_runs.branch, 60)}"
            )
        text = f"; fail_after counts {counted_runs}: the first bad run fails"
    base_bad_runs = past_runs.find_base_bad_runs(assertion) if past_runs is not None else None
    if (
        base_bad_runs is None
        or base_bad_runs.red_since is None
        or (bad_runs is not None and bad_runs.branch == base_bad_runs.branch)
    ):
        return text
    return f"{text}; already red on {sanitize_line(base_bad_runs.branch, 60)} since {base_bad_runs.red_since}"


def _format_pipeline_message(assertion: Assertion, rows: Sequence[JudgedRow], side: str) -> str:
    """Return which half of the pipeline sentence fails, the score or the pipeline rule, and in how many rows."""
    failed_scores = sum(row.outcome is Outcome.FAILED and not is_limit_reached(row, assertion) for row in rows)
    serial_count = sum(breaks_pipeline_rule(row) for row in rows)
    rows_text = f" in {{}} of {len(rows)} rows" if len(rows) > 1 else ""
    clauses = [f"the score is {side} its limit{rows_text.format(failed_scores)}"] if failed_scores else []
    if serial_count:
        clauses.append(
            f"the period is not nearer to the longer stage than to the sum of both{rows_text.format(serial_count)}"
        )
    return ", and ".join(clauses)


def _format_outcome_warnings(
    judgement: Judgement, message: str, acceptance_warning: str, *, is_stored: bool, is_delayed: bool, objection: str
) -> tuple[str, ...]:
    """Return the outcome as a warning if it may let the pytest item pass.

    ``objection`` is a reason not to refresh an improved row, which needs a stored baseline; ``acceptance_warning`` is
    the warning of an accepted change.
    """
    match judgement.outcome:
        case Outcome.IMPROVED if not is_stored:
            return (message,)
        case Outcome.IMPROVED if objection:
            return (f"{message}, while {objection}: look at what it cost before you accept this run",)
        case Outcome.IMPROVED:
            return (f"the baseline is stale: {message}; refresh it",)
        case Outcome.INCONCLUSIVE:
            return (f"inconclusive: {message}" + ("" if is_delayed else "; take more captures"),)
        case Outcome.ACCEPTED:
            return (acceptance_warning,) if acceptance_warning else ()
    return (message,) if judgement.outcome is Outcome.PASSED and judgement.reason else ()


_FASTER_WORDS = {"step": "faster", "window": "shorter"}
"""The word for a step or a window that became shorter."""


def _refuse_unlike_work(judgement: Judgement, step: StepChange | None) -> Judgement:
    """Return the judgement of a claim; *no data* where less work, not faster work, makes it hold."""
    if step is None or step.unlike_counts is None:
        return judgement
    before, now = step.unlike_counts
    rows = tuple(replace(row, outcome=Outcome.NO_DATA) for row in judgement.rows)
    reason = f"the windows are of unlike work ({before} → {now} kernels), and a claim is of the same work"
    return replace(judgement, outcome=Outcome.NO_DATA, rows=rows, reason=reason)


def _find_objection(context: GateContext, step: StepChange | None, spec: WindowSpec) -> str:
    """Return why an improvement should not be accepted as the new baseline; empty if nothing speaks against it."""
    if context.has_unmet_assertion:
        return "another assertion does not hold"
    if step is not None and step.unlike_counts is not None:
        before, now = step.unlike_counts
        return f"the windows are of unlike work ({before} → {now} kernels)"
    if step is None or step.is_faster:
        return ""
    noun = choose_window_noun(context.captures.list_windows(spec))
    return f"the {noun} is not {_FASTER_WORDS[noun]}"


def _list_early_warnings(assertion: Assertion, judgement: Judgement) -> list[str]:
    early_count = sum(row.early_warning for row in judgement.rows)
    if not early_count or assertion.warn is None:
        return []
    return [f"{early_count} of {len(judgement.rows)} rows do not reach the early warning {assertion.warn.text}"]


def judge_without_baseline(assertion: Assertion, context: GateContext) -> Judgement:
    """Judge an assertion without its baseline: return the measured rows, or why there are none."""
    assertion = context.resolve(assertion)
    reference = NotComparable(Outcome.PASSED, "") if assertion.needs_baseline else None
    return _judge_table(assertion, context, context.measure(assertion), reference)
