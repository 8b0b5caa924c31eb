"""How are causes put into words: some lines for the worst row in a terminal, one cause, the change of a window's time
budget?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.explain.breakdown_model import (
    BudgetChange,
    Change,
    ChangeKind,
    RowActivity,
    RowExplanation,
)
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Label
from pytest_nsys.core.numbers import choose_scale, format_distinctly, format_signed
from pytest_nsys.core.text_format import format_count, format_labels, format_rank_ranges, sanitize_line
from pytest_nsys.core.units import TIME
from pytest_nsys.reports.tables.formats import UNLIMITED_LENGTH, Table, build_text_table, make_number_column
from pytest_nsys.reports.words.change_text import (
    RootChange,
    choose_display_names,
    describe_cause,
    describe_lost_gain,
    describe_root_change,
    format_before_after,
    format_place,
)

MAX_PARTS = 3
MAX_CAUSES = 3
MOST_MADE_UP = 10
"""Root causes that changed so many times more than a row are not told as its causes."""

MIN_PART_SHARE = Fraction(5, 100)
"""A part that is less than this share of the whole is merged with others, or left out."""

_NO_LONGER_HIDES = "; it hid communication"
_CONSEQUENCES = {RowActivity.COVER: _NO_LONGER_HIDES, RowActivity.COLLECTIVE: _NO_LONGER_HIDES} | dict.fromkeys(
    (RowActivity.HOST, RowActivity.IDLE), "; the GPU is idle instead"
)
"""The consequence to add if the leading cause takes less time and the row still got worse, by the cause's activity."""


def render_cause_lines(rows: Sequence[RowExplanation], *, verbose: bool = False) -> list[str]:
    """Return the causes of the first row (the worst), largest first; then a line for each other cause.

    Rows with the same cause share a line. With ``verbose`` all parts of the first row's change follow.
    """
    groups = group_by_cause(
        [row for row in rows if row.explanation.change_ns or row.explanation.causes or row.is_claimed]
    )
    if not groups:
        return []
    (worst_row, *same_rows), *other_groups = groups
    lines = _render_explained_row(worst_row, list_cause_cells(worst_row, None if verbose else MAX_PARTS))
    if verbose and worst_row.root_causes:
        lines += ["in parts:", *_render_cause_cells(list_part_cells(worst_row))]
    if verbose and worst_row.explanation.budget_change is not None and not worst_row.is_claimed:
        lines.append(describe_budget_change(worst_row.explanation.budget_change))
    if same_rows:
        lines.append(f"the same: {describe_rows_of_one_cause(same_rows)}")
    for group in other_groups[: MAX_CAUSES - 1]:
        lines.append(f"{describe_rows_of_one_cause(group)}: {describe_leading_cause(group[0])}")
    rest_count = sum(map(len, other_groups[MAX_CAUSES - 1 :]))
    return [*lines, *([f"… {format_count(rest_count, 'row')} with other causes"] if rest_count else [])]


def group_by_cause(rows: Iterable[RowExplanation]) -> list[list[RowExplanation]]:
    """Return the rows grouped by cause, in their order."""
    return [*group_by_key((find_cause_key(row), row) for row in rows).values()]


def find_cause_key(row: RowExplanation) -> object:
    """Return a key that is equal for rows with the same cause; empty if the row has no leading cause.

    It consists of the roots, without their ranks. Without roots it is the subject of the leading cause: a kernel, or
    the rank that the row waits for.
    """
    if row.root_causes:
        return tuple(dict.fromkeys(change.root for change in row.root_causes))
    cause = row.explanation.leading_cause
    if cause is None:
        return "" if row.lost_gain is None else (row.lost_gain.gain.root, row.lost_gain.instead)
    if cause.root.name and cause.straggler is not None:
        return f"{sanitize_line(cause.root.name, 60)} waits for rank {cause.straggler}"
    return sanitize_line(cause.root.name, 60) or str(cause.root.activity)


