"""What to look at first in a run: what holds its steps back, the largest possible win first, and what casts doubt.

A win is a bound: the time without compute that a finding claims of the lines of a budget, or the compute that it makes
longer, of one rank's window, and no two findings claim the same time (:mod:`~pytest_nsys.analysis.summary.losses`). Of
each kind there is one finding, told of the rank where it could win most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

from pytest_nsys.analysis.budget.budget import Budget, find_budgets, host_between
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.analysis.facts.steps import uneven_anchors
from pytest_nsys.analysis.metrics.activity import synchronising
from pytest_nsys.analysis.metrics.gpu_state import MEGA, sm_clock_mhz
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.metrics.sharing import sharing_in, walls
from pytest_nsys.analysis.metrics.straggling import Waited, waited
from pytest_nsys.analysis.metrics.throughput import profiler_overhead
from pytest_nsys.analysis.summary.losses import FindingKind, Losses, longest_copies
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.errors import NoRows, NothingMeasured, NsysError
from pytest_nsys.core.exact import mean
from pytest_nsys.core.model import Value

MOST = 5
"""How many findings a person is shown."""

WORTH: Mapping[FindingKind, Fraction] = {
    **dict.fromkeys(FindingKind, Fraction(1, 100)),  # of a window: less is lost in the noise between two runs
    FindingKind.STALLED: Fraction(5, 100),  # the trace does not say what to mend: little of it helps nobody
    FindingKind.UNEVEN: Fraction(3, 100),  # two GPUs of one model differ by as much on the same work
    FindingKind.CLOCKS: Fraction(5, 100),  # clocks of good runs move by as much with load and heat
    FindingKind.PROFILER: Fraction(10, 100),  # tracing of kernels and ranges costs less
}
"""How much of the window a finding could win at least, else it is not told: of the profiler, what it costs."""

MORE: Mapping[FindingKind, str] = {
    FindingKind.STRAGGLER: "--view collectives",
    FindingKind.WRONG_STREAM: "--view streams",
    FindingKind.COMMUNICATION: "--view overlap",
    FindingKind.CLOCKS: "rows sm_clock_mhz",
    FindingKind.PROFILER: "check",
}
"""What shows more: a view, or a command; of all others the view of the budget."""

OF_THE_HOST = {FindingKind.SYNCS, FindingKind.LAUNCHES, FindingKind.BETWEEN}
"""What a host that is slowed by the profiler makes longer than it is."""

Figures = Mapping[str, Value | str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at. ``win_ns`` is the most that fixing it could win of the window of ``rank``, which is
    ``window_ns`` long; None where it wins no time but casts doubt. ``ranks`` are all on which it is worth telling, of
    ``looked_at`` in all.

    ``figures`` are its own, times in ns and shares as fractions. The first, ``part_ns``, is what the view or command
    has of it, of which a win is a part that no other finding names.
    """

    kind: FindingKind
    rank: int | None
    ranks: tuple[int, ...]
    looked_at: int
    window_ns: int
    win_ns: int | None
    figures: Figures = field(default_factory=dict)

    @property
    def share(self) -> Fraction | None:
        """Of the window, what fixing it could win."""
        return None if self.win_ns is None else Fraction(self.win_ns, self.window_ns)

    @property
    def more(self) -> str:
        """The view or command that shows more: ``--view budget``, ``check``."""
        return MORE.get(self.kind, "--view budget")


V = TypeVar("V")


def measure_each(ranks: Iterable[int], measure: Callable[[int], V]) -> tuple[dict[int, V], dict[int, NothingMeasured]]:
    """What there is of ranks, and why there is nothing of others. Raises NothingMeasured where none has anything."""
    found: dict[int, V] = {}
    without: dict[int, NothingMeasured] = {}
    for rank in ranks:
        try:
            found[rank] = measure(rank)
        except NothingMeasured as why:
            without[rank] = why
    if without and not found:
        raise next(iter(without.values()))
    return found, without


def findings_of(
    captures: Captures, spec: WindowSpec, most: int = MOST, ranks: Container[int] | None = None
) -> tuple[Finding, ...]:
    """The findings of the first capture that are worth telling, the largest possible win first, then what casts doubt.

    They are of the ranks that can be measured, of all or of some. Raises NothingMeasured where none can.
    """
    look = _Look(captures, spec, ranks)
    wins = sorted(look.wins(), key=lambda each: (-Fraction(each.share or 0), each.kind))
    doubtful = [*look.doubts({each.kind for each in wins})]
    return (*wins[: most - len(doubtful)], *doubtful)


