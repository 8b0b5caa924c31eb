"""Which kernels take longer or shorter than before, on one GPU in one step? A comparison shows that without judging it.

If the number of steps in a window is unknown, the time in the window is compared.
"""

from __future__ import annotations

from typing import NamedTuple

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.quantities import QUANTITIES
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.exact import distance
from pytest_nsys.core.model import Value

PER_STEP, PER_WINDOW = "per GPU and step", "per GPU in the window"


class KernelChange(NamedTuple):
    """Names a kernel that both runs have, with its time in each."""

    name: str
    base_ns: Value
    head_ns: Value


class KernelChanges(NamedTuple):
    """Lists the kernels of both runs whose time differs, the largest change first."""

    kernels: tuple[KernelChange, ...] = ()
    per_text: str = PER_STEP


def compare_kernels(base: Captures, head: Captures, spec: WindowSpec) -> KernelChanges:
    """Return the kernels whose time differs. Raises NsysError where the windows cannot be measured."""
    try:
        return KernelChanges(_list_kernel_changes(base, head, spec, "kernel_ns"))
    except NothingMeasured:  # the number of steps in a window is unknown: times are per window
        return KernelChanges(_list_kernel_changes(base, head, spec, "kernel_gpu_ns"), PER_WINDOW)


def _list_kernel_changes(base: Captures, head: Captures, spec: WindowSpec, quantity: str) -> tuple[KernelChange, ...]:
    base_times, head_times = (_measure_kernel_times(side, spec, quantity) for side in (base, head))
    changes = [
        KernelChange(name, base_times[name], head_times[name])
        for name in base_times.keys() & head_times.keys()
        if base_times[name] != head_times[name]
    ]
    # Equal changes are sorted by name, so that the order is the same in every run.
    return tuple(sorted(changes, key=lambda change: (-distance(change.head_ns, change.base_ns), change.name)))


def _measure_kernel_times(captures: Captures, spec: WindowSpec, quantity: str) -> dict[str, Value]:
    return {str(row.labels[0]): row.value for row in captures.measure_rows(QUANTITIES[quantity], spec).rows}