def describe_rows_of_one_cause(rows: Sequence[RowExplanation]) -> str:
    """Return rows of one cause by their labels with their changes.

    Rows that differ only by rank read ``ranks 0–2 (+2.51 to +2.53 ms)``; else the first is named, with the number of
    the others.
    """
    first_row, changes_ns = rows[0], [row.explanation.change_ns for row in rows]
    places_without_rank = {str({**row.labels, "rank": ""}) for row in rows}
    ranks = sorted(rank for row in rows if isinstance(rank := row.labels.get("rank"), int))
    if len(rows) > 1 and len(places_without_rank) == 1 and len(ranks) == len(rows):
        end_texts = dict.fromkeys(format_signed(ns) for ns in (min(changes_ns), max(changes_ns)))
        place = format_labels({**first_row.labels, "rank": format_rank_ranges(ranks)}).replace("rank", "ranks", 1)
        return (
            f"{sanitize_line(place, 100)} ({' to '.join(end_texts)})" if any(changes_ns) else sanitize_line(place, 100)
        )
    rest_text = f" and {format_count(len(rows) - 1, 'more row')}" if len(rows) > 1 else ""
    change_text = f" ({change})" if (change := format_explained_change(first_row)) else ""
    return f"{format_row_labels(first_row.labels)}{change_text}{rest_text}"


def format_explained_change(row: RowExplanation) -> str:
    """Return by how much time a row changed; empty if its change is not a time, such as a count or a share of
    kernels.
    """
    return format_signed(row.explanation.change_ns) if row.explanation.change_ns else ""


def format_row_labels(labels: Mapping[str, Label]) -> str:
    return sanitize_line(format_labels(labels), 100)


def describe_leading_cause(row: RowExplanation) -> str:
    """Return the first cause of a row in words."""
    cells = list_cause_cells(row, MAX_PARTS)
    return cells[0][1] if cells else "not explained"


def _render_explained_row(row: RowExplanation, cells: Sequence[tuple[str, str]]) -> list[str]:
    return [
        f"{', '.join(filter(None, (format_row_labels(row.labels), format_explained_change(row)))) or 'all ranks'}:",
        *_render_cause_cells(cells),
    ]


