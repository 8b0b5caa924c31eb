"""How is one part of a run shown in full, for people and for programs? By a view: tables, and a summary around them.

The rows of a table are the rows of its first metric; the other metrics are joined to them by the dimensions that they
have in common. People get rounded values in units, programs the same columns exactly.
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
from pytest_nsys.analysis.metrics.table import MetricTable, NothingSelected, Selector, meant, select
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, RunWindow, chosen_ranks
from pytest_nsys.analysis.windows.spans import MEDIAN, WindowSpec
from pytest_nsys.core.errors import NothingMeasured, UsageMistake, hint
from pytest_nsys.core.model import Label, Note, Rank, Span, Value, Window
from pytest_nsys.core.units import RATIO, SIZE, TIME
from pytest_nsys.core.words import printable
from pytest_nsys.gates.selection import absences
from pytest_nsys.reports.tables.bars import Pen, Piece
from pytest_nsys.reports.tables.formats import (
    Cell,
    CellKind,
    Column,
    Format,
    Row,
    Table,
    as_json,
    escape_markdown,
    html_page,
)
from pytest_nsys.reports.tables.layout import COLUMNS

Key = Mapping[str, Cell]
"""The cells of one row by column name: its labels, and what else is known of it."""

USUAL = ("window_ns",)
"""Metrics whose definition number a view carries that shows no metric itself."""

_OF_DIMENSIONS = {
    "kernel": CellKind.KERNEL,
    **dict.fromkeys(("rank", "stream", "device", "context"), CellKind.NUMBER),
}
_KINDS = {TIME: CellKind.TIME, SIZE: CellKind.SIZE, RATIO: CellKind.RATIO}


class Looked:
    """Holds what a view is asked to show: one run under one window spec, some of its ranks, and selected labels.

    No ``ranks`` means all ranks. ``where`` selects rows by label; ``encoding`` is that of the stream that is printed
    to.
    """

    def __init__(
        self,
        captures: Captures,
        spec: WindowSpec,
        ranks: Sequence[int] = (),
        where: Mapping[str, Selector] | None = None,
        encoding: str = "utf-8",
    ) -> None:
        self.captures, self.spec, self.where, self.encoding = captures, spec, where or {}, encoding
        self.asked = tuple(ranks)

    @property
    def run(self) -> Run:
        return self.captures.runs[0]

    @cached_property
    def ranks(self) -> dict[int, Rank]:
        """The requested ranks by number. Raises UsageMistake for one that does not exist."""
        return self.chosen(self.run.ranks)

    def chosen(self, ranks: Iterable[Rank]) -> dict[int, Rank]:
        """Return the requested ones among some ranks, by number. Raises UsageMistake where a requested rank is not
        among them.
        """
        return chosen_ranks(ranks, self.asked)

    @cached_property
    def windows(self) -> dict[int, list[RankWindow]]:
        """The windows of each requested rank. Raises NothingMeasured where one holds no kernel."""
        return {
            number: list(rank_windows)
            for number, rank_windows in self.run.measured(self.spec).filled(self.ranks).items()
        }

    @cached_property
    def together(self) -> RunWindow:
        """The window over all ranks of the run."""
        (window,) = self.run.measured(self.spec).together()
        return window

    @cached_property
    def asked_together(self) -> RunWindow:
        """The window over the requested ranks."""
        (window,) = self.run.measured(self.spec).together(frozenset(self.ranks))
        return window

    def table(self, metric: Metric) -> MetricTable:
        """Return the rows of a metric in the requested ranks."""
        return self.captures.rows(metric, self.spec, frozenset(self.ranks))

    def selected(self, metric: Metric) -> list[Key]:
        """Return the labels of the rows of a metric that ``where`` selects. Raises NothingMeasured where it selects
        none.
        """
        table = self.table(metric)
        axes = self.captures.mesh.sizes if "rank" in table.dimensions else ()
        where = {
            dimension: selector
            for dimension, selector in self.where.items()
            if dimension in table.dimensions or dimension in axes
        }
        try:
            selected_rows = select(table, where) if self.where else meant(table, where)
        except NothingSelected as error:
            raise NothingMeasured(f"{metric.name}: {error}") from None
        return [labels for labels, _ in selected_rows]


@dataclass(frozen=True)
class Figure:
    """Describes a column of values: of one metric in the rows with the labels ``where``, or computed from each row."""

    name: str
    metric: Metric | None = None
    where: Mapping[str, Label] = field(default_factory=dict)
    of: Callable[[Looked, Key], Cell] | None = None  # set where the column is computed, which has no metric
    kind: CellKind | None = None  # None: that of the metric's unit
    title: str = ""  # what people read above the column where that is not its name

    @property
    def column(self) -> Column:
        unit = self.metric.unit if self.metric is not None else ""
        default_kind = next((kind for name, kind in _KINDS.items() if name == unit), CellKind.NUMBER)
        return Column(self.name, self.kind or default_kind, self.title)

    def cells(self, looked: Looked, keys: Sequence[Key]) -> list[Cell]:
        """Return the cell of this column for each row; None where the metric has no value with the row's labels."""
        if self.of is not None:
            return [self.of(looked, row) for row in keys]
        assert self.metric is not None
        table = looked.table(self.metric)
        labelled_values = [(dict(zip(table.dimensions, labels, strict=True)), value) for labels, value in table.rows]
        matching_values = [(labels, value) for labels, value in labelled_values if self.where.items() <= labels.items()]
        join_dimensions = [dimension for dimension in table.dimensions if dimension not in self.where]
        value_by_labels: dict[object, Value] = {
            tuple(labels[dimension] for dimension in join_dimensions): value for labels, value in matching_values
        }
        return [value_by_labels.get(tuple(row[dimension] for dimension in join_dimensions)) for row in keys]


