"""``pytest-nsys compare``: did it get worse between two runs?"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytest_nsys.analysis.captures.cache import check_distinct_captures
from pytest_nsys.cli.command_group import ExitCode
from pytest_nsys.cli.options import (
    MeasureOptions,
    add_measure_options,
    make_measurements_option,
    make_pen,
    open_cache,
    resolve_format,
    write_answer,
)
from pytest_nsys.cli.terminal_text import echo, style_lines
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.file_names import GATE_SUFFIX, GateAddress, find_gate_files
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.gates.comparability import FIELDS
from pytest_nsys.gates.convention_keys import check_trace_paths
from pytest_nsys.gates.gate_file import load_configuration
from pytest_nsys.gates.model import GateFile, Verdict
from pytest_nsys.reports.session.comparison_report import make_comparison_session, render_comparison
from pytest_nsys.reports.session.session import Session
from pytest_nsys.reports.tables.bars import Pen
from pytest_nsys.reports.tables.formats import UNLIMITED_LENGTH
from pytest_nsys.tools.executors import is_on_terminal
from pytest_nsys.traces.sidecars.measurements import find_files_by_capture
from pytest_nsys.traces.trace_files import find_traces
from pytest_nsys.verdicts.comparison import Result, TwoRuns, compare_runs, make_claims_gate
from pytest_nsys.verdicts.references import OtherRun

if TYPE_CHECKING:
    from pytest_nsys.reports.drawings.pictures import PicturesByAssertion

# For CI, a comparison that decides nothing is not a success: it ends like one without data.
EXIT_CODES = {
    Result.NOT_WORSE: ExitCode.GOOD,
    Result.WORSE: ExitCode.WORSE,
    Result.NOT_SHOWN: ExitCode.WORSE,
    Result.INCOMPARABLE: ExitCode.NO_DATA,
    Result.UNDECIDED: ExitCode.NO_DATA,
}


FORMATS = ("table", "markdown", "json", "brief", "html")
FORMAT_BY_SUFFIX = {".txt": "table", ".md": "markdown", ".json": "json", ".html": "html", ".htm": "html"}
"""The format by suffix of the output file, used without --format."""


@click.command()
@click.argument("paths", nargs=-1, metavar="[BASE HEAD]")
@click.option("--base", multiple=True, metavar="PATH", help="A capture of the base (repeatable).")
@click.option("--head", multiple=True, metavar="PATH", help="A capture of the head (repeatable).")
@click.option(
    "--gate", "gates", multiple=True, metavar="FILE", help="Gate file, or folder of them, that judges (repeatable)."
)
@click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar="SENTENCE",
    help="What head is to be shown to do, as in 'step time at least 3% below baseline' (repeatable).",
)
@make_measurements_option("--base-measurements", "capture of the base")
@make_measurements_option("--head-measurements", "capture of the head")
@click.option("--format", type=click.Choice(FORMATS), help="Default: the suffix of --output, else table.")
@click.option("-o", "--output", metavar="FILE", help="File of the report; one line is printed.")
@click.option(
    "--comparable-on",
    multiple=True,
    type=click.Choice(FIELDS),
    help="Circumstance that must agree (repeatable). Default: all.",
)
@click.option("--artifacts", metavar="DIR", help="Folder for both windows of each failed assertion.")
@click.option("-v", "--verbose", is_flag=True, help="Show every row, also within limits.")
@add_measure_options(omitted=["ranks", "format"])
@click.pass_context
def compare(
    context: click.Context,
    measure_options: MeasureOptions,
    paths: tuple[str, ...],
    base: tuple[str, ...],
    head: tuple[str, ...],
    gates: tuple[str, ...],
    claims: tuple[str, ...],
    base_measurements: tuple[str, ...],
    head_measurements: tuple[str, ...],
    format: str | None,
    output: str | None,
    comparable_on: tuple[str, ...],
    artifacts: str | None,
    verbose: bool,
) -> None:
    """Compare two runs, worst regressions first.

    Each is a file, folder or quoted glob. For several captures a side, repeat --base and --head: three are told
    apart by separation, five by a test. Without --gate, built-in assertions judge.

    Exit codes: 0 nothing worse; 1 worse, or a claim not shown; 2 a mistake or unreadable trace; 3 incomparable, or no
    data.
    """
    measurements_by_side = (
        find_files_by_capture(base_measurements, Path()),
        find_files_by_capture(head_measurements, Path()),
    )
    sides = ((), ()) if all(measurements_by_side) and not (paths or base or head) else _split_sides(paths, base, head)
    captures = [[find_traces(value, Path()) for value in side] for side in sides]
    traces = [path for side in captures for capture in side for path in capture]
    input_files = [(path, "is one of the traces") for path in traces]
    input_files += [
        (Path(GateAddress.parse_file_and_configuration(gate).file), "is one of the gate files") for gate in gates
    ]
    input_files += [
        (path, "is one of the measurements")
        for side in measurements_by_side
        for capture_files in side
        for path in capture_files
    ]
    output_format = resolve_format(format, output, FORMAT_BY_SUFFIX, input_files, default="table")
    gate_paths = _find_gate_files(gates)
    # Report mistakes in the arguments before reading any trace.
    check_distinct_captures(*captures)
    _check_gate_options(measure_options, gate_paths)
    gate_files = [load_configuration(gate) for gate in gate_paths]
    make_claims_gate(claims, gate_files[0] if gate_files else GateFile(Path(), (), measure_options.named_convention))
    if artifacts is not None:
        _check_artifacts(artifacts, traces)
    with open_cache(measure_options.executor, output_format) as library:
        runs = TwoRuns(library, *sides, measurements_by_side, measure_options.anchor)
        gate_files = gate_files or [
            runs.make_builtin_gate(
                measure_options.named_convention, measure_options.window, measure_options.span, measure_options.kernels
            )
        ]
        if claims:
            gate_files.append(make_claims_gate(claims, gate_files[0]))
        if comparable_on:
            gate_files = [dataclasses.replace(gate, comparable_on=comparable_on) for gate in gate_files]
        pairs = {gate.address: runs.open_pair(gate) for gate in gate_files}
        comparison = compare_runs([*pairs.values()], sides[0] or base_measurements, sides[1] or head_measurements)
        pairs_and_verdicts = [(pairs[verdict.address], verdict) for verdict in comparison.verdicts]
        if artifacts is not None:
            _write_failed_windows(Path(artifacts), pairs_and_verdicts)
        session = make_comparison_session(comparison)
        if output_format == "html":
            session = dataclasses.replace(session, pictures=_draw_assertion_pictures(session, pairs_and_verdicts))
    pen = make_pen(output)
    # What goes into a file or through a pipe is searched: its lines stay whole unless COLUMNS says otherwise.
    is_fitted = output is None and (is_on_terminal(sys.stdout) or "COLUMNS" in os.environ)
    width = pen.columns if is_fitted else UNLIMITED_LENGTH
    write_answer(_render_comparison(session, output_format, pen, width, verbose=verbose), output, is_drawn=True)
    if output is not None:
        echo(f"{session.headline}; written to {output}")
    context.exit(EXIT_CODES[comparison.result])


def _render_comparison(session: Session, format: str, pen: Pen, width: int, *, verbose: bool) -> str:
    """Render the report of a comparison; each format is imported only when it is requested."""
    if format == "json":
        from pytest_nsys.reports.session.json_report import render_report

        return render_report(session)
    if format == "brief":
        from pytest_nsys.reports.session.session_brief import render_session_brief

        return render_session_brief(session)
    if format == "markdown":
        from pytest_nsys.reports.session.markdown import render_summary

        return render_summary(session, verbose=verbose)
    if format == "html":
        from pytest_nsys.reports.page.session_page import render_session_page

        return render_session_page(session)
    lines = render_comparison(session, width, verbose=verbose)
    return "".join(f"{line}\n" for line in (style_lines(lines) if pen.has_colours else lines))


def _draw_assertion_pictures(
    session: Session, pairs_and_verdicts: Sequence[tuple[OtherRun, Verdict]]
) -> PicturesByAssertion:
    """Draw the page's pictures: of the assertions that need attention, else of the one nearest to failing."""
    from pytest_nsys.reports.drawings.pictures import draw_verdict
    from pytest_nsys.reports.session.story import sort_by_severity

    records, shown_pictures = sort_by_severity(session.records), set[str]()
    drawn_names = {record.identity for record in [r for r in records if r.needs_attention] or records[:1]}
    verdict_by_name = {
        (pair.gate.address, v.assertion.location.line, v.assertion.name): (pair, v) for pair, v in pairs_and_verdicts
    }
    return {
        name: draw_verdict(verdict, pair.captures, pair.base_captures, shown_pictures)
        for name, (pair, verdict) in verdict_by_name.items()
        if name in drawn_names
    }


