"""Does a refresh say what it left red, and what to type or to write for each?"""

import re
import shlex

import pytest

from pytest_nsys.verdicts.refresh_modes import RefreshMode
from tests.support.gates import Project

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
    """The lines at the end of what a refresh said, by their number alone."""
    return [
        line.replace(" gate.nsys.yaml:", " line ")
        for line in said.splitlines()
        if line.startswith(("still red", "not written", "  write", "  waivers", "    - {assert"))
    ]


def written(project: Project, said: str) -> None:
    """Write each sentence where a refresh says so, as a person does."""
    path = project.root / project.name
    lines = path.read_text().splitlines()
    for line, sentence in re.findall(r"^still red: \S+:(\d+) .*\n  write: (.*)$", said, re.MULTILINE):
        lines[int(line) - 1] = f"  - {sentence}"
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def slower(project: Project) -> Project:
    """A gate with a baseline and two constants, and a run that breaks all three."""
    project.accepted(GATE)
    project.trace(exposed_us=574)
    return project


def test_what_is_left_is_said_with_what_to_write(slower: Project) -> None:
    said = slower.refresh(RUN, code=1)
    first, write, waivers, one, second, other, two = left(said)
    assert first == ("still red: line 6 `stage4 overlap >= 75%` is a constant, 42.6% now in rank 0 stage4_f")
    assert write == "  write: stage4 overlap >= 41%"
    assert second.startswith("still red: line 7 `median exposed_ns <= 300us` is a constant, 574 us now")
    assert other == "  write: median exposed_ns <= 580us"
    path = slower.root / slower.name
    before = path.read_text()
    path.write_text(before + "\n".join(line.removeprefix("  ") for line in (waivers, one, two)) + "\n")
    assert "waived until" in slower.pytest(RUN, code=0)
    assert left(slower.refresh(RUN, code=0)) == []
    path.write_text(before)
    written(slower, said)
    slower.pytest(RUN, code=0)
    assert left(slower.refresh(RUN, code=0)) == []


def test_a_red_says_what_accepts_it(slower: Project) -> None:
    said = slower.pytest(RUN, code=1)
    (command,) = set(re.findall(r"pytest-nsys (baseline refresh .*)\s+# accept this run", said))
    assert command == 'baseline refresh gate.nsys.yaml --trace=run.sqlite --reason "…"'
    assert "--reason says nothing: say why" in slower.command(*shlex.split(command), code=2)
    place = "# in gate.nsys.yaml:6, to accept it"
    alone = slower.pytest(RUN, "-k", "stage4", code=1)
    assert re.search(rf"write: stage4 overlap >= 41%\s+{re.escape(place)}", alone)
    told = slower.command(*shlex.split(command.replace("…", "a slower link")), code=1)
    written(slower, told)
    slower.pytest(RUN, code=0)
    assert "write: " not in slower.pytest(RUN, "-k", "exposed_ns and below")


def test_the_worst_configuration_rules(project: Project) -> None:
    project.gate("""
        matrix:
          small: {trace: small.sqlite}
          large: {trace: large.sqlite}
        assertions:
          - stage4 overlap >= 75%
          - {id: each, assert: exposed_ns <= 300us, for: {stage: [stage2_f, stage4_f]}}
    """)
    project.trace("small.sqlite", exposed_us={(0, "stage4_f"): 400})
    project.trace("large.sqlite", exposed_us={(1, "stage4_f"): 574})
    project.command("baseline", "refresh", project.name, "--reason=x", code=1)
    said = project.result.stdout.str()
    assert len(left(said)) == 7
    assert re.search("`stage4 overlap >= 75%` is a constant, 42.6% now in large rank 1 .*\n  write: .* >= 41%", said)
    assert re.search("`each` is a constant, 574 us now in large rank 1.*\n  write: <= 580us", said)


