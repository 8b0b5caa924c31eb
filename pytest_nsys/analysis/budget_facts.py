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
class KnownEdges:
    """How much is known of what kernels of a window waited for.

    ``device_busy_ns`` is None where the trace does not say when copies ran. ``contradicted`` gaps end before something
    began that their kernel waited for. ``unordered`` streams keep no order, and prove nothing.
    """

    device_busy_ns: int | None
    gaps: int
    gaps_without_launch: int
    contradicted: int
    unordered: int
    waits_recorded: bool
    waits: int
    waits_joined: int


@dataclass(frozen=True, slots=True)
class BudgetFacts(KnownEdges):
    """The budget of one window of one rank. Times are ns.

    ``device_idle_ns`` is None where the trace does not say when copies ran; ``comm_alone_ns`` is None there, too, and
    where nothing communicates. ``between_steps_ns`` is a part of ``launch_starved_ns``, None of what is no step, or the
    last one. ``at_least``: more may have been blocked, for not every edge is known, or the copies are not.
    ``producers`` and ``before`` are the largest.
    """

    window_ns: int
    device_idle_ns: int | None
    compute_busy_ns: int
    compute_absent_ns: int
    comm_alone_ns: int | None
    launch_starved_ns: int
    between_steps_ns: int | None
    tail_ns: int
    in_syncs: Mapping[str, int]
    blocking_ns: Mapping[str, int]
    blocking_comm_ns: Mapping[str, int]
    blocking_comm_max_ns: int
    dependency_stalled_ns: int
    stalled_beside_comm_ns: int
    at_least: bool
    producers: Sequence[Blocking]
    before: Sequence[Delayed]


def parts_of(facts: BudgetFacts) -> dict[BudgetPart, int]:
    """The parts by time, in the order in which they are shown; those that are no time at all, too."""
    blocked = {part: facts.blocking_ns[kind] for kind, part in BLOCKED.items()}
    beside = facts.stalled_beside_comm_ns
    return {
        BudgetPart.COMPUTE: facts.compute_busy_ns,
        BudgetPart.STARVED: facts.launch_starved_ns - (facts.between_steps_ns or 0),
        BudgetPart.BETWEEN: facts.between_steps_ns or 0,
        **blocked,
        BudgetPart.BESIDE: beside,
        BudgetPart.STALLED: facts.dependency_stalled_ns - beside,
    }


def ceiling(part_ns: int, window_ns: int) -> Fraction | None:
    """By which share throughput would rise, at most, if the part were gone and nothing came in its place.

    None where the part is the whole window.
    """
    return Fraction(part_ns, window_ns - part_ns) if part_ns < window_ns else None


_BOUNDS = "blocked and stalled are bounds"


def about_edges(budgets: Iterable[KnownEdges]) -> Iterator[str]:
    """Why figures of these budgets are bounds, and of which gaps less is known: each in one line."""
    found = list(budgets)
    yield from about_bounds(found)
    yield from about_gaps(found)


def about_bounds(found: Sequence[KnownEdges]) -> Iterator[str]:
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


def about_gaps(budgets: Sequence[KnownEdges]) -> Iterator[str]:
    """Of which gaps of these budgets less is known: each in one line."""
    gaps = counted(sum(edges.gaps for edges in budgets), "gap")
    told = {
        "gaps_without_launch": "end in a kernel without a launch row: they count as launched at once",
        "contradicted": "end before what their kernel waited for began: it blocked nothing",
    }
    for name, what in told.items():
        if some := sum(getattr(edges, name) for edges in budgets):
            yield f"{some} of {gaps} {what}"
