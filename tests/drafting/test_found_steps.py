"""Do all commands measure the same step where nobody names one, and is what was found once not searched again?"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pytest_nsys import open_run
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.core.conventions import Anchor, Convention, KernelAnchor, describe_convention, format_anchor
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.reports.words.verdict_text import format_ordinal
from tests.support.awkward import AWKWARD
from tests.support.commands import screen
from tests.support.gates import MS, Project
from tests.support.kernel_steps import PLAIN, written
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.formats import Format
from tests.support.samples.kineto import KinetoBuilder

KERNELS = (*PLAIN, "norm", "loss")
STEP = ("embed", *("norm", "gemm") * 4, "adam")


def framework(path: Path, seed: int, steps: int = 6) -> Path:
    """Steps of torch.profiler, with layers in them."""
    trace = KinetoBuilder()
    for k in range(steps):
        at = 10 * MS * k + 1_000
        trace.range(f"ProfilerStep#{k}", at, at + 9 * MS)
        for n in range(8):
            trace.kernel("gemm", at + n * MS, at + n * MS + 500_000 + seed, launch_ns=at + n * MS - 500)
            trace.kernel("norm", at + n * MS + 600_000, at + n * MS + 700_000, launch_ns=at + n * MS - 400)
    return trace.write(path.with_suffix(".json"))


def one_step(path: Path, seed: int) -> Path:
    """The same of one step."""
    trace = KinetoBuilder()
    trace.range("ProfilerStep#3", 1_000, 81 * MS)
    for n in range(8):
        at = 10 * MS * n + 10_000
        for place, name in enumerate(KERNELS):
            start = at + place * MS
            trace.range(f"layers.{n}", start - 900, start - 100)
            trace.kernel(name, start, start + 500_000 + seed, launch_ns=start - 500)
    return trace.write(path.with_suffix(".json"))


def own_range(path: Path, seed: int) -> Path:
    """A range of the user's around each step, and one around a part of it."""
    process = TraceBuilder().process()
    for k in range(8):
        at = 10 * MS * k + 1_000
        process.range(f"my turn {k}", at, at + 9 * MS)
        process.range("forward", at + 100, at + 4 * MS)
        for place, name in enumerate(KERNELS):
            start = at + 10_000 + place * MS
            process.kernel(name, start, start + 500_000 + seed, launch_ns=start - 500)
    return process.trace.write(path.with_suffix(".sqlite"))


def few_kernels(path: Path, seed: int) -> Path:
    """One kernel a step: nothing but the range says where it begins."""
    process = TraceBuilder().process()
    for k in range(8):
        at = 10 * MS * k + 1_000
        process.range(f"my turn {k}", at, at + 9 * MS)
        process.kernel("gemm", at + MS, at + 8 * MS + seed, launch_ns=at + 500)
    return process.trace.write(path.with_suffix(".sqlite"))


def kernels_alone(path: Path, seed: int) -> Path:
    return written(path.with_suffix(".sqlite"), [STEP] * 8, period_ns=1_000 + 10 * seed, kernel_ns=50 + seed)


def without_launches(path: Path, seed: int) -> Path:
    return written(
        path.with_suffix(".sqlite"), [STEP] * 8, period_ns=1_000 + 10 * seed, kernel_ns=50 + seed, lag_ns=None
    )


def micro_batches(path: Path, seed: int) -> Path:
    """Four alike in each step, of which the range alone says where they begin."""
    process = TraceBuilder().process()
    for k in range(6):
        at = 40 * MS * k + 1_000
        process.range(f"train step {k}", at, at + 39 * MS)
        for place, name in enumerate(KERNELS * 4):
            start = at + 10_000 + place * MS
            process.kernel(name, start, start + 500_000 + seed, launch_ns=start - 500)
    return process.trace.write(path.with_suffix(".sqlite"))


def nothing(path: Path, seed: int) -> Path:
    steps = [[f"kernel_{number}" for number in range(12)]]
    return written(path.with_suffix(".sqlite"), steps, kernel_ns=50 + seed)


def awkward(name: str) -> Callable[[Path, int], Path]:
    return lambda path, seed: AWKWARD[name].write(path, Format.NSYS, seed)


