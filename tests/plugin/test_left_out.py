"""Is everything that was found and got no verdict named, and with it who left it out?"""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from pytest_nsys.plugin.base_ini import narrowing
from pytest_nsys.plugin.left_out import found_files
from pytest_nsys.reports.session.annotations import annotation_lines
from pytest_nsys.reports.session.digest import By, LeftOut
from pytest_nsys.reports.session.markdown import summary
from tests.support.gates import Project
from tests.support.reports import checked, digest, record, report_of

GATE = (
    "- {id: alpha, assert: overlap >= 60%}\n- {id: beta, assert: overlap >= 60%}\n- {id: gamma, assert: overlap >= 60%}"
)
TRACE = "--nsys-trace=run.sqlite"


@pytest.fixture
def gates(project: Project) -> Project:
    project.gated(GATE)
    return project


def left_out(project: Project, *arguments: str, code: int = 0) -> list[tuple[str | None, str, str]]:
    """Name, by whom and why, of everything that got no verdict."""
    found = report_of(project, TRACE, *arguments, code=code)
    return [(one["name"], one["by"], one["why"]) for one in found["left_out"]]


def test_nothing(gates: Project) -> None:
    assert left_out(gates) == []


@pytest.mark.parametrize(
    "words",
    [
        ["-k", "alpha"],
        ["-kalpha"],
        ["-qk", "alpha"],
        ["--deselect=gate.nsys.yaml::beta", "--deselect", "gate.nsys.yaml::gamma"],
    ],
)
def test_by_the_arguments(gates: Project, words: list[str]) -> None:
    why = ("arguments", "deselected by the arguments")
    assert left_out(gates, *words) == [("beta", *why), ("gamma", *why)]
    assert "nsys: left out" not in gates.result.stdout.str()


@pytest.mark.parametrize("words", ["-k 'not gamma'", "--deselect gate.nsys.yaml::gamma", "-m 'not nsys or a'"])
def test_by_the_environment(gates: Project, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    gates.gate(GATE.replace("id: alpha,", "id: alpha, marks: [a],").replace("id: beta,", "id: beta, marks: [a],"))
    gates.file("pytest.ini", "[pytest]\nmarkers =\n    a: a mark\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", words)
    assert left_out(gates) == [("gamma", "environment", "deselected by PYTEST_ADDOPTS")]
    assert "nsys: left out: gate.nsys.yaml: 1 assertion, deselected by PYTEST_ADDOPTS" in gates.result.stdout.str()
    assert left_out(gates, "-k", "alpha or beta or gamma") == (
        [] if words.startswith("-k") else [("gamma", "environment", ANY)]
    )


DROPS = {
    "all hooks": "def pytest_collection_modifyitems(items):",
    "the first": "@pytest.hookimpl(tryfirst=True)\n    def pytest_collection_modifyitems(items):",
    "the last": "@pytest.hookimpl(trylast=True)\n    def pytest_collection_modifyitems(items):",
    "around all": "@pytest.hookimpl(wrapper=True)\n    def pytest_collection_modifyitems(items):\n        yield",
    "politely": "@pytest.hookimpl(trylast=True)\n    def pytest_collection_modifyitems(config, items):"
    "\n        config.hook.pytest_deselected(items=items[2:])",
}


@pytest.mark.parametrize("how", DROPS)
@pytest.mark.parametrize("words", [[], ["-k", "not alpha"]])
def test_by_a_conftest(gates: Project, how: str, words: list[str]) -> None:
    """Also where the arguments leave out others, so that the one does not hide behind the other."""
    gates.file("conftest.py", f"import pytest\n\n    {DROPS[how]}\n        items.pop()\n".replace("\n    ", "\n"))
    own = [("alpha", "arguments", "deselected by the arguments")] if words else []
    assert left_out(gates, *words) == [*own, ("gamma", "repository", "dropped by a conftest.py or a plugin")]


@pytest.mark.parametrize(
    ("conftest", "why"),
    [
        (
            "import pytest\ndef pytest_runtest_setup(item):\n    if item.name == 'gamma': pytest.skip('slow')",
            "skipped: slow",
        ),
        ("def pytest_runtest_protocol(item):\n    return True if item.name == 'gamma' else None", "not run"),
        ("import pytest\ndef pytest_runtest_setup(item):\n    if item.name == 'gamma': pytest.exit('', 0)", "not run"),
    ],
)
def test_selected_and_not_judged(gates: Project, conftest: str, why: str) -> None:
    gates.file("conftest.py", conftest)
    assert left_out(gates) == [("gamma", "repository", why)]


def test_after_a_failure_that_ends_the_session(gates: Project) -> None:
    gates.gate("- {id: red, assert: overlap >= 99%}\n- {id: next, assert: overlap >= 60%}")
    assert left_out(gates, "-x", code=1) == [("next", "session", "the session ended before it")]


IGNORES = "def pytest_ignore_collect(collection_path):\n    return collection_path.name == 'perf' or None"


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("conftest.py", "collect_ignore = ['perf/other.nsys.yaml']", "collect_ignore of conftest.py"),
        ("conftest.py", "collect_ignore_glob = ['perf/*']", "collect_ignore_glob of conftest.py"),
        ("conftest.py", IGNORES, "pytest_ignore_collect of conftest.py"),
        ("pytest.ini", "[pytest]\nnorecursedirs = perf\n", "norecursedirs has perf"),
        ("pytest.ini", "[pytest]\nnorecursedirs = */p*f\n", "norecursedirs has */p*f"),
    ],
)
def test_a_file_that_the_repository_hides(gates: Project, file: str, text: str, why: str) -> None:
    gates.gate(GATE, "perf/other.nsys.yaml")
    gates.file(file, text)
    found = report_of(gates, TRACE, code=0)
    assert found["left_out"] == [
        {"file": "perf/other.nsys.yaml", "name": None, "by": "repository", "why": f"not collected: {why}"}
    ]
    assert found["headline"].startswith("All 3 assertions passed; ")
    assert found["headline"].endswith("; left out: 1 whole gate file")


