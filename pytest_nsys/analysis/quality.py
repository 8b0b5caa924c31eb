"""Can a verdict stand on this trace? Measured facts about a run and its windows, held against bounds.

A bound that is crossed is an error before any verdict: what was measured may be right, but nobody can tell. Only what a
metric and its window stand on is looked at, from what was read anyway and from small tables; a check that would read
more is off until somebody sets its bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from pytest_nsys.analysis.anchor_counts import empty_anchors, uneven_anchors
from pytest_nsys.analysis.pipeline import RANGES_ALONE
from pytest_nsys.analysis.ranks import absent_ranks
from pytest_nsys.analysis.run import Run, WindowGroup
from pytest_nsys.analysis.steady import Deviation, deviation
from pytest_nsys.analysis.uncounted import WHY_UNCOUNTED, uncounted
from pytest_nsys.analysis.windows import MEDIAN, STEADY, WindowSpec
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import KernelsMode, Rank, Value, counted, printable

FEW_ANCHORS = 5
AT_LEAST = frozenset({"anchors"})
"""Checks whose bound is the least that is good; of all others it is the most."""

UNTYPICAL = 5
"""A window this many MAD away from the steady median is no typical one."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of each doubt a verdict bears; None: the check is off. Shares are plain fractions.

    ``world`` is no bound, but how many ranks the gate file states, for traces that cannot say it.

    On by default is what makes a number wrong whatever the program does. What good traces show as well (warnings of the
    profiler, a median window beyond 5 MAD where few anchors have one) is told as a note until somebody bounds it.
    """

    missing_ranks: int | None = 0
    unlaunched: Fraction | None = Fraction(1, 10)
    unstaged: Fraction | None = None
    unclassified: Fraction | None = None
    unknown_communication: Fraction | None = Fraction(0)
    whole_graphs: int | None = 0
    dropped: int | None = 0
    diagnostics: int | None = None
    anchors: int | None = FEW_ANCHORS
    empty_anchors: Fraction | None = Fraction(1, 5)
    uneven_anchors: int | None = 1
    typicality: Fraction | None = None
    clocks: int | None = None
    world: int | None = None

    def of(self, check: str) -> Value | None:
        """The bound of a check by its name."""
        bound: Value | None = getattr(self, check)
        return bound


@dataclass(frozen=True, slots=True)
class Fact:
    """One measured fact. ``check`` is the key of its bound; ``unit`` is ``count``, ``%`` (a plain fraction) or ``1``.

    ``words`` say the value, ``why`` why it matters, ``remedy`` what to do about it.
    """

    check: str
    value: Value
    unit: str
    words: str
    why: str
    remedy: str

    def crosses(self, bound: Value) -> bool:
        """Whether the fact is worse than ``bound``: fewer anchors, more of anything else."""
        return self.value < bound if self.check in AT_LEAST else self.value > bound

    def line(self, bound: Value) -> str:
        """The one line that tells a person of it, with the bound that lets this trace through."""
        shown = self.written(bound)
        side = "at least" if self.check in AT_LEAST else "at most"
        setting = f"write quality: {{{self.check}: {self.written(self.value)}}} in the gate file"
        return f"trace quality: {self.words} (bound: {side} {shown}): {self.why}; {self.remedy}, or {setting}"

    def written(self, value: Value) -> str:
        """A bound as a gate file has it; a fraction is rounded up, so that it lets the value through."""
        scaled = Fraction(value) * (100 if self.unit == "%" else 1)
        tenths = ceil(scaled * 10)
        number = str(tenths // 10) if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}"
        return number + ("%" if self.unit == "%" else "")


@dataclass(frozen=True, slots=True)
class Subject:
    """What a metric is measured on, and what it asks of it."""

    run: Run
    group: WindowGroup
    metric: str
    dimensions: tuple[str, ...]
    world: int | None = None

    @property
    def anchors_alone(self) -> bool:
        """The metric is read off the anchors and other ranges, whatever the kernels are."""
        return self.metric in ("anchors", "period_ns", "window_typicality", *RANGES_ALONE)

    @property
    def stages(self) -> bool:
        return "stage" in self.dimensions and self.run.convention.stage is not None and not self.anchors_alone

    @property
    def purposes(self) -> bool:
        looked_up = bool({"stage", "purpose"} & set(self.dimensions)) and not self.anchors_alone
        return looked_up and bool(self.run.convention.purposes)

    @property
    def looks_up(self) -> bool:
        """Stages or purposes of kernels are looked up at their launches: of communication on its own streams at least.

        Told by what is asked alone, never by what happens to be read already.
        """
        if self.stages:
            return True
        return self.purposes and any(w.communication for windows in self.group.ranks.values() for w in windows)


def crossed(run: Run, spec: WindowSpec, bounds: Bounds, metric: str, dimensions: Sequence[str]) -> list[str]:
    """A line for each bound that the windows of a run cross under ``spec``, for a metric with these dimensions."""
    subject = Subject(run, run.measured(spec), metric, tuple(dimensions), bounds.world)
    lines = []
    for check, measure in CHECKS.items():
        bound = bounds.of(check)
        if bound is not None:
            lines += [fact.line(bound) for fact in measure(subject) if fact.crosses(bound)]
    return lines


def _percent(part: int, whole: int) -> str:
    return f"{round(100 * part / whole, 1)} %"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _missing_ranks(subject: Subject) -> Iterator[Fact]:
    run = subject.run
    labelled = any(rank.setup is not None for rank in run.ranks)
    if subject.world is not None and not labelled and all(facts.counts_gpus for facts in run.facts):
        yield from _missing_gpus(run, subject.world)
        return
    absent, world, some = absent_ranks(subject.run.ranks)
    yield Fact(
        "missing_ranks",
        absent,
        "count",
        f"{absent} of {world} ranks {_are(absent)} missing",
        f"no trace holds rank{'' if absent == 1 else 's'} {some} of the setup labels' mesh",
        "profile all ranks",
    )


def _missing_gpus(run: Run, world: int) -> Iterator[Fact]:
    """A process may have one GPU or several: what counts is how many there are in all. Raises TraceError for more."""
    found, where = counted(len(run.ranks), "GPU"), counted(len(run.traces), "file")
    if len(run.ranks) > world:
        raise TraceError(
            f"{run.traces[0].path}: {found} ran kernels in {where}, but the gate file states world {world}: give the "
            "files of one profiling window, each other its own --nsys-trace, or mend run: {world: …}"
        )
    absent = world - len(run.ranks)
    words = f"{absent} of {world} GPUs {_are(absent)} missing"
    why = f"the gate file states world {world}, and {found} ran kernels in {where}"
    yield Fact("missing_ranks", absent, "count", words, why, "give the files of all processes")


def _unlaunched(subject: Subject) -> Iterator[Fact]:
    """Under mode launched they are in no window; else their stage is a guess."""
    if subject.anchors_alone:
        return
    if subject.group.spec.kernels is KernelsMode.LAUNCHED and not subject.group.spec.whole_run:
        without, whole = subject.group.unlaunched
        why = "with kernels: launched they are left out of the windows"
    elif subject.looks_up:
        without, whole = launchless(subject.group)
        why = "their stage could only be looked up at their GPU start, which runs behind"
    else:
        return
    if whole:
        words = f"{_percent(without, whole)} of {whole} kernels have no launch row"
        yield Fact("unlaunched", Fraction(without, whole), "%", words, why, "trace the CUDA API on all ranks")


def launchless(group: WindowGroup) -> tuple[int, int]:
    """Kernels around the windows without a launch row, and of how many: of many, those that communicate."""
    counts = [track.launchless for track in group.tracks.values()]
    return sum(n for n, _ in counts), sum(n for _, n in counts)


def _unstaged(subject: Subject) -> Iterator[Fact]:
    if not subject.stages:
        return
    windows = [window for own in subject.group.ranks.values() for window in own]
    whole = sum(len(window) for window in windows)
    none = sum(len(window.all_by_stage.get(NO_STAGE, ())) for window in windows)
    if whole:
        words = f"{_percent(none, whole)} of {whole} kernels of the windows have no stage"
        why = "they are in no stage's rows"
        yield Fact("unstaged", Fraction(none, whole), "%", words, why, "mend the convention's stage expression")


def _unclassified(subject: Subject) -> Iterator[Fact]:
    if not subject.purposes:
        return
    windows = [window for own in subject.group.ranks.values() for window in own]
    whole = sum(len(window.communication) for window in windows)
    none = sum(window.context(i)[1] is None for window in windows for i in window.communication)
    if whole:
        words = f"{_percent(none, whole)} of {whole} communication kernels have no purpose"
        why = "no rule of the convention says what they are for"
        yield Fact("unclassified", Fraction(none, whole), "%", words, why, "add a purpose to the convention")


def _unknown_communication(subject: Subject) -> Iterator[Fact]:
    if not subject.anchors_alone and (found := uncounted(subject.group)) is not None:
        remedy = found.remedy(subject.run.convention)
        yield Fact("unknown_communication", found.share, "%", found.words, WHY_UNCOUNTED, remedy)


def _whole_graphs(subject: Subject) -> Iterator[Fact]:
    graphs = sum(facts.whole_graphs for facts in subject.run.facts)
    if not subject.anchors_alone:
        words = f"{counted(graphs, 'CUDA graph replay')} {'was' if graphs == 1 else 'were'} traced whole"
        why = "their kernels are in no window"
        yield Fact("whole_graphs", graphs, "count", words, why, "capture with --cuda-graph-trace=node")


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


def _dropped(subject: Subject) -> Iterator[Fact]:
    told = [each.told for facts in subject.run.facts for each in facts.diagnostics if tells_of_loss(each.raw)]
    outside = 0 if subject.anchors_alone else subject.group.out_of_session
    parts = [f"the profiler says: {printable(told[0])}"] if told else []
    if outside:
        what = "starts" if outside == 1 else "start"
        parts.append(f"{counted(outside, 'kernel')} around the windows {what} outside the profiler's session")
    number = len(told) + outside
    words = f"events were dropped or are out of range, {counted(number, 'sign')} of it"
    why = f"{' and '.join(parts)}, so that rows may be missing or wrong"
    yield Fact("dropped", number, "count", words, why, "profile fewer steps or event kinds, or export again")


def _diagnostics(subject: Subject) -> Iterator[Fact]:
    told = [each.told for facts in subject.run.facts for each in facts.diagnostics]
    words = f"the profiler tells of {counted(len(told), 'problem')}"
    why = printable(told[0]) if told else ""
    yield Fact("diagnostics", len(told), "count", words, why, "mend what it says")


def anchor_counts(group: WindowGroup) -> list[tuple[int, int]]:
    """(rank number, number of anchors) of each rank that has one."""
    return [(number, len(track.anchors)) for number, track in group.tracks.items() if track.anchors]


def deviations(group: WindowGroup) -> list[tuple[int, Deviation]]:
    """(rank number, how far its window is from the steady median) where each has one window by an anchor."""
    return [
        (number, found)
        for number, windows in group.ranks.items()
        if len(windows) == 1 and (found := deviation(windows[0])) is not None
    ]


def _anchors(subject: Subject) -> Iterator[Fact]:
    """Where something is a median over anchors. One range that was asked for by name is no median; an index is none."""
    spec = subject.group.spec
    if subject.metric in ("anchors", "window_typicality"):
        return  # a limit on these says it itself, and is a verdict
    counts = anchor_counts(subject.group)
    if spec.anchor is not None:
        counts = [(number, count) for number, count in counts if count > 1]
    elif spec.window not in (MEDIAN, STEADY) and subject.metric != "period_ns":
        return
    if counts:
        number, count = min(counts, key=lambda item: item[1])
        words = f"rank {number} has {counted(count, 'anchor')}"
        yield Fact("anchors", count, "count", words, "the median of so few says little", "profile more steps")


def _empty_anchors(subject: Subject) -> Iterator[Fact]:
    found = max(empty_anchors(subject.group), key=lambda each: Fraction(each.anchors, each.of), default=None)
    if found is not None and not subject.anchors_alone:
        why = "the record of its kernels ends before that of its ranges, and any window may lack some"
        remedy = "profile fewer steps, and look at what the profiler said when it stopped"
        yield Fact("empty_anchors", Fraction(found.anchors, found.of), "%", str(found), why, remedy)


def _uneven_anchors(subject: Subject) -> Iterator[Fact]:
    """Where the window is found by their number. Ranks of two places in a pipeline may have other numbers of them."""
    found = uneven_anchors(subject.group)
    counted_off = subject.group.spec.window in (MEDIAN, STEADY, "last") or subject.group.spec.anchor is not None
    if found is not None and found.alike and counted_off and subject.metric not in ("anchors", "period_ns"):
        why = "so their windows are other pieces of work"
        yield Fact("uneven_anchors", found.apart, "count", str(found), why, "profile the same steps on all ranks")


def _typicality(subject: Subject) -> Iterator[Fact]:
    if subject.metric in ("anchors", "period_ns", "window_typicality"):
        return
    if found := deviations(subject.group):
        number, worst = max(found, key=lambda item: item[1].in_spreads)
        words = f"rank {number}: the window is {worst}"
        why = "numbers of an untypical window are no typical ones"
        yield Fact("typicality", worst.in_spreads, "1", words, why, "profile more steps or take another window")


def clocks(ranks: Sequence[Rank]) -> int:
    """How many clocks the ranks stand on: one for each file and, inside a file, each machine (bits of its process ids).

    Two files are two clocks even where one machine wrote both: each counts from the start of its own session.
    """
    return len({(rank.process.trace, rank.process.global_pid >> 48) for rank in ranks})


def _clocks(subject: Subject) -> Iterator[Fact]:
    number = clocks(subject.run.ranks)
    words = f"the ranks stand on {counted(number, 'clock')}"
    why = "times of two files or machines cannot be held against each other"
    yield Fact("clocks", number, "count", words, why, "profile all ranks into one report")


CHECKS: Mapping[str, Callable[[Subject], Iterator[Fact]]] = {
    "missing_ranks": _missing_ranks,
    "unlaunched": _unlaunched,
    "unstaged": _unstaged,
    "unclassified": _unclassified,
    "unknown_communication": _unknown_communication,
    "whole_graphs": _whole_graphs,
    "dropped": _dropped,
    "diagnostics": _diagnostics,
    "anchors": _anchors,
    "empty_anchors": _empty_anchors,
    "uneven_anchors": _uneven_anchors,
    "typicality": _typicality,
    "clocks": _clocks,
}
