"""Does a limit that follows the history keep out what was red, and what was measured twice?"""

import json
from itertools import count
from pathlib import Path

import pytest

from pytest_nsys.analysis.metrics.table import Selector
from pytest_nsys.core.errors import HistoryError
from pytest_nsys.gates.judgement import BadRuns
from pytest_nsys.gates.model import Severities, Severity
from pytest_nsys.stored.history.database import append_session, check_writable, format_measurement, format_selection
from pytest_nsys.tools.git import Revision
from pytest_nsys.verdicts.refresh_modes import RefreshMode
from tests.support.commands import run
from tests.support.gates import Project, built_once
from tests.support.git_project import commit, start
from tests.support.histories import SID, entry, nightly, past_of, values
from tests.support.sql import ask, execute

HISTORY = "--nsys-history=perf.db"
GATE = "- {{id: {name}, assert: exposed_ns <= last 3 runs + 5%{more}}}"
FOLLOWS = GATE.format(name="follows", more="")
STEPS = count()
MEASURED = format_measurement(SID)


def gate(project: Project, name: str = "follows", more: str = "") -> None:
    project.gate(GATE.format(name=name, more=more))


@pytest.fixture
@built_once
def main(project: Project) -> Project:
    """A repository on main with three runs of 200 us in the history, each of a commit of its own."""
    start(project)
    project.file(".gitignore", (project.root / ".gitignore").read_text() + "*.db\n")
    gate(project)
    for name, exposed_us in (("run", 200), ("slow", 300)):
        project.trace(f"{name}.sqlite", exposed_us)
    for _ in range(3):
        next_commit(project)
        project.pytest("--nsys-trace=run.sqlite", HISTORY)
    return project


def next_commit(project: Project) -> None:
    project.file("step.py", f"STEP = {next(STEPS)}\n")
    commit(project.root)


def judged(project: Project, trace: str, code: int, *more: str) -> str:
    return project.pytest(f"--nsys-trace={trace}.sqlite", HISTORY, *more, code=code)


def nights(project: Project, count: int, trace: str, code: int, *more: str) -> None:
    """So many runs of a trace, each of a commit of its own."""
    for _ in range(count):
        next_commit(project)
        judged(project, trace, code, *more)


def outcomes(project: Project) -> list[str]:
    return [outcome for (outcome,) in ask(project.root / "perf.db", "SELECT outcome FROM verdicts ORDER BY id")]


@pytest.mark.parametrize("commits", ["one commit", "a commit a run"])
@pytest.mark.parametrize("more", ["", ", severity: warn", ", fail_after: 9", ", xfail: known"])
@pytest.mark.sampled(3)
def test_a_red_stays_red_however_often_it_is_run(main: Project, commits: str, more: str) -> None:
    gate(main, more=more)
    for _ in range(6):
        if commits == "a commit a run":
            next_commit(main)
        main.pytest("--nsys-trace=slow.sqlite", HISTORY)
    assert set(outcomes(main)[-6:]) == {"delayed" if "fail_after" in more else "failed"}


def test_a_red_says_that_its_why_needs_a_run(main: Project) -> None:
    """The history has values alone."""
    next_commit(main)
    line = "note: no why: no windows of the base are kept: give its trace with --nsys-against"
    said = judged(main, "slow", 1)
    assert line in " ".join(said.split())
    assert "why:    " not in said
    said = judged(main, "slow", 1, "--nsys-against=run.sqlite")
    assert "why:    rank 0 stage2_f, +100 us:" in said
    assert "no why" not in said


def test_what_is_waived_is_no_new_normal(main: Project) -> None:
    waiver = "waivers:\n- {assertion: follows, ceiling: 400us, expires: 2099-01-01, reason: known}"
    main.gate(f"assertions:\n{FOLLOWS}\n{waiver}")
    nights(main, 4, "slow", 0)
    gate(main)
    judged(main, "slow", 1)


def test_what_hides_behind_a_new_row_is_no_new_normal(main: Project) -> None:
    main.trace("slow.sqlite", 300, stages=("stage2_f", "stage3_f", "stage4_f"))
    for _ in range(4):
        next_commit(main)
        assert "4 rows outside the limit" in judged(main, "slow", 1)


