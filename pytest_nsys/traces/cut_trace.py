"""What distinguishes a cut from a whole trace, and how is it read? One mark in the file, next to the remaining rows.

A cut is an export, tables of nsys or events of Chrome's JSON, reduced to what belongs to some windows. The reader of
its format reads it. The mark holds what the remaining rows cannot say: which windows these are and how they were
picked, the steps of the run, the ranks, what was on record. :class:`CutTrace` answers from the mark where missing rows
would change a number, and refuses what only the whole trace knows.
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
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention, decode_convention
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
    StepSpans,
    TraceFacts,
)
from pytest_nsys.core.tables import Kernels, Memory, Ranges, Series
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.trace import Trace

# Raise it where the members of the mark change.
MARK_FORMAT = 1
CUT_AGAIN = "cut it again from its trace"


class LostWork(msgspec.Struct, frozen=True):
    """Says what became of the calls of a process in the windows of one view, if work of some was lost."""

    process: int
    called_ns: Interval | None  # None of a whole run
    records: list[tuple[LaunchKind, int, str, Api | None, int]]  # those of LaunchRecord, the missing share as text


class MarkedRank(msgspec.Struct, frozen=True):
    """Holds what the mark says of one rank."""

    process: int
    device: int | None  # None for all that its process uses
    number: int
    setup: Setup | None
    on_gpu: list[Interval]  # all kernels that touch one of these spans are in the cut
    called: list[Interval]  # and all that were launched in one of these
    idle: list[Interval]  # periods of anchors in the run without a kernel
    units: list[tuple[str, bool, list[Interval], list[Interval]]]  # the steps of the run: see TraceFacts
    gpus: dict[int, str]  # models by device
    shares: dict[int, int]  # number of the GPU by device, in a run in which processes share some
    memory: list[tuple[int, int]] | None
    freed_earlier: int
    sm_clocks: list[tuple[int, int]] | None

    @property
    def lane(self) -> Lane:
        """The lane that the rank's kernels are on."""
        return Lane(self.process, self.device)

    @property
    def pid(self) -> int:
        """The operating system's number of the rank's process."""
        return ProcessId(0, self.process).pid


