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
)  # arguments that only viewers draw, as grids and shapes of blocks, are most of a trace
ON_GPU = KERNELS | COPIES | MEMSETS
READ = ON_GPU | CALLS | RANGES | SYNCS | ARROWS


class WholeEvent(Decoded, frozen=True):
    """Describes one event with everything that a cut writes of it."""

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
        """The ``args`` of the event; empty where they are no object."""
        members: Any = self.args
        if isinstance(members, Raw):
            members = msgspec.json.decode(members) if bytes(members) else None
        return members if isinstance(members, dict) else {}


def write_events(parts: Sequence[tuple[Kineto, CutPart]], mark: str) -> bytes:
    """Return the JSON text of a cut as bytes. Raises TraceError for a damaged trace."""
    clocks = {clock for _, part in parts for clock in part.clocks.values()}
    selections = [_Chosen(trace, part, labelled=len(clocks) > 1) for trace, part in parts]
    is_of_jax = any(isinstance(process, JaxProcess) for trace, _ in parts for process in trace.processes.values())
    root = f'"metadata":{{"{JAX_METADATA}":true}}' if is_of_jax else '"schemaVersion":1'
    # What is alike stands together, which packs better; the names of lanes come first.
    texts_by_order = sorted(chain.from_iterable(selection.events() for selection in selections), key=itemgetter(0))
    events = ",\n".join(text for _, text in texts_by_order)
    return f'{{{root},\n"{CUT_MEMBER}":{mark},\n"traceEvents":[\n{events}\n]}}\n'.encode("utf-8", "surrogatepass")


class _Chosen:
    """Selects the events of one file that go into a cut. Labels are needed where the cut is made of several clocks."""

    def __init__(self, trace: Kineto, part: CutPart, *, labelled: bool) -> None:
        self.path, self.part, self.labelled = trace.path, part, labelled
        labelled_processes = (
            (process.label, process) for pid, process in trace.processes.items() if pid in part.on_host
        )
        self.processes = {label: _Process(process, part) for label, process in labelled_processes}

    def events(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield the sort key (category, name) and the text of each selected event, in the order of the file."""
        for events in EventStream(self.path, WholeEvent):
            for event in events:
                process = self.processes.get(label_of(event.pid))
                if process is not None and (cut_event := process.write(event)) is not None:
                    yield (event.cat or "", event.name), _text(cut_event, self._pid(event.pid, process))

    def _pid(self, pid: int | str, process: _Process) -> int | str:
        number = number_of(pid)
        if self.labelled:
            return f"[{self.part.clock_of(process.global_pid)}] {pid if number is None else number}"
        return pid if number is None or label_of(pid) == UNLABELLED else number


class _Process:
    """Selects the events of one process that go into a cut."""

    def __init__(self, process: KinetoProcess, part: CutPart) -> None:
        self.process, self.part, self.global_pid = process, part, process.global_pid
        self.span = low, high = part.on_host[process.global_pid]
        self.of_jax = isinstance(process, JaxProcess)
        self.as_kineto = process.lanes.in_terms_of_kineto if isinstance(process, JaxProcess) else _in_terms_of_kineto
        self.is_anchor = [like(pattern) for pattern in part.patterns]
        launches = process.launches
        transfers = columns.chained(
            [array("q"), *(device_rows.correlation for device_rows in process.transfers.values())]
        )
        starts = launches.starts_of(transfers)
        called_copies = columns.touching(starts, starts, max(2 * low - high, NO_LAUNCH + 1), high)
        self.copied = {*columns.take(transfers, called_copies)} - {NO_LAUNCH}
        self.correlations: set[int | None] = {*self.copied}
        for wait in process.all_waits:
            self.correlations |= {wait.at.correlation, wait.record}
        for tables in (process.kernels, process.transfers):
            for device, device_rows in tables.items():
                self.correlations |= {*self._touching(device, device_rows).correlation}
        calls = process.calls
        self.led_to_by_arrows = self.correlations - ({*calls.correlation} if calls is not None else set())
        ranges = process.ranges
        open_rows = columns.where(columns.equal(ranges.end_ns, OPEN_END_NS))
        self.left_open = {(ranges.start_ns[i], ranges.names[ranges.name[i]]) for i in open_rows}

    def _spans(self, device: int | None) -> Iterator[Interval]:
        for lane in (Lane(self.global_pid, device), Lane(self.global_pid, None)):
            yield from self.part.on_gpu.get(lane, ())

    def _touching(self, device: int, kernels: Kernels) -> Kernels:
        spans = [*self._spans(device)]
        return touching_any(kernels, spans)

    def write(self, event: WholeEvent) -> WholeEvent | None:
        """Return the event as the cut writes it; None where the cut leaves it out."""
        if event.ph == "M":
            name = name_of_lane(event.name, event.arguments.get("name")) if self.of_jax else None
            args = Raw(json.dumps({"name": name}).encode())
            return None if name is None else msgspec.structs.replace(event, args=args)
        if event.cat in ARROWS and not self.led_to_by_arrows:
            return None
        for kineto_event in self.as_kineto(event):
            start = end = OPEN_END_NS
            with suppress(ValueError):  # of an open range, or of what is damaged and was left out
                start = nanoseconds(kineto_event.ts)
                end = start if kineto_event.ph in POINTLESS else start + nanoseconds(kineto_event.dur)
            if self._is_wanted(kineto_event, start, end):
                is_open = kineto_event.cat in RANGES and (start, kineto_event.name) in self.left_open
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
            in_window = (
                end < OPEN_END_NS
                and start <= end
                and any(start <= span_end and end >= span_start for span_start, span_end in spans)
            )
            return in_window or (event.cat in COPIES and correlation in self.copied)
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
    """Return the event as JSON text; its numbers keep every digit that they were written with."""
    args = {name: value for name, value in event.arguments.items() if name in READ_ARGS and value is not None}
    parts: dict[str, object] = {"ph": event.ph, "cat": event.cat, "name": event.name, "pid": pid, "tid": event.tid}
    parts |= {"id": event.id, "args": args or None}
    member_texts = [
        f'"{key}":{json.dumps(value, separators=(",", ":"))}' for key, value in parts.items() if value is not None
    ]
    member_texts += [f'"{key}":{text}' for key in ("ts", "dur") if (text := _digits(getattr(event, key)))]
    return "{" + ",".join(member_texts) + "}"


def _digits(number: Any) -> str:
    """Return a number as it was written; empty for none."""
    if isinstance(number, int | str):  # as the standard library decodes what msgspec does not
        return str(number)
    return "" if number is None else bytes(number).decode("ascii", "replace")
