"""A red names its causes: in the terminal, the reports and a comparison; a baseline keeps what that takes."""

import re
from typing import Any

import pytest

from pytest_nsys.analysis.explain.breakdown_model import ChangeKind, RowActivity
from pytest_nsys.gates.model import Outcome, Verdict
from pytest_nsys.reports.session.markdown import escape_prose
from tests.support.gates import MS, ByName, Project, built_once
from tests.support.reports import checked
from tests.support.samples.builder import Process, TraceBuilder

GATE = """
    - exposed_ns <= baseline + 5%
    - id: worst
      assert: max over stage of max over rank of exposed_ns <= baseline + 5%
    - stage2 overlap >= baseline - 1pp
    - window_ns <= baseline + 50%
"""


@pytest.fixture
@built_once
def judged(project: Project) -> Project:
    """A gate on a baseline, and a trace in which a rank exposes 450 us more."""
    project.gated(GATE, 200)
    project.trace("head.sqlite", {(1, "stage2_f"): 650})
    project.refresh("--nsys-trace=run.sqlite")
    return project


def causes(said: str) -> list[str]:
    return [line.strip() for line in re.findall(r"^  (?:why:|     ) +(.*(?:us|ns)\b.*)$", said, re.MULTILINE)]


def test_a_red_against_a_baseline_says_why(judged: Project) -> None:
    said = judged.pytest("--nsys-trace=head.sqlite", code=1)
    what = r"gemm in stage2_f 28% shorter \(1.6 → 1.15 ms\); it hid communication\n"
    assert re.search(r"why:    rank 1 stage2_f, \+450 us:\n +\+450 us  " + what, said), said


def test_another_trace_gives_the_same_causes(judged: Project) -> None:
    stored = judged.pytest("--nsys-trace=head.sqlite", code=1)
    other = judged.pytest("--nsys-trace=head.sqlite", "--nsys-against=run.sqlite", code=1)
    assert causes(stored)
    assert causes(stored) == causes(other)


def test_the_parts_add_up_in_the_report(judged: Project) -> None:
    judged.pytest("--nsys-trace=head.sqlite", "--nsys-json=report.json", code=1)
    report = checked(judged.root / "report.json")
    (file,) = report["gate_files"]
    by_name = ByName({assertion["name"]: assertion for assertion in file["assertions"]})
    failed = [a for a in by_name.values() if a["outcome"] == "failed"]
    assert len(failed) == 3
    for assertion in failed:
        (row,) = assertion["causes"]
        assert row["labels"] == {"rank": 1, "stage": "stage2_f"}
        assert row["change_ns"] == 450_000 == sum(part["change_ns"] for part in row["parts"])
        assert row["unexplained_ns"] == 0
    assert by_name["window_ns <= baseline + 50%"]["causes"] == []


def test_a_comparison_has_them(judged: Project) -> None:
    said = judged.command("compare", "run.sqlite", "head.sqlite", code=1)
    assert re.search(r"failed: overlap: .*\n  why:    rank 1 stage2_f, \+450 us:\n +\+450 us ", said), said


def test_nothing_is_explained_where_nothing_is_worse(judged: Project) -> None:
    assert "why:" not in judged.pytest("--nsys-trace=run.sqlite", "-v", code=0)


def steps(project: Project, name: str, every_ms: int) -> None:
    """Steps that take as much longer as their ``flash`` kernel does."""

    def flash(_: TraceBuilder, processes: list[Process]) -> None:
        for process in processes:
            for k in range(5):
                begin = every_ms * MS * k + 1_000
                process.kernel("flash", begin + 12 * MS, begin + (every_ms - 7) * MS, launch_ns=begin)

    project.trace(name, 200, every_ms=every_ms, edit=flash)


@pytest.mark.parametrize("against", [False, True])
def test_a_longer_step_names_the_kernels_behind_it(project: Project, against: bool) -> None:
    steps(project, "run.sqlite", 20)
    steps(project, "head.sqlite", 22)
    project.gate("- p50 period_ns <= baseline + 5%")
    project.refresh("--nsys-trace=run.sqlite")
    said = project.pytest("--nsys-trace=head.sqlite", *(["--nsys-against=run.sqlite"] if against else []), code=1)
    why = said[said.index("why:") :].splitlines()
    assert why[0] == "why:    rank 0 p50, +2 ms:"
    assert re.fullmatch(r" +\+2 ms  flash 200% longer \(1 → 3 ms\)", why[1])
    assert "2 of 2 rows above their limit, all alike" in said
    assert "not explained" not in said