MANY = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - overlap >= 99%
  - "stage2_f overlap > 98.5 %"
  - exposed_ns <= 12us
  - exposed below 0.012ms
  - sum exposed_ns <= 1000 ns
  - wall_exposed <= 0.1% of the step
  - launches < 2
  - kernel_share of gemm >= 90%
  - balance of exposed_ns across pp <= 1.01
  - exposed_ns below baseline plus tolerance
"""


@pytest.mark.parametrize("exposed_us", [37, 201, 574, 930])
def test_every_kind_of_constant_is_green_afterwards(project: Project, exposed_us: int) -> None:
    each = {(0, "stage2_f"): exposed_us, (0, "stage4_f"): exposed_us + 3, (1, "stage2_f"): 2 * exposed_us % 990}
    project.gated(MANY, each)
    project.gate(MANY.replace('"stage2_f overlap > 98.5 %"', "stage2_f overlap > 98.5 %"))
    said = project.refresh(RUN, code=1)
    assert len(re.findall(r"^  write: ", said, re.MULTILINE)) == 9
    written(project, said)
    assert left(project.refresh(RUN)) == []
    assert project.baselines()
    project.pytest(RUN, code=0)


STRUCTURE = """
assertions:
  - {assert: exposed_ns below baseline, tolerance: {rel: 5%}}
  - launches <= 1
  - {id: exact, assert: rank 0 stage2_f launches == 2}
