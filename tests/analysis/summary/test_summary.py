"""The summary of a run: every figure is a row of a metric, shares add up, and what is missing is said."""

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys import open_run
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.explain.budget_lines import BLOCKED_PARTS, BudgetPart
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.summary.communication import SHARED_NAME
from pytest_nsys.analysis.summary.findings import Finding, _RunInspection
from pytest_nsys.analysis.summary.lost_time import FindingKind
from pytest_nsys.analysis.summary.summary import LongestStep, summarize_captures
from pytest_nsys.analysis.summary.trace_environment import find_framework
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.cli.options import MeasureOptions
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.kernel_names import make_stable_name
from pytest_nsys.core.model import KernelsMode, Label, Value
from pytest_nsys.core.workload import Parallel, Workload
from tests.support.gates import write_trace
from tests.support.reference_data import DUALPIPE, MORE, REAL
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.data_parallel import DataParallelShape, write_data_parallel
from tests.support.samples.formats import Format, write_one
from tests.support.samples.fsdp import FsdpShape, write_fsdp
from tests.support.summaries import RUNS, bare_kernels, rank_without_kernels, summarised, summary

Write = Callable[[Path], Path]


def rows(captures: Captures, spec: WindowSpec, metric: str, ranks: frozenset[int]) -> dict[tuple[Label, ...], Value]:
    return {row.labels: row.value for row in captures.measure_rows(METRICS[metric], spec, ranks).rows}


def check_figures(trace: Path) -> None:
    with summarised(trace) as (captures, spec, found):
        ranks = frozenset(budget.rank for budget in found.budgets)

        def of(metric: str) -> dict[tuple[Label, ...], Value]:
            return rows(captures, spec, metric, ranks)

        lengths, step = of("window_ns"), found.step
        if step.metric == "window_ns":
            assert (step.ns, step.quantiles) == (max(lengths.values()), {})
            assert step.reason
        else:
            assert found.unmeasured_ranks or [*of(step.metric).values()] == [step.ns]
            assert step.quantiles == {q: ns for (rank, q), ns in of("period_ns").items() if rank == step.slowest_rank}
        for budget in found.budgets:
            if not budget.parts:
                assert budget.reason
                continue
            rank, parts = budget.rank, budget.parts
            assert sum(budget.shares.values()) == 1
            assert parts[BudgetPart.COMPUTE] == of("window_ns")[rank,] - of("compute_absent_ns")[rank,]
            between = of("between_steps_ns").get((rank,), 0)
            assert parts[BudgetPart.BETWEEN] == between
            assert parts[BudgetPart.STARVED] + between == of("launch_starved_ns")[rank,]
            blocking = {producer: ns for (number, producer), ns in of("blocking_ns").items() if number == rank}
            if blocking:
                assert {kind: ns for kind, part in BLOCKED_PARTS.items() if (ns := parts[part])} == {
                    kind: ns for kind, ns in blocking.items() if ns
                }
                stalled = parts[BudgetPart.BESIDE] + parts[BudgetPart.STALLED]
                assert stalled == of("dependency_stalled_ns")[rank,]
        check_kernels(found.kernels, of("kernel_launches"), len(ranks))
        check_communication(found.communication, of)


def check_kernels(kernels: object, launches: dict[tuple[Label, ...], Value], ranks: int) -> None:
    counts: Counter[Label] = Counter()
    for labels, number in launches.items():
        counts[labels[-1]] += int(number)
    for kernel in kernels.largest:  # type: ignore[attr-defined]
        names = {name for name in counts if str(name) in kernel.name or name == make_stable_name(kernel.name)}
        assert kernel.launch_count * ranks <= sum(counts[name] for name in names)
    assert len({kernel.display_name for kernel in kernels.largest}) == len(kernels.largest)  # type: ignore[attr-defined]


def check_communication(communication: object, of: Callable[[str], dict[tuple[Label, ...], Value]]) -> None:
    whole = communication.total  # type: ignore[attr-defined]
    if whole is None:
        assert communication.reason  # type: ignore[attr-defined]
        return
    ending = "_all" if communication.counts_shared_streams else ""  # type: ignore[attr-defined]
    exposed = of(f"wall_exposed{ending}_ns")
    assert exposed[whole.rank,] == whole.exposed_ns == max(exposed.values())
    assert whole.overlap_share == of(f"wall_overlap{ending}")[whole.rank,]
    for each in communication.parts:  # type: ignore[attr-defined]
        if each.name == SHARED_NAME:
            assert each.total_ns == of("barrier_ns")[each.rank,]
        elif communication.grouping == "stage":  # type: ignore[attr-defined]
            assert each.total_ns == of("comm_ns")[each.rank, each.name]
            assert each.exposed_ns == of("exposed_ns")[each.rank, each.name]
            assert each.overlap_share == of("overlap")[each.rank, each.name]
        else:
            assert each.exposed_ns <= min(each.total_ns, exposed[each.rank,])


