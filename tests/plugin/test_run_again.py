"""Does an assertion count once, however often pytest reports it? ``--reruns`` does, and so may any plugin."""

import importlib.util
import re

import pytest

from tests.support.gates import Project
from tests.support.reports import by_name, report_of
from tests.support.sql import ask

RERUNS = importlib.util.find_spec("pytest_rerunfailures")
GATE = "- {id: red, assert: overlap >= 99%}\n- {id: green, assert: overlap >= 60%}"

AGAIN = """
    import copy
    import pytest

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        if call.when == "call":
            first = copy.copy(report)
            first.outcome = FIRST
            item.ihook.pytest_runtest_logreport(report=first)
        return report
"""


def once(project: Project, *arguments: str) -> None:
    """Run everything that counts, and count."""
    project.gated(GATE)
    options = ("--nsys-summary=s.md", "--nsys-html=p.html", "--nsys-history=h.db", "--nsys-annotate")
    found = report_of(project, "--nsys-trace=run.sqlite", "--junitxml=x.xml", "-v", *options, *arguments, code=1)
    said = project.result.stdout.str()
    assert found["counts"]["failed"] == found["counts"]["passed"] == 1
    assert list(by_name(found)) == ["red", "green"]
    lines = said.partition("= nsys gate =")[2]
    assert len(re.findall(r"^  failed  red ", lines, re.MULTILINE)) == 1
    assert len(re.findall(r"^  passed  green ", lines, re.MULTILINE)) == 1
    assert said.count("::error ") == 1
    assert (project.root / "s.md").read_text().count("#### failed: `red`") == 1
    junit = (project.root / "x.xml").read_text().partition('name="red"')[2].partition("</testcase>")[0]
    assert junit.count('name="nsys_outcome"') == 1
    assert ask(project.root / "h.db", "SELECT count(*) FROM verdicts") == [(2,)]


@pytest.mark.skipif(RERUNS is None, reason="pytest-rerunfailures is not installed")
def test_reruns(project: Project) -> None:
    once(project, "--reruns=2")


@pytest.mark.parametrize("first", ["rerun", "passed", "failed"])
def test_two_reports_of_one_test(project: Project, first: str) -> None:
    """As of a plugin that runs a test again, and of ``--dist each``: what was bad once is not good, but for a rerun."""
    project.file("conftest.py", AGAIN.replace("FIRST", repr(first)))
    if first != "failed":
        once(project)
        return
    project.gated(GATE)
    found = report_of(project, "--nsys-trace=run.sqlite", code=1)
    assert {name: a["state"] for name, a in by_name(found).items()} == {"red": "failed", "green": "failed"}


def test_an_assertion_that_holds_the_second_time(project: Project) -> None:
    project.file("conftest.py", AGAIN.replace("FIRST", "'rerun'"))
    project.gated("- {id: green, assert: overlap >= 60%}")
    found = report_of(project, "--nsys-trace=run.sqlite", code=0)
    assert (found["verdict"], found["good"]) == ("passed", True)
