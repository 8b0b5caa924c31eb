"""What does a quantity such as ``60%``, ``50us`` or ``3pp`` mean, and how does a gate file write one?

A metric's unit is ``ns``, ``%`` (a plain ratio that people read in percent), ``% of step`` (the same, of a time),
``count`` (whole numbers), ``1`` (a bare ratio, such as a balance), or ``hash`` (a fingerprint, which is the same or
not). What was measured outside of a trace may be of any unit of its own, too. Everything is exact: decimals become
fractions. :mod:`~pytest_nsys.core.numbers` has how a value is written for people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.core.errors import suggest_word
from pytest_nsys.core.model import Value
from pytest_nsys.core.text_format import sanitize_line

TIME = "ns"
RATIO = "%"
OF_STEP = "% of step"
SHARE_UNITS = (RATIO, OF_STEP)
"""Units of plain ratios that people read in percent."""

COUNT = "count"
BARE = "1"
HASH = "hash"
# Stands for the unit of what was measured outside of a trace, as long as nobody has looked.
ANY_UNIT = ""

NANOSECONDS: Mapping[str, int] = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Written units of time, in rising order."""

# Microseconds in either of Unicode's letters, the micro sign and the Greek mu, for ``us``.
MICROSECONDS = re.compile("[\u00b5\u03bc]s")

PERCENTAGE_POINTS = "pp"
BANDWIDTH, TOKEN_RATE, SAMPLE_RATE, MEGAHERTZ = RATE_UNITS = ("GB/s", "tokens/s", "samples/s", "MHz")

