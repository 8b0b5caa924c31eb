"""``pytest-nsys baseline``: accept a run as the new normal, measure its noise, see and prune what is stored."""

from __future__ import annotations

from pathlib import Path

import click

from pytest_nsys.cli.baseline_diff import diff
from pytest_nsys.cli.baseline_prune import prune
from pytest_nsys.cli.group import ListingGroup
from pytest_nsys.cli.options import executor_option, format_option
from pytest_nsys.cli.output import print_rows
from pytest_nsys.cli.updating import folder_option, update
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.core.model import label_words
from pytest_nsys.gates.finding import gate_files_below
from pytest_nsys.gates.noise import FEWEST_TRACES
from pytest_nsys.plugin.session import BASELINES
from pytest_nsys.reports.session.gate_text import SCHEMA_NAME
from pytest_nsys.reports.tables import CellKind, Column, Format, Measure
from pytest_nsys.stored.baselines.baseline_file import Baseline, load
from pytest_nsys.verdicts.refresh_modes import KEPT_RUNS

COLUMNS = (
    Column("file"),
    Column("gate"),
    Column("metric"),
    Column("labels"),
    Column("value"),
    Column("unit"),
    Column("runs", CellKind.NUMBER),
    Column("measured"),
)


@click.group(cls=ListingGroup)
def baseline() -> None:
    """Stored baselines: refresh, calibrate, prune and show them."""


baseline.add_command(diff)
baseline.add_command(prune)


@baseline.command()
@click.argument("gate_files", nargs=-1, required=True, metavar="GATE_FILES…")
@click.option("--trace", "traces", multiple=True, metavar="PATH", help="The run to accept; repeated: its captures.")
@click.option("--reason", required=True, help="Why the new normal is right; stored with the rows.")
@click.option("--only", metavar="NAME", multiple=True, help="This assertion or metric alone (glob; repeatable).")
@click.option("--all", "all_rows", is_flag=True, help="Write every row, also those within their tolerance.")
@click.option("--new-only", is_flag=True, help="Add what is not stored; change and drop nothing.")
@click.option("--accept-run", is_flag=True, help=f"Add the run to the accepted ones, of which {KEPT_RUNS} are kept.")
@click.option("--ratchet", is_flag=True, help="Write only what improved beyond its tolerance.")
@folder_option
@executor_option
@click.pass_context
def refresh(
    context: click.Context,
    /,
    gate_files: tuple[str, ...],
    traces: tuple[str, ...],
    reason: str,
    only: tuple[str, ...],
    baseline_dir: str | None,
    executor: str | None,
    **modes: bool,
) -> None:
    """Write the rows of a run as the baselines of GATE_FILES (or folders of them).

    Writes the rows that moved beyond their tolerance, and prints the old and the new value of each. Refuses a run with
    an error, without data, or whose structure fails.
    """
    asked = [name.removesuffix("_rows").replace("_", "-") for name, given in modes.items() if given]
    if len(asked) > 1:
        raise UsageMistake(f"{' and '.join('--' + name for name in asked)} exclude each other: give one")
    mode = asked[0] if asked else "moved"
    context.exit(update(gate_files, traces, reason, mode=mode, only=only, baseline_dir=baseline_dir, executor=executor))


@baseline.command()
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


@baseline.command()
@click.argument("folder", default=BASELINES)
@format_option
def show(folder: str, format: Format) -> None:
    """The stored rows of every baseline below FOLDER (default: baselines/)."""
    root = Path(folder)
    if not root.exists():
        raise UsageMistake(f"{root}: there is no such folder: give the folder of the baselines")
    paths = [root] if root.is_file() else sorted(p for p in root.rglob("*.json") if p.name != SCHEMA_NAME)
    if not paths or paths[0].suffix != ".json":
        raise UsageMistake(f"{root}: holds no baseline (*.json): give the folder of the baselines")
    loaded = [(path, load(path)) for path in paths]
    rows = [row for path, stored in loaded for row in _rows(path, stored)]
    print_rows(format, COLUMNS, rows)
    for path, stored in loaded:
        key = ", ".join(f"{name} {_words(value)}" for name, value in stored.key.items() if value is not None)
        click.echo(f"{path}: {key}; {stored.provenance.get('reason', 'no reason stored')}", err=True)


def _words(value: object) -> str:
    return " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def _rows(path: Path, stored: Baseline) -> list[tuple[str | int | Measure, ...]]:
    rows: list[tuple[str | int | Measure, ...]] = []
    for sid, series in sorted(stored.series.items()):
        kind = CellKind.RATIO if series.unit == "%" else CellKind.NUMBER
        for labels, values in series.rows.items():
            where = label_words(zip(series.dimensions, labels, strict=True))
            value = Measure(values[-1], kind)
            head = (str(path), stored.gate, sid.metric, where)
            rows.append((*head, value, series.unit, len(values), ", ".join(sid.how)))
    return rows