def _metric_shown(name: str) -> Metric:
    """Return the metric of a name, or the quantity that only views show."""
    return QUANTITIES.get(name) or METRICS[name]


def figure(metric: str, name: str = "", title: str = "", **where: Label) -> Figure:
    """Return the column of a metric, or of a quantity that only views show, perhaps under another name."""
    found_metric = _metric_shown(metric)
    return Figure(name or found_metric.name, found_metric, where, title=title)


def told(name: str, of: Callable[[Looked, Key], Cell], kind: CellKind = CellKind.TEXT, title: str = "") -> Figure:
    """Return a column whose cells are computed from each row."""
    return Figure(name, of=of, kind=kind, title=title)


def rank_of(looked: Looked, key: Key) -> Rank:
    """Return the rank that a row belongs to."""
    number = key["rank"]
    assert isinstance(number, int)
    return looked.ranks[number]


PID = told("pid", lambda request, row: rank_of(request, row).pid, CellKind.NUMBER)


AnyColumn: TypeAlias = str | Column | Figure


@dataclass(frozen=True)
class Part:
    """Describes one table of a view: its columns, where its rows come from, and which of them people see.

    Columns are names of dimensions, columns of what the rows hold, and metric columns; they may depend on the run. The
    rows are those of the metric ``row_metric_name``, by default of the first metric column, or of ``list_rows``.
    """

    columns: Sequence[AnyColumn] | Callable[[Looked], Sequence[AnyColumn]]
    name: str = "rows"  # the key under which JSON has the table
    caption: str = ""
    keys: Callable[[Looked], Iterable[Key]] | None = None  # None: the rows are those of a metric
    by: str = ""  # the column by which people see the largest rows first
    most: int | None = None  # so many rows people see at most
    more: str = ""  # how to see the others
    filled: bool = False  # whether people see no row of zeros
    compared: bool = False  # whether ranks that lack rows of other ranks are warned of
    leads: str = ""

    def columns_of(self, looked: Looked) -> Sequence[AnyColumn]:
        """Return the columns of this table for one run."""
        return self.columns(looked) if callable(self.columns) else self.columns

    def dimensions(self, looked: Looked) -> frozenset[str]:
        """Return the names of the columns by which rows can be selected."""
        return frozenset(column for column in self.columns_of(looked) if isinstance(column, str))

    def leading(self, looked: Looked) -> Metric | None:
        """Return the metric whose rows this table has; None where ``list_rows`` gives the rows."""
        if self.leads:
            return _metric_shown(self.leads)
        metrics = (column.metric for column in self.columns_of(looked) if isinstance(column, Figure))
        return next((metric for metric in metrics if metric is not None), None) if self.keys is None else None

    def table(self, looked: Looked) -> Table:
        """Return the table with all of its rows, the largest first where it is sorted."""
        row_metric, columns = self.leading(looked), self.columns_of(looked)
        labelled_rows = looked.selected(row_metric) if row_metric is not None else [*(self.keys or _none)(looked)]
        cells = [
            column.cells(looked, labelled_rows)
            if isinstance(column, Figure)
            else [labels[_column(column).name] for labels in labelled_rows]
            for column in columns
        ]
        typed_columns = [_column(column) for column in columns]
        rows: list[Row] = [tuple(row) for row in zip(*cells, strict=True)]
        if self.by:
            sort_index = [column.name for column in typed_columns].index(self.by)
            rows.sort(key=lambda row: -(row[sort_index] or 0))  # type: ignore[operator]  # a number
        return Table(typed_columns, rows, self.caption)

    def for_people(self, table: Table) -> Table:
        """Return a table as people read it: without empty rows and columns, and at most the first ``max_rows`` rows."""
        notable_rows = [row for row in table.rows if not self.filled or _says_something(table.columns, row)]
        limit = len(notable_rows) if self.most is None else self.most
        rows, omitted_count = notable_rows[:limit], len(notable_rows[limit:])
        used_indices = [
            i for i, column in enumerate(table.columns) if not rows or any(row[i] not in (None, "") for row in rows)
        ]
        columns = [table.columns[i] for i in used_indices]
        return replace(
            table, columns=columns, rows=[[row[i] for i in used_indices] for row in rows], more=omitted_count
        )


