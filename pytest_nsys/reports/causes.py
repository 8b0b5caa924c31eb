"""How causes read: in a terminal a few lines of the worst row, and as plain data all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_nsys.analysis.causes import Cause, Explained, Explanation, Kind
from pytest_nsys.gates.units import format_value
from pytest_nsys.model import counted, printable

MOST_LINES = 5

_COVER = {
    Kind.COVER_SHRANK: "it is shorter",
    Kind.COVER_VANISHED: "it vanished",
    Kind.COVER_LATE: "it was launched later (CPU-bound)",
    Kind.COVER_MOVED: "it ran at another time",
    Kind.COVER_GREW: "it hides more",
}
_SPANS = {
    Kind.COMPUTE: "compute runs",
    Kind.EXPOSED: "exposed communication runs",
    Kind.LAUNCH_BOUND: "the GPU waits for launches (CPU-bound)",
    Kind.IDLE: "the GPU is idle for another reason",
}


def cause_lines(explained: Sequence[Explained], most: int = MOST_LINES) -> list[str]:
    """The causes of the first row, which is the worst, largest first; what is left out is summed up."""
    if not explained:
        return []
    labels, (change_ns, causes, unexplained_ns) = explained[0]
    if not change_ns and not causes:
        return []
    where = " ".join(f"{name} {label}" for name, label in labels.items())
    whole = f"{printable(where, 100)}, {signed(change_ns)}:"
    shown = causes if len(causes) <= most - 2 else causes[: most - 2]
    lines = [whole, *(f"{signed(cause.change_ns):>10}  {cause_words(cause)}" for cause in shown)]
    rest = causes[len(shown) :]
    if rest:
        lines.append(f"{signed(sum(c.change_ns for c in rest)):>10}  {counted(len(rest), 'smaller cause')}")
    if unexplained_ns:
        said = f"{signed(unexplained_ns)} not explained"
        if rest:
            lines[-1] += f"; {said}"
        else:
            lines.append(f"{signed(unexplained_ns):>10}  not explained")
    return lines


def cause_words(cause: Cause) -> str:
    """One cause, without its amount."""
    before, now = format_value(cause.before_ns, "ns"), format_value(cause.now_ns, "ns")
    kernel = printable(cause.kernel, 60)
    if cause.kind in _SPANS:
        return f"{_SPANS[cause.kind]} {before} → {now}"
    if cause.kind in _COVER:
        return f"{kernel} hides {before} → {now} of it: {_COVER[cause.kind]}{_counts(cause)}"
    if cause.kind is Kind.WAITS:
        return f"{kernel} waits for rank {cause.straggler}, {before} → {now}{_ordinals(cause)}"
    if cause.kind in (Kind.APPEARED, Kind.VANISHED):
        return f"{kernel} {cause.kind}{_counts(cause)}, {before} → {now} in all"
    many = cause.kernels > 1 and cause.was == cause.kernels
    if many:
        before, now = (format_value(round(ns / cause.kernels), "ns") for ns in (cause.before_ns, cause.now_ns))
    each = f", {cause.kernels} kernels, {before} → {now} each" if many else f", {before} → {now}"
    return f"{kernel} {cause.kind}{each}{_ordinals(cause)}"


def _counts(cause: Cause) -> str:
    return f" ({cause.was} → {counted(cause.kernels, 'kernel')})" if cause.was != cause.kernels else ""


def _ordinals(cause: Cause) -> str:
    if not cause.ordinals or cause.kernels < 2:
        return ""
    return f", most: no. {', '.join(map(str, cause.ordinals))}"


def signed(ns: int) -> str:
    """``+120 us``, ``−3 ns``."""
    return f"{'−' if ns < 0 else '+'}{format_value(abs(ns), 'ns')}"


def plain_causes(explained: Sequence[Explained]) -> list[dict[str, Any]]:
    """Every explained row as text, numbers, lists and dictionaries."""
    return [
        {
            "labels": {
                name: printable(label, 2000) if isinstance(label, str) else label for name, label in row.items()
            },
            **_plain(explanation),
        }
        for row, explanation in explained
    ]


def _plain(explanation: Explanation) -> dict[str, Any]:
    return {
        "change_ns": explanation.change_ns,
        "unexplained_ns": explanation.unexplained_ns,
        "parts": [
            {
                **cause._asdict(),
                "kind": str(cause.kind),
                "kernel": printable(cause.kernel, 2000),
                "ordinals": list(cause.ordinals),
                "text": cause_words(cause),
            }
            for cause in explanation.causes
        ],
    }
