"""Does the gate take its trace from where it is told, and is it otherwise plain pytest?"""

import re
from pathlib import Path

import pytest

from pytest_nsys.plugin.hooks import TRACE_SUFFIXES
from pytest_nsys.plugin.settings import SETTINGS, Setting
from pytest_nsys.traces.trace_files import READERS, XPLANE_SUFFIX, find_traces
from tests.support.gates import Project, watch_openings
from tests.support.reports import report_of

GATE = "- overlap >= 60%"
TWO = """
- {id: hidden, assert: overlap >= 60%, marks: [slow]}
- {id: short, assert: window_ns <= 15ms}
"""


@pytest.fixture
def gated(project: Project) -> Project:
    """One assertion, which a trace fulfils."""
    project.gated(GATE)
    return project


def value(project: Project, *arguments: str | Path, code: int = 0) -> str:
    """What the only item found."""
    (case,) = project.cases(*arguments, code=code).values()
    return case.properties["nsys_value"]


def test_pytest_s_own_help_tells_of_every_option(project: Project) -> None:
    said = "".join(project.pytester.runpytest_inprocess("--help").stdout.str().split())
    for setting in SETTINGS.values():
        assert setting.option in said
        assert "".join(setting.help.split()) in said


# -- where the trace comes from


@pytest.mark.parametrize("given", ["runs/a.sqlite", "runs", "runs/*.sqlite", "run?/a.*", "./runs/../runs"])
def test_one_value_is_one_run(tmp_path: Path, given: str) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.sqlite").touch()
    assert [path.resolve() for path in find_traces(given, tmp_path)] == [tmp_path / "runs" / "a.sqlite"]


def test_the_files_of_a_folder_are_joined_by_their_labels(project: Project) -> None:
    project.gate("- {assert: overlap >= 60%, where: {rank: [0, 1]}}")
    for rank in (0, 1):
        label = f"rank={rank}; pp={rank}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
        project.trace(f"runs/node{1 - rank}.sqlite", ranks=1, label=label)
    (case,) = project.cases("--nsys-trace=runs", code=0).values()
    assert case.properties["nsys_rows"] == "4"
    assert case.properties["nsys_run"].startswith("runs (2 ranks, pp=2 ")


@pytest.mark.parametrize(
    "setting", [setting for setting in SETTINGS.values() if setting.needs_value], ids=lambda s: s.name
)
def test_an_empty_path_is_not_this_folder(project: Project, setting: Setting) -> None:
    for value in ("", "  "):
        said = project.pytest(f"{setting.option}={value}", code=4)
        assert f"{setting.option} is empty: write {setting.option}={setting.metavar}" in said


@pytest.mark.parametrize("before", [(), ("gate.nsys.yaml",)])
def test_a_stray_trace(gated: Project, before: tuple[str, ...]) -> None:
    said = gated.pytest(*before, "run.sqlite", code=4)
    assert "run.sqlite is a trace, not a test: write --nsys-trace=run.sqlite" in said


def test_the_suffixes_of_stray_traces_are_those_of_the_readers() -> None:
    of_others_too = {
        ".sqlite3",
        ".db",
        ".json",
        XPLANE_SUFFIX,
    }  # databases and JSON of anything, and what no reader reads
    assert {suffix for suffix in READERS if not suffix.endswith(TRACE_SUFFIXES)} == of_others_too


def test_a_trace_as_the_value_of_an_option_is_not_stray(gated: Project) -> None:
    gated.pytest("--nsys-trace=run.sqlite", "--ignore", "run.sqlite", code=0)


