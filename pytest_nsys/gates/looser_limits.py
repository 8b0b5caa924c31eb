"""Which constant limit, or which ceiling of a waiver, lets a run pass that broke a constant?

The looser limit has two digits, is in the unit of the sentence, and lies at least 1 % (of a ratio: 1 pp) from the
measured value, on the worse side. An exact constant has no worse side: the new limit is the measured number itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.units import (
    COUNT,
    SHARE_UNITS,
    SIZE,
    TIME,
    Quantity,
    format_decimal,
    format_exact_limit,
    format_written_limit,
)
from pytest_nsys.gates.assertion_names import strip_item
from pytest_nsys.gates.limits import CEILING_COMPARATORS, FLOOR_COMPARATORS, find_pointless_limit
from pytest_nsys.gates.model import Assertion, BaselineLimit, Comparator, Constant, ConstantByModel, JudgedRow

DIGITS = 2
MARGIN_PERCENT = 1
"""The least distance of the limit from the value, in percent of the value; for ratios in percentage points."""

NO_LABELS: Mapping[str, Label] = MappingProxyType({})

_WRITTEN_QUANTITY = re.compile(r"(?P<number>[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(?P<unit>\D.*)?$")
_WRITTEN_TIMES = {"ms": 10**6, "us": 10**3}
_WHOLE_UNITS = ("ns", "bytes", "")
"""Units, as written, whose values are whole numbers if the metric is a time, a size or a count."""


def has_worse_side(assertion: Assertion) -> bool:
    """Whether the limit is a constant that has a worse side; a value holds an exact constant or does not."""
    return bool(assertion.requirement.constants) and assertion.requirement.comparator in (
        *FLOOR_COMPARATORS,
        *CEILING_COMPARATORS,
    )


def format_looser_sentence(assertion: Assertion, worst: Value, labels: Mapping[str, Label] = NO_LABELS) -> str:
    """Return the sentence with a limit that ``worst`` holds, for a resolved assertion: ``all_gather overlap >= 41%``.

    Where there is a constant for each GPU model, only that of the row with these labels changes. Of one item of several
    it is the limit alone, ``>= 41%``. Empty where no other constant can be written.
    """
    sentence, limit_text = assertion.sentence, assertion.requirement.text
    if not assertion.requirement.constants:
        return ""
    row_assertion, before, after = select_row_constant(assertion, labels)
    if row_assertion.requirement.comparator is Comparator.EQ and not sentence.startswith("no "):
        number = format_exact_limit(worst, row_assertion.limit_target.unit)
    else:
        number = format_looser_limit(row_assertion, worst)
    if not number:
        return ""
    limit = before + _WRITTEN_QUANTITY.sub(lambda _: number, row_assertion.requirement.text) + after
    is_item = strip_item(assertion.full_name) != assertion.full_name
    return limit if is_item else sentence.removesuffix(limit_text) + limit


def select_row_constant(assertion: Assertion, labels: Mapping[str, Label]) -> tuple[Assertion, str, str]:
    """Return the assertion with the one constant that a row is judged by, and the text of its limit before and after
    it.
    """
    requirement = assertion.requirement
    if not isinstance(requirement.limit, ConstantByModel):
        return assertion, "", ""
    model = requirement.limit.find_model(labels)
    parts = requirement.text.split(",")
    (index,) = (number for number, part in enumerate(parts) if part.endswith(f" on {model}"))
    constant_text = parts[index].removesuffix(f" on {model}")
    before = "".join(f"{part}," for part in parts[:index])
    after = "".join(f",{part}" for part in parts[index + 1 :])
    row_requirement = replace(requirement, limit=requirement.limit.constants[model], text=constant_text)
    return replace(assertion, requirement=row_requirement), before, f" on {model}{after}"


def format_looser_limit(assertion: Assertion, worst: Value) -> str:
    """Return the limit that ``worst`` holds, with its unit: ``41%``. Empty where it is exact, or none says anything."""
    requirement, target = assertion.requirement, assertion.limit_target
    quantity = _WRITTEN_QUANTITY.search(requirement.text)
    if not has_worse_side(assertion) or quantity is None:
        return ""
    comparator = requirement.comparator or Comparator.LE
    unit = (quantity["unit"] or "").strip()
    bare_unit = re.sub(r"\s+of\s+(the\s+)?step$", "", unit)
    size = Fraction(1, 100) if target.unit in SHARE_UNITS else _find_unit_size(bare_unit, target.unit)
    units = Fraction(worst) / size
    is_upward = comparator in CEILING_COMPARATORS
    distance = Fraction(MARGIN_PERCENT) if target.unit in SHARE_UNITS else abs(units) * MARGIN_PERCENT / 100
    number = _round_outward(
        units + distance if is_upward else units - distance,
        is_upward,
        whole=target.unit in (TIME, SIZE, COUNT) and bare_unit in _WHOLE_UNITS,
    )
    is_pointless = number < 0 or not comparator.is_satisfied(Fraction(worst), number * size)
    if is_pointless or find_pointless_limit(comparator, number * size, target):
        return ""
    return format_decimal(number, 18) + quantity[0].removeprefix(quantity["number"])


def format_looser_ceiling(assertion: Assertion, worst: Value, labels: Mapping[str, Label] = NO_LABELS) -> str:
    """Return the ceiling of a waiver that lets a value pass which breaks a constant; empty where there can be none."""
    assertion, _, _ = select_row_constant(assertion, labels)
    requirement, target = assertion.requirement, assertion.limit_target
    limit = requirement.limit
    if requirement.comparator is Comparator.NE or worst < 0 or not isinstance(limit, Constant):
        return ""
    if looser_text := format_looser_limit(assertion, worst):
        return looser_text
    is_upward = worst > limit.value
    range_end = target.greatest if is_upward else target.least
    ceiling = _round_outward(
        Fraction(worst) * (101 if is_upward else 99) / 100, is_upward, whole=target.unit in (TIME, SIZE, COUNT)
    )
    if has_worse_side(assertion):  # as bad as it gets
        return "" if range_end is None else format_written_limit(Fraction(range_end), target.unit)
    return format_written_limit(Fraction(worst) if target.unit == COUNT else ceiling, target.unit)


def format_row_ceiling(assertion: Assertion, row: JudgedRow) -> str:
    """Return the ceiling of a waiver that lets a failed row pass, whatever its limit comes from; empty where there can
    be none.
    """
    if row.value is None or row.limit is None or assertion.requirement.comparator is Comparator.NE or row.value < 0:
        return ""
    if not isinstance(assertion.requirement.limit, BaselineLimit):
        return format_looser_ceiling(assertion, row.value, row.labels)
    unit, is_upward = assertion.limit_target.unit, row.value > row.limit
    value, sign = Fraction(row.value), 1 if is_upward else -1
    room = Fraction(MARGIN_PERCENT, 100) * (1 if unit in SHARE_UNITS else value)
    whole = unit in (TIME, SIZE, COUNT)
    ceiling = value if unit == COUNT else _round_outward(value + sign * room, is_upward, whole=whole, digits=3)
    written_unit = next((name for name, size in _WRITTEN_TIMES.items() if ceiling >= size), "") if unit == TIME else ""
    if written_unit:
        return format_decimal(ceiling / _WRITTEN_TIMES[written_unit], 18) + written_unit
    return format_written_limit(ceiling, unit) if ceiling >= 0 else ""


def _find_unit_size(unit: str, target_unit: str) -> Fraction:
    """Return the size of one written unit in the judged unit."""
    amounts = Quantity(Fraction(1), unit, "").amounts
    return amounts.get(target_unit, next(iter(amounts.values())))


def _round_outward(value: Fraction, is_upward: bool, *, whole: bool, digits: int = DIGITS) -> Fraction:
    """Round a value to so many digits, up or down; to a whole number at the finest where ``whole``."""
    step, size = Fraction(1), abs(value)
    if not size:
        return value
    while size / step >= 10**digits:
        step *= 10
    while size / step < 10 ** (digits - 1) and not whole:
        step /= 10
    return -(-value // step) * step if is_upward else value // step * step
