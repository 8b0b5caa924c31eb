"""Does a refresh say what it left red and what to type, and is a limit moved only where that is asked for?"""

from __future__ import annotations

import os
import re
import shlex
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.errors import NsysError
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.moved_limits import LimitEdit, moved_limit
from pytest_nsys.verdicts.move_limits import move_limits
from pytest_nsys.verdicts.refresh_modes import Mode
from tests.support.gates import Project
from tests.support.git_project import commit, git, isolate, start

RUN = "--nsys-trace=run.sqlite"
GATE = """
# what counts
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed_ns below baseline plus tolerance   # of each stage
  - stage4 overlap >= 75%   # not below 75%
  - median exposed_ns <= 300us
"""


def left(said: str) -> list[str]:
    """The lines at the end of what a refresh said."""
    return [
        line
        for line in said.splitlines()
        if line.startswith(("still red", "not written", "  waivers", "    - {assert"))
    ]


@pytest.fixture
def slower(project: Project) -> Project:
    """A gate with a baseline and two constants, and a run that breaks all three."""
    project.accepted(GATE)
    project.trace(exposed_us=574)
    return project


def test_what_is_left_is_said_with_what_to_type(slower: Project) -> None:
    said = slower.refresh(RUN, code=1)
    first, waivers, one, second, two = left(said)
    assert first == (
        "still red: line 6 `stage4 overlap >= 75%` is a constant, 42.6% now in rank 0 stage4_f: "
        "baseline refresh --limits moves it to 41%, or write a waiver:"
    )
    assert second.startswith("still red: line 7 `median exposed_ns <= 300us` is a constant, 574 us now: ")
    assert "moves it to 580us, or write a waiver:" in second
    path = slower.root / slower.name
    path.write_text(path.read_text() + "\n".join(line.removeprefix("  ") for line in (waivers, one, two)) + "\n")
    assert "waived until" in slower.pytest(RUN, code=0)
    assert left(slower.refresh(RUN, code=0)) == []


def test_limits_are_moved_and_shown_and_the_gate_is_green(slower: Project) -> None:
    before = (slower.root / slower.name).read_text()
    said = slower.refresh(RUN, limits=True)
    after = before.replace(">= 75%   #", ">= 41%   #").replace("300us", "580us")
    assert (slower.root / slower.name).read_text() == after
    assert (
        """gate.nsys.yaml: 2 limits moved
--- gate.nsys.yaml
+++ gate.nsys.yaml
@@ -5,3 +5,3 @@
   - exposed_ns below baseline plus tolerance   # of each stage
-  - stage4 overlap >= 75%   # not below 75%
-  - median exposed_ns <= 300us
+  - stage4 overlap >= 41%   # not below 75%
+  - median exposed_ns <= 580us
"""
        in said
    )
    assert left(said) == []
    slower.pytest(RUN, code=0)
    assert "limits moved" not in slower.refresh(RUN, limits=True)


def test_the_command_accepts_with_a_reason(slower: Project) -> None:
    words = ("baseline", "refresh", slower.name, "--trace=run.sqlite", "--limits")
    assert "--reason" in slower.command(*words, code=2)
    slower.command(*words, "--reason=a slower link", code=0)
    slower.pytest(RUN, code=0)


def test_the_command_in_a_red_accepts_all_of_it(slower: Project) -> None:
    said = slower.pytest(RUN, code=1)
    (command,) = set(re.findall(r"pytest-nsys (baseline refresh .*)\s+\(accept this run", said))
    assert command == 'baseline refresh gate.nsys.yaml --trace=run.sqlite --reason "…" --limits'
    assert "--reason says nothing: say why" in slower.command(*shlex.split(command), code=2)
    slower.command(*shlex.split(command.replace("…", "a slower link")), code=0)
    slower.pytest(RUN, code=0)
    assert "--limits" not in slower.pytest(RUN, "-k", "exposed_ns and below")


def test_no_limit_is_to_be_moved_where_none_is_broken(project: Project) -> None:
    project.accepted(GATE)
    project.trace(exposed_us={(0, "stage2_f"): 290})
    said = project.pytest(RUN, code=1)
    assert re.search(r'--reason "…"\s+\(accept this run as the new normal\)', said)


def test_a_moved_limit_is_a_loosened_gate(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch)
    start(project)
    project.accepted(GATE)
    commit(project.root)
    git(project.root, "switch", "-qc", "feature")
    project.trace(exposed_us=574)
    project.refresh(RUN, limits=True)
    said = project.pytest(RUN, "--nsys-baseline-ref=main")
    assert "this PR loosens: gate.nsys.yaml:6 limit >= 75% → >= 41% (stage4 overlap >= 41%)" in said
    assert "this PR loosens: gate.nsys.yaml:7 limit <= 300us → <= 580us" in said
    project.pytest(RUN, "--nsys-baseline-ref=main", "--nsys-gate-changes=fail", "-k", "overlap", code=1)


