"""Does a gate file ask for less than it did? Two gate files are compared by what they mean, field by field.

Each field of what a gate file becomes has one rule in a table; a field without one counts as changed wherever it
differs, so that a new key is never overlooked. Comments, order and spelling are no change.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_nsys.gates.assertion import Assertion, GateFile, Severity
from pytest_nsys.gates.loosening_rules import (
    GONE,
    Change,
    ChangeKind,
    Rule,
    Sides,
    aggregates,
    agree_less,
    another,
    bounds,
    each_part,
    lack_more,
    limit_of,
    looser,
    measured_with,
    rows,
    says_nothing,
    spelled,
    waivers,
)


def _warns(_: Severity, now: Severity) -> bool:
    return now is Severity.WARN


ASSERTION_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("name", "sentence", "location", "metric"), says_nothing),  # of another metric all is told
    "require": limit_of("limit"),
    "where": rows,
    "aggregates": aggregates,
    "balance_across": another("balance"),
    "pipeline": looser("pipeline", lambda _, now: not now),
    "warn": limit_of("warn"),
    "severity": looser("severity", _warns),
    "marks": another("marks"),
    "xfail": looser("xfail", lambda was, _: was is None),
    "allow_no_data": looser("allow_no_data", lambda _, now: bool(now)),
    "allow_missing": looser("allow_missing", lack_more),
    "on_improvement": looser("on_improvement", _warns),
    "inconclusive": looser("inconclusive", _warns),
    "fail_after": looser("fail_after", operator.lt),
    "waivers": waivers,
    "window": another("window"),
    "span": measured_with("span"),
    "kernels": measured_with("kernels"),
}
"""A rule for each field of an Assertion."""

GATE_RULES: Mapping[str, Rule] = {
    # These of a file are in its assertions.
    **dict.fromkeys(("path", "assertions", "tolerance", "window", "span", "kernels", "allow_missing"), says_nothing),
    "convention": each_part("convention", but="name"),
    "traces": another("trace"),
    "run": each_part("run"),
    "workload": each_part("workload", but="world"),  # which `run` says
    "comparable_on": looser("comparable_on", agree_less, lambda names: "all" if names is None else spelled(names)),
    "quality": bounds,
}
"""A rule for each field of a GateFile."""


@dataclass(frozen=True, slots=True)
class Changed:
    """One change and the assertions that have it, which now stand on ``lines``; none: it is of the whole file."""

    change: Change
    assertions: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()


def compared(old: GateFile, new: GateFile) -> list[Changed]:
    """What ``new`` asks otherwise than ``old`` and is not tighter; a change of many assertions is told once."""
    found = [Changed(change) for change in _fields(GATE_RULES, old, new, Sides((old, new)))]
    together: dict[Change, list[Assertion | None]] = {}
    for change, assertion in _of_assertions(old, new):
        together.setdefault(change, []).append(assertion)
    for change, assertions in together.items():
        own = [assertion for assertion in assertions if assertion is not None]
        found.append(Changed(change, tuple(a.name for a in own), tuple(a.location.line for a in own)))
    return found


def _of_assertions(old: GateFile, new: GateFile) -> Iterator[tuple[Change, Assertion | None]]:
    """Each change of an assertion, with what the assertion is now."""
    left = {assertion.name for assertion in old.assertions}
    named = {assertion.name: assertion for assertion in new.assertions}
    free = [assertion for assertion in new.assertions if assertion.name not in left]
    for was in old.assertions:
        now = named.get(was.name)
        changes = _between(was, now, old, new) if now is not None else None
        if now is None:
            now, changes = _counterpart(was, old, new, free)
        if now is not None and now in free:
            free.remove(now)
        if changes is None:
            what = was.name if was.name == was.sentence else f"{was.name} ({was.sentence})"
            changes = [Change(ChangeKind.LOOSENED, "assertion", what, GONE)]
        yield from ((change, now) for change in changes)


def _between(was: Assertion, now: Assertion, old: GateFile, new: GateFile) -> list[Change]:
    """What one assertion asks otherwise than another."""
    if was.metric != now.metric:
        return [Change(ChangeKind.CHANGED, "assertion", was.sentence, now.sentence)]
    return list(_fields(ASSERTION_RULES, was, now, Sides((old, new), was, now)))


def _counterpart(
    was: Assertion, old: GateFile, new: GateFile, free: Iterable[Assertion]
) -> tuple[Assertion | None, list[Change] | None]:
    """What stands in for an assertion whose name is gone, and what it asks otherwise; (None, None): nothing does.

    One that asks no less, else a new one that has the same rows, or the same limit, and differs least.
    """
    for alike in (_same_rows, _same_limit):
        asked = [(now, _between(was, now, old, new)) for now in new.assertions if alike(was, now)]
        kept = [pair for pair in asked if not pair[1]] or [pair for pair in asked if pair[0] in free]
        if kept:
            return min(kept, key=lambda pair: len(pair[1]))
    return None, None


def _same_rows(one: Assertion, other: Assertion) -> bool:
    return all(getattr(one, f) == getattr(other, f) for f in ("metric", "where", "aggregates", "balance_across"))


def _same_limit(one: Assertion, other: Assertion) -> bool:
    return (one.metric, one.require.text) == (other.metric, other.require.text)


def _fields(rules: Mapping[str, Rule], old: Any, new: Any, sides: Sides) -> Iterator[Change]:
    for field in dataclasses.fields(old):
        was, now = getattr(old, field.name), getattr(new, field.name)
        if was != now:
            yield from rules.get(field.name, another(field.name))(was, now, sides)
