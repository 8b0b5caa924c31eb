"""How does a summary read on one screen, of at most 40 lines with 80 to 100 characters?

What is told by name is told whole; where that is too long the empty lines between the sections go first, then the
stages and doubts beyond the first few, whose number is said.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.analysis.steps.words import Searched, inside_words, why_whole
from pytest_nsys.analysis.summary.communication import Communicated
from pytest_nsys.analysis.summary.mostly import MostOf
from pytest_nsys.analysis.summary.subject import Found, RunSubject
from pytest_nsys.analysis.summary.summary import LARGEST, STEP, Summary
from pytest_nsys.core.conventions import NO_STAGE, Anchor, KernelAnchor
from pytest_nsys.core.kernel_names import in_the_middle, readable_names
from pytest_nsys.core.model import KernelsMode, Span, Value
from pytest_nsys.core.numbers import Scale, format_apart, format_together, format_value, percent, scale_of
from pytest_nsys.core.units import BARE, TIME
from pytest_nsys.core.words import counted, printable, ranks_words
from pytest_nsys.reports.screens.findings import nothing_found, sentence, win_words
from pytest_nsys.reports.screens.mostly import mostly_lines
from pytest_nsys.reports.screens.next_steps import next_steps, of_units, to_see_more
from pytest_nsys.reports.screens.rank_bars import SHARES, rank_bars, told_in_tenths
from pytest_nsys.reports.tables.bars import Pen
from pytest_nsys.reports.tables.layout import COLUMNS, Fitting, in_columns

LINES = 40
GAPS = 3
"""Empty lines between the sections that are worth more than findings on two lines, or another stage."""

WORLD = "world"
"""An axis that is all ranks."""

OTHER = Fraction(101, 100)
"""Windows that are so many times a step, or a step of them, are told below it."""

LONGEST_TITLE, LEAST_TITLE, LEAST_ANCHOR, LONGEST_RANGE = 36, 8, 16, 40
"""The name of what is measured gives way to its numbers first, then the title; on two lines neither does."""

TYPICAL = "p50"
"""The quantile that says how long a step usually is, as the first figure of a line does."""

LONGEST_WORD = 24
"""What a first line may leave empty, where it is broken before a word."""


class Room(NamedTuple):
    """How much is told: findings on two lines each or on one, doubts whole or cut, and how many stages, doubts and
    kernels.
    """

    wide: bool
    whole: bool
    stages: int
    doubts: int
    kernels: int = LARGEST


ROOMS = (
    Room(True, True, 5, 3),
    Room(True, True, 3, 2),
    Room(True, False, 3, 2),
    Room(False, True, 5, 3),
    Room(False, False, 5, 3),
    Room(False, False, 3, 2),
    Room(False, False, 1, 1),
    Room(False, False, 0, 1),
    Room(False, False, 0, 1, 4),
)
"""From the most to the least that a screen tells."""

Section = list[str]


@dataclass(frozen=True)
class FirstScreen:
    """A summary as lines of text."""

    summary: Summary
    pen: Pen = field(default_factory=Pen)

    def lines(self) -> list[str]:
        """The screen. Only a line with a path, which has to be whole, is longer than the pen's lines."""
        each = [self._sections(room) for room in ROOMS]
        left = [LINES - sum(map(len, sections)) for sections in each]
        fits = next((n for n, spare in enumerate(left) if spare >= GAPS), None)
        chosen = next((n for n, spare in enumerate(left) if spare >= 0), len(each) - 1) if fits is None else fits
        sections, spare = each[chosen], left[chosen]
        text: list[str] = []
        for number, own in enumerate(sections):
            text += [""] if number and len(sections) - number <= spare else []
            text += own
        return text

    def markdown(self) -> str:
        """The screen as it is: its columns would not survive another font."""
        text = "\n".join(self.lines())
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
        return f"{fence}text\n{text}\n{fence}\n"

    @property
    def _columns(self) -> int:
        """How many characters a line has."""
        return min(COLUMNS, self.pen.columns)

    def _line(self, text: str) -> str:
        return printable(text, self._columns)

    def _sections(self, room: Room) -> list[Section]:
        parts = (
            [*self._subject(), *self._step()],
            [*rank_bars(self.summary.budgets, self.pen)],
            [*self._kernels(room.kernels)],
            [*self._communication(room.stages)],
            [*self._findings(wide=room.wide), *self._doubts(room)],
            [*self._next()],
        )
        return [own for own in parts if own]

    def _subject(self) -> Iterator[str]:
        about = self.summary.subject
        names = [Path(trace).name or trace for trace in self.summary.traces]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        title = in_the_middle(printable(names[0]), LONGEST_TITLE)
        room = self._columns - len(f"{title}{more}: ")
        found = found_words(about.found, room, self.summary.searched)
        if len(found) - room > len(title) - LEAST_TITLE:
            found = found_words(about.found, room + self._columns - LONGEST_WORD, self.summary.searched)
        elif len(found) > room:
            title = in_the_middle(title, len(title) + room - len(found))
        yield from textwrap.wrap(printable(f"{title}{more}: {found}", 2 * self._columns), self._columns)
        yield self._line(", ".join(describe_environment(about)))
        if missing := sorted(self.summary.without):
            yield self._line(f"nothing measured of {ranks_words(missing)}: {self.summary.without[missing[0]]}")

    @property
    def _whole(self) -> str:
        """What is measured, of which shares are."""
        return self.summary.subject.found.of

    def _step(self) -> Iterator[str]:
        step = self.summary.step
        length, fastest = format_value(step.ns), ""
        if step.fastest is not None:
            rank, ns = step.fastest
            length, least = format_apart(step.ns, ns, TIME)
            length, fastest = f"{length} on the slowest rank ({step.slowest})", f", {least} on the fastest ({rank})"
        values = format_together([*step.quantiles.values()])
        told = dict(zip(step.quantiles, values, strict=True)) if len(set(step.quantiles.values())) > 1 else {}
        spread = ", ".join(map(" ".join, told.items()))
        windows = [budget.window_ns for budget in self.summary.budgets]
        other = max(windows) > OTHER * step.ns or OTHER * max(windows) < step.ns
        rates = "".join(f"; {format_value(rate.value, rate.unit)}" for rate in step.rates)
        what = "step" if step.metric == STEP else self._whole
        # beside the length that is judged another typical one, of the steady steps, would leave open which counts
        tail = ", ".join(f"{quantile} {value}" for quantile, value in told.items() if quantile != TYPICAL)
        alone = f" ({tail})" if tail and not fastest else ""
        kind = self.summary.subject.found.kind
        yield self._line(f"{f'{kind} ' if kind and what == 'step' else ''}{what} {length}{alone}{fastest}{rates}")
        if step.kinds:
            each = ", ".join(
                f"{own.number} {own.kind} ({'on some ranks' if own.ns is None else format_value(own.ns)})"
                for own in step.kinds
            )
            another = next(own.kind for own in step.kinds if own.kind != kind)
            yield self._line(f"steps: {each}; of another kind: --window {another}")
        steps = [*self._steps(spread if fastest else "")]
        together = "; ".join(steps)
        yield from map(self._line, filter(None, [together] if len(together) <= self._columns else steps))
        if other and not self.summary.subject.found.whole_run:
            yield self._line(self._measured(windows))
        if self.summary.mostly is not None:
            yield from map(
                self._line, mostly_lines(self.summary.mostly, self._whole, beside=self.summary.kernels.names)
            )

    def _steps(self, spread: str) -> Iterator[str]:
        """How the steps of the slowest rank spread where that is not told yet, and which one stands out."""
        step = self.summary.step
        if spread:
            yield f"steps of rank {step.slowest} ({step.steady} steady of {step.steps}): {spread}"
        if (longest := step.longest) is not None:
            whose = f"rank {longest.rank}, " if len(self.summary.subject.ranks) > 1 else ""
            kind = self.summary.subject.found.kind
            window = str(longest.window) if kind is None else f"'{longest.window} {kind}'"
            yield f"longest step {format_value(longest.ns)} ({whose}--window {window})"

    def _measured(self, windows: Sequence[int]) -> str:
        """What all below is of, where it is not as long as a step."""
        found = self.summary.subject.found
        name = f" ({printable(found.name, LONGEST_RANGE)})" if found.name else ""
        how = {KernelsMode.LAUNCHED: "kernels launched in ", KernelsMode.CLIPPED: "kernels cut at the edges of "}
        which = f"{how.get(found.kernels, '')}--window {found.numbered}{name}"
        least, most = format_together([min(windows), max(windows)])
        where = " on the GPU" if found.kernels is KernelsMode.LAUNCHED else ""  # else from anchor to anchor
        return f"below: {which}, {most if least == most else f'{least} to {most}'}{where}"

    def _kernels(self, most: int) -> Iterator[str]:
        kernels = self.summary.kernels
        largest, more = kernels.largest[:most], kernels.largest[most:]
        scale = scale_of([each.ns for each in largest], TIME)
        rest = [
            (format_value(k.ns, scale=scale), _tenths(k.share), format_value(k.launches, BARE), k.family)
            for k in largest
        ]
        many = len(self.summary.subject.ranks) > 1
        head = ("time", f"of {self._whole}", "launches", "family")
        widths = [max(map(len, column)) for column in zip(head, *rest, strict=True)]
        room = self._columns - sum(width + 2 for width in widths)
        names = readable_names([each.name for each in largest], room)
        title = "largest kernels, mean over the ranks" if many else "largest kernels"
        each = [(names[kernel.name], cells) for kernel, cells in zip(largest, rest, strict=True)]
        for name, cells in [(title, head), *each]:
            numbers = (f"{cell:>{width}}  " for cell, width in zip(cells[:-1], widths, strict=False))
            yield f"{name:{room}}  {''.join(numbers)}{cells[-1]}"
        if others := kernels.others + len(more):
            together = kernels.others_ns + sum(each.ns for each in more)
            yield f"and {others} {'other' if others == 1 else 'others'}, together {format_value(together)}"

    def _communication(self, most: int) -> Iterator[str]:
        found = self.summary.communication
        if found.whole is None:
            yield self._line(f"communication: {found.why}")
            return
        every = found.each if len(found.each) > 1 or found.each[0].ns != found.whole.ns else ()
        rows = [found.whole, *(found.each[:most] if every else ())]
        scale = scale_of([row.ns for row in rows], TIME)
        speeds = any(row.busbw is not None for row in rows)
        ranks = len(self.summary.subject.ranks) > 1
        counts = ("exposed all", "overlap all") if found.shared else ("exposed", "overlap")
        head = (*(("rank",) if ranks else ()), "time", *counts, *(("GB/s",) if speeds else ()))
        cells = [head, *(_cells(row, scale, speeds=speeds, ranks=ranks) for row in rows)]
        title = f"communication by {found.by}{', worst rank of each' if ranks else ''}"
        names = ["all" if every else name_stage(found.each[0].name), *(name_stage(row.name) for row in rows[1:])]
        named = [printable(name, 50) for name in names]
        shorter: Callable[[int], list[str]] = lambda width: [in_the_middle(name, width) for name in named]  # noqa: E731
        figures = (Fitting(text, own, to_the_right=True) for text, *own in zip(*cells, strict=True))
        yield from in_columns([Fitting(title, named, shorter), *figures], self._columns, ruled=False)
        more = len(found.each) - most if every else 0
        notes = [f"{found.sharing.words}: wall_exposed_all counts them"] if found.shared else []
        notes += [f"and {more} more: --view {'overlap' if found.by == 'stage' else 'collectives'}"] if more > 0 else []
        if notes:
            yield from textwrap.wrap("; ".join(notes), self._columns)

    def _findings(self, *, wide: bool) -> Iterator[str]:
        found, beside = self.summary.findings, self.summary.kernels.names
        if not found:
            computes = [budget.shares[BudgetPart.COMPUTE] for budget in self.summary.budgets if budget.parts]
            none = nothing_found(min(computes), self._whole) if computes else "no rank has a budget"
            yield f"what to look at: {none}"
            return
        yield "what to look at, and the most that fixing it could win"
        for number, finding in enumerate(found, 1):
            win, mark = win_words(finding, self._whole), f"{number}. "
            more = finding.more if finding.more.startswith("--view") else f"pytest-nsys {finding.more} TRACE…"
            if wide:
                said = mark + sentence(finding, self._columns - len(mark), beside)
                long = mark + sentence(finding, 2 * self._columns - 2 * len(mark), beside)
                yield from textwrap.wrap(long, self._columns, subsequent_indent="   ") if said.endswith("…") else [said]
                yield f"   {win or 'more'}: {to_see_more(finding, self.summary.first, self.summary.options)}"
            else:
                below = f", {win}  {more}" if win else f"  {more}"
                yield mark + sentence(finding, self._columns - len(mark) - len(below), beside) + below

    def _doubts(self, room: Room) -> Iterator[str]:
        doubts, more = self.summary.doubts, len(self.summary.doubts) - room.doubts
        for number, doubt in enumerate(doubts[: room.doubts], 1):
            last = f" (and {counted(more, 'more doubt')})" if more > 0 and number == room.doubts else ""
            text = printable(f"doubtful: {doubt}", 3 * self._columns) + last
            lines = textwrap.wrap(text, self._columns, subsequent_indent=" " * len("doubtful: "))
            yield from lines if room.whole else [printable(f"doubtful: {doubt}", self._columns - len(last)) + last]

    def _next(self) -> Iterator[str]:
        summary = self.summary
        steps = [
            *next_steps(
                summary.traces, summary.options, summary.first, summary.kind_of_several, is_cut=summary.subject.is_cut
            )
        ]
        copies = self.summary.mostly is not None and self.summary.mostly.of is MostOf.COPIES
        if self.summary.subject.found.whole_run and not copies:  # windows of kernels leave most copies out
            steps += of_units(self.summary.traces, self.summary.searched)
        width = max(len(step.command) for step in steps)
        lines = [f"{step.command:{width}}  # {step.what}" for step in steps]
        if max(map(len, lines)) + len("next: ") > self._columns:
            lines = [step.command for step in steps]
        yield from (f"{'' if number else 'next:':5} {line}" for number, line in enumerate(lines))


