"""Who are the ranks of a run, and which span of each is analysed?

The same trace always gives the same window, so before and after compare. The default is the anchor at index n // 2 of
all anchors of the rank. Other picks: an index, ``first``, ``last``, ``steady`` (the middle half, the median over its
windows being the value), ``run`` (first kernel to end of last), an explicit span, or a range name (its ranges then are
the anchors).

Ranks are told by setup label where there is one, else in the order of file, process and device. The files of a run are
joined by their labels. A process has one label (a repeat of the same one is fine); a rank comes once. A process id is
no name: it differs between two runs of the same program, so it never enters a row.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from math import prod
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.core.conventions import KIND_WORDS, OF_KERNEL, Anchor, Convention
from pytest_nsys.core.errors import NothingMeasured, SeveralCaptures, TraceError, did_you_mean
from pytest_nsys.core.model import (
    NO_LAUNCH,
    Interval,
    KernelsMode,
    Lane,
    Note,
    ProcessId,
    Range,
    Rank,
    Setup,
    Span,
    StepsOfRun,
    Window,
)
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.words import printable
from pytest_nsys.core.workload import Workload

MEDIAN = "median"
RUN = "run"
STEADY = "steady"
_EXPLICIT = re.compile(r"(-?\d+):(-?\d+)")
WORDS = (MEDIAN, RUN, STEADY, "first", "last")
NONE = ""
"""The window of what was measured outside of a trace."""


def of_one_window(window: str) -> str:
    """A window as somebody typed it, for what shows one: of steady steps only their kind, empty where it has none."""
    which, _, kind = window.partition(" ")
    return kind if which == STEADY and kind in ("", *KIND_WORDS) else window


def meant_word(window: str) -> str:
    """A hint where ``window`` is nearly a word, and so no name of a range; a pattern (``%``) is one."""
    return "" if window in WORDS or "%" in window else did_you_mean(window, WORDS, cutoff=0.75)


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """What to analyse, and which kernels count as in it. ``window`` as in a gate file: word, index, span or name.

    ``kind``: only steps of it are picked from, and counted; None: of all steps.
    """

    window: str = MEDIAN
    span: Span = Span.RANGE
    kernels: KernelsMode = KernelsMode.CONTAINED
    kind: str | None = None

    @property
    def asked(self) -> str:
        """The window as rows are stored under it: steps of two kinds are never one series."""
        return self.window if self.kind is None else f"{self.window} {self.kind}"

    @property
    def typed(self) -> str:
        """The window as ``--window`` takes it."""
        return self.kind if self.kind is not None and self.window == MEDIAN else self.asked

    @property
    def picks_steps(self) -> bool:
        """Whether its windows are anchors of the convention."""
        return self.anchor is None and self.explicit is None and not self.whole_run and not self.outside

    @property
    def unit(self) -> str:
        """What a window is picked from, in a word."""
        return "anchor" if self.kind is None else f"{self.kind} step"

    @property
    def whole_run(self) -> bool:
        return self.window == RUN

    @property
    def outside(self) -> bool:
        """Whether there is no window at all: nothing of a trace is looked at."""
        return self.window == NONE

    @property
    def by_launch(self) -> bool:
        """Whether a window's range is on the CPU, and what is measured is the kernels launched in it."""
        return self.kernels is KernelsMode.LAUNCHED and not self.whole_run

    @property
    def explicit(self) -> tuple[int, int] | None:
        """(start_ns, end_ns) where the window is given as ``START:END``."""
        match = _EXPLICIT.fullmatch(self.window)
        return (int(match[1]), int(match[2])) if match else None

    @property
    def index(self) -> int | None:
        return int(self.window) if self.window.isascii() and self.window.isdigit() else None

    @property
    def anchor(self) -> str | None:
        """The range name that stands in for the convention's anchor, where the window is given by name."""
        if self.window in WORDS or self.explicit or self.index is not None:
            return None
        return self.window

    def __str__(self) -> str:
        if self.outside:
            return "measured outside of a trace"
        span = "" if self.span is Span.RANGE or self.whole_run or self.explicit else f", span {self.span}"
        kernels = "all kernels" if self.whole_run else f"kernels {self.kernels}"
        return f"window {printable(self.asked)}{span}, {kernels}"


