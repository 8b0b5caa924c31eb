"""What does a GPU do in a step, by family of kernels? Sums over all ranks, divided by the number of GPUs and of steps.

A GPU is a device, of a process of a file, that ran a kernel. Steps are stated, or are the anchors that the window
holds. The families of the table are zero-filled, so that one that vanished is a row of 0. They sum exactly to the
total.
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


class KernelTimeAndCount(NamedTuple):
    """Holds the summed time of kernels and their number; of all GPUs and steps, or of one."""

    time_ns: Value = 0
    launches: Value = 0

    def add(self, addend: KernelTimeAndCount) -> KernelTimeAndCount:
        return KernelTimeAndCount(self.time_ns + addend.time_ns, self.launches + addend.launches)

    def divide_by(self, divisor: int) -> KernelTimeAndCount:
        """Return the usage divided by GPUs times steps: that of one GPU in one step."""
        if divisor == 1:
            return self
        return KernelTimeAndCount(
            simplify_fraction(Fraction(self.time_ns) / divisor), simplify_fraction(Fraction(self.launches) / divisor)
        )


def _sum_usages(usages: Iterable[tuple[K, KernelTimeAndCount]]) -> dict[K, KernelTimeAndCount]:
    sums: dict[K, KernelTimeAndCount] = {}
    for key, usage in usages:
        sum_so_far = sums.get(key)
        sums[key] = usage if sum_so_far is None else sum_so_far.add(usage)
    return sums


class StepTime(NamedTuple):
    """Says how long a step takes."""

    length_ns: Value
    period_count: int | None  # number of measured periods; None for a stated time


class FamilySums:
    """Sums the kernels of some windows of a run, once for all metrics and views."""

    def __init__(self, run: Run, windows: Sequence[RankWindow]) -> None:
        self.run, self._windows = run, windows

    @cached_property
    def gpu_count(self) -> int:
        """Return the number of GPUs that ran a kernel in the windows; a GPU that several processes used counts once."""
        gpu_places = ((w.rank.process, stream.device) for w in self._windows for stream in w.kernels_by_stream)
        return len({self.run.identify_gpu(*place) for place in gpu_places})

    @cached_property
    def step_count(self) -> int:
        """Return the number of steps in a window. Raises NothingMeasured if it is unknown."""
        return self.run.workload.steps or self._count_steps()

    @property
    def rank_numbers(self) -> Sequence[int]:
        """Return the numbers of the ranks that are summed."""
        return [w.rank.number for w in self._windows]

    @property
    def has_all_ranks(self) -> bool:
        """Whether all ranks of the run are summed."""
        return len(self._windows) == len(self.run.ranks)

    @property
    def launcher(self) -> Launcher:
        """Return the launcher, judged by all files and GPUs of the run even if some ranks are left out."""
        return Launcher.classify(self.gpu_count if self.has_all_ranks else len(self.run.ranks), self.run.file_count)

    @property
    def divisor(self) -> int:
        """Return what sums are divided by: GPUs times steps."""
        return self.gpu_count * self.step_count

    def _count_steps(self) -> int:
        anchor_counts = [count_anchors(w) for w in self._windows]
        # Sums over ranks are divided by one number, so all ranks must hold equally many steps.
        if anchor_counts[0] and len(set(anchor_counts)) == 1:
            return anchor_counts[0]
        raise NothingMeasured(f"{self.run.traces[0].path}: {_explain_unknown_steps(anchor_counts)}; {STATE_STEPS_HINT}")

    @cached_property
    def usage_by_name(self) -> Mapping[tuple[str, str], KernelTimeAndCount]:
        """Return the usage of all GPUs and steps together, by (short name, demangled name), with the copies that a
        family names.
        """
        named_usages = (
            ((window.kernels.names[short], window.kernels.names.get(full, "")), KernelTimeAndCount(*sums))
            for window in self._windows
            for (short, full), sums in window.totals_by_name.items()
        )
        # Copies are no kernels, and count only if a family of the convention names them.
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
    def usage_by_family(self) -> Mapping[str, KernelTimeAndCount]:
        """Return the usage of one GPU in one step, by family in the order of the table, ``other`` last."""
        table = self.run.convention.families
        sums = _sum_usages((self.family_by_name[names], usage) for names, usage in self.usage_by_name.items())
        zero_families = list_zero_families(table, sums)
        family_names = [name for name in list_family_names(table) if name in sums or name in zero_families]
        return {name: sums.get(name, KernelTimeAndCount()).divide_by(self.divisor) for name in family_names}

    @cached_property
    def total(self) -> KernelTimeAndCount:
        """Return the usage of one GPU in one step, of all families."""
        return (
            _sum_usages(((), usage) for usage in self.usage_by_name.values())
            .get((), KernelTimeAndCount())
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

    def measure_window_share(self, usage: KernelTimeAndCount) -> Value:
        """Return the share of the ranks' windows that this usage of one GPU in one step takes."""
        length_ns = sum(w.length_ns for w in self._windows)
        return simplify_fraction(Fraction(usage.time_ns) * self.divisor / length_ns) if length_ns else 0

    def list_kernels(self, family: str, custom_divisor: int | None = None) -> list[tuple[str, KernelTimeAndCount]]:
        """Return the kernels of a family by demangled name, the longest time first.

        The usage is that of one GPU in one step or, with ``custom_divisor``, the total divided by that.
        """
        divisor = self.divisor if custom_divisor is None else custom_divisor
        sums = _sum_usages(
            (full or short, self.usage_by_name[short, full]) for short, full in self._names_by_family.get(family, ())
        )
        kernels = [(name, usage.divide_by(divisor)) for name, usage in sums.items()]
        return sorted(kernels, key=lambda kernel: (-kernel[1].time_ns, kernel[0]))

    @cached_property
    def step_time(self) -> StepTime | None:
        """Return the stated time of a step, else the median over the ranks of their steady periods; None if anchors are
        not steps.

        The first anchor after the window is left out, because the profiler then writes what it recorded in the window.
        """
        if (stated_ns := self.run.workload.step_time_ns) is not None:
            return StepTime(stated_ns, None)
        # An anchor that is not a step has another period.
        if any(count_anchors(w) != self.step_count for w in self._windows):
            return None
        periods_by_rank = [_list_steady_periods(w) for w in self._windows]
        if not all(periods_by_rank):
            return None
        return StepTime(median([median([*periods]) for periods in periods_by_rank]), sum(map(len, periods_by_rank)))


