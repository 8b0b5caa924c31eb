"""Where a gate file's trace, baselines and commands come from in one pytest session, and what is shared by its items.

Command line over gate file over ini file. Each value of ``--nsys-trace`` is one run; several are captures.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.analysis.capture_cache import CaptureCache, check_two_runs
from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.parallel import ReadAhead
from pytest_nsys.analysis.reading_plan import Request
from pytest_nsys.core.conventions import BUILT_IN, DEFAULT, Convention
from pytest_nsys.core.errors import BaselineError, NsysError, UsageMistake
from pytest_nsys.core.hints import did_you_mean
from pytest_nsys.core.model import folders_up, from_here, printable
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.assertion import Assertion, GateFile
from pytest_nsys.gates.gate_changes import GateChange, GateChanges, gate_changes
from pytest_nsys.gates.requests import requests_of
from pytest_nsys.plugin.next_command import look_command, usual_of
from pytest_nsys.stored.baselines.changes import file_changes, row_lines
from pytest_nsys.stored.baselines.merge_base import AtMergeBase, Snapshots
from pytest_nsys.stored.baselines.store import BaselineStore, store_of
from pytest_nsys.stored.history.past_verdicts import PastVerdicts
from pytest_nsys.tools.executors import check_executor
from pytest_nsys.tools.git_files import merge_advice
from pytest_nsys.tools.progress import on_terminal
from pytest_nsys.traces.opening import REPORTS, find_traces
from pytest_nsys.verdicts.evaluate import GateContext
from pytest_nsys.verdicts.references import OtherRun, PastRuns, StoredBaseline
from pytest_nsys.verdicts.refresh import Refresh, Written
from pytest_nsys.verdicts.refresh_modes import Mode, named

BASELINES = "baselines"
NO_TRACE = "no trace: give --nsys-trace=PATH, or `trace:` in the gate file, or nsys_trace in the ini file"


@dataclass(frozen=True)
class Source:
    """The captures of a gate file as they were written, and the folder that they are relative to."""

    values: tuple[str, ...]
    base: Path


@dataclass
class NsysSession:
    """State of one pytest session; on each xdist worker one of its own."""

    config: pytest.Config
    library: CaptureCache = field(init=False)
    refreshes: dict[Path, Refresh] = field(default_factory=dict)
    refused: dict[Path, str] = field(default_factory=dict)
    _usual: dict[str, Convention | None] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)
    not_written: list[NsysError] = field(default_factory=list)
    _benches: dict[Path, GateContext] = field(default_factory=dict)
    _gate_changes: dict[Path, tuple[GateChange, ...]] = field(default_factory=dict)
    _planned: list[tuple[GateFile, Assertion]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.library = CaptureCache(ReadAhead(executor_asked(self.config)))

    @property
    def updating(self) -> bool:
        return bool(self.config.getoption("nsys_update_baselines"))

    @property
    def _only(self) -> Sequence[str]:
        """Names or globs of the assertions, or metrics, whose rows alone are written; none: all."""
        return self.config.getoption("nsys_update_only") or ()

    def updates(self, assertion: Assertion) -> bool:
        """Whether the rows of the assertion are written instead of judged."""
        chosen = not self._only or any(named(assertion, pattern) for pattern in self._only)
        return self.updating and assertion.reads_stored and chosen

    def check_only(self, gates: Iterable[GateFile]) -> None:
        """Raises UsageMistake where a name that is to be updated means no assertion of the gate files."""
        known = [assertion for gate in gates for assertion in gate.assertions if assertion.reads_stored]
        for pattern in self._only:
            if not any(named(assertion, pattern) for assertion in known):
                hint = did_you_mean(pattern, [name for a in known for name in (a.name, a.metric)])
                raise UsageMistake(
                    f"'{printable(pattern)}' is no assertion with a stored baseline, and no metric of one{hint}"
                )

    @property
    def recording(self) -> bool:
        """Whether the session is written to a history."""
        return self.history is not None

    @property
    def history(self) -> Path | None:
        """The database of the history, None where none is named."""
        return history_path(self.config)

    @property
    def _ini_folder(self) -> Path:
        return self.config.inipath.parent if self.config.inipath is not None else self.config.rootpath

    def source(self, gate: GateFile | None = None) -> Source:
        """Where the traces of a gate file are. Raises UsageMistake where nobody says."""
        given = self.config.getoption("nsys_trace")
        if given:
            return Source(tuple(given), self.config.invocation_params.dir)
        if gate is not None and gate.traces:
            return Source(gate.traces, gate.path.parent)
        ini = self.config.getini("nsys_trace")
        if ini:
            return Source(tuple(ini), self._ini_folder)
        raise UsageMistake(NO_TRACE)

    def captures(self, gate: GateFile | None = None, convention: Convention | None = None) -> Captures:
        """The opened captures of a gate file. Raises UsageMistake, TraceError."""
        source = self.source(gate)
        chosen = convention or (gate.convention if gate is not None else BUILT_IN[DEFAULT])
        workload = gate.workload if gate is not None else Workload()
        return self.library.captures(
            source.values, source.base, chosen, workload, self._asks(source, chosen, workload, gate)
        )

    def plan(self, judged: Iterable[tuple[GateFile, Assertion]]) -> None:
        """These assertions will be judged: what they ask of one run is read at once."""
        self._planned = list(judged)

    def read(self, gates: Iterable[GateFile]) -> None:
        """Read ahead what the gate files ask for, while the terminal can show how far it is.

        What goes wrong is told by the items, which ask again.
        """
        shown = self.config.get_verbosity() >= 0 and on_terminal(sys.stderr)
        self.library.opening = ReadAhead(executor_asked(self.config), shown)
        for gate in gates:
            with contextlib.suppress(NsysError):
                self.context(gate)

    def _asks(
        self, source: Source, convention: Convention, workload: Workload, gate: GateFile | None
    ) -> Sequence[Request]:
        """What is planned of a run under a convention; a refresh looks at every assertion of a gate file."""
        requests = requests_of(gate) if gate is not None and (self.updating or not self._planned) else []
        for other, assertion in self._planned:
            same = (other.convention, other.workload) == (convention, workload)
            with contextlib.suppress(UsageMistake):
                if same and self.source(other) == source:
                    requests += requests_of(other, [assertion])
        return requests

    def export_reports(self, gates: Iterable[GateFile]) -> None:
        """Export the reports among the traces, as their readers would, while the terminal can show how far it is.

        What goes wrong is told by the items, which read them again.
        """
        from pytest_nsys.traces.nsys.report import exported

        before = self.config.getoption("nsys_against") or ()
        for gate in gates:
            with contextlib.suppress(NsysError):
                now = self.source(gate)
                sources = (now, Source(tuple(before), self.config.invocation_params.dir))
                paths = [path for s in sources for value in s.values for path in find_traces(value, s.base)]
                for path in (path for path in paths if path.suffix in REPORTS):
                    exported(path.resolve())

    def baseline_folder(self, gate_path: Path) -> Path:
        """Option, ini key, else the nearest ``baselines/`` above the gate file, else one in the root directory."""
        given = self.config.getoption("nsys_baseline_dir")
        if given:
            return _plain(self.config.invocation_params.dir / given)
        ini = self.config.getini("nsys_baseline_dir")
        if ini:
            return _plain(self._ini_folder / ini)
        for folder in gate_path.parents:
            if (folder / BASELINES).is_dir() or self._had_baselines(folder, gate_path):
                return folder / BASELINES
            if (folder / ".git").exists():
                break
        return self.config.rootpath / BASELINES

    def _had_baselines(self, folder: Path, gate_path: Path) -> bool:
        """Whether the folder had baselines at the merge base, which is asked for where the branch has none."""
        if self.snapshots is None:
            return False
        try:
            return bool(self.snapshots.around(gate_path.parent).entries([folder / BASELINES]))
        except BaselineError:  # said where a baseline is read
            return False

    @cached_property
    def snapshots(self) -> Snapshots | None:
        """The merge bases that baselines are read from; None: baselines are read from the work tree."""
        return None if self.config.getoption("nsys_against") else self.gate_snapshots

    @cached_property
    def gate_snapshots(self) -> Snapshots | None:
        """The merge bases whose gate files are compared with those of the work tree; None: nobody asked."""
        ref = self.config.getoption("nsys_baseline_ref") or self.config.getini("nsys_baseline_ref")
        return Snapshots(ref) if ref and not self.updating else None

    def _changed_baselines(self, files: Iterable[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Since when, and what this branch changes in the baselines of gate files (as shown)."""
        from pytest_nsys.reports.changed_baselines import plain_changes

        if self.snapshots is None:
            return
        gates = sorted({_plain(self.config.invocation_params.dir / file) for file in files})
        for folder, gate in sorted({self.baseline_folder(gate): gate for gate in gates}.items()):
            with contextlib.suppress(BaselineError):  # said by the verdicts
                snapshot = self.snapshots.around(gate.parent)
                yield snapshot.words, plain_changes(file_changes(folder, snapshot), self.told, snapshot.words)

    def baseline_changes(self, files: Iterable[str]) -> list[dict[str, Any]]:
        """Each baseline file of these gate files that this branch changes, as plain data; none without a ref."""
        return [change for _, changes in self._changed_baselines(files) for change in changes]

    def baseline_change_lines(self, files: Iterable[str]) -> list[str]:
        """The same for a terminal, a row in a line; also where nothing changed, so that it is seen to be looked at."""
        from pytest_nsys.reports.changed_baselines import change_lines

        told: dict[str, list[str]] = {}
        for since, changes in self._changed_baselines(files):
            told.setdefault(since, []).extend(change_lines(changes))
        lines = []
        for since, changed in told.items():
            head = f"baselines changed in this branch since {since}:"
            lines += [head, *(f"  {line}" for line in changed)] if changed else [f"baselines of {since}, all unchanged"]
        return lines

    def gate_changes(self, files: Iterable[str]) -> GateChanges | None:
        """What this branch loosens in its gate files; None without a ref.

        Looked at are the repositories around gate files (as shown), and around what pytest was told to run: there a
        gate file may be gone.
        """
        if self.gate_snapshots is None:
            return None
        here = self.config.invocation_params.dir
        folders = dict.fromkeys(_plain(here / file).parent for file in files)
        asked = dict.fromkeys(_plain(here / argument.partition("::")[0]) for argument in self.config.args)
        found: dict[Path, tuple[GateChange, ...]] = {}
        problems = []
        for folder in {**folders, **asked}:
            try:
                snapshot = self.gate_snapshots.around(folder)
                if snapshot.top not in self._gate_changes:
                    self._gate_changes[snapshot.top] = gate_changes(snapshot, self.shown)
                found[snapshot.top] = self._gate_changes[snapshot.top]
            except BaselineError as error:
                problems += [self.told(str(error))] if folder in folders or not folders else []
        told = tuple(change for changes in found.values() for change in changes)
        return GateChanges(told, next(iter(problems), ""), self.refuses_gate_changes)

    @property
    def refuses_gate_changes(self) -> bool:
        """Whether a branch that loosens its gate files is red. The stricter of option and ini key counts.

        A workflow's own default must not loosen what the repository asks for.
        """
        return "fail" in (self.config.getoption("nsys_gate_changes"), self.config.getini("nsys_gate_changes"))

    def context(self, gate: GateFile) -> GateContext:
        """What the assertions of a gate file are judged with. Raises UsageMistake, TraceError."""
        if gate.path not in self._benches:
            captures = self.captures(gate)
            store = self.store(gate)
            past = PastRuns(captures, gate, store.gate, self.history, self.shown)
            other = self.config.getoption("nsys_against")
            if other:
                base = Source(tuple(other), self.config.invocation_params.dir)
                requests = self._asks(self.source(gate), gate.convention, gate.workload, gate)
                before = self.library.captures(base.values, base.base, gate.convention, gate.workload, requests)
                check_two_runs(captures.paths, before.paths)
                context = GateContext(captures, gate, OtherRun(captures, gate, before, ", ".join(other)), past)
            else:
                stored = StoredBaseline(captures, gate, store, self.shown, self.prune_command(gate))
                context = GateContext(captures, gate, stored, past, self.refresh_command(gate))
            ref = self.snapshots.ref if self.snapshots is not None else ""
            context.past = PastVerdicts(captures, gate, store.gate, self.history, ref)
            self._benches[gate.path] = context
        return self._benches[gate.path]

    def store(self, gate: GateFile) -> BaselineStore:
        """Where the baselines of a gate file lie."""
        files = AtMergeBase(gate.path, self.snapshots) if self.snapshots is not None else None
        return store_of(gate.path, self.baseline_folder(gate.path), self.config.rootpath, files)

    def prune_command(self, gate: GateFile) -> str:
        """What a person types to drop the stored rows that a gate file does not read any more."""
        given = self.config.getoption("nsys_baseline_dir")
        words = ["pytest-nsys", "baseline", "prune", self.shown(gate.path)]
        return shlex.join([*words, *([f"--baseline-dir={given}"] if given else [])])

    def refresh_command(self, gate: GateFile) -> str:
        """What a person types to make the present run the baseline of a gate file."""
        words = ["pytest-nsys", "baseline", "refresh", self.shown(gate.path)]
        words += [f"--trace={value}" for value in self.config.getoption("nsys_trace") or ()]
        given = self.config.getoption("nsys_baseline_dir")
        words += [f"--baseline-dir={given}"] if given else []
        return shlex.join(words) + ' --reason "…"'

    def look_command(self, gate: GateFile, assertion: Assertion, command: str, rank: int | None) -> str:
        """What a person types to look into the trace behind a verdict, measured as the verdict was."""
        source = self.source(gate)
        value = source.values[0]
        if source.base != self.config.invocation_params.dir:
            value = self.shown(source.base / value)
        if value not in self._usual:  # the file is looked at for it
            self._usual[value] = usual_of(value, self.config.invocation_params.dir)
        return look_command(command, value, self._usual[value], self.shown(gate.path), gate, assertion, rank)

    def shown(self, path: Path) -> str:
        """A path as a person would type it from where pytest was started."""
        here = self.config.invocation_params.dir
        if path.is_relative_to(here):
            return str(path.relative_to(here))
        top = folders_up(here, self.config.rootpath)[-1]
        return os.path.relpath(path, here) if path.is_relative_to(top) else str(path)

    def told(self, text: str) -> str:
        """A message with its paths as :meth:`shown` has them."""
        return from_here(text, self.config.invocation_params.dir, self.config.rootpath)

    def refresh(self, gate: GateFile) -> Refresh:
        """The refresh of a gate file's baseline, one for all of its items."""
        if gate.path not in self.refreshes:
            reason = str(self.config.getoption("nsys_reason"))
            mode = Mode(self.config.getoption("nsys_update_mode") or Mode.MOVED)
            partial = bool(self._only)
            self.refreshes[gate.path] = Refresh(gate, self.context(gate), reason, mode, partial, self.shown)
        return self.refreshes[gate.path]

    def write_refreshes(self) -> bool:
        """Write every refreshed baseline, once per file. Returns whether all could be written."""
        for refresh in self.refreshes.values():
            if not refresh.wanted or refresh.gate.path in self.refused:
                continue
            try:
                self.written.append(refresh.write())
            except NsysError as error:
                self.not_written.append(error)
        return not self.not_written

    def _noise_lines(self, written: Written) -> list[str]:
        from pytest_nsys.reports.calibration import noise_lines

        refresh = next(refresh for refresh in self.refreshes.values() if refresh.path == written.path)
        return noise_lines(refresh.gate, written.new, refresh.context.captures)

    def refresh_lines(self, *, folded: bool = False) -> list[str]:
        """Old and new value of every changed row, or the first of each series, and what was not written."""
        lines = []
        for written in self.written:
            lines.append(f"baseline {self.shown(written.path)}: {written.words}")
            lines += [f"  {note}" for note in written.notes]
            lines += [f"  {line}" for line in row_lines(written.changes, folded=folded)]
            if written.mode is Mode.CALIBRATE:
                lines += self._noise_lines(written)
            advice = merge_advice(written.path.parent.parent) if written.old is None else None
            lines += [f"  {advice}"] if advice else []
        lines += [f"baseline of {self.shown(gate)} not written: refused: {why}" for gate, why in self.refused.items()]
        lines += [f"baseline not written: {why}" for why in self.not_written]
        if lines:
            return lines
        cut_short = any(refresh.wanted for refresh in self.refreshes.values())
        why = "the session was cut short" if cut_short else "no assertion with a baseline was measured"
        return [f"no baseline was written: {why}"]


