"""Does each cause of a step that is held back turn the gate red that is about it, and no other?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_nsys.samples.builder import TraceBuilder
from tests.support.gates import Project, sign
from tests.support.samples.known_step import BLOCKS, COPIES, LATE, STALLS, US, known_step

SENTENCES = {
    "launch_starved_ns": "launch_starved_ns below baseline plus max(5%, 40us)",
    "blocking_comm_ns": "blocking_comm_ns of stage4_b below baseline plus max(5%, 40us)",
    "blocking_ns": "blocking_ns of copy below baseline plus max(5%, 40us)",
    "dependency_stalled_ns": "dependency_stalled_ns below baseline plus max(5%, 40us)",
}
GOOD = {"late_ns": 0, "blocks_ns": 0, "copies_ns": 0, "stalls_ns": 0}


def write(project: Project, name: str, causes: Mapping[str, int]) -> None:
    trace = TraceBuilder()
    gpu = trace.process()
    for step in range(5):
        own: Any = {**GOOD, **(causes if step == 2 else {})}
        known_step(gpu, (20_000 * step + 100) * US + len(name), **own)
    sign(trace.write(project.root / name))


@pytest.mark.parametrize(
    ("cause", "red"),
    [
        ({}, set()),
        ({"late_ns": LATE}, {"launch_starved_ns"}),
        ({"blocks_ns": BLOCKS}, {"blocking_comm_ns"}),
        ({"copies_ns": COPIES}, {"blocking_ns"}),
        ({"stalls_ns": STALLS}, {"dependency_stalled_ns"}),
    ],
)
def test_each_cause_turns_its_own_gate_red_and_no_other(
    project: Project, cause: Mapping[str, int], red: set[str]
) -> None:
    write(project, "base.sqlite", {})
    project.gate("assertions:\n" + "".join(f"  - {sentence}\n" for sentence in SENTENCES.values()))
    project.refresh("--nsys-trace=base.sqlite")
    write(project, "head.sqlite", cause)
    found = {name.split()[0]: case.state for name, case in project.judged("head.sqlite").items()}
    assert found == {name: "failure" if name in red else "passed" for name in SENTENCES}
