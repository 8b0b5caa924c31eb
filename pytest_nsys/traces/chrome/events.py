"""How do the events of a torch.profiler trace become columns, with times in whole nanoseconds?

Kernels (category ``kernel``), copies and memsets, calls of the CUDA or HIP API, ranges of CPU time (``user_annotation``
and ``cpu_op``), stream-waits, and the starts of the arrows from a launch to its kernel are read.
``gpu_user_annotation`` repeats ranges on the GPU's time, and functions of Python are no ranges. Times are decimals of a
microsecond and become integers of nanoseconds without a float between.

Events are converted column by column. One event is looked at by itself only where a column of its block cannot be made
as torch.profiler writes it: then odd values are worked out, or one line says what is wrong with the first damaged
event.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from decimal import Decimal, DecimalException
from operator import add
from pathlib import Path
from typing import Any, NamedTuple, Self

from msgspec import DecodeError, Raw, field
from msgspec.json import Decoder

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column, Flags
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import NO_LAUNCH, NO_STREAM, OPEN_END_NS, ImpossibleRows, Stream
from pytest_nsys.core.tables import Place
from pytest_nsys.core.words import printable
from pytest_nsys.traces.chrome.json_stream import Decoded
from pytest_nsys.traces.copies_as_kernels import COPY_ID, MEMSET_ID, TRANSFERS

KERNELS = frozenset({"kernel", "Kernel"})
CALLS = frozenset({"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "hip_driver"})
RANGES = frozenset({"user_annotation", "cpu_op", "Operator"})
COPIES = frozenset({"gpu_memcpy", "Memcpy"})
MEMSETS = frozenset({"gpu_memset", "Memset"})
SYNCS = frozenset({"cuda_sync"})
STREAM_WAIT = "Stream Wait Event"
ARROWS = frozenset({"ac2g", "async_cpu_to_gpu", "async"})
ARROW_START = "s"
SPANS = frozenset({"Trace"})
FUNCTIONS = "python_function"
"""The category of calls of Python's functions, modules among them; :func:`kineto_metadata.read_module_calls` reads
those.
"""
WINDOW_END = "Record Window End"
NO_CATEGORY = ""
POINTLESS = frozenset({"i", "I", "R", "M", "E"})
"""The phases of an instant, of metadata, and of the end of a range, which have no length."""
TRANSFER_KINDS: Mapping[str | None, int] = {**dict.fromkeys(COPIES, COPY_ID), **dict.fromkeys(MEMSETS, MEMSET_ID)}

KERNEL, CALL, RANGE, WAIT = "kernel", "API call", "range", "stream-wait"
"""How messages name an event that is damaged; for copies and memsets the words of ``TRANSFERS`` do it."""
ON_GPU = frozenset({KERNEL, *TRANSFERS.values()})
NO_END = NO_LAUNCH
"""Stands for the end of a GPU operation that has none."""


class Args(Decoded, frozen=True):
    """Holds what is read of an event's ``args``: whole numbers."""

    device: int | None = None
    context: int | None = None
    stream: int | None = None
    correlation: int | None = None
    graph_node: int | None = field(default=None, name="graph node id")
    graph: int | None = field(default=None, name="graph id")
    wait_on_stream: int | None = None
    record: int | None = field(default=None, name="wait_on_cuda_event_record_corr_id")
    original_stream: int | None = None

    @property
    def ran_on(self) -> int | None:
        """The number of the stream that the operation ran on."""
        # An exporter moves a kernel of a graph to a lane for display: then ``stream`` is that lane.
        return self.stream if self.original_stream is None else self.original_stream

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Build the arguments from what the standard library decoded.

        A number may be written as text, and what is no number counts as missing.
        """
        values = dict(zip(cls.__struct_fields__, map(found.get, cls.__struct_encode_fields__), strict=True))
        # Streams were called ``stream 7`` once.
        place_members = {name: first_whole(values.pop(name)) for name in ("device", "stream", "original_stream")}
        node = int(bool(values.pop("graph_node")))
        return cls(**place_members, graph_node=node, **{name: whole(value) for name, value in values.items()})


class Event(Decoded, frozen=True):
    """Describes one event of torch.profiler, or of another profiler in the terms of torch.profiler."""

    ARGS = Args

    ph: str = "X"
    cat: str | None = NO_CATEGORY
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: Raw = Raw()
    dur: Raw = Raw()
    id: int | str | None = None
    args: Args | None = Args()


NO_ARGS = Args()


def nanoseconds(microseconds: object) -> int:
    """Convert microseconds as text, bytes or an int to whole nanoseconds. Raises ValueError for what is no number."""
    if type(microseconds) is int:
        return 1000 * microseconds
    if isinstance(microseconds, str):
        text = microseconds
    elif isinstance(microseconds, bool) or microseconds is None:
        raise ValueError("no number")
    else:  # a piece of the file, as msgspec gives it
        try:
            text = bytes(microseconds).decode("ascii", "replace")  # type: ignore[call-overload]
        except TypeError:
            raise ValueError("no number") from None
    if len(text) > 40 or not text.isascii():  # 19 digits and a fraction; a million digits would take minutes
        raise ValueError("no time")
    try:
        exact_ns = Decimal(text.strip('"')).scaleb(3)
        if not exact_ns.is_finite() or exact_ns.adjusted() > 18:
            raise ValueError("no time")
        return int(exact_ns.to_integral_value())
    except DecimalException:
        raise ValueError("no number") from None


_DIGITS = b"0123456789"
_ALL_ZEROS = bytes.maketrans(_DIGITS, b"0" * len(_DIGITS))
_integers = Decoder(list[int]).decode


def column_of_ns(pieces: Sequence[Any]) -> list[int]:
    """Convert many times in microseconds to whole nanoseconds, all at once where that is exact.

    Raises ValueError where one is no number.
    """
    if not pieces or type(pieces[0]) is int:
        return list(map(nanoseconds, pieces))
    joined_times = ",".join(pieces).encode() if type(pieces[0]) is str else b",".join(pieces)
    if _in_thousandths(joined_times, len(pieces)):
        text = joined_times.replace(b".", b"")
        try:
            return _integers(b"[" + text + b"]")
        except DecodeError:  # 0.512 is now 0512, which is no number of JSON
            return list(map(int, text.split(b",")))
    try:
        microseconds = _integers(b"[" + joined_times + b"]")  # of years when nanoseconds were not written
    except DecodeError:
        microseconds = []
    return (
        [1000 * value for value in microseconds] if len(microseconds) == len(pieces) else list(map(nanoseconds, pieces))
    )


def _in_thousandths(joined: bytes, count: int) -> bool:
    """Whether all times have three digits behind their point, so that without the point they are nanoseconds."""
    if joined.translate(None, _DIGITS + b"-") + b"," != b".," * count:
        return False
    return (joined.translate(_ALL_ZEROS) + b",").count(b".000,") == count


class Numbers(dict[Any, int]):
    """Numbers keys (names, or a device, context and stream) from 0 in the order in which they are first looked up."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number

    def texts(self) -> list[str]:
        """Return the names by number, each fit to be written anywhere."""
        # A lone surrogate, which a broken byte becomes, is no character and fails where it is written.
        return [name.encode("utf-8", "replace").decode("utf-8") for name in self]


