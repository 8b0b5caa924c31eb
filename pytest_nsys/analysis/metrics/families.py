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
    """What kernels cost: their time summed, and how many there were. Of all GPUs and steps, or of one."""

    ns: Value = 0
    launches: Value = 0

    def and_(self, other: Usage) -> Usage:
        return Usage(self.ns + other.ns, self.launches + other.launches)

    def over(self, divisor: int) -> Usage:
        """The share of one GPU in one step."""
        if divisor == 1:
            return self
        return Usage(exact(Fraction(self.ns) / divisor), exact(Fraction(self.launches) / divisor))


def _summed(some: Iterable[tuple[K, Usage]]) -> dict[K, Usage]:
    found: dict[K, Usage] = {}
    for key, usage in some:
        before = found.get(key)
        found[key] = usage if before is None else before.and_(usage)
    return found


class StepTime(NamedTuple):
    """How long a step takes. ``periods`` is how many were measured, None for a time that was stated."""

    ns: Value
    periods: int | None


class FamilySums:
    """The kernels of some windows of a run, summed once for all that is asked of them."""

    def __init__(self, run: Run, windows: Sequence[RankWindow]) -> None:
        self.run, self._windows = run, windows

    @cached_property
    def gpus(self) -> int:
        """How many ran a kernel in the windows, one that several processes used once."""
        each = ((w.rank.process, stream.device) for w in self._windows for stream in w.by_stream)
        return len({self.run.gpu_of(*place) for place in each})

    @cached_property
    def steps(self) -> int:
        """Raises NothingMeasured where nothing says how many there are."""
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
        """Of the files and GPUs of this run, also where some ranks are left out."""
        return Launcher.of(self.gpus if self.of_all_ranks else len(self.run.ranks), self.run.files)

    @property
    def divisor(self) -> int:
        """What sums are divided by."""
        return self.gpus * self.steps

    def _counted(self) -> int:
        held = [anchors_in(w) for w in self._windows]
        if held[0] and len(set(held)) == 1:
            return held[0]
        raise NothingMeasured(f"{self.run.traces[0].path}: {_why_unknown(held)}; {STATE_STEPS}")

    @cached_property
    def by_name(self) -> Mapping[tuple[str, str], Usage]:
        """All GPUs and steps together, by (short name, demangled name); of copies those that a family asks for."""
        each = (
            ((window.kernels.names[short], window.kernels.names.get(full, "")), Usage(*sums))
            for window in self._windows
            for (short, full), sums in window.by_name.items()
        )
        copies = COPY_NAMES.values()
        return _summed((key, own) for key, own in each if key[0] not in copies or self._classify(*key) != OTHER)

    @cached_property
    def _classify(self) -> Callable[[str, str], str]:
        return classifier(self.run.convention.families)

    @cached_property
    def family_of(self) -> Mapping[tuple[str, str], str]:
        """The family of every kernel that ran, by (short name, demangled name)."""
        return {names: self._classify(*names) for names in self.by_name}

    @cached_property
    def _names_by_family(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        return grouped((family, names) for names, family in self.family_of.items())

    @cached_property
    def families(self) -> Mapping[str, Usage]:
        """One GPU in one step, by family in the order of the table, ``other`` last."""
        table = self.run.convention.families
        sums = _summed((self.family_of[names], usage) for names, usage in self.by_name.items())
        filled = zero_filled(table, sums)
        shown = [name for name in names_of(table) if name in sums or name in filled]
        return {name: sums.get(name, Usage()).over(self.divisor) for name in shown}

    @cached_property
    def total(self) -> Usage:
        """One GPU in one step, of all families."""
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
        """The length of the window, the mean over the ranks."""
        return mean([w.length_ns for w in self._windows])

    def of_windows(self, usage: Usage) -> Value:
        """What the kernels of one GPU in one step take of the windows of the ranks, as a share."""
        length_ns = sum(w.length_ns for w in self._windows)
        return exact(Fraction(usage.ns) * self.divisor / length_ns) if length_ns else 0

    def kernels_of(self, family: str, over: int | None = None) -> list[tuple[str, Usage]]:
        """The single kernels of a family by demangled name, the longest time first: of one GPU in one step, else of all
        that sums are divided by.
        """
        divisor = self.divisor if over is None else over
        sums = _summed(
            (full or short, self.by_name[short, full]) for short, full in self._names_by_family.get(family, ())
        )
        own = [(name, usage.over(divisor)) for name, usage in sums.items()]
        return sorted(own, key=lambda kernel: (-kernel[1].ns, kernel[0]))

    @cached_property
    def step_time(self) -> StepTime | None:
        """As stated, else the median over the ranks of their steady periods, where an anchor is a step.

        The anchor after the window is left out: what was recorded of the window is written during it.
        """
        if (stated := self.run.workload.step_time_ns) is not None:
            return StepTime(stated, None)
        if any(anchors_in(w) != self.steps for w in self._windows):
            return None
        each = [_steady_periods(w) for w in self._windows]
        if not all(each):
            return None
        return StepTime(median([median([*own]) for own in each]), sum(map(len, each)))


@kept
def sums_of(window: RunWindow) -> FamilySums:
    """The sums of a window, which several metrics and views ask for."""
    return FamilySums(window.run, [window.by_rank[number] for number in sorted(window.by_rank)])


def anchors_in(window: RankWindow) -> int | None:
    """How many anchors the window holds; None where it cuts one. The whole run holds all of its rank."""
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
            (bisect_right(steps.steps, at_ns, key=_start_ns) - 1, (at_ns, to_ns)) for at_ns, to_ns in spans
        )
        spans = [hull(own) for number, own in by_step.items() if number >= 0]
    touched = [(at_ns, to_ns) for at_ns, to_ns in spans if at_ns < end and to_ns > start]
    whole = all(start <= at_ns and to_ns <= end for at_ns, to_ns in touched)
    return len(touched) if whole else None


def _start_ns(step: Range) -> int:
    return step.start_ns


def _why_unknown(held: list[int | None]) -> str:
    """``held`` is how many anchors the window of each rank holds, None for one that cuts some."""
    known = [n for n in held if n is not None]
    if len(known) < len(held):
        what = "the window cuts an anchor"
    elif not any(known):
        what = "the window holds no anchor"
    else:
        what = f"the ranks have from {min(known)} to {counted(max(known), 'anchor')} in the window"
    return f"{what}, so the number of steps in it is unknown"


def _steady_periods(window: RankWindow) -> list[int]:
    """Start of the next anchor minus start of the anchor, over the steady anchors but the first after the window."""
    end = window.end_ns if window.spec.whole_run else window.window.end_ns
    after = bisect_left(window.anchors, end, key=lambda anchor: anchor.start_ns)
    return [length for i, length in counted_periods(window.track).items() if i != after]


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
