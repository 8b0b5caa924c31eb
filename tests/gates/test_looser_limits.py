"""Does the limit that a person is told to write hold the value, off by what was asked, in words that are understood?"""

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_nsys.gates.gate_file import parse_gate_file
from pytest_nsys.gates.looser_limits import format_looser_ceiling, format_looser_limit, format_looser_sentence
from pytest_nsys.gates.model import Assertion, Constant, ConstantByModel

FILE = Path("gate.nsys.yaml")


def assertions(text: str) -> tuple[Assertion, ...]:
    return parse_gate_file(text, path=FILE).assertions


def assertion(sentence: str) -> Assertion:
    (found,) = assertions(f"version: 1\nassertions:\n  - {sentence}\n")
    return found


LOOSER = {
    "all_gather overlap >= 75%": ("0.426", "41%"),
    "overlap > 75%": ("0.426", "41%"),
    "overlap at least 75 %": ("0.0987", "8.8 %"),
    "exposed_ns <= 596us": ("2250000", "2300us"),
    "exposed_ns below 0.6ms": ("2250000", "2.3ms"),
    "exposed_ns <= 0s": ("2250000", "0.0023s"),
    "exposed_ns <= 100ns": ("101", "110ns"),
    "exposed_ns <= 0ns": ("1", "2ns"),
    "wall_exposed <= 5% of step": ("0.0734", "8.4% of step"),
    "wall_exposed at most 5 % of the step": ("0.5", "51 % of the step"),
    "comm_streams <= 2": ("3", "4"),
    "launches < 100": ("152", "160"),
    "balance of compute_ns across pp <= 1.2": ("1.351", "1.4"),
    "exposed_ns <= 99ms": ("99500000", "110ms"),
}


@pytest.mark.parametrize("sentence", LOOSER)
def test_two_digits_on_the_worse_side_in_the_unit_as_written(sentence: str) -> None:
    value, text = LOOSER[sentence]
    head = "version: 1\nconvention: pithtrain\n"
    (one,) = assertions(f"{head}assertions:\n  - {sentence}\n")
    assert format_looser_limit(one, Fraction(value)) == text


NONE = {
    "overlap >= 75%": "0.0099",
    "exposed_ns > 1ns": "0",
    "overlap >= 76%": "0.01",
    "no syncs": "3",
    "comm_streams != 3": "3",
    "exposed_ns below baseline plus 5%": "3",
    "kernel_share <= 97%": "0.995",
}


@pytest.mark.parametrize("sentence", NONE)
def test_a_limit_that_could_not_fail_is_not_offered(sentence: str) -> None:
    one = assertion(sentence)
    assert (
        format_looser_limit(one, Fraction(NONE[sentence]))
        == format_looser_sentence(one, Fraction(NONE[sentence]))
        == ""
    )


WRITTEN = {
    "stage75  overlap >= 75%": ("0.426", "stage75 overlap >= 41%"),
    "rank 3 wall_exposed at most 5 % of the step": ("0.5", "rank 3 wall_exposed at most 51 % of the step"),
    "comm_streams == 2": ("3", "comm_streams == 3"),
    "{id: a, assert: overlap >= 75%, warn: '>= 80%'}": ("0.426", "overlap >= 41%"),
    "{assert: overlap >= 75%, for: {stage: [a]}}": ("0.426", ">= 41%"),
}


@pytest.mark.parametrize("entry", WRITTEN)
def test_the_sentence_to_write(entry: str) -> None:
    value, sentence = WRITTEN[entry]
    assert format_looser_sentence(assertion(entry), Fraction(value)) == sentence


BY_MODEL = {
    "exposed_ns <= 596us on H100, 3ms on H100 80GB": {
        "NVIDIA H100 PCIe": ("2250000", "exposed_ns <= 2300us on H100, 3ms on H100 80GB", "2300us"),
        "NVIDIA H100 80GB HBM3": ("4250000", "exposed_ns <= 596us on H100, 4.3ms on H100 80GB", "4.3ms"),
    },
    "comm_streams == 2 on H100, 2 on A100": {
        "NVIDIA A100-SXM4-80GB": ("3", "comm_streams == 2 on H100, 3 on A100", "3")
    },
}


