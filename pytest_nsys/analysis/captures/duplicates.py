"""Which ranks hold the same kernels, because a trace was copied, even if the bytes of the copy differ?

VACUUM, or a second export of a report, writes the same trace in other bytes. No two runs of a program take the same
time to the nanosecond. Equal counts prove nothing: good runs have them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pytest_nsys.analysis.fact_bounds import ENOUGH_ROWS
from pytest_nsys.analysis.windows.rank_track import RankTrack
from pytest_nsys.analysis.windows.run import WindowGroup
from pytest_nsys.core.columns import subtract, sum_column
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.memoize import group_by_key


def find_ranks_with_equal_kernels(first: WindowGroup, second: WindowGroup) -> Iterator[tuple[RankTrack, RankTrack]]:
    """Yield the pairs of ranks with equal kernels: around the windows or, if these are few, in the whole run.

    If both groups are the same one, pairs are of ranks on two clocks.
    """
    twins_by_summary = group_by_key((_summarize_kernels(track), track) for track in second.tracks.values())
    for track in first.tracks.values():
        for twin in twins_by_summary.get(_summarize_kernels(track), ()) if len(track.kernels) else ():
            if (first is second and twin.rank.process.clock <= track.rank.process.clock) or not _has_equal_kernels(
                track, twin
            ):
                continue
            pair = (track, twin) if len(track.kernels) >= ENOUGH_ROWS else _find_whole_runs(first, track, second, twin)
            if len(pair[0].kernels) >= ENOUGH_ROWS and _has_equal_kernels(*pair):
                yield pair


def _summarize_kernels(track: RankTrack) -> tuple[int, int]:
    """Return what is quick to compare: (number of kernels, total time in ns)."""
    return len(track.kernels), sum_column(subtract(track.kernels.end_ns, track.kernels.start_ns))


def _find_whole_runs(
    first: WindowGroup, track: RankTrack, second: WindowGroup, twin: RankTrack
) -> tuple[RankTrack, RankTrack]:
    """Return the whole runs of two ranks; both unchanged if one is from a cut, which holds nothing more."""
    with contextlib.suppress(NsysError):
        return first.run.load_whole_run().tracks[track.rank.number], second.run.load_whole_run().tracks[
            twin.rank.number
        ]
    return track, twin


def _has_equal_kernels(first: RankTrack, second: RankTrack) -> bool:
    """Return whether all kernels have equal lengths and equal distances."""
    first_kernels, second_kernels = first.kernels, second.kernels
    offset_ns = second_kernels.start_ns[0] - first_kernels.start_ns[0]
    pairs = ((first_kernels.start_ns, second_kernels.start_ns), (first_kernels.end_ns, second_kernels.end_ns))
    # Two exports of one report may have different time origins: only differences are compared.
    return len(first_kernels) == len(second_kernels) and all(
        b - a == offset_ns for columns in pairs for a, b in zip(*columns, strict=True)
    )
