"""Does every verdict reach pytest as what it is: outcome, message, JUnit, exit code?"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pytest_nsys.samples.builder import Process, TraceBuilder
from tests.support.gates import MS, Case, Project

BASELINE = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed_ns below baseline plus tolerance
"""
SENTENCE = "exposed_ns below baseline plus tolerance"


def one(cases: Mapping[str, Case]) -> Case:
    (case,) = cases.values()
    return case


def accepted(project: Project, gate: str = BASELINE, **trace: object) -> None:
    """A gate file whose baseline is that of ``base.sqlite``."""
    project.gate(gate)
    project.trace("base.sqlite", **trace)  # type: ignore[arg-type]
    project.refresh("--nsys-trace=base.sqlite")


def test_passed(project: Project) -> None:
    project.gate("- overlap >= 60%")
    project.trace(exposed_us={(1, "stage4_f"): 390})
    case = one(project.cases("--nsys-trace=run.sqlite", code=0))
    assert case.state == "passed"
    assert case.properties == {
        "nsys_outcome": "passed",
        "nsys_message": "all 4 rows hold",
        "nsys_value": "61.0%",
        "nsys_limit": ">= 60.0%",
        "nsys_margin": "1.00 pp",
        "nsys_row": "rank 1 stage stage4_f",
        "nsys_rows": "4",
        "nsys_run": "run.sqlite (2 ranks, pp=2 dp=1 cp=1 ep=1, NVIDIA H100 80GB HBM3, pithtrain)",
        "nsys_window": "rank 0–1: forward chunk 2 (phase1) backward chunk 2 (phase0), 3rd of 5, 15 ms",
        "nsys_measured_as": "window median, kernels contained",
        "nsys_line": "3",
    }


def test_failed_on_a_constant(project: Project) -> None:
    project.gate("- overlap >= 60%")
    project.trace(exposed_us={(1, "stage4_f"): 410})
    case = one(project.cases("--nsys-trace=run.sqlite", code=1))
    assert case.state == "failure"
    assert case.properties["nsys_outcome"] == "failed"
    assert case.properties["nsys_message"] == "1 of 4 rows below their limit"
    assert case.properties["nsys_margin"] == "-1.00 pp"
    project.result.stdout.fnmatch_lines(
        [
            "gate.nsys.yaml:3: overlap >= 60%",
            "  failed: 1 of 4 rows below their limit",
            "  rank  stage     now    limit",
            "  1     stage4_f  59.0%  >= 60.0%",
            "  window: rank 1, forward chunk 2 (phase1) backward chunk 2 (phase0), 3rd of 5, 15 ms (window median, *",
            "  next:   pytest-nsys overlap run.sqlite --rank 1",
        ]
    )


def test_failed_on_a_baseline(project: Project) -> None:
    accepted(project)
    project.trace(exposed_us={(0, "stage2_f"): 251, (1, "stage4_f"): 300})
    case = one(project.cases("--nsys-trace=run.sqlite", code=1))
    assert case.state == "failure"
    assert case.properties["nsys_outcome"] == "failed"
    assert case.properties["nsys_limit"] == "<= 250 us (baseline + max(5%, 50us))"
    assert case.properties["nsys_baseline"].startswith("baselines/gate/")
    project.result.stdout.fnmatch_lines(
        [
            f"gate.nsys.yaml:4: {SENTENCE}",
            "  failed: 2 of 4 rows above their limit",
            "  rank  stage     now     baseline  change  limit",
            "  1     stage4_f  300 us  200 us    +50 %   250 us (baseline + max(5%, 50us))",
            "  0     stage2_f  251 us  200 us    +26 %   250 us (baseline + max(5%, 50us))",
            "  window: rank 1, *",
            "  next:   pytest-nsys overlap run.sqlite --rank 1",
            '          pytest-nsys baseline refresh gate.nsys.yaml --trace=run.sqlite --reason "…"  (accept *',
        ]
    )


def test_a_limit_itself_still_passes(project: Project) -> None:
    accepted(project)
    project.trace(exposed_us=250)
    assert one(project.cases("--nsys-trace=run.sqlite", code=0)).properties["nsys_margin"] == "0 ns"


def test_a_constant_is_not_rounded(project: Project) -> None:
    def one_ns_more(_: TraceBuilder, processes: list[Process]) -> None:
        processes[0].kernel("ncclDevKernel_SendRecv", 43 * MS, 43 * MS + 1, stream=28, launch_ns=42 * MS)

    project.gate("- overlap >= 60%")
    project.trace(exposed_us=400)
    project.pytest("--nsys-trace=run.sqlite", code=0)
    project.trace(exposed_us=400, edit=one_ns_more)
    project.pytest("--nsys-trace=run.sqlite", code=1)
    project.result.stdout.fnmatch_lines(["  0     stage2_f  59.9999%  >= 60.0%"])


