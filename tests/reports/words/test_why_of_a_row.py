"""Does ``why:`` of a row tell its roots with amounts and what they leave, and never a sum twice?"""

from typing import Any

import pytest

from pytest_nsys.analysis.explain.breakdown_model import (
    AT_END,
    NEXT_STEP,
    BudgetChange,
    Change,
    ChangeKind,
    Explanation,
    RootCause,
    RowActivity,
    RowExplanation,
)
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.reports.words.cause_text import render_cause_lines
from pytest_nsys.reports.words.change_text import describe_cause

US = 1_000
MS = 1_000_000
COPY = RootCause(ChangeKind.NEW, RowActivity.COPY, "copy from device to device")
GONE = RootCause(ChangeKind.GONE, RowActivity.KERNEL, "gemm")
SLOW = RootCause(ChangeKind.LONGER, RowActivity.ALL, "")
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
WAITS = Change(RootCause(ChangeKind.WAITED, RowActivity.COLLECTIVE, NCCL), 0, 1 * MS, 3_500 * US, 3, 3, straggler=3)
IDLE = Change(RootCause(ChangeKind.LONGER, RowActivity.IDLE, "flash_fwd_kernel"), 0, 9 * US, 1_699 * US)
COVER = Change(RootCause(ChangeKind.GONE, RowActivity.COVER, "gemm"), 0, 1_800 * US, 0, 2, 0, exposed_kernel=NCCL)


def row(change_ns: int, cause: Change, *roots: Change, rank: int = 0) -> RowExplanation:
    moved = BudgetChange(((BudgetPart.COMPUTE, change_ns),), None, 0, change_ns)
    told = Explanation(change_ns, (cause,), change_ns - cause.change_ns, moved)
    return RowExplanation({"rank": rank}, told, roots, window_kernels=frozenset({NCCL, "gemm", "flash_fwd_kernel"}))


