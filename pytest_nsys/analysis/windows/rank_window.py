"""Which kernels are in one window of one rank, which of them communicate, and under which stage?

A kernel that communicates on a stream which also computes in the window is an in-order *barrier*: it is never exposed
and never overlapped. A *communication stream* has no compute kernel in the window. Compute is what runs on compute
streams. On a stream that keeps no order, communication is judged by time, as on a stream of its own.

A window without a kernel is explained in one line. If the GPU runs far behind the CPU, no kernel executes inside the
CPU times of its own range; if a slice was cut out of a trace, the launches are gone. So the line gives the lag, the
share of kernels without a launch row, and how many anchors hold kernels in each mode.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

from pytest_nsys.analysis.windows.rank_track import KernelContext, KernelContexts, RankTrack
from pytest_nsys.analysis.windows.window_selection import RUN, WindowSpec, marks_steps
from pytest_nsys.core.columns import (
    Column,
    Flags,
    Indices,
    count_numbers,
    fill_column,
    find_distinct_rows,
    find_nonzero,
    find_zeros,
    group_indices_by,
    narrow_column,
    subtract,
    sum_column,
    sum_values_by,
    take,
)
from pytest_nsys.core.conventions import (
    BUILT_IN_CONVENTIONS,
    COMPUTE_PURPOSE,
    MIXED_PURPOSE,
    UNKNOWN_PURPOSE,
    Convention,
    make_pattern_matcher,
)
from pytest_nsys.core.errors import suggest_word
from pytest_nsys.core.intervals import Intervals, find_hull
from pytest_nsys.core.model import Interval, KernelsMode, Range, Rank, Span, Stream, Window
from pytest_nsys.core.numbers import format_in_one_unit, format_percent_of
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.trace import Trace

C = TypeVar("C", "array[int]", bytearray)


class StreamUse(NamedTuple):
    """Describes what one stream did in a window. ``purpose`` is ``compute`` for a compute stream."""

    stream: Stream
    communication_kernels: int
    compute_kernels: int
    communication_ns: int
    compute_ns: int
    purpose: str


class RankWindow:
    """Holds the kernels of one rank that are in one window under the spec's kernels mode.

    In mode clipped their times are cut at the window's edges. ``positions`` are the indices of the kernels in
    ``track``. ``start_ns`` and ``end_ns`` bound the window in GPU time. They are the window's own times; with mode
    launched, the first start and the last end of its kernels; for a step (``is_gpu_step``), the time until the next
    step has the GPU. ``full_span_ns`` encloses both the kernels and that time.
    """

    def __init__(self, track: RankTrack, window: Window, spec: WindowSpec, positions: Indices) -> None:
        self.track, self.window, self.spec, self.positions = track, window, spec, positions
        self.rank = track.rank
        self._holds_whole_track = len(positions) == len(track.kernels)
        kernels = track.kernels if self._holds_whole_track else track.kernels.take(positions)
        is_clipped = spec.kernels is KernelsMode.CLIPPED and not spec.is_whole_run
        self.kernels = kernels.clip(window.start_ns, window.end_ns) if is_clipped else kernels
        self._has_track_kernels = self.kernels is track.kernels
        self.start_ns, self.end_ns = window.start_ns, window.end_ns
        self.is_gpu_step, self.full_span_ns = False, (self.start_ns, self.end_ns)
        # Kernels run after their launch: a window of launches gets GPU times, and steps leave no gap.
        if spec.is_by_launch and len(kernels):
            kernel_span_ns = min(kernels.start_ns), max(kernels.end_ns)
            gpu_interval = (
                None
                if window.index is None or track.steps_by_kind is None
                else track.steps_by_kind.find_gpu_span(window.start_ns)
            )
            self.start_ns, self.end_ns = gpu_interval or kernel_span_ns
            self.is_gpu_step, self.full_span_ns = (
                gpu_interval is not None,
                find_hull([kernel_span_ns, gpu_interval or kernel_span_ns]),
            )

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def anchors(self) -> Sequence[Range]:
        """The anchors of the rank that the window was picked from."""
        return self.track.anchors

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    @cached_property
    def gpu_window(self) -> RankWindow:
        """The window of all kernels that ran in its time, cut at its edges, whichever step launched them.

        It is the window itself unless that is a step of launches: otherwise its time is already that of its kernels.
        """
        if not self.is_gpu_step:
            return self
        spec = WindowSpec(f"{self.start_ns}:{self.end_ns}", kernels=KernelsMode.CLIPPED)
        window = Window(self.start_ns, self.end_ns, self.window.name)
        return RankWindow(self.track.gpu_track, window, spec, select_window_kernels(self.track.gpu_track, window, spec))

    def encode_names(self, name_kernel: Callable[[str, str], str]) -> tuple[Column, Sequence[str]]:
        """Return the names of the kernels as a number per kernel, and the sorted names that the numbers stand for.

        ``name_kernel`` makes a name from a kernel's short name and its demangled one, which may be empty.
        """
        kernels, names = self.kernels, self.kernels.names
        numbers, ids = find_distinct_rows(kernels.name, kernels.full_name)
        display_names = [name_kernel(names[short], names.get(full, "")) for short, full in ids]
        position_by_name = {name: position for position, name in enumerate(sorted({*display_names}))}
        return take(array("q", [position_by_name[name] for name in display_names]), numbers), [*position_by_name]

    def select_from_track(self, track_column: C) -> C:
        """Return the entries of a column of the track that belong to the kernels of the window."""
        return track_column if self._holds_whole_track else take(track_column, self.positions)

    @cached_property
    def communicates(self) -> Flags:
        """A flag per kernel of the window: 1 where it is communication."""
        return self.select_from_track(self.track.communicates)

    @cached_property
    def durations_ns(self) -> Column:
        """The length of each kernel in ns, inside the window."""
        return narrow_column(subtract(self.kernels.end_ns, self.kernels.start_ns))

    @cached_property
    def uncut_durations_ns(self) -> Column:
        """The length of each kernel in ns, including what the window cuts off."""
        return self.select_from_track(subtract(self.track.kernels.end_ns, self.track.kernels.start_ns))

    @cached_property
    def launch_ns(self) -> Column:
        """The start of the earliest launch row of each kernel of the window; NO_LAUNCH without one."""
        return self.select_from_track(self.track.launch_ns)

    @cached_property
    def totals_by_name(self) -> Mapping[tuple[int, int], tuple[int, int]]:
        """The (time in ns, number) of the kernels by (short name id, demangled name id)."""
        return sum_values_by(lambda *ids: ids, self.durations_ns, self.kernels.name, self.kernels.full_name)

    @property
    def full_names(self) -> frozenset[str]:
        """The demangled names of the kernels, and the short names of those without."""
        names = self.kernels.names
        return frozenset(names.get(full) or names[short] for short, full in self.totals_by_name)

    @cached_property
    def compute_streams(self) -> frozenset[int]:
        """Indices of the streams with at least one compute kernel in the window."""
        compute_kernel_counts = count_numbers(take(self.kernels.stream, self.compute), len(self.kernels.streams))
        return frozenset(stream for stream, kernels in enumerate(compute_kernel_counts) if kernels)

    @cached_property
    def all_communication(self) -> Column:
        """The communication kernels, barriers included, by index in the window."""
        return find_nonzero(self.communicates)

    @cached_property
    def _barrier_flags(self) -> Flags:
        """A flag per kernel of :attr:`all_communication`: 1 if it is a barrier, because its stream keeps order and
        computes, too.
        """
        # A stream that keeps no order proves nothing: its communication is judged by time.
        unordered_streams = self.track.unordered_streams
        is_ordered_compute_stream = bytearray(
            i in self.compute_streams and s not in unordered_streams for i, s in enumerate(self.kernels.streams)
        )
        return take(is_ordered_compute_stream, take(self.kernels.stream, self.all_communication))

    @cached_property
    def communication(self) -> Column:
        """The communication kernels on communication streams, by index in the window."""
        return take(self.all_communication, find_zeros(self._barrier_flags))

    @cached_property
    def barriers(self) -> Column:
        """The communication kernels on compute streams, by index in the window."""
        return take(self.all_communication, find_nonzero(self._barrier_flags))

    @property
    def can_hide_barriers(self) -> bool:
        """Whether compute may run during a barrier: only on another stream, because its own runs in order."""
        return bool(self.barriers) and len(self.compute_streams) > 1

    @cached_property
    def compute(self) -> Column:
        """The compute kernels, by index in the window."""
        return find_zeros(self.communicates)

    def take_starts_and_ends(self, indices: Column) -> tuple[Column, Column]:
        """Return the starts and the ends of the kernels at ``indices``, in ns."""
        return take(self.kernels.start_ns, indices), take(self.kernels.end_ns, indices)

    def iterate_intervals(self, indices: Column) -> Iterator[Interval]:
        """Iterate over the (start, end) in ns of the kernels at ``indices``."""
        return zip(*self.take_starts_and_ends(indices), strict=True)

    def merge_run_times(self, indices: Column) -> Intervals:
        """Merge the times of the kernels at ``indices`` into intervals in which any of them ran."""
        return self.kernels.merge_run_times(indices)

    @cached_property
    def busy_time(self) -> Intervals:
        """The intervals in which any kernel ran."""
        return Intervals(self.kernels.start_ns, self.kernels.end_ns)

    @cached_property
    def compute_time(self) -> Intervals:
        """The intervals in which compute ran."""
        return self.track.compute_time if self._has_track_kernels else self.merge_run_times(self.compute)

    @cached_property
    def communication_time(self) -> Intervals:
        """The intervals in which communication ran on communication streams."""
        return self.merge_run_times(self.communication)

    @cached_property
    def all_communication_time(self) -> Intervals:
        """The intervals in which communication ran, barriers included."""
        return (
            self.track.communication_time if self._has_track_kernels else self.merge_run_times(self.all_communication)
        )

    @cached_property
    def exposed_ns(self) -> Column:
        """The time in ns of each kernel during which no compute ran, for the kernels of ``communication``; 0 for any
        other kernel.
        """
        # Compute that another step launched also hides the communication of a step.
        compute_time = self.track.gpu_track.compute_time if self.is_gpu_step else self.compute_time
        hidden_ns = compute_time.measure_cover_per_span(*self.take_starts_and_ends(self.communication))
        exposed_ns = subtract(take(self.durations_ns, self.communication), hidden_ns)
        return narrow_column(fill_column(self.communication, exposed_ns, len(self), 0))

    @cached_property
    def compute_under_communication(self) -> Column:
        """The compute kernels during which communication ran anywhere in the run, by index in the window."""
        covered_ns = self.track.whole_track.communication_time.measure_cover_per_span(
            *self.take_starts_and_ends(self.compute)
        )
        return take(self.compute, find_nonzero(covered_ns))

    def get_context(self, kernel: int) -> KernelContext:
        """Return the (stage, purpose) of one kernel, by its index in the window."""
        return self._contexts.get_context(kernel)

    @cached_property
    def _contexts(self) -> KernelContexts:
        contexts = self.track.contexts
        return contexts._replace(codes=self.select_from_track(contexts.codes))

    def count_contexts(self, kernels: Column) -> dict[KernelContext, int]:
        """Count the kernels that have each (stage, purpose); ``kernels`` are communication."""
        codes, contexts, _ = self._contexts
        counted_contexts = zip(contexts, count_numbers(take(codes, kernels), len(contexts)), strict=True)
        return {context: number for context, number in counted_contexts if number}

    @cached_property
    def communication_by_stage(self) -> dict[str, Column]:
        """The kernels of ``communication`` by stage; the stages are sorted by name."""
        codes, contexts, _ = self._contexts
        return dict(sorted(group_indices_by(lambda code: contexts[code][0], codes, subset=self.communication).items()))

    @cached_property
    def communication_by_context(self) -> dict[tuple[str, str, str | None], Column]:
        """The communication kernels, barriers included, by (short name, stage, purpose), each group in order of
        start.
        """
        (codes, contexts, _), names = self._contexts, self.kernels.names
        columns = self.kernels.name, codes
        return group_indices_by(
            lambda name, code: (names[name], *contexts[code]), *columns, subset=self.all_communication
        )

    @property
    def stage_codes(self) -> tuple[Column, Sequence[str]]:
        """A number for each kernel, and the stage of each number; two numbers may have the same stage."""
        codes, contexts, _ = self._contexts
        return codes, [stage for stage, _ in contexts]

    @cached_property
    def kernels_by_stage(self) -> dict[str, Column]:
        """All kernels of the window by stage; the stages are sorted by name."""
        codes, stages = self.stage_codes
        return dict(sorted(group_indices_by(stages.__getitem__, codes).items()))

    @cached_property
    def kernels_by_stream(self) -> dict[Stream, Column]:
        """All kernels of the window by stream, sorted by (device, context, stream)."""
        return dict(sorted(group_indices_by(self.kernels.streams.__getitem__, self.kernels.stream).items()))

    @cached_property
    def stream_uses(self) -> list[StreamUse]:
        """What each stream did, in the order of :attr:`kernels_by_stream`."""
        return [self._build_stream_use(stream, indices) for stream, indices in self.kernels_by_stream.items()]

    def _build_stream_use(self, stream: Stream, indices: Column) -> StreamUse:
        communication = take(indices, find_nonzero(take(self.communicates, indices)))
        communication_ns = sum_column(take(self.durations_ns, communication))
        compute_count = len(indices) - len(communication)
        return StreamUse(
            stream=stream,
            communication_kernels=len(communication),
            compute_kernels=compute_count,
            communication_ns=communication_ns,
            compute_ns=sum_column(take(self.durations_ns, indices)) - communication_ns,
            purpose=COMPUTE_PURPOSE if compute_count else self._vote_on_purpose(communication),
        )

    def _vote_on_purpose(self, communication: Column) -> str:
        """Return the purpose that all kernels share; ``mixed`` if they disagree, or only some have one."""
        votes = {purpose or UNKNOWN_PURPOSE for _, purpose in self.count_contexts(communication)}
        return votes.pop() if len(votes) == 1 else MIXED_PURPOSE


def select_window_kernels(track: RankTrack, window: Window, spec: WindowSpec) -> Indices:
    """Select the kernels of a track that are in a window under the spec's kernels mode, by index in the track."""
    starts, ends = track.kernels.start_ns, track.kernels.end_ns
    start_ns, end_ns = window.start_ns, window.end_ns
    if spec.is_whole_run:
        return range(len(starts))
    # What begins together with the next window belongs to the next window.
    bisect_end = bisect_left if marks_steps(track.convention, spec) and window.index is not None else bisect_right
    if spec.kernels is KernelsMode.LAUNCHED:
        # A period is half open: a launch at the next anchor's start belongs to the next period.
        is_half_open = spec.span is Span.PERIOD and window.index is not None
        launch_order, launch_ns = track.launch_order, track.launch_ns
        first = bisect_left(launch_order, start_ns, key=launch_ns.__getitem__)
        after = (bisect_left if is_half_open else bisect_end)(launch_order, end_ns, key=launch_ns.__getitem__)
        return array("q", sorted(launch_order[first:after]))
    if spec.kernels is KernelsMode.CONTAINED:
        first, after = bisect_left(starts, start_ns), bisect_end(starts, end_ns)
        return array("q", [i for i in range(first, after) if ends[i] <= end_ns])
    # No kernel that reaches into the window starts earlier. A kernel without length counts if it starts inside.
    first, after = bisect_left(starts, start_ns - track.longest_kernel_ns), bisect_end(starts, end_ns)
    touching_kernels = (
        i
        for i in range(first, after)
        if (starts[i] < end_ns and ends[i] > start_ns) or (starts[i] == ends[i] and start_ns <= starts[i])
    )
    return array("q", touching_kernels)


