"""What is an assertion with a baseline compared with: the stored baseline, another trace, or the history?

Each source first checks whether the runs are comparable at all (rule R0), and reports what differs if they are not. A
new source of limits is one new class here; the stored baseline has a module of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.captures.duplicates import find_ranks_with_equal_kernels
from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.metrics.table import MetricTable, NothingSelected
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.run_conditions import count_stored_steps
from pytest_nsys.analysis.windows.window_selection import MEDIAN, WindowSpec
from pytest_nsys.core.errors import NsysError, UsageMistake, prefix_errors
from pytest_nsys.core.memoize import group_by_key, memoize_method
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.text_format import format_count, format_labels, shorten_paths
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.assertion_names import list_other_names
from pytest_nsys.gates.assertion_resolution import resolve_assertion
from pytest_nsys.gates.comparability import (
    describe_differences,
    find_convention_difference,
    find_differences,
    find_work_difference,
)
from pytest_nsys.gates.comparability import format_circumstance as in_words
from pytest_nsys.gates.hiccups import find_judged_hiccup
from pytest_nsys.gates.judgement import BadRuns, NotComparable, Reference, RowKey, fold_table
from pytest_nsys.gates.model import (
    Assertion,
    BaselineLimit,
    Difference,
    GateFile,
    Outcome,
    build_request,
    resolve_window_spec,
)
from pytest_nsys.gates.noise import Decision, Trial, decide_claim, decide_trials
from pytest_nsys.stored.baselines.baseline_file import RowLabels, SeriesId, StoredSeries, build_series_id
from pytest_nsys.tools.git import list_heads, read_revision, resolve_branch
from pytest_nsys.traces.trace_files import find_duplicate_trace
from pytest_nsys.verdicts.window_breakdowns import RunBreakdowns

if TYPE_CHECKING:
    from pytest_nsys.stored.history.assertion_history import AssertionHistory


def find_metric_definition_differences(current: Metric, baseline: Metric | StoredSeries) -> tuple[Difference, ...]:
    """Return how the definition of a metric differs from the baseline's: in unit, direction or dimensions.

    Only metrics measured outside of a trace can change their direction.
    """
    kind_differences = []
    for name in ("unit", "better", "dimensions") if current.is_outside_trace else ("unit", "dimensions"):
        a, b = (in_words(getattr(side, name) or "not stated") for side in (current, baseline))
        kind_differences += [Difference(name, a, b)] if a != b else []
    return tuple(kind_differences)


def find_order_differences(current: Sequence[str], baseline: Sequence[str]) -> tuple[Difference, ...]:
    """Return the difference if kernels overlap on other streams than in the baseline, so that the values mean something
    else.
    """
    order_texts = (", ".join(side) or "no stream" for side in (current, baseline))
    return () if tuple(current) == tuple(baseline) else (Difference("streams of overlapping kernels", *order_texts),)


def find_work_differences(
    current: Mapping[str, Any],
    baseline: Mapping[str, Any],
    metric: Metric,
    spec: WindowSpec,
    comparable_on: Collection[str] | None,
) -> tuple[Difference, ...]:
    """Return the differences in the work of one kind of steps, if times of such steps are compared."""
    return find_work_difference(current, baseline, spec.kind, comparable_on) if metric.unit == TIME else ()


class ReferenceSource(ABC):
    """Provides the values that the current run is compared with."""

    @abstractmethod
    def find_reference(self, assertion: Assertion) -> Reference | NotComparable:
        """Return what the assertion is compared with, or why there is nothing. Raises BaselineError, TraceError."""

    @property
    def steps(self) -> int:
        """Return the largest number of steps of a rank in the reference; 0 if unknown. Raises NsysError."""
        return 0

    @property
    def baseline_breakdowns(self) -> RunBreakdowns | None:
        """Return the baseline's run, or the windows kept from it, opened on first use.

        None where nothing is kept, or where it cannot be read.
        """
        return None

    @property
    def lost_windows_file(self) -> str:
        """Return the name of the file that should hold the kept windows if it is lost or replaced; else empty."""
        return ""


@dataclass
class OtherRun(ReferenceSource):
    """Compares with another trace, or with several captures of it, in place of the stored baseline (R4)."""

    captures: Captures
    gate: GateFile
    base_captures: Captures
    name: str = "the other trace"
    allows_shared_files: bool = False  # whether both sides may share files, which ``compare`` reports as a note

    @cached_property
    def _setup_mismatch(self) -> NotComparable | None:
        """Return why the two runs are not comparable; None where they are."""
        current, baseline = (
            self.captures.build_circumstances(self.gate.run),
            self.base_captures.build_circumstances(self.gate.run),
        )
        fields = (*find_convention_difference(self.gate), *find_differences(current, baseline, self.gate.comparable_on))
        if not fields:
            return None
        mismatch_text = f"{self.name} is from a different setup ({describe_differences(fields, self.name)})"
        return NotComparable(Outcome.INCOMPARABLE, mismatch_text, fields)

    @memoize_method
    def _refuse_one_capture(self) -> None:
        """Raise UsageMistake if both sides are the same capture or, in a gate, share a file."""
        if equality_text := self._describe_same_capture(self._specs):
            raise UsageMistake(f"both sides are the same capture: {equality_text}; there is nothing to compare")
        if (same_paths := self.list_same_files()) and not self.allows_shared_files:
            names = ", ".join(map(str, same_paths))
            raise UsageMistake(f"{names}: every kernel is that of {self.name}; there is nothing to compare")

    @property
    def _specs(self) -> tuple[WindowSpec, ...]:
        """Return the windows of traces in which rows are compared with the other run's."""
        held_assertions = (
            assertion
            for assertion in self.gate.assertions
            if assertion.reads_stored_baseline and assertion.outside_metric is None
        )
        return tuple(
            dict.fromkeys(resolve_window_spec(self.captures.convention, assertion) for assertion in held_assertions)
        )

    @memoize_method
    def list_same_files(self) -> Sequence[Path]:
        """Return the files whose capture is on both sides, in the same or other bytes: ranks that were not captured
        again.
        """
        copied_ranks = [(run, kernels.keys()) for run, _, kernels in self._find_copied_kernels(self._specs) if kernels]
        files = (
            (rank_numbers, group_by_key((rank.trace, rank.number) for rank in run.ranks))
            for run, rank_numbers in copied_ranks
        )
        return [
            *dict.fromkeys(
                path
                for rank_numbers, ranks_by_path in files
                for path, ranks in ranks_by_path.items()
                if rank_numbers >= {*ranks}
            )
        ]

    @memoize_method
    def _find_copied_kernels(self, specs: tuple[WindowSpec, ...]) -> Sequence[tuple[Run, Run, Mapping[int, int]]]:
        """Return each pair of captures of both runs, with the number of kernels, by rank, that both hold with equal
        times.

        A rank counts only if its kernels are equal in all windows that are read: prefill may be equal while decode
        differs.
        """
        copies = []
        for run, base_run in product(self.captures.runs, self.base_captures.runs):
            kernel_counts: list[dict[int, int]] = []
            for spec in specs:
                with suppress(NsysError):  # measuring it reports the error
                    pairs = find_ranks_with_equal_kernels(run.load_windows(spec), base_run.load_windows(spec))
                    same_ranks = ((track, twin) for track, twin in pairs if track.rank.number == twin.rank.number)
                    kernel_counts.append({track.rank.number: len(track.kernels) for track, _ in same_ranks})
            copied_ranks = (
                rank
                for rank in (kernel_counts[0] if kernel_counts else ())
                if all(rank in spec_counts for spec_counts in kernel_counts)
            )
            copies.append(
                (
                    run,
                    base_run,
                    {rank: max(spec_counts[rank] for spec_counts in kernel_counts) for rank in copied_ranks},
                )
            )
        return copies

    def _describe_same_capture(self, specs: tuple[WindowSpec, ...]) -> str:
        """Return why a capture of one side is known to be a capture of the other; empty if there is none."""
        for run, base_run, kernels in self._find_copied_kernels(specs):
            if kernels and len(kernels) == len(run.ranks) == len(base_run.ranks):
                equality_text = f"{format_count(sum(kernels.values()), 'kernel')} are equal to the nanosecond"
                return f"{equality_text} in {run.traces[0].path} and {base_run.traces[0].path}"
        return ""

    @cached_property
    def _same_measurement_notes(self) -> tuple[Note, ...]:
        """Return a note where both sides hold the same bytes of measurements, as may happen by chance.

        Raises UsageMistake if they are the same file, or if their traces are the same capture as well.
        """
        duplicate = find_duplicate_trace([self.captures.measurement_files, self.base_captures.measurement_files])
        if duplicate is None:
            return ()
        if not duplicate.is_file_copy:
            raise UsageMistake(f"both sides are the same measurements: {duplicate.first}; there is nothing to compare")
        same_text = f"{duplicate.first} and {duplicate.second} hold the same bytes"
        if equality_text := self._describe_same_capture((self.captures.make_spec(MEDIAN),)):
            raise UsageMistake(
                f"both sides are the same measurements: {same_text}, and {equality_text}; there is nothing to compare"
            )
        return (Note(shorten_paths(f"{same_text}: what is measured in them cannot differ"), True),)

    @cached_property
    def _decisions(self) -> Mapping[tuple[str, RowKey], Decision]:
        """Return the decision of each row of each compared assertion, corrected for testing all of them together."""
        trials: dict[tuple[str, RowKey], Trial] = {}
        for assertion in self.gate.assertions:
            limit = assertion.requirement.limit
            is_tested = isinstance(limit, BaselineLimit) and limit.tolerance is not None and limit.history is None
            if is_tested and not assertion.is_claim:
                trials |= {(assertion.name, key): trial for key, trial in self._collect_trials(assertion).items()}
        return decide_trials(trials)

    def _decide_rows(self, assertion: Assertion) -> Mapping[RowKey, Decision]:
        """Return the decision of each row of one assertion."""
        if assertion.is_claim:
            return {key: decide_claim(trial) for key, trial in self._collect_trials(assertion).items()}
        return {key: decision for (name, key), decision in self._decisions.items() if name == assertion.name}

    def _collect_trials(self, assertion: Assertion) -> dict[RowKey, Trial]:
        """Return the values of each row in every capture of both runs, for rows that all captures have."""
        try:
            assertion = resolve_assertion(assertion, self.captures)
            metric, spec = assertion.measured_metric, resolve_window_spec(self.captures.convention, assertion)
            if find_metric_definition_differences(metric, self.base_captures.resolve_metric(assertion.metric)):
                return {}
            base_rows, head_rows = (
                [fold_table(table, assertion) for table in side.measure_each_capture(metric, spec)]
                for side in (self.base_captures, self.captures)
            )
        except (NothingSelected, NsysError):
            return {}  # the assertion itself says why it cannot be judged; the others are judged without it
        shared_keys = [key for key in base_rows[0] if all(key in rows for rows in (*base_rows, *head_rows))]
        worse = assertion.requirement.worse_direction
        left_out_counts = (
            int(self.base_captures.omitted_capture is not None),
            int(self.captures.omitted_capture is not None),
        )
        return {
            key: Trial(
                tuple(rows[key] for rows in base_rows), tuple(rows[key] for rows in head_rows), worse, left_out_counts
            )
            for key in shared_keys
        }

    def find_reference(self, assertion: Assertion) -> Reference | NotComparable:
        """Return the other run's rows, medians over its captures, with the decisions from the captures of both runs."""
        if self._setup_mismatch is not None:
            return self._setup_mismatch
        metric, spec = assertion.measured_metric, resolve_window_spec(self.captures.convention, assertion)
        copy_notes = self._same_measurement_notes if metric.is_outside_trace else ()
        with prefix_errors(self.name):
            base_table = self.base_captures.measure(
                build_request(self.gate, assertion, count_stored_steps(self.captures.facts))
            )
            base_metric = self.base_captures.resolve_metric(assertion.metric)
            base_order = self.base_captures.list_unordered_streams(metric, spec)
        if changes := find_metric_definition_differences(metric, base_metric) or find_order_differences(
            self.captures.list_unordered_streams(metric, spec), base_order
        ):
            change_text = ", ".join(f"{d.name} {d.baseline}, now {d.current}" for d in changes)
            return NotComparable(Outcome.INCOMPARABLE, f"{metric.name} in {self.name} has {change_text}", changes)
        if changes := find_work_differences(
            self.captures.facts, self.base_captures.facts, metric, spec, self.gate.comparable_on
        ):
            change_text = describe_differences(changes, self.name)
            return NotComparable(Outcome.INCOMPARABLE, f"the engine did other work ({change_text})", changes)
        self._refuse_one_capture()
        if base_table.missing:
            labels, reason = base_table.missing[0]
            place = " ".join((self.name, format_labels(zip(metric.dimensions, labels, strict=True)))).rstrip()
            return NotComparable(Outcome.NO_DATA, f"in {place}: {reason}")
        outlier_notes = [
            Note(f"{self.name}: {line}", True) for line in self.base_captures.describe_outlying_captures(metric, spec)
        ]
        outlier_notes += (
            [Note(f"{self.name}: {hiccup.line}")] if (hiccup := self.base_captures.omitted_capture) is not None else []
        )
        row_decisions = self._decide_rows(assertion)
        basis_notes = map(Note, dict.fromkeys(decision.basis for decision in row_decisions.values()))
        return Reference(
            runs=[base_table],
            decisions=row_decisions,
            origin=self.name,
            notes=(*basis_notes, *outlier_notes, *copy_notes),
        )

    @property
    def steps(self) -> int:
        """Return the largest number of steps of a rank of the other run."""
        return count_stored_steps(self.base_captures.facts)

    @cached_property
    def baseline_breakdowns(self) -> RunBreakdowns:
        """Return the windows of the other run."""
        return RunBreakdowns(self.base_captures)


