"""What does a session or a comparison say in brief? The same as the other outputs, in 8 kB."""

import json
import shlex
from typing import Any

import jsonschema

from pytest_nsys.reports.tables.brief import MAX_BRIEF_BYTES
from tests.reports.tables.test_brief import SCHEMA
from tests.support.commands import brief, run
from tests.support.gates import Project
from tests.support.reports import report_of

GATE = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed_ns below baseline plus tolerance
  - overlap >= 60%
"""


def briefed(project: Project, *arguments: str, code: int) -> dict[str, Any]:
    """What a session wrote."""
    project.pytest("--nsys-brief=brief.json", *arguments, code=code)
    text = (project.root / "brief.json").read_text(encoding="ascii")
    assert len(text) <= MAX_BRIEF_BYTES
    found: dict[str, Any] = json.loads(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    return found


def test_a_red_has_the_headline_roots_and_commands_of_the_report(project: Project) -> None:
    project.accepted(GATE, 200, name="base.sqlite")
    project.trace("head.sqlite", 700)
    found = briefed(project, "--nsys-trace=head.sqlite", code=1)
    report = report_of(project, "--nsys-trace=head.sqlite", code=1)
    assert (found["subject"], found["verdict"], found["headline"]) == ("session", "failed", report["headline"])
    assert [root["text"] for root in found["roots"]] == [root["text"] for root in report["story"]["roots"]]
    (file,) = report["gate_files"]
    failed = {f"{file['file']}::{each['name']}": each for each in file["assertions"] if each["state"] == "failed"}
    assert {red["id"] for red in found["reds"]} == {*failed}
    for red in found["reds"]:
        assert red["limit"] == failed[red["id"]]["worst"]["limit"]
        assert red["worst"].startswith(failed[red["id"]]["worst"]["value"])
    told = {step for each in failed.values() for step in each["next_steps"]}
    said = {f"{step['command']}  # {step['purpose']}" if step["purpose"] else step["command"] for step in found["next"]}
    assert said <= told
    assert all(step["command"].startswith("pytest") for step in found["next"])  # no line of YAML, nothing for a browser
    assert found["next"][-1]["purpose"] == "accept this run"


def test_a_green_run_has_no_red(project: Project) -> None:
    project.accepted(GATE, 200, name="base.sqlite")
    found = briefed(project, "--nsys-trace=base.sqlite", code=0)
    assert (found["verdict"], found["reds"], found["roots"], found["next"]) == ("passed", [], [], [])


def test_what_could_not_be_judged_is_a_red_and_a_doubt(project: Project) -> None:
    project.gated("assertions:\n  - no_such_stage overlap >= 60%\n")
    found = briefed(project, "--nsys-trace=run.sqlite", code=1)
    assert found["verdict"] == "no data"
    (red,) = found["reds"]
    assert red["limit"] == ">= 60%"
    assert any("no_such_stage" in doubt for doubt in found["doubtful"])


def test_a_gate_without_a_trace_is_a_doubt(project: Project) -> None:
    project.gate(GATE)
    found = briefed(project, code=0)
    assert found["verdict"] == "nothing judged"
    assert found["doubtful"] == ["not run: 1 gate file, no trace given"]


def test_a_mistake_is_a_doubt(project: Project) -> None:
    project.gate("assertions:\n  - overlapp >= 60%\n")
    found = briefed(project, code=2)
    assert found["verdict"] == "error"
    assert "overlapp" in found["doubtful"][0]


def test_a_comparison(project: Project) -> None:
    base, head = project.pair(200, 700)
    found = brief("compare", project.root / base, project.root / head, code=1)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    assert (found["subject"], found["verdict"]) == ("comparison", "worse")
    assert found["reds"]
    assert found["roots"]
    for step in found["next"]:
        run(*shlex.split(step["command"])[1:], code=0)
    assert {shlex.split(step["command"])[1] for step in found["next"]} == {
        str(project.root / base),
        str(project.root / head),
    }
    same = project.root / "same.sqlite"
    project.trace("same.sqlite", 200)
    assert brief("compare", project.root / base, same)["verdict"] in ("nothing worse", "incomparable")
