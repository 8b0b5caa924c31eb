"""Is a drafted gate red where a run got worse? Faults put into traces, and for each which sentence tells of it.

``RED`` names the sentence by its metric. A cell that is not there does not apply: no communication, one rank, no steps.
"""

import contextlib
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.drafting.sentences import MAX_SENTENCES
from pytest_nsys.gates.model import Outcome
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from pytest_nsys.verdicts.stored_baseline import StoredBaseline
from tests.support.drafted import ERROR, Drafted
from tests.support.injections import FAULTS, noise
from tests.support.reference_data import DUALPIPE, REAL
from tests.support.samples.fsdp import FsdpShape, write_fsdp
from tests.support.samples.kineto import KinetoBuilder

FSDP, ONE, MEMORY = "fsdp", "fsdp of one step", "fsdp with memory"
TRACES = {
    "pp1_cp2": DUALPIPE / "pp1_cp2_ep2.sqlite",
    "pp2_ep2": DUALPIPE / "pp2_ep2.sqlite",
    "mfu": REAL / "mfu_2gpu_before.sqlite",
    "hta": REAL / "hta_nccl_data.json.gz",
    "sglang": REAL / "inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz",
    "jax": REAL / "jax_te_attn.trace.json.gz",
}

_ALL = (FSDP, ONE, *TRACES)
_COMMUNICATING = (FSDP, ONE, "pp1_cp2", "pp2_ep2", "mfu", "hta")
_STEPS = (FSDP, "pp1_cp2", "pp2_ep2", "hta", "jax")
_RANKS = (FSDP, ONE, "pp1_cp2", "pp2_ep2", "mfu")

_STEP_TIME = {**dict.fromkeys(_STEPS, "step_time_ns"), **dict.fromkeys(("pp1_cp2", "pp2_ep2"), "period_ns")}
"""What holds the length of a step: of chunks, of which a step has several, it is not known."""
_LONGER = {**_STEP_TIME, **dict.fromkeys((ONE, "sglang"), "step_time_ns"), "mfu": "window_ns"}
"""The same where all that ran is one window."""

RED: Mapping[str, Mapping[str, str]] = {
    "step +10%": _LONGER,
    "loader stall between steps": _STEP_TIME,
    "compute +10% in place": dict.fromkeys(_ALL, "compute_ns"),
    "half the kernels": dict.fromkeys(_ALL, "launches"),
    "a third replaced": dict.fromkeys(_ALL, "kernel_share"),
    "NCCL renamed": dict.fromkeys(_COMMUNICATING, "kernel_share"),
    "one rank +15%": {name: _LONGER[name] for name in _RANKS},
    "60 syncs more": dict.fromkeys(_ALL, "syncs"),
    "launch gaps stretched": _LONGER,
    "communication removed": dict.fromkeys(_COMMUNICATING, "kernel_share"),
    "communication halved": dict.fromkeys(_COMMUNICATING, "launches"),
    "communication twice as long": {**dict.fromkeys(_COMMUNICATING, "exposed_ns"), "mfu": "barrier_ns"},
    "longest fifth of communication lost": {
        **dict.fromkeys((FSDP, ONE, "pp1_cp2", "pp2_ep2", "mfu"), "launches"),
        "hta": ERROR,
    },
    "kernels duplicated": dict.fromkeys(_ALL, "launches"),
    "a hole": {
        **dict.fromkeys((FSDP, ONE, "hta", "sglang", "mfu"), "launches"),
        **dict.fromkeys(("pp1_cp2", "pp2_ep2", "jax"), ERROR),
    },
    "first 40% lost": {**dict.fromkeys(_ALL, ERROR), **dict.fromkeys((ONE, "hta", "sglang", "mfu"), "launches")},
    "memory doubled": {MEMORY: "peak_allocated_bytes"},
}


def _with_memory(folder: Path) -> Path:
    """The files of a run, in which a step allocates 2 GiB and frees half of it."""
    for device, path in enumerate(sorted(folder.iterdir())):
        root = json.loads(gzip.decompress(path.read_bytes()))
        steps = [event for event in root["traceEvents"] if event["name"].startswith("ProfilerStep#")]
        for number, at in enumerate(time for step in steps for time in (step["ts"] + 10, step["ts"] + 500)):
            size = (1 if number % 2 else -1) * (1 << 30) if number else 1 << 30
            total = (2 - number % 2) << 30
            args = {"Device Type": 1, "Device Id": device, "Bytes": size, "Total Allocated": total}
            root["traceEvents"].append({"ph": "i", "name": "[memory]", "ts": at, "pid": 0, "tid": 0, "args": args})
        path.write_bytes(gzip.compress(json.dumps(root).encode(), 1))
    return folder


@pytest.fixture(scope="module")
def gates() -> dict[str, Drafted]:
    """Those that were drafted, by trace; a test drafts what is missing."""
    return {}


