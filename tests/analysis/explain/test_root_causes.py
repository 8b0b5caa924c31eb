"""What is at the root of a change? Each case is two timelines of ranks; nothing that did not change is a root."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.explain.breakdown_model import (
    OWN_STREAM,
    Breakdown,
    BreakdownRow,
    Change,
    ChangeKind,
    RootCause,
    RowActivity,
)
from pytest_nsys.analysis.explain.root_cause_credits import find_root_causes
from pytest_nsys.analysis.explain.root_causes import RootCauses
from tests.analysis.explain.test_causes import A2A, EXACT, STAGE, WIDTH_NS, K, broken, some, why

Rank = Sequence[K]


def roots_of(was: Mapping[int, Breakdown], now: Mapping[int, Breakdown]) -> tuple[Change, ...]:
    """The roots of what changed on all ranks that both sides know, the largest first."""
    found = RootCauses(was.get, now.get)
    return tuple(
        sorted(
            (each.change for rank in was for each in found.list_candidates(rank)), key=lambda change: change.sort_key
        )
    )


def apart(ranks: Sequence[Rank]) -> dict[int, Breakdown]:
    return {rank: broken(*ranks, rank=rank) for rank in range(len(ranks))}


def told(found: Sequence[Change]) -> list[tuple[int, ChangeKind, RowActivity, str, int]]:
    """The kernels that changed by themselves: where, how, and by how much."""
    return [(each.rank, each.root.kind, each.root.activity, each.root.name, each.change_ns) for each in found]


GEMM, NORM, TAIL = K("gemm", 0, 400), K("norm", 400, 450), K("tail", 800, 900)
SENT = K(A2A, 450, 600)
ONE = [GEMM, NORM, SENT, TAIL]
LONGER, SHORTER, NEW, GONE = ChangeKind.LONGER, ChangeKind.SHORTER, ChangeKind.NEW, ChangeKind.GONE
OFTEN, LATER, ELSEWHERE = ChangeKind.OFTEN, ChangeKind.LATER, ChangeKind.ELSEWHERE
KERNEL, COLLECTIVE, HOST, ALL = RowActivity.KERNEL, RowActivity.COLLECTIVE, RowActivity.HOST, RowActivity.ALL


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (ONE, []),
        ([GEMM, NORM, K(A2A, 450, 700), TAIL], [(0, LONGER, COLLECTIVE, A2A, 100)]),
        ([GEMM, K("norm", 400, 420), SENT, TAIL], [(0, SHORTER, KERNEL, "norm", -30)]),
        ([*ONE, K("scale", 910, 930)], [(0, NEW, KERNEL, "scale", 20)]),
        ([GEMM, SENT, TAIL], [(0, GONE, KERNEL, "norm", -50)]),
        ([GEMM, NORM, SENT, K("tail", 850, 950)], [(0, LATER, HOST, "tail", 50)]),
        ([GEMM, NORM, SENT, K("tail", 850, 950, ahead_ns=400)], []),  # it waits for something, and nothing changed
        ([K("gemm", 0, 440), K("norm", 440, 495), SENT, K("tail", 800, 910)], [(0, LONGER, ALL, "", 55)]),
        ([K("gemm", 0, 440), NORM, SENT, TAIL], [(0, LONGER, KERNEL, "gemm", 40)]),
        ([GEMM, K("norm", 400, 450, other=True), SENT, TAIL], [(0, ELSEWHERE, KERNEL, "norm", 0)]),
        (
            [GEMM, K("norm", 400, 450, other=True), K(A2A, 450, 700), TAIL],
            [(0, LONGER, COLLECTIVE, A2A, 100), (0, ELSEWHERE, KERNEL, "norm", 0)],
        ),
        ([K(each.name, each.start_ns, each.end_ns, other=True) for each in ONE], []),  # streams have other numbers
    ],
)
def test_what_changed_by_itself(now: Rank, expected: list[tuple[int, ChangeKind, RowActivity, str, int]]) -> None:
    assert told(roots_of(apart([ONE]), apart([now]))) == expected


def test_what_waits_for_another_rank_is_no_root() -> None:
    waits, late = [GEMM, NORM, K(A2A, 450, 680), TAIL], [GEMM, K("norm", 400, 530), K(A2A, 530, 680), TAIL]
    assert told(roots_of(apart([ONE, ONE]), apart([waits, late]))) == [(1, LONGER, KERNEL, "norm", 80)]


def test_what_blocks_compute_on_a_rank_that_hardly_waits_has_its_root_there() -> None:
    hides, blocks = K("gemm", 0, 400, other=True), K(A2A, 0, 200)
    was, now = apart([[blocks, hides, TAIL]] * 2), apart([[K(A2A, 0, 200), TAIL], [K(A2A, 3, 200), TAIL]])
    for rank in (0, 1):
        cause = Change(RootCause(LONGER, COLLECTIVE, A2A), rank, 0, 200)
        found = find_root_causes(RootCauses(was.get, now.get), {rank: [cause]}, 200)
        assert [(each.rank, each.root.kind, each.root.name) for each in found] == [(rank, GONE, "gemm")]


def test_a_collective_has_its_stage() -> None:
    (found,) = roots_of(apart([ONE]), apart([[GEMM, NORM, K(A2A, 450, 700), TAIL]]))
    assert (found.root.stage, found.baseline_ns, found.current_ns, found.baseline_count, found.current_count) == (
        STAGE,
        150,
        250,
        1,
        1,
    )


def row(what: RowActivity, name: str, number: int, length_ns: int, blocks_ns: int = 0) -> BreakdownRow:
    return BreakdownRow(
        what, name, "", OWN_STREAM, number, length_ns, ns_by_kernel={"gemm": blocks_ns} if blocks_ns else {}
    )


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        (ONE, [GEMM, K("norm_v2", 400, 430), SENT, TAIL], [("norm", "norm_v2", 50, 30)]),
        ([*ONE, K("norm", 610, 640)], [*ONE, K("norm_v2", 610, 650)], [("norm", "norm_v2", 30, 40)]),
        ([K("norm", 0, 50), *ONE[2:]], [*ONE[2:], K("scale", 910, 940)], []),  # that is another place
        ([K("gemm", 0, 400), TAIL], [K("a", 0, 300), K("b", 300, 400), TAIL], [("gemm", "a", 400, 300)]),
        ([K(A2A, 0, 400), TAIL], [K(f"{A2A}_LL", 0, 300, other=True), TAIL], [(A2A, f"{A2A}_LL", 400, 300)]),
    ],
)
def test_what_took_the_place_of_another_kernel(was: Rank, now: Rank, expected: list[tuple[str, str, int, int]]) -> None:
    found = [each for each in roots_of(apart([was]), apart([now])) if each.root.kind is ChangeKind.REPLACED]
    assert [(each.root.instead_of, each.root.name, each.baseline_ns, each.current_ns) for each in found] == expected


def beside(side: Breakdown, *parts: BreakdownRow, **more: Any) -> dict[int, Breakdown]:
    return {0: replace(side, rows=[*side.rows, *parts], **{"unrecorded": (), **more})}


CALLS = row(RowActivity.CALL, "cudaStreamSynchronize", 6, 200)
COPIES = row(RowActivity.COPY, "copy from pinned to device", 6, 120, 100)
PAGEABLE = row(RowActivity.COPY, "copy from pageable to device", 6, 500, 100)


@pytest.mark.parametrize(
    ("was", "now", "unknown", "expected"),
    [
        ([], [CALLS], (), [(NEW, RowActivity.CALL, 0, 200)]),
        ([CALLS], [CALLS._replace(length_ns=90)], (), [(SHORTER, RowActivity.CALL, 200, 90)]),
        ([], [CALLS], [RowActivity.CALL], []),  # nobody knows what was called before
        ([], [COPIES], (), [(NEW, RowActivity.COPY, 0, 120)]),
        (
            [row(RowActivity.MEMSET, "memset", 1, 9)],
            [row(RowActivity.MEMSET, "memset", 6, 50)],
            (),
            [(OFTEN, RowActivity.MEMSET, 9, 50)],
        ),
        ([], [COPIES], [RowActivity.COPY], []),
        ([COPIES], [PAGEABLE], (), [(ChangeKind.REPLACED, RowActivity.COPY, 120, 500)]),
    ],
)
def test_what_the_host_does(
    was: list[BreakdownRow],
    now: list[BreakdownRow],
    unknown: Sequence[RowActivity],
    expected: list[tuple[ChangeKind, RowActivity, int, int]],
) -> None:
    found = roots_of(beside(broken(ONE), *was, unrecorded=unknown), beside(broken(ONE), *now))
    assert [(each.root.kind, each.root.activity, each.baseline_ns, each.current_ns) for each in found] == expected


def test_a_call_takes_the_blame_for_what_it_delays() -> None:
    """And a copy in which the host stands that for the call; the late launch has what is left."""
    late = broken([GEMM, NORM, SENT, K("tail", 850, 950)])
    cause = Change(RootCause(LATER, HOST, "tail"), 0, 0, 50)
    malloc, copied = (
        row(RowActivity.CALL, "cudaMalloc", 1, 48),
        row(RowActivity.COPY, "copy from pageable to device", 1, 60),
    )
    for parts, name in (([malloc], "cudaMalloc"), ([malloc, copied], copied.name), ([], "tail")):
        found = RootCauses(beside(broken(ONE)).get, beside(late, *parts).get)
        assert [each.root.name for each in find_root_causes(found, {0: [cause]}, 50)] == [name]


def test_a_collective_behind_more_compute_is_launched_later() -> None:
    was = [K("gemm", 0, 400, 9), K(A2A, 0, 300, 8), K("norm", 400, 500, 400)]
    now = [K("gemm", 0, 400, 9), K(A2A, 500, 800, 300), K("norm", 400, 500, 400)]
    (found,) = roots_of(apart([was]), apart([now]))
    assert (found.root.kind, found.root.activity, found.baseline_ns, found.current_ns) == (LATER, COLLECTIVE, 0, 300)


def test_the_clock_stands_beside_what_all_kernels_do_alike() -> None:
    was, now = (
        broken([K("gemm", 0, 100 * n), K("norm", 500, 500 + 10 * n), K("tail", 600, 600 + 20 * n)]) for n in (2, 3)
    )
    (found,) = roots_of(beside(was, clock_mhz=1980), beside(now, clock_mhz=1320))
    assert (found.root.activity, found.clock_mhz) == (ALL, (1980, 1320))


Pair = tuple[list[K], list[K]]


def ran_ns(side: Sequence[K], name: str) -> int:
    return sum(kernel.end_ns - kernel.start_ns for kernel in side if kernel.name == name)


@given(st.tuples(some, some), st.tuples(some, some))
def test_no_root_blames_more_time_than_it_ran(was: Pair, now: Pair) -> None:
    for each in roots_of(apart(was), apart(now)):
        assert (
            each.change_ns != 0
            or each.baseline_count != each.current_count
            or each.root.kind in (ChangeKind.REPLACED, ELSEWHERE)
        )
        if each.root.activity in (KERNEL, COLLECTIVE):
            before = each.root.instead_of or each.root.name
            assert 0 <= each.baseline_ns <= ran_ns(was[each.rank], before)
            assert 0 <= each.current_ns <= ran_ns(now[each.rank], each.root.name)


@given(some, st.lists(st.integers(0, 300), min_size=10, max_size=10))
def test_what_only_starts_later_is_no_root(kernels: list[K], shifts: list[int]) -> None:
    """As long, as many, launched when it was: whatever it waited for, it is not to blame."""
    moved = [
        kernel._replace(start_ns=kernel.start_ns + by, end_ns=kernel.end_ns + by, ahead_ns=kernel.ahead_ns + by)
        for kernel, by in zip(kernels, shifts, strict=False)
        if kernel.end_ns + by <= WIDTH_NS
    ]
    assert roots_of(apart([kernels]), apart([moved])) == () or len(moved) < len(kernels)


@given(st.tuples(some, some), st.tuples(some, some))
def test_roots_do_not_depend_on_the_order_of_ranks(was: Pair, now: Pair) -> None:
    before, after = apart(was), apart(now)
    turned = [dict(reversed(side.items())) for side in (before, after)]
    assert roots_of(*turned) == roots_of(before, after)


@given(st.tuples(some, some), st.tuples(some, some))
def test_what_is_behind_a_row_is_a_root_of_a_rank(was: Pair, now: Pair) -> None:
    before, after = apart(was), apart(now)
    every = roots_of(before, after)
    for metric in EXACT:
        causes = why(metric, was, now).causes
        told = find_root_causes(RootCauses(before.get, after.get), {0: causes}, 1)
        gaps = {each for each in told if each.root.activity is RowActivity.IDLE}  # of the row, not of what ran
        assert set(told) - gaps <= set(every), metric
        idle_ns = sum(abs(cause.change_ns) for cause in causes if cause.root.activity is RowActivity.IDLE)
        assert sum(abs(gap.change_ns) for gap in gaps) <= idle_ns, metric
        assert len({(each.root, each.rank) for each in told}) == len(told)


def gap(name: str, now_ns: int) -> Change:
    """Idle time of rank 0 before a launched kernel, none of which was there before."""
    return Change(RootCause(LONGER, RowActivity.IDLE, name), 0, 0, now_ns)


LONGER_NORM = [GEMM, K("norm", 400, 460), SENT, TAIL]
"""A kernel took 10 ns more."""


def roots_of_row(causes: Sequence[Change], change_ns: int, now: Rank = LONGER_NORM) -> list[tuple[str, str, int]]:
    found = find_root_causes(RootCauses(apart([ONE]).get, apart([now]).get), {0: causes}, change_ns)
    return [(str(each.root.activity), each.root.name, each.change_ns) for each in found]


NORM_CAUSE = Change(RootCause(LONGER, KERNEL, "norm"), 0, 50, 60)


@pytest.mark.parametrize(("change_ns", "expected"), [(20, [("kernel", "norm", 10)]), (21, [])])
def test_what_explains_less_than_half_of_a_row_is_no_root(change_ns: int, expected: list[tuple[str, str, int]]) -> None:
    assert roots_of_row([NORM_CAUSE], change_ns) == expected


def test_a_gap_before_a_launched_kernel_is_a_root_where_nothing_accounts_for_it() -> None:
    assert roots_of_row([NORM_CAUSE, gap("tail", 100)], 110) == [("idle", "tail", 100)]
    assert roots_of_row([NORM_CAUSE, gap("tail", 9)], 19) == [("kernel", "norm", 10)]


def test_many_gaps_none_of_which_has_most_are_one_root() -> None:
    gaps = [gap(name, ns) for name, ns in (("gemm", 40), ("norm", 35), ("tail", 30))]
    assert roots_of_row(gaps, 105) == [("idle", "", 105)]
    assert roots_of_row([gap("gemm", 100), *gaps[1:]], 165)[0] == ("idle", "gemm", 100)


@pytest.mark.parametrize(
    ("sent_ns", "idle_ns", "expected"),
    [
        (800, 100, [("idle", "", 300)]),  # gaps of which most are beside communication
        (1_000, 100, [("collective", A2A, 200)]),  # that is longer itself
        (800, 49, []),  # compute may have waited for it
    ],
)
def test_gaps_beside_communication_that_is_no_longer_are_gaps(
    sent_ns: int, idle_ns: int, expected: list[tuple[str, str, int]]
) -> None:
    was, now = (
        Breakdown([BreakdownRow(RowActivity.COLLECTIVE, A2A, "", OWN_STREAM, 2, ns)], {}) for ns in (800, sent_ns)
    )
    alone = Change(RootCause(LONGER, RowActivity.COLLECTIVE, A2A), 0, 100, 300)
    found = find_root_causes(RootCauses({0: was}.get, {0: now}.get), {0: [alone, gap("gemm", idle_ns)]}, 200 + idle_ns)
    assert [(str(each.root.activity), each.root.name, each.change_ns) for each in found] == expected


@pytest.mark.parametrize(("stage", "expected"), [("stage2_b", 1), ("stage4_f", 0), ("none", 0), (None, 1)])
def test_communication_of_another_stage_explains_no_row_of_one_stage(stage: str | None, expected: int) -> None:
    longer = RowActivity.COLLECTIVE
    was, now = (Breakdown([BreakdownRow(longer, A2A, "stage2_b", OWN_STREAM, 2, ns, ns)], {}) for ns in (800, 900))
    cause = Change(RootCause(LONGER, longer, A2A), 0, 800, 900)
    found = find_root_causes(RootCauses({0: was}.get, {0: now}.get), {0: [cause]}, 100, stage=stage)
    assert len(found) == expected


def test_communication_of_another_stage_accounts_for_cover_that_moved_and_that_nothing_else_accounts_for() -> None:
    was, now = (
        Breakdown(
            [
                BreakdownRow(RowActivity.COLLECTIVE, A2A, "stage2_b", OWN_STREAM, 2, sent_ns),
                BreakdownRow(KERNEL, "gemm", "", 0, 2, gemm_ns),
            ],
            {},
        )
        for sent_ns, gemm_ns in ((800, 400), (900, 460))
    )
    for lost_ns, expected in ((100, ["gemm", A2A]), (50, ["gemm"])):
        moved = Change(RootCause(ELSEWHERE, RowActivity.COVER, "norm"), 0, lost_ns, 0, exposed_kernel="other")
        found = find_root_causes(RootCauses({0: was}.get, {0: now}.get), {0: [moved]}, lost_ns, stage="stage4_f")
        assert [each.root.name for each in found] == expected


def test_windows_of_which_most_kernels_run_another_number_of_times_are_unlike() -> None:
    def run(**times: int) -> Breakdown:
        return Breakdown([BreakdownRow(KERNEL, name, "", 0, number, 9) for name, number in times.items()], {})

    whole = run(gemm=8, norm=8, tail=4)
    assert whole.is_unlike(run(gemm=4, norm=4, tail=2))
    assert not whole.is_unlike(run(gemm=8, norm=8, tail=1))  # a fault of one kernel
    assert not whole.is_unlike(run(gemm=8, fused=12))  # what one side lacks was replaced
    assert not whole.is_unlike(run(gemm=9, norm=9, tail=4))  # little
    assert whole.count_differing_kernels(run(gemm=8, fused=12)) == 24
