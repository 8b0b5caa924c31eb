"""What was a window made of, and what changed between two of them? As data, which reports tell.

A window is a table: a row says of the kernels of one name, stage and stream how many there are and how long. It is made
by :mod:`pytest_nsys.analysis.budget.breakdown`. A change is the difference of two such tables in a row, or in a sum of
rows: :mod:`pytest_nsys.analysis.explain.causes` has all that a value is made of,
:mod:`pytest_nsys.analysis.explain.roots` what changed by itself.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.core.model import Label


class What(enum.StrEnum):
    """What a row is of, or a change.

    HOST is time in which the GPU waits for the launch of a kernel, IDLE time before a kernel that was launched. Only
    changes are of ALL compute alike, of compute as COVER of communication, and of a RANK.
    """

    KERNEL = "kernel"
    COLLECTIVE = "collective"
    COPY = "copy"
    MEMSET = "memset"
    CALL = "call"
    HOST = "host"
    IDLE = "idle"
    ALL = "all compute"
    COVER = "cover"
    RANK = "rank"


class ChangeKind(enum.StrEnum):
    """What happened to it. What is ELSEWHERE has another stream or stage, or went behind compute or out of it."""

    LONGER = "longer"
    SHORTER = "shorter"
    OFTEN = "more often"
    RARELY = "less often"
    NEW = "new"
    GONE = "gone"
    REPLACED = "replaced"
    WAITED = "waited for a rank"
    LATER = "launched later"
    ELSEWHERE = "elsewhere"


AT_END = "[the window's end]"
"""Stands for the kernel that ends a gap where none does."""

NEXT_STEP = "[the next step]"
"""Stands for what ends the time between two steps."""


class RankWait(NamedTuple):
    """How long a rank was in a collective before the last one came, and which rank that was."""

    wait_ns: int
    last: int


OWN_STREAM = -1
"""Of communication on a stream that does not compute."""


class Part(NamedTuple):
    """Some kernels, copies or calls of one name; kernels have a stage and a stream, too."""

    what: What
    name: str
    stage: str
    stream: int
    """Of the compute streams, numbered from 0 on by their ids, which another run may give otherwise; or OWN_STREAM."""
    number: int
    length_ns: int
    """How long they are in all; of a call how long no compute ran as the host stood in it."""
    exposed_ns: int = 0
    """On a stream of their own: while no compute ran."""
    waits_ns: Mapping[int, int] | None = {}
    """How long they waited for the last rank, by that rank; None where the ranks of one cannot be matched."""
    launched: int = 0
    """How many of them have a launch."""
    launch_ns: int = 0
    """When these were launched, summed, from the window's start on."""
    after: int = 0
    """Before them so many launches of compute were made, summed."""
    order: int = 0
    """The sum of their places among the kernels of that stage and stream, by start: a kernel that took the place of
    another one has its order, where as many run before them.
    """
    beside_ns: Mapping[str, int] = {}
    """For how long which compute hid them, of communication; of copies for how long they blocked which."""

    @property
    def is_barrier(self) -> bool:
        return self.what is What.COLLECTIVE and self.stream != OWN_STREAM

    @property
    def is_hidden(self) -> bool:
        """Whether it is communication that compute may hide."""
        return self.what is What.COLLECTIVE and self.stream == OWN_STREAM


Amounts = Mapping[tuple[What, str], int]
"""Time in ns of kernels of a name."""


