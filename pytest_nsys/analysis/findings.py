"""What to look at first in a run: what holds its steps back, the largest possible win first, and what casts doubt.

A win is a bound: the time without compute that a finding names, or the compute that it makes longer, of one rank's
window, and no two findings name the same time (:mod:`~pytest_nsys.analysis.losses`). Of each kind there is one finding,
told of the rank where it could win most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial

from pytest_nsys.analysis.activity import sync_calls
from pytest_nsys.analysis.budget import host_between, window_of_several
from pytest_nsys.analysis.budget_facts import BudgetPart
from pytest_nsys.analysis.captures import OF_A_RUN, Captures
from pytest_nsys.analysis.fact_bounds import Bounds
from pytest_nsys.analysis.facts.fact import Fact, Measured, Weight
from pytest_nsys.analysis.facts.steps import uneven_anchors
from pytest_nsys.analysis.gpu_state import MEGA, sm_clock_mhz
from pytest_nsys.analysis.losses import FindingKind, Losses
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.sharing import Walls, sharing_in, walls
from pytest_nsys.analysis.straggling import Waited, waited
from pytest_nsys.analysis.throughput import profiler_overhead
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.errors import NoRows, NothingMeasured, NsysError
from pytest_nsys.core.exact import mean
from pytest_nsys.core.model import Value

MOST = 5
"""How many findings a person is shown."""

DOUBTS_KEPT = 2
"""Of these so many places are kept for what casts doubt: a win is worth nothing where the figures are wrong."""

WORTH: Mapping[FindingKind, Fraction] = {
    **dict.fromkeys(FindingKind, Fraction(1, 100)),  # of a window: less is lost in the noise between two runs
    FindingKind.STALLED: Fraction(5, 100),  # the trace does not say what to mend: little of it helps nobody
    FindingKind.UNEVEN: Fraction(3, 100),  # two GPUs of one model differ by as much on the same work
    FindingKind.CLOCKS: Fraction(5, 100),  # clocks of good runs move by as much with load and heat
    FindingKind.PROFILER: Fraction(10, 100),  # tracing of kernels and ranges costs less
}
"""How much of the window a finding could win at least, else it is not told: of the profiler, what it costs."""

MORE: Mapping[FindingKind, tuple[str, str]] = {
    FindingKind.STRAGGLER: ("collectives", ""),
    FindingKind.WRONG_STREAM: ("streams", ""),
    FindingKind.COMMUNICATION: ("overlap", ""),
    FindingKind.SYNCS: ("budget", ""),
    FindingKind.LAUNCHES: ("budget", ""),
    FindingKind.BETWEEN: ("budget", ""),
    FindingKind.COPIES: ("budget", ""),
    FindingKind.OTHER_DEVICE: ("budget", ""),
    FindingKind.STALLED: ("budget", ""),
    FindingKind.CLOCKS: ("", "rows sm_clock_mhz"),
    FindingKind.UNEVEN: ("", "rows compute_busy_ns"),
    FindingKind.PROFILER: ("", "check"),
    FindingKind.DOUBT: ("", "check"),
}
"""What shows more: a view, or a command."""

OF_THE_HOST = {FindingKind.SYNCS, FindingKind.LAUNCHES, FindingKind.BETWEEN}
"""What a host that is slowed by the profiler makes longer than it is."""

Figures = Mapping[str, Value | str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at. ``win_ns`` is the most that fixing it could win of the window of ``rank``, which is
    ``window_ns`` long; None where it wins no time but casts doubt. ``ranks`` are all on which it is worth telling, of
    ``looked_at`` in all.

    ``figures`` are its own, times in ns and shares as fractions. The first, ``part_ns``, is what the view or command
    has of it, of which a win is a part that no other finding names. ``doubt`` is set where that is what it is of.
    """

    kind: FindingKind
    rank: int | None
    ranks: tuple[int, ...]
    looked_at: int
    window_ns: int
    win_ns: int | None
    figures: Figures = field(default_factory=dict)
    doubt: Fact | None = None

    @property
    def share(self) -> Fraction | None:
        """Of the window, what fixing it could win."""
        return None if self.win_ns is None else Fraction(self.win_ns, self.window_ns)

    @property
    def view(self) -> str:
        """The view that shows more; empty where a command does."""
        return MORE[self.kind][0]

    @property
    def command(self) -> str:
        """The command that shows more; empty where a view does."""
        return MORE[self.kind][1]


