"""Which traces and measurements is a gate file judged on, and what are they compared with?

The command line counts before the gate file, and that before the ini file. Of a gate file with a matrix each
configuration has its own, which the command line names as ``NAME=PATH``. As soon as it names one of them, the others
are not run: what lies where the gate file says may be of another day.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_nsys.core.errors import NoTraceGiven, NsysError, UsageMistake, hint
from pytest_nsys.core.words import printable
from pytest_nsys.gates.model import GateFile
from pytest_nsys.plugin.settings import JUDGED_TREE, SETTINGS, given, in_force, paths_of, split

TRACE, MEASUREMENTS = "nsys_trace", "nsys_measurements"
JUDGED, BASE = (TRACE, MEASUREMENTS), ("nsys_against", "nsys_against_measurements")
"""Options that say what is judged, and what it is compared with."""

GIVEN_BY = "(--nsys-trace=PATH, or nsys_trace in the ini file)"
NOT_GIVEN = f"no trace given {GIVEN_BY}"
NO_TRACE = "no trace: give --nsys-trace={}PATH, or `trace:` in the gate file, or nsys_trace in the ini file"


class Source(NamedTuple):
    """Names the captures of a gate file as they were written, and the folder that they are relative to."""

    values: tuple[str, ...]  # one file, folder or glob for each capture
    base: Path


@dataclass
class Sources:
    """Knows what options, ini file and gate files of one session say of traces and measurements."""

    config: pytest.Config
    shown: Callable[[Path], str]  # spells a path as a person would
    names: set[str] = field(default_factory=set)  # configurations of all gate files that were collected

    @property
    def updating(self) -> bool:
        """Whether rows are written instead of judged."""
        return bool(self.config.getoption("nsys_update_baselines"))

    @cached_property
    def compares(self) -> bool:
        """Whether runs are compared with those of another side, in place of the stored baselines."""
        return any(self.config.getoption(name) for name in BASE)

    def typed(self, setting: str, gate: GateFile) -> tuple[str, ...]:
        """Return the paths that the command line gives for this gate file or configuration."""
        return tuple(path for name, path in paths_of(self.config, setting) if name == gate.configuration)

    def _given(self, setting: str, gate: GateFile) -> Source:
        """Return the paths for this gate file, of the ini file where the command line gives none at all."""
        values, folder = in_force(self.config, setting)
        named_paths = (split(value, folder) for value in values or ())
        return Source(tuple(path for name, path in named_paths if name == gate.configuration), folder)

    def _folder(self, gate: GateFile) -> Path:
        """Return the folder that the paths of a gate file are relative to."""
        # Also where a merge base judges, by its gate files, what is judged lies in the work tree.
        judged_tree = self.config.stash.get(JUDGED_TREE, None)
        return gate.path.parent if judged_tree is None else judged_tree.find(gate.path.parent)

    def base(self, gate: GateFile) -> tuple[Source, Source] | None:
        """Return the traces of the base and the measurements beside them; None where nothing is compared.

        Raises UsageMistake where only other configurations have them.
        """
        if not self.compares:
            return None
        traces, measurements = (self._given(name, gate) for name in BASE)
        if not traces.values and not measurements.values:
            raise UsageMistake(f"no base given: --nsys-against={prefix(gate)}PATH gives one")
        return traces, measurements

    def _needed(self, gate: GateFile) -> bool:
        """Whether a missing trace is red: where that is asked for, in CI, and where anybody speaks of its traces.

        A run that compares or writes is about its traces, too, unless they are those of other configurations.
        """
        from pytest_nsys.tools.executors import in_ci

        has_source = any(self._given(name, gate).values for name in JUDGED)
        concerns_traces = (self.compares or self.updating) and not self._others(gate)
        return bool(given(self.config, "nsys_strict")) or has_source or concerns_traces or in_ci()

    def _others(self, gate: GateFile) -> list[str]:
        """List the configurations of the gate file that the command line names, where it does not name this one."""
        if not gate.configuration or any(self.typed(setting, gate) for setting in JUDGED):
            return []
        named_configurations = dict.fromkeys(name for setting in JUDGED for name, _ in paths_of(self.config, setting))
        return [name for name in named_configurations if name in gate.names]

    def _check(self, gate: GateFile) -> None:
        """Check what the command line names.

        Raises UsageMistake where no gate file has it, or where this one has nothing of it, and NoTraceGiven where it
        names other configurations.
        """
        for setting in (*JUDGED, *BASE):
            for name, path in paths_of(self.config, setting):
                if name and name not in self.names:
                    option = f"{SETTINGS[setting].option}={name}={path}"
                    advice = hint(name, sorted(self.names), "they have") if self.names else ", which have no matrix"
                    raise UsageMistake(f"{option}: no configuration of these gate files is '{name}'{advice}")
        if not gate.configuration or any(self.typed(setting, gate) for setting in JUDGED):
            return
        if other_configurations := self._others(gate):
            problem = f"the command line names {', '.join(other_configurations)} alone"
            if not self._needed(gate):
                raise NoTraceGiven(f"{NOT_GIVEN}; {problem}")
            trace_advice = f"give --nsys-trace={prefix(gate)}PATH too, or leave it out by -k"
            raise UsageMistake(f"no trace of {gate.configuration}: {problem}: {trace_advice}")
        if any(self.config.getoption(setting) for setting in JUDGED):
            matrix_text = f"{self.shown(gate.path)} has a matrix of {', '.join(gate.names)}"
            raise UsageMistake(f"{matrix_text}: --nsys-trace=NAME=PATH says whose trace it is")

    def traces(self, gate: GateFile) -> Source:
        """Return where the traces of a gate file are. Raises UsageMistake where nobody says, NoTraceGiven where nobody
        has to.
        """
        self._check(gate)
        if gate.traces and not self.typed(TRACE, gate):
            from pytest_nsys.traces.opening import is_there

            gate_source = Source(gate.traces, self._folder(gate))
            if not self._needed(gate) and not any(is_there(value, gate_source.base) for value in gate_source.values):
                absent_paths = ", ".join(
                    printable(self.shown(plain(gate_source.base / value))) for value in gate_source.values
                )
                raise NoTraceGiven(f"{NOT_GIVEN}; trace {absent_paths} of the gate file does not exist")
            return gate_source
        given_source = self._given(TRACE, gate)
        if not given_source.values:
            raise UsageMistake(NO_TRACE.format(prefix(gate))) if self._needed(gate) else NoTraceGiven(NOT_GIVEN)
        return given_source

    def both(self, gate: GateFile) -> tuple[Source, Source]:
        """Return the traces of a gate file, and the measurements beside them. Raises UsageMistake where a trace is
        missing.
        """
        self._check(gate)
        measurements = self._given(MEASUREMENTS, gate)
        if gate.measurements and not self.typed(MEASUREMENTS, gate):
            measurements = Source(gate.measurements, self._folder(gate))
        try:
            return self.traces(gate), measurements
        except UsageMistake:
            if measurements.values and not (gate.needs_trace and gate.assertions):
                return Source((), self.config.invocation_params.dir), measurements
            if not gate.needs_trace:
                from pytest_nsys.analysis.windows.measurements import NONE_GIVEN

                raise UsageMistake(NONE_GIVEN) from None
            raise


def prefix(gate: GateFile) -> str:
    """Return what stands before a path on the command line that belongs to the gate file's configuration."""
    return f"{gate.configuration}=" if gate.configuration else ""


def named_traces(config: pytest.Config) -> Iterator[Path]:
    """Yield the traces that options and the ini file name."""
    from pytest_nsys.reports.tables.targets import files_of

    start_folder = config.invocation_params.dir
    yield from files_of([path for setting in (TRACE, BASE[0]) for _, path in paths_of(config, setting)], start_folder)
    if (ini := config.inipath) is not None:
        yield from files_of([split(value, ini.parent)[1] for value in config.getini(TRACE)], ini.parent)


def named_measurements(config: pytest.Config) -> Iterator[Path]:
    """Yield the measurements that options and the ini file name."""
    from pytest_nsys.traces.measurements import find_measurements

    for setting in (MEASUREMENTS, BASE[1]):
        values, folder = in_force(config, setting)
        for value in values or ():
            with contextlib.suppress(NsysError):  # which is said where they are read
                yield from find_measurements(split(value, folder)[1], folder)


def plain(path: Path) -> Path:
    """Return a path without ``..``."""
    # A gate file's place is told from where the folder lies, not from how its path was typed.
    return Path(os.path.normpath(path))
