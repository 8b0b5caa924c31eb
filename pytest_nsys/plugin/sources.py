"""Which traces and measurements is a gate file judged on, and what are they held against?

Command line over gate file over ini file. Of a gate file with a matrix each configuration has its own, which the
command line names as ``NAME=PATH``. As soon as it names one of them, the others are not run: what lies where the gate
file says may be of another day.
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
"""The options that say what is judged, and what it is held against."""

GIVEN_BY = "(--nsys-trace=PATH, or nsys_trace in the ini file)"
NOT_GIVEN = f"no trace given {GIVEN_BY}"
NO_TRACE = "no trace: give --nsys-trace={}PATH, or `trace:` in the gate file, or nsys_trace in the ini file"


class Source(NamedTuple):
    """The captures of a gate file as they were written, and the folder that they are relative to."""

    values: tuple[str, ...]
    base: Path


@dataclass
class Sources:
    """What options, ini file and gate files say of one session. ``names`` are the configurations of all gate files that
    were collected; ``shown`` spells a path as a person would.
    """

    config: pytest.Config
    shown: Callable[[Path], str]
    names: set[str] = field(default_factory=set)

    @property
    def updating(self) -> bool:
        """Whether rows are written instead of judged."""
        return bool(self.config.getoption("nsys_update_baselines"))

    @cached_property
    def compares(self) -> bool:
        """Whether runs are held against those of another side, in place of the stored baselines."""
        return any(self.config.getoption(name) for name in BASE)

    def typed(self, setting: str, gate: GateFile) -> tuple[str, ...]:
        """What the command line gives: to a configuration what bears its name, else what bears none."""
        return tuple(path for name, path in paths_of(self.config, setting) if name == gate.configuration)

    def _given(self, setting: str, gate: GateFile) -> Source:
        """The same of the ini file, where the command line says nothing at all."""
        values, folder = in_force(self.config, setting)
        asked = (split(value, folder) for value in values or ())
        return Source(tuple(path for name, path in asked if name == gate.configuration), folder)

    def _folder(self, gate: GateFile) -> Path:
        """What the paths of a gate file are relative to: also where a merge base judges, what is judged is here."""
        judged = self.config.stash.get(JUDGED_TREE, None)
        return gate.path.parent if judged is None else judged.find(gate.path.parent)

    def base(self, gate: GateFile) -> tuple[Source, Source] | None:
        """The traces of the base and the measurements beside them; None where nothing is compared.

        Raises UsageMistake where only other configurations have them.
        """
        if not self.compares:
            return None
        traces, beside = (self._given(name, gate) for name in BASE)
        if not traces.values and not beside.values:
            raise UsageMistake(f"no base given: --nsys-against={prefix(gate)}PATH gives one")
        return traces, beside

    def _needed(self, gate: GateFile) -> bool:
        """Whether what has no trace is red: where that is asked for, in CI, and where anybody speaks of its traces.

        A run that compares or writes is about its traces, too, unless they are those of other configurations.
        """
        from pytest_nsys.tools.executors import in_ci

        asked = any(self._given(name, gate).values for name in JUDGED)
        about = (self.compares or self.updating) and not self._others(gate)
        return bool(given(self.config, "nsys_strict")) or asked or about or in_ci()

    def _others(self, gate: GateFile) -> list[str]:
        """The configurations of the gate file that the command line names, where it does not name this one."""
        if not gate.configuration or any(self.typed(setting, gate) for setting in JUDGED):
            return []
        asked = dict.fromkeys(name for setting in JUDGED for name, _ in paths_of(self.config, setting))
        return [name for name in asked if name in gate.names]

    def _check(self, gate: GateFile) -> None:
        """Raises UsageMistake where the command line names what no gate file has, or nothing that this one has, and
        NoTraceGiven where it names others.
        """
        for setting in (*JUDGED, *BASE):
            for name, path in paths_of(self.config, setting):
                if name and name not in self.names:
                    option = f"{SETTINGS[setting].option}={name}={path}"
                    which = hint(name, sorted(self.names), "they have") if self.names else ", which have no matrix"
                    raise UsageMistake(f"{option}: no configuration of these gate files is '{name}'{which}")
        if not gate.configuration or any(self.typed(setting, gate) for setting in JUDGED):
            return
        if others := self._others(gate):
            what = f"the command line names {', '.join(others)} alone"
            if not self._needed(gate):
                raise NoTraceGiven(f"{NOT_GIVEN}; {what}")
            give = f"give --nsys-trace={prefix(gate)}PATH too, or leave it out by -k"
            raise UsageMistake(f"no trace of {gate.configuration}: {what}: {give}")
        if any(self.config.getoption(setting) for setting in JUDGED):
            has = f"{self.shown(gate.path)} has a matrix of {', '.join(gate.names)}"
            raise UsageMistake(f"{has}: --nsys-trace=NAME=PATH says whose trace it is")

    def traces(self, gate: GateFile) -> Source:
        """Where the traces of a gate file are. Raises UsageMistake where nobody says, NoTraceGiven where none must."""
        self._check(gate)
        if gate.traces and not self.typed(TRACE, gate):
            from pytest_nsys.traces.opening import is_there

            own = Source(gate.traces, self._folder(gate))
            if not self._needed(gate) and not any(is_there(value, own.base) for value in own.values):
                absent = ", ".join(printable(self.shown(plain(own.base / value))) for value in own.values)
                raise NoTraceGiven(f"{NOT_GIVEN}; trace {absent} of the gate file does not exist")
            return own
        found = self._given(TRACE, gate)
        if not found.values:
            raise UsageMistake(NO_TRACE.format(prefix(gate))) if self._needed(gate) else NoTraceGiven(NOT_GIVEN)
        return found

    def both(self, gate: GateFile) -> tuple[Source, Source]:
        """The traces of a gate file, and the measurements beside them. Raises UsageMistake where a trace is missing."""
        self._check(gate)
        beside = self._given(MEASUREMENTS, gate)
        if gate.measurements and not self.typed(MEASUREMENTS, gate):
            beside = Source(gate.measurements, self._folder(gate))
        try:
            return self.traces(gate), beside
        except UsageMistake:
            if beside.values and not (gate.needs_trace and gate.assertions):
                return Source((), self.config.invocation_params.dir), beside
            if not gate.needs_trace:
                from pytest_nsys.analysis.windows.measurements import NONE_GIVEN

                raise UsageMistake(NONE_GIVEN) from None
            raise


def prefix(gate: GateFile) -> str:
    """What stands before a path on the command line, which is that of the gate file's configuration."""
    return f"{gate.configuration}=" if gate.configuration else ""


def named_traces(config: pytest.Config) -> Iterator[Path]:
    """The traces that options and the ini file name."""
    from pytest_nsys.reports.tables.targets import files_of

    here = config.invocation_params.dir
    yield from files_of([path for setting in (TRACE, BASE[0]) for _, path in paths_of(config, setting)], here)
    if (ini := config.inipath) is not None:
        yield from files_of([split(value, ini.parent)[1] for value in config.getini(TRACE)], ini.parent)


def named_measurements(config: pytest.Config) -> Iterator[Path]:
    """The measurements that options and the ini file name."""
    from pytest_nsys.traces.measurements import find_measurements

    for setting in (MEASUREMENTS, BASE[1]):
        values, folder = in_force(config, setting)
        for value in values or ():
            with contextlib.suppress(NsysError):  # which is said where they are read
                yield from find_measurements(split(value, folder)[1], folder)


def plain(path: Path) -> Path:
    """Without ``..``: a gate file's place is told from where the folder lies, not from how its path was typed."""
    return Path(os.path.normpath(path))
