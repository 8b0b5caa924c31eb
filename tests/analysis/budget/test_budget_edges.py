"""What does the budget say where less is known, or the next compute kernel is far away? Does it add up by name?"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.budget.budget import Budget, build_budget_facts, measure_budget, measure_rank_budgets
from pytest_nsys.analysis.explain.budget_lines import MAX_NAMED_ROWS, BudgetPart, LaunchDelay
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention, CopyKind
from pytest_nsys.core.model import KernelsMode, Lane, Value
from pytest_nsys.core.tables import Kernels, LaunchCalls
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from tests.support.measure import captures, notes, rows, rows_of, why
from tests.support.one_process import OneProcess
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.sql import execute

NCCL = "ncclDevKernel_SendRecv"
PLAIN = replace(BUILT_IN_CONVENTIONS["generic"], anchor="step%")
OF_ALL_WORK = ("blocking_ns", "dependency_stalled_ns", "blocking_comm_ns", "blocking_comm_max_ns")
SECOND = 1_000_000_000


why_none = partial(why, convention=PLAIN, kernels="clipped")


def parts(
    trace: OneProcess | Path, window: str = "median", convention: Convention = PLAIN, kernels: str = "clipped"
) -> Mapping[str, Value]:
    """The three parts of rank 0, blocking by its producer where it is any."""
    found: dict[str, Value] = {}
    for metric in ("launch_starved_ns", "blocking_ns", "dependency_stalled_ns"):
        for label, value in rows(trace, metric, window=window, convention=convention, kernels=kernels).items():
            if isinstance(label, tuple) and value:
                found[str(label[1])] = value
            elif label == 0:
                found[metric] = value
    return found


# -- launches


def test_without_any_launch_row_there_is_no_split(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 20, 40, launch=False)
    gpu.kernel(NCCL, 50, 60, launch_ns=1, launch_length_ns=1)
    for metric in ("launch_starved_ns", *OF_ALL_WORK):
        assert "no kernel that ends a gap has a launch row" in why_none(gpu, metric)
    assert rows(gpu, "compute_absent_ns", convention=PLAIN) == {0: 80}


def test_a_kernel_without_a_launch_row_counts_as_issued_at_once(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 0, 20, launch_ns=-5, launch_length_ns=1)
    gpu.kernel("gemm", 50, 60, launch=False)
    gpu.kernel("gemm", 70, 100, launch_ns=64, launch_length_ns=1)
    assert parts(gpu) == {"launch_starved_ns": 5, "dependency_stalled_ns": 35}
    told = notes(gpu, "launch_starved_ns", convention=PLAIN, kernels="clipped")
    assert "1 of 2 gaps end in a kernel without a launch row: they count as launched at once" in told


def test_a_call_that_still_runs_when_its_kernel_starts_is_the_host_s_time(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 30, 100, launch_ns=5, launch_length_ns=90)
    assert parts(gpu) == {"launch_starved_ns": 30, "dependency_stalled_ns": 0}


def test_where_no_compute_follows_all_of_the_gap_is_launch_starved(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 0, 20, launch_ns=-5, launch_length_ns=1)
    gpu.kernel(NCCL, 20, 90, launch_ns=-3, launch_length_ns=1)
    assert parts(gpu) == {"launch_starved_ns": 80, "dependency_stalled_ns": 0}
    told = notes(gpu, "launch_starved_ns", convention=PLAIN, kernels="clipped")
    assert "launch-starved for 80 ns, of which 80 ns after the last kernel" in told


def test_where_the_launching_thread_was_meanwhile_is_told(gpu: OneProcess) -> None:
    gpu.range("step", 0, 1_000)
    gpu.kernel("gemm", 0, 200, launch_ns=-50, launch_length_ns=1)
    gpu.kernel("gemm", 900, 1_000, launch_ns=790, launch_length_ns=10)
    gpu.api("cudaStreamSynchronize_v3020", -40, 300)
    gpu.api("cudaMemcpy_v3020", 400, 450)
    gpu.api("cudaMemcpyAsync_v3020", 450, 500)
    gpu.api("cudaDeviceSynchronize_v3020", 200, 780, thread=77)
    told = notes(gpu, "launch_starved_ns", convention=PLAIN, kernels="clipped")
    assert [note for note in told if note.startswith("launch-starved")] == [
        "launch-starved for 600 ns, of which 100 ns while the host was in cudaStreamSynchronize",
        "launch-starved for 600 ns, of which 50 ns while the host was in cudaMemcpy",
    ]


# -- after the window


@pytest.mark.parametrize("after", [200, 40 * SECOND])
@pytest.mark.parametrize("kernels", ["contained", "clipped"])
def test_the_kernel_that_waits_may_start_long_after_the_window(gpu: OneProcess, after: int, kernels: str) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 0, 40, launch_ns=-9, launch_length_ns=1)
    gpu.memcpy(70, after, launch_ns=-5)
    gpu.kernel("empty", 110, 110, stream=9, launch_ns=-4, launch_length_ns=1)
    gpu.kernel(NCCL, 110, 120, stream=9, launch_ns=-3, launch_length_ns=1)
    gpu.kernel("gemm", after, after + 100, launch_ns=50, launch_length_ns=5)
    assert parts(gpu, kernels=kernels) == {"launch_starved_ns": 15, "copy": 30, "dependency_stalled_ns": 15}


def test_what_runs_only_after_the_window_blocks_nothing_in_it(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 0, 40, launch_ns=-9, launch_length_ns=1)
    gpu.kernel(NCCL, 150, 180, stream=7, launch_ns=-5, launch_length_ns=1)
    gpu.kernel("gemm", 200, 300, launch_ns=-4, launch_length_ns=1)
    assert parts(gpu) == {"launch_starved_ns": 0, "dependency_stalled_ns": 60}
    assert why_none(gpu, "blocking_comm_ns") == "no communication kernel runs in the window"


def test_launched_windows_count_what_ran_until_the_last_of_their_kernels_ended(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 200, 210, launch_ns=10, launch_length_ns=1)
    gpu.kernel(NCCL, 210, 260, launch_ns=20, launch_length_ns=1)
    gpu.memcpy(262, 265, launch_ns=25)
    gpu.kernel("gemm", 270, 300, launch_ns=30, launch_length_ns=1)
    gpu.kernel("next", 320, 340, launch_ns=130, launch_length_ns=1)
    found = {"launch_starved_ns": 0, "collective": 50, "copy": 3, "dependency_stalled_ns": 7}
    assert parts(gpu, kernels="launched") == found
    assert rows(gpu, "blocking_comm_max_ns", convention=PLAIN, kernels="launched") == {0: 50}


STAGES = ("stage2_f", "stage2_f", "stage4_f", "", "stage4_f", "stage2_f", "stage2_f", "stage2_f")


@pytest.mark.parametrize(("shown", "expected"), [(5, {(0, "stage2_f"): 10}), (3, {})])
def test_steady_has_the_stages_of_its_window(gpu: OneProcess, shown: int, expected: Mapping[object, int]) -> None:
    for i, stage in enumerate(STAGES):
        at, gap = 1_000 * i, {2: 40, 3: 30, 4: 20, 5: 30}.get(i, 20) + (i == 8 - shown)
        gpu.range("step", at, at + 100)
        if stage:
            gpu.range(f"layer00.{stage}", at + 1, at + 8)
            gpu.kernel(NCCL, at + 20, at + 30, launch_ns=at + 2, launch_length_ns=1)
        gpu.kernel("gemm", at, at + 20, launch_ns=at - 9, launch_length_ns=1)
        gpu.kernel("gemm", at + 20 + gap, at + 100, launch_ns=at + 5, launch_length_ns=1)
    assert rows(gpu, "compute_absent_ns", window="steady", kernels="clipped") == {0: 30}
    with captures(gpu) as run:
        table = run.measure_rows(METRICS["blocking_comm_ns"], run.make_spec("steady", None, KernelsMode.CLIPPED))
    assert dict(table.rows) == expected
    none = "the window with the budget that is shown has no such row"
    assert table.missing == (() if expected else (((0, "stage4_f"), none), ((0, "stage2_f"), none)))


def test_steady_windows_add_up_in_the_one_that_is_shown(gpu: OneProcess) -> None:
    for i, gap in enumerate((10, 10, 40, 20, 30, 50, 10, 10)):
        at = 1_000 * i
        gpu.range("step", at, at + 100)
        gpu.kernel("gemm", at, at + 20, launch_ns=at - 9, launch_length_ns=1)
        gpu.memcpy(at + 20, at + 20 + gap // 2, launch_ns=at - 5)
        gpu.kernel("gemm", at + 20 + gap, at + 100, launch_ns=at - 3, launch_length_ns=1)
    assert parts(gpu, "steady") == {"launch_starved_ns": 892, "copy": 15, "dependency_stalled_ns": 23}
    assert rows(gpu, "compute_absent_ns", convention=PLAIN, window="steady") == {0: 930}


# -- who blocks


def test_what_could_not_have_blocked_has_no_row(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 10, 20, launch_ns=2, launch_length_ns=1)
    assert rows(gpu, "blocking_ns", convention=PLAIN) == {(0, "copy"): 0, (0, "memset"): 0}
    for metric in ("blocking_comm_ns", "blocking_comm_max_ns"):
        assert why_none(gpu, metric) == "no communication kernel runs in the window"


def test_communication_that_began_before_the_window_has_a_row_of_its_stage(gpu: OneProcess) -> None:
    gpu.range("step", 50, 100)
    gpu.kernel(NCCL, 0, 80, stream=20, launch_ns=-9, launch_length_ns=1)
    gpu.kernel(NCCL, 10, 20, stream=20, launch_ns=-8, launch_length_ns=1)
    gpu.kernel("gemm", 90, 100, launch_ns=-7, launch_length_ns=1)
    assert rows(gpu, "blocking_comm_ns", convention=PLAIN, kernels="clipped") == {(0, "none"): 0}
    assert rows(gpu, "blocking_comm_max_ns", convention=PLAIN, kernels="clipped") == {0: 30}


def test_compute_of_another_device_blocks_through_an_event(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("first", 0, 10, launch_ns=-9, launch_length_ns=1)
    gpu.kernel("expert", 5, 60, device=1, context=2, launch_ns=-8, launch_length_ns=1)
    gpu.stream_wait(-6, gpu.event_record(-7, context=2))
    gpu.kernel("second", 60, 100, launch_ns=-5, launch_length_ns=1)
    assert rows(gpu, "blocking_ns", convention=PLAIN, kernels="clipped") == {
        **{(rank, kind): 0 for rank in (0, 1) for kind in ("copy", "memset")},
        (0, "other_device"): 50,
        (1, "other_device"): 0,
    }


def test_a_collective_of_another_device_is_none_of_the_rank_s_own(gpu: OneProcess) -> None:
    """The bound of communication is the rank's: what another device communicates is not in it."""
    gpu.range("step", 0, 100)
    gpu.kernel("first", 0, 10, launch_ns=-9, launch_length_ns=1)
    gpu.kernel(NCCL, 5, 60, device=1, context=2, launch_ns=-8, launch_length_ns=1)
    gpu.kernel(NCCL, 12, 20, stream=9, launch_ns=-8, launch_length_ns=1)
    gpu.kernel("expert", 90, 95, device=1, context=2, launch_ns=-4, launch_length_ns=1)
    gpu.stream_wait(-6, gpu.event_record(-7, context=2))
    gpu.kernel("second", 60, 100, launch_ns=-5, launch_length_ns=1)
    found = rows(gpu, "blocking_ns", convention=PLAIN, kernels="clipped")
    assert [found[0, kind] for kind in ("collective", "copy", "memset", "other_device")] == [0, 0, 0, 50]
    assert rows(gpu, "blocking_comm_max_ns", convention=PLAIN, kernels="clipped")[0] == 8


