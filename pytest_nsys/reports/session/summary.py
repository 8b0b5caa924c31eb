"""What was judged, and how much room is left? A few lines for each gate file, also when everything is green.

The margin is what tells a person when a green is about to turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from pytest_nsys.reports.causes import Plain, shared_words
from pytest_nsys.reports.session.digest import FileRecords, by_file, ordered, shared_causes
from pytest_nsys.reports.session.record import notes_of, state
from pytest_nsys.reports.tables import aligned

SHOWN_WINDOWS = 4
SHOWN_NOTES = 6
SHOWN_CAUSES = 3
NOT_JUDGED = ("no data", "incomparable", "error")


def summary_lines(records: Sequence[Plain], *, verbose: bool = False, width: int | None = None) -> list[str]:
    """The lines of the terminal's summary, gate files and assertions in order; ``width`` is that of a terminal."""
    lines: list[str] = []
    for file in by_file(ordered(records)):
        lines.append(f"{file.name}: {file.run}" if file.run else file.name)
        lines += [f"  {line}" for line in _windows(file, verbose)]
        lines += [f"  baseline {path}" for path in file.baselines]
        lines += [f"  {line}" for line in _fitted(_table(file.records), width - 2 if width is not None else None)]
        notes = list(dict.fromkeys(note for record in file.records for note in notes_of(record)))
        lines += [f"  {note.labelled}" for note in notes[:SHOWN_NOTES]]
        if len(notes) > SHOWN_NOTES:
            lines.append(f"  … {len(notes) - SHOWN_NOTES} more notes")
    # What stands behind several reds, told once with all rows that it explains.
    for cause, reds in shared_causes(ordered(records))[:SHOWN_CAUSES]:
        lines.append(f"one cause behind {len(reds)} assertions: {cause}")
        lines += [f"  {name}: {shared_words(rows)}" for name, rows in reds.items()]
    return lines


SEES = 5
LEAST_KEPT = 3
LEAST_WIDTH = 40
FOLDED = ", "
"""Between the cells of an assertion that a narrow terminal shows below its first line."""


def _table(records: Sequence[Plain]) -> list[list[str]]:
    """A line for each assertion; without the column of what a gate can see where no baseline is in play."""
    rows = [_cells(record) for record in records]
    if not any(row[SEES] for row in rows):
        rows = [[*row[:SEES], *row[SEES + 1 :]] for row in rows]
    return rows


def _fitted(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Aligned lines. Where they are wider than a terminal, the last cells stand in a line below, as many as it takes;
    a log has no width, and is searched by line.
    """
    columns = len(rows[0])
    for kept in range(columns, LEAST_KEPT - 1, -1):
        lines = aligned([row[:kept] for row in rows])
        if width is None or max(map(len, lines)) <= width:
            break
    indent = " " * (max(len(row[0]) for row in rows) + 2)
    shown = []
    for line, row in zip(lines, rows, strict=True):
        rest = indent + FOLDED.join(filter(None, row[kept:]))
        shown += [line, *wrap(rest, max(width or 0, LEAST_WIDTH), subsequent_indent=indent)]
    return shown


def _cells(record: Plain) -> list[str]:
    outcome = state(record)
    if outcome in NOT_JUDGED:
        return [outcome, record["name"], "", "", "", "", record["message"]]
    cells = [outcome, record["name"], record["value"], record["limit"]]
    left = f"ceiling {record['ceiling']}" if record["ceiling"] else ""
    cells.append(f"margin {record['margin']}" if record["margin"] else left)
    cells.append(f"sees {record['sees']}" if record["sees"] else "")
    if record["row"]:
        cells.append(f"{record['row']}, worst of {record['rows']}" if record["rows"] > 1 else record["row"])
    else:
        cells.append(record["message"] if not record["value"] else "")
    return cells


def _windows(file: FileRecords, verbose: bool) -> Iterator[str]:
    for measured_as, windows in file.windows:
        yield measured_as
        shown = windows if verbose else windows[:SHOWN_WINDOWS]
        yield from (f"  {line}" for line in shown)
        if len(shown) < len(windows):
            yield f"  … {len(windows) - len(shown)} more (-v shows them)"
