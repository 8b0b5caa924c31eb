"""A run becomes the new normal: when does a refresh refuse, and what does it write?

It refuses, for a whole gate file, on any assertion in error and on a structural assertion (a count held against a
constant) that fails. An assertion without data is left out: what is stored of it stays, and the others are written. A
calibration refuses on it, as all rows of its traces go together. Which rows are written is the mode's
(``refresh_modes``); the rows of one file never come from runs of different circumstances. One write per file, at the
end, under a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.windows.circumstances import RunKey
from pytest_nsys.core.errors import BaselineError, IncomparableError, NothingMeasured, NsysError
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import COUNT, SIZE
from pytest_nsys.core.words import counted, ranks_words
from pytest_nsys.gates.comparability import all_differences, told
from pytest_nsys.gates.hiccups import Hiccup
from pytest_nsys.gates.judgement import Judgement
from pytest_nsys.gates.model import Assertion, GateFile, Outcome, spec_for
from pytest_nsys.gates.noise import FEWEST_TRACES
from pytest_nsys.stored.baselines.baseline_file import (
    NOISE,
    WINDOW,
    Baseline,
    RowLabels,
    SeriesId,
    StoredSeries,
    series_for,
    stale,
)
from pytest_nsys.stored.baselines.changes import RowChange, changes
from pytest_nsys.stored.baselines.store import BaselineStore, digest_of, window_beside
from pytest_nsys.tools.git import commit_of
from pytest_nsys.verdicts.evaluate import GateContext, rows_now
from pytest_nsys.verdicts.gate_windows import telling_ranks
from pytest_nsys.verdicts.refresh_modes import Mode, Remeasured, keep_unmeasured, renew
from pytest_nsys.verdicts.stored_baseline import find_stored_hiccups

LARGEST_WINDOW_BYTES = 1_000_000
"""Limits the size of the window file of each accepted run, as git keeps every one of them."""


class Keep(Protocol):
    """Packs the file of a run's windows, of all its ranks or of some. Raises NsysError."""

    def __call__(self, context: GateContext, ranks: frozenset[int] | None = None, /) -> bytes: ...


class Refusal(NamedTuple):
    """Says why a gate file is not refreshed, with the outcome that stands in the way."""

    reason: str
    outcome: Outcome


@dataclass(frozen=True)
class Written:
    """Describes a baseline file after its refresh."""

    path: Path
    mode: Mode
    old: Baseline | None  # None where no run of this key had been accepted
    new: Baseline
    saved: bool  # whether the file was written, as it had to be
    notes: tuple[str, ...] = ()
    kept: str = ""  # what became of the run's windows

    @cached_property
    def changes(self) -> list[RowChange]:
        """Return the rows whose baseline changed."""
        return list(changes(self.old.series if self.old else {}, self.new.series))

    @property
    def words(self) -> str:
        """Return what happened to the file, in a few words."""
        if self.old is None:
            return f"new file, {counted(len(self.changes), 'row')}"
        if not self.saved:
            return f"{_UNCHANGED[self.mode]}; unchanged"
        if self.mode is Mode.ACCEPT_RUN:
            runs = max((len(series.runs) for series in self.new.series.values()), default=0)
            return f"run accepted, {counted(runs, 'run')} kept"
        if self.mode is Mode.CALIBRATE and not self.changes:
            return "the accepted runs are as they were, their noise is new"
        if self.old.series == self.new.series:
            return "no row changed; the windows of this run are kept now"
        return f"{counted(len(self.changes), 'row')} changed"


_UNCHANGED = {
    Mode.MOVED: "no row moved beyond its tolerance",
    Mode.ALL: "every row has its value already",
    Mode.CALIBRATE: "calibrated on these traces already",
}


