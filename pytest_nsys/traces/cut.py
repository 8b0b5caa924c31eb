"""Reading a window that ``pytest-nsys cut`` wrote: ranks, kernels, launches, ranges and calls are those of its trace.

The file is Chrome's JSON of some megabytes, one process for each rank. What no event shows stands under ``CUT``: who
the ranks are, the anchors elsewhere in the run, the clock. Where it holds a base and a head, head is read.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.conventions import COMMUNICATION_PREFIX, like
from pytest_nsys.errors import NothingMeasured, TraceError
from pytest_nsys.model import (
    NO_LAUNCH,
    OPEN_END_NS,
    Api,
    Collective,
    Copy,
    Interval,
    Kernels,
    Lane,
    Range,
    Setup,
    Stream,
    TraceFacts,
    printable,
)
from pytest_nsys.traces.copies_as_kernels import NAMES
from pytest_nsys.traces.json_stream import EventStream
from pytest_nsys.traces.kineto_events import nanoseconds

CUT = "pytestNsysCut"
"""The first member of the file, which says what was cut."""
MARK = re.compile(rb'\A\s*\{\s*"' + CUT.encode() + rb'"\s*:')
FORMAT = 2
KERNEL, CALL, RANGE, COPY = "kernel", "cuda_runtime", "user_annotation", "gpu_memcpy"
"""Categories of the events that are read back, as torch.profiler calls them."""
GRAPH_NODE = "graph node id"
COLLECTIVE = {
    "name": "Collective name",
    "group": "Process Group Name",
    "members": "Process Group Members",
    "group_size": "Group size",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "dtype": "dtype",
}
"""What torch.profiler calls the fields of a Collective; it has no word for what tells two groups of a name apart."""
_WHOLE_FIELDS = ("group_size", "in_elements", "out_elements")
BASE, HEAD = "base", "head"
MACHINE_BITS = 48
"""Where a serialised process id names the machine: ranks whose clocks have nothing in common differ there."""
AGAIN = "cut it again from its trace"


class _Kernel(NamedTuple):
    """One kernel; a file without a correlation or a launch has none."""

    start_ns: int
    end_ns: int
    stream: Stream
    name: str
    full_name: str
    correlation: int
    launch_ns: int
    graph_node: bool
    collective: Collective | None


class _Process:
    """One rank, while its events are read: ``about`` is what the file says of it."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.about = about
        self.global_pid = _whole(_whole(about["clock"]) << MACHINE_BITS | _whole(about["pid"]) << 24)
        self.base_ns = _whole(about["base_ns"])
        self.threads = {int(lane): _whole(thread) for lane, thread in about["threads"].items()}
        self.ranges = [
            Range(_whole(start), _end(end), _whole(thread), str(name)) for start, end, thread, name in about["anchors"]
        ]
        self.windows = [(_whole(start), _end(end)) for start, end in about["windows"]]
        low, high = about["on_gpu"] or (0, 0)
        self.on_gpu = _whole(low), _end(high)
        self.kernels: list[_Kernel] = []
        self.communicating_copies: list[_Kernel] = []
        self.calls: list[Api] = []
        self.copies: list[Copy] = []

    @property
    def setup(self) -> Setup:
        """What the trace stated of the rank; its number alone where it stated nothing."""
        number, said = int(self.about["rank"]), self.about["setup"]
        if said is None:
            return Setup(f"rank {number}", number, {}, {})
        return Setup(
            said["text"], number, said["coordinates"], said["sizes"], said["micro_batch"], said["sequence_length"]
        )

    def add(self, event: Mapping[str, Any]) -> None:
        """A kernel, call, range or copy of the process; any other event is passed over."""
        category, args = event.get("cat"), event.get("args", {})
        if event["ph"] != "X" or category not in (KERNEL, CALL, RANGE, COPY):
            return
        name = str(event["name"])
        start = _whole(self.base_ns + nanoseconds(event["ts"]))
        end = _whole(start + nanoseconds(event["dur"]))
        if category == KERNEL:
            kernel = _kernel(name, start, end, args)
            if name in NAMES.values():
                self.communicating_copies.append(kernel._replace(full_name=name))
            else:
                self.kernels.append(kernel)
        elif category == CALL:
            self.calls.append(Api(start, name))
        elif category == COPY:
            self.copies.append(Copy(start, str(args["source"]), str(args["target"]), _whole(args["launch_ns"])))
        else:
            start, end = _whole(args.get("start_ns", start)), _end(args["end_ns"]) if "end_ns" in args else end
            self.ranges.append(Range(start, end, self.threads[event["tid"]], name))

    def finish(self) -> None:
        """Put everything into the order that its readers count on."""
        self.kernels.sort(key=lambda k: k[:6])
        self.communicating_copies.sort(key=lambda k: k[:6])
        self.calls.sort(key=lambda call: (call.start_ns, call.name))
        self.copies.sort()
        self.ranges.sort(key=lambda r: (r.start_ns, r.end_ns, r.name))

    def chosen(self, device: int | None, wanted: Callable[[_Kernel], bool]) -> Kernels:
        """The kernels of one device, or of all, that are wanted."""
        found = [k for k in self.kernels if device in (None, k.stream.device) and wanted(k)]
        names = dict.fromkeys(n for k in found for n in (k.name, k.full_name))
        return _columns(found, {name: i for i, name in enumerate(names)})

    def holds(self, span: Interval) -> bool:
        """Whether all kernels of the span are here: it lies in the windows, or goes from the first to the last."""
        merged: list[Interval] = []
        for start, end in sorted(self.windows):
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        hull = merged[0][0], merged[-1][1]
        return span == hull or any(start <= span[0] and span[1] <= end for start, end in merged)

    def copies_by_device(self) -> dict[int, Kernels]:
        """The copies that count as communication."""
        found: dict[int, list[_Kernel]] = {}
        for copy in self.communicating_copies:
            found.setdefault(copy.stream.device, []).append(copy)
        numbers = {name: i for i, name in NAMES.items()}
        return {device: _columns(own, numbers) for device, own in sorted(found.items())}


