"""In which periods of a trace does nothing run? Said alike of every format, whatever the order of its rows."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.model import OPEN_END_NS, Interval, Lane
from pytest_nsys.core.trace import Trace
from pytest_nsys.traces.trace_files import open_trace
from tests.support.samples.formats import Format, write_one

KERNELS = [(10, 20), (30, 90), (40, 50), (200, 210), (5_000, 5_001)]
SPANS = [(0, 10), (0, 11), (20, 30), (21, 29), (60, 80), (89, 200), (90, 200), (210, 5_000), (5_000, OPEN_END_NS)]
IDLE = [(0, 10), (20, 30), (21, 29), (90, 200), (210, 5_000)]


def written(path: Path, format: str, kernels: list[Interval]) -> Path:
    def put(gpu: Any) -> None:
        for start, end in kernels:
            gpu.kernel("gemm", start * 1_000, end * 1_000)

    return write_one(path, format, put)


def asked(trace: Trace, spans: list[Interval]) -> list[Interval]:
    """The idle ones, of the one lane; in the trace a microsecond is 1 here."""
    (lane,) = trace.lanes()
    scaled = [(low * 1_000, high if high == OPEN_END_NS else high * 1_000) for low, high in spans]
    for own in (lane, Lane(lane.global_pid, None)):
        found = trace.idle({own: scaled}).get(own, ())
        assert found == trace.idle({lane: scaled}).get(lane, ())
    return [span for span, wide in zip(spans, scaled, strict=True) if wide in found]


@pytest.mark.parametrize("format", Format)
def test_every_format_says_which_spans_are_idle(tmp_path: Path, format: str) -> None:
    with closing(open_trace(written(tmp_path, format, KERNELS))) as trace:
        assert asked(trace, SPANS) == IDLE
        (lane,) = trace.lanes()
        assert trace.idle({}) == {}
        assert trace.idle({lane: [(10_000, 20_000)]}) == {}
        assert trace.idle({Lane(lane.global_pid, 7): [(10_000, 20_000)]}) == {
            Lane(lane.global_pid, 7): [(10_000, 20_000)]
        }


@pytest.mark.parametrize("format", ["nsys", "rocpd"])
@pytest.mark.parametrize("order", ["by start", "by chance", "from the last"])
def test_the_order_of_rows_is_nothing(tmp_path: Path, format: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_nsys.traces.sqlite.file.SAMPLED_ROW_DISTANCE", 2)
    chance = random.Random(order)
    kernels = [(start, start + chance.randrange(1, 30)) for start in chance.sample(range(3_000), 150)]
    kernels.sort(reverse=order == "from the last")
    if order == "by chance":
        chance.shuffle(kernels)
    edges = sorted(chance.sample(range(3_100), 90))
    spans = list(zip(edges, [*edges[1:], OPEN_END_NS], strict=True))
    with closing(open_trace(written(tmp_path, format, kernels))) as trace:
        assert asked(trace, spans) == [s for s in spans if not any(a < s[1] and b > s[0] for a, b in kernels)]


def test_a_file_without_kernels_is_idle(tmp_path: Path) -> None:
    path = written(tmp_path, "nsys", KERNELS)
    with closing(sqlite3.connect(path)) as file:
        file.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    with closing(open_trace(path)) as trace:
        assert trace.idle({Lane(1, 0): [(1, 2)]}) == {Lane(1, 0): [(1, 2)]}
