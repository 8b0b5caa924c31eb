"""Why is a value of one window not that of another? The parts add up, each is the right one, and is rightly called."""

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.budget.breakdown import break_down_window
from pytest_nsys.analysis.explain.breakdown_model import (
    AT_END,
    OWN_STREAM,
    Breakdown,
    BreakdownRow,
    Change,
    ChangeKind,
    Explanation,
    RowActivity,
)
from pytest_nsys.analysis.metrics.quantities import QUANTITIES
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, RunWindow, WindowGroup
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
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
    track = track_of(
        columns, BUILT_IN_CONVENTIONS["pithtrain"], launches, [Range(-10_000, 100_000, 1, STAGE)], rank=own
    )
    return RankWindow(track, Window(*window, "step"), WindowSpec(), range(len(ordered)))


def together(*ranks: Sequence[K]) -> RunWindow:
    """The windows of ranks that exchange with each other."""
    return RunWindow(
        cast(Run, None), {n: rank_window(each, n) for n, each in enumerate(ranks)}, cast(WindowGroup, None)
    )


def broken(*ranks: Sequence[K], rank: int = 0) -> Breakdown:
    return break_down_window(together(*ranks).by_rank, rank)


def why(metric: str, was: Sequence[Sequence[K]], now: Sequence[Sequence[K]]) -> Explanation:
    """Why the row of rank 0 changed."""
    labels = {"rank": 0, **({"stage": STAGE} if "stage" in METRICS[metric].dimensions else {})}
    change = value(metric, now[0]) - value(metric, was[0])
    return explain(metric, labels, change, broken(*was), broken(*now))


def value(metric: str, kernels: Sequence[K]) -> int:
    """The row of rank 0, 0 where it has none."""
    measured = METRICS.get(metric) or QUANTITIES[metric]
    return sum(int(row.value) for row in measured.measure_rows(rank_window(kernels)))


def told(found: Explanation) -> Mapping[tuple[ChangeKind, str], int]:
    return {(cause.root.kind, cause.root.name): cause.change_ns for cause in found.causes}


def of(found: Explanation) -> Mapping[tuple[RowActivity, str], int]:
    return {(cause.root.activity, cause.root.name): cause.change_ns for cause in found.causes}


def the(found: Explanation, kind: ChangeKind) -> Change:
    (cause,) = [cause for cause in found.causes if cause.root.kind is kind]
    return cause


COVER = K("gemm", 0, 400)


def test_communication_that_got_longer() -> None:
    found = why("exposed_ns", [[COVER, K(A2A, 100, 450)]], [[COVER, K(A2A, 100, 570)]])
    assert told(found) == {(ChangeKind.LONGER, A2A): 120}
    cause = the(found, ChangeKind.LONGER)
    assert (cause.baseline_ns, cause.current_ns, cause.baseline_count, cause.current_count) == (350, 470, 1, 1)


@pytest.mark.parametrize(
    ("now", "kind", "lost_ns"),
    [
        ([K("gemm", 0, 300)], ChangeKind.SHORTER, 100),
        ([], ChangeKind.GONE, 300),
        ([K("gemm", 250, 650)], ChangeKind.ELSEWHERE, 150),
    ],
)
def test_compute_that_hides_less(now: list[K], kind: ChangeKind, lost_ns: int) -> None:
    kept = [K("norm", 900, 950), K(A2A, 100, 400)]
    assert told(why("exposed_ns", [[*kept, COVER]], [[*kept, *now]])) == {(kind, "gemm"): lost_ns}


def test_communication_that_came_and_went_counts_by_what_is_exposed() -> None:
    found = why("exposed_ns", [[COVER, K(A2A, 100, 500)]], [[COVER, K(A2A, 100, 500), K(A2A, 600, 650)]])
    assert told(found) == {(ChangeKind.OFTEN, A2A): 50}
    found = why("exposed_ns", [[COVER, K(A2A, 100, 500), K(A2A, 600, 650)]], [[COVER, K(A2A, 100, 500)]])
    assert told(found) == {(ChangeKind.RARELY, A2A): -50}


def test_a_rank_that_waits_for_another_names_it() -> None:
    was = [[COVER, K(A2A, 500, 600)], [COVER, K(A2A, 510, 600)]]
    now = [[COVER, K(A2A, 500, 700)], [COVER, K(A2A, 610, 700)]]
    found = why("exposed_ns", was, now)
    assert told(found) == {(ChangeKind.WAITED, A2A): 100}
    cause = the(found, ChangeKind.WAITED)
    assert (cause.baseline_ns, cause.current_ns, cause.straggler) == (100, 200, 1)