def _columns(found: Sequence[_Kernel], names: Mapping[str, int]) -> Kernels:
    streams = {stream: i for i, stream in enumerate(dict.fromkeys(k.stream for k in found))}
    return Kernels(
        start_ns=array("q", [k.start_ns for k in found]),
        end_ns=array("q", [k.end_ns for k in found]),
        correlation=array("q", [k.correlation for k in found]),
        stream=array("q", [streams[k.stream] for k in found]),
        name=array("q", [names[k.name] for k in found]),
        full_name=array("q", [names[k.full_name] for k in found]),
        streams=tuple(streams),
        names={i: name for name, i in names.items()},
        graph_node=bytearray(k.graph_node for k in found),
    )


def _whole(value: Any) -> int:
    """A whole number that a column can hold. Raises ValueError for anything else."""
    if type(value) is not int or not NO_LAUNCH <= value <= OPEN_END_NS:
        raise ValueError("no whole number")
    return value


def _end(end: Any) -> int:
    return OPEN_END_NS if end is None else _whole(end)


def _kernel(name: str, start: int, end: int, args: Mapping[str, Any]) -> _Kernel:
    return _Kernel(
        start,
        end,
        Stream(_whole(args["device"]), _whole(args["context"]), _whole(args["stream"])),
        name,
        str(args.get("demangled", name)),
        _whole(args.get("correlation", NO_LAUNCH)),
        _whole(args.get("launch_ns", NO_LAUNCH)),
        GRAPH_NODE in args,
        _collective(args) if COLLECTIVE["name"] in args else None,
    )


def _collective(args: Mapping[str, Any]) -> Collective:
    said: dict[str, Any] = {field: args[written] for field, written in COLLECTIVE.items() if written in args}
    if any(type(value) is not (int if field in _WHOLE_FIELDS else str) for field, value in said.items()):
        raise ValueError("no collective")
    return Collective(**said)


