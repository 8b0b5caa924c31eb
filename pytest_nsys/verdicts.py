"""One assertion in, one Verdict out: what was measured, held against its limit, with what it takes to explain it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pytest_nsys.evaluation import Evidence
from pytest_nsys.gates.assertion import Assertion, Comparator, FromBaseline, GateFile
from pytest_nsys.gates.judgement import Judgement, Reference, Unlike, judge
from pytest_nsys.gates.shelf import Shelf
from pytest_nsys.gates.verdict import Outcome, Verdict
from pytest_nsys.metrics import METRICS, Metric
from pytest_nsys.model import Label
from pytest_nsys.references import ReferenceSource, StoredBaseline


@dataclass
class Bench:
    """What the assertions of a gate file are judged with.

    ``baseline`` is what an assertion with a baseline is compared with, ``history`` where its limit names the history.
    ``refresh`` is the command that makes its baseline; ``notes`` are told with every verdict.
    """

    evidence: Evidence
    gate: GateFile
    baseline: ReferenceSource | None = None
    history: ReferenceSource | None = None
    refresh: str = ""
    notes: tuple[str, ...] = ()

    @property
    def stated(self) -> Mapping[str, Label]:
        """What the gate file says of the run where the trace does not."""
        return self.gate.run

    @property
    def shelf(self) -> Shelf | None:
        """Where the stored baseline lies, None where another trace stands for it."""
        return self.baseline.shelf if isinstance(self.baseline, StoredBaseline) else None

    def reference(self, assertion: Assertion) -> Reference | Unlike | None:
        """What the assertion is compared with; None where it needs nothing. Raises BaselineError, TraceError."""
        limit = assertion.require.limit
        if not isinstance(limit, FromBaseline):
            if isinstance(self.baseline, StoredBaseline):
                self.baseline.refuse_dropped()
            return None
        source = self.baseline if limit.history is None else self.history
        if source is None:
            what = "no baseline is" if limit.history is None else "no history is"
            return Unlike(Outcome.NO_DATA, f"{what} at hand here")
        return source.reference(METRICS[assertion.metric], assertion)

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


def evaluate(assertion: Assertion, bench: Bench) -> Verdict:
    """The verdict. Raises TraceError where the trace cannot be judged, BaselineError for a broken baseline."""
    metric = METRICS[assertion.metric]
    pick = bench.evidence.pick_of(assertion)
    measured = bench.evidence.rows(metric, pick)
    bench.evidence.check(bench.gate.quality, pick, metric)
    reference = bench.reference(assertion)
    table = measured.table(bench.evidence.mesh)
    judgement = judge(assertion, judged_unit(assertion, metric), table, measured.missing, reference)
    notes = bench.evidence.notes(pick, metric)
    return Verdict(
        assertion=assertion,
        outcome=judgement.outcome,
        message=_message(assertion, judgement),
        unit=judged_unit(assertion, metric),
        rows=judgement.rows,
        windows=bench.evidence.windows(pick),
        measured_as=str(pick),
        warnings=(*_warnings(assertion, judgement), *judgement.warnings, *_of(reference)),
        notes=(
            *(("warning: " if note.warning else "") + note.text for note in notes),
            *bench.disagreements,
            *bench.notes,
            *(reference.notes if isinstance(reference, Reference) else ()),
        ),
        next_step=bench.refresh if assertion.reads_stored else "",
        differences=reference.differences if isinstance(reference, Unlike) else (),
        compared_with=reference.origin if isinstance(reference, Reference) else "",
    )


def _of(reference: Reference | Unlike | None) -> tuple[str, ...]:
    return reference.warnings if isinstance(reference, Reference) else ()


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
        case Outcome.INCONCLUSIVE:
            unclear = sum(row.outcome is Outcome.INCONCLUSIVE for row in rows)
            return f"{unclear} of {len(rows)} rows are worse than the tolerance, within the measured noise"
    if judgement.reason:
        return f"nothing was judged: {judgement.reason}"
    waived = sum(row.waived for row in rows)
    if waived:
        return f"{len(rows) - waived} of {len(rows)} rows hold, {waived} outside the limit by a waiver"
    return f"all {len(rows)} rows hold" if len(rows) != 1 else "holds"


def _warnings(assertion: Assertion, judgement: Judgement) -> list[str]:
    said = []
    if judgement.outcome is Outcome.IMPROVED:
        said.append(f"the baseline is stale: {_message(assertion, judgement)}; refresh it")
    if judgement.outcome is Outcome.INCONCLUSIVE:
        said.append(f"inconclusive: {_message(assertion, judgement)}; take more captures")
    early = [row for row in judgement.rows if row.early_warning]
    if early and assertion.warn is not None:
        said.append(f"{len(early)} of {len(judgement.rows)} rows do not reach the early warning {assertion.warn.text}")
    return said


def rows_now(assertion: Assertion, bench: Bench) -> Judgement:
    """What the assertion would judge, without its baseline: its rows, or why there are none."""
    metric = METRICS[assertion.metric]
    pick = bench.evidence.pick_of(assertion)
    measured = bench.evidence.rows(metric, pick)
    bench.evidence.check(bench.gate.quality, pick, metric)
    table = measured.table(bench.evidence.mesh)
    nothing = Unlike(Outcome.PASSED, "")
    reference = nothing if isinstance(assertion.require.limit, FromBaseline) else None
    return judge(assertion, judged_unit(assertion, metric), table, measured.missing, reference)
