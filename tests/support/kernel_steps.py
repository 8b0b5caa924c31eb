"""Steps that nobody marked: kernels alone, of which one begins each step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.samples.builder import TraceBuilder

Step = Sequence[str]
PLAIN: Step = ("embed", "gemm", "gemm", "adam")


def written(path: Path, steps: Sequence[Step], *, period_ns: int = 1_000, lag_ns: int | None = 300) -> Path:
    """Steps whose kernels follow each other, each of 50 ns in 100; launched ``lag_ns`` before, None: by no call."""
    trace = TraceBuilder()
    process = trace.process()
    for number, step in enumerate(steps):
        for place, name in enumerate(step):
            start = 10_000 + period_ns * number + 100 * place
            if lag_ns is None:
                process.kernel(name, start, start + 50, launch=False)
            else:
                process.kernel(name, start, start + 50, launch_ns=start - lag_ns)
    return trace.write(path)
