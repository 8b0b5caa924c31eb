"""Is a new metric one function and one entry? One that the package does not know, through everything it knows to do."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import pytest

from pytest_nsys.analysis.metrics import overlap
from pytest_nsys.analysis.metrics.registry import METRICS, Better, DraftHint, Metric, MetricSource, RequiredKey
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.model import Note
from pytest_nsys.core.units import TIME
from tests import generate_docs
from tests.support.gates import Project


def longest_exposed_ns(window: RankWindow) -> Mapping[str, int]:
    """The longest part of one communication kernel during which no compute kernel runs, per (rank, stage)."""
    return {
        stage: max(window.exposed_ns[i] for i in members) for stage, members in window.communication_by_stage.items()
    }


def waits_told(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    yield Note(f"{len(captures)} of it under {spec}", True)


NEW = Metric(
    "metrics.overlap:longest_exposed_ns",
    TIME,
    Better.LOWER,
    ("rank", "stage"),
    source=MetricSource.COMMUNICATION,
    notes_path="metrics.overlap:waits_told",
    parts_path="explain.causes:EXPOSED",
    draft_hint=DraftHint("The worst of a stage", 0),
)
GATE = "- stage2_f longest exposed ns <= 250us\n- longest_exposed_ns <= baseline + 5%"


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (longest_exposed_ns, waits_told):
        monkeypatch.setattr(overlap, function.__name__, function, raising=False)
    monkeypatch.setitem(cast("dict[str, Metric]", METRICS), NEW.name, NEW)


def test_a_gate_a_baseline_causes_and_reports(project: Project) -> None:
    project.accepted(GATE, 200, name="base.sqlite")
    assert '"longest_exposed_ns"' in "".join(project.baselines().values())
    assert "2 passed" in project.pytest("--nsys-trace=base.sqlite", code=0)
    project.trace("run.sqlite", {(0, "stage2_f"): 400})
    said = project.pytest("--nsys-trace=run.sqlite", "--nsys-json=out.json", code=1)
    assert "+200 us  gemm in stage2_f 12% shorter (1.6 → 1.4 ms); it hid communication" in said
    assert "warning: 1 of it under window median, kernels contained" in said
    assert "pytest-nsys run.sqlite --view overlap --rank 0" in said
    (file,) = json.loads((project.root / "out.json").read_text())["gate_files"]
    values = [[row["value"]["exact"] for row in each["rows"]] for each in file["assertions"]]
    assert values[0] == [400_000, 200_000]
    assert "failed: 1 of 4 rows" in said


def test_what_it_takes_is_asked_for(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = Metric(NEW.import_path, TIME, Better.LOWER, ("rank", "stage"), required_key=RequiredKey("blocks", "[…]"))
    monkeypatch.setitem(cast("dict[str, Metric]", METRICS), NEW.name, stated)
    project.gated(GATE)
    assert "longest_exposed_ns needs blocks: […] in this file" in project.pytest("--nsys-trace=run.sqlite", code=2)


def test_a_comparison(project: Project) -> None:
    project.trace("base.sqlite", 200)
    project.trace("head.sqlite", {(1, "stage4_f"): 500})
    gate = project.gate("- longest_exposed_ns <= baseline + 5%")
    said = project.command("compare", "base.sqlite", "head.sqlite", f"--gate={gate.name}", code=1)
    assert "longest_exposed_ns" in said
    assert "+300 us  gemm" in said


def test_rows_lists_and_a_first_gate_file(project: Project) -> None:
    project.trace()
    project.command("rows", NEW.name, "--trace=run.sqlite", "--format=json", code=0)
    assert [row[NEW.name] for row in json.loads(project.result.stdout.str())["rows"]] == [200_000] * 4
    assert NEW.summary in project.command("metrics", "--all", code=0)
    assert f"- `{NEW.name}`↓ (stage): " in generate_docs.metrics()
    project.command("init", "run.sqlite", code=0)
    (drafted,) = (path.read_text() for path in project.root.glob("*.nsys.yaml"))
    assert "# At most 200 us" in drafted
    assert "longest_exposed_ns below baseline plus" in drafted