def select_common_rows(runs: Sequence[Mapping[RowLabels, Value]]) -> list[dict[RowLabels, Value]]:
    """Return the rows that most runs have, from each run that has all of them; empty if there are none.

    A single run with a row missing or added does not change the result.
    """
    counts = Counter(labels for run in runs for labels in run)
    # More than half, so that a single run neither adds nor removes a row.
    common_labels = [labels for labels, count in counts.items() if 2 * count > len(runs)]
    complete_runs = [run for run in runs if common_labels and all(labels in run for labels in common_labels)]
    return [{labels: run[labels] for labels in common_labels} for run in complete_runs]


def make_run_reference(assertion: Assertion, tables: Sequence[MetricTable], origin: str) -> Reference:
    """Return the reference of an assertion whose limit follows runs, oldest first, with one hiccup left out."""
    hiccup = find_judged_hiccup([(assertion, tables)])
    if hiccup is None:
        return Reference(tables, origin=origin)
    note = Note(f"run {hiccup.capture_index + 1} of these {len(tables)} is left out: {hiccup.reason}")
    remaining_tables = [table for place, table in enumerate(tables) if place != hiccup.capture_index]
    return Reference(remaining_tables, origin=origin, notes=(note,))


@dataclass
class PastRuns(ReferenceSource):
    """Compares with earlier comparable runs of the gate file that the history lists under ``name``.

    Their last values serve as accepted runs for a limit on the history; their verdicts show whether an assertion that
    is bad now was bad before.
    """

    captures: Captures
    gate: GateFile
    name: str
    path: Path | None  # of the history; None where there is none
    format_path: Callable[[Path], str] = str  # shortens a path for messages
    ref: str = ""  # the revision that baselines are read from; empty: the work tree

    def find_reference(self, assertion: Assertion) -> Reference | NotComparable:
        """Return the newest runs with the same circumstances, or why there are none. Raises HistoryError."""
        from pytest_nsys.stored.history.database import format_sorted_json

        metric, limit = assertion.measured_metric, assertion.requirement.limit
        assert isinstance(limit, BaselineLimit)
        assert limit.history is not None
        if self.path is None:
            return NotComparable(Outcome.NO_DATA, "the limit is from the history: give it with --nsys-history=PATH")
        if not self.path.exists():  # the first session with this history
            return NotComparable(
                Outcome.NO_DATA,
                f"there is no history yet in {self.format_path(self.path)}: {limit.history.first_comparison}",
            )
        history_limit = limit.history
        metric_kind = {"unit": str(metric.unit), "dimensions": format_sorted_json(list(metric.dimensions))}
        history = self._open_history(assertion)
        runs = history.read_last_runs(history_limit.run_count, history_limit.branch, history_limit.lag, metric_kind)
        if not runs and replace(history, own_commits=(), own_times={}).read_last_runs(
            history_limit.run_count, history_limit.branch, history_limit.lag, metric_kind
        ):
            only_text = f"{self.format_path(self.path)} holds {metric.name} of this commit, or of this capture, alone"
            return NotComparable(
                Outcome.NO_DATA, f"{only_text}: a run is never held to itself: {history_limit.first_comparison}"
            )
        if not runs:
            branch_text = f" on branch {history_limit.branch}" if history_limit.branch is not None else ""
            lag_text = f" before the newest {history_limit.lag}, which lag leaves out" if history_limit.lag else ""
            missing_text = (
                f"{self.format_path(self.path)} holds no comparable run of {metric.name}{branch_text}{lag_text}"
            )
            return NotComparable(Outcome.NO_DATA, f"{missing_text}: {history_limit.first_comparison}")
        tables = [self.captures.build_stored_table(metric, run) for run in select_common_rows(runs)]
        if not tables:
            return NotComparable(
                Outcome.NO_DATA, f"the runs in {self.format_path(self.path)} have no row of {metric.name} in common"
            )
        return make_run_reference(assertion, tables, f"{history_limit.source} in {self.format_path(self.path)}")

    @cached_property
    def branch(self) -> str | None:
        """Return the branch that is judged, as the history will name it; None where git names none."""
        return read_revision(self.gate.path.parent).branch

    @cached_property
    def _baseline_branch(self) -> str | None:
        """Return the branch that baselines are read from; None where they are those of the work tree."""
        return resolve_branch(self.ref, self.gate.path.parent) if self.ref else None

    def find_own_bad_runs(self, assertion: Assertion) -> BadRuns | None:
        """Return the bad runs in a row on the branch that is judged; None where no history counts them.

        A branch that begins with this run has none: a job that begins its history anew each time, or with that of
        another branch, would wait for ever. Raises HistoryError, TraceError.
        """
        return self._find_bad_runs(self.branch, assertion) if self.path is not None else None

    def find_base_bad_runs(self, assertion: Assertion) -> BadRuns | None:
        """Return the bad runs in a row on the branch that the run is compared with; None where there is no such branch,
        or no history counts them.
        """
        limit = assertion.requirement.limit
        followed_branch = (
            limit.history.branch if isinstance(limit, BaselineLimit) and limit.history is not None else None
        )
        return (
            self._find_bad_runs(followed_branch or self._baseline_branch, assertion) if self.path is not None else None
        )

    def _find_bad_runs(self, branch: str | None, assertion: Assertion) -> BadRuns | None:
        if self.path is None or branch is None or not self.path.exists():
            return None
        return self._open_history(assertion).read_bad_runs(branch)

    def _open_history(self, assertion: Assertion) -> AssertionHistory:
        from pytest_nsys.stored.history.assertion_history import AssertionHistory, AssertionIdentity

        assert self.path is not None
        sid = build_series_id(assertion.measured_metric, resolve_window_spec(self.captures.convention, assertion))
        assertion_key = AssertionIdentity(assertion, sid, list_other_names(assertion, self.gate))
        key, commits = self.captures.build_identity(self.gate.run), list_heads(self.gate.path.parent)
        return AssertionHistory(
            self.path, self.name, key, assertion_key, self.gate.comparable_on, commits, self._time_rows
        )

    @cached_property
    def _time_rows(self) -> Mapping[tuple[SeriesId, RowLabels], Value]:
        """Return all rows of time that are not 0, of all that the gate file measures in the trace."""
        time_rows: dict[tuple[SeriesId, RowLabels], Value] = {}
        for assertion in self.gate.assertions:
            if assertion.outside_metric is None and assertion.measured_metric.unit == TIME:
                spec = resolve_window_spec(self.captures.convention, assertion)
                with suppress(NsysError):  # the assertion says why
                    rows = self.captures.measure_rows(assertion.measured_metric, spec).rows
                    time_rows |= {
                        (build_series_id(assertion.measured_metric, spec), row.labels): row.value
                        for row in rows
                        if row.value
                    }
        return time_rows
