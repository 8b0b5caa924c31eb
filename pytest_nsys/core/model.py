"""Which nouns does every part share? What a trace holds, and what a measurement is.

All times are integers of nanoseconds on the clock of their trace;
:mod:`pytest_nsys.analysis.metrics.common_clock` says what may be compared over two clocks, and how exactly. Values are
integers or exact fractions until they are printed. Nothing here knows a file format, a gate or pytest.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.core.text_format import sanitize_line

Value = int | Fraction
"""A measured value: nanoseconds and counts are int, ratios and means are Fraction."""

Label = int | str
"""One coordinate of a row: a rank number, a stage name."""

# Stands for the launch time of a kernel that has no launch row: before every time of a trace.
NO_LAUNCH = -(1 << 63)

OPEN_END_NS = (1 << 63) - 1
"""End of a range that was never closed; it encloses everything up to the last event."""

# Nanoseconds of the years 2015 to 2099: no machine has been up for so long, and no session was started elsewhere, so a
# number outside is no time since 1970.
SINCE_1970 = range(1_420_070_400_000_000_000, 4_102_444_800_000_000_000)


class KernelsMode(enum.StrEnum):
    """Says which kernels are in a window."""

    CONTAINED = "contained"
    CLIPPED = "clipped"
    LAUNCHED = "launched"


class Span(enum.StrEnum):
    """Says what of an anchor is the window: its own range, or from its start to the next anchor's start."""

    RANGE = "range"
    PERIOD = "period"


# Bits below those of a serialised process id that name the machine (hardware 8, VM 8).
MACHINE_BITS = 48


class ProcessId(NamedTuple):
    """Names one process of one trace.

    ``global_pid`` is the profiler's serialised id with the thread bits cleared (hardware 8, VM 8, process 24, thread 24
    bits; it may be negative): the process number alone is not unique over containers and nodes. Where the file has no
    such id: the process number << 24, from 1 on.
    """

    trace: int
    global_pid: int

    @property
    def pid(self) -> int:
        """The process number as the operating system (or container) gave it."""
        return (self.global_pid >> 24) & 0xFFFFFF

    @property
    def clock(self) -> Clock:
        """The clock that its times count on: the file and, inside it, the machine (hardware and VM bits).

        Two files are two clocks even where one machine wrote both: each counts from the start of its own session.
        """
        return Clock(self.trace, self.global_pid >> MACHINE_BITS)


class Clock(NamedTuple):
    """Names what times count on: a trace by its place in the run, and a machine of it."""

    trace: int
    machine: int


class ClockTie(NamedTuple):
    """Says how far a clock of a trace is ahead of that of another machine, and by how much that may be wrong."""

    root_machine: int  # the machine whose clock is compared with
    ahead_ns: int
    error_ns: int


class Setup(NamedTuple):
    """Holds what a setup label says of its process: rank, mesh coordinates and sizes, micro-batch, sequence length."""

    text: str  # the label as it stands in the trace
    rank: int
    coordinates: Mapping[str, int]  # by mesh axis
    sizes: Mapping[str, int]  # by mesh axis
    micro_batch: int | None = None
    sequence_length: int | None = None


class Rank(NamedTuple):
    """Describes one GPU worker of a run."""

    number: int  # the global rank of the setup label, else the ordinal by (file, process, device)
    process: ProcessId
    device: int | None  # None for a labelled process: the label makes the whole process one rank
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
    """Describes a named span of CPU time on one thread. ``end_ns`` is OPEN_END_NS if it was never closed."""

    start_ns: int
    end_ns: int
    thread: int
    name: str


NO_STREAM = -1
"""The stream number of operations that a trace assigns to no stream: they have no order among each other."""


class Stream(NamedTuple):
    """Identifies a stream: its number alone is shared by devices and contexts."""

    device: int
    context: int
    number: int


def label_streams(streams: Iterable[Stream]) -> dict[Stream, Label]:
    """Return the label of each stream: its number, or ``device/context/number`` where streams share the number."""
    distinct = set(streams)
    numbers = Counter(stream.number for stream in distinct)
    return {s: s.number if numbers[s.number] == 1 else "/".join(map(str, s)) for s in distinct}


