"""A stream whose kernels run inside one another is none: then its order proves nothing, in every format."""

from array import array
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.budget.budget import measure_budget
from pytest_nsys.analysis.metrics.quantities import QUANTITIES
from pytest_nsys.analysis.windows.rank_track import measure_stream_order
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.model import NO_STREAM, KernelsMode, Stream, Value
from pytest_nsys.core.tables import Kernels
from tests.analysis.budget.test_budget import FORMATS, NCCL, Ran, Write
from tests.support.gates import MS, Edit, Project
from tests.support.measure import captures, notes, rows
from tests.support.one_process import OneProcess
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.rocpd import RocpdBuilder

PLAIN = replace(BUILT_IN_CONVENTIONS["generic"], anchor="step%")
AT_NS = 100_000
"""All is launched long before."""

MERGED = [
    Ran("compute", AT_NS, AT_NS + 40, 7, 1),
    Ran("comm", AT_NS + 10, AT_NS + 30, 7, 2),
    Ran("comm", AT_NS + 40, AT_NS + 60, 7, 3),
    Ran("compute", AT_NS + 70, AT_NS + 100, 7, 4),
]
"""All on one stream, as a profiler that merged two of them writes it: a collective runs within a gemm."""


def of(path: Path, metric: str) -> Mapping[object, Value]:
    return rows(path, metric, convention=PLAIN, window="run")


@pytest.mark.parametrize("write", FORMATS)
def test_its_communication_is_no_barrier_and_its_order_proves_nothing(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, MERGED)
    assert of(path, "barrier_ns") == {0: 0}
    assert of(path, "wall_overlap") == {0: Fraction(1, 2)}
    assert of(path, "exposed_ns") == {(0, "none"): 20}
    assert of(path, "blocking_ns")[0, "collective"] == 0
    assert of(path, "blocking_comm_max_ns") == {0: 20}
    told = notes(path, "exposed_ns", "blocking_ns", convention=PLAIN, window="run")
    assert [note for note in told if "keeps no order" in note] == [
        "kernels run inside other kernels of stream 7 of rank 0, 18.2% of its kernel time: so it keeps no order, and "
        "its communication is counted by time, not as a barrier"
    ]


@pytest.mark.parametrize("write", FORMATS)
def test_a_stream_that_keeps_it_proves_what_it_did(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, [each for each in MERGED if each.start_ns != AT_NS + 10])
    assert of(path, "barrier_ns") == {0: 20}
    assert of(path, "blocking_ns")[0, "collective"] == 20


def ran(*kernels: tuple[int, int, int, int], streams: int = 2) -> Kernels:
    """Kernels of (start, length, stream, is it a node of a graph)."""
    own = sorted(kernels)
    none = array("q", bytes(8 * len(own)))
    return Kernels(
        start_ns=array("q", [start for start, *_ in own]),
        end_ns=array("q", [start + length for start, length, *_ in own]),
        correlation=none,
        stream=array("q", [stream for _, _, stream, _ in own]),
        name=none,
        full_name=none,
        streams=[Stream(0, 1, number) for number in range(streams)],
        names={0: "gemm"},
        graph_node=bytearray(node for *_, node in own),
    )


@pytest.mark.parametrize(
    ("kernels", "found"),
    [
        ([], {}),
        ([(0, 100, 0, 0), (100, 50, 0, 0)], {}),
        ([(0, 100, 0, 0), (99, 50, 0, 0)], {}),  # a programmatic dependent launch
        ([(0, 99, 0, 0), (50, 1, 0, 0)], {}),  # 1%, and no more
        ([(0, 98, 0, 0), (50, 1, 0, 0)], {0: Fraction(1, 99)}),
        ([(0, 100, 0, 0), (50, 0, 0, 0)], {}),
        ([(0, 100, 0, 0), (50, 20, 1, 0)], {}),
        ([(0, 100, 0, 0), (50, 20, 0, 1)], {}),
        ([(0, 100, 0, 1), (50, 20, 0, 0)], {}),
        ([(0, 60, 0, 0), (0, 40, 0, 0)], {0: Fraction(2, 5)}),
        ([(0, 50, 0, 0), (0, 50, 0, 0)], {0: Fraction(1, 2)}),
        ([(0, 80, 0, 0), (10, 10, 0, 0), (60, 10, 0, 0), (0, 9, 1, 0)], {0: Fraction(1, 5)}),
    ],
)
def test_what_runs_wholly_inside_shows_it(kernels: list[tuple[int, int, int, int]], found: dict[int, Fraction]) -> None:
    assert {
        stream.number: share for stream, share in measure_stream_order(ran(*kernels)).unordered_streams.items()
    } == found


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(0, 1), st.sampled_from([0, 0, 0, 1])), max_size=8
    )
)
def test_it_is_what_comparing_each_with_each_says(kernels: list[tuple[int, int, int, int]]) -> None:
    own = [
        (n, start, start + length, stream)
        for n, (start, length, stream, node) in enumerate(sorted(kernels))
        if not node
    ]
    expected = {}
    for stream in range(2):
        here = [(n, a, b) for n, a, b, at in own if at == stream]
        covered = [sum(c <= a and b <= d for m, a, b in here if m != n) for n, c, d in here]
        if max(covered, default=0) >= 3:
            return  # of one that lies over several it is not the stream that is wrong
        inside = [
            b - a
            for n, a, b in here
            if any(c <= a and b <= d and (m < n or (c, d) != (a, b)) for m, c, d in here if m != n)
        ]
        if 100 * sum(inside) > (whole := sum(b - a for _, a, b in here)):
            expected[stream] = Fraction(sum(inside), whole)
    assert {
        stream.number: share for stream, share in measure_stream_order(ran(*kernels)).unordered_streams.items()
    } == expected


