"""How does a trace become a gate file with reasons and its baseline? ``pytest-nsys init`` writes both.

What is drafted passes on the trace: a sentence that does not is left out, and named.
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

# The summary has at most twenty lines.
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
    is_interactive = not force and sys.stdin.isatty() and sys.stdout.isatty()
    path = _target(output, asks=is_interactive, force=force)
    named_convention = convention_of(convention, anchor)
    draft_one = partial(draft_alone, named_convention, anchor, kind)
    with contextlib.closing(CaptureCache(OpenOnce(reading_ahead(executor), draft_one))) as cache:
        draft_traces, outliers = agreeing(Traces(cache, traces, anchor, kind), named_convention)
        draft, omitted = drafted(draft_traces, path, named_convention)
        refresh_result = _write(path, draft, draft_traces, baseline_dir, replaces=force or path.exists())
    _tell(path, draft, refresh_result, [*outliers, *omitted], draft_traces.traces, baseline_dir)


# The files


def _target(output: str, *, asks: bool, force: bool) -> Path:
    """Return where the gate file goes. Raises UsageMistake where it cannot be written, or must not without a word."""
    path = Path(os.path.abspath(output))
    if output.endswith("/") or (path.is_dir() and not output.endswith(GATE_SUFFIX)):
        path /= GATES
    elif not path.suffix:
        path = path.with_name(f"{path.name}{GATE_SUFFIX}")
    if not path.name.endswith(GATE_SUFFIX) or path.name == GATE_SUFFIX:
        raise UsageMistake(f"{printable(output)}: pytest finds gate files by name: end it in {GATE_SUFFIX}")
    # A path with brackets would be taken for the parameters of a test.
    if "[" in str(path):
        raise UsageMistake(f"{printable(output)}: pytest reads brackets in a path as parameters: give one without")
    existing = next(candidate for candidate in (path, *path.parents) if candidate.exists())
    if path.is_dir() or (existing != path and not existing.is_dir()):
        raise UsageMistake(f"{printable(output)}: {'is a folder' if path.is_dir() else f'{existing} is not a folder'}")
    if not os.access(existing, os.W_OK):
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

    A program that is killed in between leaves a baseline that nobody reads, and no gate that lacks its own.
    """
    text, schema = gate_text(draft), path.with_name(SCHEMA_NAME)
    gate, contents_before = loads_gate_file(text, path=path), _contents(path, schema)
    store_folder: Path | None = None
    new_folders = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        store = place_of(path, baseline_dir).store(gate)
        if not replaces and store.all():
            raise BaselineError(f"{store.folder}: holds baselines of this gate file already: give --force")
        contents_before, store_folder = contents_before | _contents(*store.folder.glob("*")), store.folder
        new_folders += [folder for folder in (store.folder, store.folder.parent) if not folder.exists()]
        captures = trial.captures(gate.resolved_convention)
        refresh_result = store_rows(gate, captures, store, keep=kept_windows)
        if failures := judged(gate, captures, store):
            raise NothingMeasured(f"the drafted gate does not pass on its own trace: {next(iter(failures.values()))}")
        write_whole(schema, SCHEMA.read_bytes())
        write_whole(path, text.encode())
    except (NsysError, OSError):
        for changed_path in {*contents_before, *(store_folder.glob("*") if store_folder is not None else ())}:
            _put_back(changed_path, contents_before.get(changed_path))
        for folder in new_folders:
            with contextlib.suppress(OSError):  # something else is in it, or it was never made
                folder.rmdir()
        raise
    return refresh_result


