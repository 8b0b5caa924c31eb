"""How is the dominant activity of a run put into words? As a sentence with its share, and one on what to do."""

from __future__ import annotations

from collections.abc import Collection

from pytest_nsys.analysis.summary.dominant_activity import DominantActivity, DominantActivityKind
from pytest_nsys.core.kernel_names import make_display_names
from pytest_nsys.core.numbers import format_percent, format_value
from pytest_nsys.core.text_format import sanitize_line

ACTIVITY_NAME_WIDTH = 40


RUN_COMMAND_PREFIX = "pytest-nsys TRACE "
"""The prefix of suggested options in commands other than the first screen."""


def describe_dominant_activity(
    activity: DominantActivity, noun: str, command_prefix: str = "", other_names: Collection[str] = ()
) -> tuple[str, str]:
    """Return ``97% of the run is copies, most of them pinned to device``, and what to do.

    ``noun`` is what was measured. ``command_prefix`` is put before suggested options if they belong to another command
    than the typed one. A kernel has the same short name as in a table with the kernels ``other_names`` (demangled).
    """
    share = format_percent(activity.share)
    match activity.kind:
        case DominantActivityKind.COPIES:
            which_text = (
                f", most of it {sanitize_line(activity.subject, ACTIVITY_NAME_WIDTH)}" if activity.subject else ""
            )
            pin_text = "pin that memory and " if "pageable" in activity.subject else ""
            return (
                f"mostly copies: for {share} of the {noun} the GPU does nothing but copy{which_text}",
                f"a gate on compute judges {format_percent(activity.compute_share)} of it: "
                f"{pin_text}copy on another stream beside compute",
            )
        case DominantActivityKind.IDLE:
            gap_text = "" if activity.gap_ns is None else f", {format_value(activity.gap_ns)} of it in one gap"
            remedy = f"{command_prefix}--view budget says what they wait for"
            # Most of a run's activity may be outside its steps, which a window excludes.
            if noun == "run":
                remedy = f"profile whole steps alone, or pick {command_prefix}--window START:END"
            return (
                f"mostly idle: for {share} of the {noun} nothing runs on the GPU{gap_text}",
                f"a gate on its length judges the gaps: {remedy}",
            )
        case _:
            name = make_display_names([*other_names, activity.subject], ACTIVITY_NAME_WIDTH)[activity.subject]
            return (
                f"mostly one kernel: {name} takes {share} of the {noun}",
                "a gate on its length judges little else: gate others by family_ns "
                f"({command_prefix}--view kernels has the families)",
            )
