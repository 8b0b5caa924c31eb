"""Was an assertion bad before this run, and since when? On its own branch, and on the one that it is held against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.gates.assertion import Assertion, FromBaseline, GateFile
from pytest_nsys.gates.bad_runs import BadRuns
from pytest_nsys.stored.history.reading import bad_in_a_row
from pytest_nsys.tools.revision import branch_named, revision_of


@dataclass
class PastVerdicts:
    """The verdicts on earlier runs like this one of a gate file, which the history knows by ``name``.

    ``path`` is the history, None where there is none; ``ref`` what baselines are read from (empty: the work tree).
    """

    captures: Captures
    gate: GateFile
    name: str
    path: Path | None
    ref: str = ""

    @cached_property
    def branch(self) -> str | None:
        """The branch that is judged, as the history will name it."""
        return revision_of(self.gate.path.parent).branch

    @cached_property
    def _named(self) -> str | None:
        return branch_named(self.ref, self.gate.path.parent) if self.ref else None

    def here(self, assertion: Assertion) -> BadRuns | None:
        """Those on the branch that is judged; None where no history counts them. Raises HistoryError, TraceError.

        One that begins with this run counts none: a job that begins it anew each time would wait for ever.
        """
        return self._on(self.branch, assertion) if self.path is not None else None

    def there(self, assertion: Assertion) -> BadRuns | None:
        """Those on the branch that the run is held against; None where it is held against none, or nobody counts."""
        limit = assertion.require.limit
        follows = limit.history.branch if isinstance(limit, FromBaseline) and limit.history is not None else None
        return self._on(follows or self._named, assertion)

    def _on(self, branch: str | None, assertion: Assertion) -> BadRuns | None:
        if self.path is None or branch is None or not self.path.exists():
            return None
        key = self.captures.identity(self.gate.run)
        return bad_in_a_row(self.path, self.name, key, assertion.name, branch, self.gate.comparable_on)
