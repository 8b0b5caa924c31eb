"""Which window does each pick give, which kernels are in it and count as what, and what is said where there is none?"""

import os
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.budget.timeline import sort_streams
from pytest_nsys.analysis.windows.rank_track import RankTrack
from pytest_nsys.analysis.windows.rank_window import RankWindow, StreamUse, select_window_kernels
from pytest_nsys.analysis.windows.window_selection import (
    WindowSpec,
    list_span_lengths,
    select_steady_indices,
    shorten_steady_label,
)
from pytest_nsys.core.columns import Column
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, COMPUTE_PURPOSE, Purpose
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.model import NO_LAUNCH, KernelsMode, Range, Span, Stream, Window
from pytest_nsys.core.tables import Kernels
from tests.support.measure import SETUP, STEP, notes, rows, windows
from tests.support.one_process import OneProcess
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.odd_rows import graph_trace
from tests.support.windows import track_of


def steps(gpu: OneProcess, count: int, *, kernels: bool = True) -> OneProcess:
    """Steps of 90 ns, one every 100 ns; step i has one kernel of 10 + i ns."""
    for i in range(count):
        gpu.range(f"step {i}", 100 * i, 100 * i + 90)
        if kernels:
            gpu.kernel("gemm", 100 * i + 20, 100 * i + 30 + i, launch_ns=100 * i + 5)
    return gpu


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
def test_pick_gives_the_anchor(gpu: OneProcess, spec: str, indices: list[int]) -> None:
    found = windows(steps(gpu, 7), spec)
    assert [w.name for w in found] == [f"step {i}" for i in indices]
    assert [(w.start_ns, w.end_ns) for w in found] == [(100 * i, 100 * i + 90) for i in indices]


@pytest.mark.parametrize("count", range(1, 10))
def test_median_is_the_anchor_at_half_of_all(gpu: OneProcess, count: int) -> None:
    (window,) = windows(steps(gpu, count))
    assert (window.index, window.count) == (count // 2, count)


def test_a_span_is_the_range_or_the_time_to_the_next() -> None:
    anchors = [Range(0, 90, 1, "step"), Range(100, 150, 1, "step"), Range(300, 310, 1, "step")]
    assert list_span_lengths(anchors, Span.RANGE) == [90, 50, 10]
    assert list_span_lengths(anchors, Span.PERIOD) == [100, 200]


def test_steady_is_the_middle_half() -> None:
    found = {count: list(select_steady_indices(count)) for count in (1, 2, 3, 4, 5, 8, 10)}
    assert found == {1: [0], 2: [0, 1], 3: [0, 1, 2], 4: [1, 2], 5: [1, 2, 3], 8: [2, 3, 4, 5], 10: [2, 3, 4, 5, 6, 7]}


def test_index_of_a_named_window_counts_its_own_ranges(gpu: OneProcess) -> None:
    steps(gpu, 3)
    for at in (10, 110, 130, 210):
        gpu.range("decode", at, at + 30)
    (window,) = windows(gpu, "decode")
    assert (window.name, window.start_ns, window.index, window.count) == ("decode", 130, 2, 4)


def test_explicit_window_is_no_anchor(gpu: OneProcess) -> None:
    path = Path(steps(gpu, 3))
    (window,) = windows(path, "15:131")
    assert (window.start_ns, window.end_ns, window.index, window.count) == (15, 131, None, None)
    assert rows(path, "compute_ns", window="15:131") == {0: 10 + 11}
    assert rows(path, "compute_ns", window="15:130") == {0: 10}
    assert rows(path, "compute_ns", window="25:130", kernels="clipped") == {0: 5 + 10}
    assert rows(path, "window_ns", window="15:131") == {0: 116}


def test_run_is_from_the_first_kernel_to_the_end_of_the_last_that_ends(gpu: OneProcess) -> None:
    steps(gpu, 3)
    gpu.kernel("gemm", 110, 900, launch_ns=3)
    path = Path(gpu)
    for mode in ("contained", "clipped", "launched"):
        assert rows(path, "window_ns", window="run", kernels=mode) == {0: 900 - 20}
        assert rows(path, "launches", window="run", kernels=mode) == {(0, "none"): 4}


def test_open_range_is_no_anchor(gpu: OneProcess) -> None:
    steps(gpu, 3)
    gpu.range("step 3", 150, None)
    (window,) = windows(gpu)
    assert (window.name, window.count) == ("step 1", 3)


def test_period_ends_at_the_next_start(gpu: OneProcess) -> None:
    path = Path(steps(gpu, 5))
    assert [(w.start_ns, w.end_ns) for w in windows(path, "1", span="period")] == [(100, 200)]
    assert rows(path, "window_ns", window="1", span="period") == {0: 100}
    by_convention = replace(STEP, span=Span.PERIOD)
    assert rows(path, "window_ns", window="1", convention=by_convention) == {0: 100}
    assert rows(path, "window_ns", window="1", convention=by_convention, span="range") == {0: 90}


def test_launched_by_any_thread_counts_and_both_edges_of_a_range_belong_to_it(gpu: OneProcess) -> None:
    gpu.range("step", 100, 200)
    for i, launch_ns in enumerate((99, 100, 150, 200, 201)):
        gpu.kernel("gemm", 1_000 + 20 * i, 1_010 + 20 * i, launch_ns=launch_ns, thread=i)
    gpu.kernel("gemm", 150, 160, launch=False)
    assert rows(gpu, "launches", kernels="launched") == {(0, "none"): 3}
    assert rows(gpu, "window_ns", kernels="launched") == {0: 1_070 - 1_020}


# -- where there is none


def why(path: os.PathLike[str], *, window: str = "median", span: str | None = None, kernels: str | None = None) -> str:
    """The error, which is one line."""
    with pytest.raises(NothingMeasured) as error:
        rows(path, "compute_ns", window=window, span=span, kernels=kernels)
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"{os.fspath(path)}: rank 0")
    return line


