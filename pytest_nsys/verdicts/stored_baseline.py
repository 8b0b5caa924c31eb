"""Which stored baseline is a run compared with, are the two comparable, and are they the same capture?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.captures.outliers import MIN_CAPTURES_FOR_HICCUP
from pytest_nsys.analysis.fact_bounds import ENOUGH_ROWS
from pytest_nsys.analysis.facts.fact import Fact, MeasuredFact, Weight
from pytest_nsys.analysis.facts.kinds import weigh_fact
from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.windows.run_conditions import count_stored_steps
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.errors import BaselineError, NsysError, TraceError
from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.model import Note
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.accepted_rows import BranchRefresh
from pytest_nsys.gates.assertion_resolution import resolve_assertion
from pytest_nsys.gates.comparability import describe_differences, find_convention_difference, find_differences
from pytest_nsys.gates.hiccups import Hiccup, find_judged_hiccup
from pytest_nsys.gates.judgement import NotComparable, Reference
from pytest_nsys.gates.model import Assertion, Difference, GateFile, Outcome, resolve_window_spec
from pytest_nsys.stored.baselines.baseline_file import (
    WINDOW_DIGEST_KEY,
    Baseline,
    SeriesId,
    StoredSeries,
    build_assertion_series_id,
    build_reference,
    build_series_id,
    describe_series,
    list_unread_series,
)
from pytest_nsys.stored.baselines.store import BaselineStore, build_window_path
from pytest_nsys.verdicts.references import (
    ReferenceSource,
    find_metric_definition_differences,
    find_order_differences,
    find_work_differences,
)
from pytest_nsys.verdicts.window_breakdowns import RunBreakdowns

LONGEST_REASON = 300  # characters: it stands on one line of a report


def read_refresh_reason(baseline: Baseline) -> str:
    """Return the stored reason of the baseline's last refresh; empty if there is none."""
    text = baseline.provenance.get("reason")
    return sanitize_line(text.strip(), LONGEST_REASON) if isinstance(text, str) and any(map(str.isalnum, text)) else ""


def find_stored_hiccups(gate: GateFile, captures: Captures, baseline: Baseline) -> Mapping[int, Hiccup]:
    """Return the accepted run that is a hiccup, by the number of accepted runs of the series in which it is one.

    Series with the same number of runs were accepted together, so that a place is the same run in all of them.
    """
    by_count: dict[int, list[tuple[Assertion, StoredSeries]]] = {}
    for assertion in gate.assertions:
        if assertion.reads_stored_baseline and (
            series := baseline.series.get(build_assertion_series_id(captures.convention, assertion))
        ):
            with suppress(NsysError):  # the verdict says why
                by_count.setdefault(len(series.rows_by_run), []).append(
                    (resolve_assertion(assertion, captures), series)
                )
    hiccups = {}
    for count, readers in by_count.items():
        if count < MIN_CAPTURES_FOR_HICCUP:
            continue
        tables = [
            (assertion, [captures.build_stored_table(assertion.measured_metric, rows) for rows in series.rows_by_run])
            for assertion, series in readers
        ]
        if (hiccup := find_judged_hiccup(tables)) is not None:
            hiccups[count] = hiccup
    return hiccups


