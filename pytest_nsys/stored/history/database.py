"""Is a file our history database, what is in it, and how is it opened so that nobody's work is lost?

Everything here is the standard library's sqlite3: reading stands on the gate's path.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from pytest_nsys.core.errors import HistoryError
from pytest_nsys.core.words import printable

APPLICATION_ID = 0x4E535953
"""``NSYS``: how a history tells itself from any other SQLite database."""

FORMAT = 2
"""Kept as SQLite's ``user_version``; rises when the tables change. In 1 a verdict did not say what it is of."""

_ADDED = ("measured", "selected")
"""Columns of the table ``verdicts`` since format 2, NULL in what was written before."""

RESTORE = "restore it, or give another file"

BUSY_S = 30
"""How long a database that somebody else is writing is waited for."""

_KINDS: Mapping[str, type] = {"": str, "int": int, "float": float}
_COLUMNS = {
    "runs": "id:int! time! commit_id branch dirty:int gate! key key_json facts coordinates trace profiler captures:int "
    "outcome! version",
    "rows": "id:int! run:int! metric! definition:int! window! span! kernels! unit! better dimensions! labels! value! "
    "number:float",
    "verdicts": "id:int! run:int! assertion! line:int outcome! xfailed:int severity message unit value limit_value "
    "margin row measured selected",
}
"""Of each table ``name:type``, text where none is given; ``!`` is never NULL.

``commit`` and ``limit`` are words of SQL, which nobody should have to quote.
"""


def _column(text: str) -> tuple[str, type]:
    name, _, kind = text.removesuffix("!").partition(":")
    return name, _KINDS[kind]


TABLES: Mapping[str, Mapping[str, type]] = {t: dict(map(_column, c.split())) for t, c in _COLUMNS.items()}
NEVER_NULL: Mapping[str, frozenset[str]] = {
    table: frozenset(_column(text)[0] for text in columns.split() if text.endswith("!"))
    for table, columns in _COLUMNS.items()
}

INDEXES = (
    ("runs", ("gate", "key", "branch")),
    ("rows", ("run", "metric")),
    ("rows", ("metric",)),
    ("verdicts", ("run",)),
    ("verdicts", ("assertion",)),
)


def is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file holds a history; False where it is empty and may become one. Raises HistoryError."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if application == 0 and version == 0 and not names:
        return False
    if application != APPLICATION_ID:
        raise HistoryError(f"{path}: is a database of another program, not a history: give another file")
    if version > FORMAT:
        raise HistoryError(f"{path}: is of format {version}, written by a newer pytest-nsys: update this one")
    if missing := sorted(set(TABLES) - names):
        raise HistoryError(f"{path}: is damaged: it has no table {missing[0]}; {RESTORE}")
    for table in ("rows", "verdicts"):  # else the next run that is written gets their number, and them
        ask = f"SELECT run FROM {table} WHERE run > (SELECT coalesce(max(id), 0) FROM runs)"
        for (run,) in connection.execute(f"{ask} LIMIT 1"):
            lost = f"{table} of run {printable(str(run), 20)} without the run"
            raise HistoryError(f"{path}: is damaged: it has {lost}; {RESTORE}")
    return True


def upgrade(connection: sqlite3.Connection) -> None:
    """Give a history of an older format the columns of this one."""
    if connection.execute("PRAGMA user_version").fetchone() != (FORMAT,):
        for column in _ADDED:
            connection.execute(f"ALTER TABLE verdicts ADD COLUMN {column} TEXT")
        connection.execute(f"PRAGMA user_version = {FORMAT}")


def _read_as_now(connection: sqlite3.Connection) -> None:
    """The same for one that is only read: it stays as it is."""
    if connection.execute("PRAGMA user_version").fetchone() != (FORMAT,):
        lacking = ", ".join(f"NULL AS {column}" for column in _ADDED)
        connection.execute(f"CREATE TEMP VIEW verdicts AS SELECT *, {lacking} FROM main.verdicts")


def check_writable(path: Path) -> None:
    """Raises HistoryError where the file is no history, or cannot be written, before anything is measured in vain."""
    with _told_of(path):
        if not path.parent.is_dir():
            raise HistoryError(f"{path}: there is no folder {path.parent}: make it first")
        if not path.exists():
            if not os.access(path.parent, os.W_OK | os.X_OK):
                raise HistoryError(f"{path}: cannot be written: no permission for {path.parent}")
            return
        with writing(path):
            pass


@contextlib.contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """A transaction that nobody else writes beside; undone whole where anything goes wrong. Raises HistoryError."""
    with _told_of(path):
        _plain_file(path)
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        with contextlib.closing(connection):
            connection.execute("BEGIN IMMEDIATE")
            try:
                is_ours(connection, path)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk has SQLite undo it by itself
                    connection.execute("ROLLBACK")
                raise


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection | None]:
    """The history, read-only and as it is at one moment; None where the file is empty. Raises HistoryError."""
    with _told_of(path):
        if not path.exists():
            raise HistoryError(f"{path}: there is no such file: pytest --nsys-history={path} writes it")
        _plain_file(path)
        uri = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            ours = is_ours(connection, path)
            if ours:
                _read_as_now(connection)
            yield connection if ours else None


def _plain_file(path: Path) -> None:
    if path.is_dir():
        raise HistoryError(f"{path}: is a folder: give the file of the history")
    if path.exists() and not path.is_file():
        raise HistoryError(f"{path}: is not a plain file: give the file of the history")


@contextlib.contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """SQLite's errors inside, and a ValueError of what is stored, as one line that says what to do."""
    try:
        yield
    except (sqlite3.Error, UnicodeError, OverflowError) as error:  # a schema that is not UTF-8 cannot even be named
        said = str(error)
        if "locked" in said:
            why = f"another program is writing it, and did not end within {BUSY_S} s: try again"
        elif "not a database" in said or "malformed" in said or not isinstance(error, sqlite3.Error):
            why = f"is not a SQLite database, or is damaged ({said}): {RESTORE}"
        elif "no such table" in said or "no column" in said or "no such column" in said:
            why = f"is damaged: {said}; {RESTORE}"
        elif "unable to open" in said:
            why = "cannot be opened: look at its permissions and those of its folder"
        else:
            why = f"cannot be read or written: {said}"
        raise HistoryError(f"{path}: {printable(why)}") from error
    except ValueError as error:
        raise HistoryError(f"{path}: is damaged: {printable(str(error))}; {RESTORE}") from error
    except OSError as error:
        raise HistoryError(f"{path}: cannot be read or written: {error.strerror}") from error
