"""How much of each fact about a trace does a verdict accept? The keys of ``quality:``, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction

from pytest_nsys.core.model import Value
from pytest_nsys.core.units import MEGAHERTZ, TIME

# The median of fewer anchors moves with each of them.
FEW_ANCHORS = 5
LOWER_BOUNDED_FACTS = frozenset({"anchors", "sm_clock"})
"""Facts whose bound is a minimum; for all others it is a maximum."""

# Units of the bounds that are no counts.
FACT_UNITS: Mapping[str, str] = {
    **dict.fromkeys(("launches_without_work", "unlaunched", "unlaunched_in_run", "unstaged", "unclassified"), "%"),
    **dict.fromkeys(("unknown_communication", "unsized_collectives", "empty_anchors", "slow_steps"), "%"),
    "apart": TIME,
    "older_than_commit": TIME,
    "typicality": "1",
    "profiler_overhead": "%",
    "sm_clock": MEGAHERTZ,
}

# Longer than a CI job (GitHub ends those on its machines after six hours). A commit may be made, or rebased, after its
# capture began, and JAX records local time, which is up to 14 hours off.
MAX_JOB_NS = 24 * 60 * 60 * 1_000_000_000

# Minimum number of nonzero times, or of kernels, to compare: fewer may agree by chance.
ENOUGH_ROWS = 8

OFF = "off"
"""Written in place of a bound: any value passes."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Holds how much of each fact a verdict accepts, with shares as plain fractions; None means any amount, which is
    only noted.

    By default, facts are bounded that make a number wrong whatever the program does. Facts that good traces show, too
    (warnings of the profiler, a median window beyond 5 MAD if there are few anchors), are only noted until a gate
    bounds them.
    """

    missing_ranks: int | None = 0
    shared_gpus: int | None = 0
    impossible_rows: int | None = 0
    unlaunched: Fraction | None = Fraction(5, 100)
    unlaunched_in_run: Fraction | None = Fraction(1, 2)
    unstaged: Fraction | None = None
    unclassified: Fraction | None = None
    unknown_communication: Fraction | None = Fraction(0)
    unsized_collectives: Fraction | None = Fraction(0)
    whole_graphs: int | None = 0
    launches_without_work: Fraction | None = Fraction(1, 100)
    processes_without_kernels: int | None = 0
    dropped: int | None = 0
    diagnostics: int | None = None
    anchors: int | None = FEW_ANCHORS
    empty_anchors: Fraction | None = Fraction(1, 5)
    uneven_anchors: int | None = 1
    slow_steps: Fraction | None = None
    apart: Fraction | None = Fraction(0)
    typicality: Fraction | None = None
    clocks: int | None = None
    same_as_baseline: int | None = None
    older_than_commit: Fraction | None = Fraction(MAX_JOB_NS)
    profiler_overhead: Fraction | None = None
    sm_clock: Fraction | None = None
    # Not a bound, but the number of ranks that the gate file states: ranks that no trace mentions are missing, too.
    world: int | None = None
    # No bound, but how many steps a run like this one has at most, 1 where nothing says so. With few of them one step
    # alone is enough; None: a median was asked for, which one step is not.
    usual_steps: int | None = 1


def find_fact_unit(name: str) -> str:
    """Return the unit of a fact's value and bound."""
    return FACT_UNITS.get(name, "count")


# The bounds of a gate file that states no bounds.
NO_BOUNDS = Bounds()

# The default bounds, by name.
DEFAULT_BOUNDS: Mapping[str, Value | None] = {
    field.name: getattr(NO_BOUNDS, field.name) for field in fields(Bounds) if field.name not in ("world", "usual_steps")
}