def test_kernels_that_never_run_at_one_moment_are_no_one_collective() -> None:
    was = [[COVER, K(A2A, 500, 600)], [COVER, K(A2A, 510, 600)]]
    now = [[COVER, K(A2A, 500, 700)], [COVER, K(A2A, 800, 900)]]
    assert told(why("exposed_ns", was, now)) == {(ChangeKind.LONGER, A2A): 100}


def test_idle_time_before_a_late_launch() -> None:
    was = [COVER, K("norm", 400, 500)]
    now = [COVER, K("norm", 460, 560, ahead_ns=20)]
    found = why("idle_ns", [was], [now])
    assert of(found) == {
        (RowActivity.HOST, "norm"): 40,
        (RowActivity.IDLE, "norm"): 20,
        (RowActivity.IDLE, AT_END): -60,
    }
    queued = [COVER, K("norm", 460, 560, ahead_ns=200)]
    assert of(why("idle_ns", [was], [queued])) == {(RowActivity.IDLE, "norm"): 60, (RowActivity.IDLE, AT_END): -60}


def test_the_length_of_a_window_by_kernel() -> None:
    """Of two kernels that run at once the first one has the time."""
    was = [COVER, K(A2A, 300, 500), K("norm", 600, 700)]
    now = [K("gemm", 0, 450), K(A2A, 300, 500), K("norm", 440, 460), K("norm", 600, 690)]
    found = why("window_ns", [was], [now])
    assert of(found) == {
        (RowActivity.KERNEL, "gemm"): 50,
        (RowActivity.COLLECTIVE, A2A): -60,
        (RowActivity.IDLE, AT_END): 10,
    }
    (cause, *_) = [cause for cause in found.causes if cause.root.activity is RowActivity.KERNEL]
    assert (cause.baseline_count, cause.current_count) == (1, 1)


def test_a_barrier_waits_for_another_rank() -> None:
    def side(length_ns: int, waits_ns: Mapping[int, int] | None) -> Breakdown:
        return Breakdown(
            [BreakdownRow(RowActivity.COLLECTIVE, A2A, STAGE, 0, 2, length_ns, wait_ns_by_rank=waits_ns)], {}
        )

    was, now = side(500, {3: 100}), side(900, {1: 450})
    for change_ns, sides in ((400, (was, now)), (-400, (now, was))):
        found = explain("barrier_ns", {"rank": 0}, change_ns, *sides)
        assert told(found) == {(ChangeKind.WAITED, A2A): change_ns}
        assert the(found, ChangeKind.WAITED).straggler == 1
    found = explain("barrier_ns", {"rank": 0}, 400, was, side(900, None))
    assert told(found) == {(ChangeKind.LONGER, A2A): 400}


TILE = "void cutlass::device_kernel<cutlass::gemm::GemmUniversal<cute::tuple<int, int>, cute::C<{}>>>(Params)"


def test_kernels_of_one_short_name_are_told_apart_and_changes_add_up() -> None:
    small, large = (TILE.format(tile) for tile in (64, 128))
    was = [K(small, 0, 100), K(large, 100, 300), K(A2A, 300, 400)]
    now = [K(small, 0, 100), K(large, 100, 350), K(A2A, 350, 450)]
    called = "device_kernel<GemmUniversal, tuple, int, int, C, 128>"
    assert told(why("compute_ns", [was], [now])) == {(ChangeKind.LONGER, called): 50}
    assert broken(now).kernel_names >= {called, called.replace("128", "64"), A2A, AT_END}


def test_a_kernel_that_an_entry_starts_is_told_by_its_namespace() -> None:
    """All of these are ``GemmKernel``: the sum of six was 12 % longer where one was 40 %."""
    one, other = (f"void cutlass::device_kernel<dpsk::cuda::{own}::GemmKernel>(P)" for own in ("fp8", "m_grouped_fp8"))
    was, now = [K(one, 0, 100), K(other, 100, 200)], [K(one, 0, 100), K(other, 100, 240)]
    told_by = {(ChangeKind.LONGER, "device_kernel<m_grouped_fp8::GemmKernel>"): 40}
    assert told(why("compute_ns", [was], [now])) == told_by


