"""Do commands read a trace under the convention of its format where nobody names one, and several files as one run?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_nsys.core.conventions import Convention
from pytest_nsys.gates.convention_keys import convention_for
from pytest_nsys.plugin.session import usual_of
from pytest_nsys.samples.kineto import KinetoBuilder
from tests.support.bad_traces import AT, good
from tests.support.gates import Project

COMMANDS = {
    "setup": ["setup"],
    "window": ["window"],
    "streams": ["streams"],
    "rows": ["rows", "compute_ns", "--trace"],
    "kernels": ["kernels"],
}


@pytest.mark.parametrize("format", ["kineto", "jax"])
@pytest.mark.parametrize("command", COMMANDS)
def test_by_the_format(project: Project, format: str, command: str) -> None:
    trace = good(format).write(project.root / "run.json.gz")
    words = [*COMMANDS[command], str(trace)]
    said = project.command(*words, code=0)
    assert project.command(*words, f"--convention={format}", code=0) == said
    if command != "setup":  # it picks no window
        project.command(*words, "--convention=pithtrain", code=3)


def test_a_cut_is_read_as_it_was_cut(project: Project) -> None:
    trace = good("kineto").write(project.root / "run.json")
    project.command("cut", trace, "-o", "window.json", "--convention=torchtitan", code=0)
    assert convention_for(["window.json"], None, None).name == "torchtitan"
    project.file("own.yaml", "{name: own, anchor: ProfilerStep#%}")
    project.command("cut", trace, "-o", "window.json", "--convention=own.yaml", code=0)
    said = project.command("window", "window.json", code=2)
    assert "is a cut under a convention that is not built in ('own'): name the file that has it, --convention" in said
    project.command("window", "window.json", "--convention=own.yaml", code=0)
    project.file("own.yaml", "{extends: kineto, stage: '(?P<stage>stage[0-9])'}")
    project.command("cut", trace, "-o", "window.json", "--convention=own.yaml", code=0)
    assert "under a convention that is not built in ('kineto')" in project.command("window", "window.json", code=2)


@pytest.mark.parametrize("format", ["kineto", "jax"])
def test_comparing_and_cutting(project: Project, format: str) -> None:
    for name, longer_ns in (("base.json", 0), ("head.json", 400_000)):

        def edit(trace: KinetoBuilder, longer_ns: int = longer_ns) -> None:
            at = (10_000_000 if format == "jax" else AT) + 400_000
            for begin in range(at, at + 5_000_000, 1_000_000) if longer_ns else ():
                trace.kernel("gemm", begin, begin + longer_ns, launch_ns=begin - 370_000)

        good(format, edit).write(project.root / name)
    assert "compute_ns" in project.command("compare", "base.json", "head.json", code=1)
    project.command("cut", "base.json", "-o", "window.json.gz", code=0)
    project.command("rows", "compute_ns", "--trace=window.json.gz", "--format=json", code=0)
    assert [row["compute_ns"] for row in json.loads(project.result.stdout.str())["rows"]] == [300_000]


def test_several_files_are_one_run(project: Project) -> None:
    for rank in range(2):
        project.trace(
            f"traces/node{rank}.sqlite", ranks=1, label=f"rank={rank}; pp={rank}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
        )
    for command in ("setup", "window", "streams", "overlap"):
        each = [str(project.root / f"traces/node{rank}.sqlite") for rank in range(2)]
        said = project.command(command, *each, "--format=csv", code=0)
        assert said == project.command(command, "traces", "--format=csv", code=0)
        assert len(said.strip().splitlines()) >= 3
        assert "is given twice" in project.command(command, *each, "traces/node0.sqlite", code=2)
        project.command(command, *each, "--format=json", code=0)
        assert json.loads(project.result.stdout.str())["trace"] == each


def test_a_next_step_names_a_convention_where_the_command_takes_another(project: Project) -> None:
    good("kineto").write(project.root / "run.json")
    red = "trace: run.json\nconvention: {name}\nassertions:\n  - {{assert: compute_ns <= 1us{more}}}"
    project.gate(red.format(name="kineto", more=""))
    assert "pytest-nsys streams run.json --rank 0\n" in project.pytest(code=1)
    project.command("streams", "run.json", "--rank", "0", code=0)
    project.gate(red.format(name="pithtrain", more=", window: ProfilerStep#2"))
    look = "pytest-nsys streams run.json --rank 0 --convention gate.nsys.yaml --window 'ProfilerStep#2'"
    assert look in project.pytest(code=1)
    project.command(*look.replace("'", "").split()[1:], code=0)


def test_the_file_is_looked_at_once_for_all_next_steps(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    good("kineto").write(project.root / "run.json")
    project.gate("trace: run.json\nconvention: kineto\nassertions:\n" + "  - compute_ns <= 1us\n  - launches <= 0\n")
    looked: list[str] = []

    def watched(trace: str, base: Path) -> Convention | None:
        looked.append(trace)
        return usual_of(trace, base)

    monkeypatch.setattr("pytest_nsys.plugin.session.usual_of", watched)
    assert project.pytest(code=1).count("next:   pytest-nsys ") == 2
    assert looked == ["run.json"]
