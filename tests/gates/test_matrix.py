"""A gate file over a matrix: which configurations does it make, and what is told of mistakes?"""

from pathlib import Path

import pytest

from pytest_nsys.core.errors import ArgumentMistake
from pytest_nsys.core.file_names import GateAddress
from pytest_nsys.gates.gate_file import load_configuration
from tests.support.gate_files import loaded, mistakes

MATRIX = "matrix:\n  llama-8b: run/llama\n  mixtral: {trace: [a, b], run: {pp: 4}}\n  dsv3:\n"
OF_ALL = "overlap >= 60%"
OF_ONE = "balance of compute_ns across pp <= 1.2"
OF_TWO = "exposed_ns < 2ms"
GATE = f"""version: 1
convention: generic
{MATRIX}assertions:
- {OF_ALL}
- {{assert: {OF_ONE}, matrix: mixtral}}
- {{assert: {OF_TWO}, matrix: ['llama*', dsv3]}}
"""


def test_each_configuration_is_a_gate_file_with_keys_of_its_own() -> None:
    gate = loaded(GATE)
    assert [assertion.full_name for assertion in gate.assertions] == [OF_ALL, OF_ONE, OF_TWO]
    told = {one.address: (one.traces, [a.full_name for a in one.assertions]) for one in gate.judged_gates}
    assert told == {
        "gates.nsys.yaml[llama-8b]": (("run/llama",), [OF_ALL, OF_TWO]),
        "gates.nsys.yaml[mixtral]": (("a", "b"), [OF_ALL, OF_ONE]),
        "gates.nsys.yaml[dsv3]": ((), [OF_ALL, OF_TWO]),
    }
    assert [dict(one.run) for one in gate.judged_gates] == [{}, {"pp": 4}, {}]
    assert {one.configuration_names for one in gate.judged_gates} == {("llama-8b", "mixtral", "dsv3")}


def test_a_file_without_a_matrix_is_its_only_configuration() -> None:
    gate = loaded("version: 1\nassertions: [no syncs]")
    assert gate.judged_gates == (gate,)
    assert gate.address == "gates.nsys.yaml"


def test_a_key_of_a_configuration_stands_in_place_of_the_files() -> None:
    gate = loaded("version: 1\nwindow: last\nmatrix: {a: {window: first}, b: x}\nassertions: [no syncs]")
    assert [one.assertions[0].window for one in gate.judged_gates] == ["first", "last"]


def test_a_waiver_may_be_for_one_configuration() -> None:
    waiver = f"waivers: [{{assertion: '{OF_TWO}', matrix: dsv3, ceiling: 3ms, expires: 2030-01-31, reason: new}}]\n"
    waived = {
        one.configuration: [a.full_name for a in one.assertions if a.waivers]
        for one in loaded(GATE + waiver).judged_gates
    }
    assert waived == {"llama-8b": [], "mixtral": [], "dsv3": [OF_TWO]}
    gate = loaded(GATE + waiver.replace(" matrix: dsv3,", ""))
    waived = {one.configuration: [a.full_name for a in one.assertions if a.waivers] for one in gate.judged_gates}
    assert waived == {"llama-8b": [OF_TWO], "mixtral": [], "dsv3": [OF_TWO]}


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("matrix: {a b: x}", "2:10: a configuration is named by letters, digits, '.', '_' and '-', not 'a b'"),
        ("matrix: {../a: x}", "2:10: a configuration is named by"),
        ("matrix: {A: x, a: y}", "2:16: 'a' and 'A' differ only in capitals: rename one"),
        ("matrix: {a: x, a: y}", "2:16: 'a' is given twice (first on line 2)"),
        ("matrix: [a]", "2:9: matrix is a mapping"),
        ("matrix:", "2:8: matrix is a mapping"),
        ("trace: x\nmatrix: {a: x}", "2:8: with a matrix 'trace' belongs to each configuration: write it there"),
        ("matrix: {a: {assertions: [x]}}", "2:14: unknown key 'assertions': a configuration has trace,"),
        ("matrix: {a: {quality: {foo: 3}}}", "2:24: unknown key 'foo'"),
    ],
)
def test_mistakes(text: str, mistake: str) -> None:
    (found,) = mistakes(f"version: 1\n{text}\nassertions: [no syncs]")
    assert found.startswith(mistake)


PICKED = "assertions: [{assert: no syncs, matrix: b}]"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (PICKED, "2:41: 'matrix' picks configurations of the file, which has no"),
        (f"matrix: {{a: x}}\n{PICKED}", "3:41: no configuration of the matrix is 'b': they are a"),
        (f"matrix: {{a: x, b: y}}\n{PICKED}", "2:9: no assertion applies to 'a': it would always pass"),
        (
            "matrix: {a: , b: }\nassertions: [overlap >= 60%, {assert: no syncs, matrix: b}]\n"
            "waivers: [{assertion: no sync, ceiling: 3, expires: 2030-01-31, reason: x}]",
            "4:23: no assertion of this file is 'no sync' (did you mean 'no syncs'?)",
        ),
    ],
)
def test_mistakes_of_what_picks_configurations(text: str, mistake: str) -> None:
    assert any(found.startswith(mistake) for found in mistakes(f"version: 1\n{text}"))


def test_one_configuration_is_named_behind_the_file(tmp_path: Path) -> None:
    path = tmp_path / "gate.nsys.yaml"
    path.write_text(GATE)
    assert load_configuration(tmp_path / "gate.nsys.yaml[mixtral]").configuration == "mixtral"
    with pytest.raises(
        ArgumentMistake, match=r"has a matrix: it has llama-8b, mixtral, dsv3; write gate\.nsys\.yaml\["
    ):
        load_configuration(path)
    with pytest.raises(ArgumentMistake, match=r"no configuration of .* is 'mixtra' \(did you mean 'mixtral'\?\)"):
        load_configuration(tmp_path / "gate.nsys.yaml[mixtra]")
    path.write_text("version: 1\nassertions: [no syncs]")
    assert load_configuration(path).configuration == ""
    with pytest.raises(ArgumentMistake, match=r"has no matrix: leave \[a\] out"):
        load_configuration(tmp_path / "gate.nsys.yaml[a]")


def test_addresses() -> None:
    assert GateAddress.parse_file_and_configuration("perf/a.nsys.yaml[b-1]") == GateAddress("perf/a.nsys.yaml", "b-1")
    assert GateAddress.parse_file_and_configuration("perf/a[1]") == GateAddress("perf/a[1]")
    assert GateAddress("perf/a.nsys.yaml", "b").stem == "perf/a@b"
    assert str(GateAddress("perf/a.nsys.yaml")) == "perf/a.nsys.yaml"
