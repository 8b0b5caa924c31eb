"""The budget of one window as plain data: the parts of its time, what bounds them, and who held the compute up longest.

It leaves the process with a page, and is what a program reads as JSON.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_nsys.core.words import counted

MOST = 3
"""Of what is told by name."""


class BudgetPart(enum.StrEnum):
    """What the time of a window falls into: disjoint, and together all of it. ``BLOCKED`` has one for each producer.

    ``BETWEEN`` is launch-starved too: after the last operation of a step, until the next one is launched. ``BESIDE`` is
    stalled while communication ran, which it may have waited for.
    """

    COMPUTE = "compute"
    STARVED = "launch-starved"
    BETWEEN = "between steps"
    COLLECTIVE = "blocked by collective"
    COPY = "blocked by copy"
    MEMSET = "blocked by memset"
    ELSEWHERE = "blocked by another device"
    BESIDE = "stalled during communication"
    STALLED = "stalled"


BLOCKED: Mapping[str, BudgetPart] = {
    "collective": BudgetPart.COLLECTIVE,
    "copy": BudgetPart.COPY,
    "memset": BudgetPart.MEMSET,
    "other_device": BudgetPart.ELSEWHERE,
}
"""By the kind of the producer."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """For how long one producer held up one kind of kernel, and in how many gaps. ``name`` is a kernel's demangled
    name, of copies and memsets the ``kind``; ``waiting`` is a demangled name.
    """

    kind: str
    name: str
    stage: str
    waiting: str
    ns: int
    gaps: int


@dataclass(frozen=True, slots=True)
class Delayed:
    """For how long kernels of one name and stage were launched too late, or did not start though nothing is known to
    have blocked them, and in how many gaps. ``part`` is that of :class:`BudgetPart`.
    """

    part: str
    waiting: str
    stage: str
    ns: int
    gaps: int


@dataclass(frozen=True, slots=True)
class BudgetLines:
    """What each nanosecond of a window went to, and how much is known of what its kernels waited for. Times are ns.

    ``parts`` add up to the window. ``has_next`` says whether it is a step that another one follows: else nobody knows
    what is between steps. ``device_busy_ns`` is None where the trace does not say when copies ran. ``contradicted``
    gaps end before something began that their kernel waited for. ``unordered`` streams keep no order: they prove
    nothing.
    """

    parts: Mapping[BudgetPart, int]
    has_next: bool
    device_busy_ns: int | None
    gaps: int
    gaps_without_launch: int
    contradicted: int
    unordered: int
    waits_recorded: bool
    waits: int
    waits_joined: int

    @property
    def window_ns(self) -> int:
        return sum(self.parts.values())

    @property
    def compute_busy_ns(self) -> int:
        return self.parts[BudgetPart.COMPUTE]

    @property
    def compute_absent_ns(self) -> int:
        return self.window_ns - self.compute_busy_ns

    @property
    def device_idle_ns(self) -> int | None:
        return None if self.device_busy_ns is None else self.window_ns - self.device_busy_ns

    @property
    def launch_starved_ns(self) -> int:
        """Also between steps."""
        return self.parts[BudgetPart.STARVED] + self.parts[BudgetPart.BETWEEN]

    @property
    def between_steps_ns(self) -> int | None:
        return self.parts[BudgetPart.BETWEEN] if self.has_next else None

    @property
    def blocking_ns(self) -> Mapping[str, int]:
        """How long producers of each kind blocked."""
        return {kind: self.parts[part] for kind, part in BLOCKED.items()}

    @property
    def dependency_stalled_ns(self) -> int:
        """Also while communication ran."""
        return self.parts[BudgetPart.STALLED] + self.parts[BudgetPart.BESIDE]

    @property
    def stalled_beside_comm_ns(self) -> int:
        return self.parts[BudgetPart.BESIDE]

    @property
    def at_least(self) -> bool:
        """Whether more may have been blocked: a producer may have been missed, as the copies are not known, the trace
        has no record of waits on other streams, as of some it lacks what they waited for, or as streams keep no order.
        """
        joined = self.waits_recorded and self.waits_joined == self.waits
        return not joined or self.unordered > 0 or self.device_busy_ns is None


@dataclass(frozen=True, slots=True)
class BudgetFacts(BudgetLines):
    """The budget of one window of one rank.

    ``comm_alone_ns`` is None where the trace does not say when copies ran, and where nothing communicates. ``tail_ns``
    and ``in_syncs`` are parts of the launch-starved time. ``producers`` and ``before`` are the largest.
    """

    comm_alone_ns: int | None
    tail_ns: int
    in_syncs: Mapping[str, int]
    blocking_comm_ns: Mapping[str, int]
    blocking_comm_max_ns: int
    producers: Sequence[Blocking]
    before: Sequence[Delayed]


def ceiling(part_ns: int, window_ns: int) -> Fraction | None:
    """By which share throughput would rise, at most, if the part were gone and nothing came in its place.

    None where the part is the whole window.
    """
    return Fraction(part_ns, window_ns - part_ns) if part_ns < window_ns else None


_BOUNDS = "blocked and stalled are bounds"


def about_edges(budgets: Iterable[BudgetLines]) -> Iterator[str]:
    """Why figures of these budgets are bounds, and of which gaps less is known: each in one line."""
    found = list(budgets)
    yield from about_bounds(found)
    yield from about_gaps(found)


def about_bounds(found: Sequence[BudgetLines]) -> Iterator[str]:
    """Why what blocked may be more, and what stalled less: each in one line."""
    waits = sum(edges.waits for edges in found)
    missing = waits - sum(edges.waits_joined for edges in found)
    why = {
        "the trace records no stream waits": any(not edges.waits_recorded for edges in found),
        f"{missing} of {counted(waits, 'stream wait')} have no event record": missing > 0,
        "kernels that overlap on one stream prove nothing": any(edges.unordered for edges in found),
        "the trace does not say when copies and memsets ran": any(edges.device_busy_ns is None for edges in found),
    }
    yield from (f"{_BOUNDS}: {what}" for what, holds in why.items() if holds)


def about_gaps(budgets: Sequence[BudgetLines]) -> Iterator[str]:
    """Of which gaps of these budgets less is known: each in one line."""
    gaps = counted(sum(edges.gaps for edges in budgets), "gap")
    told = {
        "gaps_without_launch": "end in a kernel without a launch row: they count as launched at once",
        "contradicted": "end before what their kernel waited for began: it blocked nothing",
    }
    for name, what in told.items():
        if some := sum(getattr(edges, name) for edges in budgets):
            yield f"{some} of {gaps} {what}"
