"""A trace that is not good enough is an error before any verdict, and the gate file says what is good enough."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.analysis.facts.recording import reports_loss
from pytest_nsys.analysis.facts.steps import find_empty_anchors
from pytest_nsys.analysis.metrics.registry import METRICS, MetricRequest
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention
from pytest_nsys.core.errors import NEXT_LINE, TraceError
from pytest_nsys.core.model import KernelsMode, Note
from pytest_nsys.core.workload import Workload
from tests.support.gate_files import loaded, mistakes
from tests.support.gates import ANCHOR, MS, Edit, Project, write_trace
from tests.support.measure import captures
from tests.support.reference_data import DUALPIPE, DUALPIPE_RUNS
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.gpu_state import sm_clock
from tests.support.samples.odd_rows import diagnostic, graph_trace

PITHTRAIN = BUILT_IN_CONVENTIONS["pithtrain"]
LABEL = "rank={rank}; pp={rank}/4 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
ALIKE = "rank={rank}; pp=0/1 dp=0/1 cp=0/1 ep={rank}/{ranks}; mbs=1 seq=2048"
MIDDLE = 40 * MS + 1_000
"""Start of the median window of the trace that the tests share."""
STATED = Workload(steps=1, step_time_ns=12 * MS)
"""A window of it has 15 ms."""


def doubts(
    trace: Path,
    metric: str = "overlap",
    quality: str = "",
    *,
    window: str = "median",
    kernels: KernelsMode | None = None,
    convention: Convention = PITHTRAIN,
    workload: Workload | None = STATED,
) -> list[str]:
    """The lines on a trace's quality under the bounds that a gate file states."""
    bounds = f"quality: {{{quality}}}\n" if quality else ""
    gate = loaded(f"version: 1\n{bounds}assertions: [overlap >= 60%]")
    with captures(trace, convention=convention, workload=workload) as run:
        try:
            run.measure(MetricRequest(metric, run.make_spec(window, None, kernels), gate.quality))
        except TraceError as error:
            return str(error).split(NEXT_LINE)
    return []


def told_beside(trace: Path) -> tuple[Note, ...]:
    with captures(trace, convention=PITHTRAIN) as run:
        return run.list_notes(run.make_spec("median"), METRICS["compute_ns"])


def session(length_ns: int) -> Edit:
    def edit(trace: TraceBuilder, _: list[Process]) -> None:
        trace.insert("ANALYSIS_DETAILS", globalVid=1, duration=length_ns, startTime=0, stopTime=length_ns)

    return edit


def before_all(_: TraceBuilder, processes: list[Process]) -> None:
    processes[0].kernel("gemm", -500, -400, stream=7)


def told(severity: int, text: str) -> Edit:
    return lambda trace, _: diagnostic(trace, severity, text)


def whole_graph(_: TraceBuilder, processes: list[Process]) -> None:
    graph_trace(processes[0], MIDDLE + 12 * MS, MIDDLE + 13 * MS)


def deep_ep(_: TraceBuilder, processes: list[Process]) -> None:
    """Two kernels on rank 0 beside the 6.4 ms of the four gemms and the four of NCCL."""
    for name, start_ns, length_ns in (("dispatch", 0, 1_200_000), ("combine", MS, 400_000)):
        full, start_ns = f"void deep_ep::intranode::{name}<8>(int*)", MIDDLE + 10 * MS + start_ns
        processes[0].kernel(name, start_ns, start_ns + length_ns, stream=29, launch_ns=MIDDLE + 1, demangled=full)


def unlaunched(_: TraceBuilder, processes: list[Process]) -> None:
    """One of the five kernels of rank 0's window, of nine in all."""
    processes[0].kernel("gemm", MIDDLE + 1_200_000, MIDDLE + 1_700_000, stream=7, launch=False)


def outside_stages(_: TraceBuilder, processes: list[Process]) -> None:
    """One of nine kernels of the windows, one of five that communicate, on a stream that is no other's."""
    processes[0].kernel("ncclDevKernel_AllReduce", MIDDLE + 12 * MS, MIDDLE + 13 * MS, stream=29)


