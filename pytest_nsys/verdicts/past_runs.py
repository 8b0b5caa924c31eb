"""What did the history see of a gate file before: runs that a limit follows, and how long an assertion has been bad?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.core.model import Value
from pytest_nsys.gates.added_rules import BadRuns
from pytest_nsys.gates.judgement import NotComparable, Reference
from pytest_nsys.gates.measured import settled
from pytest_nsys.gates.model import Assertion, FromBaseline, GateFile, Outcome, spec_for
from pytest_nsys.stored.baselines.baseline_file import RowLabels, series_id
from pytest_nsys.tools.git import branch_named, revision_of
from pytest_nsys.verdicts.references import ReferenceSource

if TYPE_CHECKING:
    from pytest_nsys.stored.history.of_assertion import PastOf


def in_common(runs: Sequence[Mapping[RowLabels, Value]]) -> list[dict[RowLabels, Value]]:
    """The rows that most of the runs have, of each run that has all of them; empty where there are none.

    One run without a row, or with another one, does not change what there is.
    """
    counts = Counter(labels for run in runs for labels in run)
    usual = [labels for labels, count in counts.items() if 2 * count > len(runs)]
    whole = [run for run in runs if usual and all(labels in run for labels in usual)]
    return [{labels: run[labels] for labels in usual} for run in whole]


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
        from pytest_nsys.stored.history.writing import as_json

        metric, limit = settled(assertion, self.captures).measures, assertion.require.limit
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
        runs = self._past(assertion).last_runs(asked.runs, asked.branch, asked.lag, kind)
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
        return Reference(tables, origin=f"{asked.source} in {self.shown(self.path)}")

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
        sid = series_id(settled(assertion, self.captures).measures, spec_for(self.captures.convention, assertion))
        others = {other.name for other in self.gate.assertions if other.name != assertion.name}
        of = OfAssertion(assertion, sid, frozenset(others))
        return PastOf(self.path, self.name, self.captures.identity(self.gate.run), of, self.gate.comparable_on)
