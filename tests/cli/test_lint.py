"""``pytest-nsys lint`` checks gate files without a trace, and tells what newer rules change, with what to write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_nsys.analysis.explained import Breakdown, Compute
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.core.conventions import BUILT_IN
from pytest_nsys.core.model import Label
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.model import GateFile
from pytest_nsys.stored.baselines.baseline_file import Baseline, MeasuredAs, StoredSeries, series_for
from pytest_nsys.stored.baselines.changes import Upgrade, upgrades
from tests.support.gates import Project

GOOD = "- overlap >= 60%\n- exposed_ns below baseline plus 5%\n"
NO_FAIL = "'>= 0%' cannot fail: overlap is never below 0%; did you mean a limit such as overlap >= 60%?"


def test_each_file_gets_a_line_and_mistakes_their_place(project: Project) -> None:
    project.gate(GOOD, "perf/a.nsys.yaml")
    project.gate("- overlap >= 0%\n- exposed_ns < 2\n", "perf/b.nsys.yaml")
    (project.root / "test_gpu.py").write_text("raise SystemExit('no GPU here')\n")
    said = project.command("lint", "perf", code=2)
    assert said.splitlines() == [
        "perf/a.nsys.yaml: good, 2 assertions",
        f"perf/b.nsys.yaml:3:11: {NO_FAIL}",
        "perf/b.nsys.yaml:4:16: exposed_ns is a time: write it in ns, us, ms or s, not 2",
    ]
    assert project.command("lint", "perf/a.nsys.yaml", code=0) == "perf/a.nsys.yaml: good, 2 assertions\n"
    answer = json.loads(project.command("lint", ".", "--format", "json", code=2))
    assert (answer["good"], [f["assertions"] for f in answer["gate_files"]]) == (False, [2, None])
    assert answer["gate_files"][1]["mistakes"][0] == {"line": 3, "column": 11, "what": NO_FAIL}


def test_files_are_found_as_pytest_finds_them(project: Project) -> None:
    project.gate(GOOD, "perf/a.nsys.yaml")
    project.gate(GOOD, "perf/left_out.nsys.yaml")
    project.gate(GOOD, "perf/c.nsys.yml")
    (project.root / "perf/conftest.py").write_text("collect_ignore = ['left_out.nsys.yaml']\n")
    right = "end it in .nsys.yaml, as c.nsys.yaml, or delete it"
    assert project.command("lint", "perf", code=2).splitlines() == [
        "perf/a.nsys.yaml: good, 2 assertions",
        f"perf/c.nsys.yml:1:1: pytest takes gate files by their name: {right}",
        "warning: perf/left_out.nsys.yaml: pytest does not collect it, so nothing is judged by it",
    ]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nope", "nope: there is no such file or folder"),
        ("gate.yaml", "gate.yaml: pytest takes gate files by their name: end it in .nsys.yaml"),
        ("empty", "pytest collects no gate file (*.nsys.yaml) in empty"),
    ],
)
def test_what_is_no_gate_file(project: Project, name: str, what: str) -> None:
    (project.root / "gate.yaml").touch()
    (project.root / "empty").mkdir()
    assert f"error: {what}" in project.command("lint", name, code=2)


def test_what_pytest_alone_refuses_is_never_good(project: Project) -> None:
    project.gate("- {assert: overlap >= 60%, marks: [slwo]}")
    (project.root / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    said = project.command("lint", ".", code=2)
    assert "'slwo' not found in `markers`" in said
    assert "good" not in said


# -- with --upgrade


def gate(tmp_path: Path, *sentences: str, head: str = "convention: pithtrain\n") -> GateFile:
    path = tmp_path / "gate.nsys.yaml"
    path.write_text(f"version: 1\n{head}assertions:\n" + "".join(f"  - {sentence}\n" for sentence in sentences))
    return load_gate_file(path)


def stored(gate: GateFile, *rows: tuple[Label, ...], **key: object) -> Baseline:
    """A baseline of the gate's first assertion, whose rows are all 7."""
    metric = METRICS[gate.assertions[0].metric]
    series = StoredSeries(metric.unit, metric.better, metric.dimensions, {row: [7] for row in rows})
    return Baseline(
        {"world": 4, **key}, "gate", series={series_for(gate.resolved_convention, gate.assertions[0]): series}
    )


STAGES = [(rank, stage) for rank in range(4) for stage in ("stage2_f", "stage4_f")]


def told(gate: GateFile, baseline: Baseline) -> list[Upgrade]:
    return upgrades(gate, [baseline], "refresh")


