"""Are the same rows found in a large table by its zones as by a pass of all of it, in whatever order they stand?"""

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pytest_nsys.core.model import Interval
from pytest_nsys.traces.sqlite.conditions import IMPOSSIBLE_TIMES, build_bounds_condition, build_touch_condition
from pytest_nsys.traces.sqlite.file import SqliteFile
from pytest_nsys.traces.sqlite.zones import find_impossible_rows, find_starting_rows, find_touching_rows

ROWS = 2_000
SPAN = (40_000, 40_500)


@pytest.fixture(autouse=True)
def small_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_nsys.traces.sqlite.zones.ZONE_ROWS", 64)
    monkeypatch.setattr("pytest_nsys.traces.sqlite.zones.FEWEST_ZONED_ROWS", ROWS // 2)


def written(path: Path, rows: list[tuple[object, object]], first: int = 1) -> Path:
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE TABLE work (start INTEGER, end INTEGER)")
        numbered = [(number, *row) for number, row in enumerate(rows, first)]
        file.executemany("INSERT INTO work (rowid, start, end) VALUES (?, ?, ?)", numbered)
    return path


def in_order() -> list[tuple[object, object]]:
    return [(100 * n, 100 * n + 50) for n in range(ROWS)]


def shuffled() -> list[tuple[object, object]]:
    rows = in_order()
    random.Random(1).shuffle(rows)
    return rows


def with_odd_rows() -> list[tuple[object, object]]:
    rows = in_order()
    rows[7], rows[700], rows[900], rows[1_500] = (None, 5), ("text", 70_050), (1, b"blob"), (150_000, 3)
    rows[1_900] = (0, 0)
    return rows


@pytest.fixture(params=[in_order, shuffled, with_odd_rows])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteFile]:
    with closing(SqliteFile(written(tmp_path / "work.sqlite", request.param(), first=-3))) as found:
        yield found


@pytest.mark.parametrize(
    ("find", "where"),
    [
        (lambda file: find_starting_rows(file, "work", SPAN), build_bounds_condition("start", *SPAN)),
        (lambda file: find_touching_rows(file, "work", SPAN), build_touch_condition(SPAN)),
        (lambda file: find_impossible_rows(file, "work"), IMPOSSIBLE_TIMES),
    ],
)
def test_zones_hold_every_row_that_a_whole_pass_finds(
    file: SqliteFile, find: Callable[[SqliteFile], list[Interval] | None], where: str
) -> None:
    whole = [*file.scan_rows("rowid", "work", where)]
    assert [*file.scan_rows("rowid", "work", where, row_id_ranges=find(file))] == whole


def test_few_rows_of_a_table_in_order_are_looked_at(tmp_path: Path) -> None:
    with closing(SqliteFile(written(tmp_path / "work.sqlite", in_order()))) as file:
        found = find_starting_rows(file, "work", SPAN)
        assert found is not None
        (_, *some) = found
        assert sum(last - first + 1 for first, last in some) == 64


def test_a_small_table_and_one_in_no_order_are_passed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SqliteFile(written(tmp_path / "work.sqlite", shuffled()))) as file:
        assert find_starting_rows(file, "work", (0, 200_000)) is None
        monkeypatch.setattr("pytest_nsys.traces.sqlite.zones.FEWEST_ZONED_ROWS", ROWS + 1)
        assert find_starting_rows(file, "work", SPAN) is None


def test_ids_with_gaps_are_not_counted_through(tmp_path: Path) -> None:
    path = written(tmp_path / "work.sqlite", in_order())
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO work (rowid, start, end) VALUES (?, ?, ?)", (1 << 40, *SPAN))
    with closing(SqliteFile(path)) as file:
        assert find_starting_rows(file, "work", SPAN) is None
        assert [*file.scan_rows("rowid", "work", build_bounds_condition("start", *SPAN), row_id_ranges=None)][-1] == (
            1 << 40,
        )
