"""Which events of a trace in Chrome's JSON belong to a cut, and how are they written again?

They are the events of torch.profiler or of JAX as they were, with the arguments that are read of them. What may be
private, as what the root says of paths and hosts, is left out, and so are the calls of Python's functions. Ranks of
several files become processes of one: a label stands before their numbers, as in files that others merge.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import chain
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import Raw

from pytest_nsys.core import columns
from pytest_nsys.core.conventions import like
from pytest_nsys.core.file_names import CUT_MEMBER
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS, Interval, Lane
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.chrome.events import (
    ARROW_START,
    ARROWS,
    CALLS,
    COPIES,
    KERNELS,
    MEMSETS,
    POINTLESS,
    RANGES,
    STREAM_WAIT,
    SYNCS,
    Args,
    Event,
    first_whole,
    nanoseconds,
    whole,
)
from pytest_nsys.traces.chrome.jax import JaxArgs, JaxProcess, name_of_lane
from pytest_nsys.traces.chrome.json_stream import Decoded, EventStream
from pytest_nsys.traces.chrome.kineto import Kineto, KinetoProcess
from pytest_nsys.traces.chrome.kineto_said import CollectiveArgs
from pytest_nsys.traces.chrome.merged import UNLABELLED, label_of, number_of
from pytest_nsys.traces.chrome.writers import JAX_METADATA
from pytest_nsys.traces.cut import CutPart, touching_any

READ_ARGS = frozenset(
    name for kind in (Args, CollectiveArgs, JaxArgs) for name in kind.__struct_encode_fields__
)  # what is only drawn, as grids and shapes of blocks, is most of a trace
ON_GPU = KERNELS | COPIES | MEMSETS
READ = ON_GPU | CALLS | RANGES | SYNCS | ARROWS


class WholeEvent(Decoded, frozen=True):
    """One event with all that is written again of it."""

    ph: str | None = None
    cat: str | None = None
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: Raw = Raw()
    dur: Raw = Raw()
    id: int | str | None = None
    args: Raw = Raw()

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Its ``args``, which most events are looked at without; none where they are no object."""
        found: Any = self.args
        if isinstance(found, Raw):
            found = msgspec.json.decode(found) if bytes(found) else None
        return found if isinstance(found, dict) else {}


def write_events(parts: Sequence[tuple[Kineto, CutPart]], mark: str) -> bytes:
    """The file of a cut. Raises TraceError for a damaged trace."""
    clocks = {clock for _, part in parts for clock in part.clocks.values()}
    chosen = [_Chosen(trace, part, labelled=len(clocks) > 1) for trace, part in parts]
    is_of_jax = any(isinstance(process, JaxProcess) for trace, _ in parts for process in trace.processes.values())
    root = f'"metadata":{{"{JAX_METADATA}":true}}' if is_of_jax else '"schemaVersion":1'
    # What is alike stands together, which packs better; the names of lanes come first.
    found = sorted(chain.from_iterable(each.events() for each in chosen), key=itemgetter(0))
    events = ",\n".join(text for _, text in found)
    return f'{{{root},\n"{CUT_MEMBER}":{mark},\n"traceEvents":[\n{events}\n]}}\n'.encode("utf-8", "surrogatepass")


class _Chosen:
    """The events of one file that go into a cut. ``labelled``: it is made of several clocks."""

    def __init__(self, trace: Kineto, part: CutPart, *, labelled: bool) -> None:
        self.path, self.part, self.labelled = trace.path, part, labelled
        known = ((process.label, process) for pid, process in trace.processes.items() if pid in part.on_host)
        self.processes = {label: _Process(process, part) for label, process in known}

    def events(self) -> Iterator[tuple[tuple[str, str], str]]:
        """The category and the name of each, and its text, in the order of the file."""
        for some in EventStream(self.path, WholeEvent):
            for event in some:
                process = self.processes.get(label_of(event.pid))
                if process is not None and (found := process.write(event)) is not None:
                    yield (event.cat or "", event.name), _text(found, self._pid(event.pid, process))

    def _pid(self, pid: int | str, process: _Process) -> int | str:
        number = number_of(pid)
        if self.labelled:
            return f"[{self.part.clock_of(process.global_pid)}] {pid if number is None else number}"
        return pid if number is None or label_of(pid) == UNLABELLED else number