@dataclass(frozen=True)
class Breakdown:
    """One window of one rank, as rows. Kernels are named by ``core.kernel_names.telling_name``, which is the same in
    every run.

    ``time_ns`` splits the window's length: what ran (KERNEL, COLLECTIVE without compute), before which kernel the GPU
    stood idle, until that was launched (HOST) and after (IDLE). ``budget`` splits the time without compute by what held
    that up: the kernel that waited, or the producer that blocked; None where the trace does not say. ``unknown`` is
    what the trace does not record: calls, copies. ``clock_mhz`` is the median clock of the SMs, None where the window
    has no sample.
    """

    parts: Sequence[Part]
    time_ns: Amounts
    budget: Mapping[BudgetPart, Mapping[str, int]] | None = None
    unknown: Collection[What] = ()
    clock_mhz: int | None = None

    @cached_property
    def counts(self) -> Counter[tuple[What, str]]:
        """How many kernels of each name ran, copies and calls there were."""
        found = Counter[tuple[What, str]]()
        for part in self.parts:
            found[part.what, part.name] += part.number
        return found

    @cached_property
    def names(self) -> frozenset[str]:
        """Of all its kernels: beside these ``readable_names`` tells those of a change apart."""
        found = {name for by in (self.budget or {}).values() for name in by} | {name for _, name in self.time_ns}
        for part in self.parts:
            found |= {*part.beside_ns, *([part.name] if part.what in (What.KERNEL, What.COLLECTIVE) else [])}
        return frozenset(found)

    def of(self, *what: What) -> Iterator[Part]:
        return (part for part in self.parts if part.what in what)

    def waits(self, name: str, stage: object = None) -> Counter[int]:
        """How long the communication kernels of a name, and a stage, wait in all, by the rank that comes last."""
        found = Counter[int]()
        for part in self.parts:
            if part.name == name and stage in (None, part.stage):
                found.update(part.waits_ns or {})
        return found

    def took_ns(self, *what: What) -> int:
        """How much of the window went to these."""
        return sum(ns for (own, _), ns in self.time_ns.items() if own in what)

    @property
    def length_ns(self) -> int:
        return sum(self.time_ns.values())


class Root(NamedTuple):
    """What rows, ranks and configurations of one story share: what changed, and what happened to it.

    ``name`` tells it apart from others, and is of HOST the kernel before which the GPU waits (AT_END: no more is
    launched until the window ends; NEXT_STEP: nothing is between two steps), empty where all are launched later; empty
    of ALL and of a RANK, too. ``stage`` is empty where there is none. ``instead_of`` is what ran in the same place
    before, of REPLACED.
    """

    kind: ChangeKind
    of: What
    name: str
    stage: str = ""
    instead_of: str = ""


class Change(NamedTuple):
    """How something changed on one rank: the quantity, in ns, of ``was`` and ``is_now`` kernels, copies or calls. That
    is the length, or the part of it that a value is made of; of HOST and calls how long the GPU had nothing to do for
    it, of LATER collectives what is exposed of them, of ELSEWHERE how long it runs there, of COVER what it hides.

    ``rank`` is where it happened, which need not be the rank of the row that it explains: that may wait for it.
    ``clock_mhz`` are the GPU's clocks before and now, where both traces have them and they differ. ``straggler`` is the
    rank that it waits for, or that was the slowest before; ``exposes`` the communication that lost most of its COVER.
    """

    root: Root
    rank: int
    before_ns: int
    now_ns: int
    was: int = 0
    is_now: int = 0
    clock_mhz: tuple[int, int] | None = None
    straggler: int | None = None
    exposes: str = ""

    @property
    def change_ns(self) -> int:
        """By how much a value is more for it: for less cover it is."""
        return self.before_ns - self.now_ns if self.root.of is What.COVER else self.now_ns - self.before_ns

    @property
    def more(self) -> int:
        """How many more kernels, copies or calls there are."""
        return self.is_now - self.was

    @property
    def largest_first(self) -> tuple[int, int, Root]:
        return -abs(self.change_ns), self.rank, self.root


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
    causes: tuple[Change, ...]
    unexplained_ns: int
    budget: BudgetChange | None = None

    @property
    def leading(self) -> Change | None:
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
    roots: tuple[Change, ...] = ()
    alike: tuple[Change, ...] = ()
    beside: frozenset[str] = frozenset()


UNCHANGED = Fraction(5, 1000)
"""A step whose length moved by less is unchanged."""


class StepChange(NamedTuple):
    """The length of a step before and now, by rank, in ns; of windows that are no steps theirs."""

    before_ns: Mapping[int, int]
    now_ns: Mapping[int, int]

    @property
    def slowest(self) -> tuple[int, int]:
        """Of the ranks that both sides know the slowest one's, before and now; 0 where there are none."""
        shared = self.before_ns.keys() & self.now_ns.keys()
        before, now = (max((side[rank] for rank in shared), default=0) for side in self)
        return before, now

    @property
    def faster(self) -> bool:
        """Whether the step is: by less than UNCHANGED of it, it is as long as it was."""
        before, now = self.slowest
        return before - now >= before * UNCHANGED and now < before
