"""Which kernels take another time than they took, on one GPU in one step? Told beside a comparison, and not judged.

Where nothing says how many steps a window holds, as where nothing repeats, it is the time in the window.
"""

from __future__ import annotations

from typing import NamedTuple

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.quantities import QUANTITIES
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.exact import distance
from pytest_nsys.core.model import Value

PER_STEP, PER_WINDOW = "per GPU and step", "per GPU in the window"


class KernelChange(NamedTuple):
    """A kernel of both runs, with its time in each."""

    name: str
    base_ns: Value
    head_ns: Value


class KernelChanges(NamedTuple):
    """The kernels of both runs whose time is another one, that which changed by most first."""

    kernels: tuple[KernelChange, ...] = ()
    per: str = PER_STEP


def kernel_changes(base: Captures, head: Captures, spec: WindowSpec) -> KernelChanges:
    """Raises NsysError where the windows cannot be measured."""
    try:
        return KernelChanges(_changes(base, head, spec, "kernel_ns"))
    except NothingMeasured:
        return KernelChanges(_changes(base, head, spec, "kernel_gpu_ns"), PER_WINDOW)


def _changes(base: Captures, head: Captures, spec: WindowSpec, quantity: str) -> tuple[KernelChange, ...]:
    was, now = (_times(side, spec, quantity) for side in (base, head))
    found = [KernelChange(name, was[name], now[name]) for name in was.keys() & now.keys() if was[name] != now[name]]
    return tuple(sorted(found, key=lambda each: (-distance(each.head_ns, each.base_ns), each.name)))


def _times(captures: Captures, spec: WindowSpec, quantity: str) -> dict[str, Value]:
    return {str(row.labels[0]): row.value for row in captures.rows(QUANTITIES[quantity], spec).rows}
