"""Which limit does a person write who accepts a run that broke a constant, and which ceiling has a waiver for it?

To two digits on the worse side, 1 % or more off the value that was measured (1 pp of a ratio), in the unit that the
sentence has. What is exact has no worse side: there it is the number itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.units import COUNT, SHARES, SIZE, TIME, Quantity, decimal, written_exactly, written_value
from pytest_nsys.gates.limits import CEILINGS, FLOORS, out_of_reach
from pytest_nsys.gates.model import Assertion, ByModel, Comparator, Constant
from pytest_nsys.gates.names import without_item

DIGITS = 2
LEAST_PERCENT = 1
"""How far the limit is from the value: of the value, of ratios in points."""

NO_LABELS: Mapping[str, Label] = MappingProxyType({})

_QUANTITY = re.compile(r"(?P<number>[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(?P<unit>\D.*)?$")
_WHOLE = ("ns", "bytes", "")
"""Units as written of which there are only whole ones, where what is measured is time, size or a count."""


def has_worse_side(assertion: Assertion) -> bool:
    """Whether the limit is a constant that a value can be far beyond: what is exact is right or wrong."""
    return bool(assertion.require.each_constant) and assertion.require.comparator in (*FLOORS, *CEILINGS)


def sentence_to_write(assertion: Assertion, worst: Value, labels: Mapping[str, Label] = NO_LABELS) -> str:
    """Return the sentence that holds ``worst``, of an assertion as it is judged: ``all_gather overlap >= 41%``.

    Of constants by GPU model the one of the row with these labels is another. Of one item of several the limit alone,
    ``>= 41%``. Empty where no other constant can be written.
    """
    sentence, whole = assertion.sentence, assertion.require.text
    if not assertion.require.each_constant:
        return ""
    one, before, after = with_constant_of(assertion, labels)
    if one.require.comparator is Comparator.EQ and not sentence.startswith("no "):
        number = written_exactly(worst, one.judged.unit)
    else:
        number = looser_limit(one, worst)
    if not number:
        return ""
    limit = before + _QUANTITY.sub(lambda _: number, one.require.text) + after
    is_item = without_item(assertion.full_name) != assertion.full_name
    return limit if is_item else sentence.removesuffix(whole) + limit


def with_constant_of(assertion: Assertion, labels: Mapping[str, Label]) -> tuple[Assertion, str, str]:
    """Return the assertion with the one constant that a row is held to, and what its limit has before and after it."""
    require = assertion.require
    if not isinstance(require.limit, ByModel):
        return assertion, "", ""
    model = require.limit.word_for(labels)
    parts = require.text.split(",")
    (at,) = (number for number, part in enumerate(parts) if part.endswith(f" on {model}"))
    own = parts[at].removesuffix(f" on {model}")
    before = "".join(f"{part}," for part in parts[:at])
    after = "".join(f",{part}" for part in parts[at + 1 :])
    held = replace(require, limit=require.limit.constants[model], text=own)
    return replace(assertion, require=held), before, f" on {model}{after}"


def looser_limit(assertion: Assertion, worst: Value) -> str:
    """The limit with its unit that ``worst`` holds: ``41%``. Empty where it is exact, or none says anything."""
    require, judged = assertion.require, assertion.judged
    quantity = _QUANTITY.search(require.text)
    if not has_worse_side(assertion) or quantity is None:
        return ""
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
    says_nothing = number < 0 or not comparator.holds(Fraction(worst), number * size)
    if says_nothing or out_of_reach(comparator, number * size, judged):
        return ""
    return decimal(number, 18) + quantity[0].removeprefix(quantity["number"])


def ceiling_beyond(assertion: Assertion, worst: Value, labels: Mapping[str, Label] = NO_LABELS) -> str:
    """The ceiling of a waiver that lets a value pass which breaks a constant; empty where there can be none."""
    assertion, _, _ = with_constant_of(assertion, labels)
    require, judged = assertion.require, assertion.judged
    limit = require.limit
    if require.comparator is Comparator.NE or worst < 0 or not isinstance(limit, Constant):
        return ""
    if looser := looser_limit(assertion, worst):
        return looser
    up = worst > limit.value
    end = judged.greatest if up else judged.least
    beyond = _outward(Fraction(worst) * (101 if up else 99) / 100, up, whole=judged.unit in (TIME, SIZE, COUNT))
    if has_worse_side(assertion):  # as bad as it gets
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
