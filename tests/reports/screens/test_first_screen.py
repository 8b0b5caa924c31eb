"""How a summary reads on one screen: its order, its bounds, and that its shares add up to 100%."""

import dataclasses
import io
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from fractions import Fraction
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.analysis.metrics.stream_sharing import StreamSharing
from pytest_nsys.analysis.steps.search_result import Confidence, FoundUnits, RepeatedPart, UnitType
from pytest_nsys.analysis.summary.communication import CommunicationFigures, RunCommunication
from pytest_nsys.analysis.summary.findings import Finding
from pytest_nsys.analysis.summary.lost_time import FindingKind
from pytest_nsys.analysis.summary.summary import (
    KernelShare,
    KernelShares,
    LongestStep,
    RankBudget,
    Rate,
    StepLength,
    Summary,
)
from pytest_nsys.analysis.summary.trace_environment import TraceEnvironment, WindowSelection
from pytest_nsys.core.conventions import Anchor, KernelAnchor
from pytest_nsys.core.model import KernelsMode, Range, Span
from pytest_nsys.reports.screens.first_screen import (
    EXPLAIN_COMMAND,
    MAX_LINES,
    FirstScreen,
    describe_measured_windows,
    shorten_pattern,
)
from pytest_nsys.reports.screens.first_screen_html import render_screen_html
from pytest_nsys.reports.screens.next_steps import format_detail_command, list_next_steps
from pytest_nsys.reports.screens.rank_bars import format_budget_shares, render_rank_bars, select_shown_ranks
from pytest_nsys.reports.tables.bars import Pen
from pytest_nsys.reports.tables.layout import DEFAULT_WIDTH
from tests.support.many_traces import write_nodes
from tests.support.reference_data import DATA
from tests.support.samples.formats import Format, write_one
from tests.support.summaries import RUNS, rank_without_kernels, summary

Write = Callable[[Path], Path]

FOUND = WindowSelection(
    "kineto",
    "ProfilerStep#%",
    "median",
    Span.RANGE,
    KernelsMode.LAUNCHED,
    2,
    5,
    is_part_of_step=False,
    is_whole_run=False,
    measured_unit="step",
)
PARTS = dict.fromkeys(BudgetPart, 0)


def budget(rank: int = 0, window_ns: int = 1_000_000, **parts: int) -> RankBudget:
    own = {part: parts.get(part.name.lower(), 0) for part in BudgetPart}
    own[BudgetPart.COMPUTE] = window_ns - sum(own.values())
    return RankBudget(rank, window_ns, own)


def sharing(kernels: int) -> StreamSharing:
    return StreamSharing(kernels, 4, 100 * kernels, 1_000, (7,))


def made(**more: object) -> Summary:
    subject = TraceEnvironment("nsys 2025.5", "PyTorch", "NVIDIA H100", (0,), 1, 0, {}, 1, 1, False, FOUND)
    step = StepLength("step_time_ns", 1_000_000, 0, None, {}, (), "")
    kernel = KernelShare("gemm", "gemm", "gemm", 600_000, 12, Fraction(6, 10))
    communication = RunCommunication("collective", sharing(0), (), None, "no communication kernel in the window")
    found = Summary(
        ("run.sqlite",), subject, step, (budget(),), KernelShares((kernel,), 0, 0), communication, (), (), {}
    )
    return dataclasses.replace(found, **more)  # type: ignore[arg-type]


def check_bounds(lines: list[str], traces: tuple[str, ...]) -> None:
    assert len(lines) <= MAX_LINES
    named = [line for line in lines if any(trace in line for trace in map(shlex.quote, traces))]
    assert all(len(line) <= DEFAULT_WIDTH for line in lines if line not in named), max(lines, key=len)
    assert all("\n" not in line and "\x1b" not in line for line in lines)
    commands = lines[:-1] if EXPLAIN_COMMAND in lines[-1] else lines
    assert [line[:6] for line in commands[-3:]] == ["next: ", " " * 6, " " * 6]


