"""How does a command ask pytest? In a session of its own, which takes the settings that a gate run takes.

Files of the project decide what these are: those of pytest, and conftest files with their hooks. Nobody but pytest
reads them all: which gate files it finds, and where their baselines lie.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_nsys.cli.group import Exit
from pytest_nsys.cli.saying import say
from pytest_nsys.core.errors import IncomparableError, UsageMistake, hint
from pytest_nsys.core.file_names import Address, named_as_gate
from pytest_nsys.core.words import has_words, printable
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.model import GateFile
from pytest_nsys.stored.baselines.store import BaselineStore, store_of
from pytest_nsys.verdicts.refresh_modes import Acceptance

if TYPE_CHECKING:
    import pytest


def shown(path: Path) -> Path:
    """The path as a person would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class Asking:
    """A plugin of the session. After it, ``interrupted`` tells Ctrl-C from a mistake, which are one to pytest."""

    interrupted = False
    addresses: Sequence[Address] = ()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Of a gate file of which one configuration is named, leave the others out."""
        import pytest

        wanted: dict[Path, set[str]] = {}
        for one in self.addresses:
            wanted.setdefault(Path(one.file).resolve(), set()).add(one.configuration)
        others = []
        for item in items:
            names, gate = wanted.get(item.path.resolve(), {""}), getattr(item, "gate", None)
            if gate is None or "" in names:
                continue
            if lost := sorted(names - {*gate.names}):
                which = hint(lost[0], gate.names, "it has")
                raise pytest.UsageError(f"{item.path.name} has no configuration '{printable(lost[0], 60)}'{which}")
            others += [] if gate.configuration in names else [item]
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if item not in others]

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """pytest calls it for kinds of its own, too."""
        self.interrupted = excinfo.type is KeyboardInterrupt


def ask_pytest(asking: Asking, gate_files: Sequence[str], baseline_dir: str | None, *words: str) -> int:
    """Run pytest on gate files alone, in one process, whatever the project's settings ask for; its exit code.

    One configuration of a gate file is named behind it, as in ``step.nsys.yaml[llama-8b]``.

    Raises KeyboardInterrupt.
    """
    import pytest

    if (here := os.getcwd()) not in sys.path:  # as `python -m pytest` has it
        sys.path.insert(0, here)
    given = [f"--nsys-baseline-dir={baseline_dir}"] if baseline_dir else []
    alone = ["-n", "0"] if find_spec("xdist") else []
    asking.addresses = [*map(Address.of, gate_files)]
    files = dict.fromkeys(address.file for address in asking.addresses)
    code = pytest.main([*files, "-m", "nsys", *given, *alone, *words], plugins=[asking])
    if asking.interrupted:
        raise KeyboardInterrupt
    return int(code)


class Updating(Asking):
    """Says what is written, and tells the bad verdicts apart, which all are 1 to pytest."""

    def __init__(self, acceptance: Acceptance) -> None:
        self.acceptance = acceptance
        self.outcomes: set[str] = set()
        self.lacks_traces = False

    def pytest_configure(self, config: pytest.Config) -> None:
        """Say what is written: nobody who types pytest can."""
        from pytest_nsys.plugin.settings import ACCEPTANCE

        config.stash[ACCEPTANCE] = self.acceptance

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See that something had no trace; it counts where nothing was written for it."""
        self.lacks_traces = self.lacks_traces or hasattr(report, "nsys_not_run")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """See what became of each assertion and each baseline. Last of all, as this plugin is the first there is."""
        from pytest_nsys.plugin.refreshing import refreshing_of
        from pytest_nsys.plugin.session import session_of

        for item in session.items:
            record = getattr(item, "record", None)
            if record is not None:
                self.outcomes.add("no data" if getattr(item, "nothing_measured", False) else record.outcome)
        refreshing = refreshing_of(session_of(session.config))
        self.lacks_traces = self.lacks_traces and not refreshing.written
        for error in refreshing.not_written:
            self.outcomes.add("incomparable" if isinstance(error, IncomparableError) else "error")


