"""Which data describe what a window was made of, and what changed between two of them?

A window is a table. Each row says how many kernels of one name, stage and stream there are, and how long they are. The
table is made by :mod:`pytest_nsys.analysis.budget.breakdown`. A change is the difference of two such tables in a row,
or in a sum of rows: :mod:`pytest_nsys.analysis.explain.causes` finds everything that a value is made of,
:mod:`pytest_nsys.analysis.explain.root_causes` what changed by itself. Reports put changes into words.
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
from pytest_nsys.core.scopes import KernelPlace


class RowActivity(enum.StrEnum):
    """Names the activity that a row, or a change, belongs to.

    HOST is time in which the GPU waits for the launch of a kernel, IDLE time before a kernel that was launched already.
    Only changes have ALL (all compute alike), COVER (compute that covers communication) and RANK.
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


VIEW_BY_ACTIVITY: Mapping[RowActivity, str] = {
    RowActivity.KERNEL: "kernels",
    RowActivity.ALL: "kernels",
    RowActivity.COLLECTIVE: "overlap",
    RowActivity.COVER: "overlap",
    **dict.fromkeys(
        (RowActivity.COPY, RowActivity.MEMSET, RowActivity.CALL, RowActivity.HOST, RowActivity.IDLE), "budget"
    ),
}
"""The view of a run that shows a change best, by what changed; a slow RANK is shown by the view of the metric."""


class ChangeKind(enum.StrEnum):
    """Says what happened to something between two runs.

    ELSEWHERE means that it has another stream or stage, or went behind compute or out of it.
    """

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
"""Stands for the kernel that ends a gap, if no kernel does."""

NEXT_STEP = "[the next step]"
"""Stands for what ends the time between two steps."""


class RankWait(NamedTuple):
    """Says how long a rank waited in a collective for the last rank, and which rank was the last."""

    wait_ns: int
    last_rank: int


OWN_STREAM = -1
"""Stands for the stream of communication on streams without compute."""


class BreakdownRow(NamedTuple):
    """Sums up the kernels, copies or calls of one name; a row of kernels is also of one stage and stream."""

    activity: RowActivity
    name: str
    stage: str
    stream: int
    """The number of the compute stream, from 0 on in order of stream ids, which may differ between runs; or
    OWN_STREAM.
    """
    number: int
    length_ns: int
    """The total length; for calls, the time without compute in which the host was in them."""
    exposed_ns: int = 0
    """For communication on a stream of its own, the time in which no compute ran."""
    wait_ns_by_rank: Mapping[int, int] | None = {}
    """The time for which the kernels waited for the last rank, by that rank; None if a collective's ranks cannot be
    matched.
    """
    launched_count: int = 0
    """The number of kernels that have a launch."""
    launch_sum_ns: int = 0
    """The sum of their launch times, counted from the window's start."""
    launches_before: int = 0
    """The sum, over the kernels, of the number of compute launches before each."""
    order: int = 0
    """The sum of the kernels' positions among all kernels of their stage and stream, by start. A kernel that replaced
    another one has the other's position, if as many run before them.
    """
    ns_by_kernel: Mapping[str, int] = {}
    """By kernel, the time for which the row's compute hid it, or for which the row's copies blocked it."""

    @property
    def is_barrier(self) -> bool:
        """Whether it is communication on a stream that computes."""
        return self.activity is RowActivity.COLLECTIVE and self.stream != OWN_STREAM

    @property
    def is_hideable(self) -> bool:
        """Whether it is communication that compute may hide."""
        return self.activity is RowActivity.COLLECTIVE and self.stream == OWN_STREAM


Amounts = Mapping[tuple[RowActivity, str], int]
"""Time in ns by kind of activity and name."""


