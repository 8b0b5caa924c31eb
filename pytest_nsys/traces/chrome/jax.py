"""Reading a trace of JAX (``trace.json.gz`` of XProf): what does it hold in the spans asked for?

Its events become those of torch.profiler, lane by lane, and are kept and asked in the same way. One file is one process
with one GPU or with several; each GPU that ran a kernel is a rank, for the file names no ranks.

These traces have no categories: a kernel is an event on a lane ``Stream #N`` of a process ``/device:GPU:i``; the lanes
``XLA Ops``, ``XLA Modules``, ``Framework …`` and ``Source code`` beside it repeat the same time. Copies and memsets are
no kernels; a copy gets the name that torch.profiler would give it, from the memories that its details name.

On ``/host:CPU`` a call of the CUDA or HIP API is told by its name, everything else is a range but the functions of
Python. A range with ``step_num`` is a step, whose number becomes part of its name: ``train step_num=7``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Any

from msgspec import Raw

from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import Diagnostic, Interval, Lane, Setup, TraceFacts
from pytest_nsys.core.tables import Kernels
from pytest_nsys.core.words import counted
from pytest_nsys.traces.chrome.events import POINTLESS, Args, Event, EventColumns, whole
from pytest_nsys.traces.chrome.json_stream import Decoded, EventStream
from pytest_nsys.traces.chrome.kineto import Content, FurtherPasses, Kineto, KinetoProcess, check_events
from pytest_nsys.traces.chrome.merged import UNLABELLED, by_label, in_order
from pytest_nsys.traces.other_profilers import GPUS, describe_missing_gpu

HOST = "/host:CPU"
STEP_MARK = " step_num="
_GPU = re.compile(r"/device:GPU:(\d{1,9})\b")
_OTHER_DEVICE = re.compile(r"/device:(?!CPU|GPU|CUSTOM)[A-Z]+:\d{1,9}\b")
_STREAM = re.compile(r"Stream #(\d{1,18})\b")
_CALL = re.compile(r"(?:cuda|cu|hip)[A-Z]\w*")
_KIND = re.compile(r"\bkind_(src|dst):(\w+)")
_PYTHON = "$"


Label = int | str


class JaxArgs(Decoded, frozen=True):
    """What is read of an event's ``args``; XProf writes numbers as text."""

    correlation_id: Label | None = None
    step_num: Label | None = None
    name: Label | None = None
    memcpy_details: Label | None = None
    memset_details: Label | None = None
    cuda_graph_id: Label | None = None


class JaxEvent(Decoded, frozen=True):
    """One event. An empty object closes the list, and what has no phase is nothing."""

    ARGS = JaxArgs

    ph: str = "M"
    name: str = ""
    pid: Label = ""
    tid: Label = ""
    ts: Raw = Raw()
    dur: Raw = Raw()
    args: JaxArgs | None = None

    @property
    def said(self) -> JaxArgs:
        """Its ``args``; none where they are no object."""
        return self.args or _NO_ARGS


_NO_ARGS = JaxArgs()