MAX_SHOWN_RANGE_NAMES = 5
_DIGIT_RUN = re.compile(r"\d+")


def make_name_pattern(name: str) -> str:
    """Return a range name with each number replaced by the wildcard: an anchor pattern for a user to paste."""
    return _DIGIT_RUN.sub("%", name)


def format_frequent_ranges(names: Sequence[tuple[str, int]]) -> str:
    """Format the patterns of the most frequent range names with their counts; empty without names."""
    counts: Counter[str] = Counter()
    for name, count in names:
        counts[make_name_pattern(name)] += count
    # Ranges of operators are most frequent but never steps: they are shown only if there are no others.
    pattern_counts = {name: n for name, n in counts.items() if not name.startswith(("aten::", "nccl"))} or counts
    most_common = sorted(pattern_counts.items(), key=lambda item: (-item[1], item[0]))[: 2 * MAX_SHOWN_RANGE_NAMES]
    return ", ".join(f"'{sanitize_line(name, 60)}' ({count})" for name, count in most_common)


def explain_no_anchor(trace: Trace, convention: Convention, rank: Rank, spec: WindowSpec) -> str:
    """Explain that no range matches the anchor, and show the most frequent range names instead."""
    anchor = spec.anchor or convention.anchor
    names = trace.common_range_names(rank.process.global_pid)
    frequent_ranges = format_frequent_ranges(names)
    problem = (
        f"no range matches the anchor '{sanitize_line(str(anchor))}'" if anchor else "the convention names no anchor"
    )
    problem += suggest_word(spec.anchor or "", convention.kind_names)
    if not frequent_ranges:
        observation = f"the trace holds no ranges at all: {trace.facts().to_see_ranges}"
    else:
        observation = f"most frequent ranges: {frequent_ranges}"
    built_in = _find_matching_convention([name for name, _ in names])
    if built_in is not None and built_in.anchor != convention.anchor:
        remedy = f"convention: {built_in.name}, which has an anchor for it (in a command --convention {built_in.name})"
    else:
        remedy = "convention: {anchor: …} (in a command --anchor; `pytest-nsys TRACE` tells what repeats)"
    remedy += f", or window: {RUN} (`pytest-nsys TRACE --window {RUN}`)"
    return f"{rank.trace}: rank {rank.number} (process {rank.pid}): {problem}; {observation}. Set {remedy}"


