"""How does the budget of a window read: as a table, as one bar, and as a sentence for each producer?

A table has one unit. What is a bound is marked as one: without all edges, blocking is at least, and what nothing
explains is at most, what is shown; communication has both ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.budget import budget_of, facts_of, window_of_several
from pytest_nsys.analysis.budget_facts import (
    BLOCKED,
    Blocking,
    BudgetFacts,
    BudgetPart,
    Delayed,
    about_edges,
    ceiling,
    parts_of,
)
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.exact import exact
from pytest_nsys.core.kept import kept
from pytest_nsys.core.kernel_names import readable_names
from pytest_nsys.core.model import Note
from pytest_nsys.core.numbers import Scale, format_value, percent, scale_of
from pytest_nsys.core.units import TIME
from pytest_nsys.core.words import counted, printable
from pytest_nsys.reports.bars import Pen, Piece
from pytest_nsys.reports.tables import Format, Row, Table, number, numbers, ratios, texts
from pytest_nsys.reports.views import Looked, Paragraph, Picked

WIDTH = 60
"""Of the bar of the longest window, in characters."""

GAIN = "throughput gain"
"""What a ceiling is called above a column."""

CEILING = (
    f"{GAIN}: by how much throughput could rise at most if the part R of the window T were gone, R / (T - R), "
    "which is more than its share of the time"
)

EXACT = (*numbers("rank"), *texts("part", "bound"), *numbers("time_ns"), *ratios("share", "ceiling"))
WITHOUT = "without compute"
AT_LEAST, AT_MOST = "at least", "at most"
_SIGNS = {"": "", AT_LEAST: ">= ", AT_MOST: "<= "}


@dataclass(frozen=True)
class Line:
    """One line of the table of a budget. ``won_back``: it is time without compute, which has a ceiling."""

    part: str
    ns: int
    bound: str = ""
    won_back: bool = True


def lines_of(facts: BudgetFacts) -> Iterator[Line]:
    """The table of one budget, the parts of the window first; a producer that blocked for no time has no line."""
    least, most = (AT_LEAST, AT_MOST) if facts.at_least else ("", "")
    yield Line("window", facts.window_ns, won_back=False)
    yield Line(BudgetPart.COMPUTE, facts.compute_busy_ns, won_back=False)
    yield Line(WITHOUT, facts.compute_absent_ns)
    yield Line(BudgetPart.STARVED, facts.launch_starved_ns)
    between = {"between steps": facts.between_steps_ns or 0}
    of_it = {**between, "after the last kernel": facts.tail_ns, **_in_calls(facts.in_syncs)}
    yield from (Line(f"{BudgetPart.STARVED}: {what}", ns) for what, ns in of_it.items() if ns)
    for kind, part in BLOCKED.items():
        ns = facts.blocking_ns[kind]
        if part is BudgetPart.COLLECTIVE and ns and facts.blocking_comm_max_ns == ns:
            yield Line(part, ns)
        elif part is BudgetPart.COLLECTIVE and facts.blocking_comm_max_ns:
            yield Line(part, ns, AT_LEAST)
            yield Line(part, facts.blocking_comm_max_ns, AT_MOST)
        elif ns:
            yield Line(part, ns, least)
    beside_ns = facts.stalled_beside_comm_ns
    if beside_ns:
        yield Line(BudgetPart.BESIDE, beside_ns, most)
    stalled_ns = facts.dependency_stalled_ns - beside_ns
    yield Line(BudgetPart.STALLED, stalled_ns, most if stalled_ns else "")
    beside = (("communication alone", facts.comm_alone_ns), ("device idle", facts.device_idle_ns))
    yield from (Line(what, ns, won_back=False) for what, ns in beside if ns is not None)


def _in_calls(in_syncs: Mapping[str, int]) -> dict[str, int]:
    return {f"in {printable(name, 60)}": ns for name, ns in in_syncs.items()}


@dataclass(frozen=True)
class BudgetReport:
    """The budgets of some ranks, each with its number, and the demangled names ``beside`` which kernels are named."""

    budgets: Mapping[int, BudgetFacts]
    beside: Collection[str] = ()

    @cached_property
    def scale(self) -> Scale:
        """That of the longest window: in it stand all times."""
        return scale_of([facts.window_ns for facts in self.budgets.values()], TIME)

    def table(self, format: Format) -> Table:
        """A line for each part of each rank: exact for programs, three digits in one unit for people."""
        each = [(rank, facts.window_ns, line) for rank, facts in self.budgets.items() for line in lines_of(facts)]
        if format in (Format.JSON, Format.CSV):
            return Table(EXACT, [_exact(*one) for one in each])
        columns = (*numbers("rank"), *texts("part"), number("time"), *numbers("share", "ceiling"))
        return Table(columns, [self._shown(*one) for one in each])

    def _shown(self, rank: int, window_ns: int, line: Line) -> Row:
        above = ceiling(line.ns, window_ns) if line.won_back else None
        return (
            rank,
            line.part,
            _SIGNS[line.bound] + format_value(line.ns, scale=self.scale),
            percent(Fraction(line.ns, window_ns)),
            None if above is None else f"+{percent(above)}",
        )

    def json_rows(self) -> list[Mapping[str, object]]:
        """Each budget to the nanosecond, with the ceilings of its parts."""
        return [{"rank": rank, **asdict(facts), "ceilings": _ceilings(facts)} for rank, facts in self.budgets.items()]

    def bars(self, encoding: str) -> Iterator[list[Piece]]:
        """A line for each rank, and one for the legend, as texts by the part that they draw."""
        pen = Pen.of_encoding(encoding)
        longest = max(facts.window_ns for facts in self.budgets.values())
        digits = max(len(str(rank)) for rank in self.budgets)
        for rank, facts in self.budgets.items():
            cells = max(1, WIDTH * facts.window_ns // longest)
            length = f"{' ' * (WIDTH - cells)}  {format_value(facts.window_ns, scale=self.scale)}"
            name: Piece = (None, f"rank {rank:<{digits}}  ")
            yield [name, *pen.bar(parts_of(facts), cells), (None, length)]
        yield pen.legend()

    def about_gain(self) -> str:
        """What the ceilings are, with the largest of them as the example."""
        each = [(facts.compute_absent_ns, facts.window_ns) for facts in self.budgets.values()]
        most, of = max(each, key=lambda one: Fraction(*one))
        above = ceiling(most, of)
        return CEILING + (f" (without {percent(Fraction(most, of))} of it: {percent(above)} more)" if above else "")

    def producers(self) -> Iterator[str]:
        """Sentences of the largest producers of each rank, and of what waited longest for none."""
        for rank, facts in self.budgets.items():
            yield from (f"rank {rank}: {line}" for line in held_up(facts, self.scale, self.beside))

    def notes(self) -> Iterator[str]:
        """What bounds these figures."""
        yield from about_edges(self.budgets.values())


class Budgets(NamedTuple):
    """The budgets of a run: the window of each rank that has one, and why others have none."""

    found: Mapping[int, BudgetFacts]
    windows: Sequence[RankWindow]
    without: Sequence[Note]


@kept
def budgets_of(looked: Looked) -> Budgets:
    """Of each rank the budget of its window, of several that with the lower median of the time without compute."""
    found: dict[int, BudgetFacts] = {}
    shown: list[RankWindow] = []
    without: list[Note] = []
    for rank, windows in looked.windows.items():
        try:
            window = window_of_several(windows)
            found[rank] = facts_of(budget_of(window))
            shown.append(window)
        except NoRows as nothing:
            without.append(Note(f"rank {rank} has no budget: {nothing}"))
    return Budgets(found, shown, without)


def about_budgets(looked: Looked) -> Paragraph:
    """A bar for each rank, and who blocked whom."""
    budgets = budgets_of(looked)
    report = BudgetReport(budgets.found, {name for window in budgets.windows for name in window.whole_names})
    return Paragraph(
        above=[*report.bars(looked.encoding)],
        below=[report.about_gain(), *report.producers()],
        facts={"budgets": report.json_rows()},
        notes=[*_of_many(looked), *budgets.without, *map(Note, report.notes())],
        windows=[Picked(w.rank, w.window, (w.start_ns, w.end_ns)) for w in budgets.windows],
    )


def _of_many(looked: Looked) -> Iterator[Note]:
    """Which of several windows is shown."""
    if any(len(windows) > 1 for windows in looked.windows.values()):
        yield Note("of several windows each rank shows one: that with the median time without compute")


def _exact(rank: int, window_ns: int, line: Line) -> Row:
    above = ceiling(line.ns, window_ns) if line.won_back else None
    share = exact(Fraction(line.ns, window_ns))
    return (rank, line.part, line.bound, line.ns, share, None if above is None else exact(above))


def _ceilings(facts: BudgetFacts) -> dict[str, float | None]:
    """By part of the time without compute, and of all of it."""
    window_ns = facts.window_ns
    lost = {part.value: ns for part, ns in parts_of(facts).items() if part is not BudgetPart.COMPUTE}
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
