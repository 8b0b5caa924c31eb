"""Was all the work recorded that the judged steps launched? The calls say what should be there, the rows what is.

In a step counted by its launches, calls after the last recorded kernel are missing work too: the recording ended inside
the step. Elsewhere, calls outside of the recording are a fact of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.facts.fact import MeasuredFact
from pytest_nsys.analysis.facts.quality_context import QualityContext
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import WindowGroup
from pytest_nsys.core.columns import find_min_max, find_zeros, mark_equal, take
from pytest_nsys.core.intervals import find_hull
from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.model import NO_LAUNCH, Interval, LaunchKind, LaunchRecord, ProcessId, Value
from pytest_nsys.core.text_format import format_ranks, sanitize_line
from pytest_nsys.core.units import format_decimal

# As a share of the calls of a whole run; if the profiler ran throughout, fewer lie outside.
MAX_SHARE_OUTSIDE = Fraction(1, 100)

# The span of a process without a judged window.
NO_CALL_SPAN: Interval = (0, -1)

CALL_NOUNS: Mapping[LaunchKind, str] = {
    LaunchKind.KERNEL: "kernel launches",
    LaunchKind.COPY: "copies",
    LaunchKind.GRAPH: "graph replays",
}
MISSING_WORK_TEXTS: Mapping[LaunchKind, str] = {
    LaunchKind.KERNEL: "no kernel on record",
    LaunchKind.COPY: "no copy on record",
    LaunchKind.GRAPH: "not all kernels on record",
}
LOST_WORK_REASON = "what the profiler lost is missing in every figure"
LOST_WORK_REMEDY = "profile again with fewer steps or a larger buffer"


class CallsOnRecord(NamedTuple):
    """Counts one kind of call of a process, and the work on record for it."""

    process: ProcessId
    record: LaunchRecord
    cut_off_calls: int  # after the recording had ended, inside a judged step

    @property
    def calls_without_work(self) -> Value:
        """The number of calls without work on record; ``cut_off_calls`` of them came after the recording had ended."""
        return self.record.unrecorded + self.cut_off_calls

    @property
    def call_count(self) -> int:
        return self.record.calls + self.cut_off_calls

    @property
    def share(self) -> Fraction:
        """The share of the work that is missing."""
        return Fraction(self.calls_without_work) / (self.call_count or 1)


@memoize_method
def read_judged_launches(group: WindowGroup) -> Sequence[Mapping[int, Sequence[LaunchRecord]] | None]:
    """Read for each trace the launch records in the judged windows of its processes; of processes without a kernel,
    all.
    """
    traces_and_spans = zip(group.run.traces, find_call_spans(group), group.trace_contexts, strict=True)
    return [trace.launch_records(spans, context.kernels) for trace, spans, context in traces_and_spans]


def find_call_spans(group: WindowGroup) -> Sequence[Mapping[int, Interval | None]]:
    """Find for each trace when the work of each judged process was called; None means the whole run."""
    spans_by_trace = []
    for number in range(len(group.run.traces)):
        judged_windows: defaultdict[int, list[RankWindow]] = defaultdict(list)
        for rank in group.run.list_trace_ranks(number):
            judged_windows[rank.process.global_pid] += group.windows_by_rank.get(rank.number, ())
        spans_by_trace.append(
            {
                pid: NO_CALL_SPAN
                if not windows
                else None
                if group.spec.is_whole_run
                else find_hull(map(_find_call_span, windows))
                for pid, windows in judged_windows.items()
            }
        )
    return spans_by_trace


def _find_call_span(window: RankWindow) -> Interval:
    """Find when the work of a window was called: during the window and, if kernels count by their time, also before
    it.
    """
    low, high = window.window.start_ns, window.window.end_ns
    if window.spec.is_by_launch:
        return low, max(low, high - 1)  # the launch at the end edge belongs to the next step
    launch_times = take(window.launch_ns, find_zeros(mark_equal(window.launch_ns, NO_LAUNCH)))
    return (min(low, find_min_max(launch_times)[0]) if launch_times else low), high


def _list_calls_on_record(group: WindowGroup) -> Iterator[CallsOnRecord]:
    """Yield what is on record of each kind of call of the judged processes."""
    judged_processes = {rank.process for rank in group.run.ranks}
    is_by_step = group.spec.is_by_launch and not group.spec.is_whole_run
    for number, records_by_process in enumerate(read_judged_launches(group)):
        for pid, records in (records_by_process or {}).items():
            if (process := ProcessId(number, pid)) in judged_processes:
                yield from (
                    CallsOnRecord(process, record, record.outside_calls if is_by_step else 0) for record in records
                )


def measure_launches_without_work(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the largest share of the calls of one kind of a process that have no work on record."""
    group = context.launch_group
    if lossy_calls := [calls for calls in _list_calls_on_record(group) if calls.calls_without_work]:
        worst = max(lossy_calls, key=lambda calls: (calls.share, calls.call_count))
        words = _describe_lost_work(group, worst, len({calls.process for calls in lossy_calls}) - 1)
        yield MeasuredFact(worst.share, words, LOST_WORK_REASON, LOST_WORK_REMEDY)