def test_one_cause_behind_several_reds_is_told_once(judged: Project) -> None:
    """In the summary of the terminal and of the job, with every row that it explains."""
    said = judged.pytest("-v", "--nsys-trace=head.sqlite", "--nsys-summary=summary.md", "--nsys-html=page.html", code=1)
    ((cause, reds),) = re.findall(r"^(gemm .+)\n((?:  failed  .+\n)+)", said, re.MULTILINE)
    assert [line.split(": ")[0].split("  ")[-1] for line in reds.splitlines()] == [
        *("exposed_ns <= baseline + 5%", "worst", "stage2 overlap >= baseline - 1pp")
    ]
    summary = (judged.root / "summary.md").read_text()  # whose title has the cause
    assert re.search(rf"^## .*{re.escape(escape_prose(cause.removesuffix(' on rank 1')))}", summary)
    assert summary.count("### ") == summary.count("#### ")
    page = (judged.root / "page.html").read_text()
    (root,) = page.split('<section class="root"')[1:]
    assert re.findall(r"failed</span> <b>(.+?)</b>", root.partition("</section>")[0]) == [
        *("exposed_ns &lt;= baseline + 5%", "worst", "stage2 overlap &gt;= baseline - 1pp")
    ]


def test_rows_that_are_gone_say_what_became_of_their_kernels(judged: Project) -> None:
    """Also where the rank lacks what others have, so that no row stands for it."""

    def gemm(_: TraceBuilder, processes: list[Process]) -> None:
        for k in range(5):
            at = 20 * MS * k + 1_000 + MS  # in stage2_f of each window
            processes[1].kernel("gemm", at + 10_000, at + 20_000, launch_ns=at + 5_000)

    judged.trace("head.sqlite", {(1, "stage2_f"): None, (0, "stage4_f"): None, (1, "stage4_f"): None}, edit=gemm)
    said = judged.pytest("--nsys-trace=head.sqlite", code=1)
    stages = "rank 0, 1: no kernel of the window is launched in stage stage4_f"
    assert f"change: {stages}\n          rank 1: the 1 kernel of stage stage2_f does not communicate\n" in said
    assert "appeared" not in said


class Verdicts:
    """What a session judged."""

    def __init__(self) -> None:
        self.found: list[Verdict] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call":
            self.found.append(report.nsys.verdict)


@pytest.mark.parametrize("against", [False, True])
def test_a_red_has_its_roots_and_the_length_of_a_step(judged: Project, against: bool) -> None:
    """From a stored baseline and from another trace alike: less is hidden because the compute is shorter."""
    heard = Verdicts()
    more = ["--nsys-against=run.sqlite"] if against else []
    judged.pytest("--nsys-trace=head.sqlite", *more, code=1, plugins=[heard])
    assert [verdict.outcome for verdict in heard.found] == [Outcome.FAILED] * 3 + [Outcome.PASSED]
    for verdict in heard.found[:3]:
        (root,) = verdict.causes[0].root_causes
        assert (root.root.kind, root.root.activity, root.root.name, root.rank) == (
            ChangeKind.SHORTER,
            RowActivity.KERNEL,
            "gemm",
            1,
        )
        assert verdict.step is not None
        assert verdict.step.baseline_ns.keys() == verdict.step.current_ns.keys() == {0, 1}


@pytest.mark.parametrize(
    ("sentence", "behind"),
    [
        ("overlap_min >= 75%", "gemm"),
        ("exposed_ns <= 2% of step", "gemm"),
        ("stage2 exposed_ns < 300us", "gemm"),
        ("sum over rank of exposed_ns <= baseline + 5%", "gemm"),
        ("balance of exposed_ns across pp <= 1.1", "gemm"),
        ("window_ns <= 1ms", ""),
    ],
)
@pytest.mark.sampled(3)
def test_rows_without_parts_have_roots_where_both_sides_are_known(project: Project, sentence: str, behind: str) -> None:
    """A limit that nothing holds was broken before, too: nothing is behind it."""
    project.gated(f"- exposed_ns <= baseline + 500%\n- {sentence}", 200)
    project.trace("head.sqlite", {(1, "stage2_f"): 650})
    project.refresh("--nsys-trace=run.sqlite", code=None)
    for more in ([], ["--nsys-against=run.sqlite"]):
        heard = Verdicts()
        project.pytest("--nsys-trace=head.sqlite", *more, plugins=[heard])
        (verdict,) = [verdict for verdict in heard.found if verdict.outcome is Outcome.FAILED]
        roots = {root.root.name for row in verdict.causes for root in row.root_causes}
        assert roots == ({behind} if behind else set()), (more, verdict.causes)
        assert verdict.step is not None