@pytest.mark.parametrize("run", [pytest.param(write, id=name) for name, write in RUNS.items()])
def test_a_run_is_told_on_one_screen(tmp_path: Path, run: Write) -> None:
    found = summary(run(tmp_path))
    lines = FirstScreen(found).render_lines()
    check_bounds(lines, found.traces)
    heads = ["where the time goes", "largest kernels", "communication", "what to look at", "next:"]
    at = [next(number for number, line in enumerate(lines) if line.startswith(head)) for head in heads]
    assert at == sorted(at)
    assert lines[1].startswith(found.environment.profiler)


@pytest.mark.reference
@pytest.mark.slow
def test_every_reference_trace_has_a_screen() -> None:
    shown = 0
    for trace in sorted(path for path in DATA.glob("*/*") if path.name.endswith((".sqlite", ".json.gz"))):
        if "cpu" not in trace.name:
            check_bounds(FirstScreen(found := summary(trace)).render_lines(), found.traces)
            shown += 1
    assert shown >= 14


def test_of_64_ranks_the_slowest_the_median_and_the_fastest_are_shown(tmp_path: Path) -> None:
    write_nodes(tmp_path / "nodes", 8)
    found = summary(tmp_path / "nodes")
    assert len(found.budgets) == 64
    lines = FirstScreen(found).render_lines()
    check_bounds(lines, found.traces)
    bars = [line for line in lines if line.startswith("rank ")]
    assert [re.search(r"\((\w+)\)", line)[1] for line in bars] == ["slowest", "median", "fastest"]  # type: ignore[index]


@pytest.mark.slow
def test_ten_thousand_steps(tmp_path: Path) -> None:
    def put(gpu: object) -> None:
        for n in range(10_000):
            gpu.range(f"step {n}", 10_000 * n, 10_000 * n + 9_000)  # type: ignore[attr-defined]
            gpu.kernel("gemm", 10_000 * n + 2_000, 10_000 * n + 8_000, launch_ns=10_000 * n + 1_000)  # type: ignore[attr-defined]

    found = summary(write_one(tmp_path, Format.NSYS, put))
    assert "one of 10000 (--window 5000)" in FirstScreen(found).render_lines()[0]


def test_the_first_line_says_how_the_step_was_found() -> None:
    assert (
        describe_measured_windows(FOUND)
        == "step = range 'ProfilerStep#%', one of 5 (--window 2), kernels launched in it"
    )
    period = dataclasses.replace(FOUND, span=Span.PERIOD, kernels=KernelsMode.CONTAINED)
    assert describe_measured_windows(period) == "step = 'ProfilerStep#%' to the next, one of 5 (--window 2)"
    assert describe_measured_windows(dataclasses.replace(period, is_part_of_step=True)).startswith("part of a step = ")
    assert describe_measured_windows(dataclasses.replace(FOUND, index=None, window="steady")).startswith(
        "step = range 'ProfilerStep#%', 5 in all; --window steady"
    )
    assert describe_measured_windows(dataclasses.replace(period, index=0, anchor_count=1)).endswith(", the only one")
    none = dataclasses.replace(FOUND, anchor=None, is_whole_run=True)
    assert describe_measured_windows(none) == "the whole run is measured: no range repeats around its kernels"
    whole = dataclasses.replace(FOUND, index=None, is_whole_run=True)
    assert describe_measured_windows(whole) == "the whole run is measured, with 5 ranges 'ProfilerStep#%'"
    long = dataclasses.replace(FOUND, anchor="a" * 300)
    assert len(describe_measured_windows(long, 70)) == 70
    kernel = dataclasses.replace(period, anchor=KernelAnchor("embed", "adam"))
    assert describe_measured_windows(kernel) == "step = kernel embed after adam to the next, one of 5 (--window 2)"
    all_of_it = dataclasses.replace(kernel, is_whole_run=True)
    assert (
        describe_measured_windows(all_of_it)
        == "the whole run is measured, with 5 steps from kernel embed after adam to the next"
    )