class CutTrace:
    """One file; the :class:`~pytest_nsys.model.Trace` of this format."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def close(self) -> None:
        """Let go what was read; reading on reads it again."""
        self.__dict__.pop("_content", None)

    @cached_property
    def _content(self) -> tuple[Mapping[str, Any], dict[int, _Process]]:
        """What was cut, and its ranks by serialised process id."""
        stream = EventStream(self.path)
        try:
            parts = iter(stream)
            events = [event for part in parts for event in part]
            about = stream.members[CUT]
            if about["format"] != FORMAT:
                raise TraceError(f"{self.path}: was cut by another version of pytest-nsys: {AGAIN}")
            if not all(isinstance(kind, str) for kind in about.get("copies", ())):
                raise ValueError("no kinds of copies")
            processes = {int(p["pid"]): _Process(p) for p in about["processes"] if p["side"] != BASE}
            for event in events:
                if (process := processes.get(event["pid"])) is not None:
                    process.add(event)
            for process in processes.values():
                process.finish()
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError):
            raise TraceError(
                f"{self.path}: is no whole cut of pytest-nsys: it was changed or cut short; {AGAIN}"
            ) from None
        return about, {process.global_pid: process for process in processes.values()}

    @property
    def convention(self) -> str:
        """The name of the convention that it was cut under."""
        return str(self._content[0]["convention"])

    @property
    def fingerprint(self) -> str:
        """What tells that convention from another one of the same name."""
        return str(self._content[0]["fingerprint"])

    @property
    def _processes(self) -> dict[int, _Process]:
        return self._content[1]

    def facts(self) -> TraceFacts:
        """What the trace said of its profiler and GPUs, and that this is no whole trace."""
        about, processes = self._content
        told = [process.about for process in processes.values()]
        both = "; it holds base and head, and head is read" if {p["side"] for p in about["processes"]} > {HEAD} else ""
        return TraceFacts(
            profiler_version=next((p["profiler"] for p in told if p["profiler"] is not None), None),
            gpus={(int(p["pid"]), int(device)): model for p in told for device, model in p["gpus"].items()},
            models=sorted({model for p in told for model in p["models"]}),
            whole_graphs=max((int(p["whole_graphs"]) for p in told), default=0),
            diagnostics=(),
            notes=(f"{self.path}: is a cut ({about['measured']}, convention {about['convention']}){both}",),
            files=int(about["files"]),
            to_see_kernels=AGAIN,
            to_see_ranges=AGAIN,
        )

    def setups(self) -> Mapping[int, Setup]:
        """Every rank by its number, also where the trace had none."""
        return {pid: process.setup for pid, process in self._processes.items()}

    def has_kernels(self) -> bool:
        """Whether anything ran on a GPU."""
        return any(process.kernels for process in self._processes.values())

    def lanes(self) -> Sequence[Lane]:
        """Every (process, device) that ran a kernel."""
        found = {Lane(pid, k.stream.device) for pid, process in self._processes.items() for k in process.kernels}
        return sorted(found, key=lambda lane: (lane.global_pid, lane.device or 0))

    def unasked(self) -> Set[int]:
        """None: every process is a rank."""
        return frozenset()

    def ranges(self, patterns: Sequence[str]) -> Mapping[int, Sequence[Range]]:
        """The anchors and setup labels of the run.

        Raises NothingMeasured for another pattern: of other ranges only those around the window are here.
        """
        about = self._content[0]
        if others := [pattern for pattern in patterns if pattern not in about["ranges"]]:
            raise NothingMeasured(
                f"{self.path}: is a cut ({about['measured']}, convention {about['convention']}), which does not hold "
                f"all ranges like '{printable(others[0], 80)}': measure under that convention, or on the trace"
            )
        wanted = [like(pattern) for pattern in patterns]
        return self._ranges(self._processes, lambda _, r: any(matches(r.name) for matches in wanted))

    def ranges_around(self, spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Range]]:
        """The ranges of each process that touch its span, NCCL's own left out."""

        def touches(pid: int, r: Range) -> bool:
            low, high = spans[pid]
            return r.start_ns <= high and r.end_ns >= low and not r.name.startswith(COMMUNICATION_PREFIX)

        return self._ranges(spans, touches)

    def _ranges(self, pids: Iterable[int], wanted: Callable[[int, Range], bool]) -> dict[int, list[Range]]:
        own = {pid: self._processes[pid].ranges for pid in pids if pid in self._processes}
        found = {pid: [r for r in ranges if wanted(pid, r)] for pid, ranges in own.items()}
        return {pid: ranges for pid, ranges in found.items() if ranges}

    def common_range_names(self, global_pid: int) -> Sequence[tuple[str, int]]:
        """The names that most ranges of a process have, with their counts."""
        process = self._processes.get(global_pid)
        counts = Counter(r.name for r in process.ranges) if process is not None else Counter[str]()
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that touch its span.

        Raises NothingMeasured where more is asked for than the file holds: that would be another number.
        """
        about = self._content[0]
        if None in spans.values() and not about["whole_run"]:
            raise NothingMeasured(
                f"{self.path}: is a cut ({about['measured']}), and this needs the whole run: measure it on the trace"
            )
        self._check_held(spans, launched=False)

        def touching(span: Interval | None) -> Callable[[_Kernel], bool]:
            low, high = span if span is not None else (NO_LAUNCH, OPEN_END_NS)
            return lambda k: k.start_ns <= high and k.end_ns >= low

        return self._chosen({lane: touching(span) for lane, span in spans.items()})

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that were launched in its span, edges included. Raises as :meth:`kernels` does."""

        self._check_held(spans, launched=True)

        def launched(span: Interval) -> Callable[[_Kernel], bool]:
            return lambda k: k.launch_ns != NO_LAUNCH and span[0] <= k.launch_ns <= span[1]

        return self._chosen({lane: launched(span) for lane, span in spans.items()})

    def _check_held(self, spans: Mapping[Lane, Interval | None], *, launched: bool) -> None:
        """Of windows of launches also the kernels are here that ran while theirs did."""
        about = self._content[0]
        if about["whole_run"]:
            return
        for lane, span in spans.items():
            process = self._processes.get(lane.global_pid)
            if process is None or span is None or (about["launched"] and not launched and span == process.on_gpu):
                continue
            if about["launched"] is not launched or not process.holds(span):
                raise NothingMeasured(
                    f"{self.path}: is a cut ({about['measured']}), and does not hold all kernels of this window: "
                    "measure the same window, span and kernels, or measure on the trace"
                )

    def _chosen(self, wanted: Mapping[Lane, Callable[[_Kernel], bool]]) -> Mapping[Lane, Kernels]:
        found = {
            lane: self._processes[lane.global_pid].chosen(lane.device, choose)
            for lane, choose in wanted.items()
            if lane.global_pid in self._processes
        }
        return {lane: kernels for lane, kernels in found.items() if len(kernels)}

    def launches(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, array[int]]:
        """When each kernel was launched, NO_LAUNCH where nothing says."""
        found: dict[Lane, array[int]] = {}
        for lane, some in kernels.items():
            process = self._processes[lane.global_pid]
            known = {k.correlation: k.launch_ns for k in (*process.kernels, *process.communicating_copies)}
            found[lane] = array("q", [known.get(correlation, NO_LAUNCH) for correlation in some.correlation])
        return found

    def api_calls(self, name_globs: Sequence[str], spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Api]] | None:
        """The calls whose name matches a glob and that start in the span; None where the trace recorded none."""
        if not self._recorded("calls"):
            return None
        return {
            pid: [
                call
                for call in self._processes[pid].calls
                if low <= call.start_ns <= high and any(fnmatchcase(call.name, glob) for glob in name_globs)
            ]
            for pid, (low, high) in spans.items()
            if pid in self._processes
        }

    def copies(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Sequence[Copy]] | None:
        """The copies of each lane that were launched in its span; None where the trace says of none what they join."""
        if not self._recorded("copies"):
            return None
        own = {lane: self._processes[lane.global_pid].copies for lane in spans if lane.global_pid in self._processes}
        found = {lane: [c for c in own[lane] if spans[lane][0] <= c.launch_ns <= spans[lane][1]] for lane in own}
        return {lane: copies for lane, copies in found.items() if copies}

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """The copies that counted as communication.

        Raises NothingMeasured where other kinds of copies did: those of these kinds may not all be here.
        """
        about = self._content[0]
        held = about.get("copies", [])
        if set(held) != set(kinds):
            raise NothingMeasured(
                f"{self.path}: is a cut ({about['measured']}, convention {about['convention']}) with "
                f"{', '.join(map(printable, held)) or 'no'} copies as communication, not {', '.join(kinds)}: measure "
                "under that convention, or on the trace"
            )
        each = {pid: process.copies_by_device() for pid, process in self._processes.items()}
        return {Lane(pid, device): own for pid, found in each.items() for device, own in found.items()}

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[Collective | None]] | None:
        """For each kernel what its trace recorded of it as a collective; None where that records no sizes."""
        if not self._recorded("collectives"):
            return None
        found: dict[Lane, list[Collective | None]] = {}
        for lane, some in kernels.items():
            known = {(k.start_ns, k.end_ns, k.stream): k.collective for k in self._processes[lane.global_pid].kernels}
            streams = map(some.streams.__getitem__, some.stream)
            found[lane] = [known.get(key) for key in zip(some.start_ns, some.end_ns, streams, strict=True)]
        return found

    def _recorded(self, what: str) -> bool:
        """Whether the trace had a record of such events, if there were any."""
        return any(process.about[what] for process in self._processes.values())