@pytest.mark.parametrize("run", [pytest.param(write, id=name) for name, write in RUNS.items()])
def test_every_figure_is_a_row_of_a_metric(tmp_path: Path, run: Write) -> None:
    check_figures(run(tmp_path))


@pytest.mark.reference
@pytest.mark.parametrize(
    "trace",
    [
        *(DUALPIPE / f"{name}.sqlite" for name in ("pp1_cp2_ep2", "pp2_ep2")),
        *(REAL / name for name in ("mfu_2gpu_before.sqlite", "h100_2gpu_1s.sqlite", "hta_nccl_data.json.gz")),
        *(MORE / name for name in ("deepseek_dualpipe_train.json.gz", "b200_vllm_eager.json.gz")),
    ],
    ids=lambda trace: trace.name,
)
@pytest.mark.sampled(3)
def test_and_of_real_traces(trace: Path) -> None:
    check_figures(trace)


def test_a_rank_without_kernels_is_said_and_the_others_have_their_figures(tmp_path: Path) -> None:
    found = summary(rank_without_kernels(tmp_path))
    assert [budget.rank for budget in found.budgets] == [0, 2]
    assert found.unmeasured_ranks.keys() == {1}
    assert "three.sqlite: rank 1 ran no kernel: profile it again" in found.unmeasured_ranks[1]
    assert [(kernel.display_name, kernel.launch_count) for kernel in found.kernels.largest] == [("gemm", 5)]
    assert found.environment.ranks == (0, 2)


