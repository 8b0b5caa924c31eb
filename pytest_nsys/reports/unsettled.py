"""How is a person told what a refresh left red, and what to type for each?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pytest_nsys.core.kept import grouped
from pytest_nsys.core.numbers import format_apart, format_value
from pytest_nsys.core.words import counted, place_words, printable
from pytest_nsys.gates.names import without_item
from pytest_nsys.verdicts.refresh_modes import Mode
from pytest_nsys.verdicts.unsettled import Unsettled, Why

SHOWN = 10
WAIVED_FOR = timedelta(days=30)
_BEGIN = 'pytest --nsys-update-baselines --nsys-reason "…" --nsys-history=PATH'
_STAYS = "; what is stored of it stays"


def unsettled_lines(
    left: Sequence[Unsettled], mode: Mode, reason: str, shown: Callable[[Path], str], command: str
) -> Iterator[str]:
    """A line for each, and below it the sentence or the waiver to paste, where one helps; one mistake of many once.
    ``command`` stands before options where no refresh was typed.
    """
    begun = set[Path]()
    until = datetime.now(UTC).date() + WAIVED_FOR

    def place(each: Unsettled) -> str:
        return f"{shown(each.path)}:{each.assertion.location.line}"

    mistakes = grouped((each.reason, each) for each in left if each.why is Why.ERROR)
    for reason, same in mistakes.items():
        more = f" and {counted(len(same) - 1, 'more line')}" if len(same) > 1 else ""
        stays = _STAYS if any(each.stored for each in same) else ""
        yield f"still red: {place(same[0])}{more} cannot be judged: {printable(reason, 160)}{stays}"
    left = [each for each in left if each.why is not Why.ERROR]
    for each in left[:SHOWN]:
        name = printable(without_item(each.assertion.full_name), 60)
        said = _words(each, mode, command)
        yield f"{'still red' if each.red else 'not written'}: {place(each)} `{name}` {said}"
        if each.write:
            yield f"  write: {printable(each.write, 400)}"
        if each.ceiling:
            listed = each.waived or each.path in begun
            below = " below the file's waivers:" if listed else ":"
            yield f"  {'or ' if each.write else ''}waive it for {WAIVED_FOR.days} days{below}"
            if not listed:
                yield "  waivers:"
            begun.add(each.path)
            fields = {
                "assertion": _quoted(without_item(each.assertion.full_name)),
                "ceiling": each.ceiling,
                "expires": until,
                "reason": _quoted(reason),
            }
            yield f"    - {{{', '.join(f'{key}: {value}' for key, value in fields.items())}}}"
    if rest := len(left[SHOWN:]):
        yield f"… and {counted(rest, 'more line')} of the gate files"


def _quoted(text: str) -> str:
    return json.dumps(printable(text, 400), ensure_ascii=False)


def _words(each: Unsettled, mode: Mode, command: str) -> str:
    """What it is, and what to type."""
    why = printable(each.reason, 400)
    match each.why:
        case Why.CONSTANT:
            return f"is a constant, {_now(each)}{'' if each.write else ', and no looser one says anything: remove it'}"
        case Why.EXACT:
            return f"is exact, {_now(each)}, and a refresh accepts no other number: mend it"
        case Why.RULE:
            return f"is a rule, not a limit alone, {_now(each)}: no refresh settles it"
        case Why.NOT_WRITTEN | Why.BETTER:
            return f"{_moved(each)}, and {_left_out(mode)}"
        case Why.UNCLEAR:
            return "is inconclusive, which this file counts as red: take more captures"
        case Why.INCOMPARABLE:
            return f"is incomparable ({why}): {command or 'refresh the whole gate file with '}--all"
        case Why.NOT_BEGUN:
            return f"has no data ({why}): {_BEGIN} begins it"
        case Why.NO_DATA:
            stays = _STAYS if each.stored else ""
            return f"has no data ({why}): record what it measures, or give it allow_no_data: true{stays}"
        case Why.HOLDS:
            return "holds, and is expected to fail: remove its xfail"
    return f"cannot be judged: {why}"


def _now(each: Unsettled) -> str:
    """``42.6% now, rank 0 all_gather``."""
    if each.row is None or each.row.value is None:
        return "without a value"
    limit = each.row.limit
    unit = each.assertion.judged.unit
    value = format_value(each.row.value, unit) if limit is None else format_apart(each.row.value, limit, unit)[0]
    where = printable(" ".join(filter(None, [each.configuration, place_words(each.row.labels)])), 80)
    return f"{value} now{f' in {where}' if where else ''}"


def _moved(each: Unsettled) -> str:
    if each.reason:
        return f"has no data ({printable(each.reason, 400)})"
    return f"improved to {_now(each)}" if each.why is Why.BETTER else f"is {_now(each)}"


def _left_out(mode: Mode) -> str:
    """Why its rows were not written, and what to type."""
    if mode is Mode.ACCEPT_RUN:
        return "--accept-run adds one run to the accepted ones, whose median counts: refresh without --accept-run"
    return "it was not selected: refresh the whole gate file"
