"""In which order were the kernels of a rank launched, and which steps begin with a kernel that is the anchor?

A CUDA graph is one launch of many kernels, so only the first kernel of a launch can begin a step. A step lasts from one
start to the next, whatever lies between: a step with twice the kernels is exactly what a gate looks for.
"""

from __future__ import annotations

import shlex
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from pytest_nsys.analysis.windows.rank_steps import group_alternating_steps
from pytest_nsys.analysis.windows.rank_track import RankTrack
from pytest_nsys.analysis.windows.window_selection import RankSteps, StepSpan
from pytest_nsys.core.columns import (
    Column,
    concatenate_columns,
    find_distinct_rows,
    find_nonzero,
    find_zeros,
    list_distinct,
    mark_equal,
    mark_records,
    sort_indices,
    sum_column,
    take,
)
from pytest_nsys.core.conventions import KernelAnchor, format_anchor
from pytest_nsys.core.errors import suggest_word
from pytest_nsys.core.kernel_names import make_display_names, match_display_name
from pytest_nsys.core.model import NO_LAUNCH
from pytest_nsys.core.numbers import format_percent_of
from pytest_nsys.core.tables import Kernels
from pytest_nsys.core.text_format import format_count, sanitize_line

MAX_UNLAUNCHED_SHARE = Fraction(1, 10)
"""The maximum share of a rank's kernels without a launch row at which kernels are still ordered by launch."""


# A kernel may come to start twice in each step, with different work after each start; half a step is no step. Longer
# cycles, such as a validation every third step, are left to the search for steps.
MAX_STARTS_PER_STEP = 2
"""The maximum number of starts of one kernel that are joined into one step."""

MAX_SHOWN_KERNEL_NAMES = 3


class KernelLaunches(NamedTuple):
    """Holds all kernels of a rank and, in the same order, the start of each one's launch in ns."""

    kernels: Kernels
    launch_ns: Column  # NO_LAUNCH if none is on record


@dataclass(frozen=True, slots=True)
class KernelOrder:
    """Holds the kernels of a rank in the order in which they were launched or started."""

    track: RankTrack | KernelLaunches
    is_by_launch: bool  # whether sorted by launch; else by start
    kernels: Column  # indices into the track's kernels; by launch, only of kernels with a launch
    times_ns: Column  # when each was launched or, if not by launch, started
    launch_heads: Column  # positions at which a launch begins
    name_codes: Column  # by kernel an index into names
    names: Sequence[tuple[str, str]]  # (short, demangled); both the same if a file has only one

    def get_names(self, position: int) -> tuple[str, str]:
        """Return the (short, demangled) name of the kernel at a position of the order."""
        return self.names[self.name_codes[position]]

    def find_occurrences(self, anchor: KernelAnchor) -> Column:
        """Return the positions of launches whose first kernel is the anchor's, ascending."""
        is_anchor = self._flag_heads_named(anchor.kernel)
        if anchor.after is None:
            return take(self.launch_heads, find_nonzero(bytearray(is_anchor)))
        is_predecessor = self._flag_heads_named(anchor.after)
        return take(
            self.launch_heads,
            find_nonzero(bytearray([0, *(a & b for a, b in zip(is_predecessor, is_anchor[1:], strict=False))])),
        )

    def _flag_heads_named(self, name: str) -> bytearray:
        """Return a flag per launch: 1 if its first kernel has this short or demangled name."""
        return take(
            bytearray(name in kernel_names for kernel_names in self.names), take(self.name_codes, self.launch_heads)
        )


def order_kernels(track: RankTrack | KernelLaunches) -> KernelOrder:
    """Sort the kernels of a rank, which has at least one, by (launch, start, stream, name)."""
    kernels = track.kernels
    is_unlaunched = mark_equal(track.launch_ns, NO_LAUNCH)
    is_by_launch = sum_column(is_unlaunched) <= MAX_UNLAUNCHED_SHARE * len(kernels)
    indices = find_zeros(is_unlaunched) if is_by_launch else array("q", range(len(kernels)))
    at_ns = take(track.launch_ns if is_by_launch else kernels.start_ns, indices)
    numbers, name_ids = find_distinct_rows(kernels.name, kernels.full_name)
    names = [(kernels.names[short], kernels.names.get(full) or kernels.names[short]) for short, full in name_ids]
    rank_by_name = {text: i for i, text in enumerate(sorted(full for _, full in names))}
    name_ranks = take(array("q", [rank_by_name[full] for _, full in names]), numbers)
    ascending = sort_indices(
        at_ns, *(take(column, indices) for column in (kernels.start_ns, kernels.stream, name_ranks))
    )
    indices, at_ns = take(indices, ascending), take(at_ns, ascending)
    launch_heads = _find_launch_heads(track, indices, at_ns, is_by_launch)
    return KernelOrder(track, is_by_launch, indices, at_ns, launch_heads, take(numbers, indices), names)


def _find_launch_heads(
    track: RankTrack | KernelLaunches, indices: Column, times_ns: Column, is_by_launch: bool
) -> Column:
    """Return the positions of the first kernel of each launch.

    Kernels of one launch share its time. If no launch is known, the nodes of a CUDA graph share its correlation id.
    """
    if is_by_launch:
        return find_nonzero(mark_records(array("q", bytes(8 * len(times_ns))), times_ns))
    graph_nodes = take(track.kernels.graph_node, indices)
    node_positions = find_nonzero(graph_nodes)
    launches = take(track.kernels.correlation, take(indices, node_positions))
    by_launch = sort_indices(launches)
    launches = take(launches, by_launch)
    first_nodes = find_nonzero(mark_records(array("q", bytes(8 * len(launches))), launches))
    return list_distinct(
        concatenate_columns([find_zeros(graph_nodes), take(take(node_positions, by_launch), first_nodes)])
    )


