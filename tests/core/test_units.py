"""Quantities: exact when read."""

import re
from fractions import Fraction

import pytest

from pytest_nsys.core.units import (
    UnitMistake,
    convert_to_absolute,
    convert_to_limit,
    convert_to_relative,
    format_tolerance,
    list_absolute_amounts,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("60%", 60, "%"),
        ("60 %", 60, "%"),
        ("3pp", 3, "pp"),
        ("2ms", 2, "ms"),
        ("50us", 50, "us"),
        ("1.5 s", Fraction(3, 2), "s"),
        (" 100  ns ", 100, "ns"),
        ("010", 10, ""),
        ("0.1", Fraction(1, 10), ""),
        ("12 GB/s", 12, "GB/s"),
        ("9tokens/s", 9, "tokens/s"),
        ("1500MHz", 1500, "MHz"),
    ],
)
def test_quantities_are_exact(text: str, value: Fraction, unit: str) -> None:
    quantity = parse_quantity(text)
    assert (quantity.value, quantity.unit) == (value, unit)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1_000", "'1_000' is not a number: write it as in 60%, 1.5ms or 1000"),
        (".5", "'.5' is not a number"),
        ("1.5.2", "'1.5.2' is not a number"),
        ("nan", "'nan' is not a number"),
        ("inf", "'inf' is not a number"),
        ("", "'' is not a number"),
        ("1" * 19, "is not a number"),
        ("６0%", "is not a number"),
        ("-5ms", "a quantity is never negative: '-5ms'"),
        ("2msec", "unknown unit 'msec' (did you mean 'ms'?)"),
        ("2e3", "unknown unit 'e3'"),
        (
            "3 furlongs",
            "unknown unit 'furlongs' (units are ns, us, ms, s, %, pp, GB/s, tokens/s, samples/s, MHz, bytes",
        ),
    ],
)
def test_what_is_no_quantity_says_so(text: str, what: str) -> None:
    with pytest.raises(UnitMistake, match=re.escape(what)):
        parse_quantity(text)


SIZES = {
    "bytes": 1,
    "kB": 1_000,
    "MB": 1_000_000,
    "GB": 1_000_000_000,
    "KiB": 1_024,
    "MiB": 1_048_576,
    "GiB": 1_073_741_824,
}


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("60%", "%", Fraction(3, 5)),
        ("59.996%", "%", Fraction(14999, 25000)),
        ("1.5us", "ns", 1500),
        ("0.5ns", "ns", Fraction(1, 2)),
        ("2s", "ns", 2_000_000_000),
        ("3", "count", 3),
        ("1.1", "1", Fraction(11, 10)),
        ("3GB/s", "GB/s", 3),
        ("100%", "%", 1),
        ("2ms", "ns", 2_000_000),
        *((f"3{unit}", "bytes", 3 * size) for unit, size in SIZES.items()),
    ],
)
def test_limits_are_in_the_base_of_the_metric(text: str, unit: str, value: Fraction) -> None:
    assert convert_to_limit(parse_quantity(text), unit, "m") == value


@pytest.mark.parametrize(
    ("text", "unit", "what"),
    [
        ("60", "%", "overlap is a ratio: write 60%, not 60"),
        ("0.6", "%", "overlap is a ratio: write 60%, not 0.6"),
        ("60pp", "%", "overlap is a ratio: write 60%, not 60pp"),
        ("1", "%", "overlap is a ratio: write 100%, not 1"),
        ("2", "%", "overlap is a ratio: write 2%, not 2"),
        ("2.5ms", "count", "overlap is a count: write a whole number, not 2.5ms"),
        ("5", "hash", "overlap is a fingerprint: it is the same as in the baseline, or not, not 5"),
        ("3ms", "1", "overlap is a number without unit: write 3, not 3ms"),
        ("5", "bytes", "overlap is a size: write it in bytes, kB, MB, GB, TB, KiB, MiB, GiB, TiB, not 5"),
        ("3MiB", "ns", "overlap is a time: write it in ns, us, ms or s, not 3MiB"),
        ("5%", "ns", "overlap is a time: write it in ns, us, ms or s, or 5% of step, not 5%"),
        ("5ms", "% of step", "overlap is a share of the step: write 10% of step, not 5ms"),
        ("5", "ns", "overlap is a time: write it in ns, us, ms or s, not 5"),
        ("3ms", "count", "overlap is a count: write 3, not 3ms"),
        ("2.5", "count", "overlap is a count: write a whole number, not 2.5"),
        ("3%", "1", "overlap is a number without unit: write 0.03, not 3%"),
        ("3", "GB/s", "overlap is in GB/s: write 3GB/s, not 3"),
        ("3GB/s", "ns", "overlap is a time: write it in ns, us, ms or s, not 3GB/s"),
    ],
)
def test_a_limit_of_another_unit_says_how_to_write_it(text: str, unit: str, what: str) -> None:
    with pytest.raises(UnitMistake) as caught:
        convert_to_limit(parse_quantity(text), unit, "overlap")
    assert str(caught.value) == what


