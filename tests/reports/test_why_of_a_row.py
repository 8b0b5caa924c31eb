"""Does ``why:`` of a row tell its roots with amounts and what they leave, and never a sum twice?"""

from __future__ import annotations

import pytest

from pytest_nsys.analysis.budget_facts import BudgetPart
from pytest_nsys.analysis.explained import BudgetChange, Cause, CauseKind, Explained, Explanation
from pytest_nsys.analysis.root_facts import Root, RootChange, RootKind, RootOf
from pytest_nsys.reports.causes import cause_lines, cause_words

US = 1_000
MS = 1_000_000
COPY = Root(RootKind.APPEARED, RootOf.COPY, "copy from device to device")
GONE = Root(RootKind.VANISHED, RootOf.KERNEL, "gemm")
SLOW = Root(RootKind.LONGER, RootOf.ALL, "")
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
WAITS = Cause(CauseKind.EXPOSED, NCCL, 2_500 * US, 1 * MS, 3_500 * US, 3, 3, straggler=3)
IDLE = Cause(CauseKind.IDLE, "flash_fwd_kernel", 1_690 * US, 9 * US, 1_699 * US)
COVER = Cause(CauseKind.COVER_VANISHED, "gemm", 1_800 * US, 1_800 * US, 0, 2, 0, exposes=NCCL)


def row(change_ns: int, cause: Cause, *roots: RootChange, rank: int = 0) -> Explained:
    moved = BudgetChange(((BudgetPart.COMPUTE, change_ns),), None, 0, change_ns)
    told = Explanation(change_ns, (cause,), change_ns - cause.change_ns, moved)
    return Explained({"rank": rank}, told, roots, beside=frozenset({NCCL, "gemm", "flash_fwd_kernel"}))


ROWS = {
    "the copy, not the kernel after it": (
        row(1_690 * US, IDLE, RootChange(COPY, 0, 0, 1_680 * US, 0, 6)),
        ["rank 0, +1.69 ms:", "  +1.68 ms  new copy from device to device (6 times)"],
    ),
    "a rank that others wait for": (
        row(2_500 * US, WAITS, RootChange(SLOW, 3, 17 * MS, 19_500 * US)),
        ["rank 0, +2.5 ms:", "   +2.5 ms  rank 3: all compute +15% (17 → 19.5 ms); rank 0 waits in AllReduce for it"],
    ),
    "a count, which is no time": (
        row(0, IDLE, RootChange(COPY, 0, 0, 1_680 * US, 0, 6)),
        ["rank 0:", "  +1.68 ms  new copy from device to device (6 times)"],
    ),
    "what hid it": (
        row(1_800 * US, COVER, RootChange(GONE, 0, 1_800 * US, 0, 2, 0)),
        ["rank 0, +1.8 ms:", "   +1.8 ms  kernel gemm is gone (2 times); it hid communication"],
    ),
    "and what is left": (
        row(2_000 * US, IDLE, RootChange(COPY, 0, 0, 1_680 * US, 0, 6)),
        [
            "rank 0, +2 ms:",
            "  +1.68 ms  new copy from device to device (6 times)",
            "   +320 us  not explained by this",
        ],
    ),
    "or more than that": (
        row(1_000 * US, IDLE, RootChange(COPY, 0, 0, 1_680 * US, 0, 6)),
        [
            "rank 0, +1 ms:",
            "  +1.68 ms  new copy from device to device (6 times)",
            "   −680 us  hidden or made up for elsewhere",
        ],
    ),
    "of several ranks its own": (
        row(1_680 * US, IDLE, *(RootChange(COPY, rank, 0, 1_680 * US, 0, 6) for rank in (1, 0))),
        ["rank 0, +1.68 ms:", "  +1.68 ms  new copy from device to device (6 times)"],
    ),
    "without a root its parts": (
        row(1_690 * US, IDLE),
        [
            "rank 0, +1.69 ms:",
            "  +1.69 ms  the GPU is idle before flash_fwd_kernel, already launched, 0.009 ms → 1.7 ms",
        ],
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_roots_of_a_row_with_amounts(name: str) -> None:
    told, lines = ROWS[name]
    assert cause_lines([told]) == lines


def test_all_parts_only_where_all_is_asked_for() -> None:
    told = row(1_690 * US, IDLE, RootChange(COPY, 0, 0, 1_680 * US, 0, 6))
    lines = cause_lines([told], verbose=True)
    assert lines[1] == "  +1.68 ms  new copy from device to device (6 times)"
    assert lines[2:] == [
        "in parts:",
        "  +1.69 ms  the GPU is idle before flash_fwd_kernel, already launched, 0.009 ms → 1.7 ms",
        "the window: compute +1.69 ms",
    ]


def test_ranks_of_which_the_same_is_so_are_told_together() -> None:
    slow = RootChange(SLOW, 3, 17 * MS, 19_500 * US)
    rows = [row(2_500 * US + rank * 40 * US, WAITS, slow, rank=rank) for rank in (2, 0, 1)]
    assert cause_lines(rows)[-1] == "the same: ranks 0–1 (+2.5 ms to +2.54 ms)"


def test_causes_that_make_up_for_one_another_are_not_told() -> None:
    less = IDLE._replace(change_ns=-IDLE.change_ns)
    told = row(0, IDLE)._replace(explanation=Explanation(10, (IDLE, less), 10))
    assert cause_lines([told]) == ["rank 0, +10 ns:"]


def test_what_is_no_longer_overlapped_has_a_name() -> None:
    assert cause_words(COVER) == f"gemm now overlaps 0 ms of {NCCL} (was 1.8 ms): it is gone (2 → 0 kernels)"
