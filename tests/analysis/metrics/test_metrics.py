"""Is each metric what it is defined to be? One small timeline a metric, with numbers that were worked out by hand."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from pytest_nsys.analysis.explain.causes import RowExplainer
from pytest_nsys.analysis.metrics.registry import METRICS, Better, Metric, MetricScope
from pytest_nsys.analysis.metrics.structure import make_fingerprint, sequence
from pytest_nsys.analysis.metrics.throughput import Deviation, measure_deviation
from pytest_nsys.core.exact import percentile
from pytest_nsys.core.families import FAMILIES, list_zero_families
from pytest_nsys.core.model import Value
from pytest_nsys.core.units import BANDWIDTH, MEGAHERTZ, SAMPLE_RATE, TIME, TOKEN_RATE
from tests.support.measure import OF_SIZES, OF_THE_GPU, STEP, STEPS, captures, notes, rows
from tests.support.one_process import OneProcess
from tests.support.samples.builder import TraceBuilder

NCCL = "ncclDevKernel_SendRecv"


@pytest.fixture
def timeline(gpu: OneProcess) -> OneProcess:
    """One step of two stages:

    ==========  ==================  ====================
    stream 7    gemm [100, 140)     gelu [160, 200), then a barrier [200, 230)
    stream 28   all-to-all of stage2_f [120, 180) and [300, 310)
    stream 32   all-to-all of stage4_f [170, 210), without a stage [250, 270)
    ==========  ==================  ====================
    """
    gpu.range("step", 0, 400)
    gpu.range("layer00_stage2_f", 10, 20)
    gpu.range("layer00_stage4_f", 30, 40)
    gpu.kernel("gemm", 100, 140, launch_ns=12, stream=7)
    gpu.kernel("gelu", 160, 200, launch_ns=32, stream=7, launch_length_ns=100)
    gpu.kernel("ncclDevKernel_AllReduce", 200, 230, launch_ns=60, stream=7)
    gpu.kernel(NCCL, 120, 180, launch_ns=13, stream=28)
    gpu.kernel(NCCL, 300, 310, launch_ns=14, stream=28)
    gpu.kernel(NCCL, 170, 210, launch_ns=33, stream=32)
    gpu.kernel(NCCL, 250, 270, launch_ns=70, stream=32)
    gpu.api("cudaStreamSynchronize_v3020", 80, 90)
    return gpu


STAGES = ("none", "stage2_f", "stage4_f")
SPEEDS = (BANDWIDTH, SAMPLE_RATE, TOKEN_RATE, MEGAHERTZ)
ZEROS: dict[object, Value] = {(0, purpose): 0 for purpose in STEP.purpose_names}

# stream 28 is exposed in [140, 160) and [300, 310), stream 32 in [200, 210) and [250, 270).
EXPECTED: dict[str, dict[object, Value]] = {
    "comm_ns": {(0, "none"): 20, (0, "stage2_f"): 70, (0, "stage4_f"): 40},
    "exposed_ns": {(0, "none"): 20, (0, "stage2_f"): 30, (0, "stage4_f"): 10},
    "overlap": {(0, "none"): 0, (0, "stage2_f"): Fraction(4, 7), (0, "stage4_f"): Fraction(3, 4)},
    "overlap_min": {(0, "none"): 0, (0, "stage2_f"): 0, (0, "stage4_f"): Fraction(3, 4)},
    "overlap_max": {(0, "none"): 0, (0, "stage2_f"): Fraction(2, 3), (0, "stage4_f"): Fraction(3, 4)},
    "barrier_ns": {0: 30},
    "compute_ns": {0: 80},
    "wall_exposed_ns": {0: 20 + 10 + 20 + 10},
    "wall_overlap": {0: Fraction(60, 120)},  # of [120, 210), [250, 270) and [300, 310)
    "wall_exposed_all_ns": {0: 20 + 30 + 20 + 10},
    "wall_overlap_all": {0: Fraction(60, 140)},  # of [120, 230), [250, 270) and [300, 310)
    "idle_ns": {0: 400 - 160},
    "window_ns": {0: 400},
    "device_idle_ns": {0: 400 - 160},
    "compute_absent_ns": {0: 400 - 80},
    "comm_alone_ns": {0: 20 + 30 + 20 + 10},
    "between_steps_ns": {},  # no step comes after it
    "launch_starved_ns": {0: 100 + 200},  # gemm is launched until 3 012, gelu until 132, and after 200 nothing is
    "blocking_ns": {(0, "collective"): 0, (0, "copy"): 0, (0, "memset"): 0},
    "dependency_stalled_ns": {0: 20},
    "blocking_comm_ns": {(0, "none"): 0, (0, "stage2_f"): 0, (0, "stage4_f"): 0},
    "blocking_comm_max_ns": {0: 20},
    "overlap_tax_ns": {},  # neither gemm nor gelu ever ran alone
    "comm_streams": {**ZEROS, (0, "ep_a2a"): 1, (0, "mixed"): 1},
    "period_ns": {},  # a single anchor has none
    "anchors": {0: 1},
    "overlap_score": {},  # nobody states the stages
    "serialization": {},
    "pipeline_stage_ns": {},
    "share": {},
    "launches": {(0, "none"): 2, (0, "stage2_f"): 3, (0, "stage4_f"): 2},
    "syncs": {0: 1},
    "kernel_launches": {
        (0, "none", "ncclDevKernel_AllReduce"): 1,
        (0, "none", NCCL): 1,
        (0, "stage2_f", "gemm"): 1,
        (0, "stage2_f", NCCL): 2,
        (0, "stage4_f", "gelu"): 1,
        (0, "stage4_f", NCCL): 1,
    },
    "kernel_share": {
        "ncclDevKernel_AllReduce": Fraction(30, 240),
        NCCL: Fraction(60 + 10 + 40 + 20, 240),
        "gemm": Fraction(40, 240),
        "gelu": Fraction(40, 240),
    },
    "sequence": {
        (0, "none", 7): make_fingerprint(["ncclDevKernel_AllReduce"]),
        (0, "none", 32): make_fingerprint([NCCL]),
        (0, "stage2_f", 7): make_fingerprint(["gemm"]),
        (0, "stage2_f", 28): make_fingerprint([NCCL, NCCL]),
        (0, "stage4_f", 7): make_fingerprint(["gelu"]),
        (0, "stage4_f", 32): make_fingerprint([NCCL]),
    },
    "compute_on_comm_streams": {(0, 28): 0, (0, 32): 0},
    "pageable_copies": {0: 0},
    "family_ns": {**dict.fromkeys(list_zero_families(FAMILIES), 0), "gemm": 40, "elementwise": 40, "nccl": 160},
    "total_kernel_ns": {(): 240},
    "step_minus_kernel_ns": {(): 400 - 240},
    "collective_time_ns": {(0, "unknown", "AllReduce"): 30, (0, "unknown", "SendRecv"): 60 + 10 + 40 + 20},
    **{metric: {} for metric in OF_SIZES if metric in METRICS},  # no kernel has a record of its size
    **{metric: {} for metric in OF_THE_GPU},  # nothing is recorded of it
    "step_time_ns": {(): 400},
    "samples_per_s": {},
    "tokens_per_s": {},
}


@pytest.mark.parametrize("metric", METRICS)
def test_metric(timeline: OneProcess, metric: str) -> None:
    assert metric in EXPECTED, f"{metric}: work its rows out by hand, and add them to EXPECTED"
    assert rows(timeline, metric, convention=STEPS) == EXPECTED[metric]


def test_every_number_above_is_of_a_metric() -> None:
    assert EXPECTED.keys() == METRICS.keys()


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_what_an_entry_names_is_there(metric: Metric) -> None:
    module, name = metric.import_path.split(":")
    assert metric.name == name
    assert metric.function.__module__ == f"pytest_nsys.analysis.{module}"
    assert callable(metric.notes_function) == bool(metric.notes_path)
    assert isinstance(metric.parts, RowExplainer) == bool(metric.parts_path)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_metric_says_of_itself_what_users_must_know(metric: Metric) -> None:
    assert metric.summary.endswith(".")
    assert metric.scope is MetricScope.RUN or metric.dimensions[0] == "rank"
    assert (metric.unit == TIME) == metric.name.endswith("_ns")
    good = "overlap" in metric.name or metric.unit in SPEEDS
    assert good or metric.better is not Better.HIGHER


SHADOWED = {"wall", "device", "blocking", "kernel", "compute_on"}
"""What stands before another metric's name in that of a metric, as does a kernel in ``gelu launches``."""


