"""What is a fact about a trace, and how does it read? One sentence, wherever it is printed."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple

from pytest_nsys.analysis.fact_bounds import LOWER_BOUNDED_FACTS, OFF
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.units import MEGAHERTZ, TIME

# How many tenths of what is written a bound has, by its unit: shares are written in percent, times in seconds.
_TENTHS_BY_UNIT: Mapping[str, Fraction] = {"%": Fraction(1000), TIME: Fraction(10, 10**9)}
# The unit that is written behind a bound, by that of the fact.
_WRITTEN_UNITS = {"%": "%", MEGAHERTZ: MEGAHERTZ, TIME: "s"}


class Weight(enum.IntEnum):
    """Says what a fact does to what depends on it: it is told beside it, makes it doubtful, or is an error in its
    place.
    """

    NOTE = 0
    DOUBT = 1
    ERROR = 2


class MeasuredFact(NamedTuple):
    """Holds what was found out about a run."""

    value: Value | None  # None: unknown, which is worse than any bound
    words: str  # say the value
    reason: str = ""  # why it matters
    remedy: str = ""  # what to do about it
    # Whether it makes doubtful what depends on it, unless it is an error, or a gate file bears it on purpose; else it
    # is a note.
    is_doubtful: bool = True


class Fact(NamedTuple):
    """Describes one fact about a run, with its weight."""

    name: str  # the key of its bound in ``quality:``
    # of its value: ``count``, ``%`` (a plain fraction), ``1``, ``MHz`` or ``ns``, of which a gate file has seconds
    unit: str
    measurement: MeasuredFact
    weight: Weight
    bound: Value | None = None  # None where no value is an error

    @property
    def words(self) -> str:
        """What was found, without what it means."""
        return self.measurement.words

    @property
    def sentence(self) -> str:
        """What was found, why it matters and what to do."""
        return self._format_sentence(self.words)

    def _format_sentence(self, finding: str) -> str:
        """Format what was found, why it matters and what to do."""
        return "; ".join(
            filter(None, [": ".join(filter(None, [finding, self.measurement.reason])), self.measurement.remedy])
        )

    @property
    def note(self) -> Note:
        """The sentence as it stands beside a verdict."""
        return Note(self.sentence, self.weight > Weight.NOTE)

    @property
    def error(self) -> str:
        """The sentence as it stands in place of a verdict, with the bound that lets this trace through."""
        side = "at least" if self.name in LOWER_BOUNDED_FACTS else "at most"
        bound_text = "" if self.bound is None else f" (bound: {side} {self._format_bound(self.bound)})"
        setting = f"write quality: {{{self.name}: {self.passing_bound}}} in the gate file"
        return f"trace quality: {self._format_sentence(self.words + bound_text)}, or {setting}"

    @property
    def passing_bound(self) -> str:
        """The bound that this fact does not cross, as a gate file has it."""
        return OFF if self.measurement.value is None else self._format_bound(self.measurement.value)

    def _format_bound(self, value: Value) -> str:
        """Format a bound as a gate file has it; a fraction is rounded so that it lets the value through."""
        scaled = Fraction(value) * _TENTHS_BY_UNIT.get(self.unit, 10)
        tenths = floor(scaled) if self.name in LOWER_BOUNDED_FACTS else ceil(scaled)
        number = str(tenths // 10) if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}"
        return number + _WRITTEN_UNITS.get(self.unit, "")


def is_worse(name: str, value: Value | None, bound: Value) -> bool:
    """Return whether a value is worse than a bound: fewer anchors, more of anything else; what is unknown always is."""
    if value is None:
        return True
    return value < bound if name in LOWER_BOUNDED_FACTS else value > bound
