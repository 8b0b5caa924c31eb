"""How wide is what people read, and how does a table fit? Names give way, figures never.

A terminal says how wide it is, or the variable COLUMNS; a pipe and a file have 100 characters. Tables take the width
there is, the first screen at most 100; below 80 nothing fits, and lines are as long as there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple

# 100 is what a log shows without scrolling; narrower than 80 no table of figures can be read.
COLUMNS, NARROWEST = 100, 80
LEAST_NAME = 20
"""Names keep so many characters; where figures leave less, figures go on below."""

GAP = 2


def terminal_columns() -> int:
    """Return how many characters a line of the terminal has, at least 80."""
    return max(NARROWEST, shutil.get_terminal_size((COLUMNS, 1)).columns)


class Fitting(NamedTuple):
    """Describes a column that can give up width: its head, its cells, and how to shorten them."""

    head: str
    cells: Sequence[str]
    shorter: Callable[[int], Sequence[str]] | None = None  # gives names that fit into a width; None: figures
    to_the_right: bool = False

    @property
    def whole(self) -> int:
        return max(len(self.head), self._longest)

    @property
    def least(self) -> int:
        """The least width, with the head on several lines and names shortened."""
        cell_width = self._longest if self.shorter is None else min(self._longest, LEAST_NAME)
        return max(cell_width, *map(len, self.head.split() or [""]))

    @property
    def _longest(self) -> int:
        return max(map(len, self.cells), default=0)

    def lines(self, width: int, heads: int, *, ruled: bool) -> list[str]:
        """Return the head on ``head_lines`` lines, then the cells, each in ``width`` characters."""
        head = [self.head] if len(self.head) <= width else wrap(self.head, width)
        cells = self.cells if self.shorter is None or self._longest <= width else self.shorter(width)
        alignment = ">" if self.to_the_right else "<"
        rule = ["-" * width] if ruled else []
        return [f"{text:{alignment}{width}}" for text in (*[""] * (heads - len(head)), *head, *rule, *cells)]


def in_columns(columns: Sequence[Fitting], width: int, *, ruled: bool = True) -> list[str]:
    """Return the lines of a table in at most ``width`` characters.

    Figures that do not fit go on in a block below, beside their names. A table without figures is prose, which stays
    whole.
    """
    blocks = _blocks(columns, width)
    lines: list[str] = []
    for block, widths in blocks:
        head_lines = max(
            1 if len(column.head) <= column_width else len(wrap(column.head, column_width))
            for column, column_width in zip(block, widths, strict=True)
        )
        column_lines = [
            column.lines(column_width, head_lines, ruled=ruled)
            for column, column_width in zip(block, widths, strict=True)
        ]
        lines += [""] * bool(lines)
        lines += [(" " * GAP).join(row).rstrip() for row in zip(*column_lines, strict=True)]
    return lines


def _blocks(columns: Sequence[Fitting], width: int) -> Iterator[tuple[Sequence[Fitting], Sequence[int]]]:
    """Yield the columns of each block and their widths: one block where all fits, else as many as it takes."""
    is_prose = all(column.shorter is not None for column in columns)
    if is_prose or _together([column.whole for column in columns]) <= width:
        yield columns, [column.whole for column in columns]
        return
    name_count = _names(columns)
    name_columns, figure_columns = list(columns[:name_count]), list(columns[name_count:])
    while figure_columns:
        fitting_count = next(
            (
                n
                for n in range(len(figure_columns), 1, -1)
                if _together([column.least for column in (*name_columns, *figure_columns[:n])]) <= width
            ),
            1,
        )
        block = [*name_columns, *figure_columns[:fitting_count]]
        yield block, _widths(block, width)
        del figure_columns[:fitting_count]


def _names(columns: Sequence[Fitting]) -> int:
    """Return how many of the first columns name a row: up to the last name before the first figures."""
    name_indices = [number for number, column in enumerate(columns) if column.shorter is not None]
    last_name = next(
        (
            index
            for index, next_index in zip(name_indices, (*name_indices[1:], len(columns)), strict=True)
            if next_index > index + 1
        ),
        0,
    )
    return min(last_name + 1, len(columns) - 1)


def _widths(columns: Sequence[Fitting], width: int) -> list[int]:
    """Return the width of each column: heads take several lines before names are cut, the longest first."""
    widths = [column.least if column.shorter is None else column.whole for column in columns]
    while (excess := _together(widths) - width) > 0:
        widest = max(
            (i for i, column in enumerate(columns) if widths[i] > column.least), key=lambda i: widths[i], default=None
        )
        if widest is None:  # nothing is left to give up: the line stays too long
            break
        second_width = max(
            (
                other_width
                for i, other_width in enumerate(widths)
                if other_width < widths[widest] and columns[i].shorter
            ),
            default=0,
        )
        widths[widest] = max(columns[widest].least, second_width, widths[widest] - excess)
    return widths


def _together(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)
