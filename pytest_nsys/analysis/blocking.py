"""What held the next compute of a window back: the host, a producer, or nothing that a trace shows?

A gap without compute is *launch-starved* until the call that launched the kernel at its end had returned: until then
the host had not issued it. From then on it is *blocked* while something runs that the kernel depends on, through any
number of operations, each moment by what ran then. The rest is *dependency-stalled*. The three add up, exactly.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.activity import SYNCHRONISING_CALLS, waiting_call
from pytest_nsys.analysis.around import RankTrack
from pytest_nsys.analysis.gaps import waiting_around
from pytest_nsys.analysis.gpu_state import device_of
from pytest_nsys.analysis.operations import COLLECTIVE, COPY, KINDS, MEMSET, NONE, OTHER_DEVICE
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.core.columns import (
    Column,
    counts,
    distinct,
    equal,
    members_by,
    minus,
    spread,
    sums,
    sums_by,
    take,
    total,
    where,
    where_not,
)
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.model import NO_LAUNCH, Stream


class Producer(NamedTuple):
    """What a kernel waited for. ``name`` is a kernel's short name, of copies and memsets the ``kind``."""

    kind: str
    name: str
    stage: str
    stream: Stream


class Hold(NamedTuple):
    """A part of a gap in which a producer ran, which ends at ``producer_end_ns``."""

    start_ns: int
    end_ns: int
    producer: Producer
    producer_end_ns: int


class Gap(NamedTuple):
    """A time without compute: launch-starved until ``issued_ns``, then blocked in ``holds``, by start, and
    dependency-stalled between and after them.

    ``waiting`` is the compute kernel that ends it, perhaps after the window, None where none follows; ``launched``:
    whether it has a launch row.
    """

    start_ns: int
    issued_ns: int
    end_ns: int
    waiting: str | None
    waiting_stage: str
    waiting_start_ns: int | None
    launched: bool
    holds: tuple[Hold, ...]


class Blocked(NamedTuple):
    """How long, and in how many gaps, kernels named ``waiting`` waited for operations of one kind, name and stage."""

    kind: str
    name: str
    stage: str
    waiting: str
    ns: int
    gaps: int


class Late(NamedTuple):
    """How long, and in how many gaps, kernels of one name and stage were not running for want of a producer."""

    waiting: str
    stage: str
    ns: int
    gaps: int