def test_a_new_name_takes_no_sentence_of_another_metric() -> None:
    before = {name.removesuffix(f"_{other}") for name in METRICS for other in METRICS if name.endswith(f"_{other}")}
    assert before == SHADOWED, "sentences that select a kernel or stage of that name mean another metric: rename it"


def test_values_are_integers_and_exact_fractions(timeline: OneProcess) -> None:
    for metric in METRICS:
        for value in rows(timeline, metric).values():
            assert type(value) is int or (isinstance(value, Fraction) and value.denominator > 1), metric


# -- steady


def steady_steps(tmp_path: Path, *exposed: int) -> Path:
    """Steps of 100 ns in which the communication of stage2_f is exposed for so long; 0: it is not there."""
    gpu = TraceBuilder().process()
    for i, length in enumerate(exposed):
        at = 100 * i
        gpu.range("step", at, at + 90)
        gpu.range("layer00_stage2_f", at + 1, at + 9)
        gpu.kernel("gemm", at + 10, at + 20, launch_ns=at + 2)
        if length:
            gpu.kernel(NCCL, at + 20, at + 20 + length, launch_ns=at + 3, stream=28)
    return gpu.trace.write(tmp_path / "trace.sqlite")


def test_steady_value_is_the_exact_median_over_the_windows(tmp_path: Path) -> None:
    path = steady_steps(tmp_path, 50, 50, 10, 5, 8, 31, 50, 50)  # steady: 10, 5, 8, 31
    assert rows(path, "exposed_ns", window="steady") == {(0, "stage2_f"): 9}
    path = steady_steps(tmp_path, 50, 50, 10, 5, 11, 31, 50, 50)
    assert rows(path, "exposed_ns", window="steady") == {(0, "stage2_f"): Fraction(21, 2)}


