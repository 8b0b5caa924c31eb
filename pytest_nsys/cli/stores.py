"""Which gate files does pytest find, and where do their baselines lie?"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from pytest_nsys.cli.updating import Asking, ask_pytest
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.gates.assertion import GateFile
from pytest_nsys.gates.finding import SUFFIXES
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.stored.baselines.store import BaselineStore, store_of

if TYPE_CHECKING:
    import pytest

NOTHING_SELECTED = 5
"""As pytest ends where the project's settings leave out every item."""


class Collected(NamedTuple):
    """A gate file that pytest collects, good or not, the folder of its baselines, and pytest's root directory."""

    path: Path
    folder: Path
    root: Path


class StoredGate(NamedTuple):
    """A gate file, the store of its baselines, and pytest's root directory."""

    gate: GateFile
    store: BaselineStore
    root: Path


class Collecting(Asking):
    """Remembers each gate file, be it good or not; a name that ends as the second suffix is a mistake of it."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()
        self.found: list[Collected] = []

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Nothing else is looked at: a test module may need a GPU to be imported."""
        return None if collection_path.name.endswith(SUFFIXES) or collection_path.is_dir() else True

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """Remember a gate file."""
        if collector.path.name.endswith(SUFFIXES):
            self.paths.add(collector.path)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Where the baselines of each lie."""
        from pytest_nsys.plugin.session import session_of

        own, root = session_of(session.config), session.config.rootpath
        self.found = [Collected(path, own.baseline_folder(path), root) for path in sorted(self.paths)]


def collected(gate_files: Sequence[str], baseline_dir: str | None) -> tuple[list[Collected], str]:
    """The gate files that pytest finds in files and folders, sorted, and what it says where not all is well."""
    asking, said, complaints = Collecting(), io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(complaints):
        code = ask_pytest(asking, gate_files, baseline_dir, "--collect-only", "-q", "--no-header")
    well = code in (0, NOTHING_SELECTED)
    return asking.found, "" if well else complaints.getvalue() + said.getvalue()


def stores(gate_files: Sequence[str], baseline_dir: str | None) -> list[StoredGate]:
    """Each gate file with the store of its baselines.

    Raises UsageMistake where there are none; what is wrong with a gate file is printed as pytest says it.
    """
    found, said = collected(gate_files, baseline_dir)
    if said or not found:
        click.echo(said, err=True, nl=False)
        raise UsageMistake(f"no gate file to be read in {', '.join(gate_files)}")
    return [StoredGate(load_gate_file(path), store_of(path, folder, root), root) for path, folder, root in found]
