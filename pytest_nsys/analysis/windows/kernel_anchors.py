"""In which order were the kernels of a rank launched, and which windows does one make that begins each step?

A CUDA graph is one launch of many kernels: only the first kernel of a launch can begin anything. A step goes from one
start to the next, whatever it holds: one with twice the kernels is what a gate looks for.
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
"""Of a rank's kernels: where more have no launch on record, they are ordered by when they started."""


STARTS_A_STEP = 2
"""Of a kernel by turns with other work after it: it came to start twice in each step, and half a step is no step. What
follows more starts in turns, as a validation every third step, the search tells from steps.
"""

SHOWN = 3


class LaunchedKernels(NamedTuple):
    """All kernels of a rank, and the start of the launch of each."""

    kernels: Kernels
    launch_ns: Column


@dataclass(frozen=True, slots=True)
class KernelOrder:
    """The kernels of a rank in the order of their launches; where ``launched`` is false, of their starts.

    ``kernels`` are indices into those of ``track``, without what has no launch on record; ``at_ns`` is when each was
    launched, or started. ``heads`` are the places among them at which a launch begins. ``name`` holds indices into
    ``names``: (short, demangled), of a file that has one name only that one twice.
    """

    track: RankTrack | LaunchedKernels
    launched: bool
    kernels: Column
    at_ns: Column
    heads: Column
    name: Column
    names: Sequence[tuple[str, str]]

    def name_of(self, place: int) -> tuple[str, str]:
        """(short, demangled) name of the kernel at a place."""
        return self.names[self.name[place]]

    def occurrences(self, anchor: KernelAnchor) -> Column:
        """The places at which a launch begins with the anchor's kernel, and the launch before it with ``after``."""
        named = self._begins_with(anchor.kernel)
        if anchor.after is None:
            return take(self.heads, where(bytearray(named)))
        before = self._begins_with(anchor.after)
        return take(self.heads, where(bytearray([0, *(a & b for a, b in zip(before, named[1:], strict=False))])))

    def _begins_with(self, name: str) -> bytearray:
        """By launch 1 where its first kernel has the name, short or demangled."""
        return take(bytearray(name in both for both in self.names), take(self.name, self.heads))


def kernel_order(track: RankTrack | LaunchedKernels) -> KernelOrder:
    """The kernels of a rank, whose track holds one at least, by (launch, start, stream, name)."""
    kernels = track.kernels
    without = equal(track.launch_ns, NO_LAUNCH)
    launched = total(without) <= MOST_UNLAUNCHED * len(kernels)
    own = where_not(without) if launched else array("q", range(len(kernels)))
    at_ns = take(track.launch_ns if launched else kernels.start_ns, own)
    numbers, rows = distinct(kernels.name, kernels.full_name)
    names = [(kernels.names[short], kernels.names.get(full) or kernels.names[short]) for short, full in rows]
    place = {text: i for i, text in enumerate(sorted(full for _, full in names))}
    spelled = take(array("q", [place[full] for _, full in names]), numbers)
    found = order(at_ns, *(take(column, own) for column in (kernels.start_ns, kernels.stream, spelled)))
    own, at_ns = take(own, found), take(at_ns, found)
    heads = _heads(track, own, at_ns, launched)
    return KernelOrder(track, launched, own, at_ns, heads, take(numbers, own), names)


def _heads(track: RankTrack | LaunchedKernels, own: Column, at_ns: Column, launched: bool) -> Column:
    """Kernels of one launch have its time; where no launch is known, the nodes of a graph share its correlation."""
    if launched:
        return where(records(array("q", bytes(8 * len(at_ns))), at_ns))
    node = take(track.kernels.graph_node, own)
    nodes = where(node)
    launches = take(track.kernels.correlation, take(own, nodes))
    by_launch = order(launches)
    launches = take(launches, by_launch)
    firsts = where(records(array("q", bytes(8 * len(launches))), launches))
    return values(chained([where_not(node), take(take(nodes, by_launch), firsts)]))


