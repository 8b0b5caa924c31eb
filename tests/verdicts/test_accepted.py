"""Is what a branch refreshed with a reason told as accepted, by the merge base's tolerance, and nothing else?"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.gates import Project, built_once
from tests.support.git_project import commit, git, on_main, start
from tests.support.reports import by_name, report_of
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.sql import ask

GATE = """
tolerance: {rel: 5%, abs: 20us}
assertions:
  - exposed_ns below baseline plus tolerance
  - overlap >= 50%
"""
NAME = "exposed_ns below baseline plus tolerance"
FILE = "perf/gate.nsys.yaml"
REF, RUN = "--nsys-baseline-ref=main", "--nsys-trace=run.sqlite"
REASON = "smaller buckets, less memory"
WHY = f"--nsys-reason={REASON}"
ROW = "rank 1 stage4_f"
SLOWER = {(1, "stage4_f"): 350}
TWICE = {(1, "stage4_f"): 350, (0, "stage2_f"): 300}
SET = "set nsys_accepted = pass in the ini file of the merge base"


@pytest.fixture
@built_once
def branch(project: Project) -> Project:
    """A repository whose main lets pass what is accepted, a slower run, and a branch that is checked out."""
    return on_a_branch(project, "nsys_accepted = pass\n")


@pytest.fixture
@built_once
def strict(project: Project) -> Project:
    """The same, where nobody lets it pass."""
    return on_a_branch(project, "")


def on_a_branch(project: Project, ini: str) -> Project:
    start(project)
    project.gate(GATE, FILE)
    project.file("pytest.ini", f"[pytest]\n{ini}")
    project.trace()
    project.refresh(RUN)
    commit(project.root)
    git(project.root, "switch", "-qc", "feature")
    project.trace(exposed_us=SLOWER)
    return project


def accept(project: Project, why: str = WHY, **more: Any) -> None:
    """Refresh, and commit what was written."""
    project.refresh(RUN, why, **more)
    commit(project.root)


def stored(project: Project) -> Path:
    return next((project.root / "baselines").rglob("*.json"))


def judged(project: Project, *words: str, code: int) -> dict[str, Any]:
    """What the JSON report says of the assertion with a baseline."""
    return by_name(report_of(project, RUN, REF, *words, code=code))[NAME]


def edit(project: Project, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a baseline by hand."""
    path = stored(project)
    data = json.loads(path.read_text())
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


def test_what_is_accepted_is_red_until_somebody_lets_it_pass(strict: Project) -> None:
    accept(strict)
    said = strict.pytest(RUN, REF, code=1)
    message = f"1 of 4 rows above their limit; accepted on this branch ({REASON})"
    stays = f" accepted: {message}; stays red until somebody lets it pass: {SET} rank stage "
    assert stays in " ".join(said.split())
    assert f"  accepted  {NAME}: 350 us > 220 us, {ROW}\n" in said
    assert "baseline refresh" not in said  # it is accepted already
    assert report_of(strict, RUN, REF, code=1)["headline"].startswith("Accepted on this branch, still red: ")
    found = judged(strict, code=1)
    assert (found["outcome"], found["state"], found["good"], found["accepted_for"]) == (
        *("accepted", "accepted", False),
        REASON,
    )
    assert [row["outcome"] for row in found["rows"]] == ["accepted", "passed", "passed", "passed"]
    assert found["causes"]


def test_with_pass_it_is_green_with_a_warning_that_has_row_change_and_reason(branch: Project) -> None:
    accept(branch)
    said = branch.pytest(RUN, REF, "--nsys-annotate", "--junitxml=junit.xml", code=0)
    warning = f"accepted on this branch: {ROW} 200 us → 350 us (+75%): {REASON}"
    assert f"  warning: {NAME}: {warning}" in " ".join(said.split("\n    "))
    (line,) = (line for line in said.splitlines() if line.startswith("::warning"))
    assert f"file={FILE},line=4,title=accepted%3A {NAME}::" in line
    assert warning.replace("%", "%25") in line
    case = branch.junit()[NAME]
    assert (case.state, case.properties["nsys_outcome"]) == ("passed", "accepted")
    assert case.properties["nsys_accepted_for"] == REASON
    found = report_of(branch, RUN, REF, code=0)
    assert (found["verdict"], found["good"], found["counts"]["accepted"]) == ("accepted", True, 1)
    assert found["headline"].startswith("Accepted on this branch: ")


