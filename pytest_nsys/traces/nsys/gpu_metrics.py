"""What do the GPU metrics of an export say of the clock of the SMs?

Ids of metrics differ between GPUs and versions, so a metric is looked up by its name. A sample names its GPU by the
number that the counters give it, in the low byte of its type; the tables of GPUs say which device of which process that
is. The clock is called ``[MHz]`` and stored in Hz: nsys divides only where it shows it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from math import isfinite

from pytest_nsys.core.model import Interval, Lane, ProcessId
from pytest_nsys.core.tables import Series
from pytest_nsys.traces.sqlite.columns import InvalidValue, check_integers
from pytest_nsys.traces.sqlite.conditions import build_bounds_condition, build_membership_condition
from pytest_nsys.traces.sqlite.file import SqliteFile

SAMPLES_TABLE, NAMES_TABLE = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
GPUS_TABLE, DEVICES_TABLE = "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"

# What the clock of the SMs is called, the best name first: they run at that of their GPC.
CLOCK_NAMES = ("sm clock frequency", "gpc clock frequency", "gpc__cycles_elapsed.avg.per_second")

# A sample names its GPU in the low byte of its type.
GPU_NUMBER_MASK = 0xFF
# What is less is in MHz: no SM runs so slowly, or at 100 GHz.
LOWEST_CLOCK_HZ = 100_000

NSYS_CLOCKS_ADVICE = "capture with --gpu-metrics-devices=all"
NSYS_DEVICES_ADVICE = "its tables do not say which GPU the samples of the clock are of: export it with a newer nsys"


def read_sm_clocks(file: SqliteFile, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Series] | None:
    """Return the samples of the SM clock of each lane around its span (None: all of them), in Hz.

    None where the file has no samples, or does not say of which GPU they are. Raises TypeError for a value that cannot
    be.
    """
    clock_metrics, gpu_numbers = _find_clock_metrics(file), _read_gpu_numbers(file)
    if not clock_metrics or not gpu_numbers:
        return None
    bounded = [span for span in spans.values() if span is not None]
    whole_table = len(bounded) < len(spans) or not bounded
    time_condition = (
        "1"
        if whole_table
        else build_bounds_condition("timestamp", min(low for low, _ in bounded), max(high for _, high in bounded))
    )
    metric_condition = build_membership_condition("metricId", sorted({metric for _, metric in clock_metrics}))
    samples: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for time_ns, kind, metric, value in file.scan_rows(
        "timestamp, typeId, metricId, value", SAMPLES_TABLE, f"{metric_condition} AND {time_condition}"
    ):
        check_integers(time_ns, kind, metric)
        # A sample of 0 is left out: a GPU that sleeps says nothing of its clock.
        if (kind, metric) in clock_metrics and (hertz := _convert_to_hertz(value)):
            samples[kind & GPU_NUMBER_MASK].append((time_ns, hertz))
    clocks_by_lane: dict[Lane, Series] = {}
    for lane in spans:
        gpu_by_device = gpu_numbers.get(ProcessId(0, lane.global_pid).pid, {})
        gpus = (
            gpu_by_device.values()
            if lane.device is None
            else [gpu_by_device[lane.device]]
            if lane.device in gpu_by_device
            else ()
        )
        if pairs := sorted(pair for gpu in set(gpus) for pair in samples.get(gpu, ())):
            clocks_by_lane[lane] = Series.from_time_value_pairs(pairs)
    return clocks_by_lane


def _find_clock_metrics(file: SqliteFile) -> Collection[tuple[int, int]]:
    """Return (type, metric) of the clock's samples, of each type by the best name that it has."""
    if not (
        file.has_columns(SAMPLES_TABLE, "timestamp", "typeId", "metricId", "value")
        and file.has_columns(NAMES_TABLE, "typeId", "metricId")
    ):
        return ()
    ranks: dict[int, tuple[int, int]] = {}
    for kind, metric, name in file.fetch_rows(
        f"SELECT typeId, metricId, {file.get_column(NAMES_TABLE, 'metricName')} FROM {NAMES_TABLE}"
    ):
        check_integers(kind, metric)
        clock_name = str(name).partition("[")[0].strip().lower()
        if clock_name in CLOCK_NAMES:
            candidate = (CLOCK_NAMES.index(clock_name), metric)
            ranks[kind] = min(candidate, ranks.get(kind, candidate))
    return {(kind, metric) for kind, (_, metric) in ranks.items()}


def _read_gpu_numbers(file: SqliteFile) -> Mapping[int, Mapping[int, int]]:
    """Return the counters' number of each GPU, by process and device."""
    if not (
        file.has_columns(GPUS_TABLE, "id", "pwGpuId") and file.has_columns(DEVICES_TABLE, "gpuId", "cudaId", "pid")
    ):
        return {}
    gpu_numbers: defaultdict[int, dict[int, int]] = defaultdict(dict)
    sql = f"SELECT d.pid, d.cudaId, g.pwGpuId FROM {DEVICES_TABLE} d JOIN {GPUS_TABLE} g ON g.id = d.gpuId"
    for pid, device, gpu in file.fetch_rows(f"{sql} WHERE g.pwGpuId IS NOT NULL"):
        check_integers(pid, device, gpu)
        gpu_numbers[pid][device] = gpu
    return gpu_numbers


def _convert_to_hertz(value: object) -> int:
    """Return a clock in Hz, which some versions store in MHz. Raises InvalidValue for a value that is no clock."""
    if type(value) not in (int, float) or not isfinite(value) or value < 0:  # type: ignore[arg-type, operator]
        raise InvalidValue(f"{str(value)[:40]!r} is not a clock")
    return round(value if value >= LOWEST_CLOCK_HZ else value * 1_000_000)  # type: ignore[operator, call-overload, no-any-return]


def describe_clock_capture(file: SqliteFile) -> str:
    """Describe how to capture what this file does not say of the clock."""
    return (
        NSYS_CLOCKS_ADVICE
        if file.has_columns(GPUS_TABLE, "pwGpuId") or SAMPLES_TABLE not in file.tables
        else NSYS_DEVICES_ADVICE
    )