def findings_of(
    captures: Captures, spec: WindowSpec, most: int = MOST, ranks: Container[int] | None = None
) -> tuple[Finding, ...]:
    """The findings of the first capture that are worth telling, the largest possible win first, then the doubts.

    They are of the ranks that can be measured, of all or of some. Raises NothingMeasured where none can.
    """
    look = _Look(captures, spec, ranks)
    wins = sorted(look.wins(), key=lambda each: (-Fraction(each.share or 0), each.kind))
    doubtful = sorted(look.doubts({each.kind for each in wins}), key=lambda each: each.kind is FindingKind.DOUBT)
    kept = max(most - len(doubtful), most - DOUBTS_KEPT)
    found = [*wins[:kept], *doubtful]
    return tuple(found[:most])


class _Look:
    """One look at all ranks of a run, by which some are held: of these it tells."""

    def __init__(self, captures: Captures, spec: WindowSpec, ranks: Container[int] | None = None) -> None:
        run = captures.runs[0]
        self.captures, self.spec, self.run, self.group = captures, spec, run, run.measured(spec)
        self.windows: dict[int, RankWindow] = {}
        self.without: dict[int, str] = {}
        nothing: NothingMeasured | None = None
        for rank in run.ranks:
            try:
                self.windows[rank.number] = window_of_several(self.group.filled({rank.number})[rank.number])
            except NothingMeasured as why:
                nothing = nothing or why
        if nothing is not None and not self.windows:
            raise nothing
        self.told = [number for number in self.windows if ranks is None or number in ranks]

    @cached_property
    def losses(self) -> Mapping[int, Losses]:
        """By rank, of those that have a budget."""
        found = {}
        for number, window in self.windows.items():
            try:
                found[number] = Losses(window, self._waits.get(number, ()))
            except NoRows as nothing:
                self.without[number] = str(nothing)
        return found

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
            each = {rank: losses.claims_ns[kind] for rank, losses in self.losses.items()}
            for found in self._worst(kind, each, partial(self._of_losses, figures)):
                straggler = found.figures.get("for_rank", straggler)
                yield found
        yield from self._of_compute(straggler)

    def _of_losses(self, figures: _Of, rank: int) -> Figures:
        return figures(self, rank)

    @cached_property
    def walls(self) -> Walls:
        """The metrics of all communication of a rank."""
        return walls(sharing_in(self.windows.values()))

    def rows(self, metric: str, rank: int) -> dict[tuple[object, ...], Value]:
        """The rows of a metric of a rank, as its view has them, by their other labels."""
        table = self.captures.rows(METRICS[metric], self.spec, frozenset(self.windows))
        return {row.labels[1:]: row.value for row in table.rows if row.labels[0] == rank}

    def _worst(
        self, kind: FindingKind, each: Mapping[int, int], figures: Callable[[int], Figures]
    ) -> Iterator[Finding]:
        """A finding of the ranks on which a win is worth telling, of that where the view has most of it."""
        lengths = {rank: self.windows[rank].length_ns or 1 for rank in self.told if rank in each}
        some = {rank: figures(rank) for rank, length in lengths.items() if Fraction(each[rank], length) >= WORTH[kind]}
        most = {rank: int(_number(own, "part_ns") + _number(own, "more_ns")) for rank, own in some.items()}
        wins = {rank: min(each[rank], most[rank]) if "part_ns" in some[rank] else each[rank] for rank in some}
        found = [rank for rank, ns in wins.items() if Fraction(ns, lengths[rank]) >= WORTH[kind]]
        if found:
            worst = max(found, key=lambda rank: (_number(some[rank], "part_ns"), wins[rank], -rank))
            of = tuple(sorted(found)), len(self.told), lengths[worst]
            yield Finding(kind, worst, *of, wins[worst], some[worst])

    def _of_compute(self, straggler: Value | str | None) -> Iterator[Finding]:
        """What makes compute longer: slow clocks, and more of it than on other ranks. ``straggler`` is told already."""
        busy = {rank: losses.budget.compute_busy_ns for rank, losses in self.losses.items()}
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
        """What a gate would call an error of the trace, as far as it is known without a gate file; and a profiler that
        slows the host, where there are ``wins`` that the host could bring.
        """
        metrics = map(METRICS.__getitem__, OF_A_RUN)
        bounds = Bounds(world=self.run.workload.world)
        facts = [each for each in self.captures.facts_about(self.spec, bounds, *metrics) if each.weight is Weight.ERROR]
        for number, why in ((number, why) for number, why in self.without.items() if number in self.told):
            unknown = Measured(None, f"what rank {number} waits for is unknown", why)
            facts.append(Fact("budget", "count", unknown, Weight.DOUBT))
        yield from (self._of_all(FindingKind.DOUBT, doubt=fact) for fact in facts)
        slow = next((facts.slows_host for facts in self.run.facts if facts.slows_host), "")
        if slow and OF_THE_HOST & {*wins}:
            yield self._of_all(FindingKind.PROFILER, {"recorded": slow})
        with suppress(NsysError):  # nobody said how long a step takes without it
            ((_, cost),) = profiler_overhead(self.group.together()[0])
            if cost >= WORTH[FindingKind.PROFILER]:
                yield self._of_all(FindingKind.PROFILER, {"overhead": cost})

    def _of_all(self, kind: FindingKind, figures: Figures | None = None, doubt: Fact | None = None) -> Finding:
        ranks = tuple(sorted(self.told))
        return Finding(kind, None, ranks, len(ranks), 0, None, figures or {}, doubt)