def _none(_: Looked) -> Iterable[Key]:
    return ()


def _column(said: AnyColumn) -> Column:
    """Return the typed column of a dimension's name, a column or a metric column."""
    if isinstance(said, str):
        return Column(said, _OF_DIMENSIONS.get(said, CellKind.TEXT))
    return said.column if isinstance(said, Figure) else said


def _says_something(columns: Sequence[Column], row: Row) -> bool:
    """Whether any number of a row is neither zero nor absent."""
    return any(cell for column, cell in zip(columns, row, strict=True) if column.to_the_right)


class Picked(NamedTuple):
    """Describes one window of one rank that a view shows."""

    rank: Rank
    window: Window
    gpu_ns: tuple[int, int] | None  # start and end on the GPU, None where the window holds no kernel


class Paragraph(NamedTuple):
    """Holds what a view says around its tables, as lines for people and as facts for programs."""

    above: Sequence[Sequence[Piece]] = ()  # lines that are drawn above the tables
    below: Sequence[str] = ()
    facts: Mapping[str, object] = {}  # keys that JSON has beside the rows
    notes: Sequence[Note] = ()
    windows: Sequence[Picked] | None = None  # those shown, None where all of the request are


@dataclass(frozen=True)
class View:
    """Describes one part of a run that can be shown in full: its tables, the first of which programs get as rows."""

    name: str
    parts: tuple[Part, ...]
    reads: tuple[str, ...]  # metrics whose notes are shown
    window: str = MEDIAN  # this and the span are taken where nobody gives one
    span: Span | None = None
    one_window: str = ""  # why the view takes one window and not several; empty where it takes several
    takes: frozenset[str] = frozenset()  # options, by their Python names, that not all views have
    paragraph: Callable[[Looked], Paragraph] = lambda _: Paragraph()
    notes: Callable[[Looked], Iterable[Note]] | None = None  # None: the notes of the metrics
    nothing: Callable[[Looked], str] = lambda _: "nothing to show"  # said where no table has a row

    def look(self, looked: Looked) -> Shown:
        """Return this view of a run. Raises NothingMeasured where it has no row, UsageMistake where the request does
        not fit.
        """
        self._check(looked)
        selected_dimensions = {*looked.where} - {"rank", *(looked.captures.mesh.sizes if looked.where else ())}
        metrics = [METRICS[name] for name in self.reads]
        # The notes come before the tables: what they read is freed again when the tables take the most memory.
        metric_notes = looked.captures.notes(looked.spec, *metrics) if self.notes is None else [*self.notes(looked)]
        shown_parts = [part for part in self.parts if selected_dimensions <= part.dimensions(looked)]
        built_tables = [(part, part.table(looked)) for part in shown_parts]
        while built_tables and not built_tables[0][1].rows:  # programs get the first table as rows: it must have some
            del built_tables[0]
        if not built_tables:
            raise NothingMeasured(f"{looked.captures.paths[0]}: {self.nothing(looked)}")
        summary = self.paragraph(looked)
        notes = [Note(str(looked.spec)), *metric_notes, *summary.notes, *self._absent(looked)]
        return Shown(self, looked, built_tables, summary, tuple(dict.fromkeys(notes)))

    def _check(self, looked: Looked) -> None:
        """Check that some table has each dimension by which rows are selected. Raises UsageMistake."""
        known_dimensions = frozenset[str]().union(*(part.dimensions(looked) for part in self.parts))
        for dimension in looked.where:
            if dimension not in (names := [*sorted(known_dimensions), *looked.captures.mesh.sizes]):
                suggestion = hint(dimension, names, "it has")
                raise UsageMistake(f"the view {self.name} has no dimension '{printable(dimension, 40)}'{suggestion}")

    def _absent(self, looked: Looked) -> Iterator[Note]:
        """Yield a warning for each requested rank that lacks a row which other ranks have."""
        for part in self.parts:
            if part.compared and (metric := part.leading(looked)) is not None:
                table, where = (
                    looked.table(metric),
                    {name: selector for name, selector in looked.where.items() if name in metric.dimensions},
                )
                if table.rows:
                    absent_rows = (absence for absence in absences(table, where) if absence.rank in looked.ranks)
                    yield from (Note(f"{self.name}: {absence}", True) for absence in absent_rows)


