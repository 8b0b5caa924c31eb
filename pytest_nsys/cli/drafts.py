"""Which gate file is drafted for a trace? One that passes on it: a sentence that does not is left out, and told of."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

from pytest_nsys.analysis.capture_cache import CaptureCache
from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.run import Run
from pytest_nsys.core.conventions import BUILT_IN, Convention
from pytest_nsys.core.errors import NothingMeasured, NsysError, UsageMistake
from pytest_nsys.core.model import counted
from pytest_nsys.drafting.choice import GENERIC, Ask, Choice, choose, with_bounds, with_libraries, with_stages
from pytest_nsys.drafting.margins import Figures, written_ns
from pytest_nsys.drafting.sentences import draft_sentences, file_smallest_ns, file_tolerance
from pytest_nsys.gates.absence import absences, excuse
from pytest_nsys.gates.assertion import GateFile
from pytest_nsys.gates.choosing_convention import check_named
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

LABELLED = replace(GENERIC, setup=BUILT_IN["pithtrain"].setup)
"""What a trace is first opened under: the ranks of several files may be told apart by their labels alone."""


@dataclass(frozen=True)
class Left:
    """A sentence that was left out, and what it said of its own trace."""

    title: str
    why: str


@dataclass(frozen=True)
class Trial:
    """The traces, opened under one convention after the other."""

    library: CaptureCache
    traces: tuple[str, ...]

    def captures(self, convention: Convention) -> Captures:
        """The captures under a convention. Raises UsageMistake, TraceError."""
        return self.library.captures(self.traces, Path(), convention)

    def _run(self, convention: Convention) -> Run:
        return self.captures(convention).runs[0]

    def choose(self, given: Convention | None, ask: Ask) -> Choice:
        """How windows are found, by the first capture. Raises NothingMeasured."""
        check_named(self.traces)
        self._check_captures()
        choice = choose(self._run(LABELLED), self._run, given, ask)
        choice = with_libraries(choice, self._run(choice.convention))
        if given is None:
            choice = with_stages(choice, self._run)
        return with_bounds(choice, self._run(choice.convention))

    def _check_captures(self) -> None:
        ranks = [[rank.number for rank in run.ranks] for run in self.captures(LABELLED).runs]
        if any(own != ranks[0] for own in ranks):
            raise UsageMistake(
                f"the {len(ranks)} traces hold other ranks, so they are files of one run, not captures of one program: "
                "give their folder, or a glob in quotes"
            )


def drafted(
    trial: Trial, path: Path, given: Convention | None = None, ask: Ask = itemgetter(0)
) -> tuple[Draft, list[Left]]:
    """The gate file for the traces, which passes on them, and what was left out for that.

    ``path`` is where the file is to stand; ``ask`` picks one of several anchors, of which the first is the best.
    Raises NothingMeasured where nothing can be judged.
    """
    choice = trial.choose(given, ask)
    captures = trial.captures(choice.convention)
    captures.refuse_twins(choice.spec)
    figures = Figures(captures, choice.spec)
    draft = Draft(
        about=_about(figures, trial.traces),
        traces=_written_traces(trial.traces, path),
        choice=choice,
        tolerance=file_tolerance(figures),
        smallest=written_ns(file_smallest_ns(figures)),
        tolerance_why=_why_tolerance(figures),
        sentences=tuple(draft_sentences(figures)),
    )
    return checked(draft, lambda gate: trial.captures(gate.convention), path.name)


def _written_traces(traces: Sequence[str], path: Path) -> tuple[str, ...]:
    """The traces as the gate file names them; none where they lie far from it, or their names are no text."""
    found = []
    for trace in traces:
        relative = os.path.relpath(os.path.abspath(os.path.expanduser(trace)), path.parent)
        near = not relative.startswith(os.path.join("..", "..", ".."))
        if not near or not relative.isprintable() or relative != relative.strip():
            return ()
        found.append(relative)
    return tuple(found)


def _about(figures: Figures, traces: Sequence[str]) -> tuple[str, ...]:
    capture = figures.captures.runs[0]
    sizes = " ".join(f"{axis}={n}" for axis, n in figures.captures.mesh.sizes.items())
    gpu = capture.gpu_model()
    parts = [counted(len(capture.ranks), "rank"), sizes, gpu or "", str(figures.spec)]
    names = ", ".join(Path(trace).name for trace in traces[:3]) + (" …" if len(traces) > 3 else "")
    return (
        f"Drafted by pytest-nsys init from {names}:",
        "; ".join(part for part in parts if part) + ".",
        "Every limit is what that trace measured and a margin. They are yours now: tighten, loosen or delete them.",
    )


def _why_tolerance(figures: Figures) -> tuple[str, ...]:
    if figures.count == 1:
        return (
            "What 'plus tolerance' allows. One trace says nothing of the noise, so 5 % is a guess: give init several",
            "captures of one commit, or measure it with pytest-nsys baseline calibrate.",
        )
    return (f"What 'plus tolerance' allows: from the spread of the window's length over {figures.count} captures.",)


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
    gate = loads_gate_file(gate_text(draft), path=Path(name))
    captures = evidence_of(gate)
    for assertion in gate.assertions:
        with contextlib.suppress(NsysError):  # the judgement of the draft tells of it
            table = captures.rows(METRICS[assertion.metric], spec_for(captures.convention, assertion))
            found += absences(table, assertion.where)
    return replace(draft, allow_missing=excuse(found)) if found else draft


def _wrong(draft: Draft, evidence_of: Callable[[GateFile], Captures], name: str) -> dict[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve() / name
        gate = loads_gate_file(gate_text(draft), path=path)
        captures = evidence_of(gate)
        store = store_of(path, path.parent / "baselines", path.parent)
        store_rows(gate, captures, store)
        return judged(gate, captures, store)