def executor_asked(config: pytest.Config) -> str | None:
    """How traces are read: option, else ini key, else None. Raises pytest.UsageError for what is no executor."""
    asked = config.getoption("nsys_executor")
    asked = config.getini("nsys_executor") or None if asked is None else asked
    if asked is not None:
        with usage_errors():
            check_executor(asked)
    return asked


def history_path(config: pytest.Config) -> Path | None:
    """The database that the session writes: option, else ini key. Raises pytest.UsageError for an empty path."""
    given = config.getoption("nsys_history")
    if given is not None:
        if not given.strip():
            raise pytest.UsageError("--nsys-history is empty: write --nsys-history=PATH")
        return Path(config.invocation_params.dir / given)
    ini = config.getini("nsys_history")
    folder = config.inipath.parent if config.inipath is not None else config.rootpath
    return Path(folder / ini) if ini else None


def _plain(path: Path) -> Path:
    """Without ``..``: a gate file's place is told from where the folder lies, not from how its path was typed."""
    return Path(os.path.normpath(path))


SESSION = pytest.StashKey[NsysSession]()


def session_of(config: pytest.Config) -> NsysSession:
    """The state of this pytest session, made when first asked for."""
    if SESSION not in config.stash:
        config.stash[SESSION] = NsysSession(config)
        config.add_cleanup(config.stash[SESSION].library.close)
    return config.stash[SESSION]


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """A UsageMistake inside becomes pytest's own usage error."""
    try:
        yield
    except UsageMistake as mistake:
        raise pytest.UsageError(str(mistake)) from mistake
