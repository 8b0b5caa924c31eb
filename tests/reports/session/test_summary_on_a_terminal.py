"""Does the summary of a gate fit a terminal, and does a log keep a line for each assertion?"""

import os
import pty
import re
import subprocess
import sys
from fractions import Fraction

import pytest

from pytest_nsys.gates.model import BaselineLimit, JudgedRow, Outcome, Tolerance
from pytest_nsys.reports.session.summary import render_terminal_summary
from tests.support.gates import Project, heard
from tests.support.reports import record

GATE = """
tolerance: {rel: 5%, abs: 20us}
assertions:
  - stage2 overlap >= 60%
  - exposed_ns below baseline plus tolerance
  - {assert: stage9 overlap >= 60%, severity: warn}
"""


def said_on_a_terminal(project: Project, columns: int) -> list[str]:
    """The summary's lines, as a terminal of that width is told."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "PY_COLORS": "0", "TERM": "dumb"}
    words = [sys.executable, "-m", "pytest", "--nsys-trace=run.sqlite"]
    done = subprocess.Popen(words, cwd=project.root, env=environment, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = heard(ours)
    os.close(ours)
    assert done.wait() == 1, said
    parts = re.split(r"=+ (?:nsys gate|warnings summary|short test summary info) =+", said.replace("\r\n", "\n"))
    return parts[1].splitlines()


@pytest.fixture
def red(project: Project) -> Project:
    project.gated(GATE, name="base.sqlite")
    project.gate(GATE.replace("stage9", "stage4"))
    project.refresh("--nsys-trace=base.sqlite")
    project.gated(GATE, {(0, "stage2_f"): 700})
    return project


@pytest.mark.parametrize("columns", [60, 80, 100, 150])
def test_it_fits(columns: int) -> None:
    where: dict[str, int | str] = {"rank": 0, "stage": "stage2_f"}
    low = JudgedRow(where, Fraction(3, 10), Fraction(6, 10), Outcome.FAILED, margin=Fraction(-3, 10))
    slow = JudgedRow(where, 700_000, 220_000, Outcome.FAILED, 200_000, tolerance=20_000, margin=-480_000)
    within = BaselineLimit(Tolerance(Fraction(5, 100), {"ns": Fraction(20_000)}))
    records = [
        record("stage2 overlap >= 60%", judged=[low], unit="%", comparator=">=", rows=4),
        record("exposed_ns below baseline plus tolerance", judged=[slow], unit="ns", limit=within, rows=4),
        record("stage9 overlap >= 60%", "no data", message="no stage is like stage9*; there are stage2_f, stage4_f"),
    ]
    lines = render_terminal_summary(records, width=columns)
    assert max(map(len, lines)) <= columns
    together = " ".join(" ".join(lines).replace(",", " ").split())
    for cell in ("30%", ">= 60%", "−30 pp", "rank 0 stage2_f", "<= 220 us", "700 us", "stage9"):
        assert cell in together, together
    assert "max(5%" not in together
    more = " ".join(" ".join(render_terminal_summary(records, verbose=True, width=columns)).split())
    for cell in ("<= 220 us (baseline + max(5%, 20us))", "≥ 20 us (noise not measured)", "worst of 4"):
        assert cell in more, more


def test_a_terminal_is_known_by_its_width(red: Project) -> None:
    table = [line for line in said_on_a_terminal(red, 80) if not line.startswith("  next:")]
    assert sum(line.startswith("  failed  ") for line in table) == 2
    assert max(map(len, table)) <= 80


def test_nothing_is_folded_where_it_fits(red: Project) -> None:
    wide = said_on_a_terminal(red, 240)
    (lost,) = (line for line in wide if line.startswith("no data: "))
    assert "no row has stage stage9" in lost
    assert sum(line.startswith("  failed") and "rank 0 stage2_f" in line for line in wide) == 2
