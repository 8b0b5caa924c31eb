"""Does a limit that is moved hold the value, off by what was asked, and is nothing else of the file another one?"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_nsys.gates.gate_file import loads_gate_file
from pytest_nsys.gates.model import Assertion, Constant
from pytest_nsys.gates.moved_limits import LimitEdit, LimitStays, ceiling_beyond, moved_limit, with_limits

FILE = Path("gate.nsys.yaml")


def assertions(text: str) -> tuple[Assertion, ...]:
    return loads_gate_file(text, path=FILE).assertions


def assertion(sentence: str) -> Assertion:
    (found,) = assertions(f"version: 1\nassertions:\n  - {sentence}\n")
    return found


MOVED = {
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


@pytest.mark.parametrize("sentence", MOVED)
def test_two_digits_on_the_worse_side_in_the_unit_as_written(sentence: str) -> None:
    value, text = MOVED[sentence]
    head = "version: 1\nconvention: pithtrain\n"
    (one,) = assertions(f"{head}assertions:\n  - {sentence}\n")
    assert moved_limit(one, Fraction(value)).text == text


STAY = {
    "overlap >= 75%": ("0.0099", "no lower limit says anything"),
    "exposed_ns > 1ns": ("0", "no lower limit says anything"),
    "overlap >= 76%": ("0.01", ">= 0% cannot fail: overlap is never below 0%"),
    "no syncs": ("3", "it is exact"),
    "comm_streams == 2": ("3", "it is exact"),
    "exposed_ns below baseline plus 5%": ("3", "it is exact"),
    "kernel_share <= 97%": ("0.995", "cannot fail"),
}


@pytest.mark.parametrize("sentence", STAY)
def test_a_limit_that_could_not_fail_stays(sentence: str) -> None:
    value, why = STAY[sentence]
    with pytest.raises(LimitStays, match=why):
        moved_limit(assertion(sentence), Fraction(value))


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
    assert ceiling_beyond(one, Fraction(value)) == ceiling
    if ceiling:
        waiver = f'{{assertion: "{sentence}", ceiling: {ceiling}, expires: 2999-12-31, reason: known}}'
        (waived,) = assertions(f"version: 1\nassertions: [{sentence}]\nwaivers:\n  - {waiver}\n")
        assert len(waived.waivers) == 1


SENTENCES = ["overlap {0} {1}%", "exposed_ns {0} {1}ns", "exposed_ns {0} {1} us", "exposed_ns {0} {1}ms"]
SENTENCES += ["exposed_ns {0} {1}s", "launches {0} {1}", "wall_exposed {0} {1}% of step", "straggler_lag_ns {0} {1}ms"]
WORDS = ["<", "<=", ">", ">=", "below", "above", "at least", "at most"]


@settings(deadline=None)
@given(
    sentence=st.sampled_from(SENTENCES),
    word=st.sampled_from(WORDS),
    limit=st.integers(1, 99),
    value=st.fractions(0, 10**12, max_denominator=10**6),
    style=st.sampled_from(["- {0}", '- "{0}"', "- {{assert: '{0}'}}", "- >-\n    {0}\n  # end", "- |\n    {0}"]),
)
def test_every_moved_limit_holds_the_value_and_is_off_by_what_was_asked(
    sentence: str, word: str, limit: int, value: Fraction, style: str
) -> None:
    text = f"version: 1\nassertions:\n  {style.format(sentence.format(word, limit))} # {limit}\n".replace(
        f"|\n    {sentence.format(word, limit)} # {limit}", f"|\n    {sentence.format(word, limit)}"
    ).replace(f"  # end # {limit}", "  # end")
    (one,) = assertions(text)
    if one.judged.unit in ("%", "% of step"):
        value = value % 1
    elif one.judged.unit == "count":
        value = Fraction(int(value))
    comparator, constant = one.require.comparator, one.require.limit
    assert comparator is not None
    assert isinstance(constant, Constant)
    if comparator.holds(value, constant.value):
        return
    try:
        moved = moved_limit(one, value)
    except LimitStays:
        # A margin of one point, and the next whole percent: a limit of all or nothing cannot fail.
        least = Fraction(2, 100) if "%" in one.judged.unit else Fraction(2)
        assert value < least or 0 <= 1 - value < least
        return
    edited, stay = with_limits(text.encode(), FILE, FILE, [LimitEdit(one.location, moved)])
    assert not stay
    (after,) = assertions(edited.decode())
    assert isinstance(after.require.limit, Constant)
    assert comparator.holds(value, after.require.limit.value)
    off = abs(after.require.limit.value - value)
    assert off >= (Fraction(1, 100) if "%" in one.judged.unit else value / 100)
    digits = moved.number.replace(".", "").strip("0")
    assert len(digits) <= 2
    assert edited.decode().replace(moved.number, str(limit), 1) == text or moved.number in text


STYLES = {
    "plain": ("- overlap >= 75% # 75% is enough", "- overlap >= 41% # 75% is enough"),
    "double": ('- "overlap  >=  75%"  ', '- "overlap  >=  41%"  '),
    "single": ("- 'overlap >= 75%'", "- 'overlap >= 41%'"),
    "folded": ("- >\n    overlap\n    >= 75%\n", "- >\n    overlap\n    >= 41%\n"),
    "literal, with a comment": ("- |- # 75%\n    overlap >= 75%", "- |- # 75%\n    overlap >= 41%"),
    "over lines": ("- overlap\n      >= 75\n      %", "- overlap\n      >= 41\n      %"),
    "escaped": (r'- "overlap \x3e= 75%"', r'- "overlap \x3e= 41%"'),
    "number in the name": ("- stage75 overlap >= 75%", "- stage75 overlap >= 41%"),
    "number selected": ("- rank 75 overlap >= 75%", "- rank 75 overlap >= 41%"),
    "number in the comparison alone": ("- overlap >= 75.00%", "- overlap >= 41%"),
    "assert": ("- {id: a75, assert: overlap >= 75%}", "- {id: a75, assert: overlap >= 41%}"),
    "keys": ('- metric: overlap\n    require: ">= 75%" # !', '- metric: overlap\n    require: ">= 41%" # !'),
    "warned": (
        "- {assert: overlap >= 75%, warn: '>= 80%'} # 75",
        "- {assert: overlap >= 41%, warn: '>= 80%'} # 75",
    ),
    "each": (
        "- {metric: overlap, for: {stage: [a, b]}, require: '>= 75%'}",
        "- {metric: overlap, for: {stage: [a, b]}, require: '>= 41%'}",
    ),
    "an anchor that nothing else takes": ("- &x overlap >= 75%", "- &x overlap >= 41%"),
    "not ASCII": ("# größer 𝛀\n  - overlap ≥= 75%".replace("≥=", ">="), "# größer 𝛀\n  - overlap >= 41%"),
}


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("style", STYLES)
def test_only_the_number_changes(style: str, mark: str, ends: str) -> None:
    head, tail = f"{mark}version: 1 # 75%\nassertions:\n  ", "\n  - exposed_ns <= 75ms\n"
    before, after = ((head + each + tail).replace("\n", ends) for each in STYLES[style])
    one = assertions(before.removeprefix("\ufeff"))[0]
    edit = LimitEdit(one.location, moved_limit(one, Fraction("0.426")))
    assert with_limits(before.encode(), FILE, FILE, [edit]) == (after.encode(), {})


def test_several_limits_of_a_line_and_of_a_matrix() -> None:
    text = """version: 1