@pytest.mark.parametrize(
    ("kernels", "covering", "unordered"),
    [
        ([(0, 100, 0, 0), (10, 5, 0, 0), (20, 5, 0, 0), (30, 5, 0, 0)], [0], set()),
        ([(0, 100, 0, 0), (10, 5, 0, 0), (20, 5, 0, 0)], [], {0}),
        ([(0, 100, 0, 0), (10, 5, 1, 0), (20, 5, 1, 0), (30, 5, 1, 0)], [], set()),
        ([(0, 100, 0, 1), (10, 5, 0, 0), (20, 5, 0, 0), (30, 5, 0, 0)], [], set()),
        # two such are a stream that keeps no order
        ([(at + own, 40 if not own else 5, 0, 0) for at in (0, 50) for own in (0, 5, 12, 20)], [], {0}),
        # one, and others that lie inside one another: the stream keeps none without it
        ([(0, 100, 0, 0), (10, 30, 0, 0), (12, 20, 0, 0), (50, 5, 0, 0), (60, 5, 0, 0)], [], {0}),
    ],
)
def test_a_kernel_over_several_later_ones_is_wrong_where_the_others_keep_their_order(
    kernels: list[tuple[int, int, int, int]], covering: list[int], unordered: set[int]
) -> None:
    found = measure_stream_order(ran(*kernels))
    assert [*found.covering_kernels] == covering
    assert {stream.number for stream in found.unordered_streams} == unordered


def test_what_is_on_no_stream_is_on_none_that_keeps_order() -> None:
    none = replace(ran((0, 100, 0, 0), (50, 20, 0, 0)), streams=[Stream(0, 1, NO_STREAM)])
    assert measure_stream_order(none).unordered_streams == {}


def test_another_stream_and_device_keep_theirs(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 0, 40, launch_ns=-9, launch_length_ns=1)
    gpu.kernel("gelu", 10, 30, launch_ns=-8, launch_length_ns=1)
    gpu.kernel(NCCL, 40, 60, stream=20, launch_ns=-7, launch_length_ns=1)
    gpu.kernel("gemm", 70, 100, stream=20, launch_ns=-6, launch_length_ns=1)
    assert rows(gpu, "barrier_ns", convention=PLAIN) == {0: 20}
    assert rows(gpu, "blocking_ns", convention=PLAIN, kernels="clipped")[0, "collective"] == 20


def test_a_wait_on_it_or_for_it_proves_nothing(gpu: OneProcess) -> None:
    gpu.range("step", 0, 200)
    gpu.kernel("first", 0, 30, stream=9, launch_ns=-20, launch_length_ns=1)
    gpu.kernel(NCCL, 40, 90, launch_ns=-19, launch_length_ns=1)
    gpu.stream_wait(-17, gpu.event_record(-18), stream=9)
    gpu.kernel("second", 100, 190, stream=9, launch_ns=-16, launch_length_ns=1)

    def blocked() -> tuple[Value, bool]:
        with captures(gpu, convention=PLAIN) as run:
            (window,) = run.runs[0].load_windows(run.make_spec("median", None, KernelsMode.CLIPPED)).windows_by_rank[0]
            budget = measure_budget(window)
            return budget.lines.blocking_ns["collective"], budget.lines.at_least

    assert blocked() == (50, False)
    gpu.kernel(NCCL, 50, 60, launch_ns=-15, launch_length_ns=1)
    assert blocked() == (0, True)