def test_a_copy_that_counts_as_communication_is_a_collective(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 0, 10, launch_ns=-9, launch_length_ns=1)
    gpu.memcpy(10, 40, kind=10, launch_ns=-8)
    gpu.kernel("gemm", 50, 100, launch_ns=-7, launch_length_ns=1)
    assert parts(gpu) == {"launch_starved_ns": 0, "copy": 30, "dependency_stalled_ns": 10}
    peers = replace(PLAIN, copies=(CopyKind.PEER,))
    assert parts(gpu, convention=peers) == {"launch_starved_ns": 0, "collective": 30, "dependency_stalled_ns": 10}


@pytest.mark.parametrize("table", ["MEMCPY", "MEMSET"])
def test_without_copies_nobody_knows_what_blocked(gpu: OneProcess, table: str) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 0, 10, launch_ns=-9, launch_length_ns=1)
    gpu.kernel(NCCL, 10, 40, launch_ns=-8, launch_length_ns=1)
    gpu.kernel("gemm", 50, 100, launch_ns=20, launch_length_ns=1)
    path = Path(gpu)
    execute(path, f"DROP TABLE IF EXISTS CUPTI_ACTIVITY_KIND_{table}")
    execute(path, f"CREATE TABLE CUPTI_ACTIVITY_KIND_{table} (start INT, end INT, correlationId INT, bytes INT)")
    execute(path, f"INSERT INTO CUPTI_ACTIVITY_KIND_{table} VALUES (1, 2, 3, 4)")
    for metric in OF_ALL_WORK:
        assert why_none(path, metric) == "the trace does not say when and where copies and memsets ran"
    assert rows(path, "launch_starved_ns", convention=PLAIN, kernels="clipped") == {0: 11}


