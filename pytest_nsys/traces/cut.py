"""What tells a cut from a whole trace, and how is it read? One mark in the file, beside the rows that are left.

A cut is an export: tables of nsys, or events of Chrome's JSON, of which only what belongs to some windows is left. The
reader of its format reads it. What the rows of a part cannot say stands in the mark: which windows these are and how
they were picked, the steps of the run, who the ranks are, what was on record. :class:`CutTrace` answers from the mark
where rows that are gone would make another number, and refuses what only the whole trace knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from pytest_nsys.core import columns
from pytest_nsys.core.conventions import BUILT_IN, Convention, read_convention
from pytest_nsys.core.errors import NothingMeasured, TraceError, UsageMistake
from pytest_nsys.core.model import (
    MACHINE_BITS,
    Api,
    Interval,
    Lane,
    LaunchKind,
    LaunchRecord,
    ProcessId,
    Setup,
    StepsOfRun,
    TraceFacts,
)
from pytest_nsys.core.tables import Kernels, Memory, Ranges, Series
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.words import printable

FORMAT = 1
"""Of the mark: raise it where its members change."""
AGAIN = "cut it again from its trace"


class LostWork(msgspec.Struct, frozen=True):
    """What became of the calls of a ``process`` in the windows of one view, where work of some was lost: ``records``
    are those of LaunchRecords, the missing share as text. ``called_ns`` is None of a whole run.
    """

    process: int
    called_ns: Interval | None
    records: list[tuple[LaunchKind, int, str, Api | None, int]]


class MarkedRank(msgspec.Struct, frozen=True):
    """What the mark says of one rank, which is ``device`` of a ``process``, None for all that its process uses.

    All kernels that touch a span of ``on_gpu`` are here, and all that were launched in one of ``called``. ``shares``
    numbers the GPUs of a run in which processes share some, by device. ``idle`` are periods of anchors in the run
    without a kernel, ``units`` the steps: see TraceFacts.
    """

    process: int
    device: int | None
    number: int
    setup: Setup | None
    on_gpu: list[Interval]
    called: list[Interval]
    idle: list[Interval]
    units: list[tuple[str, bool, list[Interval], list[Interval]]]
    gpus: dict[int, str]
    shares: dict[int, int]
    memory: list[tuple[int, int]] | None
    freed_earlier: int
    sm_clocks: list[tuple[int, int]] | None

    @property
    def lane(self) -> Lane:
        """Where its kernels are."""
        return Lane(self.process, self.device)

    @property
    def pid(self) -> int:
        """The number of its process."""
        return ProcessId(0, self.process).pid


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What a cut says of itself.

    ``measured`` tells in words how its windows were picked. ``recorded`` are the questions of the protocol to which the
    trace had an answer. ``ranges`` are the patterns of which all ranges of the run are here. ``libraries`` are the
    kernels of known libraries, wherever in the run. ``facts`` are those of the traces, without what is of one rank.
    ``anchored``: ranges or kernels mark its steps.
    """

    format: int = FORMAT
    measured: str
    convention: str
    fingerprint: str
    mapping: dict[str, Any] | None
    copies: list[str]
    libraries: list[tuple[str, str]]
    ranges: list[str]
    recorded: list[str]
    lost: list[LostWork]
    facts: TraceFacts
    anchored: bool
    ranks: list[MarkedRank]

    @property
    def whole_run(self) -> bool:
        """Whether one of its windows is the whole run."""
        return any(view.whole_run for view in self.facts.views)

    def dumps(self) -> str:
        """Return it as JSON in ASCII."""
        return json.dumps(msgspec.to_builtins(self, str_keys=True), separators=(",", ":"))


def read_mark(path: Path, text: str) -> Mark:
    """The mark with which a text begins. Raises TraceError where it was changed, or is of another version."""
    try:
        content, _ = json.JSONDecoder().raw_decode(text)
        if isinstance(content, dict) and content.get("format") != FORMAT:
            raise TraceError(f"{path}: was cut by another version of pytest-nsys: {AGAIN}")
        mark = msgspec.convert(content, Mark, str_keys=True)
    except (ValueError, OverflowError):
        raise changed(path) from None
    if not mark.ranks:
        raise changed(path)
    return mark


def changed(path: Path) -> TraceError:
    """What is wrong with a cut that cannot have been written so."""
    return TraceError(f"{path}: is not a complete cut of pytest-nsys: it was changed or truncated; {AGAIN}")


