"""Which options do all measuring commands share, and where is the answer written?

A command takes them with :func:`add_measure_options` and gets one :class:`MeasureOptions`. A new shared option is one
line of ``_build_shared_options`` and one field. Rows go to standard output in the requested format, notes to standard
error.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.captures.captures import Captures, resolve_default_spec
from pytest_nsys.analysis.captures.parallel import ReadAhead
from pytest_nsys.analysis.metrics.registry import MetricRequest
from pytest_nsys.analysis.metrics.table import Selector
from pytest_nsys.analysis.steps.convention_fit import ConventionChoice
from pytest_nsys.analysis.steps.search_text import SearchResult
from pytest_nsys.analysis.windows.run import select_ranks
from pytest_nsys.analysis.windows.window_selection import (
    MEDIAN,
    RUN,
    WindowSpec,
    assume_single_step,
    complete_window_spec,
    list_open_fields,
    suggest_window_word,
)
from pytest_nsys.cli.shared_options import anchor_option, convention_option, executor_option
from pytest_nsys.cli.terminal_text import echo
from pytest_nsys.core.conventions import Anchor, Convention, format_anchor
from pytest_nsys.core.errors import NothingMeasured, UsageMistake, suggest_or_list
from pytest_nsys.core.families import Families
from pytest_nsys.core.model import OPEN_END_NS, KernelsMode, Note, Rank, Span, Window
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import UnitMistake, parse_quantity
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.convention_keys import check_trace_paths, load_convention
from pytest_nsys.reports.tables.bars import Pen
from pytest_nsys.reports.tables.formats import Format, Table
from pytest_nsys.reports.tables.report_targets import check_report_target
from pytest_nsys.tools.executors import is_on_terminal, parse_executor
from pytest_nsys.tools.files import write_atomically
from pytest_nsys.traces.sidecars.measurements import find_files_by_capture

# The largest time marks a range that was never closed.
LATEST_TIME_NS = OPEN_END_NS - 1
_WINDOW_HELP = "median, first, last, steady, run, an index, a pattern (%) of range names, or START:END in ns."
_NUMBERS = re.compile(r"-?[0-9][0-9.:]*")

Decorator = Callable[[Callable[..., None]], Callable[..., None]]


@dataclass(frozen=True)
class MeasureOptions:
    """Holds the values of the shared options, and the convention found with them."""

    window: str | None = None  # in gate-file syntax, None if not given
    default_window: str = MEDIAN  # used then; or the whole run if no step is found
    span: Span | None = None  # None: the convention's
    kernels: KernelsMode | None = None  # None: the convention's
    convention: str | None = None  # None: the one that the traces fit
    anchor: Anchor | None = None
    ranks: tuple[int, ...] = ()  # none: all
    format: Format = Format.TABLE
    executor: str | None = None
    notes: list[Note] = field(default_factory=list)  # say which convention was found
    choices: list[ConventionChoice] = field(default_factory=list)  # the convention that was found, at most one

    @cached_property
    def named_convention(self) -> Convention | None:
        """The named convention, None if it is to be found. Raises UsageMistake, GateFileError."""
        return load_convention(self.convention, self.anchor)

    @property
    def searched(self) -> SearchResult:
        """The result of the search for repeating kernels, if it was made."""
        return self.choices[0].search_result if self.choices else None

    def fit_convention(
        self, traces: Sequence[str], cache: CaptureCache, *, one_run: bool, span: Span | None = None
    ) -> tuple[Convention, WindowSpec, bool]:
        """Return the convention for measuring the traces, the windows, and whether there are steps.

        ``span`` is the default if the options have none. Raises UsageMistake, and what opening the first trace raises.
        """
        check_trace_paths(traces)
        convention, has_steps = self.named_convention, True
        if convention is None:
            choice = cache.choose_convention(traces, Path(), self.anchor, one_run=one_run)
            convention, has_steps = choice.convention, choice.has_anchor
            self.notes[:] = [Note(choice.description)] if traces else []
            self.choices[:] = [choice]
        window = self.window or (self.default_window if has_steps else RUN)
        return convention, complete_window_spec(convention, window, self.span or span, self.kernels), has_steps

    @contextlib.contextmanager
    def open_captures(
        self, traces: Sequence[str], *, metrics: Sequence[str] = (), measurements: Sequence[str] = ()
    ) -> Iterator[tuple[Captures, WindowSpec]]:
        """Yield the captures (one for each path) with the requested windows, and close the files at the end.

        The rows of ``metrics`` are read ahead. ``measurements`` belong to the traces; without traces they are the
        captures.
        """
        with open_cache(self.executor, self.format) as cache:
            measurement_files = find_files_by_capture(measurements, Path())
            convention, spec, _ = self.fit_convention(traces, cache, one_run=False)
            captures = cache.open_captures(
                traces, Path(), convention, None, _build_requests(metrics, spec), measurement_files
            )
            yield captures, self._resolve_windows(captures, spec)

    @contextlib.contextmanager
    def open_one_run(
        self,
        traces: Sequence[str],
        workload: Workload | None = None,
        *,
        metrics: Sequence[str] = (),
        span: Span | None = None,
        families: Families | None = None,
        may_be_a_step: bool = False,
    ) -> Iterator[tuple[Captures, WindowSpec]]:
        """Yield all paths as one capture; otherwise like :meth:`open_captures`.

        ``span`` is the default if the options have none; ``families`` default to the convention's. For
        ``may_be_a_step`` see :func:`assume_single_step`.
        """
        workload = workload or Workload()
        with open_cache(self.executor, self.format) as cache:
            convention, spec, has_steps = self.fit_convention(traces, cache, one_run=True, span=span)
            if families is not None:
                convention = replace(convention, families=families)
            stated_workload = workload
            if (
                may_be_a_step
                and (workload := assume_single_step(stated_workload, spec, has_anchor=has_steps)) is not stated_workload
            ):
                what_counts = "whole run" if spec.is_whole_run else "window"
                self.notes.append(Note(f"the {what_counts} counts as one step: --steps N divides by N"))
            captures = cache.open_one_run(traces, Path(), convention, workload, _build_requests(metrics, spec))
            yield captures, self._resolve_windows(captures, spec)

    def _resolve_windows(self, captures: Captures, spec: WindowSpec) -> WindowSpec:
        """Return the windows to measure. Raises UsageMistake if two captures, or two ranks, are the same trace."""
        measured_spec = resolve_default_spec(
            captures.runs[0], spec, list_open_fields(self.window, self.span, self.kernels)
        )
        with contextlib.suppress(NothingMeasured):  # the error is raised later, when a value is measured
            captures.check_no_twins(measured_spec)
        return measured_spec

    @property
    def typed_options(self) -> tuple[tuple[str, str], ...]:
        """The options that decide how to measure, as typed: pairs of option and value."""
        anchor = None if self.anchor is None else format_anchor(self.anchor)
        value_by_name = {
            "window": self.window,
            "span": self.span,
            "kernels": self.kernels,
            "convention": self.convention,
        }
        value_by_name |= {"anchor": anchor}
        ranks = (("--rank", str(rank)) for rank in self.ranks)
        return *ranks, *((f"--{name}", str(value)) for name, value in value_by_name.items() if value is not None)

    @contextlib.contextmanager
    def show_progress(self) -> Iterator[Callable[[str], None]]:
        """Yield a function that shows the current activity on a terminal, on one line that is erased at the end.

        With JSON, which is for programs, nothing is shown.
        """
        is_shown = is_on_terminal(sys.stderr) and self.format is not Format.JSON

        def print_activity(activity: str) -> None:
            if is_shown:
                print(f"\r{activity} …\x1b[K", end="", file=sys.stderr, flush=True)

        try:
            yield print_activity
        finally:
            if is_shown:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def select_ranks(self, ranks: Sequence[Rank]) -> dict[int, Rank]:
        """Return the ranks that the options select, by number. Raises UsageMistake for one that does not exist."""
        return select_ranks(ranks, self.ranks)


def _build_requests(metrics: Sequence[str], spec: WindowSpec) -> list[MetricRequest]:
    return [MetricRequest(metric, spec) for metric in metrics or (None,)]


def open_cache(executor: str | None, format: str) -> contextlib.closing[CaptureCache]:
    """Return the cache that opens each trace once, and closes them at the end.

    With JSON, which is for programs, no progress is shown. Raises UsageMistake for an unknown executor.
    """
    return contextlib.closing(CaptureCache(make_reader(executor, shows_progress=format != "json")))


def make_reader(executor: str | None, *, shows_progress: bool = True) -> ReadAhead:
    """Return the reader that reads traces ahead of time; ``shows_progress``: on a terminal, it shows how far it is.

    Raises UsageMistake for an unknown executor.
    """
    if executor is not None:
        parse_executor(executor)
    return ReadAhead(executor, shows_progress=is_on_terminal(sys.stderr) and shows_progress)


def make_choice_option(*names: str, kind: type[StrEnum], **settings: Any) -> Decorator:
    """Make an option with the values of the enum ``kind``; the command gets a member of it."""

    def convert(_context: click.Context, _option: click.Parameter, value: str | None) -> StrEnum | None:
        return None if value is None else kind(value)

    return click.option(*names, type=click.Choice([str(member) for member in kind]), callback=convert, **settings)


def make_amount_option(name: str, units: Mapping[str, int], description: str, **settings: Any) -> Decorator:
    """Make an option for a number with one of ``units`` (factor by unit); the command gets the number in the unit with
    factor 1.
    """

    def parse_amount(_context: click.Context, _option: click.Parameter, text: str | None) -> Fraction | None:
        if text is None:
            return None
        try:
            quantity = parse_quantity(text)
        except UnitMistake as mistake:
            raise UsageMistake(f"{name}: {mistake}") from None
        if quantity.unit not in units or not quantity.value:
            raise UsageMistake(f"{name} is a {description}, not '{sanitize_line(text, 40)}'")
        return quantity.value * units[quantity.unit]

    return click.option(name, callback=parse_amount, **settings)


traces_argument = click.argument("traces", metavar="TRACES…", nargs=-1, required=True)
format_option = make_choice_option("--format", kind=Format, default=Format.TABLE.value, help="Output format.")
peak_option = make_amount_option(
    *("--peak", {"GB/s": 1}, "bandwidth, as in 400GB/s"), metavar="GB/s", help="Network bandwidth per GPU: 400GB/s."
)


def _build_shared_options() -> dict[str, Decorator]:
    """Return every shared option, by the name of its value in MeasureOptions."""
    return {
        "ranks": click.option(
            *("--rank", "ranks"), type=int, metavar="N", multiple=True, help="Only this rank (repeatable)."
        ),
        "window": click.option(
            "--window", metavar="WINDOW", show_default=MEDIAN, help=f"What to measure: {_WINDOW_HELP}"
        ),
        "span": make_choice_option("--span", kind=Span, help="The window: the anchor's range, or its period."),
        "kernels": make_choice_option(
            "--kernels",
            kind=KernelsMode,
            help="Kernels to measure: inside the window, cut at its edges, or launched in it.",
        ),
        "convention": convention_option,
        "anchor": anchor_option,
        "format": format_option,
        "executor": executor_option,
    }


def add_measure_options(*, omitted: Collection[str] = ()) -> Decorator:
    """Add the shared options except ``omitted`` to a command, which gets them as the argument ``measure_options``."""
    shared = {name: option for name, option in _build_shared_options().items() if name not in omitted}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run_command(*args: object, **other_options: Any) -> None:
            """Call the command with the shared options in one object, and the other options unchanged."""
            values = {name: other_options.pop(name) for name in shared}
            if values["window"] is not None:
                values["window"] = normalize_window(values["window"])
            command(*args, measure_options=MeasureOptions(**values), **other_options)

        decorated: Callable[..., None] = run_command
        for option in reversed(shared.values()):
            decorated = option(decorated)
        return decorated

    return decorate


def normalize_window(window: str) -> str:
    """Return the window in gate-file syntax. Raises UsageMistake for an invalid window."""
    window = window.strip()
    if re.fullmatch(r"[0-9]{1,18}", window):
        return str(int(window))
    if bounds := re.fullmatch(r"(-?[0-9]{1,30}):(-?[0-9]{1,30})", window):
        start, end = int(bounds[1]), int(bounds[2])
        if max(abs(start), abs(end)) > LATEST_TIME_NS:
            raise UsageMistake(f"no trace has a time of more than {LATEST_TIME_NS} ns: {window}")
        if end <= start:
            raise UsageMistake(f"a window must end after it starts: {window}")
        return window
    if not window or _NUMBERS.fullmatch(window):
        raise UsageMistake(f"'{sanitize_line(window, 40)}' is not a window: give {_WINDOW_HELP}")
    if suggestion := suggest_window_word(window):
        raise UsageMistake(f"unknown window '{sanitize_line(window, 40)}'{suggestion}")
    return window


def make_measurements_option(name: str, counterpart: str) -> Decorator:
    """Make an option that names files of measurements; the command's argument is the option's name with ``_`` for
    ``-``.
    """
    text = f"JSON with values of the program: one file or glob per {counterpart}, in their order."
    return click.option(name, multiple=True, metavar="FILE", help=text)


where_option = click.option(
    *("--where", "where"),
    multiple=True,
    metavar="DIM=VALUE",
    help="Only rows with this label (repeatable: any label of a dimension, all dimensions).",
)


def parse_selectors(where: Sequence[str]) -> dict[str, Selector]:
    """Return one selector per dimension; the same dimension given twice selects either label. Raises UsageMistake for
    invalid syntax.
    """
    values: dict[str, list[str]] = {}
    for text in where:
        dimension, equals, value = (part.strip() for part in text.partition("="))
        if not (dimension and equals and value):
            raise UsageMistake(f"--where is DIM=VALUE, not '{sanitize_line(text, 60)}'")
        values.setdefault(dimension, []).append(value)
    return {dimension: Selector(tuple(labels)) for dimension, labels in values.items()}


def check_dimensions(
    metric: str, dimensions: Sequence[str], axes: Sequence[str], selectors: Mapping[str, Selector]
) -> None:
    """Raise UsageMistake for a selector of a dimension that the metric lacks; ``axes`` are the mesh axes of its
    ranks.
    """
    known_dimensions = (*dimensions, *(axes if "rank" in dimensions else ()))
    for dimension in selectors:
        if dimension not in known_dimensions:
            suggestion = suggest_or_list(dimension, known_dimensions, "it has")
            raise UsageMistake(f"{metric} has no dimension '{sanitize_line(dimension, 40)}'{suggestion}")


# Answers

# Names of files and kernels in a note may be of any length.
LONGEST_NOTE_LINE = 2000


def resolve_format(
    format: str | None,
    output: str | None,
    suffixes: Mapping[str, str],
    inputs: Iterable[tuple[Path, str]],
    *,
    default: str,
) -> str:
    """Return the requested format, else that of the output file's suffix.

    Raises UsageMistake for a file that must not be written: an empty name, an unknown suffix without a format, or one
    of ``inputs`` (path and description); see :func:`check_report_target`.
    """
    if output is not None:
        if not output.strip():
            raise UsageMistake("--output is empty: write --output FILE")
        check_report_target(f"--output {output}", Path(output), inputs)
    suffix = Path(output).suffix.lower() if output is not None else ""
    if format is not None or not suffix:
        return format or default
    if suffix not in suffixes:
        raise UsageMistake(
            f"--output {output}: {suffix} is not a known format: give --format, or one of {', '.join(suffixes)}"
        )
    return suffixes[suffix]


def make_pen(output: str | None) -> Pen:
    """Return the pen for the output: a file has no colours."""
    return Pen.from_stream(sys.stdout) if output is None else Pen()


def write_answer(text: str, output: str | None, *, is_drawn: bool = False) -> None:
    """Write an answer to the requested file (completely or not at all), or print it.

    With ``is_drawn`` the text may contain colours, which the stream must support.
    """
    if output is None:
        echo(text, nl=False, is_drawn=is_drawn)
    else:
        write_atomically(Path(output), text.encode())


def print_answer(
    format: Format,
    table: Table,
    header: Mapping[str, object] | None = None,
    notes: Iterable[Note] | None = None,
    *,
    json_rows: Sequence[Mapping[str, object]] | None = None,
    lines_below: Iterable[str] = (),
) -> None:
    """Print the rows, then ``lines_below`` for people. Notes go to standard error, and into JSON."""
    lines = {} if notes is None else {"notes": format_notes(notes)}
    echo(table.render(format, {**(header or {}), **lines}, json_rows), nl=False)
    if format in (Format.TABLE, Format.MARKDOWN):
        for number, line in enumerate(lines_below):
            echo(line if number else f"\n{line}")
    print_notes(lines.get("notes", ()))


def build_json_header(
    traces: Sequence[str], spec: WindowSpec, windows: Sequence[Mapping[str, object]], definition: int
) -> dict[str, object]:
    """Return the JSON header of rows: traces, windows, and definition number."""
    trace = traces[0] if len(traces) == 1 else list(traces)
    return {
        "trace": trace,
        "kernels": "all" if spec.is_whole_run else str(spec.kernels),
        "definition": definition,
        "windows": list(windows),
    }


def format_notes(notes: Iterable[Note]) -> list[str]:
    """Return each note as one line that says whether it casts doubt."""
    return [Note(sanitize_line(note.text, LONGEST_NOTE_LINE), note.warning).labelled_text for note in notes]


def print_notes(lines: Iterable[str]) -> None:
    for line in lines:
        echo(line, err=True)


def build_json_window(rank: Rank, window: Window, gpu_ns: tuple[int, int] | None) -> dict[str, object]:
    """Return a window for JSON; ``gpu_ns`` is the start and end of the measured GPU time, None if the window has no
    kernel.
    """
    gpu_start, gpu_end = gpu_ns or (None, None)
    return {
        "rank": rank.number,
        "pid": rank.pid,
        "name": window.name,
        "start": window.start_ns,
        "end": window.end_ns,
        "index": window.index,
        "count": window.count,
        "gpu_start": gpu_start,
        "gpu_end": gpu_end,
    }
