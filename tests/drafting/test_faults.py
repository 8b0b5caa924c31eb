"""Is a drafted gate red where a run got worse? Faults put into traces, and for each which sentence tells of it.

``RED`` names the sentence by its metric. A cell that is not there does not apply: no communication, one rank, no steps.
"""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.analysis.capture_cache import CaptureCache
from pytest_nsys.cli.init import Traces, drafted, store_rows
from pytest_nsys.core.errors import NsysError
from pytest_nsys.drafting.gate_text import gate_text
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.model import GateFile, Outcome
from pytest_nsys.stored.baselines.store import BaselineStore, store_of
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from pytest_nsys.verdicts.stored_baseline import StoredBaseline
from tests.support.injections import FAULTS, Tape, noise, tape
from tests.support.reference_data import DUALPIPE, REAL
from tests.support.samples.fsdp import FsdpShape, write_fsdp

FSDP, MEMORY = "fsdp", "fsdp with memory"
TRACES = {
    "pp1_cp2": DUALPIPE / "pp1_cp2_ep2.sqlite",
    "pp2_ep2": DUALPIPE / "pp2_ep2.sqlite",
    "mfu": REAL / "mfu_2gpu_before.sqlite",
    "hta": REAL / "hta_nccl_data.json.gz",
    "sglang": REAL / "inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz",
    "jax": REAL / "jax_te_attn.trace.json.gz",
}

ERROR = "error"
"""No window is left to judge, or anchors have no kernel."""

GREEN = ""

_ALL = (FSDP, *TRACES)
_COMMUNICATING = (FSDP, "pp1_cp2", "pp2_ep2", "mfu", "hta")
_STEPS = (FSDP, "pp1_cp2", "pp2_ep2", "mfu", "hta", "jax")
_RANKS = (FSDP, "pp1_cp2", "pp2_ep2", "mfu")

RED: Mapping[str, Mapping[str, str]] = {
    "step +10%": {**dict.fromkeys(_STEPS, "period_ns"), "sglang": "window_ns"},
    "loader stall between steps": dict.fromkeys(_STEPS, "period_ns"),
    "compute +10% in place": dict.fromkeys(_ALL, "compute_ns"),
    "half the kernels": dict.fromkeys(_ALL, "launches"),
    "a third replaced": dict.fromkeys(_ALL, "kernel_share"),
    "NCCL renamed": dict.fromkeys(_COMMUNICATING, "kernel_share"),
    "one rank +15%": dict.fromkeys(_RANKS, "period_ns"),
    "60 syncs more": dict.fromkeys(_ALL, "syncs"),
    "launch gaps stretched": {**dict.fromkeys(_STEPS, "period_ns"), "sglang": "window_ns"},
    "communication removed": dict.fromkeys(_COMMUNICATING, "kernel_share"),
    "communication halved": dict.fromkeys(_COMMUNICATING, "launches"),
    "communication twice as long": {**dict.fromkeys(_COMMUNICATING, "exposed_ns"), "mfu": "barrier_ns"},
    "longest fifth of communication lost": {
        **dict.fromkeys((FSDP, "pp1_cp2", "pp2_ep2"), "launches"),
        "mfu": GREEN,  # they are all of the warm-up: none is in the window, and no figure of it moves
        "hta": ERROR,
    },
    "kernels duplicated": dict.fromkeys(_ALL, "launches"),
    "a hole": {
        **dict.fromkeys((FSDP, "hta", "sglang"), "launches"),
        **dict.fromkeys(("pp1_cp2", "pp2_ep2", "mfu", "jax"), ERROR),
    },
    "first 40% lost": {**dict.fromkeys(_ALL, ERROR), **dict.fromkeys(("hta", "sglang"), "launches")},
    "memory doubled": {MEMORY: "peak_allocated_bytes"},
}


@dataclass(frozen=True)
class Drafted:
    """A trace, the gate file that ``init`` drafted for it, and its baseline."""

    trace: Path
    gate: GateFile
    store: BaselineStore

    def tape(self) -> Tape:
        anchored = self.gate.window != "run"
        return tape(self.trace, self.gate.resolved_convention.anchor if anchored else None)

    def judged(self, trace: Path) -> dict[str, Outcome]:
        """How each sentence ends, by its metric; a warning is no *passed*."""
        found = {}
        with contextlib.closing(CaptureCache()) as library:
            captures = library.captures([str(trace)], trace.parent, self.gate.resolved_convention)
            context = GateContext(captures, self.gate, StoredBaseline(captures, self.gate, self.store))
            for assertion in self.gate.assertions:
                try:
                    verdict = evaluate(assertion, context)
                except NsysError:
                    found[assertion.metric] = Outcome.ERROR
                else:
                    warned = verdict.outcome is Outcome.PASSED and verdict.warnings
                    found[assertion.metric] = Outcome.INCONCLUSIVE if warned else verdict.outcome
        return found

    def red(self, fault: str, folder: Path) -> set[str]:
        """The metrics of the sentences that are red with the fault, and ERROR where one is none to judge."""
        on = self.tape()
        FAULTS[fault](on)
        found = self.judged(on.write(folder / "run"))
        red = {metric for metric, outcome in found.items() if outcome not in (Outcome.PASSED, Outcome.IMPROVED)}
        return red | ({ERROR} if Outcome.ERROR in found.values() else set())


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
        trace = TRACES.get(name) or write_fsdp(folder / "trace", FsdpShape())
        if name == MEMORY:
            _with_memory(trace)
        path = folder / "gates.nsys.yaml"
        with contextlib.closing(CaptureCache()) as library:
            draft, left = drafted(Traces(library, (str(trace),)), path)
            assert left == []
            path.write_text(gate_text(draft), encoding="utf-8")
            gate = load_gate_file(path)
            store = store_of(path, folder / "baselines", folder)
            store_rows(gate, library.captures([str(trace)], folder, gate.resolved_convention), store)
        gates[name] = Drafted(trace, gate, store)
    return gates[name]


def _each(*names: str) -> list[Any]:
    marks = (pytest.mark.slow, pytest.mark.reference)
    return [pytest.param(name, marks=marks if name in TRACES else ()) for name in names]


@pytest.mark.parametrize("name", _each(FSDP, MEMORY, *TRACES))
def test_a_trace_is_green_on_its_own_gate_and_with_noise(drafted_for: Drafted, tmp_path: Path) -> None:
    """Without a warning on itself, and without a red where every time is a little other."""
    own = drafted_for.judged(drafted_for.trace)
    assert own == dict.fromkeys(own, Outcome.PASSED)
    assert drafted_for.gate.assertions[12:] == ()
    unchanged = drafted_for.judged(drafted_for.tape().write(tmp_path / "same"))
    assert unchanged == own
    on = drafted_for.tape()
    noise(on)
    found = drafted_for.judged(on.write(tmp_path / "noisy"))
    assert set(found.values()) <= {Outcome.PASSED, Outcome.IMPROVED}, found


CELLS = [
    pytest.param(*each.values, fault, marks=each.marks)
    for each in _each(FSDP, MEMORY, *TRACES)
    for fault, row in RED.items()
    if each.values[0] in row
]


@pytest.mark.parametrize(("name", "fault"), CELLS)
def test_a_fault_is_red(drafted_for: Drafted, tmp_path: Path, name: str, fault: str) -> None:
    expected, red = RED[fault][name], drafted_for.red(fault, tmp_path)
    if expected == GREEN:
        assert red == set()
    else:
        assert expected in red


def test_every_fault_is_in_the_table() -> None:
    assert RED.keys() == FAULTS.keys()
