"""Of a rank's window, how much may each kind of finding claim? Every nanosecond once, so that claims may be added.

Claims stand on the parts of the budget, which are disjoint. Where two kinds would name the same time the narrower one
has it: waiting for another rank before communication at large, a synchronising call before a late launch.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from pytest_nsys.analysis.budget import PartsOfGaps, budget_of
from pytest_nsys.analysis.budget_facts import BudgetPart
from pytest_nsys.analysis.operations import NONE
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.straggling import Waited
from pytest_nsys.analysis.structure import pageable_copies
from pytest_nsys.core.columns import (
    NEVER,
    Column,
    equal,
    members_by,
    minus,
    take,
    total,
    touching,
    where,
    where_not,
    within,
)
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Stream

TINY_KERNEL_NS = 10_000
"""A kernel up to this long is over before PyTorch launches the next: an operator costs the host about as much."""

TINY_GAP_NS = 50_000
"""A gap up to this long is one launch after another; in a longer one the host did something else."""


class FindingKind(enum.StrEnum):
    """What a finding is of. Those up to ``STALLED`` claim time without compute, the next two time of compute."""

    STRAGGLER = "straggler"
    WRONG_STREAM = "wrong stream"
    COMMUNICATION = "communication"
    SYNCS = "synchronising calls"
    LAUNCHES = "launches"
    BETWEEN = "between steps"
    COPIES = "copies"
    OTHER_DEVICE = "another device"
    STALLED = "stalled"
    CLOCKS = "clocks"
    UNEVEN = "uneven ranks"
    PROFILER = "profiler"
    DOUBT = "doubt"


class Losses:
    """What of the time without compute of one window each kind claims. Raises NoRows where it has no budget.

    ``waits`` are those of its collectives for other ranks.
    """

    def __init__(self, window: RankWindow, waits: Sequence[Waited]) -> None:
        self.window, self.waits, self.budget = window, waits, budget_of(window)

    @cached_property
    def claims_ns(self) -> Mapping[FindingKind, int]:
        """They add up to the time without compute, exactly."""
        waited, shared = self._covered(self._waited), self._covered(self._waited_or_shared)
        return {
            FindingKind.STRAGGLER: waited,
            FindingKind.WRONG_STREAM: shared - waited,
            FindingKind.COMMUNICATION: total(self.beside.ns) - shared,
            FindingKind.SYNCS: total(self._in_syncs),
            FindingKind.LAUNCHES: total(self._late_ns),
            FindingKind.BETWEEN: self.budget.between_steps_ns or 0,
            FindingKind.COPIES: self.blocked_by_copies_ns + self.host_in_copies_ns,
            FindingKind.OTHER_DEVICE: self.budget.blocking_ns["other_device"],
            FindingKind.STALLED: self.stalled_ns,
        }

    @cached_property
    def beside(self) -> PartsOfGaps:
        """The time without compute in which a collective blocked, or ran and may have."""
        return self.budget.spans(BudgetPart.COLLECTIVE, BudgetPart.BESIDE)

    @cached_property
    def _starved(self) -> PartsOfGaps:
        return self.budget.spans(BudgetPart.STARVED)

    @property
    def stalled_ns(self) -> int:
        """Stalled while no communication ran."""
        return self.budget.dependency_stalled_ns - self.budget.stalled_beside_comm_ns

    @cached_property
    def _in_syncs(self) -> Column:
        return self.budget.waiting_in_calls()

    @cached_property
    def _in_calls(self) -> Column:
        """Of each launch-starved part what the thread stood in synchronising calls, and in copies of pageable memory,
        which the host makes itself.
        """
        return self.budget.waiting_in_calls(copies=True) if self.pageable else self._in_syncs

    @cached_property
    def _late_ns(self) -> Column:
        """What is left of them."""
        return minus(self._starved.ns, self._in_calls)

    @cached_property
    def pageable(self) -> int:
        """How many copies of the window are from or to pageable memory, as far as the trace says."""
        return sum(int(count) for _, count in pageable_copies(self.window))

    @property
    def blocked_by_copies_ns(self) -> int:
        """How long copies and memsets blocked."""
        return self.budget.blocking_ns["copy"] + self.budget.blocking_ns["memset"]

    @property
    def host_in_copies_ns(self) -> int:
        """How long the host launched nothing because it copied pageable memory."""
        return total(self._in_calls) - total(self._in_syncs)

    def longest_copies(self) -> tuple[str, int] | None:
        """Between which memories the copies of the window are that take longest, and how many; None where unknown."""
        window, moved = self.window, self.window.track.on_gpu.transfers
        copies = window.track.copies((window.window.start_ns, window.window.end_ns))
        if moved is None or not copies:
            return None
        lengths = dict(zip(moved.start_ns, minus(moved.end_ns, moved.start_ns), strict=True))
        by = grouped(((each.source, each.target), lengths.get(each.start_ns, 0)) for each in copies)
        (source, target), own = max(by.items(), key=lambda item: (sum(item[1]), item[0]))
        return (f"{source} to {target}", len(own)) if source and target else None

    def late_before(self, part: BudgetPart) -> tuple[str, int]:
        """What followed the longest such time, and how long it is, as the view of the budget has it: a kernel, or
        nothing.
        """
        longest = next(((each.waiting, each.ns) for each in self.budget.before(part)), ("", 0))
        tail_ns = self.budget.tail_ns if part is BudgetPart.STARVED and not self.budget.between_steps_ns else 0
        return ("", tail_ns) if tail_ns > longest[1] else longest

    @property
    def before_tiny_ns(self) -> int:
        """How much of the time without compute lies in short gaps before tiny kernels that were launched late."""
        return total(take(self._late_ns, _before_tiny(self._starved, self._late_ns)))

    def _covered(self, spans: Intervals) -> int:
        return total(spans.covered(self.beside.start_ns, self.beside.end_ns))

    @cached_property
    def _waited(self) -> Intervals:
        return Intervals.of((each.start_ns, each.end_ns) for each in self.waits)

    @cached_property
    def _waited_or_shared(self) -> Intervals:
        spans = [(each.start_ns, each.end_ns) for each in self.waits]
        return Intervals.of([*spans, *self.window.spans(self.barriers)])

    @property
    def barriers(self) -> Column:
        """The communication on streams that compute too, by index in the window; none where streams keep no order."""
        window = self.window
        return window.barriers[:0] if window.track.unordered else window.barriers

    def shared_stream(self) -> tuple[Stream, int, Mapping[str, int]]:
        """Of the streams of these the one with most such time without compute: it, how many communication kernels it
        has, and its compute kernels by name, most launches first.
        """
        window, stream = self.window, self.window.kernels.stream
        own = members_by(lambda stream: stream, take(stream, self.barriers))
        exposed = {number: self._covered(window.time_of(take(self.barriers, at))) for number, at in own.items()}
        number = max(exposed, key=lambda number: (exposed[number], -number))
        compute = take(window.compute, where(equal(take(stream, window.compute), number)))
        numbers, names = window.named(lambda short, full: full or short)
        found = Counter(names[number] for number in take(numbers, compute))
        return window.kernels.streams[number], len(own[number]), dict(found.most_common())

    def waited_for(self, kind: str) -> int:
        """The rank that collectives of a kind waited for longest."""
        found = grouped((each.for_rank, each.end_ns - each.start_ns) for each in self.waits if each.kind == kind)
        return max(found, key=lambda rank: (sum(found[rank]), -rank))

    def longest_communication(self) -> Mapping[tuple[str, str], int]:
        """The same time by (stage, kernel) that ran in it, the longest first; several may have run at once."""
        track, window = self.window.track.on_gpu, self.window
        kernels = track.kernels
        near = touching(kernels.start_ns, kernels.end_ns, window.start_ns, window.end_ns)
        near = take(near, where(take(track.communicates, near)))
        codes, known, _ = track.contexts
        by = members_by(
            lambda short, full, code: (known[code][0], kernels.names.get(full) or kernels.names[short]),
            *(take(column, near) for column in (kernels.name, kernels.full_name, codes)),
        )
        found = {
            who: self._covered(Intervals(take(kernels.start_ns, at), take(kernels.end_ns, at)))
            for who, at in ((who, take(near, own)) for who, own in by.items())
        }
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def tiny_kernels(self) -> tuple[int, int]:
        """How many compute kernels of the window are tiny, and of how many."""
        lengths = take(self.window.whole_durations_ns, self.window.compute)
        return len(_up_to(lengths, TINY_KERNEL_NS)), len(lengths)


def _up_to(column: Column, most: int) -> Column:
    """The indices of what is no more than that."""
    return where(equal(within(column, most, NEVER), most))


def _before_tiny(parts: PartsOfGaps, late_ns: Column) -> Column:
    """The indices of short parts that a tiny kernel ends."""
    short = _up_to(late_ns, TINY_GAP_NS)
    short = take(short, _up_to(take(parts.kernel_ns, short), TINY_KERNEL_NS))
    return take(short, where_not(equal(take(parts.kernel_ns, short), NONE)))
