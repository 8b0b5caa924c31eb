"""``pytest-nsys TRACE…``: what is in a run, as one screen, or one part of it in full.

Each part is a view. An option that a view has no use for is a mistake that names the views which have it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import click

from pytest_nsys.analysis.windows import MEDIAN, RUN, STEADY
from pytest_nsys.cli import report, spending, views
from pytest_nsys.cli.first_screen import first_screen
from pytest_nsys.cli.options import MeasureOptions, Said, amount, measuring, peak_option, traces_argument, where_option
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.units import NANOSECONDS

Answer = Callable[[MeasureOptions, tuple[str, ...], Said], None]

VIEWS: dict[str, Answer] = {
    "ranks": views.ranks,
    "overlap": views.overlap,
    "streams": views.streams,
    "kernels": spending.kernels,
    "collectives": spending.collectives,
    "budget": spending.budget,
    "pipeline": spending.pipeline,
    "config": report.report,
}
WHOLE_RUN = ("kernels", "collectives", "config")
"""What sums, unless a window is asked for."""

ONE_WINDOW = {
    "kernels": "`pytest-nsys rows family_ns` takes medians over them",
    "collectives": "`pytest-nsys rows busbw` takes medians over them",
    "pipeline": "pick one unit, of which launches and gaps are told",
    "config": "a page is of one",
}
FIRST = "the first screen"
"""What is shown without a view."""

TAKES = {
    "where": ("overlap", "kernels"),
    "ranks": (FIRST, "ranks", "overlap", "streams", "collectives", "budget", "pipeline"),
    "span": (FIRST, "ranks", "overlap", "streams", "kernels", "collectives", "budget", "pipeline"),
    "kernels": (FIRST, "ranks", "overlap", "streams", "kernels", "collectives", "budget", "pipeline"),
    "format": (FIRST, "ranks", "overlap", "streams", "kernels", "collectives", "budget", "pipeline"),
    "steps": (FIRST, "kernels"),
    "step_time": ("kernels",),
    "families": ("kernels",),
    "peak": ("collectives", "config"),
    "gate": ("pipeline",),
    "config": (FIRST, "config"),
    "output": ("config",),
}
"""The options that not every view takes, and the views that take them."""


@click.command()
@traces_argument
@click.option("--view", type=click.Choice([*VIEWS]), help="Show one part in full. Default: the first screen.")
@where_option
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Number of steps. Default: the anchors.")
@amount(
    *("--step-time", NANOSECONDS, "time, as in 412ms"),
    metavar="TIME",
    help="Time of a step without the profiler: 412ms.",
)
@click.option("--families", metavar="TABLE", help="maxtext, nvidia, or a YAML file: family → globs.")
@peak_option
@click.option("--gate", metavar="FILE", help="Gate file that has the stages of a pipeline, its warm-up and blocks.")
@click.option("--config", metavar="FILE", help="TorchTitan configuration (TOML) of the run.")
@click.option("-o", "--output", metavar="DIR", help="Folder for a page per run. Default: print them.")
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
) -> None:
    """Show what is in a run: one screen, or one part in full (--view).

    TRACES: files, folders or globs of one run. `pytest-nsys TRACES…` is the same.

    ranks: setup and windows. overlap: communication of each stage, and what hides it. streams: what each ran. kernels:
    time, share and launches by family and by name. collectives: bytes, bandwidth, waits. budget: what holds the step
    back. pipeline: two stages of a gate file. config: a page on a run of TorchTitan.
    """
    name = view or FIRST
    _refuse_others(context, name)
    if name in ONE_WINDOW and asked.window == STEADY:
        raise UsageMistake(f"--window steady is many windows: {ONE_WINDOW[name]}")
    asked = dataclasses.replace(asked, usually=RUN if name in WHOLE_RUN else MEDIAN)
    answer = VIEWS[view] if view else first_screen
    answer(asked, traces, Said(where, steps, step_time, families, peak, gate, config, output))


def _refuse_others(context: click.Context, view: str) -> None:
    """Raises UsageMistake for an option that was typed and that the view has no use for."""
    for parameter in context.command.params:
        name = parameter.name or ""
        typed: Any = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if typed and view not in (takers := TAKES.get(name, (view,))):
            option, which = parameter.opts[-1], f"--view {' or '.join(taker for taker in takers if taker != FIRST)}"
            raise UsageMistake(f"{option} goes with {which}, not with {view}")
