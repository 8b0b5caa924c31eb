"""A run becomes the new normal: which rows does a refresh write, and when does it refuse?

It writes rows that moved beyond their tolerance, rows that are new, and drops those that are gone; a row within its
tolerance keeps its value, so that noise does not churn the file. It refuses, for a whole gate file, on any assertion
without data and on a structural assertion (a count held against a constant) that fails. One write per file, at the end.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.analysis.statistics import distance
from pytest_nsys.errors import BaselineError, NothingMeasured, NsysError
from pytest_nsys.evaluation import series_id
from pytest_nsys.gates.assertion import Assertion, FromBaseline, GateFile
from pytest_nsys.gates.baselines import Baseline, Key, RowLabels, Series, SeriesId
from pytest_nsys.gates.judgement import judge
from pytest_nsys.gates.selection import label_key
from pytest_nsys.gates.units import format_value
from pytest_nsys.gates.verdict import Outcome
from pytest_nsys.metrics import METRICS, Metric, Unit
from pytest_nsys.model import Value
from pytest_nsys.verdicts import Bench, judged_unit, rows_now


@dataclass(frozen=True, slots=True)
class Change:
    """One row of a baseline that a refresh changes: ``old`` None where it is new, ``new`` None where it is gone."""

    series: SeriesId
    unit: str
    labels: Mapping[str, object]
    old: Value | None
    new: Value | None

    def __str__(self) -> str:
        where = " ".join(f"{d} {label}" for d, label in self.labels.items())
        old = "new" if self.old is None else format_value(self.old, self.unit)
        new = "gone" if self.new is None else format_value(self.new, self.unit)
        return f"{self.series.metric} {where}: {old} → {new}"


class Refusal(NamedTuple):
    """Why a gate file is not refreshed, and the outcome that stands in the way."""

    reason: str
    outcome: Outcome


@dataclass
class Refresh:
    """The refresh of one gate file's baseline. ``wanted`` collects the assertions whose rows it writes."""

    gate: GateFile
    bench: Bench
    reason: str
    wanted: list[Assertion] = field(default_factory=list)

    @cached_property
    def refusal(self) -> Refusal | None:
        """Why nothing of this gate file is refreshed; None where nothing speaks against it.

        All assertions of the file are looked at, deselected ones too. Raises TraceError, BaselineError.
        """
        for assertion in self.gate.assertions:
            try:
                judgement = rows_now(assertion, self.bench)
            except NsysError as error:
                outcome = Outcome.NO_DATA if isinstance(error, NothingMeasured) else Outcome.ERROR
                return Refusal(f"'{assertion.name}' is in error: {error}", outcome)
            if judgement.outcome is Outcome.NO_DATA:
                return Refusal(f"'{assertion.name}' has no data: {judgement.reason}", Outcome.NO_DATA)
            structural = METRICS[assertion.metric].unit is Unit.COUNT and not assertion.needs_baseline
            if structural and judgement.outcome is Outcome.FAILED:
                return Refusal(f"the structural assertion '{assertion.name}' fails", Outcome.FAILED)
        return None

    @cached_property
    def _key(self) -> Key:
        return self.bench.evidence.key(self.bench.stated)

    @property
    def path(self) -> Path:
        """The file that is written."""
        assert self.bench.shelf is not None
        return self.bench.shelf.path(self._key)

    def write(self) -> list[Change]:
        """Write what was wanted, and return what changed. Raises BaselineError; then nothing is written."""
        shelf = self.bench.shelf
        if shelf is None:
            raise BaselineError("there is no baseline folder to write to")
        old = shelf.load(self._key)
        new = Baseline(
            self._key.as_json(), shelf.gate, dict(old.provenance) if old else {}, dict(old.series) if old else {}
        )
        changes: list[Change] = []
        for sid, assertions in self._by_series().items():
            changes += self._renew(new, sid, assertions)
        changes += self._prune(new)
        if changes or old is None:
            new.provenance = self._provenance()
            shelf.save(self._key, new)
        return changes

    def _by_series(self) -> dict[SeriesId, list[Assertion]]:
        found: dict[SeriesId, list[Assertion]] = {}
        for assertion in self.wanted:
            found.setdefault(self._sid(assertion), []).append(assertion)
        return found

    def _sid(self, assertion: Assertion) -> SeriesId:
        return series_id(METRICS[assertion.metric], self.bench.evidence.pick_of(assertion))

    def _renew(self, baseline: Baseline, sid: SeriesId, assertions: Sequence[Assertion]) -> list[Change]:
        metric = METRICS[sid.metric]
        measured = self.bench.evidence.rows(metric, self.bench.evidence.pick_of(assertions[0]))
        now = {row.labels: row.value for row in measured.rows}
        old = baseline.series.get(sid)
        kept: dict[RowLabels, Value] = {}
        if old is not None and old.dimensions == metric.dimensions:
            kept = {labels: values[-1] for labels, values in old.rows.items()}
        merged = {
            labels: kept[labels] if labels in kept and not _moved(kept[labels], v, metric, assertions) else v
            for labels, v in now.items()
        }
        if not all(self._passes(a, merged) for a in assertions):
            merged = now  # an aggregate may leave its tolerance while no row of it does
        untouched = old is not None and merged == kept and list(merged) == list(now)
        if not untouched:
            better = str(metric.better) if metric.better else None
            rows = {labels: [value] for labels, value in merged.items()}
            if old is not None:
                rows = {n: old.rows[n] if kept.get(n) == v[0] and n in old.rows else v for n, v in rows.items()}
                if len({len(v) for v in rows.values()}) > 1:  # every row has a value of every accepted run
                    rows = {labels: [value] for labels, value in merged.items()}
            baseline.series[sid] = Series(str(metric.unit), better, metric.dimensions, rows)
        return list(_changes(sid, metric, kept, merged))

    def _passes(self, assertion: Assertion, rows: Mapping[RowLabels, Value]) -> bool:
        metric = METRICS[assertion.metric]
        evidence = self.bench.evidence
        measured = evidence.rows(metric, evidence.pick_of(assertion))
        stored = evidence.stored(metric, rows)
        verdict = judge(
            assertion, judged_unit(assertion, metric), measured.table(evidence.mesh), measured.missing, [stored]
        )
        return verdict.outcome is Outcome.PASSED

    def _prune(self, baseline: Baseline) -> list[Change]:
        """Series that no assertion of the gate file reads any more."""
        used = {self._sid(a) for a in self.gate.assertions if a.needs_baseline}
        gone: list[Change] = []
        for sid in [sid for sid in baseline.series if sid not in used]:
            series = baseline.series.pop(sid)
            for labels, values in series.rows.items():
                named = dict(zip(series.dimensions, labels, strict=True))
                gone.append(Change(sid, series.unit, named, values[-1], None))
        return gone

    def _provenance(self) -> dict[str, object]:
        evidence = self.bench.evidence
        return {
            "reason": self.reason,
            "commit": _commit(self.gate.path.parent),
            "convention": evidence.convention.name,
            "profiler": list(evidence.profilers()),
            "captures": len(evidence.captures),
        }


def _moved(old: Value, new: Value, metric: Metric, assertions: Sequence[Assertion]) -> bool:
    """Whether a row moved beyond the tolerance of an assertion that reads it."""
    for assertion in assertions:
        limit = assertion.require.limit
        tolerance = limit.tolerance if isinstance(limit, FromBaseline) else None
        allowed = tolerance.amount(old, str(metric.unit)) if tolerance is not None else Fraction(0)
        if distance(old, new) > allowed:
            return True
    return False


def _changes(
    sid: SeriesId, metric: Metric, old: Mapping[RowLabels, Value], new: Mapping[RowLabels, Value]
) -> Iterator[Change]:
    for labels in sorted({*old, *new}, key=lambda row: [label_key(label) for label in row]):
        if old.get(labels) != new.get(labels):
            named = dict(zip(metric.dimensions, labels, strict=True))
            yield Change(sid, str(metric.unit), named, old.get(labels), new.get(labels))


def _commit(folder: Path) -> str | None:
    """The commit that is checked out around ``folder``, None where there is no git or no repository."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
