"""What is at the root of a change? Each case is two timelines of ranks; nothing that did not change is a root."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_nsys.analysis.explained import Breakdown
from pytest_nsys.analysis.root_facts import RootChange, RootKind, RootOf
from pytest_nsys.analysis.roots import roots_of
from tests.analysis.test_causes import A2A, STAGE, K, broken

Rank = Sequence[K]


def apart(ranks: Sequence[Rank]) -> dict[int, Breakdown]:
    return {rank: broken(*ranks, rank=rank) for rank in range(len(ranks))}


def told(found: Sequence[RootChange]) -> list[tuple[int, RootKind, RootOf, str, int]]:
    """The kernels that changed by themselves: where, how, and by how much."""
    return [(each.rank, each.root.kind, each.root.of, each.root.name, each.change_ns) for each in found]


GEMM, NORM, TAIL = K("gemm", 0, 400), K("norm", 400, 450), K("tail", 800, 900)
SENT = K(A2A, 450, 600)
ONE = [GEMM, NORM, SENT, TAIL]
LONGER, SHORTER, APPEARED = RootKind.LONGER, RootKind.SHORTER, RootKind.APPEARED
VANISHED, LATER, ELSEWHERE = RootKind.VANISHED, RootKind.LATER, RootKind.ELSEWHERE
KERNEL, COLLECTIVE, HOST, ALL = RootOf.KERNEL, RootOf.COLLECTIVE, RootOf.HOST, RootOf.ALL


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (ONE, []),
        ([GEMM, NORM, K(A2A, 450, 700), TAIL], [(0, LONGER, COLLECTIVE, A2A, 100)]),
        ([GEMM, K("norm", 400, 420), SENT, TAIL], [(0, SHORTER, KERNEL, "norm", -30)]),
        ([*ONE, K("scale", 910, 930)], [(0, APPEARED, KERNEL, "scale", 20)]),
        ([GEMM, SENT, TAIL], [(0, VANISHED, KERNEL, "norm", -50)]),
        ([GEMM, NORM, SENT, K("tail", 850, 950)], [(0, LATER, HOST, "tail", 50)]),
        ([GEMM, NORM, SENT, K("tail", 850, 950, ahead_ns=400)], []),  # it waits for something, and nothing changed
        ([K("gemm", 0, 440), K("norm", 440, 495), SENT, K("tail", 800, 910)], [(0, LONGER, ALL, "", 55)]),
        ([K("gemm", 0, 440), NORM, SENT, TAIL], [(0, LONGER, KERNEL, "gemm", 40)]),
        ([GEMM, K("norm", 400, 450, other=True), SENT, TAIL], [(0, ELSEWHERE, KERNEL, "norm", 50)]),
        (
            [GEMM, K("norm", 400, 450, other=True), K(A2A, 450, 700), TAIL],
            [(0, LONGER, COLLECTIVE, A2A, 100), (0, ELSEWHERE, KERNEL, "norm", 50)],
        ),
        ([K(each.name, each.start_ns, each.end_ns, other=True) for each in ONE], []),  # streams have other numbers
    ],
)
def test_what_changed_by_itself(now: Rank, expected: list[tuple[int, RootKind, RootOf, str, int]]) -> None:
    assert told(roots_of(apart([ONE]), apart([now]))) == expected


def test_what_waits_for_another_rank_is_no_root() -> None:
    waits, late = [GEMM, NORM, K(A2A, 450, 680), TAIL], [GEMM, K("norm", 400, 530), K(A2A, 530, 680), TAIL]
    assert told(roots_of(apart([ONE, ONE]), apart([waits, late]))) == [(1, LONGER, KERNEL, "norm", 80)]


def test_a_collective_has_its_stage() -> None:
    (found,) = roots_of(apart([ONE]), apart([[GEMM, NORM, K(A2A, 450, 700), TAIL]]))
    assert (found.root.stage, found.before_ns, found.now_ns, found.was, found.is_now) == (STAGE, 150, 250, 1, 1)
