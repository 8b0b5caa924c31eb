"""How causes read: a few lines of the worst row in a terminal, one cause, the budget of a window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.explain.parts import BudgetChange, Change, ChangeKind, Explained, Explanation, What
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Label
from pytest_nsys.core.numbers import format_apart, format_signed, scale_of
from pytest_nsys.core.units import TIME
from pytest_nsys.core.words import counted, place_words, printable, rank_ranges
from pytest_nsys.reports.tables.formats import WHOLE_TEXT, Table, number, table_of
from pytest_nsys.reports.words.roots import Moved, both_words, called_beside, cause_words, moved_words

MOST_PARTS = 3
MOST_CAUSES = 3
FOLDED_SHARE = Fraction(5, 100)
"""A part of less of its whole is told with others, or not at all."""

_HELD = "; it hid communication"
_INSTEAD = {What.COVER: _HELD, What.COLLECTIVE: _HELD} | dict.fromkeys(
    (What.HOST, What.IDLE), "; the GPU is idle instead"
)
"""What came of it that something got less, by what the leading cause is of."""


def cause_lines(rows: Sequence[Explained], *, verbose: bool = False) -> list[str]:
    """What is behind the first row, which is the worst, largest first; then the rows of which that is so, too, and
    those with other causes, a line for each. With ``verbose`` also all parts of the first one's change.
    """
    groups = by_cause([row for row in rows if row.explanation.change_ns or row.explanation.causes])
    if not groups:
        return []
    (first, *same), *others = groups
    lines = _lines(first, why_cells(first, None if verbose else MOST_PARTS))
    if verbose and first.roots:
        lines += ["in parts:", *_cell_lines(part_cells(first.explanation))]
    if verbose and first.explanation.budget is not None:
        lines.append(budget_words(first.explanation.budget))
    if same:
        lines.append(f"the same: {shared_words(same)}")
    for group in others[: MOST_CAUSES - 1]:
        lines.append(f"{shared_words(group)}: {leading_words(group[0])}")
    rest = sum(map(len, others[MOST_CAUSES - 1 :]))
    return [*lines, *([f"… {counted(rest, 'row')} with other causes"] if rest else [])]


def by_cause(rows: Iterable[Explained]) -> list[list[Explained]]:
    return [*grouped((cause_of(row), row) for row in rows).values()]


def cause_of(row: Explained) -> object:
    """What is behind a row, by which rows of one cause are known: its roots, on whichever rank; else what its leading
    cause is about, a kernel, the rank that it waits for. Empty where no cause leads.
    """
    if row.roots:
        return tuple(dict.fromkeys(change.root for change in row.roots))
    cause = row.explanation.leading
    if cause is None:
        return ""
    if cause.root.name and cause.straggler is not None:
        return f"{printable(cause.root.name, 60)} waits for rank {cause.straggler}"
    return printable(cause.root.name, 60) or str(cause.root.of)


def shared_words(rows: Sequence[Explained]) -> str:
    """Rows by labels with their changes: those that differ by rank alone as ``ranks 0–2 (+2.51 to +2.53 ms)``, of
    others the first, and how many more.
    """
    first, moved = rows[0], [row.explanation.change_ns for row in rows]
    one = {str({**row.labels, "rank": ""}) for row in rows}
    ranks = sorted(rank for row in rows if isinstance(rank := row.labels.get("rank"), int))
    if len(rows) > 1 and len(one) == 1 and len(ranks) == len(rows):
        ends = dict.fromkeys(format_signed(ns) for ns in (min(moved), max(moved)))
        where = place_words({**first.labels, "rank": rank_ranges(ranks)}).replace("rank", "ranks", 1)
        return f"{printable(where, 100)} ({' to '.join(ends)})" if any(moved) else printable(where, 100)
    more = f" and {counted(len(rows) - 1, 'more row')}" if len(rows) > 1 else ""
    moved_by = f" ({change})" if (change := change_of(first)) else ""
    return f"{labels_words(first.labels)}{moved_by}{more}"


def change_of(row: Explained) -> str:
    """By how much time a row changed; empty of one that is no time, as a count or a share of kernels."""
    return format_signed(row.explanation.change_ns) if row.explanation.change_ns else ""


def labels_words(labels: Mapping[str, Label]) -> str:
    return printable(place_words(labels), 100)


def leading_words(row: Explained) -> str:
    """The first of what is behind a row."""
    cells = why_cells(row, MOST_PARTS)
    return cells[0][1] if cells else "not explained"


def _lines(row: Explained, cells: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{', '.join(filter(None, (labels_words(row.labels), change_of(row))))}:", *_cell_lines(cells)]


def _cell_lines(cells: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{amount:>10}  {words}" for amount, words in cells]


def why_cells(row: Explained, most: int | None = None) -> list[tuple[str, str]]:
    """What is behind a row: its roots, each with by how much it changed, and what they leave; without roots its
    parts.
    """
    if not row.roots:
        return part_cells(row.explanation, most)
    change_ns, roots = row.explanation.change_ns, _roots(row)
    sign = -1 if change_ns < 0 else 1
    amounts = [sign * abs(change.change_ns) for change in roots]
    called = called_beside((change.root for change in roots), _waits_in(row), row.beside)
    cells = [
        ("" if change.root.kind is ChangeKind.ELSEWHERE else format_signed(ns), _root_words(row, change, called))
        for change, ns in zip(roots[:most], amounts, strict=False)
    ]
    if len(cells) < len(amounts):
        cells.append((format_signed(sum(amounts[most:])), counted(len(amounts) - len(cells), "smaller cause")))
    others = [cause for cause in row.explanation.causes if cause.root.of is What.RANK and cause.change_ns]
    cells += [(format_signed(cause.change_ns), cause_words(cause)) for cause in others]
    left_ns = change_ns - sum(amounts) - sum(cause.change_ns for cause in others)
    if change_ns and all(amount for amount, _ in cells) and abs(left_ns) >= abs(change_ns) * FOLDED_SHARE:
        short = left_ns * sign > 0
        what = (
            "not explained by " + ("this" if len(amounts) == 1 else "these")
            if short
            else "hidden or made up for elsewhere"
        )
        cells.append((format_signed(left_ns), what))
    return cells


def _roots(row: Explained) -> list[Change]:
    """Those behind a row; of one that happened on several ranks that of its own."""
    own = {change.root for change in row.roots if change.rank == row.labels.get("rank")}
    return [change for change in row.roots if change.rank == row.labels.get("rank") or change.root not in own]


def _root_words(row: Explained, change: Change, called: Mapping[str, str]) -> str:
    """A root on one rank; of a row of another one that it waits, of what got less what came of that."""
    root, leading = change.root, row.explanation.leading
    words = moved_words(
        Moved(root, (root.stage,) if root.stage not in ("", NO_STAGE) else (), (change,)), called, amount=False
    )
    if root.kind in (ChangeKind.LONGER, ChangeKind.SHORTER) and root.of not in (What.CALL, What.HOST):
        words += f" ({both_words(*format_apart(change.before_ns, change.now_ns, TIME))})"
    if row.labels.get("rank", change.rank) != change.rank:
        kernel = next(iter(_waits_in(row)), "")
        who = labels_words({"rank": row.labels["rank"]})
        waits = f"; {who} waits{f' in {called[kernel]}' if kernel else ''} for it"
        return f"rank {change.rank}: {words}{waits}"
    less = change.change_ns < 0 < row.explanation.change_ns and root.kind is not ChangeKind.ELSEWHERE
    if leading is not None and less:
        words += _INSTEAD.get(leading.root.of, "")
    return words


def _waits_in(row: Explained) -> list[str]:
    """The kernel in which a row's rank waits for that of its root; none where it happened on its own."""
    rank, leading = row.labels.get("rank"), row.explanation.leading
    waits = leading is not None and any(rank not in (None, change.rank) for change in row.roots)
    return [leading.root.name] if waits and leading is not None and leading.root.name else []