def test_a_lost_row_is_lost_until_a_refresh_says_so(main: Project) -> None:
    main.trace("slow.sqlite", {(1, "stage4_f"): None})
    for _ in range(5):
        next_commit(main)
        assert "1 row of the baseline gone" in judged(main, "slow", 1)
    main.refresh("--nsys-trace=slow.sqlite", HISTORY)
    judged(main, "slow", 0)


def test_an_inconclusive_run_that_is_red_stays_red(history: Path) -> None:
    append_session(history, [entry("1"), entry("2", outcome="inconclusive", commit="1" * 40)])
    for inconclusive, runs in ((Severity.WARN, 2), (Severity.FAIL, 1)):
        assert len(past_of(history, severity=Severities(inconclusive=inconclusive)).read_last_runs(9)) == runs


def test_a_refresh_that_writes_nothing_begins_nothing_anew(main: Project) -> None:
    main.gate(
        f"{FOLLOWS}\n- {{id: other, assert: exposed_ns <= baseline + 5%}}\n- {{id: red, assert: exposed_ns < 1 us}}"
    )
    assert "history perf.db: not written: " in main.refresh("--nsys-trace=slow.sqlite", HISTORY, "--maxfail=1", code=1)
    assert "refresh" not in outcomes(main)


def test_a_refresh_begins_anew_also_where_nothing_is_stored(main: Project) -> None:
    nights(main, 3, "slow", 1)
    said = main.refresh("--nsys-trace=slow.sqlite", HISTORY)
    assert "limits from the history start over with this run: follows" in said
    assert ask(main.root / "perf.db", "SELECT outcome, message FROM verdicts ORDER BY id DESC LIMIT 1") == [
        ("refresh", "a new normal")
    ]
    judged(main, "slow", 0)  # also of the same commit, whose first run was red
    main.trace("slower.sqlite", 330)
    judged(main, "slower", 1)
    judged(main, "run", 0)
    assert not (main.root / "baselines").exists()


def test_a_refresh_that_adds_or_names_others_leaves_the_history(main: Project) -> None:
    main.refresh("--nsys-trace=slow.sqlite", HISTORY, code=1, mode=RefreshMode.ACCEPT_RUN)
    assert outcomes(main)[-1] == "failed"
    main.gate(f"{FOLLOWS}\n- {{id: other, assert: exposed_ns <= baseline + 5%}}")
    main.refresh("--nsys-trace=slow.sqlite", HISTORY, "-k", "other")
    assert outcomes(main)[-1] == "refresh"


def test_a_refresh_without_a_history_is_judged(main: Project) -> None:
    assert "give it with --nsys-history" in main.refresh("--nsys-trace=slow.sqlite", code=1)


def test_another_id_is_the_same_limit(main: Project) -> None:
    for name in ("follows", "renamed", "again", "follows"):
        gate(main, name)
        next_commit(main)
        judged(main, "slow", 1)


@pytest.mark.parametrize("kept", ["- {id: follows, assert: exposed_ns < 10ms}", FOLLOWS])
def test_beside_its_old_id_it_is_the_same_limit(main: Project, kept: str) -> None:
    nights(main, 3, "slow", 1)
    main.gate(f"{kept}\n{GATE.format(name='renamed', more='')}")
    nights(main, 3, "slow", 1, "-krenamed")


def test_a_run_whose_gate_was_left_out_does_not_count(main: Project) -> None:
    main.gate(f"{FOLLOWS}\n- {{id: other, assert: exposed_ns < 1 ms}}")
    for _ in range(4):
        nights(main, 1, "slow", 0, "-kother")
        judged(main, "slow", 1, "-kfollows")


def test_a_new_limit_follows_what_was_measured_before_it(main: Project) -> None:
    main.gate("- {id: other, assert: exposed_ns < 1 ms}")
    (main.root / "perf.db").unlink()
    nights(main, 3, "run", 0)
    main.gate(f"{FOLLOWS}\n- {{id: other, assert: exposed_ns < 1 ms}}")
    judged(main, "slow", 1)


def test_a_commit_counts_once_and_its_first_run(history: Path) -> None:
    for value, name, outcome in (
        ("1", "a", "passed"),
        ("2", "a", "passed"),
        ("3", "b", "error"),
        ("4", "b", "passed"),
        ("5", "c", "failed"),
        ("6", "c", "passed"),
        ("7", "a", "passed"),
        ("8", None, "passed"),
        ("9", None, "passed"),
    ):
        run = entry(value, outcome=outcome)
        run.revision = Revision(name, "main", False)
        append_session(history, [run])
    other = entry("10")
    other.revision = Revision("a", "topic", False)
    append_session(history, [other])
    assert values(past_of(history).read_last_runs(9)) == [1, 4, 8, 9, 10]
    assert values(past_of(history).read_last_runs(9, "main")) == [1, 4, 8, 9]


