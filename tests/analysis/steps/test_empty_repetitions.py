"""Is a repetition without a kernel a step of no work, which disqualifies no range, and is one inside another none?"""

from collections.abc import Collection
from pathlib import Path

import pytest

from pytest_nsys.analysis.steps.anchor_candidates import MedianWindowContents
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.model import KernelsMode, Span
from tests.analysis.steps.test_step_search import opened
from tests.support.commands import run
from tests.support.kernel_tapes import EVERY_NS, STEP
from tests.support.samples.builder import TraceBuilder

LEAD_NS = 3_000
WITHOUT_LAYERS = "abcdefghijklmnopqrsvwxyzt"
"""Kernels among which nothing repeats: only ranges say what a step is."""


def steps(path: Path, outer: str, empty: Collection[int], *, kernels: str = STEP, inside: bool = False) -> Path:
    """Ten steps, of which some have no kernel, with a range around all but the last kernel, the optimizer: in empty
    steps only where ``inside``.
    """
    process = TraceBuilder().process()
    at = 10_000
    for number in range(10):
        start = at
        if number not in empty:
            for letter in f"{kernels}O":
                name = "adam_kernel" if letter == "O" else f"kernel_{letter}"
                process.kernel(name, at + LEAD_NS, at + LEAD_NS + 800, launch_ns=at)
                at += EVERY_NS
        if number not in empty or inside:
            process.range("forward", start - 50, max(start, at - EVERY_NS) + 100)
        at += 5_000
        process.range(outer.format(number), start - 200, at - 300)
    return process.trace.write(path / "steps.sqlite")


@pytest.mark.parametrize("inside", [False, True], ids=["", "an inner range"])
@pytest.mark.parametrize("kernels", [STEP, WITHOUT_LAYERS], ids=["found in kernels", "found in ranges"])
@pytest.mark.parametrize("empty", [(0,), (3,), (7, 8)], ids=str)
@pytest.mark.sampled(5)
def test_the_range_of_a_whole_step_is_taken(tmp_path: Path, empty: Collection[int], kernels: str, inside: bool) -> None:
    trace = steps(tmp_path, "my turn {}", empty, kernels=kernels, inside=inside)
    assert "step = range 'my turn %', one of 10 " in run("show", trace, code=0).stdout.splitlines()[0]


def test_an_empty_step_in_the_middle_says_nothing_of_which_kernels_belong_to_a_step(tmp_path: Path) -> None:
    """In its time the last kernels of the step before run, which it did not launch."""
    with opened(steps(tmp_path, "ProfilerStep#{}", (5,)), BUILT_IN_CONVENTIONS["kineto"]) as measured:
        holds = MedianWindowContents(measured, Span.RANGE)
        assert holds[KernelsMode.LAUNCHED].kernel_count > len(STEP)


@pytest.mark.parametrize("kernels", [STEP, WITHOUT_LAYERS], ids=["found in kernels", "found in ranges"])
def test_a_range_inside_another_of_its_pattern_is_no_repetition(tmp_path: Path, kernels: str) -> None:
    trace = TraceBuilder()
    process = trace.process()
    at = 10_000
    for number in range(8):
        start = at
        for letter in kernels:
            process.kernel(f"kernel_{letter}", at + LEAD_NS, at + LEAD_NS + 800, launch_ns=at)
            at += EVERY_NS
        process.range("forward", start - 50, at - 5 * EVERY_NS)
        process.range(f"my turn {number}", start - 200, at - 300)
        process.range(f"my turn {number}", start - 100, at - 400)
        at += 1_000
    assert "step = range 'my turn %', one of " in run("show", trace.write(tmp_path / "t.sqlite"), code=0).stdout
