"""What may a waiver say, which rows does it cover until when, and what is told of it?"""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import pytest

from pytest_nsys.analysis.metrics.table import MetricTable
from pytest_nsys.core.exact import distance
from pytest_nsys.core.model import Value
from pytest_nsys.gates.model import Assertion, GateFile, JudgedRow, Outcome
from pytest_nsys.gates.waivers import make_selector_match, waive
from tests.support import gate_files
from tests.support.gate_files import loaded
from tests.support.gates import Project
from tests.support.reports import by_name, report_of

MS = 1_000_000
ON_TIME = date(2026, 12, 31)
TOO_LATE = date(2027, 1, 1)
ENTRY = "ceiling: 3ms, expires: 2026-12-31, reason: a new driver, link: 'https://example.org/12'"
GATE = "assertions: [{id: gate, assert: exposed_ns < 2ms}]\nwaivers:\n"
FOR = "assertions:\n- {id: a, assert: exposed_ns < 2ms, for: {stage: [stage2, stage4]}}\nwaivers:\n"


def load(text: str) -> GateFile:
    return loaded(f"version: 1\n{text}")


def assertion(*waivers: str, entry: str = "{id: gate, assert: exposed_ns < 2ms}") -> Assertion:
    written = "".join(f"- {{assertion: gate, {waiver}}}\n" for waiver in waivers)
    (found,) = load(f"assertions:\n- {entry}\nwaivers:\n{written}").assertions
    return found


TABLE = MetricTable(("rank", "stage"), [], {0: {"pp": 0, "dp": 0}, 1: {"pp": 1, "dp": 0}})


def row(value: Value, rank: int = 0, stage: str = "stage2_f", limit: Value = 2 * MS, **more: object) -> JudgedRow:
    margin = -distance(value, limit)
    failed = JudgedRow({"rank": rank, "stage": stage}, value, limit, Outcome.FAILED, margin=margin)
    return replace(failed, **more)  # type: ignore[arg-type]


def outcomes(rows: tuple[JudgedRow, ...]) -> list[str]:
    return [("waived " if row.waived else "") + row.outcome for row in rows]


def waived(gate: Assertion, *rows: JudgedRow, unit: str = "ns", today: date = ON_TIME) -> tuple[list[str], list[str]]:
    kept, said = waive(gate, unit, rows, make_selector_match(TABLE), today)
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
        ["the waiver on line 5 expired on 2026-12-31: rank 0 stage2_f and 1 more row are outside the limit"],
    )


