"""Is a history written whole or not at all, whoever else writes, and is any other file left alone?"""

import os
import re
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from pytest_nsys.core.errors import HistoryError
from pytest_nsys.stored.history import database
from pytest_nsys.stored.history.database import APPLICATION_ID, HISTORY_FORMAT, append_session, check_writable
from pytest_nsys.stored.history.stored_runs import load_history
from tests.support.gates import Project, write_trace
from tests.support.histories import entry, past_of, series
from tests.support.sql import ask, execute

GATE = "- exposed_ns < 1 ms"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0)


def test_a_new_file_is_ours_with_keys_and_indexes(history: Path) -> None:
    append_session(history, [entry()])
    assert ask(history, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert ask(history, "PRAGMA user_version") == [(HISTORY_FORMAT,)]
    for table in ("rows", "verdicts"):
        (foreign,) = ask(history, f"PRAGMA foreign_key_list({table})")
        assert foreign[2:5] == ("runs", "run", "id")
    assert ask(history, "PRAGMA foreign_key_check") == []
    indexed = {table for (table,) in ask(history, "SELECT tbl_name FROM sqlite_master WHERE type = 'index'")}
    assert indexed == {"runs", "rows", "verdicts"}
    ((plan),) = ask(history, "EXPLAIN QUERY PLAN SELECT * FROM rows WHERE run = 1 AND metric = 'overlap'")
    assert "USING INDEX" in plan[3]


def test_the_documentation_names_every_column() -> None:
    text = (Path(__file__).parents[2] / "docs" / "runs-over-time.md").read_text(encoding="utf-8")
    for table, columns in database.TABLES.items():
        own = re.split(r"\n- |\n\n", text.partition(f"\n- `{table}`, one for each")[2])[0]
        assert [name for name in columns if name != "id" and f"`{name}`" not in own] == []


def test_the_time_is_utc(history: Path) -> None:
    append_session(history, [entry()])
    ((text,),) = ask(history, "SELECT time FROM runs")
    assert abs(database.read_clock().timestamp() - datetime.fromisoformat(text).timestamp()) < 3600


def test_an_empty_file_becomes_a_history(history: Path) -> None:
    history.touch()
    database.check_writable(history)
    assert past_of(history).read_last_runs(5) == []
    append_session(history, [entry()])
    assert ask(history, "SELECT count(*) FROM runs") == [(1,)]


def _no_database(path: Path) -> None:
    path.write_text("this is text, and enough of it to be looked at\n" * 20, encoding="utf-8")


UNFIT: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder": (Path.mkdir, "is a folder"),
    "a pipe": (os.mkfifo, "is not a plain file"),
    "no SQLite": (_no_database, "is not a SQLite database, or is damaged"),
    "a trace": (write_trace, "is a database of another program, not a history"),
    "another program's": (lambda p: execute(p, "PRAGMA application_id = 7"), "is a database of another program"),
    "of another format": (
        lambda p: execute(
            p, f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {HISTORY_FORMAT + 1}"
        ),
        f"is of format {HISTORY_FORMAT + 1}, not {HISTORY_FORMAT}: another pytest-nsys wrote it; give another file",
    ),
    "without tables": (
        lambda p: execute(p, f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {HISTORY_FORMAT}"),
        "is damaged: it has no table",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_an_unfit_database_is_left_alone(history: Path, name: str) -> None:
    make, words = UNFIT[name]
    make(history)
    before = history.read_bytes() if history.is_file() else None
    for ask_it in (check_writable, load_history):
        with pytest.raises(HistoryError, match=r"perf\.db") as caught:
            ask_it(history)
        assert words in str(caught.value)
    assert (history.read_bytes() if history.is_file() else None) == before


def test_what_cannot_be_written_stops_pytest_at_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.gate(GATE)
    _no_database(project.root / "text.db")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    for value, why in (
        ("text.db", f"ERROR: --nsys-history: {project.root}/text.db: is not a SQLite database"),
        ("nowhere/perf.db", f"there is no folder {project.root / 'nowhere'}: make it first"),
        ("perf.db", f"cannot be written: no permission for {project.root}"),
    ):
        said = project.pytest(f"--nsys-history={value}", code=4)
        assert why in said
        assert "passed" not in said


@pytest.fixture
def locked(project: Project) -> Iterator[Path]:
    """A history that somebody else is writing."""
    path = project.root / "perf.db"
    append_session(path, [entry()])
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    yield path
    connection.close()


@pytest.mark.usefixtures("impatient")
def test_a_locked_database_stops_pytest(project: Project, locked: Path) -> None:
    project.gate(GATE)
    assert f"{locked}: another program is writing it" in project.pytest("--nsys-history=perf.db", code=4)
    with pytest.raises(HistoryError, match="another program is writing it"):
        past_of(locked).read_last_runs(5)


@pytest.mark.usefixtures("impatient")
def test_a_database_that_is_locked_meanwhile_fails_a_green_session(project: Project) -> None:
    path = project.root / "perf.db"
    append_session(path, [entry()])
    project.gate_with_trace(GATE)
    project.file(
        "conftest.py",
        """
        import sqlite3

        def pytest_collection_finish(session):
            session.held = sqlite3.connect("perf.db", isolation_level=None)
            session.held.execute("BEGIN IMMEDIATE")
        """,
    )
    said = project.pytest("--nsys-trace=run.sqlite", "--nsys-history=perf.db", code=1)
    assert f"history not written: {path}: another program is writing it" in said
    assert "1 passed" in said
    assert ask(path, "SELECT count(*) FROM runs") == [(1,)]


def test_a_full_disk_leaves_nothing_half_written(history: Path) -> None:
    append_session(history, [entry()])
    before = history.read_bytes()
    many = [entry(every=[series({(rank, "stage2_f"): "1" for rank in range(5_000)})])]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * len(before), hard))
    try:
        with pytest.raises(HistoryError, match=r"perf\.db: "):
            append_session(history, many)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ask(history, "SELECT count(*) FROM runs UNION ALL SELECT count(*) FROM rows") == [(1,), (1,)]
    append_session(history, many)
    assert ask(history, "SELECT count(*) FROM rows") == [(5_001,)]


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("runs", "id = 1.5"),
        ("runs", "time = X'00'"),
        ("runs", "time = 'yesterday'"),
        ("runs", "gate = NULL"),
        ("runs", "coordinates = '{\"a\": 1}'"),
        ("runs", "version = X'37'"),
        ("rows", "definition = 'one'"),
        ("rows", "labels = '" + "[" * 100_000 + "'"),
        ("rows", "value = X'31'"),
        ("verdicts", "line = 9e999"),
        ("rows", "value = 'inf'"),
        ("rows", "value = '1/0'"),
        ("rows", "labels = '{'"),
        ("rows", "labels = '7'"),
        ("runs", "key_json = '[]'"),
    ],
)
def test_a_value_that_its_column_cannot_have(history: Path, table: str, change: str) -> None:
    append_session(history, [entry()])
    copied = (f"CREATE TABLE new AS SELECT * FROM {table}", f"DROP TABLE {table}", f"ALTER TABLE new RENAME TO {table}")
    execute(history, *copied, f"UPDATE {table} SET {change}")
    with pytest.raises(HistoryError, match=r"perf\.db: is damaged: [^\n]*restore it"):
        load_history(history)


