"""What is still red once a run was accepted, why did the refresh not settle it, and what does a person type for each?

Every assertion of a gate file that was refreshed is judged again, against what is stored now. Lines stand for all items
that they make, in every configuration: the worst value rules.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_apart, format_value
from pytest_nsys.core.words import counted, place_words, printable
from pytest_nsys.gates.judgement import Reference, breaks_rule
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
from pytest_nsys.gates.names import without_item
from pytest_nsys.verdicts.evaluate import GateContext, rows_now
from pytest_nsys.verdicts.refresh_modes import Mode

SHOWN = 10
WAIVED_FOR = timedelta(days=30)
_BEGIN = 'pytest --nsys-update-baselines --nsys-reason "…" --nsys-history=PATH'
_STAYS = "; what is stored of it stays"


@dataclass(frozen=True)
class Unsettled:
    """An entry of a gate file that is ``red``, or better than what is stored; of several items or configurations the
    worst. ``said`` is what it is and what to type, ``error`` why it cannot be judged, which several may share. ``row``
    is the worst row, where there is one. ``write`` is the sentence that holds it, ``ceiling`` that of a waiver that
    lets it pass; each is empty where there is none. ``waived``: the file has waivers. ``stays``: what is stored of it
    stays, as it has no data now.
    """

    path: Path
    assertion: Assertion
    said: str = ""
    error: str = ""
    red: bool = True
    row: JudgedRow | None = None
    write: str = ""
    ceiling: str = ""
    waived: bool = False
    stays: str = ""

    @property
    def margin(self) -> Value:
        """How far the worst row is from its limit; 0 where that is not known."""
        return 0 if self.row is None or self.row.margin is None else self.row.margin


def unsettled(
    contexts: Sequence[GateContext], settles: Callable[[GateFile, Assertion], bool], mode: Mode, command: str
) -> list[Unsettled]:
    """What is left of these gate files, or configurations of them, in their order. ``settles`` knows assertions that
    are settled otherwise, as a limit from the history is by this run. ``command`` stands before options where no
    refresh was typed.
    """
    found: dict[tuple[Path, int, int], Unsettled] = {}
    for context in contexts:
        for assertion in context.gate.assertions:
            left = None if settles(context.gate, assertion) else _left(assertion, context, mode, command)
            if left is not None:
                place = (left.path, *assertion.location[1:])
                other = found.setdefault(place, left)
                found[place] = left if (left.red, -left.margin) > (other.red, -other.margin) else other
    return sorted(found.values(), key=lambda each: (not each.red, each.path, each.assertion.location[1:]))


def unsettled_lines(left: Sequence[Unsettled], reason: str, shown: Callable[[Path], str]) -> Iterator[str]:
    """A line for each, and below it the sentence or the waiver to paste, where one helps; one mistake of many once."""
    begun = set[Path]()
    until = datetime.now(UTC).date() + WAIVED_FOR

    def place(each: Unsettled) -> str:
        return f"{shown(each.path)}:{each.assertion.location.line}"

    for error, same in grouped((each.error, each) for each in left if each.error).items():
        more = f" and {counted(len(same) - 1, 'more line')}" if len(same) > 1 else ""
        stays = max(each.stays for each in same)
        yield f"still red: {place(same[0])}{more} cannot be judged: {printable(error, 160)}{stays}"
    left = [each for each in left if not each.error]
    for each in left[:SHOWN]:
        name = without_item(each.assertion.full_name)
        yield f"{'still red' if each.red else 'not written'}: {place(each)} `{printable(name, 60)}` {each.said}"
        if each.write:
            yield f"  write: {printable(each.write, 400)}"
        if each.ceiling:
            listed = each.waived or each.path in begun
            below = " below the file's waivers:" if listed else ":"
            yield f"  {'or ' if each.write else ''}waive it for {WAIVED_FOR.days} days{below}"
            if not listed:
                yield "  waivers:"
            begun.add(each.path)
            waiver = f"assertion: {_quoted(name)}, ceiling: {each.ceiling}, expires: {until}, reason: {_quoted(reason)}"
            yield f"    - {{{waiver}}}"
    if rest := len(left[SHOWN:]):
        yield f"… and {counted(rest, 'more line')} of the gate files"


def _quoted(text: str) -> str:
    return json.dumps(printable(text, 400), ensure_ascii=False)


def _left(assertion: Assertion, context: GateContext, mode: Mode, command: str) -> Unsettled | None:
    """Why an item fails, or could be better; None where it is settled."""
    path = context.gate.path
    try:
        asked = context.resolved(assertion)
        judgement = context.judged(asked)
    except NsysError as error:
        return Unsettled(path, assertion, error=str(error), stays=_stays(assertion, context))
    outcome, row = judgement.outcome, _worst_row(judgement.rows)
    good = Verdict(asked, outcome, "", "").good
    if asked.xfail is not None and (good or outcome is Outcome.FAILED):
        return Unsettled(path, asked, "holds, and is expected to fail: remove its xfail", row=row) if good else None
    if good and outcome is not Outcome.IMPROVED:
        return None
    if outcome is Outcome.NO_DATA and (measured := rows_now(asked, context)).outcome is Outcome.NO_DATA:
        stays = _stays(asked, context)
        what = "record what it measures, or give it allow_no_data: true"
        return Unsettled(path, asked, f"has no data ({printable(measured.reason, 400)}): {what}{stays}")
    why, now = printable(judgement.reason, 400), _now(asked, row, context.gate.configuration)
    if outcome is Outcome.IMPROVED or (asked.reads_stored and outcome is Outcome.NO_DATA):
        moved = f"has no data ({why})" if why else f"improved to {now}" if good else f"is {now}"
        return Unsettled(path, asked, f"{moved}, and {_left_out(mode)}", red=not good, row=row)
    if outcome is Outcome.INCONCLUSIVE:
        said = "is inconclusive, which this file counts as red: take more captures"
    elif outcome is Outcome.INCOMPARABLE:
        said = f"is incomparable ({why}): {command or 'refresh the whole gate file with '}--all"
    elif outcome is Outcome.NO_DATA:  # its limit is from a history that has nothing of it
        said = f"has no data ({why}): {_BEGIN} begins it"
    elif isinstance(asked.require.limit, FromBaseline):
        said = f"{f'has no data ({why})' if why else f'is {now}'}, and {_left_out(mode)}"
    elif any(map(breaks_rule, judgement.rows)):
        said = f"is a rule, not a limit alone, {now}: no refresh settles it"
    else:
        write = ceiling = ""
        if row is not None and row.value is not None:
            write = _sentence(asked, judgement.rows, row, row.value)
            ceiling = ceiling_beyond(asked, row.value, row.labels)
        said = f"is a constant, {now}{'' if write else ', and no looser one says anything: remove it'}"
        if not has_worse_side(asked):
            said = f"is exact, {now}, and a refresh accepts no other number: mend it"
        waived = any(each.waivers for each in context.gate.assertions)
        return Unsettled(path, asked, said, row=row, write=write, ceiling=ceiling, waived=waived)
    return Unsettled(path, asked, said, row=row)


def _stays(assertion: Assertion, context: GateContext) -> str:
    """That the baseline keeps rows that the assertion is held against; empty where it has none."""
    with contextlib.suppress(NsysError):  # told by its items
        return _STAYS if assertion.reads_stored and isinstance(context.reference(assertion), Reference) else ""
    return ""


def _now(assertion: Assertion, row: JudgedRow | None, configuration: str) -> str:
    """``42.6% now, rank 0 all_gather``."""
    if row is None or row.value is None:
        return "without a value"
    unit = assertion.judged.unit
    value = format_value(row.value, unit) if row.limit is None else format_apart(row.value, row.limit, unit)[0]
    where = printable(" ".join(filter(None, [configuration, place_words(row.labels)])), 80)
    return f"{value} now{f' in {where}' if where else ''}"


def _left_out(mode: Mode) -> str:
    """Why its rows were not written, and what to type."""
    if mode is Mode.ACCEPT_RUN:
        return "--accept-run adds one run to the accepted ones, whose median counts: refresh without --accept-run"
    return "it was not selected: refresh the whole gate file"


def _worst_row(rows: Sequence[JudgedRow]) -> JudgedRow | None:
    """The row furthest from its limit of those that fail; else the first."""
    failed = [row for row in rows if row.outcome is Outcome.FAILED]
    return min(failed or rows[:1], key=lambda row: 0 if row.margin is None else row.margin, default=None)


def accepting_sentence(verdict: Verdict) -> str:
    """The sentence that a person writes who accepts what a constant has failed by; empty where there is none."""
    row = _worst_row(verdict.rows)
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
