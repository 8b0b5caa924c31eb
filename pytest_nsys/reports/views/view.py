"""How is one part of a run shown in full, for people and for programs? By a view: tables, and a summary around them.

The rows of a table are those of its first metric; the other metrics are joined to them by their common dimensions.
People get rounded values with units, programs the same columns with exact values.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from textwrap import wrap
from typing import NamedTuple, TypeAlias

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.quantities import QUANTITIES
from pytest_nsys.analysis.metrics.registry import METRICS, Metric
from pytest_nsys.analysis.metrics.table import MetricTable, NothingSelected, Selector, select_meant_rows, select_rows
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, RunWindow, select_ranks
from pytest_nsys.analysis.windows.window_selection import MEDIAN, WindowSpec
from pytest_nsys.core.errors import NothingMeasured, UsageMistake, suggest_or_list
from pytest_nsys.core.model import Label, Note, Rank, Span, Value, Window
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import RATIO, SIZE, TIME
from pytest_nsys.gates.selection import find_absent_ranks
from pytest_nsys.reports.tables.bars import Pen, Piece
from pytest_nsys.reports.tables.formats import (
    Cell,
    CellKind,
    Column,
    Format,
    Row,
    Table,
    escape_markdown,
    render_html_page,
    render_json,
)
from pytest_nsys.reports.tables.layout import DEFAULT_WIDTH

DEFAULT_DEPTH = 3
"""How many levels of a tree are shown unless somebody says otherwise."""

RowCells = Mapping[str, Cell]
"""The cells of one row by column name: its labels and other values."""

DEFAULT_METRICS = ("window_ns",)
"""The metrics whose definition number is used for a view without metrics."""

_DIMENSION_KINDS = {
    "kernel": CellKind.KERNEL,
    **dict.fromkeys(("rank", "stream", "device", "context"), CellKind.NUMBER),
}
_UNIT_KINDS = {TIME: CellKind.TIME, SIZE: CellKind.SIZE, RATIO: CellKind.RATIO}


class ViewRequest:
    """Holds what a view is asked to show: one run under one window spec, some of its ranks, and selected labels.

    No ``ranks`` means all ranks. ``where`` selects rows by label; ``encoding`` is the output stream's; ``depth`` is
    that of a tree.
    """

    def __init__(
        self,
        captures: Captures,
        spec: WindowSpec,
        ranks: Sequence[int] = (),
        where: Mapping[str, Selector] | None = None,
        encoding: str = "utf-8",
        depth: int = DEFAULT_DEPTH,
    ) -> None:
        self.captures, self.spec, self.where, self.encoding = captures, spec, where or {}, encoding
        self.depth = depth
        self.requested_ranks = tuple(ranks)

    @property
    def run(self) -> Run:
        return self.captures.runs[0]

    @cached_property
    def of_all_ranks(self) -> ViewRequest:
        """The same request for all ranks."""
        return ViewRequest(self.captures, self.spec, (), self.where, self.encoding)

    @property
    def leaves_out_ranks(self) -> bool:
        """Whether only some of the run's ranks are requested."""
        return bool(self.requested_ranks) and len({*self.requested_ranks}) < len(self.run.ranks)

    @cached_property
    def ranks(self) -> dict[int, Rank]:
        """The requested ranks by number. Raises UsageMistake for one that does not exist."""
        return self.select_ranks(self.run.ranks)

    def select_ranks(self, ranks: Iterable[Rank]) -> dict[int, Rank]:
        """Return those of ``ranks`` that are requested, by number. Raises UsageMistake if a requested rank is
        missing.
        """
        return select_ranks(ranks, self.requested_ranks)

    @cached_property
    def windows(self) -> dict[int, list[RankWindow]]:
        """The windows of each requested rank. Raises NothingMeasured where one holds no kernel."""
        return {
            number: list(rank_windows)
            for number, rank_windows in self.run.load_windows(self.spec).require_filled_windows(self.ranks).items()
        }

    @cached_property
    def all_ranks_window(self) -> RunWindow:
        """The window over all ranks of the run."""
        (window,) = self.run.load_windows(self.spec).list_run_windows()
        return window

    @cached_property
    def requested_ranks_window(self) -> RunWindow:
        """The window over the requested ranks."""
        (window,) = self.run.load_windows(self.spec).list_run_windows(frozenset(self.ranks))
        return window

    def measure_metric(self, metric: Metric) -> MetricTable:
        """Return the rows of a metric in the requested ranks."""
        return self.captures.measure_rows(metric, self.spec, frozenset(self.ranks))

    def select_rows(self, metric: Metric) -> list[RowCells]:
        """Return the labels of the rows of a metric that ``where`` selects. Raises NothingMeasured if it selects
        none.
        """
        table = self.measure_metric(metric)
        axes = self.captures.mesh.sizes if "rank" in table.dimensions else ()
        where = {
            dimension: selector
            for dimension, selector in self.where.items()
            if dimension in table.dimensions or dimension in axes
        }
        try:
            selected_rows = select_rows(table, where) if self.where else select_meant_rows(table, where)
        except NothingSelected as error:
            raise NothingMeasured(f"{metric.name}: {error}") from None
        return [labels for labels, _ in selected_rows]


