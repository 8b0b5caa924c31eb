"""A limit with a constant for each GPU model: which one counts, where, and what is said where none does."""

import json
from fractions import Fraction

import pytest

from pytest_nsys.gates.model import Constant, ConstantByModel
from tests.support.gate_files import asked, mistakes
from tests.support.gates import Edit, Project

H100, A100, L40S = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S"
LIMIT = "exposed_ns <= 250us on H100, 450us on A100"


def on(*models: str) -> Edit:
    """Each rank on a GPU of its own model; the last one says nothing where there are fewer."""

    def edit(trace, processes) -> None:  # type: ignore[no-untyped-def]
        for model, process in zip(models, processes, strict=False):
            trace.gpu(model, process=process)

    return edit


def judged(project: Project, sentence: str, exposed_us: object, *models: str) -> tuple[str, str]:
    project.gated(f"- {sentence}", exposed_us, gpu=None, edit=on(*models))  # type: ignore[arg-type]
    (case,) = project.judged().values()
    return case.properties["nsys_outcome"], case.text


@pytest.mark.parametrize(
    ("sentence", "models", "exposed_us", "outcome"),
    [
        (LIMIT, (H100, H100), 250, "passed"),
        (LIMIT, (H100, H100), 251, "failed"),
        (LIMIT, (A100, A100), 450, "passed"),
        (LIMIT, (A100, A100), 451, "failed"),
        (LIMIT, (H100, A100), {(1, "stage2_f"): 440}, "passed"),  # each row by its own
        (LIMIT, (H100, A100), {(0, "stage2_f"): 440}, "failed"),
        (LIMIT, (A100, H100), {(0, "stage2_f"): 440}, "passed"),
        ("overlap > 70% on h100, 50% on a100", (A100, A100), 450, "passed"),
        ("overlap > 70% on h100, 50% on a100", (H100, H100), 450, "failed"),
        ("exposed <= 2% of step on H100, 3% of step on A100", (H100, A100), {(1, "stage2_f"): 440}, "passed"),
        ("exposed <= 2% of step on H100, 3% of step on A100", (H100, A100), {(0, "stage2_f"): 440}, "failed"),
        ("launches == 2 on H100, 5 on A100", (H100, H100), 200, "passed"),
        ("launches == 2 on H100, 5 on A100", (A100, A100), 200, "failed"),
        ("max exposed_ns < 1ms on H100, 300us on A100", (H100, H100), 440, "passed"),
        ("max exposed_ns < 1ms on H100, 300us on A100", (A100, A100), 440, "failed"),
        ("balance of exposed_ns across pp <= 1.5 on H100, 3 on A100", (A100, A100), {(1, "stage2_f"): 440}, "passed"),
        ("exposed_ns <= 1us on H100, 450us on H100 80GB", (H100, H100), 440, "passed"),  # the longest
        ("exposed_ns <= 1us on 100, 450us on H100", (H100, H100), 440, "passed"),  # in whole words
        ("{assert: exposed_ns <= 1ms, warn: '<= 1us on A100, 450us on H100'}", (H100, H100), 440, "passed"),
    ],
)
def test_the_constant_of_the_gpu_counts(
    project: Project, sentence: str, models: tuple[str, ...], exposed_us: object, outcome: str
) -> None:
    found, text = judged(project, sentence, exposed_us, *models)
    assert found == outcome, text


@pytest.mark.parametrize(
    ("sentence", "models", "why"),
    [
        (LIMIT, (L40S, L40S), f"no constant is for {L40S}: the limit has constants for H100, A100"),
        (LIMIT, (H100, L40S), f"no constant is for {L40S}: the limit has constants for H100, A100"),
        (LIMIT, (), "nothing says on which GPU this ran, and the limit hangs on it: write run: {gpu: …}"),
        (
            "max exposed_ns <= 1ms on H100, 2ms on A100",
            (H100, A100),
            f"ranks on {A100} and {H100} are taken together: no constant is for both",
        ),
        ("exposed_ns <= 1ms on H100, 2ms on NVIDIA", (H100, H100), f"{H100} is H100 and NVIDIA alike"),
    ],
)
def test_a_gpu_without_constant_is_no_data(project: Project, sentence: str, models: tuple[str, ...], why: str) -> None:
    found, text = judged(project, sentence, 200, *models)
    assert found == "no data"
    assert text.startswith(f"  no data: {why}\n")


