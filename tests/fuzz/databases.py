"""SQLite files with damage that only somebody who knows the tables does: any value in any column, schemas of others."""

import contextlib
import sqlite3
from pathlib import Path
from random import Random

from tests.fuzz import odd
from tests.fuzz.truth import KERNEL, NVTX, RUNTIME
from tests.support.samples.schema import CUDA_EVENT, MEMCPY, SYNCHRONIZATION

CORE = {KERNEL, NVTX, RUNTIME, "StringIds", MEMCPY, SYNCHRONIZATION, CUDA_EVENT, "rows", "runs"}

OF_ROCPD = ("rocpd_kernel_dispatch", "rocpd_region", "rocpd_event", "rocpd_string", "rocpd_memory")


def damage(random: Random, path: Path) -> int:
    """Damage the file in one way, or in a few; in how many."""
    if random.random() < 0.3:
        content = path.read_bytes()
        hurt = random.choice((odd.flipped, odd.cut_short, odd.pages_mixed, odd.pages_mixed, schema_flipped))
        path.write_bytes(hurt(random, content))
        return 2 if hurt is odd.flipped else 1
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.text_factory = bytes
        ways = random.choice((1, 1, 1, 2, 4))
        for _ in range(ways):
            with contextlib.suppress(sqlite3.Error, IndexError):  # the last table may be gone
                random.choice(CHANGES)(random, database)
        with contextlib.suppress(sqlite3.Error):
            database.commit()
        return ways


def schema_flipped(random: Random, content: bytes) -> bytes:
    """Damage within the text of the schema alone."""
    changed = bytearray(content)
    at = content.find(b"CREATE TABLE", random.randrange(4096))
    for _ in range(random.choice((1, 2, 8))):
        if at >= 0:
            changed[at + random.randrange(100)] = random.choice((0, 0xFF, 0xC3, 0x27, random.randrange(256)))
    return bytes(changed)


def tables(database: sqlite3.Connection) -> list[str]:
    """The names of its tables."""
    found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return sorted(name.decode() for (name,) in found)


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1].decode() for row in database.execute(f'PRAGMA table_info("{table}")')]


def _place(random: Random, database: sqlite3.Connection) -> tuple[str, str]:
    known = tables(database)
    core = [name for name in known if name in CORE or name.startswith(OF_ROCPD)]
    table = random.choice(core if core and random.random() < 0.7 else known)
    return table, random.choice(_columns(database, table))


def _rows(random: Random, database: sqlite3.Connection, table: str) -> str:
    """A condition that means one row, some, or all."""
    last = database.execute(f'SELECT max(rowid) FROM "{table}"').fetchone()[0] or 1
    one = random.randint(1, last)
    return random.choice((f"rowid = {one}", f"rowid = {one}", f"rowid >= {one}", f"rowid % 3 = {one % 3}", "1"))


def _without_rules(random: Random, database: sqlite3.Connection, table: str) -> None:
    """The table as a program writes it that declares neither types nor keys, or other ones."""
    columns = _columns(database, table)
    kind = random.choice(("", "", " INTEGER", " TEXT", " BLOB", " REAL"))
    declared = ", ".join(f'"{name}"{kind}' for name in columns)
    database.execute(f'CREATE TABLE "new" ({declared})')
    database.execute(f'INSERT INTO "new" SELECT * FROM "{table}" ORDER BY rowid')
    database.execute(f'DROP TABLE "{table}"')
    database.execute(f'ALTER TABLE "new" RENAME TO "{table}"')


def odd_value(random: Random, database: sqlite3.Connection) -> None:
    """A value that does not belong there."""
    table, column = _place(random, database)
    rows = _rows(random, database, table)
    if random.random() < 0.7:
        _without_rules(random, database, table)
    value = "CAST(X'C328FF' AS TEXT)" if random.random() < 0.1 else "?"
    values = (random.choice(odd.VALUES),) if value == "?" else ()
    database.execute(f'UPDATE OR REPLACE "{table}" SET "{column}" = {value} WHERE {rows}', values)


def _swapped(random: Random, database: sqlite3.Connection) -> None:
    table, column = _place(random, database)
    other = random.choice(_columns(database, table))
    database.execute(f'UPDATE OR REPLACE "{table}" SET "{column}" = "{other}" WHERE {_rows(random, database, table)}')


def _no_table(random: Random, database: sqlite3.Connection) -> None:
    database.execute(f'DROP TABLE "{_place(random, database)[0]}"')


def _other_table(random: Random, database: sqlite3.Connection) -> None:
    """It stands under the name of another one, as a view of itself, or is empty."""
    table, other = _place(random, database)[0], _place(random, database)[0]
    if random.random() < 0.4:
        database.execute(f'DELETE FROM "{table}"')
    elif random.random() < 0.5 and table != other:
        database.execute(f'DROP TABLE "{other}"')
        database.execute(f'ALTER TABLE "{table}" RENAME TO "{other}"')
    else:
        database.execute(f'ALTER TABLE "{table}" RENAME TO "hidden"')
        database.execute(f'CREATE VIEW "{table}" AS SELECT * FROM "hidden"')


def _no_column(random: Random, database: sqlite3.Connection) -> None:
    table, column = _place(random, database)
    if random.random() < 0.5:
        database.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    else:
        database.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}2"')


def _twice(random: Random, database: sqlite3.Connection) -> None:
    table = _place(random, database)[0]
    database.execute(f'INSERT OR REPLACE INTO "{table}" SELECT * FROM "{table}" WHERE {_rows(random, database, table)}')


def _gone(random: Random, database: sqlite3.Connection) -> None:
    table = _place(random, database)[0]
    database.execute(f'DELETE FROM "{table}" WHERE {_rows(random, database, table)}')


CHANGES = (*(odd_value,) * 8, _swapped, _no_table, _other_table, _no_column, _twice, _gone)