# -- what is told


def told(trace: OneProcess | Path) -> list[str]:
    found = notes(trace, "blocking_ns", convention=PLAIN, kernels="clipped")
    return [note for note in found if not any(word in note for word in ("setup label", "one step", "streams"))]


BOUND = "blocked and stalled are bounds: "


def test_without_waits_on_record_both_ends_are_told(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 0, 10, launch_ns=-9, launch_length_ns=1)
    gpu.kernel(NCCL, 5, 40, stream=20, launch_ns=-8, launch_length_ns=1)
    gpu.kernel("gemm", 50, 100, launch_ns=-7, launch_length_ns=1)
    assert told(gpu) == [
        BOUND + "the trace records no stream waits",
        "rank 0: collectives blocked for 0 ns to 30 ns (blocking_comm_max_ns)",
    ]
    assert rows(gpu, "blocking_comm_max_ns", convention=PLAIN, kernels="clipped") == {0: 30}


def test_waits_without_a_record_or_against_time_are_told(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 0, 10, launch_ns=-30, launch_length_ns=1)
    gpu.memcpy(60, 70, stream=20, launch_ns=-20)
    record = gpu.event_record(-12, stream=20)
    gpu.stream_wait(-11, record)
    gpu.stream_wait(-10)
    gpu.kernel("gemm", 50, 100, launch_ns=-9, launch_length_ns=1)
    assert told(gpu) == [
        "no communication kernel in the window",
        BOUND + "1 of 2 stream waits have no event record",
        "1 of 1 gap end before what their kernel waited for began: it blocked nothing",
    ]
    assert parts(gpu) == {"launch_starved_ns": 0, "dependency_stalled_ns": 40}


