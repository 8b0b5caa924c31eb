"""Does every verdict reach pytest as what it is: outcome, message, JUnit, exit code?"""

import contextlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys import Outcome, Verdict, judge, open_run
from tests.support.gates import MS, Case, Project, write_trace
from tests.support.samples.builder import Process, TraceBuilder

BASELINE = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed_ns below baseline plus tolerance
"""
SENTENCE = "exposed_ns below baseline plus tolerance"


def one(cases: Mapping[str, Case]) -> Case:
    (case,) = cases.values()
    return case


def accepted(project: Project, gate: str = BASELINE, **trace: Any) -> None:
    """A gate file whose baseline is that of ``base.sqlite``."""
    project.accepted(gate, name="base.sqlite", **trace)


def judged(folder: Path, gate: str, *traces: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> Verdict:
    """The verdict of a gate file's one assertion on captures, against another where one is given."""
    path = folder / "one.nsys.yaml"
    path.write_text(f"version: 1\n{gate.strip()}\n")
    sides = [[write_trace(folder / f"{n}.sqlite", **trace) for n, trace in enumerate(traces)]]
    sides += [[write_trace(folder / "base.sqlite", **base)]] if base is not None else []
    with contextlib.ExitStack() as opened:
        (verdict,) = judge(path, *(opened.enter_context(open_run(side)) for side in sides))
    return verdict


def test_passed(project: Project) -> None:
    project.gated("- overlap >= 60%", {(1, "stage4_f"): 390})
    case = one(project.cases("--nsys-trace=run.sqlite", code=0))
    assert case.properties == {
        "nsys_outcome": "passed",
        "nsys_message": "all 4 rows hold",
        "nsys_value": "61%",
        "nsys_limit": ">= 60%",
        "nsys_margin": "1 pp",
        "nsys_row": "rank 1 stage4_f",
        "nsys_rows": "4",
        "nsys_run": "run.sqlite (2 ranks, pp=2 dp=1 cp=1 ep=1, NVIDIA H100 80GB HBM3, pithtrain (found in the trace))",
        "nsys_window": "rank 0–1: forward chunk 2 (phase1) backward chunk 2 (phase0), 3rd of 5, 15 ms",
        "nsys_measured_as": "window median, kernels contained",
        "nsys_line": "3",
    }


def ends(project: Project, outcome: str, *printed: str, code: int, **said: str) -> Case:
    """The one assertion of ``run.sqlite``, and that the terminal and JUnit have these lines and properties."""
    case = one(project.cases("--nsys-trace=run.sqlite", code=code))
    assert (case.state, case.properties["nsys_outcome"]) == ("failure" if code else "passed", outcome)
    assert {name: case.properties[f"nsys_{name}"] for name in said} == said
    project.result.stdout.fnmatch_lines(printed)
    return case


def test_failed_on_a_constant(project: Project) -> None:
    project.gated("- overlap >= 60%", {(1, "stage4_f"): 410})
    ends(
        project,
        "failed",
        "gate.nsys.yaml:3: overlap >= 60%",
        "  failed: 1 of 4 rows below their limit",
        "  rank  stage     now  limit",
        "  1     stage4_f  59%  >= 60%",
        "  window: rank 1, forward chunk 2 (phase1) backward chunk 2 (phase0), 3rd of 5, 15 ms",
        "  next:   pytest-nsys run.sqlite --view overlap --rank 1",
        code=1,
        message="1 of 4 rows below their limit",
        margin="−1 pp",
    )


