"""What does a baseline file hold? Rows of accepted runs, the key that makes runs comparable, and their origin.

Raw rows are stored, of every rank; aggregates are formed when a verdict is made, in the same way for the judged run and
each accepted run. A file is sorted, a row a line, without time stamps: the same rows give the same bytes, and a changed
row is a changed line in review. What is read may have been merged by hand into nonsense: every mistake is one line that
says what to do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.analysis.metrics.registry import Metric, find_metric
from pytest_nsys.analysis.metrics.table import MetricTable, make_labels_key
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.conventions import Convention, decode_convention, encode_convention
from pytest_nsys.core.errors import BaselineError, convert_os_errors
from pytest_nsys.core.exact import encode_exact, median, parse_exact
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.core.units import HASH
from pytest_nsys.gates.judgement import Reference
from pytest_nsys.gates.model import Assertion, GateFile, resolve_window_spec
from pytest_nsys.gates.noise import FEWEST_TRACES

BASELINE_FORMAT = 1

STORED_NO_WINDOW = "none"
"""Stored for window, span and kernels of what was measured outside of a trace."""

NOISE_KEY = "calibration"
"""The key of the provenance that says where the noise comes from."""

WINDOW_DIGEST_KEY = "window"
"""The key of the provenance with the SHA-256 of the stored windows of the run that was written last."""

UNORDERED_KEY = "unordered"
"""The key of a series with the streams that kept no order."""

_MIN_CALIBRATION_VALUES = FEWEST_TRACES - 1
"""The fewest values of a calibration: one of its traces may have been a hiccup, which is not stored."""

RowLabels = tuple[Label, ...]


class SeriesId(NamedTuple):
    """Identifies what was measured, and how: rows of another definition, window, span or mode are never compared."""

    metric: str
    definition: int
    window: str
    span: str
    kernels: str

    @property
    def window_fields(self) -> tuple[str, str, str]:
        """How the windows were picked: (window, span, kernels)."""
        return self.window, self.span, self.kernels


@dataclass(slots=True)
class StoredSeries:
    """Holds the rows of one measurement, each with its value in every accepted run, oldest first."""

    unit: str
    better: str | None
    dimensions: tuple[str, ...]
    rows: dict[RowLabels, list[Value]] = field(default_factory=dict)
    calibration: dict[RowLabels, list[Value]] = field(default_factory=dict)  # values in each trace of one commit
    unordered: tuple[str, ...] = ()  # streams that kept no order, where that changes what the values mean

    @property
    def rows_by_run(self) -> list[dict[RowLabels, Value]]:
        """The rows of each accepted run, oldest first."""
        return _transpose_rows(self.rows)

    def drop_runs(self, positions: Container[int]) -> StoredSeries:
        """Return the series without the accepted runs at some positions."""
        remaining_rows = {
            key: [v for k, v in enumerate(values) if k not in positions] for key, values in self.rows.items()
        }
        return replace(self, rows=remaining_rows)

    @property
    def baseline_values(self) -> dict[RowLabels, Value]:
        """The baseline value of each row: the median over its accepted runs, of fingerprints the newest."""
        if self.unit == HASH:
            return {labels: values[-1] for labels, values in self.rows.items()}
        return {labels: median(values) for labels, values in self.rows.items()}

    @property
    def calibration_by_trace(self) -> list[dict[RowLabels, Value]]:
        """The rows of each trace on which the noise was measured."""
        return _transpose_rows(self.calibration)

    @property
    def calibrated_positions(self) -> frozenset[int]:
        """The positions of the accepted runs on which the noise was measured as well."""
        calibration_rows = self.calibration_by_trace
        return frozenset(position for position, run in enumerate(self.rows_by_run) if run in calibration_rows)


def _transpose_rows(rows: Mapping[RowLabels, Sequence[Value]]) -> list[dict[RowLabels, Value]]:
    """Return the rows of each run, from the values of each row."""
    count = max((len(values) for values in rows.values()), default=0)
    return [{labels: values[k] for labels, values in rows.items()} for k in range(count)]


@dataclass(slots=True)
class Baseline:
    """Holds one baseline file.

    ``provenance`` says where its values came from; it is shown and never compared.
    """

    key: dict[str, Any]
    gate: str
    provenance: dict[str, Any] = field(default_factory=dict)
    series: dict[SeriesId, StoredSeries] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)  # conditions that are compared but do not name the file
    convention: Convention | None = None  # what the run was measured under, where it was found and not named

    def serialize(self) -> str:
        """Return the file's text: sorted, one row a line."""
        members: dict[str, Any] = {"format": BASELINE_FORMAT, "gate": self.gate, "key": self.key}
        members |= {"facts": self.facts} if self.facts else {}
        members |= {"convention": encode_convention(self.convention)} if self.convention is not None else {}
        members["provenance"] = self.provenance
        lines = [json.dumps(name) + ": " + json.dumps(value, ensure_ascii=False) for name, value in members.items()]
        blocks = [_serialize_series(sid, self.series[sid]) for sid in sorted(self.series)]
        return "{\n" + ",\n".join(lines) + ',\n"series": [\n' + ",\n".join(blocks) + "\n]\n}\n"