def test_the_history_keeps_why_a_limit_was_moved(slower: Project) -> None:
    past = "--nsys-history=perf.db"
    slower.refresh(RUN, past, "--nsys-reason=a slower link", limits=True)
    slower.pytest(RUN, past, code=0)
    said = slower.command("history", "overlap", code=0)
    assert re.search(r"\nnote: accepted at .*: a slower link \(overlap\)", said)
    assert re.search(r"overlap +rank 0 stage stage4_f +.* 41%", said)


def test_what_could_not_be_accepted_is_not_in_the_history_as_such(project: Project) -> None:
    project.gated(
        "- {metric: overlap, where: {stage: stage2_f}, require: &x '>= 90%'}\n- {metric: overlap, require: *x}\n"
    )
    said = project.refresh(RUN, "--nsys-history=perf.db", limits=True, code=1)
    assert "history perf.db: not written: not all that it would call accepted was" in said
    assert not (project.root / "perf.db").exists()


def test_only_names_whose_limits_are_moved(slower: Project) -> None:
    said = slower.refresh(RUN, limits=True, only=("overlap",), code=1)
    text = (slower.root / slower.name).read_text()
    assert ">= 41%" in text
    assert "300us" in text
    first, second, *_ = [line for line in left(said) if line.startswith("still")]
    assert first == (
        "still red: line 5 `exposed_ns below baseline plus tolerance` is 574 us now in rank 0 stage2_f, "
        "and --only leaves it out: add --only=exposed_ns"
    )
    assert "is a constant, 574 us now, and --only leaves it out: write 580us yourself, or write a waiver:" in second


def test_the_worst_configuration_rules(project: Project) -> None:
    project.gate("""
        matrix:
          small: {trace: small.sqlite}
          large: {trace: large.sqlite}
        assertions:
          - stage4 overlap >= 75%
          - {id: each, metric: exposed_ns, for: {stage: [stage2_f, stage4_f]}, require: "<= 300us"}
    """)
    project.trace("small.sqlite", exposed_us={(0, "stage4_f"): 400})
    project.trace("large.sqlite", exposed_us={(1, "stage4_f"): 574})
    project.command("baseline", "refresh", project.name, "--reason=x", code=1)
    said = project.result.stdout.str()
    assert len(left(said)) == 5
    assert "`stage4 overlap >= 75%` is a constant, 42.6% now in large rank 1 stage4_f: --limits moves it to 41%" in said
    assert "`each` is a constant, 574 us now in large rank 1" in said
    project.command("baseline", "refresh", project.name, "--limits", "--reason=x", code=0)
    text = (project.root / project.name).read_text()
    assert ">= 41%" in text
    assert '"<= 580us"' in text
    project.pytest(code=0)


def test_configurations_that_were_not_measured_are_named(project: Project) -> None:
    project.gate("""
        matrix: {small: small.sqlite, large: large.sqlite, other: {trace: other.sqlite}}
        assertions:
          - stage4 overlap >= 75%
          - {assert: stage2 overlap >= 70%, matrix: large}
    """)
    project.trace("large.sqlite", exposed_us=574)
    project.command("baseline", "refresh", f"{project.name}[large]", "--limits", "--reason=x", code=0)
    said = project.result.stdout.str()
    assert "gate.nsys.yaml: looser for small, other, too, which this run did not measure\n" in said
    assert "gate.nsys.yaml: 2 limits moved\n" in said


def test_configurations_are_named_also_where_the_limits_stand_on_one_line(project: Project) -> None:
    """The first limit gets longer, so that the second stands elsewhere."""
    project.gate("""
        matrix: {small: small.sqlite, large: large.sqlite}
        assertions: [{assert: exposed_ns <= 5us, matrix: large}, stage4 overlap >= 75%]
    """)
    project.trace("large.sqlite", exposed_us=574)
    project.command("baseline", "refresh", f"{project.name}[large]", "--limits", "--reason=x", code=0)
    assert "gate.nsys.yaml: looser for small, too, which this run did not measure\n" in project.result.stdout.str()


MANY = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - overlap >= 99%
  - "stage2_f overlap > 98.5 %"
  - {id: a, metric: overlap, across: {rank: median}, require: "at least 97%"}
  - exposed_ns <= 12us
  - exposed below 0.012ms
  - {id: b, metric: exposed_ns, for: {rank: [0, 1]}, require: < 0.000012s}
  - sum exposed_ns <= 1000 ns
  - >-
    wall_exposed <=
    0.1% of the step
  - launches < 2
  - kernel_share of gemm >= 90%
  - balance of exposed_ns across pp <= 1.01
  - exposed_ns below baseline plus tolerance
