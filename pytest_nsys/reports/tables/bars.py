"""How is time drawn in characters: a bar whose pieces are the parts of a budget, in blocks, colours, or in ASCII?

On a terminal a part has a colour too; without one the characters tell the parts apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TextIO

from pytest_nsys.analysis.explain.budget_lines import BLOCKED, BudgetPart
from pytest_nsys.core.words import exists_in
from pytest_nsys.reports.tables.layout import COLUMNS, terminal_columns
from pytest_nsys.tools.executors import on_terminal

GLYPHS: Mapping[BudgetPart, tuple[str, str]] = {
    BudgetPart.COMPUTE: ("█", "#"),
    BudgetPart.STARVED: ("·", "."),
    BudgetPart.BETWEEN: ("─", "_"),
    **dict.fromkeys(BLOCKED.values(), ("▓", "X")),
    BudgetPart.BESIDE: ("▒", "x"),
    BudgetPart.STALLED: ("░", "-"),
}
"""How a part is drawn in a terminal, and where its encoding has no blocks."""

LEGEND = (
    (BudgetPart.COMPUTE, "compute"),
    (BudgetPart.STARVED, "launch-starved"),
    (BudgetPart.BETWEEN, "between steps"),
    (BudgetPart.COLLECTIVE, "blocked"),
    (BudgetPart.BESIDE, "in comm"),
    (BudgetPart.STALLED, "stalled"),
)
_COLOURS: Mapping[BudgetPart, int] = {
    BudgetPart.COMPUTE: 90,
    BudgetPart.STARVED: 33,
    BudgetPart.BETWEEN: 93,
    BudgetPart.COLLECTIVE: 31,
    BudgetPart.COPY: 35,
    BudgetPart.MEMSET: 35,
    BudgetPart.ELSEWHERE: 31,
    BudgetPart.BESIDE: 36,
    BudgetPart.STALLED: 34,
}
"""The number with which a terminal is told of each."""

Piece = tuple[BudgetPart | None, str]
"""Text, and the part that it draws, None for what draws none."""


class Pen(NamedTuple):
    """What a stream can show, in how many columns."""

    ascii_only: bool = False
    coloured: bool = False
    columns: int = COLUMNS

    @classmethod
    def of(cls, stream: TextIO) -> Pen:
        """Blocks where the stream's encoding has them, colours where a person looks who did not forbid them."""
        coloured = on_terminal(stream) and not os.environ.get("NO_COLOR")
        pen = cls.of_encoding(stream.encoding or "ascii")
        return pen._replace(coloured=coloured, columns=terminal_columns())

    @classmethod
    def of_encoding(cls, encoding: str) -> Pen:
        """Blocks where an encoding has them, and no colours."""
        return cls(not exists_in("".join(block for block, _ in GLYPHS.values()), encoding))

    def glyph(self, part: BudgetPart) -> str:
        return GLYPHS[part][self.ascii_only]

    def bar(self, parts: Mapping[BudgetPart, int], cells: int) -> list[Piece]:
        """So many characters, shared among the parts by their lengths."""
        return [(part, self.glyph(part) * count) for part, count in shared_out(parts, cells).items()]

    def legend(self) -> list[Piece]:
        return [pair for part, what in LEGEND for pair in ((part, self.glyph(part)), (None, f" {what}  "))]

    def line(self, pieces: Iterable[Piece]) -> str:
        """The pieces as one line of text."""
        return "".join(self._coloured(part, text) for part, text in pieces).rstrip()

    def _coloured(self, part: BudgetPart | None, text: str) -> str:
        return f"\x1b[{_COLOURS[part]}m{text}\x1b[0m" if self.coloured and part and text else text


def shared_out(parts: Mapping[BudgetPart, int], cells: int) -> dict[BudgetPart, int]:
    """So many cells by the lengths of the parts, what is left over by largest remainder."""
    whole = sum(parts.values()) or 1
    found = {part: ns * cells // whole for part, ns in parts.items()}
    most = sorted(parts, key=lambda part: parts[part] * cells % whole, reverse=True)
    for part in most[: cells - sum(found.values())]:
        found[part] += 1
    return found
