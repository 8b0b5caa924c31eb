"""Do unions, sweeps and prefix sums give what counting single ticks gives? Held against oracles too slow to ship."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_nsys.analysis.windows.rank_track import NO_KERNEL_CONTEXT, RangeLabelIndex
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.model import OPEN_END_NS, KernelsMode, Range
from pytest_nsys.core.tables import Ranges
from tests.support.measure import STEP, captures, rows_of
from tests.support.samples.builder import TraceBuilder

times = st.integers(-5, 45)
spans = st.tuples(times, times)
unions = st.lists(spans, max_size=8)


def ticks(union: Iterable[tuple[int, int]]) -> set[int]:
    """The ticks [t, t + 1) that some span covers."""
    return {t for start, end in union for t in range(start, end)}


@given(unions, spans)
@example([(0, 10), (10, 20)], (5, 15))
def test_covered_ns(union: list[tuple[int, int]], span: tuple[int, int]) -> None:
    assert Intervals.from_spans(union).measure_covered_ns(*span) == len(ticks(union) & ticks([span]))


@given(unions, unions)
def test_common_ns(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    assert Intervals.from_spans(one).measure_common_ns(Intervals.from_spans(other)) == len(ticks(one) & ticks(other))


@given(unions)
def test_union_is_disjoint_ascending_and_as_long_as_its_ticks(union: list[tuple[int, int]]) -> None:
    found = Intervals.from_spans(union)
    bounds = [bound for span in found for bound in span]
    assert bounds == sorted(set(bounds))
    assert ticks(found) == ticks(union)
    assert found.total_ns == len(ticks(union))


NAMES = ("layer00_stage1_f", "layer00_stage2_f", "stage2_f stage4_b", "pipeline send/recv", "aten::mm", "nccl stage3_f")
ranges = st.builds(
    lambda start, length, thread, name: Range(start, OPEN_END_NS if length is None else start + length, thread, name),
    st.integers(0, 20),
    st.sampled_from([None, 0, 1, 2, 4, 8, 16]),
    st.sampled_from([1, 2]),
    st.sampled_from(NAMES),
)


def in_order(some: Iterable[Range]) -> list[Range]:
    return sorted(some, key=lambda r: (r.start_ns, r.end_ns, r.name))


@given(st.lists(ranges, max_size=12), st.lists(st.integers(-2, 40), max_size=8))
@example([Range(0, 9, 1, NAMES[0]), Range(0, 9, 1, NAMES[1])], [5])
@example([Range(0, 9, 1, NAMES[1]), Range(1, 10, 2, NAMES[0])], [5])
@example([Range(0, OPEN_END_NS, 1, NAMES[1]), Range(3, 4, 1, NAMES[0])], [3, 4, 5])
def test_look_up_finds_the_innermost_range_that_says_something(some: list[Range], asked: list[int]) -> None:
    context = STEP.make_stage_and_purpose_parser()
    expected, claimed_twice = [], 0
    for now in asked:
        around = [r for r in some if r.start_ns <= now <= r.end_ns and context(r.name) is not None]
        innermost = max(around, key=lambda r: (r.start_ns - r.end_ns, r.start_ns, r.name), default=None)
        expected.append(NO_KERNEL_CONTEXT if innermost is None else context(innermost.name))
        claimed_twice += len({r.thread for r in around}) > 1
    found = RangeLabelIndex(Ranges.from_ranges(in_order(some)), context).find_contexts(array("q", asked))
    assert [found.get_context(i) for i in range(len(asked))] == expected
    assert found.doubly_claimed_count == claimed_twice


@dataclass(frozen=True)
class Kernel:
    start: int
    end: int
    stream: int
    communicates: bool
    launch: int | None

    @property
    def looked_up(self) -> int:
        return self.start if self.launch is None else self.launch

    @property
    def stage(self) -> str:
        return next((name for name, (start, end) in STAGES.items() if start <= self.looked_up <= end), "none")

    def in_window(self, mode: KernelsMode) -> Kernel | None:
        low, high = WINDOW
        if mode is KernelsMode.LAUNCHED:
            return self if self.launch is not None and low <= self.launch <= high else None
        if mode is KernelsMode.CONTAINED:
            return self if low <= self.start and self.end <= high else None
        start, end = max(self.start, low), min(self.end, high)
        touches = start < end or (self.start == self.end and low <= self.start <= high)
        return replace(self, start=start, end=end, launch=self.looked_up) if touches else None


WINDOW = (10, 30)
STAGES = {"stage2_f": (8, 14), "stage4_b": (15, 22)}

kernels = st.builds(
    lambda start, length, stream, communicates, launch: Kernel(start, start + length, stream, communicates, launch),
    st.integers(1, 40),  # a kernel from 0 to 0 was not timed
    st.integers(0, 12),
    st.sampled_from([7, 28, 32]),
    st.booleans(),
    st.none() | st.integers(0, 40),
)


def keeps_order(read: Iterable[Kernel], stream: int) -> bool:
    """Whether at most 1% of a stream's kernel time, of what was read, ran inside other kernels of it."""
    own = sorted(((k.start, k.end) for k in read if k.stream == stream), key=lambda span: (span[0], -span[1]))
    inside = [end - start for n, (start, end) in enumerate(own) if any(end <= other for _, other in own[:n])]
    return 100 * sum(inside) <= sum(end - start for start, end in own)


