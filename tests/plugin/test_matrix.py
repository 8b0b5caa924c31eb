"""A gate file over a matrix in a session: whose trace is judged, against whose baseline, what is told of the rest?"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pytest_nsys import ArgumentMistake, judge, open_run
from tests.support.gates import Project
from tests.support.reports import checked

GATE = """
tolerance: {rel: 5%, abs: 50us}
convention: pithtrain
matrix:
  llama-8b: run/llama.sqlite
  mixtral: run/mixtral.sqlite
assertions:
- overlap >= 40%
- exposed_ns below baseline plus tolerance
- {assert: no mixed comm streams, matrix: mixtral}
"""
FILE = "perf/gate.nsys.yaml"
LLAMA, MIXTRAL = f"{FILE}[llama-8b]", f"{FILE}[mixtral]"
SUMMARY = ("--nsys-json=report.json", "--nsys-summary=summary.md", "--nsys-html=page.html", "--nsys-history=perf.db")


@pytest.fixture
def matrix(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Two models of one setup: 200 us exposed in one of them, 500 in the other."""
    monkeypatch.delenv("CI", raising=False)
    project.gate(GATE, FILE)
    project.trace("perf/run/llama.sqlite")
    project.trace("perf/run/mixtral.sqlite", 500)
    return project


@pytest.fixture
def stored(matrix: Project) -> Project:
    """The same with a baseline of each."""
    matrix.pytest("perf", "--nsys-update-baselines", "--nsys-reason=first", code=0)
    return matrix


def test_each_configuration_has_its_own_items_baseline_and_lines(stored: Project) -> None:
    folders = sorted(path.name for path in (stored.root / "baselines").iterdir())
    assert folders == ["perf__gate@llama-8b", "perf__gate@mixtral"]  # of one key: the setup is the same
    said = stored.pytest("perf", "-v", *SUMMARY, code=0)
    for name in (
        "overlap >=[llama-8b]",
        "exposed_ns below[llama-8b]",
        "overlap >=[mixtral]",
        "no mixed comm streams[mixtral]",
    ):
        assert f"{FILE}::{name} PASSED" in said
    assert "no mixed comm streams[llama-8b]" not in said
    assert re.search(r"gate\.nsys\.yaml\[llama-8b\]: perf/run/llama\.sqlite", said)
    assert re.search(r"gate\.nsys\.yaml\[mixtral\]: perf/run/mixtral\.sqlite", said)
    report = checked(stored.root / "report.json")
    assert [(f["file"], f["configuration"], len(f["assertions"])) for f in report["gate_files"]] == [
        (FILE, "llama-8b", 2),
        (FILE, "mixtral", 3),
    ]
    assert f"### `{LLAMA}`" in (stored.root / "summary.md").read_text()
    assert LLAMA in (stored.root / "page.html").read_text().replace("<wbr>", "")
    with closing(sqlite3.connect(stored.root / "perf.db")) as history:
        assert [gate for (gate,) in history.execute("SELECT gate FROM runs")] == [LLAMA, MIXTRAL]


def test_a_trace_is_given_by_name_and_the_others_are_not_run(stored: Project) -> None:
    stored.trace("new.sqlite", 300)
    said = stored.pytest("perf", "--nsys-trace=llama-8b=new.sqlite", "-rs", *SUMMARY, code=1)
    stored.result.assert_outcomes(passed=1, failed=1, skipped=1)
    assert "300 us > 250 us, rank 0 stage2_f" in said
    assert f"  {MIXTRAL}: 3 assertions; the command line names llama-8b alone" in said.splitlines()
    command = f"pytest-nsys baseline refresh '{LLAMA}' --trace=llama-8b=new.sqlite --reason"
    assert command in said
    (not_run,) = checked(stored.root / "report.json")["not_run"]
    assert (not_run["file"], not_run["configuration"]) == (FILE, "mixtral")


