"""In which order are the streams of a rank shown, under which names, and which parts of communication are exposed?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pytest_nsys.analysis.rank_window import RankWindow, StreamUse
from pytest_nsys.core.conventions import COMPUTE
from pytest_nsys.core.model import Interval, stream_labels


class NamedStream(NamedTuple):
    """A stream as people read it: ``stream 28``, with device and context where two streams share the number."""

    name: str
    use: StreamUse

    @property
    def computes(self) -> bool:
        return self.use.purpose == COMPUTE


def in_order(uses: Iterable[StreamUse]) -> list[NamedStream]:
    """The streams with their names, those that compute first."""
    known = sorted(uses, key=lambda use: (use.purpose != COMPUTE, use.stream))
    labels = stream_labels(use.stream for use in known)
    return [NamedStream(f"stream {labels[use.stream]}", use) for use in known]


def exposed_parts(w: RankWindow) -> Iterator[tuple[int, Interval]]:
    """The parts of each communication kernel during which no compute ran, with its index in the window.

    Their lengths sum to ``exposed_ns``.
    """
    for i, (start, end) in zip(w.communication, w.spans(w.communication), strict=True):
        for gap in w.compute_time.uncovered(start, end):
            yield i, gap
