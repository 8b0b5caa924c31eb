"""How do causes read: a few lines for the worst row in a terminal, one cause, the time budget of a window?"""

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
"""A part that is less than this share of its whole is folded with others, or left out."""

_HELD = "; it hid communication"
_INSTEAD = {What.COVER: _HELD, What.COLLECTIVE: _HELD} | dict.fromkeys(
    (What.HOST, What.IDLE), "; the GPU is idle instead"
)
"""What follows when something takes less time and the row still got worse, by what the leading cause is of."""


def cause_lines(rows: Sequence[Explained], *, verbose: bool = False) -> list[str]:
    """Return what is behind the first row, which is the worst, the largest first; then a line for each other cause.

    Rows with the same cause are named in one line. With ``verbose`` all parts of the first row's change follow.
    """
    groups = by_cause([row for row in rows if row.explanation.change_ns or row.explanation.causes])
    if not groups:
        return []
    (worst_row, *same_rows), *other_groups = groups
    lines = _lines(worst_row, why_cells(worst_row, None if verbose else MOST_PARTS))
    if verbose and worst_row.roots:
        lines += ["in parts:", *_cell_lines(part_cells(worst_row.explanation))]
    if verbose and worst_row.explanation.budget is not None:
        lines.append(budget_words(worst_row.explanation.budget))
    if same_rows:
        lines.append(f"the same: {shared_words(same_rows)}")
    for group in other_groups[: MOST_CAUSES - 1]:
        lines.append(f"{shared_words(group)}: {leading_words(group[0])}")
    rest_count = sum(map(len, other_groups[MOST_CAUSES - 1 :]))
    return [*lines, *([f"… {counted(rest_count, 'row')} with other causes"] if rest_count else [])]


def by_cause(rows: Iterable[Explained]) -> list[list[Explained]]:
    """Return the rows in groups of one cause, in the order in which they come."""
    return [*grouped((cause_of(row), row) for row in rows).values()]


def cause_of(row: Explained) -> object:
    """Return what is behind a row, equal for rows of one cause; empty where no cause leads.

    It is the roots, on whichever rank they are; without roots what the leading cause is about: a kernel, or the rank
    that it waits for.
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
    """Return rows of one cause by their labels with their changes.

    Rows that differ by rank alone read ``ranks 0–2 (+2.51 to +2.53 ms)``; of others the first is named, and how many
    more.
    """
    first_row, changes_ns = rows[0], [row.explanation.change_ns for row in rows]
    places_without_rank = {str({**row.labels, "rank": ""}) for row in rows}
    ranks = sorted(rank for row in rows if isinstance(rank := row.labels.get("rank"), int))
    if len(rows) > 1 and len(places_without_rank) == 1 and len(ranks) == len(rows):
        end_texts = dict.fromkeys(format_signed(ns) for ns in (min(changes_ns), max(changes_ns)))
        place = place_words({**first_row.labels, "rank": rank_ranges(ranks)}).replace("rank", "ranks", 1)
        return f"{printable(place, 100)} ({' to '.join(end_texts)})" if any(changes_ns) else printable(place, 100)
    rest_text = f" and {counted(len(rows) - 1, 'more row')}" if len(rows) > 1 else ""
    change_text = f" ({change})" if (change := change_of(first_row)) else ""
    return f"{labels_words(first_row.labels)}{change_text}{rest_text}"


def change_of(row: Explained) -> str:
    """Return by how much time a row changed; empty where its change is no time, as of a count or a share of kernels."""
    return format_signed(row.explanation.change_ns) if row.explanation.change_ns else ""


def labels_words(labels: Mapping[str, Label]) -> str:
    return printable(place_words(labels), 100)


def leading_words(row: Explained) -> str:
    """Return the first of what is behind a row in words."""
    cells = why_cells(row, MOST_PARTS)
    return cells[0][1] if cells else "not explained"


def _lines(row: Explained, cells: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{', '.join(filter(None, (labels_words(row.labels), change_of(row))))}:", *_cell_lines(cells)]


def _cell_lines(cells: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{amount:>10}  {text}" for amount, text in cells]


def why_cells(row: Explained, most: int | None = None) -> list[tuple[str, str]]:
    """Return what is behind a row as pairs of amount and text: each root, and what the roots leave unexplained.

    A row without roots has the parts of its change instead.
    """
    if not row.roots:
        return part_cells(row.explanation, most)
    change_ns, roots = row.explanation.change_ns, _roots(row)
    sign = -1 if change_ns < 0 else 1
    amounts = [sign * abs(change.change_ns) for change in roots]
    display_names = called_beside((change.root for change in roots), _waits_in(row), row.beside)
    cells = [
        ("" if change.root.kind is ChangeKind.ELSEWHERE else format_signed(ns), _root_words(row, change, display_names))
        for change, ns in zip(roots[:most], amounts, strict=False)
    ]
    if len(cells) < len(amounts):
        cells.append((format_signed(sum(amounts[most:])), counted(len(amounts) - len(cells), "smaller cause")))
    straggler_causes = [cause for cause in row.explanation.causes if cause.root.of is What.RANK and cause.change_ns]
    cells += [(format_signed(cause.change_ns), cause_words(cause)) for cause in straggler_causes]
    left_ns = change_ns - sum(amounts) - sum(cause.change_ns for cause in straggler_causes)
    if change_ns and all(amount for amount, _ in cells) and abs(left_ns) >= abs(change_ns) * FOLDED_SHARE:
        falls_short = left_ns * sign > 0
        rest_text = (
            "not explained by " + ("this" if len(amounts) == 1 else "these")
            if falls_short
            else "hidden or made up for elsewhere"
        )
        cells.append((format_signed(left_ns), rest_text))
    return cells


def _roots(row: Explained) -> list[Change]:
    """Return the roots behind a row; of a root that several ranks have the one of the row's own rank."""
    roots_of_rank = {change.root for change in row.roots if change.rank == row.labels.get("rank")}
    return [change for change in row.roots if change.rank == row.labels.get("rank") or change.root not in roots_of_rank]