def oracle(inside: list[Kernel], mode: KernelsMode, orderly: Collection[int]) -> dict[str, dict[object, object]]:
    """Every number of the overlap pipeline, by counting ticks."""

    def span(some: Iterable[Kernel]) -> set[int]:
        return ticks((k.start, k.end) for k in some)

    def total(some: Iterable[Kernel]) -> int:
        return sum(k.end - k.start for k in some)

    compute = [k for k in inside if not k.communicates]
    computing = {k.stream for k in compute}
    barriers = [k for k in inside if k.communicates and k.stream in computing & {*orderly}]
    communication = [k for k in inside if k.communicates and k not in barriers]
    busy, length = len(span(inside)), WINDOW[1] - WINDOW[0]
    if mode is KernelsMode.LAUNCHED:
        length = max(k.end for k in inside) - min(k.start for k in inside)
    found: dict[str, dict[object, object]] = {
        "compute_ns": {0: total(compute)},
        "barrier_ns": {0: total(barriers)},
        "busy_ns": {0: busy},
        "window_ns": {0: length},
        "idle_ns": {0: length - busy},
        "gpu_gap_ns": {},
    }
    if span(compute):
        found["gpu_gap_ns"][0] = max(span(compute)) + 1 - min(span(compute)) - len(span(compute))
    for suffix, some in (("", communication), ("_all", communication + barriers)):
        found[f"wall_exposed{suffix}_ns"], found[f"wall_overlap{suffix}"] = {}, {}
        if wall := span(some):
            found[f"wall_exposed{suffix}_ns"][0] = len(wall - span(compute))
            found[f"wall_overlap{suffix}"][0] = Fraction(len(wall & span(compute)), len(wall))
    names = ("comm_ns", "exposed_ns", "overlap", "overlap_min", "overlap_max")
    found |= {name: {} for name in names}
    for stage in {*STAGES, "none"}:
        members = [k for k in communication if k.stage == stage and k.end > k.start]
        if members:
            exposed = [len(span([k]) - span(compute)) for k in members]
            hidden = [Fraction(k.end - k.start - e, k.end - k.start) for k, e in zip(members, exposed, strict=True)]
            row = (0, stage)
            found["comm_ns"][row] = total(members)
            found["exposed_ns"][row] = sum(exposed)
            found["overlap"][row] = Fraction(total(members) - sum(exposed), total(members))
            found["overlap_min"][row], found["overlap_max"][row] = min(hidden), max(hidden)
    return found


@pytest.mark.parametrize("mode", KernelsMode)
@given(some=st.lists(kernels, min_size=1, max_size=9))
def test_overlap_pipeline(tmp_path_factory: pytest.TempPathFactory, mode: KernelsMode, some: list[Kernel]) -> None:
    gpu = TraceBuilder().process()
    for name, (start, end) in STAGES.items():
        gpu.range(name, start, end)
    for k in some:
        name = "ncclKernel" if k.communicates else "gemm"
        gpu.kernel(name, k.start, k.end, stream=k.stream, launch_ns=k.launch, launch=k.launch is not None)
    path = gpu.trace.write(_folder(tmp_path_factory) / f"{mode}.sqlite")

    inside = [own for k in some if (own := k.in_window(mode)) is not None]
    low, high = WINDOW
    with captures(path) as run:
        spec = run.make_spec(f"{low}:{high}", kernels=mode)
        if not inside:
            with pytest.raises(NothingMeasured, match="holds no kernel"):
                rows_of(run, "busy_ns", spec)
            return
        ((window,),) = run.runs[0].load_windows(spec).windows_by_rank.values()
        of = window.track.kernels
        places = [of.streams[number].number for number in of.stream]
        read = [
            Kernel(*each, communicates=False, launch=None) for each in zip(of.start_ns, of.end_ns, places, strict=True)
        ]
        expected = oracle(inside, mode, [stream for stream in {*places} if keeps_order(read, stream)])
        assert {metric: rows_of(run, metric, spec) for metric in expected} == expected


def _folder(factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples: each replaces the trace of the one before."""
    folder = factory.getbasetemp() / "pipeline"
    folder.mkdir(exist_ok=True)
    return folder
