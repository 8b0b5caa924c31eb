"""The budget of one window as plain data: the parts of its time, what bounds them, and who held the compute up longest.

Plain, for it leaves the process with a page, and is what a program reads as JSON.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, TypedDict, cast

from pytest_nsys.core.errors import NoRows

if TYPE_CHECKING:
    from pytest_nsys.analysis.blocking import Budget

DEFINITION = 2
"""Of what blocked: each moment is credited to what ran then. 1 credited a gap to the producer that ended last."""

MOST = 3
"""Of what is told by name."""


class Part(enum.StrEnum):
    """What the time of a window falls into: disjoint, and together all of it. ``BLOCKED`` has one for each producer.

    ``BESIDE`` is dependency-stalled while communication ran, which it may have waited for.
    """

    COMPUTE = "compute"
    STARVED = "launch-starved"
    COLLECTIVE = "blocked by collective"
    COPY = "blocked by copy"
    MEMSET = "blocked by memset"
    ELSEWHERE = "blocked by another device"
    BESIDE = "dependency-stalled, communication runs"
    STALLED = "dependency-stalled"


BLOCKED: Mapping[str, Part] = {
    "collective": Part.COLLECTIVE,
    "copy": Part.COPY,
    "memset": Part.MEMSET,
    "other_device": Part.ELSEWHERE,
}
"""By the kind of the producer."""


class Blocking(TypedDict):
    """For how long one producer held up one kind of kernel, and in how many gaps."""

    kind: str
    name: str
    stage: str
    waiting: str
    ns: int
    gaps: int


class Before(TypedDict):
    """For how long kernels of one name and stage were launched too late, or did not start though nothing is known to
    have blocked them, and in how many gaps. ``part`` is that of :class:`Part`.
    """

    part: str
    waiting: str
    stage: str
    ns: int
    gaps: int


class Edges(TypedDict):
    """What is known of the edges of a budget. ``contradicted`` gaps end before something began that their kernel waited
    for. ``device_busy_ns`` is None where the trace does not say when copies ran. ``unordered`` streams keep no order,
    and prove nothing.
    """

    device_busy_ns: int | None
    gaps: int
    gaps_without_launch: int
    graph_gaps: int
    contradicted: int
    unordered: int
    waits_recorded: bool
    waits: int
    waits_joined: int


class BudgetFacts(Edges):
    """The budget of one window of one rank. Times are ns; None: the trace does not say, or nothing communicates.

    What :class:`Budget` has under the same name is that. ``at_least``: more may have been blocked, for not every edge
    is known, or the copies are not. ``producers`` and ``before`` are the largest.
    """

    window_ns: int
    device_idle_ns: int | None
    compute_busy_ns: int
    compute_absent_ns: int
    comm_alone_ns: int | None
    launch_starved_ns: int
    tail_ns: int
    in_syncs: dict[str, int]
    blocking_ns: dict[str, int]
    blocking_comm_ns: dict[str, int]
    blocking_comm_max_ns: int
    dependency_stalled_ns: int
    stalled_beside_comm_ns: int
    at_least: bool
    producers: list[Blocking]
    before: list[Before]


def edges_of(budget: Budget) -> Edges:
    """What is known of the edges of a budget."""
    return cast(Edges, {name: getattr(budget, name) for name in Edges.__annotations__})


def facts_of(budget: Budget) -> BudgetFacts:
    """The budget as plain data. Raises NoRows for a window that takes no time: it has no shares."""
    if not budget.window_ns:
        raise NoRows("the window takes no time: its only kernels are of length 0")
    own = {
        "blocking_ns": {kind: budget.blocking_ns.get(kind, 0) for kind in BLOCKED},
        "at_least": budget.lower_bound or budget.device_busy_ns is None,
        "producers": [each._asdict() for each in budget.producers()[:MOST]],
        "before": _before(budget),
    }
    names = BudgetFacts.__annotations__
    return cast(BudgetFacts, {name: own[name] if name in own else getattr(budget, name) for name in names})


def _before(budget: Budget) -> list[Before]:
    """What the parts of gaps that no producer explains lay before, the longest first."""
    found = ((Part.STARVED, budget.launched_late()), (Part.STALLED, budget.stalled()))
    each = [cast(Before, {"part": part.value, **late._asdict()}) for part, some in found for late in some[:MOST]]
    return sorted(each, key=lambda one: (-one["ns"], one["part"], one["waiting"], one["stage"]))[:MOST]


def parts_of(facts: BudgetFacts) -> dict[Part, int]:
    """The parts by time, in the order in which they are shown; those that are no time at all, too."""
    blocked = {part: facts["blocking_ns"][kind] for kind, part in BLOCKED.items()}
    beside = facts["stalled_beside_comm_ns"]
    return {
        Part.COMPUTE: facts["compute_busy_ns"],
        Part.STARVED: facts["launch_starved_ns"],
        **blocked,
        Part.BESIDE: beside,
        Part.STALLED: facts["dependency_stalled_ns"] - beside,
    }


def ceiling(part_ns: int, window_ns: int) -> Fraction | None:
    """By which share throughput would rise if the part were gone and nothing came in its place: no forecast.

    None where the part is the whole window.
    """
    return Fraction(part_ns, window_ns - part_ns) if part_ns < window_ns else None