class _Look:
    """One look at all ranks of a run, by which some are held: of these it tells."""

    def __init__(self, captures: Captures, spec: WindowSpec, ranks: Container[int] | None = None) -> None:
        run = captures.runs[0]
        self.captures, self.spec, self.run, self.group = captures, spec, run, run.measured(spec)
        each, _ = measure_each((rank.number for rank in run.ranks), lambda rank: self.group.filled({rank})[rank])
        self.budgets = {rank: own for rank, own in find_budgets(each).items() if isinstance(own, Budget)}
        self.windows = {
            rank: self.budgets[rank].window if rank in self.budgets else own[0] for rank, own in each.items()
        }
        self.told = [number for number in self.windows if ranks is None or number in ranks]

    @cached_property
    def losses(self) -> Mapping[int, Losses]:
        """By rank, of those that have a budget."""
        return {number: Losses(budget, self._waits.get(number, ())) for number, budget in self.budgets.items()}

    @cached_property
    def _waits(self) -> Mapping[int, Sequence[Waited]]:
        """Where each rank has one window: of several nobody knows which belong together."""
        with suppress(NothingMeasured):
            together = self.group.together()
            if len(self.windows) > 1 and len(together) == 1:
                return waited(together[0])
        return {}

    def wins(self) -> Iterator[Finding]:
        """Each kind on the rank where it could win most, if that is worth telling."""
        straggler: Value | str | None = None
        for kind, figures in _FIGURES.items():

            def measure(rank: int, figures: _Of = figures) -> Figures:
                return figures(self, self.losses[rank])

            each = {rank: losses.claims_ns[kind] for rank, losses in self.losses.items()}
            for found in self._worst(kind, each, measure):
                straggler = found.figures.get("for_rank", straggler)
                yield found
        yield from self._of_compute(straggler)

    @cached_property
    def exposed(self) -> str:
        """The metric of all exposed communication of a rank."""
        return walls(sharing_in(self.windows.values())).exposed

    def rows(self, metric: str, rank: int) -> dict[tuple[object, ...], Value]:
        """The rows of a metric of a rank, as its view has them, by their other labels."""
        table = self.captures.rows(METRICS[metric], self.spec, frozenset(self.windows))
        return {row.labels[1:]: row.value for row in table.rows if row.labels[0] == rank}

    def _worst(
        self, kind: FindingKind, each: Mapping[int, int], figures: Callable[[int], Figures]
    ) -> Iterator[Finding]:
        """A finding of the ranks on which a win is worth telling, of that where the view has most of it."""
        found: list[tuple[Value, int, int, Figures]] = []
        for rank in self.told:
            least, win_ns = WORTH[kind] * (self.windows[rank].length_ns or 1), each.get(rank, 0)
            if rank in each and win_ns >= least:
                own = figures(rank)
                if "part_ns" in own:
                    win_ns = min(win_ns, int(_number(own, "part_ns") + _number(own, "more_ns")))
                if win_ns >= least:
                    found.append((_number(own, "part_ns"), win_ns, -rank, own))
        if found:
            _, win_ns, worst, own = max(found, key=lambda each: each[:3])
            ranks, length_ns = tuple(sorted(-rank for _, _, rank, _ in found)), self.windows[-worst].length_ns or 1
            yield Finding(kind, -worst, ranks, len(self.told), length_ns, win_ns, own)

    def _of_compute(self, straggler: Value | str | None) -> Iterator[Finding]:
        """What makes compute longer: slow clocks, and more of it than on other ranks. ``straggler`` is told already."""
        busy = {rank: budget.lines.compute_busy_ns for rank, budget in self.budgets.items()}
        clocks = {rank: found for rank, window in self.windows.items() if (found := _clock_of(window)) is not None}
        best = max((highest for _, highest in clocks.values()), default=Fraction(0))
        slow = {
            rank: int(busy[rank] * (1 - Fraction(median) / best))
            for rank, (median, _) in clocks.items()
            if rank in busy and 1 - Fraction(median) / best >= WORTH[FindingKind.CLOCKS]
        }
        yield from self._worst(
            FindingKind.CLOCKS, slow, lambda rank: {"sm_clock_mhz": clocks[rank][0], "best_mhz": best}
        )
        if len(busy) < max(2, len(self.windows)) or uneven_anchors(self.group) is not None:
            return  # windows that are found by other numbers are other pieces of work
        usual = mean([*busy.values()])
        more = {rank: min(int(ns - usual), ns - slow.get(rank, 0)) for rank, ns in busy.items() if rank != straggler}
        yield from self._worst(
            FindingKind.UNEVEN,
            more,
            lambda rank: {"part_ns": busy[rank], "mean_ns": usual},
        )

    def doubts(self, wins: Collection[FindingKind]) -> Iterator[Finding]:
        """A profiler that slows the host, where there are ``wins`` that the host could bring, and one that slows steps;
        what else makes the figures doubtful the facts say.
        """
        slow = next((facts.slows_host for facts in self.run.facts if facts.slows_host), "")
        if slow and OF_THE_HOST & {*wins}:
            yield self._of_profiler({"recorded": slow})
        with suppress(NsysError):  # nobody said how long a step takes without it
            cost = profiler_overhead(self.group.together()[0])
            if cost >= WORTH[FindingKind.PROFILER]:
                yield self._of_profiler({"overhead": cost})

    def _of_profiler(self, figures: Figures) -> Finding:
        ranks = tuple(sorted(self.told))
        return Finding(FindingKind.PROFILER, None, ranks, len(ranks), 0, None, figures)


