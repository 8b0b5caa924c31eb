"""What will be asked of a run, told before it is opened: so that many traces can be read ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.analysis.quality import Bounds
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.model import Trace
from pytest_nsys.core.workload import Workload
from pytest_nsys.traces.opening import open_trace


class Request(NamedTuple):
    """A metric under a window spec, and the bounds of its quality; without a metric, the windows alone."""

    metric: str | None
    spec: WindowSpec
    bounds: Bounds = Bounds()


Opening = Callable[[Sequence[Path], Convention, Workload, Sequence[Request]], Callable[[Path], Trace]]
"""Makes of the paths of a run, and of what will be asked of it, the function that opens each."""


def as_they_are(*_: object) -> Callable[[Path], Trace]:
    """Nothing is read ahead."""
    return open_trace
