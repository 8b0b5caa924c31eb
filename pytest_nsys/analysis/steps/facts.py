"""What did a search for unmarked steps find: the largest unit of kernels that repeats, and what it is?

These are results alone: :mod:`~pytest_nsys.analysis.steps.step_search` finds them.
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
    """Says what a unit of kernels that repeats is. Only a step becomes an anchor; anything else is reported."""

    STEP = "step"
    PART = "part"
    MAYBE_PART = "part?"
    KINDS = "kinds"
    TWO_SPEEDS = "two speeds"


class Confidence(enum.StrEnum):
    """Says how sure it is that the units are what they seem."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


LONGEST_PART = 40
"""The most characters of a part's name inside a sentence."""


class RepeatedPart(NamedTuple):
    """Describes what repeats inside one step or forward pass, by the name of its module or range.

    Module calls or ranges prove its number, which is no count of kernels.
    """

    name: str
    number: int  # in each holder
    holder: str | None = None  # what holds them
    holders: int = 1  # how often the holder is called

    def __str__(self) -> str:
        part_text = f"{self.number} × {printable(self.name, LONGEST_PART)}"
        if self.holders == 1 or self.holder is None:
            return part_text
        return f"{part_text} in each of {self.holders} × {printable(self.holder, LONGEST_PART)}"


@dataclass(frozen=True, slots=True)
class FoundUnits:
    """Describes the same unit of kernels on all ranks."""

    anchor: KernelAnchor  # begins each unit
    what: UnitIs
    confidence: Confidence
    by_rank: Mapping[int, Sequence[Range]]  # spans of whole units, of launches or on the GPU
    period_ns: Value  # median, of the slowest rank
    launched: bool  # whether the spans are of launches
    pattern: str | None = None  # a range that starts exactly once in each unit, of a step alone
    inside: str | None = None  # of a part the name of the range or module that holds several, where one does
    repeated: RepeatedPart | None = None  # which parts of the model they are, where modules or ranges prove it
    kinds: int = 1  # number of kinds of steps, 1 where they are alike

    @property
    def units(self) -> Mapping[int, int]:
        """The number of whole units by rank number."""
        return {rank: len(units) for rank, units in self.by_rank.items()}


@dataclass(frozen=True, slots=True)
class NoUnits:
    """Says why no unit was found."""

    why: str  # ends a sentence that begins with what was searched
    repeated: RepeatedPart | None = None  # what modules say that repeats all the same
