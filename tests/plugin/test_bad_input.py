"""Does every bad input end in one clear line that says what to do: never green, no traceback, nothing destroyed?"""

import pytest

from tests.support.gates import Project

GATE = "assertions:\n  - overlap > 0%\n  - exposed_ns <= baseline + 1s"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("absent.sqlite", "absent.sqlite: there is no such file or folder"),
        ("nodes", "nodes: holds no trace itself; its folder node0 does: one run is one folder"),
        ("steps", "steps: holds no trace itself; its folder five does: one run is one folder"),
    ],
)
def test_a_path_without_a_trace(project: Project, value: str, said: str) -> None:
    """What else is none: tests/cli/test_cli_errors.py."""
    project.gated(GATE, name="nodes/node0/run.sqlite")
    project.file("steps/five/rank0.json", '{"schemaVersion": 1, "traceEvents": []}')
    files = project.files()
    assert f"ERROR: {project.root}/{said}\n" in project.pytest(f"--nsys-trace={value}", code=4)
    assert project.files() == files


def test_the_short_summary_begins_with_what_is_wrong(project: Project) -> None:
    """And not with the name of an exception of pytest; in 80 columns nothing else would be left."""
    project.gate("trace: absent.sqlite\n" + GATE)
    printed = project.pytest("--nsys-strict", code=1)
    assert "ERROR gate.nsys.yaml::overlap > - error: " in printed
    assert printed.count("\nerror: absent.sqlite: ") == 1


def test_the_short_summary_has_one_line_of_a_red(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where pytest cuts nothing: in CI it would print the whole text of a failure a second time."""
    monkeypatch.setenv("CI", "1")
    project.gated("assertions:\n  - overlap > 99%\n  - exposed_ns <= baseline + 1s")
    summary = project.pytest("--nsys-trace=run.sqlite", code=1).partition("short test summary info")[2]
    failed, error, _ = summary.splitlines()[1:]
    assert failed == "FAILED gate.nsys.yaml::overlap > - 80% <= 99%, rank 0 stage2_f"
    assert error.startswith("FAILED gate.nsys.yaml::exposed_ns <= - ")
    place = f"{project.root / 'gate.nsys.yaml'}:3: 80% <= 99%, rank 0 stage2_f"
    assert place in project.pytest("--nsys-trace=run.sqlite", "--tb=line", code=1).splitlines()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"SQLite format 3\x00" + bytes(range(32)), "1:16: a control character (U+0000)"),
        (b"version: 1\nassertions: !!python/object/apply:os.getcwd []\n", ":2:13: "),
    ],
)
def test_a_gate_file_that_cannot_be_read(project: Project, content: bytes, what: str) -> None:
    """What else is none: tests/gates/test_gate_file_mistakes.py."""
    project.gate("- overlap >= 60%", "good.nsys.yaml")
    (project.root / "bad.nsys.yaml").write_bytes(content)
    project.trace()
    files = project.files()
    said = project.pytest("--nsys-trace=run.sqlite", code=2)
    assert [line for line in said.splitlines() if line.startswith("bad.nsys.yaml:") and what in line], said
    assert "passed" not in said
    project.pytest("--nsys-trace=run.sqlite", "--nsys-update-baselines", "--nsys-reason=r", code=2)
    assert project.files() == files


def test_a_gate_file_that_is_a_folder(project: Project) -> None:
    (project.root / "bad.nsys.yaml").mkdir()
    project.pytest("bad.nsys.yaml", code=5)


def test_a_gate_file_that_leads_nowhere(project: Project) -> None:
    (project.root / "bad.nsys.yaml").symlink_to(project.root / "absent")
    assert "no tests ran" in project.pytest(code=5)
