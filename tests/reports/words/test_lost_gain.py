"""How does it read that a kernel's gain did not reach the claimed time?"""

import pytest

from pytest_nsys.analysis.explain.breakdown_model import (
    AT_END,
    NEXT_STEP,
    Change,
    ChangeKind,
    LostGain,
    RootCause,
    RowActivity,
)
from pytest_nsys.reports.words.change_text import describe_lost_gain

GAIN = Change(RootCause(ChangeKind.SHORTER, RowActivity.KERNEL, "flash_fwd_kernel"), 0, 13_700_000, 9_600_000, 4, 4)


def taken_by(activity: RowActivity, name: str, before_ns: int = 100_000, straggler: int | None = None) -> Change:
    count = int(before_ns > 0)
    return Change(RootCause(ChangeKind.LONGER, activity, name), 0, before_ns, 4_000_000, count, 1, straggler=straggler)


@pytest.mark.parametrize(
    ("metric", "change_ns", "instead", "text"),
    [
        (
            "step_time_ns",
            -200_000,
            taken_by(RowActivity.COLLECTIVE, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
            "the step 200 us: it waits in AllReduce instead",
        ),
        ("step_time_ns", -200_000, None, "the step 200 us"),
        ("period_ns", 0, taken_by(RowActivity.HOST, "gemm"), "the step unchanged: the GPU waits for the host instead"),
        (
            "window_ns",
            300_000,
            taken_by(RowActivity.KERNEL, "gemm"),
            "the window 300 us longer: gemm takes longer instead",
        ),
        ("compute_ns", -1_000, taken_by(RowActivity.KERNEL, "gemm", 0), "compute_ns 1 us: gemm runs instead"),
        (
            "window_ns",
            0,
            taken_by(RowActivity.IDLE, "gemm"),
            "the window unchanged: the GPU is idle before gemm instead",
        ),
        (
            "window_ns",
            0,
            taken_by(RowActivity.IDLE, AT_END),
            "the window unchanged: the GPU is idle until the window's end instead",
        ),
        (
            "window_ns",
            0,
            taken_by(RowActivity.IDLE, NEXT_STEP),
            "the window unchanged: the GPU is idle until the next step instead",
        ),
        (
            "step_time_ns",
            -200_000,
            taken_by(RowActivity.RANK, "", straggler=3),
            "the step 200 us: rank 3 was the slowest before",
        ),
    ],
)
def test_the_kernel_is_named_with_its_gain_and_what_takes_the_time(
    metric: str, change_ns: int, instead: Change | None, text: str
) -> None:
    assert describe_lost_gain(LostGain(metric, GAIN, change_ns, instead)) == (
        f"flash_fwd_kernel 30% shorter, 4.1 ms; {text}"
    )


@pytest.mark.parametrize(
    ("count", "text"),
    [(2, "flash_fwd_kernel runs 2 times instead of 4"), (0, "flash_fwd_kernel is gone (4 times)")],
)
def test_fewer_launches_are_no_shorter_kernel(count: int, text: str) -> None:
    gain = GAIN._replace(current_ns=6_850_000 if count else 0, current_count=count)
    assert describe_lost_gain(LostGain("step_time_ns", gain, 0, None)).startswith(f"{text}, ")
