"""The nouns that every part shares: what a trace holds, and what a measurement is.

All times are integers of nanoseconds on the clock of their trace; what may be compared over two clocks, and how well,
says :mod:`pytest_nsys.analysis.metrics.common_clock`.
Values are integers or exact fractions until they are printed. Nothing here knows a file format, a gate or pytest.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.core.words import printable

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
    ``units`` are those of a cut by lane, anchor, and whether they are of launches; ``numbers`` those of its ranks.
    ``has_kernels``: whether anything ran on a GPU.
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
    units: Mapping[tuple[Lane, str, bool], StepsOfRun] = {}
    numbers: Mapping[Lane, int] = {}
    views: Sequence[Picked] = ()
    impossible: ImpossibleRows = ImpossibleRows()
    uuids: Mapping[tuple[int, int], str] = {}
    has_kernels: bool = True


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


class Unseen(NamedTuple):
    """A row that there is not, because its value is less than ``error``, by which it may be wrong."""

    labels: tuple[Label, ...]
    error: Value


class Row(NamedTuple):
    """One value of a metric with its dimensions, in the order that the metric declares them."""

    labels: tuple[Label, ...]
    value: Value
