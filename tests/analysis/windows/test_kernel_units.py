"""Which windows does a kernel make that anchors, what is in each, and how long is it?"""

import shlex
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, KernelAnchor
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.model import KernelsMode, Span
from pytest_nsys.gates.convention_keys import parse_anchor_option
from tests.support.kernel_steps import PLAIN, put, slow_quarter, written
from tests.support.measure import captures, notes, rows, rows_of, windows
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.kineto import KinetoBuilder

FIRST = replace(BUILT_IN_CONVENTIONS["generic"], anchor=KernelAnchor("embed"), kernels=KernelsMode.LAUNCHED)


def periods(**values: object) -> dict[tuple[int, str], object]:
    """The rows of ``period_ns`` of rank 0."""
    return {(0, statistic): value for statistic, value in values.items()}


def held(path: Path, window: str, **more: Any) -> list[list[str]]:
    """The names of the kernels of each window."""
    convention = replace(FIRST, **more)
    with captures(path, convention=convention) as run:
        group = run.runs[0].load_windows(run.make_spec(window))
        return [[w.kernels.names[name] for name in w.kernels.name] for w in group]


def test_a_window_goes_from_one_start_to_the_next(tmp_path: Path) -> None:
    trace = written(tmp_path / "run.sqlite", [PLAIN] * 6)
    found = windows(trace, "steady", convention=FIRST)
    assert [(w.start_ns, w.end_ns, w.index, w.count) for w in found] == [
        (9_700 + 1_000 * i, 10_700 + 1_000 * i, i, 6) for i in (1, 2, 3, 4)
    ]
    assert held(trace, "steady") == [list(PLAIN)] * 4
    assert rows(trace, "anchors", convention=FIRST) == {0: 6}
    assert rows(trace, "period_ns", convention=FIRST) == periods(p50=1_000, p90=1_000, p99=1_000, mean=1_000, max=1_000)


@pytest.mark.parametrize("mode", KernelsMode)
def test_a_host_that_is_ahead_makes_no_step_shorter(tmp_path: Path, mode: KernelsMode) -> None:
    process = TraceBuilder().process()
    for step, start in enumerate((0, 900, 1_900, 2_900, 4_000, 5_000, 6_000, 7_000, 8_000)):
        for place, name in enumerate(PLAIN):
            at = 10_000 + start + 100 * place
            process.kernel(name, at, at + 50, launch_ns=1_000 + 100 * step + 10 * place)
    convention, path = replace(FIRST, kernels=mode), process.trace.write(tmp_path / "run.sqlite")
    each = periods(p50=1_000, p90=1_100, p99=1_100, mean=Fraction(7_100, 7), max=1_100)
    assert rows(path, "period_ns", convention=convention) == each
    assert rows(path, "step_time_ns", convention=convention) == {(): 1_000}


@pytest.mark.parametrize("mode", KernelsMode)
def test_each_mode_has_the_kernels_of_a_step(tmp_path: Path, mode: KernelsMode) -> None:
    assert held(written(tmp_path / "run.sqlite", [PLAIN] * 6), "median", kernels=mode) == [list(PLAIN)]


def test_a_rank_that_its_trace_names_has_windows(tmp_path: Path) -> None:
    trace = KinetoBuilder(rank=1, world=2)
    for step in range(6):
        for place, name in enumerate(PLAIN):
            start = 10_000 + 1_000 * step + 100 * place
            trace.kernel(name, start, start + 50, launch_ns=start - 300)
    assert rows(trace.write(tmp_path / "run.json"), "anchors", convention=FIRST) == {1: 6}


def test_a_window_of_other_kernels_is_measured(tmp_path: Path) -> None:
    """More kernels, or fewer, are what a gate looks for."""
    long = ("embed", *["gemm"] * 7, "adam")
    trace = written(tmp_path / "run.sqlite", [PLAIN, PLAIN, long, PLAIN, PLAIN, PLAIN])
    assert [w.start_ns for w in windows(trace, "steady", convention=FIRST)] == [10_700, 11_700, 12_700, 13_700]
    assert held(trace, "2") == [list(long)]


@pytest.mark.parametrize("mode", KernelsMode)
def test_a_kernel_that_comes_to_start_twice_a_step_makes_no_halves(tmp_path: Path, mode: KernelsMode) -> None:
    """Else a limit on the step holds that is as slow as before, or slower."""
    before, behind = ("embed", "gemm", "gemm", "gemm"), ("embed", "back", "back", "adam")
    convention = replace(FIRST, kernels=mode)
    whole = written(tmp_path / "once.sqlite", [PLAIN] * 6)
    halves = written(tmp_path / "twice.sqlite", [before, behind] * 6)
    assert rows(whole, "step_time_ns", convention=convention) == {(): 1_000}
    assert rows(halves, "step_time_ns", convention=convention) == {(): 2_000}
    assert rows(halves, "anchors", convention=convention) == {0: 6}
    assert held(halves, "median", kernels=mode) == [[*before, *behind]]


