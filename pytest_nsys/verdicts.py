"""One assertion in, one Verdict out: what was measured, held against its limit, with what it takes to explain it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pytest_nsys.evaluation import Evidence, series_id
from pytest_nsys.gates.assertion import Assertion, Comparator, FromBaseline
from pytest_nsys.gates.baselines import Baseline, Shelf, accepted_runs, nearest
from pytest_nsys.gates.judgement import Judgement, Unlike, judge
from pytest_nsys.gates.selection import Table
from pytest_nsys.gates.verdict import Outcome, Verdict
from pytest_nsys.metrics import METRICS, Metric
from pytest_nsys.model import Label


@dataclass
class Bench:
    """What an assertion is judged with.

    ``refresh`` is the command that makes its baseline; ``shown`` spells a path as the person would.
    """

    evidence: Evidence
    stated: Mapping[str, Label]
    shelf: Shelf | None = None
    refresh: str = ""
    shown: Callable[[Path], str] = str

    @cached_property
    def _baseline(self) -> Baseline | None:
        """The stored baseline of this run, read once. Raises BaselineError."""
        return self.shelf.load(self.evidence.key(self.stated)) if self.shelf is not None else None

    def accepted(self, metric: Metric, assertion: Assertion) -> Sequence[Table] | Unlike:
        """The rows of each accepted run of the stored baseline, or why there are none. Raises BaselineError."""
        if self.shelf is None:
            return Unlike(Outcome.NO_DATA, "no baseline is at hand here")
        key = self.evidence.key(self.stated)
        baseline = self._baseline
        if baseline is None:
            return self._unlike()
        sid = series_id(metric, self.evidence.pick_of(assertion))
        series = baseline.series.get(sid)
        path = self.shown(self.shelf.path(key))
        if series is None:
            others = [other for other in baseline.series if other.metric == metric.name]
            if others:
                how = ", ".join(f"{name} {was}, now {now}" for name, was, now in _changes(others[0], sid))
                return Unlike(Outcome.INCOMPARABLE, f"{metric.name} in {path} was measured with {how}")
            return Unlike(Outcome.NO_DATA, f"{path} holds no {metric.name}")
        if series.dimensions != metric.dimensions or series.unit != str(metric.unit):
            return Unlike(Outcome.INCOMPARABLE, f"{path} holds {metric.name} of other dimensions or unit")
        return [self.evidence.stored(metric, rows) for rows in accepted_runs(series)]

    @cached_property
    def disagreements(self) -> tuple[str, ...]:
        """What the gate file states of the run while the traces say something else, which counts."""
        key = self.evidence.key(self.stated).as_json()
        known = {**(key["mesh"] or {}), **key}
        said = []
        for name, stated in self.stated.items():
            found = known.get(name)
            same = str(stated).lower() in str(found).lower() if name == "gpu" else stated == found
            if found is not None and not same:
                said.append(f"warning: the gate file states {name} {stated}, the traces say {found}, which counts")
        return tuple(said)

    def _unlike(self) -> Unlike:
        assert self.shelf is not None
        found = nearest(self.evidence.key(self.stated), self.shelf)
        if found is None:
            return Unlike(Outcome.NO_DATA, f"no baseline is stored in {self.shown(self.shelf.folder)}")
        path, stored, fields = found
        names = {"convention": (self.evidence.convention.name, stored.provenance.get("convention"))}
        how = "; ".join(
            f"{name}: now {_shown(now, named)}, baseline {_shown(was, was_named)}"
            for name, now, was in fields
            for named, was_named in [names.get(name, (None, None))]
        )
        return Unlike(Outcome.INCOMPARABLE, f"the nearest baseline {self.shown(path)} is of another run ({how})")


def _changes(was: object, now: object) -> list[tuple[str, object, object]]:
    names = ("definition", "window", "span", "kernels")
    return [(n, getattr(was, n), getattr(now, n)) for n in names if getattr(was, n) != getattr(now, n)]


def _shown(value: object, name: object = None) -> str:
    if name is not None:
        return f"{name} ({value})"
    if isinstance(value, Mapping):
        return " ".join(f"{k}={v}" for k, v in value.items())
    return "not stated" if value is None else str(value)


def evaluate(assertion: Assertion, bench: Bench) -> Verdict:
    """The verdict. Raises TraceError where the trace cannot be judged, BaselineError for a broken baseline."""
    metric = METRICS[assertion.metric]
    pick = bench.evidence.pick_of(assertion)
    measured = bench.evidence.rows(metric, pick)
    accepted = bench.accepted(metric, assertion) if assertion.needs_baseline else None
    table = measured.table(bench.evidence.mesh)
    judgement = judge(assertion, judged_unit(assertion, metric), table, measured.missing, accepted)
    notes = bench.evidence.notes(pick, metric)
    return Verdict(
        assertion=assertion,
        outcome=judgement.outcome,
        message=_message(assertion, judgement),
        unit=judged_unit(assertion, metric),
        rows=judgement.rows,
        windows=bench.evidence.windows(pick),
        measured_as=str(pick),
        warnings=(*_warnings(assertion, judgement), *judgement.warnings),
        notes=(*(("warning: " if note.warning else "") + note.text for note in notes), *bench.disagreements),
        next_step=bench.refresh if assertion.needs_baseline else "",
    )


def judged_unit(assertion: Assertion, metric: Metric) -> str:
    """The unit of what is held against the limit: a balance is a bare ratio, whatever it balances."""
    return "1" if assertion.balance_across is not None else str(metric.unit)


_SIDE: Mapping[Comparator | None, str] = {
    Comparator.LT: "not below",
    Comparator.LE: "above",
    Comparator.GT: "not above",
    Comparator.GE: "below",
}


def _message(assertion: Assertion, judgement: Judgement) -> str:
    """The one line that says what was decided."""
    rows = judgement.rows
    match judgement.outcome:
        case Outcome.FAILED:
            failed = sum(row.outcome is Outcome.FAILED for row in rows)
            side = _SIDE.get(assertion.require.comparator, "off")
            return f"{failed} of {len(rows)} rows {side} their limit" if len(rows) > 1 else f"{side} its limit"
        case Outcome.NO_DATA | Outcome.INCOMPARABLE:
            return judgement.reason
        case Outcome.IMPROVED:
            better = sum(row.outcome is Outcome.IMPROVED for row in rows)
            return f"{better} of {len(rows)} rows are better than the baseline by more than the tolerance"
    if judgement.reason:
        return f"nothing was judged: {judgement.reason}"
    return f"all {len(rows)} rows hold" if len(rows) != 1 else "holds"


def _warnings(assertion: Assertion, judgement: Judgement) -> list[str]:
    said = []
    if judgement.outcome is Outcome.IMPROVED:
        said.append(f"the baseline is stale: {_message(assertion, judgement)}; refresh it")
    early = [row for row in judgement.rows if row.early_warning]
    if early and assertion.warn is not None:
        said.append(f"{len(early)} of {len(judgement.rows)} rows do not reach the early warning {assertion.warn.text}")
    return said


def rows_now(assertion: Assertion, bench: Bench) -> Judgement:
    """What the assertion would judge, without its baseline: its rows, or why there are none."""
    metric = METRICS[assertion.metric]
    measured = bench.evidence.rows(metric, bench.evidence.pick_of(assertion))
    table = measured.table(bench.evidence.mesh)
    nothing = Unlike(Outcome.PASSED, "")
    accepted = nothing if isinstance(assertion.require.limit, FromBaseline) else None
    return judge(assertion, judged_unit(assertion, metric), table, measured.missing, accepted)
