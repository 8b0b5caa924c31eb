"""What is in a SQLite file, and how is it changed? One call, after which the file is closed."""

import sqlite3
from contextlib import closing
from os import PathLike
from typing import Any


def execute(path: PathLike[str], *statements: str) -> None:
    """Change a file: each statement changes something, or the schema."""
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)


def ask(path: PathLike[str], question: str) -> list[tuple[Any, ...]]:
    """What a database answers."""
    with closing(sqlite3.connect(path)) as database:
        return database.execute(question).fetchall()