def test_what_the_gate_file_states_counts_where_the_trace_says_nothing(project: Project) -> None:
    project.gated(f"run: {{gpu: A100}}\nassertions:\n- {LIMIT}\n", 440, gpu=None)
    (case,) = project.judged().values()
    assert case.properties["nsys_outcome"] == "passed"


def test_it_says_it_of_measurements_beside_no_trace(project: Project) -> None:
    project.file("m.json", json.dumps([{"metric": "peak", "value": 70, "unit": "GiB", "better": "lower"}]))
    gate = "measurements: m.json\nrun: {gpu: %s}\nassertions:\n- measured peak <= 60GiB on A100, 72GiB on H100\n"
    for model, code in (("H100", 0), ("A100", 1), ("L40S", 1)):
        project.gate(gate % model)
        said = project.pytest("-v", code=code)
    assert "no constant is for L40S: the limit has constants for A100, H100" in said


def test_a_red_says_which_constant_it_took(project: Project) -> None:
    found, text = judged(project, LIMIT, {(0, "stage2_f"): 300, (1, "stage2_f"): 500}, H100, A100)
    assert found == "failed"
    assert "300 us  <= 250 us (on H100)" in text
    assert "500 us  <= 450 us (on A100)" in text
    project.pytest("--nsys-trace=run.sqlite", "--nsys-json=report.json", code=1)
    report = json.loads((project.root / "report.json").read_text())
    (assertion,) = report["gate_files"][0]["assertions"]
    assert [row["limit_source"] for row in assertion["rows"][:2]] == ["on H100", "on A100"]


def test_a_waiver_covers_rows_of_both(project: Project) -> None:
    project.gated(
        f"assertions:\n- {{id: a, assert: '{LIMIT}'}}\n"
        "waivers:\n- {assertion: a, ceiling: 500us, expires: 2999-12-31, reason: known}\n",
        {(0, "stage2_f"): 300, (1, "stage2_f"): 500},
        gpu=None,
        edit=on(H100, A100),
    )
    (case,) = project.judged().values()
    assert case.properties["nsys_outcome"] == "passed"


def test_the_models_are_read_as_they_are_written() -> None:
    found = asked("exposed_ns <= 1000us on RTX 4090, 2ms on H100-SXM").requirement
    assert found.limit == ConstantByModel(
        {"RTX 4090": Constant(Fraction(1_000_000)), "H100-SXM": Constant(Fraction(2_000_000))}
    )
    assert found.text == "<= 1000us on RTX 4090, 2ms on H100-SXM"


@pytest.mark.parametrize(
    ("sentence", "mistake"),
    [
        ("overlap >= 60% on H100, 50%", "3:27: each constant is for a GPU model, as in 412ms on H100, 530ms on A100"),
        ("overlap >= 60%, 50% on A100", "3:17: ',' comes after the end of the limit"),
        ("overlap >= 60% on H100 50% on A100", "3:21: a comma goes between the models, as in 412ms on H100"),
        ("exposed <= 1 ms on H100 and 2 ms on A100", "3:22: a comma goes between the models"),
        ("overlap >= 60% on", "3:14: each constant is for a GPU model"),
        ("overlap >= 60% on H100, 50 on A100", "3:27: overlap is a ratio: write 50%, not 50"),
        ("overlap >= 60% on H100, 50% on h100", "3:34: 'h100' is given twice"),
        ("overlap >= 60% on --", "3:21: '--' is no GPU model"),
        ("overlap >= 60% on H100, 0% on A100", "3:11: '>= 60% on H100, 0% on A100' cannot fail: overlap is never"),
        ("idle <= 10% of step on H100, 5ms on A100", "3:32: idle_ns of step is a share of the step: write 10% of step"),
        ("measured x <= 3W on H100, 4GiB on A100", "3:29: the constants are in one unit"),
        ("overlap >= baseline - 5% on H100", "3:28: 'on' comes after the end of the limit"),
    ],
)
def test_mistakes(sentence: str, mistake: str) -> None:
    found = mistakes(f"version: 1\nassertions:\n- {sentence}\n")
    assert [each.startswith(mistake) for each in found] == [True], found