def test_the_traces_of_a_gate_file_are_captures(project: Project) -> None:
    project.gated("trace: [a.sqlite, b.sqlite]\nassertions:\n  - overlap >= 60%", 100, name="a.sqlite")
    project.trace("b.sqlite", exposed_us=300)
    assert value(project) == "80%"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("perf/gate.nsys.yaml", "version: 1\ntrace: ../traces/run.sqlite\nassertions:\n  - overlap >= 60%\n"),
        ("pytest.ini", "[pytest]\nnsys_trace = traces/run.sqlite\n"),
        ("pyproject.toml", '[tool.pytest.ini_options]\nnsys_trace = ["traces/run.sqlite"]\n'),
    ],
)
def test_a_trace_is_relative_to_the_file_that_names_it(
    project: Project, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    project.gate(GATE, "perf/gate.nsys.yaml")
    project.file(name, text)
    project.trace("traces/run.sqlite", exposed_us=300)
    assert value(project) == "70%"
    monkeypatch.chdir(project.root / "perf")
    assert value(project) == "70%"


def test_command_line_before_gate_file_before_ini(project: Project) -> None:
    project.file("pytest.ini", "[pytest]\nnsys_trace = ini.sqlite\n")
    for name, exposed_us in (("ini", 100), ("gate", 200), ("line", 300)):
        project.trace(f"{name}.sqlite", exposed_us=exposed_us)
    project.gate(GATE)
    assert value(project) == "90%"
    project.gate("trace: gate.sqlite\nassertions:\n  - overlap >= 60%")
    assert value(project) == "80%"
    assert value(project, "--nsys-trace=line.sqlite") == "70%"


@pytest.mark.parametrize("ini", ["", "nsys_trace = absent.sqlite"])
def test_a_path_elsewhere_that_means_nothing_is_an_error_of_the_items(project: Project, ini: str) -> None:
    project.file("pytest.ini", f"[pytest]\n{ini}\n")
    project.gate(GATE if ini else "trace: absent.sqlite\nassertions:\n  - overlap >= 60%")
    project.file("test_other.py", "def test_other():\n    pass\n")
    cases = project.cases("--nsys-strict", code=1)
    assert {name: case.state for name, case in cases.items()} == {"overlap >=": "error", "test_other": "passed"}
    assert "absent.sqlite: there is no such file or folder" in cases["overlap >= 60%"].text


# -- plain pytest


def test_selection_by_name_mark_and_node_id(project: Project) -> None:
    project.file("pytest.ini", "[pytest]\nmarkers = slow: takes long\naddopts = --strict-markers\n")
    project.gate(TWO, "perf/gate.nsys.yaml")
    project.file("test_other.py", "def test_other():\n    pass\n")
    project.trace()
    for arguments, names in {
        ("-k", "hidden"): {"hidden"},
        ("-m", "nsys and not slow"): {"short"},
        ("perf/gate.nsys.yaml::short", "test_other.py"): {"short", "test_other"},
        ("--deselect=perf/gate.nsys.yaml::short", "perf"): {"hidden"},
    }.items():
        assert set(project.cases("--nsys-trace=run.sqlite", *arguments, code=0)) == names


def test_node_ids_leave_the_limit_out(project: Project) -> None:
    project.gate(
        """
        - stage2_f overlap >= 60%
        - {id: combine, for: {stage: [stage2_f, stage4_f]}, assert: exposed_ns < 1ms}
        """,
        "perf/gate.nsys.yaml",
    )
    project.trace()
    ids = [
        "perf/gate.nsys.yaml::stage2_f overlap >=",
        "perf/gate.nsys.yaml::combine[stage=stage2_f]",
        "perf/gate.nsys.yaml::combine[stage=stage4_f]",
    ]
    assert project.pytest("--collect-only", "-q", code=0).splitlines()[:3] == ids
    for node_id in ids:
        assert list(project.cases("--nsys-trace=run.sqlite", node_id, code=0)) == [node_id.split("::")[1]]
    for whole in ("stage2_f overlap >= 60%", "combine[stage=stage2_f]"):
        (found,) = project.cases("--nsys-trace=run.sqlite", f"perf/gate.nsys.yaml::{whole}", code=0)
        assert found in (whole, "stage2_f overlap >=")
    project.pytest("--nsys-trace=run.sqlite", "perf/gate.nsys.yaml::stage2_f overlap >= 61%", code=4)
    of_the_limit = ("-k", "overlap and 60")
    assert list(project.cases("--nsys-trace=run.sqlite", *of_the_limit, code=0)) == ["stage2_f overlap >="]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--strict-markers",), "'slow' not found in `markers` configuration option"),
        (("-W", "error"), "Unknown pytest.mark.slow - is this a typo?"),
    ],
)
def test_an_unregistered_mark(project: Project, arguments: tuple[str, ...], what: str) -> None:
    """In a process of its own: pytest remembers the marks that any run in a process registered."""
    project.gated(TWO)
    assert f"\ngate.nsys.yaml:3:3: {what}" in project.pytest_in_a_process("--nsys-trace=run.sqlite", *arguments, code=2)


