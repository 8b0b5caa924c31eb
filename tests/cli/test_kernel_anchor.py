"""What do commands and gates say of a trace whose windows begin with a kernel?"""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import answer, run
from tests.support.gates import Project
from tests.support.kernel_steps import PLAIN, written


def test_a_command_names_the_kernel(tmp_path: Path) -> None:
    trace = written(tmp_path / "run.sqlite", [PLAIN] * 12)
    (row,) = answer("--view=ranks", trace, "--anchor={kernel: embed}")["rows"]
    assert (row["index"], row["count"], row["length_ns"]) == (5, 11, 1_000)
    said = run("--view=ranks", trace, "--anchor={kernel: embed}", code=0).output
    assert "note: convention generic, anchor 'kernel embed' (found in the trace)" in said


def test_a_gate_file_names_the_kernel(project: Project) -> None:
    written(project.root / "run.sqlite", [PLAIN] * 12)
    project.gate(
        """
        convention: {extends: generic, anchor: {kernel: gemm, after: embed}, kernels: launched}
        assertions:
        - p50 period_ns <= 1us
        - step time <= 1us
        - stage none launches == 4
        """
    )
    assert {case.text for case in project.judged().values() if case.state != "passed"} == set()
