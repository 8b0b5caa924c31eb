"""``pytest-nsys demo``: green, then red, within a minute and without a GPU."""

from __future__ import annotations

import contextlib
import gzip
import shlex
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import click

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.cli.init import store_rows
from pytest_nsys.cli.terminal_text import echo
from pytest_nsys.core.errors import NsysError, UsageMistake
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.plugin.session import BASELINE_FOLDER_NAME
from pytest_nsys.stored.baselines.store import find_store
from pytest_nsys.verdicts.gate_windows import pack_gate_windows

INI = "[pytest]\nnsys_baseline_dir = baselines\n"
PAGE_NAME = "red.html"
SAMPLES = Path(__file__).parents[1] / "samples"
"""The folder of compressed traces: torch.profiler's as they are, nsys exports as SQL scripts."""


@dataclass(frozen=True)
class DemoSample:
    """Describes a simulated training step with a good and a regressed run."""

    step_name: str
    gate_name: str  # file name
    traces_folder: str  # folder of the samples
    regressed_trace: str  # file or folder among the traces
    view_options: tuple[str, ...]  # options of its view ``overlap``


FSDP = DemoSample("FSDP", "fsdp.nsys.yaml", "fsdp", "regressed", ())
DUALPIPE = DemoSample("DualPipeV", "dualpipe.nsys.yaml", "dualpipe", "regressed.sqlite", ("--rank", "3"))


@click.command()
@click.argument("folder", default="nsys-demo")
@click.option("--dualpipe", is_flag=True, help="A DualPipeV step of four ranks, as Nsight Systems records it.")
def demo(folder: str, dualpipe: bool) -> None:
    """Write sample traces and a gate, and print what to type.

    They go to FOLDER, with the baseline of the gate. The traces are simulated: an FSDP step of two ranks, as
    torch.profiler records it, and the same step with a regression.
    """
    root, sample = Path(folder), DUALPIPE if dualpipe else FSDP
    write_demo(root, sample)
    regressed = root / "traces" / sample.regressed_trace
    red_command = ["pytest", str(root), f"--nsys-trace={regressed}"]
    accept_command = ["pytest-nsys", "baseline", "refresh", str(root), f"--trace={regressed}"]
    steps = [
        ("a green gate: values, limits, headroom and windows", ["pytest", str(root)]),
        ("the same step with a regression: red, with the rows and the cause", red_command),
        ("the same as a page for a browser", [*red_command, f"--nsys-html={root / PAGE_NAME}"]),
        (
            "overlap and exposed time of each stage",
            ["pytest-nsys", str(regressed), "--view", "overlap", *sample.view_options],
        ),
        ("accept it: new baselines, and the constants to paste", [*accept_command, "--reason", "only a demo"]),
    ]
    gate = root / sample.gate_name
    echo(
        f"wrote {gate}, two traces of a simulated {sample.step_name} step, and the baseline of the good one. Now "
        "type:\n"
    )
    for purpose, command in steps:
        echo(f"  {shlex.join(command)}\n      {purpose}")


def write_demo(root: Path, sample: DemoSample = FSDP) -> None:
    """Write all files of the demo, or none. Raises UsageMistake for a folder that is not empty."""
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UsageMistake(f"{root}: exists and is not empty: give a new folder")
    existed = root.exists()
    try:
        _write_demo_files(root, sample)
    except (OSError, sqlite3.Error, NsysError) as error:
        shutil.rmtree(root, ignore_errors=True)
        if existed:
            root.mkdir(exist_ok=True)
        problem = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageMistake(f"{root}: the demo cannot be written: {problem}; nothing was left") from error


def _write_demo_files(root: Path, sample: DemoSample) -> None:
    root.mkdir(parents=True, exist_ok=True)
    (root / "pytest.ini").write_text(INI, encoding="utf-8")
    shutil.copyfile(SAMPLES / sample.gate_name, root / sample.gate_name)
    for compressed in (SAMPLES / sample.traces_folder).rglob("*.gz"):
        _unpack_sample(compressed, root / "traces" / compressed.relative_to(SAMPLES / sample.traces_folder))
    gate = load_gate_file((root / sample.gate_name).resolve())
    with contextlib.closing(CaptureCache()) as library:
        captures = library.open_captures(gate.traces, gate.path.parent, gate.resolved_convention, gate.workload)
        store = find_store(gate.path, gate.path.parent / BASELINE_FOLDER_NAME, gate.path.parent)
        store_rows(gate, captures, store, "the good run of the demo", pack_gate_windows)


def _unpack_sample(compressed: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".sql.gz"):
        with contextlib.closing(sqlite3.connect(path.with_name(path.name.removesuffix(".sql.gz")))) as database:
            database.executescript(gzip.decompress(compressed.read_bytes()).decode("utf-8"))
    else:
        shutil.copyfile(compressed, path)
