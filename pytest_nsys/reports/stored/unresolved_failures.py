"""Which assertions still fail after a run was accepted, why did the refresh not resolve them, and what should a person
type?

Every assertion of a refreshed gate file is judged again, against the new baselines. A line of the gate file stands for
all of its items in every configuration, with the worst value.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import NextStep, Value
from pytest_nsys.core.numbers import format_distinctly, format_value
from pytest_nsys.core.text_format import format_count, format_labels, sanitize_line
from pytest_nsys.gates.assertion_names import strip_item
from pytest_nsys.gates.judgement import Reference, breaks_pipeline_rule
from pytest_nsys.gates.looser_limits import (
    format_looser_ceiling,
    format_looser_sentence,
    format_row_ceiling,
    has_worse_side,
)
from pytest_nsys.gates.model import (
    Assertion,
    BaselineLimit,
    Comparator,
    Constant,
    ConstantByModel,
    GateFile,
    JudgedRow,
    Outcome,
    Verdict,
)
from pytest_nsys.verdicts.evaluate import GateContext, judge_without_baseline
from pytest_nsys.verdicts.refresh_modes import RefreshMode

MAX_SHOWN_FAILURES = 10
WAIVER_PERIOD = timedelta(days=14)
_BEGIN_HISTORY = 'pytest --nsys-update-baselines --nsys-reason "…" --nsys-history=PATH'
_ROWS_STAY = "; what is stored of it stays"


@dataclass(frozen=True)
class UnresolvedFailure:
    """Holds an entry of a gate file that still fails, or is better than its baseline.

    It describes the worst of its items or configurations.
    """

    path: Path
    assertion: Assertion
    advice: str = ""
    """The explanation, and what to type; empty if the entry cannot be judged."""
    error: str = ""
    """Why the entry cannot be judged; several entries may share this."""
    is_red: bool = True
    """Whether it makes the next run fail."""
    row: JudgedRow | None = None
    """The worst row, if there is one."""
    sentence: str = ""
    """The sentence with a constant that the row satisfies; empty if there is none."""
    ceiling: str = ""
    """The ceiling of a waiver that lets the row pass; empty if none does."""
    file_has_waivers: bool = False
    note: str = ""
    """A note that stored rows are kept; empty if there are none."""

    @property
    def margin(self) -> Value:
        """The distance of the worst row from its limit; 0 if unknown."""
        return 0 if self.row is None or self.row.margin is None else self.row.margin

    @property
    def severity(self) -> tuple[bool, Value]:
        """The sort key of the failures of one line: improved ones before failed ones, the furthest from its limit
        last.
        """
        return self.is_red, -self.margin


def find_unresolved_failures(
    contexts: Sequence[GateContext],
    is_resolved: Callable[[GateFile, Assertion], bool],
    mode: RefreshMode,
    refresh_command: str,
) -> list[UnresolvedFailure]:
    """Judge the assertions of these gate files again and return the remaining failure of each line, in order.

    ``is_resolved`` recognises assertions that are resolved otherwise, such as a limit from the history by this run.
    ``refresh_command`` is the prefix for suggested options if no refresh was typed.
    """
    failures: dict[tuple[Path, int, int], UnresolvedFailure] = {}
    for context in contexts:
        for assertion in context.gate.assertions:
            if is_resolved(context.gate, assertion):
                continue
            failure = _classify_assertion(assertion, context, mode, refresh_command)
            if failure is not None:
                line = (failure.path, *assertion.location[1:])
                failures[line] = max(failures.get(line, failure), failure, key=lambda failure: failure.severity)
    return sorted(
        failures.values(), key=lambda failure: (not failure.is_red, failure.path, failure.assertion.location[1:])
    )


def render_unresolved_failures(
    failures: Sequence[UnresolvedFailure], reason: str, format_path: Callable[[Path], str]
) -> Iterator[str]:
    """Render a line for each failure, and below it the sentence or waiver to paste, if one helps.

    An error that several failures share is rendered once.
    """
    files_with_waivers = set[Path]()
    expiry_date = find_expiry_date()

    def format_place(failure: UnresolvedFailure) -> str:
        return f"{format_path(failure.path)}:{failure.assertion.location.line}"

    for error, same_failures in group_by_key((failure.error, failure) for failure in failures if failure.error).items():
        more_text = f" and {format_count(len(same_failures) - 1, 'more line')}" if len(same_failures) > 1 else ""
        note = max(failure.note for failure in same_failures)
        yield (
            f"still red: {format_place(same_failures[0])}{more_text} cannot be judged: "
            f"{sanitize_line(error, 160)}{note}"
        )
    failures = [failure for failure in failures if not failure.error]
    for failure in failures[:MAX_SHOWN_FAILURES]:
        name = strip_item(failure.assertion.full_name)
        state = "still red" if failure.is_red else "not written"
        yield f"{state}: {format_place(failure)} `{sanitize_line(name, 60)}` {failure.advice}"
        if failure.sentence:
            yield f"  write: {sanitize_line(failure.sentence, 400)}"
        if failure.ceiling:
            has_waivers = failure.file_has_waivers or failure.path in files_with_waivers
            below_text = " below the file's waivers:" if has_waivers else ":"
            yield f"  {'or ' if failure.sentence else ''}waive it for {WAIVER_PERIOD.days} days{below_text}"
            if not has_waivers:
                yield "  waivers:"
            files_with_waivers.add(failure.path)
            yield f"    - {_format_waiver(name, failure.ceiling, expiry_date, reason)}"
    if omitted_count := len(failures[MAX_SHOWN_FAILURES:]):
        yield f"… and {format_count(omitted_count, 'more line')} of the gate files"


def find_expiry_date() -> date:
    """Return the last day of a waiver that is written today; SOURCE_DATE_EPOCH, in seconds, says which day that is."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(epoch), UTC) if epoch.isascii() and epoch.isdigit() else datetime.now(UTC)
    return now.date() + WAIVER_PERIOD


