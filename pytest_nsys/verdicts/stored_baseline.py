"""Is a run held against what is stored of its key, is that comparable with it, and is it the same capture?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.captures.outliers import FEWEST_FOR_HICCUP
from pytest_nsys.analysis.fact_bounds import ENOUGH
from pytest_nsys.analysis.facts.fact import Fact, Measured, Weight
from pytest_nsys.analysis.facts.kinds import weighed
from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.windows.circumstances import steps_of
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.core.errors import BaselineError, NsysError, TraceError
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import Note
from pytest_nsys.core.units import TIME
from pytest_nsys.core.words import printable
from pytest_nsys.gates.accepted import Refreshed
from pytest_nsys.gates.comparability import differences, found_otherwise, told
from pytest_nsys.gates.hiccups import Hiccup, find_judged_hiccup
from pytest_nsys.gates.judgement import NotComparable, Reference
from pytest_nsys.gates.model import Assertion, Difference, GateFile, Outcome, spec_for
from pytest_nsys.gates.settling import settled
from pytest_nsys.stored.baselines.baseline_file import (
    WINDOW,
    Baseline,
    SeriesId,
    StoredSeries,
    accepted_runs,
    series_for,
    series_id,
    spelled,
    stale,
)
from pytest_nsys.stored.baselines.store import BaselineStore, window_beside
from pytest_nsys.verdicts.apart import RunBreakdowns
from pytest_nsys.verdicts.references import ReferenceSource, another_kind, other_order, other_work_of

LONGEST_REASON = 300


def reason_of(baseline: Baseline) -> str:
    """Why it was refreshed, as whoever did it said; empty where that says nothing."""
    said = baseline.provenance.get("reason")
    return printable(said.strip(), LONGEST_REASON) if isinstance(said, str) and any(map(str.isalnum, said)) else ""


def find_stored_hiccups(gate: GateFile, captures: Captures, baseline: Baseline) -> Mapping[int, Hiccup]:
    """Return the accepted run that is a hiccup in the series that hold so many runs, by that number.

    Series of as many runs were accepted together, so that a place is one run in all of them.
    """
    by_count: dict[int, list[tuple[Assertion, StoredSeries]]] = {}
    for assertion in gate.assertions:
        if assertion.reads_stored and (series := baseline.series.get(series_for(captures.convention, assertion))):
            with suppress(NsysError):  # the verdict says why
                by_count.setdefault(len(series.runs), []).append((settled(assertion, captures), series))
    found = {}
    for count, readers in by_count.items():
        if count < FEWEST_FOR_HICCUP:
            continue
        measured = [
            (assertion, [captures.stored(assertion.measures, rows) for rows in series.runs])
            for assertion, series in readers
        ]
        if (hiccup := find_judged_hiccup(measured)) is not None:
            found[count] = hiccup
    return found


@dataclass
class StoredBaseline(ReferenceSource):
    """The baseline file of the run's key; read once for all assertions of a gate file. ``library`` opens the windows
    that are kept beside it. Where a merge base judges, ``branch`` has what the branch made of it.
    """

    captures: Captures
    gate: GateFile
    store: BaselineStore
    shown: Callable[[Path], str] = str
    prune: str = "pytest-nsys baseline prune"
    library: CaptureCache | None = None
    branch: BaselineStore | None = None

    @cached_property
    def _found(self) -> tuple[Path, Baseline] | NotComparable:
        key = self.captures.key(self.gate.run)
        exact = self.store.load(key)
        if exact is not None:
            return self._if_alike(self.store.path(key), exact)
        stored = self.store.all()
        if not stored:
            return NotComparable(Outcome.NO_DATA, f"no baseline is stored in {self.shown(self.store.folder)}")
        differing = [(differences(key.as_json(), each.key, self.gate.comparable_on), p, each) for p, each in stored]
        fewest = min(len(fields) for fields, _, _ in differing)
        nearest = [item for item in differing if len(item[0]) == fewest]
        fields, path, baseline = nearest[0]
        if fields:
            return self._unlike(path, baseline, fields)
        if len(nearest) > 1:
            names = ", ".join(path.name for _, path, _ in nearest)
            raise BaselineError(
                f"{self.shown(self.store.folder)}: {names} agree equally on what comparable_on names: name more, or "
                "delete all but one"
            )
        return self._if_alike(path, baseline)

    def _if_alike(self, path: Path, baseline: Baseline) -> tuple[Path, Baseline] | NotComparable:
        """The baseline, unless the circumstances that do not name its file differ."""
        if otherwise := found_otherwise(self.gate):
            what = f"the nearest baseline {self.shown(path)} is from a different setup ({told(otherwise)})"
            return NotComparable(Outcome.INCOMPARABLE, what, otherwise)
        fields = differences(self.captures.facts, baseline.facts, self.gate.comparable_on)
        facts = tuple(field for field in fields if field.name in self.captures.facts)
        if facts:
            return self._unlike(path, baseline, facts)
        self._refuse_stale(path, baseline)
        return path, baseline

    @kept
    def refuse_dropped(self) -> None:
        """Raises BaselineError where rows are stored and the gate file has no assertion with a baseline any more."""
        reads = not self.gate.assertions or any(assertion.reads_stored for assertion in self.gate.assertions)
        if not reads:
            for path, baseline in self.store.all():
                self._refuse_stale(path, baseline)

    def _refuse_stale(self, path: Path, baseline: Baseline) -> None:
        """Rows that no assertion reads hide that a gate was dropped. A measurement that is now made in another way is
        none of them: its assertion says that it is incomparable.
        """
        read = {series_for(self.gate.resolved_convention, a): a.metric for a in self.gate.assertions if a.reads_stored}
        renewed = {metric for sid, metric in read.items() if sid not in baseline.series}
        gone = [sid for sid in stale(self.gate, baseline) if sid.metric not in renewed]
        if gone:
            more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
            raise BaselineError(
                f"{self.shown(path)}: no assertion of {self.store.gate} reads {spelled(gone[0])}{more} any more: "
                f"drop it with: {self.prune}"
            )

    def _unlike(self, path: Path, baseline: Baseline, fields: tuple[Difference, ...]) -> NotComparable:
        named = tuple(self._with_name(field, baseline) for field in fields)
        what = f"the nearest baseline {self.shown(path)} is from a different setup ({told(named)})"
        return NotComparable(Outcome.INCOMPARABLE, what, named)

    def _with_name(self, field: Difference, baseline: Baseline) -> Difference:
        """A convention by its name as well as by its fingerprint."""
        if field.name != "convention":
            return field
        was = baseline.provenance.get("convention")
        return Difference(field.name, f"{self.captures.convention_words} ({field.now})", f"{was} ({field.baseline})")

    @property
    def path(self) -> Path | None:
        """The file that is compared with, None where there is none. Raises BaselineError."""
        return None if isinstance(self._found, NotComparable) else self._found[0]

    @property
    def steps(self) -> int:
        """Those of the run that is stored of this key, without one of any other of the gate file."""
        exact = self.store.load(self.captures.key(self.gate.run))
        each = [exact] if exact is not None else [baseline for _, baseline in self.store.all()]
        return max((steps_of(baseline.facts) for baseline in each), default=0)

    @cached_property
    def windows_before(self) -> RunBreakdowns | None:
        """Those that are kept of the accepted run that was written last."""
        with suppress(NsysError):  # who needs them says that there are none; a constant needs no baseline
            kept = None if isinstance(self._found, NotComparable) else self.store.kept_window(*self._found)
            if kept is not None and self.library is not None:
                convention = self.gate.resolved_convention
                return RunBreakdowns(self.library.from_bytes(kept, convention, self.gate.workload))
        return None

    @property
    def lost_windows(self) -> str:
        """The file beside the baseline that is not the one it names."""
        with suppress(NsysError):
            if self.windows_before is None and not isinstance(self._found, NotComparable):
                path, baseline = self._found
                return window_beside(path).name if WINDOW in baseline.provenance else ""
        return ""

    def reference(self, assertion: Assertion) -> Reference | NotComparable:
        """The accepted runs of the stored rows, with what their noise was measured on."""
        found = self._stored(assertion.measures, assertion)
        if isinstance(found, Reference) and self.same is not None and self.same.weight is Weight.ERROR:
            raise TraceError(self.same.error)
        return found

    @cached_property
    def same(self) -> Fact | None:
        """That what is judged is what is stored: as many rows of time as tell two captures apart, and every other row.
        What is measured outside of a trace does not count.
        """
        if isinstance(self._found, NotComparable):
            return None
        path, baseline = self._found
        asked = [(a.measures, spec_for(self.captures.convention, a)) for a in self.gate.assertions if a.reads_stored]
        rows = times = 0
        for metric, spec in dict.fromkeys(each for each in asked if not each[0].outside):
            if (series := baseline.series.get(series_id(metric, spec))) is None:
                continue
            try:
                now = dict(self.captures.rows(metric, spec).rows)
            except NsysError:  # the assertion says why
                return None
            if now not in series.runs:
                return None
            rows += len(now)
            times += sum(map(bool, now.values())) if metric.unit == TIME else 0
        if times < ENOUGH:
            return None
        words = f"all {rows} judged rows, {times} of them times, equal {self.shown(path)} to the nanosecond"
        why = "this is the trace that the baseline was taken from"
        found = Measured(1, words, why, "judge the trace of this run")
        return weighed("same_as_baseline", found, self.gate.quality)

    def _stored(self, metric: Metric, assertion: Assertion) -> Reference | NotComparable:
        if isinstance(self._found, NotComparable):
            return self._found
        path, baseline = self._found
        spec = spec_for(self.captures.convention, assertion)
        sid = series_id(metric, spec)
        series = baseline.series.get(sid)
        if series is None:
            return self._without(sid.metric, sid, path, baseline)
        if kind := another_kind(metric, series):
            how = ", ".join(f"{d.name} {d.baseline}, now {d.now}" for d in kind)
            return NotComparable(Outcome.INCOMPARABLE, f"{self.shown(path)} holds {metric.name} with {how}", kind)
        if order := other_order(self.captures.unordered(metric, spec), series.unordered):
            what = f"{self.shown(path)} holds {metric.name} of kernels in another order ({told(order)})"
            return NotComparable(Outcome.INCOMPARABLE, what, order)
        if other := other_work_of(self.captures.facts, baseline.facts, metric, spec, self.gate.comparable_on):
            return NotComparable(Outcome.INCOMPARABLE, f"the engine did other work ({told(other)})", other)
        notes = self._notes(baseline)
        if (hiccup := self._hiccups.get(len(series.runs))) is not None:
            notes = (*notes, Note(f"accepted run {hiccup.place + 1} of {len(series.runs)} is left out: {hiccup.why}"))
            series = series.without({hiccup.place})
        series = self._without_own(metric, spec, series)
        found = accepted_runs(series, partial(self.captures.stored, metric))
        return replace(found, origin=self.shown(path), notes=notes)

    @cached_property
    def _hiccups(self) -> Mapping[int, Hiccup]:
        assert not isinstance(self._found, NotComparable)
        return find_stored_hiccups(self.gate, self.captures, self._found[1])

    def _without_own(self, metric: Metric, spec: WindowSpec, series: StoredSeries) -> StoredSeries:
        """The series without the accepted run that this capture is: a run is not held to itself where others stand."""
        if self.same is None:
            return series
        now = dict(self.captures.rows(metric, spec).rows)
        own = {place for place, run in enumerate(series.runs) if run == now}
        return series.without(own) if len(own) < len(series.runs) else series

    def refreshed(self, assertion: Assertion) -> Refreshed | None:
        """What the branch made of the rows that the assertion is held against; None where it left them as they are."""
        if self.branch is None or isinstance(self._found, NotComparable):
            return None
        (path, before), sid = self._found, series_for(self.captures.convention, assertion)
        branch = replace(self, store=self.branch, branch=None)
        try:
            held, name = branch._found, self.shown(path)
            if isinstance(held, NotComparable) or held[0].name != path.name:
                return Refreshed(None, refused=f"{name} is gone, or of another run")
            now = held[1]
            if sid not in now.series or now.series[sid].rows == before.series[sid].rows:
                return None
            if now.provenance == before.provenance:
                return Refreshed(None, refused="rows changed without a refresh, under the reason of the merge base")
            if not (reason := reason_of(now)):
                return Refreshed(None, refused="its refresh gives no reason")
            # What the branch measured as noise widens nothing: the rows alone are its data.
            now.series[sid] = replace(now.series[sid], calibration=before.series[sid].calibration)
            own = branch._stored(assertion.measures, assertion)
        except BaselineError as error:
            return Refreshed(None, refused=str(error))
        return Refreshed(None, refused=own.reason) if isinstance(own, NotComparable) else Refreshed(own, reason)

    def _notes(self, baseline: Baseline) -> tuple[Note, ...]:
        """In what the baseline's run was another one, which the gate file leaves out of the comparison."""
        if self.gate.comparable_on is None:
            return ()
        now = self.captures.identity(self.gate.run)
        how = told(differences(now, {**baseline.key, **baseline.facts}))
        return (Note(f"compared with another run, as comparable_on says: {how}"),) if how else ()

    def _without(self, name: str, sid: SeriesId, path: Path, baseline: Baseline) -> NotComparable:
        others = [other for other in baseline.series if other.metric == name]
        if not others:
            return NotComparable(Outcome.NO_DATA, f"{self.shown(path)} holds no {name}")
        fields = ("definition", "window", "span", "kernels")
        changed = tuple(
            Difference(field, str(getattr(sid, field)), str(getattr(others[0], field)))
            for field in fields
            if getattr(sid, field) != getattr(others[0], field)
        )
        how = ", ".join(f"{d.name} {d.baseline}, now {d.now}" for d in changed)
        what = f"{name} in {self.shown(path)} was measured with {how}"
        return NotComparable(Outcome.INCOMPARABLE, what, changed)
