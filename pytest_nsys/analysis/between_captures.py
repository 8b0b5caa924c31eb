"""Are several captures good samples together? Two of them may be one, and one may lie far from the others.

Two captures, or two files of one, are one in other bytes after a copy through VACUUM, or where a report is exported
twice. No two runs of a program take the same time to the nanosecond. Equal counts say nothing: good runs have them.

Of three or more, their median hides one that is far off: more than a tenth from the median of the others, and several
times what those differ by among themselves. That is pooled over the rows of a metric, for two captures alone agree by
chance; a small row counts on the scale of the mean row. The factor falls with the number of captures as their range
rises: together they stand for about six deviations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.analysis.around import RankTrack
from pytest_nsys.analysis.metrics import METRICS, Metric, Unit
from pytest_nsys.analysis.run import Run, WindowGroup
from pytest_nsys.analysis.table import Table
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.columns import minus, total
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.exact import distance, mean, median
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.words import counted, place_words, printable

FEWEST = 3
"""Captures among which one can be the other: of two nobody knows which."""

FAR = Fraction(1, 10)
RANGES = 18
"""Over the number of captures: how many times the range of the others is far."""

Labels = tuple[Label, ...]
Rows = Mapping[Labels, Value]


class Outlying(NamedTuple):
    """A capture (by its place) with ``rows`` rows far from the others; the farthest, and the median of the others."""

    capture: int
    rows: int
    labels: Labels
    value: Value
    others: Value

    def told(self, metric: Metric) -> str:
        """The row and how far it is off: ``rank 1 stage stage2_f exposed_ns is 900 us, the others' median 200 us``."""
        row = place_words(zip(metric.dimensions, self.labels, strict=True))
        value, others = (format_value(each, metric.unit) for each in (self.value, self.others))
        more = f", and {counted(self.rows - 1, 'more row')} far off" if self.rows > 1 else ""
        return f"{printable(f'{row} {metric.name}'.strip())} is {value}, the median of the others {others}{more}"


def outlying(captures: Sequence[Rows]) -> list[Outlying]:
    """The captures that lie far from the others in some row that all of them have, by their place."""
    shared = [labels for labels in captures[0] if all(labels in capture for capture in captures)]
    found = []
    for place, capture in enumerate(captures if len(captures) >= FEWEST else ()):
        others = [other for i, other in enumerate(captures) if i != place]
        if far := list(_far({labels: capture[labels] for labels in shared}, others)):
            labels = shared[max(far, key=lambda each: each[0])[1]]
            found.append(Outlying(place, len(far), labels, capture[labels], median([o[labels] for o in others])))
    return found


def _far(capture: Rows, others: Sequence[Rows]) -> Iterator[tuple[Fraction, int]]:
    """How many times as far as they may be the rows are that are far, and their places."""
    each = [[other[labels] for other in others] for labels in capture]
    middles = [Fraction(median(values)) for values in each]
    usual = Fraction(mean([abs(middle) for middle in middles])) if middles else Fraction(0)
    if not usual:
        return
    scales = [max(usual, abs(middle)) for middle in middles]
    ranges = [Fraction(max(values) - min(values)) for values in each]
    pooled = Fraction(median([range_ / scale for range_, scale in zip(ranges, scales, strict=True)]))
    times = Fraction(RANGES, len(others) + 1)
    for at, value in enumerate(capture.values()):
        reach = max(FAR * scales[at], times * max(ranges[at], pooled * scales[at]))
        if (apart := Fraction(distance(value, middles[at]))) > reach:
            yield apart / reach, at


ENOUGH = 8
"""Rows of time that are not 0, or kernels: fewer may agree by chance, as two steps of one kernel do."""

USUAL = ("window_ns", "busy_ns", "idle_ns", "compute_ns", "gpu_gap_ns", "period_ns")
"""Looked at beside what is asked, for a gate may ask for ratios alone: read off kernels and anchors that are there."""

Asked = tuple[Metric, WindowSpec]
Times = Mapping[tuple[str, WindowSpec, tuple[Label, ...]], Value]


def looked_at(asked: Iterable[Asked], specs: Iterable[WindowSpec]) -> list[Asked]:
    """What is asked of times, and under each spec what is usual."""
    times = [(metric, spec) for metric, spec in asked if metric.unit is Unit.NS]
    return list(dict.fromkeys([*times, *((METRICS[name], spec) for name in USUAL for spec in specs)]))


def times_of(each: Callable[[Metric, WindowSpec], Sequence[Table]], asked: Iterable[Asked], count: int) -> list[Times]:
    """The rows of time that are not 0 in each of ``count`` captures."""
    found: list[dict[tuple[str, WindowSpec, tuple[Label, ...]], Value]] = [{} for _ in range(count)]
    for metric, spec in asked:
        with contextlib.suppress(NsysError):  # who asks for it is told
            for own, table in zip(found, each(metric, spec), strict=False):
                own.update({(metric.name, spec, labels): value for labels, value in table.rows if value})
    return list(found)


def twins(groups: Iterable[WindowGroup]) -> tuple[RankTrack, RankTrack] | None:
    """The first two ranks on two clocks, of one capture or of two, whose kernels are equal: around the windows, or of
    few kernels in the whole run.
    """
    known: dict[tuple[int, int], list[tuple[WindowGroup, RankTrack]]] = {}
    for group, track in [(each, track) for each in groups for track in each.tracks.values()]:
        kernels, clock = track.kernels, track.rank.process.clock
        alike = known.setdefault((len(kernels), total(minus(kernels.end_ns, kernels.start_ns))), [])
        for there, other in alike if len(kernels) else ():
            if (there is group and other.rank.process.clock == clock) or not _equal(other, track):
                continue
            pair = (other, track) if len(kernels) >= ENOUGH else (_whole(there, other), _whole(group, track))
            if len(pair[0].kernels) >= ENOUGH and _equal(*pair):
                return pair
        alike.append((group, track))
    return None


def _whole(group: WindowGroup, track: RankTrack) -> RankTrack:
    with contextlib.suppress(NsysError):  # a cut has no more of it
        return group.run.whole().tracks[track.rank.number]
    return track


def _equal(one: RankTrack, other: RankTrack) -> bool:
    here, there = one.kernels, other.kernels
    ahead = there.start_ns[0] - here.start_ns[0]
    pairs = ((here.start_ns, there.start_ns), (here.end_ns, there.end_ns))
    return len(here) == len(there) and all(b - a == ahead for two in pairs for a, b in zip(*two, strict=True))


def same_files(run: Run, one: Times, other: Times) -> list[Path]:
    """The files of a run whose ranks have the rows of time that another capture has: copies, perhaps in other bytes."""
    paths = {rank.number: rank.trace for rank in run.ranks}
    rows: dict[Path, list[bool]] = {}
    for key, value in one.items():
        name, _, labels = key
        if METRICS[name].dimensions[:1] == ("rank",) and isinstance(rank := labels[0], int):
            rows.setdefault(paths[rank], []).append(other.get(key) == value)
    return [path for path, same in rows.items() if len(same) >= ENOUGH and all(same)]


def how_same(one: Times, other: Times) -> str:
    """By what two captures are one, in words; empty where they are two."""
    same = one == other and len(one) >= ENOUGH
    return f"{counted(len(one), 'row')} of time are equal to the nanosecond" if same else ""
