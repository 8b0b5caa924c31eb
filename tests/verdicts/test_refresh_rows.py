"""Which rows of a series does each mode of a refresh write? Values that lie exactly on what decides."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import starmap
from pathlib import Path

import pytest

from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.metrics.table import MetricTable, Selector
from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.model import Row, Value
from pytest_nsys.gates.model import Aggregate, Assertion, BaselineLimit, Comparator, Location, Requirement, Tolerance
from pytest_nsys.gates.noise import compute_noise_bound
from pytest_nsys.stored.baselines.baseline_file import RowLabels, SeriesId, StoredSeries
from pytest_nsys.verdicts.refresh_modes import (
    MAX_ACCEPTED_RUNS,
    RefreshMode,
    RemeasuredSeries,
    RenewedSeries,
    renew_series,
)

SID = SeriesId("compute_ns", 1, "median", "anchor", "contained")
BY_10 = Tolerance(absolute={"ns": Fraction(10)})
MESH = {rank: {"pp": rank % 2, "dp": rank // 2} for rank in range(4)}


def reading(
    tolerance: Tolerance | None = BY_10,
    comparator: Comparator | None = Comparator.LE,
    *,
    aggregates: Sequence[Aggregate] = (),
    balance_across: str | None = None,
    rank: str | None = None,
    metric: str = "compute_ns",
) -> Assertion:
    """An assertion on the stored rows: ``compute_ns <= baseline + 10ns`` unless it says otherwise."""
    return Assertion(
        name="compute",
        full_name="compute",
        sentence="",
        location=Location(Path("g.nsys.yaml"), 1, 1),
        metric=metric,
        requirement=Requirement(comparator, BaselineLimit(tolerance), ""),
        where={} if rank is None else {"rank": Selector((rank,))},
        aggregates=tuple(aggregates),
        balance_across=balance_across,
    )


def by_rank(values: Sequence[Value | None]) -> dict[RowLabels, Value]:
    return {(rank,): value for rank, value in enumerate(values) if value is not None}


def renewed(
    mode: RefreshMode,
    now: Sequence[Value | None],
    runs: Sequence[Sequence[Value]],
    readers: Sequence[Assertion] = (reading(),),
    *,
    calibration: Sequence[Sequence[Value]] = (),
    each: Mapping[str, Sequence[Value | None]] | None = None,
    metric: str = "compute_ns",
) -> RenewedSeries:
    """What the mode makes of accepted runs, of which each has a value by rank, as of ``now``."""
    stored = None
    if runs:
        rows = {labels: [run[rank] for run in runs] for rank, labels in enumerate(by_rank(runs[0]))}
        stored = StoredSeries("ns", "lower", ("rank",), rows)
        if calibration:
            stored.calibration = {labels: [run[i] for run in calibration] for i, labels in enumerate(rows)}

    def table(rows: Mapping[RowLabels, Value]) -> MetricTable:
        mesh = {rank: coordinates for rank, coordinates in MESH.items() if (rank,) in rows}
        return MetricTable(
            ("rank",), sorted(starmap(Row, rows.items()), key=lambda row: str(row[0])), mesh, {"pp": 2, "dp": 2}
        )

    captures = {name: by_rank(values) for name, values in (each or {}).items()}
    return renew_series(mode, RemeasuredSeries(SID, METRICS[metric], by_rank(now), stored, readers, table, captures))


def values(found: RenewedSeries) -> list[list[Value]] | None:
    return None if found.series is None else [found.series.rows[key] for key in sorted(found.series.rows, key=str)]


# What moved


SCATTERED = [(180, 180), (190, 190), (200, 200), (210, 210), (220, 220)]
KEPT = [[180, 190, 200, 210, 220]] * 2
BY_1 = Tolerance(absolute={"ns": Fraction(1)})
OF_EACH = [reading(rank="0"), reading(BY_1, rank="1")]
"""Rank 0 may move by 10 ns, rank 1 by 1 ns; a row that no assertion reads is held to all of them."""
WITH_SUM = [reading(), reading(aggregates=[Aggregate("sum")])]
NINE = [(i, 10 * i) for i in range(1, 10)]
TEN = [*NINE, (10, 100)]


@pytest.mark.parametrize(
    ("mode", "now", "runs", "readers", "written"),
    [
        (RefreshMode.MOVED, (110, 200), [(100, 200)], [reading()], [[100], [200]]),  # exactly at its tolerance
        (RefreshMode.MOVED, (90, 200), [(100, 200)], [reading()], [[100], [200]]),
        (RefreshMode.MOVED, (111, 200), [(100, 200)], [reading()], [[111], [200]]),
        (RefreshMode.MOVED, (89, 200), [(100, 200)], [reading()], [[89], [200]]),
        (RefreshMode.MOVED, (Fraction(221, 2), 200), [(100, 200)], [reading()], [[Fraction(221, 2)], [200]]),
        (
            RefreshMode.MOVED,
            (101, 200),
            [(100, 200)],
            [reading(None, Comparator.EQ)],
            [[101], [200]],
        ),  # without a tolerance
        (RefreshMode.MOVED, (101, None, 300), [(100, 200)], [reading()], [[100], [300]]),  # one went, one came
        (RefreshMode.ALL, (101, 200), [(100, 200)], [reading()], [[101], [200]]),
        # Where the noise goes with the accepted runs every row is written: else the run that was just accepted would
        # fail against the medians that it was mixed with.
        (RefreshMode.MOVED, (215, 215), SCATTERED, [reading()], KEPT),
        (RefreshMode.MOVED, (900, 215), SCATTERED, [reading()], [[900], [215]]),
        (RefreshMode.MOVED, (225, 200), SCATTERED, [reading()], [[225], [200]]),  # noise excuses twice the tolerance
        (RefreshMode.MOVED, (105, 205, 300), [(100, 200, 300)], OF_EACH, [[100], [205], [300]]),
        (RefreshMode.MOVED, (105, 201, 302), [(100, 200, 300)], OF_EACH, [[100], [200], [302]]),
        # Where an aggregate leaves its limit every row is written: each moved by 6 of 10 ns, the sum by 12.
        (RefreshMode.MOVED, (106, 206), [(100, 200)], WITH_SUM, [[106], [206]]),
        (RefreshMode.MOVED, (105, 205), [(100, 200)], WITH_SUM, [[100], [200]]),  # exactly at it
        (RefreshMode.MOVED, (94, 194), [(100, 200)], WITH_SUM, [[94], [194]]),
        # Ten accepted runs are kept, and the oldest makes room.
        (RefreshMode.ACCEPT_RUN, (50, 60), NINE, [reading()], [[*range(1, 10), 50], [*range(10, 100, 10), 60]]),
        (RefreshMode.ACCEPT_RUN, (50, 60), TEN, [reading()], [[*range(2, 11), 50], [*range(20, 101, 10), 60]]),
    ],
)
def test_which_rows_are_written(
    mode: RefreshMode,
    now: Sequence[Value | None],
    runs: Sequence[Sequence[Value]],
    readers: Sequence[Assertion],
    written: list[list[Value]],
) -> None:
    assert MAX_ACCEPTED_RUNS == 10
    assert values(renewed(mode, now, runs, readers)) == written


@pytest.mark.parametrize(("shift", "moved"), [(0, False), (1, True), (-1, True)])
def test_a_row_exactly_at_its_noise_has_not_moved(shift: int, moved: bool) -> None:
    """Both rows are judged together, which makes the bound of each wider."""
    calibration = [(97, 200), (99, 200), (100, 200), (101, 200), (103, 200)]
    noise = compute_noise_bound([100], [run[0] for run in calibration], row_count=2)
    assert noise is not None
    assert 10 < noise < 20  # beyond its tolerance, and within twice that
    now = 100 + noise + shift if shift >= 0 else 100 - noise + shift
    found = renewed(RefreshMode.MOVED, (now, 200), [(100, 200)], calibration=calibration)
    assert values(found) == [[now if moved else 100], [200]]


@pytest.mark.parametrize(("runs", "note"), [(1, ()), (2, ("compute_ns: 2 accepted runs were replaced by one",))])
def test_who_replaces_several_accepted_runs_says_so(runs: int, note: tuple[str, ...]) -> None:
    for mode in (RefreshMode.MOVED, RefreshMode.ALL):
        assert renewed(mode, (500, 200), [(100, 200)] * runs).notes == note
    unchanged = renewed(RefreshMode.MOVED, (100, 200), [(100, 200)] * runs)
    assert (values(unchanged), unchanged.notes) == ([[100] * runs, [200] * runs], ())


# Runs beside each other


@pytest.mark.parametrize(
    ("now", "why"), [((1, 2, 3), "rank 2 is new, so"), ((1, None), "rank 1 is gone, so"), ((1, None, 3), "rank 2 is")]
)
def test_an_accepted_run_has_the_rows_of_the_others(now: tuple[int | None, ...], why: str) -> None:
    with pytest.raises(BaselineError, match=why):
        renewed(RefreshMode.ACCEPT_RUN, now, [(1, 2)])


def test_without_a_baseline_every_row_is_written() -> None:
    for mode in (RefreshMode.MOVED, RefreshMode.ALL, RefreshMode.ACCEPT_RUN):
        assert values(renewed(mode, (1, 2), [])) == [[1], [2]]


# A calibration


TRACES = {f"a{k}": (100 + k, 200 - k) for k in range(12)}


def test_a_calibration_keeps_every_trace_and_is_the_first_baseline() -> None:
    found = renewed(RefreshMode.CALIBRATE, (1, 2), [], each=TRACES).series
    assert found is not None
    assert found.calibration == {(0,): [100 + k for k in range(12)], (1,): [200 - k for k in range(12)]}
    assert found.rows == {(0,): [100 + k for k in range(2, 12)], (1,): [200 - k for k in range(2, 12)]}


def test_a_calibration_leaves_the_accepted_runs_alone() -> None:
    found = renewed(RefreshMode.CALIBRATE, (1, 2), [(7, 8)], each=TRACES).series
    assert found is not None
    assert found.rows == {(0,): [7], (1,): [8]}
    assert found.calibration[(1,)] == [200 - k for k in range(12)]


def test_a_calibration_needs_the_same_rows_in_all_traces_and_in_the_baseline() -> None:
    with pytest.raises(BaselineError, match="rank 1 is not in b, and is in another trace"):
        renewed(RefreshMode.CALIBRATE, (1, 2), [], each={"a": (1, 2), "b": (1,)})
    with pytest.raises(BaselineError, match="rank 2 is not in the traces: refresh the baseline first"):
        renewed(RefreshMode.CALIBRATE, (1, 2), [(1, 2, 3)], each=TRACES)
    with pytest.raises(BaselineError, match="rank 1 is not in the stored baseline: refresh the baseline first"):
        renewed(RefreshMode.CALIBRATE, (1, 2), [(1,)], each=TRACES)


def test_rows_that_stay_keep_what_their_noise_was_measured_on() -> None:
    noise = [(80, 200), (90, 200), (100, 200), (110, 200), (120, 200)]
    found = renewed(RefreshMode.ALL, (500, None), [(100, 200)], calibration=noise).series
    assert found is not None
    assert found.calibration == {(0,): [80, 90, 100, 110, 120]}


def test_a_series_of_other_dimensions_is_refused() -> None:
    stored = StoredSeries("ns", "lower", ("rank", "stage"), {(0, "stage2_f"): [1]})
    other = StoredSeries("count", "lower", ("rank",), {(0,): [1]})
    for each in (stored, other):
        measured = RemeasuredSeries(
            SID, METRICS["compute_ns"], {(0,): 1}, each, [], lambda _: MetricTable(("rank",), [], {})
        )
        with pytest.raises(BaselineError, match="compute_ns is stored with other dimensions or another unit"):
            renew_series(RefreshMode.ALL, measured)
