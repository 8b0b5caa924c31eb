"""How many steps does a window hold, and how long does one take? Stated, or read off the anchors, never guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.samples.builder import Process
from tests.support.kernel_traces import steps_trace, sums


def test_steps_are_stated_or_the_anchors_of_the_window(tmp_path: Path) -> None:
    path = steps_trace(tmp_path / "a.sqlite", 0, 100, 200, 300, ranks=2)
    for window, steps in (("run", 4), ("median", 1), ("first", 1), ("100:280", 2), ("step%", 1)):
        with sums(path, window=window) as found:
            assert (found.steps, found.total.ns, found.total.launches) == (steps, 60, 1), window
    with sums(path, steps=3) as found:
        assert (found.steps, found.total.ns) == (3, 80)


def anchorless(rank: int, process: Process) -> None:
    if rank:
        process.range("step 9", 900, 980)


@pytest.mark.parametrize(
    ("window", "why", "trace"),
    [
        ("run", "the window holds no anchor", {"starts": ()}),
        ("85:98", "the window holds no anchor", {}),
        ("0:130", "the window cuts an anchor", {}),
        ("run", "the ranks have from 3 to 4 anchors in the window", {"edit": anchorless}),
    ],
)
def test_steps_are_never_guessed(tmp_path: Path, window: str, why: str, trace: dict[str, Any]) -> None:
    def edit(rank: int, process: Process) -> None:
        process.kernel("gemm", 90, 95)
        trace.get("edit", lambda *_: None)(rank, process)

    path = steps_trace(tmp_path / "a.sqlite", *trace.get("starts", (0, 100, 200)), ranks=2, edit=edit)
    with sums(path, window=window) as found, pytest.raises(NothingMeasured) as error:
        _ = found.steps
    said = str(error.value)
    assert said.startswith(f"{path}: {why}, so how many steps it holds is not known; say it: ")
    assert "--steps N" in said
    with sums(path, window=window, steps=5) as found:
        assert found.steps == 5


def test_the_step_is_timed_on_anchors_but_the_one_after_the_window(tmp_path: Path) -> None:
    """What was recorded of the window is written while the next step runs, which takes longer."""
    path = steps_trace(tmp_path / "a.sqlite", 0, 100, 200, 350, 450, 550)
    with sums(path) as found:
        assert found.step_time == (100, 4), "of 100, 150, 100 and 100"
    with sums(path, window="1") as found:
        assert found.step_time == (100, 3)
    with sums(path, window="1", step_time_ns=77) as found:
        assert found.step_time == (77, None)
    slow = steps_trace(tmp_path / "b.sqlite", 0, 100, 200, 390)
    with sums(slow, window="1") as found:
        assert found.step_time == (100, 1), "anchor 2, of 190 ns, is the one after; 1 alone is steady besides"


def test_an_anchor_that_is_no_step_times_none(tmp_path: Path) -> None:
    path = steps_trace(tmp_path / "a.sqlite", 0, 100, 200)
    with sums(path, steps=1) as found:
        assert found.step_time is None
    with sums(path, steps=3) as found:
        assert found.step_time is not None
