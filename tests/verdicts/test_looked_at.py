"""Is the window that is drawn, told and named in a command the one that gave a red row its value?"""

import contextlib
import re
import shlex
from pathlib import Path

import pytest

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.reports.drawings.pictures import draw_verdict
from pytest_nsys.reports.words.verdict_text import list_judged_windows
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from pytest_nsys.verdicts.references import OtherRun
from tests.support.fault_programs import ADAM, dense
from tests.support.fault_runs import Program, kernel
from tests.support.faults import FAULTS, NSYS, Fault, put
from tests.support.gates import Project
from tests.support.reports import checked
from tests.support.samples.formats import Format

USUAL_MS, ODD_MS = 20.7, 23.7
STEPS, ODD = 12, (5, 8)

GATE = """\
convention: {{extends: generic, anchor: 'step %', span: range}}
assertions:
  - {}
"""


def program(*odd: int) -> Program:
    """Steps of 20.7 ms, but for the odd ones, which have one more kernel."""
    on = dense(steps=STEPS)
    if odd:
        put(ADAM, kernel("checkpoint_pack_kernel", 3_000), steps=odd)(on)
    return on


@pytest.mark.parametrize("compared", [True, False])
@pytest.mark.parametrize(
    ("sentence", "odd", "window"),
    [
        ("p90 period_ns <= 1us", ODD, "odd"),
        ("max of period_ns <= 1us", ODD, "odd"),
        ("min of period_ns <= 1us", ODD, "usual"),
        ("p50 period_ns <= 1us", ODD, "usual"),
        ("p50 period_ns <= 1us", (6,), "usual"),
        ("step time <= 1us", ODD, "usual"),
        ("step time <= 1us", (6,), "usual"),
        ("window <= 1us", ODD, "usual"),
        ("window <= 1us", (6,), "odd"),
        ("{assert: window <= 1us, window: steady}", (6,), "usual"),
        ("{assert: compute <= 1us, window: steady}", ODD, "usual"),
    ],
)
@pytest.mark.sampled(5)
def test_the_window_of_a_red_is_that_of_its_value(
    tmp_path: Path, sentence: str, odd: tuple[int, ...], window: str, *, compared: bool
) -> None:
    base, head = program().write(tmp_path / "base", NSYS, 1), program(*odd).write(tmp_path / "head", NSYS, 2)
    path = tmp_path / "step.nsys.yaml"
    path.write_text("version: 1\n" + GATE.format(sentence))
    gate = load_gate_file(path)
    with contextlib.closing(CaptureCache()) as library:
        before, now = (library.open_captures([str(each)], tmp_path, gate.resolved_convention) for each in (base, head))
        held = OtherRun(now, gate, before) if compared else None
        verdict = evaluate(gate.assertions[0], GateContext(now, gate, held))
        (picture,) = draw_verdict(verdict, now, before).windows
        (used,) = verdict.examined_window.windows if verdict.examined_window is not None else verdict.windows
    assert (used.window.index in odd) is (window == "odd")
    expected = ODD_MS if window == "odd" else USUAL_MS
    assert round(used.window.length_ns / 1e6, 1) == expected
    assert picture.head is not None
    assert picture.base is not None
    assert (picture.head.window, picture.head.length_ns) == (
        f"{used.window.name}, window {(used.window.index or 0) + 1} of {STEPS}",
        used.window.length_ns,
    )
    assert round(picture.base.length_ns / 1e6, 1) == USUAL_MS
    assert re.search(
        f"rank 0[,:] {used.window.name}, .*, {expected} ms", list_judged_windows(verdict, verbose=False)[-1]
    )


@pytest.mark.parametrize(
    ("sentence", "more"),
    [
        ("p90 period_ns <= 1us", r" --window \d"),
        ("window <= 1us", ""),
        ("{assert: window <= 1us, window: 3}", " --window 3"),
        ("{assert: window <= 1us, window: steady, kernels: launched}", " --window steady --kernels launched"),
        ("{assert: compute <= 1us, window: steady}", r" --window \d"),
    ],
)
def test_a_command_names_the_window_unless_it_is_the_usual(project: Project, sentence: str, more: str) -> None:
    program(*ODD).write(project.root / "head", NSYS, 2)
    project.gate(GATE.format(sentence))
    project.pytest("--nsys-trace=head", "--nsys-json=report.json", code=1)
    (command,) = shown_commands(project.root / "report.json")
    assert re.fullmatch(r"pytest-nsys show head --view \w+( --rank 0)?( --convention \S+)?" + more, command), command
    project.command(*shlex.split(command)[1:], code=0)


def shown_commands(report: Path) -> list[str]:
    """Those of a session's reds that open a view."""
    assertions = [each for file in checked(report)["gate_files"] for each in file["assertions"]]
    steps = [step for each in assertions if each["outcome"] == "failed" for step in each["next_steps"]]
    return [step for step in dict.fromkeys(steps) if " --view " in step]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "format"),
    [pytest.param(fault, each, id=f"{name}, {each}") for name, fault in FAULTS.items() for each in fault.formats],
)
def test_each_command_of_a_red_shows_its_window(project: Project, fault: Fault, format: Format) -> None:
    fault.program().write(project.root / "base", format, 1)
    worse = fault.program()
    fault.change(worse)
    worse.write(project.root / "head", format, 2)
    project.command("init", "base", code=0)
    (path,) = project.root.glob("*.nsys.yaml")
    path.write_text("".join([path.read_text(), *(f"  - {sentence}\n" for sentence in fault.gate)]))
    project.pytest("--nsys-trace=head", "--nsys-against=base", "--nsys-json=report.json", code=1)
    commands = shown_commands(project.root / "report.json")
    assert commands
    for command in commands:
        assert project.command(*shlex.split(command)[1:], code=0)
