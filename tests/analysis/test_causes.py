"""Two windows, and why a value of one is not that of the other: the parts add up, and each is the right one."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_nsys.analysis.breakdown import AT_END, Barrier, Breakdown, Wall, break_down
from pytest_nsys.analysis.causes import Cause, CauseKind, Explanation
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import Run, RunWindow
from pytest_nsys.analysis.straggling import Wait
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.conventions import BUILT_IN
from pytest_nsys.core.model import Kernels, ProcessId, Range, Rank, Setup, Stream, Window
from pytest_nsys.stored.baselines import breakdowns as stored_breakdown
from pytest_nsys.stored.baselines.breakdowns import MOST_RANKS, MeasuredAs, storable
from tests.support.explain import explain
from tests.support.windows import track_of

A2A = "ncclDevKernel_SendRecv"
STAGE = "stage2_f"
WIDTH_NS = 1000


class K(NamedTuple):
    """One kernel; communication runs on stream 20, compute on stream 7, launched ``ahead_ns`` before."""

    name: str
    start_ns: int
    end_ns: int
    ahead_ns: int = 5


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
        stream=array("q", [k.name == A2A for k in ordered]),
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
    return RunWindow(cast(Run, None), {n: rank_window(kernels, n) for n, kernels in enumerate(ranks)})


def broken(*ranks: Sequence[K], rank: int = 0) -> Breakdown:
    return break_down(together(*ranks).by_rank, rank)


def why(metric: str, was: Sequence[Sequence[K]], now: Sequence[Sequence[K]]) -> Explanation:
    """Why the row of rank 0 changed."""
    labels = {"rank": 0, **({"stage": STAGE} if "stage" in METRICS[metric].dimensions else {})}
    change = value(metric, now[0]) - value(metric, was[0])
    return explain(metric, labels, change, broken(*was), broken(*now))


def value(metric: str, kernels: Sequence[K]) -> int:
    """The row of rank 0, 0 where it has none."""
    return sum(int(row.value) for row in METRICS[metric].rows(rank_window(kernels)))


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
        ([K("gemm", 250, 650)], CauseKind.COVER_LATE, 150),
        ([K("gemm", 250, 650, ahead_ns=255 + 30_000)], CauseKind.COVER_MOVED, 150),  # it queued
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


def test_communication_that_moved_is_blamed_itself_and_not_the_compute_that_stayed() -> None:
    rest = [K("norm", 900, 910), K("add", 920, 930)]
    was = [*rest, COVER, K(A2A, 100, 400)]
    for start, lost in ((250, 150), (500, 300)):
        found = why("exposed_ns", [was], [[*rest, COVER, K(A2A, start, start + 300)]])
        assert told(found) == {(CauseKind.MOVED, A2A): lost}
        cause = the(found, CauseKind.MOVED)
        assert (cause.before_ns, cause.now_ns, cause.was, cause.kernels) == (300, 300 - lost, 1, 1)


def test_communication_that_moved_with_all_else_has_not_moved() -> None:
    def later(kernels: Sequence[K], ns: int) -> list[K]:
        return [k._replace(start_ns=k.start_ns + ns, end_ns=k.end_ns + ns) for k in kernels]

    was = [K("norm", 300, 310), COVER, K(A2A, 100, 400), K("add", 320, 330)]
    now = later([K("norm", 300, 310), K("gemm", 150, 550, 100_000), K(A2A, 100, 400), K("add", 320, 330)], 200)
    found = why("exposed_ns", [was], [now])
    assert told(found) == {(CauseKind.COVER_MOVED, "gemm"): 50}


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

    was, now = side(Barrier(2, 500, Wait(100, 3))), side(Barrier(2, 900, Wait(450, 1)))
    found = explain("barrier_ns", {"rank": 0}, 400, was, now)
    assert told(found) == {(CauseKind.WAITS, A2A): 350, (CauseKind.LONGER, A2A): 50}
    assert the(found, CauseKind.WAITS).straggler == 1
    found = explain("barrier_ns", {"rank": 0}, -400, now, was)
    assert the(found, CauseKind.WAITS).straggler == 1
    found = explain("barrier_ns", {"rank": 0}, 400, was, side(Barrier(2, 900)))
    assert told(found) == {(CauseKind.LONGER, A2A): 400}


OLDER = """[{"window": "median", "span": "range", "kernels": "contained", "names": ["gemm", "nccl"], "parts": [
 [0, "window", [1000, 400, 100, 300, 200]], [0, "compute", [[0, 1, 400, 0, 1, -5, 5]]], [0, "barriers", [[1, 2, 30]]],
 [0, "stage", "stage2_f", [[1, 300, 100, [[0, 200]]], [1, 300, 100, [[0, 200]], 40, 3]]]]}]"""


def test_a_breakdown_of_an_older_baseline_is_read_and_explains_by_sums() -> None:
    stored = stored_breakdown.from_json(json.loads(OLDER))
    was = stored[MeasuredAs("median", "range", "contained")][0]
    first, second = was.communication[STAGE]
    assert (first.wait, first.start_ns, second.wait) == (None, None, Wait(40, 3))
    assert was.barriers == {"nccl": Barrier(2, 30)}
    assert was.wall_ns(*Wall) == 1000
    now = broken([K("gemm", 0, 450), K(A2A, 500, 600)])
    found = explain("window_ns", {"rank": 0}, 0, was, now)
    assert {(cause.kind, cause.kernel) for cause in found.causes} <= {(kind, "") for kind in CauseKind}
    assert sum(cause.change_ns for cause in found.causes) == 0
    again = stored_breakdown.as_text(stored)
    assert stored_breakdown.from_json(json.loads(again)) == stored


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

EXACT = ("exposed_ns", "comm_ns", "compute_ns", "window_ns", "busy_ns", "idle_ns", "barrier_ns")


@given(st.tuples(some, some), st.tuples(some, some))
@settings(max_examples=150)
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


@given(st.lists(st.tuples(some, some), max_size=3))
@settings(max_examples=30)
def test_a_stored_breakdown_is_read_back(pairs: list[tuple[list[K], list[K]]]) -> None:
    stored = {
        MeasuredAs(f"window {n}", "range", "clipped"): {rank: broken(*pair, rank=rank) for rank in (0, 1)}
        for n, pair in enumerate(pairs)
    }
    text = stored_breakdown.as_text(stored)
    assert stored_breakdown.from_json(json.loads(text)) == stored
    assert stored_breakdown.as_text(dict(reversed(stored.items()))) == text


def test_only_the_breakdowns_that_are_kept_are_made() -> None:
    asked: list[int] = []

    def each() -> Iterator[tuple[int, Breakdown]]:
        for rank in range(1_000):
            asked.append(rank)
            yield rank, broken([K(A2A, 5, 9), K("gemm", 0, 7)])

    assert [*storable(each())] == asked == [*range(MOST_RANKS)]


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