"""


@pytest.mark.parametrize("exposed_us", [37, 201, 574, 930])
def test_every_kind_of_constant_is_green_afterwards(project: Project, exposed_us: int) -> None:
    each = {(0, "stage2_f"): exposed_us, (0, "stage4_f"): exposed_us + 3, (1, "stage2_f"): 2 * exposed_us % 990}
    project.gated(MANY, each)
    assert len(left(project.refresh(RUN, code=1))) > 10
    said = project.refresh(RUN, limits=True)
    assert left(said) == []
    assert project.baselines()
    project.pytest(RUN, code=0)


STRUCTURE = """
assertions:
  - {assert: exposed_ns below baseline, tolerance: {rel: 5%}}
  - launches <= 1
  - {id: exact, assert: rank 0 stage2_f launches == 2}
""".replace("{assert: exposed_ns below baseline, tolerance: {rel: 5%}}", "exposed_ns below baseline plus 5%")


def test_structure_refuses_unless_its_limit_can_be_moved(project: Project) -> None:
    project.gated(STRUCTURE)
    said = project.refresh(RUN, code=1)
    assert "refused: the structural assertion 'launches <= 1' fails" in said
    assert project.baselines() == {}
    assert "still red: line 4 `launches <= 1` is a constant, 2 now in rank 0 stage2_f: " in said
    project.refresh(RUN, limits=True)
    assert "- launches <= 3\n" in (project.root / project.name).read_text()
    assert len(project.baselines()) == 1


def test_what_is_exact_is_never_moved(project: Project) -> None:
    project.gated(STRUCTURE.replace("== 2", "== 1").replace("<= 1\n", "<= 30\n"))
    before = (project.root / project.name).read_text()
    said = project.refresh(RUN, limits=True, code=1)
    assert "refused: the structural assertion 'exact' fails" in said
    assert (project.root / project.name).read_text() == before
    first, *waiver = left(said)
    assert first == (
        "still red: line 5 `exact` is exact, 2 now in rank 0 stage2_f, and a refresh accepts no other number: "
        "mend it, write == 2, or write a waiver:"
    )
    with (project.root / project.name).open("a") as file:
        file.write("\n".join(line.removeprefix("  ") for line in waiver) + "\n")
    project.refresh(RUN)
    project.pytest(RUN, code=0)


EXACT = {
    "exposed_ns == 3us": "574000ns",
    "overlap == 75%": "42.6%",
    "kernel_share of gemm == 3%": "",
    "wall_exposed == 5% of step": "",
    "balance of exposed_ns across pp == 2": "1",
}


def test_the_number_to_write_instead_is_one_that_can_be_written(project: Project) -> None:
    """In its unit; one without an end is not told."""
    project.gated("\n".join(f"- {sentence}" for sentence in EXACT), 574)
    said = left(project.refresh(RUN, code=1))
    told = {sentence: next(line for line in said if f"`{sentence}` " in line) for sentence in EXACT}
    numbers = {sentence: re.findall(r", write == (.*?)(?:, or|$)", line) for sentence, line in told.items()}
    assert numbers == {sentence: [number] if number else [] for sentence, number in EXACT.items()}
    project.gate("\n".join(f"- {one.partition('==')[0]}== {number}" for one, number in EXACT.items() if number))
    project.pytest(RUN, code=0)


def test_an_exact_time_does_not_refuse_and_is_told(project: Project) -> None:
    project.gated("- no exposed\n- compute below baseline plus 5%")
    said = project.refresh(RUN, code=1)
    assert len(project.baselines()) == 1
    assert "still red: line 3 `no exposed` is exact, 200 us now in rank 0 stage2_f" in said
    assert "mend it, or write a waiver:" in said


def test_a_limit_that_stays_says_why_and_nothing_is_changed(project: Project) -> None:
    project.gated(
        """
        - {id: a, metric: overlap, where: {stage: stage2_f, rank: 1}, require: &limit ">= 90%"}
        - {id: b, metric: overlap, where: {stage: stage4_f}, require: *limit}
        - {id: c, metric: overlap, require: "> 30%"}
        """,
        exposed_us={(0, "stage2_f"): 999, (1, "stage2_f"): 574, (0, "stage4_f"): 574, (1, "stage4_f"): 574},
    )
    before = (project.root / project.name).read_text()
    said = project.refresh(RUN, limits=True, code=1)
    assert (project.root / project.name).read_text() == before
    assert "baseline not written" not in said
    for line in (3, 4):
        other = 7 - line
        assert f"gate.nsys.yaml:{line}: the limit stays as it is: 1 other line has it, too (line {other})" in said
    assert "still red: line 5 `c` is a constant, 0.1% now in rank 0 stage2_f: --limits cannot move it" in said
    assert "ceiling: 0%" in said


CASES: dict[str, tuple[dict[str, Any], int, str]] = {
    "new leaves what is stored": (
        {"mode": Mode.NEW},
        574,
        "still red: line 3 `exposed_ns below baseline plus 5%` is 574 us now in rank 0 stage2_f, "
        "and --rows new writes no row that is stored: refresh without --rows new",
    ),
    "better leaves what is worse": (
        {"mode": Mode.BETTER},
        574,
        "still red: line 3 `exposed_ns below baseline plus 5%` is 574 us now in rank 0 stage2_f, "
        "and --rows better writes no row that is worse: refresh without --rows better",
    ),
    "new leaves what improved": (
        {"mode": Mode.NEW},
        100,
        "not written: line 3 `exposed_ns below baseline plus 5%` improved to 100 us now in rank 0 stage2_f, "
        "and --rows new writes no row that is stored: refresh without --rows new",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_that_a_mode_leaves(project: Project, case: str) -> None:
    accepting, exposed_us, line = CASES[case]
    project.accepted("- exposed_ns below baseline plus 5%")
    project.trace(exposed_us=exposed_us)
    assert left(project.refresh(RUN, **accepting)) == [line]


def test_one_mistake_of_many_is_told_once_and_what_has_no_data_by_itself(project: Project) -> None:
    each = "".join(f"  - rank {rank} exposed_ns <= 1ms\n" for rank in range(12))
    project.gated("window: nothing%\nconvention: pithtrain\nassertions:\n" + each)
    (line,) = left(project.refresh(RUN, code=1))
    assert line.startswith("still red: line 5 and 11 more lines cannot be judged: run.sqlite: rank 0 (process 100): no")
    project.gate("- stage9 overlap >= 10%\n- exposed_ns below baseline plus 5%")
    said = project.refresh(RUN, code=1)
    assert left(said) == [
        "still red: line 3 `stage9 overlap >= 10%` has no data (no row has stage stage9; stages with a row: stage2_f, "
        "stage4_f): record what it measures, or give it allow_no_data: true"
    ]


def test_a_limit_from_the_history_is_begun_by_pytest(project: Project) -> None:
    """The command has no history, unless the ini file names one."""
    project.gated("- {id: nightly, metric: exposed_ns, baseline: {history: 3, rel: 5%}}\n- overlap >= 10%")
    (line,) = left(project.refresh(RUN, code=1))
    assert line.startswith("still red: line 3 `nightly` has no data (the limit is from the history: ")
    (command,) = re.findall(r": pytest (--nsys-update-baselines .*) begins it$", line)
    words = shlex.split(command.replace("…", "a new link").replace("PATH", "perf.db"))
    project.pytest(RUN, *words, code=0)
    project.pytest(RUN, "--nsys-history=perf.db", code=0)


def test_an_expected_failure_that_holds_now(project: Project) -> None:
    project.accepted("- {assert: exposed_ns below baseline plus 5%, xfail: a slow link}")
    project.trace(exposed_us=574)
    assert left(project.refresh(RUN)) == [
        "still red: line 3 `exposed_ns below baseline plus 5%` holds, and is expected to fail: remove its xfail"
    ]


def test_deselected_assertions_are_looked_at_too(slower: Project) -> None:
    said = slower.refresh(RUN, "-k", "median", code=1)
    lines = [line for line in left(said) if line.startswith("still")]
    assert [int(re.findall(r"line (\d+)", line)[0]) for line in lines] == [5, 6, 7]
    assert "is 574 us now in rank 0 stage2_f, and it was not selected: refresh the whole gate file" in lines[0]
    said = slower.refresh(RUN, "-k", "exposed_ns and below")
    lines = [line for line in left(said) if line.startswith("still")]
    assert [int(re.findall(r"line (\d+)", line)[0]) for line in lines] == [6, 7]


def test_a_read_only_gate_file_is_one_line(project: Project) -> None:
    path = project.gate("- overlap >= 75%")
    (one,) = load_gate_file(path).assertions
    content = path.read_bytes()
    path.chmod(0o444)
    root = os.geteuid() == 0
    for folder in (path.parent, *path.parent.parents):
        if root and folder.stat().st_uid == 0 and not folder.stat().st_mode & 0o005:
            folder.chmod(folder.stat().st_mode | 0o055)
    if root:
        os.seteuid(65534)
    try:
        with pytest.raises(NsysError) as told:
            move_limits(path, Path(path.name), [LimitEdit(one.location, moved_limit(one, Fraction(1, 2)))])
    finally:
        if root:
            os.seteuid(0)
    assert str(told.value) == "gate.nsys.yaml: cannot be written: Permission denied; no limit was moved"
    assert path.read_bytes() == content