def more_anchors(number: int, *, ranks: int, work: bool) -> Edit:
    """More chunks at the end of some ranks, with a kernel in each or without any."""

    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        for process in processes[:ranks]:
            for k in range(5, 5 + number):
                begin = 20 * MS * k + 1_000
                process.range(ANCHOR.format(k), begin, begin + 15 * MS)
                if work:
                    process.kernel("gemm", begin + MS, begin + 2 * MS)

    return edit


def lost(*chunks: int) -> Edit:
    """No kernel of these chunks, on any rank."""

    def edit(trace: TraceBuilder, _: list[Process]) -> None:
        own = [range(20 * MS * chunk, 20 * MS * (chunk + 1)) for chunk in chunks]
        trace._rows = [
            (table, row)
            for table, row in trace._rows
            if "KIND_KERNEL" not in table or not any(row["start"] in span for span in own)
        ]

    return edit


def clocked(*megahertz: float) -> Edit:
    """The clock of each rank's GPU, all the time."""

    def edit(trace: TraceBuilder, _: list[Process]) -> None:
        for gpu, clock in enumerate(megahertz):
            sm_clock(trace, *((MS * at, round(clock * 1_000_000)) for at in range(100)), gpu=gpu)

    return edit


def two_machines(trace: TraceBuilder, _: list[Process]) -> None:
    other = trace.process(pid=900, hardware_id=2)
    other.range("rank=2; pp=2/3 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048", 10, 20)
    for k in range(5):
        begin = 20 * MS * k + 1_000
        other.range(ANCHOR.format(k), begin, begin + 15 * MS)
        other.range("layer00.stage2_f", begin + MS, begin + 3 * MS)
        other.kernel("ncclDevKernel_SendRecv", begin + 2 * MS, begin + 2 * MS + 100, stream=28)
        other.kernel("gemm", begin + 2 * MS, begin + 2 * MS + 100, stream=7)


Case = tuple[dict[str, object], str, str, str]

