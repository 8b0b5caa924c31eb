"""What do commands and gates say of a trace whose windows begin with a kernel?"""

import re
from pathlib import Path

import pytest

from pytest_nsys.core.conventions import format_anchor
from pytest_nsys.gates.convention_keys import parse_anchor_option
from tests.support.commands import answer, run
from tests.support.gates import Project
from tests.support.kernel_steps import PLAIN, slow_quarter, written


def test_a_command_names_the_kernel(tmp_path: Path) -> None:
    trace = written(tmp_path / "run.sqlite", [PLAIN] * 12)
    (row,) = answer("--view=ranks", trace, "--anchor={kernel: embed}")["rows"]
    assert (row["index"], row["count"], row["length_ns"]) == (6, 12, 1_000)
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
    assert parse_anchor_option(format_anchor(name)) == name


def test_steps_of_other_kernels_are_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # from elsewhere its baseline would lie in what both folders have in common
    validation = ("embed", *["gemm"] * 8, "adam")
    trace = written(tmp_path / "run.sqlite", [*[PLAIN] * 4, validation, *[PLAIN] * 4, validation, *[PLAIN] * 4])
    shown = run("show", trace, "--anchor={kernel: embed}", code=0).stdout.splitlines()[0]
    assert "step = kernel embed to the next, one of 14 (--window 7)" in shown
    run("init", trace, "-o", tmp_path / "gates.nsys.yaml", "--anchor={kernel: embed}", code=0)
    assert "  anchor: {kernel: embed}\n  kernels: launched\n" in (tmp_path / "gates.nsys.yaml").read_text()


@pytest.mark.parametrize(("steps", "held"), [(9, False), (10, True)])
def test_a_draft_holds_slow_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, *, held: bool) -> None:
    monkeypatch.chdir(tmp_path)
    trace = written(tmp_path / "run.sqlite", [PLAIN] * steps)
    run("init", trace, "-o", "gates.nsys.yaml", "--anchor={kernel: embed}", code=0)
    assert ("- p90 step time below" in (tmp_path / "gates.nsys.yaml").read_text()) is held


@pytest.mark.parametrize(
    ("slow_ns", "red"), [(1_000, ()), (2_000, ("mean step time", "p90 step time"))], ids=["as before", "a slow quarter"]
)
def test_a_drafted_gate_holds_a_slow_quarter(project: Project, slow_ns: int, red: tuple[str, ...]) -> None:
    slow_quarter(project.root / "run.sqlite", 1_000)
    run("init", "run.sqlite", "-o", "gates.nsys.yaml", "--anchor={kernel: embed}", code=0)
    slow_quarter(project.root / "run.sqlite", slow_ns)
    report = project.pytest(code=1 if red else 0)
    for sentence in red:
        assert f"{sentence} below baseline plus tolerance: " in report
    assert ("4 of 15 steps take over 1.5 times as long as the judged one" in report) is bool(red)