def _contents(*paths: Path) -> dict[Path, bytes | None]:
    """Return the content of each file, None where there is none."""
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
    """Print what was done and what to type next, in at most twenty lines."""
    shown_path = os.path.relpath(path)
    choice = draft.choice
    traces_text = "this trace" if len(traces) == 1 else "these traces"
    say(f"wrote {shown_path}: {counted(len(draft.sentences), 'assertion')}, all of which pass on {traces_text}")
    if written is not None:
        say(f"wrote {os.path.relpath(written.path)}: their baseline")
        say(written.kept)
    say(f"wrote {os.path.relpath(path.with_name(SCHEMA_NAME))}: editors check the gate file by it")
    convention_text = (
        choice.told if choice.searched is not None else f"convention {convention_words(choice.convention)}"
    )
    say(f"{convention_text}, {choice.spec}")
    for line in draft.mostly:
        say(line)
    for allowed_fact in choice.quality.values():
        say(f"warning: {allowed_fact.words}; the gate allows it")
    doubted_sentences = [sentence for sentence in draft.sentences if sentence.doubt]
    for sentence in doubted_sentences[:SHOWN_LEFT]:
        say(f"warning: '{printable(sentence.title, 60)}': {printable(sentence.doubt, 200)}")
    if len(doubted_sentences) > SHOWN_LEFT:
        say(f"warning: so do captures of {counted(len(doubted_sentences) - SHOWN_LEFT, 'more assertion')}")
    for omission in left[:SHOWN_LEFT]:
        say(f"left out '{printable(omission.title, 60)}': {printable(omission.why, 160)}")
    if len(left) > SHOWN_LEFT:
        say(f"left out {len(left) - SHOWN_LEFT} more")
    trace_options = [] if draft.traces else [f"--nsys-trace={trace}" for trace in traces]
    gate_command = ["pytest", shown_path, *([f"--nsys-baseline-dir={baseline_dir}"] if baseline_dir else [])]
    refresh_command = [
        "pytest-nsys",
        "baseline",
        "refresh",
        shown_path,
        *(["--baseline-dir", baseline_dir] if baseline_dir else []),
    ]
    say("\nnow type:")
    say(f"  {typed([*gate_command, *trace_options])}")
    say(f"  {typed(gate_command)} --nsys-trace=THE_NEXT_RUN")
    say(f'  {typed(refresh_command)} --trace=THE_NEXT_RUN --reason "…"')
    cut_command = typed(
        ["pytest-nsys", "cut", "--gate", shown_path, *(traces if len(traces) <= SHOWN_LEFT else ["TRACES"])]
    )
    say(f"  {cut_command}  # what it judges, as one small trace")


REASON = "first baseline by pytest-nsys init"


class Left(NamedTuple):
    """Names a sentence that was left out with what it said of its own trace, or a trace with how it differs from the
    others.
    """

    title: str
    why: str


@dataclass(frozen=True)
class Traces:
    """Opens the traces under one convention after the other."""

    library: CaptureCache
    traces: tuple[str, ...]
    anchor: Anchor | None = None  # the pattern that a person named
    kind: str | None = None  # the kind of steps that a person named

    def captures(self, convention: Convention) -> Captures:
        """Return the captures under a convention. Raises UsageMistake, TraceError."""
        return self.library.captures(self.traces, Path(), convention)

    def _run(self, convention: Convention) -> Run:
        return self.captures(convention).runs[0]

    def choose(self, given: Convention | None) -> Choice:
        """Return how windows are found, by the first capture. Raises NothingMeasured."""
        check_named(self.traces)
        self._refuse_cuts()
        self._check_captures()
        run = self._run(LABELLED)
        usual_choice = usual_convention(run.traces[0].path)
        extended = GENERIC if usual_choice is None else usual_choice.convention
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
        """Return the choice, for steps of a kind. Raises UsageMistake for what is none, NothingMeasured where no step
        is.
        """
        if not choice.kinds:
            raise UsageMistake(f"--window {printable(kind, 40)}: the steps of this trace have no kinds: leave it out")
        if kind not in (kinds := choice.convention.kind_names):
            raise UsageMistake(f"--window {printable(kind, 40)}: is no kind of steps{hint(kind, kinds, 'there are')}")
        steps = self._run(choice.convention).steps
        if (problem := steps.lacks(kind)) is not None:
            raise NothingMeasured(f"{printable(self.traces[0])}: {problem}")
        kind_choice = replace(choice, kind=kind)
        return of_one_step(kind_choice) if steps.counts[kind] == 1 else kind_choice

    def _refuse_cuts(self) -> None:
        """Raise UsageMistake where one of the traces is a cut."""
        for path in (path for value in self.traces for path in find_traces(value, Path())):
            if mark_of(path) is not None:
                raise UsageMistake(
                    f"{printable(str(path))}: is a cut, and a gate is drafted of a whole run: give its trace"
                )

    def _check_captures(self) -> None:
        """Raise UsageMistake where the traces share some ranks, but not all."""
        ranks = [[rank.number for rank in run.ranks] for run in self.captures(LABELLED).runs]
        if any(rank_numbers != ranks[0] for rank_numbers in ranks):
            raise UsageMistake(
                f"the {len(ranks)} traces share some ranks, but not all: give captures of all ranks, or the files of "
                "one run, each with ranks of its own"
            )


