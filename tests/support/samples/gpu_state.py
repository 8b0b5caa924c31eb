"""What a trace may record of the GPU itself: what was allocated on it, and the clock of its SMs."""

from typing import Any

from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.kineto import KinetoBuilder, microseconds
from tests.support.samples.odd_rows import raw
from tests.support.samples.schema import GPU_METRIC_NAMES, GPU_METRICS, MEMORY_USAGE, Cell

DEVICE_MEMORY, PINNED_MEMORY = 2, 1
CLOCK_NAME = "GPC Clock Frequency [MHz]"
TYPE_BASE = 0x1_0001_0000_0000
"""What nsys adds to the counters' number of a GPU."""


def allocate(gpu: Process, at_ns: Cell, size: Cell, address: Cell = 1, **more: Cell) -> None:
    """An allocation by the driver, of memory of the device."""
    columns = {"start": at_ns, "bytes": size, "address": address, "memoryOperationType": 0, **gpu_place(gpu), **more}
    raw(gpu, MEMORY_USAGE, **columns)


def free(gpu: Process, at_ns: Cell, size: Cell, address: Cell = 1, **more: Cell) -> None:
    """Its free."""
    allocate(gpu, at_ns, size, address, **{"memoryOperationType": 1, **more})


def gpu_place(gpu: Process) -> dict[str, Cell]:
    return {"deviceId": gpu.place["deviceId"], "contextId": gpu.place["contextId"]}


def sm_clock(trace: TraceBuilder, *samples: tuple[Cell, Cell], gpu: int = 0, name: str = CLOCK_NAME) -> None:
    """Samples (time in ns, clock in Hz) of a GPU by the counters' number, and the name of the metric."""
    metric = 9 + gpu  # of no two GPUs the same
    trace.insert(GPU_METRIC_NAMES, typeId=TYPE_BASE + gpu, metricId=metric, metricName=name)
    for at, value in samples:
        trace.insert(GPU_METRICS, timestamp=at, typeId=TYPE_BASE + gpu, metricId=metric, value=value)


def torch_memory(trace: KinetoBuilder, at_ns: int, total: Any, size: Any, *, device: Any = None, kind: Any = 1) -> None:
    """What PyTorch's allocator says as it gives or takes memory; kind 0 is the CPU's."""
    where = trace.device if device is None else device
    args = {"Total Reserved": 1 << 40, "Total Allocated": total, "Bytes": size, "Addr": 9, "Device Id": where}
    event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": trace.pid, "tid": trace.pid}
    trace.events.append({**event, "ts": microseconds(at_ns), "args": {**args, "Device Type": kind, "Ev Idx": 3}})
