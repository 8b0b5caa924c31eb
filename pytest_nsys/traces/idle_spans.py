"""In which spans of time does nothing run? Most hold many kernels, and one of them is soon found."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter

from pytest_nsys.core.model import Interval, Lane

AT_ONCE = 32
"""So many lanes are looked for in the same rows."""

Busy = Callable[[Sequence[Lane], Interval], Collection[Lane]]
"""Those lanes of some on which a kernel runs in a span, as far as a quick look sees it."""


def idle(
    spans: Mapping[Lane, Sequence[Interval]],
    busy: Busy,
    times: Callable[[Mapping[Lane, Interval]], Mapping[Lane, Iterable[Interval]]],
) -> Mapping[Lane, Sequence[Interval]]:
    """Those of the spans, by start, in which no kernel of the lane runs.

    Ranks mostly do the same at the same time: they are looked at together. ``times`` are of all kernels that touch
    a span, for the spans that are left.
    """
    left: dict[Lane, list[Interval]] = {}
    for together in _groups(spans):
        lanes, own = zip(*together, strict=True)
        found = busy(lanes, (max(low for low, _ in own), min(high for _, high in own)))
        for lane, span in together:
            if lane not in found and (len(lanes) == 1 or lane not in busy([lane], span)):
                left.setdefault(lane, []).append(span)
    kernels = times({lane: (own[0][0], own[-1][1]) for lane, own in left.items()}) if left else {}
    each = {lane: _idle(sorted(kernels.get(lane, ())), own) for lane, own in left.items()}
    return {lane: own for lane, own in each.items() if own}


def _groups(spans: Mapping[Lane, Sequence[Interval]]) -> Iterator[list[tuple[Lane, Interval]]]:
    """All spans, those of several lanes together that have some time in common."""
    group: dict[Lane, Interval] = {}
    until = 0
    each = [(span, lane) for lane, own in spans.items() for span in own]
    for span, lane in sorted(each, key=itemgetter(0)):
        if group and (lane in group or span[0] >= until or len(group) == AT_ONCE):
            yield [*group.items()]
            group = {}
        until = min(until, span[1]) if group else span[1]
        group[lane] = span
    if group:
        yield [*group.items()]


def _idle(kernels: Sequence[Interval], spans: Sequence[Interval]) -> list[Interval]:
    starts = [start for start, _ in kernels]
    latest = [0, *accumulate((end for _, end in kernels), max)]
    return [(low, high) for low, high in spans if not (n := bisect_left(starts, high)) or latest[n] <= low]
