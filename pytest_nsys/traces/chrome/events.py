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
from pytest_nsys.core.tables import KernelKey, LaunchPlace
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.traces.chrome.json_stream import JsonStruct
from pytest_nsys.traces.copies_as_kernels import COPY_ID, MEMSET_ID, TRANSFER_NAMES

KERNEL_CATEGORIES = frozenset({"kernel", "Kernel"})
CALL_CATEGORIES = frozenset({"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "hip_driver"})
RANGE_CATEGORIES = frozenset({"user_annotation", "cpu_op", "Operator"})
COPY_CATEGORIES = frozenset({"gpu_memcpy", "Memcpy"})
MEMSET_CATEGORIES = frozenset({"gpu_memset", "Memset"})
SYNC_CATEGORIES = frozenset({"cuda_sync"})
STREAM_WAIT = "Stream Wait Event"
ARROW_CATEGORIES = frozenset({"ac2g", "async_cpu_to_gpu", "async"})
ARROW_START = "s"
RECORDING_CATEGORIES = frozenset({"Trace"})
PYTHON_CATEGORY = "python_function"
"""The category of calls of Python's functions, modules among them; :func:`kineto_metadata.read_module_calls` reads
those.
"""
WINDOW_END = "Record Window End"
NO_CATEGORY = ""
INSTANT_PHASES = frozenset({"i", "I", "R", "M", "E"})
"""The phases of an instant, of metadata, and of the end of a range, which have no length."""
TRANSFER_IDS: Mapping[str | None, int] = {
    **dict.fromkeys(COPY_CATEGORIES, COPY_ID),
    **dict.fromkeys(MEMSET_CATEGORIES, MEMSET_ID),
}

KERNEL, CALL, RANGE, WAIT = "kernel", "API call", "range", "stream-wait"
"""How messages name an event that is damaged; for copies and memsets the words of ``TRANSFER_NAMES`` do it."""
GPU_EVENT_KINDS = frozenset({KERNEL, *TRANSFER_NAMES.values()})
MISSING_END_NS = NO_LAUNCH
"""Stands for the end of a GPU operation that has none."""


class EventArgs(JsonStruct, frozen=True):
    """Holds what is read of an event's ``args``: whole numbers, and the module that a kernel of a graph names."""

    device: int | None = None
    context: int | None = None
    stream: int | None = None
    correlation: int | None = None
    graph_node: int | None = field(default=None, name="graph node id")
    graph_id: int | None = field(default=None, name="graph id")
    wait_on_stream: int | None = None
    record_correlation: int | None = field(default=None, name="wait_on_cuda_event_record_corr_id")
    original_stream: int | None = None
    module_fqn: str | None = None

    @property
    def actual_stream(self) -> int | None:
        """The number of the stream that the operation ran on."""
        # An exporter moves a kernel of a graph to a lane for display: then ``stream`` is that lane.
        return self.stream if self.original_stream is None else self.original_stream

    @classmethod
    def from_json(cls, json_members: Mapping[str, Any]) -> Self:
        """Build the arguments from what the standard library decoded.

        A number may be written as text, and what is no number counts as missing.
        """
        values = dict(zip(cls.__struct_fields__, map(json_members.get, cls.__struct_encode_fields__), strict=True))
        # Streams were called ``stream 7`` once.
        place_members = {name: parse_first_number(values.pop(name)) for name in ("device", "stream", "original_stream")}
        node, module = int(bool(values.pop("graph_node"))), values.pop("module_fqn")
        return cls(
            **place_members,
            graph_node=node,
            module_fqn=module if isinstance(module, str) else None,
            **{name: parse_whole_number(value) for name, value in values.items()},
        )


class Event(JsonStruct, frozen=True):
    """Describes one event of torch.profiler, or of another profiler in the terms of torch.profiler."""

    ARGS = EventArgs

    ph: str = "X"
    cat: str | None = NO_CATEGORY
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: Raw = Raw()
    dur: Raw = Raw()
    id: int | str | None = None
    args: EventArgs | None = EventArgs()


NO_ARGS = EventArgs()


def convert_to_ns(microseconds: object) -> int:
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


_DIGIT_BYTES = b"0123456789"
_TO_ZEROS = bytes.maketrans(_DIGIT_BYTES, b"0" * len(_DIGIT_BYTES))
_decode_integers = Decoder(list[int]).decode


def convert_column_to_ns(times: Sequence[Any]) -> list[int]:
    """Convert many times in microseconds to whole nanoseconds, all at once where that is exact.

    Raises ValueError where one is no number.
    """
    if not times or type(times[0]) is int:
        return list(map(convert_to_ns, times))
    joined_times = ",".join(times).encode() if type(times[0]) is str else b",".join(times)
    if _has_three_decimals(joined_times, len(times)):
        text = joined_times.replace(b".", b"")
        try:
            return _decode_integers(b"[" + text + b"]")
        except DecodeError:  # 0.512 is now 0512, which is no number of JSON
            return list(map(int, text.split(b",")))
    try:
        microseconds = _decode_integers(b"[" + joined_times + b"]")  # of years when nanoseconds were not written
    except DecodeError:
        microseconds = []
    return (
        [1000 * value for value in microseconds] if len(microseconds) == len(times) else list(map(convert_to_ns, times))
    )


def _has_three_decimals(joined_times: bytes, count: int) -> bool:
    """Whether all times have three digits behind their point, so that without the point they are nanoseconds."""
    if joined_times.translate(None, _DIGIT_BYTES + b"-") + b"," != b".," * count:
        return False
    return (joined_times.translate(_TO_ZEROS) + b",").count(b".000,") == count


class KeyNumbers(dict[Any, int]):
    """Numbers keys (names, or a device, context and stream) from 0 in the order in which they are first looked up."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number

    def list_names(self) -> list[str]:
        """Return the names by number, each fit to be written anywhere."""
        # A lone surrogate, which a broken byte becomes, is no character and fails where it is written.
        return [name.encode("utf-8", "replace").decode("utf-8") for name in self]


class GpuRows(NamedTuple):
    """Holds the kernels of a process, or its copies and memsets, one column for each property."""

    start_ns: Column
    end_ns: Column
    correlation: Column
    place_number: Column  # the number of a (device, context, stream) in ``places``
    name_number: Column
    graph_node: bytearray  # 1 where a graph launched the operation
    graph_id: Column  # the id of the graph that launched it, 0 where nothing says which
    places: KeyNumbers

    @classmethod
    def make_empty(cls) -> Self:
        """Return a table without rows."""
        return cls(array("q"), array("q"), array("q"), array("i"), array("i"), bytearray(), array("q"), KeyNumbers())


class CallRows(NamedTuple):
    """Holds the calls of the CUDA or HIP API of a process, one column for each property."""

    start_ns: Column
    end_ns: Column
    thread: Column
    name_number: Column
    correlation: Column


class RangeRows(NamedTuple):
    """Holds the ranges of CPU time of a process, one column for each property."""

    start_ns: Column
    end_ns: Column
    thread: Column
    name_number: Column


class StreamWaitEvent(NamedTuple):
    """Describes a stream-wait as the trace writes it."""

    stream: Stream
    place: LaunchPlace  # with the wait's own time
    awaited_stream: int | None
    record_correlation: int | None  # the correlation of the call that recorded the event


class EventColumns:
    """Collects the events of one process in columns while its file is read. Raises TraceError for a damaged kernel or
    range.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names, self.threads = KeyNumbers(), KeyNumbers()
        self.kernels, self.transfers, self.transfer_ids = GpuRows.make_empty(), GpuRows.make_empty(), array("q")
        self.calls = CallRows(array("q"), array("q"), array("q"), array("i"), array("q"))
        self.ranges = RangeRows(array("q"), array("q"), array("q"), array("i"))
        self.waits: list[StreamWaitEvent] = []
        self.stated_modules: dict[KernelKey, str] = {}
        """The module that a kernel itself names, as annotated kernels of CUDA graphs do."""
        # What is wrong where few ask for it: for each kind and name of event the first.
        self.damage_errors: dict[tuple[str, str], TraceError] = {}
        self.call_pids: set[int | str] = set()
        self.range_pids: set[int | str] = set()
        self.recording_ends = 0
        """How often the recording ended; of one process at most once."""
        self.recorded_until_ns: int | None = None
        self.impossible = ImpossibleRows()
        self.categories: set[str | None] = set()
        """The categories of all events, including those that are not read here."""

    @property
    def has_work(self) -> bool:
        """Whether anything ran: an operation on a GPU, an API call or a range."""
        has_rows = self.kernels.start_ns or self.transfers.start_ns or self.calls.start_ns or self.ranges.start_ns
        return bool(has_rows or self.impossible.number)

    def add_events(self, events: Sequence[Event]) -> None:
        """Add events to the columns. Raises TraceError for a kernel or range that is damaged."""
        events_by_category: defaultdict[str | None, list[Event]] = defaultdict(list)
        for event in events:
            events_by_category[event.cat].append(event)
        self.categories.update(events_by_category)
        for category, category_events in events_by_category.items():
            if category in RANGE_CATEGORIES:
                self._add_ranges(_select_with_length(category_events))
            elif category in CALL_CATEGORIES:
                self._add_calls(_select_with_length(category_events))
            elif category in KERNEL_CATEGORIES:
                self._add_kernels(_select_with_length(category_events))
            elif category in TRANSFER_IDS:
                self._add_transfers(_select_with_length(category_events), TRANSFER_IDS[category])
            elif category in SYNC_CATEGORIES:
                for event in _select_with_length(category_events):
                    self._add_wait(event)
            elif category in RECORDING_CATEGORIES or category in (NO_CATEGORY, None):
                for event in category_events:
                    self._read_recording_end(event)

    def _add_kernels(self, events: Sequence[Event]) -> None:
        keys, places_by_key = _resolve_places(events)
        if "" in [event.name for event in events] or any(None in place for place in places_by_key.values()):
            self._raise_first_damage(events)
        place_numbers = {key: self.kernels.places[place] for key, place in places_by_key.items()}
        self._add_gpu_rows(self.kernels, events, KERNEL, [place_numbers[key] for key in keys])
        if naming_events := [event for event in events if event.args and event.args.module_fqn]:
            # One by one: a time that is written otherwise, as text, is refused where many are converted at once.
            starts = [convert_to_ns(event.ts) for event in naming_events]
            for key, event in zip(
                zip(_read_correlations(naming_events), starts, strict=True), naming_events, strict=True
            ):
                self.stated_modules[key] = (event.args or NO_ARGS).module_fqn or ""

    def _raise_first_damage(self, kernels: Sequence[Event]) -> None:
        """Check kernels one by one. Raises TraceError for the first that is damaged."""
        for event in kernels:
            if not event.name:
                raise TraceError(f"{self.path}: a kernel has no name: the trace is damaged; profile again")
            if None in _resolve_place(*_make_place_key(event)):
                raise self._make_unplaced_error(event)
            self._read_span(event, KERNEL)

    def _add_transfers(self, events: Sequence[Event], transfer_id: int) -> None:
        """Add copies or memsets to the columns."""
        # On no known stream they are still busy time of their device; on no known device they are nothing. Neither may
        # count as communication.
        keys, places_by_key = _resolve_places(events)
        for event in events if any(None in place for place in places_by_key.values()) else ():
            if None in places_by_key[_make_place_key(event)]:
                self.damage_errors.setdefault((KERNEL, event.name), self._make_unplaced_error(event))
        place_numbers = {
            key: self.transfers.places[device, context, NO_STREAM if stream is None else stream]
            for key, (device, context, stream) in places_by_key.items()
            if device is not None
        }
        if len(place_numbers) < len(places_by_key):
            events = [event for event in events if _make_place_key(event) in place_numbers]
            keys = [key for key in keys if key in place_numbers]
        self._add_gpu_rows(self.transfers, events, TRANSFER_NAMES[transfer_id], [place_numbers[key] for key in keys])
        self.transfer_ids.extend([transfer_id] * (len(self.transfers.start_ns) - len(self.transfer_ids)))

    def _add_gpu_rows(self, rows: GpuRows, events: Sequence[Event], kind: str, place_numbers: Sequence[int]) -> None:
        start, end = self._read_spans(events, kind)
        impossible_flags = columns.mark_impossible(start, end)
        if 1 in impossible_flags:
            known_places = list(rows.places)
            for i in columns.find_nonzero(impossible_flags):
                self._count_impossible(kind, events[i].name, known_places[place_numbers[i]], start[i], end[i])
            possible_rows = columns.find_zeros(impossible_flags)
            start, end = columns.take(start, possible_rows), columns.take(end, possible_rows)
            events, place_numbers = [events[i] for i in possible_rows], [place_numbers[i] for i in possible_rows]
        rows.start_ns.extend(start)
        rows.end_ns.extend(end)
        rows.correlation.extend(_read_correlations(events))
        rows.place_number.extend(place_numbers)
        rows.name_number.extend(self._number_names(events))
        rows.graph_node.extend([bool(event.args and event.args.graph_node) for event in events])
        graphs = [event.args and event.args.graph_id for event in events]
        rows.graph_id.extend(
            [parse_whole_number(graph) or 0 for graph in graphs] if any(graphs) else array("q", bytes(8 * len(graphs)))
        )

    def _count_impossible(self, kind: str, name: str, place: tuple[int, int, int], start_ns: int, end_ns: int) -> None:
        """Count an operation that is left out because its times are impossible."""
        end = None if end_ns == MISSING_END_NS else end_ns
        self.impossible = self.impossible.add(ImpossibleRows.from_first_row(1, kind, name, place[-1], start_ns, end))

    def drop_rows_at(self, time_ns: int) -> None:
        """Leave out the operations that start at a moment at which none can have started: the profiler did not time
        them.
        """
        if 1 in (untimed_flags := columns.mark_equal(self.kernels.start_ns, time_ns)):
            self.kernels = self._drop_rows(self.kernels, untimed_flags, [KERNEL] * len(untimed_flags))
        if 1 in (untimed_flags := columns.mark_equal(self.transfers.start_ns, time_ns)):
            kinds = [TRANSFER_NAMES[kind] for kind in self.transfer_ids]
            self.transfers = self._drop_rows(self.transfers, untimed_flags, kinds)
            self.transfer_ids = columns.take(self.transfer_ids, columns.find_zeros(untimed_flags))

    def _drop_rows(self, rows: GpuRows, dropped_flags: Flags, kinds: Sequence[str]) -> GpuRows:
        """Return the rows without the flagged ones, which are counted as impossible."""
        names, known_places = self.names.list_names(), list(rows.places)
        for i in columns.find_nonzero(dropped_flags):
            self._count_impossible(
                kinds[i],
                names[rows.name_number[i]],
                known_places[rows.place_number[i]],
                rows.start_ns[i],
                rows.end_ns[i],
            )
        remaining_rows = columns.find_zeros(dropped_flags)
        start_and_end = columns.take(rows.start_ns, remaining_rows), columns.take(rows.end_ns, remaining_rows)
        correlation, place, name = (columns.take(column, remaining_rows) for column in rows[2:5])
        graphs = columns.take(rows.graph_node, remaining_rows), columns.take(rows.graph_id, remaining_rows)
        return GpuRows(*start_and_end, correlation, place, name, *graphs, rows.places)

    def _add_calls(self, events: Sequence[Event]) -> None:
        start, end = self._read_spans(events, CALL)
        parts = start, end, self._number_threads(events), self._number_names(events), _read_correlations(events)
        for column, part in zip(self.calls, parts, strict=True):
            column.extend(part)
        self.call_pids |= {event.pid for event in events}

    def _add_ranges(self, events: Sequence[Event]) -> None:
        start, end = self._read_spans(events, RANGE)
        for column, part in zip(
            self.ranges, (start, end, self._number_threads(events), self._number_names(events)), strict=True
        ):
            column.extend(part)
        self.range_pids |= {event.pid for event in events}

    def _number_names(self, events: Sequence[Event]) -> Column:
        return array("i", [self.names[event.name] for event in events])

    def _number_threads(self, events: Sequence[Event]) -> Column:
        """Return the number of each event's thread; threads that are called by name are numbered from -1 down."""
        threads: list[Any] = [event.tid for event in events]
        try:
            return array("q", threads)
        except (TypeError, OverflowError):
            numbered_threads = ((parse_whole_number(thread), str(thread)) for thread in threads)
            return array(
                "q", [-1 - self.threads[text] if number is None else number for number, text in numbered_threads]
            )

    def _add_wait(self, event: Event) -> None:
        """Add a stream-wait. The place of its record is found later, by the call with its correlation."""
        if event.name != STREAM_WAIT:
            return
        args, (device, context, stream) = event.args or NO_ARGS, _resolve_place(*_make_place_key(event))
        try:
            start = self._read_time(event, WAIT)
            if device is None or stream is None:
                raise self._make_event_error(event, WAIT, f"is of no known device and stream (pid {event.pid!r})")
        except TraceError as error:
            self.damage_errors.setdefault((WAIT, event.name), error)
            return
        correlation = parse_whole_number(args.correlation)
        wait_place = LaunchPlace(start, NO_LAUNCH if correlation is None else correlation)
        self.waits.append(
            StreamWaitEvent(
                Stream(device, context, stream),
                wait_place,
                parse_whole_number(args.wait_on_stream),
                parse_whole_number(args.record_correlation),
            )
        )

    def _read_recording_end(self, event: Event) -> None:
        """Record when the profiler stopped recording, where an event says it."""
        is_span = event.cat in RECORDING_CATEGORIES
        if not is_span and event.name != WINDOW_END:
            return
        self.recording_ends += not is_span
        try:
            end = convert_to_ns(event.ts) + (convert_to_ns(event.dur) if is_span else 0)
        except ValueError:
            return
        if self.recorded_until_ns is None or end < self.recorded_until_ns:
            self.recorded_until_ns = end

    # -- times

    def _read_spans(self, events: Sequence[Event], kind: str) -> tuple[Column, Column]:
        """Return the starts and the ends of events in ns. Raises TraceError for a damaged one."""
        try:
            start = array("q", convert_column_to_ns([event.ts for event in events]))
            length = array("q", convert_column_to_ns([event.dur for event in events]))
            end = array("q", map(add, start, length))
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            has_no_open_range = kind != RANGE or "B" not in [event.ph for event in events]
            if has_no_open_range and (not start or (min(length) >= 0 and max(end) < OPEN_END_NS)):
                return start, end
        spans = [self._read_span(event, kind) for event in events]
        return array("q", [start for start, _ in spans]), array("q", [end for _, end in spans])

    def _read_span(self, event: Event, kind: str) -> tuple[int, int]:
        """Return the start and the end of one event in ns. Raises TraceError for a kernel or range that is damaged.

        A range may be open, and an operation of the GPU may end before it starts, or have no end. Any other event ends
        where it starts if its end cannot be read, and its damage is kept for those who ask for such an end.
        """
        start = self._read_time(event, kind)
        has_no_duration = event.dur is None or _convert_to_bytes(event.dur) in (b"", b"null")
        if kind == RANGE and (event.ph == "B" or has_no_duration):
            return start, OPEN_END_NS
        if kind in GPU_EVENT_KINDS and has_no_duration:
            return start, MISSING_END_NS
        try:
            return start, self._check_in_clock(event, kind, start + self._read_duration(event, kind))
        except TraceError as error:
            if kind in (KERNEL, RANGE):
                raise
            self.damage_errors.setdefault((kind, event.name), error)
            return start, start

    def _read_time(self, event: Event, kind: str) -> int:
        try:
            return self._check_in_clock(event, kind, convert_to_ns(event.ts))
        except ValueError:
            raise self._make_event_error(
                event, kind, f"has no time that can be read (ts {_format_raw_value(event.ts)})"
            ) from None

    def _read_duration(self, event: Event, kind: str) -> int:
        try:
            duration = convert_to_ns(event.dur)
        except ValueError:
            raise self._make_event_error(
                event, kind, f"has no duration that can be read (dur {_format_raw_value(event.dur)})"
            ) from None
        if duration < 0 and kind not in GPU_EVENT_KINDS:
            raise self._make_event_error(event, kind, "ends before it starts")
        return duration

    def _check_in_clock(self, event: Event, kind: str, time_ns: int) -> int:
        if not NO_LAUNCH < time_ns < OPEN_END_NS:
            raise self._make_event_error(event, kind, "lies outside of every clock")
        return time_ns

    def _make_unplaced_error(self, event: Event) -> TraceError:
        return self._make_event_error(event, KERNEL, f"runs on no known device and stream (pid {event.pid!r})")

    def _make_event_error(self, event: Event, kind: str, problem: str) -> TraceError:
        name = sanitize_line(event.name, 80)
        return TraceError(
            f"{self.path}: {kind} '{name}' at ts {_format_raw_value(event.ts)} {problem}: damaged; profile again"
        )


def find_arrow_starts(events: Sequence[Event], correlations: Set[int]) -> Iterator[tuple[int, int]]:
    """Yield the correlation and the start in ns of each arrow that leads to a kernel with one of the correlations."""
    for event in events:
        if event.cat in ARROW_CATEGORIES and event.ph == ARROW_START:
            number = parse_whole_number(event.id)
            if number is None or number not in correlations:
                continue
            try:
                yield number, convert_to_ns(event.ts)
            except ValueError:
                continue  # then it says nothing of a launch


def _select_with_length(events: Sequence[Event]) -> Sequence[Event]:
    return [e for e in events if e.ph not in INSTANT_PHASES] if INSTANT_PHASES & {e.ph for e in events} else events


PlaceKey = tuple[int | None, int | None, int | None, int | str, int | str]
"""What tells the place of an operation: device, context and stream as its arguments say, process and thread."""


def _make_place_key(event: Event) -> PlaceKey:
    args = event.args or NO_ARGS
    return args.device, args.context, args.actual_stream, event.pid, event.tid


def _resolve_place(
    device: int | None, context: int | None, stream: int | None, pid: int | str, tid: int | str
) -> tuple[int | None, int, int | None]:
    """Return device, context and stream, by process and thread where the arguments do not say it."""
    return parse_first_number(device, pid), parse_whole_number(context) or 0, parse_first_number(stream, tid)


def _resolve_places(
    events: Sequence[Event],
) -> tuple[list[PlaceKey], dict[PlaceKey, tuple[int | None, int, int | None]]]:
    """Return the key of each event, and the place of each key."""
    keys = [(a.device, a.context, a.actual_stream, e.pid, e.tid) for e in events for a in (e.args or NO_ARGS,)]
    return keys, {key: _resolve_place(*key) for key in dict.fromkeys(keys)}


def _read_correlations(events: Sequence[Event]) -> Column:
    correlations: list[Any] = [(event.args or NO_ARGS).correlation for event in events]
    try:
        return array(
            "q", [NO_LAUNCH if c is None else c for c in correlations] if None in correlations else correlations
        )
    except OverflowError:
        return array("q", [NO_LAUNCH if parse_whole_number(c) is None else c for c in correlations])


def parse_whole_number(value: object) -> int | None:
    """Return a value as a whole number that a column can hold, or None; a text of digits is a number, too."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19:
        return int(value)
    return value if type(value) is int and NO_LAUNCH < value < OPEN_END_NS else None


def parse_first_number(*values: object) -> int | None:
    """Return the first value that is a whole number or a text that ends with one, None where none is."""
    for value in values:
        last = value.rsplit(maxsplit=1)[-1] if isinstance(value, str) and value.strip() else value
        if (number := parse_whole_number(last)) is not None:
            return number
    return None


def _convert_to_bytes(value: Any) -> bytes:
    """Return the bytes that msgspec kept of a number; ``b"."`` for a value that the standard library decoded."""
    return b"." if isinstance(value, str | int | list | dict) else bytes(value)


def _format_raw_value(value: Any) -> str:
    if isinstance(value, list | dict | bool):
        return "no number"
    text = str(value) if value is None or isinstance(value, str | int) else bytes(value).decode("ascii", "replace")
    return "missing" if text in ("", "null", "None") else sanitize_line(text, 40)
