"""Are baselines readable, the same bytes for the same rows, written whole, and is the nearest to a run found?"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_nsys.analysis.windows.run_conditions import RunKey
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.model import Value
from pytest_nsys.gates.judgement import NotComparable
from pytest_nsys.gates.model import GateFile, Outcome
from pytest_nsys.stored.baselines.baseline_file import Baseline, RowLabels, StoredSeries, parse_baseline
from pytest_nsys.stored.baselines.store import BaselineStore
from pytest_nsys.verdicts.stored_baseline import StoredBaseline
from tests.support.gates import Project, built_once

GATE = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed_ns below baseline plus tolerance
"""
OVERLAP = """
assertions:
  - overlap >= baseline - 1pp
  - exposed_ns <= baseline + 50us
"""


@built_once
def refreshed(project: Project) -> Project:
    project.gate_with_trace(GATE, "perf/gate.nsys.yaml")
    project.refresh("--nsys-trace=run.sqlite")
    return project


@pytest.fixture
def accepted(project: Project) -> Path:
    """The baseline of ``perf/gate.nsys.yaml``, of ``run.sqlite``."""
    (path,) = (refreshed(project).root / "baselines").rglob("*.json")
    return path


def test_a_file_is_sorted_with_one_row_a_line(project: Project) -> None:
    project.gate(OVERLAP, "perf/deep/gate.nsys.yaml")
    project.trace(exposed_us={(1, "stage4_f"): 333}, ranks=11, stages=("stage4_f", "stage2_f"), label=None)
    project.refresh("--nsys-trace=run.sqlite")
    ((name, text),) = project.baselines().items()
    assert name.startswith("perf__deep__gate/")
    lines = text.splitlines()
    assert lines[:2] == ["{", '"format": 1,']
    assert lines[2] == '"gate": "perf/deep/gate.nsys.yaml",'
    key = {"mesh": None, "micro_batch": None, "sequence_length": None, "world": 11, "gpu": "NVIDIA H100 80GB HBM3"}
    stored = json.loads(text)
    assert {name: value for name, value in stored["key"].items() if name != "convention"} == key
    assert stored["provenance"] == {
        "reason": "a new normal",
        "commit": None,
        "profiler": ["2026.2.1"],
        "convention": "pithtrain",
        "captures": 1,
        "window": stored["provenance"]["window"],
    }
    assert [series["metric"] for series in stored["series"]] == ["exposed_ns", "overlap"]
    ns, ratio = stored["series"]
    assert [row[:2] for row in ns["rows"]][:6] == [[r, s] for r in (0, 1, 2) for s in ("stage2_f", "stage4_f")]
    assert ns["rows"][-1] == [10, "stage4_f", [200_000]]
    assert ratio["rows"][3] == [1, "stage4_f", ["667/1000"]]
    assert {k: ns[k] for k in ("definition", "window", "span", "kernels", "unit", "better", "dimensions")} == {
        "definition": 1,
        "window": "median",
        "span": "range",
        "kernels": "contained",
        "unit": "ns",
        "better": "lower",
        "dimensions": ["rank", "stage"],
    }
    assert lines.count(' [1, "stage4_f", [333000]],') == 1


def test_the_same_run_gives_the_same_bytes(project: Project, accepted: Path) -> None:
    before, when = accepted.read_bytes(), accepted.stat().st_mtime_ns
    said = project.refresh("--nsys-trace=run.sqlite", "--nsys-reason=another reason")
    assert "no row moved beyond its tolerance; unchanged" in said
    assert (accepted.read_bytes(), accepted.stat().st_mtime_ns) == (before, when)
    accepted.unlink()
    project.trace("copy.sqlite")
    project.refresh("--nsys-trace=copy.sqlite", keeps_windows=False)
    assert accepted.read_text() == re.sub(r', "window": "[0-9a-f]{64}"', "", before.decode())