def test_every_report_tells_it(branch: Project) -> None:
    accept(branch)
    branch.pytest(RUN, REF, "--nsys-summary=s.md", "--nsys-html=p.html", "--nsys-history=h.sqlite", code=0)
    shown = (branch.root / "s.md").read_text()
    assert f"#### accepted: `{NAME}` (line 4)" in shown
    assert REASON in shown
    page = (branch.root / "p.html").read_text()
    assert '<details class="assertion accepted"' in page
    assert '<span class="badge">accepted</span>' in page
    assert f"<dt>accepted</dt><dd>{REASON}</dd>" in page
    assert ask(branch.root / "h.sqlite", "SELECT outcome FROM runs") == [("accepted",)]
    assert ask(branch.root / "h.sqlite", "SELECT outcome FROM verdicts ORDER BY id") == [("accepted",), ("passed",)]


def test_without_a_reason_that_is_committed_nothing_is_green(branch: Project) -> None:
    branch.refresh(RUN, WHY)
    found = judged(branch, code=1)
    assert found["outcome"] == "accepted"
    assert found["message"].endswith(
        f"stays red until somebody lets it pass: commit {stored(branch).relative_to(branch.root)}"
    )


def by_another_run(project: Project) -> None:
    project.trace("other.sqlite", {(1, "stage4_f"): 450})
    project.refresh("--nsys-trace=other.sqlite", WHY)


def by_two_more_runs(project: Project) -> None:
    project.refresh(RUN, WHY)
    project.trace("run.sqlite", {(1, "stage4_f"): 450})


def moved_to_another_file(project: Project) -> None:
    project.refresh(RUN, WHY)
    path = stored(project)
    other = path.parent.with_name("other__gate") / path.name
    other.parent.mkdir()
    shutil.move(path, other)


def moved_to_another_key(project: Project) -> None:
    project.refresh(RUN, WHY)
    stored(project).rename(stored(project).with_name("0123456789ab.json"))


def deleted(project: Project) -> None:
    shutil.rmtree(project.root / "baselines")


def broken(project: Project) -> None:
    stored(project).write_text("{")


def looser(text: str, by: str) -> Callable[[Project], None]:
    def change(project: Project) -> None:
        project.gate(GATE.replace(text, by), FILE)
        project.refresh(RUN, WHY)

    return change


def with_id(project: Project) -> None:
    project.gate(GATE.replace(f"- {NAME}", f"- {{id: mine, assert: {NAME}}}"), FILE)
    project.refresh(RUN, WHY)


def edited(*changes: Callable[[dict[str, Any]], object], after: bool = False) -> Callable[[Project], None]:
    """The baseline changed by hand; ``after`` a refresh."""

    def change(project: Project) -> None:
        if after:
            project.refresh(RUN, WHY)
        for each in changes:
            edit(project, each)

    return change


def reason(text: object) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["provenance"].update(reason=text)


def wide_noise(data: dict[str, Any]) -> None:
    for row in rows(data):
        row[2:] = [row[2], [row[2][0] * n for n in (1, 2, 3, 4, 5)]]


def many_runs(data: dict[str, Any]) -> None:
    for row in rows(data):
        row[2] = [n * 100_000 for n in (1, 1, 2, 5, 9)]