def anchor_of(convention: Convention, spec: WindowSpec | None) -> Anchor | None:
    """What makes the windows: a range that the spec names, else the convention's own."""
    return (spec and spec.anchor) or convention.anchor


def marks_steps(convention: Convention, spec: WindowSpec | None = None) -> bool:
    """Return whether anchors mark steps, which follow one another without a hole whatever the span.

    A part of a step, and a range that somebody names, are measured by themselves.
    """
    named = spec is not None and spec.anchor is not None
    return convention.anchor is not None and not named and not convention.marks_parts


OUTSIDE = WindowSpec(NONE)
"""The spec of what was measured outside of a trace."""


@dataclass(frozen=True, slots=True)
class UsedWindow:
    """The window that one rank of one capture was judged on; ``by_launch``: it spans launches, on the CPU. ``kind``: of
    a step that has one, whose time on the CPU says nothing: it waits for the GPU where it ends.
    """

    capture: int
    rank: int
    window: Window
    by_launch: bool = False
    kind: str | None = None


class LookedAt(NamedTuple):
    """What explains a row: of the ranks of one capture the ``n``-th window that ``spec`` picks."""

    spec: WindowSpec
    capture: int
    n: int
    windows: tuple[UsedWindow, ...]

    @property
    def number(self) -> int | None:
        """That of the anchor, as ``--window`` takes it; None where the ranks' are not the same, or there is none."""
        found = {used.window.index for used in self.windows}
        return found.pop() if len(found) == 1 and self.spec.anchor is None else None


def noun_of(windows: Iterable[UsedWindow]) -> str:
    """What these are: steps as far as their names say so, else windows. Units of a kernel are steps, as ``show`` says:
    who wants a layer names it.
    """
    names = {used.window.name.lower() for used in windows}
    steps = ("step", "iteration", "execute_")  # vLLM's begin so
    said = (name.startswith(OF_KERNEL) or any(word in name for word in steps) for name in names)
    return "step" if all(said) else "window"


def spec_under(
    convention: Convention,
    window: str,
    span: Span | None = None,
    kernels: KernelsMode | None = None,
    kind: str | None = None,
) -> WindowSpec:
    """A window spec, with what is left open as the convention has it. Where steps have kinds ``window`` may end in one:
    ``decode``, ``steady decode``. A step lasts until the next begins, so that its span is its period.
    """
    *which, last = window.split(" ")
    if last in convention.kind_names:
        kind, window = kind or last, " ".join(which) or MEDIAN
    kind = kind if kind in convention.kind_names else None
    asked = WindowSpec(window, span or convention.span, kernels or convention.kernels, kind)
    if asked.whole_run:
        return WindowSpec(RUN, kind=kind)  # has neither anchors nor edges: however it is asked for, it is read once
    return replace(asked, span=Span.RANGE) if asked.explicit or marks_steps(convention, asked) else asked


def as_one_step(workload: Workload, spec: WindowSpec, *, anchored: bool) -> Workload:
    """A run without an anchor is one step, and so is a window by its times, where nobody states how many it is."""
    whole = spec.explicit is not None or (spec.whole_run and not anchored)
    return workload._replace(steps=1) if whole and workload.steps is None else workload


def left_open(window: object = None, span: object = None, kernels: object = None) -> tuple[str, ...]:
    """The fields of a spec that nobody asked for; a window says its kind."""
    asked = {"window": window, "span": span, "kernels": kernels, "kind": window}
    return tuple(name for name, value in asked.items() if value is None)


