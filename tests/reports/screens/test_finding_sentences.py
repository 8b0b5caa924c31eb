"""Does each finding read as one sentence, with what mending it could win and what to type next?"""

import shlex
from fractions import Fraction
from pathlib import Path

import pytest

from pytest_nsys.analysis.captures.captures import DEFAULT_NOTE_METRICS
from pytest_nsys.analysis.fact_bounds import Bounds
from pytest_nsys.analysis.facts.fact import Weight
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.summary.findings import Figures, Finding, list_findings
from pytest_nsys.analysis.summary.lost_time import FindingKind
from pytest_nsys.cli.options import MeasureOptions
from pytest_nsys.core.kernel_names import make_display_names
from pytest_nsys.reports.screens.findings import (
    describe_no_findings,
    format_finding,
    format_finding_command,
    format_win,
)
from tests.support.commands import run as command
from tests.support.reference_data import DATA

MS = 1_000_000


def finding(kind: FindingKind, figures: Figures | None = None, *, ranks: tuple[int, ...] = (0, 1)) -> Finding:
    wins = kind is not FindingKind.PROFILER
    rank, win_ns = (ranks[-1], MS) if wins else (None, None)
    return Finding(kind, rank, ranks, 1 if ranks == (0,) else 4, 20 * MS, win_ns, figures or {})


HALF = MS // 2
PART: Figures = {"part_ns": MS}
BEFORE: Figures = {**PART, "before": "gemm", "before_ns": HALF}
LAST: Figures = {**PART, "before": "", "before_ns": MS}
TINY: Figures = {**BEFORE, "tiny": 80, "kernels": 100}
COPIES: Figures = {"producer": "copy", "blocked_ns": MS, "host_ns": 0, "pageable": 0, **BEFORE}
SENDRECV: Figures = {**PART, "stage": "stage4_f", "kernel": "ncclDevKernel_SendRecv", "kernel_ns": HALF}
DEEP_EP: Figures = {**PART, "kernel": "deep_ep::internode_ll::dispatch<1>", "kernel_ns": MS}
CAST = "void at::native::cast<float>(int)"
SHARED: Figures = {**PART, "stream": 7, "comm_kernels": 2, "compute_kernels": 1, "mostly": CAST}
SYNC: Figures = {**PART, "more_ns": 0, "call": "cudaStreamSynchronize", "calls": 1}
WAITS: Figures = {**PART, "more_ns": HALF, "for_rank": 3, "collective": "AllReduce"}