CASES: dict[str, Case] = {
    # what the trace is like, the bound that it crosses ("" is the default), the line, which names a bound that it keeps
    "missing ranks": (
        {"label": LABEL},
        "",
        "trace quality: 2 of 4 ranks are missing (bound: at most 0): no trace holds ranks 2, 3 of the setup labels' "
        "mesh; profile all ranks, or write quality: {missing_ranks: 2} in the gate file",
        "overlap",
    ),
    "unlaunched": (
        {"edit": unlaunched},
        "",
        "trace quality: 1 of 9 kernels around the windows, 6.49% of their time, has no launch on record (bound: at "
        "most 5%): their stage could only be looked up at their GPU start, which runs behind; trace the CUDA API on "
        "all ranks, or write quality: {unlaunched: 6.5%} in the gate file",
        "overlap",
    ),
    "unstaged": (
        {"edit": outside_stages},
        "unstaged: 11%",
        "trace quality: 11.1% of 9 kernels of the windows have no stage (bound: at most 11%): they are in no stage's "
        "rows; correct the convention's stage expression, or write quality: {unstaged: 11.2%} in the gate file",
        "overlap",
    ),
    "unclassified": (
        {"edit": outside_stages},
        "unclassified: 0%",
        "trace quality: 20% of 5 communication kernels have no purpose (bound: at most 0%): no rule of the "
        "convention says what they are for; add a purpose to the convention, or write quality: {unclassified: 20%} in "
        "the gate file",
        "comm_streams",
    ),
    "whole graphs": (
        {"edit": whole_graph},
        "",
        "trace quality: 1 CUDA graph replay was traced whole (bound: at most 0): their kernels are in no window; "
        "capture with --cuda-graph-trace=node, or write quality: {whole_graphs: 1} in the gate file",
        "overlap",
    ),
    "a loss that the profiler tells of": (
        {"edit": told(2, "CUPTI buffer overflow: 12 records were dropped")},
        "",
        "trace quality: events were dropped or are out of range, 1 sign of it (bound: at most 0): the profiler says: "
        "CUPTI buffer overflow: 12 records were dropped, so rows may be missing or wrong; profile fewer steps or "
        "event kinds, or export again, or write quality: {dropped: 1} in the gate file",
        "overlap",
    ),
    "diagnostics": (
        {"edit": told(2, "Scheduling information is absent.")},
        "diagnostics: 0",
        "trace quality: the profiler reports 1 problem (bound: at most 0): run.sqlite says: Scheduling "
        "information is absent.; fix what it reports, or write quality: {diagnostics: 1} in the gate file",
        "overlap",
    ),
    "few anchors": (
        {"chunks_ms": (15,) * 4},
        "",
        "trace quality: ranks 0, 1 have 4 anchors (bound: at least 5): the median of so few is unreliable; profile "
        "more steps, or write quality: {anchors: 4} in the gate file",
        "overlap",
    ),
    "kernels that end before the ranges do": (
        {"edit": more_anchors(4, ranks=2, work=False)},
        "",
        "trace quality: rank 0: 4 of 9 anchors have no kernel (bound: at most 20%): its kernels were not recorded "
        "for as long as its ranges, so any window may lack some; profile fewer steps, and look at what the "
        "profiler said, or write quality: {empty_anchors: 44.5%} in the gate file",
        "compute_ns",
    ),
    "kernels that begin after the ranges do": (
        {"edit": lost(0, 1), "chunks_ms": (15,) * 9},
        "",
        "trace quality: rank 0: 2 of 9 anchors have no kernel (bound: at most 20%): its kernels were not recorded "
        "for as long as its ranges, so any window may lack some; profile fewer steps, and look at what the "
        "profiler said, or write quality: {empty_anchors: 22.3%} in the gate file",
        "compute_ns",
    ),
    "kernels that are lost in the middle": (
        {"edit": lost(2, 6), "chunks_ms": (15,) * 9},
        "empty_anchors: 22%",
        "trace quality: rank 0: 2 of 9 anchors have no kernel (bound: at most 22%): its kernels were not recorded "
        "for as long as its ranges, so any window may lack some; profile fewer steps, and look at what the "
        "profiler said, or write quality: {empty_anchors: 22.3%} in the gate file",
        "compute_ns",
    ),
    "anchors of one rank alone": (
        {"edit": more_anchors(2, ranks=1, work=True), "label": ALIKE},
        "",
        "trace quality: rank 1 has 5 anchors, rank 0 has 7 (bound: at most 1): so their windows hold different "
        "work; profile the same steps on all ranks, or write quality: {uneven_anchors: 2} in the gate file",
        "compute_ns",
    ),
    "an untypical window": (
        {"chunks_ms": (15, 14, 13, 17, 15, 16, 15)},
        "typicality: 1",
        "trace quality: rank 0: window 2 MAD from the steady median (bound: at most 1): untypical; profile more "
        "steps, or write quality: {typicality: 2} in the gate file",
        "window_ns",
    ),
    "an untypical window among equal ones": (
        {"chunks_ms": (15, 15, 15, 18, 15, 15, 15)},
        "typicality: 5",
        "trace quality: rank 0: window 3 ms from the steady median, which most others hit exactly (a MAD of 0) "
        "(bound: at most 5): untypical; profile more steps, or write quality: {typicality: 3000000} in the gate file",
        "window_ns",
    ),
    "communication that nobody named": (
        {"edit": deep_ep},
        "unknown_communication: 0%",
        "trace quality: 2 kernels of DeepEP count as compute, 18.2% of the kernel time (deep_ep::intranode::dispatch "
        "1.2 ms, deep_ep::intranode::combine 400 us) (bound: at most 0%): communication that runs beside them looks "
        'hidden; write convention: {extends: pithtrain, communication: ["*deep_ep::*"]}, or write quality: '
        "{unknown_communication: 18.2%} in the gate file",
        "overlap",
    ),
    "an overhead": (
        {},
        "profiler_overhead: 24.9%",
        "trace quality: a step takes 25% longer under the profiler (bound: at most 24.9%): the trace measures "
        "the program and its profiler, not the program alone; trace fewer kinds of events, or write quality: "
        "{profiler_overhead: 25%} in the gate file",
        "overlap",
    ),
    "a throttled GPU": (
        {"edit": clocked(1980, 1_499.99)},
        "sm_clock: 1500MHz",
        "trace quality: rank 1: the SMs ran at 1499.99 MHz (median of the window) (bound: at least 1500MHz): the GPU "
        "was throttled or its clocks were set low, so all times are longer than they should be; let the GPU cool, or "
        "lock its clocks (nvidia-smi --lock-gpu-clocks), or write quality: {sm_clock: 1499.9MHz} in the gate file",
        "overlap",
    ),
    "a clock that nobody knows": (
        {"edit": clocked(1980)},
        "sm_clock: 1500MHz",
        "trace quality: rank 1: the clock of the SMs is unknown: no sample of the clock lies in the window: "
        "sample more often (--gpu-metrics-frequency) (bound: at least 1500MHz): a throttled GPU would pass unnoticed; "
        "sample GPU metrics, or write quality: {sm_clock: off} in the gate file",
        "window_ns",
    ),
    "several clocks": (
        {"edit": two_machines, "label": LABEL.replace("/4", "/3")},
        "clocks: 1",
        "trace quality: the ranks use 2 clocks (bound: at most 1): times of different files or machines are "
        "comparable only within the error of their clocks; profile all ranks into one report, or write "
        "quality: {clocks: 2} in the gate file",
        "window_ns",
    ),
}


