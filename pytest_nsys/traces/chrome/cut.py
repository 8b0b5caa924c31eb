"""Reading windows that ``pytest-nsys cut`` wrote: ranks, kernels, launches, ranges and calls are those of its trace.

The file is Chrome's JSON of some megabytes, one process for each rank. What no event shows stands under ``CUT``: who
the ranks are, the anchors elsewhere in the run, the clock. Where it holds a base and a head, head is read.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from pytest_nsys.core.errors import NothingMeasured, TraceError
from pytest_nsys.core.model import (
    SINCE_1970,
    Api,
    Collective,
    Copy,
    Diagnostic,
    Interval,
    Lane,
    Memory,
    Range,
    Setup,
    TraceFacts,
)
from pytest_nsys.core.series import Series
from pytest_nsys.core.tables import Kernels, LaunchCalls, StreamWait
from pytest_nsys.core.words import counted, printable
from pytest_nsys.traces.chrome.cut_process import About, AboutView, CutEvent, CutRank, RankView
from pytest_nsys.traces.chrome.json_stream import EventStream

CUT = "pytestNsysCut"
"""The first member of the file, which says what was cut."""
MARK = re.compile(rb'\A\s*\{\s*"' + CUT.encode() + rb'"\s*:')
FORMAT = 4
BASE, HEAD = "base", "head"
AGAIN = "cut it again from its trace"

K = TypeVar("K")
V = TypeVar("V")


class CutTrace:
    """One file; the :class:`~pytest_nsys.core.model.Trace` of this format."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def close(self) -> None:
        """Let go what was read; reading on reads it again."""
        self.__dict__.pop("_content", None)

    @cached_property
    def _content(self) -> tuple[About, dict[int, CutRank]]:
        """What was cut, and its ranks by serialised process id."""
        stream = EventStream(self.path, CutEvent)
        try:
            events = [event for part in stream for event in part]
            if stream.members[CUT]["format"] != FORMAT:
                raise TraceError(f"{self.path}: was cut by another version of pytest-nsys: {AGAIN}")
            about = msgspec.convert(stream.members[CUT], About, str_keys=True)
            ranks = {one.pid: CutRank(self.path, one) for one in about.processes if one.side != BASE}
            for event in events:
                if event.pid in ranks:
                    ranks[event.pid].content.add(event)
            for rank in ranks.values():
                rank.content.finish()
        except (msgspec.MsgspecError, KeyError, OverflowError, TypeError, ValueError):
            raise TraceError(
                f"{self.path}: is not a complete cut of pytest-nsys: it was changed or truncated; {AGAIN}"
            ) from None
        return about, {rank.content.global_pid: rank for rank in ranks.values()}

    @property
    def about(self) -> About:
        """What was cut, under which convention. Raises TraceError."""
        return self._content[0]

    @property
    def _ranks(self) -> Mapping[int, CutRank]:
        return self._content[1]

    def facts(self) -> TraceFacts:
        """What the trace said of its profiler and GPUs, and that this is no whole trace."""
        about, told = self.about, [rank.about for rank in self._ranks.values()]
        sizes, memory, clocks = about.to_see
        both = "; it holds base and head, and head is read" if {p.side for p in about.processes} > {HEAD} else ""
        return TraceFacts(
            profiler_version=next((p.profiler for p in told if p.profiler is not None), None),
            gpus={(p.pid, device): model for p in told for device, model in p.gpus.items()},
            models=sorted({model for p in told for model in p.models}),
            whole_graphs=max((p.whole_graphs for p in told), default=0),
            diagnostics=[Diagnostic(text, text) for text in about.diagnostics],
            notes=(f"{self.path}: is a cut ({about.measured}, convention {about.convention}){both}", *self._lost()),
            files=about.files,
            on_gpus=about.on_gpus,
            sessions_ns={pid: s for pid, r in self._ranks.items() if (s := r.about.session_ns) is not None},
            ties={p.clock: p.tie for p in told if p.tie is not None},
            zeros_ns={p.clock: zero for p in told if (zero := p.zero_ns or 0) in SINCE_1970 or p.zero_ns == 0},
            to_see_kernels=AGAIN,
            to_see_ranges=AGAIN,
            to_see_sizes=sizes,
            to_see_memory=memory,
            to_see_clocks=clocks,
        )

    def _lost(self) -> Iterator[str]:
        """Ranks that shared a process are apart in a cut, so that compute of one blocks none of the other."""
        for rank in self._ranks.values():
            here = {lane.device for lane in rank.lanes()}
            over = sum(w.recorded_on is not None and not {w.recorded_on.device} <= here for w in rank.about.waits or ())
            if over:
                waits = counted(over, "wait")
                yield f"{self.path}: {waits} of rank {rank.about.rank} on another GPU of its process cannot be followed"

    def _of_all(self, ask: Callable[[CutRank], Mapping[K, V] | None]) -> dict[K, V]:
        """The answers of all ranks together."""
        return {key: value for rank in self._ranks.values() for key, value in (ask(rank) or {}).items()}

    def _recorded(self, what: str) -> bool:
        """Whether the trace had a record of such events, if there were any."""
        return any(getattr(rank.about, what) for rank in self._ranks.values())

    def setups(self) -> Mapping[int, Setup]:
        """Every rank by its number, also where the trace had none; nothing where their order alone says as much."""
        ranks = [self._ranks[lane.global_pid].about for lane in self.lanes()]
        if all(rank.setup is None for rank in ranks) and [rank.rank for rank in ranks] == [*range(len(self._ranks))]:
            return {}
        return self._of_all(lambda rank: rank.setups())

    def has_kernels(self) -> bool:
        """Whether anything ran on a GPU: copies that count as communication are kernels to who asks for them."""
        return bool(self.lanes())

    def lanes(self) -> Sequence[Lane]:
        """Every (process, device) that ran a kernel."""
        return sorted(lane for rank in self._ranks.values() for lane in rank.lanes())

    def library_kernels(self) -> Set[tuple[str, str]]:
        """The names of the kernels of known communication libraries, those elsewhere in the run too."""
        return set(self.about.libraries).union(*(rank.library_kernels() for rank in self._ranks.values()))

    def unasked(self) -> Set[int]:
        """None: every process is a rank."""
        return frozenset()

    def idle(self, spans: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
        """Those of the spans that were idle in the trace: a cut keeps the kernels of its windows alone."""
        known = {lane: {*self._ranks[lane.global_pid].about.idle} for lane in spans}
        found = {lane: [span for span in own if span in known[lane]] for lane, own in spans.items()}
        return {lane: own for lane, own in found.items() if own}

    def ranges(self, patterns: Sequence[str]) -> Mapping[int, Sequence[Range]]:
        """The anchors and setup labels of the run.

        Raises NothingMeasured for another pattern: of other ranges only those around the window are here.
        """
        about = self.about
        if others := [pattern for pattern in patterns if pattern not in about.ranges]:
            raise NothingMeasured(
                f"{self.path}: is a cut ({about.measured}, convention {about.convention}), which does not hold "
                f"all ranges like '{printable(others[0], 80)}': measure under that convention, or on the trace"
            )
        return self._of_all(lambda rank: rank.ranges(patterns))

    def ranges_around(self, spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Range]]:
        """The ranges of each process that touch its span, NCCL's own left out."""
        return self._of_all(lambda rank: rank.ranges_around(spans))

    def common_range_names(self, global_pid: int) -> Sequence[tuple[str, int]]:
        """The names that most ranges of a process have, with their counts."""
        return [found for rank in self._ranks.values() for found in rank.common_range_names(global_pid)]

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that touch its span.

        Raises NothingMeasured where more is asked for than the file holds: that would be another number.
        """
        about = self.about
        if None in spans.values() and not self._whole_run:
            raise NothingMeasured(
                f"{self.path}: is a cut ({about.measured}), and this needs the whole run: measure it on the trace"
            )
        self._check_held(spans, launched=False)
        return self._of_all(lambda rank: rank.kernels(spans))

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that were launched in its span, edges included. Raises as :meth:`kernels` does."""
        self._check_held(spans, launched=True)
        return self._of_all(lambda rank: rank.kernels_launched(spans))

    @property
    def _whole_run(self) -> bool:
        return any(view.whole_run for view in self.about.views)

    def _check_held(self, spans: Mapping[Lane, Interval | None], *, launched: bool) -> None:
        for lane, span in spans.items() if not self._whole_run else ():
            rank = self._ranks.get(lane.global_pid)
            views = () if rank is None else zip(self.about.views, rank.about.views, strict=True)
            if span is None or not any(_holds(how, view, span, launched=launched) for how, view in views):
                raise NothingMeasured(
                    f"{self.path}: is a cut ({self.about.measured}), and does not hold all kernels of this window: "
                    "measure the same window, span and kernels, or measure on the trace"
                )

    def launches(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, array[int]]:
        """When each kernel was launched, NO_LAUNCH where nothing says."""
        each = [self._ranks[lane.global_pid].launches({lane: some}) for lane, some in kernels.items()]
        return {lane: launches for found in each for lane, launches in found.items()}

    def launch_calls(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
        """The call that launched each kernel."""
        each = [self._ranks[lane.global_pid].launch_calls({lane: some}) for lane, some in kernels.items()]
        return {lane: calls for found in each for lane, calls in found.items()}

    def stream_waits(self) -> Mapping[int, Sequence[StreamWait]] | None:
        """The stream-waits of every rank in the whole run; None where the trace had not one on record."""
        known = {pid: rank.about.waits for pid, rank in self._ranks.items()}
        return {pid: waits for pid, waits in known.items() if waits is not None} or None

    def api_calls(self, name_globs: Sequence[str], spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Api]] | None:
        """The calls whose name matches a glob and that start in the span; None where the trace recorded none."""
        return self._of_all(lambda rank: rank.api_calls(name_globs, spans)) if self._recorded("calls") else None

    def copies(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Sequence[Copy]] | None:
        """The copies of each lane that were launched in its span; None where the trace says of none what they join."""
        return self._of_all(lambda rank: rank.copies(spans)) if self._recorded("copies") else None

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """The copies that counted as communication.

        Raises NothingMeasured where other kinds of copies did: those of these kinds may not all be here.
        """
        about = self.about
        if set(about.copies) != set(kinds):
            raise NothingMeasured(
                f"{self.path}: is a cut ({about.measured}, convention {about.convention}) with "
                f"{', '.join(map(printable, about.copies)) or 'no'} copies as communication, not {', '.join(kinds)}: "
                "measure under that convention, or on the trace"
            )
        return self._of_all(lambda rank: rank.copies_as_kernels(kinds))

    def transfers(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels] | None:
        """The copies and memsets of each lane that touch its span; None where the trace does not say when they ran."""
        return self._of_all(lambda rank: rank.transfers(spans)) if self._recorded("transfers") else None

    def memory(self) -> Mapping[Lane, Memory] | None:
        """What each rank had allocated; None where the trace has no record of it."""
        return self._of_all(lambda rank: rank.memory()) if self._recorded("memory") else None

    def sm_clocks(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Series] | None:
        """Samples of the SM clock of each rank; None where the trace has no record of any."""
        return self._of_all(lambda rank: rank.sm_clocks(spans)) if self._recorded("clocks") else None

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[Collective | None]] | None:
        """For each kernel what its trace recorded of it as a collective; None where that records no sizes."""
        return self._of_all(lambda rank: rank.collectives(kernels)) if self._recorded("collectives") else None


def _holds(how: AboutView, view: RankView, span: Interval, *, launched: bool) -> bool:
    """Whether all kernels of a span are here: of windows of launches also those that ran while theirs did."""
    if how.launched and not launched and span == view.on_gpu:
        return True
    return (not launched and view.follows(span)) or (how.launched is launched and view.holds(span))
