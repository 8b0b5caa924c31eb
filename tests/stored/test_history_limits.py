"""Does a limit get the last comparable runs of the history, or one clear line?"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import pytest

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.run import Run
from pytest_nsys.core.errors import HistoryError
from pytest_nsys.gates.verdict import Outcome
from pytest_nsys.stored.history.reading import last_runs
from pytest_nsys.stored.history.writing import RunEntry, append, run_facts, series_facts
from pytest_nsys.tools.revision import Revision
from pytest_nsys.traces.opening import open_trace
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from pytest_nsys.verdicts.references import PastRuns
from tests.support.gate_files import loaded
from tests.support.gates import Project, write_trace
from tests.support.histories import KEY, SID, entry


def values(runs: list[dict[tuple[int | str, ...], int | Fraction]]) -> list[object]:
    return [run[0, "stage2_f"] for run in runs]


def test_the_last_runs_come_oldest_first(history: Path) -> None:
    for value in ("1", "2", "7/3", "4"):
        append(history, [entry(value)])
    assert values(last_runs(history, "gate.nsys.yaml", KEY, SID, 3)) == [2, Fraction(7, 3), 4]
    assert values(last_runs(history, "gate.nsys.yaml", KEY, SID, 9)) == [1, 2, Fraction(7, 3), 4]


def test_the_newest_runs_stay_out(history: Path) -> None:
    for value in ("1", "2", "3", "4"):
        append(history, [entry(value)])
    append(history, [entry("5", outcome="error")])
    append(history, [entry("6", branch="topic")])

    def last(count: int, lag: int) -> list[object]:
        return values(last_runs(history, "gate.nsys.yaml", KEY, SID, count, "main", lag=lag))

    assert (last(2, 0), last(2, 1), last(9, 3), last(9, 4)) == ([3, 4], [2, 3], [1], [])


def test_only_runs_alike_count(history: Path) -> None:
    append(history, [entry("1")])
    append(history, [entry("2", key={**KEY, "gpu": "other"})])
    append(history, [entry("3", window="first")])
    append(history, [entry("4", definition=2)])
    append(history, [entry("5", outcome="error")])
    append(history, [entry("6", outcome="failed")])
    append(history, [entry("7", gate="other.nsys.yaml"), entry("8", branch="topic")])
    assert values(last_runs(history, "gate.nsys.yaml", KEY, SID, 9)) == [1, 6, 8]
    assert values(last_runs(history, "gate.nsys.yaml", KEY, SID, 9, "main")) == [1, 6]
    assert values(last_runs(history, "gate.nsys.yaml", KEY, SID, 1, "main")) == [6]
    assert last_runs(history, "gate.nsys.yaml", KEY, SID, 9, "none") == []
    assert values(last_runs(history, "gate.nsys.yaml", KEY, SID, 9, "main", on=("world",))) == [1, 2, 6]


def test_the_last_runs_need_no_sqlite_utils(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(history, [entry()])
    monkeypatch.setitem(sys.modules, "sqlite_utils", None)
    assert len(last_runs(history, "gate.nsys.yaml", KEY, SID, 1)) == 1


def test_there_is_no_history_to_read(history: Path) -> None:
    with pytest.raises(HistoryError, match=r"there is no such file: pytest --nsys-history=.*perf\.db writes it"):
        last_runs(history, "gate.nsys.yaml", KEY, SID, 1)
    assert not history.exists()


def test_a_slow_drift_carries_along_what_does_not_lag(tmp_path: Path, history: Path) -> None:
    """Of 1 % a run: half a window of ten later is 5.6 % above its median, ten runs more are 16.7 %."""
    limits = {"follows": "{history: 10, rel: 10%}", "lags": "{history: 10, lag: 10, rel: 10%}"}
    text = "".join(f"- {{id: {name}, metric: exposed_ns, baseline: {limit}}}\n" for name, limit in limits.items())
    gate = loaded(f"version: 1\nassertions:\n{text}")
    found: dict[str, list[Outcome]] = {name: [] for name in limits}
    for night in range(30):
        trace = write_trace(tmp_path / "run.sqlite", round(200 * 1.01**night), ranks=1)
        captures = Captures([Run([open_trace(trace)], gate.convention)])
        context = GateContext(captures, gate, history=PastRuns(captures, gate, "gate.nsys.yaml", history))
        for assertion in gate.assertions:
            found[assertion.name].append(evaluate(assertion, context).outcome)
        series = series_facts(gate.assertions[0], captures)
        append(history, [RunEntry("gate.nsys.yaml", "", Revision(None, None, None), run_facts(captures, {}), [series])])
        captures.close()
    assert found["follows"] == [Outcome.NO_DATA] + [Outcome.PASSED] * 29
    assert found["lags"][:11] == [Outcome.NO_DATA] * 11
    assert found["lags"][11:21] != [Outcome.PASSED] * 10
    assert found["lags"][21:] == [Outcome.FAILED] * 9


def test_a_lag_that_leaves_no_run_is_no_data(project: Project) -> None:
    project.trace()
    project.gate("- {id: drift, metric: exposed_ns, baseline: {history: 3, lag: 2, rel: 5%}}")
    run = "--nsys-trace=run.sqlite", "--nsys-history=perf.db"
    assert "there is no history yet in perf.db: each run with --nsys-history adds to it, and from run 4 on" in (
        project.pytest(*run, code=1)
    )
    for _ in range(2):
        assert "no comparable run of exposed_ns before the newest 2, which lag leaves out" in project.pytest(
            *run, code=1
        )
    project.pytest(*run, code=0)


def test_a_lost_row_stays_red_until_most_of_the_runs_have_lost_it(project: Project) -> None:
    project.gate("- {metric: exposed_ns, baseline: {history: 10, abs: 50us}}")
    project.trace("all.sqlite")
    project.trace("lost.sqlite", {(1, "stage4_f"): None})

    def judged(trace: str, code: int) -> str:
        return project.pytest(f"--nsys-trace={trace}", "--nsys-history=perf.db", code=code)

    assert "there is no history yet" in judged("all.sqlite", 1)
    judged("all.sqlite", 0)
    judged("all.sqlite", 0)
    for _ in range(2):
        assert "1 row of the baseline gone, the first rank 1 stage stage4_f" in judged("lost.sqlite", 1)
    judged("all.sqlite", 0)  # what was lost for two nights is not new
