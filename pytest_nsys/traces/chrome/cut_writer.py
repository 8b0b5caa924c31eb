"""Which events of a trace in Chrome's JSON belong to a cut, and how are they written again?

They are the events of torch.profiler or of JAX as they were, with the arguments that are read of them. What may be
private, as what the root says of paths and hosts, is left out, and so are the calls of Python's functions, but for
those of modules, which are told by their class. Ranks of
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
from pytest_nsys.core.conventions import make_pattern_matcher
from pytest_nsys.core.file_names import CUT_MARK_MEMBER
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS, Interval, Lane
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.chrome.events import (
    ARROW_CATEGORIES,
    ARROW_START,
    CALL_CATEGORIES,
    COPY_CATEGORIES,
    INSTANT_PHASES,
    KERNEL_CATEGORIES,
    MEMSET_CATEGORIES,
    PYTHON_CATEGORY,
    RANGE_CATEGORIES,
    STREAM_WAIT,
    SYNC_CATEGORIES,
    Event,
    EventArgs,
    convert_to_ns,
    parse_first_number,
    parse_whole_number,
)
from pytest_nsys.traces.chrome.jax import JaxArgs, JaxProcess, find_lane_name
from pytest_nsys.traces.chrome.jax_program import JaxPathArgs
from pytest_nsys.traces.chrome.json_stream import EventStream, JsonStruct
from pytest_nsys.traces.chrome.kineto import KinetoProcess, KinetoTrace
from pytest_nsys.traces.chrome.kineto_metadata import MODULE_PREFIX, CollectiveArgs
from pytest_nsys.traces.chrome.program_records import ProgramArgs
from pytest_nsys.traces.chrome.rank_labels import UNLABELLED, parse_process_number, parse_rank_label
from pytest_nsys.traces.chrome.writers import JAX_METADATA
from pytest_nsys.traces.cut_trace import CutPart, select_touching_any

WRITTEN_ARGS = frozenset(
    name
    for kind in (EventArgs, CollectiveArgs, JaxArgs, ProgramArgs, JaxPathArgs)
    for name in kind.__struct_encode_fields__
)  # arguments that only viewers draw, as grids and shapes of blocks, are most of a trace
GPU_CATEGORIES = KERNEL_CATEGORIES | COPY_CATEGORIES | MEMSET_CATEGORIES
CUT_CATEGORIES = GPU_CATEGORIES | CALL_CATEGORIES | RANGE_CATEGORIES | SYNC_CATEGORIES | ARROW_CATEGORIES


class WholeEvent(JsonStruct, frozen=True):
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


def render_cut_file(parts: Sequence[tuple[KinetoTrace, CutPart]], mark: str) -> bytes:
    """Return the JSON text of a cut as bytes. Raises TraceError for a damaged trace."""
    clocks = {clock for _, part in parts for clock in part.clock_numbers.values()}
    selections = [_FileSelection(trace, part, needs_labels=len(clocks) > 1) for trace, part in parts]
    is_of_jax = any(isinstance(process, JaxProcess) for trace, _ in parts for process in trace.processes.values())
    root = f'"metadata":{{"{JAX_METADATA}":true}}' if is_of_jax else '"schemaVersion":1'
    # What is alike stands together, which packs better; the names of lanes come first.
    texts_by_order = sorted(
        chain.from_iterable(selection.render_events() for selection in selections), key=itemgetter(0)
    )
    events = ",\n".join(text for _, text in texts_by_order)
    return f'{{{root},\n"{CUT_MARK_MEMBER}":{mark},\n"traceEvents":[\n{events}\n]}}\n'.encode("utf-8", "surrogatepass")


class _FileSelection:
    """Selects the events of one file that go into a cut. Labels are needed where the cut is made of several clocks."""

    def __init__(self, trace: KinetoTrace, part: CutPart, *, needs_labels: bool) -> None:
        self.path, self.part, self.needs_labels = trace.path, part, needs_labels
        labelled_processes = (
            (process.label, process) for pid, process in trace.processes.items() if pid in part.host_spans
        )
        self.processes = {label: _ProcessSelection(process, part) for label, process in labelled_processes}

    def render_events(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield the sort key (category, name) and the text of each selected event, in the order of the file."""
        for events in EventStream(self.path, WholeEvent):
            for event in events:
                process = self.processes.get(parse_rank_label(event.pid))
                if process is not None and (cut_event := process.select_event(event)) is not None:
                    yield (event.cat or "", event.name), _render_event(cut_event, self._format_pid(event.pid, process))

    def _format_pid(self, pid: int | str, process: _ProcessSelection) -> int | str:
        number = parse_process_number(pid)
        if self.needs_labels:
            return f"[{self.part.get_clock_number(process.global_pid)}] {pid if number is None else number}"
        return pid if number is None or parse_rank_label(pid) == UNLABELLED else number


