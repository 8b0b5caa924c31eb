"""Do kinds of steps go with everything else that a gate has? What judges, stores, accepts and tells, in two formats."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.gates import Project
from tests.support.git_project import commit, git, isolate, start
from tests.support.serving import EngineStep, four_requests, write_serving

GATE = """
quality: {anchors: 1}
tolerance: {rel: 5%}
assertions:
- decode step time below baseline plus tolerance
- prefill step time below baseline plus tolerance
- p99 prefill step time <= 41ms
- {id: steady, assert: exposed <= 2ms, window: steady decode}
"""
RED = ["prefill step time below", "p99 prefill step time <="]
"""What is red where prefill steps take 45 ms and not 40."""

UPDATE = ("--nsys-update-baselines", "--nsys-reason=first")


class Two(NamedTuple):
    """A project with a gate that is accepted on the trace ``before``, and a trace whose prefill steps are slower."""

    project: Project
    before: str
    slower: str

    def red(self, *words: str, trace: str = "") -> list[str]:
        """What is red on the slower trace."""
        self.project.pytest(f"--nsys-trace={trace or self.slower}", "--junitxml=junit.xml", *words)
        return [name.rpartition("::")[2] for name, each in self.project.junit().items() if each.state != "passed"]

    def served(self, name: str, steps: Sequence[EngineStep], **how: Any) -> str:
        """The path of a trace of these steps, in the same format."""
        format = "nsys" if self.before.endswith(".sqlite") else "kineto"
        return str(write_serving(self.project.root / f"{format}-{name}", format, steps, **how))

    def accept(self, *words: str) -> str:
        said: str = self.project.command(
            *("baseline", "refresh", "gate.nsys.yaml", "--trace", self.slower, "--reason", "x", *words)
        )
        return said


def in_a_history(two: Two) -> None:
    for trace in (two.before, two.before, two.slower):
        two.project.pytest(f"--nsys-trace={trace}", "--nsys-history=perf.db")
    shown = two.project.command("history", "step_time_ns", "--format", "csv", code=0).splitlines()
    assert shown[0].endswith("step_time_ns (window median decode),step_time_ns (window median prefill)")
    assert [line.split(",")[-1] for line in shown[1:4]] == ["40000000", "40000000", "45000000"]
    last = "<= last 2 runs + 5%, window: prefill"
    two.project.gate(
        "quality: {anchors: 1}\nassertions:\n"
        f"- {{id: hidden, assert: exposed_ns {last}}}\n- {{id: slow, assert: step_time_ns {last}}}"
    )
    for trace in (two.before, two.before):
        two.project.pytest(f"--nsys-trace={trace}", "--nsys-history=perf.db")
    assert two.red("--nsys-history=perf.db") == ["slow"]


def under_a_waiver(two: Two) -> None:
    two.project.gate(
        f"{GATE}waivers:\n- {{assertion: prefill step time below, ceiling: 46ms, expires: 2099-12-31, reason: x}}"
    )
    assert two.red() == RED[1:]


def accepted_alone(two: Two) -> None:
    """Of one kind, by ``-k``."""
    two.accept("-k", "decode and step")
    assert two.red() == RED
    two.accept("-k", "prefill and step and below")
    assert two.red() == RED[1:]


def across_an_axis(two: Two) -> None:
    shutil.rmtree(two.project.root / "baselines")
    where, format = two.project.root / "ranks", Path(two.before).suffix
    where.mkdir()
    for rank, ms in enumerate((40, 45)):
        label = f"rank={rank}; pp={rank}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=1"
        steps = four_requests(10_000 + rank * 50, ms * 1000)
        Path(two.served(f"rank{rank}", steps, setup=label)).rename(where / f"rank{rank}{format}")
    setup = r"rank=(?P<rank>[0-9]+); pp=(?P<pp>[0-9]+)/(?P<pp_size>[0-9]+) .*"
    two.project.gate(
        f"convention: {{extends: vllm, setup: '{setup}'}}\nquality: {{anchors: 1}}\nassertions:\n"
        "- decode balance of compute across pp <= 1.01\n- prefill balance of compute across pp <= 1.01\n"
    )
    assert two.red(trace="ranks") == ["prefill balance of compute across pp <="]


def branch_off(two: Two) -> None:
    """What there is is on main, and the rest on a branch."""
    start(two.project)
    two.project.file(".gitignore", "*.sqlite\nkineto*\nnsys*\nstdout\nstderr\njunit.xml\n")
    commit(two.project.root)
    git(two.project.root, "switch", "-qc", "feature")


def at_the_merge_base(two: Two) -> None:
    """What the branch accepts of one kind is told, and hides nothing of it."""
    branch_off(two)
    two.accept("-k", "prefill and step and below")
    commit(two.project.root)
    assert two.red() == RED[1:]
    told = two.project.pytest(f"--nsys-trace={two.slower}", "--nsys-baseline-ref=main", code=1)
    assert "gate of the merge base: 2 failed, 2 assertions passed" in told


def in_every_report(two: Two) -> None:
    two.red("--nsys-json=o.json", "--nsys-html=o.html", "--nsys-summary=o.md")
    said = json.loads((two.project.root / "o.json").read_text())
    (red,) = (each for each in said["gate_files"][0]["assertions"] if each["name"] == RED[1])
    assert red["measured_as"] == "window median prefill, kernels launched"
    assert any(command.endswith("--window prefill") for command in red["next_steps"])
    for name in ("o.html", "o.md", "junit.xml"):
        assert "2nd of 3 prefill steps" in (two.project.root / name).read_text(), name
    assert "Prefill step 12% slower (40 → 45 ms)" in (two.project.root / "o.md").read_text()


def in_two_workers(two: Two) -> None:
    two.project.pytest_in_a_process(f"--nsys-trace={two.slower}", "--junitxml=junit.xml", "-n", "2", code=1)
    states = {name.rpartition("::")[2]: case.state for name, case in two.project.junit().items()}
    assert sorted(name for name, state in states.items() if state != "passed") == sorted(RED)


COMBINATIONS = (
    *(in_a_history, under_a_waiver, accepted_alone, across_an_axis, at_the_merge_base),
    *(in_every_report, in_two_workers),
)


@pytest.mark.parametrize("combined", COMBINATIONS, ids=lambda each: str(each.__name__))
@pytest.mark.parametrize("format", ["nsys", "kineto"])
@pytest.mark.sampled(2)  # each of the seven in one format
def test_a_kind(
    project: Project, monkeypatch: pytest.MonkeyPatch, combined: Callable[[Two], None], format: str
) -> None:
    isolate(monkeypatch)
    before, slower = (
        str(write_serving(project.root / f"{format}{ms}", format, four_requests(prefill_us=ms * 1000)))
        for ms in (40, 45)
    )
    (project.root / "baselines").mkdir()
    project.gate(GATE)
    project.pytest(f"--nsys-trace={before}", *UPDATE, code=0)
    combined(Two(project, before, slower))
