"""What does ``pytest-nsys TRACE…`` print? A summary of the run, on at most 40 lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_nsys.analysis.summary.summary import summarize_captures
from pytest_nsys.cli.options import MeasureOptions, make_pen, write_answer
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.workload_keys import read_torchtitan_config
from pytest_nsys.reports.screens.first_screen import FirstScreen
from pytest_nsys.reports.screens.trace_brief import build_trace_brief
from pytest_nsys.reports.tables.brief import render_brief
from pytest_nsys.reports.tables.formats import Format


def print_first_screen(
    measure_options: MeasureOptions, traces: tuple[str, ...], steps: int | None, config: str | None, output: str | None
) -> None:
    """Print what the run is, how its steps spend their time, its kernels and communication, findings, and next
    commands.

    Raises UsageMistake for the format CSV: the first screen is no table.
    """
    if measure_options.format is Format.CSV:
        raise UsageMistake("the first screen is no table: give --format brief, or --view NAME --format csv")
    workload = Workload() if config is None else read_torchtitan_config(Path(config))
    if steps is not None:
        workload = workload._replace(steps=steps)
    with measure_options.show_progress() as tell:
        tell("reading the trace")
        run = measure_options.open_one_run(traces, workload, metrics=["compute_absent_ns", "exposed_ns"])
        with run as (captures, spec):
            rank_numbers = (
                frozenset(measure_options.select_ranks(captures.runs[0].ranks)) if measure_options.ranks else None
            )
            summary = summarize_captures(captures, spec, traces, tell, rank_numbers)
            complete_summary = replace(
                summary, given_options=measure_options.typed_options, searched=measure_options.searched
            )
            if measure_options.format is Format.HTML:
                from pytest_nsys.reports.page.trace_page import draw_trace, render_trace_page  # only for a page

                tell("drawing the page")
                page = render_trace_page(
                    complete_summary, draw_trace(captures, spec, complete_summary, measure_options.ranks)
                )
    match measure_options.format:
        case Format.JSON:
            text = render_brief(build_trace_brief(complete_summary))
        case Format.MARKDOWN:
            text = FirstScreen(complete_summary).render_markdown()
        case Format.HTML:
            text = page
        case _:
            text = "".join(f"{line}\n" for line in FirstScreen(complete_summary, make_pen(output)).render_lines())
    write_answer(text, output, is_drawn=True)