def find_kernel_steps(anchor: KernelAnchor, rank_kernels: KernelLaunches, *, by_launch: bool) -> RankSteps:
    """Find the steps of a rank that begin with the anchor's kernel.

    They begin at its launches or, if ``by_launch`` is false, at its starts on the GPU.
    """
    sequence = order_kernels(rank_kernels)
    if by_launch and not sequence.is_by_launch:
        unlaunched_share = format_percent_of(rank_kernels.launch_ns.count(NO_LAUNCH), len(rank_kernels.launch_ns))
        advice = "kernels: clipped (--kernels=clipped) counts them where they ran"
        return RankSteps((), missing_reason=f"{unlaunched_share} of the kernels have no launch row: {advice}")
    occurrences = sequence.find_occurrences(anchor)
    if len(occurrences) < 2:
        return RankSteps((), missing_reason=_explain_no_steps(anchor, sequence, len(occurrences)))
    kernels, name = rank_kernels.kernels, str(anchor)
    groups, _ = group_alternating_steps(
        kernels, sequence.kernels, [*occurrences, len(sequence.kernels)], max_group_size=MAX_STARTS_PER_STEP
    )
    occurrences = take(occurrences, array("q", [group[0] for group in groups]))
    last_ns = max(take(kernels.end_ns, sequence.kernels[occurrences[-1] :]))
    starts = take(kernels.start_ns, take(sequence.kernels, occurrences))
    gpu_begins = [*accumulate(starts, max), max(last_ns, *starts)]
    host_begins = take(sequence.times_ns, occurrences) if by_launch else gpu_begins[:-1]
    # A window needs a length, so the last step has at least 1 ns.
    host_ends = [*host_begins[1:], max(last_ns, host_begins[-1] + 1)]
    steps = [StepSpan(start, end, 0, name) for start, end in zip(host_begins, host_ends, strict=True)]
    return RankSteps(steps, list(pairwise(gpu_begins)))


def _explain_no_steps(anchor: KernelAnchor, sequence: KernelOrder, occurrence_count: int) -> str:
    """Explain why a kernel anchor gives no steps: the kernel is missing, starts only once, or lies inside CUDA
    graphs.
    """
    if occurrence_count:
        after = "" if anchor.after is None else f" after {_quote_kernel(anchor.after)}"
        return f"kernel {_quote_kernel(anchor.kernel)} starts once{after}, and a window goes from one start to the next"
    names = {sequence.names[i] for i in {*sequence.name_codes}}
    for name in (anchor.kernel, anchor.after):
        if name is not None and not any(name in kernel_names for kernel_names in names):
            return f"no kernel is called {_quote_kernel(name)}{_suggest_kernel_name(anchor, name, names)}"
    head_names = [sequence.get_names(head) for head in sequence.launch_heads]
    predecessors = [earlier[0] for earlier, head in pairwise(head_names) if anchor.kernel in head]
    if anchor.kernel not in head_names[0] and not predecessors:
        return f"{_quote_kernel(anchor.kernel)} is inside of CUDA graphs alone: name the first kernel of the graph"
    predecessor_text = (
        ", ".join(map(_quote_kernel, list(dict.fromkeys(predecessors))[:MAX_SHOWN_KERNEL_NAMES])) or "nothing"
    )
    return (
        f"{_quote_kernel(anchor.kernel)} never starts after {_quote_kernel(anchor.after or '')}: before it ran "
        f"{predecessor_text}"
    )


def _suggest_kernel_name(anchor: KernelAnchor, name: str, known_names: Collection[tuple[str, str]]) -> str:
    """Suggest what to type instead of a kernel name that matches nothing, as the end of a sentence.

    A name copied from a report may be short for several exact names, which are then spelled as ``--anchor`` options.
    Otherwise the closest name is suggested, in its exact form or as reports show it.
    """
    full_names = sorted({full for _, full in known_names})
    if matching_names := match_display_name(name, full_names):
        anchors = (
            _replace_name(anchor, name, shorten_name(matching_name, known_names))
            for matching_name in matching_names[:MAX_SHOWN_KERNEL_NAMES]
        )
        options = " or ".join(f"--anchor {shlex.quote(format_anchor(matching_name))}" for matching_name in anchors)
        return f", which is short for {format_count(len(matching_names), 'name')}: type {options}"
    candidates = {*full_names, *(short for short, _ in known_names), *make_display_names(full_names).values()}
    return suggest_word(name, sorted(candidates)) or ": `pytest-nsys TRACE --view kernels` lists them"


def _replace_name(anchor: KernelAnchor, name: str, exact_name: str) -> KernelAnchor:
    return anchor._replace(kernel=exact_name) if anchor.kernel == name else anchor._replace(after=exact_name)


def shorten_name(full_name: str, known_names: Collection[tuple[str, str]]) -> str:
    """Return a kernel's short name if no other kernel has it, else its demangled one.

    ``known_names`` holds the (short, demangled) name of each kernel.
    """
    short_name = min(short for short, name in known_names if name == full_name)
    return short_name if len({name for short, name in known_names if short == short_name}) == 1 else full_name


def _quote_kernel(name: str) -> str:
    return f"'{sanitize_line(name, 80)}'"
