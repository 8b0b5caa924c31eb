"""What holds the step back? The time of a window on the GPU, by what ran: nothing, compute, communication, copies.

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
    """One part of a gap: the compute kernel that ends it, perhaps after the window, None where none follows, and what
    ran in it that this one depends on.
    """

    start_ns: int
    end_ns: int
    part: BudgetPart
    waiting: Operation | None = None
    producer: Operation | None = None


class PartsOfGaps(NamedTuple):
    """Parts of gaps by start, and how long the kernel is that ends the gap: NONE where none does."""

    start_ns: Column
    end_ns: Column
    kernel_ns: Column

    @property
    def ns(self) -> Column:
        """How long each is."""
        return minus(self.end_ns, self.start_ns)


class Budget:
    """The time of a window on the GPU, by what ran and by what held the next compute back. Lengths are in ns."""

    def __init__(self, window: RankWindow) -> None:
        self.window, self._track = window, window.track.on_gpu
        self._low, self._high = window.start_ns, window.end_ns
        self._device = device_of(window)
        # of a single window nothing is asked twice, and what its gaps depend on is let go
        several = len(self._track.group.ranks[window.rank.number]) > 1
        waited = waiting_around(self._track) if several else Waiting(self._track)
        own_until = own_work_until(window)
        self._ran = waited.operations
        self._gaps = gaps = waited.gaps(self._low, self._high, NEVER if own_until is None else own_until)
        ends = take(gaps.waiting, where_not(equal(gaps.waiting, NONE)))
        without_launch = total(equal(take(self._ran.kernel_calls.end_ns, ends), NO_LAUNCH))
        if without_launch == len(ends) > 0:
            what = "no kernel that ends a gap has a launch row, so when the host issued it is unknown"
            raise NoRows(f"{what}: {window.track.around.facts.to_see_calls}")
        computed_ns, busy = self._device.compute_time.covered_ns(self._low, self._high), self._device.busy_time
        self.lines = BudgetLines(
            parts={part: total(self._length_ns(self._of(part))) for part in PARTS} | {BudgetPart.COMPUTE: computed_ns},
            has_next=own_until is not None,
            device_busy_ns=None if busy is None else busy.covered_ns(self._low, self._high),
            gaps=len(gaps.waiting),
            gaps_without_launch=without_launch,
            contradicted=gaps.contradicted,
            unordered=len(waited.unordered),
            waits_recorded=waited.recorded,
            waits=waited.waits,
            waits_joined=waited.joined,
        )
        tail = gaps.waiting[-1:] == array("q", [NONE])
        self.tail_ns = gaps.end_ns[-1] - gaps.start_ns[-1] if tail else 0

    def _of(self, part: BudgetPart) -> Column:
        """The parts of gaps of one class, by start."""
        return where(equal(self._gaps.part, PARTS.index(part)))

    def _length_ns(self, own: Column) -> Column:
        return minus(take(self._gaps.end_ns, own), take(self._gaps.start_ns, own))

    def _waiting(self, own: Column) -> Column:
        return take(self._gaps.waiting, take(self._gaps.gap, own))

    def spans(self, *parts: BudgetPart) -> PartsOfGaps:
        """The parts of gaps of some classes, with what waited."""
        own, work = self._by_start(parts), self._ran.work
        waiting = self._waiting(own)
        lengths = minus(take(work.end_ns, waiting), take(work.start_ns, waiting))
        for i in where(equal(waiting, NONE)):
            lengths[i] = NONE
        return PartsOfGaps(take(self._gaps.start_ns, own), take(self._gaps.end_ns, own), lengths)

    @property
    def comm_ns(self) -> int:
        """How long communication ran, barriers included."""
        return self._device.communication_time.covered_ns(self._low, self._high)

    @property
    def comm_alone_ns(self) -> int | None:
        at_work, busy_ns = self._device.at_work_time, self.lines.device_busy_ns
        if at_work is None or busy_ns is None or not self.comm_ns:
            return None
        return busy_ns - at_work.covered_ns(self._low, self._high)

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of producer that are told of, if any blocked: what did not run is no kind that did not block."""
        may = {KINDS[COPY], KINDS[MEMSET], *(kind for kind, ns in self.lines.blocking_ns.items() if ns)}
        if self.comm_ns:
            may.add(KINDS[COLLECTIVE])
        if self._ran.own < len(self._ran):
            may.add(KINDS[OTHER_DEVICE])
        return sorted(may)

    @cached_property
    def blocking_comm_ns(self) -> Mapping[str, int]:
        """``blocking_ns`` of collectives by their stage; 0 of a stage whose communication ran and blocked nothing."""
        own = self._of(BudgetPart.COLLECTIVE)
        codes, stages = self._ran.stages(self._ran.collectives(self._low, self._high))
        found = {stages[code]: 0 for (code,) in distinct(codes)[1]}
        codes, stages = self._ran.stages(take(self._gaps.producer, own))
        found |= {stage: ns for stage, ns, _ in self._longest(own, stages.__getitem__, codes)}
        return dict(sorted(found.items()))

    @cached_property
    def blocking_comm_max_ns(self) -> int:
        """How long communication of the rank ran in what of the gaps comes after the launch, whatever blocked then."""
        issued = where_not(equal(self._gaps.part, STARVED))
        spans = (take(column, issued) for column in (self._gaps.start_ns, self._gaps.end_ns))
        return total(self._device.communication_time.covered(*spans))

    @cached_property
    def in_syncs(self) -> Mapping[str, int]:
        """How much of ``launch_starved_ns`` the thread that launched the kernel stood in which call of ``syncs``."""
        starved, found = self._by_start([BudgetPart.STARVED, BudgetPart.BETWEEN]), Counter[str]()
        for name, calls in _synchronising(self._track).items():
            found[name] = total(self._measure_standing(starved, calls))
        return {name: ns for name, ns in found.most_common() if ns}

    def _measure_standing(self, parts: Column, calls: Mapping[int, Intervals]) -> Column:
        """How much of each of some parts the thread that launched the kernel which ends the gap stood in calls."""
        found = array("q", [0]) * len(parts)
        followed = where_not(equal(self._waiting(parts), NONE))
        threads = take(self._ran.kernel_calls.thread, self._waiting(take(parts, followed)))
        for thread, own in members_by(lambda thread: thread, threads).items():
            if thread in calls:
                at = take(followed, own)
                spans = (take(column, take(parts, at)) for column in (self._gaps.start_ns, self._gaps.end_ns))
                for i, ns in zip(at, calls[thread].covered(*spans), strict=True):
                    found[i] = ns
        return found

    def thread_after(self, part: BudgetPart) -> int | None:
        """The thread that launched what ends the last gap of a class; None where nothing on record does."""
        own = self._followed(part)[-1:]
        return self._ran.kernel_calls.thread[self._waiting(own)[0]] if own else None

    def waiting_in_calls(self, *, copies: bool = False) -> Column:
        """How much of each launch-starved part, by start, the thread that launched the kernel stood in any call of
        ``syncs``; with ``copies`` in these or in one that copies asynchronously.
        """
        some = {
            thread: Intervals.of((call.start_ns, call.end_ns) for call in own if copies or waiting_call(call.name))
            for thread, own in _calls(self._track).items()
        }
        return self._measure_standing(self._by_start([BudgetPart.STARVED]), some)

    def _by_start(self, parts: Iterable[BudgetPart]) -> Column:
        own = chained([self._of(part) for part in parts])
        return take(own, order(own))

    def _followed(self, *parts: BudgetPart) -> Column:
        """The parts of such kinds, by start, in gaps that a kernel ends."""
        own = self._by_start(parts)
        return take(own, where_not(equal(self._waiting(own), NONE)))

    def _longest(self, own: Column, key: Callable[..., K], *columns: Column | Flags) -> list[tuple[K, int, int]]:
        """How long some parts, by start, are together, and in how many gaps they are, by a key: the longest first."""
        numbers, rows = distinct(*columns)
        keys = [key(*row) for row in rows]
        known = {each: number for number, each in enumerate(dict.fromkeys(keys))}
        numbers = take(array("q", [known[each] for each in keys]), numbers)
        by_key = order(numbers)
        firsts = where(records(take(numbers, by_key), take(take(self._gaps.gap, own), by_key)))
        gaps = counts(take(take(numbers, by_key), firsts), len(known))
        found = zip(known, sums(numbers, self._length_ns(own), len(known)), gaps, strict=True)
        return sorted(found, key=lambda each: (-each[1], each[0]))

    def producers(self) -> list[Blocking]:
        """What blocked what, the largest first."""
        own, work, name_of = self._followed(*BLOCKED.values()), self._ran.work, self._ran.name_of
        by, waiting = take(self._gaps.producer, own), self._waiting(own)
        codes, stages = self._ran.stages(by)
        found = self._longest(
            own,
            lambda part, code, *ids: (_KIND[PARTS[part]], name_of(*ids[:2]), stages[code], name_of(*ids[2:])),
            *(take(self._gaps.part, own), codes),
            *(take(column, who) for who in (by, waiting) for column in (work.name, work.full_name)),
        )
        return [Blocking(*who, ns, gaps) for who, ns, gaps in found]

    def before(self, *parts: BudgetPart) -> list[Delayed]:
        """Before which kernels the launch-starved or the stalled time lay, the largest first; what nothing
        follows is left out.
        """
        own, work, name_of = self._followed(*parts), self._ran.work, self._ran.name_of
        waiting = self._waiting(own)
        codes, stages = self._ran.stages(waiting)
        columns = take(work.name, waiting), take(work.full_name, waiting), codes
        found = self._longest(own, lambda short, full, code: (name_of(short, full), stages[code]), *columns)
        return [Delayed(parts[-1].value, *of, ns, gaps) for of, ns, gaps in found]

    def names(self) -> Iterator[tuple[BudgetPart, str | None, int]]:
        """How long each part of the gaps is, by what blocked, else by the kernel that waited, in full; None where none
        does.
        """
        work = self._ran.work
        for part in PARTS:
            own = self._followed(part)
            who = take(self._gaps.producer, own) if part in _KIND else self._waiting(own)
            found = sums_by(self._ran.name_of, self._length_ns(own), take(work.name, who), take(work.full_name, who))
            yield from ((part, name, ns) for name, (ns, _) in found.items())
        for part in (BudgetPart.STARVED, BudgetPart.BETWEEN):
            if ns := self.lines.parts[part] - total(self._length_ns(self._followed(part))):
                yield part, None, ns

    def held_by_transfers(self) -> Iterator[tuple[str, int, str, int]]:
        """``copy`` or ``memset``, when it began that blocked, which kernel waited, in full, and for how long."""
        own, work = self._followed(BudgetPart.COPY, BudgetPart.MEMSET), self._ran.work
        by, names = take(self._gaps.producer, own), work.names
        of_both = (take(column, each) for each in (by, self._waiting(own)) for column in (work.name, work.full_name))
        producer, _, short, full = of_both
        for at, *ids, ns in zip(take(work.start_ns, by), producer, short, full, self._length_ns(own), strict=True):
            yield names[ids[0]], at, self._ran.name_of(*ids[1:]), ns

    def each(self) -> Iterator[GapPart]:
        """The parts of the gaps by start."""
        gaps = self._gaps
        told = self._ran.told(chained([gaps.waiting, gaps.producer]))
        each = zip(gaps.start_ns, gaps.end_ns, gaps.part, take(gaps.waiting, gaps.gap), gaps.producer, strict=True)
        for start, end, part, waiting, by in each:
            yield GapPart(start, end, PARTS[part], told.get(waiting), told.get(by))


