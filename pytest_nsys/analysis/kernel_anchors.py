"""In which order were the kernels of a rank launched, and where among them does a kernel begin a window?

A CUDA graph is one launch of many kernels: only the first kernel of a launch can begin anything.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from fractions import Fraction

from pytest_nsys.analysis.around import RankTrack
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
from pytest_nsys.core.conventions import KernelAnchor
from pytest_nsys.core.model import NO_LAUNCH

MOST_UNLAUNCHED = Fraction(1, 10)
"""Of a rank's kernels: where more have no launch on record, they are ordered by when they started."""


@dataclass(frozen=True, slots=True)
class KernelOrder:
    """The kernels of a rank in the order of their launches; where ``launched`` is false, of their starts.

    ``kernels`` are indices into those of ``track``, without what has no launch on record; ``at_ns`` is when each was
    launched, or started. ``heads`` are the places among them at which a launch begins.
    """

    track: RankTrack
    launched: bool
    kernels: Column
    at_ns: Column
    heads: Column

    def name_of(self, place: int) -> tuple[str, str]:
        """(short, demangled) name of the kernel at a place; of a file that has one name only, that one twice."""
        kernels, i = self.track.kernels, self.kernels[place]
        short = kernels.names[kernels.name[i]]
        return short, kernels.names.get(kernels.full_name[i]) or short

    def occurrences(self, anchor: KernelAnchor) -> Column:
        """The places at which a launch begins with the anchor's kernel, and the launch before it with ``after``."""
        named = self._begins_with(anchor.kernel)
        if anchor.after is None:
            return take(self.heads, where(bytearray(named)))
        before = self._begins_with(anchor.after)
        return take(self.heads, where(bytearray([0, *(a & b for a, b in zip(before, named[1:], strict=False))])))

    def _begins_with(self, name: str) -> bytearray:
        """By launch 1 where its first kernel has the name, short or demangled."""
        kernels = self.track.kernels
        first = take(self.kernels, self.heads)
        numbers, rows = distinct(take(kernels.name, first), take(kernels.full_name, first))
        has = bytearray(name in (kernels.names[short], kernels.names.get(full)) for short, full in rows)
        return take(has, numbers)


def kernel_order(track: RankTrack) -> KernelOrder:
    """The kernels of a rank, whose track holds one at least, by (launch, start, stream, name)."""
    kernels = track.kernels
    without = equal(track.launch_ns, NO_LAUNCH)
    launched = total(without) <= MOST_UNLAUNCHED * len(kernels)
    own = where_not(without) if launched else array("q", range(len(kernels)))
    at_ns = take(track.launch_ns if launched else kernels.start_ns, own)
    numbers, rows = distinct(kernels.name, kernels.full_name)
    texts = [kernels.names.get(full) or kernels.names[short] for short, full in rows]
    place = {text: i for i, text in enumerate(sorted(texts))}
    spelled = take(array("q", [place[text] for text in texts]), numbers)
    found = order(at_ns, *(take(column, own) for column in (kernels.start_ns, kernels.stream, spelled)))
    own, at_ns = take(own, found), take(at_ns, found)
    return KernelOrder(track, launched, own, at_ns, _heads(track, own, at_ns, launched))


def _heads(track: RankTrack, own: Column, at_ns: Column, launched: bool) -> Column:
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
