"""Is every assertion with a baseline held against the other trace, and only that, under ``--nsys-against``?"""

import filecmp
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_nsys import Verdict, judge, open_run
from tests.support.gates import Case, Exposed, Project, watch_openings, write_trace
from tests.support.samples.builder import Process, TraceBuilder

EXPOSED = "- exposed_ns below baseline plus 5%\n"
BOTH = "--nsys-trace=head.sqlite", "--nsys-against=base.sqlite"


def captures(project: Project, side: str, exposed_us: Sequence[int], option: str) -> list[str]:
    """One trace of one rank and one stage for each value, and the options that name them."""
    for k, exposed in enumerate(exposed_us):
        project.trace(f"{side}{k}.sqlite", exposed, ranks=1, stages=("stage2_f",))
    return [f"{option}={side}{k}.sqlite" for k in range(len(exposed_us))]


def both_sides(project: Project, base: Sequence[int], head: Sequence[int]) -> list[str]:
    return [*captures(project, "head", head, "--nsys-trace"), *captures(project, "base", base, "--nsys-against")]


def held(folder: Path, base: Sequence[int], head: Sequence[int], sentence: str) -> Verdict:
    """A sentence on captures of one rank and one stage, held against others of it."""

    def written(side: str, exposed_us: Sequence[int]) -> list[Path]:
        paths = ((folder / f"{side}{n}.sqlite", us) for n, us in enumerate(exposed_us))
        return [write_trace(path, us, ranks=1, stages=("stage2_f",)) for path, us in paths]

    with open_run(written("base", base)) as before, open_run(written("head", head)) as now:
        return judge(sentence, now, before)


def two(project: Project, base: Exposed = 200, head: Exposed = 200, gate: str = EXPOSED) -> None:
    """A gate file, and a trace of each side."""
    project.gated(gate, base, name="base.sqlite")
    project.trace("head.sqlite", head)


def printed(project: Project) -> str:
    """What the last run printed, on one line each."""
    return project.result.stdout.str()


def case(project: Project, *arguments: str, code: int) -> Case:
    (found,) = project.cases(*arguments, code=code).values()
    return found


# Which limits come from the other trace


def test_a_row_that_is_worse_than_in_the_other_trace_is_red(project: Project) -> None:
    two(project, base=200, head={(1, "stage4_f"): 260})
    found = case(project, *BOTH, code=1)
    assert found.properties["nsys_outcome"] == "failed"
    assert found.properties["nsys_row"] == "rank 1 stage4_f"
    assert "1     stage4_f  260 us  200 us    +30%    <= 210 us (baseline + 5%)" in found.text


def test_the_stored_baseline_is_not_looked_at(project: Project) -> None:
    project.accepted(EXPOSED, 500, name="stored.sqlite")
    project.pair(200, 260)
    project.pytest("-v", "--nsys-trace=head.sqlite", code=0)
    assert "baseline base.sqlite" in project.pytest("-v", *BOTH, code=1)


def test_nothing_is_stored_and_nothing_is_written(project: Project) -> None:
    two(project, base=200, head=205)
    before = project.files()
    project.pytest(*BOTH, code=0)
    assert project.files() == before


def test_constants_are_judged_as_ever(project: Project) -> None:
    two(project, gate="- exposed_ns < 250us\n- overlap >= baseline - 3pp\n", base=300, head=260)
    cases = project.cases(*BOTH, code=1)
    assert {name: found.state for name, found in cases.items()} == {"exposed_ns <": "failure", "overlap >=": "passed"}


def test_each_trace_is_opened_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.gate(EXPOSED + "- launches == baseline\n")
    project.gate("- overlap >= baseline - 3pp\n", "other.nsys.yaml")
    project.pair()
    opened = watch_openings(monkeypatch)
    project.pytest(*BOTH, code=0)
    assert Counter(path.name for path in opened) == {"base.sqlite": 1, "head.sqlite": 1}


def test_the_same_trace_on_both_sides_is_a_usage_error(project: Project) -> None:
    project.gate(EXPOSED)
    path = project.trace("run.sqlite")
    said = project.pytest("--nsys-trace=run.sqlite", "--nsys-against=./run.sqlite", code=4)
    assert f"both sides are the same trace: {path}; there is nothing to compare" in said


def test_a_copy_on_the_other_side_is_a_usage_error(project: Project) -> None:
    project.gated(EXPOSED, name="head.sqlite")
    shutil.copy(project.trace("base1.sqlite"), project.root / "head1.sqlite")
    project.trace("base.sqlite")
    said = project.pytest(*BOTH, "--nsys-trace=head1.sqlite", "--nsys-against=base1.sqlite", code=4)
    assert re.search(
        r"1 of 2 traces are on both sides, the first \S+head1\.sqlite \(of which \S+base1\.sqlite is a copy\)", said
    )