def test_row_that_one_steady_window_lacks_is_missing_and_never_a_median_of_the_rest(tmp_path: Path) -> None:
    path = steady_steps(tmp_path, 50, 50, 10, 0, 8, 31, 50, 50)
    with captures(path) as run:
        measured = run.measure_rows(METRICS["exposed_ns"], run.make_spec("steady"))
    assert measured.rows == ()
    assert measured.missing == (((0, "stage2_f"), "only 3 of 4 windows have this row"),)


def test_row_that_one_capture_lacks_is_missing(tmp_path: Path) -> None:
    paths = []
    for i, exposed in enumerate((10, 0, 30)):
        folder = tmp_path / str(i)
        folder.mkdir()
        paths.append(steady_steps(folder, exposed))
    with captures(*paths) as run:
        measured = run.measure_rows(METRICS["exposed_ns"], run.make_spec("median"))
        assert (measured.rows, len(measured.missing)) == ((), 1)
    with captures(paths[0], paths[2]) as run:
        measured = run.measure_rows(METRICS["exposed_ns"], run.make_spec("median"))
        assert [(row.labels, row.value) for row in measured.rows] == [((0, "stage2_f"), 20)]


# -- overlap tax


@pytest.fixture
def taxed(gpu: OneProcess) -> OneProcess:
    """gemm takes 10, 20 and 12 ns alone, 50 and 30 under communication; gelu never runs alone."""
    gpu.range("step", 0, 400)
    gpu.range("layer00_stage2_f", 10, 20)
    for start, end in ((100, 110), (120, 140), (160, 172)):
        gpu.kernel("gemm", start, end, launch_ns=30)
    gpu.kernel("gemm", 200, 250, launch_ns=12)
    gpu.kernel("gelu", 260, 280, launch_ns=12)
    gpu.kernel(NCCL, 240, 270, launch_ns=12, stream=28)
    gpu.kernel("gemm", 300, 330, launch_ns=31)
    gpu.kernel(NCCL, 329, 340, launch_ns=31, stream=28)
    return gpu


