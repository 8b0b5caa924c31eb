"""When does a key of a gate file ask for less than it did? Rules that take a value then and a value now.

What is tighter is no change; what have no order is one.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any, NamedTuple, TypeGuard

from pytest_nsys.analysis.facts.bounds import AT_LEAST, OFF, Bounds
from pytest_nsys.analysis.table import Selector, with_usual
from pytest_nsys.core.conventions import NO_STAGE, Convention, KernelAnchor, convention_words, written_anchor
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import ANY, format_tolerance, written_value
from pytest_nsys.core.words import printable
from pytest_nsys.gates.comparability import FIELDS
from pytest_nsys.gates.convention_keys import AUTO
from pytest_nsys.gates.model import (
    Aggregate,
    AllowMissing,
    Assertion,
    Comparator,
    Constant,
    FromBaseline,
    GateFile,
    Requirement,
    Severities,
    Severity,
    Tolerance,
    Waiver,
)

NONE, GONE, EVERY_ROW = "none", "gone", "every row"
SHOWN_TEXT = 120

Where = Mapping[str, Selector]


class ChangeKind(enum.StrEnum):
    """``LOOSENED``: what was red may pass. ``CHANGED``: something else is asked, and nobody can order the two."""

    LOOSENED = "loosened"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One key that means something else now; ``was`` and ``now`` as a gate file writes them."""

    kind: ChangeKind
    key: str
    was: str
    now: str


class Sides(NamedTuple):
    """What stands around a field: both gate files, and both assertions that it is of (none: of the file)."""

    gates: tuple[GateFile, GateFile]
    both: tuple[Assertion, ...] = ()

    @property
    def unit(self) -> str:
        """The unit of the values that are judged."""
        return self.both[1].judged.unit


Rule = Callable[[Any, Any, Sides], Iterable[KeyChange]]
"""What it means that a field was the one and is the other, which differ."""


def says_nothing(_: Any, __: Any, ___: Sides) -> Iterable[KeyChange]:
    """The field does not change what is judged, or another one says it."""
    return ()


def another(key: str) -> Rule:
    """Nobody can say which of two values asks for more."""
    return lambda was, now, _: [KeyChange(ChangeKind.CHANGED, key, *_apart(was, now))]


def looser(key: str, test: Callable[[Any, Any], bool], says: Callable[[Any], str] | None = None) -> Rule:
    """The value may go one way alone: ``test`` tells of a value then and another one now whether that is the looser."""

    def rule(was: Any, now: Any, _: Sides) -> Iterator[KeyChange]:
        if test(was, now):
            yield KeyChange(ChangeKind.LOOSENED, key, *map(says or spelled, (was, now)))

    return rule


def each_part(key: str, but: str = "") -> Rule:
    """Each part of the value by itself: the keys of a mapping, the fields of an object, but one."""

    def rule(was: Any, now: Any, _: Sides) -> Iterator[KeyChange]:
        old, new = _parts(was), _parts(now)
        for name in dict.fromkeys((*old, *new)):
            if old.get(name) != new.get(name) and name != but:
                yield KeyChange(ChangeKind.CHANGED, f"{key} {name}", *_apart(old.get(name), new.get(name)))

    return rule