def _clock_of(window: RankWindow) -> tuple[Value, Fraction] | None:
    """The median SM clock of a window and the highest around it, in MHz; None where it has no samples."""
    with suppress(NoRows):
        samples = window.track.on_gpu.sm_clocks
        for _, median in sm_clock_mhz(window):
            return (median, Fraction(max(samples.value), MEGA)) if samples is not None else None
    return None


_Of = Callable[[_Look, int], Figures]


def _number(figures: Figures, name: str) -> Value:
    found = figures.get(name, 0)
    return 0 if isinstance(found, str) else found


def _straggler(look: _Look, rank: int) -> Figures:
    waits = {labels: ns for labels, ns in look.rows("collective_wait_ns", rank).items() if ns}
    if not waits:
        return {"part_ns": 0}
    group, kind = max(waits, key=lambda labels: (waits[labels], str(labels)))
    ns = waits[group, kind]
    rest = sum(waits.values()) - ns
    return {
        "part_ns": ns,
        "more_ns": rest,
        "collective": str(kind),
        "for_rank": look.losses[rank].waited_for(str(kind)),
    }


def _wrong_stream(look: _Look, rank: int) -> Figures:
    losses = look.losses[rank]
    stream, communication, compute = losses.shared_stream()
    mostly = next(iter(compute))
    return {
        "part_ns": next(use.communication_ns for use in losses.window.streams if use.stream == stream),
        "stream": stream.number,
        "comm_kernels": communication,
        "compute_kernels": sum(compute.values()),
        "mostly": mostly,
    }


