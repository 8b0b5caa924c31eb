"""Which span of a rank is analysed? The same trace always gives the same window, so before and after compare.

The default is the anchor at index n // 2 of all anchors of the rank. Other picks: an index, ``first``, ``last``,
``steady`` (the middle half, the median over its windows being the value), ``run`` (first kernel to end of last), an
explicit span, or a range name (its ranges then are the anchors).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import NothingMeasured, did_you_mean
from pytest_nsys.core.model import KernelsMode, Range, Span, Window
from pytest_nsys.core.words import counted, printable

MEDIAN = "median"
RUN = "run"
STEADY = "steady"
_EXPLICIT = re.compile(r"(-?\d+):(-?\d+)")
WORDS = (MEDIAN, RUN, STEADY, "first", "last")
NONE = ""
"""The window of what was measured outside of a trace."""


def meant_word(window: str) -> str:
    """A hint where ``window`` is nearly a word, and so no name of a range; a pattern (``%``) is one."""
    return "" if window in WORDS or "%" in window else did_you_mean(window, WORDS, cutoff=0.75)


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """What to analyse, and which kernels count as in it. ``window`` as in a gate file: word, index, span or name."""

    window: str = MEDIAN
    span: Span = Span.RANGE
    kernels: KernelsMode = KernelsMode.CONTAINED

    @property
    def whole_run(self) -> bool:
        return self.window == RUN

    @property
    def outside(self) -> bool:
        """Whether there is no window at all: nothing of a trace is looked at."""
        return self.window == NONE

    @property
    def explicit(self) -> tuple[int, int] | None:
        """(start_ns, end_ns) where the window is given as ``START:END``."""
        match = _EXPLICIT.fullmatch(self.window)
        return (int(match[1]), int(match[2])) if match else None

    @property
    def index(self) -> int | None:
        return int(self.window) if self.window.isascii() and self.window.isdigit() else None

    @property
    def anchor(self) -> str | None:
        """The range name that stands in for the convention's anchor, where the window is given by name."""
        if self.window in WORDS or self.explicit or self.index is not None:
            return None
        return self.window

    def __str__(self) -> str:
        if self.outside:
            return "measured outside of a trace"
        span = "" if self.span is Span.RANGE or self.whole_run or self.explicit else f", span {self.span}"
        kernels = "all kernels" if self.whole_run else f"kernels {self.kernels}"
        return f"window {printable(self.window)}{span}, {kernels}"


OUTSIDE = WindowSpec(NONE)
"""The spec of what was measured outside of a trace."""


@dataclass(frozen=True, slots=True)
class UsedWindow:
    """The window that one rank of one capture was judged on."""

    capture: int
    rank: int
    window: Window


def spec_under(
    convention: Convention, window: str, span: Span | None = None, kernels: KernelsMode | None = None
) -> WindowSpec:
    """A window spec, with what is left open as the convention has it."""
    asked = WindowSpec(window, span or convention.span, kernels or convention.kernels)
    if asked.whole_run:
        return WindowSpec(RUN)  # has neither anchors nor edges: however it is asked for, it is read once
    return replace(asked, span=Span.RANGE) if asked.explicit else asked


def steady_indices(count: int) -> range:
    """The middle half of the anchors: [n // 4, n − n // 4)."""
    return range(count // 4, count - count // 4)


def anchor_windows(anchors: Sequence[Range], spec: WindowSpec) -> list[Window]:
    """The picked windows of one rank, from its anchors ordered by start.

    Raises NothingMeasured where an index does not exist, or the period of the last anchor is asked for.
    """
    count = len(anchors)
    indices: Sequence[int]
    match spec.window:
        case "first":
            indices = [0]
        case "last":
            indices = [count - 1]
        case "steady":
            indices = steady_indices(count)
        case _:
            indices = [count // 2 if spec.index is None else spec.index]
    return [_anchor_window(anchors, i, spec.span) for i in indices]


def _anchor_window(anchors: Sequence[Range], index: int, span: Span) -> Window:
    count = len(anchors)
    if index >= count:
        raise NothingMeasured(f"there is no anchor {index}: the rank has {counted(count, 'anchor')}, numbered from 0")
    anchor = anchors[index]
    end = anchor.end_ns
    if span is Span.PERIOD:
        if index + 1 >= count:
            raise NothingMeasured(
                f"anchor {index} of {count} has no successor, so it has no period: use span: range, or an earlier index"
            )
        end = anchors[index + 1].start_ns
    return Window(anchor.start_ns, end, anchor.name, index, count)


def span_lengths(anchors: Sequence[Range], span: Span) -> list[int]:
    """Window length of each anchor; with span period the last anchor has none."""
    if span is Span.RANGE:
        return [a.end_ns - a.start_ns for a in anchors]
    return periods(anchors)


def periods(anchors: Sequence[Range]) -> list[int]:
    """Start of each next anchor minus start of the anchor."""
    return [b.start_ns - a.start_ns for a, b in pairwise(anchors)]
