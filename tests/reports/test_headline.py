"""Does the first line say what happened, in one sentence, and no more than the records say? Are reds of one cause one
group, and those of another one apart?
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from pytest_nsys.analysis.explained import BudgetChange, Cause, CauseKind, Explained, Explanation
from pytest_nsys.analysis.windows import UsedWindow
from pytest_nsys.core.errors import Mistake
from pytest_nsys.core.model import Label, Value, Window
from pytest_nsys.gates.model import JudgedRow, Outcome
from pytest_nsys.reports.causes import cause_of
from pytest_nsys.reports.headline import as_sentence, of_session, why_words
from pytest_nsys.reports.page.session_page import groups
from pytest_nsys.reports.session.digest import By, Digest, LeftOut, NotRunFile
from pytest_nsys.reports.session.record import Record
from tests.support.commands import run
from tests.support.gates import Project
from tests.support.page import Page
from tests.support.reports import digest, key, record

MS = 1_000_000


def row(value: Value | None, baseline: Value | None = None, limit: Value | None = None, **more: Any) -> JudgedRow:
    """A judged row of rank 0 that failed by as much as it is over its limit."""
    margin = None if value is None or limit is None else limit - value
    told = {"labels": {"rank": 0}, "outcome": Outcome.FAILED, "margin": margin, **more}
    return JudgedRow(value=value, baseline=baseline, limit=limit, **told)


def part(kernel: str = "flash_fwd_kernel", kind: CauseKind = CauseKind.COMPUTE, **more: Any) -> Cause:
    told = {"change_ns": 2 * MS, "before_ns": 8 * MS, "now_ns": 10 * MS, "was": 4, "kernels": 4, **more}
    return Cause(kind, kernel, **told)


def cause(rank: int = 0, budget: tuple[int, int] | None = None, own: Cause | None = None, **labels: Label) -> Explained:
    """A row that is explained by one kernel; ``budget`` are the lengths of its window, before and now."""
    first = own or part()
    moved = None if budget is None else BudgetChange((), None, *budget)
    return Explained({"rank": rank, **labels}, Explanation(first.change_ns, (first,), 0, moved))


def red(name: str = "red", subject: str = "window_ns", unit: str = "ns", world: int = 2, **more: Any) -> Record:
    windows = (UsedWindow(0, 0, Window(0, 1, more.pop("window", "ProfilerStep#7"))),)
    told = {"outcome": more.pop("outcome", "failed"), "key": key(world), "windows": windows}
    return record(name, subject=subject, unit=unit, **told, **more)


def slow(ranks: tuple[int, ...] = (0, 1), **more: Any) -> Record:
    judged = tuple(row(18_800_000, 16_800_000, 17_640_000, labels={"rank": rank}) for rank in ranks)
    return red(judged=judged, **{"causes": tuple(map(cause, ranks)), **more})


def green(name: str = "green", value: int = 84, limit: int = 60, **more: Any) -> Record:
    amounts = (Fraction(value, 100), None, Fraction(limit, 100))
    held = row(*amounts, margin=Fraction(value - limit, 100), outcome=Outcome.PASSED)
    return record(name, "passed", subject="overlap", unit="%", judged=(held,), **more)


STEP = "Step 12% slower (16.8 → 18.8 ms): flash_fwd_kernel +25%"


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([slow()], f"{STEP} on both ranks"),
        ([slow(world=8)], f"{STEP} on ranks 0–1"),
        ([slow((1,)), green()], f"{STEP} on rank 1"),
        ([slow((0,), world=1)], STEP),
        ([slow(window="forward chunk 5")], "Window 12% longer (16.8 → 18.8 ms): flash_fwd_kernel +25% on both ranks"),
        ([slow(world=4, causes=())], "Step 12% slower on ranks 0–1 (16.8 → 18.8 ms)"),
        ([slow((0,), causes=(cause(1),))], "Step 12% slower on rank 0 (16.8 → 18.8 ms)"),  # the cause of another row
        (
            [slow((1,), configuration="mixtral"), slow((0,), configuration="dsv3", name="a")],
            f"{STEP} on rank 1 (mixtral); 2 of 2 configurations failed",
        ),
    ],
)
def test_a_longer_step(records: list[Record], expected: str) -> None:
    assert of_session(digest(*records, exit_status=1)) == expected


def test_the_step_leads_whatever_else_is_worse() -> None:
    worse = red("a", "exposed_ns", judged=(row(9 * MS, MS, MS),))
    assert of_session(digest(worse, slow())).startswith("Step 12% slower")


def exposed(budget: tuple[int, int] | None, **more: Any) -> Record:
    at = {"rank": 1, "stage": "stage4_f"}
    wait = part("ncclDevKernel_SendRecv", CauseKind.LONGER, before_ns=10 * MS, now_ns=16 * MS)
    explained = cause(1, budget, wait, stage="stage4_f")
    return red("e", "exposed_ns", judged=(row(4 * MS, MS, 2 * MS, labels=at),), causes=(explained,), **more)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (
            (24 * MS, 27 * MS),
            "Step 12% slower on rank 1 (24 → 27 ms); "
            "exposed_ns +300% (1 → 4 ms), stage4_f: ncclDevKernel_SendRecv +60%",
        ),
        ((24 * MS, 24 * MS + 1), "exposed_ns +300% (1 → 4 ms), rank 1 stage4_f: ncclDevKernel_SendRecv +60%"),
        (None, "exposed_ns +300% (1 → 4 ms), rank 1 stage4_f: ncclDevKernel_SendRecv +60%"),
        (
            (24 * MS, 21 * MS),
            "exposed_ns +300% (1 → 4 ms), rank 1 stage4_f: ncclDevKernel_SendRecv +60%; "
            "step 12% faster on rank 1 (24 → 21 ms)",
        ),
    ],
)
def test_the_window_of_a_row_says_whether_the_step_is_slower(budget: tuple[int, int] | None, expected: str) -> None:
    assert of_session(digest(exposed(budget))) == expected


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (part(kind=CauseKind.WAITS, straggler=3), "flash_fwd_kernel waits for rank 3"),
        (part(kind=CauseKind.APPEARED, before_ns=0, was=0), "flash_fwd_kernel appeared"),
        (part(kind=CauseKind.COVER_SHRANK), "less overlap with flash_fwd_kernel"),
        (part(kernels=5), "flash_fwd_kernel runs 8 ms → 10 ms (4 → 5 kernels)"),
        (part(before_ns=0), "flash_fwd_kernel runs 0 ms → 10 ms"),
    ],
)
def test_causes_of_other_kinds(own: Cause, expected: str) -> None:
    explained = cause(own=own)
    assert why_words(cause_of(explained), [slow(world=1, causes=(explained,))]) == expected


def test_a_kernel_that_changed_unlike_in_two_ranks() -> None:
    rows = (cause(0), cause(1, own=part(now_ns=12 * MS, change_ns=4 * MS)))
    assert why_words("flash_fwd_kernel", [slow(causes=rows)]) == "flash_fwd_kernel +25% to +50% on both ranks"


P90: dict[str, Label] = {"rank": 0, "quantile": "p90"}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (
            [red("a", "overlap", "%", judged=(row(Fraction(347, 1000), None, Fraction(3, 5)),), comparator=">=")],
            "Overlap 34.7% < 60%, rank 0",
        ),
        (
            [red(subject="balance of window_ns across pp", unit="1", judged=(row(2, 1, 1),))],
            "Balance of window_ns across pp +100% (1 → 2), rank 0",
        ),
        (
            [red("a", "measured tokens", "tokens/s", judged=(row(1104, 1200, 1180),))],
            "Measured tokens −8% (1200 → 1104 tokens/s), rank 0",
        ),
        ([red("a", "exposed_ns", judged=(row(1170, 6, 60),))], "exposed_ns × 195 (0.006 → 1.17 us), rank 0"),
        ([red("a", "launches", "count", judged=(row(None, 6),), message="gone")], "Launches failed: gone"),
        ([record("a", "error", message="run.sqlite: damaged")], "1 assertion not judged: a: run.sqlite: damaged"),
        (
            [record("a", "error", message="damaged"), record("b", "error", message="damaged")],
            "2 assertions not judged: damaged",
        ),
        ([record("a", "no data", message="no row")], "1 assertion without data: a: no row"),
        ([record("a", "incomparable", message="gpu differs"), green()], "1 assertion incomparable: a: gpu differs"),
        (
            [slow(), record("a", "error", message="damaged"), record("b", "no data", message="no row")],
            f"{STEP} on both ranks; 1 assertion not judged: a: damaged; 1 assertion without data: b: no row",
        ),
        (
            [slow(), green(file="perf/b.nsys.yaml")],
            f"{STEP} on both ranks (perf/gate.nsys.yaml); 1 of 2 gate files failed",
        ),
        ([green(), green("b", 75)], "Both assertions passed; least headroom 15 pp: overlap 75%, limit 60%, rank 0"),
        ([record("a", "passed")], "1 assertion passed"),
        (
            [slow(severity="warn", good=True), green()],
            "Warning: step 12% slower (16.8 → 18.8 ms): flash_fwd_kernel +25% on both ranks; "
            "2 assertions: 1 warned, 1 passed; least headroom 24 pp: overlap 84%, limit 60%, rank 0",
        ),
        (
            [red(outcome="improved", good=True, judged=(row(14 * MS, 16 * MS, 15 * MS, outcome=Outcome.IMPROVED),))],
            "Improved: step 12% faster on rank 0 (16 → 14 ms); 1 assertion improved",
        ),
        (
            [red(outcome="improved", judged=(row(14 * MS, 16 * MS, 15 * MS, outcome=Outcome.IMPROVED),))],
            "Improved: step 12% faster on rank 0 (16 → 14 ms)",
        ),
        ([record("a", "inconclusive", message="within the noise")], "1 assertion inconclusive: a: within the noise"),
        ([record("a", "passed", good=False, message="DeprecationWarning")], "a: DeprecationWarning"),
        (
            [red(judged=(row(90 * MS, 16 * MS, 17 * MS, waived=True), row(18 * MS, 16 * MS, 17 * MS)))],
            "Step 12% slower on rank 0 (16 → 18 ms)",
        ),
        (
            [red(subject="period_ns", judged=(row(24 * MS, 20 * MS, 21 * MS, labels=P90),))],
            "Step 20% slower, p90 on rank 0 (20 → 24 ms)",
        ),
    ],
)
def test_every_mixture(records: list[Record], expected: str) -> None:
    assert of_session(digest(*records)) == expected


OVERLP = Mistake("perf/a.nsys.yaml", "unknown metric 'overlp'", 7, 3)
LEFT = LeftOut("perf/gate.nsys.yaml", "b", By.ARGUMENTS, "deselected")
GREEN = "1 assertion passed; least headroom 24 pp: overlap 84%, limit 60%, rank 0"


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        (digest(), "No assertion of a gate file was judged"),
        (
            digest(not_run=(NotRunFile("perf/a.nsys.yaml", ("a",), "no trace given"),)),
            "Not run: 1 gate file, no trace given",
        ),
        (
            digest(mistakes=(OVERLP, Mistake("perf/b.nsys.yaml", "is empty")), exit_status=2),
            "Not judged: perf/a.nsys.yaml:7:3: unknown metric 'overlp', and 1 more mistake",
        ),
        (digest(green(), exit_status=1), f"pytest ended with exit status 1 (something failed); {GREEN}"),
        (digest(green(), left_out=(LEFT,)), f"{GREEN}; left out: 1 assertion"),
    ],
)
def test_a_session_in_which_not_all_was_judged_well(session: Digest, expected: str) -> None:
    assert of_session(session) == expected


def test_a_comparison_and_a_session_say_the_same(project: Project) -> None:
    project.gated("- exposed_ns below baseline plus 5%\n", 300)
    project.trace("base.sqlite")
    project.pytest("--nsys-trace=run.sqlite", "--nsys-against=base.sqlite", "--nsys-html=page.html", code=1)
    theirs = run("compare", "base.sqlite", "run.sqlite", "--gate=gate.nsys.yaml", "--format=html").stdout
    ours = (project.root / "page.html").read_text(encoding="utf-8")
    (said,) = Page(ours).texts["h1"]
    assert Page(theirs).texts["h1"] == [said]
    assert (
        said.replace("\u00a0", " ")
        == "exposed_ns +50% (200 → 300 us), rank 0 stage2_f: less overlap with gemm on both ranks"
    )


def test_a_comparison_without_a_red_row_says_what_a_session_says(project: Project) -> None:
    project.gated("- exposed_ns below baseline plus 5%\n")
    project.trace("base.sqlite")
    found = run("compare", "base.sqlite", "run.sqlite", "--gate=gate.nsys.yaml", "--format=html", code=0).stdout
    said = "1 assertion passed; least headroom 10 us: exposed_ns 200 us, limit 210 us, rank 0 stage2_f"
    assert [text.replace("\u00a0", " ") for text in Page(found).texts["h1"]] == [said]


# Reds of one cause are one group

AT: dict[str, Label] = {"rank": 1, "stage": "all_gather"}


def lengthened(kernel: str, kind: CauseKind, labels: dict[str, Label], exposes: str = "") -> Explained:
    """A row that got longer by one cause."""
    longer = Cause(kind, kernel, 5, before_ns=10, now_ns=15, was=1, kernels=1, exposes=exposes)
    return Explained(labels, Explanation(5, (longer,), 0))


def of(name: str, metric: str, *causes: Explained, **more: Any) -> Record:
    return red(name, metric, judged=(row(2, None, 1, labels=AT),), causes=causes, **more)


def found(*records: Record) -> list[tuple[str, list[str]]]:
    return [(group.title, [each.name for each in group.records]) for group in groups(records)]


OF_A_PERIOD = lengthened("AllGather", CauseKind.EXPOSED, {"rank": 1, "quantile": "p50"})
PERIOD = of("p", "period_ns", OF_A_PERIOD)
COVER = lengthened("gemm", CauseKind.COVER_MOVED, AT, exposes="AllGather")
EXPOSED = of("e", "exposed_ns", COVER)


def test_one_longer_kernel_is_one_group() -> None:
    assert found(
        of("a", "exposed_ns", lengthened("SendRecv", CauseKind.LONGER, AT)),
        of("b", "comm_ns", lengthened("SendRecv", CauseKind.LONGER, AT)),
    ) == [("SendRecv +50% on rank 1", ["a", "b"])]


def test_what_overlaps_less_stands_with_what_is_exposed_by_it() -> None:
    assert found(PERIOD, EXPOSED) == [("AllGather exposed +50% on rank 1", ["p", "e"])]
    assert found(EXPOSED) == [("less overlap with gemm on rank 1", ["e"])]


def test_exposed_communication_of_another_rank_or_gate_file_is_another_cause() -> None:
    elsewhere = of("p", "period_ns", lengthened("AllGather", CauseKind.EXPOSED, {"rank": 0}))
    for other in (elsewhere, of("p", "period_ns", OF_A_PERIOD, file="perf/b.nsys.yaml")):
        assert [names for _, names in found(other, EXPOSED)] == [["p"], ["e"]]


def test_a_limit_stands_with_the_cause_of_the_same_row() -> None:
    overlap = of("o", "overlap")
    assert found(overlap, EXPOSED) == [("less overlap with gemm on rank 1", ["o", "e"])]
    assert found(overlap, EXPOSED, PERIOD) == [("AllGather exposed +50% on rank 1", ["o", "e", "p"])]


def test_a_metric_that_is_explained_otherwise_stands_apart() -> None:
    for metric in ("launches", "measured mfu"):
        assert found(of("l", metric), EXPOSED) == [
            ("Cause not known", ["l"]),
            ("less overlap with gemm on rank 1", ["e"]),
        ]


def test_what_is_not_judged_has_a_group_of_its_own() -> None:
    broken, nothing = record("b", "error"), record("n", "no data")
    assert found(of("l", "launches"), broken, nothing, record("i", "improved", good=True)) == [
        ("Cause not known", ["l"]),
        ("Not judged", ["b"]),
        ("No data", ["n"]),
        ("Improved", ["i"]),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 of 2 rows above the limit", "1 of 2 rows above the limit"),
        ("no row of stage 'a'", "No row of stage 'a'"),
        ("run.sqlite: there is no such file", "run.sqlite: there is no such file"),
        ("traces: holds no trace", "traces: holds no trace"),
        ("pytest ended with exit status 3", "pytest ended with exit status 3"),
    ],
)
def test_a_sentence_begins_with_a_capital_but_for_names_and_files(text: str, expected: str) -> None:
    assert as_sentence(text) == expected
