"""How long is a red of one root? The same few lines on 64 ranks and in eight configurations as on one."""

import os
import re

import pytest

from tests.support.fault_programs import ALL_REDUCE, data_parallel
from tests.support.faults import stretched
from tests.support.gates import Project
from tests.support.samples.formats import Format

pytestmark = pytest.mark.slow

RANKS, CONFIGURATIONS = 64, 8
GATE = """
convention: {extends: generic, anchor: "ProfilerStep#%"}
tolerance: {rel: 5%, abs: 50us}
matrix:
MATRIX
assertions:
- window_ns below baseline plus tolerance
- p50 period_ns below baseline plus tolerance
- wall_exposed_ns below baseline plus tolerance
- wall_overlap >= baseline - 5pp
- blocking_comm_max_ns below baseline plus tolerance
- compute_ns below baseline plus tolerance
- idle_ns below baseline plus tolerance
"""
MOST_LINES, WIDTH = 40, 100


@pytest.fixture
def red(project: Project) -> Project:
    """All ranks of all configurations with a collective that takes twice as long, against what was stored."""
    names = [f"model-{n}" for n in range(CONFIGURATIONS)]
    project.gate(GATE.replace("MATRIX", "\n".join(f"  {name}: {name}.sqlite" for name in names)))
    for side, seed in (("base", 1), ("head", 2)):
        program = data_parallel(RANKS, steps=5, layers=2)
        if side == "head":
            stretched(ALL_REDUCE, 100)(program)
        path = program.write(project.root / side, Format.NSYS, seed)
        for name in names:
            (project.root / f"{name}.sqlite").unlink(missing_ok=True)
            os.link(path, project.root / f"{name}.sqlite")
        if side == "base":
            project.refresh()
    return project


def test_a_red_of_one_root_is_as_long_whatever_the_ranks(red: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    said = red.pytest(code=1)
    red.result.assert_outcomes(failed=4 * CONFIGURATIONS, passed=3 * CONFIGURATIONS)
    assert len(said.strip().splitlines()) <= MOST_LINES
    wide = [line for line in said.splitlines() if len(line) > WIDTH]
    assert [line for line in wide if not line.startswith("rootdir: ")] == []  # which is as long as its path
    assert re.search(rf"{RANKS} of {RANKS} ranks, {CONFIGURATIONS} of {CONFIGURATIONS} configurations", said)
