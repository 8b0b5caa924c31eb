"""Which ranges of a trace could be the anchors of its windows, and which kernels would then be in a window?

This is decided from names and times, for traces whose kernels are too few, or too different, to find steps in them. A
good anchor repeats regularly, at least five times, on one thread and never inside itself. It covers most of the
kernels' time, and is not named after an operator or a part of the model. Of several good ones, the longest unit of work
is taken. A range whose name says step can anchor a trace of a single step, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from itertools import islice, pairwise
from typing import NamedTuple

from pytest_nsys.analysis.fact_bounds import FEW_ANCHORS
from pytest_nsys.analysis.steps.model_parts import ModuleCalls
from pytest_nsys.analysis.windows.kernel_anchors import MAX_UNLAUNCHED_SHARE, KernelLaunches
from pytest_nsys.analysis.windows.rank_track import RankTrack, fill_missing_launches
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import MEDIAN, STEADY, WindowSpec, remove_nested_ranges
from pytest_nsys.core.arrays import NDArray, numpy
from pytest_nsys.core.columns import (
    Vector,
    as_vector,
    find_nonzero,
    find_zeros,
    group_indices_by,
    list_distinct,
    mark_equal,
    sort_indices,
    subtract,
    sum_column,
    take,
)
from pytest_nsys.core.conventions import make_pattern_matcher
from pytest_nsys.core.exact import distance, median
from pytest_nsys.core.memoize import group_by_key, memoize_method
from pytest_nsys.core.model import OPEN_END_NS, KernelsMode, ProcessId, Range, Span, Value
from pytest_nsys.core.numbers import format_percent, format_value
from pytest_nsys.core.tables import Ranges

Flags = NDArray[numpy.bool_]

MIN_ANCHORS = 3
"""The minimum number of anchors: the middle one needs a successor for its period."""

MAX_EMPTY_SHARE = Fraction(1, 5)
"""The maximum share of a range's repetitions without a kernel, such as occasional steps without work."""

HALF = Fraction(1, 2)

ENCLOSING_BONUS = Fraction(3, 10)
"""The bonus for ranges that enclose their work, as a share of the kernels' time."""

_NUMBER = re.compile(r"\d+")
_OPERATOR_NAME = re.compile(
    r"(?:aten|autograd|c10d?|fbgemm|flash_attn|gloo|inductor|nccl|prims?|profiler|torch[a-z._]*|triton|xformers)::|nccl"
    r"|.*\bseq = |.*Backward\d*(?:$|,)|<(?:forward|backward) op>|(?:detach_?|record_param_comms)\b|_[a-z]"
    r"|PjitFunction\("  # JAX's dispatch of a compiled function nests in itself; PJRT's range marks the run
)
"""Matches names that libraries give to their own operators: they come with every model and say nothing about the step.
"""

_PART_NAME = re.compile(r"::|(?i:layer|block|module|attention|attn|mlp|expert|moe|norm|micro.?batch)")
"""Matches names of which one step has several: functions and parts of a model."""

_STEP_NAME = re.compile(r"(?i)(?:.*[\W_\d])?(?:step|iter|iteration)[\W_\d]*")
"""Matches the names that people give to a step, such as ``train_step`` and ``Iteration 7``."""


MAX_CANDIDATES = 5
"""The maximum number of candidates that are listed."""