matrix:
  small: a
  large: b
assertions: [overlap >= 75%, exposed_ns <= 75us, {assert: overlap > 75%, matrix: large}]
"""
    gate = loads_gate_file(text, path=FILE)
    edits = [
        LimitEdit(a.location, moved_limit(a, Fraction("0.5") if "%" in a.sentence else 900_000))
        for a in gate.assertions
    ]
    edited, stay = with_limits(text.encode(), FILE, FILE, edits)
    assert not stay
    assert edited.decode() == text.replace("75%", "49%").replace("75us", "910us")


SHARED = {
    "an alias": (
        ["{metric: overlap, where: {stage: a}, require: &limit '>= 75%'}", "{metric: overlap, require: *limit}"],
        "1 other line has it, too \\(line 4\\)",
    ),
    "a waiver below it": (
        ["{id: a, assert: overlap >= 75%}"],
        "waives nothing: it holds '>= 41%'",
    ),
    "written otherwise": ([r'"overlap >= \x37\x35%"'], "its number is not written out"),
}


@pytest.mark.parametrize("case", SHARED)
def test_what_cannot_be_changed_alone_stays(case: str) -> None:
    entries, why = SHARED[case]
    text = "version: 1\nassertions:\n" + "".join(f"  - {entry}\n" for entry in entries)
    if "waiver" in case:
        text += "waivers:\n  - {assertion: a, ceiling: 50%, expires: 2999-12-31, reason: known}\n"
    one = assertions(text)[0]
    content, stay = with_limits(
        text.encode(), FILE, FILE, [LimitEdit(one.location, moved_limit(one, Fraction("0.426")))]
    )
    assert content == text.encode()
    (told,) = stay.values()
    with pytest.raises(ValueError, match=why):
        raise ValueError(told)