class Budget:
    """The time of a window on the GPU, by what ran and by what held the next compute back. Lengths are in ns.

    ``device_busy_ns`` and ``device_idle_ns`` are None where the trace does not say when copies ran: then who blocks is
    known of kernels alone. ``comm_alone_ns`` is None there, too, and where nothing communicates. ``blocking_ns`` is by
    kind of producer, of those that blocked. ``lower_bound``: a producer may have been missed, as the trace has no
    record of waits on other streams, as of some it lacks what they waited for, or as ``unordered`` streams keep no
    order.
    """

    def __init__(self, window: RankWindow) -> None:
        self._track = window.track.on_gpu
        self._device, self._waiting = device_of(window), waiting_around(self._track)
        self._low, self._high = low, high = window.start_ns, window.end_ns
        self._gaps = gaps = self._waiting.gaps(low, high)
        self._ran = ran = self._waiting.operations
        self.window_ns = window.length_ns
        self.compute_busy_ns = self._device.compute.covered_ns(low, high)
        self.compute_absent_ns = self.window_ns - self.compute_busy_ns
        self.launch_starved_ns = total(minus(gaps.issued_ns, gaps.start_ns))
        self._held_ns = minus(gaps.held.end_ns, gaps.held.start_ns)
        self._open_ns = minus(gaps.end_ns, gaps.issued_ns)
        self.dependency_stalled_ns = total(self._open_ns) - total(self._held_ns)
        self.gaps, self.tail_ns, self.contradicted = len(gaps.start_ns), 0, gaps.contradicted
        if gaps.waiting and gaps.waiting[-1] == NONE:
            self.tail_ns = gaps.end_ns[-1] - gaps.start_ns[-1]
        self._followed = where_not(equal(gaps.waiting, NONE))
        waiting = take(gaps.waiting, self._followed)
        self.gaps_without_launch = total(equal(take(ran.issued_ns, waiting), NO_LAUNCH))
        if self.gaps_without_launch == len(waiting) > 0:
            what = "no kernel that ends a gap has a launch row, so when the host issued it is unknown"
            raise NoRows(f"{what}: {window.track.around.facts.to_see_calls}")
        self.graph_gaps = total(take(ran.graph_node, waiting))
        self.waits, self.waits_joined = self._waiting.waits, self._waiting.joined
        self.waits_recorded = self._waiting.recorded
        self.unordered = len(self._waiting.unordered)
        self.lower_bound = not self.waits_recorded or self.waits_joined < self.waits or self.unordered > 0

    @property
    def device_busy_ns(self) -> int | None:
        busy = self._device.busy
        return None if busy is None else busy.covered_ns(self._low, self._high)

    @property
    def device_idle_ns(self) -> int | None:
        return None if (busy := self.device_busy_ns) is None else self.window_ns - busy

    @property
    def comm_ns(self) -> int:
        """How long communication ran, barriers included."""
        return self._device.communication.covered_ns(self._low, self._high)

    @property
    def comm_alone_ns(self) -> int | None:
        at_work, busy = self._device.at_work, self.device_busy_ns
        if at_work is None or busy is None or not self.comm_ns:
            return None
        return busy - at_work.covered_ns(self._low, self._high)

    @cached_property
    def blocking_ns(self) -> Mapping[str, int]:
        """How long producers of each kind blocked, of those that did."""
        found = sums_by(KINDS.__getitem__, self._held_ns, take(self._ran.kind, self._gaps.held.producer))
        return {kind: ns for kind, (ns, _) in sorted(found.items())}

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of producer that are told of, if any blocked: what did not run is no kind that did not block."""
        may = {KINDS[COPY], KINDS[MEMSET], *self.blocking_ns}
        if self.comm_ns:
            may.add(KINDS[COLLECTIVE])
        if self._ran.own < len(self._ran):
            may.add(KINDS[OTHER_DEVICE])
        return sorted(may)

    @cached_property
    def blocking_comm_ns(self) -> Mapping[str, int]:
        """``blocking_ns`` of collectives by their stage; 0 of a stage whose communication ran and blocked nothing."""
        producers = self._gaps.held.producer
        own = where(equal(take(self._ran.kind, producers), COLLECTIVE))
        found = Counter(dict.fromkeys(self._ran.stages(self._ran.collectives(self._low, self._high)), 0))
        for stage, ns in zip(self._ran.stages(take(producers, own)), take(self._held_ns, own), strict=True):
            found[stage] += ns
        return dict(sorted(found.items()))

    @cached_property
    def blocking_comm_max_ns(self) -> int:
        """How long communication of the rank ran in what of the gaps comes after the launch, whatever blocked then."""
        return total(self._device.communication.covered(self._gaps.issued_ns, self._gaps.end_ns))

    @cached_property
    def stalled_beside_comm_ns(self) -> int:
        """What of ``dependency_stalled_ns`` communication of the rank ran in."""
        held = self._gaps.held
        return self.blocking_comm_max_ns - total(self._device.communication.covered(held.start_ns, held.end_ns))

    @cached_property
    def in_syncs(self) -> Mapping[str, int]:
        """How much of ``launch_starved_ns`` the thread that launched the kernel stood in which call of ``syncs``."""
        gaps, found = self._gaps, Counter[str]()
        starved = take(self._followed, where(take(minus(gaps.issued_ns, gaps.start_ns), self._followed)))
        calls = _synchronising(self._track)
        by_thread = members_by(lambda thread: thread, take(self._ran.thread, take(gaps.waiting, starved)))
        for thread, own in by_thread.items():
            at = take(starved, own)
            for name, spans in calls.get(thread, {}).items():
                found[name] += total(spans.covered(take(gaps.start_ns, at), take(gaps.issued_ns, at)))
        return {name: ns for name, ns in found.most_common() if ns}

    def each(self) -> Iterator[Gap]:
        """The gaps by start."""
        ran, gaps = self._ran, self._gaps
        followed, holds = iter(ran.stages(take(gaps.waiting, self._followed))), self._holds()
        for i, (start, issued, end, waiting) in enumerate(zip(*gaps[:4], strict=True)):
            stage = next(followed) if waiting != NONE else NO_STAGE
            yield Gap(
                start_ns=start,
                issued_ns=issued,
                end_ns=end,
                waiting=None if waiting == NONE else ran.names[ran.name[waiting]],
                waiting_stage=stage,
                waiting_start_ns=None if waiting == NONE else ran.start_ns[waiting],
                launched=waiting != NONE and ran.issued_ns[waiting] != NO_LAUNCH,
                holds=tuple(holds.get(i, ())),
            )

    def _holds(self) -> Mapping[int, Sequence[Hold]]:
        """By gap."""
        ran, held = self._ran, self._gaps.held
        each = zip(*held, ran.stages(held.producer), strict=True)
        return grouped(
            (gap, Hold(start, end, self._producer(by, stage), ran.end_ns[by])) for gap, start, end, by, stage in each
        )

    def _producer(self, by: int, stage: str) -> Producer:
        ran = self._ran
        return Producer(KINDS[ran.kind[by]], ran.names[ran.name[by]], stage, ran.streams[ran.stream[by]])

    def producers(self) -> Sequence[Blocked]:
        """What blocked what, the largest first."""
        ran, held = self._ran, self._gaps.held
        codes, stages = _numbered(ran.stages(held.producer))
        waiting = take(ran.name, take(self._gaps.waiting, held.gap))
        numbers, rows = distinct(take(ran.kind, held.producer), take(ran.name, held.producer), codes, waiting)
        keys = [(KINDS[kind], ran.names[name], stages[code], ran.names[own]) for kind, name, code, own in rows]
        known = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        numbers = take(array("q", [known[key] for key in keys]), numbers)
        gaps = counts(array("q", [number for number, _ in distinct(numbers, held.gap)[1]]), len(known))
        each = zip(known, sums(numbers, self._held_ns, len(known)), gaps, strict=True)
        return sorted((Blocked(*key, ns, number) for key, ns, number in each), key=lambda b: (-b.ns, b))

    def launched_late(self) -> Sequence[Late]:
        """What ``launch_starved_ns`` lay before, the largest first; what nothing follows is left out."""
        return self._before(minus(self._gaps.issued_ns, self._gaps.start_ns))

    def stalled(self) -> Sequence[Late]:
        """What ``dependency_stalled_ns`` lay before, the largest first."""
        numbers, gaps = distinct(self._gaps.held.gap)
        held_ns = array("q", sums(numbers, self._held_ns, len(gaps)))
        of_each = spread(array("q", [gap for (gap,) in gaps]), held_ns, len(self._open_ns), 0)
        return self._before(minus(self._open_ns, of_each))

    def _before(self, lengths: Column) -> Sequence[Late]:
        ran, own = self._ran, take(self._followed, where(take(lengths, self._followed)))
        waiting = take(self._gaps.waiting, own)
        codes, stages = _numbered(ran.stages(waiting))
        found = sums_by(
            lambda name, stage: (ran.names[name], stages[stage]), take(lengths, own), take(ran.name, waiting), codes
        )
        return sorted((Late(*key, *each) for key, each in found.items()), key=lambda late: (-late.ns, late))


def _numbered(texts: Sequence[str]) -> tuple[Column, Sequence[str]]:
    """A number for each text, and the texts by number."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return array("q", [numbers[text] for text in texts]), tuple(numbers)


@kept
def _synchronising(track: RankTrack) -> Mapping[int, Mapping[str, Intervals]]:
    """When each thread of the rank's process stood in which call that waits for the GPU."""
    calls = (track.around.all_calls(SYNCHRONISING_CALLS) or {}).get(track.rank.process.global_pid, ())
    waits = grouped(((call.thread, name), call) for call in calls if (name := waiting_call(call.name)))
    found: dict[int, dict[str, Intervals]] = {}
    for (thread, name), own in waits.items():
        found.setdefault(thread, {})[name] = Intervals.of((call.start_ns, call.end_ns) for call in own)
    return found


@kept
def budget_of(window: RankWindow) -> Budget:
    """The budget of a window. Raises NoRows where it has none, and says why."""
    return Budget(window)