def _root_words(row: Explained, change: Change, called: Mapping[str, str]) -> str:
    """Return a root on one rank in words.

    Where the row is of another rank, it says that that rank waits; where something takes less time, what follows from
    it.
    """
    root, leading_cause = change.root, row.explanation.leading
    text = moved_words(
        Moved(root, (root.stage,) if root.stage not in ("", NO_STAGE) else (), (change,)), called, amount=False
    )
    if root.kind in (ChangeKind.LONGER, ChangeKind.SHORTER) and root.of not in (What.CALL, What.HOST):
        text += f" ({both_words(*format_apart(change.before_ns, change.now_ns, TIME))})"
    if row.labels.get("rank", change.rank) != change.rank:
        kernel = next(iter(_waits_in(row)), "")
        waiting_rank = labels_words({"rank": row.labels["rank"]})
        waits_text = f"; {waiting_rank} waits{f' in {called[kernel]}' if kernel else ''} for it"
        return f"rank {change.rank}: {text}{waits_text}"
    took_less = change.change_ns < 0 < row.explanation.change_ns and root.kind is not ChangeKind.ELSEWHERE
    if leading_cause is not None and took_less:
        text += _INSTEAD.get(leading_cause.root.of, "")
    return text


def _waits_in(row: Explained) -> list[str]:
    """Return the kernel in which the row's rank waits for another; empty where the row's own rank has the root."""
    rank, leading_cause = row.labels.get("rank"), row.explanation.leading
    is_waiting = leading_cause is not None and any(rank not in (None, change.rank) for change in row.roots)
    return [leading_cause.root.name] if is_waiting and leading_cause is not None and leading_cause.root.name else []


def part_cells(explanation: Explanation, most: int | None = None) -> list[tuple[str, str]]:
    """Return the parts of a change as pairs of amount and text; none where they make up for one another.

    With ``max_parts`` so many of the largest, the others as one, and none that is small beside the change.
    """
    causes = explanation.causes
    largest_ns = max((abs(cause.change_ns) for cause in causes), default=0)
    # The parts make up for one another: a sum near 0 of large parts explains nothing.
    if most is not None and abs(explanation.change_ns) < largest_ns * FOLDED_SHARE:
        return []
    min_ns = 0 if most is None else abs(explanation.change_ns) * FOLDED_SHARE
    shown_causes = [cause for n, cause in enumerate(causes[:most]) if not n or abs(cause.change_ns) >= min_ns]
    rest_ns = sum(cause.change_ns for cause in causes) - sum(cause.change_ns for cause in shown_causes)
    cells = [(cause.change_ns, cause_words(cause)) for cause in shown_causes]
    if len(shown_causes) < len(causes) and abs(rest_ns) >= min_ns:
        cells.append((rest_ns, counted(len(causes) - len(shown_causes), "smaller cause")))
    if explanation.unexplained_ns and abs(explanation.unexplained_ns) >= min_ns:
        cells.append((explanation.unexplained_ns, "not explained"))
    return [(format_signed(ns), text) for ns, text in cells]


def budget_words(budget: BudgetChange) -> str:
    """Return how the parts of a window's budget changed: ``the window: compute +2 ms (of which flash_fwd_kernel +2
    ms)``.

    Parts of less than a twentieth of the largest are told as one.
    """
    scale = scale_of([ns for _, ns in budget.parts], TIME)
    min_ns = max(abs(ns) for _, ns in budget.parts) * FOLDED_SHARE
    shown_parts = [(part, ns) for part, ns in budget.parts if abs(ns) >= min_ns]
    part_texts = [f"{part} {format_signed(ns, scale=scale)}" for part, ns in shown_parts]
    if budget.kernel is not None and shown_parts[0] == budget.parts[0]:  # then compute moved, and is the first part
        name, ns = budget.kernel
        part_texts[0] += f" (of which {printable(name, 60)} {format_signed(ns, scale=scale)})"
    if len(shown_parts) < len(budget.parts):
        rest_ns = sum(ns for _, ns in budget.parts) - sum(ns for _, ns in shown_parts)
        part_texts.append(f"the rest {format_signed(rest_ns, scale=scale)}")
    return f"the window: {', '.join(part_texts)}"


MOST_ON_PAGE = 6
"""So many parts a page shows; smaller ones are one line, and the JSON report has them all."""

CauseTable = tuple[str, str, Table]
"""A row's labels, its change, and the table of its parts."""


def cause_table(row: Explained) -> CauseTable:
    """Return why a row changed as a page tells it: its labels, its change, and the table of its parts."""
    place = labels_words(row.labels)
    cells = part_cells(row.explanation, MOST_ON_PAGE)
    parts = table_of(f"Causes of {place}", (number("change"), "what"), cells, longest=WHOLE_TEXT)
    return place, change_of(row), parts
