"""How are rows written: as an aligned table, as JSON, CSV, Markdown or HTML?

Every format has the same columns. A table, Markdown and HTML are for people: ratios in percent, fractions rounded,
times in one unit. JSON and CSV are for programs: times in ns, ratios as numbers between 0 and 1, nothing rounded. Texts
come from traces, so every format removes control characters, and Markdown and HTML escape markup.
"""

from __future__ import annotations

import csv
import enum
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from html import escape
from typing import TypeVar

from pytest_nsys.core.kernel_names import DISPLAY_NAME_WIDTH, make_display_names, shorten_middle
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import choose_scale, format_percent, format_value
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import BARE, SHARE_UNITS, SIZE, TIME, find_stored_unit
from pytest_nsys.reports.tables.layout import FittedColumn, measure_least_width, render_columns, render_fitted_rows


class Format(enum.StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    HTML = "html"

    @property
    def for_people(self) -> bool:
        """Whether cells are rounded and have units; programs get exact values."""
        return self not in (Format.JSON, Format.CSV)


class CellKind(enum.StrEnum):
    """The kind of a column's cells, which decides how each format writes them."""

    TEXT = "text"
    KERNEL = "kernel"  # a kernel's name; people get its short form
    LABEL = "label"  # a coordinate of a row
    NAME = "name"  # any other text that comes from a trace or a gate file
    LIMIT = "limit"  # a limit with its source in brackets, which goes first where there is no room
    LIST = "list"
    NUMBER = "number"  # a count
    RATIO = "ratio"
    EXACT = "exact"  # only for programs, such as a point in time
    TIME = "time"  # in ns; a table writes all times in one unit
    SIZE = "size"  # in bytes; a table writes all sizes in one unit
    UNIT = "unit"  # the unit of the measure in the row, only for programs: "1" for a ratio
    DETAIL = "detail"  # only in JSON


_PROGRAM_ONLY_KINDS = (CellKind.DETAIL, CellKind.EXACT, CellKind.UNIT)
_SCALED_UNITS = {CellKind.TIME: TIME, CellKind.SIZE: SIZE}


@dataclass(frozen=True, slots=True)
class Measure:
    """Holds a value with its unit, for a column that mixes several metrics.

    For people, the unit follows the value; all values of one unit in a column share a scale.
    """

    value: Value
    unit: str

    @property
    def kind(self) -> CellKind:
        """The kind of the cell for programs."""
        return CellKind.RATIO if self.unit in SHARE_UNITS else CellKind.NUMBER


Cell = str | Value | Measure | Sequence[str] | Mapping[str, int] | None
Row = Sequence[Cell]


@dataclass(frozen=True, slots=True)
class Column:
    """Describes a column: its name, the kind of its cells, and its title if the name is not clear enough for people."""

    name: str
    kind: CellKind = CellKind.TEXT
    title: str = ""  # the heading for people, e.g. with the unit of a bandwidth; empty: the name
    dispensable: bool = False  # whether a narrow terminal goes without the column

    @property
    def to_the_right(self) -> bool:
        """Whether its cells are right-aligned, as figures are."""
        return self.kind in (CellKind.NUMBER, CellKind.RATIO, CellKind.EXACT, *_SCALED_UNITS)


def align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row, with columns aligned; cells are stripped of control sequences for terminals and CI
    systems.
    """
    texts = [[sanitize_line(cell, UNLIMITED_LENGTH) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*texts, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in texts]


def _fit_text_rows(columns: Sequence[Column], text_rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the lines of a table that is wider than ``width``, and which columns were left out of it."""
    cells_by_column = [
        [row[i].partition(" (")[0] if column.kind is CellKind.LIMIT else row[i] for row in text_rows]
        for i, column in enumerate(columns)
    ]
    fitted = [
        FittedColumn(column.name, cells, _find_shortener(column, cells), wraps=column.kind is CellKind.TEXT)
        for column, cells in zip(columns, cells_by_column, strict=True)
    ]
    shown, dispensable = [*range(len(columns))], [i for i, column in enumerate(columns) if column.dispensable]
    while dispensable and measure_least_width([fitted[i] for i in shown]) > width:
        shown.remove(dispensable.pop())
    lines = render_fitted_rows([fitted[i] for i in shown], width)
    left_out = [column.name for i, column in enumerate(columns) if i not in shown]
    return [*lines, *([f"(no room for: {', '.join(left_out)})"] if left_out else [])]


def _find_shortener(column: Column, cells: Sequence[str]) -> Callable[[int], list[str]] | None:
    """Return what shortens the cells of a column to a width; None where they are figures, or are wrapped."""
    if column.kind in (CellKind.NAME, CellKind.LABEL, CellKind.KERNEL):
        return lambda width: [shorten_middle(cell, width) for cell in cells]
    return None


ABSENT = "-"
UNLIMITED_LENGTH = 1 << 20
"""The maximum length of a name for programs: longer than any real name."""

_MARKDOWN_ESCAPES = str.maketrans(
    {sign: f"\\{sign}" for sign in r"\`|*[]~"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@<!-- -->"}
)


@dataclass(frozen=True, slots=True)
class Table:
    """Holds rows of cells with a caption, and writes them in every format."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    caption: str = ""
    omitted_count: int = 0  # how many rows were left out
    folded: bool = False  # whether the table may be collapsed, as in HTML's <details>

    def render(
        self,
        format: Format,
        metadata: Mapping[str, object] | None = None,
        json_rows: Sequence[Mapping[str, object]] | None = None,
        width: int = UNLIMITED_LENGTH,
    ) -> str:
        """Return the table as text in one format.

        JSON is one object: ``metadata``, then ``rows``, which are ``json_rows`` if programs get other rows than people.
        """
        match format:
            case Format.JSON:
                return render_json({**(metadata or {}), "rows": self.to_records() if json_rows is None else json_rows})
            case Format.CSV:
                return self._render_csv()
            case Format.MARKDOWN:
                return "".join(f"{line}\n" for line in self.render_markdown())
            case Format.HTML:
                return render_html_page(self.render_html())
            case Format.TABLE:
                return "".join(f"{line}\n" for line in self._render_padded(width))

    def render_lines(self, omitted_text: str, width: int = UNLIMITED_LENGTH) -> list[str]:
        """Return the rows as aligned lines of at most ``width`` characters, then ``omitted_text`` with ``{}`` replaced
        by the number of rows left out.

        Where a line would be too long, limits lose their source, dispensable columns go, names are shortened in the
        middle and other texts wrapped. Figures are never shortened.
        """
        columns, text_rows = self._format_cells(UNLIMITED_LENGTH)
        omitted_lines = [omitted_text.format(self.omitted_count)] if self.omitted_count else []
        lines = align_rows([[column.name for column in columns], *text_rows])
        if max(map(len, lines)) > width:
            lines = _fit_text_rows(columns, text_rows, width)
        return lines + omitted_lines

    def render_markdown(self, format_cell: Callable[[Column, str], str] | None = None) -> list[str]:
        """Return the lines of a table in GitHub's Markdown, with numbers right-aligned.

        ``format_cell`` formats each cell, and the names of label columns.
        """
        format_cell = format_cell or (lambda _, text: escape_markdown(text))
        columns, text_rows = self._format_cells(UNLIMITED_LENGTH)
        head = [
            format_cell(column, column.name) if column.kind is CellKind.LABEL else column.name for column in columns
        ]
        lines = [head, ["---:" if column.to_the_right else "---" for column in columns]]
        lines += [[format_cell(*pair) for pair in zip(columns, row, strict=True)] for row in text_rows]
        return [f"| {' | '.join(line)} |" for line in lines]

    def render_html(self) -> str:
        """Return the table as escaped HTML, with numbers right-aligned and the number of rows left out below."""
        columns, text_rows = self._format_cells(UNLIMITED_LENGTH)
        sides = [' style="text-align:right"' if column.to_the_right else "" for column in columns]
        tagged_rows = [("th", [column.name for column in columns]), *(("td", row) for row in text_rows)]
        row_html = (
            "".join(f"<{tag}{side}>{escape(text)}</{tag}>" for side, text in zip(sides, row, strict=True))
            for tag, row in tagged_rows
        )
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        omitted_html = f"<p>and {self.omitted_count} more</p>" if self.omitted_count else ""
        return f"<table>{caption}{''.join(f'<tr>{row}</tr>' for row in row_html)}</table>{omitted_html}"

    def format_for_page(self) -> Table:
        """Return the table for a page's template: formatted for people, with every cell as text."""
        columns, text_rows = self._format_cells(UNLIMITED_LENGTH)
        return Table(columns, text_rows, self.caption, self.omitted_count)

    def _render_padded(self, width: int) -> list[str]:
        """Return the lines of the table in at most ``width`` characters, with a rule below the headings."""
        _, raw_rows = self._drop_columns(*_PROGRAM_ONLY_KINDS)
        columns, text_rows = self._format_cells()
        fitted_columns = []
        for i, column in enumerate(columns):
            cells = [row[i] for row in text_rows]
            names = [str(row[i]) for row in raw_rows] if column.kind is CellKind.KERNEL else cells
            shorten = None if column.to_the_right else partial(_shorten_names, names, column.kind)
            fitted_columns.append(FittedColumn(column.name, cells, shorten, column.to_the_right))
        return render_columns(fitted_columns, width)

    def _render_csv(self) -> str:
        """Return comma-separated values with a header; numbers are exact, and an absent value is empty."""
        columns, rows = self._drop_columns(CellKind.DETAIL)
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([column.name for column in columns])
        writer.writerows([_format_raw_cell(*pair) for pair in zip(columns, row, strict=True)] for row in rows)
        return buffer.getvalue()

    def to_records(self) -> list[dict[str, object]]:
        """Return the rows for programs: a dict by column name for each."""
        pairs = (zip(self.columns, row, strict=True) for row in self.rows)
        return [{column.name: to_json_value(cell, column.kind) for column, cell in row} for row in pairs]

    def _format_cells(self, max_length: int = 200) -> tuple[list[Column], list[list[str]]]:
        """Return the columns for people, and their cells as texts of at most ``max_length`` characters.

        Times and sizes of a table are in one unit, so a column's name loses its suffix ``_ns`` or the like.
        """
        columns, cells = self._drop_columns(*_PROGRAM_ONLY_KINDS)
        cells_by_scale: dict[tuple[str, int | None], list[tuple[list[Cell], int, Value]]] = {}
        for i, column in enumerate(columns):
            unit = _SCALED_UNITS.get(column.kind)
            for row in cells:
                if unit is not None and isinstance(value := row[i], int | Fraction):
                    cells_by_scale.setdefault((unit, None), []).append((row, i, value))
                elif isinstance(measure := row[i], Measure):
                    cells_by_scale.setdefault((measure.unit, i), []).append((row, i, measure.value))
            if unit is not None:
                name, taken_names = column.name.removesuffix("_ns"), {other_column.name for other_column in columns}
                # "time_ns" becomes "time", as its unit may be ms; if that name is taken, the kind is the name.
                columns[i] = replace(column, name=str(column.kind) if name in taken_names else name)
        for (unit, _), scaled_cells in cells_by_scale.items():
            scale = choose_scale([value for _, _, value in scaled_cells], unit)
            for row, i, value in scaled_cells:
                row[i] = format_value(value, unit, scale=scale)
        for i, column in enumerate(columns):
            if column.kind is CellKind.KERNEL:
                for row, name in zip(
                    cells, _shorten_names([str(row[i]) for row in cells], column.kind, DISPLAY_NAME_WIDTH), strict=True
                ):
                    row[i] = name
        columns = [replace(column, name=column.title or column.name) for column in columns]
        text_rows = [
            [sanitize_line(_format_cell(*pair), max_length) for pair in zip(columns, row, strict=True)] for row in cells
        ]
        return columns, text_rows

    def _drop_columns(self, *kinds: CellKind) -> tuple[list[Column], list[list[Cell]]]:
        """Return columns and rows without the columns of these kinds."""
        kept_indices = [i for i, column in enumerate(self.columns) if column.kind not in kinds]
        return [self.columns[i] for i in kept_indices], [[row[i] for i in kept_indices] for row in self.rows]


def _shorten_names(names: Sequence[str], kind: CellKind, width: int) -> list[str]:
    """Return names in at most ``width`` characters; the names of kernels stay distinct."""
    kernel_names = make_display_names(names, width) if kind is CellKind.KERNEL else {}
    return [kernel_names.get(name) or shorten_middle(name, width) for name in names]


def make_number_column(name: str) -> Column:
    """Return a column of numbers."""
    return Column(name, CellKind.NUMBER)


def make_number_columns(*names: str) -> Iterator[Column]:
    """Return columns of numbers."""
    return map(make_number_column, names)


def make_time_columns(*names: str) -> Iterator[Column]:
    """Define a table column for each name, whose cells are times in ns."""
    return (Column(name, CellKind.TIME) for name in names)


def make_ratio_columns(*names: str) -> Iterator[Column]:
    """Return columns of ratios, from 0 to 1."""
    return (Column(name, CellKind.RATIO) for name in names)


def make_text_columns(*names: str) -> Iterator[Column]:
    """Return columns of text."""
    return map(Column, names)


def build_text_table(
    caption: str,
    columns: Sequence[str | Column],
    rows: Iterable[Sequence[str]],
    limit: int | None = None,
    *,
    folded: bool = False,
    max_length: int = 200,
) -> Table:
    """Return a table of the first ``limit`` rows of texts, each cut at ``max_length`` characters.

    A column that is given as a name holds text.
    """
    all_rows = list(rows)
    shown_rows = tuple(tuple(sanitize_line(cell, max_length) for cell in row) for row in all_rows[:limit])
    typed_columns = tuple(column if isinstance(column, Column) else Column(column) for column in columns)
    return Table(typed_columns, shown_rows, caption, len(all_rows) - len(shown_rows), folded)


T = TypeVar("T")
ColumnFormatter = tuple[str | Column, Callable[[T], str]]
"""A column, and the function that formats its cell of a row."""


def build_table(
    caption: str,
    column_formatters: Sequence[ColumnFormatter[T]],
    rows: Sequence[T],
    limit: int | None = None,
    *,
    folded: bool = False,
) -> Table:
    """Return a table of the first ``limit`` rows, each cell formatted by the function of its column."""
    cells = ([format_cell(row) for _, format_cell in column_formatters] for row in rows[:limit])
    text_table = build_text_table(caption, [column for column, _ in column_formatters], cells, folded=folded)
    return replace(text_table, omitted_count=len(rows) - len(text_table.rows))


_PAGE_STYLE = (
    "body{font:14px sans-serif}pre{line-height:1.1}td,th{padding:2px 10px;text-align:left}caption{text-align:left}"
)


def render_html_page(body: str, title: str = "pytest-nsys") -> str:
    """Return a self-contained HTML page around a body that is HTML already."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_PAGE_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}</body></html>\n'


def render_json(document: Mapping[str, object]) -> str:
    """Return one JSON object as text in ASCII, so that names cannot send control characters to a terminal."""
    return sanitize_json(json.dumps(document, indent=2)) + "\n"


_JSON_ESCAPES = re.compile(r"\\u(d[89ab]..)\\ud[c-f]..|\\u(d[89a-f]..)|\\.")


def sanitize_json(text: str) -> str:
    """Return JSON in ASCII without lone surrogates, and without ``##``."""
    # Commands to a CI system begin with "##".
    text = text.replace("##", r"#\u0023")
    # Python uses lone surrogates for file names that are not UTF-8; other JSON readers reject them.
    if "\\ud" not in text:
        return text
    return _JSON_ESCAPES.sub(lambda match: "\\ufffd" if match[2] else match[0], text)


def to_json_value(cell: Cell, kind: CellKind = CellKind.NUMBER) -> object:
    """Return a cell for JSON: whole numbers as int, a ratio always as float, an absent cell as null."""
    if isinstance(cell, Measure):
        return to_json_value(cell.value, cell.kind)
    if cell is None or isinstance(cell, str):
        return find_stored_unit(cell) if kind is CellKind.UNIT and cell else cell
    if isinstance(cell, Mapping):
        return dict(cell)
    if isinstance(cell, Sequence):
        return list(cell)
    return cell if isinstance(cell, int) and kind is not CellKind.RATIO else float(cell)


def escape_markdown(text: str, max_length: int = 200) -> str:
    """Return text escaped for Markdown, also for table cells: no markup, and no mentions."""
    return sanitize_line(text, max_length).translate(_MARKDOWN_ESCAPES)


def _format_cell(column: Column, cell: Cell) -> str:
    assert not isinstance(cell, Measure)  # already formatted in its column's scale
    if cell is None:
        return ABSENT
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Mapping | Sequence):
        return ", ".join(cell)
    if column.kind is CellKind.RATIO:
        return format_percent(cell)
    return format_value(cell, BARE)


def _format_raw_cell(column: Column, cell: Cell) -> str:
    value = to_json_value(cell, column.kind)
    if isinstance(value, list):
        value = " ".join(value)
    return "" if value is None else sanitize_line(str(value), UNLIMITED_LENGTH)