@dataclass
class Refresh:
    """Refreshes the baseline of one gate file, with the rows of the assertions that ``wanted_assertions`` collects."""

    gate: GateFile
    context: GateContext
    reason: str
    mode: Mode = Mode.MOVED
    shown: Callable[[Path], str] = str  # spells a path as the person would
    keep: Keep | None = None  # packs the file of the run's windows that is kept beside the baseline
    wanted: list[Assertion] = field(default_factory=list)  # the assertions whose rows are written

    @cached_property
    def refusal(self) -> Refusal | None:
        """Return why nothing of this gate file is refreshed; None where nothing speaks against it.

        All assertions of the file are looked at, deselected ones too. Raises TraceError, BaselineError.
        """
        if self.mode is not Mode.CALIBRATE:
            return self._refusal_of(self.context)
        trace_count = self.context.captures.taken
        if trace_count < FEWEST_TRACES:
            reason = f"noise is measured on {FEWEST_TRACES} or more traces, not on {trace_count}"
            return Refusal(reason, Outcome.ERROR)
        for name, captures in self._each.items():
            if refusal := self._refusal_of(replace(self.context, captures=captures)):
                return Refusal(f"{name}: {refusal.reason}", refusal.outcome)
        return None

    @cached_property
    def without_data(self) -> Mapping[str, str]:
        """Return why assertions have no data, by their full names: their rows are not written."""
        if self.mode is Mode.CALIBRATE:
            return {}
        return {
            assertion.full_name: str(judgement) if isinstance(judgement, NsysError) else judgement.reason
            for assertion, judgement in self._rows_now
            if _has_no_data(judgement)
        }

    @cached_property
    def _rows_now(self) -> Sequence[tuple[Assertion, Judgement | NsysError]]:
        return list(_look_at(self.gate.assertions, self.context))

    def _refusal_of(self, context: GateContext) -> Refusal | None:
        is_calibration = self.mode is Mode.CALIBRATE
        for assertion, judgement in _look_at(self.gate.assertions, context) if is_calibration else self._rows_now:
            if _has_no_data(judgement) and not is_calibration:
                continue
            if isinstance(judgement, NsysError):
                outcome = Outcome.NO_DATA if _has_no_data(judgement) else Outcome.ERROR
                return Refusal(f"'{assertion.full_name}' is in error: {judgement}", outcome)
            if judgement.outcome is Outcome.NO_DATA:
                return Refusal(f"'{assertion.full_name}' has no data: {judgement.reason}", Outcome.NO_DATA)
            is_structural = assertion.measures.unit == COUNT and not assertion.needs_baseline
            if is_structural and judgement.outcome is Outcome.FAILED:
                return Refusal(f"the structural assertion '{assertion.full_name}' fails", Outcome.FAILED)
        return None

    @cached_property
    def _each(self) -> Mapping[str, Captures]:
        """Return every capture by itself, by the file that it is in."""
        return {self.shown(capture.path): Captures([capture]) for capture in self.context.captures.runs}

    @cached_property
    def _key(self) -> RunKey:
        return self.context.captures.key(self.context.gate.run)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return {name: value for name, value in self.context.captures.facts.items() if value is not None}

    @property
    def path(self) -> Path:
        """Return the file that is written."""
        assert self.context.store is not None
        return self.context.store.path(self._key)

    def readable(self) -> None:
        """Raise BaselineError where what is stored cannot be read: nothing could be written over it."""
        if self.context.store is not None:
            self.context.store.load(self._key)

    def write(self) -> Written:
        """Write the rows that were wanted, and return what became of the file. Raises BaselineError; then nothing is
        written.
        """
        if self.context.store is None:
            raise BaselineError("there is no baseline folder to write to")
        store = self.context.store
        with store.locked():
            return self._write(store)

    def _write(self, store: BaselineStore) -> Written:
        path, old = store.path(self._key), store.load(self._key)
        begins_anew, notes = self._begins_anew(path, old)
        previous = None if begins_anew else old
        stored_series = dict(previous.series) if previous else {}
        hiccups = find_stored_hiccups(self.gate, self.context.captures, previous) if previous else {}
        remeasured = [
            self._remeasured(sid, readers, stored_series.get(sid), hiccups)
            for sid, readers in self._by_series().items()
        ]
        if (hiccup := self.context.captures.left_out) is not None:
            notes.append(hiccup.line)
        if self.mode is Mode.ACCEPT_RUN:
            _refuse_twice(self.shown(path), remeasured)
        series, within_tolerance = dict(stored_series), 0
        for measured_series in remeasured:
            renewal = keep_unmeasured(measured_series, renew(self.mode, measured_series))
            notes += renewal.notes
            series[measured_series.sid] = renewal.series
            if self.mode is Mode.MOVED and previous is not None:
                middles = renewal.series.middles
                within_tolerance += sum(
                    middles.get(labels, value) != value for labels, value in measured_series.now.items()
                )
        if within_tolerance:
            notes.append(f"{counted(within_tolerance, 'row')} within the tolerance kept: --all writes them")
        known_facts = previous.facts if previous else {}
        convention = self.gate.convention if self.gate.found is not None else None
        new = Baseline(self._key.as_json(), store.gate, {}, series, {**known_facts, **self._facts}, convention)
        if self.mode.replaces and not self._is_partial:
            for sid in stale(self.gate, new):
                del series[sid]
        has_moved = previous is None or series != stored_series
        window_file, windows_text = self._window(store, path, old, renewed=has_moved)
        is_saved = has_moved or window_file is not None
        if is_saved:
            new.provenance = self._provenance(previous)
            if window_file is not None:
                new.provenance[WINDOW] = digest_of(window_file)
            store.save(path, new, window_file)
        return Written(path, self.mode, old, new, is_saved, tuple(notes), windows_text)

    def _window(
        self, store: BaselineStore, path: Path, old: Baseline | None, *, renewed: bool
    ) -> tuple[bytes | None, str]:
        """Return the file of windows that is written beside the baseline, None where none is, and what to say of it.

        Windows that are kept stay as long as their baseline does.
        """
        had_windows = old is not None and store.kept_window(path, old) is not None
        if self.mode is Mode.CALIBRATE or (had_windows and not renewed):
            return None, ""
        file_name, (content, reason) = self.shown(window_beside(path)), self._kept()
        if content is not None:
            keeps_rows = old is not None and (self._is_partial or bool(self._stored_without_data(old)))
            is_mixed = keeps_rows or not self.mode.replaces
            part_text = ", though not all rows are of it" if is_mixed else ""
            size = format_value(len(content), SIZE)
            return content, f"{file_name} holds the windows of this run ({size}){reason}{part_text}"
        texts = [f"the windows of this run are not kept: {reason}"] if reason else []
        texts += [f"{file_name} was removed: its windows were of the run before"] if had_windows else []
        return None, "; ".join(texts)

    def _kept(self) -> tuple[bytes | None, str]:
        """Return the packed windows of the run and, where not all ranks fit, of which ranks they are; None, and why,
        where there are none.

        Rows are stored without windows, too.
        """
        if self.keep is None or not self.context.captures.paths or not self.gate.needs_trace:
            return None, ""
        reason = ""
        for ranks in self._ranks_to_keep():
            try:
                content = self.keep(self.context, ranks)
            except NsysError as error:
                reason = reason or str(error)
                continue
            if len(content) <= LARGEST_WINDOW_BYTES:
                ranks_text = (
                    "" if ranks is None else f" of {ranks_words(sorted(ranks))} alone, as of all ranks {reason}"
                )
                return content, ranks_text
            size_text, most_text = (
                format_value(size_bytes, SIZE) for size_bytes in (len(content), LARGEST_WINDOW_BYTES)
            )
            reason = reason or f"they take {size_text}, of at most {most_text}"
        return None, reason

    def _ranks_to_keep(self) -> Iterator[frozenset[int] | None]:
        """Yield all ranks (None), then fewer and fewer of them, as long as there are fewer."""
        yield None
        fewest_ranks = len(self.context.captures.runs[0].ranks)
        representative = telling_ranks(self.context)
        for ranks in (representative.spread, representative.worst):
            if len(ranks) < fewest_ranks:
                fewest_ranks = len(ranks)
                yield ranks

    def _begins_anew(self, path: Path, old: Baseline | None) -> tuple[bool, list[str]]:
        """Return whether nothing of what is stored may stay, as its run was of other circumstances, and what to say of
        it.

        Raises IncomparableError where the mode, or a part of the file, has to leave something.
        """
        comparable_on = self.gate.comparable_on
        if self.mode is Mode.CALIBRATE:
            first_item, *other_items = self._each.items()
            for name, captures in other_items:
                if difference_text := told(
                    all_differences(captures.facts, first_item[1].facts, comparable_on), first_item[0]
                ):
                    raise IncomparableError(
                        f"{name} is from a different setup than {first_item[0]} ({difference_text})"
                    )
        difference_text = told(all_differences(self._facts, old.facts, comparable_on)) if old else ""
        if old is None or not difference_text:
            return False, []
        if self.mode.replaces and (names := self._stored_without_data(old)):
            raise IncomparableError(
                f"{self.shown(path)}: holds another run ({difference_text}), of which the rows of "
                f"'{names[0]}' stay, as it has no data now, and one file never mixes two: record "
                "what it measures, or remove it"
            )
        kept_series = {*old.series} - {*self._by_series()} - {*stale(self.gate, old)}
        if not self.mode.replaces or kept_series:
            raise IncomparableError(
                f"{self.shown(path)}: holds another run ({difference_text}), and one file never mixes two: "
                "refresh the whole gate file, without -k and --accept-run"
            )
        calibration_hint = (
            ", and its noise is to be calibrated again" if any(s.calibration for s in old.series.values()) else ""
        )
        return True, [f"the stored run was another one ({difference_text}): every row is written{calibration_hint}"]

    @property
    def _is_partial(self) -> bool:
        """Whether a person selected some assertions: nothing else is touched then, not even what is stale."""
        handled_names = {assertion.full_name for assertion in self.wanted} | {*self.without_data}
        return any(
            assertion.reads_stored and assertion.full_name not in handled_names for assertion in self.gate.assertions
        )

    def _stored_without_data(self, old: Baseline) -> list[str]:
        """Return the assertions without data that read what is stored, by their full names."""
        convention = self.gate.resolved_convention
        return [
            assertion.full_name
            for assertion in self.gate.assertions
            if assertion.full_name in self.without_data
            and assertion.reads_stored
            and series_for(convention, assertion) in old.series
        ]

    def _by_series(self) -> dict[SeriesId, list[Assertion]]:
        """Group the assertions by the series that they read, of the series that are wanted; assertions that are not
        wanted themselves are among them.
        """
        measured_assertions = [assertion for assertion in self.wanted if assertion.full_name not in self.without_data]
        readers_by_series: dict[SeriesId, list[Assertion]] = {
            series_for(self.gate.resolved_convention, assertion): [] for assertion in measured_assertions
        }
        for assertion in self.gate.assertions:
            if (
                assertion.reads_stored
                and (sid := series_for(self.gate.resolved_convention, assertion)) in readers_by_series
            ):
                readers_by_series[sid].append(self.context.resolved(assertion))
        return readers_by_series

    def _remeasured(
        self,
        sid: SeriesId,
        readers: Sequence[Assertion],
        stored: StoredSeries | None,
        hiccups: Mapping[int, Hiccup],
    ) -> Remeasured:
        captures, hiccup = self.context.captures, hiccups.get(len(stored.runs)) if stored is not None else None
        place = hiccup.place if hiccup is not None else None
        metric = captures.metric(sid.metric)

        def measure_rows(measured_captures: Captures) -> dict[RowLabels, Value]:
            return dict(replace(self.context, captures=measured_captures).measure(readers[0]).rows)

        rows_by_file = (
            {name: measure_rows(file_captures) for name, file_captures in self._each.items()}
            if self.mode is Mode.CALIBRATE
            else {}
        )
        spec, current_rows = spec_for(captures.convention, readers[0]), measure_rows(captures)
        make_table, unordered_streams = partial(captures.stored, metric), captures.unordered(metric, spec)
        unmeasured_readers = [reader for reader in readers if reader.full_name in self.without_data]
        measured_readers = [reader for reader in readers if reader not in unmeasured_readers]
        return Remeasured(
            sid,
            metric,
            current_rows,
            stored,
            measured_readers,
            make_table,
            rows_by_file,
            place,
            unordered_streams,
            unmeasured_readers,
        )

    def _provenance(self, old: Baseline | None) -> dict[str, Any]:
        captures = self.context.captures
        provenance: dict[str, Any] = {
            "reason": self.reason,
            "commit": commit_of(self.gate.path.parent),
            "convention": captures.convention_words if captures.paths else None,
            "profiler": list(captures.profilers()),
        }
        previous = old.provenance if old else {}
        if self.mode is Mode.CALIBRATE:
            noise = {**provenance, "traces": len(captures.runs)}  # those that count
            return {**(previous or {**provenance, "captures": 1}), NOISE: noise}
        kept_noise = {NOISE: previous[NOISE]} if NOISE in previous else {}
        return {**provenance, "captures": len(captures.runs), **kept_noise}


def _look_at(
    assertions: Iterable[Assertion], context: GateContext
) -> Iterator[tuple[Assertion, Judgement | NsysError]]:
    """Yield each assertion with what it would judge, or why nobody can tell."""
    for assertion in assertions:
        try:
            yield assertion, rows_now(assertion, context)
        except NsysError as error:
            yield assertion, error


def _has_no_data(found: Judgement | NsysError) -> bool:
    return isinstance(found, NothingMeasured) or (isinstance(found, Judgement) and found.outcome is Outcome.NO_DATA)


def _refuse_twice(path: str, measured: Sequence[Remeasured]) -> None:
    """Raise BaselineError where the same run was accepted already: it would count as one more of what it is one of."""
    stored_series = [series for series in measured if series.stored is not None]
    if stored_series and all(
        series.stored is not None and dict(series.now) in series.stored.runs for series in stored_series
    ):
        raise BaselineError(f"{path}: this run is accepted already: every row has the same value; nothing was changed")