def test_a_gate_file_with_a_trace_of_its_own_is_not_held_against_it(project: Project) -> None:
    project.gated("trace: run.sqlite\nassertions:\n  - exposed_ns below baseline plus 5%\n")
    found = case(project, "--nsys-against=run.sqlite", code=1)
    assert found.state == "error"
    assert "both sides are the same trace" in found.text


def test_the_header_names_both(project: Project) -> None:
    two(project)
    assert "nsys: trace head.sqlite; against base.sqlite" in project.pytest(*BOTH, code=0)


# What cannot be compared


def test_another_gpu_is_incomparable_and_named(project: Project) -> None:
    two(project)
    project.trace("base.sqlite", gpu="NVIDIA A100")
    found = case(project, *BOTH, code=1)
    assert found.properties["nsys_outcome"] == "incomparable"
    assert "gpu      NVIDIA H100 80GB HBM3  NVIDIA A100" in found.text


def test_a_row_that_one_capture_of_the_other_side_lacks_is_no_data(project: Project) -> None:
    project.gated(EXPOSED, name="base.sqlite")
    project.trace("base1.sqlite", {(1, "stage4_f"): None})
    project.trace("head.sqlite")
    found = case(project, *BOTH, "--nsys-against=base1.sqlite", code=1)
    assert found.properties["nsys_outcome"] == "no data"
    assert "only 1 of 2 captures have this row" in found.text


