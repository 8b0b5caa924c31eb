"""How do collectives read: a row for each rank, group and kind, who straggles, and what is not known?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from pytest_nsys.analysis.collectives import Transfer, lacking, shares, sized, transfers
from pytest_nsys.analysis.run import RunWindow
from pytest_nsys.analysis.straggling import Matched, matched, stragglers
from pytest_nsys.core.model import Value, printable
from pytest_nsys.core.statistics import exact, mean, median
from pytest_nsys.core.units import TIME, format_value
from pytest_nsys.reports.tables import CellKind, Column, Row

COLUMNS = (
    *(Column("rank", CellKind.NUMBER), Column("group"), Column("collective")),
    *(Column(name, CellKind.NUMBER) for name in ("group_size", "count", "bytes", "time_ns")),
    *(Column(name, CellKind.NUMBER) for name in ("busbw_mean", "busbw", "busbw_min", "busbw_max")),
    Column("traffic_share", CellKind.RATIO),
    *(Column(name, CellKind.NUMBER) for name in ("wait_ns", "transfer_ns")),
    Column("utilisation", CellKind.RATIO),
)
"""Bandwidths are in GB/s, 1e9 bytes a second; ``busbw`` is the median. What is not known is absent."""


@dataclass(frozen=True)
class CollectiveReport:
    """The collectives of one window of every rank in ``shown``; waits are matched over all ranks."""

    window: RunWindow
    shown: frozenset[int]

    @cached_property
    def waits(self) -> Matched:
        """Who waited for whom."""
        return matched(self.window.by_rank)

    def rows(self) -> list[Row]:
        """A row for each rank, group and kind, in that order."""
        return [row for number in sorted(self.shown) for row in self._rows_of(number)]

    def _rows_of(self, number: int) -> Iterator[Row]:
        found = transfers(self.window.by_rank[number])
        known, share_of_bytes = sized(found), shares(found)
        for (group, kind), members in found.items():
            speeds: list[Value] = [speed for t in members if (speed := t.bus_gb_per_s) is not None]
            share = self.waits.shares.get((number, group, kind))
            yield (
                *(number, group, kind, _group_size(members), len(members), known.get((group, kind))),
                sum(t.in_window_ns for t in members),
                *(exact(Fraction(take(speeds))) if speeds else None for take in (mean, median, min, max)),
                share_of_bytes.get((group, kind)),
                *((None, None) if share is None else share),
                self._utilisation(speeds),
            )

    def _utilisation(self, speeds: Sequence[Value]) -> Value | None:
        peak = self.window.run.workload.peak_gb_per_s
        return None if peak is None or not speeds else exact(Fraction(median(speeds)) / peak)

    def straggling(self) -> list[Mapping[str, str | int]]:
        """The straggler of each group and kind."""
        found = stragglers(self.waits)
        return [{"group": g, "collective": k, "rank": rank, "lag_ns": lag} for (g, k), rank, lag in found]

    def lines(self) -> Iterator[str]:
        """The stragglers in words."""
        for found in self.straggling():
            lag = format_value(int(found["lag_ns"]), TIME)
            group = printable(str(found["group"]), 60)
            yield f"straggler of {group} {found['collective']}: rank {found['rank']} waits {lag} less than the longest"

    def unsaid(self) -> Iterator[str]:
        """What the traces cannot say, each in one line."""
        windows = [self.window.by_rank[number] for number in sorted(self.shown)]
        blind = [w for w in windows if w.track.collectives is None and transfers(w)]
        if blind:
            yield f"no bytes, bandwidths and waits: {blind[0].track.around.facts.to_see_sizes}"
        for window in windows:
            if window.track.collectives is not None:
                yield from (f"rank {window.rank.number}: {line}" for line in lacking(window))
        yield from (f"no waits of {line}" for line in self.waits.unmatched)
        if self.window.run.workload.peak_gb_per_s is None:
            yield "no utilisation: --peak 400GB/s states the bandwidth of the network per GPU"


def _group_size(members: Sequence[Transfer]) -> int | None:
    """The size of the group, None where it is not known, or differs between groups of one name."""
    sizes = {t.record.group_size if t.record is not None else None for t in members}
    return sizes.pop() if len(sizes) == 1 else None
