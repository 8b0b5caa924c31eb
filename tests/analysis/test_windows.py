"""Which window does each pick give, which kernels are in it, and what is said where there is none?"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from pytest_nsys.analysis.windows import span_lengths, steady_indices
from pytest_nsys.core.conventions import BUILT_IN
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.model import Range, Span
from pytest_nsys.samples.builder import Process, TraceBuilder
from tests.support.measure import SETUP, STEP, notes, rows, windows


def steps(count: int, *, kernels: bool = True) -> tuple[TraceBuilder, Process]:
    """Steps of 90 ns, one every 100 ns; step i has one kernel of 10 + i ns."""
    trace = TraceBuilder()
    gpu = trace.process()
    for i in range(count):
        gpu.range(f"step {i}", 100 * i, 100 * i + 90)
        if kernels:
            gpu.kernel("gemm", 100 * i + 20, 100 * i + 30 + i, launch_ns=100 * i + 5)
    return trace, gpu


def write(tmp_path: Path, count: int) -> Path:
    return steps(count)[0].write(tmp_path / "trace.sqlite")


@pytest.mark.parametrize(
    ("spec", "indices"),
    [
        ("median", [3]),
        ("first", [0]),
        ("last", [6]),
        ("0", [0]),
        ("5", [5]),
        ("steady", [1, 2, 3, 4, 5]),
        ("step 2", [2]),
        ("step%", [3]),
    ],
)
def test_pick_gives_the_anchor(tmp_path: Path, spec: str, indices: list[int]) -> None:
    found = windows(write(tmp_path, 7), spec)
    assert [w.name for w in found] == [f"step {i}" for i in indices]
    assert [(w.start_ns, w.end_ns) for w in found] == [(100 * i, 100 * i + 90) for i in indices]


@pytest.mark.parametrize("count", range(1, 10))
def test_median_is_the_anchor_at_half_of_all(tmp_path: Path, count: int) -> None:
    (window,) = windows(write(tmp_path, count))
    assert (window.index, window.count) == (count // 2, count)


def test_a_span_is_the_range_or_the_time_to_the_next() -> None:
    anchors = [Range(0, 90, 1, "step"), Range(100, 150, 1, "step"), Range(300, 310, 1, "step")]
    assert span_lengths(anchors, Span.RANGE) == [90, 50, 10]
    assert span_lengths(anchors, Span.PERIOD) == [100, 200]


def test_steady_is_the_middle_half() -> None:
    found = {count: list(steady_indices(count)) for count in (1, 2, 3, 4, 5, 8, 10)}
    assert found == {
        1: [0],
        2: [0, 1],
        3: [0, 1, 2],
        4: [1, 2],
        5: [1, 2, 3],
        8: [2, 3, 4, 5],
        10: [2, 3, 4, 5, 6, 7],
    }


def test_index_of_a_named_window_counts_its_own_ranges(tmp_path: Path) -> None:
    trace, gpu = steps(3)
    for at in (10, 110, 130, 210):
        gpu.range("decode", at, at + 30)
    (window,) = windows(trace.write(tmp_path / "trace.sqlite"), "decode")
    assert (window.name, window.start_ns, window.index, window.count) == ("decode", 130, 2, 4)


def test_explicit_window_is_no_anchor(tmp_path: Path) -> None:
    path = write(tmp_path, 3)
    (window,) = windows(path, "15:131")
    assert (window.start_ns, window.end_ns, window.index, window.count) == (15, 131, None, None)
    assert rows(path, "compute_ns", window="15:131") == {0: 10 + 11}
    assert rows(path, "compute_ns", window="15:130") == {0: 10}
    assert rows(path, "compute_ns", window="25:130", kernels="clipped") == {0: 5 + 10}
    assert rows(path, "window_ns", window="15:131") == {0: 116}


def test_run_is_from_the_first_kernel_to_the_end_of_the_last_that_ends(tmp_path: Path) -> None:
    trace, gpu = steps(3)
    gpu.kernel("gemm", 110, 900, launch_ns=3)
    path = trace.write(tmp_path / "trace.sqlite")
    for mode in ("contained", "clipped", "launched"):
        assert rows(path, "window_ns", window="run", kernels=mode) == {0: 900 - 20}
        assert rows(path, "launches", window="run", kernels=mode) == {(0, "none"): 4}


def test_open_range_is_no_anchor(tmp_path: Path) -> None:
    trace, gpu = steps(3)
    gpu.range("step 3", 150, None)
    (window,) = windows(trace.write(tmp_path / "trace.sqlite"))
    assert (window.name, window.count) == ("step 1", 3)


def test_period_ends_at_the_next_start(tmp_path: Path) -> None:
    path = write(tmp_path, 5)
    assert [(w.start_ns, w.end_ns) for w in windows(path, "1", span="period")] == [(100, 200)]
    assert rows(path, "window_ns", window="1", span="period") == {0: 100}
    by_convention = replace(STEP, span=Span.PERIOD)
    assert rows(path, "window_ns", window="1", convention=by_convention) == {0: 100}
    assert rows(path, "window_ns", window="1", convention=by_convention, span="range") == {0: 90}


def test_launched_by_any_thread_counts_and_both_edges_of_a_range_belong_to_it(tmp_path: Path) -> None:
    trace = TraceBuilder()
    gpu = trace.process(thread=1)
    gpu.range("step", 100, 200)
    for i, launch_ns in enumerate((99, 100, 150, 200, 201)):
        gpu.kernel("gemm", 1_000 + 20 * i, 1_010 + 20 * i, launch_ns=launch_ns, thread=i)
    gpu.kernel("gemm", 150, 160, launch=False)
    path = trace.write(tmp_path / "trace.sqlite")
    assert rows(path, "launches", kernels="launched") == {(0, "none"): 3}
    assert rows(path, "window_ns", kernels="launched") == {0: 1_070 - 1_020}


# -- where there is none


def why(path: Path, *, window: str = "median", span: str | None = None, kernels: str | None = None) -> str:
    """The error, which is one line."""
    with pytest.raises(NothingMeasured) as error:
        rows(path, "busy_ns", window=window, span=span, kernels=kernels)
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"{path}: rank 0")
    return line


def test_no_anchor_shows_the_most_frequent_names(tmp_path: Path) -> None:
    trace = TraceBuilder()
    gpu = trace.process()
    gpu.kernel("gemm", 10, 20, launch_ns=5)
    for i in range(3):
        gpu.range(f"iteration {i}", 100 * i, 100 * i + 90, registered=i == 1)
    gpu.range("warm\x1b[31mup", 1, 2)
    path = trace.write(tmp_path / "trace.sqlite")
    assert why(path) == (
        f"{path}: rank 0 (process 100): no range matches the anchor 'step%'; most frequent ranges: 'iteration %' (3), "
        "'warm�[%mup' (1). Set convention: {anchor: …} (in a command --anchor; `pytest-nsys init` "
        "finds one), or use window run"
    )
    assert "no range matches the anchor 'chunk'" in why(path, window="chunk")
    with pytest.raises(NothingMeasured, match="the convention names no anchor; most frequent ranges: 'iteration %'"):
        rows(path, "busy_ns", convention=BUILT_IN["generic"])


def test_no_anchor_names_the_convention_that_has_one(tmp_path: Path) -> None:
    trace = TraceBuilder()
    gpu = trace.process()
    gpu.kernel("gemm", 10, 20, launch_ns=5)
    gpu.range("ProfilerStep#7", 1, 90)
    path = trace.write(tmp_path / "trace.sqlite")
    kineto = "Set convention: kineto, which has an anchor for it (in a command --convention kineto), or use window run"
    assert why(path).endswith(kineto)
    with pytest.raises(NothingMeasured, match=r"no range matches the anchor 'chunk'.*Set convention: \{anchor: …\}"):
        rows(path, "busy_ns", window="chunk", convention=BUILT_IN["kineto"])


@pytest.mark.parametrize("kernels", ["contained", "clipped", "launched"])
def test_no_anchor_is_said_in_every_mode(tmp_path: Path, kernels: str) -> None:
    trace = TraceBuilder()
    trace.process().kernel("gemm", 10, 20, launch_ns=5)
    assert "no range matches the anchor" in why(trace.write(tmp_path / "trace.sqlite"), kernels=kernels)


def test_index_beyond_the_last_anchor(tmp_path: Path) -> None:
    assert "there is no anchor 3: 3 anchors, from 0 on" in why(write(tmp_path, 3), window="3")


@pytest.mark.parametrize(("count", "window"), [(3, "last"), (3, "2"), (1, "median"), (3, "steady")])
def test_last_anchor_has_no_period(tmp_path: Path, count: int, window: str) -> None:
    said = f"anchor {count - 1} of {count} has no successor, so it has no period: use span: range, or an earlier index"
    assert said in why(write(tmp_path, count), window=window, span="period")


def test_empty_window_tells_lag_launches_and_what_could_anchor(tmp_path: Path) -> None:
    trace, gpu = steps(5, kernels=False)
    ms = 1_000_000
    for i in range(5):
        gpu.range(f"replay {i}", (10 + i) * ms, (11 + i) * ms - 1)
        gpu.kernel("gemm", (10 + i) * ms + 100, (10 + i) * ms + 200, launch_ns=100 * i + 5)
    for i in range(5):
        gpu.kernel("gemm", (10 + i) * ms + 300, (10 + i) * ms + 400, launch=False)
    path = trace.write(tmp_path / "trace.sqlite")
    assert why(path) == (
        f"{path}: rank 0 (process 100): window 'step 2' (index 2 of 5) holds no kernel, kernels contained; "
        "the GPU is 12.0 ms behind the CPU (median; at most 14.0 ms; 50.0 % of 10 kernels have no launch row); "
        "anchors that hold kernels: contained 0, clipped 0, launched 5 of 5; "
        "could anchor: 'replay %' (contained 5, clipped 5, launched 0 of 5), "
        "'step %' (contained 0, clipped 0, launched 5 of 5); or measure the whole run with window run"
    )
    assert rows(path, "launches", kernels="launched") == {(0, "none"): 1}
    assert rows(path, "launches", window="replay%") == {(0, "none"): 2}


def test_empty_explicit_window(tmp_path: Path) -> None:
    assert "window '40:95' holds no kernel, kernels clipped; " in why(
        write(tmp_path, 2), window="40:95", kernels="clipped"
    )


def test_steady_with_an_empty_window_is_an_error_with_the_count(tmp_path: Path) -> None:
    trace, gpu = steps(4)
    for i in range(4, 8):
        gpu.range(f"step {i}", 100 * i, 100 * i + 90)
    said = why(trace.write(tmp_path / "trace.sqlite"), window="steady")
    assert "2 of 4 windows, the first 'step 4' (index 4 of 8), holds no kernel" in said
    assert "anchors that hold kernels: contained 4, clipped 4, launched 4 of 8" in said


def test_rank_that_ran_nothing_is_said_to(tmp_path: Path) -> None:
    for rank in (0, 1):
        trace = TraceBuilder()
        gpu = trace.process()
        gpu.range(SETUP.format(rank, rank), 1, 2)
        gpu.range("step", 100, 200)
        if rank:
            gpu.kernel("gemm", 120, 130, launch_ns=110)
        trace.write(tmp_path / f"{rank}.sqlite")
    with pytest.raises(
        NothingMeasured, match=r"0\.sqlite: no kernel belongs to process 100 with the setup label 'rank=0; "
    ):
        rows(tmp_path, "busy_ns")
    with pytest.raises(NothingMeasured, match=r"0\.sqlite: rank 0 ran no kernel"):
        rows(tmp_path, "busy_ns", window="run")


@pytest.mark.parametrize(("count", "told"), [(4, True), (5, False)])
def test_few_anchors_are_told(tmp_path: Path, count: int, told: bool) -> None:
    said = f"rank 0 has {count} anchors: the median of under 5 says little"
    assert (said in notes(write(tmp_path, count), "busy_ns")) is told


def test_steady_windows_of_ranks_with_other_numbers_of_anchors(tmp_path: Path) -> None:
    """Each rank's value is the median over its own middle half, of 8 anchors here and of 5 there."""
    trace = TraceBuilder()
    for pid, anchors in ((100, 8), (101, 5)):
        gpu = trace.process(pid=pid, device=pid - 100)
        for i in range(anchors):
            gpu.range("step", 1000 * i, 1000 * i + 900)
            gpu.kernel("gemm", 1000 * i + 100, 1000 * i + 110 + i, device=pid - 100)
    path = trace.write(tmp_path / "trace.sqlite")
    assert rows(path, "busy_ns", window="steady") == {0: 10 + Fraction(2 + 3 + 4 + 5, 4), 1: 10 + 2}
