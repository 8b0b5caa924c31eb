"""Where does a constant limit go that a run broke and a person accepts, and how is it written into the gate file?

To two digits on the worse side, 1 % or more off the value that was measured (1 pp of a ratio), in the unit that the
sentence has. Nothing else of the file changes, not a blank: of all places where the scalar's text has the number that
one is taken after which the file means the same but for this limit. So quotes, folded text, anchors and comments need
no rule of their own: what cannot be changed alone is told and left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from yaml.nodes import MappingNode, ScalarNode

from pytest_nsys.core.errors import GateFileError
from pytest_nsys.core.model import Value
from pytest_nsys.core.units import COUNT, SHARES, SIZE, TIME, Quantity, decimal, written_value
from pytest_nsys.core.words import counted
from pytest_nsys.gates.gate_file import loads_gate_file
from pytest_nsys.gates.limits import CEILINGS, FLOORS, out_of_reach
from pytest_nsys.gates.model import Assertion, Comparator, Constant, GateFile, Location
from pytest_nsys.gates.yaml_nodes import NodeReader, compose

DIGITS = 2
LEAST_PERCENT = 1
"""How far the limit is from the value: of the value, of ratios in points."""

_QUANTITY = re.compile(r"(?P<number>[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(?P<unit>\D.*)?$")
_ANYWHERE = Location(Path(), 0, 0)
_WHOLE = ("ns", "bytes", "")
"""Units as written of which there are only whole ones, where what is measured is time, size or a count."""


class LimitStays(ValueError):
    """Why a limit is not moved, in words that go on after ``--limits cannot move it:``."""


class MovedLimit(NamedTuple):
    """``number`` takes the place of ``was`` in the sentence; ``text`` is the new limit with its unit, ``41%``."""

    was: str
    number: str
    text: str


def movable(assertion: Assertion) -> bool:
    """Whether the limit is a constant with a worse side: what is exact is right or wrong."""
    return isinstance(assertion.require.limit, Constant) and assertion.require.comparator in (*FLOORS, *CEILINGS)


def moved_limit(assertion: Assertion, worst: Value) -> MovedLimit:
    """The limit that ``worst`` holds, of an assertion as it is judged. Raises LimitStays."""
    require, judged = assertion.require, assertion.judged
    quantity = _QUANTITY.search(require.text)
    if not movable(assertion) or quantity is None:
        raise LimitStays("it is exact")
    comparator = require.comparator or Comparator.LE
    unit = (quantity["unit"] or "").strip()
    bare = re.sub(r"\s+of\s+(the\s+)?step$", "", unit)
    size = Fraction(1, 100) if judged.unit in SHARES else _size(bare, judged.unit)
    written = Fraction(worst) / size
    up = comparator in CEILINGS
    off = Fraction(LEAST_PERCENT) if judged.unit in SHARES else abs(written) * LEAST_PERCENT / 100
    number = _outward(
        written + off if up else written - off, up, whole=judged.unit in (TIME, SIZE, COUNT) and bare in _WHOLE
    )
    if number < 0 or not comparator.holds(Fraction(worst), number * size):
        raise LimitStays("no lower limit says anything")
    if wrong := out_of_reach(comparator, number * size, judged):
        raise LimitStays(f"{comparator} {decimal(number, 18)}{unit} {wrong[0]}")
    text = decimal(number, 18)
    return MovedLimit(quantity["number"], text, text + quantity[0].removeprefix(quantity["number"]))


def ceiling_beyond(assertion: Assertion, worst: Value) -> str:
    """The ceiling of a waiver that lets a value pass which breaks a constant; empty where there can be none."""
    require, judged = assertion.require, assertion.judged
    limit = require.limit
    if require.comparator is Comparator.NE or worst < 0 or not isinstance(limit, Constant):
        return ""
    try:
        return moved_limit(assertion, worst).text
    except LimitStays:
        up = worst > limit.value
        end = judged.greatest if up else judged.least
        beyond = _outward(Fraction(worst) * (101 if up else 99) / 100, up, whole=judged.unit in (TIME, SIZE, COUNT))
        if movable(assertion):  # as bad as it gets
            return "" if end is None else written_value(Fraction(end), judged.unit)
        return written_value(Fraction(worst) if judged.unit == COUNT else beyond, judged.unit)


def _size(unit: str, judged: str) -> Fraction:
    """How much of the judged unit one of the written unit is."""
    amounts = Quantity(Fraction(1), unit, "").amounts
    return amounts.get(judged, next(iter(amounts.values())))


def _outward(value: Fraction, up: bool, *, whole: bool) -> Fraction:
    """The next number of two digits that is not nearer than ``value``."""
    step, size = Fraction(1), abs(value)
    if not size:
        return value
    while size / step >= 10**DIGITS:
        step *= 10
    while size / step < 10 ** (DIGITS - 1) and not whole:
        step /= 10
    return -(-value // step) * step if up else value // step * step


class LimitEdit(NamedTuple):
    """A limit of the entry at ``location`` that is to be moved."""

    location: Location
    limit: MovedLimit


def with_limits(
    content: bytes, path: Path, display: Path, edits: Sequence[LimitEdit]
) -> tuple[bytes, Mapping[Location, str]]:
    """The gate file with these limits, and why others stay. Raises GateFileError where it cannot be read."""
    mark = b"\xef\xbb\xbf" if content.startswith(b"\xef\xbb\xbf") else b""
    text, stay = content.decode("utf-8-sig", "surrogateescape"), {}
    for edit in sorted(edits, key=lambda each: each.location[1:], reverse=True):  # what stands before stays in place
        try:
            text = _with_limit(text, path, display, edit)
        except LimitStays as why:
            stay[edit.location] = str(why)
    return mark + text.encode("utf-8", "surrogateescape"), stay


def _with_limit(text: str, path: Path, display: Path, edit: LimitEdit) -> str:
    before = loads_gate_file(text, path=path, display=display)
    scalar = _scalar(text, display, edit.location)
    if scalar is None:
        raise LimitStays("its text is not found in the file")
    start, end = scalar.start_mark.index, scalar.end_mark.index
    places = [*re.finditer(rf"(?<![\w.]){re.escape(edit.limit.was)}(?![0-9.])", text[start:end])]
    why = "its number is not written out in the sentence"
    for place in reversed(places):  # the limit ends a sentence
        at = start + place.start()
        edited = text[:at] + edit.limit.number + text[start + place.end() :]
        try:
            after = loads_gate_file(edited, path=path, display=display)
        except GateFileError as error:
            why = f"the file would not be valid, {error.mistakes[0]}"
            continue
        others = _others(before, after, edit)
        if others is not None and not others:
            return edited
        if others:
            why = f"{counted(len(others), 'other line')} has it, too (line {', '.join(map(str, others))})"
    raise LimitStays(why)


def _scalar(text: str, display: Path, location: Location) -> ScalarNode | None:
    """What holds the limit of the entry at the location: a sentence, or the value of a key."""
    root = compose(text.encode(), NodeReader(display))
    entries = next(value for key, value in root.value if key.value == "assertions")
    for entry in entries.value:
        if (entry.start_mark.line + 1, entry.start_mark.column + 1) != location[1:]:
            continue
        pairs = entry.value if isinstance(entry, MappingNode) else [(None, entry)]
        for key, value in pairs:
            if (key is None or key.value in ("assert", "require")) and isinstance(value, ScalarNode):
                return value
    return None


def _others(before: GateFile, after: GateFile, edit: LimitEdit) -> list[int] | None:
    """The lines of the other assertions that mean something else now; None where it is more than limits, or where the
    entry itself does not mean the limit.
    """
    found: dict[int, None] = {}
    for was, now in zip(before.each, after.each, strict=True):
        if _without(was) != _without(now) or len(was.assertions) != len(now.assertions):
            return None
        for old, new in zip(was.assertions, now.assertions, strict=True):
            if old.location[1:] == edit.location[1:]:
                wanted = re.sub(
                    rf"(?<![\w.]){re.escape(edit.limit.was)}(?![0-9.])", edit.limit.number, old.require.text
                )
                if _meant(replace(old, require=new.require)) != _meant(new) or new.require.text != wanted:
                    return None
            elif _meant(old) != _meant(new):
                found[old.location.line] = None
    return [*found]


def _without(gate: GateFile) -> GateFile:
    return replace(gate, assertions=(), matrix=())


def _meant(assertion: Assertion) -> Assertion:
    """What it asks for, wherever it stands and whatever it is called."""
    waivers = tuple(replace(waiver, location=_ANYWHERE) for waiver in assertion.waivers)
    return replace(assertion, name="", full_name="", sentence="", location=_ANYWHERE, waivers=waivers)
