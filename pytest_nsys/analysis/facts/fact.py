"""What is a fact about a trace, and how does it read? One sentence, wherever it is printed."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple

from pytest_nsys.analysis.fact_bounds import LOWER_BOUNDED_FACTS, OFF
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.units import MEGAHERTZ, TIME

# By unit, the factor from a value to tenths of what is written: shares in percent, times in seconds.
_TENTHS_BY_UNIT: Mapping[str, Fraction] = {"%": Fraction(1000), TIME: Fraction(10, 10**9)}
# The unit that is written after a bound, by the fact's unit.
_WRITTEN_UNITS = {"%": "%", MEGAHERTZ: MEGAHERTZ, TIME: "s"}
# How an error says which bound would accept the trace.
_GATE_SETTING = re.compile(r"write quality: \{(\w+): ([^{}]+)\} in the gate file")


class Weight(enum.IntEnum):
    """Says how a fact affects what depends on it: it is shown with it, casts doubt on it, or is an error that replaces
    it.
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
    # Whether it casts doubt on what depends on it, unless it is an error or a gate file accepts it; otherwise
    # it is a note.
    is_doubtful: bool = True


class Fact(NamedTuple):
    """Describes one fact about a run, with its weight."""

    name: str  # the key of its bound in ``quality:``
    # ``count``, ``%`` (a plain fraction), ``1``, ``MHz`` or ``ns`` (seconds in gate files)
    unit: str
    measurement: MeasuredFact
    weight: Weight
    bound: Value | None = None  # None if no value is an error

    @property
    def words(self) -> str:
        """The finding, without what it means."""
        return self.measurement.words

    @property
    def sentence(self) -> str:
        """The finding, why it matters and what to do."""
        return self._format_sentence(self.words)

    def _format_sentence(self, finding: str) -> str:
        """Format the finding, why it matters and what to do."""
        return "; ".join(
            filter(None, [": ".join(filter(None, [finding, self.measurement.reason])), self.measurement.remedy])
        )

    @property
    def note(self) -> Note:
        """The sentence as a note next to a verdict."""
        return Note(self.sentence, self.weight > Weight.NOTE)

    @property
    def error(self) -> str:
        """The sentence as an error in place of a verdict, with the bound that would accept this trace."""
        side = "at least" if self.name in LOWER_BOUNDED_FACTS else "at most"
        bound_text = "" if self.bound is None else f" (bound: {side} {self._format_bound(self.bound)})"
        setting = f"write quality: {{{self.name}: {self.passing_bound}}} in the gate file"
        return f"trace quality: {self._format_sentence(self.words + bound_text)}, or {setting}"

    @property
    def passing_bound(self) -> str:
        """A bound that this fact does not cross, in gate-file syntax."""
        return OFF if self.measurement.value is None else self._format_bound(self.measurement.value)

    def _format_bound(self, value: Value) -> str:
        """Format a bound in gate-file syntax; a fraction is rounded so that the value passes."""
        scaled = Fraction(value) * _TENTHS_BY_UNIT.get(self.unit, 10)
        tenths = floor(scaled) if self.name in LOWER_BOUNDED_FACTS else ceil(scaled)
        number = str(tenths // 10) if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}"
        return number + _WRITTEN_UNITS.get(self.unit, "")


def is_worse(name: str, value: Value | None, bound: Value) -> bool:
    """Return whether a value is worse than a bound: lower for LOWER_BOUNDED_FACTS, higher for all others, or
    unknown.
    """
    if value is None:
        return True
    return value < bound if name in LOWER_BOUNDED_FACTS else value > bound


def advise_quality_argument(error: str) -> str:
    """Return an error with the bound as an argument of ``judge``, for a sentence that stands in no gate file."""

    def format_argument(setting: re.Match[str]) -> str:
        name, bound = setting.groups()
        return f'judge with quality={{"{name}": {bound if bound.isdigit() else json.dumps(bound)}}}'

    return _GATE_SETTING.sub(format_argument, error)
