"""What a window was made of as plain data, which is kept in a baseline beside the rows."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytest_nsys.analysis.budget_facts import Part

KEPT_KERNELS = 4_096
"""So many kernels of a sequence are kept by name, to show where another one departs from it."""


class KernelSequence(NamedTuple):
    """The kernels of one stream in order: the plain names of the first KEPT_KERNELS, and how many there are."""

    names: tuple[str, ...]
    length: int


class Wait(NamedTuple):
    """How long a rank was in a collective before the last one came, and which rank that was."""

    wait_ns: int
    last: int


class Communication(NamedTuple):
    """One communication kernel of a stage. ``hidden_by`` gives the ns during which each compute kernel hid it.

    ``wait`` is None where the ranks of its group cannot be matched. ``start_ns`` counts from the window's start, and is
    None where an older baseline did not keep it.
    """

    name: str
    length_ns: int
    exposed_ns: int
    hidden_by: Mapping[str, int]
    wait: Wait | None = None
    start_ns: int | None = None


class Barrier(NamedTuple):
    """The communication kernels of one name on compute streams: how many, how long, and how long they waited in all.

    ``wait`` names the rank that most of them waited for; None where their ranks cannot be matched.
    """

    kernels: int
    length_ns: int
    wait: Wait | None = None


class Compute(NamedTuple):
    """The compute kernels of one name: how many, how long in all, and when, summed, from the window's start on.

    ``launched`` of them have a launch; ``launch_ns`` and ``queued_ns`` (from launch to start) are sums over those.
    """

    kernels: int
    length_ns: int
    start_ns: int
    launched: int
    launch_ns: int
    queued_ns: int


class Wall(enum.StrEnum):
    """What an instant of a window went to. EXPOSED is communication, barriers too, without compute."""

    COMPUTE = "compute"
    EXPOSED = "exposed"
    LAUNCH = "launch"
    IDLE = "idle"


AT_END = "[the window's end]"
"""Stands for the kernel that ends an idle time where none does."""

UNNAMED = ""
"""Stands for all kernels of a wall, where an older baseline kept sums alone."""


class Breakdown(NamedTuple):
    """One window of one rank. ``communication`` is by stage, in order of start; ``barriers`` and ``compute`` by name.

    ``walls`` splits the window's length among kernels: what ran (COMPUTE, EXPOSED), and before which kernel the GPU
    stood idle, until that was launched (LAUNCH) and after (IDLE). ``budget`` splits it by what held compute up, each
    part by the kernel that waited, or by the producer that blocked; None where the trace does not say, or an older
    baseline did not keep it.
    """

    communication: Mapping[str, Sequence[Communication]]
    barriers: Mapping[str, Barrier]
    compute: Mapping[str, Compute]
    walls: Mapping[Wall, Mapping[str, int]]
    budget: Mapping[Part, Mapping[str, int]] | None = None

    def wall_ns(self, *walls: Wall) -> int:
        """How much of the window went to these."""
        return sum(sum(self.walls[wall].values()) for wall in walls)
