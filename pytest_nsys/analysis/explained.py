"""What was a window made of, and why did a value change? As data, which reports tell.

The causes are found by :mod:`pytest_nsys.analysis.causes`, what a window was made of by
:mod:`pytest_nsys.analysis.breakdown`.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytest_nsys.analysis.budget_facts import BudgetPart
from pytest_nsys.analysis.root_facts import RootChange
from pytest_nsys.core.model import Label


class CauseKind(enum.StrEnum):
    """What happened to the kernels of a cause."""

    LONGER = "longer"
    SHORTER = "shorter"
    APPEARED = "appeared"
    VANISHED = "vanished"
    BARRIER = "became a barrier"
    WAITS = "waits for another rank"
    SLOWEST = "another rank was the slowest before"
    COVER_SHRANK = "compute that hid it is shorter"
    COVER_VANISHED = "compute that hid it vanished"
    COVER_MOVED = "compute that hid it no longer runs alongside"
    COVER_GREW = "compute hides more of it"
    LAUNCH_BOUND = "the GPU waits for launches"
    IDLE = "the GPU is idle for another reason"
    COMPUTE = "compute takes longer"
    EXPOSED = "exposed communication takes longer"
    STARVED = "the host launches it late"
    BETWEEN = "the host launches no step"
    BLOCKS = "compute waits for it"
    BESIDE = "stalls during communication"
    STALLED = "stalls for another reason"


class Cause(NamedTuple):
    """A part of a change, in ns. ``before_ns`` and ``now_ns`` are the quantity that changed, of ``was`` and ``kernels``
    kernels; ``ordinals`` name those that changed most, from 1 on. ``straggler`` is the rank that came last, or was the
    slowest before, ``exposes`` the communication that most of the cover of a compute kernel was taken from.
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

    parts: tuple[tuple[BudgetPart, int], ...]
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
    """A row by the labels of its metric (of an aggregate, of the row that it was taken from), and why it changed.

    ``roots`` are behind most of its change, the largest first; empty where none is. ``alike`` are the same roots on
    all ranks, whose own rows need not have moved so far. ``beside`` are the kernels of the windows that explain it,
    before and now: what a root is called tells it apart from these.
    """

    labels: Mapping[str, Label]
    explanation: Explanation
    roots: tuple[RootChange, ...] = ()
    alike: tuple[RootChange, ...] = ()
    beside: frozenset[str] = frozenset()


class RankWait(NamedTuple):
    """How long a rank was in a collective before the last one came, and which rank that was."""

    wait_ns: int
    last: int


class Communication(NamedTuple):
    """One communication kernel of a stage. ``hidden_by`` gives the ns during which each compute kernel hid it.

    ``wait`` is None where the ranks of its group cannot be matched. ``start_ns`` counts from the window's start.
    ``after`` is how many launches of the window's compute the host made before its own; None where it has none.
    """

    name: str
    length_ns: int
    exposed_ns: int
    hidden_by: Mapping[str, int]
    wait: RankWait | None = None
    start_ns: int = 0
    after: int | None = None


class Barrier(NamedTuple):
    """The communication kernels of one name on compute streams: how many, how long, and how long they waited in all.

    ``wait`` names the rank that most of them waited for; None where their ranks cannot be matched.
    """

    kernels: int
    length_ns: int
    wait: RankWait | None = None


class ComputePlace(NamedTuple):
    """Where compute kernels of one name run: launched for ``stage``, on the compute stream of that number (from 0 on,
    in the order of their ids, which another run may number otherwise).

    ``order`` is the sum of their places among the compute of that stage and stream, from 0 on and by start: a kernel
    that took the place of another one has its order, where as many run before them.
    """

    stage: str
    stream: int
    kernels: int
    length_ns: int
    order: int


class Compute(NamedTuple):
    """The compute kernels of one name: how many, and how long in all.

    ``launched`` of them have a launch; ``launch_ns`` are those, summed, from the window's start on.
    ``places`` add up to all of them, by stage and stream.
    """

    kernels: int
    length_ns: int
    launched: int
    launch_ns: int
    places: tuple[ComputePlace, ...] = ()


