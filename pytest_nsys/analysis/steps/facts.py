"""What was found where nobody marked a step: the largest unit of kernels that repeats, and what it is.

Facts alone: :mod:`~pytest_nsys.analysis.steps.search` finds them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_nsys.core.conventions import KernelAnchor
from pytest_nsys.core.model import Range, Value
from pytest_nsys.core.words import printable


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


LONGEST_PART = 40
"""Of the name of a part inside a sentence."""


class RepeatedPart(NamedTuple):
    """What repeats inside of one step or forward, by the name of its module or range, and how often: a number that
    those prove, and no count of kernels. Where something holds them, ``holder`` is called ``holders`` times.
    """

    name: str
    number: int
    holder: str | None = None
    holders: int = 1

    def __str__(self) -> str:
        words = f"{self.number} × {printable(self.name, LONGEST_PART)}"
        if self.holders == 1 or self.holder is None:
            return words
        return f"{words} in each of {self.holders} × {printable(self.holder, LONGEST_PART)}"


@dataclass(frozen=True, slots=True)
class FoundUnits:
    """The same unit on all ranks. ``anchor`` begins it; ``units`` are whole ones by rank number, of which ``by_rank``
    has the spans (of launches where ``launched``, else on the GPU); ``period_ns`` is the median of the slowest rank.

    ``pattern`` is a range that starts exactly once in each unit, for a step alone. ``inside``: of a part the name of
    the range or module that holds several, where one does; ``repeated``: what they are parts of the model as, where
    modules or ranges prove it. ``kinds``: how many kinds of steps there are, 1 where they are alike.
    """

    anchor: KernelAnchor
    what: UnitIs
    confidence: Confidence
    by_rank: Mapping[int, Sequence[Range]]
    period_ns: Value
    launched: bool
    pattern: str | None = None
    inside: str | None = None
    repeated: RepeatedPart | None = None
    kinds: int = 1

    @property
    def units(self) -> Mapping[int, int]:
        return {rank: len(own) for rank, own in self.by_rank.items()}


@dataclass(frozen=True, slots=True)
class NoUnits:
    """Why no unit was found: ``why`` ends a sentence that begins with what was looked for. ``repeated``: what modules
    say that repeats all the same.
    """

    why: str
    repeated: RepeatedPart | None = None
