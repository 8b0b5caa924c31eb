"""Numbers for people: three significant digits, one unit for what stands together, never two values as one."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.core.numbers import (
    Scale,
    choose_scale,
    format_change,
    format_distance,
    format_distinctly,
    format_in_one_unit,
    format_percent_of,
    format_signed,
    format_value,
)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "ns", "0 ns"),
        (999, "ns", "999 ns"),
        (1_000, "ns", "1 us"),
        (9_999, "ns", "10 us"),
        (410_300, "ns", "410 us"),
        (999_499, "ns", "999 us"),
        (999_500, "ns", "1 ms"),
        (2_710_000, "ns", "2.71 ms"),
        (44_660_123, "ns", "44.7 ms"),
        (31_200_000, "ns", "31.2 ms"),
        (12_345_000_000_000, "ns", "12345 s"),
        (-2_710_000, "ns", "\u22122.71 ms"),
        (Fraction(1, 3), "ns", "0.333 ns"),
        (Fraction(1, 300), "ns", "0.00333 ns"),
        (Fraction(88, 100), "%", "88%"),
        (Fraction(347, 1000), "%", "34.7%"),
        (Fraction(2, 3), "%", "66.7%"),
        (Fraction(1, 3000), "%", "0.0333%"),
        (0, "%", "0%"),
        (1, "%", "100%"),
        (Fraction(99_996, 100_000), "%", "99.996%"),
        (Fraction(100_004, 100_000), "%", "100.004%"),
        (12, "count", "12"),
        (10_000, "count", "10000"),
        (Fraction(25, 2), "count", "12.5"),
        (Fraction(10, 9), "1", "1.11"),
        (3, "GB/s", "3 GB/s"),
        (Fraction(25_000, 2), "tokens/s", "12500 tokens/s"),
        (Fraction(4, 3), "GB/s", "1.33 GB/s"),
        (255, "hash", "ff"),
        (0, "bytes", "0 bytes"),
        (9_999_999, "bytes", "10 MB"),
        (-12_345_678, "bytes", "\u221212.3 MB"),
        (12_345_000_000_000, "bytes", "12345 GB"),
    ],
)
def test_values_for_people(value: int | Fraction, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


def test_what_stands_together_has_the_unit_of_the_largest() -> None:
    assert format_in_one_unit([26_800_000, 3_694_000, 342_000, 0]) == ["26.8 ms", "3.69 ms", "0.342 ms", "0 ms"]
    assert choose_scale([None, 1_500, -26_800_000], "ns") == Scale("ms", Fraction(1_000_000))
    assert choose_scale([], "ns") == Scale("ns", Fraction(1))


@pytest.mark.parametrize(
    ("a", "b", "unit", "texts"),
    [
        (Fraction(59996, 100_000), Fraction(60, 100), "%", ("59.996%", "60%")),
        (Fraction(1, 3), Fraction(1, 3), "%", ("33.3%", "33.3%")),
        (1_341_900_001, 1_341_900_000, "ns", ("1341900001 ns", "1341900000 ns")),
        (2_710_000, 342_000, "ns", ("2.71 ms", "0.342 ms")),
        (1_342_000, 1_341_900, "ns", ("1.342 ms", "1.3419 ms")),
        (1 - Fraction(1, 10**30), Fraction(1), "%", (str(1 - Fraction(1, 10**30)), "1")),
        (3, 4, "count", ("3", "4")),
        (12_345_678, 12_345_679, "bytes", ("12.345678 MB", "12.345679 MB")),
    ],
)
def test_two_values_print_apart(a: int | Fraction, b: int | Fraction, unit: str, texts: tuple[str, str]) -> None:
    assert format_distinctly(a, b, unit) == texts


@given(st.fractions(0, 1), st.fractions(0, 1), st.sampled_from(["ns", "%", "count", "1"]))
def test_different_values_never_print_alike(a: Fraction, b: Fraction, unit: str) -> None:
    texts = format_distinctly(a, b, unit)
    assert (texts[0] == texts[1]) == (a == b)


@given(st.fractions(Fraction(1, 10**9), 10**9), st.integers(1, 6))
def test_a_number_is_off_by_less_than_half_of_its_last_digit(value: Fraction, digits: int) -> None:
    text = format_value(value, "1", digits)
    assert abs(Fraction(text) - value) <= max(value, 1) / 10 ** (digits - 1) / 2
    assert len(text.partition(".")[0].lstrip("0")) >= len(str(int(value)).lstrip("0"))


@pytest.mark.parametrize(
    ("value", "baseline", "unit", "text"),
    [
        (None, 3, "ns", "gone"),
        (3, None, "ns", "new"),
        (3, 3, "hash", "none"),
        (3, 4, "hash", "differs"),
        (Fraction(347, 1000), Fraction(6, 10), "%", "\u221225.3 pp"),
        (3, 0, "ns", "+3 ns"),
        (0, 0, "ns", "0 ns"),
        (Fraction(6, 10), Fraction(6, 10), "%", "0 pp"),
        (3_694, 909, "ns", "+306%"),
        (941, 1_000, "ns", "\u22125.9%"),
        (195_000, 1_000, "ns", "× 195"),
        (9_990, 1_000, "ns", "+899%"),
        (100, 100, "ns", "0%"),
    ],
)
def test_changes(value: int | Fraction | None, baseline: int | Fraction | None, unit: str, text: str) -> None:
    assert format_change(value, baseline, unit) == text


def test_differences_have_a_sign_and_ratios_are_points_apart() -> None:
    assert format_signed(2_784_000) == "+2.78 ms"
    assert format_signed(-740_400) == "\u2212740 us"
    assert format_signed(Fraction(-3, 100), "%") == "\u22123 pp"
    assert format_distance(Fraction(1, 4), "%") == "25 pp"
    assert format_percent_of(1, 3) == "33.3%"
