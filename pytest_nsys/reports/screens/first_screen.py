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
"""Counts the empty lines between the sections that are worth more than findings on two lines, or another stage."""

WORLD = "world"
"""Names the axis that is all ranks."""

OTHER = Fraction(101, 100)
"""Windows that are so many times a step, or a step of them, are told below it."""

LONGEST_TITLE, LEAST_TITLE, LEAST_ANCHOR, LONGEST_RANGE = 36, 8, 16, 40
"""Limits widths: the name of what is measured gives way to its numbers first, then the title.

On two lines neither does.
"""

TYPICAL = "p50"
"""Names the quantile that says how long a step usually is, as the first figure of a line does."""

LONGEST_WORD = 24
"""Limits what a first line may leave empty, where it is broken before a word."""


class Room(NamedTuple):
    """Says how much is told on a screen."""

    wide: bool  # findings on two lines each, not on one
    whole: bool  # doubts whole, not cut to a line
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
"""Lists the rooms from the most to the least that a screen tells."""

Section = list[str]


@dataclass(frozen=True)
class FirstScreen:
    """Renders a summary as lines of text."""

    summary: Summary
    pen: Pen = field(default_factory=Pen)

    def lines(self) -> list[str]:
        """Return the lines of the screen. Only a line with a path, which has to be whole, is longer than the pen's
        lines.
        """
        versions = [self._sections(room) for room in ROOMS]
        spare_lines = [LINES - sum(map(len, sections)) for sections in versions]
        # The fullest version that leaves room for some empty lines; else the fullest that fits at all.
        fitting_version = next((n for n, spare in enumerate(spare_lines) if spare >= GAPS), None)
        chosen_version = (
            next((n for n, spare in enumerate(spare_lines) if spare >= 0), len(versions) - 1)
            if fitting_version is None
            else fitting_version
        )
        sections, spare = versions[chosen_version], spare_lines[chosen_version]
        text: list[str] = []
        for number, section in enumerate(sections):
            # The last sections get their empty lines first.
            text += [""] if number and len(sections) - number <= spare else []
            text += section
        return text

    def markdown(self) -> str:
        """Return the screen as a Markdown code block: its columns would not survive another font."""
        text = "\n".join(self.lines())
        # Longer than any in the text, which would end the block.
        fence = "`" * max(3, 1 + max((len(backticks) for backticks in re.findall("`+", text)), default=0))
        return f"{fence}text\n{text}\n{fence}\n"

    @property
    def _columns(self) -> int:
        """Return how many characters a line has."""
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
        return [section for section in parts if section]

    def _subject(self) -> Iterator[str]:
        subject = self.summary.subject
        names = [Path(trace).name or trace for trace in self.summary.traces]
        more_text = f" and {len(names) - 1} more" if len(names) > 1 else ""
        title = in_the_middle(printable(names[0]), LONGEST_TITLE)
        room = self._columns - len(f"{title}{more_text}: ")
        found_text = found_words(subject.found, room, self.summary.searched)
        if len(found_text) - room > len(title) - LEAST_TITLE:
            found_text = found_words(subject.found, room + self._columns - LONGEST_WORD, self.summary.searched)
        elif len(found_text) > room:
            title = in_the_middle(title, len(title) + room - len(found_text))
        yield from textwrap.wrap(printable(f"{title}{more_text}: {found_text}", 2 * self._columns), self._columns)
        yield self._line(", ".join(describe_environment(subject)))
        if missing_ranks := sorted(self.summary.without):
            yield self._line(
                f"nothing measured of {ranks_words(missing_ranks)}: {self.summary.without[missing_ranks[0]]}"
            )

    @property
    def _whole(self) -> str:
        """Return what is measured, as shares are called: ``step``, ``run``."""
        return self.summary.subject.found.of

    def _step(self) -> Iterator[str]:
        step = self.summary.step
        length_text, fastest_text = format_value(step.ns), ""
        if step.fastest is not None:
            rank, ns = step.fastest
            length_text, shortest_text = format_apart(step.ns, ns, TIME)
            length_text, fastest_text = (
                f"{length_text} on the slowest rank ({step.slowest})",
                f", {shortest_text} on the fastest ({rank})",
            )
        values = format_together([*step.quantiles.values()])
        quantile_texts = dict(zip(step.quantiles, values, strict=True)) if len(set(step.quantiles.values())) > 1 else {}
        spread_text = ", ".join(map(" ".join, quantile_texts.items()))
        lengths_ns = [budget.window_ns for budget in self.summary.budgets]
        is_other_length = max(lengths_ns) > OTHER * step.ns or OTHER * max(lengths_ns) < step.ns
        rates_text = "".join(f"; {format_value(rate.value, rate.unit)}" for rate in step.rates)
        noun = "step" if step.metric == STEP else self._whole
        # beside the length that is judged another typical one, of the steady steps, would leave open which counts
        tail_text = ", ".join(
            f"{quantile} {value}" for quantile, value in quantile_texts.items() if quantile != TYPICAL
        )
        tail_suffix = f" ({tail_text})" if tail_text and not fastest_text else ""
        kind = self.summary.subject.found.kind
        yield self._line(
            f"{f'{kind} ' if kind and noun == 'step' else ''}{noun} {length_text}{tail_suffix}{fastest_text}"
            f"{rates_text}"
        )
        if step.kinds:
            kinds_text = ", ".join(
                f"{step_kind.number} {step_kind.kind} "
                f"({'on some ranks' if step_kind.ns is None else format_value(step_kind.ns)})"
                for step_kind in step.kinds
            )
            other_kind = next(step_kind.kind for step_kind in step.kinds if step_kind.kind != kind)
            yield self._line(f"steps: {kinds_text}; of another kind: --window {other_kind}")
        step_lines = [*self._steps(spread_text if fastest_text else "")]
        joined_line = "; ".join(step_lines)
        yield from map(self._line, filter(None, [joined_line] if len(joined_line) <= self._columns else step_lines))
        if is_other_length and not self.summary.subject.found.whole_run:
            yield self._line(self._measured(lengths_ns))
        if self.summary.mostly is not None:
            yield from map(
                self._line, mostly_lines(self.summary.mostly, self._whole, beside=self.summary.kernels.names)
            )

    def _steps(self, spread: str) -> Iterator[str]:
        """Yield how the steps of the slowest rank spread where that is not told yet, and which one stands out."""
        step = self.summary.step
        if spread:
            yield f"steps of rank {step.slowest} ({step.steady} steady of {step.steps}): {spread}"
        if (longest := step.longest) is not None:
            rank_text = f"rank {longest.rank}, " if len(self.summary.subject.ranks) > 1 else ""
            kind = self.summary.subject.found.kind
            window = str(longest.window) if kind is None else f"'{longest.window} {kind}'"
            yield f"longest step {format_value(longest.ns)} ({rank_text}--window {window})"

    def _measured(self, windows: Sequence[int]) -> str:
        """Return what all below is of, where it is not as long as a step."""
        selection = self.summary.subject.found
        name_text = f" ({printable(selection.name, LONGEST_RANGE)})" if selection.name else ""
        kernels_texts = {
            KernelsMode.LAUNCHED: "kernels launched in ",
            KernelsMode.CLIPPED: "kernels cut at the edges of ",
        }
        window_text = f"{kernels_texts.get(selection.kernels, '')}--window {selection.numbered}{name_text}"
        shortest, longest = format_together([min(windows), max(windows)])
        place_text = " on the GPU" if selection.kernels is KernelsMode.LAUNCHED else ""  # else from anchor to anchor
        return f"below: {window_text}, {longest if shortest == longest else f'{shortest} to {longest}'}{place_text}"

    def _kernels(self, most: int) -> Iterator[str]:
        kernels = self.summary.kernels
        largest, further = kernels.largest[:most], kernels.largest[most:]
        scale = scale_of([kernel.ns for kernel in largest], TIME)
        cell_rows = [
            (
                format_value(kernel.ns, scale=scale),
                _tenths(kernel.share),
                format_value(kernel.launches, BARE),
                kernel.family,
            )
            for kernel in largest
        ]
        has_several_ranks = len(self.summary.subject.ranks) > 1
        header = ("time", f"of {self._whole}", "launches", "family")
        widths = [max(map(len, column)) for column in zip(header, *cell_rows, strict=True)]
        room = self._columns - sum(width + 2 for width in widths)
        names = readable_names([kernel.name for kernel in largest], room)
        title = "largest kernels, mean over the ranks" if has_several_ranks else "largest kernels"
        named_cells = [(names[kernel.name], cells) for kernel, cells in zip(largest, cell_rows, strict=True)]
        for name, cells in [(title, header), *named_cells]:
            padded_cells = (f"{cell:>{width}}  " for cell, width in zip(cells[:-1], widths, strict=False))
            yield f"{name:{room}}  {''.join(padded_cells)}{cells[-1]}"
        if other_count := kernels.others + len(further):
            together_ns = kernels.others_ns + sum(kernel.ns for kernel in further)
            yield f"and {other_count} {'other' if other_count == 1 else 'others'}, together {format_value(together_ns)}"

    def _communication(self, most: int) -> Iterator[str]:
        communication = self.summary.communication
        if communication.whole is None:
            yield self._line(f"communication: {communication.why}")
            return
        listed_rows = (
            communication.each
            if len(communication.each) > 1 or communication.each[0].ns != communication.whole.ns
            else ()
        )
        rows = [communication.whole, *(communication.each[:most] if listed_rows else ())]
        scale = scale_of([row.ns for row in rows], TIME)
        has_speeds = any(row.busbw is not None for row in rows)
        has_ranks = len(self.summary.subject.ranks) > 1
        share_headers = ("exposed all", "overlap all") if communication.shared else ("exposed", "overlap")
        header = (*(("rank",) if has_ranks else ()), "time", *share_headers, *(("GB/s",) if has_speeds else ()))
        cell_rows = [header, *(_cells(row, scale, speeds=has_speeds, ranks=has_ranks) for row in rows)]
        title = f"communication by {communication.by}{', worst rank of each' if has_ranks else ''}"
        names = [
            "all" if listed_rows else name_stage(communication.each[0].name),
            *(name_stage(row.name) for row in rows[1:]),
        ]
        shown_names = [printable(name, 50) for name in names]
        shorter: Callable[[int], list[str]] = lambda width: [in_the_middle(name, width) for name in shown_names]  # noqa: E731
        columns = (
            Fitting(text, column_cells, to_the_right=True) for text, *column_cells in zip(*cell_rows, strict=True)
        )
        yield from in_columns([Fitting(title, shown_names, shorter), *columns], self._columns, ruled=False)
        more_count = len(communication.each) - most if listed_rows else 0
        notes = [f"{communication.sharing.words}: wall_exposed_all counts them"] if communication.shared else []
        notes += (
            [f"and {more_count} more: --view {'overlap' if communication.by == 'stage' else 'collectives'}"]
            if more_count > 0
            else []
        )
        if notes:
            yield from textwrap.wrap("; ".join(notes), self._columns)

    def _findings(self, *, wide: bool) -> Iterator[str]:
        findings, kernel_names = self.summary.findings, self.summary.kernels.names
        if not findings:
            compute_shares = [budget.shares[BudgetPart.COMPUTE] for budget in self.summary.budgets if budget.parts]
            nothing_text = nothing_found(min(compute_shares), self._whole) if compute_shares else "no rank has a budget"
            yield f"what to look at: {nothing_text}"
            return
        yield "what to look at, and the most that fixing it could win"
        for number, finding in enumerate(findings, 1):
            win_text, mark = win_words(finding, self._whole), f"{number}. "
            command = finding.more if finding.more.startswith("--view") else f"pytest-nsys {finding.more} TRACE…"
            if wide:
                line = mark + sentence(finding, self._columns - len(mark), kernel_names)
                long_line = mark + sentence(finding, 2 * self._columns - 2 * len(mark), kernel_names)
                yield from (
                    textwrap.wrap(long_line, self._columns, subsequent_indent="   ") if line.endswith("…") else [line]
                )
                yield f"   {win_text or 'more'}: {to_see_more(finding, self.summary.first, self.summary.options)}"
            else:
                suffix = f", {win_text}  {command}" if win_text else f"  {command}"
                yield mark + sentence(finding, self._columns - len(mark) - len(suffix), kernel_names) + suffix

    def _doubts(self, room: Room) -> Iterator[str]:
        doubts, more_count = self.summary.doubts, len(self.summary.doubts) - room.doubts
        for number, doubt in enumerate(doubts[: room.doubts], 1):
            more_text = (
                f" (and {counted(more_count, 'more doubt')})" if more_count > 0 and number == room.doubts else ""
            )
            text = printable(f"doubtful: {doubt}", 3 * self._columns) + more_text  # a doubt takes three lines at most
            lines = textwrap.wrap(text, self._columns, subsequent_indent=" " * len("doubtful: "))
            yield from (
                lines if room.whole else [printable(f"doubtful: {doubt}", self._columns - len(more_text)) + more_text]
            )

    def _next(self) -> Iterator[str]:
        summary = self.summary
        steps = [
            *next_steps(
                summary.traces, summary.options, summary.first, summary.kind_of_several, is_cut=summary.subject.is_cut
            )
        ]
        is_copies = self.summary.mostly is not None and self.summary.mostly.of is MostOf.COPIES
        if self.summary.subject.found.whole_run and not is_copies:  # windows of kernels leave most copies out
            steps += of_units(self.summary.traces, self.summary.searched)
        width = max(len(step.command) for step in steps)
        lines = [f"{step.command:{width}}  # {step.what}" for step in steps]
        if max(map(len, lines)) + len("next: ") > self._columns:
            # A command is told whole, so that it can be pasted: its comment gives way.
            lines = [step.command for step in steps]
        yield from (f"{'' if number else 'next:':5} {line}" for number, line in enumerate(lines))


