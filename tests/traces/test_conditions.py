"""Do the conditions of SQL let through what they say, and every damaged row?"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.traces import sqlite_conditions

numbers = st.integers(-5, 300)
damaged = st.one_of(st.text(max_size=3), st.binary(max_size=3), st.sampled_from([0.5, 2.5, -1e300, 1e300]))


@given(st.sets(numbers, min_size=1), st.lists(st.one_of(numbers, st.none(), damaged)), st.sampled_from(["INTEGER", ""]))
def test_of_ids_in_runs_or_apart_no_other_number_passes(ids: set[int], values: list[object], kind: str) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE TABLE rows (id {kind})")
        database.executemany("INSERT INTO rows VALUES (?)", [(value,) for value in values])
        everything = [value for (value,) in database.execute("SELECT id FROM rows")]  # "7" is 7 where whole numbers are
        found = [
            value for (value,) in database.execute(f"SELECT id FROM rows WHERE {sqlite_conditions.one_of('id', ids)}")
        ]
    assert found == [value for value in everything if value is not None and (type(value) is not int or value in ids)]


def test_many_ids_apart_are_a_list() -> None:
    assert " IN (" not in sqlite_conditions.one_of("id", range(1_000))
    assert " IN (" in sqlite_conditions.one_of("id", range(0, 1_000, 2))
