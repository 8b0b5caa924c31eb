"""What does a trace of torch.profiler record of the program: modules, operators, ranges, and lines of the user's files?

They outnumber kernels, and few ask for them: the file is read once more when somebody does.

A file is the user's own unless it is installed (``site-packages``, ``dist-packages``), a part of torch or of Python's
own library, or no file at all (``<frozen importlib>``, ``<string>``). torch.profiler writes paths relative to the
folders that Python imports from, so what is installed often shows only by the name of its package.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Raw, field

from pytest_nsys.core.columns import Column, clip
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS
from pytest_nsys.core.tables import NO_SEQUENCE, BackwardLink, OpCalls, ProgramRecords, Ranges
from pytest_nsys.traces.chrome.events import (
    ARROW_START,
    PYTHON_CATEGORY,
    KeyNumbers,
    convert_column_to_ns,
    convert_to_ns,
    parse_whole_number,
)
from pytest_nsys.traces.chrome.json_stream import EventStream, JsonStruct
from pytest_nsys.traces.chrome.kineto_metadata import MODULE_PREFIX
from pytest_nsys.traces.chrome.rank_labels import group_by_label

OP_CATEGORIES = frozenset({"cpu_op", "Operator"})
ANNOTATION_CATEGORIES = frozenset({"user_annotation"})
LINK_CATEGORIES = frozenset({"fwdbwd", "forward_backward"})
_STEP_MARK = "ProfilerStep"
EVALUATED_BACKWARD = "autograd::engine::evaluate_function"
"""Begins the name of an op of the backward pass, which hooks of DDP have, too, though no forward op."""


class ProgramArgs(JsonStruct, frozen=True):
    """Holds what is read of the ``args`` of an operator."""

    sequence: int | None = field(default=None, name="Sequence number")
    forward_thread: int | None = field(default=None, name="Fwd thread id")


class ProgramEvent(JsonStruct, frozen=True):
    """Describes one event, as far as it tells what the program was doing."""

    ARGS = ProgramArgs

    ph: str = "X"
    cat: str | None = None
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: Raw = Raw()
    dur: Raw = Raw()
    id: int | str | None = None
    args: ProgramArgs | None = None


_NO_ARGS = ProgramArgs()
_FUNCTION = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<name>.+)\Z", re.DOTALL)
_INSTALLED = re.compile(r"(?:\A|/)(?:site|dist)-packages/|(?:\A|/)lib/python3[^/]*/")
_OWN_PACKAGES = frozenset({"torch", *sys.stdlib_module_names})


@lru_cache(1 << 16)
def is_users_function(name: str) -> bool:
    """Return whether a function that torch.profiler names is of the user's own files: ``model.py(212): forward``."""
    match = _FUNCTION.match(name)
    if match is None or name.startswith("<"):
        return False
    path = match["file"].replace("\\", "/")
    first_part = path.partition("/")[0].removesuffix(".py")
    return _INSTALLED.search(path) is None and first_part not in _OWN_PACKAGES


class _SpanColumns:
    """Collects spans of the host in columns while a file is read."""

    def __init__(self, threads: Callable[[int | str], int]) -> None:
        self._number_thread = threads
        self.start_ns, self.end_ns, self.thread, self.name = array("q"), array("q"), array("q"), array("q")
        self.names = KeyNumbers()

    def add(self, events: Sequence[ProgramEvent], names: Iterable[str]) -> list[ProgramEvent]:
        """Add the events that have a span, under these names; return them."""
        spanned_events, starts, ends = _convert_spans(events)
        self.start_ns.extend(starts)
        self.end_ns.extend(ends)
        self.thread.extend(self._number_threads(spanned_events))
        if len(spanned_events) < len(events):
            name_by_event = dict(zip(map(id, events), names, strict=True))
            names = [name_by_event[id(event)] for event in spanned_events]
        self.name.extend([self.names[name] for name in names])
        return spanned_events

    def _number_threads(self, events: Sequence[ProgramEvent]) -> Column:
        threads: list[Any] = [event.tid for event in events]
        try:
            return array("q", threads)
        except (TypeError, OverflowError):
            return array("q", map(self._number_thread, threads))

    def build_ranges(self) -> Ranges:
        """Build the ranges, in the order of the file."""
        return Ranges(self.start_ns, self.end_ns, self.thread, self.name, self.names.list_names())


def _convert_spans(events: Sequence[ProgramEvent]) -> tuple[list[ProgramEvent], Sequence[int], Sequence[int]]:
    """Return the events whose times can be read, with their starts and ends in ns."""
    # What cannot be read says nothing of a program; as a range it is refused where ranges are read.
    try:
        starts = convert_column_to_ns([event.ts for event in events])
        ends = [s + d for s, d in zip(starts, convert_column_to_ns([event.dur for event in events]), strict=True)]
        if not starts or (min(starts) > NO_LAUNCH and max(ends) < OPEN_END_NS and _are_ordered(starts, ends)):
            return list(events), starts, ends
    except (TypeError, ValueError, OverflowError):
        pass
    spanned_events, starts, ends = [], [], []
    for event in events:
        try:
            start = convert_to_ns(event.ts)
            end = start + convert_to_ns(event.dur)
        except ValueError:
            continue
        if NO_LAUNCH < start <= end < OPEN_END_NS:
            spanned_events.append(event)
            starts.append(start)
            ends.append(end)
    return spanned_events, starts, ends


