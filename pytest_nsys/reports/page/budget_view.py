"""How is the budget of a window drawn: a bar for each side on one scale, its parts in words, and the numbers below?

Parts of less than a hundredth of every window are merged into the rest, and waits that short are omitted; the table has
both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from pytest_nsys.analysis.explain.budget_lines import (
    BLOCKED_PARTS,
    BudgetFacts,
    BudgetPart,
    LaunchDelay,
    ProducerDelay,
    describe_uncertain_edges,
)
from pytest_nsys.core.numbers import Scale, choose_scale, format_value
from pytest_nsys.core.numbers import format_percent as in_percent
from pytest_nsys.core.units import TIME
from pytest_nsys.reports.page.templating import (
    NARROWEST_CLASS,
    NO_BREAK,
    TemplateData,
    choose_label,
    format_css_percent,
    keep_units_together,
)
from pytest_nsys.reports.tables.formats import Table, build_text_table, make_number_columns, make_text_columns
from pytest_nsys.reports.views import budget as budget_report
from pytest_nsys.reports.views.budget import AT_LEAST, AT_MOST, build_budget_lines, describe_blocking

MIN_BAR_PATTERN_SHARE = Fraction(6, 300)
"""Parts narrower than this share of a bar have no pattern: on a phone only a line of it would be visible."""

MIN_TOLD_SHARE = Fraction(1, 100)
"""A part that is less than this share of each window is merged into the rest."""

BOUND_SIGNS = {"": "", AT_LEAST: ">= ", AT_MOST: "<= "}

ShownPart = BudgetPart | Literal["rest"]
REST_PART: ShownPart = "rest"


def build_budget_view(
    named_budgets: Sequence[tuple[str, BudgetFacts]], title: str, length_ns: int
) -> TemplateData | None:
    """Return what the template draws of the budget of one rank, base above head, on the scale of a picture of
    ``length_ns``.

    Returns None if no side has a budget; then the page says why.
    """
    if not named_budgets:
        return None
    scale = choose_scale([facts.window_ns for _, facts in named_budgets], TIME)
    longest = max(length_ns, *(facts.window_ns for _, facts in named_budgets))
    grouped_budgets = [
        (name, facts, _group_small_parts(facts, select_large_parts(named_budgets))) for name, facts in named_budgets
    ]
    _, head = named_budgets[-1]
    head = _drop_unchanged_delays(head, [facts for _, facts in named_budgets[:-1]])
    return {
        "title": title,
        "is_alike": _are_alike([parts for _, _, parts in grouped_budgets]),
        "bars": [
            _build_budget_bar(name, facts, parts, longest, scale, title) for name, facts, parts in grouped_budgets
        ],
        "legend": list(_build_legend(grouped_budgets, scale)),
        "producers": describe_blocking(_drop_short_delays(head), scale),
        "notes": [budget_report.CEILING_NOTE, *describe_uncertain_edges(facts for _, facts in named_budgets)],
        "tables": [_build_budget_table(name, facts) for name, facts in named_budgets],
    }


def _are_alike(budgets: Sequence[Mapping[ShownPart, int]]) -> bool:
    """Whether the bars of base and head would look the same: no share changed by a part that is named."""
    if len(budgets) < 2:
        return False
    base, head = ({part: Fraction(ns, sum(parts.values())) for part, ns in parts.items()} for parts in budgets)
    return all(abs(head.get(part, Fraction()) - base.get(part, Fraction())) < MIN_TOLD_SHARE for part in {*base, *head})


def find_css_class(part: ShownPart) -> str:
    """Return the CSS class of a part."""
    return f"part-{part.name.lower() if isinstance(part, BudgetPart) else part}"


def select_large_parts(named_budgets: Sequence[tuple[str, BudgetFacts]]) -> set[BudgetPart]:
    """Return the parts that are named, chosen by their upper bounds."""
    return {
        part
        for _, facts in named_budgets
        for part, ns in {**facts.parts, BudgetPart.COLLECTIVE: facts.blocking_comm_max_ns}.items()
        if ns >= MIN_TOLD_SHARE * facts.window_ns
    }


def _group_small_parts(facts: BudgetFacts, large_parts: set[BudgetPart]) -> dict[ShownPart, int]:
    """Return the time of each part in ns, in display order; the rest comes last."""
    parts = facts.parts
    ns_by_part: dict[ShownPart, int] = {part: ns for part, ns in parts.items() if part in large_parts}
    return {**ns_by_part, REST_PART: sum(parts.values()) - sum(ns_by_part.values())}


def _drop_short_delays(facts: BudgetFacts) -> BudgetFacts:
    """Return a budget without the delays that are too short to be named."""
    min_ns = MIN_TOLD_SHARE * facts.window_ns
    producers = [delay for delay in facts.producers if delay.ns >= min_ns]
    return replace(facts, producers=producers, before=[delay for delay in facts.before if delay.ns >= min_ns])


def _drop_unchanged_delays(head: BudgetFacts, baselines: Sequence[BudgetFacts]) -> BudgetFacts:
    """Return a budget without the delays that were equally long in the baselines: they explain no change."""
    min_ns = MIN_TOLD_SHARE * head.window_ns
    baseline_ns: dict[ProducerDelay | LaunchDelay, int] = {}
    for facts in baselines:
        baseline_ns |= {replace(delay, ns=0, gaps=0): delay.ns for delay in facts.producers}
        baseline_ns |= {replace(delay, ns=0, gaps=0): delay.ns for delay in facts.before}

    def has_changed(delay: ProducerDelay | LaunchDelay) -> bool:
        return not baselines or abs(delay.ns - baseline_ns.get(replace(delay, ns=0, gaps=0), 0)) >= min_ns

    return replace(head, producers=[*filter(has_changed, head.producers)], before=[*filter(has_changed, head.before)])


def _format_time(ns: int, scale: Scale) -> str:
    return keep_units_together(format_value(ns, scale=scale))


def _build_budget_bar(
    name: str, facts: BudgetFacts, ns_by_part: Mapping[ShownPart, int], longest_ns: int, scale: Scale, title: str
) -> TemplateData:
    """Return the parts of one window as rectangles, ``x`` and ``width`` in percent of the longest window."""
    start_ns, segments, part_texts = 0, [], []
    for part, ns in ns_by_part.items():
        if ns:
            share = in_percent(Fraction(ns, facts.window_ns))
            part_texts.append(f"{part} {_format_time(ns, scale)} ({share})")
            segments.append(
                {
                    "class": find_css_class(part),
                    "part": str(part),
                    "ns": ns,
                    "x": format_css_percent(Fraction(start_ns, longest_ns)),
                    "width": format_css_percent(Fraction(ns, longest_ns)),
                    "middle": format_css_percent(Fraction(2 * start_ns + ns, 2 * longest_ns)),
                    "pattern": part != REST_PART and Fraction(ns, longest_ns) >= MIN_BAR_PATTERN_SHARE,
                    "label": _choose_part_label(part, share, Fraction(ns, longest_ns)),
                    "title": part_texts[-1],
                }
            )
        start_ns += ns
    return {
        "name": name,
        "segments": segments,
        "whole": _format_time(facts.window_ns, scale),
        "title": f"Budget of {title} {name}".rstrip(),
        "said": ", ".join(part_texts),
    }


def _choose_part_label(part: ShownPart, share: str, of_width: Fraction) -> tuple[str, str] | None:
    """Return the label of a part: name and share if a phone has room for both, else the share; None if it fits
    nowhere.
    """
    full_label = choose_label(f"{part} {share}", of_width)
    return full_label if full_label is not None and full_label[1] == NARROWEST_CLASS else choose_label(share, of_width)


def _build_legend(
    grouped_budgets: Sequence[tuple[str, BudgetFacts, Mapping[ShownPart, int]]], scale: Scale
) -> Iterator[TemplateData]:
    """Yield each part that takes time in any of the windows, with its amount in each."""
    _, head, head_parts = grouped_budgets[-1]
    for part, ns in head_parts.items():
        has_two_bounds = _has_distant_bounds(head) and part is BudgetPart.COLLECTIVE
        if not has_two_bounds and not any(parts[part] for _, _, parts in grouped_budgets):
            continue
        text = _format_part_amount(head, part, ns, scale, f" ({in_percent(Fraction(ns, head.window_ns))})")
        text += "".join(
            f"; {name} {_format_part_amount(facts, part, parts[part], scale)}"
            for name, facts, parts in grouped_budgets[:-1]
        )
        yield {"class": find_css_class(part), "name": str(part), "told": text}


def _has_distant_bounds(facts: BudgetFacts) -> bool:
    """Whether the two bounds of the time that collectives block are so far apart that both are shown."""
    return facts.blocking_comm_max_ns - facts.blocking_ns["collective"] >= MIN_TOLD_SHARE * facts.window_ns


def _format_part_amount(facts: BudgetFacts, part: ShownPart, ns: int, scale: Scale, share: str = "") -> str:
    """Return a part's time and share, with both bounds if the exact time is unknown."""
    has_two_bounds = _has_distant_bounds(facts) and part is BudgetPart.COLLECTIVE
    bound = f"≥{NO_BREAK}" if has_two_bounds or (share and facts.at_least and part in BLOCKED_PARTS.values()) else ""
    text = f"{bound}{_format_time(ns, scale)}{share}" if ns or not has_two_bounds else ""
    return text + (
        f"{', ' if text else ''}≤{NO_BREAK}{_format_time(facts.blocking_comm_max_ns, scale)}" if has_two_bounds else ""
    )


def _build_budget_table(name: str, facts: BudgetFacts) -> Table:
    scale = choose_scale([facts.window_ns], TIME)
    rows = [
        (
            line.part,
            BOUND_SIGNS[line.bound] + format_value(line.duration_ns, scale=scale),
            in_percent(line.share),
            "–" if line.ceiling is None else f"+{in_percent(line.ceiling)}",
        )
        for line in build_budget_lines(facts)
        if line.duration_ns
    ]
    return build_text_table(
        name or "budget", (*make_text_columns("part"), *make_number_columns("time", "share", "ceiling")), rows
    )
