"""How is a summary shown on one screen, of at most 40 lines with 80 to 100 characters?

Names are shown in full. If the screen is too long, the empty lines between sections are dropped first, then all but the
first few stages and doubts, with the number of those left out.
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
from pytest_nsys.analysis.steps.search_text import SearchResult, explain_whole_run, format_repeated_part
from pytest_nsys.analysis.summary.communication import CommunicationFigures
from pytest_nsys.analysis.summary.dominant_activity import DominantActivityKind
from pytest_nsys.analysis.summary.summary import MAX_KERNELS, STEP_METRIC, Summary
from pytest_nsys.analysis.summary.trace_environment import TraceEnvironment, WindowSelection
from pytest_nsys.core.conventions import NO_STAGE, Anchor, KernelAnchor
from pytest_nsys.core.kernel_names import make_display_names, shorten_middle
from pytest_nsys.core.model import KernelsMode, Span, Value
from pytest_nsys.core.numbers import (
    Scale,
    choose_scale,
    format_distinctly,
    format_in_one_unit,
    format_percent,
    format_value,
)
from pytest_nsys.core.text_format import format_count, format_ranks, sanitize_line
from pytest_nsys.core.units import BARE, TIME
from pytest_nsys.reports.screens.dominant_activity import describe_dominant_activity
from pytest_nsys.reports.screens.findings import describe_no_findings, format_finding, format_win
from pytest_nsys.reports.screens.next_steps import format_detail_command, list_next_steps, list_unit_commands
from pytest_nsys.reports.screens.rank_bars import TENTHS_IN_ALL, format_tenths, render_rank_bars
from pytest_nsys.reports.tables.bars import Pen
from pytest_nsys.reports.tables.layout import DEFAULT_WIDTH, FittedColumn, render_columns

MAX_LINES = 40
MIN_GAPS = 3
"""This many empty lines between the sections are worth more than findings on two lines, or another stage."""

EXPLAIN_COMMAND = "pytest-nsys --explain WORD"
"""The command that says what a word of the screen means; it stands last if there is room."""

WORLD_AXIS = "world"
"""The name of the axis of all ranks."""

OTHER_LENGTH_RATIO = Fraction(101, 100)
"""If the lengths of window and step differ by more than this factor, both are shown."""

LONGEST_TITLE, LEAST_TITLE, LEAST_ANCHOR, LONGEST_RANGE = 36, 8, 16, 40
"""Widths in characters. To make room for the numbers, the anchor's name is shortened first, then the title.