def _as_extended(choice: Choice) -> Choice:
    """Return a choice that is a built-in convention with another anchor as that: the convention, and the anchor."""
    base = BUILT_IN.get(choice.base.name)
    is_same = base is not None and base.with_anchor(choice.base.anchor) == choice.base
    return replace(choice, base=base) if base is not None and is_same else choice


def agreeing(trial: Traces, given: Convention | None) -> tuple[Traces, list[Left]]:
    """Return the captures that are alike, and the others with why: merged, their spread would let pass what they differ
    by.

    Raises NothingMeasured, UsageMistake, TraceError.
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
    outliers = _find_other_lengths(captures, choice.spec, trial.traces) or _find_hiccup(captures, choice.spec)
    if not outliers:
        return trial, []
    agreeing_traces = tuple(trace for index, trace in enumerate(trial.traces) if index not in outliers)
    return replace(trial, traces=agreeing_traces), [
        Left(trial.traces[index], reason) for index, reason in outliers.items()
    ]


def _find_other_lengths(captures: Captures, spec: WindowSpec, names: Sequence[str]) -> dict[int, str]:
    """Return the captures whose longest step is unlike those of most, with both in words."""
    longest = [
        max(capture_lengths)
        for capture_lengths in zip(*Figures(captures, spec).each("window_ns").values(), strict=True)
    ]
    outliers = far_apart(longest)
    agreeing_indices = [n for n in range(len(longest)) if n not in outliers]
    if not outliers:
        return {}
    usual_length = format_value(median([longest[n] for n in agreeing_indices]), TIME)
    majority_text = (
        f"in {len(agreeing_indices)} others" if len(agreeing_indices) > 1 else f"in {names[agreeing_indices[0]]}"
    )
    doubt_text = ", and of two nobody knows which: give a third" if len(longest) == 2 else ""
    reason = f"{usual_length} {majority_text}: a hiccup, or another program{doubt_text}"
    return {n: f"{format_value(longest[n], TIME)} a step, {reason}" for n in outliers}


def _find_hiccup(captures: Captures, spec: WindowSpec) -> dict[int, str]:
    """Return the one capture of five or more that is a hiccup, by a row of a time that is drafted."""
    rows: list[dict[tuple[str, tuple[Label, ...]], Value]] = [{} for _ in captures.runs]
    metrics = [name for name, metric in METRICS.items() if metric.drafted is not None and metric.unit == TIME]
    for name in dict.fromkeys((*NEVER_DROPPED, "exposed_ns", *metrics)):
        for capture_rows, table in zip(rows, captures.each(METRICS[name], spec), strict=True):
            capture_rows.update({(name, row.labels): row.value for row in table.rows})
    hiccup = find_hiccup(rows)
    if hiccup is None:
        return {}
    name, labels = hiccup.key
    row = place_words(zip(METRICS[name].dimensions, labels, strict=True))
    return {hiccup.capture: f"a hiccup: {hiccup.describe(f'{row} {name}'.strip(), TIME)}"}


def drafted(trial: Traces, path: Path, given: Convention | None = None) -> tuple[Draft, list[Left]]:
    """Return the gate file for the traces, which passes on them, and what was left out for that.

    ``path`` is where the file is to stand. Raises NothingMeasured where nothing can be judged.
    """
    choice = trial.choose(given)
    captures = trial.captures(choice.convention)
    captures.refuse_twins(choice.spec)
    for run in captures.runs:
        run.measured(choice.spec).filled()  # says why another capture has no such window
    figures = Figures(captures, choice.spec)
    activity_lines = _mostly(figures)
    sentences = draft_sentences(figures)
    doubted_sentences = [Left(sentence.title, sentence.doubt) for sentence in sentences if not sentence.drafted]
    draft = Draft(
        about=(*_about(figures, trial.traces), *activity_lines),
        mostly=activity_lines,
        traces=_written_traces(trial.traces, path),
        choice=choice,
        tolerance=file_tolerance(figures),
        smallest=written_ns(file_smallest_ns(figures)),
        tolerance_why=_why_tolerance(figures),
        sentences=tuple(sentence for sentence in sentences if sentence.drafted),
        world=len(captures.runs[0].ranks),
    )
    draft, omitted = checked(draft, lambda gate: trial.captures(gate.resolved_convention), path.name)
    return draft, [*doubted_sentences, *omitted]


def draft_alone(given: Convention | None, anchor: Anchor | None, kind: str | None, trace: Trace) -> None:
    """Ask a trace of a run what a draft asks, by choosing for it alone; what only the run asks is read later."""
    draft_traces = Traces(CaptureCache(lambda *_: lambda _: trace), (str(trace.path),), anchor, kind)
    with contextlib.suppress(Exception):  # it goes wrong once more for the run, which reports it
        choice = draft_traces.choose(given)
        figures = Figures(draft_traces.captures(choice.convention), choice.spec)
        draft_sentences(figures)
        for mode in KernelsMode:
            windows = figures.captures.runs[0].measured(replace(choice.spec, kernels=mode))
            _ = windows.unlaunched  # of which a judgement is in doubt
            for window in windows:
                on_record(window)  # by which a baseline explains waits over files


def _written_traces(traces: Sequence[str], path: Path) -> tuple[str, ...]:
    """Return the traces as the gate file names them; none where they lie far from it, or their names are no text."""
    paths = []
    for trace in traces:
        relative = os.path.relpath(os.path.abspath(os.path.expanduser(trace)), path.parent)
        is_near = not relative.startswith(os.path.join("..", "..", ".."))
        if not is_near or not relative.isprintable() or relative != relative.strip():
            return ()
        paths.append(relative)
    return tuple(paths)


def _about(figures: Figures, traces: Sequence[str]) -> tuple[str, ...]:
    """Describe of what the gate file is drafted, and what to do with its limits."""
    capture = figures.captures.runs[0]
    parts = [counted(len(capture.ranks), "rank"), in_words(figures.captures.mesh.sizes), capture.gpu_model() or ""]
    names = ", ".join(Path(trace).name for trace in traces[:3]) + (" …" if len(traces) > 3 else "")
    return (
        f"Drafted by pytest-nsys init from {names}: {'; '.join(part for part in parts if part)}.",
        "A limit is what was measured plus a margin: tighten, loosen or delete it. For more: pytest-nsys metrics",
    )


def _mostly(figures: Figures) -> tuple[str, ...]:
    """Describe what most of the windows' time is, and what to do: a gate on the rest judges little."""
    activity = mostly(find_budgets(figures.captures.runs[0].measured(figures.spec).filled()))
    is_part = figures.captures.convention.marks_parts or figures.spec.explicit is not None
    unit_name = "run" if figures.spec.whole_run else "window" if is_part else "step"
    return () if activity is None else mostly_lines(activity, unit_name, SHOW_RUN)


