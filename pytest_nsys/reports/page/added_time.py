"""Where in the head's window was the time added that makes it longer than the base's?

The kernels that both windows run, equally often, say how much later than in the base each moment of the head is. Where
it becomes later than ever before, time was added.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise

from pytest_nsys.analysis.budget.timeline import Bar, Timeline
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Interval

MIN_ADDED_SHARE = Fraction(1, 200)
"""Less than this share of the head's window is not shown as added: lengths of kernels vary that much."""

Moments = tuple[int, int]
"""The same moment in base and head, each since the window's start."""


def list_added_spans(base: Timeline, head: Timeline) -> Iterator[Interval]:
    """Yield the spans of the head's window, since its start, by which it falls behind the base."""
    latest_ns = previous_end_ns = 0
    for base_ns, head_ns in [*_match_moments(base, head), (base.length_ns, head.length_ns)]:
        late_ns = head_ns - base_ns
        if late_ns - latest_ns >= MIN_ADDED_SHARE * head.length_ns:
            yield max(head_ns - (late_ns - latest_ns), previous_end_ns), head_ns
            latest_ns, previous_end_ns = late_ns, head_ns


def _match_moments(base: Timeline, head: Timeline) -> list[Moments]:
    """Return when each kernel of compute that both windows run equally often began and ended, in order."""
    bars_of_base, bars_of_head = (_group_compute_bars(timeline) for timeline in (base, head))
    pairs = [
        pair
        for key, bars in bars_of_base.items()
        if len(bars) == len(bars_of_head.get(key, ()))
        for pair in zip(bars, bars_of_head[key], strict=True)
    ]
    pairs.sort(key=lambda pair: (pair[0].start_ns, pair[1].start_ns))
    moments = [
        (base_ns - base.start_ns, head_ns - head.start_ns)
        for before, now in _select_in_order(pairs)
        for base_ns, head_ns in ((before.start_ns, now.start_ns), (before.end_ns, now.end_ns))
    ]
    # Streams compute beside each other: a moment that lies before the one above it says nothing new.
    return moments[:1] + [
        later for earlier, later in pairwise(moments) if later[0] >= earlier[0] and later[1] >= earlier[1]
    ]


def _group_compute_bars(timeline: Timeline) -> dict[tuple[str, str], list[Bar]]:
    """Return the kernels of compute by name and stage, each group by start."""
    bars = [bar for lane in timeline.lanes if lane.kind == "compute" for bar in lane.bars if bar.kernel_count == 1]
    bars.sort(key=lambda bar: bar.start_ns)
    return group_by_key(((bar.stable_name or bar.name, bar.stage), bar) for bar in bars)


def _select_in_order(pairs: Sequence[tuple[Bar, Bar]]) -> list[tuple[Bar, Bar]]:
    """Return the most pairs that begin in the same order in the head: the others were moved."""
    last_starts: list[int] = []  # of the best selection of each length, the head's start of its last pair
    last_indices: list[int] = []
    previous_index: list[int] = []
    for index, (_, now) in enumerate(pairs):
        length = bisect_left(last_starts, now.start_ns)
        previous_index.append(last_indices[length - 1] if length else -1)
        last_starts[length : length + 1] = [now.start_ns]
        last_indices[length : length + 1] = [index]
    selected, index = [], last_indices[-1] if last_indices else -1
    while index >= 0:
        selected.append(pairs[index])
        index = previous_index[index]
    return selected[::-1]
