"""What do all reports show of an assertion? Its verdict, the run that was judged, and how pytest counts it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_nsys.analysis.windows.run_conditions import RunKey
from pytest_nsys.core.model import NextStep
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.gates.model import Assertion, BaselineLimit, Outcome, Severity, Verdict
from pytest_nsys.reports.words.verdict_text import (
    ANY_CHANGE,
    describe_reason,
    describe_row_limit,
    format_limit,
    format_margin,
    format_row_limit,
    format_row_place,
    format_smallest_change,
    format_subject,
    format_value_and_limit,
    format_waiver_ceiling,
    list_window_lines,
)

NOTEWORTHY_OUTCOMES = (Outcome.FAILED, Outcome.ACCEPTED, Outcome.INCONCLUSIVE, Outcome.IMPROVED)
"""Outcomes that deserve a look even if pytest takes the assertion as passed."""


@dataclass(frozen=True, slots=True)
class AssertionRecord:
    """Holds the result of one assertion of a session.

    It is pickled to send it from an xdist worker.
    """

    verdict: Verdict
    """Rows within their limits are dropped from it at the end of a session that writes no report."""
    rows: int = 0
    """How many rows were judged, including dropped ones."""
    run: str = ""
    """The run that was judged, in words; empty if nothing could be judged."""
    detected_convention: str = ""
    """The convention that ``auto`` detected."""
    traces: tuple[str, ...] = ()
    """The captures, as a person would type them."""
    key: RunKey | None = None
    """The run's key, which decides what it is comparable with; None if no trace could be read."""
    start_time: str = ""
    """When the first of the captures started, in UTC."""
    next_steps: tuple[NextStep, ...] = ()
    """Commands to type next."""
    explanation: tuple[str, ...] = ()
    """The lines below the sentence; empty where the assertion passed."""
    artifact: str = ""
    """The file with the window for Perfetto."""
    missing_artifact_reason: str = ""
    """Why there is no artifact."""
    good: bool = True
    """Whether pytest takes the assertion as passed."""
    xfailed: bool = False
    """Whether it was expected to fail, and did."""
    deciding_marks: str = ""
    """Marks of pytest or of other plugins that decide how the assertion ends."""

    @property
    def assertion(self) -> Assertion:
        return self.verdict.assertion

    @property
    def outcome(self) -> Outcome:
        return self.verdict.outcome

    @property
    def message(self) -> str:
        return self.verdict.message

    @property
    def file(self) -> str:
        return str(self.assertion.location.path)

    @property
    def line(self) -> int:
        return self.assertion.location.line

    @property
    def configuration(self) -> str:
        return self.verdict.configuration

    @property
    def address(self) -> str:
        return self.verdict.address

    @property
    def name(self) -> str:
        return self.assertion.name

    @property
    def full_name(self) -> str:
        """The name for people, which says the limit."""
        return self.assertion.full_name

    @property
    def identity(self) -> tuple[str, int, str]:
        """The unique key of the assertion in a session: file with configuration, line, name."""
        return self.address, self.line, self.name

    @property
    def title(self) -> str:
        """The assertion's name for people, with the configuration if it is judged in several."""
        return f"{self.full_name}[{self.configuration}]" if self.configuration else self.full_name

    @property
    def state(self) -> str:
        """How the assertion ended in one word: its outcome, or why pytest counts it differently."""
        outcome, verdict = self.outcome, self.verdict
        if self.xfailed:
            return "xfailed"
        if not self.good and (outcome in (Outcome.PASSED, Outcome.FAILED) or verdict.lets_pass):
            return "failed"  # e.g. by -W error, or because an expected failure did not happen
        if outcome is Outcome.FAILED and self.assertion.severity.failed is Severity.WARN:
            return "warned"
        if outcome is Outcome.PASSED and any(row.waived for row in verdict.rows):
            return "waived"
        return "warned" if outcome is Outcome.PASSED and verdict.warnings else str(outcome)

    @property
    def needs_attention(self) -> bool:
        """Whether a person should look at it."""
        return not self.good or self.outcome in NOTEWORTHY_OUTCOMES or self.assertion.is_claim

    @property
    def subject(self) -> str:
        """The judged quantity: the metric with its aggregate or comparison, such as ``median overlap``."""
        return format_subject(self.assertion)

    @property
    def kind(self) -> str:
        """The kind of steps that is judged, such as ``decode``; empty if steps have no kinds, or no row was judged."""
        looked_at = self.verdict.examined_window
        return self.assertion.kind or (looked_at and looked_at.spec.kind) or ""

    @property
    def subject_with_kind(self) -> str:
        """The judged quantity with the kind of steps: ``decode step_time_ns``."""
        return f"{self.kind} {self.subject}".lstrip()

    @property
    def worst(self) -> dict[str, str]:
        return describe_worst(self.verdict)

    @property
    def bound(self) -> str:
        """The limit of the worst row, without its source."""
        row, assertion = self.verdict.nearest_row, self.assertion
        if row is None or not self.worst["limit"]:
            return ""
        is_two_sided = assertion.requirement.comparator is None
        return format_limit(assertion, format_row_limit(row, self.verdict.unit, is_two_sided=is_two_sided))

    @property
    def smallest_change(self) -> str:
        """The smallest change that the gate can detect, as text: ``≥ 50 us (noise not measured)``."""
        change_text = self.worst["sees"]
        return f"≥ {change_text}" if change_text and change_text != ANY_CHANGE else change_text

    @property
    def headroom(self) -> str:
        """The distance from the limit, as text; for a waived row its ceiling."""
        worst = self.worst
        return worst["margin"] or (f"ceiling {worst['ceiling']}" if worst["ceiling"] else "")

    @property
    def full_explanation(self) -> str:
        """The full text of a bad verdict: the reason (which pytest's short summary shows), the sentence with its line
        number, and the lines below it. Empty if there is nothing to explain.
        """
        if not self.explanation:
            return ""
        sentence_line = f"{self.assertion.location.file_and_line}: {self.assertion.sentence}"
        return "\n".join([describe_reason(self.verdict), sentence_line, *self.explanation])

    def list_junit_properties(self) -> list[tuple[str, object]]:
        """Return the JUnit properties of the assertion as pairs of name and value, without empty ones."""
        verdict, worst = self.verdict, self.worst
        values: dict[str, object] = {
            "outcome": str(self.outcome),
            "message": self.message,
            "value": worst["value"],
            "limit": worst["limit"],
            "margin": worst["margin"],
            "ceiling": worst["ceiling"],
            "sees": worst["sees"],
            "row": worst["row"],
            "rows": self.rows,
            "run": self.run,
            "baseline": verdict.compared_with,
            "accepted_for": verdict.accepted_for,
            "window": "; ".join(list_window_lines(verdict.windows)),
            "measured_as": verdict.measured_as,
            "line": self.line,
        }
        return [(f"nsys_{name}", value) for name, value in values.items() if value not in ("", 0)]

    def with_message(self, message: str) -> AssertionRecord:
        """Return the record with another message."""
        return replace(self, verdict=replace(self.verdict, message=message))

    def keep_notable_rows(self) -> AssertionRecord:
        """Return the record without the rows that the session's summary does not show.

        The summary shows rows outside their limits, waived rows, and the row nearest to its limit. For an assertion
        that forbids rows it counts kernels, so one row of each kernel is kept.
        """
        rows, nearest = self.verdict.rows, self.verdict.nearest_row
        first_by_kernel = {row.labels.get("kernel"): id(row) for row in rows} if expects_no_row(self.assertion) else {}
        notable_ids = {id(nearest), *first_by_kernel.values()}
        notable_rows = tuple(
            row for row in rows if row.waived or row.outcome is not Outcome.PASSED or id(row) in notable_ids
        )
        return replace(self, verdict=replace(self.verdict, rows=notable_rows))


