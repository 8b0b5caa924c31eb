"""Can what was not recorded, or recorded wrongly, pass? Each case turned a limit green, or was told as a fine step."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.gates.model import Outcome
from pytest_nsys.verdicts.evaluate import evaluate
from tests.support.commands import run as command
from tests.support.drafted import Drafted
from tests.support.gates import Project
from tests.support.samples.formats import Format
from tests.support.samples.rocpd import RocpdBuilder
from tests.support.training_run import COMPUTE, MICRO, MS, PLAIN, REDUCE, STEPS, US, Training, changed, slower

LAUNCHING = [each for each in Format if each is not Format.JAX]
"""JAX records no calls of the host."""

Row = dict[str, Any]
"""A kernel as a builder takes it: its name, start_ns, end_ns, stream and launch_ns."""


@dataclass(frozen=True)
class Recorded(Training):
    """The same run as a profiler that goes wrong records it: every kernel passes through ``change``, which may drop it:
    then its launch alone is on record. There are gemms without a launch at ``unlaunched``, from when to when in ns.
    """

    change: Callable[[int, Row], Row | None] = lambda _, row: row
    unlaunched: tuple[tuple[int, int], ...] = ()

    def put(self, trace: Any) -> None:
        write, number = trace.kernel, iter(range(1_000_000))

        def kernel(name: str, start_ns: int, end_ns: int, *, stream: int, launch_ns: int) -> None:
            row = {"name": name, "start": start_ns, "end": end_ns, "stream": stream, "launch_ns": launch_ns}
            if (found := self.change(next(number), row)) is None:
                call = "hipLaunchKernel" if isinstance(trace, RocpdBuilder) else "cudaLaunchKernel"
                trace.api(call, launch_ns, launch_ns + 2 * US)
            else:
                write(found["name"], found["start"], found["end"], stream=found["stream"], launch_ns=found["launch_ns"])

        trace.kernel = kernel
        super().put(trace)
        trace.kernel = write
        for start_ns, end_ns in self.unlaunched:
            write("nvjet_tst_128x256", start_ns, end_ns, stream=COMPUTE, launch=False)


def judged(folder: Path, format: Format, run: Training, before: Training = PLAIN) -> set[Outcome]:
    """How the sentences end that ``init`` drafts of the run as it was."""
    whole = Drafted.of(before.write(folder / "whole", format), folder)
    assert {*whole.judged(whole.trace).values()} == {Outcome.PASSED}
    return {*whole.judged(run.write(folder / "run", format)).values()}


def covering(number: int, row: Row) -> Row:
    """One gemm of the third step ends after the last."""
    gemm = number == 2 * len(PLAIN.steps[0]) + 1
    return {**row, "end": row["start"] + 3_400 * MS} if gemm else row


@pytest.mark.parametrize("format", Format)
@pytest.mark.sampled(3)
def test_a_kernel_over_all_later_ones_of_its_stream_is_no_kernel(tmp_path: Path, format: Format) -> None:
    """With it overlap was 100% and exposed 0: it hides all communication."""
    assert judged(tmp_path, format, Recorded(change=covering)) == {Outcome.ERROR}


@pytest.mark.parametrize(
    "times", [{"start": 0, "end": 0}, {"end": 0}, {"end": 5}], ids=["not collected", "no end", "backwards"]
)
@pytest.mark.parametrize("format", Format)
@pytest.mark.sampled(5)
def test_a_kernel_at_no_time_is_no_kernel(tmp_path: Path, format: Format, times: dict[str, int]) -> None:
    """It was left out in silence, of which every limit holds; or the window was as long as the clock is old."""

    def untimed(_: int, row: Row) -> Row:
        return {**row, **times} if row["name"] == "flash_fwd_kernel" else row

    assert judged(tmp_path, format, Recorded(change=untimed)) == {Outcome.ERROR}


@pytest.mark.parametrize("format", LAUNCHING)
@pytest.mark.sampled(2)
def test_kernels_without_a_launch_after_the_last_step_are_looked_for(tmp_path: Path, format: Format) -> None:
    """They were looked for near the window alone."""
    late = tuple((at, at + 2 * MS) for at in range(200 * MS, 600 * MS, 3 * MS))
    assert judged(tmp_path, format, Recorded(unlaunched=late)) == {Outcome.ERROR}


@pytest.mark.parametrize("format", LAUNCHING)
@pytest.mark.sampled(2)
def test_a_collective_that_starts_before_its_launch_is_of_another(tmp_path: Path, format: Format) -> None:
    """By 290% of a step, as of a launch that was lost: the next one's is taken for it."""

    def early(_: int, row: Row) -> Row:
        return {**row, "launch_ns": row["start"] + 300 * US} if row["name"] == REDUCE else row

    assert Outcome.PASSED not in judged(tmp_path, format, Recorded(change=early))


@pytest.mark.parametrize("format", LAUNCHING)
@pytest.mark.sampled(3)
def test_a_single_step_whose_recording_ended_inside_it_is_no_step(tmp_path: Path, format: Format) -> None:
    """It had lost its last third, and was improved against a whole one."""
    step = {f"{name}_{layer}": ns for layer in range(6) for name, ns in MICRO.items()}
    run = Training((step,))
    lost = Recorded(run.steps, change=lambda number, row: row if number < 12 else None)
    assert judged(tmp_path, format, lost, run) == {Outcome.ERROR}


@pytest.mark.parametrize("format", LAUNCHING)
@pytest.mark.sampled(3)
def test_gemms_that_were_lost_are_missed(tmp_path: Path, format: Format) -> None:
    """Their launches are on record: a limit on compute was met."""

    def lose(number: int, row: Row) -> Row | None:
        return row if "nvjet" not in row["name"] or number % 4 == 0 else None

    assert judged(tmp_path, format, Recorded(change=lose)) == {Outcome.ERROR}