def describe_environment(about: RunSubject) -> Iterator[str]:
    """Yield what a run was recorded by and on: profiler, framework, GPUs, ranks, mesh, files and captures."""
    ranks = len(about.ranks)
    yield about.profiler
    if about.framework is not None and about.framework != about.profiler:
        yield about.framework
    gpus = f"{about.gpus} × {about.gpu}" if about.gpu else f"{counted(about.gpus, 'GPU')}, GPU model not recorded"
    yield gpus + (f", {ranks} processes" if about.gpus < ranks else "")
    if about.absent:
        yield f"{ranks} of {ranks + about.absent} ranks"
    if axes := [f"{axis} {size}" for axis, size in about.mesh.items() if axis != WORLD]:
        yield " × ".join(axes)
    if about.files > 1:
        yield counted(about.files, "file")
    if about.captures > 1:
        yield f"medians of {about.captures} captures"


def found_words(found: Found, room: int = COLUMNS, searched: Searched = None) -> str:
    """How the windows were found, in so many characters: ``step = range 'ProfilerStep#%', 5 of them; --window 2``."""
    if found.anchor is None:
        what = f"the window {found.window} ns" if found.stated else "the whole run"
        return f"{what} is measured: {why_whole(searched)}"
    of_kernel = isinstance(found.anchor, KernelAnchor)
    if found.whole_run:
        many = f"{found.count} steps from " if of_kernel else f"{counted(found.count, 'range')} '"
        before, end = f"the whole run is measured, with {many}", " to the next" if of_kernel else "'"
        return f"{before}{anchor_words(found.anchor, room - len(before) - len(end))}{end}"
    whose = "part of a step" if found.part else f"{found.kind} step" if found.kind else "step"
    start, end = ("'", "' to the next") if found.span is Span.PERIOD else ("range '", "'")
    if of_kernel:
        start, end = "", " to the next"
    shown, parts = f"{found.count} in all; --window {found.numbered}", ""
    if found.index is not None:
        shown = f"one of {found.count} (--window {found.numbered})" if found.count > 1 else "the only one"
        parts = inside_words(searched) if found.count == 1 else ""
    how = {KernelsMode.LAUNCHED: ", kernels launched in it", KernelsMode.CLIPPED: ", kernels cut at its edges"}
    more = how.get(found.kernels, "")
    before, after = f"{whose} = {start}", f"{end}, {shown}" + (f" ({parts}){more}" if parts else "")
    text = before + anchor_words(found.anchor, room - len(before) - len(after)) + after
    return text if parts or len(text + more) > room else text + more


