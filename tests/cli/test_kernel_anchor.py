"""What do commands and gates say of a trace whose windows begin with a kernel?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_nsys.core.conventions import written_anchor
from pytest_nsys.gates.convention_keys import typed_anchor
from tests.support.commands import answer, run
from tests.support.gates import Project
from tests.support.kernel_steps import PLAIN, slow_quarter, written


def test_a_command_names_the_kernel(tmp_path: Path) -> None:
    trace = written(tmp_path / "run.sqlite", [PLAIN] * 12)
    (row,) = answer("--view=ranks", trace, "--anchor={kernel: embed}")["rows"]
    assert (row["index"], row["count"], row["length_ns"]) == (5, 11, 1_000)
    said = run("--view=ranks", trace, "--anchor={kernel: embed}", code=0).output
    assert "note: convention generic, anchor '{kernel: embed}' (found in the trace)" in said


def test_a_gate_file_names_the_kernel(project: Project) -> None:
    written(project.root / "run.sqlite", [PLAIN] * 12)
    project.gate(
        """
        convention: {extends: generic, anchor: {kernel: gemm, after: embed}, kernels: launched}
        assertions:
        - p50 period_ns <= 1us
        - step time <= 1us
        - stage none launches == 4
        """
    )
    assert {case.text for case in project.judged().values() if case.state != "passed"} == set()


def test_a_kernel_that_is_gone_is_no_green(project: Project) -> None:
    """As where a pull request fuses it: the nearest name, and how the step is found anew."""
    trace = written(project.root / "run.sqlite", [PLAIN] * 12)
    run("init", trace, "-o", project.root / "gates.nsys.yaml", "--anchor={kernel: embed}", code=0)
    written(trace, [("fused_embed", *PLAIN[1:])] * 12)
    why = "no kernel is called 'embed' (did you mean 'fused_embed'?); `pytest-nsys init "
    assert f"{why}run.sqlite` finds the step anew" in " ".join(project.pytest(code=1).split())
    for command in (("show", trace), ("check", trace), ("rows", "period_ns", "--trace", trace)):
        said = run(*command, "--anchor={kernel: embed}", code=3)
        assert why in " ".join((said.stdout + said.stderr).split())


@pytest.mark.parametrize(
    ("anchor", "said"),
    [
        ("{kernel: Größe}", "no kernel is called 'Größe': `pytest-nsys TRACE --view kernels` lists them"),
        (
            f"{{kernel: _Z{'x' * 2_000}}}",
            f"no kernel is called '_Z{'x' * 77}…': `pytest-nsys TRACE --view kernels` lists them",
        ),
        ('{kernel: "em\\nbed"}', "no kernel is called 'em\N{REPLACEMENT CHARACTER}bed' (did you mean 'embed'?)"),
        ("{kernel: gemm, after: nothing}", "no kernel is called 'nothing'"),
        ("{kernel: embed, after: embed}", "'embed' never starts after 'embed': before it ran 'warmup', 'adam'"),
        ("{kernel: warmup}", "kernel 'warmup' starts once, and a window goes from one start to the next"),
        ('"3"', "no range matches the anchor '3'"),
    ],
    ids=lambda text: text[:30],
)
def test_an_anchor_that_fits_nothing_says_why(project: Project, anchor: str, said: str) -> None:
    """No data for a command, an error of each assertion for a gate, in one sentence."""
    trace = written(project.root / "run.sqlite", [("warmup",), *[PLAIN] * 9])
    assert re.fullmatch(
        f"error: .*{re.escape(said)}.*\n", run("rows", "launches", trace, "--anchor", anchor, code=3).stderr
    )
    project.gate(f"convention: {{extends: generic, anchor: {anchor}}}\nassertions: [launches <= 100]\n")
    (case,) = project.judged().values()
    assert case.state == "error"
    assert said in case.text


@pytest.mark.parametrize("name", ["[step]", "3", "true", '"a"', "{a}", "Größe", "[pl][profile]step %"])
def test_a_range_called_like_something_else_can_be_typed(name: str) -> None:
    assert typed_anchor(written_anchor(name)) == name


def test_odd_steps_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # from elsewhere its baseline would lie in what both folders have in common
    validation = ("embed", *["gemm"] * 8, "adam")
    trace = written(tmp_path / "run.sqlite", [*[PLAIN] * 4, validation, *[PLAIN] * 4, validation, *[PLAIN] * 4])
    shown = run("show", trace, "--anchor={kernel: embed}", code=0).stdout.splitlines()[0]
    assert shown.endswith("step = kernel embed to the next, one of 11 (--window 5), 2 odd left out")
    told = "2 of 13 windows from kernel embed to the next are left out"
    assert told in answer("check", trace, "--anchor={kernel: embed}")["run"]["measured_as"]
    assert told in run("rows", "period_ns", "--trace", trace, "--anchor={kernel: embed}", code=0).stderr
    run("init", trace, "-o", tmp_path / "gates.nsys.yaml", "--anchor={kernel: embed}", code=0)
    assert "  anchor: {kernel: embed}\n  kernels: launched\n" in (tmp_path / "gates.nsys.yaml").read_text()


@pytest.mark.parametrize(("steps", "held"), [(9, False), (10, True)])
def test_a_draft_holds_the_slow_steps_of_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, *, held: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = written(tmp_path / "run.sqlite", [PLAIN] * (steps + 1))
    run("init", trace, "-o", "gates.nsys.yaml", "--anchor={kernel: embed}", code=0)
    assert ("- p90 period below" in (tmp_path / "gates.nsys.yaml").read_text()) is held


@pytest.mark.parametrize(
    ("slow_ns", "validation", "said"),
    [
        (1_000, 0, None),
        (2_000, 0, "p90 period below baseline plus tolerance: 2 us > 1.05 us, rank 0 p90"),
        (1_000, 4, "odd_steps: now 4, baseline 0"),
    ],
    ids=["as before", "a slow quarter", "validation in a quarter"],
)
def test_a_drafted_gate_tells_slow_steps_from_odd_ones(
    project: Project, slow_ns: int, validation: int, said: str | None
) -> None:
    slow_quarter(project.root / "run.sqlite", 1_000)
    run("init", "run.sqlite", "-o", "gates.nsys.yaml", "--anchor={kernel: embed}", code=0)
    if validation:
        odd = ("embed", *["gemm"] * 8, "adam")
        written(project.root / "run.sqlite", [*[PLAIN, PLAIN, PLAIN, odd] * 4, PLAIN])
    else:
        slow_quarter(project.root / "run.sqlite", slow_ns)
    report = project.pytest(code=0 if said is None else 1)
    assert said is None or said in report


def test_a_last_step_that_is_whole_in_one_run_alone_makes_no_other_run(project: Project) -> None:
    """It is where it has 98% of the median length: noise and the end of the profile decide, in which no gate is red."""
    full = [*PLAIN, *["gemm"] * 6]
    written(project.root / "run.sqlite", [full] * 12, period_ns=910)
    run("init", "run.sqlite", "-o", "gates.nsys.yaml", "--anchor={kernel: embed}", code=0)
    for last, anchors in ((full, 12), (full[:-1], 11)):
        written(project.root / "run.sqlite", [*[full] * 11, last], period_ns=910)
        said = run("rows", "anchors", "--trace", "run.sqlite", "--anchor={kernel: embed}", "--format", "csv", code=0)
        assert f"anchors,0,{anchors}," in said.stdout
        project.pytest(code=0)