def steps_of_kernel(anchor: KernelAnchor, ran: LaunchedKernels, *, by_launch: bool) -> RankSteps:
    """Return the steps that begin with the anchor among all kernels of a rank: by launch, or by time on the GPU."""
    ordered = kernel_order(ran)
    if by_launch and not ordered.launched:
        without = share_of(ran.launch_ns.count(NO_LAUNCH), len(ran.launch_ns))
        instead = "kernels: clipped (--kernels=clipped) counts them where they ran"
        return RankSteps((), why=f"{without} of the kernels have no launch row: {instead}")
    found = ordered.occurrences(anchor)
    if len(found) < 2:
        return RankSteps((), why=_why_none(anchor, ordered, len(found)))
    kernels, name = ran.kernels, str(anchor)
    turns, _ = groups_in_turns(kernels, ordered.kernels, [*found, len(ordered.kernels)], most=STARTS_A_STEP)
    found = take(found, array("q", [own[0] for own in turns]))
    last_ns = max(take(kernels.end_ns, ordered.kernels[found[-1] :]))
    starts = take(kernels.start_ns, take(ordered.kernels, found))
    begins = [*accumulate(starts, max), max(last_ns, *starts)]
    edges = take(ordered.at_ns, found) if by_launch else begins[:-1]
    ends = [*edges[1:], max(last_ns, edges[-1] + 1)]
    steps = [StepSpan(start, end, 0, name) for start, end in zip(edges, ends, strict=True)]
    return RankSteps(steps, list(pairwise(begins)))


def _why_none(anchor: KernelAnchor, ordered: KernelOrder, found: int) -> str:
    if found:
        after = "" if anchor.after is None else f" after {_quoted(anchor.after)}"
        return f"kernel {_quoted(anchor.kernel)} starts once{after}, and a window goes from one start to the next"
    names = {ordered.names[i] for i in {*ordered.name}}
    for name in (anchor.kernel, anchor.after):
        if name is not None and not any(name in both for both in names):
            return f"no kernel is called {_quoted(name)}{_meant(anchor, name, names)}"
    heads = [ordered.name_of(head) for head in ordered.heads]
    before = [earlier[0] for earlier, head in pairwise(heads) if anchor.kernel in head]
    if anchor.kernel not in heads[0] and not before:
        return f"{_quoted(anchor.kernel)} is inside of CUDA graphs alone: name the first kernel of the graph"
    told = ", ".join(map(_quoted, list(dict.fromkeys(before))[:SHOWN])) or "nothing"
    return f"{_quoted(anchor.kernel)} never starts after {_quoted(anchor.after or '')}: before it ran {told}"


def _meant(anchor: KernelAnchor, name: str, known: Collection[tuple[str, str]]) -> str:
    """What to type where a screen calls kernels so, else the name that is close to it, exact or as a screen has it."""
    full = sorted({full for _, full in known})
    if own := called_so(name, full):
        anchors = (_instead(anchor, name, shorten_name(each, known)) for each in own[:SHOWN])
        typed = " or ".join(f"--anchor {shlex.quote(written_anchor(each))}" for each in anchors)
        return f", which is short for {counted(len(own), 'name')}: type {typed}"
    told = {*full, *(short for short, _ in known), *readable_names(full).values()}
    return did_you_mean(name, sorted(told)) or ": `pytest-nsys TRACE --view kernels` lists them"


def _instead(anchor: KernelAnchor, name: str, exact: str) -> KernelAnchor:
    return anchor._replace(kernel=exact) if anchor.kernel == name else anchor._replace(after=exact)


def shorten_name(full: str, known: Collection[tuple[str, str]]) -> str:
    """Return a kernel's short name where no other has it, else its demangled one. ``known`` has both of each kernel."""
    short = min(short for short, name in known if name == full)
    return short if len({name for other, name in known if other == short}) == 1 else full


def _quoted(name: str) -> str:
    return f"'{printable(name, 80)}'"
