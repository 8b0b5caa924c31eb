"""How causes read: a few lines of the worst row in a terminal, one cause, the budget of a window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.explained import BudgetChange, Cause, CauseKind, Explained, Explanation
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Label
from pytest_nsys.core.numbers import format_apart, format_signed, scale_of
from pytest_nsys.core.units import TIME
from pytest_nsys.core.words import counted, place_words, printable
from pytest_nsys.reports.tables import WHOLE_TEXT, Table, number, table_of

MOST_PARTS = 3
MOST_CAUSES = 3
MOST_ROWS = 1
FOLDED_SHARE = Fraction(5, 100)
"""A part of less of its whole is told with others, or not at all."""

_COVER = {
    CauseKind.COVER_SHRANK: ": it got shorter",
    CauseKind.COVER_VANISHED: ": it is gone",
    CauseKind.COVER_MOVED: ": no longer runs alongside",
    CauseKind.COVER_GREW: "",
}
_WALLS = {
    CauseKind.COMPUTE: "{} runs",
    CauseKind.EXPOSED: "{} runs exposed",
    CauseKind.LAUNCH_BOUND: "the GPU waits for the launch of {} (CPU-bound)",
    CauseKind.IDLE: "the GPU is idle before {}, already launched,",
    CauseKind.STARVED: "the host launches {} late:",
    CauseKind.BLOCKS: "{} blocks compute:",
    CauseKind.BESIDE: "{} stalls during communication:",
    CauseKind.STALLED: "{} stalls for another reason:",
}
"""What a part of a window went to, by kernel."""


def cause_lines(rows: Sequence[Explained], *, verbose: bool = False) -> list[str]:
    """The causes of the first row, which is the worst, largest first; what is left out is summed up, unless
    ``verbose``.

    Then the rows that have the same leading cause, and those that have another, a line for each cause.
    """
    groups = by_cause([row for row in rows if row.explanation.change_ns or row.explanation.causes])
    if not groups:
        return []
    (first, *same), *others = groups
    lines = _lines(first, None if verbose else MOST_PARTS)
    if same:
        lines.append(f"the same in {shared_words(same)}")
    for group in others[: MOST_CAUSES - 1]:
        leading = group[0].explanation.leading
        lines.append(f"{shared_words(group)}: {'not explained' if leading is None else cause_words(leading)}")
    rest = sum(map(len, others[MOST_CAUSES - 1 :]))
    return [*lines, *([f"… {counted(rest, 'row')} with other causes"] if rest else [])]


def by_cause(rows: Iterable[Explained]) -> list[list[Explained]]:
    return [*grouped((cause_of(row), row) for row in rows).values()]


def cause_of(row: Explained) -> str:
    """What the leading cause of a row is about, by which rows of one cause are known: a kernel, the rank that it waits
    for. Empty where no cause leads.
    """
    cause = row.explanation.leading
    if cause is None:
        return ""
    if cause.kernel and cause.straggler is not None:
        return f"{printable(cause.kernel, 60)} waits for rank {cause.straggler}"
    return printable(cause.kernel, 60) or str(cause.kind)


def shared_words(rows: Sequence[Explained]) -> str:
    """Rows by labels, each with its change; of many the first few."""
    shown = [f"{labels_words(row.labels)} ({format_signed(row.explanation.change_ns)})" for row in rows[:MOST_ROWS]]
    return ", ".join(shown) + (f" and {len(rows) - MOST_ROWS} more" if len(rows) > MOST_ROWS else "")


def labels_words(labels: Mapping[str, Label]) -> str:
    return printable(place_words(labels), 100)


def _lines(row: Explained, most: int | None) -> list[str]:
    cells = part_cells(row.explanation, most)
    where = f"{labels_words(row.labels)}, {format_signed(row.explanation.change_ns)}:"
    return [where, *(f"{amount:>10}  {words}" for amount, words in cells)]


def part_cells(explanation: Explanation, most: int | None = None) -> list[tuple[str, str]]:
    """The parts of a change: amount and words. With ``most`` so many of the largest, the others as one, and nothing
    that is small beside the change, nor a window in which one part made up for another.
    """
    causes, budget = explanation.causes, explanation.budget
    least = 0 if most is None else abs(explanation.change_ns) * FOLDED_SHARE
    told = [cause for n, cause in enumerate(causes[:most]) if not n or abs(cause.change_ns) >= least]
    rest_ns = sum(cause.change_ns for cause in causes) - sum(cause.change_ns for cause in told)
    cells = [(cause.change_ns, cause_words(cause)) for cause in told]
    if len(told) < len(causes) and abs(rest_ns) >= least:
        cells.append((rest_ns, counted(len(causes) - len(told), "smaller cause")))
    if explanation.unexplained_ns and (explanation.lacks or abs(explanation.unexplained_ns) >= least):
        lacks = f": {printable(explanation.lacks, 200)}" if explanation.lacks else ""
        cells.append((explanation.unexplained_ns, f"not explained{lacks}"))
    if budget is not None and (most is None or not _cancels(budget)):
        cells.append((budget.change_ns, budget_words(budget)))
    return [(format_signed(ns), words) for ns, words in cells]


def _cancels(budget: BudgetChange) -> bool:
    """Whether one part of a window made up for another."""
    return abs(budget.change_ns) < max(abs(ns) for _, ns in budget.parts) * FOLDED_SHARE


def cause_words(cause: Cause) -> str:
    """One cause, without its amount."""
    before, now = format_apart(cause.before_ns, cause.now_ns, TIME)
    kernel = printable(cause.kernel, 60)
    if cause.kind in _WALLS:
        counts = _counts(cause) if cause.kind in (CauseKind.COMPUTE, CauseKind.EXPOSED) else ""
        waits = "" if cause.straggler is None else f": it waits for rank {cause.straggler}"
        return f"{_WALLS[cause.kind].format(kernel)} {before} → {now}{counts}{waits}"
    if cause.kind is CauseKind.SLOWEST:
        return f"rank {cause.straggler} was the slowest before: {before}, this rank {now}"
    if cause.kind in _COVER:
        return f"{kernel} now overlaps {now} of it (was {before}){_COVER[cause.kind]}{_counts(cause)}"
    if cause.kind is CauseKind.WAITS:
        return f"{kernel} waits for rank {cause.straggler}, {before} → {now}{_ordinals(cause)}"
    if cause.kind in (CauseKind.APPEARED, CauseKind.VANISHED, CauseKind.BARRIER):
        return f"{kernel} {cause.kind}{_counts(cause)}, {before} → {now} in all"
    many = cause.kernels > 1 and cause.was == cause.kernels
    if many:
        was, is_now = (Fraction(ns, cause.kernels) for ns in (cause.before_ns, cause.now_ns))
        before, now = format_apart(was, is_now, TIME)
    each = f", {cause.kernels} kernels, {before} → {now} each" if many else f", {before} → {now}"
    return f"{kernel} {cause.kind}{each}{_ordinals(cause)}"


def budget_words(budget: BudgetChange) -> str:
    """How the parts of a window's budget moved: ``the window: compute +2 ms (of which flash_fwd_kernel +2 ms)``.

    Parts of under a twentieth of the largest are told as one.
    """
    scale = scale_of([ns for _, ns in budget.parts], TIME)
    least = max(abs(ns) for _, ns in budget.parts) * FOLDED_SHARE
    told = [(part, ns) for part, ns in budget.parts if abs(ns) >= least]
    words = [f"{part} {format_signed(ns, scale=scale)}" for part, ns in told]
    if budget.kernel is not None and told[0] == budget.parts[0]:  # then compute moved, and is the first part
        name, ns = budget.kernel
        words[0] += f" (of which {printable(name, 60)} {format_signed(ns, scale=scale)})"
    if len(told) < len(budget.parts):
        words.append(
            f"the rest {format_signed(sum(ns for _, ns in budget.parts) - sum(ns for _, ns in told), scale=scale)}"
        )
    return f"the window: {', '.join(words)}"


def _counts(cause: Cause) -> str:
    return f" ({cause.was} → {counted(cause.kernels, 'kernel')})" if cause.was != cause.kernels else ""


def _ordinals(cause: Cause) -> str:
    if not cause.ordinals or cause.kernels < 2:
        return ""
    return f", most: no. {', '.join(map(str, cause.ordinals))}"


MOST_ON_PAGE = 6
"""The others, which are smaller, are one line; the JSON report has them."""

CauseTable = tuple[str, str, Table]
"""Which row, its change, and the parts of it."""


def cause_table(row: Explained, of: str = "") -> CauseTable:
    """Why a row changed, as a page tells it; ``of`` stands before its place."""
    where = of + labels_words(row.labels)
    cells = part_cells(row.explanation, MOST_ON_PAGE)
    parts = table_of(f"Causes of {where}", (number("change"), "what"), cells, longest=WHOLE_TEXT)
    return where, format_signed(row.explanation.change_ns), parts
