"""On which traces and measurements is a gate file judged, and with which are they compared?

The command line takes precedence over the gate file, and that over the ini file. In a gate file with a matrix each
configuration has its own traces; on the command line they are ``NAME=PATH``. If the command line names any
configuration, the others are not run: the files that the gate file names may be from another day.
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

from pytest_nsys.core.errors import NoTraceGiven, NsysError, UsageMistake, suggest_or_list
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.gates.model import GateFile
from pytest_nsys.plugin.settings import (
    JUDGED_TREE,
    SETTINGS,
    list_option_paths,
    read_setting,
    read_setting_and_folder,
    split_configuration,
)

TRACE_SETTING, MEASUREMENTS_SETTING = "nsys_trace", "nsys_measurements"
HEAD_SETTINGS, BASE_SETTINGS = (TRACE_SETTING, MEASUREMENTS_SETTING), ("nsys_against", "nsys_against_measurements")
"""The settings that name what is judged, and those that name what it is compared with."""

TRACE_OPTION_HINT = "(--nsys-trace=PATH, or nsys_trace in the ini file)"
NO_TRACE_REASON = f"no trace given {TRACE_OPTION_HINT}"
NO_TRACE_MISTAKE = "no trace: give --nsys-trace={}PATH, or `trace:` in the gate file, or nsys_trace in the ini file"


class Source(NamedTuple):
    """Holds the captures of a gate file as written, and the folder to which they are relative."""

    paths: tuple[str, ...]  # one file, folder or glob for each capture
    folder: Path


@dataclass
class Sources:
    """Finds the traces and measurements that options, ini file and gate files of one session name."""

    config: pytest.Config
    format_path: Callable[[Path], str]  # formats a path as a person would type it
    configuration_names: set[str] = field(default_factory=set)  # configurations of all collected gate files

    @property
    def is_updating(self) -> bool:
        """Whether rows are written instead of judged."""
        return bool(self.config.getoption("nsys_update_baselines"))

    @cached_property
    def is_comparing(self) -> bool:
        """Whether runs are compared with other runs instead of the stored baselines."""
        return any(self.config.getoption(name) for name in BASE_SETTINGS)

    def list_typed_paths(self, setting: str, gate: GateFile) -> tuple[str, ...]:
        """Return the paths that the command line gives for this gate file or configuration."""
        return tuple(path for name, path in list_option_paths(self.config, setting) if name == gate.configuration)

    def _read_source(self, setting: str, gate: GateFile) -> Source:
        """Return the paths for this gate file; from the ini file if the command line gives none at all."""
        values, folder = read_setting_and_folder(self.config, setting)
        named_paths = (split_configuration(value, folder) for value in values or ())
        return Source(tuple(path for name, path in named_paths if name == gate.configuration), folder)

    def _find_path_folder(self, gate: GateFile) -> Path:
        """Return the folder to which the paths of a gate file are relative."""
        # Even if a merge base's gate files judge, the judged files are in the work tree.
        judged_tree = self.config.stash.get(JUDGED_TREE, None)
        return gate.path.parent if judged_tree is None else judged_tree.find_path(gate.path.parent)

    def find_base_sources(self, gate: GateFile) -> tuple[Source, Source] | None:
        """Return the traces of the base and their measurements; None if nothing is compared.

        Raises UsageMistake if only other configurations have them.
        """
        if not self.is_comparing:
            return None
        traces, measurements = (self._read_source(name, gate) for name in BASE_SETTINGS)
        if not traces.paths and not measurements.paths:
            raise UsageMistake(f"no base given: --nsys-against={format_option_prefix(gate)}PATH gives one")
        return traces, measurements

    def _is_trace_needed(self, gate: GateFile) -> bool:
        """Whether a missing trace is a failure: if that is requested, in CI, or if any setting names its traces.

        So it is in a session that compares or writes, unless only other configurations have traces.
        """
        from pytest_nsys.tools.executors import is_in_ci

        has_source = any(self._read_source(name, gate).paths for name in HEAD_SETTINGS)
        concerns_traces = (self.is_comparing or self.is_updating) and not self._list_other_configurations(gate)
        return bool(read_setting(self.config, "nsys_strict")) or has_source or concerns_traces or is_in_ci()

    def _list_other_configurations(self, gate: GateFile) -> list[str]:
        """List the configurations of the gate file that the command line names, if it does not name this one."""
        if not gate.configuration or any(self.list_typed_paths(setting, gate) for setting in HEAD_SETTINGS):
            return []
        named_configurations = dict.fromkeys(
            name for setting in HEAD_SETTINGS for name, _ in list_option_paths(self.config, setting)
        )
        return [name for name in named_configurations if name in gate.configuration_names]

    def _check_configurations(self, gate: GateFile) -> None:
        """Check the configurations that the command line names.

        Raises UsageMistake if no gate file has a named configuration, or if this gate file has none of them;
        NoTraceGiven if only its other configurations are named.
        """
        for setting in (*HEAD_SETTINGS, *BASE_SETTINGS):
            for name, path in list_option_paths(self.config, setting):
                if name and name not in self.configuration_names:
                    option = f"{SETTINGS[setting].option}={name}={path}"
                    advice = (
                        suggest_or_list(name, sorted(self.configuration_names), "they have")
                        if self.configuration_names
                        else ", which have no matrix"
                    )
                    raise UsageMistake(f"{option}: no configuration of these gate files is '{name}'{advice}")
        if not gate.configuration or any(self.list_typed_paths(setting, gate) for setting in HEAD_SETTINGS):
            return
        if other_configurations := self._list_other_configurations(gate):
            problem = f"the command line names {', '.join(other_configurations)} alone"
            if not self._is_trace_needed(gate):
                raise NoTraceGiven(f"{NO_TRACE_REASON}; {problem}")
            trace_advice = f"give --nsys-trace={format_option_prefix(gate)}PATH too, or leave it out by -k"
            raise UsageMistake(f"no trace of {gate.configuration}: {problem}: {trace_advice}")
        if any(self.config.getoption(setting) for setting in HEAD_SETTINGS):
            matrix_text = f"{self.format_path(gate.path)} has a matrix of {', '.join(gate.configuration_names)}"
            raise UsageMistake(f"{matrix_text}: --nsys-trace=NAME=PATH says whose trace it is")

    def find_trace_source(self, gate: GateFile) -> Source:
        """Return the traces of a gate file. If none are given, raises UsageMistake if they are required, else
        NoTraceGiven.
        """
        self._check_configurations(gate)
        if gate.traces and not self.list_typed_paths(TRACE_SETTING, gate):
            from pytest_nsys.traces.trace_files import matches_anything

            gate_source = Source(gate.traces, self._find_path_folder(gate))
            if not self._is_trace_needed(gate) and not any(
                matches_anything(value, gate_source.folder) for value in gate_source.paths
            ):
                absent_paths = ", ".join(
                    sanitize_line(self.format_path(normalize_path(gate_source.folder / value)))
                    for value in gate_source.paths
                )
                raise NoTraceGiven(f"{NO_TRACE_REASON}; trace {absent_paths} of the gate file does not exist")
            return gate_source
        given_source = self._read_source(TRACE_SETTING, gate)
        if not given_source.paths:
            raise (
                UsageMistake(NO_TRACE_MISTAKE.format(format_option_prefix(gate)))
                if self._is_trace_needed(gate)
                else NoTraceGiven(NO_TRACE_REASON)
            )
        return given_source

    def find_sources(self, gate: GateFile) -> tuple[Source, Source]:
        """Return the traces of a gate file and their measurements. Raises UsageMistake if a trace is missing."""
        self._check_configurations(gate)
        measurements = self._read_source(MEASUREMENTS_SETTING, gate)
        if gate.measurements and not self.list_typed_paths(MEASUREMENTS_SETTING, gate):
            measurements = Source(gate.measurements, self._find_path_folder(gate))
        try:
            return self.find_trace_source(gate), measurements
        except UsageMistake:
            if measurements.paths and not (gate.needs_trace and gate.assertions):
                return Source((), self.config.invocation_params.dir), measurements
            if not gate.needs_trace:
                from pytest_nsys.analysis.windows.measurements import NO_MEASUREMENT_FILES

                raise UsageMistake(NO_MEASUREMENT_FILES) from None
            raise


def format_option_prefix(gate: GateFile) -> str:
    """Return the prefix (``NAME=``) of a path on the command line for the gate file's configuration."""
    return f"{gate.configuration}=" if gate.configuration else ""