def test_no_anchor_shows_the_most_frequent_names(gpu: OneProcess) -> None:
    gpu.kernel("gemm", 10, 20, launch_ns=5)
    for i in range(3):
        gpu.range(f"iteration {i}", 100 * i, 100 * i + 90, registered=i == 1)
    gpu.range("warm\x1b[31mup", 1, 2)
    path = Path(gpu)
    assert why(path) == (
        f"{path}: rank 0 (process 100): no range matches the anchor 'step%'; most frequent ranges: 'iteration %' (3), "
        "'warm�[%mup' (1). Set convention: {anchor: …} (in a command --anchor; `pytest-nsys TRACE` "
        "tells what repeats), or window: run (`pytest-nsys TRACE --window run`)"
    )
    assert "no range matches the anchor 'chunk'" in why(path, window="chunk")
    with pytest.raises(NothingMeasured, match="the convention names no anchor; most frequent ranges: 'iteration %'"):
        rows(path, "compute_ns", convention=BUILT_IN_CONVENTIONS["generic"])


def test_no_anchor_names_the_convention_that_has_one(gpu: OneProcess) -> None:
    gpu.kernel("gemm", 10, 20, launch_ns=5)
    gpu.range("ProfilerStep#7", 1, 90)
    kineto = "Set convention: kineto, which has an anchor for it (in a command --convention kineto), or window: run"
    assert why(gpu).endswith(f"{kineto} (`pytest-nsys TRACE --window run`)")
    with pytest.raises(NothingMeasured, match=r"no range matches the anchor 'chunk'.*Set convention: \{anchor: …\}"):
        rows(gpu, "compute_ns", window="chunk", convention=BUILT_IN_CONVENTIONS["kineto"])


@pytest.mark.parametrize("kernels", ["contained", "clipped", "launched"])
def test_no_anchor_is_said_in_every_mode(gpu: OneProcess, kernels: str) -> None:
    gpu.kernel("gemm", 10, 20, launch_ns=5)
    assert "no range matches the anchor" in why(gpu, kernels=kernels)


def test_index_beyond_the_last_anchor(gpu: OneProcess) -> None:
    assert "there is no anchor 3: the rank has 3, numbered from 0" in why(steps(gpu, 3), window="3")


@pytest.mark.parametrize(("count", "window"), [(3, "last"), (3, "2"), (1, "median"), (3, "steady")])
def test_last_anchor_has_no_period(gpu: OneProcess, count: int, window: str) -> None:
    said = f"anchor {count - 1} of {count} has no successor, so it has no period: use span: range, or an earlier index"
    assert said in why(steps(gpu, count), window=window, span="period")


