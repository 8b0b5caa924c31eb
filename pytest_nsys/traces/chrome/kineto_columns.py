"""How do the events of a torch.profiler trace become compact columns, and what is wrong with one that cannot?

A block of events that look as torch.profiler writes them goes through column by column; one that holds anything else
(numbers as text, lanes as text, a NaN) event by event, with the same result or one line that says what is wrong.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from operator import add
from pathlib import Path
from typing import Any

from pytest_nsys.core.columns import Column
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import NO_LAUNCH, NO_STREAM, OPEN_END_NS, Stream
from pytest_nsys.core.tables import Place
from pytest_nsys.core.words import printable
from pytest_nsys.traces.chrome.kineto_events import (
    ARROW_START,
    ARROWS,
    CALLS,
    COPIES,
    KERNELS,
    MEMSETS,
    NO_ARGS,
    NO_CATEGORY,
    POINTLESS,
    RANGES,
    SPANS,
    STREAM_WAIT,
    SYNCS,
    WINDOW_END,
    Event,
    column_of_ns,
    nanoseconds,
)
from pytest_nsys.traces.chrome.kineto_waits import Wait
from pytest_nsys.traces.copies_as_kernels import COPY_ID, MEMSET_ID, TRANSFERS

TRANSFER_KINDS: Mapping[str | None, int] = {**dict.fromkeys(COPIES, COPY_ID), **dict.fromkeys(MEMSETS, MEMSET_ID)}


CALL, WAIT = "API call", "stream-wait"
"""What events are called where one is damaged, as those of ``TRANSFERS`` are."""


class Names(dict[str, int]):
    """A number for each name, in the order in which they were first seen."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number

    def texts(self) -> list[str]:
        """The names by number, fit to be written anywhere: a lone surrogate is no character."""
        return [name.encode("utf-8", "replace").decode("utf-8") for name in self]


class Places(dict[tuple[int, int, int], int]):
    """A number for each (device, context, stream)."""

    def __missing__(self, place: tuple[int, int, int]) -> int:
        number = self[place] = len(self)
        return number


