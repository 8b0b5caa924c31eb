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
from pytest_nsys.core.text_format import sanitize_line


class UnitType(enum.StrEnum):
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


MAX_PART_NAME = 40
"""The most characters of a part's name inside a sentence."""


class RepeatedPart(NamedTuple):
    """Describes what repeats inside one step or forward pass, by the name of its module or range.

    Module calls or ranges prove its number, which is no count of kernels.
    """

    name: str
    part_count: int  # in each holder
    holder: str | None = None  # what holds them
    holder_count: int = 1  # how often the holder is called

    def __str__(self) -> str:
        part_text = f"{self.part_count} × {sanitize_line(self.name, MAX_PART_NAME)}"
        if self.holder_count == 1 or self.holder is None:
            return part_text
        return f"{part_text} in each of {self.holder_count} × {sanitize_line(self.holder, MAX_PART_NAME)}"


@dataclass(frozen=True, slots=True)
class FoundUnits:
    """Describes the same unit of kernels on all ranks."""

    anchor: KernelAnchor  # begins each unit
    unit_type: UnitType
    confidence: Confidence
    units_by_rank: Mapping[int, Sequence[Range]]  # spans of whole units, of launches or on the GPU
    period_ns: Value  # median, of the slowest rank
    is_by_launch: bool  # whether the spans are of launches
    pattern: str | None = None  # a range that starts exactly once in each unit, of a step alone
    holder: str | None = None  # of a part the name of the range or module that holds several, where one does
    repeated_part: RepeatedPart | None = None  # which parts of the model they are, where modules or ranges prove it
    kind_count: int = 1  # number of kinds of steps, 1 where they are alike

    @property
    def count_by_rank(self) -> Mapping[int, int]:
        """The number of whole units by rank number."""
        return {rank: len(units) for rank, units in self.units_by_rank.items()}


@dataclass(frozen=True, slots=True)
class NoUnits:
    """Says why no unit was found."""

    reason: str  # ends a sentence that begins with what was searched
    repeated_part: RepeatedPart | None = None  # what modules say that repeats all the same