def _find_matching_convention(names: Sequence[str]) -> Convention | None:
    """Return the first built-in convention whose anchor matches one of these range names; None without one."""
    anchored_conventions = (
        (convention, make_pattern_matcher(convention.anchor))
        for convention in BUILT_IN_CONVENTIONS.values()
        if convention.anchor
    )
    return next((convention for convention, is_anchor in anchored_conventions if any(map(is_anchor, names))), None)


def explain_empty_windows(windows: Sequence[RankWindow], whole_track: RankTrack | None) -> str:
    """Explain which windows of a rank hold no kernel, how far the GPU is behind, and what to do.

    ``whole_track`` is everything that the rank ran; None if the window is the whole run.
    """
    rank, spec = windows[0].rank, windows[0].spec
    if whole_track is not None and not len(whole_track.kernels):
        label = f" with the setup label '{sanitize_line(rank.setup.text)}'" if rank.setup is not None else ""
        return f"{rank.trace}: no kernel belongs to process {rank.pid}{label}: ids do not join, or it used no GPU"
    empty_windows = [window.window for window in windows if not len(window)]
    window_text = f"window '{sanitize_line(empty_windows[0].name, 80)}'"
    if empty_windows[0].index is not None:
        window_text += f" (index {empty_windows[0].index} of {empty_windows[0].count})"
    if len(windows) > 1:
        window_text = f"{len(empty_windows)} of {len(windows)} windows, the first {window_text[len('window ') :]},"
    sentences = [
        f"{rank.trace}: rank {rank.number} (process {rank.pid}): {window_text} holds no kernel, kernels {spec.kernels}"
    ]
    if whole_track is not None:
        sentences.append(_describe_lag(whole_track))
        if anchors := windows[0].anchors:
            counts_text = ", ".join(f"{mode} {n}" for mode, n in _count_filled_ranges(whole_track, anchors).items())
            sentences.append(f"anchors that hold kernels: {counts_text} of {len(anchors)}")
        sentences.append(f"`pytest-nsys TRACE` tells what repeats; window {RUN} measures the whole run")
    return "; ".join(sentences)