def list_named_traces(config: pytest.Config) -> Iterator[Path]:
    """Yield the traces that options and the ini file name."""
    from pytest_nsys.reports.tables.report_targets import list_trace_files

    start_folder = config.invocation_params.dir
    yield from list_trace_files(
        [path for setting in (TRACE_SETTING, BASE_SETTINGS[0]) for _, path in list_option_paths(config, setting)],
        start_folder,
    )
    if (ini := config.inipath) is not None:
        yield from list_trace_files(
            [split_configuration(value, ini.parent)[1] for value in config.getini(TRACE_SETTING)], ini.parent
        )


def list_named_measurements(config: pytest.Config) -> Iterator[Path]:
    """Yield the measurements that options and the ini file name."""
    from pytest_nsys.traces.sidecars.measurements import find_measurement_files

    for setting in (MEASUREMENTS_SETTING, BASE_SETTINGS[1]):
        values, folder = read_setting_and_folder(config, setting)
        for value in values or ():
            with contextlib.suppress(NsysError):  # reported when they are read
                yield from find_measurement_files(split_configuration(value, folder)[1], folder)


def normalize_path(path: Path) -> Path:
    """Return a path without ``..``."""
    # Resolve ``..``, so that a gate file's path does not depend on how it was typed.
    return Path(os.path.normpath(path))
