"""Are the numbers right where published tools give wrong ones? One test for each case that broke them."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.errors import NothingMeasured
from tests.support.measure import SETUP, notes, rows, windows
from tests.support.one_process import OneProcess
from tests.support.samples import schema
from tests.support.samples.builder import DOMAIN_CREATE, MARK, TraceBuilder
from tests.support.samples.versions import VERSIONS, schema_of

NCCL = "ncclDevKernel_SendRecv"


def test_window_without_kernel_is_an_error_and_without_communication_no_data(gpu: OneProcess) -> None:
    gpu.range("step 0", 100, 200)
    gpu.kernel("gemm", 120, 160, launch_ns=110)
    gpu.kernel(NCCL, 160, 170, launch_ns=111)  # a barrier: it shares the stream
    gpu.range("step 1", 300, 400)

    with pytest.raises(NothingMeasured, match=r"'step 1' .* holds no kernel"):
        rows(gpu, "exposed_ns")
    for metric in ("exposed_ns", "overlap", "wall_exposed_ns", "wall_overlap"):
        assert rows(gpu, metric, window="first") == {}
    assert rows(gpu, "barrier_ns", window="first") == {0: 10}


def test_equal_starts_have_a_stable_median(tmp_path: Path) -> None:
    def write(name: str, *anchors: tuple[int, int]) -> Path:
        gpu = TraceBuilder().process()
        gpu.kernel("gemm", 0, 500, launch_ns=0)
        for start, end in anchors:
            gpu.range("step", start, end)
        return gpu.trace.write(tmp_path / name)

    (tied,) = windows(write("tied.sqlite", (10, 90), (10, 60), (10, 30)))
    (turned,) = windows(write("turned.sqlite", (10, 30), (10, 60), (10, 90)))
    assert (tied.index, tied.end_ns) == (1, 60)
    assert turned == tied


def test_stage_is_found_behind_more_than_256_younger_ranges(gpu: OneProcess) -> None:
    gpu.range("step", 0, 1_000)
    gpu.range("layer00_stage2_f", 10, 990)
    for i in range(300):
        gpu.range("layer01_stage1_f", 20 + i, 21 + i)
    gpu.kernel(NCCL, 910, 940, launch_ns=900, stream=28)

    assert rows(gpu, "comm_ns") == {(0, "stage2_f"): 30}


def test_shorter_range_of_another_thread_wins_and_its_share_is_told(gpu: OneProcess) -> None:
    gpu.range("step", 0, 1_000)
    gpu.range("layer00_stage2_f", 100, 900)
    gpu.range("layer00_stage4_b", 400, 600, thread=2)
    gpu.kernel(NCCL, 210, 220, launch_ns=200, stream=28)
    gpu.kernel(NCCL, 510, 540, launch_ns=500, stream=28)  # claimed by both threads
    gpu.kernel(NCCL, 710, 720, launch_ns=700, stream=28)
    assert rows(gpu, "comm_ns") == {(0, "stage2_f"): 20, (0, "stage4_b"): 30}
    told = "33.3% of 3 launches lie inside ranges of two threads: the shorter range was taken"
    assert told in notes(gpu, "comm_ns")


def test_stage_is_found_around_operator_ranges(gpu: OneProcess) -> None:
    gpu.range("step", 0, 1_000)
    gpu.range("layer05_stage5_f_layer06_stage1_f", 100, 500)
    gpu.range("aten::linear, seq = 7", 150, 300)
    gpu.range("nccl:all_to_all stage4_b", 180, 290)  # NCCL's own range says nothing, whatever it is called
    gpu.range("aten::mm", 190, 280)
    gpu.kernel(NCCL, 250, 260, launch_ns=200, stream=28)

    assert rows(gpu, "comm_ns") == {(0, "stage1_f"): 10}


def test_setup_label_is_found_by_its_grammar(tmp_path: Path) -> None:
    gpu = TraceBuilder().process(thread=1)
    label = SETUP.format(1, 1)
    gpu.range(SETUP.format(0, 0), 1, None, event_type=DOMAIN_CREATE)  # a domain that is called like a label
    gpu.range(SETUP.format(0, 0), 2, None, event_type=MARK)
    gpu.range("dataloader", 3, 900, thread=9)
    gpu.range("a tie", 5, 6, thread=8)
    gpu.range(label, 5, 6, registered=True)
    gpu.range("not a label: " + label, 5, 6)
    gpu.range("step", 100, 200)
    gpu.kernel("gemm", 120, 130, launch_ns=110)
    path = gpu.trace.write(tmp_path / "trace.sqlite")

    assert rows(path, "compute_ns") == {1: 10}


def test_same_pid_on_two_nodes_or_two_hardware_ids_is_two_ranks(tmp_path: Path) -> None:
    def gpu(trace: TraceBuilder, length: int, rank: int | None = None, hardware_id: int = 1) -> None:
        process = trace.process(pid=100, hardware_id=hardware_id)
        if rank is not None:
            process.range(SETUP.format(rank, rank), 1, 2)
        process.range("step", 100, 200)
        process.kernel("gemm", 120, 120 + length, launch_ns=110)

    nodes = tmp_path / "nodes"
    nodes.mkdir()
    for rank in (0, 1):
        node = TraceBuilder()
        gpu(node, 10 + rank, rank)
        node.write(nodes / f"node{rank}.sqlite")
    assert rows(nodes, "compute_ns") == {0: 10, 1: 11}

    one_file = TraceBuilder()
    gpu(one_file, 10, hardware_id=1)
    gpu(one_file, 11, hardware_id=2)
    assert rows(one_file.write(tmp_path / "one.sqlite"), "compute_ns") == {0: 10, 1: 11}


def test_shared_and_repeated_correlations_give_one_launch_per_kernel(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for pid, stage in ((100, "stage2_f"), (101, "stage4_f")):
        gpu = trace.process(pid=pid)
        gpu.range("step", 0, 1_000)
        gpu.range(f"layer00_{stage}", 100, 200)
        gpu.range("layer00_stage1_b", 201, 300)
        gpu.kernel(NCCL, 310, 330, launch_ns=150, stream=28, correlation=7)
        gpu.api("cuLaunchKernelEx", 250, 260, event_class=1, correlation=7)
        gpu.api("cudaLaunchKernel_v7000", 150, 160, event_class=67, correlation=7)
        gpu.api("cudaLaunchKernel_v7000", 220, 230, event_class=67, correlation=7)
    path = trace.write(tmp_path / "trace.sqlite")

    for mode in ("contained", "launched"):
        assert rows(path, "launches", kernels=mode) == {(0, "stage2_f"): 1, (1, "stage4_f"): 1}
        assert rows(path, "comm_ns", kernels=mode) == {(0, "stage2_f"): 20, (1, "stage4_f"): 20}


@pytest.mark.parametrize(("device", "context"), [(0, 2), (1, 1)])
def test_stream_number_shared_by_contexts_or_devices_is_two_streams(gpu: OneProcess, device: int, context: int) -> None:
    gpu.range(SETUP.format(0, 0), 1, 2)  # one rank, also over two devices
    gpu.range("step", 100, 900)
    gpu.range("layer00_stage2_f", 100, 300)
    gpu.kernel("gemm", 310, 340, launch_ns=110, stream=7, device=0, context=1)
    gpu.kernel(NCCL, 330, 350, launch_ns=120, stream=7, device=device, context=context)

    assert rows(gpu, "comm_streams")[0, "ep_a2a"] == 1
    assert rows(gpu, "exposed_ns") == {(0, "stage2_f"): 10}
    assert rows(gpu, "barrier_ns") == {0: 0}


@pytest.mark.parametrize("name", ["NCCLxKernel", "Ncclkernel", "ampere_nccl_like"])
def test_only_nccl_in_lower_case_communicates(gpu: OneProcess, name: str) -> None:
    gpu.range("step", 100, 900)
    gpu.range("layer00_stage2_f", 100, 300)
    gpu.kernel(name, 310, 340, launch_ns=110, stream=28)

    assert rows(gpu, "compute_ns") == {0: 30}
    assert set(rows(gpu, "comm_streams").values()) == {0}
    assert rows(gpu, "comm_ns") == {}


def test_concurrent_communication_is_summed_by_exposed_and_counted_once_by_wall(gpu: OneProcess) -> None:
    gpu.range("step", 0, 900)
    gpu.range("layer00_stage2_f", 10, 300)
    gpu.kernel("gemm", 400, 450, launch_ns=20, stream=7)
    gpu.kernel(NCCL, 420, 500, launch_ns=30, stream=28)
    gpu.kernel(NCCL, 420, 480, launch_ns=40, stream=32)

    assert rows(gpu, "exposed_ns") == {(0, "stage2_f"): 50 + 30}
    assert rows(gpu, "wall_exposed_ns") == {0: 50}


def test_communication_of_no_length_gives_no_row_and_no_division(gpu: OneProcess) -> None:
    stages = ("comm_ns", "exposed_ns", "overlap", "overlap_min", "overlap_max")
    gpu.range("step", 0, 900)
    gpu.range("layer00_stage2_f", 10, 100)
    gpu.range("layer00_stage4_f", 110, 200)
    gpu.kernel("gemm", 400, 450, launch_ns=20)
    gpu.kernel(NCCL, 440, 440, launch_ns=120, stream=32)  # all that stage4_f communicates
    for metric in (*stages, "wall_exposed_ns", "wall_overlap", "wall_exposed_all_ns", "wall_overlap_all"):
        assert rows(gpu, metric) == {}, metric
    gpu.kernel(NCCL, 430, 430, launch_ns=30, stream=28)
    gpu.kernel(NCCL, 440, 460, launch_ns=40, stream=28)
    for metric in stages:
        assert rows(gpu, metric).keys() == {(0, "stage2_f")}, metric
    assert rows(gpu, "overlap_min") == rows(gpu, "overlap_max")
    assert rows(gpu, "launches") == {(0, "stage2_f"): 3, (0, "stage4_f"): 1}


def test_kernels_of_a_cuda_graph_count_once_under_the_stage_of_its_launch(gpu: OneProcess) -> None:
    gpu.range("step", 0, 900)
    gpu.range("layer00_stage2_f", 10, 100)
    gpu.range("layer00_stage3_f", 300, 600)
    graph = gpu.kernel("gemm", 310, 350, launch_ns=50, graph_node=1)
    gpu.kernel("gemm", 360, 400, correlation=graph, graph_node=2)
    gpu.kernel(NCCL, 390, 420, correlation=graph, graph_node=3, stream=28)

    for mode in ("contained", "launched"):
        assert rows(gpu, "launches", kernels=mode) == {(0, "stage2_f"): 3}
        assert rows(gpu, "exposed_ns", kernels=mode) == {(0, "stage2_f"): 20}
        said = notes(gpu, "launches", kernels=mode)
        (told,) = [text for text in said if "CUDA graph" in text]
        assert told.startswith("3 of 3 kernels around the windows ran in CUDA graphs: one launch starts many")


def test_every_schema_version_gives_the_same_numbers(tmp_path: Path) -> None:
    def figures(version: str) -> dict[str, object]:
        trace = TraceBuilder(schema_of(version))
        gpu = trace.process()
        gpu.range(SETUP.format(1, 1), 1, 2)
        for i in range(5):
            at = 1_000 * i
            gpu.range(f"step {i}", at + 100, at + 900, registered=bool(i % 2))
            gpu.range("layer00_stage2_f", at + 110, at + 300, registered=bool(i % 2))
            gpu.kernel("gemm", at + 320, at + 350 + i, launch_ns=at + 120)
            gpu.kernel(NCCL, at + 340, at + 380, launch_ns=at + 130, stream=28, launch_class=1)
            gpu.api("cudaDeviceSynchronize_v3020", at + 400, at + 500)
        path = trace.write(tmp_path / f"{version}.sqlite")
        return {name: rows(path, name) for name in METRICS}

    each = {version: figures(version) for version in VERSIONS}
    assert each["3.25"]["exposed_ns"] == {(1, "stage2_f"): 28}
    for version, numbers in each.items():
        assert numbers == each["3.25"], version


def test_table_that_is_not_there_is_done_without_or_named(tmp_path: Path) -> None:
    gpu = TraceBuilder().process()
    gpu.kernel("gemm", 120, 150, launch=False)
    no_ranges = gpu.trace.write(tmp_path / "no_ranges.sqlite")  # neither NVTX_EVENTS nor RUNTIME
    gpu.range("step", 100, 200)
    no_launches = gpu.trace.write(tmp_path / "no_launches.sqlite")

    assert rows(no_ranges, "compute_ns", window="run") == {0: 30}
    with pytest.raises(NothingMeasured, match="the trace holds no ranges at all"):
        rows(no_ranges, "compute_ns")
    assert rows(no_launches, "compute_ns") == {0: 30}
    assert rows(no_launches, "syncs") == {}
    with pytest.raises(NothingMeasured, match=r"100% of 1 kernels have no launch row"):
        rows(no_launches, "compute_ns", kernels="launched")


def test_columns_that_users_add_break_nothing(gpu: OneProcess) -> None:
    gpu.range("step", 100, 900)
    gpu.range("layer00_stage2_f", 110, 300)
    gpu.kernel(NCCL, 340, 380, launch_ns=130, stream=28)
    path = Path(gpu)
    with closing(sqlite3.connect(path)) as database:
        for table in (schema.KERNEL, schema.RUNTIME, schema.NVTX, schema.STRINGS):
            # In front, behind, and named like something of SQL: an import of a user's may have left any of them.
            columns = ", ".join(f'"{row[1]}"' for row in database.execute(f"PRAGMA table_info({table})"))
            database.execute(f"CREATE TABLE copy AS SELECT 'mine' AS \"LIKE\", {columns}, 3.5 AS note FROM {table}")
            database.execute(f"DROP TABLE {table}")
            database.execute(f"ALTER TABLE copy RENAME TO {table}")
        database.commit()

    assert rows(path, "exposed_ns") == {(0, "stage2_f"): 40}
    assert rows(path, "exposed_ns", kernels="launched") == {(0, "stage2_f"): 40}


def test_negative_ids_and_times(tmp_path: Path) -> None:
    gpu = TraceBuilder().process(hardware_id=0xC8)
    assert gpu.global_pid < 0
    gpu.range("step before the profiler", -500, 5_000)  # not used: else it were the second anchor, and the median
    gpu.range("layer00_stage4_f", -10, 150)
    gpu.range("step", 0, 900)
    gpu.range("layer00_stage2_f", 0, 900)
    gpu.kernel("gemm", -90, -40, launch_ns=-100)
    gpu.kernel(NCCL, 340, 380, launch_ns=130, stream=28)
    path = gpu.trace.write(tmp_path / "trace.sqlite")

    (window,) = windows(path)
    assert (window.start_ns, window.count) == (0, 1)
    for mode in ("contained", "clipped", "launched"):
        assert rows(path, "comm_ns", kernels=mode) == {(0, "stage2_f"): 40}
    assert rows(path, "compute_ns", window="run") == {0: 50}
    assert rows(path, "comm_ns", window="-100:500") == {(0, "stage2_f"): 40}
