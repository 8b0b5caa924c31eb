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
from functools import cached_property

from pytest_nsys.analysis.activity import sync_calls
from pytest_nsys.analysis.bounds import Bounds
from pytest_nsys.analysis.budget import window_of_several
from pytest_nsys.analysis.budget_facts import BudgetPart
from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.doubts import uneven_anchors
from pytest_nsys.analysis.gpu_state import MEGA, sm_clock_mhz
from pytest_nsys.analysis.losses import FindingKind, Losses
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.quality import Fact, Ground, doubts
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import Run
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
    FindingKind.TINY_KERNELS: ("kernels", ""),
    FindingKind.LAUNCHES: ("budget", ""),
    FindingKind.COPIES: ("budget", ""),
    FindingKind.OTHER_DEVICE: ("budget", ""),
    FindingKind.STALLED: ("budget", ""),
    FindingKind.CLOCKS: ("", "rows sm_clock_mhz"),
    FindingKind.UNEVEN: ("", "rows compute_ns"),
    FindingKind.PROFILER: ("", "check"),
    FindingKind.DOUBT: ("", "check"),
}
"""What shows more: a view, or a command."""

OF_THE_HOST = {FindingKind.SYNCS, FindingKind.TINY_KERNELS, FindingKind.LAUNCHES}
"""What a host that is slowed by the profiler makes longer than it is."""

Figures = Mapping[str, Value | str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at. ``win_ns`` is the most that fixing it could win of the window of ``rank``, which is
    ``window_ns`` long; None where it wins no time but casts doubt. ``ranks`` are all on which it is worth telling, of
    ``looked_at`` in all.

    ``figures`` are its own, times in ns and shares as fractions; ``doubt`` is set where that is what it is of.
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
    look = _Look(captures.runs[0], spec, ranks)
    wins = sorted(look.wins(), key=lambda each: (-Fraction(each.share or 0), each.kind))
    doubtful = sorted(look.doubts({each.kind for each in wins}), key=lambda each: each.kind is FindingKind.DOUBT)
    kept = max(most - len(doubtful), most - DOUBTS_KEPT)
    found = [*wins[:kept], *doubtful]
    return tuple(found[:most])


class _Look:
    """One look at all ranks of a run, by which some are held: of these it tells."""

    def __init__(self, run: Run, spec: WindowSpec, ranks: Container[int] | None = None) -> None:
        self.run, self.group = run, run.measured(spec)
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
            for found in self._worst(kind, each, self._of_losses(figures)):
                straggler = found.figures.get("for_rank", straggler)
                yield found
        yield from self._of_compute(straggler)

    def _of_losses(self, figures: Callable[[Losses], Figures]) -> Callable[[int], Figures]:
        return lambda rank: figures(self.losses[rank])

    def _worst(
        self, kind: FindingKind, each: Mapping[int, int], figures: Callable[[int], Figures]
    ) -> Iterator[Finding]:
        """A finding of the ranks on which a win is worth telling, of that where it is the largest share of a window."""
        shares = {rank: Fraction(each[rank], self.windows[rank].length_ns or 1) for rank in self.told if rank in each}
        some = [rank for rank, share in shares.items() if share >= WORTH[kind]]
        if some:
            worst = max(some, key=lambda rank: (shares[rank], -rank))
            length_ns = self.windows[worst].length_ns
            yield Finding(kind, worst, tuple(sorted(some)), len(self.told), length_ns, each[worst], figures(worst))

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
            lambda rank: {"compute_ns": busy[rank], "mean_ns": usual},
        )

    def doubts(self, wins: Collection[FindingKind]) -> Iterator[Finding]:
        """What a gate would call an error of the trace, as far as it is known without a gate file; and a profiler that
        slows the host, where there are ``wins`` that the host could bring.
        """
        metric = METRICS["exposed_ns" if self.run.convention.stage is not None else "compute_absent_ns"]
        facts = [fact for fact, _ in doubts(Ground(self.run, self.group, metric, self.run.workload.world), Bounds())]
        for number, why in ((number, why) for number, why in self.without.items() if number in self.told):
            facts.append(Fact("budget", "count", None, f"what rank {number} waits for is unknown", why, ""))
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


def _straggler(losses: Losses) -> Figures:
    (rank, kind), ns = next(iter(losses.longest_waits().items()))
    return {"for_rank": rank, "collective": kind, "collective_ns": ns}


def _wrong_stream(losses: Losses) -> Figures:
    stream, communication, compute = losses.shared_stream()
    mostly = next(iter(compute))
    return {
        "stream": stream.number,
        "comm_kernels": communication,
        "compute_kernels": sum(compute.values()),
        "mostly": mostly,
    }


def _communication(losses: Losses) -> Figures:
    (stage, kernel), ns = next(iter(losses.longest_communication().items()))
    named: Figures = {"stage": stage} if stage != NO_STAGE else {}
    return {**named, "kernel": kernel, "kernel_ns": ns, "comm_ns": losses.budget.comm_ns}


def _syncs(losses: Losses) -> Figures:
    call, ns = next(iter(losses.budget.in_syncs.items()))
    calls = {str(labels[-1]): value for labels, value in sync_calls(losses.window)}
    counted: Figures = {"calls": calls[call]} if call in calls else {}
    return {"call": call, "call_ns": ns, **counted}


def _tiny(losses: Losses) -> Figures:
    tiny, kernels = losses.tiny_kernels()
    return {"tiny": tiny, "kernels": kernels}


def _before(part: BudgetPart) -> Callable[[Losses], Figures]:
    def figures(losses: Losses) -> Figures:
        found = losses.before(part)
        name, (ns, gaps) = next(iter(found.items()))
        return {"before": name, "before_ns": ns, "before_gaps": gaps, "gaps": sum(count for _, count in found.values())}

    return figures


def _copies(losses: Losses) -> Figures:
    found: dict[str, Value | str] = {"blocked_ns": losses.blocked_by_copies_ns, "host_ns": losses.host_in_copies_ns}
    if blocked := [each for each in losses.budget.producers() if each.kind in ("copy", "memset")]:
        longest = blocked[0]
        found |= {"producer": longest.kind, "before": longest.waiting, "before_ns": longest.ns, "gaps": longest.gaps}
    if (copies := losses.longest_copies()) is not None:
        found |= {"between": copies[0], "copies": copies[1]}
    return {**found, "pageable": losses.pageable}


def _elsewhere(losses: Losses) -> Figures:
    longest = next(each for each in losses.budget.producers() if each.kind == "other_device")
    return {"kernel": longest.name, "before": longest.waiting, "before_ns": longest.ns, "gaps": longest.gaps}


_FIGURES: Mapping[FindingKind, Callable[[Losses], Figures]] = {
    FindingKind.STRAGGLER: _straggler,
    FindingKind.WRONG_STREAM: _wrong_stream,
    FindingKind.COMMUNICATION: _communication,
    FindingKind.SYNCS: _syncs,
    FindingKind.TINY_KERNELS: _tiny,
    FindingKind.LAUNCHES: _before(BudgetPart.STARVED),
    FindingKind.COPIES: _copies,
    FindingKind.OTHER_DEVICE: _elsewhere,
    FindingKind.STALLED: _before(BudgetPart.STALLED),
}
"""Of the kinds that claim time without compute, what else is told of the rank."""
