"""What is one event of a trace of JAX (XProf)? Told by its lane: these traces have no categories.

A kernel is an event on a lane ``Stream #N`` of a process ``/device:GPU:i``; the lanes ``XLA Ops``, ``XLA Modules``,
``Framework …`` and ``Source code`` beside it repeat the same time. Copies and memsets are no kernels; a copy gets the
name that torch.profiler would give it, from the memories that its details name.

On ``/host:CPU`` a call of the CUDA or HIP API is told by its name, everything else is a range but the functions of
Python. A range with ``step_num`` is a step, whose number becomes part of its name: ``train step_num=7``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Raw

from pytest_nsys.traces.chrome.json_stream import Written
from pytest_nsys.traces.chrome.kineto_events import POINTLESS, Args, Event

HOST = "/host:CPU"
STEP_MARK = " step_num="
_GPU = re.compile(r"/device:GPU:(\d{1,9})\b")
_STREAM = re.compile(r"Stream #(\d{1,18})\b")
_CALL = re.compile(r"(?:cuda|cu|hip)[A-Z]\w*")
_COPY = re.compile(r"mem(?:cpy|set)", re.IGNORECASE)
_KIND = re.compile(r"\bkind_(src|dst):(\w+)")
_PYTHON = "$"


Label = int | str


class JaxArgs(Written, frozen=True):
    """What is read of an event's ``args``; XProf writes numbers as text."""

    correlation_id: Label | None = None
    step_num: Label | None = None
    name: Label | None = None
    memcpy_details: Label | None = None
    memset_details: Label | None = None
    cuda_graph_id: Label | None = None


class JaxEvent(Written, frozen=True):
    """One event. An empty object closes the list, and what has no phase is nothing."""

    ARGS = JaxArgs

    ph: str = "M"
    name: str = ""
    pid: Label = ""
    tid: Label = ""
    ts: Raw = Raw()
    dur: Raw = Raw()
    args: JaxArgs | None = None


class Lane(NamedTuple):
    """Where kernels run: one stream of one GPU."""

    device: int
    stream: int


class Lanes:
    """What the processes and threads of one file are, as its metadata says, and its events in the terms of Kineto.

    An event whose lane is not named yet waits until :meth:`waiting`; XProf names all lanes before the first event.
    """

    def __init__(self, process: int) -> None:
        self.process = process
        self.gpus: dict[object, int] = {}
        self.hosts: set[object] = set()
        self._processes: set[object] = set()
        self._threads: dict[tuple[object, object], int | None] = {}
        self._waiting: list[JaxEvent] = []

    def events(self, decoded: Sequence[JaxEvent]) -> list[Event]:
        """The kernels, calls and ranges among events."""
        found: list[Event] = []
        for event in decoded:
            if event.ph == "M":
                self._name(event)
            elif event.ph not in POINTLESS:
                found += self._event(event, self._waiting)
        return found

    def waiting(self) -> list[Event]:
        """The events that came before the names of their lanes; those of lanes without a name are left out."""
        waiting, self._waiting = self._waiting, []
        return [found for event in waiting for found in self._event(event, [])]

    def _name(self, event: JaxEvent) -> None:
        name = event.args.name if event.args else None
        if not isinstance(name, str):
            return
        if event.name == "process_name":
            self._processes.add(event.pid)
            if gpu := _GPU.match(name):
                self.gpus[event.pid] = int(gpu[1])
            elif name.startswith(HOST):
                self.hosts.add(event.pid)
        elif event.name == "thread_name":
            stream = _STREAM.match(name)
            self._threads[event.pid, event.tid] = int(stream[1]) if stream else None

    def _event(self, event: JaxEvent, unknown: list[JaxEvent]) -> Iterator[Event]:
        pid = event.pid
        if pid in self.hosts:
            yield from self._of_host(event)
        elif pid in self.gpus and (pid, event.tid) in self._threads:
            stream = self._threads[pid, event.tid]
            if stream is None:
                return
            lane = Lane(self.gpus[pid], stream)
            if not _is_copy(event):
                yield self._kernel(event, lane)
            elif not _is_memset(event):
                yield self._copy(event, lane)
        elif pid not in self._processes or pid in self.gpus:
            unknown.append(event)

    def _kernel(self, event: JaxEvent, lane: Lane) -> Event:
        args = event.args or _NO_ARGS
        node = 1 if args.cuda_graph_id not in (None, "", "0", 0) else None
        own = Args(lane.device, 0, lane.stream, _whole(args.correlation_id), node)
        return Event("X", "kernel", event.name, self.process, lane.stream, event.ts, event.dur, None, own)

    def _copy(self, event: JaxEvent, lane: Lane) -> Event:
        own = Args(lane.device, 0, lane.stream, _whole((event.args or _NO_ARGS).correlation_id))
        name = _copy_name(event)
        return Event("X", "gpu_memcpy", name, self.process, lane.stream, event.ts, event.dur, None, own)

    def _of_host(self, event: JaxEvent) -> Iterator[Event]:
        name, args = event.name, event.args or _NO_ARGS
        if not isinstance(name, str) or name.startswith(_PYTHON):
            return
        if _CALL.fullmatch(name):
            own = Args(correlation=_whole(args.correlation_id))
            yield Event("X", "cuda_runtime", name, self.process, event.tid, event.ts, event.dur, None, own)
            return
        if args.step_num not in (None, ""):
            name += f"{STEP_MARK}{args.step_num}"
        yield Event(event.ph, "user_annotation", name, self.process, event.tid, event.ts, event.dur, None, Args())


_NO_ARGS = JaxArgs()


def _is_copy(event: JaxEvent) -> bool:
    args = event.args or _NO_ARGS
    if args.memcpy_details is not None or args.memset_details is not None:
        return True
    return isinstance(event.name, str) and _COPY.match(event.name) is not None


def _is_memset(event: JaxEvent) -> bool:
    name = event.name if isinstance(event.name, str) else ""
    return (event.args or _NO_ARGS).memset_details is not None or name.lower().startswith("memset")


def _copy_name(event: JaxEvent) -> str:
    details = (event.args or _NO_ARGS).memcpy_details
    kinds = dict(_KIND.findall(details)) if isinstance(details, str) else {}
    return f"{event.name} ({kinds['src']} -> {kinds['dst']})" if len(kinds) == 2 else str(event.name)


def _whole(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19:
        return int(value)
    return value if type(value) is int and 0 <= value < 1 << 62 else None