On two lines neither is.
"""

TYPICAL_QUANTILE = "p50"
"""The quantile of the typical step length, which the first figure of a line shows."""

LONGEST_WORD = 24
"""The most characters that a first line may leave empty when it is broken before a word."""


class ScreenRoom(NamedTuple):
    """Describes how much a screen shows."""

    has_wide_findings: bool  # findings on two lines each, instead of one
    has_whole_doubts: bool  # doubts in full, not cut to a line
    max_stages: int
    max_doubts: int
    max_kernels: int = MAX_KERNELS


SCREEN_ROOMS = (
    ScreenRoom(True, True, 5, 3),
    ScreenRoom(True, True, 3, 2),
    ScreenRoom(True, False, 3, 2),
    ScreenRoom(False, True, 5, 3),
    ScreenRoom(False, False, 5, 3),
    ScreenRoom(False, False, 3, 2),
    ScreenRoom(False, False, 1, 1),
    ScreenRoom(False, False, 0, 1),
    ScreenRoom(False, False, 0, 1, 4),
)
"""The versions of a screen, the fullest first."""

Section = list[str]


@dataclass(frozen=True)
class FirstScreen:
    """Renders a summary as lines of text."""

    summary: Summary
    pen: Pen = field(default_factory=Pen)

    def render_lines(self) -> list[str]:
        """Return the lines of the screen. Only lines with a path, which must stay complete, may be longer than the
        pen's lines.
        """
        versions = [self._render_sections(room) for room in SCREEN_ROOMS]
        spare_lines = [MAX_LINES - sum(map(len, sections)) for sections in versions]
        # The fullest version that leaves room for some empty lines; else the fullest that fits at all.
        fitting_version = next((n for n, spare in enumerate(spare_lines) if spare >= MIN_GAPS), None)
        chosen_version = (
            next((n for n, spare in enumerate(spare_lines) if spare >= 0), len(versions) - 1)
            if fitting_version is None
            else fitting_version
        )
        sections, spare = versions[chosen_version], spare_lines[chosen_version]
        text: list[str] = []
        for number, section in enumerate(sections):
            # If there are too few empty lines, the last sections get them.
            text += [""] if number and len(sections) - number <= spare else []
            text += section
        return text if len(text) == MAX_LINES else [*text, _point_to_glossary(text[-1])]

    def render_markdown(self) -> str:
        """Return the screen as a Markdown code block: its columns need a fixed-width font."""
        text = "\n".join(self.render_lines())
        # The fence is longer than any run of backticks in the text, which would end the block.
        fence = "`" * max(3, 1 + max((len(backticks) for backticks in re.findall("`+", text)), default=0))
        return f"{fence}text\n{text}\n{fence}\n"

    @property
    def _columns(self) -> int:
        """Return how many characters a line has."""
        return min(DEFAULT_WIDTH, self.pen.columns)

    def _clip_line(self, text: str) -> str:
        return sanitize_line(text, self._columns)

    def _render_sections(self, room: ScreenRoom) -> list[Section]:
        parts = (
            [*self._render_subject(), *self._render_step()],
            [*render_rank_bars(self.summary.budgets, self.pen)],
            [*self._render_kernels(room.max_kernels)],
            [*self._render_communication(room.max_stages)],
            [*self._render_findings(is_wide=room.has_wide_findings), *self._render_doubts(room)],
            [*self._render_next_steps()],
        )
        return [section for section in parts if section]

    def _render_subject(self) -> Iterator[str]:
        subject = self.summary.environment
        names = [Path(trace).name or trace for trace in self.summary.traces]
        more_text = f" and {len(names) - 1} more" if len(names) > 1 else ""
        title = sanitize_line(names[0])
        room = self._columns - len(f"{title}{more_text}: ")
        found_text = describe_measured_windows(subject.selection, room, self.summary.searched)
        if len(found_text) > room:  # no room for the whole name
            title = shorten_middle(title, LONGEST_TITLE)
            room = self._columns - len(f"{title}{more_text}: ")
            found_text = describe_measured_windows(subject.selection, room, self.summary.searched)
        if len(found_text) - room > len(title) - LEAST_TITLE:
            found_text = describe_measured_windows(
                subject.selection, room + self._columns - LONGEST_WORD, self.summary.searched
            )
        elif len(found_text) > room:
            title = shorten_middle(title, len(title) + room - len(found_text))
        yield from textwrap.wrap(sanitize_line(f"{title}{more_text}: {found_text}", 2 * self._columns), self._columns)
        yield self._clip_line(", ".join(list_environment_facts(subject)))
        if missing_ranks := sorted(self.summary.unmeasured_ranks):
            yield self._clip_line(
                f"nothing measured of {format_ranks(missing_ranks)}: {self.summary.unmeasured_ranks[missing_ranks[0]]}"
            )

    @property
    def _measured_noun(self) -> str:
        """Return what shares refer to: ``step`` or ``run``."""
        return self.summary.environment.selection.measured_unit

    def _render_step(self) -> Iterator[str]:
        step = self.summary.step
        length_text, fastest_text = format_value(step.ns), ""
        if step.fastest_rank is not None:
            rank, ns = step.fastest_rank
            length_text, shortest_text = format_distinctly(step.ns, ns, TIME)
            length_text, fastest_text = (
                f"{length_text} on the slowest rank ({step.slowest_rank})",
                f", {shortest_text} on the fastest ({rank})",
            )
        values = format_in_one_unit([*step.quantiles.values()])
        quantile_texts = dict(zip(step.quantiles, values, strict=True)) if len(set(step.quantiles.values())) > 1 else {}
        spread_text = ", ".join(map(" ".join, quantile_texts.items()))
        lengths_ns = [budget.window_ns for budget in self.summary.budgets]
        is_other_length = (
            max(lengths_ns) > OTHER_LENGTH_RATIO * step.ns or OTHER_LENGTH_RATIO * max(lengths_ns) < step.ns
        )
        rates_text = "".join(f"; {format_value(rate.value, rate.unit)}" for rate in step.rates)
        noun = "step" if step.metric == STEP_METRIC else self._measured_noun
        # omit the median of the steady steps: next to the judged length it would be unclear which counts
        tail_text = ", ".join(
            f"{quantile} {value}" for quantile, value in quantile_texts.items() if quantile != TYPICAL_QUANTILE
        )
        tail_suffix = f" ({tail_text})" if tail_text and not fastest_text else ""
        kind = self.summary.environment.selection.step_kind
        yield self._clip_line(
            f"{f'{kind} ' if kind and noun == 'step' else ''}{noun} {length_text}{tail_suffix}{fastest_text}"
            f"{rates_text}"
        )
        if step.kinds:
            kinds_text = ", ".join(
                f"{step_kind.step_count} {step_kind.kind} "
                f"({'on some ranks' if step_kind.ns is None else format_value(step_kind.ns)})"
                for step_kind in step.kinds
            )
            other_kind = next(step_kind.kind for step_kind in step.kinds if step_kind.kind != kind)
            yield self._clip_line(f"steps: {kinds_text}; of another kind: --window {other_kind}")
        step_lines = [*self._describe_steps(spread_text if fastest_text else "")]
        joined_line = "; ".join(step_lines)
        yield from map(
            self._clip_line, filter(None, [joined_line] if len(joined_line) <= self._columns else step_lines)
        )
        if is_other_length and not self.summary.environment.selection.is_whole_run:
            yield self._clip_line(self._describe_measured(lengths_ns))
        if self.summary.dominant_activity is not None:
            yield from map(
                self._clip_line,
                describe_dominant_activity(
                    self.summary.dominant_activity, self._measured_noun, other_names=self.summary.kernels.names
                ),
            )

    def _describe_steps(self, spread_text: str) -> Iterator[str]:
        """Yield the spread of the slowest rank's steps unless it is shown already, and which step stands out."""
        step = self.summary.step
        if spread_text:
            yield f"steps of rank {step.slowest_rank} ({step.steady_count} steady of {step.step_count}): {spread_text}"
        if (longest := step.longest) is not None:
            rank_text = f"rank {longest.rank}, " if len(self.summary.environment.ranks) > 1 else ""
            kind = self.summary.environment.selection.step_kind
            window = str(longest.window) if kind is None else f"'{longest.window} {kind}'"
            yield f"longest step {format_value(longest.ns)} ({rank_text}--window {window})"

    def _describe_measured(self, lengths_ns: Sequence[int]) -> str:
        """Return what the sections below measure, if it is not as long as a step; else empty."""
        selection = self.summary.environment.selection
        name_text = f" ({sanitize_line(selection.anchor_name, LONGEST_RANGE)})" if selection.anchor_name else ""
        kernels_texts = {
            KernelsMode.LAUNCHED: "kernels launched in ",
            KernelsMode.CLIPPED: "kernels cut at the edges of ",
        }
        window_text = (
            f"{kernels_texts.get(selection.kernels, '')}--window {selection.numbered_window_option}{name_text}"
        )
        shortest, longest = format_in_one_unit([min(lengths_ns), max(lengths_ns)])
        place_text = " on the GPU" if selection.kernels is KernelsMode.LAUNCHED else ""  # else from anchor to anchor
        return f"below: {window_text}, {longest if shortest == longest else f'{shortest} to {longest}'}{place_text}"

    def _render_kernels(self, max_kernels: int) -> Iterator[str]:
        kernels = self.summary.kernels
        largest, further = kernels.largest[:max_kernels], kernels.largest[max_kernels:]
        scale = choose_scale([kernel.ns for kernel in largest], TIME)
        cell_rows = [
            (
                format_value(kernel.ns, scale=scale),
                _format_own_share(kernel.share),
                format_value(kernel.launch_count, BARE),
                kernel.family,
            )
            for kernel in largest
        ]
        has_several_ranks = len(self.summary.environment.ranks) > 1
        header = ("time", f"of {self._measured_noun}", "launches", "family")
        widths = [max(map(len, column)) for column in zip(header, *cell_rows, strict=True)]
        room = self._columns - sum(width + 2 for width in widths)
        names = make_display_names([kernel.name for kernel in largest], room)
        title = "largest kernels, mean over the ranks" if has_several_ranks else "largest kernels"
        named_cells = [(names[kernel.name], cells) for kernel, cells in zip(largest, cell_rows, strict=True)]
        for name, cells in [(title, header), *named_cells]:
            padded_cells = (f"{cell:>{width}}  " for cell, width in zip(cells[:-1], widths, strict=False))
            yield f"{name:{room}}  {''.join(padded_cells)}{cells[-1]}"
        if other_count := kernels.other_count + len(further):
            together_ns = kernels.others_ns + sum(kernel.ns for kernel in further)
            yield f"and {other_count} {'other' if other_count == 1 else 'others'}, together {format_value(together_ns)}"

    def _render_communication(self, max_stages: int) -> Iterator[str]:
        communication = self.summary.communication
        if communication.total is None:
            yield self._clip_line(f"communication: {communication.reason}")
            return
        listed_rows = (
            communication.parts
            if len(communication.parts) > 1 or communication.parts[0].total_ns != communication.total.total_ns
            else ()
        )
        rows = [communication.total, *(communication.parts[:max_stages] if listed_rows else ())]
        scale = choose_scale([row.total_ns for row in rows], TIME)
        has_speeds = any(row.bus_gb_per_s is not None for row in rows)
        has_ranks = len(self.summary.environment.ranks) > 1
        share_headers = (
            ("exposed all", "overlap all") if communication.counts_shared_streams else ("exposed", "overlap")
        )
        header = (*(("rank",) if has_ranks else ()), "time", *share_headers, *(("GB/s",) if has_speeds else ()))
        cell_rows = [
            header,
            *(_format_communication_cells(row, scale, has_speeds=has_speeds, has_ranks=has_ranks) for row in rows),
        ]
        title = f"communication by {communication.grouping}{', worst rank of each' if has_ranks else ''}"
        names = [
            "all" if listed_rows else format_stage(communication.parts[0].name),
            *(format_stage(row.name) for row in rows[1:]),
        ]
        shown_names = [sanitize_line(name, 50) for name in names]
        shorter: Callable[[int], list[str]] = lambda width: [shorten_middle(name, width) for name in shown_names]  # noqa: E731
        columns = (
            FittedColumn(text, column_cells, to_the_right=True) for text, *column_cells in zip(*cell_rows, strict=True)
        )
        yield from render_columns([FittedColumn(title, shown_names, shorter), *columns], self._columns, has_rule=False)
        more_count = len(communication.parts) - max_stages if listed_rows else 0
        notes = (
            [f"{communication.sharing.description}: wall_exposed_all counts them"]
            if communication.counts_shared_streams
            else []
        )
        notes += (
            [f"and {more_count} more: --view {'overlap' if communication.grouping == 'stage' else 'collectives'}"]
            if more_count > 0
            else []
        )
        if notes:
            yield from textwrap.wrap("; ".join(notes), self._columns)

    def _render_findings(self, *, is_wide: bool) -> Iterator[str]:
        findings, kernel_names = self.summary.findings, self.summary.kernels.names
        if not findings:
            compute_shares = [budget.shares[BudgetPart.COMPUTE] for budget in self.summary.budgets if budget.parts]
            nothing_text = (
                describe_no_findings(min(compute_shares), self._measured_noun)
                if compute_shares
                else "no rank has a budget"
            )
            yield f"what to look at: {nothing_text}"
            return
        yield "what to look at, and the most that fixing it could win"
        for number, finding in enumerate(findings, 1):
            win_text, mark = format_win(finding, self._measured_noun), f"{number}. "
            command = (
                finding.detail_command
                if finding.detail_command.startswith("--view")
                else f"pytest-nsys {finding.detail_command} TRACE…"
            )
            if is_wide:
                line = mark + format_finding(finding, self._columns - len(mark), kernel_names)
                long_line = mark + format_finding(finding, 2 * self._columns - 2 * len(mark), kernel_names)
                # A narrow line has no room for the second figure of a sentence: it gets another line.
                is_cut = line.endswith("…") or (self._columns < DEFAULT_WIDTH and line != long_line)
                yield from textwrap.wrap(long_line, self._columns, subsequent_indent="   ") if is_cut else [line]
                yield (
                    f"   {win_text or 'more'}: "
                    f"{format_detail_command(finding, self.summary.first_capture_paths, self.summary.options)}"
                )
            else:
                suffix = f", {win_text}  {command}" if win_text else f"  {command}"
                yield mark + format_finding(finding, self._columns - len(mark) - len(suffix), kernel_names) + suffix

    def _render_doubts(self, room: ScreenRoom) -> Iterator[str]:
        doubts, more_count = self.summary.doubts, len(self.summary.doubts) - room.max_doubts
        for number, doubt in enumerate(doubts[: room.max_doubts], 1):
            more_text = (
                f" (and {format_count(more_count, 'more doubt')})"
                if more_count > 0 and number == room.max_doubts
                else ""
            )
            text = (
                sanitize_line(f"doubtful: {doubt}", 3 * self._columns) + more_text
            )  # a doubt takes at most three lines
            lines = textwrap.wrap(text, self._columns, subsequent_indent=" " * len("doubtful: "))
            yield from (
                lines
                if room.has_whole_doubts
                else [sanitize_line(f"doubtful: {doubt}", self._columns - len(more_text)) + more_text]
            )

    def _render_next_steps(self) -> Iterator[str]:
        summary = self.summary
        steps = [
            *list_next_steps(
                summary.traces,
                summary.options,
                summary.first_capture_paths,
                summary.summarized_step_kind,
                is_cut=summary.environment.is_cut,
            )
        ]
        is_copies = (
            self.summary.dominant_activity is not None
            and self.summary.dominant_activity.kind is DominantActivityKind.COPIES
        )
        if self.summary.environment.selection.is_whole_run and not is_copies:  # windows of kernels exclude most copies
            steps += list_unit_commands(self.summary.traces, self.summary.searched)
        width = max(len(step.command) for step in steps)
        lines = [f"{step.command:{width}}  # {step.purpose}" for step in steps]
        if max(map(len, lines)) + len("next: ") > self._columns:
            # Commands stay complete, so that they can be pasted; comments are dropped.
            lines = [step.command for step in steps]
        yield from (f"{'' if number else 'next:':5} {line}" for number, line in enumerate(lines))


