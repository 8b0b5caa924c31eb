"""Do verdicts and changes have a colour where the terminal has colours, and do the lines stay as they are elsewhere?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.cli.terminal_text import style_lines
from pytest_nsys.reports.tables.colours import Tone, colour_lines
from tests.support.gates import Project

LINES = [
    "gate.nsys.yaml: 4 assertions: 2 failed, 1 warned, 1 passed",
    "  failed  window_ns below baseline: 17.8 ms > 16.9 ms",
    "  failed: 2 of 2 rows above their limit",
    "  rank  now   change  limit",
    "  1     9 ms  +10.5%  <= 8 ms",
    "  why:    rank 1, +2 ms:",
    "            +3 ms  k 3 ms longer",
    "            −1 ms  hidden elsewhere",
    "  better  overlap  80%  90%  +10 pp",
    "Step 12% slower (16 → 18 ms): failed_kernel 25% longer",
    "Step 29% faster (18 → 16 ms)",
    "  passed  syncs  2",
]


def list_toned(line: str) -> list[tuple[str, Tone]]:
    """What has a tone in a line by itself."""
    return [(text, tone) for text, tone in next(colour_lines([line])) if tone is not None]


def test_verdict_words_and_changes_have_a_tone() -> None:
    toned = [[(text, tone) for text, tone in pieces if tone is not None] for pieces in colour_lines(LINES)]
    assert toned == [
        [("2 failed", Tone.BAD), ("1 warned", Tone.DOUBTFUL), ("1 passed", Tone.GOOD)],
        [("failed", Tone.BAD)],
        [("failed", Tone.BAD)],
        [],
        [("+10.5%", Tone.BAD)],
        [],
        [("+3 ms", Tone.BAD)],
        [("−1 ms", Tone.GOOD)],
        [("better", Tone.GOOD), ("+10 pp", Tone.GOOD)],
        [("12% slower", Tone.BAD)],
        [("29% faster", Tone.GOOD)],
        [("passed", Tone.GOOD)],
    ]


@pytest.mark.parametrize("line", ["failed_kernel starts later", "the run failed", "  worsened  k", "k +3 ms longer"])
def test_a_name_or_a_sentence_has_none(line: str) -> None:
    assert list_toned(line) == []


@given(st.lists(st.one_of(st.sampled_from(LINES), st.text("failedworse: +−1%ms2", max_size=30)), max_size=6))
def test_the_pieces_are_the_line(lines: list[str]) -> None:
    assert ["".join(text for text, _ in pieces) for pieces in colour_lines(lines)] == lines


def test_a_session_has_colours_only_where_they_are_wanted(project: Project) -> None:
    project.accepted("- exposed_ns below baseline plus 1%")
    project.trace(exposed_us={(1, "stage4_f"): 450})
    texts = [project.pytest("--nsys-trace=run.sqlite", f"--color={color}", code=1) for color in ("yes", "no")]
    coloured, plain = (text[text.index(" nsys gate ") : text.index(" short test summary")] for text in texts)
    assert "\x1b[31mfailed\x1b[0m" in coloured
    assert "\x1b" not in plain
    assert [line for line in style_lines(plain.splitlines()) if "\x1b[31m" in line] != []
    wanted = [line for line in plain.splitlines() if line.startswith("  failed")]
    assert wanted == [
        line.replace("\x1b[31m", "").replace("\x1b[0m", "")
        for line in coloured.splitlines()
        if line.startswith("  \x1b[31mfailed")
    ]
