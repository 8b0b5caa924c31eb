"""Does each mode of a refresh write what it promises, and nothing else?"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from pytest_nsys.analysis.circumstances import RunKey
from pytest_nsys.stored.baselines.baseline_file import Baseline
from pytest_nsys.stored.baselines.store import BaselineStore
from pytest_nsys.verdicts.refresh import Refresh
from pytest_nsys.verdicts.refresh_modes import ROWS, Mode, named
from tests.support.gate_files import loaded
from tests.support.gates import Project, built_once

GATE = """
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed_ns below baseline plus tolerance
"""
TWO = """
assertions:
  - {id: exposed, metric: exposed_ns, baseline: {abs: 50us}}
  - {id: share, metric: overlap, baseline: {abs: 1pp}}
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


@pytest.mark.parametrize("mode", ROWS)
def test_the_same_run_again_changes_no_byte(accepted: Project, mode: Mode) -> None:
    before = accepted.baselines()
    assert "; unchanged" in accepted.refresh(RUN, "--nsys-reason=another reason", mode=mode)
    assert accepted.baselines() == before


# New rows only


def test_new_only_adds_the_series_of_a_new_assertion(accepted: Project) -> None:
    accepted.gate("assertions:\n  - overlap >= baseline - 1pp")
    accepted.refresh(RUN, mode=Mode.NEW)
    assert list(stored(accepted).values()) == [[200]] * 4, "what nobody reads any more is not dropped"
    assert stored(accepted, "overlap")[0, "stage2_f"] == ["4/5"]


# One more accepted run


def test_an_accepted_run_stands_beside_the_others(accepted: Project) -> None:
    accepted.trace(exposed_us={(0, "stage2_f"): 300})
    said = accepted.refresh(RUN, "--nsys-reason=the second", mode=Mode.ACCEPT_RUN)
    assert "run accepted, 2 runs kept\n  exposed_ns rank 0 stage2_f: 200 us → 250 us" in said
    assert list(stored(accepted).values()) == [[200, 300], [200, 200], [200, 200], [200, 200]]
    assert provenance(accepted)["reason"] == "the second"
    accepted.trace(exposed_us={(0, "stage2_f"): 301})
    assert "failed" in accepted.pytest(RUN, code=1)
    accepted.trace(exposed_us={(0, "stage2_f"): 299})
    accepted.pytest(RUN, code=0)


def test_a_run_is_not_accepted_twice(accepted: Project) -> None:
    accepted.trace(exposed_us=210)
    accepted.refresh(RUN, mode=Mode.ACCEPT_RUN)
    before = accepted.baselines()
    for exposed_us in (200, 210):
        accepted.trace(exposed_us=exposed_us)
        said = accepted.refresh(RUN, mode=Mode.ACCEPT_RUN, code=1)
        assert "baseline not written: " in said
        assert "this run is accepted already" in said
    assert accepted.baselines() == before


# Only improvements


def test_a_ratchet_takes_improvements_alone(accepted: Project) -> None:
    accepted.trace(exposed_us=dict(zip(EACH, (100, 160, 210, 400), strict=True)))
    said = accepted.refresh(RUN, mode=Mode.BETTER)
    assert "1 row changed\n  exposed_ns rank 0 stage2_f: 200 us → 100 us (−50%)\n" in said
    assert "\n  exposed_ns: 1 row worse than stored, left alone\n" in said
    assert list(stored(accepted).values()) == [[100], [200], [200], [200]]


def test_there_is_nothing_to_ratchet_without_a_baseline(project: Project) -> None:
    project.gated(GATE)
    assert "no baseline of this run is stored: refresh without --rows better" in project.refresh(
        RUN, mode=Mode.BETTER, code=1
    )
    assert project.baselines() == {}


# Some assertions only


@pytest.mark.parametrize("name", ["exposed", "exp*", "exposed_ns", "*_ns"])
def test_only_what_is_named_is_written_and_the_rest_is_judged(project: Project, name: str) -> None:
    project.accepted(TWO, 200)
    project.trace(exposed_us=500)
    project.refresh(RUN, "--junitxml=junit.xml", code=1, only=(name,))
    cases = project.junit()
    assert {item: case.state for item, case in cases.items()} == {"exposed": "passed", "share": "failure"}
    assert set(map(tuple, stored(project).values())) == {(500,)}
    assert set(map(tuple, stored(project, "overlap").values())) == {("4/5",)}


