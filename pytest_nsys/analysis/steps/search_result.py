"""What did a search for unmarked steps find: the largest unit of kernels that repeats, and what it is?

This module only holds results: :mod:`~pytest_nsys.analysis.steps.step_search` finds them.
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
    """Says what kind of thing a repeating unit of kernels is. Only a step becomes an anchor; anything else is
    reported.
    """

    STEP = "step"
    PART = "part"
    MAYBE_PART = "part?"
    KINDS = "kinds"
    TWO_SPEEDS = "two speeds"


class Confidence(enum.StrEnum):
    """Says how certain it is that the units are of the type that was determined."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


MAX_PART_NAME = 40
"""The maximum length of a part's name inside a sentence, in characters."""


class RepeatedPart(NamedTuple):
    """Describes what repeats inside one step or forward pass, by the name of its module or range.

    The number of parts is proved by module calls or ranges, not by counting kernels.
    """

    name: str
    part_count: int  # in each holder
    holder: str | None = None  # the name of the module or range that holds the parts
    holder_count: int = 1  # how often the holder is called

    def __str__(self) -> str:
        part_text = f"{self.part_count} × {sanitize_line(self.name, MAX_PART_NAME)}"
        if self.holder_count == 1 or self.holder is None:
            return part_text
        return f"{part_text} in each of {self.holder_count} × {sanitize_line(self.holder, MAX_PART_NAME)}"


@dataclass(frozen=True, slots=True)
class FoundUnits:
    """Describes a unit of kernels that was found on all ranks."""

    anchor: KernelAnchor  # begins each unit
    unit_type: UnitType
    confidence: Confidence
    units_by_rank: Mapping[int, Sequence[Range]]  # spans of whole units, of launches or on the GPU
    period_ns: Value  # median, of the slowest rank
    is_by_launch: bool  # whether the spans are of launches, not of time on the GPU
    pattern: str | None = None  # for a step: a range that starts exactly once in each
    holder: str | None = None  # for a part: the name of the range or module that holds several, if any
    repeated_part: RepeatedPart | None = None  # which parts of the model they are, where modules or ranges prove it
    kind_count: int = 1  # number of kinds of steps; 1 if they are all alike

    @property
    def count_by_rank(self) -> Mapping[int, int]:
        """The number of whole units by rank number."""
        return {rank: len(units) for rank, units in self.units_by_rank.items()}


@dataclass(frozen=True, slots=True)
class NoUnits:
    """Says why no unit was found."""

    reason: str  # the end of a sentence that begins with what was searched
    repeated_part: RepeatedPart | None = None  # what repeats nevertheless, according to modules
