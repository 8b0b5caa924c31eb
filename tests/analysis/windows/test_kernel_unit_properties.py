"""Do the windows of a kernel part what a rank launched, and measure what ranges around the same launches measure?"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, KernelAnchor
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.model import KernelsMode
from tests.support.measure import captures
from tests.support.samples.builder import Process, TraceBuilder

OF_KERNELS = replace(BUILT_IN_CONVENTIONS["generic"], anchor=KernelAnchor("embed"), kernels=KernelsMode.LAUNCHED)
OF_RANGES = replace(OF_KERNELS, anchor="step%")
NCCL = "ncclDevKernel_AllReduce"


@dataclass(frozen=True)
class Launch:
    """A kernel, so long before it the launch before it was, its stream, how far behind it runs, and for how long."""

    name: str
    after_ns: int
    stream: int
    lag_ns: int
    length_ns: int


LAUNCHES = st.builds(
    Launch,
    st.sampled_from(["gemm", "gelu", NCCL]),
    st.integers(1, 200),
    st.sampled_from([7, 28]),
    st.integers(0, 2_000),
    st.integers(0, 400),
)
BEGINS = st.builds(Launch, st.just("embed"), st.integers(1, 200), st.just(7), st.integers(0, 50), st.integers(1, 50))
STEPS = st.lists(st.tuples(BEGINS, st.lists(LAUNCHES, max_size=6)), min_size=2, max_size=9)


def put(process: Process, launches: Sequence[Launch]) -> list[int]:
    """Write the launches one after another; when each of them is."""
    at, found = 1_000, []
    for each in launches:
        at += each.after_ns
        start = at + each.lag_ns
        process.kernel(each.name, start, start + each.length_ns, stream=each.stream, launch_ns=at)
        found.append(at)
    return found


@given(st.lists(LAUNCHES, max_size=4), STEPS)
def test_every_launch_of_a_step_is_in_exactly_one_window(before: list[Launch], steps: list[Any]) -> None:
    launches = [*before, *(each for begins, rest in steps for each in (begins, *rest))]
    with TemporaryDirectory() as folder:
        trace = TraceBuilder()
        times = put(trace.process(), launches)
        path = trace.write(Path(folder, "run.sqlite"))
        with captures(path, convention=OF_KERNELS) as opened:
            run = opened.runs[0]
            (rank,) = run.ranks
            found = run.find_anchors(rank)
            spans = [(step.start_ns, step.end_ns) for step in found]
            begun = [time for time, each in zip(times, launches, strict=True) if each.name == "embed"]
            assert spans[:-1] == list(pairwise(begun))
            held: list[int] = []
            for index, unit in enumerate(found):
                (window,) = run.load_windows(opened.make_spec(str(index))).windows_by_rank[rank.number]
                own = sorted(window.launch_ns)
                assert own[0] == unit.start_ns
                until = max(times) + 1 if unit is found[-1] else unit.end_ns
                assert own == [time for time in times if unit.start_ns <= time < until]
                held += own
            assert len(held) == len(set(held))


def figures(opened: Captures, window: str) -> Mapping[str, object]:
    """Every row of every metric, or what kind of reason there is for none."""
    found: dict[str, object] = {}
    for name, metric in METRICS.items():
        try:
            found[name] = opened.measure_rows(metric, opened.make_spec(window)).rows
        except NsysError as error:
            found[name] = type(error)
    return found


@settings(phases=[phase for phase in Phase if phase is not Phase.shrink])  # hundreds of traces would be written
@given(
    st.lists(LAUNCHES, min_size=2, max_size=6),
    st.lists(st.integers(60, 140), min_size=5, max_size=9),
    st.sampled_from(["median", "steady", "first"]),
)
def test_ranges_around_equal_launches_are_equal(launched: list[Launch], pauses: list[int], window: str) -> None:
    rest = [replace(each, after_ns=100 + each.after_ns) for each in launched]
    first, *others = [Launch("embed", pause, 7, 10, 4_000) for pause in pauses]
    launches = [first, *(each for begins in others for each in (*rest, begins))]  # the last has no end
    with TemporaryDirectory() as folder, ExitStack() as stack:
        plain, marked = TraceBuilder(), TraceBuilder()
        put(plain.process(), launches)
        process = marked.process()
        times = put(process, launches)
        starts = times[:: len(rest) + 1]
        for number, (start, end) in enumerate(pairwise([*starts, starts[-1] + 2])):
            process.range(f"step {number}", start, end - 1)
        paths = plain.write(Path(folder, "plain.sqlite")), marked.write(Path(folder, "marked.sqlite"))
        both = [
            stack.enter_context(captures(path, convention=convention))
            for path, convention in zip(paths, (OF_KERNELS, OF_RANGES), strict=True)
        ]
        of_kernels, of_ranges = (figures(opened, window) for opened in both)
        assert of_kernels == of_ranges
