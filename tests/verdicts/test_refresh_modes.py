"""Does each mode of a refresh write what it promises, and nothing else?"""

import fcntl
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from pytest_nsys.analysis.windows.run_conditions import RunKey
from pytest_nsys.stored.baselines.baseline_file import Baseline
from pytest_nsys.stored.baselines.store import BaselineStore
from pytest_nsys.verdicts.refresh import GateBaselineRefresh
from pytest_nsys.verdicts.refresh_modes import RefreshMode
from tests.support.gates import Project, built_once
from tests.support.git_project import commit, isolate, start

GATE = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed_ns below baseline plus tolerance
"""
TWO = """
assertions:
  - {id: exposed, assert: exposed_ns <= baseline + 50us}
  - {id: share, assert: overlap >= baseline - 1pp}
"""
RUN = "--nsys-trace=run.sqlite"
EACH = ((0, "stage2_f"), (0, "stage4_f"), (1, "stage2_f"), (1, "stage4_f"))


def stored(project: Project, metric: str = "exposed_ns") -> dict[tuple[Any, ...], list[Any]]:
    """The accepted values of each row in the only baseline file, in us."""
    (text,) = project.baselines().values()
    (series,) = [series for series in json.loads(text)["series"] if series["metric"] == metric]
    return {tuple(row[:2]): [v / 1000 if isinstance(v, int) else v for v in row[2]] for row in series["rows"]}


def provenance(project: Project) -> dict[str, Any]:
    (text,) = project.baselines().values()
    found: dict[str, Any] = json.loads(text)["provenance"]
    return found


@pytest.fixture
@built_once
def accepted(project: Project) -> Project:
    """A baseline of 200 us in every row."""
    project.accepted(GATE, 200)
    return project


# Every row


@pytest.mark.parametrize("mode", [RefreshMode.MOVED, RefreshMode.ALL])
def test_the_same_run_again_changes_no_byte(accepted: Project, mode: RefreshMode) -> None:
    before = accepted.baselines()
    assert "; unchanged" in accepted.refresh(RUN, "--nsys-reason=another reason", mode=mode)
    assert accepted.baselines() == before


# One more accepted run


def test_an_accepted_run_stands_beside_the_others(accepted: Project) -> None:
    accepted.trace(exposed_us={(0, "stage2_f"): 300})
    said = accepted.refresh(RUN, "--nsys-reason=the second", mode=RefreshMode.ACCEPT_RUN)
    assert "run accepted, 2 runs kept\n  exposed_ns rank 0 stage2_f: 200 us → 250 us" in said
    assert list(stored(accepted).values()) == [[200, 300], [200, 200], [200, 200], [200, 200]]
    assert provenance(accepted)["reason"] == "the second"
    accepted.trace(exposed_us={(0, "stage2_f"): 301})
    assert "failed" in accepted.pytest(RUN, code=1)
    accepted.trace(exposed_us={(0, "stage2_f"): 299})
    accepted.pytest(RUN, code=0)


def test_a_run_is_not_accepted_twice(accepted: Project) -> None:
    accepted.trace(exposed_us=210)
    accepted.refresh(RUN, mode=RefreshMode.ACCEPT_RUN)
    before = accepted.baselines()
    for exposed_us in (200, 210):
        accepted.trace(exposed_us=exposed_us)
        said = accepted.refresh(RUN, mode=RefreshMode.ACCEPT_RUN, code=1)
        assert "baseline not written: " in said
        assert "this run is accepted already" in said
    assert accepted.baselines() == before


# Some assertions, or some rows, only


@pytest.mark.parametrize("expression", ["exposed", "exposed_ns", "not share"])
def test_what_is_selected_is_written_and_nothing_else(project: Project, expression: str) -> None:
    """By the name of an assertion or of its metric, as pytest selects tests."""
    project.accepted(TWO.replace("id: exposed", "id: mine" if expression == "exposed_ns" else "id: exposed"), 200)
    project.trace(exposed_us=500)
    words = ("baseline", "refresh", "gate.nsys.yaml", "--trace=run.sqlite", "--reason=r", "-k", expression)
    assert "1 deselected" in project.command(*words, code=0)
    assert set(map(tuple, stored(project).values())) == {(500,)}
    assert set(map(tuple, stored(project, "overlap").values())) == {("4/5",)}


def test_nothing_selected_writes_nothing(project: Project) -> None:
    project.accepted(TWO, 200)
    project.trace(exposed_us=500)
    words = ("baseline", "refresh", "gate.nsys.yaml", "--trace=run.sqlite", "--reason=r", "-k", "exposd")
    assert "no baseline was written: no assertion with a baseline was measured" in project.command(*words, code=2)
    assert set(map(tuple, stored(project).values())) == {(200,)}


def test_what_is_stale_stays_where_something_else_is_selected(project: Project) -> None:
    project.accepted(TWO, 200)
    project.gated(TWO.replace("overlap >= baseline - 1pp", "window_ns <= baseline + 5%"), 500)
    project.refresh(RUN, "-k", "exposed")
    assert stored(project, "overlap")[EACH[0]] == ["4/5"]
    project.refresh(RUN)
    (text,) = project.baselines().values()
    assert "overlap" not in text


def test_a_row_is_a_line_that_git_can_take_back(accepted: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch)
    start(accepted)
    commit(accepted.root)
    accepted.trace(exposed_us={(0, "stage2_f"): 500, (1, "stage4_f"): 600})
    accepted.refresh(RUN)
    assert list(stored(accepted).values()) == [[500], [200], [200], [600]]
    (path,) = (accepted.root / "baselines").rglob("*.json")
    split_and_take_back_the_second = "s\nn\ny\nn\n"
    subprocess.run(
        ["git", "checkout", "-p", path], cwd=accepted.root, input=split_and_take_back_the_second, text=True, check=True
    )
    assert list(stored(accepted).values()) == [[200], [200], [200], [600]]
    assert "rank 0 stage2_f" in accepted.pytest(RUN, code=1)


def test_a_reason_without_a_refresh_is_a_mistake(project: Project) -> None:
    said = "--nsys-reason says why baselines change: give --nsys-update-baselines too"
    assert said in project.pytest("--nsys-reason=a slower link", code=4)


# Runs of other circumstances


def test_the_circumstances_are_stored(accepted: Project) -> None:
    (text,) = accepted.baselines().values()
    assert json.loads(text)["facts"] == {
        "steps": ["5 and more"],
        "step_counts": [5],
        "stated_steps": ["no"],
        "gpus": [2],
        "launcher": ["1-process-per-node"],
        "anchor": ["forward chunk N (phaseN) backward chunk N (phaseN)"],
        "profiler": ["2026"],
    }


def test_another_profiler_writes_every_row(accepted: Project) -> None:
    accepted.trace(exposed_us=201, profiler="2025.6.1")
    said = accepted.refresh(RUN)
    assert "the stored run was another one (profiler: now 2025, baseline 2026): every row is written" in said
    assert list(stored(accepted).values()) == [[201]] * 4
    accepted.pytest(RUN, code=0)


def test_runs_of_other_circumstances_are_not_mixed(accepted: Project) -> None:
    before = accepted.baselines()
    accepted.trace(exposed_us=50, profiler="2025.6.1")
    said = accepted.refresh(RUN, code=1, mode=RefreshMode.ACCEPT_RUN)
    assert "holds another run (profiler: now 2025, baseline 2026), and one file never mixes two" in said
    assert accepted.baselines() == before


def test_part_of_a_file_is_not_refreshed_from_another_run(project: Project) -> None:
    project.accepted(TWO)
    before = project.baselines()
    project.trace(exposed_us=500, profiler="2025.6.1")
    assert "one file never mixes two" in project.refresh(RUN, "-k", "share", code=1)
    assert project.baselines() == before


def test_circumstances_that_are_not_compared_may_differ(project: Project) -> None:
    project.accepted("comparable_on: [world, gpu]" + GATE, 200)
    project.trace(exposed_us=210, profiler="2025.6.1")
    project.refresh(RUN, mode=RefreshMode.ACCEPT_RUN)
    assert list(stored(project).values()) == [[200, 210]] * 4


# The command


def test_the_command_passes_its_modes_on(accepted: Project) -> None:
    accepted.trace(exposed_us=210)
    words = ("baseline", "refresh", "gate.nsys.yaml", "--trace=run.sqlite", "--reason=r")
    assert "2 runs kept" in accepted.command(*words, "--accept-run", code=0)
    assert "this run is accepted already" in accepted.command(*words, "--accept-run", code=2)
    assert "takes every row: leave --all out" in accepted.command(*words, "--accept-run", "--all", code=2)
    accepted.command(*words, "--all", code=0)
    assert list(stored(accepted).values()) == [[210]] * 4
    accepted.trace(exposed_us=210, profiler="2025.6.1")
    assert "never mixes two" in accepted.command(*words, "--accept-run", code=3)


# Two refreshes at once


def test_of_two_runs_that_are_accepted_at_once_none_is_lost(accepted: Project) -> None:
    """Real processes; whichever comes first, both runs are there at the end."""
    names = [f"run{n}.sqlite" for n in range(4)]
    for n, name in enumerate(names):
        accepted.trace(name, exposed_us=201 + n)
    words = [sys.executable, "-m", "pytest_nsys", "baseline", "refresh", "gate.nsys.yaml", "--reason=r", "--accept-run"]
    started = [
        subprocess.Popen([*words, f"--trace={name}"], cwd=accepted.root, stdout=subprocess.DEVNULL) for name in names
    ]
    assert [process.wait() for process in started] == [0] * 4
    for values in stored(accepted).values():
        assert values[0] == 200
        assert sorted(values) == [200, 201, 202, 203, 204]


def test_a_refresh_reads_what_another_has_written_meanwhile(accepted: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored is read again under the lock, not as it was when the trace was measured."""
    (path,) = (accepted.root / "baselines").rglob("*.json")
    other = path.read_text().replace("[200000]", "[200000, 205000]")
    write = GateBaselineRefresh.write

    def late(self: GateBaselineRefresh) -> object:
        path.write_text(other)
        return write(self)

    monkeypatch.setattr(GateBaselineRefresh, "write", late)
    accepted.trace(exposed_us=210)
    accepted.refresh(RUN, mode=RefreshMode.ACCEPT_RUN)
    assert list(stored(accepted).values()) == [[200, 205, 210]] * 4


def test_what_is_written_is_written_under_the_lock(accepted: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    free, written = list[bool](), list[bool]()
    load, save = BaselineStore.load, BaselineStore.save

    def tried(store: BaselineStore) -> None:
        other = os.open(store.folder, os.O_RDONLY)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free.append(True)
        except BlockingIOError:
            free.append(False)
        finally:
            os.close(other)

    def loaded(self: BaselineStore, key: RunKey) -> Baseline | None:
        tried(self)
        return load(self, key)

    def saved(self: BaselineStore, *what: Any) -> bool:
        tried(self)
        written.extend(free[-2:])
        return save(self, *what)

    monkeypatch.setattr(BaselineStore, "load", loaded)
    monkeypatch.setattr(BaselineStore, "save", saved)
    accepted.trace(exposed_us=210)
    accepted.refresh(RUN, mode=RefreshMode.ACCEPT_RUN)
    assert written == [False, False], "the last reading and the writing"
