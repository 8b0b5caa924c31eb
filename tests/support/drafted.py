"""What does a drafted gate say of a trace, and of the same trace with a fault in it? Judged without a pytest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.windows.window_selection import RUN
from pytest_nsys.cli.init import DraftTraces, draft_gate, store_rows
from pytest_nsys.core.errors import NsysError
from pytest_nsys.drafting.gate_text import render_gate_file
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.model import GateFile, Outcome
from pytest_nsys.reports.session.headline import format_headline
from pytest_nsys.reports.session.record import AssertionRecord, make_record
from pytest_nsys.reports.session.session import Session
from pytest_nsys.reports.session.story import sort_by_severity
from pytest_nsys.stored.baselines.store import BaselineStore, find_store
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from pytest_nsys.verdicts.gate_windows import pack_gate_windows
from pytest_nsys.verdicts.stored_baseline import StoredBaseline
from tests.support.injections import FAULTS, Tape, tape

ERROR = "error"
"""No window is left to judge, or anchors have no kernel."""


class Judged(NamedTuple):
    """What was said of a run that is worse: the records that failed, the worst first, and the sentence of all."""

    red: Sequence[AssertionRecord]
    sentence: str


@dataclass(frozen=True)
class Drafted:
    """A trace, the gate file that ``init`` drafted for it, and its baseline."""

    trace: Path
    gate: GateFile
    store: BaselineStore

    @classmethod
    def of(cls, trace: Path, folder: Path, more: Sequence[str] = ()) -> Drafted:
        """What ``init`` drafts, of which nothing was left out, and more sentences."""
        path = folder / "gates.nsys.yaml"
        with contextlib.closing(CaptureCache()) as library:
            draft, left = draft_gate(DraftTraces(library, (str(trace),)), path)
            assert left == []
            path.write_text(
                "".join([render_gate_file(draft), *(f"  - {sentence}\n" for sentence in more)]), encoding="utf-8"
            )
            gate = load_gate_file(path)
            store = find_store(path, folder / "baselines", folder)
            store_rows(
                gate,
                library.open_captures([str(trace)], folder, gate.resolved_convention),
                store,
                keep=pack_gate_windows,
            )
        return cls(trace, gate, store)

    def tape(self) -> Tape:
        if self.gate.window == RUN:
            return tape(self.trace)
        with contextlib.closing(CaptureCache()) as library:
            convention = self.gate.resolved_convention
            return tape(self.trace, library.open_captures([str(self.trace)], self.trace.parent, convention).runs[0])

    def judged(self, trace: Path) -> dict[str, Outcome]:
        """How each sentence ends, by its metric, of several the one that does not pass; a warning is no *passed*."""
        found: dict[str, Outcome] = {}
        with self._context(trace) as context:
            for assertion in self.gate.assertions:
                outcome = Outcome.ERROR
                with contextlib.suppress(NsysError):
                    verdict = evaluate(assertion, context)
                    warned = verdict.outcome is Outcome.PASSED and verdict.warnings
                    outcome = Outcome.INCONCLUSIVE if warned else verdict.outcome
                if found.get(assertion.metric, Outcome.PASSED) is Outcome.PASSED:
                    found[assertion.metric] = outcome
        return found

    def told(self, trace: Path) -> Judged:
        """What a report leads with."""
        with self._context(trace) as context:
            records = [make_record(evaluate(assertion, context), "run") for assertion in self.gate.assertions]
        red = [record for record in sort_by_severity(records) if record.outcome is Outcome.FAILED]
        return Judged(red, format_headline(Session(records=tuple(records))))

    @contextlib.contextmanager
    def _context(self, trace: Path) -> Iterator[GateContext]:
        with contextlib.closing(CaptureCache()) as library:
            captures = library.open_captures([str(trace)], trace.parent, self.gate.resolved_convention)
            yield GateContext(
                captures, self.gate, StoredBaseline(captures, self.gate, self.store, capture_cache=library)
            )

    def red(self, fault: str, folder: Path) -> set[str]:
        """The metrics of the sentences that are red with the fault, and ERROR where one is none to judge."""
        on = self.tape()
        FAULTS[fault](on)
        found = self.judged(on.write(folder / "run"))
        red = {metric for metric, outcome in found.items() if outcome not in (Outcome.PASSED, Outcome.IMPROVED)}
        return red | ({ERROR} if Outcome.ERROR in found.values() else set())