def part_cells(explanation: Explanation, most: int | None = None) -> list[tuple[str, str]]:
    """The parts of a change: amount and words. With ``most`` so many of the largest, the others as one, and nothing
    that is small beside the change; none where they make up for one another.
    """
    causes = explanation.causes
    largest_ns = max((abs(cause.change_ns) for cause in causes), default=0)
    if most is not None and abs(explanation.change_ns) < largest_ns * FOLDED_SHARE:
        return []
    least = 0 if most is None else abs(explanation.change_ns) * FOLDED_SHARE
    told = [cause for n, cause in enumerate(causes[:most]) if not n or abs(cause.change_ns) >= least]
    rest_ns = sum(cause.change_ns for cause in causes) - sum(cause.change_ns for cause in told)
    cells = [(cause.change_ns, cause_words(cause)) for cause in told]
    if len(told) < len(causes) and abs(rest_ns) >= least:
        cells.append((rest_ns, counted(len(causes) - len(told), "smaller cause")))
    if explanation.unexplained_ns and abs(explanation.unexplained_ns) >= least:
        cells.append((explanation.unexplained_ns, "not explained"))
    return [(format_signed(ns), words) for ns, words in cells]


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


MOST_ON_PAGE = 6
"""The others, which are smaller, are one line; the JSON report has them."""

CauseTable = tuple[str, str, Table]
"""Which row, its change, and the parts of it."""


def cause_table(row: Explained) -> CauseTable:
    """Why a row changed, as a page tells it."""
    where = labels_words(row.labels)
    cells = part_cells(row.explanation, MOST_ON_PAGE)
    parts = table_of(f"Causes of {where}", (number("change"), "what"), cells, longest=WHOLE_TEXT)
    return where, change_of(row), parts