def test_failed_on_a_baseline(project: Project) -> None:
    accepted(project)
    project.trace(exposed_us={(0, "stage2_f"): 251, (1, "stage4_f"): 300})
    case = ends(
        project,
        "failed",
        f"gate.nsys.yaml:4: {SENTENCE}",
        "  failed: 2 of 4 rows above their limit",
        "  rank  stage     now     baseline  change  limit",
        "  1     stage4_f  300 us  200 us    +50%    <= 250 us (baseline + max(5%, 50us))",
        "  0     stage2_f  251 us  200 us    +25.5%  <= 250 us (baseline + max(5%, 50us))",
        "  window: rank 1, *",
        "  next:   pytest-nsys run.sqlite --view overlap --rank 1",
        '          pytest-nsys baseline refresh gate.nsys.yaml --trace=run.sqlite --reason "…"',
        "          # accept this run",
        code=1,
        limit="<= 250 us (baseline + max(5%, 50us))",
    )
    assert case.properties["nsys_baseline"].startswith("baselines/gate/")


def test_improved_passes_with_a_warning_at_the_line(project: Project) -> None:
    accepted(project)
    project.trace(exposed_us={(0, "stage2_f"): 149}, chunks_ms=(14,) * 5)
    ends(project, "improved", f"  warning: {SENTENCE}: the baseline is stale: *", code=0)
    project.result.assert_outcomes(passed=1, warnings=1)
    stale = "the baseline is stale: 1 of 4 rows are better than the baseline by more than the tolerance; refresh it"
    assert "NsysWarning" not in project.pytest("--nsys-trace=run.sqlite", code=0)
    assert f"  gate.nsys.yaml:4: NsysWarning: {SENTENCE}: {stale}" in project.pytest("--nsys-trace=run.sqlite", "-v")


def test_better_than_another_trace_asks_for_nothing(project: Project) -> None:
    """A refresh changes neither another trace nor the history."""
    accepted(project)
    project.trace("before.sqlite")
    project.trace(exposed_us={(0, "stage2_f"): 149}, chunks_ms=(14,) * 5)
    said = project.pytest("--nsys-trace=run.sqlite", "--nsys-against=before.sqlite", code=0)
    assert f"warning: {SENTENCE}: 1 of 4 rows are better than the baseline by more" in " ".join(said.split())
    assert ("stale" in said, "refresh" in said) == (False, False)


def test_improved_is_red_where_warnings_are_errors(project: Project) -> None:
    accepted(project)
    project.trace(exposed_us={(0, "stage2_f"): 149}, chunks_ms=(14,) * 5)
    said = project.pytest("--nsys-trace=run.sqlite", "-W", "error", code=1)
    project.result.assert_outcomes(failed=1)
    assert f"improved  {SENTENCE}: 200 → 149 us, rank 0 stage2_f" in said
    assert "\nImproved and red: " in said


def test_improved_in_a_step_that_is_not_faster_is_no_reason_to_accept_the_run(project: Project) -> None:
    accepted(project)
    project.trace(exposed_us={(0, "stage2_f"): 149})
    said = " ".join(project.pytest("--nsys-trace=run.sqlite", "--nsys-summary=summary.md", code=0).split())
    assert "while the window is not shorter: look at what it cost before you accept this run" in said
    assert "baseline refresh" not in said
    head = (project.root / "summary.md").read_text(encoding="utf-8").splitlines()[0].replace("\\_", "_")
    assert head.startswith("## ✅ Improved: exposed_ns −26% (200 → 149 us), rank 0 stage2_f; window unchanged (15 ms)")


def test_improved_beside_something_worse_is_no_stale_baseline(project: Project) -> None:
    """Compute that takes longer hides more: nobody is told to accept the one without the other, selected or not."""
    gate = """
    assertions:
      - {id: exposed, assert: exposed_ns below baseline plus 50us}
      - {id: compute, assert: compute_ns below baseline plus 5%}
    """
    accepted(project, gate)
    project.trace(exposed_us=100)
    for selected in ((), ("-k", "exposed")):
        said = project.pytest("--nsys-trace=run.sqlite", *selected, code=0 if selected else 1)
        assert "is stale" not in said
        expected = (
            "exposed: 4 of 4 rows are better than the baseline by more than the tolerance, while another assertion"
        )
        assert f"{expected} does not hold: look at what it cost before you accept this run" in " ".join(said.split())
    assert "baseline refresh" not in said
    project.trace("good.sqlite", {(1, "stage2_f"): 145}, chunks_ms=(14,) * 5)
    assert "exposed: the baseline is stale: 1 of 4 rows" in project.pytest("--nsys-trace=good.sqlite", code=0)


