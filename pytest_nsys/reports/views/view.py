"""How is a part of a run shown in full? By a view: tables of metrics, dimensions and columns, and a paragraph.

The rows of a table are the rows of its first metric; the others are joined to them by the dimensions that they have in
common. People get rounded values in units, programs the same columns exactly.
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
"""A row's labels by their dimensions, and what else is known of it."""

USUAL = ("window_ns",)
"""Of whose definition a view is that shows no metric."""

_OF_DIMENSIONS = {
    "kernel": CellKind.KERNEL,
    **dict.fromkeys(("rank", "stream", "device", "context"), CellKind.NUMBER),
}
_KINDS = {TIME: CellKind.TIME, SIZE: CellKind.SIZE, RATIO: CellKind.RATIO}


class Looked:
    """What a view is asked of: one run under one window spec, of some ranks (none: all), where labels are selected.

    ``encoding`` is that of where it is printed.
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
        """The ranks asked for, by number. Raises UsageMistake for one that does not exist."""
        return self.chosen(self.run.ranks)

    def chosen(self, ranks: Iterable[Rank]) -> dict[int, Rank]:
        """Of some ranks those that are asked for. Raises UsageMistake."""
        return chosen_ranks(ranks, self.asked)

    @cached_property
    def windows(self) -> dict[int, list[RankWindow]]:
        """The windows of the ranks asked for. Raises NothingMeasured where one is empty."""
        return {number: list(own) for number, own in self.run.measured(self.spec).filled(self.ranks).items()}

    @cached_property
    def together(self) -> RunWindow:
        """The window of all ranks."""
        (found,) = self.run.measured(self.spec).together()
        return found

    @cached_property
    def asked_together(self) -> RunWindow:
        """The window of the ranks asked for."""
        (found,) = self.run.measured(self.spec).together(frozenset(self.ranks))
        return found

    def table(self, metric: Metric) -> MetricTable:
        return self.captures.rows(metric, self.spec, frozenset(self.ranks))

    def selected(self, metric: Metric) -> list[Key]:
        """The labels of the rows that are asked for. Raises NothingMeasured where a selector means none."""
        table = self.table(metric)
        axes = self.captures.mesh.sizes if "rank" in table.dimensions else ()
        where = {d: s for d, s in self.where.items() if d in table.dimensions or d in axes}
        try:
            found = select(table, where) if self.where else meant(table, where)
        except NothingSelected as nothing:
            raise NothingMeasured(f"{metric.name}: {nothing}") from None
        return [labels for labels, _ in found]


@dataclass(frozen=True)
class Figure:
    """One column: the values of ``metric`` in the rows with the labels ``where``, or what ``of`` says of a row.

    ``title`` is what people read above it, where that is not the name.
    """

    name: str
    metric: Metric | None = None
    where: Mapping[str, Label] = field(default_factory=dict)
    of: Callable[[Looked, Key], Cell] | None = None
    kind: CellKind | None = None
    title: str = ""

    @property
    def column(self) -> Column:
        unit = self.metric.unit if self.metric is not None else ""
        usual = next((kind for name, kind in _KINDS.items() if name == unit), CellKind.NUMBER)
        return Column(self.name, self.kind or usual, self.title)

    def cells(self, looked: Looked, keys: Sequence[Key]) -> list[Cell]:
        """The cell of each row."""
        if self.of is not None:
            return [self.of(looked, key) for key in keys]
        assert self.metric is not None
        table = looked.table(self.metric)
        each = [(dict(zip(table.dimensions, labels, strict=True)), value) for labels, value in table.rows]
        mine = [(labels, value) for labels, value in each if self.where.items() <= labels.items()]
        common = [d for d in table.dimensions if d not in self.where]
        known: dict[object, Value] = {tuple(labels[d] for d in common): value for labels, value in mine}
        return [known.get(tuple(key[d] for d in common)) for key in keys]


def _metric_shown(name: str) -> Metric:
    return QUANTITIES.get(name) or METRICS[name]


def figure(metric: str, name: str = "", title: str = "", **where: Label) -> Figure:
    """The column of a metric, or of what only views show, perhaps under another name."""
    found = _metric_shown(metric)
    return Figure(name or found.name, found, where, title=title)


def told(name: str, of: Callable[[Looked, Key], Cell], kind: CellKind = CellKind.TEXT, title: str = "") -> Figure:
    """A column of what is said of each row."""
    return Figure(name, of=of, kind=kind, title=title)


def rank_of(looked: Looked, key: Key) -> Rank:
    """The rank of a row."""
    number = key["rank"]
    assert isinstance(number, int)
    return looked.ranks[number]


PID = told("pid", lambda looked, key: rank_of(looked, key).pid, CellKind.NUMBER)


AnyColumn: TypeAlias = str | Column | Figure


@dataclass(frozen=True)
class Part:
    """One table of a view. Its columns are dimensions by their names, columns of what its keys hold, and figures; they
    may hang on the run.

    ``name`` is what JSON has it under. Its rows are those of the metric ``leads``, by default its first one, or
    ``keys``. People see the ``most`` longest rows (by ``by``), with ``more`` below, and no row of zeros where
    ``filled``; ``compared``: ranks that lack rows of others are told.
    """

    columns: Sequence[AnyColumn] | Callable[[Looked], Sequence[AnyColumn]]
    name: str = "rows"
    caption: str = ""
    keys: Callable[[Looked], Iterable[Key]] | None = None
    by: str = ""
    most: int | None = None
    more: str = ""
    filled: bool = False
    compared: bool = False
    leads: str = ""

    def columns_of(self, looked: Looked) -> Sequence[AnyColumn]:
        return self.columns(looked) if callable(self.columns) else self.columns

    def dimensions(self, looked: Looked) -> frozenset[str]:
        """Its columns that rows can be selected by."""
        return frozenset(column for column in self.columns_of(looked) if isinstance(column, str))

    def leading(self, looked: Looked) -> Metric | None:
        """The metric whose rows it has."""
        if self.leads:
            return _metric_shown(self.leads)
        each = (column.metric for column in self.columns_of(looked) if isinstance(column, Figure))
        return next((metric for metric in each if metric is not None), None) if self.keys is None else None

    def table(self, looked: Looked) -> Table:
        """All rows."""
        leading, columns = self.leading(looked), self.columns_of(looked)
        keys = looked.selected(leading) if leading is not None else [*(self.keys or _none)(looked)]
        cells = [
            each.cells(looked, keys) if isinstance(each, Figure) else [key[_column(each).name] for key in keys]
            for each in columns
        ]
        typed = [_column(each) for each in columns]
        rows: list[Row] = [tuple(row) for row in zip(*cells, strict=True)]
        if self.by:
            at = [column.name for column in typed].index(self.by)
            rows.sort(key=lambda row: -(row[at] or 0))  # type: ignore[operator]  # a number
        return Table(typed, rows, self.caption)

    def for_people(self, table: Table) -> Table:
        """Of a table what is read: without empty rows and columns, and of many rows the first."""
        shown = [row for row in table.rows if not self.filled or _says_something(table.columns, row)]
        most = len(shown) if self.most is None else self.most
        rows, more = shown[:most], len(shown[most:])
        own = [i for i, column in enumerate(table.columns) if not rows or any(row[i] not in (None, "") for row in rows)]
        columns = [table.columns[i] for i in own]
        return replace(table, columns=columns, rows=[[row[i] for i in own] for row in rows], more=more)


def _none(_: Looked) -> Iterable[Key]:
    return ()


def _column(said: AnyColumn) -> Column:
    if isinstance(said, str):
        return Column(said, _OF_DIMENSIONS.get(said, CellKind.TEXT))
    return said.column if isinstance(said, Figure) else said


def _says_something(columns: Sequence[Column], row: Row) -> bool:
    return any(cell for column, cell in zip(columns, row, strict=True) if column.to_the_right)


class Picked(NamedTuple):
    """A rank's window, and its bounds on the GPU: None where it holds no kernel."""

    rank: Rank
    window: Window
    gpu_ns: tuple[int, int] | None