def build_waiving_step(verdict: Verdict, place: str) -> NextStep | None:
    """Return what to write into the gate file ``place`` so that a failed assertion passes for a while; None where it
    cannot be waived.
    """
    assertion, row = verdict.assertion, _find_worst_row(verdict.rows)
    if verdict.outcome is not Outcome.FAILED or verdict.good or row is None or assertion.xfail is not None:
        return None
    ceiling = "" if any(map(breaks_pipeline_rule, verdict.rows)) else format_row_ceiling(assertion, row)
    if not ceiling:
        return None
    expiry_date = find_expiry_date()
    waiver = _format_waiver(assertion.full_name, ceiling, expiry_date, "…")
    written = f"- {waiver}" if assertion.waivers else f"waivers: [{waiver}]"
    below_text = " below its waivers" if assertion.waivers else ""
    return NextStep(written, f"in {place}{below_text}, to silence it")


def _format_waiver(name: str, ceiling: str, expiry_date: date, reason: str) -> str:
    """Return an entry of a gate file's waivers, on one line."""
    return (
        f"{{assertion: {_quote_yaml(name)}, ceiling: {ceiling}, expires: {expiry_date}, reason: {_quote_yaml(reason)}}}"
    )


def _quote_yaml(text: str) -> str:
    return json.dumps(sanitize_line(text, 400), ensure_ascii=False)


