"""Do the skills for agents tell commands that run, in as few lines as an agent should read?"""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.repository import ROOT
from tests.support.commands import run
from tests.support.gates import Project

SKILLS = sorted((ROOT / ".agents" / "skills").glob("*/SKILL.md"))
MOST_LINES = 150
EXIT_CODES = {"compare": 1, "pytest": 1}
"""Commands that say that the demo's second run is worse."""


def name_of(path: Path) -> str:
    return path.parent.name


def told_commands(path: Path) -> list[list[str]]:
    """The commands of the consoles of a skill, in their order."""
    blocks = re.findall(r"^```console\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_there_are_two() -> None:
    assert [*map(name_of, SKILLS)] == ["analyze-gpu-trace", "gate-gpu-performance"]


@pytest.mark.parametrize("path", SKILLS, ids=name_of)
def test_its_head_names_it_and_says_when_to_use_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    _, head, _ = text.split("---\n", 2)
    told = yaml.safe_load(head)
    assert {*told} == {"name", "description"}
    assert told["name"] == name_of(path)
    assert 100 < len(told["description"]) <= 1024  # the most that agents read


@pytest.mark.parametrize("path", SKILLS, ids=name_of)
def test_every_command_runs(path: Path, project: Project) -> None:
    run("demo", project.root / "demo", code=0)
    files = {"TRACE": "demo/traces/regressed", "BASE": "demo/traces/good", "HEAD": "demo/traces/regressed"}
    commands = told_commands(path)
    assert len(commands) == 5
    if name_of(path) == "gate-gpu-performance":
        files["TRACE"] = "demo/traces/good"
    for program, *words in commands:
        arguments = [re.sub("TRACE", files["TRACE"], files.get(word, word)) for word in words]
        code = EXIT_CODES.get(words[0], 0)
        if program == "pytest":
            arguments = [each.replace(files["TRACE"], files["HEAD"]) for each in arguments]
            project.pytest(*arguments, code=1)
            assert json.loads((project.root / "brief.json").read_text(encoding="ascii"))["roots"]
        else:
            assert program == "pytest-nsys"
            project.command(*arguments, code=code)


def test_the_gate_and_the_waiver_of_the_skill_are_read(project: Project) -> None:
    (path,) = [each for each in SKILLS if name_of(each) == "gate-gpu-performance"]
    waivers, gate = re.findall(r"^```yaml\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    project.gate(gate + waivers)
    assert "no problem found" in project.command("check", "gate.nsys.yaml", code=0)