def _point_to_glossary(last_line: str) -> str:
    """Return the line that says how a word is explained, with its comment below that of the last line."""
    command, column = f"{'':5} {EXPLAIN_COMMAND}", last_line.find("  # ")
    return command if column < len(command) else f"{command:{column}}  # what a word above means"


def list_environment_facts(subject: TraceEnvironment) -> Iterator[str]:
    """Yield the environment of a run: profiler, framework, GPUs, ranks, mesh, files and captures."""
    rank_count = len(subject.ranks)
    yield subject.profiler
    if subject.framework is not None and subject.framework != subject.profiler:
        yield subject.framework
    gpu_text = (
        f"{subject.gpu_count} × {subject.gpu_model}"
        if subject.gpu_model
        else f"{format_count(subject.gpu_count, 'GPU')}, GPU model not recorded"
    )
    yield gpu_text + (f", {rank_count} processes" if subject.gpu_count < rank_count else "")
    if subject.absent_rank_count:
        yield f"{rank_count} of {rank_count + subject.absent_rank_count} ranks"
    if axis_texts := [f"{axis} {size}" for axis, size in subject.mesh_sizes.items() if axis != WORLD_AXIS]:
        yield " × ".join(axis_texts)
    if subject.file_count > 1:
        yield format_count(subject.file_count, "file")
    if subject.capture_count > 1:
        yield f"medians of {subject.capture_count} captures"