def test_the_last_refresh_is_the_first_run(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [entry(str(n), outcome="refresh" if n in (2, 4) else "passed") for n in range(1, 7)]
    nightly(history, monkeypatch, runs)
    assert values(past_of(history).read_last_runs(9)) == [4, 5, 6]
    assert values(past_of(history).read_last_runs(9, lag=1)) == [4, 5]
    assert past_of(history).read_last_runs(9, lag=3) == []


@pytest.mark.parametrize(
    ("verdicts", "name", "others", "follows"),
    [
        ({"old": "failed"}, "new", (), False),  # renamed
        ({"old": "failed"}, "new", ("old",), False),  # renamed, and its id is given to another one
        ({"old": "error"}, "new", ("old",), False),
        ({"old": "passed"}, "new", ("old",), True),  # which is another assertion's
        ({"old": "failed", "new": "passed"}, "new", ("old",), True),
        ({"old": "failed", "new": "passed"}, "new", (), True),
        ({"a": "passed", "b": "failed"}, "new", (), False),  # nobody knows which it was
        ({"a": "passed", "b": "failed"}, "new", ("b",), True),
        ({"new": "error"}, "new", (), False),
        ({"new": "no data"}, "new", (), True),
        ({"new": "inconclusive"}, "new", (), True),
        ({"x <=": "failed"}, "x <=", (), False),  # when it was the only one that began so
        ({"x <= 2ms": "failed"}, "x <=", (), False),
        ({"x <= 2ms": "passed", "x <= 3ms": "failed"}, "x <=", (), True),  # of two that began so
        ({"x <=": "passed", "x <= 2ms": "failed"}, "x <=", (), True),  # another one's id
    ],
)
def test_a_verdict_is_of_what_was_measured(
    history: Path, verdicts: dict[str, str], name: str, others: tuple[str, ...], follows: bool
) -> None:
    run = entry()
    (said,) = run.verdicts.values()
    run.verdicts = {
        own: {**said, "assertion": own, "outcome": outcome, "measured": MEASURED} for own, outcome in verdicts.items()
    }
    append_session(history, [run])
    full = f"{name} 2ms" if name == "x <=" else ""
    assert bool(past_of(history, name=name, full_name=full, others=others).read_last_runs(1)) is follows


def test_of_renamed_assertions_the_one_of_the_same_rows_is_meant(history: Path) -> None:
    run = entry()
    (said,) = run.verdicts.values()
    stages = {name: {"stage": Selector((name,))} for name in ("stage2", "stage4")}
    of = {name: past_of(history, name=f"new {name}", where=where) for name, where in stages.items()}
    run.verdicts = {
        name: {
            **said,
            "assertion": f"old {name}",
            "outcome": "failed" if name == "stage4" else "passed",
            "measured": MEASURED,
            "selected": format_selection(of[name].identity.assertion),
        }
        for name in stages
    }
    append_session(history, [run])
    assert [bool(of[name].read_last_runs(1)) for name in stages] == [True, False]


def test_a_clock_that_was_ahead_does_not_stay_the_newest(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nightly(history, monkeypatch, [entry(str(n), outcome="failed" if n == 1 else "passed") for n in range(4)])
    execute(history, "UPDATE runs SET time = '2099-01-01T00:00:00Z' WHERE id = 2")
    assert values(past_of(history).read_last_runs(2)) == [2, 3]
    assert past_of(history).read_bad_runs("main") == BadRuns("main")
    ahead = "the clock of 1 run was ahead, first 2099-01-01T00:00:00Z: runs stand as written"
    for form in ("table", "json", "csv"):
        assert f"warning: {ahead}" in run("history", "--history", history, f"--format={form}", code=0).stderr
    (row,) = json.loads(run("history", "--history", history, "--format=json").stdout)["rows"]
    assert [value["run"] for value in row["values"]] == [1, 2, 3, 4]


def test_a_session_says_that_a_clock_is_ahead(main: Project) -> None:
    assert "2099" not in judged(main, "run", 0)
    execute(main.root / "perf.db", "UPDATE runs SET time = '2099-01-01T00:00:00Z' WHERE id = 2")
    assert "it holds a run of 2099-01-01T00:00:00Z: a clock was ahead" in judged(main, "run", 0)


@pytest.mark.parametrize("form", ["table", "json", "csv"])
@pytest.mark.parametrize(
    ("torn", "said"),
    [
        ("DELETE FROM runs", "it has rows of run 1 without the run"),
        ("DELETE FROM runs WHERE id = 3", "it has rows of run 3 without the run"),
        ("UPDATE runs SET key = NULL", "run 1 has rows and no key"),
        ("UPDATE runs SET key = NULL WHERE id = 2", "run 2 has rows and no key"),
    ],
)
def test_rows_without_their_run_are_one_line(history: Path, torn: str, said: str, form: str) -> None:
    for value in "123":
        append_session(history, [entry(value)])
    execute(history, torn)
    told = run("history", "--history", history, f"--format={form}", code=2)
    assert told.stdout == ""
    assert told.stderr == f"error: {history}: is damaged: {said}; restore it, or give another file\n"


def test_no_run_is_written_over_the_rows_of_a_lost_one(history: Path) -> None:
    for value in "123":
        append_session(history, [entry(value)])
    execute(history, "DELETE FROM runs WHERE id = 3")
    for judge in (
        check_writable,
        lambda path: append_session(path, [entry()]),
        lambda path: past_of(path).read_last_runs(1),
    ):
        with pytest.raises(HistoryError, match="rows of run 3 without the run"):
            judge(history)


# A run is never held to itself

ITSELF = "perf.db holds exposed_ns of this commit, or of this capture, alone: a run is never held to itself"
WIDE = "".join(f"- {metric} <= last 3 runs + 5%\n" for metric in ("exposed_ns", "window_ns", "compute_ns"))


def test_a_second_attempt_of_a_commit_is_not_held_to_the_first(main: Project) -> None:
    """Its history was lost: the first attempt began it anew, and is red for want of a run before."""
    (main.root / "perf.db").unlink()
    next_commit(main)
    assert "there is no history yet" in judged(main, "slow", 1)
    assert ITSELF in " ".join(judged(main, "run", 1).split())
    assert ITSELF in " ".join(judged(main, "slow", 1, "--nsys-json=report.json", "--nsys-summary=report.md").split())
    for name in ("report.json", "report.md"):
        assert ITSELF.removeprefix("perf.db holds exposed_ns") in (main.root / name).read_text(encoding="utf-8")
    next_commit(main)
    assert "no data" not in judged(main, "slow", 0)


def test_what_is_of_the_own_commit_is_left_out_of_what_a_limit_follows(main: Project) -> None:
    """Else the slow attempts of a commit become the normal of its next one."""
    gate(main, more=", severity: {inconclusive: fail}")
    next_commit(main)
    for _ in range(4):
        assert "300 us > 210 us" in judged(main, "slow", 1)


def test_a_refresh_in_the_judged_commit_is_its_own_work_and_counts(main: Project) -> None:
    next_commit(main)
    judged(main, "slow", 1)
    main.refresh("--nsys-trace=slow.sqlite", HISTORY, "--nsys-reason=a slower link")
    judged(main, "slow", 0)


def test_the_same_capture_is_no_run_to_follow_whatever_commit_it_is_of(main: Project) -> None:
    """Of 8 rows of time and more, which are equal to the nanosecond."""
    (main.root / "perf.db").unlink()
    main.gate(WIDE)
    next_commit(main)
    judged(main, "run", 1)
    next_commit(main)
    assert ITSELF in " ".join(judged(main, "run", 1).split())
    main.trace("other.sqlite", 201)
    judged(main, "other", 0)


def test_a_run_of_the_history_that_is_a_hiccup_is_left_out(main: Project) -> None:
    main.gate("- {id: follows, assert: exposed_ns <= last 9 runs + 5%}")
    nights(main, 1, "run", 0)
    main.gate("- {id: follows, assert: exposed_ns <= last 9 runs + 90%}")
    nights(main, 1, "slow", 0)
    main.gate("- {id: follows, assert: exposed_ns <= last 9 runs + 5%}")
    next_commit(main)
    said = judged(main, "slow", 1, "-v")
    assert "run 5 of these 5 is left out: rank 0 stage2_f exposed_ns is 300 us, the median of the others 200 us" in said
