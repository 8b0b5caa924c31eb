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

from pytest_nsys.analysis.metrics.throughput import select_counted_periods
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, RunWindow
from pytest_nsys.analysis.windows.run_conditions import Launcher
from pytest_nsys.core.conventions import COPY_NAMES
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.exact import mean, median, simplify_fraction
from pytest_nsys.core.families import OTHER_FAMILY, list_family_names, list_zero_families, make_classifier
from pytest_nsys.core.intervals import find_hull
from pytest_nsys.core.memoize import group_by_key, memoize_method
from pytest_nsys.core.model import Range, Value
from pytest_nsys.core.text_format import format_count

K = TypeVar("K", bound=Hashable)

STATE_STEPS_HINT = (
    "set workload: {steps: N} in the gate file, or look with `pytest-nsys TRACE --view kernels --steps N`"
)


class KernelUsage(NamedTuple):
    """Says what kernels cost: their time summed, and how many there were; of all GPUs and steps, or of one."""

    time_ns: Value = 0
    launches: Value = 0

    def add(self, addend: KernelUsage) -> KernelUsage:
        return KernelUsage(self.time_ns + addend.time_ns, self.launches + addend.launches)

    def divide_by(self, divisor: int) -> KernelUsage:
        """Return the share of one GPU in one step."""
        if divisor == 1:
            return self
        return KernelUsage(
            simplify_fraction(Fraction(self.time_ns) / divisor), simplify_fraction(Fraction(self.launches) / divisor)
        )


def _sum_usages(usages: Iterable[tuple[K, KernelUsage]]) -> dict[K, KernelUsage]:
    sums: dict[K, KernelUsage] = {}
    for key, usage in usages:
        sum_so_far = sums.get(key)
        sums[key] = usage if sum_so_far is None else sum_so_far.add(usage)
    return sums


class StepTime(NamedTuple):
    """Says how long a step takes."""

    length_ns: Value
    period_count: int | None  # how many were measured; None for a time that was stated


