"""How is a gate file with its baseline drafted from a trace? ``pytest-nsys init`` writes both.

The draft passes on its trace: a sentence that does not is omitted, and listed.
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

from pytest_nsys.analysis.budget.budget import measure_rank_budgets
from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.captures.outliers import find_hiccup
from pytest_nsys.analysis.captures.parallel import OpenOnce
from pytest_nsys.analysis.metrics.collectives import list_recorded_transfers
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.steps.convention_fit import (
    GENERIC,
    OPENING_CONVENTION,
    ConventionChoice,
    choose_convention,
    choose_first_window,
    find_convention,
)
from pytest_nsys.analysis.summary.dominant_activity import find_dominant_activity
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.cli.options import make_reader
from pytest_nsys.cli.pytest_session import find_baseline_place
from pytest_nsys.cli.shared_options import anchor_option, convention_option, executor_option, folder_option
from pytest_nsys.cli.terminal_text import echo
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Anchor, Convention, describe_convention
from pytest_nsys.core.errors import BaselineError, NothingMeasured, NsysError, UsageMistake, suggest_or_list
from pytest_nsys.core.exact import median
from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.core.model import KernelsMode, Label, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import format_count, format_labels, format_rank_ranges, quote_command, sanitize_line
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.units import TIME
from pytest_nsys.drafting.convention_additions import add_bounds, add_libraries, add_stages
from pytest_nsys.drafting.gate_text import SCHEMA_NAME, Draft, render_gate_file
from pytest_nsys.drafting.margins import find_far_captures, format_ns
from pytest_nsys.drafting.sentences import (
    ALWAYS_DRAFTED,
    CaptureFigures,
    choose_file_absolute_ns,
    choose_file_tolerance,
    draft_sentences,
)
from pytest_nsys.gates.comparability import format_circumstance as in_words
from pytest_nsys.gates.convention_keys import check_trace_paths, load_convention
from pytest_nsys.gates.gate_file import parse_gate_file
from pytest_nsys.gates.kinds import SCHEMA, SCHEMA_TITLE
from pytest_nsys.gates.model import GateFile, Outcome, resolve_window_spec
from pytest_nsys.gates.selection import find_absent_ranks, format_allow_missing
from pytest_nsys.reports.screens.dominant_activity import RUN_COMMAND_PREFIX, describe_dominant_activity
from pytest_nsys.stored.baselines.store import BaselineStore, find_store
from pytest_nsys.tools.files import write_atomically
from pytest_nsys.traces.trace_files import describe_format, find_traces, find_usual_convention, read_cut_mark
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from pytest_nsys.verdicts.gate_windows import pack_gate_windows
from pytest_nsys.verdicts.refresh import GateBaselineRefresh, WindowPacker, WrittenBaseline
from pytest_nsys.verdicts.refresh_modes import RefreshMode
from pytest_nsys.verdicts.stored_baseline import StoredBaseline

# The summary has at most twenty lines.
MOST_OMISSIONS_SHOWN = 3
DEFAULT_GATE_FILE = f"gates{GATE_SUFFIX}"


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE…")
@click.option(
    "-o", "--output", metavar="FILE", default=DEFAULT_GATE_FILE, show_default=True, help="The gate file to write."
)
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
    path = _resolve_target(output, is_interactive=is_interactive, force=force)
    named_convention = load_convention(convention, anchor)
    draft_one = partial(draft_single_trace, named_convention, anchor, kind)
    with contextlib.closing(CaptureCache(OpenOnce(make_reader(executor), draft_one))) as cache:
        draft_traces, outliers = select_agreeing_traces(DraftTraces(cache, traces, anchor, kind), named_convention)
        draft, omitted = draft_gate(draft_traces, path, named_convention)
        refresh_result = _write_files(path, draft, draft_traces, baseline_dir, may_replace=force or path.exists())
    _print_summary(path, draft, refresh_result, [*outliers, *omitted], draft_traces.traces, baseline_dir)


# The files


def _resolve_target(output: str, *, is_interactive: bool, force: bool) -> Path:
    """Return the gate file's path. Raises UsageMistake if it cannot be written, or would overwrite a file without
    consent.
    """
    path = Path(os.path.abspath(output))
    if output.endswith("/") or (path.is_dir() and not output.endswith(GATE_SUFFIX)):
        path /= DEFAULT_GATE_FILE
    elif not path.suffix:
        path = path.with_name(f"{path.name}{GATE_SUFFIX}")
    if not path.name.endswith(GATE_SUFFIX) or path.name == GATE_SUFFIX:
        raise UsageMistake(f"{sanitize_line(output)}: pytest finds gate files by name: end it in {GATE_SUFFIX}")
    # pytest would take brackets in a path for the parameters of a test.
    if "[" in str(path):
        raise UsageMistake(f"{sanitize_line(output)}: pytest reads brackets in a path as parameters: give one without")
    existing = next(candidate for candidate in (path, *path.parents) if candidate.exists())
    if path.is_dir() or (existing != path and not existing.is_dir()):
        raise UsageMistake(
            f"{sanitize_line(output)}: {'is a folder' if path.is_dir() else f'{existing} is not a folder'}"
        )
    if not os.access(existing, os.W_OK):
        raise UsageMistake(f"{sanitize_line(output)}: cannot be written: permission denied")
    schema = path.with_name(SCHEMA_NAME)
    if schema.exists() and SCHEMA_TITLE not in schema.read_bytes():
        raise UsageMistake(f"{schema}: is not the schema of gate files, which init writes there: move it")
    if path.exists() and not force:
        if not is_interactive:
            raise UsageMistake(f"{sanitize_line(output)}: exists: give --force to overwrite it, or another -o")
        if not click.confirm(f"{sanitize_line(output)} exists. Overwrite it and its baseline?"):
            raise UsageMistake(f"{sanitize_line(output)}: not changed")
    return path


def _write_files(
    path: Path, draft: Draft, draft_traces: DraftTraces, baseline_dir: str | None, *, may_replace: bool
) -> WrittenBaseline | None:
    """Write the baseline, the schema next to the gate file, and the gate file last. If one cannot be written, restore
    all.

    If the program is killed in between, it leaves an unused baseline, but never a gate file without its baseline.
    """
    text, schema = render_gate_file(draft), path.with_name(SCHEMA_NAME)
    gate, contents_before = parse_gate_file(text, path=path), _read_contents(path, schema)
    store_folder: Path | None = None
    new_folders = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        store = find_baseline_place(path, baseline_dir).find_gate_store(gate)
        if not may_replace and store.load_all():
            raise BaselineError(f"{store.folder}: holds baselines of this gate file already: give --force")
        contents_before, store_folder = contents_before | _read_contents(*store.folder.glob("*")), store.folder
        new_folders += [folder for folder in (store.folder, store.folder.parent) if not folder.exists()]
        captures = draft_traces.load_captures(gate.resolved_convention)
        refresh_result = store_rows(gate, captures, store, keep=pack_gate_windows)
        if failures := find_failures(gate, captures, store):
            raise NothingMeasured(f"the drafted gate does not pass on its own trace: {next(iter(failures.values()))}")
        write_atomically(schema, SCHEMA.read_bytes())
        write_atomically(path, text.encode())
    except (NsysError, OSError):
        for changed_path in {*contents_before, *(store_folder.glob("*") if store_folder is not None else ())}:
            _restore_file(changed_path, contents_before.get(changed_path))
        for folder in new_folders:
            with contextlib.suppress(OSError):  # not empty, or never made
                folder.rmdir()
        raise
    return refresh_result


def _read_contents(*paths: Path) -> dict[Path, bytes | None]:
    """Return the content of each file, None if it does not exist."""
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def _restore_file(path: Path, content: bytes | None) -> None:
    """Restore a file. On a full disk this may fail only for a file that was already replaced."""
    with contextlib.suppress(OSError):
        if content is None:
            path.unlink(missing_ok=True)
        elif path.read_bytes() != content:
            write_atomically(path, content)


# Printed text


def _print_summary(
    path: Path,
    draft: Draft,
    refresh_result: WrittenBaseline | None,
    omitted: Sequence[OmittedSentence],
    traces: Sequence[str],
    baseline_dir: str | None,
) -> None:
    """Print what was done and the next commands, in at most twenty lines."""
    shown_path = os.path.relpath(path)
    choice = draft.choice
    traces_text = "this trace" if len(traces) == 1 else "these traces"
    echo(f"wrote {shown_path}: {format_count(len(draft.sentences), 'assertion')}, all of which pass on {traces_text}")
    if refresh_result is not None:
        echo(f"wrote {os.path.relpath(refresh_result.path)}: their baseline")
        echo(refresh_result.windows_text)
    echo(f"wrote {os.path.relpath(path.with_name(SCHEMA_NAME))}: editors check the gate file by it")
    convention_text = (
        choice.description
        if choice.search_result is not None
        else f"convention {describe_convention(choice.convention)}"
    )
    echo(f"{convention_text}, {choice.spec}")
    for line in draft.activity_comments:
        echo(line)
    for allowed_fact in choice.allowed_quality.values():
        echo(f"warning: {allowed_fact.problem}; the gate allows it")
    doubted_sentences = [sentence for sentence in draft.sentences if sentence.doubt]
    for sentence in doubted_sentences[:MOST_OMISSIONS_SHOWN]:
        echo(f"warning: '{sanitize_line(sentence.title, 60)}': {sanitize_line(sentence.doubt, 200)}")
    if len(doubted_sentences) > MOST_OMISSIONS_SHOWN:
        echo(
            "warning: so do captures of "
            f"{format_count(len(doubted_sentences) - MOST_OMISSIONS_SHOWN, 'more assertion')}"
        )
    for omission in omitted[:MOST_OMISSIONS_SHOWN]:
        echo(f"left out '{sanitize_line(omission.title, 60)}': {sanitize_line(omission.reason, 160)}")
    if len(omitted) > MOST_OMISSIONS_SHOWN:
        echo(f"left out {len(omitted) - MOST_OMISSIONS_SHOWN} more")
    trace_options = [] if draft.traces else [f"--nsys-trace={trace}" for trace in traces]
    gate_command = ["pytest", shown_path, *([f"--nsys-baseline-dir={baseline_dir}"] if baseline_dir else [])]
    refresh_command = [
        "pytest-nsys",
        "baseline",
        "refresh",
        shown_path,
        *(["--baseline-dir", baseline_dir] if baseline_dir else []),
    ]
    echo("\nnow type:")
    echo(f"  {quote_command([*gate_command, *trace_options])}")
    echo(f"  {quote_command(gate_command)} --nsys-trace=THE_NEXT_RUN")
    echo(f'  {quote_command(refresh_command)} --trace=THE_NEXT_RUN --reason "…"')
    cut_command = quote_command(
        ["pytest-nsys", "cut", "--gate", shown_path, *(traces if len(traces) <= MOST_OMISSIONS_SHOWN else ["TRACES"])]
    )
    echo(f"  {cut_command}  # what it judges, as one small trace")


FIRST_BASELINE_REASON = "first baseline by pytest-nsys init"


class OmittedSentence(NamedTuple):
    """Names an omitted sentence with its failure on its own trace, or an omitted trace with how it differs from the
    others.
    """

    title: str
    reason: str


@dataclass(frozen=True)
class DraftTraces:
    """The traces of a draft, which can be opened under several conventions in turn."""

    cache: CaptureCache
    traces: tuple[str, ...]
    anchor: Anchor | None = None  # the anchor that was given
    kind: str | None = None  # the kind of steps that was given

    def load_captures(self, convention: Convention) -> Captures:
        """Return the captures under a convention. Raises UsageMistake, TraceError."""
        return self.cache.open_captures(self.traces, Path(), convention)

    def _load_run(self, convention: Convention) -> Run:
        return self.load_captures(convention).runs[0]

    def choose(self, named_convention: Convention | None) -> ConventionChoice:
        """Return how windows are found, as chosen for the first capture. Raises NothingMeasured."""
        check_trace_paths(self.traces)
        self._refuse_cuts()
        self._check_captures()
        run = self._load_run(OPENING_CONVENTION)
        usual_choice = find_usual_convention(run.traces[0].path)
        extended = GENERIC if usual_choice is None else usual_choice.convention
        if named_convention is None and self.anchor is not None:
            choice = find_convention(run, self._load_run, extended, self.anchor)
            self._load_run(choice.convention).load_windows(
                choice.spec
            ).require_filled_windows()  # raises the reason if it does not fit
        else:
            choice = _extend_built_in(choose_convention(run, self._load_run, named_convention, extended))
        if self.kind is not None:
            choice = self._restrict_to_kind(choice, self.kind)
        choice = add_libraries(choice, self._load_run(choice.convention))
        if named_convention is None:
            choice = add_stages(choice, self._load_run)
        return add_bounds(choice, self._load_run(choice.convention))

    def _restrict_to_kind(self, choice: ConventionChoice, kind: str) -> ConventionChoice:
        """Return the choice for steps of one kind. Raises UsageMistake for an unknown kind, NothingMeasured if no step
        is of that kind.
        """
        if not choice.counts_by_kind:
            raise UsageMistake(
                f"--window {sanitize_line(kind, 40)}: the steps of this trace have no kinds: leave it out"
            )
        if kind not in (kinds := choice.convention.kind_names):
            raise UsageMistake(
                f"--window {sanitize_line(kind, 40)}: is no kind of steps{suggest_or_list(kind, kinds, 'there are')}"
            )
        steps = self._load_run(choice.convention).steps_by_kind
        if (problem := steps.explain_missing_kind(kind)) is not None:
            raise NothingMeasured(f"{sanitize_line(self.traces[0])}: {problem}")
        kind_choice = replace(choice, kind=kind)
        return choose_first_window(kind_choice) if steps.counts_by_kind[kind] == 1 else kind_choice

    def _refuse_cuts(self) -> None:
        """Raise UsageMistake if one of the traces is a cut."""
        for path in (path for value in self.traces for path in find_traces(value, Path())):
            if read_cut_mark(path) is not None:
                raise UsageMistake(
                    f"{sanitize_line(str(path))}: is a cut, and a gate is drafted of a whole run: give its trace"
                )

    def _check_captures(self) -> None:
        """Raise UsageMistake if the traces share some ranks, but not all, with what differs."""
        runs = self.load_captures(OPENING_CONVENTION).runs
        first, ranks = runs[0], [rank.number for rank in runs[0].ranks]
        unlike = next((n for n, run in enumerate(runs) if [rank.number for rank in run.ranks] != ranks), None)
        if unlike is None:
            return
        first_text, other_text = (
            f"{format_count(len(run.ranks), 'rank')} ({format_rank_ranges([rank.number for rank in run.ranks])})"
            for run in (first, runs[unlike])
        )
        differences = [f"{first_text} against {other_text}"]
        formats = [
            " and ".join(sorted({describe_format(trace.path) for trace in run.traces})) for run in (first, runs[unlike])
        ]
        if formats[0] != formats[1]:
            differences.append(" against ".join(formats))
        names = [sanitize_line(self.traces[n]) for n in (0, unlike)]
        raise UsageMistake(
            f"{names[0]} and {names[1]} are no captures of one program: {', '.join(differences)}. "
            f"{_advise_gate_of_each(names[1])}, or give the files of one run, each with ranks of its own"
        )

    def check_steps(self, captures: Captures, choice: ConventionChoice) -> None:
        """Raise NothingMeasured if a capture has no such steps, with the reason."""
        has_files_of_one_run = len(captures.runs) != len(self.traces)
        for index, run in enumerate(captures.runs):
            try:
                run.load_windows(choice.spec).require_filled_windows()
            except NothingMeasured as error:
                if index == 0 or has_files_of_one_run:
                    raise
                names = [sanitize_line(self.traces[n]) for n in (0, index)]
                raise NothingMeasured(
                    f"{names[1]} has not the steps of {names[0]}: {_shorten_reason(error, run)}. "
                    f"{_advise_gate_of_each(names[1])}"
                ) from None


def _advise_gate_of_each(trace: str) -> str:
    return f"Write a gate of each (pytest-nsys init {quote_command([trace])} -o OTHER{GATE_SUFFIX})"


def _shorten_reason(error: NothingMeasured, run: Run) -> str:
    """Return the reason without the path, and without the advice, which is for one trace alone."""
    reason = str(error)
    for trace in run.traces:
        reason = reason.removeprefix(f"{trace.path}: ")
    return reason.partition("; ")[0].partition(". ")[0]


def _extend_built_in(choice: ConventionChoice) -> ConventionChoice:
    """Return the choice as a built-in convention and an anchor, if the convention differs from the built-in one only by
    its anchor.
    """
    base = BUILT_IN_CONVENTIONS.get(choice.base_convention.name)
    is_same = base is not None and base.with_anchor(choice.base_convention.anchor) == choice.base_convention
    return replace(choice, base_convention=base) if base is not None and is_same else choice


def select_agreeing_traces(
    draft_traces: DraftTraces, named_convention: Convention | None
) -> tuple[DraftTraces, list[OmittedSentence]]:
    """Return the captures that agree, and the others with reasons: if they were merged, the wider spread would hide
    what they differ by.

    Raises NothingMeasured, UsageMistake, TraceError.
    """
    if len(draft_traces.traces) < 2:
        return draft_traces, []
    choice = draft_traces.choose(named_convention)
    captures = draft_traces.load_captures(choice.convention)
    if (
        len(captures.runs) != len(draft_traces.traces) or choice.spec.is_whole_run
    ):  # files of one run, or no steps known
        return draft_traces, []
    captures.check_no_twins(choice.spec)
    draft_traces.check_steps(captures, choice)
    outliers = _find_other_lengths(captures, choice.spec, draft_traces.traces) or _find_hiccup(captures, choice.spec)
    if not outliers:
        return draft_traces, []
    agreeing_traces = tuple(trace for index, trace in enumerate(draft_traces.traces) if index not in outliers)
    return replace(draft_traces, traces=agreeing_traces), [
        OmittedSentence(draft_traces.traces[index], reason) for index, reason in outliers.items()
    ]


def _find_other_lengths(captures: Captures, spec: WindowSpec, names: Sequence[str]) -> dict[int, str]:
    """Return the captures whose longest step differs from that of most captures, by index, with both lengths in
    words.
    """
    longest = [
        max(capture_lengths)
        for capture_lengths in zip(*CaptureFigures(captures, spec).list_row_values("window_ns").values(), strict=True)
    ]
    outliers = find_far_captures(longest)
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
    """Return the one capture of five or more that is a hiccup, judged by a drafted row of a time."""
    rows: list[dict[tuple[str, tuple[Label, ...]], Value]] = [{} for _ in captures.runs]
    metrics = [name for name, metric in METRICS.items() if metric.draft_hint is not None and metric.unit == TIME]
    for name in dict.fromkeys((*ALWAYS_DRAFTED, "exposed_ns", *metrics)):
        for capture_rows, table in zip(rows, captures.measure_each_capture(METRICS[name], spec), strict=True):
            capture_rows.update({(name, row.labels): row.value for row in table.rows})
    hiccup = find_hiccup(rows)
    if hiccup is None:
        return {}
    name, labels = hiccup.key
    row = format_labels(zip(METRICS[name].dimensions, labels, strict=True))
    return {hiccup.capture_index: f"a hiccup: {hiccup.describe(f'{row} {name}'.strip(), TIME)}"}


def draft_gate(
    draft_traces: DraftTraces, path: Path, named_convention: Convention | None = None
) -> tuple[Draft, list[OmittedSentence]]:
    """Return a gate file that passes on the traces, and what was omitted so that it does.

    ``path`` is the future path of the file. Raises NothingMeasured if nothing can be judged.
    """
    choice = draft_traces.choose(named_convention)
    captures = draft_traces.load_captures(choice.convention)
    captures.check_no_twins(choice.spec)
    draft_traces.check_steps(captures, choice)
    figures = CaptureFigures(captures, choice.spec)
    activity_lines = _describe_dominant_activity(figures)
    sentences = draft_sentences(figures)
    doubted_sentences = [
        OmittedSentence(sentence.title, sentence.doubt) for sentence in sentences if not sentence.is_drafted
    ]
    draft = Draft(
        head_comments=(*_describe_draft(figures, draft_traces.traces), *activity_lines),
        activity_comments=activity_lines,
        traces=_list_written_traces(draft_traces.traces, path),
        choice=choice,
        relative_tolerance=choose_file_tolerance(figures),
        absolute_tolerance=format_ns(choose_file_absolute_ns(figures)),
        tolerance_reasons=_explain_tolerance(figures),
        sentences=tuple(sentence for sentence in sentences if sentence.is_drafted),
        world=len(captures.runs[0].ranks),
    )
    draft, omitted = exclude_failing(
        draft, lambda gate: draft_traces.load_captures(gate.resolved_convention), path.name
    )
    return draft, [*doubted_sentences, *omitted]


def draft_single_trace(
    named_convention: Convention | None, anchor: Anchor | None, kind: str | None, trace: Trace
) -> None:
    """Read ahead what a draft needs from one trace of a run, as if it were the whole run; what only the run needs is
    read later.
    """
    draft_traces = DraftTraces(CaptureCache(lambda *_: lambda _: trace), (str(trace.path),), anchor, kind)
    with contextlib.suppress(Exception):  # the error occurs again for the run, which reports it
        choice = draft_traces.choose(named_convention)
        figures = CaptureFigures(draft_traces.load_captures(choice.convention), choice.spec)
        draft_sentences(figures)
        for mode in KernelsMode:
            windows = figures.captures.runs[0].load_windows(replace(choice.spec, kernels=mode))
            _ = windows.unlaunched  # makes a judgement doubtful
            for window in windows:
                list_recorded_transfers(window)  # with these a baseline explains waits across files


def _list_written_traces(traces: Sequence[str], path: Path) -> tuple[str, ...]:
    """Return the traces as written in the gate file; none if they are far from it, or their names are not valid
    text.
    """
    paths = []
    for trace in traces:
        relative = os.path.relpath(os.path.abspath(os.path.expanduser(trace)), path.parent)
        is_near = not relative.startswith(os.path.join("..", "..", ".."))
        if not is_near or not relative.isprintable() or relative != relative.strip():
            return ()
        paths.append(relative)
    return tuple(paths)


def _describe_draft(figures: CaptureFigures, traces: Sequence[str]) -> tuple[str, ...]:
    """Describe what the gate file was drafted from, and what to do with its limits."""
    capture = figures.captures.runs[0]
    parts = [
        format_count(len(capture.ranks), "rank"),
        in_words(figures.captures.mesh.sizes),
        capture.find_gpu_model() or "",
    ]
    names = ", ".join(Path(trace).name for trace in traces[:3]) + (" …" if len(traces) > 3 else "")
    return (
        f"Drafted by pytest-nsys init from {names}: {'; '.join(part for part in parts if part)}.",
        "A limit is what was measured plus a margin: tighten, loosen or delete it. For more: pytest-nsys metrics",
    )


def _describe_dominant_activity(figures: CaptureFigures) -> tuple[str, ...]:
    """Describe the dominant activity of the windows, and what to do: a gate on the rest judges little."""
    activity = find_dominant_activity(
        measure_rank_budgets(figures.captures.runs[0].load_windows(figures.spec).require_filled_windows())
    )
    is_part = figures.captures.convention.marks_parts or figures.spec.explicit_span_ns is not None
    unit_name = "run" if figures.spec.is_whole_run else "window" if is_part else "step"
    return () if activity is None else describe_dominant_activity(activity, unit_name, RUN_COMMAND_PREFIX)


def _explain_tolerance(figures: CaptureFigures) -> tuple[str, ...]:
    """Describe the source of the file's tolerance."""
    if figures.capture_count == 1:
        return (
            "What 'plus tolerance' allows. One trace shows no noise: 5% is a guess, as is 10% where a time moves more.",
            "Give init several captures of one commit, or run pytest-nsys baseline calibrate.",
        )
    return (
        f"What 'plus tolerance' allows, by the spread of the window's length over {figures.capture_count} captures.",
    )


