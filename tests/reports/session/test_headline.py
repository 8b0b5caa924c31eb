"""Does the first line say what happened, in one sentence, and no more than the records say? Are reds of one cause one
group, and those of another one apart?
"""

import json
import random
import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from pytest_nsys.analysis.explain.breakdown_model import (
    Change,
    ChangeKind,
    Explanation,
    RootCause,
    RowActivity,
    RowExplanation,
    StepChange,
)
from pytest_nsys.analysis.windows.window_selection import UsedWindow
from pytest_nsys.core.errors import Mistake
from pytest_nsys.core.model import Label, Value, Window
from pytest_nsys.gates.model import JudgedRow, Outcome
from pytest_nsys.reports.page.root_view import list_sections
from pytest_nsys.reports.session.headline import as_sentence, format_headline
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.session import NotRunFile, Session
from tests.support.commands import run
from tests.support.gates import Project
from tests.support.page import Page
from tests.support.reports import base_verdict, key, make_session, record

MS = 1_000_000


def row(value: Value | None, baseline: Value | None = None, limit: Value | None = None, **more: Any) -> JudgedRow:
    """A judged row of rank 0 that failed by as much as it is over its limit."""
    margin = None if value is None or limit is None else limit - value
    told = {"labels": {"rank": 0}, "outcome": Outcome.FAILED, "margin": margin, **more}
    return JudgedRow(value=value, baseline=baseline, limit=limit, **told)


def cause(
    rank: int = 0, kernel: str = "flash_fwd_kernel", both: tuple[int, int] = (8, 10), stage: str = ""
) -> RowExplanation:
    """A row with a root: a kernel that is longer, before and now in ms."""
    labels = {"rank": rank} | ({"stage": stage} if stage else {})
    change = Change(RootCause(ChangeKind.LONGER, RowActivity.KERNEL, kernel), rank, both[0] * MS, both[1] * MS, 4, 4)
    return RowExplanation(labels, Explanation(change.change_ns, (), change.change_ns), (change,))


def red(
    name: str = "red", subject: str = "window_ns", unit: str = "ns", world: int = 2, **more: Any
) -> AssertionRecord:
    windows = (UsedWindow(0, 0, Window(0, 1, more.pop("window", "ProfilerStep#7"))),)
    told = {"outcome": more.pop("outcome", "failed"), "key": key(world), "windows": windows}
    return record(name, subject=subject, unit=unit, **told, **more)


def slow(ranks: tuple[int, ...] = (0, 1), **more: Any) -> AssertionRecord:
    judged = tuple(row(18_800_000, 16_800_000, 17_640_000, labels={"rank": rank}) for rank in ranks)
    return red(judged=judged, **{"causes": tuple(map(cause, ranks)), **more})


def green(name: str = "green", value: int = 84, limit: int = 60, **more: Any) -> AssertionRecord:
    amounts = (Fraction(value, 100), None, Fraction(limit, 100))
    held = row(*amounts, margin=Fraction(value - limit, 100), outcome=Outcome.PASSED)
    return record(name, "passed", subject="overlap", unit="%", judged=(held,), **more)


STEP = "Step 12% slower (16.8 → 18.8 ms): flash_fwd_kernel 25% longer"


def within(used_ns: int, tolerance_ns: int, rank: int = 0) -> JudgedRow:
    """A row that holds, and is worse than its baseline of 1 ms by what it used of its tolerance."""
    held = {
        "tolerance": tolerance_ns,
        "margin": tolerance_ns - used_ns,
        "outcome": Outcome.PASSED,
        "labels": {"rank": rank},
    }
    return row(1_000_000 + used_ns, 1_000_000, 1_000_000 + tolerance_ns, **held)