def test_amounts_of_a_tolerance() -> None:
    assert convert_to_relative(parse_quantity("5%")) == Fraction(1, 20)
    assert list_absolute_amounts(parse_quantity("50us")) == {"ns": 50_000}
    assert list_absolute_amounts(parse_quantity("3pp")) == {"%": Fraction(3, 100)}
    assert list_absolute_amounts(parse_quantity("2")) == {"1": 2, "count": 2}
    assert list_absolute_amounts(parse_quantity("2MiB")) == {"bytes": 2_097_152, "GiB": Fraction(1, 512)}
    assert list_absolute_amounts(parse_quantity("2GB/s")) == {"GB/s": 2}
    assert list_absolute_amounts(parse_quantity("0.5")) == {"1": Fraction(1, 2)}
    assert convert_to_absolute(parse_quantity("3pp"), "%", "overlap") == Fraction(3, 100)


@pytest.mark.parametrize(
    ("text", "what"),
    [("5", "rel is a share of the baseline: write 5%, not 5"), ("2ms", "rel is a share of the baseline")],
)
def test_rel_needs_percent(text: str, what: str) -> None:
    with pytest.raises(UnitMistake, match=what):
        convert_to_relative(parse_quantity(text))


def test_abs_refuses_percent_and_other_units() -> None:
    with pytest.raises(UnitMistake, match="write 3pp for percentage points, not 3%"):
        list_absolute_amounts(parse_quantity("3%"))
    with pytest.raises(UnitMistake, match="overlap is a ratio: write 3pp or 3%, not 3ms"):
        convert_to_absolute(parse_quantity("3ms"), "%", "overlap")
    with pytest.raises(UnitMistake, match=r"launches is a count: write a whole number, not 0\.5"):
        convert_to_absolute(parse_quantity("0.5"), "count", "launches")


@pytest.mark.parametrize(
    ("relative", "absolute", "unit", "text"),
    [
        (Fraction(1, 20), Fraction(50_000), "ns", "max(5%, 50us)"),
        (Fraction(1, 20), None, "ns", "5%"),
        (Fraction(0), Fraction(3, 100), "%", "3pp"),
        (Fraction(1, 40), Fraction(2), "count", "max(2.5%, 2)"),
        (Fraction(0), Fraction(1, 10), "1", "0.1"),
        (Fraction(0), None, "1", "0%"),
        (Fraction(0), Fraction(1_000), "ns", "1us"),
        (Fraction(0), Fraction(1_500_000), "ns", "1.5ms"),
        (Fraction(0), Fraction(999), "ns", "999ns"),
        (Fraction(0), Fraction(1, 2), "ns", "0.5ns"),
        (Fraction(0), Fraction(2), "GB/s", "2GB/s"),
        (Fraction(0), Fraction(15), "MHz", "15MHz"),
        (Fraction(0), Fraction(2), "bytes", "2bytes"),
    ],
)
def test_tolerances_print_as_written(relative: Fraction, absolute: Fraction | None, unit: str, text: str) -> None:
    assert format_tolerance(relative, absolute, unit) == text
