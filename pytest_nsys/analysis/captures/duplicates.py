"""Which ranks hold the same kernels? Then a trace was copied, though not a byte of the copy may be where it was.

A file is written in other bytes by VACUUM, or where a report is exported twice. No two runs of a program take the same
time to the nanosecond. Equal counts say nothing: good runs have them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pytest_nsys.analysis.fact_bounds import ENOUGH
from pytest_nsys.analysis.windows.run import WindowGroup
from pytest_nsys.analysis.windows.tracks import RankTrack
from pytest_nsys.core.columns import minus, total
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.kept import grouped


def find_equal_ranks(one: WindowGroup, other: WindowGroup) -> Iterator[tuple[RankTrack, RankTrack]]:
    """Yield the ranks whose kernels are equal: around the windows, or of few kernels in the whole run. Of one group
    those on two clocks.
    """
    alike = grouped((_measure(track), track) for track in other.tracks.values())
    for track in one.tracks.values():
        for twin in alike.get(_measure(track), ()) if len(track.kernels) else ():
            if (one is other and twin.rank.process.clock <= track.rank.process.clock) or not _is_equal(track, twin):
                continue
            pair = (track, twin) if len(track.kernels) >= ENOUGH else _find_whole(one, track, other, twin)
            if len(pair[0].kernels) >= ENOUGH and _is_equal(*pair):
                yield pair


def _measure(track: RankTrack) -> tuple[int, int]:
    """Return what is quick to hold against another: how many kernels there are, and their time in ns."""
    return len(track.kernels), total(minus(track.kernels.end_ns, track.kernels.start_ns))


def _find_whole(one: WindowGroup, track: RankTrack, other: WindowGroup, twin: RankTrack) -> tuple[RankTrack, RankTrack]:
    """Return what the whole runs have of two ranks; both as they are where one is of a cut, which has no more of it."""
    with contextlib.suppress(NsysError):
        return one.run.whole().tracks[track.rank.number], other.run.whole().tracks[twin.rank.number]
    return track, twin


def _is_equal(one: RankTrack, other: RankTrack) -> bool:
    """Return whether all kernels are as long, and as far from each other: two exports may count from other moments."""
    here, there = one.kernels, other.kernels
    ahead = there.start_ns[0] - here.start_ns[0]
    pairs = ((here.start_ns, there.start_ns), (here.end_ns, there.end_ns))
    return len(here) == len(there) and all(b - a == ahead for two in pairs for a, b in zip(*two, strict=True))
