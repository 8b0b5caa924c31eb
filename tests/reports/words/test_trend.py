"""Is a trend the values with what is known of them, and do rows of one unit compare?"""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from pytest_nsys.reports.words.trend import MIN_SPAN, Trend, TrendPoint, build_trend, describe_shift, fit_axis
from pytest_nsys.stored.history.database import format_measurement
from pytest_nsys.stored.history.stored_runs import find_track, load_history
from tests.support.histories import DIGEST, SID, entry, nightly


def trend(*values: int | Fraction, unit: str = "ns") -> Trend:
    return Trend("", "", unit, tuple(TrendPoint(value, "") for value in values))


def test_each_row_has_an_axis_over_its_values_and_its_limit() -> None:
    """A step of 46.5 to 53.7 ms over a limit of 48.8 fills its picture, whatever other rows do."""
    moved = Trend("", "", "ns", tuple(TrendPoint(value, "", limit=488) for value in (465, 466, 464, 537)))
    axis = fit_axis(moved)
    assert (axis.low, axis.high) == (Fraction("453.8625"), 537)
    share = fit_axis(trend(Fraction(1, 2), unit="%"))
    assert (share.low, share.high) == (Fraction(1, 2) - MIN_SPAN / 2, Fraction(1, 2) + MIN_SPAN / 2)
    below = fit_axis(replace(moved, points=tuple(replace(point, limit=400) for point in moved.points)))
    assert (below.low, below.high) == (400, 537)


def test_a_limit_far_away_leaves_the_values_their_height() -> None:
    far = Trend("", "", "ns", tuple(TrendPoint(value, "", limit=9_000) for value in (1_000, 1_100)))
    assert fit_axis(far).high == 1_100


def test_a_row_of_zeros_has_an_axis() -> None:
    axis = fit_axis(trend(0, 0))
    assert axis.low < 0 < axis.high


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
