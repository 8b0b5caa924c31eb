"""``pytest-nsys demo``: green, then red, within a minute and without a GPU."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sqlite3
from pathlib import Path

import click

from pytest_nsys.analysis.capture_cache import CaptureCache
from pytest_nsys.cli.init import store_rows
from pytest_nsys.core.errors import NsysError, UsageMistake
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.plugin.session import BASELINES
from pytest_nsys.samples.dualpipe import SAMPLE_REGRESSION, SAMPLE_SHAPE, write_dualpipe
from pytest_nsys.stored.baselines.store import store_of

GATE = "dualpipe.nsys.yaml"
GOOD, REGRESSED = "dualpipe.sqlite", "regressed.sqlite"
INI = "[pytest]\nnsys_baseline_dir = baselines\n"


@click.command()
@click.argument("folder", default="nsys-demo")
def demo(folder: str) -> None:
    """Write sample traces, a gate file and its baselines to FOLDER, and say what to type.

    The traces are of a simulated DualPipeV step: a good one, and the same step with a regression on rank 3.
    """
    root = Path(folder)
    write_demo(root)
    gate, traces = root / GATE, root / "traces"
    regressed = traces / REGRESSED
    steps = [
        ("a green gate: values, limits, headroom and windows", ["pytest", str(root)]),
        ("the same step with a regression: red, with the rows", ["pytest", str(root), f"--nsys-trace={regressed}"]),
        ("look into it", ["pytest-nsys", "overlap", str(regressed), "--rank", "3"]),
    ]
    click.echo(f"wrote {gate}, two traces of a simulated DualPipeV step, and the baseline of the good one. Now type:\n")
    for what, words in steps:
        click.echo(f"  {shlex.join(words)}\n      {what}")
    accept = ["pytest-nsys", "baseline", "refresh", str(root), f"--trace={regressed}"]
    click.echo(f'  {shlex.join(accept)} --reason "…"\n      accept the regression as the new normal')


def write_demo(root: Path) -> None:
    """The files of the demo, or none of them. Raises UsageMistake for a folder that holds something already."""
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UsageMistake(f"{root}: exists and is not empty: give a new folder")
    was_there = root.exists()
    try:
        _write(root)
    except (OSError, sqlite3.Error, NsysError) as error:
        shutil.rmtree(root, ignore_errors=True)
        if was_there:
            root.mkdir(exist_ok=True)
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageMistake(f"{root}: the demo cannot be written: {why}; nothing was left") from error


def _write(root: Path) -> None:
    (root / "traces").mkdir(parents=True)
    (root / "pytest.ini").write_text(INI, encoding="utf-8")
    shutil.copyfile(Path(__file__).parents[1] / "samples" / GATE, root / GATE)
    write_dualpipe(root / "traces" / GOOD, SAMPLE_SHAPE)
    write_dualpipe(root / "traces" / REGRESSED, SAMPLE_SHAPE, SAMPLE_REGRESSION)
    gate = load_gate_file((root / GATE).resolve())
    with contextlib.closing(CaptureCache()) as library:
        captures = library.captures(gate.traces, gate.path.parent, gate.resolved_convention, gate.workload)
        store = store_of(gate.path, gate.path.parent / BASELINES, gate.path.parent)
        store_rows(gate, captures, store, "the good run of the demo")
