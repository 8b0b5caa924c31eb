"""Are the times without compute drawn as what they were, for as long as they were, with who waited for whom?"""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.budget import timeline
from pytest_nsys.analysis.budget.budget import GapPart
from pytest_nsys.analysis.budget.timeline import Timeline, TimelineGap, build_timeline, merge_short_gaps
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from tests.support.measure import captures
from tests.support.one_process import OneProcess


def drawn(path: Path) -> Timeline:
    with captures(path) as run:
        (window,) = run.runs[0].load_windows(run.make_spec("median")).windows_by_rank[0]
        return build_timeline(window)


def told(found: Timeline) -> list[tuple[int, int, BudgetPart]]:
    """Start, length and class of each part."""
    return [(part.start_ns, part.end_ns - part.start_ns, part.part) for part, *_ in found.gaps]


def waits(gpu: OneProcess) -> None:
    """A window of 100: a late launch at 20, a barrier that blocks from 40 to 50, a copy from 60 to 66, and no more."""
    gpu.range("step", 0, 100)
    gpu.range("layer00.stage2_f", 11, 14)
    gpu.kernel("gemm", 0, 10, launch_ns=-20, launch_length_ns=5)
    gpu.kernel("late", 22, 40, launch_ns=12, launch_length_ns=8)
    gpu.kernel("ncclDevKernel_AllReduce", 40, 50, launch_ns=13, launch_length_ns=1)
    gpu.kernel("gemm", 51, 60, launch_ns=15, launch_length_ns=1)
    gpu.memcpy(60, 66, launch_ns=17)
    gpu.kernel("gelu", 66, 90, launch_ns=18, launch_length_ns=1)


def test_each_part_of_a_gap_has_its_class_and_says_who_waited(gpu: OneProcess) -> None:
    waits(gpu)
    found = drawn(Path(gpu))
    parts = [part for part, *_ in found.gaps]
    names = [part.waiting_kernel.name if part.waiting_kernel else None for part in parts]
    assert [(*each, name) for each, name in zip(told(found), names, strict=True)] == [
        (10, 10, BudgetPart.STARVED, "late"),
        (20, 2, BudgetPart.STALLED, "late"),
        (40, 10, BudgetPart.COLLECTIVE, "gemm"),
        (50, 1, BudgetPart.STALLED, "gemm"),
        (60, 6, BudgetPart.COPY, "gelu"),
        (90, 10, BudgetPart.STARVED, None),
    ]
    assert [part.producer and part.producer.name for part in parts] == [
        *(None, None, "ncclDevKernel_AllReduce", None, "copy", None)
    ]
    assert parts[0].waiting_kernel is not None
    assert parts[0].waiting_kernel.stage == "stage2_f"
    assert {gap.part_count for gap in found.gaps} == {1}
    assert [lane.name for lane in found.lanes] == ["stream 7", "copies"]
    assert [gap.arrow_lanes for gap in found.gaps] == [None, None, (0, 0), None, (1, 0), None]
    assert found.budget is not None
    assert found.budget.compute_absent_ns == sum(length for _, length, _ in told(found))


def test_kernels_of_one_short_name_are_told_apart_in_bars_gaps_and_budget(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    entry = "void ck_tile::kentry<2, ck_tile::{}>(int)"
    for start, what, launch in ((0, "Fmha", -20), (30, "Norm", 25), (60, "Fmha", 55)):
        gpu.kernel("kentry", start, start + 10, demangled=entry.format(what), launch_ns=launch, launch_length_ns=1)
    found = drawn(Path(gpu))
    assert [bar.name for bar in found.lanes[0].bars] == ["Fmha", "Norm", "Fmha"]
    named = [part.waiting_kernel.name for part, *_ in found.gaps if part.waiting_kernel is not None]
    assert [*dict.fromkeys(named)] == ["Norm", "Fmha"]
    assert found.budget is not None
    starved = {each.waiting: each.ns for each in found.budget.before if each.part == BudgetPart.STARVED}
    assert starved == {entry.format("Norm"): 16, entry.format("Fmha"): 16}


def test_stalled_time_with_communication_is_told_apart(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 0, 10, launch_ns=-20, launch_length_ns=1)
    for start, end in ((5, 20), (40, 60), (50, 70)):
        gpu.kernel("ncclDevKernel_SendRecv", start, end, stream=20 + start, launch_ns=start - 15)
    gpu.kernel("gemm", 90, 100, launch_ns=-10, launch_length_ns=1)
    found = drawn(Path(gpu))
    assert told(found) == [
        (10, 10, BudgetPart.BESIDE),
        (20, 20, BudgetPart.STALLED),
        (40, 30, BudgetPart.BESIDE),
        (70, 20, BudgetPart.STALLED),
    ]
    assert found.budget is not None
    assert found.budget.blocking_comm_max_ns == 40


def test_of_many_parts_short_ones_take_as_long_as_they_did(gpu: OneProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MIN_MERGED_KERNELS", 10)
    monkeypatch.setattr(timeline, "GAP_CELLS", 10)
    gpu.range("step", 0, 1000)
    for n in range(100):
        gpu.kernel("gemm", 10 * n, 10 * n + 8, launch_ns=10 * n - 5 + n % 2 * 14)
    found = drawn(Path(gpu))
    assert found.budget is not None
    assert len(found.gaps) <= 20
    time: Counter[BudgetPart] = Counter()
    for _, length, part in told(found):
        time[part] += length
    assert time == {part: ns for part, ns in found.budget.parts.items() if ns and part is not BudgetPart.COMPUTE}


spans = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30), st.sampled_from(list(BudgetPart))), max_size=30)


@given(spans, st.integers(1, 25))
def test_cells_keep_the_time_of_each_class(parts: list[tuple[int, int, BudgetPart]], cell: int) -> None:
    at, each = 0, list[TimelineGap]()
    for room, length, part in parts:
        at += room
        each.append(TimelineGap(GapPart(at, at + length, part)))
        at += length
    found = list(merge_short_gaps(each, cell))
    before: Counter[BudgetPart] = Counter()
    after: Counter[BudgetPart] = Counter()
    for one, *_ in each:
        before[one.part] += one.end_ns - one.start_ns
    for one, *_ in found:
        after[one.part] += one.end_ns - one.start_ns
    assert after == before
    assert sum(gap.part_count for gap in found) == len(each)
    assert all(one.end_ns <= other.start_ns for (one, *_), (other, *_) in pairwise(found))
    assert all(gap in found for gap in each if gap.part.end_ns - gap.part.start_ns >= cell)
