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

# A share of the calls of a whole run: where the profiler ran with the program, less of them lies outside.
MUCH_OUTSIDE = Fraction(1, 100)

# The span of a process of which no window is judged.
NO_CALL: Interval = (0, -1)

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
    """Holds what is on record of one kind of call of a process."""

    process: ProcessId
    record: LaunchRecord
    cut_off: int  # after the recording had ended, inside a judged step

    @property
    def without(self) -> Value:
        """The number of calls that have no work on record; ``cut_off_calls`` of them came after the recording had
        ended.
        """
        return self.record.without + self.cut_off

    @property
    def calls(self) -> int:
        return self.record.calls + self.cut_off

    @property
    def share(self) -> Fraction:
        """The share of the work that is missing."""
        return Fraction(self.without) / (self.calls or 1)


@kept
def launch_records(group: WindowGroup) -> Sequence[Mapping[int, Sequence[LaunchRecord]] | None]:
    """Read for each trace the launch records in the judged windows of its processes; of processes without a kernel,
    all.
    """
    traces_and_spans = zip(group.run.traces, called_spans(group), group.around, strict=True)
    return [trace.launch_records(spans, context.kernels) for trace, spans, context in traces_and_spans]


def called_spans(group: WindowGroup) -> Sequence[Mapping[int, Interval | None]]:
    """Find for each trace when the work of each judged process was called; None of a whole run."""
    spans_by_trace = []
    for number in range(len(group.run.traces)):
        judged_windows: defaultdict[int, list[RankWindow]] = defaultdict(list)
        for rank in group.run.ranks_of(number):
            judged_windows[rank.process.global_pid] += group.ranks.get(rank.number, ())
        spans_by_trace.append(
            {
                pid: NO_CALL if not windows else None if group.spec.whole_run else hull(map(_called_in, windows))
                for pid, windows in judged_windows.items()
            }
        )
    return spans_by_trace


def _called_in(window: RankWindow) -> Interval:
    """Find when the work of a window was called: in it, and where kernels count that run in it, before it."""
    low, high = window.window.start_ns, window.window.end_ns
    if window.spec.by_launch:
        return low, max(low, high - 1)  # what begins the next step was not launched in this one
    launch_times = take(window.launch_ns, where_not(equal(window.launch_ns, NO_LAUNCH)))
    return (min(low, bounds(launch_times)[0]) if launch_times else low), high


def _told(group: WindowGroup) -> Iterator[Told]:
    """Yield what is on record of each kind of call of the judged processes."""
    judged_processes = {rank.process for rank in group.run.ranks}
    is_by_step = group.spec.by_launch and not group.spec.whole_run
    for number, records_by_process in enumerate(launch_records(group)):
        for pid, records in (records_by_process or {}).items():
            if (process := ProcessId(number, pid)) in judged_processes:
                yield from (Told(process, record, record.outside if is_by_step else 0) for record in records)


def measure_launches_without_work(ground: Ground) -> Iterator[Measured]:
    """Yield the largest share of the calls of one kind of a process that have no work on record."""
    group = ground.launching
    if lossy_calls := [calls for calls in _told(group) if calls.without]:
        worst = max(lossy_calls, key=lambda calls: (calls.share, calls.calls))
        words = _words(group, worst, len({calls.process for calls in lossy_calls}) - 1)
        yield Measured(worst.share, words, WHY, REMEDY)


def _words(group: WindowGroup, told: Told, others: int) -> str:
    """Describe the calls of one kind that lost most of their work."""
    record = told.record
    verb = "has" if told.without == 1 else "have"
    lost_calls = Fraction(told.without)
    number = decimal(lost_calls, 0 if lost_calls.denominator == 1 else 2)
    subject = f"{number} of {told.calls} {MANY[record.kind]} of {_whose(group, told.process)} {_where(group)}"
    first_call = record.first
    place = (
        f" ({printable(first_call.name, 80)} at {decimal(Fraction(first_call.start_ns, 10**9), 6)} s)"
        if first_call
        else ""
    )
    other_text = f", and {others} more process{'es' if others > 1 else ''} lost some" if others else ""
    return f"{subject} {verb} {WORK[record.kind]}{place}{other_text}"


def _whose(group: WindowGroup, process: ProcessId) -> str:
    return ranks_words([rank.number for rank in group.run.ranks if rank.process == process])


def _where(group: WindowGroup) -> str:
    return "in the run" if group.spec.whole_run else "in the judged steps"


def measure_processes_without_kernels(ground: Ground) -> Iterator[Measured]:
    """Yield how many processes launch kernels and have none on record."""
    silent_processes = []
    for number, (trace, records) in enumerate(zip(ground.run.traces, launch_records(ground.launching), strict=True)):
        launches_by_process = {
            pid: sum(
                record.calls for record in process_records if record.kind is not LaunchKind.COPY and record.without
            )
            for pid, process_records in (records or {}).items()
        }
        ran_processes = {lane.global_pid for lane in trace.lanes()} if any(launches_by_process.values()) else set()
        for pid, launches in launches_by_process.items():
            if launches and pid not in ran_processes:
                silent_processes.append((ProcessId(number, pid).pid, launches, trace.path))
    if not silent_processes:
        return
    pids = ", ".join(str(pid) for pid, _, _ in silent_processes[:8]) + (" …" if len(silent_processes) > 8 else "")
    is_single = len(silent_processes) == 1
    subject = f"process {pids} launches kernels and has" if is_single else f"processes {pids} launch kernels and have"
    _, launch_count, path = silent_processes[0]
    reason = (
        f"{path} holds {launch_count} of its launches, so a rank is missing" if is_single else "their ranks are missing"
    )
    yield Measured(
        len(silent_processes), f"{subject} none on record", reason, "profile all ranks, and let each end by itself"
    )


def measure_launches_outside(ground: Ground) -> Iterator[Measured]:
    """Yield the share of calls that launch work before the first recorded kernel or after the last.

    They are of windows that are no steps of launches.
    """
    group = ground.launching
    recorded_calls = [*_told(group)]
    if outside_count := sum(calls.record.outside - calls.cut_off for calls in recorded_calls):
        call_count = outside_count + sum(calls.calls for calls in recorded_calls)
        words = (
            f"{outside_count} of {call_count} calls that launch work {_where(group)} came before or after all recorded "
            "kernels"
        )
        is_doubtful = not group.spec.whole_run or Fraction(outside_count, call_count) > MUCH_OUTSIDE
        yield Measured(
            Fraction(outside_count, call_count), words, "the profiler did not record all of it", doubtful=is_doubtful
        )
