"""Where do a gate file's trace, baselines and commands come from in one pytest session, and what do its items share?

The command line counts before the gate file, and that before the ini file. Each value of ``--nsys-trace`` is one run;
several are captures.
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

from pytest_nsys.analysis.metrics.registry import CUT, OF_ONE_WINDOW, Request
from pytest_nsys.analysis.windows.spans import MEDIAN, STEADY
from pytest_nsys.core.conventions import BUILT_IN, Anchor, Convention, written_anchor
from pytest_nsys.core.errors import NsysError, SeveralCaptures, UsageMistake
from pytest_nsys.core.file_names import Address
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.words import folders_up, from_here, typed
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.model import Assertion, GateFile, Verdict, requests_of, spec_for
from pytest_nsys.gates.workload_keys import options_of
from pytest_nsys.plugin.settings import ACCEPTANCE, JUDGED_TREE, WorkTree, given, in_force, path_of
from pytest_nsys.plugin.sources import MEASUREMENTS, Source, Sources, plain, prefix

if TYPE_CHECKING:
    from pytest_nsys.analysis.captures.cache import CaptureCache
    from pytest_nsys.analysis.captures.captures import Captures
    from pytest_nsys.stored.baselines.store import BaselineStore
    from pytest_nsys.verdicts.evaluate import GateContext

BASELINES = "baselines"
Run = tuple[Source, Convention, Workload]
"""Identifies a run that is read: its files, the convention, and the work that is stated of it."""


@dataclass
class NsysSession:
    """Holds the state of one pytest session; each xdist worker has its own."""

    config: pytest.Config
    _traces: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _contexts: dict[str, GateContext] = field(default_factory=dict)
    _resolved: dict[tuple[str, Anchor | None], GateFile] = field(default_factory=dict)
    _shows_progress: bool = False
    _chosen: Sequence[tuple[GateFile, Sequence[Assertion]]] = ()

    @cached_property
    def sources(self) -> Sources:
        """Return what names the traces."""
        return Sources(self.config, self.shown)

    @cached_property
    def library(self) -> CaptureCache:
        """Return the cache of opened runs of the session."""
        from pytest_nsys.analysis.captures.cache import CaptureCache

        return CaptureCache(self._opening)

    def _opening(self, paths: Sequence[Path], *arguments: Any) -> Callable[[Path], Trace]:
        """Return the function that opens a trace of a run; several traces are read ahead, where that is worth while."""
        if len(paths) == 1:
            from pytest_nsys.traces.opening import open_trace

            return open_trace
        from pytest_nsys.analysis.captures.parallel import ReadAhead

        return ReadAhead(given(self.config, "nsys_executor"), self._shows_progress)(paths, *arguments)

    @property
    def here(self) -> Path:
        """Return the folder in which pytest was started."""
        return self.config.invocation_params.dir

    @property
    def judged_tree(self) -> WorkTree | None:
        """Return what is judged where a merge base judges; None in an ordinary session."""
        return self.config.stash.get(JUDGED_TREE, None)

    def _in_work_tree(self, path: Path) -> Path:
        """Return where a person has a file: of one of the merge base the place in the work tree."""
        return path if self.judged_tree is None else self.judged_tree.find(path)

    @property
    def updating(self) -> bool:
        """Whether rows are written instead of judged."""
        return self.sources.updating

    @property
    def history(self) -> Path | None:
        """Return the database of the history; None where none is named."""
        return path_of(self.config, "nsys_history")

    def traces(self, gate: GateFile) -> tuple[str, ...]:
        """List the captures of a gate file as a person would type them, else its measurements; else nothing."""
        if gate.address not in self._traces:
            try:
                source, measurements = self.sources.both(gate)
            except UsageMistake:
                return ()
            self._traces[gate.address] = self._typed(source if source.values else measurements)
        return self._traces[gate.address]

    def measured_in(self, gate: GateFile) -> tuple[str, ...]:
        """List the measurements beside the traces of a gate file that judges them, as a person would type them."""
        if all(assertion.outside is None for assertion in gate.assertions):
            return ()
        source, measurements = self.sources.both(gate)
        return self._typed(measurements) if source.values else ()

    def _typed(self, source: Source) -> tuple[str, ...]:
        """Return the paths of a source as a person would type them."""
        is_as_typed = source.base == self.here and self.judged_tree is None  # a judge is given whole paths
        return tuple(value if is_as_typed else self.shown(plain(source.base / value)) for value in source.values)

    def resolved(self, gate: GateFile, anchor: Anchor | None = None) -> GateFile:
        """Return the gate file with its convention, which is found where it is ``auto``. Raises UsageMistake,
        TraceError.

        ``anchor`` is the pattern of one that is named.
        """
        if gate.convention is not None:
            return gate
        source, _ = self.sources.both(gate)
        if not source.values:  # measurements alone are read under none
            return replace(gate, convention=BUILT_IN["generic"])
        if (gate.address, anchor) not in self._resolved:
            from pytest_nsys.verdicts.evaluate import resolved

            base = self.sources.base(gate)
            base_traces = base[0] if base is not None and base[0].values else None
            self._resolved[gate.address, anchor] = resolved(
                gate,
                partial(self.library.fitting, *source, anchor),
                partial(self.library.fitting, *base_traces, anchor) if base_traces is not None else None,
                self.store(gate) if any(assertion.reads_stored for assertion in gate.assertions) else None,
                renewing=self.updating,
            )
        resolved_gate = self._resolved[gate.address, anchor]
        return replace(gate, convention=resolved_gate.convention, found=resolved_gate.found)

    def captures(self, gate: GateFile) -> Captures:
        """Return the opened captures of a gate file whose convention is resolved. Raises UsageMistake, TraceError."""
        (source, measurements), convention = self.sources.both(gate), gate.resolved_convention
        return self._opened(
            source, measurements, convention, gate.workload, self._requests(source, convention, gate.workload, gate)
        )

    def _opened(
        self, traces: Source, beside: Source, convention: Convention, workload: Workload, requests: Sequence[Request]
    ) -> Captures:
        from pytest_nsys.traces.measurements import measurements_of

        files = measurements_of(beside.values, beside.base)
        return self.library.captures(traces.values, traces.base, convention, workload, requests, files)

    def plan(self, judged: Iterable[tuple[GateFile, Assertion]]) -> None:
        """Record which assertions will be judged, so that what they ask of one run is read at once."""
        assertions_by_gate: dict[str, tuple[GateFile, list[Assertion]]] = {}
        for gate, assertion in judged:
            assertions_by_gate.setdefault(gate.address, (gate, []))[1].append(assertion)
        self._chosen = [*assertions_by_gate.values()]
        self.__dict__.pop("_planned", None)

    @cached_property
    def _planned(self) -> dict[Run, Sequence[Request]]:
        """Return what will be asked of each run, once the conventions are known."""
        requests_by_run: dict[Run, dict[Request, None]] = {}
        for gate, assertions in self._chosen:
            with contextlib.suppress(NsysError):  # said by the items
                resolved_gate = self.resolved(gate)
                run = self.sources.traces(resolved_gate), resolved_gate.resolved_convention, resolved_gate.workload
                requests_by_run.setdefault(run, {}).update(dict.fromkeys(requests_of(resolved_gate, assertions)))
        return {run: tuple(requests) for run, requests in requests_by_run.items()}

    def read(self, gates: Iterable[GateFile]) -> None:
        """Read ahead what the gate files ask for, while the terminal can show how far it is.

        What goes wrong is told by the items, which ask again.
        """
        from pytest_nsys.tools.executors import on_terminal

        self._shows_progress = self.config.get_verbosity() >= 0 and on_terminal(sys.stderr)
        for gate in gates:
            with contextlib.suppress(NsysError):
                self.context(gate)

    def _requests(
        self, source: Source, convention: Convention, workload: Workload, gate: GateFile
    ) -> Sequence[Request]:
        """Return what is planned of a run under a convention; a refresh looks at every assertion of a gate file."""
        planned_requests = self._planned.get((source, convention, workload), ())
        return [*requests_of(gate), *planned_requests] if self.updating or not self._planned else planned_requests

    def export_reports(self, gates: Iterable[GateFile]) -> None:
        """Export the reports among the traces, as their readers would, while the terminal can show how far it is.

        What goes wrong is told by the items, which read them again.
        """
        from pytest_nsys.traces.nsys.exports import exported
        from pytest_nsys.traces.opening import REPORTS, find_traces

        for gate in gates:
            with contextlib.suppress(NsysError):
                head_source = self.sources.traces(gate)
                sources = (head_source, *(self.sources.base(gate) or ())[:1])
                paths = [
                    path for source in sources for value in source.values for path in find_traces(value, source.base)
                ]
                for path in (path for path in paths if path.suffix in REPORTS):
                    exported(path.resolve())

    def baseline_folder(self, gate_path: Path) -> Path:
        """Return the folder of the baselines: of the option or ini key, else the nearest ``baselines/`` above the gate
        file.

        Where there is none it is the one in the root directory.
        """
        setting, base = in_force(self.config, "nsys_baseline_dir")
        if setting:
            baseline_folder, judged_tree = plain(base / setting), self.judged_tree
            is_outside_tree = (
                judged_tree is not None
                and base.is_relative_to(judged_tree.tree)
                and not baseline_folder.is_relative_to(judged_tree.tree)
            )
            return plain(self._in_work_tree(base) / setting) if is_outside_tree else baseline_folder
        for folder in gate_path.parents:
            if (folder / BASELINES).is_dir():
                return folder / BASELINES
            if (folder / ".git").exists():
                break
        return self.config.rootpath / BASELINES

    def context(self, gate: GateFile) -> GateContext:
        """Return what the assertions of a gate file are judged with, opened once. Raises UsageMistake, TraceError."""
        if gate.address not in self._contexts:
            gate = self.resolved(gate)
            convention = gate.resolved_convention
            captures = self.captures(gate)
            # Only what has a trace pays for what reads and judges it.
            from pytest_nsys.analysis.captures.cache import check_two_runs
            from pytest_nsys.gates.hiccups import leave_out_hiccup
            from pytest_nsys.verdicts.evaluate import GateContext
            from pytest_nsys.verdicts.references import OtherRun, PastRuns
            from pytest_nsys.verdicts.stored_baseline import StoredBaseline

            all_paths, captures = captures.paths, leave_out_hiccup(captures, gate)
            store = self.store(gate)
            ref = self.config.getoption("nsys_baseline_ref") or ""
            ref = ref if self.judged_tree is None else self.judged_tree.ref
            past_runs = PastRuns(captures, gate, store.gate, self.history, self.shown, ref)
            if base_sources := self.sources.base(gate):
                requests = self._requests(self.sources.both(gate)[0], convention, gate.workload, gate)
                base_captures = self._opened(*base_sources, convention, gate.workload, requests)
                check_two_runs(all_paths, base_captures.paths)
                base_captures = leave_out_hiccup(base_captures, gate)
                name = ", ".join(base_sources[0].values or base_sources[1].values)
                other_run = OtherRun(captures, gate, base_captures, name)
                self._contexts[gate.address] = GateContext(
                    captures, gate, other_run, past_runs, folder=gate.path.parent
                )
            else:
                prune_command = self._baseline_command("prune", self.shown(gate.path))
                branch_store = self._refreshed_store(store)
                stored_baseline = StoredBaseline(
                    captures, gate, store, self.shown, prune_command, self.library, branch_store
                )
                self._contexts[gate.address] = GateContext(
                    captures,
                    gate,
                    stored_baseline,
                    past_runs,
                    self.refresh_command(gate),
                    gate.path.parent,
                    self._lets_accepted_pass,
                )
        return self._contexts[gate.address]

    def looked_at_again(self, gate: GateFile) -> GateContext:
        """Return a new context of a gate file, with what is stored now. Raises NsysError."""
        self._contexts.pop(gate.address, None)
        return self.context(gate)

    def store(self, gate: GateFile) -> BaselineStore:
        """Return the store of the baselines of a gate file."""
        from pytest_nsys.stored.baselines.store import store_of

        folder, path, root = self.baseline_folder(gate.path), gate.path, self.config.rootpath
        if self.judged_tree is not None and not folder.is_relative_to(self.judged_tree.tree):  # it names the work tree
            path, root = self._in_work_tree(path), self._in_work_tree(root)
        return store_of(path, folder, root, gate.configuration)

    def _refreshed_store(self, store: BaselineStore) -> BaselineStore | None:
        """Return the baselines that the branch has committed in the place of those of the merge base.

        None where nothing is judged for a merge base.
        """
        judged_tree = self.judged_tree
        if judged_tree is None or not store.folder.is_relative_to(judged_tree.tree):
            return None
        return replace(store, folder=judged_tree.branch / store.folder.relative_to(judged_tree.tree))

    @property
    def _lets_accepted_pass(self) -> bool:
        """Whether what the branch refreshed with a reason is green: the ini file of the merge base says it."""
        return self.judged_tree is not None and self.config.getini("nsys_accepted") == "pass"

    def _baseline_command(self, command: str, gate: str, *run: str) -> str:
        baseline_dir = self.config.getoption("nsys_baseline_dir")
        baseline_dir = baseline_dir and self.shown(Path(baseline_dir)) if self.judged_tree is not None else baseline_dir
        words = ["pytest-nsys", "baseline", command, gate, *run]
        return typed([*words, *([f"--baseline-dir={baseline_dir}"] if baseline_dir else [])])

    def refresh_command(self, gate: GateFile) -> str:
        """Return the command that makes the present run the baseline of a gate file."""
        options = (("trace", "nsys_trace"), ("measurements", MEASUREMENTS))
        run_options = [
            f"--{option}={prefix(gate)}{value if self.judged_tree is None else self.shown(Path(value))}"
            for option, setting in options
            for value in self.sources.typed(setting, gate)
        ]
        return self._baseline_command("refresh", self.shown_gate(gate), *run_options) + ' --reason "…"'

    def look_command(self, gate: GateFile, verdict: Verdict, view: str, rank: int | None) -> str:
        """Return the command that looks into the trace behind a verdict, at the window that explains it.

        The convention of the gate file is resolved.
        """
        convention, traces, examined_window = gate.resolved_convention, self.traces(gate), verdict.looked_at
        spec = spec_for(convention, verdict.assertion) if examined_window is None else examined_window.spec
        captures = self.context(gate).captures
        if captures.taken > 1:
            capture = captures.places[
                examined_window.capture if examined_window is not None and len(traces) == captures.taken else 0
            ]
            traces = traces[capture : capture + 1]
        output_options = ["--format", "perfetto", "-o", "window.json.gz"]
        arguments = [CUT, *traces, *output_options] if view == CUT else [*traces, "--view", view]
        words = ["pytest-nsys", *(["show"] if view != CUT and traces[0].isalpha() else []), *arguments]
        words += ["--rank", str(rank)] if rank is not None else []
        words += self._read_alike(gate)
        if view in OF_ONE_WINDOW and spec.window == STEADY:
            spec = replace(
                spec,
                window=MEDIAN
                if examined_window is None or examined_window.number is None
                else str(examined_window.number),
            )
        window = spec.typed
        stated_options = options_of(gate.workload, view)
        words += ["--window", window] if window != MEDIAN or "--steps" in stated_options else []
        words += stated_options
        words += ["--gate", self.shown_gate(gate)] if view == "pipeline" else []
        ignores_modes = spec.whole_run or spec.explicit
        words += ["--span", str(spec.span)] if spec.span is not convention.span and not ignores_modes else []
        words += (
            ["--kernels", str(spec.kernels)] if spec.kernels is not convention.kernels and not ignores_modes else []
        )
        return typed(words)

    def _read_alike(self, gate: GateFile) -> list[str]:
        """List the options by which a command reads the traces as the gate file does; none where it does by itself."""
        convention, found_convention = gate.resolved_convention, gate.found
        if convention.kernel_anchor is not None and found_convention is not None and found_convention.where != "trace":
            return ["--anchor", written_anchor(convention.kernel_anchor)]
        convention_options = ["--convention", self.shown_gate(gate)]
        if convention.kernel_anchor is not None and found_convention is None:  # nobody searches for what is written
            return convention_options
        with contextlib.suppress(NsysError):
            return (
                convention_options if convention != self.library.fitting(*self.sources.traces(gate)).convention else []
            )
        return convention_options

    def shown(self, path: Path) -> str:
        """Return a path as a person would type it from where pytest was started."""
        path, start_folder, root = map(self._in_work_tree, (path, self.here, self.config.rootpath))
        if path.is_relative_to(start_folder):
            return str(path.relative_to(start_folder))
        top_folder = folders_up(start_folder, root)[-1]
        return os.path.relpath(path, start_folder) if path.is_relative_to(top_folder) else str(path)

    def shown_gate(self, gate: GateFile) -> str:
        """Return a gate file as a person would type it, with its configuration where it is one."""
        return str(Address(self.shown(gate.path), gate.configuration))

    def close(self) -> None:
        """Close the traces that were opened."""
        if "library" in vars(self):
            self.library.close()

    def explain_error(self, error: NsysError) -> str:
        """Return the text of an error; files of several captures may be given here, each by an option of its own."""
        if not isinstance(error, SeveralCaptures):
            return str(error)
        option = "--trace" if self.config.stash.get(ACCEPTANCE, None) is not None else "--nsys-trace"
        return f"{error}, or each capture by its own {option}"

    def told(self, text: str) -> str:
        """Return a message with its paths as :meth:`format_path` has them."""
        if self.judged_tree is not None:
            text = text.replace(str(self.judged_tree.tree), str(self.judged_tree.top))
        return from_here(text, *map(self._in_work_tree, (self.here, self.config.rootpath)))


SESSION = pytest.StashKey[NsysSession]()


def session_of(config: pytest.Config) -> NsysSession:
    """Return the state of this pytest session, made when first asked for."""
    if SESSION not in config.stash:
        # At its exit Python looks through all modules for garbage, several times: a fifth of a small gate's time.
        atexit.unregister(gc.freeze)
        atexit.register(gc.freeze)
        config.stash[SESSION] = NsysSession(config)
        config.add_cleanup(config.stash[SESSION].close)
    return config.stash[SESSION]
