"""What holds the step back: how does the time of a window on the GPU divide into nothing, compute, communication and
copies?

All of it is about the device: whatever ran in the window's time counts, cut at its edges, also under ``contained``,
whose other metrics leave out what crosses an edge. Under ``launched`` the window goes from the start of its first
kernel to the end of its last, and what others launched and ran meanwhile counts, too. Communication, barriers and
copies that the convention counts as such included, is never a copy. The parts of one window add up, so of several
windows or captures each rank shows one (``window_by`` in ``metrics.py``).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cached_property
from typing import NamedTuple, TypeVar

from pytest_nsys.analysis.budget.between_steps import own_work_until
from pytest_nsys.analysis.budget.gaps import PARTS, STARVED, Waiting, waiting_around
from pytest_nsys.analysis.budget.operations import COLLECTIVE, COPY, KINDS, MEMSET, NONE, OTHER_DEVICE, Operation
from pytest_nsys.analysis.explain.budget_lines import (
    BLOCKED,
    MOST,
    Blocking,
    BudgetFacts,
    BudgetLines,
    BudgetPart,
    Delayed,
    about_edges,
    about_gaps,
)
from pytest_nsys.analysis.metrics.activity import SYNCHRONISING_CALLS, waiting_call
from pytest_nsys.analysis.metrics.gpu_state import device_of
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.analysis.windows.tracks import RankTrack
from pytest_nsys.core.columns import (
    NEVER,
    Column,
    Flags,
    chained,
    counts,
    distinct,
    equal,
    members_by,
    minus,
    order,
    records,
    sums,
    sums_by,
    take,
    total,
    where,
    where_not,
)
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.intervals import Intervals, hull
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.model import NO_LAUNCH, Api, Interval, Note
from pytest_nsys.core.numbers import format_together, format_value, scale_of
from pytest_nsys.core.units import TIME

K = TypeVar("K", bound=Hashable)

NO_COMMUNICATION = "no communication kernel runs in the window"


class GapPart(NamedTuple):
    """Describes one part of a gap, with the kernel that waited and what it waited for."""

    start_ns: int
    end_ns: int
    part: BudgetPart
    # The compute kernel that ends the gap, perhaps after the window; None where none follows.
    waiting: Operation | None = None
    producer: Operation | None = None  # what ran in the part that this kernel depends on


class PartsOfGaps(NamedTuple):
    """Holds parts of gaps by start, one column for each property."""

    start_ns: Column
    end_ns: Column
    kernel_ns: Column  # of the kernel that ends the gap, NO_OPERATION where none does

    @property
    def ns(self) -> Column:
        """The length of each part."""
        return minus(self.end_ns, self.start_ns)


class Budget:
    """Divides the time of a window on the GPU by what ran and by what held the next compute back. Lengths are in ns."""

    def __init__(self, window: RankWindow) -> None:
        self.window, self._track = window, window.track.on_gpu
        self._low, self._high = window.start_ns, window.end_ns
        self._device = device_of(window)
        # Of a single window nothing is asked twice: what its gaps depend on is not kept.
        has_several_windows = len(self._track.group.ranks[window.rank.number]) > 1
        compute_waits = waiting_around(self._track) if has_several_windows else Waiting(self._track)
        own_work_end_ns = own_work_until(window)
        self._ran = compute_waits.operations
        self._gaps = gaps = compute_waits.gaps(
            self._low, self._high, NEVER if own_work_end_ns is None else own_work_end_ns
        )
        ending_kernels = take(gaps.waiting, where_not(equal(gaps.waiting, NONE)))
        without_launch = total(equal(take(self._ran.kernel_calls.end_ns, ending_kernels), NO_LAUNCH))
        if without_launch == len(ending_kernels) > 0:
            problem = "no kernel that ends a gap has a launch row, so when the host issued it is unknown"
            raise NoRows(f"{problem}: {window.track.around.facts.to_see_calls}")
        computed_ns, busy = self._device.compute_time.covered_ns(self._low, self._high), self._device.busy_time
        self.lines = BudgetLines(
            parts={part: total(self._length_ns(self._of(part))) for part in PARTS} | {BudgetPart.COMPUTE: computed_ns},
            has_next=own_work_end_ns is not None,
            device_busy_ns=None if busy is None else busy.covered_ns(self._low, self._high),
            gaps=len(gaps.waiting),
            gaps_without_launch=without_launch,
            contradicted=gaps.contradicted,
            unordered=len(compute_waits.unordered),
            waits_recorded=compute_waits.recorded,
            waits=compute_waits.waits,
            waits_joined=compute_waits.joined,
        )
        has_tail = gaps.waiting[-1:] == array("q", [NONE])
        self.tail_ns = gaps.end_ns[-1] - gaps.start_ns[-1] if has_tail else 0

    def _of(self, part: BudgetPart) -> Column:
        """Return the rows of the parts of gaps of one class, by start."""
        return where(equal(self._gaps.part, PARTS.index(part)))

    def _length_ns(self, own: Column) -> Column:
        return minus(take(self._gaps.end_ns, own), take(self._gaps.start_ns, own))

    def _waiting(self, own: Column) -> Column:
        return take(self._gaps.waiting, take(self._gaps.gap, own))

    def spans(self, *parts: BudgetPart) -> PartsOfGaps:
        """Return the parts of gaps of some classes by start, with the length of the kernel that waited."""
        part_rows, work = self._by_start(parts), self._ran.work
        waiting_kernels = self._waiting(part_rows)
        lengths = minus(take(work.end_ns, waiting_kernels), take(work.start_ns, waiting_kernels))
        for i in where(equal(waiting_kernels, NONE)):
            lengths[i] = NONE
        return PartsOfGaps(take(self._gaps.start_ns, part_rows), take(self._gaps.end_ns, part_rows), lengths)

    @property
    def comm_ns(self) -> int:
        """The time in which communication ran, barriers included."""
        return self._device.communication_time.covered_ns(self._low, self._high)

    @property
    def comm_alone_ns(self) -> int | None:
        at_work_time, busy_ns = self._device.at_work_time, self.lines.device_busy_ns
        if at_work_time is None or busy_ns is None or not self.comm_ns:
            return None
        return busy_ns - at_work_time.covered_ns(self._low, self._high)

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of producers to report, whether any of them blocked or not; a kind of which nothing ran is left
        out.
        """
        kinds = {KINDS[COPY], KINDS[MEMSET], *(kind for kind, ns in self.lines.blocking_ns.items() if ns)}
        if self.comm_ns:
            kinds.add(KINDS[COLLECTIVE])
        if self._ran.own < len(self._ran):
            kinds.add(KINDS[OTHER_DEVICE])
        return sorted(kinds)

    @cached_property
    def blocking_comm_ns(self) -> Mapping[str, int]:
        """The time that collectives blocked by stage; 0 for a stage whose communication ran and blocked nothing."""
        collective_parts = self._of(BudgetPart.COLLECTIVE)
        codes, stages = self._ran.stages(self._ran.collectives(self._low, self._high))
        ns_by_stage = {stages[code]: 0 for (code,) in distinct(codes)[1]}
        codes, stages = self._ran.stages(take(self._gaps.producer, collective_parts))
        ns_by_stage |= {stage: ns for stage, ns, _ in self._longest(collective_parts, stages.__getitem__, codes)}
        return dict(sorted(ns_by_stage.items()))

    @cached_property
    def blocking_comm_max_ns(self) -> int:
        """The time in which communication of the rank ran in gaps after the launch, whatever blocked then."""
        launched_parts = where_not(equal(self._gaps.part, STARVED))
        spans = (take(column, launched_parts) for column in (self._gaps.start_ns, self._gaps.end_ns))
        return total(self._device.communication_time.covered(*spans))

    @cached_property
    def in_syncs(self) -> Mapping[str, int]:
        """The launch-starved time in which the thread that launched the kernel stood in a call that waits, by call."""
        starved_parts, ns_by_call = self._by_start([BudgetPart.STARVED, BudgetPart.BETWEEN]), Counter[str]()
        for name, calls in _synchronising(self._track).items():
            ns_by_call[name] = total(self._measure_standing(starved_parts, calls))
        return {name: ns for name, ns in ns_by_call.most_common() if ns}

    def _measure_standing(self, parts: Column, calls: Mapping[int, Intervals]) -> Column:
        """Measure for each part how long the thread that launched the kernel which ends the gap stood in calls."""
        standing_ns = array("q", [0]) * len(parts)
        followed_parts = where_not(equal(self._waiting(parts), NONE))
        threads = take(self._ran.kernel_calls.thread, self._waiting(take(parts, followed_parts)))
        for thread, thread_parts in members_by(lambda thread: thread, threads).items():
            if thread in calls:
                part_rows = take(followed_parts, thread_parts)
                spans = (take(column, take(parts, part_rows)) for column in (self._gaps.start_ns, self._gaps.end_ns))
                for i, ns in zip(part_rows, calls[thread].covered(*spans), strict=True):
                    standing_ns[i] = ns
        return standing_ns

    def thread_after(self, part: BudgetPart) -> int | None:
        """Return the thread that launched what ends the last gap of a class; None where nothing on record does."""
        last_part = self._followed(part)[-1:]
        return self._ran.kernel_calls.thread[self._waiting(last_part)[0]] if last_part else None

    def waiting_in_calls(self, *, copies: bool = False) -> Column:
        """Measure for each launch-starved part, by start, how long the thread that launched the kernel stood in waiting
        calls.

        With ``copies`` calls that copy asynchronously count, too.
        """
        calls_by_thread = {
            thread: Intervals.of(
                (call.start_ns, call.end_ns) for call in thread_calls if copies or waiting_call(call.name)
            )
            for thread, thread_calls in _calls(self._track).items()
        }
        return self._measure_standing(self._by_start([BudgetPart.STARVED]), calls_by_thread)

    def _by_start(self, parts: Iterable[BudgetPart]) -> Column:
        """Return the rows of the parts of some classes, sorted by start."""
        part_rows = chained([self._of(part) for part in parts])
        return take(part_rows, order(part_rows))

    def _followed(self, *parts: BudgetPart) -> Column:
        """Return the rows of the parts of some classes, by start, in gaps that a kernel ends."""
        part_rows = self._by_start(parts)
        return take(part_rows, where_not(equal(self._waiting(part_rows), NONE)))

    def _longest(self, own: Column, key: Callable[..., K], *columns: Column | Flags) -> list[tuple[K, int, int]]:
        """Sum parts by a key. Return each key with its total length and the number of gaps, the longest first."""
        numbers, rows = distinct(*columns)
        keys = [key(*row) for row in rows]
        key_numbers = {row_key: number for number, row_key in enumerate(dict.fromkeys(keys))}
        numbers = take(array("q", [key_numbers[row_key] for row_key in keys]), numbers)
        key_order = order(numbers)
        first_parts = where(records(take(numbers, key_order), take(take(self._gaps.gap, own), key_order)))
        gaps = counts(take(take(numbers, key_order), first_parts), len(key_numbers))
        totals = zip(key_numbers, sums(numbers, self._length_ns(own), len(key_numbers)), gaps, strict=True)
        return sorted(totals, key=lambda entry: (-entry[1], entry[0]))

    def producers(self) -> list[Blocking]:
        """List which producers blocked which kernels, the longest first."""
        blocked_parts, work, name_of = self._followed(*BLOCKED.values()), self._ran.work, self._ran.name_of
        producers, waiting_kernels = take(self._gaps.producer, blocked_parts), self._waiting(blocked_parts)
        codes, stages = self._ran.stages(producers)
        totals = self._longest(
            blocked_parts,
            lambda part, code, *ids: (_KIND[PARTS[part]], name_of(*ids[:2]), stages[code], name_of(*ids[2:])),
            *(take(self._gaps.part, blocked_parts), codes),
            *(
                take(column, operations)
                for operations in (producers, waiting_kernels)
                for column in (work.name, work.full_name)
            ),
        )
        return [Blocking(*labels, ns, gaps) for labels, ns, gaps in totals]

    def before(self, *parts: BudgetPart) -> list[Delayed]:
        """List the kernels before which launch-starved or stalled time lay, the longest first; the tail has none."""
        delayed_parts, work, name_of = self._followed(*parts), self._ran.work, self._ran.name_of
        waiting_kernels = self._waiting(delayed_parts)
        codes, stages = self._ran.stages(waiting_kernels)
        columns = take(work.name, waiting_kernels), take(work.full_name, waiting_kernels), codes
        totals = self._longest(delayed_parts, lambda short, full, code: (name_of(short, full), stages[code]), *columns)
        return [Delayed(parts[-1].value, *labels, ns, gaps) for labels, ns, gaps in totals]

    def names(self) -> Iterator[tuple[BudgetPart, str | None, int]]:
        """Yield the length of each class of gaps by what blocked, else by the full name of the kernel that waited.

        The name is None where no kernel ends the gap.
        """
        work = self._ran.work
        for part in PARTS:
            followed_parts = self._followed(part)
            named_operations = (
                take(self._gaps.producer, followed_parts) if part in _KIND else self._waiting(followed_parts)
            )
            totals = sums_by(
                self._ran.name_of,
                self._length_ns(followed_parts),
                take(work.name, named_operations),
                take(work.full_name, named_operations),
            )
            yield from ((part, name, ns) for name, (ns, _) in totals.items())
        for part in (BudgetPart.STARVED, BudgetPart.BETWEEN):
            if ns := self.lines.parts[part] - total(self._length_ns(self._followed(part))):
                yield part, None, ns

    def held_by_transfers(self) -> Iterator[tuple[str, int, str, int]]:
        """Yield for each transfer that blocked ``copy`` or ``memset``, its start, the full name of the kernel, and for
        how long.
        """
        blocked_parts, work = self._followed(BudgetPart.COPY, BudgetPart.MEMSET), self._ran.work
        transfers, names = take(self._gaps.producer, blocked_parts), work.names
        name_columns = (
            take(column, operations)
            for operations in (transfers, self._waiting(blocked_parts))
            for column in (work.name, work.full_name)
        )
        producer, _, short, full = name_columns
        for start_ns, *ids, ns in zip(
            take(work.start_ns, transfers), producer, short, full, self._length_ns(blocked_parts), strict=True
        ):
            yield names[ids[0]], start_ns, self._ran.name_of(*ids[1:]), ns

    def each(self) -> Iterator[GapPart]:
        """Yield the parts of the gaps by start."""
        gaps = self._gaps
        operations = self._ran.told(chained([gaps.waiting, gaps.producer]))
        rows = zip(gaps.start_ns, gaps.end_ns, gaps.part, take(gaps.waiting, gaps.gap), gaps.producer, strict=True)
        for start, end, part, waiting_kernel, producer in rows:
            yield GapPart(start, end, PARTS[part], operations.get(waiting_kernel), operations.get(producer))


