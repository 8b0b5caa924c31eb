"""``pytest-nsys TRACE --format html``: how is one run shown as a page, with its step on the timeline and every view?

It is the first screen with pictures: where the time of each rank goes, one rank in full, kernels, communication, what
to look at, what is doubtful, what to type next. For a single view (``--view NAME``), the page has only that section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from pytest_nsys.analysis.budget.strips import RankStrip, list_rank_strips
from pytest_nsys.analysis.budget.timeline import build_timeline
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.analysis.metrics.common_clock import align_clocks
from pytest_nsys.analysis.summary.summary import STEP_METRIC, KernelShares, Summary
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.numbers import choose_scale, format_percent, format_value
from pytest_nsys.core.text_format import quote_command, sanitize_line
from pytest_nsys.core.units import BARE, TIME
from pytest_nsys.reports.drawings.pictures import MAX_STRIPS, Picture
from pytest_nsys.reports.page.budget_view import find_css_class
from pytest_nsys.reports.page.templating import render_page
from pytest_nsys.reports.page.timeline_view import LANE_COLUMNS, build_strip_views, build_timeline_views
from pytest_nsys.reports.screens.findings import describe_no_findings, format_finding, format_win
from pytest_nsys.reports.screens.first_screen import describe_measured_windows, format_stage, list_environment_facts
from pytest_nsys.reports.screens.next_steps import format_detail_command, list_next_steps
from pytest_nsys.reports.session.headline import as_sentence
from pytest_nsys.reports.tables.formats import Table, build_text_table, make_number_columns, make_text_columns
from pytest_nsys.reports.views.all_views import VIEWS
from pytest_nsys.reports.views.view import RenderedView, ViewRequest

SECTIONS = ("ranks", "overlap", "streams", "kernels", "collectives", "budget")
"""The views on a page: those that measure the same windows as the first screen."""

MAX_VIEW_ROWS = 200
"""A page shows at most this many rows of a view, so that a phone can open it; the command below the table prints
all.
"""

MIN_NAMED_PART_SHARE = Fraction(1, 100)
"""The headline names parts of the step that are at least this share of it."""


@dataclass(frozen=True, slots=True)
class ViewSection:
    """Describes one view on a page: its tables as text, its notes, and the command that prints it."""

    name: str
    command: str
    drawing: str = ""  # lines of text above the tables
    tables: Sequence[Table] = ()
    remarks: Sequence[str] = ()
    why: str = ""  # why it shows nothing; empty if it shows something


@dataclass(frozen=True, slots=True)
class TraceDrawing:
    """Holds what a page draws of a run, measured while its trace is open."""

    picture: Picture
    strips: Sequence[RankStrip]
    views: Sequence[ViewSection] = field(default=())


def draw_trace(captures: Captures, spec: WindowSpec, summary: Summary, ranks: Sequence[int] = ()) -> TraceDrawing:
    """Measure what the page of a run draws: the slowest rank in full, all ranks as strips, the views.

    ``ranks`` are the requested ranks; none: all.
    """
    run = captures.runs[0]
    views = [
        measure_view_section(name, ViewRequest(captures, spec, ranks), summary.first_capture_paths) for name in SECTIONS
    ]
    measured_ranks = [budget.rank for budget in summary.budgets]
    return TraceDrawing(
        _draw_rank(run, spec, summary.step.slowest_rank),
        [*list_rank_strips(run, spec, measured_ranks[:MAX_STRIPS])],
        views,
    )


def _draw_rank(run: Run, spec: WindowSpec, rank: int) -> Picture:
    """Return the picture of a rank's median window, or the reason why it cannot be drawn."""
    try:
        rank_group = run.load_windows(spec)
        windows = rank_group.require_filled_windows({rank})[rank]
        window = windows[len(windows) // 2]
        timeline = build_timeline(window, align_clocks(rank_group).find_alignment(window.rank.process.clock))
    except NsysError as error:
        return Picture("window", "run", rank, missing_reason=sanitize_line(str(error), 400))
    return Picture("window", "run", rank, head=timeline)


def measure_view_section(name: str, request: ViewRequest, traces: Sequence[str]) -> ViewSection:
    """Return the section of a view; if the view cannot be measured, the section says why."""
    command = quote_command(["pytest-nsys", *traces, "--view", name])
    try:
        return make_view_section(VIEWS[name].show(request), command)
    except NsysError as error:
        return ViewSection(name, command, why=as_sentence(sanitize_line(str(error), 400)))


def make_view_section(rendered_view: RenderedView, command: str) -> ViewSection:
    """Return the section of a trace's page that shows a measured view: its tables, its drawn bars, its notes and the
    command that prints it.
    """
    tables = [_shorten_table(table) for table in rendered_view.format_for_page()]
    drawing = "\n".join(rendered_view.draw_bars()).rstrip()
    remarks = [*rendered_view.summary.lines_below, *(note.text for note in rendered_view.notes)]
    return ViewSection(
        rendered_view.view.name, command, drawing, tables, [sanitize_line(line, 1000) for line in remarks]
    )


def _shorten_table(table: Table) -> Table:
    """Return a table with the rows that a page shows, and the number of the others."""
    return Table(
        table.columns, table.rows[:MAX_VIEW_ROWS], table.caption, table.omitted_count + len(table.rows[MAX_VIEW_ROWS:])
    )


def render_trace_page(summary: Summary, drawing: TraceDrawing) -> str:
    """Return the page of a run."""
    (timeline,) = build_timeline_views([drawing.picture])
    return render_page(
        "trace.html.j2",
        interactive=not drawing.picture.missing_reason,
        title=sanitize_line(Path(summary.traces[0]).name),
        headline=_format_trace_headline(summary),
        facts=[*list_environment_facts(summary.environment)],
        window=as_sentence(describe_measured_windows(summary.environment.selection, len(WHOLE_LINE), summary.searched)),
        doubts=[sanitize_line(doubt, 1000) for doubt in summary.doubts],
        missing=[
            f"rank {rank}: {sanitize_line(reason, 400)}" for rank, reason in sorted(summary.unmeasured_ranks.items())
        ],
        strips=build_strip_views(drawing.strips),
        legend=[(find_css_class(part), str(part)) for part in _list_parts(summary)],
        more_strips=max(len(summary.budgets) - MAX_STRIPS, 0),
        ranks=_build_rank_table(summary),
        timeline_view=timeline,
        timeline_columns=LANE_COLUMNS,
        findings=[*_list_finding_views(summary)],
        nothing_found=_describe_nothing_found(summary),
        kernels=_build_kernel_table(summary.kernels, summary.environment.selection.measured_unit),
        communication=_build_communication_table(summary),
        communication_why=summary.communication.reason,
        views=drawing.views,
        next=[
            *list_next_steps(
                summary.traces,
                summary.options,
                summary.first_capture_paths,
                summary.summarized_step_kind,
                is_cut=summary.environment.is_cut,
            )
        ],
    )


def render_view_page(section: ViewSection, trace: str) -> str:
    """Return the page of one view of a trace."""
    return render_page("view.html.j2", interactive=False, title=sanitize_line(Path(trace).name), view=section)


WHOLE_LINE = " " * 200
"""Its length is the room for the description of how windows were found: on the page that line wraps."""


def _format_trace_headline(summary: Summary) -> str:
    """Return how long a step is, and how its time is spent: ``Step 17.8 ms on rank 1: 82.8% compute, 16.3% …``.

    If the window that is drawn is not as long, the shares are said to be of that.
    """
    step = summary.step
    name = "step" if step.metric == STEP_METRIC else summary.environment.selection.measured_unit
    rank_text = f" on rank {step.slowest_rank}" if len(summary.budgets) > 1 else ""
    budget = next((budget for budget in summary.budgets if budget.rank == step.slowest_rank and budget.parts), None)
    parts = budget.shares if budget is not None else {}
    if (
        budget is not None
        and step.ns
        and abs(Fraction(budget.window_ns) / Fraction(step.ns) - 1) >= MIN_NAMED_PART_SHARE
    ):
        rank_text += f"; the window below, {format_value(budget.window_ns)}"
    largest = sorted(parts.items(), key=lambda part: (part[0] is not BudgetPart.COMPUTE, -part[1]))[:3]
    shares = [f"{format_percent(share)} {part}" for part, share in largest if share >= MIN_NAMED_PART_SHARE]
    return as_sentence(f"{name} {format_value(step.ns)}{rank_text}{': ' if shares else ''}{', '.join(shares)}")


def _list_parts(summary: Summary) -> list[BudgetPart]:
    """Return the parts of the budget that any rank has, in display order."""
    return [part for part in BudgetPart if any(budget.parts.get(part) for budget in summary.budgets)]


def _build_rank_table(summary: Summary) -> Table:
    """Return a row for each rank: the length of its window, and the share of each part."""
    parts = _list_parts(summary)
    scale = choose_scale([budget.window_ns for budget in summary.budgets], TIME)
    rows = [
        (
            str(budget.rank),
            format_value(budget.window_ns, scale=scale),
            *(format_percent(budget.shares[part]) if budget.parts else "–" for part in parts),
        )
        for budget in summary.budgets
    ]
    return build_text_table(
        "Where the time goes, by rank", (*make_number_columns("rank", "time", *map(str, parts)),), rows
    )


def _list_finding_views(summary: Summary) -> Iterator[Mapping[str, str]]:
    """Yield each finding as a sentence, with its possible gain and the command that shows more."""
    other_names = summary.kernels.names
    for finding in summary.findings:
        yield {
            "text": as_sentence(format_finding(finding, other_names=other_names)),
            "win": format_win(finding, summary.environment.selection.measured_unit),
            "command": format_detail_command(finding, summary.first_capture_paths, summary.options),
        }


def _describe_nothing_found(summary: Summary) -> str:
    """Return the line that replaces the findings; empty if there are findings."""
    computes = [budget.shares[BudgetPart.COMPUTE] for budget in summary.budgets if budget.parts]
    if summary.findings or not computes:
        return ""
    return as_sentence(describe_no_findings(min(computes), summary.environment.selection.measured_unit))


def _build_kernel_table(kernels: KernelShares, whole_name: str) -> Table:
    """Return a table of the kernels that take longest, with their share of the step."""
    scale = choose_scale([kernel.ns for kernel in kernels.largest], TIME)
    rows = [
        (
            kernel.display_name,
            kernel.family,
            format_value(kernel.launch_count, BARE),
            format_value(kernel.ns, scale=scale),
            format_percent(kernel.share),
        )
        for kernel in kernels.largest
    ]
    caption = "The kernels that take longest, mean over the ranks"
    columns = (*make_text_columns("kernel", "family"), *make_number_columns("launches", "time", f"of {whole_name}"))
    return build_text_table(caption, columns, rows, max_length=400)


def _build_communication_table(summary: Summary) -> Table:
    """Return a table of the communication of each stage or collective, on the rank where it is exposed longest."""
    communication = summary.communication
    has_bandwidth = any(row.bus_gb_per_s is not None for row in communication.total_and_parts)
    scale = choose_scale([row.total_ns for row in communication.total_and_parts], TIME)
    columns = (
        *make_text_columns(communication.grouping),
        *make_number_columns("rank", "time", "exposed", "overlap", *(["GB/s"] if has_bandwidth else [])),
    )
    rows = [
        (
            format_stage(row.name),
            str(row.rank),
            format_value(row.total_ns, scale=scale),
            format_value(row.exposed_ns, scale=scale),
            "–" if row.overlap_share is None else format_percent(row.overlap_share),
            *(["–" if row.bus_gb_per_s is None else format_value(row.bus_gb_per_s, BARE)] if has_bandwidth else []),
        )
        for row in communication.total_and_parts
    ]
    return build_text_table(
        f"Communication by {communication.grouping}, on the rank that exposes each longest", columns, rows
    )
