"""What was judged, and how much headroom is left? A few lines for each gate file, even if everything passed.

The headroom shows when a passing assertion is about to fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap

from pytest_nsys.core.model import merge_notes
from pytest_nsys.core.text_format import limit_lines, sanitize_line
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.session import (
    find_run_record,
    group_by_address,
    list_baselines,
    list_window_sets,
    sort_records,
)
from pytest_nsys.reports.tables.formats import UNLIMITED_LENGTH, align_rows
from pytest_nsys.reports.words.verdict_text import SHOWN_WINDOWS

LOG_WIDTH = 100
"""This many characters of a line are visible in a CI log without scrolling."""

SHOWN_NOTES = 6


def format_state_counts(records: Sequence[AssertionRecord]) -> str:
    """Return the number of assertions by state, in one line."""
    count_by_state = Counter(record.state for record in records)
    return ", ".join(f"{count} {state}" for state, count in sorted(count_by_state.items()))


def render_terminal_summary(
    records: Sequence[AssertionRecord], *, verbose: bool = False, width: int | None = None
) -> list[str]:
    """Return the lines of the terminal's summary, gate files and assertions in order.

    ``width`` is the terminal's. Without one, lines fit into a CI log; with ``verbose`` they are not wrapped, so that
    each can be searched.
    """
    if width is None:
        width = UNLIMITED_LENGTH if verbose else LOG_WIDTH
    lines: list[str] = []
    for address, address_records in group_by_address(sort_records(records)).items():
        run = find_run_record(address_records).run
        lines.append(f"{address}: {run}" if run else address)
        lines += [f"  {line}" for line in _render_window_sets(address_records, verbose)]
        lines += [f"  baseline {path}" for path in list_baselines(address_records)]
        lines += [f"  {line}" for line in _render_assertion_lines(address_records, width - 2, verbose=verbose)]
        notes = merge_notes(note for record in address_records for note in record.verdict.notes)
        lines += [f"  {note.labelled_text}" for note in notes if note.warning]
        lines += limit_lines(
            [f"  {note.labelled_text}" for note in notes if not note.warning], SHOWN_NOTES, "  … {} more notes"
        )
    return lines


SUMMARY_COLUMNS = ("", "assertion", "value", "limit", "headroom", "smallest change", "where", "on base")
MIN_FIRST_LINE_CELLS = 3  # state, name and value stand in the first line, however narrow the terminal is
MIN_WRAP_WIDTH = 40  # wrapped to less, a reason would be a column of single words
NAME_INDEX = 1
MIN_ASSERTION_NAME, MAX_ASSERTION_NAME = 24, 48
AS_ABOVE = "as above"
CELL_SEPARATOR = ", "
"""The text between the cells that a narrow terminal shows below an assertion's first line."""


def _render_assertion_lines(records: Sequence[AssertionRecord], width: int, *, verbose: bool) -> Iterator[str]:
    """Yield the header line, then the lines of each assertion; empty columns are left out.

    The reason why an assertion was not judged follows its name, or stands below it if it is too long.
    """
    rows = [_list_summary_cells(record, verbose=verbose) for record in records]
    filled_columns = [i for i in range(len(SUMMARY_COLUMNS)) if i <= NAME_INDEX or any(row[i] for row in rows)]
    row_lines = _fit_rows([[row[i] for i in filled_columns] for row in (SUMMARY_COLUMNS, *rows)], width)
    head = next(row_lines)
    yield from head if len(filled_columns) > NAME_INDEX + 1 else ()
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
                *wrap(reason, max(width, MIN_WRAP_WIDTH), initial_indent="  ", subsequent_indent="  "),
            ]
        yield from record_lines


def _fit_rows(rows: Sequence[Sequence[str]], width: int) -> Iterator[list[str]]:
    """Yield the lines of each row, aligned.

    If they are wider than ``width``, names are shortened; if that is not enough, as many of the last cells as necessary
    move to a line below.
    """
    lines = align_rows(rows)
    excess, longest_name = max(map(len, lines)) - width, max(len(row[NAME_INDEX]) for row in rows)
    if excess > 0 and longest_name - excess >= MIN_ASSERTION_NAME:
        lines = align_rows(
            [
                [*row[:NAME_INDEX], sanitize_line(row[NAME_INDEX], longest_name - excess), *row[NAME_INDEX + 1 :]]
                for row in rows
            ]
        )
        excess = 0
    if excess <= 0:
        yield from ([line] for line in lines)
        return
    max_cells = len(rows[0]) - 1
    for cell_count in range(max_cells, min(MIN_FIRST_LINE_CELLS, max_cells) - 1, -1):
        lines = align_rows([row[:cell_count] for row in rows])
        if max(map(len, lines)) <= width:
            break
    indent = " " * (max(len(row[0]) for row in rows) + 2)
    for line, row in zip(lines, rows, strict=True):
        rest = indent + CELL_SEPARATOR.join(filter(None, row[cell_count:]))
        yield [line, *wrap(rest, max(width, MIN_WRAP_WIDTH), subsequent_indent=indent)]


def _list_summary_cells(record: AssertionRecord, *, verbose: bool) -> list[str]:
    """Return the cells of an assertion: state, name, value, limit, headroom and place; with ``verbose`` some more."""
    worst, name = record.worst, record.full_name if verbose else sanitize_line(record.full_name, MAX_ASSERTION_NAME)
    limit, smallest_change = (worst["limit"], record.smallest_change) if verbose else (record.bound, "")
    place = worst["row"] if worst["value"] else ""
    if verbose and place and record.rows > 1:
        place += f", worst of {record.rows}"
    return [record.state, name, worst["value"], limit, record.headroom, smallest_change, place, record.verdict.on_base]


def _render_window_sets(records: Sequence[AssertionRecord], verbose: bool) -> Iterator[str]:
    """Yield, for each set of windows, how they were measured and then the windows."""
    for measured_as, windows in list_window_sets(records):
        yield measured_as
        max_lines = len(windows) if verbose else SHOWN_WINDOWS
        yield from limit_lines([f"  {line}" for line in windows], max_lines, "  … {} more (-v shows them)")