def _check_artifacts(folder: str, traces: Sequence[Path]) -> None:
    """Raise UsageMistake if windows cannot be written to the folder."""
    from pytest_nsys.plugin.artifacts import check_output_folder

    if not folder.strip():
        raise UsageMistake("--artifacts is empty: write --artifacts=DIR")
    check_output_folder(f"--artifacts={sanitize_line(folder)}", Path(folder), traces)


def _write_failed_windows(folder: Path, pairs_and_verdicts: Sequence[tuple[OtherRun, Verdict]]) -> None:
    """Write the windows of failed assertions, and print their paths to standard error."""
    from pytest_nsys.plugin.artifacts import has_failed, write_window

    for pair, verdict in pairs_and_verdicts:
        if has_failed(verdict):
            path = write_window(folder, pair.gate.address, verdict, pair.captures, pair.base_captures)
            echo(f"wrote {sanitize_line(str(path), 1000)}: {sanitize_line(verdict.assertion.full_name)}", err=True)


def _split_sides(
    paths: Sequence[str], base: Sequence[str], head: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the captures of base and of head. Raises UsageMistake if one is missing, or if positional paths and
    options are mixed.
    """
    if paths and (base or head):
        raise UsageMistake("give BASE and HEAD, or --base and --head, not both")
    if len(paths) > 2:
        count_text = f"there are {len(paths)} paths, and BASE HEAD are two"
        raise UsageMistake(f"{count_text}: quote a glob, and repeat --base and --head for several captures")
    if len(paths) == 2:
        base, head = (paths[0],), (paths[1],)
    if not base or not head:
        missing = "HEAD is" if paths or base else "BASE is" if head else "BASE and HEAD are"
        raise UsageMistake(f"{missing} missing: pytest-nsys compare BASE HEAD, or --base PATH --head PATH")
    check_trace_paths((*base, *head))
    return tuple(base), tuple(head)


def _find_gate_files(path_texts: Sequence[str]) -> list[Path]:
    """Return the gate files named by files and folders. Raises UsageMistake for a folder without any."""
    gate_files: list[Path] = []
    for path_text in path_texts:
        files = sorted(find_gate_files(Path(path_text))) if Path(path_text).is_dir() else [Path(path_text)]
        if not files:
            raise UsageMistake(f"{path_text}: holds no gate file (*{GATE_SUFFIX})")
        gate_files += files
    return gate_files


def _check_gate_options(measure_options: MeasureOptions, gates: Sequence[Path]) -> None:
    """Raise UsageMistake for options that the gate files set, and for a gate file that is given twice."""
    if gates and measure_options.typed_options:
        option, _ = measure_options.typed_options[0]
        raise UsageMistake(f"{option} is what the gate file says: give --gate or {option}, not both")
    if len({gate.resolve() for gate in gates}) < len(gates):
        raise UsageMistake("a gate file is given twice")