def test_a_kernel_with_other_work_in_every_third_window_is_no_third_of_a_step(tmp_path: Path) -> None:
    trace = written(tmp_path / "run.sqlite", [PLAIN, PLAIN, (*PLAIN, "validate", "validate")] * 4)
    assert rows(trace, "anchors", convention=FIRST) == {0: 12}


@pytest.mark.parametrize(
    ("anchor", "said"),
    [
        (KernelAnchor("embet"), "no kernel is called 'embet' (did you mean 'embed'?)"),
        (KernelAnchor("gemm", "adamw"), "no kernel is called 'adamw' (did you mean 'adam'?)"),
        (KernelAnchor("gemm", "adam"), "'gemm' never starts after 'adam': before it ran 'embed', 'gemm'"),
        (KernelAnchor("once"), "kernel 'once' starts once"),
    ],
)
def test_why_there_is_no_window(tmp_path: Path, anchor: KernelAnchor, said: str) -> None:
    trace = written(tmp_path / "run.sqlite", [("once", "embed"), *[PLAIN] * 5])
    with pytest.raises(NothingMeasured, match="rank 0") as caught:
        rows(trace, "overlap", convention=replace(FIRST, anchor=anchor))
    assert said in str(caught.value)


NORM = "void norm::kernel<norm::Rmsnorm2dFwd<{}>>(norm::Args)"


@pytest.mark.parametrize(
    ("called", "exact"),
    [
        ("matmul_ogs bf16xmxfp4 128x128x128", "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1"),
        ("Rmsnorm2dFwd<1>", NORM.format(1)),
        ("kernel<Rmsnorm2dFwd, 2>", NORM.format(2)),
        ("void norm::kernel<norm::Rmsn…wd<2>>(norm::Args)", NORM.format(2)),
    ],
)
def test_a_name_from_a_screen_gets_the_exact_one(tmp_path: Path, called: str, exact: str) -> None:
    step = ("embed", "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1", NORM.format(1), NORM.format(2))
    trace = written(tmp_path / "run.sqlite", [step] * 6)
    with pytest.raises(NothingMeasured, match="no kernel is called") as caught:
        rows(trace, "overlap", convention=replace(FIRST, anchor=KernelAnchor("embed", called)))
    assert "which is short for 1 name: type --anchor " in str(caught.value)
    *_, typed = shlex.split(str(caught.value).partition("type ")[2].partition("; `")[0])
    assert parse_anchor_option(typed) == KernelAnchor("embed", exact)


def test_a_name_that_is_short_for_several_gets_each(tmp_path: Path) -> None:
    trace = written(tmp_path / "run.sqlite", [("embed", *(NORM.format(i) for i in range(5)))] * 6)
    with pytest.raises(NothingMeasured, match="which is short for 5 names") as caught:
        rows(trace, "overlap", convention=replace(FIRST, anchor=KernelAnchor("Rmsnorm2dFwd")))
    assert str(caught.value).count("--anchor") == 3


def test_a_name_close_to_one_of_a_screen(tmp_path: Path) -> None:
    trace = written(tmp_path / "run.sqlite", [("embed", NORM.format(1))] * 6)
    with pytest.raises(NothingMeasured, match=r"'Rmsnorm2Fwd' \(did you mean 'Rmsnorm2dFwd'\?\)"):
        rows(trace, "overlap", convention=replace(FIRST, anchor=KernelAnchor("Rmsnorm2Fwd")))


def test_without_launches_windows_are_on_the_gpu(tmp_path: Path) -> None:
    trace = written(tmp_path / "run.sqlite", [PLAIN] * 6, lag_ns=None)
    clipped = replace(FIRST, kernels=KernelsMode.CLIPPED)
    (found,) = windows(trace, convention=clipped)
    assert (found.start_ns, found.end_ns, found.index, found.count) == (13_000, 14_000, 3, 6)
    with pytest.raises(NothingMeasured, match=r"100% of the kernels have no launch row: kernels: clipped"):
        rows(trace, "overlap", convention=FIRST)


def test_the_last_window_ends_with_its_work_and_counts_in_no_median(tmp_path: Path) -> None:
    full = [*PLAIN, *["gemm"] * 6]
    process = TraceBuilder().process()
    put(process, [full] * 5, [910] * 5)
    for at in (0, 200, 400, 3_000):
        process.kernel("gemm" if at else "embed", 14_550 + at, 14_600 + at, launch_ns=14_250 + at)
    path = process.trace.write(tmp_path / "run.sqlite")
    assert rows(path, "window_ns", convention=FIRST, window="last") == {0: 3_050}
    assert rows(path, "anchors", convention=FIRST) == {0: 6}
    assert rows(path, "period_ns", convention=FIRST) == periods(p50=910, p90=910, p99=910, mean=910, max=910)


