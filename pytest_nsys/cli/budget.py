"""``budget``: what holds the step back, and who?"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence

import click

from pytest_nsys.analysis.budget import budget_of, facts_of, window_of_several
from pytest_nsys.analysis.budget_facts import DEFINITION, BudgetFacts, Part
from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.cli.options import MeasureOptions, measuring, traces_argument
from pytest_nsys.cli.output import about_windows, json_window, print_answer
from pytest_nsys.core.errors import NoRows, NothingMeasured
from pytest_nsys.core.model import Note
from pytest_nsys.reports.budget_report import BudgetReport
from pytest_nsys.reports.tables import Format
from pytest_nsys.tools.executors import on_terminal

COLOURS: Mapping[Part | None, str] = {
    Part.COMPUTE: "bright_black",
    Part.STARVED: "yellow",
    Part.COLLECTIVE: "red",
    Part.COPY: "magenta",
    Part.MEMSET: "magenta",
    Part.ELSEWHERE: "red",
    Part.BESIDE: "cyan",
    Part.STALLED: "blue",
}
"""On a terminal; without colour the characters tell the parts apart."""


@click.command()
@traces_argument
@measuring()
def budget(asked: MeasureOptions, traces: tuple[str, ...]) -> None:
    """Show what holds the step back: launches, producers and stalls, and what each could win.

    TRACES: files, folders or globs of one run.

    With --window steady, each rank shows the window with the lower median of the time without compute.
    """
    with asked.one_run(traces, metrics=["compute_absent_ns"]) as (captures, spec):
        _print_budget(asked, traces, captures, spec)


def _print_budget(asked: MeasureOptions, traces: Sequence[str], captures: Captures, spec: WindowSpec) -> None:
    (run,) = captures.runs
    filled = run.measured(spec).filled(asked.chosen(run.ranks))
    budgets: dict[int, BudgetFacts] = {}
    shown: list[RankWindow] = []
    without: list[Note] = []
    for rank, windows in filled.items():
        try:
            window = window_of_several(windows)
            budgets[rank] = facts_of(budget_of(window))
            shown.append(window)
        except NoRows as nothing:
            without.append(Note(f"rank {rank} has no budget: {nothing}"))
    if not budgets:
        raise NothingMeasured(f"{traces[0]}: {without[0].text}")
    report = BudgetReport(budgets)
    if asked.format in (Format.TABLE, Format.MARKDOWN):
        _draw(report, asked.format)
    notes = [Note(str(spec)), *captures.notes(spec, METRICS["compute_absent_ns"]), *without, *map(Note, report.notes())]
    windows_ = [json_window(w.rank, w.window, (w.start_ns, w.end_ns)) for w in shown]
    print_answer(
        asked.format,
        report.table(asked.format),
        about_windows(traces, spec, windows_, DEFINITION),
        dict.fromkeys(notes),
        json_rows=report.json_rows(),
        below=(f"- {line}" if asked.format is Format.MARKDOWN else line for line in report.producers()),
    )


def _draw(report: BudgetReport, format: Format) -> None:
    """The bars, in colour where a person looks at them."""
    fence = ["```text"] if format is Format.MARKDOWN else []
    coloured = format is Format.TABLE and on_terminal(sys.stdout) and not os.environ.get("NO_COLOR")
    for line in fence:
        click.echo(line)
    for pairs in report.bars(sys.stdout.encoding or "ascii"):
        click.echo(_line(pairs, coloured))
    click.echo("```\n" if fence else "")


def _line(pairs: Iterable[tuple[Part | None, str]], coloured: bool) -> str:
    texts = [click.style(text, fg=COLOURS[part]) if coloured and part else text for part, text in pairs]
    return "".join(texts).rstrip()