class _Process:
    """Which events of one process go into a cut."""

    def __init__(self, process: KinetoProcess, part: CutPart) -> None:
        self.process, self.part, self.global_pid = process, part, process.global_pid
        self.span = low, high = part.on_host[process.global_pid]
        self.of_jax = isinstance(process, JaxProcess)
        self.as_kineto = process.lanes.in_terms_of_kineto if isinstance(process, JaxProcess) else _in_terms_of_kineto
        self.is_anchor = [like(pattern) for pattern in part.patterns]
        launches = process.launches
        transfers = columns.chained([array("q"), *(own.correlation for own in process.transfers.values())])
        starts = launches.starts_of(transfers)
        called = columns.touching(starts, starts, max(2 * low - high, NO_LAUNCH + 1), high)
        self.copied = {*columns.take(transfers, called)} - {NO_LAUNCH}
        self.correlations: set[int | None] = {*self.copied}
        for wait in process.all_waits:
            self.correlations |= {wait.at.correlation, wait.record}
        for tables in (process.kernels, process.transfers):
            for device, own in tables.items():
                self.correlations |= {*self._touching(device, own).correlation}
        calls = process.calls
        self.led_to_by_arrows = self.correlations - ({*calls.correlation} if calls is not None else set())
        ranges = process.ranges
        left_open = columns.where(columns.equal(ranges.end_ns, OPEN_END_NS))
        self.left_open = {(ranges.start_ns[i], ranges.names[ranges.name[i]]) for i in left_open}

    def _spans(self, device: int | None) -> Iterator[Interval]:
        for lane in (Lane(self.global_pid, device), Lane(self.global_pid, None)):
            yield from self.part.on_gpu.get(lane, ())

    def _touching(self, device: int, kernels: Kernels) -> Kernels:
        spans = [*self._spans(device)]
        return touching_any(kernels, spans)

    def write(self, event: WholeEvent) -> WholeEvent | None:
        """The event as the cut has it, None where it has it not."""
        if event.ph == "M":
            name = name_of_lane(event.name, event.arguments.get("name")) if self.of_jax else None
            args = Raw(json.dumps({"name": name}).encode())
            return None if name is None else msgspec.structs.replace(event, args=args)
        if event.cat in ARROWS and not self.led_to_by_arrows:
            return None
        for said in self.as_kineto(event):
            start = end = OPEN_END_NS
            with suppress(ValueError):  # of an open range, or of what is damaged and was left out
                start = nanoseconds(said.ts)
                end = start if said.ph in POINTLESS else start + nanoseconds(said.dur)
            if self._is_wanted(said, start, end):
                is_open = said.cat in RANGES and (start, said.name) in self.left_open
                return msgspec.structs.replace(event, dur=Raw()) if is_open else event
        return None

    def _is_wanted(self, event: Event, start: int, end: int) -> bool:
        low, high = self.span
        args, touches = event.args or Args(), start <= high and end >= low
        correlation = whole(args.correlation)
        if event.cat in ARROWS:
            return event.ph == ARROW_START and whole(event.id) in self.led_to_by_arrows
        if event.ph in POINTLESS:
            return False
        if event.cat in ON_GPU:
            spans = self._spans(first_whole(args.device, event.pid))
            of_window = end < OPEN_END_NS and start <= end and any(start <= hi and end >= lo for lo, hi in spans)
            return of_window or (event.cat in COPIES and correlation in self.copied)
        if event.cat in CALLS:
            waits = touches and any(fnmatchcase(event.name, glob) for glob in self.part.waiting)
            return waits or (correlation is not None and correlation in self.correlations)
        if event.cat in SYNCS:
            return event.name == STREAM_WAIT
        return event.cat in RANGES and (touches or any(matches(event.name) for matches in self.is_anchor))


def _in_terms_of_kineto(event: WholeEvent) -> list[Event]:
    if event.cat not in READ:
        return []
    args = Args() if event.cat in RANGES or event.cat in ARROWS else Args.of(event.arguments)
    ph = "X" if event.ph is None else event.ph
    return [Event(ph, event.cat, event.name, event.pid, event.tid, event.ts, event.dur, event.id, args)]


def _text(event: WholeEvent, pid: int | str) -> str:
    """The event as JSON: numbers with every digit that they were written with."""
    args = {name: value for name, value in event.arguments.items() if name in READ_ARGS and value is not None}
    parts: dict[str, object] = {"ph": event.ph, "cat": event.cat, "name": event.name, "pid": pid, "tid": event.tid}
    parts |= {"id": event.id, "args": args or None}
    said = [f'"{key}":{json.dumps(value, separators=(",", ":"))}' for key, value in parts.items() if value is not None]
    said += [f'"{key}":{text}' for key in ("ts", "dur") if (text := _digits(getattr(event, key)))]
    return "{" + ",".join(said) + "}"


def _digits(number: Any) -> str:
    """A number as it was written; "" for none."""
    if isinstance(number, int | str):  # as the standard library decodes what msgspec does not
        return str(number)
    return "" if number is None else bytes(number).decode("ascii", "replace")