ROWS = {
    "the copy, not the kernel after it": (
        row(1_690 * US, IDLE, Change(COPY, 0, 0, 1_680 * US, 0, 6)),
        ["rank 0, +1.69 ms:", "  +1.68 ms  new copy from device to device (6 times)"],
    ),
    "a rank that others wait for": (
        row(2_500 * US, WAITS, Change(SLOW, 3, 17 * MS, 19_500 * US)),
        ["rank 0, +2.5 ms:", "   +2.5 ms  rank 3: all compute +15% (17 → 19.5 ms); rank 0 waits in AllReduce for it"],
    ),
    "a count, which is no time": (
        row(0, IDLE, Change(COPY, 0, 0, 1_680 * US, 0, 6)),
        ["rank 0:", "  +1.68 ms  new copy from device to device (6 times)"],
    ),
    "what hid it": (
        row(1_800 * US, COVER, Change(GONE, 0, 1_800 * US, 0, 2, 0)),
        ["rank 0, +1.8 ms:", "   +1.8 ms  kernel gemm is gone (2 times); it hid communication"],
    ),
    "and what is left": (
        row(2_000 * US, IDLE, Change(COPY, 0, 0, 1_680 * US, 0, 6)),
        ["rank 0, +2 ms:", "  +1.68 ms  new copy from device to device (6 times)", "   +320 us  not explained by this"],
    ),
    "or more than that": (
        row(1_000 * US, IDLE, Change(COPY, 0, 0, 1_680 * US, 0, 6)),
        [
            "rank 0, +1 ms:",
            "  +1.68 ms  new copy from device to device (6 times)",
            "   −680 us  hidden or made up for elsewhere",
        ],
    ),
    "of several ranks its own": (
        row(1_680 * US, IDLE, *(Change(COPY, rank, 0, 1_680 * US, 0, 6) for rank in (1, 0))),
        ["rank 0, +1.68 ms:", "  +1.68 ms  new copy from device to device (6 times)"],
    ),
    "a part by the short name that a root has": (
        row(1_800 * US, COVER),
        ["rank 0, +1.8 ms:", "   +1.8 ms  gemm hides 0 ms of AllReduce (was 1.8 ms): it is gone"],
    ),
    "a gap as a root": (
        row(1_690 * US, IDLE, IDLE),
        ["rank 0, +1.69 ms:", "  +1.69 ms  the GPU is idle before flash_fwd_kernel, already launched: 0.009 → 1.7 ms"],
    ),
    "without a root its parts": (
        row(1_690 * US, IDLE),
        ["rank 0, +1.69 ms:", "  +1.69 ms  the GPU is idle before flash_fwd_kernel, already launched: 0.009 → 1.7 ms"],
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_roots_of_a_row_with_amounts(name: str) -> None:
    told, lines = ROWS[name]
    assert render_cause_lines([told]) == lines


def test_all_parts_only_where_all_is_asked_for() -> None:
    told = row(1_690 * US, IDLE, Change(COPY, 0, 0, 1_680 * US, 0, 6))
    lines = render_cause_lines([told], verbose=True)
    assert lines[1] == "  +1.68 ms  new copy from device to device (6 times)"
    assert lines[2:] == [
        "in parts:",
        "  +1.69 ms  the GPU is idle before flash_fwd_kernel, already launched: 0.009 → 1.7 ms",
        "the window: compute +1.69 ms",
    ]


def test_ranks_of_which_the_same_is_so_are_told_together() -> None:
    slow = Change(SLOW, 3, 17 * MS, 19_500 * US)
    rows = [row(2_500 * US + rank * 40 * US, WAITS, slow, rank=rank) for rank in (2, 0, 1)]
    assert render_cause_lines(rows)[-1] == "the same: ranks 0–1 (+2.5 ms to +2.54 ms)"


def test_causes_that_make_up_for_one_another_are_not_told() -> None:
    less = IDLE._replace(baseline_ns=IDLE.current_ns, current_ns=IDLE.baseline_ns)
    told = row(0, IDLE)._replace(explanation=Explanation(10, (IDLE, less), 10))
    assert render_cause_lines([told]) == ["rank 0, +10 ns:"]


def cause(
    kind: ChangeKind, of: RowActivity, name: str, before: int, now: int, counts: tuple[int, int] = (2, 2), **more: Any
) -> Change:
    return Change(RootCause(kind, of, name), 0, before * US, now * US, *counts, **more)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (cause(ChangeKind.LONGER, RowActivity.KERNEL, "gemm", 400, 450), "gemm 400 → 450 us"),
        (
            cause(ChangeKind.OFTEN, RowActivity.KERNEL, "gemm", 400, 600, counts=(2, 3)),
            "gemm 400 → 600 us, 2 → 3 times",
        ),
        (cause(ChangeKind.NEW, RowActivity.KERNEL, "gemm", 0, 600, counts=(0, 3)), "new kernel gemm (3 times, 600 us)"),
        (cause(ChangeKind.GONE, RowActivity.KERNEL, "gemm", 6, 0, counts=(1, 0)), "kernel gemm is gone (once, 6 us)"),
        (cause(ChangeKind.ELSEWHERE, RowActivity.COLLECTIVE, "nccl", 0, 200), "nccl in the way of compute: 0 → 200 us"),
        (
            cause(ChangeKind.WAITED, RowActivity.COLLECTIVE, "nccl", 100, 350, straggler=3),
            "nccl waits for rank 3: 100 → 350 us",
        ),
        (cause(ChangeKind.LATER, RowActivity.HOST, "gemm", 0, 20), "the GPU waits for the host before gemm: 0 → 20 us"),
        (
            cause(ChangeKind.LATER, RowActivity.HOST, NEXT_STEP, 0, 20),
            "the GPU waits for the host between steps: 0 → 20 us",
        ),
        (
            cause(ChangeKind.LATER, RowActivity.HOST, AT_END, 0, 20),
            "the GPU waits for the host at the window's end: 0 → 20 us",
        ),
        (IDLE, "the GPU is idle before flash_fwd_kernel, already launched: 0.009 → 1.7 ms"),
        (cause(ChangeKind.LONGER, RowActivity.IDLE, AT_END, 5, 20), "the GPU is idle at the window's end: 5 → 20 us"),
        (
            cause(ChangeKind.LONGER, RowActivity.IDLE, "", 5, 20),
            "compute pauses between kernels, already launched: 5 → 20 us",
        ),
        (COVER, f"gemm hides 0 ms of {NCCL} (was 1.8 ms): it is gone"),
        (
            cause(ChangeKind.ELSEWHERE, RowActivity.COVER, "gemm", 300, 200, exposed_kernel="nccl"),
            "gemm hides 200 us of nccl (was 300 us)",
        ),
    ],
)
def test_a_part_of_a_change_in_words(told: Change, words: str) -> None:
    assert describe_cause(told, {}) == words