def test_improved_passes_with_a_warning_at_the_line(project: Project) -> None:
    accepted(project)
    project.trace(exposed_us={(0, "stage2_f"): 149})
    case = one(project.cases("--nsys-trace=run.sqlite", code=0))
    assert case.state == "passed"
    assert case.properties["nsys_outcome"] == "improved"
    project.result.stdout.fnmatch_lines(
        [
            f"  gate.nsys.yaml:4: NsysWarning: {SENTENCE}: the baseline is stale: 1 of 4 rows are better than the "
            "baseline by more than the tolerance; refresh it",
        ]
    )
    project.result.assert_outcomes(passed=1, warnings=1)


def test_improved_by_no_more_than_the_tolerance_is_silent(project: Project) -> None:
    accepted(project)
    project.trace(exposed_us=150)
    assert one(project.cases("--nsys-trace=run.sqlite", code=0)).properties["nsys_outcome"] == "passed"
    project.result.assert_outcomes(passed=1)


def test_improved_fails_a_ratchet(project: Project) -> None:
    gate = """
    assertions:
      - {metric: exposed_ns, baseline: {abs: 50us}, on_improvement: fail}
    """
    accepted(project, gate)
    project.trace(exposed_us={(0, "stage2_f"): 100})
    case = one(project.cases("--nsys-trace=run.sqlite", code=1))
    assert case.state == "failure"
    assert case.properties["nsys_outcome"] == "improved"
    project.result.stdout.fnmatch_lines(
        [
            "  improved: 1 of 4 rows are better than the baseline by more than the tolerance",
            "  rank  stage     now     baseline  change  limit",
            "  0     stage2_f  100 us  200 us    -50 %   250 us (baseline + 50us)",
            "*pytest-nsys baseline refresh *(accept this run as the new normal)",
        ]
    )


def test_a_warning_severity_passes_and_says_all(project: Project) -> None:
    project.gate("- {metric: overlap, require: '>= 60%', severity: warn}")
    project.trace(exposed_us=500)
    case = one(project.cases("--nsys-trace=run.sqlite", code=0))
    assert case.state == "passed"
    assert case.properties["nsys_outcome"] == "failed"
    project.result.assert_outcomes(passed=1, warnings=1)
    project.result.stdout.fnmatch_lines(
        [
            "*NsysWarning: 4 of 4 rows below their limit (severity: warn)",
            "*rank  stage     now    limit",
            "  warned  overlap >= 60%  50.0%  >= 60.0%  margin -10.00 pp*",
        ]
    )


@pytest.mark.parametrize(
    ("assertion", "state", "outcome"),
    [
        ("- {assert: stage3 overlap >= 60%, severity: warn}", "failure", "no data"),
        ("- {assert: overlap >= 60%, window: '99', severity: warn}", "error", "error"),
    ],
)
def test_a_warning_severity_covers_failed_alone(project: Project, assertion: str, state: str, outcome: str) -> None:
    project.gate(assertion)
    project.trace()
    case = one(project.cases("--nsys-trace=run.sqlite", code=1))
    assert (case.state, case.properties["nsys_outcome"]) == (state, outcome)


def test_an_early_warning(project: Project) -> None:
    project.gate("- {metric: overlap, require: '>= 60%', warn: '>= 70%'}")
    project.trace(exposed_us={(1, "stage2_f"): 350})
    case = one(project.cases("--nsys-trace=run.sqlite", code=0))
    assert case.properties["nsys_outcome"] == "passed"
    project.result.stdout.fnmatch_lines(["*NsysWarning: *: 1 of 4 rows do not reach the early warning >= 70%"])
    project.trace(exposed_us=300)
    project.pytest("--nsys-trace=run.sqlite", "-W", "error", code=0)


LABEL = "rank={{rank}}; pp={pp} dp=0/1 cp=0/1 ep=0/1; mbs={mbs} seq={seq}"