@pytest.fixture
def drafted_for(gates: dict[str, Drafted], tmp_path_factory: pytest.TempPathFactory, name: str) -> Drafted:
    if name not in gates:
        folder = tmp_path_factory.mktemp("drafted")
        trace = TRACES.get(name) or write_fsdp(folder / "trace", FsdpShape(steps=1 if name == ONE else 6))
        if name == MEMORY:
            _with_memory(trace)
        gates[name] = Drafted.of(trace, folder)
    return gates[name]


def _each(*names: str) -> list[Any]:
    marks = (pytest.mark.slow, pytest.mark.reference)
    return [pytest.param(name, marks=marks if name in TRACES else ()) for name in names]


@pytest.mark.parametrize("name", _each(FSDP, ONE, MEMORY, *TRACES))
@pytest.mark.sampled(3)
def test_a_trace_is_green_on_its_own_gate_and_with_noise(drafted_for: Drafted, tmp_path: Path) -> None:
    """Without a warning on itself, and without a red where every time is a little other."""
    own = drafted_for.judged(drafted_for.trace)
    assert own == dict.fromkeys(own, Outcome.PASSED)
    assert drafted_for.gate.assertions[MAX_SENTENCES:] == ()
    assert drafted_for.judged(drafted_for.tape().write(tmp_path / "same")) == own
    on = drafted_for.tape()
    noise(on)
    found = drafted_for.judged(on.write(tmp_path / "noisy"))
    assert set(found.values()) <= {Outcome.PASSED, Outcome.IMPROVED}, found


CELLS = [
    pytest.param(*each.values, fault, marks=each.marks)
    for each in _each(FSDP, ONE, MEMORY, *TRACES)
    for fault, row in RED.items()
    if each.values[0] in row
]


@pytest.mark.parametrize(("name", "fault"), CELLS)
@pytest.mark.sampled(3)
def test_a_fault_is_red(drafted_for: Drafted, tmp_path: Path, name: str, fault: str) -> None:
    expected, red = RED[fault][name], drafted_for.red(fault, tmp_path)
    assert expected in red


def test_every_fault_is_in_the_table() -> None:
    assert RED.keys() == FAULTS.keys()


STEP_NS = 20_000_000
UNSTAGED_US, SENT_US = 1_000, 1_600


def _partly_staged(path: Path, *, sent_us: int = UNSTAGED_US, more: int = 0) -> Path:
    """Steps of a forward and a backward that have a stage, and of a SendRecv and small kernels that have none."""
    trace = KinetoBuilder(rank=0, world=1, pid=100, device=0)
    for step in range(8):
        at = step * STEP_NS + 1_000
        trace.range(f"ProfilerStep#{step}", at, at + STEP_NS - 1_000)
        for place, stage in enumerate(("forward", "backward")):
            begin = at + place * 6_000_000 + 1_000
            trace.range(stage, begin, begin + 50_000)
            trace.kernel("gemm", begin + 100_000, begin + 4_000_000, launch_ns=begin + 1_000)
            reduced = begin + 3_500_000
            trace.kernel("ncclDevKernel_AllReduce", reduced, reduced + 1_000_000, stream=20, launch_ns=begin + 9_000)
        sent = at + 14_000_000
        trace.kernel("ncclDevKernel_SendRecv", sent, sent + sent_us * 1_000, stream=20, launch_ns=sent - 100_000)
        for number in range(3 + more):
            begin = at + 13_000_000 + number * 20_000
            trace.kernel("scale", begin, begin + 10_000, launch_ns=begin - 15_000)
        trace.kernel("adam", at + 18_000_000, at + 19_000_000, launch_ns=at + 15_000_000)
    return trace.write(path)


@pytest.mark.parametrize(
    ("sent_us", "more", "red"),
    [(UNSTAGED_US, 0, []), (SENT_US, 0, ["exposed without a stage"]), (UNSTAGED_US, 4, ["launches without a stage"])],
)
def test_what_has_no_stage_is_judged(tmp_path: Path, sent_us: int, more: int, red: list[str]) -> None:
    """Of a stage expression that leaves some kernels out, no sentence about stages tells."""
    own, worse = _partly_staged(tmp_path / "own.json"), _partly_staged(tmp_path / "w.json", sent_us=sent_us, more=more)
    drafted = Drafted.of(own, tmp_path)
    gate, store = drafted.gate, drafted.store
    with contextlib.closing(CaptureCache()) as library:
        captures = library.open_captures([str(worse)], tmp_path, gate.resolved_convention)
        context = GateContext(captures, gate, StoredBaseline(captures, gate, store))
        failed = [a.full_name for a in gate.assertions if evaluate(a, context).outcome is Outcome.FAILED]
    assert {"exposed below baseline plus max(10%, 50us)", "launches == baseline"} <= {
        a.full_name for a in gate.assertions
    }
    assert [name for name in failed if "without a stage" in name] == red
    assert not {"exposed below baseline plus max(10%, 50us)", "launches == baseline"} & set(failed)
