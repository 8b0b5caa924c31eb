"""Does each cause of a step that is held back turn the gate red that is about it, and no other?"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.gates import Project, sign
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.known_step import BLOCKS, COPIES, LATE, STALLS, US, known_step

SENTENCES = {
    "launch_starved_ns": "launch_starved_ns below baseline plus max(5%, 40us)",
    "blocking_comm_ns": "blocking_comm_ns of stage4_b below baseline plus max(5%, 40us)",
    "blocking_ns": "blocking_ns of copy below baseline plus max(5%, 40us)",
    "dependency_stalled_ns": "dependency_stalled_ns below baseline plus max(5%, 40us)",
}
GOOD = {"late_ns": 0, "blocks_ns": 0, "copies_ns": 0, "stalls_ns": 0}


def write(project: Project, name: str, causes: Mapping[str, int]) -> None:
    gpu = TraceBuilder().process()
    for step in range(5):
        own: Any = {**GOOD, **(causes if step == 2 else {})}
        known_step(gpu, (20_000 * step + 100) * US + len(name), **own)
    sign(gpu.trace.write(project.root / name))


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
def test_a_cause_turns_its_own_gate_red_and_no_other(project: Project, cause: Mapping[str, int], red: set[str]) -> None:
    write(project, "base.sqlite", {})
    project.gate("assertions:\n" + "".join(f"  - {sentence}\n" for sentence in SENTENCES.values()))
    project.refresh("--nsys-trace=base.sqlite")
    write(project, "head.sqlite", cause)
    found = {name.split()[0]: case.state for name, case in project.judged("head.sqlite").items()}
    assert found == {name: "failure" if name in red else "passed" for name in SENTENCES}


WHY = {
    "launch_starved_ns": ({"late_ns": LATE}, "+500 us  the GPU waits for the host before adam: 0 → 500 us"),
    "blocking_comm_ns": ({"blocks_ns": BLOCKS}, "+300 us  SendRecv in the way of compute: 0 → 300 us"),
    "blocking_ns": ({"copies_ns": COPIES}, "+200 us  new copy (once, 200 us)"),
    "dependency_stalled_ns": (
        {"stalls_ns": STALLS},
        "+50 us  the GPU is idle before layer_norm, already launched: 0 → 50 us",
    ),
}


def held(project: Project, sentence: str, against: bool, cause: Mapping[str, int]) -> str:
    """What is said of a step that is held back, by its baseline or another trace."""
    write(project, "base.sqlite", {})
    project.gate(f"assertions:\n  - {sentence}\n")
    if not against:
        project.refresh("--nsys-trace=base.sqlite")
    write(project, "head.sqlite", cause)
    options = ["--nsys-against=base.sqlite"] if against else []
    return project.pytest("-v", "--nsys-trace=head.sqlite", "--nsys-json=report.json", *options, code=1)


@pytest.mark.parametrize("against", [False, True])
@pytest.mark.parametrize("metric", WHY)
@pytest.mark.sampled(3)
def test_a_red_names_what_held_the_step_back(project: Project, metric: str, against: bool) -> None:
    cause, words = WHY[metric]
    assert words in held(project, SENTENCES[metric], against, cause)


@pytest.mark.parametrize("against", [False, True])
def test_a_red_of_idle_time_says_how_the_budget_moved(project: Project, against: bool) -> None:
    cause = {"late_ns": LATE, "copies_ns": COPIES}
    words = "  the window: compute −700 us (of which adam −500 us), launch-starved +500 us, blocked by copy +200 us"
    assert words in held(project, "idle_ns below baseline plus 40us", against, cause)
    (file,) = json.loads((project.root / "report.json").read_text())["gate_files"]
    (assertion,) = file["assertions"]
    (told,) = assertion["causes"]
    assert told["budget"]["parts"] == {"compute": -700_000, "launch-starved": 500_000, "blocked by copy": 200_000}
    assert told["budget"]["change_ns"] == 0
