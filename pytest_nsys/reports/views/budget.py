"""How does the budget of a window read: as lines of a table, as one bar, and as a sentence for each producer?

What is a bound is marked as one: without all edges, blocking is at least, and what nothing explains is at most, what is
shown; communication has both ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property, partial

from pytest_nsys.analysis.budget.budget import Budget, facts_of, find_budgets
from pytest_nsys.analysis.explain.budget_lines import (
    BLOCKED,
    Blocking,
    BudgetFacts,
    BudgetPart,
    Delayed,
    about_edges,
    ceiling,
)
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.exact import exact
from pytest_nsys.core.kept import kept
from pytest_nsys.core.kernel_names import readable_names
from pytest_nsys.core.model import Note
from pytest_nsys.core.numbers import Scale, format_value, percent, scale_of
from pytest_nsys.core.units import TIME
from pytest_nsys.core.words import counted, printable
from pytest_nsys.reports.tables.bars import Pen, Piece
from pytest_nsys.reports.views.view import Key, Looked, Paragraph, Picked

OF_EDGES = (
    *("device_busy_ns", "gaps", "gaps_without_launch", "contradicted", "unordered"),
    *("waits_recorded", "waits", "waits_joined"),
)
OF_TIME = (
    *("window_ns", "device_idle_ns", "compute_busy_ns", "compute_absent_ns", "comm_alone_ns"),
    *("launch_starved_ns", "between_steps_ns", "tail_ns", "in_syncs"),
    *("blocking_ns", "blocking_comm_ns", "blocking_comm_max_ns"),
    *("dependency_stalled_ns", "stalled_beside_comm_ns", "at_least"),
)
"""What programs get of a budget."""

WIDTH = 60
"""Of the bar of the longest window, in characters."""

GAIN = "throughput gain"
"""What a ceiling is called above a column."""

CEILING = (
    f"{GAIN}: by how much throughput could rise at most if the part R of the window T were gone, R / (T - R), "
    "which is more than its share of the time"
)

WITHOUT = "without compute"
AT_LEAST, AT_MOST = "at least", "at most"


@dataclass(frozen=True)
class Line:
    """One line of the table of a budget. ``won_back``: it is time without compute, which has a ceiling."""

    part: str
    ns: int
    of_ns: int
    bound: str = ""
    won_back: bool = True

    @property
    def share(self) -> Fraction:
        """Of the window."""
        return Fraction(self.ns, self.of_ns)

    @property
    def ceiling(self) -> Fraction | None:
        """By how much throughput could rise without it; None where it is all of the window, or cannot be won back."""
        return ceiling(self.ns, self.of_ns) if self.won_back else None


def lines_of(facts: BudgetFacts) -> Iterator[Line]:
    """The table of one budget, the parts of the window first; a producer that blocked for no time has no line."""
    line = partial(Line, of_ns=facts.window_ns)
    least, most = (AT_LEAST, AT_MOST) if facts.at_least else ("", "")
    yield line("window", facts.window_ns, won_back=False)
    yield line(BudgetPart.COMPUTE, facts.compute_busy_ns, won_back=False)
    yield line(WITHOUT, facts.compute_absent_ns)
    yield line(BudgetPart.STARVED, facts.launch_starved_ns)
    in_calls = {f"in {printable(name, 60)}": ns for name, ns in facts.in_syncs.items()}
    of_it = {"between steps": facts.between_steps_ns or 0, "after the last kernel": facts.tail_ns, **in_calls}
    yield from (line(f"{BudgetPart.STARVED}: {what}", ns) for what, ns in of_it.items() if ns)
    for part in BLOCKED.values():
        ns, most_ns = facts.parts[part], facts.blocking_comm_max_ns if part is BudgetPart.COLLECTIVE else 0
        if most_ns == ns > 0:
            yield line(part, ns)
        elif most_ns:
            yield line(part, ns, bound=AT_LEAST)
            yield line(part, most_ns, bound=AT_MOST)
        elif ns:
            yield line(part, ns, bound=least)
    for part in (BudgetPart.BESIDE, BudgetPart.STALLED):
        if (ns := facts.parts[part]) or part is BudgetPart.STALLED:
            yield line(part, ns, bound=most if ns else "")
    beside = (("communication alone", facts.comm_alone_ns), ("device idle", facts.device_idle_ns))
    yield from (line(what, ns, won_back=False) for what, ns in beside if ns is not None)


@dataclass(frozen=True)
class BudgetReport:
    """The budgets of some ranks, each with its number, of which windows they are, and why other ranks have none."""

    budgets: Mapping[int, BudgetFacts]
    windows: Sequence[RankWindow] = ()
    without: Sequence[Note] = ()

    @cached_property
    def scale(self) -> Scale:
        """That of the longest window: in it stand all times."""
        return scale_of([facts.window_ns for facts in self.budgets.values()], TIME)

    def json_rows(self) -> list[Mapping[str, object]]:
        """Each budget to the nanosecond, with the ceilings of its parts."""
        return [
            {
                "rank": rank,
                **{name: getattr(facts, name) for name in (*OF_EDGES, *OF_TIME)},
                "producers": [*map(asdict, facts.producers)],
                "before": [*map(asdict, facts.before)],
                "ceilings": _ceilings(facts),
            }
            for rank, facts in self.budgets.items()
        ]

    def bars(self, encoding: str) -> Iterator[list[Piece]]:
        """A line for each rank, and one for the legend, as texts by the part that they draw."""
        pen = Pen.of_encoding(encoding)
        longest = max(facts.window_ns for facts in self.budgets.values())
        digits = max(len(str(rank)) for rank in self.budgets)
        for rank, facts in self.budgets.items():
            cells = max(1, WIDTH * facts.window_ns // longest)
            length = f"{' ' * (WIDTH - cells)}  {format_value(facts.window_ns, scale=self.scale)}"
            name: Piece = (None, f"rank {rank:<{digits}}  ")
            yield [name, *pen.bar(facts.parts, cells), (None, length)]
        yield pen.legend()

    def about_gain(self) -> str:
        """What the ceilings are, with the largest of them as the example."""
        each = [(facts.compute_absent_ns, facts.window_ns) for facts in self.budgets.values()]
        most, of = max(each, key=lambda one: Fraction(*one))
        above = ceiling(most, of)
        return CEILING + (f" (without {percent(Fraction(most, of))} of it: {percent(above)} more)" if above else "")

    def producers(self) -> Iterator[str]:
        """Sentences of the largest producers of each rank, and of what waited longest for none."""
        beside = {name for window in self.windows for name in window.whole_names}
        for rank, facts in self.budgets.items():
            yield from (f"rank {rank}: {line}" for line in held_up(facts, self.scale, beside))


@kept
def find_budgets_of_view(looked: Looked) -> BudgetReport:
    """Of each rank the budget that stands for its windows."""
    each = find_budgets(looked.windows)
    found = {rank: budget for rank, budget in each.items() if isinstance(budget, Budget)}
    without = [Note(f"rank {rank} has no budget: {why}") for rank, why in each.items() if rank not in found]
    facts = {rank: facts_of(budget) for rank, budget in found.items()}
    return BudgetReport(facts, [budget.window for budget in found.values()], without)


def list_budget_lines(looked: Looked) -> Iterator[Key]:
    """The table of each budget as rows of a view."""
    for rank, facts in find_budgets_of_view(looked).budgets.items():
        for line in lines_of(facts):
            yield {
                "rank": rank,
                "part": str(line.part),
                "bound": line.bound,
                "time_ns": line.ns,
                "share": exact(line.share),
                "ceiling": line.ceiling and exact(line.ceiling),
            }


def about_budgets(looked: Looked) -> Paragraph:
    """A bar for each rank, and who blocked whom."""
    report = find_budgets_of_view(looked)
    several = any(len(windows) > 1 for windows in looked.windows.values())
    which = "of several windows each rank shows one: that with the median time without compute"
    return Paragraph(
        above=[*report.bars(looked.encoding)],
        below=[report.about_gain(), *report.producers()],
        facts={"budgets": report.json_rows()},
        notes=[*[Note(which)] * several, *report.without, *map(Note, about_edges(report.budgets.values()))],
        windows=[Picked(w.rank, w.window, (w.start_ns, w.end_ns)) for w in report.windows],
    )


def _ceilings(facts: BudgetFacts) -> dict[str, float | None]:
    """By part of the time without compute, and of all of it."""
    window_ns = facts.window_ns
    lost = {part.value: ns for part, ns in facts.parts.items() if part is not BudgetPart.COMPUTE}
    found = {what: ceiling(ns, window_ns) for what, ns in {**lost, WITHOUT: facts.compute_absent_ns}.items()}
    return {what: None if above is None else float(above) for what, above in found.items()}


def producer_words(each: Blocking, scale: Scale, called: Mapping[str, str]) -> str:
    """``stage4_b combine blocks grouped_gemm for 1.02 ms in 12 gaps``, with what each kernel is called."""
    return f"{_kernel(each.stage, called[each.name])} blocks {called[each.waiting]} {_how_long(each, scale)}"


def _kernel(stage: str, name: str) -> str:
    return (f"{printable(stage, 60)} " if stage != NO_STAGE else "") + name


def _how_long(each: Blocking | Delayed, scale: Scale) -> str:
    return f"for {format_value(each.ns, scale=scale)} in {counted(each.gaps, 'gap')}"


def held_up(facts: BudgetFacts, scale: Scale, beside: Collection[str] = ()) -> list[str]:
    """Who blocked whom, and which kernels were launched too late or stalled, the longest of each first; kernels as a
    person calls them ``beside`` others.
    """
    names = [name for each in facts.producers for name in (each.name, each.waiting)]
    called = readable_names([*sorted(beside), *names, *(each.waiting for each in facts.before)])
    late = (
        f"{each.part} before {_kernel(each.stage, called[each.waiting])} {_how_long(each, scale)}"
        for each in facts.before
    )
    return [*(producer_words(each, scale, called) for each in facts.producers), *late]