class GapsBefore(NamedTuple):
    """The times without compute that kernels of one name ended: how many, and how long in all."""

    gaps: int
    length_ns: int


class HostWaits(NamedTuple):
    """The calls of one name that made the host wait for the GPU: how many, and how long they took in the window.

    For ``starved_ns`` no compute ran, as the thread that launched the next kernel stood in one of them.
    """

    calls: int
    length_ns: int
    starved_ns: int


class Transferred(NamedTuple):
    """The copies or memsets of one kind that ran in the window: how many, how long in all, and for how long they
    blocked which compute kernels.
    """

    transfers: int
    length_ns: int
    blocks: Mapping[str, int]


class Wall(enum.StrEnum):
    """What an instant of a window went to. EXPOSED is communication, barriers too, without compute."""

    COMPUTE = "compute"
    EXPOSED = "exposed"
    LAUNCH = "launch"
    IDLE = "idle"


AT_START, AT_END = "[the window's start]", "[the window's end]"
"""Stand for the kernel that ends a gap where none does, and where nothing but the window began before it."""

NEXT_STEP = "[the next step]"
"""Stands for what ends the time between two steps."""

UNNAMED = ""
"""Stands for all compute kernels of a budget."""


class Breakdown(NamedTuple):
    """One window of one rank. ``communication`` is by stage, in order of start; ``barriers`` and ``compute`` by name.
    Kernels are named by ``core.kernel_names.telling_name``, which is the same in every run.

    ``walls`` splits the window's length among kernels: what ran (COMPUTE, EXPOSED), and before which kernel the GPU
    stood idle, until that was launched (LAUNCH) and after (IDLE). ``budget`` splits it by what held compute up, each
    part by the kernel that waited, or by the producer that blocked; None where the trace does not say.

    ``gaps`` and the compute of ``walls`` make up the window, too: before which kernels no compute ran, at its edges
    AT_START and AT_END. ``calls`` are by name, None where the trace has no record of calls;
    ``transfers`` by kind, as ``memset`` or ``copy from pageable to device``, None where it does not say when
    they ran. ``clock_mhz`` is the median clock of the SMs, None where the window has no sample.
    """

    communication: Mapping[str, Sequence[Communication]]
    barriers: Mapping[str, Barrier]
    compute: Mapping[str, Compute]
    walls: Mapping[Wall, Mapping[str, int]]
    budget: Mapping[BudgetPart, Mapping[str, int]] | None = None
    gaps: Mapping[str, GapsBefore] = {}  # of none of these a mappingproxy, which does not go from process to process
    calls: Mapping[str, HostWaits] | None = None
    transfers: Mapping[str, Transferred] | None = None
    clock_mhz: int | None = None

    @property
    def names(self) -> frozenset[str]:
        """Of all its kernels: beside these ``readable_names`` tells those of a cause apart."""
        blocked = (own.blocks for own in (self.transfers or {}).values())
        by_name = self.compute, self.barriers, self.gaps, *self.walls.values(), *(self.budget or {}).values(), *blocked
        found = {name for own in by_name for name in own}
        for kernels in self.communication.values():
            found.update(name for kernel in kernels for name in (kernel.name, *kernel.hidden_by))
        return frozenset(found)

    def waits(self, name: str) -> Counter[int]:
        """How long the communication kernels of a name wait in all, by the rank that comes last."""
        every = (kernel.wait for own in self.communication.values() for kernel in own if kernel.name == name)
        found = Counter[int]()
        for wait in (*every, *(own.wait for barrier, own in self.barriers.items() if barrier == name)):
            if wait is not None:
                found[wait.last] += wait.wait_ns
        return found

    def wall_ns(self, *walls: Wall) -> int:
        """How much of the window went to these."""
        return sum(sum(self.walls[wall].values()) for wall in walls)