@pytest.mark.parametrize(("trace", "bound", "line", "metric"), CASES.values(), ids=CASES)
def test_an_error_says_how_to_set_its_bound(
    tmp_path: Path, trace: dict[str, Any], bound: str, line: str, metric: str
) -> None:
    path = write_trace(tmp_path / "run.sqlite", **trace)
    assert [each.replace(f"{tmp_path}/", "") for each in doubts(path, metric, bound)] == [line]
    kept = re.search(r"write quality: \{(.*)\} in the gate file$", line)
    assert kept is not None
    assert doubts(path, metric, kept[1]) == []
    assert doubts(path, metric, f"{kept[1].partition(':')[0]}: off") == []


STRICT = (
    "missing_ranks: 0, unlaunched: 0%, unstaged: 0%, unclassified: 0%, unknown_communication: 0%, whole_graphs: 0, "
    "dropped: 0, diagnostics: 0, anchors: 5, empty_anchors: 0%, uneven_anchors: 0, typicality: 0, clocks: 1"
)


def test_an_overhead_that_nobody_knows(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "run.sqlite")
    line = (
        "trace quality: the overhead of the profiler is unknown: no unprofiled step time is given: "
        "state workload: {step_time: 412ms} in the gate file, or measure step_time (pytest --nsys-measurements) "
        "(bound: at most 10%): a distorted step would pass unnoticed; measure a step without the profiler, or write "
        "quality: {profiler_overhead: off} in the gate file"
    )
    assert doubts(path, "overlap", "profiler_overhead: 10%", workload=None) == [line]
    assert doubts(path, "peak_allocated_bytes", "profiler_overhead: 10%, sm_clock: 1500MHz") == []


@pytest.mark.parametrize("quality", ["", STRICT])
@pytest.mark.parametrize("metric", ["overlap", "comm_streams", "launches", "window_ns"])
def test_a_good_trace_keeps_every_bound(tmp_path: Path, quality: str, metric: str) -> None:
    assert doubts(write_trace(tmp_path / "run.sqlite", edit=session(200 * MS)), metric, quality) == []


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (before_all, "1 kernel around the windows lies outside the profiler's session"),
        (session(80 * MS), "8 kernels around the windows lie outside the profiler's session"),
        (session(1_000), ""),  # an export can shift all times, to UTC for example: then its length bounds nothing
    ],
)
def test_kernels_at_impossible_times(tmp_path: Path, edit: Edit, said: str) -> None:
    path = write_trace(tmp_path / "run.sqlite", edit=edit)
    assert [said in line for line in doubts(path, "compute_ns", window="run")] == [True] * bool(said)
    assert doubts(path, "compute_ns", "dropped: 8", window="run") == []


@pytest.mark.parametrize(
    ("edit", "label", "note"),
    [
        (more_anchors(1, ranks=2, work=False), ALIKE, "rank 0: 1 of 6 anchors has no kernel"),
        (lost(1), ALIKE, "rank 0: 1 of 5 anchors has no kernel"),
        (more_anchors(1, ranks=1, work=True), ALIKE, "rank 1 has 5 anchors, rank 0 has 6"),
        # ranks of two places in a pipeline may have other numbers of anchors
        (more_anchors(2, ranks=1, work=True), LABEL.replace("/4", "/2"), "rank 1 has 5 anchors, rank 0 has 7"),
    ],
)
def test_what_good_traces_may_show_of_their_anchors(tmp_path: Path, edit: Edit, label: str, note: str) -> None:
    path = write_trace(tmp_path / "run.sqlite", edit=edit, label=label)
    assert doubts(path, "compute_ns") == []
    assert [each.warning for each in told_beside(path) if each.text.startswith(note)] == [label == ALIKE]


