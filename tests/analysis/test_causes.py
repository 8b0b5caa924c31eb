"""Why is a value of one window not that of another? The parts add up, each is the right one, and is rightly called."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.breakdown import break_down
from pytest_nsys.analysis.explained import (
    AT_END,
    AT_START,
    Barrier,
    Breakdown,
    Cause,
    CauseKind,
    Communication,
    Compute,
    Explanation,
    RankWait,
    Wall,
)
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.quantities import QUANTITIES
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import Run, RunWindow, WindowGroup
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.conventions import BUILT_IN
from pytest_nsys.core.model import ProcessId, Range, Rank, Setup, Stream, Window
from pytest_nsys.core.tables import Kernels
from tests.support.measure import explain
from tests.support.windows import track_of

A2A = "ncclDevKernel_SendRecv"
STAGE = "stage2_f"
WIDTH_NS = 1000


class K(NamedTuple):
    """One kernel, launched ``ahead_ns`` before; communication runs on stream 20, compute on stream 7, but for those on
    ``other`` than their own.
    """

    name: str
    start_ns: int
    end_ns: int
    ahead_ns: int = 5
    other: bool = False


def rank_window(kernels: Sequence[K], rank: int = 0, window: tuple[int, int] = (0, WIDTH_NS)) -> RankWindow:
    """The window of one rank that holds exactly these kernels, all of one stage."""
    ordered = sorted(kernels, key=lambda k: (k.start_ns, k.end_ns))
    names = dict(enumerate(sorted({k.name for k in kernels})))
    ids = {name: n for n, name in names.items()}
    launches = array("q", [k.start_ns - k.ahead_ns for k in ordered])
    setup = Setup("", rank, {"ep": rank, "pp": 0}, {"ep": 2, "pp": 1})
    columns = Kernels(
        start_ns=array("q", [k.start_ns for k in ordered]),
        end_ns=array("q", [k.end_ns for k in ordered]),
        correlation=array("q", range(len(ordered))),
        stream=array("q", [(k.name == A2A) != k.other for k in ordered]),
        name=array("q", [ids[k.name] for k in ordered]),
        full_name=array("q", [ids[k.name] for k in ordered]),
        streams=(Stream(0, 1, 7), Stream(0, 1, 20)),
        names=names,
        graph_node=bytearray(len(ordered)),
    )
    own = Rank(rank, ProcessId(0, rank), None, setup, Path("a.sqlite"))
    track = track_of(columns, BUILT_IN["pithtrain"], launches, [Range(-10_000, 100_000, 1, STAGE)], rank=own)
    return RankWindow(track, Window(*window, "step"), WindowSpec(), range(len(ordered)))


def together(*ranks: Sequence[K]) -> RunWindow:
    """The windows of ranks that exchange with each other."""
    return RunWindow(
        cast(Run, None), {n: rank_window(each, n) for n, each in enumerate(ranks)}, cast(WindowGroup, None)
    )


def broken(*ranks: Sequence[K], rank: int = 0) -> Breakdown:
    return break_down(together(*ranks).by_rank, rank)


def why(metric: str, was: Sequence[Sequence[K]], now: Sequence[Sequence[K]]) -> Explanation:
    """Why the row of rank 0 changed."""
    labels = {"rank": 0, **({"stage": STAGE} if "stage" in METRICS[metric].dimensions else {})}
    change = value(metric, now[0]) - value(metric, was[0])
    return explain(metric, labels, change, broken(*was), broken(*now))


def value(metric: str, kernels: Sequence[K]) -> int:
    """The row of rank 0, 0 where it has none."""
    measured = METRICS.get(metric) or QUANTITIES[metric]
    return sum(int(row.value) for row in measured.rows(rank_window(kernels)))


def told(found: Explanation) -> Mapping[tuple[CauseKind, str], int]:
    return {(cause.kind, cause.kernel): cause.change_ns for cause in found.causes}


def the(found: Explanation, kind: CauseKind) -> Cause:
    (cause,) = [cause for cause in found.causes if cause.kind is kind]
    return cause


COVER = K("gemm", 0, 400)


def test_communication_that_got_longer() -> None:
    found = why("exposed_ns", [[COVER, K(A2A, 100, 450)]], [[COVER, K(A2A, 100, 570)]])
    assert told(found) == {(CauseKind.LONGER, A2A): 120}
    cause = the(found, CauseKind.LONGER)
    assert (cause.before_ns, cause.now_ns, cause.was, cause.kernels, cause.ordinals) == (350, 470, 1, 1, (1,))


@pytest.mark.parametrize(
    ("now", "kind", "lost_ns"),
    [
        ([K("gemm", 0, 300)], CauseKind.COVER_SHRANK, 100),
        ([], CauseKind.COVER_VANISHED, 300),
        ([K("gemm", 250, 650)], CauseKind.COVER_MOVED, 150),
    ],
)
def test_compute_that_hides_less(now: list[K], kind: CauseKind, lost_ns: int) -> None:
    kept = [K("norm", 900, 950), K(A2A, 100, 400)]
    assert told(why("exposed_ns", [[*kept, COVER]], [[*kept, *now]])) == {(kind, "gemm"): lost_ns}


def test_communication_that_came_and_went_counts_by_what_is_exposed() -> None:
    found = why("exposed_ns", [[COVER, K(A2A, 100, 500)]], [[COVER, K(A2A, 100, 500), K(A2A, 600, 650)]])
    assert told(found) == {(CauseKind.APPEARED, A2A): 50}
    assert the(found, CauseKind.APPEARED).ordinals == (2,)
    found = why("exposed_ns", [[COVER, K(A2A, 100, 500), K(A2A, 600, 650)]], [[COVER, K(A2A, 100, 500)]])
    assert told(found) == {(CauseKind.VANISHED, A2A): -50}


def test_a_rank_that_waits_for_another_names_it() -> None:
    was = [[COVER, K(A2A, 500, 600)], [COVER, K(A2A, 510, 600)]]
    now = [[COVER, K(A2A, 500, 700)], [COVER, K(A2A, 610, 700)]]
    found = why("exposed_ns", was, now)
    assert told(found) == {(CauseKind.WAITS, A2A): 100}
    cause = the(found, CauseKind.WAITS)
    assert (cause.before_ns, cause.now_ns, cause.straggler) == (10, 110, 1)


def test_kernels_that_never_run_at_one_moment_are_no_one_collective() -> None:
    was = [[COVER, K(A2A, 500, 600)], [COVER, K(A2A, 510, 600)]]
    now = [[COVER, K(A2A, 500, 700)], [COVER, K(A2A, 800, 900)]]
    assert told(why("exposed_ns", was, now)) == {(CauseKind.LONGER, A2A): 100}


def test_idle_time_before_a_late_launch() -> None:
    was = [COVER, K("norm", 400, 500)]
    now = [COVER, K("norm", 460, 560, ahead_ns=20)]
    found = why("idle_ns", [was], [now])
    assert told(found) == {
        (CauseKind.LAUNCH_BOUND, "norm"): 40,
        (CauseKind.IDLE, "norm"): 20,
        (CauseKind.IDLE, AT_END): -60,
    }
    queued = [COVER, K("norm", 460, 560, ahead_ns=200)]
    assert told(why("idle_ns", [was], [queued])) == {(CauseKind.IDLE, "norm"): 60, (CauseKind.IDLE, AT_END): -60}


def test_the_length_of_a_window_by_kernel() -> None:
    """Of two kernels that run at once the first one has the time."""
    was = [COVER, K(A2A, 300, 500), K("norm", 600, 700)]
    now = [K("gemm", 0, 450), K(A2A, 300, 500), K("norm", 440, 460), K("norm", 600, 690)]
    found = why("window_ns", [was], [now])
    assert told(found) == {(CauseKind.COMPUTE, "gemm"): 50, (CauseKind.EXPOSED, A2A): -60, (CauseKind.IDLE, AT_END): 10}
    assert (the(found, CauseKind.COMPUTE).was, the(found, CauseKind.COMPUTE).kernels) == (1, 1)


def test_a_barrier_waits_for_another_rank() -> None:
    def side(*barriers: Barrier) -> Breakdown:
        return Breakdown({}, {A2A: barriers[0]}, {}, {wall: {} for wall in Wall})

    was, now = side(Barrier(2, 500, RankWait(100, 3))), side(Barrier(2, 900, RankWait(450, 1)))
    found = explain("barrier_ns", {"rank": 0}, 400, was, now)
    assert told(found) == {(CauseKind.WAITS, A2A): 350, (CauseKind.LONGER, A2A): 50}
    assert the(found, CauseKind.WAITS).straggler == 1
    found = explain("barrier_ns", {"rank": 0}, -400, now, was)
    assert the(found, CauseKind.WAITS).straggler == 1
    found = explain("barrier_ns", {"rank": 0}, 400, was, side(Barrier(2, 900)))
    assert told(found) == {(CauseKind.LONGER, A2A): 400}


TILE = "void cutlass::device_kernel<cutlass::gemm::GemmUniversal<cute::tuple<int, int>, cute::C<{}>>>(Params)"


def test_kernels_of_one_short_name_are_told_apart_and_changes_add_up() -> None:
    small, large = (TILE.format(tile) for tile in (64, 128))
    was = [K(small, 0, 100), K(large, 100, 300), K(A2A, 300, 400)]
    now = [K(small, 0, 100), K(large, 100, 350), K(A2A, 350, 450)]
    called = "device_kernel<GemmUniversal, tuple, int, int, C, 128>"
    assert told(why("compute_ns", [was], [now])) == {(CauseKind.LONGER, called): 50}
    assert broken(now).names >= {called, called.replace("128", "64"), A2A, AT_END}


def test_a_kernel_that_an_entry_starts_is_told_by_its_namespace() -> None:
    """All of these are ``GemmKernel``: the sum of six was 12 % longer where one was 40 %."""
    one, other = (f"void cutlass::device_kernel<dpsk::cuda::{own}::GemmKernel>(P)" for own in ("fp8", "m_grouped_fp8"))
    was, now = [K(one, 0, 100), K(other, 100, 200)], [K(one, 0, 100), K(other, 100, 240)]
    told_by = {(CauseKind.LONGER, "device_kernel<m_grouped_fp8::GemmKernel>"): 40}
    assert told(why("compute_ns", [was], [now])) == told_by


def test_compute_by_kernel() -> None:
    found = why("compute_ns", [[COVER, K("norm", 400, 500)]], [[K("gemm", 0, 450), K("add", 500, 530)]])
    assert told(found) == {
        (CauseKind.VANISHED, "norm"): -100,
        (CauseKind.LONGER, "gemm"): 50,
        (CauseKind.APPEARED, "add"): 30,
    }


times = st.integers(0, WIDTH_NS)
spans = st.tuples(times, times).map(sorted)
kernel = st.builds(
    lambda name, span, ahead: K(name, span[0], span[1], ahead),
    st.sampled_from((A2A, A2A, "gemm", "norm")),
    spans,
    st.integers(0, 300),
)
some = st.lists(kernel, max_size=11).map(lambda kernels: [*kernels, K(A2A, 5, 9), K("gemm", 0, 7)])

EXACT = ("exposed_ns", "comm_ns", "compute_ns", "window_ns", "idle_ns", "barrier_ns")


@given(st.tuples(some, some), st.tuples(some, some))
def test_the_parts_add_up_to_the_change(was: tuple[list[K], list[K]], now: tuple[list[K], list[K]]) -> None:
    for metric in EXACT:
        found = why(metric, was, now)
        assert found.unexplained_ns == 0, metric
        assert sum(cause.change_ns for cause in found.causes) == found.change_ns


@given(some, some)
def test_a_breakdown_is_the_window(first: list[K], second: list[K]) -> None:
    found = broken(first, second)
    parts = [ns for by in found.walls.values() for ns in by.values()]
    assert sum(parts) == WIDTH_NS
    assert min(parts) >= 0
    for stage, own in found.communication.items():
        assert stage == STAGE
        assert sum(k.length_ns for k in own) == value("comm_ns", first)
        assert all(k.length_ns == k.exposed_ns + sum(k.hidden_by.values()) for k in own)
    gaps = {name: own.length_ns for name, own in found.gaps.items()}
    assert sum(gaps.values()) + found.wall_ns(Wall.COMPUTE) == WIDTH_NS
    if found.wall_ns(Wall.COMPUTE):
        assert sum(ns for name, ns in gaps.items() if name not in (AT_START, AT_END)) == value("gpu_gap_ns", first)
    for compute in found.compute.values():
        places = compute.places
        assert sum(place.kernels for place in places) == compute.kernels
        assert sum(place.length_ns for place in places) == compute.length_ns


def test_the_places_of_a_window_are_found_once_however_many_ranks_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[int] = []

    def context(_: RankWindow, i: int) -> tuple[str, str]:
        looked_up.append(i)
        return STAGE, "ep_a2a"

    monkeypatch.setattr(RankWindow, "context", context)
    run = together(*[[K(A2A, 5, 9), K("gemm", 0, 7)]] * 8)
    for rank in run.by_rank:
        break_down(run.by_rank, rank)
    assert len(looked_up) <= 2 * 8


REDUCE = "ncclDevKernel_AllReduce"


def side(
    *communication: Communication,
    compute: Mapping[str, Compute] | None = None,
    barriers: Mapping[str, Barrier] | None = None,
    walls: Mapping[Wall, Mapping[str, int]] | None = None,
) -> Breakdown:
    own = {wall: dict((walls or {}).get(wall, {})) for wall in Wall}
    return Breakdown({"stage2_f": communication}, barriers or {}, compute or {}, own)


def causes_of(metric: str, was: Breakdown, now: Breakdown, change_ns: int = 0) -> list[Cause]:
    return list(explain(metric, {"rank": 0}, change_ns, was, now).causes)


def gemm(kernels: int = 1, length_ns: int = 400, *, launched: int = 1, launch_ns: int = 0) -> Compute:
    return Compute(kernels, length_ns, launched, launch_ns)


def covered(ns: int, by: str = "gemm") -> Communication:
    """A kernel of 500 ns of which so many are hidden."""
    return Communication(A2A, 500, 500 - ns, {by: ns} if ns else {})


def of_cover(before: Compute | None, after: Compute | None, lost: int = 100) -> CauseKind:
    """What became of the compute that hides so much less."""
    was = side(covered(300), compute={"gemm": before} if before else {})
    now = side(covered(300 - lost), compute={"gemm": after} if after else {})
    (cause,) = causes_of("exposed_ns", was, now)
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
        (gemm(), gemm(launch_ns=1), CauseKind.COVER_MOVED),
    ],
)
def test_what_became_of_the_compute_that_hid_it(before: Compute, after: Compute | None, kind: CauseKind) -> None:
    assert of_cover(before, after) is kind


def test_compute_that_hides_more_grew_whatever_else_it_did() -> None:
    assert of_cover(gemm(2), gemm(1, 10), lost=-50) is CauseKind.COVER_GREW
    assert of_cover(None, gemm(), lost=-50) is CauseKind.COVER_GREW


GATHER = "ncclDevKernel_AllGather"


@pytest.mark.parametrize(
    ("now", "exposes"), [((50, 0), GATHER), ((0, 150), A2A), ((0, 101), A2A), ((0, 100), GATHER), ((100, 300), "")]
)
def test_compute_that_hides_less_names_the_communication_that_lost_most(now: tuple[int, int], exposes: str) -> None:
    """Of two kernels, of which it hid 100 and 200; of those that lost as much the first by name."""
    was, after = (
        side(*(covered(ns)._replace(name=name) for name, ns in zip((A2A, GATHER), each, strict=True)))
        for each in ((100, 200), now)
    )
    (cause,) = causes_of("exposed_ns", was, after)
    assert (cause.kernel, cause.exposes) == ("gemm", exposes)


def waits(*pairs: tuple[int, int]) -> list[Communication]:
    """Kernels of 500 ns and their wait, for the last rank of each."""
    return [Communication(A2A, 500 + ns, 500 + ns, {}, RankWait(ns, last)) for ns, last in pairs]


def test_a_wait_names_the_rank_that_most_kernels_waited_for() -> None:
    was = side(*waits((10, 1), (10, 1), (10, 1)))
    (cause,) = causes_of("comm_ns", was, side(*waits((60, 3), (70, 2), (50, 3))))
    assert (cause.kind, cause.kernel, cause.straggler) == (CauseKind.WAITS, A2A, 3)
    assert (cause.change_ns, cause.before_ns, cause.now_ns, cause.kernels) == (150, 30, 180, 3)
    assert cause.ordinals == (1, 2, 3)


def test_of_two_ranks_that_as_many_waited_for_the_lower_is_named() -> None:
    was = side(*waits((10, 1), (10, 1)))
    for lasts in ((3, 2), (2, 3)):
        (cause,) = causes_of("comm_ns", was, side(*waits((60, lasts[0]), (70, lasts[1]))))
        assert cause.straggler == 2


def test_a_kernel_that_waits_less_names_the_rank_of_before_and_one_that_waits_as_long_none() -> None:
    was, now = side(*waits((90, 3), (10, 1), (10, 1))), side(*waits((10, 2), (10, 1), (10, 1)))
    (cause,) = causes_of("comm_ns", was, now)
    assert (cause.straggler, cause.change_ns, cause.ordinals) == (3, -80, (1,))


def test_what_is_no_wait_is_the_kernel_itself() -> None:
    was = side(Communication(A2A, 510, 510, {}, RankWait(10, 1)))
    now = side(Communication(A2A, 600, 600, {}, RankWait(40, 2)))
    found = {cause.kind: cause for cause in causes_of("comm_ns", was, now)}
    assert {kind: cause.change_ns for kind, cause in found.items()} == {CauseKind.WAITS: 30, CauseKind.LONGER: 60}
    assert (found[CauseKind.WAITS].straggler, found[CauseKind.LONGER].straggler) == (2, None)
    (shorter,) = causes_of(
        "comm_ns", side(Communication(A2A, 600, 600, {})), side(Communication(A2A, 500, 500, {}, RankWait(9, 1)))
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
        assert causes_of("comm_ns", was, now)[0].ordinals == ordinals


def test_kernels_that_came_and_went_are_those_behind_the_shared_ones() -> None:
    one, many = side(covered(0)), side(*[covered(0)] * 5)
    (came,) = causes_of("comm_ns", one, many)
    (went,) = causes_of("comm_ns", many, one)
    assert (came.kind, came.change_ns, came.was, came.kernels) == (CauseKind.APPEARED, 2_000, 1, 5)
    assert (went.kind, went.change_ns, went.was, went.kernels) == (CauseKind.VANISHED, -2_000, 5, 1)
    assert came.ordinals == went.ordinals == (2, 3, 4)
    assert (came.before_ns, came.now_ns) == (500, 2_500)
    (exposed,) = causes_of("exposed_ns", side(), side(covered(200)))
    assert (exposed.kind, exposed.kernel, exposed.change_ns) == (CauseKind.APPEARED, A2A, 300)


def test_causes_stand_by_their_amount_then_by_kind_and_name() -> None:
    def total(**ns: int) -> Breakdown:
        return side(compute={name: gemm(1, n) for name, n in ns.items()})

    found = causes_of("compute_ns", total(a=10, b=10, c=10, d=10), total(a=12, b=2, c=18, d=8))
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
    (cause,) = causes_of(
        "compute_ns", side(compute={"gemm": gemm(2, 80)}), side(compute={"gemm": gemm(kernels, length_ns)})
    )
    assert (cause.kind, cause.change_ns, cause.was, cause.kernels) == (kind, length_ns - 80, 2, kernels)


@pytest.mark.parametrize(
    ("count", "kinds"), [(2, {CauseKind.WAITS: 350, CauseKind.LONGER: 50}), (3, {CauseKind.APPEARED: 400})]
)
def test_barriers_wait_where_as_many_of_them_ran(count: int, kinds: Mapping[CauseKind, int]) -> None:
    was, now = Barrier(2, 500, RankWait(100, 3)), Barrier(count, 900, RankWait(450, 1))
    found = causes_of("barrier_ns", side(barriers={REDUCE: was}), side(barriers={REDUCE: now}))
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
    found = causes_of("wall_exposed_all_ns", was, now)
    assert [(cause.kind, cause.straggler) for cause in found] == ([(CauseKind.EXPOSED, straggler)] if change_ns else [])