SIZE = "bytes"
BYTES: Mapping[str, int] = {
    SIZE: 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
"""Written units of size."""

# The unit of sizes that were measured in powers of 1 024: people who write 72GiB want to read it.
MEMORY_UNIT = "GiB"

COMPUTE_RATE = "TFLOP/s"
FLOPS: Mapping[str, Fraction] = {
    "GFLOP/s": Fraction(1, 1000),
    COMPUTE_RATE: Fraction(1),
    "PFLOP/s": Fraction(1000),
}
"""Written units of work per time."""

WRITTEN_UNITS = (*NANOSECONDS, RATIO, PERCENTAGE_POINTS, *RATE_UNITS, *BYTES, *FLOPS)

UNIT_PATTERN = r"(?:[^\W\d_]|°\w)\w*(?:/\w+)*"
"""The pattern of a unit that is none of these: ``W``, ``img/s``."""

# The same where nothing says that a measurement is meant: ``W`` and ``img/s``, but no ``usec``, which is a slip.
OWN_UNIT_PATTERN = r"(?:[A-Z°]\w*(?:/\w+)*|[a-z]\w*(?:/\w+)+)"

# 18 digits: what more would say is no measurement, and 64 bits hold them.
_QUANTITY = re.compile(r"(?P<number>[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(?P<unit>[^\s0-9._,].*)?")


def find_stored_unit(unit: str) -> str:
    """Return the unit of a value as it is stored and as programs get it: a share is a plain number, whose unit is
    ``1``.
    """
    return BARE if unit in SHARE_UNITS else unit


def to_plain_number(value: Value, unit: str) -> int | float:
    """Convert a value of a metric's unit for programs, in the unit that :func:`find_stored_unit` names.

    What is no share, nor another bare number, is an int where it is whole.
    """
    return value if isinstance(value, int) and find_stored_unit(unit) != BARE else float(value)


class UnitMistake(ValueError):
    """Reports a quantity that cannot be meant; the text is one clear line."""


class Quantity(NamedTuple):
    """Holds a number as written and the unit behind it, empty where there is none."""

    value: Fraction
    unit: str
    text: str

    @property
    def number(self) -> str:
        return format_decimal(self.value, 18)

    @property
    def amounts(self) -> dict[str, Fraction]:
        """The amount in the base of each unit of metrics that the quantity fits: a bare number and a size fit two."""
        if self.unit in NANOSECONDS:
            return {TIME: self.value * NANOSECONDS[self.unit]}
        if self.unit in BYTES:
            size = self.value * BYTES[self.unit]
            return {SIZE: size, MEMORY_UNIT: size / BYTES[MEMORY_UNIT]}
        if self.unit in FLOPS:
            return {COMPUTE_RATE: self.value * FLOPS[self.unit]}
        if self.unit in (PERCENTAGE_POINTS, RATIO):
            return {RATIO: self.value / 100}
        if self.unit:
            return {self.unit: self.value}
        return {BARE: self.value} | ({COUNT: self.value} if self.value.denominator == 1 else {})


def parse_quantity(text: str, *, allow_any_unit: bool = False) -> Quantity:
    """Parse a text into a quantity, without regard to what it is for. Raises UnitMistake where it is none.

    ``allow_any_unit``: in a unit of its own, too.
    """
    source = MICROSECONDS.sub("us", " ".join(text.split()))
    if source.startswith("-"):
        raise UnitMistake(f"a quantity is never negative: '{sanitize_line(source, 40)}'")
    match = _QUANTITY.fullmatch(source)
    if match is None:
        raise UnitMistake(f"'{sanitize_line(source, 40)}' is not a number: write it as in 60%, 1.5ms or 1000")
    unit = match["unit"] or ""
    if unit and unit not in WRITTEN_UNITS and not (allow_any_unit and re.fullmatch(UNIT_PATTERN, unit)):
        suggestion = suggest_word(unit, WRITTEN_UNITS) or f" (units are {', '.join(WRITTEN_UNITS)})"
        raise UnitMistake(f"unknown unit '{sanitize_line(unit, 40)}'{suggestion}")
    return Quantity(Fraction(match["number"]), unit, source)


def convert_to_limit(quantity: Quantity, metric_unit: str, metric_name: str) -> Fraction:
    """Convert a quantity into the base of a metric's unit. Raises UnitMistake, with the metric's name, where it does
    not fit.
    """
    if metric_unit == COUNT and not quantity.unit and quantity.value.denominator != 1:
        raise UnitMistake(f"{metric_name} is a count: write a whole number, not {quantity.text}")
    if metric_unit == OF_STEP and quantity.unit == RATIO:
        return quantity.value / 100
    if metric_unit == ANY_UNIT:
        return next(iter(quantity.amounts.values()))
    if metric_unit in quantity.amounts and quantity.unit != PERCENTAGE_POINTS:
        return quantity.amounts[metric_unit]
    raise UnitMistake(f"{metric_name} is {_describe_expected_unit(quantity, metric_unit)}, not {quantity.text}")


def convert_to_relative(quantity: Quantity) -> Fraction:
    """Convert a tolerance in percent into a plain fraction of its baseline. Raises UnitMistake for any other unit."""
    if quantity.unit != RATIO:
        raise UnitMistake(f"rel is a share of the baseline: write {quantity.number}%, not {quantity.text}")
    return quantity.value / 100


def list_absolute_amounts(quantity: Quantity) -> dict[str, Fraction]:
    """Return the amount of a tolerance by the units of the metrics that it fits: a bare number fits two.

    Raises UnitMistake for a share, which is no amount.
    """
    if quantity.unit == RATIO:
        raise UnitMistake(f"abs is an amount: write {quantity.number}pp for percentage points, not {quantity.text}")
    return quantity.amounts


def parse_absolute_tolerance(text: str) -> dict[str, Fraction]:
    """Parse the amount of a tolerance by the units that it fits; it may be in a unit of a measurement's own.

    Raises UnitMistake where the text is no such amount.
    """
    try:
        return list_absolute_amounts(parse_quantity(text))
    except UnitMistake:
        quantity = parse_quantity(text, allow_any_unit=True)
        lower_case_units = {unit.lower() for unit in WRITTEN_UNITS}
        if re.fullmatch(OWN_UNIT_PATTERN, quantity.unit) and quantity.unit.lower() not in lower_case_units:
            return list_absolute_amounts(quantity)
        raise


def convert_to_absolute(quantity: Quantity, metric_unit: str, metric_name: str) -> Fraction:
    """Convert the tolerance on one metric into the base of its unit. Raises UnitMistake where it does not fit."""
    amounts = list_absolute_amounts(quantity)
    if metric_unit in amounts:
        return amounts[metric_unit]
    if metric_unit == RATIO:
        number = quantity.number
        raise UnitMistake(f"{metric_name} is a ratio: write {number}pp or {number}%, not {quantity.text}")
    raise UnitMistake(f"{metric_name} is {_describe_expected_unit(quantity, metric_unit)}, not {quantity.text}")


def _describe_expected_unit(quantity: Quantity, metric_unit: str) -> str:
    """Describe the unit that a metric takes, and how the quantity would be written in it."""
    number = quantity.number
    if metric_unit == TIME:
        share = f", or {number}{OF_STEP}" if quantity.unit == RATIO else ""
        return f"a time: write it in ns, us, ms or s{share}"
    if metric_unit == RATIO:
        percent = quantity.value * 100 if not quantity.unit and quantity.value <= 1 else quantity.value
        return f"a ratio: write {format_decimal(percent, 18)}%"
    if metric_unit == OF_STEP:
        return "a share of the step: write 10% of step"
    if metric_unit == COUNT:
        whole = quantity.value.denominator == 1
        return f"a count: write {number}" if whole else "a count: write a whole number"
    if metric_unit == HASH:
        return "a fingerprint: it is the same as in the baseline, or not"
    if metric_unit == BARE:
        plain_number = format_decimal(quantity.value / 100, 18) if quantity.unit == RATIO else number
        return f"a number without unit: write {plain_number}"
    if metric_unit in (SIZE, MEMORY_UNIT):
        return f"a size: write it in {', '.join(BYTES)}"
    return f"in {metric_unit}: write {number}{metric_unit}"


def format_tolerance(relative: Fraction, absolute: Fraction | None, unit: str, *, noise: bool = False) -> str:
    """Format a tolerance as a gate file writes it: ``max(5%, 50us)``, ``3pp``, ``noise``."""
    if noise:
        return "noise"
    parts = [format_decimal(relative * 100, 18) + "%"] if relative or absolute is None else []
    if absolute is not None:
        points = format_decimal(absolute * 100, 18) + PERCENTAGE_POINTS
        plain = format_decimal(absolute, 18) + (unit if unit not in (COUNT, BARE) else "")
        parts.append(points if unit == RATIO else _format_written_time(absolute) if unit == TIME else plain)
    return parts[0] if len(parts) == 1 else f"max({', '.join(parts)})"


def format_written_limit(value: Fraction, unit: str) -> str:
    """Format a limit as a gate file writes it: ``0ns``, ``100%``, ``1``."""
    if unit in SHARE_UNITS:
        return format_decimal(value * 100, 18) + unit
    return format_decimal(value, 18) + (unit if unit not in (COUNT, BARE) else "")


def format_exact_limit(value: Value, unit: str) -> str:
    """Format a limit as :func:`format_written_limit` does where that is the value itself.

    Empty for one with more decimals, or below 0, which no limit is.
    """
    scaled_value = Fraction(value) * (100 if unit in SHARE_UNITS else 1) * 10**18
    return format_written_limit(Fraction(value), unit) if scaled_value >= 0 and scaled_value.denominator == 1 else ""


def _format_written_time(time_ns: Fraction) -> str:
    """Format a time in the largest unit that it fills: ``50us``, ``1.5ms``."""
    unit = next((unit for unit, scale in reversed([*NANOSECONDS.items()]) if time_ns >= scale), "ns")
    return format_decimal(time_ns / NANOSECONDS[unit], 18) + unit


def format_decimal(value: Value, digits: int) -> str:
    """Format a value with up to ``digits`` decimals, rounded half to even, trailing zeros cut."""
    scaled_value = round(Fraction(value) * 10**digits)
    whole, rest = divmod(abs(scaled_value), 10**digits)
    decimals = str(rest).rjust(digits, "0").rstrip("0") if digits else ""
    sign = "-" if scaled_value < 0 else ""
    return f"{sign}{whole}.{decimals}" if decimals else f"{sign}{whole}"