class CutMark(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a cut says about itself."""

    format: int = MARK_FORMAT
    measured: str  # how its windows were picked, in words
    convention: str
    fingerprint: str
    mapping: dict[str, Any] | None
    copies: list[str]
    libraries: list[tuple[str, str]]  # kernels of known libraries, wherever in the run
    ranges: list[str]  # patterns of which all ranges of the run are in the cut
    recorded: list[str]  # questions of the protocol to which the trace had an answer
    lost: list[LostWork]
    facts: TraceFacts  # of the traces, without what is of one rank
    anchored: bool  # ranges or kernels mark its steps
    ranks: list[MarkedRank]

    @property
    def whole_run(self) -> bool:
        """Whether one of its windows is the whole run."""
        return any(view.whole_run for view in self.facts.cut_window_specs)

    def to_json(self) -> str:
        """Return the mark as JSON in ASCII."""
        return json.dumps(msgspec.to_builtins(self, str_keys=True), separators=(",", ":"))


def parse_cut_mark(path: Path, text: str) -> CutMark:
    """Return the mark with which a text begins. Raises TraceError where it was changed, or is of another version."""
    try:
        content, _ = json.JSONDecoder().raw_decode(text)
        if isinstance(content, dict) and content.get("format") != MARK_FORMAT:
            raise TraceError(f"{path}: was cut by another version of pytest-nsys: {CUT_AGAIN}")
        mark = msgspec.convert(content, CutMark, str_keys=True)
    except (ValueError, OverflowError):
        raise make_damaged_cut_error(path) from None
    if not mark.ranks:
        raise make_damaged_cut_error(path)
    return mark


def make_damaged_cut_error(path: Path) -> TraceError:
    """Return the error for a cut whose content cannot be what was written."""
    return TraceError(f"{path}: is not a complete cut of pytest-nsys: it was changed or truncated; {CUT_AGAIN}")


class UsualConvention(NamedTuple):
    """Names the convention under which a trace is usually read."""

    convention: Convention
    certain: bool = False  # this trace is read under no other one
    whole_run: bool = False  # it has no windows


def find_cut_convention(path: Path, mark: CutMark) -> UsualConvention:
    """Return the convention that a cut was cut under. Raises UsageMistake if the mark does not hold it."""
    convention = BUILT_IN_CONVENTIONS.get(mark.convention)
    if convention is None or convention.compute_fingerprint() != mark.fingerprint:
        with suppress(ValueError):
            convention = decode_convention(mark.mapping)
    if convention is None or convention.compute_fingerprint() != mark.fingerprint:
        raise UsageMistake(
            f"{path}: is a cut under a convention that is not built in ('{sanitize_line(mark.convention, 60)}'): "
            "name the file that has it, --convention FILE"
        )
    whole_run = all(view.whole_run for view in mark.facts.cut_window_specs) and not mark.anchored
    return UsualConvention(convention, certain=True, whole_run=whole_run)


OPTIONAL_QUESTIONS = ("api_calls", "copies", "transfers", "stream_waits", "collectives")
"""Names the questions of the protocol whose answer is None where a trace has no record."""


class CutTrace:
    """Reads a :class:`~pytest_nsys.core.trace.Trace` that was reduced to some windows; ``inner`` reads the file."""

    def __init__(self, inner: Trace, mark: CutMark) -> None:
        self.inner, self.mark, self.path = inner, mark, inner.path
        self._ranks_by_lane = {rank.lane: rank for rank in mark.ranks}

    @classmethod
    def from_cut_file(cls, inner: Trace, mark: CutMark) -> Trace:
        """Return the trace of a cut, which answers each question of the protocol."""
        return cast(Trace, cls(inner, mark))

    def __getattr__(self, member: str) -> Any:
        if member.startswith("_"):
            raise AttributeError(member)
        ask_inner = getattr(self.inner, member)
        if member not in OPTIONAL_QUESTIONS:
            return ask_inner
        is_recorded = member in self.mark.recorded  # though there may be none of it in the windows
        return lambda *arguments: (ask_inner(*arguments) or {}) if is_recorded else None

    def facts(self) -> TraceFacts:
        """Return what the trace said of its profiler and GPUs, and that this is no whole trace."""
        mark, ranks = self.mark, self.mark.ranks
        return mark.facts._replace(
            notes=(f"{self.path}: is a cut ({mark.measured}, convention {mark.convention})",),
            gpus={(rank.pid, device): model for rank in ranks for device, model in rank.gpus.items()},
            uuids={(rank.pid, device): f"{self.path} {n}" for rank in ranks for device, n in rank.shares.items()},
            rank_numbers={rank.lane: rank.number for rank in ranks},
            cut_steps={(rank.lane, *unit[:2]): StepSpans(*unit[2:]) for rank in ranks for unit in rank.units},
        )

    def setups(self) -> Mapping[int, Setup]:
        """Return what the trace stated of its ranks; a setup label among the ranges says the same."""
        return {rank.process: rank.setup for rank in self.mark.ranks if rank.setup is not None}

    def library_kernels(self) -> Set[tuple[str, str]]:
        """Return the names of the kernels of known communication libraries, wherever in the run."""
        return frozenset(self.mark.libraries)

    def list_unrequested_processes(self) -> Set[int]:
        """Return no process: what ran in other processes is not in the cut."""
        return frozenset()

    def idle(self, spans: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
        """Return the spans that were idle in the whole trace; the mark knows it, because a cut keeps only kernels of
        its windows.
        """
        idle_spans = {lane: {*self._ranks_by_lane[lane].idle} for lane in spans}
        idle_by_lane = {
            lane: [span for span in lane_spans if span in idle_spans[lane]] for lane, lane_spans in spans.items()
        }
        return {lane: lane_spans for lane, lane_spans in idle_by_lane.items() if lane_spans}

    def ranges(self, patterns: Sequence[str]) -> Mapping[int, Ranges]:
        """Return the anchors and setup labels of the run.

        Raises NothingMeasured for another pattern: of other ranges only those around the window are in the cut.
        """
        mark = self.mark
        if other_patterns := [pattern for pattern in patterns if pattern not in mark.ranges]:
            raise NothingMeasured(
                f"{self.path}: is a cut ({mark.measured}, convention {mark.convention}), which does not hold "
                f"all ranges like '{sanitize_line(other_patterns[0], 80)}': measure under that convention, or on the "
                "trace"
            )
        return self.inner.ranges(patterns)

    def module_calls(self) -> Mapping[int, Ranges]:
        """Return nothing: of the calls of modules a cut keeps only those around its windows."""
        return {}

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """Return the kernels of each lane that touch its span.

        Raises NothingMeasured for a span that the file does not hold: that would be another number.
        """
        if None in spans.values() and not self.mark.whole_run:
            raise NothingMeasured(
                f"{self.path}: is a cut ({self.mark.measured}), and this needs the whole run: measure it on the trace"
            )
        self._check_contained(spans, {lane: rank.on_gpu for lane, rank in self._ranks_by_lane.items()})
        return self.inner.kernels(spans)

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """Return the kernels of each lane that were launched in its span, edges included. Raises as :meth:`kernels`
        does.
        """
        self._check_contained(spans, {lane: rank.called for lane, rank in self._ranks_by_lane.items()})
        return self.inner.kernels_launched(spans)

    def _check_contained(
        self, spans: Mapping[Lane, Interval | None], contained_spans: Mapping[Lane, Sequence[Interval]]
    ) -> None:
        """Raise NothingMeasured if a span is not inside one of those whose kernels are all in the cut."""
        for lane, span in spans.items() if not self.mark.whole_run else ():
            # Of what begins where windows end all is here until compute does, and nobody asks for more.
            if span is None or not any(
                low <= span[0] and (span[1] <= high or span[0] == high) for low, high in contained_spans.get(lane, ())
            ):
                raise NothingMeasured(
                    f"{self.path}: is a cut ({self.mark.measured}), and does not hold all kernels of this window: "
                    "measure the same window, span and kernels, or measure on the trace; a cut for a gate file is "
                    "made by pytest-nsys cut --gate FILE TRACES"
                )

    def launch_records(
        self, spans: Mapping[int, Interval | None], _kernels: Mapping[Lane, Kernels], /
    ) -> Mapping[int, Sequence[LaunchRecord]]:
        """Return what the trace had on record of the calls in the same span: of others a cut holds no call."""
        lost_works = [
            lost_work
            for lost_work in self.mark.lost
            if lost_work.process in spans and lost_work.called_ns == spans[lost_work.process]
        ]
        return {
            lost_work.process: [
                LaunchRecord(kind, calls, Fraction(share), first, outside)
                for kind, calls, share, first, outside in lost_work.records
            ]
            for lost_work in lost_works
        }

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """Return the copies that counted as communication.

        Raises NothingMeasured where other kinds of copies did: those of these kinds may not all be in the cut.
        """
        mark = self.mark
        if set(mark.copies) != set(kinds):
            raise NothingMeasured(
                f"{self.path}: is a cut ({mark.measured}, convention {mark.convention}) with "
                f"{', '.join(map(sanitize_line, mark.copies)) or 'no'} copies as communication, not "
                f"{', '.join(kinds)}: "
                "measure under that convention, or on the trace"
            )
        return self.inner.copies_as_kernels(kinds)

    def memory(self) -> Mapping[Lane, Memory] | None:
        """Return what was allocated in the windows, and the peak of the run; None where the trace had no record of
        it.
        """
        memory_by_lane = {
            rank.lane: Memory(Series.from_time_value_pairs(rank.memory), rank.freed_earlier)
            for rank in self.mark.ranks
            if rank.memory is not None
        }
        return memory_by_lane or None

    def lanes(self) -> Sequence[Lane]:
        """Return every (process, device) of a rank that ran a kernel, ordered."""
        return [lane for lane in self.inner.lanes() if {lane, Lane(lane.global_pid, None)} & self._ranks_by_lane.keys()]

    def sm_clocks(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Series] | None:
        """Return samples of the SM clock in the windows of each lane; None where there were none on record."""
        samples_by_lane = {lane: self._ranks_by_lane[lane].sm_clocks for lane in spans if lane in self._ranks_by_lane}
        clocks_by_lane = {
            lane: Series.from_time_value_pairs(samples)
            for lane, samples in samples_by_lane.items()
            if samples is not None
        }
        return clocks_by_lane or None


class CutPart(NamedTuple):
    """Describes what of one trace goes into a cut."""

    trace: Trace
    clock_numbers: Mapping[int, int]  # number of each machine's clock, as several traces become one file
    gpu_spans: Mapping[Lane, Sequence[Interval]]  # operations of a GPU that touch one of the spans of their lane
    host_spans: Mapping[int, Interval]  # ranges and waiting calls of a process that touch its span
    range_patterns: Sequence[str]  # all ranges of the run whose name matches one of these
    wait_globs: Sequence[str]  # globs of the calls in which the host waits

    def get_clock_number(self, global_pid: int) -> int:
        """Return the number that the clock of a process has in the cut."""
        return self.clock_numbers[global_pid >> MACHINE_BITS]

    def map_process_id(self, global_pid: int) -> int:
        """Return the serialised id of a process as the cut has it."""
        return build_cut_process_id(self.get_clock_number(global_pid), global_pid)


def select_touching_any(kernels: Kernels, spans: Sequence[Interval]) -> Kernels:
    """Return those of the kernels that touch one of the spans."""
    index_lists = [columns.find_touching_spans(kernels.start_ns, kernels.end_ns, *span) for span in spans]
    return kernels.take(index_lists[0] if len(index_lists) == 1 else sorted({*chain.from_iterable(index_lists)}))


def build_cut_process_id(clock_number: int, global_pid: int) -> int:
    """Return the serialised id of a process whose clock has this number in a cut."""
    return clock_number << MACHINE_BITS | ProcessId(0, global_pid).pid << 24


def unwrap_reader(trace: Trace) -> Any:
    """Return the reader of a trace's file, from inside the traces that wrap it."""
    while (inner := getattr(trace, "inner", None)) is not None:
        trace = inner
    return trace
