"""What are the ranks of a run, and which spans of each are its windows?

The same trace always gives the same windows, so runs can be compared. The default is the anchor at index n // 2 of all
anchors of the rank. Other windows are: an index, ``first``, ``last``, ``steady`` (the middle half, whose value is the
median over its windows), ``run`` (start of the first kernel to end of the last), an explicit span, or a range name,
whose ranges are then the anchors.

Ranks are identified by setup label if there is one, else by the order of file, process and device. The files of a run
are joined by their labels. A process has one label (repeating it is fine), and a rank appears once. A process id is no
name: it differs between two runs of the same program, so it never enters a row.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from math import prod
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.core.conventions import KERNEL_ANCHOR_PREFIX, STEP_KIND_NAMES, Anchor, Convention
from pytest_nsys.core.errors import NothingMeasured, SeveralCaptures, TraceError, suggest_word
from pytest_nsys.core.model import (
    NO_LAUNCH,
    Interval,
    KernelsMode,
    Lane,
    Note,
    ProcessId,
    Range,
    Rank,
    Setup,
    Span,
    StepSpans,
    Window,
)
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.workload import Workload

MEDIAN = "median"
RUN = "run"
STEADY = "steady"
_EXPLICIT_SPAN = re.compile(r"(-?\d+):(-?\d+)")
WINDOW_WORDS = (MEDIAN, RUN, STEADY, "first", "last")
NO_WINDOW = ""
"""The window of values that were measured outside of a trace."""


def shorten_steady_label(window: str) -> str:
    """Return a window's label for a view of one window: for steady steps only their kind, empty if they have none."""
    word, _, kind = window.partition(" ")
    return kind if word == STEADY and kind in ("", *STEP_KIND_NAMES) else window


def suggest_window_word(window: str) -> str:
    """Return a hint if ``window`` is nearly a window word, and so hardly a range name; empty for a word and for a
    pattern (``%``).
    """
    return "" if window in WINDOW_WORDS or "%" in window else suggest_word(window, WINDOW_WORDS, cutoff=0.75)


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Describes which window is measured, and which kernels count as part of it."""

    window: str = MEDIAN  # in gate-file syntax: word, index, span or range name
    span: Span = Span.RANGE
    kernels: KernelsMode = KernelsMode.CONTAINED
    kind: str | None = None  # only steps of this kind are picked and counted; None: of all steps

    @property
    def window_label(self) -> str:
        """The text under which rows of the window are stored; it names the kind, so that steps of two kinds are never
        one series.
        """
        return self.window if self.kind is None else f"{self.window} {self.kind}"

    @property
    def option_text(self) -> str:
        """The argument of ``--window`` that selects the window."""
        return self.kind if self.kind is not None and self.window == MEDIAN else self.window_label

    @property
    def picks_steps(self) -> bool:
        """Whether its windows are anchors of the convention."""
        return (
            self.anchor is None
            and self.explicit_span_ns is None
            and not self.is_whole_run
            and not self.is_outside_trace
        )

    @property
    def source_noun(self) -> str:
        """The noun for what a window is picked from: ``anchor``, or for example ``decode step``."""
        return "anchor" if self.kind is None else f"{self.kind} step"

    @property
    def is_whole_run(self) -> bool:
        return self.window == RUN

    @property
    def is_outside_trace(self) -> bool:
        """Whether there is no window, because the value was measured outside of a trace."""
        return self.window == NO_WINDOW

    @property
    def is_by_launch(self) -> bool:
        """Whether the window is a span on the CPU, which holds the kernels launched in it."""
        return self.kernels is KernelsMode.LAUNCHED and not self.is_whole_run

    @property
    def explicit_span_ns(self) -> tuple[int, int] | None:
        """The (start, end) in ns if the window is given as ``START:END``, else None."""
        match = _EXPLICIT_SPAN.fullmatch(self.window)
        return (int(match[1]), int(match[2])) if match else None

    @property
    def index(self) -> int | None:
        return int(self.window) if self.window.isascii() and self.window.isdigit() else None

    @property
    def anchor(self) -> str | None:
        """The range name that replaces the convention's anchor if the window is given by name, else None."""
        if self.window in WINDOW_WORDS or self.explicit_span_ns or self.index is not None:
            return None
        return self.window

    def __str__(self) -> str:
        if self.is_outside_trace:
            return "measured outside of a trace"
        span = "" if self.span is Span.RANGE or self.is_whole_run or self.explicit_span_ns else f", span {self.span}"
        kernels = "all kernels" if self.is_whole_run else f"kernels {self.kernels}"
        return f"window {sanitize_line(self.window_label)}{span}, {kernels}"


