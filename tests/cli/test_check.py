"""``pytest-nsys check``: does it say what is wrong and why there is nothing, with what to do and its exit code?"""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_nsys import reports
from pytest_nsys.traces.trace_files import READER_LABELS, READERS, describe_format
from tests.support.bad_traces import good
from tests.support.gates import Project
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.kineto import KinetoBuilder

SCHEMA = json.loads(
    Path(reports.__file__).with_name("screens").joinpath("check.schema.json").read_text(encoding="utf-8")
)


GOOD = "- overlap >= 60%\n- exposed_ns below baseline plus 5%\n"
NO_FAIL = "'>= 0%' cannot fail: overlap is never below 0%; did you mean a limit such as overlap >= 60%?"


def found(project: Project, *arguments: str, code: int) -> dict[str, Any]:
    """What it prints as JSON, which keeps to the schema."""
    project.command("check", *arguments, "--format=json", code=code)
    answer: dict[str, Any] = json.loads(project.result.stdout.str())
    jsonschema.validate(answer, SCHEMA)
    return answer


def parts(project: Project, *words: str, code: int) -> list[list[str]]:
    """The blocks of lines below what is installed."""
    said = project.command("check", *words, code=code)
    return [block.splitlines() for block in said.strip().split("\n\n")[1:]]


def test_a_good_folder(project: Project) -> None:
    project.file("pytest.ini", "[pytest]")
    said = project.command("check", code=0)
    assert "pytest.ini" in said
    assert "no problem found" in said
    assert "note: there is no gate file below this folder: pytest-nsys init TRACE… writes one" in said
    answer = found(project, code=0)
    assert (answer["good"], answer["problems"], answer["run"]) == (True, [], None)
    assert answer["surroundings"]["plugin"]["active"]
    assert answer["surroundings"]["pytest"] == pytest.__version__


