"""``pytest-nsys collectives``: how much do the ranks communicate, how fast, and who waits for whom?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from pytest_nsys.analysis.windows import RUN, STEADY, Pick
from pytest_nsys.asks import Ask
from pytest_nsys.cli.kernels import USUAL
from pytest_nsys.cli.options import (
    CONVENTION_HELP,
    WINDOW_OPTIONS,
    convention_of,
    executor_option,
    format_option,
    opening_of,
    window_of,
    window_option,
)
from pytest_nsys.cli.output import mode_of, note_lines, print_notes, print_rows
from pytest_nsys.conventions import DEFAULT, Convention
from pytest_nsys.errors import NothingMeasured, UsageMistake
from pytest_nsys.evaluation import Evidence, Library
from pytest_nsys.gates.stored_series import pick_under
from pytest_nsys.gates.units import UnitMistake, parse_quantity
from pytest_nsys.model import KernelsMode, Note, Span, printable
from pytest_nsys.reports.collective_report import COLUMNS, CollectiveReport
from pytest_nsys.reports.tables import Format, json_rows
from pytest_nsys.traces.opening import find_traces, open_trace
from pytest_nsys.workload import Workload

peak_option = click.option("--peak", metavar="GB/s", help="Bandwidth of the network per GPU, as in 400GB/s.")

_OPTIONS = (
    peak_option,
    click.option("--rank", "ranks", type=int, metavar="N", multiple=True, help="This rank only (repeatable)."),
    window_option(RUN),
    *WINDOW_OPTIONS,
    click.option("--convention", help=f"{CONVENTION_HELP} Default: by the format of the traces."),
    click.option("--anchor", help="Pattern (% is the wildcard) of the range that repeats."),
    format_option,
    executor_option,
)


def _with_options(command: Callable[..., None]) -> Any:
    for option in reversed(_OPTIONS):
        command = option(command)
    return click.command()(click.argument("traces", metavar="TRACES…", nargs=-1, required=True)(command))


@_with_options
def collectives(traces: tuple[str, ...], peak: str | None, ranks: tuple[int, ...], **more: Any) -> None:
    """Bytes, bandwidth and waits of the collectives, by rank, process group and kind.

    TRACES (files, folders or globs) are one run together. Bandwidths are those of the links (busbw), in GB/s of 1e9
    bytes; a dash is what the traces do not say.
    """
    workload = Workload(peak_gb_per_s=None if peak is None else bandwidth_of(peak))
    whole = more["start"] is None and more["end"] is None
    window = window_of(more["window"] or (RUN if whole else None), more["start"], more["end"])
    if window == STEADY:
        raise UsageMistake("--window steady is many windows: `pytest-nsys rows busbw` takes medians over them")
    if "" in traces:
        raise UsageMistake("the path of a trace is empty")
    convention = convention_for(traces, more["convention"], more["anchor"])
    span, mode = more["span"], more["kernels"]
    pick = pick_under(convention, window, Span(span) if span else None, KernelsMode(mode) if mode else None)
    asks = [Ask(name, pick) for name in ("collective_bytes", "collective_wait_ns")]
    format = Format(more["format"])
    with contextlib.closing(Library(opening_of(more["executor"], format))) as library:
        evidence = library.one_run(traces, Path(), convention, workload, asks)
        _print(format, traces, evidence, pick, ranks)


def _print(format: Format, traces: Sequence[str], evidence: Evidence, pick: Pick, ranks: tuple[int, ...]) -> None:
    (run,) = evidence.captures
    (together,) = run.measured(pick).together()
    report = CollectiveReport(together, chosen_of(ranks, together.by_rank))
    rows = report.rows()
    if not rows:
        raise NothingMeasured(f"{traces[0]}: no communication kernel runs under {pick}")
    notes = [Note(str(pick)), *run.rank_notes, *map(Note, report.unsaid())]
    lines = note_lines(dict.fromkeys(notes))
    about = {"trace": list(traces), "kernels": mode_of(pick), "stragglers": report.straggling(), "notes": lines}
    print_rows(format, COLUMNS, rows, about, json_rows=json_rows(COLUMNS, rows))
    if format in (Format.TABLE, Format.MARKDOWN):
        for number, line in enumerate(report.lines()):
            click.echo(line if number else f"\n{line}")
    print_notes(lines)


def chosen_of(asked: Sequence[int], known: Collection[int]) -> frozenset[int]:
    """The ranks that were asked for, all where none was. Raises UsageMistake for one that does not exist."""
    for number in asked:
        if number not in known:
            raise UsageMistake(f"there is no rank {number}: the ranks are {', '.join(map(str, sorted(known)))}")
    return frozenset(asked or known)


def convention_for(traces: Sequence[str], name: str | None, anchor: str | None) -> Convention:
    """The convention that is named, else that of the first trace's format. Raises as opening it does."""
    if name is None:
        with contextlib.closing(open_trace(find_traces(traces[0], Path())[0])) as trace:
            name = USUAL.get(type(trace), DEFAULT)
    return convention_of(name, anchor)


def bandwidth_of(text: str) -> Fraction:
    """A bandwidth with its unit. Raises UsageMistake."""
    try:
        quantity = parse_quantity(text)
    except UnitMistake as mistake:
        raise UsageMistake(f"--peak: {mistake}") from None
    if quantity.unit != "GB/s" or not quantity.value:
        raise UsageMistake(f"--peak is a bandwidth, as in 400GB/s, not '{printable(text, 40)}'")
    return quantity.value
