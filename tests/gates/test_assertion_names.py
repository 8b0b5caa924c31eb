"""Is an assertion called the same when its limit changes, and does its whole sentence mean it all the same?"""

from pathlib import Path

import pytest

from pytest_nsys.core.errors import GateFileError
from pytest_nsys.gates.assertion_names import find_assertions, list_other_names
from pytest_nsys.gates.gate_file import parse_gate_file
from pytest_nsys.gates.model import GateFile

HEAD = "version: 1\nconvention: pithtrain\ntolerance: {rel: 5%}\n"


def loaded(*entries: str, head: str = HEAD, more: str = "") -> GateFile:
    lines = "".join(f"- {entry}\n" for entry in entries)
    return parse_gate_file(f"{head}assertions:\n{lines}{more}", path=Path("gate.nsys.yaml"))


def names(gate: GateFile) -> list[str]:
    return [assertion.name for assertion in gate.assertions]


@pytest.mark.parametrize(
    ("entry", "name", "full_name"),
    [
        ("exposed_ns <= 2ms", "exposed_ns <=", None),
        ("exposed_ns<=2ms", "exposed_ns<=", None),
        ("exposed_ns at most 2 ms", "exposed_ns at most", None),
        ("exposed_ns below baseline plus 5%", "exposed_ns below", None),
        ("median overlap of stage2_f above 60%", "median overlap of stage2_f above", None),
        ("balance of compute_ns across pp <= 1.05", "balance of compute_ns across pp <=", None),
        ("launches == baseline", "launches ==", None),
        ("no syncs", "no syncs", None),
        ("no new kernels above 2%", "no new kernels above", None),
        ("{assert: overlap >= 60%, id: hidden}", "hidden", "hidden"),
        ("{assert: overlap >= 60%, where: {rank: 0}}", "rank 0 overlap >=", None),
        ("{assert: no syncs, where: {rank: 0}}", "no syncs where rank 0", None),
        ("{assert: overlap >= 60%, where: {stage: below}}", 'stage "below" overlap >=', None),
        ("launches within 5% of baseline", "launches within", None),
        ("max over rank of exposed_ns <= baseline + tolerance", "max over rank of exposed_ns <=", None),
    ],
)
def test_the_limit_is_left_out(entry: str, name: str, full_name: str | None) -> None:
    (found,) = loaded(entry).assertions
    assert (found.name, found.full_name) == (name, full_name or found.sentence)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (
            ["exposed_ns <= 2ms", "no syncs", "exposed_ns <= 3ms"],
            ["exposed_ns <= 2ms", "no syncs", "exposed_ns <= 3ms"],
        ),
        (["exposed_ns <= 2ms", "exposed_ns < 3ms"], ["exposed_ns <=", "exposed_ns <"]),
        (["exposed_ns <= 2ms", "{id: exposed_ns <=, assert: no syncs}"], ["exposed_ns <= 2ms", "exposed_ns <="]),
        (["{assert: overlap >= 1%, for: {stage: [a, b]}}"], ["overlap >=[stage=a]", "overlap >=[stage=b]"]),
        (["{assert: overlap >= 1%, for: {stage: [a]}}", "overlap >= 2%"], ["overlap >= 1%[stage=a]", "overlap >= 2%"]),
        (
            ["{assert: overlap >= 1%, where: {rank: 0}}", "{assert: overlap >= 1%, where: {rank: 1}}"],
            ["rank 0 overlap >=", "rank 1 overlap >="],
        ),
    ],
)
def test_several_that_begin_alike_keep_their_whole_sentences(entries: list[str], expected: list[str]) -> None:
    assert names(loaded(*entries)) == expected


def test_two_equal_sentences_need_an_id() -> None:
    with pytest.raises(GateFileError, match="'no syncs' is already the name of the assertion on line 5"):
        loaded("no syncs", "no syncs")


def test_configurations_that_are_judged_apart_may_begin_alike() -> None:
    """Each with a limit of its own, which may change."""
    matrix = f"{HEAD}matrix: {{a: , b: , c: }}\n"
    of_a, of_b = "{assert: exposed_ns <= 2ms, matrix: a}", "{assert: exposed_ns <= 3ms, matrix: [b, c]}"
    gate = loaded(of_a, of_b, head=matrix)
    assert [names(each) for each in gate.judged_gates] == [["exposed_ns <="]] * 3
    assert len(gate.assertions) == 2
    gate = loaded(of_a, of_b, "{assert: exposed_ns <= 4ms, matrix: c}", head=matrix)
    whole = ["exposed_ns <= 3ms", "exposed_ns <= 4ms"]
    assert [names(each) for each in gate.judged_gates] == [["exposed_ns <="], whole[:1], whole]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("exposed_ns <=", [0]),
        ("exposed_ns <= 2ms", [0]),
        ("rank 0 overlap >=", [1]),
        ("rank 0 overlap >= 60%", [1]),
        ("launches ==[stage=a]", [2]),
        ("launches == baseline[stage=b]", [3]),
        ("stage b launches == baseline", [3]),
        ("launches ==", [2, 3]),
        ("launches == baseline", [2, 3]),
        ("exposed_ns <= 3ms", []),
        ("exposed_ns", []),
    ],
)
def test_what_means_an_assertion(written: str, found: list[int]) -> None:
    gate = loaded(
        "exposed_ns <= 2ms",
        "{assert: overlap >= 60%, where: {rank: 0}}",
        "{assert: launches == baseline, for: {stage: [a, b]}}",
    )
    assert find_assertions(written, gate.assertions) == [gate.assertions[place] for place in found]


@pytest.mark.parametrize("named", ["exposed_ns <=", "exposed_ns <= 2ms"])
def test_a_waiver_names_either(named: str) -> None:
    waiver = f"waivers:\n- {{assertion: {named}, ceiling: 3ms, expires: 2999-01-01, reason: known}}\n"
    assert [len(each.waivers) for each in loaded("exposed_ns <= 2ms", "no syncs", more=waiver).assertions] == [1, 0]


def test_a_sentence_means_no_entry_of_another_name() -> None:
    """A waiver of the one waived the other, too."""
    alike = ["{id: steady, assert: overlap >= 60%, window: steady}", "{id: first, assert: overlap >= 60%, window: 0}"]
    gate = loaded("overlap >= 60%", *alike)
    assert find_assertions("overlap >= 60%", gate.assertions) == [gate.assertions[0]]
    (alone,) = loaded(alike[0]).assertions
    assert find_assertions("overlap >= 60%", [alone]) == [alone]
    assert find_assertions("overlap >= 60%", loaded(*alike).assertions) == []


def test_what_names_the_others() -> None:
    gate = loaded("exposed_ns <= 2ms", "{id: exposed_ns <=, assert: no syncs}", "overlap >= 60%")
    assert list_other_names(gate.assertions[0], gate) == {"exposed_ns <=", "overlap >=", "overlap >= 60%"}
    assert list_other_names(gate.assertions[2], gate) == {"exposed_ns <= 2ms", "exposed_ns <="}
