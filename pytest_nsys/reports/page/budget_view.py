"""How is the budget of a window drawn: a bar for each side on one scale, its parts in words, and the numbers below?

Parts of less than a hundredth of every window are one, the rest, and no wait that short is told: the table has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from pytest_nsys.analysis.explain.budget_lines import BLOCKED, Blocking, BudgetFacts, BudgetPart, Delayed, about_edges
from pytest_nsys.core.numbers import Scale, format_value, scale_of
from pytest_nsys.core.numbers import percent as in_percent
from pytest_nsys.core.units import TIME
from pytest_nsys.reports.page.page import NARROWEST, NO_BREAK, Drawn, label_of, percent, unparted
from pytest_nsys.reports.tables.formats import Table, numbers, table_of, texts
from pytest_nsys.reports.views import budget as budget_report
from pytest_nsys.reports.views.budget import AT_LEAST, AT_MOST, held_up, lines_of

LEAST_PATTERN = Fraction(6, 300)
"""What is narrower than this share of a bar has no pattern, of which a phone would show a line."""

LEAST_TOLD = Fraction(1, 100)
"""A part that is less than this share of each window is in the rest."""

SIGNS = {"": "", AT_LEAST: ">= ", AT_MOST: "<= "}

Shown = BudgetPart | Literal["rest"]
REST: Shown = "rest"


def budget_view(known: Sequence[tuple[str, BudgetFacts]], title: str, length_ns: int) -> Drawn | None:
    """Return what the template draws of the budget of one rank, base above head, on the scale of a picture of
    ``length_ns``.

    Returns None where no side has a budget, for then the page says why.
    """
    if not known:
        return None
    scale = scale_of([facts.window_ns for _, facts in known], TIME)
    longest = max(length_ns, *(facts.window_ns for _, facts in known))
    grouped_budgets = [(name, facts, _told(facts, large_parts(known))) for name, facts in known]
    _, head = known[-1]
    head = _without_unchanged(head, [facts for _, facts in known[:-1]])
    return {
        "title": title,
        "bars": [_bar(name, facts, parts, longest, scale, title) for name, facts, parts in grouped_budgets],
        "legend": list(_legend(grouped_budgets, scale)),
        "producers": held_up(_without_short(head), scale),
        "notes": [budget_report.CEILING, *about_edges(facts for _, facts in known)],
        "tables": [_table(name, facts) for name, facts in known],
    }


def css(part: Shown) -> str:
    """Return the class of style of a part."""
    return f"part-{part.name.lower() if isinstance(part, BudgetPart) else part}"


def large_parts(known: Sequence[tuple[str, BudgetFacts]]) -> set[BudgetPart]:
    """Return the parts that are told by name, by what they may be at most."""
    return {
        part
        for _, facts in known
        for part, ns in {**facts.parts, BudgetPart.COLLECTIVE: facts.blocking_comm_max_ns}.items()
        if ns >= LEAST_TOLD * facts.window_ns
    }


def _told(facts: BudgetFacts, large: set[BudgetPart]) -> dict[Shown, int]:
    """Return the time of each part in the order in which parts are shown; the rest comes last."""
    parts = facts.parts
    ns_by_part: dict[Shown, int] = {part: ns for part, ns in parts.items() if part in large}
    return {**ns_by_part, REST: sum(parts.values()) - sum(ns_by_part.values())}


def _without_short(facts: BudgetFacts) -> BudgetFacts:
    """Return a budget without the delays that are shorter than what is told."""
    min_ns = LEAST_TOLD * facts.window_ns
    producers = [delay for delay in facts.producers if delay.ns >= min_ns]
    return replace(facts, producers=producers, before=[delay for delay in facts.before if delay.ns >= min_ns])


def _without_unchanged(head: BudgetFacts, before: Sequence[BudgetFacts]) -> BudgetFacts:
    """Return a budget without the delays that were as long before: they are no lead."""
    min_ns = LEAST_TOLD * head.window_ns
    baseline_ns: dict[Blocking | Delayed, int] = {}
    for facts in before:
        baseline_ns |= {replace(delay, ns=0, gaps=0): delay.ns for delay in facts.producers}
        baseline_ns |= {replace(delay, ns=0, gaps=0): delay.ns for delay in facts.before}

    def has_changed(delay: Blocking | Delayed) -> bool:
        return not before or abs(delay.ns - baseline_ns.get(replace(delay, ns=0, gaps=0), 0)) >= min_ns

    return replace(head, producers=[*filter(has_changed, head.producers)], before=[*filter(has_changed, head.before)])


def _time(ns: int, scale: Scale) -> str:
    return unparted(format_value(ns, scale=scale))


def _bar(name: str, facts: BudgetFacts, parts: Mapping[Shown, int], longest: int, scale: Scale, title: str) -> Drawn:
    """Return the parts of one window as rectangles, ``x`` and ``width`` in percent of the longest window."""
    start_ns, segments, part_texts = 0, [], []
    for part, ns in parts.items():
        if ns:
            share = in_percent(Fraction(ns, facts.window_ns))
            part_texts.append(f"{part} {_time(ns, scale)} ({share})")
            segments.append(
                {
                    "class": css(part),
                    "part": str(part),
                    "ns": ns,
                    "x": percent(Fraction(start_ns, longest)),
                    "width": percent(Fraction(ns, longest)),
                    "middle": percent(Fraction(2 * start_ns + ns, 2 * longest)),
                    "pattern": part != REST and Fraction(ns, longest) >= LEAST_PATTERN,
                    "label": _label(part, share, Fraction(ns, longest)),
                    "title": part_texts[-1],
                }
            )
        start_ns += ns
    return {
        "name": name,
        "segments": segments,
        "whole": _time(facts.window_ns, scale),
        "title": f"Budget of {title} {name}".rstrip(),
        "said": ", ".join(part_texts),
    }


def _label(part: Shown, share: str, of_width: Fraction) -> tuple[str, str] | None:
    """Return name and share of a part where a phone has room for both, else its share."""
    full_label = label_of(f"{part} {share}", of_width)
    return full_label if full_label is not None and full_label[1] == NARROWEST else label_of(share, of_width)


def _legend(told: Sequence[tuple[str, BudgetFacts, Mapping[Shown, int]]], scale: Scale) -> Iterator[Drawn]:
    """Yield each part that is any time in one of the windows, with what it is in each."""
    _, head, head_parts = told[-1]
    for part, ns in head_parts.items():
        has_two_bounds = _is_unsure(head) and part is BudgetPart.COLLECTIVE
        if not has_two_bounds and not any(parts[part] for _, _, parts in told):
            continue
        text = _amount(head, part, ns, scale, f" ({in_percent(Fraction(ns, head.window_ns))})")
        text += "".join(f"; {name} {_amount(facts, part, parts[part], scale)}" for name, facts, parts in told[:-1])
        yield {"class": css(part), "name": str(part), "told": text}


def _is_unsure(facts: BudgetFacts) -> bool:
    """Whether the two bounds of what collectives block are so far apart that both are told."""
    return facts.blocking_comm_max_ns - facts.blocking_ns["collective"] >= LEAST_TOLD * facts.window_ns


def _amount(facts: BudgetFacts, part: Shown, ns: int, scale: Scale, share: str = "") -> str:
    """Return a part's time and its share, with both bounds where only they are known."""
    has_two_bounds = _is_unsure(facts) and part is BudgetPart.COLLECTIVE
    bound = f"≥{NO_BREAK}" if has_two_bounds or (share and facts.at_least and part in BLOCKED.values()) else ""
    text = f"{bound}{_time(ns, scale)}{share}" if ns or not has_two_bounds else ""
    return text + (
        f"{', ' if text else ''}≤{NO_BREAK}{_time(facts.blocking_comm_max_ns, scale)}" if has_two_bounds else ""
    )


def _table(name: str, facts: BudgetFacts) -> Table:
    scale = scale_of([facts.window_ns], TIME)
    rows = [
        (
            line.part,
            SIGNS[line.bound] + format_value(line.ns, scale=scale),
            in_percent(line.share),
            "–" if line.ceiling is None else f"+{in_percent(line.ceiling)}",
        )
        for line in lines_of(facts)
    ]
    return table_of(name or "budget", (*texts("part"), *numbers("time", "share", "ceiling")), rows)
