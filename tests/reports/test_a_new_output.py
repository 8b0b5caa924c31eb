"""Is a new report one module that makes its text, and one entry in the table of settings? One is added from outside."""

from pathlib import Path

import pytest

from pytest_nsys.plugin.settings import SETTINGS, Setting
from pytest_nsys.reports.session.session import Session
from tests.support.gates import Project

WORDS = Setting(
    "nsys_words",
    "write the outcomes",
    "FILE",
    needs_value=True,
    plugin_module="reporting",
    report_function=f"{__name__}:words",
)


def words(session: Session) -> str:
    """The report: a line for each assertion."""
    return "".join(f"{record.name}: {record.outcome}, {record.worst['value']}\n" for record in session.records)


@pytest.fixture(autouse=True)
def entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, WORDS.name, WORDS)


def test_it_is_written_checked_and_told_like_the_others(project: Project) -> None:
    project.gated("- exposed_ns <= 300us\n- overlap >= 90%\n")
    said = project.pytest("--nsys-trace=run.sqlite", "--nsys-words=words.txt", "--nsys-json=report.json", code=1)
    assert Path(project.root, "words.txt").read_text() == "exposed_ns <=: passed, 200 us\noverlap >=: failed, 80%\n"
    assert "nsys: wrote words.txt" in said
    said = project.pytest("--nsys-trace=run.sqlite", "--nsys-words=run.sqlite", code=4)
    assert "--nsys-words=run.sqlite: is one of the traces: give another file" in said
    assert "--nsys-words is empty: write --nsys-words=FILE" in project.pytest("--nsys-words=", code=4)
