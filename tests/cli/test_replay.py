"""What would a gate file have caught? Told run by run, of the rows that a history keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.conventions import BUILT_IN
from tests.support.commands import run
from tests.support.gates import Project
from tests.support.histories import KEY, entry, nightly, series
from tests.support.sql import execute

CONVENTION = "convention: pithtrain\n"
TOLERANCE = "tolerance: {rel: 5%, abs: 10us}\n"
BASELINE = "exposed_ns below baseline plus tolerance"
KEY_NOW = {**KEY, "convention": BUILT_IN["pithtrain"].fingerprint()}


def past(value: int, **more: Any) -> Any:
    """A run of so many us, on either rank."""
    rows = series({(rank, "stage2_f"): str(value * 1000) for rank in (0, 1)})
    return entry(key=KEY_NOW, **{"every": [rows], **more})


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Seven nights: a step up that stays, and one night that is slow by itself."""
    values = (200, 202, 300, 301, 420, 299, 300)
    return nightly(tmp_path / "perf.db", monkeypatch, [past(value) for value in values])


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes a history of these runs, one a night."""
    return lambda *runs: nightly(tmp_path / "h.db", monkeypatch, runs)


def replayed(project: Project, database: Path, *words: str, code: int = 0) -> dict[str, Any]:
    gate = f"--gate={project.root / project.name}"
    said = run("history", gate, "--history", database, "--format=json", *words, code=code)
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def test_each_run_is_held_against_the_one_before(project: Project, database: Path) -> None:
    project.gate(f"{CONVENTION}{TOLERANCE}assertions:\n- {BASELINE}\n- exposed_ns < 400us")
    found = replayed(project, database)
    assert [row["now"] for row in found["rows"]] == [
        *("passed", "passed", "failed", "passed", "failed", "improved", "passed")
    ]
    assert (found["judged"], found["red"], found["not_judged"]) == (7, 2, [])
    step, slow = (found["rows"][night]["assertions"] for night in (2, 4))
    assert [(each["name"], each["outcome"], each["after"]) for each in step] == [
        ("exposed_ns below", "failed", "still there in the next run"),
        ("exposed_ns <", "passed", None),
    ]
    assert [(each["after"], each["against"]) for each in slow] == [
        ("back in the next run", 4),
        ("back in the next run", None),
    ]
    assert step[0]["why"] == "300 us > 212 us, rank 0 stage2_f"


def test_people_read_a_line_a_run_and_what_there_was_in_all(project: Project, database: Path) -> None:
    project.gate(f"{CONVENTION}{TOLERANCE}assertions:\n- {BASELINE}\n- overlap >= 60%")
    said = run("history", "--gate", project.root / project.name, "--history", database, code=0)
    lines = said.stdout.splitlines()
    assert lines[0].split() == ["run", "commit", "branch", "then", "now", "why", "assertion", "after"]
    assert lines[4].split() == [
        *("2026-01-03", "02:00", "2222222222", "main", "passed", "failed", "300", "us", ">", "212", "us,", "rank", "0"),
        *("stage2_f", *BASELINE.split(), "still", "there", "in", "the", "next", "run"),
    ]
    assert lines[-3:] == [
        "6 runs judged (2026-01-02 to 2026-01-07), 2 red; 1 run not judged",
        "  of the failed assertions: 1 still there in the next run, 1 back in the next run",
        "  not judged: overlap >= 60%: no run has rows of overlap: runs under this gate file store them",
    ]
    assert "bounds of quality, measured noise and causes need the traces" in said.stderr


def test_nothing_judged_is_no_success(project: Project, database: Path) -> None:
    project.gate(f"{CONVENTION}assertions:\n- overlap >= 60%\n- {{assert: exposed_ns < 1ms, window: steady}}")
    found = replayed(project, database, code=3)
    assert found["judged"] == 0
    assert {each["assertion"]: each["why"] for each in found["not_judged"]} == {
        "overlap >= 60%": "no run has rows of overlap: runs under this gate file store them",
        "exposed_ns < 1ms": "exposed_ns was measured otherwise: median, range, contained",
    }


def test_what_was_measured_under_another_convention_is_not_judged(project: Project, database: Path) -> None:
    project.gate("convention: {extends: pithtrain, span: period}\nassertions:\n- exposed_ns < 1ms")
    (left,) = replayed(project, database, code=3)["not_judged"]
    assert left["why"] == "its runs were measured under another convention"
    project.gate("assertions:\n- exposed_ns < 1ms")  # auto: as they were measured
    assert replayed(project, database)["judged"] == 7


def test_an_accepted_run_is_what_the_next_ones_are_held_against(project: Project, nights: Callable[..., Path]) -> None:
    project.gate(f"{CONVENTION}{TOLERANCE}assertions:\n- {BASELINE}")
    runs = [past(200, outcome="refresh"), past(260), past(265), past(260, outcome="refresh"), past(262)]
    found = replayed(project, nights(*runs))
    assert [(row["now"], row["assertions"][0]["after"]) for row in found["rows"][1:]] == [
        ("failed", "still there in the next run"),
        ("failed", "still there in the next run"),
        ("failed", "accepted by a refresh"),
        ("passed", None),
    ]
    assert found["rows"][4]["assertions"][0]["against"] == 4
    assert found["rows"][0]["now"] == "not judged"


def test_noise_is_what_the_same_commit_does_not_show_again(project: Project, nights: Callable[..., Path]) -> None:
    project.gate(f"{CONVENTION}assertions:\n- exposed_ns < 250us")
    database = nights(past(200), past(300), past(200))
    execute(database, f"UPDATE runs SET commit_id = '{'a' * 40}' WHERE id > 1")
    found = replayed(project, database)
    assert found["rows"][1]["assertions"][0]["after"] == "back in the next run of the same commit"


def test_fail_after_waivers_and_warnings_are_as_in_a_session(project: Project, nights: Callable[..., Path]) -> None:
    head = f"{CONVENTION}{TOLERANCE}assertions:\n"
    database = nights(past(200, outcome="refresh"), past(300), past(300), past(300))
    project.gate(f"{head}- {{assert: {BASELINE}, fail_after: 3}}")
    assert [row["now"] for row in replayed(project, database)["rows"]][1:] == [
        "inconclusive",
        "inconclusive",
        "failed",
    ]
    project.gate(f"{head}- {{assert: {BASELINE}, severity: warn}}")
    assert [row["red"] for row in replayed(project, database)["rows"]][1:] == [False] * 3
    waiver = f"waivers:\n- {{assertion: {BASELINE}, ceiling: 350us, expires: 2026-01-03, reason: known}}"
    project.gate(f"{head}- {BASELINE}\n{waiver}")  # by the day of the run
    assert [row["now"] for row in replayed(project, database)["rows"]][1:] == ["passed", "passed", "failed"]


def test_what_is_expected_to_fail_is_red_where_it_holds(project: Project, database: Path) -> None:
    """As in a session, whose xfail is strict."""
    project.gate(f"{CONVENTION}assertions:\n- {{assert: exposed_ns < 250us, xfail: issue 7}}")
    assert [row["red"] for row in replayed(project, database)["rows"]] == [True] * 2 + [False] * 5


def test_how_many_runs_are_told_changes_no_verdict(project: Project, nights: Callable[..., Path]) -> None:
    """What a run is held against, and how long it has been bad, lies before the runs that are told."""
    runs = [past(200, outcome="refresh"), past(300), past(300), past(300), past(301)]
    database = nights(*runs)
    project.gate(f"{CONVENTION}{TOLERANCE}assertions:\n- {{assert: {BASELINE}, fail_after: 3}}\n- exposed_ns < 250us")
    all_of_them = replayed(project, database)
    for last in (1, 2, 3):
        told = replayed(project, database, f"--last={last}")
        assert told["rows"] == all_of_them["rows"][-last:]
        assert told["judged"] == last
    assert [each["against"] for each in told["rows"][-1]["assertions"]] == [1, None]


@pytest.mark.parametrize("lag", [1, 3])
def test_as_many_runs_as_lag_says_are_held_against_nothing(project: Project, database: Path, lag: int) -> None:
    history = f"{{history: 3, branch: main, lag: {lag}, rel: 5%, abs: 10us}}"
    project.gate(f"{CONVENTION}assertions:\n- {{metric: exposed_ns, baseline: {history}}}")
    rows = replayed(project, database)["rows"]
    assert [row["now"] == "not judged" for row in rows] == [night < 1 + lag for night in range(7)]


def test_a_limit_that_follows_the_history(project: Project, database: Path) -> None:
    project.gate(
        f"{CONVENTION}assertions:\n- {{metric: exposed_ns, baseline: {{history: 3, branch: main, rel: 5%, abs: 10us}}}}"
    )
    found = replayed(project, database)
    assert [row["now"] for row in found["rows"]] == [
        *("not judged", "passed", "failed", "failed", "failed", "failed", "failed")
    ]


def test_a_measurement_is_judged_in_its_own_unit(project: Project, nights: Callable[..., Path]) -> None:
    own = {"metric": "measured mfu", "unit": "%", "better": "higher", "dimensions": []}
    own |= dict.fromkeys(("window", "span", "kernels"), "none")
    runs = [past(0, every=[series({(): value}, **own)]) for value in ("9/20", "2/5")]
    project.gate(f"{CONVENTION}assertions:\n- measured mfu >= 43%")
    found = replayed(project, nights(*runs))
    assert [(row["now"], row["assertions"][0]["why"]) for row in found["rows"]][1] == ("failed", "40% < 43%")


def test_each_configuration_of_a_matrix_has_its_own_runs(project: Project, nights: Callable[..., Path]) -> None:
    project.gate(f"{CONVENTION}matrix: {{a: x, b: y, c: z}}\nassertions:\n- exposed_ns < 250us")
    runs = [past(200, gate="gate.nsys.yaml[a]"), past(300, gate="gate.nsys.yaml[b]")]
    database = nights(*runs)
    rows = replayed(project, database)["rows"]
    assert [(row["gate"], row["now"]) for row in rows] == [
        ("gate.nsys.yaml[a]", "passed"),
        ("gate.nsys.yaml[b]", "failed"),
    ]
    said = run("history", "--gate", f"{project.root / project.name}[b]", "--history", database, code=0)
    assert "1 run judged (2026-01-02 to 2026-01-02), 1 red" in said.stdout


def test_mistakes(project: Project, database: Path) -> None:
    project.gate("- exposed_ns < 1ms", "other.nsys.yaml")
    said = run("history", "--gate", project.root / "other.nsys.yaml", "--history", database, code=2)
    assert "there is no run of the gate file 'other.nsys.yaml'" in said.stderr
    run("history", "--gate", project.root / "other.nsys.yaml", "--history", database, "--of=gate.nsys.yaml", code=0)
    said = run("history", "--gate", project.root / "other.nsys.yaml", "--history", database.with_name("no.db"), code=2)
    assert "no history at " in said.stderr
    said = run("history", "--gate", "none.nsys.yaml", "--history", database, code=2)
    told = "--gate none.nsys.yaml: there is no such file; --of none.nsys.yaml picks stored runs"
    assert (said.stdout, said.stderr) == ("", f"error: {told}\n")


def test_runs_of_a_session_are_replayed(project: Project) -> None:
    """End to end: what pytest stored."""
    for name, exposed in (("one", 200), ("two", 200), ("three", 600)):
        project.trace(f"{name}.sqlite", exposed)
        project.gate("- exposed_ns < 1ms\n- overlap >= 10%")
        project.pytest(f"--nsys-trace={name}.sqlite", "--nsys-history=perf.db", code=0)
    project.gate(f"{TOLERANCE}assertions:\n- {BASELINE}\n- overlap >= 60%")
    said = run("history", "--gate", project.root / project.name, "--history", project.root / "perf.db", code=0)
    assert "3 runs judged" in said.stdout
    assert ", 1 red" in said.stdout
    assert said.stdout.splitlines()[3].split()[4] in ("passed", "failed")
