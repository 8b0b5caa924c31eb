"""Does ``fail_after`` wait for so many bad runs in a row and no longer, and is a red told that was red before?"""

from pathlib import Path

import pytest

from pytest_nsys.gates.judgement import BadRuns, Judgement, PastRun, delay_failure
from pytest_nsys.gates.model import JudgedRow, Outcome
from pytest_nsys.tools.git import resolve_branch
from tests.support.gates import Project, built_once
from tests.support.git_project import commit, git, start
from tests.support.histories import KEY, entry, nightly, past_of
from tests.support.sql import ask

GATE = """
tolerance: {rel: 5%, abs: 20us}
assertions:
  - {id: patient, assert: exposed_ns <= baseline + tolerance, fail_after: 3}
  - {id: strict, assert: exposed_ns <= baseline + tolerance}
"""
HISTORY, RUN, SLOW, LOST = "--nsys-history=perf.db", *(f"--nsys-trace={n}.sqlite" for n in ("run", "slow", "lost"))


@pytest.fixture
@built_once
def main(project: Project) -> Project:
    """A repository with a gate and its baseline on main, and traces that are as it, slower, and without a row."""
    start(project)
    project.file(".gitignore", (project.root / ".gitignore").read_text() + "*.db\n")
    project.gate_with_trace(GATE)
    project.trace("slow.sqlite", exposed_us=300)
    project.trace("lost.sqlite", {(1, "stage4_f"): None})
    project.refresh(RUN)
    commit(project.root)
    return project


def past(*red: bool) -> BadRuns:
    """Bad runs of successive nights, newest first."""
    return BadRuns("main", tuple(PastRun(f"2026-01-{9 - n:02}T02:00:00Z", "0" * 40, r) for n, r in enumerate(red)))


BAD = Judgement(
    Outcome.FAILED,
    (JudgedRow({}, 9, 5, Outcome.FAILED, margin=-4), JudgedRow({}, 5, 5, Outcome.PASSED, margin=0)),
    warnings=("a note",),
)


@pytest.mark.parametrize(
    ("before", "outcome"),
    [(0, Outcome.INCONCLUSIVE), (1, Outcome.INCONCLUSIVE), (2, Outcome.FAILED), (3, Outcome.FAILED)],
)
def test_only_the_nth_bad_run_in_a_row_fails(before: int, outcome: Outcome) -> None:
    found = delay_failure(BAD, 3, past(*(False,) * before))
    assert found.outcome is outcome
    assert [row.outcome for row in found.rows] == [outcome, Outcome.PASSED]
    assert found.warnings == ("a note",)


def test_where_nobody_counts_the_first_bad_run_fails() -> None:
    assert delay_failure(BAD, 3, None) is BAD


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.FAILED])
def test_nothing_but_a_failure_is_delayed(outcome: Outcome) -> None:
    found = Judgement(outcome, (JudgedRow({}, 9, 5, Outcome.FAILED),))
    assert delay_failure(found, 3, past()) is found


@pytest.mark.parametrize(
    ("red", "since"), [((), None), ((False, True), None), ((True,), 9), ((True, True, False, True), 8)]
)
def test_red_since_the_first_red_run_up_to_the_newest(red: tuple[bool, ...], since: int | None) -> None:
    found = past(*red).red_since
    assert (found and found.time) == (since and f"2026-01-{since:02}T02:00:00Z")


@pytest.mark.parametrize(
    ("outcomes", "nights"),
    [
        ("", ""),
        ("passed failed", "2"),
        ("failed passed", ""),
        ("failed failed delayed failed", "4321"),
        ("failed improved delayed", "3"),
        ("failed refresh", ""),
        ("passed failed accepted accepted", "432"),
        ("failed error failed no_data incomparable inconclusive", "31"),
        ("failed passed failed inconclusive failed", "53"),
    ],
)
def test_what_ends_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: str, nights: str) -> None:
    runs = [entry(outcome=outcome.replace("_", " ")) for outcome in outcomes.split()]
    history = nightly(tmp_path / "perf.db", monkeypatch, [*runs, entry(branch="other")])
    found = past_of(history).read_bad_runs("main")
    assert (found is None) == (not outcomes)
    if found is None:
        return
    assert [run.time for run in found.runs] == [f"2026-01-{int(night):02}T02:00:00Z" for night in nights]
    assert all(
        run.is_red == (outcomes.split()[int(night) - 1] == "failed")
        for run, night in zip(found.runs, nights, strict=True)
    )