@pytest.mark.parametrize("format", LAUNCHING)
@pytest.mark.sampled(3)
def test_a_kernel_that_stands_there_twice_is_no_kernel(tmp_path: Path, format: Format) -> None:
    """A base with every kernel twice let a step pass that took nearly as long again."""

    @dataclass(frozen=True)
    class Doubled(Training):
        def put(self, trace: Any) -> None:
            write = trace.kernel

            def kernel(name: str, start_ns: int, end_ns: int, *, stream: int, launch_ns: int) -> None:
                number = write(name, start_ns, end_ns, stream=stream, launch_ns=launch_ns)
                if name == REDUCE:
                    moved = start_ns + 300 * US, end_ns + 300 * US
                    write(name, *moved, stream=stream + 1, correlation=number, launch=False)

            trace.kernel = kernel
            super().put(trace)
            trace.kernel = write

    assert judged(tmp_path, format, Doubled()) == {Outcome.ERROR}


@pytest.mark.parametrize("format", LAUNCHING)
def test_a_judged_step_of_other_work_than_most_is_doubtful(project: Project, format: Format) -> None:
    """Its gemm and the call of it were lost together: a limit on compute was met."""
    judged_step = STEPS // 2
    less = {name: ns for name, ns in PLAIN.steps[0].items() if "nvjet" not in name}
    steps = tuple(less if n == judged_step else own for n, own in enumerate(PLAIN.steps))
    path = Training(steps).write(project.root / "traces", format)
    project.gate("assertions: [compute <= 9s]")
    said = " ".join(project.pytest(f"--nsys-trace={path}", code=0).split())
    assert "warning: rank 0: the judged step has 4 kernels, most steps 5: it is other work, or rows are missing" in said


def test_steps_that_are_not_on_record_are_told(project: Project) -> None:
    """The ranges of every second one were lost: each step was twice as long, and a head 97% slower passed."""

    @dataclass(frozen=True)
    class Ranged(Training):
        def put(self, trace: Any) -> None:
            write = trace.range

            def range_(name: str, start_ns: int, end_ns: int) -> None:
                number = name.rpartition("#")[2]
                if not number.isdigit() or int(number) % 2 == 0:
                    write(name, start_ns, end_ns)

            trace.range = range_
            super().put(trace)
            trace.range = write

    path = Ranged().write(project.root / "traces", Format.KINETO)
    project.gate("assertions: [step time <= 9s]")
    said = " ".join(project.pytest(f"--nsys-trace={path}", code=0).split())
    assert "warning: rank 0: 11 of steps 0 to 22 are not on record: the step before each is longer by it" in said


def test_init_drafts_no_gate_for_a_trace_that_lost_its_kernels(tmp_path: Path) -> None:
    def lose(number: int, row: Row) -> Row | None:
        return row if number % 2 else None

    path = Recorded(change=lose).write(tmp_path / "run", Format.NSYS)
    said = command("init", path, "-o", tmp_path / "g.nsys.yaml", code=2).stderr
    assert "kernel launches of rank 0 in the judged steps have no kernel on record" in said
    assert "profile again with fewer steps or a larger buffer" in said
    assert not (tmp_path / "g.nsys.yaml").exists()


def test_what_made_the_mean_shorter_is_what_got_shorter(tmp_path: Path) -> None:
    """The run was compared with itself, and a kernel that got longer made the step faster."""
    slow = changed(PLAIN, range(STEPS), lambda step: slower(step, 40, "flash_fwd_kernel"))
    whole = Drafted.of(slow.write(tmp_path / "slow", Format.NSYS), tmp_path)
    with whole._context(PLAIN.write(tmp_path / "fast", Format.NSYS)) as context:
        (mean,) = (each for each in whole.gate.assertions if each.full_name.startswith("mean step time"))
        (cause, *_) = evaluate(mean, context).causes
    assert cause.explanation is not None
    assert cause.explanation.change_ns == -360 * US


def test_collectives_that_move_onto_the_compute_stream_are_told_below_the_green_line(project: Project) -> None:
    """What shares a stream with compute is in no row of the plain metrics, of which the limit then holds."""

    def moved(number: int, row: Row) -> Row:
        half = row["name"] == REDUCE and number // len(PLAIN.steps[0]) % 2
        return {**row, "stream": COMPUTE} if half else row

    Recorded(change=moved).write(project.root / "run.sqlite", Format.NSYS)
    project.gate("window: run\nassertions: [wall exposed <= 9s]")
    said = " ".join(project.pytest("--nsys-trace=run.sqlite", code=0).split())
    assert "1 assertion passed" in said
    assert "warning: 12 of 24 communication kernels share stream 7 with compute" in said
    project.gate("window: run\nassertions: [wall exposed all <= 9s]")
    assert "warning: 12 of 24" not in project.pytest("--nsys-trace=run.sqlite", code=0)


def test_a_rank_without_its_measurement_is_no_data(project: Project) -> None:
    """The world is stated, and the value of its slowest rank is not there."""
    values = [{"metric": "memory", "value": 70, "unit": "GiB", "labels": {"rank": rank}} for rank in (0, 1, 3)]
    project.file("measured.json", json.dumps(values))
    project.gate("run: {world: 4}\nassertions: [measured memory <= 72GiB, max measured memory <= 72GiB]")
    assert "no data: rank 2 has no row" in project.pytest("--nsys-measurements=measured.json", code=1)
    assert project.result.parseoutcomes() == {"failed": 2}
    project.gate("run: {world: 4}\nallow_missing: {'*': [2]}\nassertions: [measured memory <= 72GiB]")
    project.pytest("--nsys-measurements=measured.json", code=0)
