"""Waivers: what becomes of the rows that they cover, and when one is said to go."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import pytest

from pytest_nsys.analysis.table import Table
from pytest_nsys.core.model import Value
from pytest_nsys.core.statistics import distance
from pytest_nsys.gates.assertion import Assertion
from pytest_nsys.gates.verdict import JudgedRow, Outcome
from pytest_nsys.gates.waivers import meaning, waive
from tests.support.gates import Project
from tests.support.reports import by_name, report_of
from tests.support.waivers import ENTRY, FOR, MS, ON_TIME, TOO_LATE, assertion, load

TABLE = Table(("rank", "stage"), [], {0: {"pp": 0, "dp": 0}, 1: {"pp": 1, "dp": 0}})


def row(value: Value, rank: int = 0, stage: str = "stage2_f", limit: Value = 2 * MS, **more: object) -> JudgedRow:
    margin = -distance(value, limit)
    failed = JudgedRow({"rank": rank, "stage": stage}, value, limit, Outcome.FAILED, margin=margin)
    return replace(failed, **more)  # type: ignore[arg-type]


def outcomes(rows: tuple[JudgedRow, ...]) -> list[str]:
    return [("waived " if row.waived else "") + row.outcome for row in rows]


def waived(gate: Assertion, *rows: JudgedRow, unit: str = "ns", today: date = ON_TIME) -> tuple[list[str], list[str]]:
    kept, said = waive(gate, unit, rows, meaning(TABLE), today)
    assert [r.labels for r in kept] == [r.labels for r in rows]
    return outcomes(kept), list(said)


def test_rows_within_the_ceiling_pass_until_the_end_of_the_day() -> None:
    gate = assertion(ENTRY)
    rows = row(3 * MS), row(2_500_000, rank=1)
    assert waived(gate, *rows) == (
        ["waived passed"] * 2,
        ["2 rows are waived until 2026-12-31 (a new driver, https://example.org/12)"],
    )
    assert waived(gate, *rows, today=TOO_LATE) == (
        ["failed"] * 2,
        ["the waiver on line 5 expired on 2026-12-31: rank 0 stage stage2_f and 1 more row are outside the limit"],
    )


def test_a_row_beyond_the_ceiling_stays_red_beside_one_within_it() -> None:
    gate = assertion(ENTRY)
    assert waived(gate, row(3 * MS + 1, rank=1), row(2_500_000)) == (
        ["failed", "waived passed"],
        [
            "1 row is waived until 2026-12-31 (a new driver, https://example.org/12)",
            "waived up to 3 000 us until 2026-12-31 (line 5), but 3 000.001 us (rank 1 stage stage2_f)",
        ],
    )


def test_only_the_rows_that_it_selects_are_waived() -> None:
    gate = assertion(f"{ENTRY}, where: {{stage: stage2, pp: 1}}")
    rows = row(3 * MS, rank=1), row(3 * MS, rank=0), row(3 * MS, rank=1, stage="stage4_f")
    assert waived(gate, *rows)[0] == ["waived passed", "failed", "failed"]


def test_a_rank_without_mesh_is_not_selected_by_an_axis() -> None:
    gate = assertion(f"{ENTRY}, where: {{pp: 1}}")
    assert waived(gate, row(3 * MS, rank=7)) == (
        ["failed"],
        ["the waiver on line 5 means no row of this assertion: mend its 'where', or remove it"],
    )


def test_where_more_is_better_the_ceiling_is_a_floor() -> None:
    gate = assertion(
        "ceiling: 50%, expires: 2026-12-31, reason: x",
        entry="{id: gate, assert: overlap >= 60%}",
    )
    low, lower = Fraction(1, 2), Fraction(49, 100)
    limit = Fraction(3, 5)
    assert waived(gate, row(low, limit=limit), row(lower, 1, limit=limit), unit="%") == (
        ["waived passed", "failed"],
        [
            "1 row is waived until 2026-12-31 (x)",
            "waived down to 50.0% until 2026-12-31 (line 5), but 49.0% (rank 1 stage stage2_f)",
        ],
    )


@pytest.mark.parametrize(
    ("ceiling", "value", "outcome"),
    [
        (4, 3, "waived passed"),
        (4, 4, "waived passed"),
        (4, 5, "failed"),
        (4, 1, "failed"),
        (1, 1, "waived passed"),
        (1, 0, "failed"),
        (1, 3, "failed"),
    ],
)
@pytest.mark.parametrize(
    ("entry", "baseline"),
    [("assert: comm_streams == 2", None), ("metric: launches, baseline: {abs: 0}", 2)],
)
def test_a_limit_with_two_sides_is_waived_on_the_side_of_the_ceiling(
    ceiling: int, value: int, outcome: str, entry: str, baseline: int | None
) -> None:
    gate = assertion(f"ceiling: {ceiling}, expires: 2026-12-31, reason: x", entry=f"{{id: gate, {entry}}}")
    found, said = waived(gate, row(value, limit=2, baseline=baseline), unit="count")
    assert found == [outcome]
    if (value - 2) * (ceiling - 2) < 0:
        way, other = ("up", "down") if ceiling > 2 else ("down", "up")
        assert f"waived {way} to {ceiling} until 2026-12-31 (line 5), not {other} to {value}" in said[0]


def test_what_could_not_be_judged_is_never_waived() -> None:
    gate = assertion(ENTRY)
    lost = row(3 * MS, outcome=Outcome.NO_DATA, margin=None)
    unsure = row(3 * MS, rank=1, outcome=Outcome.INCONCLUSIVE)
    assert waived(gate, lost, unsure) == (["no data", "inconclusive"], [])


def test_a_waiver_that_is_not_needed_says_so() -> None:
    gate = assertion(ENTRY)
    good = row(MS, outcome=Outcome.PASSED, margin=MS)
    assert waived(gate, good) == (["passed"], ["the waiver on line 5 is not needed: remove it"])
    assert waived(gate, good, today=TOO_LATE) == (
        ["passed"],
        ["the waiver on line 5 expired on 2026-12-31 and is no longer needed: remove it"],
    )


def test_a_waiver_of_several_items_does_not_ask_for_its_removal_in_one() -> None:
    gate = load(f"{FOR}- {{assertion: a, {ENTRY}}}\n").assertions[0]
    good = row(MS, outcome=Outcome.PASSED, margin=MS)
    assert waived(gate, good)[1] == ["the waiver on line 5 is not needed here: let it name the items that need it"]
    assert waived(gate, good, today=TOO_LATE)[1] == [
        "the waiver on line 5 expired on 2026-12-31 and is not needed here: remove it if no other item needs it"
    ]


def test_the_first_waiver_in_force_that_reaches_covers_a_row() -> None:
    expired = ENTRY.replace("2026", "2025")
    wider = ENTRY.replace("3ms", "5ms").replace("a new driver", "a bad link")
    gate = assertion(expired, ENTRY, wider)
    assert waived(gate, row(4 * MS), row(3 * MS, rank=1)) == (
        ["waived passed"] * 2,
        [
            "the waiver on line 5 expired on 2025-12-31 and is no longer needed: remove it",
            "1 row is waived until 2026-12-31 (a new driver, https://example.org/12)",
            "1 row is waived until 2026-12-31 (a bad link, https://example.org/12)",
        ],
    )


def test_without_waivers_rows_stay_as_they_are() -> None:
    (gate,) = load("assertions: [exposed_ns < 2ms]\n").assertions
    assert waived(gate, row(3 * MS)) == (["failed"], [])


def test_a_reason_is_one_line_fit_for_a_terminal() -> None:
    gate = assertion('ceiling: 3ms, expires: 2026-12-31, reason: "\\e[31mred\\n  and more"')
    (said,) = waived(gate, row(3 * MS))[1]
    assert said.isprintable()
    assert "red and more" in said


# In a run of pytest


def project_with_a_waiver(project: Project, days: int, ceiling: str = "350us", more: str = "") -> str:
    """A gate that two of four rows fail, with a waiver that expires in ``days``; the day."""
    day = (datetime.now(UTC).date() + timedelta(days)).isoformat()
    project.trace(exposed_us={(0, "stage2_f"): 300, (1, "stage2_f"): 350})
    project.gate(
        f"""
        assertions:
          - {{id: gate, assert: exposed_ns < 250us}}
        waivers:
          - assertion: gate
            where: {{stage: stage2}}
            ceiling: {ceiling}
            expires: {day}
            reason: "a <new> driver"{more}
        """
    )
    return day


def test_a_waived_gate_is_green_with_a_warning_that_says_so(project: Project) -> None:
    day = project_with_a_waiver(project, 1)
    said = project.pytest("--nsys-trace=run.sqlite", code=0)
    assert f"2 rows are waived until {day} (a <new> driver)" in said
    assert "  waived  gate" in said
    red = project.pytest("--nsys-trace=run.sqlite", "-W", "error", code=1)
    assert "  failed  gate" in red
    assert "  waived  gate" not in red


def test_a_waived_row_is_told_with_its_ceiling_and_what_is_left_to_it(project: Project) -> None:
    project_with_a_waiver(project, 1, ceiling="0.4ms")
    (found,) = by_name(report_of(project, "--nsys-trace=run.sqlite", code=0)).values()
    assert found["worst"]["row"] == "rank 1 stage stage2_f"
    assert (found["worst"]["margin"], found["worst"]["ceiling"]) == ("", "400 us, 50 us left")
    assert [row["ceiling"] and row["ceiling"]["exact"] for row in found["rows"]] == [400_000, 400_000, None, None]
    said = project.pytest("--nsys-trace=run.sqlite", code=0)
    assert "ceiling 400 us, 50 us left" in said
    assert "margin" not in said


def test_beside_a_failed_row_a_waived_one_that_is_further_out_is_not_the_worst(project: Project) -> None:
    project_with_a_waiver(project, 1)
    project.trace(exposed_us={(0, "stage2_f"): 350, (1, "stage4_f"): 260})
    (found,) = by_name(report_of(project, "--nsys-trace=run.sqlite", code=1)).values()
    assert (found["worst"]["row"], found["worst"]["margin"]) == ("rank 1 stage stage4_f", "-10 us")