class _ProcessSelection:
    """Selects the events of one process that go into a cut."""

    def __init__(self, process: KinetoProcess, part: CutPart) -> None:
        self.process, self.part, self.global_pid = process, part, process.global_pid
        self.span = low, high = part.host_spans[process.global_pid]
        self.is_jax = isinstance(process, JaxProcess)
        self.convert_event = process.lanes.convert_event if isinstance(process, JaxProcess) else _convert_kineto_event
        self.anchor_matchers = [make_pattern_matcher(pattern) for pattern in part.range_patterns]
        launches = process.launches
        transfers = columns.concatenate_columns(
            [array("q"), *(device_rows.correlation for device_rows in process.transfers.values())]
        )
        starts = launches.find_starts(transfers)
        called_copies = columns.find_touching_spans(starts, starts, max(2 * low - high, NO_LAUNCH + 1), high)
        self.copy_correlations = {*columns.take(transfers, called_copies)} - {NO_LAUNCH}
        self.correlations: set[int | None] = {*self.copy_correlations}
        for wait in process.all_waits:
            self.correlations |= {wait.place.correlation, wait.record_correlation}
        for tables in (process.kernels, process.transfers):
            for device, device_rows in tables.items():
                self.correlations |= {*self._select_touching(device, device_rows).correlation}
        calls = process.calls
        self.arrow_correlations = self.correlations - ({*calls.correlation} if calls is not None else set())
        ranges = process.ranges
        open_rows = columns.find_nonzero(columns.mark_equal(ranges.end_ns, OPEN_END_NS))
        self.open_ranges = {(ranges.start_ns[i], ranges.names[ranges.name[i]]) for i in open_rows}

    def _list_spans(self, device: int | None) -> Iterator[Interval]:
        for lane in (Lane(self.global_pid, device), Lane(self.global_pid, None)):
            yield from self.part.gpu_spans.get(lane, ())

    def _select_touching(self, device: int, kernels: Kernels) -> Kernels:
        spans = [*self._list_spans(device)]
        return select_touching_any(kernels, spans)

    def select_event(self, event: WholeEvent) -> WholeEvent | None:
        """Return the event as the cut writes it; None where the cut leaves it out."""
        if event.ph == "M":
            name = find_lane_name(event.name, event.arguments.get("name")) if self.is_jax else None
            args = Raw(json.dumps({"name": name}).encode())
            return None if name is None else msgspec.structs.replace(event, args=args)
        if event.cat in ARROW_CATEGORIES and not self.arrow_correlations:
            return None
        if event.cat == PYTHON_CATEGORY:
            return event if self._is_module_call(event) else None
        for kineto_event in self.convert_event(event):
            start = end = OPEN_END_NS
            with suppress(ValueError):  # of an open range, or of what is damaged and was left out
                start = convert_to_ns(kineto_event.ts)
                end = start if kineto_event.ph in INSTANT_PHASES else start + convert_to_ns(kineto_event.dur)
            if self._is_wanted(kineto_event, start, end):
                is_open = kineto_event.cat in RANGE_CATEGORIES and (start, kineto_event.name) in self.open_ranges
                return msgspec.structs.replace(event, dur=Raw()) if is_open else event
        return None

    def _is_module_call(self, event: WholeEvent) -> bool:
        """Whether an event is the call of a module around the windows."""
        low, high = self.span
        with suppress(ValueError):  # what has no time says nothing of a program
            start = convert_to_ns(event.ts)
            touches = start <= high and start + convert_to_ns(event.dur) >= low
            return touches and event.name.startswith(MODULE_PREFIX)
        return False

    def _is_wanted(self, event: Event, start_ns: int, end_ns: int) -> bool:
        low, high = self.span
        args, touches = event.args or EventArgs(), start_ns <= high and end_ns >= low
        correlation = parse_whole_number(args.correlation)
        if event.cat in ARROW_CATEGORIES:
            return event.ph == ARROW_START and parse_whole_number(event.id) in self.arrow_correlations
        if event.ph in INSTANT_PHASES:
            return False
        if event.cat in GPU_CATEGORIES:
            spans = self._list_spans(parse_first_number(args.device, event.pid))
            in_window = (
                end_ns < OPEN_END_NS
                and start_ns <= end_ns
                and any(start_ns <= span_end and end_ns >= span_start for span_start, span_end in spans)
            )
            return in_window or (event.cat in COPY_CATEGORIES and correlation in self.copy_correlations)
        if event.cat in CALL_CATEGORIES:
            waits = touches and any(fnmatchcase(event.name, glob) for glob in self.part.wait_globs)
            return waits or (correlation is not None and correlation in self.correlations)
        if event.cat in SYNC_CATEGORIES:
            return event.name == STREAM_WAIT
        return event.cat in RANGE_CATEGORIES and (
            touches or any(matches(event.name) for matches in self.anchor_matchers)
        )


def _convert_kineto_event(event: WholeEvent) -> list[Event]:
    if event.cat not in CUT_CATEGORIES:
        return []
    args = (
        EventArgs()
        if event.cat in RANGE_CATEGORIES or event.cat in ARROW_CATEGORIES
        else EventArgs.from_json(event.arguments)
    )
    ph = "X" if event.ph is None else event.ph
    return [Event(ph, event.cat, event.name, event.pid, event.tid, event.ts, event.dur, event.id, args)]


def _render_event(event: WholeEvent, pid: int | str) -> str:
    """Return the event as JSON text; its numbers keep every digit that they were written with."""
    args = {name: value for name, value in event.arguments.items() if name in WRITTEN_ARGS and value is not None}
    parts: dict[str, object] = {"ph": event.ph, "cat": event.cat, "name": event.name, "pid": pid, "tid": event.tid}
    parts |= {"id": event.id, "args": args or None}
    member_texts = [
        f'"{key}":{json.dumps(value, separators=(",", ":"))}' for key, value in parts.items() if value is not None
    ]
    member_texts += [f'"{key}":{text}' for key in ("ts", "dur") if (text := _format_exact_number(getattr(event, key)))]
    return "{" + ",".join(member_texts) + "}"


def _format_exact_number(number: Any) -> str:
    """Return a number as it was written; empty for none."""
    if isinstance(number, int | str):  # as the standard library decodes what msgspec does not
        return str(number)
    return "" if number is None else bytes(number).decode("ascii", "replace")