def _describe_lost_work(group: WindowGroup, worst: CallsOnRecord, other_count: int) -> str:
    """Describe the calls of one kind that lost most of their work."""
    record = worst.record
    verb = "has" if worst.calls_without_work == 1 else "have"
    lost_calls = Fraction(worst.calls_without_work)
    number = format_decimal(lost_calls, 0 if lost_calls.denominator == 1 else 2)
    subject = (
        f"{number} of {worst.call_count} {CALL_NOUNS[record.kind]} of "
        f"{_format_ranks_of_process(group, worst.process)} {_format_judged_part(group)}"
    )
    first_call = record.first_unrecorded
    place = (
        f" ({sanitize_line(first_call.name, 80)} at {format_decimal(Fraction(first_call.start_ns, 10**9), 6)} s)"
        if first_call
        else ""
    )
    other_text = f", and {other_count} more process{'es' if other_count > 1 else ''} lost some" if other_count else ""
    return f"{subject} {verb} {MISSING_WORK_TEXTS[record.kind]}{place}{other_text}"


def _format_ranks_of_process(group: WindowGroup, process: ProcessId) -> str:
    return format_ranks([rank.number for rank in group.run.ranks if rank.process == process])


def _format_judged_part(group: WindowGroup) -> str:
    return "in the run" if group.spec.is_whole_run else "in the judged steps"


def measure_processes_without_kernels(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the number of processes that launch kernels but have none on record."""
    silent_processes = []
    for number, (trace, records) in enumerate(
        zip(context.run.traces, read_judged_launches(context.launch_group), strict=True)
    ):
        launches_by_process = {
            pid: sum(
                record.calls for record in process_records if record.kind is not LaunchKind.COPY and record.unrecorded
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
    yield MeasuredFact(
        len(silent_processes), f"{subject} none on record", reason, "profile all ranks, and let each end by itself"
    )


def measure_launches_outside(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the share of calls that launch work before the first recorded kernel or after the last.

    It does not apply to windows that are steps of launches.
    """
    group = context.launch_group
    recorded_calls = [*_list_calls_on_record(group)]
    if outside_count := sum(calls.record.outside_calls - calls.cut_off_calls for calls in recorded_calls):
        call_count = outside_count + sum(calls.call_count for calls in recorded_calls)
        words = (
            f"{outside_count} of {call_count} calls that launch work {_format_judged_part(group)} came before or "
            "after all "
            "recorded "
            "kernels"
        )
        is_doubtful = not group.spec.is_whole_run or Fraction(outside_count, call_count) > MAX_SHARE_OUTSIDE
        yield MeasuredFact(
            Fraction(outside_count, call_count), words, "the profiler did not record all of it", is_doubtful=is_doubtful
        )
