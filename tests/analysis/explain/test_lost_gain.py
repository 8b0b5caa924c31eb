"""Which kernel gained without the claimed time gaining as much, and what takes its time?"""

from collections.abc import Sequence

import pytest

from pytest_nsys.analysis.explain.breakdown_model import Change, ChangeKind, RootCause, RowActivity
from pytest_nsys.analysis.explain.causes import find_lost_gain

STEP_NS = 10_000_000


def change(name: str, before_ns: int, now_ns: int, activity: RowActivity = RowActivity.KERNEL) -> Change:
    kind = ChangeKind.SHORTER if now_ns < before_ns else ChangeKind.LONGER
    return Change(RootCause(kind, activity, name), 0, before_ns, now_ns, 1, 1)


FLASH = change("flash", 4_000_000, 3_000_000)
WAITS = change("AllReduce", 100_000, 1_050_000, RowActivity.COLLECTIVE)
HALF = change("AllReduce", 100_000, 600_000, RowActivity.COLLECTIVE)
GEMM = change("gemm", 2_000_000, 2_490_000)


@pytest.mark.parametrize(
    ("causes", "gain", "instead"),
    [
        ([FLASH, WAITS], "flash", "AllReduce"),
        ([change("adam", 1_000_000, 900_000), FLASH, GEMM, HALF], "flash", "AllReduce"),  # the largest of each
        ([FLASH], None, None),  # all of it is in the change
        ([FLASH, HALF], None, None),  # half of it is
        ([FLASH, change("AllReduce", 0, 500_002, RowActivity.COLLECTIVE)], "flash", "AllReduce"),
        ([FLASH, *(change(f"k{n}", 0, 300_000) for n in range(3))], "flash", None),  # nothing takes most of it
        ([WAITS], None, None),  # no kernel gained
        ([change("AllReduce", 4_000_000, 3_000_000, RowActivity.COLLECTIVE), GEMM, GEMM], None, None),
        ([change("flash", 4_000_000, 3_921_000), WAITS], None, None),  # 2 % of its own time is noise
        ([change("flash", 200_000, 101_000), WAITS], None, None),  # nobody would see 1 % of the step
        ([change("flash", 200_000, 100_000), WAITS], "flash", "AllReduce"),
    ],
)
def test_the_gain_that_less_than_half_of_reaches_the_claimed_time_is_found(
    causes: Sequence[Change], gain: str | None, instead: str | None
) -> None:
    change_ns = sum(cause.change_ns for cause in causes)
    found = find_lost_gain("step_time_ns", causes, change_ns, STEP_NS)
    if found is None:
        assert gain is None
        return
    assert (found.metric, found.change_ns, found.gain.root.name) == ("step_time_ns", change_ns, gain)
    assert (found.instead.root.name if found.instead is not None else None) == instead