def test_overlap_tax_is_the_length_over_the_median_alone(taxed: OneProcess) -> None:
    assert rows(taxed, "overlap_tax_ns") == {(0, "none"): 30 - 12, (0, "stage2_f"): 50 - 12}


def test_overlap_tax_tells_the_share_of_kernels_without_a_sample_alone(taxed: OneProcess) -> None:
    told = "overlap_tax_ns leaves out 33.3% of 3 compute kernels under communication"
    assert any(note.startswith(told) for note in notes(taxed, "overlap_tax_ns"))
    assert not any("overlap_tax_ns" in note for note in notes(taxed, "compute_ns"))


def test_barrier_is_communication_to_a_kernel_of_another_stream(gpu: OneProcess) -> None:
    gpu.range("step", 0, 400)
    gpu.kernel("gemm", 100, 110, launch_ns=10)
    gpu.kernel("gemm", 200, 240, launch_ns=10)
    gpu.kernel("gelu", 150, 160, launch_ns=10, stream=8)
    gpu.kernel(NCCL, 230, 260, launch_ns=10, stream=8)
    assert rows(gpu, "barrier_ns") == {0: 30}
    assert rows(gpu, "overlap_tax_ns") == {(0, "none"): 40 - 10}


def test_overlap_tax_takes_its_samples_from_the_whole_run(taxed: OneProcess) -> None:
    assert rows(taxed, "overlap_tax_ns", window="195:290") == {(0, "stage2_f"): 50 - 12}
    assert rows(taxed, "overlap_tax_ns", window="195:290", kernels="clipped") == {(0, "stage2_f"): 50 - 12}
    # A kernel that the window cuts is taxed for its whole length, as long as it is overlapped inside.
    assert rows(taxed, "overlap_tax_ns", window="245:290", kernels="clipped") == {(0, "stage2_f"): 50 - 12}
    assert rows(taxed, "overlap_tax_ns", window="195:240", kernels="clipped") == {}


# -- typicality and period


def typicality(gpu: OneProcess, window: str = "median") -> Deviation | None:
    with captures(gpu) as run:
        (of_rank,) = run.runs[0].load_windows(run.make_spec(window))
        return measure_deviation(of_rank)


@pytest.mark.parametrize(
    ("lengths", "apart_ns", "spread_ns"),
    [
        ((50, 50, 50, 50, 50), 0, 0),
        ((50, 50, 51, 50, 50), 1, 0),
        ((50, 10, 30, 20, 50), 10, 10),  # |30 − 20|
        ((50, 20, 47, 10, 50), 27, 10),
    ],
)
def test_window_typicality(gpu: OneProcess, lengths: tuple[int, ...], apart_ns: int, spread_ns: int) -> None:
    for i, length in enumerate(lengths):
        gpu.range("step", 100 * i, 100 * i + length)
        gpu.kernel("gemm", 100 * i + 1, 100 * i + 2, launch_ns=100 * i)
    deviation = typicality(gpu)
    assert deviation is not None
    assert deviation[:2] == (apart_ns, spread_ns)


