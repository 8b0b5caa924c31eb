"""Ten programs in which nobody marked a step: is the right one named, and is the drafted gate red where it should be?

The truth stands beside each program in ``tests/support/awkward.py``. Where no step can be told, none may be claimed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_nsys.analysis.capture_cache import CaptureCache
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.step_facts import UnitIs
from pytest_nsys.core.conventions import BUILT_IN
from pytest_nsys.core.exact import median
from pytest_nsys.core.model import Value
from pytest_nsys.gates.model import Outcome
from tests.support.awkward import AWKWARD, LABELS, Awkward
from tests.support.commands import run
from tests.support.drafted import ERROR, Drafted
from tests.support.injections import FAULTS
from tests.support.samples.formats import Format

FORMATS = (Format.NSYS, Format.KINETO)
EACH = pytest.mark.parametrize(("name", "format"), [(name, format) for name in AWKWARD for format in FORMATS])


@dataclass(frozen=True)
class Made:
    """The trace of a program, and what ``init`` drafted for it."""

    case: Awkward
    format: Format
    own: Drafted

    @property
    def marked(self) -> bool:
        """Whether the program has steps that can be told from its kernels."""
        return self.case.found is UnitIs.STEP


@pytest.fixture(scope="module")
def every() -> dict[tuple[str, Format], Made]:
    """Those that were made; a test makes what is missing."""
    return {}


@pytest.fixture
def made(
    every: dict[tuple[str, Format], Made], tmp_path_factory: pytest.TempPathFactory, name: str, format: Format
) -> Made:
    if (name, format) not in every:
        folder, case = tmp_path_factory.mktemp("awkward"), AWKWARD[name]
        every[name, format] = Made(case, format, Drafted.of(case.write(folder / "trace", format), folder))
    return every[name, format]


def spans(opened: Run) -> Mapping[int, list[int]]:
    """From each anchor to the next, by rank."""
    return {
        rank.number: [b.start_ns - a.start_ns for a, b in zip(each, each[1:], strict=False)]
        for rank in opened.ranks
        for each in [list(opened.anchors(rank))]
    }


@EACH
def test_the_step_is_named(made: Made, tmp_path: Path, name: str, format: Format) -> None:
    """All of them, on all ranks, as long as they are by labels that nobody saw; or the whole run is the window."""
    gate = made.own.gate
    if not made.marked:
        assert gate.window == "run"
        return
    assert gate.window != "run"
    labelled = made.case.write(tmp_path / "labelled", format, labelled=True)
    with contextlib.closing(CaptureCache()) as library:
        truth = library.captures([str(labelled)], tmp_path, BUILT_IN["generic"].with_anchor(LABELS)).runs[0]
        found = library.captures([str(made.own.trace)], tmp_path, gate.resolved_convention).runs[0]
        periods = {rank: median(each) for rank, each in spans(truth).items()}
        counts = [len(found.anchors(rank)) for rank in found.ranks]
        for rank in found.ranks:
            own: Value = median([each.end_ns - each.start_ns for each in found.anchors(rank)])
            assert abs(own - periods[rank.number]) <= periods[rank.number] / 100
    whole = [steps - made.case.odd for steps in made.case.steps]
    assert counts in (whole, [steps - 1 for steps in whole])
