"""``pytest-nsys collectives``: how much do the ranks communicate, how fast, and who waits for whom?"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import click

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.preflight import about_uncounted
from pytest_nsys.analysis.windows import RUN, WindowSpec
from pytest_nsys.cli.options import MeasureOptions, measuring, peak_option, traces_argument
from pytest_nsys.cli.output import mode_of, print_answer
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.model import Note
from pytest_nsys.core.workload import Workload
from pytest_nsys.reports.kernel_report import COLUMNS, CollectiveReport


@click.command()
@traces_argument
@peak_option
@measuring(window=RUN, anchor="the range that repeats", no_steady=": `pytest-nsys rows busbw` takes medians over them")
def collectives(asked: MeasureOptions, traces: tuple[str, ...], peak: Fraction | None) -> None:
    """Bytes, bandwidth and waits of the collectives, by rank, process group and kind.

    TRACES (files, folders or globs) are one run together. Bandwidths are those of the links (busbw), in GB/s of 1e9
    bytes; a dash is what the traces do not say.
    """
    measured = ["collective_bytes", "collective_wait_ns"]
    with asked.one_run(traces, Workload(peak_gb_per_s=peak), metrics=measured) as (captures, spec):
        _print(asked, traces, captures, spec)


def _print(asked: MeasureOptions, traces: Sequence[str], captures: Captures, spec: WindowSpec) -> None:
    (run,) = captures.runs
    (together,) = run.measured(spec).together()
    report = CollectiveReport(together, asked.chosen_of(together.by_rank))
    rows = report.rows()
    if not rows:
        raise NothingMeasured(f"{traces[0]}: no communication kernel runs under {spec}")
    notes = [Note(str(spec)), *run.rank_notes, *about_uncounted(run.measured(spec)), *map(Note, report.unsaid())]
    about = {"trace": list(traces), "kernels": mode_of(spec), "stragglers": report.straggling()}
    print_answer(asked.format, COLUMNS, rows, about, dict.fromkeys(notes), below=report.lines())