def describe_measured_windows(
    selection: WindowSelection, room: int = DEFAULT_WIDTH, search_result: SearchResult = None
) -> str:
    """Return how the windows were found, in at most ``room`` characters: ``step = range 'ProfilerStep#%', 5 of them;
    --window 2``.
    """
    if selection.anchor is None:
        window_text = f"the window {selection.window} ns" if selection.is_stated_span else "the whole run"
        return f"{window_text} is measured: {explain_whole_run(search_result)}"
    of_kernel = isinstance(selection.anchor, KernelAnchor)
    if selection.is_whole_run:
        count_text = (
            f"{selection.anchor_count} steps from "
            if of_kernel
            else f"{format_count(selection.anchor_count, 'range')} '"
        )
        prefix, closing_text = f"the whole run is measured, with {count_text}", " to the next" if of_kernel else "'"
        return f"{prefix}{format_screen_anchor(selection.anchor, room - len(prefix) - len(closing_text))}{closing_text}"
    step_text = (
        "part of a step"
        if selection.is_part_of_step
        else f"{selection.step_kind} step"
        if selection.step_kind
        else "step"
    )
    start, closing_text = ("'", "' to the next") if selection.span is Span.PERIOD else ("range '", "'")
    if of_kernel:
        start, closing_text = "", " to the next"
    number_text, parts_text = f"{selection.anchor_count} in all; --window {selection.numbered_window_option}", ""
    if selection.index is not None:
        number_text = (
            f"one of {selection.anchor_count} (--window {selection.numbered_window_option})"
            if selection.anchor_count > 1
            else "the only one"
        )
        parts_text = format_repeated_part(search_result) if selection.anchor_count == 1 else ""
    kernels_texts = {
        KernelsMode.LAUNCHED: ", kernels launched in it",
        KernelsMode.CLIPPED: ", kernels cut at its edges",
    }
    kernels_text = kernels_texts.get(selection.kernels, "")
    prefix, suffix = (
        f"{step_text} = {start}",
        f"{closing_text}, {number_text}" + (f" ({parts_text}){kernels_text}" if parts_text else ""),
    )
    text = prefix + format_screen_anchor(selection.anchor, room - len(prefix) - len(suffix)) + suffix
    return text if parts_text or len(text + kernels_text) > room else text + kernels_text


