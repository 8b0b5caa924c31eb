"""How much memory was allocated on a GPU, and how fast did its SMs run? Worked out by hand, in every format."""

from fractions import Fraction
from pathlib import Path

import pytest

from pytest_nsys.analysis.metrics.throughput import measure_profiler_overhead
from pytest_nsys.core.errors import NoRows, TraceError
from pytest_nsys.core.model import Value
from pytest_nsys.core.workload import Workload
from tests.support.fake_nsys import needs_pyarrow, to_parquet
from tests.support.measure import STEPS, captures, notes, rows, why
from tests.support.one_process import OneProcess
from tests.support.samples.builder import Process
from tests.support.samples.gpu_state import PINNED_MEMORY, allocate, free, sm_clock, torch_memory
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.sql import execute

PEAK, CLOCK = "peak_allocated_bytes", "sm_clock_mhz"
GPU = "NVIDIA H100 80GB HBM3"


def step(gpu: Process | KinetoBuilder) -> None:
    """A step from 100 to 200, whose kernel runs in [120, 140)."""
    gpu.range("step", 100, 200)
    gpu.kernel("gemm", 120, 140, launch_ns=110)


# -- memory of exports


def test_the_peak_is_of_the_run_whatever_the_window(gpu: OneProcess) -> None:
    """Memory that runs out in any step ends the program: the step in the middle says nothing of the others."""
    step(gpu)
    allocate(gpu, 10, 1_000, address=1)
    allocate(gpu, 20, 500, address=2)
    free(gpu, 30, 500, address=2)
    assert rows(gpu, PEAK) == {0: 1_500}
    allocate(gpu, 150, 700, address=3)
    free(gpu, 160, 700, address=3)
    assert rows(gpu, PEAK) == {0: 1_700}
    allocate(gpu, 201, 9_000, address=5)
    assert rows(gpu, PEAK) == rows(gpu, PEAK, window="run") == {0: 10_000}


def test_memory_of_the_host_and_of_other_processes_and_devices_does_not_count(gpu: OneProcess) -> None:
    step(gpu)
    allocate(gpu, 10, 1_000)
    allocate(gpu, 20, 7_000, address=2, memKind=PINNED_MEMORY)
    allocate(gpu, 30, 7_000, address=3, deviceId=1)
    other = gpu.trace.process(pid=101)
    step(other)
    allocate(other, 40, 300)
    assert rows(gpu, PEAK) == {0: 1_000, 1: 300}


def test_kinds_and_operations_are_those_of_the_export_s_own_tables(gpu: OneProcess) -> None:
    step(gpu)
    for number, label in ((2, "Pageable"), (9, "Device")):
        gpu.trace.insert("ENUM_CUDA_MEM_KIND", id=number, name=label, label=label)
    for number, label in ((0, "Deallocation"), (5, "Allocation")):
        gpu.trace.insert("ENUM_CUDA_DEV_MEM_EVENT_OPER", id=number, name=label, label=label)
    allocate(gpu, 10, 700, memKind=9, memoryOperationType=5)
    allocate(gpu, 20, 900, address=2, memoryOperationType=5)
    allocate(gpu, 30, 50, address=3, memKind=9, memoryOperationType=5)
    free(gpu, 40, 50, address=3, memKind=9, memoryOperationType=0)
    assert rows(gpu, PEAK, window="first") == {0: 750}


def test_a_free_takes_off_what_was_allocated_at_its_address(gpu: OneProcess) -> None:
    """Also where its own size is another one, or the free before it is lost."""
    step(gpu)
    allocate(gpu, 10, 1_000, address=1)
    free(gpu, 20, 0, address=1)
    allocate(gpu, 30, 400, address=1)
    allocate(gpu, 40, 1_100, address=1)
    assert rows(gpu, PEAK) == {0: 1_100}


