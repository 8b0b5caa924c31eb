"""Which ranges of a trace could anchor its windows, and which kernels would then be in one? Read off names and times.

Asked where the kernels are too few, or too unlike, for steps to be found in them. A good anchor repeats regularly, at
least five times, on one thread and never inside itself; it covers most of the kernels' time; and it is no operator's
name, nor that of a part of the model. Of several that are alike good the longest unit of work is taken. One that is
called a step anchors a trace of one step, too.
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
from pytest_nsys.analysis.windows.kernel_anchors import MOST_UNLAUNCHED, LaunchedKernels
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.spans import MEDIAN, STEADY, WindowSpec, without_nested
from pytest_nsys.analysis.windows.tracks import RankTrack, or_start
from pytest_nsys.core.arrays import NDArray, numpy
from pytest_nsys.core.columns import (
    Vector,
    as_vector,
    equal,
    members_by,
    minus,
    order,
    take,
    total,
    values,
    where,
    where_not,
)
from pytest_nsys.core.conventions import like
from pytest_nsys.core.exact import distance, median
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.model import OPEN_END_NS, KernelsMode, ProcessId, Range, Span, Value
from pytest_nsys.core.numbers import format_value, percent
from pytest_nsys.core.tables import Ranges

Flags = NDArray[numpy.bool_]

FEWEST = 3
"""Anchors without which nothing repeats: the period of the middle one needs a successor."""

MOST_EMPTY = Fraction(1, 5)
"""Of the repetitions of a range: where more are without a kernel, it is no step that now and then has no work."""

HALF = Fraction(1, 2)

ENCLOSES = Fraction(3, 10)
"""What it is worth that the ranges enclose their work, beside a share of the kernels' time."""

_NUMBER = re.compile(r"\d+")
_OPERATOR = re.compile(
    r"(?:aten|autograd|c10d?|fbgemm|flash_attn|gloo|inductor|nccl|prims?|profiler|torch[a-z._]*|triton|xformers)::|nccl"
    r"|.*\bseq = |.*Backward\d*(?:$|,)|<(?:forward|backward) op>|(?:detach_?|record_param_comms)\b|_[a-z]"
    r"|PjitFunction\("  # JAX's dispatch of a compiled function: it stands inside itself, and PJRT's range is of the run
)
"""Names that libraries give to their own operators: they come with every model and say nothing of the step."""

_PART = re.compile(r"::|(?i:layer|block|module|attention|attn|mlp|expert|moe|norm|micro.?batch)")
"""Names of what a step has several of: of functions, and of parts of a model."""

_STEP = re.compile(r"(?i)(?:.*[\W_\d])?(?:step|iter|iteration)[\W_\d]*")
"""Names by which people mark a step, as ``train_step`` and ``Iteration 7``."""


SHOWN = 5
"""Of the candidates, so many are told."""


class ClosedRanges:
    """The closed ranges of a run by (trace, process), ordered by start."""

    def __init__(self, by_process: Mapping[tuple[int, int], Ranges]) -> None:
        self.by_process = by_process
        every = by_process.values()
        self.names = frozenset(own.names[number] for own in every for number in values(own.name))

    @cached_property
    def patterns(self) -> Mapping[str, str]:
        """The pattern of each name that is no operator's: numbers that differ between names of one shape become the
        wildcard.
        """
        found: dict[str, str] = {}
        each = ((_NUMBER.sub("%", name), name) for name in sorted(self.names) if not _OPERATOR.match(name))
        for own in grouped(each).values():
            numbers = [_NUMBER.findall(name) for name in own]
            parts = _NUMBER.split(own[0])
            fixed = [each[0] if len(set(each)) == 1 else "%" for each in zip(*numbers, strict=True)]
            if len(own) == 1 and fixed and _STEP.fullmatch(own[0]):
                fixed[-1] = "%"  # the next capture is of another step
            pattern = "".join(part + number for part, number in zip(parts, [*fixed, ""], strict=True))
            if re.search(r"[^\W\d_]", pattern):
                found |= dict.fromkeys(own, _writable(pattern))
        return found

    @kept
    def is_of_one_shape(self, pattern: str) -> bool:
        """Return whether the pattern of some names matches no range of another shape."""
        return all(self.patterns.get(name) == pattern for name in filter(like(pattern), self.names))