def test_last_failed_and_stopping_at_the_first(project: Project) -> None:
    project.gate(
        "- {id: a, assert: overlap >= 99%}\n- {id: b, assert: overlap >= 60%}\n- {id: c, assert: overlap >= 99%}"
    )
    project.trace()
    assert list(project.cases("--nsys-trace=run.sqlite", "-x", code=1)) == ["a"]
    remembering = ("-p", "cacheprovider", "--nsys-trace=run.sqlite")
    project.pytest(*remembering, code=1)
    assert list(project.cases(*remembering, "--lf", code=1)) == ["a", "c"]


def test_last_failed_of_items_with_brackets(project: Project) -> None:
    """Pytest reads what is in brackets as parameters, and an item of the same id has to be told for the same."""
    project.gated("- {id: all, assert: overlap >= 99%, for: {stage: [stage2_f, stage4_f]}}\n- overlap >= 60%")
    remembering = ("-p", "cacheprovider", "--nsys-trace=run.sqlite")
    both = ["all[stage=stage2_f]", "all[stage=stage4_f]"]
    assert list(project.cases(*remembering, code=1)) == [*both, "overlap >="]
    assert list(project.cases(*remembering, "--lf", code=1)) == both
    assert list(project.cases(*remembering, "gate.nsys.yaml::all[stage=stage4_f]", code=1)) == both[1:]


