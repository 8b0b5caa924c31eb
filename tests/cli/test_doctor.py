"""``pytest-nsys doctor``: does it say why there is nothing, with what to do and its exit code?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_nsys import reports
from pytest_nsys.traces.opening import IN_WORDS, READERS, format_of
from tests.support.bad_traces import good
from tests.support.gates import Project
from tests.support.samples.builder import TraceBuilder

SCHEMA = json.loads(Path(reports.__file__).with_name("doctor.schema.json").read_text(encoding="utf-8"))


def found(project: Project, *arguments: str, code: int) -> dict[str, Any]:
    """What it prints as JSON, which keeps to the schema."""
    project.command("doctor", *arguments, "--format=json", code=code)
    answer: dict[str, Any] = json.loads(project.result.stdout.str())
    jsonschema.validate(answer, SCHEMA)
    return answer


def test_a_good_folder(project: Project) -> None:
    project.file("pytest.ini", "[pytest]")
    said = project.command("doctor", code=0)
    assert "pytest.ini" in said
    assert "no problem found" in said
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
    said = project.command("doctor", code=1)
    assert "NOT active" in said
    assert f"missing: {answer['problems'][0]}" in said


def test_a_plugin_that_is_named_is_active(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project.file("pytest.ini", "[pytest]\naddopts = -p pytest_nsys.plugin\n")
    assert found(project, code=0)["surroundings"]["plugin"]["active"]


def test_what_a_trace_has_and_lacks(project: Project) -> None:
    project.trace()
    run = found(project, "run.sqlite", code=0)["run"]
    assert run["files"] == [
        {"path": str(project.root / "run.sqlite"), "format": "SQLite export of nsys", "profiler": "2026.2.1"}
    ]
    assert (run["ranks"], run["anchored"], run["quality"]) == ([0, 1], True, [])
    assert run["convention"] == "convention pithtrain, anchor 'forward chunk%backward chunk%' (found in the trace)"
    groups = {group["name"]: group for group in run["groups"]}
    assert groups["budget"]["with_rows"] == groups["budget"]["metrics"]
    assert groups["overlap"]["with_rows"] >= 10
    assert ["samples_per_s", "tokens_per_s"] in groups["streams"]["without"].values()
    assert any("capture with --trace=cuda,nvtx" in reason for reason in groups["collectives"]["without"])
    said = project.command("doctor", "run.sqlite", code=0)
    assert "samples_per_s, tokens_per_s: no batch is stated: write workload: " in said
    assert "quality      all checks passed" in said
    assert f"\n{'':13}cut         0 of 2 have rows\n" in said
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
    answer = found(project, "bare.sqlite", code=1)
    assert answer["problems"] == ["no range of the trace repeats: mark the step (NVTX, record_function)"]
    assert not answer["run"]["anchored"]


def test_what_cannot_be_looked_at(project: Project) -> None:
    (project.root / "broken.sqlite").write_bytes(b"no database at all")
    said = project.command("doctor", "broken.sqlite", code=2)
    assert "missing: " in said
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
        assert format_of(good(format).write(tmp_path / f"{format}.json.gz")) == name
    assert format_of(tmp_path / "run.nsys-rep") == "report of nsys"
    assert format_of(tmp_path / "folder.sqlite") == "SQLite export of nsys"
    assert format_of(tmp_path / "run.qdstrm") == "raw data of nsys"
    assert {*READERS.values()} <= {*IN_WORDS}