def test_the_others_are_red_where_traces_are_expected(stored: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    why = "no trace of mixtral: the command line names llama-8b alone: give --nsys-trace=mixtral=PATH too"
    for strict in (("--nsys-strict",), ()):
        said = stored.pytest("perf", "--nsys-trace=llama-8b=perf/run/llama.sqlite", "-v", *strict, code=1)
        stored.result.assert_outcomes(passed=2, errors=3)
        assert why in said
        monkeypatch.setenv("CI", "1")
    stored.pytest("perf", "--nsys-trace=llama-8b=perf/run/llama.sqlite", "-k", "[llama-8b]", code=0)


def test_without_any_trace_each_configuration_is_a_skip(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    project.gate(GATE, FILE)
    said = project.pytest("perf", code=0)
    project.result.assert_outcomes(skipped=2)
    assert "not run: 2 configurations, no trace given (--nsys-trace=NAME=PATH," in said
    assert f"  {LLAMA}: 2 assertions; trace perf/run/llama.sqlite of the gate file does not exist" in said


@pytest.mark.parametrize(
    ("option", "why"),
    [
        (
            "--nsys-trace=llama=new.sqlite",
            "--nsys-trace=llama=new.sqlite: no configuration of these gate files is 'llama' (did you mean 'llama-8b'?)",
        ),
        (
            "--nsys-trace=new.sqlite",
            f"{FILE} has a matrix of llama-8b, mixtral: --nsys-trace=NAME=PATH says whose trace it is",
        ),
    ],
)
def test_a_trace_of_nobody_is_red(matrix: Project, option: str, why: str) -> None:
    matrix.trace("new.sqlite")
    said = matrix.pytest("perf", option, "-v", code=1)
    matrix.result.assert_outcomes(errors=5)
    assert f"error: {why}" in said


def test_a_path_may_hold_an_equals_sign(matrix: Project) -> None:
    """As a whole it is a path where it is there; ./ makes one of any."""
    matrix.gate("- overlap >= 40%", "other/plain.nsys.yaml")
    matrix.trace("lr=3/run.sqlite")
    for given in ("lr=3/run.sqlite", "./lr=3/run.sqlite", "lr=3/*.sqlite"):
        matrix.pytest("other", f"--nsys-trace={given}", code=0)
    said = matrix.pytest("other", "--nsys-trace=lr=4/run.sqlite", code=4)
    assert "(read as NAME=PATH of the configuration lr; a path with '=' is written ./lr=4/run.sqlite)" in said
    matrix.pytest("perf", "--nsys-trace=llama-8b=lr=3/run.sqlite", "-k", "overlap and llama", code=0)


@pytest.mark.parametrize("option", ["--nsys-trace=llama-8b=", "--nsys-against=llama-8b= "])
def test_a_name_without_a_path_is_a_mistake(matrix: Project, option: str) -> None:
    """As of a variable that nobody set: it would mean this folder, and whatever trace lies in it."""
    matrix.trace("good.sqlite")
    assert f"{option}: the path of a trace is empty" in matrix.pytest("perf", option, code=4)


def test_a_gate_file_without_a_matrix_beside_it_takes_what_bears_no_name(matrix: Project) -> None:
    matrix.gate("- overlap >= 40%", "perf/plain.nsys.yaml")
    matrix.trace("plain.sqlite")
    given = ("--nsys-trace=plain.sqlite", "--nsys-trace=mixtral=perf/run/mixtral.sqlite", "-k", "overlap", "-v")
    said = matrix.pytest("perf", *given, code=0)
    matrix.result.assert_outcomes(passed=2, skipped=1, deselected=3)
    assert re.search(r"plain\.nsys\.yaml: plain\.sqlite", said)


def test_the_ini_file_names_configurations_too(matrix: Project) -> None:
    matrix.file("pytest.ini", "[pytest]\nnsys_trace =\n  llama-8b=perf/run/llama.sqlite\n  mixtral=a.sqlite\n")
    matrix.gate(re.sub(r": run/.*", ":", GATE), FILE)
    matrix.trace("a.sqlite", 700)
    cases = matrix.cases("perf", "-k", "overlap", code=1)
    assert {name: case.state for name, case in cases.items()} == {
        "overlap >=[llama-8b]": "passed",
        "overlap >=[mixtral]": "failure",
    }


def test_the_base_is_given_by_name(matrix: Project) -> None:
    matrix.trace("new.sqlite", 300)
    given = ("--nsys-trace=llama-8b=new.sqlite", "--nsys-against=llama-8b=perf/run/llama.sqlite")
    said = matrix.pytest("perf", *given, code=1)
    matrix.result.assert_outcomes(passed=1, failed=1, skipped=1)
    assert "300 us > 250 us" in said
    said = matrix.pytest("perf", "--nsys-trace=mixtral=new.sqlite", given[1], code=1)
    assert "error: no base given: --nsys-against=mixtral=PATH gives one" in said


def test_a_refresh_of_one_configuration_writes_its_baseline_alone(matrix: Project) -> None:
    said = matrix.command("baseline", "refresh", LLAMA, "--reason", "first", code=0)
    assert [path.name for path in (matrix.root / "baselines").iterdir()] == ["perf__gate@llama-8b"]
    assert "3 deselected" in said
    matrix.command("baseline", "refresh", FILE, "--trace=mixtral=perf/run/mixtral.sqlite", "--reason=x", code=0)
    assert sorted(path.name for path in (matrix.root / "baselines").iterdir()) == [
        "perf__gate@llama-8b",
        "perf__gate@mixtral",
    ]
    said = matrix.command("baseline", "refresh", f"{FILE}[mixtrl]", "--reason=x", code=2)
    assert "gate.nsys.yaml has no configuration 'mixtrl' (did you mean 'mixtral'?)" in said


def test_a_refresh_that_wrote_nothing_is_no_success(matrix: Project) -> None:
    given = ("--trace=llama-8b=perf/run/llama.sqlite", "--reason=x")
    assert "no baseline was written" in matrix.command("baseline", "refresh", MIXTRAL, *given, code=3)
    assert not (matrix.root / "baselines").exists()


def test_baselines_of_a_configuration_that_is_gone_are_orphans(stored: Project) -> None:
    assert "nothing to prune" in stored.command("baseline", "prune", FILE, code=0)
    text = GATE.replace("  mixtral: run/mixtral.sqlite\n", "").replace(", matrix: mixtral", "")
    stored.gate(text, FILE)
    said = stored.command("baseline", "prune", FILE, code=0)
    assert f"perf__gate@mixtral: its gate file {MIXTRAL} is gone; --orphans removes its 1 baseline" in said
    stored.gate("- overlap >= 40%", "other.nsys.yaml")
    assert "nothing to prune" in stored.command("baseline", "prune", "other.nsys.yaml", code=0)


def test_in_python_one_configuration_is_named(matrix: Project) -> None:
    matrix.gate(GATE.replace("- exposed_ns below baseline plus tolerance\n", ""), FILE)
    with open_run(matrix.root / "perf/run/llama.sqlite") as run:
        assert [verdict.good for verdict in judge(Path(matrix.root, LLAMA), run)] == [True]
        with pytest.raises(ArgumentMistake, match="has a matrix: it has llama-8b, mixtral"):
            judge(Path(matrix.root, FILE), run)
    said = matrix.command("compare", "perf/run/llama.sqlite", "perf/run/mixtral.sqlite", f"--gate={MIXTRAL}")
    assert MIXTRAL in said or "overlap" in said
    matrix.command("compare", "perf/run/llama.sqlite", "perf/run/mixtral.sqlite", f"--gate={FILE}", code=2)
    assert "stage2_f" in matrix.command("--view=overlap", "perf/run/llama.sqlite", "--convention", LLAMA, code=0)


def test_the_fixture_takes_one_configuration(stored: Project) -> None:
    stored.file(
        "test_own.py",
        f"""
        def test_one(nsys_gate):
            nsys_gate("overlap >= 70%", gate_file="{LLAMA}")

        def test_other(nsys_gate):
            nsys_gate("overlap >= 70%", gate_file="{MIXTRAL}")
        """,
    )
    said = stored.pytest("test_own.py", code=1)
    stored.result.assert_outcomes(passed=1, failed=1)
    assert "stage2_f  50%  >= 70%" in said


def test_the_cut_of_one_configuration_judges_as_its_trace(matrix: Project) -> None:
    matrix.gate(GATE.replace("convention: pithtrain\n", ""), FILE)
    matrix.command("cut", "perf/run/mixtral.sqlite", f"--gate={MIXTRAL}", "-o", "small.sqlite.gz", code=0)
    matrix.pytest("perf", "--nsys-trace=mixtral=small.sqlite.gz", "-k", "overlap", code=0)
    matrix.result.assert_outcomes(passed=1, skipped=1, deselected=3)
