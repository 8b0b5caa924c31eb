"""Is the drawing of a window a sane Chrome trace that says what was measured?"""

import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.reports.drawings.lanes import Slice, split_crossing_slices
from tests.support.chrome import chrome, nanoseconds
from tests.support.commands import run
from tests.support.gates import ANCHOR, Project
from tests.support.measure import captures
from tests.support.one_process import OneProcess
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.data_parallel import DataParallelShape, write_data_parallel
from tests.support.samples.gpu_state import allocate
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.known_step import BLOCKS, COPIES, LATE, STALLS, known_step
from tests.traces.test_cut_trace import COLLECTIVE, CONVENTIONS, FORMATS, NAMES, NCCL, cut, kineto, nsys


def draw(trace: Path, *options: str | Path, name: str = "window.json.gz") -> Path:
    """The drawing of a window, beside its trace."""
    target = trace.parent / name
    run("cut", trace, "--format=perfetto", "-o", target, *options, code=0)
    return target


@pytest.mark.parametrize("format", FORMATS)
def test_a_viewer_opens_it_of_every_format(format: str, tmp_path: Path) -> None:
    trace, convention = FORMATS[format](tmp_path), CONVENTIONS.get(format, format)
    assert chrome(draw(trace, f"--convention={convention}")).spans("kernel")


def test_a_cut_is_drawn_as_its_trace_but_for_calls_that_say_nothing(tmp_path: Path) -> None:
    trace = nsys(tmp_path)
    drawn = [chrome(draw(each, name=f"{n}.json")) for n, each in enumerate((trace, cut(trace)))]
    kernels, again = ([dict(event, tid=0) for event in each.spans("kernel")] for each in drawn)
    assert kernels == again
    assert [each.lane("exposed communication") != [] for each in drawn] == [True, True]


def test_it_is_no_trace(tmp_path: Path) -> None:
    drawing = draw(nsys(tmp_path))
    said = run("--view=overlap", drawing, code=2).output
    assert said == (
        f"error: {drawing}: is a drawing (window.json.gz), which https://ui.perfetto.dev opens: measure the trace, or "
        "a cut of it (pytest-nsys cut)\n"
    )
    assert "a trace to judge" in run("cut", tmp_path / "run.sqlite", "--format=perfetto", "--gate=x", code=2).output


