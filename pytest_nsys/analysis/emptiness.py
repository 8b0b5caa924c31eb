"""Why is there nothing to measure, and what could be measured instead? One line that a person can act on.

Where the GPU runs far behind the CPU no kernel executes inside the CPU times of its own range; where a slice was cut
out of a trace the launches are gone. The line gives the lag, the share without a launch row, how many anchors hold
kernels in each mode, and other ranges that could anchor.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import sub

from pytest_nsys.analysis.around import RankTrack
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.windows import RUN, WindowSpec
from pytest_nsys.core.columns import take
from pytest_nsys.core.conventions import BUILT_IN, Convention, like
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.model import OPEN_END_NS, KernelsMode, Range, Rank, Trace
from pytest_nsys.core.numbers import format_together, share_of
from pytest_nsys.core.words import printable

SHOWN = 5
_NUMBER = re.compile(r"\d+")


def pattern_of(name: str) -> str:
    """The name with each number replaced by the wildcard: an anchor pattern that a person can paste."""
    return _NUMBER.sub("%", name)


def most_frequent(names: Sequence[tuple[str, int]]) -> str:
    """The patterns of the most frequent of these range names, with their counts; empty where there are none."""
    counts: Counter[str] = Counter()
    for name, count in names:
        counts[pattern_of(name)] += count
    named = {name: n for name, n in counts.items() if not name.startswith(("aten::", "nccl"))} or counts
    common = sorted(named.items(), key=lambda item: (-item[1], item[0]))[: 2 * SHOWN]
    return ", ".join(f"'{printable(name, 60)}' ({count})" for name, count in common)


def explain_no_anchor(trace: Trace, convention: Convention, rank: Rank, spec: WindowSpec) -> str:
    """No range matches the anchor: the most frequent names are shown instead."""
    anchor = spec.anchor or convention.anchor
    names = trace.common_range_names(rank.process.global_pid)
    shown = most_frequent(names)
    what = f"no range matches the anchor '{printable(anchor)}'" if anchor else "the convention names no anchor"
    if not shown:
        seen = f"the trace holds no ranges at all: {trace.facts().to_see_ranges}"
    else:
        seen = f"most frequent ranges: {shown}"
    fits = _convention_with_anchor([name for name, _ in names])
    if fits is not None and fits.anchor != convention.anchor:
        remedy = f"convention: {fits.name}, which has an anchor for it (in a command --convention {fits.name})"
    else:
        remedy = "convention: {anchor: …} (in a command --anchor; `pytest-nsys init` finds one)"
    return f"{rank.trace}: rank {rank.number} (process {rank.pid}): {what}; {seen}. Set {remedy}, or use window {RUN}"


def _convention_with_anchor(names: Sequence[str]) -> Convention | None:
    """The first built-in convention whose anchor one of these range names matches."""
    with_anchor = ((convention, like(convention.anchor)) for convention in BUILT_IN.values() if convention.anchor)
    return next((convention for convention, is_anchor in with_anchor if any(map(is_anchor, names))), None)


def explain_empty(windows: Sequence[RankWindow], whole: RankTrack | None) -> str:
    """Which windows of a rank hold no kernel, how far the GPU is behind, and what else could anchor.

    ``whole`` is all that the rank ran, None where that is the window.
    """
    rank, spec = windows[0].rank, windows[0].spec
    if whole is not None and not len(whole.kernels):
        label = f" with the setup label '{printable(rank.setup.text)}'" if rank.setup is not None else ""
        return f"{rank.trace}: no kernel belongs to process {rank.pid}{label}: ids do not join, or it used no GPU"
    empty = [window.window for window in windows if not len(window)]
    where = f"window '{printable(empty[0].name, 80)}'"
    if empty[0].index is not None:
        where += f" (index {empty[0].index} of {empty[0].count})"
    if len(windows) > 1:
        where = f"{len(empty)} of {len(windows)} windows, the first {where[len('window ') :]},"
    said = [f"{rank.trace}: rank {rank.number} (process {rank.pid}): {where} holds no kernel, kernels {spec.kernels}"]
    if whole is not None:
        said.append(_lag(whole))
        if anchors := windows[0].anchors:
            said.append(f"anchors that hold kernels: {_told(_counts(whole, _busy(whole), anchors))} of {len(anchors)}")
        if others := _other_anchors(whole):
            said.append(f"could anchor: {others}")
        said.append(f"or measure the whole run with window {RUN}")
    return "; ".join(said)


def _lag(track: RankTrack) -> str:
    starts = track.kernels.start_ns
    launched = track.launch_order
    lags = sorted(map(sub, take(starts, launched), take(track.launch_ns, launched)))
    without = len(starts) - len(lags)
    share = f"{share_of(without, len(starts))} of {len(starts)} kernels have no launch row"
    if not lags:
        return share
    median, longest = format_together([lags[len(lags) // 2], lags[-1]])
    return f"the GPU is {median} behind the CPU (median; at most {longest}; {share})"


def _busy(track: RankTrack) -> Intervals:
    return Intervals(track.kernels.start_ns, track.kernels.end_ns)


def _counts(track: RankTrack, busy: Intervals, ranges: Sequence[Range]) -> dict[KernelsMode, int]:
    """How many of the ranges hold a kernel, by mode."""
    starts, ends = track.kernels.start_ns, track.kernels.end_ns
    launches = take(track.launch_ns, track.launch_order)
    found = dict.fromkeys(KernelsMode, 0)
    for r in ranges:
        inside = range(bisect_left(starts, r.start_ns), bisect_right(starts, r.end_ns))
        found[KernelsMode.CONTAINED] += any(ends[i] <= r.end_ns for i in inside)
        found[KernelsMode.CLIPPED] += busy.covered_ns(r.start_ns, r.end_ns) > 0
        found[KernelsMode.LAUNCHED] += bisect_left(launches, r.start_ns) < bisect_right(launches, r.end_ns)
    return found


def _told(counts: Mapping[KernelsMode, int]) -> str:
    return ", ".join(f"{mode} {n}" for mode, n in counts.items())


def _other_anchors(track: RankTrack) -> str:
    """Patterns of ranges that repeat and hold kernels, those that hold them most often first."""
    groups: dict[str, list[Range]] = {}
    for r in track.around.trace.ranges(["%"]).get(track.rank.process.global_pid, ()):
        named = track.convention.setup_of(r.name) is None and not r.name.startswith("nccl")
        if named and r.end_ns != OPEN_END_NS:
            groups.setdefault(pattern_of(r.name), []).append(r)
    busy = _busy(track)
    each = [(name, len(own), _counts(track, busy, own)) for name, own in groups.items() if len(own) >= SHOWN]
    held = [(max(counts.values()), name, counts, total) for name, total, counts in each]
    ranked = sorted((item for item in held if item[0]), key=lambda item: (-item[0] / item[3], -item[0], item[1]))
    return ", ".join(f"'{printable(name, 60)}' ({_told(counts)} of {total})" for *_, name, counts, total in ranked[:3])
