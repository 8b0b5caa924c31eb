"""What ran after a time, until compute came next? Read in steps, each longer than the one before."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from pytest_nsys.analysis.around import LONGEST_NS, Around
from pytest_nsys.core.columns import exceeds, take, where_not
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.model import OPEN_END_NS, Interval, Lane, Trace
from pytest_nsys.core.tables import Kernels

_SHORTEST_NS, _LONGER = 1_000_000, 8


def until_compute(trace: Trace, convention: Convention, ends: Mapping[Lane, int], first_ns: int) -> Around:
    """What started on each lane after a time, at least until a compute kernel that takes time, or to the end.

    ``first_ns``: how far ahead to look first.
    """
    reach = dict.fromkeys(ends, max(first_ns, _SHORTEST_NS))
    found: dict[Lane, Kernels] = {}
    read: dict[Lane, Interval | None] = {}
    while reach:
        ahead = {lane: (ends[lane], min(ends[lane] + own, LONGEST_NS)) for lane, own in reach.items()}
        new = {lane: _after(own, ahead[lane][0]) for lane, own in trace.kernels(dict(ahead)).items()}
        found.update(new)
        read.update(ahead)
        step = Around(trace, convention, new)
        short = {lane: end for lane, (_, end) in ahead.items() if not _computes(step, lane) and end < LONGEST_NS}
        nothing = trace.idle({lane: [(end, OPEN_END_NS)] for lane, end in short.items()}) if short else {}
        reach = {lane: reach[lane] * _LONGER for lane in short if lane not in nothing}
    after = Around(trace, convention, found, read)
    if after.transfers is not None:
        after.transfers = {lane: _after(own, ends[lane]) for lane, own in after.transfers.items()}
    return after


def _after(kernels: Kernels, moment: int) -> Kernels:
    return kernels.take(range(bisect_right(kernels.start_ns, moment), len(kernels)))


def _computes(step: Around, lane: Lane) -> bool:
    kernels = step.kernels.get(lane)
    if kernels is None or not len(kernels):
        return False
    own = where_not(step.communicating(lane)[0])
    return exceeds(take(kernels.end_ns, own), take(kernels.start_ns, own))
