"""Does each kind of finding appear where it should, and only there, and does none claim more time than there was?"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.budget.budget import measure_budget
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.analysis.metrics.collective_waits import WaitInterval
from pytest_nsys.analysis.summary.findings import MIN_SHARE_BY_KIND, Finding, list_findings
from pytest_nsys.analysis.summary.lost_time import FindingKind, LostTime
from pytest_nsys.analysis.summary.summary import summarize_captures
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.model import KernelsMode, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.workload import Workload
from pytest_nsys.reports.screens.findings import format_finding
from pytest_nsys.reports.screens.next_steps import format_detail_command
from tests.support.commands import answer
from tests.support.measure import STEPS, captures
from tests.support.reference_data import DATA
from tests.support.samples.builder import LAUNCH_LENGTH_NS, Process, TraceBuilder
from tests.support.samples.gpu_state import sm_clock
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.nccl import NcclRanges
from tests.support.samples.schema import MEMCPY

US, MS = 1_000, 1_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
STEP_NS = 10 * MS
EARLY = 1 * US
"""When what is launched long before it starts was launched."""

COMM = 0xABC
PAGEABLE, PINNED = 0, 1


class Traced(NamedTuple):
    """A trace as it is written: steps of 10 ms, of which the third is the median one."""

    trace: TraceBuilder
    nccl: NcclRanges
    at: int

    def process(self, rank: int = 0, ranks: int = 1) -> Process:
        process = self.trace.process(pid=100 + rank, device=rank)
        if ranks > 1:
            self.nccl.communicator(process, COMM, ranks=ranks, rank=rank)
        for n in range(5):
            process.range("step", n * STEP_NS, (n + 1) * STEP_NS)
            if n * STEP_NS != self.at:
                self.gemm(process, 0, STEP_NS, at=n * STEP_NS)
        return process

    def gemm(self, gpu: Process, start: int, end: int, *, at: int | None = None, **more: Any) -> None:
        """Compute of the measured step, launched at its beginning."""
        at = self.at if at is None else at
        gpu.kernel("gemm", at + start, at + end, launch_ns=at + more.pop("launch", EARLY), **more)


Put = Callable[[Traced], object]


def found(path: Path, put: Put, workload: Workload | None = None) -> dict[FindingKind, Finding]:
    """The findings of the median step of a trace."""
    trace = TraceBuilder()
    put(Traced(trace, NcclRanges(trace), 2 * STEP_NS))
    with captures(trace.write(path / "run.sqlite"), convention=STEPS, workload=workload) as run:
        each = list_findings(run, run.make_spec("median"), limit=len(FindingKind))
    return {finding.kind: finding for finding in each}


def gap_with(between: Callable[[Traced, Process], object], *, launch: int = EARLY, stop: int = 6 * MS) -> Put:
    """A step that computes but from 5 ms to ``stop``."""

    def put(t: Traced) -> None:
        gpu = t.process()
        t.gemm(gpu, 0, 5 * MS)
        between(t, gpu)
        t.gemm(gpu, stop, STEP_NS, launch=launch)

    return put


def until(end: int) -> Put:
    """A step that computes until then; the next one is launched when it begins."""
    return lambda t: t.gemm(t.process(), 0, end)


def nothing(_t: Traced, _gpu: Process) -> None:
    """The gap is empty."""


def nccl(start: int, end: int, stream: int = 20) -> Callable[[Traced, Process], object]:
    return lambda t, gpu: gpu.kernel(NCCL, t.at + start, t.at + end, stream=stream, launch_ns=t.at + EARLY)


def cast_between(t: Traced, gpu: Process) -> None:
    """A compute kernel among the communication of its stream."""
    for start, end in ((1, 2), (5, 6)):
        nccl(start * MS, end * MS)(t, gpu)
    gpu.kernel("cast_to_fp8", t.at + 3 * MS, t.at + 3 * MS + 50 * US, stream=20, launch_ns=t.at + EARLY)


def sync(start: int, end: int) -> Callable[[Traced, Process], object]:
    return lambda t, gpu: gpu.api("cudaStreamSynchronize_v3020", t.at + start, t.at + end)


def copy(start: int, end: int) -> Callable[[Traced, Process], object]:
    return lambda t, gpu: gpu.memcpy(t.at + start, t.at + end, launch_ns=t.at + EARLY)


def host_copy(memory: int) -> Callable[[Traced, Process], object]:
    """The host is in the call of a short copy from such memory for 900 us."""

    def put(t: Traced, gpu: Process) -> None:
        number = gpu.api("cudaMemcpyAsync_v3020", t.at + 5 * MS, t.at + 5_900 * US)
        memories = {"copyKind": 1, "srcKind": memory, "dstKind": 2, "bytes": 4}
        t.trace.insert(MEMCPY, **gpu.gpu_span(t.at + 4 * MS, t.at + 4 * MS + 5, number, stream=9), **memories)

    return put


def small(length: int, gap: int) -> Put:
    """Kernels one after another, each launched when the one before it is over."""

    def put(t: Traced) -> None:
        gpu, start = t.process(), 5 * MS
        t.gemm(gpu, 0, start)
        while start + gap + length < STEP_NS:
            start += gap
            t.gemm(gpu, start, start + length, launch=start - 5 * US)
            start += length
        t.gemm(gpu, start, STEP_NS)

    return put


def other_device(end: int) -> Put:
    """The next kernel waits for one on another device of its process, that ends then."""

    def put(t: Traced) -> None:
        gpu = t.process()
        t.gemm(gpu, 0, 5 * MS)
        gpu.kernel("remote", t.at, t.at + end, device=1, context=2, stream=9, launch_ns=t.at + EARLY)
        record = gpu.event_record(t.at + 10 * US, stream=9, context=2)
        gpu.stream_wait(t.at + 20 * US, record)
        t.gemm(gpu, max(end, 5 * MS), STEP_NS, launch=30 * US)

    return put


def two_ranks(late: int) -> Put:
    """Both reduce together; the second computes that much longer before."""

    def put(t: Traced) -> None:
        for rank in range(2):
            gpu, start = t.process(rank, ranks=2), 5 * MS + late * rank
            t.gemm(gpu, 0, start)
            t.nccl.call(gpu, "ncclAllReduce", t.at + 2 * EARLY, t.at + 3 * EARLY, COMM, 1_000)
            end = 5 * MS + late + 50 * US
            gpu.kernel(NCCL, t.at + start, t.at + end, stream=20, launch_ns=t.at + 2 * EARLY + 100)
            t.gemm(gpu, end, STEP_NS)

    return put


def compute_of(*ends: int) -> Put:
    """A rank for each, which computes until then; the rest of its step copies."""

    def put(t: Traced) -> None:
        for rank, end in enumerate(ends):
            gpu = t.process(rank)
            t.gemm(gpu, 0, end)
            gpu.memcpy(t.at + end, t.at + STEP_NS - 1, stream=7, launch_ns=t.at + EARLY)
            t.gemm(gpu, STEP_NS - 1, STEP_NS)

    return put


def clocked(*mhz: int) -> Put:
    """A step of compute, with samples of the clock."""

    def put(t: Traced) -> None:
        gpu = t.process()
        t.trace.gpu("NVIDIA H100 80GB HBM3", process=gpu)
        t.gemm(gpu, 0, STEP_NS)
        sm_clock(t.trace, *((t.at + (n + 1) * MS, each * MS) for n, each in enumerate(mhz)))

    return put


class Case(NamedTuple):
    """What fires a kind, with what it wins (None: nothing) and some of its figures, and what nearly does."""

    kind: FindingKind
    fires: Put
    win_ns: int | None
    figures: Mapping[str, object]
    near: Put
    step_ms: Fraction | None = None
    near_ms: Fraction | None = None


LESS = 5 * MS + 99 * US
"""A gap to there is under a hundredth of the step."""

CASES = [
    Case(
        FindingKind.COMMUNICATION,
        gap_with(nccl(4 * MS, 6 * MS)),
        1 * MS,
        {"part_ns": 1 * MS, "kernel": NCCL, "kernel_ns": 1 * MS, "comm_ns": 2 * MS},
        gap_with(nccl(4 * MS, LESS), stop=LESS),
    ),
    Case(
        FindingKind.WRONG_STREAM,
        gap_with(cast_between),
        1 * MS,
        {"part_ns": 2 * MS, "stream": 20, "comm_kernels": 2, "compute_kernels": 1, "mostly": "cast_to_fp8"},
        gap_with(nccl(4 * MS, 6 * MS)),
    ),
    Case(
        FindingKind.WRONG_STREAM,
        gap_with(nccl(4 * MS, 6 * MS, stream=7)),
        1 * MS,
        {"part_ns": 2 * MS, "stream": 7, "comm_kernels": 1, "compute_kernels": 2, "mostly": "gemm"},
        gap_with(nccl(4 * MS, LESS, stream=7), stop=LESS),
    ),
    Case(
        FindingKind.STRAGGLER,
        two_ranks(1 * MS),
        1 * MS,
        {"part_ns": 1 * MS, "more_ns": 0, "for_rank": 1, "collective": "AllReduce"},
        two_ranks(99 * US),
    ),
    Case(
        FindingKind.LAUNCHES,
        gap_with(nothing, launch=6 * MS - 3 * US),
        1 * MS,
        {"part_ns": 1 * MS, "before": "gemm", "before_ns": 1 * MS},
        gap_with(nothing, launch=LESS - 3 * US, stop=LESS),
    ),
    Case(
        FindingKind.BETWEEN, until(5 * MS), 5 * MS, {"part_ns": 5 * MS, "window_ns": STEP_NS}, until(STEP_NS - 99 * US)
    ),
    Case(
        FindingKind.SYNCS,
        gap_with(sync(5 * MS, 5_900 * US), launch=6 * MS - 3 * US),
        900 * US,
        {"part_ns": 900 * US, "more_ns": 0, "call": "cudaStreamSynchronize", "calls": 1},
        gap_with(sync(4 * MS, LESS), launch=6 * MS - 3 * US),
    ),
    Case(
        FindingKind.LAUNCHES,
        small(10 * US, 40 * US),
        99 * 38 * US,
        {"part_ns": 99 * 38 * US, "tiny": 99, "kernels": 101},
        gap_with(nothing, launch=LESS - 3 * US, stop=LESS),
    ),
    Case(
        FindingKind.COPIES,
        gap_with(copy(5 * MS, 6 * MS)),
        1 * MS,
        {
            "part_ns": 1 * MS,
            "more_ns": 0,
            "host_ns": 0,
            "producer": "copy",
            "before": "gemm",
            "before_ns": 1 * MS,
            "gaps": 1,
        },
        gap_with(copy(4 * MS, LESS), stop=LESS),
    ),
    Case(
        FindingKind.COPIES,
        gap_with(host_copy(PAGEABLE), launch=6 * MS - 3 * US),
        900 * US,
        {"part_ns": 1 * MS, "host_ns": 900 * US, "pageable": 1, "between": "pageable to device", "copies": 1},
        gap_with(host_copy(PINNED), launch=6 * MS - 3 * US),
    ),
    Case(
        FindingKind.OTHER_DEVICE,
        other_device(6 * MS),
        1 * MS,
        {"part_ns": 1 * MS, "kernel": "remote", "before": "gemm", "before_ns": 1 * MS, "gaps": 1},
        other_device(LESS),
    ),
    Case(
        FindingKind.STALLED,
        gap_with(nothing),
        1 * MS,
        {"part_ns": 1 * MS, "before": "gemm", "before_ns": 1 * MS},
        gap_with(nothing, stop=LESS),
    ),
    Case(
        FindingKind.CLOCKS,
        clocked(1_980, 990, 990, 990),
        5 * MS,
        {"sm_clock_mhz": 990, "best_mhz": 1_980},
        clocked(1_980, 1_900, 1_900, 1_900),
    ),
    Case(
        FindingKind.UNEVEN,
        compute_of(9 * MS - 1, 8 * MS - 1, 7 * MS - 1),
        1 * MS,
        {"part_ns": 9 * MS, "mean_ns": 8 * MS},
        compute_of(8_200 * US, 8 * MS, 8 * MS),
    ),
    Case(
        FindingKind.PROFILER,
        clocked(),
        None,
        {"overhead": Fraction(1, 4)},
        clocked(),
        step_ms=Fraction(8),
        near_ms=Fraction("9.5"),
    ),
]


def stated(step_ms: Fraction | None) -> Workload | None:
    return None if step_ms is None else Workload(steps=1, step_time_ns=int(step_ms * MS))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_each_kind_appears_where_it_is_worth_telling_and_not_below(tmp_path: Path, case: Case) -> None:
    fires = found(tmp_path, case.fires, stated(case.step_ms))[case.kind]
    assert fires.win_ns == case.win_ns
    assert {name: fires.figures[name] for name in case.figures} == case.figures
    assert case.kind not in found(tmp_path, case.near, stated(case.near_ms))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_the_leading_figure_is_a_cell_of_what_shows_more(tmp_path: Path, case: Case) -> None:
    """To the nanosecond, of the rank that the finding names."""
    finding = found(tmp_path, case.fires, stated(case.step_ms))[case.kind]
    if "part_ns" not in finding.figures:
        assert case.kind in (FindingKind.CLOCKS, FindingKind.PROFILER)
        return
    assert format_value(fact(finding, "part_ns")) in format_finding(finding)
    assert (finding.win_ns or 0) <= fact(finding, "part_ns") + fact(finding, "more_ns")
    asked = format_detail_command(finding, [str(tmp_path / "run.sqlite")])
    shown = answer(*shlex.split(asked)[1:])
    tables = (rows for rows in shown.values() if isinstance(rows, list) and rows and isinstance(rows[0], dict))
    own = [cell for rows in tables for row in rows if row.get("rank") == finding.rank for cell in cells(row)]
    assert finding.figures["part_ns"] in own


def fact(finding: Finding, name: str) -> Value:
    value = finding.figures.get(name, 0)
    assert not isinstance(value, str)
    return value


def cells(row: Mapping[str, object]) -> Iterator[object]:
    for cell in row.values():
        yield from cells(cell) if isinstance(cell, dict) else (cell,)


def test_communication_is_told_of_the_rank_that_the_table_has(tmp_path: Path) -> None:
    """Rank 1 exposes more of it, rank 0 loses more time to it that nothing else explains."""

    def put(t: Traced) -> None:
        for rank, (end, starts) in enumerate(((7_000 * US, EARLY), (7_200 * US, 6_500 * US))):
            gpu = t.process(rank)
            t.gemm(gpu, 0, 5 * MS)
            nccl(4 * MS, end)(t, gpu)
            t.gemm(gpu, end, STEP_NS, launch=starts)

    finding = found(tmp_path, put)[FindingKind.COMMUNICATION]
    assert (finding.rank, finding.figures["part_ns"], finding.win_ns) == (1, 2_200 * US, 700 * US - LAUNCH_LENGTH_NS)
    with captures(tmp_path / "run.sqlite") as run:
        spec = run.make_spec("median")
        whole = summarize_captures(run, spec).communication.total
    assert whole is not None
    assert (whole.rank, whole.exposed_ns) == (finding.rank, finding.figures["part_ns"])


def test_every_kind_has_a_case_and_a_threshold() -> None:
    assert {case.kind for case in CASES} == MIN_SHARE_BY_KIND.keys() == {*FindingKind}


def test_a_good_step_gives_none(tmp_path: Path) -> None:
    assert found(tmp_path, gap_with(nccl(1 * MS, 5 * MS), stop=5 * MS)) == {}


def test_a_rank_that_computes_longer_and_is_waited_for_is_told_once(tmp_path: Path) -> None:
    assert found(tmp_path, two_ranks(1 * MS)).keys() == {FindingKind.STRAGGLER}


def test_ranks_of_files_hours_apart_are_held_against_each_other(tmp_path: Path) -> None:
    """Each file has its own clock; the ends of what they reduce together make it one."""
    for rank in range(2):
        torch, hour = KinetoBuilder(rank, 2), rank * 3_600 * 10**9
        for n in range(10):
            at, start = hour + n * STEP_NS, 5 * MS + rank * MS
            torch.range(f"ProfilerStep#{n}", at, at + STEP_NS)
            torch.kernel("gemm", at, at + start, launch_ns=at + EARLY)
            said: dict[str, Any] = {
                "Collective name": "allreduce",
                "In msg nelems": 8,
                "Out msg nelems": 8,
                "dtype": "Float",
            }
            group: dict[str, Any] = {"Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
            torch.kernel(NCCL, at + start, at + 7 * MS, stream=20, launch_ns=at + EARLY, **said, **group)
            torch.kernel("gemm", at + 7 * MS, at + STEP_NS, launch_ns=at + EARLY)
        torch.write(tmp_path / "run" / f"rank{rank}_trace.json")
    with captures(tmp_path / "run", convention=BUILT_IN_CONVENTIONS["torchtitan"]) as run:
        spec = run.make_spec("5")
        each = {finding.kind: finding for finding in list_findings(run, spec)}
    assert each.keys() == {FindingKind.STRAGGLER, FindingKind.COMMUNICATION}
    assert (each[FindingKind.STRAGGLER].rank, each[FindingKind.STRAGGLER].win_ns) == (0, 1 * MS)
    assert each[FindingKind.COMMUNICATION].win_ns == 1 * MS


@pytest.mark.parametrize(("mhz", "slow_ns", "more_ns"), [(990, 4_500 * US, 4 * MS), (198, 8_100 * US, 900 * US)])
def test_slow_clocks_and_more_compute_are_two_times(tmp_path: Path, mhz: int, slow_ns: int, more_ns: int) -> None:
    """Of 9 ms of compute, 4 more than the mean, the clock explains a part, and what is left at most is the rest."""

    def put(t: Traced) -> None:
        for rank, (end, clock) in enumerate(((9 * MS, mhz), (1 * MS, 1_980))):
            gpu = t.process(rank)
            t.trace.gpu("NVIDIA H100 80GB HBM3", process=gpu, device=rank)
            sm_clock(t.trace, (t.at + 1 * MS, clock * MS), gpu=rank)
            t.gemm(gpu, 0, end)

    each = found(tmp_path, put)
    assert each[FindingKind.CLOCKS].win_ns == slow_ns
    assert each[FindingKind.UNEVEN].win_ns == more_ns


def test_ranks_with_other_numbers_of_steps_are_not_held_against_each_other(tmp_path: Path) -> None:
    def put(t: Traced) -> None:
        compute_of(9 * MS - 1, 8 * MS - 1, 7 * MS - 1)(t)
        gpu = t.process(3)
        gpu.range("step", 5 * STEP_NS, 6 * STEP_NS)
        t.gemm(gpu, 0, 1 * MS)

    assert FindingKind.UNEVEN not in found(tmp_path, put)


@pytest.mark.parametrize(("stacks", "launch", "told"), [(1, 6 * MS, True), (0, 6 * MS, False), (1, EARLY, False)])
def test_a_profiler_that_slows_is_told_where_it_costs(tmp_path: Path, stacks: int, launch: int, told: bool) -> None:
    torch = KinetoBuilder(0)
    torch.members["with_stack"] = stacks
    for n in range(5):
        at = n * STEP_NS
        torch.range(f"ProfilerStep#{n}", at, at + STEP_NS)
        torch.kernel("gemm", at, at + 5 * MS, launch_ns=at + EARLY)
        torch.kernel("gemm", at + 7 * MS, at + STEP_NS, launch_ns=at + launch)
    with captures(torch.write(tmp_path / "rank0_trace.json"), convention=BUILT_IN_CONVENTIONS["torchtitan"]) as run:
        each = list_findings(run, run.make_spec("median"))
    found = [finding.figures for finding in each if finding.kind is FindingKind.PROFILER]
    assert found == ([{"recorded": "with_stack=True"}] if told else [])


def test_the_largest_win_comes_first(tmp_path: Path) -> None:
    trace = TraceBuilder()
    t = Traced(trace, NcclRanges(trace), STEP_NS)
    gpu = trace.process()
    gpu.range("step", 0, STEP_NS)
    gpu.range("step", STEP_NS, 2 * STEP_NS)
    t.gemm(gpu, -STEP_NS, 1 * MS, launch=-STEP_NS)
    copy(1 * MS, 2 * MS)(t, gpu)
    t.gemm(gpu, 2 * MS, 3 * MS)
    nccl(3 * MS, 5 * MS)(t, gpu)
    t.gemm(gpu, 5 * MS, 6 * MS)
    t.gemm(gpu, 6_500 * US, 7 * MS)
    t.gemm(gpu, 8 * MS, 9 * MS, launch=8 * MS - 3 * US)
    sync(9 * MS, 9_300 * US)(t, gpu)
    t.gemm(gpu, 9_600 * US, STEP_NS, launch=9_300 * US - 3 * US)
    with captures(trace.write(tmp_path / "run.sqlite")) as run:
        each = list_findings(run, run.make_spec("median"))
    assert [finding.kind for finding in each] == [
        FindingKind.COMMUNICATION,
        FindingKind.COPIES,
        FindingKind.LAUNCHES,
        FindingKind.STALLED,
        FindingKind.SYNCS,
    ]


# -- no time is claimed twice


class Ran(NamedTuple):
    """One piece of work on a GPU, or a call of the host that waits."""

    what: str
    start: int
    length: int
    stream: int
    launch: int


WORK = st.lists(
    st.builds(
        Ran,
        st.sampled_from(["compute", "compute", "compute", "comm", "copy", "sync", "host copy"]),
        st.integers(5, 115),
        st.sampled_from([0, 1, 7, 20, 40]),
        st.sampled_from([7, 20]),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=10,
)


def write(path: Path, work: list[Ran]) -> Path:
    gpu = TraceBuilder().process()
    gpu.range("step", 0, 100)
    for each in work:
        start, end = each.start, each.start + each.length
        if each.what == "sync":
            gpu.api("cudaStreamSynchronize_v3020", start, end)
        elif each.what == "host copy":
            number = gpu.api("cudaMemcpyAsync_v3020", start, end)
            memories = {"copyKind": 1, "srcKind": PAGEABLE, "dstKind": 2, "bytes": 4}
            gpu.trace.insert(MEMCPY, **gpu.gpu_span(start, start + 1, number, stream=9), **memories)
        elif each.what == "copy":
            gpu.memcpy(start, end, stream=each.stream, launch_ns=min(each.launch, start))
        else:
            name, launch = "gemm" if each.what == "compute" else NCCL, min(each.launch, start)
            gpu.kernel(name, start, end, stream=each.stream, launch_ns=launch, launch_length_ns=1)
    return gpu.trace.write(path)


def called(each: Ran) -> range:
    """When the host was in the call."""
    if each.what == "copy":
        return range(launch := min(each.launch, each.start), launch + LAUNCH_LENGTH_NS)
    return range(each.start, each.start + each.length)


def kind_of_tick(part: BudgetPart, holds: Mapping[str, bool]) -> FindingKind:
    """The rule, one moment at a time: the first that holds."""
    of_host = {"synced": FindingKind.SYNCS, "copying": FindingKind.COPIES}
    together = {"waits": FindingKind.STRAGGLER, "shared": FindingKind.WRONG_STREAM}, FindingKind.COMMUNICATION
    rules, otherwise = {
        BudgetPart.COLLECTIVE: together,
        BudgetPart.BESIDE: together,
        BudgetPart.STARVED: (of_host, FindingKind.LAUNCHES),
        BudgetPart.STALLED: ({}, FindingKind.STALLED),
    }.get(part, ({}, FindingKind.COPIES))
    return next((kind for name, kind in rules.items() if holds[name]), otherwise)


@given(work=WORK, mode=st.sampled_from(KernelsMode))
def test_claims_are_what_counting_ticks_gives_and_no_tick_counts_twice(
    tmp_path_factory: pytest.TempPathFactory, work: list[Ran], mode: KernelsMode
) -> None:
    work.append(Ran("compute", 40, 5, 7, 3))
    path = write(tmp_path_factory.mktemp("claims") / "run.sqlite", work)
    with captures(path) as run:
        spec = run.make_spec("median", None, mode)
        ((window,),) = run.runs[0].load_windows(spec).windows_by_rank.values()
        spans = [(each.start, each.start + each.length // 2) for each in work if each.what == "comm"]
        waits = [WaitInterval(*span, "AllReduce", 1) for span in spans]
        budget, own = measure_budget(window), LostTime(measure_budget(window), waits)
        syncs = {tick for each in work if each.what == "sync" for tick in called(each)}
        copies = {tick for each in work if each.what in ("copy", "host copy") for tick in called(each)}
        pageable = any(each.what == "host copy" and each.start <= 100 for each in work)
        shared = {t for start, end in window.iterate_intervals(own.barriers) for t in range(start, end)}
        expected: Counter[FindingKind] = Counter()
        for each in budget.list_gap_parts():
            lasts = None if each.waiting_kernel is None else each.waiting_kernel.end_ns - each.waiting_kernel.start_ns
            for tick in range(each.start_ns, each.end_ns):
                holds = {
                    "waits": any(start <= tick < end for start, end in spans),
                    "shared": tick in shared,
                    "synced": tick in syncs and lasts is not None,
                    "copying": tick in copies and lasts is not None and pageable,
                }
                expected[kind_of_tick(each.part, holds)] += 1
        assert {kind: ns for kind, ns in own.claims_ns.items() if ns} == expected
        assert sum(own.claims_ns.values()) == budget.lines.compute_absent_ns
        wins = [finding.win_ns or 0 for finding in list_findings(run, spec, limit=99)]
        assert sum(wins) <= window.length_ns


@pytest.mark.reference
@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("*/*.json.gz")) if DATA.is_dir() else [])
@pytest.mark.sampled(4)
def test_nothing_wins_more_than_its_window_on_real_traces(name: str) -> None:
    (path,) = DATA.glob(f"*/{name}")
    with captures(path) as run:
        spec = run.make_spec("run")
        if not run.runs[0].has_kernels:
            return
        each = list_findings(run, spec, limit=99)
    for rank in {finding.rank for finding in each}:
        own = [finding for finding in each if finding.rank == rank and finding.win_ns is not None]
        assert sum(finding.win_ns or 0 for finding in own) <= max((finding.window_ns for finding in own), default=0)


def test_a_rank_without_a_kernel_in_its_window_leaves_the_others_told(tmp_path: Path) -> None:
    def put(t: Traced) -> None:
        gap_with(nothing)(t)
        gpu = t.trace.process(pid=200, device=1)
        for n in range(5):
            gpu.range("step", n * STEP_NS, (n + 1) * STEP_NS)
        gpu.kernel("gemm", 0, 5)

    each = found(tmp_path, put)
    assert (each[FindingKind.STALLED].rank, each[FindingKind.STALLED].rank_count) == (0, 1)