def test_a_ratchet_beside_something_worse_offers_no_refresh(project: Project) -> None:
    gate = """
    assertions:
      - {id: exposed, assert: exposed_ns below baseline plus 50us, severity: {improved: fail}}
      - {id: steps, assert: anchors == 5}
    """
    accepted(project, gate)
    project.gated(gate.replace("== 5", "== 4"), 100)
    said = project.pytest("-v", "--nsys-trace=run.sqlite", "-k", "exposed", code=1)
    assert "improved: 4 of 4 rows" in said
    assert "baseline refresh" not in said
    project.gated(gate, 100, chunks_ms=(14,) * 5)
    assert "baseline refresh" in project.pytest("-v", "--nsys-trace=run.sqlite", "-k", "exposed", code=1)


def test_improved_fails_a_ratchet(project: Project) -> None:
    gate = """
    assertions:
      - {assert: exposed_ns <= baseline + 50us, severity: {improved: fail}}
    """
    accepted(project, gate)
    project.trace(exposed_us={(0, "stage2_f"): 100}, chunks_ms=(14,) * 5)
    ends(
        project,
        "improved",
        "  improved: 1 of 4 rows are better than the baseline by more than the tolerance",
        "  rank  stage     now     baseline  change  limit",
        "  0     stage2_f  100 us  200 us    −50%    <= 250 us (baseline + 50us)",
        "*pytest-nsys baseline refresh *",
        code=1,
    )


def test_a_warning_severity_passes_and_says_all(project: Project) -> None:
    project.gated("- {assert: overlap >= 60%, severity: warn}", 500)
    ends(
        project,
        "failed",
        "gate.nsys.yaml: *warning: *; 1 assertion warned; pithtrain (found)",
        "warned  overlap >= 60%: 50% < 60%, rank 0 stage2_f*",
        "  rank  stage     now  limit",
        code=0,
    )
    project.result.assert_outcomes(passed=1, warnings=1)


@pytest.mark.parametrize(
    ("assertion", "state", "outcome"),
    [
        ("- {assert: stage3 overlap >= 60%, severity: warn}", "failure", "no data"),
        ("- {assert: overlap >= 60%, window: '99', severity: warn}", "error", "error"),
    ],
)
def test_a_warning_severity_covers_failed_alone(project: Project, assertion: str, state: str, outcome: str) -> None:
    project.gated(assertion)
    case = one(project.cases("--nsys-trace=run.sqlite", code=1))
    assert (case.state, case.properties["nsys_outcome"]) == (state, outcome)


def test_an_early_warning(project: Project) -> None:
    project.gated("- {assert: overlap >= 60%, warn: '>= 70%'}", {(1, "stage2_f"): 350})
    ends(project, "passed", "  warning: *: 1 of 4 rows do not reach the early warning >= 70%", code=0)
    project.trace(exposed_us=300)
    project.pytest("--nsys-trace=run.sqlite", "-W", "error", code=0)


def test_another_convention_is_incomparable(project: Project) -> None:
    accepted(project)
    project.gate("convention: {extends: pithtrain, communication: ['deep_ep*']}" + BASELINE)
    case = one(project.cases("--nsys-trace=base.sqlite", code=1))
    assert case.properties["nsys_outcome"] == "incomparable"
    assert "is from a different setup (convention: now " in case.text


@pytest.mark.parametrize(
    ("written", "differs"),
    [
        (('"definition": 1', '"definition": 2'), "was measured with definition 2, now 1"),
        (('"unit": "ns"', '"unit": "%"'), "holds exposed_ns with unit %, now ns"),
    ],
)
def test_rows_of_another_definition_are_incomparable(project: Project, written: tuple[str, str], differs: str) -> None:
    accepted(project)
    (path,) = (project.root / "baselines").rglob("*.json")
    path.write_text(path.read_text().replace(*written))
    case = one(project.cases("--nsys-trace=base.sqlite", code=1))
    assert (case.state, case.properties["nsys_outcome"]) == ("failure", "incomparable")
    assert differs in case.text