_KIND = {part: kind for kind, part in BLOCKED.items()}


@kept
def _synchronising(track: RankTrack) -> Mapping[str, Mapping[int, Intervals]]:
    """By call that waits for the GPU when each thread of the rank's process stood in it."""
    found: dict[str, dict[int, list[Interval]]] = {}
    for thread, calls in _calls(track).items():
        for called, own in grouped((call.name, (call.start_ns, call.end_ns)) for call in calls).items():
            if name := waiting_call(called):
                found.setdefault(name, {}).setdefault(thread, []).extend(own)
    return {name: {thread: Intervals.of(own) for thread, own in by.items()} for name, by in sorted(found.items())}


@kept
def _calls(track: RankTrack) -> Mapping[int, Sequence[Api]]:
    """The calls by thread of the rank's process that wait for the GPU or copy, as far as its windows may touch them."""
    calls = (track.around.read_earlier_calls(SYNCHRONISING_CALLS) or {}).get(track.rank.process.global_pid, ())
    windows = track.group.ranks[track.rank.number]
    low_ns, high_ns = hull((w.start_ns - w.length_ns, w.end_ns + w.length_ns) for w in windows)
    return grouped((call.thread, call) for call in calls if call.start_ns <= high_ns and call.end_ns >= low_ns)


@kept
def budget_of(window: RankWindow) -> Budget:
    """The budget of a window. Raises NoRows where it has none, and says why."""
    return Budget(window)