class GpuRows(NamedTuple):
    """Holds the kernels of a process, or its copies and memsets, one column for each property."""

    start: Column
    end: Column
    correlation: Column
    place: Column  # the number of a (device, context, stream) in ``places``
    name: Column
    graph_node: bytearray  # 1 where a graph launched the operation
    graph: Column  # the id of the graph that launched it, 0 where nothing says which
    places: Numbers

    @classmethod
    def none(cls) -> Self:
        """Return a table without rows."""
        return cls(array("q"), array("q"), array("q"), array("i"), array("i"), bytearray(), array("q"), Numbers())


class CallRows(NamedTuple):
    """Holds the calls of the CUDA or HIP API of a process, one column for each property."""

    start: Column
    end: Column
    thread: Column
    name: Column
    correlation: Column


class RangeRows(NamedTuple):
    """Holds the ranges of CPU time of a process, one column for each property."""

    start: Column
    end: Column
    thread: Column
    name: Column


class Wait(NamedTuple):
    """Describes a stream-wait as the trace writes it."""

    stream: Stream
    at: Place  # with the wait's own time
    on_stream: int | None
    record: int | None  # the correlation of the call that recorded the event


class EventColumns:
    """Collects the events of one process in columns while its file is read. Raises TraceError for a damaged kernel or
    range.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names, self.threads = Numbers(), Numbers()
        self.kernels, self.transfers, self.transfer_kind = GpuRows.none(), GpuRows.none(), array("q")
        self.calls = CallRows(array("q"), array("q"), array("q"), array("i"), array("q"))
        self.ranges = RangeRows(array("q"), array("q"), array("q"), array("i"))
        self.waits: list[Wait] = []
        # What is wrong where few ask for it: for each kind and name of event the first.
        self.damaged: dict[tuple[str, str], TraceError] = {}
        self.call_pids: set[int | str] = set()
        self.range_pids: set[int | str] = set()
        self.ends = 0
        """How often the recording ended; of one process at most once."""
        self.recorded_until_ns: int | None = None
        self.impossible = ImpossibleRows()
        self.categories: set[str | None] = set()
        """The categories of all events, including those that are not read here."""

    @property
    def has_work(self) -> bool:
        """Whether anything ran: an operation on a GPU, an API call or a range."""
        has_rows = self.kernels.start or self.transfers.start or self.calls.start or self.ranges.start
        return bool(has_rows or self.impossible.number)

    def add(self, events: Sequence[Event]) -> None:
        """Add events to the columns. Raises TraceError for a kernel or range that is damaged."""
        events_by_category: defaultdict[str | None, list[Event]] = defaultdict(list)
        for event in events:
            events_by_category[event.cat].append(event)
        self.categories.update(events_by_category)
        for category, category_events in events_by_category.items():
            if category in RANGES:
                self._add_ranges(_with_length(category_events))
            elif category in CALLS:
                self._add_calls(_with_length(category_events))
            elif category in KERNELS:
                self._add_kernels(_with_length(category_events))
            elif category in TRANSFER_KINDS:
                self._add_transfers(_with_length(category_events), TRANSFER_KINDS[category])
            elif category in SYNCS:
                for event in _with_length(category_events):
                    self._add_wait(event)
            elif category in SPANS or category in (NO_CATEGORY, None):
                for event in category_events:
                    self._recording(event)

    def _add_kernels(self, events: Sequence[Event]) -> None:
        keys, places_by_key = _places(events)
        if "" in [event.name for event in events] or any(None in place for place in places_by_key.values()):
            self._explain(events)
        place_numbers = {key: self.kernels.places[place] for key, place in places_by_key.items()}
        self._add_on_gpu(self.kernels, events, KERNEL, [place_numbers[key] for key in keys])

    def _explain(self, kernels: Sequence[Event]) -> None:
        """Check kernels one by one. Raises TraceError for the first that is damaged."""
        for event in kernels:
            if not event.name:
                raise TraceError(f"{self.path}: a kernel has no name: the trace is damaged; profile again")
            if None in _place(*_key(event)):
                raise self._nowhere(event)
            self._span(event, KERNEL)

    def _add_transfers(self, events: Sequence[Event], kind: int) -> None:
        """Add copies or memsets to the columns."""
        # On no known stream they are still busy time of their device; on no known device they are nothing. Neither may
        # count as communication.
        keys, places_by_key = _places(events)
        for event in events if any(None in place for place in places_by_key.values()) else ():
            if None in places_by_key[_key(event)]:
                self.damaged.setdefault((KERNEL, event.name), self._nowhere(event))
        place_numbers = {
            key: self.transfers.places[device, context, NO_STREAM if stream is None else stream]
            for key, (device, context, stream) in places_by_key.items()
            if device is not None
        }
        if len(place_numbers) < len(places_by_key):
            events = [event for event in events if _key(event) in place_numbers]
            keys = [key for key in keys if key in place_numbers]
        self._add_on_gpu(self.transfers, events, TRANSFERS[kind], [place_numbers[key] for key in keys])
        self.transfer_kind.extend([kind] * (len(self.transfers.start) - len(self.transfer_kind)))

    def _add_on_gpu(self, rows: GpuRows, events: Sequence[Event], kind: str, places: Sequence[int]) -> None:
        start, end = self._spans(events, kind)
        impossible_flags = columns.impossible(start, end)
        if 1 in impossible_flags:
            known_places = list(rows.places)
            for i in columns.where(impossible_flags):
                self._leave_out(kind, events[i].name, known_places[places[i]], start[i], end[i])
            possible_rows = columns.where_not(impossible_flags)
            start, end = columns.take(start, possible_rows), columns.take(end, possible_rows)
            events, places = [events[i] for i in possible_rows], [places[i] for i in possible_rows]
        rows.start.extend(start)
        rows.end.extend(end)
        rows.correlation.extend(_correlations(events))
        rows.place.extend(places)
        rows.name.extend(self._names(events))
        rows.graph_node.extend([bool(event.args and event.args.graph_node) for event in events])
        graphs = [event.args and event.args.graph for event in events]
        rows.graph.extend(
            [whole(graph) or 0 for graph in graphs] if any(graphs) else array("q", bytes(8 * len(graphs)))
        )

    def _leave_out(self, kind: str, name: str, place: tuple[int, int, int], start_ns: int, end_ns: int) -> None:
        """Count an operation that is left out because its times are impossible."""
        end = None if end_ns == NO_END else end_ns
        self.impossible = self.impossible.and_(ImpossibleRows.of(1, kind, name, place[-1], start_ns, end))

    def leave_out_at(self, time_ns: int) -> None:
        """Leave out the operations that start at a moment at which none can have started: the profiler did not time
        them.
        """
        if 1 in (untimed_flags := columns.equal(self.kernels.start, time_ns)):
            self.kernels = self._without(self.kernels, untimed_flags, [KERNEL] * len(untimed_flags))
        if 1 in (untimed_flags := columns.equal(self.transfers.start, time_ns)):
            kinds = [TRANSFERS[kind] for kind in self.transfer_kind]
            self.transfers = self._without(self.transfers, untimed_flags, kinds)
            self.transfer_kind = columns.take(self.transfer_kind, columns.where_not(untimed_flags))

    def _without(self, rows: GpuRows, left_out: Flags, kinds: Sequence[str]) -> GpuRows:
        """Return the rows without the flagged ones, which are counted as impossible."""
        names, known_places = self.names.texts(), list(rows.places)
        for i in columns.where(left_out):
            self._leave_out(kinds[i], names[rows.name[i]], known_places[rows.place[i]], rows.start[i], rows.end[i])
        remaining_rows = columns.where_not(left_out)
        start_and_end = columns.take(rows.start, remaining_rows), columns.take(rows.end, remaining_rows)
        correlation, place, name = (columns.take(column, remaining_rows) for column in rows[2:5])
        graphs = columns.take(rows.graph_node, remaining_rows), columns.take(rows.graph, remaining_rows)
        return GpuRows(*start_and_end, correlation, place, name, *graphs, rows.places)

    def _add_calls(self, events: Sequence[Event]) -> None:
        start, end = self._spans(events, CALL)
        parts = start, end, self._threads(events), self._names(events), _correlations(events)
        for column, part in zip(self.calls, parts, strict=True):
            column.extend(part)
        self.call_pids |= {event.pid for event in events}

    def _add_ranges(self, events: Sequence[Event]) -> None:
        start, end = self._spans(events, RANGE)
        for column, part in zip(self.ranges, (start, end, self._threads(events), self._names(events)), strict=True):
            column.extend(part)
        self.range_pids |= {event.pid for event in events}

    def _names(self, events: Sequence[Event]) -> Column:
        return array("i", [self.names[event.name] for event in events])

    def _threads(self, events: Sequence[Event]) -> Column:
        """Return the number of each event's thread; threads that are called by name are numbered from -1 down."""
        threads: list[Any] = [event.tid for event in events]
        try:
            return array("q", threads)
        except (TypeError, OverflowError):
            numbered_threads = ((whole(thread), str(thread)) for thread in threads)
            return array(
                "q", [-1 - self.threads[text] if number is None else number for number, text in numbered_threads]
            )

    def _add_wait(self, event: Event) -> None:
        """Add a stream-wait. The place of its record is found later, by the call with its correlation."""
        if event.name != STREAM_WAIT:
            return
        args, (device, context, stream) = event.args or NO_ARGS, _place(*_key(event))
        try:
            start = self._time(event, WAIT)
            if device is None or stream is None:
                raise self._wrong(event, WAIT, f"is of no known device and stream (pid {event.pid!r})")
        except TraceError as error:
            self.damaged.setdefault((WAIT, event.name), error)
            return
        correlation = whole(args.correlation)
        wait_place = Place(start, NO_LAUNCH if correlation is None else correlation)
        self.waits.append(
            Wait(Stream(device, context, stream), wait_place, whole(args.wait_on_stream), whole(args.record))
        )

    def _recording(self, event: Event) -> None:
        """Record when the profiler stopped recording, where an event says it."""
        is_span = event.cat in SPANS
        if not is_span and event.name != WINDOW_END:
            return
        self.ends += not is_span
        try:
            end = nanoseconds(event.ts) + (nanoseconds(event.dur) if is_span else 0)
        except ValueError:
            return
        if self.recorded_until_ns is None or end < self.recorded_until_ns:
            self.recorded_until_ns = end

    # -- times

    def _spans(self, events: Sequence[Event], kind: str) -> tuple[Column, Column]:
        """Return the starts and the ends of events in ns. Raises TraceError for a damaged one."""
        try:
            start = array("q", column_of_ns([event.ts for event in events]))
            length = array("q", column_of_ns([event.dur for event in events]))
            end = array("q", map(add, start, length))
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            has_no_open_range = kind != RANGE or "B" not in [event.ph for event in events]
            if has_no_open_range and (not start or (min(length) >= 0 and max(end) < OPEN_END_NS)):
                return start, end
        spans = [self._span(event, kind) for event in events]
        return array("q", [start for start, _ in spans]), array("q", [end for _, end in spans])

    def _span(self, event: Event, kind: str) -> tuple[int, int]:
        """Return the start and the end of one event in ns. Raises TraceError for a kernel or range that is damaged.

        A range may be open, and an operation of the GPU may end before it starts, or have no end. Any other event ends
        where it starts if its end cannot be read, and its damage is kept for those who ask for such an end.
        """
        start = self._time(event, kind)
        has_no_duration = event.dur is None or _as_bytes(event.dur) in (b"", b"null")
        if kind == RANGE and (event.ph == "B" or has_no_duration):
            return start, OPEN_END_NS
        if kind in ON_GPU and has_no_duration:
            return start, NO_END
        try:
            return start, self._fits(event, kind, start + self._length(event, kind))
        except TraceError as error:
            if kind in (KERNEL, RANGE):
                raise
            self.damaged.setdefault((kind, event.name), error)
            return start, start

    def _time(self, event: Event, kind: str) -> int:
        try:
            return self._fits(event, kind, nanoseconds(event.ts))
        except ValueError:
            raise self._wrong(event, kind, f"has no time that can be read (ts {_shown(event.ts)})") from None

    def _length(self, event: Event, kind: str) -> int:
        try:
            duration = nanoseconds(event.dur)
        except ValueError:
            raise self._wrong(event, kind, f"has no duration that can be read (dur {_shown(event.dur)})") from None
        if duration < 0 and kind not in ON_GPU:
            raise self._wrong(event, kind, "ends before it starts")
        return duration

    def _fits(self, event: Event, kind: str, time_ns: int) -> int:
        if not NO_LAUNCH < time_ns < OPEN_END_NS:
            raise self._wrong(event, kind, "lies outside of every clock")
        return time_ns

    def _nowhere(self, event: Event) -> TraceError:
        return self._wrong(event, KERNEL, f"runs on no known device and stream (pid {event.pid!r})")

    def _wrong(self, event: Event, kind: str, what: str) -> TraceError:
        name = printable(event.name, 80)
        return TraceError(f"{self.path}: {kind} '{name}' at ts {_shown(event.ts)} {what}: damaged; profile again")


