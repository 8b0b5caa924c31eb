"""How does one write a torch.profiler trace of a few events, so that a reader of the test sees what is in it?

    trace = KinetoBuilder(rank=0, world=2)
    trace.range("ProfilerStep#3", 1_000, 9_000)
    trace.kernel("ncclDevKernel_SendRecv", 4_000, 8_000, stream=28, launch_ns=2_000)
    trace.write(tmp_path / "rank0_trace.json.gz")

Its calls are those of the builder of exports, so that one step can be written in both formats. The same calls give the
same bytes.
"""

import gzip
import itertools
import json
import re
from pathlib import Path
from typing import Any

from tests.support.samples.builder import EVENT_CALL_NS, LAUNCH_LEAD_NS, LAUNCH_LENGTH_NS

Json = Any


_NUMBER = re.compile(r'"<(-?[0-9.]+)>"')


def microseconds(time_ns: int) -> str:
    """Nanoseconds as torch.profiler writes them: a mark until :meth:`KinetoBuilder.text`, for a float loses digits."""
    sign = "-" if time_ns < 0 else ""
    return f"<{sign}{abs(time_ns) // 1000}.{abs(time_ns) % 1000:03d}>"


COPIES = {
    1: "Memcpy HtoD (Pageable -> Device)",
    2: "Memcpy DtoH (Device -> Pageable)",
    8: "Memcpy DtoD (Device -> Device)",
    10: "Memcpy PtoP (Device -> Device)",
}
"""What a copy is called, by the number of its kind."""