def test_the_least_headroom_is_of_the_row_that_used_most_of_its_tolerance() -> None:
    """However far it is from its limit in ns; and no row beneath it has less."""
    wide, narrow = within(90_000, 100_000), within(1_000, 10_000)
    one = record("exposed", "passed", subject="exposed_ns", unit="ns", judged=(narrow, within(0, 5_000, 1)))
    other = record("window", "passed", subject="window_ns", unit="ns", judged=(wide, within(1_000, 10_000, 1)))
    said = "Both assertions passed; least headroom 10% of tolerance: window_ns 1.09 ms, limit 1.1 ms, rank 0"
    assert format_headline(make_session(one, other)) == format_headline(make_session(other, one)) == said
    assert other.verdict.nearest_row is wide
    assert row(5, None, 5).headroom == 0  # below a strict limit, and red
    assert row(5, None, 5, outcome=Outcome.PASSED).headroom is None
    assert one.verdict.nearest_row is narrow


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([slow()], f"{STEP} on both ranks"),
        ([slow(world=8)], f"{STEP} on ranks 0–1"),
        ([slow((1,)), green()], f"{STEP} on rank 1"),
        ([slow((0,), world=1)], STEP),
        (
            [slow(window="forward chunk 5")],
            "Window 12% longer (16.8 → 18.8 ms): flash_fwd_kernel 25% longer on both ranks",
        ),
        ([slow(window="kernel embed after adam")], f"{STEP} on both ranks"),
        ([slow(world=4, causes=())], "Step 12% slower (16.8 → 18.8 ms) on ranks 0–1"),
        ([slow((0,), causes=(cause(1),))], "Step 12% slower (16.8 → 18.8 ms) on rank 0"),  # the cause of another row
        (
            [slow((1,), configuration="mixtral"), slow((0,), configuration="dsv3", name="a")],
            "Step 12% slower (16.8 → 18.8 ms, dsv3): flash_fwd_kernel 25% longer on ranks 0–1, 2 of 2 configurations",
        ),
    ],
)
def test_a_longer_step(records: list[AssertionRecord], expected: str) -> None:
    assert format_headline(make_session(*records, exit_status=1)) == expected


@pytest.mark.parametrize(("now_ns", "between"), [(5 * MS, ": "), (5 * MS - 1, ", most of it not explained; ")])
def test_a_root_of_less_than_half_of_a_longer_step_says_so(now_ns: int, between: str) -> None:
    change = Change(RootCause(ChangeKind.LONGER, RowActivity.KERNEL, "gemm"), 0, 4 * MS, now_ns, 4, 4)
    causes = (RowExplanation({"rank": 0}, Explanation(2 * MS, (), 0), (change,)),)
    said = format_headline(make_session(slow((0,), world=1, causes=causes)))
    assert said.startswith(f"Step 12% slower (16.8 → 18.8 ms){between}gemm")


def test_the_step_leads_whatever_else_is_worse() -> None:
    worse = red("a", "exposed_ns", judged=(row(9 * MS, MS, MS),))
    assert format_headline(make_session(worse, slow())).startswith("Step 12% slower")


def exposed(step: tuple[int, int] | None) -> AssertionRecord:
    """A red of 6 ms on rank 1 of a step of so many ns, before and now."""
    at = {"rank": 1, "stage": "stage4_f"}
    change = None if step is None else StepChange({1: step[0]}, {1: step[1]})
    causes = (cause(1, "moe_dispatch", (10, 16), "stage4_f"),)
    return red("e", "exposed_ns", judged=(row(4 * MS, MS, 2 * MS, labels=at),), causes=causes, step=change)


DISPATCH = "moe_dispatch 60% longer"
GONE = RootCause(ChangeKind.GONE, RowActivity.KERNEL, "weight_grad")


def test_what_made_a_step_faster_is_told_of_what_is_red_by_it() -> None:
    change = Change(GONE, 0, 2 * MS, 0, 2, 0)
    causes = (RowExplanation({"rank": 0}, Explanation(3 * MS, (), 3 * MS), (change,)),)
    step = StepChange({0: 20 * MS}, {0: 18 * MS})
    less = red("e", "exposed_ns", judged=(row(4 * MS, MS, 2 * MS),), causes=causes, step=step)
    said = "kernel weight_grad is gone (2 times, 2 ms), exposed 1 → 4 ms on rank 0"
    assert format_headline(make_session(less)) == f"Step 10% faster (20 → 18 ms); {said}"