def store_rows(
    gate: GateFile,
    captures: Captures,
    store: BaselineStore,
    reason: str = FIRST_BASELINE_REASON,
    keep: WindowPacker | None = None,
) -> WrittenBaseline | None:
    """Write the baselines of a gate file as a refresh does; return None if it has none. Raises BaselineError.

    ``keep`` makes the file with the run's windows that is stored next to the baseline.
    """
    assertions = [assertion for assertion in gate.assertions if assertion.reads_stored_baseline]
    if not assertions:
        return None
    context = GateContext(captures, gate, StoredBaseline(captures, gate, store))
    refresh = GateBaselineRefresh(
        gate, context, reason, RefreshMode.ALL, format_path=os.path.relpath, pack_windows=keep
    )
    refresh.wanted_assertions += assertions
    return refresh.write()


def find_failures(gate: GateFile, captures: Captures, store: BaselineStore) -> dict[int, str]:
    """Return what is wrong with each assertion, by its index.

    Empty if all pass with no warning other than that captures disagree.
    """
    context = GateContext(captures, gate, StoredBaseline(captures, gate, store))
    failures: dict[int, str] = {}
    for index, assertion in enumerate(gate.assertions):
        try:
            verdict = evaluate(assertion, context)
        except NsysError as error:
            failures[index] = str(error)
            continue
        # Disagreeing captures are reported, but no assertion is omitted for them: the gate would detect even less.
        outlier_warnings = captures.describe_outlying_captures(
            assertion.measured_metric, resolve_window_spec(captures.convention, assertion)
        )
        warnings = [warning for warning in verdict.warnings if warning not in outlier_warnings]
        if verdict.outcome is not Outcome.PASSED or warnings:
            failures[index] = f"{verdict.outcome}: {warnings[0] if warnings else verdict.message}"
    return failures


