"""One step is enough to gate: what is judged on it, what needs more, and when one is a capture that lost the rest."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.repository import ROOT
from tests.support.gates import MS, Project
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.formats import write_one
from tests.support.samples.fsdp import FsdpShape, write_fsdp

NOTE = "one step: the noise within this run is unknown; several captures would show it"
OF_THE_README = re.search(
    r"<!-- file: perf/step.nsys.yaml -->\n```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.S
)
assert OF_THE_README is not None
THREE_LINES = OF_THE_README[1].removeprefix("version: 1\n")
WITHOUT_STAGES = """
- step time below baseline plus 5%
- wall exposed below baseline plus 5%
- wall overlap >= 75%
"""


def write_steps(
    folder: Path, format: str, name: str, *, count: int = 1, exposed_us: int = 200, late_us: int = 0
) -> Path:
    """One rank whose step gathers twice behind a gemm of 2 ms, each time but for its end, and then computes."""

    def put(gpu: Any) -> None:
        for k in range(count):
            begin = 20 * MS * k + 1_000
            late = 1_000 * late_us * (k == count - 1)
            for at in (begin + MS, begin + 5 * MS):
                gpu.range("FSDP::all_gather (layers.0)", at - 4_500, at - 3_500)
                gpu.kernel("gemm", at, at + 2 * MS, launch_ns=at - 5_000)
                end = at + 2 * MS + 1_000 * exposed_us
                gpu.kernel("ncclDevKernel_AllGather_RING_LL", at + MS, end, stream=28, launch_ns=at - 4_000)
            at = begin + 7 * MS + 1_000 * exposed_us
            gpu.kernel("adam", at, at + MS + late, launch_ns=at - 5_000)
            gpu.range(name.format(k + 5), begin, at + MS + late + 1_000)

    folder.mkdir(parents=True)
    return write_one(folder, format, put)


def first_gate(project: Project, lines: str = THREE_LINES) -> None:
    project.gate(lines.strip("\n"), "gate.nsys.yaml")


CASES = [
    ("kineto", "ProfilerStep#{}", THREE_LINES),
    ("nsys", "ProfilerStep#{}", THREE_LINES),
    ("nsys", "step {}", WITHOUT_STAGES),
    ("nsys", "step", WITHOUT_STAGES),
    ("nsys", "train_iteration/{}", WITHOUT_STAGES),
    ("rocpd", "ProfilerStep#{}", THREE_LINES),
    ("jax", "train step_num={}", WITHOUT_STAGES),
]


@pytest.mark.parametrize(("format", "name", "lines"), CASES)
@pytest.mark.sampled(3)
def test_one_step_is_judged(project: Project, format: str, name: str, lines: str) -> None:
    """By pytest itself, with nothing but the sentences."""
    accepted, again, slower = (
        write_steps(project.root / folder, format, name, exposed_us=us, late_us=late)
        for folder, us, late in (("accepted", 200, 0), ("again", 201, 30), ("slower", 700, 0))
    )
    first_gate(project, lines)
    project.refresh(f"--nsys-trace={accepted}")
    said = project.pytest(f"--nsys-trace={again}", code=0)
    assert "3 passed" in said
    assert f"warning: {NOTE}" in said
    said = project.pytest(f"--nsys-trace={slower}", code=1)
    assert "3 failed" in said
    assert re.search(r"^Step \d\.\d+% slower \(\d\.\d → \d\.\d ms\): AllGather", said, re.M)


def test_a_step_of_torchtitan_is_judged(project: Project) -> None:
    good = write_fsdp(project.root / "good", FsdpShape(steps=1))
    again = write_fsdp(project.root / "again", FsdpShape(steps=1, jitter=0.021))
    slower = write_fsdp(project.root / "slower", FsdpShape(steps=1, forward_prefetch=False))
    first_gate(project)
    project.refresh(f"--nsys-trace={good}")
    assert "all 3 assertions passed" in project.pytest(f"--nsys-trace={again}", code=0)
    said = project.pytest(f"--nsys-trace={slower}", code=1)
    assert "3 assertions: 3 failed; torchtitan (found)" in said
    assert "Step 11% slower (15.6 → 17.3 ms): AllGather starts 1.68 ms later on both ranks" in said


@pytest.fixture
def runs(project: Project) -> Project:
    """Runs of one and of ten steps, by the names of their folders."""
    for folder, count, late_us in (
        ("one", 1, 0),
        ("other", 1, 30),
        ("third", 1, 20),
        ("ten", 10, 0),
        ("eleven", 10, 30),
    ):
        write_steps(project.root / folder, "nsys", "ProfilerStep#{}", count=count, late_us=late_us)
    return project


def outcomes(project: Project, *arguments: str) -> dict[str, tuple[str, str]]:
    """Verdict and text of each sentence of the gate."""
    cases = project.cases(*arguments)
    return {
        name: (case.properties.get("nsys_outcome", ""), " ".join(case.text.split())) for name, case in cases.items()
    }


def test_a_capture_that_kept_one_of_ten_steps_is_an_error(runs: Project) -> None:
    """The constant, too, though no baseline is held against it."""
    first_gate(runs)
    runs.refresh("--nsys-trace=ten")
    for outcome, text in outcomes(runs, "--nsys-trace=one").values():
        assert outcome == "error"
        assert "rank 0 has 1 anchor (bound: at least 5): the run it is held against had 10; profile more steps" in text
        assert "or, where one is what you capture, write window: first, or write quality: {anchors: 1}" in text
    assert {outcome for outcome, _ in outcomes(runs, "--nsys-trace=eleven").values()} == {"passed"}
    said = runs.refresh("--nsys-trace=one", code=1)
    assert "still red" in said  # nor does it become the normal by itself


def test_more_steps_than_the_baseline_had_are_not_comparable(runs: Project) -> None:
    first_gate(runs)
    runs.refresh("--nsys-trace=one")
    found = outcomes(runs, "--nsys-trace=ten")
    assert [outcome for outcome, _ in found.values()] == ["incomparable", "incomparable", "passed"]
    assert all(
        "(steps: now 5 and more, baseline 1)" in text for outcome, text in found.values() if outcome == "incomparable"
    )


def test_the_other_side_says_how_many_steps_there_should_be(runs: Project) -> None:
    first_gate(runs)
    assert {each for each, _ in outcomes(runs, "--nsys-trace=one", "--nsys-against=other").values()} == {"passed"}
    found = outcomes(runs, "--nsys-trace=one", "--nsys-against=ten")
    assert all("the run it is held against had 10" in text for _, text in found.values())
    assert "steps: now 1, base 5 and more" in runs.command("compare", "ten", "one", code=3)
    assert "step" in runs.command("compare", "one", "other", code=0)


def test_several_captures_of_one_step(runs: Project) -> None:
    """The value is their median, and they show the noise."""
    first_gate(runs)
    three = [f"--nsys-trace={name}" for name in ("one", "other", "third")]
    runs.refresh(*three)
    (text,) = runs.baselines().values()
    assert '"step_time_ns"' in text
    assert f"[{7_200_000 + 21_000}" in text  # the middle one
    assert NOTE not in runs.pytest(*three, code=0)
    mixed = outcomes(runs, "--nsys-trace=one", "--nsys-trace=ten")
    assert all("rank 0 has 1 anchor (bound: at least 5): the median of so few" in text for _, text in mixed.values())


CONSTANTS = "assertions: [step time <= 9ms, all_gather overlap >= 75%]"


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ("", ""),
        ("window: first", ""),
        ("convention: torchtitan\nwindow: first", ""),
        ("convention: torchtitan\nquality: {anchors: 1}", ""),
        ("convention: torchtitan", "the median of so few is unreliable; profile more steps, or, where one is what you"),
        ("window: steady", "the median of so few is unreliable; profile more steps, or write quality"),
        ("quality: {anchors: 10}", "rank 0 has 1 anchor (bound: at least 10)"),
    ],
)
def test_what_the_gate_file_says_of_its_window(runs: Project, keys: str, error: str) -> None:
    """One step that was found is enough; who names a convention says ``first``, or captures more."""
    runs.gate(f"{keys}\n{CONSTANTS}")
    for outcome, text in outcomes(runs, "--nsys-trace=one").values():
        assert outcome == ("error" if error else "passed")
        assert error in text


@pytest.mark.parametrize(
    ("sentence", "why"),
    [("p50 period <= 9ms", "one step has no period and no percentiles: write step time in its place")],
)
@pytest.mark.parametrize("window", ["median", "first"])
def test_what_needs_several_steps_says_so(runs: Project, sentence: str, why: str, window: str) -> None:
    runs.gate(f"window: {window}\nassertions: [{sentence}]")
    ((outcome, text),) = outcomes(runs, "--nsys-trace=one").values()
    assert outcome == "no data"
    assert why in text


def test_a_gate_is_drafted_of_one_step_and_of_several_captures_of_one(runs: Project) -> None:
    """Nothing has to be allowed, and nothing is left to write."""
    for traces in (["one"], ["one", "other", "third"]):
        runs.command("init", *traces, "-o", "gate.nsys.yaml", "--force", code=0)
        text = (runs.root / "gate.nsys.yaml").read_text()
        assert "\nwindow: first\n" in text
        assert "\nquality:" not in text
        assert "- step time below baseline plus " in text
        assert "failed" not in runs.pytest(code=0)


def test_a_step_that_is_recorded_once_is_no_layer(project: Project) -> None:
    gpu = TraceBuilder().process()
    gpu.range("train_step 7", 0, 100 * MS)
    for k in range(12):
        at = (2 + 8 * k) * MS
        gpu.range(f"layer {k}", at - MS, at + 6 * MS)
        for n, name in enumerate(("norm", "gemm", "flash", "gelu", "mlp")):
            gpu.kernel(name, at + n * MS, at + (n + 1) * MS - 1_000, launch_ns=at - 9_000 + n)
    gpu.trace.write(project.root / "run.sqlite")
    project.gate("- step time <= 1s")
    assert "generic, anchor 'train_step %' (found)" in project.pytest("--nsys-trace=run.sqlite", code=0)
