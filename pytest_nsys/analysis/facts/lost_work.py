"""Was all recorded that the judged steps launched? The calls say what should be there, the rows what is.

Of a step that is counted by its launches, calls after the last recorded kernel are missing too: the recording ended
inside it. Elsewhere calls outside of the recording are told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.facts.fact import Measured
from pytest_nsys.analysis.facts.ground import Ground
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import WindowGroup
from pytest_nsys.core.columns import bounds, equal, take, where_not
from pytest_nsys.core.intervals import hull
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import NO_LAUNCH, Interval, LaunchKind, LaunchRecord, ProcessId, Value
from pytest_nsys.core.units import decimal
from pytest_nsys.core.words import printable, ranks_words

MUCH_OUTSIDE = Fraction(1, 100)
"""Of the calls of a whole run: where the profiler ran with the program, less of them lies outside."""

NO_CALL: Interval = (0, -1)
"""The span of a process of which no window is judged."""

MANY: Mapping[LaunchKind, str] = {
    LaunchKind.KERNEL: "kernel launches",
    LaunchKind.COPY: "copies",
    LaunchKind.GRAPH: "graph replays",
}
WORK: Mapping[LaunchKind, str] = {
    LaunchKind.KERNEL: "no kernel on record",
    LaunchKind.COPY: "no copy on record",
    LaunchKind.GRAPH: "not all kernels on record",
}
WHY = "what the profiler lost is missing in every figure"
REMEDY = "profile again with fewer steps or a larger buffer"


class Told(NamedTuple):
    """What is on record of one kind of call of a process."""

    process: ProcessId
    record: LaunchRecord
    cut_off: int

    @property
    def without(self) -> Value:
        """How many calls have no work on record; ``cut_off`` of them came after the recording had ended."""
        return self.record.without + self.cut_off

    @property
    def calls(self) -> int:
        return self.record.calls + self.cut_off

    @property
    def share(self) -> Fraction:
        """How much of the work is missing."""
        return Fraction(self.without) / (self.calls or 1)


@kept
def launch_records(group: WindowGroup) -> Sequence[Mapping[int, Sequence[LaunchRecord]] | None]:
    """By trace what it answers for the judged windows of its processes; of processes without a kernel, for all."""
    each = zip(group.run.traces, called_spans(group), group.around, strict=True)
    return [trace.launch_records(spans, around.kernels) for trace, spans, around in each]


def called_spans(group: WindowGroup) -> Sequence[Mapping[int, Interval | None]]:
    """By trace when the work of each judged process was called; None of a whole run."""
    found = []
    for number in range(len(group.run.traces)):
        judged: defaultdict[int, list[RankWindow]] = defaultdict(list)
        for rank in group.run.ranks_of(number):
            judged[rank.process.global_pid] += group.ranks.get(rank.number, ())
        found.append(
            {
                pid: NO_CALL if not windows else None if group.spec.whole_run else hull(map(_called_in, windows))
                for pid, windows in judged.items()
            }
        )
    return found


def _called_in(window: RankWindow) -> Interval:
    """When the work of a window was called: in it, and where kernels count that run in it, before it."""
    low, high = window.window.start_ns, window.window.end_ns
    if window.spec.by_launch:
        return low, max(low, high - 1)  # what begins the next step was not launched in this one
    known = take(window.launch_ns, where_not(equal(window.launch_ns, NO_LAUNCH)))
    return (min(low, bounds(known)[0]) if known else low), high


def _told(group: WindowGroup) -> Iterator[Told]:
    """Yield what is on record of each kind of call of the judged processes."""
    known = {rank.process for rank in group.run.ranks}
    in_steps = group.spec.by_launch and not group.spec.whole_run
    for number, found in enumerate(launch_records(group)):
        for pid, records in (found or {}).items():
            if (process := ProcessId(number, pid)) in known:
                yield from (Told(process, record, record.outside if in_steps else 0) for record in records)


def measure_launches_without_work(ground: Ground) -> Iterator[Measured]:
    """Yield the largest share of the calls of one kind of a process that have no work on record."""
    group = ground.launching
    if each := [told for told in _told(group) if told.without]:
        worst = max(each, key=lambda told: (told.share, told.calls))
        words = _words(group, worst, len({told.process for told in each}) - 1)
        yield Measured(worst.share, words, WHY, REMEDY)


def _words(group: WindowGroup, told: Told, others: int) -> str:
    record = told.record
    has = "has" if told.without == 1 else "have"
    lost = Fraction(told.without)
    number = decimal(lost, 0 if lost.denominator == 1 else 2)
    which = f"{number} of {told.calls} {MANY[record.kind]} of {_whose(group, told.process)} {_where(group)}"
    first = record.first
    at = f" ({printable(first.name, 80)} at {decimal(Fraction(first.start_ns, 10**9), 6)} s)" if first else ""
    beside = f", and {others} more process{'es' if others > 1 else ''} lost some" if others else ""
    return f"{which} {has} {WORK[record.kind]}{at}{beside}"


def _whose(group: WindowGroup, process: ProcessId) -> str:
    return ranks_words([rank.number for rank in group.run.ranks if rank.process == process])


def _where(group: WindowGroup) -> str:
    return "in the run" if group.spec.whole_run else "in the judged steps"


def measure_processes_without_kernels(ground: Ground) -> Iterator[Measured]:
    """Yield how many processes launch kernels and have none on record."""
    found = []
    for number, (trace, records) in enumerate(zip(ground.run.traces, launch_records(ground.launching), strict=True)):
        launching = {
            pid: sum(record.calls for record in own if record.kind is not LaunchKind.COPY and record.without)
            for pid, own in (records or {}).items()
        }
        ran = {lane.global_pid for lane in trace.lanes()} if any(launching.values()) else set()
        for pid, launches in launching.items():
            if launches and pid not in ran:
                found.append((ProcessId(number, pid).pid, launches, trace.path))
    if not found:
        return
    pids = ", ".join(str(pid) for pid, _, _ in found[:8]) + (" …" if len(found) > 8 else "")
    one = len(found) == 1
    who = f"process {pids} launches kernels and has" if one else f"processes {pids} launch kernels and have"
    _, launched, path = found[0]
    why = f"{path} holds {launched} of its launches, so a rank is missing" if one else "their ranks are missing"
    yield Measured(len(found), f"{who} none on record", why, "profile all ranks, and let each end by itself")


def measure_launches_outside(ground: Ground) -> Iterator[Measured]:
    """Yield the share of calls that launch work before the first recorded kernel or after the last: of windows that are
    no steps of launches.
    """
    group = ground.launching
    each = [*_told(group)]
    if outside := sum(told.record.outside - told.cut_off for told in each):
        calls = outside + sum(told.calls for told in each)
        words = f"{outside} of {calls} calls that launch work {_where(group)} came before or after all recorded kernels"
        doubtful = not group.spec.whole_run or Fraction(outside, calls) > MUCH_OUTSIDE
        yield Measured(Fraction(outside, calls), words, "the profiler did not record all of it", doubtful=doubtful)