def exclude_failing(
    draft: Draft, load_captures: Callable[[GateFile], Captures], name: str
) -> tuple[Draft, list[OmittedSentence]]:
    """Return the draft reduced to the sentences that pass on their trace, and the sentences that do not.

    Raises NothingMeasured if none passes.
    """
    omitted: list[OmittedSentence] = []
    draft = _excuse_missing_rows(draft, load_captures, name)
    while draft.sentences:
        failures = _find_draft_failures(draft, load_captures, name)
        if not failures:
            return draft, omitted
        omitted += [OmittedSentence(draft.sentences[index].title, reason) for index, reason in failures.items()]
        passing_sentences = tuple(sentence for index, sentence in enumerate(draft.sentences) if index not in failures)
        draft = replace(draft, sentences=passing_sentences)
    raise NothingMeasured(f"nothing can be judged on this trace: {omitted[0].reason if omitted else 'it has no rows'}")


def _excuse_missing_rows(draft: Draft, load_captures: Callable[[GateFile], Captures], name: str) -> Draft:
    """Return the draft with ``allow_missing`` for the rows that some ranks lack."""
    missing_rows = []
    gate = parse_gate_file(render_gate_file(draft), path=Path(name))
    captures = load_captures(gate)
    for assertion in gate.assertions:
        with contextlib.suppress(NsysError):  # the judgement of the draft reports it
            table = captures.measure_rows(
                assertion.measured_metric, resolve_window_spec(captures.convention, assertion)
            )
            missing_rows += find_absent_ranks(table, assertion.where)
    return replace(draft, allow_missing=format_allow_missing(missing_rows)) if missing_rows else draft


@contextlib.contextmanager
def _make_scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder in which a draft is tried.

    Raises UsageMistake if it cannot be written; the message says where to make room, because the folder's own name is
    random.
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


def _find_draft_failures(draft: Draft, load_captures: Callable[[GateFile], Captures], name: str) -> dict[int, str]:
    """Return what is wrong with each sentence of a draft, by index, tried on its trace in a temporary folder."""
    with _make_scratch_folder() as folder:
        path = folder / name
        gate = parse_gate_file(render_gate_file(draft), path=path)
        captures = load_captures(gate)
        store = find_store(path, path.parent / "baselines", path.parent)
        store_rows(gate, captures, store)
        return find_failures(gate, captures, store)
