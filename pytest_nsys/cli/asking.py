"""How does a command run a pytest session of its own, so that it uses the settings that a gate run uses?

Files of the project decide what these are: pytest's own, and conftest files with their hooks. Only pytest reads them
all: which gate files it finds, and where their baselines lie.
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
    """Return the path as a person would type it in the current folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class Asking:
    """Selects the configurations of gate files that a session runs, and sees whether it was interrupted.

    Ctrl-C and a mistake have one exit code in pytest: ``is_interrupted`` distinguishes them.
    """

    interrupted = False
    addresses: Sequence[Address] = ()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the other configurations of a gate file of which some are named."""
        import pytest

        names_by_file: dict[Path, set[str]] = {}
        for address in self.addresses:
            names_by_file.setdefault(Path(address.file).resolve(), set()).add(address.configuration)
        deselected = []
        for item in items:
            names, gate = names_by_file.get(item.path.resolve(), {""}), getattr(item, "gate", None)
            if gate is None or "" in names:
                continue
            if unknown_names := sorted(names - {*gate.names}):
                suggestion = hint(unknown_names[0], gate.names, "it has")
                raise pytest.UsageError(
                    f"{item.path.name} has no configuration '{printable(unknown_names[0], 60)}'{suggestion}"
                )
            deselected += [] if gate.configuration in names else [item]
        if deselected:
            config.hook.pytest_deselected(items=deselected)
            items[:] = [item for item in items if item not in deselected]

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember Ctrl-C; pytest calls this for interrupts of its own, too."""
        self.interrupted = excinfo.type is KeyboardInterrupt


def ask_pytest(asking: Asking, gate_files: Sequence[str], baseline_dir: str | None, *words: str) -> int:
    """Run pytest on gate files alone, in one process, whatever the project's settings say; return its exit code.

    One configuration of a gate file is named behind it, as in ``step.nsys.yaml[llama-8b]``.

    Raises KeyboardInterrupt.
    """
    import pytest

    if (working_folder := os.getcwd()) not in sys.path:  # as `python -m pytest` has it
        sys.path.insert(0, working_folder)
    baseline_options = [f"--nsys-baseline-dir={baseline_dir}"] if baseline_dir else []
    worker_options = ["-n", "0"] if find_spec("xdist") else []
    asking.addresses = [*map(Address.of, gate_files)]
    files = dict.fromkeys(address.file for address in asking.addresses)
    code = pytest.main([*files, "-m", "nsys", *baseline_options, *worker_options, *words], plugins=[asking])
    if asking.interrupted:
        raise KeyboardInterrupt
    return int(code)


class Updating(Asking):
    """Tells the session which rows it writes as baselines, and collects the outcomes, which pytest's exit code merges
    into 1.
    """

    def __init__(self, acceptance: Acceptance) -> None:
        self.acceptance = acceptance
        self.outcomes: set[str] = set()
        self.lacks_traces = False

    def pytest_configure(self, config: pytest.Config) -> None:
        """Store what is to be written: no option of pytest says it."""
        from pytest_nsys.plugin.settings import ACCEPTANCE

        config.stash[ACCEPTANCE] = self.acceptance

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember that an assertion had no trace; it counts where nothing was written for it."""
        self.lacks_traces = self.lacks_traces or hasattr(report, "nsys_not_run")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Collect the outcome of each assertion and each baseline; it runs last, as this plugin is registered first."""
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
    """Write baselines of the gate files from the run that options of pytest name; return the exit code of the command.

    An error weighs more than a verdict without data, which weighs more than a failure.
    """
    if not has_words(reason):
        raise UsageMistake('--reason says nothing: say why, as --reason "a slower link is accepted"')
    plugin = Updating(acceptance)
    code = ask_pytest(plugin, gate_files, baseline_dir, "--nsys-update-baselines", f"--nsys-reason={reason}", *run)
    if code not in (Exit.GOOD, Exit.WORSE) or (code and "error" in plugin.outcomes):
        return Exit.MISTAKE
    is_without_data = plugin.lacks_traces or (code and plugin.outcomes & {"no data", "incomparable"})
    return Exit.NO_DATA if is_without_data else code


NOTHING_SELECTED = 5
"""The exit code of a pytest whose settings deselect every item."""


MISUSED = 4
"""The exit code of a pytest that was given what does not exist."""


class Collected(NamedTuple):
    """Describes a gate file that pytest collects, good or not, with the folder of its baselines and pytest's root
    directory.
    """

    path: Path
    folder: Path
    root: Path

    def store(self, gate: GateFile) -> BaselineStore:
        """Return the store of its baselines, or of those of one of its configurations."""
        return store_of(self.path, self.folder, self.root, gate.configuration)


class Collecting(Asking):
    """Remembers each gate file that pytest collects, good or not, and each name that was meant to be a gate file's.

    With ``awaited_path``, of a gate file that need not exist yet, it collects nothing, and describes that one.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.paths = {path} if path is not None else set[Path]()
        self.found: list[Collected] = []

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Ignore everything but gate files: a test module may need a GPU to be imported."""
        may_hold_gates = named_as_gate(collection_path.name) or collection_path.is_dir()
        return None if may_hold_gates and self.path is None else True

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        if named_as_gate(collector.path.name):
            self.paths.add(collector.path)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Find where the baselines of each gate file lie."""
        from pytest_nsys.plugin.session import session_of

        nsys_session, root = session_of(session.config), session.config.rootpath
        self.found = [Collected(path, nsys_session.baseline_folder(path), root) for path in sorted(self.paths)]


def _complaints(asking: Asking, places: Sequence[str], baseline_dir: str | None) -> str:
    """Have pytest collect; return its output where it found a problem, else an empty text."""
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = ask_pytest(asking, places, baseline_dir, "--collect-only", "-q", "--no-header")
    if code in (0, NOTHING_SELECTED):
        return ""
    return errors.getvalue() + ("" if code == MISUSED else output.getvalue())  # of a list none is wrong


def collected(gate_files: Sequence[str], baseline_dir: str | None) -> tuple[list[Collected], str]:
    """Return the gate files that pytest finds in files and folders, sorted, and its output where it found a problem."""
    plugin = Collecting()
    problems = _complaints(plugin, gate_files, baseline_dir)
    return plugin.found, problems


def place_of(path: Path, baseline_dir: str | None) -> Collected:
    """Return where the baselines of a gate file lie that need not exist yet.

    Raises UsageMistake where pytest does not start in its folder.
    """
    plugin = Collecting(path)
    problems = _complaints(plugin, [str(path.parent)], baseline_dir)
    if not plugin.found:
        say(problems, err=True, nl=False)
        raise UsageMistake(f"pytest does not start in {path.parent}, so nobody knows where baselines lie")
    return plugin.found[0]


def stores(gate_files: Sequence[str], baseline_dir: str | None) -> list[tuple[GateFile, Collected]]:
    """List each gate file, or each configuration of it, with the place of its baselines.

    Raises UsageMistake where there are none; what is wrong with a gate file is printed as pytest says it.
    """
    if missing_path := next(
        (gate_file for gate_file in gate_files if not Path(Address.of(gate_file).file).exists()), None
    ):
        raise UsageMistake(f"{printable(missing_path)}: there is no such file or folder")
    collected_gates, problems = collected(gate_files, baseline_dir)
    if problems or not collected_gates:
        say(problems, err=True, nl=False)
        raise UsageMistake(f"no gate file to be read in {', '.join(gate_files)}")
    return [
        (gate, collected_gate)
        for collected_gate in collected_gates
        for gate in load_gate_file(collected_gate.path).each
    ]