class Lanes:
    """What the processes and threads of one file are, as its metadata says, and its events in the terms of Kineto.

    An event whose lane is not named yet waits until :meth:`waiting`; XProf names all lanes before the first event.
    """

    def __init__(self, process: int) -> None:
        self.process = process
        self.gpus: dict[object, int] = {}
        self.hosts: set[object] = set()
        self.others: list[str] = []
        """What the devices are called that are no GPUs."""
        self._processes: set[object] = set()
        self._threads: dict[tuple[object, object], int | None] = {}
        self._waiting: list[JaxEvent] = []
        self.count = 0
        """Of events that are no metadata."""

    def events(self, decoded: Sequence[JaxEvent]) -> list[Event]:
        """The kernels, copies, memsets, calls and ranges among events."""
        found: list[Event] = []
        for event in decoded:
            self.count += event.ph != "M"
            if event.ph == "M":
                self._name(event)
            elif event.ph not in POINTLESS:
                found += self._event(event, self._waiting)
        return found

    def in_terms_of_kineto(self, event: Any) -> list[Event]:
        """One event whose lane is named: a kernel, copy, memset, call or range, or nothing."""
        args = JaxArgs.of(event.arguments)
        said = JaxEvent(event.ph or "M", event.name, event.pid, event.tid, event.ts, event.dur, args)
        return [*self._event(said, [])]

    def waiting(self) -> list[Event]:
        """The events that came before the names of their lanes; those of lanes without a name are left out."""
        waiting, self._waiting = self._waiting, []
        return [found for event in waiting for found in self._event(event, [])]

    def _name(self, event: JaxEvent) -> None:
        name = event.said.name
        if not isinstance(name, str):
            return
        if event.name == "process_name":
            self._processes.add(event.pid)
            if gpu := _GPU.match(name):
                self.gpus[event.pid] = int(gpu[1])
            elif name.startswith(HOST):
                self.hosts.add(event.pid)
            elif other := _OTHER_DEVICE.match(name):
                self.others.append(other[0])
        elif event.name == "thread_name":
            stream = _STREAM.match(name)
            self._threads[event.pid, event.tid] = int(stream[1]) if stream else None

    def _event(self, event: JaxEvent, unknown: list[JaxEvent]) -> Iterator[Event]:
        pid = event.pid
        if pid in self.hosts:
            yield from self._of_host(event)
        elif pid in self.gpus and (pid, event.tid) in self._threads:
            if (stream := self._threads[pid, event.tid]) is not None:
                yield self._of_gpu(event, self.gpus[pid], stream)
        elif pid not in self._processes or pid in self.gpus:
            unknown.append(event)

    def _of_gpu(self, event: JaxEvent, device: int, stream: int) -> Event:
        said, name, called = event.said, event.name, event.name.lower()
        category, node = "kernel", None
        if said.memset_details is not None or called.startswith("memset"):
            category = "gpu_memset"
        elif said.memcpy_details is not None or called.startswith("memcpy"):
            category, name = "gpu_memcpy", _copy_name(event)
        elif said.cuda_graph_id not in (None, "", "0", 0):
            node = 1
        args = Args(device, 0, stream, _correlation(said.correlation_id), node)
        return Event("X", category, name, self.process, stream, event.ts, event.dur, None, args)

    def _of_host(self, event: JaxEvent) -> Iterator[Event]:
        name, said = event.name, event.said
        if name.startswith(_PYTHON):
            return
        if _CALL.fullmatch(name):
            own = Args(correlation=_correlation(said.correlation_id))
            yield Event("X", "cuda_runtime", name, self.process, event.tid, event.ts, event.dur, None, own)
            return
        if said.step_num not in (None, ""):
            name += f"{STEP_MARK}{said.step_num}"
        yield Event(event.ph, "user_annotation", name, self.process, event.tid, event.ts, event.dur, None, Args())


def name_of_lane(kind: str, name: object) -> str | None:
    """What of the name of a process or thread says what it is, None for one of which nothing is read: a host's own name
    may stand behind it.
    """
    patterns = {"process_name": (_GPU, re.compile(HOST)), "thread_name": (_STREAM,)}.get(kind, ())
    found = (pattern.match(name) for pattern in patterns) if isinstance(name, str) else iter(())
    return next((match[0] for match in found if match), None)


def _copy_name(event: JaxEvent) -> str:
    details = event.said.memcpy_details
    kinds = dict(_KIND.findall(details)) if isinstance(details, str) else {}
    return f"{event.name} ({kinds['src']} -> {kinds['dst']})" if len(kinds) == 2 else event.name


def _correlation(value: object) -> int | None:
    number = whole(value)
    return None if number is None or number < 0 else number


TO_SEE_KERNELS = (
    "there is no lane 'Stream #' of a GPU, so JAX ran on the CPU or its profiler could not trace the GPU: profile a "
    "step that uses the GPU"
)
TO_SEE_LAUNCHED = "let no other profiler trace the GPU, and end the profile after jax.block_until_ready"
TO_SEE_RANGES = "profile with jax.profiler.StepTraceAnnotation('train', step_num=n) around each step"
FOLDER_TIME = re.compile(r"(\d{4})_(\d\d)_(\d\d)_(\d\d)_(\d\d)_(\d\d)")
"""How JAX names the folder of a profile: ``2025_03_01_12_00_00``."""

MOST_EVENTS = 1_000_000
"""XProf keeps so many, the earliest, and drops the others in silence."""
DROPPED = (
    "the trace holds exactly {} events, where XProf stops: later events were dropped; profile fewer steps, or set "
    "TF_PROFILER_TRACE_VIEWER_MAX_EVENTS"
)

PROCESS_BITS = 39
"""Of a serialised id, without its sign: the files of a run are told apart by them."""