def test_a_metric_is_named_as_people_say_it() -> None:
    (found,) = loaded("version: 1\nassertions: [{id: mine, assert: step time <= 9ms}]\n").assertions
    said = ("step time", "step_time", "step_time_ns", "mine", "step*")
    assert all(named(found, each) for each in said)
    assert not any(named(found, each) for each in ("time", "exposed", "iteration_ns", "measured step_time"))


def test_a_name_that_means_nothing_is_a_mistake(project: Project) -> None:
    project.gated(TWO + "  - exposed_ns <= 9ms")
    said = project.refresh(RUN, code=4, only=("share", "exposd"))
    assert "'exposd' is neither an assertion with a baseline nor a metric of one (did you mean 'exposed'?)" in said
    assert "'exposed_ns <= 9ms' is neither an assertion" in project.refresh(RUN, code=4, only=("exposed_ns <= 9ms",))
    assert project.baselines() == {}


def test_what_is_stale_stays_where_something_else_is_named(project: Project) -> None:
    project.accepted(TWO, 200)
    project.gated("assertions:\n  - {id: exposed, metric: exposed_ns, baseline: {abs: 50us}}", 500)
    project.refresh(RUN, only=("exposed",))
    assert stored(project, "overlap")[EACH[0]] == ["4/5"]
    project.refresh(RUN)
    (text,) = project.baselines().values()
    assert "overlap" not in text


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


@pytest.mark.parametrize("mode", [Mode.NEW, Mode.ACCEPT_RUN, Mode.BETTER])
def test_runs_of_other_circumstances_are_not_mixed(accepted: Project, mode: Mode) -> None:
    before = accepted.baselines()
    accepted.trace(exposed_us=50, profiler="2025.6.1")
    said = accepted.refresh(RUN, code=1, mode=mode)
    assert "holds another run (profiler: now 2025, baseline 2026), and one file never mixes two" in said
    assert accepted.baselines() == before


@pytest.mark.parametrize(("options", "only"), [(("-k", "share"), ()), ((), ("share",))])
def test_part_of_a_file_is_not_refreshed_from_another_run(
    project: Project, options: tuple[str, ...], only: tuple[str, ...]
) -> None:
    project.accepted(TWO)
    before = project.baselines()
    project.trace(exposed_us=500, profiler="2025.6.1")
    assert "one file never mixes two" in project.refresh(RUN, *options, code=1, only=only)
    assert project.baselines() == before


def test_circumstances_that_are_not_compared_may_differ(project: Project) -> None:
    project.accepted("comparable_on: [world, gpu]" + GATE, 200)
    project.trace(exposed_us=210, profiler="2025.6.1")
    project.refresh(RUN, mode=Mode.ACCEPT_RUN)
    assert list(stored(project).values()) == [[200, 210]] * 4


# The command


def test_the_command_passes_its_modes_on(accepted: Project) -> None:
    accepted.trace(exposed_us=210)
    words = ("baseline", "refresh", "gate.nsys.yaml", "--trace=run.sqlite", "--reason=r")
    assert "2 runs kept" in accepted.command(*words, "--accept-run", "--only=exposed*", code=0)
    assert "this run is accepted already" in accepted.command(*words, "--accept-run", code=2)
    accepted.trace(exposed_us=210, profiler="2025.6.1")
    assert "never mixes two" in accepted.command(*words, "--rows=better", code=3)
    assert "did you mean 'exposed_ns'?" in accepted.command(*words, "--only=exposd_ns", code=2)


MISTAKES = {
    "rows of a run that is taken whole": (
        ("--rows=all", "--accept-run"),
        "takes every row: leave --rows out",
    ),
    "no such rows": (("--rows=al",), "is not one of 'moved', 'all', 'new', 'better'"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_the_command_and_its_mistakes(project: Project, case: str) -> None:
    options, said = MISTAKES[case]
    assert said in project.command("baseline", "refresh", "gate.nsys.yaml", "--reason=r", *options, code=2)


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
    write = Refresh.write

    def late(self: Refresh) -> object:
        path.write_text(other)
        return write(self)

    monkeypatch.setattr(Refresh, "write", late)
    accepted.trace(exposed_us=210)
    accepted.refresh(RUN, mode=Mode.ACCEPT_RUN)
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
    accepted.refresh(RUN, mode=Mode.ACCEPT_RUN)
    assert written == [False, False], "the last reading and the writing"