@dataclass(frozen=True)
class MetricColumn:
    """Describes a column of values: those of one metric (only rows with the labels ``where``), or values computed from
    each row.
    """

    name: str
    metric: Metric | None = None
    where: Mapping[str, Label] = field(default_factory=dict)
    compute_cell: Callable[[ViewRequest, RowCells], Cell] | None = (
        None  # set for a computed column, which has no metric
    )
    kind: CellKind | None = None  # None: the kind for the metric's unit
    title: str = ""  # the heading for people if it is not the name
    of_all_ranks: bool = False  # whether the values are those of all ranks, whichever are requested

    @property
    def column(self) -> Column:
        unit = self.metric.unit if self.metric is not None else ""
        default_kind = next((kind for name, kind in _UNIT_KINDS.items() if name == unit), CellKind.NUMBER)
        return Column(self.name, self.kind or default_kind, self.title)

    def list_cells(self, request: ViewRequest, rows: Sequence[RowCells]) -> list[Cell]:
        """Return the cell of this column for each row; None if the metric has no value for the row's labels."""
        if self.compute_cell is not None:
            return [self.compute_cell(request, row) for row in rows]
        assert self.metric is not None
        table = (request.of_all_ranks if self.of_all_ranks else request).measure_metric(self.metric)
        labelled_values = [(dict(zip(table.dimensions, labels, strict=True)), value) for labels, value in table.rows]
        matching_values = [(labels, value) for labels, value in labelled_values if self.where.items() <= labels.items()]
        join_dimensions = [dimension for dimension in table.dimensions if dimension not in self.where]
        value_by_labels: dict[object, Value] = {
            tuple(labels[dimension] for dimension in join_dimensions): value for labels, value in matching_values
        }
        return [value_by_labels.get(tuple(row[dimension] for dimension in join_dimensions)) for row in rows]


def _find_metric(name: str) -> Metric:
    """Return the metric, or the quantity that only views show, by its name."""
    return QUANTITIES.get(name) or METRICS[name]


def make_metric_column(metric: str, name: str = "", title: str = "", **where: Label) -> MetricColumn:
    """Return the column of a metric, or of a quantity that only views show; ``name`` overrides its name."""
    found_metric = _find_metric(metric)
    return MetricColumn(name or found_metric.name, found_metric, where, title=title)


def make_computed_column(
    name: str, compute_cell: Callable[[ViewRequest, RowCells], Cell], kind: CellKind = CellKind.TEXT, title: str = ""
) -> MetricColumn:
    """Return a column whose cells are computed from each row."""
    return MetricColumn(name, compute_cell=compute_cell, kind=kind, title=title)


def find_row_rank(request: ViewRequest, row: RowCells) -> Rank:
    """Return the rank that a row belongs to."""
    number = row["rank"]
    assert isinstance(number, int)
    return request.ranks[number]


PID_COLUMN = make_computed_column("pid", lambda request, row: find_row_rank(request, row).pid, CellKind.NUMBER)


AnyColumn: TypeAlias = str | Column | MetricColumn