def test_a_free_of_memory_from_before_the_recording_takes_nothing_off_and_is_told(gpu: OneProcess) -> None:
    step(gpu)
    allocate(gpu, 10, 1_000)
    free(gpu, 20, 5_000, address=8)
    free(gpu, 30, 5_000, address=8)
    assert rows(gpu, PEAK) == {0: 1_000}
    told = "rank 0: 2 frees of memory from before the recording: peak_allocated_bytes is a lower bound"
    assert told in notes(gpu, PEAK)
    assert told not in notes(gpu, "window_ns")


def test_without_an_allocation_there_is_no_row(gpu: OneProcess) -> None:
    step(gpu)
    free(gpu, 30, 5_000, address=8)
    assert why(gpu, PEAK) == "no allocation is on record: record from the start of the program"


def test_a_capture_without_memory_events_says_how_to_get_them(gpu: OneProcess) -> None:
    step(gpu)
    assert why(gpu, PEAK) == "the trace does not say what was allocated: capture with --cuda-memory-usage=true"


def test_memory_events_without_a_time_are_no_levels(gpu: OneProcess) -> None:
    step(gpu)
    allocate(gpu, 0, 1_000)
    allocate(gpu, 0, 1_000, address=2)
    assert why(gpu, PEAK) == (
        "the trace does not say what was allocated: all its memory events are at 0 ns, so their times are "
        "unknown: capture with another nsys"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("bytes = -5", "(an allocation of -5 bytes)"),
        ("bytes = 'many'", "('many' is not a whole number)"),
        ("bytes = 1.5", "('1.5' is not a whole number)"),
        ("start = 'soon'", "('soon' is not a whole number)"),
        ("memoryOperationType = 7", "(a memory operation 7, which is neither an allocation nor a free)"),
        ("memKind = x'00'", "is not a whole number)"),
    ],
)
def test_a_damaged_memory_event_is_refused(gpu: OneProcess, change: str, said: str) -> None:
    step(gpu)
    allocate(gpu, 10, 1_000)
    path = Path(gpu)
    execute(path, f"UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET {change}")
    with pytest.raises(TraceError, match="CUDA_GPU_MEMORY_USAGE_EVENTS holds a value that cannot be") as error:
        rows(path, PEAK)
    assert said in str(error.value)
    assert rows(path, "window_ns") == {0: 100}


# -- memory of torch.profiler


@pytest.fixture
def torch() -> KinetoBuilder:
    trace = KinetoBuilder(rank=None)
    step(trace)
    return trace


def peak(torch: KinetoBuilder, folder: Path, window: str = "median") -> object:
    return rows(torch.write(folder / "run.json.gz"), PEAK, window=window)


def test_total_allocated_is_the_level_of_its_device(torch: KinetoBuilder, tmp_path: Path) -> None:
    torch_memory(torch, 10, 4_000, 4_000)
    torch_memory(torch, 20, 1_000, -3_000)
    assert peak(torch, tmp_path) == {0: 4_000}
    torch_memory(torch, 150, 2_500, 1_500)
    torch_memory(torch, 151, 90_000, 80_000, device=1)
    torch_memory(torch, 152, 90_000, 80_000, device=-1, kind=0)
    torch_memory(torch, 153, 90_000, 80_000, device=0, kind=0)
    torch_memory(torch, 160, 1_000, -1_500)
    torch_memory(torch, 201, 7_000, 6_000)
    assert peak(torch, tmp_path) == {0: 7_000}


def test_before_the_first_event_the_level_is_what_that_one_changed(torch: KinetoBuilder, tmp_path: Path) -> None:
    torch_memory(torch, 150, 1_000, -3_000)
    assert peak(torch, tmp_path) == {0: 4_000}
    torch.events.clear()
    step(torch)
    torch_memory(torch, 300, 3_000, -1_000)
    assert peak(torch, tmp_path) == {0: 4_000}


def test_events_stand_in_any_order(torch: KinetoBuilder, tmp_path: Path) -> None:
    torch_memory(torch, 160, 1_000, -1_500)
    torch_memory(torch, 150, 2_500, 1_500)
    assert peak(torch, tmp_path) == {0: 2_500}