SENTENCES = [
    (
        finding(FindingKind.STRAGGLER, WAITS),
        "rank 1 (the worst of 2 of 4 ranks): waits 1 ms for other ranks in AllReduce, longest for rank 3, "
        "and 500 us in other collectives",
    ),
    (
        finding(FindingKind.WRONG_STREAM, SHARED, ranks=(0,)),
        "1 ms of communication on stream 7, among 1 compute kernel (mostly cast)",
    ),
    (
        finding(FindingKind.WRONG_STREAM, {**SHARED, "compute_kernels": 116}, ranks=(0,)),
        "1 ms of communication on stream 7, which it shares with 116 compute kernels",
    ),
    (
        finding(FindingKind.COMMUNICATION, SENDRECV, ranks=(2,)),
        "rank 2: 1 ms of exposed communication, longest SendRecv of stage4_f",
    ),
    (finding(FindingKind.COMMUNICATION, DEEP_EP, ranks=(0,)), "1 ms of exposed communication, longest dispatch"),
    (
        finding(FindingKind.SYNCS, SYNC, ranks=(0,)),
        "launches nothing for 1 ms while the host waits in cudaStreamSynchronize (1 call)",
    ),
    (
        finding(FindingKind.SYNCS, {**SYNC, "more_ns": HALF}, ranks=(0,)),
        "launches nothing for 1 ms while the host waits in cudaStreamSynchronize (1 call), and 500 us in other calls",
    ),
    (
        finding(FindingKind.LAUNCHES, TINY, ranks=(0,)),
        "launch-bound: 1 ms launch-starved; 80 of 100 compute kernels take 10 us or less, 500 us of it before gemm",
    ),
    (finding(FindingKind.LAUNCHES, BEFORE, ranks=(0,)), "launch-bound: 1 ms launch-starved, 500 us of it before gemm"),
    (
        finding(FindingKind.LAUNCHES, LAST, ranks=(0,)),
        "1 ms launch-starved, all of it after the last kernel",
    ),
    (
        finding(FindingKind.BETWEEN, {"part_ns": MS, "window_ns": 4 * MS, "host": "load"}, ranks=(0,)),
        "1 ms between steps, 25% of the step: the host is in load",
    ),
    (
        finding(FindingKind.BETWEEN, {"part_ns": MS, "window_ns": 4 * MS}, ranks=(0,)),
        "1 ms between steps, 25% of the step: the next step is not launched yet",
    ),
    (
        finding(FindingKind.COPIES, {**COPIES, "between": "pinned to device", "copies": 107}, ranks=(0,)),
        "copies block compute for 1 ms, 500 us of it before gemm; most copies are pinned to device",
    ),
    (
        finding(FindingKind.COPIES, {**COPIES, "producer": "memset"}, ranks=(0,)),
        "memsets block compute for 1 ms, 500 us of it before gemm",
    ),
    (
        finding(FindingKind.COPIES, {**COPIES, "blocked_ns": MS + HALF, "host_ns": MS // 10}, ranks=(0,)),
        "copies block compute for 1 ms, the host for 100 us (pageable ones), memsets for 500 us",
    ),
    (
        finding(FindingKind.COPIES, {**COPIES, "producer": "memset", "host_ns": MS // 10}, ranks=(0,)),
        "memsets block compute for 1 ms, copies the host for 100 us (pageable ones)",
    ),
    (
        finding(FindingKind.COPIES, {**PART, "blocked_ns": 0, "host_ns": HALF, "pageable": 1}, ranks=(0,)),
        "launch-starved for 1 ms, 500 us of it while the host copies pageable memory",
    ),
    (
        finding(FindingKind.OTHER_DEVICE, {**BEFORE, "kernel": "remote"}, ranks=(0,)),
        "compute waits 1 ms for another device of its process, 500 us of it for remote",
    ),
    (
        finding(FindingKind.STALLED, BEFORE, ranks=(0,)),
        "stalled for 1 ms with work launched, 500 us of it before gemm; the trace does not say why",
    ),
    (
        finding(FindingKind.CLOCKS, {"sm_clock_mhz": 990, "best_mhz": Fraction(1_980)}, ranks=(0,)),
        "SMs at 990 MHz, the best of this run is 1980 MHz: at that its compute takes up to 1 ms less",
    ),
    (
        finding(FindingKind.UNEVEN, {"part_ns": 9 * MS, "mean_ns": 8 * MS}, ranks=(3,)),
        "rank 3: computes for 9 ms, 1 ms longer than the mean of the ranks (8 ms)",
    ),
    (
        finding(FindingKind.PROFILER, {"overhead": Fraction(1, 4)}),
        "a step takes 25% longer under the profiler: trace fewer kinds of events",
    ),
    (
        finding(FindingKind.PROFILER, {"recorded": "with_stack=True"}),
        "recorded with_stack=True, which slows the host: without it the GPU waits less for launches",
    ),
    (
        finding(FindingKind.STALLED, {**BEFORE, "before_ns": MS - 1}, ranks=(0,)),
        "stalled for 1 ms with work launched, nearly all of it before gemm; the trace does not say why",
    ),
]


@pytest.mark.parametrize(("each", "text"), SENTENCES, ids=lambda each: getattr(each, "kind", ""))
def test_sentences(each: Finding, text: str) -> None:
    assert format_finding(each) == text


OPERATION = "void at::native::vectorized_elementwise_kernel<4, at::native::{}Functor<{}>>(int)"
ENTRY = "void ck_tile::kentry<ck_tile::gfx950_t, 2, ck_tile::FmhaFwdKernel<ck_tile::Pipeline>>(int)"


@pytest.mark.parametrize(
    ("name", "beside", "called"),
    [
        (ENTRY, (), "FmhaFwdKernel"),
        (OPERATION.format("Fill", "float"), [OPERATION.format("Add", "float")], "vectorized_elementwise<Fill>"),
        (OPERATION.format("Fill", "int"), [OPERATION.format("Fill", "float")], "vectorized_elementwise<Fill, int>"),
    ],
)
def test_kernels_are_called_as_a_table_calls_them_beside_others(name: str, beside: list[str], called: str) -> None:
    text = format_finding(finding(FindingKind.LAUNCHES, {**BEFORE, "before": name}, ranks=(0,)), other_names=beside)
    assert text.endswith(f" before {called}")
    assert make_display_names([*beside, name])[name] == called


def test_a_collective_is_called_by_its_kind_and_no_parameter_makes_it_one() -> None:
    name = "void deep_ep::intranode::dispatch<8>(ReduceScatterArgs)"
    text = format_finding(finding(FindingKind.COMMUNICATION, {**SENDRECV, "kernel": name}, ranks=(0,)))
    assert text == "1 ms of exposed communication, longest dispatch of stage4_f"
    name = f"void ncclDevKernel_AllReduce_Sum_{'long_' * 20}bf16(ncclSendRecvArgs)"
    text = format_finding(finding(FindingKind.COMMUNICATION, {**SENDRECV, "kernel": name}, ranks=(0,)))
    assert text == "1 ms of exposed communication, longest AllReduce of stage4_f"


def test_every_kind_has_a_sentence() -> None:
    assert {each.kind for each, _ in SENTENCES} == {*FindingKind}


def test_names_of_others_stay_on_their_line() -> None:
    text = format_finding(finding(FindingKind.STALLED, {**BEFORE, "before": "k\x1b[2J\n" + "x" * 300}))
    assert text.isprintable()
    assert len(text) < 160


def test_a_win_is_a_share_of_the_step_and_a_doubt_has_none() -> None:
    assert format_win(finding(FindingKind.COPIES)) == "at most 5% of the step"
    assert format_win(finding(FindingKind.COPIES), "run") == "at most 5% of the run"
    assert format_win(finding(FindingKind.PROFILER)) == ""


def test_commands_name_the_user_s_own_traces() -> None:
    paths = ["my run/a.sqlite", "b.sqlite"]
    assert format_finding_command(finding(FindingKind.LAUNCHES, BEFORE), paths) == (
        "pytest-nsys 'my run/a.sqlite' b.sqlite --view budget"
    )
    assert format_finding_command(finding(FindingKind.PROFILER), ["a.sqlite"]) == "pytest-nsys check a.sqlite"


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (111, "rank 1 (the worst of 2 of 4 ranks): launch-bound: 1 ms launch-starved, 500 us of it before gemm"),
        (83, "rank 1: launch-bound: 1 ms launch-starved, 500 us of it before gemm"),
        (66, "rank 1: launch-bound: 1 ms launch-starved"),
        (40, "rank 1: launch-bound: 1 ms launch-starv…"),
    ],
)
def test_where_there_is_less_room_less_is_told(width: int, text: str) -> None:
    assert format_finding(finding(FindingKind.LAUNCHES, BEFORE), width) == text


def test_nothing_stands_out() -> None:
    assert describe_no_findings(Fraction(97, 100)) == "nothing stands out: 97% of the step computes"


REAL = sorted(path for path in DATA.glob("*/*") if path.name.endswith((".sqlite", ".json.gz")))


@pytest.mark.reference
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
@pytest.mark.sampled(10)
def test_each_command_that_a_finding_names_answers(path: Path) -> None:
    if "_cpu_" in path.name:
        return
    with MeasureOptions().open_one_run([str(path)]) as (run, spec):
        found = list_findings(run, spec, limit=len(FindingKind))
        doubts = run.list_facts(
            spec, Bounds(world=run.runs[0].workload.world), *map(METRICS.__getitem__, DEFAULT_NOTE_METRICS)
        )
    doubtful = any(fact.weight is Weight.ERROR for fact in doubts)
    for words in {format_finding_command(finding, [str(path)]) for finding in found}:
        asked = shlex.split(words)[1:]
        command(*asked, code=1 if doubtful and asked[0] == "check" else 0)
