"""Waivers in a gate file: what they say, and what is wrong with one that cannot be meant."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.support import gate_files
from tests.support.waivers import ENTRY, FOR, MS, ON_TIME, assertion, load


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
        "- {assertion: 'stage[24]_* overlap >= 60%', ceiling: 55.5%, expires: 2026-12-31, reason: y}\n",
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
        (
            f"assertion: gaet, {ENTRY}",
            ["4:15: no assertion of this file is 'gaet' (did you mean 'gate'?)"],
        ),
        (
            f"assertion: the other, {ENTRY}",
            ["4:15: no assertion of this file is 'the other': write its id, or its sentence"],
        ),
        (
            f"assertion: gate, until: x, {ENTRY}",
            ["4:21: unknown key 'until': a waiver has assertion, where, ceiling, expires, reason, link"],
        ),
        (
            "assertion: gate, ceiling: 3, expires: 2026-12-31, reason: x",
            ["4:30: exposed_ns is a time: write it in ns, us, ms or s, not 3"],
        ),
        (
            "assertion: gate, ceiling: 1ms, expires: 2026-12-31, reason: x",
            ["4:30: ceiling 1ms waives nothing: it holds '< 2ms'"],
        ),
        (
            "assertion: gate, ceiling: -3ms, expires: 2026-12-31, reason: x",
            ["4:30: a quantity is never negative: '-3ms'"],
        ),
        (
            "assertion: gate, ceiling: nan, expires: 2026-02-30, reason: ''",
            [
                "4:30: 'nan' is not a number: write it as in 60%, 1.5ms or 1000",
                "4:44: there is no day 2026-02-30",
                "4:65: reason is empty",
            ],
        ),
        (
            "assertion: gate, ceiling: 3ms, expires: 30.11.2026, reason: x",
            ["4:44: expires is a day written as in 2026-12-31, not '30.11.2026'"],
        ),
        (
            "assertion: gate, ceiling: 3ms, expires: 0000-01-01, reason: x",
            ["4:44: there is no day 0000-01-01"],
        ),
        (
            "assertion: gate, ceiling: 3ms, expires: 2026-12-31 10:00:00, reason: x",
            ["4:44: expires is a day written as in 2026-12-31, not '2026-12-31 10:00:00'"],
        ),
        (
            "assertion: gate, ceiling: 3ms, expires: 2026-12-31, reason: x, link: 'javascript:alert(1)'",
            ["4:74: link is an address that begins with https://, not 'javascript:alert(1)'"],
        ),
        (
            f"assertion: gate, {ENTRY}, where: {{stag: x, rank: one}}",
            [
                "4:118: exposed_ns has no dimension 'stag' (did you mean 'stage'?)",
                "4:133: rank is a number, not 'one'",
            ],
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_place(waiver: str, expected: list[str]) -> None:
    text = f"assertions: [{{id: gate, assert: exposed_ns < 2ms}}]\nwaivers:\n- {{{waiver}}}\n"
    assert mistakes(text) == expected


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


@pytest.mark.parametrize(
    ("entry", "where", "what"),
    [
        (
            "assert: max exposed_ns < 2ms",
            "rank: 0",
            "the assertion takes every rank together: its rows have no dimension left",
        ),
        (
            "assert: max stage2 exposed_ns < 2ms",
            "pp: 0",
            "the assertion takes every pp together: its rows have stage left",
        ),
        (
            "metric: exposed_ns, across: {rank: max}, require: < 2ms",
            "pp: 0",
            "the assertion takes every pp together: its rows have stage left",
        ),
        (
            "metric: exposed_ns, across: {dp: max}, require: < 2ms",
            "rank: 0",
            "the assertion takes every rank together: its rows have stage, pp, cp, ep left",
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
        ("metric: exposed_ns, across: {dp: max}, require: < 2ms", "pp: 0"),
        ("assert: exposed_ns < 2ms, where: {stage: [a, b]}", "stage: a"),
        ("assert: exposed_ns < 2ms, for: {stage: [a, b]}", "rank: 0"),
        ("assert: exposed_ns < 2ms", "ep: 0"),
    ],
)
def test_a_dimension_that_is_left_can_be_selected(entry: str, where: str) -> None:
    gates = load(
        f"assertions:\n- {{id: gate, {entry}}}\nwaivers:\n- {{assertion: gate, {ENTRY}, where: {{{where}}}}}\n",
    )
    assert all(list(a.waivers[0].where) == [where.split(":")[0]] for a in gates.assertions)


def test_a_waiver_is_not_blamed_for_an_assertion_that_could_not_be_read() -> None:
    text = f"assertions: [{{id: gate, assert: exposd_ns < 2ms}}]\nwaivers: [{{assertion: gate, {ENTRY}}}]\n"
    (mistake,) = mistakes(text)
    assert "unknown metric 'exposd_ns'" in mistake
