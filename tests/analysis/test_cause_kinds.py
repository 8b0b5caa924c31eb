"""What is a cause called, whom does it name, and which comes first? Breakdowns exactly where a word changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from pytest_nsys.analysis.breakdown import Barrier, Breakdown, Communication, Compute, Wall
from pytest_nsys.analysis.causes import PROMPT_NS, Cause, CauseKind
from pytest_nsys.analysis.straggling import Wait
from tests.support.explain import explain

A2A, REDUCE = "ncclDevKernel_SendRecv", "ncclDevKernel_AllReduce"


def side(
    *communication: Communication,
    compute: Mapping[str, Compute] | None = None,
    barriers: Mapping[str, Barrier] | None = None,
    walls: Mapping[Wall, Mapping[str, int]] | None = None,
) -> Breakdown:
    own = {wall: dict((walls or {}).get(wall, {})) for wall in Wall}
    return Breakdown({"stage2_f": communication}, barriers or {}, compute or {}, own)


def told(metric: str, was: Breakdown, now: Breakdown, change_ns: int = 0) -> list[Cause]:
    return list(explain(metric, {"rank": 0}, change_ns, was, now).causes)


def gemm(
    kernels: int = 1, length_ns: int = 400, *, launched: int = 1, launch_ns: int = 0, queued_ns: int = 0
) -> Compute:
    return Compute(kernels, length_ns, 0, launched, launch_ns, queued_ns)


def covered(ns: int, by: str = "gemm") -> Communication:
    """A kernel of 500 ns of which so many are hidden."""
    return Communication(A2A, 500, 500 - ns, {by: ns} if ns else {})


def of_cover(before: Compute | None, after: Compute | None, lost: int = 100) -> CauseKind:
    """What became of the compute that hides so much less."""
    was = side(covered(300), compute={"gemm": before} if before else {})
    now = side(covered(300 - lost), compute={"gemm": after} if after else {})
    (cause,) = told("exposed_ns", was, now)
    assert (cause.kernel, cause.change_ns, cause.before_ns, cause.now_ns) == ("gemm", lost, 300, 300 - lost)
    return cause.kind


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (gemm(2), gemm(1), CauseKind.COVER_VANISHED),
        (gemm(2), gemm(2, 350), CauseKind.COVER_SHRANK),  # half of what was lost is enough
        (gemm(2), gemm(2, 351), CauseKind.COVER_MOVED),
        (gemm(1), gemm(2, 350), CauseKind.COVER_SHRANK),
        (gemm(2), None, CauseKind.COVER_VANISHED),
        (gemm(), gemm(launch_ns=1), CauseKind.COVER_LATE),
        (gemm(), gemm(launch_ns=1, queued_ns=PROMPT_NS), CauseKind.COVER_LATE),
        (gemm(), gemm(launch_ns=1, queued_ns=PROMPT_NS + 1), CauseKind.COVER_MOVED),
        (gemm(2), gemm(2, launched=2, launch_ns=1, queued_ns=2 * PROMPT_NS), CauseKind.COVER_LATE),
        (gemm(launch_ns=7), gemm(launch_ns=7), CauseKind.COVER_MOVED),
        (gemm(2, launched=1, launch_ns=7), gemm(2, launched=2, launch_ns=14), CauseKind.COVER_MOVED),
        (gemm(2, launched=1, launch_ns=7), gemm(2, launched=2, launch_ns=15), CauseKind.COVER_LATE),
        (gemm(launched=0), gemm(launch_ns=1), CauseKind.COVER_MOVED),
        (gemm(), gemm(launched=0, launch_ns=1), CauseKind.COVER_MOVED),
    ],
)
def test_what_became_of_the_compute_that_hid_it(before: Compute, after: Compute | None, kind: CauseKind) -> None:
    assert of_cover(before, after) is kind


def test_compute_that_hides_more_grew_whatever_else_it_did() -> None:
    assert of_cover(gemm(2), gemm(1, 10), lost=-50) is CauseKind.COVER_GREW
    assert of_cover(None, gemm(), lost=-50) is CauseKind.COVER_GREW


def waits(*pairs: tuple[int, int]) -> list[Communication]:
    """Kernels of 500 ns and their wait, for the last rank of each."""
    return [Communication(A2A, 500 + ns, 500 + ns, {}, Wait(ns, last)) for ns, last in pairs]


def test_a_wait_names_the_rank_that_most_kernels_waited_for() -> None:
    was = side(*waits((10, 1), (10, 1), (10, 1)))
    (cause,) = told("comm_ns", was, side(*waits((60, 3), (70, 2), (50, 3))))
    assert (cause.kind, cause.kernel, cause.straggler) == (CauseKind.WAITS, A2A, 3)
    assert (cause.change_ns, cause.before_ns, cause.now_ns, cause.kernels) == (150, 30, 180, 3)
    assert cause.ordinals == (1, 2, 3)


def test_of_two_ranks_that_as_many_waited_for_the_lower_is_named() -> None:
    was = side(*waits((10, 1), (10, 1)))
    for lasts in ((3, 2), (2, 3)):
        (cause,) = told("comm_ns", was, side(*waits((60, lasts[0]), (70, lasts[1]))))
        assert cause.straggler == 2


def test_a_kernel_that_waits_less_names_the_rank_of_before_and_one_that_waits_as_long_none() -> None:
    was, now = side(*waits((90, 3), (10, 1), (10, 1))), side(*waits((10, 2), (10, 1), (10, 1)))
    (cause,) = told("comm_ns", was, now)
    assert (cause.straggler, cause.change_ns, cause.ordinals) == (3, -80, (1,))


def test_what_is_no_wait_is_the_kernel_itself() -> None:
    was = side(Communication(A2A, 510, 510, {}, Wait(10, 1)))
    now = side(Communication(A2A, 600, 600, {}, Wait(40, 2)))
    found = {cause.kind: cause for cause in told("comm_ns", was, now)}
    assert {kind: cause.change_ns for kind, cause in found.items()} == {CauseKind.WAITS: 30, CauseKind.LONGER: 60}
    assert (found[CauseKind.WAITS].straggler, found[CauseKind.LONGER].straggler) == (2, None)
    (shorter,) = told(
        "comm_ns", side(Communication(A2A, 600, 600, {})), side(Communication(A2A, 500, 500, {}, Wait(9, 1)))
    )
    assert (shorter.kind, shorter.change_ns) == (CauseKind.SHORTER, -100)  # one side alone knows its wait


def test_the_kernels_that_changed_most_are_named_the_first_of_equal_ones() -> None:
    was = side(*(Communication(A2A, 100, 100, {}) for _ in range(6)))
    for longer, ordinals in (
        ((5, 5, 5, 5, 5, 5), (1, 2, 3)),
        ((1, 9, 1, 9, 1, 9), (2, 4, 6)),
        ((0, -9, 0, 8, 0, 0), (2, 4)),
        ((1, 2, 3, 4, 5, 6), (4, 5, 6)),
    ):
        now = side(*(Communication(A2A, 100 + n, 100 + n, {}) for n in longer))
        assert told("comm_ns", was, now)[0].ordinals == ordinals


def test_kernels_that_came_and_went_are_those_behind_the_shared_ones() -> None:
    one, many = side(covered(0)), side(*[covered(0)] * 5)
    (came,) = told("comm_ns", one, many)
    assert (came.kind, came.change_ns, came.was, came.kernels, came.ordinals) == (
        CauseKind.APPEARED,
        2_000,
        1,
        5,
        (2, 3, 4),
    )
    assert (came.before_ns, came.now_ns) == (500, 2_500)
    (went,) = told("comm_ns", many, one)
    assert (went.kind, went.change_ns, went.was, went.kernels, went.ordinals) == (
        CauseKind.VANISHED,
        -2_000,
        5,
        1,
        (2, 3, 4),
    )
    (exposed,) = told("exposed_ns", side(), side(covered(200)))
    assert (exposed.kind, exposed.kernel, exposed.change_ns) == (CauseKind.APPEARED, A2A, 300)


def test_causes_stand_by_their_amount_then_by_kind_and_name() -> None:
    def total(**ns: int) -> Breakdown:
        return side(compute={name: gemm(1, n) for name, n in ns.items()})

    found = told("compute_ns", total(a=10, b=10, c=10, d=10), total(a=12, b=2, c=18, d=8))
    assert [(cause.kernel, cause.change_ns) for cause in found] == [("c", 8), ("b", -8), ("a", 2), ("d", -2)]
    assert [cause.kind for cause in found[:2]] == [CauseKind.LONGER, CauseKind.SHORTER]


@pytest.mark.parametrize(("change_ns", "leading"), [(6, "c"), (-6, "b"), (0, None)])
def test_the_leading_cause_went_the_way_of_the_change(change_ns: int, leading: str | None) -> None:
    was = side(compute={"b": gemm(1, 10), "c": gemm(1, 10)})
    now = side(compute={"b": gemm(1, 3), "c": gemm(1, 16)})
    found = explain("compute_ns", {"rank": 0}, change_ns, was, now)
    assert (found.leading.kernel if found.leading else None) == leading
    assert found.unexplained_ns == change_ns - (6 - 7)


@pytest.mark.parametrize(
    ("kernels", "length_ns", "kind"),
    [
        (2, 90, CauseKind.LONGER),
        (2, 70, CauseKind.SHORTER),
        (3, 90, CauseKind.APPEARED),
        (1, 90, CauseKind.VANISHED),
        (3, 70, CauseKind.APPEARED),
    ],
)
def test_a_sum_by_name_is_another_number_of_kernels_or_their_length(
    kernels: int, length_ns: int, kind: CauseKind
) -> None:
    (cause,) = told("compute_ns", side(compute={"gemm": gemm(2, 80)}), side(compute={"gemm": gemm(kernels, length_ns)}))
    assert (cause.kind, cause.change_ns, cause.was, cause.kernels) == (kind, length_ns - 80, 2, kernels)


@pytest.mark.parametrize(
    ("count", "kinds"), [(2, {CauseKind.WAITS: 350, CauseKind.LONGER: 50}), (3, {CauseKind.APPEARED: 400})]
)
def test_barriers_wait_where_as_many_of_them_ran(count: int, kinds: Mapping[CauseKind, int]) -> None:
    was, now = Barrier(2, 500, Wait(100, 3)), Barrier(count, 900, Wait(450, 1))
    found = told("barrier_ns", side(barriers={REDUCE: was}), side(barriers={REDUCE: now}))
    assert {cause.kind: cause.change_ns for cause in found} == kinds
    assert [cause.straggler for cause in found] == ([1, None] if count == 2 else [None])


@pytest.mark.parametrize(
    ("change_ns", "waits_ns", "straggler"),
    [(100, (0, 50), 2), (101, (0, 50), None), (100, (50, 50), None), (0, (0, 9), None)],
)
def test_exposed_time_names_a_rank_where_waiting_is_half_of_it(
    change_ns: int, waits_ns: Sequence[int], straggler: int | None
) -> None:
    was, now = (
        side(*waits((ns, 2)), walls={Wall.EXPOSED: {A2A: exposed}})
        for ns, exposed in zip(waits_ns, (500, 500 + change_ns), strict=True)
    )
    found = told("wall_exposed_all_ns", was, now)
    assert [(cause.kind, cause.straggler) for cause in found] == ([(CauseKind.EXPOSED, straggler)] if change_ns else [])


def test_communication_whose_start_was_not_kept_is_not_said_to_have_moved() -> None:
    """As of a baseline that an older version wrote: then it is the compute that hides less."""
    was = side(covered(300), compute={"gemm": gemm()})
    now = side(covered(0)._replace(start_ns=900), compute={"gemm": gemm()})
    assert [cause.kind for cause in told("exposed_ns", was, now)] == [CauseKind.COVER_MOVED]
    assert [cause.kind for cause in told("exposed_ns", now, was)] == [CauseKind.COVER_GREW]
