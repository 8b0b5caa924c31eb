"""Does ``pytest-nsys compare --claim`` show what head is to do better, in each format, and exit accordingly?"""

import json
import re
from functools import partial
from typing import Any

import pytest

from pytest_nsys.gates.model import ClaimFinding
from pytest_nsys.verdicts.comparison import Result
from tests.support import commands
from tests.support.gates import Exposed, Project
from tests.support.page import Page
from tests.support.reports import SCHEMA, checked

compare = partial(commands.run, "compare")
QUIET = (0, 1, -1, 2, -2)
BELOW = "exposed_ns at least 3% below baseline"
SHOWN = "shown in both rows, least in rank 0 stage2_f: 10% ± 1.9% shorter"


def captures(project: Project, base_us: int, head_us: int, count: int = 3) -> list[str]:
    """Traces of one rank and two stages, and the options that name them."""
    options = []
    for side, middle in (("base", base_us), ("head", head_us)):
        for n, noise in enumerate(QUIET[:count]):
            project.trace(f"{side}{n}.sqlite", middle + noise, ranks=1)
            options.append(f"--{side}={side}{n}.sqlite")
    return options


def claim(*sentences: str) -> list[str]:
    return [f"--claim={sentence}" for sentence in sentences]


def test_a_claim_that_is_shown_leads_a_green_report(project: Project) -> None:
    said = compare(*captures(project, 200, 180), *claim(BELOW), code=0).stdout
    first, *_ = said.splitlines()
    assert first.startswith("nothing worse: ")
    assert first.endswith(f"; {BELOW}: {SHOWN}")
    assert f"passed: {BELOW}: {SHOWN}\n  why: " in said


def test_a_claim_that_is_not_shown_is_exit_code_1_and_no_regression(project: Project) -> None:
    options = captures(project, 200, 180, count=1)
    said = compare(*options, *claim(BELOW), code=1).stdout
    first, *_ = said.splitlines()
    assert first.startswith(
        f"{BELOW}: not shown in 2 of 2 rows, the first rank 0 stage2_f: 10% shorter, and 1 + 1 captures"
    )
    assert first.endswith(" within the limits")
    assert "worse" not in first.replace("nothing worse", "")
    assert f"failed: {BELOW}: not shown" in said
    compare(*options, code=0)


def test_several_claims_are_each_told_and_what_fails_comes_first(project: Project) -> None:
    overlap = "overlap at least 5pp above baseline"
    first, *_ = compare(*captures(project, 200, 180), *claim(BELOW, overlap), code=1).stdout.splitlines()
    assert first.startswith(
        f"{overlap}: not so in 2 of 2 rows, the first rank 0 stage2_f: 2 pp higher, less than claimed"
    )
    assert f"; {BELOW}: {SHOWN}; nothing worse: " in first


@pytest.mark.parametrize(
    ("base_us", "head_us", "count", "gate", "sentence", "code"),
    [
        (200, 180, 3, None, BELOW, 0),
        (200, 180, 3, None, "exposed_ns better than baseline", 1),  # the tolerance of the built-in gate is 50 us
        (200, 180, 3, "tolerance: {rel: 5%}", "exposed_ns better than baseline", 0),  # that of the file
        (200, 180, 3, "tolerance: {rel: 12%}", "exposed_ns better than baseline", 1),
        (200, 220, 3, None, BELOW, 1),
        (200, 260, 3, None, "window_ns at least 1% below baseline", 1),  # both: worse, and not shown
        (200, 180, 3, None, "stage5 exposed_ns better than baseline", 3),  # no such row
    ],
)
def test_the_exit_code_is_that_of_the_gate_and_of_its_claims(
    project: Project, base_us: int, head_us: int, count: int, gate: str | None, sentence: str, code: int
) -> None:
    options = captures(project, base_us, head_us, count)
    if gate is not None:
        project.gate(f"{gate}\nassertions:\n- compute_ns >= 0.1ms\n")
        options.append("--gate=gate.nsys.yaml")
    compare(*options, *claim(sentence), code=code)


def test_a_claim_is_judged_with_the_settings_of_the_first_gate_file(project: Project) -> None:
    project.gate("window: first\nassertions:\n- compute_ns >= 0.1ms\n")
    found = json.loads(
        compare(*captures(project, 200, 180), "--gate=gate.nsys.yaml", *claim(BELOW), "--format=json", code=0).stdout
    )
    files = {file["file"]: file for file in found["gate_files"]}
    assert set(files) == {"gate.nsys.yaml", "claims"}
    assert files["claims"]["assertions"][0]["measured_as"].startswith("window first")