@pytest.mark.parametrize(
    ("change_ns", "expected"),
    [
        (-2 * MS, "Step 10% faster (20 → 18 ms): gemm 50% shorter on rank 0; "),
        (-MS // 2, "Step 10% faster (20 → 18 ms); "),  # accounts for a quarter
        (2 * MS, "Step 10% faster (20 → 18 ms); "),  # the other way
    ],
)
def test_a_comparison_says_why_a_step_is_faster_before_what_got_worse(change_ns: int, expected: str) -> None:
    step = StepChange({0: 20 * MS}, {0: 18 * MS})
    shorter = Change(SHORT, 0, 4 * MS, 4 * MS + change_ns, 2, 2)
    causes = (RowExplanation({"rank": 0}, Explanation(-2 * MS, (), -2 * MS), (shorter,)),)
    held = row(18 * MS, 20 * MS, 21 * MS, outcome=Outcome.IMPROVED)
    better = record("s", "improved", subject="window_ns", unit="ns", judged=(held,), causes=causes, step=step)
    added = (RowExplanation({"rank": 0}, Explanation(3 * MS, (), 3 * MS), (Change(GONE, 0, 2 * MS, 0, 2, 0),)),)
    worse = red("e", "exposed_ns", judged=(row(4 * MS, MS, 2 * MS),), causes=added, step=step)
    compared: Any = object()
    said = format_headline(make_session(better, worse, comparison=compared))
    assert said.startswith(f"{expected}kernel weight_grad is gone (2 times, 2 ms), exposed 1 → 4 ms on rank 0")
    alone = format_headline(make_session(better, worse))
    assert alone.startswith("Step 10% faster (20 → 18 ms); kernel weight_grad is gone")


def test_one_root_of_what_is_faster_and_of_what_is_red_is_told_once() -> None:
    step = StepChange({0: 20 * MS}, {0: 18 * MS})
    shorter = Change(SHORT, 0, 4 * MS, 2 * MS, 2, 2)
    causes = (RowExplanation({"rank": 0}, Explanation(-2 * MS, (), -2 * MS), (shorter,)),)
    held = row(18 * MS, 20 * MS, 21 * MS, outcome=Outcome.IMPROVED)
    better = record("s", "improved", subject="window_ns", unit="ns", judged=(held,), causes=causes, step=step)
    worse = red("e", "sequence", judged=(row(2, 1, 1),), causes=causes, step=step, unit="hash")
    compared: Any = object()
    said = format_headline(make_session(better, worse, comparison=compared))
    told = "Step 10% faster (20 → 18 ms): gemm 50% shorter on rank 0; improved and red: window_ns −10% (20 → 18 ms)"
    assert said == f"{told}, rank 0"


SHORT = RootCause(ChangeKind.SHORTER, RowActivity.KERNEL, "gemm")
COVER = Change(
    RootCause(ChangeKind.SHORTER, RowActivity.COVER, "gemm"), 0, 3 * MS, 0, exposed_kernel="ncclDevKernel_SendRecv"
)


@pytest.mark.parametrize(
    ("subject", "root", "world", "more", "expected"),
    [
        ("idle_ns", SHORT, 1, {}, "gemm 50% shorter, and the GPU idles instead: 1 → 4 ms"),
        (
            "idle_ns",
            GONE,
            2,
            {},
            "kernel weight_grad is gone (2 times, 2 ms), and the GPU idles instead: 1 → 4 ms on rank 0",
        ),
        ("exposed_ns", SHORT, 1, {}, "gemm 50% shorter, so SendRecv of stage2_f is exposed 1 → 4 ms"),
        ("exposed_ns", SHORT, 2, {}, "gemm 50% shorter, so SendRecv of stage2_f is exposed 1 → 4 ms, on rank 0"),
        (
            "window_ns",
            SHORT._replace(kind=ChangeKind.LATER),
            1,
            {"measured_as": "window median, kernels launched"},
            "gemm starts 1 ms later, the kernels of the step 1 → 4 ms",
        ),
    ],
)
def test_a_state_of_rows_is_one_line(
    subject: str, root: RootCause, world: int, more: dict[str, Any], expected: str
) -> None:
    at: dict[str, Label] = {"rank": 0} | ({"stage": "stage2_f"} if subject == "exposed_ns" else {})
    change = Change(root, 0, 2 * MS, 0 if root is GONE else MS, 2, 0 if root is GONE else 2)
    causes = (RowExplanation(at, Explanation(3 * MS, (COVER,), 0), (change,)),)
    step = StepChange({0: 20 * MS}, {0: 20 * MS})
    told = red(
        "e", subject, judged=(row(4 * MS, MS, 2 * MS, labels=at),), causes=causes, step=step, world=world, **more
    )
    assert format_headline(make_session(told)) == f"Step unchanged (20 ms): {expected}"


@pytest.mark.parametrize(
    ("period", "now", "expected"),
    [
        (20_001, 19_850, "Step unchanged (20 ms): "),
        (20_001, 19_790, "Step 1% faster (20 → 19.8 ms); "),
        (20_110, 19_850, "Step 0.75% faster (20 → 19.8 ms); "),
        (None, 19_850, "Step 0.75% faster (20 → 19.8 ms); "),
    ],
)
def test_beside_an_unchanged_median_step_one_nearly_so_is_silent(period: int | None, now: int, expected: str) -> None:
    change = RowExplanation({"rank": 0}, Explanation(MS, (), MS), (Change(GONE, 0, 2 * MS, 0, 2, 0),))
    step = StepChange({0: 20 * MS}, {0: 1000 * now})
    records = [red("e", "exposed_ns", judged=(row(4 * MS, MS, 2 * MS),), causes=(change,), step=step)]
    if period is not None:
        usual = row(1000 * period, 20 * MS, 21 * MS, outcome=Outcome.PASSED, labels={"rank": 0, "quantile": "p50"})
        records.append(record("p", "passed", subject="period_ns", unit="ns", judged=(usual,)))
    assert format_headline(make_session(*records)).startswith(expected)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ((24 * MS, 27 * MS), f"Step 12% slower (24 → 27 ms): {DISPATCH} on rank 1"),
        ((24 * MS, 24 * MS + 1), f"Step unchanged (24 ms): {DISPATCH}, exposed 1 → 4 ms on rank 1"),
        (None, f"{DISPATCH}, exposed 1 → 4 ms on rank 1"),
        ((24 * MS, 21 * MS), f"Step 12% faster (24 → 21 ms); {DISPATCH}, exposed 1 → 4 ms on rank 1"),
        ((24 * MS, 36_000_001), f"Step 50% slower (24 → 36 ms); {DISPATCH}, exposed 1 → 4 ms on rank 1"),
    ],
)
def test_the_step_is_told_before_what_is_red_and_blamed_on_it_only_where_that_accounts_for_it(
    step: tuple[int, int] | None, expected: str
) -> None:
    assert format_headline(make_session(exposed(step))) == expected


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ([{0: 49, 2: 46}, {0: 49, 2: 54}], "Step 10% slower (49 → 54 ms, rank 0 → rank 2)"),
        ([{0: 49, 2: 46}, {0: 54, 2: 49}], "Step 10% slower (49 → 54 ms)"),
        ([{0: 49, 2: 49}, {0: 49, 2: 54}], "Step 10% slower (49 → 54 ms)"),  # either was the slowest before
    ],
)
def test_lengths_of_two_ranks_are_said_to_be(lengths: list[dict[int, int]], said: str) -> None:
    before, now = ({rank: ms * MS for rank, ms in side.items()} for side in lengths)
    record = exposed(None)
    told = replace(record, verdict=replace(record.verdict, step=StepChange(before, now)))
    assert format_headline(make_session(told)).startswith(f"{said}: {DISPATCH}")