def test_empty_window_tells_lag_launches_and_where_to_look(gpu: OneProcess) -> None:
    steps(gpu, 5, kernels=False)
    ms = 1_000_000
    for i in range(5):
        gpu.range(f"replay {i}", (10 + i) * ms, (11 + i) * ms - 1)
        gpu.kernel("gemm", (10 + i) * ms + 100, (10 + i) * ms + 200, launch_ns=100 * i + 5)
    for i in range(5):
        gpu.kernel("gemm", (10 + i) * ms + 300, (10 + i) * ms + 400, launch=False)
    path = Path(gpu)
    assert why(path) == (
        f"{path}: rank 0 (process 100): window 'step 2' (index 2 of 5) holds no kernel, kernels contained; "
        "the GPU is 12 ms behind the CPU (median; at most 14 ms; 50% of 10 kernels have no launch row); "
        "anchors that hold kernels: contained 0, clipped 0, launched 5 of 5; "
        "`pytest-nsys TRACE` tells what repeats; window run measures the whole run"
    )
    assert rows(path, "launches", kernels="launched") == {(0, "none"): 1}
    assert rows(path, "launches", window="replay%") == {(0, "none"): 2}


def test_empty_explicit_window(gpu: OneProcess) -> None:
    assert "window '40:95' holds no kernel, kernels clipped; " in why(steps(gpu, 2), window="40:95", kernels="clipped")


def test_steady_with_an_empty_window_is_an_error_with_the_count(gpu: OneProcess) -> None:
    steps(gpu, 4)
    for i in range(4, 8):
        gpu.range(f"step {i}", 100 * i, 100 * i + 90)
    said = why(gpu, window="steady")
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
        rows(tmp_path, "compute_ns")
    with pytest.raises(NothingMeasured, match=r"0\.sqlite: rank 0 ran no kernel"):
        rows(tmp_path, "compute_ns", window="run")


@pytest.mark.parametrize(("count", "told"), [(4, True), (5, False)])
def test_few_anchors_are_told(gpu: OneProcess, count: int, told: bool) -> None:
    said = f"rank 0 has {count} anchors: the median of so few is unreliable; profile more steps"
    assert (said in notes(steps(gpu, count), "compute_ns")) is told


