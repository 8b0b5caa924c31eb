"""In which order were the kernels of a rank launched, and which windows does one kernel mark that begins each step?

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

from pytest_nsys.analysis.windows.rank_steps import groups_in_turns
from pytest_nsys.analysis.windows.spans import RankSteps, StepSpan
from pytest_nsys.analysis.windows.tracks import RankTrack
from pytest_nsys.core.columns import (
    Column,
    chained,
    distinct,
    equal,
    order,
    records,
    take,
    total,
    values,
    where,
    where_not,
)
from pytest_nsys.core.conventions import KernelAnchor, written_anchor
from pytest_nsys.core.errors import did_you_mean
from pytest_nsys.core.kernel_names import called_so, readable_names
from pytest_nsys.core.model import NO_LAUNCH
from pytest_nsys.core.numbers import share_of
from pytest_nsys.core.tables import Kernels
from pytest_nsys.core.words import counted, printable

MOST_UNLAUNCHED = Fraction(1, 10)
"""The largest share of a rank's kernels without a launch row at which kernels are still ordered by their launches."""


# Of a kernel by turns with other work after it: it came to start twice in each step, and half a step is no step. What
# follows more starts in turns, as a validation every third step, the search tells from steps.
STARTS_A_STEP = 2
"""The most starts of one kernel in a step that are joined into one step."""

SHOWN = 3


class LaunchedKernels(NamedTuple):
    """Holds all kernels of a rank, and by index the start of each one's launch in ns."""

    kernels: Kernels
    launch_ns: Column  # NO_LAUNCH where none is on record


@dataclass(frozen=True, slots=True)
class KernelOrder:
    """Describes the kernels of a rank in the order in which they were launched, or started."""

    track: RankTrack | LaunchedKernels
    launched: bool  # whether sorted by launch; else by start
    kernels: Column  # indices into the kernels of the track, without what has no launch on record
    at_ns: Column  # when each was launched, or started
    heads: Column  # positions at which a launch begins
    name: Column  # index into names of each kernel
    names: Sequence[tuple[str, str]]  # (short, demangled); the same one twice where a file has one name only

    def name_of(self, place: int) -> tuple[str, str]:
        """Return the (short, demangled) name of the kernel at a position of the order."""
        return self.names[self.name[place]]

    def occurrences(self, anchor: KernelAnchor) -> Column:
        """Return the positions at which a launch begins with the anchor's kernel, ascending.

        An anchor with ``after`` also needs the launch before to begin with that kernel.
        """
        is_anchor = self._begins_with(anchor.kernel)
        if anchor.after is None:
            return take(self.heads, where(bytearray(is_anchor)))
        is_predecessor = self._begins_with(anchor.after)
        return take(
            self.heads, where(bytearray([0, *(a & b for a, b in zip(is_predecessor, is_anchor[1:], strict=False))]))
        )

    def _begins_with(self, name: str) -> bytearray:
        """Return, per launch, 1 where its first kernel has the name, short or demangled."""
        return take(bytearray(name in kernel_names for kernel_names in self.names), take(self.name, self.heads))


def kernel_order(track: RankTrack | LaunchedKernels) -> KernelOrder:
    """Sort the kernels of a rank, of which there is at least one, by (launch, start, stream, name)."""
    kernels = track.kernels
    is_unlaunched = equal(track.launch_ns, NO_LAUNCH)
    is_by_launch = total(is_unlaunched) <= MOST_UNLAUNCHED * len(kernels)
    indices = where_not(is_unlaunched) if is_by_launch else array("q", range(len(kernels)))
    at_ns = take(track.launch_ns if is_by_launch else kernels.start_ns, indices)
    numbers, name_ids = distinct(kernels.name, kernels.full_name)
    names = [(kernels.names[short], kernels.names.get(full) or kernels.names[short]) for short, full in name_ids]
    rank_by_name = {text: i for i, text in enumerate(sorted(full for _, full in names))}
    name_ranks = take(array("q", [rank_by_name[full] for _, full in names]), numbers)
    ascending = order(at_ns, *(take(column, indices) for column in (kernels.start_ns, kernels.stream, name_ranks)))
    indices, at_ns = take(indices, ascending), take(at_ns, ascending)
    launch_heads = _heads(track, indices, at_ns, is_by_launch)
    return KernelOrder(track, is_by_launch, indices, at_ns, launch_heads, take(numbers, indices), names)


def _heads(track: RankTrack | LaunchedKernels, own: Column, at_ns: Column, launched: bool) -> Column:
    """Return the positions at which a launch begins.

    Kernels of one launch share its time. Where no launch is known, the nodes of a graph share its correlation id.
    """
    if launched:
        return where(records(array("q", bytes(8 * len(at_ns))), at_ns))
    graph_nodes = take(track.kernels.graph_node, own)
    node_positions = where(graph_nodes)
    launches = take(track.kernels.correlation, take(own, node_positions))
    by_launch = order(launches)
    launches = take(launches, by_launch)
    first_nodes = where(records(array("q", bytes(8 * len(launches))), launches))
    return values(chained([where_not(graph_nodes), take(take(node_positions, by_launch), first_nodes)]))


