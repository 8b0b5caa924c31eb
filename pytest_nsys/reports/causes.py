"""How causes read: in a terminal a few lines of the worst row, and as plain data all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from pytest_nsys.analysis.explained import BudgetChange, Cause, CauseKind, Explained, Explanation
from pytest_nsys.core.model import Label
from pytest_nsys.core.numbers import format_signed, format_together, scale_of
from pytest_nsys.core.units import TIME
from pytest_nsys.core.words import counted, place_words, printable

MOST_PARTS = 3
MOST_CAUSES = 3
MOST_ROWS = 4

Plain = Mapping[str, Any]
"""An explained row as :func:`plain_causes` has it."""

_COVER = {
    CauseKind.COVER_SHRANK: ": it got shorter",
    CauseKind.COVER_VANISHED: ": it is gone",
    CauseKind.COVER_LATE: ": launched later (CPU-bound)",
    CauseKind.COVER_MOVED: ": it runs at another time",
    CauseKind.COVER_GREW: "",
}
_WALLS = {
    CauseKind.COMPUTE: ("compute runs", "{} runs"),
    CauseKind.EXPOSED: ("exposed communication runs", "{} runs exposed"),
    CauseKind.LAUNCH_BOUND: (
        "the GPU waits for launches (CPU-bound)",
        "the GPU waits for the launch of {} (CPU-bound)",
    ),
    CauseKind.IDLE: ("the GPU is idle for another reason", "the GPU is idle before {}, already launched,"),
    CauseKind.STARVED: ("the host launches late:", "the host launches {} late:"),
    CauseKind.BLOCKS: ("compute is blocked:", "{} blocks compute:"),
    CauseKind.BESIDE: ("compute stalls while communication runs:", "{} stalls while communication runs:"),
    CauseKind.STALLED: ("compute stalls for another reason:", "{} stalls for another reason:"),
}
"""What a part of a window went to: as a sum, and by kernel."""


def cause_lines(rows: Sequence[Plain]) -> list[str]:
    """The causes of the first row, which is the worst, largest first; what is left out is summed up.

    Then the rows that have the same leading cause, and those that have another, a line for each cause.
    """
    groups = by_cause([row for row in rows if row["change_ns"] or row["parts"]])
    if not groups:
        return []
    (first, *same), *others = groups
    lines = _lines(first)
    if same:
        lines.append(f"the same in {shared_words(same)}")
    for group in others[: MOST_CAUSES - 1]:
        parts, change_ns = group[0]["parts"], group[0]["change_ns"]
        leading = next((part["text"] for part in parts if part["change_ns"] * change_ns > 0), "not explained")
        lines.append(f"{shared_words(group)}: {leading}")
    rest = sum(map(len, others[MOST_CAUSES - 1 :]))
    return [*lines, *([f"… {counted(rest, 'row')} with other causes"] if rest else [])]


def by_cause(rows: Sequence[Plain]) -> list[list[Plain]]:
    groups: dict[str, list[Plain]] = {}
    for row in rows:
        groups.setdefault(row["cause"], []).append(row)
    return list(groups.values())


def shared_words(rows: Sequence[Plain]) -> str:
    """Rows by labels, each with its change; of many the first few."""
    shown = [f"{labels_words(row['labels'])} ({format_signed(row['change_ns'])})" for row in rows[:MOST_ROWS]]
    return ", ".join(shown) + (f" and {len(rows) - MOST_ROWS} more" if len(rows) > MOST_ROWS else "")


def labels_words(labels: Mapping[str, Label]) -> str:
    return printable(place_words(labels), 100)


def _lines(row: Plain) -> list[str]:
    cells = part_cells(row, MOST_PARTS)
    lines = [f"{amount:>10}  {words}" for amount, words in cells]
    if row["unexplained_ns"] and len(row["parts"]) > MOST_PARTS:
        at = -1 if row["budget"] is None else -2
        lines[at - 1] += f"; {' '.join(cells[at])}"
        del lines[at]
    return [f"{labels_words(row['labels'])}, {format_signed(row['change_ns'])}:", *lines]


def part_cells(row: Plain, most: int | None = None) -> list[tuple[str, str]]:
    """The largest ``most`` parts of a row's change, the others as one, and what is not explained: amount and words."""
    parts = row["parts"]
    cells = [(format_signed(part["change_ns"]), str(part["text"])) for part in parts[:most]]
    if rest := [] if most is None else parts[most:]:
        cells.append((format_signed(sum(part["change_ns"] for part in rest)), counted(len(rest), "smaller cause")))
    if row["unexplained_ns"]:
        cells.append((format_signed(row["unexplained_ns"]), "not explained"))
    if row["budget"] is not None:
        cells.append((format_signed(row["budget"]["change_ns"]), str(row["budget"]["text"])))
    return cells


