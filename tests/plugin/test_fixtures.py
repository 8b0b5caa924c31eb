"""Do Python tests get the same rows and the same judgement as a gate file?"""

import pytest

from tests.support.gates import Project, watch_openings

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
rows = nsys_run.rows("exposed_ns", stage="stage4")
assert [(row["rank"], row["stage"], row.value) for row in rows] == [(0, "stage4_f", 200_000), (1, "stage4_f", 333_000)]
assert nsys_run.to_records("exposed_ns", rank=1, stage="stage4")[0]["value"] == 333_000
assert nsys_run.ranks == (0, 1)
assert nsys_run.under("generic").rows("compute_ns", window="run")
""",
    )


def test_no_rows_fail_the_test(project: Project) -> None:
    project.trace()
    said = judged(project, "for row in nsys_run.rows('overlap', stage='stage3'):\n    assert row.value > 1", code=1)
    assert "overlap: no data: no row has stage stage3; stages with a row: stage2_f, stage4_f" in said


@pytest.mark.parametrize(
    "call", ["nsys_run.rows('overlapp')", "nsys_run.to_records('overlap', stag='a')", "nsys_gate('overlapp > 1%')"]
)
def test_a_mistake_shows_the_test_and_none_of_our_code(project: Project, call: str) -> None:
    project.trace()
    said = judged(project, call, code=1)
    assert "(did you mean '" in said
    assert "library.py" not in said
    assert " object at 0x" not in said


@pytest.mark.parametrize("more", ["-1%", "', gate_file='x.nsys.yaml', convention='generic"])
def test_a_mistake_in_asking_is_a_value_error(project: Project, more: str) -> None:
    project.trace()
    judged(project, f"with pytest.raises(ValueError):\n    nsys_gate('overlap >= 60%{more}')")


@pytest.mark.parametrize("call", ["nsys_run.rows('overlap')", "nsys_gate('overlap >= 60%')"])
def test_without_a_trace(project: Project, call: str) -> None:
    project.file("test_perf.py", f"def test(nsys_run, nsys_gate):\n    {call}\n")
    assert "no trace: give --nsys-trace=PATH" in project.pytest("--nsys-strict", code=1)
    project.file("run.sqlite", "not a database")
    assert "is not a SQLite file" in project.pytest("--nsys-trace=run.sqlite", code=1)


@pytest.mark.parametrize(
    "body",
    [
        "assert [str(row.value) for row in nsys_gate('stage2 overlap >= 60%').rows] == ['4/5', '4/5']",
        "nsys_gate('window_ns == 20ms', convention='pithtrain', anchor='layer00.stage2_f')",
        "with pytest.raises(pytest_nsys.GateNotJudged):\n    nsys_gate('stage5 overlap >= 60%')",
    ],
    ids=["it holds", "under another convention", "without data"],
)
def test_a_sentence(project: Project, body: str) -> None:
    project.trace()
    judged(project, body)


def test_a_sentence_that_fails(project: Project) -> None:
    project.trace(exposed_us={(1, "stage4_f"): 410})
    said = judged(project, "nsys_gate('overlap >= 60%')", code=1)
    for line in (
        "GateFailed: 59% < 60%, rank 1 stage4_f",
        "nsys_gate: overlap >= 60%",
        "  failed: 1 of 4 rows below their limit",
        "  rank  stage     now  limit",
        "  1     stage4_f  59%  >= 60%",
        "  window: rank 1, forward chunk 2 (phase1) backward chunk 2 (phase0), 3rd of 5, 15 ms",
    ):
        assert line in said
    judged(project, "with pytest.raises(pytest_nsys.GateFailed):\n    nsys_gate('overlap >= 60%')")


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("x.nsys.yaml", "x.nsys.yaml:1:1: cannot be read: No such file"),
        ("bad.nsys.yaml", "bad.nsys.yaml:3:3: unknown metric 'overlp'"),
    ],
)
def test_mistakes_of_the_gate_file(project: Project, file: str, said: str) -> None:
    project.gate("- overlp >= 60%", "bad.nsys.yaml")
    project.trace()
    assert said in judged(project, f"nsys_gate('overlap >= 60%', gate_file={file!r})", "test_perf.py", code=1)


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
    assert "0     stage2_f  251 us  200 us    +25.5%  <= 250 us (baseline + max(5%, 50us))" in said


def test_a_gate_file_lends_its_window_and_trace(project: Project) -> None:
    project.trace("traces/run.sqlite", chunks_ms=(10, 15, 15, 15, 15))
    project.gate("trace: ../traces/run.sqlite\nwindow: first\nassertions:\n  - no syncs", "perf/gate.nsys.yaml")
    project.file(
        "test_perf.py", "def test(nsys_gate):\n    nsys_gate('window_ns == 10ms', gate_file='perf/gate.nsys.yaml')\n"
    )
    project.pytest("test_perf.py", code=0)


def test_the_trace_is_opened_once_for_all(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = watch_openings(monkeypatch)
    for name in "ab":
        project.gate("- overlap >= 60%\n- no syncs", f"{name}.nsys.yaml")
    project.trace()
    judged(project, "nsys_gate('overlap >= 60%')\nnsys_run.rows('overlap')")
    assert len(opened) == 1  # to find the convention of all, and to measure