def test_a_file_that_options_hide(gates: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    gates.gate(GATE, "perf/other.nsys.yaml")
    assert left_out(gates, "--ignore=perf") == [(None, "arguments", "ignored by the arguments")]
    monkeypatch.setenv("PYTEST_ADDOPTS", "--ignore-glob=*/other*")
    assert left_out(gates) == [(None, "environment", "ignored by PYTEST_ADDOPTS")]
    monkeypatch.delenv("PYTEST_ADDOPTS")
    gates.file("pytest.ini", "[pytest]\naddopts = --ignore=perf -k 'not gamma'\n")
    assert left_out(gates) == [
        ("gamma", "repository", "deselected by addopts in the ini file"),
        (None, "repository", "ignored by addopts in the ini file"),
    ]


def test_by_workers(gates: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    gates.gate(GATE, "perf/other.nsys.yaml")
    gates.file("conftest.py", "def pytest_collection_modifyitems(items): items.pop()\ncollect_ignore = ['perf']")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--deselect=gate.nsys.yaml::alpha")
    gates.pytest_in_a_process("-n2", TRACE, "--nsys-json=report.json", code=0)
    found = checked(gates.root / "report.json")
    assert [(one["name"], one["by"]) for one in found["left_out"]] == [
        ("alpha", "environment"),
        ("gamma", "repository"),
        (None, "repository"),
    ]


def test_a_refresh_judges_nothing_and_leaves_nothing_out(gates: Project) -> None:
    gates.gate("- {id: alpha, assert: exposed_ns <= baseline + 5%}\n- {id: beta, assert: overlap >= 60%}")
    assert left_out(gates, "--nsys-update-baselines", "--nsys-reason=first", "-k", "alpha") == []


def test_what_is_found(gates: Project, request: pytest.FixtureRequest) -> None:
    """As pytest finds it: through links, but neither in hidden folders nor in circles."""
    root = gates.root
    for name in ("perf/x.nsys.yaml", ".git/x.nsys.yaml", "venv/x.nsys.yaml", "env/x.nsys.yaml", "real/deep/y.nsys.yml"):
        gates.gate(GATE, name)
    gates.file("env/pyvenv.cfg", "")
    (root / "perf" / "again").symlink_to(root)
    (root / "perf" / "linked.nsys.yaml").symlink_to(root / "gate.nsys.yaml")
    config = gates.pytester.parseconfig(str(root))
    request.addfinalizer(config._ensure_unconfigure)
    found = [path.relative_to(root).as_posix() for path in found_files(config)]
    assert sorted(found) == ["gate.nsys.yaml", "perf/linked.nsys.yaml", "perf/x.nsys.yaml", "real/deep/y.nsys.yml"]


def test_which_words_leave_tests_out() -> None:
    words = ["-p", "no:x", "-xk", "a", "--junitxml", "-k.xml", "-mb", "--ignore=x", "--ignore", "y", "perf", "-n2"]
    found = narrowing(words)
    assert (found["markexpr"], found["ignore"], found["deselect"]) == ("b", ["x", "y"], None)
    assert narrowing(["-xk", "a"])["keyword"] == "a"


def test_how_it_is_told() -> None:
    many = tuple(
        LeftOut("perf/g.nsys.yaml", f"a{n}", By.ENVIRONMENT, "deselected by PYTEST_ADDOPTS") for n in range(12)
    )
    found = digest(record("x", "passed"), left_out=(*many, LeftOut("h.nsys.yaml", "", By.ARGUMENTS, "ignored")))
    assert found.headline == "1 assertion: 1 passed; left out: 12 assertions, 1 whole gate file"
    text = summary(found)
    assert "### Left out\n" in text
    assert r"- `perf/g.nsys.yaml`: 12 assertions, deselected by PYTEST\_ADDOPTS: `a0`, `a1`" in text
    assert "`a9`, 2 more\n- `h.nsys.yaml`: the whole file, ignored\n" in text
    (line,) = annotation_lines(found)
    assert line.startswith("::warning file=perf/g.nsys.yaml,title=nsys gate%3A left out::12 assertions, deselected")