@memoize_method
def sum_families(window: RunWindow) -> FamilySums:
    """Return the sums of a window, which several metrics and views share."""
    return FamilySums(window.run, [window.by_rank[number] for number in sorted(window.by_rank)])


def count_anchors(window: RankWindow) -> int | None:
    """Return how many anchors the window holds; None if it cuts one. The whole run holds all anchors of its rank."""
    if window.window.index is not None:
        return 1
    if window.spec.is_whole_run:
        return len(window.anchors)
    start, end = window.window.start_ns, window.window.end_ns
    run = window.track.window_group.run
    marks, steps = run.find_anchors_of_kind(window.rank, window.spec), run.find_rank_steps(window.rank, window.spec)
    spans = [(mark.start_ns, mark.end_ns) for mark in marks]
    if steps is not None and steps.steps:  # several labels that alternate are one step
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
    """Return why the number of steps is unknown; ``anchor_counts`` are those of each rank's window, None if it cuts an
    anchor.
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
    """Return the periods of the steady anchors in ns, without the first anchor after the window."""
    end = window.end_ns if window.spec.is_whole_run else window.window.end_ns
    first_after = bisect_left(window.anchors, end, key=lambda anchor: anchor.start_ns)
    # During that period the profiler writes what it recorded in the window.
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
    total = sums.total  # raises first if the number of steps is unknown
    step = sums.step_time
    return None if step is None else simplify_fraction(Fraction(step.length_ns) - total.time_ns)