def test_a_red_of_a_fast_rank_is_no_unchanged_step() -> None:
    """The slowest rank is another one, and as slow as before."""
    step = StepChange({0: 16_800_000, 1: 30 * MS}, {0: 18_800_000, 1: 30 * MS})
    said = "Step 12% slower (16.8 → 18.8 ms, rank 0): flash_fwd_kernel 25% longer on rank 0"
    assert format_headline(make_session(slow((0,), step=step))) == said
    faster = StepChange({0: 16_800_000, 1: 30 * MS}, {0: 18_800_000, 1: 20 * MS})
    assert format_headline(make_session(slow((0,), step=faster))) == said


@pytest.mark.parametrize("now", [29, 57])
def test_the_length_of_windows_of_unlike_work_says_nothing(now: int) -> None:
    step = StepChange({0: 40 * MS}, {0: now * MS}, (40, 20))
    said = f"Windows of unlike work (40 → 20 kernels, 40 → {now} ms): compare windows of the same work"
    assert format_headline(make_session(slow((0,), step=step))) == said
    better = red("better", judged=(row(30 * MS, 40 * MS, outcome=Outcome.IMPROVED),), outcome="improved", step=step)
    assert "faster" not in format_headline(make_session(better))


def test_a_gap_leads_as_a_cause() -> None:
    idle = Change(RootCause(ChangeKind.LONGER, RowActivity.IDLE, "gemm"), 0, MS, 3 * MS)
    causes = (RowExplanation({"rank": 0}, Explanation(2 * MS, (idle,), 0), (idle,)),)
    said = "the GPU is idle before gemm, already launched: 1 → 3 ms"
    assert format_headline(make_session(slow((0,), world=1, causes=causes))).endswith(f"(16.8 → 18.8 ms): {said}")
    alone = red("i", "idle_ns", world=1, judged=(row(3 * MS, MS, 2 * MS),), causes=causes)
    assert format_headline(make_session(alone)) == said[:1].upper() + said[1:]
    many = idle._replace(root=idle.root._replace(name=""))
    causes = (RowExplanation({"rank": 0}, Explanation(2 * MS, (many,), 0), (many,)),)
    assert "compute pauses between kernels, already launched: 1 → 3 ms" in format_headline(
        make_session(slow((0,), world=1, causes=causes))
    )


