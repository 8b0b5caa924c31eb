"""What does a drafted gate file say of the trace that it was drafted from? Judged before anybody relies on it.

The file that is announced passes on its trace: a sentence that does not is left out, and told of.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.core.errors import NothingMeasured, NsysError
from pytest_nsys.gates.absence import absences, excuse
from pytest_nsys.gates.assertion import GateFile
from pytest_nsys.gates.gate_file import loads_gate_file
from pytest_nsys.gates.requests import spec_for
from pytest_nsys.gates.verdict import Outcome
from pytest_nsys.reports.session.gate_text import Draft, gate_text
from pytest_nsys.stored.baselines.store import BaselineStore, store_of
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from pytest_nsys.verdicts.references import StoredBaseline
from pytest_nsys.verdicts.refresh import Refresh, Written
from pytest_nsys.verdicts.refresh_modes import Mode

REASON = "first baseline by pytest-nsys init"


@dataclass(frozen=True)
class Left:
    """A sentence that was left out, and what it said of its own trace."""

    title: str
    why: str


def store_rows(gate: GateFile, captures: Captures, store: BaselineStore, reason: str = REASON) -> Written | None:
    """Write the baselines of a gate file as a refresh does; None where it has none. Raises BaselineError."""
    wanted = [assertion for assertion in gate.assertions if assertion.reads_stored]
    if not wanted:
        return None
    refresh = Refresh(gate, GateContext(captures, gate, StoredBaseline(captures, gate, store)), reason, Mode.ALL)
    refresh.wanted += wanted
    return refresh.write()


def judged(gate: GateFile, captures: Captures, store: BaselineStore) -> dict[int, str]:
    """What is wrong with each assertion, by its place; nothing where all pass without a warning."""
    context = GateContext(captures, gate, StoredBaseline(captures, gate, store))
    found: dict[int, str] = {}
    for place, assertion in enumerate(gate.assertions):
        try:
            verdict = evaluate(assertion, context)
        except NsysError as error:
            found[place] = str(error)
            continue
        if verdict.outcome is not Outcome.PASSED or verdict.warnings:
            found[place] = f"{verdict.outcome}: {verdict.warnings[0] if verdict.warnings else verdict.message}"
    return found


def checked(draft: Draft, evidence_of: Callable[[GateFile], Captures], name: str) -> tuple[Draft, list[Left]]:
    """The draft with the sentences that pass on their trace, and those that do not.

    Raises NothingMeasured where none does.
    """
    left: list[Left] = []
    draft = _excused(draft, evidence_of, name)
    while draft.sentences:
        wrong = _wrong(draft, evidence_of, name)
        if not wrong:
            return draft, left
        left += [Left(draft.sentences[place].title, why) for place, why in wrong.items()]
        kept = tuple(s for place, s in enumerate(draft.sentences) if place not in wrong)
        draft = replace(draft, sentences=kept)
    raise NothingMeasured(f"nothing can be judged on this trace: {left[0].why if left else 'it has no rows'}")


def _excused(draft: Draft, evidence_of: Callable[[GateFile], Captures], name: str) -> Draft:
    """The draft, which lets those ranks lack rows that do."""
    found = []
    gate = loads_gate_file(gate_text(draft), METRICS, path=Path(name))
    captures = evidence_of(gate)
    for assertion in gate.assertions:
        with contextlib.suppress(NsysError):  # the judgement of the draft tells of it
            table = captures.rows(METRICS[assertion.metric], spec_for(captures.convention, assertion))
            found += absences(table, assertion.where)
    return replace(draft, allow_missing=excuse(found)) if found else draft


def _wrong(draft: Draft, evidence_of: Callable[[GateFile], Captures], name: str) -> dict[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve() / name
        gate = loads_gate_file(gate_text(draft), METRICS, path=path)
        captures = evidence_of(gate)
        store = store_of(path, path.parent / "baselines", path.parent)
        store_rows(gate, captures, store)
        return judged(gate, captures, store)
