"""How is a trace of JAX (``trace.json.gz`` of XProf) read in the terms of torch.profiler?

Its events become those of torch.profiler, lane by lane, and are kept and asked in the same way. One file is one process
with one GPU or with several; each GPU that ran a kernel is a rank, for the file names no ranks.

These traces have no categories: a kernel is an event on a lane ``Stream #N`` of a process ``/device:GPU:i``; the lanes
``XLA Ops``, ``XLA Modules``, ``Framework …`` and ``Source code`` beside it repeat the same time. Copies and memsets are
no kernels; a copy gets the name that torch.profiler would give it, from the memories that its details name.

On ``/host:CPU`` a name tells a call of the CUDA or HIP API, everything else is a range except the functions of Python.
A range with ``step_num`` is a step, whose number becomes part of its name: ``train step_num=7``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Any

from msgspec import Raw

from pytest_nsys.core import columns
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import Diagnostic, Interval, Lane, Setup, TraceFacts
from pytest_nsys.core.tables import Kernels, ProgramRecords
from pytest_nsys.core.text_format import format_count
from pytest_nsys.traces.chrome.events import INSTANT_PHASES, Event, EventArgs, EventColumns, parse_whole_number
from pytest_nsys.traces.chrome.jax_program import XLA_NAME, read_jax_origins, strip_op_number
from pytest_nsys.traces.chrome.json_stream import EventStream, JsonStruct
from pytest_nsys.traces.chrome.kineto import FurtherPasses, KinetoProcess, KinetoTrace, TraceContent, check_has_events
from pytest_nsys.traces.chrome.rank_labels import UNLABELLED, group_by_label, sort_labels
from pytest_nsys.traces.other_profilers import MEASURED_GPUS, describe_missing_gpu

HOST_PROCESS = "/host:CPU"
STEP_NUMBER_MARK = " step_num="
_GPU_PROCESS = re.compile(r"/device:GPU:(\d{1,9})\b")
_OTHER_DEVICE = re.compile(r"/device:(?!CPU|GPU|CUSTOM)[A-Z]+:\d{1,9}\b")
_STREAM = re.compile(r"Stream #(\d{1,18})\b")
_CALL = re.compile(r"(?:cuda|cu|hip)[A-Z]\w*")
_COPY_MEMORY = re.compile(r"\bkind_(src|dst):(\w+)")
_PYTHON_PREFIX = "$"  # before the name of each function of Python


TextOrNumber = int | str


class JaxArgs(JsonStruct, frozen=True):
    """Holds what is read of an event's ``args``; XProf writes numbers as text."""

    correlation_id: TextOrNumber | None = None
    step_num: TextOrNumber | None = None
    name: TextOrNumber | None = None
    memcpy_details: TextOrNumber | None = None
    memset_details: TextOrNumber | None = None
    cuda_graph_id: TextOrNumber | None = None


class JaxEvent(JsonStruct, frozen=True):
    """Describes one event of XProf."""

    ARGS = JaxArgs

    ph: str = "M"  # an empty object closes the list, and what has no phase is nothing
    name: str = ""
    pid: TextOrNumber = ""
    tid: TextOrNumber = ""
    ts: Raw = Raw()
    dur: Raw = Raw()
    args: JaxArgs | None = None

    @property
    def arguments(self) -> JaxArgs:
        """The ``args`` of the event; empty ones where the trace has no object there."""
        return self.args or _NO_ARGS


_NO_ARGS = JaxArgs()


