"""Is what a branch refreshed with a reason told as accepted, by the merge base's tolerance, and nothing else?"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.merge_base.base_verdict import BaseVerdict
from tests.support.gates import Project, built_once
from tests.support.git_project import commit, git, on_main
from tests.support.merge_base import FILE, RUN, branch_off, judge

GATE = """
tolerance: {rel: 5%, abs: 20us}
assertions:
  - exposed_ns below baseline plus tolerance
  - overlap >= 50%
"""
NAME = "exposed_ns below baseline plus tolerance"
REASON = "smaller buckets, less memory"
ROW = "rank 1 stage4_f"
SLOWER = {(1, "stage4_f"): 350}
TWICE = {(1, "stage4_f"): 350, (0, "stage2_f"): 300}


@pytest.fixture
@built_once
def branch(project: Project) -> Project:
    """A repository whose main lets pass what is accepted, a slower run, and a branch that is checked out."""
    branch_off(project, GATE, "[pytest]\nnsys_accepted = pass\n")
    project.trace(exposed_us=SLOWER)
    return project


def refresh(project: Project, trace: str = RUN, why: str = REASON) -> None:
    """Accept a run on the branch."""
    project.refresh(f"--nsys-trace={trace}", f"--nsys-reason={why}", code=None)
    commit(project.root)


def stored(project: Project) -> Path:
    return next((project.root / "baselines").rglob("*.json"))


def edit(project: Project, *changes: Callable[[dict[str, Any]], object]) -> None:
    """Change a baseline by hand."""
    path = stored(project)
    data = json.loads(path.read_text())
    for change in changes:
        change(data)
    path.write_text(json.dumps(data))


def rows(data: dict[str, Any]) -> list[list[Any]]:
    """The rows of the series that is judged."""
    found: list[list[Any]] = next(each["rows"] for each in data["series"] if each["metric"] == "exposed_ns")
    return found


def store(value_us: int) -> Callable[[dict[str, Any]], None]:
    """Write another value into the row that is worse."""

    def change(data: dict[str, Any]) -> None:
        for row in rows(data):
            if row[:2] == [1, "stage4_f"]:
                row[2] = [1000 * value_us]

    return change


def reason(text: object) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["provenance"].update(reason=text)


def said(verdict: BaseVerdict) -> str:
    return "\n".join(verdict.render_lines())


def test_with_pass_it_is_green_with_a_warning_that_has_row_change_and_reason(branch: Project) -> None:
    assert judge(branch, RUN).is_red
    refresh(branch)
    found = judge(branch, RUN)
    assert not found.is_red
    assert found.accepted_texts == [f"{NAME}: accepted on this branch: {ROW} 200 us → 350 us (+75%): {REASON}"]
    (difference,) = found.differences
    assert (difference.kind, difference.state) == ("baseline", "changed")


@pytest.mark.parametrize("words", [(), ("-n", "2")])
def test_plain_pytest_tells_it(branch: Project, words: tuple[str, ...]) -> None:
    refresh(branch)
    typed = (f"--nsys-trace={RUN}", "--nsys-baseline-ref=main", *words)
    told = branch.pytest_in_a_process(*typed, code=0)
    assert f"NsysWarning: gate of the merge base: {NAME}: accepted on this branch: {ROW} 200 us" in told
    assert "nsys::gate of the merge base" in branch.pytest_in_a_process(*typed, "-W", "error", code=1)


def test_without_it_stays_red_until_somebody_lets_it_pass(branch: Project) -> None:
    refresh(branch)
    branch.file("pytest.ini", "[pytest]\nnsys_accepted = pass\n")  # of the branch: it says nothing
    with on_main(branch):
        branch.file("pytest.ini", "[pytest]\n")
    refresh(branch)
    told = said(judge(branch, RUN))
    assert f"accepted on this branch ({REASON}); stays red until somebody lets it pass: set nsys_accepted" in told


def by_another_run(project: Project) -> None:
    project.trace("other.sqlite", {(1, "stage4_f"): 450})
    refresh(project, "other.sqlite")


def by_a_run_that_was_better(project: Project) -> None:
    refresh(project)
    project.trace(RUN, {(1, "stage4_f"): 450})


def moved_to_another_file(project: Project) -> None:
    refresh(project)
    other = stored(project).parent.with_name("other__gate") / stored(project).name
    other.parent.mkdir()
    shutil.move(stored(project), other)


def edited(*changes: Callable[[dict[str, Any]], object], after: bool = False) -> Callable[[Project], None]:
    """The baseline changed by hand; ``after`` a refresh."""

    def change(project: Project) -> None:
        if after:
            refresh(project)
        edit(project, *changes)

    return change


def wide_noise(data: dict[str, Any]) -> None:
    for row in rows(data):
        row[2:] = [row[2], [row[2][0] * n for n in (1, 2, 3, 4, 5)]]


def many_runs(data: dict[str, Any]) -> None:
    for row in rows(data):
        row[2] = [n * 100_000 for n in (1, 1, 2, 5, 9)]


def not_committed(project: Project) -> None:
    refresh(project)
    git(project.root, "reset", "-q", "--soft", "main")
    git(project.root, "reset", "-q")


NO_REASON = "its refresh gives no reason"
CHEATS: dict[str, tuple[Callable[[Project], object], str]] = {
    "a baseline of a worse run": (by_another_run, f"{ROW} is 350 us, and it stored 450 us"),
    "a run that is worse than what was accepted": (by_a_run_that_was_better, f"{ROW} is 450 us, and it stored 350 us"),
    "no baseline any more": (lambda project: shutil.rmtree(project.root / "baselines"), "is gone, or of another run"),
    "a baseline that is broken": (lambda project: stored(project).write_text("{"), "is not a baseline"),
    "rows in the file of another gate": (moved_to_another_file, "is gone, or of another run"),
    "an empty reason": (edited(reason(""), after=True), NO_REASON),
    "a reason of blanks": (edited(reason(" \t\u200b"), after=True), NO_REASON),
    "a reason that is no text": (edited(reason(["why"]), after=True), NO_REASON),
    "no reason": (edited(lambda data: data["provenance"].pop("reason"), after=True), NO_REASON),
    "values by hand": (edited(store(350)), "rows changed without a refresh, under the reason of the merge base"),
    "a value with room for more": (edited(store(400), after=True), f"{ROW} is 350 us, and it stored 400 us"),
    "noise by hand": (edited(store(300), wide_noise, after=True), f"{ROW} is 350 us, and it stored 300 us"),
    "runs far apart": (edited(many_runs, after=True), f"{ROW} is 350 us, and it stored 200 us"),
}


@pytest.mark.parametrize("case", CHEATS)
def test_no_way_around(branch: Project, case: str) -> None:
    cheat, why = CHEATS[case]
    cheat(branch)
    git(branch.root, "add", "-A")
    git(branch.root, "commit", "-q", "--allow-empty", "-m", "a change")
    found = judge(branch, RUN)
    assert found.is_red
    assert "; not accepted on this branch: " in said(found)
    assert why in said(found)


def test_what_is_not_committed_accepts_nothing(branch: Project) -> None:
    not_committed(branch)
    found = judge(branch, RUN)
    assert found.is_red
    assert "accepted on this branch" not in said(found)


def test_rows_that_nobody_accepted_stay_red(branch: Project) -> None:
    refresh(branch)
    branch.trace(exposed_us=TWICE)
    assert "not accepted on this branch: rank 0 stage2_f is 300 us, and it stored 200 us" in said(judge(branch, RUN))


def test_a_limit_is_never_accepted(branch: Project) -> None:
    branch.trace(exposed_us={(1, "stage4_f"): 550})
    branch.gate(GATE.replace("50%", "40%"), FILE)
    refresh(branch)
    found = judge(branch, RUN)
    assert found.is_red
    assert [red.splitlines()[0] for red in found.reds] == ["45% < 50%, rank 1 stage4_f"]
    assert found.accepted_texts


def test_a_faster_step_passes_with_and_without_a_refresh(branch: Project) -> None:
    branch.trace(exposed_us=100)
    assert not judge(branch, RUN).is_red
    refresh(branch)
    assert not judge(branch, RUN).is_red


def test_a_ratchet_takes_a_faster_step_that_is_stored(branch: Project) -> None:
    with on_main(branch):
        branch.gate(GATE.replace(f"- {NAME}", f"- {{assert: {NAME}, severity: {{improved: fail}}}}"), FILE)
    branch.trace(exposed_us=100)
    assert judge(branch, RUN).is_red
    refresh(branch)
    found = judge(branch, RUN)
    assert (found.is_red, len(found.accepted_texts)) == (False, 1)


def test_the_noise_of_the_merge_base_counts(branch: Project) -> None:
    def calibrated(data: dict[str, Any]) -> None:
        for row in rows(data):
            row[2:] = [row[2], [row[2][0] + 1_000 * off for off in (-10, -5, 0, 5, 10)]]

    with on_main(branch):
        edit(branch, calibrated)
    branch.trace(exposed_us={(1, "stage4_f"): 400})
    refresh(branch)
    branch.trace(exposed_us={(1, "stage4_f"): 430})
    assert not judge(branch, RUN).is_red
    branch.trace(exposed_us={(1, "stage4_f"): 480})
    assert "rank 1 stage4_f is 480 us, and it stored 400 us" in said(judge(branch, RUN))


def test_nothing_is_accepted_without_a_merge_base(branch: Project) -> None:
    refresh(branch)
    branch.trace("base.sqlite")
    assert "accepted on this branch" not in branch.pytest(f"--nsys-trace={RUN}", "--nsys-against=base.sqlite", code=1)
