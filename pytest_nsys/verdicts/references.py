"""What is an assertion with a baseline compared with: the stored baseline, another trace, or the history?

Each source first asks whether the runs are comparable at all (R0), and says what differs where they are not. A new
source of limits is one new class here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path

from pytest_nsys.analysis.between_captures import ENOUGH, Asked, Times, how_same, looked_at, same_files, times_of
from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.explained import Breakdown, KernelSequence
from pytest_nsys.analysis.metrics import METRICS, Metric, Unit
from pytest_nsys.analysis.quality import Fact
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.table import NothingSelected, Table
from pytest_nsys.analysis.windows import MEDIAN, WindowSpec
from pytest_nsys.core.errors import BaselineError, NsysError, TraceError, UsageMistake, naming
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.words import from_here, place_words
from pytest_nsys.gates.before_after import Decision, Trial, decide
from pytest_nsys.gates.comparability import differences, found_otherwise, told
from pytest_nsys.gates.comparability import shown as in_words
from pytest_nsys.gates.judgement import NotComparable, Reference, RowKey, folded
from pytest_nsys.gates.measured import settled
from pytest_nsys.gates.model import Assertion, Difference, FromBaseline, GateFile, Labels, Outcome, request_of, spec_for
from pytest_nsys.stored.baselines.baseline_file import (
    Baseline,
    Series,
    SeriesId,
    accepted_runs,
    explained_by,
    series_for,
    series_id,
    spelled,
    stale,
)
from pytest_nsys.stored.baselines.store import BaselineStore
from pytest_nsys.traces.opening import given_twice
from pytest_nsys.verdicts.causes import MEDIAN_PERIOD, RunBreakdowns
from pytest_nsys.verdicts.replaced import Before, gate_file_at, held_to


def _another_kind(now: Metric, was: Metric | Series) -> tuple[Difference, ...]:
    """In what the values of a metric are of another kind. Only what is measured outside of a trace can turn round."""
    found = []
    for name in ("unit", "better", "dimensions") if now.outside else ("unit", "dimensions"):
        a, b = (in_words(getattr(side, name) or "not stated") for side in (now, was))
        found += [Difference(name, a, b)] if a != b else []
    return tuple(found)


def _other_order(now: Sequence[str], was: Sequence[str]) -> tuple[Difference, ...]:
    """That other streams keep no order: then the values mean something else."""
    each = (", ".join(side) or "none" for side in (now, was))
    return () if tuple(now) == tuple(was) else (Difference("streams that keep no order", *each),)


NEW_METRIC = "this branch is the first to measure it: it is compared with the branch's own baseline"


class ReferenceSource(ABC):
    """Where the values come from that now is held against."""

    @abstractmethod
    def reference(self, assertion: Assertion) -> Reference | NotComparable:
        """What the assertion is compared with, or why there is nothing. Raises BaselineError, TraceError."""

    def sequences(self, _: WindowSpec, /) -> Mapping[int, KernelSequence]:
        """What the fingerprints that are compared with stand for, as far as it is kept."""
        return {}

    def table(self, _: Metric, __: WindowSpec, /) -> Table | None:
        """The rows of another metric of what is compared with; None where nothing keeps them."""
        return None

    def breakdown(self, _: Metric, __: WindowSpec, ___: Labels, ____: Value, /) -> Breakdown | None:
        """The window that gave a row of what is compared with, taken apart; None where nothing keeps it."""
        return None


@dataclass
class StoredBaseline(ReferenceSource):
    """The baseline file of the run's key; read once for all assertions of a gate file."""

    captures: Captures
    gate: GateFile
    store: BaselineStore
    shown: Callable[[Path], str] = str
    prune: str = "pytest-nsys baseline prune"

    @cached_property
    def _held_to(self) -> Before | None:
        return held_to(self.gate, self.store, self.captures.key(self.gate.run).as_json())

    @cached_property
    def _found(self) -> tuple[Path, Baseline] | NotComparable:
        return self._of_key if self._held_to is None else replace(self, store=self._held_to.store)._of_key

    @cached_property
    def _of_key(self) -> tuple[Path, Baseline] | NotComparable:
        key = self.captures.key(self.gate.run)
        exact = self.store.load(key)
        if exact is not None:
            return self._if_alike(self.store.path(key), exact)
        stored = self.store.all()
        if not stored:
            what = f"no baseline is stored in {self.shown(self.store.folder)}{self.store.files.origin}"
            return NotComparable(Outcome.NO_DATA, what + self._to_come(self.store.path(key)))
        differing = [(differences(key.as_json(), each.key, self.gate.comparable_on), p, each) for p, each in stored]
        fewest = min(len(fields) for fields, _, _ in differing)
        nearest = [item for item in differing if len(item[0]) == fewest]
        fields, path, baseline = nearest[0]
        if fields:
            return self._unlike(path, baseline, fields)
        if len(nearest) > 1:
            names = ", ".join(path.name for _, path, _ in nearest)
            raise BaselineError(
                f"{self.shown(self.store.folder)}: {names} agree alike on what comparable_on names: name more, or "
                "delete all but one"
            )
        return self._if_alike(path, baseline)

    def _to_come(self, path: Path, sid: SeriesId | None = None) -> str:
        """That the branch has what the commit that is read lacks: the file, or the series in it. May be empty."""
        if not self.store.files.origin:
            return ""
        try:
            ours = self.store.here.at(path)
        except BaselineError:
            return ""
        if ours is None or (sid is not None and sid not in ours.series):
            return ""
        return f": {self.shown(path)} has it in this branch, which counts once it is merged"

    def _if_alike(self, path: Path, baseline: Baseline) -> tuple[Path, Baseline] | NotComparable:
        """The baseline, unless the circumstances that do not name its file differ."""
        if otherwise := found_otherwise(self.gate):
            what = f"the nearest baseline {self.shown(path)}{self.store.files.origin} is from a different setup"
            return NotComparable(Outcome.INCOMPARABLE, f"{what} ({told(otherwise)})", otherwise)
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
        if not reads and self.store.base is None:  # a ref is no concern of a gate of constants
            for path, baseline in self.store.all():
                self._refuse_stale(path, baseline)

    def _refuse_stale(self, path: Path, baseline: Baseline) -> None:
        """Rows that no assertion reads hide that a gate was dropped; those of a commit cannot be pruned any more.

        A measurement that is now made in another way is none of them: its assertion says that it is incomparable.
        """
        if self.store.base is not None:
            return
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
        nearest = f"{self.shown(path)}{self.store.files.origin}"
        what = f"the nearest baseline {nearest} is from a different setup ({told(named)})"
        own = self.store.path(self.captures.key(self.gate.run))
        return NotComparable(Outcome.INCOMPARABLE, what + (self._to_come(own) if own != path else ""), named)

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
    def window(self) -> Path | None:
        """The windows that are kept of the accepted run that was written last: a cut, to be opened as a trace. None
        where there is none, or where it is of another run than the baseline. Raises BaselineError.
        """
        return None if isinstance(self._found, NotComparable) else self.store.kept_window(*self._found)

    def reference(self, assertion: Assertion) -> Reference | NotComparable:
        """The accepted runs of the stored rows, with what their noise was measured on."""
        assertion = settled(assertion, self.captures)
        found = self._stored(assertion.measures, assertion)
        if isinstance(found, Reference):
            most = self.gate.quality.same_as_baseline
            if self.same is not None and most is not None and self.same.crosses(most):
                raise TraceError(self.same.line(most))
            note = self.store.base.note if self.store.base is not None else ""
            return replace(found, warnings=(note,) if note else ())
        if isinstance(self._found, NotComparable) and self._found.outcome is Outcome.INCOMPARABLE:
            return found
        if self.store.base is None or assertion.metric in self._measured_before:
            return found
        own = replace(self, store=self.store.here).reference(assertion)
        return replace(own, warnings=(NEW_METRIC,)) if isinstance(own, Reference) else found

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
            times += sum(map(bool, now.values())) if metric.unit is Unit.NS else 0
        if times < ENOUGH:
            return None
        words = f"all {rows} judged rows, {times} of them times, equal {self.shown(path)} to the nanosecond"
        why = "this is the trace that the baseline was taken from"
        return Fact("same_as_baseline", "count", 1, words, why, "judge the trace of this run")

    @cached_property
    def _measured_before(self) -> frozenset[str]:
        """The metrics that the gate file held to a baseline at the merge base.

        No branch can be held to what nobody measured before. What is measured otherwise now is another matter: else a
        branch would be its own judge as soon as it touched the window.
        """
        assert self.store.base is not None
        before = gate_file_at(self.store.base)
        if before is None:  # of another version, perhaps: then nothing is taken for new
            return frozenset(METRICS)
        name = self.gate.configuration if self._held_to is None else self._held_to.gate.configuration
        own = (each for each in before.each if each.configuration == name)
        return frozenset(a.metric for each in own for a in each.assertions if a.reads_stored)

    def _stored(self, metric: Metric, assertion: Assertion) -> Reference | NotComparable:
        if isinstance(self._found, NotComparable):
            return self._found
        path, baseline = self._found
        spec = spec_for(self.captures.convention, assertion)
        sid = series_id(metric, spec)
        series = baseline.series.get(sid)
        if series is None:
            return self._without(sid.metric, sid, path, baseline)
        if changed := _another_kind(metric, series) or _other_order(
            self.captures.unordered(metric, spec), series.unordered
        ):
            how = ", ".join(f"{d.name} {d.baseline}, now {d.now}" for d in changed)
            return NotComparable(Outcome.INCOMPARABLE, f"{self.shown(path)} holds {metric.name} with {how}", changed)
        found = accepted_runs(series, partial(self.captures.stored, metric))
        return replace(found, origin=f"{self.shown(path)}{self.store.files.origin}", notes=self._narrowed(baseline))

    def _series(self, name: str, spec: WindowSpec) -> Series | None:
        """What is stored of a metric where a reference was found. Raises BaselineError."""
        found = None if isinstance(self._found, NotComparable) else self._found[1]
        series = found.series.get(series_id(METRICS[name], spec)) if found is not None else None
        if series is None and self.store.base is not None:
            return replace(self, store=self.store.here)._series(name, spec)
        return series

    def sequences(self, spec: WindowSpec, /) -> Mapping[int, KernelSequence]:
        """The stored sequences."""
        series = self._series("sequence", spec)
        return series.sequences if series is not None else {}

    def table(self, metric: Metric, spec: WindowSpec, /) -> Table | None:
        """The stored rows of a metric, where the gate file has them stored."""
        series = self._series(metric.name, spec)
        return None if series is None else self.captures.stored(metric, series.middles)

    def breakdown(self, metric: Metric, spec: WindowSpec, labels: Labels, _: Value, /) -> Breakdown | None:
        """That of the run that was written last; of the quantiles of a period the median's alone."""
        found = (
            None
            if isinstance(self._found, NotComparable)
            else self._found[1].breakdowns.get(explained_by(metric, spec))
        )
        rank = labels.get("rank") if labels.get("quantile", MEDIAN_PERIOD) == MEDIAN_PERIOD else None
        return found.get(rank) if found is not None and isinstance(rank, int) else None

    def _narrowed(self, baseline: Baseline) -> tuple[Note, ...]:
        """In what the baseline's run was another one, which the gate file leaves out of the comparison."""
        if self.gate.comparable_on is None:
            return ()
        now = self.captures.identity(self.gate.run)
        how = told(differences(now, {**baseline.key, **baseline.facts}))
        return (Note(f"compared with another run, as comparable_on says: {how}"),) if how else ()

    def _without(self, name: str, sid: SeriesId, path: Path, baseline: Baseline) -> NotComparable:
        others = [other for other in baseline.series if other.metric == name]
        if not others:
            what = f"{self.shown(path)}{self.store.files.origin} holds no {name}"
            return NotComparable(Outcome.NO_DATA, what + self._to_come(path, sid))
        fields = ("definition", "window", "span", "kernels")
        changed = tuple(
            Difference(field, str(getattr(sid, field)), str(getattr(others[0], field)))
            for field in fields
            if getattr(sid, field) != getattr(others[0], field)
        )
        how = ", ".join(f"{d.name} {d.baseline}, now {d.now}" for d in changed)
        what = f"{name} in {self.shown(path)}{self.store.files.origin} was measured with {how}"
        return NotComparable(Outcome.INCOMPARABLE, what + self._to_come(path, sid), changed)


