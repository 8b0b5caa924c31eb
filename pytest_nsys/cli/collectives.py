"""``pytest-nsys collectives``: how much do the ranks communicate, how fast, and who waits for whom?"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from pytest_nsys.analysis.captures import CaptureCache, Captures
from pytest_nsys.analysis.preflight import about_uncounted
from pytest_nsys.analysis.reading_plan import Request
from pytest_nsys.analysis.windows import WindowSpec, spec_under
from pytest_nsys.cli.choosing_convention import convention_for
from pytest_nsys.cli.one_run import bandwidth_of, run_command, window_of_run
from pytest_nsys.cli.options import chosen_of, opening_of
from pytest_nsys.cli.output import mode_of, note_lines, print_notes, print_rows
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.model import KernelsMode, Note, Span
from pytest_nsys.core.workload import Workload
from pytest_nsys.reports.collective_report import COLUMNS, CollectiveReport
from pytest_nsys.reports.tables import Format, json_rows

peak_option = click.option("--peak", metavar="GB/s", help="Bandwidth of the network per GPU, as in 400GB/s.")

_OPTIONS = (
    peak_option,
    click.option("--rank", "ranks", type=int, metavar="N", multiple=True, help="This rank only (repeatable)."),
)


@run_command(*_OPTIONS, anchor="the range that repeats")
def collectives(traces: tuple[str, ...], peak: str | None, ranks: tuple[int, ...], **more: Any) -> None:
    """Bytes, bandwidth and waits of the collectives, by rank, process group and kind.

    TRACES (files, folders or globs) are one run together. Bandwidths are those of the links (busbw), in GB/s of 1e9
    bytes; a dash is what the traces do not say.
    """
    workload = Workload(peak_gb_per_s=None if peak is None else bandwidth_of(peak, "--peak"))
    window = window_of_run(more["window"], more["start"], more["end"], "busbw")
    convention = convention_for(traces, more["convention"], more["anchor"])
    span, mode = more["span"], more["kernels"]
    spec = spec_under(convention, window, Span(span) if span else None, KernelsMode(mode) if mode else None)
    requests = [Request(name, spec) for name in ("collective_bytes", "collective_wait_ns")]
    format = Format(more["format"])
    with contextlib.closing(CaptureCache(opening_of(more["executor"], format))) as library:
        captures = library.one_run(traces, Path(), convention, workload, requests)
        _print(format, traces, captures, spec, ranks)


def _print(format: Format, traces: Sequence[str], captures: Captures, spec: WindowSpec, ranks: tuple[int, ...]) -> None:
    (run,) = captures.runs
    (together,) = run.measured(spec).together()
    report = CollectiveReport(together, chosen_of(ranks, together.by_rank))
    rows = report.rows()
    if not rows:
        raise NothingMeasured(f"{traces[0]}: no communication kernel runs under {spec}")
    notes = [Note(str(spec)), *run.rank_notes, *about_uncounted(run.measured(spec)), *map(Note, report.unsaid())]
    lines = note_lines(dict.fromkeys(notes))
    about = {"trace": list(traces), "kernels": mode_of(spec), "stragglers": report.straggling(), "notes": lines}
    print_rows(format, COLUMNS, rows, about, json_rows=json_rows(COLUMNS, rows))
    if format in (Format.TABLE, Format.MARKDOWN):
        for number, line in enumerate(report.lines()):
            click.echo(line if number else f"\n{line}")
    print_notes(lines)