@pytest.mark.parametrize(
    ("variables", "ini", "why"),
    [
        ({"PYTEST_ADDOPTS": "-p no:nsys"}, "", "-p no:nsys is in PYTEST_ADDOPTS: take it out"),
        ({}, "addopts = -p no:nsys", "-p no:nsys is in addopts of "),
        ({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, "", "is set: unset it, or write -p pytest_nsys.plugin into addopts"),
        ({"PYTEST_ADDOPTS": "--no-such-option"}, "", "pytest does not start here: "),
    ],
)
def test_a_plugin_that_is_kept_out(
    project: Project, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], ini: str, why: str
) -> None:
    project.file("pytest.ini", f"[pytest]\n{ini}\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    answer = found(project, code=1)
    assert not answer["surroundings"]["plugin"]["active"]
    assert why in answer["problems"][0]
    said = project.command("check", code=1)
    assert "NOT active" in said
    assert f"problem: {answer['problems'][0]}" in said


def test_a_plugin_that_is_named_is_active(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project.file("pytest.ini", "[pytest]\naddopts = -p pytest_nsys.plugin\n")
    assert found(project, code=0)["surroundings"]["plugin"]["active"]


def test_what_a_trace_has_and_lacks(project: Project) -> None:
    project.trace()
    run = found(project, "run.sqlite", code=0)["run"]
    assert run["files"] == [{"path": "run.sqlite", "format": "SQLite export of nsys", "profiler": "2026.2.1"}]
    assert (run["ranks"], run["anchored"], run["quality"]) == ([0, 1], True, [])
    assert run["convention"] == "convention pithtrain, anchor 'forward chunk%backward chunk%' (found in the trace)"
    groups = {group["name"]: group for group in run["groups"]}
    assert groups["budget"]["with_rows"] == groups["budget"]["metrics"] - 1  # a chunk is no step: none is between two
    assert groups["overlap"]["with_rows"] >= 5
    assert ["samples_per_s", "tokens_per_s"] in groups["streams"]["without"].values()
    assert any("capture with --trace=cuda,nvtx" in reason for reason in groups["collectives"]["without"])
    said = project.command("check", "run.sqlite", code=0)
    assert "samples_per_s, tokens_per_s: no batch is stated: write workload: " in said
    assert "quality      all checks passed" in said
    assert f"\n{'':13}GPU state   0 of 2 have rows\n" in said
    named = found(project, "run.sqlite", "--convention=generic", "--anchor=forward%", code=0)["run"]
    assert named["convention"] == "generic"


def test_few_anchors_and_a_run_without_any_are_told(project: Project) -> None:
    project.trace(chunks_ms=(15,) * 3)
    answer = found(project, "run.sqlite", code=1)
    assert answer["run"]["quality"] == answer["problems"]
    assert "ranks 0, 1 have 3 anchors (bound: at least 5)" in answer["problems"][0]
    trace = TraceBuilder()
    trace.process().kernel("gemm", 10, 20)
    trace.write(project.root / "bare.sqlite")
    answer = found(project, "bare.sqlite", code=0)
    assert (answer["good"], answer["problems"], answer["run"]["anchored"]) == (True, [], False)
    said = project.command("check", "bare.sqlite", code=0)
    assert "note: the whole run is measured: for figures of a step, mark it (NVTX)\n" in said
    assert said.endswith("\nno problem found\n")


@pytest.mark.parametrize("gpu", ["AMD Instinct MI210", ""])
def test_advice_is_that_of_the_profiler_and_of_the_gpu(project: Project, gpu: str) -> None:
    """A torch trace of an AMD GPU, whose model not every one says, is told of neither NVTX nor nsys, NVIDIA's both."""
    trace = KinetoBuilder(gpu=gpu)
    trace.members["hip_runtime_version"] = 60443483
    trace.kernel("gemm", 1_000, 2_000)
    trace.write(project.root / "run.json")
    said = project.command("check", "run.json", code=0)
    assert "mark it (prof.step() or record_function)\n" in said
    assert "samples no clocks" in said
    assert "nsys and" not in said
    assert "NVTX" not in said


def test_what_cannot_be_looked_at(project: Project) -> None:
    (project.root / "broken.sqlite").write_bytes(b"no database at all")
    said = project.command("check", "broken.sqlite", code=2)
    assert "problem: " in said
    assert "broken.sqlite: " in said
    assert "plugin       pytest-nsys " in said
    assert "there is no such file" in found(project, "none.sqlite", code=2)["problems"][0]
    trace = TraceBuilder()
    trace.process().range("step", 0, 10)
    trace.write(project.root / "empty.sqlite")
    assert "no kernels" in found(project, "empty.sqlite", code=3)["problems"][0]


def test_formats_in_words(tmp_path: Path) -> None:
    names = {"kineto": "torch.profiler", "jax": "JAX"}
    for format, name in names.items():
        assert describe_format(good(format).write(tmp_path / f"{format}.json.gz")) == name
    assert describe_format(tmp_path / "run.nsys-rep") == "report of nsys"
    assert describe_format(tmp_path / "folder.sqlite") == "SQLite export of nsys"
    assert describe_format(tmp_path / "run.qdstrm") == "raw data of nsys"
    assert {*READERS.values()} <= {*READER_LABELS}


# Gate files


def test_each_file_gets_a_line_and_mistakes_their_place(project: Project) -> None:
    project.gate(GOOD, "perf/a.nsys.yaml")
    project.gate("- overlap >= 0%\n- exposed_ns < 2\n", "perf/b.nsys.yaml")
    (project.root / "test_gpu.py").write_text("raise SystemExit('no GPU here')\n")
    assert parts(project, "perf", code=2) == [
        [
            "perf/a.nsys.yaml: good, 2 assertions",
            f"perf/b.nsys.yaml:3:11: {NO_FAIL}",
            "perf/b.nsys.yaml:4:16: exposed_ns is a time: write it in ns, us, ms or s, not 2",
        ],
        ["problem: perf/b.nsys.yaml: 2 mistakes"],
    ]
    assert parts(project, "p*/a.nsys.yaml", "perf/a.nsys.yaml", code=0) == [
        ["perf/a.nsys.yaml: good, 2 assertions"],
        ["no problem found"],
    ]
    answer = found(project, code=2)  # all below this folder
    assert (answer["good"], [f["assertions"] for f in answer["gate_files"]]) == (False, [2, None])
    assert answer["gate_files"][1]["mistakes"][0] == {"line": 3, "column": 11, "what": NO_FAIL}


def test_files_are_found_as_pytest_finds_them(project: Project) -> None:
    project.gate(GOOD, "perf/a.nsys.yaml")
    project.gate(GOOD, "perf/left_out.nsys.yaml")
    project.gate(GOOD, "perf/c.nsys.yml")
    (project.root / "perf/conftest.py").write_text("collect_ignore = ['left_out.nsys.yaml']\n")
    right = "end it in .nsys.yaml, as c.nsys.yaml, or delete it"
    assert parts(project, "perf", code=2)[0] == [
        "perf/a.nsys.yaml: good, 2 assertions",
        f"perf/c.nsys.yml:1:1: pytest finds gate files by name: {right}",
        "warning: perf/left_out.nsys.yaml: pytest does not collect it, so nothing is judged by it",
    ]
    assert found(project, "perf", code=2)["not_collected"] == ["perf/left_out.nsys.yaml"]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nope", "problem: nope: there is no such file or folder"),
        ("nope.nsys.yaml", "problem: nope.nsys.yaml: there is no such file or folder"),
        ("gate.yaml", "error: gate.yaml: pytest finds gate files by name: end it in .nsys.yaml"),
        ("empty", "problem: empty: holds no trace (*.sqlite, "),
        ("", "problem: "),
        ("out", "problem: pytest collects no gate file (*.nsys.yaml) in out"),
    ],
)
def test_what_is_no_gate_file(project: Project, name: str, what: str) -> None:
    (project.root / "gate.yaml").touch()
    (project.root / "empty").mkdir()
    project.gate(GOOD, "out/left_out.nsys.yaml")
    (project.root / "out/conftest.py").write_text("collect_ignore = ['left_out.nsys.yaml']\n")
    assert what in project.command("check", name, code=2)


