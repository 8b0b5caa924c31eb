"""Is the noise of every stored row measured on traces of one commit, kept, and told?"""

import json
import re
import shutil
from typing import Any

import pytest

from pytest_nsys.verdicts.refresh_modes import RefreshMode
from tests.support.gates import MS, Project
from tests.support.samples.builder import Process, TraceBuilder

GATE = """
assertions:
  - {id: exposed, assert: exposed_ns <= baseline + 50us}
"""
CALIBRATE = ("baseline", "calibrate", "--reason=why")
SPREAD = (190, 195, 200, 205, 210)
"""Of a variance of 62.5, so s is 7.9 us, or 3.95% of 200."""


@pytest.fixture
def gated(project: Project) -> Project:
    project.gate(GATE)
    return project


def traces(project: Project, spread: tuple[int, ...] = SPREAD, **more: Any) -> list[str]:
    """One trace for each exposed time of rank 0 stage2_f; every other row is always 200 us."""
    names = [f"a{n}.sqlite" for n in range(1, len(spread) + 1)]
    for name, exposed_us in zip(names, spread, strict=True):
        project.trace(name, exposed_us={(0, "stage2_f"): exposed_us}, **more)
    return names


def calibrate(project: Project, names: list[str], *more: str, code: int = 0) -> str:
    options = [f"--nsys-trace={name}" for name in names]
    return project.refresh(*options, *more, code=code, mode=RefreshMode.CALIBRATE)


def series(project: Project) -> dict[str, Any]:
    (text,) = project.baselines().values()
    found: dict[str, Any] = json.loads(text)["series"][0]
    return found


def test_the_noise_is_stored_beside_what_was_accepted(gated: Project) -> None:
    gated.trace(exposed_us=200)
    gated.refresh("--nsys-trace=run.sqlite", "--nsys-reason=the first")
    said = calibrate(gated, traces(gated), "--nsys-reason=calm night")
    assert "the accepted runs are as they were, their noise is new" in said
    assert series(gated)["rows"][:2] == [
        [0, "stage2_f", [200_000], [190_000, 195_000, 200_000, 205_000, 210_000]],
        [0, "stage4_f", [200_000], [200_000] * 5],
    ]
    (text,) = gated.baselines().values()
    provenance = json.loads(text)["provenance"]
    assert provenance["reason"] == "the first"
    assert (provenance["calibration"]["reason"], provenance["calibration"]["traces"]) == ("calm night", 5)


def test_what_is_printed(project: Project) -> None:
    project.gate(GATE + "  - {id: tight, assert: exposed_ns <= baseline + 1us}")
    said = calibrate(project, traces(project))
    noise = said.partition("  noise of exposed_ns")[2].splitlines()
    assert noise[0] == " (window median, span range, kernels contained) over 5 traces"
    assert [line.split() for line in noise[1:5]] == [
        ["row", "median", "s0", "/", "median", "s0"],
        ["-" * 15, "-" * 6, "-" * 11, "-" * 7],
        ["rank", "0", "stage2_f", "200", "us", "3.95%", "7.91", "us"],
        ["rank", "0", "stage4_f", "200", "us", "0%", "0", "ns"],
    ]
    assert "    exposed: the tolerance holds the noise, which is up to 48.5 us\n" in said
    assert (
        "    tight: warning: the noise is more than twice the tolerance in 1 of 4 rows: 48.5 us, tolerance 1 us "
        "(rank 0 stage2_f): no change below 48.5 us can be told from chance: calibrate anew, or widen the tolerance\n"
    ) in said


def test_the_same_traces_again_change_no_byte(gated: Project) -> None:
    names = traces(gated)
    calibrate(gated, names)
    before = gated.baselines()
    assert "calibrated on these traces already; unchanged" in calibrate(gated, names, "--nsys-reason=again")
    assert gated.baselines() == before