def _serialize_series(sid: SeriesId, series: StoredSeries) -> str:
    members = {**sid._asdict(), "unit": series.unit, "better": series.better, "dimensions": list(series.dimensions)}
    members |= {UNORDERED_KEY: list(series.unordered)} if series.unordered else {}
    sorted_rows = sorted(series.rows.items(), key=lambda item: make_labels_key(item[0]))
    rows = [_serialize_row(labels, values, series.calibration.get(labels)) for labels, values in sorted_rows]
    rows_text = ', "rows": [\n ' + ",\n ".join(rows) + "\n]"
    return json.dumps(members, ensure_ascii=False)[:-1] + rows_text + "}"


def _serialize_row(labels: RowLabels, values: Sequence[Value], calibration: Sequence[Value] | None) -> str:
    numbers = [[encode_exact(v) for v in run_values] for run_values in (values, calibration) if run_values is not None]
    return json.dumps([*labels, *numbers], ensure_ascii=False)


def load_baseline(path: Path) -> Baseline:
    """Read the baseline of a file. Raises BaselineError with what is wrong in it and what to do."""
    with convert_os_errors(BaselineError, f"{path}: cannot be read"):
        return parse_baseline(path.read_bytes(), str(path))


def parse_baseline(content: bytes, source_name: str) -> Baseline:
    """Parse a baseline from its bytes; ``source_name`` names it in the error. Raises BaselineError."""
    data: Any = None
    try:
        text = content.decode("utf-8")
        data = json.loads(
            text, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant, parse_float=_parse_finite_float
        )
        if not isinstance(data, dict):
            raise ValueError("the file is not an object")
        if data.get("format") != BASELINE_FORMAT or isinstance(data["format"], bool):  # True is 1 to Python
            raise BaselineError(
                f"{source_name}: is not a baseline: format {sanitize_line(repr(data.get('format')), 40)} is not "
                f"{BASELINE_FORMAT}: "
                "written by another version of pytest-nsys; delete the file and refresh it"
            )
        series = dict(_parse_series(entry) for entry in data["series"])
        if len(series) != len(data["series"]):
            raise ValueError("a series appears twice")
        facts = dict(data.get("facts", {}))
        convention = decode_convention(data["convention"]) if "convention" in data else None
        return Baseline(dict(data["key"]), str(data["gate"]), dict(data["provenance"]), series, facts, convention)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BaselineError(
            f"{source_name}: is not a baseline: {_describe_problem(error, data)}; restore it from git, or delete it "
            "and refresh"
        ) from error


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a value")


def _parse_finite_float(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else _refuse_constant(sanitize_line(text, 40))


def _describe_problem(error: Exception, data: Any) -> str:
    """Describe what is wrong: of a wrong shape the schema knows the place better than an exception does."""
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}: {error.msg}"
    if isinstance(error, LookupError | TypeError | AttributeError):
        import jsonschema  # only a broken file pays for this import

        schema = json.loads(Path(__file__).with_name("baseline.schema.json").read_text(encoding="utf-8"))
        mismatch = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(data))
        if mismatch is not None:
            return sanitize_line(f"{mismatch.json_path}: {mismatch.message}", 300)
    return str(error)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key appears twice, as after a merge by hand")
    return members


