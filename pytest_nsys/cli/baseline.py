"""``pytest-nsys baseline``: accept a run as the new normal, and see what is stored."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from pytest_nsys.cli.exit_status import NOT_JUDGED
from pytest_nsys.cli.options import format_option
from pytest_nsys.cli.output import print_rows
from pytest_nsys.errors import UsageMistake
from pytest_nsys.gates.baselines import Baseline, load
from pytest_nsys.reports.tables import Column, Format, Kind, Measure
from pytest_nsys.session import BASELINES

PYTEST_TO_COMMAND = {0: 0, 1: 1, NOT_JUDGED: 3}
"""Every other end of pytest is a mistake or an unreadable file (2)."""

COLUMNS = (
    Column("file"),
    Column("gate"),
    Column("metric"),
    Column("labels"),
    Column("value"),
    Column("unit"),
    Column("runs", Kind.NUMBER),
    Column("measured"),
)


@click.group()
def baseline() -> None:
    """Stored baselines: refresh them from a run, or show them."""


@baseline.command()
@click.argument("gate_files", nargs=-1, required=True, metavar="GATE_FILES…")
@click.option("--trace", "traces", multiple=True, metavar="PATH", help="The run to accept; repeated: its captures.")
@click.option("--reason", required=True, help="Why the new normal is right; stored with the rows.")
@click.option("--baseline-dir", metavar="DIR", help="Folder of the baselines, as in the gate run.")
@click.pass_context
def refresh(
    context: click.Context, gate_files: tuple[str, ...], traces: tuple[str, ...], reason: str, baseline_dir: str | None
) -> None:
    """Write the rows of a run as the baselines of GATE_FILES (or folders of them).

    Writes the rows that moved beyond their tolerance, and prints the old and the new value of each. Refuses a run with
    an error, without data, or whose structure fails.
    """
    arguments = [*gate_files, "-m", "nsys", "--nsys-update-baselines", f"--nsys-reason={reason}"]
    arguments += [f"--nsys-trace={trace}" for trace in traces]
    arguments += [f"--nsys-baseline-dir={baseline_dir}"] if baseline_dir else []
    arguments += ["-n", "0"] if find_spec("xdist") else []  # the project's own settings may ask for workers
    # A process of its own: pytest warns about plugins that were imported before it started, as this module was.
    words = [sys.executable, "-m", "pytest", "-p", "pytest_nsys.cli.exit_status", *arguments]
    done = subprocess.run(words, check=False)
    context.exit(PYTEST_TO_COMMAND.get(done.returncode, 2))


@baseline.command()
@click.argument("folder", default=BASELINES)
@format_option
def show(folder: str, format: str) -> None:
    """The stored rows of every baseline below FOLDER (default: baselines/)."""
    root = Path(folder)
    if not root.exists():
        raise UsageMistake(f"{root}: there is no such folder: give the folder of the baselines")
    paths = [root] if root.is_file() else sorted(root.rglob("*.json"))
    if not paths:
        raise UsageMistake(f"{root}: holds no baseline (*.json)")
    loaded = [(path, load(path)) for path in paths]
    rows = [row for path, stored in loaded for row in _rows(path, stored)]
    print_rows(Format(format), COLUMNS, rows)
    for path, stored in loaded:
        key = ", ".join(f"{name} {_words(value)}" for name, value in stored.key.items() if value is not None)
        click.echo(f"{path}: {key}; {stored.provenance.get('reason', 'no reason stored')}", err=True)


def _words(value: object) -> str:
    return " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def _rows(path: Path, stored: Baseline) -> list[tuple[str | int | Measure, ...]]:
    rows: list[tuple[str | int | Measure, ...]] = []
    for sid, series in sorted(stored.series.items()):
        how = f"{sid.window}, {sid.span}, {sid.kernels}"
        kind = Kind.RATIO if series.unit == "%" else Kind.NUMBER
        for labels, values in series.rows.items():
            where = " ".join(f"{d} {label}" for d, label in zip(series.dimensions, labels, strict=True))
            value = Measure(values[-1], kind)
            rows.append((str(path), stored.gate, sid.metric, where, value, series.unit, len(values), how))
    return rows