@dataclass(frozen=True)
class Shown:
    """Holds a view of one run, which renders in every format; a notebook shows it as HTML."""

    view: View
    looked: Looked
    tables: Sequence[tuple[Part, Table]]
    paragraph: Paragraph
    notes: Sequence[Note]

    @property
    def windows(self) -> Sequence[Picked]:
        """The windows that were measured."""
        if self.paragraph.windows is not None:
            return self.paragraph.windows
        measured_windows = (w for rank_windows in self.looked.windows.values() for w in rank_windows)
        return [Picked(w.rank, w.window, (w.start_ns, w.end_ns)) for w in measured_windows]

    @property
    def definition(self) -> int:
        """The largest definition number among the metrics that are shown."""
        columns = (column for part in self.view.parts for column in part.columns_of(self.looked))
        metrics = (column.metric for column in columns if isinstance(column, Figure) and column.metric is not None)
        return max(metric.definition for metric in (*metrics, *(METRICS[name] for name in self.view.reads or USUAL)))

    @cached_property
    def rows(self) -> Table:
        """The rows that programs get: the first table, with the columns of those that share its rows beside it."""
        (_, first), *other_tables = self.tables
        joined_tables = [table for part, table in other_tables if part.name == "rows"]
        columns = [*first.columns, *(column for table in joined_tables for column in table.columns[1:])]
        rows = zip(first.rows, *(table.rows for table in joined_tables), strict=True)
        return Table(
            columns,
            [(*first_row, *(cell for row in joined_rows for cell in row[1:])) for first_row, *joined_rows in rows],
        )

    @cached_property
    def flat(self) -> Table:
        """All tables below each other, each with the columns of all; of several, the first column names the table."""
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
        """Return the rows as plain dicts, for ``pandas.DataFrame`` and ``polars.DataFrame``: whole ns, ratios from 0 to
        1.
        """
        columns = [column for column in self.rows.columns if column.kind is not CellKind.DETAIL]
        return [{column.name: record[column.name] for column in columns} for record in self.rows.records()]

    def render(self, format: Format, about: Mapping[str, object] | None = None, width: int = COLUMNS) -> str:
        """Return the view as text in a format: JSON with ``metadata`` before the rows, a table in lines of ``width``
        characters.
        """
        match format:
            case Format.JSON:
                other_rows = {part.name: table.records() for part, table in self.tables if part.name != "rows"}
                return as_json({**(about or {}), **self.paragraph.facts, **other_rows, "rows": self.rows.records()})
            case Format.CSV:
                return self.flat.render(Format.CSV)
            case Format.MARKDOWN:
                return "\n".join(self._markdown())
            case Format.HTML:
                return html_page(self._repr_html_(), f"pytest-nsys: {self.view.name}")
            case Format.TABLE:
                return "\n".join(self._text(width))

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self.drawn()) + self.render(Format.TABLE)

    def drawn(self, pen: Pen = Pen()) -> list[str]:  # noqa: B008  it never changes
        """Return the lines that are drawn above the tables, and an empty line below them; no line where nothing is
        drawn.
        """
        lines = [pen.line(pieces) for pieces in self.paragraph.above]
        return [*lines, ""] if lines else []

    def _read(self) -> Iterator[tuple[Part, Table]]:
        return ((part, part.for_people(table)) for part, table in self.tables if table.rows)

    def for_page(self) -> list[Table]:
        """Return the tables that a page shows, every cell as text."""
        return [table.for_page() for _, table in self._read()]

    def _text(self, width: int) -> Iterator[str]:
        for part, table in self._read():
            caption = f"{table.caption}\n" if table.caption else ""
            yield caption + table.render(Format.TABLE, width=width) + _more(part, table)
        if self.paragraph.below:
            paragraphs = (wrap(printable(line, 1000), width, subsequent_indent="  ") for line in self.paragraph.below)
            yield "".join(f"{line}\n" for lines in paragraphs for line in lines)

    def _markdown(self) -> Iterator[str]:
        if bar_lines := self.drawn():
            yield "".join(f"{line}\n" for line in ("```text", *bar_lines[:-1], "```"))
        for part, table in self._read():
            caption = f"{table.caption}\n\n" if table.caption else ""
            yield caption + table.render(Format.MARKDOWN) + (f"\n{_more(part, table)}" if table.more else "")
        if self.paragraph.below:
            yield "".join(f"- {escape_markdown(' '.join(line.split()), 1000)}\n" for line in self.paragraph.below)

    def _repr_html_(self) -> str:
        bar_text = "\n".join(self.drawn())
        pieces = [f"<pre>{html.escape(bar_text)}</pre>\n"] if bar_text else []
        for _, table in self._read():
            pieces += [table.html(), "\n"]
        pieces += [f"<p>{html.escape(printable(line, 1000))}</p>\n" for line in self.paragraph.below]
        return "".join(pieces)


def _more(part: Part, table: Table) -> str:
    return f"and {table.more} others{part.more}\n" if table.more else ""