def before_its_launch(*leads_ns: int) -> Edit:
    """Kernels of rank 1 that begin so long before they are launched."""

    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        for k, lead in enumerate(leads_ns):
            at = MIDDLE + 2 * MS + 10_000 * k
            processes[1].kernel("gemm", at, at + 5_000, launch_ns=at + lead)

    return edit


@pytest.mark.parametrize(
    ("metric", "kernels"),
    [("exposed_ns", None), ("launch_starved_ns", None), ("compute_ns", KernelsMode.LAUNCHED), ("compute_ns", None)],
)
def test_a_kernel_before_its_launch_cannot_be_true(tmp_path: Path, metric: str, kernels: KernelsMode | None) -> None:
    """Clocks of CPU and GPU are some us apart in good traces; what is read off no launch is as good."""

    def lines(*leads_ns: int) -> list[str]:
        path = write_trace(tmp_path / "run.sqlite", edit=before_its_launch(*leads_ns))
        return doubts(path, metric, kernels=kernels)

    by_launch = metric != "compute_ns" or kernels is not None
    said = "2 rows of the GPU's work cannot be true (bound: at most 0): a kernel of rank 1 begins 8 ms before the call"
    assert [said in line for line in lines(8 * MS, 100_001, 100_000)] == [True] * by_launch
    assert lines(100_000, 4_300) == []


@pytest.mark.parametrize("metric", ["anchors", "period_ns"])
@pytest.mark.parametrize("window", ["median", "steady", "last"])
def test_uneven_anchors_matter_where_a_window_goes_by_their_number(tmp_path: Path, window: str, metric: str) -> None:
    path = write_trace(tmp_path / "run.sqlite", edit=more_anchors(4, ranks=1, work=True), label=ALIKE)
    assert ["rank 1 has 5 anchors" in line for line in doubts(path, "compute_ns", window=window)] == [True]
    assert doubts(path, metric, window=window) == []
    for other in ("first", "2", "run", "40001000:55001000"):
        assert doubts(path, "compute_ns", window=other) == []


@pytest.mark.parametrize("edit", [unlaunched, whole_graph, deep_ep, before_all, more_anchors(4, ranks=2, work=False)])
def test_what_is_read_off_the_anchors_stands_on_no_kernel(tmp_path: Path, edit: Edit) -> None:
    path = write_trace(tmp_path / "run.sqlite", edit=edit)
    ways: tuple[dict[str, Any], ...] = ({"kernels": KernelsMode.LAUNCHED}, {"window": "run"})
    assert any(doubts(path, "compute_ns", **way) for way in ways)
    assert not any(doubts(path, metric, **way) for way in ways for metric in ("anchors", "period_ns"))


def test_all_crossed_bounds_are_told_together(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "run.sqlite", label=LABEL, chunks_ms=(15,) * 3, edit=told(3, "3 events were lost"))
    assert [line.split("(")[0] for line in doubts(path, quality="diagnostics: 0")] == [
        "trace quality: 2 of 4 ranks are missing ",
        "trace quality: events were dropped or are out of range, 1 sign of it ",
        "trace quality: the profiler reports 1 problem ",
        "trace quality: ranks 0, 1 have 3 anchors ",
    ]
    assert doubts(path, quality="missing_ranks: 2, dropped: off, anchors: 3") == []


@pytest.mark.parametrize(
    ("metric", "window", "doubted"),
    [
        ("window_ns", "first", False),
        ("window_ns", "1", False),
        ("window_ns", "20001000:35001000", False),
        ("idle_ns", "run", False),
        ("window_ns", "forward chunk 1%", False),
        ("anchors", "median", False),
        ("window_ns", "steady", True),
        ("window_ns", "forward chunk%", True),
        ("period_ns", "first", True),
    ],
)
def test_few_anchors_matter_to_a_median_alone(tmp_path: Path, metric: str, window: str, doubted: bool) -> None:
    path = write_trace(tmp_path / "run.sqlite", chunks_ms=(15,) * 3)
    assert ["ranks 0, 1 have 3 anchors" in line for line in doubts(path, metric, window=window)] == [True] * doubted


