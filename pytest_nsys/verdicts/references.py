"""What is an assertion with a baseline compared with: the stored baseline, another trace, or the history?

Each source first asks whether the runs are comparable at all (R0), and says what differs where they are not. A new
source of limits is one new class here; the stored baseline has a module of its own.
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
from pytest_nsys.analysis.captures.duplicates import find_equal_ranks
from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.metrics.table import MetricTable, NothingSelected
from pytest_nsys.analysis.windows.circumstances import steps_of
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.spans import MEDIAN, WindowSpec
from pytest_nsys.core.errors import NsysError, UsageMistake, naming
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.units import TIME
from pytest_nsys.core.words import counted, from_here, place_words
from pytest_nsys.gates.comparability import differences, found_otherwise, other_work, told
from pytest_nsys.gates.comparability import shown as in_words
from pytest_nsys.gates.hiccups import find_judged_hiccup
from pytest_nsys.gates.judgement import BadRuns, NotComparable, Reference, RowKey, folded
from pytest_nsys.gates.model import Assertion, Difference, FromBaseline, GateFile, Outcome, request_of, spec_for
from pytest_nsys.gates.names import names_of_others
from pytest_nsys.gates.noise import Decision, Trial, decide
from pytest_nsys.gates.settling import settled
from pytest_nsys.stored.baselines.baseline_file import RowLabels, SeriesId, StoredSeries, series_id
from pytest_nsys.tools.git import branch_named, heads_of, revision_of
from pytest_nsys.traces.opening import given_twice
from pytest_nsys.verdicts.apart import RunBreakdowns

if TYPE_CHECKING:
    from pytest_nsys.stored.history.of_assertion import PastOf


def another_kind(now: Metric, was: Metric | StoredSeries) -> tuple[Difference, ...]:
    """In what the values of a metric are of another kind. Only what is measured outside of a trace can turn round."""
    found = []
    for name in ("unit", "better", "dimensions") if now.outside else ("unit", "dimensions"):
        a, b = (in_words(getattr(side, name) or "not stated") for side in (now, was))
        found += [Difference(name, a, b)] if a != b else []
    return tuple(found)


def other_order(now: Sequence[str], was: Sequence[str]) -> tuple[Difference, ...]:
    """That kernels overlap on other streams than before: then the values mean something else."""
    each = (", ".join(side) or "no stream" for side in (now, was))
    return () if tuple(now) == tuple(was) else (Difference("streams of overlapping kernels", *each),)


def other_work_of(
    now: Mapping[str, Any], was: Mapping[str, Any], metric: Metric, spec: WindowSpec, on: Collection[str] | None
) -> tuple[Difference, ...]:
    """That the steps of a kind, whose times are compared, have other work."""
    return other_work(now, was, spec.kind, on) if metric.unit == TIME else ()


class ReferenceSource(ABC):
    """Where the values come from that now is held against."""

    @abstractmethod
    def reference(self, assertion: Assertion) -> Reference | NotComparable:
        """What the assertion is compared with, or why there is nothing. Raises BaselineError, TraceError."""

    @property
    def steps(self) -> int:
        """The most steps of a rank of what is compared with; 0 where nothing keeps them. Raises NsysError."""
        return 0

    @property
    def windows_before(self) -> RunBreakdowns | None:
        """The run that explains what changed, or the windows that are kept of it, opened when first asked for; None
        where nothing is kept, or cannot be read.
        """
        return None

    @property
    def lost_windows(self) -> str:
        """The file that should hold them, where it is gone or another; empty where none was kept."""
        return ""


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
        if how := self._one_capture(self._specs):
            raise UsageMistake(f"both sides are the same capture: {how}; there is nothing to compare")
        if (same := self.same_files()) and not self.partly:
            names = ", ".join(map(str, same))
            raise UsageMistake(f"{names}: every kernel is that of {self.name}; there is nothing to compare")

    @property
    def _specs(self) -> tuple[WindowSpec, ...]:
        """The windows of traces on which rows are held against the other side's."""
        held = (each for each in self.gate.assertions if each.reads_stored and each.outside is None)
        return tuple(dict.fromkeys(spec_for(self.captures.convention, each) for each in held))

    @kept
    def same_files(self) -> Sequence[Path]:
        """The files that are on both sides, in the same bytes or in others: a rank that was not captured anew."""
        copied = [(here, kernels.keys()) for here, _, kernels in self._copied(self._specs) if kernels]
        files = ((numbers, grouped((rank.trace, rank.number) for rank in here.ranks)) for here, numbers in copied)
        return [*dict.fromkeys(path for numbers, own in files for path, ranks in own.items() if numbers >= {*ranks})]

    @kept
    def _copied(self, specs: tuple[WindowSpec, ...]) -> Sequence[tuple[Run, Run, Mapping[int, int]]]:
        """Each capture of one side with each of the other, and by rank the kernels of those that both hold, in all
        windows that are read: prefill may be as long where decode is not.
        """
        found = []
        for here, there in product(self.captures.runs, self.before.runs):
            counts: list[dict[int, int]] = []
            for spec in specs:
                with suppress(NsysError):  # who asks for it is told
                    pairs = find_equal_ranks(here.measured(spec), there.measured(spec))
                    alike = ((track, twin) for track, twin in pairs if track.rank.number == twin.rank.number)
                    counts.append({track.rank.number: len(track.kernels) for track, _ in alike})
            in_all = (rank for rank in (counts[0] if counts else ()) if all(rank in each for each in counts))
            found.append((here, there, {rank: max(each[rank] for each in counts) for rank in in_all}))
        return found

    def _one_capture(self, specs: tuple[WindowSpec, ...]) -> str:
        """By what a capture of one side is one of the other; empty where none is."""
        for here, there, kernels in self._copied(specs):
            if kernels and len(kernels) == len(here.ranks) == len(there.ranks):
                how = f"{counted(sum(kernels.values()), 'kernel')} are equal to the nanosecond"
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
            raise UsageMistake(f"both sides are the same measurements: {twice.first}; there is nothing to compare")
        same = f"{twice.first} and {twice.second} hold the same bytes"
        if how := self._one_capture((self.captures.spec(MEDIAN),)):
            raise UsageMistake(f"both sides are the same measurements: {same}, and {how}; there is nothing to compare")
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
            if another_kind(metric, self.before.metric(assertion.metric)):
                return {}
            before, after = (
                [folded(table, assertion) for table in side.each(metric, spec)] for side in (self.before, self.captures)
            )
        except (NothingSelected, NsysError):
            return {}  # the assertion itself says why it cannot be judged; the others are judged without it
        shared = [key for key in before[0] if all(key in rows for rows in (*before, *after))]
        worse = assertion.require.worse
        left_out = (int(self.before.left_out is not None), int(self.captures.left_out is not None))
        return {
            key: Trial(tuple(rows[key] for rows in before), tuple(rows[key] for rows in after), worse, left_out)
            for key in shared
        }

    def reference(self, assertion: Assertion) -> Reference | NotComparable:
        """The other side's rows, medians over its captures, and what the captures of both sides say."""
        if self._unlike is not None:
            return self._unlike
        metric, spec = assertion.measures, spec_for(self.captures.convention, assertion)
        copied = self._one_measurement if metric.outside else ()
        with naming(self.name):
            measured = self.before.measure(request_of(self.gate, assertion, steps_of(self.captures.facts)))
            was = self.before.metric(assertion.metric)
            order = self.before.unordered(metric, spec)
        if changed := another_kind(metric, was) or other_order(self.captures.unordered(metric, spec), order):
            how = ", ".join(f"{d.name} {d.baseline}, now {d.now}" for d in changed)
            return NotComparable(Outcome.INCOMPARABLE, f"{metric.name} in {self.name} has {how}", changed)
        if changed := other_work_of(self.captures.facts, self.before.facts, metric, spec, self.gate.comparable_on):
            how = told(changed, self.name)
            return NotComparable(Outcome.INCOMPARABLE, f"the engine did other work ({how})", changed)
        self._refuse_one_capture()
        if measured.missing:
            labels, why = measured.missing[0]
            place = " ".join((self.name, place_words(zip(metric.dimensions, labels, strict=True)))).rstrip()
            return NotComparable(Outcome.NO_DATA, f"in {place}: {why}")
        outlying = [Note(f"{self.name}: {line}", True) for line in self.before.outlying(metric, spec)]
        outlying += [Note(f"{self.name}: {left.line}")] if (left := self.before.left_out) is not None else []
        own = {key: found for (name, key), found in self._decisions.items() if name == assertion.name}
        bases = map(Note, dict.fromkeys(found.basis for found in own.values()))
        return Reference(runs=[measured], decisions=own, origin=self.name, notes=(*bases, *outlying, *copied))

    @property
    def steps(self) -> int:
        """Those of the other side."""
        return steps_of(self.before.facts)

    @cached_property
    def windows_before(self) -> RunBreakdowns:
        """The other side."""
        return RunBreakdowns(self.before)