def make_error_record(
    assertion: Assertion, message: str, outcome: Outcome = Outcome.ERROR, *, configuration: str
) -> AssertionRecord:
    """Return the record of an assertion that could not be judged."""
    text = "; ".join(line.strip() for line in message.splitlines())
    return AssertionRecord(
        Verdict(assertion, outcome, sanitize_line(text, 2000), "", configuration=configuration), good=False
    )


def make_record(verdict: Verdict, run: str = "") -> AssertionRecord:
    """Return the record of a verdict; its lines are shortened to what a report shows."""
    shortened_verdict = replace(
        verdict,
        message=sanitize_line(verdict.message, 2000),
        notes=tuple(note.sanitize(400) for note in verdict.notes),
        details=tuple(sanitize_line(line, 2000) for line in verdict.details),
    )
    return AssertionRecord(shortened_verdict, len(verdict.rows), sanitize_line(run, 1000), good=verdict.good)


EMPTY_WORST_ROW = dict.fromkeys(("row", "value", "limit", "margin", "ceiling", "sees"), "")


def describe_worst(verdict: Verdict) -> dict[str, str]:
    """Return texts about the row that is nearest to failing, or fails worst; all are empty if rows are not compared.

    They are the row's place, its value, its limit with source, how far it may still change, its ceiling if it is
    waived, and the smallest change that the gate can detect.
    """
    row, unit = verdict.nearest_row, verdict.unit
    if row is None or verdict.outcome is Outcome.INCOMPARABLE:  # incomparable rows are only shown next to each other
        return EMPTY_WORST_ROW
    if expects_no_row(verdict.assertion) and row.outcome is Outcome.PASSED:
        kernels = {judged_row.labels["kernel"] for judged_row in verdict.rows}
        return EMPTY_WORST_ROW | {"value": f"none of {format_count(len(kernels), 'kernel')}"}
    return {
        "row": format_row_place(row, verdict),
        "value": "" if row.value is None else format_value_and_limit(row, unit)[0],
        "limit": "" if row.value is None else describe_row_limit(verdict.assertion, unit, row),
        "margin": format_margin(row, verdict),
        "ceiling": format_waiver_ceiling(row, verdict),
        "sees": format_smallest_change(row, verdict),
    }


def expects_no_row(assertion: Assertion) -> bool:
    """Whether an assertion forbids rows, such as those of new kernels."""
    limit = assertion.requirement.limit
    return isinstance(limit, BaselineLimit) and limit.forbidden_rows is not None
