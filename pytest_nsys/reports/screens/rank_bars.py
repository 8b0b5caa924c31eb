"""How does the time of ranks read as bars: one line each, with the share of every part, which add up to 100%?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from pytest_nsys.analysis.explain.budget_lines import BLOCKED, BudgetPart
from pytest_nsys.analysis.summary.summary import RankBudget
from pytest_nsys.core.numbers import format_value, scale_of
from pytest_nsys.core.units import TIME
from pytest_nsys.core.words import printable
from pytest_nsys.reports.tables.bars import LEGEND, Pen, Piece, shared_out
from pytest_nsys.reports.tables.layout import COLUMNS

RANKS_SHOWN = 8
LONGEST_BAR, SHORTEST_BAR = 40, 8
SHARES = 1000
"""Shares are told in tenths of a percent."""

HEADS = {
    BudgetPart.COMPUTE: "compute",
    BudgetPart.STARVED: "starved",
    BudgetPart.BETWEEN: "between",
    BudgetPart.COLLECTIVE: "collective",
    BudgetPart.COPY: "copy",
    BudgetPart.MEMSET: "memset",
    BudgetPart.ELSEWHERE: "device",
    BudgetPart.BESIDE: "in comm",
    BudgetPart.STALLED: "stalled",
}
"""The columns beside the bars; the legend below them has the words."""

FOLDS = (
    (BudgetPart.COPY, (BudgetPart.MEMSET, BudgetPart.ELSEWHERE), "copies"),
    (BudgetPart.STALLED, (BudgetPart.BESIDE,), HEADS[BudgetPart.STALLED]),
)
"""Where all columns need more room than there is: a part, those added to it, and the heading of the sum. In this order,
as many as are needed: nine parts of ranks with long numbers fit on no line."""


def rank_bars(budgets: Sequence[RankBudget], pen: Pen) -> Iterator[str]:
    """A heading, a line for each rank that is shown, and a legend, on lines as long as the pen's."""
    chosen = shown_ranks(budgets)
    wide = min(COLUMNS, pen.columns)
    labels = [f"rank {budget.rank}{which}" for which, budget in chosen]
    scale = scale_of([budget.window_ns for _, budget in chosen], TIME)
    times = [format_value(budget.window_ns, scale=scale) for _, budget in chosen]
    label, time = max(map(len, labels)), max(len("time"), *map(len, times))
    shown, heads = _columns([budget for _, budget in chosen], wide - label - time - 4 - SHORTEST_BAR)
    bar = max(1, min(LONGEST_BAR, wide - label - time - 4 - sum(len(head) for head in heads.values())))
    title = printable("where the time goes", label + 2 + bar)
    yield f"{title:{label + 2 + bar}}  {'time':>{time}}{''.join(heads.values())}"
    longest = max(budget.window_ns for budget in shown) or 1
    for name, length, budget in zip(labels, times, shown, strict=True):
        if not budget.parts:
            yield printable(f"{name:{label}}  no budget: {budget.why}", wide)
            continue
        cells = max(1, bar * budget.window_ns // longest)
        shares = share_words(budget)
        texts = "".join(f"{shares[part]:>{len(head)}}" for part, head in heads.items())
        drawn: list[Piece] = pen.bar(budget.parts, cells)
        yield pen.line([(None, f"{name:{label}}  "), *drawn, (None, f"{'':{bar - cells}}  {length:>{time}}{texts}")])
    if heads:
        yield pen.line(_legend([*heads], pen))


def _columns(budgets: Sequence[RankBudget], room: int) -> tuple[Sequence[RankBudget], Mapping[BudgetPart, str]]:
    """Give the budgets with a heading for each part that any of them has, folded until these fit into the room."""
    present = [part for part in HEADS if any(budget.parts.get(part) for budget in budgets)]
    heads = {part: _heading(HEADS[part]) for part in present}
    for part, added, head in FOLDS:
        if sum(map(len, heads.values())) <= room:
            break
        budgets = [replace(budget, parts=_folded(budget.parts, part, added)) for budget in budgets]
        if heads.keys() & {part, *added}:
            heads[part] = _heading(head)
        heads = {each: heads[each] for each in HEADS if each in heads and each not in added}
    return budgets, heads


def _heading(words: str) -> str:
    return f"  {words:>{len('100.0%')}}"


def _folded(parts: Mapping[BudgetPart, int], whole: BudgetPart, added: Sequence[BudgetPart]) -> dict[BudgetPart, int]:
    total_ns = sum(parts[part] for part in (whole, *added)) if parts else 0
    return {part: total_ns if part is whole else ns for part, ns in parts.items() if part not in added}


def _legend(parts: Sequence[BudgetPart], pen: Pen) -> Iterator[Piece]:
    """Of the parts that are drawn; what blocks is one in the legend, of which the columns tell what it is."""
    drawn = {BudgetPart.COLLECTIVE if part in BLOCKED.values() else part for part in parts}
    for part, what in LEGEND:
        if part in drawn:
            yield from ((part, pen.glyph(part)), (None, f" {what}  "))


def shown_ranks(budgets: Sequence[RankBudget]) -> list[tuple[str, RankBudget]]:
    """All of few ranks, else the slowest, the median and the fastest, each with the word for it."""
    if len(budgets) <= RANKS_SHOWN:
        return [("", budget) for budget in budgets]
    ordered = sorted(budgets, key=lambda budget: (-budget.window_ns, budget.rank))
    chosen = ordered[0], ordered[len(ordered) // 2], ordered[-1]
    return [*zip((" (slowest)", " (median)", " (fastest)"), chosen, strict=True)]


def share_words(budget: RankBudget) -> Mapping[BudgetPart, str]:
    """The share of each part in tenths of a percent, which add up to 100%. A part that is less than a tenth, and one
    that is nearly all, is told as such.
    """
    tenths = shared_out(budget.parts, SHARES)
    return {part: told_in_tenths(tenths[part], share) for part, share in budget.shares.items()}


def told_in_tenths(tenths: int, share: Fraction) -> str:
    if not tenths:
        return "<0.1%" if share else "0%"
    if tenths == SHARES:
        return "100%" if share == 1 else ">99.9%"
    return f"{tenths // 10}.{tenths % 10}%"