def test_where_no_rank_has_kernels_it_is_said_why(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.process().range("forward chunk 0 backward chunk 0", 0, 10)
    with pytest.raises(NothingMeasured, match="no kernels"):
        summary(trace.write(tmp_path / "empty.sqlite"))


def test_kernels_are_means_over_the_ranks_and_shares_of_their_windows(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for pid, own in ((100, 2), (101, 1)):
        gpu = trace.process(pid=pid)
        for n in range(own):
            gpu.kernel("void a::gemm<4>(int)", 10_000 * n, 10_000 * n + 1_000)
        gpu.kernel("ncclDevKernel_AllReduce", 12_000, 20_000, stream=9)
    found = summary(trace.write(tmp_path / "two.sqlite"))
    each = {kernel.display_name: kernel for kernel in found.kernels.largest}
    windows = sum(budget.window_ns for budget in found.budgets)
    assert (each["gemm"].ns, each["gemm"].launch_count, each["gemm"].family) == (1_500, Fraction(3, 2), "gemm")
    assert each["gemm"].share == Fraction(3_000, windows)
    assert each["ncclDevKernel_AllReduce"].ns == 8_000


def test_of_many_kernels_ten_are_told_and_the_others_counted(tmp_path: Path) -> None:
    gpu = TraceBuilder().process()
    for n in range(25):
        gpu.kernel(f"kernel_{n}", 1_000 * n, 1_000 * n + 10 + n)
    found = summary(gpu.trace.write(tmp_path / "many.sqlite")).kernels
    assert [kernel.name for kernel in found.largest] == [f"kernel_{n}" for n in range(24, 14, -1)]
    assert (found.other_count, found.others_ns) == (15, sum(10 + n for n in range(15)))


def test_the_slowest_rank_and_the_fastest(tmp_path: Path) -> None:
    with summarised(write_fsdp(tmp_path / "fsdp", FsdpShape(ranks=3, steps=5))) as (captures, spec, found):
        p50 = {r: ns for (r, q), ns in rows(captures, spec, "period_ns", frozenset(range(3))).items() if q == "p50"}
        assert p50[found.step.slowest_rank] == max(p50.values())
        assert found.step.fastest_rank is not None
        assert found.step.fastest_rank[1] == p50[found.step.fastest_rank[0]] == min(p50.values())
    assert summary(write_data_parallel(tmp_path / "even", DataParallelShape())).step.fastest_rank is None


def test_collectives_have_the_bandwidth_of_their_metric(tmp_path: Path) -> None:
    with summarised(write_data_parallel(tmp_path, DataParallelShape())) as (captures, spec, found):
        assert found.communication.grouping == "collective"
        table = captures.measure_rows(METRICS["busbw"], spec).label_rows()
        for each in found.communication.parts:
            kind, _, group = each.name.partition(" (")
            known = [
                value
                for labels, value in table
                if (labels["rank"], labels["collective"], labels["group"]) == (each.rank, kind, group.rstrip(")"))
                and labels.get("statistic", "median") == "median"
            ]
            assert known == [each.bus_gb_per_s]


def test_communication_that_shares_its_stream_is_counted_as_all(tmp_path: Path) -> None:
    gpu = TraceBuilder().process()
    gpu.kernel("gemm", 0, 1_000, stream=7)
    gpu.kernel("ncclDevKernel_AllReduce_Sum", 1_000, 3_000, stream=7)
    gpu.kernel("gemm", 2_500, 4_000, stream=8)
    found = summary(gpu.trace.write(tmp_path / "shared.sqlite")).communication
    assert found.counts_shared_streams
    assert found.total is not None
    assert (found.total.total_ns, found.total.exposed_ns, found.total.overlap_share) == (2_000, 1_500, Fraction(1, 4))
    assert [each.name for each in found.parts] == ["AllReduce"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_communication_on_streams_of_compute_is_counted_beside_some_of_its_own(tmp_path: Path, ranks: int) -> None:
    """On the same rank, or on another one: 3 000 ns stand in order with compute, 500 of the other 2 000 are exposed."""
    trace = TraceBuilder()
    gpus = [trace.process(pid=100 + rank, device=rank) for rank in range(ranks)]
    for gpu in gpus:
        gpu.kernel("gemm", 0, 2_000, stream=7)
    gpus[0].kernel("ncclDevKernel_AllReduce_Sum", 500, 2_500, stream=9)
    gpus[-1].kernel("ncclDevKernel_AllGather", 3_000, 6_000, stream=7)
    found = summary(trace.write(tmp_path / "both.sqlite")).communication
    assert found.counts_shared_streams
    assert {each.name: each.exposed_ns for each in found.parts} == {"AllGather": 3_000, "AllReduce": 500}


def test_a_little_communication_on_streams_of_compute_leaves_the_stages(tmp_path: Path) -> None:
    """In a line of its own, unless it is so little that no figure counts it; most of it is told by collective."""
    for length, by, shared in ((100, "stage", False), (1_000, "stage", True), (3_000, "collective", True)):
        trace = TraceBuilder()
        gpu = trace.process()
        gpu.range("layer0.stage2_f", 0, 8_000)
        gpu.kernel("gemm", 500, 2_000, stream=7, launch_ns=100)
        gpu.kernel("ncclDevKernel_SendRecv", 500, 2_500, stream=9, launch_ns=200)
        gpu.kernel("ncclDevKernel_AllReduce_Sum", 3_000, 3_000 + length, stream=7, launch_ns=300)
        path = str(trace.write(tmp_path / f"{length}.sqlite"))
        with MeasureOptions(window="run", convention="pithtrain").open_one_run([path]) as (captures, spec):
            found = summarize_captures(captures, spec).communication
        assert (found.grouping, found.counts_shared_streams) == (by, shared)
        beside = {each.name: (each.total_ns, each.exposed_ns) for each in found.parts if each.name == SHARED_NAME}
        assert beside == ({SHARED_NAME: (1_000, 1_000)} if length == 1_000 else {})


def test_a_kernel_that_communicates_and_is_no_known_collective_goes_by_its_name(tmp_path: Path) -> None:
    gpu = TraceBuilder().process()
    gpu.kernel("gemm", 0, 1_000, stream=7)
    gpu.kernel("void deep_ep::internode::combine<8>(int)", 500, 3_000, stream=9)
    found = summary(gpu.trace.write(tmp_path / "ep.sqlite")).communication
    assert [each.name for each in found.parts] == ["combine"]


def test_no_communication_is_said(tmp_path: Path) -> None:
    found = summary(bare_kernels(tmp_path)).communication
    assert (found.total, found.parts, found.reason) == (None, (), "no communication kernel in the window")


@pytest.mark.parametrize(
    ("kernels", "framework"),
    [
        (["void at::native::add<4>(int)"], "PyTorch"),
        (["void vllm::rotary<4>(int)", "void at::native::add<4>(int)"], "vLLM"),
        (["_ZN7sgl_hip10activationE", "void vllm::rotary<4>(int)"], "SGLang"),
        (["loop_add_fusion_3"], "JAX"),
        (["vecAdd"], None),
    ],
)
def test_the_framework_is_told_by_names_of_kernels(kernels: list[str], framework: str | None) -> None:
    assert find_framework(kernels) == framework


def test_of_several_windows_the_budget_is_that_of_one_and_kernels_are_means(tmp_path: Path) -> None:
    found = summary(RUNS["FSDP"](tmp_path), window="steady")
    assert found.environment.selection.index is None
    assert all(sum(budget.shares.values()) == 1 for budget in found.budgets)
    whole = summary(tmp_path, window="run")
    assert whole.environment.selection.is_whole_run
    assert {kernel.name for kernel in found.kernels.largest} == {kernel.name for kernel in whole.kernels.largest}


def test_of_several_captures_each_rank_has_one_budget_and_kernels_are_means(tmp_path: Path) -> None:
    runs = [open_run(write_trace(tmp_path / f"run{n}.sqlite", 100 * n)) for n in (1, 2, 3)]
    together = open_run([write_trace(tmp_path / f"run{n}.sqlite", 100 * n) for n in (1, 2, 3)]).summary()
    each = [run.summary() for run in runs]
    assert (together.environment.capture_count, together.environment.selection.index) == (3, 2)
    for number, own in enumerate(together.budgets):
        assert own in [one.budgets[number] for one in each]
    gemm, *others = (next(k for k in one.kernels.largest if k.display_name == "gemm") for one in (together, *each))
    assert gemm.ns == Fraction(sum(kernel.ns for kernel in others), 3)
    assert together.communication.total is not None
    assert (
        together.communication.total.exposed_ns
        == sorted(w.exposed_ns for one in each if (w := one.communication.total))[1]
    )


@pytest.mark.parametrize("length", [6_000, 100])
def test_what_graphs_hide_is_told_once(tmp_path: Path, length: int) -> None:
    gpu = TraceBuilder().process()
    gpu.kernel("gemm", 10_000, 50_000, launch_ns=1_000)
    for n in range(4):
        gpu.kernel("gemm", at := 50_000 + (n + 1) * length + 1_000 * n, at + 1_000, launch_ns=1_100, graph_node=n + 1)
    gpu.kernel("gemm", 90_000, 110_000, launch_ns=1_200)
    doubts = summary(gpu.trace.write(tmp_path / "graphs.sqlite")).doubts
    (told,) = [doubt for doubt in doubts if "CUDA graph" in doubt]
    assert told.startswith("4 of 6 kernels around the windows ran in CUDA graphs: one launch starts many")


@pytest.mark.parametrize(("stalled", "told"), [(5_000, True), (4_900, False)])
def test_bounds_are_doubtful_where_a_twentieth_is_unexplained(tmp_path: Path, stalled: int, told: bool) -> None:
    def put(gpu: Any) -> None:
        gpu.kernel("gemm", 10_000, 60_000, launch_ns=1_000)
        gpu.kernel("gemm", 60_000 + stalled, 110_000, launch_ns=1_100)

    doubts = summary(write_one(tmp_path, Format.NSYS, put)).doubts
    assert any(doubt.startswith("blocked and stalled are bounds") for doubt in doubts) is told


def steps_of_ranks(folder: Path, periods: Mapping[int, list[int]], length: int = 4_000) -> Path:
    """A file for each rank, whose steps begin so many ns after each other."""
    for rank, apart in periods.items():
        trace = TraceBuilder()
        gpu = trace.process(pid=100 + rank)
        for n, at in enumerate(accumulate(apart, initial=100_000)):
            gpu.range(f"ProfilerStep#{n}", at, at + length)
            gpu.kernel("gemm", at + 500, at + length - 500 - 100 * rank, launch_ns=at + 100)
        trace.write(folder / f"rank{rank}.sqlite")
    return folder


def test_the_slowest_rank_is_the_one_whose_step_is_told(tmp_path: Path) -> None:
    """An even number of periods has a median between two of them, and its p50 is one of them."""
    step = summary(steps_of_ranks(tmp_path, {0: [10_000] * 3 + [20_000] * 2, 1: [12_000] * 5})).step
    assert (step.ns, step.slowest_rank, step.fastest_rank) == (15_000, 0, (1, 12_000))


def test_a_step_that_stands_out_is_that_of_all_ranks(tmp_path: Path) -> None:
    even = [10_000] * 6
    step = summary(steps_of_ranks(tmp_path, {0: [*even[:2], 31_000, *even[3:]], 1: [*even[:4], 30_000, 10_000]})).step
    assert (step.longest, step.step_count) == (LongestStep(31_000, 0, 2), 7)
    assert summary(steps_of_ranks(tmp_path, {0: even, 1: [*even[:5], 11_000]})).step.longest is None


def test_where_steps_are_stated_every_rank_has_a_step_of_that_kind(tmp_path: Path) -> None:
    folder = steps_of_ranks(tmp_path, {0: [10_000] * 4, 1: [9_000] * 4})
    found = {budget.rank: budget.window_ns for budget in summary(folder, window="run").budgets}
    with MeasureOptions(window="run").open_one_run([str(folder)], Workload(steps=5)) as (captures, spec):
        step = summarize_captures(captures, spec).step
    assert (step.ns, step.slowest_rank) == (Fraction(found[0], 5), 0)
    assert (step.fastest_rank, step.quantiles) == ((1, Fraction(found[1], 5)), {})


def test_a_step_of_a_single_anchor_is_beside_steps_of_the_other_ranks(tmp_path: Path) -> None:
    step = summary(steps_of_ranks(tmp_path, {0: [], 1: []}), window="run").step
    assert (step.ns, step.fastest_rank) == (3_500, None)


def test_samples_are_told_where_tokens_are_not_known(tmp_path: Path) -> None:
    folder = steps_of_ranks(tmp_path, {0: [10_000] * 4})
    rates = open_run(folder, workload=Workload(samples=8)).summary().step.rates
    assert [(rate.metric, rate.value) for rate in rates] == [("samples_per_s", 800_000)]


def test_work_is_that_of_all_ranks_whichever_are_looked_at(tmp_path: Path) -> None:
    folder = steps_of_ranks(tmp_path, {0: [10_000] * 4, 1: [10_000] * 4})
    stated = Workload(local_samples=4, parallel=Parallel())
    with MeasureOptions().open_one_run([str(folder)], stated) as (captures, spec):
        each = [summarize_captures(captures, spec, ranks=ranks).step.rates for ranks in (None, {0})]
    assert each[0] == each[1]
    assert each[0][0].value == 800_000


def test_a_rank_that_one_capture_lacks_is_said(tmp_path: Path) -> None:
    for name, ranks in (("one", (0, 1)), ("two", (0,))):
        (tmp_path / name).mkdir()
        steps_of_ranks(tmp_path / name, {rank: [10_000 + len(ranks)] * 4 for rank in ranks})
    found = open_run([tmp_path / "one", tmp_path / "two"]).summary()
    assert found.environment.ranks == (0,)
    assert found.unmeasured_ranks == {1: f"{tmp_path / 'two' / 'rank0.sqlite'} does not hold it"}


def test_findings_are_of_the_ranks_that_are_looked_at(tmp_path: Path) -> None:
    """The rank that could win most is another one: what the own one could win is told all the same."""
    for rank, end in ((0, 800_000), (1, 200_000)):
        trace = TraceBuilder()
        gpu = trace.process(pid=100 + rank)
        for at in range(1_000_000, 6_000_000, 1_000_000):
            gpu.range(f"ProfilerStep#{at}", at, at + 1_000_000)
            gpu.kernel("gemm", at + 50_000, at + end, launch_ns=at + 10_000)
            gpu.kernel("last", at + 950_000, at + 990_000, launch_ns=at + 940_000)
        trace.write(tmp_path / f"rank{rank}.sqlite")
    with MeasureOptions().open_one_run([str(tmp_path)]) as (captures, spec):
        every, own = (summarize_captures(captures, spec, ranks=ranks).findings for ranks in (None, {0}))
    launches = [next(each for each in found if each.kind is FindingKind.LAUNCHES) for found in (every, own)]
    assert [(each.rank, each.ranks, each.rank_count) for each in launches] == [(1, (0, 1), 2), (0, (0,), 1)]


@pytest.mark.parametrize("window", ["102000:103000", "median"])
def test_a_span_of_time_that_is_stated_is_no_step(tmp_path: Path, window: str) -> None:
    with MeasureOptions(window=window, kernels=KernelsMode.CLIPPED).open_one_run(
        [str(steps_of_ranks(tmp_path, {0: [10_000] * 4}))]
    ) as (captures, spec):
        assert summarize_captures(captures, spec).environment.selection.is_stated_span is (window != "median")


def test_of_many_findings_a_slowing_profiler_keeps_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says of all others by how much they may be wrong, and stands nowhere else; what is doubtful does."""
    wins = [Finding(kind, 0, (0,), 1, 100, 50 - n) for n, kind in enumerate([*FindingKind][:6])]
    profiler = Finding(FindingKind.PROFILER, None, (0,), 1, 0, None, {"recorded": "with_stack"})
    monkeypatch.setattr(_RunInspection, "list_wins", lambda _: iter(wins))
    monkeypatch.setattr(_RunInspection, "list_doubts", lambda *_: iter([profiler]))
    found = summary(bare_kernels(tmp_path)).findings
    assert [each.kind for each in found] == [*(win.kind for win in wins[:4]), FindingKind.PROFILER]