def _communication(look: _Look, rank: int) -> Figures:
    losses = look.losses[rank]
    (stage, kernel), ns = next(iter(losses.longest_communication().items()))
    named: Figures = {"stage": stage} if stage != NO_STAGE else {}
    exposed = sum(look.rows(look.walls.exposed, rank).values())
    return {"part_ns": exposed, **named, "kernel": kernel, "kernel_ns": ns, "comm_ns": losses.budget.comm_ns}


def _syncs(look: _Look, rank: int) -> Figures:
    losses = look.losses[rank]
    (call, ns), *others = losses.budget.in_syncs.items()
    calls = {str(labels[-1]): value for labels, value in sync_calls(losses.window)}
    counted: Figures = {"calls": calls[call]} if call in calls else {}
    return {"part_ns": ns, "more_ns": sum(each for _, each in others), "call": call, **counted}


def _before(losses: Losses, part: BudgetPart) -> Figures:
    name, ns = losses.late_before(part)
    return {"before": name, "before_ns": ns}


def _launches(look: _Look, rank: int) -> Figures:
    losses = look.losses[rank]
    starved_ns = losses.budget.launch_starved_ns - (losses.budget.between_steps_ns or 0)
    found: Figures = {"part_ns": starved_ns, **_before(losses, BudgetPart.STARVED)}
    if losses.before_tiny_ns < WORTH[FindingKind.LAUNCHES] * losses.window.length_ns:
        return found
    tiny, kernels = losses.tiny_kernels()
    return {**found, "tiny": tiny, "kernels": kernels}


def _between(look: _Look, rank: int) -> Figures:
    losses = look.losses[rank]
    found: Figures = {"part_ns": losses.budget.between_steps_ns or 0, "window_ns": losses.budget.window_ns}
    host = host_between(losses.window)
    return {**found, "host": host} if host else found


def _copies(look: _Look, rank: int) -> Figures:
    losses = look.losses[rank]
    budget, host = losses.budget, losses.host_in_copies_ns
    blocked = {kind: ns for kind in ("copy", "memset") if (ns := budget.blocking_ns[kind])}
    found: dict[str, Value | str] = {"part_ns": budget.launch_starved_ns - (budget.between_steps_ns or 0)}
    if blocked:
        most = max(blocked, key=lambda kind: blocked[kind])
        found = {"part_ns": blocked[most], "producer": most, "more_ns": sum(blocked.values()) - blocked[most] + host}
        longest = next(each for each in budget.producers() if each.kind == most)
        found |= {"before": longest.waiting, "before_ns": longest.ns, "gaps": longest.gaps}
    if (copies := losses.longest_copies()) is not None:
        found |= {"between": copies[0], "copies": copies[1]}
    return {**found, "blocked_ns": sum(blocked.values()), "host_ns": host, "pageable": losses.pageable}


def _elsewhere(look: _Look, rank: int) -> Figures:
    budget = look.losses[rank].budget
    longest = next(each for each in budget.producers() if each.kind == "other_device")
    found: Figures = {"kernel": longest.name, "before": longest.waiting, "before_ns": longest.ns, "gaps": longest.gaps}
    return {"part_ns": budget.blocking_ns["other_device"], **found}


def _stalled(look: _Look, rank: int) -> Figures:
    losses = look.losses[rank]
    return {"part_ns": losses.stalled_ns, **_before(losses, BudgetPart.STALLED)}


_FIGURES: Mapping[FindingKind, _Of] = {
    FindingKind.STRAGGLER: _straggler,
    FindingKind.WRONG_STREAM: _wrong_stream,
    FindingKind.COMMUNICATION: _communication,
    FindingKind.SYNCS: _syncs,
    FindingKind.LAUNCHES: _launches,
    FindingKind.BETWEEN: _between,
    FindingKind.COPIES: _copies,
    FindingKind.OTHER_DEVICE: _elsewhere,
    FindingKind.STALLED: _stalled,
}
"""Of the kinds that claim time without compute, what is told of a rank."""