def test_compute_by_kernel() -> None:
    found = why("compute_ns", [[COVER, K("norm", 400, 500)]], [[K("gemm", 0, 450), K("add", 500, 530)]])
    assert told(found) == {
        (ChangeKind.GONE, "norm"): -100,
        (ChangeKind.LONGER, "gemm"): 50,
        (ChangeKind.NEW, "add"): 30,
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


@given(st.tuples(some, some), st.tuples(some, some))
def test_no_cause_blames_more_time_than_it_ran(was: tuple[list[K], list[K]], now: tuple[list[K], list[K]]) -> None:
    for metric in EXACT:
        for cause in why(metric, was, now).causes:
            assert abs(cause.change_ns) <= max(cause.baseline_ns, cause.current_ns), metric
            if cause.root.activity in (RowActivity.KERNEL, RowActivity.COLLECTIVE):
                for ns, side in ((cause.baseline_ns, was[0]), (cause.current_ns, now[0])):
                    own = [kernel.end_ns - kernel.start_ns for kernel in side if kernel.name == cause.root.name]
                    assert 0 <= ns <= sum(own), metric


@given(some, some)
def test_a_breakdown_is_the_window(first: list[K], second: list[K]) -> None:
    found = broken(first, second)
    assert found.length_ns == WIDTH_NS
    assert min(found.time_ns.values()) > 0
    own = [part for part in found.rows if part.is_hideable]
    assert {part.stage for part in own} <= {STAGE}
    assert sum(part.length_ns for part in own) == value("comm_ns", first)
    assert all(part.length_ns == part.exposed_ns + sum(part.ns_by_kernel.values()) for part in own)
    compute = [part for part in found.rows if part.activity is RowActivity.KERNEL]
    assert sum(part.length_ns for part in compute) == value("compute_ns", first)
    assert found.sum_time_ns(RowActivity.KERNEL, RowActivity.COLLECTIVE) == rank_window(
        first
    ).busy_time.measure_covered_ns(0, WIDTH_NS)


def test_the_places_of_a_window_are_found_once_however_many_ranks_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[int] = []

    def context(_: RankWindow, i: int) -> tuple[str, str]:
        looked_up.append(i)
        return STAGE, "ep_a2a"

    monkeypatch.setattr(RankWindow, "get_context", context)
    run = together(*[[K(A2A, 5, 9), K("gemm", 0, 7)]] * 8)
    for rank in run.by_rank:
        break_down_window(run.by_rank, rank)
    assert len(looked_up) <= 2 * 8


GATHER = "ncclDevKernel_AllGather"


def side(*parts: BreakdownRow, time_ns: Mapping[tuple[RowActivity, str], int] | None = None) -> Breakdown:
    return Breakdown(parts, time_ns or {})


def causes_of(metric: str, was: Breakdown, now: Breakdown, change_ns: int = 0) -> list[Change]:
    return list(explain(metric, {"rank": 0}, change_ns, was, now).causes)


def gemm(number: int = 1, length_ns: int = 400, name: str = "gemm") -> BreakdownRow:
    return BreakdownRow(RowActivity.KERNEL, name, STAGE, 0, number, length_ns)


def sent(ns: int = 0, name: str = A2A, number: int = 1) -> BreakdownRow:
    """Kernels of 500 ns of which so many are hidden."""
    exposed_ns = 500 * number - ns
    return BreakdownRow(
        RowActivity.COLLECTIVE,
        name,
        STAGE,
        OWN_STREAM,
        number,
        500 * number,
        exposed_ns,
        ns_by_kernel={"gemm": ns} if ns else {},
    )


def of_cover(before: BreakdownRow | None, after: BreakdownRow | None, lost: int = 100) -> ChangeKind:
    """What became of the compute that hides so much less."""
    was, now = (side(sent(ns), *filter(None, [own])) for ns, own in ((300, before), (300 - lost, after)))
    (cause,) = causes_of("exposed_ns", was, now)
    assert (cause.root.activity, cause.root.name, cause.change_ns) == (RowActivity.COVER, "gemm", lost)
    assert (cause.baseline_ns, cause.current_ns) == (300, 300 - lost)
    return cause.root.kind


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (gemm(2), gemm(1), ChangeKind.RARELY),
        (gemm(2), gemm(2, 350), ChangeKind.SHORTER),  # half of what was lost is enough
        (gemm(2), gemm(2, 351), ChangeKind.ELSEWHERE),
        (gemm(1), gemm(2, 350), ChangeKind.SHORTER),
        (gemm(2), None, ChangeKind.GONE),
        (gemm(), gemm(), ChangeKind.ELSEWHERE),
    ],
)
def test_what_became_of_the_compute_that_hid_it(
    before: BreakdownRow, after: BreakdownRow | None, kind: ChangeKind
) -> None:
    assert of_cover(before, after) is kind


def test_compute_that_hides_more_moved_whatever_else_it_did() -> None:
    assert of_cover(gemm(2), gemm(1, 10), lost=-50) is ChangeKind.ELSEWHERE
    assert of_cover(None, gemm(), lost=-50) is ChangeKind.ELSEWHERE