def test_only_runs_alike_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        entry(outcome="failed"),
        entry(outcome="passed", key={**KEY, "gpu": "other"}),
        entry(outcome="passed", gate="other.nsys.yaml"),
        entry(outcome="failed", xfailed=1),
        entry(outcome="failed", severity="warn"),
    ]
    history = nightly(tmp_path / "perf.db", monkeypatch, runs)
    found = past_of(history).read_bad_runs("main")
    assert found is not None
    assert [(run.commit or "")[0] + str(run.is_red) for run in found.runs] == ["4False", "3False", "0True"]
    assert past_of(history, name="another").read_bad_runs("main") is None
    assert past_of(history).read_bad_runs("topic") is None
    assert past_of(history, on=("world",)).read_bad_runs("main") == found._replace(runs=found.runs[:2])


def test_two_bad_runs_are_inconclusive_and_the_third_is_red(main: Project) -> None:
    def patient(trace: str, code: int) -> str:
        return " ".join(main.pytest(trace, HISTORY, "-kpatient", code=code).split())

    patient(RUN, 0)
    first = patient(SLOW, 0)
    assert "inconclusive: 4 of 4 rows above their limit; bad run 1 of 3 in a row on main (fail_after)" in first
    assert "take more captures" not in first
    assert "bad run 2 of 3 in a row on main, since 20" in patient(SLOW, 0)
    assert "failed: 4 of 4 rows above their limit; bad run 3 of 3 in a row on main, since 20" in patient(SLOW, 1)
    assert "bad run 4 in a row on main, since 20" in patient(SLOW, 1)
    assert "in a row" not in patient(RUN, 0)
    assert "bad run 1 of 3 in a row on main (fail_after)" in patient(SLOW, 0)
    found = [outcome for (outcome,) in ask(main.root / "perf.db", "SELECT outcome FROM runs ORDER BY id")]
    assert found == ["passed", "delayed", "delayed", "failed", "failed", "passed", "delayed"]


def test_a_lost_row_waits_for_nothing(main: Project) -> None:
    assert "1 row of the baseline gone" in main.pytest(LOST, HISTORY, "-kpatient", code=1)


def test_before_and_after_wait_as_well(main: Project) -> None:
    main.pytest(RUN, HISTORY, "-kpatient", code=0)
    assert "bad run 1 of 3" in main.pytest(SLOW, "--nsys-against=run.sqlite", HISTORY, "-kpatient", code=0)


def test_a_history_that_begins_anew_each_time_counts_nothing(main: Project) -> None:
    """A job that does not keep it would otherwise wait for ever, and be green."""
    words = "fail_after counts the earlier runs of a branch, and the history has none of main: the first bad run fails"
    for _ in range(2):
        (main.root / "perf.db").unlink(missing_ok=True)
        assert words in main.pytest("-v", SLOW, HISTORY, "-kpatient", code=1)


def test_a_branch_that_begins_with_the_history_of_another_one_waits_for_nothing(main: Project) -> None:
    for _ in range(2):
        main.pytest("-v", RUN, HISTORY, "-kpatient", code=0)
    git(main.root, "switch", "-qc", "topic")
    first = main.pytest("-v", SLOW, HISTORY, "-kpatient", code=1)
    assert "the history has none of topic: the first bad run fails" in first
    for again in (2, 3):  # what is red stays red, however often it is run
        assert f"bad run {again}" in main.pytest("-v", SLOW, HISTORY, "-kpatient", code=1)
    main.pytest("-v", RUN, HISTORY, "-kpatient", code=0)
    assert "bad run 1 of 3 in a row on topic" in main.pytest("-v", SLOW, HISTORY, "-kpatient", code=0)