@dataclass(frozen=True, slots=True)
class Window:
    """Describes the span of one rank that is analysed.

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
    """Says where kernels are found: a process (serialised id) and one of its devices, None for all of them."""

    global_pid: int
    device: int | None


class Note(NamedTuple):
    """Tells a person something about a measurement, as one line; ``warning`` where it casts doubt."""

    text: str
    warning: bool = False

    def __str__(self) -> str:
        return f"warning: {self.text}" if self.warning else self.text

    @property
    def labelled_text(self) -> str:
        """The note with a word before it: ``note: …``, ``warning: …``."""
        return str(self) if self.warning else f"note: {self.text}"

    def sanitize(self, limit: int) -> Note:
        """Return the note as a report may show it, cut at ``limit`` characters."""
        return Note(sanitize_line(self.text, limit - len("warning: ") * self.warning), self.warning)


def merge_notes(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Return each text once, those that cast doubt first: for one metric a fact may cast doubt, and for another not."""
    warnings = {note.text: note.warning for note in sorted(notes, key=lambda note: note.warning)}
    return tuple(sorted((Note(*item) for item in warnings.items()), key=lambda note: not note.warning))


COMMENT = "  # "
"""Separates a command from what it is for."""


class NextStep(NamedTuple):
    """Says what to do next: a command to type or a key to set, and what it is for."""

    command: str
    purpose: str = ""

    @property
    def is_typed(self) -> bool:
        """Whether it is typed into a shell, and not written into a file or opened in a browser."""
        return self.command.partition(" ")[0] in ("pytest", "pytest-nsys", "nvidia-smi")

    def __str__(self) -> str:
        # As a comment, what it is for may be pasted with it, into a shell or a gate file.
        return f"{self.command}{COMMENT}{self.purpose}" if self.purpose else self.command


class Diagnostic(NamedTuple):
    """Holds a warning or error of the profiler."""

    raw: str  # as it is stored
    safe_text: str  # without what names machine or user


class ImpossibleRows(NamedTuple):
    """Counts the operations of the GPU whose times cannot be, and tells what the first of them says.

    An operation that ends before it starts, has no end, or starts and ends at 0, as one that the profiler did not time,
    is left out of everything that is measured.
    """

    number: int = 0
    first_row: str = ""  # what the first of them says

    @classmethod
    def from_first_row(
        cls, number: int, operation: str, name: str, stream: object, start_ns: object, end_ns: object
    ) -> ImpossibleRows:
        """Build the count from its first row, which is an ``operation``: a kernel, a copy or a memset."""
        label = f"{operation} {sanitize_line(name, 80)}" if name else operation
        end = "no end" if end_ns is None else f"end {end_ns}"
        return cls(number, f"{label} on stream {stream}: start {start_ns}, {end}")

    def add(self, later_rows: ImpossibleRows) -> ImpossibleRows:
        """Return the rows of both together; the first row stays the one that is here."""
        return ImpossibleRows(self.number + later_rows.number, self.first_row or later_rows.first_row)


class StepSpans(NamedTuple):
    """Holds the steps of a rank that have a window, as a cut keeps them: (start, end) of each, in ns.

    The last of several has no next one, and ends with its own work.
    """

    host_spans: Sequence[Interval]  # on the clock of the host's calls
    gpu_spans: Sequence[Interval]  # the same steps on the GPU


class CutWindowSpec(NamedTuple):
    """Says how the windows of a cut were picked: it has the fields of a WindowSpec."""

    window: str
    span: Span
    kernels: KernelsMode
    kind: str | None

    @property
    def whole_run(self) -> bool:
        return self.window == "run"