@dataclass(frozen=True)
class ViewTable:
    """Describes one table of a view: its columns, the source of its rows, and which rows people see.

    A column is the name of a dimension, a column of other cells of the rows, or a metric column; columns may depend on
    the run. Rows come from ``list_rows``, else from the metric ``row_metric_name``, by default that of the first metric
    column.
    """

    columns: Sequence[AnyColumn] | Callable[[ViewRequest], Sequence[AnyColumn]]
    name: str = "rows"  # the key under which JSON has the table
    caption: str = ""
    list_rows: Callable[[ViewRequest], Iterable[RowCells]] | None = None  # None: the rows are those of a metric
    sort_column: str = ""  # for people, rows are sorted by this column in descending order
    max_rows: int | None = None  # people see at most this many rows
    more_hint: str = ""  # how to see the other rows
    skips_zero_rows: bool = False  # whether rows of zeros are hidden from people
    reports_missing_rows: bool = False  # whether to warn of ranks that lack rows which others have
    row_metric_name: str = ""

    def resolve_columns(self, request: ViewRequest) -> Sequence[AnyColumn]:
        """Return the columns of this table for one run."""
        return self.columns(request) if callable(self.columns) else self.columns

    def list_dimensions(self, request: ViewRequest) -> frozenset[str]:
        """Return the names of the columns by which rows can be selected."""
        return frozenset(column for column in self.resolve_columns(request) if isinstance(column, str))

    def find_row_metric(self, request: ViewRequest) -> Metric | None:
        """Return the metric whose rows this table has; None if ``list_rows`` yields the rows."""
        if self.row_metric_name:
            return _find_metric(self.row_metric_name)
        metrics = (column.metric for column in self.resolve_columns(request) if isinstance(column, MetricColumn))
        return next((metric for metric in metrics if metric is not None), None) if self.list_rows is None else None

    def build_table(self, request: ViewRequest) -> Table:
        """Return the table with all of its rows, sorted in descending order by ``sort_column`` if there is one."""
        row_metric, columns = self.find_row_metric(request), self.resolve_columns(request)
        labelled_rows = (
            request.select_rows(row_metric) if row_metric is not None else [*(self.list_rows or _list_no_rows)(request)]
        )
        cells = [
            column.list_cells(request, labelled_rows)
            if isinstance(column, MetricColumn)
            else [labels[_resolve_column(column).name] for labels in labelled_rows]
            for column in columns
        ]
        typed_columns = [_resolve_column(column) for column in columns]
        rows: list[Row] = [tuple(row) for row in zip(*cells, strict=True)]
        if self.sort_column:
            sort_index = [column.name for column in typed_columns].index(self.sort_column)
            rows.sort(key=lambda row: -(row[sort_index] or 0))  # type: ignore[operator]  # a number
        return Table(typed_columns, rows, self.caption)

    def trim_for_people(self, table: Table) -> Table:
        """Return a table for people: without empty rows and columns, and at most the first ``max_rows`` rows."""
        notable_rows = [row for row in table.rows if not self.skips_zero_rows or _has_figures(table.columns, row)]
        limit = len(notable_rows) if self.max_rows is None else self.max_rows
        rows, omitted_count = notable_rows[:limit], len(notable_rows[limit:])
        used_indices = [
            i for i, column in enumerate(table.columns) if not rows or any(row[i] not in (None, "") for row in rows)
        ]
        columns = [table.columns[i] for i in used_indices]
        return replace(
            table, columns=columns, rows=[[row[i] for i in used_indices] for row in rows], omitted_count=omitted_count
        )


def _list_no_rows(_: ViewRequest) -> Iterable[RowCells]:
    return ()


def _resolve_column(column: AnyColumn) -> Column:
    """Return the column for the name of a dimension, a column or a metric column."""
    if isinstance(column, str):
        return Column(column, _DIMENSION_KINDS.get(column, CellKind.TEXT))
    return column.column if isinstance(column, MetricColumn) else column


def _has_figures(columns: Sequence[Column], row: Row) -> bool:
    """Whether any number of a row is neither zero nor absent."""
    return any(cell for column, cell in zip(columns, row, strict=True) if column.to_the_right)


class ShownWindow(NamedTuple):
    """Describes one window of one rank that a view shows."""

    rank: Rank
    window: Window
    gpu_bounds_ns: tuple[int, int] | None  # start and end on the GPU, None if the window has no kernel


class ViewSummary(NamedTuple):
    """Holds what a view shows around its tables: lines for people, facts for programs."""

    lines_above: Sequence[Sequence[Piece]] = ()  # lines that are drawn above the tables
    lines_below: Sequence[str] = ()
    facts: Mapping[str, object] = {}  # keys next to the rows in JSON
    notes: Sequence[Note] = ()
    windows: Sequence[ShownWindow] | None = None  # the shown windows, None: all windows of the request


