"""How is time drawn in characters: a bar whose pieces are the parts of a budget, in blocks, colours, or in ASCII?

On a terminal each part also has a colour; without colours the characters distinguish the parts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TextIO

from pytest_nsys.analysis.explain.budget_lines import BLOCKED_PARTS, BudgetPart
from pytest_nsys.core.text_format import can_encode
from pytest_nsys.reports.tables.layout import DEFAULT_WIDTH, read_terminal_width
from pytest_nsys.tools.executors import is_on_terminal

PART_GLYPHS: Mapping[BudgetPart, tuple[str, str]] = {
    BudgetPart.COMPUTE: ("█", "#"),
    BudgetPart.STARVED: ("·", "."),
    BudgetPart.BETWEEN: ("─", "_"),
    **dict.fromkeys(BLOCKED_PARTS.values(), ("▓", "X")),
    BudgetPart.BESIDE: ("▒", "x"),
    BudgetPart.STALLED: ("░", "-"),
}
"""The character that draws a part: a block, and a letter where the encoding has no blocks."""

BAR_LEGEND = (
    (BudgetPart.COMPUTE, "compute"),
    (BudgetPart.STARVED, "launch-starved"),
    (BudgetPart.BETWEEN, "between steps"),
    (BudgetPart.COLLECTIVE, "blocked"),
    (BudgetPart.BESIDE, "in comm"),
    (BudgetPart.STALLED, "stalled"),
)
_COLOUR_CODES: Mapping[BudgetPart, int] = {
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
"""The ANSI code of each part's foreground colour."""

Piece = tuple[BudgetPart | None, str]
"""A part of the budget and the text that draws it; None for text that draws no part."""


class Pen(NamedTuple):
    """Describes what an output stream can show: which characters, whether colours, and how many columns."""

    ascii_only: bool = False
    has_colours: bool = False
    columns: int = DEFAULT_WIDTH

    @classmethod
    def from_stream(cls, stream: TextIO) -> Pen:
        """Return the pen of a stream, with colours if it is a terminal and ``NO_COLOR`` is not set."""
        has_colours = is_on_terminal(stream) and not os.environ.get("NO_COLOR")
        pen = cls.from_encoding(stream.encoding or "ascii")
        return pen._replace(has_colours=has_colours, columns=read_terminal_width())

    @classmethod
    def from_encoding(cls, encoding: str) -> Pen:
        """Return a pen without colours, which draws blocks if the encoding has them."""
        return cls(not can_encode("".join(block for block, _ in PART_GLYPHS.values()), encoding))

    def find_glyph(self, part: BudgetPart) -> str:
        return PART_GLYPHS[part][self.ascii_only]

    def draw_bar(self, ns_by_part: Mapping[BudgetPart, int], width: int) -> list[Piece]:
        """Return a bar of ``width`` characters, shared among the parts by their times."""
        return [(part, self.find_glyph(part) * count) for part, count in distribute_cells(ns_by_part, width).items()]

    def draw_legend(self) -> list[Piece]:
        """Return the pieces of the legend: each part's character and its name."""
        return [pair for part, label in BAR_LEGEND for pair in ((part, self.find_glyph(part)), (None, f" {label}  "))]

    def render_line(self, pieces: Iterable[Piece]) -> str:
        """Return the pieces as one line of text."""
        return "".join(self._colour_text(part, text) for part, text in pieces).rstrip()

    def _colour_text(self, part: BudgetPart | None, text: str) -> str:
        return f"\x1b[{_COLOUR_CODES[part]}m{text}\x1b[0m" if self.has_colours and part and text else text


def distribute_cells(ns_by_part: Mapping[BudgetPart, int], cells: int) -> dict[BudgetPart, int]:
    """Return how many cells each part gets, proportional to its time; cells left over by rounding go to the largest
    remainders.
    """
    # For an empty budget, 1 avoids a division by zero.
    total_ns = sum(ns_by_part.values()) or 1
    cells_by_part = {part: ns * cells // total_ns for part, ns in ns_by_part.items()}
    by_remainder = sorted(ns_by_part, key=lambda part: ns_by_part[part] * cells % total_ns, reverse=True)
    for part in by_remainder[: cells - sum(cells_by_part.values())]:
        cells_by_part[part] += 1
    return cells_by_part