def _clock_of(window: RankWindow) -> tuple[Value, Fraction] | None:
    """The median SM clock of a window and the highest around it, in MHz; None where it has no samples."""
    with suppress(NoRows):
        samples = window.track.on_gpu.sm_clocks
        median = sm_clock_mhz(window)
        return (median, Fraction(max(samples.value), MEGA)) if samples is not None else None
    return None


_Of = Callable[[_Look, Losses], Figures]


def _number(figures: Figures, name: str) -> Value:
    found = figures.get(name, 0)
    return 0 if isinstance(found, str) else found


def _straggler(look: _Look, losses: Losses) -> Figures:
    rows = look.rows("collective_wait_ns", losses.window.rank.number)
    waits = {labels: ns for labels, ns in rows.items() if ns}
    if not waits:
        return {"part_ns": 0}
    group, kind = max(waits, key=lambda labels: (waits[labels], str(labels)))
    ns = waits[group, kind]
    figures = {"part_ns": ns, "more_ns": sum(waits.values()) - ns}
    return {**figures, "collective": str(kind), "for_rank": losses.waited_for(str(kind))}


def _wrong_stream(_: _Look, losses: Losses) -> Figures:
    stream, communication, compute = losses.shared_stream()
    return {
        "part_ns": next(use.communication_ns for use in losses.window.streams if use.stream == stream),
        "stream": stream.number,
        "comm_kernels": communication,
        "compute_kernels": sum(compute.values()),
        "mostly": next(iter(compute)),
    }


def _communication(look: _Look, losses: Losses) -> Figures:
    (stage, kernel), ns = losses.longest_communication()
    named: Figures = {"stage": stage} if stage != NO_STAGE else {}
    part_ns = sum(look.rows(look.exposed, losses.window.rank.number).values())
    return {"part_ns": part_ns, **named, "kernel": kernel, "kernel_ns": ns, "comm_ns": losses.budget.comm_ns}


def _syncs(_: _Look, losses: Losses) -> Figures:
    (call, ns), *others = losses.budget.in_syncs.items()
    calls = synchronising(losses.window) or Counter[str]()
    counted: Figures = {"calls": calls[call]} if call in calls else {}
    return {"part_ns": ns, "more_ns": sum(each for _, each in others), "call": call, **counted}


def _before(losses: Losses, part: BudgetPart) -> Figures:
    name, ns = losses.late_before(part)
    return {"part_ns": losses.budget.lines.parts[part], "before": name, "before_ns": ns}


def _launches(_: _Look, losses: Losses) -> Figures:
    found = _before(losses, BudgetPart.STARVED)
    if losses.before_tiny_ns < WORTH[FindingKind.LAUNCHES] * losses.window.length_ns:
        return found
    tiny, kernels = losses.tiny_kernels()
    return {**found, "tiny": tiny, "kernels": kernels}


def _between(_: _Look, losses: Losses) -> Figures:
    lines = losses.budget.lines
    found: Figures = {"part_ns": lines.parts[BudgetPart.BETWEEN], "window_ns": lines.window_ns}
    host = host_between(losses.window)
    return {**found, "host": host} if host else found


def _copies(_: _Look, losses: Losses) -> Figures:
    budget, host = losses.budget, losses.host_in_copies_ns
    blocked = {kind: ns for kind in ("copy", "memset") if (ns := budget.lines.blocking_ns[kind])}
    found: dict[str, Value | str] = {"part_ns": budget.lines.parts[BudgetPart.STARVED]}
    if blocked:
        most = max(blocked, key=lambda kind: blocked[kind])
        found = {"part_ns": blocked[most], "producer": most, "more_ns": sum(blocked.values()) - blocked[most] + host}
        longest = next(each for each in budget.producers() if each.kind == most)
        found |= {"before": longest.waiting, "before_ns": longest.ns, "gaps": longest.gaps}
    if (copies := longest_copies(losses.window)) is not None:
        found |= {"between": copies[0], "copies": copies[1]}
    return {**found, "blocked_ns": sum(blocked.values()), "host_ns": host, "pageable": losses.pageable}


def _elsewhere(_: _Look, losses: Losses) -> Figures:
    budget = losses.budget
    longest = next(each for each in budget.producers() if each.kind == "other_device")
    found: Figures = {"kernel": longest.name, "before": longest.waiting, "before_ns": longest.ns, "gaps": longest.gaps}
    return {"part_ns": budget.lines.parts[BudgetPart.ELSEWHERE], **found}


_FIGURES: Mapping[FindingKind, _Of] = {
    FindingKind.STRAGGLER: _straggler,
    FindingKind.WRONG_STREAM: _wrong_stream,
    FindingKind.COMMUNICATION: _communication,
    FindingKind.SYNCS: _syncs,
    FindingKind.LAUNCHES: _launches,
    FindingKind.BETWEEN: _between,
    FindingKind.COPIES: _copies,
    FindingKind.OTHER_DEVICE: _elsewhere,
    FindingKind.STALLED: lambda _, losses: _before(losses, BudgetPart.STALLED),
}
"""Of the kinds that claim time without compute, what is told of a rank."""
