"""``pytest-nsys init``: a trace in, a gate file with reasons and its baseline out.

What is drafted passes on the trace: a sentence that does not is left out, and told of.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from pytest_nsys.analysis.budget.budget import find_budgets
from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.captures.outliers import find_hiccup
from pytest_nsys.analysis.captures.parallel import OpenOnce
from pytest_nsys.analysis.metrics.collectives import on_record
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.steps.convention_fit import GENERIC, LABELLED, Choice, choose, found, of_one_step
from pytest_nsys.analysis.summary.mostly import mostly
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.cli.asking import place_of
from pytest_nsys.cli.options import reading_ahead
from pytest_nsys.cli.saying import say
from pytest_nsys.cli.shared_options import anchor_option, convention_option, executor_option, folder_option
from pytest_nsys.core.conventions import BUILT_IN, Anchor, Convention, convention_words
from pytest_nsys.core.errors import BaselineError, NothingMeasured, NsysError, UsageMistake, hint
from pytest_nsys.core.exact import median
from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.core.model import KernelsMode, Label, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.units import TIME
from pytest_nsys.core.words import counted, place_words, printable, typed
from pytest_nsys.drafting.choice import with_bounds, with_libraries, with_stages
from pytest_nsys.drafting.gate_text import SCHEMA_NAME, Draft, gate_text
from pytest_nsys.drafting.margins import far_apart, written_ns
from pytest_nsys.drafting.sentences import NEVER_DROPPED, Figures, draft_sentences, file_smallest_ns, file_tolerance
from pytest_nsys.gates.comparability import shown as in_words
from pytest_nsys.gates.convention_keys import check_named, convention_of
from pytest_nsys.gates.gate_file import loads_gate_file
from pytest_nsys.gates.kinds import SCHEMA, SCHEMA_TITLE
from pytest_nsys.gates.model import GateFile, Outcome, spec_for
from pytest_nsys.gates.selection import absences, excuse
from pytest_nsys.reports.screens.mostly import SHOW_RUN, mostly_lines
from pytest_nsys.stored.baselines.store import BaselineStore, store_of
from pytest_nsys.tools.files import write_whole
from pytest_nsys.traces.opening import find_traces, mark_of, usual_convention
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from pytest_nsys.verdicts.gate_windows import kept_windows
from pytest_nsys.verdicts.refresh import Keep, Refresh, Written
from pytest_nsys.verdicts.refresh_modes import Mode
from pytest_nsys.verdicts.stored_baseline import StoredBaseline

SHOWN_LEFT = 3
GATES = f"gates{GATE_SUFFIX}"


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE…")
@click.option("-o", "--output", metavar="FILE", default=GATES, show_default=True, help="The gate file to write.")
@convention_option
@anchor_option
@click.option("--window", "kind", metavar="KIND", help="The kind of steps to gate: decode. Default: the most frequent.")
@click.option("--force", is_flag=True, help="Replace an existing gate file and its baseline, and ask nothing.")
@executor_option
@folder_option
def init(
    traces: tuple[str, ...],
    output: str,
    convention: str | None,
    anchor: Anchor | None,
    kind: str | None,
    force: bool,
    executor: str | None,
    baseline_dir: str | None,
) -> None:
    """Write a gate file and its baseline for a trace.

    Each assertion has its reason, and passes on the traces it was written from.

    Each TRACE is one run (file, folder or quoted glob). Several are captures of one program, whose spread sets the
    margins, or, where each holds other ranks, files of one run.
    """
    asks = not force and sys.stdin.isatty() and sys.stdout.isatty()
    path = _target(output, asks=asks, force=force)
    given = convention_of(convention, anchor)
    alone = partial(draft_alone, given, anchor, kind)
    with contextlib.closing(CaptureCache(OpenOnce(reading_ahead(executor), alone))) as library:
        trial, others = agreeing(Traces(library, traces, anchor, kind), given)
        draft, left = drafted(trial, path, given)
        written = _write(path, draft, trial, baseline_dir, replaces=force or path.exists())
    _tell(path, draft, written, [*others, *left], trial.traces, baseline_dir)


# The files


def _target(output: str, *, asks: bool, force: bool) -> Path:
    """Where the gate file goes. Raises UsageMistake where it cannot, or must not without a word."""
    path = Path(os.path.abspath(output))
    if output.endswith("/") or (path.is_dir() and not output.endswith(GATE_SUFFIX)):
        path /= GATES
    elif not path.suffix:
        path = path.with_name(f"{path.name}{GATE_SUFFIX}")
    if not path.name.endswith(GATE_SUFFIX) or path.name == GATE_SUFFIX:
        raise UsageMistake(f"{printable(output)}: pytest finds gate files by name: end it in {GATE_SUFFIX}")
    if "[" in str(path):
        raise UsageMistake(f"{printable(output)}: pytest reads brackets in a path as parameters: give one without")
    standing = next(each for each in (path, *path.parents) if each.exists())
    if path.is_dir() or (standing != path and not standing.is_dir()):
        raise UsageMistake(f"{printable(output)}: {'is a folder' if path.is_dir() else f'{standing} is not a folder'}")
    if not os.access(standing, os.W_OK):
        raise UsageMistake(f"{printable(output)}: cannot be written: permission denied")
    schema = path.with_name(SCHEMA_NAME)
    if schema.exists() and SCHEMA_TITLE not in schema.read_bytes():
        raise UsageMistake(f"{schema}: is not the schema of gate files, which init writes there: move it")
    if path.exists() and not force:
        if not asks:
            raise UsageMistake(f"{printable(output)}: exists: give --force to overwrite it, or another -o")
        if not click.confirm(f"{printable(output)} exists. Overwrite it and its baseline?"):
            raise UsageMistake(f"{printable(output)}: not changed")
    return path


def _write(path: Path, draft: Draft, trial: Traces, baseline_dir: str | None, *, replaces: bool) -> Written | None:
    """Write the baseline, the schema beside the gate file, and the gate file last: all of them, or as it was before.

    Who is killed in between leaves a baseline that nobody reads, and no gate that lacks its own.
    """
    text, schema = gate_text(draft), path.with_name(SCHEMA_NAME)
    gate, before = loads_gate_file(text, path=path), _contents(path, schema)
    stored: Path | None = None
    new = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        store = place_of(path, baseline_dir).store(gate)
        if not replaces and store.all():
            raise BaselineError(f"{store.folder}: holds baselines of this gate file already: give --force")
        before, stored = before | _contents(*store.folder.glob("*")), store.folder
        new += [folder for folder in (store.folder, store.folder.parent) if not folder.exists()]
        captures = trial.captures(gate.resolved_convention)
        written = store_rows(gate, captures, store, keep=kept_windows)
        if wrong := judged(gate, captures, store):
            raise NothingMeasured(f"the drafted gate does not pass on its own trace: {next(iter(wrong.values()))}")
        write_whole(schema, SCHEMA.read_bytes())
        write_whole(path, text.encode())
    except (NsysError, OSError):
        for each in {*before, *(stored.glob("*") if stored is not None else ())}:
            _put_back(each, before.get(each))
        for folder in new:
            with contextlib.suppress(OSError):  # something else is in it, or it was never made
                folder.rmdir()
        raise
    return written


def _contents(*paths: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def _put_back(path: Path, content: bytes | None) -> None:
    """Make a file what it was. A full disk may keep it from that only where it let the file be replaced."""
    with contextlib.suppress(OSError):
        if content is None:
            path.unlink(missing_ok=True)
        elif path.read_bytes() != content:
            write_whole(path, content)


# What is said


def _tell(
    path: Path,
    draft: Draft,
    written: Written | None,
    left: Sequence[Left],
    traces: Sequence[str],
    baseline_dir: str | None,
) -> None:
    """What was done and what to type next, in at most twenty lines."""
    shown = os.path.relpath(path)
    choice = draft.choice
    own = "this trace" if len(traces) == 1 else "these traces"
    say(f"wrote {shown}: {counted(len(draft.sentences), 'assertion')}, all of which pass on {own}")
    if written is not None:
        say(f"wrote {os.path.relpath(written.path)}: their baseline")
        say(written.kept)
    say(f"wrote {os.path.relpath(path.with_name(SCHEMA_NAME))}: editors check the gate file by it")
    found = choice.told if choice.searched is not None else f"convention {convention_words(choice.convention)}"
    say(f"{found}, {choice.spec}")
    for line in draft.mostly:
        say(line)
    for allowed in choice.quality.values():
        say(f"warning: {allowed.words}; the gate allows it")
    doubted = [sentence for sentence in draft.sentences if sentence.doubt]
    for sentence in doubted[:SHOWN_LEFT]:
        say(f"warning: '{printable(sentence.title, 60)}': {printable(sentence.doubt, 200)}")
    if len(doubted) > SHOWN_LEFT:
        say(f"warning: so do captures of {counted(len(doubted) - SHOWN_LEFT, 'more assertion')}")
    for each in left[:SHOWN_LEFT]:
        say(f"left out '{printable(each.title, 60)}': {printable(each.why, 160)}")
    if len(left) > SHOWN_LEFT:
        say(f"left out {len(left) - SHOWN_LEFT} more")
    given = [] if draft.traces else [f"--nsys-trace={trace}" for trace in traces]
    gate = ["pytest", shown, *([f"--nsys-baseline-dir={baseline_dir}"] if baseline_dir else [])]
    accept = ["pytest-nsys", "baseline", "refresh", shown, *(["--baseline-dir", baseline_dir] if baseline_dir else [])]
    say("\nnow type:")
    say(f"  {typed([*gate, *given])}")
    say(f"  {typed(gate)} --nsys-trace=THE_NEXT_RUN")
    say(f'  {typed(accept)} --trace=THE_NEXT_RUN --reason "…"')
    cut = typed(["pytest-nsys", "cut", "--gate", shown, *(traces if len(traces) <= SHOWN_LEFT else ["TRACES"])])
    say(f"  {cut}  # what it judges, as one small trace")


REASON = "first baseline by pytest-nsys init"


class Left(NamedTuple):
    """A sentence that was left out and what it said of its own trace, or a trace and how it differs from the others."""

    title: str
    why: str


@dataclass(frozen=True)
class Traces:
    """The traces, opened under one convention after the other. A person named the pattern ``anchor`` and the ``kind``
    of steps.
    """

    library: CaptureCache
    traces: tuple[str, ...]
    anchor: Anchor | None = None
    kind: str | None = None

    def captures(self, convention: Convention) -> Captures:
        """The captures under a convention. Raises UsageMistake, TraceError."""
        return self.library.captures(self.traces, Path(), convention)

    def _run(self, convention: Convention) -> Run:
        return self.captures(convention).runs[0]

    def choose(self, given: Convention | None) -> Choice:
        """How windows are found, by the first capture. Raises NothingMeasured."""
        check_named(self.traces)
        self._refuse_cuts()
        self._check_captures()
        run = self._run(LABELLED)
        usual = usual_convention(run.traces[0].path)
        extended = GENERIC if usual is None else usual.convention
        if given is None and self.anchor is not None:
            choice = found(run, self._run, extended, self.anchor)
            self._run(choice.convention).measured(choice.spec).filled()  # says why where it does not fit
        else:
            choice = _as_extended(choose(run, self._run, given, extended))
        if self.kind is not None:
            choice = self._of_kind(choice, self.kind)
        choice = with_libraries(choice, self._run(choice.convention))
        if given is None:
            choice = with_stages(choice, self._run)
        return with_bounds(choice, self._run(choice.convention))

    def _of_kind(self, choice: Choice, kind: str) -> Choice:
        """The choice, for steps of a kind. Raises UsageMistake for what is none, NothingMeasured where no step is."""
        if not choice.kinds:
            raise UsageMistake(f"--window {printable(kind, 40)}: the steps of this trace have no kinds: leave it out")
        if kind not in (kinds := choice.convention.kind_names):
            raise UsageMistake(f"--window {printable(kind, 40)}: is no kind of steps{hint(kind, kinds, 'there are')}")
        steps = self._run(choice.convention).steps
        if (lacks := steps.lacks(kind)) is not None:
            raise NothingMeasured(f"{printable(self.traces[0])}: {lacks}")
        chosen = replace(choice, kind=kind)
        return of_one_step(chosen) if steps.counts[kind] == 1 else chosen

    def _refuse_cuts(self) -> None:
        for path in (path for value in self.traces for path in find_traces(value, Path())):
            if mark_of(path) is not None:
                raise UsageMistake(
                    f"{printable(str(path))}: is a cut, and a gate is drafted of a whole run: give its trace"
                )

    def _check_captures(self) -> None:
        ranks = [[rank.number for rank in run.ranks] for run in self.captures(LABELLED).runs]
        if any(own != ranks[0] for own in ranks):
            raise UsageMistake(
                f"the {len(ranks)} traces share some ranks, but not all: give captures of all ranks, or the files of "
                "one run, each with ranks of its own"
            )


def _as_extended(choice: Choice) -> Choice:
    """A built-in convention with another anchor as what it is: that convention, and the anchor."""
    base = BUILT_IN.get(choice.base.name)
    same = base is not None and base.with_anchor(choice.base.anchor) == choice.base
    return replace(choice, base=base) if base is not None and same else choice


def agreeing(trial: Traces, given: Convention | None) -> tuple[Traces, list[Left]]:
    """Return the captures that are alike, and the others with why: merged, their spread would let pass what they differ
    by. Raises NothingMeasured, UsageMistake, TraceError.
    """
    if len(trial.traces) < 2:
        return trial, []
    choice = trial.choose(given)
    captures = trial.captures(choice.convention)
    if len(captures.runs) != len(trial.traces) or choice.spec.whole_run:  # files of one run, or no step is known
        return trial, []
    captures.refuse_twins(choice.spec)
    for run in captures.runs:
        run.measured(choice.spec).filled()
    others = _find_other_lengths(captures, choice.spec, trial.traces) or _find_hiccup(captures, choice.spec)
    if not others:
        return trial, []
    agreed = tuple(trace for place, trace in enumerate(trial.traces) if place not in others)
    return replace(trial, traces=agreed), [Left(trial.traces[place], why) for place, why in others.items()]


def _find_other_lengths(captures: Captures, spec: WindowSpec, names: Sequence[str]) -> dict[int, str]:
    """Return the captures whose longest step is unlike those of most, with both in words."""
    longest = [max(own) for own in zip(*Figures(captures, spec).each("window_ns").values(), strict=True)]
    apart = far_apart(longest)
    agreed = [n for n in range(len(longest)) if n not in apart]
    if not apart:
        return {}
    usual = format_value(median([longest[n] for n in agreed]), TIME)
    whose = f"in {len(agreed)} others" if len(agreed) > 1 else f"in {names[agreed[0]]}"
    which = ", and of two nobody knows which: give a third" if len(longest) == 2 else ""
    why = f"{usual} {whose}: a hiccup, or another program{which}"
    return {n: f"{format_value(longest[n], TIME)} a step, {why}" for n in apart}


def _find_hiccup(captures: Captures, spec: WindowSpec) -> dict[int, str]:
    """Return the one capture of five or more that is a hiccup, by a row of a time that is drafted."""
    rows: list[dict[tuple[str, tuple[Label, ...]], Value]] = [{} for _ in captures.runs]
    metrics = [name for name, each in METRICS.items() if each.drafted is not None and each.unit == TIME]
    for name in dict.fromkeys((*NEVER_DROPPED, "exposed_ns", *metrics)):
        for own, table in zip(rows, captures.each(METRICS[name], spec), strict=True):
            own.update({(name, row.labels): row.value for row in table.rows})
    hiccup = find_hiccup(rows)
    if hiccup is None:
        return {}
    name, labels = hiccup.key
    row = place_words(zip(METRICS[name].dimensions, labels, strict=True))
    return {hiccup.capture: f"a hiccup: {hiccup.describe(f'{row} {name}'.strip(), TIME)}"}


def drafted(trial: Traces, path: Path, given: Convention | None = None) -> tuple[Draft, list[Left]]:
    """The gate file for the traces, which passes on them, and what was left out for that.

    ``path`` is where the file is to stand. Raises NothingMeasured where nothing can be judged.
    """
    choice = trial.choose(given)
    captures = trial.captures(choice.convention)
    captures.refuse_twins(choice.spec)
    for run in captures.runs:
        run.measured(choice.spec).filled()  # says why another capture has no such window
    figures = Figures(captures, choice.spec)
    most = _mostly(figures)
    sentences = draft_sentences(figures)
    doubted = [Left(each.title, each.doubt) for each in sentences if not each.drafted]
    draft = Draft(
        about=(*_about(figures, trial.traces), *most),
        mostly=most,
        traces=_written_traces(trial.traces, path),
        choice=choice,
        tolerance=file_tolerance(figures),
        smallest=written_ns(file_smallest_ns(figures)),
        tolerance_why=_why_tolerance(figures),
        sentences=tuple(each for each in sentences if each.drafted),
        world=len(captures.runs[0].ranks),
    )
    draft, left = checked(draft, lambda gate: trial.captures(gate.resolved_convention), path.name)
    return draft, [*doubted, *left]


def draft_alone(given: Convention | None, anchor: Anchor | None, kind: str | None, trace: Trace) -> None:
    """Ask a trace of a run what a draft asks, by choosing for it alone; what only the run asks is read later."""
    trial = Traces(CaptureCache(lambda *_: lambda _: trace), (str(trace.path),), anchor, kind)
    with contextlib.suppress(Exception):  # goes wrong once more for the run, and is told there
        choice = trial.choose(given)
        figures = Figures(trial.captures(choice.convention), choice.spec)
        draft_sentences(figures)
        for mode in KernelsMode:
            windows = figures.captures.runs[0].measured(replace(choice.spec, kernels=mode))
            _ = windows.unlaunched  # of which a judgement is in doubt
            for window in windows:
                on_record(window)  # by which a baseline explains waits over files


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
    parts = [counted(len(capture.ranks), "rank"), in_words(figures.captures.mesh.sizes), capture.gpu_model() or ""]
    names = ", ".join(Path(trace).name for trace in traces[:3]) + (" …" if len(traces) > 3 else "")
    return (
        f"Drafted by pytest-nsys init from {names}: {'; '.join(part for part in parts if part)}.",
        "A limit is what was measured plus a margin: tighten, loosen or delete it. For more: pytest-nsys metrics",
    )


def _mostly(figures: Figures) -> tuple[str, ...]:
    """What the windows mostly are, and what to do: a gate on the rest judges little."""
    found = mostly(find_budgets(figures.captures.runs[0].measured(figures.spec).filled()))
    part = figures.captures.convention.marks_parts or figures.spec.explicit is not None
    of = "run" if figures.spec.whole_run else "window" if part else "step"
    return () if found is None else mostly_lines(found, of, SHOW_RUN)


def _why_tolerance(figures: Figures) -> tuple[str, ...]:
    if figures.count == 1:
        return (
            "What 'plus tolerance' allows. One trace shows no noise: 5% is a guess, as is 10% where a time moves more.",
            "Give init several captures of one commit, or run pytest-nsys baseline calibrate.",
        )
    return (f"What 'plus tolerance' allows, by the spread of the window's length over {figures.count} captures.",)


def store_rows(
    gate: GateFile,
    captures: Captures,
    store: BaselineStore,
    reason: str = REASON,
    keep: Keep | None = None,
) -> Written | None:
    """Write the baselines of a gate file as a refresh does; None where it has none. Raises BaselineError.

    ``keep`` makes the file of the run's windows that is kept beside it.
    """
    wanted = [assertion for assertion in gate.assertions if assertion.reads_stored]
    if not wanted:
        return None
    context = GateContext(captures, gate, StoredBaseline(captures, gate, store))
    refresh = Refresh(gate, context, reason, Mode.ALL, shown=os.path.relpath, keep=keep)
    refresh.wanted += wanted
    return refresh.write()


def judged(gate: GateFile, captures: Captures, store: BaselineStore) -> dict[int, str]:
    """What is wrong with each assertion, by its place; nothing where all pass without a warning but that captures
    disagree.
    """
    context = GateContext(captures, gate, StoredBaseline(captures, gate, store))
    found: dict[int, str] = {}
    for place, assertion in enumerate(gate.assertions):
        try:
            verdict = evaluate(assertion, context)
        except NsysError as error:
            found[place] = str(error)
            continue
        # That captures disagree is told, and no reason to judge less: a gate on the rest would see less still.
        far = captures.outlying(assertion.measures, spec_for(captures.convention, assertion))
        said = [warning for warning in verdict.warnings if warning not in far]
        if verdict.outcome is not Outcome.PASSED or said:
            found[place] = f"{verdict.outcome}: {said[0] if said else verdict.message}"
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
            table = captures.rows(assertion.measures, spec_for(captures.convention, assertion))
            found += absences(table, assertion.where)
    return replace(draft, allow_missing=excuse(found)) if found else draft


@contextlib.contextmanager
def _scratch_folder() -> Iterator[Path]:
    """A folder in which a draft is tried. Raises UsageMistake where it cannot be written, which says where to make
    room: nobody knows the folder itself.
    """
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder).resolve()
    except (OSError, BaselineError) as error:
        why = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(why, OSError):
            raise
        where = tempfile.tempdir or "the folder of temporary files"
        raise UsageMistake(
            f"{where}: the draft cannot be tried there: {why.strerror}: make room, or set TMPDIR"
        ) from error


def _wrong(draft: Draft, evidence_of: Callable[[GateFile], Captures], name: str) -> dict[int, str]:
    with _scratch_folder() as folder:
        path = folder / name
        gate = loads_gate_file(gate_text(draft), path=path)
        captures = evidence_of(gate)
        store = store_of(path, path.parent / "baselines", path.parent)
        store_rows(gate, captures, store)
        return judged(gate, captures, store)