class ClosedRanges:
    """Holds the closed ranges of a run by (trace, process), sorted by start."""

    def __init__(self, ranges_by_process: Mapping[tuple[int, int], Ranges]) -> None:
        self.ranges_by_process = ranges_by_process
        all_ranges = ranges_by_process.values()
        self.names = frozenset(ranges.names[number] for ranges in all_ranges for number in list_distinct(ranges.name))

    @cached_property
    def pattern_by_name(self) -> Mapping[str, str]:
        """The pattern of each range name, without the names of operators.

        Numbers that differ between names of one shape become the wildcard.
        """
        pattern_by_name: dict[str, str] = {}
        shaped_names = ((_NUMBER.sub("%", name), name) for name in sorted(self.names) if not _OPERATOR_NAME.match(name))
        for names in group_by_key(shaped_names).values():
            numbers = [_NUMBER.findall(name) for name in names]
            text_parts = _NUMBER.split(names[0])
            kept_numbers = [values[0] if len(set(values)) == 1 else "%" for values in zip(*numbers, strict=True)]
            if len(names) == 1 and kept_numbers and _STEP_NAME.fullmatch(names[0]):
                kept_numbers[-1] = "%"  # the next capture is of another step
            pattern = "".join(text + number for text, number in zip(text_parts, [*kept_numbers, ""], strict=True))
            if re.search(r"[^\W\d_]", pattern):
                pattern_by_name |= dict.fromkeys(names, _make_writable(pattern))
        return pattern_by_name

    @memoize_method
    def matches_one_shape(self, pattern: str) -> bool:
        """Return whether all ranges that a pattern matches have names of one shape, that is, equal but for their
        numbers.
        """
        return all(
            self.pattern_by_name.get(name) == pattern for name in filter(make_pattern_matcher(pattern), self.names)
        )


