"""Does a gate say the same beside other plugins, and do their reports have its items?

Needs the group ``compat``; a plugin that is not installed is skipped. All that are installed are active in every run.
What the Python extension of VS Code asks of items is asked here by a plugin of the test's own, as it is not published.
"""

import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.gates import Project
from tests.support.reports import by_name, checked

GATE = """
    - {id: green, assert: overlap >= 60%}
    - {id: red, assert: overlap >= 99%}
    - {id: warned, assert: overlap >= 99%, severity: warn}
    - {id: expected, assert: overlap >= 99%, xfail: known}
    - {id: "of a stage[stage=stage2_f] (ñ)", assert: stage2_f overlap >= 60%}
"""
OUTCOMES = {
    "green": "passed",
    "red": "failed",
    "warned": "failed",
    "expected": "failed",
    "of a stage[stage=stage2_f] (ñ)": "passed",
}
"""Of each assertion the verdict."""

STATES = {**OUTCOMES, "warned": "passed", "expected": "skipped"}
"""What pytest makes of it; a test of Python stands beside them."""

IN_PYTHON = """
    def test_in_python(nsys_gate):
        nsys_gate("overlap >= 60%")
"""


@pytest.fixture
def gated(project: Project) -> Project:
    project.gate(GATE, "perf/step.nsys.yaml")
    project.file("perf/test_step.py", IN_PYTHON)
    project.trace()
    project.file("pytest.ini", "[pytest]\nnsys_trace = run.sqlite\n")
    return project


def judged(project: Project, *arguments: str) -> dict[str, str]:
    """The verdicts of a run beside the other plugins, which ends red, and says each once."""
    report = project.root / "report.json"
    report.unlink(missing_ok=True)
    said = project.pytest_in_a_process("-p", "no:cacheprovider", f"--nsys-json={report}", "-v", *arguments, code=1)
    found = by_name(checked(report))
    lines = said.partition(" nsys gate =")[2]
    for name in found:
        assert len(re.findall(rf"^ *\w+ +{re.escape(name)} +80%", lines, re.MULTILINE)) == 1, said
    return {name: one["outcome"] for name, one in found.items()}


# -- reports of other plugins: by the item's name, its state


def of_json_report(folder: Path) -> dict[str, str]:
    found = json.loads((folder / "other.json").read_text(encoding="utf-8"))["tests"]
    red = next(test for test in found if test["nodeid"].endswith("::red"))
    assert "80% < 99%" in red["call"]["longrepr"]
    return {test["nodeid"].partition("::")[2]: test["outcome"].replace("xfailed", "skipped") for test in found}


def of_html(folder: Path) -> dict[str, str]:
    text = (folder / "other.html").read_text(encoding="utf-8")
    blob = re.search(r'data-jsonblob="([^"]*)"', text)
    assert blob is not None
    tests: dict[str, list[dict[str, Any]]] = json.loads(blob[1].replace("&#34;", '"').replace("&gt;", ">"))["tests"]
    states = {name.partition("::")[2]: runs[-1]["result"].lower() for name, runs in tests.items()}
    return {name: state.replace("xfailed", "skipped") for name, state in states.items()}


def of_allure(folder: Path) -> dict[str, str]:
    found = [json.loads(path.read_text(encoding="utf-8")) for path in (folder / "allure").glob("*-result.json")]
    red = next(test for test in found if test["name"] == "red")
    assert "80% < 99%" in red["statusDetails"]["message"]
    return {test["name"]: test["status"] for test in found}


class Other(NamedTuple):
    """Another plugin: its module, how it is asked for, and what its own report says."""

    module: str
    options: Sequence[str] = ()
    states: Callable[[Path], dict[str, str]] | None = None


OTHERS = {
    "allure": Other("allure_pytest", ["--alluredir=allure"], of_allure),
    "cov": Other("pytest_cov", ["--cov=perf", "--cov-report=term"]),
    "html": Other("pytest_html", ["--html=other.html", "--self-contained-html"], of_html),
    "json-report": Other("pytest_jsonreport", ["--json-report", "--json-report-file=other.json"], of_json_report),
    "randomly": Other("pytest_randomly", ["-prandomly", "--randomly-seed=3"]),
    "rerunfailures": Other("pytest_rerunfailures", ["--reruns=1"]),
    "sugar": Other("pytest_sugar", ["--force-sugar"]),
    "timeout by signal": Other("pytest_timeout", ["--timeout=60", "--timeout-method=signal"]),
    "timeout by thread": Other("pytest_timeout", ["--timeout=60", "--timeout-method=thread"]),
}


