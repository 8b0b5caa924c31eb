"""Of a rank's window, how much may each kind of finding claim? Every nanosecond once, so that claims may be added.

Claims stand on the lines of the budget, which are disjoint. Where two kinds would name the same time the narrower one
has it: waiting for another rank before communication at large, a synchronising call before a late launch.
"""

from __future__ import annotations

import enum
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from pytest_nsys.analysis.budget.budget import Budget, PartsOfGaps
from pytest_nsys.analysis.budget.operations import NONE
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.analysis.metrics.straggling import Waited
from pytest_nsys.analysis.metrics.structure import pageable_copies
from pytest_nsys.analysis.windows.rank_window import RankWindow
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
from pytest_nsys.core.model import Interval, Stream

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


WHOLE: Mapping[BudgetPart, FindingKind] = {
    BudgetPart.BETWEEN: FindingKind.BETWEEN,
    BudgetPart.COPY: FindingKind.COPIES,
    BudgetPart.MEMSET: FindingKind.COPIES,
    BudgetPart.ELSEWHERE: FindingKind.OTHER_DEVICE,
    BudgetPart.STALLED: FindingKind.STALLED,
}
"""The lines of a budget that one kind claims as they are."""


class Losses:
    """What of the time without compute of one window each kind claims; ``waits`` are those of its collectives for other
    ranks.
    """

    def __init__(self, budget: Budget, waits: Sequence[Waited]) -> None:
        self.budget, self.window, self.waits = budget, budget.window, waits

    @cached_property
    def claims_ns(self) -> Mapping[FindingKind, int]:
        """They add up to the time without compute, exactly."""
        found = Counter(dict.fromkeys(WHOLE.values(), 0))
        for part, kind in WHOLE.items():
            found[kind] += self.budget.lines.parts[part]
        for claims in (self._beside_claims, self._starved_claims):
            found.update({kind: total(ns) for kind, ns in claims.items()})
        return found

    @cached_property
    def beside(self) -> PartsOfGaps:
        """The time without compute in which a collective blocked, or ran and may have."""
        return self.budget.spans(BudgetPart.COLLECTIVE, BudgetPart.BESIDE)

    @cached_property
    def _beside_claims(self) -> Mapping[FindingKind, Column]:
        """Of each of these times what each kind claims."""
        waits = [(each.start_ns, each.end_ns) for each in self.waits]
        spans: list[list[Interval]] = [waits, [*waits, *self.window.spans(self.barriers)]]
        waited, shared = (Intervals.of(own).covered(self.beside.start_ns, self.beside.end_ns) for own in spans)
        kinds = FindingKind.STRAGGLER, FindingKind.WRONG_STREAM, FindingKind.COMMUNICATION
        return _subtract_each(kinds, [waited, shared, self.beside.ns])

    @cached_property
    def _starved(self) -> PartsOfGaps:
        return self.budget.spans(BudgetPart.STARVED)

    @cached_property
    def _starved_claims(self) -> Mapping[FindingKind, Column]:
        """Of each launch-starved time what the thread stood in synchronising calls, in copies of pageable memory, which
        the host makes itself, and what is left.
        """
        in_syncs = self.budget.waiting_in_calls()
        in_calls = self.budget.waiting_in_calls(copies=True) if self.pageable else in_syncs
        kinds = FindingKind.SYNCS, FindingKind.COPIES, FindingKind.LAUNCHES
        return _subtract_each(kinds, [in_syncs, in_calls, self._starved.ns])

    @cached_property
    def pageable(self) -> int:
        """How many copies of the window are from or to pageable memory, as far as the trace says."""
        return pageable_copies(self.window) or 0

    @property
    def host_in_copies_ns(self) -> int:
        """How long the host launched nothing because it copied pageable memory."""
        return total(self._starved_claims[FindingKind.COPIES])

    def late_before(self, part: BudgetPart) -> tuple[str, int]:
        """What followed the longest such time, and how long it is, as the view of the budget has it: a kernel, or
        nothing.
        """
        longest = next(((each.waiting, each.ns) for each in self.budget.before(part)), ("", 0))
        is_tail = part is BudgetPart.STARVED and not self.budget.lines.parts[BudgetPart.BETWEEN]
        tail_ns = self.budget.tail_ns if is_tail else 0
        return ("", tail_ns) if tail_ns > longest[1] else longest

    @property
    def before_tiny_ns(self) -> int:
        """How much of the time without compute lies in short gaps before tiny kernels that were launched late."""
        late_ns, kernel_ns = self._starved_claims[FindingKind.LAUNCHES], self._starved.kernel_ns
        short = _up_to(late_ns, TINY_GAP_NS)
        short = take(short, _up_to(take(kernel_ns, short), TINY_KERNEL_NS))
        return total(take(late_ns, take(short, where_not(equal(take(kernel_ns, short), NONE)))))

    def _covered(self, spans: Intervals) -> int:
        return total(spans.covered(self.beside.start_ns, self.beside.end_ns))

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

    def longest_communication(self) -> tuple[tuple[str, str], int]:
        """The (stage, kernel) that ran in most of the same time, and for how long."""
        track, window = self.window.track.on_gpu, self.window
        kernels = track.kernels
        near = touching(kernels.start_ns, kernels.end_ns, window.start_ns, window.end_ns)
        near = take(near, where(take(track.communicates, near)))
        codes, known, _ = track.contexts
        by = members_by(
            lambda short, full, code: (known[code][0], kernels.names.get(full) or kernels.names[short]),
            *(take(column, near) for column in (kernels.name, kernels.full_name, codes)),
        )
        spans = ((who, take(near, own)) for who, own in by.items())
        found = ((who, Intervals(take(kernels.start_ns, at), take(kernels.end_ns, at))) for who, at in spans)
        return min(((who, self._covered(ran)) for who, ran in found), key=lambda each: (-each[1], each[0]))

    def tiny_kernels(self) -> tuple[int, int]:
        """How many compute kernels of the window are tiny, and of how many."""
        lengths = take(self.window.whole_durations_ns, self.window.compute)
        return len(_up_to(lengths, TINY_KERNEL_NS)), len(lengths)


def longest_copies(window: RankWindow) -> tuple[str, int] | None:
    """Between which memories the copies of a window are that take longest, and how many; None where unknown."""
    moved, copies = window.track.on_gpu.transfers, window.track.copies((window.window.start_ns, window.window.end_ns))
    if moved is None or not copies:
        return None
    lengths = dict(zip(moved.start_ns, minus(moved.end_ns, moved.start_ns), strict=True))
    by = grouped(((each.source, each.target), lengths.get(each.start_ns, 0)) for each in copies)
    (source, target), own = max(by.items(), key=lambda item: (sum(item[1]), item[0]))
    return (f"{source} to {target}", len(own)) if source and target else None


def _subtract_each(kinds: Sequence[FindingKind], totals: Sequence[Column]) -> dict[FindingKind, Column]:
    """What each kind has of some times, of which one and all before it have ever more in ``totals``."""
    before = [array("q", [0]) * len(totals[0]), *totals[:-1]]
    return {kind: minus(ns, less) for kind, ns, less in zip(kinds, totals, before, strict=True)}


def _up_to(column: Column, most: int) -> Column:
    """The indices of what is no more than that."""
    return where(equal(within(column, most, NEVER), most))
