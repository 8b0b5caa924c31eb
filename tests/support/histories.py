"""What do the tests of the history share? Runs of a few rows, as the items of a session would have told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.core.model import Label
from pytest_nsys.stored.baselines.baseline_file import SeriesId
from pytest_nsys.stored.history import writing
from pytest_nsys.stored.history.writing import RunEntry, append
from pytest_nsys.tools.revision import Revision
from tests.support.gates import GPU

KEY = {"convention": "abc", "gpu": GPU, "mesh": None, "micro_batch": None, "sequence_length": None, "world": 2}
DIGEST = "0123456789ab"
FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)
SID = SeriesId("exposed_ns", 1, "median", "range", "contained")
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
    **more: Any,
) -> RunEntry:
    """A run of one row, or of ``every`` measurement."""
    found = [dict(each) for each in every or [series({(0, "stage2_f"): value}, **more)]]
    facts = {"key": dict(key or KEY), "digest": digest, "coordinates": {"0": {"pp": 0}, "1": {"pp": 1}}}
    verdict = {
        "assertion": "exposed_ns < 1 ms",
        "line": 3,
        "outcome": outcome,
        "xfailed": xfailed,
        "severity": severity,
    }
    return RunEntry(gate, "run.sqlite", Revision(commit, branch, False), facts, found, {"one": verdict})


def nightly(path: Path, monkeypatch: pytest.MonkeyPatch, runs: Sequence[RunEntry]) -> Path:
    """A history with one run a night, from the first of January 2026 on, each of a commit of its own."""
    for number, run in enumerate(runs):
        monkeypatch.setattr(writing, "now", lambda at=FIRST + timedelta(days=number): at)
        run.revision = Revision(f"{number:x}" * 40, run.revision.branch, run.revision.dirty)
        append(path, [run])
    return path
