"""How is the time budget of a window shown: as lines of a table, as a bar, and as a sentence for each blocking kernel?

Bounds are marked as such. If dependency edges are missing, blocking takes at least and unexplained time at most what is
shown; blocking by communication has both bounds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property, partial

from pytest_nsys.analysis.budget.budget import Budget, build_budget_facts, measure_rank_budgets
from pytest_nsys.analysis.explain.budget_lines import (
    BLOCKED_PARTS,
    BudgetFacts,
    BudgetPart,
    LaunchDelay,
    ProducerDelay,
    compute_throughput_ceiling,
    describe_uncertain_edges,
)
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.exact import simplify_fraction
from pytest_nsys.core.kernel_names import make_display_names
from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.model import Note
from pytest_nsys.core.numbers import Scale, choose_scale, format_percent, format_value
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.core.units import TIME
from pytest_nsys.reports.tables.bars import Pen, Piece
from pytest_nsys.reports.views.view import RowCells, ShownWindow, ViewRequest, ViewSummary

# Attributes of BudgetFacts; JSON uses the same names.
EDGE_FIELDS = (
    *("device_busy_ns", "gaps", "gaps_without_launch", "contradicted", "unordered"),
    *("waits_recorded", "waits", "waits_joined"),
)
TIME_FIELDS = (
    *("window_ns", "device_idle_ns", "compute_busy_ns", "compute_absent_ns", "comm_alone_ns"),
    *("launch_starved_ns", "between_steps_ns", "tail_ns", "in_syncs"),
    *("blocking_ns", "blocking_comm_ns", "blocking_comm_max_ns"),
    *("dependency_stalled_ns", "stalled_beside_comm_ns", "at_least"),
)
"""The time attributes of :class:`BudgetFacts` in the JSON of a budget, which uses the same names."""

BAR_WIDTH = 60
"""Length of the bar of the longest window, in characters."""

GAIN_TITLE = "throughput gain"
"""Title of the column with the ceilings."""

CEILING_NOTE = (
    f"{GAIN_TITLE}: by how much throughput could rise at most if the part R of the window T were gone, R / (T - R), "
    "which is more than its share of the time"
)

WITHOUT_COMPUTE = "without compute"
AT_LEAST, AT_MOST = "at least", "at most"


@dataclass(frozen=True)
class BudgetLine:
    """Describes one line of a budget table: a part of the window, its time, and whether the time is only a bound."""

    part: str
    duration_ns: int
    window_ns: int  # the length of the window
    bound: str = ""  # AT_LEAST or AT_MOST; empty if the time is exact
    is_recoverable: bool = True  # whether it is time without compute; only such time has a ceiling

    @property
    def share(self) -> Fraction:
        """The share of the window, from 0 to 1."""
        return Fraction(self.duration_ns, self.window_ns)

    @property
    def ceiling(self) -> Fraction | None:
        """The most by which throughput could rise without this part, as a fraction; None if unbounded, or if the part
        cannot be saved.
        """
        return compute_throughput_ceiling(self.duration_ns, self.window_ns) if self.is_recoverable else None


def build_budget_lines(facts: BudgetFacts) -> Iterator[BudgetLine]:
    """Yield the lines of the table of one budget, the parts of the window first; a part without time has no line."""
    make_line = partial(BudgetLine, window_ns=facts.window_ns)
    lower_bound, upper_bound = (AT_LEAST, AT_MOST) if facts.at_least else ("", "")
    yield make_line("window", facts.window_ns, is_recoverable=False)
    yield make_line(BudgetPart.COMPUTE, facts.compute_busy_ns, is_recoverable=False)
    yield make_line(WITHOUT_COMPUTE, facts.compute_absent_ns)
    yield make_line(BudgetPart.STARVED, facts.launch_starved_ns)
    starved_in_calls = {f"in {sanitize_line(name, 60)}": ns for name, ns in facts.in_syncs.items()}
    starved_ns = {
        "between steps": facts.between_steps_ns or 0,
        "after the last kernel": facts.tail_ns,
        **starved_in_calls,
    }
    yield from (make_line(f"{BudgetPart.STARVED}: {label}", ns) for label, ns in starved_ns.items() if ns)
    for part in BLOCKED_PARTS.values():
        ns, max_ns = facts.parts[part], facts.blocking_comm_max_ns if part is BudgetPart.COLLECTIVE else 0
        if max_ns == ns > 0:  # both bounds agree: the time is exact
            yield make_line(part, ns)
        elif max_ns:
            yield make_line(part, ns, bound=AT_LEAST)
            yield make_line(part, max_ns, bound=AT_MOST)
        elif ns:
            yield make_line(part, ns, bound=lower_bound)
    for part in (BudgetPart.BESIDE, BudgetPart.STALLED):
        if (ns := facts.parts[part]) or part is BudgetPart.STALLED:
            yield make_line(part, ns, bound=upper_bound if ns else "")
    other_lines = (("communication alone", facts.comm_alone_ns), ("device idle", facts.device_idle_ns))
    yield from (make_line(label, ns, is_recoverable=False) for label, ns in other_lines if ns is not None)


@dataclass(frozen=True)
class BudgetReport:
    """Holds the budgets of some ranks, their windows, and notes on ranks without a budget."""

    budgets: Mapping[int, BudgetFacts]  # by rank
    windows: Sequence[RankWindow] = ()
    missing_notes: Sequence[Note] = ()

    @cached_property
    def scale(self) -> Scale:
        """The scale of the longest window, used for all times."""
        return choose_scale([facts.window_ns for facts in self.budgets.values()], TIME)

    def build_json_rows(self) -> list[Mapping[str, object]]:
        """Return each budget in whole nanoseconds, with the ceilings of its parts."""
        return [
            {
                "rank": rank,
                **{name: getattr(facts, name) for name in (*EDGE_FIELDS, *TIME_FIELDS)},
                "producers": [*map(asdict, facts.producers)],
                "before": [*map(asdict, facts.before)],
                "ceilings": _compute_ceilings(facts),
            }
            for rank, facts in self.budgets.items()
        ]

    def draw_bars(self, encoding: str) -> Iterator[list[Piece]]:
        """Yield a bar for each rank and then the legend, as pieces of text, each with its part of the budget."""
        pen = Pen.from_encoding(encoding)
        longest = max(facts.window_ns for facts in self.budgets.values())
        digits = max(len(str(rank)) for rank in self.budgets)
        for rank, facts in self.budgets.items():
            # A window much shorter than the longest still gets one character: no bar would look like missing data.
            cells = max(1, BAR_WIDTH * facts.window_ns // longest)
            length = f"{' ' * (BAR_WIDTH - cells)}  {format_value(facts.window_ns, scale=self.scale)}"
            name: Piece = (None, f"rank {rank:<{digits}}  ")
            yield [name, *pen.draw_bar(facts.parts, cells), (None, length)]
        yield pen.draw_legend()

    def describe_gain(self) -> str:
        """Return a sentence that explains the ceilings, with the largest as the example."""
        lost_and_window_ns = [(facts.compute_absent_ns, facts.window_ns) for facts in self.budgets.values()]
        most_lost_ns, window_ns = max(lost_and_window_ns, key=lambda pair: Fraction(*pair))
        gain = compute_throughput_ceiling(most_lost_ns, window_ns)
        return CEILING_NOTE + (
            f" (without {format_percent(Fraction(most_lost_ns, window_ns))} of it: {format_percent(gain)} more)"
            if gain
            else ""
        )

    def describe_producers(self) -> Iterator[str]:
        """Yield sentences on what blocked compute longest on each rank, and on which kernels were launched late or
        stalled.
        """
        other_names = {name for window in self.windows for name in window.full_names}
        for rank, facts in self.budgets.items():
            yield from (f"rank {rank}: {line}" for line in describe_blocking(facts, self.scale, other_names))


@memoize_method
def find_budgets_of_view(request: ViewRequest) -> BudgetReport:
    """Return the budget of each requested rank; of several windows, the one with the median time without compute."""
    budget_or_reason = measure_rank_budgets(request.windows)
    budgets = {rank: budget for rank, budget in budget_or_reason.items() if isinstance(budget, Budget)}
    missing_notes = [
        Note(f"rank {rank} has no budget: {reason}") for rank, reason in budget_or_reason.items() if rank not in budgets
    ]
    facts = {rank: build_budget_facts(budget) for rank, budget in budgets.items()}
    return BudgetReport(facts, [budget.window for budget in budgets.values()], missing_notes)


def list_budget_rows(request: ViewRequest) -> Iterator[RowCells]:
    """Yield the lines of each budget as rows of a view."""
    for rank, facts in find_budgets_of_view(request).budgets.items():
        for line in build_budget_lines(facts):
            yield {
                "rank": rank,
                "part": str(line.part),
                "bound": line.bound,
                "time_ns": line.duration_ns,
                "share": simplify_fraction(line.share),
                "ceiling": line.ceiling and simplify_fraction(line.ceiling),
            }


def summarize_budgets(request: ViewRequest) -> ViewSummary:
    """Return a bar for each rank above the table, and below it which kernels blocked which."""
    report = find_budgets_of_view(request)
    has_several_windows = any(len(windows) > 1 for windows in request.windows.values())
    note = "of several windows each rank shows one: that with the median time without compute"
    return ViewSummary(
        lines_above=[*report.draw_bars(request.encoding)],
        lines_below=[report.describe_gain(), *report.describe_producers()],
        facts={"budgets": report.build_json_rows()},
        notes=[
            *[Note(note)] * has_several_windows,
            *report.missing_notes,
            *map(Note, describe_uncertain_edges(report.budgets.values())),
        ],
        windows=[
            ShownWindow(window.rank, window.window, (window.start_ns, window.end_ns)) for window in report.windows
        ],
    )


def _compute_ceilings(facts: BudgetFacts) -> dict[str, float | None]:
    """Return the ceiling of each part of the time without compute, and of all of that time; None if unbounded."""
    window_ns = facts.window_ns
    lost_ns = {part.value: ns for part, ns in facts.parts.items() if part is not BudgetPart.COMPUTE}
    gains = {
        part: compute_throughput_ceiling(ns, window_ns)
        for part, ns in {**lost_ns, WITHOUT_COMPUTE: facts.compute_absent_ns}.items()
    }
    return {part: None if gain is None else float(gain) for part, gain in gains.items()}


def format_producer(blocking: ProducerDelay, scale: Scale, display_names: Mapping[str, str]) -> str:
    """Return which kernel blocks which and for how long: ``stage4_b combine blocks grouped_gemm for 1.02 ms in 12
    gaps``.
    """
    return (
        f"{_format_stage_and_kernel(blocking.stage, display_names[blocking.name])} blocks "
        f"{display_names[blocking.waiting]} {_format_duration(blocking, scale)}"
    )


def _format_stage_and_kernel(stage: str, name: str) -> str:
    return (f"{sanitize_line(stage, 60)} " if stage != NO_STAGE else "") + name


def _format_duration(delay: ProducerDelay | LaunchDelay, scale: Scale) -> str:
    return f"for {format_value(delay.ns, scale=scale)} in {format_count(delay.gaps, 'gap')}"


def describe_blocking(facts: BudgetFacts, scale: Scale, other_names: Collection[str] = ()) -> list[str]:
    """Return lines that say which kernels blocked which, then which were launched too late or stalled, the longest
    first.

    Kernels have their short names, which are distinct from those of ``other_names`` too.
    """
    names = [name for blocking in facts.producers for name in (blocking.name, blocking.waiting)]
    display_names = make_display_names([*sorted(other_names), *names, *(delay.waiting for delay in facts.before)])
    late_lines = (
        f"{delay.part} before {_format_stage_and_kernel(delay.stage, display_names[delay.waiting])} "
        f"{_format_duration(delay, scale)}"
        for delay in facts.before
    )
    return [*(format_producer(blocking, scale, display_names) for blocking in facts.producers), *late_lines]
