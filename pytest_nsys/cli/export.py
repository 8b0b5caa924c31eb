"""``pytest-nsys export``: the SQLite export of a report, where everybody finds it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from pytest_nsys.cli.group import LONGEST_LINE, Exit, complain
from pytest_nsys.core.errors import NsysError, UsageMistake
from pytest_nsys.core.words import printable
from pytest_nsys.traces.nsys.exports import export_to, own_export
from pytest_nsys.traces.opening import EXPORTS, REPORTS, find_traces


@click.command()
@click.argument("reports", metavar="REPORT...", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="PATH", help="File of one export, or folder of several. Default: beside each report."
)
@click.option("--force", is_flag=True, help="Replace an existing export.")
def export(reports: tuple[str, ...], output: str | None, force: bool) -> None:
    """Export reports (.nsys-rep, .qdrep; files, folders or globs) to SQLite.

    Commands and gates read reports directly and cache the export. Use this to keep an export, or to carry it to a
    machine without nsys. An export that is newer than its report is kept.
    """
    paths = _reports(reports)
    targets = _targets(paths, output)
    failed = False
    for report, target in zip(paths, targets, strict=True):
        try:
            click.echo(printable(_export(report, target, force=force), LONGEST_LINE))
        except NsysError as error:
            failed = True
            complain(error)
    if failed:
        sys.exit(Exit.MISTAKE)


def _reports(values: Sequence[str]) -> list[Path]:
    found: list[Path] = []
    for value in values:
        if not value:
            raise UsageMistake("the path of a report is empty")
        here = find_traces(value, Path())
        reports = [path for path in here if path.suffix in REPORTS]
        if not reports:
            raise UsageMistake(f"{printable(str(here[0]))}: is not a report (*{', *'.join(REPORTS)})")
        found += [path for path in reports if path not in found]
    return found


def _targets(reports: Sequence[Path], output: str | None) -> list[Path]:
    """Where each export goes. Raises UsageMistake where two would go to one file."""
    if output is None:
        targets = [report.with_suffix(".sqlite") for report in reports]
    elif output == "":
        raise UsageMistake("--output is empty")
    elif Path(output).is_dir() or output.endswith("/"):
        targets = [Path(output) / report.with_suffix(".sqlite").name for report in reports]
    elif len(reports) > 1:
        raise UsageMistake(f"--output {output}: {len(reports)} reports need a folder, and this is none")
    elif Path(output).suffix not in EXPORTS:
        raise UsageMistake(f"--output {output}: an export ends in .sqlite (a folder must exist, or end in /)")
    else:
        targets = [Path(output)]
    for n, target in enumerate(targets):
        if target in targets[:n]:
            first = reports[targets.index(target)]
            raise UsageMistake(f"{first} and {reports[n]} would both be exported to {target}: export them one by one")
    return targets


def _export(report: Path, target: Path, *, force: bool) -> str:
    """What was done, as one line. Raises TraceError, UsageMistake."""
    own = own_export(report)
    if target.exists() and not force:
        newer = (own is not None and own.path == target) or target.stat().st_mtime_ns >= report.stat().st_mtime_ns
        if newer and target.is_file():
            return f"{target} is there, and not older than its report (--force exports again)"
        raise UsageMistake(f"{target}: is there, and older than {report.name}: --force replaces it")
    target.parent.mkdir(parents=True, exist_ok=True)
    nsys = export_to(report, target)
    return f"wrote {target} ({target.stat().st_size / 1e6:.1f} MB) with nsys {nsys.version}"