class Columns:
    """The events of one trace that count, while they are read. Raises TraceError for one that cannot be."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names, self.places, self.threads = Names(), Places(), Names()
        self.kernel_start, self.kernel_end, self.kernel_correlation = array("q"), array("q"), array("q")
        self.kernel_place, self.kernel_name = array("i"), array("i")
        self.graph_node = bytearray()
        self.call_start, self.call_correlation, self.call_name = array("q"), array("q"), array("i")
        self.call_end, self.call_thread = array("q"), array("q")
        self.range_start, self.range_end = array("q"), array("q")
        self.range_thread, self.range_name = array("q"), array("i")
        self.transfer_start, self.transfer_end, self.transfer_correlation = array("q"), array("q"), array("q")
        self.transfer_place, self.transfer_kind, self.transfer_name = array("i"), array("q"), array("i")
        self.transfer_places = Places()
        self._kernels = self.kernel_start, self.kernel_end, self.kernel_correlation, self.kernel_place, self.kernel_name
        self._calls = self.call_start, self.call_end, self.call_thread, self.call_name, self.call_correlation
        self._ranges = self.range_start, self.range_end, self.range_thread, self.range_name
        of_transfers = self.transfer_start, self.transfer_end, self.transfer_correlation, self.transfer_place
        self._transfers = *of_transfers, self.transfer_name, self.transfer_kind
        self.waits: list[Wait] = []
        self.damaged: dict[str, TraceError] = {}
        self.call_pids: set[int] = set()
        self.range_pids: set[int] = set()
        self.recorded_until_ns: int | None = None

    def add(self, events: Sequence[Event]) -> None:
        """More events."""
        found: defaultdict[str | None, list[Any]] = defaultdict(list)
        for event in events:
            found[event.cat].append(event)
        for category, some in found.items():
            if category in RANGES:
                self._add_all(self._add_ranges, some)
            elif category in CALLS:
                self._add_all(self._add_calls, some)
            elif category in KERNELS:
                self._add_all(self._add_kernels, some)
            elif category in TRANSFER_KINDS:
                self._add_all(self._add_transfers, some)
            elif category in SYNCS:
                for event in some:
                    self._add_wait(event)
            elif category in SPANS or category in (NO_CATEGORY, None):
                for event in some:
                    self._recording(event)

    def _add_all(self, at_once: Callable[[Sequence[Any]], None], some: Sequence[Any]) -> None:
        try:
            at_once(some)
        except (TypeError, ValueError, OverflowError, AttributeError):  # before anything of them was added
            for event in some:
                self._add_one(event)

    # -- column by column

    def _add_kernels(self, events: Sequence[Any]) -> None:
        if "" in [event.name for event in events]:
            raise ValueError("no name")
        nodes = bytes([bool(event.args.graph_node) for event in events])
        _extend(self._kernels, *self._on_gpu(events, self.places))
        self.graph_node.extend(nodes)

    def _add_transfers(self, events: Sequence[Any]) -> None:
        kind = TRANSFER_KINDS[events[0].cat]
        _extend(self._transfers, *self._on_gpu(events, self.transfer_places), array("q", [kind]) * len(events))

    def _on_gpu(self, events: Sequence[Any], numbers: Places) -> tuple[Column, ...]:
        """Start, end, correlation, place and name of each."""
        start, end = _spans(events)
        places = [(each.device, each.context, each.stream) for each in (event.args for event in events)]
        different = dict.fromkeys(places)
        for device, context, stream in different:
            if not all(type(n) is int and NO_LAUNCH < n < OPEN_END_NS for n in (device, context or 0, stream)):
                raise ValueError("a lane to be worked out")
        correlations = _correlations(events)
        lanes = {(d, c, s): numbers[d, c or 0, s] for d, c, s in different}
        names = array("i", [self.names[event.name] for event in events])
        return start, end, correlations, array("i", [lanes[place] for place in places]), names

    def _add_calls(self, events: Sequence[Any]) -> None:
        correlations = _correlations(events)
        _extend(self._calls, *self._on_cpu(events, self.call_pids), correlations)

    def _add_ranges(self, events: Sequence[Any]) -> None:
        _extend(self._ranges, *self._on_cpu(events, self.range_pids))

    def _on_cpu(self, events: Sequence[Any], pids: set[int]) -> tuple[Column, ...]:
        """Start, end, thread and name of each; last of all ``pids`` get those of their processes."""
        start, end = _spans(events)
        threads = array("q", [event.tid for event in events])
        own = _numbers({event.pid for event in events})
        names = array("i", [self.names[event.name] for event in events])
        pids |= own
        return start, end, threads, names

    # -- one by one

    def _add_one(self, event: Any) -> None:
        category = event.cat
        if event.ph in POINTLESS:
            return
        if category in KERNELS:
            self._add_kernel(event)
        elif category in CALLS:
            self._add_call(event)
        elif category in TRANSFER_KINDS:
            self._add_transfer(event, TRANSFER_KINDS[category])
        else:
            self._add_range(event)

    def _add_kernel(self, event: Any) -> None:
        if not isinstance(event.name, str) or not event.name:
            raise TraceError(f"{self.path}: a kernel has no name: the trace is damaged; profile again")
        args = event.args or NO_ARGS
        device = _first_whole(args.device, event.pid)
        stream = _first_whole(args.stream, event.tid)
        if device is None or stream is None:
            raise self._wrong(event, "kernel", f"runs on no known device and stream (pid {event.pid!r})")
        start, length = self._time(event, "kernel", event.ts), self._length(event, "kernel")
        correlation, place = _whole(args.correlation), (device, _whole(args.context) or 0, stream)
        end = self._fits(event, "kernel", start + length)
        known = NO_LAUNCH if correlation is None else correlation
        self.put_kernel(start, end, known, place, event.name, bool(args.graph_node))

    def put_kernel(
        self, start: int, end: int, correlation: int, place: tuple[int, int, int], name: str, graph_node: bool
    ) -> None:
        """One more kernel; its place is device, context and stream."""
        for column, value in zip(
            self._kernels, (start, end, correlation, self.places[place], self.names[name]), strict=True
        ):
            column.append(value)
        self.graph_node.append(graph_node)

    def _add_transfer(self, event: Any, kind: int) -> None:
        args, what = event.args or NO_ARGS, TRANSFERS[kind]
        device, stream = _first_whole(args.device, event.pid), _first_whole(args.stream, event.tid)
        if device is None:
            return  # it is told apart by its device, as kernels are
        start = self._time(event, what, event.ts)
        end = self._end_for_who_asks(event, what, start)
        place = (device, _whole(args.context) or 0, NO_STREAM if stream is None else stream)
        correlation = _whole(args.correlation)
        self.put_transfer(start, end, NO_LAUNCH if correlation is None else correlation, place, kind, str(event.name))

    def put_transfer(
        self, start: int, end: int, correlation: int, place: tuple[int, int, int], kind: int, name: str
    ) -> None:
        """One more copy or memset; its place is device, context and stream."""
        for column, value in zip(
            self._transfers, (start, end, correlation, self.transfer_places[place], self.names[name], kind), strict=True
        ):
            column.append(value)

    def _end_for_who_asks(self, event: Any, what: str, start: int) -> int:
        """Its end; where that cannot be read its start, and the damage is kept for those who ask for such an end."""
        try:
            return self._fits(event, what, start + self._length(event, what))
        except TraceError as error:
            self.damaged.setdefault(what, error)
            return start

    def _add_call(self, event: Any) -> None:
        correlation = _whole((event.args or NO_ARGS).correlation)
        start = self._time(event, CALL, event.ts)
        end, thread = self._end_for_who_asks(event, CALL, start), self._thread(event)
        self.put_call(start, end, thread, NO_LAUNCH if correlation is None else correlation, event.name)
        self.call_pids |= _numbers([event.pid])

    def put_call(self, start: int, end: int, thread: int, correlation: int, name: str) -> None:
        """One more call of the API."""
        for column, value in zip(self._calls, (start, end, thread, self.names[name], correlation), strict=True):
            column.append(value)

    def _add_range(self, event: Any) -> None:
        start = self._time(event, "range", event.ts)
        is_open = event.ph == "B" or event.dur is None or _as_bytes(event.dur) in (b"", b"null")
        end = OPEN_END_NS if is_open else self._fits(event, "range", start + self._length(event, "range"))
        self.put_range(start, end, self._thread(event), event.name)
        self.range_pids |= _numbers([event.pid])

    def _thread(self, event: Any) -> int:
        thread = _whole(event.tid)
        return -1 - self.threads[str(event.tid)] if thread is None else thread

    def put_range(self, start: int, end: int, thread: int, name: str) -> None:
        """One more range."""
        for column, value in zip(self._ranges, (start, end, thread, self.names[name]), strict=True):
            column.append(value)

    def _add_wait(self, event: Any) -> None:
        """A stream-wait; the place of its record is what the call of that correlation says."""
        if event.ph in POINTLESS or event.name != STREAM_WAIT:
            return
        args = event.args or NO_ARGS
        device, stream = _first_whole(args.device, event.pid), _first_whole(args.stream, event.tid)
        correlation = _whole(args.correlation)
        try:
            start = self._time(event, WAIT, event.ts)
            if device is None or stream is None:
                raise self._wrong(event, WAIT, f"is of no known device and stream (pid {event.pid!r})")
        except TraceError as error:
            self.damaged.setdefault(WAIT, error)
            return
        own = device, _whole(args.context) or 0, stream
        at = Place(start, NO_LAUNCH if correlation is None else correlation)
        self.waits.append(Wait(Stream(*own), at, _whole(args.wait_on_stream), _whole(args.record)))

    def _recording(self, event: Any) -> None:
        """When the profiler stopped recording, as far as it says."""
        span = event.cat in SPANS
        if not span and event.name != WINDOW_END:
            return
        try:
            end = nanoseconds(event.ts) + (nanoseconds(event.dur) if span else 0)
        except ValueError:
            return
        if self.recorded_until_ns is None or end < self.recorded_until_ns:
            self.recorded_until_ns = end

    def _time(self, event: Any, kind: str, value: object) -> int:
        try:
            return self._fits(event, kind, nanoseconds(value))
        except ValueError:
            raise self._wrong(event, kind, f"has no time that can be read (ts {_shown(value)})") from None

    def _length(self, event: Any, kind: str) -> int:
        try:
            length = nanoseconds(event.dur)
        except ValueError:
            raise self._wrong(event, kind, f"has no duration that can be read (dur {_shown(event.dur)})") from None
        if length < 0:
            raise self._wrong(event, kind, "ends before it starts")
        return length

    def _fits(self, event: Any, kind: str, time_ns: int) -> int:
        if not NO_LAUNCH < time_ns < OPEN_END_NS:
            raise self._wrong(event, kind, "lies outside of every clock")
        return time_ns

    def _wrong(self, event: Any, kind: str, what: str) -> TraceError:
        name = printable(str(event.name), 80)
        return TraceError(f"{self.path}: {kind} '{name}' at ts {_shown(event.ts)} {what}: damaged; profile again")


def arrow_starts(events: Sequence[Event], wanted: Set[int]) -> Iterator[tuple[int, int]]:
    """Correlation and start, in ns, of the arrows that lead to wanted kernels."""
    for event in events:
        if event.cat in ARROWS and event.ph == ARROW_START:
            number = _whole(event.id)
            if number is None or number not in wanted:
                continue
            try:
                yield number, nanoseconds(event.ts)
            except ValueError:
                continue  # then it says nothing of a launch


def _extend(columns: Sequence[Column], *parts: Column) -> None:
    for column, part in zip(columns, parts, strict=True):
        column.extend(part)


def _spans(events: Sequence[Any]) -> tuple[Column, Column]:
    """When each begins and ends. Raises ValueError where one is no event with a length."""
    if {event.ph for event in events} - {"X"}:
        raise ValueError("events of other phases")
    starts, lengths = column_of_ns([event.ts for event in events]), column_of_ns([event.dur for event in events])
    if lengths and not 0 <= min(lengths) <= max(lengths) < OPEN_END_NS:
        raise ValueError("ends before it starts, or never")
    return array("q", starts), array("q", map(add, starts, lengths))


def _correlations(events: Sequence[Any]) -> Column:
    found = [event.args.correlation for event in events]
    return array("q", [NO_LAUNCH if c is None else c for c in found] if None in found else found)


def _numbers(labels: Iterable[Any]) -> set[int]:
    return {n for n in labels if type(n) is int}


def _whole(value: object) -> int | None:
    """A whole number that a column can hold; a text of digits is one, too."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19:
        return int(value)
    return value if type(value) is int and NO_LAUNCH < value < OPEN_END_NS else None


def _first_whole(*values: object) -> int | None:
    """The first that is a number or names one: lanes were called ``stream 7`` once."""
    for value in values:
        last = value.rsplit(maxsplit=1)[-1] if isinstance(value, str) and value.strip() else value
        if (number := _whole(last)) is not None:
            return number
    return None


def _as_bytes(value: Any) -> bytes:
    """What msgspec gave of a number, and anything for what the standard library gave."""
    return b"." if isinstance(value, str | int | list | dict) else bytes(value)


def _shown(value: Any) -> str:
    if isinstance(value, list | dict | bool):
        return "no number"
    text = str(value) if value is None or isinstance(value, str | int) else bytes(value).decode("ascii", "replace")
    return "missing" if text in ("", "null", "None") else printable(text, 40)
