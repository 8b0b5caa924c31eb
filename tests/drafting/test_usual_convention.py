"""Do commands find the convention of a trace where nobody names one, and take several files for one run?"""

import json
from typing import Any

import pytest

from pytest_nsys import open_run
from pytest_nsys.analysis.steps.convention_fit import ConventionChoice, RunOpener, find_convention
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.core.conventions import Convention
from pytest_nsys.gates.convention_keys import load_convention
from tests.support.bad_traces import AT, good
from tests.support.gates import Project
from tests.support.samples.kineto import KinetoBuilder

COMMANDS = {
    "ranks": ["--view=ranks"],
    "streams": ["--view=streams"],
    "rows": ["rows", "compute_ns", "--trace"],
    "kernels": ["--view=kernels"],
}


@pytest.mark.parametrize("format", ["kineto", "jax"])
@pytest.mark.parametrize("command", COMMANDS)
def test_by_the_format(project: Project, format: str, command: str) -> None:
    trace = good(format).write(project.root / "run.json.gz")
    words = [*COMMANDS[command], str(trace)]
    said = project.command(*words, code=0)
    anchor = {"kineto": "ProfilerStep#%", "jax": "% step_num=%"}[format]
    note = f"note: convention {format}, anchor '{anchor}' (found in the trace)"
    assert note in said
    named = project.command(*words, f"--convention={format}", code=0)
    assert [line for line in named.splitlines() if line] == [
        line for line in said.splitlines() if line not in ("", note)
    ]
    project.command(*words, "--convention=pithtrain", code=3)


def test_a_cut_is_read_as_it_was_cut(project: Project) -> None:
    trace = good("kineto").write(project.root / "run.json")
    project.command("cut", trace, "-o", "window.json", "--convention=torchtitan", code=0)
    assert "note: convention torchtitan, anchor" in project.command("--view=ranks", "window.json", code=0)
    for own in ("{name: own, anchor: ProfilerStep#%}", "{extends: kineto, stage: '(?P<stage>stage[0-9])'}"):
        project.file("own.yaml", own)
        project.command("cut", trace, "-o", "window.json", "--convention=own.yaml", code=0)
        with open_run(project.root / "window.json") as run:
            assert run.convention == load_convention(project.root / "own.yaml")
        # As it is written of a built-in convention, which another version has changed: by its name alone.
        text = (project.root / "window.json").read_text()
        kept = json.dumps(json.loads(text)["pytestNsysCut"]["mapping"], separators=(",", ":"))
        (project.root / "window.json").write_text(text.replace(f'"mapping":{kept}', '"mapping":null'))
        said = project.command("--view=ranks", "window.json", code=2)
        assert "is a cut under a convention that is not built in ('" in said
        assert "'): name the file that has it, --convention FILE" in said
        project.command("--view=ranks", "window.json", "--convention=own.yaml", code=0)


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
    for command in ("--view=ranks", "--view=streams", "--view=overlap"):
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
    assert "pytest-nsys run.json --view kernels --rank 0\n" in project.pytest(code=1)
    project.command("--view=kernels", "run.json", code=0)
    project.gate(red.format(name="pithtrain", more=", window: ProfilerStep#2"))
    look = "pytest-nsys run.json --view kernels --rank 0 --convention gate.nsys.yaml --window 'ProfilerStep#2'"
    assert look in project.pytest(code=1)
    project.command(*look.replace("'", "").split()[1:], code=0)


def test_the_file_is_looked_at_once_for_all_next_steps(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    good("kineto").write(project.root / "run.json")
    project.gate(
        "trace: run.json\nconvention: kineto\nassertions:\n" + "  - compute_ns <= 1us\n  - stage9 launches <= 0\n"
    )
    looked: list[tuple[object, ...]] = []

    def watched(run: Run, under: RunOpener, usual: Convention, *more: Any) -> ConventionChoice:
        looked.append(more)
        return find_convention(run, under, usual, *more)

    monkeypatch.setattr("pytest_nsys.analysis.captures.cache.find_convention", watched)
    assert project.pytest(code=1).count("next:   pytest-nsys ") == 2
    assert looked == [(None, ())]
