"""What do all reports show of a verdict? The verdict itself, what it was reached on, and what pytest made of it."""

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
"""Outcomes of an assertion that pytest may take as passed, and that deserve a look all the same."""


@dataclass(frozen=True, slots=True)
class AssertionRecord:
    """Holds the result of one assertion of a session.

    It crosses from an xdist worker as it is.
    """

    verdict: Verdict
    """Its rows that hold are dropped at the end of a session that writes no report."""
    rows: int = 0
    """How many rows were judged, also of those that were dropped."""
    run: str = ""
    """What was judged, in words; empty where nothing could be."""
    detected_convention: str = ""
    """The convention that ``auto`` detected."""
    traces: tuple[str, ...] = ()
    """The captures, as a person would type them."""
    key: RunKey | None = None
    """What makes runs comparable; None where no trace could be read."""
    start_time: str = ""
    """When the first of the captures started, in UTC."""
    next_steps: tuple[NextStep, ...] = ()
    """Commands to type next."""
    explanation: tuple[str, ...] = ()
    """The lines below the sentence; empty where the assertion passed."""
    artifact: str = ""
    """The file with the window for Perfetto."""
    missing_artifact_reason: str = ""
    """Why there is no such file."""
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
        """What no other assertion of a session shares: file with its configuration, line, name."""
        return self.address, self.line, self.name

    @property
    def title(self) -> str:
        """The assertion for people, with its configuration where it is judged on several."""
        return f"{self.full_name}[{self.configuration}]" if self.configuration else self.full_name

    @property
    def state(self) -> str:
        """How it ended in one word: its outcome, or why pytest takes it otherwise."""
        outcome, verdict = self.outcome, self.verdict
        if self.xfailed:
            return "xfailed"
        if not self.good and (outcome in (Outcome.PASSED, Outcome.FAILED) or verdict.lets_pass):
            return "failed"  # also by -W error, or as an expected failure that did not happen
        if outcome is Outcome.FAILED and self.assertion.severity.failed is Severity.WARN:
            return "warned"
        if outcome is Outcome.PASSED and any(row.waived for row in verdict.rows):
            return "waived"
        return "warned" if outcome is Outcome.PASSED and verdict.warnings else str(outcome)

    @property
    def needs_attention(self) -> bool:
        """Whether a person should look at it."""
        return not self.good or self.outcome in NOTEWORTHY_OUTCOMES

    @property
    def subject(self) -> str:
        """Return the metric that is judged, after what it is aggregated by, as text: ``median overlap``, ``balance of
        compute_ns across pp``.
        """
        return format_subject(self.assertion)

    @property
    def kind(self) -> str:
        """The kind of steps that is judged; empty where steps have none, or no row was looked at."""
        looked_at = self.verdict.examined_window
        return self.assertion.kind or (looked_at and looked_at.spec.kind) or ""

    @property
    def subject_with_kind(self) -> str:
        """What of the metric is judged, of which kind of steps: ``decode step_time_ns``."""
        return f"{self.kind} {self.subject}".lstrip()

    @property
    def worst(self) -> dict[str, str]:
        return describe_worst(self.verdict)

    @property
    def bound(self) -> str:
        """The limit of the worst row, without where it comes from."""
        row, assertion = self.verdict.nearest_row, self.assertion
        if row is None or not self.worst["limit"]:
            return ""
        is_two_sided = assertion.requirement.comparator is None
        return format_limit(assertion, format_row_limit(row, self.verdict.unit, is_two_sided=is_two_sided))

    @property
    def smallest_change(self) -> str:
        """The smallest change that the gate can see, as people read it: ``≥ 50 us (noise not measured)``."""
        change_text = self.worst["sees"]
        return f"≥ {change_text}" if change_text and change_text != ANY_CHANGE else change_text

    @property
    def headroom(self) -> str:
        """What is left to the limit; of a waived row its ceiling."""
        worst = self.worst
        return worst["margin"] or (f"ceiling {worst['ceiling']}" if worst["ceiling"] else "")

    @property
    def full_explanation(self) -> str:
        """A bad verdict, whole: why, which pytest's short summary shows, the sentence with its line, and what stands
        below. Empty where there is nothing to explain.
        """
        if not self.explanation:
            return ""
        sentence_line = f"{self.assertion.location.file_and_line}: {self.assertion.sentence}"
        return "\n".join([describe_reason(self.verdict), sentence_line, *self.explanation])

    def list_junit_properties(self) -> list[tuple[str, object]]:
        """Return the properties that JUnit shows of it, without empty ones."""
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
        """Return the record without the rows that the end of the session does not tell of.

        It tells of rows that do not hold, of waived ones, and of the nearest; of an assertion that expects no row it
        counts kernels, of which one row each is kept.
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
    """Return the record of a verdict, whose lines are cut to what a report shows."""
    shortened_verdict = replace(
        verdict,
        message=sanitize_line(verdict.message, 2000),
        notes=tuple(note.sanitize(400) for note in verdict.notes),
        details=tuple(sanitize_line(line, 2000) for line in verdict.details),
    )
    return AssertionRecord(shortened_verdict, len(verdict.rows), sanitize_line(run, 1000), good=verdict.good)


EMPTY_WORST_ROW = dict.fromkeys(("row", "value", "limit", "margin", "ceiling", "sees"), "")


def describe_worst(verdict: Verdict) -> dict[str, str]:
    """Return the texts of the row that is nearest to failing, or fails worst; all empty where rows are not compared.

    They are where it is, its value, all that it is held to, how far it may still change, how far a waiver lets it go
    instead, and the smallest change that the gate sees.
    """
    row, unit = verdict.nearest_row, verdict.unit
    if row is None or verdict.outcome is Outcome.INCOMPARABLE:  # its rows stand side by side in a comparison
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
    """Whether an assertion requires that there is no such row."""
    limit = assertion.requirement.limit
    return isinstance(limit, BaselineLimit) and limit.forbidden_rows is not None