def format_screen_anchor(anchor: Anchor, width: int) -> str:
    """Return the anchor of a window in ``width`` characters, but at least LEAST_ANCHOR.

    It is exact if that fits, else kernels have their display names.
    """
    text, width = sanitize_line(str(anchor)), max(LEAST_ANCHOR, width)
    if isinstance(anchor, KernelAnchor) and len(text) > width:
        names = [name for name in anchor if name is not None]
        extra_length = len(text) - sum(len(sanitize_line(name)) for name in names)
        readable = make_display_names(names, (width - extra_length) // len(names))
        text = str(KernelAnchor(*(readable[name] for name in names)))
    return shorten_pattern(text, width)


def shorten_pattern(anchor: str, width: int) -> str:
    """Shorten a pattern to ``width`` characters: keep its beginning if that contains a wildcard, else both ends."""
    wildcard = anchor.find("%") + 1
    if 0 < wildcard < width < len(anchor):
        return f"{anchor[: width - 1]}…"
    return shorten_middle(anchor, width)


def format_stage(stage: str) -> str:
    """Return the text of a stage: ``no stage`` if there is none."""
    return "no stage" if stage == NO_STAGE else stage


def _format_own_share(share: Value) -> str:
    """Return a share that is not part of a total of 100%, in words."""
    return (
        format_tenths(round(Fraction(share) * TENTHS_IN_ALL), Fraction(share)) if share <= 1 else format_percent(share)
    )


def _format_communication_cells(
    row: CommunicationFigures, scale: Scale, *, has_speeds: bool, has_ranks: bool
) -> tuple[str, ...]:
    times = (format_value(ns, scale=scale) for ns in (row.total_ns, row.exposed_ns))
    overlap_text = "-" if row.overlap_share is None else format_percent(row.overlap_share)
    speed_text = "-" if row.bus_gb_per_s is None else format_value(row.bus_gb_per_s, BARE)
    return (*((str(row.rank),) if has_ranks else ()), *times, overlap_text, *((speed_text,) if has_speeds else ()))