P90: dict[str, Label] = {"rank": 0, "quantile": "p90"}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (
            [red("a", "exposed_ns", judged=(row(4 * MS, MS, 2 * MS),), step=StepChange({0: 20 * MS}, {0: 24 * MS}))],
            "Step 20% slower (20 → 24 ms); exposed_ns +300% (1 → 4 ms), rank 0",
        ),
        (
            [slow(), red("a", "launches", "count", judged=(row(7, 6, 6),))],
            f"{STEP} on both ranks; and 1 red without a known cause",
        ),
        (
            [slow(), red("a", "exposed_ns", judged=(row(4, 2, 3, labels={"rank": 7}),), causes=(cause(7, "k"),))],
            f"{STEP} on both ranks; and 1 more cause",
        ),
        (
            [record("a", "error", message="no anchor"), record("b", "error", message="damaged")],
            "2 assertions not judged: a: no anchor, and 1 other reason",
        ),
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
            f"{STEP} on both ranks; 1 more assertion not judged; 1 more assertion without data",
        ),
        ([slow(), green(file="perf/b.nsys.yaml")], f"{STEP} on 2 of 2 ranks, 1 of 2 gate files (perf/gate.nsys.yaml)"),
        (
            [green(), green("b", 75)],
            "Both assertions passed; least headroom 25% of limit: overlap 75%, limit 60%, rank 0",
        ),
        ([record("a", "passed")], "1 assertion passed"),
        (
            [slow(severity="warn", good=True), green()],
            "Warning: step 12% slower (16.8 → 18.8 ms): flash_fwd_kernel 25% longer on both ranks; "
            "2 assertions: 1 warned, 1 passed; least headroom 40% of limit: overlap 84%, limit 60%, rank 0",
        ),
        (
            [red(outcome="improved", good=True, judged=(row(14 * MS, 16 * MS, 15 * MS, outcome=Outcome.IMPROVED),))],
            "Improved: step 12% faster (16 → 14 ms) on rank 0; 1 assertion improved",
        ),
        (  # the second has no cause either, and is no red
            [
                red(outcome="improved", good=True, judged=(row(14 * MS, 16 * MS, 15 * MS, outcome=Outcome.IMPROVED),)),
                red("b", "exposed_ns", outcome="improved", good=True, judged=(row(1, 4, 3, outcome=Outcome.IMPROVED),)),
            ],
            "Improved: step 12% faster (16 → 14 ms) on rank 0; both assertions improved",
        ),
        (
            [red(outcome="improved", judged=(row(14 * MS, 16 * MS, 15 * MS, outcome=Outcome.IMPROVED),))],
            "Improved and red: step 12% faster (16 → 14 ms) on rank 0",
        ),
        ([record("a", "inconclusive", message="within the noise")], "1 assertion inconclusive: a: within the noise"),
        ([record("a", "passed", good=False, message="DeprecationWarning")], "a: DeprecationWarning"),
        (
            [red(judged=(row(90 * MS, 16 * MS, 17 * MS, waived=True), row(18 * MS, 16 * MS, 17 * MS)))],
            "Step 12% slower (16 → 18 ms) on rank 0",
        ),
        (
            [red(subject="period_ns", judged=(row(24 * MS, 20 * MS, 21 * MS, labels=P90),))],
            "p90 step 20% slower (20 → 24 ms) on rank 0",
        ),
    ],
)
def test_every_mixture(records: list[AssertionRecord], expected: str) -> None:
    assert format_headline(make_session(*records)) == expected


