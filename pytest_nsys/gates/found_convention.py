"""How did a gate file of ``auto`` come by its convention?"""

from __future__ import annotations

from typing import NamedTuple

from pytest_nsys.analysis.steps.words import Searched, found_words, why_whole
from pytest_nsys.core.conventions import BUILT_IN, Convention, convention_words


class FoundConvention(NamedTuple):
    """How a gate file of ``auto`` came by its convention. ``where``: the trace, the base, the baseline.

    ``alone`` is the convention that the run alone would be read under. ``searched`` is what repeats in the kernels,
    where anybody looked.
    """

    where: str
    alone: Convention
    searched: Searched = None

    def told(self, convention: Convention, *, anchored: bool = True) -> str:
        """The convention and where it was found; not ``anchored``: why the whole run is measured."""
        return found_words(convention, self.where, self.searched, anchored=anchored)

    def briefly(self, convention: Convention) -> str:
        """The same; of a built-in one with its own anchor the name alone says it."""
        why = f"; {why_whole(self.searched)}" if self.searched is not None and convention.anchor is None else ""
        return f"{named(convention)} (found in the {self.where}{why})"

    def shortly(self, convention: Convention) -> str:
        """The same on a line with others."""
        if convention.anchor is None and self.searched is not None:
            return f"the whole run: {why_whole(self.searched)}"
        return f"{named(convention)} (found)"


def named(convention: Convention) -> str:
    """A convention by its name, and by its anchor unless that is the built-in one's own."""
    built_in = BUILT_IN.get(convention.name)
    usual = built_in is not None and built_in.anchor == convention.anchor
    return convention.name if usual else convention_words(convention)
