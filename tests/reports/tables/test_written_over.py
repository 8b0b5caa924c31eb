"""Does a report ever replace what is read: a trace, a gate file, a baseline, the history, another report?"""

import os
from pathlib import Path

import pytest

from pytest_nsys.plugin.settings import SETTINGS
from tests.support.commands import run
from tests.support.gates import Project, built_once

GATE = "- exposed_ns below baseline plus 5%"
TRACE = "--nsys-trace=run.sqlite"


def contents(project: Project) -> dict[str, bytes]:
    return {name: (project.root / name).read_bytes() for name in project.files()}


@pytest.fixture
@built_once
def accepted(project: Project) -> Project:
    """A project with a trace, a gate file, its baseline and a history."""
    project.accepted(GATE)
    project.pytest(TRACE, "--nsys-history=perf.db", code=0)
    return project


@pytest.fixture
def kept(accepted: Project) -> Project:
    """And with other names of what is there."""
    project = accepted
    (project.root / "link.txt").symlink_to("run.sqlite")
    os.link(project.root / "run.sqlite", project.root / "same.txt")
    (project.root / "plain").write_bytes((project.root / "run.sqlite").read_bytes())
    (project.root / "chrome.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    return project


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("run.sqlite", "is one of the traces"),
        ("./baselines/../run.sqlite", "is one of the traces"),
        ("link.txt", "is one of the traces"),
        ("same.txt", "is one of the traces"),
        ("plain", "is a SQLite database"),
        ("chrome.json", "is a trace of a profiler"),
        ("gate.nsys.yaml", "is a gate file"),
        ("new.nsys.yaml", "is the name of a gate file"),
        ("new.nsys-rep", "is the name of a trace"),
        ("perf.db", "is a SQLite database"),
    ],
)
def test_a_report_of_a_session(kept: Project, target: str, why: str) -> None:
    before = contents(kept)
    assert f"--nsys-json={target}: {why}" in kept.pytest(TRACE, f"--nsys-json={target}", code=4)
    assert contents(kept) == before


OPTIONS = [setting.option for setting in SETTINGS.values() if setting.report_function]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("baselines", "is a folder; name a file in it"),
        ("x" * 300, "cannot be written: File name too long"),
        ("absent/report", "there is no folder "),
        ("run.sqlite", "is one of the traces"),
    ],
)
def test_a_file_that_cannot_be_meant(project: Project, option: str, value: str, why: str) -> None:
    (project.root / "baselines").mkdir()
    project.gate(GATE)
    before = project.trace().read_bytes()
    said = project.pytest(TRACE, f"{option}={value}", code=4)
    assert option in said
    assert why in said
    assert "collected" not in said
    assert (project.root / "run.sqlite").read_bytes() == before


def test_a_file_that_cannot_be_written_at_the_end(project: Project) -> None:
    project.gate("- overlap >= 60%")
    project.file("conftest.py", "def pytest_runtest_setup(item):\n    item.path.with_name('out').rmdir()")
    (project.root / "out").mkdir()
    project.trace()
    said = project.pytest(TRACE, *(f"{option}=out/{n}" for n, option in enumerate(OPTIONS)), code=1)
    for n in range(len(OPTIONS)):
        assert f"nsys: report out/{n}: cannot be written: No such file or directory" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nsys-json=one", "--nsys-summary=one"], "--nsys-summary=one: is the file of --nsys-json as well"),
        (["--nsys-json=one", "--nsys-summary=./one"], "--nsys-summary=./one: is the file of --nsys-json as well"),
        (["--nsys-json=one", "--nsys-history=one"], "--nsys-json=one: is the history"),
        (["--nsys-json=one", "--junitxml=one"], "--nsys-json=one: is the file of --junitxml"),
    ],
)
def test_two_reports_of_one_name(kept: Project, options: list[str], said: str) -> None:
    assert said in kept.pytest(TRACE, *options, code=4)
    assert "one" not in kept.files()


def test_the_history_of_the_ini_file(kept: Project) -> None:
    kept.file("pytest.ini", "[pytest]\nnsys_history = h\n")
    assert "--nsys-json=h: is the history" in kept.pytest(TRACE, "--nsys-json=h", code=4)


def test_the_traces_of_the_ini_file_and_of_the_base(kept: Project) -> None:
    (kept.root / "other").write_bytes(b"no trace at all")
    kept.file("pytest.ini", "[pytest]\nnsys_trace = other\n")
    assert "--nsys-json=other: is one of the traces" in kept.pytest("--nsys-json=other", code=4)
    said = kept.pytest(TRACE, "--nsys-against=other", "--nsys-summary=other", code=4)
    assert "--nsys-summary=other: is one of the traces" in said


def test_a_file_of_tests(kept: Project) -> None:
    test = kept.file("test_it.py", "def test_it():\n    assert True\n")
    assert "is what pytest is to run" in kept.pytest("test_it.py::test_it", "--nsys-json=test_it.py", code=4)
    assert test.read_text().startswith("def")


def test_a_baseline(kept: Project) -> None:
    before = contents(kept)
    (name,) = (name for name in before if name.startswith("baselines/") and name.endswith(".json"))
    assert f"--nsys-json={name}: is a baseline" in kept.pytest(TRACE, f"--nsys-json={name}", code=4)
    assert contents(kept) == before


def test_reports_of_an_earlier_run_are_replaced(kept: Project) -> None:
    for _ in range(2):
        kept.pytest(TRACE, "--nsys-json=report.json", "--nsys-summary=summary.md", code=0)
    kept.pytest(TRACE, "--nsys-json=/dev/null", "--nsys-summary=/dev/null", code=0)


def command(*arguments: str) -> tuple[int, str]:
    result = run(*arguments)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("run.sqlite", "is one of the traces"),
        ("same.txt", "is one of the traces"),
        ("gate.nsys.yaml", "is one of the gate files"),
        ("rules.txt", "is one of the gate files"),
        ("perf.db", "is a SQLite database"),
    ],
)
def test_the_output_of_a_comparison(kept: Project, target: str, why: str) -> None:
    Path("rules.txt").write_text(Path("gate.nsys.yaml").read_text().replace("exposed_ns", "overlap"))
    kept.trace("head.sqlite", 205)
    before = contents(kept)
    gates = ["--gate=gate.nsys.yaml", "--gate=rules.txt"]
    code, said = command("compare", "run.sqlite", "head.sqlite", *gates, "--output", target)
    assert (code, said) == (2, f"error: --output {target}: {why}: give another file\n")
    assert contents(kept) == before