class RankRanges:
    """Holds the closed ranges of a rank's process, its module calls, and the time of the rank's kernels by launch.

    A kernel without a known launch counts at its start. ``read_module_calls`` gives the calls that the profiler
    recorded as such.
    """

    def __init__(
        self,
        closed_ranges: ClosedRanges,
        ranges: Ranges,
        track: RankTrack | KernelLaunches,
        read_module_calls: Callable[[], Iterable[Range]] = tuple,
    ) -> None:
        self.closed_ranges, self.ranges, self.track = closed_ranges, ranges, track
        self._read_recorded_calls = read_module_calls
        kernels, launch_times_ns = track.kernels, fill_missing_launches(track.launch_ns, track.kernels.start_ns)
        by_launch = sort_indices(launch_times_ns)
        self.launched_ns = as_vector(take(launch_times_ns, by_launch))
        lengths = as_vector(take(subtract(kernels.end_ns, kernels.start_ns), by_launch))
        self._time_before_ns = numpy.concatenate([[0], numpy.cumsum(lengths)])

    @cached_property
    def module_calls(self) -> ModuleCalls:
        """The module calls: the recorded ones, and the ranges that are calls of modules."""
        return ModuleCalls(self._read_recorded_calls(), self.ranges)

    @cached_property
    def ranges_by_pattern(self) -> Mapping[str, Ranges]:
        """The ranges of each pattern."""
        patterns = self.closed_ranges.pattern_by_name
        pattern_by_code = [patterns.get(name, "") for name in self.ranges.names]
        indices_by_pattern = group_indices_by(pattern_by_code.__getitem__, self.ranges.name)
        return {pattern: self.ranges.take(indices) for pattern, indices in indices_by_pattern.items() if pattern}

    def select_by_name(self, matches: Callable[[str], object]) -> Ranges:
        """Return the ranges whose name matches."""
        flags = bytearray(bool(matches(name)) for name in self.ranges.names)
        return self.ranges.take(find_nonzero(take(flags, self.ranges.name)))

    def sum_kernel_time_ns(self, starts_ns: Vector, ends_ns: Vector) -> Vector:
        """Sum the time in ns of the kernels that were launched in each span, both ends included."""
        stops = self.launched_ns.searchsorted(ends_ns, "right")
        times_ns: Vector = self._time_before_ns[stops] - self._time_before_ns[self.launched_ns.searchsorted(starts_ns)]
        return times_ns

    def build_candidate(self, pattern: str, ranges: Ranges, min_count: int = MIN_ANCHORS) -> AnchorCandidate | None:
        """Build the candidate for the ranges of one pattern; None if they are too few, on several threads, or overlap.

        A range inside another range of the pattern does not count.
        """
        starts, ends = _take_single_thread(ranges)
        count = len(starts)
        is_single_step = count == 1 and _STEP_NAME.fullmatch(ranges[0].name) is not None
        if (count < min_count and not is_single_step) or (starts[1:] < ends[:-1]).any():
            return None
        distances_ns: list[int] = (numpy.diff(starts) if count > 1 else ends - starts).tolist()
        period_ns = median(distances_ns)
        last_ns = max(int(ends[-1]), int(starts[-1]) + int(period_ns))
        has_work = self._flag_working(starts, last_ns)
        total_ns = int(self._time_before_ns[-1]) or 1
        return AnchorCandidate(
            pattern=pattern,
            count=count,
            working_count=int(has_work.sum()) if is_mostly_working(has_work) else count,
            length_ns=median((ends - starts)[has_work if has_work.any() else slice(None)].tolist()),
            period_ns=period_ns,
            period_spread=Fraction(median([distance(distance_ns, period_ns) for distance_ns in distances_ns]))
            / Fraction(period_ns or 1),
            inside_share=Fraction(int(self.sum_kernel_time_ns(starts, ends).sum()), total_ns),
            covered_share=Fraction(int(self.sum_kernel_time_ns(starts[:1], numpy.array([last_ns])).sum()), total_ns),
        )

    def _flag_working(self, starts_ns: Vector, last_ns: int) -> Flags:
        """Return for each start whether a kernel is launched before the next one; the last period ends at
        ``last_ns``.
        """
        return self.sum_kernel_time_ns(starts_ns, numpy.append(starts_ns[1:] - 1, last_ns)) > 0

    def find_pattern_once_in_each(self, starts_ns: Vector, ends_ns: Vector) -> str | None:
        """Return the pattern whose ranges are on one thread and start exactly once in each span; None if there is none.

        Of several such patterns the one with most time is returned. Ranges inside others of the pattern do not count,
        nor do a few without a kernel, which are steps without work. A range that holds a whole step starts before its
        first kernel, so the last span may have none.
        """
        times: dict[str, int] = {}
        for pattern, ranges in self.ranges_by_pattern.items():
            all_starts_ns = as_vector(ranges.start_ns)
            if (all_starts_ns.searchsorted(ends_ns) == all_starts_ns.searchsorted(starts_ns))[:-1].any():
                continue
            range_starts_ns, range_ends_ns = _take_single_thread(ranges)
            if not len(range_starts_ns):
                continue
            has_work = self._flag_working(range_starts_ns, int(self.launched_ns[-1]))
            step_starts_ns = range_starts_ns[has_work] if is_mostly_working(has_work) else range_starts_ns
            counts = step_starts_ns.searchsorted(ends_ns) - step_starts_ns.searchsorted(starts_ns)
            if (counts[:-1] == 1).all() and counts[-1] <= 1:
                times[pattern] = int((range_ends_ns - range_starts_ns).sum())
        longest_first = sorted(times, key=lambda pattern: (times[pattern], pattern), reverse=True)
        return next(filter(self.closed_ranges.matches_one_shape, longest_first), None)


def is_mostly_working(has_work: Flags) -> bool:
    """Return whether so few repetitions of a range lack a kernel that they can be steps without work."""
    return len(has_work) - int(has_work.sum()) <= MAX_EMPTY_SHARE * len(has_work)


def _take_single_thread(ranges: Ranges) -> Vector:
    """Return the (starts, ends) of some ranges, without ranges inside others of them; empty if they are on several
    threads.
    """
    outermost = remove_nested_ranges(ranges) if len(list_distinct(ranges.thread)) == 1 else []
    starts_and_ends: Vector = numpy.array([span[:2] for span in outermost], numpy.int64).reshape(-1, 2).T
    return starts_and_ends