def find_anchor(convention: Convention, spec: WindowSpec | None) -> Anchor | None:
    """Return the anchor that marks the windows: the range that the spec names, else the convention's own; None if
    neither exists.
    """
    return (spec and spec.anchor) or convention.anchor


def marks_steps(convention: Convention, spec: WindowSpec | None = None) -> bool:
    """Return whether anchors mark steps, which follow one another without a gap, whatever the span.

    A part of a step and a range that the user names are measured by themselves.
    """
    is_named_range = spec is not None and spec.anchor is not None
    return convention.anchor is not None and not is_named_range and not convention.marks_parts


OUTSIDE_TRACE_SPEC = WindowSpec(NO_WINDOW)
"""The spec of values that were measured outside of a trace."""


@dataclass(frozen=True, slots=True)
class UsedWindow:
    """Describes the window on which one rank of one capture was judged."""

    capture: int
    rank: int
    window: Window
    is_by_launch: bool = False  # whether it spans launches, on the CPU
    kind: str | None = (
        None  # the step's kind, if it has one: its CPU time then says nothing, because it waits for the GPU
    )


class ExaminedWindow(NamedTuple):
    """Describes the windows that explain a row: for each rank of one capture, the window at one position in the spec's
    order.
    """

    spec: WindowSpec
    capture: int
    position: int  # among the windows that the spec picks, from 0
    windows: tuple[UsedWindow, ...]  # one per rank

    @property
    def anchor_index(self) -> int | None:
        """The anchor's index, as ``--window`` takes it; None if the ranks' indices differ, or there is no index."""
        indices = {window.window.index for window in self.windows}
        return indices.pop() if len(indices) == 1 and self.spec.anchor is None else None


def choose_window_noun(windows: Iterable[UsedWindow]) -> str:
    """Return what to call these windows: ``step`` if all their names say so, else ``window``.

    Units that begin with a kernel anchor are steps, as ``show`` calls them; a user who wants a layer gives it a name.
    """
    names = {used_window.window.name.lower() for used_window in windows}
    step_words = ("step", "iteration", "execute_")  # vLLM's step names begin with execute_
    is_step_name = (name.startswith(KERNEL_ANCHOR_PREFIX) or any(word in name for word in step_words) for name in names)
    return "step" if all(is_step_name) else "window"


def complete_window_spec(
    convention: Convention,
    window: str,
    span: Span | None = None,
    kernels: KernelsMode | None = None,
    kind: str | None = None,
) -> WindowSpec:
    """Build a window spec, taking from the convention whatever is None.

    If steps have kinds, ``window`` may end in one: ``decode``, ``steady decode``. A step lasts until the next one
    begins, so its span is its period.
    """
    *earlier_words, last_word = window.split(" ")
    if last_word in convention.kind_names:
        kind, window = kind or last_word, " ".join(earlier_words) or MEDIAN
    kind = kind if kind in convention.kind_names else None
    spec = WindowSpec(window, span or convention.span, kernels or convention.kernels, kind)
    if spec.is_whole_run:
        return WindowSpec(RUN, kind=kind)  # has neither anchors nor edges, so all spans and modes share one reading
    return replace(spec, span=Span.RANGE) if spec.explicit_span_ns or marks_steps(convention, spec) else spec


def assume_single_step(workload: Workload, spec: WindowSpec, *, has_anchor: bool) -> Workload:
    """Return the workload; if it states no number of steps, with one step for an explicit span, or for a whole run
    without anchor.
    """
    is_single_step = spec.explicit_span_ns is not None or (spec.is_whole_run and not has_anchor)
    return workload._replace(steps=1) if is_single_step and workload.steps is None else workload


def list_open_fields(window: object = None, span: object = None, kernels: object = None) -> tuple[str, ...]:
    """List the fields of a window spec that were not requested. A requested window decides the kind, too."""
    requested_fields = {"window": window, "span": span, "kernels": kernels, "kind": window}
    return tuple(name for name, value in requested_fields.items() if value is None)