@pytest.mark.parametrize("sentence", BY_MODEL)
def test_of_constants_by_gpu_model_the_one_of_the_row_is_written(sentence: str) -> None:
    one = assertion(f'"{sentence}"')
    limit = one.requirement.limit
    assert isinstance(limit, ConstantByModel)
    for gpu, (value, written, ceiling) in BY_MODEL[sentence].items():
        judged = replace(one, requirement=replace(one.requirement, limit=replace(limit, stated_gpu=gpu)))
        assert format_looser_sentence(judged, Fraction(value), {"rank": 0}) == written
        assert assertion(f'"{written}"').sentence == written
        assert format_looser_ceiling(judged, Fraction(value), {"rank": 0}) == ceiling


CEILINGS = {
    "overlap >= 75%": ("0.0099", "0%"),
    "no syncs": ("3", "3"),
    "comm_streams == 2": ("3", "3"),
    "comm_streams != 3": ("3", ""),
    "exposed_ns <= 596us": ("2250000", "2300us"),
    "no pageable_copies": ("7", "7"),
}


@pytest.mark.parametrize("sentence", CEILINGS)
def test_the_ceiling_of_a_waiver_can_be_written_and_lets_the_value_pass(sentence: str) -> None:
    value, ceiling = CEILINGS[sentence]
    one = assertion(sentence)
    assert format_looser_ceiling(one, Fraction(value)) == ceiling
    if ceiling:
        waiver = f'{{assertion: "{sentence}", ceiling: {ceiling}, expires: 2999-12-31, reason: known}}'
        (waived,) = assertions(f"version: 1\nassertions: [{sentence}]\nwaivers:\n  - {waiver}\n")
        assert len(waived.waivers) == 1


SENTENCES = ["overlap {0} {1}%", "exposed_ns {0} {1}ns", "exposed_ns {0} {1} us", "exposed_ns {0} {1}ms"]
SENTENCES += [
    "exposed_ns {0} {1}s",
    "launches {0} {1}",
    "wall_exposed {0} {1}% of step",
    "collective_wait_ns {0} {1}ms",
]
WORDS = ["<", "<=", ">", ">=", "below", "above", "at least", "at most"]


@settings(deadline=None)
@given(
    sentence=st.sampled_from(SENTENCES),
    word=st.sampled_from(WORDS),
    limit=st.integers(1, 99),
    value=st.fractions(0, 10**12, max_denominator=10**6),
)
def test_a_looser_limit_holds_the_value_by_the_request(sentence: str, word: str, limit: int, value: Fraction) -> None:
    one = assertion(sentence.format(word, limit))
    if one.limit_target.unit in ("%", "% of step"):
        value = value % 1
    elif one.limit_target.unit == "count":
        value = Fraction(int(value))
    comparator, constant = one.requirement.comparator, one.requirement.limit
    assert comparator is not None
    assert isinstance(constant, Constant)
    if comparator.is_satisfied(value, constant.value):
        return
    written = format_looser_sentence(one, value)
    if not written:
        # A margin of one point, and the next whole percent: a limit of all or nothing cannot fail.
        least = Fraction(2, 100) if "%" in one.limit_target.unit else Fraction(2)
        assert value < least or 0 <= 1 - value < least
        return
    after = assertion(written)
    assert isinstance(after.requirement.limit, Constant)
    assert comparator.is_satisfied(value, after.requirement.limit.value)
    off = abs(after.requirement.limit.value - value)
    assert off >= (Fraction(1, 100) if "%" in one.limit_target.unit else value / 100)
    (number,) = re.findall(r"[0-9.]+", format_looser_limit(one, value))
    assert len(number.replace(".", "").strip("0")) <= 2