@dataclass
class OtherRun(ReferenceSource):
    """Another trace, or several captures of it, in place of the stored baseline (R4)."""

    captures: Captures
    gate: GateFile
    before: Captures
    name: str = "the other trace"
    partly: bool = False
    """Whether some files may be on both sides, as a person who looks at them is told."""

    @cached_property
    def _unlike(self) -> NotComparable | None:
        now, was = self.captures.circumstances(self.gate.run), self.before.circumstances(self.gate.run)
        fields = (*found_otherwise(self.gate), *differences(now, was, self.gate.comparable_on))
        if not fields:
            return None
        what = f"{self.name} is from a different setup ({told(fields, self.name)})"
        return NotComparable(Outcome.INCOMPARABLE, what, fields)

    @kept
    def _refuse_one_capture(self) -> None:
        """Raises UsageMistake where both sides are one capture, or hold the same file in a gate."""
        if how := self._one_capture(self._asked):
            raise UsageMistake(f"both sides are the same capture: {how}; nothing can differ")
        if (same := self.same_files()) and not self.partly:
            names = ", ".join(map(str, same))
            raise UsageMistake(f"{names}: every row of time is that of {self.name}; nothing can differ there")

    @property
    def _asked(self) -> Sequence[Asked]:
        held = (assertion for assertion in self.gate.assertions if assertion.reads_stored)
        asked = [(each.measures, spec_for(self.captures.convention, each)) for each in held if each.outside is None]
        return looked_at(asked, [spec for _, spec in asked])

    @kept
    def same_files(self) -> Sequence[Path]:
        """The files that are on both sides, in the same bytes or in others: a rank that was not captured anew."""
        found = [path for here, one, _, other in self._pairs(self._asked) for path in same_files(here, one, other)]
        return [*dict.fromkeys(found)]

    def _pairs(self, asked: Sequence[Asked]) -> Iterator[tuple[Run, Times, Run, Times]]:
        """Each capture of one side with each of the other, and their rows of time."""
        sides = [
            [*zip(side.runs, times_of(side.each, asked, len(side.runs)), strict=True)]
            for side in (self.captures, self.before)
        ]
        return ((*here, *there) for here, there in product(*sides))

    def _one_capture(self, asked: Sequence[Asked]) -> str:
        """By what a capture of one side is one of the other; empty where none is."""
        for here, one, there, other in self._pairs(asked):
            if how := how_same(one, other):
                return f"{how} in {here.traces[0].path} and {there.traces[0].path}"
        return ""

    @cached_property
    def _one_measurement(self) -> tuple[Note, ...]:
        """That both sides hold the same bytes of measurements, as it may be by chance.

        Raises UsageMistake where they are the same file, or their traces are the same capture, too.
        """
        twice = given_twice([self.captures.measured_in, self.before.measured_in])
        if twice is None:
            return ()
        if not twice.is_copy:
            raise UsageMistake(f"both sides are the same measurements: {twice.first}; nothing can differ")
        same = f"{twice.first} and {twice.second} hold the same bytes"
        if how := self._one_capture(looked_at([], [self.captures.spec(MEDIAN)])):
            raise UsageMistake(f"both sides are the same measurements: {same}, and {how}; nothing can differ")
        return (Note(from_here(f"{same}: what is measured in them cannot differ"), True),)

    @cached_property
    def _decisions(self) -> Mapping[tuple[str, RowKey], Decision]:
        """What the captures say of every row of every assertion that is compared, taken together."""
        trials: dict[tuple[str, RowKey], Trial] = {}
        for assertion in self.gate.assertions:
            limit = assertion.require.limit
            if isinstance(limit, FromBaseline) and limit.tolerance is not None and limit.history is None:
                trials |= {(assertion.name, key): trial for key, trial in self._trials(assertion).items()}
        return decide(trials)

    def _trials(self, assertion: Assertion) -> dict[RowKey, Trial]:
        """The values of each row in every capture of both sides; only rows that all of them have."""
        try:
            assertion = settled(assertion, self.captures)
            metric, spec = assertion.measures, spec_for(self.captures.convention, assertion)
            if _another_kind(metric, self.before.metric(assertion.metric)):
                return {}
            before, after = (
                [folded(table, assertion) for table in side.each(metric, spec)] for side in (self.before, self.captures)
            )
        except (NothingSelected, NsysError):
            return {}  # the assertion itself says why it cannot be judged; the others are judged without it
        shared = [key for key in before[0] if all(key in rows for rows in (*before, *after))]
        worse = assertion.require.worse
        return {
            key: Trial(tuple(rows[key] for rows in before), tuple(rows[key] for rows in after), worse) for key in shared
        }

    def reference(self, assertion: Assertion) -> Reference | NotComparable:
        """The other side's rows, medians over its captures, and what the captures of both sides say."""
        if self._unlike is not None:
            return self._unlike
        metric, spec = settled(assertion, self.captures).measures, spec_for(self.captures.convention, assertion)
        copied = self._one_measurement if metric.outside else ()
        with naming(self.name):
            measured = self.before.measure(request_of(self.gate, assertion))
            was = self.before.metric(assertion.metric)
            order = self.before.unordered(metric, spec)
        if changed := _another_kind(metric, was) or _other_order(self.captures.unordered(metric, spec), order):
            how = ", ".join(f"{d.name} {d.baseline}, now {d.now}" for d in changed)
            return NotComparable(Outcome.INCOMPARABLE, f"{metric.name} in {self.name} has {how}", changed)
        self._refuse_one_capture()
        if measured.missing:
            labels, why = measured.missing[0]
            place = place_words(zip(metric.dimensions, labels, strict=True))
            return NotComparable(Outcome.NO_DATA, f"in {self.name} {place}: {why}")
        outlying = tuple(Note(f"{self.name}: {line}", True) for line in self.before.outlying(metric, spec))
        own = {key: found for (name, key), found in self._decisions.items() if name == assertion.name}
        bases = map(Note, dict.fromkeys(found.basis for found in own.values()))
        return Reference(runs=[measured], decisions=own, origin=self.name, notes=(*bases, *outlying, *copied))

    def sequences(self, spec: WindowSpec, /) -> Mapping[int, KernelSequence]:
        """The sequences of the other side."""
        return self.before.sequences(spec)

    def table(self, metric: Metric, spec: WindowSpec, /) -> Table | None:
        """The rows of the other side."""
        return self.before.rows(metric, spec)

    @cached_property
    def _apart(self) -> RunBreakdowns:
        return RunBreakdowns(self.before)

    def breakdown(self, metric: Metric, spec: WindowSpec, labels: Labels, value: Value, /) -> Breakdown | None:
        """That of the other side's capture and window whose value is nearest."""
        return self._apart.breakdown(metric, spec, labels, value)