@memoize_method
def read_closed_ranges(run: Run) -> ClosedRanges:
    """Read the closed ranges of a run, in one pass over each trace."""
    return ClosedRanges(
        {
            (trace_index, pid): ranges.take(find_zeros(mark_equal(ranges.end_ns, OPEN_END_NS)))
            for trace_index, ranges_by_process in enumerate(run.read_matching_ranges_by_trace(("%",)))
            for pid, ranges in sorted(ranges_by_process.items())
        }
    )


@memoize_method
def read_ranges_by_rank(run: Run) -> Mapping[int, RankRanges]:
    """Read the closed ranges of each rank that has kernels, all of which are read too."""
    closed_ranges, rank_ranges = read_closed_ranges(run), {}
    for number, track in run.load_whole_run().tracks.items():
        if len(track.kernels):
            process = track.rank.process
            ranges = closed_ranges.ranges_by_process.get((process.trace, process.global_pid)) or Ranges.from_ranges(())
            rank_ranges[number] = RankRanges(closed_ranges, ranges, track, partial(_read_module_calls, run, process))
    return rank_ranges


def _read_module_calls(run: Run, process: ProcessId) -> Iterable[Range]:
    return run.traces[process.trace].module_calls().get(process.global_pid, ())


@dataclass(frozen=True, slots=True)
class AnchorCandidate:
    """Describes a pattern of range names as a possible anchor; each figure is that of the worst rank."""

    pattern: str
    count: int  # on the rank that has fewest
    working_count: int  # ranges with a launch before the next range; all if too many have none
    length_ns: Value  # median
    period_ns: Value  # median
    period_spread: Fraction  # median deviation of a period from the median period, as a share of it
    inside_share: Fraction  # share of the kernels' time that is launched inside the ranges
    covered_share: Fraction  # share of the kernels' time from the first range to the last

    def __str__(self) -> str:
        if self.is_single:
            frequency = f"once, {format_value(self.length_ns)}"
        else:
            period = f"{format_value(self.period_ns)} (within {format_share(self.period_spread)})"
            frequency = f"{self.count} times a rank, {format_value(self.length_ns)} every {period}"
        return f"{frequency}, {format_share(self.covered_share)} of the kernels' time"

    @property
    def span(self) -> Span:
        """The span that fits: ``period`` if the ranges mark a beginning and enclose little."""
        # Half of the covered kernels' time, or nine tenths of the period: then the ranges hold their work.
        encloses_work = self.inside_share >= HALF * self.covered_share or 10 * self.length_ns >= 9 * self.period_ns
        return Span.RANGE if encloses_work else Span.PERIOD

    @property
    def is_reliable(self) -> bool:
        """Whether the candidate repeats often and regularly enough, and covers enough, to be chosen without asking.

        A single range whose name says step is reliable, too.
        """
        return (self.is_single or self.count >= FEW_ANCHORS) and self.is_usable

    @property
    def is_single(self) -> bool:
        """Whether the trace holds only one range of the pattern, and its name says step."""
        return self.count == 1

    @property
    def is_usable(self) -> bool:
        """Whether the candidate repeats regularly enough and covers enough, however few its ranges are."""
        return self.covered_share >= HALF and self.period_spread <= HALF

    def is_similar(self, other_candidate: AnchorCandidate) -> bool:
        """Return whether nothing decides which of two candidates is the unit of work.

        Such candidates are equally good, frequent and long, and do not enclose one another: of nested ranges the outer
        one is the unit.
        """
        longest = max(self.length_ns, other_candidate.length_ns)
        is_as_good = (self.is_reliable, self.is_usable, self.working_count) == (
            other_candidate.is_reliable,
            other_candidate.is_usable,
            other_candidate.working_count,
        )
        return (
            is_as_good
            and abs(self._score - other_candidate._score) <= 1  # half a step at an end of the trace is no reason
            and 10 * distance(self.length_ns, other_candidate.length_ns) <= longest
            and self.inside_share + other_candidate.inside_share <= 1
        )

    @property
    def sort_key(self) -> tuple[object, ...]:
        """The key that sorts the best candidate first: by coverage, enclosure and regularity in tenths, then by
        length.
        """
        return (
            not self.is_reliable,
            not self.is_usable,
            -self._score,
            self.working_count,
            -self.length_ns,
            self.pattern,
        )

    @property
    def _score(self) -> int:
        bonus = ENCLOSING_BONUS if self.span is Span.RANGE else 0
        return round(10 * (self.covered_share * (1 - min(self.period_spread, Fraction(1))) + bonus))


