"""How are all ranks of a red drawn: what the window of each is made of, base above head, and which rank is to blame?

One scale holds for all bars, so that a rank that takes longer, or computes longer while the others wait, stands out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction

from pytest_nsys.analysis.budget.strips import RankStrip
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.core.numbers import format_change, format_in_one_unit, format_percent, format_value
from pytest_nsys.core.text_format import format_count
from pytest_nsys.core.units import TIME
from pytest_nsys.reports.drawings.pictures import RankPicture
from pytest_nsys.reports.page.budget_view import MIN_TOLD_SHARE, find_css_class
from pytest_nsys.reports.page.templating import TemplateData
from pytest_nsys.reports.page.timeline_view import build_strip_views

MAX_FULL_ROWS = 8
"""Up to so many ranks stand below each other in full width; more stand in columns."""

MAX_HIGH_ROWS = 32
"""Up to so many ranks have bars of full height."""

MIN_NAMED_SHARE = Fraction(1, 500)
"""The legend names a part from this share of a window on: that is a pixel of a bar."""

DrawnStrip = tuple[RankStrip, TemplateData]
"""What a window is made of, and how that is drawn."""

CAUSE, WAITS, RED = "cause", "waits", "red"


def build_rank_view(
    picture: RankPicture,
    ident: str,
    cause_ranks: Collection[int],
    waiting_ranks: Collection[int],
    red_ranks: Collection[int],
) -> TemplateData:
    """Return the template's data for the ranks; ``ident`` is in the names of their patterns."""
    strips = [*picture.base, *picture.head]
    views = build_strip_views(strips, ident)
    base_count = len(picture.base)
    bases = {strip.rank: (strip, view) for strip, view in zip(picture.base, views["rows"][:base_count], strict=True)}
    heads = [*zip(picture.head, views["rows"][base_count:], strict=True)]
    marks = {
        **dict.fromkeys(red_ranks, RED),
        **dict.fromkeys(waiting_ranks, WAITS),
        **dict.fromkeys(cause_ranks, CAUSE),
    }
    rows = [_build_row(bases.get(strip.rank), (strip, view), marks.get(strip.rank, "")) for strip, view in heads]
    parts = [
        part
        for part in BudgetPart
        if any(strip.ns_by_part[part] >= MIN_NAMED_SHARE * strip.length_ns > 0 for strip in strips)
    ]
    which_ranks = "Both" if len(rows) == 2 else f"All {len(rows)}" if not picture.omitted_count else str(len(rows))
    omitted_text = f", {format_count(picture.omitted_count, 'more rank')} left out" if picture.omitted_count else ""
    return {
        "title": f"{which_ranks} ranks{', base above head' if picture.base else ''}{omitted_text}",
        "size": "few" if len(rows) <= MAX_FULL_ROWS else "some" if len(rows) <= MAX_HIGH_ROWS else "many",
        "length_ns": views["length_ns"],
        "patterns": views["patterns"],
        "rows": rows,
        "legend": [(find_css_class(part), str(part)) for part in parts],
        "note": describe_slowest(picture),
    }


def _build_row(base: DrawnStrip | None, head: DrawnStrip, mark: str) -> TemplateData:
    """Return the template's data for one rank: its bars, its mark, and how much its window changed."""
    drawn_sides = [
        (name, *side) for name, side in (("base", base), ("head", head)) if side is not None and side[0].length_ns
    ]
    strip, _ = head
    lengths_ns = [side_strip.length_ns for _, side_strip, _ in drawn_sides]
    return {
        "rank": strip.rank,
        "mark": mark,
        "sides": [
            {"said": f"rank {strip.rank} {name}: {_describe_strip(side_strip)}", "paths": view["paths"]}
            for name, side_strip, view in drawn_sides
        ],
        "lengths": _join_lengths(lengths_ns),
        "change": format_change(lengths_ns[1], lengths_ns[0], TIME) if len(lengths_ns) == 2 else "",
        "is_slower": len(lengths_ns) == 2 and lengths_ns[1] > lengths_ns[0],
        "why": strip.why,
    }


def _join_lengths(lengths_ns: Sequence[int]) -> str:
    """Return lengths as ``24 → 26.8 ms``; empty for none."""
    *before, last = format_in_one_unit(lengths_ns) or [""]
    return " → ".join([*(text.split(" ")[0] for text in before), last])


def _describe_strip(strip: RankStrip) -> str:
    """Return what a window is made of: ``26.8 ms, 75% compute, 25% stalled``."""
    shares = (
        f"{format_percent(share, 2)} {part}"
        for part, ns in strip.ns_by_part.items()
        if (share := Fraction(ns, strip.length_ns)) >= MIN_TOLD_SHARE
    )
    return ", ".join([format_value(strip.length_ns), *shares])


def describe_slowest(picture: RankPicture) -> str:
    """Return which ranks are the slowest of base and head; empty if that is one rank, or if it makes no difference."""
    base_ns, head_ns = (
        {strip.rank: strip.length_ns for strip in strips if strip.length_ns} for strips in (picture.base, picture.head)
    )
    if not base_ns or not head_ns:
        return ""
    slow_base, slow_head = (find_slowest(lengths_ns) for lengths_ns in (base_ns, head_ns))
    before_texts = [format_value(base_ns[rank]) for rank in (slow_base, slow_head) if rank in base_ns]
    if len({*before_texts}) < 2:
        return ""
    return (
        f"Slowest → slowest rank: {before_texts[0]} is rank {slow_base}, {format_value(head_ns[slow_head])} is rank"
        f" {slow_head}, which took {before_texts[1]} in the base."
    )


def find_slowest(lengths_ns: dict[int, int]) -> int:
    """Return the rank with the longest window, of equal ones the first."""
    return min(lengths_ns, key=lambda rank: (-lengths_ns[rank], rank))
