"""What was found where nobody marked a step: the largest unit of kernels that repeats, and what it is.

Facts alone: :mod:`~pytest_nsys.analysis.step_search` finds them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_nsys.core.conventions import KernelAnchor
from pytest_nsys.core.model import Range, Value


class UnitIs(enum.StrEnum):
    """What a unit of kernels that repeats is. Only a step is written as an anchor; everything else is told."""

    STEP = "step"
    PART = "part"
    MAYBE_PART = "part?"
    KINDS = "kinds"
    TWO_SPEEDS = "two speeds"


class Confidence(enum.StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class FoundUnits:
    """The same unit on all ranks. ``anchor`` begins it; ``units`` are whole ones by rank number, of which ``by_rank``
    has the spans (of launches where ``launched``, else on the GPU); ``period_ns`` is the median of the slowest rank.

    ``pattern`` is a range that starts exactly once in each unit, for a step alone. ``inside``: of a part the name of
    the range that holds several, where one does. ``kinds``: how many kinds of steps there are, 1 where they are alike.
    """

    anchor: KernelAnchor
    what: UnitIs
    confidence: Confidence
    by_rank: Mapping[int, Sequence[Range]]
    period_ns: Value
    launched: bool
    pattern: str | None = None
    inside: str | None = None
    kinds: int = 1

    @property
    def units(self) -> Mapping[int, int]:
        return {rank: len(own) for rank, own in self.by_rank.items()}


@dataclass(frozen=True, slots=True)
class NoUnits:
    """Why no unit was found: ``why`` ends a sentence that begins with what was looked for."""

    why: str
