"""What does a reader of a format answer? The protocol that everything above asks a trace by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # who looks for a trace does not pay for numpy
    from pytest_nsys.core.model import Api, Collective, Copy, Interval, Lane, LaunchRecord, Setup, TraceFacts
    from pytest_nsys.core.tables import Kernels, LaunchCalls, Memory, ProgramRecords, Ranges, Series, StreamWait


class Trace(Protocol):
    """Reads one file (or folder) that a profiler wrote, on demand: a caller fetches only what it asks for.

    Every mapping is by serialised process id or by lane; a process without anything is absent. The ids of two files of
    one run differ where the processes do; no time ends before it starts; a span includes its ends. All methods raise
    :class:`~pytest_nsys.core.errors.TraceError` where the file cannot be read. The methods are called after what they
    return: a cut stores these names.
    """

    @property
    def path(self) -> Path: ...

    def facts(self) -> TraceFacts: ...

    def setups(self) -> Mapping[int, Setup]:
        """Return what the trace states of its processes by itself; a setup label among their ranges says more.

        A rank alone is ``Setup(where it is stated, rank, {}, {})``.
        """
        ...

    def lanes(self) -> Sequence[Lane]:
        """List every (process, device) that ran a kernel, ordered."""
        ...

    def library_kernels(self) -> Set[tuple[str, str]]:
        """Return the (short name, demangled name) of each kernel that ran and is of a known communication library."""
        ...

    def ranges(self, patterns: Sequence[str]) -> Mapping[int, Ranges]:
        """Read the ranges, open ones too, whose name matches a ``%`` pattern, by process, ordered by (start, end)."""
        ...

    def ranges_around(self, spans: Mapping[int, Interval]) -> Mapping[int, Ranges]:
        """Read the ranges of each process that touch its span, NCCL's own left out, ordered by (start, end)."""
        ...

    def module_calls(self) -> Mapping[int, Ranges]:
        """Read the calls of a model's modules that the profiler itself recorded (``nn.Module: Block_3``), by process.

        They are ordered by (start, end). They are no ranges: they say what is a part of the model, and nothing anchors
        there.
        """
        ...

    def program_records(self, spans: Mapping[int, Interval]) -> Mapping[int, ProgramRecords]:
        """Read what the program of each process was doing around its span: modules, operators, ranges, lines of source.

        A process is absent where the trace has nothing but the ranges of :meth:`ranges_around`: then their names say
        what each is.
        """
        ...

    def common_range_names(self, global_pid: int) -> Sequence[tuple[str, int]]:
        """List the most frequent names of ranges of a process, with their counts, to show what could be meant."""
        ...

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """Read the kernels of each lane that touch its span; None: all of them."""
        ...

    def list_unrequested_processes(self) -> Set[int]:
        """Return the processes that ran kernels in the spans read so far, but in no lane that was asked for."""
        ...

    def idle(self, spans: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
        """Return those of the spans of each lane, given by start, in which no kernel runs; at an edge none does."""
        ...

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """Read the kernels of each lane that have a launch row starting in its span, edges included."""
        ...

    def launch_calls(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
        """Read the call that launched each kernel; of transfers and copies, too."""
        ...

    def issue_calls(
        self, kernels: Mapping[Lane, Kernels], launches: Mapping[Lane, LaunchCalls], /
    ) -> Mapping[Lane, LaunchCalls]:
        """Say where the program issued each kernel from.

        That is its launch; of a kernel in a CUDA graph the creation of its node, if that is on record. Where no kernel
        has another place than its launch, ``launches`` itself is returned.
        """
        ...

    def stated_modules(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[str]]:
        """Read the module that each kernel itself names, empty for one that names none.

        A lane is absent where none does. A kernel of a CUDA graph has it where the exporter annotated the graph.
        """
        ...

    def stream_waits(self) -> Mapping[int, Sequence[StreamWait]] | None:
        """Read every stream-wait by process, in the order of its place.

        None where the trace has not one on record: then nothing tells whether there were any.
        """
        ...

    def launch_records(
        self, spans: Mapping[int, Interval | None], kernels: Mapping[Lane, Kernels], /
    ) -> Mapping[int, Sequence[LaunchRecord]] | None:
        """Count, by process and kind, the calls that launch work and start in a span, and how much of their work is on
        record.

        A span of None means all calls. Of a process without a span all calls count, if it has more than a few.
        ``kernels`` are such as were read before, and are not looked for again.

        A call inside another one is part of it. What fails launches nothing, nor does, without a record of it, what a
        thread calls while it captures a graph; memsets and copies of 0 bytes are no work. None where the trace has no
        record of any call.
        """
        ...

    def api_calls(self, name_globs: Sequence[str], spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Api]] | None:
        """Read the calls whose name matches a glob and that start in the span, one per correlation, by process.

        None where the trace has no record of any call.
        """
        ...

    def copies(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Sequence[Copy]] | None:
        """Read the copies of each lane that have a launch row starting in its span, edges included, by start.

        Without launch rows those that start in it. None where the format or its version never says which memories a
        copy is between.
        """
        ...

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """Read all copies of these kinds (of conventions.CopyKind), each named for its kind, by process and device."""
        ...

    def copies_between_gpus(self) -> Mapping[Lane, Kernels]:
        """Read the copies to another GPU, and those that a collective launched, that are not among the kernels.

        Each is named for its kind, by process and device.
        """
        ...

    def transfers(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels] | None:
        """Read what kept the GPU of each lane busy and touches its span (None: all of it), beside kernels.

        They are kernels called ``copy``, ``memset`` and, of CUDA graphs that were traced whole, ``graph``. None where
        the format or its version does not say when and where they ran.
        """
        ...

    def memory(self) -> Mapping[Lane, Memory] | None:
        """Read what each process had allocated on each device; None where the trace has no record of it."""
        ...

    def sm_clocks(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Series] | None:
        """Read samples of the clock of the SMs of each lane, in Hz, around its span (None: all of them).

        None where the trace has no record of any.
        """
        ...

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[Collective | None]] | None:
        """Read for each kernel what is recorded of it as a collective; None where the trace has no record of any."""
        ...

    def close(self) -> None: ...
