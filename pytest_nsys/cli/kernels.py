"""``pytest-nsys kernels``: what does a GPU do in a step, by family of kernels, and does the rest of the step matter?"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from pytest_nsys.analysis.captures import CaptureCache, Captures
from pytest_nsys.analysis.kernel_families import FamilySums, Usage
from pytest_nsys.analysis.preflight import about_uncounted
from pytest_nsys.analysis.reading_plan import Request
from pytest_nsys.analysis.windows import WindowSpec, spec_under
from pytest_nsys.cli.choosing_convention import convention_for
from pytest_nsys.cli.one_run import run_command, time_of, window_of_run
from pytest_nsys.cli.options import opening_of
from pytest_nsys.cli.output import note_lines, print_notes
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import NothingMeasured, UsageMistake
from pytest_nsys.core.families import TABLES, Families, names_of
from pytest_nsys.core.hints import did_you_mean
from pytest_nsys.core.model import KernelsMode, Note, Span, counted, printable
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.convention_keys import read_families
from pytest_nsys.gates.yaml_nodes import Mistakes, Reader, compose_file
from pytest_nsys.reports.kernel_report import KernelReport
from pytest_nsys.reports.tables import Format

_OPTIONS = (
    click.option("--steps", type=click.IntRange(1), metavar="N", help="Steps that were taken. Default: the anchors."),
    click.option("--step-time", metavar="TIME", help="How long a step takes without the profiler, as in 412ms."),
    click.option("--family", metavar="NAME", help="The single kernels of this family."),
    click.option("--families", metavar="TABLE", help="maxtext, nvidia, or a YAML file of families and their globs."),
)


@dataclass(frozen=True)
class Asked:
    """What the options say. ``convention`` None: by the format of the traces."""

    format: Format
    convention: str | None
    anchor: str | None
    families: Families | None
    window: str
    span: Span | None
    mode: KernelsMode | None
    executor: str | None

    def spec(self, convention: Convention) -> WindowSpec:
        return spec_under(convention, self.window, self.span, self.mode)

    def convention_for(self, traces: Sequence[str]) -> Convention:
        """The convention, with the families that are asked for."""
        found = convention_for(traces, self.convention, self.anchor)
        return dataclasses.replace(found, families=self.families) if self.families is not None else found

    @contextlib.contextmanager
    def captures(self, traces: Sequence[str], workload: Workload) -> Iterator[Captures]:
        """One run of all traces, and the files let go at the end."""
        convention = self.convention_for(traces)
        requests = [Request("family_ns", self.spec(convention))]
        with contextlib.closing(CaptureCache(opening_of(self.executor, self.format))) as library:
            yield library.one_run(traces, Path(), convention, workload, requests)


@run_command(*_OPTIONS, anchor="the range that is a step")
def kernels(
    traces: tuple[str, ...],
    steps: int | None,
    step_time: str | None,
    family: str | None,
    window: str | None,
    start: int | None,
    end: int | None,
    **more: Any,
) -> None:
    """Time and launches of each family of kernels, per GPU and step.

    TRACES (files, folders or globs) are one run together.
    """
    asked = Asked(
        format=Format(more["format"]),
        convention=more["convention"],
        anchor=more["anchor"],
        families=_families_of(more["families"]) if more["families"] is not None else None,
        window=window_of_run(window, start, end, "family_ns"),
        span=Span(more["span"]) if more["span"] else None,
        mode=KernelsMode(more["kernels"]) if more["kernels"] else None,
        executor=more["executor"],
    )
    workload = Workload(steps=steps, step_time_ns=None if step_time is None else time_of(step_time, "--step-time"))
    with asked.captures(traces, workload) as captures:
        _print(asked, traces, captures, family)


def _print(asked: Asked, traces: Sequence[str], captures: Captures, family: str | None) -> None:
    spec, (run,) = asked.spec(captures.convention), captures.runs
    _check_family(family, captures.convention.families)
    (together,) = run.measured(spec).together()
    sums = FamilySums(together)
    if family is not None and not sums.families.get(family, Usage()).launches:
        raise NothingMeasured(f"{traces[0]}: no kernel of the family {family} ran under {spec}")
    told = (Note(text) for facts in run.facts for text in facts.notes)
    notes = [*run.rank_notes, *about_uncounted(run.measured(spec)), *told, *_about_steps(sums, spec)]
    lines = note_lines(dict.fromkeys(notes))
    report = KernelReport(sums, str(spec), _name_of(captures.convention.families), family)
    click.echo(report.text(asked.format, {"traces": list(traces), "notes": lines}), nl=False)
    print_notes(lines)


def _about_steps(sums: FamilySums, spec: WindowSpec) -> Iterator[Note]:
    if spec.whole_run and sums.run.workload.steps is None:
        yield Note(
            f"steps are the {counted(sums.steps, 'anchor')} of each rank, and kernels outside of them are counted with "
            "them: --steps says otherwise"
        )


def _check_family(family: str | None, table: Families) -> None:
    known = names_of(table)
    if family is not None and family not in known:
        hint = did_you_mean(family, known) or f": there are {', '.join(map(printable, known))}"
        raise UsageMistake(f"no family '{printable(family, 60)}'{hint}")


def _name_of(table: Families) -> str:
    return next((name for name, known in TABLES.items() if known == table), "its own")


def _families_of(value: str) -> Families:
    """A built-in table by name, or that of a YAML file."""
    if value in TABLES:
        return TABLES[value]
    path = Path(value)
    if not path.is_file():
        hint = did_you_mean(value, TABLES) or f": built in are {', '.join(TABLES)}"
        raise UsageMistake(f"'{printable(value)}' is no table of families and no file{hint}")
    mistakes = Mistakes(path)
    found = read_families(Reader(mistakes), compose_file(path, mistakes))
    mistakes.raise_any()
    assert found is not None  # else there was a mistake
    return found