def update(
    gate_files: Sequence[str], baseline_dir: str | None, reason: str, acceptance: Acceptance, run: Sequence[str]
) -> int:
    """Write baselines of the gate files from a ``run`` that is told in options of pytest; the exit code of the command.

    An error weighs more than a verdict without data, which weighs more than a failure.
    """
    if not has_words(reason):
        raise UsageMistake('--reason says nothing: say why, as --reason "a slower link is accepted"')
    asking = Updating(acceptance)
    code = ask_pytest(asking, gate_files, baseline_dir, "--nsys-update-baselines", f"--nsys-reason={reason}", *run)
    if code not in (Exit.GOOD, Exit.WORSE) or (code and "error" in asking.outcomes):
        return Exit.MISTAKE
    without = asking.lacks_traces or (code and asking.outcomes & {"no data", "incomparable"})
    return Exit.NO_DATA if without else code


NOTHING_SELECTED = 5
"""As pytest ends where the project's settings leave out every item."""


MISUSED = 4
"""As pytest ends where it was asked for what there is not."""


class Collected(NamedTuple):
    """A gate file that pytest collects, good or not, the folder of its baselines, and pytest's root directory."""

    path: Path
    folder: Path
    root: Path

    def store(self, gate: GateFile) -> BaselineStore:
        """Where its baselines lie, or those of a configuration of it."""
        return store_of(self.path, self.folder, self.root, gate.configuration)


class Collecting(Asking):
    """Remembers each gate file, be it good or not; a name that was meant to be one's is a mistake of it. With the
    ``path`` of one that need not be there yet it collects nothing, and tells of that.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.paths = {path} if path is not None else set[Path]()
        self.found: list[Collected] = []

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Nothing else is looked at: a test module may need a GPU to be imported."""
        gates = named_as_gate(collection_path.name) or collection_path.is_dir()
        return None if gates and self.path is None else True

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        if named_as_gate(collector.path.name):
            self.paths.add(collector.path)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Where the baselines of each lie."""
        from pytest_nsys.plugin.session import session_of

        own, root = session_of(session.config), session.config.rootpath
        self.found = [Collected(path, own.baseline_folder(path), root) for path in sorted(self.paths)]


def _complaints(asking: Asking, places: Sequence[str], baseline_dir: str | None) -> str:
    """Have pytest collect; what it says where not all is well, else nothing."""
    said, complaints = io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(complaints):
        code = ask_pytest(asking, places, baseline_dir, "--collect-only", "-q", "--no-header")
    if code in (0, NOTHING_SELECTED):
        return ""
    return complaints.getvalue() + ("" if code == MISUSED else said.getvalue())  # of a list none is wrong


def collected(gate_files: Sequence[str], baseline_dir: str | None) -> tuple[list[Collected], str]:
    """The gate files that pytest finds in files and folders, sorted, and what it says where not all is well."""
    asking = Collecting()
    said = _complaints(asking, gate_files, baseline_dir)
    return asking.found, said


def place_of(path: Path, baseline_dir: str | None) -> Collected:
    """Where the baselines of a gate file lie that need not be there yet. Raises UsageMistake where pytest does not
    start in its folder.
    """
    asking = Collecting(path)
    said = _complaints(asking, [str(path.parent)], baseline_dir)
    if not asking.found:
        say(said, err=True, nl=False)
        raise UsageMistake(f"pytest does not start in {path.parent}, so nobody knows where baselines lie")
    return asking.found[0]


def stores(gate_files: Sequence[str], baseline_dir: str | None) -> list[tuple[GateFile, Collected]]:
    """Each gate file, or each configuration of it, with the place of its baselines.

    Raises UsageMistake where there are none; what is wrong with a gate file is printed as pytest says it.
    """
    if absent := next((each for each in gate_files if not Path(Address.of(each).file).exists()), None):
        raise UsageMistake(f"{printable(absent)}: there is no such file or folder")
    found, said = collected(gate_files, baseline_dir)
    if said or not found:
        say(said, err=True, nl=False)
        raise UsageMistake(f"no gate file to be read in {', '.join(gate_files)}")
    return [(gate, each) for each in found for gate in load_gate_file(each.path).each]
