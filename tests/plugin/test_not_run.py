"""Is a checkout without traces one skip for each gate file, that is told, and red wherever traces are expected?"""

import re
from xml.etree import ElementTree

import pytest

from tests.support.gates import ACCEPTING, Project
from tests.support.reports import checked, report_of

TWO = "- {id: hidden, assert: overlap >= 60%}\n- {id: short, assert: window_ns <= 16ms}"
OWN = "trace: ../traces/run.sqlite\nassertions:\n  - overlap >= 60%\n  - window_ns <= 16ms"
WHY = "no trace given (--nsys-trace=PATH, or nsys_trace in the ini file)"
OWN_NAMES = ["overlap >=", "window_ns <="]
OWN_WHY = f"{WHY}; trace traces/run.sqlite of the gate file does not exist"


@pytest.fixture
def checkout(project: Project) -> Project:
    """Two gate files, one of which names its trace, beside an ordinary test; no trace is there."""
    project.gate(TWO, "perf/any.nsys.yaml")
    project.gate(OWN, "perf/own.nsys.yaml")
    project.file("test_other.py", "def test_other():\n    pass\n")
    return project


def test_a_gate_file_is_one_skip_that_says_why(checkout: Project) -> None:
    said = checkout.pytest("-rs", code=0)
    checkout.result.assert_outcomes(passed=1, skipped=2)
    for line in (
        f"not run: 2 gate files, {WHY}",
        "  perf/any.nsys.yaml: 2 assertions",
        "  perf/own.nsys.yaml: 2 assertions; trace traces/run.sqlite of the gate file does not exist",
        f"SKIPPED [1] perf/any.nsys.yaml:3: {WHY}",
        f"SKIPPED [1] perf/own.nsys.yaml:4: {OWN_WHY}",
    ):
        assert line in said.splitlines()
    assert "perf/any.nsys.yaml s " in said
    assert "[100%]" in said


@pytest.mark.parametrize("quiet", [("-q",), ("-q", "-q"), ("-p", "no:terminalreporter")])
def test_nothing_but_skips_is_no_session_without_tests(checkout: Project, quiet: tuple[str, ...]) -> None:
    checkout.pytest("perf", *quiet, code=0)


def test_each_assertion_is_a_test_of_its_own_all_the_same(checkout: Project) -> None:
    said = checkout.pytest("perf/any.nsys.yaml", "-vv", code=0)
    assert re.search(rf"any\.nsys\.yaml::hidden SKIPPED +\({re.escape(WHY)}\)", said.replace("\n", " "))
    assert re.search(r"any\.nsys\.yaml::short SKIPPED", said)
    cases = checkout.cases(code=0)
    assert {name: case.state for name, case in cases.items() if name != "test_other"} == dict.fromkeys(
        ("hidden", "short", "overlap >=", "window_ns <="), "skipped"
    )
    assert f"perf/any.nsys.yaml:4: {WHY}" in cases["short"].text
    assert "nsys_outcome" not in cases["short"].properties


@pytest.mark.parametrize(
    ("arguments", "skips"),
    [
        (("perf",), 2),
        (("-k", "short"), 1),
        (("perf/any.nsys.yaml::short",), 1),
        (("perf/any.nsys.yaml::short", "perf/any.nsys.yaml::hidden"), 1),
        (("perf", "-W", "error", "-x", "--strict-markers"), 2),
        (("perf", "-p", "cacheprovider", "--lf"), 2),
        (("-m", "not nsys"), 0),
    ],
)
def test_what_is_selected_is_skipped(checkout: Project, arguments: tuple[str, ...], skips: int) -> None:
    checkout.pytest(*arguments, code=0)
    assert checkout.result.parseoutcomes().get("skipped", 0) == skips


def test_from_a_folder_below(checkout: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout.root / "perf")
    said = checkout.pytest("--rootdir=..", code=0)
    assert "  own.nsys.yaml: 2 assertions; trace ../traces/run.sqlite of the gate file does not exist" in said
    checkout.result.assert_outcomes(skipped=2)


def test_workers_make_it_no_more_skips(checkout: Project) -> None:
    pytest.importorskip("xdist")
    said = checkout.pytest_in_a_process("-n", "2", "--dist=load", code=0)
    checkout.result.assert_outcomes(passed=1, skipped=2)
    assert f"not run: 2 gate files, {WHY}" in said


def test_to_other_plugins_each_assertion_is_skipped(checkout: Project) -> None:
    """As pytest-json-report asks: what has no category would pass with its tear-down."""
    checkout.file(
        "conftest.py",
        """
        asked = []

        def pytest_configure(config):
            class Other:
                def pytest_runtest_logreport(self, report):
                    if report.when == "setup":
                        asked.append(config.hook.pytest_report_teststatus(report=report, config=config)[0])
            config.pluginmanager.register(Other())

        def pytest_unconfigure():
            print("asked", *asked)
        """,
    )
    assert "asked skipped skipped skipped skipped" in checkout.pytest("perf", "-s", code=0)
    checkout.result.assert_outcomes(skipped=2)


