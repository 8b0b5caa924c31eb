"""What is one event of a torch.profiler trace, when was it, in whole nanoseconds, and how do events become columns?

Kernels (category ``kernel``), copies and memsets, calls of the CUDA or HIP API, ranges of CPU time
(``user_annotation`` and ``cpu_op``), stream-waits, and the starts of the arrows from a launch to its kernel.
``gpu_user_annotation`` repeats ranges on the GPU's time; functions of Python are no ranges. Times are decimals of a
microsecond and become integers of nanoseconds without a float between.

Events go through column by column. One is looked at by itself only where a column of its block cannot be made as
torch.profiler writes it: then what is odd is worked out, or one line says what is wrong with the first that is.
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
"""Calls of Python's functions, and of modules among them: :func:`kineto_said.read_module_calls` reads those."""
WINDOW_END = "Record Window End"
NO_CATEGORY = ""
POINTLESS = frozenset({"i", "I", "R", "M", "E"})
"""Phases of an instant, of metadata, and of the end of a range: they have no length."""
TRANSFER_KINDS: Mapping[str | None, int] = {**dict.fromkeys(COPIES, COPY_ID), **dict.fromkeys(MEMSETS, MEMSET_ID)}

KERNEL, CALL, RANGE, WAIT = "kernel", "API call", "range", "stream-wait"
"""What events are called where one is damaged, as those of ``TRANSFERS`` are."""
ON_GPU = frozenset({KERNEL, *TRANSFERS.values()})
NO_END = NO_LAUNCH
"""Stands for the end of an operation that has none."""


class Args(Decoded, frozen=True):
    """What is read of an event's ``args``: whole numbers."""

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
        """The stream. Where the exporter moved a kernel of a graph to a lane for display, ``stream`` is that lane."""
        return self.stream if self.original_stream is None else self.original_stream

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Numbers may be written as text, and what is none says nothing; streams were called ``stream 7`` once."""
        written = dict(zip(cls.__struct_fields__, map(found.get, cls.__struct_encode_fields__), strict=True))
        place = {name: first_whole(written.pop(name)) for name in ("device", "stream", "original_stream")}
        node = int(bool(written.pop("graph_node")))
        return cls(**place, graph_node=node, **{name: whole(value) for name, value in written.items()})


class Event(Decoded, frozen=True):
    """One event of torch.profiler, or of another profiler in its terms."""

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
    """An integer of nanoseconds from microseconds as text, bytes or an int. Raises ValueError for what is no number."""
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
        found = Decimal(text.strip('"')).scaleb(3)
        if not found.is_finite() or found.adjusted() > 18:
            raise ValueError("no time")
        return int(found.to_integral_value())
    except DecimalException:
        raise ValueError("no number") from None


_DIGITS = b"0123456789"
_ALL_ZEROS = bytes.maketrans(_DIGITS, b"0" * len(_DIGITS))
_integers = Decoder(list[int]).decode


def column_of_ns(pieces: Sequence[Any]) -> list[int]:
    """Nanoseconds of many numbers, all at once where that is exact. Raises ValueError where one is no number."""
    if not pieces or type(pieces[0]) is int:
        return list(map(nanoseconds, pieces))
    joined = ",".join(pieces).encode() if type(pieces[0]) is str else b",".join(pieces)
    if _in_thousandths(joined, len(pieces)):
        text = joined.replace(b".", b"")
        try:
            return _integers(b"[" + text + b"]")
        except DecodeError:  # 0.512 is now 0512, which is no number of JSON
            return list(map(int, text.split(b",")))
    try:
        whole = _integers(b"[" + joined + b"]")  # of years when nanoseconds were not written
    except DecodeError:
        whole = []
    return [1000 * each for each in whole] if len(whole) == len(pieces) else list(map(nanoseconds, pieces))


def _in_thousandths(joined: bytes, count: int) -> bool:
    """Whether all have three digits behind their point: without it they are nanoseconds."""
    if joined.translate(None, _DIGITS + b"-") + b"," != b".," * count:
        return False
    return (joined.translate(_ALL_ZEROS) + b",").count(b".000,") == count


class Numbers(dict[Any, int]):
    """A number for each name, or each (device, context, stream), in the order in which they were first seen."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number

    def texts(self) -> list[str]:
        """The names by number, fit to be written anywhere: a lone surrogate is no character."""
        return [name.encode("utf-8", "replace").decode("utf-8") for name in self]