class JaxLanes:
    """Knows from a file's metadata what its processes and threads are, and converts its events to those of Kineto.

    An event whose lane is not named yet waits until :meth:`convert_waiting`; XProf names all lanes before the first
    event.
    """

    def __init__(self, process_number: int) -> None:
        self.process_number = process_number
        self.gpu_devices: dict[object, int] = {}
        self.host_pids: set[object] = set()
        self.other_devices: list[str] = []
        """The names of the devices that are no GPUs."""
        self._named_pids: set[object] = set()
        self._stream_by_thread: dict[tuple[object, object], int | None] = {}
        self._waiting_events: list[JaxEvent] = []
        self.event_count = 0
        """The number of events that are no metadata."""

    def convert_events(self, jax_events: Sequence[JaxEvent]) -> list[Event]:
        """Convert the kernels, copies, memsets, calls and ranges among the events, and learn the names of lanes from
        metadata.
        """
        kineto_events: list[Event] = []
        for event in jax_events:
            self.event_count += event.ph != "M"
            if event.ph == "M":
                self._read_lane_name(event)
            elif event.ph not in INSTANT_PHASES:
                kineto_events += self._convert_named(event, self._waiting_events)
        return kineto_events

    def convert_event(self, event: Any) -> list[Event]:
        """Convert one event whose lane is named; an empty list where it is no kernel, copy, memset, call or range."""
        args = JaxArgs.from_json(event.arguments)
        jax_event = JaxEvent(event.ph or "M", event.name, event.pid, event.tid, event.ts, event.dur, args)
        return [*self._convert_named(jax_event, [])]

    def convert_waiting(self) -> list[Event]:
        """Convert the events that came before the names of their lanes; those of lanes without a name are left out."""
        waiting_events, self._waiting_events = self._waiting_events, []
        return [kineto_event for event in waiting_events for kineto_event in self._convert_named(event, [])]

    def _read_lane_name(self, event: JaxEvent) -> None:
        name = event.arguments.name
        if not isinstance(name, str):
            return
        if event.name == "process_name":
            self._named_pids.add(event.pid)
            if gpu := _GPU_PROCESS.match(name):
                self.gpu_devices[event.pid] = int(gpu[1])
            elif name.startswith(HOST_PROCESS):
                self.host_pids.add(event.pid)
            elif other_device := _OTHER_DEVICE.match(name):
                self.other_devices.append(other_device[0])
        elif event.name == "thread_name":
            stream = _STREAM.match(name)
            self._stream_by_thread[event.pid, event.tid] = int(stream[1]) if stream else None

    def _convert_named(self, event: JaxEvent, waiting_events: list[JaxEvent]) -> Iterator[Event]:
        """Yield the converted event where its lane is named; an event of an unnamed lane is added to
        ``waiting_events``.
        """
        pid = event.pid
        if pid in self.host_pids:
            yield from self._convert_host_event(event)
        elif pid in self.gpu_devices and (pid, event.tid) in self._stream_by_thread:
            if (stream := self._stream_by_thread[pid, event.tid]) is not None:
                yield self._convert_gpu_event(event, self.gpu_devices[pid], stream)
        elif pid not in self._named_pids or pid in self.gpu_devices:
            waiting_events.append(event)

    def _convert_gpu_event(self, event: JaxEvent, device: int, stream: int) -> Event:
        arguments, name, lower_name = event.arguments, event.name, event.name.lower()
        category, graph_node = "kernel", None
        if arguments.memset_details is not None or lower_name.startswith("memset"):
            category = "gpu_memset"
        elif arguments.memcpy_details is not None or lower_name.startswith("memcpy"):
            category, name = "gpu_memcpy", _format_copy_name(event)
        elif arguments.cuda_graph_id not in (None, "", "0", 0):
            graph_node = 1
        args = EventArgs(device, 0, stream, _parse_correlation(arguments.correlation_id), graph_node)
        return Event("X", category, name, self.process_number, stream, event.ts, event.dur, None, args)

    def _convert_host_event(self, event: JaxEvent) -> Iterator[Event]:
        name, arguments = event.name, event.arguments
        if name.startswith(_PYTHON_PREFIX):
            return
        if _CALL.fullmatch(name):
            call_args = EventArgs(correlation=_parse_correlation(arguments.correlation_id))
            yield Event("X", "cuda_runtime", name, self.process_number, event.tid, event.ts, event.dur, None, call_args)
            return
        if arguments.step_num not in (None, ""):
            name += f"{STEP_NUMBER_MARK}{arguments.step_num}"
        yield Event(
            event.ph, "user_annotation", name, self.process_number, event.tid, event.ts, event.dur, None, EventArgs()
        )


