"""How wide is the output, and how does a table fit? Names are shortened, figures never.

The width comes from the terminal or the variable COLUMNS; for a pipe or a file it is 100 characters. Tables use the
whole width, the first screen at most 100. Widths below 80 are treated as 80.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import NamedTuple

# A CI log shows 100 characters without scrolling; below 80 no table of figures is readable.
DEFAULT_WIDTH, MIN_WIDTH = 100, 80
MIN_NAME_WIDTH = 20
"""Names keep at least this many characters; if figures leave less room, they continue in a block below."""

LEAST_NAME_WIDTH = 12
"""The fewest characters of a name where a line would be longer than the terminal otherwise."""

COLUMN_GAP = 2


def read_terminal_width() -> int:
    """Return how many characters a line of the terminal has, at least 80."""
    return max(MIN_WIDTH, shutil.get_terminal_size((DEFAULT_WIDTH, 1)).columns)


class FittedColumn(NamedTuple):
    """Describes a column of adjustable width: its heading, its cells, and how to shorten them."""

    head: str
    cells: Sequence[str]
    shorten: Callable[[int], Sequence[str]] | None = None  # returns the names shortened to a width; None: figures
    to_the_right: bool = False
    wraps: bool = False  # whether cells may take several lines, as sentences do

    @property
    def full_width(self) -> int:
        return max(len(self.head), self._longest_cell)

    @property
    def min_width(self) -> int:
        """The minimum width, with the heading on several lines and names shortened."""
        if self.wraps:
            return max((len(word) for text in (self.head, *self.cells) for word in text.split()), default=0)
        cell_width = self._longest_cell if self.shorten is None else min(self._longest_cell, MIN_NAME_WIDTH)
        return max(cell_width, *map(len, self.head.split() or [""]))

    @property
    def _longest_cell(self) -> int:
        return max(map(len, self.cells), default=0)

    def render_lines(self, width: int, head_lines: int, *, has_rule: bool) -> list[str]:
        """Return the heading on ``head_lines`` lines, then the cells, each in ``width`` characters."""
        head = [self.head] if len(self.head) <= width else wrap(self.head, width)
        cells = self.cells if self.shorten is None or self._longest_cell <= width else self.shorten(width)
        alignment = ">" if self.to_the_right else "<"
        rule = ["-" * width] if has_rule else []
        return [f"{text:{alignment}{width}}" for text in (*[""] * (head_lines - len(head)), *head, *rule, *cells)]


def render_columns(columns: Sequence[FittedColumn], width: int, *, has_rule: bool = True) -> list[str]:
    """Return the lines of a table in at most ``width`` characters.

    Figures that do not fit continue in a block below, with the names repeated. A table without figures is prose and is
    not shortened.
    """
    blocks = _split_into_blocks(columns, width)
    lines: list[str] = []
    for block, widths in blocks:
        head_lines = max(
            1 if len(column.head) <= column_width else len(wrap(column.head, column_width))
            for column, column_width in zip(block, widths, strict=True)
        )
        column_lines = [
            column.render_lines(column_width, head_lines, has_rule=has_rule)
            for column, column_width in zip(block, widths, strict=True)
        ]
        lines += [""] * bool(lines)
        lines += [(" " * COLUMN_GAP).join(row).rstrip() for row in zip(*column_lines, strict=True)]
    return lines


def measure_least_width(columns: Sequence[FittedColumn]) -> int:
    """Return how many characters a line of these columns has where names are as short as they may be."""
    return _sum_widths([column.min_width for column in columns])


def render_fitted_rows(columns: Sequence[FittedColumn], width: int) -> list[str]:
    """Return the lines of the headings and rows, aligned to the left, in at most ``width`` characters.

    Names are shortened, and what wraps continues in its column on the next line.
    """
    widths = [column.full_width for column in columns]
    for least_widths in (
        [column.min_width for column in columns],
        [column.min_width if column.shorten is None else LEAST_NAME_WIDTH for column in columns],
    ):
        while _sum_widths(widths) > width:
            # The widest gives way first, so that two paths beside each other are shortened alike.
            widest = max(range(len(columns)), key=lambda i: widths[i] * (widths[i] > least_widths[i]))
            if widths[widest] <= least_widths[widest]:
                break
            widths[widest] -= 1
    lines: list[str] = []
    shown_cells = [
        [column.head, *(column.cells if column.shorten is None else column.shorten(column_width))]
        for column, column_width in zip(columns, widths, strict=True)
    ]
    for row in zip(*shown_cells, strict=True):
        pieces = [wrap(text, column_width) or [""] for text, column_width in zip(row, widths, strict=True)]
        lines += [
            (" " * COLUMN_GAP).join(f"{text:{w}}" for text, w in zip(parts, widths, strict=True)).rstrip()
            for parts in zip_longest(*pieces, fillvalue="")
        ]
    return lines


def _split_into_blocks(
    columns: Sequence[FittedColumn], width: int
) -> Iterator[tuple[Sequence[FittedColumn], Sequence[int]]]:
    """Yield the columns of each block and their widths: one block if everything fits, else as many as necessary."""
    is_prose = all(column.shorten is not None for column in columns)
    if is_prose or _sum_widths([column.full_width for column in columns]) <= width:
        yield columns, [column.full_width for column in columns]
        return
    name_count = _count_name_columns(columns)
    name_columns, figure_columns = list(columns[:name_count]), list(columns[name_count:])
    while figure_columns:
        fitting_count = next(
            (
                n
                for n in range(len(figure_columns), 1, -1)
                if _sum_widths([column.min_width for column in (*name_columns, *figure_columns[:n])]) <= width
            ),
            1,
        )
        block = [*name_columns, *figure_columns[:fitting_count]]
        yield block, _choose_widths(block, width)
        del figure_columns[:fitting_count]


def _count_name_columns(columns: Sequence[FittedColumn]) -> int:
    """Return the number of leading columns that name a row: those up to the last name before the first figures."""
    name_indices = [number for number, column in enumerate(columns) if column.shorten is not None]
    last_name = next(
        (
            index
            for index, next_index in zip(name_indices, (*name_indices[1:], len(columns)), strict=True)
            if next_index > index + 1
        ),
        0,
    )
    return min(last_name + 1, len(columns) - 1)


def _choose_widths(columns: Sequence[FittedColumn], width: int) -> list[int]:
    """Return the width of each column: headings are wrapped before names are shortened, the longest first."""
    widths = [column.min_width if column.shorten is None else column.full_width for column in columns]
    while (excess := _sum_widths(widths) - width) > 0:
        widest = max(
            (i for i, column in enumerate(columns) if widths[i] > column.min_width),
            key=lambda i: widths[i],
            default=None,
        )
        if widest is None:  # nothing can be shortened any more: the line stays too long
            break
        second_width = max(
            (
                other_width
                for i, other_width in enumerate(widths)
                if other_width < widths[widest] and columns[i].shorten
            ),
            default=0,
        )
        widths[widest] = max(columns[widest].min_width, second_width, widths[widest] - excess)
    return widths


def _sum_widths(widths: Sequence[int]) -> int:
    return sum(widths) + COLUMN_GAP * (len(widths) - 1)