def find_budgets(windows: Mapping[int, Sequence[RankWindow]]) -> dict[int, Budget | NoRows]:
    """By rank the budget that stands for all of its windows, or why it has none."""
    found: dict[int, Budget | NoRows] = {}
    for rank, own in windows.items():
        try:
            found[rank] = choose_budget(own)
        except NoRows as nothing:
            found[rank] = nothing
    return found


def choose_budget(windows: Sequence[RankWindow]) -> Budget:
    """Of several windows of a rank the budget of that with the lower median of ``compute_absent_ns``.

    Raises NoRows where one of them has none, or where it takes no time: it has no shares.
    """
    ordered = sorted(windows, key=compute_absent_ns)
    budget = budget_of(ordered[(len(windows) - 1) // 2])
    if not budget.lines.window_ns:
        raise NoRows("the window takes no time: its only kernels are of length 0")
    return budget


def facts_of(budget: Budget) -> BudgetFacts:
    """The budget as plain data."""
    late = (BudgetPart.STARVED, BudgetPart.BETWEEN, BudgetPart.BESIDE, BudgetPart.STALLED)
    before = [each for part in late for each in budget.before(part)[:MOST]]
    before.sort(key=lambda one: (-one.ns, one.part, one.waiting, one.stage))
    return BudgetFacts(
        **{field.name: getattr(budget.lines, field.name) for field in fields(BudgetLines)},
        comm_alone_ns=budget.comm_alone_ns,
        tail_ns=budget.tail_ns,
        in_syncs=budget.in_syncs,
        blocking_comm_ns=budget.blocking_comm_ns,
        blocking_comm_max_ns=budget.blocking_comm_max_ns,
        producers=budget.producers()[:MOST],
        before=before[:MOST],
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
    """Name the longest range, or call that waits, in which the host was for most of the time between two steps, on the
    thread that launches next; empty where none is on record.
    """
    budget, track = budget_of(window), window.track
    spans, thread = budget.spans(BudgetPart.BETWEEN), budget.thread_after(BudgetPart.BETWEEN)
    if thread is None:
        return ""
    process, between = track.rank.process.global_pid, Intervals(spans.start_ns, spans.end_ns)
    marks = {mark.name for mark in track.group.run.marks(track.rank, track.group.spec)}
    ranges = track.around.trace.ranges_around({process: (spans.start_ns[0], spans.end_ns[-1])}).get(process, ())
    calls = ((call.start_ns, call.end_ns, waiting_call(call.name)) for call in _calls(track.on_gpu).get(thread, ()))
    stood = [each for each in calls if each[2]]
    stood += ((r.start_ns, r.end_ns, r.name) for r in ranges if r.thread == thread and r.name not in marks)
    found = [
        (end_ns - start_ns, name)
        for start_ns, end_ns, name in stood
        if start_ns > window.window.start_ns  # what goes on for longer than a step says nothing of this time
        and 2 * between.covered_ns(start_ns, end_ns) > between.total_ns
    ]
    return max(found, default=(0, ""))[1]


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
    """None where the trace does not say when copies and memsets ran: one of them may have blocked."""
    budget = budget_of(window)
    return None if budget.lines.device_busy_ns is None else budget


def _of_communication(window: RankWindow) -> Budget | None:
    budget = _of_all_work(window)
    if budget is not None and not budget.comm_ns and not budget.blocking_comm_ns:
        raise NoRows(NO_COMMUNICATION)
    return budget


def blocking_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """Why what blocked is a bound, and of communication both ends where they are apart most."""
    found = _budgets(captures, spec)
    yield from map(Note, about_edges(budget.lines for _, budget in found))
    least = {budget: sum(budget.blocking_comm_ns.values()) for _, budget in found}
    rank, widest = max(found, key=lambda each: each[1].blocking_comm_max_ns - least[each[1]], default=(0, None))
    if widest is not None and widest.blocking_comm_max_ns > least[widest]:
        low, high = format_together([least[widest], widest.blocking_comm_max_ns])
        yield Note(f"rank {rank}: collectives blocked for {low} to {high} (blocking_comm_max_ns)")


def host_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """Of the launch-starved time: what has no launch row, what nothing follows, and where the host was meanwhile."""
    found = [budget for _, budget in _budgets(captures, spec)]
    starved = sum(budget.lines.launch_starved_ns for budget in found)
    where = Counter({"after the last kernel": sum(budget.tail_ns for budget in found)})
    for budget in found:
        where.update({f"while the host was in {call}": ns for call, ns in budget.in_syncs.items()})
    yield from map(Note, about_gaps([budget.lines for budget in found]))
    scale = scale_of([starved], TIME)
    for what, ns in where.items():
        if ns:
            all_of_it, part = (format_value(each, scale=scale) for each in (starved, ns))
            yield Note(f"launch-starved for {all_of_it}, of which {part} {what}")


def _budgets(captures: Sequence[Run], spec: WindowSpec) -> list[tuple[int, Budget]]:
    """Each with its rank, of the windows that have one."""
    found = []
    for window in (window for run in captures for window in run.measured(spec)):
        if len(window):
            with suppress(NoRows):
                found.append((window.rank.number, budget_of(window)))
    return found