@dataclass(frozen=True)
class Breakdown:
    """Describes one window of one rank as rows, which are comparable between runs.

    Kernels are named by ``core.kernel_names.make_stable_name``, which gives the same name in every run.
    """

    rows: Sequence[BreakdownRow]
    # The window's length by what ran (KERNEL; COLLECTIVE without compute) and, by the kernel that ended an idle time,
    # the time until its launch (HOST) and after it (IDLE).
    time_ns: Amounts
    # The time without compute, by the kernel that waited or the producer that blocked; None if unknown.
    budget: Mapping[BudgetPart, Mapping[str, int]] | None = None
    unrecorded: Collection[RowActivity] = ()  # what the trace does not record: calls, copies
    clock_mhz: int | None = None  # the median clock of the SMs; None if the window has no sample

    @cached_property
    def counts(self) -> Counter[tuple[RowActivity, str]]:
        """The number of kernels, copies and calls of each name."""
        counts = Counter[tuple[RowActivity, str]]()
        for part in self.rows:
            counts[part.activity, part.name] += part.number
        return counts

    @property
    def kernel_counts(self) -> dict[str, int]:
        """The number of kernels of each name, without copies and calls."""
        kernels = (RowActivity.KERNEL, RowActivity.COLLECTIVE)
        return {name: number for (activity, name), number in self.counts.items() if activity in kernels}

    def count_differing_kernels(self, other: Breakdown) -> int:
        """Return by how many kernels, summed over names, another window differs."""
        counts, other_counts = self.kernel_counts, other.kernel_counts
        return sum(abs(counts.get(name, 0) - other_counts.get(name, 0)) for name in {*counts, *other_counts})

    def is_unlike(self, other: Breakdown) -> bool:
        """Whether another window did other work: of the kernels that both have, most names run another number of
        times, and by a quarter of all.

        Kernels that only one of them has say nothing: they may have been replaced.
        """
        counts, other_counts = self.kernel_counts, other.kernel_counts
        pairs = [(counts[name], other_counts[name]) for name in counts.keys() & other_counts.keys()]
        changed_names = sum(before != now for before, now in pairs)
        differing_count = sum(abs(before - now) for before, now in pairs)
        return bool(pairs) and 2 * changed_names > len(pairs) and 4 * differing_count >= sum(map(max, pairs))

    @cached_property
    def kernel_names(self) -> frozenset[str]:
        """The names of all its kernels; ``make_display_names`` keeps the shown names of changed kernels distinct from
        them.
        """
        names = {name for ns_by_name in (self.budget or {}).values() for name in ns_by_name} | {
            name for _, name in self.time_ns
        }
        for part in self.rows:
            names |= {
                *part.ns_by_kernel,
                *([part.name] if part.activity in (RowActivity.KERNEL, RowActivity.COLLECTIVE) else []),
            }
        return frozenset(names)

    def select_rows(self, *activities: RowActivity) -> Iterator[BreakdownRow]:
        return (part for part in self.rows if part.activity in activities)

    def sum_waits(self, name: str, stage: object = None) -> Counter[int]:
        """Return how long the communication kernels of a name, and of a stage if given, wait in total, in ns by the
        rank that comes last.
        """
        waits = Counter[int]()
        for part in self.rows:
            if part.name == name and stage in (None, part.stage):
                waits.update(part.wait_ns_by_rank or {})
        return waits

    def sum_time_ns(self, *activities: RowActivity) -> int:
        """Return how much of the window went to these activities, in ns."""
        return sum(ns for (activity, _), ns in self.time_ns.items() if activity in activities)

    @property
    def length_ns(self) -> int:
        return sum(self.time_ns.values())


class RootCause(NamedTuple):
    """Names what changed and how, independently of the row, rank and configuration in which it was seen."""

    kind: ChangeKind
    activity: RowActivity
    # What identifies it. For HOST: the kernel before which the GPU waits (AT_END: nothing more is launched until
    # the window ends; NEXT_STEP: nothing runs between two steps), empty if all are launched later. Empty for ALL and
    # RANK, too.
    name: str
    stage: str = ""
    instead_of: str = ""  # for REPLACED: what ran in the same place before


class Change(NamedTuple):
    """Describes how something changed on one rank.

    The quantity, in ns, is the length, or the part of it that a value is made of. For HOST and calls it is the time for
    which they left the GPU without work; for LATER collectives, their exposed time; for ELSEWHERE, how long it runs
    there; for COVER, the communication time that it hides.
    """

    root: RootCause
    rank: int  # where it happened; the row that it explains may belong to another rank, which waits for this one
    baseline_ns: int
    current_ns: int
    baseline_count: int = 0  # number of kernels, copies or calls in the baseline
    current_count: int = 0
    clock_mhz: tuple[int, int] | None = None  # (baseline, current), if both traces have the GPU's clock and it differs
    straggler: int | None = None  # the rank that this one waits for, or that was the slowest before
    exposed_kernel: str = ""  # the communication that lost most of its COVER

    @property
    def change_ns(self) -> int:
        """The time by which a value grew because of this change; if cover shrinks, the value grows."""
        return (
            self.baseline_ns - self.current_ns
            if self.root.activity is RowActivity.COVER
            else self.current_ns - self.baseline_ns
        )

    @property
    def count_change(self) -> int:
        """The number of kernels, copies or calls that were added; negative if some are gone."""
        return self.current_count - self.baseline_count

    @property
    def sort_key(self) -> tuple[int, int, RootCause]:
        return -abs(self.change_ns), self.rank, self.root