class Paragraph(NamedTuple):
    """What a view says of its own: lines ``above`` the tables and ``below``, ``facts`` for programs, and notes.

    ``windows`` are those shown, where they are not all.
    """

    above: Sequence[Sequence[Piece]] = ()
    below: Sequence[str] = ()
    facts: Mapping[str, object] = {}
    notes: Sequence[Note] = ()
    windows: Sequence[Picked] | None = None


@dataclass(frozen=True)
class View:
    """One part of a run: its tables, the first of which is what programs get as rows.

    ``reads`` are metrics that are read ahead, and whose notes are told. ``window`` and ``span`` are taken where nobody
    asks; ``one_window`` says why many do not go. ``takes`` are options (by their Python names) that not all views have.
    ``nothing`` is said where no table has a row.
    """

    name: str
    parts: tuple[Part, ...]
    reads: tuple[str, ...]
    window: str = MEDIAN
    span: Span | None = None
    one_window: str = ""
    takes: frozenset[str] = frozenset()
    paragraph: Callable[[Looked], Paragraph] = lambda _: Paragraph()
    notes: Callable[[Looked], Iterable[Note]] | None = None
    nothing: Callable[[Looked], str] = lambda _: "nothing to show"

    def look(self, looked: Looked) -> Shown:
        """The view of a run. Raises NothingMeasured where it shows nothing, UsageMistake."""
        self._check(looked)
        asked = {*looked.where} - {"rank", *(looked.captures.mesh.sizes if looked.where else ())}
        metrics = [METRICS[name] for name in self.reads]
        # before the tables: what facts read for a moment is gone when these take the most memory
        usual = looked.captures.notes(looked.spec, *metrics) if self.notes is None else [*self.notes(looked)]
        parts = [part for part in self.parts if asked <= part.dimensions(looked)]
        tables = [(part, part.table(looked)) for part in parts]
        while tables and not tables[0][1].rows:  # programs get the first one as rows
            del tables[0]
        if not tables:
            raise NothingMeasured(f"{looked.captures.paths[0]}: {self.nothing(looked)}")
        paragraph = self.paragraph(looked)
        notes = [Note(str(looked.spec)), *usual, *paragraph.notes, *self._absent(looked)]
        return Shown(self, looked, tables, paragraph, tuple(dict.fromkeys(notes)))

    def _check(self, looked: Looked) -> None:
        """Raises UsageMistake for a dimension that no table has."""
        known = frozenset[str]().union(*(part.dimensions(looked) for part in self.parts))
        for dimension in looked.where:
            if dimension not in (names := [*sorted(known), *looked.captures.mesh.sizes]):
                told = hint(dimension, names, "it has")
                raise UsageMistake(f"the view {self.name} has no dimension '{printable(dimension, 40)}'{told}")

    def _absent(self, looked: Looked) -> Iterator[Note]:
        """The ranks that lack a row which others have."""
        for part in self.parts:
            if part.compared and (metric := part.leading(looked)) is not None:
                table, where = looked.table(metric), {d: s for d, s in looked.where.items() if d in metric.dimensions}
                if table.rows:
                    lost = (each for each in absences(table, where) if each.rank in looked.ranks)
                    yield from (Note(f"{self.name}: {each}", True) for each in lost)