def test_another_id_goes_on_counting(main: Project) -> None:
    main.pytest(RUN, HISTORY, "-kpatient", code=0)
    for name, code in (("patient", 0), ("calm", 0), ("serene", 1)):
        main.gate(GATE.replace("patient", name))
        said = main.pytest(SLOW, HISTORY, f"-k{name}", code=code)
    assert "bad run 3 of 3 in a row on main" in said


def test_without_a_history_or_a_branch_the_first_bad_run_is_red(main: Project) -> None:
    words = "fail_after counts {} here: the first bad run fails"
    assert words.format("in a history (--nsys-history), and none is given") in main.pytest(
        "-v", SLOW, "-kpatient", code=1
    )
    main.pytest("-v", RUN, HISTORY, "-kpatient", code=0)
    git(main.root, "switch", "-q", "--detach")
    detached = main.pytest("-v", SLOW, HISTORY, "-kpatient", code=1)
    assert words.format("the runs of a branch, and git names none") in detached
    assert "fail_after" not in main.pytest("-v", RUN, "-kpatient", code=0)


def test_a_red_of_the_branch_that_is_merged_into_is_told_once(main: Project) -> None:
    for trace in (RUN, SLOW, SLOW):
        main.pytest("-v", trace, HISTORY, "-kstrict")
    (red,) = ask(main.root / "perf.db", "SELECT time, commit_id FROM runs WHERE id = 2")
    git(main.root, "switch", "-qc", "topic")
    said = main.pytest(SLOW, HISTORY, "--nsys-baseline-ref=main", "--tb=no", "-v", code=1)
    told = f"4 of 4 rows above their limit; already red on main since {red[0][:10]} at {red[1][:10]}"
    assert said.count(f"  failed: {told}") == 1  # of strict: patient did not run there
    main.pytest("-v", RUN, HISTORY, code=0)
    git(main.root, "switch", "-q", "main")
    main.pytest("-v", RUN, HISTORY, code=0)
    git(main.root, "switch", "-q", "topic")
    assert "already red" not in main.pytest("-v", SLOW, HISTORY, "--nsys-baseline-ref=main", code=1)


def test_a_limit_from_the_history_of_a_branch_is_held_against_that_branch(main: Project) -> None:
    limit = "assert: exposed_ns <= last 3 runs of main + 5%"
    main.gate(f"- {{id: follows, {limit}}}\n- {{id: waits, {limit}, fail_after: 2}}")

    def failed(trace: str) -> list[str]:
        git(main.root, "commit", "-q", "--allow-empty", "-m", "next")
        return [line for line in main.pytest("-v", trace, HISTORY).splitlines() if line.startswith("  failed: ")]

    assert [failed(RUN), failed(RUN), failed(RUN)] == [[]] * 3
    assert failed(SLOW) == ["  failed: 4 of 4 rows above their limit"]  # it waits
    git(main.root, "switch", "-qc", "topic")
    follows, waits = failed(SLOW)
    assert "; already red on main since 20" in follows
    assert waits.endswith("the history has none of topic: the first bad run fails")  # on main it waits
    git(main.root, "switch", "-q", "main")
    follows, waits = failed(SLOW)
    assert "; already red on main since 20" in follows
    assert "bad run 2 of 2 in a row on main, since 20" in waits
    assert "already red" not in waits  # which its own row of bad runs says


def test_the_branch_of_a_ref(main: Project) -> None:
    root, target = main.root, {"GITHUB_BASE_REF": "release"}
    git(root, "update-ref", "refs/remotes/origin/team/next", "HEAD")
    assert resolve_branch("main", root, target) == "main"
    assert resolve_branch("origin/team/next", root, target) == "team/next"
    head = git(root, "rev-parse", "HEAD")
    for ref in (head, "--all", "gone"):
        assert resolve_branch(ref, root, target) == "release"
        assert resolve_branch(ref, root, {}) is None
