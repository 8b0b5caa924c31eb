"""How is the history database opened and written, and what does it store of a session?

It is opened so that no work is lost: all runs of a session enter it in one transaction, or none of them. The entry of
an assertion is plain data that survives the way from an xdist worker: no Fraction, no enum. Gates read the database on
their path, so reading needs the standard library's sqlite3 alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pytest_nsys.core.errors import HistoryError
from pytest_nsys.core.exact import encode_exact_text, parse_exact
from pytest_nsys.core.model import Label
from pytest_nsys.core.text_format import format_labels_in_full, sanitize_line
from pytest_nsys.core.version import VERSION
from pytest_nsys.gates.model import Assertion, JudgedRow, Outcome, resolve_window_spec
from pytest_nsys.stored.baselines.baseline_file import SeriesId, build_series_id
from pytest_nsys.tools.git import Revision

if TYPE_CHECKING:
    import sqlite_utils

    from pytest_nsys.analysis.captures.captures import Captures


APPLICATION_ID = 0x4E535953
"""The SQLite application id (``NSYS``) that distinguishes a history from any other database."""

HISTORY_FORMAT = 1
"""The version of the tables, stored as SQLite's ``user_version``. A file of another format is refused."""

RESTORE_HINT = "restore it, or give another file"

BUSY_S = 30
"""How long in seconds a database that somebody else is writing is waited for."""

_COLUMN_TYPES: Mapping[str, type] = {"": str, "int": int, "float": float}
# ``commit`` and ``limit`` are words of SQL, which nobody should have to quote: hence commit_id and limit_value.
_COLUMNS = {
    "runs": "id:int! time! commit_id branch dirty:int gate! key key_json facts coordinates trace profiler captures:int "
    "outcome! version",
    "rows": "id:int! run:int! metric! definition:int! window! span! kernels! unit! better dimensions! labels! value! "
    "number:float",
    "verdicts": "id:int! run:int! assertion! line:int outcome! xfailed:int severity message unit value limit_value "
    "margin row measured selected",
}
"""The columns of each table as ``name:type``, text where no type is given; ``!`` is never NULL."""


def _parse_column(text: str) -> tuple[str, type]:
    """Parse a column's ``name:type`` into its name and Python type."""
    name, _, kind = text.removesuffix("!").partition(":")
    return name, _COLUMN_TYPES[kind]


TABLES: Mapping[str, Mapping[str, type]] = {t: dict(map(_parse_column, c.split())) for t, c in _COLUMNS.items()}
NEVER_NULL: Mapping[str, frozenset[str]] = {
    table: frozenset(_parse_column(text)[0] for text in columns.split() if text.endswith("!"))
    for table, columns in _COLUMNS.items()
}

INDEXES = (
    ("runs", ("gate", "key", "branch")),
    ("runs", ("time",)),
    ("rows", ("run", "metric")),
    ("rows", ("metric",)),
    ("verdicts", ("run",)),
    ("verdicts", ("assertion",)),
)