def test_copies_of_one_trace_measure_no_noise(gated: Project) -> None:
    names = traces(gated)
    shutil.copy(gated.root / names[1], gated.root / names[4])
    said = calibrate(gated, names, code=1)
    assert re.search(r"a2\.sqlite and \S*a5\.sqlite hold the same bytes: one trace is one sample", said)
    assert gated.baselines() == {}


def test_other_traces_replace_the_noise(gated: Project) -> None:
    calibrate(gated, traces(gated))
    calibrate(gated, traces(gated, (200,) * 6))
    assert series(gated)["rows"][0][3] == [200_000] * 6


def test_a_refresh_keeps_the_noise_of_rows_that_stay(gated: Project) -> None:
    calibrate(gated, traces(gated))
    gated.trace(exposed_us=900, stages=("stage2_f", "stage3_f"))
    gated.refresh("--nsys-trace=run.sqlite")
    rows = {tuple(row[:2]): row[2:] for row in series(gated)["rows"]}
    assert rows[0, "stage2_f"] == [[900_000], [190_000, 195_000, 200_000, 205_000, 210_000]]
    assert rows[0, "stage3_f"] == [[900_000]]
    (text,) = gated.baselines().values()
    assert json.loads(text)["provenance"]["calibration"]["traces"] == 5


def test_the_noise_of_another_run_does_not_stay(gated: Project) -> None:
    calibrate(gated, traces(gated))
    gated.trace(profiler="2025.6.1")
    assert "every row is written, and its noise is to be calibrated again" in gated.refresh("--nsys-trace=run.sqlite")
    assert series(gated)["rows"][0] == [0, "stage2_f", [200_000]]
    (text,) = gated.baselines().values()
    assert "calibration" not in json.loads(text)["provenance"]


def test_the_noise_decides_in_the_gate(project: Project) -> None:
    """50 us more is beyond a tolerance of 30 us, and within noise that scatters by 40 us."""
    project.accepted("assertions:\n  - exposed_ns <= baseline + 30us", 200)
    project.trace(exposed_us={(0, "stage2_f"): 250})
    assert "failed" in project.pytest("--nsys-trace=run.sqlite", code=1)
    calibrate(project, traces(project, (150, 175, 200, 225, 250)))
    assert "inconclusive" in project.pytest("--nsys-trace=run.sqlite", code=0)


@pytest.mark.parametrize("stored", [False, True])
def test_a_hiccup_is_named_and_not_stored(project: Project, stored: bool) -> None:
    """Else it is the noise, and lets half as much again pass from then on."""
    project.gate("assertions:\n  - exposed_ns <= baseline + 10%")
    if stored:
        project.trace(exposed_us=200)
        project.refresh("--nsys-trace=run.sqlite")
    said = calibrate(project, traces(project, (198, 199, 340, 201, 202)))
    line = (
        "capture 3 of 5 (a3.sqlite) is a hiccup, and left out of every row: "
        "rank 0 stage2_f exposed_ns is 340 us, the median of the others 200 us"
    )
    assert f"  {line}\n" in said
    (row,) = [each for each in series(project)["rows"] if each[:2] == [0, "stage2_f"]]
    calm = [198_000, 199_000, 201_000, 202_000]
    assert row[2:] == ([[200_000], calm] if stored else [calm, calm])
    (text,) = project.baselines().values()
    assert json.loads(text)["provenance"]["calibration"]["traces"] == 4
    project.trace(exposed_us={(0, "stage2_f"): 300})
    assert "failed" in project.pytest("--nsys-trace=run.sqlite", code=1)


def test_four_traces_are_too_few_whatever_is_left_out(project: Project) -> None:
    project.gate("assertions:\n  - exposed_ns <= baseline + 10%")
    assert "5 or more traces, not on 4" in calibrate(project, traces(project, (198, 199, 201, 202)), code=1)


def test_only_assertions_with_a_baseline_are_run(project: Project) -> None:
    """What a constant says of the traces has nothing to do with their noise."""
    project.gate(GATE + "  - exposed_ns <= 1us")
    project.file("test_other.py", "def test_other():\n    assert False\n")
    assert "1 passed, 2 deselected" in calibrate(project, traces(project), ".")


