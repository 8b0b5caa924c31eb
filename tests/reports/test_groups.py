"""Are red assertions of one cause one group, and those of another one apart?"""

from __future__ import annotations

from typing import Any

from pytest_nsys.reports.page.groups import groups
from tests.support.reports import record

AT = {"rank": 1, "stage": "all_gather"}


def cause(kernel: str, kind: str, labels: dict[str, Any], exposes: str = "") -> dict[str, Any]:
    """A row that got longer by one cause."""
    told = {"before_ns": 10, "now_ns": 15, "was": 1, "kernels": 1, "straggler": None, "text": kind}
    part = {"kernel": kernel, "kind": kind, "change_ns": 5, "exposes": exposes, **told}
    return {"labels": labels, "cause": kernel, "change_ns": 5, "parts": [part], "budget": None}


def red(name: str, metric: str, *causes: dict[str, Any], **more: Any) -> dict[str, Any]:
    judged = [{"labels": more.pop("labels", AT), "outcome": "failed", "waived": False, "margin": -1, "limit": 1}]
    return record(name, metric=metric, judged=judged, causes=list(causes), key={"world": 2}, **more)


def found(*records: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(group.title, [each["name"] for each in group.records]) for group in groups(records)]


PERIOD = red("p", "period_ns", cause("AllGather", "exposed communication takes longer", {"rank": 1, "quantile": "p50"}))
COVER = cause("gemm", "compute that hid it ran at another time", AT, exposes="AllGather")
EXPOSED = red("e", "exposed_ns", COVER)


def test_one_longer_kernel_is_one_group() -> None:
    assert found(
        red("a", "exposed_ns", cause("SendRecv", "longer", AT)), red("b", "comm_ns", cause("SendRecv", "longer", AT))
    ) == [("SendRecv +50% on rank 1", ["a", "b"])]


def test_what_overlaps_less_stands_with_what_is_exposed_by_it() -> None:
    assert found(PERIOD, EXPOSED) == [("AllGather exposed +50% on rank 1", ["p", "e"])]
    assert found(EXPOSED) == [("less overlap with gemm on rank 1", ["e"])]


def test_exposed_communication_of_another_rank_or_gate_file_is_another_cause() -> None:
    elsewhere = red("p", "period_ns", cause("AllGather", "exposed communication takes longer", {"rank": 0}))
    for other in (elsewhere, {**PERIOD, "file": "perf/b.nsys.yaml"}):
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