def _describe_lag(track: RankTrack) -> str:
    lags, coverage = track.lags_ns, track.launch_coverage
    coverage_text = (
        f"{format_percent_of(coverage.unlaunched_count, coverage.kernel_count)} of {coverage.kernel_count} kernels "
        "have no launch row"
    )
    if not lags:
        return coverage_text
    median, longest = format_in_one_unit([lags[len(lags) // 2], lags[-1]])
    return f"the GPU is {median} behind the CPU (median; at most {longest}; {coverage_text})"


def _count_filled_ranges(track: RankTrack, ranges: Sequence[Range]) -> dict[KernelsMode, int]:
    """Count how many of the ranges hold a kernel, by kernels mode."""
    starts, ends = track.kernels.start_ns, track.kernels.end_ns
    busy, launches = Intervals(starts, ends), take(track.launch_ns, track.launch_order)
    filled_counts = dict.fromkeys(KernelsMode, 0)
    for r in ranges:
        started_inside = range(bisect_left(starts, r.start_ns), bisect_right(starts, r.end_ns))
        filled_counts[KernelsMode.CONTAINED] += any(ends[i] <= r.end_ns for i in started_inside)
        filled_counts[KernelsMode.CLIPPED] += busy.measure_covered_ns(r.start_ns, r.end_ns) > 0
        filled_counts[KernelsMode.LAUNCHED] += bisect_left(launches, r.start_ns) < bisect_right(launches, r.end_ns)
    return filled_counts
