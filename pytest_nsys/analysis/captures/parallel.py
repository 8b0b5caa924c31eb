"""How are many traces read before they are asked, one at a time, wherever an executor does it?

A reader opens one trace, makes every measurement that was announced, and sends what it asked the trace for. The
measurements are then made once more here, of all traces together, and find their answers at hand. That they are made
twice costs little: nearly all time goes into reading.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.registry import MetricRequest, find_metric, get_metric
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import NothingMeasured, NsysError, TraceError
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.workload import Workload
from pytest_nsys.tools.executors import BAR_INTERVAL_S, SERIAL, ProgressBar, open_executor
from pytest_nsys.traces.recorded_trace import RecordedTrace, TraceRecording
from pytest_nsys.traces.trace_files import open_trace

MIN_READ_AHEAD_TRACES = 16  # then they need not all be open at once
"""From how many traces on they are read ahead one after another, and closed, where no executor is named."""

DROPPED_JOB_TEXT = "the executor dropped it: its scheduler or all of its workers are gone"


QueryTrace = Callable[[Trace], None]
"""Asks a trace whatever will be asked of it, and raises nothing; it is sent from process to process."""


class TraceJob(NamedTuple):
    """Describes one trace to read, and what asks it."""

    path: Path
    query: QueryTrace


class ReadResult(NamedTuple):
    """Holds what became of a job: the recording, or why the trace cannot be opened."""

    recording: TraceRecording | None
    error: NsysError | None = None


def read_trace_job(job: TraceJob) -> ReadResult:
    """Open the trace of a job and ask it, in any process."""
    trace = RecordedTrace(job.path, open_trace)
    with contextlib.closing(trace):
        try:
            _ = trace.format
        except NsysError as error:
            return ReadResult(None, _explain_missing_file(job.path, error))
        job.query(cast(Trace, trace))
        return ReadResult(trace.make_recording())


def query_all(convention: Convention, workload: Workload, requests: Sequence[MetricRequest], trace: Trace) -> None:
    """Ask the trace whatever measurements ask."""
    captures = Captures([Run([trace], convention, workload)])
    for question in _list_queries(captures, requests):
        with contextlib.suppress(Exception):  # goes wrong once more where the run is judged, and is told there
            question()


def _explain_missing_file(path: Path, error: NsysError) -> NsysError:
    """Return the error of a file; one that is missing here was seen by the sender, whose disks are not these."""
    if path.exists():
        return error
    from pytest_nsys.tools.workers import name_this_worker

    return TraceError(f"{path}: {name_this_worker()} does not find it: put traces on a disk that all readers share")


def _list_queries(captures: Captures, requests: Sequence[MetricRequest]) -> Iterator[Callable[[], object]]:
    """Yield what a gate or a command asks of a run, in the order in which it does it."""
    yield partial(captures.build_key, {})
    yield lambda: captures.facts
    for request in requests:
        metric = find_metric(request.metric or "")
        yield partial(captures.runs[0].load_windows, request.spec)
        if metric is not None:
            yield partial(_measure_request, captures, request)
        yield partial(captures.list_notes, request.spec, *filter(None, [metric]), bounds=request.bounds)


def _measure_request(captures: Captures, request: MetricRequest) -> None:
    """Measure the rows of all ranks; where one of them has an empty window, also those of each other rank by itself."""
    try:
        captures.measure(request)
    except NothingMeasured:
        for rank in captures.runs[0].ranks:
            with contextlib.suppress(NothingMeasured):
                captures.measure_rows(get_metric(request.metric or ""), request.spec, frozenset({rank.number}))


TraceOpener = Callable[[Path], Trace]


@dataclass(frozen=True)
class ReadAhead:
    """Reads the traces of a run ahead by an executor."""

    # A name as for :func:`~pytest_nsys.tools.executors.open_executor`; None: in this process.
    executor: str | None = None
    shows_progress: bool = False  # whether a terminal shows how far reading is

    def __call__(
        self, paths: Sequence[Path], convention: Convention, workload: Workload, requests: Sequence[MetricRequest]
    ) -> TraceOpener:
        """Return what opens the traces, with what was read of them ahead where that was worth while. Raises
        UsageMistake.
        """
        if not requests or not (self.uses_processes or len(paths) >= MIN_READ_AHEAD_TRACES):
            return open_trace
        return self.make_opener(paths, partial(query_all, convention, workload, tuple(dict.fromkeys(requests))))

    @property
    def uses_processes(self) -> bool:
        """Whether other processes read the traces."""
        return self.executor not in (None, SERIAL)

    def make_opener(self, paths: Sequence[Path], query: QueryTrace) -> TraceOpener:
        """Ask the traces by the executor, where there are several. Return what opens them. Raises UsageMistake."""
        if len(paths) < 2:
            return open_trace
        read_ahead = self._read_jobs([TraceJob(path, query) for path in paths])
        outcomes = dict(zip(paths, read_ahead, strict=False))  # one that fails is the last

        def open_read(path: Path) -> Trace:
            """Return the trace with its answers, or raise the error of reading it ahead."""
            outcome = outcomes.get(path)
            if outcome is None:
                return open_trace(path)
            if outcome.error is not None:
                raise outcome.error
            return cast(Trace, RecordedTrace(path, open_trace, outcome.recording))

        return open_read

    def _read_jobs(self, jobs: Sequence[TraceJob]) -> list[ReadResult]:
        """Return the outcomes in the order of the jobs, up to the first that failed."""
        # Where a process died nobody knows over which trace, so the rest is read by a single one: the first that is
        # lost then is the trace that it died over.
        progress = ProgressBar("reading traces", len(jobs), is_shown=self.shows_progress)
        try:
            with open_executor(self.executor or SERIAL) as executor:
                outcomes = [*_collect_results(jobs, _run_jobs(executor, jobs, progress))]
            remaining_jobs = jobs[len(outcomes) :]
            if not remaining_jobs or (outcomes and outcomes[-1].error is not None):
                return outcomes
            from pytest_nsys.tools.workers import open_pool  # loaded already where it is needed

            with open_pool(1) as single_process:
                return [
                    *outcomes,
                    *_collect_results(
                        remaining_jobs,
                        _run_jobs(single_process, remaining_jobs, progress),
                        single_process.describe_death,
                    ),
                ]
        finally:
            progress.wipe()


class OpenOnce:
    """Opens each trace once for all conventions that it is read under."""

    def __init__(self, read_ahead: ReadAhead, query: QueryTrace) -> None:
        self._read_ahead, self._query = read_ahead, query
        self._open_traces: dict[Path, Trace] = {}

    def __call__(self, paths: Sequence[Path], *_: object) -> TraceOpener:
        """Return what opens the traces, or returns those that are open."""
        new_paths = [path for path in paths if path not in self._open_traces]
        # Each convention asks little that none before it asked. Reading ahead pays only in other processes: here it
        # would cost more than it saves.
        opener = self._read_ahead.make_opener(new_paths, self._query) if self._read_ahead.uses_processes else open_trace

        def open_cached(path: Path) -> Trace:
            if path not in self._open_traces:
                trace = RecordedTrace(path, open_trace) if opener is open_trace else opener(path)
                self._open_traces[path] = cast(Trace, trace)
            return self._open_traces[path]

        return open_cached


def _run_jobs(executor: Executor, jobs: Sequence[TraceJob], progress: ProgressBar) -> list[Future[ReadResult]]:
    """Run the jobs and return a future of each, in their order; those after one that failed may be cancelled, or not
    begun.
    """
    futures: list[Future[ReadResult]] = []
    for job in jobs:
        futures.append(executor.submit(read_trace_job, job))
        if futures[-1].done():  # where a job is done as it is submitted
            progress.show(len(futures))
            if _has_failed(futures[-1]):
                return futures
    pending_futures = set(futures)
    while pending_futures:
        wait(
            pending_futures, timeout=BAR_INTERVAL_S
        )  # passes over one that is cancelled and whose executor has not noticed yet
        done_futures = {future for future in pending_futures if future.done()}
        pending_futures -= done_futures
        progress.show(len(futures) - len(pending_futures))
        if done_futures and any(map(_has_failed, done_futures)):
            failed_index = next(i for i, future in enumerate(futures) if future.done() and _has_failed(future))
            for later_future in futures[failed_index + 1 :]:
                later_future.cancel()
    return futures


def _has_failed(future: Future[ReadResult]) -> bool:
    """Whether a future that is done brought no recording."""
    return future.cancelled() or future.exception() is not None or future.result().error is not None


def _collect_results(
    jobs: Sequence[TraceJob], futures: Sequence[Future[ReadResult]], describe_death: Callable[[], str] | None = None
) -> Iterator[ReadResult]:
    """Yield what the futures brought, up to the first that failed.

    Stops before a job that was lost because a process died, except where a single process reads: then it died over that
    job.
    """
    from pytest_nsys.tools.workers import explain_lost_worker  # loaded already where it is needed

    for job, future in zip(jobs, futures, strict=False):
        try:
            outcome = future.result()
        except BrokenExecutor:
            if describe_death is None:
                return
            outcome = _make_lost_result(job, f"the process that read it died ({describe_death()})")
        except CancelledError:
            outcome = _make_lost_result(job, DROPPED_JOB_TEXT)
        except Exception as error:
            outcome = _make_lost_result(job, explain_lost_worker(error))
        yield outcome
        if outcome.error is not None:
            return


def _make_lost_result(job: TraceJob, reason: str) -> ReadResult:
    return ReadResult(None, TraceError(f"{job.path}: cannot be read: {reason}"))
