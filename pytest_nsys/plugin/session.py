"""Where do a gate file's trace, baselines and commands come from in one pytest session, and what do its items share?

The command line takes precedence over the gate file, and that over the ini file. Each value of ``--nsys-trace`` is one
capture of the run.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_nsys.analysis.metrics.registry import CUT, ONE_WINDOW_VIEWS, MetricRequest
from pytest_nsys.analysis.windows.window_selection import MEDIAN, STEADY
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Anchor, Convention, format_anchor
from pytest_nsys.core.errors import NsysError, SeveralCaptures, UsageMistake
from pytest_nsys.core.file_names import GateAddress
from pytest_nsys.core.text_format import list_folders_up, quote_command, shorten_paths
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.model import Assertion, GateFile, Verdict, build_requests, resolve_window_spec
from pytest_nsys.gates.workload_keys import list_stated_options
from pytest_nsys.plugin.settings import (
    ACCEPTANCE,
    JUDGED_TREE,
    SETTINGS,
    WorkTree,
    find_setting_path,
    read_setting,
    read_setting_and_folder,
)
from pytest_nsys.plugin.sources import MEASUREMENTS_SETTING, Source, Sources, format_option_prefix, normalize_path

if TYPE_CHECKING:
    from pytest_nsys.analysis.captures.cache import CaptureCache
    from pytest_nsys.analysis.captures.captures import Captures
    from pytest_nsys.stored.baselines.store import BaselineStore
    from pytest_nsys.verdicts.evaluate import GateContext

BASELINE_FOLDER_NAME = "baselines"
PlannedRun = tuple[Source, Convention, Workload]
"""The identity of a run: its files, the convention, and the stated workload."""


@dataclass
class NsysSession:
    """Holds the state of one pytest session; each xdist worker has its own."""

    config: pytest.Config
    _traces: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _contexts: dict[str, GateContext] = field(default_factory=dict)
    _resolved_gates: dict[tuple[str, Anchor | None], GateFile] = field(default_factory=dict)
    _shows_progress: bool = False
    _judged_assertions: Sequence[tuple[GateFile, Sequence[Assertion]]] = ()

    @cached_property
    def sources(self) -> Sources:
        """Return the settings that name the traces."""
        return Sources(self.config, self.format_path)

    @cached_property
    def library(self) -> CaptureCache:
        """Return the session's cache of opened runs."""
        from pytest_nsys.analysis.captures.cache import CaptureCache

        return CaptureCache(self._make_trace_opener)

    def _make_trace_opener(self, paths: Sequence[Path], *arguments: Any) -> Callable[[Path], Trace]:
        """Return the function that opens a trace of a run; several traces are read ahead if that saves time."""
        if len(paths) == 1:
            from pytest_nsys.traces.trace_files import open_trace

            return open_trace
        from pytest_nsys.analysis.captures.parallel import ReadAhead

        return ReadAhead(read_setting(self.config, "nsys_executor"), self._shows_progress)(paths, *arguments)

    @property
    def start_folder(self) -> Path:
        """Return the folder in which pytest was started."""
        return self.config.invocation_params.dir

    @property
    def judged_tree(self) -> WorkTree | None:
        """Return the work tree that is judged by a merge base; None in an ordinary session."""
        return self.config.stash.get(JUDGED_TREE, None)

    def _find_in_work_tree(self, path: Path) -> Path:
        """Return a file's path for people: a file of the merge base has its path in the work tree."""
        return path if self.judged_tree is None else self.judged_tree.find_path(path)

    @property
    def is_updating(self) -> bool:
        """Whether rows are written instead of judged."""
        return self.sources.is_updating

    @property
    def history_path(self) -> Path | None:
        """Return the database of the history; None if none is named."""
        return find_setting_path(self.config, "nsys_history")

    def list_traces(self, gate: GateFile) -> tuple[str, ...]:
        """List the captures of a gate file as a person would type them, else its measurements, else nothing."""
        if gate.address not in self._traces:
            try:
                source, measurements = self.sources.find_sources(gate)
            except UsageMistake:
                return ()
            self._traces[gate.address] = self._format_source(source if source.paths else measurements)
        return self._traces[gate.address]

    def list_measurements(self, gate: GateFile) -> tuple[str, ...]:
        """List the measurements that belong to the traces, for a gate file that judges them, as a person would type
        them.
        """
        if all(assertion.outside_metric is None for assertion in gate.assertions):
            return ()
        source, measurements = self.sources.find_sources(gate)
        return self._format_source(measurements) if source.paths else ()

    def _format_source(self, source: Source) -> tuple[str, ...]:
        """Return the paths of a source as a person would type them."""
        is_as_typed = source.folder == self.start_folder and self.judged_tree is None  # a judge gets absolute paths
        return tuple(
            value if is_as_typed else self.format_path(normalize_path(source.folder / value)) for value in source.paths
        )

    def resolve_gate(self, gate: GateFile, anchor: Anchor | None = None) -> GateFile:
        """Return the gate file with its convention; ``auto`` is replaced by the convention found in the trace. Raises
        UsageMistake, TraceError.

        ``anchor`` replaces the anchor of a named convention.
        """
        if gate.convention is not None:
            return gate
        source, _ = self.sources.find_sources(gate)
        if not source.paths:  # measurements alone need no convention
            return replace(gate, convention=BUILT_IN_CONVENTIONS["generic"])
        if (gate.address, anchor) not in self._resolved_gates:
            from pytest_nsys.verdicts.evaluate import resolve_gate_convention

            base = self.sources.find_base_sources(gate)
            base_traces = base[0] if base is not None and base[0].paths else None
            self._resolved_gates[gate.address, anchor] = resolve_gate_convention(
                gate,
                partial(self.library.choose_convention, *source, anchor),
                partial(self.library.choose_convention, *base_traces, anchor) if base_traces is not None else None,
                self.open_store(gate)
                if any(assertion.reads_stored_baseline for assertion in gate.assertions)
                else None,
                is_refresh=self.is_updating,
            )
        resolved_gate = self._resolved_gates[gate.address, anchor]
        return replace(gate, convention=resolved_gate.convention, found_convention=resolved_gate.found_convention)

    def open_captures(self, gate: GateFile) -> Captures:
        """Return the opened captures of a gate file whose convention is resolved. Raises UsageMistake, TraceError."""
        (source, measurements), convention = self.sources.find_sources(gate), gate.resolved_convention
        return self._open_captures(
            source,
            measurements,
            convention,
            gate.workload,
            self._select_requests(source, convention, gate.workload, gate),
        )

    def _open_captures(
        self,
        traces: Source,
        measurements: Source,
        convention: Convention,
        workload: Workload,
        requests: Sequence[MetricRequest],
    ) -> Captures:
        from pytest_nsys.traces.sidecars.measurements import find_files_by_capture

        files = find_files_by_capture(measurements.paths, measurements.folder)
        return self.library.open_captures(traces.paths, traces.folder, convention, workload, requests, files)

    def plan_requests(self, assertions: Iterable[tuple[GateFile, Assertion]]) -> None:
        """Record which assertions will be judged, so that all of their data in one run is read together."""
        assertions_by_gate: dict[str, tuple[GateFile, list[Assertion]]] = {}
        for gate, assertion in assertions:
            assertions_by_gate.setdefault(gate.address, (gate, []))[1].append(assertion)
        self._judged_assertions = [*assertions_by_gate.values()]
        self.__dict__.pop("_planned", None)

    @cached_property
    def _planned(self) -> dict[PlannedRun, Sequence[MetricRequest]]:
        """Return the planned requests for each run; the conventions must be known."""
        requests_by_run: dict[PlannedRun, dict[MetricRequest, None]] = {}
        for gate, assertions in self._judged_assertions:
            with contextlib.suppress(NsysError):  # the items report it
                resolved_gate = self.resolve_gate(gate)
                run = (
                    self.sources.find_trace_source(resolved_gate),
                    resolved_gate.resolved_convention,
                    resolved_gate.workload,
                )
                requests_by_run.setdefault(run, {}).update(dict.fromkeys(build_requests(resolved_gate, assertions)))
        return {run: tuple(requests) for run, requests in requests_by_run.items()}

    def read_ahead(self, gates: Iterable[GateFile]) -> None:
        """Read the data of the gate files ahead, while the terminal can still show progress.

        Errors are ignored here: the items read again and report them.
        """
        from pytest_nsys.tools.executors import is_on_terminal

        self._shows_progress = self.config.get_verbosity() >= 0 and is_on_terminal(sys.stderr)
        for gate in gates:
            with contextlib.suppress(NsysError):
                self.get_context(gate)

    def _select_requests(
        self, source: Source, convention: Convention, workload: Workload, gate: GateFile
    ) -> Sequence[MetricRequest]:
        """Return the planned requests for a run with a convention; a refresh needs every assertion of the gate file."""
        planned_requests = self._planned.get((source, convention, workload), ())
        return [*build_requests(gate), *planned_requests] if self.is_updating or not self._planned else planned_requests

    def export_reports(self, gates: Iterable[GateFile]) -> None:
        """Export the nsys reports among the traces, as reading them would, while the terminal can still show progress.

        Errors are ignored here: the items export again and report them.
        """
        from pytest_nsys.traces.nsys.export_cache import find_or_write_export
        from pytest_nsys.traces.trace_files import REPORT_SUFFIXES, find_traces

        for gate in gates:
            with contextlib.suppress(NsysError):
                head_source = self.sources.find_trace_source(gate)
                sources = (head_source, *(self.sources.find_base_sources(gate) or ())[:1])
                paths = [
                    path for source in sources for value in source.paths for path in find_traces(value, source.folder)
                ]
                for path in (path for path in paths if path.suffix in REPORT_SUFFIXES):
                    find_or_write_export(path.resolve())

    def find_baseline_folder(self, gate_path: Path) -> Path:
        """Return the folder of the baselines: that of the option or ini key, else the nearest ``baselines/`` above the
        gate file.

        If there is none, it is ``baselines/`` in the root directory.
        """
        setting, base = read_setting_and_folder(self.config, "nsys_baseline_dir")
        if setting:
            baseline_folder, judged_tree = normalize_path(base / setting), self.judged_tree
            is_outside_tree = (
                judged_tree is not None
                and base.is_relative_to(judged_tree.base_tree)
                and not baseline_folder.is_relative_to(judged_tree.base_tree)
            )
            return normalize_path(self._find_in_work_tree(base) / setting) if is_outside_tree else baseline_folder
        for folder in gate_path.parents:
            if (folder / BASELINE_FOLDER_NAME).is_dir():
                return folder / BASELINE_FOLDER_NAME
            if (folder / ".git").exists():
                break
        return self.config.rootpath / BASELINE_FOLDER_NAME

    def get_context(self, gate: GateFile) -> GateContext:
        """Return the context (captures, baselines) for judging a gate file, opened once. Raises UsageMistake,
        TraceError.
        """
        if gate.address not in self._contexts:
            gate = self.resolve_gate(gate)
            convention = gate.resolved_convention
            captures = self.open_captures(gate)
            # Imported only if there is a trace to read.
            from pytest_nsys.analysis.captures.cache import check_distinct_runs
            from pytest_nsys.gates.hiccups import leave_out_hiccup
            from pytest_nsys.verdicts.evaluate import GateContext
            from pytest_nsys.verdicts.references import OtherRun, PastRuns
            from pytest_nsys.verdicts.stored_baseline import StoredBaseline

            all_paths, captures = captures.paths, leave_out_hiccup(captures, gate)
            store = self.open_store(gate)
            ref = self.config.getoption("nsys_baseline_ref") or ""
            ref = ref if self.judged_tree is None else self.judged_tree.ref
            past_runs = PastRuns(captures, gate, store.gate, self.history_path, self.format_path, ref)
            if base_sources := self.sources.find_base_sources(gate):
                requests = self._select_requests(self.sources.find_sources(gate)[0], convention, gate.workload, gate)
                base_captures = self._open_captures(*base_sources, convention, gate.workload, requests)
                check_distinct_runs(all_paths, base_captures.paths)
                base_captures = leave_out_hiccup(base_captures, gate)
                name = ", ".join(base_sources[0].paths or base_sources[1].paths)
                other_run = OtherRun(captures, gate, base_captures, name)
                self._contexts[gate.address] = GateContext(
                    captures, gate, other_run, past_runs, folder=gate.path.parent
                )
            else:
                prune_command = self._format_baseline_command("prune", self.format_path(gate.path))
                branch_store = self._find_branch_store(store)
                stored_baseline = StoredBaseline(
                    captures, gate, store, self.format_path, prune_command, self.library, branch_store
                )
                self._contexts[gate.address] = GateContext(
                    captures,
                    gate,
                    stored_baseline,
                    past_runs,
                    self.format_refresh_command(gate),
                    gate.path.parent,
                    self._is_accepted_green,
                )
        return self._contexts[gate.address]

    def reopen_context(self, gate: GateFile) -> GateContext:
        """Return a new context of a gate file, with the baselines as stored now. Raises NsysError."""
        self._contexts.pop(gate.address, None)
        return self.get_context(gate)

    def open_store(self, gate: GateFile) -> BaselineStore:
        """Return the baseline store of a gate file."""
        from pytest_nsys.stored.baselines.store import find_store

        folder, path, root = self.find_baseline_folder(gate.path), gate.path, self.config.rootpath
        if self.judged_tree is not None and not folder.is_relative_to(
            self.judged_tree.base_tree
        ):  # it names the work tree
            path, root = self._find_in_work_tree(path), self._find_in_work_tree(root)
        return find_store(path, folder, root, gate.configuration)

    def _find_branch_store(self, store: BaselineStore) -> BaselineStore | None:
        """Return the store of the baselines that the branch has committed in place of the merge base's.

        None if the session does not judge for a merge base.
        """
        judged_tree = self.judged_tree
        if judged_tree is None or not store.folder.is_relative_to(judged_tree.base_tree):
            return None
        return replace(store, folder=judged_tree.branch_tree / store.folder.relative_to(judged_tree.base_tree))

    @property
    def _is_accepted_green(self) -> bool:
        """Whether failures that the branch accepted by a refresh with a reason pass, according to the merge base's ini
        file.
        """
        return self.judged_tree is not None and self.config.getini("nsys_accepted") == "pass"

    def _format_baseline_command(self, command: str, gate: str, *run_options: str) -> str:
        baseline_dir = self.config.getoption("nsys_baseline_dir")
        baseline_dir = (
            baseline_dir and self.format_path(Path(baseline_dir)) if self.judged_tree is not None else baseline_dir
        )
        words = ["pytest-nsys", "baseline", command, gate, *run_options]
        return quote_command([*words, *([f"--baseline-dir={baseline_dir}"] if baseline_dir else [])])

    def format_refresh_command(self, gate: GateFile, item_name: str = "") -> str:
        """Return the command that makes the judged run the baseline of a gate file, or of one of its items alone."""
        options = (("trace", "nsys_trace"), ("measurements", MEASUREMENTS_SETTING))
        prefix, is_judged = format_option_prefix(gate), self.judged_tree is not None
        run_options = [
            f"--{option}={prefix}{self.format_path(Path(value)) if is_judged else value}"
            for option, setting in options
            for value in self.sources.list_typed_paths(setting, gate)
        ]
        address = f"{self.format_path(gate.path)}::{item_name}" if item_name else self.format_gate(gate)
        return self._format_baseline_command("refresh", address, *run_options) + ' --reason "…"'

    def format_artifact_command(self, gate: GateFile) -> str:
        """Return the command that writes the windows of a gate file's failures for Perfetto; empty where the session
        judges for a merge base, whose files are gone when it ends.
        """
        if self.judged_tree is not None:
            return ""
        prefix = format_option_prefix(gate)
        settings = (SETTINGS[name] for name in ("nsys_trace", "nsys_against", MEASUREMENTS_SETTING))
        options = [
            f"{setting.option}={prefix}{value}"
            for setting in settings
            for value in self.sources.list_typed_paths(setting.name, gate)
        ]
        return quote_command(["pytest", self.format_path(gate.path), *options, "--nsys-artifacts=windows"])

    def format_look_command(self, gate: GateFile, verdict: Verdict, view: str, rank: int | None) -> str:
        """Return the command that shows the window that explains a verdict, in the given view.

        The convention of the gate file is resolved.
        """
        convention, traces, examined_window = gate.resolved_convention, self.list_traces(gate), verdict.examined_window
        spec = resolve_window_spec(convention, verdict.assertion) if examined_window is None else examined_window.spec
        captures = self.get_context(gate).captures
        if captures.capture_count > 1:
            capture = captures.capture_indexes[
                examined_window.capture if examined_window is not None and len(traces) == captures.capture_count else 0
            ]
            traces = traces[capture : capture + 1]
        output_options = ["--format", "perfetto", "-o", "window.json.gz"]
        arguments = [CUT, *traces, *output_options] if view == CUT else [*traces, "--view", view]
        words = ["pytest-nsys", *(["show"] if view != CUT and traces[0].isalpha() else []), *arguments]
        words += ["--rank", str(rank)] if rank is not None else []
        words += self._list_reading_options(gate)
        if view in ONE_WINDOW_VIEWS and spec.window == STEADY:
            spec = replace(
                spec,
                window=MEDIAN
                if examined_window is None or examined_window.anchor_index is None
                else str(examined_window.anchor_index),
            )
        window = spec.option_text
        stated_options = list_stated_options(gate.workload, view)
        words += ["--window", window] if window != MEDIAN or "--steps" in stated_options else []
        words += stated_options
        words += ["--gate", self.format_gate(gate)] if view == "pipeline" else []
        ignores_modes = spec.is_whole_run or spec.explicit_span_ns
        words += ["--span", str(spec.span)] if spec.span is not convention.span and not ignores_modes else []
        words += (
            ["--kernels", str(spec.kernels)] if spec.kernels is not convention.kernels and not ignores_modes else []
        )
        return quote_command(words)

    def _list_reading_options(self, gate: GateFile) -> list[str]:
        """List the options with which a command reads the traces like the gate file; empty if it does so by default."""
        convention, found_convention = gate.resolved_convention, gate.found_convention
        if convention.kernel_anchor is not None and found_convention is not None and found_convention.where != "trace":
            return ["--anchor", format_anchor(convention.kernel_anchor)]
        convention_options = ["--convention", self.format_gate(gate)]
        if convention.kernel_anchor is not None and found_convention is None:  # a written anchor needs no search
            return convention_options
        with contextlib.suppress(NsysError):
            return (
                convention_options
                if convention != self.library.choose_convention(*self.sources.find_trace_source(gate)).convention
                else []
            )
        return convention_options

    def format_path(self, path: Path) -> str:
        """Return a path as a person would type it from where pytest was started."""
        path, start_folder, root = map(self._find_in_work_tree, (path, self.start_folder, self.config.rootpath))
        if path.is_relative_to(start_folder):
            return str(path.relative_to(start_folder))
        top_folder = list_folders_up(start_folder, root)[-1]
        return os.path.relpath(path, start_folder) if path.is_relative_to(top_folder) else str(path)

    def format_gate(self, gate: GateFile) -> str:
        """Return a gate file as a person would type it, with the configuration if it has one."""
        return str(GateAddress(self.format_path(gate.path), gate.configuration))

    def close(self) -> None:
        """Close the traces that were opened."""
        if "library" in vars(self):
            self.library.close()

    def explain_error(self, error: NsysError) -> str:
        """Return the text of an error, which also says how several captures are given: one option for each."""
        if not isinstance(error, SeveralCaptures):
            return str(error)
        option = "--trace" if self.config.stash.get(ACCEPTANCE, None) is not None else "--nsys-trace"
        return f"{error}, or each capture by its own {option}"

    def format_message(self, text: str) -> str:
        """Return a message with its paths shortened by :meth:`format_path`."""
        if self.judged_tree is not None:
            text = text.replace(str(self.judged_tree.base_tree), str(self.judged_tree.top))
        return shorten_paths(text, *map(self._find_in_work_tree, (self.start_folder, self.config.rootpath)))


NSYS_SESSION = pytest.StashKey[NsysSession]()


def get_nsys_session(config: pytest.Config) -> NsysSession:
    """Return the state of this pytest session, created on the first call."""
    if NSYS_SESSION not in config.stash:
        # At exit Python collects garbage several times, which takes a fifth of a small gate's time.
        atexit.unregister(gc.freeze)
        atexit.register(gc.freeze)
        config.stash[NSYS_SESSION] = NsysSession(config)
        config.add_cleanup(config.stash[NSYS_SESSION].close)
    return config.stash[NSYS_SESSION]