@pytest.mark.parametrize(
    ("now", "differs"),
    [
        (
            {"label": LABEL.format(pp="{rank}/{ranks}", mbs=2, seq=2048)},
            "micro_batch: now 2, baseline 1",
        ),
        (
            {"label": LABEL.format(pp="{rank}/{ranks}", mbs=1, seq=4096)},
            "sequence_length: now 4096, baseline 2048",
        ),
        (
            {"label": LABEL.format(pp="{rank}/4", mbs=1, seq=2048)},
            "mesh: now cp=1 dp=1 ep=1 pp=4, baseline cp=1 dp=1 ep=1 pp=2",
        ),
        ({"gpu": "NVIDIA B200"}, "gpu: now NVIDIA B200, baseline NVIDIA H100 80GB HBM3"),
        ({"gpu": None}, "gpu: now not stated, baseline NVIDIA H100 80GB HBM3"),
        (
            {"label": LABEL.format(pp="{rank}/2", mbs=1, seq=2048), "ranks": 1},
            "world: now 1, baseline 2",
        ),
        (
            {"label": None},
            "mesh: now not stated, baseline cp=1 dp=1 ep=1 pp=2; micro_batch: now not stated, baseline 1; "
            "sequence_length: now not stated, baseline 2048",
        ),
    ],
)
def test_another_run_is_incomparable(project: Project, now: dict[str, object], differs: str) -> None:
    accepted(project, "quality: {missing_ranks: off}" + BASELINE)
    project.trace(**now)  # type: ignore[arg-type]
    case = one(project.cases("--nsys-trace=run.sqlite", code=1))
    assert case.state == "failure"
    assert case.properties["nsys_outcome"] == "incomparable"
    assert f"is of another run ({differs})" in case.text


def test_another_convention_is_incomparable(project: Project) -> None:
    accepted(project)
    project.gate("convention: {extends: pithtrain, communication: ['deep_ep*']}" + BASELINE)
    case = one(project.cases("--nsys-trace=base.sqlite", code=1))
    assert case.properties["nsys_outcome"] == "incomparable"
    assert "is of another run (convention: now " in case.text


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ("window: first", "window median, now first"),
        ("span: period", "span range, now period"),
        ("kernels: launched", "kernels contained, now launched"),
        ("window: '1'\nkernels: clipped", "window median, now 1, kernels contained, now clipped"),
    ],
)
def test_rows_measured_another_way_are_incomparable(project: Project, changed: str, differs: str) -> None:
    accepted(project)
    project.gate(changed + BASELINE)
    case = one(project.cases("--nsys-trace=base.sqlite", code=1))
    assert (case.state, case.properties["nsys_outcome"]) == ("failure", "incomparable")
    assert f"was measured with {differs}" in case.text


@pytest.mark.parametrize(
    ("written", "differs"),
    [
        (('"definition": 1', '"definition": 2'), "was measured with definition 2, now 1"),
        (('"unit": "ns"', '"unit": "%"'), "holds exposed_ns of other dimensions or unit"),
    ],
)
def test_rows_of_another_definition_are_incomparable(project: Project, written: tuple[str, str], differs: str) -> None:
    accepted(project)
    (path,) = (project.root / "baselines").rglob("*.json")
    path.write_text(path.read_text().replace(*written))
    case = one(project.cases("--nsys-trace=base.sqlite", code=1))
    assert (case.state, case.properties["nsys_outcome"]) == ("failure", "incomparable")
    assert differs in case.text


def test_no_data_where_no_row_is_meant(project: Project) -> None:
    project.gate("- stage3 overlap >= 60%")
    project.trace()
    case = one(project.cases("--nsys-trace=run.sqlite", code=1))
    assert (case.state, case.properties["nsys_outcome"]) == ("failure", "no data")
    assert "no data: no row has stage stage3; stages with a row: stage2_f, stage4_f" in case.text


def test_no_data_where_one_of_several_means_no_row(project: Project) -> None:
    project.gate("- {metric: overlap, where: {stage: [stage2_f, stage5_f]}, require: '>= 60%'}")
    project.trace()
    case = one(project.cases("--nsys-trace=run.sqlite", code=1))
    assert case.properties["nsys_outcome"] == "no data"
    assert "no row has stage stage5_f" in case.text


def test_no_data_without_any_communication(project: Project) -> None:
    head = "quality: {empty_anchors: off}\nassertions:\n"
    project.gate(f"{head}- overlap > 0%\n- no exposed_ns\n- wall_exposed_ns < 1s")

    def compute_only(_: TraceBuilder, processes: list[Process]) -> None:
        processes[0].kernel("gemm", 42 * MS, 43 * MS)

    project.trace(stages=(), ranks=1, edit=compute_only)
    cases = project.cases("--nsys-trace=run.sqlite", code=1)
    assert {case.properties["nsys_outcome"] for case in cases.values()} == {"no data"}
    assert all("it has no row in the window" in case.text for case in cases.values())


