"""What is in one torch.profiler trace, once it was read: kernels by device, ranges, launches, and the last step."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from operator import sub
from pathlib import Path
from typing import Any

from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS, Interval, Range
from pytest_nsys.traces.chrome.json_stream import EventStream
from pytest_nsys.traces.chrome.kineto_columns import Columns, arrow_starts
from pytest_nsys.traces.chrome.kineto_events import Event
from pytest_nsys.traces.chrome.kineto_facts import LAUNCHES, STEP, Step, why_incomplete
from pytest_nsys.traces.chrome.kineto_kernels import LaunchTable, kernels_by_device, order_of
from pytest_nsys.traces.ranges import Ranges

PID_BITS = 0xFFFFFF
SINCE_1970 = range(1_420_070_400_000_000_000, 4_102_444_800_000_000_000)
"""Nanoseconds of the years 2015 to 2099: no machine has been up for so long."""


class Content:
    """What counts of one file, read in one pass. Raises TraceError where that fails."""

    STEP = STEP

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = columns = Columns(path)
        stream = self._read(columns)
        if not stream.has_events:
            raise TraceError(f"{path}: is JSON, but holds no traceEvents: it is no trace")
        if len(columns.call_pids) > 1:
            raise TraceError(
                f"{path}: holds API calls of {len(columns.call_pids)} processes, whose correlations cannot be told "
                "apart: a merged trace; give the file of each rank"
            )
        self.members = stream.members
        process = self._process()
        self.pid, self.global_pid = process & PID_BITS, process << 24
        self._index()
        self._follow_arrows()
        self.started_ns = self._started()
        self.notes = tuple(self._about_steps())

    def _index(self, short_names: array[int] | None = None) -> None:
        """Make of the columns what is asked for."""
        self.names = self.columns.names.texts()
        self.kernels = kernels_by_device(self.columns, self.names, short_names)
        self.launches = LaunchTable(self.columns)
        self._sort_ranges()
        self._by_launch: dict[int, tuple[list[int], array[int]]] = {}
        self._longest = {device: max(map(sub, own.end_ns, own.start_ns)) for device, own in self.kernels.items()}

    def _read(self, columns: Columns) -> EventStream[Any]:
        """Put every event that counts into the columns; the stream, at its end."""
        stream = EventStream(self.path, Event)
        for events in stream:
            columns.add(events)
        return stream

    def blocks(self) -> Iterator[Sequence[Event]]:
        """The events once more, a block at a time."""
        return iter(EventStream(self.path, Event))

    @cached_property
    def calls(self) -> Mapping[int, int]:
        """The start of the earliest call by correlation."""
        columns = self.columns
        return dict(sorted(zip(columns.call_correlation, columns.call_start, strict=True), reverse=True))

    def _process(self) -> int:
        """What tells the process from others."""
        return next(iter({**self.columns.call_pids, **self.columns.range_pids}), 0) & PID_BITS

    def _started(self) -> int | None:
        """When the first kernel or range began, in ns since 1970; None where the file does not say.

        Times count from ``baseTimeNanoseconds``; before there was such a member they counted from 1970.
        """
        starts = [kernels.start_ns[0] for kernels in self.kernels.values()]
        first = min((*starts, *self.columns.range_start[:1]), default=None)
        if first is None:
            return None
        base = self.members.get("baseTimeNanoseconds")
        if type(base) is int:
            return base + first
        return first if first in SINCE_1970 else None

    def _follow_arrows(self) -> None:
        """Kernels that no call launched may have an arrow from one: that takes a second pass, which few files need."""
        if self.launches.without:
            for events in self.blocks():
                for correlation, start in arrow_starts(events, self.launches.without):
                    self.launches.see(correlation, start)

    def _sort_ranges(self) -> None:
        columns = self.columns
        order = order_of(columns.range_start, columns.range_end, lambda i: self.names[columns.range_name[i]])
        if order is not None:
            for name in ("range_start", "range_end", "range_thread", "range_name"):
                column: array[int] = getattr(columns, name)
                setattr(columns, name, array(column.typecode, map(column.__getitem__, order)))

    def _about_steps(self) -> Iterator[str]:
        """The last step is left out where it is incomplete and not the only one: as an open range it is no anchor."""
        columns = self.columns
        steps = {i for i, name in enumerate(self.names) if self.STEP.fullmatch(name)}
        found = [i for i, name in enumerate(columns.range_name) if name in steps] if steps else []
        described = self._steps(found)
        why = why_incomplete(described, columns.recorded_until_ns)
        if why is None:
            return
        if len(found) > 1:
            columns.range_end[found[-1]] = OPEN_END_NS
            yield f"{self.path}: the last step, {described[-1].name}, is incomplete and left out: {why}"
        else:
            yield f"{self.path}: the only step, {described[-1].name}, is incomplete: {why}"

    def _steps(self, found: Sequence[int]) -> list[Step]:
        columns = self.columns
        launches = {i for i, name in enumerate(self.names) if LAUNCHES.search(name)}
        starts = [columns.range_start[i] for i in found]
        ran = self.launches.ran()
        counts, lost = [0] * len(found), [0] * len(found)
        for name, time, correlation in zip(
            columns.call_name, columns.call_start, columns.call_correlation, strict=True
        ):
            if name not in launches:
                continue
            step = bisect_right(starts, time) - 1
            if step >= 0 and time <= columns.range_end[found[step]]:
                counts[step] += 1
                lost[step] += correlation not in ran
        return [
            Step(self.names[columns.range_name[i]], columns.range_start[i], columns.range_end[i], n, gone)
            for i, n, gone in zip(found, counts, lost, strict=True)
        ]

    def ranges(self, wanted: Callable[[str], bool], span: Interval | None = None) -> Ranges:
        """The ranges whose name is wanted, and that touch the span."""
        columns, names = self.columns, self.names
        chosen = bytearray(map(wanted, names))
        low, high = span if span is not None else (NO_LAUNCH, OPEN_END_NS)
        after = bisect_right(columns.range_start, high)
        every = zip(columns.range_start, columns.range_end, columns.range_thread, columns.range_name, strict=True)
        return Ranges(
            Range(start, end, thread, names[name])
            for start, end, thread, name in islice(every, after)
            if chosen[name] and end >= low
        )

    def touching(self, device: int, span: Interval) -> list[int]:
        """The kernels of a device that touch the span."""
        kernels = self.kernels[device]
        low, high = span
        first = bisect_left(kernels.start_ns, low - self._longest[device])
        after = bisect_right(kernels.start_ns, high)
        return [i for i in range(first, after) if kernels.end_ns[i] >= low]

    def launched(self, device: int, span: Interval) -> list[int]:
        """The kernels of a device that were launched in the span."""
        if device not in self._by_launch:
            launches = array("q", map(self.launches.get, self.kernels[device].correlation))
            order = sorted((i for i, t in enumerate(launches) if t != NO_LAUNCH), key=launches.__getitem__)
            self._by_launch[device] = order, array("q", map(launches.__getitem__, order))
        order, times = self._by_launch[device]
        return sorted(order[bisect_left(times, span[0]) : bisect_right(times, span[1])])
