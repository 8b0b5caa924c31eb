"""Do levels hold until the next one, and are samples those of a span? Held against time counted tick by tick."""

from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.core.tables import ALWAYS_NS, Series, sum_levels

TIMES = st.integers(0, 12)
SERIES = st.lists(st.tuples(TIMES, st.integers(0, 9)), max_size=6).map(
    lambda pairs: Series.from_time_value_pairs(sorted_by_time(pairs))
)


def sorted_by_time(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(pairs, key=lambda pair: pair[0])


def level_at(series: Series, time: int) -> int | None:
    """The last level that began by then."""
    begun = [value for at, value in zip(*series, strict=True) if at <= time]
    return begun[-1] if begun else None


@given(SERIES, TIMES, TIMES)
def test_levels_of_a_span(series: Series, one: int, other: int) -> None:
    low, high = sorted((one, other))
    begins = {value for at, value in zip(*series, strict=True) if low <= at <= high}
    holds = {level_at(series, low)} - {None} if not {at for at in series.time_ns if at == low} else set()
    assert set(series.select_levels(low, high).value) == begins | holds


@given(SERIES, TIMES, TIMES)
def test_samples_of_a_span(series: Series, one: int, other: int) -> None:
    low, high = sorted((one, other))
    own = [(at, value) for at, value in zip(*series, strict=True) if low <= at <= high]
    assert series.select_between(low, high) == Series.from_time_value_pairs(own)


@given(st.lists(SERIES, max_size=3), TIMES)
def test_a_sum_of_levels_is_theirs_at_every_moment(each: list[Series], time: int) -> None:
    begun = [level for one in each if (level := level_at(one, time)) is not None]
    assert level_at(sum_levels(each), time) == (sum(begun) if begun else None)


def test_a_level_that_was_always_there_is_before_every_time() -> None:
    assert list(Series.from_time_value_pairs([(ALWAYS_NS, 7), (5, 9)]).select_levels(-(1 << 62), 4).value) == [7]