def anchor_words(anchor: Anchor, width: int) -> str:
    """What begins a window, in so many characters, of which it has LEAST_ANCHOR at least: exact where that fits, else
    as a person calls the kernels.
    """
    text, width = printable(str(anchor)), max(LEAST_ANCHOR, width)
    if isinstance(anchor, KernelAnchor) and len(text) > width:
        own = [name for name in anchor if name is not None]
        around = len(text) - sum(len(printable(name)) for name in own)
        called = readable_names(own, (width - around) // len(own))
        text = str(KernelAnchor(*(called[name] for name in own)))
    return telling(text, width)


def telling(anchor: str, width: int) -> str:
    """A pattern in so many characters: its beginning where that holds a wildcard, else both ends."""
    wildcard = anchor.find("%") + 1
    if 0 < wildcard < width < len(anchor):
        return f"{anchor[: width - 1]}…"
    return in_the_middle(anchor, width)


def name_stage(stage: str) -> str:
    """Return a stage as people read it: ``no stage`` for what has none."""
    return "no stage" if stage == NO_STAGE else stage


def _tenths(share: Value) -> str:
    """A share of its own, that is no part of 100%."""
    return told_in_tenths(round(Fraction(share) * SHARES), Fraction(share)) if share <= 1 else percent(share)


def _cells(row: Communicated, scale: Scale, *, speeds: bool, ranks: bool) -> tuple[str, ...]:
    times = (format_value(ns, scale=scale) for ns in (row.ns, row.exposed_ns))
    overlap = "-" if row.overlap is None else percent(row.overlap)
    speed = "-" if row.busbw is None else format_value(row.busbw, BARE)
    return (*((str(row.rank),) if ranks else ()), *times, overlap, *((speed,) if speeds else ()))