@pytest.mark.parametrize(
    ("now", "exposes"), [((50, 0), GATHER), ((0, 150), A2A), ((0, 101), A2A), ((0, 100), GATHER), ((100, 300), "")]
)
def test_compute_that_hides_less_names_the_communication_that_lost_most(now: tuple[int, int], exposes: str) -> None:
    """Of two kernels, of which it hid 100 and 200; of those that lost as much the first by name."""
    was, after = (
        side(*(sent(ns, name) for name, ns in zip((A2A, GATHER), each, strict=True))) for each in ((100, 200), now)
    )
    (cause,) = causes_of("exposed_ns", was, after)
    assert (cause.root.name, cause.exposed_kernel) == ("gemm", exposes)


def waits(length_ns: int, waits_ns: Mapping[int, int] | None) -> BreakdownRow:
    """Three kernels and for whom they wait."""
    return BreakdownRow(RowActivity.COLLECTIVE, A2A, STAGE, OWN_STREAM, 3, length_ns, length_ns, waits_ns)


@pytest.mark.parametrize(
    ("was", "now", "kind", "straggler"),
    [
        ((530, {1: 30}), (680, {3: 110, 2: 70}), ChangeKind.WAITED, 3),
        ((530, {1: 30}), (670, {3: 70, 2: 70}), ChangeKind.WAITED, 2),
        ((680, {3: 90, 1: 20}), (600, {2: 30}), ChangeKind.WAITED, 3),
        ((510, {1: 10}), (600, {2: 55}), ChangeKind.WAITED, 2),  # half of it is enough
        ((510, {1: 10}), (600, {2: 54}), ChangeKind.LONGER, None),
        ((600, {1: 50}), (700, {2: 50}), ChangeKind.LONGER, None),
        ((600, None), (500, {1: 9}), ChangeKind.SHORTER, None),
    ],
)
def test_a_wait_names_the_rank_that_most_was_waited_for(
    was: tuple[int, Mapping[int, int] | None],
    now: tuple[int, Mapping[int, int]],
    kind: ChangeKind,
    straggler: int | None,
) -> None:
    (cause,) = causes_of("comm_ns", side(waits(*was)), side(waits(*now)))
    assert (cause.root.kind, cause.straggler) == (kind, straggler)
    assert (cause.baseline_ns, cause.current_ns, cause.current_count) == (was[0], now[0], 3)


def test_communication_that_becomes_a_barrier_is_not_new() -> None:
    def barriers(number: int) -> list[BreakdownRow]:
        return [BreakdownRow(RowActivity.COLLECTIVE, A2A, STAGE, 0, number, 100 * number)] if number else []

    for was, now, kind in (
        (side(sent(number=2)), side(*barriers(2)), ChangeKind.ELSEWHERE),
        (side(sent(number=1)), side(*barriers(2)), ChangeKind.OFTEN),
        (side(*barriers(1)), side(*barriers(3)), ChangeKind.OFTEN),
        (side(), side(*barriers(2)), ChangeKind.NEW),
    ):
        (cause,) = causes_of("barrier_ns", was, now)
        assert cause.root.kind is kind


def test_causes_stand_by_their_amount_then_by_kind_and_name() -> None:
    def total(**ns: int) -> Breakdown:
        return side(*(gemm(1, length_ns, name) for name, length_ns in ns.items()))

    found = causes_of("compute_ns", total(a=10, b=10, c=10, d=10), total(a=12, b=2, c=18, d=8))
    assert [(cause.root.name, cause.change_ns) for cause in found] == [("c", 8), ("b", -8), ("a", 2), ("d", -2)]
    assert [cause.root.kind for cause in found[:2]] == [ChangeKind.LONGER, ChangeKind.SHORTER]


@pytest.mark.parametrize(("change_ns", "leading"), [(6, "c"), (-6, "b"), (0, None)])
def test_the_leading_cause_went_the_way_of_the_change(change_ns: int, leading: str | None) -> None:
    was, now = (side(gemm(1, b, "b"), gemm(1, c, "c")) for b, c in ((10, 10), (3, 16)))
    found = explain("compute_ns", {"rank": 0}, change_ns, was, now)
    assert (found.leading_cause.root.name if found.leading_cause else None) == leading
    assert found.unexplained_ns == change_ns - (6 - 7)


@pytest.mark.parametrize(
    ("number", "length_ns", "kind"),
    [
        (2, 90, ChangeKind.LONGER),
        (2, 70, ChangeKind.SHORTER),
        (3, 90, ChangeKind.OFTEN),
        (1, 90, ChangeKind.RARELY),
        (3, 70, ChangeKind.OFTEN),
    ],
)
def test_a_sum_by_name_is_a_count_of_kernels_or_their_length(number: int, length_ns: int, kind: ChangeKind) -> None:
    (cause,) = causes_of("compute_ns", side(gemm(2, 80)), side(gemm(number, length_ns)))
    assert (cause.root.kind, cause.change_ns, cause.baseline_count, cause.current_count) == (
        kind,
        length_ns - 80,
        2,
        number,
    )
