"""Which pytest nodes does a gate file have? One for the file, and one for each assertion.

Items depend only on the YAML: no trace is opened during collection, so that all xdist workers collect the same. A trace
that cannot be judged is an error in the item's setup; every other verdict is reached in ``runtest``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_nsys.analysis.explain.breakdown_model import VIEW_BY_ACTIVITY, Change, RowActivity
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.errors import BaselineError, GateFileError, Mistake, NothingMeasured, NoTraceGiven, NsysError
from pytest_nsys.core.file_names import find_name_mistake
from pytest_nsys.core.model import NextStep
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.gates.comparability import list_agreeing_fields
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.model import Assertion, GateFile, Outcome, Verdict, resolve_window_spec
from pytest_nsys.outcomes import GateFailed, GateNotJudged, NotRun, NsysWarning
from pytest_nsys.plugin.session import NsysSession, get_nsys_session
from pytest_nsys.plugin.settings import find_setting_path
from pytest_nsys.reports.session.record import AssertionRecord, make_error_record, make_record
from pytest_nsys.reports.words.verdict_text import ACCEPT_PURPOSE, find_worst_rank

if TYPE_CHECKING:
    from pytest_nsys.plugin.baseline_refresh import SessionRefresh
    from pytest_nsys.plugin.recorder import HistoryEntry
    from pytest_nsys.reports.drawings.pictures import VerdictPictures
    from pytest_nsys.verdicts.evaluate import GateContext


DECIDING_MARKS = ("xfail", "skip", "skipif")
"""Marks that change how pytest counts a test's result."""


class GateFileNode(pytest.File):
    """Collects a ``*.nsys.yaml`` file."""

    mistakes: Sequence[Mistake] = ()  # errors in the file, set by the collection
    gate_items: Sequence[GateItem] = ()  # its items, set by the collection

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one item for each assertion. All mistakes of the file are one collection error."""
        self.gate_items = gate_items = []
        shown_path = Path(get_nsys_session(self.config).format_path(self.path))
        if name_problem := find_name_mistake(self.path.name):
            raise self.CollectError(f"{shown_path}: {name_problem}")
        try:
            gate_file = load_gate_file(self.path, display=shown_path)
            get_nsys_session(self.config).sources.configuration_names.update(gate_file.configuration_names)
            for gate in gate_file.judged_gates:
                for assertion in gate.assertions:
                    name = format_item_name(assertion.name, gate)
                    # pytest finds the brackets in an explicit node id, not in a name: then --lf would miss the item.
                    own_id = f"{self.nodeid}::{name}"
                    item = GateItem.from_parent(self, name=name, nodeid=own_id, gate=gate, assertion=assertion)
                    item.add_marks()
                    gate_items.append(item)
                    yield item
        except GateFileError as error:
            self.mistakes = error.mistakes
            raise self.CollectError(str(error)) from error


def format_item_name(name: str, gate: GateFile) -> str:
    """Return the name of an assertion's item, with its configuration if the file has several."""
    return f"{name}[{gate.configuration}]" if gate.configuration else name


def resolve_node_id(argument: str, folder: Path) -> str:
    """Return a node id of the command line as it is collected: a whole sentence loses its limit."""
    file, _, sentence = argument.partition("::")
    with contextlib.suppress(GateFileError, OSError):  # the collection reports it
        for gate in load_gate_file(folder / file).judged_gates:
            for assertion in gate.assertions:
                if sentence == format_item_name(assertion.full_name, gate):
                    return f"{file}::{format_item_name(assertion.name, gate)}"
    return argument


def format_failure(item: pytest.Item, excinfo: pytest.ExceptionInfo[BaseException], text: str) -> Any:
    """Return ``text`` as pytest shows a failure of ``item``; its first line is the short summary and JUnit's message.

    For plain text, the short summary would repeat all of it in CI and with -vv, and show nothing with pytest 8.
    """
    representation = excinfo.getrepr(style="value")
    crash = getattr(representation, "reprcrash", None)
    if crash is not None:
        path, line, _ = item.reportinfo()
        crash.path, crash.lineno, crash.message = str(path), (line or 0) + 1, text.partition("\n")[0]
        return representation
    return text


class JudgedItem(pytest.Item):
    """A test that ends with one of our verdicts."""

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **kwargs: Any) -> Any:
        """Show a verdict without a traceback."""
        if isinstance(excinfo.value, GateFailed | GateNotJudged):
            return format_failure(self, excinfo, str(excinfo.value))
        return super().repr_failure(excinfo, *args, **kwargs)