def test_no_data_for_communication_that_lasts_no_time(project: Project) -> None:
    def instant(_: TraceBuilder, processes: list[Process]) -> None:
        processes[0].range("layer00.stage2_f", 41 * MS, 42 * MS)
        processes[0].kernel("ncclDevKernel_SendRecv", 41 * MS, 41 * MS, stream=28, launch_ns=41 * MS)

    project.gate("quality: {empty_anchors: off}\nassertions:\n- overlap > 0%")
    project.trace(stages=(), ranks=1, edit=instant)
    assert one(project.cases("--nsys-trace=run.sqlite", code=1)).properties["nsys_outcome"] == "no data"


def test_no_data_without_a_baseline_gives_the_command(project: Project) -> None:
    project.gate(BASELINE)
    project.trace()
    case = one(project.cases("--nsys-trace=run.sqlite", code=1))
    assert (case.state, case.properties["nsys_outcome"]) == ("failure", "no data")
    assert "no data: no baseline is stored in baselines/gate" in case.text
    assert 'pytest-nsys baseline refresh gate.nsys.yaml --trace=run.sqlite --reason "…"' in case.text


def test_no_data_where_the_baseline_has_other_metrics_only(project: Project) -> None:
    compute = "\n  - compute_ns <= baseline + 5%"
    accepted(project, f"assertions:{compute}")
    project.gate(BASELINE.rstrip() + compute)
    other, case = sorted(project.cases("--nsys-trace=base.sqlite", code=1).values(), key=lambda case: case.text)
    assert other.state == "passed"
    assert case.properties["nsys_outcome"] == "no data"
    assert "holds no exposed_ns" in case.text


def test_no_data_for_a_row_that_is_new_or_gone(project: Project) -> None:
    accepted(project)
    project.trace(stages=("stage2_f", "stage3_f"))
    case = one(project.cases("--nsys-trace=run.sqlite", code=1))
    assert (case.state, case.properties["nsys_outcome"]) == ("failure", "no data")
    assert (
        "no data: 2 rows of the baseline gone, the first rank 0 stage stage4_f; "
        "2 rows not in the baseline, the first rank 0 stage stage3_f" in case.text
    )


def test_no_data_outweighs_failed(project: Project) -> None:
    """Else ``severity: warn`` or an expected failure would cover a row that is lost."""
    accepted(project)
    project.trace(exposed_us={(0, "stage2_f"): 900}, stages=("stage2_f",))
    case = one(project.cases("--nsys-trace=run.sqlite", code=1))
    assert case.properties["nsys_outcome"] == "no data"
    assert "1 row outside the limit" in case.text
    project.result.stdout.fnmatch_lines(["  0     stage2_f  900 us *", "  0     stage4_f  gone *"])


def test_no_data_where_one_capture_lacks_a_row(project: Project) -> None:
    project.gate("- overlap >= 60%\n- stage2_f overlap >= 60%")
    project.trace("a.sqlite")
    project.trace("b.sqlite", stages=("stage2_f",))
    cases = project.cases("--nsys-trace=a.sqlite", "--nsys-trace=b.sqlite", code=1)
    assert {name: case.properties["nsys_outcome"] for name, case in cases.items()} == {
        "overlap >= 60%": "no data",
        "stage2_f overlap >= 60%": "passed",
    }
    assert "rank 0 stage stage4_f: only 1 of 2 captures have this row" in cases["overlap >= 60%"].text


def test_no_data_where_one_capture_lacks_one_of_the_rows_that_are_listed(project: Project) -> None:
    """The other rows of the list, and the same stage of another rank, are no excuse."""
    project.gate("- {metric: overlap, where: {stage: [stage2_f, stage4_f]}, require: '>= 60%'}")
    project.trace("a.sqlite")
    project.trace("b.sqlite", exposed_us={(1, "stage4_f"): None})
    case = one(project.cases("--nsys-trace=a.sqlite", "--nsys-trace=b.sqlite", code=1))
    assert case.properties["nsys_outcome"] == "no data"
    assert "rank 1 stage stage4_f: only 1 of 2 captures have this row" in case.text


def test_no_data_where_one_steady_window_lacks_a_row(project: Project) -> None:
    def once(_: TraceBuilder, processes: list[Process]) -> None:
        processes[0].range("layer00.stage3_f", 51 * MS, 52 * MS)
        processes[0].kernel("ncclDevKernel_SendRecv", 51 * MS, 52 * MS, stream=28, launch_ns=51 * MS)

    project.gate("window: steady\nassertions:\n  - stage3 overlap > 0%\n  - stage2 overlap >= 60%")
    project.trace(edit=once)
    cases = project.cases("--nsys-trace=run.sqlite", code=1)
    assert "only 1 of 3 windows have this row" in cases["stage3 overlap > 0%"].text
    assert cases["stage2 overlap >= 60%"].state == "passed"


