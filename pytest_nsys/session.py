"""Where a gate file's trace, baselines and commands come from in one pytest session, and what is shared by its items.

Command line over gate file over ini file. Each value of ``--nsys-trace`` is one run; several are captures.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_nsys.analysis.windows import MEDIAN
from pytest_nsys.conventions import BUILT_IN, DEFAULT, Convention
from pytest_nsys.errors import NsysError, UsageMistake
from pytest_nsys.evaluation import Evidence, Library
from pytest_nsys.gates.assertion import Assertion, GateFile
from pytest_nsys.gates.baselines import shelf_of
from pytest_nsys.model import counted
from pytest_nsys.refresh import Change, Refresh
from pytest_nsys.verdicts import Bench

BASELINES = "baselines"
NO_TRACE = "no trace: give --nsys-trace=PATH, or `trace:` in the gate file, or nsys_trace in the ini file"


@dataclass(frozen=True)
class Source:
    """The captures of a gate file as they were written, and the folder that they are relative to."""

    values: tuple[str, ...]
    base: Path


@dataclass(frozen=True)
class Written:
    """A baseline after its refresh; ``is_new`` where no run of this key had been accepted."""

    path: Path
    is_new: bool
    changes: list[Change]

    @property
    def words(self) -> str:
        if self.is_new:
            return f"new file, {counted(len(self.changes), 'row')}"
        if not self.changes:
            return "no row moved beyond its tolerance; unchanged"
        return f"{counted(len(self.changes), 'row')} changed"


@dataclass
class NsysSession:
    """State of one pytest session; on each xdist worker one of its own."""

    config: pytest.Config
    library: Library = field(default_factory=Library)
    refreshes: dict[Path, Refresh] = field(default_factory=dict)
    refused: dict[Path, str] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)
    not_written: list[str] = field(default_factory=list)
    _benches: dict[Path, Bench] = field(default_factory=dict)

    @property
    def updating(self) -> bool:
        return bool(self.config.getoption("nsys_update_baselines"))

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

    def evidence(self, gate: GateFile | None = None, convention: Convention | None = None) -> Evidence:
        """The opened captures of a gate file. Raises UsageMistake, TraceError."""
        source = self.source(gate)
        chosen = convention or (gate.convention if gate is not None else BUILT_IN[DEFAULT])
        return self.library.evidence(source.values, source.base, chosen)

    def baseline_folder(self, gate_path: Path) -> Path:
        """Option, ini key, else the nearest ``baselines/`` above the gate file, else one in the root directory."""
        given = self.config.getoption("nsys_baseline_dir")
        if given:
            return _plain(self.config.invocation_params.dir / given)
        ini = self.config.getini("nsys_baseline_dir")
        if ini:
            return _plain(self._ini_folder / ini)
        for folder in gate_path.parents:
            if (folder / BASELINES).is_dir():
                return folder / BASELINES
            if (folder / ".git").exists():
                break
        return self.config.rootpath / BASELINES

    def bench(self, gate: GateFile) -> Bench:
        """What the assertions of a gate file are judged with. Raises UsageMistake, TraceError."""
        if gate.path not in self._benches:
            evidence = self.evidence(gate)
            shelf = shelf_of(gate.path, self.baseline_folder(gate.path), self.config.rootpath)
            self._benches[gate.path] = Bench(evidence, gate.run, shelf, self.refresh_command(gate), self.shown)
        return self._benches[gate.path]

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
        words = ["pytest-nsys", command, value]
        words += ["--rank", str(rank)] if rank is not None else []
        if gate.convention != BUILT_IN[DEFAULT]:
            words += ["--convention", self.shown(gate.path)]
        words += ["--window", assertion.window] if assertion.window != MEDIAN else []
        if assertion.span not in (None, gate.convention.span):
            words += ["--span", str(assertion.span)]
        if assertion.kernels not in (None, gate.convention.kernels):
            words += ["--kernels", str(assertion.kernels)]
        return shlex.join(words)

    def shown(self, path: Path) -> str:
        """A path as a person would type it from where pytest was started."""
        here = self.config.invocation_params.dir
        return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)

    def refresh(self, gate: GateFile) -> Refresh:
        """The refresh of a gate file's baseline, one for all of its items."""
        if gate.path not in self.refreshes:
            reason = str(self.config.getoption("nsys_reason"))
            self.refreshes[gate.path] = Refresh(gate, self.bench(gate), reason)
        return self.refreshes[gate.path]

    def write_refreshes(self) -> bool:
        """Write every refreshed baseline, once per file. Returns whether all could be written."""
        for refresh in self.refreshes.values():
            if not refresh.wanted or refresh.gate.path in self.refused:
                continue
            try:
                is_new = not refresh.path.exists()
                self.written.append(Written(refresh.path, is_new, refresh.write()))
            except NsysError as error:
                self.not_written.append(str(error))
        return not self.not_written

    def refresh_lines(self) -> list[str]:
        """Old and new value of every changed row, and what was not written."""
        lines = []
        for written in self.written:
            lines.append(f"baseline {self.shown(written.path)}: {written.words}")
            lines += [f"  {change}" for change in written.changes]
        lines += [f"baseline of {self.shown(gate)} not written: refused: {why}" for gate, why in self.refused.items()]
        lines += [f"baseline not written: {why}" for why in self.not_written]
        if lines:
            return lines
        cut_short = any(refresh.wanted for refresh in self.refreshes.values())
        why = "the session was cut short" if cut_short else "no assertion with a baseline was measured"
        return [f"no baseline was written: {why}"]


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
