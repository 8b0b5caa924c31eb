"""How did a gate file of ``auto`` come by its convention?"""

from __future__ import annotations

from typing import NamedTuple

from pytest_nsys.core.conventions import BUILT_IN, Convention, convention_words


class FoundConvention(NamedTuple):
    """How a gate file of ``auto`` came by its convention. ``where``: the trace, the base, the baseline.

    ``alone`` is the convention that the run alone would be read under; None where nobody may know, as of a baseline
    that was stored when ``auto`` was not.
    """

    where: str
    alone: Convention | None

    def told(self, convention: Convention, *, anchored: bool = True) -> str:
        """The convention and where it was found; not ``anchored``: the whole run is measured, as nothing repeats."""
        if not anchored:
            return f"convention {convention.name}, no anchor (no range of the {self.where} repeats around its kernels)"
        return f"convention {convention_words(convention)} (found in the {self.where})"

    def briefly(self, convention: Convention) -> str:
        """The same; of a built-in one with its own anchor the name alone says it."""
        return f"{named(convention)} (found in the {self.where})"


def named(convention: Convention) -> str:
    """A convention by its name, and by its anchor unless that is the built-in one's own."""
    built_in = BUILT_IN.get(convention.name)
    usual = built_in is not None and built_in.anchor == convention.anchor
    return convention.name if usual else convention_words(convention)