OVERLP = Mistake("perf/a.nsys.yaml", "unknown metric 'overlp'", 7, 3)
GREEN = "1 assertion passed; least headroom 40% of limit: overlap 84%, limit 60%, rank 0"


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        (make_session(), "No assertion of a gate file was judged"),
        (
            make_session(not_run=(NotRunFile("perf/a.nsys.yaml", ("a",), "no trace given"),)),
            "Not run: 1 gate file, no trace given",
        ),
        (
            make_session(mistakes=(OVERLP, Mistake("perf/b.nsys.yaml", "is empty")), exit_status=2),
            "Not judged: perf/a.nsys.yaml:7:3: unknown metric 'overlp', and 1 more mistake",
        ),
        (make_session(green(), exit_status=1), f"pytest ended with exit status 1 (something failed); {GREEN}"),
        (make_session(green(), merge_base=base_verdict("1 failed", red=True)), "Gate of the merge base: 1 failed"),
    ],
)
def test_a_session_in_which_not_all_was_judged_well(session: Session, expected: str) -> None:
    assert format_headline(session) == expected


def test_every_output_of_a_session_and_a_comparison_says_the_same(project: Project) -> None:
    project.gated("- exposed_ns below baseline plus 5%\n", 300)
    project.trace("base.sqlite")
    written = [f"--nsys-{kind}={kind}" for kind in ("html", "summary", "json")]
    logged = project.pytest(
        "--nsys-trace=run.sqlite", "--nsys-against=base.sqlite", "--nsys-annotate", *written, code=1
    )
    page, markdown, report = ((project.root / kind).read_text(encoding="utf-8") for kind in ("html", "summary", "json"))
    compared = {
        form: run("compare", "base.sqlite", "run.sqlite", "--gate=gate.nsys.yaml", f"--format={form}").stdout
        for form in ("table", "html", "markdown", "json")
    }
    said = "Window unchanged (15 ms): gemm 12% shorter, so SendRecv of stage2_f is exposed 200 → 300 us, on both ranks"
    assert [json.loads(each)["headline"] for each in (report, compared["json"])] == [said, said]
    escaped = said.replace("_", r"\_")
    assert [each.splitlines()[0] for each in (markdown, compared["markdown"])] == [f"## ❌ {escaped}"] * 2
    assert [Page(each).texts["h1"][0].replace("\u00a0", " ") for each in (page, compared["html"])] == [said, said]
    assert said in compared["table"].splitlines()
    (annotated,) = (line for line in logged.splitlines() if line.startswith("::error "))
    assert annotated.partition("::error ")[2].partition("::")[2].startswith(said.replace("%", "%25") + "%0A")