class JaxProcess(KinetoProcess):
    """What counts of one file, read in one pass. Raises TraceError where that fails."""

    STEP = re.compile(rf".*{STEP_MARK}\d+", re.DOTALL)
    memory = None
    collectives = None

    def __init__(self, content: Content, lanes: Lanes, label: str, machine: int, number: int | None) -> None:
        self.lanes = lanes
        super().__init__(content, FurtherPasses(content.path), label, machine, number)

    def _number(self) -> int:
        # Every file calls its process 701: its place in the file system tells it from the others of the run.
        digest = sha256(str(self.path.resolve()).encode("utf-8", "surrogateescape")).digest()
        return int.from_bytes(digest[:8], "big") >> (64 - PROCESS_BITS)

    def _arrows(self, wanted: Set[int]) -> Iterator[tuple[int, int]]:  # noqa: ARG002
        """There are none: a call and its kernels share a correlation."""
        return iter(())


class Jax(Kineto):
    """One trace; the :class:`~pytest_nsys.core.trace.Trace` of this format."""

    @property
    def process(self) -> JaxProcess:
        """The one process. Raises TraceError."""
        return next(iter(self.processes.values()))

    @cached_property
    def processes(self) -> Mapping[int, JaxProcess]:
        """What is in the file, by serialised process id: of a cut as many as files. Raises TraceError."""
        stream = EventStream(self.path, JaxEvent)
        lanes, parts = {UNLABELLED: Lanes(process=0)}, {UNLABELLED: EventColumns(self.path)}
        for some in stream:
            for label, own in by_label(some).items():
                if label not in lanes:
                    lanes[label], parts[label] = Lanes(process=0), EventColumns(self.path)
                parts[label].add(lanes[label].events(own))
        for label, own_lanes in lanes.items():
            parts[label].add(own_lanes.waiting())
        check_events(stream)
        if not any(own.gpus or own.hosts or own.others for own in lanes.values()):
            raise TraceError(f"{self.path}: is a trace of JAX (XProf) that names no CPU and no GPU: profile again")
        known = [label for label in in_order(parts) if parts[label].has_work] or [UNLABELLED]
        content = Content(self.path, parts, stream.members)
        each = (JaxProcess(content, lanes[own], own, n, self.numbers.get(n)) for n, own in enumerate(known))
        return {process.global_pid: process for process in each}

    def facts(self) -> TraceFacts:
        """How many of the GPUs that the file names ran a kernel, and what became of the last step."""
        process = self.process
        named, used = len(set(process.lanes.gpus.values())), len(process.kernels)
        idle = (f"{self.path}: {used} of the {counted(named, 'GPU')} that it names ran a kernel",)
        lost = DROPPED.format(MOST_EVENTS)
        return TraceFacts(
            has_kernels=bool(self.lanes()),
            profiler_version=None,
            gpus={},
            models=(),
            whole_graphs=0,
            diagnostics=(Diagnostic(lost, lost),) if process.lanes.count == MOST_EVENTS else (),
            notes=(*(idle if used < named else ()), *process.notes),
            to_see_kernels=self._to_see_kernels(),
            to_see_ranges=TO_SEE_RANGES,
            to_see_sizes="a trace of JAX has no record of the sizes of collectives",
            to_see_memory="a trace of JAX has no record of memory",
            to_see_clocks="a trace of JAX has no record of clocks",
            started_ns=self._started(),
            impossible=process.impossible,
        )

    def _to_see_kernels(self) -> str:
        """What to do where nothing ran on a GPU: by the devices that there are, or that kernels were launched."""
        process = self.process
        if not process.kernels and process.lanes.others:
            device = process.lanes.others[0]
            return f"the trace is of {device}, and {GPUS}: XProf shows it (pip install xprof)"
        if not process.kernels and process.launched:
            return describe_missing_gpu(process.launched, TO_SEE_LAUNCHED)
        return TO_SEE_KERNELS

    def _started(self) -> int | None:
        """When the profile began, as its folder is called: by the clock and in the time zone of its machine."""
        named = FOLDER_TIME.match(self.path.parent.name)
        try:
            began = datetime(*map(int, named.groups()), tzinfo=UTC) if named else None  # type: ignore[arg-type, misc]
        except ValueError:
            return None
        return None if began is None else int(began.timestamp()) * 1_000_000_000

    def launch_records(self, _spans: Mapping[int, Interval | None], _kernels: Mapping[Lane, Kernels], /) -> None:
        """None: XProf drops what it has no room for, calls and kernels alike, so a call alone shows no loss."""

    def setups(self) -> Mapping[int, Setup]:
        """None: nothing in the file names a rank."""
        return {}
