"""What traces does the package hold for its demo? ``python -m tests.support.samples.packaged`` writes them.

Those of torch.profiler are the files. An export of nsys is the SQL that makes it, compressed a tenth of the file: a
cell that all rows of a table share stands there once, and a time is what it is later than that of the row before.
"""

import gzip
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest_nsys
from tests.support.samples.dualpipe import SAMPLE_REGRESSION, SAMPLE_SHAPE, write_dualpipe
from tests.support.samples.fsdp import FsdpShape, write_fsdp
from tests.support.samples.schema import TABLES

FOLDER = Path(pytest_nsys.__file__).parent / "samples"


def packaged() -> dict[str, bytes]:
    """What each compressed file of the folder holds: how it is compressed is the machine's business."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for run, prefetch in (("good", True), ("regressed", False)):
            (folder / "fsdp" / run).mkdir(parents=True)
            write_fsdp(folder / "fsdp" / run, FsdpShape(forward_prefetch=prefetch))
        good = write_dualpipe(folder / "dualpipe.sqlite", SAMPLE_SHAPE)
        regressed = write_dualpipe(folder / "regressed.sqlite", SAMPLE_SHAPE, SAMPLE_REGRESSION)
        return {
            **{f"dualpipe/{path.name}.sql.gz": as_sql(path).encode() for path in (good, regressed)},
            **{
                path.relative_to(folder).as_posix(): gzip.decompress(path.read_bytes())
                for path in sorted(folder.glob("fsdp/*/*"))
            },
        }


def as_sql(trace: Path) -> str:
    """The script that makes a file with the same tables, and the same rows in the same order."""
    with closing(sqlite3.connect(trace)) as database:
        tables = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        statements = [each for table, declared in tables for each in (declared, *_filling(database, table))]
    return "".join(f"{each};\n" for each in ("PRAGMA journal_mode = OFF", "BEGIN", *statements, "COMMIT"))


def _filling(database: sqlite3.Connection, table: str) -> list[str]:
    """Rows are told process by process, in which each begins soon after the one before; the script sorts them."""
    told, meant = {}, {}
    columns = [column for _, column, *_ in database.execute(f"PRAGMA table_info({table})")]
    for column in columns:
        cells = database.execute(f'SELECT DISTINCT quote("{column}") FROM {table} LIMIT 2').fetchall()
        if len(cells) == 1:
            ((meant[column],),) = cells
        elif column in ("start", "correlationId"):
            told[column], meant[column] = f"{column} - lag({column}, 1, 0) OVER before", f"sum({column}) OVER before"
        elif column == "end":
            told[column], meant[column] = '"end" - start', 'sum(start) OVER before + "end"'
        else:
            told[column] = meant[column] = f'"{column}"'
    owner = next((f"{table}.{column}" for column in columns if column in ("globalPid", "globalTid")), "0")
    by_process = f"(SELECT p.rowid FROM PROCESSES p WHERE p.globalPid = {owner} & ~0xffffff), {table}.rowid"
    quoted = ", ".join(f"quote({cell})" for cell in told.values())
    rows = database.execute(
        f"SELECT {quoted} FROM {table} WINDOW before AS (ORDER BY {by_process}) ORDER BY {by_process}"
    )
    values = ",\n".join(f"({','.join(row)})" for row in rows)
    named = ", ".join(f'{cell} AS "{column}"' for column, cell in meant.items())
    order = f"{TABLES[table].order}, told.rowid".removeprefix(", ")
    names = ", ".join(f'"{column}"' for column in told)
    return [
        f"CREATE TEMP TABLE told ({names})",
        f"INSERT INTO told VALUES\n{values}",
        f"INSERT INTO {table} SELECT {named} FROM told WINDOW before AS (ORDER BY told.rowid) ORDER BY {order}",
        "DROP TABLE told",
    ]


if __name__ == "__main__":
    for name, content in packaged().items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content, mtime=0))
        print(f"wrote {path}, {path.stat().st_size} bytes")
