"""A run becomes the new normal: when does a refresh refuse, and what does it write?

It refuses, for a whole gate file, on any assertion in error and on a structural assertion (a count held against a
constant) that fails. An assertion without data is left out: what is stored of it stays, and
the others are written. A calibration refuses on it, as all rows of its traces go together. Which rows are written is
the mode's (``refresh_modes``); the rows of one file never come from runs of different circumstances. One write per
file, at the end, under a lock.
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
"""What a repository bears of each accepted run, as git keeps every one of them."""


class Keep(Protocol):
    """Makes the file of a run's windows, of all its ranks or of some. Raises NsysError."""

    def __call__(self, context: GateContext, ranks: frozenset[int] | None = None, /) -> bytes: ...


class Refusal(NamedTuple):
    """Why a gate file is not refreshed, and the outcome that stands in the way."""

    reason: str
    outcome: Outcome


@dataclass(frozen=True)
class Written:
    """A baseline after its refresh: ``old`` None where no run of this key had been accepted.

    ``saved`` where the file was written, as it had to be; ``kept`` is what became of the run's windows.
    """

    path: Path
    mode: Mode
    old: Baseline | None
    new: Baseline
    saved: bool
    notes: tuple[str, ...] = ()
    kept: str = ""

    @cached_property
    def changes(self) -> list[RowChange]:
        """The rows whose baseline is another one now."""
        return list(changes(self.old.series if self.old else {}, self.new.series))

    @property
    def words(self) -> str:
        """What happened to the file, in a few words."""
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
    """The refresh of one gate file's baseline. ``wanted`` collects the assertions whose rows it writes.

    ``shown`` spells a path as the person would. ``keep`` makes the file of the run's windows that is kept beside the
    baseline.
    """

    gate: GateFile
    context: GateContext
    reason: str
    mode: Mode = Mode.MOVED
    shown: Callable[[Path], str] = str
    keep: Keep | None = None
    wanted: list[Assertion] = field(default_factory=list)

    @cached_property
    def refusal(self) -> Refusal | None:
        """Why nothing of this gate file is refreshed; None where nothing speaks against it.

        All assertions of the file are looked at, deselected ones too. Raises TraceError, BaselineError.
        """
        if self.mode is not Mode.CALIBRATE:
            return self._refusal_of(self.context)
        count = self.context.captures.taken
        if count < FEWEST_TRACES:
            what = f"noise is measured on {FEWEST_TRACES} or more traces, not on {count}"
            return Refusal(what, Outcome.ERROR)
        for name, captures in self._each.items():
            if refusal := self._refusal_of(replace(self.context, captures=captures)):
                return Refusal(f"{name}: {refusal.reason}", refusal.outcome)
        return None

    @cached_property
    def without_data(self) -> Mapping[str, str]:
        """Why assertions have no data, by their full names: their rows are not written."""
        if self.mode is Mode.CALIBRATE:
            return {}
        return {
            assertion.full_name: str(found) if isinstance(found, NsysError) else found.reason
            for assertion, found in self._rows_now
            if _has_no_data(found)
        }

    @cached_property
    def _rows_now(self) -> Sequence[tuple[Assertion, Judgement | NsysError]]:
        return list(_look_at(self.gate.assertions, self.context))

    def _refusal_of(self, context: GateContext) -> Refusal | None:
        calibrates = self.mode is Mode.CALIBRATE
        for assertion, judgement in _look_at(self.gate.assertions, context) if calibrates else self._rows_now:
            if _has_no_data(judgement) and not calibrates:
                continue
            if isinstance(judgement, NsysError):
                outcome = Outcome.NO_DATA if _has_no_data(judgement) else Outcome.ERROR
                return Refusal(f"'{assertion.full_name}' is in error: {judgement}", outcome)
            if judgement.outcome is Outcome.NO_DATA:
                return Refusal(f"'{assertion.full_name}' has no data: {judgement.reason}", Outcome.NO_DATA)
            structural = assertion.measures.unit == COUNT and not assertion.needs_baseline
            if structural and judgement.outcome is Outcome.FAILED:
                return Refusal(f"the structural assertion '{assertion.full_name}' fails", Outcome.FAILED)
        return None

    @cached_property
    def _each(self) -> Mapping[str, Captures]:
        """Every capture by itself, by the file that it is in."""
        return {self.shown(capture.path): Captures([capture]) for capture in self.context.captures.runs}

    @cached_property
    def _key(self) -> RunKey:
        return self.context.captures.key(self.context.gate.run)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return {name: value for name, value in self.context.captures.facts.items() if value is not None}

    @property
    def path(self) -> Path:
        """The file that is written."""
        assert self.context.store is not None
        return self.context.store.path(self._key)

    def readable(self) -> None:
        """Raises BaselineError where what is stored cannot be read: nothing could be written over it."""
        if self.context.store is not None:
            self.context.store.load(self._key)

    def write(self) -> Written:
        """Write what was wanted. Raises BaselineError; then nothing is written."""
        if self.context.store is None:
            raise BaselineError("there is no baseline folder to write to")
        store = self.context.store
        with store.locked():
            return self._write(store)

    def _write(self, store: BaselineStore) -> Written:
        path, old = store.path(self._key), store.load(self._key)
        anew, notes = self._begins_anew(path, old)
        before = None if anew else old
        stored = dict(before.series) if before else {}
        hiccups = find_stored_hiccups(self.gate, self.context.captures, before) if before else {}
        measured = [
            self._remeasured(sid, readers, stored.get(sid), hiccups) for sid, readers in self._by_series().items()
        ]
        if (left := self.context.captures.left_out) is not None:
            notes.append(left.line)
        if self.mode is Mode.ACCEPT_RUN:
            _refuse_twice(self.shown(path), measured)
        series, within = dict(stored), 0
        for each in measured:
            renewed = keep_unmeasured(each, renew(self.mode, each))
            notes += renewed.notes
            series[each.sid] = renewed.series
            if self.mode is Mode.MOVED and before is not None:
                middles = renewed.series.middles
                within += sum(middles.get(labels, now) != now for labels, now in each.now.items())
        if within:
            notes.append(f"{counted(within, 'row')} within the tolerance kept: --all writes them")
        known = before.facts if before else {}
        convention = self.gate.convention if self.gate.found is not None else None
        new = Baseline(self._key.as_json(), store.gate, {}, series, {**known, **self._facts}, convention)
        if self.mode.replaces and not self._is_partial:
            for sid in stale(self.gate, new):
                del series[sid]
        moved = before is None or series != stored
        window, kept = self._window(store, path, old, renewed=moved)
        saved = moved or window is not None
        if saved:
            new.provenance = self._provenance(before)
            if window is not None:
                new.provenance[WINDOW] = digest_of(window)
            store.save(path, new, window)
        return Written(path, self.mode, old, new, saved, tuple(notes), kept)

    def _window(
        self, store: BaselineStore, path: Path, old: Baseline | None, *, renewed: bool
    ) -> tuple[bytes | None, str]:
        """The file of windows that is written beside the baseline, None where none is, and what to say of it.

        Those that are kept stay as long as their baseline does.
        """
        before = old is not None and store.kept_window(path, old) is not None
        if self.mode is Mode.CALIBRATE or (before and not renewed):
            return None, ""
        where, (content, why) = self.shown(window_beside(path)), self._kept()
        if content is not None:
            stays = old is not None and (self._is_partial or bool(self._stored_without_data(old)))
            mixed = stays or not self.mode.replaces
            part = ", though not all rows are of it" if mixed else ""
            size = format_value(len(content), SIZE)
            return content, f"{where} holds the windows of this run ({size}){why}{part}"
        said = [f"the windows of this run are not kept: {why}"] if why else []
        said += [f"{where} was removed: its windows were of the run before"] if before else []
        return None, "; ".join(said)

    def _kept(self) -> tuple[bytes | None, str]:
        """The file of the run's windows, and of which ranks these are where not of all; None, and why there is none:
        rows are stored without one, too.
        """
        if self.keep is None or not self.context.captures.paths or not self.gate.needs_trace:
            return None, ""
        why = ""
        for ranks in self._ranks_to_keep():
            try:
                content = self.keep(self.context, ranks)
            except NsysError as error:
                why = why or str(error)
                continue
            if len(content) <= LARGEST_WINDOW_BYTES:
                some = "" if ranks is None else f" of {ranks_words(sorted(ranks))} alone, as of all ranks {why}"
                return content, some
            size, most = (format_value(each, SIZE) for each in (len(content), LARGEST_WINDOW_BYTES))
            why = why or f"they take {size}, of at most {most}"
        return None, why

    def _ranks_to_keep(self) -> Iterator[frozenset[int] | None]:
        """Those of all, then of fewer and fewer, as long as there are fewer."""
        yield None
        known = len(self.context.captures.runs[0].ranks)
        telling = telling_ranks(self.context)
        for ranks in (telling.spread, telling.worst):
            if len(ranks) < known:
                known = len(ranks)
                yield ranks

    def _begins_anew(self, path: Path, old: Baseline | None) -> tuple[bool, list[str]]:
        """Whether nothing of what is stored may stay, as its run was of other circumstances, and what to say of it.

        Raises IncomparableError where the mode, or a part of the file, has to leave something.
        """
        compared = self.gate.comparable_on
        if self.mode is Mode.CALIBRATE:
            first, *rest = self._each.items()
            for name, captures in rest:
                if how := told(all_differences(captures.facts, first[1].facts, compared), first[0]):
                    raise IncomparableError(f"{name} is from a different setup than {first[0]} ({how})")
        how = told(all_differences(self._facts, old.facts, compared)) if old else ""
        if old is None or not how:
            return False, []
        if self.mode.replaces and (names := self._stored_without_data(old)):
            raise IncomparableError(
                f"{self.shown(path)}: holds another run ({how}), of which the rows of '{names[0]}' stay, as it has no "
                "data now, and one file never mixes two: record what it measures, or remove it"
            )
        kept = {*old.series} - {*self._by_series()} - {*stale(self.gate, old)}
        if not self.mode.replaces or kept:
            raise IncomparableError(
                f"{self.shown(path)}: holds another run ({how}), and one file never mixes two: refresh the whole gate "
                "file, without -k and --accept-run"
            )
        again = ", and its noise is to be calibrated again" if any(s.calibration for s in old.series.values()) else ""
        return True, [f"the stored run was another one ({how}): every row is written{again}"]

    @property
    def _is_partial(self) -> bool:
        """Whether a person selected some assertions: nothing else is touched then, not even what is stale."""
        written = {assertion.full_name for assertion in self.wanted} | {*self.without_data}
        return any(each.reads_stored and each.full_name not in written for each in self.gate.assertions)

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
        """The assertions that read each series that is wanted, also those that are not wanted themselves."""
        having = [assertion for assertion in self.wanted if assertion.full_name not in self.without_data]
        found: dict[SeriesId, list[Assertion]] = {
            series_for(self.gate.resolved_convention, assertion): [] for assertion in having
        }
        for assertion in self.gate.assertions:
            if assertion.reads_stored and (sid := series_for(self.gate.resolved_convention, assertion)) in found:
                found[sid].append(self.context.resolved(assertion))
        return found

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

        def rows(of: Captures) -> dict[RowLabels, Value]:
            return dict(replace(self.context, captures=of).measure(readers[0]).rows)

        each = {name: rows(own) for name, own in self._each.items()} if self.mode is Mode.CALIBRATE else {}
        spec, now = spec_for(captures.convention, readers[0]), rows(captures)
        table, unordered = partial(captures.stored, metric), captures.unordered(metric, spec)
        unmeasured = [reader for reader in readers if reader.full_name in self.without_data]
        measured = [reader for reader in readers if reader not in unmeasured]
        return Remeasured(sid, metric, now, stored, measured, table, each, place, unordered, unmeasured)

    def _provenance(self, old: Baseline | None) -> dict[str, Any]:
        captures = self.context.captures
        found: dict[str, Any] = {
            "reason": self.reason,
            "commit": commit_of(self.gate.path.parent),
            "convention": captures.convention_words if captures.paths else None,
            "profiler": list(captures.profilers()),
        }
        before = old.provenance if old else {}
        if self.mode is Mode.CALIBRATE:
            noise = {**found, "traces": len(captures.runs)}  # those that count
            return {**(before or {**found, "captures": 1}), NOISE: noise}
        kept = {NOISE: before[NOISE]} if NOISE in before else {}
        return {**found, "captures": len(captures.runs), **kept}


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
    """The same run again would count as one more of what it is one of already."""
    stored = [each for each in measured if each.stored is not None]
    if stored and all(each.stored is not None and dict(each.now) in each.stored.runs for each in stored):
        raise BaselineError(f"{path}: this run is accepted already: every row has the same value; nothing was changed")