@dataclass(frozen=True)
class Shown:
    """A view of one run, in every format: as text it is what the command prints, in a notebook a page."""

    view: View
    looked: Looked
    tables: Sequence[tuple[Part, Table]]
    paragraph: Paragraph
    notes: Sequence[Note]

    @property
    def windows(self) -> Sequence[Picked]:
        """What was measured."""
        if self.paragraph.windows is not None:
            return self.paragraph.windows
        each = (w for own in self.looked.windows.values() for w in own)
        return [Picked(w.rank, w.window, (w.start_ns, w.end_ns)) for w in each]

    @property
    def definition(self) -> int:
        """The latest of the metrics that are shown."""
        columns = (column for part in self.view.parts for column in part.columns_of(self.looked))
        shown = (column.metric for column in columns if isinstance(column, Figure) and column.metric is not None)
        return max(metric.definition for metric in (*shown, *(METRICS[name] for name in self.view.reads or USUAL)))

    @cached_property
    def rows(self) -> Table:
        """What programs get: of all tables with the dimensions of the first one, the columns beside each other."""
        (_, first), *others = self.tables
        same = [table for part, table in others if part.name == "rows"]
        columns = [*first.columns, *(column for table in same for column in table.columns[1:])]
        rows = zip(first.rows, *(table.rows for table in same), strict=True)
        return Table(columns, [(*one, *(cell for row in more for cell in row[1:])) for one, *more in rows])

    @cached_property
    def flat(self) -> Table:
        """All tables below each other; of several, the first column names the table, and each has all columns."""
        first = self.tables[0][0]
        each = {first.name: self.rows} | {part.name: table for part, table in self.tables if part.name != "rows"}
        if len(each) == 1:
            return self.rows
        columns = {column.name: column for table in each.values() for column in table.columns}
        known = (
            (name, dict(zip((c.name for c in table.columns), row, strict=True)))
            for name, table in each.items()
            for row in table.rows
        )
        rows = [(name, *(cells.get(column) for column in columns)) for name, cells in known]
        return Table([Column("table"), *columns.values()], rows)

    def to_records(self) -> list[dict[str, object]]:
        """The rows as plain dicts, for ``pandas.DataFrame`` and ``polars.DataFrame``: whole ns, ratios from 0 to 1."""
        columns = [column for column in self.rows.columns if column.kind is not CellKind.DETAIL]
        return [{column.name: record[column.name] for column in columns} for record in self.rows.records()]

    def render(self, format: Format, about: Mapping[str, object] | None = None, width: int = COLUMNS) -> str:
        """The view. ``about`` is what JSON has besides; text has lines of ``width`` characters."""
        match format:
            case Format.JSON:
                other = {part.name: table.records() for part, table in self.tables if part.name != "rows"}
                return as_json({**(about or {}), **self.paragraph.facts, **other, "rows": self.rows.records()})
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
        """What is drawn above the tables, and an empty line below it."""
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
            each = (wrap(printable(line, 1000), width, subsequent_indent="  ") for line in self.paragraph.below)
            yield "".join(f"{line}\n" for lines in each for line in lines)

    def _markdown(self) -> Iterator[str]:
        if drawn := self.drawn():
            yield "".join(f"{line}\n" for line in ("```text", *drawn[:-1], "```"))
        for part, table in self._read():
            caption = f"{table.caption}\n\n" if table.caption else ""
            yield caption + table.render(Format.MARKDOWN) + (f"\n{_more(part, table)}" if table.more else "")
        if self.paragraph.below:
            yield "".join(f"- {escape_markdown(' '.join(line.split()), 1000)}\n" for line in self.paragraph.below)

    def _repr_html_(self) -> str:
        drawn = "\n".join(self.drawn())
        parts = [f"<pre>{html.escape(drawn)}</pre>\n"] if drawn else []
        for _, table in self._read():
            parts += [table.html(), "\n"]
        parts += [f"<p>{html.escape(printable(line, 1000))}</p>\n" for line in self.paragraph.below]
        return "".join(parts)


def _more(part: Part, table: Table) -> str:
    return f"and {table.more} others{part.more}\n" if table.more else ""
