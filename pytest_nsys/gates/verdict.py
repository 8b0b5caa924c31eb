"""What was decided about one assertion, with everything that a report needs to explain it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_nsys.analysis.explained import Explained
from pytest_nsys.analysis.table import label_key
from pytest_nsys.analysis.windows import UsedWindow
from pytest_nsys.core.model import Label, Note, Value
from pytest_nsys.gates.assertion import Assertion, Severity


class Outcome(enum.StrEnum):
    """How an assertion ended. ERROR is a trace that cannot be judged; no state is silent and none is a skip."""

    PASSED = "passed"
    IMPROVED = "improved"
    INCONCLUSIVE = "inconclusive"
    FAILED = "failed"
    INCOMPARABLE = "incomparable"
    NO_DATA = "no data"
    ERROR = "error"


Labels = Mapping[str, Label]
"""The dimensions of a judged row: those that are left after aggregation."""


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """One value against its limit.

    ``limit`` is None for a row that has none (no baseline); where a baseline is held on both sides it is the one on
    the value's side. ``margin`` is how far the value may still move before it fails, negative where it fails.
    ``noise`` is the bound of the measured noise, None where it was not measured: max(tolerance, noise) is the smallest
    change that the gate can see. ``origin`` is the row that an aggregate took its value from. ``test`` says what
    decided between two sets of captures. ``waived`` rows are outside their limit as a waiver of the gate file
    allows, as far as ``ceiling``. ``serialization`` is what the rule of a pipeline holds the row to as well, None where
    there is none.
    """

    labels: Labels
    value: Value | None
    limit: Value | None
    outcome: Outcome
    baseline: Value | None = None
    tolerance: Value | None = None
    margin: Value | None = None
    early_warning: bool = False
    noise: Value | None = None
    origin: Labels = field(default_factory=dict)
    test: str = ""
    waived: bool = False
    ceiling: Value | None = None
    serialization: Value | None = None

    @property
    def sees(self) -> Value | None:
        """The smallest change that the gate can see; None for a constant limit."""
        return None if self.tolerance is None else max(self.tolerance, self.noise or 0)


class Difference(NamedTuple):
    """One circumstance in which a run and what it is compared with differ."""

    name: str
    now: str
    baseline: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one assertion. ``rows`` come worst first. ``message`` is the one line that says it.

    ``warnings`` belong to the line of the assertion: ``restated`` tell the outcome again, ``cautions`` something else.
    ``differences`` explain *incomparable*; ``compared_with`` says where the baseline came from. ``details`` are lines
    on what changed behind the rows, ``causes`` the kernels that account for those that are worse, in their order.
    ``delayed``: it is *inconclusive* only because ``fail_after`` waits for more bad runs.
    """

    assertion: Assertion
    outcome: Outcome
    message: str
    unit: str
    rows: tuple[JudgedRow, ...] = ()
    windows: tuple[UsedWindow, ...] = ()
    measured_as: str = ""
    restated: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    next_step: str = ""
    differences: tuple[Difference, ...] = ()
    compared_with: str = ""
    details: tuple[str, ...] = ()
    causes: tuple[Explained, ...] = ()
    delayed: bool = False

    def __repr__(self) -> str:  # a notebook shows it
        return f"<{type(self).__name__} {self.outcome}: {self.assertion.name}: {self.message}>"

    @property
    def warnings(self) -> tuple[str, ...]:
        """All that belongs to the line of the assertion."""
        return (*self.restated, *self.cautions)

    @property
    def nearest(self) -> JudgedRow | None:
        """The row that a summary names: nearest to failing, or failing worst; of an improvement the best."""
        judged = [row for row in self.rows if row.margin is not None]
        if self.outcome is Outcome.FAILED:  # a waived row may be further out than the one that failed
            judged = [row for row in judged if not row.waived]
        sign = -1 if self.outcome is Outcome.IMPROVED else 1
        return min(
            judged,
            key=lambda row: (sign * (row.margin or 0), [label_key(label) for label in row.labels.values()]),
            default=next(iter(self.rows), None),
        )

    @property
    def margin(self) -> Value | None:
        """How far the nearest row may still move before it fails, negative where it fails; None where it is unknown."""
        return self.nearest.margin if self.nearest is not None else None

    @property
    def good(self) -> bool:
        """Whether the item passes: by outcome, by ``severity: warn``, never by silence."""
        asked = self.assertion
        said = {
            Outcome.FAILED: asked.severity,
            Outcome.IMPROVED: asked.on_improvement,
            Outcome.INCONCLUSIVE: asked.inconclusive,
        }
        return self.outcome is Outcome.PASSED or said.get(self.outcome) is Severity.WARN