def describe_environment(about: RunSubject) -> Iterator[str]:
    """Yield what a run was recorded by and on: profiler, framework, GPUs, ranks, mesh, files and captures."""
    rank_count = len(about.ranks)
    yield about.profiler
    if about.framework is not None and about.framework != about.profiler:
        yield about.framework
    gpu_text = f"{about.gpus} × {about.gpu}" if about.gpu else f"{counted(about.gpus, 'GPU')}, GPU model not recorded"
    yield gpu_text + (f", {rank_count} processes" if about.gpus < rank_count else "")
    if about.absent:
        yield f"{rank_count} of {rank_count + about.absent} ranks"
    if axis_texts := [f"{axis} {size}" for axis, size in about.mesh.items() if axis != WORLD]:
        yield " × ".join(axis_texts)
    if about.files > 1:
        yield counted(about.files, "file")
    if about.captures > 1:
        yield f"medians of {about.captures} captures"


def found_words(found: Found, room: int = COLUMNS, searched: Searched = None) -> str:
    """Return how the windows were found, in at most ``room`` characters: ``step = range 'ProfilerStep#%', 5 of them;
    --window 2``.
    """
    if found.anchor is None:
        window_text = f"the window {found.window} ns" if found.stated else "the whole run"
        return f"{window_text} is measured: {why_whole(searched)}"
    of_kernel = isinstance(found.anchor, KernelAnchor)
    if found.whole_run:
        count_text = f"{found.count} steps from " if of_kernel else f"{counted(found.count, 'range')} '"
        prefix, closing_text = f"the whole run is measured, with {count_text}", " to the next" if of_kernel else "'"
        return f"{prefix}{anchor_words(found.anchor, room - len(prefix) - len(closing_text))}{closing_text}"
    step_text = "part of a step" if found.part else f"{found.kind} step" if found.kind else "step"
    start, closing_text = ("'", "' to the next") if found.span is Span.PERIOD else ("range '", "'")
    if of_kernel:
        start, closing_text = "", " to the next"
    number_text, parts_text = f"{found.count} in all; --window {found.numbered}", ""
    if found.index is not None:
        number_text = f"one of {found.count} (--window {found.numbered})" if found.count > 1 else "the only one"
        parts_text = inside_words(searched) if found.count == 1 else ""
    kernels_texts = {
        KernelsMode.LAUNCHED: ", kernels launched in it",
        KernelsMode.CLIPPED: ", kernels cut at its edges",
    }
    kernels_text = kernels_texts.get(found.kernels, "")
    prefix, suffix = (
        f"{step_text} = {start}",
        f"{closing_text}, {number_text}" + (f" ({parts_text}){kernels_text}" if parts_text else ""),
    )
    text = prefix + anchor_words(found.anchor, room - len(prefix) - len(suffix)) + suffix
    return text if parts_text or len(text + kernels_text) > room else text + kernels_text