@pytest.mark.parametrize(
    ("sentences", "problem"),
    [
        (
            ["exposed_ns <= 3ms"],
            "--claim 'exposed_ns <= 3ms' claims no change to the better, as in 'step time at least 3% below baseline': "
            "write it into a gate file, which --gate names",
        ),
        (
            ["exposed_ns <= baseline + 5%"],
            "--claim 'exposed_ns <= baseline + 5%' claims no change to the better, as in ",
        ),
        (["no syncs"], "--claim 'no syncs' claims no change to the better, as in "),
        (
            ["exposd_ns better than baseline"],
            "--claim 'exposd_ns better than baseline', character 1: unknown metric 'exposd_ns'",
        ),
        (
            ["exposed_ns better than last 3 runs"],
            "--claim 'better than last 3 runs': here head is compared with base: write",
        ),
        ([BELOW, BELOW], "a claim is given twice"),
        ([""], "--claim '', character 1: the sentence is empty"),
    ],
)
def test_a_mistake_in_a_claim_is_one_line_before_a_trace_is_read(
    project: Project, monkeypatch: pytest.MonkeyPatch, sentences: list[str], problem: str
) -> None:
    options = captures(project, 200, 180, count=1)
    monkeypatch.setattr("pytest_nsys.cli.compare.open_cache", lambda *_: pytest.fail("a trace is read"))
    said = compare(*options, *claim(*sentences), code=2).stderr
    assert said.startswith(f"error: {problem}")
    assert said.count("\n") == 1


def with_flash(project: Project, name: str, flash_us: int, exposed_us: Exposed = 200) -> str:
    """A trace in which an AllReduce waits for another rank, however long this rank computes."""

    def edit(_: Any, processes: Any) -> None:
        for k in range(5):
            at = 20_000_000 * k + 11_000_000
            processes[0].range("layer00.stage3_f", at - 10_000, at + 3_000_000)
            processes[0].kernel("flash_fwd", at, at + 1_000 * flash_us, launch_ns=at - 9_000)
            processes[0].kernel(
                "ncclDevKernel_AllReduce", at + 1_000 * flash_us, at + 3_100_000, stream=28, launch_ns=at - 8_000
            )
            processes[0].kernel("adam", at + 3_100_000, at + 3_300_000, launch_ns=at - 7_000)

    project.trace(name, exposed_us, ranks=1, edit=edit)
    return name


LOST = "flash_fwd 30% shorter, 900 us; the window unchanged: it waits in AllReduce instead"
MADE_OF = "the window: compute −900 us (of which flash_fwd −900 us), stalled during communication +900 us"


@pytest.mark.parametrize("format", ["table", "markdown", "html"])
def test_every_format_tells_where_the_gain_of_a_kernel_went(project: Project, format: str) -> None:
    pair = with_flash(project, "base.sqlite", 3_000), with_flash(project, "head.sqlite", 2_100)
    said = compare(*pair, *claim("window_ns at least 1% below baseline"), f"--format={format}", code=1).stdout
    shown = (Page(said).text if format == "html" else said).replace("\\", "").replace("\u00a0", " ")
    assert LOST in shown
    assert MADE_OF in shown
    assert "not so: unchanged" in shown.lower()
    assert not re.search("gate files|rank 0 of claims", shown)  # a claim is in none


def test_the_schema_knows_every_finding_and_every_result() -> None:
    assert set(SCHEMA["$defs"]["Claim"]["properties"]["finding"]["enum"]) == set(ClaimFinding)
    assert set(SCHEMA["$defs"]["Result"]["enum"]) == set(Result)


def test_json_says_what_a_claim_rests_on(project: Project) -> None:
    pair = with_flash(project, "base.sqlite", 3_000), with_flash(project, "head.sqlite", 2_100)
    sentences = claim("window_ns at least 1% below baseline", "compute_ns at least 1% below baseline")
    compare(*pair, *sentences, "--output=report.json", code=1)
    found = checked(project.root / "report.json")
    assert found["comparison"]["result"] == "worse"  # more of the AllReduce is exposed
    (claims,) = (file["assertions"] for file in found["gate_files"] if file["file"] == "claims")
    assert [each["rows"][0]["claim"] for each in claims] == [
        {"finding": "not better", "captures": "1 + 1 captures", "needed_captures": None},
        {"finding": "not tested", "captures": "1 + 1 captures", "needed_captures": None},
    ]
    assert [each["causes"][0].get("lost_gain") for each in claims] == [LOST, None]
    assert all(
        "claim" not in row
        for file in found["gate_files"]
        if file["file"] != "claims"
        for each in file["assertions"]
        for row in each["rows"]
    )
    project.trace("base.sqlite", 200, ranks=1)
    project.trace("head.sqlite", 200, ranks=1)
    compare("base.sqlite", "head.sqlite", *sentences[:1], "--output=report.json", code=1)
    assert checked(project.root / "report.json")["comparison"]["result"] == "not as claimed"