@pytest.mark.parametrize("kernels", KernelsMode)
def test_the_budget_and_the_barriers_agree_on_it(gpu: OneProcess, kernels: KernelsMode) -> None:
    """What runs after the windows, or between their launches, does not change what is said of them."""
    for step in range(5):
        at = 1_000 * step
        gpu.range("step", at, at + 500)
        gpu.kernel("gemm", at + 100, at + 200, launch_ns=at + 10, launch_length_ns=1)
        gpu.kernel(NCCL, at + 200, at + 300, launch_ns=at + 20, launch_length_ns=1)
        gpu.kernel("gemm", at + 310, at + 400, launch_ns=at + 30, launch_length_ns=1)
        if step != 1:
            gpu.kernel("nested", at + 120, at + 180, launch_ns=at + 15, launch_length_ns=1)
    asked = {"window": "1", "kernels": str(kernels)}
    assert rows(gpu, "barrier_ns", convention=PLAIN, **asked) == {0: 100}
    assert rows(gpu, "blocking_ns", convention=PLAIN, **asked)[0, "collective"] == 100
    assert not any("keeps no order" in note for note in notes(gpu, "blocking_ns", convention=PLAIN, **asked))


# -- against a baseline

GATE = """
tolerance: {rel: 5%}
assertions:
  - barrier_ns below baseline plus tolerance
  - collective blocking_ns below baseline plus tolerance
  - blocking_comm_max_ns below baseline plus tolerance
  - compute_ns below baseline plus tolerance
"""


def step_of(comm_us: int, *nested: int) -> Edit:
    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        at = 40 * MS + 1_000
        for process in processes:
            process.kernel(NCCL, at + 13 * MS, at + 13 * MS + comm_us * 1_000, launch_ns=at + 300)
            process.kernel("tail", at + 14 * MS, at + 14 * MS + 1_000, launch_ns=at + 310)
            for i, us in enumerate(nested):
                process.kernel("nested", at + 13 * MS + 1_000 * i, at + 13 * MS + us * 1_000, launch_ns=at + 320 + i)

    return edit


@pytest.mark.parametrize("against", [(), ("--nsys-against=base.sqlite",)], ids=["stored", "against"])
@pytest.mark.parametrize("turned", [False, True], ids=["lost", "found"])
@pytest.mark.sampled(3)
def test_what_hangs_on_a_lost_order_is_not_compared(project: Project, against: tuple[str, ...], turned: bool) -> None:
    """It was improved: a barrier that got longer was none any more."""
    base, head = step_of(200), step_of(300, 250)
    if turned:
        base, head = head, base
    project.accepted(GATE, name="base.sqlite", edit=base)
    project.trace("head.sqlite", edit=head)
    cases = project.cases("--nsys-trace=head.sqlite", *against)
    unlike = [case for name, case in cases.items() if not name.startswith("compute_ns")]
    assert len(unlike) == 3
    streams = "rank 0 stream 7, rank 1 stream 7"
    now, was = ("no stream", streams) if turned else (streams, "no stream")
    said = f" {was}, now {now}" if against else f": now {now}, baseline {was}"
    assert all(f"streams of overlapping kernels{said}" in case.text for case in unlike)
    if not against:
        project.refresh("--nsys-trace=head.sqlite")
        assert {case.state for case in project.cases("--nsys-trace=head.sqlite").values()} == {"passed"}


# -- databases that were grouped by queue


def by_queue(tmp_path: Path, *, streams: tuple[int, int] = (0, 0), queues: tuple[int, int] = (1, 2)) -> Path:
    trace = RocpdBuilder()
    trace.range("step", 0, 100)
    trace.kernel("gemm", 10, 40, stream=streams[0], queue=queues[0], launch_ns=2)
    trace.kernel(NCCL, 20, 60, stream=streams[1], queue=queues[1], launch_ns=3)
    trace.kernel("gemm", 70, 90, stream=streams[0], queue=queues[0], launch_ns=4)
    trace.memcpy(62, 66, stream=0, launch_ns=3)
    return trace.write(tmp_path / "1_results.db")


def computing(path: Path) -> dict[object, Value]:
    """By stream how long its compute ran, of those that computed."""
    with captures(path, convention=PLAIN) as run:
        shown = run.measure_rows(QUANTITIES["stream_compute_ns"], run.make_spec("run")).rows
        return {row.labels[1]: row.value for row in shown if row.value}


def test_a_queue_is_the_lane_where_all_streams_are_0(tmp_path: Path) -> None:
    path = by_queue(tmp_path)
    assert of(path, "barrier_ns") == {0: 0}
    assert of(path, "exposed_ns") == {(0, "none"): 20}
    assert computing(path) == {1: 50}
    assert of(path, "blocking_ns") == {(0, "collective"): 0, (0, "copy"): 0, (0, "memset"): 0}


@pytest.mark.parametrize(
    ("streams", "queues", "computes"), [((0, 3), (1, 2), 0), ((0, 0), (1, 1), 0), ((4, 4), (1, 2), 4)]
)
def test_else_the_stream_is(tmp_path: Path, streams: tuple[int, int], queues: tuple[int, int], computes: int) -> None:
    assert computing(by_queue(tmp_path, streams=streams, queues=queues)) == {computes: 50}
