"""How did a gate file with ``convention: auto`` get its convention?"""

from __future__ import annotations

from typing import NamedTuple

from pytest_nsys.analysis.steps.search_text import SearchResult, describe_chosen_convention, explain_whole_run
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention, describe_convention


class ConventionOrigin(NamedTuple):
    """Describes how a gate file with ``convention: auto`` got its convention."""

    where: str  # "trace", "base" or "baseline"
    run_convention: Convention  # the one that the run alone would be read under
    kernel_search: SearchResult = None  # result of the search for repeating kernels; None if there was no search

    def describe(self, convention: Convention, *, is_anchored: bool = True) -> str:
        """Name the convention and where it was found. Where not ``is_anchored``, say why the whole run is measured."""
        return describe_chosen_convention(convention, self.where, self.kernel_search, has_anchor=is_anchored)

    def describe_briefly(self, convention: Convention) -> str:
        """Name the convention and where it was found; leave out the anchor that a built-in convention brings along."""
        reason = (
            f"; {explain_whole_run(self.kernel_search)}"
            if self.kernel_search is not None and convention.anchor is None
            else ""
        )
        return f"{format_convention_name(convention)} (found in the {self.where}{reason})"

    def describe_shortly(self, convention: Convention) -> str:
        """Name the convention, or say why the whole run is measured, for a line that holds other facts as well."""
        if convention.anchor is None and self.kernel_search is not None:
            return f"the whole run: {explain_whole_run(self.kernel_search)}"
        return f"{format_convention_name(convention)} (found)"


def format_convention_name(convention: Convention) -> str:
    """Return a convention's name, and its anchor unless the built-in convention brings it along."""
    built_in = BUILT_IN_CONVENTIONS.get(convention.name)
    has_own_anchor = built_in is not None and built_in.anchor == convention.anchor
    return convention.name if has_own_anchor else describe_convention(convention)
