"""How does a command run its own pytest session, so that it uses the same settings as a gate run?

pytest's ini files and the hooks of conftest files decide which gate files are found, and where their baselines lie.
Only pytest reads them all.
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

from pytest_nsys.cli.command_group import ExitCode
from pytest_nsys.cli.terminal_text import echo
from pytest_nsys.core.errors import IncomparableError, UsageMistake, suggest_or_list
from pytest_nsys.core.file_names import GateAddress, has_gate_name
from pytest_nsys.core.text_format import has_words, sanitize_line
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.model import GateFile
from pytest_nsys.stored.baselines.store import BaselineStore, find_store
from pytest_nsys.verdicts.refresh_modes import RefreshOptions

if TYPE_CHECKING:
    import pytest


def shorten_path(path: Path) -> Path:
    """Return the path as a person would type it in the current folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class SessionPlugin:
    """A pytest plugin that selects configurations of gate files, and notices an interrupt.

    pytest has the same exit code for Ctrl-C and for errors: ``is_interrupted`` distinguishes them.
    """

    is_interrupted = False
    addresses: Sequence[GateAddress] = ()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """If some configurations of a gate file are named, deselect its others."""
        import pytest

        names_by_file: dict[Path, set[str]] = {}
        for address in self.addresses:
            names_by_file.setdefault(Path(address.file).resolve(), set()).add(address.configuration)
        deselected = []
        for item in items:
            names, gate = names_by_file.get(item.path.resolve(), {""}), getattr(item, "gate", None)
            if gate is None or "" in names:
                continue
            if unknown_names := sorted(names - {*gate.configuration_names}):
                suggestion = suggest_or_list(unknown_names[0], gate.configuration_names, "it has")
                raise pytest.UsageError(
                    f"{item.path.name} has no configuration '{sanitize_line(unknown_names[0], 60)}'{suggestion}"
                )
            deselected += [] if gate.configuration in names else [item]
        if deselected:
            config.hook.pytest_deselected(items=deselected)
            items[:] = [item for item in items if item not in deselected]

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember Ctrl-C; pytest also calls this for its own interrupts."""
        self.is_interrupted = excinfo.type is KeyboardInterrupt


def run_pytest(plugin: SessionPlugin, gate_files: Sequence[str], baseline_dir: str | None, *arguments: str) -> int:
    """Run pytest only on gate files, in one process, overriding the project's settings; return its exit code.

    ``gate_files`` may name one configuration, as in ``step.nsys.yaml[llama-8b]``.

    Raises KeyboardInterrupt.
    """
    import pytest

    if (working_folder := os.getcwd()) not in sys.path:  # like `python -m pytest`
        sys.path.insert(0, working_folder)
    baseline_options = [f"--nsys-baseline-dir={baseline_dir}"] if baseline_dir else []
    worker_options = ["-n", "0"] if find_spec("xdist") else []
    plugin.addresses = [*map(GateAddress.parse_file_and_configuration, gate_files)]
    files = dict.fromkeys(address.file for address in plugin.addresses)
    code = pytest.main([*files, "-m", "nsys", *baseline_options, *worker_options, *arguments], plugins=[plugin])
    if plugin.is_interrupted:
        raise KeyboardInterrupt
    return int(code)


class BaselineUpdatePlugin(SessionPlugin):
    """A pytest plugin that sets which rows are written as baselines, and collects the outcomes, which pytest's exit
    code does not distinguish.
    """

    def __init__(self, acceptance: RefreshOptions) -> None:
        self.acceptance = acceptance
        self.outcomes: set[str] = set()
        self.lacks_traces = False

    def pytest_configure(self, config: pytest.Config) -> None:
        """Store which rows to write: there is no pytest option for it."""
        from pytest_nsys.plugin.settings import ACCEPTANCE

        config.stash[ACCEPTANCE] = self.acceptance

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember that an assertion had no trace; it matters if nothing was written for it."""
        self.lacks_traces = self.lacks_traces or hasattr(report, "nsys_not_run")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Collect the outcome of each assertion and each baseline. It runs last, because this plugin is registered
        first.
        """
        from pytest_nsys.plugin.baseline_refresh import get_session_refresh
        from pytest_nsys.plugin.session import get_nsys_session

        for item in session.items:
            record = getattr(item, "record", None)
            if record is not None:
                self.outcomes.add("no data" if getattr(item, "nothing_measured", False) else record.outcome)
        refreshing = get_session_refresh(get_nsys_session(session.config))
        self.lacks_traces = self.lacks_traces and not refreshing.written
        for error in refreshing.write_errors.values():
            self.outcomes.add("incomparable" if isinstance(error, IncomparableError) else "error")


def update_baselines(
    gate_files: Sequence[str],
    baseline_dir: str | None,
    reason: str,
    acceptance: RefreshOptions,
    run_options: Sequence[str],
) -> int:
    """Write the baselines of the gate files from the run named by the pytest options ``run_options``; return the
    command's exit code.

    An error takes precedence over missing data, which takes precedence over a failure.
    """
    if not has_words(reason):
        raise UsageMistake('--reason says nothing: say why, as --reason "a slower link is accepted"')
    plugin = BaselineUpdatePlugin(acceptance)
    code = run_pytest(
        plugin, gate_files, baseline_dir, "--nsys-update-baselines", f"--nsys-reason={reason}", *run_options
    )
    if code not in (ExitCode.GOOD, ExitCode.WORSE) or (code and "error" in plugin.outcomes):
        return ExitCode.MISTAKE
    is_without_data = plugin.lacks_traces or (code and plugin.outcomes & {"no data", "incomparable"})
    return ExitCode.NO_DATA if is_without_data else code


PYTEST_NOTHING_SELECTED = 5
"""pytest's exit code if every item is deselected."""