def test_a_window_near_the_median_is_typical_however_little_the_others_vary(gpu: OneProcess) -> None:
    for i, length in enumerate((5000, 5001, 5002, 5000, 5020, 5001, 5000, 5001, 5002)):
        gpu.range("step", 10_000 * i, 10_000 * i + length)
        gpu.kernel("gemm", 10_000 * i + 1, 10_000 * i + 2, launch_ns=10_000 * i)
    deviation = typicality(gpu)
    assert deviation is not None
    assert deviation.in_mads > 5
    assert not any("MAD" in note for note in notes(gpu, "compute_ns"))


def test_untypical_window_is_told_and_an_explicit_one_has_no_typicality(gpu: OneProcess) -> None:
    for i, length in enumerate((50, 50, 20, 21, 90, 22, 20, 50, 50)):
        gpu.range("step", 100 * i, 100 * i + length)
        gpu.kernel("gemm", 100 * i + 1, 100 * i + 2, launch_ns=100 * i)
    said = "rank 0: window 69 MAD from the steady median: untypical"
    assert any(note.startswith(said) for note in notes(gpu, "compute_ns"))
    assert typicality(gpu, "0:100") is None


def periods(gpu: OneProcess, *lengths: int) -> OneProcess:
    at = 0
    for length in (*lengths, 1_000):
        gpu.range("step", at, at + 5)
        gpu.kernel("gemm", at + 1, at + 2, launch_ns=at)
        at += length
    return gpu


def of_lengths(**values: object) -> dict[tuple[int, str], object]:
    """The rows of ``period_ns`` of rank 0."""
    return {(0, statistic): value for statistic, value in values.items()}


def test_quantiles_mean_and_longest_are_of_all_whole_steps_but_the_first(gpu: OneProcess) -> None:
    periods(gpu, 900, 500, 40, 10, 30, 20, 900)
    expected = of_lengths(p50=30, p90=900, p99=900, mean=250, max=900)
    assert rows(gpu, "period_ns") == expected
    assert rows(gpu, "period_ns", convention=STEPS) == expected
    assert rows(gpu, "anchors") == {0: 8}


def test_of_two_whole_steps_both_count_and_the_last_of_the_run_never_does(gpu: OneProcess) -> None:
    assert rows(periods(gpu, 10, 30), "period_ns") == of_lengths(p50=10, p90=30, p99=30, mean=20, max=30)


@pytest.mark.parametrize(("percent", "expected"), [(1, 1), (10, 1), (11, 2), (50, 5), (90, 9), (91, 10), (99, 10)])
def test_percentile_is_a_value_that_occurred(percent: int, expected: int) -> None:
    assert percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], percent) == expected


def test_of_many_values_a_percentile_is_the_smallest_that_so_many_do_not_exceed() -> None:
    assert [percentile(range(1, 10_001), percent) for percent in (1, 50, 99)] == [100, 5_000, 9_900]
    assert [percentile([3, 5], percent) for percent in (1, 50, 51)] == [3, 3, 5]


# -- streams


def test_stream_number_that_two_contexts_share_is_spelt_out(gpu: OneProcess) -> None:
    gpu.range("step", 0, 400)
    gpu.kernel("gemm", 100, 110, launch_ns=12, stream=7, context=1)
    gpu.kernel("gemm", 100, 120, launch_ns=12, stream=7, context=2)
    gpu.kernel("gemm", 100, 130, launch_ns=12, stream=8, context=2)
    with captures(gpu) as run:
        (window,) = run.runs[0].load_windows(run.make_spec("median"))
        assert [stream for _, stream in sequence(window)] == ["0/1/7", "0/2/7", 8]


def test_all_communication_being_barrier_is_told(gpu: OneProcess) -> None:
    gpu.range("step", 0, 1_000)
    gpu.kernel("gemm", 100, 200, launch_ns=12)
    gpu.kernel(NCCL, 200, 300, launch_ns=13)
    assert rows(gpu, "comm_streams") == ZEROS
    told = "the only communication kernel shares stream 7 with compute (100 ns)"
    assert any(note.startswith(told) for note in notes(gpu, "comm_streams"))


# -- calls


