"""Is a table the same whether its columns are read in blocks or as rows, and refused alike?

And do conditions of SQL let through what they say, and every damaged row?
"""

import os
import sqlite3
import threading
from contextlib import closing
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import Lane
from pytest_nsys.core.tables import Kernels, Ranges
from pytest_nsys.traces.nsys import ranges
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from pytest_nsys.traces.sqlite import columns as sqlite_columns
from pytest_nsys.traces.sqlite import conditions as sqlite_conditions
from pytest_nsys.traces.sqlite import file as sqlite_file
from pytest_nsys.traces.sqlite.columns import iterate_blocks
from pytest_nsys.traces.sqlite.file import FastReadError, SqliteFile
from tests.support.samples import schema
from tests.support.samples.builder import TraceBuilder

WAYS = ("blocks", "rows")
GREATEST = (1 << 63) - 1


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way, in blocks so small that a table has several."""
    return force(monkeypatch, str(request.param))


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows there are."""
    force(monkeypatch, "blocks")


def force(monkeypatch: pytest.MonkeyPatch, way: str) -> str:
    """Whatever the size of a table."""
    monkeypatch.setattr(sqlite_columns, "MANY_ROWS", 0 if way == "blocks" else GREATEST)
    monkeypatch.setattr(sqlite_columns, "BLOCK_ROWS", 7)
    return way


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three processes of two devices, streams of one number, rows in no order, launches twice, late or never."""
    builder = TraceBuilder()
    for pid in (500, 77, 78):
        process = builder.process(pid)
        for i in range(20):
            start = (i * 37) % 23 * 10
            name, device, context, stream = f"kernel{i % 3}", i % 2, 1 + i % 3, 7 + i % 2
            process.kernel(name, start, start + i, device=device, context=context, stream=stream, launch_ns=start - 5)
            for name in (f"step {i % 4}", f"aten::add, seq = {i}", "ncclAllReduce"):
                end = None if i % 7 == 6 else start + i
                process.range(name, start, end, thread=i % 2, registered=(i + len(name)) % 3 > 0)
    path = builder.write(tmp_path / "trace.sqlite")
    execute(
        path,
        f"INSERT INTO {schema.RUNTIME} (start, end, eventClass, globalTid, correlationId, nameId, returnValue) "
        f"SELECT start - 1000, end, 1, globalTid, correlationId, nameId, 0 FROM {schema.RUNTIME} WHERE rowid % 4 = 0",
        f"UPDATE {schema.KERNEL} SET correlationId = NULL WHERE rowid % 9 = 0",
        f"UPDATE {schema.RUNTIME} SET correlationId = NULL WHERE rowid % 11 = 0",
        f"UPDATE {schema.KERNEL} SET graphNodeId = 'a node' WHERE rowid % 5 = 0",
    )
    return path


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)


def read(path: Path) -> object:
    """All that is read as columns, in words that compare, or what was said instead."""
    trace = NsysSqlite(path)
    try:
        lanes = trace.lanes()[2:]  # the first process is a stranger
        kernels = trace.kernels(dict.fromkeys([*lanes, Lane(lanes[-1].global_pid, None)]))
        launches = {lane: calls.start_ns for lane, calls in trace.launch_calls(kernels).items()}
        ranges = trace.ranges_around({lane.global_pid: (30, 1 << 40) for lane in lanes})
        for own in ranges.values():
            assert isinstance(own, Ranges)
            assert [*own] == sorted(own, key=itemgetter(0, 1, 3))
        found = {lane: facts(own, launches[lane]) for lane, own in kernels.items()}
        return {pid: [*own] for pid, own in ranges.items()}, found, trace.list_unrequested_processes()
    except TraceError as error:
        return str(error)
    finally:
        trace.close()


def facts(kernels: Kernels, launches: object) -> object:
    streams = [kernels.streams[i] for i in kernels.stream]
    names = [(kernels.names[a], kernels.names.get(b)) for a, b in zip(kernels.name, kernels.full_name, strict=True)]
    assert list(kernels.start_ns) == sorted(kernels.start_ns)
    return [*kernels.start_ns], [*kernels.end_ns], [*kernels.correlation], streams, names, kernels.graph_node, launches


def test_each_way_reads_the_same(trace: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    found = read(trace)
    assert way in WAYS
    monkeypatch.undo()
    assert found == read(trace)
    assert isinstance(found, tuple)
    assert [len(each) for each in found] == [2, 4, 1]
    assert {len(own) for own in found[0].values()} == {36}


@pytest.mark.parametrize("where", ["= 1", "= 45"], ids=["first", "deep"])
@pytest.mark.parametrize("value", ["'word'", "'12'", "1.5", "9e999", "x'31'", "NULL", "-1"])
@pytest.mark.parametrize(
    "place",
    [
        *(
            (schema.KERNEL, c)
            for c in ("start", "end", "deviceId", "contextId", "streamId", "shortName", "demangledName", "globalPid")
        ),
        (schema.KERNEL, "correlationId"),
        *((schema.RUNTIME, c) for c in ("start", "globalTid", "correlationId")),
        *((schema.NVTX, c) for c in ("start", "end", "globalTid", "text", "textId", "eventType")),
    ],
    ids=lambda place: f"{place[0].rpartition('_')[2]}.{place[1]}",
)
@pytest.mark.sampled(8)
def test_damage(trace: Path, monkeypatch: pytest.MonkeyPatch, place: tuple[str, str], value: str, where: str) -> None:
    """The tables are made anew without types, so that any value stays what it is."""
    table, column = place
    execute(
        trace,
        f"ALTER TABLE {table} RENAME TO old",
        f"CREATE TABLE {table} AS SELECT * FROM old",
        "DROP TABLE old",
        f"UPDATE {table} SET {column} = CAST({column} AS INTEGER) WHERE 0",
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET sql = replace(sql, ' INT', '') WHERE name = '{table}'",
    )
    execute(trace, f"UPDATE {table} SET {column} = {value} WHERE rowid {where}")
    wanted = read(trace)
    force(monkeypatch, "blocks")
    assert read(trace) == wanted


def test_an_id_where_texts_are_numbered_is_no_text(trace: Path, way: str) -> None:
    """The first text that stands in its row has this number."""
    execute(trace, f"UPDATE {schema.NVTX} SET textId = {ranges.NO_NAME_ID + 1} WHERE rowid = 45 AND text IS NULL")
    execute(trace, f"UPDATE {schema.NVTX} SET textId = {ranges.NO_NAME_ID + 1}, text = NULL WHERE rowid = 46")
    assert "an id is where texts are numbered" in str(read(trace)), way


@pytest.mark.parametrize("text", ["NULL", "x'31'", "'a' || char(0) || 'b'", "CAST(x'6EFF' AS TEXT)", "'two'"])
def test_many_texts_are_looked_up_as_few_are(trace: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    execute(
        trace,
        f"CREATE TABLE new AS SELECT * FROM {schema.STRINGS}",
        f"DROP TABLE {schema.STRINGS}",
        f"ALTER TABLE new RENAME TO {schema.STRINGS}",
        f"UPDATE {schema.STRINGS} SET value = {text} WHERE value = 'kernel1'",
        *([f"INSERT INTO {schema.STRINGS} SELECT id, 'once' FROM {schema.STRINGS}"] if text == "'two'" else ()),
    )
    wanted = read(trace)
    monkeypatch.setattr(sqlite_columns, "MAX_LISTED_IDS", 2)
    assert read(trace) == wanted
    if text == "NULL":  # together they are as many texts as there are rows
        execute(trace, f"UPDATE {schema.STRINGS} SET value = 'a' || char(0) || 'b' WHERE value = 'kernel0'")
        assert read(trace) == wanted
    assert isinstance(wanted, str) == (text in ("NULL", "x'31'", "'two'"))


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("values", [[], [5], [GREATEST, -GREATEST - 1, 0], range(100)])
def test_whole_numbers_of_every_size_are_read_in_order(tmp_path: Path, values: list[int]) -> None:
    file = table_of(tmp_path, values)
    assert [(a, b) for one in iterate_blocks(file, ["x", "x IS NULL"], "t") for a, b in zip(*one, strict=True)] == [
        (value, 0) for value in values
    ]
    assert [x for (one,) in iterate_blocks(file, ["x"], "t", "x > 40") for x in one] == [x for x in values if x > 40]


def table_of(folder: Path, values: object) -> SqliteFile:
    path = folder / "numbers.sqlite"
    execute(path, "CREATE TABLE t (x)", *(f"INSERT INTO t VALUES ({value})" for value in values))  # type: ignore[attr-defined]
    return SqliteFile(path)


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("statement", ["UPDATE t SET rowid = 1 << 40 WHERE x = 3", "DROP TABLE t"])
def test_what_cannot_be_read_in_blocks_is_left_to_rows(tmp_path: Path, statement: str) -> None:
    file = table_of(tmp_path, range(5))
    execute(file.path, statement)
    with pytest.raises(FastReadError):
        list(iterate_blocks(file, ["nothing"] if "DROP" in statement else ["x"], "t"))
    assert not file.active_reads


@pytest.mark.usefixtures("in_blocks")
def test_rows_below_the_first_id_are_rows_too(tmp_path: Path) -> None:
    file = table_of(tmp_path, range(5))
    execute(file.path, "UPDATE t SET rowid = -40 WHERE x = 3")
    assert sorted(x for (one,) in iterate_blocks(file, ["x"], "t") for x in one) == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("columns", [["rowid"], ["rowid", "_RowId_"], ["rowid", "_rowid_", "oid"]])
def test_a_column_may_be_called_like_the_row_id(tmp_path: Path, columns: list[str]) -> None:
    """Rows would be found, or lost, by what stands in it."""
    file = table_of(tmp_path, range(20))
    execute(file.path, *(f"ALTER TABLE t ADD COLUMN {name} DEFAULT 40.5" for name in columns))
    if len(columns) == 3:
        with pytest.raises(FastReadError):
            list(iterate_blocks(file, ["x"], "t"))
    else:
        assert [x for (one,) in iterate_blocks(file, ["x"], "t") for x in one] == [*range(20)]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("hidden", [False, True])
def test_a_table_may_have_no_row_ids(trace: Path, monkeypatch: pytest.MonkeyPatch, hidden: bool) -> None:
    wanted = read(trace)
    for table in (schema.KERNEL, schema.RUNTIME, schema.NVTX):
        with closing(sqlite3.connect(trace)) as database:
            names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        ids = ", rowid TEXT, oid TEXT, _rowid_ TEXT" if hidden else ""
        execute(
            trace,
            f"ALTER TABLE {table} RENAME TO old",
            f"CREATE TABLE {table} ({', '.join(names)}{ids}, pk INTEGER PRIMARY KEY)" + " WITHOUT ROWID" * (not hidden),
            f"INSERT INTO {table} ({', '.join(names)}, pk) SELECT *, rowid FROM old",
            "DROP TABLE old",
        )
    assert read(trace) == wanted
    monkeypatch.setattr(sqlite_file, "TWO_THREADS_FROM_BYTES", 0)
    assert read(trace) == wanted


@pytest.mark.usefixtures("in_blocks")
def test_reading_may_stop_in_the_middle(tmp_path: Path) -> None:
    file = table_of(tmp_path, range(60))
    some = iterate_blocks(file, ["x"], "t")
    assert len(next(some)[0]) == 7
    some.close()
    assert not file.active_reads
    file.close()


@pytest.mark.usefixtures("way")
def test_nothing_is_being_read_when_a_block_is_refused(trace: Path) -> None:
    """A connection that is closed while another thread reads on it takes the interpreter down."""
    execute(trace, f"UPDATE {schema.KERNEL} SET correlationId = 'x' WHERE rowid = 2")
    opened = NsysSqlite(trace)
    with pytest.raises(TraceError, match="holds a value that cannot be") as raised:
        opened.kernels(dict.fromkeys(opened.lanes()))
    assert raised.traceback  # which keeps whatever was not closed
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("nsys-read")]
    opened.close()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", ["trace #1%20?.sqlite", "späť.sqlite", b"odd\xff.sqlite"])
def test_a_path_of_any_bytes(tmp_path: Path, trace: Path, name: str | bytes) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + os.fsencode(name)))
    trace.rename(path)
    assert isinstance(read(path), tuple)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("closed", [True, False])
def test_a_log_of_writes_is_read_where_there_is_one(trace: Path, closed: bool) -> None:
    """And where there is none nothing is left beside the file."""
    writer = sqlite3.connect(trace)
    writer.execute("PRAGMA journal_mode = WAL")
    if closed:
        writer.close()
    before = sorted(trace.parent.iterdir())
    if not closed:
        writer.execute(f"UPDATE {schema.KERNEL} SET end = end + 1000000")
        writer.commit()
    found = read(trace)
    assert isinstance(found, tuple)
    assert {end >= 1_000_000 for own in found[1].values() for end in own[1]} == {not closed}
    if closed:
        assert sorted(trace.parent.iterdir()) == before
    writer.close()


@pytest.mark.usefixtures("way")
def test_a_locked_file_is_said_to_be(trace: Path) -> None:
    opened = NsysSqlite(trace)
    lanes = dict.fromkeys(opened.lanes())
    with closing(sqlite3.connect(trace, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TraceError, match="is locked by another process"):
            opened.kernels(lanes)
    assert len(opened.kernels(lanes)) == 6


def test_without_json_in_sqlite_rows_are_read(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = read(trace)
    force(monkeypatch, "blocks")
    monkeypatch.setattr(sqlite_columns, "COLUMN_AS_JSON", "no_such_function({})")
    assert read(trace) == wanted


numbers = st.integers(-5, 300)
damaged = st.one_of(st.text(max_size=3), st.binary(max_size=3), st.sampled_from([0.5, 2.5, -1e300, 1e300]))


@given(st.sets(numbers, min_size=1), st.lists(st.one_of(numbers, st.none(), damaged)), st.sampled_from(["INTEGER", ""]))
def test_of_ids_in_runs_or_apart_no_other_number_passes(ids: set[int], values: list[object], kind: str) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE TABLE rows (id {kind})")
        database.executemany("INSERT INTO rows VALUES (?)", [(value,) for value in values])
        everything = [value for (value,) in database.execute("SELECT id FROM rows")]  # "7" is 7 where whole numbers are
        found = [
            value
            for (value,) in database.execute(
                f"SELECT id FROM rows WHERE {sqlite_conditions.build_ids_condition('id', ids)}"
            )
        ]
    assert found == [value for value in everything if value is not None and (type(value) is not int or value in ids)]


def test_many_ids_apart_are_a_list() -> None:
    assert " IN (" not in sqlite_conditions.build_ids_condition("id", range(1_000))
    assert " IN (" in sqlite_conditions.build_ids_condition("id", range(0, 1_000, 2))


@pytest.mark.usefixtures("in_blocks")
def test_the_calls_of_a_whole_run_are_read_once_for_kernels_and_records(tmp_path: Path) -> None:
    process = (builder := TraceBuilder()).process(77)
    for i in range(20):
        process.kernel("kernel", 10 * i + 5, 10 * i + 9, launch_ns=10 * i)
    trace, statements = NsysSqlite(builder.write(tmp_path / "trace.sqlite")), list[str]()
    kernels = trace.kernels(dict.fromkeys(trace.lanes()))
    for number in range(2):
        trace.file.get_connection(number).set_trace_callback(statements.append)
    (calls,) = trace.launch_calls(kernels).values()
    records = trace.launch_records({lane.global_pid: None for lane in kernels}, kernels)
    trace.close()
    assert [*calls.start_ns] == [10 * i for i in range(20)]
    assert records is not None
    assert [(record.calls, record.unrecorded) for (record,) in records.values()] == [(20, 0)]
    assert sum(f'"{schema.RUNTIME}" WHERE rowid BETWEEN 1 AND 7 ' in sql for sql in statements) == 1