def need(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: pip install --group compat")


@pytest.mark.parametrize("name", OTHERS)
def test_the_same_verdicts_beside(gated: Project, name: str) -> None:
    other = OTHERS[name]
    need(other.module)
    assert judged(gated, *other.options) == OUTCOMES
    if other.states is not None:
        assert other.states(gated.root) == {**STATES, "test_in_python": "passed"}


def test_split_judges_each_assertion_in_one_group(gated: Project) -> None:
    need("pytest_split")
    found: dict[str, str] = {}
    for group in ("1", "2"):
        report = gated.root / "report.json"
        gated.pytest_in_a_process("-p", "no:randomly", "--splits=2", f"--group={group}", f"--nsys-json={report}")
        part = checked(report)
        own = {name: one["outcome"] for name, one in by_name(part).items()}
        assert not found.keys() & own.keys()
        found |= own
    assert found == OUTCOMES


# -- VS Code: its Test Explorer has a tree of what a run with --collect-only finds, and runs nodes by their absolute ids

EXPLORER = """
    import json
    import pathlib
    import pytest

    told, errors, paths = {}, [], {}

    def absolute(nodeid, path):
        return "::".join([str(path), *nodeid.split("::")[1:]])

    def pytest_exception_interact(node, call, report):
        errors.append(call.excinfo.exconly())
        told.setdefault(absolute(node.nodeid, node.path), ["error", report.longreprtext])

    def pytest_runtest_protocol(item):
        paths[item.nodeid] = item.path

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(report):
        if report.when == "call" or (report.when == "setup" and report.skipped):
            said = report.longreprtext if report.failed else None
            told.setdefault(absolute(report.nodeid, paths[report.nodeid]), [report.outcome, said])
        return (yield)

    def pytest_sessionfinish(session):
        tree = [
            {
                "id": absolute(item.nodeid, item.path),
                "name": item.name,
                "line": item.location[1] + 1,
                "file": str(item.parent.path),
                "function of a parameter": hasattr(item, "callspec"),
                "below the session": item.path.is_relative_to(session.path),
            }
            for item in session.items
        ]
        found = {"tree": tree, "told": told, "errors": errors}
        pathlib.Path(session.config.rootpath, "explorer.json").write_text(json.dumps(found))
"""


def explored(project: Project, *arguments: str, code: int = 0) -> dict[str, Any]:
    """What the Test Explorer is told."""
    project.pytest("-p", "explorer", "-p", "no:randomly", f"--rootdir={project.root}", *arguments, code=code)
    found: dict[str, Any] = json.loads((project.root / "explorer.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def explorer(gated: Project) -> Project:
    gated.file("explorer.py", EXPLORER)
    gated.pytester.syspathinsert()
    return gated


def test_the_test_explorer_has_each_assertion_at_its_line(explorer: Project) -> None:
    gate = explorer.root / "perf/step.nsys.yaml"
    found = explored(explorer, "--collect-only")
    tree = [one for one in found["tree"] if one["file"] == str(gate)]
    assert [one["name"] for one in tree] == list(OUTCOMES)
    assert [one["id"] for one in tree] == [f"{gate}::{name}" for name in OUTCOMES]
    assert [one["line"] for one in tree] == [3, 4, 5, 6, 7]
    assert all(one["below the session"] and not one["function of a parameter"] for one in tree)
    assert found["errors"] == []


def test_the_test_explorer_runs_assertions_by_their_ids(explorer: Project) -> None:
    ids = [one["id"] for one in explored(explorer, "--collect-only")["tree"] if ".nsys.yaml" in one["id"]]
    for chosen in (ids, ids[:1], ids[-1:]):
        told = explored(explorer, *chosen, code=1 if len(chosen) > 1 else 0)["told"]
        assert list(told) == chosen
        assert {id.partition("::")[2]: how for id, (how, _) in told.items()} == {
            name: state for name, state in STATES.items() if any(id.endswith(f"::{name}") for id in chosen)
        }
    assert explored(explorer, ids[1], code=1)["told"][ids[1]][1].startswith("80% < 99%, rank 0 stage2_f\n")


def test_the_test_explorer_is_told_what_is_wrong_with_a_gate_file_and_a_trace(explorer: Project) -> None:
    explorer.gate("- overlaps >= 60%", "perf/other.nsys.yaml")
    found = explored(explorer, "--collect-only", code=2)
    assert "perf/other.nsys.yaml:3:3: unknown metric 'overlaps'" in found["errors"][0]
    assert len(found["tree"]) == len(OUTCOMES) + 1
    (explorer.root / "run.sqlite").write_bytes(b"no trace")
    green = f"{explorer.root / 'perf/step.nsys.yaml'}::green"
    how, said = explored(explorer, green, code=1)["told"][green]
    assert how == "error"
    assert said.startswith("error: run.sqlite: is not a SQLite file")


# -- a log of reports, as pytest-reportlog writes it

LOGS = """
    import json
    import pytest

    class Logs:
        def __init__(self, config):
            self.config = config

        def pytest_runtest_logreport(self, report):
            hook = self.config.hook
            data = hook.pytest_report_to_serializable(config=self.config, report=report)
            line = json.dumps(data)
            written = json.loads(line) | {"nsys_of_a_file": "x"}
            read = hook.pytest_report_from_serializable(config=self.config, data=written)
            assert (read.nodeid, read.nsys_of_a_file) == (report.nodeid, "x")
            with open(self.config.rootpath / "log.jsonl", "a") as log:
                log.write(line + "\\n")

    def pytest_configure(config):
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Logs(config))
"""


def test_a_log_of_reports_is_json_and_has_the_properties(gated: Project) -> None:
    gated.file("conftest.py", LOGS)
    assert judged(gated, "-p", "no:xdist") == OUTCOMES
    lines = [json.loads(line) for line in (gated.root / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    (red,) = (one for one in lines if one["nodeid"].endswith("::red") and one["when"] == "call")
    assert dict(red["user_properties"])["nsys_outcome"] == "failed"
    assert not [name for name in red if name.startswith("nsys")]
