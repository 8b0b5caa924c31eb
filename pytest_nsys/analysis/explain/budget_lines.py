"""Which data describe the budget of one window: the parts of its time, their bounds, and what held up compute longest?

The data is plain: it is passed to the HTML page and read by programs as JSON.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_nsys.core.text_format import format_count

MAX_NAMED_ROWS = 3
"""The maximum number of producers, and of delays, that are named."""


class BudgetPart(enum.StrEnum):
    """Names the disjoint parts that the time of a window is divided into; they add up to the window.

    ``BLOCKED_PARTS`` has one for each kind of producer. ``BETWEEN`` is launch-starved too: the time after the last
    operation of a step, until the next step is launched. ``BESIDE`` is stalled time while communication ran, which may
    have been the reason.
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


BLOCKED_PARTS: Mapping[str, BudgetPart] = {
    "collective": BudgetPart.COLLECTIVE,
    "copy": BudgetPart.COPY,
    "memset": BudgetPart.MEMSET,
    "other_device": BudgetPart.ELSEWHERE,
}
"""The budget part for each kind of producer that blocked a kernel."""


@dataclass(frozen=True, slots=True)
class ProducerDelay:
    """Says how long, and in how many gaps, one producer held up kernels of one name."""

    kind: str
    name: str  # a kernel's demangled name; for copies and memsets the kind
    stage: str
    waiting: str  # the demangled name of the kernel that waited
    ns: int
    gaps: int


@dataclass(frozen=True, slots=True)
class LaunchDelay:
    """Says how long, and in how many gaps, kernels of one name and stage started late.

    They were launched too late, or did not start although nothing is known to have blocked them.
    """

    part: str  # value of BudgetPart
    waiting: str
    stage: str
    ns: int
    gaps: int


@dataclass(frozen=True, slots=True)
class BudgetLines:
    """Divides the time of a window into budget parts, and says how completely the waits of its kernels are known."""

    parts: Mapping[BudgetPart, int]  # in ns; they add up to the window
    has_next: bool  # whether another step follows; otherwise the time between steps is unknown
    device_busy_ns: int | None  # None where the trace does not say when copies ran
    gaps: int
    gaps_without_launch: int
    contradicted: int  # gaps that end before something began that their kernel is said to wait for
    unordered: int  # streams that keep no order: they prove nothing
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
        """The launch-starved time in ns, including that between steps."""
        return self.parts[BudgetPart.STARVED] + self.parts[BudgetPart.BETWEEN]

    @property
    def between_steps_ns(self) -> int | None:
        return self.parts[BudgetPart.BETWEEN] if self.has_next else None

    @property
    def blocking_ns(self) -> Mapping[str, int]:
        """The time in ns that producers blocked, by kind of producer."""
        return {kind: self.parts[part] for kind, part in BLOCKED_PARTS.items()}

    @property
    def dependency_stalled_ns(self) -> int:
        """The stalled time in ns, including that while communication ran."""
        return self.parts[BudgetPart.STALLED] + self.parts[BudgetPart.BESIDE]

    @property
    def stalled_beside_comm_ns(self) -> int:
        return self.parts[BudgetPart.BESIDE]

    @property
    def at_least(self) -> bool:
        """Whether the blocked time is only a lower bound, because a producer may have been missed."""
        # Copies may be unknown, stream waits unrecorded or not joined to what they waited for, streams unordered.
        is_joined = self.waits_recorded and self.waits_joined == self.waits
        return not is_joined or self.unordered > 0 or self.device_busy_ns is None


@dataclass(frozen=True, slots=True)
class BudgetFacts(BudgetLines):
    """Holds the budget of one window of one rank in the form that programs and pages read."""

    comm_alone_ns: int | None  # None where the trace does not say when copies ran, and where nothing communicates
    tail_ns: int  # this and the next are parts of the launch-starved time
    in_syncs: Mapping[str, int]
    blocking_comm_ns: Mapping[str, int]
    blocking_comm_max_ns: int
    producers: Sequence[ProducerDelay]  # the largest
    before: Sequence[LaunchDelay]  # the largest


def compute_throughput_ceiling(part_ns: int, window_ns: int) -> Fraction | None:
    """Return the maximum share by which throughput would rise if the part took no time and nothing replaced it.

    0.5 is 50 %. It is None if the part is the whole window.
    """
    return Fraction(part_ns, window_ns - part_ns) if part_ns < window_ns else None


_BOUNDS_TEXT = "blocked and stalled are bounds"


def describe_uncertain_edges(budgets: Iterable[BudgetLines]) -> Iterator[str]:
    """Yield one line per reason why figures of these budgets are only bounds, or some gaps are uncertain."""
    all_budgets = list(budgets)
    yield from describe_bounds(all_budgets)
    yield from describe_uncertain_gaps(all_budgets)


def describe_bounds(budgets: Sequence[BudgetLines]) -> Iterator[str]:
    """Yield one line per reason why the blocked time may be more, and the stalled time less."""
    waits = sum(budget.waits for budget in budgets)
    missing_records = waits - sum(budget.waits_joined for budget in budgets)
    reasons = {
        "the trace records no stream waits": any(not budget.waits_recorded for budget in budgets),
        f"{missing_records} of {format_count(waits, 'stream wait')} have no event record": missing_records > 0,
        "kernels that overlap on one stream prove nothing": any(budget.unordered for budget in budgets),
        "the trace does not say when copies and memsets ran": any(budget.device_busy_ns is None for budget in budgets),
    }
    yield from (f"{_BOUNDS_TEXT}: {reason}" for reason, holds in reasons.items() if holds)


def describe_uncertain_gaps(budgets: Sequence[BudgetLines]) -> Iterator[str]:
    """Yield one line per reason why gaps of these budgets are uncertain, with their number."""
    gaps = format_count(sum(budget.gaps for budget in budgets), "gap")
    reasons = {
        "gaps_without_launch": "end in a kernel without a launch row: they count as launched at once",
        "contradicted": "end before what their kernel waited for began: it blocked nothing",
    }
    for name, reason in reasons.items():
        if gap_count := sum(getattr(budget, name) for budget in budgets):
            yield f"{gap_count} of {gaps} {reason}"