def find_lane_name(kind: str, name: object) -> str | None:
    """Return the part of a process's or thread's name that says what it is; None for one of which nothing is read.

    A host's own name may stand behind that part.
    """
    patterns = {"process_name": (_GPU_PROCESS, re.compile(HOST_PROCESS)), "thread_name": (_STREAM,)}.get(kind, ())
    matches = (pattern.match(name) for pattern in patterns) if isinstance(name, str) else iter(())
    return next((match[0] for match in matches if match), None)


def _format_copy_name(event: JaxEvent) -> str:
    details = event.arguments.memcpy_details
    memories = dict(_COPY_MEMORY.findall(details)) if isinstance(details, str) else {}
    return f"{event.name} ({memories['src']} -> {memories['dst']})" if len(memories) == 2 else event.name


def _parse_correlation(value: object) -> int | None:
    number = parse_whole_number(value)
    return None if number is None or number < 0 else number


TO_SEE_KERNELS = (
    "there is no lane 'Stream #' of a GPU, so JAX ran on the CPU or its profiler could not trace the GPU: profile a "
    "step that uses the GPU"
)
TO_SEE_LAUNCHED = "let no other profiler trace the GPU, and end the profile after jax.block_until_ready"
TO_SEE_RANGES = "profile with jax.profiler.StepTraceAnnotation('train', step_num=n) around each step"
PROFILE_FOLDER = re.compile(r"(\d{4})_(\d\d)_(\d\d)_(\d\d)_(\d\d)_(\d\d)")
"""Matches the name that JAX gives the folder of a profile: ``2025_03_01_12_00_00``."""

MAX_EVENTS = 1_000_000
"""How many events XProf keeps, the earliest ones; it drops the others silently."""
DROPPED_EVENTS_TEXT = (
    "the trace holds exactly {} events, where XProf stops: later events were dropped; profile fewer steps, or set "
    "TF_PROFILER_TRACE_VIEWER_MAX_EVENTS"
)

PROCESS_BITS = 39
"""How many bits of a serialised id, without its sign, tell the files of a run apart."""


class JaxProcess(KinetoProcess):
    """Holds what a JAX trace records of its process. Raises TraceError where reading fails."""

    STEP_PATTERN = re.compile(rf".*{STEP_NUMBER_MARK}\d+", re.DOTALL)
    memory = None
    collectives = None

    def __init__(self, content: TraceContent, lanes: JaxLanes, label: str, machine: int, number: int | None) -> None:
        self.lanes = lanes
        super().__init__(content, FurtherPasses(content.path), label, machine, number)

    def _find_process_number(self) -> int:
        # Every file calls its process 701: its place in the file system tells it from the others of the run.
        digest = sha256(str(self.path.resolve()).encode("utf-8", "surrogateescape")).digest()
        return int.from_bytes(digest[:8], "big") >> (64 - PROCESS_BITS)

    @property
    def program_records(self) -> ProgramRecords:
        """What each kernel says of its own origin, and the ranges of the host."""
        origins = read_jax_origins(self.path).get(self.label, {})
        ops = {origin.op for origin in origins.values()}  # XLA marks each on the host, too
        flags = bytearray(
            XLA_NAME.search(name) is None and strip_op_number(name) not in ops for name in self.ranges.names
        )
        ranges = self.ranges.take(columns.find_nonzero(columns.take(flags, self.ranges.name)))
        return ProgramRecords(ranges, origins=origins)

    def _find_launch_arrows(self, correlations: Set[int]) -> Iterator[tuple[int, int]]:  # noqa: ARG002
        """Return no arrows: a call and its kernels share a correlation."""
        return iter(())