def test_collecting_opens_no_trace(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = watch_openings(monkeypatch)
    project.gated(TWO)
    said = project.pytest("--nsys-trace=run.sqlite", "--collect-only", code=0)
    assert said.count("<GateItem ") == 2
    assert opened == []


def test_a_mistake_in_a_gate_file(project: Project) -> None:
    project.gate("- overlp >= 60%\n- no syncs\n- no syncs", "perf/gate.nsys.yaml")
    project.file("test_other.py", "def test_other():\n    pass\n")
    said = project.pytest(code=2)
    assert "perf/gate.nsys.yaml:3:3: unknown metric 'overlp' (did you mean 'overlap'?)" in said
    assert "perf/gate.nsys.yaml:5:3: 'no syncs' is already the name of the assertion on line 4: give it anoth" in said
    project.pytest("--continue-on-collection-errors", code=1)
    project.result.assert_outcomes(passed=1, errors=1)


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest 8 runs a file as often as it is named")
def test_a_gate_file_that_is_named_twice_is_judged_once(gated: Project) -> None:
    gated.pytest("--nsys-trace=run.sqlite", "gate.nsys.yaml", "gate.nsys.yaml", code=0)
    gated.result.assert_outcomes(passed=1)


def test_other_yaml_is_left_alone(project: Project) -> None:
    project.file("config.yaml", "a: [")
    project.file("test_config.yaml", "a: [")
    project.pytest(code=5)


def test_xfail_covers_failed_alone(project: Project) -> None:
    project.gated(
        """
        - {id: failed, assert: overlap >= 99%, xfail: the new link is slow}
        - {id: absent, assert: stage5 overlap >= 60%, xfail: the new link is slow}
        - {id: broken, assert: overlap >= 60%, window: '99', xfail: the new link is slow}
        - {id: good, assert: overlap >= 60%, xfail: the new link is slow}
        """
    )
    cases = project.cases("--nsys-trace=run.sqlite", code=1)
    assert {name: case.state for name, case in cases.items()} == {
        "failed": "skipped",
        "absent": "failure",
        "broken": "error",
        "good": "failure",
    }
    assert cases["failed"].properties["nsys_outcome"] == "failed"
    assert "XPASS(strict)" in cases["good"].text
    project.result.assert_outcomes(xfailed=1, failed=2, errors=1)


def test_workers_judge_alike_and_report_to_one_summary(project: Project) -> None:
    project.gate(TWO, "a.nsys.yaml")
    project.gate("- {id: exact, assert: overlap == 84.95%}\n- {id: red, assert: overlap >= 99%}", "b.nsys.yaml")
    project.trace("one.sqlite", exposed_us=100)
    project.trace("two.sqlite", exposed_us=201)
    said = project.pytest_in_a_process(
        *("--nsys-trace=one.sqlite", "--nsys-trace=two.sqlite", "-n", "2", "-v"),
        f"--junitxml={project.root / 'x.xml'}",
        code=1,
    )
    project.result.assert_outcomes(passed=3, failed=1)
    for line in (
        "a.nsys.yaml: one.sqlite, two.sqlite (2 ranks, pp=2 dp=1 cp=1 ep=1, NVIDIA H100 80GB HBM3, "
        "pithtrain (found in the trace))",
        "  passed  hidden     85%    >= 60%    25 pp     rank 0 stage2_f, worst of 4",
        "  passed  exact      84.95%  == 84.95%            rank 0 stage2_f, worst of 4",
        "  failed  red        85%     >= 99%     −14 pp    rank 0 stage2_f, worst of 4",
        "b.nsys.yaml:4: overlap >= 99%",
    ):
        assert line in said
    assert '"nsys_value" value="85%"' in (project.root / "x.xml").read_text()


def test_warnings_as_errors(project: Project) -> None:
    project.gated(
        """
        - {id: good, assert: overlap >= 60%}
        - {id: warned, assert: overlap >= 99%, severity: warn}
        - {id: nothing, assert: stage5 overlap >= 99%, allow_no_data: true}
        """
    )
    for filters in ("error", "error::pytest_nsys.NsysWarning"):
        cases = project.cases("--nsys-trace=run.sqlite", "-W", filters, code=1)
        assert {name: case.state for name, case in cases.items()} == {
            "good": "passed",
            "warned": "failure",
            "nothing": "failure",
        }
        assert cases["warned"].properties["nsys_outcome"] == "failed"
        assert cases["nothing"].properties["nsys_outcome"] == "passed"
        assert "warning: 4 of 4 rows below their limit (severity: warn)\n" in cases["warned"].text
        assert "items.py" not in cases["warned"].text
        project.result.stdout.fnmatch_lines(["failed  warned: 80% < 99%*", "failed  nothing: nothing was judged: *"])


def test_the_warning_can_be_silenced_by_its_name(project: Project) -> None:
    project.gated("- {assert: overlap >= 99%, severity: warn}")
    project.pytest("--nsys-trace=run.sqlite", "-W", "ignore::pytest_nsys.NsysWarning", code=0)
    project.result.assert_outcomes(passed=1, warnings=0)


@pytest.mark.parametrize("plugin", ["terminal", "cacheprovider", "junitxml", "xdist", "warnings", "skipping"])
def test_without_a_plugin_of_pytest(project: Project, plugin: str) -> None:
    project.gate("- overlap >= 99%", "red.nsys.yaml")
    project.gate(GATE, "green.nsys.yaml")
    project.trace()
    found = report_of(project, "-p", f"no:{plugin}", "--nsys-trace=run.sqlite", code=1)
    states = {each["sentence"]: each["state"] for file in found["gate_files"] for each in file["assertions"]}
    assert states == {"overlap >= 99%": "failed", "overlap >= 60%": "passed"}


def test_a_project_without_gates_sees_nothing(project: Project) -> None:
    project.file("test_other.py", "def test_other():\n    pass\n")
    said = project.pytest(code=0)
    assert said.count("nsys") == 1  # in pytest's own list of plugins
    assert re.search(r"^plugins: .*\bnsys-", said, re.MULTILINE)


# -- what is printed


def test_the_header_tells_trace_and_baselines(gated: Project) -> None:
    gated.trace("two.sqlite")
    said = gated.pytest("--nsys-trace=run.sqlite", "--nsys-trace=two.sqlite", "--nsys-baseline-dir=stored", code=0)
    assert "nsys: trace run.sqlite, two.sqlite; baselines in stored\n" in said


def test_a_lost_ini_file_is_told(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a blank pytest takes the path for a test when it looks for the ini file, and finds none."""
    project.file("project/pyproject.toml", '[tool.pytest.ini_options]\nnsys_baseline_dir = "stored"\n')
    project.gate(GATE, "project/perf/gate.nsys.yaml")
    project.trace("elsewhere/run.sqlite")
    monkeypatch.chdir(project.root / "project")
    warning = f"nsys: warning: {project.root / 'project' / 'pyproject.toml'} stands above gate.nsys.yaml, but pytest"
    assert warning in project.pytest("--nsys-trace", "../elsewhere/run.sqlite", code=0)
    said = project.pytest("--nsys-trace=../elsewhere/run.sqlite", code=0)
    assert "warning" not in said
    assert "configfile: pyproject.toml" in said


def test_a_green_summary(project: Project) -> None:
    project.gate(
        """
        tolerance: {rel: 5%, abs: 50us}
        assertions:
          - overlap >= 60%
          - exposed_ns below baseline plus tolerance
          - {assert: p50 period_ns < 25ms, window: first}
          - no mixed comm streams
        """,
        "perf/gate.nsys.yaml",
    )
    project.trace()
    project.refresh("--nsys-trace=run.sqlite")
    ((name, _),) = project.baselines().items()
    lines = project.pytest("--nsys-trace=run.sqlite", code=0).partition("= nsys gate =")[2].splitlines()
    assert [line for line in lines if not line.startswith("=")] == [
        "perf/gate.nsys.yaml: all 4 assertions passed; least headroom 20% of limit; pithtrain (found)",
        "",
    ]
    said = project.pytest("--nsys-trace=run.sqlite", "-v", code=0)
    summary = said[said.index("perf/gate.nsys.yaml: run.sqlite") :].splitlines()
    assert [line.rstrip() for line in summary[:6]] == [
        "perf/gate.nsys.yaml: run.sqlite (2 ranks, pp=2 dp=1 cp=1 ep=1, NVIDIA H100 80GB HBM3, "
        "pithtrain (found in the baseline))",
        "  window median, kernels contained",
        "    rank 0–1: forward chunk 2 (phase1) backward chunk 2 (phase0), 3rd of 5, 15 ms",
        "  window first, kernels contained",
        "    rank 0–1: forward chunk 0 (phase1) backward chunk 0 (phase0), 1st of 5, 15 ms",
        f"  baseline baselines/{name}",
    ]
    assert [re.split(r"  +", line.strip())[:5] for line in summary[7:11]] == [
        ["passed", "overlap >= 60%", "80%", ">= 60%", "20 pp"],
        [
            *("passed", "exposed_ns below baseline plus tolerance", "200 us"),
            *("<= 250 us (baseline + max(5%, 50us))", "50 us"),
        ],
        ["passed", "p50 period_ns < 25ms", "20 ms", "< 25 ms", "5 ms"],
        ["passed", "no mixed comm streams", "0", "== 0", "rank 0 mixed, worst of 2"],
    ]


def test_notes_stand_below_the_summary(project: Project) -> None:
    project.gated(f"quality: {{anchors: 2}}\nassertions:\n{GATE}", label=None, chunks_ms=(15, 15))
    said = project.pytest("--nsys-trace=run.sqlite", code=0)
    assert "ranks 0, 1 have 2 anchors" not in said, "the gate file bears it"
    said = project.pytest("--nsys-trace=run.sqlite", "-v", code=0)
    assert "  note: no setup label: ranks are numbered by (file, process, device)" in said
    assert "  note: ranks 0, 1 have 2 anchors" in said


def test_failures_and_warnings_stand_at_their_line(project: Project) -> None:
    project.gate(
        """
        tolerance: {rel: 5%}

        assertions:
          - overlap >= 60%

          - id: red
            assert: overlap >= 99%
          - {id: warned, assert: overlap >= 99%, severity: warn}
        """,
        "perf/gate.nsys.yaml",
    )
    project.trace()
    cases = project.cases("--nsys-trace=run.sqlite", code=1)
    assert {name: case.properties["nsys_line"] for name, case in cases.items()} == {
        "overlap >=": "5",
        "red": "7",
        "warned": "9",
    }
    project.result.stdout.fnmatch_lines(["  warning: warned: 80% < 99%*", "perf/gate.nsys.yaml:7: overlap >= 99%"])


def test_twice_quiet_counts_and_still_tells_what_was_refreshed(project: Project) -> None:
    project.gated(
        """
        tolerance: {rel: 5%}
        assertions:
          - exposed_ns below baseline plus tolerance
          - {id: red, assert: overlap >= 99%}
        """
    )
    assert "new file, 4 rows" in project.refresh("--nsys-trace=run.sqlite", "-k", "exposed_ns", "-q", "-q")
    said = project.pytest("--nsys-trace=run.sqlite", "-q", "-q", code=1)
    assert "\n1 failed, 1 passed\n" in said
    assert "headroom" not in said
