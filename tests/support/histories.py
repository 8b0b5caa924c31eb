"""What do the tests of the history share? Runs of a few rows, as the items of a session would have told of them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.model import Label, Value
from pytest_nsys.gates.model import Assertion, Comparator, Constant, Location, Requirement
from pytest_nsys.stored.baselines.baseline_file import SeriesId
from pytest_nsys.stored.history import database
from pytest_nsys.stored.history.assertion_history import AssertionHistory, AssertionIdentity
from pytest_nsys.stored.history.database import RunEntry, append_session
from pytest_nsys.tools.git import Revision
from tests.support.gates import GPU

KEY = {"convention": "abc", "gpu": GPU, "mesh": None, "micro_batch": None, "sequence_length": None, "world": 2}
DIGEST = "0123456789ab"
FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)
SID = SeriesId("exposed_ns", 1, "median", "range", "contained")
NAME = "exposed_ns < 1 ms"
"""Of the assertion of an :func:`entry`."""
Rows = dict[tuple[Label, ...], str]


def series(rows: Rows, **more: Any) -> dict[str, Any]:
    """The rows of ``exposed_ns``, or of what ``more`` says."""
    return {
        "metric": "exposed_ns",
        "definition": 1,
        "window": "median",
        "span": "range",
        "kernels": "contained",
        "unit": "ns",
        "better": "lower",
        "dimensions": ["rank", "stage"],
        "rows": [[list(labels), value] for labels, value in rows.items()],
        **more,
    }


def entry(
    value: str = "200000",
    *,
    outcome: str = "passed",
    key: Mapping[str, Any] | None = None,
    gate: str = "gate.nsys.yaml",
    branch: str | None = "main",
    commit: str = "0" * 40,
    every: Sequence[Mapping[str, Any]] | None = None,
    digest: str = DIGEST,
    xfailed: int = 0,
    severity: str = "fail",
    verdict: Mapping[str, Any] | None = None,
    **more: Any,
) -> RunEntry:
    """A run of one row, or of ``every`` measurement. ``verdict``: what else its one verdict says."""
    found = [dict(each) for each in every or [series({(0, "stage2_f"): value}, **more)]]
    facts = {"key": dict(key or KEY), "digest": digest, "coordinates": {"0": {"pp": 0}, "1": {"pp": 1}}}
    said = {
        "assertion": NAME,
        "line": 3,
        "outcome": outcome,
        "xfailed": xfailed,
        "severity": severity,
        **(verdict or {}),
    }
    return RunEntry(gate, "run.sqlite", Revision(commit, branch, False), facts, found, {"one": said})


def past_of(
    path: Path,
    *,
    gate: str = "gate.nsys.yaml",
    key: Mapping[str, Any] = KEY,
    sid: SeriesId = SID,
    on: Sequence[str] | None = None,
    others: Sequence[str] = (),
    **assertion: Any,
) -> AssertionHistory:
    """What a history has of an assertion of that name, or of another one."""
    require = Requirement(Comparator.LT, Constant(Fraction(1_000_000)), "< 1 ms")
    asked = {
        "name": NAME,
        "full_name": NAME,
        "sentence": NAME,
        "location": Location(Path("g"), 3, 1),
        "metric": sid.metric,
    }
    return AssertionHistory(
        path,
        gate,
        key,
        AssertionIdentity(
            Assertion(requirement=require, **{**asked, "full_name": assertion.get("name", NAME), **assertion}),
            sid,
            others,
        ),
        on,
    )


def values(runs: Sequence[Mapping[tuple[Label, ...], Value]]) -> list[Value]:
    """Of the row of an :func:`entry`."""
    return [run[0, "stage2_f"] for run in runs]


def nightly(path: Path, monkeypatch: pytest.MonkeyPatch, runs: Sequence[RunEntry]) -> Path:
    """A history with one run a night, from the first of January 2026 on, each of a commit of its own."""
    for number, run in enumerate(runs):
        monkeypatch.setattr(database, "read_clock", lambda at=FIRST + timedelta(days=number): at)
        run.revision = Revision(f"{number:x}" * 40, run.revision.branch, run.revision.dirty)
        append_session(path, [run])
    return path
