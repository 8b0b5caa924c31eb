"""Is a capture ever held against itself, or does one of several ever hide behind the others?"""

import json
import random
import sqlite3
from contextlib import closing
from fractions import Fraction

import pytest

from pytest_nsys.analysis.captures.outliers import find_outliers
from pytest_nsys.verdicts.refresh_modes import RefreshMode
from tests.support.gates import MS, Project
from tests.support.samples.builder import Process, TraceBuilder

GATES = {
    "times": "- exposed_ns <= baseline + 5%",
    "ratios alone": "- overlap >= baseline - 5pp",
    "counts alone": "- launches == baseline",
}
SAME = "both sides are the same capture: "


def in_other_bytes(project: Project, name: str, copy: str) -> None:
    """What VACUUM makes of a trace, with another page size: not a byte is where it was."""
    with closing(sqlite3.connect(project.root / name)) as file:
        file.execute("PRAGMA page_size = 8192")
        file.execute(f"VACUUM INTO '{project.root / copy}'")


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_a_copy_in_other_bytes_is_no_other_side(project: Project, gate: str) -> None:
    project.gated(gate, name="base.sqlite")
    in_other_bytes(project, "base.sqlite", "head.sqlite")
    cases = project.cases("--nsys-trace=head.sqlite", "--nsys-against=base.sqlite", code=1)
    assert all(case.state == "error" and SAME in case.properties["nsys_message"] for case in cases.values())
    said = project.command("compare", "base.sqlite", "head.sqlite", code=2)
    assert f"error: {SAME}" in said
    assert "kernels are equal to the nanosecond in " in said


def test_a_copied_rank_in_other_bytes_is_refused_by_a_gate_and_named_by_a_comparison(project: Project) -> None:
    """Of files of a rank each: the gate would be green on a rank that was not captured anew."""
    project.gate(GATES["ratios alone"])
    for side in ("base", "head"):
        for rank in range(2):
            label = f"rank={rank}; pp={rank}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
            project.trace(f"{side}/rank{rank}.sqlite", ranks=1, label=label)
    (project.root / "head/rank1.sqlite").unlink()
    in_other_bytes(project, "base/rank1.sqlite", "head/rank1.sqlite")
    said = project.pytest("--nsys-trace=head", "--nsys-against=base", code=1)
    assert "head/rank1.sqlite: every kernel is that of base; there is nothing to compare" in "".join(said.split("\n"))
    told = project.command("compare", "base", "head", code=0)
    assert "1 of 2 traces are those of base, and there is nothing to compare: head/rank1.sqlite" in told


def test_one_of_several_captures_is_enough(project: Project) -> None:
    project.gate(GATES["times"])
    for name in ("a", "b", "c"):
        project.trace(f"{name}.sqlite")
    in_other_bytes(project, "b.sqlite", "d.sqlite")
    sides = ["--base=a.sqlite", "--base=b.sqlite", "--head=c.sqlite", "--head=d.sqlite"]
    said = project.command("compare", "--gate=gate.nsys.yaml", *sides, code=2)
    assert "d.sqlite and " in said
    assert "b.sqlite; there is nothing to compare" in said


def test_a_copy_in_other_bytes_is_no_second_capture_of_a_side(project: Project) -> None:
    """Its values scatter by nothing, which would count as no noise."""
    project.gate(GATES["counts alone"])
    for name in ("base", "head"):
        project.trace(f"{name}.sqlite")
    in_other_bytes(project, "head.sqlite", "again.sqlite")
    two = ["--nsys-trace=head.sqlite", "--nsys-trace=again.sqlite"]
    said = "are the same capture: "
    for more in (["--nsys-against=base.sqlite"], ["--nsys-update-baselines", "--nsys-reason=r"]):
        assert said in project.pytest(*two, *more, code=1)
    assert "kernels are equal to the nanosecond; one trace is one sample" in project.command(
        "compare", "--gate=gate.nsys.yaml", "--base=base.sqlite", "--head=head.sqlite", "--head=again.sqlite", code=2
    )
    assert said in project.command("init", "head.sqlite", "again.sqlite", code=2)
    assert said in project.command("rows", "idle_ns", "--trace=head.sqlite", "--trace=again.sqlite", code=2)


def test_a_nanosecond_tells_two_captures_apart(project: Project) -> None:
    def late(_: TraceBuilder, processes: list[Process]) -> None:
        processes[0].kernel("gemm", 50 * MS, 50 * MS + 1)

    project.gated(GATES["times"], name="base.sqlite")
    (project.root / "base.sqlite").rename(project.root / "kept")
    project.trace("base.sqlite", edit=late)  # of the same name, so of the same times but for this
    (project.root / "base.sqlite").rename(project.root / "head.sqlite")
    (project.root / "kept").rename(project.root / "base.sqlite")
    project.pytest("--nsys-trace=head.sqlite", "--nsys-against=base.sqlite", code=0)


