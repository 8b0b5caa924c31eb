"""Ten programs in which nobody marked a step: is the right one named, and is the drafted gate red where it should be?

The truth stands beside each program in ``tests/support/awkward.py``. Where no step can be told, none may be claimed.
``RED`` names the sentence that tells of a fault, by its metric.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.steps.convention_fit import OPENING_CONVENTION
from pytest_nsys.analysis.steps.search_result import FoundUnits, UnitType
from pytest_nsys.analysis.steps.step_search import search_steps
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.exact import distance, median
from pytest_nsys.core.model import KernelsMode, Value
from pytest_nsys.gates.model import Outcome
from tests.support.awkward import AWKWARD, LABELS
from tests.support.commands import run
from tests.support.drafted import Drafted
from tests.support.injections import FAULTS, noise, tape
from tests.support.samples.formats import Format

FORMATS = (Format.NSYS, Format.KINETO)
EACH = pytest.mark.parametrize(("name", "format"), [(name, format) for name in AWKWARD for format in FORMATS])


@EACH
@pytest.mark.sampled(5)
def test_what_repeats_is_found(tmp_path: Path, name: str, format: Format) -> None:
    """As often and as far apart as labels have it that the search does not see, on each rank; and what it is."""
    case = AWKWARD[name]
    own, labelled = case.write(tmp_path / "own", format), case.write(tmp_path / "labelled", format, labelled=True)
    with closing(CaptureCache()) as library:
        found = search_steps(library.open_captures([str(own)], tmp_path, OPENING_CONVENTION).runs[0])
        truth = library.open_captures(
            [str(labelled)], tmp_path, BUILT_IN_CONVENTIONS["generic"].with_anchor(LABELS)
        ).runs[0]
        starts = {rank.number: [each.start_ns for each in truth.find_anchors(rank)] for rank in truth.ranks}
        assert isinstance(found, FoundUnits)
        assert found.unit_type is case.found
        if case.found is UnitType.STEP:
            mode = KernelsMode.LAUNCHED if found.is_by_launch else KernelsMode.CLIPPED
            measured = replace(OPENING_CONVENTION.with_anchor(found.anchor), kernels=mode)
            run = library.open_captures([str(own)], tmp_path, measured).runs[0]
            for rank in run.ranks:  # also those of other kernels, and the last
                assert {each.start_ns for each in found.units_by_rank[rank.number]} <= {
                    each.start_ns for each in run.find_anchors(rank)
                }
            lost = {steps - case.odd - found.count_by_rank[rank] for rank, steps in enumerate(case.steps)}
            assert lost in ({0}, {1}, {2})  # at either end one, which nothing of the trace begins or ends
            period: Value = max(median([b - a for a, b in pairwise(each)]) for each in starts.values())
            assert 100 * distance(found.period_ns, period) <= period


@pytest.fixture(scope="module")
def gates() -> dict[tuple[str, Format], Drafted]:
    """Those that were drafted; a test drafts what is missing."""
    return {}


@pytest.fixture
def drafted(
    gates: dict[tuple[str, Format], Drafted], tmp_path_factory: pytest.TempPathFactory, name: str, format: Format
) -> Drafted:
    if (name, format) not in gates:
        folder = tmp_path_factory.mktemp("drafted")
        gates[name, format] = Drafted.of(AWKWARD[name].write(folder / "trace", format), folder)
    return gates[name, format]


SMALL = ("layers without names", "a graph for half of the step", "no launches")
"""Programs whose tests take a second: in every run of the tests, the others in slow ones."""

EACH_PROGRAM = [pytest.param(name, marks=() if name in SMALL else pytest.mark.slow) for name in AWKWARD]


@pytest.mark.parametrize("format", [Format.NSYS, pytest.param(Format.KINETO, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", EACH_PROGRAM)
def test_the_drafted_gate_is_of_the_step_and_green(drafted: Drafted, tmp_path: Path, name: str, format: Format) -> None:
    """On its own trace without a warning, and on other runs of the program, in which all took a little other times."""
    marked = AWKWARD[name].found is UnitType.STEP
    assert (drafted.gate.window, drafted.gate.resolved_convention.kernel_anchor is not None) == (
        ("median", True) if marked else ("run", False)
    )
    own = drafted.judged(drafted.trace)
    assert own == dict.fromkeys(own, Outcome.PASSED)
    for seed in range(2, 5):
        found = drafted.judged(AWKWARD[name].write(tmp_path / str(seed), format, seed))
        assert set(found.values()) <= {Outcome.PASSED, Outcome.IMPROVED}, (seed, found)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.sampled(3)
def test_pytest_runs_what_was_drafted(pytester: pytest.Pytester, name: str) -> None:
    """Green on its own trace and on another run, red where each kernel ran twice."""
    own, other = (AWKWARD[name].write(pytester.path / str(seed), Format.KINETO, seed) for seed in (1, 2))
    run("init", own, "-o", pytester.path / "gates.nsys.yaml", code=0)
    assert pytester.runpytest("gates.nsys.yaml").ret == pytest.ExitCode.OK
    assert pytester.runpytest("gates.nsys.yaml", f"--nsys-trace={other}").ret == pytest.ExitCode.OK
    on = tape(own)
    FAULTS["kernels duplicated"](on)
    worse = on.write(pytester.path / "worse")
    assert pytester.runpytest("gates.nsys.yaml", f"--nsys-trace={worse}").ret == pytest.ExitCode.TESTS_FAILED


_UNITS = {
    "step +10%": "window_ns",
    "loader stall between steps": "step_time_ns",
    "compute +10% in place": "compute_ns",
    "half the kernels": "launches",
    "a third replaced": "kernel_share",
    "one rank +15%": "window_ns",
    "60 syncs more": "syncs",
    "launch gaps stretched": "window_ns",
    "kernels duplicated": "launches",
    "a hole": "launches",
    "first 40% lost": "launches",
}
_COMMUNICATION = {
    "NCCL renamed": "kernel_share",
    "communication removed": "kernel_share",
    "communication halved": "idle_ns",
    "communication twice as long": "exposed_ns",
    "longest fifth of communication lost": "launches",
}
_RUN = {**_UNITS, **_COMMUNICATION, "communication twice as long": "barrier_ns"}
del _RUN["loader stall between steps"]  # no step is told
_UNHEARD = {**_UNITS, **_COMMUNICATION}
_UNHEARD |= dict.fromkeys(
    ("half the kernels", "a hole", "first 40% lost", "longest fifth of communication lost"), "idle_ns"
)
_UNHEARD["kernels duplicated"] = "comm_streams"
del _UNHEARD["communication twice as long"]  # behind the compute that stays in its place
_HIDDEN = {**_UNITS, **_COMMUNICATION}
del _HIDDEN["communication twice as long"]  # the same

_LONG_STEP = {**_UNITS, **_COMMUNICATION, "a hole": "period_ns"}
"""Of more steps the judged one may be whole: the hole is one long step beside it, which the mean counts."""


def _enough_left(faults: Mapping[str, str]) -> Mapping[str, str]:
    """Of so many steps that five and more are left, which are as good as all."""
    return {fault: metric for fault, metric in faults.items() if fault != "first 40% lost"}


RED: Mapping[str, Mapping[str, str]] = {
    **{name: {**_UNITS, **_COMMUNICATION} for name in AWKWARD},
    "warm-up steps": _enough_left(_LONG_STEP),
    "validation every third step": _enough_left(_LONG_STEP),
    "gradient accumulation": _LONG_STEP,
    "two models": _enough_left({**_HIDDEN, "a hole": "period_ns"}),
    "layers without names": _RUN,
    "a graph for half of the step": _enough_left(_UNITS),  # on one rank
    "prefill and decode by turns": _RUN,
    "no launches": _UNHEARD,
}


def _cells() -> Iterator[object]:
    """Two programs in every run of the tests, all others in slow ones."""
    for name, own in RED.items():
        for fault, metric in own.items():
            for format in FORMATS:
                quick = format is Format.NSYS and name == "a graph for half of the step"
                yield pytest.param(name, format, fault, metric, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("name", "format", "fault", "metric"), [*_cells()])
@pytest.mark.sampled(3)
def test_a_fault_is_red(drafted: Drafted, tmp_path: Path, fault: str, metric: str) -> None:
    assert metric in drafted.red(fault, tmp_path)


@pytest.mark.slow
@EACH
def test_noise_is_green(drafted: Drafted, tmp_path: Path) -> None:
    on = drafted.tape()
    noise(on)
    found = drafted.judged(on.write(tmp_path / "noisy"))
    assert set(found.values()) <= {Outcome.PASSED, Outcome.IMPROVED}, found


def test_every_fault_but_that_of_memory_is_in_the_table() -> None:
    assert {*_UNITS, *_COMMUNICATION} == FAULTS.keys() - {"memory doubled"}