class GpuRows(NamedTuple):
    """Kernels, or copies and memsets; ``place`` is the number of a (device, context, stream) in ``places``, ``graph``
    the id of the graph that launched one, 0 where nothing says of which.
    """

    start: Column
    end: Column
    correlation: Column
    place: Column
    name: Column
    graph_node: bytearray
    graph: Column
    places: Numbers

    @classmethod
    def none(cls) -> Self:
        """No row yet."""
        return cls(array("q"), array("q"), array("q"), array("i"), array("i"), bytearray(), array("q"), Numbers())


class CallRows(NamedTuple):
    """Calls of the API."""

    start: Column
    end: Column
    thread: Column
    name: Column
    correlation: Column


class RangeRows(NamedTuple):
    """Ranges of CPU time."""

    start: Column
    end: Column
    thread: Column
    name: Column


class Wait(NamedTuple):
    """A stream-wait as it is written: ``at`` has its own time, ``record`` is the correlation of the record's call."""

    stream: Stream
    at: Place
    on_stream: int | None
    record: int | None


class EventColumns:
    """The events of one trace that count, while they are read. Raises TraceError for one that cannot be.

    ``damaged`` has what is wrong where few ask for it: for each kind and name of event the first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names, self.threads = Numbers(), Numbers()
        self.kernels, self.transfers, self.transfer_kind = GpuRows.none(), GpuRows.none(), array("q")
        self.calls = CallRows(array("q"), array("q"), array("q"), array("i"), array("q"))
        self.ranges = RangeRows(array("q"), array("q"), array("q"), array("i"))
        self.waits: list[Wait] = []
        self.damaged: dict[tuple[str, str], TraceError] = {}
        self.call_pids: set[int | str] = set()
        self.range_pids: set[int | str] = set()
        self.ends = 0
        """How often the recording ended: of one process once at most."""
        self.recorded_until_ns: int | None = None
        self.impossible = ImpossibleRows()
        self.categories: set[str | None] = set()
        """Those of all events, also of such as are not read here."""

    @property
    def has_work(self) -> bool:
        """Whether there is anything that ran: on a GPU, a call or a range."""
        some = self.kernels.start or self.transfers.start or self.calls.start or self.ranges.start
        return bool(some or self.impossible.number)

    def add(self, events: Sequence[Event]) -> None:
        """More events."""
        found: defaultdict[str | None, list[Event]] = defaultdict(list)
        for event in events:
            found[event.cat].append(event)
        self.categories.update(found)
        for category, some in found.items():
            if category in RANGES:
                self._add_ranges(_with_length(some))
            elif category in CALLS:
                self._add_calls(_with_length(some))
            elif category in KERNELS:
                self._add_kernels(_with_length(some))
            elif category in TRANSFER_KINDS:
                self._add_transfers(_with_length(some), TRANSFER_KINDS[category])
            elif category in SYNCS:
                for event in _with_length(some):
                    self._add_wait(event)
            elif category in SPANS or category in (NO_CATEGORY, None):
                for event in some:
                    self._recording(event)

    def _add_kernels(self, events: Sequence[Event]) -> None:
        keys, known = _places(events)
        if "" in [event.name for event in events] or any(None in place for place in known.values()):
            self._explain(events)
        numbers = {key: self.kernels.places[place] for key, place in known.items()}
        self._add_on_gpu(self.kernels, events, KERNEL, [numbers[key] for key in keys])

    def _explain(self, kernels: Sequence[Event]) -> None:
        """Raises TraceError for the first that is damaged."""
        for event in kernels:
            if not event.name:
                raise TraceError(f"{self.path}: a kernel has no name: the trace is damaged; profile again")
            if None in _place(*_key(event)):
                raise self._nowhere(event)
            self._span(event, KERNEL)

    def _add_transfers(self, events: Sequence[Event], kind: int) -> None:
        """What is on no known stream is busy time of its device, what is on no known device is nothing; neither may
        count as communication.
        """
        keys, known = _places(events)
        for event in events if any(None in place for place in known.values()) else ():
            if None in known[_key(event)]:
                self.damaged.setdefault((KERNEL, event.name), self._nowhere(event))
        numbers = {
            key: self.transfers.places[device, context, NO_STREAM if stream is None else stream]
            for key, (device, context, stream) in known.items()
            if device is not None
        }
        if len(numbers) < len(known):
            events = [event for event in events if _key(event) in numbers]
            keys = [key for key in keys if key in numbers]
        self._add_on_gpu(self.transfers, events, TRANSFERS[kind], [numbers[key] for key in keys])
        self.transfer_kind.extend([kind] * (len(self.transfers.start) - len(self.transfer_kind)))

    def _add_on_gpu(self, rows: GpuRows, events: Sequence[Event], kind: str, places: Sequence[int]) -> None:
        start, end = self._spans(events, kind)
        left_out = columns.impossible(start, end)
        if 1 in left_out:
            known = list(rows.places)
            for i in columns.where(left_out):
                self._leave_out(kind, events[i].name, known[places[i]], start[i], end[i])
            possible = columns.where_not(left_out)
            start, end = columns.take(start, possible), columns.take(end, possible)
            events, places = [events[i] for i in possible], [places[i] for i in possible]
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
        """Count an operation whose times cannot be."""
        end = None if end_ns == NO_END else end_ns
        self.impossible = self.impossible.and_(ImpossibleRows.of(1, kind, name, place[-1], start_ns, end))

    def leave_out_at(self, time_ns: int) -> None:
        """Leave out the operations that start at a moment at which none did, for the profiler did not time them."""
        if 1 in (left_out := columns.equal(self.kernels.start, time_ns)):
            self.kernels = self._without(self.kernels, left_out, [KERNEL] * len(left_out))
        if 1 in (left_out := columns.equal(self.transfers.start, time_ns)):
            kinds = [TRANSFERS[kind] for kind in self.transfer_kind]
            self.transfers = self._without(self.transfers, left_out, kinds)
            self.transfer_kind = columns.take(self.transfer_kind, columns.where_not(left_out))

    def _without(self, rows: GpuRows, left_out: Flags, kinds: Sequence[str]) -> GpuRows:
        names, known = self.names.texts(), list(rows.places)
        for i in columns.where(left_out):
            self._leave_out(kinds[i], names[rows.name[i]], known[rows.place[i]], rows.start[i], rows.end[i])
        possible = columns.where_not(left_out)
        times = columns.take(rows.start, possible), columns.take(rows.end, possible)
        correlation, place, name = (columns.take(column, possible) for column in rows[2:5])
        graphs = columns.take(rows.graph_node, possible), columns.take(rows.graph, possible)
        return GpuRows(*times, correlation, place, name, *graphs, rows.places)

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
        """The threads, those that are called by name numbered from -1 down."""
        threads: list[Any] = [event.tid for event in events]
        try:
            return array("q", threads)
        except (TypeError, OverflowError):
            each = ((whole(thread), str(thread)) for thread in threads)
            return array("q", [-1 - self.threads[text] if number is None else number for number, text in each])

    def _add_wait(self, event: Event) -> None:
        """A stream-wait; the place of its record is what the call of that correlation says."""
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
        at = Place(start, NO_LAUNCH if correlation is None else correlation)
        self.waits.append(Wait(Stream(device, context, stream), at, whole(args.wait_on_stream), whole(args.record)))

    def _recording(self, event: Event) -> None:
        """When the profiler stopped recording, as far as it says."""
        span = event.cat in SPANS
        if not span and event.name != WINDOW_END:
            return
        self.ends += not span
        try:
            end = nanoseconds(event.ts) + (nanoseconds(event.dur) if span else 0)
        except ValueError:
            return
        if self.recorded_until_ns is None or end < self.recorded_until_ns:
            self.recorded_until_ns = end

    # -- times

    def _spans(self, events: Sequence[Event], kind: str) -> tuple[Column, Column]:
        """When each begins and ends."""
        try:
            start = array("q", column_of_ns([event.ts for event in events]))
            length = array("q", column_of_ns([event.dur for event in events]))
            end = array("q", map(add, start, length))
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            closed = kind != RANGE or "B" not in [event.ph for event in events]
            if closed and (not start or (min(length) >= 0 and max(end) < OPEN_END_NS)):
                return start, end
        spans = [self._span(event, kind) for event in events]
        return array("q", [start for start, _ in spans]), array("q", [end for _, end in spans])

    def _span(self, event: Event, kind: str) -> tuple[int, int]:
        """When one begins and ends; a range may be open, and an operation of the GPU may end before it starts, or have
        no end. What is no kernel and no range ends where it starts if its end cannot be read, and the damage is kept
        for those who ask for such an end.
        """
        start = self._time(event, kind)
        endless = event.dur is None or _as_bytes(event.dur) in (b"", b"null")
        if kind == RANGE and (event.ph == "B" or endless):
            return start, OPEN_END_NS
        if kind in ON_GPU and endless:
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
            length = nanoseconds(event.dur)
        except ValueError:
            raise self._wrong(event, kind, f"has no duration that can be read (dur {_shown(event.dur)})") from None
        if length < 0 and kind not in ON_GPU:
            raise self._wrong(event, kind, "ends before it starts")
        return length

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
    """Correlation and start, in ns, of the arrows that lead to wanted kernels."""
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
"""Device, context and stream as the arguments say, process and thread."""


def _key(event: Event) -> Key:
    args = event.args or NO_ARGS
    return args.device, args.context, args.ran_on, event.pid, event.tid


def _place(
    device: int | None, context: int | None, stream: int | None, pid: int | str, tid: int | str
) -> tuple[int | None, int, int | None]:
    """Device, context and stream; where the arguments do not say, process and thread may."""
    return first_whole(device, pid), whole(context) or 0, first_whole(stream, tid)


def _places(events: Sequence[Event]) -> tuple[list[Key], dict[Key, tuple[int | None, int, int | None]]]:
    """The key of each event, and the place of each key."""
    keys = [(a.device, a.context, a.ran_on, e.pid, e.tid) for e in events for a in (e.args or NO_ARGS,)]
    return keys, {key: _place(*key) for key in dict.fromkeys(keys)}


def _correlations(events: Sequence[Event]) -> Column:
    found: list[Any] = [(event.args or NO_ARGS).correlation for event in events]
    try:
        return array("q", [NO_LAUNCH if c is None else c for c in found] if None in found else found)
    except OverflowError:
        return array("q", [NO_LAUNCH if whole(c) is None else c for c in found])


def whole(value: object) -> int | None:
    """A whole number that a column can hold; a text of digits is one, too."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19:
        return int(value)
    return value if type(value) is int and NO_LAUNCH < value < OPEN_END_NS else None


def first_whole(*values: object) -> int | None:
    """The first that is a number or names one: lanes were called ``stream 7`` once."""
    for value in values:
        last = value.rsplit(maxsplit=1)[-1] if isinstance(value, str) and value.strip() else value
        if (number := whole(last)) is not None:
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
