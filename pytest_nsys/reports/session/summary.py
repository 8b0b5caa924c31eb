"""What was judged, and how much room is left? A few lines for each gate file, also when everything is green.

The headroom tells a person when a green assertion is about to turn red.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap

from pytest_nsys.core.model import merged
from pytest_nsys.core.words import first_of, printable
from pytest_nsys.reports.session.record import Record
from pytest_nsys.reports.session.session import by_address, find_run, list_baselines, list_windows, ordered
from pytest_nsys.reports.tables.formats import WHOLE_TEXT, aligned
from pytest_nsys.reports.words.explanation import SHOWN_WINDOWS

LOG_WIDTH = 100
"""So many characters a log shows without scrolling."""

SHOWN_NOTES = 6


def count_line(records: Sequence[Record]) -> str:
    """Return how many assertions ended how, in one line."""
    count_by_state = Counter(record.state for record in records)
    return ", ".join(f"{count} {state}" for state, count in sorted(count_by_state.items()))


def summary_lines(records: Sequence[Record], *, verbose: bool = False, width: int | None = None) -> list[str]:
    """Return the lines of the terminal's summary, gate files and assertions in order.

    ``width`` is that of a terminal; without one a log is read without scrolling, and with ``verbose`` searched by line.
    """
    if width is None:
        width = WHOLE_TEXT if verbose else LOG_WIDTH
    lines: list[str] = []
    for address, address_records in by_address(ordered(records)).items():
        run = find_run(address_records).run
        lines.append(f"{address}: {run}" if run else address)
        lines += [f"  {line}" for line in _windows(address_records, verbose)]
        lines += [f"  baseline {path}" for path in list_baselines(address_records)]
        lines += [f"  {line}" for line in _table(address_records, width - 2, verbose=verbose)]
        notes = merged(note for record in address_records for note in record.verdict.notes)
        lines += [f"  {note.labelled}" for note in notes if note.warning]
        lines += first_of(
            [f"  {note.labelled}" for note in notes if not note.warning], SHOWN_NOTES, "  … {} more notes"
        )
    return lines


COLUMNS = ("", "assertion", "value", "limit", "headroom", "smallest change", "where", "on base")
LEAST_KEPT = 3  # state, name and value stand in the first line, however narrow the terminal is
LEAST_WIDTH = 40  # a reason that is wrapped to less would be a column of single words
NAME = 1
LEAST_NAME, LONGEST_NAME = 24, 48
AS_ABOVE = "as above"
FOLDED = ", "
"""Stands between the cells of an assertion that a narrow terminal shows below its first line."""


def _table(records: Sequence[Record], width: int, *, verbose: bool) -> Iterator[str]:
    """Yield the lines of each assertion below those of the heads; columns without any cell are left out.

    Why an assertion was not judged stands behind its name, or below it where it is too long.
    """
    rows = [_cells(record, verbose=verbose) for record in records]
    filled_columns = [i for i in range(len(COLUMNS)) if i <= NAME or any(row[i] for row in rows)]
    row_lines = _fitted([[row[i] for i in filled_columns] for row in (COLUMNS, *rows)], width)
    head = next(row_lines)
    yield from head if len(filled_columns) > NAME + 1 else ()
    title_by_reason: dict[str, str] = {}
    for record_lines, record in zip(row_lines, records, strict=True):
        reason = "" if record.worst["value"] else record.message
        if reason and title_by_reason.setdefault(reason, record.title) != record.title:
            reason = AS_ABOVE
        if reason and len(record_lines[0]) + 2 + len(reason) <= width:
            record_lines = [f"{record_lines[0]}  {reason}"]
        elif reason:
            record_lines = [
                *record_lines,
                *wrap(reason, max(width, LEAST_WIDTH), initial_indent="  ", subsequent_indent="  "),
            ]
        yield from record_lines


def _fitted(rows: Sequence[Sequence[str]], width: int) -> Iterator[list[str]]:
    """Yield the lines of each row, aligned.

    Where they are wider than ``width``, names are cut; where that is not enough, as many of the last cells as it takes
    stand in a line below.
    """
    lines = aligned(rows)
    excess, longest_name = max(map(len, lines)) - width, max(len(row[NAME]) for row in rows)
    if excess > 0 and longest_name - excess >= LEAST_NAME:
        lines = aligned([[*row[:NAME], printable(row[NAME], longest_name - excess), *row[NAME + 1 :]] for row in rows])
        excess = 0
    if excess <= 0:
        yield from ([line] for line in lines)
        return
    max_cells = len(rows[0]) - 1
    for cell_count in range(max_cells, min(LEAST_KEPT, max_cells) - 1, -1):
        lines = aligned([row[:cell_count] for row in rows])
        if max(map(len, lines)) <= width:
            break
    indent = " " * (max(len(row[0]) for row in rows) + 2)
    for line, row in zip(lines, rows, strict=True):
        rest = indent + FOLDED.join(filter(None, row[cell_count:]))
        yield [line, *wrap(rest, max(width, LEAST_WIDTH), subsequent_indent=indent)]


def _cells(record: Record, *, verbose: bool) -> list[str]:
    """Return the cells of an assertion: state, name, value, limit, headroom and place; with ``verbose`` all that is
    known.
    """
    worst, name = record.worst, record.full_name if verbose else printable(record.full_name, LONGEST_NAME)
    limit, smallest_change = (worst["limit"], record.smallest_change) if verbose else (record.bound, "")
    place = worst["row"] if worst["value"] else ""
    if verbose and place and record.rows > 1:
        place += f", worst of {record.rows}"
    return [record.state, name, worst["value"], limit, record.headroom, smallest_change, place, record.verdict.on_base]


def _windows(records: Sequence[Record], verbose: bool) -> Iterator[str]:
    """Yield how windows were measured and then the windows, for each set of them."""
    for measured_as, windows in list_windows(records):
        yield measured_as
        max_lines = len(windows) if verbose else SHOWN_WINDOWS
        yield from first_of([f"  {line}" for line in windows], max_lines, "  … {} more (-v shows them)")
