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
"""Of a bar: what is narrower has no pattern, of which a phone would show a line."""

LEAST_TOLD = Fraction(1, 100)
"""Of a window: a part that is less in each is in the rest."""

SIGNS = {"": "", AT_LEAST: ">= ", AT_MOST: "<= "}

Shown = BudgetPart | Literal["rest"]
REST: Shown = "rest"


def budget_view(known: Sequence[tuple[str, BudgetFacts]], title: str, length_ns: int) -> Drawn | None:
    """The budget of one rank, base above head, on the scale of a picture of so much time; None where no side has one,
    for then the page says why.
    """
    if not known:
        return None
    scale = scale_of([facts.window_ns for _, facts in known], TIME)
    longest = max(length_ns, *(facts.window_ns for _, facts in known))
    told = [(name, facts, _told(facts, large_parts(known))) for name, facts in known]
    _, head = known[-1]
    head = _without_unchanged(head, [facts for _, facts in known[:-1]])
    return {
        "title": title,
        "bars": [_bar(name, facts, parts, longest, scale, title) for name, facts, parts in told],
        "legend": list(_legend(told, scale)),
        "producers": held_up(_without_short(head), scale),
        "notes": [budget_report.CEILING, *about_edges(facts for _, facts in known)],
        "tables": [_table(name, facts) for name, facts in known],
    }


def css(part: Shown) -> str:
    """The class of style of a part."""
    return f"part-{part.name.lower() if isinstance(part, BudgetPart) else part}"


def large_parts(known: Sequence[tuple[str, BudgetFacts]]) -> set[BudgetPart]:
    """The parts that are told by name, by what they may be at most."""
    return {
        part
        for _, facts in known
        for part, ns in {**facts.parts, BudgetPart.COLLECTIVE: facts.blocking_comm_max_ns}.items()
        if ns >= LEAST_TOLD * facts.window_ns
    }


def _told(facts: BudgetFacts, large: set[BudgetPart]) -> dict[Shown, int]:
    """The parts by time, in the order in which they are shown; the rest comes last."""
    parts = facts.parts
    named: dict[Shown, int] = {part: ns for part, ns in parts.items() if part in large}
    return {**named, REST: sum(parts.values()) - sum(named.values())}


def _without_short(facts: BudgetFacts) -> BudgetFacts:
    """Without what was held up for less than is told."""
    least = LEAST_TOLD * facts.window_ns
    producers = [each for each in facts.producers if each.ns >= least]
    return replace(facts, producers=producers, before=[each for each in facts.before if each.ns >= least])


def _without_unchanged(head: BudgetFacts, before: Sequence[BudgetFacts]) -> BudgetFacts:
    """Without what was held up as long before: it is no lead."""
    least = LEAST_TOLD * head.window_ns
    was: dict[Blocking | Delayed, int] = {}
    for facts in before:
        was |= {replace(each, ns=0, gaps=0): each.ns for each in facts.producers}
        was |= {replace(each, ns=0, gaps=0): each.ns for each in facts.before}

    def moved(each: Blocking | Delayed) -> bool:
        return not before or abs(each.ns - was.get(replace(each, ns=0, gaps=0), 0)) >= least

    return replace(head, producers=[*filter(moved, head.producers)], before=[*filter(moved, head.before)])


def _time(ns: int, scale: Scale) -> str:
    return unparted(format_value(ns, scale=scale))


def _bar(name: str, facts: BudgetFacts, parts: Mapping[Shown, int], longest: int, scale: Scale, title: str) -> Drawn:
    """The parts of one window as rectangles, ``x`` and ``width`` in percent of the longest window."""
    at, segments, words = 0, [], []
    for part, ns in parts.items():
        if ns:
            share = in_percent(Fraction(ns, facts.window_ns))
            words.append(f"{part} {_time(ns, scale)} ({share})")
            segments.append(
                {
                    "class": css(part),
                    "part": str(part),
                    "ns": ns,
                    "x": percent(Fraction(at, longest)),
                    "width": percent(Fraction(ns, longest)),
                    "middle": percent(Fraction(2 * at + ns, 2 * longest)),
                    "pattern": part != REST and Fraction(ns, longest) >= LEAST_PATTERN,
                    "label": _label(part, share, Fraction(ns, longest)),
                    "title": words[-1],
                }
            )
        at += ns
    return {
        "name": name,
        "segments": segments,
        "whole": _time(facts.window_ns, scale),
        "title": f"Budget of {title} {name}".rstrip(),
        "said": ", ".join(words),
    }


def _label(part: Shown, share: str, of_width: Fraction) -> tuple[str, str] | None:
    """Name and share of a part where a phone has room for both, else its share."""
    whole = label_of(f"{part} {share}", of_width)
    return whole if whole is not None and whole[1] == NARROWEST else label_of(share, of_width)


def _legend(told: Sequence[tuple[str, BudgetFacts, Mapping[Shown, int]]], scale: Scale) -> Iterator[Drawn]:
    """Each part that is any time in one of the windows, in words: what it is in each."""
    _, head, now = told[-1]
    for part, own in now.items():
        most = _is_unsure(head) and part is BudgetPart.COLLECTIVE
        if not most and not any(parts[part] for _, _, parts in told):
            continue
        words = _amount(head, part, own, scale, f" ({in_percent(Fraction(own, head.window_ns))})")
        words += "".join(f"; {name} {_amount(facts, part, parts[part], scale)}" for name, facts, parts in told[:-1])
        yield {"class": css(part), "name": str(part), "told": words}


def _is_unsure(facts: BudgetFacts) -> bool:
    """Whether the ends of what collectives block are so far apart that both are told."""
    return facts.blocking_comm_max_ns - facts.blocking_ns["collective"] >= LEAST_TOLD * facts.window_ns


def _amount(facts: BudgetFacts, part: Shown, ns: int, scale: Scale, share: str = "") -> str:
    """A part's time and its share, with both ends where it is known by them."""
    most = _is_unsure(facts) and part is BudgetPart.COLLECTIVE
    bound = f"≥{NO_BREAK}" if most or (share and facts.at_least and part in BLOCKED.values()) else ""
    words = f"{bound}{_time(ns, scale)}{share}" if ns or not most else ""
    return words + (f"{', ' if words else ''}≤{NO_BREAK}{_time(facts.blocking_comm_max_ns, scale)}" if most else "")


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
