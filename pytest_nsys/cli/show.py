"""What is in a run, as one screen, or one part of it in full? ``pytest-nsys TRACE…`` shows it.

Each part is a view of ``reports.views.all_views``. An option that a view does not use is an error, which names the
views that use it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import click

from pytest_nsys.analysis.windows.window_selection import RUN, shorten_steady_label
from pytest_nsys.cli.options import (
    MeasureOptions,
    add_measure_options,
    build_json_header,
    build_json_window,
    format_notes,
    make_amount_option,
    make_pen,
    parse_selectors,
    peak_option,
    print_notes,
    resolve_format,
    traces_argument,
    where_option,
    write_answer,
)
from pytest_nsys.cli.terminal_text import echo
from pytest_nsys.core.errors import UsageMistake, suggest_or_list
from pytest_nsys.core.families import Families
from pytest_nsys.core.text_format import quote_command, sanitize_line
from pytest_nsys.core.units import NANOSECONDS
from pytest_nsys.core.version import make_page_url
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.convention_keys import load_built_in_or_file
from pytest_nsys.gates.gate_file import load_configuration
from pytest_nsys.gates.kinds import read_families
from pytest_nsys.gates.workload_keys import read_torchtitan_config
from pytest_nsys.reports.tables.bars import Pen
from pytest_nsys.reports.tables.formats import Format
from pytest_nsys.reports.views.all_views import VIEWS
from pytest_nsys.reports.views.view import DEFAULT_DEPTH, RenderedView, View, ViewRequest

# Shown without --view.
FIRST_SCREEN = "the first screen"

BRIEF = "brief"
"""The format of the first screen for programs; exact figures are in the JSON of views."""

FIRST_SCREEN_OPTIONS = frozenset({"steps", "config"})
# The options, by Python name, that not every view takes.
PARTIAL_OPTIONS = frozenset({"where", "steps", "step_time", "families", "gate", "config", "peak", "depth"})


class ViewNameChoice(click.Choice[str]):
    """The option type for the name of a view; for an unknown name it suggests a similar one."""

    def convert(self, value: str, *_: object) -> str:
        if value not in self.choices:
            raise UsageMistake(
                f"there is no view '{sanitize_line(value, 40)}'{suggest_or_list(value, self.choices, 'there are')}"
            )
        return value


@click.command(
    epilog=f"\b\nWhat its words mean, all of them:\n{make_page_url('glossary')}"
)  # keeps the address on one line
@traces_argument
@click.option("--view", type=ViewNameChoice([*VIEWS]), help="Show one part in full. Default: the first screen.")
@where_option
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Number of steps of the run. Default: the anchors.")
@make_amount_option(
    *("--step-time", NANOSECONDS, "time, as in 412ms"),
    metavar="TIME",
    help="Time of a step without the profiler: 412ms.",
)
@click.option("--families", metavar="FILE", help="A YAML file: family → globs. Default: the built-in table.")
@peak_option
@click.option("--gate", metavar="FILE", help="Gate file that has the stages of a pipeline, its warm-up and blocks.")
@click.option("--config", metavar="FILE", help="TorchTitan configuration (TOML) of the run.")
@click.option(
    "--depth", type=click.IntRange(1), metavar="N", default=DEFAULT_DEPTH, help="Levels of a tree. Default: 3."
)
@click.option("-o", "--output", metavar="FILE", help="Write the answer here.")
@click.option("--open", "opens_page", is_flag=True, help="Show the answer as a page, in the browser.")
@click.option(
    *("--format", "format_name"),
    type=click.Choice([*map(str, Format), BRIEF]),
    default=Format.TABLE.value,
    help="Output format; brief is the first screen for programs, in 8 kB.",
)
@add_measure_options(omitted=["format"])
@click.pass_context
def show(
    context: click.Context,
    measure_options: MeasureOptions,
    traces: tuple[str, ...],
    view: str | None,
    format_name: str,
    where: tuple[str, ...],
    steps: int | None,
    step_time: Fraction | None,
    families: str | None,
    peak: Fraction | None,
    gate: str | None,
    config: str | None,
    depth: int,
    output: str | None,
    opens_page: bool,
) -> None:
    """Show what is in a run: one screen, or one part in full (--view).

    TRACES: files, folders or globs of one run. `pytest-nsys TRACES…` is the same.

    ranks: setup and windows. overlap: communication of each stage, and what hides it. streams: what each ran. kernels:
    time, share and launches by name and by family. collectives: bytes, bandwidth, waits. budget: what holds the step
    back. program: time of modules, operators or ranges. pipeline: two stages of a gate file. config: throughput,
    overlap, network load and traffic, as one report.
    """
    name = view or FIRST_SCREEN
    _refuse_other_options(context, name)
    measure_options = dataclasses.replace(measure_options, format=_choose_format(format_name, is_view=view is not None))
    if opens_page:
        if output is None:
            output = _make_page_path(context, traces)
        if format_name not in (Format.TABLE, Format.HTML):
            raise UsageMistake(f"--open shows a page: leave out --format {format_name}")
        measure_options = dataclasses.replace(measure_options, format=Format.HTML)
    resolve_format(
        measure_options.format, output, {}, [(Path(trace), "is one of the traces") for trace in traces], default=""
    )
    if name == FIRST_SCREEN:
        from pytest_nsys.cli.first_screen import print_first_screen  # not needed for a view

        print_first_screen(measure_options, traces, steps, config, output)
        _open_page(output if opens_page else None)
        return
    chosen_view = VIEWS[name]
    _refuse_many_windows(measure_options, chosen_view.one_window_reason)
    time_ns = None if step_time is None else round(step_time)
    workload = Workload(steps, time_ns, peak_gb_per_s=peak)
    if "gate" in chosen_view.option_names:
        workload = _read_stages(gate)
    elif "config" in chosen_view.option_names:
        workload = _read_run_config(config)._replace(peak_gb_per_s=peak)
    table = None if families is None else load_built_in_or_file(families, {}, "table of families", read_families)
    default_window = chosen_view.window if steps is None else RUN  # ``steps`` counts those of the whole run
    _print_view(
        chosen_view,
        dataclasses.replace(measure_options, default_window=default_window),
        traces,
        where,
        depth,
        workload,
        table,
        output,
    )
    _open_page(output if opens_page else None)


def _print_view(
    view: View,
    measure_options: MeasureOptions,
    traces: Sequence[str],
    where: Sequence[str],
    depth: int,
    workload: Workload,
    families: Families | None,
    output: str | None,
) -> None:
    one_run = measure_options.open_one_run(
        *(traces, workload),
        metrics=view.metric_names,
        span=view.span,
        families=families,
        may_be_a_step="steps" in view.option_names,
    )
    selectors = parse_selectors(where)
    with measure_options.show_progress() as tell:
        tell("reading the trace")
        with one_run as (captures, spec):
            encoding = "utf-8" if output is not None else sys.stdout.encoding or "ascii"
            request = ViewRequest(captures, spec, measure_options.ranks, selectors, encoding, depth)
            tell(f"measuring {view.name}")
            shown_view = view.show(request)
            if measure_options.format is Format.HTML:  # a page contains the notes
                text, notes = _draw_view(shown_view, measure_options, traces), list[str]()
            else:
                text, notes = _render_texts(shown_view, measure_options, traces, make_pen(output))
    write_answer(text, output, is_drawn=True)
    print_notes(notes)


def _draw_view(shown_view: RenderedView, measure_options: MeasureOptions, traces: Sequence[str]) -> str:
    """Return the page of one view."""
    from pytest_nsys.reports.page.trace_page import make_view_section, render_view_page  # imported only for a page

    options = [word for option in measure_options.typed_options for word in option]
    section = make_view_section(
        shown_view, quote_command(["pytest-nsys", *traces, "--view", shown_view.view.name, *options])
    )
    return render_view_page(
        dataclasses.replace(section, remarks=[*format_notes(measure_options.notes), *section.remarks]), traces[0]
    )


def _render_texts(
    rendered: RenderedView, measure_options: MeasureOptions, traces: Sequence[str], pen: Pen
) -> tuple[str, list[str]]:
    """Return the text for standard output, and the notes for standard error."""
    notes = format_notes(dict.fromkeys([*measure_options.notes, *rendered.notes]))
    drawn_lines = rendered.draw_bars(pen) if measure_options.format is Format.TABLE else []
    windows = (
        [build_json_window(*window) for window in rendered.windows] if measure_options.format is Format.JSON else []
    )
    header = build_json_header(traces, rendered.request.spec, windows, rendered.definition)
    return "".join(f"{line}\n" for line in drawn_lines) + rendered.render(
        measure_options.format, {**header, "notes": notes}, pen.columns
    ), notes


def _choose_format(name: str, *, is_view: bool) -> Format:
    """Return the format that the answer is made in. Raises UsageMistake for one that the view, or the first screen,
    does not have.
    """
    if is_view and name == BRIEF:
        raise UsageMistake("brief is a format of the first screen: leave out --view, or give --format json")
    if not is_view and name == Format.JSON:
        raise UsageMistake("the first screen is no table: give --format brief, or --view NAME --format json")
    return Format.JSON if name == BRIEF else Format(name)


def _make_page_path(context: click.Context, traces: Sequence[str]) -> str:
    """Return a path in a new temporary folder, which goes with the command if no page came to be."""
    folder = tempfile.mkdtemp(prefix="pytest-nsys-")

    @context.call_on_close
    def remove_empty_folder() -> None:
        """Remove the folder; one that holds the page stays."""
        with contextlib.suppress(OSError):
            Path(folder).rmdir()

    return str(Path(folder, f"{Path(traces[0]).name.partition('.')[0] or 'trace'}.html"))


def _open_page(output: str | None) -> None:
    """Open the page that was just written in this machine's browser, and print its path; None opens nothing."""
    if output is not None:
        opened = webbrowser.open(Path(output).absolute().as_uri())
        echo(f"{sanitize_line(output)}" + ("" if opened else ": no browser was found here, open it yourself"))