def anchor_words(anchor: Anchor, width: int) -> str:
    """Return what begins a window in ``width`` characters, but LEAST_ANCHOR at least.

    It is exact where that fits, else it has the kernels' names as a person calls them.
    """
    text, width = printable(str(anchor)), max(LEAST_ANCHOR, width)
    if isinstance(anchor, KernelAnchor) and len(text) > width:
        names = [name for name in anchor if name is not None]
        extra_length = len(text) - sum(len(printable(name)) for name in names)
        readable = readable_names(names, (width - extra_length) // len(names))
        text = str(KernelAnchor(*(readable[name] for name in names)))
    return telling(text, width)


def telling(anchor: str, width: int) -> str:
    """Shorten a pattern to ``width`` characters: to its beginning where that holds a wildcard, else to both ends."""
    wildcard = anchor.find("%") + 1
    if 0 < wildcard < width < len(anchor):
        return f"{anchor[: width - 1]}…"
    return in_the_middle(anchor, width)


def name_stage(stage: str) -> str:
    """Return a stage as people read it: ``no stage`` for what has none."""
    return "no stage" if stage == NO_STAGE else stage


def _tenths(share: Value) -> str:
    """Return a share of its own, that is no part of 100%, in words."""
    return told_in_tenths(round(Fraction(share) * SHARES), Fraction(share)) if share <= 1 else percent(share)


def _cells(row: Communicated, scale: Scale, *, speeds: bool, ranks: bool) -> tuple[str, ...]:
    times = (format_value(ns, scale=scale) for ns in (row.ns, row.exposed_ns))
    overlap_text = "-" if row.overlap is None else percent(row.overlap)
    speed_text = "-" if row.busbw is None else format_value(row.busbw, BARE)
    return (*((str(row.rank),) if ranks else ()), *times, overlap_text, *((speed_text,) if speeds else ()))