NO_REASON = "its refresh gives no reason"
ASKS = "its gate file was loosened: "
CHEATS: dict[str, tuple[Callable[[Project], None], str]] = {
    "a baseline of a worse run": (by_another_run, f"{ROW} is 350 us, and it stored 450 us"),
    "a run that is worse than what was accepted": (by_two_more_runs, f"{ROW} is 450 us, and it stored 350 us"),
    "no baseline any more": (deleted, "6dca38a89a56.json is gone, or of another run"),
    "a baseline that is broken": (broken, "is not a baseline"),
    "rows in the file of another gate": (moved_to_another_file, "6dca38a89a56.json is gone, or of another run"),
    "rows in the file of another key": (moved_to_another_key, "6dca38a89a56.json is gone, or of another run"),
    "another id": (with_id, f"{ASKS}assertion none → mine"),
    "a wider tolerance": (looser("rel: 5%", "rel: 30%"), f"{ASKS}tolerance rel 5% → 30%"),
    "a wider amount": (looser("abs: 20us", "abs: 100us"), f"{ASKS}tolerance abs 20us → 100us"),
    "fewer circumstances": (
        looser("assertions:", "comparable_on: [gpu]\nassertions:"),
        f"{ASKS}comparable_on all → gpu",
    ),
    "another bound of quality": (
        looser("assertions:", "quality: {apart: 10s}\nassertions:"),
        f"{ASKS}quality apart ",
    ),
    "an empty reason": (edited(reason(""), after=True), NO_REASON),
    "a reason of blanks": (edited(reason(" \t\u200b"), after=True), NO_REASON),
    "the reason of the command that was shown": (edited(reason("…"), after=True), NO_REASON),
    "a reason that is no text": (edited(reason(["why"]), after=True), NO_REASON),
    "no reason": (edited(lambda data: data["provenance"].pop("reason"), after=True), NO_REASON),
    "values by hand": (edited(store(350)), "rows changed without a refresh, under the reason of the merge base"),
    "values and reason by hand": (edited(store(350), reason("new")), "the windows are those of the merge base"),
    "a value with room for more": (edited(store(400), after=True), f"{ROW} is 350 us, and it stored 400 us"),
    "noise by hand": (edited(store(300), wide_noise, after=True), f"{ROW} is 350 us, and it stored 300 us"),
    "runs far apart": (edited(many_runs, after=True), f"{ROW} is 350 us, and it stored 200 us"),
}


@pytest.mark.parametrize("case", CHEATS)
def test_no_way_around(branch: Project, case: str) -> None:
    cheat, why = CHEATS[case]
    cheat(branch)
    commit(branch.root)
    report = report_of(branch, RUN, REF, code=1)
    found = next(a for file in report["gate_files"] for a in file["assertions"] if a["metric"] == "exposed_ns")
    assert (found["state"], found["good"], found["accepted_for"]) == ("failed", False, "")
    assert "; not accepted on this branch: " in found["message"]
    assert why in found["message"]


def test_the_noise_of_a_branch_accepts_nothing_and_is_told(branch: Project) -> None:
    edited(wide_noise, after=True)(branch)
    commit(branch.root)
    branch.trace(exposed_us={(1, "stage4_f"): 450})
    said = branch.pytest(RUN, REF, "--nsys-gate-changes=fail", code=1)
    assert "this PR loosens: baselines/perf__gate/6dca38a89a56.json noise of exposed_ns" in said
    assert "not accepted on this branch" in said


def test_another_key_is_incomparable(branch: Project) -> None:
    branch.trace(exposed_us=SLOWER, gpu="NVIDIA H200")
    accept(branch)
    found = judged(branch, code=1)
    assert (found["state"], found["accepted_for"]) == ("incomparable", "")


def test_a_renamed_gate_file_is_a_new_one_and_told(branch: Project) -> None:
    (branch.root / FILE).rename(branch.root / "perf" / "other.nsys.yaml")
    accept(branch)
    found = judged(branch, code=0)
    assert (found["state"], found["accepted_for"]) == ("warned", "")
    assert "not at" in found["warnings"][0]
    said = branch.pytest(RUN, REF, "--nsys-gate-changes=fail", code=1)
    assert f"this PR loosens: {FILE} gate file judged → renamed to perf/other.nsys.yaml" in said


