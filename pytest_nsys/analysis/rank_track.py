"""What is known of the kernels of one rank, whichever of its windows asks: read when first asked, and once."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from pytest_nsys.analysis.trace_kernels import ByName, Contexts, TraceKernels
from pytest_nsys.core.columns import (
    Column,
    Flags,
    equal,
    minus,
    order,
    spread,
    take,
    total,
    where,
    where_not,
)
from pytest_nsys.core.families import KnownLibrary, known_communication
from pytest_nsys.core.model import NO_LAUNCH, Api, Collective, Copy, Interval, Memory, Range, Rank, Stream
from pytest_nsys.core.operations import NO_CALLS, LaunchCalls
from pytest_nsys.core.series import Series, summed
from pytest_nsys.core.tables import NO_KERNELS, Kernels
from pytest_nsys.core.workload import Workload

if TYPE_CHECKING:
    from pytest_nsys.analysis.rank_window import RankWindow

_START = attrgetter("start_ns")

CLOCKS_APART_NS = 100_000
"""Profilers tie the clocks of CPU and GPU better than that: in real traces no kernel starts before its launch."""


class Launched(NamedTuple):
    """Of so many ``kernels``, those ``without`` a launch row, and those that start ``early``: before it, by up to
    ``lead_ns``.
    """

    kernels: int
    without: int
    early: int
    lead_ns: int


class RankTrack:
    """The kernels of one rank around its windows, with what is known of each; read lazily, and once.

    ``around`` reads for all ranks of the trace. ``whole`` makes the window of the rank's whole run, ``on_gpu`` the
    track of all that ran meanwhile, where that is not this one. ``until_ns``: what started after that was not read,
    and ``after`` reads on, until compute starts; None where nothing is left. ``asked_by``: the track of which this is
    all that ran meanwhile.
    """

    def __init__(
        self,
        rank: Rank,
        around: TraceKernels,
        anchors: Sequence[Range] = (),
        workload: Workload | None = None,
        whole: Callable[[], RankWindow] | None = None,
        on_gpu: Callable[[], RankTrack] | None = None,
        until_ns: int | None = None,
        after: Callable[[], TraceKernels] | None = None,
        asked_by: RankTrack | None = None,
    ) -> None:
        self.rank, self.around, self.anchors = rank, around, anchors
        self.convention, self.workload = around.convention, workload or Workload()
        self.kernels = around.kernels.get(rank.lane) or NO_KERNELS
        self._whole, self._on_gpu, self.until_ns, self._after = whole, on_gpu, until_ns, after
        self._asked_by = asked_by or self
        self.looked_up = self.claimed_twice = 0

    @property
    def whole(self) -> RankWindow:
        """All that the rank ran, as one window."""
        assert self._whole is not None
        return self._whole()

    @cached_property
    def on_gpu(self) -> RankTrack:
        """All that ran on the GPU in the windows, whenever it was launched."""
        return self._on_gpu() if self._on_gpu is not None else self

    @property
    def after(self) -> TraceKernels:
        """What started after the track, on all lanes of the trace, at least until a compute kernel that takes time."""
        assert self._after is not None
        return self._after()

    @property
    def transfers(self) -> Kernels | None:
        """The copies and memsets around the windows; None where the trace does not say when they ran."""
        found = self.around.transfers
        return None if found is None else found.get(self.rank.lane, NO_KERNELS)

    @cached_property
    def memory(self) -> Memory | None:
        """What the rank had allocated, on all of its devices; None where the trace has no record of it."""
        if (found := self.around.memory) is None:
            return None
        lane = self.rank.lane
        own = [m for at, m in found.items() if at.global_pid == lane.global_pid and lane.device in (None, at.device)]
        return Memory(summed([m.levels for m in own]), sum(m.earlier for m in own))

    @property
    def sm_clocks(self) -> Series | None:
        """Samples of the SM clock around the windows, in Hz; None where the trace has no record of any."""
        found = self.around.sm_clocks
        return None if found is None else found.get(self.rank.lane, Series.of(()))

    @cached_property
    def _communicating(self) -> tuple[Flags, ByName]:
        return self.around.communicating(self.rank.lane) if len(self.kernels) else (bytearray(), {})

    @property
    def communicates(self) -> Flags:
        """1 where a kernel is communication under the convention."""
        return self._communicating[0]

    @property
    def unordered(self) -> Mapping[Stream, Fraction]:
        """The streams that keep no order, with the share that shows it: of the kernels that the windows are of."""
        return self._asked_by.around.unordered(self.rank.lane)

    @cached_property
    def uncounted(self) -> Mapping[tuple[int, int], KnownLibrary]:
        """The (short, demangled) name ids of kernels of known communication libraries that count as compute."""
        names = self.kernels.names
        compute = (key for key, flag in self._communicating[1].items() if not flag)
        found = ((key, known_communication(names[key[0]], names.get(key[1], ""))) for key in compute)
        return {key: known for key, known in found if known is not None}

    @cached_property
    def launch_ns(self) -> Column:
        """Start of the earliest launch row of each kernel, NO_LAUNCH where there is none."""
        return self.around.launches.get(self.rank.lane) or array("q")

    @property
    def launch_calls(self) -> LaunchCalls:
        """The call that launched each kernel."""
        return self.around.launch_calls.get(self.rank.lane) or NO_CALLS

    @cached_property
    def launch_or_start_ns(self) -> Column:
        """When each kernel was launched; where no row says so, when it started."""
        return or_start(self.launch_ns, self.kernels.start_ns)

    @property
    def collectives(self) -> Mapping[int, Collective] | None:
        """What is recorded of the communication kernels, by index; None where the trace has no record of any size."""
        found = self.around.collectives
        return None if found is None else found.get(self.rank.lane, {})

    def api_calls(self, globs: tuple[str, ...], span: Interval) -> Sequence[Api] | None:
        """The calls of the rank's process that start in the span; None where the trace has no record of any."""
        found = self.around.api_calls(globs)
        if found is None:
            return None
        own = found.get(self.rank.process.global_pid, ())
        first = bisect_left(own, span[0], key=_START)
        return own[first : bisect_right(own, span[1], key=_START)]

    def copies(self, span: Interval) -> Sequence[Copy] | None:
        """The copies that are launched in the span; None where the trace does not say between which memories."""
        found = self.around.trace.copies({self.rank.lane: span})
        return None if found is None else found.get(self.rank.lane, ())

    @cached_property
    def launched(self) -> Launched:
        """What launch rows say of the kernels: of all of a few, of many of those that communicate, if any does."""
        some = where(self.communicates) if self.around.many else None
        launches, starts = self.launch_ns, self.kernels.start_ns
        if some:
            launches, starts = take(self._communication_launches, some), take(starts, some)
        leads = (launch - start for launch, start in zip(launches, starts, strict=True))
        early = [lead for lead in leads if lead > CLOCKS_APART_NS]
        return Launched(len(launches), total(equal(launches, NO_LAUNCH)), len(early), max(early, default=0))

    @cached_property
    def launch_order(self) -> Column:
        """The kernels that have a launch row, by its start."""
        launched = where_not(equal(self.launch_ns, NO_LAUNCH))
        return take(launched, order(take(self.launch_ns, launched)))

    @cached_property
    def longest_ns(self) -> int:
        """Length of the longest kernel: how far before a window one that reaches into it may start."""
        return max(minus(self.kernels.end_ns, self.kernels.start_ns), default=0)

    @property
    def _communication_launches(self) -> Column:
        return self.around.communication_launches.get(self.rank.lane) or array("q")

    @cached_property
    def _communication_contexts(self) -> Contexts:
        own = where(self.communicates)
        found = self._look_up(or_start(take(self._communication_launches, own), take(self.kernels.start_ns, own)))
        return found._replace(codes=spread(own, found.codes, len(self.kernels), 0))

    @cached_property
    def contexts(self) -> Contexts:
        """Stage and purpose of every kernel."""
        return self._look_up(self.launch_or_start_ns)

    @property
    def communication_contexts(self) -> Contexts:
        """Stage and purpose of every communication kernel at least; of few kernels of all, which costs no more."""
        if "contexts" in self.__dict__ or not self.around.many:
            return self.contexts
        return self._communication_contexts

    def _look_up(self, times: Column) -> Contexts:
        found = self.around.saying(self.rank.process.global_pid).at(times)
        self.looked_up, self.claimed_twice = len(times), found.claimed_twice
        return found.contexts


def or_start(launches: Column, starts: Column) -> Column:
    """The launch times, with the start of what has none."""
    times = launches[:]
    for i in where(equal(launches, NO_LAUNCH)):
        times[i] = starts[i]
    return times
