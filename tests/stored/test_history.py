"""Does ``--nsys-history`` keep every row and verdict of a session, and does a limit get the last comparable runs?"""

import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.core.errors import HistoryError
from pytest_nsys.gates.model import Outcome
from pytest_nsys.stored.history.database import RunEntry, append_session, collect_run_facts, collect_series_facts
from pytest_nsys.tools.git import Revision
from pytest_nsys.traces.trace_files import open_trace
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from pytest_nsys.verdicts.references import PastRuns
from tests.support.gate_files import loaded
from tests.support.gates import GPU, Project, write_trace
from tests.support.histories import KEY, entry, nightly, past_of, values
from tests.support.sql import ask

RUN = ("--nsys-trace=run.sqlite", "--nsys-history=perf.db")
GATE = """
- stage2_f overlap >= 60%
- stage4_f overlap >= 60%
- exposed_ns < 1 ms
"""


@pytest.fixture
def gated(project: Project) -> Project:
    """A trace, and a gate that it holds."""
    project.gate_with_trace(GATE)
    return project


def stored(project: Project, question: str) -> list[tuple[Any, ...]]:
    """What its history answers."""
    return ask(project.root / "perf.db", question)


def test_a_session_adds_a_run_for_each_gate_file(gated: Project) -> None:
    gated.gate("- overlap >= 10%", "perf/other.nsys.yaml")
    assert "history perf.db: 2 runs added, 12 rows" in gated.pytest(*RUN, code=0)
    found = stored(gated, "SELECT gate, trace, captures, outcome, commit_id, branch, dirty FROM runs")
    assert found == [
        ("gate.nsys.yaml", "run.sqlite", 1, "passed", None, None, None),
        ("perf/other.nsys.yaml", "run.sqlite", 1, "passed", None, None, None),
    ]
    (key,) = {json.loads(text)["gpu"] for (text,) in stored(gated, "SELECT key_json FROM runs")}
    assert key == GPU


def test_rows_are_raw_exact_and_stored_once_for_each_measurement(project: Project) -> None:
    project.gated(GATE, {(1, "stage4_f"): 333})
    project.pytest(*RUN, code=0)
    found = stored(project, "SELECT metric, labels, value, number, unit, better, window FROM rows")
    assert found == [
        ("overlap", '[0, "stage2_f"]', "4/5", 0.8, "%", "higher", "median"),
        ("overlap", '[0, "stage4_f"]', "4/5", 0.8, "%", "higher", "median"),
        ("overlap", '[1, "stage2_f"]', "4/5", 0.8, "%", "higher", "median"),
        ("overlap", '[1, "stage4_f"]', "667/1000", 0.667, "%", "higher", "median"),
        ("exposed_ns", '[0, "stage2_f"]', "200000", 200_000.0, "ns", "lower", "median"),
        ("exposed_ns", '[0, "stage4_f"]', "200000", 200_000.0, "ns", "lower", "median"),
        ("exposed_ns", '[1, "stage2_f"]', "200000", 200_000.0, "ns", "lower", "median"),
        ("exposed_ns", '[1, "stage4_f"]', "333000", 333_000.0, "ns", "lower", "median"),
    ]


def test_verdicts_are_recorded_as_what_they_are(project: Project) -> None:
    project.trace(exposed_us={(1, "stage4_f"): 500})
    project.gate(
        """
        - overlap >= 10%
        - {assert: overlap >= 60%, id: red}
        - {assert: overlap >= 61%, id: known, xfail: bug 7}
        - {assert: overlap >= 62%, id: told, severity: warn}
        - stage9 overlap >= 60%
        - exposed_ns below baseline plus 5%
        - {assert: overlap >= 10%, id: nowhere, window: 99}
        """
    )
    project.pytest(*RUN, code=1)
    ask_for = "SELECT assertion, line, outcome, xfailed, value, limit_value, margin, row FROM verdicts ORDER BY line"
    found = stored(project, ask_for)
    worst = ("1/2", "rank 1 stage stage4_f")
    assert found[:6] == [
        ("overlap >=", 3, "passed", 0, worst[0], "1/10", "2/5", worst[1]),
        ("red", 4, "failed", 0, worst[0], "3/5", "-1/10", worst[1]),
        ("known", 5, "failed", 1, worst[0], "61/100", "-11/100", worst[1]),
        ("told", 6, "failed", 0, worst[0], "31/50", "-3/25", worst[1]),
        ("stage9 overlap >=", 7, "no data", 0, None, None, None, ""),
        ("exposed_ns below", 8, "no data", 0, *found[5][4:]),
    ]
    assert found[6][:4] == ("nowhere", 9, "error", 0)
    assert stored(project, "SELECT outcome FROM runs") == [("error",)]
    assert stored(project, "SELECT DISTINCT window FROM rows") == [("median",)]


