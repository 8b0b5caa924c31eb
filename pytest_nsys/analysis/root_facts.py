"""What is at the root of a change? As data: what ran longer, more often, later or elsewhere, and on which rank.

Found by :mod:`pytest_nsys.analysis.roots`. Nothing that only waited or moved because of something else is a root.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple


class RootKind(enum.StrEnum):
    """What happened to it."""

    LONGER = "longer"
    SHORTER = "shorter"
    APPEARED = "more often"
    VANISHED = "less often"
    REPLACED = "replaced"
    LATER = "later"
    ELSEWHERE = "elsewhere"


class RootOf(enum.StrEnum):
    """What it happened to. ALL is all compute alike, HOST what the GPU waits for while no call says why.

    A collective is LATER where the host launches more compute before it than it did.
    """

    KERNEL = "kernel"
    COLLECTIVE = "collective"
    COPY = "copy"
    MEMSET = "memset"
    CALL = "call"
    HOST = "host"
    ALL = "all compute"


class Root(NamedTuple):
    """What rows, ranks and configurations of one story share. ``name`` tells the thing apart from others, and is of
    HOST the kernel before which the GPU waits (AT_END: no more is launched until the window ends; NEXT_STEP: nothing is
    between two steps), empty where all are launched later; empty of ALL, too. ``stage`` is empty where there is none.
    ``instead_of`` is what ran in the same place before, of REPLACED.
    """

    kind: RootKind
    of: RootOf
    name: str
    stage: str = ""
    instead_of: str = ""


class RootChange(NamedTuple):
    """A root on one rank: the quantity that changed, in ns, of ``was`` and ``is_now`` kernels, copies or calls. That is
    the length; of HOST and calls how long the GPU had nothing to do for it, of LATER collectives what is exposed of
    them, of ELSEWHERE how long it runs there.

    ``rank`` is where it happened, which need not be the rank of the row that it explains: that may wait for it.
    ``clock_mhz`` are the GPU's clocks before and now, where both traces have them and they differ.
    """

    root: Root
    rank: int
    before_ns: int
    now_ns: int
    was: int = 0
    is_now: int = 0
    clock_mhz: tuple[int, int] | None = None

    @property
    def change_ns(self) -> int:
        return self.now_ns - self.before_ns

    @property
    def more(self) -> int:
        """How many more kernels, copies or calls there are."""
        return self.is_now - self.was


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
