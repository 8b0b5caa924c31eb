"""Which ranks hold the same kernels, because a trace was copied, though not a byte of the copy may be where it was?

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
    """Yield the pairs of ranks whose kernels are equal: around the windows, or of few kernels in the whole run.

    Of one group these are ranks on two clocks.
    """
    twins_by_summary = grouped((_measure(track), track) for track in other.tracks.values())
    for track in one.tracks.values():
        for twin in twins_by_summary.get(_measure(track), ()) if len(track.kernels) else ():
            if (one is other and twin.rank.process.clock <= track.rank.process.clock) or not _is_equal(track, twin):
                continue
            pair = (track, twin) if len(track.kernels) >= ENOUGH else _find_whole(one, track, other, twin)
            if len(pair[0].kernels) >= ENOUGH and _is_equal(*pair):
                yield pair


def _measure(track: RankTrack) -> tuple[int, int]:
    """Return what is quick to compare: the number of kernels, and their total time in ns."""
    return len(track.kernels), total(minus(track.kernels.end_ns, track.kernels.start_ns))


def _find_whole(one: WindowGroup, track: RankTrack, other: WindowGroup, twin: RankTrack) -> tuple[RankTrack, RankTrack]:
    """Return what the whole runs have of two ranks; both as they are where one is of a cut, which has no more of it."""
    with contextlib.suppress(NsysError):
        return one.run.whole().tracks[track.rank.number], other.run.whole().tracks[twin.rank.number]
    return track, twin


def _is_equal(one: RankTrack, other: RankTrack) -> bool:
    """Return whether all kernels are as long, and as far from each other."""
    first_kernels, second_kernels = one.kernels, other.kernels
    offset_ns = second_kernels.start_ns[0] - first_kernels.start_ns[0]
    pairs = ((first_kernels.start_ns, second_kernels.start_ns), (first_kernels.end_ns, second_kernels.end_ns))
    # Two exports of one report may count time from other moments: only the differences are compared.
    return len(first_kernels) == len(second_kernels) and all(
        b - a == offset_ns for columns in pairs for a, b in zip(*columns, strict=True)
    )
