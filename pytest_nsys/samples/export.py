"""How is an nsys SQLite export written? Staged in any order, stored in the order of nsys.

Rows arrive in batches and wait in temporary tables of SQLite, so that memory stays bounded; the end sorts
them into the file. A file appears whole, under its name, or not at all.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from pytest_nsys.samples import schema
from pytest_nsys.samples.schema import Cell

_ONE_BATCH = 50_000


class Strings:
    """The ids of the texts that rows share, in the order of their first use."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._last = 0

    def id_of(self, text: str) -> int:
        """The id of ``text``, the same for the same text."""
        known = self._ids.get(text)
        return self._remember(text) if known is None else known

    def next_id(self) -> int:
        """An id for a text that nothing else shares, which the caller stores itself."""
        self._last += 1
        return self._last

    def rows(self) -> list[tuple[int, str]]:
        return [(number, text) for text, number in self._ids.items()]

    def _remember(self, text: str) -> int:
        self._ids[text] = number = self.next_id()
        return number


class Export:
    """A trace file in the making: a context manager that leaves a complete file, or none."""

    def __init__(self, path: Path, version: str = "3.25", strings: Strings | None = None) -> None:
        self.path = path
        self.version = version
        self.strings = strings or Strings()
        self._tables = schema.tables(version)
        self._staged: set[str] = set()
        self._single_texts: list[tuple[int, str]] = []
        self._draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")

    def __enter__(self) -> Self:
        self._draft.unlink(missing_ok=True)
        self._database = sqlite3.connect(self._draft, isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "temp_store = FILE", "cache_size = -32000"):
            self._database.execute(f"PRAGMA {pragma}").close()
        self._database.execute("BEGIN")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        try:
            with closing(self._database):
                if kind is None:
                    self._finish()
            if kind is None:
                self._draft.replace(self.path)
        finally:
            with suppress(FileNotFoundError):
                self._draft.unlink()

    def put(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Stage ``rows``; columns that are not named take the schema's defaults."""
        if table not in self._staged:
            self._stage(table)
        names = ", ".join(f'"{name}"' for name in columns)
        values = ", ".join("?" * len(columns))
        self._database.executemany(f'INSERT INTO temp."{table}" ({names}) VALUES ({values})', rows)

    def single_text(self, text: str) -> int:
        """The id of a text that no other row names: stored, and forgotten here."""
        number = self.strings.next_id()
        self._single_texts.append((number, text))
        if len(self._single_texts) >= _ONE_BATCH:
            self._put_single_texts()
        return number

    def _put_single_texts(self) -> None:
        self.put(schema.STRINGS, ("id", "value"), self._single_texts)
        self._single_texts.clear()

    def _stage(self, table: str) -> None:
        columns = self._tables[table].columns.values()
        body = ", ".join(
            f'"{c.name}" {c.declaration}' + (f" DEFAULT {c.default}" if c.default else "") for c in columns
        )
        self._database.execute(f'CREATE TEMP TABLE "{table}" ({body})')
        self._staged.add(table)

    def _finish(self) -> None:
        self._put_metadata()
        if self._single_texts:
            self._put_single_texts()
        if texts := self.strings.rows():
            self.put(schema.STRINGS, ("id", "value"), texts)
        for table in self._tables.values():
            if table.name in self._staged:
                self._write(table)
        self._database.execute("COMMIT")

    def _put_metadata(self) -> None:
        if metadata := schema.metadata_table(self.version):
            major, minor = self.version.split(".")
            rows = (
                ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
                ("EXPORT_PRODUCT_VERSION", schema.PRODUCT_VERSIONS[self.version]),
                ("EXPORT_SCHEMA_VERSION", f"{self.version}.0"),
                ("EXPORT_SCHEMA_VERSION_MAJOR", major),
                ("EXPORT_SCHEMA_VERSION_MINOR", minor),
                ("EXPORT_SCHEMA_VERSION_MICRO", "0"),
                ("SYNTHETIC_BY", "pytest_nsys.samples"),
            )
            self.put(metadata, ("name", "value"), rows)
        for table, enum_rows in schema.ENUM_ROWS.items():
            if table in self._tables:
                self.put(table, ("id", "name", "label"), enum_rows)

    def _write(self, table: schema.TableSchema) -> None:
        width = max(map(len, table.columns)) + 2
        body = ",\n".join(f"    {c.name:<{width}}{c.declaration}" for c in table.columns.values())
        self._database.execute(f"CREATE TABLE main.{table.name} (\n{body}\n)")
        order = f"{table.order}, rowid" if table.order else "rowid"
        select = f"SELECT * FROM temp.{table.name} ORDER BY {order}"
        self._database.execute(f"INSERT INTO main.{table.name} {select}")