def test_what_pytest_alone_refuses_is_never_good(project: Project) -> None:
    project.gate("- {assert: overlap >= 60%, marks: [slwo]}")
    (project.root / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    said = project.command("check", ".", code=2)
    assert "'slwo' not found in `markers`" in said
    assert ": good, " not in said
    assert "problem: pytest cannot collect the gate files: see what it printed" in said


def test_gate_files_and_traces_at_once(project: Project) -> None:
    """Each in its own words; what cannot be read weighs more than what has no data, and that more than a warning."""
    project.gated(GOOD)
    (project.root / "runs").mkdir()
    (project.root / "run.sqlite").rename(project.root / "runs" / "run.sqlite")
    gates, trace, end = parts(project, project.name, "runs", code=0)
    assert (gates, end) == ([f"{project.name}: good, 2 assertions"], ["no problem found"])
    assert trace[0].split() == ["trace", "runs/run.sqlite:", "SQLite", "export", "of", "nsys", "2026.2.1"]
    answer = found(project, project.name, "runs", code=0)
    assert (answer["gate_files"][0]["assertions"], answer["run"]["ranks"]) == (2, [0, 1])
    project.gate("- overlp >= 60%", "runs/own.nsys.yaml")  # a folder with a gate file is one of gate files
    assert found(project, "runs", code=2)["run"] is None
    trace_without = TraceBuilder()
    trace_without.process().range("step", 0, 10)
    trace_without.write(project.root / "empty.sqlite")
    assert found(project, project.name, "empty.sqlite", code=3)["gate_files"][0]["mistakes"] == []
    assert (
        found(project, "runs/own.nsys.yaml", "empty.sqlite", code=2)["problems"][0] == "runs/own.nsys.yaml: 1 mistake"
    )


def test_without_the_plugin_gate_files_are_checked_too(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.gate(GOOD)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:nsys")
    gates, end = parts(project, code=1)
    assert gates == [f"{project.name}: good, 2 assertions"]
    assert end == ["problem: -p no:nsys is in PYTEST_ADDOPTS: take it out"]
    project.gate("- overlp >= 60%")
    assert found(project, code=2)["problems"][0] == f"{project.name}: 1 mistake"


@pytest.mark.parametrize("option", ["--anchor=step %", "--convention=nope", "--executor=serial"])
def test_an_option_of_traces_without_one(project: Project, option: str) -> None:
    project.gate(GOOD)
    name = option.partition("=")[0]
    said = f"error: {name} is for traces: give one, or leave it out"
    for words in ((), (project.name,)):
        assert said in project.command("check", *words, option, code=2)


def test_a_configuration_that_is_named(project: Project) -> None:
    project.gate(GOOD)
    assert f"{project.name} has no matrix: leave [a] out" in project.command("check", f"{project.name}[a]", code=2)
    project.gate("matrix: {a: a.sqlite, b: b.sqlite}\nassertions: [overlap >= 60%]")
    assert "no problem found" in project.command("check", f"{project.name}[a]", code=0)
    assert f"no configuration of {project.name} is 'c'" in project.command("check", f"{project.name}[c]", code=2)