def test_slow_windows_are_in_the_percentiles_and_the_mean(tmp_path: Path) -> None:
    """Of 15 after the first four take twice as long."""
    trace = slow_quarter(tmp_path / "run.sqlite", 2_000)
    assert rows(trace, "anchors", convention=FIRST) == {0: 17}
    found = periods(p50=1_000, p90=2_000, p99=2_000, mean=Fraction(19_000, 15), max=2_000)
    assert rows(trace, "period_ns", convention=FIRST) == found
    assert any(
        "4 of 15 steps take over 1.5 times as long" in note for note in notes(trace, "overlap", convention=FIRST)
    )


@pytest.mark.parametrize("window", ["first", "median", "last"])
def test_span_makes_no_difference(tmp_path: Path, window: str) -> None:
    trace = written(tmp_path / "run.sqlite", [PLAIN] * 6)
    both = [windows(trace, window, convention=FIRST, span=span) for span in Span]
    assert both[0] == both[1]
    with captures(trace, convention=FIRST) as run:
        assert run.make_spec(window, Span.PERIOD) == run.make_spec(window, Span.RANGE)


def test_a_rank_without_the_kernel_is_named(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for rank in range(2):
        process = trace.process(pid=100 + rank)
        for step in range(6):
            process.kernel("embed" if not rank else "gemm", 1_000 * step + 100, 1_000 * step + 200)
    with pytest.raises(
        NothingMeasured,
        match=r"rank 1 \(process 101\): no kernel is called 'embed': `pytest-nsys TRACE --view kernels` lists them",
    ):
        rows(trace.write(tmp_path / "run.sqlite"), "compute_ns", convention=FIRST)


def sharing_a_gpu(path: Path, *periods_ns: int) -> Path:
    """Processes whose steps take turns on device 0, each in its own rhythm; one is launched 20 ns after the other."""
    trace = TraceBuilder()
    for number, period_ns in enumerate(periods_ns):
        process = trace.process(pid=100 + number)
        for step in range(12):
            for place, name in enumerate(PLAIN):
                at = 10_000 + 20 * number + period_ns * step + 100 * place
                process.kernel(name, at, at + 10, launch_ns=at - 300)
    return trace.write(path)


@pytest.mark.parametrize("mode", KernelsMode)
def test_two_processes_on_one_gpu_have_windows_of_their_own(tmp_path: Path, mode: KernelsMode) -> None:
    trace, convention = sharing_a_gpu(tmp_path / "run.sqlite", 1_000, 1_500), replace(FIRST, kernels=mode)
    starts = 9_700 if mode is KernelsMode.LAUNCHED else 10_000
    found = [(w.start_ns - starts, w.end_ns - w.start_ns, w.index) for w in windows(trace, "2", convention=convention)]
    assert found == [(2_000, 1_000, 2), (3_020, 1_500, 2)]
    assert held(trace, "2", kernels=mode) == [list(PLAIN)] * 2
    assert rows(trace, "step_time_ns", convention=convention) == {(): 1_500}
    assert any("several processes use the same device id" in note for note in notes(trace, convention=convention))


def test_captures_of_one_run_have_windows_of_their_own(tmp_path: Path) -> None:
    both = [sharing_a_gpu(tmp_path / f"{ns}.sqlite", ns) for ns in (1_000, 1_400)]
    other = written(tmp_path / "other.sqlite", [("fused_embed", *PLAIN[1:])] * 6)
    with captures(*both, convention=FIRST) as run:
        assert rows_of(run, "step_time_ns", run.make_spec("median")) == {(): 1_200}
        assert [w.window.start_ns for each in run.runs for w in each.load_windows(run.make_spec("3"))] == [
            12_700,
            13_900,
        ]
    why = rf"{other}: rank 0 \(process 100\): no kernel is called 'embed' \(did you mean 'fused_embed'\?\)"
    with captures(both[0], other, convention=FIRST) as run, pytest.raises(NothingMeasured, match=why):
        rows_of(run, "step_time_ns", run.make_spec("median"))


def test_a_graph_begins_one_window(tmp_path: Path) -> None:
    process = TraceBuilder().process()
    for step in range(6):
        graph = process.kernel("embed", 1_000 * step + 100, 1_000 * step + 200, graph_node=1, launch_ns=1_000 * step)
        for node in range(2, 6):
            start = 1_000 * step + 100 * node
            process.kernel("embed", start, start + 50, graph_node=node, correlation=graph)
    assert held(process.trace.write(tmp_path / "run.sqlite"), "median") == [["embed"] * 5]