def test_a_trace_that_cannot_be_read_is_a_run_without_rows(project: Project) -> None:
    project.file("run.sqlite", "no trace")
    project.gate(GATE)
    project.pytest(*RUN, code=1)
    assert stored(project, "SELECT key, outcome, trace FROM runs") == [(None, "error", "run.sqlite")]
    assert stored(project, "SELECT DISTINCT outcome FROM verdicts") == [("error",)]
    assert stored(project, "SELECT count(*) FROM rows") == [(0,)]


def test_an_updating_session_is_recorded(project: Project) -> None:
    project.gate_with_trace("- exposed_ns below baseline plus 5%\n- overlap >= 60%")
    project.refresh(*RUN)
    found = stored(project, "SELECT assertion, outcome, message FROM verdicts ORDER BY line")
    assert found[0] == ("exposed_ns below", "refresh", "a new normal")
    assert found[1][1] == "passed"
    assert stored(project, "SELECT DISTINCT metric FROM rows") == [("exposed_ns",), ("overlap",)]


def test_workers_of_xdist_hand_everything_over(project: Project) -> None:
    project.gate_with_trace(GATE + "- {assert: overlap >= 99%, id: red, xfail: bug 7}\n")
    options = ("--nsys-trace=run.sqlite", "-p", "no:cacheprovider")
    project.pytest("--nsys-history=alone.db", *options, code=0)
    said = project.pytest_in_a_process("--nsys-history=workers.db", "-n2", *options, code=0)
    assert "history workers.db: 1 run added, 8 rows" in said
    for question in (
        "SELECT metric, labels, value, number FROM rows ORDER BY metric, labels",
        "SELECT assertion, outcome, xfailed, value, margin, row FROM verdicts ORDER BY line",
        "SELECT gate, key, key_json, facts, coordinates, trace, captures, outcome FROM runs",
    ):
        assert ask(project.root / "workers.db", question) == ask(project.root / "alone.db", question)