def syncs(gpu: OneProcess, *calls: tuple[str, int]) -> Value:
    gpu.range("step", 100, 200)
    gpu.kernel("gemm", 110, 120, launch_ns=105)
    for name, start in calls:
        gpu.api(name, start, start + 5)
    return rows(gpu, "syncs")[0]


@pytest.mark.parametrize(
    ("call", "counts"),
    [
        ("cudaDeviceSynchronize_v3020", True),
        ("cudaStreamSynchronize_ptsz", True),
        ("cudaEventSynchronize", True),
        ("cuStreamSynchronize", True),
        ("cudaMemcpy_v3020", True),
        ("cuMemcpyDtoH_v2", True),
        ("cudaMemcpyAsync_v3020", False),
        ("cudaMemcpy2DAsync", False),
        ("cuMemcpyDtoHAsync_v2", False),
        ("cudaStreamWaitEvent", False),
        ("cudaEventQuery", False),
        ("cudaMalloc", False),
    ],
)
def test_sync_is_what_makes_the_cpu_wait(gpu: OneProcess, call: str, counts: bool) -> None:
    assert syncs(gpu, (call, 150)) == int(counts)


def test_syncs_of_the_window_only(gpu: OneProcess) -> None:
    calls = [("cudaDeviceSynchronize", start) for start in (50, 99, 100, 150, 200, 201)]
    assert syncs(gpu, *calls) == 3


def test_sync_that_is_recorded_twice_counts_once(gpu: OneProcess) -> None:
    gpu.range("step", 100, 200)
    gpu.kernel("gemm", 110, 120, launch_ns=105)
    first = gpu.api("cudaStreamSynchronize_v3020", 150, 160)
    gpu.api("cudaStreamSynchronize_v3020", 150, 160, event_class=67, correlation=first)
    gpu.api("cuStreamSynchronize", 151, 159, event_class=1, correlation=first)
    gpu.api("cudaStreamSynchronize_v3020", 170, 175)
    other = gpu.trace.process(pid=101)
    other.range("step", 100, 200)
    other.kernel("gemm", 110, 120, launch_ns=105)
    assert rows(gpu, "syncs") == {0: 2, 1: 0}


# -- counts of kernels


def test_kernel_without_a_launch_row_is_looked_up_at_its_start_and_its_share_told(gpu: OneProcess) -> None:
    gpu.range("step", 0, 1_000)
    gpu.range("layer00_stage3_f", 100, 200)
    gpu.kernel("gemm", 150, 160, launch=False)
    gpu.kernel("gemm", 170, 190, launch_ns=50)
    assert rows(gpu, "launches") == {(0, "none"): 1, (0, "stage3_f"): 1}
    told = (
        "1 of 2 kernels around the windows, 33.3% of their time, has no launch on record: their stage could only be "
        "looked up at their GPU start, which runs behind; trace the CUDA API on all ranks"
    )
    assert told in notes(gpu, "launches")


def test_gap_is_between_kernels_of_all_compute_streams(gpu: OneProcess) -> None:
    gpu.range("step", 0, 1_000)
    gpu.kernel("gemm", 100, 200, launch_ns=5)
    gpu.kernel("gemm", 150, 260, launch_ns=5, stream=8)
    gpu.kernel(NCCL, 200, 900, launch_ns=5, stream=28)
    gpu.kernel("gemm", 300, 310, launch_ns=5)
    assert rows(gpu, "gpu_gap_ns") == {0: 40}
    for at in (50, 280, 700):
        gpu.kernel("empty", at, at, launch_ns=5)
    assert rows(gpu, "gpu_gap_ns") == {0: 40}


def test_metrics_of_a_convention_without_stages_stand_under_none(timeline: OneProcess) -> None:
    plain = replace(STEP, stage=None, purposes=())
    assert rows(timeline, "exposed_ns", convention=plain) == {(0, "none"): 60}
    assert rows(timeline, "comm_streams", convention=plain) == {(0, "mixed"): 0, (0, "unknown"): 2}