def steady_indices(count: int, whole: int | None = None) -> range:
    """Return the middle half of the anchors, [n // 4, n − n // 4), as far as they are among the first ``whole``."""
    return range(count // 4, min(count - count // 4, count if whole is None else whole))


def anchor_windows(anchors: Sequence[Range], spec: WindowSpec) -> list[Window]:
    """The picked windows of one rank, from its anchors ordered by start.

    Raises NothingMeasured where an index does not exist, or the period of the last anchor is asked for.
    """
    count, whole = len(anchors), whole_steps(anchors)
    indices: Sequence[int]
    match spec.window:
        case "first":
            indices = [0]
        case "last":
            indices = [count - 1]
        case "steady":
            indices = steady_indices(count, whole)
        case _:
            indices = [min(count // 2, whole - 1) if spec.index is None else spec.index]
    return [_anchor_window(anchors, i, spec) for i in indices]


_STEP_NUMBER = re.compile(r"(?:step|iter)[a-z_]*[ #=:\[]*([0-9]{1,18})(?![0-9])", re.IGNORECASE)
_DIGITS = re.compile("[0-9]+")


def numbered(anchors: Sequence[Range]) -> dict[int, int]:
    """Return the index of each step by the number in its name, ``step 7``; empty where the names do not count up."""
    found: dict[int, int] = {}
    last, shape = -1, None
    for index, anchor in enumerate(anchors):
        match = _STEP_NUMBER.search(anchor.name)
        around = match and _DIGITS.sub("", anchor.name)
        if match is None or int(match[1]) <= last or around != (shape or around):
            return {}
        last, shape = int(match[1]), around
        found[last] = index
    return found


def whole_steps(anchors: Sequence[Range]) -> int:
    """Return how many of the anchors are whole: of steps the last has no next one, and is whole only if it is alone."""
    follow = bool(anchors) and isinstance(anchors[0], StepSpan)
    return len(anchors) - 1 if follow and len(anchors) > 1 else len(anchors)


def _anchor_window(anchors: Sequence[Range], index: int, spec: WindowSpec) -> Window:
    count = len(anchors)
    if index >= count:
        raise NothingMeasured(f"there is no {spec.unit} {index}: the rank has {count}, numbered from 0")
    anchor = anchors[index]
    end = anchor.end_ns
    if spec.span is Span.PERIOD and not isinstance(anchor, StepSpan):
        if index + 1 >= count:
            raise NothingMeasured(
                f"anchor {index} of {count} has no successor, so it has no period: use span: range, or an earlier index"
            )
        end = anchors[index + 1].start_ns
    return Window(anchor.start_ns, end, anchor.name, index, count)


class StepSpan(Range):
    """A step on the host: from its own begin to that of the next step, of the last one to the end of its work."""

    __slots__ = ()


def without_nested(ranges: Sequence[Range]) -> list[Range]:
    """Return the ranges of one pattern, ordered by start, without those inside another of them on the same thread."""
    ends: dict[int, int] = {}
    outermost = []
    for each in sorted(ranges, key=lambda each: (each.start_ns, -each.end_ns)):
        if each.end_ns > ends.get(each.thread, NO_LAUNCH):
            outermost.append(each)
            ends[each.thread] = each.end_ns
    return outermost


def lasting(anchors: Sequence[Range]) -> list[Range]:
    """Return each anchor until the next begins; what lies inside another is a part of that, and of several that begin
    at one moment, as on two threads, the longest is the step.
    """
    begun = {anchor.start_ns: anchor for anchor in reversed(without_nested(anchors))}
    steps: list[Range] = [StepSpan(*begun[at_ns]) for at_ns in sorted(begun)]
    ends = [later.start_ns for _, later in pairwise(steps)]
    return [*(step._replace(end_ns=end) for step, end in zip(steps, ends, strict=False)), *steps[-1:]]


def span_lengths(anchors: Sequence[Range], span: Span) -> list[int]:
    """Window length of each anchor; with span period the last anchor has none."""
    return [a.end_ns - a.start_ns for a in anchors] if span is Span.RANGE else periods(anchors)


def periods(anchors: Sequence[Range]) -> list[int]:
    """Start of each next anchor minus start of the anchor; the last has none."""
    return [b.start_ns - a.start_ns for a, b in pairwise(anchors)]


@dataclass(frozen=True, slots=True)
class RankSteps:
    """The steps of a rank that have a window, by start: on the host, and by index from when to when each has the GPU.

    ``why`` there are none is the end of a sentence. ``mixed``: under one label they are of several kinds, which come
    back and take no turns.
    """

    steps: Sequence[Range]
    on_gpu: Sequence[Interval] = ()
    why: str = ""
    mixed: bool = False

    @classmethod
    def kept(cls, of_run: StepsOfRun, marks: Sequence[Range], name: str = "") -> RankSteps:
        """Return those of the run that a cut is of, named as its ``marks`` are that begin with them, else ``name``."""
        names = {mark.start_ns: mark for mark in marks}
        unnamed = Range(0, 0, 0, name)
        steps = [StepSpan(start, end, *names.get(start, unnamed)[2:]) for start, end in of_run.on_host]
        return cls(steps, of_run.on_gpu)

    @property
    def of_run(self) -> StepsOfRun:
        """As a cut keeps them."""
        return StepsOfRun([(step.start_ns, step.end_ns) for step in self.steps], self.on_gpu)

    def lengths_ns(self) -> dict[int, int]:
        """Return how long each whole step has the GPU, in ns, by when it begins on the host."""
        each = zip(self.steps, self.on_gpu, strict=True)
        lengths = {step.start_ns: end - begin for step, (begin, end) in each}
        return dict(list(lengths.items())[: whole_steps(self.steps)])

    def time_on_gpu(self, start_ns: int) -> Interval | None:
        """Return from when to when the step has the GPU that begins at a moment of the host; None where none does."""
        at = bisect_left(self.steps, start_ns, key=lambda step: step.start_ns)
        return self.on_gpu[at] if at < len(self.steps) and self.steps[at].start_ns == start_ns else None


Labels = Mapping[int, Setup]
"""The setup label of each labelled process of one trace, by serialised process id."""

_OF_ONE_RANK = "these are captures of one rank: give the files of one run"
_ONE_LABEL = "a rank is one process: capture one run, in which each process pushes a label of its own"

_SHOWN = 8


def read_labels(trace: Trace, ranges: Mapping[int, Sequence[Range]], convention: Convention) -> Labels:
    """The labels of a trace, among its ``ranges``. Raises TraceError for a process with two different ones."""
    found: dict[int, Setup] = {}
    prefix = (convention.setup_pattern or "").partition("%")[0]
    for pid, own in sorted(ranges.items()):
        names = {r.name for r in own if r.name.startswith(prefix)}
        texts = {name: setup for name in sorted(names) if (setup := convention.setup_of(name)) is not None}
        if len(texts) > 1:
            both = ", ".join(f"'{printable(t)}'" for t in sorted(texts)[:3])
            raise TraceError(
                f"{trace.path}: process {ProcessId(0, pid).pid} has {len(texts)} setup labels ({both}): "
                "one process is one rank and pushes one label"
            )
        for setup in texts.values():
            found[pid] = setup
    return found or trace.setups()


def find_ranks(
    traces: Sequence[Trace], labels: Sequence[Labels], numbers: Sequence[Mapping[Lane, int]]
) -> tuple[tuple[Rank, ...], tuple[Note, ...]]:
    """The ranks of a run, ordered by number, and what a person should know about how they were told apart.

    ``numbers`` are those that each trace gives its ranks itself, as a cut does.
    """
    if any(labels):
        return _labelled(traces, labels)
    lanes = [(number, trace.path, lane) for number, trace in enumerate(traces) for lane in trace.lanes()]
    return _ordinals(lanes, {(trace, lane): n for trace, own in enumerate(numbers) for lane, n in own.items()})


def _labelled(traces: Sequence[Trace], labels: Sequence[Labels]) -> tuple[tuple[Rank, ...], tuple[Note, ...]]:
    ranks: dict[int, Rank] = {}
    for number, (trace, own) in enumerate(zip(traces, labels, strict=True)):
        if not own:
            raise TraceError(f"{trace.path}: has no setup label, but other files of the run have one")
        for pid, setup in own.items():
            rank = Rank(setup.rank, ProcessId(number, pid), None, setup, trace.path)
            if (other := ranks.get(setup.rank)) is not None:
                twice = (
                    f"rank {setup.rank} appears twice in this run ({other.trace}, process {other.pid}; "
                    f"{rank.trace}, process {rank.pid})"
                )
                if other.trace == rank.trace:  # no choice of files tells them apart
                    raise TraceError(f"{twice}: {_ONE_LABEL}")
                raise SeveralCaptures(f"{twice}: {_OF_ONE_RANK}")
            ranks[setup.rank] = rank
    ordered = tuple(ranks[n] for n in sorted(ranks))
    _check_sizes(ordered)
    return ordered, ()


def _check_sizes(ranks: Sequence[Rank]) -> None:
    """Raises TraceError where labels state other sizes of the mesh."""
    first = ranks[0].setup
    assert first is not None  # every rank here has a label
    for rank in ranks:
        if rank.setup is not None and dict(rank.setup.sizes) != dict(first.sizes):
            raise TraceError(
                f"setup labels conflict: '{printable(first.text)}' and '{printable(rank.setup.text)}' state other "
                "sizes: these are not files of one run"
            )


def absent_ranks(ranks: Sequence[Rank]) -> tuple[int, int, str]:
    """Return how many ranks no trace holds, of how many, and the first of them.

    The sizes of the setup labels promise them; without sizes they are the numbers left out below the highest, of more
    than one rank: one alone may be all that was recorded, as rank 3 of a job is.
    """
    setup = ranks[0].setup if ranks else None
    if setup is None or (not setup.sizes and len(ranks) == 1):
        return 0, len(ranks), ""
    return _absent(ranks, prod(setup.sizes.values()) if setup.sizes else ranks[-1].number + 1)


def clocks(ranks: Sequence[Rank]) -> int:
    """How many clocks the ranks use."""
    return len({rank.process.clock for rank in ranks})


def _absent(ranks: Sequence[Rank], world: int) -> tuple[int, int, str]:
    present = {rank.number for rank in ranks if rank.number < world}
    absent = world - len(present)
    first_absent = islice((n for n in range(world) if n not in present), _SHOWN)
    return absent, world, ", ".join(map(str, first_absent)) + (" …" if absent > _SHOWN else "")


def _ordinals(
    lanes: Sequence[tuple[int, Path, Lane]], numbers: Mapping[tuple[int, Lane], int]
) -> tuple[tuple[Rank, ...], tuple[Note, ...]]:
    seen: dict[Lane, Path] = {}
    for _, path, lane in lanes:
        if lane in seen:
            raise SeveralCaptures(
                f"{seen[lane]} and {path} hold the same process {ProcessId(0, lane.global_pid).pid} "
                f"on device {lane.device}, and no setup label tells them apart: {_OF_ONE_RANK}"
            )
        seen[lane] = path
    found = (
        Rank(numbers.get((trace, lane), n), ProcessId(trace, lane.global_pid), lane.device, None, path)
        for n, (trace, path, lane) in enumerate(lanes)
    )
    ranks = tuple(sorted(found, key=lambda rank: rank.number))
    if not ranks:
        return ranks, ()
    notes = [Note("no setup label: ranks are numbered by (file, process, device)")]
    if max(Counter((rank.process.trace, rank.device) for rank in ranks).values()) > 1:
        notes.append(Note("several processes use the same device id: the order of ranks may swap between two runs"))
    return ranks, tuple(notes)
