"""What will be asked of a run, told before it is opened: so that many traces can be read ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.analysis.quality import Bounds
from pytest_nsys.analysis.windows import Pick
from pytest_nsys.conventions import Convention
from pytest_nsys.gates.assertion import Assertion, GateFile
from pytest_nsys.gates.stored_series import pick_for
from pytest_nsys.model import Trace
from pytest_nsys.traces.opening import open_trace
from pytest_nsys.workload import Workload


class Ask(NamedTuple):
    """A metric under a pick, and the bounds of its quality; without a metric, the windows alone."""

    metric: str | None
    pick: Pick
    bounds: Bounds = Bounds()


def asks_of(gate: GateFile, assertions: Iterable[Assertion] | None = None) -> list[Ask]:
    """What the assertions of a gate file, all by default, will ask of a run."""
    chosen = gate.assertions if assertions is None else assertions
    return [Ask(each.metric, pick_for(gate.convention, each), gate.quality) for each in chosen]


Opening = Callable[[Sequence[Path], Convention, Workload, Sequence[Ask]], Callable[[Path], Trace]]
"""Makes of the paths of a run, and of what will be asked of it, the function that opens each."""


def as_they_are(*_: object) -> Callable[[Path], Trace]:
    """Nothing is read ahead."""
    return open_trace