PYTEST_USAGE_ERROR = 4
"""pytest's exit code for arguments that do not exist."""


class CollectedGate(NamedTuple):
    """Describes a gate file that pytest collects (valid or not), with the folder of its baselines and pytest's root
    directory.
    """

    path: Path
    baseline_folder: Path
    root_folder: Path

    def find_gate_store(self, gate: GateFile) -> BaselineStore:
        """Return the baseline store of the gate file, or of one of its configurations."""
        return find_store(self.path, self.baseline_folder, self.root_folder, gate.configuration)


class GateCollectionPlugin(SessionPlugin):
    """A pytest plugin that remembers each gate file that pytest collects (valid or not), and each misspelt gate-file
    name.

    With ``awaited_path``, the path of a gate file that may not exist yet, it collects nothing and describes only that
    file.
    """

    def __init__(self, awaited_path: Path | None = None) -> None:
        self.awaited_path = awaited_path
        self.gate_paths = {awaited_path} if awaited_path is not None else set[Path]()
        self.collected_gates: list[CollectedGate] = []

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Ignore everything but gate files: importing a test module may need a GPU."""
        may_hold_gates = has_gate_name(collection_path.name) or collection_path.is_dir()
        return None if may_hold_gates and self.awaited_path is None else True

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        if has_gate_name(collector.path.name):
            self.gate_paths.add(collector.path)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Find where the baselines of each gate file lie."""
        from pytest_nsys.plugin.session import get_nsys_session

        nsys_session, root = get_nsys_session(session.config), session.config.rootpath
        self.collected_gates = [
            CollectedGate(path, nsys_session.find_baseline_folder(path), root) for path in sorted(self.gate_paths)
        ]


def _read_collection_problems(plugin: SessionPlugin, paths: Sequence[str], baseline_dir: str | None) -> str:
    """Let pytest collect; return its output if it found a problem, else an empty text."""
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = run_pytest(plugin, paths, baseline_dir, "--collect-only", "-q", "--no-header")
    if code in (0, PYTEST_NOTHING_SELECTED):
        return ""
    return errors.getvalue() + ("" if code == PYTEST_USAGE_ERROR else output.getvalue())  # of items, not errors


def collect_gates(gate_files: Sequence[str], baseline_dir: str | None) -> tuple[list[CollectedGate], str]:
    """Return the gate files that pytest finds in files and folders, sorted, and its output if it found a problem."""
    plugin = GateCollectionPlugin()
    problems = _read_collection_problems(plugin, gate_files, baseline_dir)
    return plugin.collected_gates, problems


def find_baseline_place(path: Path, baseline_dir: str | None) -> CollectedGate:
    """Return where the baselines of a gate file lie; the gate file need not exist yet.

    Raises UsageMistake if pytest does not start in its folder.
    """
    plugin = GateCollectionPlugin(path)
    problems = _read_collection_problems(plugin, [str(path.parent)], baseline_dir)
    if not plugin.collected_gates:
        echo(problems, err=True, nl=False)
        raise UsageMistake(f"pytest does not start in {path.parent}, so nobody knows where baselines lie")
    return plugin.collected_gates[0]


def list_gates_with_stores(gate_files: Sequence[str], baseline_dir: str | None) -> list[tuple[GateFile, CollectedGate]]:
    """List each gate file, or each of its configurations, with the place of its baselines.

    Raises UsageMistake if there are none; errors in a gate file are printed in pytest's words.
    """
    if missing_path := next(
        (
            gate_file
            for gate_file in gate_files
            if not Path(GateAddress.parse_file_and_configuration(gate_file).file).exists()
        ),
        None,
    ):
        raise UsageMistake(f"{sanitize_line(missing_path)}: there is no such file or folder")
    collected_gates, problems = collect_gates(gate_files, baseline_dir)
    if problems or not collected_gates:
        echo(problems, err=True, nl=False)
        raise UsageMistake(f"no gate file to be read in {', '.join(gate_files)}")
    return [
        (gate, collected_gate)
        for collected_gate in collected_gates
        for gate in load_gate_file(collected_gate.path).judged_gates
    ]
