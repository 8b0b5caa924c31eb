"""What should a user look at first in a run? What holds its steps back, the largest possible win first, then doubts.

A win is an upper bound for the window of one rank: the time without compute that a finding claims from the lines of a
budget, or the compute time that it adds. No two findings claim the same time
(:mod:`~pytest_nsys.analysis.summary.lost_time`). There is one finding per kind, for the rank where it could win most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

from pytest_nsys.analysis.budget.budget import Budget, find_host_activity, measure_rank_budgets
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.analysis.facts.steps import find_uneven_anchors
from pytest_nsys.analysis.metrics.activity import count_waiting_calls
from pytest_nsys.analysis.metrics.collective_waits import WaitInterval, list_wait_intervals
from pytest_nsys.analysis.metrics.gpu_state import MEGA, sm_clock_mhz
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.metrics.stream_sharing import choose_wall_metrics, measure_sharing
from pytest_nsys.analysis.metrics.throughput import measure_profiler_overhead
from pytest_nsys.analysis.summary.lost_time import FindingKind, LostTime, find_longest_copies
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.errors import NoRows, NothingMeasured, NsysError
from pytest_nsys.core.exact import mean
from pytest_nsys.core.model import Value

# Maximum number of findings shown.
MAX_FINDINGS = 5

# Minimum share of the window that a finding could win to be shown; for the profiler, its cost.
MIN_SHARE_BY_KIND: Mapping[FindingKind, Fraction] = {
    **dict.fromkeys(FindingKind, Fraction(1, 100)),  # less disappears in the noise between two runs
    FindingKind.STALLED: Fraction(5, 100),  # the trace does not say what to fix, so small shares are useless
    FindingKind.UNEVEN: Fraction(3, 100),  # two GPUs of one model differ this much on the same work
    FindingKind.CLOCKS: Fraction(5, 100),  # clocks of good runs vary this much with load and heat
    FindingKind.PROFILER: Fraction(10, 100),  # tracing of kernels and ranges costs less
}

DETAIL_COMMANDS: Mapping[FindingKind, str] = {
    FindingKind.STRAGGLER: "--view collectives",
    FindingKind.WRONG_STREAM: "--view streams",
    FindingKind.COMMUNICATION: "--view overlap",
    FindingKind.CLOCKS: "rows sm_clock_mhz",
    FindingKind.PROFILER: "check",
}
"""The view or command that shows more of a finding; for kinds without an entry, the view of the budget."""

# Kinds that the profiler exaggerates by slowing the host.
HOST_KINDS = {FindingKind.SYNCS, FindingKind.LAUNCHES, FindingKind.BETWEEN}

Figures = Mapping[str, Value | str]


@dataclass(frozen=True, slots=True)
class Finding:
    """Describes one thing to look at."""

    kind: FindingKind
    rank: int | None
    ranks: tuple[int, ...]  # all ranks on which it is worth reporting
    rank_count: int  # number of examined ranks
    window_ns: int  # length of the window of ``rank``
    win_ns: int | None  # the most that fixing it could win of that window; None: it wins no time but casts doubt
    # Its own figures, times in ns and shares as fractions. The first, ``part_ns``, is what the view or command has of
    # it, of which a win is a part that no other finding names.
    figures: Figures = field(default_factory=dict)

    @property
    def share(self) -> Fraction | None:
        """The share of the window that fixing it could win."""
        return None if self.win_ns is None else Fraction(self.win_ns, self.window_ns)

    @property
    def detail_command(self) -> str:
        """The view or command that shows more: ``--view budget``, ``check``."""
        return DETAIL_COMMANDS.get(self.kind, "--view budget")


MeasuredT = TypeVar("MeasuredT")


def measure_each_rank(
    ranks: Iterable[int], measure: Callable[[int], MeasuredT]
) -> tuple[dict[int, MeasuredT], dict[int, NothingMeasured]]:
    """Measure each rank; return the results, and the errors of the other ranks. Raises NothingMeasured if no rank has a
    result.
    """
    results: dict[int, MeasuredT] = {}
    errors: dict[int, NothingMeasured] = {}
    for rank in ranks:
        try:
            results[rank] = measure(rank)
        except NothingMeasured as error:
            errors[rank] = error
    if errors and not results:
        raise next(iter(errors.values()))
    return results, errors


def list_findings(
    captures: Captures, spec: WindowSpec, limit: int = MAX_FINDINGS, ranks: Container[int] | None = None
) -> tuple[Finding, ...]:
    """List the findings of the first capture that are worth showing, the largest possible win first, then doubts.

    Only ranks that can be measured count, of all or of ``ranks``. Raises NothingMeasured if there are none.
    """
    inspection = _RunInspection(captures, spec, ranks)
    wins = sorted(inspection.list_wins(), key=lambda finding: (-Fraction(finding.share or 0), finding.kind))
    doubts = [*inspection.list_doubts({finding.kind for finding in wins})]
    return (*wins[: limit - len(doubts)], *doubts)


class _RunInspection:
    """Inspects all ranks of a run, because findings compare ranks, and reports on the requested ones."""

    def __init__(self, captures: Captures, spec: WindowSpec, ranks: Container[int] | None = None) -> None:
        run = captures.runs[0]
        self.captures, self.spec, self.run, self.group = captures, spec, run, run.load_windows(spec)
        windows_by_rank, _ = measure_each_rank(
            (rank.number for rank in run.ranks), lambda rank: self.group.require_filled_windows({rank})[rank]
        )
        self.budgets = {
            rank: budget for rank, budget in measure_rank_budgets(windows_by_rank).items() if isinstance(budget, Budget)
        }
        self.windows = {
            rank: self.budgets[rank].window if rank in self.budgets else rank_windows[0]
            for rank, rank_windows in windows_by_rank.items()
        }
        self.reported_ranks = [number for number in self.windows if ranks is None or number in ranks]

    @cached_property
    def losses(self) -> Mapping[int, LostTime]:
        """The lost time by rank, of those that have a budget."""
        return {number: LostTime(budget, self._waits.get(number, ())) for number, budget in self.budgets.items()}

    @cached_property
    def _waits(self) -> Mapping[int, Sequence[WaitInterval]]:
        """The waits by rank, if each rank has one window: of several it is unknown which belong together."""
        with suppress(NothingMeasured):
            run_windows = self.group.list_run_windows()
            if len(self.windows) > 1 and len(run_windows) == 1:
                return list_wait_intervals(run_windows[0])
        return {}

    def list_wins(self) -> Iterator[Finding]:
        """List each kind on the rank where it could win most, if that is worth telling."""
        straggler: Value | str | None = None
        for kind, figures in _FIGURE_READERS.items():

            def measure(rank: int, figures: _FigureReader = figures) -> Figures:
                return figures(self, self.losses[rank])

            claims_ns = {rank: losses.claims_ns[kind] for rank, losses in self.losses.items()}
            for finding in self._find_worst(kind, claims_ns, measure):
                straggler = finding.figures.get("for_rank", straggler)
                yield finding
        yield from self._list_compute_findings(straggler)

    @cached_property
    def exposed_metric(self) -> str:
        """The metric of all exposed communication of a rank."""
        return choose_wall_metrics(measure_sharing(self.windows.values())).exposed

    def select_rows(self, metric: str, rank: int) -> dict[tuple[object, ...], Value]:
        """Return the rows of a metric for one rank, by their other labels."""
        table = self.captures.measure_rows(METRICS[metric], self.spec, frozenset(self.windows))
        return {row.labels[1:]: row.value for row in table.rows if row.labels[0] == rank}

    def _find_worst(
        self, kind: FindingKind, claims_ns: Mapping[int, int], read_figures: Callable[[int], Figures]
    ) -> Iterator[Finding]:
        """Yield a finding for the ranks on which a win is worth showing, with the figures of the rank that loses
        most.
        """
        candidates: list[tuple[Value, int, int, Figures]] = []
        for rank in self.reported_ranks:
            min_win_ns, win_ns = MIN_SHARE_BY_KIND[kind] * (self.windows[rank].length_ns or 1), claims_ns.get(rank, 0)
            if rank in claims_ns and win_ns >= min_win_ns:
                rank_figures = read_figures(rank)
                if "part_ns" in rank_figures:
                    win_ns = min(
                        win_ns, int(_get_number(rank_figures, "part_ns") + _get_number(rank_figures, "more_ns"))
                    )
                if win_ns >= min_win_ns:
                    candidates.append((_get_number(rank_figures, "part_ns"), win_ns, -rank, rank_figures))
        if candidates:
            _, win_ns, worst, rank_figures = max(candidates, key=lambda candidate: candidate[:3])
            ranks, length_ns = tuple(sorted(-rank for _, _, rank, _ in candidates)), self.windows[-worst].length_ns or 1
            yield Finding(kind, -worst, ranks, len(self.reported_ranks), length_ns, win_ns, rank_figures)

    def _list_compute_findings(self, straggler: Value | str | None) -> Iterator[Finding]:
        """List what makes compute longer: slow clocks, and more of it than on other ranks. ``straggler`` is told
        already.
        """
        busy_ns = {rank: budget.lines.compute_busy_ns for rank, budget in self.budgets.items()}
        clocks = {rank: clock for rank, window in self.windows.items() if (clock := _measure_clock(window)) is not None}
        best_mhz = max((highest for _, highest in clocks.values()), default=Fraction(0))
        slow_ns = {
            rank: int(busy_ns[rank] * (1 - Fraction(median) / best_mhz))
            for rank, (median, _) in clocks.items()
            if rank in busy_ns and 1 - Fraction(median) / best_mhz >= MIN_SHARE_BY_KIND[FindingKind.CLOCKS]
        }
        yield from self._find_worst(
            FindingKind.CLOCKS, slow_ns, lambda rank: {"sm_clock_mhz": clocks[rank][0], "best_mhz": best_mhz}
        )
        if len(busy_ns) < max(2, len(self.windows)) or find_uneven_anchors(self.group) is not None:
            return  # windows at other indices hold other work
        mean_ns = mean([*busy_ns.values()])
        extra_ns = {
            rank: min(int(ns - mean_ns), ns - slow_ns.get(rank, 0)) for rank, ns in busy_ns.items() if rank != straggler
        }
        yield from self._find_worst(
            FindingKind.UNEVEN,
            extra_ns,
            lambda rank: {"part_ns": busy_ns[rank], "mean_ns": mean_ns},
        )

    def list_doubts(self, wins: Collection[FindingKind]) -> Iterator[Finding]:
        """List a profiler that slows the host, if there are ``wins`` on the host, and one that slows steps.

        Other reasons for doubt are facts.
        """
        slowing_setting = next((facts.slowing_setting for facts in self.run.facts if facts.slowing_setting), "")
        if slowing_setting and HOST_KINDS & {*wins}:
            yield self._make_profiler_finding({"recorded": slowing_setting})
        with suppress(NsysError):  # the step time without the profiler is unknown
            cost = measure_profiler_overhead(self.group.list_run_windows()[0])
            if cost >= MIN_SHARE_BY_KIND[FindingKind.PROFILER]:
                yield self._make_profiler_finding({"overhead": cost})

    def _make_profiler_finding(self, figures: Figures) -> Finding:
        ranks = tuple(sorted(self.reported_ranks))
        return Finding(FindingKind.PROFILER, None, ranks, len(ranks), 0, None, figures)


def _measure_clock(window: RankWindow) -> tuple[Value, Fraction] | None:
    """Measure the median SM clock of a window, and the highest around it, in MHz; None if the window has no samples."""
    with suppress(NoRows):
        samples = window.track.gpu_track.sm_clocks
        median = sm_clock_mhz(window)
        return (median, Fraction(max(samples.value), MEGA)) if samples is not None else None
    return None


_FigureReader = Callable[[_RunInspection, LostTime], Figures]


def _get_number(figures: Figures, name: str) -> Value:
    figure = figures.get(name, 0)
    return 0 if isinstance(figure, str) else figure


def _read_straggler(inspection: _RunInspection, losses: LostTime) -> Figures:
    rows = inspection.select_rows("collective_wait_ns", losses.window.rank.number)
    waits_ns = {labels: ns for labels, ns in rows.items() if ns}
    if not waits_ns:
        return {"part_ns": 0}
    group, kind = max(waits_ns, key=lambda labels: (waits_ns[labels], str(labels)))
    ns = waits_ns[group, kind]
    figures = {"part_ns": ns, "more_ns": sum(waits_ns.values()) - ns}
    return {**figures, "collective": str(kind), "for_rank": losses.find_awaited_rank(str(kind))}


def _read_wrong_stream(_: _RunInspection, losses: LostTime) -> Figures:
    stream, communication, compute = losses.find_shared_stream()
    return {
        "part_ns": next(use.communication_ns for use in losses.window.stream_uses if use.stream == stream),
        "stream": stream.number,
        "comm_kernels": communication,
        "compute_kernels": sum(compute.values()),
        "mostly": next(iter(compute)),
    }


def _read_communication(inspection: _RunInspection, losses: LostTime) -> Figures:
    (stage, kernel), ns = losses.find_longest_communication()
    stage_figure: Figures = {"stage": stage} if stage != NO_STAGE else {}
    part_ns = sum(inspection.select_rows(inspection.exposed_metric, losses.window.rank.number).values())
    return {"part_ns": part_ns, **stage_figure, "kernel": kernel, "kernel_ns": ns, "comm_ns": losses.budget.comm_ns}


def _read_syncs(_: _RunInspection, losses: LostTime) -> Figures:
    (call, ns), *other_calls = losses.budget.in_syncs.items()
    calls = count_waiting_calls(losses.window) or Counter[str]()
    call_count: Figures = {"calls": calls[call]} if call in calls else {}
    return {"part_ns": ns, "more_ns": sum(other_ns for _, other_ns in other_calls), "call": call, **call_count}


def _read_late_work(losses: LostTime, part: BudgetPart) -> Figures:
    name, ns = losses.find_late_work(part)
    return {"part_ns": losses.budget.lines.parts[part], "before": name, "before_ns": ns}


def _read_launches(_: _RunInspection, losses: LostTime) -> Figures:
    figures = _read_late_work(losses, BudgetPart.STARVED)
    if losses.before_tiny_ns < MIN_SHARE_BY_KIND[FindingKind.LAUNCHES] * losses.window.length_ns:
        return figures
    tiny, kernels = losses.count_tiny_kernels()
    return {**figures, "tiny": tiny, "kernels": kernels}


def _read_between_steps(_: _RunInspection, losses: LostTime) -> Figures:
    lines = losses.budget.lines
    figures: Figures = {"part_ns": lines.parts[BudgetPart.BETWEEN], "window_ns": lines.window_ns}
    host = find_host_activity(losses.window)
    return {**figures, "host": host} if host else figures


def _read_copies(_: _RunInspection, losses: LostTime) -> Figures:
    budget, host_ns = losses.budget, losses.host_in_copies_ns
    blocked_ns = {kind: ns for kind in ("copy", "memset") if (ns := budget.lines.blocking_ns[kind])}
    figures: dict[str, Value | str] = {"part_ns": budget.lines.parts[BudgetPart.STARVED]}
    if blocked_ns:
        longest_kind = max(blocked_ns, key=lambda kind: blocked_ns[kind])
        figures = {
            "part_ns": blocked_ns[longest_kind],
            "producer": longest_kind,
            "more_ns": sum(blocked_ns.values()) - blocked_ns[longest_kind] + host_ns,
        }
        longest = next(producer for producer in budget.list_producers() if producer.kind == longest_kind)
        figures |= {"before": longest.waiting, "before_ns": longest.ns, "gaps": longest.gaps}
    if (copies := find_longest_copies(losses.window)) is not None:
        figures |= {"between": copies[0], "copies": copies[1]}
    return {**figures, "blocked_ns": sum(blocked_ns.values()), "host_ns": host_ns, "pageable": losses.pageable_count}


def _read_other_device(_: _RunInspection, losses: LostTime) -> Figures:
    budget = losses.budget
    longest = next(producer for producer in budget.list_producers() if producer.kind == "other_device")
    figures: Figures = {
        "kernel": longest.name,
        "before": longest.waiting,
        "before_ns": longest.ns,
        "gaps": longest.gaps,
    }
    return {"part_ns": budget.lines.parts[BudgetPart.ELSEWHERE], **figures}


_FIGURE_READERS: Mapping[FindingKind, _FigureReader] = {
    FindingKind.STRAGGLER: _read_straggler,
    FindingKind.WRONG_STREAM: _read_wrong_stream,
    FindingKind.COMMUNICATION: _read_communication,
    FindingKind.SYNCS: _read_syncs,
    FindingKind.LAUNCHES: _read_launches,
    FindingKind.BETWEEN: _read_between_steps,
    FindingKind.COPIES: _read_copies,
    FindingKind.OTHER_DEVICE: _read_other_device,
    FindingKind.STALLED: lambda _, losses: _read_late_work(losses, BudgetPart.STALLED),
}
"""The function that reads the figures of a rank, for each kind that claims time without compute."""
