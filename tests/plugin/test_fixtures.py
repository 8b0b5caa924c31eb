"""Do Python tests get the same rows and the same judgement as a gate file?"""

from __future__ import annotations

import pytest

from pytest_nsys.samples.builder import Process, TraceBuilder
from tests.support.gates import MS, Project, watch_openings

GATE = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed_ns below baseline plus tolerance
"""


def judged(project: Project, body: str, *arguments: str, code: int = 0) -> str:
    """What pytest says of a test with this body."""
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    project.file("test_perf.py", f"import pytest\nimport pytest_nsys\ndef test(nsys_run, nsys_gate):\n{indented}\n")
    return project.pytest("--nsys-trace=run.sqlite", *arguments, code=code)


def test_rows(project: Project) -> None:
    project.trace(exposed_us={(1, "stage4_f"): 333})
    judged(
        project,
        """
from fractions import Fraction
rows = nsys_run.rows("overlap", stage="stage4")
assert [(row["rank"], row["stage"], row.value) for row in rows] == [
    (0, "stage4_f", Fraction(4, 5)),
    (1, "stage4_f", Fraction(667, 1000)),
]
assert [row.value for row in nsys_run.rows("exposed_ns", rank=1)] == [200_000, 333_000]
assert [row["rank"] for row in nsys_run.rows("window_ns", rank=[0, 1])] == [0, 1]
assert [row["stage"] for row in nsys_run.rows("exposed_ns", rank=0, stage=["stage2_f", "st*4_f"])] == [
    "stage2_f",
    "stage4_f",
]
assert len(nsys_run.rows("exposed_ns", pp=1)) == 2
assert dict(nsys_run.rows("anchors")[0].labels) == {"rank": 0}
""",
    )


def test_rows_of_another_window(project: Project) -> None:
    project.trace(chunks_ms=(10, 15, 15, 15, 12))
    judged(
        project,
        """
assert {row.value for row in nsys_run.rows("window_ns")} == {15_000_000}
assert {row.value for row in nsys_run.rows("window_ns", window="first")} == {10_000_000}
assert {row.value for row in nsys_run.rows("window_ns", window="4")} == {12_000_000}
assert {row.value for row in nsys_run.rows("window_ns", window="first", span="period")} == {20_000_000}
assert {row.value for row in nsys_run.rows("window_ns", kernels="launched")} == {5_000_000}
""",
    )


def test_rows_under_another_convention(project: Project) -> None:
    project.trace()
    judged(
        project,
        """
from pytest_nsys.core.conventions import BUILT_IN, Convention
own = Convention("own", anchor="layer00.stage2_f", stage="(?P<stage>stage2)")
assert {row["stage"] for row in nsys_run.under(own).rows("launches")} == {"stage2"}
assert nsys_run.under("generic").rows("busy_ns", window="run")
""",
    )


def test_no_rows_fail_the_test(project: Project) -> None:
    project.trace()
    said = judged(project, "for row in nsys_run.rows('overlap', stage='stage3'):\n    assert row.value > 1", code=1)
    assert "overlap: no data: no row has stage stage3; stages with a row: stage2_f, stage4_f" in said


def test_rows_that_one_capture_lacks_fail_the_test(project: Project) -> None:
    project.trace()
    project.trace("less.sqlite", stages=("stage2_f",))
    said = judged(project, "nsys_run.rows('overlap')", "--nsys-trace=less.sqlite", code=1)
    assert "overlap: no data: rank 0 stage stage4_f: only 1 of 2 captures have this row" in said
    judged(project, "assert len(nsys_run.rows('overlap', stage='stage2')) == 2", "--nsys-trace=less.sqlite")


ROWS_MISTAKES = {
    "nsys_run.rows('overlp')": "ValueError: unknown metric 'overlp' (did you mean 'overlap'?)",
    "nsys_run.rows('overlap', stag='stage2')": "overlap: no data: no row has stag stage2",
    "nsys_run.rows('overlap', window='99')": "there is no anchor 99: 5 anchors, from 0 on",
    "nsys_run.rows('overlap', span='half')": "ValueError: 'half' is not a valid Span",
    "nsys_run.under('pithtrian')": "ValueError: unknown convention 'pithtrian' (did you mean 'pithtrain'?)",
}


@pytest.mark.parametrize("call", ROWS_MISTAKES)
def test_mistakes_in_asking_for_rows(project: Project, call: str) -> None:
    project.trace()
    assert ROWS_MISTAKES[call] in judged(project, call, code=1)


@pytest.mark.parametrize("call", ["nsys_run.rows('overlap')", "nsys_gate('overlap >= 60%')"])
def test_without_a_trace(project: Project, call: str) -> None:
    project.file("test_perf.py", f"def test(nsys_run, nsys_gate):\n    {call}\n")
    assert "no trace: give --nsys-trace=PATH" in project.pytest(code=1)
    project.file("run.sqlite", "not a database")
    assert "is no SQLite file" in project.pytest("--nsys-trace=run.sqlite", code=1)


def test_a_sentence_that_holds(project: Project) -> None:
    project.trace()
    judged(
        project,
        """