def in_common(runs: Sequence[Mapping[RowLabels, Value]]) -> list[dict[RowLabels, Value]]:
    """The rows that most of the runs have, of each run that has all of them; empty where there are none.

    One run without a row, or with another one, does not change what there is.
    """
    counts = Counter(labels for run in runs for labels in run)
    usual = [labels for labels, count in counts.items() if 2 * count > len(runs)]
    whole = [run for run in runs if usual and all(labels in run for labels in usual)]
    return [{labels: run[labels] for labels in usual} for run in whole]


def follow_runs(assertion: Assertion, tables: Sequence[MetricTable], origin: str) -> Reference:
    """Return what an assertion is held against where its limit follows runs, oldest first: without one hiccup."""
    hiccup = find_judged_hiccup([(assertion, tables)])
    if hiccup is None:
        return Reference(tables, origin=origin)
    note = Note(f"run {hiccup.place + 1} of these {len(tables)} is left out: {hiccup.why}")
    rest = [table for place, table in enumerate(tables) if place != hiccup.place]
    return Reference(rest, origin=origin, notes=(note,))


@dataclass
class PastRuns(ReferenceSource):
    """The earlier runs like this one of a gate file, which the history knows by ``name``.

    The last of them are accepted runs, for a limit that follows what was measured; their verdicts say whether what is
    bad now was bad before. ``path`` is the history, None where there is none; ``ref`` what baselines are read from
    (empty: the work tree).
    """

    captures: Captures
    gate: GateFile
    name: str
    path: Path | None
    shown: Callable[[Path], str] = str
    ref: str = ""

    def reference(self, assertion: Assertion) -> Reference | NotComparable:
        """The newest runs of the same circumstances. Raises HistoryError."""
        from pytest_nsys.stored.history.database import as_json

        metric, limit = assertion.measures, assertion.require.limit
        assert isinstance(limit, FromBaseline)
        assert limit.history is not None
        if self.path is None:
            return NotComparable(Outcome.NO_DATA, "the limit is from the history: give it with --nsys-history=PATH")
        if not self.path.exists():  # the session that begins the history has nothing before it
            return NotComparable(
                Outcome.NO_DATA, f"there is no history yet in {self.shown(self.path)}: {limit.history.begins}"
            )
        asked = limit.history
        kind = {"unit": str(metric.unit), "dimensions": as_json(list(metric.dimensions))}
        past = self._past(assertion)
        runs = past.last_runs(asked.runs, asked.branch, asked.lag, kind)
        if not runs and replace(past, commits=(), times={}).last_runs(asked.runs, asked.branch, asked.lag, kind):
            held = f"{self.shown(self.path)} holds {metric.name} of this commit, or of this capture, alone"
            return NotComparable(Outcome.NO_DATA, f"{held}: a run is never held to itself: {asked.begins}")
        if not runs:
            where = f" on branch {asked.branch}" if asked.branch is not None else ""
            lag = f" before the newest {asked.lag}, which lag leaves out" if asked.lag else ""
            what = f"{self.shown(self.path)} holds no comparable run of {metric.name}{where}{lag}"
            return NotComparable(Outcome.NO_DATA, f"{what}: {asked.begins}")
        tables = [self.captures.stored(metric, run) for run in in_common(runs)]
        if not tables:
            return NotComparable(
                Outcome.NO_DATA, f"the runs in {self.shown(self.path)} have no row of {metric.name} in common"
            )
        return follow_runs(assertion, tables, f"{asked.source} in {self.shown(self.path)}")

    @cached_property
    def branch(self) -> str | None:
        """The branch that is judged, as the history will name it."""
        return revision_of(self.gate.path.parent).branch

    @cached_property
    def _held_against(self) -> str | None:
        """The branch that baselines are read from; None where they are those of the work tree."""
        return branch_named(self.ref, self.gate.path.parent) if self.ref else None

    def here(self, assertion: Assertion) -> BadRuns | None:
        """Those on the branch that is judged; None where no history counts them. Raises HistoryError, TraceError.

        A branch that begins with this run has none: a job that begins its history anew each time, or with that of
        another branch, would wait for ever.
        """
        return self._on(self.branch, assertion) if self.path is not None else None

    def there(self, assertion: Assertion) -> BadRuns | None:
        """Those on the branch that the run is held against; None where it is held against none, or nobody counts."""
        limit = assertion.require.limit
        follows = limit.history.branch if isinstance(limit, FromBaseline) and limit.history is not None else None
        return self._on(follows or self._held_against, assertion) if self.path is not None else None

    def _on(self, branch: str | None, assertion: Assertion) -> BadRuns | None:
        if self.path is None or branch is None or not self.path.exists():
            return None
        return self._past(assertion).bad_in_a_row(branch)

    def _past(self, assertion: Assertion) -> PastOf:
        from pytest_nsys.stored.history.of_assertion import OfAssertion, PastOf

        assert self.path is not None
        sid = series_id(assertion.measures, spec_for(self.captures.convention, assertion))
        of = OfAssertion(assertion, sid, names_of_others(assertion, self.gate))
        key, commits = self.captures.identity(self.gate.run), heads_of(self.gate.path.parent)
        return PastOf(self.path, self.name, key, of, self.gate.comparable_on, commits, self._times)

    @cached_property
    def _times(self) -> Mapping[tuple[SeriesId, RowLabels], Value]:
        """The rows of time that are not 0 of all that the gate file measures in the trace."""
        found: dict[tuple[SeriesId, RowLabels], Value] = {}
        for assertion in self.gate.assertions:
            if assertion.outside is None and assertion.measures.unit == TIME:
                spec = spec_for(self.captures.convention, assertion)
                with suppress(NsysError):  # the assertion says why
                    rows = self.captures.rows(assertion.measures, spec).rows
                    found |= {(series_id(assertion.measures, spec), row.labels): row.value for row in rows if row.value}
        return found