def test_all_ranks_with_few_anchors_are_told(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for rank, anchors in enumerate((1, 1, 3, 1)):
        gpu = trace.process(pid=100 + rank)
        for k in range(anchors):
            gpu.range(f"step {k}", 1_000 * k, 1_000 * k + 900)
            gpu.kernel("gemm", 1_000 * k + 100, 1_000 * k + 200, launch_ns=1_000 * k + 50)
    told = notes(trace.write(tmp_path / "run.sqlite"), "compute_ns")
    said = ": the median of so few is unreliable; profile more steps"
    assert [text.removesuffix(said) for text in told if said in text] == ["ranks 0, 1, 3 have 1 anchor"]


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


K = tuple[str, int, int, int]
"""Name, start and end in ns, and the stream of a kernel."""

LOW, HIGH = 100, 200
WINDOW = Window(LOW, HIGH, "step", 0, 3)


def kernels_of(some: Sequence[K]) -> Kernels:
    """Columns of kernels, ordered by start; streams are numbered as they come."""
    ordered = sorted(some, key=lambda kernel: kernel[1])
    names = sorted({name for name, *_ in ordered})
    streams = sorted({stream for *_, stream in ordered}, reverse=True)
    name = array("q", [names.index(kernel[0]) for kernel in ordered])
    return Kernels(
        start_ns=array("q", [kernel[1] for kernel in ordered]),
        end_ns=array("q", [kernel[2] for kernel in ordered]),
        correlation=array("q", range(len(ordered))),
        stream=array("q", [streams.index(kernel[3]) for kernel in ordered]),
        name=name,
        full_name=name,
        streams=tuple(Stream(0, 1, number) for number in streams),
        names=dict(enumerate(names)),
        graph_node=bytearray(len(ordered)),
    )


def track(*some: K, launches: Sequence[int] | None = None, ranges: Sequence[Range] = ()) -> RankTrack:
    """Kernels of one rank; each is launched when it starts unless ``launches`` says otherwise."""
    kernels = kernels_of(some)
    launched = array("q", kernels.start_ns if launches is None else launches)
    return track_of(kernels, STEP, launched, ranges)


def chosen(found: RankTrack, mode: str, span: Span = Span.RANGE, window: Window = WINDOW) -> list[int]:
    return list(select_window_kernels(found, window, WindowSpec(span=span, kernels=KernelsMode(mode))))


def window_of(*some: K, mode: str = "contained", **more: Any) -> RankWindow:
    found = track(*some, **more)
    spec = WindowSpec(kernels=KernelsMode(mode))
    return RankWindow(found, WINDOW, spec, select_window_kernels(found, WINDOW, spec))


# What is in a window


@pytest.mark.parametrize(
    ("start", "end", "contained", "clipped"),
    [
        (99, 150, False, True),
        (100, 150, True, True),
        (150, 200, True, True),
        (150, 201, False, True),
        (99, 100, False, False),
        (200, 201, False, False),
        (100, 200, True, True),
        (99, 201, False, True),
        (99, 99, False, False),
        (100, 100, True, True),
        (150, 150, True, True),
        (200, 200, True, True),
        (201, 201, False, False),
    ],
)
def test_a_kernel_on_an_edge(start: int, end: int, contained: bool, clipped: bool) -> None:
    """Alone, and beside a kernel so long that the search for those that reach into the window begins early."""
    found = track(("gemm", start, end, 7))
    assert (chosen(found, "contained"), chosen(found, "clipped")) == ([0] * contained, [0] * clipped)
    among = track(("long", -900, 0, 7), ("gemm", start, end, 7), ("late", 300, 301, 7))
    assert (chosen(among, "contained"), chosen(among, "clipped")) == ([1] * contained, [1] * clipped)


spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15)), max_size=8)


@given(spans, st.integers(0, 30), st.integers(1, 15))
def test_kernels_in_a_window_are_those_that_the_words_say(some: list[tuple[int, int]], low: int, length: int) -> None:
    """Contained: wholly in it. Clipped: with a part of some length in it, or without length between its edges."""
    found = track(*(("gemm", start, start + n, 7) for start, n in some))
    high, pairs = low + length, list(zip(found.kernels.start_ns, found.kernels.end_ns, strict=True))
    window = Window(low, high, "step", 0, 3)
    assert chosen(found, "contained", window=window) == [i for i, (s, e) in enumerate(pairs) if low <= s and e <= high]
    clipped = [i for i, (s, e) in enumerate(pairs) if max(s, low) < min(e, high) or low <= s == e <= high]
    assert chosen(found, "clipped", window=window) == clipped


@pytest.mark.parametrize(
    ("span", "index", "inside"),
    [(Span.RANGE, 0, [100, 150, 200]), (Span.PERIOD, 0, [100, 150]), (Span.PERIOD, None, [100, 150, 200])],
)
def test_a_launch_on_an_edge(span: Span, index: int | None, inside: list[int]) -> None:
    """A launch at the next anchor's start belongs to the next one; a span that was given has both edges."""
    launches = [99, 100, 150, NO_LAUNCH, 200, 201]
    found = track(*(("gemm", 500 + 10 * i, 505 + 10 * i, 7) for i in range(6)), launches=launches)
    window = Window(LOW, HIGH, "step", index, 3)
    assert [launches[i] for i in chosen(found, "launched", span, window)] == inside


def test_kernels_that_were_launched_in_another_order_than_they_ran() -> None:
    found = track(*(("gemm", 500 + 10 * i, 505 + 10 * i, 7) for i in range(4)), launches=[199, 300, 101, 150])
    assert chosen(found, "launched") == [0, 2, 3]
    assert list(found.launch_order) == [2, 3, 0, 1]


def test_the_whole_run_is_every_kernel() -> None:
    found = track(("gemm", 0, 10, 7), ("gemm", 900, 950, 7))
    assert list(select_window_kernels(found, WINDOW, WindowSpec("run", kernels=KernelsMode.LAUNCHED))) == [0, 1]
    whole = RankWindow(found, WINDOW, WindowSpec("run", kernels=KernelsMode.CLIPPED), range(2))
    assert list(whole.durations_ns) == [10, 50]
    assert (whole.start_ns, whole.end_ns) == (LOW, HIGH)