@dataclass
class StoredBaseline(ReferenceSource):
    """Compares with the baseline file of the run's key, which is read once for all assertions of a gate file."""

    captures: Captures
    gate: GateFile
    store: BaselineStore
    format_path: Callable[[Path], str] = str  # spells a path as the person would
    prune_command: str = "pytest-nsys baseline prune"
    capture_cache: CaptureCache | None = None  # opens the window file next to the baseline
    branch_store: BaselineStore | None = None  # the branch's baselines, when judging by the merge base

    @cached_property
    def _nearest_baseline(self) -> tuple[Path, Baseline] | NotComparable:
        """Return the baseline file of the run's key, or the nearest one, or why it is not comparable. Raises
        BaselineError.
        """
        key = self.captures.build_key(self.gate.run)
        exact_baseline = self.store.load(key)
        if exact_baseline is not None:
            return self._check_alike(self.store.build_path(key), exact_baseline)
        stored_baselines = self.store.load_all()
        if not stored_baselines:
            return NotComparable(Outcome.NO_DATA, f"no baseline is stored in {self.format_path(self.store.folder)}")
        differing = [
            (find_differences(key.as_json(), candidate.key, self.gate.comparable_on), p, candidate)
            for p, candidate in stored_baselines
        ]
        # The nearest baseline: the one that differs in the fewest circumstances.
        fewest = min(len(fields) for fields, _, _ in differing)
        nearest = [item for item in differing if len(item[0]) == fewest]
        fields, path, baseline = nearest[0]
        if fields:
            return self._make_incomparable(path, baseline, fields)
        if len(nearest) > 1:
            names = ", ".join(path.name for _, path, _ in nearest)
            raise BaselineError(
                f"{self.format_path(self.store.folder)}: {names} agree equally on what comparable_on names: name "
                "more, or "
                "delete all but one"
            )
        return self._check_alike(path, baseline)

    def _check_alike(self, path: Path, baseline: Baseline) -> tuple[Path, Baseline] | NotComparable:
        """Return the baseline, or the differences in circumstances that are not part of its file name."""
        if convention_differences := find_convention_difference(self.gate):
            mismatch_text = (
                f"the nearest baseline {self.format_path(path)} is from a different setup "
                f"({describe_differences(convention_differences)})"
            )
            return NotComparable(Outcome.INCOMPARABLE, mismatch_text, convention_differences)
        fields = find_differences(self.captures.facts, baseline.facts, self.gate.comparable_on)
        fact_differences = tuple(field for field in fields if field.name in self.captures.facts)
        if fact_differences:
            return self._make_incomparable(path, baseline, fact_differences)
        self._refuse_stale(path, baseline)
        return path, baseline

    @memoize_method
    def refuse_dropped(self) -> None:
        """Raise BaselineError if rows are stored but no assertion of the gate file has a baseline any more."""
        reads_stored = not self.gate.assertions or any(
            assertion.reads_stored_baseline for assertion in self.gate.assertions
        )
        if not reads_stored:
            for path, baseline in self.store.load_all():
                self._refuse_stale(path, baseline)

    def _refuse_stale(self, path: Path, baseline: Baseline) -> None:
        """Raise BaselineError where no assertion reads some stored rows, as these would hide that a gate was dropped.

        A measurement whose definition changed does not count: its assertion reports that it is incomparable.
        """
        read_series = {
            build_assertion_series_id(self.gate.resolved_convention, a): a.metric
            for a in self.gate.assertions
            if a.reads_stored_baseline
        }
        renewed_metrics = {metric for sid, metric in read_series.items() if sid not in baseline.series}
        unread_series = [sid for sid in list_unread_series(self.gate, baseline) if sid.metric not in renewed_metrics]
        if unread_series:
            more_text = f" and {len(unread_series) - 1} more" if len(unread_series) > 1 else ""
            raise BaselineError(
                f"{self.format_path(path)}: no assertion of {self.store.gate} reads "
                f"{describe_series(unread_series[0])}{more_text} any more: drop it with: {self.prune_command}"
            )

    def _make_incomparable(self, path: Path, baseline: Baseline, fields: tuple[Difference, ...]) -> NotComparable:
        named_fields = tuple(self._add_convention_name(field, baseline) for field in fields)
        mismatch_text = (
            f"the nearest baseline {self.format_path(path)} is from a different setup "
            f"({describe_differences(named_fields)})"
        )
        return NotComparable(Outcome.INCOMPARABLE, mismatch_text, named_fields)

    def _add_convention_name(self, field: Difference, baseline: Baseline) -> Difference:
        """Return the difference with a convention by its name as well as by its fingerprint."""
        if field.name != "convention":
            return field
        baseline_name = baseline.provenance.get("convention")
        return Difference(
            field.name, f"{self.captures.convention_text} ({field.current})", f"{baseline_name} ({field.baseline})"
        )

    @property
    def path(self) -> Path | None:
        """Return the file that is compared with, None where there is none. Raises BaselineError."""
        return None if isinstance(self._nearest_baseline, NotComparable) else self._nearest_baseline[0]

    @property
    def steps(self) -> int:
        """Return the largest number of steps of a rank in the run stored under this key; if there is none, in any other
        stored run of the gate file.
        """
        exact_baseline = self.store.load(self.captures.build_key(self.gate.run))
        baselines = (
            [exact_baseline] if exact_baseline is not None else [baseline for _, baseline in self.store.load_all()]
        )
        return max((count_stored_steps(baseline.facts) for baseline in baselines), default=0)

    @cached_property
    def baseline_breakdowns(self) -> RunBreakdowns | None:
        """Return the kept windows of the last accepted run; None if there are none, or they cannot be read."""
        with suppress(NsysError):  # users of the windows report that there are none
            window_file = (
                None
                if isinstance(self._nearest_baseline, NotComparable)
                else self.store.read_stored_window(*self._nearest_baseline)
            )
            if window_file is not None and self.capture_cache is not None:
                convention = self.gate.resolved_convention
                return RunBreakdowns(self.capture_cache.open_window_bytes(window_file, convention, self.gate.workload))
        return None

    @property
    def lost_windows_file(self) -> str:
        """Return the name of the window file if it is missing or not the one that the baseline was written with; else
        empty.
        """
        with suppress(NsysError):
            if self.baseline_breakdowns is None and not isinstance(self._nearest_baseline, NotComparable):
                path, baseline = self._nearest_baseline
                return build_window_path(path).name if WINDOW_DIGEST_KEY in baseline.provenance else ""
        return ""

    def find_reference(self, assertion: Assertion) -> Reference | NotComparable:
        """Return the accepted runs of the stored rows, with their calibration."""
        reference = self._find_stored_reference(assertion.measured_metric, assertion)
        if (
            isinstance(reference, Reference)
            and self.same_capture_fact is not None
            and self.same_capture_fact.weight is Weight.ERROR
        ):
            raise TraceError(self.same_capture_fact.error)
        return reference

    @cached_property
    def same_capture_fact(self) -> Fact | None:
        """Return the fact that the judged run is the stored one; None if it differs, or if too few rows of time show
        it.

        Enough rows of time to distinguish two captures, and all other rows, must be equal. Metrics measured outside of
        a trace do not count.
        """
        if isinstance(self._nearest_baseline, NotComparable):
            return None
        path, baseline = self._nearest_baseline
        metric_specs = [
            (a.measured_metric, resolve_window_spec(self.captures.convention, a))
            for a in self.gate.assertions
            if a.reads_stored_baseline
        ]
        row_count = time_count = 0
        for metric, spec in dict.fromkeys(
            metric_spec for metric_spec in metric_specs if not metric_spec[0].is_outside_trace
        ):
            if (series := baseline.series.get(build_series_id(metric, spec))) is None:
                continue
            try:
                current_rows = dict(self.captures.measure_rows(metric, spec).rows)
            except NsysError:  # the assertion reports the error
                return None
            if current_rows not in series.rows_by_run:
                return None
            row_count += len(current_rows)
            time_count += sum(map(bool, current_rows.values())) if metric.unit == TIME else 0
        if time_count < ENOUGH_ROWS:
            return None
        fact_text = (
            f"all {row_count} judged rows, {time_count} of them times, equal {self.format_path(path)} to the nanosecond"
        )
        reason = "this is the trace that the baseline was taken from"
        measured_fact = MeasuredFact(1, fact_text, reason, "judge the trace of this run")
        return weigh_fact("same_as_baseline", measured_fact, self.gate.quality)

    def _find_stored_reference(self, metric: Metric, assertion: Assertion) -> Reference | NotComparable:
        if isinstance(self._nearest_baseline, NotComparable):
            return self._nearest_baseline
        path, baseline = self._nearest_baseline
        spec = resolve_window_spec(self.captures.convention, assertion)
        sid = build_series_id(metric, spec)
        series = baseline.series.get(sid)
        if series is None:
            return self._describe_missing_series(sid.metric, sid, path, baseline)
        if kind_differences := find_metric_definition_differences(metric, series):
            kind_text = ", ".join(f"{d.name} {d.baseline}, now {d.current}" for d in kind_differences)
            return NotComparable(
                Outcome.INCOMPARABLE, f"{self.format_path(path)} holds {metric.name} with {kind_text}", kind_differences
            )
        if order_differences := find_order_differences(
            self.captures.list_unordered_streams(metric, spec), series.unordered
        ):
            order_text = (
                f"{self.format_path(path)} holds {metric.name} of kernels in another order "
                f"({describe_differences(order_differences)})"
            )
            return NotComparable(Outcome.INCOMPARABLE, order_text, order_differences)
        if work_differences := find_work_differences(
            self.captures.facts, baseline.facts, metric, spec, self.gate.comparable_on
        ):
            return NotComparable(
                Outcome.INCOMPARABLE,
                f"the engine did other work ({describe_differences(work_differences)})",
                work_differences,
            )
        notes = self._list_comparison_notes(baseline)
        if (hiccup := self._hiccups.get(len(series.rows_by_run))) is not None:
            notes = (
                *notes,
                Note(
                    f"accepted run {hiccup.capture_index + 1} of {len(series.rows_by_run)} is left out: {hiccup.reason}"
                ),
            )
            series = series.drop_runs({hiccup.capture_index})
        series = self._drop_own_run(metric, spec, series)
        reference = build_reference(series, partial(self.captures.build_stored_table, metric))
        return replace(reference, origin=self.format_path(path), notes=notes)

    @cached_property
    def _hiccups(self) -> Mapping[int, Hiccup]:
        assert not isinstance(self._nearest_baseline, NotComparable)
        return find_stored_hiccups(self.gate, self.captures, self._nearest_baseline[1])

    def _drop_own_run(self, metric: Metric, spec: WindowSpec, series: StoredSeries) -> StoredSeries:
        """Return the series without the accepted run that this capture is: a run is not compared with itself if there
        are others.
        """
        if self.same_capture_fact is None:
            return series
        current_rows = dict(self.captures.measure_rows(metric, spec).rows)
        own_places = {place for place, run in enumerate(series.rows_by_run) if run == current_rows}
        return series.drop_runs(own_places) if len(own_places) < len(series.rows_by_run) else series

    def find_refreshed(self, assertion: Assertion) -> BranchRefresh | None:
        """Return the branch's refresh of the rows that the assertion is compared with; None if unchanged."""
        if self.branch_store is None or isinstance(self._nearest_baseline, NotComparable):
            return None
        (path, base_baseline), sid = (
            self._nearest_baseline,
            build_assertion_series_id(self.captures.convention, assertion),
        )
        branch = replace(self, store=self.branch_store, branch_store=None)
        try:
            branch_result, name = branch._nearest_baseline, self.format_path(path)
            if isinstance(branch_result, NotComparable) or branch_result[0].name != path.name:
                return BranchRefresh(None, refused=f"{name} is gone, or of another run")
            branch_baseline = branch_result[1]
            if sid not in branch_baseline.series or branch_baseline.series[sid].rows == base_baseline.series[sid].rows:
                return None
            if branch_baseline.provenance == base_baseline.provenance:
                return BranchRefresh(None, refused="rows changed without a refresh, under the reason of the merge base")
            if not (reason := read_refresh_reason(branch_baseline)):
                return BranchRefresh(None, refused="its refresh gives no reason")
            # The branch's calibration is ignored, so that it cannot widen a limit: only its rows count.
            branch_baseline.series[sid] = replace(
                branch_baseline.series[sid], calibration=base_baseline.series[sid].calibration
            )
            branch_reference = branch._find_stored_reference(assertion.measured_metric, assertion)
        except BaselineError as error:
            return BranchRefresh(None, refused=str(error))
        return (
            BranchRefresh(None, refused=branch_reference.reason)
            if isinstance(branch_reference, NotComparable)
            else BranchRefresh(branch_reference, reason)
        )

    def _list_comparison_notes(self, baseline: Baseline) -> tuple[Note, ...]:
        """Return a note on the differing circumstances that ``comparable_on`` leaves out of the comparison."""
        if self.gate.comparable_on is None:
            return ()
        current = self.captures.build_identity(self.gate.run)
        difference_text = describe_differences(find_differences(current, {**baseline.key, **baseline.facts}))
        return (
            (Note(f"compared with another run, as comparable_on says: {difference_text}"),) if difference_text else ()
        )

    def _describe_missing_series(self, name: str, sid: SeriesId, path: Path, baseline: Baseline) -> NotComparable:
        other_series = [candidate for candidate in baseline.series if candidate.metric == name]
        if not other_series:
            return NotComparable(Outcome.NO_DATA, f"{self.format_path(path)} holds no {name}", is_new=True)
        fields = ("definition", "window", "span", "kernels")
        changes = tuple(
            Difference(field, str(getattr(sid, field)), str(getattr(other_series[0], field)))
            for field in fields
            if getattr(sid, field) != getattr(other_series[0], field)
        )
        change_text = ", ".join(f"{d.name} {d.baseline}, now {d.current}" for d in changes)
        mismatch_text = f"{name} in {self.format_path(path)} was measured with {change_text}"
        return NotComparable(Outcome.INCOMPARABLE, mismatch_text, changes)