def test_a_row_beyond_the_ceiling_stays_red_beside_one_within_it() -> None:
    gate = assertion(ENTRY)
    assert waived(gate, row(3 * MS + 1, rank=1), row(2_500_000)) == (
        ["failed", "waived passed"],
        [
            "1 row is waived until 2026-12-31 (a new driver, https://example.org/12)",
            "waived up to 3 ms until 2026-12-31 (line 5), but 3.000001 ms (rank 1 stage2_f)",
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
        ["the waiver on line 5 matches no row of this assertion: correct its 'where', or remove it"],
    )


def test_where_more_is_better_the_ceiling_is_a_floor() -> None:
    gate = assertion("ceiling: 50%, expires: 2026-12-31, reason: x", entry="{id: gate, assert: overlap >= 60%}")
    low, lower = Fraction(1, 2), Fraction(49, 100)
    limit = Fraction(3, 5)
    assert waived(gate, row(low, limit=limit), row(lower, 1, limit=limit), unit="%") == (
        ["waived passed", "failed"],
        [
            "1 row is waived until 2026-12-31 (x)",
            "waived down to 50% until 2026-12-31 (line 5), but 49% (rank 1 stage2_f)",
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
    ("entry", "baseline"), [("assert: comm_streams == 2", None), ("assert: launches within 0 of baseline", 2)]
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
    said = project.pytest("-v", "--nsys-trace=run.sqlite", code=0)
    assert f"2 rows are waived until {day} (a <new> driver)" in said
    assert "  waived  gate" in said


def test_a_waived_row_is_told_with_its_ceiling_and_what_is_left_to_it(project: Project) -> None:
    project_with_a_waiver(project, 1, ceiling="0.4ms")
    (found,) = by_name(report_of(project, "--nsys-trace=run.sqlite", code=0)).values()
    assert found["worst"]["row"] == "rank 1 stage2_f"
    assert (found["worst"]["margin"], found["worst"]["ceiling"]) == ("", "400 us, 50 us left")
    assert [row["ceiling"] and row["ceiling"]["exact"] for row in found["rows"]] == [400_000, 400_000, None, None]
    said = project.pytest("-v", "--nsys-trace=run.sqlite", code=0)
    assert "ceiling 400 us, 50 us left" in said
    assert "margin" not in said


def test_beside_a_failed_row_a_waived_one_that_is_further_out_is_not_the_worst(project: Project) -> None:
    project_with_a_waiver(project, 1)
    project.trace(exposed_us={(0, "stage2_f"): 350, (1, "stage4_f"): 260})
    (found,) = by_name(report_of(project, "--nsys-trace=run.sqlite", code=1)).values()
    assert (found["worst"]["row"], found["worst"]["margin"]) == ("rank 1 stage4_f", "−10 us")


def mistakes(text: str) -> list[str]:
    return gate_files.mistakes(f"version: 1\n{text}")


def test_every_key_of_a_waiver() -> None:
    gate = assertion(f"{ENTRY}, where: {{stage: [stage2, stage4_b], pp: 01}}")
    (waiver,) = gate.waivers
    assert (waiver.ceiling, waiver.expires) == (Fraction(3 * MS), ON_TIME)
    assert (waiver.reason, waiver.link) == ("a new driver", "https://example.org/12")
    assert {d: s.values for d, s in waiver.where.items()} == {"stage": ("stage2", "stage4_b"), "pp": ("1",)}
    assert str(waiver.location) == "gates.nsys.yaml:5:3"
    assert not waiver.shared


def test_a_sentence_is_the_name_of_its_assertion() -> None:
    gates = load(
        "assertions: [stage3  overlap >= 60%, 'stage[24]_* overlap >= 60%', no syncs]\n"
        "waivers:\n"
        "- {assertion: stage3 overlap  >= 60%, ceiling: 50%, expires: 2026-12-31, reason: x}\n"
        "- {assertion: 'stage[24]_* overlap >= 60%', ceiling: 55.5%, expires: 2026-12-31, reason: y}\n"
    )
    assert [[w.ceiling for w in a.waivers] for a in gates.assertions] == [[Fraction(1, 2)], [Fraction(111, 200)], []]


def test_an_id_alone_stands_for_all_items_of_a_for() -> None:
    gates = load(f"{FOR}- {{assertion: a, {ENTRY}}}\n- {{assertion: 'a[stage=stage4]', {ENTRY}}}\n")
    assert [[(w.location.line, w.shared) for w in a.waivers] for a in gates.assertions] == [
        [(5, True)],
        [(5, True), (6, False)],
    ]


def test_a_balance_has_a_ceiling_without_unit() -> None:
    gate = assertion(
        "ceiling: 1.3, expires: 2026-12-31, reason: x",
        entry="{id: gate, assert: balance of compute_ns across pp <= 1.1}",
    )
    assert gate.waivers[0].ceiling == Fraction(13, 10)


@pytest.mark.parametrize(
    ("waiver", "expected"),
    [
        (
            "reason: x",
            [
                "4:3: a waiver needs 'assertion': the name of an assertion",
                "4:3: a waiver needs 'ceiling': how far a value may go, such as 3ms",
                "4:3: a waiver needs 'expires': a day such as 2026-12-31",
            ],
        ),
        (f"assertion: gaet, {ENTRY}", ["4:15: no assertion of this file is 'gaet' (did you mean 'gate'?)"]),
        (
            f"assertion: the other, {ENTRY}",
            ["4:15: no assertion of this file is 'the other': write its id, or its sentence"],
        ),
        (
            f"assertion: gate, until: x, {ENTRY}",
            ["4:21: unknown key 'until': a waiver has assertion, matrix, where, ceiling, expires, reason, link"],
        ),
        (
            "assertion: gate, ceiling: nan, expires: 2026-02-30, reason: ''",
            [
                "4:30: 'nan' is not a number: write it as in 60%, 1.5ms or 1000",
                "4:44: there is no date 2026-02-30",
                "4:65: reason is empty",
            ],
        ),
        (
            f"assertion: gate, {ENTRY}, where: {{stag: x, rank: one}}",
            ["4:118: exposed_ns has no dimension 'stag' (did you mean 'stage'?)", "4:133: rank is a number, not 'one'"],
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_place(waiver: str, expected: list[str]) -> None:
    assert mistakes(f"{GATE}- {{{waiver}}}\n") == expected


@pytest.mark.parametrize(
    ("key", "value", "mistake"),
    [
        ("ceiling", "3", "4:30: exposed_ns is a time: write it in ns, us, ms or s, not 3"),
        ("ceiling", "1ms", "4:30: ceiling 1ms waives nothing: it holds '< 2ms'"),
        ("ceiling", "-3ms", "4:30: a quantity is never negative: '-3ms'"),
        ("expires", "30.11.2026", "4:44: expires is a day written as in 2026-12-31, not '30.11.2026'"),
        ("expires", "0000-01-01", "4:44: there is no date 0000-01-01"),
        (
            "expires",
            "2026-12-31 10:00:00",
            "4:44: expires is a day written as in 2026-12-31, not '2026-12-31 10:00:00'",
        ),
        ("link", "'javascript:a()'", "4:74: link is an address that begins with https://, not 'javascript:a()'"),
    ],
)
def test_a_mistake_of_one_key(key: str, value: str, mistake: str) -> None:
    keys = {"assertion": "gate", "ceiling": "3ms", "expires": "2026-12-31", "reason": "x", key: value}
    assert mistakes(f"{GATE}- {{{', '.join(f'{name}: {said}' for name, said in keys.items())}}}\n") == [mistake]


@pytest.mark.parametrize(
    ("entry", "ceiling", "why"),
    [
        ("assert: exposed_ns < 2ms, xfail: known", "3ms", "its xfail expects it to fail already"),
        ("assert: exposed_ns < 2ms, severity: warn", "3ms", "with severity: warn it never fails"),
        ("assert: comm_streams != 3", "4", "!= has no ceiling"),
    ],
)
def test_what_cannot_be_waived(entry: str, ceiling: str, why: str) -> None:
    text = (
        f"assertions: [{{id: gate, {entry}}}]\n"
        f"waivers: [{{assertion: gate, ceiling: {ceiling}, expires: 2026-12-31, reason: x}}]\n"
    )
    assert mistakes(text) == [f"3:23: 'gate' cannot be waived: {why}"]


@pytest.mark.parametrize(
    ("sentence", "ceiling", "good"),
    [
        ("exposed_ns < 2ms", "2ms", True),
        ("exposed_ns <= 2ms", "2ms", False),
        ("overlap >= 60%", "60%", False),
        ("overlap >= 60%", "70%", False),
        ("overlap >= 60%", "50%", True),
        ("overlap > 60%", "60%", True),
        ("overlap > 60%", "61%", False),
        ("comm_streams == 2", "2", False),
        ("comm_streams == 2", "1", True),
        ("no syncs", "0", False),
        ("exposed_ns <= baseline", "0ns", True),
    ],
)
def test_a_ceiling_lies_outside_a_constant_limit(sentence: str, ceiling: str, good: bool) -> None:
    text = (
        f"assertions: [{sentence}]\n"
        f"waivers: [{{assertion: {sentence}, ceiling: {ceiling}, expires: 2026-12-31, reason: x}}]\n"
    )
    if good:
        assert load(text).assertions[0].waivers
    else:
        (mistake,) = mistakes(text)
        assert f"ceiling {ceiling} waives nothing" in mistake


TOGETHER = "the assertion takes every"


@pytest.mark.parametrize(
    ("entry", "where", "what"),
    [
        ("assert: max exposed_ns < 2ms", "rank: 0", f"{TOGETHER} rank together: its rows have no dimension left"),
        ("assert: max stage2 exposed_ns < 2ms", "pp: 0", f"{TOGETHER} pp together: its rows have stage left"),
        ("assert: max over rank of exposed_ns < 2ms", "pp: 0", f"{TOGETHER} pp together: its rows have stage left"),
        (
            "assert: max over dp of exposed_ns < 2ms",
            "rank: 0",
            f"{TOGETHER} rank together: its rows have stage, pp, cp, ep left",
        ),
        (
            "assert: balance of exposed_ns across pp < 2",
            "dp: 0",
            "a balance is one value, the worst: its waiver takes no 'where'",
        ),
        (
            "assert: exposed_ns < 2ms, for: {stage: [a, b]}",
            "stage: a",
            "'for' makes an item of each stage: name the item itself, as in 'gate[stage=a]'",
        ),
    ],
)
def test_a_dimension_that_is_gone_cannot_be_selected(entry: str, where: str, what: str) -> None:
    ceiling = "3" if "balance" in entry else "3ms"
    text = (
        f"assertions:\n- {{id: gate, {entry}}}\n"
        f"waivers:\n- {{assertion: gate, ceiling: {ceiling}, expires: 2026-12-31, reason: x, where: {{{where}}}}}\n"
    )
    (mistake,) = mistakes(text)
    assert mistake.endswith(f": {what}")
    assert mistake.startswith("5:")


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        ("assert: max stage2 exposed_ns < 2ms", "stage: stage2_f"),
        ("assert: max over dp of exposed_ns < 2ms", "pp: 0"),
        ("assert: exposed_ns < 2ms, where: {stage: [a, b]}", "stage: a"),
        ("assert: exposed_ns < 2ms, for: {stage: [a, b]}", "rank: 0"),
        ("assert: exposed_ns < 2ms", "ep: 0"),
    ],
)
def test_a_dimension_that_is_left_can_be_selected(entry: str, where: str) -> None:
    gates = load(
        f"assertions:\n- {{id: gate, {entry}}}\nwaivers:\n- {{assertion: gate, {ENTRY}, where: {{{where}}}}}\n"
    )
    assert all(list(a.waivers[0].where) == [where.split(":")[0]] for a in gates.assertions)


def test_a_waiver_is_not_blamed_for_an_assertion_that_could_not_be_read() -> None:
    text = f"assertions: [{{id: gate, assert: exposd_ns < 2ms}}]\nwaivers: [{{assertion: gate, {ENTRY}}}]\n"
    (mistake,) = mistakes(text)
    assert "unknown metric 'exposd_ns'" in mistake
