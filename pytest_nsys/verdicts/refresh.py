"""A refresh accepts a run as the new baseline: when does it refuse, and what does it write?

It refuses the whole gate file if any assertion is in error or a structural assertion (a count with a constant limit)
fails. An assertion without data is left out: its stored rows stay, and the others are written. A calibration refuses
then, as all rows of its traces belong together. The mode decides which rows are written (``refresh_modes``); the rows
of one file never come from runs with different circumstances. One write per file, at the end, under a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.windows.run_conditions import RunKey
from pytest_nsys.core.errors import BaselineError, IncomparableError, NothingMeasured, NsysError
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import format_count, format_ranks
from pytest_nsys.core.units import COUNT, SIZE
from pytest_nsys.gates.comparability import describe_differences, find_all_differences
from pytest_nsys.gates.hiccups import Hiccup
from pytest_nsys.gates.judgement import Judgement
from pytest_nsys.gates.model import Assertion, GateFile, Outcome, resolve_window_spec
from pytest_nsys.gates.noise import FEWEST_TRACES
from pytest_nsys.stored.baselines.baseline_file import (
    NOISE_KEY,
    WINDOW_DIGEST_KEY,
    Baseline,
    RowLabels,
    SeriesId,
    StoredSeries,
    build_assertion_series_id,
    list_unread_series,
)
from pytest_nsys.stored.baselines.row_changes import RowChange, list_row_changes
from pytest_nsys.stored.baselines.store import BaselineStore, build_window_path, compute_digest
from pytest_nsys.tools.git import find_commit
from pytest_nsys.verdicts.evaluate import GateContext, judge_without_baseline
from pytest_nsys.verdicts.gate_windows import select_representative_ranks
from pytest_nsys.verdicts.refresh_modes import RefreshMode, RemeasuredSeries, keep_unmeasured, renew_series
from pytest_nsys.verdicts.stored_baseline import find_stored_hiccups

LARGEST_WINDOW_BYTES = 1_000_000
"""Limits the size of the window file of each accepted run, as git keeps every one of them."""


class WindowPacker(Protocol):
    """Packs the windows of a run, of all ranks or of some, into the bytes of a file. Raises NsysError."""

    def __call__(self, context: GateContext, ranks: frozenset[int] | None = None, /) -> bytes: ...


class Refusal(NamedTuple):
    """Says why a gate file is not refreshed, with the outcome that prevents it."""

    reason: str
    outcome: Outcome


@dataclass(frozen=True)
class WrittenBaseline:
    """Describes a baseline file after its refresh."""

    path: Path
    mode: RefreshMode
    old: Baseline | None  # None if no run with this key was accepted before
    new: Baseline
    is_saved: bool  # whether the file was written; False if nothing changed
    notes: tuple[str, ...] = ()
    windows_text: str = ""  # what became of the run's windows

    @cached_property
    def changes(self) -> list[RowChange]:
        """Return the rows whose baseline changed."""
        return list(list_row_changes(self.old.series if self.old else {}, self.new.series))

    @property
    def summary(self) -> str:
        """Return what happened to the file, in a few words."""
        if self.old is None:
            return f"new file, {format_count(len(self.changes), 'row')}"
        if not self.is_saved:
            return f"{_UNCHANGED_TEXTS[self.mode]}; unchanged"
        if self.mode is RefreshMode.ACCEPT_RUN:
            runs = max((len(series.rows_by_run) for series in self.new.series.values()), default=0)
            return f"run accepted, {format_count(runs, 'run')} kept"
        if self.mode is RefreshMode.CALIBRATE and not self.changes:
            return "the accepted runs are as they were, their noise is new"
        if self.old.series == self.new.series:
            return "no row changed; the windows of this run are kept now"
        return f"{format_count(len(self.changes), 'row')} changed"


_UNCHANGED_TEXTS = {
    RefreshMode.MOVED: "no row moved beyond its tolerance",
    RefreshMode.ALL: "every row has its value already",
    RefreshMode.CALIBRATE: "calibrated on these traces already",
}


@dataclass
class GateBaselineRefresh:
    """Refreshes the baseline of one gate file, with the rows of the assertions that ``wanted_assertions`` collects."""

    gate: GateFile
    context: GateContext
    reason: str
    mode: RefreshMode = RefreshMode.MOVED
    format_path: Callable[[Path], str] = str  # spells a path as the person would
    pack_windows: WindowPacker | None = None  # packs the window file that is kept next to the baseline
    wanted_assertions: list[Assertion] = field(default_factory=list)  # the assertions whose rows are written

    @cached_property
    def refresh_refusal(self) -> Refusal | None:
        """Return why nothing of this gate file is refreshed; None if it can be refreshed.

        All assertions of the file are looked at, deselected ones too. Raises TraceError, BaselineError.
        """
        if self.mode is not RefreshMode.CALIBRATE:
            return self._find_refusal(self.context)
        trace_count = self.context.captures.capture_count
        if trace_count < FEWEST_TRACES:
            reason = f"noise is measured on {FEWEST_TRACES} or more traces, not on {trace_count}"
            return Refusal(reason, Outcome.ERROR)
        for name, captures in self._captures_by_file.items():
            if refusal := self._find_refusal(replace(self.context, captures=captures)):
                return Refusal(f"{name}: {refusal.reason}", refusal.outcome)
        return None

    @cached_property
    def reasons_without_data(self) -> Mapping[str, str]:
        """Return why assertions have no data, by their full names: their rows are not written."""
        if self.mode is RefreshMode.CALIBRATE:
            return {}
        return {
            assertion.full_name: str(judgement) if isinstance(judgement, NsysError) else judgement.reason
            for assertion, judgement in self._judgements
            if _has_no_data(judgement)
        }

    @cached_property
    def _judgements(self) -> Sequence[tuple[Assertion, Judgement | NsysError]]:
        return list(_judge_each(self.gate.assertions, self.context))

    def _find_refusal(self, context: GateContext) -> Refusal | None:
        is_calibration = self.mode is RefreshMode.CALIBRATE
        for assertion, judgement in _judge_each(self.gate.assertions, context) if is_calibration else self._judgements:
            if _has_no_data(judgement) and not is_calibration:
                continue
            if isinstance(judgement, NsysError):
                outcome = Outcome.NO_DATA if _has_no_data(judgement) else Outcome.ERROR
                return Refusal(f"'{assertion.full_name}' is in error: {judgement}", outcome)
            if judgement.outcome is Outcome.NO_DATA:
                return Refusal(f"'{assertion.full_name}' has no data: {judgement.reason}", Outcome.NO_DATA)
            is_structural = assertion.measured_metric.unit == COUNT and not assertion.needs_baseline
            if is_structural and judgement.outcome is Outcome.FAILED:
                return Refusal(f"the structural assertion '{assertion.full_name}' fails", Outcome.FAILED)
        return None

    @cached_property
    def _captures_by_file(self) -> Mapping[str, Captures]:
        """Return every capture as captures of its own, by its file."""
        return {self.format_path(capture.path): Captures([capture]) for capture in self.context.captures.runs}

    @cached_property
    def _key(self) -> RunKey:
        return self.context.captures.build_key(self.context.gate.run)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return {name: value for name, value in self.context.captures.facts.items() if value is not None}

    @property
    def path(self) -> Path:
        """Return the file that is written."""
        assert self.context.store is not None
        return self.context.store.build_path(self._key)

    def check_readable(self) -> None:
        """Raise BaselineError if the stored baseline cannot be read, as it must not be overwritten."""
        if self.context.store is not None:
            self.context.store.load(self._key)

    def write(self) -> WrittenBaseline:
        """Write the rows of ``wanted_assertions``, and return what happened to the file. If it raises BaselineError,
        nothing is written.
        """
        if self.context.store is None:
            raise BaselineError("there is no baseline folder to write to")
        store = self.context.store
        with store.lock():
            return self._write(store)

    def _write(self, store: BaselineStore) -> WrittenBaseline:
        path, old = store.build_path(self._key), store.load(self._key)
        begins_anew, notes = self._begins_anew(path, old)
        previous = None if begins_anew else old
        stored_series = dict(previous.series) if previous else {}
        hiccups = find_stored_hiccups(self.gate, self.context.captures, previous) if previous else {}
        remeasured = [
            self._measure_series_again(sid, readers, stored_series.get(sid), hiccups)
            for sid, readers in self._group_by_series().items()
        ]
        if (hiccup := self.context.captures.omitted_capture) is not None:
            notes.append(hiccup.line)
        if self.mode is RefreshMode.ACCEPT_RUN:
            _refuse_accepted_run(self.format_path(path), remeasured)
        series, within_tolerance = dict(stored_series), 0
        for measured_series in remeasured:
            renewal = keep_unmeasured(measured_series, renew_series(self.mode, measured_series))
            notes += renewal.notes
            series[measured_series.sid] = renewal.series
            if self.mode is RefreshMode.MOVED and previous is not None:
                middles = renewal.series.baseline_values
                within_tolerance += sum(
                    middles.get(labels, value) != value for labels, value in measured_series.current_rows.items()
                )
        if within_tolerance:
            notes.append(f"{format_count(within_tolerance, 'row')} within the tolerance kept: --all writes them")
        known_facts = previous.facts if previous else {}
        convention = self.gate.convention if self.gate.found_convention is not None else None
        new = Baseline(self._key.as_json(), store.gate, {}, series, {**known_facts, **self._facts}, convention)
        if self.mode.replaces and not self._is_partial:
            for sid in list_unread_series(self.gate, new):
                del series[sid]
        has_moved = previous is None or series != stored_series
        stored_window = store.read_stored_window(path, old) if old is not None else None
        window_file: bytes | None
        if stored_window is not None and has_moved and self.mode.replaces and stored_series.items() <= series.items():
            # The windows explain the rows that were there: new ones beside them change nothing of that.
            window_file, windows_text = stored_window, ""
        else:
            had_windows = stored_window is not None
            window_file, windows_text = self._make_window_file(path, old, had_windows=had_windows, has_moved=has_moved)
        is_saved = has_moved or window_file is not None
        if is_saved:
            new.provenance = self._make_provenance(previous)
            if window_file is not None:
                new.provenance[WINDOW_DIGEST_KEY] = compute_digest(window_file)
            store.save(path, new, window_file)
        return WrittenBaseline(path, self.mode, old, new, is_saved, tuple(notes), windows_text)

    def _make_window_file(
        self, path: Path, old: Baseline | None, *, had_windows: bool, has_moved: bool
    ) -> tuple[bytes | None, str]:
        """Return the content of the window file next to the baseline, None for no file, and the message about it.

        Kept windows stay as long as the values of their baseline.
        """
        if self.mode is RefreshMode.CALIBRATE or (had_windows and not has_moved):
            return None, ""
        file_name, (content, reason) = self.format_path(build_window_path(path)), self._pack_kept_windows()
        if content is not None:
            keeps_rows = old is not None and (self._is_partial or bool(self._list_stored_without_data(old)))
            is_mixed = keeps_rows or not self.mode.replaces
            part_text = ", though not all rows are of it" if is_mixed else ""
            size = format_value(len(content), SIZE)
            return content, f"{file_name} holds the windows of this run ({size}){reason}{part_text}"
        texts = [f"the windows of this run are not kept: {reason}"] if reason else []
        texts += [f"{file_name} was removed: its windows were of the run before"] if had_windows else []
        return None, "; ".join(texts)

    def _pack_kept_windows(self) -> tuple[bytes | None, str]:
        """Return the packed windows of the run, and which ranks they cover if not all ranks fit; or None and the
        reason.

        Rows are stored even without windows.
        """
        if self.pack_windows is None or not self.context.captures.paths or not self.gate.needs_trace:
            return None, ""
        reason = ""
        for ranks in self._list_rank_sets_to_try():
            try:
                content = self.pack_windows(self.context, ranks)
            except NsysError as error:
                reason = reason or str(error)
                continue
            if len(content) <= LARGEST_WINDOW_BYTES:
                ranks_text = (
                    "" if ranks is None else f" of {format_ranks(sorted(ranks))} alone, as of all ranks {reason}"
                )
                return content, ranks_text
            size_text, most_text = (
                format_value(size_bytes, SIZE) for size_bytes in (len(content), LARGEST_WINDOW_BYTES)
            )
            reason = reason or f"they take {size_text}, of at most {most_text}"
        return None, reason

    def _list_rank_sets_to_try(self) -> Iterator[frozenset[int] | None]:
        """Yield all ranks (None), then ever smaller sets of ranks."""
        yield None
        fewest_ranks = len(self.context.captures.runs[0].ranks)
        representative = select_representative_ranks(self.context)
        for ranks in (representative.spread, representative.worst):
            if len(ranks) < fewest_ranks:
                fewest_ranks = len(ranks)
                yield ranks

    def _begins_anew(self, path: Path, old: Baseline | None) -> tuple[bool, list[str]]:
        """Return whether all stored rows must be replaced, as their run had other circumstances, and the messages about
        that.

        Raises IncomparableError if the mode, or a refresh of a part of the file, has to keep stored rows.
        """
        comparable_on = self.gate.comparable_on
        if self.mode is RefreshMode.CALIBRATE:
            first_item, *other_items = self._captures_by_file.items()
            for name, captures in other_items:
                if difference_text := describe_differences(
                    find_all_differences(captures.facts, first_item[1].facts, comparable_on), first_item[0]
                ):
                    raise IncomparableError(
                        f"{name} is from a different setup than {first_item[0]} ({difference_text})"
                    )
        difference_text = (
            describe_differences(find_all_differences(self._facts, old.facts, comparable_on)) if old else ""
        )
        if old is None or not difference_text:
            return False, []
        if self.mode.replaces and (names := self._list_stored_without_data(old)):
            raise IncomparableError(
                f"{self.format_path(path)}: holds another run ({difference_text}), of which the rows of "
                f"'{names[0]}' stay, as it has no data now, and one file never mixes two: record "
                "what it measures, or remove it"
            )
        kept_series = {*old.series} - {*self._group_by_series()} - {*list_unread_series(self.gate, old)}
        if not self.mode.replaces or kept_series:
            raise IncomparableError(
                f"{self.format_path(path)}: holds another run ({difference_text}), and one file never mixes two: "
                "refresh the whole gate file, without -k and --accept-run"
            )
        calibration_hint = (
            ", and its noise is to be calibrated again" if any(s.calibration for s in old.series.values()) else ""
        )
        return True, [f"the stored run was another one ({difference_text}): every row is written{calibration_hint}"]

    @property
    def _is_partial(self) -> bool:
        """Whether only some assertions are selected: then nothing else is changed, not even stale rows."""
        handled_names = {assertion.full_name for assertion in self.wanted_assertions} | {*self.reasons_without_data}
        return any(
            assertion.reads_stored_baseline and assertion.full_name not in handled_names
            for assertion in self.gate.assertions
        )

    def _list_stored_without_data(self, old: Baseline) -> list[str]:
        """Return the full names of assertions without data that read stored rows."""
        convention = self.gate.resolved_convention
        return [
            assertion.full_name
            for assertion in self.gate.assertions
            if assertion.full_name in self.reasons_without_data
            and assertion.reads_stored_baseline
            and build_assertion_series_id(convention, assertion) in old.series
        ]

    def _group_by_series(self) -> dict[SeriesId, list[Assertion]]:
        """Group all assertions by the series that they read, for each series that a wanted assertion reads."""
        measured_assertions = [
            assertion for assertion in self.wanted_assertions if assertion.full_name not in self.reasons_without_data
        ]
        readers_by_series: dict[SeriesId, list[Assertion]] = {
            build_assertion_series_id(self.gate.resolved_convention, assertion): [] for assertion in measured_assertions
        }
        for assertion in self.gate.assertions:
            if (
                assertion.reads_stored_baseline
                and (sid := build_assertion_series_id(self.gate.resolved_convention, assertion)) in readers_by_series
            ):
                readers_by_series[sid].append(self.context.resolve(assertion))
        return readers_by_series

    def _measure_series_again(
        self,
        sid: SeriesId,
        readers: Sequence[Assertion],
        stored_series: StoredSeries | None,
        hiccups: Mapping[int, Hiccup],
    ) -> RemeasuredSeries:
        captures, hiccup = (
            self.context.captures,
            hiccups.get(len(stored_series.rows_by_run)) if stored_series is not None else None,
        )
        place = hiccup.capture_index if hiccup is not None else None
        metric = captures.resolve_metric(sid.metric)

        def measure_rows(measured_captures: Captures) -> dict[RowLabels, Value]:
            return dict(replace(self.context, captures=measured_captures).measure(readers[0]).rows)

        rows_by_file = (
            {name: measure_rows(file_captures) for name, file_captures in self._captures_by_file.items()}
            if self.mode is RefreshMode.CALIBRATE
            else {}
        )
        spec, current_rows = resolve_window_spec(captures.convention, readers[0]), measure_rows(captures)
        make_table, unordered_streams = (
            partial(captures.build_stored_table, metric),
            captures.list_unordered_streams(metric, spec),
        )
        unmeasured_readers = [reader for reader in readers if reader.full_name in self.reasons_without_data]
        measured_readers = [reader for reader in readers if reader not in unmeasured_readers]
        return RemeasuredSeries(
            sid,
            metric,
            current_rows,
            stored_series,
            measured_readers,
            make_table,
            rows_by_file,
            place,
            unordered_streams,
            unmeasured_readers,
        )

    def _make_provenance(self, old: Baseline | None) -> dict[str, Any]:
        captures = self.context.captures
        provenance: dict[str, Any] = {
            "reason": self.reason,
            "commit": find_commit(self.gate.path.parent),
            "convention": captures.convention_text if captures.paths else None,
            "profiler": list(captures.list_profilers()),
        }
        previous = old.provenance if old else {}
        if self.mode is RefreshMode.CALIBRATE:
            noise = {**provenance, "traces": len(captures.runs)}  # without hiccups
            return {**(previous or {**provenance, "captures": 1}), NOISE_KEY: noise}
        kept_noise = {NOISE_KEY: previous[NOISE_KEY]} if NOISE_KEY in previous else {}
        return {**provenance, "captures": len(captures.runs), **kept_noise}


def _judge_each(
    assertions: Iterable[Assertion], context: GateContext
) -> Iterator[tuple[Assertion, Judgement | NsysError]]:
    """Yield each assertion with its judgement without a baseline, or the error that prevents one."""
    for assertion in assertions:
        try:
            yield assertion, judge_without_baseline(assertion, context)
        except NsysError as error:
            yield assertion, error


def _has_no_data(judgement: Judgement | NsysError) -> bool:
    return isinstance(judgement, NothingMeasured) or (
        isinstance(judgement, Judgement) and judgement.outcome is Outcome.NO_DATA
    )


def _refuse_accepted_run(path: str, remeasured: Sequence[RemeasuredSeries]) -> None:
    """Raise BaselineError if the run was accepted already, as it would count twice."""
    stored_series = [series for series in remeasured if series.stored_series is not None]
    if stored_series and all(
        series.stored_series is not None and dict(series.current_rows) in series.stored_series.rows_by_run
        for series in stored_series
    ):
        raise BaselineError(f"{path}: this run is accepted already: every row has the same value; nothing was changed")