def select_steady_indices(count: int, whole_count: int | None = None) -> range:
    """Return the indices of the middle half of the anchors, [n // 4, n − n // 4), below ``whole_count``."""
    return range(count // 4, min(count - count // 4, count if whole_count is None else whole_count))


def pick_anchor_windows(anchors: Sequence[Range], spec: WindowSpec) -> list[Window]:
    """Pick the windows of one rank from its anchors, which are sorted by start.

    Raises NothingMeasured if an index does not exist, or the period of the last anchor is requested.
    """
    count, whole_count = len(anchors), count_whole_steps(anchors)
    indices: Sequence[int]
    match spec.window:
        case "first":
            indices = [0]
        case "last":
            indices = [count - 1]
        case "steady":
            indices = select_steady_indices(count, whole_count)
        case _:
            indices = [min(count // 2, whole_count - 1) if spec.index is None else spec.index]
    return [_build_anchor_window(anchors, i, spec) for i in indices]


_STEP_NUMBER = re.compile(r"(?:step|iter)[a-z_]*[ #=:\[]*([0-9]{1,18})(?![0-9])", re.IGNORECASE)
_DIGITS = re.compile("[0-9]+")


def map_step_numbers(anchors: Sequence[Range]) -> dict[int, int]:
    """Return the index of each step by the number in its name (``step 7``); empty where the names do not count up."""
    index_by_number: dict[int, int] = {}
    last_number, name_shape = -1, None
    for index, anchor in enumerate(anchors):
        match = _STEP_NUMBER.search(anchor.name)
        anchor_shape = match and _DIGITS.sub("", anchor.name)
        if match is None or int(match[1]) <= last_number or anchor_shape != (name_shape or anchor_shape):
            return {}
        last_number, name_shape = int(match[1]), anchor_shape
        index_by_number[last_number] = index
    return index_by_number


def count_whole_steps(anchors: Sequence[Range]) -> int:
    """Count the anchors that are whole steps: the last of several has no successor, so it is not."""
    are_steps = bool(anchors) and isinstance(anchors[0], StepSpan)
    return len(anchors) - 1 if are_steps and len(anchors) > 1 else len(anchors)


def _build_anchor_window(anchors: Sequence[Range], index: int, spec: WindowSpec) -> Window:
    count = len(anchors)
    if index >= count:
        raise NothingMeasured(f"there is no {spec.source_noun} {index}: the rank has {count}, numbered from 0")
    anchor = anchors[index]
    end_ns = anchor.end_ns
    if spec.span is Span.PERIOD and not isinstance(anchor, StepSpan):
        if index + 1 >= count:
            raise NothingMeasured(
                f"anchor {index} of {count} has no successor, so it has no period: use span: range, or an earlier index"
            )
        end_ns = anchors[index + 1].start_ns
    return Window(anchor.start_ns, end_ns, anchor.name, index, count)


class StepSpan(Range):
    """Describes a step on the host: from its begin to that of the next step, or for the last step to the end of its
    work.
    """

    __slots__ = ()


def remove_nested_ranges(ranges: Sequence[Range]) -> list[Range]:
    """Return the ranges of one pattern, sorted by start, without those inside another of these ranges on the same
    thread.
    """
    ends: dict[int, int] = {}
    outermost = []
    for span in sorted(ranges, key=lambda span: (span.start_ns, -span.end_ns)):
        if span.end_ns > ends.get(span.thread, NO_LAUNCH):
            outermost.append(span)
            ends[span.thread] = span.end_ns
    return outermost


def build_step_spans(anchors: Sequence[Range]) -> list[Range]:
    """Return the anchors as steps that last until the next one begins.

    An anchor inside another one is a part of it. If several begin at the same time, as on two threads, the longest is
    the step.
    """
    anchor_by_start = {anchor.start_ns: anchor for anchor in reversed(remove_nested_ranges(anchors))}
    steps: list[Range] = [StepSpan(*anchor_by_start[at_ns]) for at_ns in sorted(anchor_by_start)]
    ends = [next_step.start_ns for _, next_step in pairwise(steps)]
    return [*(step._replace(end_ns=end) for step, end in zip(steps, ends, strict=False)), *steps[-1:]]


def list_span_lengths(anchors: Sequence[Range], span: Span) -> list[int]:
    """Return the window length of each anchor in ns; with span period the last anchor has none."""
    return [a.end_ns - a.start_ns for a in anchors] if span is Span.RANGE else list_periods(anchors)


def list_periods(anchors: Sequence[Range]) -> list[int]:
    """Return the distance from each anchor's start to the next one's in ns; the last anchor has none."""
    return [b.start_ns - a.start_ns for a, b in pairwise(anchors)]


@dataclass(frozen=True, slots=True)
class RankSteps:
    """Holds the steps of a rank that have a window, on the host and on the GPU."""

    steps: Sequence[Range]  # on the host, by start
    gpu_spans: Sequence[Interval] = ()  # the (start, end) in which each step has the GPU
    missing_reason: str = ""  # why there are no steps, as the end of a sentence
    has_mixed_kinds: bool = False  # whether steps under one label are of several kinds that return without alternating

    @classmethod
    def restore(cls, step_spans: StepSpans, anchors: Sequence[Range], default_name: str = "") -> RankSteps:
        """Restore the steps of the whole run that a cut stores.

        A step is named after the anchor that begins with it, or ``default_name`` if there is none.
        """
        anchor_by_start = {anchor.start_ns: anchor for anchor in anchors}
        default_range = Range(0, 0, 0, default_name)
        steps = [
            StepSpan(start, end, *anchor_by_start.get(start, default_range)[2:]) for start, end in step_spans.host_spans
        ]
        return cls(steps, step_spans.gpu_spans)

    @property
    def step_spans(self) -> StepSpans:
        """The steps in the form in which a cut stores them."""
        return StepSpans([(step.start_ns, step.end_ns) for step in self.steps], self.gpu_spans)

    def measure_lengths_ns(self) -> dict[int, int]:
        """Return how long each whole step has the GPU in ns, by the time at which it begins on the host."""
        steps_on_gpu = zip(self.steps, self.gpu_spans, strict=True)
        lengths = {step.start_ns: end - start for step, (start, end) in steps_on_gpu}
        return dict(list(lengths.items())[: count_whole_steps(self.steps)])

    def find_gpu_span(self, start_ns: int) -> Interval | None:
        """Return the (start, end) in which the step that begins at a host time has the GPU; None if no step begins
        then.
        """
        index = bisect_left(self.steps, start_ns, key=lambda step: step.start_ns)
        return self.gpu_spans[index] if index < len(self.steps) and self.steps[index].start_ns == start_ns else None


SetupLabels = Mapping[int, Setup]
"""The setup label of each labelled process of one trace, by serialised process id."""

_GIVE_FILES_OF_ONE_RUN = "these are captures of one rank: give the files of one run"
_ONE_LABEL_PER_PROCESS = "a rank is one process: capture one run, in which each process pushes a label of its own"

_MAX_SHOWN_RANKS = 8


def read_setup_labels(trace: Trace, ranges: Mapping[int, Sequence[Range]], convention: Convention) -> SetupLabels:
    """Return the setup label of each process, from ``ranges``, else from the trace's own record of labels.

    Raises TraceError for a process with two different labels.
    """
    label_by_process: dict[int, Setup] = {}
    prefix = (convention.setup_pattern or "").partition("%")[0]
    for pid, process_ranges in sorted(ranges.items()):
        names = {r.name for r in process_ranges if r.name.startswith(prefix)}
        setups = {name: setup for name in sorted(names) if (setup := convention.parse_setup(name)) is not None}
        if len(setups) > 1:
            labels_text = ", ".join(f"'{sanitize_line(t)}'" for t in sorted(setups)[:3])
            raise TraceError(
                f"{trace.path}: process {ProcessId(0, pid).pid} has {len(setups)} setup labels ({labels_text}): "
                "one process is one rank and pushes one label"
            )
        for setup in setups.values():
            label_by_process[pid] = setup
    return label_by_process or trace.setups()


def find_ranks(
    traces: Sequence[Trace], labels: Sequence[SetupLabels], stored_numbers: Sequence[Mapping[Lane, int]]
) -> tuple[tuple[Rank, ...], tuple[Note, ...]]:
    """Find the ranks of a run, sorted by number, and notes on how they were identified.

    ``stored_numbers`` are the rank numbers that each trace stores itself, as a cut does.
    """
    if any(labels):
        return _find_labelled_ranks(traces, labels)
    lanes = [(number, trace.path, lane) for number, trace in enumerate(traces) for lane in trace.lanes()]
    return _number_unlabelled_ranks(
        lanes,
        {(trace, lane): n for trace, rank_numbers in enumerate(stored_numbers) for lane, n in rank_numbers.items()},
    )


def _find_labelled_ranks(
    traces: Sequence[Trace], labels: Sequence[SetupLabels]
) -> tuple[tuple[Rank, ...], tuple[Note, ...]]:
    """Find the ranks by the setup labels of their processes; every file must have one."""
    ranks: dict[int, Rank] = {}
    for number, (trace, trace_labels) in enumerate(zip(traces, labels, strict=True)):
        if not trace_labels:
            raise TraceError(f"{trace.path}: has no setup label, but other files of the run have one")
        for pid, setup in trace_labels.items():
            rank = Rank(setup.rank, ProcessId(number, pid), None, setup, trace.path)
            if (namesake := ranks.get(setup.rank)) is not None:
                conflict = (
                    f"rank {setup.rank} appears twice in this run ({namesake.trace}, process {namesake.pid}; "
                    f"{rank.trace}, process {rank.pid})"
                )
                if namesake.trace == rank.trace:  # both are in one file, so choosing files cannot help
                    raise TraceError(f"{conflict}: {_ONE_LABEL_PER_PROCESS}")
                raise SeveralCaptures(f"{conflict}: {_GIVE_FILES_OF_ONE_RUN}")
            ranks[setup.rank] = rank
    sorted_ranks = tuple(ranks[n] for n in sorted(ranks))
    _check_sizes(sorted_ranks)
    return sorted_ranks, ()


def _check_sizes(ranks: Sequence[Rank]) -> None:
    """Raise TraceError if two labels state different sizes of the mesh."""
    first = ranks[0].setup
    assert first is not None  # every rank here has a label
    for rank in ranks:
        if rank.setup is not None and dict(rank.setup.sizes) != dict(first.sizes):
            raise TraceError(
                f"setup labels conflict: '{sanitize_line(first.text)}' and '{sanitize_line(rank.setup.text)}' state "
                "other "
                "sizes: these are not files of one run"
            )


def count_absent_ranks(ranks: Sequence[Rank]) -> tuple[int, int, str]:
    """Return the number of ranks that no trace holds, the number that there should be, and the first absent numbers as
    text.

    The sizes in the setup labels give the number that there should be. Without sizes, the absent numbers are those
    missing below the highest, if there is more than one rank: a single one may be all that was recorded, such as rank 3
    of a job.
    """
    setup = ranks[0].setup if ranks else None
    if setup is None or (not setup.sizes and len(ranks) == 1):
        return 0, len(ranks), ""
    return _count_missing_numbers(ranks, prod(setup.sizes.values()) if setup.sizes else ranks[-1].number + 1)


def count_clocks(ranks: Sequence[Rank]) -> int:
    """Count the different clocks that the ranks' times are on."""
    return len({rank.process.clock for rank in ranks})


def _count_missing_numbers(ranks: Sequence[Rank], world_size: int) -> tuple[int, int, str]:
    present = {rank.number for rank in ranks if rank.number < world_size}
    absent = world_size - len(present)
    first_absent = islice((n for n in range(world_size) if n not in present), _MAX_SHOWN_RANKS)
    return absent, world_size, ", ".join(map(str, first_absent)) + (" …" if absent > _MAX_SHOWN_RANKS else "")


def _number_unlabelled_ranks(
    lanes: Sequence[tuple[int, Path, Lane]], stored_numbers: Mapping[tuple[int, Lane], int]
) -> tuple[tuple[Rank, ...], tuple[Note, ...]]:
    """Number the ranks without labels by file, process and device, unless their trace stores a number."""
    path_by_lane: dict[Lane, Path] = {}
    for _, path, lane in lanes:
        if lane in path_by_lane:
            raise SeveralCaptures(
                f"{path_by_lane[lane]} and {path} hold the same process {ProcessId(0, lane.global_pid).pid} "
                f"on device {lane.device}, and no setup label tells them apart: {_GIVE_FILES_OF_ONE_RUN}"
            )
        path_by_lane[lane] = path
    unsorted_ranks = (
        Rank(stored_numbers.get((trace, lane), n), ProcessId(trace, lane.global_pid), lane.device, None, path)
        for n, (trace, path, lane) in enumerate(lanes)
    )
    ranks = tuple(sorted(unsorted_ranks, key=lambda rank: rank.number))
    if not ranks:
        return ranks, ()
    notes = [Note("no setup label: ranks are numbered by (file, process, device)")]
    if max(Counter((rank.process.trace, rank.device) for rank in ranks).values()) > 1:
        notes.append(Note("several processes use the same device id: the order of ranks may swap between two runs"))
    return ranks, tuple(notes)