def test_a_trace_without_memory_says_how_to_get_it(torch: KinetoBuilder, tmp_path: Path) -> None:
    torch_memory(torch, 150, None, 1_500)  # as versions wrote it that told no total
    torch_memory(torch, 150, 900, 900, device=-1, kind=0)
    path = torch.write(tmp_path / "run.json.gz")
    assert why(path, PEAK) == "the trace does not say what was allocated: profile with profile_memory=True"


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"total": -1, "size": 4}, "has -1 bytes allocated"),
        ({"total": "much", "size": 4}, "says 'much' where a number belongs"),
        ({"total": 4, "size": 1.5}, "says '1.5' where a number belongs"),
        ({"total": 4, "size": 4, "device": "gpu"}, "says 'gpu' where a number belongs"),
    ],
)
def test_a_damaged_event_is_refused(torch: KinetoBuilder, tmp_path: Path, event: dict[str, object], said: str) -> None:
    torch_memory(torch, 150, **event)
    with pytest.raises(TraceError, match=r"run\.json\.gz: a \[memory\] event .*: damaged; profile again") as error:
        peak(torch, tmp_path)
    assert said in str(error.value)


def test_jax_records_neither(tmp_path: Path) -> None:
    trace = JaxBuilder()
    trace.range("step", 100, 200)
    trace.kernel("gemm", 120, 140, launch_ns=110)
    path = trace.write(tmp_path / "host.trace.json.gz")
    assert why(path, PEAK) == "the trace does not say what was allocated: a trace of JAX has no record of memory"
    assert why(path, CLOCK) == "the trace has no samples of the clock: a trace of JAX has no record of clocks"


# -- the clock of the SMs


@pytest.fixture
def clocked(gpu: OneProcess) -> OneProcess:
    """A process that knows the second of two GPUs as its first."""
    gpu.trace.gpu(GPU)
    gpu.trace.gpu(GPU, process=gpu)
    step(gpu)
    return gpu


def test_the_median_of_the_samples_in_the_window_of_the_rank_s_own_gpu(clocked: OneProcess) -> None:
    sm_clock(clocked.trace, (150, 345_000_000))
    sm_clock(clocked.trace, (99, 1), (100, 1_980_000_000), (150, 1_200_000_000), (200, 1_650_000_000), (201, 1), gpu=1)
    assert rows(clocked, CLOCK) == {0: 1_650}
    assert rows(clocked, CLOCK, window="100:150") == {0: 1_590}
    assert rows(clocked, CLOCK, kernels="launched", window="110:111") == {}


def test_a_clock_is_in_hz_whatever_its_name_says_and_exact(clocked: OneProcess) -> None:
    sm_clock(clocked.trace, (150, 1_234_567_891), gpu=1)
    assert rows(clocked, CLOCK) == {0: Fraction(1_234_567_891, 1_000_000)}


def test_a_clock_that_is_in_mhz_is_read_so(clocked: OneProcess) -> None:
    sm_clock(clocked.trace, (150, 1410.5), gpu=1)
    assert rows(clocked, CLOCK) == {0: Fraction(2_821, 2)}


def test_a_gpu_that_sleeps_has_no_clock(clocked: OneProcess) -> None:
    sm_clock(clocked.trace, (150, 0), (160, 0), (170, 900_000_000), gpu=1)
    assert rows(clocked, CLOCK) == {0: 900}
    assert why(clocked, CLOCK, window="115:165") == (
        "no sample of the clock lies in the window: sample more often (--gpu-metrics-frequency)"
    )


def test_the_clock_of_the_sms_is_taken_before_that_of_their_gpc_and_no_other(clocked: OneProcess) -> None:
    sm_clock(clocked.trace, (150, 300_000_000), gpu=1, name="SYS Clock Frequency [MHz]")
    assert why(clocked, CLOCK) == "the trace has no samples of the clock: capture with --gpu-metrics-devices=all"
    for metric, name in ((30, "SM Clock Frequency [MHz]"), (20, "gpc clock frequency")):
        place = {"typeId": 0x1_0001_0000_0001, "metricId": metric}
        clocked.trace.insert("TARGET_INFO_GPU_METRICS", **place, metricName=name)
        clocked.trace.insert("GPU_METRICS", timestamp=150, value=10_000_000 * metric, **place)
    assert rows(clocked, CLOCK) == {0: 300}