def list_anchor_candidates(run: Run, is_excluded: Callable[[str], object] = lambda _: False) -> list[AnchorCandidate]:
    """List the ranges that could anchor a run, the best first.

    ``run`` is under a convention without anchor; all of its kernels are read. ``is_excluded`` says which names never
    anchor, such as setup labels.
    """
    closed_ranges, ranks = read_closed_ranges(run), read_ranges_by_rank(run).values()
    patterns = {
        pattern
        for name, pattern in closed_ranges.pattern_by_name.items()
        if not _is_model_part(name) and not is_excluded(name)
    }
    common_patterns = patterns.intersection(*(ranges.ranges_by_pattern for ranges in ranks)) if ranks else ()
    candidates = (
        _merge_ranks([ranges.build_candidate(pattern, ranges.ranges_by_pattern[pattern]) for ranges in ranks])
        for pattern in common_patterns
        if not any(_has_returning_name(ranges.ranges_by_pattern[pattern]) for ranges in ranks)
    )
    best_first = sorted(
        (candidate for candidate in candidates if candidate is not None), key=lambda candidate: candidate.sort_key
    )
    return [
        *islice(
            (candidate for candidate in best_first if closed_ranges.matches_one_shape(candidate.pattern)),
            MAX_CANDIDATES,
        )
    ]


def build_anchor_candidate(run: Run, pattern: str) -> AnchorCandidate | None:
    """Build the candidate for one pattern; None if its ranges cannot be anchors.

    Two ranges suffice if they enclose their work.
    """
    matches = make_pattern_matcher(pattern)
    candidate = _merge_ranks(
        [
            ranges.build_candidate(pattern, ranges.select_by_name(matches), MIN_ANCHORS - 1)
            for ranges in read_ranges_by_rank(run).values()
        ]
    )
    return None if candidate is None or (candidate.count < MIN_ANCHORS and candidate.span is Span.PERIOD) else candidate


def format_share(value: Fraction) -> str:
    """Format a fraction in whole percent."""
    return format_percent(Fraction(round(100 * value), 100))


def _is_model_part(name: str) -> bool:
    """Return whether the name is that of a part of a model; a name that says step is not."""
    return bool(_PART_NAME.search(name)) and "step" not in name.lower()


def _make_writable(pattern: str) -> str:
    """Return the pattern with the wildcard in place of characters that a text file should not hold or a YAML reader
    would strip.
    """
    printable_text = "".join(c if c.isprintable() else "%" for c in pattern)
    stripped = printable_text.strip()
    leading_space, trailing_space = (
        printable_text[: len(printable_text) - len(printable_text.lstrip())],
        printable_text[len(printable_text.rstrip()) :],
    )
    return ("%" if leading_space else "") + stripped + ("%" if trailing_space else "")


def _has_returning_name(anchors: Sequence[Range]) -> bool:
    """Return whether a name appears again after another one, as the numbers of parts do that start again in each
    step.
    """
    changed_names = [b.name for a, b in pairwise(anchors) if a.name != b.name]
    return len({anchors[0].name, *changed_names}) <= len(changed_names)


