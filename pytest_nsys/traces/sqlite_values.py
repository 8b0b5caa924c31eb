"""Is a value of SQLite what its column should hold? SQLite keeps any type in any column."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Collection, Iterable, Iterator

from pytest_nsys.core import columns
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.words import printable
from pytest_nsys.traces.sqlite_conditions import LISTED, listed
from pytest_nsys.traces.sqlite_file import SqliteFile, SqlRow


class OddValue(TypeError):
    """A value that its column cannot have, in words."""


def check_whole(*values: object) -> None:
    """SQLite keeps any type in any column, and numbers of a trace become part of later questions to it."""
    for value in values:
        if type(value) is not int:
            raise OddValue(f"{str(value)[:40]!r} is not a whole number")


def check_row(row: SqlRow) -> None:
    """Raises OddValue where not all of a row are whole numbers."""
    check_whole(*row)


def check_text(value: object) -> str:
    """A name. Raises OddValue for what is none."""
    if not isinstance(value, str):
        raise OddValue(f"{printable(repr(value), 40)} is not a name")
    return value


def texts_of(rows: Iterable[SqlRow]) -> dict[int, str]:
    """The texts of rows of an id and a text. Raises OddValue where one is none, or an id has two."""
    found: dict[int, str] = {}
    for number, text in rows:
        check_whole(number)
        if found.setdefault(number, check_text(text)) != text:
            raise OddValue(f"the id {number} stands for two texts")
    return found


def read_texts(file: SqliteFile, ids: Collection[int], table: str, text: str) -> dict[int, str]:
    """The texts of distinct ids. Raises OddValue."""
    try:
        wanted = columns.values(array("q", ids))
    except (TypeError, OverflowError):
        check_whole(*ids)
        raise
    if len(wanted) > LISTED and wanted[-1] - wanted[0] < 4 * len(wanted):  # most of a table: what is between is dropped
        known, bounds = set(wanted), f"id BETWEEN {wanted[0]} AND {wanted[-1]}"
        rows = file.chunks(f'SELECT id, {text} FROM "{table}" WHERE {bounds}')
        return texts_of(row for some in rows for row in some if row[0] in known)
    found: dict[int, str] = {}
    for at in range(0, len(wanted), LISTED):
        some = listed(wanted[at : at + LISTED])
        found |= texts_of(file.rows(f'SELECT id, {text} FROM "{table}" WHERE id IN ({some})'))
    return found


@contextlib.contextmanager
def damage(file: SqliteFile, table: str) -> Iterator[None]:
    """Raises TraceError, which names the table, where a number of it is none, or cannot be."""
    try:
        yield
    except (TypeError, OverflowError) as error:
        what = f"table {table} holds a value that cannot be" + (f" ({error})" if isinstance(error, OddValue) else "")
        raise TraceError(f"{file.path}: {what}: damaged, or changed after it was written; {file.again}") from error
