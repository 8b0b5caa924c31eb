"""What does ``pytest-nsys TRACE…`` print first? What is in a run, on at most 40 lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_nsys.analysis.summary.summary import summary_of
from pytest_nsys.cli.options import MeasureOptions, deliver, pen_of
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.workload_keys import read_config
from pytest_nsys.reports.screens.first_screen import FirstScreen
from pytest_nsys.reports.screens.first_screen_json import as_json_screen
from pytest_nsys.reports.tables.formats import Format


def first_screen(
    asked: MeasureOptions, traces: tuple[str, ...], steps: int | None, config: str | None, output: str | None
) -> None:
    """Print what the run is, where its steps go, its kernels and communication, what to look at, and what to type
    next.

    Raises UsageMistake for the format CSV: the first screen is no table.
    """
    if asked.format is Format.CSV:
        raise UsageMistake("the first screen is no table: give --format json, or --view NAME --format csv")
    workload = Workload() if config is None else read_config(Path(config))
    if steps is not None:
        workload = workload._replace(steps=steps)
    with asked.telling() as tell:
        tell("reading the trace")
        run = asked.one_run(traces, workload, metrics=["compute_absent_ns", "exposed_ns"])
        with run as (captures, spec):
            rank_numbers = frozenset(asked.chosen(captures.runs[0].ranks)) if asked.ranks else None
            summary = summary_of(captures, spec, traces, tell, rank_numbers)
            complete_summary = replace(summary, given=asked.typed, searched=asked.searched)
            if asked.format is Format.HTML:
                from pytest_nsys.reports.page.trace_page import draw_trace, render_trace_page  # only a page pays for it

                tell("drawing the page")
                page = render_trace_page(complete_summary, draw_trace(captures, spec, complete_summary, asked.ranks))
    match asked.format:
        case Format.JSON:
            text = as_json_screen(complete_summary)
        case Format.MARKDOWN:
            text = FirstScreen(complete_summary).markdown()
        case Format.HTML:
            text = page
        case _:
            text = "".join(f"{line}\n" for line in FirstScreen(complete_summary, pen_of(output)).lines())
    deliver(text, output, drawn=True)