_KIND = {part: kind for kind, part in BLOCKED.items()}


@kept
def _synchronising(track: RankTrack) -> Mapping[str, Mapping[int, Intervals]]:
    """Group the times in which threads of the process stood in calls that wait for the GPU, by call and thread."""
    spans_by_call: dict[str, dict[int, list[Interval]]] = {}
    for thread, calls in _calls(track).items():
        for call_name, spans in grouped((call.name, (call.start_ns, call.end_ns)) for call in calls).items():
            if name := waiting_call(call_name):
                spans_by_call.setdefault(name, {}).setdefault(thread, []).extend(spans)
    return {
        name: {thread: Intervals.of(spans) for thread, spans in spans_by_thread.items()}
        for name, spans_by_thread in sorted(spans_by_call.items())
    }


@kept
def _calls(track: RankTrack) -> Mapping[int, Sequence[Api]]:
    """Group the calls of the rank's process that wait for the GPU or copy by thread, as far as its windows may touch
    them.
    """
    calls = (track.around.read_earlier_calls(SYNCHRONISING_CALLS) or {}).get(track.rank.process.global_pid, ())
    windows = track.group.ranks[track.rank.number]
    low_ns, high_ns = hull((w.start_ns - w.length_ns, w.end_ns + w.length_ns) for w in windows)
    return grouped((call.thread, call) for call in calls if call.start_ns <= high_ns and call.end_ns >= low_ns)


