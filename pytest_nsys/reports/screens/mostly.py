"""How does it read what a run mostly is? One sentence with its figure, and one on what to do."""

from __future__ import annotations

from collections.abc import Collection

from pytest_nsys.analysis.summary.mostly import Mostly, MostOf
from pytest_nsys.core.kernel_names import readable_names
from pytest_nsys.core.numbers import format_value, percent
from pytest_nsys.core.words import printable

NAME_WIDTH = 40


SHOW_RUN = "pytest-nsys TRACE "
"""Stands before options where another command than the first screen tells of them."""


def mostly_lines(found: Mostly, of: str, command: str = "", beside: Collection[str] = ()) -> tuple[str, str]:
    """Return ``97% of the run is copies, most of them pinned to device``, and what to do.

    ``noun`` is what was measured, ``command_prefix`` what stands before options that show more, where it is not the
    command that was typed. A kernel is named as a table names it beside others of the demangled ``other_names``.
    """
    share = percent(found.share)
    match found.of:
        case MostOf.COPIES:
            which_text = f", most of it {printable(found.what, NAME_WIDTH)}" if found.what else ""
            pin_text = "pin that memory and " if "pageable" in found.what else ""
            return (
                f"mostly copies: for {share} of the {of} the GPU does nothing but copy{which_text}",
                f"a gate on compute judges {percent(found.computes)} of it: "
                f"{pin_text}copy on another stream beside compute",
            )
        case MostOf.IDLE:
            gap_text = "" if found.gap_ns is None else f", {format_value(found.gap_ns)} of it in one gap"
            remedy = f"{command}--view budget says what they wait for"
            # Most of a whole run may lie before, between and after its steps: a window leaves that out.
            if of == "run":
                remedy = f"profile whole steps alone, or pick {command}--window START:END"
            return (
                f"mostly idle: for {share} of the {of} nothing runs on the GPU{gap_text}",
                f"a gate on its length judges the gaps: {remedy}",
            )
        case _:
            name = readable_names([*beside, found.what], NAME_WIDTH)[found.what]
            return (
                f"mostly one kernel: {name} takes {share} of the {of}",
                "a gate on its length judges little else: gate others by family_ns "
                f"({command}--view kernels has the families)",
            )