def test_the_ini_key_is_relative_to_the_ini_file(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.trace()
    gate = project.gate(GATE, "perf/gate.nsys.yaml")
    project.file("pytest.ini", "[pytest]\nnsys_history = data.db\n")
    monkeypatch.chdir(gate.parent)
    project.pytest("--nsys-trace=../run.sqlite", code=0)
    assert ask(project.root / "data.db", "SELECT count(*) FROM runs") == [(1,)]
    project.pytest("--nsys-trace=../run.sqlite", "--nsys-history=own.db", code=0)
    assert ask(gate.parent / "own.db", "SELECT count(*) FROM runs") == [(1,)]
    assert ask(project.root / "data.db", "SELECT count(*) FROM runs") == [(1,)]


def test_only_what_was_judged_is_stored(gated: Project) -> None:
    gated.pytest(*RUN, "-k", "exposed_ns", code=0)
    assert stored(gated, "SELECT DISTINCT metric FROM rows") == [("exposed_ns",)]


def test_nothing_is_written_where_nothing_was_judged(gated: Project) -> None:
    gated.file("test_plain.py", "def test_it():\n    pass\n")
    gated.pytest(*RUN, "--collect-only", code=0)
    said = gated.pytest("--nsys-history=perf.db", "test_plain.py", code=0)
    assert "history perf.db: nothing added: no assertion of a gate file ran" in said
    assert not (gated.root / "perf.db").exists()


def test_an_interrupted_session_writes_nothing_and_says_so(gated: Project) -> None:
    gated.file("test_later.py", "import pytest\n\ndef test_it():\n    pytest.exit('enough')\n")
    arguments = ("gate.nsys.yaml", "test_later.py", *RUN)
    assert "history perf.db: not written: the session was interrupted" in gated.pytest_in_a_process(*arguments, code=2)
    assert not (gated.root / "perf.db").exists()


def test_without_the_option_sqlite_utils_is_not_needed(gated: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlite_utils", None)
    gated.pytest("--nsys-trace=run.sqlite", code=0)
    assert "perf.db" not in gated.files()


def test_the_last_runs_come_oldest_first(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nightly(history, monkeypatch, [entry(value) for value in ("1", "2", "7/3", "4")])
    assert values(past_of(history).read_last_runs(3)) == [2, Fraction(7, 3), 4]
    assert values(past_of(history).read_last_runs(9)) == [1, 2, Fraction(7, 3), 4]


def test_the_newest_runs_stay_out(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [entry(value) for value in ("1", "2", "3", "4")]
    nightly(history, monkeypatch, [*runs, entry("5", outcome="error"), entry("6", branch="topic")])

    def last(count: int, lag: int) -> list[int | Fraction]:
        return values(past_of(history).read_last_runs(count, "main", lag=lag))

    assert (last(2, 0), last(2, 1), last(9, 3), last(9, 4)) == ([3, 4], [2, 3], [1], [])


def test_only_runs_alike_count(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        entry("1"),
        entry("2", key={**KEY, "gpu": "other"}),
        entry("3", window="first"),
        entry("4", definition=2),
        entry("5", outcome="error"),
        entry("6", outcome="inconclusive"),
        entry("7", gate="other.nsys.yaml"),
        entry("8", branch="topic"),
    ]
    nightly(history, monkeypatch, runs)
    assert values(past_of(history).read_last_runs(9)) == [1, 6, 8]
    assert values(past_of(history).read_last_runs(9, "main")) == [1, 6]
    assert values(past_of(history).read_last_runs(1, "main")) == [6]
    assert past_of(history).read_last_runs(9, "none") == []
    assert values(past_of(history, on=("world",)).read_last_runs(9, "main")) == [1, 2, 6]


def test_the_last_runs_need_no_sqlite_utils(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_session(history, [entry()])
    monkeypatch.setitem(sys.modules, "sqlite_utils", None)
    assert len(past_of(history).read_last_runs(1)) == 1


def test_there_is_no_history_to_read(history: Path) -> None:
    with pytest.raises(HistoryError, match=r"no history at .*perf\.db: record one with pytest --nsys-history="):
        past_of(history).read_last_runs(1)
    assert not history.exists()


def test_a_slow_drift_carries_along_what_does_not_lag(tmp_path: Path, history: Path) -> None:
    """Of 1 % a run: half a window of ten later is 5.6 % above its median, ten runs more are 16.7 %."""
    limits = {"follows": "last 10 runs + 10%", "lags": "last 10 runs before the newest 10 + 10%"}
    text = "".join(f"- {{id: {name}, assert: exposed_ns <= {limit}}}\n" for name, limit in limits.items())
    gate = loaded(f"version: 1\nconvention: pithtrain\nassertions:\n{text}")
    found: dict[str, list[Outcome]] = {name: [] for name in limits}
    for night in range(30):
        trace = write_trace(tmp_path / "run.sqlite", round(200 * 1.01**night), ranks=1)
        captures = Captures([Run([open_trace(trace)], gate.resolved_convention)])
        context = GateContext(captures, gate, history=PastRuns(captures, gate, "gate.nsys.yaml", history))
        for assertion in gate.assertions:
            found[assertion.name].append(evaluate(assertion, context).outcome)
        series = collect_series_facts(gate.assertions[0], captures)
        append_session(
            history,
            [RunEntry("gate.nsys.yaml", "", Revision(None, None, None), collect_run_facts(captures, {}), [series])],
        )
        captures.close()
    assert found["follows"] == [Outcome.NO_DATA] + [Outcome.PASSED] * 29
    assert found["lags"][:11] == [Outcome.NO_DATA] * 11
    assert found["lags"][11:21] != [Outcome.PASSED] * 10
    assert found["lags"][21:] == [Outcome.FAILED] * 9


def test_a_lag_that_leaves_no_run_is_no_data(project: Project) -> None:
    project.gate_with_trace("- {id: drift, assert: exposed_ns <= last 3 runs before the newest 2 + 5%}")
    assert (
        "there is no history yet in perf.db: each run with --nsys-history adds to it; from run 4 on, runs are compared"
        in (project.pytest("-v", *RUN, code=1))
    )
    for _ in range(2):
        assert "no comparable run of exposed_ns before the newest 2, which lag leaves out" in project.pytest(
            "-v", *RUN, code=1
        )
    project.pytest("-v", *RUN, code=0)


def test_a_lost_row_stays_red_and_is_not_new_when_it_is_back(project: Project) -> None:
    project.gated("- exposed_ns <= last 10 runs + 50us", name="all.sqlite")
    project.trace("lost.sqlite", {(1, "stage4_f"): None})

    def judged(trace: str, code: int) -> str:
        return project.pytest(f"--nsys-trace={trace}", "--nsys-history=perf.db", code=code)

    assert "there is no history yet" in judged("all.sqlite", 1)
    judged("all.sqlite", 0)
    judged("all.sqlite", 0)
    for _ in range(2):
        assert "1 row of the baseline gone, the first rank 1 stage4_f" in judged("lost.sqlite", 1)
    judged("all.sqlite", 0)  # what was lost for two nights is not new
