"""R0: only like is compared with like. What differs is named field by field; the gate file may narrow it on purpose."""

import re
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys import Outcome, judge, open_run
from pytest_nsys.gates.comparability import FIELDS
from tests.support.gates import ANCHOR, GPU, Project, write_trace
from tests.support.sql import execute

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
    execute(path, f"UPDATE META_DATA_EXPORT SET value = '{version}' WHERE name = 'EXPORT_PRODUCT_VERSION'")
    return path


def another_anchor(path: Path, to: str) -> Path:
    """The trace with its anchors called otherwise, their numbers kept."""
    for table, column in (("StringIds", "value"), ("NVTX_EVENTS", "text")):
        execute(path, f"UPDATE {table} SET {column} = replace({column}, '(phase1)', '{to}')")
    return path


LABEL = "rank={{rank}}; pp={pp} dp=0/1 cp=0/1 ep=0/1; mbs={mbs} seq={seq}"
MESH = "cp=1 dp=1 ep=1 pp="


def differing(folder: Path, head: Path, gate: str = "") -> list[tuple[str, str, str]]:
    """In what a run differs from a usual one, as a verdict has it."""
    path = folder / "gate.nsys.yaml"
    path.write_text(
        f"version: 1\nquality: {{missing_ranks: off, anchors: 1}}\n{gate}assertions: [exposed_ns <= baseline + 5%]\n"
    )
    with open_run(head) as run, open_run(write_trace(folder / "base.sqlite")) as base:
        (verdict,) = judge(path, run, base)
    assert (verdict.outcome is Outcome.INCOMPARABLE) == bool(verdict.differences)
    return [(each.name, each.current, each.baseline) for each in verdict.differences]


@pytest.mark.parametrize(
    ("now", "differ"),
    [
        ({"chunks_ms": [15] * 7}, []),
        ({"chunks_ms": [15] * 4}, [("steps", "2 to 4", "5 and more")]),
        ({"chunks_ms": [15]}, [("steps", "1", "5 and more")]),
        ({"profiler": "2025.6.1"}, [("profiler", "2025", "2026")]),
        ({"gpu": "NVIDIA B200"}, [("gpu", "NVIDIA B200", GPU)]),
        ({"gpu": None}, [("gpu", "not stated", GPU)]),
        (
            {"label": LABEL.format(pp="{rank}/{ranks}", mbs=2, seq=4096)},
            [("micro_batch", "2", "1"), ("sequence_length", "4096", "2048")],
        ),
        ({"label": LABEL.format(pp="{rank}/4", mbs=1, seq=2048)}, [("mesh", f"{MESH}4", f"{MESH}2")]),
        (
            {"label": None},
            [
                ("mesh", "not stated", f"{MESH}2"),
                ("micro_batch", "not stated", "1"),
                ("sequence_length", "not stated", "2048"),
            ],
        ),
        (
            {"label": LABEL.format(pp="{rank}/2", mbs=1, seq=2048), "ranks": 1},
            [("world", "1", "2"), ("gpus", "1", "2"), ("launcher", "1-process-per-gpu", "1-process-per-node")],
        ),
    ],
)
def test_what_makes_another_run(tmp_path: Path, now: dict[str, Any], differ: list[tuple[str, str, str]]) -> None:
    assert differing(tmp_path, write_trace(tmp_path / "head.sqlite", **now)) == differ


def test_anchors_of_another_name_are_another_run_and_their_numbers_are_not(tmp_path: Path) -> None:
    head = another_anchor(write_trace(tmp_path / "head.sqlite"), "(warm-up)")
    shape = ANCHOR.format("N").replace("phase0", "phaseN")
    now, was = shape.replace("phase1", "warm-up"), shape.replace("phase1", "phaseN")
    assert differing(tmp_path, head) == [("anchor", now, was)]


def test_another_major_version_of_nsys_is_another_run_and_a_minor_one_is_not(tmp_path: Path) -> None:
    head = write_trace(tmp_path / "head.sqlite")
    ((_, _, was),) = differing(tmp_path, exported_by(head, "1999.1.1.9"))
    assert differing(tmp_path, exported_by(head, f"{was}.99.1.9")) == []


def accepted(project: Project, gate: str = GATE, **trace: Any) -> None:
    """A baseline of a good run."""
    project.accepted(gate, name="base.sqlite", **trace)

    # The file of another GPU is the nearest; with it the number of steps would be looked at next.


def test_narrowed_to_the_mesh_the_baseline_of_another_gpu_counts(project: Project) -> None:
    accepted(project, narrowed("mesh, world"))
    project.trace("head.sqlite", 300, gpu="NVIDIA A100")
    said = project.pytest("-v", "--nsys-trace=head.sqlite", code=1)
    assert "4 of 4 rows above their limit" in said
    assert next(iter(project.baselines())) in said, "the file that was compared with is named"
    different = "gpu: now NVIDIA A100, baseline NVIDIA H100 80GB HBM3"
    assert f"note: compared with another run, as comparable_on says: {different}" in said


def test_what_is_still_compared_still_stops_it(project: Project) -> None:
    accepted(project, narrowed("mesh, profiler"))
    project.trace("head.sqlite", gpu="NVIDIA A100", profiler="2025.6.1")
    said = project.pytest("--nsys-trace=head.sqlite", code=1)
    assert "profiler: now 2025, baseline 2026" in said
    assert "gpu: now" not in said


def test_a_baseline_that_does_not_say_its_facts_is_compared_on_its_key(project: Project) -> None:
    accepted(project)
    path = project.root / "baselines" / next(iter(project.baselines()))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith('"facts"')))
    project.trace("head.sqlite", profiler="2025.6.1")
    project.pytest("--nsys-trace=head.sqlite", code=0)


@pytest.mark.parametrize("agreeing", ["", "world, gpu, steps, profiler"])
def test_what_is_incomparable_prints_the_line_to_paste(project: Project, agreeing: str) -> None:
    """Of all that must agree all but what differs: pasted, the run is judged."""
    gate = narrowed(agreeing) if agreeing else GATE
    project.accepted(gate, 200)
    exported_by(project.trace("run.sqlite", 200), "2025.6.1")
    said = " ".join(project.pytest("--nsys-trace=run.sqlite", code=1).split())
    pasted = r"next: (comparable_on: \[[a-z_, ]+\]) # in the gate file, where this may differ on purpose"
    (line,) = re.findall(pasted, said)
    fields = line.removeprefix("comparable_on: [").removesuffix("]").split(", ")
    assert {*fields} == {*(agreeing.split(", ") if agreeing else FIELDS)} - {"profiler"}
    project.gate(f"{line}\n" + GATE.lstrip("\n"))
    project.pytest("--nsys-trace=run.sqlite", code=0)


def test_where_nothing_would_be_left_to_agree_no_line_is_printed(project: Project) -> None:
    """An empty list is a mistake of form."""
    project.accepted(narrowed("profiler"), 200)
    exported_by(project.trace("run.sqlite", 200), "2025.6.1")
    said = project.pytest("--nsys-trace=run.sqlite", code=1)
    assert "is from a different setup" in " ".join(said.split())
    assert "comparable_on: []" not in said
