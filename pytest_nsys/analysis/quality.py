"""Can a verdict stand on this trace? Measured facts about a run and its windows, held against bounds.

A bound that is crossed is an error before any verdict: what was measured may be right, but nobody can tell. Only what a
metric and its window stand on is looked at, from what was read anyway and from small tables; a check that would read
more is off until somebody sets its bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple

from pytest_nsys.analysis.bounds import AT_LEAST, FEW_ANCHORS, OFF, Bounds
from pytest_nsys.analysis.doubts import (
    WHY_UNCOUNTED,
    anchor_counts,
    apart,
    deviations,
    empty_anchors,
    have_anchors,
    is_one,
    launchless,
    uncounted,
    uneven_anchors,
)
from pytest_nsys.analysis.gpu_state import sm_clock_mhz
from pytest_nsys.analysis.metrics import Metric
from pytest_nsys.analysis.run import Run, WindowGroup
from pytest_nsys.analysis.throughput import profiler_overhead
from pytest_nsys.analysis.windows import MEDIAN, STEADY, WindowSpec, absent_ranks, clocks
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.errors import NoRows, SeveralCaptures
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_value, share_of
from pytest_nsys.core.units import MEGAHERTZ, TIME
from pytest_nsys.core.words import are, counted, printable

_TENTHS: Mapping[str, Fraction] = {"%": Fraction(1000), TIME: Fraction(10, 10**9)}
_WRITTEN = {"%": "%", MEGAHERTZ: MEGAHERTZ, TIME: "s"}
"""Of a bound by its unit: how many tenths of what is written it has, and the unit that is written."""


class Fact(NamedTuple):
    """One measured fact. ``check`` is the key of its bound; ``unit`` is ``count``, ``%`` (a plain fraction), ``1``,
    ``MHz`` or ``ns``, of which a gate file has seconds. ``value`` is None where it is unknown: worse than any bound.

    ``words`` say the value, ``why`` why it matters, ``remedy`` what to do about it.
    """

    check: str
    unit: str
    value: Value | None
    words: str
    why: str
    remedy: str

    def crosses(self, bound: Value) -> bool:
        """Whether the fact is worse than ``bound``: fewer anchors, more of anything else."""
        if self.value is None:
            return True
        return self.value < bound if self.check in AT_LEAST else self.value > bound

    def line(self, bound: Value) -> str:
        """The one line that tells a person of it, with the bound that lets this trace through."""
        shown = self.written(bound)
        side = "at least" if self.check in AT_LEAST else "at most"
        setting = f"write quality: {{{self.check}: {self.lets_through}}} in the gate file"
        return f"trace quality: {self.words} (bound: {side} {shown}): {self.why}; {self.remedy}, or {setting}"

    @property
    def lets_through(self) -> str:
        """The bound that this fact does not cross, as a gate file has it."""
        return OFF if self.value is None else self.written(self.value)

    def written(self, value: Value) -> str:
        """A bound as a gate file has it; a fraction is rounded so that it lets the value through."""
        scaled = Fraction(value) * _TENTHS.get(self.unit, 10)
        tenths = floor(scaled) if self.check in AT_LEAST else ceil(scaled)
        number = str(tenths // 10) if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}"
        return number + _WRITTEN.get(self.unit, "")


class Ground(NamedTuple):
    """What a metric is measured on, and what it asks of it."""

    run: Run
    group: WindowGroup
    metric: Metric
    bounds: Bounds = Bounds()

    @property
    def stages(self) -> bool:
        return "stage" in self.metric.looks_up and self.run.convention.stage is not None

    @property
    def purposes(self) -> bool:
        return bool(self.metric.looks_up and self.run.convention.purposes)

    @property
    def looks_up(self) -> bool:
        """Stages or purposes of kernels are looked up at their launches: of communication on its own streams at least.

        Told by what is asked alone, never by what happens to be read already.
        """
        return self.stages or (self.purposes and any(window.communication for window in self.group))


def crossed(run: Run, spec: WindowSpec, bounds: Bounds, metric: Metric) -> list[str]:
    """A line for each bound that the windows of a run cross under ``spec``, for a metric."""
    return [fact.line(bound) for fact, bound in doubts(Ground(run, run.measured(spec), metric, bounds))]


def doubts(ground: Ground) -> Iterator[tuple[Fact, Value]]:
    """The facts that cross their bounds, each with it; what has no bound is not looked at."""
    metric = ground.metric
    for name, unit, bound in ground.bounds.each():
        check = CHECKS[name]
        if bound is None or name in metric.untouched or not (metric.of_kernels or check.of_ranges):
            continue
        said = check.measure(ground)
        if said is not None and (fact := Fact(name, unit, *said)).crosses(bound):
            yield fact, bound


Said = tuple[Value | None, str, str, str]
"""The value of a fact (None: it is unknown), its words, why it matters, and the remedy."""


def _share(part: int, whole: int, what: str, why: str, remedy: str) -> Said | None:
    """``what`` with the share before it; of nothing there is none."""
    return (Fraction(part, whole), f"{share_of(part, whole)} of {whole} {what}", why, remedy) if whole else None


def _missing_ranks(ground: Ground) -> Said:
    run, stated = ground.run, ground.bounds.world
    labelled = any(rank.setup is not None for rank in run.ranks)
    if stated is not None and not labelled:
        return _missing_gpus(run, stated)
    absent, world, some = absent_ranks(run.ranks)
    why = f"no trace holds rank{'' if absent == 1 else 's'} {some} of the setup labels' mesh"
    if stated is not None and stated - len(run.ranks) > absent:
        absent, world = stated - len(run.ranks), stated
        why = f"the gate file states world {world}, and the traces hold {counted(len(run.ranks), 'rank')}"
    return absent, f"{absent} of {world} ranks {are(absent)} missing", why, "profile all ranks"


def _missing_gpus(run: Run, world: int) -> Said:
    """A process may have one GPU or several: what counts is how many there are in all.

    Raises SeveralCaptures for more.
    """
    found, where = counted(len(run.ranks), "GPU"), counted(len(run.traces), "file")
    if len(run.ranks) > world:
        raise SeveralCaptures(
            f"{run.traces[0].path}: {found} ran kernels in {where}, but the gate file states world {world}: correct "
            "run: {world: …}, or give the files of one profiling window"
        )
    absent = world - len(run.ranks)
    words = f"{absent} of {world} GPUs {are(absent)} missing"
    why = f"the gate file states world {world}, and {found} ran kernels in {where}"
    return absent, words, why, "give the files of all processes"


def _unlaunched(ground: Ground) -> Said | None:
    """Under mode launched they are in no window; else their stage is a guess."""
    if ground.group.spec.by_launch:
        without, whole = ground.group.unlaunched
        why = "with kernels: launched they are left out of the windows"
    elif ground.looks_up:
        without, whole = launchless(ground.group)
        why = "their stage could only be looked up at their GPU start, which runs behind"
    else:
        return None
    return _share(without, whole, "kernels have no launch row", why, ground.run.facts[0].to_see_calls)


def _unstaged(ground: Ground) -> Said | None:
    if not ground.stages:
        return None
    none = sum(len(window.all_by_stage.get(NO_STAGE, ())) for window in ground.group)
    what, why = "kernels of the windows have no stage", "they are in no stage's rows"
    return _share(none, sum(map(len, ground.group)), what, why, "correct the convention's stage expression")


def _unclassified(ground: Ground) -> Said | None:
    if not ground.purposes:
        return None
    whole = sum(len(window.communication) for window in ground.group)
    none = sum(
        number
        for window in ground.group
        for (_, purpose), number in window.contexts_of(window.communication).items()
        if purpose is None
    )
    what, why = "communication kernels have no purpose", "no rule of the convention says what they are for"
    return _share(none, whole, what, why, "add a purpose to the convention")


def _unknown_communication(ground: Ground) -> Said | None:
    found = uncounted(ground.group)
    return None if found is None else (found.share, found.words, WHY_UNCOUNTED, found.remedy(ground.run.convention))


def _whole_graphs(ground: Ground) -> Said:
    graphs = sum(facts.whole_graphs for facts in ground.run.facts)
    words = f"{counted(graphs, 'CUDA graph replay')} {'was' if graphs == 1 else 'were'} traced whole"
    return graphs, words, "their kernels are in no window", "capture with --cuda-graph-trace=node"


_LOSS = re.compile(r"\b(dropped|lost|discarded|overflow\w*)\b", re.IGNORECASE)
_OF_EVENTS = re.compile(r"\b(event|record|range|buffer|activit|kernel)", re.IGNORECASE)
_NOT_OURS = re.compile(
    r"\b(no|0|zero) (\w+ ){0,3}(event|record)|sampl|perf\b|ftrace|schedul|OS runtime|ETW|network|metric", re.IGNORECASE
)


def tells_of_loss(text: str) -> bool:
    """Whether a diagnostic says that events of the GPU, its API or NVTX were lost.

    ``Not all … events might have been collected`` says no such thing: the profiler writes it of most good traces.
    """
    return bool(_LOSS.search(text) and _OF_EVENTS.search(text) and not _NOT_OURS.search(text))


def _dropped(ground: Ground) -> Said:
    told = [each.told for facts in ground.run.facts for each in facts.diagnostics if tells_of_loss(each.raw)]
    outside = ground.group.out_of_session if ground.metric.of_kernels else 0
    parts = [f"the profiler says: {printable(told[0])}"] if told else []
    if outside:
        what = "starts" if outside == 1 else "start"
        parts.append(f"{counted(outside, 'kernel')} around the windows {what} outside the profiler's session")
    number = len(told) + outside
    words = f"events were dropped or are out of range, {counted(number, 'sign')} of it"
    why = f"{' and '.join(parts)}, so rows may be missing or wrong"
    return number, words, why, "profile fewer steps or event kinds, or export again"


def _diagnostics(ground: Ground) -> Said:
    told = [each.told for facts in ground.run.facts for each in facts.diagnostics]
    words = f"the profiler reports {counted(len(told), 'problem')}"
    return len(told), words, printable(told[0]) if told else "", "fix what it reports"


def _anchors(ground: Ground) -> Said | None:
    """Where something is a median over anchors. One range that was asked for by name is no median; an index is none.

    Nor is one step alone that ``first`` asks for, or the default where runs like this one have no more to choose from.
    """
    spec = ground.group.spec
    counts = anchor_counts(ground.group)
    usual = ground.bounds.usual_steps
    why, remedy = "the median of so few is unreliable", "profile more steps"
    if spec.anchor is not None:
        counts = [(number, count) for number, count in counts if count > 1]
    elif spec.window not in (MEDIAN, STEADY) and (is_one(counts) or "quantile" not in ground.metric.dimensions):
        return None
    elif spec.window == MEDIAN and is_one(counts):
        if usual is not None and usual < FEW_ANCHORS:
            return None
        why = why if usual is None else f"the run it is held against had {usual}"
        remedy = "profile more steps, or, where one is what you capture, write window: first"
    if not counts:
        return None
    fewest = min(count for _, count in counts)
    words = have_anchors([number for number, count in counts if count == fewest], fewest, spec)
    return fewest, words, why, remedy


def _empty_anchors(ground: Ground) -> Said | None:
    found = max(empty_anchors(ground.group), key=lambda each: Fraction(each.anchors, each.of), default=None)
    why = "its kernels were not recorded for as long as its ranges, so any window may lack some"
    remedy = "profile fewer steps, and look at what the profiler said"
    return found and (Fraction(found.anchors, found.of), str(found), why, remedy)


def _uneven_anchors(ground: Ground) -> Said | None:
    """Where the window is found by their number. Ranks of two places in a pipeline may have other numbers of them."""
    found = uneven_anchors(ground.group)
    counted_off = ground.group.spec.window in (MEDIAN, STEADY, "last") or ground.group.spec.anchor is not None
    if found is None or not found.alike or not counted_off:
        return None
    return found.apart, str(found), "so their windows hold different work", "profile the same steps on all ranks"


def _apart(ground: Ground) -> Said | None:
    found = apart(ground.group)
    why = "files of one run overlap in time, and one of these is of another run"
    return found and (found.gap_ns, str(found), why, "give the files that were written together")


def _typicality(ground: Ground) -> Said | None:
    found = max(deviations(ground.group), key=lambda item: item[1].in_spreads, default=None)
    if found is None:
        return None
    words, why = f"rank {found[0]}: the window is {found[1]}", "an untypical window does not represent the run"
    return found[1].in_spreads, words, why, "profile more steps or take another window"


def _clocks(ground: Ground) -> Said:
    number = clocks(ground.run.ranks)
    words = f"the ranks use {counted(number, 'clock')}"
    why = "times of different files or machines are comparable only within the error of their clocks"
    return number, words, why, "profile all ranks into one report"


DISTORTED = "the trace measures the program and its profiler, not the program alone"
THROTTLED = "the GPU was throttled or its clocks were set low, so all times are longer than they should be"


def _profiler_overhead(ground: Ground) -> Said:
    """The largest of the windows."""
    try:
        found = [value for window in ground.group.together() for _, value in profiler_overhead(window)]
    except NoRows as nothing:
        words = f"the overhead of the profiler is unknown: {nothing}"
        return None, words, "a distorted step would pass unnoticed", "measure a step without the profiler"
    words = f"a step takes {format_value(max(found), '%', 6)} longer under the profiler"
    return max(found), words, DISTORTED, "trace fewer kinds of events"


def _sm_clock(ground: Ground) -> Said:
    """The lowest of the ranks."""
    found: list[tuple[Value, int]] = []
    for window in ground.group:
        try:
            found += [(value, window.rank.number) for _, value in sm_clock_mhz(window)]
        except NoRows as nothing:
            words = f"rank {window.rank.number}: the clock of the SMs is unknown: {nothing}"
            return None, words, "a throttled GPU would pass unnoticed", "sample GPU metrics"
    clock, number = min(found)
    words = f"rank {number}: the SMs ran at {format_value(clock, MEGAHERTZ, 6)} (median of the window)"
    return clock, words, THROTTLED, "let the GPU cool, or lock its clocks (nvidia-smi --lock-gpu-clocks)"


class Check(NamedTuple):
    """What measures a fact. ``of_ranges``: also for a metric to which no kernel makes a difference."""

    measure: Callable[[Ground], Said | None]
    of_ranges: bool = True


CHECKS: Mapping[str, Check] = {
    "missing_ranks": Check(_missing_ranks),
    "unlaunched": Check(_unlaunched, of_ranges=False),
    "unstaged": Check(_unstaged),
    "unclassified": Check(_unclassified),
    "unknown_communication": Check(_unknown_communication, of_ranges=False),
    "whole_graphs": Check(_whole_graphs, of_ranges=False),
    "dropped": Check(_dropped),
    "diagnostics": Check(_diagnostics),
    "anchors": Check(_anchors),
    "empty_anchors": Check(_empty_anchors, of_ranges=False),
    "uneven_anchors": Check(_uneven_anchors),
    "apart": Check(_apart),
    "typicality": Check(_typicality),
    "clocks": Check(_clocks),
    "same_as_baseline": Check(lambda _: None),  # a verdict says it, which has the baseline
    "profiler_overhead": Check(_profiler_overhead),
    "sm_clock": Check(_sm_clock),
}