class Usual(NamedTuple):
    """Under which convention a trace is usually read. ``certain``: this trace under no other one. ``whole_run``: it has
    no windows.
    """

    convention: Convention
    certain: bool = False
    whole_run: bool = False


def usual_of(path: Path, mark: Mark) -> Usual:
    """A cut is read under what it was cut under. Raises UsageMistake where it does not hold that."""
    convention = BUILT_IN.get(mark.convention)
    if convention is None or convention.fingerprint() != mark.fingerprint:
        with suppress(ValueError):
            convention = read_convention(mark.mapping)
    if convention is None or convention.fingerprint() != mark.fingerprint:
        raise UsageMistake(
            f"{path}: is a cut under a convention that is not built in ('{printable(mark.convention, 60)}'): "
            "name the file that has it, --convention FILE"
        )
    whole_run = all(view.whole_run for view in mark.facts.views) and not mark.anchored
    return Usual(convention, certain=True, whole_run=whole_run)


MAY_LACK = ("api_calls", "copies", "transfers", "stream_waits", "collectives")
"""Questions of the protocol whose answer is None where a trace has no record."""


class CutTrace:
    """A :class:`~pytest_nsys.core.trace.Trace` of which only some windows are left: ``inner`` reads the file."""

    def __init__(self, inner: Trace, mark: Mark) -> None:
        self.inner, self.mark, self.path = inner, mark, inner.path
        self._ranks = {rank.lane: rank for rank in mark.ranks}

    @classmethod
    def of(cls, inner: Trace, mark: Mark) -> Trace:
        """The trace of a cut, which answers each question of the protocol."""
        return cast(Trace, cls(inner, mark))

    def __getattr__(self, member: str) -> Any:
        if member.startswith("_"):
            raise AttributeError(member)
        answer = getattr(self.inner, member)
        if member not in MAY_LACK:
            return answer
        recorded = member in self.mark.recorded  # though there may be none of it in the windows
        return lambda *question: (answer(*question) or {}) if recorded else None

    def facts(self) -> TraceFacts:
        """What the trace said of its profiler and GPUs, and that this is no whole trace."""
        mark, ranks = self.mark, self.mark.ranks
        return mark.facts._replace(
            notes=(f"{self.path}: is a cut ({mark.measured}, convention {mark.convention})",),
            gpus={(rank.pid, device): model for rank in ranks for device, model in rank.gpus.items()},
            uuids={(rank.pid, device): f"{self.path} {n}" for rank in ranks for device, n in rank.shares.items()},
            numbers={rank.lane: rank.number for rank in ranks},
            units={(rank.lane, *unit[:2]): StepsOfRun(*unit[2:]) for rank in ranks for unit in rank.units},
        )

    def setups(self) -> Mapping[int, Setup]:
        """What the trace stated of its ranks; a setup label among the ranges says the same."""
        return {rank.process: rank.setup for rank in self.mark.ranks if rank.setup is not None}

    def library_kernels(self) -> Set[tuple[str, str]]:
        """The names of the kernels of known communication libraries, wherever in the run."""
        return frozenset(self.mark.libraries)

    def unasked(self) -> Set[int]:
        """None: what ran in other processes is not here."""
        return frozenset()

    def idle(self, spans: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
        """Those of the spans that were idle in the trace: a cut keeps the kernels of its windows alone."""
        known = {lane: {*self._ranks[lane].idle} for lane in spans}
        found = {lane: [span for span in own if span in known[lane]] for lane, own in spans.items()}
        return {lane: own for lane, own in found.items() if own}

    def ranges(self, patterns: Sequence[str]) -> Mapping[int, Ranges]:
        """The anchors and setup labels of the run.

        Raises NothingMeasured for another pattern: of other ranges only those around the window are here.
        """
        mark = self.mark
        if others := [pattern for pattern in patterns if pattern not in mark.ranges]:
            raise NothingMeasured(
                f"{self.path}: is a cut ({mark.measured}, convention {mark.convention}), which does not hold "
                f"all ranges like '{printable(others[0], 80)}': measure under that convention, or on the trace"
            )
        return self.inner.ranges(patterns)

    def module_calls(self) -> Mapping[int, Ranges]:
        """None: they are the stack of the host."""
        return {}

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that touch its span.

        Raises NothingMeasured where more is asked for than the file holds: that would be another number.
        """
        if None in spans.values() and not self.mark.whole_run:
            raise NothingMeasured(
                f"{self.path}: is a cut ({self.mark.measured}), and this needs the whole run: measure it on the trace"
            )
        self._check_held(spans, {lane: rank.on_gpu for lane, rank in self._ranks.items()})
        return self.inner.kernels(spans)

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that were launched in its span, edges included. Raises as :meth:`kernels` does."""
        self._check_held(spans, {lane: rank.called for lane, rank in self._ranks.items()})
        return self.inner.kernels_launched(spans)

    def _check_held(self, spans: Mapping[Lane, Interval | None], held: Mapping[Lane, Sequence[Interval]]) -> None:
        for lane, span in spans.items() if not self.mark.whole_run else ():
            # Of what begins where windows end all is here until compute does, and nobody asks for more.
            if span is None or not any(
                low <= span[0] and (span[1] <= high or span[0] == high) for low, high in held.get(lane, ())
            ):
                raise NothingMeasured(
                    f"{self.path}: is a cut ({self.mark.measured}), and does not hold all kernels of this window: "
                    "measure the same window, span and kernels, or measure on the trace; a cut for a gate file is "
                    "made by pytest-nsys cut --gate FILE TRACES"
                )

    def launch_records(
        self, spans: Mapping[int, Interval | None], _kernels: Mapping[Lane, Kernels], /
    ) -> Mapping[int, Sequence[LaunchRecord]]:
        """What the trace had on record of the calls in the same span: of others a cut holds no call."""
        known = [own for own in self.mark.lost if own.process in spans and own.called_ns == spans[own.process]]
        return {
            own.process: [
                LaunchRecord(kind, n, Fraction(lost), first, out) for kind, n, lost, first, out in own.records
            ]
            for own in known
        }

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """The copies that counted as communication.

        Raises NothingMeasured where other kinds of copies did: those of these kinds may not all be here.
        """
        mark = self.mark
        if set(mark.copies) != set(kinds):
            raise NothingMeasured(
                f"{self.path}: is a cut ({mark.measured}, convention {mark.convention}) with "
                f"{', '.join(map(printable, mark.copies)) or 'no'} copies as communication, not {', '.join(kinds)}: "
                "measure under that convention, or on the trace"
            )
        return self.inner.copies_as_kernels(kinds)

    def memory(self) -> Mapping[Lane, Memory] | None:
        """What was allocated in the windows, and the peak of the run; None where the trace had no record of it."""
        found = {
            rank.lane: Memory(Series.of(rank.memory), rank.freed_earlier)
            for rank in self.mark.ranks
            if rank.memory is not None
        }
        return found or None

    def lanes(self) -> Sequence[Lane]:
        """Every (process, device) of a rank that ran a kernel, ordered."""
        return [lane for lane in self.inner.lanes() if {lane, Lane(lane.global_pid, None)} & self._ranks.keys()]

    def sm_clocks(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Series] | None:
        """Samples of the SM clock in the windows of each lane; None where there were none on record."""
        clocks = {lane: self._ranks[lane].sm_clocks for lane in spans if lane in self._ranks}
        found = {lane: Series.of(own) for lane, own in clocks.items() if own is not None}
        return found or None


class CutPart(NamedTuple):
    """What of one trace goes into a cut: operations of a GPU that touch one of the spans of their lane, ranges and
    waiting calls of a process that touch its span, and all its ranges like one of ``patterns``.

    ``clocks`` numbers the machines of the trace, for several traces become one file.
    """

    trace: Trace
    clocks: Mapping[int, int]
    on_gpu: Mapping[Lane, Sequence[Interval]]
    on_host: Mapping[int, Interval]
    patterns: Sequence[str]
    waiting: Sequence[str]

    def clock_of(self, global_pid: int) -> int:
        """The number that the clock of a process has in the cut."""
        return self.clocks[global_pid >> MACHINE_BITS]

    def process_in_cut(self, global_pid: int) -> int:
        """The serialised id of a process as the cut has it."""
        return process_in_cut(self.clock_of(global_pid), global_pid)


def touching_any(kernels: Kernels, spans: Sequence[Interval]) -> Kernels:
    """Those of the kernels that touch one of the spans."""
    each = [columns.touching(kernels.start_ns, kernels.end_ns, *span) for span in spans]
    return kernels.take(each[0] if len(each) == 1 else sorted({*chain.from_iterable(each)}))


def process_in_cut(clock: int, global_pid: int) -> int:
    """The serialised id of a process whose clock has this number in a cut."""
    return clock << MACHINE_BITS | ProcessId(0, global_pid).pid << 24


def reader_of(trace: Trace) -> Any:
    """What reads the file of a trace that others stand around."""
    while (inner := getattr(trace, "inner", None)) is not None:
        trace = inner
    return trace