@pytest.mark.parametrize(("table", "column"), [("rows", "value"), ("runs", "coordinates")])
def test_a_column_that_is_gone(history: Path, table: str, column: str) -> None:
    append_session(history, [entry()])
    execute(history, f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
    with pytest.raises(HistoryError, match=r"perf\.db: is damaged: no such column"):
        past_of(history).read_last_runs(1)


def test_a_schema_that_is_no_text(history: Path) -> None:
    append_session(history, [entry()])
    content = history.read_bytes()
    assert b'CREATE TABLE "rows' in content
    history.write_bytes(content.replace(b'CREATE TABLE "rows', b'CREATE TABL\xff "rows'))
    with pytest.raises(HistoryError, match=r"perf\.db: is not a SQLite database, or is damaged"):
        load_history(history)


def test_names_that_are_no_text_are_kept(history: Path) -> None:
    odd = entry(gate="g\udcff.nsys.yaml", branch="b\udcff", every=[series({(0, "a\udcff"): "1"})])
    append_session(history, [odd])
    assert past_of(history, gate=odd.gate).read_last_runs(1, "b\udcff") == [{(0, "a\udcff"): 1}]


def test_a_session_is_written_whole_or_not_at_all(history: Path) -> None:
    broken = entry()
    broken.series[0]["rows"].append([[1, "stage2_f"], "nan"])
    with pytest.raises(HistoryError, match="'nan' is not a value"):
        append_session(history, [entry(), broken])
    assert [*history.parent.iterdir()] == []


def test_a_full_disk_leaves_no_empty_history(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("pytest_nsys.stored.history.database._create", full)
    with pytest.raises(HistoryError) as error:
        append_session(history, [entry()])
    assert str(error.value) == f"{history}: cannot be read or written: database or disk is full"
    assert [*history.parent.iterdir()] == []


WRITER = """
import sys
from pathlib import Path
from pytest_nsys.stored.history.database import append_session
from tests.support.histories import entry
for number in range(int(sys.argv[2])):
    append_session(Path(sys.argv[1]), [entry(str(number)), entry(str(number))])
"""


def test_writers_at_once_lose_nothing(history: Path) -> None:
    words = [sys.executable, "-c", WRITER, str(history), "15"]
    root = Path(__file__).parents[2]
    writers = [subprocess.Popen(words, cwd=root, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ends = [writer.communicate()[1] for writer in writers]
    assert ends == [""] * 3
    assert [writer.returncode for writer in writers] == [0] * 3
    assert ask(history, "SELECT count(*) FROM runs") == [(90,)]
    assert ask(history, "SELECT value, count(*) FROM rows GROUP BY value HAVING count(*) <> 6") == []
    assert ask(history, "PRAGMA integrity_check") == [("ok",)]
