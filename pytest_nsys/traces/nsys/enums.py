"""What do the numbers of an export stand for? Its own tables say, and where a version has none, a list by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_nsys.traces.sqlite_file import SqliteFile
from pytest_nsys.traces.sqlite_values import check_text


def labels(file: SqliteFile, table: str, usual: Sequence[str]) -> Mapping[object, str]:
    """The labels of a table by number, in lower case. Raises TypeError for one that is no text."""
    if file.has(table, "id", "label"):
        return {number: check_text(label).lower() for number, label in file.rows(f"SELECT id, label FROM {table}")}
    return dict(enumerate(usual))
