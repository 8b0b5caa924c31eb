"""The nouns that every part shares: what a trace holds, and what a measurement is.

All times are integers of nanoseconds on the clock of their trace; what may be compared over two clocks, and how well,
says :mod:`pytest_nsys.analysis.common_clock`.
Values are integers or exact fractions until they are printed. Nothing here knows a file format, a gate or pytest.
"""

from __future__ import annotations

import enum
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pytest_nsys.core.words import printable

if TYPE_CHECKING:
    from pytest_nsys.core.tables import Kernels, LaunchCalls, Ranges, Series, StreamWait

Value = int | Fraction
"""A measured value: nanoseconds and counts are int, ratios and means are Fraction."""

Label = int | str
"""One coordinate of a row: a rank number, a stage name."""

NO_LAUNCH = -(1 << 63)
"""Stands for the launch time of a kernel that has no launch row."""

OPEN_END_NS = (1 << 63) - 1
"""End of a range that was never closed: it encloses everything up to the last event."""

SINCE_1970 = range(1_420_070_400_000_000_000, 4_102_444_800_000_000_000)
"""Nanoseconds of the years 2015 to 2099: no machine has been up for so long, and no session was started elsewhere."""


class KernelsMode(enum.StrEnum):
    """Which kernels are in a window."""

    CONTAINED = "contained"
    CLIPPED = "clipped"
    LAUNCHED = "launched"


class Span(enum.StrEnum):
    """What of an anchor is the window: its own range, or from its start to the next anchor's start."""

    RANGE = "range"
    PERIOD = "period"


MACHINE_BITS = 48
"""Where a serialised process id names the machine."""


class ProcessId(NamedTuple):
    """One process of one trace.

    ``global_pid`` is the profiler's serialised id with the thread bits cleared (hardware 8, VM 8, process 24,
    thread 24 bits; it may be negative): the process number alone is not unique over containers and nodes. Where the
    file has no such id: the process number << 24, from 1 on.
    """

    trace: int
    global_pid: int

    @property
    def pid(self) -> int:
        """The process number as the operating system (or container) gave it."""
        return (self.global_pid >> 24) & 0xFFFFFF

    @property
    def clock(self) -> Clock:
        """What its times count on: the file and, inside it, the machine (hardware and VM bits).

        Two files are two clocks even where one machine wrote both: each counts from the start of its own session.
        """
        return Clock(self.trace, self.global_pid >> MACHINE_BITS)


class Clock(NamedTuple):
    """What times count on: a trace by its place in the run, and a machine of it."""

    trace: int
    machine: int


class Tie(NamedTuple):
    """How far a clock of a trace is ahead of that of the machine ``root``, and by how much that may be wrong."""

    root: int
    ahead_ns: int
    error_ns: int


class Setup(NamedTuple):
    """What a setup label says of its process: rank, mesh coordinates and sizes, micro-batch, sequence length."""

    text: str
    rank: int
    coordinates: Mapping[str, int]
    sizes: Mapping[str, int]
    micro_batch: int | None = None
    sequence_length: int | None = None


class Rank(NamedTuple):
    """One GPU worker of a run.

    ``number`` is the global rank of the setup label, else the ordinal by (file, process, device). ``device`` is
    None for a labelled process: the label makes the whole process one rank.
    """

    number: int
    process: ProcessId
    device: int | None
    setup: Setup | None
    trace: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def lane(self) -> Lane:
        """Where its kernels are found in its trace."""
        return Lane(self.process.global_pid, self.device)

    @property
    def coordinates(self) -> Mapping[str, int]:
        """Mesh coordinates by axis (``pp``, ``dp`` …), empty without a setup label."""
        return self.setup.coordinates if self.setup else {}


class Range(NamedTuple):
    """A named span of CPU time on one thread. ``end_ns`` is OPEN_END_NS where it was never closed."""

    start_ns: int
    end_ns: int
    thread: int
    name: str


NO_STREAM = -1
"""The number of the stream of what a trace puts on none: such operations have no order among each other."""


class Stream(NamedTuple):
    """What makes a stream one: its number alone is shared by devices and contexts."""

    device: int
    context: int
    number: int


def stream_labels(streams: Iterable[Stream]) -> dict[Stream, Label]:
    """What each of these streams is called: its number, spelt out where devices or contexts share it."""
    found = set(streams)
    numbers = Counter(stream.number for stream in found)
    return {s: s.number if numbers[s.number] == 1 else "/".join(map(str, s)) for s in found}


