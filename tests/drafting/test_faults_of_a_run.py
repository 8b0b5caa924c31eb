"""Is a drafted gate red where the step in the middle is as it was? Time between steps, slow steps, a leak, parts of a
step that not every step has, a step that runs nothing: in every format, with the sentence that leads.

``RED`` names the sentences, ``HEADLINE`` how the first line of a report begins.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_nsys.gates.model import Outcome
from tests.support.drafted import Drafted
from tests.support.samples.formats import ENDINGS, Format
from tests.support.training_run import GIB, MICRO, MS, OPTIMIZER, PLAIN, REDUCE, STEPS, WHOLE, Training, changed, slower

REMEMBERED = Training(memory=True)
ACCUMULATED = Training(steps=(MICRO, MICRO, MICRO, WHOLE) * (STEPS // 4))
WITH_AN_EMPTY_STEP = changed(PLAIN, range(7, 8), lambda _: {})

EVERY = range(STEPS)
FAULTS: Mapping[str, tuple[Training, Training]] = {
    "a host gap between steps": (PLAIN, replace(PLAIN, loading_ns=3 * MS)),
    "a slow last quarter": (PLAIN, changed(PLAIN, range(STEPS * 3 // 4, STEPS), lambda own: slower(own, 100))),
    "one slow step in ten": (PLAIN, changed(PLAIN, range(5, STEPS, 10), lambda own: slower(own, 200))),
    "a leak": (REMEMBERED, replace(REMEMBERED, leak_bytes=GIB // 4)),
    "a slow optimizer every fourth step": (
        ACCUMULATED,
        changed(ACCUMULATED, EVERY, lambda own: slower(own, 200, REDUCE, OPTIMIZER)),
    ),
    "a slow optimizer beside an empty step": (
        WITH_AN_EMPTY_STEP,
        changed(WITH_AN_EMPTY_STEP, EVERY, lambda own: slower(own, 200, OPTIMIZER)),
    ),
}
"""What was, and what is worse."""

_LATER = r"Step unchanged \(4\.22 ms\)"
HEADLINE: Mapping[str, str] = {
    "a host gap between steps": r"Step 71% slower \(4\.22 → 7\.22 ms\): the GPU waits for the host between steps: 0\.0",
    "a slow last quarter": rf"{_LATER}: all kernels alike \+100%, p90 of period 4\.22 → 8\.37 ms",
    "one slow step in ten": rf"{_LATER}; mean of period_ns \+18% \(4\.22 → 4\.97 ms\), rank 0",
    "a leak": rf"{_LATER}; peak_allocated_bytes \+575% \(1\.07 → 7\.25 GB\), rank 0",
    "a slow optimizer every fourth step": r"Step 16% slower \(13\.6 → 15\.8 ms\): AllReduce 200% longer",
    "a slow optimizer beside an empty step": r"Step 19% slower \(4\.22 → 5\.02 ms\): multi_tensor_apply_kernel 200%",
}
"""What the sentence of all begins with."""

_STEP, _MEAN, _P90 = "step time", "mean step time", "p90 step time"
RED: Mapping[str, set[str]] = {
    "a host gap between steps": {_STEP, _MEAN, _P90, "between steps", "launch starved", "idle"},
    "a slow last quarter": {_MEAN, _P90},
    "one slow step in ten": {_MEAN},
    "a leak": {"peak allocated"},
    "a slow optimizer every fourth step": {_STEP, _MEAN, "exposed", "blocking comm max", "compute"},
    "a slow optimizer beside an empty step": {_STEP, _MEAN, _P90, "compute"},
}
"""Of the drafted sentences, what stands before their limits."""


@pytest.mark.parametrize("format", list(Format))
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.sampled(3)
def test_what_the_step_in_the_middle_does_not_show_is_red(tmp_path: Path, fault: str, format: Format) -> None:
    """But for memory, of which a trace of JAX says nothing."""
    was, worse = FAULTS[fault]
    drafted = Drafted.of(was.write(tmp_path / f"base.{ENDINGS[format]}", format), tmp_path)
    red, sentence = drafted.told(worse.write(tmp_path / f"head.{ENDINGS[format]}", format))
    found = {record.verdict.assertion.full_name.split(" below ")[0] for record in red}
    if fault == "a leak" and format is Format.JAX:
        assert found == set()
        assert sentence.startswith("All 14 assertions passed")
        return
    assert found == RED[fault]
    assert re.match(HEADLINE[fault], sentence), sentence
    if fault == "a host gap between steps":  # what the host does then is a range of its thread
        assert sentence.endswith(" in load_batch") == (format is not Format.JAX), sentence


@pytest.mark.parametrize("format", list(Format))
@pytest.mark.parametrize("was", [PLAIN, REMEMBERED, ACCUMULATED, WITH_AN_EMPTY_STEP])
@pytest.mark.sampled(3)
def test_the_same_run_is_green(tmp_path: Path, was: Training, format: Format) -> None:
    drafted = Drafted.of(was.write(tmp_path / f"base.{ENDINGS[format]}", format), tmp_path)
    found = drafted.judged(drafted.trace)
    assert found == dict.fromkeys(found, Outcome.PASSED)