@pytest.mark.parametrize(
    ("run", "now"),
    [
        ("{gpu: H100}", {"gpu": None}),
        ("{pp: 2, micro_batch: 1, sequence_length: 2048}", {"label": None}),
        ("{world: 8}", {"label": None}),
    ],
)
def test_what_a_trace_does_not_say_the_gate_file_may_state(project: Project, run: str, now: dict[str, object]) -> None:
    project.gate(GATE)
    project.trace(**now)  # type: ignore[arg-type]
    project.refresh("--nsys-trace=run.sqlite")
    project.gate(f"quality: {{missing_ranks: 6}}\nrun: {run}{GATE}")
    assert "incomparable: the nearest baseline" in project.pytest("--nsys-trace=run.sqlite", code=1)
    project.refresh("--nsys-trace=run.sqlite")
    assert len(project.baselines()) == 2
    project.pytest("--nsys-trace=run.sqlite", code=0)


@pytest.mark.usefixtures("accepted")
def test_what_a_trace_says_cannot_be_stated_otherwise(project: Project) -> None:
    project.gate("run: {gpu: B200, pp: 8, micro_batch: 7, sequence_length: 1, world: 1}" + GATE, "perf/gate.nsys.yaml")
    project.pytest("--nsys-trace=run.sqlite", code=0)


def test_a_broken_baseline_is_an_error_of_one_line(project: Project, accepted: Path) -> None:
    accepted.write_text("{")
    cases = project.cases("--nsys-trace=run.sqlite", code=1)
    (case,) = cases.values()
    assert (case.state, case.properties["nsys_outcome"]) == ("error", "error")
    assert f"error: {accepted.relative_to(project.root)}: is not a baseline: line 1: " in case.text


def test_a_null_is_one_line_of_the_refresh_too(project: Project, accepted: Path) -> None:
    accepted.write_text(json.dumps({**json.loads(accepted.read_text()), "facts": None}))
    said = project.refresh("--nsys-trace=run.sqlite", code=1)
    assert "this is a bug" not in said
    assert "$.facts: None is not of type 'object'; restore it from git, or delete it" in " ".join(said.split())


def test_a_broken_baseline_is_not_replaced_by_a_refresh(project: Project, accepted: Path) -> None:
    accepted.write_text(f"<<<<<<< HEAD\n{accepted.read_text()}")
    before = accepted.read_bytes()
    said = project.refresh("--nsys-trace=run.sqlite", code=1)
    assert "restore it from git, or delete it and refresh" in " ".join(said.split())
    assert accepted.read_bytes() == before
    accepted.unlink()
    project.refresh("--nsys-trace=run.sqlite")


def test_a_file_under_the_name_of_another_key(project: Project, accepted: Path) -> None:
    accepted.write_text(accepted.read_text().replace('"world": 2', '"world": 4'))
    said = project.pytest("--nsys-trace=run.sqlite", code=1)
    assert f"error: {accepted.relative_to(project.root)}: holds another key than its name says" in said


def test_a_link_out_of_the_folder_is_not_read(project: Project, accepted: Path) -> None:
    elsewhere = project.root / "elsewhere.json"
    accepted.rename(elsewhere)
    accepted.symlink_to(elsewhere)
    said = project.pytest("--nsys-trace=run.sqlite", code=1)
    assert f"error: {accepted.relative_to(project.root)}: leads out of the baseline folder" in said


def test_a_link_out_of_the_folder_is_not_written(project: Project) -> None:
    project.gate_with_trace(GATE)
    outside = project.root / "outside"
    outside.mkdir()
    (project.root / "baselines").mkdir()
    (project.root / "baselines" / "gate").symlink_to(outside)
    assert "leads out of the baseline folder" in project.refresh("--nsys-trace=run.sqlite", code=1)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("own", [False, True], ids=["folder", "repository"])
