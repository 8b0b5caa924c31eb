"""How wide is what people read, and how does a table fit? Names give way, figures never.

A terminal says how wide it is, or COLUMNS; a pipe and a file have 100 characters. Tables take the width there is, the
first screen at most 100; below 80 nothing fits, and lines are as long as there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple

COLUMNS, NARROWEST = 100, 80
LEAST_NAME = 20
"""Names keep so many characters; where figures leave less, these go on below."""

GAP = 2


def terminal_columns() -> int:
    """How many characters a line of the terminal has."""
    return max(NARROWEST, shutil.get_terminal_size((COLUMNS, 1)).columns)


class Fitting(NamedTuple):
    """The cells of a column below its head; ``shorter`` gives names that fit into so many characters, None figures."""

    head: str
    cells: Sequence[str]
    shorter: Callable[[int], Sequence[str]] | None = None
    to_the_right: bool = False

    @property
    def whole(self) -> int:
        return max(len(self.head), self._longest)

    @property
    def least(self) -> int:
        """With its head on several lines."""
        longest = self._longest if self.shorter is None else min(self._longest, LEAST_NAME)
        return max(longest, *map(len, self.head.split() or [""]))

    @property
    def _longest(self) -> int:
        return max(map(len, self.cells), default=0)

    def lines(self, width: int, heads: int, *, ruled: bool) -> list[str]:
        """Its head on so many lines, and its cells, each of ``width`` characters."""
        head = [self.head] if len(self.head) <= width else wrap(self.head, width)
        cells = self.cells if self.shorter is None or self._longest <= width else self.shorter(width)
        side = ">" if self.to_the_right else "<"
        rule = ["-" * width] if ruled else []
        return [f"{text:{side}{width}}" for text in (*[""] * (heads - len(head)), *head, *rule, *cells)]


def in_columns(columns: Sequence[Fitting], width: int, *, ruled: bool = True) -> list[str]:
    """A line for each row, in at most ``width`` characters: figures that do not fit go on below, beside their names;
    a table without figures is prose, which stays whole.
    """
    blocks = _blocks(columns, width)
    lines: list[str] = []
    for own, widths in blocks:
        heads = max(1 if len(c.head) <= w else len(wrap(c.head, w)) for c, w in zip(own, widths, strict=True))
        each = [c.lines(w, heads, ruled=ruled) for c, w in zip(own, widths, strict=True)]
        lines += [""] * bool(lines)
        lines += [(" " * GAP).join(row).rstrip() for row in zip(*each, strict=True)]
    return lines


def _blocks(columns: Sequence[Fitting], width: int) -> Iterator[tuple[Sequence[Fitting], Sequence[int]]]:
    prose = all(c.shorter is not None for c in columns)
    if prose or _together([c.whole for c in columns]) <= width:
        yield columns, [c.whole for c in columns]
        return
    names = _names(columns)
    keys, rest = list(columns[:names]), list(columns[names:])
    while rest:
        many = next(
            (n for n in range(len(rest), 1, -1) if _together([c.least for c in (*keys, *rest[:n])]) <= width), 1
        )
        own = [*keys, *rest[:many]]
        yield own, _widths(own, width)
        del rest[:many]


def _names(columns: Sequence[Fitting]) -> int:
    """How many columns, the first ones, say what a row is: up to the last name before figures that are none."""
    named = [number for number, column in enumerate(columns) if column.shorter is not None]
    first = next((at for at, after in zip(named, (*named[1:], len(columns)), strict=True) if after > at + 1), 0)
    return min(first + 1, len(columns) - 1)


def _widths(columns: Sequence[Fitting], width: int) -> list[int]:
    """What each column has: heads take several lines before names are cut, the longest first."""
    found = [c.least if c.shorter is None else c.whole for c in columns]
    while (over := _together(found) - width) > 0:
        cut = max((i for i, c in enumerate(columns) if found[i] > c.least), key=lambda i: found[i], default=None)
        if cut is None:
            break
        next_to = max((w for i, w in enumerate(found) if w < found[cut] and columns[i].shorter), default=0)
        found[cut] = max(columns[cut].least, next_to, found[cut] - over)
    return found


def _together(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)
