"""What do the tests of kernel families share? Small traces, and what they sum to."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.metrics.families import FamilySums, sum_families
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention
from pytest_nsys.core.model import Value
from pytest_nsys.core.workload import Workload
from tests.support.samples.builder import TraceBuilder

PLAIN = replace(BUILT_IN_CONVENTIONS["generic"], anchor="step%")


@contextmanager
def sums(*traces: Path, convention: Convention = PLAIN, window: str = "run", **stated: Any) -> Iterator[FamilySums]:
    """What one run of all traces amounts to."""
    with closing(CaptureCache()) as library:
        run = library.open_one_run([str(path) for path in traces], Path(), convention, Workload(**stated))
        (together,) = run.runs[0].load_windows(run.make_spec(window)).list_run_windows()
        yield sum_families(together)


def ran(found: FamilySums) -> Mapping[str, tuple[Value, Value]]:
    """Time and launches of the families that ran."""
    return {name: (usage.time_ns, usage.launches) for name, usage in found.usage_by_family.items() if usage.launches}


Kernel = tuple[int, int, str, int, int]
"""Process, device, name, start and length in ns."""


def written(path: Path, kernels: Sequence[Kernel]) -> Path:
    trace = TraceBuilder()
    processes = {pid: trace.process(pid=100 + pid) for pid in sorted({kernel[0] for kernel in kernels})}
    for pid, device, name, start, length in kernels:
        processes[pid].kernel(name, start, start + length, device=device, launch_ns=start)
    return trace.write(path)


def steps_trace(path: Path, *starts: int, ranks: int = 1, edit: Any = None) -> Path:
    """Anchors of 80 ns, of every rank, with a gemm of 60 ns in each."""
    trace = TraceBuilder()
    for rank in range(ranks):
        process = trace.process(pid=100 + rank)
        for number, start in enumerate(starts):
            process.range(f"step {number}", start, start + 80)
            process.kernel("gemm", start + 10, start + 70, launch_ns=start + 1)
        if edit is not None:
            edit(rank, process)
    return trace.write(path)