def test_a_clipped_window_cuts_its_kernels_and_a_launched_one_is_as_long_as_they_are() -> None:
    cut = window_of(("gemm", 50, 150, 7), ("gemm", 180, 250, 7), mode="clipped")
    assert list(zip(cut.kernels.start_ns, cut.kernels.end_ns, strict=True)) == [(100, 150), (180, 200)]
    assert (cut.start_ns, cut.end_ns, cut.length_ns) == (100, 200, 100)
    launched = window_of(("a", 300, 390, 7), ("b", 310, 320, 7), launches=[150, 160], mode="launched")
    assert (launched.start_ns, launched.end_ns, launched.length_ns) == (300, 390, 90)
    nothing = window_of(("a", 300, 390, 7), launches=[50], mode="launched")
    assert (len(nothing), nothing.start_ns, nothing.end_ns) == (0, 100, 200)
    some = window_of(("a", 20, 30, 7), ("b", 110, 120, 7))
    assert (list(some.positions), list(some.kernels.start_ns), list(some.durations_ns)) == ([1], [110], [10])


# What counts as what


NCCL = "ncclDevKernel_SendRecv"


def indices(groups: Mapping[str, Column]) -> list[tuple[str, list[int]]]:
    return [(name, list(own)) for name, own in groups.items()]


def test_communication_is_what_has_a_stream_of_its_own_and_a_barrier_what_has_not() -> None:
    found = window_of(
        (NCCL, 100, 110, 28), ("gemm", 105, 130, 7), (NCCL, 120, 140, 7), (NCCL, 125, 150, 28), ("norm", 150, 160, 9)
    )
    assert [list(some) for some in (found.communication, found.barriers, found.compute)] == [[0, 3], [2], [1, 4]]
    assert list(found.exposed_ns) == [5, 0, 0, 20, 0]
    assert (found.compute_time.measure_covered_ns(0, 999), found.communication_time.measure_covered_ns(0, 999)) == (
        35,
        35,
    )
    assert found.all_communication_time.measure_covered_ns(0, 999) == 10 + 30  # the barrier until the next begins
    uses = [(use.stream.number, use.communication_kernels, use.compute_kernels) for use in found.stream_uses]
    assert uses == [(7, 1, 1), (9, 0, 1), (28, 2, 0)]
    assert [(use.communication_ns, use.compute_ns) for use in found.stream_uses] == [(20, 25), (0, 10), (35, 0)]
    assert [use.purpose for use in found.stream_uses] == ["compute", "compute", "unknown"]


def test_time_and_number_by_name() -> None:
    found = window_of(("a", 100, 110, 7), ("b", 110, 115, 7), ("a", 120, 121, 7))
    assert found.totals_by_name == {(0, 0): (11, 2), (1, 1): (5, 1)}


def test_the_usual_length_is_that_of_kernels_that_no_communication_touched() -> None:
    """Nor a barrier, nor for a nanosecond; one that begins where communication ends is alone."""
    found = window_of(
        (NCCL, 100, 110, 28),
        ("gemm", 109, 119, 7),
        ("gemm", 119, 124, 7),
        ("gemm", 124, 130, 7),
        (NCCL, 130, 140, 7),
        ("norm", 139, 150, 9),
    )
    assert found.track.isolated_median_ns == {found.kernels.full_name[2]: Fraction(11, 2)}
    assert list(found.compute_under_communication) == [1, 5]


def test_communication_before_the_window_runs_beside_its_compute() -> None:
    found = window_of((NCCL, 90, 105, 28), ("gemm", 100, 110, 7), ("gemm", 110, 120, 7))
    assert (list(found.communication), list(found.compute_under_communication)) == ([], [0])


RANGES = [Range(0, 100, 1, "layer00.stage2_f"), Range(100, 200, 1, "layer00.stage4_f")]


