"""Does the measured noise decide as R3 says: what is red, what is inconclusive, what is improved, and what is told?

The accepted runs are 190 to 210 us around 200: without calibration B is 48.5 us for the
four rows of the trace together, so 248 us is within it and 249 beyond.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pytest_nsys.gates.noise import compute_noise_bound
from pytest_nsys.stored.baselines import baseline_file
from tests.support.gates import Case, Exposed, Project, built_once

ACCEPTED_US = (190, 205, 200, 195, 210)
CALIBRATION_US = (198, 201, 202, 199, 201, 199)
SENTENCE = "exposed_ns <= baseline + 5%"
TEN = "exposed_ns <= baseline + 10%"
FIFTEEN = "exposed_ns <= baseline + 15%"
HERE = "rank 0 stage2_f"
BEYOND = {(0, "stage2_f"): 249, (1, "stage4_f"): 220, (1, "stage2_f"): 100}
"""One row beyond the noise, one within it and one that is better."""
NOT_MEASURED = f"the tolerance is the noise, which is not measured for 4 rows, the first {HERE}: "
GATE = f"""
- {SENTENCE}
- {{id: strict, assert: {SENTENCE}, severity: {{inconclusive: fail}}}}
- {{id: noise, assert: exposed_ns <= baseline + noise}}
"""


def accept(project: Project, gate: str) -> Project:
    """A gate with a baseline of 200 us."""
    project.accepted(gate, 200, name="base.sqlite")
    return project


@pytest.fixture
@built_once
def base(project: Project) -> Project:
    """What is stored for one sentence of ``exposed_ns`` is for all of them."""
    return accept(project, GATE)


def store(project: Project, accepted_us: Sequence[int] = ACCEPTED_US, calibration_us: Sequence[int] = ()) -> Path:
    """Write these accepted runs and this calibration into each row of the baseline."""
    (path,) = (project.root / "baselines").rglob("*.json")
    stored = baseline_file.load_baseline(path)
    for series in stored.series.values():
        for labels in series.rows:
            series.rows[labels] = [1_000 * value for value in accepted_us]
            if calibration_us:
                series.calibration[labels] = [1_000 * value for value in calibration_us]
    path.write_text(stored.serialize(), encoding="utf-8")
    return path


@pytest.fixture
def stored(base: Project) -> Project:
    store(base)
    return base


def judged(project: Project, exposed_us: Exposed, code: int) -> dict[str, Case]:
    """The cases of a trace with so much exposed communication."""
    project.trace(exposed_us=exposed_us)
    return project.cases("--nsys-trace=run.sqlite", code=code)


def outcomes(cases: Mapping[str, Case]) -> dict[str, tuple[str, str]]:
    """Verdict and what pytest made of it."""
    return {name: (case.properties["nsys_outcome"], case.state) for name, case in cases.items()}


def test_the_bound_of_these_runs_is_what_the_tests_below_take_it_for() -> None:
    uncalibrated = compute_noise_bound([1_000 * value for value in ACCEPTED_US], row_count=4)
    calibrated = compute_noise_bound(
        [1_000 * value for value in ACCEPTED_US], [1_000 * value for value in CALIBRATION_US], row_count=4
    )
    one = compute_noise_bound([200_000], [1_000 * value for value in CALIBRATION_US], row_count=4)
    assert uncalibrated is not None
    assert calibrated is not None
    assert one is not None
    assert 48_000 < uncalibrated < 49_000  # 5.598 · 7.91 · sqrt(6/5)
    assert 23_000 < calibrated < 24_000  # 3.833 · 5.70 · sqrt(6/5)
    assert 12_000 < one < 13_000  # 5.598 · 1.55 · sqrt(2)


@pytest.mark.parametrize(
    ("now_us", "usual", "strict", "noise"),
    [
        (200, ("passed", "passed"), ("passed", "passed"), ("passed", "passed")),
        (210, ("passed", "passed"), ("passed", "passed"), ("passed", "passed")),
        (211, ("inconclusive", "passed"), ("inconclusive", "failure"), ("passed", "passed")),
        (220, ("inconclusive", "passed"), ("inconclusive", "failure"), ("passed", "passed")),
        (221, ("failed", "failure"), ("failed", "failure"), ("passed", "passed")),
        (248, ("failed", "failure"), ("failed", "failure"), ("passed", "passed")),
        (249, ("failed", "failure"), ("failed", "failure"), ("failed", "failure")),
        (189, ("passed", "passed"), ("passed", "passed"), ("passed", "passed")),
        (152, ("passed", "passed"), ("passed", "passed"), ("passed", "passed")),
        (151, ("improved", "passed"), ("improved", "passed"), ("improved", "passed")),
    ],
)
def test_tolerance_and_noise_draw_the_lines(
    stored: Project, now_us: int, usual: tuple[str, str], strict: tuple[str, str], noise: tuple[str, str]
) -> None:
    """T is 10 us: beyond it, up to 2T, the noise of 48.5 us excuses a row; beyond that nothing does."""
    stored.trace(exposed_us=now_us)
    assert outcomes(stored.judged()) == {SENTENCE: usual, "strict": strict, "noise": noise}


def test_inconclusive_is_told_at_the_line(stored: Project) -> None:
    cases = judged(stored, {(1, "stage4_f"): 220}, code=1)
    what = "1 of 4 rows are beyond the tolerance, but within the measured noise"
    assert cases[SENTENCE].properties["nsys_message"] == what
    assert cases[SENTENCE].properties["nsys_row"] == "rank 1 stage4_f"
    stored.result.stdout.fnmatch_lines(
        [f"  warning: {SENTENCE}: inconclusive: 1 of 4 rows are beyond the tolerance, *"]
    )
    assert f"inconclusive: {what}" in cases["strict"].text
    table = [line.split()[:2] for line in cases["strict"].text.splitlines() if "(baseline + 2 × 5%)" in line]
    assert table[0] == ["1", "stage4_f"]
    assert ["0", "stage2_f"] not in table


OF_NOISE = "exposed_ns <= baseline + noise"


@pytest.mark.parametrize(
    ("sentence", "accepted_us", "calibration_us", "now_us", "outcome", "said"),
    [
        (SENTENCE, ACCEPTED_US, (), BEYOND, "failed", {"message": "1 of 4 rows above their limit", "row": HERE}),
        (SENTENCE, ACCEPTED_US, (), 200, "passed", {"sees": "48.5 us"}),
        (OF_NOISE, ACCEPTED_US, (), 200, "passed", {"sees": "48.5 us"}),
        (SENTENCE, ACCEPTED_US, CALIBRATION_US, 200, "passed", {"sees": "23.9 us"}),
        (OF_NOISE, ACCEPTED_US, CALIBRATION_US, 200, "passed", {"sees": "23.9 us"}),
        (SENTENCE, ACCEPTED_US, ACCEPTED_US, 200, "passed", {"sees": "48.5 us"}),  # as of five runs, not of ten
        (TEN, ACCEPTED_US, (), 300, "failed", {"limit": "<= 240 us (baseline + 2 × 10%)"}),
        (TEN, (200,), CALIBRATION_US, 300, "failed", {"limit": "<= 220 us (baseline + 10%)"}),  # the noise is 12.3 us
        (OF_NOISE, (200,), CALIBRATION_US, 212, "passed", {}),
        (OF_NOISE, (200,), CALIBRATION_US, 213, "failed", {}),
        (OF_NOISE, (200,), CALIBRATION_US, 188, "passed", {}),
        (OF_NOISE, (200,), CALIBRATION_US, 187, "improved", {}),
        (
            OF_NOISE,
            (200,),
            (),
            200,
            "no data",
            {"message": f"{NOT_MEASURED}calibrate the baseline, or accept more runs"},
        ),
        # R1: without a tolerance there is no noise either
        ("exposed_ns <= baseline", ACCEPTED_US, (), 201, "failed", {}),
        ("exposed_ns == baseline", ACCEPTED_US, (), 201, "failed", {}),
        ("exposed_ns <= baseline", ACCEPTED_US, (), 200, "passed", {"sees": "any change"}),
        ("exposed_ns == baseline", ACCEPTED_US, (), 200, "passed", {"sees": "any change"}),
    ],
)
def test_what_is_red_and_what_is_seen(
    base: Project,
    sentence: str,
    accepted_us: Sequence[int],
    calibration_us: Sequence[int],
    now_us: Exposed,
    outcome: str,
    said: Mapping[str, str],
) -> None:
    base.gate(f"- {sentence}")
    store(base, accepted_us, calibration_us)
    base.trace(exposed_us=now_us)
    ((_, case),) = base.judged().items()
    assert case.properties["nsys_outcome"] == outcome
    assert {name: case.properties[f"nsys_{name}"] for name in said} == said


@pytest.mark.parametrize(("now_us", "code"), [(201, 0), (212, 1), (300, 1)])
def test_an_accepted_run_that_is_a_hiccup_is_left_out_and_named(base: Project, now_us: int, code: int) -> None:
    """With it B were 417 us."""
    base.gate(f"- {SENTENCE}")
    store(base, (200, 201, 340, 199, 200))
    base.trace(exposed_us=now_us)
    said = base.pytest("-v", "--nsys-trace=run.sqlite", code=code)
    line = "accepted run 3 of 5 is left out: rank 0 stage2_f exposed_ns is 340 us, the median of the others 200 us"
    assert f"{line}, and 3 more rows far off" in said


@pytest.mark.parametrize("now_us", [201, 211, 215])
def test_a_refresh_sees_what_the_gate_sees(base: Project, now_us: int) -> None:
    base.gate(f"- {SENTENCE}")
    store(base, (200, 201, 340, 199, 200))
    base.trace(exposed_us=now_us)
    (case,) = base.judged().values()
    said = base.refresh("--nsys-trace=run.sqlite")
    moved = case.properties["nsys_outcome"] == "failed"
    assert ("4 rows changed" in said) is moved
    assert ("no row moved beyond its tolerance" in said) is not moved


def test_a_tolerance_tighter_than_the_noise_is_told_at_the_line(base: Project) -> None:
    base.gate(f"- no syncs\n- {FIFTEEN}\n- exposed_ns <= baseline + 30%")
    store(base)
    judged(base, 200, code=0)
    what = "30 us < 48.5 us (rank 0 stage2_f): only changes beyond the noise can fail it"
    assert f"warning: {FIFTEEN}: the tolerance is tighter than the noise in 4 of 4 rows: {what}" in " ".join(
        base.result.stdout.str().split()
    )
    assert "more warning" not in base.result.stdout.str()  # 60 us are wider than 48.5 us


@pytest.mark.parametrize(("now_us", "code"), [(200, 0), (230, 1)])
def test_noise_of_twice_the_tolerance_is_told_in_green_too(base: Project, now_us: int, code: int) -> None:
    base.gate(f"- {SENTENCE}")
    store(base)
    judged(base, now_us, code)
    told = " ".join(base.result.stdout.str().split())
    assert "the noise is more than twice the tolerance in 4 of 4 rows: 48.5 us, tolerance 10 us (rank 0" in told
    assert "no change below 48.5 us can be told from chance: calibrate anew, or widen the tolerance" in told


@pytest.mark.parametrize("accepted_us", [(200,), (190, 200, 210)])
def test_too_few_runs_without_calibration_measure_no_noise(base: Project, accepted_us: Sequence[int]) -> None:
    base.gate(f"- {SENTENCE}")
    store(base, accepted_us)
    (case,) = judged(base, 210, code=0).values()
    assert case.properties["nsys_sees"] == "10 us (noise not measured)"
    assert "warning: " not in base.result.stdout.str()
    (case,) = judged(base, 211, code=1).values()
    assert case.properties["nsys_outcome"] == "failed"


def test_noise_as_tolerance_of_a_gate_file_is_no_tolerance_tighter_than_the_noise(base: Project) -> None:
    base.gate("tolerance: noise\nassertions:\n  - exposed_ns below baseline plus tolerance")
    store(base, (200,), CALIBRATION_US)
    (case,) = judged(base, 212, code=0).values()
    assert (case.properties["nsys_outcome"], case.properties["nsys_sees"]) == ("passed", "12.3 us")
    assert "tighter than" not in base.result.stdout.str()


def test_a_row_that_the_calibration_lacks_is_not_measured(base: Project) -> None:
    base.gate(f"- {SENTENCE}\n- {{id: noise, assert: exposed_ns <= baseline + noise}}")
    path = store(base, (200,), CALIBRATION_US)
    stored = baseline_file.load_baseline(path)
    (series,) = stored.series.values()
    del series.calibration[1, "stage4_f"]
    path.write_text(stored.serialize(), encoding="utf-8")
    cases = judged(base, {(1, "stage4_f"): 200, (0, "stage2_f"): 200}, code=1)
    assert outcomes(cases) == {"exposed_ns <=": ("passed", "passed"), "noise": ("no data", "failure")}
    assert "not measured for 1 row, the first rank 1 stage4_f" in cases["noise"].properties["nsys_message"]


def test_a_balance_that_one_calibration_trace_has_not_is_not_measured(project: Project) -> None:
    """Where the minimum is 0 there is no ratio: four traces out of five are no calibration."""
    accept(project, "- stage2_f balance of exposed_ns across pp <= baseline + 5%")
    path = store(project, (200,), CALIBRATION_US[:5])
    (case,) = judged(project, 200, code=0).values()
    assert case.properties["nsys_sees"] == "0.05"
    stored = baseline_file.load_baseline(path)
    (series,) = stored.series.values()
    series.calibration[0, "stage2_f"][-1] = 0
    path.write_text(stored.serialize(), encoding="utf-8")
    (case,) = judged(project, 200, code=0).values()
    assert case.properties["nsys_sees"] == "0.05 (noise not measured)"


def test_noise_is_of_the_aggregate_that_is_judged(project: Project) -> None:
    """The worst row of each run is always 210 us, though it is another one each time: its noise is none."""
    accept(project, "- max exposed_ns <= baseline + 1%\n- rank 0 stage2_f exposed_ns <= baseline + 7%")
    path = store(project)
    stored = baseline_file.load_baseline(path)
    (series,) = stored.series.values()
    for place, labels in enumerate(series.rows):
        series.rows[labels] = [210_000 if run % 4 == place else 190_000 for run in range(4)]
    path.write_text(stored.serialize(), encoding="utf-8")
    cases = judged(project, {(0, "stage2_f"): 213}, code=1)
    assert {name: case.properties["nsys_outcome"] for name, case in cases.items()} == {
        "max exposed_ns <=": "failed",
        "rank 0 stage2_f exposed_ns <=": "inconclusive",
    }