class TraceFacts(NamedTuple):
    """Holds what a trace says of the machine and the profiler, as far as its version records it."""

    profiler_version: str | None
    gpus: Mapping[tuple[int, int], str]  # the model by (pid, device)
    models: Sequence[str]  # all of the machine, for versions that do not say which process used which
    whole_graph_count: int  # CUDA graph replays traced without their kernels
    diagnostics: Sequence[Diagnostic]
    session_ns: int | None = None  # how long the profiler ran, from time 0 on
    notes: Sequence[str] = ()  # what the reader found worth telling
    # How to capture what is missing: kernels, ranges, calls, sizes of collectives, memory, clocks of the SMs.
    to_see_kernels: str = "capture with --trace=cuda,nvtx on a step that uses the GPU"
    to_see_ranges: str = "capture with --trace=cuda,nvtx and mark the step with NVTX"
    to_see_calls: str = "trace the CUDA API on all ranks"
    to_see_sizes: str = "this format has no record of the sizes of collectives"
    to_see_memory: str = "this format has no record of memory"
    to_see_clocks: str = "this format has no record of clocks"
    started_ns: int | None = None  # when it began, in ns since 1970 (UTC)
    # The moment from which the times of a machine (see ``Clock``) count, in ns since 1970; None stands for the only
    # machine of the file. Whatever is no such moment of SINCE_1970 is left out.
    clock_zeros_ns: Mapping[int | None, int] = {}  # goes from process to process, which a mappingproxy cannot
    clock_ties: Mapping[
        int, ClockTie
    ] = {}  # of its machines, where the file knows more of them than its collectives say
    file_count: int = 1  # files of the profiler that are in it
    # how long the profiler ran by serialised process id, where the file was made of several
    sessions_ns: Mapping[int, int] = {}
    gpu_log_notes: Sequence[Note] = ()  # what a cut kept of the logs of nvidia-smi beside its traces
    slowing_setting: str = ""  # the profiler's setting, if any, that makes every call of the host longer
    # The steps of a cut by lane, anchor, and whether they are of launches.
    cut_steps: Mapping[tuple[Lane, str, bool], StepSpans] = {}
    rank_numbers: Mapping[Lane, int] = {}  # of the ranks of a cut
    cut_window_specs: Sequence[CutWindowSpec] = ()  # of a cut
    impossible_rows: ImpossibleRows = ImpossibleRows()  # left out of everything
    # What tells the GPU of a (pid, device) from all others, in whichever process and file; it is no name to show.
    uuids: Mapping[tuple[int, int], str] = {}
    has_kernels: bool = True  # whether anything ran on a GPU


class Api(NamedTuple):
    """Describes one call of the CUDA API on the CPU; ``thread`` is as of a Range."""

    start_ns: int
    name: str
    end_ns: int
    thread: int


class LaunchKind(enum.StrEnum):
    """Says what a call puts on a GPU: one kernel, one copy, or all nodes of a graph."""

    KERNEL = "kernel"
    COPY = "copy"
    GRAPH = "graph"


class LaunchRecord(NamedTuple):
    """Counts the calls of one kind that launch work, and those of which no work is on record."""

    kind: LaunchKind
    calls: int
    # calls of which nothing is on record; of a replay that ran less than another one of its graph the missing share
    unrecorded: Value = 0
    first_unrecorded: Api | None = None
    # Calls beside these: before that of the first recorded kernel of the process, or after that of the last, as a
    # profiler writes them that began or stopped in between.
    outside_calls: int = 0


class Copy(NamedTuple):
    """Describes one copy between memories, on the GPU's clock."""

    start_ns: int
    source: str  # kind of memory in lower case, as ``pageable``, ``pinned``, ``device``; empty: the trace does not say
    target: str
    launch_ns: int  # its start where no launch row says


class Collective(NamedTuple):
    """Holds what a trace records of the collective that one kernel is; None where it does not say."""

    name: str  # the trace's own: ``_allgather_base``, ``ncclAllReduce``
    group: str | None = None  # name of the process group
    members: str | None = None  # what tells the group from others of that name: its ranks, or its communicator
    group_size: int | None = None
    in_elements: int | None = None  # what this rank gives
    out_elements: int | None = None  # what this rank gets
    dtype: str | None = None  # in the words of c10: ``Float``, ``BFloat16``


Interval = tuple[int, int]
"""(start_ns, end_ns)"""


class RowBelowError(NamedTuple):
    """Stands for a row that a metric leaves out because its value is less than its error."""

    labels: tuple[Label, ...]
    error: Value


class Row(NamedTuple):
    """Holds one value of a metric with its dimensions, in the order that the metric declares them."""

    labels: tuple[Label, ...]
    value: Value