def _render_cause_cells(cells: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{amount:>10}  {text}" for amount, text in cells]


Cause = tuple[int | None, str]
"""How many ns one cause added to a row's value, and what it is; None where it took no time by itself."""


def list_cause_cells(row: RowExplanation, max_causes: int | None = None) -> list[tuple[str, str]]:
    """Return what is behind a row as pairs of amount and text, as :func:`list_causes` has them."""
    return [("" if ns is None else format_signed(ns), text) for ns, text in list_causes(row, max_causes)]


def list_causes(row: RowExplanation, max_causes: int | None = None) -> list[Cause]:
    """Return what is behind a row: each root cause, and what the root causes leave unexplained.

    A row without root causes has the parts of its change instead. Of a claimed row the parts of the window follow, and
    the kernel whose gain it lacks.
    """
    return [*_list_change_causes(row, max_causes), *((None, text) for text in _list_claim_texts(row))]


def _list_claim_texts(row: RowExplanation) -> list[str]:
    """Return what a claimed row says beside its causes: the parts of its window, and the kernel whose gain it lacks."""
    budget = row.explanation.budget_change if row.is_claimed else None
    texts = [] if budget is None else [describe_budget_change(budget)]
    return texts if row.lost_gain is None else [*texts, describe_lost_gain(row.lost_gain)]


def _list_change_causes(row: RowExplanation, max_causes: int | None) -> list[Cause]:
    change_ns, roots = row.explanation.change_ns, _select_own_roots(row)
    root_ns = sum(abs(root.change_ns) for root in roots)
    # What nearly all was made up for explains nothing of what is left: the parts do.
    if not roots or (change_ns and root_ns > MOST_MADE_UP * abs(change_ns) and row.explanation.causes):
        return [*list_parts(row, max_causes)]
    # Of several ranks only the roots are known: those of a gain took less time.
    is_gain = change_ns < 0 or (not change_ns and row.is_claimed and sum(root.change_ns for root in roots) < 0)
    sign = -1 if is_gain else 1
    amounts = [sign * abs(change.change_ns) for change in roots]
    display_names = choose_row_names(row)
    causes: list[Cause] = [
        (None if change.root.kind is ChangeKind.ELSEWHERE else ns, _describe_root(row, change, display_names))
        for change, ns in zip(roots[:max_causes], amounts, strict=False)
    ]
    if len(causes) < len(amounts):
        causes.append((sum(amounts[max_causes:]), format_count(len(amounts) - len(causes), "smaller cause")))
    straggler_causes = [
        cause
        for cause in row.explanation.causes
        if cause.root.activity is RowActivity.RANK and abs(cause.change_ns) >= abs(change_ns) * MIN_PART_SHARE > 0
    ]
    causes += [(cause.change_ns, describe_cause(cause, display_names)) for cause in straggler_causes]
    left_ns = change_ns - sum(amounts) - sum(cause.change_ns for cause in straggler_causes)
    has_amounts = all(ns is not None for ns, _ in causes)
    if change_ns and has_amounts and abs(left_ns) >= abs(change_ns) * MIN_PART_SHARE:
        falls_short = left_ns * sign > 0
        rest_text = (
            "not explained by " + ("this" if len(amounts) == 1 else "these")
            if falls_short
            else "hidden or made up for elsewhere"
        )
        causes.append((left_ns, rest_text))
    return causes


def _select_own_roots(row: RowExplanation) -> list[Change]:
    """Return the roots of a row; if a root occurs on several ranks, the one on the row's own rank."""
    roots_of_rank = {change.root for change in row.root_causes if change.rank == row.labels.get("rank")}
    return [
        change
        for change in row.root_causes
        if change.rank == row.labels.get("rank") or change.root not in roots_of_rank
    ]


def _describe_root(row: RowExplanation, change: Change, display_names: Mapping[str, str]) -> str:
    """Return a root on one rank in words.

    If the row belongs to another rank, the text says that this rank waits; if something takes less time, it adds the
    consequence.
    """
    root, leading_cause = change.root, row.explanation.leading_cause
    text = describe_root_change(
        RootChange(root, (root.stage,) if root.stage not in ("", NO_STAGE) else (), (change,)),
        display_names,
        with_amount=False,
    )
    if root.kind in (ChangeKind.LONGER, ChangeKind.SHORTER) and root.activity not in (
        RowActivity.CALL,
        RowActivity.HOST,
        RowActivity.IDLE,
    ):
        text += f" ({format_before_after(*format_distinctly(change.baseline_ns, change.current_ns, TIME))})"
    text += format_place(row.places.get(root))
    if row.labels.get("rank", change.rank) != change.rank:
        kernel = next(iter(_list_waiting_kernels(row)), "")
        waiting_rank = format_row_labels({"rank": row.labels["rank"]})
        waits_text = f"; {waiting_rank} waits{f' in {display_names[kernel]}' if kernel else ''} for it"
        return f"rank {change.rank}: {text}{waits_text}"
    took_less = change.change_ns < 0 < row.explanation.change_ns and root.kind is not ChangeKind.ELSEWHERE
    if leading_cause is not None and took_less:
        text += _CONSEQUENCES.get(leading_cause.root.activity, "")
    return text


def _list_waiting_kernels(row: RowExplanation) -> list[str]:
    """Return the kernel in which the row's rank waits for another rank, as a list; empty if the row's own rank has the
    root.
    """
    rank, leading_cause = row.labels.get("rank"), row.explanation.leading_cause
    is_waiting = leading_cause is not None and any(rank not in (None, change.rank) for change in row.root_causes)
    return [leading_cause.root.name] if is_waiting and leading_cause is not None and leading_cause.root.name else []


def choose_row_names(row: RowExplanation) -> dict[str, str]:
    """Return the display names of what is behind a row, by full name."""
    causes = row.explanation.causes
    roots = (change.root for change in (*row.root_causes, *causes))
    communication = {*_list_waiting_kernels(row), *(cause.exposed_kernel for cause in causes)}
    return choose_display_names(roots, communication, row.window_kernels)


def list_part_cells(row: RowExplanation, max_parts: int | None = None) -> list[tuple[str, str]]:
    """Return the parts of a row's change as pairs of amount and text, as :func:`list_parts` has them."""
    return [(format_signed(ns), text) for ns, text in list_parts(row, max_parts)]


def list_parts(row: RowExplanation, max_parts: int | None = None) -> list[tuple[int, str]]:
    """Return the parts of a row's change in ns, each with its text; none where they make up for one another.

    With ``max_parts``, return only that many of the largest, without those that are small compared to the change, and
    merge the others into one.
    """
    explanation, display_names = row.explanation, choose_row_names(row)
    causes = explanation.causes
    largest_ns = max((abs(cause.change_ns) for cause in causes), default=0)
    # The parts cancel out: large parts with a sum near 0 explain nothing.
    if max_parts is not None and abs(explanation.change_ns) < largest_ns * MIN_PART_SHARE:
        return []
    min_ns = 0 if max_parts is None else abs(explanation.change_ns) * MIN_PART_SHARE
    # The largest part is always shown, however small compared to the change.
    shown_causes = [cause for n, cause in enumerate(causes[:max_parts]) if not n or abs(cause.change_ns) >= min_ns]
    rest_ns = sum(cause.change_ns for cause in causes) - sum(cause.change_ns for cause in shown_causes)
    cells = [(cause.change_ns, describe_cause(cause, display_names)) for cause in shown_causes]
    if len(shown_causes) < len(causes) and abs(rest_ns) >= min_ns:
        cells.append((rest_ns, format_count(len(causes) - len(shown_causes), "smaller cause")))
    if explanation.unexplained_ns and abs(explanation.unexplained_ns) >= min_ns:
        cells.append((explanation.unexplained_ns, "not explained"))
    return cells


def describe_budget_change(budget: BudgetChange) -> str:
    """Return how the parts of a window's budget changed: ``the window: compute +2 ms (of which flash_fwd_kernel +2
    ms)``.

    Parts of less than a twentieth of the largest are merged.
    """
    scale = choose_scale([ns for _, ns in budget.parts], TIME)
    min_ns = max(abs(ns) for _, ns in budget.parts) * MIN_PART_SHARE
    shown_parts = [(part, ns) for part, ns in budget.parts if abs(ns) >= min_ns]
    part_texts = [f"{part} {format_signed(ns, scale=scale)}" for part, ns in shown_parts]
    if (
        budget.largest_kernel is not None and shown_parts[0] == budget.parts[0]
    ):  # then compute moved, and is the first part
        name, ns = budget.largest_kernel
        part_texts[0] += f" (of which {sanitize_line(name, 60)} {format_signed(ns, scale=scale)})"
    if len(shown_parts) < len(budget.parts):
        rest_ns = sum(ns for _, ns in budget.parts) - sum(ns for _, ns in shown_parts)
        part_texts.append(f"the rest {format_signed(rest_ns, scale=scale)}")
    return f"the window: {', '.join(part_texts)}"


MAX_PAGE_PARTS = 6
"""A page shows at most this many parts and merges the smaller ones; the JSON report has all."""

CauseTable = tuple[str, str, Table]
"""A row's labels, its change, and the table of what is behind it."""


def build_cause_table(row: RowExplanation) -> CauseTable:
    """Return why a row changed, for a page: its labels, its change, and the table of what is behind it."""
    place = format_row_labels(row.labels)
    cells = list_cause_cells(row, MAX_PAGE_PARTS)
    parts = build_text_table(
        f"Causes of {place}", (make_number_column("change"), "what"), cells, max_length=UNLIMITED_LENGTH
    )
    return place, format_explained_change(row), parts
