"""What rules are laid on a judgement beside its limits: which bad run fails, and what ``pipeline`` asks?

With ``fail_after: N`` only the N-th bad run in a row is red; the ones before are *inconclusive*. That delays *failed*
against a baseline with a tolerance (R3, R4) alone. Where nobody counts, for want of a history, of a branch, or of an
earlier run on it, the first bad run is red; and what is red stays red until it holds.

``pipeline overlap_score >= 0.30`` asks as well that the period is nearer the longer stage. A score alone can be had by
stages that overlap while something else keeps the period long. So the sentence holds for a rank where both do: the
score reaches its limit, and ``serialization`` is below one half, which is to say that the median period is nearer the
longer stage than the sum of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import takewhile
from typing import NamedTuple

from pytest_nsys.core.exact import exact
from pytest_nsys.core.model import Value
from pytest_nsys.gates.judgement import Judgement, RowKey, amounting
from pytest_nsys.gates.model import Assertion, JudgedRow, Outcome, Requirement


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

    def failing(self, fail_after: int) -> bool:
        """Whether one more does not wait: it is the last that may, or one of them was red already."""
        return len(self.runs) + 1 >= fail_after or any(run.red for run in self.runs)


def delayed(judgement: Judgement, fail_after: int, before: BadRuns | None) -> Judgement:
    """The judgement, *inconclusive* where it is bad and only a later run is to fail; ``before`` None: nobody counts."""
    if judgement.outcome is not Outcome.FAILED or before is None or before.failing(fail_after):
        return judgement
    rows = [replace(r, outcome=Outcome.INCONCLUSIVE) if r.outcome is Outcome.FAILED else r for r in judgement.rows]
    return amounting(rows, judgement.warnings)


WORD = "pipeline"
RULED = "overlap_score"
"""The metric that the rule goes with."""

HALFWAY = Fraction(1, 2)
"""The serialization from which on the period is not nearer to the longer stage than to the sum of both."""


def cannot_rule(metric: str, taken_together: bool, require: Requirement) -> str | None:
    """What is wrong with the rule beside the rest of an assertion, None where nothing is."""
    if metric != RULED:
        return f"'{WORD}' goes with {RULED}: {metric} knows no stages to hold the period against"
    if taken_together:
        return f"'{WORD}' judges each rank by itself: leave out what takes ranks together"
    if require.worse >= 0:
        return f"'{WORD}' asks for a score of at least so much: write >="
    return None


def with_rule(judgement: Judgement, serialization: Mapping[RowKey, Value]) -> Judgement:
    """The judgement of the score, with each row held to the rule as well; a waiver is no leave from it."""
    if not judgement.rows or judgement.outcome is Outcome.NO_DATA:
        return judgement
    rows = [_ruled(row, serialization.get(tuple(row.labels.items()))) for row in judgement.rows]
    return amounting(rows, judgement.warnings)


def breaks_rule(row: JudgedRow) -> bool:
    """Whether the row's period is no nearer the longer stage than the sum of both."""
    return row.serialization is not None and row.serialization >= HALFWAY


def reaches_limit(row: JudgedRow, assertion: Assertion) -> bool:
    """Whether the row's score stands to its limit as the assertion asks; a row without a limit does."""
    comparator = assertion.require.comparator
    return row.value is None or row.limit is None or comparator is None or comparator.holds(row.value, row.limit)


def _ruled(row: JudgedRow, value: Value | None) -> JudgedRow:
    if row.value is None:
        return row
    if value is None:
        return replace(row, outcome=Outcome.NO_DATA)
    ruled = replace(row, serialization=value)
    room = exact(HALFWAY - value)
    if row.margin is not None:
        ruled = replace(ruled, margin=min(row.margin, room))
    if not breaks_rule(ruled) or row.outcome is Outcome.NO_DATA:
        return ruled
    return replace(ruled, outcome=Outcome.FAILED, early_warning=False, waived=False, ceiling=None)