def cause_words(cause: Cause) -> str:
    """One cause, without its amount."""
    before, now = format_together([cause.before_ns, cause.now_ns])
    kernel = printable(cause.kernel, 60)
    if cause.kind in _WALLS:
        whole, own = _WALLS[cause.kind]
        counts = _counts(cause) if cause.kind in (CauseKind.COMPUTE, CauseKind.EXPOSED) else ""
        waits = "" if cause.straggler is None else f": it waits for rank {cause.straggler}"
        return f"{own.format(kernel) if kernel else whole} {before} → {now}{counts}{waits}"
    if cause.kind is CauseKind.MOVED:
        return f"{kernel} {cause.kind}: {now} of it overlapped (was {before})"
    if cause.kind in _COVER:
        return f"{kernel} now overlaps {now} of it (was {before}){_COVER[cause.kind]}{_counts(cause)}"
    if cause.kind is CauseKind.WAITS:
        return f"{kernel} waits for rank {cause.straggler}, {before} → {now}{_ordinals(cause)}"
    if cause.kind in (CauseKind.APPEARED, CauseKind.VANISHED, CauseKind.BARRIER):
        return f"{kernel} {cause.kind}{_counts(cause)}, {before} → {now} in all"
    many = cause.kernels > 1 and cause.was == cause.kernels
    if many:
        before, now = format_together([Fraction(ns, cause.kernels) for ns in (cause.before_ns, cause.now_ns)])
    each = f", {cause.kernels} kernels, {before} → {now} each" if many else f", {before} → {now}"
    return f"{kernel} {cause.kind}{each}{_ordinals(cause)}"


def budget_words(budget: BudgetChange) -> str:
    """How the parts of a window's budget moved: ``the window: compute +2 ms (of which flash_fwd_kernel +2 ms)``.

    Parts of under a twentieth of the largest are told as one.
    """
    scale = scale_of([ns for _, ns in budget.parts], TIME)
    least = max(abs(ns) for _, ns in budget.parts) / Fraction(20)
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


def _subject(explanation: Explanation) -> str:
    """What the leading cause is about, by which rows of one cause are known: a kernel, the rank that it waits for.

    Empty where no cause leads.
    """
    cause = explanation.leading
    if cause is None:
        return ""
    if cause.straggler is not None:
        return f"{printable(cause.kernel, 60)} waits for rank {cause.straggler}"
    return printable(cause.kernel, 60) or str(cause.kind)


def plain_labels(labels: Mapping[str, Label]) -> dict[str, Label]:
    return {d: label if isinstance(label, int) else printable(label, 2000) for d, label in labels.items()}


def _plain_budget(budget: BudgetChange | None) -> dict[str, Any] | None:
    if budget is None:
        return None
    parts = {str(part): ns for part, ns in budget.parts}
    lengths = {"change_ns": budget.change_ns, "before_ns": budget.before_ns, "now_ns": budget.now_ns}
    return {**lengths, "parts": parts, "text": budget_words(budget)}


def plain_causes(explained: Sequence[Explained]) -> list[dict[str, Any]]:
    """Every explained row as text, numbers, lists and dictionaries."""
    return [
        {
            "labels": plain_labels(row),
            "cause": _subject(explanation),
            "change_ns": explanation.change_ns,
            "unexplained_ns": explanation.unexplained_ns,
            "budget": _plain_budget(explanation.budget),
            "parts": [
                {
                    **cause._asdict(),
                    "kind": str(cause.kind),
                    "kernel": printable(cause.kernel, 2000),
                    "exposes": printable(cause.exposes, 2000),
                    "ordinals": list(cause.ordinals),
                    "text": cause_words(cause),
                }
                for cause in explanation.causes
            ],
        }
        for row, explanation in explained
    ]
