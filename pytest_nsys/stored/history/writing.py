"""What is kept of a session, and how does it enter the history? All of its runs in one transaction, or none of them.

What is kept of one assertion is plain data that survives the way from an xdist worker: no Fraction, no enum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.core.exact import exact_text, exact_value
from pytest_nsys.core.model import Label
from pytest_nsys.core.version import VERSION
from pytest_nsys.core.words import label_words, printable
from pytest_nsys.gates.model import Assertion, JudgedRow, Outcome, spec_for
from pytest_nsys.stored.baselines.baseline_file import SeriesId, series_id
from pytest_nsys.stored.history.database import APPLICATION_ID, FORMAT, INDEXES, TABLES, is_ours, upgrade, writing
from pytest_nsys.tools.git import Revision

if TYPE_CHECKING:
    import sqlite_utils


REFRESH = "refresh"
"""Stands where an outcome does, for an assertion that was to be written as the new baseline instead of judged."""

DELAYED = "delayed"
"""Stands where an outcome does, for a bad run that ``fail_after`` left *inconclusive*: the next one counts it."""

SKEW = timedelta(minutes=5)
"""By how much the clocks of two machines may differ before it is told."""

Plain = dict[str, Any]

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


def append(path: Path, runs: Sequence[RunEntry]) -> str | None:
    """Write the runs of one session; the time of an earlier run that is yet to come, None where there is none.

    Raises HistoryError; then nothing is written.
    """
    if not runs:
        return None
    import sqlite_utils

    time, soon = (at.strftime("%Y-%m-%dT%H:%M:%SZ") for at in (now(), now() + SKEW))
    with writing(path) as connection:
        database = sqlite_utils.Database(connection, execute_plugins=False)
        if is_ours(connection, path):
            upgrade(connection)
        else:
            _create(database)
        (latest,) = connection.execute("SELECT max(time) FROM runs").fetchone()
        for run in runs:
            _write(database, run, time)
        return str(latest) if latest is not None and str(latest) > soon else None


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


def storable(text: str) -> str:
    """``text`` as UTF-8 can hold it: a file name need not be text at all."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def run_facts(captures: Captures, stated: Mapping[str, Label]) -> Plain:
    """What the traces say of the run, and the gate file where they do not. Raises TraceError."""
    key = captures.key(stated)
    return {
        "key": key.as_json(),
        "digest": key.digest,
        "facts": {name: None if found is None else list(found) for name, found in captures.facts.items()},
        "coordinates": {str(rank): dict(where) for rank, where in sorted(captures.mesh.coordinates.items())},
        "profiler": list(captures.profilers()),
        "captures": len(captures.runs),
    }


def sid_of(assertion: Assertion, captures: Captures) -> SeriesId:
    """What an assertion measures of a run. Raises TraceError."""
    return series_id(captures.metric(assertion.metric), spec_for(captures.convention, assertion))


def series_facts(assertion: Assertion, captures: Captures) -> Plain:
    """The rows that an assertion reads, of every rank. Raises TraceError."""
    metric = captures.metric(assertion.metric)
    spec = spec_for(captures.convention, assertion)
    return {
        **sid_of(assertion, captures)._asdict(),
        "unit": str(metric.unit),
        "better": str(metric.better) if metric.better else None,
        "dimensions": list(metric.dimensions),
        "rows": [[list(row.labels), exact_text(row.value)] for row in captures.rows(metric, spec).rows],
    }


def measured_text(sid: SeriesId) -> str:
    """What an assertion measures, as its verdicts say it."""
    return as_json(list(sid))


def selected_text(assertion: Assertion) -> str:
    """Which rows of it an assertion judges, and what it makes of them."""
    where = {dimension: list(selector.values) for dimension, selector in assertion.where.items()}
    return as_json([where, [list(step) for step in assertion.aggregates], assertion.balance_across])


def verdict_facts(
    assertion: Assertion, outcome: str, message: str, unit: str, row: JudgedRow | None, sid: SeriesId | None
) -> Plain:
    """What was decided; ``row`` is the one that a summary would name. ``sid`` is None where nobody knows what was to be
    measured.
    """
    labels = row.labels if row is not None else {}
    return {
        "assertion": assertion.name,
        "line": assertion.location.line,
        "outcome": str(outcome),
        "severity": str(assertion.severity),
        "message": printable(message, 2000),
        "unit": unit,
        "value": exact_text(row.value) if row is not None else None,
        "limit_value": exact_text(row.limit) if row is not None else None,
        "margin": exact_text(row.margin) if row is not None else None,
        "row": label_words(labels),
        "measured": None if sid is None else measured_text(sid),
        "selected": None if sid is None else selected_text(assertion),
    }
