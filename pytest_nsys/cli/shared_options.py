"""The options that commands share which may read no trace: importing them imports nothing that measures."""

from __future__ import annotations

from typing import Any

import click

from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.gates.convention_keys import CONVENTION_HELP, typed_anchor
from pytest_nsys.tools.executors import SERIAL, WAYS

convention_option = click.option("--convention", metavar="NAME", help=CONVENTION_HELP)
anchor_option = click.option(
    "--anchor",
    metavar="PATTERN",
    callback=lambda _context, _option, text: None if text is None else typed_anchor(text),
    help="Pattern (% is the wildcard) of the range that repeats, or '{kernel: NAME}', instead of the convention's.",
)
executor_option = click.option(
    "--executor", metavar="EXECUTOR", help=f"How to read the traces: {WAYS}. Default: {SERIAL}."
)
folder_option = click.option(
    "--baseline-dir", metavar="DIR", help="Folder of the baselines. Default: as in the gate run."
)

FORMER = {
    "text": "--format table",
    "otava": "--format csv",
    "svg": "pytest --nsys-history=FILE --nsys-html=PAGE, whose page has the trend",
}
"""What to type instead of a format that there was."""


class Formats(click.Choice):  # type: ignore[type-arg]  # click 8.1 takes no parameter
    """The words for an option; of a format that is gone it says what to type."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Raises UsageMistake for the name that is gone."""
        if instead := FORMER.get(value):
            raise UsageMistake(f"there is no --format {value} any more: type {instead}")
        return str(super().convert(value, param, ctx))