class JaxTrace(KinetoTrace):
    """Answers what is asked of a JAX trace; the :class:`~pytest_nsys.core.trace.Trace` of this format."""

    @property
    def process(self) -> JaxProcess:
        """The one process of the file. Raises TraceError."""
        return next(iter(self.processes.values()))

    @cached_property
    def processes(self) -> Mapping[int, JaxProcess]:
        """What the file holds of each process, by serialised process id. Raises TraceError."""
        stream = EventStream(self.path, JaxEvent)
        lanes, columns_by_label = {UNLABELLED: JaxLanes(process_number=0)}, {UNLABELLED: EventColumns(self.path)}
        for events in stream:
            for label, label_events in group_by_label(events).items():
                if label not in lanes:
                    lanes[label], columns_by_label[label] = JaxLanes(process_number=0), EventColumns(self.path)
                columns_by_label[label].add_events(lanes[label].convert_events(label_events))
        for label, label_lanes in lanes.items():
            columns_by_label[label].add_events(label_lanes.convert_waiting())
        check_has_events(stream)
        if not any(
            file_lanes.gpu_devices or file_lanes.host_pids or file_lanes.other_devices for file_lanes in lanes.values()
        ):
            raise TraceError(f"{self.path}: is a trace of JAX (XProf) that names no CPU and no GPU: profile again")
        labels_with_work = [label for label in sort_labels(columns_by_label) if columns_by_label[label].has_work] or [
            UNLABELLED
        ]
        content = TraceContent(self.path, columns_by_label, stream.root_members)
        processes = (
            JaxProcess(content, lanes[label], label, n, self.process_numbers.get(n))
            for n, label in enumerate(labels_with_work)
        )
        return {process.global_pid: process for process in processes}

    def facts(self) -> TraceFacts:
        """Return the facts about the trace: how many of its GPUs ran a kernel, whether events were dropped, when it
        started.
        """
        process = self.process
        named_gpus, used_gpus = len(set(process.lanes.gpu_devices.values())), len(process.kernels)
        idle_notes = (f"{self.path}: {used_gpus} of the {format_count(named_gpus, 'GPU')} that it names ran a kernel",)
        dropped_text = DROPPED_EVENTS_TEXT.format(MAX_EVENTS)
        return TraceFacts(
            has_kernels=bool(self.lanes()),
            profiler_version=None,
            gpus={},
            models=(),
            whole_graph_count=0,
            diagnostics=(Diagnostic(dropped_text, dropped_text),) if process.lanes.event_count == MAX_EVENTS else (),
            notes=(*(idle_notes if used_gpus < named_gpus else ()), *process.notes),
            to_see_kernels=self._describe_missing_kernels(),
            to_see_ranges=TO_SEE_RANGES,
            to_see_sizes="a trace of JAX has no record of the sizes of collectives",
            to_see_memory="a trace of JAX has no record of memory",
            to_see_clocks="a trace of JAX has no record of clocks",
            started_ns=self._read_folder_time(),
            impossible_rows=process.impossible,
        )

    def _describe_missing_kernels(self) -> str:
        """Describe what to do where nothing ran on a GPU: by the devices of the trace, or by its launches."""
        process = self.process
        if not process.kernels and process.lanes.other_devices:
            device = process.lanes.other_devices[0]
            return f"the trace is of {device}, and {MEASURED_GPUS}: XProf shows it (pip install xprof)"
        if not process.kernels and process.launch_count:
            return describe_missing_gpu(process.launch_count, TO_SEE_LAUNCHED)
        return TO_SEE_KERNELS

    def _read_folder_time(self) -> int | None:
        """Return when the profile began, in ns, by the name of its folder; in its machine's time zone."""
        match = PROFILE_FOLDER.match(self.path.parent.name)
        try:
            start_time = datetime(*map(int, match.groups()), tzinfo=UTC) if match else None  # type: ignore[arg-type, misc]
        except ValueError:
            return None
        return None if start_time is None else int(start_time.timestamp()) * 1_000_000_000

    def launch_records(self, _spans: Mapping[int, Interval | None], _kernels: Mapping[Lane, Kernels], /) -> None:
        """Return None: XProf drops calls and kernels alike when it is full, so a call alone shows no loss."""

    def setups(self) -> Mapping[int, Setup]:
        """Return no setups: nothing in the file names a rank."""
        return {}