def test_a_link_out_of_the_repository_is_not_written(project: Project, own: bool) -> None:
    """Neither by a refresh nor by what prunes; inside of the repository, and where there is none, it may lead."""
    project.gate_with_trace(GATE, "repository/gate.nsys.yaml")
    outside = project.root / "outside"
    outside.mkdir()
    baselines = project.root / "repository" / "baselines"
    baselines.symlink_to(outside)
    project.refresh("repository", "--nsys-trace=run.sqlite")
    (written,) = outside.rglob("*.json")
    before = written.read_bytes()
    (project.root / "repository" / ".git").mkdir()
    if own:
        (outside / ".git").mkdir()
    project.trace(exposed_us=900)
    said = project.refresh("repository", "--nsys-trace=run.sqlite", code=1)
    assert "a link leads out of the repository repository, to outside/gate: make it" in " ".join(said.split())
    project.gate("- overlap >= 1%", "repository/gate.nsys.yaml")
    assert "a link leads out" in project.command("baseline", "prune", "repository/gate.nsys.yaml", code=2)
    (project.root / "repository" / "gate.nsys.yaml").rename(project.root / "repository" / "other.nsys.yaml")
    prune = ("baseline", "prune", "--orphans", "repository/other.nsys.yaml")
    assert "a link leads out" in project.command(*prune, code=2)
    assert written.read_bytes() == before
    inside = project.root / "repository" / "accepted"
    inside.mkdir()
    baselines.unlink()
    baselines.symlink_to(inside)
    project.gate(GATE, "repository/gate.nsys.yaml")
    project.refresh("repository/gate.nsys.yaml", "--nsys-trace=run.sqlite")
    assert [*inside.rglob("*.json")]


def test_a_stranger_cannot_name_a_file_outside_of_the_folder(project: Project) -> None:
    """The name is the gate file's path, and its slashes are none in a name."""
    project.gate_with_trace(GATE, "a/b../gate.nsys.yaml")
    project.refresh("--nsys-trace=run.sqlite")
    assert [name.split("/")[0] for name in project.baselines()] == ["a__b..__gate"]


def test_a_file_where_the_folder_should_be(project: Project) -> None:
    project.gate_with_trace(GATE)
    project.file("baselines", "a file")
    said = project.refresh("--nsys-trace=run.sqlite", code=1)
    assert "baselines/gate: cannot be written: baselines is not a folder" in said
    assert (project.root / "baselines").read_text() == "a file"


