"""How do rows leave the program: as an aligned table, as JSON, as CSV, as Markdown or as HTML?

The same columns in every format. A table, Markdown and HTML are for people: ratios in percent, fractions rounded, times
in one unit. JSON and CSV are for programs: times in ns, ratios as numbers between 0 and 1, nothing rounded to be read.
Text comes from somebody else's trace, so no format lets a control character through, and Markdown and HTML escape what
would be markup.
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

from pytest_nsys.core.kernel_names import WIDTH, in_the_middle, readable_names
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_value, percent, scale_of
from pytest_nsys.core.units import BARE, SHARES, SIZE, TIME, kept_in
from pytest_nsys.core.words import printable
from pytest_nsys.reports.tables.layout import Fitting, in_columns


class Format(enum.StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    HTML = "html"

    @property
    def for_people(self) -> bool:
        """Whether cells are rounded and in units; programs get exact ones."""
        return self not in (Format.JSON, Format.CSV)


class CellKind(enum.StrEnum):
    """What the cells of a column hold.

    ``NUMBER`` is a count; ``TIME`` (in ns) and ``SIZE`` (in bytes) have one unit in a table. ``EXACT`` is for programs
    alone, as a point in time is, and ``DETAIL`` is shown by JSON alone.
    A ``KERNEL`` is its name, which people read as they call it. A ``LABEL`` is a coordinate of a row, and ``NAME``
    any other text of somebody else's. ``UNIT`` is that of the measures beside it, for programs alone: of a ratio ``1``.
    """

    TEXT = "text"
    KERNEL = "kernel"
    LABEL = "label"
    NAME = "name"
    LIST = "list"
    NUMBER = "number"
    RATIO = "ratio"
    EXACT = "exact"
    TIME = "time"
    SIZE = "size"
    UNIT = "unit"
    DETAIL = "detail"


_FOR_PROGRAMS = (CellKind.DETAIL, CellKind.EXACT, CellKind.UNIT)
_SCALED = {CellKind.TIME: TIME, CellKind.SIZE: SIZE}


@dataclass(frozen=True, slots=True)
class Measure:
    """A cell that says itself what it holds, for a column whose rows are of several metrics. People read its unit
    behind it: those of one unit in one scale.
    """

    value: Value
    unit: str

    @property
    def kind(self) -> CellKind:
        """What programs get."""
        return CellKind.RATIO if self.unit in SHARES else CellKind.NUMBER


Cell = str | Value | Measure | Sequence[str] | Mapping[str, int] | None
Row = Sequence[Cell]


@dataclass(frozen=True, slots=True)
class Column:
    """``title`` is what people read above it where the name does not say it, as of a bandwidth its unit."""

    name: str
    kind: CellKind = CellKind.TEXT
    title: str = ""

    @property
    def to_the_right(self) -> bool:
        """Whether people read its cells from the right."""
        return self.kind in (CellKind.NUMBER, CellKind.RATIO, CellKind.EXACT, *_SCALED)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, in which no cell commands a terminal or a CI system."""
    texts = [[printable(cell, WHOLE_TEXT) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*texts, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in texts]


ABSENT = "-"
WHOLE_TEXT = 1 << 20
"""Programs get a name uncut, up to a length that no honest name has."""

_MARKUP = str.maketrans(
    {sign: f"\\{sign}" for sign in r"\`|*[]~"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@<!-- -->"}
)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells below a caption, in every format. ``more`` rows were left out. ``folded``: it may be folded up."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    caption: str = ""
    more: int = 0
    folded: bool = False

    def render(
        self,
        format: Format,
        about: Mapping[str, object] | None = None,
        json_rows: Sequence[Mapping[str, object]] | None = None,
        width: int = WHOLE_TEXT,
    ) -> str:
        """The rows. JSON is one object: ``about``, then ``rows`` (``json_rows`` where they are not the columns)."""
        match format:
            case Format.JSON:
                return as_json({**(about or {}), "rows": self.records() if json_rows is None else json_rows})
            case Format.CSV:
                return self._csv()
            case Format.MARKDOWN:
                return "".join(f"{line}\n" for line in self.markdown())
            case Format.HTML:
                return html_page(self.html())
            case Format.TABLE:
                return "".join(f"{line}\n" for line in self._padded(width))

    def lines(self, more: str) -> list[str]:
        """The rows aligned, as a log has them; ``more`` says with ``{}`` how many were left out."""
        columns, words = self._for_people(WHOLE_TEXT)
        left = [more.format(self.more)] if self.more else []
        return aligned([[column.name for column in columns], *words]) + left

    def markdown(self, spelled: Callable[[Column, str], str] | None = None) -> list[str]:
        """A table of GitHub's Markdown, numbers to the right. ``spelled`` writes a cell, and a name that is a label."""
        spelled = spelled or (lambda _, text: escape_markdown(text))
        columns, words = self._for_people(WHOLE_TEXT)
        head = [spelled(column, column.name) if column.kind is CellKind.LABEL else column.name for column in columns]
        lines = [head, ["---:" if column.to_the_right else "---" for column in columns]]
        lines += [[spelled(*pair) for pair in zip(columns, row, strict=True)] for row in words]
        return [f"| {' | '.join(line)} |" for line in lines]

    def html(self) -> str:
        """A table of HTML, numbers to the right, and below it how many rows were left out; no text is markup."""
        columns, words = self._for_people(WHOLE_TEXT)
        sides = [' style="text-align:right"' if column.to_the_right else "" for column in columns]
        lines = [("th", [column.name for column in columns]), *(("td", row) for row in words)]
        cells = (
            "".join(f"<{tag}{side}>{escape(text)}</{tag}>" for side, text in zip(sides, row, strict=True))
            for tag, row in lines
        )
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        more = f"<p>and {self.more} more</p>" if self.more else ""
        return f"<table>{caption}{''.join(f'<tr>{row}</tr>' for row in cells)}</table>{more}"

    def for_page(self) -> Table:
        """Return the table as people read it, every cell as text: what a template of the page draws."""
        columns, words = self._for_people(WHOLE_TEXT)
        return Table(columns, words, self.caption, self.more)

    def _padded(self, width: int) -> list[str]:
        """Columns under dashes in so many characters, what is a number to the right."""
        _, raw = self._without(*_FOR_PROGRAMS)
        columns, words = self._for_people()
        fitting = []
        for i, column in enumerate(columns):
            cells = [row[i] for row in words]
            names = [str(row[i]) for row in raw] if column.kind is CellKind.KERNEL else cells
            shorter = None if column.to_the_right else partial(_called, names, column.kind)
            fitting.append(Fitting(column.name, cells, shorter, column.to_the_right))
        return in_columns(fitting, width)

    def _csv(self) -> str:
        """Comma-separated values with a header; raw numbers, an absent one empty."""
        columns, rows = self._without(CellKind.DETAIL)
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([column.name for column in columns])
        writer.writerows([_raw(*pair) for pair in zip(columns, row, strict=True)] for row in rows)
        return out.getvalue()

    def records(self) -> list[dict[str, object]]:
        """The rows as programs get them."""
        pairs = (zip(self.columns, row, strict=True) for row in self.rows)
        return [{column.name: json_value(cell, column.kind) for column, cell in row} for row in pairs]

    def _for_people(self, longest: int = 200) -> tuple[list[Column], list[list[str]]]:
        """The columns that people see, and their cells in words of at most ``longest`` characters. Times and sizes are
        in one unit, which a column's name does not repeat.
        """
        columns, cells = self._without(*_FOR_PROGRAMS)
        cells_by_scale: dict[tuple[str, int | None], list[tuple[list[Cell], int, Value]]] = {}
        for i, column in enumerate(columns):
            unit = _SCALED.get(column.kind)
            for row in cells:
                if unit is not None and isinstance(value := row[i], int | Fraction):
                    cells_by_scale.setdefault((unit, None), []).append((row, i, value))
                elif isinstance(measure := row[i], Measure):
                    cells_by_scale.setdefault((measure.unit, i), []).append((row, i, measure.value))
            if unit is not None:
                name, taken = column.name.removesuffix("_ns"), {other.name for other in columns}
                columns[i] = replace(column, name=str(column.kind) if name in taken else name)
        for (unit, _), scaled_cells in cells_by_scale.items():
            scale = scale_of([value for _, _, value in scaled_cells], unit)
            for row, i, value in scaled_cells:
                row[i] = format_value(value, unit, scale=scale)
        for i, column in enumerate(columns):
            if column.kind is CellKind.KERNEL:
                for row, name in zip(cells, _called([str(row[i]) for row in cells], column.kind, WIDTH), strict=True):
                    row[i] = name
        columns = [replace(column, name=column.title or column.name) for column in columns]
        words = [[printable(_shown(*pair), longest) for pair in zip(columns, row, strict=True)] for row in cells]
        return columns, words

    def _without(self, *kinds: CellKind) -> tuple[list[Column], list[list[Cell]]]:
        """Without the columns of these kinds."""
        shown = [i for i, column in enumerate(self.columns) if column.kind not in kinds]
        return [self.columns[i] for i in shown], [[row[i] for i in shown] for row in self.rows]


def _called(names: Sequence[str], kind: CellKind, width: int) -> list[str]:
    """Names in so many characters, of kernels told apart."""
    read = readable_names(names, width) if kind is CellKind.KERNEL else {}
    return [read.get(name) or in_the_middle(name, width) for name in names]


def number(name: str) -> Column:
    return Column(name, CellKind.NUMBER)


def numbers(*names: str) -> Iterator[Column]:
    return map(number, names)


def times(*names: str) -> Iterator[Column]:
    return (Column(name, CellKind.TIME) for name in names)


def ratios(*names: str) -> Iterator[Column]:
    return (Column(name, CellKind.RATIO) for name in names)


def texts(*names: str) -> Iterator[Column]:
    return map(Column, names)


def table_of(
    caption: str,
    columns: Sequence[str | Column],
    rows: Iterable[Sequence[str]],
    limit: int | None = None,
    *,
    folded: bool = False,
    longest: int = 200,
) -> Table:
    """The table of the first ``limit`` rows of words, every one cut at ``longest`` characters; a column that is a name
    alone holds text.
    """
    found = list(rows)
    chosen = tuple(tuple(printable(cell, longest) for cell in row) for row in found[:limit])
    typed = tuple(column if isinstance(column, Column) else Column(column) for column in columns)
    return Table(typed, chosen, caption, len(found) - len(chosen), folded)


T = TypeVar("T")
Told = tuple[str | Column, Callable[[T], str]]
"""A column, and what its cell says of a row."""


def table_by(
    caption: str, told: Sequence[Told[T]], rows: Sequence[T], limit: int | None = None, *, folded: bool = False
) -> Table:
    """The table of the first ``limit`` rows, column by column."""
    cells = ([cell(row) for _, cell in told] for row in rows[:limit])
    table = table_of(caption, [column for column, _ in told], cells, folded=folded)
    return replace(table, more=len(rows) - len(table.rows))


_STYLE = "body{font:14px sans-serif}pre{line-height:1.1}td,th{padding:2px 10px;text-align:left}caption{text-align:left}"


def html_page(body: str, title: str = "pytest-nsys") -> str:
    """A page that needs no other file, around what is HTML already."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}</body></html>\n'


def as_json(answer: Mapping[str, object]) -> str:
    """One object; every character outside ASCII is escaped, so that none of them reaches a terminal."""
    return without_halves(json.dumps(answer, indent=2)) + "\n"


_ESCAPES = re.compile(r"\\u(d[89ab]..)\\ud[c-f]..|\\u(d[89a-f]..)|\\.")


def without_halves(text: str) -> str:
    """JSON in ASCII whose every escape is text: of a file name that is not UTF-8 Python keeps halves of pairs, at which
    other readers of JSON stop. Nor does it hold ``##``, with which commands to a CI system begin.
    """
    text = text.replace("##", r"#\u0023")
    if "\\ud" not in text:
        return text
    return _ESCAPES.sub(lambda match: "\\ufffd" if match[2] else match[0], text)


def json_value(cell: Cell, kind: CellKind = CellKind.NUMBER) -> object:
    """The cell as JSON has it: whole numbers whole, a ratio always a fraction, an absent cell null."""
    if isinstance(cell, Measure):
        return json_value(cell.value, cell.kind)
    if cell is None or isinstance(cell, str):
        return kept_in(cell) if kind is CellKind.UNIT and cell else cell
    if isinstance(cell, Mapping):
        return dict(cell)
    if isinstance(cell, Sequence):
        return list(cell)
    return cell if isinstance(cell, int) and kind is not CellKind.RATIO else float(cell)


def escape_markdown(text: str, longest: int = 200) -> str:
    """``text`` as itself in Markdown, also in a cell of a table: no markup, and nobody is mentioned."""
    return printable(text, longest).translate(_MARKUP)


def _shown(column: Column, cell: Cell) -> str:
    assert not isinstance(cell, Measure)  # it was written in the scale of its column
    if cell is None:
        return ABSENT
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Mapping | Sequence):
        return ", ".join(cell)
    if column.kind is CellKind.RATIO:
        return percent(cell)
    return format_value(cell, BARE)


def _raw(column: Column, cell: Cell) -> str:
    value = json_value(cell, column.kind)
    if isinstance(value, list):
        value = " ".join(value)
    return "" if value is None else printable(str(value), WHOLE_TEXT)
