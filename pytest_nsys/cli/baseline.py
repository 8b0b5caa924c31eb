"""``pytest-nsys baseline``: accept a run as the new normal, measure its noise, see and prune what is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from pytest_nsys.cli.command_group import ExitCode, ListingGroup, print_error
from pytest_nsys.cli.gate_check import has_gate_files
from pytest_nsys.cli.options import format_option, make_measurements_option, print_answer
from pytest_nsys.cli.pytest_session import list_gates_with_stores, shorten_path, update_baselines
from pytest_nsys.cli.shared_options import executor_option, folder_option
from pytest_nsys.cli.terminal_text import echo
from pytest_nsys.core.errors import BaselineError, UsageMistake
from pytest_nsys.core.file_names import GATE_SUFFIX, GateAddress, find_gate_files
from pytest_nsys.core.text_format import format_count, format_labels_in_full, sanitize_line
from pytest_nsys.drafting.gate_text import SCHEMA_NAME
from pytest_nsys.gates.comparability import format_circumstance as in_words
from pytest_nsys.gates.noise import FEWEST_TRACES
from pytest_nsys.merge_base.judge_process import JudgeRequest, start_judge
from pytest_nsys.plugin.session import BASELINE_FOLDER_NAME
from pytest_nsys.plugin.settings import format_whole_options
from pytest_nsys.reports.session.markdown import render_merge_base
from pytest_nsys.reports.tables.formats import (
    CellKind,
    Column,
    Format,
    Measure,
    Row,
    Table,
    make_number_column,
    make_text_columns,
)
from pytest_nsys.stored.baselines.baseline_file import Baseline, describe_series, load_baseline
from pytest_nsys.stored.baselines.store import (
    BaselineStore,
    PruneResult,
    build_window_path,
    find_orphans,
    remove_orphan,
)
from pytest_nsys.stored.baselines.store import prune_store as prune_shelf
from pytest_nsys.tools.files import append_to_file, write_atomically
from pytest_nsys.verdicts.refresh_modes import MAX_ACCEPTED_RUNS, RefreshMode, RefreshOptions

BASELINE_COLUMNS = (
    *make_text_columns("file", "gate", "metric", "labels"),
    *(make_number_column("value"), Column("unit", CellKind.UNIT), make_number_column("runs"), Column("measured")),
)


@click.group(cls=ListingGroup)
def baseline() -> None:
    """Accept a run as the normal, and see what is stored."""


@baseline.command()
@click.argument("gate_files", nargs=-1, required=True, metavar="GATE_FILES…")
@click.option("--trace", "traces", multiple=True, metavar="PATH", help="The run to accept; repeat for its captures.")
@make_measurements_option("--measurements", "trace")
@click.option("--reason", required=True, help="Why the change is right; stored with the rows.")
@click.option("-k", "selected", metavar="EXPRESSION", help="Only the assertions that pytest -k selects.")
@click.option("--all", "every_row", is_flag=True, help="Write every row, not only what moved beyond its tolerance.")
@click.option(
    "--accept-run", is_flag=True, help=f"Add the run to the accepted runs, of which {MAX_ACCEPTED_RUNS} are kept."
)
@click.option("--no-window", is_flag=True, help="Do not keep the windows of the run, which say why a later one is red.")
@folder_option
@executor_option
@click.pass_context
def refresh(
    context: click.Context,
    gate_files: tuple[str, ...],
    traces: tuple[str, ...],
    measurements: tuple[str, ...],
    reason: str,
    selected: str | None,
    every_row: bool,
    accept_run: bool,
    no_window: bool,
    baseline_dir: str | None,
    executor: str | None,
) -> None:
    """Write the rows of a run as the baselines of GATE_FILES.

    Folders mean the gate files in them, 'step.nsys.yaml[llama-8b]' one configuration of a matrix, whose trace is
    --trace=llama-8b=PATH.

    Writes the rows that are new or moved beyond their tolerance, prints old and new values, and keeps the measured
    windows beside the baseline. A row is a line of the file, so that 'git checkout -p' takes some back. Refuses a run
    with an error or a structural failure, and leaves out what has no data. Ends with what is still red, and what to
    type or to write: of a constant the sentence that holds this run.
    """
    if accept_run and every_row:
        raise UsageMistake("--accept-run takes every row: leave --all out")
    mode = RefreshMode.ACCEPT_RUN if accept_run else RefreshMode.ALL if every_row else RefreshMode.MOVED
    run_options = [
        *_format_run_options(traces, measurements, executor),
        *(["-k", selected] if selected is not None else []),
    ]
    context.exit(update_baselines(gate_files, baseline_dir, reason, RefreshOptions(mode, not no_window), run_options))


@baseline.command()
@click.argument("traces", nargs=-1, metavar="TRACES…")
@make_measurements_option("--measurements", "trace")
@click.option(
    *("--gate", "gate_files"),
    multiple=True,
    metavar="FILE",
    help="Gate file or folder of them (repeatable). Default: all below the current folder.",
)
@click.option("--reason", required=True, metavar="TEXT", help="Why the noise is measured; stored with it.")
@folder_option
@executor_option
@click.pass_context
def calibrate(
    context: click.Context,
    traces: tuple[str, ...],
    measurements: tuple[str, ...],
    gate_files: tuple[str, ...],
    reason: str,
    baseline_dir: str | None,
    executor: str | None,
) -> None:
    """Measure the noise of what is stored, on five or more TRACES of one commit.

    Each trace (file, folder or quoted glob) is one run; so are measurements without traces. Accepted values stay as
    they are; where none are stored, the traces are the accepted runs as well.
    """
    run_count = len(traces or measurements)
    if run_count < FEWEST_TRACES:
        raise UsageMistake(
            f"noise is measured on {FEWEST_TRACES} or more traces of one commit, not on {run_count}: give more"
        )
    gate_paths = list(gate_files) or sorted(map(str, find_gate_files(Path())))
    if not gate_paths:
        raise UsageMistake(f"there is no gate file (*{GATE_SUFFIX}) below {Path().resolve()}: give --gate FILE")
    run_options = _format_run_options(traces, measurements, executor)
    context.exit(update_baselines(gate_paths, baseline_dir, reason, RefreshOptions(RefreshMode.CALIBRATE), run_options))


def _format_run_options(traces: tuple[str, ...], measurements: tuple[str, ...], executor: str | None) -> list[str]:
    """Return the pytest options that name the run whose rows are written."""
    options = [f"--nsys-trace={trace}" for trace in traces] + [f"--nsys-measurements={file}" for file in measurements]
    return [*options, *([f"--nsys-executor={executor}"] if executor is not None else [])]


@baseline.command()
@click.argument("folder", default=BASELINE_FOLDER_NAME)
@format_option
def show(folder: str, format: Format) -> None:
    """Print the rows of every baseline below FOLDER.

    The default is baselines/. Of gate files, or a folder of them, those that a gate run finds.
    """
    root = Path(GateAddress.parse_file_and_configuration(folder).file)
    if not root.exists():
        raise UsageMistake(f"{root}: there is no such folder: give that of the baselines, or the gate files")
    paths = _find_baseline_files(folder)
    if not paths:
        raise UsageMistake(f"{root}: holds no baseline (*.json): give the folder of the baselines, or the gate files")
    baselines = [(path, load_baseline(path)) for path in paths]
    rows = [row for path, stored_baseline in baselines for row in _list_stored_rows(path, stored_baseline)]
    print_answer(format, Table(BASELINE_COLUMNS, rows))
    for path, stored_baseline in baselines:
        key_text = ", ".join(
            f"{name} {in_words(value)}" for name, value in stored_baseline.key.items() if value is not None
        )
        window = BaselineStore(path.parent, stored_baseline.gate).read_stored_window(path, stored_baseline)
        window_text = f"; its windows are in {build_window_path(path).name}" if window is not None else ""
        echo(
            f"{path}: {key_text}; {stored_baseline.provenance.get('reason', 'no reason stored')}{window_text}", err=True
        )


def _find_baseline_files(path_text: str) -> list[Path]:
    """Return the baseline files of a path: the file itself, those below a folder, or those of gate files."""
    root = Path(path_text)
    if root.is_file() and root.suffix == ".json":
        return [root]
    if files_below := sorted(path for path in root.rglob("*.json") if path.name != SCHEMA_NAME):
        return files_below
    if not has_gate_files(Path(GateAddress.parse_file_and_configuration(path_text).file)):
        return []
    gate_baselines = (
        path
        for gate, place in list_gates_with_stores([path_text], None)
        for path, _ in place.find_gate_store(gate).load_all()
    )
    return sorted({shorten_path(path) for path in gate_baselines})


def _list_stored_rows(path: Path, stored_baseline: Baseline) -> list[Row]:
    rows: list[Row] = []
    for sid, series in sorted(stored_baseline.series.items()):
        for labels, values in series.rows.items():
            labels_text = format_labels_in_full(zip(series.dimensions, labels, strict=True))
            first_cells = (str(path), stored_baseline.gate, sid.metric, labels_text)
            rows.append(
                (*first_cells, Measure(values[-1], series.unit), series.unit, len(values), ", ".join(sid.window_fields))
            )
    return rows


@baseline.command()
@click.argument("ref")
@click.argument("paths", nargs=-1, metavar="PATHS…")
@click.option("--trace", "traces", multiple=True, metavar="PATH", help="The run to judge; repeat for its captures.")
@make_measurements_option("--measurements", "trace")
@click.option("--against", multiple=True, metavar="PATH", help="The run in place of the stored baselines (repeatable).")
@make_measurements_option("--against-measurements", "against")
@click.option("--history", metavar="FILE", help="The database that limits from the history read. Nothing is written.")
@click.option("--config-file", "ini_file", metavar="FILE", help="The ini file, as pytest -c takes it.")
@folder_option
@executor_option
@click.option("--summary", metavar="FILE", help="Append the verdict as Markdown, as for $GITHUB_STEP_SUMMARY.")
@click.option("--json", "json_file", metavar="FILE", help="Write the verdict as JSON.")
@click.pass_context
def judge(
    context: click.Context,
    ref: str,
    paths: tuple[str, ...],
    traces: tuple[str, ...],
    measurements: tuple[str, ...],
    against: tuple[str, ...],
    against_measurements: tuple[str, ...],
    history: str | None,
    ini_file: str | None,
    baseline_dir: str | None,
    executor: str | None,
    summary: str | None,
    json_file: str | None,
) -> None:
    """Judge a run by the gate files of the merge base of REF and HEAD.

    PATHS are gate files and folders; without any those that pytest takes by itself. Gate files, baselines and ini file
    are those of the merge base, in a process in which nothing of the branch runs. Run it before the branch's own
    pytest, in an environment that the branch does not install into.

    Exit codes: 0; 1 where something is red; 2 a mistake, or a merge base that cannot be read.
    """
    run_settings = {
        "nsys_trace": traces,
        "nsys_measurements": measurements,
        "nsys_against": against,
        "nsys_against_measurements": against_measurements,
        "nsys_history": history,
        "nsys_executor": executor,
    }
    options = [*format_whole_options(run_settings, Path.cwd())]
    verdict = start_judge(JudgeRequest(ref, Path.cwd(), paths, options, baseline_dir, ini_file, gates_only=True)).wait()
    if json_file is not None:
        write_atomically(Path(json_file), (json.dumps(verdict.as_json(), indent=1) + "\n").encode())
    if summary is not None:
        append_to_file(Path(summary), ("\n".join(render_merge_base(verdict)) + "\n").encode("utf-8", "replace"))
    for line in verdict.render_lines():
        echo(line)
    context.exit(ExitCode.MISTAKE if verdict.is_broken else ExitCode.WORSE if verdict.is_red else ExitCode.GOOD)


@baseline.command()
@click.argument("gate_files", nargs=-1, required=True, metavar="GATE_FILES…")
@click.option("--dry-run", is_flag=True, help="Print what would be dropped.")
@click.option("--orphans", "drop_orphans", is_flag=True, help="Also remove baselines without a gate file.")
@folder_option
@click.pass_context
def prune(
    context: click.Context, gate_files: tuple[str, ...], dry_run: bool, drop_orphans: bool, baseline_dir: str | None
) -> None:
    """Drop what no assertion of GATE_FILES reads any more.

    Needs no trace. Also lists baselines whose gate file is gone.
    """
    gates_and_places = list_gates_with_stores(gate_files, baseline_dir)
    lines: list[str] = []
    # Prune the other files even if one cannot be read.
    errors: list[BaselineError] = []
    for gate, place in gates_and_places:
        results, store_errors = prune_shelf(gate, place.find_gate_store(gate), dry_run=dry_run)
        lines += [line for result in results for line in _describe_pruned(result, dry_run)]
        errors += store_errors
    known_stores = [place.find_gate_store(gate) for gate, place in gates_and_places]
    folders = sorted({(place.baseline_folder, place.root_folder) for _, place in gates_and_places})
    for orphan in (orphan for folder, root in folders for orphan in find_orphans(folder, root, known_stores)):
        try:
            if drop_orphans and not dry_run:
                remove_orphan(orphan)
            action = "--orphans removes" if not drop_orphans else "would remove" if dry_run else "removed"
            count_text = format_count(len(orphan.files), "baseline")
            lines.append(
                f"{shorten_path(orphan.folder)}: its gate file {orphan.gate} is gone; {action} its {count_text}"
            )
        except BaselineError as error:
            errors.append(error)
    for line in lines if lines or errors else ["nothing to prune: every stored series is in use"]:
        echo(sanitize_line(line, 2000))
    for broken_file in errors:
        print_error(broken_file)
    context.exit(ExitCode.MISTAKE if errors else ExitCode.GOOD)


def _describe_pruned(result: PruneResult, dry_run: bool) -> Iterator[str]:
    """Describe in one or two lines what was (with ``dry_run``: would be) pruned from a file."""
    drop_verb, removal = ("would drop", "would be removed") if dry_run else ("dropped", "was removed")
    if not result.series:
        yield f"{shorten_path(result.path)}: {removal}, its windows are of a different run"
        return
    yield (
        f"{shorten_path(result.path)}: {drop_verb} {', '.join(map(describe_series, result.series))}: "
        f"{format_count(result.row_count, 'row')}"
    )
    if result.is_removed:
        yield f"{shorten_path(result.path)}: {removal}, as nothing of it is read"
