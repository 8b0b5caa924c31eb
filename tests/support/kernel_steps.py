"""Steps that nobody marked: kernels alone, of which one begins each step."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.samples.builder import Process, TraceBuilder

Step = Sequence[str]
PLAIN: Step = ("embed", "gemm", "gemm", "adam")


def written(
    path: Path, steps: Sequence[Step], *, period_ns: int = 1_000, lag_ns: int | None = 300, kernel_ns: int = 50
) -> Path:
    """Steps whose kernels follow each other every 100 ns; launched ``lag_ns`` before, None: by no call."""
    trace = TraceBuilder()
    put(trace.process(), steps, [period_ns] * len(steps), lag_ns=lag_ns, kernel_ns=kernel_ns)
    return trace.write(path)


def slow_quarter(path: Path, slow_ns: int) -> Path:
    """16 steps of 1 us and the beginning of another; every fourth takes so long."""
    trace = TraceBuilder()
    put(trace.process(), [PLAIN] * 17, [slow_ns if number % 4 == 1 else 1_000 for number in range(17)])
    return trace.write(path)


def put(
    process: Process,
    steps: Sequence[Step],
    each_ns: Sequence[int] = (),
    *,
    lag_ns: int | None = 300,
    kernel_ns: int = 50,
) -> None:
    """Steps of so many ns each, of 1 us unless said."""
    begins = 10_000
    for step, length_ns in zip(steps, each_ns or [1_000] * len(steps), strict=True):
        for place, name in enumerate(step):
            start = begins + 100 * place
            if lag_ns is None:
                process.kernel(name, start, start + kernel_ns, launch=False)
            else:
                process.kernel(name, start, start + kernel_ns, launch_ns=start - lag_ns)
        begins += length_ns
