"""How much of a rank's window may each kind of finding claim? Every nanosecond once, so that claims can be added.

Claims are made on the lines of the budget, which are disjoint. If two kinds could claim the same time, the more
specific one gets it: waiting for another rank before communication in general, a synchronising call before a late
launch.
"""

from __future__ import annotations

import enum
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from pytest_nsys.analysis.budget.budget import Budget, GapPartColumns
from pytest_nsys.analysis.budget.operations import NO_OPERATION
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.analysis.metrics.collective_waits import WaitInterval
from pytest_nsys.analysis.metrics.structure import pageable_copies
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.columns import (
    NO_END,
    Column,
    clip,
    find_nonzero,
    find_touching_spans,
    find_zeros,
    group_indices_by,
    mark_equal,
    subtract,
    sum_column,
    take,
)
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Interval, Stream

# A kernel up to this long ends before PyTorch launches the next: an operator costs the host about this time.
TINY_KERNEL_NS = 10_000

# In a gap up to this long the host launches without a break; in a longer one it did something else.
TINY_GAP_NS = 50_000


class FindingKind(enum.StrEnum):
    """Names what a finding is about. The kinds up to ``STALLED`` claim time without compute, the next two compute
    time.
    """

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


KIND_BY_LINE: Mapping[BudgetPart, FindingKind] = {
    BudgetPart.BETWEEN: FindingKind.BETWEEN,
    BudgetPart.COPY: FindingKind.COPIES,
    BudgetPart.MEMSET: FindingKind.COPIES,
    BudgetPart.ELSEWHERE: FindingKind.OTHER_DEVICE,
    BudgetPart.STALLED: FindingKind.STALLED,
}
"""The lines of a budget that one kind of finding claims entirely."""


