"""What do all reports show of a verdict? The verdict itself, what it was reached on, and what pytest made of it.

It crosses from an xdist worker as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from pytest_nsys.analysis.circumstances import RunKey
from pytest_nsys.core.file_names import Address
from pytest_nsys.core.model import Step
from pytest_nsys.core.words import counted, printable
from pytest_nsys.gates.model import Assertion, FromBaseline, Outcome, Severity, Verdict
from pytest_nsys.reports.explanation import (
    ANY_CHANGE,
    apart,
    ceiling_words,
    limit_cell,
    limit_of,
    limit_words,
    margin_words,
    place,
    reason_words,
    sees_words,
    subject,
    window_lines,
)

LOOKED_AT = (Outcome.FAILED, Outcome.ACCEPTED, Outcome.INCONCLUSIVE, Outcome.IMPROVED)
"""Outcomes of an assertion that pytest may take as passed, and that deserve a look all the same."""


class WorstRow(NamedTuple):
    """The row that is nearest to failing, or fails worst, in words. ``bound`` is the limit without where it comes from,
    ``sees`` the smallest change that the gate can see, with what stands behind it, ``ceiling`` how far a waived row may
    go, which stands in place of its margin.
    """

    row: str = ""
    value: str = ""
    limit: str = ""
    bound: str = ""
    margin: str = ""
    ceiling: str = ""
    sees: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """One assertion of a session.

    ``worst`` and the number of ``rows`` outlive those of the verdict, which are let go. ``run`` is what was judged
    in words, ``found`` the convention that ``auto`` found, ``traces`` are its captures, ``began`` is when the first
    of them did, in UTC. ``configuration`` is that of the gate file's matrix, empty where it has none.
    ``explanation`` are the lines below the sentence. ``artifact`` is the file that has the window,
    ``artifact_lost`` why there is none. ``good``: pytest takes it as passed; ``xfailed``: it was expected to fail.
    ``forced`` are marks of others that decide.
    ``on_base`` is how a constant limit ends on the other side of a comparison.
    """

    verdict: Verdict
    worst: WorstRow = WorstRow()  # noqa: RUF009  a NamedTuple: immutable
    rows: int = 0
    run: str = ""
    found: str = ""
    configuration: str = ""
    traces: tuple[str, ...] = ()
    key: RunKey | None = None
    began: str = ""
    next_steps: tuple[Step, ...] = ()
    explanation: tuple[str, ...] = ()
    artifact: str = ""
    artifact_lost: str = ""
    good: bool = True
    xfailed: bool = False
    forced: str = ""
    on_base: str = ""

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
    def address(self) -> str:
        """The gate file, with its configuration where it has several."""
        return str(Address(self.file, self.configuration))

    @property
    def name(self) -> str:
        return self.assertion.name

    @property
    def full_name(self) -> str:
        """The name for people, which says the limit."""
        return self.assertion.full_name

    @property
    def known_by(self) -> tuple[str, int, str]:
        """File with its configuration, line, name."""
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
    def is_open(self) -> bool:
        """Whether a person should look at it."""
        return not self.good or self.outcome in LOOKED_AT

    @property
    def subject(self) -> str:
        """What of the metric is judged."""
        return subject(self.assertion)

    @property
    def kind(self) -> str:
        """The kind of steps that is judged; empty where steps have none, or no row was looked at."""
        looked_at = self.verdict.looked_at
        return self.assertion.kind or (looked_at and looked_at.spec.kind) or ""

    @property
    def of_kind(self) -> str:
        """What of the metric is judged, of which kind of steps: ``decode step_time_ns``."""
        return f"{self.kind} {self.subject}".lstrip()

    @property
    def smallest_change(self) -> str:
        """The smallest change that the gate can see, as people read it: ``≥ 50 us (noise not measured)``."""
        seen = self.worst.sees
        return f"≥ {seen}" if seen and seen != ANY_CHANGE else seen

    @property
    def headroom(self) -> str:
        """What is left to the limit; of a waived row its ceiling."""
        worst = self.worst
        return worst.margin or (f"ceiling {worst.ceiling}" if worst.ceiling else "")

    @property
    def explained(self) -> str:
        """A bad verdict, whole: why, which pytest's short summary shows, the sentence with its line, and what stands
        below. Empty where there is nothing to explain.
        """
        if not self.explanation:
            return ""
        at = f"{self.assertion.location.at_line}: {self.assertion.sentence}"
        return "\n".join([reason_words(self.verdict), at, *self.explanation])

    def properties(self) -> list[tuple[str, object]]:
        """What JUnit shows of it; what is empty is left out."""
        verdict, worst = self.verdict, self.worst
        told = {"outcome": str(self.outcome), "message": self.message, "value": worst.value, "limit": worst.limit}
        told |= {"margin": worst.margin, "ceiling": worst.ceiling, "sees": worst.sees, "row": worst.row}
        shown = told | {"rows": self.rows, "run": self.run, "baseline": verdict.compared_with}
        shown |= {"accepted_for": verdict.accepted_for}
        shown |= {"window": "; ".join(window_lines(verdict.windows)), "measured_as": verdict.measured_as}
        return [(f"nsys_{name}", value) for name, value in {**shown, "line": self.line}.items() if value not in ("", 0)]

    def saying(self, message: str) -> Record:
        """The same with another message."""
        return replace(self, verdict=replace(self.verdict, message=message))

    def without_rows(self) -> Record:
        """For the end of the session, which tells of those that do not hold, of waived ones, and of the nearest."""
        rows, near = self.verdict.rows, self.verdict.nearest
        kept = tuple(row for row in rows if row.waived or row.outcome is not Outcome.PASSED or row is near)
        return replace(self, verdict=replace(self.verdict, rows=kept))


def error_record(assertion: Assertion, message: str, outcome: Outcome = Outcome.ERROR) -> Record:
    said = "; ".join(line.strip() for line in message.splitlines())
    return Record(Verdict(assertion, outcome, printable(said, 2000), ""), good=False)


def record_of(verdict: Verdict, run: str = "") -> Record:
    """The record of a verdict, whose lines are cut to what a report shows."""
    told = replace(
        verdict,
        message=printable(verdict.message, 2000),
        notes=tuple(note.printable(400) for note in verdict.notes),
        details=tuple(printable(line, 2000) for line in verdict.details),
    )
    return Record(told, _worst(verdict), len(verdict.rows), printable(run, 1000), good=verdict.good)


def _worst(verdict: Verdict) -> WorstRow:
    row, unit, assertion = verdict.nearest, verdict.unit, verdict.assertion
    if row is None:
        return WorstRow()
    limit = assertion.require.limit
    if isinstance(limit, FromBaseline) and limit.no is not None and row.outcome is Outcome.PASSED:
        return WorstRow(value=f"none of {counted(len({each.labels['kernel'] for each in verdict.rows}), 'kernel')}")
    worst = WorstRow(
        row=place(row, verdict),
        margin=margin_words(row, verdict),
        ceiling=ceiling_words(row, verdict),
        sees=sees_words(row, verdict),
    )
    if row.value is None:
        return worst
    bound = limit_of(row, unit, two_sided=assertion.require.comparator is None)
    bound = "" if row.limit is None else limit_words(assertion, bound)
    return worst._replace(value=apart(row, unit)[0], limit=limit_cell(assertion, unit, row), bound=bound)