TIMES = "- exposed_ns <= baseline + 5%\n- window_ns <= baseline + 5%\n- idle_ns <= baseline + 5%\n"
EIGHT = f"{TIMES}- launches == baseline"
OWN = "this is the trace that the baseline was taken from"


def test_a_baseline_is_judged_on_its_own_trace_and_says_so(project: Project) -> None:
    """Green and doubtful, without -v too, in the terminal, the page, the Markdown and the JSON."""
    project.accepted(EIGHT)
    reports = ("page.html", "report.md", "report.json")
    options = ("--nsys-html=page.html", "--nsys-summary=report.md", "--nsys-json=report.json")
    said = project.pytest("--nsys-trace=run.sqlite", "-W", "error", *options, code=0)
    said = " ".join(said.split())
    assert "warning: all 12 judged rows, 8 of them times, equal baselines/gate/" in said
    assert f".json to the nanosecond: {OWN}" in said
    for name in reports:
        assert OWN in (project.root / name).read_text(encoding="utf-8")
    verdicts = json.loads((project.root / "report.json").read_text())["gate_files"][0]["assertions"]
    assert all(any(OWN in doubt for doubt in each["doubts"]) for each in verdicts)
    project.gate(f"quality: {{same_as_baseline: 1}}\nassertions:\n{EIGHT}")
    assert OWN not in project.pytest("--nsys-trace=run.sqlite", code=0)
    assert OWN in project.pytest("-v", "--nsys-trace=run.sqlite", code=0)
    project.gate(f"quality: {{same_as_baseline: 0}}\nassertions:\n{EIGHT}\n- window_ns <= 1s")
    cases = project.cases("--nsys-trace=run.sqlite", code=1)
    assert [case.state for case in cases.values()] == ["error"] * 4 + ["passed"]
    said = cases["window_ns <= baseline + 5%"].properties["nsys_message"]
    assert "to the nanosecond (bound: at most 0): this is the trace" in said
    project.trace("next.sqlite", 201)
    assert OWN not in project.pytest("-v", "--nsys-trace=next.sqlite", code=0)


def test_an_accepted_run_is_told_and_a_new_assertion_hides_none(project: Project) -> None:
    project.gate(EIGHT)
    for number, exposed_us in enumerate((200, 201, 203)):
        project.trace(f"{number}.sqlite", exposed_us)
        project.refresh(f"--nsys-trace={number}.sqlite", mode=RefreshMode.ACCEPT_RUN)
    project.gate(f"{EIGHT}\n- compute_ns <= baseline + 5%")
    assert OWN in project.pytest("--nsys-trace=1.sqlite", code=1)


def test_an_accepted_run_is_held_to_the_others_and_not_to_itself(project: Project) -> None:
    """With itself among the two the median were 215 us, and 230 within 10% of it."""
    project.gate(EIGHT.replace("5%", "10%"))
    for number, exposed_us in enumerate((200, 230)):
        project.trace(f"{number}.sqlite", exposed_us)
        project.refresh(f"--nsys-trace={number}.sqlite", mode=RefreshMode.ACCEPT_RUN)
    said = project.pytest("-v", "--nsys-trace=1.sqlite", code=1)
    assert "230 us > 220 us" in said
    assert OWN in said


def test_fewer_times_say_nothing(project: Project) -> None:
    project.accepted(EIGHT.replace("- idle_ns <= baseline + 5%\n", ""))
    assert OWN not in project.pytest("--nsys-trace=run.sqlite", code=0)


# One that lies far from the others


def captures(project: Project, *exposed_us: int) -> list[str]:
    """Captures by what they expose."""
    for n, length in enumerate(exposed_us):
        project.trace(f"run{n}.sqlite", length)
    return [f"run{n}.sqlite" for n in range(len(exposed_us))]


@pytest.mark.parametrize("exposed_us", [(200, 900, 202), (200, 198, 201, 900)])
def test_a_capture_far_from_the_others_is_named(project: Project, exposed_us: tuple[int, ...]) -> None:
    """The median hides it: 900 us passes as 202."""
    project.gate("- exposed_ns <= 300us")
    traces = captures(project, *exposed_us)
    place = exposed_us.index(900)
    said = project.pytest("-v", *(f"--nsys-trace={trace}" for trace in traces), code=0)
    line = f"capture {place + 1} of {len(traces)} (run{place}.sqlite): rank 0 stage2_f exposed_ns is 900 us"
    assert f"warning: {line}, the median of the others 20" in said
    assert f"NsysWarning: exposed_ns <= 300us: {line}" in " ".join(said.split())
    for side in ("base", "head"):
        other = "head" if side == "base" else "base"
        project.trace("other.sqlite", 205)
        arguments = [*(f"--{side}={trace}" for trace in traces), f"--{other}=other.sqlite"]
        assert f"{side}  warning: {line}" in project.command("compare", *arguments, "--verbose")
    against = [f"--nsys-against={trace}" for trace in traces]
    project.gate("- exposed_ns <= baseline + 50%")
    assert line in project.pytest("-v", "--nsys-trace=other.sqlite", *against, code=0)


