"""How does a session enter the history? All of its runs in one transaction, or none of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_nsys.core.exact import exact_value
from pytest_nsys.core.version import VERSION
from pytest_nsys.gates.verdict import Outcome
from pytest_nsys.stored.history.database import APPLICATION_ID, FORMAT, INDEXES, TABLES, is_ours, writing
from pytest_nsys.stored.history.entries import DELAYED, REFRESH, Plain, storable
from pytest_nsys.tools.revision import Revision

if TYPE_CHECKING:
    import sqlite_utils

WORST_FIRST = (
    Outcome.ERROR,
    Outcome.INCOMPARABLE,
    Outcome.NO_DATA,
    Outcome.FAILED,
    DELAYED,
    Outcome.INCONCLUSIVE,
    Outcome.IMPROVED,
    REFRESH,
    Outcome.PASSED,
)


@dataclass
class RunEntry:
    """One gate file in one session. ``facts`` is None where its traces could not be judged."""

    gate: str
    trace: str
    revision: Revision
    facts: Plain | None = None
    series: list[Plain] = field(default_factory=list)
    verdicts: dict[str, Plain] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """The worst of its verdicts."""
        found = {verdict["outcome"] for verdict in self.verdicts.values()}
        return next((str(outcome) for outcome in WORST_FIRST if outcome in found), "")


def now() -> datetime:
    """The time of a run, in UTC."""
    return datetime.now(UTC)


def append(path: Path, runs: Sequence[RunEntry]) -> None:
    """Write the runs of one session. Raises HistoryError; then nothing is written."""
    if not runs:
        return
    import sqlite_utils

    time = now().strftime("%Y-%m-%dT%H:%M:%SZ")
    with writing(path) as connection:
        database = sqlite_utils.Database(connection, execute_plugins=False)
        if not is_ours(connection, path):
            _create(database)
        for run in runs:
            _write(database, run, time)


def _create(database: sqlite_utils.Database) -> None:
    for name, columns in TABLES.items():
        keys = [("run", "runs", "id")] if "run" in columns else None
        database.create_table(name, dict(columns), pk="id", foreign_keys=keys)
    for name, indexed in INDEXES:
        database.table(name).create_index(indexed)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {FORMAT}")


def _write(database: sqlite_utils.Database, run: RunEntry, time: str) -> None:
    facts: Mapping[str, Any] = run.facts or {}
    head = {
        "time": time,
        "commit_id": run.revision.commit,
        "branch": run.revision.branch,
        "dirty": None if run.revision.dirty is None else int(run.revision.dirty),
        "gate": run.gate,
        "key": facts.get("digest"),
        "key_json": as_json(facts["key"]) if "key" in facts else None,
        "facts": as_json(facts.get("facts", {})),
        "coordinates": as_json(facts.get("coordinates", {})),
        "trace": run.trace,
        "profiler": ", ".join(facts.get("profiler", ())),
        "captures": facts.get("captures"),
        "outcome": run.outcome,
        "version": VERSION,
    }
    number = database.table("runs").insert(_storable(head)).last_pk
    database.table("rows").insert_all(_storable(row) for series in run.series for row in _rows(number, series))
    verdicts = sorted(run.verdicts.values(), key=lambda v: (v["line"], v["assertion"]))
    database.table("verdicts").insert_all(_storable({"run": number, **verdict}) for verdict in verdicts)


def _storable(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: storable(value) if isinstance(value, str) else value for name, value in record.items()}


def _rows(run: object, series: Mapping[str, Any]) -> list[dict[str, object]]:
    shared = {name: value for name, value in series.items() if name not in ("rows", "dimensions")}
    shared |= {"run": run, "dimensions": as_json(series["dimensions"])}
    return [
        {**shared, "labels": as_json(labels), "value": value, "number": float(exact_value(value))}
        for labels, value in series["rows"]
    ]


def as_json(value: object) -> str:
    """Text that is equal where the value is."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
