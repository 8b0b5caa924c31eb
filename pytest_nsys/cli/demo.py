"""``pytest-nsys demo``: green, then red, within a minute and without a GPU."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from pytest_nsys.analysis.capture_cache import CaptureCache
from pytest_nsys.cli.init import store_rows
from pytest_nsys.core.errors import NsysError, UsageMistake
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.plugin.refreshing import kept_windows
from pytest_nsys.plugin.session import BASELINES
from pytest_nsys.samples.dualpipe import SAMPLE_REGRESSION, SAMPLE_SHAPE, write_dualpipe
from pytest_nsys.samples.fsdp import FsdpShape, write_fsdp
from pytest_nsys.stored.baselines.store import store_of

INI = "[pytest]\nnsys_baseline_dir = baselines\n"
PAGE = "red.html"


@dataclass(frozen=True)
class Demo:
    """A step that is simulated twice. ``look`` follows ``pytest-nsys overlap TRACE``."""

    step: str
    gate: str
    regressed: str
    look: tuple[str, ...]
    write: Callable[[Path], None]


def _write_fsdp(traces: Path) -> None:
    write_fsdp(traces / "good", FsdpShape())
    write_fsdp(traces / "regressed", FsdpShape(forward_prefetch=False))


def _write_dualpipe(traces: Path) -> None:
    write_dualpipe(traces / "dualpipe.sqlite", SAMPLE_SHAPE)
    write_dualpipe(traces / "regressed.sqlite", SAMPLE_SHAPE, SAMPLE_REGRESSION)


FSDP = Demo("FSDP", "fsdp.nsys.yaml", "regressed", (), _write_fsdp)
DUALPIPE = Demo("DualPipeV", "dualpipe.nsys.yaml", "regressed.sqlite", ("--rank", "3"), _write_dualpipe)


@click.command()
@click.argument("folder", default="nsys-demo")
@click.option("--dualpipe", is_flag=True, help="A DualPipeV step of four ranks, as Nsight Systems records it.")
def demo(folder: str, dualpipe: bool) -> None:
    """Write sample traces, a gate file and its baseline to FOLDER, and print what to type.

    The traces are simulated: an FSDP step of two ranks, as torch.profiler records it, and the same step with a
    regression.
    """
    root, shown = Path(folder), DUALPIPE if dualpipe else FSDP
    write_demo(root, shown)
    regressed = root / "traces" / shown.regressed
    red = ["pytest", str(root), f"--nsys-trace={regressed}"]
    steps = [
        ("a green gate: values, limits, headroom and windows", ["pytest", str(root)]),
        ("the same step with a regression: red, with the rows and the cause", red),
        ("the same as a page for a browser", [*red, f"--nsys-html={root / PAGE}"]),
        ("overlap and exposed time of each stage", ["pytest-nsys", "overlap", str(regressed), *shown.look]),
    ]
    gate = root / shown.gate
    click.echo(
        f"wrote {gate}, two traces of a simulated {shown.step} step, and the baseline of the good one. Now type:\n"
    )
    for what, words in steps:
        click.echo(f"  {shlex.join(words)}\n      {what}")
    accept = ["pytest-nsys", "baseline", "refresh", str(root), f"--trace={regressed}"]
    click.echo(f'  {shlex.join(accept)} --reason "…"\n      accept the regression as the new normal')


def write_demo(root: Path, shown: Demo = FSDP) -> None:
    """The files of the demo, or none of them. Raises UsageMistake for a folder that holds something already."""
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UsageMistake(f"{root}: exists and is not empty: give a new folder")
    was_there = root.exists()
    try:
        _write(root, shown)
    except (OSError, sqlite3.Error, NsysError) as error:
        shutil.rmtree(root, ignore_errors=True)
        if was_there:
            root.mkdir(exist_ok=True)
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageMistake(f"{root}: the demo cannot be written: {why}; nothing was left") from error


def _write(root: Path, shown: Demo) -> None:
    (root / "traces").mkdir(parents=True)
    (root / "pytest.ini").write_text(INI, encoding="utf-8")
    shutil.copyfile(Path(__file__).parents[1] / "samples" / shown.gate, root / shown.gate)
    shown.write(root / "traces")
    gate = load_gate_file((root / shown.gate).resolve())
    with contextlib.closing(CaptureCache()) as library:
        captures = library.captures(gate.traces, gate.path.parent, gate.resolved_convention, gate.workload)
        store = store_of(gate.path, gate.path.parent / BASELINES, gate.path.parent)
        store_rows(gate, captures, store, "the good run of the demo", kept_windows)
