"""What does a GPU do in a step, by family of kernels? Sums over all ranks, over the number of GPUs and of steps.

A GPU is a device of a process of a file that ran a kernel. Steps are stated, or are the anchors that the window holds.
The families of the table are zero-filled: one that vanished is a row of 0. They sum to the total, exactly.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, TypeVar

from pytest_nsys.analysis.metrics.throughput import counted_periods
from pytest_nsys.analysis.windows.circumstances import Launcher
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, RunWindow
from pytest_nsys.core.conventions import COPY_NAMES
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.exact import exact, mean, median
from pytest_nsys.core.families import OTHER, classifier, names_of, zero_filled
from pytest_nsys.core.intervals import hull
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.model import Range, Value
from pytest_nsys.core.words import counted

K = TypeVar("K", bound=Hashable)

STATE_STEPS = "set workload: {steps: N} in the gate file, or look with `pytest-nsys TRACE --view kernels --steps N`"


class Usage(NamedTuple):
    """Says what kernels cost: their time summed, and how many there were; of all GPUs and steps, or of one."""

    ns: Value = 0
    launches: Value = 0

    def and_(self, other: Usage) -> Usage:
        return Usage(self.ns + other.ns, self.launches + other.launches)

    def over(self, divisor: int) -> Usage:
        """Return the share of one GPU in one step."""
        if divisor == 1:
            return self
        return Usage(exact(Fraction(self.ns) / divisor), exact(Fraction(self.launches) / divisor))


def _summed(some: Iterable[tuple[K, Usage]]) -> dict[K, Usage]:
    sums: dict[K, Usage] = {}
    for key, usage in some:
        sum_so_far = sums.get(key)
        sums[key] = usage if sum_so_far is None else sum_so_far.and_(usage)
    return sums


class StepTime(NamedTuple):
    """Says how long a step takes."""

    ns: Value
    periods: int | None  # how many were measured; None for a time that was stated


class FamilySums:
    """Sums the kernels of some windows of a run, once for all that is asked of them."""

    def __init__(self, run: Run, windows: Sequence[RankWindow]) -> None:
        self.run, self._windows = run, windows

    @cached_property
    def gpus(self) -> int:
        """Return the number of GPUs that ran a kernel in the windows, one that several processes used once."""
        gpu_places = ((w.rank.process, stream.device) for w in self._windows for stream in w.by_stream)
        return len({self.run.gpu_of(*place) for place in gpu_places})

    @cached_property
    def steps(self) -> int:
        """Return the number of steps in a window. Raises NothingMeasured where nothing says it."""
        return self.run.workload.steps or self._counted()

    @property
    def ranks(self) -> Sequence[int]:
        """Return the numbers of the ranks that are summed."""
        return [w.rank.number for w in self._windows]

    @property
    def of_all_ranks(self) -> bool:
        """Whether the ranks are all that the run has."""
        return len(self._windows) == len(self.run.ranks)

    @property
    def launcher(self) -> Launcher:
        """Return the launcher of the files and GPUs of this run, also where some ranks are left out."""
        return Launcher.of(self.gpus if self.of_all_ranks else len(self.run.ranks), self.run.files)

    @property
    def divisor(self) -> int:
        """Return what sums are divided by: GPUs times steps."""
        return self.gpus * self.steps

    def _counted(self) -> int:
        anchor_counts = [anchors_in(w) for w in self._windows]
        # Sums over ranks are divided by one number: all ranks have to hold as many steps.
        if anchor_counts[0] and len(set(anchor_counts)) == 1:
            return anchor_counts[0]
        raise NothingMeasured(f"{self.run.traces[0].path}: {_why_unknown(anchor_counts)}; {STATE_STEPS}")

    @cached_property
    def by_name(self) -> Mapping[tuple[str, str], Usage]:
        """Return the usage of all GPUs and steps together, by (short name, demangled name); of copies those that a
        family asks for.
        """
        named_usages = (
            ((window.kernels.names[short], window.kernels.names.get(full, "")), Usage(*sums))
            for window in self._windows
            for (short, full), sums in window.by_name.items()
        )
        # Copies are no kernels, and count only where a family of the convention asks for them.
        copy_names = COPY_NAMES.values()
        return _summed(
            (key, usage) for key, usage in named_usages if key[0] not in copy_names or self._classify(*key) != OTHER
        )

    @cached_property
    def _classify(self) -> Callable[[str, str], str]:
        return classifier(self.run.convention.families)

    @cached_property
    def family_of(self) -> Mapping[tuple[str, str], str]:
        """Return the family of every kernel that ran, by (short name, demangled name)."""
        return {names: self._classify(*names) for names in self.by_name}

    @cached_property
    def _names_by_family(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        return grouped((family, names) for names, family in self.family_of.items())

    @cached_property
    def families(self) -> Mapping[str, Usage]:
        """Return the usage of one GPU in one step, by family in the order of the table, ``other`` last."""
        table = self.run.convention.families
        sums = _summed((self.family_of[names], usage) for names, usage in self.by_name.items())
        zero_families = zero_filled(table, sums)
        family_names = [name for name in names_of(table) if name in sums or name in zero_families]
        return {name: sums.get(name, Usage()).over(self.divisor) for name in family_names}

    @cached_property
    def total(self) -> Usage:
        """Return the usage of one GPU in one step, of all families."""
        return _summed(((), usage) for usage in self.by_name.values()).get((), Usage()).over(self.divisor)

    @property
    def of_one_anchor(self) -> bool:
        """Whether the window of each rank is one of its anchors."""
        return all(w.window.index is not None for w in self._windows)

    @property
    def anchored(self) -> bool:
        """Whether any rank has an anchor."""
        return any(w.anchors for w in self._windows)

    @property
    def window_ns(self) -> Value:
        """Return the length of the window in ns, the mean over the ranks."""
        return mean([w.length_ns for w in self._windows])

    def of_windows(self, usage: Usage) -> Value:
        """Return the share of the ranks' windows that these kernels of one GPU in one step take."""
        length_ns = sum(w.length_ns for w in self._windows)
        return exact(Fraction(usage.ns) * self.divisor / length_ns) if length_ns else 0

    def kernels_of(self, family: str, over: int | None = None) -> list[tuple[str, Usage]]:
        """Return the single kernels of a family by demangled name, the longest time first.

        Of one GPU in one step, or of all, divided by ``custom_divisor``.
        """
        divisor = self.divisor if over is None else over
        sums = _summed(
            (full or short, self.by_name[short, full]) for short, full in self._names_by_family.get(family, ())
        )
        kernels = [(name, usage.over(divisor)) for name, usage in sums.items()]
        return sorted(kernels, key=lambda kernel: (-kernel[1].ns, kernel[0]))

    @cached_property
    def step_time(self) -> StepTime | None:
        """Return the time of a step as stated, else the median over the ranks of their steady periods; None where no
        anchor is a step.

        The anchor after the window is left out: what was recorded of the window is written during it.
        """
        if (stated_ns := self.run.workload.step_time_ns) is not None:
            return StepTime(stated_ns, None)
        # An anchor that is no step has another period than a step.
        if any(anchors_in(w) != self.steps for w in self._windows):
            return None
        periods_by_rank = [_steady_periods(w) for w in self._windows]
        if not all(periods_by_rank):
            return None
        return StepTime(median([median([*periods]) for periods in periods_by_rank]), sum(map(len, periods_by_rank)))


