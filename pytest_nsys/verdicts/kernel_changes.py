"""Which kernels take another time than they took, on one GPU in one step? Told beside a comparison, and not judged."""

from __future__ import annotations

from typing import NamedTuple

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.quantities import QUANTITIES
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.exact import distance
from pytest_nsys.core.model import Value


class KernelChange(NamedTuple):
    """A kernel of both runs, with its time per GPU and step in each."""

    name: str
    base_ns: Value
    head_ns: Value


def kernel_changes(base: Captures, head: Captures, spec: WindowSpec) -> tuple[KernelChange, ...]:
    """The kernels of both runs whose time is another one, that which changed by most first."""
    was, now = _times(base, spec), _times(head, spec)
    found = [KernelChange(name, was[name], now[name]) for name in was.keys() & now.keys() if was[name] != now[name]]
    return tuple(sorted(found, key=lambda each: (-distance(each.head_ns, each.base_ns), each.name)))


def _times(captures: Captures, spec: WindowSpec) -> dict[str, Value]:
    rows = captures.rows(QUANTITIES["kernel_ns"], spec).rows
    return {str(row.labels[0]): row.value for row in rows}
