"""``pytest-nsys baseline calibrate``: how far does each row move by itself, from run to run of one commit?"""

from __future__ import annotations

from pathlib import Path

import click

from pytest_nsys.cli.options import executor_option
from pytest_nsys.cli.updating import folder_option, update
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.gates.finding import gate_files_below
from pytest_nsys.gates.noise import FEWEST_TRACES


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACES…")
@click.option(
    *("--gate", "gate_files"),
    multiple=True,
    metavar="FILE",
    help="Gate file or folder of them (repeatable); default: every gate file below the current folder.",
)
@click.option("--reason", metavar="TEXT", help="Stored with the noise.")
@folder_option
@executor_option
@click.pass_context
def calibrate(
    context: click.Context,
    traces: tuple[str, ...],
    gate_files: tuple[str, ...],
    reason: str | None,
    baseline_dir: str | None,
    executor: str | None,
) -> None:
    """Measure the noise of every stored row on TRACES, five or more of one commit.

    Each trace (file, folder or quoted glob) is one run. Accepted values stay as they are; where none are stored, the
    traces are the accepted runs as well.
    """
    if len(traces) < FEWEST_TRACES:
        raise UsageMistake(
            f"noise is measured on {FEWEST_TRACES} or more traces of one commit, not on {len(traces)}: give more"
        )
    found = list(gate_files) or sorted(map(str, gate_files_below(Path())))
    if not found:
        raise UsageMistake(f"there is no gate file (*{GATE_SUFFIX}) below {Path().resolve()}: give --gate FILE")
    said = reason or f"calibrated on {len(traces)} traces"
    context.exit(update(found, traces, said, mode="calibrate", baseline_dir=baseline_dir, executor=executor))
