"""``kernels`` and ``collectives``: what does a GPU do in a step, by family of kernels, and who waits for whom?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import click

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.doubts import about_uncounted
from pytest_nsys.analysis.kernel_families import FamilySums, Usage
from pytest_nsys.analysis.windows import RUN, WindowSpec
from pytest_nsys.cli.options import MeasureOptions, amount, measuring, peak_option, traces_argument
from pytest_nsys.cli.output import mode_of, note_lines, print_answer, print_notes
from pytest_nsys.core.errors import NothingMeasured, UsageMistake, hint
from pytest_nsys.core.families import TABLES, names_of
from pytest_nsys.core.model import Note
from pytest_nsys.core.units import NANOSECONDS
from pytest_nsys.core.words import counted, printable
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.convention_keys import built_in_or_read
from pytest_nsys.gates.kinds import read_families
from pytest_nsys.reports.kernel_report import COLLECTIVES, CollectiveReport, KernelReport
from pytest_nsys.reports.tables import Table


@click.command()
@traces_argument
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Number of steps. Default: the anchors.")
@amount(
    *("--step-time", NANOSECONDS, "time, as in 412ms"),
    metavar="TIME",
    help="Time of a step without the profiler: 412ms.",
)
@click.option("--family", metavar="NAME", help="Show the single kernels of this family.")
@click.option("--families", metavar="TABLE", help="maxtext, nvidia, or a YAML file: family → globs.")
@measuring(
    window=RUN,
    without=["ranks"],
    no_steady=": `pytest-nsys rows family_ns` takes medians over them",
)
def kernels(
    asked: MeasureOptions,
    traces: tuple[str, ...],
    steps: int | None,
    step_time: Fraction | None,
    family: str | None,
    families: str | None,
) -> None:
    """Show time and launches of each kernel family, per GPU and step.

    TRACES: files, folders or globs of one run.
    """
    table = None if families is None else built_in_or_read(families, TABLES, "table of families", read_families)
    workload = Workload(steps=steps, step_time_ns=None if step_time is None else round(step_time))
    with asked.one_run(traces, workload, metrics=["family_ns"], families=table, may_be_a_step=True) as (captures, spec):
        _print_kernels(asked, traces, captures, spec, family)


def _print_kernels(
    asked: MeasureOptions, traces: Sequence[str], captures: Captures, spec: WindowSpec, family: str | None
) -> None:
    (run,) = captures.runs
    table = captures.convention.families
    if family is not None and family not in (known := names_of(table)):
        raise UsageMistake(f"no family '{printable(family, 60)}'{hint(family, [*map(printable, known)], 'there are')}")
    (together,) = run.measured(spec).together()
    sums = FamilySums(together)
    if family is not None and not sums.families.get(family, Usage()).launches:
        raise NothingMeasured(f"{traces[0]}: no kernel of the family {family} ran under {spec}")
    told = (Note(text) for facts in run.facts for text in facts.notes)
    notes = [*asked.notes, *run.rank_notes, *about_uncounted(run.measured(spec)), *told, *_about_steps(sums, spec)]
    lines = note_lines(dict.fromkeys(notes))
    name = next((name for name, known in TABLES.items() if known == table), "its own")
    report = KernelReport(sums, str(spec), name, family)
    click.echo(report.text(asked.format, {"traces": list(traces), "notes": lines}), nl=False)
    print_notes(lines)


def _about_steps(sums: FamilySums, spec: WindowSpec) -> Iterator[Note]:
    if spec.whole_run and sums.run.workload.steps is None:
        yield Note(
            f"steps are the {counted(sums.steps, 'anchor')} of each rank, and kernels outside of them are counted with "
            "them: --steps says otherwise"
        )


@click.command()
@traces_argument
@peak_option
@measuring(window=RUN, no_steady=": `pytest-nsys rows busbw` takes medians over them")
def collectives(asked: MeasureOptions, traces: tuple[str, ...], peak: Fraction | None) -> None:
    """Show bytes, bandwidth and waits of collectives, by rank, process group and kind.

    TRACES: files, folders or globs of one run.

    Bandwidth is busbw in GB/s of 1e9 bytes. A dash: the traces do not say.
    """
    measured = ["collective_bytes", "collective_wait_ns"]
    with asked.one_run(traces, Workload(peak_gb_per_s=peak), metrics=measured) as (captures, spec):
        _print_collectives(asked, traces, captures, spec)


def _print_collectives(asked: MeasureOptions, traces: Sequence[str], captures: Captures, spec: WindowSpec) -> None:
    (run,) = captures.runs
    (together,) = run.measured(spec).together()
    report = CollectiveReport(together, asked.chosen_of(together.by_rank))
    rows = report.rows()
    if not rows:
        raise NothingMeasured(f"{traces[0]}: no communication kernel runs under {spec}")
    said = map(Note, [*report.agreeing(), *report.unsaid()])
    notes = [*asked.notes, Note(str(spec)), *run.rank_notes, *about_uncounted(run.measured(spec)), *said]
    told = {"stragglers": report.straggling(), "residuals": report.residuals()}
    about = {"trace": list(traces), "kernels": mode_of(spec), **told}
    print_answer(asked.format, Table(COLLECTIVES, rows), about, dict.fromkeys(notes), below=report.lines())
