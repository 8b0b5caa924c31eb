"""``pytest-nsys TRACE --format html``: how does one run leave as a page, with its step on the timeline and every view?

It is the first screen with pictures: where the time of each rank goes, one rank in full, kernels, communication, what
to look at, what is doubtful, what to type next. A view alone (``--view NAME``) is the same page with that section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from pytest_nsys.analysis.budget.strips import RankStrip, list_rank_strips
from pytest_nsys.analysis.budget.timeline import timeline_of
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.analysis.metrics.common_clock import common_clock
from pytest_nsys.analysis.summary.summary import STEP, KernelShares, Summary
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.numbers import format_value, percent, scale_of
from pytest_nsys.core.units import BARE, TIME
from pytest_nsys.core.words import printable, typed
from pytest_nsys.reports.drawings.pictures import Picture
from pytest_nsys.reports.page.budget_view import css
from pytest_nsys.reports.page.page import render
from pytest_nsys.reports.page.timeline_view import COLUMNS, strip_views, timeline_views
from pytest_nsys.reports.screens.findings import nothing_found, sentence, win_words
from pytest_nsys.reports.screens.first_screen import describe_environment, found_words, name_stage
from pytest_nsys.reports.screens.next_steps import next_steps, to_see_more
from pytest_nsys.reports.session.headline import as_sentence
from pytest_nsys.reports.tables.formats import Table, numbers, table_of, texts
from pytest_nsys.reports.views.all_views import VIEWS
from pytest_nsys.reports.views.view import Looked, Shown

SECTIONS = ("ranks", "overlap", "streams", "kernels", "collectives", "budget")
"""The views that a page has: those that measure what the first screen does, in the same windows."""

MOST_ROWS = 200
"""Rows of a view on a page, which has to open on a phone; the command below the table prints all."""

MOST_STRIPS = 128
LEAST_NAMED = Fraction(1, 100)
"""A part of the step that the headline names is at least so much of it."""


@dataclass(frozen=True, slots=True)
class ViewSection:
    """Describes one view on a page: its tables as text, what it says besides, and the command that prints it."""

    name: str
    command: str
    drawing: str = ""  # lines of text above the tables
    tables: Sequence[Table] = ()
    remarks: Sequence[str] = ()
    why: str = ""  # why it shows nothing; empty where it shows something


@dataclass(frozen=True, slots=True)
class TraceDrawing:
    """Holds what a page draws of a run, measured while its trace is open."""

    picture: Picture
    strips: Sequence[RankStrip]
    views: Sequence[ViewSection] = field(default=())


def draw_trace(captures: Captures, spec: WindowSpec, summary: Summary, ranks: Sequence[int] = ()) -> TraceDrawing:
    """Measure what the page of a run draws: the slowest rank in full, all ranks as strips, the views.

    ``ranks`` are those that were asked for; none: all.
    """
    run = captures.runs[0]
    views = [look_at_view(name, Looked(captures, spec, ranks), summary.first) for name in SECTIONS]
    measured = [budget.rank for budget in summary.budgets]
    return TraceDrawing(
        _draw_rank(run, spec, summary.step.slowest), [*list_rank_strips(run, spec, measured[:MOST_STRIPS])], views
    )


def _draw_rank(run: Run, spec: WindowSpec, rank: int) -> Picture:
    """Return the window of a rank that its values are the median of; or why it cannot be drawn."""
    try:
        group = run.measured(spec)
        windows = group.filled({rank})[rank]
        window = windows[len(windows) // 2]
        timeline = timeline_of(window, common_clock(group).standing(window.rank.process.clock))
    except NsysError as error:
        return Picture("window", "run", rank, why=printable(str(error), 400))
    return Picture("window", "run", rank, head=timeline)


def look_at_view(name: str, looked: Looked, traces: Sequence[str]) -> ViewSection:
    """Return the section of a view; one that cannot be measured says why."""
    command = typed(["pytest-nsys", *traces, "--view", name])
    try:
        return make_view_section(VIEWS[name].look(looked), command)
    except NsysError as error:
        return ViewSection(name, command, why=as_sentence(printable(str(error), 400)))


def make_view_section(shown: Shown, command: str) -> ViewSection:
    """Return the section of a view that was measured."""
    tables = [_shorten(table) for table in shown.for_page()]
    drawing = "\n".join(shown.drawn()).rstrip()
    remarks = [*shown.paragraph.below, *(note.text for note in shown.notes)]
    return ViewSection(shown.view.name, command, drawing, tables, [printable(line, 1000) for line in remarks])


def _shorten(table: Table) -> Table:
    return Table(table.columns, table.rows[:MOST_ROWS], table.caption, table.more + len(table.rows[MOST_ROWS:]))


def render_trace_page(summary: Summary, drawing: TraceDrawing) -> str:
    """Return the page of a run."""
    (timeline,) = timeline_views([drawing.picture])
    return render(
        "trace.html.j2",
        interactive=not drawing.picture.why,
        title=printable(Path(summary.traces[0]).name),
        headline=_format_headline(summary),
        facts=[*describe_environment(summary.subject)],
        window=as_sentence(found_words(summary.subject.found, len(WHOLE_LINE), summary.searched)),
        doubts=[printable(doubt, 1000) for doubt in summary.doubts],
        missing=[f"rank {rank}: {printable(why, 400)}" for rank, why in sorted(summary.without.items())],
        strips=strip_views(drawing.strips),
        legend=[(css(part), str(part)) for part in _list_parts(summary)],
        more_strips=max(len(summary.budgets) - MOST_STRIPS, 0),
        ranks=_tabulate_ranks(summary),
        timeline_view=timeline,
        timeline_columns=COLUMNS,
        findings=[*_list_findings(summary)],
        nothing_found=_say_nothing_found(summary),
        kernels=_tabulate_kernels(summary.kernels, summary.subject.found.of),
        communication=_tabulate_communication(summary),
        communication_why=summary.communication.why,
        views=drawing.views,
        next=[
            *next_steps(
                summary.traces, summary.options, summary.first, summary.kind_of_several, is_cut=summary.subject.is_cut
            )
        ],
    )


def render_view_page(section: ViewSection, trace: str) -> str:
    """Return the page of one view of a trace."""
    return render("view.html.j2", interactive=False, title=printable(Path(trace).name), view=section)


WHOLE_LINE = " " * 200
"""As much room as a line of the page has for how the windows were found: it wraps."""


def _format_headline(summary: Summary) -> str:
    """Return how long a step is, and what its time goes to: ``Step 17.8 ms on rank 1: 82.8% compute, 16.3% …``."""
    step = summary.step
    what = "step" if step.metric == STEP else summary.subject.found.of
    where = f" on rank {step.slowest}" if len(summary.budgets) > 1 else ""
    parts = next((budget.shares for budget in summary.budgets if budget.rank == step.slowest and budget.parts), {})
    largest = sorted(parts.items(), key=lambda part: (part[0] is not BudgetPart.COMPUTE, -part[1]))[:3]
    shares = [f"{percent(share)} {part}" for part, share in largest if share >= LEAST_NAMED]
    return as_sentence(f"{what} {format_value(step.ns)}{where}{': ' if shares else ''}{', '.join(shares)}")


def _list_parts(summary: Summary) -> list[BudgetPart]:
    """Return the parts of the budget that any rank has, in their order."""
    return [part for part in BudgetPart if any(budget.parts.get(part) for budget in summary.budgets)]


def _tabulate_ranks(summary: Summary) -> Table:
    """Return a row for each rank: the length of its window, and the share of each part."""
    parts = _list_parts(summary)
    scale = scale_of([budget.window_ns for budget in summary.budgets], TIME)
    rows = [
        (
            str(budget.rank),
            format_value(budget.window_ns, scale=scale),
            *(percent(budget.shares[part]) if budget.parts else "–" for part in parts),
        )
        for budget in summary.budgets
    ]
    return table_of("Where the time goes, by rank", (*numbers("rank", "time", *map(str, parts)),), rows)


def _list_findings(summary: Summary) -> Iterator[Mapping[str, str]]:
    beside = summary.kernels.names
    for finding in summary.findings:
        yield {
            "text": as_sentence(sentence(finding, beside=beside)),
            "win": win_words(finding, summary.subject.found.of),
            "command": to_see_more(finding, summary.first, summary.options),
        }


def _say_nothing_found(summary: Summary) -> str:
    """Return the line that stands in place of findings; empty where there are some."""
    computes = [budget.shares[BudgetPart.COMPUTE] for budget in summary.budgets if budget.parts]
    if summary.findings or not computes:
        return ""
    return as_sentence(nothing_found(min(computes), summary.subject.found.of))


def _tabulate_kernels(kernels: KernelShares, whole: str) -> Table:
    scale = scale_of([kernel.ns for kernel in kernels.largest], TIME)
    rows = [
        (
            kernel.called,
            kernel.family,
            format_value(kernel.launches, BARE),
            format_value(kernel.ns, scale=scale),
            percent(kernel.share),
        )
        for kernel in kernels.largest
    ]
    caption = "The kernels that take longest, mean over the ranks"
    columns = (*texts("kernel", "family"), *numbers("launches", "time", f"of {whole}"))
    return table_of(caption, columns, rows, longest=400)


def _tabulate_communication(summary: Summary) -> Table:
    found = summary.communication
    has_bandwidth = any(row.busbw is not None for row in found.every)
    scale = scale_of([row.ns for row in found.every], TIME)
    columns = (*texts(found.by), *numbers("rank", "time", "exposed", "overlap", *(["GB/s"] if has_bandwidth else [])))
    rows = [
        (
            name_stage(row.name),
            str(row.rank),
            format_value(row.ns, scale=scale),
            format_value(row.exposed_ns, scale=scale),
            "–" if row.overlap is None else percent(row.overlap),
            *(["–" if row.busbw is None else format_value(row.busbw, BARE)] if has_bandwidth else []),
        )
        for row in found.every
    ]
    return table_of(f"Communication by {found.by}, on the rank that exposes each longest", columns, rows)