class RankRanges:
    """The closed ranges of a rank's process, the calls of modules among them and as ``recorded``, and the time of the
    rank's kernels by when they were launched; by when they started, where no launch is known.
    """

    def __init__(
        self,
        closed: ClosedRanges,
        ranges: Ranges,
        track: RankTrack | LaunchedKernels,
        recorded: Callable[[], Iterable[Range]] = tuple,
    ) -> None:
        self.closed, self.ranges, self.track = closed, ranges, track
        self._recorded = recorded
        kernels, moments = track.kernels, or_start(track.launch_ns, track.kernels.start_ns)
        by_launch = order(moments)
        self.launched_ns = as_vector(take(moments, by_launch))
        lengths = as_vector(take(minus(kernels.end_ns, kernels.start_ns), by_launch))
        self._time_before = numpy.concatenate([[0], numpy.cumsum(lengths)])

    @cached_property
    def modules(self) -> ModuleCalls:
        return ModuleCalls(self._recorded(), self.ranges)

    @cached_property
    def by_pattern(self) -> Mapping[str, Ranges]:
        """The ranges of each pattern."""
        patterns = self.closed.patterns
        each = [patterns.get(name, "") for name in self.ranges.names]
        rows = members_by(each.__getitem__, self.ranges.name)
        return {pattern: self.ranges.take(own) for pattern, own in rows.items() if pattern}

    def named(self, fits: Callable[[str], object]) -> Ranges:
        """Return the ranges whose name fits."""
        flags = bytearray(bool(fits(name)) for name in self.ranges.names)
        return self.ranges.take(where(take(flags, self.ranges.name)))

    def between(self, starts_ns: Vector, ends_ns: Vector) -> Vector:
        """Return the time of the kernels that were launched in each span, its ends included."""
        after = self.launched_ns.searchsorted(ends_ns, "right")
        times: Vector = self._time_before[after] - self._time_before[self.launched_ns.searchsorted(starts_ns)]
        return times

    def candidate(self, pattern: str, own: Ranges, fewest: int = FEWEST) -> Candidate | None:
        """Return what ranges would be as anchors; None where they are too few, on several threads, or overlap. One
        that lies inside another is none of its own.
        """
        starts, ends = _on_one_thread(own)
        count = len(starts)
        one_step = count == 1 and _STEP.fullmatch(own[0].name) is not None
        if (count < fewest and not one_step) or (starts[1:] < ends[:-1]).any():
            return None
        apart: list[int] = (numpy.diff(starts) if count > 1 else ends - starts).tolist()
        period = median(apart)
        last_ns = max(int(ends[-1]), int(starts[-1]) + int(period))
        working = self._working(starts, last_ns)
        total_ns = int(self._time_before[-1]) or 1
        return Candidate(
            pattern=pattern,
            count=count,
            working=int(working.sum()) if is_most(working) else count,
            length_ns=median((ends - starts)[working if working.any() else slice(None)].tolist()),
            period_ns=period,
            spread=Fraction(median([distance(each, period) for each in apart])) / Fraction(period or 1),
            inside=Fraction(int(self.between(starts, ends).sum()), total_ns),
            covered=Fraction(int(self.between(starts[:1], numpy.array([last_ns])).sum()), total_ns),
        )

    def _working(self, starts: Vector, last_ns: int) -> Flags:
        """Whether a kernel is launched after each start until the next one, after the last until a moment."""
        return self.between(starts, numpy.append(starts[1:] - 1, last_ns)) > 0

    def once_in_each(self, starts: Vector, ends: Vector) -> str | None:
        """Return the pattern of ranges on one thread of which exactly one starts in each span, of several that with
        most time. Those inside another of them do not count, nor a few without a kernel: these are steps of no work.

        A range that holds the whole step starts before its first kernel: so the last span may have none.
        """
        times: dict[str, int] = {}
        for pattern, own in self.by_pattern.items():
            every = as_vector(own.start_ns)
            if (every.searchsorted(ends) == every.searchsorted(starts))[:-1].any():
                continue
            begins, until = _on_one_thread(own)
            if not len(begins):
                continue
            working = self._working(begins, int(self.launched_ns[-1]))
            steps = begins[working] if is_most(working) else begins
            counts = steps.searchsorted(ends) - steps.searchsorted(starts)
            if (counts[:-1] == 1).all() and counts[-1] <= 1:
                times[pattern] = int((until - begins).sum())
        longest = sorted(times, key=lambda pattern: (times[pattern], pattern), reverse=True)
        return next(filter(self.closed.is_of_one_shape, longest), None)


def is_most(working: Flags) -> bool:
    """Return whether so few of the repetitions of a range have no kernel that they are steps of no work."""
    return len(working) - int(working.sum()) <= MOST_EMPTY * len(working)


def _on_one_thread(ranges: Ranges) -> Vector:
    """(starts, ends) of some ranges without those inside another of them; none where they are on several threads."""
    every = without_nested(ranges) if len(values(ranges.thread)) == 1 else []
    found: Vector = numpy.array([each[:2] for each in every], numpy.int64).reshape(-1, 2).T
    return found