LONG = (
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<{}, cutlass::bfloat16_t, Tile<128, 256, 64>>>(P)"
)
LAYERS = FoundUnits(
    KernelAnchor("embed"),
    UnitType.PART,
    Confidence.MEDIUM,
    {0: [Range(0, 1, 0, "embed")] * 3},
    1,
    is_by_launch=True,
    repeated_part=RepeatedPart("Block", 4),
)
TEMPLATES = KernelAnchor(LONG.format("Forward"), LONG.format("Backward"))


@pytest.mark.parametrize("anchor", [TEMPLATES, TEMPLATES._replace(after=None), "a" * 300], ids=str)
@pytest.mark.parametrize(
    ("more", "searched", "kept"),
    [
        ({"anchor_count": 12_345, "index": 6_172}, None, ", one of 12345 (--window 6172)"),
        ({"index": None, "window": "steady"}, None, ", 5 in all; --window steady"),
        ({"anchor_count": 1, "index": 0}, LAYERS, ", the only one (4 × Block), kernels launched in it"),
    ],
)
def test_the_counts_of_the_first_line_are_never_cut(
    anchor: Anchor, more: Mapping[str, Any], searched: FoundUnits | None, kept: str
) -> None:
    subject = dataclasses.replace(made().environment, selection=dataclasses.replace(FOUND, anchor=anchor, **more))
    shown = FirstScreen(made(environment=subject, traces=(f"{'x' * 60}.sqlite",), searched=searched)).render_lines()[0]
    assert len(shown) <= DEFAULT_WIDTH
    assert shown.endswith(kept), shown


def test_a_run_without_an_anchor_says_so_first(tmp_path: Path) -> None:
    first = FirstScreen(summary(RUNS["no range"](tmp_path))).render_lines()[0]
    assert first == "run.sqlite: the whole run is measured: no range repeats around its kernels"


def test_a_rank_without_kernels_is_on_the_screen(tmp_path: Path) -> None:
    lines = FirstScreen(summary(rank_without_kernels(tmp_path))).render_lines()
    assert any(line.startswith("nothing measured of rank 1: ") for line in lines)


def test_a_rank_without_a_budget_says_why() -> None:
    none = RankBudget(1, 1_000, {}, reason="no kernel that ends a gap has a launch row")
    lines = FirstScreen(made(budgets=(budget(), none))).render_lines()
    assert "rank 1  no budget: no kernel that ends a gap has a launch row" in lines
    assert "what to look at: no rank has a budget" in FirstScreen(made(budgets=(none,))).render_lines()


def test_rates_and_both_ends_of_the_ranks() -> None:
    rates = (Rate("tokens_per_s", 12_000, "tokens/s"), Rate("samples_per_s", Fraction(5, 2), "samples/s"))
    quantiles = {"p50": 1_200_000, "p90": 1_210_000}
    step = StepLength("step_time_ns", 1_200_000, 3, (1, 1_199_000), quantiles, rates, "", 4, 7)
    assert FirstScreen(made(step=step)).render_lines()[2:4] == [
        "step 1.2 ms on the slowest rank (3), 1.199 ms on the fastest (1); 12000 tokens/s; 2.5 samples/s",
        "steps of rank 3 (4 steady of 7): p50 1.2 ms, p90 1.21 ms",
    ]


def finding(rank: int = 0) -> Finding:
    figures: dict[str, int | Fraction | str] = {
        "part_ns": 200_000,
        "kernel": "ncclDevKernel_AllGather_RING_LL" * 3,
        "kernel_ns": 120_000,
        "comm_ns": 200_000,
    }
    return Finding(FindingKind.COMMUNICATION, rank, (rank,), 1, 1_000_000, 150_000, figures)