class GateItem(JudgedItem):
    """A test for one assertion, in one configuration if the file has several."""

    def __init__(self, *, gate: GateFile, assertion: Assertion, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gate, self.assertion = gate, assertion
        self.extra_keyword_matches |= {assertion.full_name, assertion.metric}  # for -k
        # The report carries these three to xdist's controller.
        self.record: AssertionRecord | None = None  # the data for reports
        self.history: HistoryEntry | None = None  # set if a history is written
        self.pictures: VerdictPictures | None = None  # set if a page is written
        self.nothing_measured = False
        self._own_marks: list[pytest.Mark] = []
        self._context: GateContext | None = None

    @property
    def context(self) -> GateContext:
        assert self._context is not None
        return self._context

    def add_marks(self) -> None:
        """Add the gate file's marks, ``nsys``, and xfail (only for the verdict *failed*).

        Raises GateFileError for a mark that pytest rejects.
        """
        self.add_marker("nsys")
        for name in self.assertion.marks:
            try:
                self.add_marker(name)
            except (pytest.fail.Exception, pytest.PytestUnknownMarkWarning) as error:  # --strict-markers, -W error
                path, line, column = self.assertion.location
                raise GateFileError([Mistake(str(path), str(error), line, column)]) from error
        if self.assertion.xfail is not None and not self.is_written:  # an item whose rows are written passes anyway
            self.add_marker(pytest.mark.xfail(reason=self.assertion.xfail, raises=GateFailed, strict=True))
        self._own_marks = [*self.own_markers]

    @property
    def _refreshing(self) -> SessionRefresh:
        from pytest_nsys.plugin.baseline_refresh import get_session_refresh  # only for a session that writes

        return get_session_refresh(get_nsys_session(self.config))

    @property
    def is_written(self) -> bool:
        """Whether the rows of the item are written instead of judged."""
        return get_nsys_session(self.config).is_updating and self._refreshing.is_chosen(self.assertion)

    @property
    def forced(self) -> str:
        """Return the marks from outside the gate file that decide how pytest counts the verdict; empty if there are
        none.
        """
        marks = (mark for mark in self.iter_markers() if mark.name in DECIDING_MARKS)
        return ", ".join(
            dict.fromkeys(mark.name for mark in marks if not any(mark is own_mark for own_mark in self._own_marks))
        )

    def setup(self) -> None:
        """Open the trace and measure; only whether it can be judged is decided here.

        Raises NotRun without a trace, pytest's Failed if it cannot be judged.
        """
        self.record = self.history = self.pictures = None  # reset, as a test may be run again
        self.user_properties[:] = [
            user_property for user_property in self.user_properties if not user_property[0].startswith("nsys_")
        ]
        session = get_nsys_session(self.config)
        try:
            self._context = session.get_context(self.gate)
            self._context.captures.build_key(self._context.gate.run)
            assertion = self._context.resolve(self.assertion)
            self._context.measure(assertion)
            if self.is_written:
                self._refreshing.get_refresh(self.gate).check_readable()
            else:
                self._context.find_reference(assertion)
        except NoTraceGiven as mistake:
            raise NotRun(str(mistake)) from None
        except NsysError as error:
            self._fail_setup(error)

    def _fail_setup(self, error: NsysError) -> NoReturn:
        session = get_nsys_session(self.config)
        message = session.explain_error(error)
        address = self._keep_error(message)
        self.nothing_measured = isinstance(error, NothingMeasured)
        text = f"error: {session.format_message(message)}\n{address}"
        raise pytest.fail.Exception(text, pytrace=False) from None  # one line suffices: no chain of exceptions

    def _keep_error(self, message: str, outcome: Outcome = Outcome.ERROR) -> str:
        """Keep the record of an assertion that cannot be judged, and return its location and sentence: ``FILE:LINE:
        SENTENCE``.
        """
        self._keep_record(make_error_record(self.assertion, message, outcome, configuration=self.gate.configuration))
        return f"{self.assertion.location.file_and_line}: {self.assertion.sentence}"

    def _keep_record(self, record: AssertionRecord, verdict: Verdict | None = None) -> None:
        """Keep the record of the verdict, with the judged run as far as it is known."""
        began_text, run_key, convention_text, session = "", None, "", get_nsys_session(self.config)
        with contextlib.suppress(NsysError):  # the reason why there is no verdict
            if self._context is not None:
                captures, gate = self._context.captures, self._context.gate
                convention_text = (
                    gate.found_convention.describe_shortly(gate.resolved_convention)
                    if gate.found_convention is not None
                    else ""
                )
                began_text = f"{captures.start_time:%Y-%m-%d %H:%M}" if captures.start_time is not None else ""
                run_key = captures.build_key(gate.run)
        self.record = replace(
            record.with_message(session.format_message(record.message)),
            explanation=tuple(map(session.format_message, record.explanation)),
            traces=session.list_traces(self.gate),
            detected_convention=convention_text,
            start_time=began_text,
            key=run_key,
        )
        self.user_properties.extend(self.record.list_junit_properties())
        self._remember_history(self.record.outcome, self.record.message, verdict)

    def _remember_history(self, outcome: str, message: str, verdict: Verdict | None = None) -> None:
        """Keep the history entry, if a history is written."""
        session = get_nsys_session(self.config)
        if session.history_path is not None:
            from pytest_nsys.plugin.recorder import build_history_entry

            self.history = build_history_entry(
                session, self.gate, self.assertion, self._context, (outcome, message), verdict
            )

    def drop_rows(self) -> None:
        """Drop the rows of the record that no summary shows."""
        if self.record is not None:
            self.record = self.record.keep_notable_rows()

    def runtest(self) -> None:
        """Judge the assertion, or queue its rows to be written. Raises GateFailed, GateNotJudged for a bad verdict."""
        session = get_nsys_session(self.config)
        if self.is_written:
            self._queue_refresh()
            return
        from pytest_nsys.verdicts.evaluate import evaluate

        try:
            verdict = evaluate(self.assertion, self.context)
        except NsysError as error:
            self._fail_setup(error)
        record = make_record(verdict, self._describe_run())
        if verdict.outcome is not Outcome.PASSED:
            from pytest_nsys.reports.words.verdict_text import render_explanation

            if find_setting_path(self.config, "nsys_artifacts") is not None:
                from pytest_nsys.plugin.artifacts import keep_windows

                artifact = keep_windows(session, verdict, self.context)
                record = replace(record, artifact=artifact.path, missing_artifact_reason=artifact.problem)
            steps = self._list_next_steps(verdict, record.artifact)
            explanation_lines = tuple(
                render_explanation(record.verdict, steps, verbose=self.config.get_verbosity() > 0)
            )
            record = replace(record, next_steps=tuple(steps), explanation=explanation_lines)
        self._keep_record(record, verdict)
        if self.config.getoption("nsys_html") is not None:
            self.pictures = _draw_pictures(session, verdict, self.context)
        if not verdict.good:
            has_failed = verdict.outcome in (Outcome.FAILED, Outcome.ACCEPTED, Outcome.IMPROVED)
            raise (GateFailed if has_failed else GateNotJudged)(record.full_explanation)
        self._emit_warnings(verdict)

    def _emit_warnings(self, verdict: Verdict) -> None:
        """Issue a warning for a failure with ``severity: warn``, and for each warning of the verdict.

        This is the last step, so that the verdict is recorded before ``-W error`` turns a warning into a failure.
        """
        if verdict.outcome is Outcome.FAILED:
            assert self.record is not None
            lines = [f"{verdict.message} (severity: warn)", *self.record.explanation[1:]]  # below the outcome
            self.warn(NsysWarning("\n".join(lines)))
        for text in verdict.warnings:
            self.warn(NsysWarning(f"{self.assertion.full_name}: {text}"))

    def _list_next_steps(self, verdict: Verdict, artifact: str) -> list[NextStep]:
        """List the next steps: look into the trace, and at its windows in Perfetto, which are in the file ``artifact``
        if that is not empty; store or accept a baseline, or write a looser limit or a waiver.
        """
        from pytest_nsys.reports.stored.unresolved_failures import build_accepting_sentence, build_waiving_step

        session = get_nsys_session(self.config)
        steps: list[NextStep] = []
        if any(run.steps_by_kind.explain_missing_kind(verdict.assertion.kind) for run in self.context.captures.runs):
            return steps  # the message lists what the trace has; no command can measure what it lacks
        viewable_outcomes = (Outcome.FAILED, Outcome.ACCEPTED, Outcome.NO_DATA)
        if verdict.outcome in viewable_outcomes and verdict.assertion.outside_metric is None:
            view, rank = _choose_view(verdict), find_worst_rank(verdict)
            if view == "pipeline" and self.gate.workload.pipeline is None:
                view = "streams"
            steps += _suggest_gpu_check(verdict)
            if (late_cause := _find_cause_elsewhere(verdict, rank)) is not None:
                view, rank = VIEW_BY_ACTIVITY.get(late_cause.root.activity, view), late_cause.rank
            elif self._is_waiting_for_rank(verdict):
                view, rank = "collectives", None
            steps.append(NextStep(session.format_look_command(self.context.gate, verdict, view, rank)))
            steps += self._suggest_perfetto(verdict, artifact)
        fields = list_agreeing_fields(verdict.differences, self.gate.comparable_on)
        if verdict.outcome is Outcome.INCOMPARABLE and fields:
            line = f"comparable_on: [{', '.join(fields)}]"
            steps.append(NextStep(line, "in the gate file, where this may differ on purpose"))
        if verdict.next_step:
            is_acceptable = verdict.outcome in (Outcome.FAILED, Outcome.IMPROVED)
            has_no_baseline = verdict.outcome is Outcome.NO_DATA and not verdict.compared_with
            has_lost_rows = verdict.outcome is Outcome.NO_DATA and not has_no_baseline
            purpose = ACCEPT_PURPOSE if is_acceptable or has_lost_rows else "store a baseline"
            command = verdict.next_step
            if verdict.is_new:  # the rows of the other assertions would be accepted, too
                purpose = "store its rows alone, better from a run of main"
                command = session.format_refresh_command(self.gate, format_item_name(self.assertion.name, self.gate))
            steps.insert(0 if has_no_baseline else len(steps), NextStep(command, purpose))
        if sentence := build_accepting_sentence(verdict):
            place = f"{session.format_path(self.path)}:{self.assertion.location.line}"
            steps.append(NextStep(f"write: {sanitize_line(sentence, 400)}", f"in {place}, to accept it"))
        waiving_step = build_waiving_step(verdict, session.format_path(self.path))
        return [*steps, waiving_step] if waiving_step is not None else steps

    def _suggest_perfetto(self, verdict: Verdict, artifact: str) -> Iterator[NextStep]:
        """Suggest looking at the windows of a failure in Perfetto: their file, or the command that writes it."""
        windows_text = "the window" if self.context.baseline_breakdowns is None else "both windows"
        if artifact:
            from pytest_nsys.plugin.artifacts import TRACE_VIEWER

            yield NextStep(f"{TRACE_VIEWER} opens {artifact}", windows_text)
        elif verdict.outcome is Outcome.FAILED and not verdict.good and verdict.assertion.xfail is None:
            command = get_nsys_session(self.config).format_artifact_command(self.context.gate)
            yield from [NextStep(command, f"{windows_text} in Perfetto")] if command else []

    def _is_waiting_for_rank(self, verdict: Verdict) -> bool:
        """Whether the worst row waits for another rank that the view `collectives` can name."""
        leading_cause = verdict.causes[0].explanation.leading_cause if verdict.causes else None
        if leading_cause is None or leading_cause.straggler is None or not leading_cause.root.name:
            return False
        captures = self.context.captures
        with contextlib.suppress(NsysError):
            return bool(
                captures.measure_rows(
                    METRICS["collective_wait_ns"], resolve_window_spec(captures.convention, self.assertion)
                ).rows
            )
        return False

    def _queue_refresh(self) -> None:
        """Queue the rows of this assertion to be written at the end of the session, or record why they are not."""
        from pytest_nsys.stored.history.database import REFRESH
        from pytest_nsys.verdicts.refresh import Refusal

        refresh = self._refreshing.get_refresh(self.gate)
        try:
            if self.context.store is not None and self.assertion.reads_stored_baseline:
                self.context.store.check_writable_folder()
            refusal = refresh.refresh_refusal
        except BaselineError as error:
            refusal = Refusal(str(error), Outcome.ERROR)
        if refusal is not None:
            session = get_nsys_session(self.config)
            reason = self._refreshing.refusals[self.gate.address] = session.format_message(refusal.reason)
            raise GateNotJudged(f"refused: {reason}\n{self._keep_error(f'refused: {reason}', refusal.outcome)}")
        if (missing_data := refresh.reasons_without_data.get(self.assertion.full_name)) is not None:
            reason = f"not stored: {get_nsys_session(self.config).format_message(missing_data)}"
            raise GateNotJudged(f"{reason}\n{self._keep_error(reason, Outcome.NO_DATA)}")
        if self.assertion.reads_stored_baseline:
            refresh.wanted_assertions.append(self.assertion)
        elif self.assertion.needs_baseline:
            self._refreshing.restarted.append(self.name)
        self._remember_history(REFRESH, refresh.reason)

    def _describe_run(self) -> str:
        """Describe the run: its files, ranks, mesh, GPU and convention."""
        session = get_nsys_session(self.config)
        files_text = ", ".join((*session.list_traces(self.gate), *session.list_measurements(self.gate)))
        key = self.context.captures.build_key(self.context.gate.run)
        mesh = " ".join(f"{axis}={n}" for axis, n in (key.mesh or {}).items())
        convention, found_convention = self.context.gate.resolved_convention, self.context.gate.found_convention
        name = convention.name if found_convention is None else found_convention.describe_briefly(convention)
        convention_text = name if key.convention is not None else ""
        parts = [format_count(key.world, "rank") if key.world is not None else "", mesh, key.gpu or "", convention_text]
        details = ", ".join(part for part in parts if part)
        return f"{files_text} ({details})" if details else files_text

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **kwargs: Any) -> Any:
        """Show a verdict, or a warning raised by -W error, without a traceback."""
        if isinstance(excinfo.value, NsysWarning):
            text = f"warning: {excinfo.value}\n{self.assertion.location.file_and_line}: {self.assertion.sentence}"
            return format_failure(self, excinfo, text)
        return super().repr_failure(excinfo, *args, **kwargs)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the location of the sentence in the gate file (0-based line)."""
        return self.path, self.assertion.location.line - 1, self.name


_SENT_WINDOWS = pytest.StashKey[set[str]]()
"""The keys of pictures that this process has already sent."""


def _draw_pictures(session: NsysSession, verdict: Verdict, context: GateContext) -> VerdictPictures:
    """Return what the page draws of a verdict. A process sends each window only once."""
    from pytest_nsys.reports.drawings.pictures import draw_verdict, measure_worst_row

    base_windows = context.baseline_breakdowns
    base = base_windows.captures if base_windows is not None else None
    sent_windows = session.config.stash.setdefault(_SENT_WINDOWS, set())
    pictures = draw_verdict(verdict, context.captures, base, sent_windows)
    if session.history_path is not None:
        store = session.open_store(context.gate)
        return replace(pictures, worst_row=measure_worst_row(verdict, context.captures, context.gate.run, store.gate))
    return pictures


def _choose_view(verdict: Verdict) -> str:
    """Return the view of the metric; where that has none of its own, the view that shows the cause of the worst row,
    or the largest part of its change.
    """
    metric_view = verdict.assertion.measured_metric.view
    if not verdict.causes or metric_view != "streams":
        return metric_view
    worst_row = verdict.causes[0]
    cause = next(iter(worst_row.root_causes), worst_row.explanation.leading_cause)
    return metric_view if cause is None else VIEW_BY_ACTIVITY.get(cause.root.activity, metric_view)


def _find_cause_elsewhere(verdict: Verdict, rank: int | None) -> Change | None:
    """Return the leading root cause of the worst row if it is on another rank, for which this one waits; else None."""
    root_causes = verdict.causes[0].root_causes if verdict.causes and rank is not None else ()
    is_elsewhere = bool(root_causes) and all(change.rank != rank for change in root_causes)
    return root_causes[0] if is_elsewhere else None


def _suggest_gpu_check(verdict: Verdict) -> Iterator[NextStep]:
    """Suggest checking the GPU where all compute takes longer, on one of several ranks or on all."""
    slow_ranks = {
        root.rank for row in verdict.causes for root in row.root_causes[:1] if root.root.activity is RowActivity.ALL
    }
    if slow_ranks and verdict.outcome is Outcome.FAILED:
        is_one_of_several = len(slow_ranks) == 1 and len({window.rank for window in verdict.windows}) > 1
        place = f"on the node of rank {min(slow_ranks)}" if is_one_of_several else "on the node"
        yield NextStep("nvidia-smi -q -d PERFORMANCE", f"{place}: clocks, power, temperature")