def test_a_broken_base_is_an_error_that_names_it(project: Project) -> None:
    project.gated(EXPOSED + "- exposed_ns < 1s\n", name="head.sqlite")
    (project.root / "base.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    for found in project.cases(*BOTH, code=1).values():
        assert found.state == "error"
        assert "base.sqlite" in found.properties["nsys_message"]


def test_baselines_are_not_updated_from_a_comparison(project: Project) -> None:
    two(project)
    said = project.pytest(*BOTH, "--nsys-update-baselines", "--nsys-reason=x", code=4)
    assert "--nsys-against replaces the stored baselines: nothing to update" in said
    assert project.baselines() == {}


# Several captures


@pytest.mark.parametrize("count", [1, 2])
def test_with_one_or_two_captures_the_tolerance_decides_and_no_test_is_claimed(project: Project, count: int) -> None:
    project.gate(EXPOSED)
    arguments = both_sides(project, [200, 300][:count], [260, 360][:count])
    assert case(project, *arguments, "-v", code=1).properties["nsys_outcome"] == "failed"
    assert "(no test possible)" in printed(project)
    assert f"note: no test possible with {count} + {count} captures" in printed(project)


@pytest.mark.parametrize(
    ("base", "head", "outcome"),
    [
        ([200, 202, 204], [260, 262, 264], "failed"),
        ([200, 202, 264], [205, 215, 230], "inconclusive"),
        ([200, 202, 264], [258, 262, 266], "failed"),  # more than twice the tolerance
        ([200, 202, 204], [205, 206, 207], "passed"),
        ([260, 262, 264], [200, 202, 204], "improved"),
    ],
)
def test_three_captures_a_side_must_be_separated_and_beyond_the_tolerance(
    tmp_path: Path, base: list[int], head: list[int], outcome: str
) -> None:
    found = held(tmp_path, base, head, "exposed_ns below baseline plus 5%")
    assert found.outcome == outcome
    assert found.rows[0].test == ("separated" if max(base) < min(head) else "overlap")
    assert found.notes[0].text == "complete separation of 3 + 3 captures"


def holm(project: Project, assertions: int) -> list[str]:
    """Outcomes of assertions that all judge one row at p = 7/252, tested together."""
    thresholds = [f"- {{id: t{n}, assert: exposed_ns below baseline plus {25 + n}us}}\n" for n in range(assertions)]
    project.gate("".join(thresholds))
    arguments = both_sides(project, [200, 201, 220, 240, 261], [258, 259, 260, 262, 263])
    return [found.properties["nsys_outcome"] for found in project.cases(*arguments, "-v").values()]


def test_two_assertions_on_one_row_are_asked_their_own_questions(project: Project) -> None:
    project.gate("- gemm kernel_share below baseline plus 1%\n- gemm kernel_share above baseline minus 1%\n")
    found = project.cases(*both_sides(project, [200, 202, 204], [260, 262, 264]), code=1)
    assert [each.properties["nsys_outcome"] for each in found.values()] == ["improved", "failed"]


def test_a_hiccup_before_hides_no_regression_of_half(project: Project) -> None:
    """All five captures after are 50% worse. One of five before is a hiccup: its range, and the test, excused them."""
    project.gate("- exposed_ns below baseline plus 5%\n- window_ns below baseline plus 5%\n")
    base, head = [200, 201, 202, 203, 204], [300, 301, 302, 303, 304]
    for hiccup in (int(1.7 * 204), 40):
        cases = project.cases(*both_sides(project, [*base[:4], hiccup], head), "-v", code=1)
        assert cases["exposed_ns below"].properties["nsys_outcome"] == "failed"
        assert "exact rank-sum test of 4 + 5 captures (1 left out)" in printed(project)
        assert "base4.sqlite) is a hiccup, and left out of every row" in printed(project)


@pytest.mark.parametrize("head", [[199, 221, 241, 259, 282], [401, 421, 441, 461, 481]])
def test_captures_that_scatter_by_twice_the_tolerance_are_told_in_green_too(tmp_path: Path, head: list[int]) -> None:
    found = held(tmp_path, [200, 220, 240, 260, 280], head, "exposed_ns below baseline plus 5%")
    assert found.outcome == ("passed" if head[0] < 300 else "failed")
    (doubt,) = (warning for warning in found.warnings if "told from chance" in warning)
    assert doubt.startswith("the noise is more than twice the tolerance in 1 of 1 row: 5")
    assert doubt.endswith("can be told from chance: take more captures, or widen the tolerance")


def test_captures_that_scatter_by_less_have_no_doubt(tmp_path: Path) -> None:
    sides = [200, 203, 206, 209, 212], [201, 204, 207, 208, 211]
    assert held(tmp_path, *sides, "exposed_ns below baseline plus 5%").warnings == ()


def test_a_hiccup_after_makes_no_unchanged_run_red(project: Project) -> None:
    project.gate("- exposed_ns below baseline plus 5%\n")
    cases = project.cases(*both_sides(project, [200, 201, 202, 203, 204], [199, 200, 201, 202, 900]), "-v", code=0)
    assert [found.properties["nsys_outcome"] for found in cases.values()] == ["passed"]


def test_one_row_alone_is_significant_where_many_tested_together_are_not(project: Project) -> None:
    assert holm(project, 1) == ["failed"]
    assert "(p = 0.028)" in printed(project)
    assert holm(project, 6) == ["inconclusive"] * 6
    said = printed(project)
    assert "(p = 0.17)" in said
    assert said.count("  note: exact rank-sum test of 5 + 5 captures, Holm over 6 rows\n") == 1


def test_what_is_held_exactly_needs_no_test(project: Project) -> None:
    project.gate("- launches == baseline\n")
    base = captures(project, "base", [200] * 3, "--nsys-against")
    head = captures(project, "head", [200] * 3, "--nsys-trace")
    for k in range(3):
        project.trace(f"head{k}.sqlite", ranks=1, stages=("stage2_f",), edit=one_launch_more)
    assert case(project, *head, *base, code=1).properties["nsys_outcome"] == "failed"


def one_launch_more(_: TraceBuilder, processes: list[Process]) -> None:
    for k in range(5):
        at = 20_000_000 * k + 1_001_000
        processes[0].kernel("gemm", at + 1_500_000, at + 1_510_000, launch_ns=at + 6_000)


def test_a_file_of_a_folder_is_not_a_capture_beside_it(project: Project) -> None:
    project.gated(EXPOSED, name="base.sqlite")
    project.trace("runs/head.sqlite")
    project.trace("runs/other.sqlite", label="rank=2; pp=0/1")
    arguments = "--nsys-trace=runs", "--nsys-trace=runs/head.sqlite", "--nsys-against=base.sqlite"
    assert "head.sqlite is given twice: one trace is one sample" in case(project, *arguments, code=1).text


def test_only_traces_of_one_size_are_read_to_be_compared(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    two(project)
    project.trace("head.sqlite", ranks=16)
    assert (project.root / "base.sqlite").stat().st_size != (project.root / "head.sqlite").stat().st_size
    monkeypatch.setattr(filecmp, "cmp", lambda *_, **__: pytest.fail("read"))
    project.pytest(*BOTH, "--nsys-trace=head.sqlite", code=1)


# In several processes


def test_a_gate_of_constants_says_that_nothing_is_compared(project: Project) -> None:
    project.pair(200, 900)
    said = "note: nothing is compared with base.sqlite: no assertion of this gate file has a baseline"
    project.gate("- exposed_ns < 1ms")
    assert said in project.pytest("-v", "--nsys-trace=head.sqlite", "--nsys-against=base.sqlite", code=0)
    project.gate("- exposed_ns < 1ms\n- compute_ns <= baseline + 50%")
    assert "nothing is held" not in project.pytest(
        "-v", "--nsys-trace=head.sqlite", "--nsys-against=base.sqlite", code=0
    )
