"""Which steps are found in the kernels of real traces? Those that labels, or eyes, say are there."""

import functools
import json
import re
from contextlib import closing
from typing import Any

import pytest

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.steps.convention_fit import OPENING_CONVENTION
from pytest_nsys.analysis.steps.search_result import FoundUnits, NoUnits, UnitType
from pytest_nsys.analysis.steps.step_search import search_steps
from pytest_nsys.core.workload import Workload
from tests.support.reference_data import MORE

pytestmark = pytest.mark.reference


def expected() -> dict[str, Any]:
    """What is in each trace, by its path; empty where the traces are not at hand."""
    path = MORE / "steps_expected.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return {name: said for name, said in known.items() if isinstance(said, dict)}


@functools.cache
def found(trace: str) -> FoundUnits | NoUnits:
    with closing(CaptureCache()) as library:
        return search_steps(library.open_one_run([trace], MORE, OPENING_CONVENTION, Workload()).runs[0])


@pytest.mark.parametrize("trace", expected())
@pytest.mark.sampled(4)
def test_the_units_of_a_real_trace_are_found(trace: str) -> None:
    said, units = expected()[trace], found(trace)
    if isinstance(units, NoUnits):
        assert set(said["units"]) == {None}
        return
    assert [units.count_by_rank[rank] for rank in sorted(units.count_by_rank)] == said["units"]
    assert units.unit_type == said["is"]
    if "period_ns" in said:
        middle = re.match(r"[\d.]+ ms", said["period_ns"])
        assert middle is not None
        assert units.period_ns == pytest.approx(float(middle[0].split()[0]) * 1e6, rel=0.01)


@pytest.mark.parametrize("trace", ["hta_ns_resolution.json.gz", "../real/hta_nccl_data.json.gz"])
def test_a_range_that_starts_once_in_each_step_is_named(trace: str) -> None:
    units = found(trace)
    assert isinstance(units, FoundUnits)
    assert (units.unit_type, units.pattern) == (UnitType.STEP, "ProfilerStep#%")


def test_a_layer_tells_the_step_that_holds_it() -> None:
    units = found("deepseek_dualpipe_train.json.gz")
    assert isinstance(units, FoundUnits)
    assert (units.unit_type, units.holder) == (UnitType.PART, "ProfilerStep#1")