def arrow_starts(events: Sequence[Event], wanted: Set[int]) -> Iterator[tuple[int, int]]:
    """Yield the correlation and the start in ns of each arrow that leads to a kernel with one of the correlations."""
    for event in events:
        if event.cat in ARROWS and event.ph == ARROW_START:
            number = whole(event.id)
            if number is None or number not in wanted:
                continue
            try:
                yield number, nanoseconds(event.ts)
            except ValueError:
                continue  # then it says nothing of a launch


def _with_length(events: Sequence[Event]) -> Sequence[Event]:
    return [e for e in events if e.ph not in POINTLESS] if POINTLESS & {e.ph for e in events} else events


Key = tuple[int | None, int | None, int | None, int | str, int | str]
"""What tells the place of an operation: device, context and stream as its arguments say, process and thread."""


def _key(event: Event) -> Key:
    args = event.args or NO_ARGS
    return args.device, args.context, args.ran_on, event.pid, event.tid


def _place(
    device: int | None, context: int | None, stream: int | None, pid: int | str, tid: int | str
) -> tuple[int | None, int, int | None]:
    """Return device, context and stream, by process and thread where the arguments do not say it."""
    return first_whole(device, pid), whole(context) or 0, first_whole(stream, tid)


def _places(events: Sequence[Event]) -> tuple[list[Key], dict[Key, tuple[int | None, int, int | None]]]:
    """Return the key of each event, and the place of each key."""
    keys = [(a.device, a.context, a.ran_on, e.pid, e.tid) for e in events for a in (e.args or NO_ARGS,)]
    return keys, {key: _place(*key) for key in dict.fromkeys(keys)}