@dataclass(frozen=True)
class View:
    """Describes one part of a run that can be shown in full, by its tables; programs get the first table as rows."""

    name: str
    tables: tuple[ViewTable, ...]
    metric_names: tuple[str, ...]  # metrics whose notes are shown
    window: str = MEDIAN  # the default; so is the span
    span: Span | None = None
    one_window_reason: str = ""  # why the view takes only one window; empty if it takes several
    option_names: frozenset[str] = frozenset()  # the options, by Python name, that not all views have
    summarize: Callable[[ViewRequest], ViewSummary] = lambda _: ViewSummary()
    list_notes: Callable[[ViewRequest], Iterable[Note]] | None = None  # None: the notes of the metrics
    explain_empty: Callable[[ViewRequest], str] = lambda _: "nothing to show"  # the message if no table has a row

    def show(self, request: ViewRequest) -> RenderedView:
        """Return this view of a run. Raises NothingMeasured if it has no row, UsageMistake for options that the view
        cannot use.
        """
        self._check_dimensions(request)
        selected_dimensions = {*request.where} - {"rank", *(request.captures.mesh.sizes if request.where else ())}
        metrics = [METRICS[name] for name in self.metric_names]
        # The notes are made before the tables, so that their data is freed when the tables need the most memory.
        metric_notes = (
            request.captures.list_notes(request.spec, *metrics)
            if self.list_notes is None
            else [*self.list_notes(request)]
        )
        shown_parts = [part for part in self.tables if selected_dimensions <= part.list_dimensions(request)]
        built_tables = [(part, part.build_table(request)) for part in shown_parts]
        while built_tables and not built_tables[0][1].rows:  # programs get the first table as rows: it must have some
            del built_tables[0]
        if not built_tables:
            raise NothingMeasured(f"{request.captures.paths[0]}: {self.explain_empty(request)}")
        summary = self.summarize(request)
        notes = [Note(str(request.spec)), *metric_notes, *summary.notes, *self._list_missing_rows(request)]
        return RenderedView(self, request, built_tables, summary, tuple(dict.fromkeys(notes)))

    def _check_dimensions(self, request: ViewRequest) -> None:
        """Raise UsageMistake if no table has a dimension by which rows are selected."""
        known_dimensions = frozenset[str]().union(*(part.list_dimensions(request) for part in self.tables))
        for dimension in request.where:
            if dimension not in (names := [*sorted(known_dimensions), *request.captures.mesh.sizes]):
                suggestion = suggest_or_list(dimension, names, "it has")
                raise UsageMistake(
                    f"the view {self.name} has no dimension '{sanitize_line(dimension, 40)}'{suggestion}"
                )

    def _list_missing_rows(self, request: ViewRequest) -> Iterator[Note]:
        """Yield a warning for each requested rank that lacks a row which other ranks have."""
        for part in self.tables:
            if part.reports_missing_rows and (metric := part.find_row_metric(request)) is not None:
                table, where = (
                    request.measure_metric(metric),
                    {name: selector for name, selector in request.where.items() if name in metric.dimensions},
                )
                if table.rows:
                    absent_rows = (
                        absence for absence in find_absent_ranks(table, where) if absence.rank in request.ranks
                    )
                    yield from (Note(f"{self.name}: {absence}", True) for absence in absent_rows)


