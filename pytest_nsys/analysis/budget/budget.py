"""What holds the step back: how does the time of a window on the GPU divide into nothing, compute, communication and
copies?

All of it is about the device: whatever ran in the window's time counts, cut at its edges, even under ``contained``,
whose other metrics leave out what crosses an edge. Under ``launched`` the window goes from the start of its first
kernel to the end of its last, and what other steps launched and ran meanwhile counts, too. Communication, including
barriers and copies that the convention counts as communication, is never a copy. The parts of one window add up, so for
several windows or captures each rank shows the parts of one (``median_window_metric`` in ``metrics/registry.py``).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cached_property
from typing import NamedTuple, TypeVar

from pytest_nsys.analysis.budget.between_steps import find_own_work_end
from pytest_nsys.analysis.budget.gaps import PARTS, STARVED, ComputeWaits, measure_compute_waits
from pytest_nsys.analysis.budget.operations import (
    COLLECTIVE,
    COPY,
    MEMSET,
    NO_OPERATION,
    OTHER_DEVICE,
    PRODUCER_KINDS,
    Operation,
)
from pytest_nsys.analysis.explain.budget_lines import (
    BLOCKED_PARTS,
    MAX_NAMED_ROWS,
    BudgetFacts,
    BudgetLines,
    BudgetPart,
    LaunchDelay,
    ProducerDelay,
    describe_uncertain_edges,
    describe_uncertain_gaps,
)
from pytest_nsys.analysis.metrics.activity import SYNCHRONISING_CALLS, parse_waiting_call
from pytest_nsys.analysis.metrics.gpu_state import get_gpu_track
from pytest_nsys.analysis.windows.rank_track import RankTrack
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.columns import (
    NO_END,
    Column,
    Flags,
    concatenate_columns,
    count_numbers,
    find_distinct_rows,
    find_nonzero,
    find_zeros,
    group_indices_by,
    mark_equal,
    mark_records,
    sort_indices,
    subtract,
    sum_by_number,
    sum_column,
    sum_values_by,
    take,
)
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.intervals import Intervals, find_hull
from pytest_nsys.core.memoize import group_by_key, memoize_method
from pytest_nsys.core.model import NO_LAUNCH, Api, Interval, Note
from pytest_nsys.core.numbers import choose_scale, format_in_one_unit, format_value
from pytest_nsys.core.units import TIME

K = TypeVar("K", bound=Hashable)

NO_COMMUNICATION = "no communication kernel runs in the window"


class GapPart(NamedTuple):
    """Describes one part of a gap, with the kernel that waited and what it waited for."""

    start_ns: int
    end_ns: int
    part: BudgetPart
    # The compute kernel that ends the gap, possibly after the window; None if none follows.
    waiting_kernel: Operation | None = None
    producer: Operation | None = None  # what ran in the part that this kernel depends on


class GapPartColumns(NamedTuple):
    """Holds parts of gaps, sorted by start, one column for each property."""

    start_ns: Column
    end_ns: Column
    kernel_length_ns: Column  # length of the kernel that ends the gap, NO_OPERATION if none does

    @property
    def length_ns(self) -> Column:
        """The length of each part."""
        return subtract(self.end_ns, self.start_ns)


class Budget:
    """Divides the time of a window on the GPU by what ran and by what held up the next compute. Lengths are in ns."""

    def __init__(self, window: RankWindow) -> None:
        self.window, self._gpu_track = window, window.track.gpu_track
        self._start_ns, self._end_ns = window.start_ns, window.end_ns
        self._device = get_gpu_track(window)
        # With a single window no query repeats, so what its gaps depend on is not kept.
        has_several_windows = len(self._gpu_track.window_group.windows_by_rank[window.rank.number]) > 1
        compute_waits = measure_compute_waits(self._gpu_track) if has_several_windows else ComputeWaits(self._gpu_track)
        own_work_end_ns = find_own_work_end(window)
        self._operations = compute_waits.operations
        self._gaps = gaps = compute_waits.find_gaps(
            self._start_ns, self._end_ns, NO_END if own_work_end_ns is None else own_work_end_ns
        )
        ending_kernels = take(gaps.waiting_kernels, find_zeros(mark_equal(gaps.waiting_kernels, NO_OPERATION)))
        without_launch = sum_column(mark_equal(take(self._operations.kernel_calls.end_ns, ending_kernels), NO_LAUNCH))
        if without_launch == len(ending_kernels) > 0:
            problem = "no kernel that ends a gap has a launch row, so when the host issued it is unknown"
            raise NoRows(f"{problem}: {window.track.trace_context.facts.to_see_calls}")
        computed_ns, busy = (
            self._device.compute_time.measure_covered_ns(self._start_ns, self._end_ns),
            self._device.busy_time,
        )
        self.lines = BudgetLines(
            parts={part: sum_column(self._measure_lengths(self._select_parts(part))) for part in PARTS}
            | {BudgetPart.COMPUTE: computed_ns},
            has_next=own_work_end_ns is not None,
            device_busy_ns=None if busy is None else busy.measure_covered_ns(self._start_ns, self._end_ns),
            gaps=len(gaps.waiting_kernels),
            gaps_without_launch=without_launch,
            contradicted=gaps.contradicted_count,
            unordered=len(compute_waits.unordered_streams),
            waits_recorded=compute_waits.has_wait_records,
            waits=compute_waits.wait_count,
            waits_joined=compute_waits.joined_count,
        )
        has_tail = gaps.waiting_kernels[-1:] == array("q", [NO_OPERATION])
        self.tail_ns = gaps.end_ns[-1] - gaps.start_ns[-1] if has_tail else 0

    def _select_parts(self, part: BudgetPart) -> Column:
        """Return the rows of the gap parts of one class, by start."""
        return find_nonzero(mark_equal(self._gaps.part_numbers, PARTS.index(part)))

    def _measure_lengths(self, parts: Column) -> Column:
        return subtract(take(self._gaps.end_ns, parts), take(self._gaps.start_ns, parts))

    def _find_waiting_kernels(self, parts: Column) -> Column:
        return take(self._gaps.waiting_kernels, take(self._gaps.gap_numbers, parts))

    def select_gap_parts(self, *parts: BudgetPart) -> GapPartColumns:
        """Return the parts of gaps of some classes by start, with the length of the kernel that waited."""
        part_rows, work = self._sort_parts(parts), self._operations.work
        waiting_kernels = self._find_waiting_kernels(part_rows)
        lengths = subtract(take(work.end_ns, waiting_kernels), take(work.start_ns, waiting_kernels))
        for i in find_nonzero(mark_equal(waiting_kernels, NO_OPERATION)):
            lengths[i] = NO_OPERATION
        return GapPartColumns(take(self._gaps.start_ns, part_rows), take(self._gaps.end_ns, part_rows), lengths)

    @property
    def comm_ns(self) -> int:
        """The time in which communication ran, barriers included."""
        return self._device.communication_time.measure_covered_ns(self._start_ns, self._end_ns)

    @property
    def comm_alone_ns(self) -> int | None:
        at_work_time, busy_ns = self._device.compute_or_transfer_time, self.lines.device_busy_ns
        if at_work_time is None or busy_ns is None or not self.comm_ns:
            return None
        return busy_ns - at_work_time.measure_covered_ns(self._start_ns, self._end_ns)

    @property
    def producer_kinds(self) -> Sequence[str]:
        """The kinds of producers to report, whether or not any of them blocked; a kind of which nothing ran is left
        out.
        """
        kinds = {
            PRODUCER_KINDS[COPY],
            PRODUCER_KINDS[MEMSET],
            *(kind for kind, ns in self.lines.blocking_ns.items() if ns),
        }
        if self.comm_ns:
            kinds.add(PRODUCER_KINDS[COLLECTIVE])
        if self._operations.own_count < len(self._operations):
            kinds.add(PRODUCER_KINDS[OTHER_DEVICE])
        return sorted(kinds)

    @cached_property
    def blocking_comm_ns(self) -> Mapping[str, int]:
        """The time in ns that collectives blocked, by stage; 0 for a stage whose communication ran but blocked
        nothing.
        """
        collective_parts = self._select_parts(BudgetPart.COLLECTIVE)
        codes, stages = self._operations.find_stages(self._operations.list_collectives(self._start_ns, self._end_ns))
        ns_by_stage = {stages[code]: 0 for (code,) in find_distinct_rows(codes)[1]}
        codes, stages = self._operations.find_stages(take(self._gaps.producers, collective_parts))
        ns_by_stage |= {stage: ns for stage, ns, _ in self._rank_by_length(collective_parts, stages.__getitem__, codes)}
        return dict(sorted(ns_by_stage.items()))

    @cached_property
    def blocking_comm_max_ns(self) -> int:
        """The time in ns in which the rank's communication ran in gaps, after the launch of the next kernel, whatever
        blocked it.
        """
        launched_parts = find_zeros(mark_equal(self._gaps.part_numbers, STARVED))
        spans = (take(column, launched_parts) for column in (self._gaps.start_ns, self._gaps.end_ns))
        return sum_column(self._device.communication_time.measure_cover_per_span(*spans))

    @cached_property
    def in_syncs(self) -> Mapping[str, int]:
        """The launch-starved time in ns that the thread which launched the next kernel spent in a waiting call, by
        call.
        """
        starved_parts, ns_by_call = self._sort_parts([BudgetPart.STARVED, BudgetPart.BETWEEN]), Counter[str]()
        for name, calls in _group_waiting_calls(self._gpu_track).items():
            ns_by_call[name] = sum_column(self._measure_in_calls(starved_parts, calls))
        return {name: ns for name, ns in ns_by_call.most_common() if ns}

    def _measure_in_calls(self, parts: Column, calls: Mapping[int, Intervals]) -> Column:
        """Measure for each part the time that the thread which launched the kernel at the end of the gap spent in
        calls, in ns.
        """
        standing_ns = array("q", [0]) * len(parts)
        followed_parts = find_zeros(mark_equal(self._find_waiting_kernels(parts), NO_OPERATION))
        threads = take(self._operations.kernel_calls.thread, self._find_waiting_kernels(take(parts, followed_parts)))
        for thread, thread_parts in group_indices_by(lambda thread: thread, threads).items():
            if thread in calls:
                part_rows = take(followed_parts, thread_parts)
                spans = (take(column, take(parts, part_rows)) for column in (self._gaps.start_ns, self._gaps.end_ns))
                for i, ns in zip(part_rows, calls[thread].measure_cover_per_span(*spans), strict=True):
                    standing_ns[i] = ns
        return standing_ns

    def find_next_thread(self, part: BudgetPart) -> int | None:
        """Return the thread that launched the kernel at the end of the last gap of a class; None if no launch is on
        record.
        """
        last_part = self._select_followed_parts(part)[-1:]
        return self._operations.kernel_calls.thread[self._find_waiting_kernels(last_part)[0]] if last_part else None

    def measure_waiting_calls(self, *, copies: bool = False) -> Column:
        """Measure for each launch-starved part, by start, the time that the launching thread spent in waiting calls, in
        ns.

        With ``copies``, asynchronous copy calls count, too.
        """
        calls_by_thread = {
            thread: Intervals.from_spans(
                (call.start_ns, call.end_ns) for call in thread_calls if copies or parse_waiting_call(call.name)
            )
            for thread, thread_calls in _group_calls_by_thread(self._gpu_track).items()
        }
        return self._measure_in_calls(self._sort_parts([BudgetPart.STARVED]), calls_by_thread)

    def _sort_parts(self, parts: Iterable[BudgetPart]) -> Column:
        """Return the rows of the parts of some classes, sorted by start."""
        part_rows = concatenate_columns([self._select_parts(part) for part in parts])
        return take(part_rows, sort_indices(part_rows))

    def _select_followed_parts(self, *parts: BudgetPart) -> Column:
        """Return the rows of the parts of some classes, by start, without those of a gap that no kernel ends."""
        part_rows = self._sort_parts(parts)
        return take(part_rows, find_zeros(mark_equal(self._find_waiting_kernels(part_rows), NO_OPERATION)))

    def _rank_by_length(
        self, parts: Column, key: Callable[..., K], *columns: Column | Flags
    ) -> list[tuple[K, int, int]]:
        """Sum parts by a key. Return each key with its total length and the number of gaps, the longest first."""
        numbers, rows = find_distinct_rows(*columns)
        keys = [key(*row) for row in rows]
        key_numbers = {row_key: number for number, row_key in enumerate(dict.fromkeys(keys))}
        numbers = take(array("q", [key_numbers[row_key] for row_key in keys]), numbers)
        key_order = sort_indices(numbers)
        first_parts = find_nonzero(
            mark_records(take(numbers, key_order), take(take(self._gaps.gap_numbers, parts), key_order))
        )
        gaps = count_numbers(take(take(numbers, key_order), first_parts), len(key_numbers))
        totals = zip(
            key_numbers, sum_by_number(numbers, self._measure_lengths(parts), len(key_numbers)), gaps, strict=True
        )
        return sorted(totals, key=lambda entry: (-entry[1], entry[0]))

    def list_producers(self) -> list[ProducerDelay]:
        """List which producers blocked which kernels, the longest first."""
        blocked_parts, work, name_of = (
            self._select_followed_parts(*BLOCKED_PARTS.values()),
            self._operations.work,
            self._operations.resolve_name,
        )
        producers, waiting_kernels = (
            take(self._gaps.producers, blocked_parts),
            self._find_waiting_kernels(blocked_parts),
        )
        codes, stages = self._operations.find_stages(producers)
        totals = self._rank_by_length(
            blocked_parts,
            lambda part, code, *ids: (_PRODUCER_KIND[PARTS[part]], name_of(*ids[:2]), stages[code], name_of(*ids[2:])),
            *(take(self._gaps.part_numbers, blocked_parts), codes),
            *(
                take(column, operations)
                for operations in (producers, waiting_kernels)
                for column in (work.name, work.full_name)
            ),
        )
        return [ProducerDelay(*labels, ns, gaps) for labels, ns, gaps in totals]

    def list_delays(self, *parts: BudgetPart) -> list[LaunchDelay]:
        """List the kernels that ended launch-starved or stalled time, the longest first; the tail has no such
        kernel.
        """
        delayed_parts, work, name_of = (
            self._select_followed_parts(*parts),
            self._operations.work,
            self._operations.resolve_name,
        )
        waiting_kernels = self._find_waiting_kernels(delayed_parts)
        codes, stages = self._operations.find_stages(waiting_kernels)
        columns = take(work.name, waiting_kernels), take(work.full_name, waiting_kernels), codes
        totals = self._rank_by_length(
            delayed_parts, lambda short, full, code: (name_of(short, full), stages[code]), *columns
        )
        return [LaunchDelay(parts[-1].value, *labels, ns, gaps) for labels, ns, gaps in totals]

    def sum_by_name(self) -> Iterator[tuple[BudgetPart, str | None, int]]:
        """Yield (class, name, ns) of the gaps; the name is the producer's, or else the full name of the kernel that
        waited.

        The name is None if no kernel ends the gap.
        """
        work = self._operations.work
        for part in PARTS:
            followed_parts = self._select_followed_parts(part)
            named_operations = (
                take(self._gaps.producers, followed_parts)
                if part in _PRODUCER_KIND
                else self._find_waiting_kernels(followed_parts)
            )
            totals = sum_values_by(
                self._operations.resolve_name,
                self._measure_lengths(followed_parts),
                take(work.name, named_operations),
                take(work.full_name, named_operations),
            )
            yield from ((part, name, ns) for name, (ns, _) in totals.items())
        for part in (BudgetPart.STARVED, BudgetPart.BETWEEN):
            if ns := self.lines.parts[part] - sum_column(self._measure_lengths(self._select_followed_parts(part))):
                yield part, None, ns

    def list_transfer_waits(self) -> Iterator[tuple[str, int, str, int]]:
        """Yield for each transfer that blocked: ``copy`` or ``memset``, its start, the full name of the kernel, and the
        ns.
        """
        blocked_parts, work = self._select_followed_parts(BudgetPart.COPY, BudgetPart.MEMSET), self._operations.work
        transfers, names = take(self._gaps.producers, blocked_parts), work.names
        name_columns = (
            take(column, operations)
            for operations in (transfers, self._find_waiting_kernels(blocked_parts))
            for column in (work.name, work.full_name)
        )
        producer, _, short, full = name_columns
        for start_ns, *ids, ns in zip(
            take(work.start_ns, transfers), producer, short, full, self._measure_lengths(blocked_parts), strict=True
        ):
            yield names[ids[0]], start_ns, self._operations.resolve_name(*ids[1:]), ns

    def list_gap_parts(self) -> Iterator[GapPart]:
        """Yield the parts of the gaps by start."""
        gaps = self._gaps
        operations = self._operations.build_operations(concatenate_columns([gaps.waiting_kernels, gaps.producers]))
        rows = zip(
            gaps.start_ns,
            gaps.end_ns,
            gaps.part_numbers,
            take(gaps.waiting_kernels, gaps.gap_numbers),
            gaps.producers,
            strict=True,
        )
        for start, end, part, waiting_kernel, producer in rows:
            yield GapPart(start, end, PARTS[part], operations.get(waiting_kernel), operations.get(producer))


_PRODUCER_KIND = {part: kind for kind, part in BLOCKED_PARTS.items()}


@memoize_method
def _group_waiting_calls(track: RankTrack) -> Mapping[str, Mapping[int, Intervals]]:
    """Group the times that threads of the process spent in calls which wait for the GPU, by call and thread."""
    spans_by_call: dict[str, dict[int, list[Interval]]] = {}
    for thread, calls in _group_calls_by_thread(track).items():
        for call_name, spans in group_by_key((call.name, (call.start_ns, call.end_ns)) for call in calls).items():
            if name := parse_waiting_call(call_name):
                spans_by_call.setdefault(name, {}).setdefault(thread, []).extend(spans)
    return {
        name: {thread: Intervals.from_spans(spans) for thread, spans in spans_by_thread.items()}
        for name, spans_by_thread in sorted(spans_by_call.items())
    }


@memoize_method
def _group_calls_by_thread(track: RankTrack) -> Mapping[int, Sequence[Api]]:
    """Group the calls that wait for the GPU or copy, as far as the windows of the rank may touch them, by thread."""
    calls = (track.trace_context.read_earlier_calls(SYNCHRONISING_CALLS) or {}).get(track.rank.process.global_pid, ())
    windows = track.window_group.windows_by_rank[track.rank.number]
    low_ns, high_ns = find_hull((w.start_ns - w.length_ns, w.end_ns + w.length_ns) for w in windows)
    return group_by_key((call.thread, call) for call in calls if call.start_ns <= high_ns and call.end_ns >= low_ns)


@memoize_method
def measure_budget(window: RankWindow) -> Budget:
    """Measure the budget of a window. Raises NoRows with the reason if it has none."""
    return Budget(window)


def measure_rank_budgets(windows: Mapping[int, Sequence[RankWindow]]) -> dict[int, Budget | NoRows]:
    """Return for each rank the budget that represents all of its windows, or the reason why it has none."""
    budgets: dict[int, Budget | NoRows] = {}
    for rank, rank_windows in windows.items():
        try:
            budgets[rank] = choose_rank_budget(rank_windows)
        except NoRows as error:
            budgets[rank] = error
    return budgets


def choose_rank_budget(windows: Sequence[RankWindow]) -> Budget:
    """Return, for several windows of a rank, the budget of the one with the lower median of ``compute_absent_ns``.

    Raises NoRows if one of them has no budget, or no length and so no shares.
    """
    sorted_windows = sorted(windows, key=compute_absent_ns)
    budget = measure_budget(sorted_windows[(len(windows) - 1) // 2])
    if not budget.lines.window_ns:
        raise NoRows("the window takes no time: its only kernels are of length 0")
    return budget


def build_budget_facts(budget: Budget) -> BudgetFacts:
    """Build the budget as plain data."""
    delay_parts = (BudgetPart.STARVED, BudgetPart.BETWEEN, BudgetPart.BESIDE, BudgetPart.STALLED)
    delays = [delay for part in delay_parts for delay in budget.list_delays(part)[:MAX_NAMED_ROWS]]
    delays.sort(key=lambda delay: (-delay.ns, delay.part, delay.waiting, delay.stage))
    return BudgetFacts(
        **{field.name: getattr(budget.lines, field.name) for field in fields(BudgetLines)},
        comm_alone_ns=budget.comm_alone_ns,
        tail_ns=budget.tail_ns,
        in_syncs=budget.in_syncs,
        blocking_comm_ns=budget.blocking_comm_ns,
        blocking_comm_max_ns=budget.blocking_comm_max_ns,
        producers=budget.list_producers()[:MAX_NAMED_ROWS],
        before=delays[:MAX_NAMED_ROWS],
    )


def device_idle_ns(window: RankWindow) -> int | None:
    """Time in which no kernel, copy or memset runs, per rank: ``idle_ns`` counts copies and memsets as idle."""
    busy = get_gpu_track(window).busy_time
    return None if busy is None else window.length_ns - busy.measure_covered_ns(window.start_ns, window.end_ns)


def compute_absent_ns(window: RankWindow) -> int:
    """Time in which no compute kernel runs, per rank: what a faster step has to win back."""
    compute = get_gpu_track(window).compute_time
    return window.length_ns - compute.measure_covered_ns(window.start_ns, window.end_ns)


def comm_alone_ns(window: RankWindow) -> int | None:
    """Time with communication alone, barriers included, per rank.

    No row where nothing communicates in the window: 0 would be green on nothing.
    """
    device, span = get_gpu_track(window), (window.start_ns, window.end_ns)
    if not device.communication_time.measure_covered_ns(*span):
        raise NoRows(NO_COMMUNICATION)
    if device.busy_time is None or device.compute_or_transfer_time is None:
        return None
    return device.busy_time.measure_covered_ns(*span) - device.compute_or_transfer_time.measure_covered_ns(*span)


def launch_starved_ns(window: RankWindow) -> int:
    """No compute: the next kernel was not launched yet, per rank.

    Where no compute follows, all of the time is launch-starved; where that kernel has no launch row, none of it is.
    """
    return measure_budget(window).lines.launch_starved_ns


def find_host_activity(window: RankWindow) -> str:
    """Return the name of the longest range, or waiting call, that the launching thread was in between two steps.

    It must cover most of that time. Empty if there is none on record.
    """
    budget, track = measure_budget(window), window.track
    spans, thread = budget.select_gap_parts(BudgetPart.BETWEEN), budget.find_next_thread(BudgetPart.BETWEEN)
    if thread is None:
        return ""
    process, between_spans = track.rank.process.global_pid, Intervals(spans.start_ns, spans.end_ns)
    marks = {mark.name for mark in track.window_group.run.find_anchors_of_kind(track.rank, track.window_group.spec)}
    ranges = track.trace_context.trace.ranges_around({process: (spans.start_ns[0], spans.end_ns[-1])}).get(process, ())
    calls = (
        (call.start_ns, call.end_ns, parse_waiting_call(call.name))
        for call in _group_calls_by_thread(track.gpu_track).get(thread, ())
    )
    host_spans = [call for call in calls if call[2]]
    host_spans += ((r.start_ns, r.end_ns, r.name) for r in ranges if r.thread == thread and r.name not in marks)
    long_spans = [
        (end_ns - start_ns, name)
        for start_ns, end_ns, name in host_spans
        if start_ns > window.window.start_ns  # a range longer than a step says nothing about this time
        and 2 * between_spans.measure_covered_ns(start_ns, end_ns) > between_spans.total_ns
    ]
    return max(long_spans, default=(0, ""))[1]


def between_steps_ns(window: RankWindow) -> int | None:
    """No compute: the step's own work had ended, and the next step was not launched yet, per rank.

    It is a part of ``launch_starved_ns``. The last step of a run has no next one, and no row.
    """
    return measure_budget(window).lines.between_steps_ns


def blocking_ns(window: RankWindow) -> Mapping[str, int]:
    """No compute: the next kernel's input was still being produced, per (rank, producer).

    A producer is a ``collective``, ``copy``, ``memset``, or ``other_device``: anything on another device of the
    process. The kernel depends on the operation before it on its stream and on what its stream waited for, through any
    number of operations; each moment is credited to what ran then. 0 of what blocked nothing.
    """
    budget = _measure_complete_budget(window)
    return {} if budget is None else {kind: budget.lines.blocking_ns[kind] for kind in budget.producer_kinds}


def dependency_stalled_ns(window: RankWindow) -> int | None:
    """No compute: launched, and nothing it is known to depend on ran, per rank."""
    budget = _measure_complete_budget(window)
    return None if budget is None else budget.lines.dependency_stalled_ns


def blocking_comm_ns(window: RankWindow) -> Mapping[str, int]:
    """``blocking_ns`` of collectives, per (rank, stage of the collective): proven by an edge, so a lower bound."""
    budget = _measure_communication_budget(window)
    return {} if budget is None else budget.blocking_comm_ns


def blocking_comm_max_ns(window: RankWindow) -> int | None:
    """No compute: the next kernel was launched, and communication ran, whatever blocked it, per rank.

    An upper bound of what communication blocked.
    """
    budget = _measure_communication_budget(window)
    return None if budget is None else budget.blocking_comm_max_ns


def _measure_complete_budget(window: RankWindow) -> Budget | None:
    """Measure the budget; None if the trace does not say when copies ran, because one of them may have blocked."""
    budget = measure_budget(window)
    return None if budget.lines.device_busy_ns is None else budget


def _measure_communication_budget(window: RankWindow) -> Budget | None:
    """Measure the budget of a window with communication. Raises NoRows if nothing communicates."""
    budget = _measure_complete_budget(window)
    if budget is not None and not budget.comm_ns and not budget.blocking_comm_ns:
        raise NoRows(NO_COMMUNICATION)
    return budget


def blocking_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """Yield why blocked time is a bound, and both bounds of what communication blocked where they are furthest
    apart.
    """
    budgets = _list_budgets(captures, spec)
    yield from map(Note, describe_uncertain_edges(budget.lines for _, budget in budgets))
    lower_bounds = {budget: sum(budget.blocking_comm_ns.values()) for _, budget in budgets}
    rank, widest = max(
        budgets, key=lambda entry: entry[1].blocking_comm_max_ns - lower_bounds[entry[1]], default=(0, None)
    )
    if widest is not None and widest.blocking_comm_max_ns > lower_bounds[widest]:
        low, high = format_in_one_unit([lower_bounds[widest], widest.blocking_comm_max_ns])
        yield Note(f"rank {rank}: collectives blocked for {low} to {high} (blocking_comm_max_ns)")


def host_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """Yield notes on launch-starved time: gaps without a launch row, the tail, and where the host was meanwhile."""
    ranked_budgets = _list_budgets(captures, spec)
    budgets = [budget for _, budget in ranked_budgets]
    starved = sum(budget.lines.launch_starved_ns for budget in budgets)
    ns_by_cause = Counter({"after the last kernel": sum(budget.tail_ns for budget in budgets)})
    for budget in budgets:
        ns_by_cause.update({f"while the host was in {call}": ns for call, ns in budget.in_syncs.items()})
    yield from map(Note, describe_uncertain_gaps([budget.lines for budget in budgets]))
    scale = choose_scale([starved], TIME)
    rank_count = len({rank for rank, _ in ranked_budgets})
    place = f"on {rank_count} ranks" if len(budgets) == rank_count else f"in {len(budgets)} windows"
    windows_text = f" {place} together" if len(budgets) > 1 else ""
    for cause, ns in ns_by_cause.items():
        if ns:
            total_text, part_text = (format_value(ns_value, scale=scale) for ns_value in (starved, ns))
            yield Note(f"launch-starved for {total_text}{windows_text}, of which {part_text} {cause}")


def _list_budgets(captures: Sequence[Run], spec: WindowSpec) -> list[tuple[int, Budget]]:
    """Return each budget with its rank, for the windows that have one."""
    budgets = []
    for window in (window for run in captures for window in run.load_windows(spec)):
        if len(window):
            with suppress(NoRows):
                budgets.append((window.rank.number, measure_budget(window)))
    return budgets