@kept
def ranges_of(run: Run) -> ClosedRanges:
    """The closed ranges of a run, from one pass over each trace."""
    return ClosedRanges(
        {
            (number, pid): own.take(where_not(equal(own.end_ns, OPEN_END_NS)))
            for number, each in enumerate(run.ranges_named(("%",)))
            for pid, own in sorted(each.items())
        }
    )


@kept
def ranges_by_rank(run: Run) -> Mapping[int, RankRanges]:
    """The same by rank, of those with kernels; all kernels of these are read."""
    closed, found = ranges_of(run), {}
    for number, track in run.whole().tracks.items():
        if len(track.kernels):
            process = track.rank.process
            own = closed.by_process.get((process.trace, process.global_pid)) or Ranges.of(())
            found[number] = RankRanges(closed, own, track, partial(_module_calls, run, process))
    return found


def _module_calls(run: Run, process: ProcessId) -> Iterable[Range]:
    return run.traces[process.trace].module_calls().get(process.global_pid, ())


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pattern of range names as an anchor. Of several ranks ``count`` is the fewest, everything else the worst.

    ``working`` are those after which a kernel is launched, until the next one: others are steps of no work, if few.
    ``length_ns`` and ``period_ns`` are medians, ``spread`` is how far a period is from theirs, as a share of it.
    ``inside`` and ``covered`` are shares of the kernels' time: launched inside the ranges, and from first to last.
    """

    pattern: str
    count: int
    working: int
    length_ns: Value
    period_ns: Value
    spread: Fraction
    inside: Fraction
    covered: Fraction

    def __str__(self) -> str:
        if self.alone:
            how = f"once, {format_value(self.length_ns)}"
        else:
            period = f"{format_value(self.period_ns)} (within {format_share(self.spread)})"
            how = f"{self.count} times a rank, {format_value(self.length_ns)} every {period}"
        return f"{how}, {format_share(self.covered)} of the kernels' time"

    @property
    def span(self) -> Span:
        """``period`` where the ranges mark a beginning and enclose little."""
        encloses = self.inside >= HALF * self.covered or 10 * self.length_ns >= 9 * self.period_ns
        return Span.RANGE if encloses else Span.PERIOD

    @property
    def good(self) -> bool:
        """Whether it repeats often and regularly enough, and covers enough, to be an anchor without a doubt; or is
        called a step, and the only one.
        """
        return (self.alone or self.count >= FEW_ANCHORS) and self.usable

    @property
    def alone(self) -> bool:
        """Whether the trace holds one of it: a step, by its name."""
        return self.count == 1

    @property
    def usable(self) -> bool:
        """The same but for how often."""
        return self.covered >= HALF and self.spread <= HALF

    def alike(self, other: Candidate) -> bool:
        """Whether nothing tells which of the two is the unit of work: alike good, often and long, beside each other.

        Of ranges inside each other the outer one is the unit.
        """
        longest = max(self.length_ns, other.length_ns)
        same = (self.good, self.usable, self.working) == (other.good, other.usable, other.working)
        return (
            same
            and abs(self._quality - other._quality) <= 1  # half a step at an end of the trace is no reason
            and 10 * distance(self.length_ns, other.length_ns) <= longest
            and self.inside + other.inside <= 1
        )

    @property
    def order(self) -> tuple[object, ...]:
        """The best first: by how much they cover and enclose and how regularly, in tenths, then the longest work."""
        return (not self.good, not self.usable, -self._quality, self.working, -self.length_ns, self.pattern)

    @property
    def _quality(self) -> int:
        whole = ENCLOSES if self.span is Span.RANGE else 0
        return round(10 * (self.covered * (1 - min(self.spread, Fraction(1))) + whole))


def anchor_candidates(run: Run, left_out: Callable[[str], object] = lambda _: False) -> list[Candidate]:
    """What could anchor, the best first. ``left_out`` says which names never anchor, as setup labels.

    ``run`` is under a convention without anchor; all of its kernels are read.
    """
    closed, ranks = ranges_of(run), ranges_by_rank(run).values()
    patterns = {pattern for name, pattern in closed.patterns.items() if not _is_part(name) and not left_out(name)}
    shared = patterns.intersection(*(own.by_pattern for own in ranks)) if ranks else ()
    each = (
        _worst([own.candidate(pattern, own.by_pattern[pattern]) for own in ranks])
        for pattern in shared
        if not any(_comes_back(own.by_pattern[pattern]) for own in ranks)
    )
    ordered = sorted((one for one in each if one is not None), key=lambda candidate: candidate.order)
    return [*islice((one for one in ordered if closed.is_of_one_shape(one.pattern)), SHOWN)]


def candidate_of(run: Run, pattern: str) -> Candidate | None:
    """What a pattern would be as an anchor, of which two are enough where the ranges enclose their work; None where it
    would be none.
    """
    matches = like(pattern)
    found = _worst([own.candidate(pattern, own.named(matches), FEWEST - 1) for own in ranges_by_rank(run).values()])
    return None if found is None or (found.count < FEWEST and found.span is Span.PERIOD) else found


def format_share(value: Fraction) -> str:
    """Return a share in whole percent."""
    return percent(Fraction(round(100 * value), 100))


def _is_part(name: str) -> bool:
    """Whether a range of this name is a part of a model: one that says step is none."""
    return bool(_PART.search(name)) and "step" not in name.lower()


def _writable(pattern: str) -> str:
    """The pattern with the wildcard for what no text file should hold, or what a reader of one would strip."""
    clean = "".join(c if c.isprintable() else "%" for c in pattern)
    stripped = clean.strip()
    before, after = clean[: len(clean) - len(clean.lstrip())], clean[len(clean.rstrip()) :]
    return ("%" if before else "") + stripped + ("%" if after else "")


def _comes_back(anchors: Sequence[Range]) -> bool:
    """Whether a name stands again after another one: numbers that begin anew are those of parts."""
    turns = [b.name for a, b in pairwise(anchors) if a.name != b.name]
    return len({anchors[0].name, *turns}) <= len(turns)


def _worst(each: Sequence[Candidate | None]) -> Candidate | None:
    """The same on all ranks; None where it is none on one of them."""
    known = [one for one in each if one is not None]
    if not known or len(known) < len(each):
        return None
    return Candidate(
        pattern=known[0].pattern,
        count=min(one.count for one in known),
        working=min(one.working for one in known),
        length_ns=median([one.length_ns for one in known]),
        period_ns=median([one.period_ns for one in known]),
        spread=max(one.spread for one in known),
        inside=min(one.inside for one in known),
        covered=min(one.covered for one in known),
    )


class Held(NamedTuple):
    """What the median windows hold under one mode, on the rank that holds least: kernels, and Σ of their lengths."""

    kernels: int
    time_ns: int


class Holds:
    """What the median windows of a run hold under each mode, and how far the GPU is behind; read when it is asked.

    Where the one in the middle launches nothing, a step of no work, all of the middle half count.
    """

    def __init__(self, run: Run, span: Span, kind: str | None = None) -> None:
        self._run = run
        specs = [WindowSpec(window, span, KernelsMode.LAUNCHED, kind) for window in (MEDIAN, STEADY)]
        self._spec = next((spec for spec in specs if self._count(spec).kernels), specs[0])

    @property
    def place(self) -> str:
        """In which windows it was counted, in words."""
        return "median window" if self._spec.window == MEDIAN else "middle half of the windows"

    def __getitem__(self, mode: KernelsMode) -> Held:
        return self._count(replace(self._spec, kernels=mode))

    @kept
    def _count(self, spec: WindowSpec) -> Held:
        each = [*self._run.measured(spec).ranks.values()]
        if len(each) < len(self._run.ranks) or not each or not all(each):
            return Held(0, 0)
        times = [sum(total(window.durations_ns) for window in own) for own in each]
        return Held(min(sum(map(len, own)) for own in each), min(times))

    @cached_property
    def _tracks(self) -> Sequence[RankTrack]:
        """The ranks around these windows by what they launched; where nothing is there, by time."""
        for mode in (KernelsMode.LAUNCHED, KernelsMode.CLIPPED):
            tracks = [*self._run.measured(replace(self._spec, kernels=mode)).tracks.values()]
            if any(track.lags_ns for track in tracks):
                break
        return tracks

    @property
    def lag_ns(self) -> Value:
        """How far the GPU runs behind the CPU, the median of the kernels with a launch row, of the worst rank."""
        return max((median(track.lags_ns) for track in self._tracks if track.lags_ns), default=0)

    @property
    def unlaunched(self) -> Fraction:
        """The share of the kernels that have no launch row, of the worst rank."""
        each = (track.launched for track in self._tracks)
        return max((Fraction(launched.without, launched.kernels or 1) for launched in each), default=Fraction(0))

    @property
    def best_mode(self) -> KernelsMode | None:
        """The mode under which the median windows hold what belongs to them; None where they hold nothing."""
        contained, launched = self[KernelsMode.CONTAINED], self[KernelsMode.LAUNCHED]
        if contained.kernels and 2 * contained.time_ns >= launched.time_ns:
            return KernelsMode.CONTAINED
        if launched.kernels and self.unlaunched <= MOST_UNLAUNCHED:
            return KernelsMode.LAUNCHED
        return next((mode for mode in (KernelsMode.CLIPPED, KernelsMode.CONTAINED) if self[mode].kernels), None)
