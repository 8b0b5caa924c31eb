"""Where a gate file's trace, baselines and commands come from in one pytest session, and what is shared by its items.

Command line over gate file over ini file. Each value of ``--nsys-trace`` is one run; several are captures.
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
"""What is read, as what, and what is stated of it."""


@dataclass
class NsysSession:
    """State of one pytest session; on each xdist worker one of its own."""

    config: pytest.Config
    _traces: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _contexts: dict[str, GateContext] = field(default_factory=dict)
    _resolved: dict[tuple[str, Anchor | None], GateFile] = field(default_factory=dict)
    _shows_progress: bool = False
    _chosen: Sequence[tuple[GateFile, Sequence[Assertion]]] = ()

    @cached_property
    def sources(self) -> Sources:
        """What names the traces."""
        return Sources(self.config, self.shown)

    @cached_property
    def library(self) -> CaptureCache:
        """The runs of the session."""
        from pytest_nsys.analysis.captures.cache import CaptureCache

        return CaptureCache(self._opening)

    def _opening(self, paths: Sequence[Path], *asked: Any) -> Callable[[Path], Trace]:
        """What opens the traces of a run: several are read ahead, where that is worth while."""
        if len(paths) == 1:
            from pytest_nsys.traces.opening import open_trace

            return open_trace
        from pytest_nsys.analysis.captures.parallel import ReadAhead

        return ReadAhead(given(self.config, "nsys_executor"), self._shows_progress)(paths, *asked)

    @property
    def here(self) -> Path:
        """Where pytest was started."""
        return self.config.invocation_params.dir

    @property
    def judged_tree(self) -> WorkTree | None:
        """What is judged where a merge base judges; None in an ordinary session."""
        return self.config.stash.get(JUDGED_TREE, None)

    def _in_work_tree(self, path: Path) -> Path:
        """Where a person has a file: of one of the merge base the place in the work tree."""
        return path if self.judged_tree is None else self.judged_tree.find(path)

    @property
    def updating(self) -> bool:
        """Whether rows are written instead of judged."""
        return self.sources.updating

    @property
    def history(self) -> Path | None:
        """The database of the history, None where none is named."""
        return path_of(self.config, "nsys_history")

    def traces(self, gate: GateFile) -> tuple[str, ...]:
        """The captures of a gate file as a person would type them, else its measurements; else empty."""
        if gate.address not in self._traces:
            try:
                source, beside = self.sources.both(gate)
            except UsageMistake:
                return ()
            self._traces[gate.address] = self._typed(source if source.values else beside)
        return self._traces[gate.address]

    def measured_in(self, gate: GateFile) -> tuple[str, ...]:
        """The measurements beside the traces of a gate file that judges them, as a person would type them."""
        if all(assertion.outside is None for assertion in gate.assertions):
            return ()
        source, beside = self.sources.both(gate)
        return self._typed(beside) if source.values else ()

    def _typed(self, source: Source) -> tuple[str, ...]:
        typed = source.base == self.here and self.judged_tree is None  # a judge is given whole paths
        return tuple(v if typed else self.shown(plain(source.base / v)) for v in source.values)

    def resolved(self, gate: GateFile, anchor: Anchor | None = None) -> GateFile:
        """The gate file with its convention, which is found where it is ``auto``. Raises UsageMistake, TraceError.

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
            against = base[0] if base is not None and base[0].values else None
            self._resolved[gate.address, anchor] = resolved(
                gate,
                partial(self.library.fitting, *source, anchor),
                partial(self.library.fitting, *against, anchor) if against is not None else None,
                self.store(gate) if any(each.reads_stored for each in gate.assertions) else None,
                renewing=self.updating,
            )
        found = self._resolved[gate.address, anchor]
        return replace(gate, convention=found.convention, found=found.found)

    def captures(self, gate: GateFile) -> Captures:
        """The opened captures of a gate file whose convention is resolved. Raises UsageMistake, TraceError."""
        (source, beside), chosen = self.sources.both(gate), gate.resolved_convention
        return self._opened(source, beside, chosen, gate.workload, self._requests(source, chosen, gate.workload, gate))

    def _opened(
        self, traces: Source, beside: Source, convention: Convention, workload: Workload, requests: Sequence[Request]
    ) -> Captures:
        from pytest_nsys.traces.measurements import measurements_of

        files = measurements_of(beside.values, beside.base)
        return self.library.captures(traces.values, traces.base, convention, workload, requests, files)

    def plan(self, judged: Iterable[tuple[GateFile, Assertion]]) -> None:
        """These assertions will be judged: what they ask of one run is read at once."""
        chosen: dict[str, tuple[GateFile, list[Assertion]]] = {}
        for gate, assertion in judged:
            chosen.setdefault(gate.address, (gate, []))[1].append(assertion)
        self._chosen = [*chosen.values()]
        self.__dict__.pop("_planned", None)

    @cached_property
    def _planned(self) -> dict[Run, Sequence[Request]]:
        """What will be asked of each run, once the conventions are known."""
        planned: dict[Run, dict[Request, None]] = {}
        for gate, assertions in self._chosen:
            with contextlib.suppress(NsysError):  # said by the items
                own = self.resolved(gate)
                run = self.sources.traces(own), own.resolved_convention, own.workload
                planned.setdefault(run, {}).update(dict.fromkeys(requests_of(own, assertions)))
        return {run: tuple(requests) for run, requests in planned.items()}

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
        """What is planned of a run under a convention; a refresh looks at every assertion of a gate file."""
        planned = self._planned.get((source, convention, workload), ())
        return [*requests_of(gate), *planned] if self.updating or not self._planned else planned

    def export_reports(self, gates: Iterable[GateFile]) -> None:
        """Export the reports among the traces, as their readers would, while the terminal can show how far it is.

        What goes wrong is told by the items, which read them again.
        """
        from pytest_nsys.traces.nsys.exports import exported
        from pytest_nsys.traces.opening import REPORTS, find_traces

        for gate in gates:
            with contextlib.suppress(NsysError):
                now = self.sources.traces(gate)
                sources = (now, *(self.sources.base(gate) or ())[:1])
                paths = [path for s in sources for value in s.values for path in find_traces(value, s.base)]
                for path in (path for path in paths if path.suffix in REPORTS):
                    exported(path.resolve())

    def baseline_folder(self, gate_path: Path) -> Path:
        """Option, ini key, else the nearest ``baselines/`` above the gate file, else one in the root directory."""
        asked, base = in_force(self.config, "nsys_baseline_dir")
        if asked:
            inside, judged = plain(base / asked), self.judged_tree
            outside = judged is not None and base.is_relative_to(judged.tree) and not inside.is_relative_to(judged.tree)
            return plain(self._in_work_tree(base) / asked) if outside else inside
        for folder in gate_path.parents:
            if (folder / BASELINES).is_dir():
                return folder / BASELINES
            if (folder / ".git").exists():
                break
        return self.config.rootpath / BASELINES

    def context(self, gate: GateFile) -> GateContext:
        """What the assertions of a gate file are judged with. Raises UsageMistake, TraceError."""
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
            past = PastRuns(captures, gate, store.gate, self.history, self.shown, ref)
            if other := self.sources.base(gate):
                requests = self._requests(self.sources.both(gate)[0], convention, gate.workload, gate)
                before = self._opened(*other, convention, gate.workload, requests)
                check_two_runs(all_paths, before.paths)
                before = leave_out_hiccup(before, gate)
                name = ", ".join(other[0].values or other[1].values)
                held = OtherRun(captures, gate, before, name)
                self._contexts[gate.address] = GateContext(captures, gate, held, past, folder=gate.path.parent)
            else:
                prune = self._baseline_command("prune", self.shown(gate.path))
                branch = self._refreshed_store(store)
                stored = StoredBaseline(captures, gate, store, self.shown, prune, self.library, branch)
                self._contexts[gate.address] = GateContext(
                    captures, gate, stored, past, self.refresh_command(gate), gate.path.parent, self._lets_accepted_pass
                )
        return self._contexts[gate.address]

    def looked_at_again(self, gate: GateFile) -> GateContext:
        """The same for a gate file, held against what is stored now. Raises NsysError."""
        self._contexts.pop(gate.address, None)
        return self.context(gate)

    def store(self, gate: GateFile) -> BaselineStore:
        from pytest_nsys.stored.baselines.store import store_of

        folder, path, root = self.baseline_folder(gate.path), gate.path, self.config.rootpath
        if self.judged_tree is not None and not folder.is_relative_to(self.judged_tree.tree):  # it names the work tree
            path, root = self._in_work_tree(path), self._in_work_tree(root)
        return store_of(path, folder, root, gate.configuration)

    def _refreshed_store(self, store: BaselineStore) -> BaselineStore | None:
        """The baselines that the branch has committed in the place of those of the merge base; None where nothing is
        judged for one.
        """
        judged = self.judged_tree
        if judged is None or not store.folder.is_relative_to(judged.tree):
            return None
        return replace(store, folder=judged.branch / store.folder.relative_to(judged.tree))

    @property
    def _lets_accepted_pass(self) -> bool:
        """Whether what the branch refreshed with a reason is green: the ini file of the merge base says it."""
        return self.judged_tree is not None and self.config.getini("nsys_accepted") == "pass"

    def _baseline_command(self, command: str, gate: str, *run: str) -> str:
        given = self.config.getoption("nsys_baseline_dir")
        given = given and self.shown(Path(given)) if self.judged_tree is not None else given
        words = ["pytest-nsys", "baseline", command, gate, *run]
        return typed([*words, *([f"--baseline-dir={given}"] if given else [])])

    def refresh_command(self, gate: GateFile) -> str:
        """What a person types to make the present run the baseline of a gate file."""
        asked = (("trace", "nsys_trace"), ("measurements", MEASUREMENTS))
        run = [
            f"--{option}={prefix(gate)}{value if self.judged_tree is None else self.shown(Path(value))}"
            for option, setting in asked
            for value in self.sources.typed(setting, gate)
        ]
        return self._baseline_command("refresh", self.shown_gate(gate), *run) + ' --reason "…"'

    def look_command(self, gate: GateFile, verdict: Verdict, view: str, rank: int | None) -> str:
        """What a person types to look into the trace behind a verdict, at the window that explains it. The convention
        of the gate file is resolved.
        """
        convention, traces, at = gate.resolved_convention, self.traces(gate), verdict.looked_at
        spec = spec_for(convention, verdict.assertion) if at is None else at.spec
        captures = self.context(gate).captures
        if captures.taken > 1:
            capture = captures.places[at.capture if at is not None and len(traces) == captures.taken else 0]
            traces = traces[capture : capture + 1]
        drawn = ["--format", "perfetto", "-o", "window.json.gz"]
        asked = [CUT, *traces, *drawn] if view == CUT else [*traces, "--view", view]
        words = ["pytest-nsys", *(["show"] if view != CUT and traces[0].isalpha() else []), *asked]
        words += ["--rank", str(rank)] if rank is not None else []
        words += self._read_alike(gate)
        if view in OF_ONE_WINDOW and spec.window == STEADY:
            spec = replace(spec, window=MEDIAN if at is None or at.number is None else str(at.number))
        window = spec.typed
        stated = options_of(gate.workload, view)
        words += ["--window", window] if window != MEDIAN or "--steps" in stated else []
        words += stated
        words += ["--gate", self.shown_gate(gate)] if view == "pipeline" else []
        as_it_is = spec.whole_run or spec.explicit
        words += ["--span", str(spec.span)] if spec.span is not convention.span and not as_it_is else []
        words += ["--kernels", str(spec.kernels)] if spec.kernels is not convention.kernels and not as_it_is else []
        return typed(words)

    def _read_alike(self, gate: GateFile) -> list[str]:
        """The options by which a command reads the traces as the gate file does; none where it does by itself."""
        convention, found = gate.resolved_convention, gate.found
        if convention.kernel_anchor is not None and found is not None and found.where != "trace":
            return ["--anchor", written_anchor(convention.kernel_anchor)]
        named = ["--convention", self.shown_gate(gate)]
        if convention.kernel_anchor is not None and found is None:  # nobody searches for what is written
            return named
        with contextlib.suppress(NsysError):
            return named if convention != self.library.fitting(*self.sources.traces(gate)).convention else []
        return named

    def shown(self, path: Path) -> str:
        """A path as a person would type it from where pytest was started."""
        path, here, root = map(self._in_work_tree, (path, self.here, self.config.rootpath))
        if path.is_relative_to(here):
            return str(path.relative_to(here))
        top = folders_up(here, root)[-1]
        return os.path.relpath(path, here) if path.is_relative_to(top) else str(path)

    def shown_gate(self, gate: GateFile) -> str:
        """A gate file as a person would type it, with its configuration where it is one."""
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
        """A message with its paths as :meth:`shown` has them."""
        if self.judged_tree is not None:
            text = text.replace(str(self.judged_tree.tree), str(self.judged_tree.top))
        return from_here(text, *map(self._in_work_tree, (self.here, self.config.rootpath)))


SESSION = pytest.StashKey[NsysSession]()


def session_of(config: pytest.Config) -> NsysSession:
    """The state of this pytest session, made when first asked for."""
    if SESSION not in config.stash:
        # At its exit Python looks through all modules for garbage, several times: a fifth of a small gate's time.
        atexit.unregister(gc.freeze)
        atexit.register(gc.freeze)
        config.stash[SESSION] = NsysSession(config)
        config.add_cleanup(config.stash[SESSION].close)
    return config.stash[SESSION]