def steps_of_kernel(anchor: KernelAnchor, ran: LaunchedKernels, *, by_launch: bool) -> RankSteps:
    """Find the steps that begin with the anchor's kernel among all kernels of a rank.

    The steps begin at its launches, or at its starts on the GPU where ``by_launch`` is false.
    """
    sequence = kernel_order(ran)
    if by_launch and not sequence.launched:
        unlaunched_share = share_of(ran.launch_ns.count(NO_LAUNCH), len(ran.launch_ns))
        advice = "kernels: clipped (--kernels=clipped) counts them where they ran"
        return RankSteps((), why=f"{unlaunched_share} of the kernels have no launch row: {advice}")
    occurrences = sequence.occurrences(anchor)
    if len(occurrences) < 2:
        return RankSteps((), why=_why_none(anchor, sequence, len(occurrences)))
    kernels, name = ran.kernels, str(anchor)
    groups, _ = groups_in_turns(kernels, sequence.kernels, [*occurrences, len(sequence.kernels)], most=STARTS_A_STEP)
    occurrences = take(occurrences, array("q", [group[0] for group in groups]))
    last_ns = max(take(kernels.end_ns, sequence.kernels[occurrences[-1] :]))
    starts = take(kernels.start_ns, take(sequence.kernels, occurrences))
    gpu_begins = [*accumulate(starts, max), max(last_ns, *starts)]
    host_begins = take(sequence.at_ns, occurrences) if by_launch else gpu_begins[:-1]
    # A window of no length is none: the last one has at least 1 ns.
    host_ends = [*host_begins[1:], max(last_ns, host_begins[-1] + 1)]
    steps = [StepSpan(start, end, 0, name) for start, end in zip(host_begins, host_ends, strict=True)]
    return RankSteps(steps, list(pairwise(gpu_begins)))


def _why_none(anchor: KernelAnchor, ordered: KernelOrder, found: int) -> str:
    """Explain why a kernel anchor gives no steps: its kernel is missing, starts once, or lies inside CUDA graphs."""
    if found:
        after = "" if anchor.after is None else f" after {_quoted(anchor.after)}"
        return f"kernel {_quoted(anchor.kernel)} starts once{after}, and a window goes from one start to the next"
    names = {ordered.names[i] for i in {*ordered.name}}
    for name in (anchor.kernel, anchor.after):
        if name is not None and not any(name in kernel_names for kernel_names in names):
            return f"no kernel is called {_quoted(name)}{_meant(anchor, name, names)}"
    head_names = [ordered.name_of(head) for head in ordered.heads]
    predecessors = [earlier[0] for earlier, head in pairwise(head_names) if anchor.kernel in head]
    if anchor.kernel not in head_names[0] and not predecessors:
        return f"{_quoted(anchor.kernel)} is inside of CUDA graphs alone: name the first kernel of the graph"
    predecessor_text = ", ".join(map(_quoted, list(dict.fromkeys(predecessors))[:SHOWN])) or "nothing"
    return (
        f"{_quoted(anchor.kernel)} never starts after {_quoted(anchor.after or '')}: before it ran {predecessor_text}"
    )


def _meant(anchor: KernelAnchor, name: str, known: Collection[tuple[str, str]]) -> str:
    """Suggest what to type for a kernel name that matches nothing, as the end of a sentence.

    A name that a screen shows is short for one or more exact names, which are then spelled as ``--anchor`` options;
    otherwise the closest name is suggested, exact or as a screen shows it.
    """
    full_names = sorted({full for _, full in known})
    if matching_names := called_so(name, full_names):
        anchors = (
            _instead(anchor, name, shorten_name(matching_name, known)) for matching_name in matching_names[:SHOWN]
        )
        options = " or ".join(f"--anchor {shlex.quote(written_anchor(matching_name))}" for matching_name in anchors)
        return f", which is short for {counted(len(matching_names), 'name')}: type {options}"
    candidates = {*full_names, *(short for short, _ in known), *readable_names(full_names).values()}
    return did_you_mean(name, sorted(candidates)) or ": `pytest-nsys TRACE --view kernels` lists them"


def _instead(anchor: KernelAnchor, name: str, exact: str) -> KernelAnchor:
    return anchor._replace(kernel=exact) if anchor.kernel == name else anchor._replace(after=exact)


def shorten_name(full: str, known: Collection[tuple[str, str]]) -> str:
    """Return a kernel's short name where no other kernel has it, else its demangled one.

    ``known_names`` holds the (short, demangled) name of each kernel.
    """
    short_name = min(short for short, name in known if name == full)
    return short_name if len({name for short, name in known if short == short_name}) == 1 else full


def _quoted(name: str) -> str:
    return f"'{printable(name, 80)}'"
