"""What is said of a search for steps: what repeats, and why the whole run is measured all the same?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from pytest_nsys.analysis.step_facts import FoundUnits, NoUnits, UnitIs
from pytest_nsys.core.conventions import Convention, convention_words, written_anchor
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.words import counted

Searched = FoundUnits | NoUnits | None
"""What a search for steps gave; None where nobody searched, as a framework marks its own."""


def found_words(convention: Convention, where: str, searched: Searched, *, anchored: bool) -> str:
    """The convention, and where it was found; not ``anchored``: why the whole run is measured."""
    if not anchored:
        ways = "".join(f"; {way}" for way in ways_to_name(searched))
        return f"convention {convention.name}, no anchor ({why_whole(searched)}{ways})"
    found = f"found in the {where}"
    if convention.kernel_anchor is not None and isinstance(searched, FoundUnits):
        found = f"found in the kernels of the {where}: {units_words(searched)}"
    return f"convention {convention_words(convention)} ({found})"


def units_words(found: FoundUnits) -> str:
    """How many there are of what: ``17 steps, every 16.8 ms``."""
    fewest = min(found.units.values())
    often = counted(fewest, "step" if found.what is UnitIs.STEP else "repeat")
    more = "" if len({*found.units.values()}) == 1 else " or more on each rank"
    return f"{often}{more}, every {format_value(found.period_ns)}"


def why_whole(searched: Searched, *, inside: bool = False) -> str:
    """What repeats, which is why nothing of the trace is measured as a step; ``inside``: of the only one."""
    if searched is None:
        return "no range repeats around its kernels"
    if isinstance(searched, NoUnits):
        return searched.why
    number = min(searched.units.values())
    match searched.what:
        case UnitIs.PART:
            return f"{counted(number, 'repeat')} of a layer{' in it' if inside else ', and no step'}"
        case UnitIs.KINDS:
            return f"{counted(number, 'step')} of {searched.kinds} kinds, which have no median in common"
        case UnitIs.TWO_SPEEDS:
            return f"{counted(number, 'repeat')} at two speeds, which have no median in common"
        case _:
            return f"{counted(number, 'repeat')}, which may be parts of a step"


def ways_to_name(searched: Searched) -> Iterator[str]:
    """How a person measures the units that ``auto`` does not."""
    if isinstance(searched, FoundUnits) and searched.what is not UnitIs.STEP:
        yield f"--anchor {shlex.quote(written_anchor(searched.pattern or searched.anchor))} measures each"