def _read_stages(gate: str | None) -> Workload:
    """Return the workload that the gate file states. Raises UsageMistake if it names no stages, GateFileError."""
    if gate is None:
        raise UsageMistake("--view pipeline needs the stages: --gate FILE with pipeline: {stage0: …, stage1: …}")
    workload = load_configuration(Path(gate)).workload
    if workload.pipeline is None:
        raise UsageMistake(f"{sanitize_line(gate)}: states no pipeline: {{stage0: …, stage1: …}}")
    return workload


def _read_run_config(config: str | None) -> Workload:
    """Return the workload that a run's configuration states. Raises UsageMistake if no configuration is given."""
    if config is None:
        raise UsageMistake("--view config needs the configuration of the run: --config FILE.toml")
    return read_torchtitan_config(Path(config))


def _refuse_many_windows(measure_options: MeasureOptions, one_window: str) -> None:
    """Raise UsageMistake for several windows if a view takes only one, with the reason ``one_window``."""
    if (
        one_window
        and measure_options.window is not None
        and shorten_steady_label(measure_options.window) != measure_options.window
    ):
        raise UsageMistake(f"--window {measure_options.window} is many windows: {one_window}")


def list_takers(option: str) -> list[str]:
    """Return the names of the views that take an option, given by its Python name."""
    if option not in PARTIAL_OPTIONS:
        return [FIRST_SCREEN, *VIEWS]
    views = [name for name, view in VIEWS.items() if option in view.option_names]
    return [FIRST_SCREEN] * (option in FIRST_SCREEN_OPTIONS) + views


def _refuse_other_options(context: click.Context, view: str) -> None:
    """Raise UsageMistake for a typed option that the view does not use."""
    for parameter in context.command.params:
        is_typed = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if is_typed and view not in (views := list_takers(parameter.name or "")):
            view_names = " or ".join(name for name in views if name != FIRST_SCREEN)
            raise UsageMistake(f"{parameter.opts[-1]} goes with --view {view_names}, not with {view}")