def test_of_five_captures_one_that_is_a_hiccup_is_left_out_and_named(project: Project) -> None:
    """On either side, and whatever the assertion is on: the text is one in the terminal and in the reports."""
    project.gate("- exposed_ns <= baseline + 10%\n- window_ns <= baseline + 10%\n- exposed_ns <= 201us")
    traces = captures(project, 200, 198, 201, 203, 900)
    line = (
        "capture 5 of 5 (run4.sqlite) is a hiccup, and left out of every row: "
        "rank 0 stage2_f exposed_ns is 900 us, the median of the others 200 us, and 3 more rows far off"
    )
    project.trace("other.sqlite", 203)
    judged = [f"--nsys-trace={trace}" for trace in traces]
    reports = ("--nsys-summary=report.md", "--nsys-json=report.json", "--nsys-html=page.html")
    said = project.pytest("-v", "-W", "error", *judged, "--nsys-against=other.sqlite", *reports, code=0)
    assert f"note: {line}" in said  # the median of all five were 201, of four 200.5
    for name in ("report.md", "report.json", "page.html"):
        assert line in (project.root / name).read_text(encoding="utf-8").replace("\\_", "_").replace("\xa0", " ")
    project.gate("- exposed_ns <= baseline + 10%")
    against = [f"--nsys-against={trace}" for trace in traces]
    assert line in project.pytest("-v", "--nsys-trace=other.sqlite", *against, code=0)
    named = [*(f"--base={trace}" for trace in traces), "--head=other.sqlite", "--gate=gate.nsys.yaml", "-v"]
    assert line in project.command("compare", *named, code=0)


def test_two_captures_far_off_are_noise(project: Project) -> None:
    project.gate("- exposed_ns <= 300us")
    traces = captures(project, 200, 198, 901, 203, 900)
    assert "hiccup" not in project.pytest("-v", *(f"--nsys-trace={trace}" for trace in traces), code=0)


def test_two_captures_do_not_say_which_is_the_other(project: Project) -> None:
    project.gate("- exposed_ns <= 900us")
    traces = captures(project, 200, 900)
    assert "the median of the others" not in project.pytest(*(f"--nsys-trace={t}" for t in traces), code=0)


def rows(values: list[float], more: float = 1) -> dict[tuple[int | str, ...], int | Fraction]:
    return {(n,): int(value * more) for n, value in enumerate(values)}


def test_what_is_far() -> None:
    usual = [1_000_000.0, 500_000, 2_000]
    assert find_outliers([rows(usual), rows(usual, 1.01), rows(usual, 1.02)]) == []
    (found,) = find_outliers([rows(usual), rows(usual, 1.01), rows(usual, 1.2)])
    assert (found.capture_index, found.row_count, found.key) == (2, 2, (0,))
    (found,) = find_outliers([rows(usual), rows(usual, 0.5), rows(usual, 1.01)])
    assert (found.capture_index, found.row_count, found.value, found.others_median) == (1, 2, 500_000, 1_005_000)
    small = [rows(usual), rows(usual), {**rows(usual), (2,): 20_000}]
    assert find_outliers(small) == []  # ten times as much, and nothing beside the others
    assert find_outliers([rows([0.0, 0]), rows([0.0, 0]), rows([0.0, 7])]) == []
    assert find_outliers([{}, {}, {}]) == []


@pytest.mark.parametrize("number", [3, 5, 8])
@pytest.mark.parametrize("kind", ["normal", "lognormal"])
@pytest.mark.sampled(3)
def test_ordinary_noise_is_no_capture_far_off(number: int, kind: str) -> None:
    """Under a CV of 2 % hardly ever; one that is 20 % off is then found nearly always."""
    chance = random.Random(number)
    cried = found = 0
    for _ in range(120):
        usual = [chance.uniform(200_000, 3_000_000) for _ in range(12)]
        noisy = [
            [v * (chance.gauss(1, 0.02) if kind == "normal" else chance.lognormvariate(0, 0.02)) for v in usual]
            for _ in range(number)
        ]
        cried += bool(find_outliers([rows(values) for values in noisy]))
        far = find_outliers([rows(values, 1.2 if not n else 1) for n, values in enumerate(noisy)])
        found += [each.capture_index for each in far] == [0]
    assert cried <= 2
    assert found >= 108