def test_a_configuration_that_took_the_place_of_another_accepts_nothing(branch: Project) -> None:
    git(branch.root, "switch", "-q", "main")
    matrix = GATE + "matrix: {small: {trace: ../run.sqlite}}\n"
    branch.gate(matrix, FILE)
    branch.trace()
    branch.refresh()
    commit(branch.root)
    git(branch.root, "switch", "-qC", "feature")
    branch.gate(matrix.replace("small", "tiny"), FILE)
    branch.trace(exposed_us=SLOWER)
    branch.refresh(WHY)
    commit(branch.root)
    found = by_name(report_of(branch, REF, code=1))[NAME]
    assert found["state"] == "failed"
    assert "; not accepted on this branch: baselines/perf__gate@small/6dca38a89a56.json is gone" in found["message"]


def test_of_two_refreshes_both_reasons_are_told(branch: Project) -> None:
    accept(branch)
    branch.trace(exposed_us=TWICE)
    accept(branch, "--nsys-reason=a typo")
    found = judged(branch, code=0)
    assert found["accepted_for"] == f"{REASON}; then a typo"
    assert (
        f"accepted on this branch: {ROW} 200 us → 350 us (+75%), and 1 more row: {REASON}; then a typo"
        in found["warnings"]
    )


def test_rows_that_nobody_accepted_stay_red(branch: Project) -> None:
    accept(branch)
    branch.trace(exposed_us=TWICE)
    found = judged(branch, code=1)
    assert found["state"] == "failed"
    assert [row["outcome"] for row in found["rows"]] == ["failed", "accepted", "passed", "passed"]
    assert found["message"] == (
        "2 of 4 rows above their limit; not accepted on this branch: rank 0 stage2_f is 300 us, and it stored 200 us"
    )


def test_a_limit_is_never_accepted(branch: Project) -> None:
    """A constant in the gate file that was lowered is a gate that was loosened."""
    branch.trace(exposed_us={(1, "stage4_f"): 550})
    branch.refresh(RUN, WHY, "-k", "exposed_ns")
    commit(branch.root)
    found = by_name(report_of(branch, RUN, REF, code=1))
    assert (found[NAME]["state"], found["overlap >= 50%"]["state"]) == ("accepted", "failed")
    branch.gate(GATE.replace("50%", "40%"), FILE)
    commit(branch.root)
    said = branch.pytest(RUN, REF, "--nsys-gate-changes=fail", code=1)
    assert f"this PR loosens: {FILE}:5 limit >= 50% → >= 40%" in said


def test_nothing_is_accepted_without_a_merge_base(branch: Project) -> None:
    accept(branch)
    branch.pytest(RUN, code=0)
    branch.trace("base.sqlite")
    found = by_name(report_of(branch, RUN, "--nsys-against=base.sqlite", code=1))[NAME]
    assert (found["state"], found["accepted_for"]) == ("failed", "")
    said = branch.command("compare", "base.sqlite", "run.sqlite", "--gate", FILE, code=1)
    assert "accepted" not in said


HELD, WAIVED = f"- {{id: held, assert: {NAME}", "waivers: [{assertion: held, ceiling: 400us, reason: later, expires: "
GATES = {
    "severity": (f"{HELD}, severity: warn}}", 0, "accepted"),
    "expected": (f"{HELD}, xfail: known}}", 0, "xfailed"),
    "first of three": (f"{HELD}, fail_after: 3}}", 1, "accepted"),
    "waived": (f"{HELD}}}\n{WAIVED}2999-01-01}}]", 0, "waived"),
    "expired": (f"{HELD}}}\n{WAIVED}2020-01-01}}]", 1, "accepted"),
    "exact": ("- exposed_ns == baseline", 1, "accepted"),
    "either side": ("- {id: held, assert: exposed_ns <= baseline + tolerance}", 1, "accepted"),
    "aggregate": (f"- max {NAME}", 1, "accepted"),
    "balance": ("- {id: held, assert: balance of exposed_ns across pp <= baseline + tolerance}", 1, "accepted"),
    "order": ("- sequence == baseline", 1, "accepted"),
    "names": ("- no new kernels", 1, "accepted"),
}


