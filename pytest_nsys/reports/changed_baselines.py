"""How are baselines shown that a branch changes? The rows worst first, each with its change, and the stored reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from pytest_nsys.analysis.table import label_key
from pytest_nsys.core.exact import as_exact
from pytest_nsys.core.model import Value, counted, label_words, printable
from pytest_nsys.core.units import format_apart, format_value
from pytest_nsys.reports.causes import plain_labels
from pytest_nsys.reports.text import change_words
from pytest_nsys.stored.baselines.changes import Change, FileChange, State

SHOWN_ROWS = 10


def plain_changes(changes: Sequence[FileChange], told: Callable[[str], str], since: str) -> list[dict[str, Any]]:
    """Each file as text, numbers, lists and dictionaries: all of its rows, worst first."""
    return [
        {
            "file": printable(told(str(change.path)), 2000),
            "state": str(change.state),
            "since": since,
            "about": printable(told(change.words), 2000),
            "reason": _reason(change),
            "rows": [_plain(row) for row in worst_first(change)],
        }
        for change in changes
    ]


def _reason(change: FileChange) -> str:
    """Why the new file is as it is, as whoever refreshed it said; empty where nobody did, or no file is left."""
    origin = change.new.provenance if change.new is not None else {}
    return printable(str(origin.get("reason") or ""), 400)


def worst_first(change: FileChange) -> list[Change]:
    """The rows that are gone, then by how much worse they may be now in parts of what was, then those that are new."""

    def order(row: Change) -> tuple[object, ...]:
        labels = [(d, *label_key(label)) for d, label in row.labels.items()]
        if row.old is None or row.new is None:
            return (2 if row.old is None else 0, Fraction(0), row.series, labels)
        return (1, *_looser(change, row, row.old, row.new), row.series, labels)

    return sorted(change.rows, key=order)


def _looser(change: FileChange, row: Change, old: Value, new: Value) -> tuple[object, ...]:
    """Sorts first what lets a gate pass that did not before; a change from 0 is beyond any share."""
    series = change.new.series.get(row.series) if change.new is not None else None
    better = None if series is None else series.better
    moved = Fraction(new) - old
    worse = abs(moved) if better is None else moved if str(better) == "lower" else -moved
    shares = worse / abs(Fraction(old)) if old else worse
    return (-(worse > 0), -(not old) if worse > 0 else 0, -shares)


def _plain(row: Change) -> dict[str, Any]:
    unit, old, new = row.unit, row.old, row.new
    texts = ("" if v is None else format_value(v, unit) for v in (old, new))
    was, now = format_apart(old, new, unit) if old is not None and new is not None else texts
    return {
        "metric": row.series.metric,
        "unit": unit,
        "labels": plain_labels(row.labels),
        "old": None if old is None else {"exact": as_exact(old), "text": was},
        "new": None if new is None else {"exact": as_exact(new), "text": now},
        "change": change_words(new, old, unit),
    }


def _row_words(row: Mapping[str, Any]) -> str:
    """``exposed_ns rank 1 stage stage4_f: 200 us → 350 us (+75 %)``."""
    where = f"{row['metric']} {label_words(row['labels'])}".rstrip()
    if row["old"] is None or row["new"] is None:
        old, new = ("new" if row["old"] is None else row["old"]["text"]), (row["new"] or {"text": "gone"})["text"]
        return printable(f"{where}: {old} → {new}")
    return printable(f"{where}: {row['old']['text']} → {row['new']['text']} ({row['change']})")


def _about(file: Mapping[str, Any]) -> str:
    return f"{file['about']}; reason: {file['reason']}" if file["reason"] else str(file["about"])


def change_lines(files: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each file in a line, with its rows below it: ten rows in all, the rest counted."""
    lines, room = [], SHOWN_ROWS
    for file in files:
        lines.append(f"{file['file']}: {_about(file)}")
        if file["state"] != State.CHANGED:
            continue
        rows = file["rows"]
        lines += [f"  {_row_words(row)}" for row in rows[:room]]
        if left := len(rows[room:]):
            lines.append(f"  … {counted(left, 'more row')}")
        room -= len(rows[:room])
    return lines


def change_sentences(files: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same with a file in each line, rows included: what stands alone, as an annotation does."""
    sentences = []
    for file in files:
        rows = [_row_words(row) for row in file["rows"]] if file["state"] == State.CHANGED else []
        more = [f"{counted(len(rows) - SHOWN_ROWS, 'more row')}"] if len(rows) > SHOWN_ROWS else []
        told = ": " + "; ".join([*rows[:SHOWN_ROWS], *more]) if rows else ""
        why = f" (reason: {file['reason']})" if file["reason"] else ""
        sentences.append(printable(f"{file['file']}: {file['about']} since {file['since']}{why}{told}", 2000))
    return sentences