def test_no_data_without_a_baseline_gives_the_command(project: Project) -> None:
    project.gated(BASELINE)
    case = one(project.cases("--nsys-trace=run.sqlite", code=1))
    assert (case.state, case.properties["nsys_outcome"]) == ("failure", "no data")
    assert "no data: no baseline is stored in baselines/gate" in case.text
    refresh = 'pytest-nsys baseline refresh gate.nsys.yaml --trace=run.sqlite --reason "…"'
    assert f"  next:   {refresh}" in case.text  # it comes first


def compute_only(_: TraceBuilder, processes: list[Process]) -> None:
    processes[0].kernel("gemm", 42 * MS, 43 * MS)


def instant(_: TraceBuilder, processes: list[Process]) -> None:
    """Communication that lasts no time."""
    processes[0].range("layer00.stage2_f", 41 * MS, 42 * MS)
    processes[0].kernel("ncclDevKernel_SendRecv", 41 * MS, 41 * MS, stream=28, launch_ns=41 * MS)


def once(_: TraceBuilder, processes: list[Process]) -> None:
    processes[0].range("layer00.stage3_f", 51 * MS, 52 * MS)
    processes[0].kernel("ncclDevKernel_SendRecv", 51 * MS, 52 * MS, stream=28, launch_ns=51 * MS)


def one_ns_more(_: TraceBuilder, processes: list[Process]) -> None:
    processes[0].kernel("ncclDevKernel_SendRecv", 43 * MS, 43 * MS + 1, stream=28, launch_ns=42 * MS)


NO_ROW = "it has no row in the window"
LACKS = "stage4_f: only 1 of 2 captures have this row"
LISTED = "- {assert: overlap >= 60%%, where: {stage: [stage2_f, stage%s_f]}}"
NEVER = "overlap >= 60%, allow_no_data: true}"


@pytest.mark.parametrize(
    ("assertion", "traces", "said"),
    [
        ("- stage3 overlap >= 60%", [{}], "no row has stage stage3; stages with a row: stage2_f, stage4_f"),
        (LISTED % 5, [{}], "no row has stage stage5_f"),
        ("- overlap > 0%", [{"stages": (), "ranks": 1, "edit": compute_only}], NO_ROW),
        ("- no exposed_ns", [{"stages": (), "ranks": 1, "edit": compute_only}], NO_ROW),
        ("- wall_exposed_ns < 1s", [{"stages": (), "ranks": 1, "edit": compute_only}], NO_ROW),
        ("- overlap > 0%", [{"stages": (), "ranks": 1, "edit": instant}], ""),
        ("- overlap >= 60%", [{}, {"stages": ("stage2_f",)}], f"rank 0 {LACKS}"),
        (LISTED % 4, [{}, {"exposed_us": {(1, "stage4_f"): None}}], f"rank 1 {LACKS}"),  # others are no excuse
        ("- {assert: stage3 overlap > 0%, window: steady}", [{"edit": once}], "only 1 of 3 windows have this row"),
        # What cannot be formed is never allowed.
        (f"- {{assert: max over pp of {NEVER}", [{"label": None}], ""),
        (f"- {{assert: max over pp of max over rank of {NEVER}", [{"label": None}], ""),
        ("- {assert: balance of compute_ns across pp <= 1.2, allow_no_data: true}", [{"label": None}], ""),
        ("- {assert: balance of barrier_ns across pp <= 1.2, allow_no_data: true}", [{}], ""),
        ("- {assert: overlap >= baseline - 1pp, allow_no_data: true}", [{}], "no baseline is at hand here"),
    ],
)
def test_no_data(tmp_path: Path, assertion: str, traces: Sequence[Mapping[str, Any]], said: str) -> None:
    verdict = judged(tmp_path, f"quality: {{empty_anchors: off}}\nassertions:\n{assertion}\n", *traces)
    assert verdict.outcome is Outcome.NO_DATA
    assert said in verdict.message


