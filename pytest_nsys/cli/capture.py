"""How does ``capture`` run a program under nsys and export its report, and ``export`` do the latter alone?"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from pytest_nsys.capture.program import (
    EXPORT_ENDING,
    MICRO_BATCHES,
    NsysCommand,
    ProgramRun,
    SlurmJob,
    plan_run,
    read_slurm_job,
    run_capture,
)
from pytest_nsys.cli.command_group import LONGEST_ERROR_LINE, ExitCode, print_error
from pytest_nsys.cli.terminal_text import echo
from pytest_nsys.core.errors import NsysError, UsageMistake
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.traces.nsys.export_cache import export_report, find_user_export
from pytest_nsys.traces.sidecars.gpu_log import make_gpu_notes
from pytest_nsys.traces.trace_files import EXPORT_SUFFIXES, REPORT_SUFFIXES, find_traces


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("program", metavar="-- PROGRAM [ARGUMENTS]…", nargs=-1, type=click.UNPROCESSED)
@click.option("-o", "--output", metavar="DIR", default="traces", show_default=True, help="Folder of the reports.")
@click.option(
    "--name", metavar="NAME", default="step", show_default=True, help="Reports are named NAME_node0.nsys-rep."
)
@click.option("--nodes", type=int, metavar="N", help="Capture N nodes of the SLURM allocation, one report each.")
@click.option("--node", type=int, metavar="K", help="Number of this node, where SLURM does not say.")
@click.option("--whole-run", is_flag=True, help="Profile the whole program, not only the marked step.")
@click.option("--nsys-option", "options", multiple=True, metavar="--X=Y", help="Another option of nsys (repeatable).")
@click.option("--no-export", is_flag=True, help="Do not export the report.")
@click.option("--force", is_flag=True, help="Replace an existing report.")
@click.option("--plan", "only_plan", is_flag=True, help="Print the resulting sizes and run nothing.")
@click.option("--world-size", "world", type=int, metavar="W", help="Number of GPUs.")
@click.option("--pp", type=int, metavar="N", default=1, show_default=True, help="Pipeline stages.")
@click.option("--ep", type=int, metavar="N", default=1, show_default=True, help="Expert parallelism.")
@click.option("--cp", type=int, metavar="N", default=1, show_default=True, help="Context parallelism.")
@click.option("--gpus-per-node", type=int, metavar="N", default=8, show_default=True, help="GPUs per node.")
def capture(
    program: tuple[str, ...],
    output: str,
    name: str,
    nodes: int | None,
    node: int | None,
    whole_run: bool,
    options: tuple[str, ...],
    no_export: bool,
    force: bool,
    only_plan: bool,
    world: int | None,
    pp: int,
    ep: int,
    cp: int,
    gpus_per_node: int,
) -> None:
    """Run PROGRAM under nsys, and export the report.

    Profiles only the step that the program marks with pytest_nsys.profiled_step. In a SLURM job step each node captures
    itself; outside of one, --nodes starts a step on all nodes. --world-size checks the sizes before anything runs.

    Exit codes: 0 good; 1 the program failed; 2 no report; 3 nothing was profiled.
    """
    job = _set_node(read_slurm_job(os.environ), node)
    if only_plan or world is not None:
        if world is None:
            raise UsageMistake("--plan needs --world-size")
        sizes = plan_run(world, pp, ep, cp, gpus_per_node, job.nodes)
        product = f"{MICRO_BATCHES} micro-batches per stage × DP {sizes.dp} × EP {ep}"
        echo(f"nodes         {sizes.nodes}\nDP            {sizes.dp}\nglobal batch  {sizes.global_batch} ({product})")
        if only_plan:
            if program:
                raise UsageMistake("--plan runs nothing: leave the program out, or --plan")
            return
    elif (pp, ep, cp) != (1, 1, 1):
        raise UsageMistake("--pp, --ep and --cp are checked against --world-size: give that too")
    _check_arguments(program, output, name, options)
    command = NsysCommand(Path(output), program, name, _count_nodes(nodes, job), job.node, whole_run, options)
    sys.stdout.flush()  # else the program's output would come first
    program_run = run_capture(command, job, force=force)
    _print_captured_reports(program_run, export=not no_export)
    if not program_run.is_good:
        print_error(f"the program ended with {program_run.exit_code}; its report is kept")
        sys.exit(ExitCode.WORSE)
    echo(f"judge it: pytest --nsys-trace={sanitize_line(output)}")


def _set_node(job: SlurmJob, node: int | None) -> SlurmJob:
    """Return the job with the number of this node replaced by ``node``, if that is given."""
    if node is None:
        return job
    if node < 0:
        raise UsageMistake(f"--node {node}: nodes are counted from 0")
    return replace(job, node=node, is_one_of_many=True)


def _check_arguments(program: tuple[str, ...], output: str, name: str, options: tuple[str, ...]) -> None:
    """Raise UsageMistake for arguments that make a capture impossible."""
    if not program:
        raise UsageMistake("no program: pytest-nsys capture -- torchrun … train.py")
    if not output:
        raise UsageMistake("--output is empty")
    if not re.fullmatch(r"[A-Za-z0-9-][A-Za-z0-9_-]*", name):
        raise UsageMistake(f"--name '{sanitize_line(name, 40)}': letters, digits, - and _")
    for option in options:
        if not re.match(r"--[a-z][a-z0-9-]*(=|$)", option):
            raise UsageMistake(f"--nsys-option '{sanitize_line(option, 40)}': write it as --nsys-option=--sample=none")
        if option.startswith("--output"):
            raise UsageMistake("--nsys-option=--output: use --output and --name for the path of the report")


def _count_nodes(requested: int | None, job: SlurmJob) -> int:
    """Return the number of nodes on which to start a job step; 1 if this process captures its own node.

    Raises UsageMistake for a number that the SLURM allocation does not have.
    """
    if requested is None or (requested == 1 and not job.nodes):
        return 1
    if requested < 1:
        raise UsageMistake(f"--nodes {requested}: at least 1")
    if job.nodes is None:
        raise UsageMistake(
            f"--nodes {requested} needs a SLURM allocation (SLURM_JOB_ID is not set): on other clusters run "
            "`pytest-nsys capture --node K` on each node"
        )
    if job.in_step and requested != job.nodes:
        raise UsageMistake(f"--nodes {requested}: this job step has {job.nodes}, and each node captures itself")
    if requested > job.nodes:
        raise UsageMistake(f"--nodes {requested}: the allocation has {job.nodes}, {requested - job.nodes} short")
    return 1 if job.in_step else requested


def _print_captured_reports(program_run: ProgramRun, *, export: bool) -> None:
    for report in program_run.reports:
        echo(f"captured {sanitize_line(str(report))} ({report.stat().st_size / 1e6:.1f} MB)")
        if export:
            echo(
                sanitize_line(
                    f"exported {_write_export(report, report.with_suffix(EXPORT_ENDING))}", LONGEST_ERROR_LINE
                )
            )
        for note in make_gpu_notes(report):
            echo(note.labelled_text)


@click.command()
@click.argument("reports", metavar="REPORT…", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="PATH", help="File of one export, or folder of several. Default: beside each report."
)
@click.option("--force", is_flag=True, help="Replace an existing export.")
def export(reports: tuple[str, ...], output: str | None, force: bool) -> None:
    """Export reports of nsys (.nsys-rep, .qdrep) to SQLite.

    REPORTS are files, folders or globs. Commands and gates read reports directly and cache the export. Use this to keep
    an export, or to carry it to a machine without nsys. An export that is newer than its report is kept.
    """
    paths = _find_reports(reports)
    targets = _choose_export_targets(paths, output)
    failed = False
    for report, target in zip(paths, targets, strict=True):
        try:
            echo(sanitize_line(_export_report(report, target, force=force), LONGEST_ERROR_LINE))
        except NsysError as error:
            failed = True
            print_error(error)
    if failed:
        sys.exit(ExitCode.MISTAKE)


def _find_reports(path_texts: Sequence[str]) -> list[Path]:
    all_reports: list[Path] = []
    for path_text in path_texts:
        if not path_text:
            raise UsageMistake("the path of a report is empty")
        traces = find_traces(path_text, Path())
        reports = [path for path in traces if path.suffix in REPORT_SUFFIXES]
        if not reports:
            raise UsageMistake(f"{sanitize_line(str(traces[0]))}: is not a report (*{', *'.join(REPORT_SUFFIXES)})")
        all_reports += [path for path in reports if path not in all_reports]
    return all_reports


def _choose_export_targets(reports: Sequence[Path], output: str | None) -> list[Path]:
    """Return the path of each report's export. Raises UsageMistake if two would be the same file."""
    if output is None:
        targets = [report.with_suffix(".sqlite") for report in reports]
    elif output == "":
        raise UsageMistake("--output is empty")
    elif Path(output).is_dir() or output.endswith("/"):
        targets = [Path(output) / report.with_suffix(".sqlite").name for report in reports]
    elif len(reports) > 1:
        raise UsageMistake(f"--output {output}: {len(reports)} reports need a folder, and this is none")
    elif Path(output).suffix not in EXPORT_SUFFIXES:
        raise UsageMistake(f"--output {output}: an export ends in .sqlite (a folder must exist, or end in /)")
    else:
        targets = [Path(output)]
    for n, target in enumerate(targets):
        if target in targets[:n]:
            first = reports[targets.index(target)]
            raise UsageMistake(f"{first} and {reports[n]} would both be exported to {target}: export them one by one")
    return targets


def _export_report(report: Path, target: Path, *, force: bool) -> str:
    """Export one report, and describe what was done on one line. Raises TraceError, UsageMistake."""
    existing_export = find_user_export(report)
    if target.exists() and not force:
        is_newer = (
            existing_export is not None and existing_export.path == target
        ) or target.stat().st_mtime_ns >= report.stat().st_mtime_ns
        if is_newer and target.is_file():
            return f"{target} is there, and not older than its report (--force exports again)"
        raise UsageMistake(f"{target}: is there, and older than {report.name}: --force replaces it")
    target.parent.mkdir(parents=True, exist_ok=True)
    return f"wrote {_write_export(report, target)}"


def _write_export(report: Path, target: Path) -> str:
    """Export one report, and describe the file with its size and the version of nsys."""
    nsys = export_report(report, target)
    return f"{target} ({target.stat().st_size / 1e6:.1f} MB) with nsys {nsys.version}"