verdict = nsys_gate("stage2 overlap >= 60%")
assert verdict.outcome == "passed"
assert [str(row.value) for row in verdict.rows] == ["4/5", "4/5"]
nsys_gate("median overlap >= 80%")
nsys_gate("no mixed comm streams")
nsys_gate("balance of compute_ns across pp <= 1.1")
""",
    )


def test_a_sentence_that_fails(project: Project) -> None:
    project.trace(exposed_us={(1, "stage4_f"): 410})
    said = judged(project, "nsys_gate('overlap >= 60%')", code=1)
    for line in (
        "nsys_gate: overlap >= 60%",
        "  failed: 1 of 4 rows below their limit",
        "  rank  stage     now    limit",
        "  1     stage4_f  59.0%  >= 60.0%",
        "  window: rank 1, forward chunk 2 (phase1) backward chunk 2 (phase0), 3rd of 5, 15 ms",
    ):
        assert line in said
    judged(project, "with pytest.raises(pytest_nsys.GateFailed):\n    nsys_gate('overlap >= 60%')")


def test_a_sentence_without_data(project: Project) -> None:
    project.trace()
    judged(project, "with pytest.raises(pytest_nsys.GateNotJudged):\n    nsys_gate('stage5 overlap >= 60%')")


GATE_MISTAKES = {
    "nsys_gate('overlp >= 60%')": "ValueError: 'overlp >= 60%', character 1: unknown metric 'overlp' (did you mean",
    "nsys_gate('overlap >= 60')": "ValueError: 'overlap >= 60', character 12: overlap is a ratio: write 60%",
    "nsys_gate('overlap >= baseline - 1pp')": "ValueError: a baseline belongs to a gate file: nsys_gate(sentence, gat",
    "nsys_gate('overlap >= 60%', gate_file='x.nsys.yaml')": "x.nsys.yaml:1:1: cannot be read: No such file",
    "nsys_gate('overlap >= 60%', gate_file='bad.nsys.yaml')": "bad.nsys.yaml:3:3: unknown metric 'overlp'",
}


@pytest.mark.parametrize("call", GATE_MISTAKES)
def test_mistakes_in_asking_for_a_verdict(project: Project, call: str) -> None:
    project.gate("- overlp >= 60%", "bad.nsys.yaml")
    project.trace()
    assert GATE_MISTAKES[call] in judged(project, call, "test_perf.py", code=1)


def test_a_gate_file_lends_its_settings_and_baselines(project: Project) -> None:
    project.gate(GATE, "perf/gate.nsys.yaml")
    project.trace()
    call = "nsys_gate('exposed_ns below baseline plus tolerance', gate_file='perf/gate.nsys.yaml')"
    said = judged(project, call, "test_perf.py", code=1)
    assert "no data: no baseline is stored in baselines/perf__gate" in said
    assert 'pytest-nsys baseline refresh perf/gate.nsys.yaml --trace=run.sqlite --reason "…"' in said
    project.refresh("--nsys-trace=run.sqlite", "perf")
    judged(project, call, "test_perf.py")
    project.trace(exposed_us={(0, "stage2_f"): 251})
    said = judged(project, call, "test_perf.py", code=1)
    assert "0     stage2_f  251 us  200 us    +26 %   250 us (baseline + max(5%, 50us))" in said


def test_a_gate_file_lends_its_window_and_trace(project: Project) -> None:
    project.trace("traces/run.sqlite", chunks_ms=(10, 15, 15, 15, 15))
    project.gate("trace: ../traces/run.sqlite\nwindow: first\nassertions:\n  - no syncs", "perf/gate.nsys.yaml")
    project.file(
        "test_perf.py",
        "def test(nsys_gate):\n    nsys_gate('window_ns == 10ms', gate_file='perf/gate.nsys.yaml')\n",
    )
    project.pytest("test_perf.py", code=0)


def test_the_trace_is_opened_once_for_all(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = watch_openings(monkeypatch)
    project.gate("- overlap >= 60%")
    project.trace()
    judged(project, "nsys_gate('overlap >= 60%')\nnsys_run.rows('overlap')")
    assert len(opened) == 1


def test_exactly(project: Project) -> None:
    """One nanosecond too much is too much."""

    def one_ns_more(_: TraceBuilder, processes: list[Process]) -> None:
        processes[0].kernel("ncclDevKernel_SendRecv", 43 * MS, 43 * MS + 1, stream=28, launch_ns=42 * MS)

    project.trace(exposed_us=400, edit=one_ns_more)
    said = judged(project, "nsys_gate('overlap >= 60%')", code=1)
    assert "59.9999%  >= 60.0%" in said