@pytest.mark.parametrize("metric", ["anchors", "period_ns"])
def test_an_untypical_window_matters_to_nothing_that_is_of_all_anchors(tmp_path: Path, metric: str) -> None:
    path = write_trace(tmp_path / "run.sqlite", chunks_ms=(15, 14, 13, 17, 15, 16, 15))
    assert doubts(path, metric, "typicality: 1") == []


HELD = "the gate file states world 3, and "


@pytest.mark.parametrize(
    ("label", "setup", "said"),
    [
        (None, PITHTRAIN.setup, f"1 of 3 GPUs is missing (bound: at most 0): {HELD}2 GPUs ran kernels in 1 file"),
        (ALIKE, PITHTRAIN.setup, f"1 of 3 ranks is missing (bound: at most 0): {HELD}the traces hold 2 ranks"),
        (ALIKE, r"rank=(?P<rank>\d+);.*", f"1 of 3 ranks is missing (bound: at most 0): {HELD}the traces hold 2 ranks"),
        (LABEL, PITHTRAIN.setup, "2 of 4 ranks are missing (bound: at most 0): no trace holds ranks 2, 3 of the setup"),
    ],
)
def test_an_absent_rank_that_no_trace_mentions(tmp_path: Path, label: str | None, setup: str | None, said: str) -> None:
    path = write_trace(tmp_path / "run.sqlite", label=label)

    def asked(more: str) -> None:
        gate = loaded(f"version: 1\n{more}\nassertions: [window_ns <= 1s]")
        with captures(path, convention=replace(PITHTRAIN, setup=setup)) as run:
            run.measure(MetricRequest("window_ns", run.make_spec("median"), gate.quality))

    with pytest.raises(TraceError, match=re.escape(said)):
        asked("run: {world: 3}")
    asked("run: {world: 3}\nquality: {missing_ranks: 2}")
    asked("run: {world: 2}\nquality: {missing_ranks: 2}")


def test_launch_rows_matter_where_launches_are_asked_for(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "run.sqlite", edit=unlaunched, label=None)
    assert doubts(path, "compute_ns") == []
    (line,) = doubts(path, "compute_ns", kernels=KernelsMode.LAUNCHED)
    assert "1 of 9 kernels around the windows, 6.49% of their time, has no launch on record (bound: at most 5%)" in line
    assert "with kernels: launched they are left out of the windows" in line
    assert doubts(path, "launches", convention=replace(BUILT_IN_CONVENTIONS["generic"], anchor=PITHTRAIN.anchor)) == []


@pytest.mark.parametrize(("behind_ms", "said"), [(12, []), (200, ["rank 0: 8 of 9 anchors have no kernel"])])
def test_a_gpu_far_behind_leaves_no_anchor_empty_of_launches(tmp_path: Path, behind_ms: int, said: list[str]) -> None:
    """Nine steps of 10 ms are launched, and then they run; or all launches stand behind the last anchor."""
    process = TraceBuilder().process()
    for step in range(9):
        begin = 10 * MS * step
        process.range(ANCHOR.format(step), begin, begin + 9 * MS)
        start = begin + (behind_ms + 90) * MS
        process.kernel("gemm", start, start + MS, stream=7, launch_ns=begin + MS + (behind_ms - 12) * MS)
    path = process.trace.write(tmp_path / "run.sqlite")
    with captures(path, convention=PITHTRAIN) as run:
        group = run.runs[0].load_windows(run.make_spec("median", None, KernelsMode.LAUNCHED))
        assert [str(each) for each in find_empty_anchors(group)] == said
        contained = run.runs[0].load_windows(run.make_spec("median", None, KernelsMode.CONTAINED))
        assert [each.empty_count for each in find_empty_anchors(contained)] == [8]


def test_a_gate_judges_no_bad_trace(project: Project) -> None:
    """Nor holds it against a baseline, nor makes one of it; of several captures the one is named."""
    project.gated("- exposed_ns <= baseline + 5%\n- overlap >= 60%", name="good.sqlite")
    project.trace("short.sqlite", label=LABEL, chunks_ms=(15,) * 3)
    said = project.refresh("--nsys-trace=short.sqlite", "-k", "exposed_ns", code=1)
    assert "ranks 0, 1 have 3 anchors (bound: at least 5)" in said
    assert project.baselines() == {}
    project.refresh("--nsys-trace=good.sqlite")
    for case in project.cases("--nsys-trace=short.sqlite", code=1).values():
        message = case.properties["nsys_message"]
        assert (case.state, case.properties["nsys_outcome"]) == ("error", "error")
        assert message.count("trace quality: ") == 2
        assert "in the gate file; trace quality: ranks 0, 1 have 3 anchors" in message
        assert message.isprintable()
        assert "�" not in message
    project.trace("short.sqlite", chunks_ms=(15,) * 4)
    said = project.pytest("--nsys-trace=good.sqlite", "--nsys-trace=short.sqlite", code=1)
    assert "short.sqlite: trace quality: ranks 0, 1 have 4 anchors" in said
    assert "good.sqlite: trace quality" not in said