def _merge_ranks(candidates: Sequence[AnchorCandidate | None]) -> AnchorCandidate | None:
    """Merge the candidates of all ranks into one; None where a rank has none."""
    found_candidates = [candidate for candidate in candidates if candidate is not None]
    if not found_candidates or len(found_candidates) < len(candidates):
        return None
    return AnchorCandidate(
        pattern=found_candidates[0].pattern,
        count=min(candidate.count for candidate in found_candidates),
        working_count=min(candidate.working_count for candidate in found_candidates),
        length_ns=median([candidate.length_ns for candidate in found_candidates]),
        period_ns=median([candidate.period_ns for candidate in found_candidates]),
        period_spread=max(candidate.period_spread for candidate in found_candidates),
        inside_share=min(candidate.inside_share for candidate in found_candidates),
        covered_share=min(candidate.covered_share for candidate in found_candidates),
    )


class WindowContents(NamedTuple):
    """Holds the number and the total time of the kernels in the median windows under one mode, on the rank that has
    least.
    """

    kernel_count: int
    time_ns: int  # Σ of the kernels' lengths


class MedianWindowContents:
    """Measures what the median windows of a run hold under each kernels mode, and how far the GPU is behind.

    If the middle window launches nothing, as a step without work does, all windows of the middle half count.
    """

    def __init__(self, run: Run, span: Span, kind: str | None = None) -> None:
        self._run = run
        specs = [WindowSpec(window, span, KernelsMode.LAUNCHED, kind) for window in (MEDIAN, STEADY)]
        self._spec = next((spec for spec in specs if self._count_contents(spec).kernel_count), specs[0])

    @property
    def windows_text(self) -> str:
        """The windows in which kernels were counted, as text."""
        return "median window" if self._spec.window == MEDIAN else "middle half of the windows"

    def __getitem__(self, mode: KernelsMode) -> WindowContents:
        """Return what the windows hold under a mode."""
        return self._count_contents(replace(self._spec, kernels=mode))

    @memoize_method
    def _count_contents(self, spec: WindowSpec) -> WindowContents:
        windows_by_rank = [*self._run.load_windows(spec).windows_by_rank.values()]
        if len(windows_by_rank) < len(self._run.ranks) or not windows_by_rank or not all(windows_by_rank):
            return WindowContents(0, 0)
        times_ns = [sum(sum_column(window.durations_ns) for window in windows) for windows in windows_by_rank]
        return WindowContents(min(sum(map(len, windows)) for windows in windows_by_rank), min(times_ns))

    @cached_property
    def _tracks_around_windows(self) -> Sequence[RankTrack]:
        """The tracks of the ranks around these windows: by launch, or by time if nothing was launched."""
        for mode in (KernelsMode.LAUNCHED, KernelsMode.CLIPPED):
            tracks = [*self._run.load_windows(replace(self._spec, kernels=mode)).tracks.values()]
            if any(track.lags_ns for track in tracks):
                break
        return tracks

    @property
    def lag_ns(self) -> Value:
        """The median time in ns by which the GPU runs behind the CPU, of the worst rank."""
        return max((median(track.lags_ns) for track in self._tracks_around_windows if track.lags_ns), default=0)

    @property
    def share_without_launch_record(self) -> Fraction:
        """The share of the kernels that have no launch row, of the worst rank."""
        coverages = (track.launch_coverage for track in self._tracks_around_windows)
        return max(
            (Fraction(coverage.unlaunched_count, coverage.kernel_count or 1) for coverage in coverages),
            default=Fraction(0),
        )

    @property
    def best_mode(self) -> KernelsMode | None:
        """The mode under which the median windows hold the kernels that belong to them; None if they hold none."""
        contained, launched = self[KernelsMode.CONTAINED], self[KernelsMode.LAUNCHED]
        if contained.kernel_count and 2 * contained.time_ns >= launched.time_ns:
            return KernelsMode.CONTAINED
        if launched.kernel_count and self.share_without_launch_record <= MAX_UNLAUNCHED_SHARE:
            return KernelsMode.LAUNCHED
        return next((mode for mode in (KernelsMode.CLIPPED, KernelsMode.CONTAINED) if self[mode].kernel_count), None)
