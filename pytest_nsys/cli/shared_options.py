"""Which options do commands share that need not read a trace? Importing this module imports nothing that measures."""

from __future__ import annotations

import click

from pytest_nsys.gates.convention_keys import CONVENTION_HELP, parse_anchor_option
from pytest_nsys.tools.executors import EXECUTOR_FORMS, SERIAL

convention_option = click.option("--convention", metavar="NAME", help=CONVENTION_HELP)
anchor_option = click.option(
    "--anchor",
    metavar="PATTERN",
    callback=lambda _context, _option, text: None if text is None else parse_anchor_option(text),
    help="Pattern (% is the wildcard) of the range that repeats, or '{kernel: NAME}', instead of the convention's.",
)
executor_option = click.option(
    "--executor", metavar="EXECUTOR", help=f"How to read the traces: {EXECUTOR_FORMS}. Default: {SERIAL}."
)
folder_option = click.option(
    "--baseline-dir", metavar="DIR", help="Folder of the baselines. Default: as in the gate run."
)