@dataclass(frozen=True, slots=True)
class Window:
    """The span of one rank that is analysed.

    ``index`` of ``count`` anchors (0-based), or None where the window is no anchor (explicit span, whole run).
    """

    start_ns: int
    end_ns: int
    name: str
    index: int | None = None
    count: int | None = None

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


class Lane(NamedTuple):
    """Where kernels are found: a process (serialised id) and one of its devices, None for all of them."""

    global_pid: int
    device: int | None


class Note(NamedTuple):
    """Something that a person should know about a measurement, as one line; ``warning`` where it casts doubt."""

    text: str
    warning: bool = False

    def __str__(self) -> str:
        return f"warning: {self.text}" if self.warning else self.text

    @property
    def labelled(self) -> str:
        """The same with a word before every note: ``note: …``, ``warning: …``."""
        return str(self) if self.warning else f"note: {self.text}"

    def printable(self, limit: int) -> Note:
        """The note as a report may show it, cut at ``limit`` characters."""
        return Note(printable(self.text, limit - len("warning: ") * self.warning), self.warning)


def merged(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Return each text once, those that cast doubt first: for one metric a fact may cast doubt, and for another not."""
    warnings = {note.text: note.warning for note in sorted(notes, key=lambda note: note.warning)}
    return tuple(sorted((Note(*each) for each in warnings.items()), key=lambda note: not note.warning))


class Step(NamedTuple):
    """What to do next: a command to type or a key to set, and what it is for."""

    command: str
    what: str = ""

    def __str__(self) -> str:
        return f"{self.command}  ({self.what})" if self.what else self.command


class Diagnostic(NamedTuple):
    """A warning or error of the profiler: ``raw`` as it is stored, ``told`` without what names machine or user."""

    raw: str
    told: str


class ImpossibleRows(NamedTuple):
    """How many operations of the GPU have times that cannot be, and what the first of them says.

    An operation that ends before it starts, has no end, or starts and ends at 0, as one that the profiler did not
    time, is left out of everything that is measured.
    """

    number: int = 0
    first: str = ""

    @classmethod
    def of(cls, number: int, what: str, name: str, stream: object, start_ns: object, end_ns: object) -> ImpossibleRows:
        """So many rows, of which this one is the first; ``what`` is a kernel, a copy or a memset."""
        called = f"{what} {printable(name, 80)}" if name else what
        end = "no end" if end_ns is None else f"end {end_ns}"
        return cls(number, f"{called} on stream {stream}: start {start_ns}, {end}")

    def and_(self, other: ImpossibleRows) -> ImpossibleRows:
        """Those of both, the first of which is the first here."""
        return ImpossibleRows(self.number + other.number, self.first or other.first)


class StepsOfRun(NamedTuple):
    """The steps of a rank that have a window, as a cut keeps them: (start, end) of each on the host, in ns, and of the
    same on the GPU. The last of several has no next one, and ends with its own work.
    """

    on_host: Sequence[Interval]
    on_gpu: Sequence[Interval]


class Picked(NamedTuple):
    """How the windows of a cut were picked: the fields of a WindowSpec."""

    window: str
    span: Span
    kernels: KernelsMode
    kind: str | None

    @property
    def whole_run(self) -> bool:
        return self.window == "run"


class TraceFacts(NamedTuple):
    """What a trace says of the machine and the profiler, as far as its version records it.

    ``gpus`` maps (pid, device) to the model; ``models`` are all models of the machine, for versions that do not
    say which process used which. ``uuids`` maps (pid, device) to what tells that GPU from all others, in whichever
    process and file; it is no name to show. ``whole_graphs`` counts CUDA graph replays traced without their kernels.
    ``diagnostics`` are the profiler's own warnings and errors. ``session_ns`` is how long it ran, from time 0 on.
    ``notes`` is what its reader found worth telling. ``to_see_kernels``, ``to_see_ranges``, ``to_see_calls``,
    ``to_see_sizes`` (of collectives), ``to_see_memory``, ``to_see_clocks`` (of the SMs): how to capture the missing.
    ``started_ns``: when it began, in ns since 1970 (UTC).
    ``zeros_ns`` maps a machine (see ``Clock``) to the moment from which its times count, in ns since 1970; None stands
    for the only machine of the file. Whatever is no such moment of SINCE_1970 is left out. ``ties`` are of its machines
    where the file knows more of them than its collectives say.
    ``files``: how many files of the profiler are in it. ``impossible``: its rows that were left out.
    ``on_gpus`` is what a cut kept of the logs of nvidia-smi beside its traces.
    ``slows_host`` is the setting of the profiler, if any, that makes every call of the host longer.
    ``units`` are those of a cut by serialised process id, anchor, and whether they are of launches.
    ``sessions_ns`` is how long the profiler ran by serialised process id, where the file was made of several.
    """

    profiler_version: str | None
    gpus: Mapping[tuple[int, int], str]
    models: Sequence[str]
    whole_graphs: int
    diagnostics: Sequence[Diagnostic]
    session_ns: int | None = None
    notes: Sequence[str] = ()
    to_see_kernels: str = "capture with --trace=cuda,nvtx on a step that uses the GPU"
    to_see_ranges: str = "capture with --trace=cuda,nvtx and mark the step with NVTX"
    to_see_calls: str = "trace the CUDA API on all ranks"
    to_see_sizes: str = "this format has no record of the sizes of collectives"
    to_see_memory: str = "this format has no record of memory"
    to_see_clocks: str = "this format has no record of clocks"
    started_ns: int | None = None
    zeros_ns: Mapping[int | None, int] = {}  # goes from process to process, which a mappingproxy cannot
    ties: Mapping[int, Tie] = {}
    files: int = 1
    sessions_ns: Mapping[int, int] = {}
    on_gpus: Sequence[Note] = ()
    slows_host: str = ""
    units: Mapping[tuple[int, str, bool], StepsOfRun] = {}
    views: Sequence[Picked] = ()
    impossible: ImpossibleRows = ImpossibleRows()
    uuids: Mapping[tuple[int, int], str] = {}


class Api(NamedTuple):
    """One call of the CUDA API on the CPU; ``thread`` is as of a Range."""

    start_ns: int
    name: str
    end_ns: int
    thread: int


class LaunchKind(enum.StrEnum):
    """What a call puts on a GPU: one kernel, one copy, or all nodes of a graph."""

    KERNEL = "kernel"
    COPY = "copy"
    GRAPH = "graph"


class LaunchRecord(NamedTuple):
    """What is on record of the work of ``calls`` of one kind: nothing of the work of ``without`` of them. Of a replay
    that ran less than another one of its graph the missing share counts.

    ``first`` is the first of those. ``outside`` are calls beside these: before that of the first recorded kernel of the
    process, or after that of the last, as a profiler writes them that began or stopped in between.
    """

    kind: LaunchKind
    calls: int
    without: Value = 0
    first: Api | None = None
    outside: int = 0


class Copy(NamedTuple):
    """One copy between memories, on the GPU's clock. ``source`` and ``target`` are kinds of memory in lower case, as
    ``pageable``, ``pinned`` or ``device``; empty where the trace does not say. ``launch_ns``: when it was launched, its
    start where no launch row says.
    """

    start_ns: int
    source: str
    target: str
    launch_ns: int


class Memory(NamedTuple):
    """What was allocated on a device, in bytes: ``levels``, each of which holds until the next. ``earlier`` counts
    frees of memory that was allocated before the recording began: then the levels lack it, and what else was there.
    """

    levels: Series
    earlier: int = 0


class Collective(NamedTuple):
    """What a trace records of the collective that one kernel is; None where it does not say.

    ``name`` is the trace's own (``_allgather_base``, ``ncclAllReduce``), ``group`` the name of the process group and
    ``members`` what tells the group from others of that name: its ranks, or its communicator. ``in_elements`` and
    ``out_elements`` are what this rank gives and gets, of ``dtype`` in the words of c10 (``Float``, ``BFloat16``).
    """

    name: str
    group: str | None = None
    members: str | None = None
    group_size: int | None = None
    in_elements: int | None = None
    out_elements: int | None = None
    dtype: str | None = None


Interval = tuple[int, int]
"""(start_ns, end_ns)"""


class Trace(Protocol):
    """One file (or folder) that a profiler wrote, read on demand: a caller fetches only what it asks for.

    Every mapping is by serialised process id or by lane; a process without anything is absent. The ids of two files of
    one run differ where the processes do; no time ends before it starts; a span holds its ends. All methods
    raise :class:`~pytest_nsys.core.errors.TraceError` where the file cannot be read.
    """

    @property
    def path(self) -> Path: ...

    def facts(self) -> TraceFacts: ...

    def setups(self) -> Mapping[int, Setup]:
        """What the trace states of its processes by itself; a setup label among their ranges says more. A rank alone is
        ``Setup(where it is stated, rank, {}, {})``.
        """
        ...

    def has_kernels(self) -> bool:
        """Whether anything ran on a GPU: seen at the first row, where :meth:`lanes` passes the whole table."""
        ...

    def lanes(self) -> Sequence[Lane]:
        """Every (process, device) that ran a kernel, ordered."""
        ...

    def library_kernels(self) -> Set[tuple[str, str]]:
        """The (short name, demangled name) of each kernel that ran and is of a known communication library."""
        ...

    def ranges(self, patterns: Sequence[str]) -> Mapping[int, Ranges]:
        """The ranges, open ones too, whose name matches a ``%`` pattern, by process, ordered by (start, end)."""
        ...

    def ranges_around(self, spans: Mapping[int, Interval]) -> Mapping[int, Ranges]:
        """The ranges of each process that touch its span, NCCL's own left out, ordered by (start, end)."""
        ...

    def module_calls(self) -> Mapping[int, Ranges]:
        """The calls of a model's modules that the profiler itself recorded (``nn.Module: Block_3``), by process,
        ordered by (start, end). They are no ranges: they say what is a part of the model, and nothing anchors there.
        """
        ...

    def common_range_names(self, global_pid: int) -> Sequence[tuple[str, int]]:
        """The names that most ranges of a process have, with their counts, to show what could be meant."""
        ...

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that touch its span; None: all of them."""
        ...

    def unasked(self) -> Set[int]:
        """Processes that ran kernels in the spans read so far, but in no lane that was asked for."""
        ...

    def idle(self, spans: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
        """Those of the spans of each lane, which stand by start, in which no kernel runs; at an edge none does."""
        ...

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that have a launch row starting in its span, edges included."""
        ...

    def launches(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, array[int]]:
        """For each kernel the start of its earliest launch row, NO_LAUNCH where it has none."""
        ...

    def launch_calls(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
        """The call that launched each kernel; of transfers and copies, too."""
        ...

    def stream_waits(self) -> Mapping[int, Sequence[StreamWait]] | None:
        """Every stream-wait by process, in the order of its place; None where the trace has not one on record: then
        nothing tells whether there were any.
        """
        ...

    def launch_records(
        self, spans: Mapping[int, Interval | None], kernels: Mapping[Lane, Kernels], /
    ) -> Mapping[int, Sequence[LaunchRecord]] | None:
        """Of the calls that launch work and start in the span of their process (None: all of them), how much work is on
        record, by kind. Of a process without a span all calls count, if it has more than a few. ``kernels`` are such as
        were read before, and are not looked for again.

        A call inside another one is part of it. What fails launches nothing, nor does, without a record of it, what a
        thread calls while it captures a graph; memsets and copies of 0 bytes are no work. None where the trace has no
        record of any call.
        """
        ...

    def api_calls(self, name_globs: Sequence[str], spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Api]] | None:
        """The calls whose name matches a glob and that start in the span, one per correlation, by process.

        None where the trace has no record of any call.
        """
        ...

    def copies(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Sequence[Copy]] | None:
        """The copies of each lane that have a launch row starting in its span, edges included, by start; without launch
        rows those that start in it. None where the format or its version never says which memories a copy is between.
        """
        ...

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """All copies of these kinds (of conventions.CopyKind), each named for its kind, by process and device."""
        ...

    def copies_between_gpus(self) -> Mapping[Lane, Kernels]:
        """The copies to another GPU, and those that a collective launched, that are not among the kernels; each named
        for its kind, by process and device.
        """
        ...

    def transfers(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels] | None:
        """What kept the GPU of each lane busy and touches its span (None: all of it), as kernels that are called
        ``copy``, ``memset`` and, of CUDA graphs that were traced whole, ``graph``. None where the format or its version
        does not say when and where they ran.
        """
        ...

    def memory(self) -> Mapping[Lane, Memory] | None:
        """What each process had allocated on each device; None where the trace has no record of it."""
        ...

    def sm_clocks(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Series] | None:
        """Samples of the clock of the SMs of each lane, in Hz, around its span (None: all of them). None where the
        trace has no record of any.
        """
        ...

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[Collective | None]] | None:
        """For each kernel what is recorded of it as a collective; None where the trace has no record of any."""
        ...

    def close(self) -> None: ...


class Unseen(NamedTuple):
    """A row that there is not, because its value is less than ``error``, by which it may be wrong."""

    labels: tuple[Label, ...]
    error: Value


class Row(NamedTuple):
    """One value of a metric with its dimensions, in the order that the metric declares them."""

    labels: tuple[Label, ...]
    value: Value