def is_history(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file holds a history; False where it is empty and may become one.

    Raises HistoryError where it is another database, of another format, or damaged.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if application == 0 and version == 0 and not names:
        return False
    if application != APPLICATION_ID:
        raise HistoryError(f"{path}: is a database of another program, not a history: give another file")
    if version != HISTORY_FORMAT:
        raise HistoryError(
            f"{path}: is of format {version}, not {HISTORY_FORMAT}: another pytest-nsys wrote it; give another file"
        )
    if missing := sorted(set(TABLES) - names):
        raise HistoryError(f"{path}: is damaged: it has no table {missing[0]}; {RESTORE_HINT}")
    # Rows without a run would belong to the next run that is written, which gets its number.
    for table in ("rows", "verdicts"):
        orphan_query = f"SELECT run FROM {table} WHERE run > (SELECT coalesce(max(id), 0) FROM runs)"
        for (run,) in connection.execute(f"{orphan_query} LIMIT 1"):
            orphan_text = f"{table} of run {sanitize_line(str(run), 20)} without the run"
            raise HistoryError(f"{path}: is damaged: it has {orphan_text}; {RESTORE_HINT}")
    return True


def check_writable(path: Path) -> None:
    """Raise HistoryError where the file is no history, or cannot be written, before anything is measured in vain."""
    with _translate_errors(path):
        if not path.parent.is_dir():
            raise HistoryError(f"{path}: there is no folder {path.parent}: make it first")
        if not path.exists():
            if not os.access(path.parent, os.W_OK | os.X_OK):
                raise HistoryError(f"{path}: cannot be written: no permission for {path.parent}")
            return
        with open_for_writing(path):
            pass


@contextlib.contextmanager
def open_for_writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database for one exclusive transaction, which is undone whole where anything goes wrong. Raises
    HistoryError.
    """
    with _translate_errors(path):
        _check_plain_file(path)
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        with contextlib.closing(connection):
            connection.execute("BEGIN IMMEDIATE")
            try:
                is_history(connection, path)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk has SQLite undo it by itself
                    connection.execute("ROLLBACK")
                raise


@contextlib.contextmanager
def open_for_reading(path: Path) -> Iterator[sqlite3.Connection | None]:
    """Open the history read-only, as it is at one moment; None where the file is empty. Raises HistoryError."""
    with _translate_errors(path):
        if not path.exists():
            raise HistoryError(f"no history at {path}: record one with pytest --nsys-history={path}")
        _check_plain_file(path)
        uri = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            yield connection if is_history(connection, path) else None


def _check_plain_file(path: Path) -> None:
    """Raise HistoryError where the path is no plain file."""
    if path.is_dir():
        raise HistoryError(f"{path}: is a folder: give the file of the history")
    if path.exists() and not path.is_file():
        raise HistoryError(f"{path}: is not a plain file: give the file of the history")


@contextlib.contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Raise the errors of SQLite, and a ValueError about stored data, as a HistoryError that says what to do."""
    try:
        yield
    except (sqlite3.Error, UnicodeError, OverflowError) as error:  # a schema that is not UTF-8 cannot even be named
        error_text = str(error)
        if "locked" in error_text:
            problem = f"another program is writing it, and did not end within {BUSY_S} s: try again"
        elif "not a database" in error_text or "malformed" in error_text or not isinstance(error, sqlite3.Error):
            problem = f"is not a SQLite database, or is damaged ({error_text}): {RESTORE_HINT}"
        elif "no such table" in error_text or "no column" in error_text or "no such column" in error_text:
            problem = f"is damaged: {error_text}; {RESTORE_HINT}"
        elif "unable to open" in error_text:
            problem = "cannot be opened: look at its permissions and those of its folder"
        else:
            problem = f"cannot be read or written: {error_text}"
        raise HistoryError(f"{path}: {sanitize_line(problem)}") from error
    except ValueError as error:
        raise HistoryError(f"{path}: is damaged: {sanitize_line(str(error))}; {RESTORE_HINT}") from error
    except OSError as error:
        raise HistoryError(f"{path}: cannot be read or written: {error.strerror}") from error


# What is written

REFRESH = "refresh"
"""Replaces the outcome of an assertion that was written as the new baseline instead of being judged."""

DELAYED = "delayed"
"""Replaces the outcome of a bad run that ``fail_after`` left *inconclusive*: the next run counts it."""

MAX_CLOCK_SKEW = timedelta(minutes=5)
"""How far the clocks of two machines may differ without a note."""

PlainData = dict[str, Any]

WORST_FIRST = (
    *(Outcome.ERROR, Outcome.INCOMPARABLE, Outcome.NO_DATA, Outcome.FAILED, Outcome.ACCEPTED, DELAYED),
    *(Outcome.INCONCLUSIVE, Outcome.IMPROVED, REFRESH, Outcome.PASSED),
)


@dataclass
class RunEntry:
    """Holds what the history stores about one gate file in one session."""

    gate: str
    trace: str
    revision: Revision
    facts: PlainData | None = None  # None where its traces could not be judged
    series: list[PlainData] = field(default_factory=list)
    verdicts: dict[str, PlainData] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """The worst outcome of its verdicts."""
        outcomes = {verdict["outcome"] for verdict in self.verdicts.values()}
        return next((str(outcome) for outcome in WORST_FIRST if outcome in outcomes), "")


def read_clock() -> datetime:
    """Return the current time, in UTC."""
    return datetime.now(UTC)


def append_session(path: Path, runs: Sequence[RunEntry]) -> str | None:
    """Write the runs of one session; return the time of an earlier run that lies in the future, None where there is
    none.

    Raises HistoryError; then nothing is written, and where there was no file there is none.
    """
    if not runs or _create_history(path, runs):
        return None
    return _insert_runs(path, runs)


def _create_history(path: Path, runs: Sequence[RunEntry]) -> bool:
    """Create a history of these runs where there is no file; return False where there is one.

    It is written beside that place and linked into it, because SQLite leaves an empty file where the disk is full.
    """
    if os.path.lexists(path):
        return False
    with _translate_errors(path), tempfile.TemporaryDirectory(prefix=f".{path.name[:100]}.", dir=path.parent) as folder:
        draft = Path(folder, "history.db")
        try:
            _insert_runs(draft, runs)
        except HistoryError as error:  # which names a file that nobody knows
            raise HistoryError(str(error).replace(str(draft), str(path))) from error
        try:
            os.link(draft, path)
        except FileExistsError:  # somebody else began one meanwhile, and has written into it
            return False
        except OSError:  # a file system without links
            draft.replace(path)
    return True


def _insert_runs(path: Path, runs: Sequence[RunEntry]) -> str | None:
    import sqlite_utils

    time, latest_plausible = (
        moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in (read_clock(), read_clock() + MAX_CLOCK_SKEW)
    )
    with open_for_writing(path) as connection:
        database = sqlite_utils.Database(connection, execute_plugins=False)
        if not is_history(connection, path):
            _create(database)
        (latest,) = connection.execute("SELECT max(time) FROM runs").fetchone()
        for run in runs:
            _insert_run(database, run, time)
        return str(latest) if latest is not None and str(latest) > latest_plausible else None


def _create(database: sqlite_utils.Database) -> None:
    for name, columns in TABLES.items():
        keys = [("run", "runs", "id")] if "run" in columns else None
        database.create_table(name, dict(columns), pk="id", foreign_keys=keys)
    for name, index_columns in INDEXES:
        database.table(name).create_index(index_columns)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {HISTORY_FORMAT}")


def _insert_run(database: sqlite_utils.Database, run: RunEntry, time: str) -> None:
    facts: Mapping[str, Any] = run.facts or {}
    run_record = {
        "time": time,
        "commit_id": run.revision.commit,
        "branch": run.revision.branch,
        "dirty": None if run.revision.dirty is None else int(run.revision.dirty),
        "gate": run.gate,
        "key": facts.get("digest"),
        "key_json": format_sorted_json(facts["key"]) if "key" in facts else None,
        "facts": format_sorted_json(facts.get("facts", {})),
        "coordinates": format_sorted_json(facts.get("coordinates", {})),
        "trace": run.trace,
        "profiler": ", ".join(facts.get("profiler", ())),
        "captures": facts.get("captures"),
        "outcome": run.outcome,
        "version": VERSION,
    }
    run_id = database.table("runs").insert(_make_record_storable(run_record)).last_pk
    database.table("rows").insert_all(
        _make_record_storable(row) for series in run.series for row in _list_row_records(run_id, series)
    )
    verdicts = sorted(run.verdicts.values(), key=lambda v: (v["line"], v["assertion"]))
    database.table("verdicts").insert_all(_make_record_storable({"run": run_id, **verdict}) for verdict in verdicts)


def _make_record_storable(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: make_storable(value) if isinstance(value, str) else value for name, value in record.items()}


def _list_row_records(run: object, series: Mapping[str, Any]) -> list[dict[str, object]]:
    series_columns = {name: value for name, value in series.items() if name not in ("rows", "dimensions")}
    series_columns |= {"run": run, "dimensions": format_sorted_json(series["dimensions"])}
    return [
        {**series_columns, "labels": format_sorted_json(labels), "value": value, "number": float(parse_exact(value))}
        for labels, value in series["rows"]
    ]


def format_sorted_json(value: object) -> str:
    """Format a value as JSON text that is equal where the value is."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def make_storable(text: str) -> str:
    """Return ``text`` as UTF-8 can hold it: a file name need not be text at all."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def collect_run_facts(captures: Captures, stated_facts: Mapping[str, Label]) -> PlainData:
    """Collect what the traces say about the run, and the gate file where they do not. Raises TraceError."""
    key = captures.build_key(stated_facts)
    return {
        "key": key.as_json(),
        "digest": key.digest,
        "facts": {name: None if values is None else list(values) for name, values in captures.facts.items()},
        "coordinates": {
            str(rank): dict(coordinates) for rank, coordinates in sorted(captures.mesh.coordinates.items())
        },
        "profiler": list(captures.list_profilers()),
        "captures": len(captures.runs),
    }


def find_series_id(assertion: Assertion, captures: Captures) -> SeriesId:
    """Return the id of the series that an assertion measures in a run. Raises TraceError."""
    return build_series_id(
        captures.resolve_metric(assertion.metric), resolve_window_spec(captures.convention, assertion)
    )


def collect_series_facts(assertion: Assertion, captures: Captures) -> PlainData:
    """Collect the rows of every rank that an assertion reads. Raises TraceError."""
    metric = captures.resolve_metric(assertion.metric)
    spec = resolve_window_spec(captures.convention, assertion)
    return {
        **find_series_id(assertion, captures)._asdict(),
        "unit": str(metric.unit),
        "better": str(metric.better) if metric.better else None,
        "dimensions": list(metric.dimensions),
        "rows": [[list(row.labels), encode_exact_text(row.value)] for row in captures.measure_rows(metric, spec).rows],
    }


def format_measurement(sid: SeriesId) -> str:
    """Format what an assertion measures, as its verdicts store it."""
    return format_sorted_json(list(sid))


def format_selection(assertion: Assertion) -> str:
    """Format which rows an assertion judges, and how it aggregates them, as its verdicts store it."""
    selected_labels = {dimension: list(selector.values) for dimension, selector in assertion.where.items()}
    return format_sorted_json(
        [selected_labels, [list(step) for step in assertion.aggregates], assertion.balance_across]
    )


def collect_verdict_facts(
    assertion: Assertion, outcome: str, message: str, unit: str, row: JudgedRow | None, sid: SeriesId | None
) -> PlainData:
    """Collect what a verdict decided, as plain data.

    ``row`` is the one that a summary would name. ``sid`` is None where nobody knows what was to be measured.
    """
    labels = row.labels if row is not None else {}
    return {
        "assertion": assertion.name,
        "line": assertion.location.line,
        "outcome": str(outcome),
        "severity": str(assertion.severity.failed),
        "message": sanitize_line(message, 2000),
        "unit": unit,
        "value": encode_exact_text(row.value) if row is not None else None,
        "limit_value": encode_exact_text(row.limit) if row is not None else None,
        "margin": encode_exact_text(row.margin) if row is not None else None,
        "row": format_labels_in_full(labels),
        "measured": None if sid is None else format_measurement(sid),
        "selected": None if sid is None else format_selection(assertion),
    }