def one_more_kernel(_: TraceBuilder, processes: list[Process]) -> None:
    """A kernel that no run before had, in the window that is judged."""
    processes[1].kernel("cast", 45_700_000, 45_701_000, launch_ns=45_100_000)


@pytest.mark.parametrize("case", GATES)
def test_beside_what_a_gate_file_says(strict: Project, case: str) -> None:
    gate, code, state = GATES[case]
    with on_main(strict):
        strict.gate(f"tolerance: {{rel: 5%}}\nassertions:\n{gate}", FILE)
        strict.trace()
        strict.refresh(RUN)
    strict.trace(exposed_us=SLOWER, edit=one_more_kernel)
    accept(strict)
    (file,) = report_of(strict, RUN, REF, code=code)["gate_files"]
    assert [each["state"] for each in file["assertions"]] == [state]


def test_xdist_lets_it_pass_too(branch: Project) -> None:
    accept(branch)
    said = branch.pytest_in_a_process(RUN, REF, "-n", "2", code=0)
    assert "accepted on this branch" in said
    branch.file("pytest.ini", "[pytest]\n")
    assert "stays red" in branch.pytest_in_a_process(RUN, REF, "-n", "2", code=1)


def test_warnings_as_errors_make_it_red(branch: Project) -> None:
    accept(branch)
    found = judged(branch, "-W", "error", code=1)
    assert (found["outcome"], found["state"], found["good"]) == ("accepted", "failed", False)


def calibrated(data: dict[str, Any]) -> None:
    """The noise of main: what is 40 us off is unclear."""
    for row in rows(data):
        row[2:] = [row[2], [row[2][0] + 1_000 * off for off in (-10, -5, 0, 5, 10)]]


@pytest.mark.parametrize(
    ("key", "other_us", "how"), [("inconclusive", 240, "inconclusive"), ("improved", 100, "improved")]
)
def test_what_is_red_beside_it_stays_red(branch: Project, key: str, other_us: int, how: str) -> None:
    with on_main(branch):
        branch.gate(GATE.replace(f"- {NAME}", f"- {{id: held, assert: {NAME}, severity: {{{key}: fail}}}}"), FILE)
        edit(branch, calibrated)
    branch.trace(exposed_us={(1, "stage4_f"): 450, (0, "stage2_f"): other_us})
    branch.refresh(RUN, WHY, "--override-ini=nsys_baseline_ref=")
    commit(branch.root)
    found = by_name(report_of(branch, RUN, REF, code=1))["held"]
    assert (found["state"], found["good"]) == ("accepted", False)
    assert [row["outcome"] for row in found["rows"]][:2] == ["accepted", how]
    assert found["message"].endswith(f"; stays red until somebody lets it pass: rank 0 stage2_f is {how}, which fails")


def test_the_noise_of_the_merge_base_counts(branch: Project) -> None:
    with on_main(branch):
        edit(branch, calibrated)
    branch.trace(exposed_us={(1, "stage4_f"): 400})
    accept(branch)
    branch.trace(exposed_us={(1, "stage4_f"): 430})
    assert judged(branch, code=0)["state"] == "accepted"
    branch.trace(exposed_us={(1, "stage4_f"): 480})
    assert "rank 1 stage4_f is 480 us, and it stored 400 us" in judged(branch, code=1)["message"]


def test_a_sentence_in_a_test_is_not_accepted(branch: Project) -> None:
    sentence = NAME.replace("tolerance", "max(40%, 1us)")
    accept(branch)
    branch.file("test_it.py", f"def test_it(nsys_gate):\n    nsys_gate({sentence!r}, gate_file={FILE!r})\n")
    said = branch.pytest("test_it.py", RUN, REF, code=1)
    assert "not accepted on this branch: it is a sentence of a Python test" in said


@pytest.mark.parametrize("why", ["", " ", "…"])
def test_a_refresh_asks_for_the_reason_that_is_told(branch: Project, why: str) -> None:
    assert "needs a reason" in branch.refresh(RUN, f"--nsys-reason={why}", code=4)
