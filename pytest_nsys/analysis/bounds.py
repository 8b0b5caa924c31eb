"""How much of each doubt about a trace does a verdict bear? What :mod:`~pytest_nsys.analysis.quality` measures.

These are facts alone, by which a gate file is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction

from pytest_nsys.core.model import Value
from pytest_nsys.core.units import MEGAHERTZ, TIME

FEW_ANCHORS = 5
AT_LEAST = frozenset({"anchors", "sm_clock"})
"""Checks whose bound is the least that is good; of all others it is the most."""

UNITS: Mapping[str, str] = {
    **dict.fromkeys(("unlaunched", "unstaged", "unclassified", "unknown_communication", "empty_anchors"), "%"),
    "apart": TIME,
    "typicality": "1",
    "profiler_overhead": "%",
    "sm_clock": MEGAHERTZ,
}
"""Of the bounds that are no counts."""

OFF = "off"
"""In place of a bound: the check is not made."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of each doubt a verdict bears; None: the check is off. Shares are plain fractions.

    ``world`` is no bound, but how many ranks the gate file states: one that no trace mentions is missing, too. Nor is
    ``usual_steps``: how many steps a run like this one has at most, 1 where nothing says so. With few of them one step
    alone is enough; None: a median was asked for, which one step is not.

    On by default is what makes a number wrong whatever the program does. What good traces show as well (warnings of the
    profiler, a median window beyond 5 MAD where few anchors have one) is told as a note until somebody bounds it.
    """

    missing_ranks: int | None = 0
    unlaunched: Fraction | None = Fraction(1, 10)
    unstaged: Fraction | None = None
    unclassified: Fraction | None = None
    unknown_communication: Fraction | None = Fraction(0)
    whole_graphs: int | None = 0
    dropped: int | None = 0
    diagnostics: int | None = None
    anchors: int | None = FEW_ANCHORS
    empty_anchors: Fraction | None = Fraction(1, 5)
    uneven_anchors: int | None = 1
    apart: Fraction | None = Fraction(0)
    typicality: Fraction | None = None
    clocks: int | None = None
    same_as_baseline: int | None = None
    profiler_overhead: Fraction | None = None
    sm_clock: Fraction | None = None
    world: int | None = None
    usual_steps: int | None = 1

    def each(self) -> Iterator[tuple[str, str, Value | None]]:
        """The name, the unit and the bound of each check."""
        named = (field.name for field in fields(self) if field.name not in ("world", "usual_steps"))
        return ((name, UNITS.get(name, "count"), getattr(self, name)) for name in named)