def test_no_permission_to_write(project: Project, accepted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = accepted.read_bytes()
    project.trace(exposed_us=500)
    monkeypatch.setattr(os, "access", lambda path, _: not str(path).endswith("perf__gate"))
    assert "cannot be written: no permission for" in project.refresh("--nsys-trace=run.sqlite", code=1)
    assert accepted.read_bytes() == before


def test_a_full_disk_destroys_nothing(project: Project, accepted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = project.contents()
    project.trace(exposed_us=500)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    said = project.refresh("--nsys-trace=run.sqlite", code=1)
    where = accepted.relative_to(project.root)
    assert f"baseline not written: {where}: cannot be written: No space left on device; nothing was changed" in said
    assert "still red" not in said  # no other refresh would help
    assert project.contents() == before


def test_a_baseline_is_replaced_in_one_step(project: Project, accepted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new file is whole before it takes the old one's name."""
    seen = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        if target == accepted:
            seen.append((json.loads(self.read_text())["format"], self.parent == accepted.parent))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    project.trace(exposed_us=500)
    project.refresh("--nsys-trace=run.sqlite")
    assert seen == [(1, True)]


def test_the_folder_by_option_is_relative_to_where_one_stands(project: Project) -> None:
    project.gate_with_trace(GATE, "perf/gate.nsys.yaml")
    project.refresh("--nsys-trace=run.sqlite", "--nsys-baseline-dir=stored/here")
    assert [name.split("/")[0] for name in project.baselines("stored/here")] == ["perf__gate"]
    project.pytest("--nsys-trace=run.sqlite", "--nsys-baseline-dir=stored/here", code=0)
    assert "no baseline is stored in baselines/perf__gate" in project.pytest("--nsys-trace=run.sqlite", code=1)


def test_the_folder_by_ini_is_relative_to_the_ini_file(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.file("pytest.ini", "[pytest]\nnsys_baseline_dir = stored\n")
    project.gate_with_trace(GATE, "perf/gate.nsys.yaml")
    project.refresh("--nsys-trace=run.sqlite")
    assert [name.split("/")[0] for name in project.baselines("stored")] == ["perf__gate"]
    monkeypatch.chdir(project.root / "perf")
    project.pytest("--nsys-trace=../run.sqlite", code=0)


@pytest.mark.usefixtures("accepted")
@pytest.mark.parametrize("arguments", [(), ("gate.nsys.yaml",), (".",)])
def test_the_folder_is_searched_upward_from_the_gate_file(
    project: Project, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(project.root / "perf")
    project.pytest("--nsys-trace=../run.sqlite", *arguments, code=0)
    project.trace(exposed_us=500)
    said = project.pytest("--nsys-trace=../run.sqlite", *arguments, code=1)
    assert 'pytest-nsys baseline refresh gate.nsys.yaml --trace=../run.sqlite --reason "…"' in said
    project.refresh("--nsys-trace=../run.sqlite", *arguments)
    assert len(project.baselines()) == 1


def test_the_search_stops_at_the_repository(project: Project) -> None:
    (project.root / "baselines").mkdir()
    (project.root / "repository" / ".git").mkdir(parents=True)
    project.gate_with_trace(GATE, "repository/perf/gate.nsys.yaml")
    project.refresh("--nsys-trace=run.sqlite", "--rootdir=repository")
    assert project.baselines() == {}
    assert len(project.baselines("repository/baselines")) == 1


def test_two_gate_files_cannot_share_a_baseline(project: Project) -> None:
    """``a/b`` and ``a__b`` have the same name in the folder."""
    project.gate(GATE, "a/b.nsys.yaml")
    project.gate_with_trace("assertions:\n  - overlap >= baseline - 1pp", "a__b.nsys.yaml")
    project.refresh("--nsys-trace=run.sqlite", "a/b.nsys.yaml")
    before = project.baselines()
    said = project.refresh("--nsys-trace=run.sqlite", "a__b.nsys.yaml", code=1)
    assert "is the baseline of another gate file, a/b.nsys.yaml" in said
    assert project.baselines() == before


def series(unit: str, *runs: Sequence[Value], calibration: Sequence[Sequence[Value]] = ()) -> StoredSeries:
    """Two rows, rank 0 and 1, of which each run has a pair of values."""
    rows: dict[RowLabels, list[Value]] = {(rank,): [run[rank] for run in runs] for rank in (0, 1)}
    noise: dict[RowLabels, list[Value]] = {}
    if calibration:
        noise = {(rank,): [run[rank] for run in calibration] for rank in (0, 1)}
    return StoredSeries(unit, "lower", ("rank",), rows, noise)


def test_of_several_accepted_runs_the_median_counts_by_row() -> None:
    three = series("ns", (1, 30), (5, 10), (2, 20))
    assert three.baseline_values == {(0,): 2, (1,): 20}
    assert series("ns", (1, 30), (4, 10)).baseline_values == {(0,): Fraction(5, 2), (1,): 20}
    assert three.rows_by_run == [{(0,): 1, (1,): 30}, {(0,): 5, (1,): 10}, {(0,): 2, (1,): 20}]


def test_of_several_accepted_fingerprints_the_newest_counts() -> None:
    """They are no amounts: neither the oldest nor what lies between two of them ran last."""
    assert series("hash", (10, 11), (30, 31), (20, 21)).baseline_values == {(0,): 20, (1,): 21}


def test_accepted_runs_that_are_traces_of_the_calibration_are_told_by_all_of_their_rows() -> None:
    found = series("ns", (1, 2), (1, 3), (4, 5), (5, 4), calibration=[(4, 5), (1, 3), (9, 9), (9, 8), (7, 7)])
    assert found.calibrated_positions == {1, 2}
    assert series("ns", (1, 2)).calibrated_positions == frozenset()
    assert series("ns").rows_by_run == []


HOW = '"window": "median", "span": "range", "kernels": "contained"'
FILE = f"""{{
"format": 1,
"gate": "g.nsys.yaml",
"key": {{"world": 2}},
"facts": {{"anchor": ["step"]}},
"provenance": {{"reason": "why"}},
"series": [
{{"metric": "busy_ns", "definition": 1, {HOW}, "unit": "ns", "better": null, "dimensions": ["rank", "stage"], "rows": [
 [0, "stage2_f", [200000]],
 [0, "stage4_f", [200000]]
]}},
{{"metric": "comm_ns", "definition": 1, {HOW}, "unit": "ns", "better": "lower", "dimensions": ["rank"], "rows": [
 [0, [1, 3], [1, 2, 3, 4, 5]],
 [1, ["5/2", 4], [5, 4, 3, 2, 1]]
]}}
]
}}
"""


def test_a_file_is_read_to_what_was_written() -> None:
    baseline = parse_baseline(FILE.encode(), "b.json")
    one, two = baseline.series.values()
    assert one.rows == {(0, "stage2_f"): [200_000], (0, "stage4_f"): [200_000]}
    assert two.rows == {(0,): [1, 3], (1,): [Fraction(5, 2), 4]}
    assert two.calibration == {(0,): [1, 2, 3, 4, 5], (1,): [5, 4, 3, 2, 1]}
    assert baseline.serialize() == FILE


ROW = '[0, "stage2_f", [200000]]'
BROKEN = {
    "cut short": (FILE[300:], FILE[300:320], "line "),
    "a merge conflict": (ROW, f"<<<<<<< HEAD\n{ROW}\n=======\n{ROW}\n>>>>>>> branch", "line "),
    "no object": (FILE, "[]", "the file is not an object"),
    "nothing": (FILE, "", "line 1: "),
    "no series": ('"series"', '"serie"', "$: 'series' is a required property"),
    "a later format": ('"format": 1', '"format": 3', "format 3 is not 1: written by another"),
    "a format that is not a number": ('"format": 1', '"format": true', "format True is not 1"),
    "a key twice": ('"gate":', '"format": 1, "gate":', "a key appears twice"),
    "a series twice": ("comm_ns", "busy_ns", "a series appears twice"),
    "a row twice": ('[0, "stage4_f"', '[0, "stage2_f"', 'the row [0, "stage2_f"] of busy_ns appears twice'),
    "a row without values": ("[200000]", "[]", "does not fit its dimensions"),
    "values that are no list": ("[200000]", "5", "does not fit its dimensions"),
    "a row too short": ('[0, "stage2_f", ', "[0, ", "does not fit its dimensions"),
    "a row of labels alone": (', "stage2_f", [200000]]', "]", "does not fit its dimensions"),
    "a row too long": ("[200000]]", "[200000], [1, 2, 3, 4, 5], [6]]", "does not fit its dimensions"),
    "a calibration of nothing": ("[1, 2, 3, 4, 5]", "[]", "does not fit its dimensions"),
    "a calibration of three": ("[1, 2, 3, 4, 5]", "[1, 2, 3]", "has 3 calibration values, and 4 are the fewest"),
    "calibrations of several lengths": ("[1, 2, 3, 4, 5]", "[1, 2, 3, 4, 5, 6]", "different numbers of calibration"),
    "rows of several accepted runs": ("[200000]", "[1, 2]", "different numbers of accepted runs"),
    "a number with a point": ("200000", "200000.5", "200000.5 is not a value"),
    "not a number": ("200000", "NaN", "NaN is not a value"),
    "text for a number": ("200000", '"1/0"', "'1/0' is not a value"),
    "an endless number": ("200000", "1e999", "1e999 is not a value"),
    "a value of null": ("200000", "null", "None is not a value"),
    "a label that is a list": ('"stage2_f"', "[]", "a label that is neither text nor a number"),
    "a label with a point": ('"stage2_f"', "0.5", "a label that is neither text nor a number"),
    "facts that are a list": ('{"anchor"', '[[1], {"anchor"', "line "),
    "facts that are a number": ('{"anchor": ["step"]}', "3", "$.facts: 3 is not of type 'object'"),
    "nested without end": (FILE, "[" * 100_000, ""),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_in_a_baseline_is_said_in_one_line(case: str) -> None:
    old, new, what = BROKEN[case]
    assert old in FILE
    with pytest.raises(BaselineError) as caught:
        parse_baseline(FILE.replace(old, new, 1).encode(), "b.json")
    said = str(caught.value)
    assert said.startswith("b.json: is not a baseline: ")
    assert what in said
    advice = "delete the file and refresh it" if "format" in case else "restore it from git, or delete it and refresh"
    assert said.endswith(advice)
    assert "\n" not in said


# The nearest of several stored keys


def key(**differing: object) -> RunKey:
    own: dict[str, Any] = {"convention": "c", "mesh": None, "micro_batch": 1, "sequence_length": 2, "world": 4}
    return RunKey(**{**own, "gpu": "H100", **differing})


class Run:
    """What a baseline is asked for on behalf of a run: its key and the circumstances beside it."""

    facts: Mapping[str, object] = {}
    convention = SimpleNamespace(name="pithtrain")

    def build_key(self, _: object) -> RunKey:
        return key()


def stored(folder: Path, *keys: RunKey, comparable_on: tuple[str, ...] | None = None) -> StoredBaseline:
    store = BaselineStore(folder / "g", "g.nsys.yaml")
    for each in keys:
        store.save(store.build_path(each), Baseline(each.as_json(), "g.nsys.yaml"))
    gate = GateFile(folder / "g.nsys.yaml", (), BUILT_IN_CONVENTIONS["pithtrain"], comparable_on=comparable_on)
    return StoredBaseline(Run(), gate, store)  # type: ignore[arg-type]


def why(source: StoredBaseline) -> NotComparable:
    found = source._nearest_baseline
    assert isinstance(found, NotComparable)
    return found


FAR, NEAR = key(world=8, gpu="A100", micro_batch=2), key(world=16)


@pytest.mark.parametrize("keys", [(FAR, NEAR), (NEAR, FAR), (NEAR, FAR, key(world=8, gpu="B200"))])
def test_of_several_stored_keys_the_nearest_says_what_differs(tmp_path: Path, keys: tuple[RunKey, ...]) -> None:
    found = why(stored(tmp_path, *keys))
    assert found.outcome is Outcome.INCOMPARABLE
    assert [(d.name, d.current, d.baseline) for d in found.differences] == [("world", "4", "16")]
    assert f"{NEAR.digest}.json is from a different setup (world: now 4, baseline 16)" in found.reason


def test_the_own_key_is_taken_whatever_else_is_stored(tmp_path: Path) -> None:
    for on in (None, ("gpu",)):  # on which another agrees as well
        source = stored(tmp_path, NEAR, key(), FAR, comparable_on=on)
        assert source.path == tmp_path / "g" / f"{key().digest}.json"


def test_nothing_stored_is_no_data(tmp_path: Path) -> None:
    found = why(stored(tmp_path))
    assert (found.outcome, found.differences) == (Outcome.NO_DATA, ())
    assert stored(tmp_path).path is None


def test_the_one_that_agrees_on_what_is_named_is_taken(tmp_path: Path) -> None:
    assert stored(tmp_path, FAR, NEAR, comparable_on=("gpu",)).path == tmp_path / "g" / f"{NEAR.digest}.json"


def test_two_that_agree_alike_are_a_mistake(tmp_path: Path) -> None:
    both = stored(tmp_path, NEAR, key(world=32), FAR, comparable_on=("gpu",))
    names = ", ".join(sorted(f"{each.digest}.json" for each in (NEAR, key(world=32))))
    with pytest.raises(BaselineError, match=f"{names} agree equally on what comparable_on names"):
        _ = both.path


def test_rows_within_the_tolerance_are_counted(project: Project) -> None:
    project.accepted("- exposed_ns below baseline plus 50%\n", ranks=1)
    project.trace("other.sqlite", 210, ranks=1)
    assert "2 rows within the tolerance kept: --all writes them" in project.refresh("--nsys-trace=other.sqlite")
