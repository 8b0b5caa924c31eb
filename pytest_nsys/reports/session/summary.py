"""What was judged, and how much room is left? A few lines for each gate file, also when everything is green.

The headroom is what tells a person when a green is about to turn.
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
"""What a log shows without scrolling."""

SHOWN_NOTES = 6


def count_line(records: Sequence[Record]) -> str:
    """How many assertions ended how, in one line."""
    found = Counter(record.state for record in records)
    return ", ".join(f"{number} {outcome}" for outcome, number in sorted(found.items()))


def summary_lines(records: Sequence[Record], *, verbose: bool = False, width: int | None = None) -> list[str]:
    """The lines of the terminal's summary, gate files and assertions in order.

    ``width`` is that of a terminal; a log is read without scrolling, and with ``verbose`` searched by line.
    """
    if width is None:
        width = WHOLE_TEXT if verbose else LOG_WIDTH
    lines: list[str] = []
    for address, own in by_address(ordered(records)).items():
        run = find_run(own).run
        lines.append(f"{address}: {run}" if run else address)
        lines += [f"  {line}" for line in _windows(own, verbose)]
        lines += [f"  baseline {path}" for path in list_baselines(own)]
        lines += [f"  {line}" for line in _table(own, width - 2, verbose=verbose)]
        notes = merged(note for record in own for note in record.verdict.notes)
        lines += [f"  {note.labelled}" for note in notes if note.warning]
        lines += first_of(
            [f"  {note.labelled}" for note in notes if not note.warning], SHOWN_NOTES, "  … {} more notes"
        )
    return lines


COLUMNS = ("", "assertion", "value", "limit", "headroom", "smallest change", "where", "on base")
LEAST_KEPT = 3
LEAST_WIDTH = 40
NAME = 1
LEAST_NAME, LONGEST_NAME = 24, 48
AS_ABOVE = "as above"
FOLDED = ", "
"""Between the cells of an assertion that a narrow terminal shows below its first line."""


def _table(records: Sequence[Record], width: int, *, verbose: bool) -> Iterator[str]:
    """A line for each assertion below that of the columns, without those in which none of them says anything.

    Why an assertion was not judged stands behind its name, or where it is too long below it.
    """
    rows = [_cells(record, verbose=verbose) for record in records]
    said = [i for i in range(len(COLUMNS)) if i <= NAME or any(row[i] for row in rows)]
    lines = _fitted([[row[i] for i in said] for row in (COLUMNS, *rows)], width)
    head = next(lines)
    yield from head if len(said) > NAME + 1 else ()
    said_by: dict[str, str] = {}
    for own, record in zip(lines, records, strict=True):
        why = "" if record.worst["value"] else record.message
        if why and said_by.setdefault(why, record.title) != record.title:
            why = AS_ABOVE
        if why and len(own[0]) + 2 + len(why) <= width:
            own = [f"{own[0]}  {why}"]
        elif why:
            own = [*own, *wrap(why, max(width, LEAST_WIDTH), initial_indent="  ", subsequent_indent="  ")]
        yield from own


def _fitted(rows: Sequence[Sequence[str]], width: int) -> Iterator[list[str]]:
    """The lines of each row, aligned. Where they are wider, names are cut; where that is not enough, the last cells
    stand in a line below, as many as it takes.
    """
    lines = aligned(rows)
    over, longest = max(map(len, lines)) - width, max(len(row[NAME]) for row in rows)
    if over > 0 and longest - over >= LEAST_NAME:
        lines = aligned([[*row[:NAME], printable(row[NAME], longest - over), *row[NAME + 1 :]] for row in rows])
        over = 0
    if over <= 0:
        yield from ([line] for line in lines)
        return
    most = len(rows[0]) - 1
    for kept in range(most, min(LEAST_KEPT, most) - 1, -1):
        lines = aligned([row[:kept] for row in rows])
        if max(map(len, lines)) <= width:
            break
    indent = " " * (max(len(row[0]) for row in rows) + 2)
    for line, row in zip(lines, rows, strict=True):
        rest = indent + FOLDED.join(filter(None, row[kept:]))
        yield [line, *wrap(rest, max(width, LEAST_WIDTH), subsequent_indent=indent)]


def _cells(record: Record, *, verbose: bool) -> list[str]:
    """How an assertion ended, its name, value, limit, headroom and place; all that is known of them if ``verbose``."""
    worst, name = record.worst, record.full_name if verbose else printable(record.full_name, LONGEST_NAME)
    limit, sees = (worst["limit"], record.smallest_change) if verbose else (record.bound, "")
    where = worst["row"] if worst["value"] else ""
    if verbose and where and record.rows > 1:
        where += f", worst of {record.rows}"
    return [record.state, name, worst["value"], limit, record.headroom, sees, where, record.verdict.on_base]


def _windows(records: Sequence[Record], verbose: bool) -> Iterator[str]:
    for measured_as, windows in list_windows(records):
        yield measured_as
        most = len(windows) if verbose else SHOWN_WINDOWS
        yield from first_of([f"  {line}" for line in windows], most, "  … {} more (-v shows them)")
