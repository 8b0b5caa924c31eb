"""What do the commands share that take all of their files as one run, and measure the whole of it by default?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import click

from pytest_nsys.analysis.windows import RUN, STEADY
from pytest_nsys.cli.choosing_convention import convention_option
from pytest_nsys.cli.options import WINDOW_OPTIONS, executor_option, format_option, window_of, window_option
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.model import printable
from pytest_nsys.core.units import NANOSECONDS, UnitMistake, parse_quantity


def run_command(*own: Callable[..., Any], anchor: str) -> Callable[[Callable[..., None]], Any]:
    """Make a command of its ``own`` options and the shared ones. ``anchor`` says what the anchor is to it."""
    shared: tuple[Callable[..., Any], ...] = (
        window_option(RUN),
        *WINDOW_OPTIONS,
        convention_option,
        click.option("--anchor", help=f"Pattern (% is the wildcard) of {anchor}."),
        format_option,
        executor_option,
    )

    def decorate(command: Callable[..., None]) -> Any:
        for option in reversed((*own, *shared)):
            command = option(command)
        return click.command()(click.argument("traces", metavar="TRACES…", nargs=-1, required=True)(command))

    return decorate


def window_of_run(window: str | None, start: int | None, end: int | None, instead: str) -> str:
    """The window, the whole run by default; of many windows ``instead`` takes the median."""
    found = window_of(window or (RUN if start is end is None else None), start, end)
    if found == STEADY:
        raise UsageMistake(f"--window steady is many windows: `pytest-nsys rows {instead}` takes medians over them")
    return found


def time_of(text: str, option: str) -> int:
    """A time with its unit, in ns. Raises UsageMistake."""
    return round(_amount(text, option, NANOSECONDS, "time, as in 412ms"))


def bandwidth_of(text: str, option: str) -> Fraction:
    """A bandwidth with its unit, in GB/s. Raises UsageMistake."""
    return _amount(text, option, {"GB/s": 1}, "bandwidth, as in 400GB/s")


def _amount(text: str, option: str, units: Mapping[str, int], wanted: str) -> Fraction:
    try:
        quantity = parse_quantity(text)
    except UnitMistake as mistake:
        raise UsageMistake(f"{option}: {mistake}") from None
    if quantity.unit not in units or not quantity.value:
        raise UsageMistake(f"{option} is a {wanted}, not '{printable(text, 40)}'")
    return quantity.value * units[quantity.unit]
