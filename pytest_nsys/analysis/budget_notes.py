"""What should a person know beside the parts of a budget: what of them is a bound, and what a trace does not say?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from pytest_nsys.analysis.blocking import Budget, budget_of
from pytest_nsys.analysis.budget_facts import Edges, edges_of
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.model import Note
from pytest_nsys.core.numbers import format_together, format_value, scale_of
from pytest_nsys.core.units import TIME
from pytest_nsys.core.words import counted

_BOUNDS = "blocking is a lower bound, and dependency-stalled an upper one"


def about_edges(budgets: Iterable[Edges]) -> Iterator[str]:
    """Why figures of these budgets are bounds, and of which gaps less is known: each in one line."""
    found = list(budgets)
    waits = sum(edges["waits"] for edges in found)
    missing = waits - sum(edges["waits_joined"] for edges in found)
    why = {
        "no stream wait is recorded, so a producer is known on the kernel's own stream alone": any(
            not edges["waits_recorded"] for edges in found
        ),
        f"{missing} of {counted(waits, 'stream wait')} have no event record": missing > 0,
        "streams that keep no order prove nothing": any(edges["unordered"] for edges in found),
        "the trace does not say when copies and memsets ran": any(edges["device_busy_ns"] is None for edges in found),
    }
    yield from (f"{_BOUNDS}: {what}" for what, holds in why.items() if holds)
    yield from about_gaps(found)


def about_gaps(budgets: Sequence[Edges]) -> Iterator[str]:
    """Of which gaps of these budgets less is known: each in one line."""
    gaps = counted(sum(edges["gaps"] for edges in budgets), "gap")
    told: Mapping[Literal["gaps_without_launch", "graph_gaps", "contradicted"], str] = {
        "gaps_without_launch": "end in a kernel without a launch row: they count as issued at once",
        "graph_gaps": "end in a kernel of a CUDA graph: what it waits for inside the graph is not recorded",
        "contradicted": "end before what their kernel waited for began, as the trace has it: that did not block it",
    }
    for name, what in told.items():
        if some := sum(edges[name] for edges in budgets):
            yield f"{some} of {gaps} {what}"


def blocking_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """Why what blocked is a bound, and of communication both ends where they are apart most."""
    found = _budgets(captures, spec)
    yield from map(Note, about_edges(edges_of(budget) for _, budget in found))
    least = {budget: sum(budget.blocking_comm_ns.values()) for _, budget in found}
    rank, widest = max(found, key=lambda each: each[1].blocking_comm_max_ns - least[each[1]], default=(0, None))
    if widest is not None and widest.blocking_comm_max_ns > least[widest]:
        low, high = format_together([least[widest], widest.blocking_comm_max_ns])
        yield Note(f"rank {rank}: collectives blocked for {low} to {high} (blocking_comm_max_ns)")


def host_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """Of the launch-starved time: what has no launch row, what nothing follows, and where the host was meanwhile."""
    found = [budget for _, budget in _budgets(captures, spec)]
    starved = sum(budget.launch_starved_ns for budget in found)
    where = Counter({"after the last kernel": sum(budget.tail_ns for budget in found)})
    for budget in found:
        where.update({f"while the host was in {call}": ns for call, ns in budget.in_syncs.items()})
    yield from map(Note, about_gaps([edges_of(budget) for budget in found]))
    scale = scale_of([starved], TIME)
    for what, ns in where.items():
        if ns:
            all_of_it, part = (format_value(each, scale=scale) for each in (starved, ns))
            yield Note(f"launch-starved for {all_of_it}, of which {part} {what}")


def _budgets(captures: Sequence[Run], spec: WindowSpec) -> list[tuple[int, Budget]]:
    """Each with its rank, of the windows that have one."""
    found = []
    for window in (window for run in captures for window in run.measured(spec)):
        if len(window):
            with suppress(NoRows):
                found.append((window.rank.number, budget_of(window)))
    return found