class LostTime:
    """Divides the time without compute of one window among the kinds of findings.

    ``waits`` are those of its collectives for other ranks.
    """

    def __init__(self, budget: Budget, waits: Sequence[WaitInterval]) -> None:
        self.budget, self.window, self.waits = budget, budget.window, waits

    @cached_property
    def claims_ns(self) -> Mapping[FindingKind, int]:
        """The claims of each kind in ns; they add up exactly to the time without compute."""
        claims_by_kind = Counter(dict.fromkeys(KIND_BY_LINE.values(), 0))
        for part, kind in KIND_BY_LINE.items():
            claims_by_kind[kind] += self.budget.lines.parts[part]
        for claims in (self._collective_time_claims, self._launch_starved_claims):
            claims_by_kind.update({kind: sum_column(ns) for kind, ns in claims.items()})
        return claims_by_kind

    @cached_property
    def beside(self) -> GapPartColumns:
        """The time without compute in which a collective blocked, or ran and may have."""
        return self.budget.select_gap_parts(BudgetPart.COLLECTIVE, BudgetPart.BESIDE)

    @cached_property
    def _collective_time_claims(self) -> Mapping[FindingKind, Column]:
        """The claims of each kind on each time in which a collective blocked, or ran and may have blocked."""
        wait_spans = [(wait.start_ns, wait.end_ns) for wait in self.waits]
        spans: list[list[Interval]] = [wait_spans, [*wait_spans, *self.window.iterate_intervals(self.barriers)]]
        waited_ns, shared_ns = (
            Intervals.from_spans(covered_spans).measure_cover_per_span(self.beside.start_ns, self.beside.end_ns)
            for covered_spans in spans
        )
        kinds = FindingKind.STRAGGLER, FindingKind.WRONG_STREAM, FindingKind.COMMUNICATION
        return _subtract_each(kinds, [waited_ns, shared_ns, self.beside.length_ns])

    @cached_property
    def _starved(self) -> GapPartColumns:
        return self.budget.select_gap_parts(BudgetPart.STARVED)

    @cached_property
    def _launch_starved_claims(self) -> Mapping[FindingKind, Column]:
        """The claims on each launch-starved time: of synchronising calls, of copies of pageable memory, and the rest.

        The host itself copies pageable memory, so it launches nothing meanwhile.
        """
        in_syncs_ns = self.budget.measure_waiting_calls()
        in_calls_ns = self.budget.measure_waiting_calls(copies=True) if self.pageable_count else in_syncs_ns
        kinds = FindingKind.SYNCS, FindingKind.COPIES, FindingKind.LAUNCHES
        return _subtract_each(kinds, [in_syncs_ns, in_calls_ns, self._starved.length_ns])

    @cached_property
    def pageable_count(self) -> int:
        """The number of copies of the window from or to pageable memory, as far as the trace says."""
        return pageable_copies(self.window) or 0

    @property
    def host_in_copies_ns(self) -> int:
        """The time in ns in which the host launched nothing because it copied pageable memory."""
        return sum_column(self._launch_starved_claims[FindingKind.COPIES])

    def find_late_work(self, part: BudgetPart) -> tuple[str, int]:
        """Return the kernel that followed the longest time of this budget part, or an empty name, and that time, as in
        the budget view.
        """
        longest = next(((gap.waiting, gap.ns) for gap in self.budget.list_delays(part)), ("", 0))
        is_tail = part is BudgetPart.STARVED and not self.budget.lines.parts[BudgetPart.BETWEEN]
        tail_ns = self.budget.tail_ns if is_tail else 0
        return ("", tail_ns) if tail_ns > longest[1] else longest

    @property
    def before_tiny_ns(self) -> int:
        """The time without compute in ns that lies in short gaps before tiny kernels that were launched late."""
        late_ns, kernel_ns = self._launch_starved_claims[FindingKind.LAUNCHES], self._starved.kernel_length_ns
        short_gaps = _find_up_to(late_ns, TINY_GAP_NS)
        short_gaps = take(short_gaps, _find_up_to(take(kernel_ns, short_gaps), TINY_KERNEL_NS))
        return sum_column(
            take(late_ns, take(short_gaps, find_zeros(mark_equal(take(kernel_ns, short_gaps), NO_OPERATION))))
        )

    def _measure_covered_ns(self, spans: Intervals) -> int:
        return sum_column(spans.measure_cover_per_span(self.beside.start_ns, self.beside.end_ns))

    @property
    def barriers(self) -> Column:
        """The communication on streams that compute too, by index in the window; none where streams keep no order."""
        window = self.window
        return window.barriers[:0] if window.track.unordered_streams else window.barriers

    def find_shared_stream(self) -> tuple[Stream, int, Mapping[str, int]]:
        """Return the shared stream with most communication time, the number of its communication kernels, and its
        compute kernels.

        The compute kernels come by name with their number of launches, the most frequent first.
        """
        window, stream = self.window, self.window.kernels.stream
        barriers_by_stream = group_indices_by(lambda stream: stream, take(stream, self.barriers))
        exposed_ns = {
            number: self._measure_covered_ns(window.merge_run_times(take(self.barriers, indices)))
            for number, indices in barriers_by_stream.items()
        }
        number = max(exposed_ns, key=lambda number: (exposed_ns[number], -number))
        compute = take(window.compute, find_nonzero(mark_equal(take(stream, window.compute), number)))
        numbers, names = window.encode_names(lambda short, full: full or short)
        launches_by_name = Counter(names[number] for number in take(numbers, compute))
        return window.kernels.streams[number], len(barriers_by_stream[number]), dict(launches_by_name.most_common())

    def find_awaited_rank(self, kind: str) -> int:
        """Return the rank that collectives of a kind waited for longest."""
        waits_by_rank = group_by_key(
            (wait.for_rank, wait.end_ns - wait.start_ns) for wait in self.waits if wait.kind == kind
        )
        return max(waits_by_rank, key=lambda rank: (sum(waits_by_rank[rank]), -rank))

    def find_longest_communication(self) -> tuple[tuple[str, str], int]:
        """Return the (stage, kernel) that ran in most of the time without compute next to communication, and for how
        many ns.
        """
        track, window = self.window.track.gpu_track, self.window
        kernels = track.kernels
        near_indices = find_touching_spans(kernels.start_ns, kernels.end_ns, window.start_ns, window.end_ns)
        near_indices = take(near_indices, find_nonzero(take(track.communicates, near_indices)))
        codes, contexts, _ = track.contexts
        indices_by_kernel = group_indices_by(
            lambda short, full, code: (contexts[code][0], kernels.names.get(full) or kernels.names[short]),
            *(take(column, near_indices) for column in (kernels.name, kernels.full_name, codes)),
        )
        spans = (
            (stage_and_kernel, take(near_indices, own_indices))
            for stage_and_kernel, own_indices in indices_by_kernel.items()
        )
        run_times = (
            (stage_and_kernel, Intervals(take(kernels.start_ns, indices), take(kernels.end_ns, indices)))
            for stage_and_kernel, indices in spans
        )
        return min(
            ((stage_and_kernel, self._measure_covered_ns(run_time)) for stage_and_kernel, run_time in run_times),
            key=lambda item: (-item[1], item[0]),
        )

    def count_tiny_kernels(self) -> tuple[int, int]:
        """Count the compute kernels of the window that are tiny, and all of them."""
        lengths = take(self.window.uncut_durations_ns, self.window.compute)
        return len(_find_up_to(lengths, TINY_KERNEL_NS)), len(lengths)


def find_longest_copies(window: RankWindow) -> tuple[str, int] | None:
    """Return the two memories between which copies of a window take longest, and the number of these copies; None if
    unknown.
    """
    transfers, copies = (
        window.track.gpu_track.transfers,
        window.track.select_copies((window.window.start_ns, window.window.end_ns)),
    )
    if transfers is None or not copies:
        return None
    lengths = dict(zip(transfers.start_ns, subtract(transfers.end_ns, transfers.start_ns), strict=True))
    lengths_by_memories = group_by_key(((copy.source, copy.target), lengths.get(copy.start_ns, 0)) for copy in copies)
    (source, target), longest = max(lengths_by_memories.items(), key=lambda item: (sum(item[1]), item[0]))
    return (f"{source} to {target}", len(longest)) if source and target else None


def _subtract_each(kinds: Sequence[FindingKind], totals: Sequence[Column]) -> dict[FindingKind, Column]:
    """Return what each kind has of some times; ``totals`` are cumulative, each of a kind and all before it."""
    previous_totals = [array("q", [0]) * len(totals[0]), *totals[:-1]]
    return {kind: subtract(ns, previous) for kind, ns, previous in zip(kinds, totals, previous_totals, strict=True)}


def _find_up_to(column: Column, limit: int) -> Column:
    """Return the indices of the elements that are no more than ``limit``."""
    return find_nonzero(mark_equal(clip(column, limit, NO_END), limit))
