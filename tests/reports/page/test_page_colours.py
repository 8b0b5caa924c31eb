"""Are the colours of the page told apart in both themes, also by who does not see red, green or any colour?"""

import re
from itertools import combinations

import pytest

from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.reports.page.budget_view import find_css_class
from pytest_nsys.reports.page.templating import TEMPLATE_FOLDER
from pytest_nsys.reports.page.timeline_view import PLAIN_HUE, STAGE_COLOURS

STYLE = (TEMPLATE_FOLDER / "page.css").read_text(encoding="utf-8")
PAIRS = {name: (light, dark) for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\);", STYLE)}
THEMES = ("light", "dark")

Linear = tuple[float, float, float]

ALSO_APART = (
    *combinations(("exposed", "part-starved", "attention"), 2),
    ("part-starved", "part-between"),
    *combinations(("gemm", "communication", "part-copy"), 2),
)
"""What an engineer took for one: three that were orange, gold and tan, and three blues."""

FAMILIES = (*("gemm", "attention", "norm", "elementwise", "triton", "moe", "memory", "optimizer", "other"),)

SEEN = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "no green": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "no blue": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}
"""What people see of linear red, green and blue (Machado, Oliveira and Fernandes 2009, severity 1)."""


def colour(name: str, theme: str) -> Linear:
    """A colour of the style as linear red, green and blue."""
    text = PAIRS[name][THEMES.index(theme)]
    parts = [int(text[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return red, green, blue


def luminance(one: Linear) -> float:
    return 0.2126 * one[0] + 0.7152 * one[1] + 0.0722 * one[2]


def contrast(name: str, other: str, theme: str) -> float:
    """The contrast ratio of WCAG 2."""
    low, high = sorted(luminance(colour(each, theme)) for each in (name, other))
    return (high + 0.05) / (low + 0.05)


def seen(one: Linear, eyes: str) -> Linear:
    """What somebody sees of a colour, in OKLab."""
    red, green, blue = (sum(a * b for a, b in zip(row, one, strict=True)) for row in SEEN[eyes])
    cones = (
        0.4122 * red + 0.5363 * green + 0.0514 * blue,
        0.2119 * red + 0.6807 * green + 0.1074 * blue,
        0.0883 * red + 0.2817 * green + 0.6300 * blue,
    )
    long, medium, short = (max(cone, 0) ** (1 / 3) for cone in cones)
    return (
        0.2105 * long + 0.7936 * medium - 0.0041 * short,
        1.9780 * long - 2.4286 * medium + 0.4506 * short,
        0.0259 * long + 0.7828 * medium - 0.8087 * short,
    )


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(
    "pair", [("exposed", "part-collective"), ("gemm", "compute"), ("exposed", "communication"), *ALSO_APART]
)
def test_what_means_another_thing_has_another_colour_for_everybody(pair: tuple[str, str], theme: str) -> None:
    for eyes in SEEN:
        one, other = (seen(colour(name, theme), eyes) for name in pair)
        apart = sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5
        assert apart > 0.1, (eyes, apart)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("pair", [("exposed", "part-collective"), ("gemm", "compute")])
def test_and_is_lighter_or_darker_for_who_sees_none(pair: tuple[str, str], theme: str) -> None:
    assert contrast(*pair, theme) > 1.9


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", ["exposed", "part-collective", "compute", "communication", "barrier", *FAMILIES])
def test_bars_stand_out_from_the_lane_below_them(name: str, theme: str) -> None:
    assert contrast(name, "band", theme) >= 3


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", ["ink", "soft", "bad", "good", "open"])
def test_text_is_read_on_every_ground(name: str, theme: str) -> None:
    assert min(contrast(name, ground, theme) for ground in ("page", "band")) >= 4.5


def test_every_part_of_the_budget_has_a_pattern_of_its_own() -> None:
    drawn = dict(
        re.findall(r'\("(\w+)", "(M[^"]+)"\)', (TEMPLATE_FOLDER / "parts.html.j2").read_text(encoding="utf-8"))
    )
    assert {f"part-{name}" for name in drawn} == {find_css_class(part) for part in BudgetPart}
    assert all(one != other for one, other in combinations(drawn.values(), 2))


def test_every_kernel_family_but_one_has_a_pattern_of_its_own() -> None:
    drawn = dict(
        re.findall(r'\("(family-\w+)", "(M[^"]+)"\)', (TEMPLATE_FOLDER / "parts.html.j2").read_text(encoding="utf-8"))
    )
    assert {*drawn, PLAIN_HUE} == {f"family-{name}" for name in FAMILIES}
    assert PLAIN_HUE not in drawn
    assert all(one != other for one, other in combinations(drawn.values(), 2))


def test_there_are_as_many_colours_as_stages_are_told_apart() -> None:
    hues = dict(re.findall(r"\.band(\d+)\s{ --h:\s(\d+); }", STYLE))
    assert [*map(int, hues)] == [*range(STAGE_COLOURS)]
    assert len({*hues.values()}) == STAGE_COLOURS
