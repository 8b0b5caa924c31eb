"""How is the time of ranks drawn as bars? One line each, with the share of every part; shares add up to 100%."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from pytest_nsys.analysis.explain.budget_lines import BLOCKED_PARTS, BudgetPart
from pytest_nsys.analysis.summary.summary import RankBudget
from pytest_nsys.core.numbers import choose_scale, format_value
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import TIME
from pytest_nsys.reports.tables.bars import BAR_LEGEND, Pen, Piece, distribute_cells
from pytest_nsys.reports.tables.layout import DEFAULT_WIDTH

RANKS_SHOWN = 8
LONGEST_BAR, SHORTEST_BAR = 40, 8
TENTHS_IN_ALL = 1000
"""Shares are counted in tenths of a percent: this is 100%."""

COLUMN_HEADS = {
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
"""The headings of the columns next to the bars; the legend below has the full names."""

COLUMN_FOLDS = (
    (BudgetPart.COPY, (BudgetPart.MEMSET, BudgetPart.ELSEWHERE), "copies"),
    (BudgetPart.STALLED, (BudgetPart.BESIDE,), COLUMN_HEADS[BudgetPart.STALLED]),
)
"""The parts to merge if all columns need too much room: a part, those added to it, and the heading of the sum.

They are applied in this order, as many as necessary: nine parts do not fit on a line with long rank numbers.
"""


def render_rank_bars(budgets: Sequence[RankBudget], pen: Pen) -> Iterator[str]:
    """Yield a heading, a line for each shown rank, and a legend, in the pen's width."""
    chosen_budgets = select_shown_ranks(budgets)
    width = min(DEFAULT_WIDTH, pen.columns)
    labels = [f"rank {budget.rank}{place_word}" for place_word, budget in chosen_budgets]
    scale = choose_scale([budget.window_ns for _, budget in chosen_budgets], TIME)
    times = [format_value(budget.window_ns, scale=scale) for _, budget in chosen_budgets]
    label_width, time_width = max(map(len, labels)), max(len("time"), *map(len, times))
    folded_budgets, headings = _choose_columns(
        [budget for _, budget in chosen_budgets], width - label_width - time_width - 4 - SHORTEST_BAR
    )
    bar_width = max(
        1, min(LONGEST_BAR, width - label_width - time_width - 4 - sum(len(heading) for heading in headings.values()))
    )
    title = sanitize_line("where the time goes", label_width + 2 + bar_width)
    yield f"{title:{label_width + 2 + bar_width}}  {'time':>{time_width}}{''.join(headings.values())}"
    longest_ns = max(budget.window_ns for budget in folded_budgets) or 1
    for name, length, budget in zip(labels, times, folded_budgets, strict=True):
        if not budget.parts:
            yield sanitize_line(f"{name:{label_width}}  no budget: {budget.reason}", width)
            continue
        cell_count = max(1, bar_width * budget.window_ns // longest_ns)  # a short window still gets one cell
        shares = format_budget_shares(budget)
        share_texts = "".join(f"{shares[part]:>{len(heading)}}" for part, heading in headings.items())
        pieces: list[Piece] = pen.draw_bar(budget.parts, cell_count)
        yield pen.render_line(
            [
                (None, f"{name:{label_width}}  "),
                *pieces,
                (None, f"{'':{bar_width - cell_count}}  {length:>{time_width}}{share_texts}"),
            ]
        )
    if headings:
        yield pen.render_line(_render_legend([*headings], pen))


def _choose_columns(budgets: Sequence[RankBudget], room: int) -> tuple[Sequence[RankBudget], Mapping[BudgetPart, str]]:
    """Return the budgets, and a heading for each part that any of them has; parts are merged until the columns fit into
    ``room``.
    """
    present_parts = [part for part in COLUMN_HEADS if any(budget.parts.get(part) for budget in budgets)]
    headings = {part: _format_heading(COLUMN_HEADS[part]) for part in present_parts}
    for part, added_parts, heading_text in COLUMN_FOLDS:
        if sum(map(len, headings.values())) <= room:
            break
        budgets = [replace(budget, parts=_fold_parts(budget.parts, part, added_parts)) for budget in budgets]
        if headings.keys() & {part, *added_parts}:
            headings[part] = _format_heading(heading_text)
        headings = {
            kept_part: headings[kept_part]
            for kept_part in COLUMN_HEADS
            if kept_part in headings and kept_part not in added_parts
        }
    return budgets, headings


def _format_heading(words: str) -> str:
    return f"  {words:>{len('100.0%')}}"  # the widest share


def _fold_parts(
    parts: Mapping[BudgetPart, int], whole: BudgetPart, added_parts: Sequence[BudgetPart]
) -> dict[BudgetPart, int]:
    total_ns = sum(parts[part] for part in (whole, *added_parts)) if parts else 0
    return {part: total_ns if part is whole else ns for part, ns in parts.items() if part not in added_parts}


def _render_legend(parts: Sequence[BudgetPart], pen: Pen) -> Iterator[Piece]:
    """Yield the pieces of the legend for the parts that are drawn.

    The legend shows all blocking parts as one; the columns distinguish them.
    """
    drawn_parts = {BudgetPart.COLLECTIVE if part in BLOCKED_PARTS.values() else part for part in parts}
    for part, description in BAR_LEGEND:
        if part in drawn_parts:
            yield from ((part, pen.find_glyph(part)), (None, f" {description}  "))


def select_shown_ranks(budgets: Sequence[RankBudget]) -> list[tuple[str, RankBudget]]:
    """Return all ranks if they are few, else the slowest, the median and the fastest, each with that word."""
    if len(budgets) <= RANKS_SHOWN:  # more would leave no room for anything else
        return [("", budget) for budget in budgets]
    slowest_first = sorted(budgets, key=lambda budget: (-budget.window_ns, budget.rank))
    chosen_budgets = slowest_first[0], slowest_first[len(slowest_first) // 2], slowest_first[-1]
    return [*zip((" (slowest)", " (median)", " (fastest)"), chosen_budgets, strict=True)]


def format_budget_shares(budget: RankBudget) -> Mapping[BudgetPart, str]:
    """Return the share of each part in tenths of a percent, which add up to 100%.

    A part below a tenth, and one of nearly 100%, is written as such (``<`` or ``>``).
    """
    tenths = distribute_cells(budget.parts, TENTHS_IN_ALL)
    return {part: format_tenths(tenths[part], share) for part, share in budget.shares.items()}


def format_tenths(tenths: int, share: Fraction) -> str:
    if not tenths:
        return "<0.1%" if share else "0%"
    if tenths == TENTHS_IN_ALL:
        return "100%" if share == 1 else ">99.9%"
    return f"{tenths // 10}.{tenths % 10}%"
