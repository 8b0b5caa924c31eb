"""Where does the time of a step go, and who waits for whom? ``kernels``, ``collectives``, ``budget``, ``pipeline``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import click

from pytest_nsys.analysis.budget import budget_of, facts_of, window_of_several
from pytest_nsys.analysis.budget_facts import DEFINITION, BudgetFacts, BudgetPart
from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.doubts import about_uncounted
from pytest_nsys.analysis.kernel_families import FamilySums, Usage
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.pipeline import Pipeline, pipelines
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.cli.options import (
    MeasureOptions,
    Said,
    about_windows,
    json_window,
    mode_of,
    note_lines,
    print_answer,
    print_notes,
)
from pytest_nsys.core.errors import NoRows, NothingMeasured, UsageMistake, hint
from pytest_nsys.core.families import TABLES, names_of
from pytest_nsys.core.model import Note, Span, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import BARE
from pytest_nsys.core.words import counted, printable
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.convention_keys import built_in_or_read
from pytest_nsys.gates.gate_file import load_one
from pytest_nsys.gates.judgement import HALFWAY
from pytest_nsys.gates.kinds import read_families
from pytest_nsys.reports.budget_report import BudgetReport
from pytest_nsys.reports.kernel_report import COLLECTIVES, CollectiveReport, KernelReport
from pytest_nsys.reports.tables import CellKind, Column, Format, Row, Table, numbers, texts, times
from pytest_nsys.tools.executors import on_terminal


def kernels(asked: MeasureOptions, traces: tuple[str, ...], said: Said) -> None:
    """Show time and launches of each kernel family, per GPU and step."""
    chosen = said.labels("kernels", "family")
    if len(chosen) > 1:
        raise UsageMistake("--where family=NAME selects one family")
    families = said.families
    table = None if families is None else built_in_or_read(families, TABLES, "table of families", read_families)
    workload = Workload(steps=said.steps, step_time_ns=None if said.step_time is None else round(said.step_time))
    with asked.one_run(traces, workload, metrics=["family_ns"], families=table, may_be_a_step=True) as (captures, spec):
        _print_kernels(asked, traces, captures, spec, next(iter(chosen), None))


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


def collectives(asked: MeasureOptions, traces: tuple[str, ...], said: Said) -> None:
    """Show bytes, bandwidth and waits of collectives, by rank, process group and kind."""
    measured = ["collective_bytes", "collective_wait_ns"]
    with asked.one_run(traces, Workload(peak_gb_per_s=said.peak), metrics=measured) as (captures, spec):
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


COLOURS: Mapping[BudgetPart | None, str] = {
    BudgetPart.COMPUTE: "bright_black",
    BudgetPart.STARVED: "yellow",
    BudgetPart.COLLECTIVE: "red",
    BudgetPart.COPY: "magenta",
    BudgetPart.MEMSET: "magenta",
    BudgetPart.ELSEWHERE: "red",
    BudgetPart.BESIDE: "cyan",
    BudgetPart.STALLED: "blue",
}
"""On a terminal; without colour the characters tell the parts apart."""


def budget(asked: MeasureOptions, traces: tuple[str, ...], said: Said) -> None:  # noqa: ARG001  every view's
    """Show what holds the step back; of several windows, that with the lower median of the time without compute."""
    with asked.one_run(traces, metrics=["compute_absent_ns"]) as (captures, spec):
        _print_budget(asked, traces, captures, spec)


def _print_budget(asked: MeasureOptions, traces: Sequence[str], captures: Captures, spec: WindowSpec) -> None:
    (run,) = captures.runs
    filled = run.measured(spec).filled(asked.chosen(run.ranks))
    budgets: dict[int, BudgetFacts] = {}
    shown: list[RankWindow] = []
    without: list[Note] = []
    for rank, windows in filled.items():
        try:
            window = window_of_several(windows)
            budgets[rank] = facts_of(budget_of(window))
            shown.append(window)
        except NoRows as nothing:
            without.append(Note(f"rank {rank} has no budget: {nothing}"))
    if not budgets:
        raise NothingMeasured(f"{traces[0]}: {without[0].text}")
    report = BudgetReport(budgets)
    if asked.format in (Format.TABLE, Format.MARKDOWN):
        _draw(report, asked.format)
    notes = [Note(str(spec)), *captures.notes(spec, METRICS["compute_absent_ns"]), *without, *map(Note, report.notes())]
    windows_ = [json_window(w.rank, w.window, (w.start_ns, w.end_ns)) for w in shown]
    print_answer(
        asked.format,
        report.table(asked.format),
        about_windows(traces, spec, windows_, DEFINITION),
        dict.fromkeys(notes),
        json_rows=report.json_rows(),
        below=(f"- {line}" if asked.format is Format.MARKDOWN else line for line in report.producers()),
    )


def _draw(report: BudgetReport, format: Format) -> None:
    """The bars, in colour where a person looks at them."""
    fence = ["```text"] if format is Format.MARKDOWN else []
    coloured = format is Format.TABLE and on_terminal(sys.stdout) and not os.environ.get("NO_COLOR")
    for line in fence:
        click.echo(line)
    for pairs in report.bars(sys.stdout.encoding or "ascii"):
        click.echo(_line(pairs, coloured))
    click.echo("```\n" if fence else "")


def _line(pairs: Iterable[tuple[BudgetPart | None, str]], coloured: bool) -> str:
    texts = [click.style(text, fg=COLOURS[part]) if coloured and part else text for part, text in pairs]
    return "".join(texts).rstrip()


LEAST_SCORE = Fraction("0.30")
SENTENCE = "pipeline overlap_score >= 0.30"
"""The rule of the field, as a gate file has it."""

QUANTILES = ("p50", "p90", "p99")
MEASURED = ("overlap_score", "serialization", "share", "period_ns", "anchors", "launches", "gpu_gap_ns", "syncs")

HIDING = (
    *(*numbers("rank", "units"), *times("unit_ns", "stage0_ns", "stage1_ns")),
    *numbers("overlap_score", "serialization"),
    *texts("reading", "rule"),
)
SPENDING = (
    *(*numbers("anchors"), *times(*(f"period_{quantile}_ns" for quantile in QUANTILES))),
    *(*numbers("launches"), *times("gpu_gap_ns"), *numbers("syncs")),
)


def pipeline(asked: MeasureOptions, traces: tuple[str, ...], said: Said) -> None:
    """Show how well the two stages of a pipeline overlap; the window is the unit whose launches and gaps are shown."""
    workload = _stated(said.gate)
    measured = [name for name in MEASURED if workload.blocks or name != "share"]
    with asked.one_run(traces, workload, metrics=measured, span=Span.PERIOD) as (captures, spec):
        _print(asked, traces, captures, spec)


def _stated(gate: str | None) -> Workload:
    """What the gate file says of the work. Raises UsageMistake where it names no stages, GateFileError."""
    if gate is None:
        raise UsageMistake("--view pipeline needs the stages: --gate FILE with pipeline: {stage0: …, stage1: …}")
    found = load_one(Path(gate)).workload
    if found.pipeline is None:
        raise UsageMistake(f"{printable(gate)}: states no pipeline: {{stage0: …, stage1: …}}")
    return found


def _print(asked: MeasureOptions, traces: Sequence[str], captures: Captures, spec: WindowSpec) -> None:
    (run,) = captures.runs
    ranks = asked.chosen(run.ranks)
    (together,) = run.measured(spec).together()
    chosen = {number: found for number, found in sorted(pipelines(together).items()) if number in ranks}
    named = METRICS["overlap_score"], METRICS["share"]
    stages = run.workload.pipeline
    assert stages is not None  # no command without
    notes = [*asked.notes, Note(str(spec)), Note("; ".join(stages.words)), *captures.notes(spec, *named)]
    hiding: list[Row] = [_hiding(number, found) for number, found in chosen.items()]
    columns, spending = _spending(captures, spec, chosen)
    if asked.format in (Format.JSON, Format.CSV):
        about = {"trace": list(traces), "kernels": mode_of(spec), "stages": list(stages.words)}
        rows = [(*first, *second) for first, second in zip(hiding, spending, strict=True)]
        print_answer(asked.format, Table((*HIDING, *columns), rows), about, notes)
        return
    print_answer(asked.format, Table(HIDING, hiding))
    click.echo()
    numbered = [(number, *cells) for number, cells in zip(chosen, spending, strict=True)]
    print_answer(asked.format, Table((HIDING[0], *columns), numbered), None, notes, below=[_verdict(chosen)])


def _hiding(number: int, found: Pipeline) -> Row:
    first, second = found.stages_ns
    numbers = (number, len(found.units), found.period_ns, first, second, found.score, found.serialization)
    return (*numbers, reading(found.serialization), "; ".join(_broken(found)) or "holds")


def reading(serialization: Value | None) -> str:
    if serialization is None:
        return "a stage is empty"
    said = (
        (serialization < 0, "shorter than the longer stage: units overlap each other"),
        (serialization == 0, "hidden"),
        (4 * serialization <= 1, "nearly hidden"),
        (serialization < HALFWAY, "nearer hidden than serial"),
        (serialization == HALFWAY, "halfway"),
        (4 * serialization < 3, "nearer serial than hidden"),
        (serialization < 1, "nearly serial"),
        (serialization == 1, "serial"),
    )
    return next((words for holds, words in said if holds), "longer than both stages: something else takes time")


def _broken(found: Pipeline) -> Iterator[str]:
    if found.score < LEAST_SCORE:
        yield "score below 0.30"
    if found.serialization is None:
        yield "no serialization"
    elif found.serialization >= HALFWAY:
        yield "period not nearer to the longer stage than to the sum"


def _verdict(chosen: Mapping[int, Pipeline]) -> str:
    """The rule's line: on which ranks does it not hold?"""
    broken = [number for number, found in chosen.items() if any(_broken(found))]
    if not broken:
        where = f"all {len(chosen)} ranks" if len(chosen) > 1 else f"rank {next(iter(chosen))}"
        return f"{SENTENCE}: holds on {where}"
    first = chosen[broken[0]]
    values = [first.score, *([] if first.serialization is None else [first.serialization])]
    shown = ", serialization ".join(format_value(value, BARE) for value in values)
    where = f"{len(broken)} of {len(chosen)} ranks; rank {broken[0]}" if len(chosen) > 1 else f"rank {broken[0]}"
    return f"{SENTENCE}: does not hold on {where}: score {shown}: {', '.join(_broken(first))}"


def _spending(
    captures: Captures, spec: WindowSpec, chosen: Mapping[int, Pipeline]
) -> tuple[list[Column], list[tuple[Value | None, ...]]]:
    """What a unit of each rank spends its period on, with a column for each block."""
    values = {
        name: {row.labels: row.value for row in captures.rows(METRICS[name], spec).rows}
        for name in (*MEASURED[3:], "share")
    }
    blocks = sorted({str(labels[1]) for labels in values["share"]})
    columns = [*SPENDING, *(Column(f"share {printable(name)}", CellKind.RATIO) for name in blocks)]
    rows = []
    for number in chosen:
        launched = [value for labels, value in values["launches"].items() if labels[0] == number]
        rows.append(
            (
                values["anchors"].get((number,)),
                *(values["period_ns"].get((number, quantile)) for quantile in QUANTILES),
                sum(launched) if launched else None,
                *(values[name].get((number,)) for name in ("gpu_gap_ns", "syncs")),
                *(values["share"].get((number, name)) for name in blocks),
            )
        )
    return columns, rows