def test_a_stage_that_a_rank_lacks_is_told_with_its_excuse(tmp_path: Path) -> None:
    own = gate(tmp_path, "exposed_ns < 2ms", "stage4 exposed_ns < 2ms", "stage2 exposed_ns < 2ms")
    lacking = stored(own, *(row for row in STAGES if row != (3, "stage4_f")))
    lost = "rank 3 has no row of stage stage4_f, though rank 0 has"
    allowed = "allow_missing: {stage4_f: [3]}"
    assert told(own, lacking) == [
        Upgrade(4, f"'exposed_ns < 2ms' is no data now: {lost}, here and in 1 more of the file", f"write {allowed}")
    ]
    assert told(own, stored(own, *STAGES)) == []
    assert (
        told(gate(tmp_path, *(a.sentence for a in own.assertions), head=f"convention: pithtrain\n{allowed}\n"), lacking)
        == []
    )
    assert told(gate(tmp_path, "rank 0 exposed_ns < 2ms"), lacking) == []


def test_a_rank_without_any_row_is_told(tmp_path: Path) -> None:
    own = gate(tmp_path, "overlap >= 60%")
    (found,) = told(own, stored(own, *(row for row in STAGES if row[0] != 2)))
    assert found.remedy == 'write allow_missing: {"*": [2]}'


@pytest.mark.parametrize("first", [[0, 1], [0, 2]])
def test_an_end_of_the_pipeline_may_lack_a_stage_however_the_ranks_lie(tmp_path: Path, first: list[int]) -> None:
    own = gate(tmp_path, "exposed_ns < 2ms")
    mesh = {"pp": 2, "ep": 2}
    rows = [(rank, stage) for rank, stage in STAGES if stage == "stage2_f" or rank not in first]
    assert told(own, stored(own, *rows, mesh=mesh)) == []
    (found,) = told(own, stored(own, *(row for row in STAGES if row[0] != 2), mesh=mesh))
    assert found.remedy == 'write allow_missing: {"*": [2]}'


def with_kernels(lengths_ns: Mapping[str, int]) -> Baseline:
    """A baseline whose only window ran these compute kernels, one of each."""
    compute = {name: Compute(1, length, 0, 1, 0, 0) for name, length in lengths_ns.items()}
    window = Breakdown({}, {}, compute, {})
    return Baseline({"world": 1}, "gate", breakdowns={MeasuredAs("median", "range", "contained"): {0: window}})


KERNELS = {"gemm": 3_000_000, "nvshmemi_put": 1_000_000}
WORDS = "1 kernel of NVSHMEM counts as compute, 25% of the kernel time (nvshmemi_put 1 ms)"


def test_a_library_that_communicates_now_is_told(tmp_path: Path) -> None:
    own = gate(tmp_path, "window_ns < 2ms", head="convention: {extends: generic, anchor: step%}\n")
    what = f"the stored baseline has {WORDS}, and they are communication now: no run is comparable with it"
    assert told(own, with_kernels(KERNELS)) == [Upgrade(1, what, "run refresh")]
    assert told(own, with_kernels({"gemm": 3})) == []


def test_a_library_that_is_doubted_now_is_told_with_the_line_that_names_it(tmp_path: Path) -> None:
    own = gate(tmp_path, "window_ns < 2ms")
    assert own.convention == BUILT_IN["pithtrain"]
    write = 'write convention: {extends: pithtrain, communication: ["*nvshmem*"]}'
    assert told(own, with_kernels(KERNELS)) == [Upgrade(1, f"the stored baseline has {WORDS}: an error now", write)]


def test_the_command_tells_both_with_and_without_a_baseline(project: Project) -> None:
    project.gate(GOOD)
    none = "gate.nsys.yaml: good, 2 assertions; no baseline is stored, so a run alone tells what else changes\n"
    assert project.command("lint", ".", "--upgrade", code=0) == none
    project.trace(label="rank={rank}; pp=0/1 dp=0/1 cp=0/1 ep={rank}/{ranks}; mbs=1 seq=2048")
    project.refresh("--nsys-trace=run.sqlite")
    nothing = "gate.nsys.yaml: good, 2 assertions; nothing changes, as far as its baselines tell\n"
    assert project.command("lint", ".", "--upgrade", code=0) == nothing
    (path,) = (project.root / "baselines").rglob("*.json")
    text = path.read_text()
    path.write_text(text.replace(',\n [1, "stage4_f", [200000]]', ""))
    said = project.command("lint", ".", "--upgrade", code=1)
    lost = "rank 1 has no row of stage stage4_f, though rank 0 has"
    assert said == (
        f"gate.nsys.yaml:4: 'exposed_ns below baseline plus 5%' is no data now: {lost}; "
        "write allow_missing: {stage4_f: [1]}\n"
    )
    path.write_text("{")
    assert "restore it from git, or delete it" in project.command("lint", ".", "--upgrade", code=2)