@dataclass(frozen=True)
class RenderedView:
    """Holds a view of one run and renders it in every format; a notebook shows it as HTML."""

    view: View
    request: ViewRequest
    tables: Sequence[tuple[ViewTable, Table]]
    summary: ViewSummary
    notes: Sequence[Note]

    @property
    def windows(self) -> Sequence[ShownWindow]:
        """The windows that were measured."""
        if self.summary.windows is not None:
            return self.summary.windows
        measured_windows = (w for rank_windows in self.request.windows.values() for w in rank_windows)
        return [ShownWindow(w.rank, w.window, (w.start_ns, w.end_ns)) for w in measured_windows]

    @property
    def definition(self) -> int:
        """The largest definition number among the metrics that are shown."""
        columns = (column for part in self.view.tables for column in part.resolve_columns(self.request))
        metrics = (
            column.metric for column in columns if isinstance(column, MetricColumn) and column.metric is not None
        )
        return max(
            metric.definition
            for metric in (*metrics, *(METRICS[name] for name in self.view.metric_names or DEFAULT_METRICS))
        )

    @cached_property
    def rows(self) -> Table:
        """The rows for programs: the first table, with the columns of tables that have the same rows."""
        (_, first), *other_tables = self.tables
        joined_tables = [table for part, table in other_tables if part.name == "rows"]
        columns = [*first.columns, *(column for table in joined_tables for column in table.columns[1:])]
        rows = zip(first.rows, *(table.rows for table in joined_tables), strict=True)
        return Table(
            columns,
            [(*first_row, *(cell for row in joined_rows for cell in row[1:])) for first_row, *joined_rows in rows],
        )

    @cached_property
    def combined_table(self) -> Table:
        """All tables concatenated, with the union of their columns; if there are several, the first column names the
        table.
        """
        first_part = self.tables[0][0]
        table_by_name = {first_part.name: self.rows} | {
            part.name: table for part, table in self.tables if part.name != "rows"
        }
        if len(table_by_name) == 1:
            return self.rows
        columns = {column.name: column for table in table_by_name.values() for column in table.columns}
        named_rows = (
            (name, dict(zip((column.name for column in table.columns), row, strict=True)))
            for name, table in table_by_name.items()
            for row in table.rows
        )
        rows = [(name, *(cells.get(column) for column in columns)) for name, cells in named_rows]
        return Table([Column("table"), *columns.values()], rows)

    def to_records(self) -> list[dict[str, object]]:
        """Return the rows as plain dicts, for ``pandas.DataFrame`` and ``polars.DataFrame``: times in whole ns, ratios
        from 0 to 1.
        """
        columns = [column for column in self.rows.columns if column.kind is not CellKind.DETAIL]
        return [{column.name: record[column.name] for column in columns} for record in self.rows.to_records()]

    def render(self, format: Format, metadata: Mapping[str, object] | None = None, width: int = DEFAULT_WIDTH) -> str:
        """Return the view as text in a format. JSON has ``metadata`` before the rows; a table has lines of ``width``
        characters.
        """
        match format:
            case Format.JSON:
                other_rows = {part.name: table.to_records() for part, table in self.tables if part.name != "rows"}
                return render_json(
                    {**(metadata or {}), **self.summary.facts, **other_rows, "rows": self.rows.to_records()}
                )
            case Format.CSV:
                return self.combined_table.render(Format.CSV)
            case Format.MARKDOWN:
                return "\n".join(self._render_markdown())
            case Format.HTML:
                return render_html_page(self._repr_html_(), f"pytest-nsys: {self.view.name}")
            case Format.TABLE:
                return "\n".join(self._render_text(width))

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self.draw_bars()) + self.render(Format.TABLE)

    def draw_bars(self, pen: Pen = Pen()) -> list[str]:  # noqa: B008  it never changes
        """Return the lines drawn above the tables, followed by an empty line; no lines if nothing is drawn."""
        lines = [pen.render_line(pieces) for pieces in self.summary.lines_above]
        return [*lines, ""] if lines else []

    def _list_trimmed_tables(self) -> Iterator[tuple[ViewTable, Table]]:
        return ((part, part.trim_for_people(table)) for part, table in self.tables if table.rows)

    def format_for_page(self) -> list[Table]:
        """Return the tables for a page, with every cell as text."""
        return [table.format_for_page() for _, table in self._list_trimmed_tables()]

    def _render_text(self, width: int) -> Iterator[str]:
        for part, table in self._list_trimmed_tables():
            caption = f"{table.caption}\n" if table.caption else ""
            yield caption + table.render(Format.TABLE, width=width) + _format_more_hint(part, table)
        if self.summary.lines_below:
            paragraphs = (
                wrap(sanitize_line(line, 1000), width, subsequent_indent="  ") for line in self.summary.lines_below
            )
            yield "".join(f"{line}\n" for lines in paragraphs for line in lines)

    def _render_markdown(self) -> Iterator[str]:
        if bar_lines := self.draw_bars():
            yield "".join(f"{line}\n" for line in ("```text", *bar_lines[:-1], "```"))
        for part, table in self._list_trimmed_tables():
            caption = f"{table.caption}\n\n" if table.caption else ""
            yield (
                caption
                + table.render(Format.MARKDOWN)
                + (f"\n{_format_more_hint(part, table)}" if table.omitted_count else "")
            )
        if self.summary.lines_below:
            yield "".join(f"- {escape_markdown(' '.join(line.split()), 1000)}\n" for line in self.summary.lines_below)

    def _repr_html_(self) -> str:
        bar_text = "\n".join(self.draw_bars())
        pieces = [f"<pre>{html.escape(bar_text)}</pre>\n"] if bar_text else []
        for _, table in self._list_trimmed_tables():
            pieces += [table.render_html(), "\n"]
        pieces += [f"<p>{html.escape(sanitize_line(line, 1000))}</p>\n" for line in self.summary.lines_below]
        return "".join(pieces)


def _format_more_hint(part: ViewTable, table: Table) -> str:
    return f"and {table.omitted_count} others{part.more_hint}\n" if table.omitted_count else ""