def test_the_sentence_names_only_roots_of_reds_whatever_the_order() -> None:
    chance = random.Random(23)
    for _ in range(200):
        records = []
        for n in range(chance.randrange(1, 8)):
            kernel, rank, now = f"k{chance.randrange(6)}", chance.randrange(4), chance.randrange(9, 20)
            held = chance.random() < 0.4
            told: dict[str, Any] = {"outcome": "passed", "good": True} if held else {}
            at = {"labels": {"rank": rank}, "outcome": Outcome.PASSED if held else Outcome.FAILED}
            step = StepChange({0: 20 * MS}, {0: chance.randrange(18, 24) * MS})
            causes = (cause(rank, kernel, (8, now)),)
            judged = (row(now * MS, 8 * MS, 8 * MS, **at),)
            records.append(red(f"a{n}", "exposed_ns", judged=judged, causes=causes, step=step, **told))
        said = format_headline(make_session(*records))
        reds = [each for each in records if each.state == "failed"]
        blamed = {own.root_causes[0].root.name for each in reds for own in each.verdict.causes}
        assert set(re.findall(r"\bk\d\b", said)) <= blamed
        assert bool(re.search(r"\bk\d\b", said)) == bool(reds)
        chance.shuffle(records)
        assert format_headline(make_session(*records)) == said


def test_a_comparison_without_a_red_row_says_what_a_session_says(project: Project) -> None:
    project.gated("- exposed_ns below baseline plus 5%\n")
    project.trace("base.sqlite")
    found = run("compare", "base.sqlite", "run.sqlite", "--gate=gate.nsys.yaml", "--format=html", code=0).stdout
    said = "1 assertion passed; least headroom 100% of tolerance: exposed_ns 200 us, limit 210 us, rank 0 stage2_f"
    assert [text.replace("\u00a0", " ") for text in Page(found).texts["h1"]] == [said]


# The page stands by what is at the root

AT: dict[str, Label] = {"rank": 1, "stage": "all_gather"}


def of(name: str, metric: str, kernel: str = "", **more: Any) -> AssertionRecord:
    """A red at one place; with a ``kernel`` it is explained by that."""
    causes = (cause(1, kernel, stage="all_gather"),) if kernel else ()
    return red(name, metric, judged=(row(2, None, 1, labels=AT),), causes=causes, **more)


def found(*records: AssertionRecord) -> list[tuple[str, list[str]]]:
    return [(group.title, [each.name for each in group.records]) for group in list_sections(make_session(*records))]


def test_reds_of_one_root_are_one_group() -> None:
    assert found(of("a", "exposed_ns", "moe_dispatch"), of("b", "comm_ns", "moe_dispatch")) == [
        ("moe_dispatch 25% longer on rank 1", ["a", "b"])
    ]


def test_what_has_no_root_stands_by_how_it_ended() -> None:
    broken, nothing = record("b", "error"), record("n", "no data")
    assert found(
        of("l", "launches"), broken, nothing, record("i", "improved", good=True), of("e", "exposed_ns", "k")
    ) == [
        ("k 25% longer on rank 1", ["e"]),
        ("Cause not known", ["l"]),
        ("Error: 1 assertion", ["b"]),
        ("No data: 1 assertion", ["n"]),
        ("What else to look at", ["i"]),
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
