"""How did a gate file of ``auto`` come by its convention?"""

from __future__ import annotations

from typing import NamedTuple

from pytest_nsys.analysis.steps.words import Searched, found_words, why_whole
from pytest_nsys.core.conventions import BUILT_IN, Convention, convention_words


class FoundConvention(NamedTuple):
    """Describes how a gate file of ``auto`` came by its convention."""

    where: str  # "trace", "base" or "baseline"
    alone: Convention  # that the run alone would be read under
    searched: Searched = None  # what repeats in the kernels, where anybody looked

    def told(self, convention: Convention, *, anchored: bool = True) -> str:
        """Name the convention and where it was found. Where not ``is_anchored``, say why the whole run is measured."""
        return found_words(convention, self.where, self.searched, anchored=anchored)

    def briefly(self, convention: Convention) -> str:
        """Say where it was found, and the name alone of a built-in convention with its own anchor."""
        reason = f"; {why_whole(self.searched)}" if self.searched is not None and convention.anchor is None else ""
        return f"{named(convention)} (found in the {self.where}{reason})"

    def shortly(self, convention: Convention) -> str:
        """Say the same for a line that has other facts, without where it was found."""
        if convention.anchor is None and self.searched is not None:
            return f"the whole run: {why_whole(self.searched)}"
        return f"{named(convention)} (found)"


def named(convention: Convention) -> str:
    """Return a convention's name, and its anchor unless that is the built-in one's own."""
    built_in = BUILT_IN.get(convention.name)
    has_own_anchor = built_in is not None and built_in.anchor == convention.anchor
    return convention.name if has_own_anchor else convention_words(convention)