def test_rows_that_all_captures_or_windows_have_are_judged_without_the_others(tmp_path: Path) -> None:
    gate = "assertions:\n- stage2_f overlap >= 60%\n"
    assert judged(tmp_path, gate, {}, {"stages": ("stage2_f",)}).outcome is Outcome.PASSED
    assert judged(tmp_path, "window: steady\n" + gate, {"edit": once}).outcome is Outcome.PASSED


def test_no_data_for_a_row_that_is_new_or_gone(tmp_path: Path) -> None:
    found = judged(tmp_path, BASELINE, {"stages": ("stage2_f", "stage3_f")}, base={})
    assert (found.outcome, found.message) == (
        Outcome.NO_DATA,
        "2 rows of the baseline gone, the first rank 0 stage4_f; 2 rows not in the baseline, the first rank 0 stage3_f",
    )


def test_no_data_outweighs_failed(tmp_path: Path) -> None:
    """Else ``severity: warn`` or an expected failure would cover a row that is lost."""
    lost = {"exposed_us": {(0, "stage2_f"): 900}, "stages": ("stage2_f",)}
    found = judged(tmp_path, BASELINE, lost, base={})
    assert found.outcome is Outcome.NO_DATA
    assert "1 row outside the limit" in found.message
    assert [(row.labels["stage"], row.value) for row in found.rows[:2]] == [("stage2_f", 900_000), ("stage4_f", None)]


def test_a_constant_is_not_rounded(tmp_path: Path) -> None:
    gate = "assertions:\n- overlap >= 60%\n"
    assert judged(tmp_path, gate, {"exposed_us": 400}).margin == 0
    found = judged(tmp_path, gate, {"exposed_us": 400, "edit": one_ns_more})
    assert (found.outcome, found.margin) == (Outcome.FAILED, Fraction(-3, 5_000_005))


def test_no_data_can_be_allowed_where_no_row_is_meant(project: Project) -> None:
    project.gated("- {assert: stage3 overlap >= 60%, allow_no_data: true}")
    why = "nothing was judged: no row has stage stage3"
    case = ends(project, "passed", f"  warning: *: {why}*", code=0)
    assert case.properties["nsys_message"].startswith(why)


def test_error_is_an_error_of_the_setup(project: Project) -> None:
    project.gate("- overlap >= 60%\n- no mixed comm streams")
    project.file("run.sqlite", "not a database")
    cases = project.cases("--nsys-trace=run.sqlite", code=1)
    assert {case.state for case in cases.values()} == {"error"}
    assert {case.properties["nsys_outcome"] for case in cases.values()} == {"error"}
    assert "error: " in cases["overlap >= 60%"].text
    assert "is not a SQLite file" in cases["overlap >= 60%"].text
    project.result.assert_outcomes(errors=2)


def test_every_verdict_stands_in_the_summary(project: Project) -> None:
    accepted(project, "assertions:\n  - overlap >= baseline - 1pp")
    project.gate(
        """
        assertions:
          - overlap >= baseline - 1pp
          - {id: warned, assert: overlap >= 99%, severity: warn}
          - {id: red, assert: overlap >= 99%}
          - {id: absent, assert: stage5 overlap >= 60%}
          - {id: broken, assert: overlap >= 60%, window: last, span: period}
        """
    )
    project.trace(exposed_us=100)
    project.pytest("-v", "--nsys-trace=run.sqlite", code=1)
    project.result.stdout.fnmatch_lines(
        [
            "  improved  overlap >= baseline - 1pp  90% *",
            "  warned    warned *",
            "  failed    red *",
            "  no data   absent*no row has stage stage5*",
            "  error     broken*",
            "*1 more assertion not judged*",
        ]
    )
    project.result.assert_outcomes(passed=2, failed=2, errors=1, warnings=2)