@pytest.mark.parametrize(
    ("launches", "purpose"), [((50,), "a"), ((50, 60), "a"), ((150,), "b"), ((50, 150), "mixed"), ((50, 900), "mixed")]
)
def test_the_purpose_of_a_stream_is_what_all_of_its_kernels_say(launches: Sequence[int], purpose: str) -> None:
    """Disagreement is mixed, also between a purpose and none."""
    own = replace(STEP, purposes=(Purpose("a", stages=("stage2*",)), Purpose("b", stages=("stage4*",))))
    some = [(NCCL, 110 + 10 * i, 115 + 10 * i, 28) for i in range(len(launches))]
    found = track(*some, launches=launches, ranges=RANGES)
    found.convention = found.trace_context.convention = own
    (use,) = RankWindow(found, WINDOW, WindowSpec(), range(len(launches))).stream_uses
    assert use.purpose == purpose


def test_a_kernel_without_a_launch_row_is_looked_up_where_it_starts() -> None:
    found = window_of((NCCL, 110, 120, 28), (NCCL, 150, 160, 28), launches=[50, NO_LAUNCH], ranges=RANGES)
    assert [found.get_context(i)[0] for i in (0, 1)] == ["stage2_f", "stage4_f"]
    assert indices(found.communication_by_stage) == [("stage2_f", [0]), ("stage4_f", [1])]


def test_kernels_are_grouped_by_stage_in_the_order_of_their_names() -> None:
    found = window_of(
        (NCCL, 110, 120, 28), ("gemm", 111, 115, 7), (NCCL, 130, 140, 28), launches=[150, 50, 50], ranges=RANGES
    )
    assert indices(found.communication_by_stage) == [("stage2_f", [2]), ("stage4_f", [0])]
    assert indices(found.kernels_by_stage) == [("stage2_f", [1, 2]), ("stage4_f", [0])]
    places = {(name, stage): list(own) for (name, stage, _), own in found.communication_by_context.items()}
    assert places == {(NCCL, "stage4_f"): [0], (NCCL, "stage2_f"): [2]}


def test_kernels_without_a_launch_row_are_counted() -> None:
    some = [(NCCL, 110, 115, 28), ("gemm", 120, 125, 7), ("gemm", 130, 135, 7), (NCCL, 140, 145, 28)]
    assert track(*some, launches=[NO_LAUNCH, NO_LAUNCH, 100, 100]).launch_coverage == (4, 2, 0, 0)


def test_the_longest_kernel_says_how_far_back_to_look() -> None:
    assert track(("a", 0, 10, 7), ("b", 5, 40, 7), ("c", 90, 95, 7)).longest_kernel_ns == 35
    assert track().longest_kernel_ns == 0
    found = track(("a", 0, 101, 7), ("b", 98, 99, 7))
    assert bisect_left(found.kernels.start_ns, LOW - found.longest_kernel_ns) == 0
    assert chosen(found, "clipped") == [0]


def test_streams_stand_with_those_that_compute_first_and_by_what_tells_them_apart() -> None:
    def use(device: int, number: int, purpose: str) -> StreamUse:
        return StreamUse(Stream(device, 1, number), 1, 1, 10, 10, purpose)

    uses = [use(0, 28, "a"), use(1, 7, "compute"), use(0, 9, "compute"), use(0, 7, "compute"), use(0, 20, "mixed")]
    found = sort_streams(uses)
    assert [name for name, _ in found] == ["stream 0/1/7", "stream 9", "stream 1/1/7", "stream 20", "stream 28"]
    assert [use.purpose == COMPUTE_PURPOSE for _, use in found] == [True, True, True, False, False]


def test_what_no_window_can_hold_is_told(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 10, 20, launch_ns=5)
    for start in (30, 40):
        graph_trace(gpu, start, start + 5, launch_ns=6)
    told = notes(gpu, "compute_ns")
    assert any("2 CUDA graph replays were traced whole: their kernels are in no window" in note for note in told)


@pytest.mark.parametrize(
    ("typed", "one"),
    [("steady", ""), ("steady decode", "decode"), ("steady state", "steady state"), ("3 decode", "3 decode")],
)
def test_of_steady_steps_what_shows_one_window_has_their_kind(typed: str, one: str) -> None:
    """A range may be called 'steady state'."""
    assert shorten_steady_label(typed) == one
