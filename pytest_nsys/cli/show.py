"""What is in a run, as one screen, or one part of it in full? ``pytest-nsys TRACE…`` shows it.

Each part is a view of ``reports.views.all_views``. An option that a view has no use for is a mistake that names those
that take it.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import click

from pytest_nsys.analysis.windows.spans import RUN, of_one_window
from pytest_nsys.cli.options import (
    MeasureOptions,
    about_windows,
    amount,
    deliver,
    format_of,
    json_window,
    measuring,
    note_lines,
    peak_option,
    pen_of,
    print_notes,
    selectors_of,
    traces_argument,
    where_option,
)
from pytest_nsys.cli.saying import say
from pytest_nsys.core.errors import UsageMistake, hint
from pytest_nsys.core.families import Families
from pytest_nsys.core.units import NANOSECONDS
from pytest_nsys.core.version import page_url
from pytest_nsys.core.words import printable, typed
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.convention_keys import built_in_or_read
from pytest_nsys.gates.gate_file import load_one
from pytest_nsys.gates.kinds import read_families
from pytest_nsys.gates.workload_keys import read_config
from pytest_nsys.reports.tables.bars import Pen
from pytest_nsys.reports.tables.formats import Format
from pytest_nsys.reports.views.all_views import VIEWS
from pytest_nsys.reports.views.view import Looked, Shown, View

# What is shown without a view.
FIRST = "the first screen"

FIRST_TAKES = frozenset({"steps", "config"})
# Options, by their Python names, that not every view takes.
SOMETIMES = frozenset({"where", "steps", "step_time", "families", "gate", "config", "peak"})


class ViewName(click.Choice[str]):
    """Accepts the name of a view, and suggests one for a name that is none."""

    def convert(self, value: str, *_: object) -> str:
        if value not in self.choices:
            raise UsageMistake(f"there is no view '{printable(value, 40)}'{hint(value, self.choices, 'there are')}")
        return value


@click.command(epilog=f"\b\nWhat its words mean:\n{page_url('what-holds-the-step-back')}")  # an address keeps its line
@traces_argument
@click.option("--view", type=ViewName([*VIEWS]), help="Show one part in full. Default: the first screen.")
@where_option
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Number of steps of the run. Default: the anchors.")
@amount(
    *("--step-time", NANOSECONDS, "time, as in 412ms"),
    metavar="TIME",
    help="Time of a step without the profiler: 412ms.",
)
@click.option("--families", metavar="FILE", help="A YAML file: family → globs. Default: the built-in table.")
@peak_option
@click.option("--gate", metavar="FILE", help="Gate file that has the stages of a pipeline, its warm-up and blocks.")
@click.option("--config", metavar="FILE", help="TorchTitan configuration (TOML) of the run.")
@click.option("-o", "--output", metavar="FILE", help="Write the answer here.")
@click.option("--open", "opens_page", is_flag=True, help="Show the answer as a page, in the browser.")
@measuring()
@click.pass_context
def show(
    context: click.Context,
    asked: MeasureOptions,
    traces: tuple[str, ...],
    view: str | None,
    where: tuple[str, ...],
    steps: int | None,
    step_time: Fraction | None,
    families: str | None,
    peak: Fraction | None,
    gate: str | None,
    config: str | None,
    output: str | None,
    opens_page: bool,
) -> None:
    """Show what is in a run: one screen, or one part in full (--view).

    TRACES: files, folders or globs of one run. `pytest-nsys TRACES…` is the same.

    ranks: setup and windows. overlap: communication of each stage, and what hides it. streams: what each ran. kernels:
    time, share and launches by name and by family. collectives: bytes, bandwidth, waits. budget: what holds the step
    back. pipeline: two stages of a gate file. config: throughput, overlap, network load and traffic, as one report.
    """
    name = view or FIRST
    _refuse_others(context, name)
    if opens_page:
        asked, output = _ask_for_page(asked, output, traces)
        context.call_on_close(functools.partial(_open_page, Path(output)))
    format_of(asked.format, output, {}, [(Path(trace), "is one of the traces") for trace in traces], default="")
    if name == FIRST:
        from pytest_nsys.cli.first_screen import first_screen  # a view does not pay for it

        first_screen(asked, traces, steps, config, output)
        return
    chosen_view = VIEWS[name]
    _refuse_many(asked, chosen_view.one_window)
    time_ns = None if step_time is None else round(step_time)
    workload = Workload(steps, time_ns, peak_gb_per_s=peak)
    if "gate" in chosen_view.takes:
        workload = _stages(gate)
    elif "config" in chosen_view.takes:
        workload = _configured(config)._replace(peak_gb_per_s=peak)
    table = None if families is None else built_in_or_read(families, {}, "table of families", read_families)
    default_window = chosen_view.window if steps is None else RUN  # so many has the run
    _show(chosen_view, dataclasses.replace(asked, usually=default_window), traces, where, workload, table, output)


def _show(
    view: View,
    asked: MeasureOptions,
    traces: Sequence[str],
    where: Sequence[str],
    workload: Workload,
    families: Families | None,
    output: str | None,
) -> None:
    one_run = asked.one_run(
        *(traces, workload),
        metrics=view.reads,
        span=view.span,
        families=families,
        may_be_a_step="steps" in view.takes,
    )
    selectors = selectors_of(where)
    with asked.telling() as tell:
        tell("reading the trace")
        with one_run as (captures, spec):
            encoding = "utf-8" if output is not None else sys.stdout.encoding or "ascii"
            request = Looked(captures, spec, asked.ranks, selectors, encoding)
            tell(f"measuring {view.name}")
            shown_view = view.look(request)
            if asked.format is Format.HTML:  # which has the notes on it
                text, notes = _draw_view(shown_view, asked, traces), list[str]()
            else:
                text, notes = _texts(shown_view, asked, traces, pen_of(output))
    deliver(text, output, drawn=True)
    print_notes(notes)


def _draw_view(shown_view: Shown, asked: MeasureOptions, traces: Sequence[str]) -> str:
    """Return the page of one view."""
    from pytest_nsys.reports.page.trace_page import make_view_section, render_view_page  # only a page pays for it

    options = [word for option in asked.typed for word in option]
    section = make_view_section(shown_view, typed(["pytest-nsys", *traces, "--view", shown_view.view.name, *options]))
    return render_view_page(
        dataclasses.replace(section, remarks=[*note_lines(asked.notes), *section.remarks]), traces[0]
    )


def _texts(found: Shown, asked: MeasureOptions, traces: Sequence[str], pen: Pen) -> tuple[str, list[str]]:
    """Return the text for standard output, and the notes that go beside it."""
    notes = note_lines(dict.fromkeys([*asked.notes, *found.notes]))
    drawn_lines = found.drawn(pen) if asked.format is Format.TABLE else []
    windows = [json_window(*window) for window in found.windows] if asked.format is Format.JSON else []
    header = about_windows(traces, found.looked.spec, windows, found.definition)
    return "".join(f"{line}\n" for line in drawn_lines) + found.render(
        asked.format, {**header, "notes": notes}, pen.columns
    ), notes


def _ask_for_page(asked: MeasureOptions, output: str | None, traces: Sequence[str]) -> tuple[MeasureOptions, str]:
    """Return the options for a page, and where it is written: in a new temporary folder where nobody said.

    Raises UsageMistake where another format was asked for.
    """
    if asked.format not in (Format.TABLE, Format.HTML):
        raise UsageMistake(f"--open shows a page: leave out --format {asked.format}")
    if output is None:
        name = Path(traces[0]).name.partition(".")[0] or "trace"
        output = str(Path(tempfile.mkdtemp(prefix="pytest-nsys-"), f"{name}.html"))
    return dataclasses.replace(asked, format=Format.HTML), output


def _open_page(page: Path) -> None:
    """Show a page in the browser of this machine, and say where it is; nothing where it was not written."""
    if page.is_file():
        opened = webbrowser.open(page.absolute().as_uri())
        say(f"{printable(str(page))}" + ("" if opened else ": no browser was found here, open it yourself"))


def _stages(gate: str | None) -> Workload:
    """Return what the gate file says of the work. Raises UsageMistake where it names no stages, GateFileError."""
    if gate is None:
        raise UsageMistake("--view pipeline needs the stages: --gate FILE with pipeline: {stage0: …, stage1: …}")
    workload = load_one(Path(gate)).workload
    if workload.pipeline is None:
        raise UsageMistake(f"{printable(gate)}: states no pipeline: {{stage0: …, stage1: …}}")
    return workload


def _configured(config: str | None) -> Workload:
    """Return what the configuration of a run says of its work. Raises UsageMistake where none is given."""
    if config is None:
        raise UsageMistake("--view config needs the configuration of the run: --config FILE.toml")
    return read_config(Path(config))


def _refuse_many(asked: MeasureOptions, one_window: str) -> None:
    """Raise UsageMistake for many windows where a view is of one, and say why."""
    if one_window and asked.window is not None and of_one_window(asked.window) != asked.window:
        raise UsageMistake(f"--window {asked.window} is many windows: {one_window}")


def takers(option: str) -> list[str]:
    """Return the views that take an option, by its Python name."""
    if option not in SOMETIMES:
        return [FIRST, *VIEWS]
    views = [name for name, view in VIEWS.items() if option in view.takes]
    return [FIRST] * (option in FIRST_TAKES) + views


def _refuse_others(context: click.Context, view: str) -> None:
    """Raise UsageMistake for an option that was typed and that the view has no use for."""
    for parameter in context.command.params:
        is_typed = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if is_typed and view not in (views := takers(parameter.name or "")):
            view_names = " or ".join(name for name in views if name != FIRST)
            raise UsageMistake(f"{parameter.opts[-1]} goes with --view {view_names}, not with {view}")