@kept
def budget_of(window: RankWindow) -> Budget:
    """Measure the budget of a window. Raises NoRows where it has none, and says why."""
    return Budget(window)


def find_budgets(windows: Mapping[int, Sequence[RankWindow]]) -> dict[int, Budget | NoRows]:
    """Return for each rank the budget that stands for all of its windows, or why it has none."""
    budgets: dict[int, Budget | NoRows] = {}
    for rank, rank_windows in windows.items():
        try:
            budgets[rank] = choose_budget(rank_windows)
        except NoRows as error:
            budgets[rank] = error
    return budgets


def choose_budget(windows: Sequence[RankWindow]) -> Budget:
    """Return the budget of the window with the lower median of ``compute_absent_ns``, for several windows of a rank.

    Raises NoRows where one of them has none, or where it takes no time: it has no shares.
    """
    sorted_windows = sorted(windows, key=compute_absent_ns)
    budget = budget_of(sorted_windows[(len(windows) - 1) // 2])
    if not budget.lines.window_ns:
        raise NoRows("the window takes no time: its only kernels are of length 0")
    return budget


def facts_of(budget: Budget) -> BudgetFacts:
    """Build the budget as plain data."""
    delay_parts = (BudgetPart.STARVED, BudgetPart.BETWEEN, BudgetPart.BESIDE, BudgetPart.STALLED)
    delays = [delay for part in delay_parts for delay in budget.before(part)[:MOST]]
    delays.sort(key=lambda delay: (-delay.ns, delay.part, delay.waiting, delay.stage))
    return BudgetFacts(
        **{field.name: getattr(budget.lines, field.name) for field in fields(BudgetLines)},
        comm_alone_ns=budget.comm_alone_ns,
        tail_ns=budget.tail_ns,
        in_syncs=budget.in_syncs,
        blocking_comm_ns=budget.blocking_comm_ns,
        blocking_comm_max_ns=budget.blocking_comm_max_ns,
        producers=budget.producers()[:MOST],
        before=delays[:MOST],
    )


def device_idle_ns(window: RankWindow) -> int | None:
    """Time in which no kernel, copy or memset runs, per rank: ``idle_ns`` counts copies and memsets as idle."""
    busy = device_of(window).busy_time
    return None if busy is None else window.length_ns - busy.covered_ns(window.start_ns, window.end_ns)


def compute_absent_ns(window: RankWindow) -> int:
    """Time in which no compute kernel runs, per rank: what a faster step has to win back."""
    compute = device_of(window).compute_time
    return window.length_ns - compute.covered_ns(window.start_ns, window.end_ns)


def comm_alone_ns(window: RankWindow) -> int | None:
    """Time with communication alone, barriers included, per rank.

    No row where nothing communicates in the window: 0 would be green on nothing.
    """
    device, span = device_of(window), (window.start_ns, window.end_ns)
    if not device.communication_time.covered_ns(*span):
        raise NoRows(NO_COMMUNICATION)
    if device.busy_time is None or device.at_work_time is None:
        return None
    return device.busy_time.covered_ns(*span) - device.at_work_time.covered_ns(*span)


def launch_starved_ns(window: RankWindow) -> int:
    """No compute: the next kernel was not launched yet, per rank.

    Where no compute follows, all of the time is launch-starved; where that kernel has no launch row, none of it is.
    """
    return budget_of(window).lines.launch_starved_ns


def host_between(window: RankWindow) -> str:
    """Return the name of the longest range, or waiting call, that the launching thread was in between two steps.

    It has to cover most of that time. Empty where none is on record.
    """
    budget, track = budget_of(window), window.track
    spans, thread = budget.spans(BudgetPart.BETWEEN), budget.thread_after(BudgetPart.BETWEEN)
    if thread is None:
        return ""
    process, between_spans = track.rank.process.global_pid, Intervals(spans.start_ns, spans.end_ns)
    marks = {mark.name for mark in track.group.run.marks(track.rank, track.group.spec)}
    ranges = track.around.trace.ranges_around({process: (spans.start_ns[0], spans.end_ns[-1])}).get(process, ())
    calls = ((call.start_ns, call.end_ns, waiting_call(call.name)) for call in _calls(track.on_gpu).get(thread, ()))
    host_spans = [call for call in calls if call[2]]
    host_spans += ((r.start_ns, r.end_ns, r.name) for r in ranges if r.thread == thread and r.name not in marks)
    long_spans = [
        (end_ns - start_ns, name)
        for start_ns, end_ns, name in host_spans
        if start_ns > window.window.start_ns  # what goes on for longer than a step says nothing of this time
        and 2 * between_spans.covered_ns(start_ns, end_ns) > between_spans.total_ns
    ]
    return max(long_spans, default=(0, ""))[1]


def between_steps_ns(window: RankWindow) -> int | None:
    """No compute: the step's own work had ended, and the next step was not launched yet, per rank.

    It is a part of ``launch_starved_ns``. The last step of a run has no next one, and no row.
    """
    return budget_of(window).lines.between_steps_ns


def blocking_ns(window: RankWindow) -> Mapping[str, int]:
    """No compute: the next kernel's input was still being produced, per (rank, producer).

    A producer is a ``collective``, ``copy``, ``memset``, or ``other_device``: anything on another device of the
    process. The kernel depends on the operation before it on its stream and on what its stream waited for, through any
    number of operations; each moment is credited to what ran then. 0 of what blocked nothing.
    """
    budget = _of_all_work(window)
    return {} if budget is None else {kind: budget.lines.blocking_ns[kind] for kind in budget.kinds}


def dependency_stalled_ns(window: RankWindow) -> int | None:
    """No compute: launched, and nothing it is known to depend on ran, per rank."""
    budget = _of_all_work(window)
    return None if budget is None else budget.lines.dependency_stalled_ns


def blocking_comm_ns(window: RankWindow) -> Mapping[str, int]:
    """``blocking_ns`` of collectives, per (rank, stage of the collective): proven by an edge, so a lower bound."""
    budget = _of_communication(window)
    return {} if budget is None else budget.blocking_comm_ns


def blocking_comm_max_ns(window: RankWindow) -> int | None:
    """No compute: the next kernel was launched, and communication ran, whatever blocked it, per rank.

    An upper bound of what communication blocked.
    """
    budget = _of_communication(window)
    return None if budget is None else budget.blocking_comm_max_ns


def _of_all_work(window: RankWindow) -> Budget | None:
    """Measure the budget, or return None where the trace does not say when copies ran: one of them may have blocked."""
    budget = budget_of(window)
    return None if budget.lines.device_busy_ns is None else budget


def _of_communication(window: RankWindow) -> Budget | None:
    """Measure the budget of a window with communication. Raises NoRows where nothing communicates."""
    budget = _of_all_work(window)
    if budget is not None and not budget.comm_ns and not budget.blocking_comm_ns:
        raise NoRows(NO_COMMUNICATION)
    return budget


def blocking_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """Yield why blocked time is a bound, and both ends of what communication blocked where they are furthest apart."""
    budgets = _budgets(captures, spec)
    yield from map(Note, about_edges(budget.lines for _, budget in budgets))
    lower_bounds = {budget: sum(budget.blocking_comm_ns.values()) for _, budget in budgets}
    rank, widest = max(
        budgets, key=lambda entry: entry[1].blocking_comm_max_ns - lower_bounds[entry[1]], default=(0, None)
    )
    if widest is not None and widest.blocking_comm_max_ns > lower_bounds[widest]:
        low, high = format_together([lower_bounds[widest], widest.blocking_comm_max_ns])
        yield Note(f"rank {rank}: collectives blocked for {low} to {high} (blocking_comm_max_ns)")


def host_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """Yield notes on launch-starved time: gaps without a launch row, the tail, and where the host was meanwhile."""
    budgets = [budget for _, budget in _budgets(captures, spec)]
    starved = sum(budget.lines.launch_starved_ns for budget in budgets)
    ns_by_cause = Counter({"after the last kernel": sum(budget.tail_ns for budget in budgets)})
    for budget in budgets:
        ns_by_cause.update({f"while the host was in {call}": ns for call, ns in budget.in_syncs.items()})
    yield from map(Note, about_gaps([budget.lines for budget in budgets]))
    scale = scale_of([starved], TIME)
    for cause, ns in ns_by_cause.items():
        if ns:
            total_text, part_text = (format_value(ns_value, scale=scale) for ns_value in (starved, ns))
            yield Note(f"launch-starved for {total_text}, of which {part_text} {cause}")


def _budgets(captures: Sequence[Run], spec: WindowSpec) -> list[tuple[int, Budget]]:
    """Return each budget with its rank, for the windows that have one."""
    budgets = []
    for window in (window for run in captures for window in run.measured(spec)):
        if len(window):
            with suppress(NoRows):
                budgets.append((window.rank.number, budget_of(window)))
    return budgets
