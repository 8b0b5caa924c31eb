"""Quantities: exact when read, readable when printed."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.core.units import (
    UnitMistake,
    absolute_amount,
    absolute_amounts,
    format_apart,
    format_tolerance,
    format_value,
    in_unit,
    limit_value,
    parse_quantity,
    relative_amount,
    table_unit,
    three_digits,
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
    assert limit_value(parse_quantity(text), unit, "m") == value


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
        ("5%", "ns", "overlap is a time: write it in ns, us, ms or s, not 5%"),
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
        limit_value(parse_quantity(text), unit, "overlap")
    assert str(caught.value) == what


def test_amounts_of_a_tolerance() -> None:
    assert relative_amount(parse_quantity("5%")) == Fraction(1, 20)
    assert absolute_amounts(parse_quantity("50us")) == {"ns": 50_000}
    assert absolute_amounts(parse_quantity("3pp")) == {"%": Fraction(3, 100)}
    assert absolute_amounts(parse_quantity("2")) == {"1": 2, "count": 2}
    assert absolute_amounts(parse_quantity("2MiB")) == {"bytes": 2_097_152, "GiB": Fraction(1, 512)}
    assert absolute_amounts(parse_quantity("2GB/s")) == {"GB/s": 2}
    assert absolute_amounts(parse_quantity("0.5")) == {"1": Fraction(1, 2)}
    assert absolute_amount(parse_quantity("3pp"), "%", "overlap") == Fraction(3, 100)


@pytest.mark.parametrize(
    ("text", "what"),
    [("5", "rel is a share of the baseline: write 5%, not 5"), ("2ms", "rel is a share of the baseline")],
)
def test_rel_needs_percent(text: str, what: str) -> None:
    with pytest.raises(UnitMistake, match=what):
        relative_amount(parse_quantity(text))


def test_abs_refuses_percent_and_other_units() -> None:
    with pytest.raises(UnitMistake, match="write 3pp for percentage points, not 3%"):
        absolute_amounts(parse_quantity("3%"))
    with pytest.raises(UnitMistake, match="overlap is a ratio: write 3pp or 3%, not 3ms"):
        absolute_amount(parse_quantity("3ms"), "%", "overlap")
    with pytest.raises(UnitMistake, match=r"launches is a count: write a whole number, not 0\.5"):
        absolute_amount(parse_quantity("0.5"), "count", "launches")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "ns", "0 ns"),
        (9_999, "ns", "9 999 ns"),
        (10_000, "ns", "10 us"),
        (410_300, "ns", "410.3 us"),
        (2_710_000, "ns", "2 710 us"),
        (1_341_900, "ns", "1 342 us"),
        (44_660_123, "ns", "44.66 ms"),
        (31_200_000, "ns", "31.2 ms"),
        (12_000_000_000, "ns", "12 s"),
        (12_345_000_000_000, "ns", "12 345 s"),
        (-2_710_000, "ns", "-2 710 us"),
        (Fraction(1, 3), "ns", "0.333 ns"),
        (Fraction(88, 100), "%", "88.0%"),
        (Fraction(1), "%", "100.0%"),
        (Fraction(2, 3), "%", "66.67%"),
        (12, "count", "12"),
        (10_000, "count", "10000"),
        (Fraction(25, 2), "count", "12.5"),
        (Fraction(11, 10), "1", "1.1"),
        (Fraction(10, 9), "1", "1.111"),
        (3, "GB/s", "3 GB/s"),
        (Fraction(3961, 2), "MHz", "1 980.5 MHz"),
        (Fraction(25_000, 2), "tokens/s", "12 500 tokens/s"),
        (Fraction(4, 3), "GB/s", "1.333 GB/s"),
        (255, "hash", "ff"),
        (0, "bytes", "0 bytes"),
        (9_999, "bytes", "9 999 bytes"),
        (10_000, "bytes", "10 kB"),
        (12_345_678, "bytes", "12.35 MB"),
        (9_999_999, "bytes", "10 000 kB"),
        (-12_345_678, "bytes", "-12.35 MB"),
        (12_346_000_000, "bytes", "12.35 GB"),
        (10_000_000_000, "bytes", "10 GB"),
        (12_345_000_000_000, "bytes", "12 345 GB"),
    ],
)
def test_values_for_people(value: int | Fraction, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


@given(st.integers(1, 10**9).flatmap(lambda d: st.tuples(st.integers(0, d), st.just(d))))
def test_ratios_print_as_the_reference_does(pair: tuple[int, int]) -> None:
    ratio = Fraction(*pair)
    if (ratio * 100_000) % 10 == 5:  # exactly between two: the float decides by chance
        return
    assert format_value(ratio, "%") == f"{round(100 * float(ratio), 2)}%"


@pytest.mark.parametrize(
    ("a", "b", "unit", "texts"),
    [
        (Fraction(59996, 100_000), Fraction(60, 100), "%", ("59.996%", "60.0%")),
        (Fraction(1, 3), Fraction(1, 3), "%", ("33.33%", "33.33%")),
        (1_341_900_001, 1_341_900_000, "ns", ("1 341 900 001 ns", "1 341 900 000 ns")),
        (2_710_000, 1_342_000, "ns", ("2 710 us", "1 342 us")),
        (1_342_000, Fraction(1_342_000 * 3 + 1, 3), "ns", ("1 342 us", "1 342.0003 us")),
        (Fraction(1), 1 - Fraction(1, 10**12), "%", ("1", "999999999999/1000000000000")),
        (3, 4, "count", ("3", "4")),
        (Fraction(33_333, 10**5), Fraction(33_334, 10**5), "tokens/s", ("0.33333 tokens/s", "0.33334 tokens/s")),
        (12_345_678, 12_345_679, "bytes", ("12.345678 MB", "12.345679 MB")),
    ],
)
def test_two_values_print_apart(a: int | Fraction, b: int | Fraction, unit: str, texts: tuple[str, str]) -> None:
    assert format_apart(a, b, unit) == texts


@given(st.fractions(0, 1), st.fractions(0, 1), st.sampled_from(["ns", "%", "count", "1"]))
def test_different_values_never_print_alike(a: Fraction, b: Fraction, unit: str) -> None:
    texts = format_apart(a, b, unit)
    assert (texts[0] == texts[1]) == (a == b)


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
def test_tolerances_print_as_they_are_written(
    relative: Fraction, absolute: Fraction | None, unit: str, text: str
) -> None:
    assert format_tolerance(relative, absolute, unit) == text


def test_two_values_that_no_digit_tells_apart_are_written_exactly() -> None:
    close = Fraction(10**30 + 1, 10**30)
    assert format_apart(5 * close, 5, "ns") == (f"{5 * close} ns", "5 ns")
    assert format_apart(close, 1, "ratio")[0] != format_apart(close, 1, "ratio")[1]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (299_848_812 / Fraction(1_000_000), "300"),
        (Fraction(10), "10.0"),
        (Fraction(9_996, 1_000), "10.0"),
        (Fraction(1_023, 1_000), "1.02"),
        (Fraction(99_95, 100), "100"),
        (Fraction(1, 2), "0.500"),
        (Fraction(-123, 10_000), "-0.012"),
        (Fraction(4, 10_000), "<0.001"),
        (4_191, "4191"),
    ],
)
def test_three_digits(value: int | Fraction, said: str) -> None:
    assert three_digits(value) == said


@given(st.fractions(min_value=0, max_value=10**9))
def test_three_digits_are_near_and_never_grow_a_fourth(value: Fraction) -> None:
    said = three_digits(value)
    if said.startswith("<"):
        assert 0 < value < Fraction(1, 1000)
    else:
        assert abs(Fraction(said) - value) <= max(Fraction(1, 2000), value / 100)
        assert len(said.replace(".", "").lstrip("0")) <= max(3, len(str(round(value))))


def test_a_table_has_the_unit_of_its_greatest_time() -> None:
    assert [table_unit(times) for times in ([], [0, 5], [999], [1_000, 2], [999_999], [10**6], [10**10])] == [
        *("ns", "ns", "ns", "us", "us", "ms", "s")
    ]
    assert in_unit(1_023_400, "ms") == "1.02"
