"""Is a red of one root as short on 64 ranks, of twelve assertions and in eight configurations as of one, everywhere?"""

import re
from collections.abc import Iterator

import pytest

from pytest_nsys.analysis.explain.breakdown_model import (
    Change,
    ChangeKind,
    Explanation,
    RootCause,
    RowActivity,
    RowExplanation,
    StepChange,
)
from pytest_nsys.core.model import NextStep
from pytest_nsys.gates.model import JudgedRow, Outcome
from pytest_nsys.reports.session.markdown import render_summary
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.story_lines import SHOWN_ROOTS, render_story_lines, wrap_line
from pytest_nsys.reports.words.alike_rows import group_alike_rows
from pytest_nsys.reports.words.verdict_text import render_explanation
from tests.support.reports import key, make_session, record

MS = 1_000_000
WIDTH = 100
MOST_LINES, MOST_WITH_ROOTS, MOST_MARKDOWN = 34, 54, 60
"""Of the terminal 40, of which pytest has six: what ran, its own summary, and how many failed."""

GEMM = RootCause(ChangeKind.LONGER, RowActivity.KERNEL, "flash_fwd_kernel")


def red(name: str, ranks: int, configuration: str = "", spread: int = 0, root: RootCause = GEMM) -> AssertionRecord:
    """An assertion that failed on all ranks, each by another millisecond where there is a ``spread``."""
    changes = [Change(root, rank, 8 * MS, (10 + rank * spread) * MS, 4, 4) for rank in range(ranks)]
    where = {} if root is GEMM else {"stage": root.name}
    rows = [
        JudgedRow(
            {"rank": each.rank, **where}, each.current_ns, 9 * MS, Outcome.FAILED, baseline=each.baseline_ns, margin=-MS
        )
        for each in reversed(changes)
    ]
    causes = [
        RowExplanation({"rank": each.rank, **where}, Explanation(each.change_ns, (), 0), (each,)) for each in changes
    ]
    step = StepChange({0: 20 * MS}, {0: 22 * MS})
    made = record(
        name,
        subject="compute_ns",
        unit="ns",
        judged=rows,
        causes=causes,
        step=step,
        key=key(ranks),
        configuration=configuration,
        run="runs/model.sqlite (64 ranks, NVIDIA H100 80GB HBM3, generic)",
        next_steps=(
            NextStep(f"pytest-nsys baseline refresh {'perf/' * 9}gate.nsys.yaml --reason '…'", "accept this run"),
        ),
        line=len(name),
    )
    return AssertionRecord(
        **{field: getattr(made, field) for field in made.__slots__ if field != "explanation"},
        explanation=tuple(render_explanation(made.verdict, made.next_steps)),
    )


def session(ranks: int, assertions: int, configurations: int, spread: int = 0) -> list[AssertionRecord]:
    names = [f"model-{n}" for n in range(configurations)] if configurations > 1 else [""]
    return [red("compute" + "e" * n, ranks, name, spread) for name in names for n in range(assertions)]


def outside_of_folded(markdown: str) -> list[str]:
    """The lines that GitHub shows before anybody unfolds anything."""
    return re.sub(r"<details>(.*?)</summary>.*?</details>", r"\1", markdown, flags=re.DOTALL).splitlines()


@pytest.mark.parametrize("spread", [0, 1, 3])
@pytest.mark.parametrize("configurations", [1, 2, 8])
@pytest.mark.parametrize("assertions", [1, 5, 12])
@pytest.mark.parametrize("ranks", [1, 2, 64])
@pytest.mark.sampled(10)
def test_whatever_the_ranks_and_assertions(ranks: int, assertions: int, configurations: int, spread: int) -> None:
    told = make_session(*session(ranks, assertions, configurations, spread))
    lines = render_story_lines(told, WIDTH)
    assert len(lines) <= MOST_LINES
    assert max(len(line) for line in lines if "pytest-nsys" not in line) <= WIDTH
    assert sum(line.startswith("flash_fwd_kernel") for line in lines) == 1
    assert len(outside_of_folded(render_summary(told))) <= MOST_MARKDOWN


@pytest.mark.parametrize("assertions", [1, 4])
@pytest.mark.parametrize("roots", range(1, 9))
@pytest.mark.sampled(5)
def test_whatever_the_number_of_roots(roots: int, assertions: int) -> None:
    """The first is told whole, of each other what failed for it, in a line."""
    kernels = [RootCause(ChangeKind.LONGER, RowActivity.KERNEL, f"kernel_{chr(97 + n)}") for n in range(roots)]
    names = [f"compute{n}{'e' * a}" for n in range(roots) for a in range(assertions)]
    told = make_session(*(red(name, 64, root=kernels[n // assertions]) for n, name in enumerate(names)))
    lines = render_story_lines(told, WIDTH)
    assert len(lines) <= MOST_LINES + 4 * min(roots - 1, SHOWN_ROOTS) <= MOST_WITH_ROOTS
    assert sum(line.startswith("  why:") for line in lines) == 1
    assert sum(bool(re.match(r"(\d\. )?kernel_", line)) for line in lines) == min(roots, SHOWN_ROOTS)
    assert (f"… {roots - SHOWN_ROOTS} more causes (-v shows them)" in lines) == (roots > SHOWN_ROOTS + 1)


def test_what_is_folded_is_counted() -> None:
    lines = render_story_lines(make_session(*session(64, 12, 8)), WIDTH)
    assert lines[0] == "perf/gate.nsys.yaml (8 configurations): 96 assertions: 96 failed"
    assert lines[1] == "flash_fwd_kernel 25% longer on 64 of 64 ranks, 8 of 8 configurations"
    assert "  … 9 more assertions" in lines
    assert "  failed: below its limit, all alike (ranks 0–63)" in lines


def rows(*values: tuple[int, int, int]) -> Iterator[JudgedRow]:
    for rank, baseline, value in values:
        yield JudgedRow({"rank": rank, "stage": "a"}, value, 0, Outcome.FAILED, baseline=baseline)


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        ([(3, 100, 200), (1, 100, 199), (2, 100, 190)], [(3, [1, 2])]),  # by a tenth of the change
        ([(3, 100, 200), (1, 100, 189)], [(3, []), (1, [])]),
        ([(3, 1000, 1200), (1, 1000, 1100)], [(3, []), (1, [])]),  # nearly as long, by half as much
        ([(3, 0, 100), (1, 400, 500)], [(3, []), (1, [])]),  # by as much, five times as long
    ],
)
def test_which_ranks_are_alike(judged: list[tuple[int, int, int]], expected: list[tuple[int, list[int]]]) -> None:
    assert [(worst.labels["rank"], ranks) for worst, ranks in group_alike_rows(rows(*judged))] == expected


def test_a_command_is_folded_as_a_shell_takes_it() -> None:
    command = "pytest-nsys baseline refresh perf/gate.nsys.yaml --trace=runs/long/regressed.sqlite --reason x"
    line = f"  next:   {command}  # accept this run"
    told = wrap_line(line, 60)
    assert told == [
        "  next:   pytest-nsys baseline refresh perf/gate.nsys.yaml \\",
        "            --trace=runs/long/regressed.sqlite --reason x",
        "          # accept this run",
    ]
    assert "\n".join(told[:2]).removeprefix("  next:   ").replace("\\\n", "").split() == command.split()
    assert wrap_line(line, 200) == [line]