class BudgetChange(NamedTuple):
    """Describes how the budget of a window changed; the changes of the parts add up to the change of its length."""

    parts: tuple[tuple[BudgetPart, int], ...]
    # The compute kernel whose time changed most in the direction of all compute, and by how many ns; None if compute
    # did not change.
    largest_kernel: tuple[str, int] | None
    baseline_ns: int
    current_ns: int

    @property
    def change_ns(self) -> int:
        """The time by which the window got longer."""
        return self.current_ns - self.baseline_ns


class Explanation(NamedTuple):
    """Explains a change by its causes, largest first, and an unexplained remainder; together they add up to the
    change.
    """

    change_ns: int
    causes: tuple[Change, ...]
    unexplained_ns: int
    budget_change: BudgetChange | None = None  # for a metric that the budget says something about

    @property
    def leading_cause(self) -> Change | None:
        """The largest cause in the direction of the change; None without one."""
        return next((cause for cause in self.causes if cause.change_ns * self.change_ns > 0), None)


class LostGain(NamedTuple):
    """Describes a kernel that takes less time, of which a claimed value got less than half."""

    metric: str  # of the value
    gain: Change  # of the kernel
    change_ns: int  # of the value
    instead: Change | None  # what takes most of the time that the kernel no longer takes; None where nothing does


class RowExplanation(NamedTuple):
    """Explains why a row of a metric changed."""

    labels: Mapping[str, Label]  # for an aggregate, those of the row that it was taken from
    explanation: Explanation
    root_causes: tuple[Change, ...] = ()  # those behind most of the change, largest first; may be empty
    alike_on_all_ranks: tuple[Change, ...] = ()  # the same root causes on all ranks, even where the row changed less
    is_claimed: bool = False  # whether a sentence claims that it got better: then all of its change is told
    lost_gain: LostGain | None = None  # of a claimed row
    window_kernels: frozenset[str] = frozenset()  # the kernels of both windows, for distinct display names
    places: Mapping[RootCause, KernelPlace] = {}  # where in the program the kernel of a root cause is launched


UNCHANGED_SHARE = Fraction(5, 1000)
"""A step whose length changes by at most this share of it counts as unchanged."""


class StepChange(NamedTuple):
    """Holds the length of a step in both runs, by rank, in ns; or the length of a window that is no step."""

    baseline_ns: Mapping[int, int]
    current_ns: Mapping[int, int]
    # The number of kernels in the (baseline, current) window, if they are of unlike work: their lengths say nothing.
    unlike_counts: tuple[int, int] | None = None

    @property
    def slowest_ns(self) -> tuple[int, int]:
        """The length of the slowest rank that both runs have, as (baseline, current) in ns; 0 if there is no such
        rank.
        """
        shared_ranks = self.baseline_ns.keys() & self.current_ns.keys()
        baseline, current = (
            max((side[rank] for rank in shared_ranks), default=0) for side in (self.baseline_ns, self.current_ns)
        )
        return baseline, current

    @property
    def slowest_ranks(self) -> tuple[int, int] | None:
        """The slowest rank of the baseline and the slowest now; None unless they are two ranks that differ by more than
        counts as unchanged.
        """
        shared_ranks = sorted(self.baseline_ns.keys() & self.current_ns.keys())
        before, now = (
            max(shared_ranks, key=lambda rank: (side[rank], -rank), default=0)
            for side in (self.baseline_ns, self.current_ns)
        )
        gap_ns = 0 if before == now else self.baseline_ns[before] - self.baseline_ns[now]
        return (before, now) if gap_ns and gap_ns >= self.baseline_ns[before] * UNCHANGED_SHARE else None

    @property
    def is_faster(self) -> bool:
        """Whether the step became shorter by more than counts as unchanged."""
        baseline, current = self.slowest_ns
        return baseline - current >= baseline * UNCHANGED_SHARE and current < baseline