def test_the_fixture_judges_no_bad_trace_either(project: Project) -> None:
    project.gated("quality: {anchors: 4}\nassertions: [overlap >= 60%]", chunks_ms=(15,) * 4)
    test = """
        def test_plain(nsys_gate):
            nsys_gate("overlap >= 60%")

        def test_bounded(nsys_gate):
            nsys_gate("overlap >= 60%", gate_file="gate.nsys.yaml")
    """
    project.file("test_it.py", test)
    said = project.pytest("test_it.py", "--nsys-trace=run.sqlite", code=1)
    assert "ranks 0, 1 have 4 anchors (bound: at least 5)" in said
    project.result.assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("12 CUPTI records were dropped", True),
        ("Some NVTX ranges were lost", True),
        ("Event buffer overflowed", True),
        ("Not all NVTX events might have been collected.", False),
        ("No events were lost", False),
        ("0 CUPTI records dropped", False),
        ("15 CPU sampling events were lost", False),
        ("Number of CUDA events collected: 37.", False),
        ("Scheduling information is absent.", False),
    ],
)
def test_what_tells_of_a_loss(text: str, loss: bool) -> None:
    assert reports_loss(text) is loss


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{anchor: 3}", "unknown key 'anchor' (did you mean 'anchors'?)"),
        ("{anchors: few}", "anchors is a whole number from 1 on, or off, not 'few'"),
        ("{unlaunched: 0.1}", "unlaunched is a share, as in 10%, or off, not '0.1'"),
        ("{sm_clock: 1500}", "sm_clock is a clock, as in 1500MHz, or off, not '1500'"),
        ("{sm_clock: 0MHz}", "sm_clock is a clock, as in 1500MHz, or off, not '0MHz'"),
        ("{profiler_overhead: 0.1}", "profiler_overhead is a share of the step, as in 10%, or off, not '0.1'"),
        ("{typicality: 5%}", "typicality is a number of MAD, as in 5, or off, not '5%'"),
    ],
)
def test_mistakes_stand_at_their_line(written: str, said: str) -> None:
    (mistake,) = mistakes(f"version: 1\nquality: {written}\nassertions: [overlap >= 60%]")
    assert mistake.startswith("2:")
    assert said in mistake


SAMPLE = Path(__file__).parents[3] / "examples" / "traces" / "dualpipe.sqlite"


@pytest.mark.parametrize(
    "trace",
    [SAMPLE, *(pytest.param(DUALPIPE / f"{name}.sqlite", marks=pytest.mark.reference) for name in DUALPIPE_RUNS)],
)
def test_real_traces_keep_the_defaults(trace: Path) -> None:
    with captures(trace, convention=PITHTRAIN) as run:
        for window, kernels in (("median", None), ("steady", None), ("run", None), ("median", KernelsMode.LAUNCHED)):
            for metric in ("comm_streams", "window_ns", "overlap", "launches", "compute_ns"):
                run.measure(MetricRequest(metric, run.make_spec(window, None, kernels)))


def test_a_kernel_that_ends_long_after_the_session_was_not_recorded_so(tmp_path: Path) -> None:
    """A year later: the rank computed all the time, of which every limit holds."""

    def endless(trace: TraceBuilder, processes: list[Process]) -> None:
        session(200 * MS)(trace, processes)
        processes[0].kernel("gemm", MIDDLE + MS, MIDDLE + 31_536_000 * 1_000 * MS, stream=9, launch_ns=MIDDLE + 2)

    path = write_trace(tmp_path / "run.sqlite", edit=endless)
    assert any(
        "1 kernel around the windows lies outside the profiler's session" in line for line in doubts(path, "compute_ns")
    )