def test_kernels_of_a_graph_are_told(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    number = gpu.api("cudaGraphLaunch_v10000", -20, -15)
    for node, (start, end) in enumerate(((0, 10), (30, 40), (50, 100))):
        gpu.kernel("gemm", start, end, correlation=number, graph_node=node + 1)
    assert parts(gpu) == {"launch_starved_ns": 0, "dependency_stalled_ns": 30}
    (graph,) = [note for note in told(gpu) if "graph" in note]
    assert graph.startswith("3 of 3 kernels around the windows ran in CUDA graphs")


def test_torch_tells_the_same(tmp_path: Path) -> None:
    trace = KinetoBuilder(rank=None)
    trace.range("step", 0, 100)
    trace.kernel("gemm", 0, 10, launch_ns=-30, launch_length_ns=1)
    trace.kernel(NCCL, 5, 40, stream=20, launch_ns=-20, launch_length_ns=1)
    trace.stream_wait(-11, trace.event_record(-12, stream=20))
    trace.kernel("gemm", 50, 100, launch_ns=-9, launch_length_ns=1)
    path = trace.write(tmp_path / "run.json.gz")
    assert parts(path) == {"launch_starved_ns": 0, "collective": 30, "dependency_stalled_ns": 10}
    assert told(path) == []


# -- what it costs


def test_launches_and_waits_are_read_once_for_all_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = TraceBuilder()
    for rank in range(3):
        gpu = trace.process(pid=100 + rank)
        for at in range(0, 800, 100):
            gpu.range("step", at, at + 100)
            gpu.kernel("gemm", at + 10, at + 20, launch_ns=at + 2, launch_length_ns=1)
            gpu.kernel(NCCL, at + 15, at + 30, stream=9, launch_ns=at + 2, launch_length_ns=1)
    path = trace.write(tmp_path / "a.sqlite")
    asked: list[str] = []
    calls, waits = NsysSqlite.launch_calls, NsysSqlite.stream_waits

    def watched(self: NsysSqlite, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
        asked.append(f"calls of {sum(map(len, kernels.values()))} kernels on {len(kernels)} lanes")
        return calls(self, kernels)

    def waited(self: NsysSqlite) -> object:
        asked.append("waits")
        return waits(self)

    monkeypatch.setattr(NsysSqlite, "launch_calls", watched)
    monkeypatch.setattr(NsysSqlite, "stream_waits", waited)
    with captures(path, convention=PLAIN) as run:
        spec = run.make_spec("steady", None, KernelsMode.CLIPPED)
        for name in ("compute_absent_ns", "device_idle_ns", "wall_exposed_all_ns", "exposed_ns"):
            rows_of(run, name, spec)
        assert asked == ["calls of 24 kernels on 3 lanes"]  # whose stage is looked up there
        for name in ("launch_starved_ns", *OF_ALL_WORK):
            assert {label[0] if isinstance(label, tuple) else label for label in rows_of(run, name, spec)} == {0, 1, 2}
    assert sorted(set(asked)) == sorted(asked)
    assert asked.count("waits") == 1


# What is named

NAMES = ("gemm", "gelu", "ncclDevKernel_AllReduce")
ANY_KERNEL = st.tuples(
    st.sampled_from(NAMES), st.integers(-20, 110), st.integers(1, 30), st.integers(1, 2), st.integers(1, 40)
)


def one_by_one(budget: Budget) -> dict[BudgetPart, list[LaunchDelay]]:
    """What the parts of gaps without a producer lay before, part by part."""
    found: dict[BudgetPart, dict[tuple[str, str], Counter[int]]] = {BudgetPart.STARVED: {}, BudgetPart.STALLED: {}}
    for start, end, part, waiting, by in budget.list_gap_parts():
        if waiting is not None and by is None:
            own = found[BudgetPart.STALLED if part is BudgetPart.BESIDE else part].setdefault(
                (waiting.name, waiting.stage), Counter()
            )
            own[waiting.start_ns] += end - start
    return {
        part: sorted(
            (
                LaunchDelay(part=part.value, waiting=name, stage=stage, ns=own.total(), gaps=len(own))
                for (name, stage), own in each.items()
            ),
            key=lambda one: (-one.ns, one.waiting, one.stage),
        )
        for part, each in found.items()
    }


@given(st.lists(ANY_KERNEL, min_size=1, max_size=12))
def test_what_is_named_is_what_the_gaps_say(some: list[tuple[str, int, int, int, int]]) -> None:
    gpu = TraceBuilder().process()
    gpu.range("step", 0, 100)
    gpu.range("layer00.stage2_f", 10, 50)
    for name, start, length, stream, lead in some:
        gpu.kernel(name, start, start + length, stream=stream, launch_ns=start - lead, launch_length_ns=lead // 2)
    with tempfile.TemporaryDirectory() as folder, captures(gpu.trace.write(Path(folder) / "run.sqlite")) as run:
        for spec in (run.make_spec("median", None, KernelsMode.CLIPPED), run.make_spec("run")):
            for window in run.runs[0].load_windows(spec):
                if not len(window):
                    continue
                budget = measure_budget(window)
                facts, expected = build_budget_facts(budget), one_by_one(budget)
                late = budget.list_delays(BudgetPart.STARVED)
                assert late == expected[BudgetPart.STARVED]
                assert budget.list_delays(BudgetPart.BESIDE, BudgetPart.STALLED) == expected[BudgetPart.STALLED]
                assert sum(one.ns for one in late) + facts.tail_ns == facts.launch_starved_ns
                assert sum(facts.parts.values()) == window.length_ns
                own = {
                    part: budget.list_delays(part)
                    for part in (BudgetPart.STARVED, BudgetPart.BESIDE, BudgetPart.STALLED)
                }
                assert sum(one.ns for each in own.values() for one in each) == sum(
                    one.ns for each in expected.values() for one in each
                )
                assert len(facts.before) == min(MAX_NAMED_ROWS, sum(map(len, own.values())))
                longest = defaultdict(int, {one.part: one.ns for one in reversed(facts.before)})
                for part, each in own.items():
                    assert not each or longest[part.value] in (0, each[0].ns)


def test_a_window_of_no_length_has_no_shares() -> None:
    gpu = TraceBuilder().process()
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 50, 50, launch_ns=10)
    with tempfile.TemporaryDirectory() as folder, captures(gpu.trace.write(Path(folder) / "run.sqlite")) as run:
        (window,) = run.runs[0].load_windows(run.make_spec("run"))
        assert str(measure_rank_budgets({0: [window]})[0]).startswith("the window takes no time")
