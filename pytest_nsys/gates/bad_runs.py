"""Is a bad run red at once? With ``fail_after: N`` only the N-th in a row is; the ones before are *inconclusive*.

That delays *failed* against a baseline with a tolerance (R3, R4) alone. Where nobody counts, for want of a history or
of a branch, the first bad run is red.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

from pytest_nsys.gates.judgement import Judgement, amounting
from pytest_nsys.gates.verdict import Outcome


class PastRun(NamedTuple):
    """A run of the history: its time in UTC as ``2026-01-31T02:00:00Z``, its commit, and whether it was red."""

    time: str
    commit: str | None
    red: bool

    def __str__(self) -> str:
        return self.time[:10] + (f" at {self.commit[:10]}" if self.commit else "")


class BadRuns(NamedTuple):
    """The last runs of a branch in a row in which one assertion was bad, newest first; without the present one."""

    branch: str
    runs: tuple[PastRun, ...] = ()

    @property
    def red_since(self) -> PastRun | None:
        """The first of the red ones up to the newest; None where the newest was not red."""
        red = tuple(takewhile(lambda run: run.red, self.runs))
        return red[-1] if red else None


def delayed(judgement: Judgement, fail_after: int, before: BadRuns | None) -> Judgement:
    """The judgement, *inconclusive* where it is bad and only a later run is to fail; ``before`` None: nobody counts."""
    if judgement.outcome is not Outcome.FAILED or before is None or len(before.runs) + 1 >= fail_after:
        return judgement
    rows = [replace(r, outcome=Outcome.INCONCLUSIVE) if r.outcome is Outcome.FAILED else r for r in judgement.rows]
    return amounting(rows, judgement.warnings)
