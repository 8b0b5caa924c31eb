"""Is a capture that began before the commit under judgement was made ever judged for it in CI?"""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pytest_nsys.tools.git import read_commit_time_s
from tests.fuzz.kinds import write_good
from tests.support.gates import Project, write_trace
from tests.support.git_project import commit, git, start

MADE = datetime(2026, 10, 28, 12, tzinfo=UTC)
"""When the commit was made."""

DAYS_AGO = MADE - timedelta(days=300)
GATE = "window: first\nquality: {{anchors: off{more}}}\nassertions:\n- compute_ns <= 1s\n- launches <= 1000"


def nanoseconds(at: datetime) -> int:
    return int(at.timestamp()) * 1_000_000_000


def nsys(folder: Path, at: datetime | None, name: str = "run.sqlite") -> str:
    start_ns = None if at is None else nanoseconds(at)

    def began(trace: object, _: object) -> None:
        if start_ns is not None:
            trace.insert("TARGET_INFO_SESSION_START_TIME", utcEpochNs=start_ns)  # type: ignore[attr-defined]

    return write_trace(folder / name, edit=began).name


def kineto(folder: Path, at: datetime | None) -> str:
    path = write_good(folder / "kineto.json")
    whole = json.loads(path.read_text())
    events = [event for event in whole["traceEvents"] if "ts" in event]
    first_us = min(int(float(event["ts"])) for event in events)
    for event in events:
        event["ts"] = float(event["ts"]) - first_us
    if at is not None:
        whole["baseTimeNanoseconds"] = nanoseconds(at)
    path.write_text(json.dumps(whole))
    return path.name


def jax(folder: Path, at: datetime | None) -> str:
    place = folder / (f"{at:%Y_%m_%d_%H_%M_%S}" if at is not None else "run")
    place.mkdir(exist_ok=True)
    path = write_good(place / "jax.json")
    return str(path.rename(path.with_name("host.trace.json")).relative_to(folder))


FORMATS = [nsys, kineto, jax]
Writer = Callable[[Path, datetime | None], str]


@pytest.fixture
def judged(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A gate file in a commit of its time, in CI."""
    start(project)
    monkeypatch.setenv("GIT_COMMITTER_DATE", MADE.isoformat())
    monkeypatch.setenv("GIT_AUTHOR_DATE", DAYS_AGO.isoformat())  # a rebase leaves it
    project.gate(GATE.format(more=""))
    commit(project.root)
    monkeypatch.setenv("CI", "true")
    return project


def words(said: str) -> str:
    return " ".join(said.split())


@pytest.mark.parametrize("write", FORMATS)
@pytest.mark.sampled(3)
def test_an_older_capture_is_an_error_that_names_both_times(judged: Project, write: Writer) -> None:
    trace = write(judged.root, DAYS_AGO)
    cases = judged.cases(f"--nsys-trace={trace}", code=1)
    head = git(judged.root, "rev-parse", "HEAD")[:7]
    what = f"the capture began at 2026-01-01 12:00 UTC, 300 days before commit {head} was made at 2026-10-28 12:00 UTC"
    for case in cases.values():
        assert case.state == "error"
        why = "it is of an earlier program; profile this commit"
        setting = "write quality: {older_than_commit: 25920000s} in the gate file"
        assert f"trace quality: {what} (bound: at most 86400s): {why}, or {setting}" in words(case.text)
    judged.gate(GATE.format(more=", older_than_commit: 25920000s"))
    judged.pytest(f"--nsys-trace={trace}", code=0)
    judged.gate(GATE.format(more=", older_than_commit: off"))
    judged.pytest(f"--nsys-trace={trace}", code=0)


@pytest.mark.parametrize("write", FORMATS)
@pytest.mark.parametrize("at", [None, MADE - timedelta(hours=23), MADE, MADE + timedelta(days=20)])
@pytest.mark.sampled(3)
def test_a_capture_of_the_day_later_or_no_time_is_judged(judged: Project, write: Writer, at: datetime | None) -> None:
    judged.pytest(f"--nsys-trace={write(judged.root, at)}", code=0)


@pytest.mark.parametrize("write", FORMATS)
def test_a_capture_of_the_future_has_no_age(judged: Project, write: Writer) -> None:
    trace = write(judged.root, datetime.now(UTC) + timedelta(days=400))
    said = words(judged.pytest(f"--nsys-trace={trace}", code=1))
    assert "399 days from now (bound: at most 86400s): the clock of its machine is wrong" in said


@pytest.mark.parametrize("value", ["", "0", "false", None])
def test_outside_ci_an_old_trace_is_judged(judged: Project, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("CI") if value is None else monkeypatch.setenv("CI", value)
    judged.pytest(f"--nsys-trace={nsys(judged.root, DAYS_AGO)}", code=0)


def test_where_git_names_no_commit_nothing_is_said(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.gate(GATE.format(more=""))
    monkeypatch.setenv("CI", "true")
    project.pytest(f"--nsys-trace={nsys(project.root, DAYS_AGO)}", code=0)
    start(project)
    project.pytest("--nsys-trace=run.sqlite", code=0)


def test_an_older_capture_is_not_accepted_either(judged: Project) -> None:
    judged.gate("- exposed_ns <= baseline + 5%")
    said = judged.refresh(f"--nsys-trace={nsys(judged.root, DAYS_AGO)}", code=1)
    assert "300 days before commit" in words(said)
    assert judged.baselines() == {}


def test_one_old_capture_of_several_is_enough(judged: Project) -> None:
    traces = nsys(judged.root, MADE), nsys(judged.root, DAYS_AGO, "old.sqlite")
    assert "300 days before" in words(judged.pytest(*(f"--nsys-trace={each}" for each in traces), code=1))


def test_of_a_request_that_ci_merged_the_older_commit_counts(judged: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = nsys(judged.root, MADE + timedelta(days=1))
    git(judged.root, "switch", "-qc", "request")
    judged.file("more.txt", "x")
    commit(judged.root)
    git(judged.root, "switch", "-q", "main")
    monkeypatch.setenv("GIT_COMMITTER_DATE", (MADE + timedelta(days=9)).isoformat())
    git(judged.root, "merge", "-q", "--no-ff", "-m", "a try", "request")
    assert "8 days before" in words(judged.pytest(f"--nsys-trace={trace}", code=1))
    monkeypatch.setenv("GITHUB_HEAD_REF", "request")
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    monkeypatch.setenv("GITHUB_REF_NAME", "1/merge")
    git(judged.root, "checkout", "-q", "--detach")
    git(judged.root, "branch", "-qf", "main", "HEAD^1")
    judged.pytest(f"--nsys-trace={trace}", code=0)


def test_a_commit_without_a_time_is_none(judged: Project) -> None:
    assert read_commit_time_s(judged.root, "HEAD") == int(MADE.timestamp())
    assert read_commit_time_s(judged.root, "0" * 40) is None
