"""Whatever share of rows of one kind a profiler loses: is no item plainly green whose figure that moves?

Held where calls are on record: of kernels, nodes of graphs, copies, the sizes of collectives, and whole ranks.
"""

import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.model import Value
from pytest_nsys.gates.model import GateFile, Outcome
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from tests.support.gate_files import loaded
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.nccl import NcclRanges

US, MS = 1_000, 1_000_000
STEPS, RANKS = 8, 2
GATE = """version: 1
convention: {extends: generic, name: steps, anchor: step%, kernels: launched}
run: {world: 2}
assertions:
  - compute <= 1s
  - exposed <= 1s
  - idle <= 1s
  - step time <= 1s
  - mean step time <= 1s
  - launches <= 1000
  - collective time <= 1s
  - min busbw >= 0.001GB/s
"""

ROWS = {
    "kernels": "SELECT rowid FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NULL",
    "nodes of graphs": "SELECT rowid FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NOT NULL",
    "copies": "SELECT rowid FROM CUPTI_ACTIVITY_KIND_MEMCPY",
    "sizes": "SELECT rowid FROM NVTX_EVENTS WHERE textId IN (SELECT id FROM StringIds WHERE value = 'ncclAllReduce')",
}
TABLE = {"copies": "CUPTI_ACTIVITY_KIND_MEMCPY", "sizes": "NVTX_EVENTS"}


class Said(NamedTuple):
    """What one item says: its figures, and whether it is green with nothing beside it."""

    values: Mapping[str, Value]
    plain: bool


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = TraceBuilder()
    nccl = NcclRanges(trace)
    for rank in range(RANKS):
        gpu = trace.process(pid=100 + rank, device=rank)
        nccl.communicator(gpu, 7, ranks=RANKS, rank=rank)
        for step in range(STEPS):
            put_step(gpu, nccl, MS * (step + 1), step)
    return trace.write(tmp_path_factory.mktemp("whole") / "run.sqlite")


def put_step(gpu: Process, nccl: NcclRanges, at: int, step: int) -> None:
    """Eight gemms, a graph of four kernels, two copies, and four collectives beside them."""
    gpu.range(f"step {step}", at, at + 900 * US)
    for i in range(8):
        launch = at + 10 * US * i
        gpu.kernel("gemm", launch + 5 * US + 50 * US * i, launch + 55 * US + 50 * US * i, launch_ns=launch, stream=7)
    for i in range(4):
        call = at + 90 * US + 10 * US * i
        nccl.call(gpu, "ncclAllReduce", call, call + 5 * US, 7, 1 << 20)
        start = at + 100 * US + 150 * US * i
        gpu.kernel("ncclDevKernel_AllReduce_Sum", start, start + 90 * US, launch_ns=call + US, stream=20)
    for i in range(2):
        call = at + 140 * US + 10 * US * i
        gpu.memcpy(at + 700 * US + 20 * US * i, at + 715 * US + 20 * US * i, launch_ns=call, stream=30)
    replay = gpu.api("cudaGraphLaunch_v10000", at + 170 * US, at + 180 * US)
    for i in range(4):
        start = at + 550 * US + 60 * US * i
        gpu.kernel("node", start, start + 50 * US, correlation=replay, graph_node=i + 1, graph=3, stream=7)


def lose(path: Path, kind: str, share: Fraction, first: int) -> None:
    """Take out so great a share of the rows of a kind, from one of them on; of ranks the last."""
    with closing(sqlite3.connect(path)) as file:
        if kind == "ranks":
            (pid,) = file.execute("SELECT max(globalPid) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
            for table in ("KERNEL", "MEMCPY"):
                file.execute(f"DELETE FROM CUPTI_ACTIVITY_KIND_{table} WHERE globalPid = ?", [pid])
            for table in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"):
                file.execute(f"DELETE FROM {table} WHERE (globalTid >> 24) = ?", [pid >> 24])
        else:
            rows = [row for (row,) in file.execute(ROWS[kind])]
            begin = first % len(rows)
            lost = [*rows[begin:], *rows[:begin]][: int(share * len(rows))]
            change = "SET binaryData = NULL" if kind == "sizes" else ""
            for row in lost:
                table = TABLE.get(kind, "CUPTI_ACTIVITY_KIND_KERNEL")
                what = f"UPDATE {table} {change}" if change else f"DELETE FROM {table}"
                file.execute(f"{what} WHERE rowid = ?", [row])
        file.commit()


def judged(path: Path, gate: GateFile) -> Iterator[tuple[str, Said]]:
    with closing(CaptureCache()) as library:
        captures = library.open_captures([str(path)], path.parent, gate.resolved_convention)
        context = GateContext(captures, gate)
        for assertion in gate.assertions:
            try:
                verdict = evaluate(assertion, context)
            except NsysError:
                yield assertion.full_name, Said({}, plain=False)
                continue
            doubtful = verdict.warnings or any(note.warning for note in verdict.notes)
            plain = verdict.outcome is Outcome.PASSED and not doubtful
            values = {str(row.labels): row.value for row in verdict.rows if row.value is not None}
            yield assertion.full_name, Said(values, plain)


def has_moved(before: Mapping[str, Value], now: Mapping[str, Value]) -> bool:
    """Return whether a figure is gone, or moved by more than 1%; a row of another name may have the same figure."""
    pairs = zip(sorted(before.values()), sorted(now.values()), strict=False)
    return len(before) != len(now) or any(abs(Fraction(value) - was) * 100 > was for was, value in pairs)


def test_a_whole_run_is_plainly_green(whole: Path) -> None:
    said = dict(judged(whole, loaded(GATE)))
    assert len(said) == 8
    assert {name for name, each in said.items() if not each.plain} == set()


@pytest.mark.parametrize("kind", [*ROWS, "ranks"])
@pytest.mark.sampled(2)
def test_no_loss_moves_a_plainly_green_figure(whole: Path, tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    gate, folder = loaded(GATE), tmp_path_factory.mktemp("lost")
    before = dict(judged(whole, gate))
    moved_once: set[str] = set()

    @given(share=st.fractions(0, 1, max_denominator=64), first=st.integers(0, 500))
    def holds(share: Fraction, first: int) -> None:
        path = Path(shutil.copy(whole, folder / f"{share.numerator}_{share.denominator}_{first}.sqlite"))
        lose(path, kind, share, first)
        for name, now in judged(path, gate):
            if has_moved(before[name].values, now.values):
                moved_once.add(name)
                assert not now.plain, name
        path.unlink()

    holds()
    assert moved_once, "the loss moves something, or the test looks at nothing"
