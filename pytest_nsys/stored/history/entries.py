"""What is kept of one judged assertion? Plain data that survives the way from an xdist worker: no Fraction, no enum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.core.exact import exact_text
from pytest_nsys.core.model import Label, label_words, printable
from pytest_nsys.gates.assertion import Assertion
from pytest_nsys.gates.requests import spec_for
from pytest_nsys.gates.verdict import JudgedRow
from pytest_nsys.stored.baselines.series import series_id

REFRESH = "refresh"
"""Stands where an outcome does, for an assertion that was to be written as the new baseline instead of judged."""

DELAYED = "delayed"
"""Stands where an outcome does, for a bad run that ``fail_after`` left *inconclusive*: the next one counts it."""

Plain = dict[str, Any]


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


def series_facts(assertion: Assertion, captures: Captures) -> Plain:
    """The rows that an assertion reads, of every rank. Raises TraceError."""
    metric = METRICS[assertion.metric]
    spec = spec_for(captures.convention, assertion)
    return {
        **series_id(metric, spec)._asdict(),
        "unit": str(metric.unit),
        "better": str(metric.better) if metric.better else None,
        "dimensions": list(metric.dimensions),
        "rows": [[list(row.labels), exact_text(row.value)] for row in captures.rows(metric, spec).rows],
    }


def verdict_facts(assertion: Assertion, outcome: str, message: str, unit: str, row: JudgedRow | None) -> Plain:
    """What was decided; ``row`` is the one that a summary would name."""
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
    }
