"""A rank's kernels around its windows, without a trace: launches and ranges are what a test says."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from pytest_nsys.analysis.windows.rank_track import RankTrack, TraceContext, WindowGroupInterface
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.model import Interval, Lane, ProcessId, Range, Rank, Window
from pytest_nsys.core.tables import Kernels, LaunchCalls, Ranges
from pytest_nsys.core.trace import Trace

RANK = Rank(0, ProcessId(0, 1 << 24), 0, None, Path("trace.sqlite"))
RUN_WINDOW = Window(0, 1_000, "run")


class SaidTrace:
    """Answers what tracks ask of a trace; kernels are told apart by their correlation."""

    def __init__(self, launches: Sequence[int], ranges: Sequence[Range]) -> None:
        self.said, self.ranges = launches, Ranges.from_ranges(ranges)

    def launch_calls(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
        each = {lane: array("q", [self.said[c] for c in own.correlation]) for lane, own in kernels.items()}
        return {lane: LaunchCalls(own, own, array("q", [0]) * len(own)) for lane, own in each.items()}

    def issue_calls(self, _: object, launches: Mapping[Lane, LaunchCalls]) -> Mapping[Lane, LaunchCalls]:
        return launches

    def stated_modules(self, _: object) -> Mapping[Lane, Sequence[str]]:
        return {}

    def ranges_around(self, spans: Mapping[int, Interval]) -> Mapping[int, Ranges]:
        return dict.fromkeys(spans, self.ranges)

    def collectives(self, _: Mapping[Lane, Kernels]) -> None:
        return None

    def transfers(self, _: object) -> None: ...

    def api_calls(self, *_: object) -> None: ...

    def sm_clocks(self, _: object) -> None:
        """It has no samples of the clock."""
        raise NoRows("nothing is said of clocks")

    def stream_waits(self) -> None:
        """It has no budget."""
        raise NoRows("nothing is said of what streams wait for")


class SaidGroup:
    """What a track asks of the windows of its run, which are one window."""

    spec = WindowSpec("run")

    def __init__(self) -> None:
        self.run = self
        self.tracks: dict[int, RankTrack] = {}
        self.gpu_tracks = self.tracks
        self.windows_by_rank: dict[int, Sequence[RankWindow]] = {}

    def find_rank_steps(self, *_: object) -> None:
        """Its window is no step."""

    def load_whole_run(self) -> SaidGroup:
        return self

    def find_anchors(self, _rank: Rank, _pattern: str | None) -> Sequence[Range]:
        return ()


def track_of(
    kernels: Kernels,
    convention: Convention,
    launches: Sequence[int],
    ranges: Sequence[Range] = (),
    *,
    rank: Rank = RANK,
) -> RankTrack:
    """The track of a rank; ``launches`` by correlation. Its whole run is all of ``kernels``."""
    around = TraceContext(cast(Trace, SaidTrace(launches, ranges)), convention, {rank.lane: kernels})
    group = SaidGroup()
    found = RankTrack(rank, around, cast(WindowGroupInterface, group))
    group.tracks[rank.number] = found
    group.windows_by_rank[rank.number] = [RankWindow(found, RUN_WINDOW, WindowSpec("run"), range(len(kernels)))]
    return found