def _classify_assertion(
    assertion: Assertion, context: GateContext, mode: RefreshMode, refresh_command: str
) -> UnresolvedFailure | None:
    """Explain why an item fails, or could have a tighter baseline; None if it is resolved."""
    path = context.gate.path
    try:
        assertion = context.resolve(assertion)
        judgement = context.judge(assertion)
    except NsysError as error:
        return UnresolvedFailure(path, assertion, error=str(error), note=_note_stored_rows(assertion, context))
    outcome, row = judgement.outcome, _find_worst_row(judgement.rows)
    is_good = Verdict(assertion, outcome, "", "").good
    if assertion.xfail is not None and outcome is Outcome.FAILED:
        return None
    if is_good and assertion.xfail is not None:
        return UnresolvedFailure(path, assertion, "holds, and is expected to fail: remove its xfail", row=row)
    if is_good and outcome is not Outcome.IMPROVED:
        return None
    if (
        outcome is Outcome.NO_DATA
        and (fresh_judgement := judge_without_baseline(assertion, context)).outcome is Outcome.NO_DATA
    ):
        advice = f"has no data ({sanitize_line(fresh_judgement.reason, 400)}): record what it measures, or give it "
        advice += f"allow_no_data: true{_note_stored_rows(assertion, context)}"
        return UnresolvedFailure(path, assertion, advice)
    no_data = f"has no data ({sanitize_line(judgement.reason, 400)})"
    value = _describe_value(assertion, row, context.gate.configuration)
    # A row with a stored baseline was left out by the mode, or by the selection of other rows.
    is_left_out = outcome is Outcome.IMPROVED or (assertion.reads_stored_baseline and outcome is Outcome.NO_DATA)
    if outcome in (Outcome.FAILED, Outcome.ACCEPTED):
        is_left_out = isinstance(assertion.requirement.limit, BaselineLimit)
    if is_left_out:
        state = no_data if judgement.reason else f"improved to {value}" if is_good else f"is {value}"
        return UnresolvedFailure(
            path, assertion, f"{state}, and {_explain_omission(mode)}", is_red=not is_good, row=row
        )
    if outcome is Outcome.INCONCLUSIVE:
        advice = "is inconclusive, which this file counts as red: take more captures"
    elif outcome is Outcome.INCOMPARABLE:
        reason = sanitize_line(judgement.reason, 400)
        advice = f"is incomparable ({reason}): {refresh_command or 'refresh the whole gate file with '}--all"
    elif outcome is Outcome.NO_DATA:  # its limit comes from a history without values for it
        advice = f"{no_data}: {_BEGIN_HISTORY} begins it"
    elif any(map(breaks_pipeline_rule, judgement.rows)):
        advice = f"is a rule, not a limit alone, {value}: no refresh settles it"
    else:
        sentence = ceiling = ""
        if row is not None and row.value is not None:
            sentence = _build_sentence(assertion, judgement.rows, row, row.value)
            ceiling = format_looser_ceiling(assertion, row.value, row.labels)
        advice = f"is exact, {value}, and a refresh accepts no other number: mend it"
        if has_worse_side(assertion):
            advice = f"is a constant, {value}{'' if sentence else ', and no looser one says anything: remove it'}"
        file_has_waivers = any(other_assertion.waivers for other_assertion in context.gate.assertions)
        return UnresolvedFailure(
            path,
            assertion,
            advice,
            row=row,
            sentence=sentence,
            ceiling=ceiling,
            file_has_waivers=file_has_waivers,
        )
    return UnresolvedFailure(path, assertion, advice, row=row)


def _note_stored_rows(assertion: Assertion, context: GateContext) -> str:
    """Note that the assertion's rows in the baseline are kept; empty if it has none."""
    with contextlib.suppress(NsysError):  # its items report it
        return (
            _ROWS_STAY
            if assertion.reads_stored_baseline and isinstance(context.find_reference(assertion), Reference)
            else ""
        )
    return ""


def _describe_value(assertion: Assertion, row: JudgedRow | None, configuration: str) -> str:
    """Describe the value of the worst row: ``42.6% now in rank 0 all_gather``."""
    if row is None or row.value is None:
        return "without a value"
    unit = assertion.limit_target.unit
    value = format_value(row.value, unit) if row.limit is None else format_distinctly(row.value, row.limit, unit)[0]
    place = sanitize_line(" ".join(filter(None, [configuration, format_labels(row.labels)])), 80)
    return f"{value} now{f' in {place}' if place else ''}"


def _explain_omission(mode: RefreshMode) -> str:
    """Explain why its rows were not written, and what to type."""
    if mode is RefreshMode.ACCEPT_RUN:
        return "--accept-run adds one run to the accepted ones, whose median counts: refresh without --accept-run"
    return "it was not selected: refresh the whole gate file"


def _find_worst_row(rows: Sequence[JudgedRow]) -> JudgedRow | None:
    """Return the failing row furthest from its limit, else the first row; None without rows."""
    failed_rows = [row for row in rows if row.outcome is Outcome.FAILED]
    return min(failed_rows or rows[:1], key=lambda row: 0 if row.margin is None else row.margin, default=None)


def build_accepting_sentence(verdict: Verdict) -> str:
    """Build the sentence whose constant accepts the failed values; empty if there is none."""
    row = _find_worst_row(verdict.rows)
    if (
        verdict.outcome is not Outcome.FAILED
        or row is None
        or row.value is None
        or any(map(breaks_pipeline_rule, verdict.rows))
    ):
        return ""
    return _build_sentence(verdict.assertion, verdict.rows, row, row.value)


def _build_sentence(assertion: Assertion, rows: Sequence[JudgedRow], worst: JudgedRow, value: Value) -> str:
    """Build the sentence that every row satisfies; empty if rows must equal one number but differ."""
    limit = assertion.requirement.limit
    if assertion.requirement.comparator is Comparator.EQ and isinstance(limit, Constant | ConstantByModel):
        other_rows = [row for row in rows if row.value not in (None, value)]
        if isinstance(limit, ConstantByModel):
            other_rows = [row for row in other_rows if limit.find_model(row.labels) == limit.find_model(worst.labels)]
        if other_rows:
            return ""
    return format_looser_sentence(assertion, value, worst.labels)