class KinetoBuilder:
    """A trace of one process in memory, event by event, until :meth:`write`."""

    launch_name, launch_lead_ns = "cudaLaunchKernel", LAUNCH_LEAD_NS
    call_length_ns = LAUNCH_LENGTH_NS
    main_thread: int | None = None
    """Of the CPU; None: it has the number of the process."""

    def __init__(
        self,
        rank: int | None = 0,
        world: int = 1,
        *,
        pid: int = 100,
        device: int = 0,
        gpu: str | None = "NVIDIA H100 80GB HBM3",
        groups: Json = None,
    ) -> None:
        self.pid, self.device = pid, device
        self.members: dict[str, Json] = {"schemaVersion": 1}
        if gpu is not None:
            self.members["deviceProperties"] = [{"id": device, "name": gpu}]
        if rank is not None:
            self.members["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
            if groups is not None:
                self.members["distributedInfo"]["pg_config"] = groups
        self.events: list[Json] = []
        self._correlations = itertools.count(1)
        self._recorded_on: dict[int, int] = {}

    def event(self, cat: str, name: str, start_ns: int, end_ns: int, **more: Json) -> dict[str, Json]:
        """Any event with a duration; ``more`` replaces or adds members. It can still be changed."""
        event = {"ph": "X", "cat": cat, "name": name, "pid": self.pid, "tid": self.pid}
        event |= {"ts": microseconds(start_ns), "dur": microseconds(end_ns - start_ns), **more}
        self.events.append(event)
        return event

    def range(
        self, name: str, start_ns: int, end_ns: int | None, *, thread: int | None = None, cat: str = "user_annotation"
    ) -> None:
        """A range of CPU time as ``record_function`` makes it, without duration where it has no end."""
        event = self.event(cat, name, start_ns, end_ns or start_ns, tid=self.pid if thread is None else thread)
        if end_ns is None:
            del event["dur"]

    def module(self, name: str, start_ns: int, end_ns: int, *, thread: int | None = None) -> None:
        """The call of a module, as torch.profiler records it with ``with_stack``: class and number of the instance."""
        tid = self.pid if thread is None else thread
        args = {"Python id": len(self.events), "Python parent id": None, "Python module id": 0}
        self.event("python_function", f"nn.Module: {name}", start_ns, end_ns, tid=tid, args=args)

    def kernel(
        self,
        name: str,
        /,
        start_ns: int,
        end_ns: int,
        *,
        stream: int = 7,
        launch_ns: int | None = None,
        device: int | None = None,
        thread: int | None = None,
        correlation: int | None = None,
        launch: bool = True,
        launch_length_ns: int | None = None,
        **args: Json,
    ) -> int:
        """A kernel and its launch; returns the correlation. A ``correlation`` that is given gets no launch."""
        number = next(self._correlations) if correlation is None else correlation
        if launch and correlation is None:
            called_ns = start_ns - self.launch_lead_ns if launch_ns is None else launch_ns
            until_ns = None if launch_length_ns is None else called_ns + launch_length_ns
            self.api(self.launch_name, called_ns, until_ns, thread=thread, correlation=number)
        self._run(name, start_ns, end_ns, self.device if device is None else device, stream, number, args)
        return number

    def _run(self, name: str, start_ns: int, end_ns: int, device: int, stream: int, number: int, args: Json) -> None:
        """What a kernel leaves on its stream."""
        place = {"device": device, "context": 1, "stream": stream, "correlation": number}
        self.event("kernel", name, start_ns, end_ns, pid=device, tid=stream, args={**place, **args})

    def memcpy(
        self,
        start_ns: int,
        end_ns: int,
        *,
        kind: int = 1,
        stream: int | None = 7,
        launch_ns: int | None = None,
        pinned: bool = False,
        until_ns: int | None = None,
    ) -> int:
        """A copy and its call, which returns ``until_ns``; kind 1 is host to device, 2 back, 8 on the device, 10 to a
        peer.
        """
        name = COPIES[kind].replace("Pageable", "Pinned") if pinned else COPIES[kind]
        return self._transfer("gpu_memcpy", "cudaMemcpyAsync", name, start_ns, end_ns, stream, launch_ns, until_ns)

    def memset(self, start_ns: int, end_ns: int, *, stream: int | None = 7, launch_ns: int | None = None) -> int:
        """A memset and its call."""
        return self._transfer("gpu_memset", "cudaMemsetAsync", "Memset (Device)", start_ns, end_ns, stream, launch_ns)

    def _transfer(
        self,
        cat: str,
        api: str,
        name: str,
        start_ns: int,
        end_ns: int,
        stream: int | None,
        launch_ns: int | None,
        until_ns: int | None = None,
    ) -> int:
        number = self.api(api, start_ns - self.launch_lead_ns if launch_ns is None else launch_ns, until_ns)
        place = {"device": self.device, "context": 1, "correlation": number}
        place |= {} if stream is None else {"stream": stream}
        lane = {"pid": self.device, "tid": "of no stream" if stream is None else stream}
        self.event(cat, name, start_ns, end_ns, **lane, args=place)
        return number

    def api(
        self,
        name: str,
        start_ns: int,
        end_ns: int | None = None,
        *,
        thread: int | None = None,
        correlation: int | None = None,
        cat: str = "",
    ) -> int:
        """A call of the CUDA API; returns its correlation."""
        number = next(self._correlations) if correlation is None else correlation
        end_ns = start_ns + self.call_length_ns if end_ns is None else end_ns
        own = self.pid if self.main_thread is None else self.main_thread
        tid = own if thread is None else thread
        self.event(cat or "cuda_runtime", name, start_ns, end_ns, tid=tid, args=self._joined(number))
        return number

    def event_record(self, call_ns: int, *, stream: int = 7) -> int:
        """An event is recorded on a stream: a call, whose correlation :meth:`stream_wait` may wait for."""
        number = self.api("cudaEventRecord", call_ns, call_ns + EVENT_CALL_NS)
        self._recorded_on[number] = stream
        return number

    def stream_wait(self, call_ns: int, record: int | None = None, *, stream: int = 7) -> int:
        """A stream waits for a record; None: for one that the trace does not know. Returns the correlation."""
        number = self.api("cudaStreamWaitEvent", call_ns, call_ns + EVENT_CALL_NS)
        args = {
            "cuda_sync_kind": "Stream Wait Event",
            "wait_on_stream": -1 if record is None else self._recorded_on.get(record, -1),
            "wait_on_cuda_event_record_corr_id": -1 if record is None else record,
            "stream": stream,
            "correlation": number,
            "device": self.device,
            "context": 1,
        }
        place = {"pid": self.device, "tid": stream}
        self.event("cuda_sync", "Stream Wait Event", call_ns + 1, call_ns + 2, **place, args=args)
        return number

    def _joined(self, correlation: int) -> Json:
        """How a call names the kernel that it launched."""
        return {"correlation": correlation}

    def recorded_until(self, time_ns: int) -> None:
        """When the profiler stopped."""
        self.events.append({"name": "Record Window End", "ph": "i", "s": "g", "ts": microseconds(time_ns)})

    def text(self, *, as_list: bool = False) -> str:
        """The trace as JSON; ``as_list``: without the root's object."""
        events = ",\n".join(map(json.dumps, self.events))
        root = {**self.members, "traceEvents": "<events>", "traceName": "trace.json"}
        text = '"<events>"' if as_list else json.dumps(root, indent=1)
        return _NUMBER.sub(r"\1", text.replace('"<events>"', f"[\n{events}\n]"))

    def write(self, path: Path, *, as_list: bool = False) -> Path:
        """Write the trace, packed where the name ends in ``.gz``."""
        content = self.text(as_list=as_list).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
        return path
