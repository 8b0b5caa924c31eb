"""``pytest-nsys capture``: a program run under nsys, its report found and exported; or the plan of such a run."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import click

from pytest_nsys.capture.program import EXPORT, MICRO_BATCHES, Capture, Captured, Job, Sizes, job_of, plan, run_capture
from pytest_nsys.cli.group import Exit, complain
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.words import printable
from pytest_nsys.traces.gpu_log import notes_on_gpus
from pytest_nsys.traces.nsys.exports import export_to


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("program", metavar="-- PROGRAM [ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("-o", "--output", metavar="DIR", default="traces", show_default=True, help="Folder of the reports.")
@click.option("--name", default="step", show_default=True, help="Reports are named NAME_node0.nsys-rep.")
@click.option("--nodes", type=int, metavar="N", help="Capture N nodes of the SLURM allocation, one report each.")
@click.option("--node", type=int, metavar="K", help="Number of this node, where SLURM does not say.")
@click.option("--whole-run", is_flag=True, help="Profile the whole program, not only the marked step.")
@click.option("--nsys-option", "options", multiple=True, metavar="--X=Y", help="Another option of nsys (repeatable).")
@click.option("--no-export", is_flag=True, help="Do not export the report.")
@click.option("--force", is_flag=True, help="Replace an existing report.")
@click.option("--plan", "only_plan", is_flag=True, help="Print the resulting sizes and run nothing.")
@click.option("--world-size", "world", type=int, metavar="W", help="Number of GPUs.")
@click.option("--pp", type=int, default=1, show_default=True, help="Pipeline stages.")
@click.option("--ep", type=int, default=1, show_default=True, help="Expert parallelism.")
@click.option("--cp", type=int, default=1, show_default=True, help="Context parallelism.")
@click.option("--gpus-per-node", type=int, default=8, show_default=True, help="GPUs per node.")
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
    job = _placed(job_of(os.environ), node)
    if only_plan or world is not None:
        if world is None:
            raise UsageMistake("--plan needs --world-size")
        found = plan(Sizes(world, pp, ep, cp, gpus_per_node), job.nodes)
        parts = f"{MICRO_BATCHES} micro-batches per stage × DP {found.dp} × EP {ep}"
        click.echo(
            f"nodes         {found.nodes}\nDP            {found.dp}\nglobal batch  {found.global_batch} ({parts})"
        )
        if only_plan:
            if program:
                raise UsageMistake("--plan runs nothing: leave the program out, or --plan")
            return
    elif (pp, ep, cp) != (1, 1, 1):
        raise UsageMistake("--pp, --ep and --cp are checked against --world-size: give that too")
    _check(program, output, name, options)
    wanted = Capture(Path(output), program, name, _nodes(nodes, job), job.node, whole_run, options)
    sys.stdout.flush()
    captured = run_capture(wanted, job, force=force)
    _tell(captured, export=not no_export)
    if not captured.good:
        complain(f"the program ended with {captured.code}; its report is kept")
        sys.exit(Exit.WORSE)
    click.echo(f"judge it: pytest --nsys-trace={printable(output)}")


def _placed(job: Job, node: int | None) -> Job:
    if node is None:
        return job
    if node < 0:
        raise UsageMistake(f"--node {node}: nodes are counted from 0")
    return replace(job, node=node, one_of_many=True)


def _check(program: tuple[str, ...], output: str, name: str, options: tuple[str, ...]) -> None:
    """Raises UsageMistake for what cannot be captured."""
    if not program:
        raise UsageMistake("no program: pytest-nsys capture -- torchrun … train.py")
    if not output:
        raise UsageMistake("--output is empty")
    if not re.fullmatch(r"[A-Za-z0-9-][A-Za-z0-9_-]*", name):
        raise UsageMistake(f"--name '{printable(name, 40)}': letters, digits, - and _")
    for option in options:
        if not re.match(r"--[a-z][a-z0-9-]*(=|$)", option):
            raise UsageMistake(f"--nsys-option '{printable(option, 40)}': write it as --nsys-option=--sample=none")
        if option.startswith("--output"):
            raise UsageMistake("--nsys-option=--output: use --output and --name for the path of the report")


def _nodes(asked: int | None, job: Job) -> int:
    """How many nodes a job step is to be started on; 1 where this node is captured."""
    if asked is None or (asked == 1 and not job.nodes):
        return 1
    if asked < 1:
        raise UsageMistake(f"--nodes {asked}: at least 1")
    if job.nodes is None:
        raise UsageMistake(
            f"--nodes {asked} needs a SLURM allocation (SLURM_JOB_ID is not set): on other clusters run "
            "`pytest-nsys capture --node K` on each node"
        )
    if job.in_step and asked != job.nodes:
        raise UsageMistake(f"--nodes {asked}: this job step has {job.nodes}, and each node captures itself")
    if asked > job.nodes:
        raise UsageMistake(f"--nodes {asked}: the allocation has {job.nodes}, {asked - job.nodes} short")
    return 1 if job.in_step else asked


def _tell(captured: Captured, *, export: bool) -> None:
    for report in captured.reports:
        click.echo(f"captured {printable(str(report))} ({report.stat().st_size / 1e6:.1f} MB)")
        if export:
            target = report.with_suffix(EXPORT)
            nsys = export_to(report, target)
            size = target.stat().st_size / 1e6
            click.echo(f"exported {printable(str(target))} ({size:.1f} MB) with nsys {nsys.version}")
        for note in notes_on_gpus(report):
            click.echo(note.labelled)