def _convert_numbers(values: Sequence[Any], missing: int) -> Column:
    """Return whole numbers as a column; ``missing`` for what is none, or is negative."""
    try:
        numbers = array("q", [missing if value is None else value for value in values])
    except (TypeError, OverflowError):
        parsed = map(parse_whole_number, values)
        numbers = array("q", [missing if number is None else number for number in parsed])
    return clip(numbers, missing, OPEN_END_NS) if numbers and min(numbers) < missing else numbers


def _are_ordered(starts: Sequence[int], ends: Sequence[int]) -> bool:
    return all(start <= end for start, end in zip(starts, ends, strict=True))


class _ProgramColumns:
    """Collects what the trace of one process records of its program."""

    def __init__(self, threads: KeyNumbers) -> None:
        self._text_threads = threads
        self.modules, self.ops, self.ranges, self.functions = (_SpanColumns(self._number_thread) for _ in range(4))
        self.sequence, self.forward_thread, self.is_backward = array("q"), array("q"), bytearray()
        self._link_ends: dict[tuple[str, object], tuple[int, int]] = {}

    def _number_thread(self, tid: int | str) -> int:
        number = parse_whole_number(tid)
        # As the columns of events number those that are called by name: the calls that launch kernels have these.
        return -1 - self._text_threads[str(tid)] if number is None else number

    def add_events(self, events: Sequence[ProgramEvent]) -> None:
        """Add those events that tell of the program."""
        by_category: defaultdict[str | None, list[ProgramEvent]] = defaultdict(list)
        for event in events:
            by_category[event.cat].append(event)
        for category, category_events in by_category.items():
            if category == PYTHON_CATEGORY:
                calls = [event for event in category_events if event.name.startswith(MODULE_PREFIX)]
                self.modules.add(calls, [event.name.removeprefix(MODULE_PREFIX) for event in calls])
                functions = [event for event in category_events if is_users_function(event.name)]
                self.functions.add(functions, [event.name for event in functions])
            elif category in OP_CATEGORIES:
                # Before torch had annotations, its steps were operators, too.
                steps = [event for event in category_events if event.name.startswith(_STEP_MARK)]
                self.ranges.add(steps, [event.name for event in steps])
                self._add_ops([e for e in category_events if not e.name.startswith(_STEP_MARK)])
            elif category in ANNOTATION_CATEGORIES:
                self.ranges.add(category_events, [event.name for event in category_events])
            elif category in LINK_CATEGORIES:
                for event in category_events:
                    self._add_link_end(event)

    def _add_ops(self, events: Sequence[ProgramEvent]) -> None:
        added_events = self.ops.add(events, [event.name for event in events])
        arguments = [event.args or _NO_ARGS for event in added_events]
        self.sequence.extend(_convert_numbers([args.sequence for args in arguments], NO_SEQUENCE))
        forward_threads = _convert_numbers([args.forward_thread for args in arguments], 0)
        self.forward_thread.extend(forward_threads)
        names = (event.name for event in added_events)
        self.is_backward.extend(
            thread > 0 or name.startswith(EVALUATED_BACKWARD)
            for thread, name in zip(forward_threads, names, strict=True)
        )

    def _add_link_end(self, event: ProgramEvent) -> None:
        if not isinstance(event.id, int | str):
            return
        try:
            self._link_ends[event.ph, event.id] = self._number_thread(event.tid), convert_to_ns(event.ts)
        except ValueError:
            return

    def build_records(self) -> ProgramRecords:
        """Build the records of the process."""
        links = [
            BackwardLink(*self._link_ends["f", number], *place)
            for (phase, number), place in self._link_ends.items()
            if phase == ARROW_START and ("f", number) in self._link_ends
        ]
        ops = OpCalls(self.ops.build_ranges(), self.sequence, self.is_backward, self.forward_thread)
        modules, ranges, functions = (spans.build_ranges() for spans in (self.modules, self.ranges, self.functions))
        return ProgramRecords(ranges, modules, ops, functions, sorted(links))


def read_kineto_program(path: Path, threads_by_label: Mapping[str, KeyNumbers]) -> Mapping[str, ProgramRecords]:
    """Read what a file records of the program of each process, by the label of the process.

    ``threads_by_label`` are the threads that the columns of each process have numbered by their names. Raises
    TraceError for a file that cannot be read.
    """
    columns_by_label: dict[str, _ProgramColumns] = {}
    for events in EventStream(path, ProgramEvent):
        for label, label_events in group_by_label(events).items():
            if label not in columns_by_label:
                columns_by_label[label] = _ProgramColumns(threads_by_label.get(label, KeyNumbers()))
            columns_by_label[label].add_events(label_events)
    return {label: program_columns.build_records() for label, program_columns in columns_by_label.items()}
