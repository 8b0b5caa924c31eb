"""What does a run of several ranks leave in a trace, when anything of it can be changed? The program, and its clocks.

A program is what the host of each rank does, op by op. Written, it is carried out: the host launches and goes on,
a stream runs its kernels one after the other, and a collective ends when the last of its ranks has been in it as long
as it takes. So what follows a change moves with it, and peers wait.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.formats import Format
from tests.support.samples.gpu_state import sm_clock
from tests.support.samples.kineto import KinetoBuilder

US, MS = 1_000, 1_000_000
COMPUTE, COMM, SIDE = 7, 20, 24
"""Streams."""

LATENCY_NS, STREAM_GAP_NS, FIRST_NS = 4_000, 1_500, 1_000_000
GPU = "NVIDIA H100 80GB HBM3"


class Do(enum.Enum):
    """What an op is. GRAPH launches several kernels at once. RECORD and WAIT are of an event by name; PACE waits on
    the host until a step is so long. ON and OFF are the profiler's: what is launched before and after is in no trace.
    """

    KERNEL = enum.auto()
    COLLECTIVE = enum.auto()
    COPY = enum.auto()
    MEMSET = enum.auto()
    SYNC = enum.auto()
    WORK = enum.auto()
    PACE = enum.auto()
    OPEN = enum.auto()
    CLOSE = enum.auto()
    RECORD = enum.auto()
    WAIT = enum.auto()
    GRAPH = enum.auto()
    ON = enum.auto()
    OFF = enum.auto()


@dataclass
class Op:
    """What the host does next. ``ns`` is how long it takes: of SYNC on top of waiting for the GPU. ``full`` is a
    kernel's demangled name. Copies are of the ``kind`` that the builders know; ``pinned``, or the host stands in them.
    ``thread`` is which one of the host launches, 0 the main one. ``nodes`` are the kernels of a graph.
    """

    do: Do
    name: str = ""
    ns: int = 0
    stream: int = COMPUTE
    full: str = ""
    kind: int = 1
    pinned: bool = True
    thread: int = 0
    nodes: tuple[Op, ...] = ()


def kernel(name: str, us: float, stream: int = COMPUTE, full: str = "") -> Op:
    return Op(Do.KERNEL, name, round(us * US), stream, full)


def collective(name: str, us: float, stream: int = COMM) -> list[Op]:
    """It begins when the compute before it has ended."""
    ready = [Op(Do.RECORD, "computed"), Op(Do.WAIT, "computed", stream=stream)] if stream != COMPUTE else []
    return [*ready, Op(Do.COLLECTIVE, name, round(us * US), stream)]


def joined(stream: int = COMM) -> list[Op]:
    """What is launched from here on waits for what communicates now."""
    return [Op(Do.RECORD, "communicated", stream=stream), Op(Do.WAIT, "communicated")]


def within(name: str, *ops: Op) -> list[Op]:
    """Ops in a range."""
    return [Op(Do.OPEN, name), *ops, Op(Do.CLOSE, name)]


Step = list[Op]


@dataclass
class Program:
    """Steps by rank. ``anchor`` names the range of each, ``label`` that of the setup. ``launch_ns`` is how long the
    host takes for a launch and what stands around it, by rank; ``mhz`` the clock of the GPU, where the trace has it.
    ``rocm``: torch.profiler runs on AMD, where it records no stream that waits for another. Without ``launches``
    nothing of the host is recorded. ``jitter`` is the largest relative deviation of a length: no two runs are alike.
    """

    steps: dict[int, list[Step]]
    anchor: str = "ProfilerStep#{}"
    label: str = ""
    launch_ns: dict[int, int] = field(default_factory=dict)
    mhz: int | None = None
    rocm: bool = False
    launches: bool = True
    jitter: float = 0.01

    @classmethod
    def of(cls, ranks: int, count: int, step: Callable[[], Step], **more: Any) -> Program:
        """Ranks that all repeat one step."""
        steps = {rank: [step() for _ in range(count)] for rank in range(ranks)}
        return cls(steps, launch_ns=dict.fromkeys(steps, 8_000), **more)

    def each(self, ranks: Collection[int] = (), steps: Collection[int] = ()) -> Iterator[Step]:
        """The steps of some ranks, of all where none are named."""
        for rank, own in self.steps.items():
            if not ranks or rank in ranks:
                yield from (step for n, step in enumerate(own) if not steps or n in steps)

    def ops(self, name: str = "", ranks: Collection[int] = (), do: Collection[Do] = (Do.KERNEL, Do.COLLECTIVE)) -> Step:
        """Ops of some ranks whose name, or full name, holds ``name``."""
        return [op for step in self.each(ranks) for op in step if op.do in do and name in (op.full or op.name)]

    def edit(self, change: Callable[[Step], Step], ranks: Collection[int] = (), steps: Collection[int] = ()) -> None:
        """Each step of some ranks, changed."""
        for step in self.each(ranks, steps):
            step[:] = change(step)

    def write(self, folder: Path, format: Format, seed: int) -> Path:
        """Carry it out: one file of nsys, or a folder with a file of torch.profiler for each rank."""
        if format is Format.NSYS:
            export = TraceBuilder()
            gpus = {rank: export.process(pid=100 + rank, device=rank) for rank in self.steps}
            for rank, gpu in gpus.items():
                export.gpu(GPU, process=gpu, device=rank)
                if self.mhz is not None:
                    samples = [(FIRST_NS + MS * at, self.mhz * 1_000_000) for at in range(250)]
                    sm_clock(export, *samples, gpu=rank)
            self._run(gpus, seed)
            folder.mkdir(parents=True, exist_ok=True)
            return export.write(folder / "run.sqlite")
        torch = {rank: KinetoBuilder(rank, len(self.steps), pid=4_100 + rank, device=rank) for rank in self.steps}
        for builder in torch.values() if self.rocm else ():
            builder.launch_name = "hipLaunchKernel"
        self._run(torch, seed)
        for rank, builder in torch.items():
            builder.write(folder / f"rank{rank}_trace.json.gz")
        return folder

    def _run(self, gpus: dict[int, Any], seed: int) -> None:
        """All ranks, each until its next collective, which all have come to before any goes on."""
        hosts = {rank: _Rank(self, rank, gpu, seed).run() for rank, gpu in gpus.items()}
        at = {rank: next(host, None) for rank, host in hosts.items()}
        while any(at.values()):
            arrived = [each for each in at.values() if each is not None]
            assert len(arrived) == len(at), "one rank has fewer collectives than another"
            end_ns = max(start for start, _ in arrived) + max(length for _, length in arrived)
            for rank, host in hosts.items():
                try:
                    at[rank] = host.send(end_ns)
                except StopIteration:
                    at[rank] = None


class _Rank:
    """The clocks of one rank."""

    def __init__(self, program: Program, rank: int, gpu: Process | KinetoBuilder, seed: int) -> None:
        self.program, self.rank, self.trace = program, rank, gpu
        self.off = any(op.do is Do.ON for step in program.steps[rank] for op in step)
        self.random = Random(f"{seed}:{rank}").random
        self.now_ns = FIRST_NS
        self.free_ns: dict[int, int] = {}
        self.events: dict[str, tuple[int | None, int]] = {}
        self.open: list[int] = []
        self.on_ns = 0
        self.torch, self.nowhere = isinstance(gpu, KinetoBuilder), KinetoBuilder()

    @property
    def gpu(self) -> Any:
        """What records kernels now."""
        return self.nowhere if self.off else self.trace

    @property
    def host(self) -> Any:
        """What records calls and ranges now."""
        return self.gpu if self.program.launches else self.nowhere

    def run(self) -> Generator[tuple[int, int], int, None]:
        if label := self.program.label:
            self.host.range(label.format(self.rank, len(self.program.steps)), 10, 20)
        for number, step in enumerate(self.program.steps[self.rank]):
            began_ns = self.now_ns
            for op in step:
                yield from self._do(op, began_ns)
            if self.program.anchor:
                self._range(self.program.anchor.format(number), began_ns, self.now_ns)
            self.now_ns += 2_000

    def _do(self, op: Op, began_ns: int) -> Generator[tuple[int, int], int, None]:
        at_ns, length_ns = self.now_ns, self._varied(op.ns)
        if op.do in (Do.KERNEL, Do.COLLECTIVE, Do.COPY, Do.MEMSET):
            self.now_ns += self.program.launch_ns[self.rank]
            start_ns = self._free(op, at_ns)
            end_ns = start_ns + length_ns
            if op.do is Do.COLLECTIVE:
                end_ns = yield start_ns, length_ns
            self.free_ns[op.stream] = end_ns
            self._put(op, start_ns, end_ns, at_ns)
        elif op.do is Do.GRAPH:
            self._graph(op, at_ns)
        elif op.do is Do.SYNC:
            self.now_ns = max(at_ns, *self.free_ns.values()) + 5_000 + length_ns
            self.host.api(self._call(op.name), at_ns, self.now_ns)
        elif op.do is Do.WORK:
            self.now_ns += length_ns
        elif op.do is Do.PACE:
            self.now_ns = max(at_ns, began_ns + op.ns)
        elif op.do is Do.OPEN:
            self.open.append(at_ns)
            self.now_ns += 200
        elif op.do is Do.CLOSE:
            self._range(op.name, self.open.pop(), at_ns, op.thread)
            self.now_ns += 200
        elif op.do in (Do.ON, Do.OFF):
            self.off, self.on_ns = op.do is Do.OFF, at_ns
            self.events = {name: (None, reached_ns) for name, (_, reached_ns) in self.events.items()}
        else:
            self._order(op, at_ns)

    def _free(self, op: Op, at_ns: int) -> int:
        """When a kernel that is launched now begins."""
        return max(at_ns + LATENCY_NS, self.free_ns.get(op.stream, 0) + STREAM_GAP_NS)

    def _varied(self, ns: int) -> int:
        return ns + int(ns * self.program.jitter * (2 * self.random() - 1))

    def _call(self, name: str) -> str:
        if self.program.rocm:
            return name.replace("cuda", "hip", 1)
        return name if self.torch else f"{name}_v3020"

    def _range(self, name: str, start_ns: int, end_ns: int, thread: int = 0) -> None:
        """A range, which is in the trace where the profiler saw its begin. Operators are no annotations of a user."""
        if start_ns >= self.on_ns:
            cat = {"cat": "cpu_op"} if self.torch and name.startswith("aten::") else {}
            self.host.range(name, start_ns, end_ns, **self._on(thread), **cat)

    def _on(self, thread: int) -> dict[str, Any]:
        return {"thread": self.trace.pid + thread} if thread else {}

    def _graph(self, op: Op, at_ns: int) -> None:
        self.now_ns += 2 * self.program.launch_ns[self.rank]
        number = self.host.api(self._call("cudaGraphLaunch"), at_ns, self.now_ns - 1_000, **self._on(op.thread))
        node = "graph node id" if self.torch else "graph_node"
        for place, each in enumerate(op.nodes, 1):
            start_ns = self._free(each, at_ns)
            self.free_ns[each.stream] = start_ns + self._varied(each.ns)
            self._kernel(each, start_ns, self.free_ns[each.stream], correlation=number, **{node: place})

    def _put(self, op: Op, start_ns: int, end_ns: int, launch_ns: int) -> None:
        place: dict[str, Any] = {"stream": op.stream, "launch_ns": launch_ns}
        if op.do is Do.MEMSET:
            self.gpu.memset(start_ns, end_ns, **place)
        elif op.do is Do.COPY:
            until_ns = None if op.pinned else end_ns + LATENCY_NS
            self.gpu.memcpy(start_ns, end_ns, kind=op.kind, pinned=op.pinned, until_ns=until_ns, **place)
            self.now_ns = max(self.now_ns, until_ns or 0)
        else:
            record = self._record(op) if self.torch and op.do is Do.COLLECTIVE else {}
            launched = {"launch_ns": launch_ns, **self._on(op.thread)} if self.program.launches else {"launch": False}
            self._kernel(op, start_ns, end_ns, **launched, **record)

    def _kernel(self, op: Op, start_ns: int, end_ns: int, **more: Any) -> None:
        if self.torch:
            self.gpu.kernel(op.full or op.name, start_ns, end_ns, stream=op.stream, **more)
        else:
            full = op.full or f"{op.name}(Params)"
            self.gpu.kernel(op.name, start_ns, end_ns, stream=op.stream, demangled=full, **more)

    def _record(self, op: Op) -> dict[str, Any]:
        """What torch.profiler writes of a collective of all ranks."""
        kinds = {"AllReduce": "allreduce", "AllGather": "_allgather_base", "ReduceScatter": "_reduce_scatter_base"}
        return {
            "Collective name": next((word for kind, word in kinds.items() if kind in op.name), "send"),
            "In msg nelems": 1 << 20,
            "Out msg nelems": 1 << 20,
            "Group size": len(self.program.steps),
            "dtype": "BFloat16",
            "Process Group Name": "0",
            "Process Group Description": "default_pg",
            "Process Group Ranks": str([*self.program.steps]),
        }

    def _order(self, op: Op, at_ns: int) -> None:
        self.now_ns += 1_000
        if op.do is Do.RECORD:
            record = 0 if self.program.rocm else self.host.event_record(at_ns, stream=op.stream)
            self.events[op.name] = record, self.free_ns.get(op.stream, 0)
        else:
            number, reached_ns = self.events[op.name]
            if not self.program.rocm:
                self.host.stream_wait(at_ns, number, stream=op.stream)
            self.free_ns[op.stream] = max(self.free_ns.get(op.stream, 0), reached_ns)


def copied(op: Op, **more: Any) -> Op:
    """The same op but for some fields."""
    return replace(op, **more)