def _why_tolerance(figures: Figures) -> tuple[str, ...]:
    """Describe where the tolerance of the file comes from."""
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
    assertions = [assertion for assertion in gate.assertions if assertion.reads_stored]
    if not assertions:
        return None
    context = GateContext(captures, gate, StoredBaseline(captures, gate, store))
    refresh = Refresh(gate, context, reason, Mode.ALL, shown=os.path.relpath, keep=keep)
    refresh.wanted += assertions
    return refresh.write()


def judged(gate: GateFile, captures: Captures, store: BaselineStore) -> dict[int, str]:
    """Return what is wrong with each assertion, by its place.

    Nothing where all pass without a warning but that captures disagree.
    """
    context = GateContext(captures, gate, StoredBaseline(captures, gate, store))
    failures: dict[int, str] = {}
    for index, assertion in enumerate(gate.assertions):
        try:
            verdict = evaluate(assertion, context)
        except NsysError as error:
            failures[index] = str(error)
            continue
        # That captures disagree is reported, and no reason to judge less: a gate on the rest would see less still.
        outlier_warnings = captures.outlying(assertion.measures, spec_for(captures.convention, assertion))
        warnings = [warning for warning in verdict.warnings if warning not in outlier_warnings]
        if verdict.outcome is not Outcome.PASSED or warnings:
            failures[index] = f"{verdict.outcome}: {warnings[0] if warnings else verdict.message}"
    return failures