@kept
def sums_of(window: RunWindow) -> FamilySums:
    """Return the sums of a window, which several metrics and views ask for."""
    return FamilySums(window.run, [window.by_rank[number] for number in sorted(window.by_rank)])


def anchors_in(window: RankWindow) -> int | None:
    """Return how many anchors the window holds; None where it cuts one. The whole run holds all of its rank."""
    if window.window.index is not None:
        return 1
    if window.spec.whole_run:
        return len(window.anchors)
    start, end = window.window.start_ns, window.window.end_ns
    run = window.track.group.run
    marks, steps = run.marks(window.rank, window.spec), run.rank_steps(window.rank, window.spec)
    spans = [(mark.start_ns, mark.end_ns) for mark in marks]
    if steps is not None and steps.steps:  # of several labels that take turns one step
        by_step = grouped(
            (bisect_right(steps.steps, mark_start_ns, key=_start_ns) - 1, (mark_start_ns, mark_end_ns))
            for mark_start_ns, mark_end_ns in spans
        )
        spans = [hull(step_spans) for step_number, step_spans in by_step.items() if step_number >= 0]
    touched_spans = [
        (mark_start_ns, mark_end_ns)
        for mark_start_ns, mark_end_ns in spans
        if mark_start_ns < end and mark_end_ns > start
    ]
    are_whole = all(start <= mark_start_ns and mark_end_ns <= end for mark_start_ns, mark_end_ns in touched_spans)
    return len(touched_spans) if are_whole else None


def _start_ns(step: Range) -> int:
    return step.start_ns


def _why_unknown(held: list[int | None]) -> str:
    """Return why the number of steps is unknown, given the anchors that each rank's window holds, None where it cuts
    one.
    """
    known_counts = [n for n in held if n is not None]
    if len(known_counts) < len(held):
        reason = "the window cuts an anchor"
    elif not any(known_counts):
        reason = "the window holds no anchor"
    else:
        reason = f"the ranks have from {min(known_counts)} to {counted(max(known_counts), 'anchor')} in the window"
    return f"{reason}, so the number of steps in it is unknown"


def _steady_periods(window: RankWindow) -> list[int]:
    """Return the lengths, in ns, from anchor to anchor over the steady anchors but the first one after the window."""
    end = window.end_ns if window.spec.whole_run else window.window.end_ns
    first_after = bisect_left(window.anchors, end, key=lambda anchor: anchor.start_ns)
    # While it runs the profiler writes what it recorded of the window.
    return [length for i, length in counted_periods(window.track).items() if i != first_after]


def family_ns(window: RunWindow) -> Mapping[str, Value]:
    """Time of the kernels of a family per GPU and step: Σ duration over all ranks / (GPUs × steps)."""
    return {family: usage.ns for family, usage in sums_of(window).families.items()}


def family_launches(window: RunWindow) -> Mapping[str, Value]:
    """Kernels of a family per GPU and step."""
    return {family: usage.launches for family, usage in sums_of(window).families.items()}


def total_kernel_ns(window: RunWindow) -> Value:
    """Time of all kernels per GPU and step: what ``family_ns`` sums to."""
    return sums_of(window).total.ns


def step_minus_kernel_ns(window: RunWindow) -> Value | None:
    """Time of a step − ``total_kernel_ns``.

    The time of a step is stated, as of a run without the profiler, or is the median steady period.
    """
    sums = sums_of(window)
    total = sums.total  # says first that steps are not known
    step = sums.step_time
    return None if step is None else exact(Fraction(step.ns) - total.ns)
