"""Why a value changed, as data: the causes of a row, of which :mod:`pytest_nsys.analysis.causes` finds the parts."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from pytest_nsys.analysis.budget_facts import Part
from pytest_nsys.core.model import Label


class CauseKind(enum.StrEnum):
    """What happened to the kernels of a cause."""

    LONGER = "longer"
    SHORTER = "shorter"
    APPEARED = "appeared"
    VANISHED = "vanished"
    BARRIER = "became a barrier"
    WAITS = "waits for another rank"
    COVER_SHRANK = "compute that hid it is shorter"
    COVER_VANISHED = "compute that hid it vanished"
    COVER_LATE = "compute that hid it was launched later"
    COVER_MOVED = "compute that hid it ran at another time"
    COVER_GREW = "compute hides more of it"
    MOVED = "ran at another time"
    LAUNCH_BOUND = "the GPU waits for launches"
    IDLE = "the GPU is idle for another reason"
    COMPUTE = "compute takes longer"
    EXPOSED = "exposed communication takes longer"
    STARVED = "the host launches it late"
    BLOCKS = "compute waits for it"
    BESIDE = "stalls while communication runs"
    STALLED = "stalls for another reason"


class Cause(NamedTuple):
    """A part of a change, in ns. ``before_ns`` and ``now_ns`` are the quantity that changed, of ``was`` and ``kernels``
    kernels; ``ordinals`` name those that changed most, from 1 on. ``straggler`` is the rank that came last,
    ``exposes`` the communication that most of the cover of a compute kernel was taken from.
    """

    kind: CauseKind
    kernel: str
    change_ns: int
    before_ns: int = 0
    now_ns: int = 0
    was: int = 0
    kernels: int = 0
    ordinals: tuple[int, ...] = ()
    straggler: int | None = None
    exposes: str = ""


class BudgetChange(NamedTuple):
    """How the budget of a window moved: ``parts`` add up to the change of its length. ``kernel`` is the compute kernel
    whose time moved most, the way that of all compute did, and by how much; None where compute did not move.
    """

    parts: tuple[tuple[Part, int], ...]
    kernel: tuple[str, int] | None
    before_ns: int
    now_ns: int

    @property
    def change_ns(self) -> int:
        """By how much the window is longer."""
        return self.now_ns - self.before_ns


class Explanation(NamedTuple):
    """The causes, largest first, and what no cause accounts for: together the change. ``budget`` is how that of the
    window moved, for a metric of which it says something.
    """

    change_ns: int
    causes: tuple[Cause, ...]
    unexplained_ns: int
    budget: BudgetChange | None = None

    @property
    def leading(self) -> Cause | None:
        """The largest cause that went the way of the change; None where no cause did."""
        return next((cause for cause in self.causes if cause.change_ns * self.change_ns > 0), None)


class Explained(NamedTuple):
    """A row by the labels of its metric (of an aggregate, of the row that it was taken from), and why it changed."""

    labels: Mapping[str, Label]
    explanation: Explanation