def checked(draft: Draft, evidence_of: Callable[[GateFile], Captures], name: str) -> tuple[Draft, list[Left]]:
    """Return the draft with the sentences that pass on their trace, and those that do not.

    Raises NothingMeasured where none does.
    """
    omitted: list[Left] = []
    draft = _excused(draft, evidence_of, name)
    while draft.sentences:
        failures = _wrong(draft, evidence_of, name)
        if not failures:
            return draft, omitted
        omitted += [Left(draft.sentences[index].title, reason) for index, reason in failures.items()]
        passing_sentences = tuple(sentence for index, sentence in enumerate(draft.sentences) if index not in failures)
        draft = replace(draft, sentences=passing_sentences)
    raise NothingMeasured(f"nothing can be judged on this trace: {omitted[0].why if omitted else 'it has no rows'}")


def _excused(draft: Draft, evidence_of: Callable[[GateFile], Captures], name: str) -> Draft:
    """Return the draft with an allowance for the rows that some ranks lack."""
    missing_rows = []
    gate = loads_gate_file(gate_text(draft), path=Path(name))
    captures = evidence_of(gate)
    for assertion in gate.assertions:
        with contextlib.suppress(NsysError):  # the judgement of the draft tells of it
            table = captures.rows(assertion.measures, spec_for(captures.convention, assertion))
            missing_rows += absences(table, assertion.where)
    return replace(draft, allow_missing=excuse(missing_rows)) if missing_rows else draft


@contextlib.contextmanager
def _scratch_folder() -> Iterator[Path]:
    """Yield a folder in which a draft is tried.

    Raises UsageMistake where it cannot be written, which says where to make room: nobody knows the folder itself.
    """
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder).resolve()
    except (OSError, BaselineError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        folder_text = tempfile.tempdir or "the folder of temporary files"
        raise UsageMistake(
            f"{folder_text}: the draft cannot be tried there: {cause.strerror}: make room, or set TMPDIR"
        ) from error


def _wrong(draft: Draft, evidence_of: Callable[[GateFile], Captures], name: str) -> dict[int, str]:
    """Return what is wrong with each sentence of a draft, tried on its trace in a folder that is deleted."""
    with _scratch_folder() as folder:
        path = folder / name
        gate = loads_gate_file(gate_text(draft), path=path)
        captures = evidence_of(gate)
        store = store_of(path, path.parent / "baselines", path.parent)
        store_rows(gate, captures, store)
        return judged(gate, captures, store)