def test_no_data_can_be_allowed_where_no_row_is_meant(project: Project) -> None:
    project.gate("- {assert: stage3 overlap >= 60%, allow_no_data: true}")
    project.trace()
    case = one(project.cases("--nsys-trace=run.sqlite", code=0))
    assert case.properties["nsys_outcome"] == "passed"
    assert case.properties["nsys_message"].startswith("nothing was judged: no row has stage stage3")
    project.result.stdout.fnmatch_lines(["*NsysWarning: *: nothing was judged: no row has stage stage3*"])


@pytest.mark.parametrize(
    "assertion",
    [
        "- {metric: overlap, across: {pp: max}, require: '>= 60%', allow_no_data: true}",
        "- {metric: overlap, across: {rank: max, pp: max}, require: '>= 60%', allow_no_data: true}",
        "- {metric: compute_ns, balance: pp, require: <= 1.2, allow_no_data: true}",
        "- {metric: barrier_ns, balance: pp, require: <= 1.2, allow_no_data: true}",
    ],
)
def test_no_data_of_what_cannot_be_formed_is_never_allowed(project: Project, assertion: str) -> None:
    project.gate(assertion)
    project.trace(
        label=None if "barrier" not in assertion else "rank={rank}; pp={rank}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=1"
    )
    assert one(project.cases("--nsys-trace=run.sqlite", code=1)).properties["nsys_outcome"] == "no data"


def test_no_data_of_a_baseline_is_never_allowed(project: Project) -> None:
    project.gate("assertions:\n  - {metric: overlap, baseline: {abs: 1pp}, allow_no_data: true}")
    project.trace()
    assert one(project.cases("--nsys-trace=run.sqlite", code=1)).properties["nsys_outcome"] == "no data"


def test_error_is_an_error_of_the_setup(project: Project) -> None:
    project.gate("- overlap >= 60%\n- no mixed comm streams")
    project.file("run.sqlite", "not a database")
    cases = project.cases("--nsys-trace=run.sqlite", code=1)
    assert {case.state for case in cases.values()} == {"error"}
    assert {case.properties["nsys_outcome"] for case in cases.values()} == {"error"}
    assert "error: " in cases["overlap >= 60%"].text
    assert "is no SQLite file" in cases["overlap >= 60%"].text
    project.result.assert_outcomes(errors=2)


def test_error_of_one_assertion_leaves_the_others(project: Project) -> None:
    project.gate("- {assert: overlap >= 60%, window: '99'}\n- stage2 overlap >= 60%")
    project.trace()
    cases = project.cases("--nsys-trace=run.sqlite", code=1)
    assert [case.state for case in cases.values()] == ["error", "passed"]
    assert "there is no anchor 99: 5 anchors, from 0 on" in cases["overlap >= 60%"].text


def test_captures_of_two_programs_are_an_error(project: Project) -> None:
    project.gate("- overlap >= 60%")
    project.trace("a.sqlite")
    project.trace("b.sqlite", gpu="NVIDIA B200")
    case = one(project.cases("--nsys-trace=a.sqlite", "--nsys-trace=b.sqlite", code=1))
    assert case.state == "error"
    assert "the captures differ in gpu: give captures of one program" in case.text


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
    project.pytest("--nsys-trace=run.sqlite", code=1)
    project.result.stdout.fnmatch_lines(
        [
            "  improved  overlap >= baseline - 1pp  90.0% *",
            "  warned    warned *",
            "  failed    red *",
            "  no data   absent *no row has stage stage5*",
            "  error     broken *no period*",
        ]
    )
    project.result.assert_outcomes(passed=2, failed=2, errors=1, warnings=2)


def test_where_nothing_is_stored_the_command_that_stores_it_comes_first(project: Project) -> None:
    project.trace()
    project.gate("- exposed_ns below baseline plus 5%\n")
    said = project.pytest("--nsys-trace=run.sqlite", code=1)
    assert "  next:   pytest-nsys baseline refresh gate.nsys.yaml" in said


def test_a_warned_verdict_that_warnings_as_errors_turn_red_is_failed_in_the_summary(project: Project) -> None:
    project.trace()
    project.gate("- {id: gate, assert: overlap >= 99%, severity: warn}\n")
    assert "  warned  gate" in project.pytest("--nsys-trace=run.sqlite", code=0)
    said = project.pytest("--nsys-trace=run.sqlite", "-W", "error", code=1)
    assert "  failed  gate" in said
    assert "  warned  gate" not in said
