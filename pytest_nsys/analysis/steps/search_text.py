"""How is the result of a search for steps described: what repeats, and why is the whole run measured nevertheless?"""

from __future__ import annotations

import shlex

from pytest_nsys.analysis.steps.search_result import FoundUnits, NoUnits, UnitType
from pytest_nsys.core.conventions import Convention, describe_convention, format_anchor
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import format_count

SearchResult = FoundUnits | NoUnits | None
"""The result of a search for steps; None if nothing was searched because a framework marks its own steps."""

MAX_ANCHOR_TEXT = 80
"""The maximum length of a kernel's name inside a sentence, in characters; the first screen shows the whole name."""


def describe_chosen_convention(
    convention: Convention, source: str, search_result: SearchResult, *, has_anchor: bool
) -> str:
    """Describe the convention and where it was found; if it has no anchor, say why the whole run is measured."""
    if not has_anchor:
        units = select_other_units(search_result)
        hint = "" if units is None else f"; {format_measure_option(units)}"
        return f"convention {convention.name}, no anchor ({explain_whole_run(search_result)}{hint})"
    origin = f"found in the {source}"
    if convention.kernel_anchor is not None and isinstance(search_result, FoundUnits):
        origin = f"found in the kernels of the {source}: {describe_units(search_result)}"
    return f"convention {describe_convention(convention)} ({origin})"


def describe_units(units: FoundUnits) -> str:
    """Describe the units, with number and period if they are steps: ``17 steps, every 16.8 ms``.

    Other units get no number, because kernels that repeat may be a layer, half a layer, or two.
    """
    period_text = f"every {format_value(units.period_ns)}"
    if units.unit_type not in (UnitType.STEP, UnitType.KINDS):
        return f"each repeat, {period_text}"
    rank_note = "" if len({*units.count_by_rank.values()}) == 1 else " or more on each rank"
    return f"{_format_unit_count(units)}{rank_note}, {period_text}"


def explain_whole_run(search_result: SearchResult) -> str:
    """Explain why nothing in the trace is measured as a step."""
    if search_result is None:
        return "no range repeats around its kernels"
    part = search_result.repeated_part
    if isinstance(search_result, NoUnits):
        return search_result.reason if part is None or part.holder_count > 1 else f"{part}, and no step"
    match search_result.unit_type:
        case UnitType.PART if part is not None:
            return f"{part}, and {'no step' if part.holder_count == 1 else 'nothing marks a step'}"
        case UnitType.PART:
            return "parts of a step repeat, and no step does"
        case UnitType.KINDS:
            return (
                f"{_format_unit_count(search_result)} of {search_result.kind_count} kinds, which have no median in "
                "common"
            )
        case UnitType.TWO_SPEEDS:
            return "its kernels repeat at two speeds, which have no median in common"
        case UnitType.MAYBE_PART if part is not None:
            return f"{part}, which may be parts of a step"
        case UnitType.MAYBE_PART:
            return "its kernels repeat, maybe in parts of a step"
        case UnitType.STEP:
            return f"{_format_unit_count(search_result)}, whose windows hold no kernels"


def format_repeated_part(search_result: SearchResult) -> str:
    """Format what repeats in the only step, and how often; empty if nothing proves it."""
    return "" if search_result is None or search_result.repeated_part is None else str(search_result.repeated_part)


def describe_repeats(search_result: SearchResult) -> str | None:
    """Describe what repeats in the run; None if nothing does, or nothing was searched."""
    if part_text := format_repeated_part(search_result):
        return part_text
    return describe_units(search_result) if isinstance(search_result, FoundUnits) else None


def select_other_units(search_result: SearchResult) -> FoundUnits | None:
    """Return the found units if they are not steps, else None."""
    return (
        search_result
        if isinstance(search_result, FoundUnits) and search_result.unit_type is not UnitType.STEP
        else None
    )


def format_measure_option(units: FoundUnits) -> str:
    """Format the command-line option that measures units which ``auto`` does not measure."""
    anchor = format_anchor(units.anchor)
    if len(anchor) > MAX_ANCHOR_TEXT:
        return "`pytest-nsys TRACE` says which --anchor measures each"
    return f"--anchor {shlex.quote(anchor)} measures each"


def _format_unit_count(units: FoundUnits) -> str:
    """Format the number of steps on the rank that has fewest."""
    return format_count(min(units.count_by_rank.values()), "step")