def test_samples_of_nobody_knows_which_gpu_are_of_none(gpu: OneProcess) -> None:
    step(gpu)
    sm_clock(gpu.trace, (150, 1_980_000_000))
    assert why(gpu, CLOCK) == (
        "the trace has no samples of the clock: its tables do not say which GPU the samples of the clock are of: "
        "export it with a newer nsys"
    )


def test_torch_samples_no_clock(torch: KinetoBuilder, tmp_path: Path) -> None:
    assert why(torch.write(tmp_path / "run.json.gz"), CLOCK) == (
        "the trace has no samples of the clock: torch.profiler samples no clocks: capture with nsys and "
        "--gpu-metrics-devices=all"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("value = 'fast'", "('fast' is not a clock)"),
        ("value = -1", "('-1' is not a clock)"),
        ("value = NULL", "('None' is not a clock)"),
        ("value = 9e999", "('inf' is not a clock)"),
        ("timestamp = 'soon'", "('soon' is not a whole number)"),
        ("typeId = 'H100'", "('H100' is not a whole number)"),
    ],
)
def test_a_damaged_sample_is_refused(clocked: OneProcess, change: str, said: str) -> None:
    sm_clock(clocked.trace, (150, 1_980_000_000), gpu=1)
    path = Path(clocked)
    execute(path, f"UPDATE GPU_METRICS SET {change}")
    with pytest.raises(TraceError, match="GPU_METRICS holds a value that cannot be") as error:
        rows(path, CLOCK)
    assert said in str(error.value)


@needs_pyarrow
def test_a_folder_of_parquet_files_says_the_same(clocked: OneProcess, tmp_path: Path) -> None:
    allocate(clocked, 10, 1_000)
    sm_clock(clocked.trace, (150, 1_980_000_000), gpu=1)
    folder = to_parquet(Path(clocked), tmp_path / "run_pqtdir")
    assert (rows(folder, PEAK), rows(folder, CLOCK)) == ({0: 1_000}, {0: 1_980})


# -- what the profiler costs


def overhead(gpu: OneProcess, workload: Workload, window: str = "median") -> Value:
    """The longest period over the step time without the profiler, minus 1."""
    with captures(gpu, convention=STEPS, workload=workload) as run:
        return measure_profiler_overhead(run.runs[0].load_windows(run.make_spec(window)).list_run_windows()[0])


def periods(gpu: Process, *lengths_ns: int) -> None:
    at = 0
    for length in (*lengths_ns, 10):
        gpu.range("step", at, at + 10)
        gpu.kernel("gemm", at + 1, at + 2, launch_ns=at)
        at += length


@pytest.mark.parametrize(
    ("without_ns", "expected"), [(1_426, Fraction(259, 1_426)), (1_685, 0), (2_000, Fraction(-63, 400))]
)
def test_overhead_is_the_profiled_period_by_the_step_time(gpu: OneProcess, without_ns: int, expected: Fraction) -> None:
    periods(gpu, 1_600, 1_685, 1_685, 1_700)
    assert overhead(gpu, Workload(step_time_ns=without_ns)) == expected


def test_the_slowest_rank_s_period_counts_and_it_is_one_that_occurred(gpu: OneProcess) -> None:
    periods(gpu, 100, 100, 100, 100, 100)
    periods(gpu.trace.process(pid=101), 100, 110, 110, 120, 130)
    assert overhead(gpu, Workload(step_time_ns=100)) == Fraction(1, 10)


def test_a_window_of_several_steps_is_divided_by_their_number(gpu: OneProcess) -> None:
    periods(gpu, 100, 100)
    assert overhead(gpu, Workload(steps=2, step_time_ns=100), "0:220") == Fraction(1, 10)


def test_without_a_step_time_there_is_no_overhead(gpu: OneProcess) -> None:
    periods(gpu, 100, 100)
    with pytest.raises(NoRows, match="no unprofiled step time is given: state workload: "):
        overhead(gpu, Workload())
