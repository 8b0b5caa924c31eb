"""Are red assertions of one cause one group, and those of another one apart?"""

from __future__ import annotations

from typing import Any

from pytest_nsys.analysis.explained import Cause, CauseKind, Explained, Explanation
from pytest_nsys.core.model import Label
from pytest_nsys.gates.model import JudgedRow, Outcome
from pytest_nsys.reports.page.session_page import groups
from pytest_nsys.reports.session.record import Record
from tests.support.reports import key, record

AT: dict[str, Label] = {"rank": 1, "stage": "all_gather"}


def cause(kernel: str, kind: CauseKind, labels: dict[str, Label], exposes: str = "") -> Explained:
    """A row that got longer by one cause."""
    longer = Cause(kind, kernel, 5, before_ns=10, now_ns=15, was=1, kernels=1, exposes=exposes)
    return Explained(labels, Explanation(5, (longer,), 0))


def red(name: str, metric: str, *causes: Explained, **more: Any) -> Record:
    judged = (JudgedRow(AT, 2, 1, Outcome.FAILED, margin=-1),)
    return record(name, subject=metric, judged=judged, causes=causes, key=key(2), **more)


def found(*records: Record) -> list[tuple[str, list[str]]]:
    return [(group.title, [each.name for each in group.records]) for group in groups(records)]


OF_A_PERIOD = cause("AllGather", CauseKind.EXPOSED, {"rank": 1, "quantile": "p50"})
PERIOD = red("p", "period_ns", OF_A_PERIOD)
COVER = cause("gemm", CauseKind.COVER_MOVED, AT, exposes="AllGather")
EXPOSED = red("e", "exposed_ns", COVER)


def test_one_longer_kernel_is_one_group() -> None:
    assert found(
        red("a", "exposed_ns", cause("SendRecv", CauseKind.LONGER, AT)),
        red("b", "comm_ns", cause("SendRecv", CauseKind.LONGER, AT)),
    ) == [("SendRecv +50% on rank 1", ["a", "b"])]


def test_what_overlaps_less_stands_with_what_is_exposed_by_it() -> None:
    assert found(PERIOD, EXPOSED) == [("AllGather exposed +50% on rank 1", ["p", "e"])]
    assert found(EXPOSED) == [("less overlap with gemm on rank 1", ["e"])]


def test_exposed_communication_of_another_rank_or_gate_file_is_another_cause() -> None:
    elsewhere = red("p", "period_ns", cause("AllGather", CauseKind.EXPOSED, {"rank": 0}))
    for other in (elsewhere, red("p", "period_ns", OF_A_PERIOD, file="perf/b.nsys.yaml")):
        assert [names for _, names in found(other, EXPOSED)] == [["p"], ["e"]]


def test_a_limit_stands_with_the_cause_of_the_same_row() -> None:
    overlap = red("o", "overlap")
    assert found(overlap, EXPOSED) == [("less overlap with gemm on rank 1", ["o", "e"])]
    assert found(overlap, EXPOSED, PERIOD) == [("AllGather exposed +50% on rank 1", ["o", "e", "p"])]


def test_a_metric_that_is_explained_otherwise_stands_apart() -> None:
    for metric in ("launches", "measured mfu"):
        assert found(red("l", metric), EXPOSED) == [
            ("Cause not known", ["l"]),
            ("less overlap with gemm on rank 1", ["e"]),
        ]


def test_what_is_not_judged_has_a_group_of_its_own() -> None:
    broken, nothing = record("b", "error"), record("n", "no data")
    assert found(red("l", "launches"), broken, nothing, record("i", "improved", good=True)) == [
        ("Cause not known", ["l"]),
        ("Not judged", ["b"]),
        ("No data", ["n"]),
        ("Improved", ["i"]),
    ]