CASES: dict[str, tuple[Callable[[Path, int], Path], Anchor | None, str]] = {
    "a framework's steps": (framework, "ProfilerStep#%", "step = range 'ProfilerStep#%', one of 6 (--window 3)"),
    "two steps": (
        partial(framework, steps=2),
        "ProfilerStep#%",
        "step = range 'ProfilerStep#%', one of 2 (--window 0)",
    ),
    "a framework's only step": (one_step, "ProfilerStep#%", "'ProfilerStep#%', the only one (8 × layers)"),
    "a range of one's own": (own_range, "my turn %", "step = range 'my turn %', one of 8 (--window 4)"),
    "a range, and few kernels": (few_kernels, "my turn %", "step = range 'my turn %', one of 8 (--window 4)"),
    "kernels alone": (kernels_alone, KernelAnchor("embed"), "kernel embed"),
    "no launches": (without_launches, KernelAnchor("embed"), "step = kernel embed to the next, one of "),
    "steps of micro-batches": (micro_batches, "train step %", "step = range 'train step %', one of 6 (--window 3)"),
    "nothing": (nothing, None, "the whole run is measured: no sequence of kernels repeats"),
    "prefill and decode": (awkward("prefill and decode by turns"), None, "kinds, which have no median in common"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.sampled(5)
def test_the_commands_agree(project: Project, case: str) -> None:
    write, anchor, says = CASES[case]
    trace, other = write(project.root / "run", 1), write(project.root / "other", 2)
    words = None if anchor is None else format_anchor(anchor)
    told = "no anchor (" if anchor is None else describe_convention(Convention("", anchor))
    assert says in project.command("show", trace, code=0).splitlines()[0]
    measured = screen(trace).environment.selection
    assert (None if measured.anchor is None else format_anchor(measured.anchor)) == words
    which = "" if measured.index is None else f", {format_ordinal(measured.index + 1)} of {measured.anchor_count}, "
    project.command("init", trace, "-o", "gate.nsys.yaml", code=0)
    text = (project.root / "gate.nsys.yaml").read_text()
    assert ("window: run\n" in text) is (anchor is None)
    assert anchor is None or "kineto" in text or f"  anchor: {format_anchor(anchor)}\n" in text
    project.command("check", trace, "--format=json")
    found = json.loads(project.result.stdout.str())["run"]
    assert (found["anchored"], told in found["convention"]) == (anchor is not None, True)
    compared = project.command("compare", trace, other)
    assert told in compared
    assert which in compared
    with open_run(trace) as run:
        assert run.convention.anchor == anchor
    window = "" if anchor is not None else ", window: run"
    few = "quality: {anchors: 2}\n" if measured.anchor_count == 2 else ""
    project.gate(few + "assertions:\n  - {assert: compute < 9s" + window + "}", "own.nsys.yaml")
    said = project.pytest("own.nsys.yaml", f"--nsys-trace={trace}", "-v", code=0)
    assert (
        "the trace; " if anchor is None else "kineto" if "kineto" in text else sanitize_line(str(anchor), 60)
    ) in said
    assert which in said
    assert which in project.pytest("gate.nsys.yaml", "-v", code=0)


def test_a_written_anchor_is_never_searched(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = kernels_alone(project.root / "run", 1)
    project.command("init", trace, "-o", "gate.nsys.yaml", code=0)
    project.name = "auto.nsys.yaml"
    project.gate("- step time below baseline plus 5%")
    project.refresh(f"--nsys-trace={trace}")

    def refused(run: Run) -> None:
        raise AssertionError(f"{run.path} was searched")

    monkeypatch.setattr("pytest_nsys.analysis.steps.convention_fit.search_steps", refused)
    project.pytest("gate.nsys.yaml", code=0)
    slower = kernels_alone(project.root / "slower", 20)
    said = project.pytest("gate.nsys.yaml", f"--nsys-trace={slower}", code=1)
    assert "was searched" not in said
    assert "--convention gate.nsys.yaml" in said
    said = project.pytest("auto.nsys.yaml", f"--nsys-trace={slower}", "-v", code=1)
    assert "anchor '{kernel: embed}' (found in the baseline" in said