def mixed(_: TraceBuilder, processes: list[Process]) -> None:
    processes[0].range("layer00.stage1_f", 50 * MS, 51 * MS)
    processes[0].kernel("ncclDevKernel_SendRecv", 50 * MS, 51 * MS, stream=28, launch_ns=50 * MS)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a row that one trace lacks": (
        GATE,
        {"exposed_us": {(1, "stage4_f"): None}},
        "exposed_ns rank 1 stage4_f is not in a3.sqlite, and is in another trace",
    ),
    "another key": (GATE, {"gpu": "NVIDIA B200"}, "differ in gpu"),
    "another profiler": (
        GATE,
        {"profiler": "2025.6.1"},
        "a3.sqlite is from a different setup than a1.sqlite (profiler: now 2025, a1.sqlite 2026)",
    ),
    "a structure that fails in one": (
        GATE + "  - no mixed comm streams",
        {"edit": mixed},
        "a3.sqlite: the structural assertion 'no mixed comm streams' fails",
    ),
    "an assertion without data in one": (
        GATE + "  - stage4 overlap >= 1%",
        {"stages": ("stage2_f",)},
        "a3.sqlite: 'stage4 overlap >= 1%' has no data",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_for_one_trace_of_five(project: Project, case: str) -> None:
    gate, third, why = REFUSED[case]
    project.gate(gate)
    names = traces(project)
    project.refresh("--nsys-trace=a1.sqlite")
    before = project.baselines()
    project.trace("a3.sqlite", **third)
    assert why in calibrate(project, names, code=1)
    assert project.baselines() == before


def test_a_baseline_of_another_run_is_not_calibrated(gated: Project) -> None:
    gated.trace(profiler="2025.6.1")
    gated.refresh("--nsys-trace=run.sqlite")
    before = gated.baselines()
    assert "holds another run (profiler: now 2026, baseline 2025)" in calibrate(gated, traces(gated), code=1)
    assert gated.baselines() == before


# The command


def test_the_command(project: Project) -> None:
    """Every gate file below where it is called, and those of the project's settings."""
    project.file("pytest.ini", "[pytest]\nnsys_baseline_dir = stored\naddopts = -n 2\n")
    project.gate(GATE, "perf/step.nsys.yaml")
    project.gate("- overlap >= 99%", "perf/constant.nsys.yaml")
    project.gate("not a gate file", ".hidden/bad.nsys.yaml")
    names = traces(project)
    said = project.command(*CALIBRATE, *names, code=0)
    assert "new file, 4 rows" in said
    assert "exposed: the tolerance holds the noise" in said
    (text,) = project.baselines("stored").values()
    assert json.loads(text)["provenance"]["reason"] == "why"


def test_the_command_on_one_gate_file(project: Project) -> None:
    for name in ("a.nsys.yaml", "b.nsys.yaml"):
        project.gate(GATE, name)
    words = ("baseline", "calibrate", *traces(project), "--gate", "a.nsys.yaml", "--baseline-dir=here", "--reason=why")
    project.command(*words, code=0)
    assert [name.split("/")[0] for name in project.baselines("here")] == ["a"]


def test_the_command_and_its_mistakes(project: Project) -> None:
    names = traces(project)
    assert "there is no gate file (*.nsys.yaml) below" in project.command(*CALIBRATE, *names, code=2)
    project.gate(GATE)
    said = project.command(*CALIBRATE, *names[:4], code=2)
    assert "noise is measured on 5 or more traces of one commit, not on 4: give more" in said
    assert "there is no such file" in project.command(*CALIBRATE, *names, "no.sqlite", code=2)
    project.trace("a3.sqlite", profiler="2025.6.1")
    assert "is from a different setup than" in project.command(*CALIBRATE, *names, code=3)
    assert project.baselines() == {}
