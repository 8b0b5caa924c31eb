"""Where do the baselines of gate files lie? Asked of pytest, whose settings a gate run goes by.

This module is both sides of the question: the plugin that answers it inside a run that only collects, and
:func:`stores`, which starts that run.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.cli.updating import gate_run
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.gates.assertion import GateFile
from pytest_nsys.gates.finding import SUFFIXES
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.stored.baselines.store import BaselineStore, store_of

if TYPE_CHECKING:
    import pytest

OPTION = "--nsys-stores"
NOTHING_SELECTED = 5
"""As pytest exits where the project's settings leave out every item."""

"""A name that ends as the second is a mistake, which pytest tells."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The file that gets the answer."""
    parser.addoption(OPTION, help="file that gets the folder of each gate file's baselines")


_collected: set[Path] = set()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Nothing else is looked at: a test module may need a GPU to be imported."""
    return None if collection_path.name.endswith(SUFFIXES) or collection_path.is_dir() else True


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Remember each gate file, be it good or not."""
    if collector.path.name.endswith(SUFFIXES):
        _collected.add(collector.path)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Say of each gate file its path, its baseline folder and what its path is relative to."""
    from pytest_nsys.plugin.session import session_of

    own = session_of(session.config)
    root = str(session.config.rootpath)
    found = [[str(path), str(own.baseline_folder(path)), root] for path in sorted(_collected)]
    Path(session.config.getoption(OPTION)).write_text(json.dumps(found), encoding="utf-8")


class Collected(NamedTuple):
    """A gate file that pytest collects, good or not, the folder of its baselines, and pytest's root directory."""

    path: Path
    folder: Path
    root: Path


class Found(NamedTuple):
    """A gate file, the store of its baselines, and pytest's root directory."""

    gate: GateFile
    store: BaselineStore
    root: Path


def collected(gate_files: Sequence[str], baseline_dir: str | None) -> tuple[list[Collected], str]:
    """The gate files that pytest finds in files and folders, sorted, and what it says where not all is well."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "stores.json")
        words = gate_run(__name__, gate_files, baseline_dir)
        words += ["--collect-only", "-q", "--no-header", f"{OPTION}={answer}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        found = json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else []
    said = done.stderr + done.stdout if done.returncode not in (0, NOTHING_SELECTED) else ""
    return [Collected(*map(Path, each)) for each in found], said


def stores(gate_files: Sequence[str], baseline_dir: str | None) -> list[Found]:
    """Each gate file with the store of its baselines.

    Raises UsageMistake where there are none; what is wrong with a gate file is printed as pytest says it.
    """
    found, said = collected(gate_files, baseline_dir)
    if said or not found:
        click.echo(said, err=True, nl=False)
        raise UsageMistake(f"no gate file to be read in {', '.join(gate_files)}")
    return [Found(load_gate_file(path, METRICS), store_of(path, folder, root), root) for path, folder, root in found]