def _parts(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    named = value._fields if hasattr(value, "_fields") else [field.name for field in dataclasses.fields(value)]
    return {name: getattr(value, name) for name in named}


def conventions(was: Convention | None, now: Convention | None, sides: Sides) -> Iterator[KeyChange]:
    """Another way of reading the traces; one that is found in them may be any."""
    if was is None or now is None:
        texts = (AUTO if each is None else convention_words(each) for each in (was, now))
        yield KeyChange(ChangeKind.CHANGED, "convention", *texts)
    else:
        yield from each_part("convention", but="name")(was, now, sides)


def measured_with(key: str) -> Rule:
    """What the convention says where the gate file says nothing."""

    def rule(was: Any, now: Any, sides: Sides) -> Iterator[KeyChange]:
        usual = (AUTO if gate.convention is None else getattr(gate.convention, key) for gate in sides.gates)
        old, new = (value or default for value, default in zip((was, now), usual, strict=True))
        if old != new:
            yield KeyChange(ChangeKind.CHANGED, key, spelled(old), spelled(new))

    return rule


def agree_less(was: tuple[str, ...] | None, now: tuple[str, ...] | None) -> bool:
    """Whether fewer circumstances have to agree with those of the baseline; None: all."""
    return not set(FIELDS if was is None else was) <= set(FIELDS if now is None else now)


def lack_more(was: AllowMissing, now: AllowMissing) -> bool:
    """Whether a rank may lack what it had to have."""
    return any(
        not any((wide == glob or (_is_plain(glob) and fnmatchcase(glob, wide))) and ranks <= was[wide] for wide in was)
        for glob, ranks in now.items()
    )


def bounds(was: Bounds, now: Bounds, _: Sides) -> Iterator[KeyChange]:
    """A doubt that is borne now and was not before."""
    for (name, unit, old), (name, unit, new) in zip(was.each(), now.each(), strict=True):
        way = -1 if name in AT_LEAST else 1
        if old is not None and (new is None or way * new > way * old):
            texts = (OFF if b is None else written_value(Fraction(b), unit) for b in (old, new))
            yield KeyChange(ChangeKind.LOOSENED, f"quality {name}", *texts)


def rows(was: Where, now: Where, sides: Sides) -> Iterator[KeyChange]:
    """Other rows; of what is aggregated, nobody can say which ask for more."""
    was, now = (with_usual(each, of.measures.dimensions) for each, of in zip((was, now), sides.both, strict=True))
    folded = any(side.aggregates or side.balance_across for side in sides.both)
    if not folded and covers(now, was):
        return
    kind = ChangeKind.LOOSENED if covers(was, now) and not folded else ChangeKind.CHANGED
    yield KeyChange(kind, "rows", *(spelled(where) if where else "all" for where in (was, now)))


def covers(wide: Where, narrow: Where) -> bool:
    """Whether ``wide`` selects every row that ``narrow`` does, as far as their texts tell."""
    if (NO_STAGE in _elements(narrow, "stage")) and NO_STAGE not in _elements(wide, "stage"):
        return False  # kernels without a stage are left out unless they are asked for
    return all(
        dimension in narrow and all(any(map(_holds(element), selector.values)) for element in narrow[dimension].values)
        for dimension, selector in wide.items()
    )


def _elements(where: Where, dimension: str) -> tuple[str, ...]:
    return where[dimension].values if dimension in where else ()


def _holds(narrow: str) -> Callable[[str], bool]:
    """A function that tells whether an element means all that ``narrow`` means: it is the same, a prefix, a glob."""
    plain = _is_plain(narrow)

    def holds(wide: str) -> bool:
        glob = wide.endswith("*") and fnmatchcase(narrow, wide)
        return wide == narrow or (plain and (narrow.startswith(f"{wide}_") or glob))

    return holds


def _is_plain(text: str) -> bool:
    """Whether a glob means its own text alone."""
    return not set(text) & set("*?[")


def aggregates(was: tuple[Aggregate, ...], now: tuple[Aggregate, ...], sides: Sides) -> Iterator[KeyChange]:
    """One value in place of every row asks for less; the other way round only a sum is no rule for each row."""
    if not was:
        yield KeyChange(ChangeKind.LOOSENED, "aggregate", EVERY_ROW, spelled(now))
    elif now or sides.both[1].require.comparator is Comparator.NE or any(step.word == "sum" for step in was):
        yield KeyChange(ChangeKind.CHANGED, "aggregate", spelled(was), spelled(now) if now else EVERY_ROW)


def waivers(was: tuple[Waiver, ...], now: tuple[Waiver, ...], sides: Sides) -> Iterator[KeyChange]:
    """A waiver that excuses what none did before."""
    for waiver in now:
        if not any(_excuses(old, waiver, sides.both[1].require.worse) for old in was):
            before = next((old for old in was if old.where == waiver.where), None)
            texts = (NONE if each is None else _waived(each, sides.unit) for each in (before, waiver))
            yield KeyChange(ChangeKind.LOOSENED, "waiver", *texts)


def _excuses(old: Waiver, new: Waiver, worse: int) -> bool:
    """Whether ``old`` excused all that ``new`` does."""
    reached = all(way * new.ceiling <= way * old.ceiling for way in ((worse,) if worse else (1, -1)))
    return reached and old.unit == new.unit and new.expires <= old.expires and covers(old.where, new.where)


def _waived(waiver: Waiver, unit: str) -> str:
    rows = f"{spelled(waiver.where)} " if waiver.where else ""
    return printable(
        f"{rows}up to {format_value(waiver.ceiling, waiver.unit or unit)} until {waiver.expires}", SHOWN_TEXT
    )


def limit_of(key: str) -> Rule:
    """A limit that more values hold."""

    def rule(was: Requirement | None, now: Requirement | None, sides: Sides) -> Iterator[KeyChange]:
        if was is None:
            return
        if now is None:
            yield KeyChange(ChangeKind.LOOSENED, key, was.text, GONE)
        elif isinstance(was.limit, FromBaseline) and isinstance(now.limit, FromBaseline):
            yield from _of_baseline(key, was, now, sides)
        elif kind := _other_constant(was, now):
            yield KeyChange(kind, key, was.text, now.text)

    return rule


def _other_constant(was: Requirement, now: Requirement) -> ChangeKind | None:
    """How two limits differ of which one at least is a constant; None where the new one allows no more."""
    if not (isinstance(was.limit, Constant) and isinstance(now.limit, Constant)):
        return ChangeKind.CHANGED
    if was.limit.unit != now.limit.unit:
        return ChangeKind.CHANGED
    if Comparator.NE in (was.comparator, now.comparator):
        return ChangeKind.CHANGED if (was.comparator, was.limit) != (now.comparator, now.limit) else None
    both = (was, was.limit.value), (now, now.limit.value)
    reaches = ([_reach(side, limit, way) for way in (1, -1)] for side, limit in both)
    more = any(old is not None and (new is None or new > old) for old, new in zip(*reaches, strict=True))
    return ChangeKind.LOOSENED if more else None


def _reach(require: Requirement, limit: Fraction, way: int) -> tuple[Fraction, bool] | None:
    """How far values may go, up or down (negated): to the limit and whether it counts; None: any far."""
    return (way * limit, "=" in str(require.comparator)) if require.worse in (way, 0) else None


def _of_baseline(key: str, was: Requirement, now: Requirement, sides: Sides) -> Iterator[KeyChange]:
    old, new = was.limit, now.limit
    assert isinstance(old, FromBaseline)
    assert isinstance(new, FromBaseline)
    lost = now.worse not in (0, was.worse)  # a side on which values failed
    if lost or old.no is not new.no:
        yield KeyChange(ChangeKind.LOOSENED if lost else ChangeKind.CHANGED, key, was.text, now.text)
    if old.history is not None and new.history is not None:
        yield from each_part("history")(old.history, new.history, sides)
    elif old.history is not new.history:
        yield KeyChange(ChangeKind.CHANGED, "baseline", old.source, new.source)
    yield from _tolerances(old.tolerance, new.tolerance, sides.unit)


def _tolerances(was: Tolerance | None, now: Tolerance | None, unit: str) -> Iterator[KeyChange]:
    """A wider tolerance; none at all is exact, and the noise alone is tighter than any amount."""
    if now is None or (was is not None and now.noise):
        return
    unit = unit or next(iter(now.absolute), ANY)
    if was is None or was.noise:
        old = NONE if was is None else "noise"
        amount = format_tolerance(now.relative, now.absolute.get(unit), unit, noise=now.noise)
        yield KeyChange(ChangeKind.LOOSENED, "tolerance", old, amount)
        return
    if now.relative > was.relative:
        texts = (format_tolerance(each.relative, None, unit) for each in (was, now))
        yield KeyChange(ChangeKind.LOOSENED, "tolerance rel", *texts)
    before, after = (each.absolute.get(unit, Fraction(0)) for each in (was, now))
    if after > before:
        texts = (format_tolerance(Fraction(0), each, unit) if each else NONE for each in (before, after))
        yield KeyChange(ChangeKind.LOOSENED, "tolerance abs", *texts)


def _severities(was: Severities, now: Severities, _: Sides) -> Iterator[KeyChange]:
    for outcome, before, after in zip(Severities._fields, was, now, strict=True):
        if before is not after and after is Severity.WARN:
            yield KeyChange(ChangeKind.LOOSENED, f"severity {outcome}", str(before), str(after))


ASSERTION_RULES: Mapping[str, Rule] = {
    # Of another metric all is told.
    **dict.fromkeys(("name", "full_name", "sentence", "location", "metric", "outside"), says_nothing),
    "require": limit_of("limit"),
    "where": rows,
    "aggregates": aggregates,
    "balance_across": another("balance"),
    "pipeline": looser("pipeline", lambda _, now: not now),
    "warn": limit_of("warn"),
    "severity": _severities,
    "marks": another("marks"),
    "xfail": looser("xfail", lambda was, _: was is None),
    "allow_no_data": looser("allow_no_data", lambda _, now: bool(now)),
    "allow_missing": looser("allow_missing", lack_more),
    "fail_after": looser("fail_after", operator.lt),
    "waivers": waivers,
    "window": another("window"),
    "kind": another("kind of steps"),
    "span": measured_with("span"),
    "kernels": measured_with("kernels"),
}
"""A rule for each field of an Assertion."""

GATE_RULES: Mapping[str, Rule] = {
    # These of a file are in its assertions.
    **dict.fromkeys(("path", "assertions", "tolerance", "window", "span", "kernels", "allow_missing"), says_nothing),
    # Configurations are compared one by one.
    **dict.fromkeys(("configuration", "names", "matrix", "found"), says_nothing),
    "convention": conventions,
    "traces": another("trace"),
    "measurements": another("measurements"),
    "run": each_part("run"),
    "workload": each_part("workload", but="world"),  # which `run` says
    "comparable_on": looser("comparable_on", agree_less, lambda names: "all" if names is None else spelled(names)),
    "quality": bounds,
}
"""A rule for each field of a GateFile."""


# -- words


def _apart(was: object, now: object) -> tuple[str, str]:
    """Both values; of long lists what the other one lacks."""
    if _is_list(was) and _is_list(now):
        fewer = tuple(e for e in was if e not in now), tuple(e for e in now if e not in was)
        was, now = fewer if any(fewer) else (was, now)
    return spelled(was), spelled(now)


def _is_list(value: object) -> TypeGuard[tuple[object, ...]]:
    return isinstance(value, tuple) and not hasattr(value, "_fields")


def spelled(value: object) -> str:
    """A value as a person writes it."""
    return printable(_spelled(value), SHOWN_TEXT) or NONE


def _spelled(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: NONE, True: "true", False: "false"}[value]
    if isinstance(value, Selector):
        return "|".join(value.values)
    if isinstance(value, Aggregate):
        return f"{value.word} over {', '.join(value.over)}" if value.over else value.word
    if isinstance(value, Mapping):
        return " ".join(f"{name} {_spelled(part)}" for name, part in value.items())
    if _is_list(value):
        return ", ".join(map(_spelled, value))
    if isinstance(value, frozenset):
        return ", ".join(map(str, sorted(value)))
    if isinstance(value, KernelAnchor):
        return written_anchor(value)
    if isinstance(value, tuple) or dataclasses.is_dataclass(value):
        return " ".join(_spelled(part) for part in _parts(value).values() if part)
    return str(value)