def _correlations(events: Sequence[Event]) -> Column:
    correlations: list[Any] = [(event.args or NO_ARGS).correlation for event in events]
    try:
        return array(
            "q", [NO_LAUNCH if c is None else c for c in correlations] if None in correlations else correlations
        )
    except OverflowError:
        return array("q", [NO_LAUNCH if whole(c) is None else c for c in correlations])


def whole(value: object) -> int | None:
    """Return a value as a whole number that a column can hold, or None; a text of digits is a number, too."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19:
        return int(value)
    return value if type(value) is int and NO_LAUNCH < value < OPEN_END_NS else None


def first_whole(*values: object) -> int | None:
    """Return the first value that is a whole number or a text that ends with one, None where none is."""
    for value in values:
        last = value.rsplit(maxsplit=1)[-1] if isinstance(value, str) and value.strip() else value
        if (number := whole(last)) is not None:
            return number
    return None


def _as_bytes(value: Any) -> bytes:
    """Return the bytes that msgspec kept of a number; ``b"."`` for a value that the standard library decoded."""
    return b"." if isinstance(value, str | int | list | dict) else bytes(value)


def _shown(value: Any) -> str:
    if isinstance(value, list | dict | bool):
        return "no number"
    text = str(value) if value is None or isinstance(value, str | int) else bytes(value).decode("ascii", "replace")
    return "missing" if text in ("", "null", "None") else printable(text, 40)
