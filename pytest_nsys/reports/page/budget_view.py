"""How is the budget of a window drawn: a bar for each side on one scale, its parts in words, and the numbers below?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from pytest_nsys.analysis.budget_facts import BLOCKED, BudgetFacts, BudgetPart, about_edges, parts_of
from pytest_nsys.core.numbers import Scale, format_value, scale_of
from pytest_nsys.core.numbers import percent as in_percent
from pytest_nsys.core.units import TIME
from pytest_nsys.reports import budget_report
from pytest_nsys.reports.budget_report import BudgetReport, held_up
from pytest_nsys.reports.page.page import LEAST_LABELLED, NO_BREAK, Drawn, percent, unparted
from pytest_nsys.reports.tables import Format, table_of


def budget_view(known: Sequence[tuple[str, BudgetFacts]], title: str) -> Drawn | None:
    """The budget of one rank, base above head; None where no side has one, for then the page says why."""
    if not known:
        return None
    scale = scale_of([facts.window_ns for _, facts in known], TIME)
    longest = max(facts.window_ns for _, facts in known)
    head = known[-1][1]
    return {
        "title": title,
        "bars": [_bar(name, facts, longest, scale, title) for name, facts in known],
        "legend": list(_legend(known, scale)),
        "producers": held_up(head, scale),
        "notes": [budget_report.CEILING, *about_edges(facts for _, facts in known)],
        "tables": [_table(name, facts) for name, facts in known],
    }


def css(part: BudgetPart) -> str:
    """The class of style of a part."""
    return f"part-{part.name.lower()}"


def _time(ns: int, scale: Scale) -> str:
    return unparted(format_value(ns, scale=scale))


def _bar(name: str, facts: BudgetFacts, longest: int, scale: Scale, title: str) -> Drawn:
    """The parts of one window as rectangles, ``x`` and ``width`` in percent of the longest window."""
    at, segments, words = 0, [], []
    for part, ns in parts_of(facts).items():
        if ns:
            share = in_percent(Fraction(ns, facts.window_ns))
            words.append(f"{part} {_time(ns, scale)} ({share})")
            segments.append(
                {
                    "class": css(part),
                    "part": part.value,
                    "ns": ns,
                    "x": percent(Fraction(at, longest)),
                    "width": percent(Fraction(ns, longest)),
                    "middle": percent(Fraction(2 * at + ns, 2 * longest)),
                    "label": share if ns >= LEAST_LABELLED * longest else "",
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


def _legend(known: Sequence[tuple[str, BudgetFacts]], scale: Scale) -> Iterator[Drawn]:
    """Each part that is any time in one of the windows, in words: what it is in each."""
    head = known[-1][1]
    for part in BudgetPart:
        times = [(name, parts_of(facts)[part]) for name, facts in known]
        most = part is BudgetPart.COLLECTIVE and any(facts.blocking_comm_max_ns for _, facts in known)
        if not most and not any(ns for _, ns in times):
            continue
        own = parts_of(head)[part]
        bound = f"≥{NO_BREAK}" if part in BLOCKED.values() and (head.at_least or part is BudgetPart.COLLECTIVE) else ""
        told = f"{bound}{_time(own, scale)} ({in_percent(Fraction(own, head.window_ns))})"
        told += f", ≤{NO_BREAK}{_time(head.blocking_comm_max_ns, scale)}" if most else ""
        told += "".join(f"; {name} {_time(ns, scale)}" for name, ns in times[:-1])
        yield {"class": css(part), "name": part.value, "told": told}


def _table(name: str, facts: BudgetFacts) -> Any:
    table = BudgetReport({0: facts}).table(Format.TABLE)
    cells = [[str(cell) if cell is not None else "–" for cell in row[1:]] for row in table.rows]
    return table_of(name or "budget", table.columns[1:], cells)
