"""What is still red once a run was accepted, and why did the refresh not settle it?

Every assertion of a gate file that was refreshed is judged again, against what is stored now. Lines stand for all items
that they make, in every configuration: the worst value rules.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.model import Value
from pytest_nsys.gates.judgement import Judgement, Reference, breaks_rule
from pytest_nsys.gates.looser_limits import ceiling_beyond, has_worse_side, sentence_to_write
from pytest_nsys.gates.model import (
    Assertion,
    ByModel,
    Comparator,
    Constant,
    FromBaseline,
    GateFile,
    JudgedRow,
    Outcome,
    Verdict,
)
from pytest_nsys.verdicts.evaluate import GateContext, rows_now


class Why(enum.Enum):
    """Why a refresh left an assertion as it is. ``NOT_BEGUN``: its limit is from a history that has nothing of it.
    ``HOLDS``: one that is expected to fail, and so fails now.
    """

    CONSTANT = enum.auto()
    EXACT = enum.auto()
    RULE = enum.auto()
    NOT_WRITTEN = enum.auto()
    BETTER = enum.auto()
    UNCLEAR = enum.auto()
    INCOMPARABLE = enum.auto()
    NO_DATA = enum.auto()
    NOT_BEGUN = enum.auto()
    ERROR = enum.auto()
    HOLDS = enum.auto()


@dataclass(frozen=True)
class Unsettled:
    """An entry of a gate file that is red, or ``BETTER`` than what is stored; of several items or configurations the
    worst. ``row`` is the worst row, where there is one. ``write`` is the sentence that holds it, ``ceiling`` that of a
    waiver that lets it pass; each is empty where there is none. ``waived``: the file has waivers.
    ``stored``: what is stored of it stays, as it has no data now.
    """

    path: Path
    assertion: Assertion
    why: Why
    configuration: str = ""
    row: JudgedRow | None = None
    reason: str = ""
    write: str = ""
    ceiling: str = ""
    waived: bool = False
    stored: bool = False

    @property
    def red(self) -> bool:
        """Whether the next run fails by it."""
        return self.why is not Why.BETTER


def unsettled(contexts: Sequence[GateContext], settles: Callable[[GateFile, Assertion], bool]) -> list[Unsettled]:
    """What is left of these gate files, or configurations of them, in their order. ``settles`` knows assertions that
    are settled otherwise, as a limit from the history is by this run.
    """
    found: dict[tuple[Path, int, int], Unsettled] = {}
    for context in contexts:
        waived = any(each.waivers for each in context.gate.assertions)
        for assertion in context.gate.assertions:
            left = None if settles(context.gate, assertion) else _left(assertion, context, waived)
            if left is not None:
                place = (left.path, *assertion.location[1:])
                found[place] = _worse(found[place], left) if place in found else left
    return sorted(found.values(), key=lambda each: (not each.red, each.path, each.assertion.location[1:]))


def _worse(one: Unsettled, other: Unsettled) -> Unsettled:
    def margin(each: Unsettled) -> Value:
        return 0 if each.row is None or each.row.margin is None else each.row.margin

    return other if (other.red, -margin(other)) > (one.red, -margin(one)) else one


def _left(assertion: Assertion, context: GateContext, waived: bool) -> Unsettled | None:
    path, configuration = context.gate.path, context.gate.configuration
    try:
        asked = context.resolved(assertion)
        judgement = context.judged(asked)
    except NsysError as error:
        stored = _is_stored(assertion, context)
        return Unsettled(path, assertion, Why.ERROR, configuration, reason=str(error), stored=stored)
    why_left = _why(asked, judgement)
    if why_left is None:
        return None
    stored = False
    if judgement.outcome is Outcome.NO_DATA and why_left in (Why.NO_DATA, Why.NOT_WRITTEN):
        measured = rows_now(asked, context)
        if measured.outcome is Outcome.NO_DATA:
            why_left, judgement, stored = Why.NO_DATA, measured, _is_stored(asked, context)
        elif why_left is Why.NO_DATA:
            why_left = Why.NOT_BEGUN
    row = worst_row(judgement)
    write = ceiling = ""
    if row is not None and row.value is not None and why_left in (Why.CONSTANT, Why.EXACT):
        write = _sentence(asked, judgement.rows, row, row.value)
        ceiling = ceiling_beyond(asked, row.value, row.labels)
    reason = judgement.reason
    return Unsettled(path, asked, why_left, configuration, row, reason, write, ceiling, waived, stored)


def _is_stored(assertion: Assertion, context: GateContext) -> bool:
    """Return whether the baseline has rows that the assertion is held against."""
    with contextlib.suppress(NsysError):  # told by its items
        return assertion.reads_stored and isinstance(context.reference(assertion), Reference)
    return False


def worst_row(judgement: Judgement) -> JudgedRow | None:
    """The row furthest from its limit of those that fail; else the first."""
    failed = [row for row in judgement.rows if row.outcome is Outcome.FAILED]
    return min(failed or judgement.rows[:1], key=lambda row: 0 if row.margin is None else row.margin, default=None)


def accepting_sentence(verdict: Verdict) -> str:
    """The sentence that a person writes who accepts what a constant has failed by; empty where there is none."""
    row = worst_row(Judgement(verdict.outcome, verdict.rows))
    if verdict.outcome is not Outcome.FAILED or row is None or row.value is None or any(map(breaks_rule, verdict.rows)):
        return ""
    return _sentence(verdict.assertion, verdict.rows, row, row.value)


def _sentence(assertion: Assertion, rows: Sequence[JudgedRow], worst: JudgedRow, value: Value) -> str:
    """The sentence that holds every row; empty where each of them has to be one number, and they are several."""
    limit = assertion.require.limit
    if assertion.require.comparator is Comparator.EQ and isinstance(limit, Constant | ByModel):
        others = [each for each in rows if each.value not in (None, value)]
        if isinstance(limit, ByModel):
            others = [each for each in others if limit.word_for(each.labels) == limit.word_for(worst.labels)]
        if others:
            return ""
    return sentence_to_write(assertion, value, worst.labels)


def _why(assertion: Assertion, judgement: Judgement) -> Why | None:
    """Why the item fails, or could be better; None where it is settled."""
    outcome = judgement.outcome
    good = Verdict(assertion, outcome, "", "").good
    if assertion.xfail is not None and outcome is Outcome.FAILED:
        return None
    if good and assertion.xfail is not None:
        return Why.HOLDS
    if outcome is Outcome.IMPROVED:
        return Why.BETTER if good else Why.NOT_WRITTEN
    if good:
        return None
    if assertion.reads_stored and outcome is Outcome.NO_DATA:
        return Why.NOT_WRITTEN
    others = {
        Outcome.INCONCLUSIVE: Why.UNCLEAR,
        Outcome.INCOMPARABLE: Why.INCOMPARABLE,
        Outcome.NO_DATA: Why.NO_DATA,
    }
    if outcome in others:
        return others[outcome]
    if isinstance(assertion.require.limit, FromBaseline):
        return Why.NOT_WRITTEN
    if any(map(breaks_rule, judgement.rows)):
        return Why.RULE
    return Why.CONSTANT if has_worse_side(assertion) else Why.EXACT