""".replace("{assert: exposed_ns below baseline, tolerance: {rel: 5%}}", "exposed_ns below baseline plus 5%")


def test_structure_refuses_until_it_is_written_anew(project: Project) -> None:
    project.gated(STRUCTURE)
    said = project.refresh(RUN, code=1)
    assert "refused: the structural assertion 'launches <= 1' fails" in said
    assert project.baselines() == {}
    assert left(said)[:2] == [
        "still red: line 4 `launches <= 1` is a constant, 2 now in rank 0 stage2_f",
        "  write: launches <= 3",
    ]
    written(project, said)
    project.refresh(RUN)
    assert len(project.baselines()) == 1


def test_what_is_exact_says_its_number(project: Project) -> None:
    project.gated(STRUCTURE.replace("== 2", "== 1").replace("<= 1\n", "<= 30\n"))
    said = project.refresh(RUN, code=1)
    assert "refused: the structural assertion 'exact' fails" in said
    first, write, *waiver = left(said)
    assert first == (
        "still red: line 5 `exact` is exact, 2 now in rank 0 stage2_f, and a refresh accepts no other number: mend it"
    )
    assert write == "  write: rank 0 stage2_f launches == 2"
    with (project.root / project.name).open("a") as file:
        file.write("\n".join(line.removeprefix("  ") for line in waiver) + "\n")
    project.refresh(RUN)
    project.pytest(RUN, code=0)


def test_no_number_is_exact_for_rows_that_differ(project: Project) -> None:
    """What is written down has to hold when it is pasted."""
    project.gated("assertions:\n- exposed_ns == 3us\n")
    project.trace("even.sqlite", 200)
    assert "write: exposed_ns == 200000ns" in project.pytest("--nsys-trace=even.sqlite", code=1)
    project.trace("uneven.sqlite", {(0, "stage2_f"): 300})
    assert "write: " not in project.pytest("--nsys-trace=uneven.sqlite", code=1)
    said = project.refresh("--nsys-trace=uneven.sqlite", code=1)
    assert ("`exposed_ns == 3us` is exact" in said, "write: " in said) == (True, False)


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
    told = [line.removeprefix("  write: ") for line in said if line.startswith("  write: ")]
    assert told == [f"{one.partition('==')[0]}== {number}" for one, number in EXACT.items() if number]
    project.gate("\n".join(f"- {one.partition('==')[0]}== {number}" for one, number in EXACT.items() if number))
    project.pytest(RUN, code=0)


def test_an_exact_time_does_not_refuse_and_is_told(project: Project) -> None:
    project.gated("- no exposed\n- compute below baseline plus 5%")
    said = project.refresh(RUN, code=1)
    assert len(project.baselines()) == 1
    assert "still red: gate.nsys.yaml:3 `no exposed` is exact, 200 us now in rank 0 stage2_f" in said
    assert "  waive it for 14 days:" in said


def test_a_limit_that_cannot_be_looser_says_so(project: Project) -> None:
    project.gated("- overlap > 30%", exposed_us={(0, "stage2_f"): 999})
    said = project.refresh(RUN, code=1)
    place = "still red: gate.nsys.yaml:3 `overlap > 30%` is a constant"
    assert f"{place}, 0.1% now in rank 0 stage2_f, and no looser one says anything: remove it" in said
    assert "ceiling: 0%" in said


def test_one_more_accepted_run_may_leave_it_red(project: Project) -> None:
    project.accepted("- exposed_ns below baseline plus 5%")
    project.trace(exposed_us=574)
    assert left(project.refresh(RUN, mode=RefreshMode.ACCEPT_RUN)) == [
        "still red: line 3 `exposed_ns below baseline plus 5%` is 574 us now in rank 0 stage2_f, and --accept-run adds "
        "one run to the accepted ones, whose median counts: refresh without --accept-run"
    ]


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
    project.gated("- {id: nightly, assert: exposed_ns <= last 3 runs + 5%}\n- overlap >= 10%")
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


SILENT = re.compile(r"(?s)waivers: \[(\{.*?\})\]\s+# in gate.nsys.yaml, to silence it")


@pytest.mark.parametrize(
    "sentence", ["exposed_ns below baseline plus 5%", "overlap within 5% of baseline", "exposed_ns < 150us"]
)
def test_what_next_suggests_last_silences_the_red_for_two_weeks(
    project: Project, monkeypatch: pytest.MonkeyPatch, sentence: str
) -> None:
    project.accepted(f"- {sentence}", 140)
    project.trace(exposed_us=574)
    project.pytest(RUN, code=1)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "4102444800")  # the first day of 2100
    said = project.pytest(RUN, code=1)
    found = SILENT.search(said)
    assert found is not None, said
    assert said.index("waivers: [") > max(said.rfind("baseline refresh"), said.rfind("write: "), said.rfind("--view"))
    assert "expires: 2100-01-15" in " ".join(found[1].split())
    project.gate(f"assertions:\n- {sentence}\nwaivers: [{found[1]}]\n")
    assert "waived until 2100-01-15" in project.pytest(RUN, code=0)


@pytest.mark.parametrize(
    "gate",
    [
        "- {assert: exposed_ns < 100us, xfail: a reason}",
        "- {assert: exposed_ns < 100us, severity: warn}",
        "- exposed_ns != 200us",
        "- exposed_ns <= baseline",
    ],
)
def test_what_cannot_be_waived_has_no_waiver(project: Project, gate: str) -> None:
    project.gated(gate)
    assert "waivers: [" not in project.pytest(RUN)


def test_one_item_of_several_is_waived_alone(project: Project) -> None:
    project.accepted("- {assert: exposed_ns <= baseline + 5%, for: {stage: [stage2_f, stage4_f]}}")
    project.trace(exposed_us=dict.fromkeys([(0, "stage4_f"), (1, "stage4_f")], 300))
    found = SILENT.search(project.pytest(RUN, code=1))
    assert found is not None
    project.gate(
        "assertions:\n- {assert: exposed_ns <= baseline + 5%, for: {stage: [stage2_f, stage4_f]}}\n"
        f"waivers: [{found[1]}]\n"
    )
    said = project.pytest(RUN, code=0)
    assert "not needed" not in said


def test_below_other_waivers_it_is_one_more_of_them(project: Project) -> None:
    gate = """
        assertions: [{id: a, assert: exposed_ns < 100us}]
        waivers: [{assertion: a, ceiling: 150us, expires: 2100-01-01, reason: r}]
        """
    project.gated(gate)
    said = project.pytest(RUN, code=1)
    waiver = r'- \{assertion: "a", ceiling: 210us, expires: \S+, reason: "…"\} # in gate.nsys.yaml below its waivers, '
    assert re.search(waiver, " ".join(said.split()))