def test_names_of_every_kind_are_drawn(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.range("ProfilerStep#1", 1_000, 50_000)
    for n, name in enumerate(NAMES):
        trace.range(name, 2_000 + n, 40_000)
        trace.kernel(name or "x", 3_000 + 100 * n, 3_050 + 100 * n, launch_ns=2_500 + n)
    window = draw(trace.write(tmp_path / "rank0.json"), "--convention=kineto", name="window.json")
    names = {e["name"] for e in chrome(window).events}
    assert {"<script>alert(1)</script>", "a\x1b[31mb\x00\n", 'quote " \\ "/device:GPU:0', "€ 𝄞"} <= names


# What a viewer shows


def test_lanes_of_a_rank(tmp_path: Path) -> None:
    shown = chrome(draw(nsys(tmp_path), "--rank=1"))
    assert list(shown.processes.values()) == ["rank 1 (pp=1 dp=0 cp=0 ep=0)"]
    assert list(dict.fromkeys(shown.lanes.values())) == [
        "window",
        "exposed communication",
        "without compute",
        "stream 0/1/7, compute",
        "stream 31, compute",
        "stream 0/2/7, compute",
        "stream 28, communication, ep_a2a",
        "stream 29, communication, ep_a2a",
        "stream 30, communication, pp_p2p",
        "copies and memsets",
        "CUDA API, thread 101",
        "thread 101",
        "thread 900",
    ]


def test_gaps_say_why_no_compute_ran(gpu: OneProcess) -> None:
    known_step(gpu)
    shown = chrome(draw(Path(gpu), name="window.json"))
    found = [
        (event["name"], nanoseconds(event["dur"]), event["args"]["waiting"], event["args"].get("producer"))
        for event in shown.events
        if event.get("cat") == "gap"
    ]
    assert found == [
        ("blocked by collective", BLOCKS, "grouped_gemm", "ncclDevKernel_SendRecv"),
        ("blocked by copy", COPIES, "gelu", "copy"),
        ("stalled", STALLS, "layer_norm", None),
        ("launch-starved", LATE, "adam", None),
    ]


def test_memory_and_clocks_are_curves(tmp_path: Path) -> None:
    """From what was allocated when the window begins on; the fourth of seven steps begins at 46 900."""
    shown = chrome(draw(nsys(tmp_path), "--rank=1"))
    curves: dict[str, list[tuple[int, int]]] = {}
    for event in shown.events:
        if event["ph"] == "C":
            curves.setdefault(event["name"], []).append((nanoseconds(event["ts"]), event["args"]["value"]))
    held = [1_000 * number + 1 for number in range(4)]
    memory = [(46_900, sum(held[:3])), (46_950, sum(held)), (46_960, sum(held) + 500), (46_970, sum(held))]
    assert curves["allocated bytes"] == memory
    assert curves["SM clock in Hz"] == [(3_001 * k, 1_500_000_000 + 7 * k) for k in range(16, 19)]


def test_kernels_say_what_is_known_of_them(tmp_path: Path) -> None:
    shown = chrome(draw(nsys(tmp_path), "--rank=0"))
    at = 10_000 + 3 * 12_300
    (dispatch,) = (e for e in shown.spans("kernel") if e["args"]["stream"] == 28)
    assert dispatch["name"] == NCCL
    assert dispatch["args"] | {"correlation": 0} == {
        "stage": "stage2_f",
        "purpose": "ep_a2a",
        "device": 0,
        "context": 1,
        "stream": 28,
        "correlation": 0,
        "launch_ns": at + 200,
    }
    assert (nanoseconds(dispatch["ts"]), nanoseconds(dispatch["dur"])) == (at + 2_000, 4_001)
    (mangled,) = (e for e in shown.spans("kernel") if e["name"] == "_ZN4f")
    assert mangled["args"]["demangled"] == "void ns::f<int>(T)"
    assert [e["args"]["graph node id"] for e in shown.spans("kernel") if e["name"] == "node"] == [1, 1]
    assert [e["args"].get("launch_ns") for e in shown.spans("kernel") if e["name"] == "lost"] == [None]


def test_a_collective_keeps_what_torch_says_of_it(tmp_path: Path) -> None:
    shown = chrome(draw(kineto(tmp_path), "--convention=kineto"))
    gathered, *_ = (e for e in shown.spans("kernel") if e["name"] == "ncclDevKernel_AllGather")
    told = {name: value for name, value in COLLECTIVE.items() if name != "Process Group Ranks"}
    assert gathered["args"].items() >= told.items()


def test_an_arrow_leads_from_each_launch_to_its_kernels(tmp_path: Path) -> None:
    shown = chrome(draw(nsys(tmp_path), "--rank=0"))
    arrows = {e["id"]: nanoseconds(e["ts"]) for e in shown.events if e["ph"] == "s"}
    bound: Any = None
    reached: list[tuple[int, int]] = []
    for event in shown.events:
        if event["ph"] == "f":
            reached.append((arrows[event["id"]], bound["args"]["launch_ns"]))
        bound = event
    assert len(reached) == sum("launch_ns" in e["args"] for e in shown.spans("kernel")) > 8
    assert [launch for launch, _ in reached] == [launch for _, launch in reached]


def test_exposed_spans_sum_to_the_metric(tmp_path: Path) -> None:
    trace = nsys(tmp_path)
    shown = chrome(draw(trace, "--rank=0"))
    found: dict[str, int] = {}
    for event in shown.lane("exposed communication"):
        assert event["args"]["exposed_ns"] == nanoseconds(event["dur"])
        found[event["args"]["stage"]] = found.get(event["args"]["stage"], 0) + nanoseconds(event["dur"])
    with captures(trace, convention=BUILT_IN_CONVENTIONS["pithtrain"]) as opened:
        rows = opened.measure_rows(METRICS["exposed_ns"], opened.make_spec("median")).rows
    assert found == {stage: value for (rank, stage), value in (row for row in rows) if rank == 0 and value}


def test_the_window_and_what_was_measured_of_the_gpu(tmp_path: Path) -> None:
    shown = chrome(draw(nsys(tmp_path), "--kernels=launched", "--rank=0"))
    window, gpu = shown.lane("window")
    assert window["name"] == ANCHOR.format(3)
    told = {"index": 3, "count": 7, "measured": "window median, kernels launched"}
    assert window["args"] | {"kernels": 0} == told | {"kernels": 0}
    assert gpu["name"] == "measured on the GPU"
    kernels = shown.spans("kernel")
    ends = [nanoseconds(e["ts"]) + nanoseconds(e["dur"]) for e in kernels]
    assert nanoseconds(gpu["ts"]) == min(nanoseconds(e["ts"]) for e in kernels)
    assert nanoseconds(gpu["ts"]) + nanoseconds(gpu["dur"]) == max(ends)


def test_an_open_range_is_shown_within_the_window(tmp_path: Path) -> None:
    shown = chrome(draw(nsys(tmp_path), "--rank=0"))
    (program,) = (e for e in shown.spans("user_annotation") if e["name"] == "the whole program")
    assert nanoseconds(program["dur"]) < 15_000


def test_times_of_nineteen_digits_stay_exact_and_small(tmp_path: Path) -> None:
    window = draw(kineto(tmp_path), "--convention=kineto")
    assert max(nanoseconds(e["ts"]) for e in chrome(window).spans("kernel")) < 1 << 52


def test_kernels_of_one_stream_that_overlap_get_a_second_lane(gpu: OneProcess) -> None:
    gpu.range(ANCHOR.format(0), 1_000, 20_000)
    gpu.kernel("gemm", 2_000, 9_000, launch_ns=1_100)
    gpu.kernel("gemm", 3_000, 4_000, launch_ns=1_200)
    gpu.kernel("gemm", 9_000, 9_500, launch_ns=1_300)
    shown = chrome(draw(Path(gpu)))
    assert [name for name in shown.lanes.values() if name.startswith("stream")] == ["stream 7, compute"] * 2
    assert len({e["tid"] for e in shown.spans("kernel")}) == 2


def test_ranks_of_one_process_number_are_processes_of_their_own(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for node in range(2):
        gpu = trace.process(pid=0 if node else 7, hardware_id=node + 1)
        other = trace.process(pid=7, hardware_id=node + 3)
        for process in (gpu, other):
            process.range(ANCHOR.format(0), 1_000, 20_000)
            process.kernel("gemm", 2_000, 9_000, launch_ns=1_100)
    shown = chrome(draw(trace.write(tmp_path / "run.sqlite")))
    assert sorted(shown.processes.values()) == [f"rank {n}" for n in range(4)]


def test_a_red_of_memory_leads_to_its_curve(project: Project) -> None:
    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        allocate(processes[1], 500, 1 << 30)

    project.gated("- {assert: peak_allocated_bytes < 1GiB, allow_missing: {'*': [0]}}", edit=edit)
    said = project.pytest("--nsys-trace=run.sqlite", code=1)
    (line,) = [line for line in said.splitlines() if "next:" in line]
    words = line.split("pytest-nsys ")[1].split()
    assert words == ["cut", "run.sqlite", "--format", "perfetto", "-o", "window.json.gz", "--rank", "1"]
    project.command(*words, code=0)
    (curve,) = [event for event in chrome(project.root / "window.json.gz").events if event["ph"] == "C"]
    assert curve["args"] == {"value": 1 << 30}


def test_files_of_several_hosts_are_shown_on_one_clock(tmp_path: Path) -> None:
    """A collective ends within 6 us on all ranks, whose files are 250 ms apart."""
    folder = write_data_parallel(tmp_path / "run", DataParallelShape(late_us=500, hosts=2))
    window = tmp_path / "window.json.gz"
    said = run("cut", folder, "--format=perfetto", "-o", window, "--convention=kineto", "--window=run", code=0).output
    assert "note: ranks 1, 3: clocks aligned within 5.5 us by the ends of matched collectives" in said
    events = json.loads(gzip.decompress(window.read_bytes()), parse_float=Decimal)["traceEvents"]
    ends: dict[int, list[Decimal]] = {}
    for event in events:
        if event.get("cat") == "kernel" and "AllReduce" in event["name"]:
            ends.setdefault(event["pid"], []).append(event["ts"] + event["dur"])
    assert len(ends) == 4
    assert all(max(each) - min(each) <= 12 for each in zip(*ends.values(), strict=True))
    labels = [event["args"]["labels"] for event in events if event["name"] == "process_labels"]
    assert labels == [f"clocks aligned within {us} us by the ends of matched collectives" for us in ("5.5", "7", "5.5")]


def test_one_rank_of_several_hosts_has_the_times_of_its_file(tmp_path: Path) -> None:
    folder = write_data_parallel(tmp_path / "run", DataParallelShape(hosts=2))
    root = json.loads(gzip.decompress(draw(folder, "--convention=kineto", "--rank=3").read_bytes()))
    assert not [event for event in root["traceEvents"] if event["name"] == "process_labels"]


# Lanes and gaps against their definitions

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair))), max_size=12)


@given(SPANS, st.integers(0, 40), st.integers(0, 40))
def test_what_is_not_covered(spans: list[tuple[int, int]], start: int, end: int) -> None:
    covered = {t for s, e in spans for t in range(s, e)}
    found = list(Intervals.from_spans(spans).list_uncovered(start, end))
    assert {t for s, e in found for t in range(s, e)} == set(range(start, end)) - covered
    assert all(a[1] < b[0] for a, b in pairwise(found))
    assert all(s < e for s, e in found)


@given(SPANS, st.booleans())
def test_spans_of_a_lane_do_not_cross(spans: list[tuple[int, int]], nested: bool) -> None:
    lanes = split_crossing_slices([Slice(s, e, "", "", {}) for s, e in spans], may_nest=nested)
    assert sorted((s.start_ns, s.end_ns) for lane in lanes for s in lane) == sorted(spans)
    for lane in lanes:
        for a, b in _pairs(lane):
            apart = a.end_ns <= b.start_ns
            assert apart or (nested and b.end_ns <= a.end_ns)


def _pairs(lane: list[Slice]) -> Iterator[tuple[Slice, Slice]]:
    return ((a, b) for i, a in enumerate(lane) for b in lane[i + 1 :])