def _parse_series(entry: Mapping[str, Any]) -> tuple[SeriesId, StoredSeries]:
    """Parse one series. Raises ValueError for a row that does not fit, LookupError and TypeError for a wrong shape."""
    metric, definition, *window_fields = (entry[name] for name in SeriesId._fields)
    sid = SeriesId(str(metric), int(definition), *map(str, window_fields))
    dimensions = tuple(str(d) for d in entry["dimensions"])
    unordered = tuple(str(stream) for stream in entry.get(UNORDERED_KEY, ()))
    series = StoredSeries(str(entry["unit"]), entry["better"], dimensions, unordered=unordered)
    for row in entry["rows"]:
        labels, numbers = row[: len(dimensions)], row[len(dimensions) :]
        if len(numbers) not in (1, 2) or not all(isinstance(run_values, list) and run_values for run_values in numbers):
            raise ValueError(f"the row {json.dumps(row)} of {sid.metric} does not fit its dimensions")
        if not all(isinstance(label, int | str) for label in labels):
            raise ValueError(f"the row {json.dumps(row)} of {sid.metric} has a label that is neither text nor a number")
        if tuple(labels) in series.rows:
            raise ValueError(f"the row {json.dumps(labels)} of {sid.metric} appears twice")
        series.rows[tuple(labels)], *calibration = ([parse_exact(v) for v in run_values] for run_values in numbers)
        if calibration and len(calibration[0]) < _MIN_CALIBRATION_VALUES:
            count_text = format_count(len(calibration[0]), "calibration value")
            raise ValueError(
                f"the row {json.dumps(row)} of {sid.metric} has {count_text}, and {_MIN_CALIBRATION_VALUES} are the "
                "fewest"
            )
        if calibration:
            series.calibration[tuple(labels)] = calibration[0]
    for noun, rows in (("accepted runs", series.rows), ("calibration traces", series.calibration)):
        if len({len(values) for values in rows.values()}) > 1:
            raise ValueError(f"the rows of {sid.metric} hold different numbers of {noun}")
    return sid, series


def build_series_id(metric: Metric, spec: WindowSpec) -> SeriesId:
    """Build the id under which the rows of a metric are stored."""
    window_fields = (
        (STORED_NO_WINDOW,) * 3 if spec.is_outside_trace else (spec.window_label, str(spec.span), str(spec.kernels))
    )
    return SeriesId(metric.name, metric.definition, *window_fields)


def build_assertion_series_id(convention: Convention, assertion: Assertion) -> SeriesId:
    """Build the id of the series that an assertion reads, or would read, from a baseline."""
    return build_series_id(assertion.measured_metric, resolve_window_spec(convention, assertion))


def build_reference(series: StoredSeries, build_table: Callable[[Mapping[RowLabels, Value]], MetricTable]) -> Reference:
    """Build the reference of an assertion; ``build_table`` makes a metric table of stored rows, as a gate sees them."""
    runs, calibration = (
        [build_table(rows) for rows in row_sets] for row_sets in (series.rows_by_run, series.calibration_by_trace)
    )
    return Reference(runs, calibration, series.calibrated_positions)


def list_unread_series(gate: GateFile, baseline: Baseline) -> list[SeriesId]:
    """List the series that no assertion of the gate file reads any more, sorted."""
    convention = gate.convention or baseline.convention
    if convention is None:  # found in the trace, and nobody knows what
        return []
    read_series = {
        build_assertion_series_id(convention, assertion)
        for assertion in gate.assertions
        if assertion.reads_stored_baseline
    }
    return sorted(sid for sid in baseline.series if sid not in read_series)


def describe_series(sid: SeriesId) -> str:
    """Describe a series: ``exposed_ns (window median, span range, kernels contained)``."""
    metric = find_metric(sid.metric)
    is_redefined = metric is None or metric.definition != sid.definition
    if metric is not None and metric.is_outside_trace:
        return sanitize_line(sid.metric)
    definition = f"definition {sid.definition}, " if is_redefined else ""
    return sanitize_line(f"{sid.metric} ({definition}window {sid.window}, span {sid.span}, kernels {sid.kernels})")