# -- where it is red


@pytest.mark.parametrize("value", ["true", "1", "yes", "TRUE"])
def test_ci_expects_traces(checkout: Project, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CI", value)
    cases = checkout.cases(code=1)
    assert sorted(case.state for case in cases.values()) == ["error"] * 4 + ["passed"]
    what = "no trace: give --nsys-trace=PATH, or `trace:` in the gate file, or nsys_trace in the ini file"
    assert f"error: {what}" in cases["hidden"].text
    assert f"error: {what}" in cases["short"].text
    assert cases["short"].properties["nsys_message"] == what
    assert "run.sqlite: there is no such file or folder" in cases["overlap >= 60%"].text


@pytest.mark.parametrize("value", ["", " ", "0", "false", "False"])
def test_a_person_who_sets_ci_so_is_none(checkout: Project, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CI", value)
    assert "not run: 2 gate files" in checkout.pytest(code=0)


@pytest.mark.parametrize(
    ("ini", "arguments", "code"),
    [
        ("", ("--nsys-strict",), 1),
        ("nsys_strict = true", (), 1),
        ("nsys_strict = true", ("-o", "nsys_strict=false"), 0),
        ("nsys_strict = false", ("--nsys-strict",), 1),
        ("nsys_trace = absent.sqlite", (), 1),
        ("", ("--nsys-trace=absent.sqlite",), 4),
        ("", ACCEPTING, 1),
        ("", ("--nsys-against=made.sqlite",), 1),
        ("nsys_baseline_dir = baselines", (), 0),
    ],
)
def test_who_speaks_of_traces_expects_them(checkout: Project, ini: str, arguments: tuple[str, ...], code: int) -> None:
    checkout.file("pytest.ini", f"[pytest]\n{ini}\n")
    checkout.trace("made.sqlite")
    assert ("not run" in checkout.pytest(*arguments, code=code)) == (code == 0)


def test_a_word_that_is_no_flag(checkout: Project) -> None:
    assert "invalid truth value 'maybe'" in checkout.pytest("-o", "nsys_strict=maybe", code=4)


@pytest.mark.parametrize(
    ("gate", "there", "said"),
    [
        (
            "trace: [a.sqlite, b.sqlite]\nassertions:\n  - overlap >= 60%",
            "perf/a.sqlite",
            "b.sqlite: there is no such fi",
        ),
        (OWN, "traces/run.sqlite", "is not a SQLite file"),
        (f"trace: {'a' * 300}\nassertions:\n  - overlap >= 60%", "", "cannot be read: File name too long"),
    ],
    ids=["one capture of several", "one that cannot be read", "a path that cannot be looked at"],
)
def test_what_is_there_is_no_skip(checkout: Project, gate: str, there: str, said: str) -> None:
    checkout.gate(gate, "perf/own.nsys.yaml")
    if there:
        checkout.file(there, "version https://git-lfs.github.com/spec/v1\n")
    assert said in checkout.pytest("perf/own.nsys.yaml", code=1)


@pytest.mark.parametrize(
    ("there", "code"), [("traces/.gitkeep", 0), ("traces/README.md", 1), ("traces/.gitkeep traces/step.txt", 1)]
)
def test_a_folder_that_git_keeps_empty_is_not_there(checkout: Project, there: str, code: int) -> None:
    checkout.gate("trace: ../traces\nassertions:\n  - overlap >= 60%", "perf/own.nsys.yaml")
    for name in there.split():
        checkout.file(name, "")
    checkout.pytest("perf/own.nsys.yaml", code=code)


def test_a_trace_that_an_earlier_test_writes_is_judged(checkout: Project) -> None:
    source = checkout.trace("made.sqlite")
    checkout.file(
        "a/test_step.py",
        f"""
        import pathlib, shutil
        def test_step():
            pathlib.Path({str(checkout.root)!r}, "traces").mkdir()
            shutil.copy({str(source)!r}, pathlib.Path({str(checkout.root)!r}, "traces", "run.sqlite"))
        """,
    )
    checkout.pytest("a", "perf/own.nsys.yaml", code=0)
    checkout.result.assert_outcomes(passed=3)


def test_what_was_measured_outside_of_a_trace_is_judged(checkout: Project) -> None:
    checkout.file("perf/m.json", '[{"metric": "mfu", "value": 46, "unit": "%"}]')
    checkout.gate("measurements: m.json\nassertions:\n  - measured mfu >= 45%", "perf/alone.nsys.yaml")
    checkout.gate(
        "measurements: m.json\nassertions:\n  - measured mfu >= 45%\n  - overlap >= 60%", "perf/own.nsys.yaml"
    )
    said = checkout.pytest("perf", code=0)
    checkout.result.assert_outcomes(passed=1, skipped=2)
    assert "perf/alone.nsys.yaml: " in said
    assert "  perf/own.nsys.yaml: 2 assertions" in said.splitlines()
    (checkout.root / "perf" / "m.json").unlink()
    checkout.pytest("perf", code=1)
    checkout.result.assert_outcomes(errors=1, skipped=2)


def test_a_mistake_is_told_without_a_trace(checkout: Project) -> None:
    checkout.gate("- overlap >= 60 apples", "perf/any.nsys.yaml")
    assert "perf/any.nsys.yaml:3" in checkout.pytest(code=2)


# -- what reports say


def test_the_reports(checkout: Project) -> None:
    summary, page = checkout.root / "summary.md", checkout.root / "page.html"
    report = report_of(
        checkout, f"--nsys-summary={summary}", f"--nsys-html={page}", "--nsys-annotate", "--nsys-history=h.db", code=0
    )
    assert (report["verdict"], report["good"]) == ("nothing judged", False)
    assert report["headline"] == "Not run: 2 gate files, no trace given"
    assert report["not_run"] == [
        {"file": "perf/any.nsys.yaml", "configuration": "", "assertions": ["hidden", "short"], "why": WHY},
        {"file": "perf/own.nsys.yaml", "configuration": "", "assertions": OWN_NAMES, "why": OWN_WHY},
    ]
    assert report["gate_files"] == []
    assert "### Not run\n\n- `perf/any.nsys.yaml`: 2 assertions: no trace given" in summary.read_text()
    assert "<h2>Not run</h2>" in page.read_text()
    assert "nothing judged::not run: 2 gate files, no trace given" in checkout.result.stdout.str()


def test_the_reports_where_another_gate_file_is_judged(checkout: Project) -> None:
    checkout.trace("traces/run.sqlite")
    report = report_of(checkout, "--nsys-annotate", "-v", code=0)
    assert (report["verdict"], report["good"]) == ("passed", True)
    assert report["headline"].startswith("Both assertions passed; ")
    assert report["headline"].endswith("; not run: 1 gate file, no trace given")
    assert [one["file"] for one in report["not_run"]] == ["perf/any.nsys.yaml"]
    said = checkout.result.stdout.str()
    assert "::warning file=perf/any.nsys.yaml,title=nsys gate%3A not run::no trace given" in said
    assert "perf/own.nsys.yaml: traces/run.sqlite (2 ranks" in said
    checkout.result.assert_outcomes(passed=3, skipped=1)


def test_the_reports_of_workers(checkout: Project) -> None:
    pytest.importorskip("xdist")
    checkout.pytest_in_a_process("-n", "2", "--nsys-json=r.json", "--junitxml=j.xml", code=0)
    report = checked(checkout.root / "r.json")
    assert [one["assertions"] for one in report["not_run"]] == [["hidden", "short"], OWN_NAMES]
    assert len(ElementTree.parse(checkout.root / "j.xml").findall(".//testcase/skipped")) == 4


# -- fixtures


CALLS = ["nsys_run.rows('overlap')", "nsys_run.ranks", "nsys_gate('overlap >= 60%')"]


@pytest.mark.parametrize("call", [*CALLS, "nsys_gate('overlap >= 60%', gate_file='perf/own.nsys.yaml')"])
def test_a_test_that_asks_for_the_run_is_skipped(checkout: Project, call: str) -> None:
    checkout.file("test_perf.py", f"def test(nsys_run, nsys_gate):\n    {call}\n")
    said = checkout.pytest("test_perf.py", "-rs", code=0)
    checkout.result.assert_outcomes(skipped=1)
    assert f"SKIPPED [1] test_perf.py:1: {WHY}" in said
    assert f"not run: 1 test, {WHY}" in said
    checkout.pytest("test_perf.py", "--nsys-strict", code=1)


def test_gate_files_and_tests_are_counted_apart(checkout: Project) -> None:
    checkout.file("test_perf.py", "def test(nsys_run):\n    nsys_run.rows('overlap')\n")
    assert f"not run: 2 gate files and 1 test, {WHY}" in checkout.pytest(code=0)


@pytest.mark.parametrize("call", ["nsys_run.rows('overlapp')", "nsys_gate('overlap >= 60 apples')"])
def test_a_mistake_in_asking_is_told_without_a_trace(checkout: Project, call: str) -> None:
    checkout.file("test_perf.py", f"def test(nsys_run, nsys_gate):\n    {call}\n")
    checkout.pytester.runpytest_inprocess("test_perf.py").assert_outcomes(failed=1)


def test_a_gate_file_that_has_its_trace_lends_it(checkout: Project) -> None:
    checkout.trace("traces/run.sqlite")
    checkout.file(
        "test_perf.py", "def test(nsys_gate):\n    nsys_gate('overlap >= 60%', gate_file='perf/own.nsys.yaml')\n"
    )
    checkout.pytest("test_perf.py", code=0)
    checkout.result.assert_outcomes(passed=1)
