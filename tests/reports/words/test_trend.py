"""Is a trend the values with what is known of them, and do rows of one unit compare?"""

from fractions import Fraction
from pathlib import Path

import pytest

from pytest_nsys.reports.words.trend import MIN_SPAN, Trend, TrendPoint, align_scales, build_trend, describe_shift
from pytest_nsys.stored.history.database import format_measurement
from pytest_nsys.stored.history.stored_runs import find_track, load_history
from tests.support.histories import DIGEST, SID, entry, nightly


def trend(*values: int | Fraction, unit: str = "ns") -> Trend:
    return Trend("", "", unit, tuple(TrendPoint(value, "") for value in values))


def test_a_row_is_as_tall_as_its_change_beside_others_of_its_unit() -> None:
    small, large, share = align_scales([trend(1000, 1000, 999), trend(20, 20, 60), trend(Fraction(1, 2), unit="%")])
    assert (large.low, large.high) == (Fraction(39, 2), 60)  # from 2.5 % below its median to the highest, twice above
    assert (small.low, small.high) == (975, 3000)
    assert (share.low, share.high) == (Fraction(1, 2) - MIN_SPAN / 2, Fraction(1, 2) + MIN_SPAN / 2)


def test_a_row_that_is_mostly_0_leaves_the_others_their_height() -> None:
    """There is no part of nothing: its scale is its largest value."""
    none, other = align_scales([trend(0, 0, 0, 500_000), trend(1000, 1000, 1500, 1500)])
    assert (none.low, none.high) == (-100_000, 500_000)
    assert (other.low, other.high) == (1000, 2500)
    (still,) = align_scales([trend(0, 0)])
    assert still.low < 0 < still.high


def test_the_run_of_now_stands_behind_the_stored_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"measured": format_measurement(SID), "row": "rank 0 stage stage2_f"}
    runs = [entry(f"{us}000", verdict={**own, "limit_value": "210000"}) for us in (200, 201, 199, 200)]
    runs[1].verdicts["one"] |= {"outcome": "refresh", "message": "as wanted"}
    past = load_history(nightly(tmp_path / "perf.db", monkeypatch, runs))
    track = find_track(past, "gate.nsys.yaml", DIGEST, SID, (0, "stage2_f"))
    assert track is not None
    found = build_trend(track, past.verdicts, "exposed", TrendPoint(260_000, "this run", limit=210_000))
    assert [moment.value for moment in found.points] == [200_000, 201_000, 199_000, 200_000, 260_000]
    assert [moment.acceptance_reason for moment in found.points] == [None, "as wanted", None, None, None]
    assert {moment.limit for moment in found.points} == {210_000}
    (shift,) = found.shifts
    assert describe_shift(found, shift) == "200 us → 260 us (+30%) at this run"
    assert find_track(past, "gate.nsys.yaml", DIGEST, SID, (7, "stage2_f")) is None


def test_of_several_limits_the_nearest_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that a tight limit made red is not shown beside a loose one that stands before it."""
    own = {"measured": format_measurement(SID), "row": "rank 0 stage stage2_f"}
    runs = [entry("300000", verdict={**own, "limit_value": "10000000", "margin": "9700000"})]
    runs[0].verdicts["unknown"] = {**runs[0].verdicts["one"], "limit_value": "1", "margin": None}
    runs[0].verdicts["tight"] = {**runs[0].verdicts["one"], "limit_value": "210000", "margin": "-90000"}
    past = load_history(nightly(tmp_path / "perf.db", monkeypatch, runs))
    track = find_track(past, "gate.nsys.yaml", DIGEST, SID, (0, "stage2_f"))
    assert track is not None
    assert [moment.limit for moment in build_trend(track, past.verdicts).points] == [210_000]
