"""For what was a kernel launched? The innermost range around its launch that says so, found by one sweep.

Rule: of the ranges of the process that contain the launch time, on any thread (the autograd thread launches backward
kernels inside the main thread's ranges), the one of smallest span that carries a stage or a purpose. There is no cap on
how far back it may have started. A kernel without a launch row is looked up at its GPU start.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.model import Range

Context = tuple[str, str | None]
"""(stage, purpose); the purpose is None where the convention names none."""

NO_CONTEXT: Context = (NO_STAGE, None)


class Lookup(NamedTuple):
    """``contexts``, one for each time asked for, and how many of those times ranges of two threads claimed."""

    contexts: list[Context]
    claimed_twice: int


def look_up(ranges: Sequence[Range], times_ns: Sequence[int], context: Callable[[str], Context | None]) -> Lookup:
    """The context at each time. ``ranges`` ordered by start, of one process; ``times_ns`` in any order.

    Between ranges of equal span the later start wins, then the later name: a stable order.
    """
    said = [(r, c) for r in ranges if (c := context(r.name)) is not None]
    found = [NO_CONTEXT] * len(times_ns)
    open_ranges: list[tuple[int, int, int, int, Context]] = []  # (span, −start, −order, end, context)
    closing: list[tuple[int, int]] = []  # (end, thread)
    open_on: Counter[int] = Counter()
    claimed_twice = 0
    upcoming = 0
    for i in sorted(range(len(times_ns)), key=times_ns.__getitem__):
        now = times_ns[i]
        while upcoming < len(said) and said[upcoming][0].start_ns <= now:
            r, c = said[upcoming]
            heapq.heappush(open_ranges, (r.end_ns - r.start_ns, -r.start_ns, -upcoming, r.end_ns, c))
            heapq.heappush(closing, (r.end_ns, r.thread))
            open_on[r.thread] += 1
            upcoming += 1
        while closing and closing[0][0] < now:
            _, thread = heapq.heappop(closing)
            open_on[thread] -= 1
            if not open_on[thread]:
                del open_on[thread]
        while open_ranges and open_ranges[0][3] < now:
            heapq.heappop(open_ranges)
        if open_ranges:
            found[i] = open_ranges[0][4]
            claimed_twice += len(open_on) > 1
    return Lookup(found, claimed_twice)
