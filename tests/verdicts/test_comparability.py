"""R0: only like is compared with like. What differs is named field by field; the gate file may narrow it on purpose."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.support.gates import ANCHOR, Project

GATE = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed_ns below baseline plus tolerance
  - stage2 overlap >= 60%
"""


def narrowed(fields: str) -> str:
    return f"comparable_on: [{fields}]\n" + GATE.lstrip("\n")


def exported_by(path: Path, version: str) -> Path:
    """The trace as another version of nsys would have exported it."""
    with sqlite3.connect(path) as database:
        changed = database.execute(
            "UPDATE META_DATA_EXPORT SET value = ? WHERE name = 'EXPORT_PRODUCT_VERSION'", (version,)
        )
        assert changed.rowcount == 1
    database.close()
    return path


def another_anchor(path: Path, to: str) -> Path:
    """The trace with its anchors called otherwise, their numbers kept."""
    with sqlite3.connect(path) as database:
        for table, column in (("StringIds", "value"), ("NVTX_EVENTS", "text")):
            database.execute(f"UPDATE {table} SET {column} = replace({column}, '(phase1)', ?)", (to,))
    database.close()
    return path


def accepted(project: Project, gate: str = GATE, **trace: object) -> None:
    """A baseline of a good run."""
    project.gate(gate)
    project.trace("base.sqlite", **trace)  # type: ignore[arg-type]
    project.refresh("--nsys-trace=base.sqlite")


def test_another_number_of_steps_is_another_run(project: Project) -> None:
    accepted(project)
    project.trace("head.sqlite", chunks_ms=[15] * 7)
    said = project.pytest("--nsys-trace=head.sqlite", code=1)
    assert "is of another run (steps: now 7, baseline 5)" in said
    assert "1 passed" in said, "a constant needs nobody to be compared with"


def test_anchors_of_another_name_are_another_run_and_their_numbers_are_not(project: Project) -> None:
    accepted(project)
    head = another_anchor(project.trace("head.sqlite"), "(warm-up)")
    said = project.pytest(f"--nsys-trace={head}", code=1)
    shape = ANCHOR.format("N").replace("phase0", "phaseN")
    now, was = shape.replace("phase1", "warm-up"), shape.replace("phase1", "phaseN")
    assert f"anchor: now {now}, baseline {was}" in said


def test_another_major_version_of_nsys_is_another_run_and_a_minor_one_is_not(project: Project) -> None:
    accepted(project)
    stored = json.loads(next(iter(project.baselines().values())))["facts"]["profiler"]
    newer = exported_by(project.trace("newer.sqlite"), f"{int(stored[0]) + 1}.1.1.9")
    minor = exported_by(project.trace("minor.sqlite"), f"{stored[0]}.99.1.9")
    said = project.pytest(f"--nsys-trace={newer}", code=1)
    assert f"profiler: now {int(stored[0]) + 1}, baseline {stored[0]}" in said
    project.pytest(f"--nsys-trace={minor}", code=0)


def test_what_differs_is_a_table_of_field_now_and_baseline(project: Project) -> None:
    accepted(project)
    project.trace("head.sqlite", gpu="NVIDIA A100", chunks_ms=[15] * 7)
    said = project.pytest("--nsys-trace=head.sqlite", code=1)
    lines = [" ".join(line.split()) for line in said.splitlines()]
    at = lines.index("differs now baseline")
    assert lines[at + 1] == "gpu NVIDIA A100 NVIDIA H100 80GB HBM3"
    # The file of another GPU is the nearest; with it the number of steps would be looked at next.


@pytest.mark.parametrize("fields", ["mesh, world, gpu", "mesh"])
def test_comparable_on_narrows_it_on_purpose(project: Project, fields: str) -> None:
    accepted(project, narrowed(fields))
    project.trace("head.sqlite", chunks_ms=[15] * 7)
    project.pytest("--nsys-trace=head.sqlite", code=0)


def test_narrowed_to_the_mesh_the_baseline_of_another_gpu_counts(project: Project) -> None:
    accepted(project, narrowed("mesh, world"))
    project.trace("head.sqlite", 300, gpu="NVIDIA A100")
    said = project.pytest("--nsys-trace=head.sqlite", code=1)
    assert "4 of 4 rows above their limit" in said
    assert next(iter(project.baselines())) in said, "the file that was compared with is named"
    different = "gpu: now NVIDIA A100, baseline NVIDIA H100 80GB HBM3"
    assert f"note: compared with another run, as comparable_on says: {different}" in said


def test_what_is_still_compared_still_stops_it(project: Project) -> None:
    accepted(project, narrowed("mesh, steps"))
    project.trace("head.sqlite", gpu="NVIDIA A100", chunks_ms=[15] * 7)
    said = project.pytest("--nsys-trace=head.sqlite", code=1)
    assert "steps: now 7, baseline 5" in said
    assert "gpu: now" not in said


def test_the_baseline_of_the_very_run_is_taken_before_any_that_agrees(project: Project) -> None:
    accepted(project, narrowed("mesh"))
    project.trace("other.sqlite", 300, gpu="NVIDIA A100")
    project.refresh("--nsys-trace=other.sqlite")
    assert len(project.baselines()) == 2
    project.pytest("--nsys-trace=base.sqlite", code=0)
    project.pytest("--nsys-trace=other.sqlite", code=0)


def test_several_baselines_that_agree_alike_are_not_chosen_from(project: Project) -> None:
    accepted(project, narrowed("mesh"))
    project.trace("other.sqlite", gpu="NVIDIA A100")
    project.refresh("--nsys-trace=other.sqlite")
    project.trace("head.sqlite", gpu="NVIDIA B200")
    said = project.pytest("--nsys-trace=head.sqlite", code=1)
    assert "agree alike on what comparable_on names: name more, or delete all but one" in said


def test_a_baseline_that_does_not_say_its_facts_is_compared_on_its_key(project: Project) -> None:
    accepted(project)
    path = project.root / "baselines" / next(iter(project.baselines()))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith('"facts"')))
    project.trace("head.sqlite", chunks_ms=[15] * 7)
    project.pytest("--nsys-trace=head.sqlite", code=0)
