"""How is the result of a search for steps described: what repeats, and why is the whole run measured all the same?"""

from __future__ import annotations

import shlex

from pytest_nsys.analysis.steps.facts import FoundUnits, NoUnits, UnitIs
from pytest_nsys.core.conventions import Convention, convention_words, written_anchor
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.words import counted

Searched = FoundUnits | NoUnits | None
"""The result of a search for steps; None where nobody searched, as a framework marks its own."""

LONGEST_ANCHOR = 80
"""The most characters of a kernel's name inside a sentence: the first screen has it whole."""


def found_words(convention: Convention, where: str, searched: Searched, *, anchored: bool) -> str:
    """Describe the convention, and where it was found; without an anchor, why the whole run is measured."""
    if not anchored:
        units = other_units(searched)
        hint = "" if units is None else f"; {to_measure(units)}"
        return f"convention {convention.name}, no anchor ({why_whole(searched)}{hint})"
    origin = f"found in the {where}"
    if convention.kernel_anchor is not None and isinstance(searched, FoundUnits):
        origin = f"found in the kernels of the {where}: {units_words(searched)}"
    return f"convention {convention_words(convention)} ({origin})"


def units_words(found: FoundUnits) -> str:
    """Describe how many units there are of what: ``17 steps, every 16.8 ms``.

    What is no step has no number: kernels that repeat may be a layer, half of one, or two.
    """
    period_text = f"every {format_value(found.period_ns)}"
    if found.what not in (UnitIs.STEP, UnitIs.KINDS):
        return f"each repeat, {period_text}"
    rank_note = "" if len({*found.units.values()}) == 1 else " or more on each rank"
    return f"{_counted(found)}{rank_note}, {period_text}"


def why_whole(searched: Searched) -> str:
    """Explain why nothing in the trace is measured as a step."""
    if searched is None:
        return "no range repeats around its kernels"
    part = searched.repeated
    if isinstance(searched, NoUnits):
        return searched.why if part is None or part.holders > 1 else f"{part}, and no step"
    match searched.what:
        case UnitIs.PART if part is not None:
            return f"{part}, and {'no step' if part.holders == 1 else 'nothing marks a step'}"
        case UnitIs.PART:
            return "parts of a step repeat, and no step does"
        case UnitIs.KINDS:
            return f"{_counted(searched)} of {searched.kinds} kinds, which have no median in common"
        case UnitIs.TWO_SPEEDS:
            return "its kernels repeat at two speeds, which have no median in common"
        case UnitIs.MAYBE_PART if part is not None:
            return f"{part}, which may be parts of a step"
        case UnitIs.MAYBE_PART:
            return "its kernels repeat, maybe in parts of a step"
        case UnitIs.STEP:
            return f"{_counted(searched)}, whose windows hold no kernels"


def inside_words(searched: Searched) -> str:
    """Format what repeats in the only step, and how often; empty where nothing proves it."""
    return "" if searched is None or searched.repeated is None else str(searched.repeated)


def repeats_words(searched: Searched) -> str | None:
    """Describe what repeats in the run; None where nothing does, or nobody searched."""
    if part_text := inside_words(searched):
        return part_text
    return units_words(searched) if isinstance(searched, FoundUnits) else None


def other_units(searched: Searched) -> FoundUnits | None:
    """Return units that were found and are no steps, else None."""
    return searched if isinstance(searched, FoundUnits) and searched.what is not UnitIs.STEP else None


def to_measure(found: FoundUnits) -> str:
    """Format the option that measures each of the units that ``auto`` does not measure."""
    anchor = written_anchor(found.anchor)
    if len(anchor) > LONGEST_ANCHOR:
        return "`pytest-nsys TRACE` says which --anchor measures each"
    return f"--anchor {shlex.quote(anchor)} measures each"


def _counted(found: FoundUnits) -> str:
    """Format how many steps there are on each rank, at least."""
    return counted(min(found.units.values()), "step")