def test_findings_have_a_command_to_paste_where_there_is_room_and_the_view_where_there_is_none() -> None:
    wide = FirstScreen(made(findings=(finding(),), traces=("my run.sqlite",))).render_lines()
    assert "   at most 15% of the step: pytest-nsys 'my run.sqlite' --view overlap" in wide
    eight = tuple(budget(rank) for rank in range(8))
    kernels = tuple(KernelShare(f"k{n}", f"k{n}", "gemm", 10, 1, Fraction(1, 100)) for n in range(10))
    tight = made(findings=(finding(),) * 5, budgets=eight, kernels=KernelShares(kernels, 212, 3), doubts=("so",) * 9)
    lines = FirstScreen(tight).render_lines()
    check_bounds(lines, tight.traces)
    assert sum(line.endswith(", at most 15% of the step  --view overlap") for line in lines) == 5
    assert "and 212 others, together 3 ns" in lines
    slow = Finding(FindingKind.PROFILER, None, (0,), 1, 1_000_000, None, {"overhead": Fraction(1, 4)})
    lines = FirstScreen(dataclasses.replace(tight, findings=(finding(),) * 4 + (slow,))).render_lines()
    assert sum(line.endswith("  pytest-nsys check TRACE…") for line in lines) == 1


def test_what_comes_next_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [step.command for step in list_next_steps(["my run.sqlite"])] == [
        "pytest-nsys init 'my run.sqlite'",
        "pytest-nsys cut 'my run.sqlite' --format perfetto",
        "pytest-nsys compare 'my run.sqlite' OTHER_RUN",
    ]
    given = (("--rank", "1"), ("--anchor", "step %"), ("--convention", "kineto"))
    assert [step.command for step in list_next_steps(["a.json"], given)] == [
        "pytest-nsys init a.json --anchor 'step %' --convention kineto",
        "pytest-nsys cut a.json --format perfetto --rank 1 --anchor 'step %' --convention kineto",
        "pytest-nsys compare a.json OTHER_RUN --anchor 'step %' --convention kineto",
    ]
    assert format_detail_command(finding(), ["a.json"], given) == (
        "pytest-nsys a.json --rank 1 --anchor 'step %' --convention kineto --view overlap"
    )
    several = [step.command for step in list_next_steps(["a.json", "b c.json"])]
    assert several[2] == "pytest-nsys compare --base a.json --base 'b c.json' --head OTHER_RUN"
    monkeypatch.chdir(tmp_path)
    write_nodes(tmp_path / "run", 2)
    all_of_it = [f"run/node00{n}.sqlite" for n in range(2)]
    assert next(list_next_steps(all_of_it)).command == "pytest-nsys init run"


@pytest.mark.parametrize(
    "name", ["a b", "it's", "new\nline", "\x1b[99mred\x1b[0m <b>", "back\\slash\t'", "\udcff.json", "é\r"]
)
def test_a_path_of_any_name_is_on_one_line_and_can_be_pasted(name: str) -> None:
    found = made(traces=(name,))
    check_bounds(FirstScreen(found).render_lines(), ("pytest-nsys",))
    assert "\x1b" not in render_screen_html(found)
    command = next(list_next_steps([name])).command.removeprefix("pytest-nsys init ")
    pasted = subprocess.run(["bash", "-c", f"printf %s {command}"], stdout=subprocess.PIPE, check=True)
    assert pasted.stdout == os.fsencode(name)