class FamilySums:
    """Sums the kernels of some windows of a run, once for all that is asked of them."""

    def __init__(self, run: Run, windows: Sequence[RankWindow]) -> None:
        self.run, self._windows = run, windows

    @cached_property
    def gpu_count(self) -> int:
        """Return the number of GPUs that ran a kernel in the windows, one that several processes used once."""
        gpu_places = ((w.rank.process, stream.device) for w in self._windows for stream in w.kernels_by_stream)
        return len({self.run.identify_gpu(*place) for place in gpu_places})

    @cached_property
    def step_count(self) -> int:
        """Return the number of steps in a window. Raises NothingMeasured where nothing says it."""
        return self.run.workload.steps or self._count_steps()

    @property
    def rank_numbers(self) -> Sequence[int]:
        """Return the numbers of the ranks that are summed."""
        return [w.rank.number for w in self._windows]

    @property
    def has_all_ranks(self) -> bool:
        """Whether the ranks are all that the run has."""
        return len(self._windows) == len(self.run.ranks)

    @property
    def launcher(self) -> Launcher:
        """Return the launcher of the files and GPUs of this run, also where some ranks are left out."""
        return Launcher.classify(self.gpu_count if self.has_all_ranks else len(self.run.ranks), self.run.file_count)

    @property
    def divisor(self) -> int:
        """Return what sums are divided by: GPUs times steps."""
        return self.gpu_count * self.step_count

    def _count_steps(self) -> int:
        anchor_counts = [count_anchors(w) for w in self._windows]
        # Sums over ranks are divided by one number: all ranks have to hold as many steps.
        if anchor_counts[0] and len(set(anchor_counts)) == 1:
            return anchor_counts[0]
        raise NothingMeasured(f"{self.run.traces[0].path}: {_explain_unknown_steps(anchor_counts)}; {STATE_STEPS_HINT}")

    @cached_property
    def usage_by_name(self) -> Mapping[tuple[str, str], KernelUsage]:
        """Return the usage of all GPUs and steps together, by (short name, demangled name); of copies those that a
        family asks for.
        """
        named_usages = (
            ((window.kernels.names[short], window.kernels.names.get(full, "")), KernelUsage(*sums))
            for window in self._windows
            for (short, full), sums in window.totals_by_name.items()
        )
        # Copies are no kernels, and count only where a family of the convention asks for them.
        copy_names = COPY_NAMES.values()
        return _sum_usages(
            (key, usage)
            for key, usage in named_usages
            if key[0] not in copy_names or self._classify(*key) != OTHER_FAMILY
        )

    @cached_property
    def _classify(self) -> Callable[[str, str], str]:
        return make_classifier(self.run.convention.families)

    @cached_property
    def family_by_name(self) -> Mapping[tuple[str, str], str]:
        """Return the family of every kernel that ran, by (short name, demangled name)."""
        return {names: self._classify(*names) for names in self.usage_by_name}

    @cached_property
    def _names_by_family(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        return group_by_key((family, names) for names, family in self.family_by_name.items())

    @cached_property
    def usage_by_family(self) -> Mapping[str, KernelUsage]:
        """Return the usage of one GPU in one step, by family in the order of the table, ``other`` last."""
        table = self.run.convention.families
        sums = _sum_usages((self.family_by_name[names], usage) for names, usage in self.usage_by_name.items())
        zero_families = list_zero_families(table, sums)
        family_names = [name for name in list_family_names(table) if name in sums or name in zero_families]
        return {name: sums.get(name, KernelUsage()).divide_by(self.divisor) for name in family_names}

    @cached_property
    def total(self) -> KernelUsage:
        """Return the usage of one GPU in one step, of all families."""
        return (
            _sum_usages(((), usage) for usage in self.usage_by_name.values())
            .get((), KernelUsage())
            .divide_by(self.divisor)
        )

    @property
    def is_one_anchor(self) -> bool:
        """Whether the window of each rank is one of its anchors."""
        return all(w.window.index is not None for w in self._windows)

    @property
    def has_anchors(self) -> bool:
        """Whether any rank has an anchor."""
        return any(w.anchors for w in self._windows)

    @property
    def window_ns(self) -> Value:
        """Return the length of the window in ns, the mean over the ranks."""
        return mean([w.length_ns for w in self._windows])

    def measure_window_share(self, usage: KernelUsage) -> Value:
        """Return the share of the ranks' windows that these kernels of one GPU in one step take."""
        length_ns = sum(w.length_ns for w in self._windows)
        return simplify_fraction(Fraction(usage.time_ns) * self.divisor / length_ns) if length_ns else 0

    def list_kernels(self, family: str, custom_divisor: int | None = None) -> list[tuple[str, KernelUsage]]:
        """Return the single kernels of a family by demangled name, the longest time first.

        Of one GPU in one step, or of all, divided by ``custom_divisor``.
        """
        divisor = self.divisor if custom_divisor is None else custom_divisor
        sums = _sum_usages(
            (full or short, self.usage_by_name[short, full]) for short, full in self._names_by_family.get(family, ())
        )
        kernels = [(name, usage.divide_by(divisor)) for name, usage in sums.items()]
        return sorted(kernels, key=lambda kernel: (-kernel[1].time_ns, kernel[0]))

    @cached_property
    def step_time(self) -> StepTime | None:
        """Return the time of a step as stated, else the median over the ranks of their steady periods; None where no
        anchor is a step.

        The anchor after the window is left out: what was recorded of the window is written during it.
        """
        if (stated_ns := self.run.workload.step_time_ns) is not None:
            return StepTime(stated_ns, None)
        # An anchor that is no step has another period than a step.
        if any(count_anchors(w) != self.step_count for w in self._windows):
            return None
        periods_by_rank = [_list_steady_periods(w) for w in self._windows]
        if not all(periods_by_rank):
            return None
        return StepTime(median([median([*periods]) for periods in periods_by_rank]), sum(map(len, periods_by_rank)))


@memoize_method
def sum_families(window: RunWindow) -> FamilySums:
    """Return the sums of a window, which several metrics and views ask for."""
    return FamilySums(window.run, [window.by_rank[number] for number in sorted(window.by_rank)])


def count_anchors(window: RankWindow) -> int | None:
    """Return how many anchors the window holds; None where it cuts one. The whole run holds all of its rank."""
    if window.window.index is not None:
        return 1
    if window.spec.is_whole_run:
        return len(window.anchors)
    start, end = window.window.start_ns, window.window.end_ns
    run = window.track.window_group.run
    marks, steps = run.find_anchors_of_kind(window.rank, window.spec), run.find_rank_steps(window.rank, window.spec)
    spans = [(mark.start_ns, mark.end_ns) for mark in marks]
    if steps is not None and steps.steps:  # of several labels that take turns one step
        by_step = group_by_key(
            (bisect_right(steps.steps, mark_start_ns, key=_get_start_ns) - 1, (mark_start_ns, mark_end_ns))
            for mark_start_ns, mark_end_ns in spans
        )
        spans = [find_hull(step_spans) for step_number, step_spans in by_step.items() if step_number >= 0]
    touched_spans = [
        (mark_start_ns, mark_end_ns)
        for mark_start_ns, mark_end_ns in spans
        if mark_start_ns < end and mark_end_ns > start
    ]
    are_whole = all(start <= mark_start_ns and mark_end_ns <= end for mark_start_ns, mark_end_ns in touched_spans)
    return len(touched_spans) if are_whole else None


def _get_start_ns(step: Range) -> int:
    return step.start_ns


def _explain_unknown_steps(anchor_counts: list[int | None]) -> str:
    """Return why the number of steps is unknown, given the anchors that each rank's window holds, None where it cuts
    one.
    """
    known_counts = [n for n in anchor_counts if n is not None]
    if len(known_counts) < len(anchor_counts):
        reason = "the window cuts an anchor"
    elif not any(known_counts):
        reason = "the window holds no anchor"
    else:
        reason = f"the ranks have from {min(known_counts)} to {format_count(max(known_counts), 'anchor')} in the window"
    return f"{reason}, so the number of steps in it is unknown"


def _list_steady_periods(window: RankWindow) -> list[int]:
    """Return the lengths, in ns, from anchor to anchor over the steady anchors but the first one after the window."""
    end = window.end_ns if window.spec.is_whole_run else window.window.end_ns
    first_after = bisect_left(window.anchors, end, key=lambda anchor: anchor.start_ns)
    # While it runs the profiler writes what it recorded of the window.
    return [length for i, length in select_counted_periods(window.track).items() if i != first_after]


def family_ns(window: RunWindow) -> Mapping[str, Value]:
    """Time of the kernels of a family per GPU and step: Σ duration over all ranks / (GPUs × steps)."""
    return {family: usage.time_ns for family, usage in sum_families(window).usage_by_family.items()}


def family_launches(window: RunWindow) -> Mapping[str, Value]:
    """Kernels of a family per GPU and step."""
    return {family: usage.launches for family, usage in sum_families(window).usage_by_family.items()}


def total_kernel_ns(window: RunWindow) -> Value:
    """Time of all kernels per GPU and step: what ``family_ns`` sums to."""
    return sum_families(window).total.time_ns


def step_minus_kernel_ns(window: RunWindow) -> Value | None:
    """Time of a step − ``total_kernel_ns``.

    The time of a step is stated, as of a run without the profiler, or is the median steady period.
    """
    sums = sum_families(window)
    total = sums.total  # says first that steps are not known
    step = sums.step_time
    return None if step is None else simplify_fraction(Fraction(step.length_ns) - total.time_ns)