class Utf8(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_colours_for_a_person_and_ascii_where_there_are_no_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made(budgets=(budget(starved=200_000, stalled=100_000),))
    assert "\x1b[33m····" in "\n".join(FirstScreen(one, Pen.from_stream(Utf8())).render_lines())
    monkeypatch.setenv("NO_COLOR", "1")
    assert Pen.from_stream(Utf8()) == Pen()
    ascii_only = "\n".join(FirstScreen(one, Pen.from_encoding("ascii")).render_lines())
    assert "####" in ascii_only
    assert not set("█·▓▒░") & set(ascii_only)


lengths = st.lists(st.integers(0, 10**9), min_size=len(BudgetPart), max_size=len(BudgetPart)).filter(any)


@given(lengths)
def test_shares_add_up_to_100_percent(parts: list[int]) -> None:
    whole = sum(parts)
    one = RankBudget(0, whole, dict(zip(BudgetPart, parts, strict=True)))
    assert sum(one.shares.values()) == 1
    told = format_budget_shares(one)
    tenths = {"<0.1%": 0, ">99.9%": 1000, "0%": 0, "100%": 1000}
    assert (
        sum(
            tenths.get(text, round(float(text.rstrip("%")) * 10)) if text not in tenths else tenths[text]
            for text in told.values()
        )
        == 1000
    )
    for part, share in one.shares.items():
        assert (told[part] == "0%") is (share == 0)
        assert (told[part] == "100%") is (share == 1)


def test_every_part_of_ranks_that_differ_a_billionfold_fits_beside_a_bar() -> None:
    every = dict.fromkeys(BudgetPart, 111055555)
    instant = dict.fromkeys(BudgetPart, 0) | {BudgetPart.STALLED: 1}
    budgets = (RankBudget(11_000, 999_499_995, every), *(RankBudget(rank, 1, instant) for rank in range(8)))
    head, slowest, *_ = render_rank_bars(budgets, Pen(ascii_only=True, has_colours=False, columns=100))
    assert all(len(line) <= 100 for line in (head, slowest))
    assert "copies" in head
    assert "in comm" not in head  # in what stalls, where it has no room of its own
    assert slowest.endswith("22.2%")


names = st.text(st.characters(codec="utf-8"), max_size=120)


@given(st.data())
def test_no_ranks_kernels_or_names_break_the_bounds(data: st.DataObject) -> None:
    def count(most: int) -> range:
        return range(data.draw(st.integers(0, most)))

    budgets = tuple(
        RankBudget(rank * 1000, sum(own), dict(zip(BudgetPart, own, strict=True)))
        for rank in range(data.draw(st.integers(1, 12)))
        for own in [data.draw(lengths)]
    )
    kernels = tuple(
        KernelShare(
            data.draw(names),
            "",
            data.draw(st.sampled_from(["gemm", "communication"])),
            10 ** data.draw(st.integers(0, 12)),
            Fraction(n, 3),
            Fraction(n, 7),
        )
        for n in count(10)
    )
    rows = tuple(
        CommunicationFigures(data.draw(names), n, 10**n, n, None, data.draw(st.none() | st.just(Fraction(n))))
        for n in count(12)
    )
    communication = RunCommunication(
        "stage", sharing(data.draw(st.integers(0, 2))), rows, rows[0] if rows else None, data.draw(names)
    )
    found = made(
        budgets=budgets,
        kernels=KernelShares(kernels, data.draw(st.integers(0, 10**6)), 10**9),
        communication=communication,
        findings=tuple(finding(n) for n in count(5)),
        doubts=tuple(data.draw(names) for _ in count(6)),
        unmeasured_ranks={n: data.draw(names) for n in count(3)},
        step=StepLength("step_time_ns", 10**9, 10**6, (7, 3), {"p50": 1, "p90": 10**12}, (), ""),
    )
    lines = FirstScreen(found).render_lines()
    check_bounds(lines, found.traces)


def test_the_fullest_run_fits_and_leaves_kernels_to_the_others() -> None:
    rows = tuple(CommunicationFigures(f"stage {n}", n, 10**n, n, None, None) for n in range(4))
    kernels = tuple(KernelShare(f"kernel_{n}", "", "gemm", 100 - n, Fraction(1, 20), 1) for n in range(10))
    found = made(
        budgets=tuple(budget(rank, 1_000 + rank) for rank in range(8)),
        kernels=KernelShares(kernels, 5, 10_000),
        communication=RunCommunication("stage", sharing(1), rows, rows[0], ""),
        findings=tuple(finding(n) for n in range(5)),
        doubts=("d",) * 4,
        unmeasured_ranks={8: "no kernel"},
        step=StepLength("step_time_ns", 10**9, 10**6, (7, 3), {"p50": 1, "p90": 10**12}, (), ""),
    )
    lines = FirstScreen(found).render_lines()
    check_bounds(lines, found.traces)
    assert "and 11 others, together 10.6 us" in lines  # 5 beside the largest, and six of these that take 564 ns


def test_which_ranks_are_shown() -> None:
    several = [budget(rank, 1_000 + rank) for rank in range(9)]
    assert [(which.strip(), own.rank) for which, own in select_shown_ranks(several)] == [
        ("(slowest)", 8),
        ("(median)", 4),
        ("(fastest)", 0),
    ]
    assert [own.rank for _, own in select_shown_ranks(several[:8])] == list(range(8))


def test_as_html_names_are_text_and_bars_have_colours() -> None:
    kernel = KernelShare("a<script>alert(1)</script>", "", "gemm", 1, 1, Fraction(1, 2))
    one = made(budgets=(budget(starved=200_000),), kernels=KernelShares((kernel,), 0, 0))
    html = render_screen_html(one)
    assert "<script>" not in html
    assert "\x1b" not in html
    text = unescape(re.sub("<[^>]*>", "", html.replace("<br>", "\n"))).strip("\n").splitlines()
    assert text == FirstScreen(one).render_lines()
    assert '<span style="color: #c98a00">····' in html


@pytest.mark.parametrize(
    ("more", "second"),
    [
        (
            {"absent_rank_count": 63, "mesh_sizes": {"world": 64}},
            "nsys 2025.5, PyTorch, 1 × NVIDIA H100, 1 of 64 ranks",
        ),
        ({"gpu_model": None, "ranks": (0, 1), "gpu_count": 2}, "nsys 2025.5, PyTorch, 2 GPUs, GPU model not recorded"),
        ({"ranks": (0, 1)}, "nsys 2025.5, PyTorch, 1 × NVIDIA H100, 2 processes"),
        ({"profiler": "JAX", "framework": "JAX"}, "JAX, 1 × NVIDIA H100"),
        (
            {"mesh_sizes": {"pp": 2, "ep": 4}, "file_count": 8, "capture_count": 3},
            "nsys 2025.5, PyTorch, 1 × NVIDIA H100, pp 2 × ep 4, 8 files, medians of 3 captures",
        ),
    ],
)
def test_what_it_is(more: dict[str, object], second: str) -> None:
    one = made()
    subject = dataclasses.replace(one.environment, **more)  # type: ignore[arg-type]
    assert FirstScreen(dataclasses.replace(one, environment=subject)).render_lines()[1] == second


def test_quantiles_are_told_where_steps_differ() -> None:
    same, other = (
        StepLength("step_time_ns", 900_000, 0, None, {"p50": 900_000, "p90": p90}, (), "") for p90 in (900_000, 950_000)
    )
    assert FirstScreen(made(step=same)).render_lines()[2] == "step 900 us"
    assert FirstScreen(made(step=other)).render_lines()[2] == "step 900 us (p90 950 us)"


def test_a_finding_whose_shortest_sentence_is_too_long_has_two_lines() -> None:
    times = {"part_ns": 156_000, "blocked_ns": 162_530, "host_ns": 10_800}
    figures: dict[str, int | str] = {**times, "between": "device to device"}
    found = Finding(FindingKind.COPIES, 0, (0, 1), 2, 1_000_000, 170_000, {**figures})
    lines = FirstScreen(made(findings=(found,)), Pen(columns=80)).render_lines()
    at = next(number for number, line in enumerate(lines) if line.startswith("1. "))
    assert lines[at : at + 2] == [
        "1. rank 0 (the worst of 2): launch-starved for 156 us, 10.8 us of it while the",
        "   host copies pageable memory; most copies are device to device",
    ]
    assert lines[at + 2].startswith("   at most 17% of the step: ")


def test_a_step_that_stands_out_is_told() -> None:
    step = StepLength("step_time_ns", 1_000_000, 0, None, {}, (), "", longest=LongestStep(2_500_000, 0, 5))
    assert FirstScreen(made(step=step)).render_lines()[3] == "longest step 2.5 ms (--window 5)"


@pytest.mark.parametrize(
    ("kernels", "below"),
    [
        (KernelsMode.CONTAINED, "below: --window 1 (step 1), 1 ms"),
        (KernelsMode.LAUNCHED, "below: kernels launched in --window 1 (step 1), 1 ms on the GPU"),
        (KernelsMode.CLIPPED, "below: kernels cut at the edges of --window 1 (step 1), 1 ms"),
    ],
)
def test_a_window_that_is_no_step_is_told_below_it(kernels: KernelsMode, below: str) -> None:
    found = dataclasses.replace(FOUND, kernels=kernels, index=1, anchor_name="step 1")
    subject = dataclasses.replace(made().environment, selection=found)
    step = StepLength("step_time_ns", 900_000, 0, None, {}, (), "")
    assert FirstScreen(made(step=step, environment=subject)).render_lines()[2:4] == ["step 900 us", below]
    near = dataclasses.replace(step, ns=999_999)
    assert FirstScreen(made(step=near, environment=subject)).render_lines()[3] == ""


def test_a_cut_anchor_keeps_what_tells_it_from_others() -> None:
    anchor = "FSDP::pre_forward (blocks.%._checkpoint_wrapped_module), op_id = %"
    assert shorten_pattern(anchor, 34) == "FSDP::pre_forward (blocks.%._chec…"
    assert shorten_pattern("ProfilerStep#%", 34) == "ProfilerStep#%"
    assert len(shorten_pattern("a" * 40 + "%", 16)) == 16


def test_communication_on_the_stream_of_compute_is_said_to_be_counted() -> None:
    row = CommunicationFigures("all", 0, 10, 5, Fraction(1, 2))
    lines = FirstScreen(made(communication=RunCommunication("collective", sharing(2), (row,), row))).render_lines()
    assert "2 of 4 communication kernels share stream 7 with compute: wall_exposed_all counts them" in lines


def test_kernels_without_a_stage_are_called_so() -> None:
    rows = tuple(CommunicationFigures(name, 0, 10, 5, Fraction(1, 2)) for name in ("none", "stage2_f"))
    lines = FirstScreen(made(communication=RunCommunication("stage", sharing(0), rows, rows[0]))).render_lines()
    assert any(line.startswith("no stage ") for line in lines)


def test_a_narrow_line_keeps_every_figure_of_a_finding() -> None:
    figures = {"part_ns": 23_400_000, "mean_ns": 22_400_000}
    found = Finding(FindingKind.UNEVEN, 1, (1,), 4, 24_000_000, 987_000, {**figures})
    lines = FirstScreen(made(findings=(found,)), Pen(columns=60)).render_lines()
    at = next(n for n, line in enumerate(lines) if line.startswith("1. "))
    sentence = " ".join(line.strip() for line in lines[at : at + 3])
    assert all(figure in sentence for figure in ("23.4 ms", "987 us longer", "(22.4 ms)"))


@pytest.mark.parametrize(("columns", "is_whole"), [(100, True), (80, False)])
def test_the_name_of_a_file_is_whole_where_there_is_room(columns: int, is_whole: bool) -> None:
    name = "a_trace_with_a_name_of_forty_signs.json.gz"
    line = FirstScreen(dataclasses.replace(made(), traces=(name,)), Pen(columns=columns)).render_lines()[0]
    assert line.startswith(f"{name}: ") == is_whole
    assert len(line) <= columns
