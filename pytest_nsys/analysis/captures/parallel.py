"""How are many traces read ahead, one at a time, wherever an executor runs?

A worker opens one trace, makes every measurement that was announced, and sends back the trace's answers. The
measurements are then repeated in this process over all traces, and find these answers. Measuring twice costs little,
because nearly all time goes into reading.
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

MIN_READ_AHEAD_TRACES = 16  # so many need not all be open at once
"""The minimum number of traces that are read ahead and closed one after another if no executor is named."""

DROPPED_JOB_TEXT = "the executor dropped it: its scheduler or all of its workers are gone"


QueryTrace = Callable[[Trace], None]
"""Makes every query on a trace that will be made later, and raises nothing; it is pickled for other processes."""


class TraceJob(NamedTuple):
    """Describes one trace to read, and the queries to make."""

    path: Path
    query: QueryTrace


class ReadResult(NamedTuple):
    """Holds the result of a job: the recorded answers, or the error why the trace cannot be opened."""

    recording: TraceRecording | None
    error: NsysError | None = None


def read_trace_job(job: TraceJob) -> ReadResult:
    """Open the trace of a job and make its queries, in any process."""
    trace = RecordedTrace(job.path, open_trace)
    with contextlib.closing(trace):
        try:
            _ = trace.format
        except NsysError as error:
            return ReadResult(None, _explain_missing_file(job.path, error))
        job.query(cast(Trace, trace))
        return ReadResult(trace.make_recording())


def query_all(convention: Convention, workload: Workload, requests: Sequence[MetricRequest], trace: Trace) -> None:
    """Make all queries on a trace that the requested measurements make."""
    captures = Captures([Run([trace], convention, workload)])
    for question in _list_queries(captures, requests):
        with contextlib.suppress(Exception):  # fails again when the run is judged, and is reported there
            question()


def _explain_missing_file(path: Path, error: NsysError) -> NsysError:
    """Return the error of a file; if the file is missing here, say that the sending machine saw it."""
    if path.exists():
        return error
    from pytest_nsys.tools.workers import name_this_worker

    return TraceError(f"{path}: {name_this_worker()} does not find it: put traces on a disk that all readers share")


def _list_queries(captures: Captures, requests: Sequence[MetricRequest]) -> Iterator[Callable[[], object]]:
    """Yield the queries that a gate or a command makes on a run, in their order."""
    yield partial(captures.build_key, {})
    yield lambda: captures.facts
    for request in requests:
        metric = find_metric(request.metric or "")
        yield partial(captures.runs[0].load_windows, request.spec)
        if metric is not None:
            yield partial(_measure_request, captures, request)
        yield partial(captures.list_notes, request.spec, *filter(None, [metric]), bounds=request.bounds)


def _measure_request(captures: Captures, request: MetricRequest) -> None:
    """Measure the rows of all ranks; if one rank has an empty window, also those of each other rank by itself."""
    try:
        captures.measure(request)
    except NothingMeasured:
        for rank in captures.runs[0].ranks:
            with contextlib.suppress(NothingMeasured):
                captures.measure_rows(get_metric(request.metric or ""), request.spec, frozenset({rank.number}))


TraceOpener = Callable[[Path], Trace]


@dataclass(frozen=True)
class ReadAhead:
    """Reads the traces of a run ahead with an executor."""

    # A name as for :func:`~pytest_nsys.tools.executors.open_executor`; None: in this process.
    executor: str | None = None
    shows_progress: bool = False  # whether to show a progress bar

    def __call__(
        self, paths: Sequence[Path], convention: Convention, workload: Workload, requests: Sequence[MetricRequest]
    ) -> TraceOpener:
        """Return a function that opens the traces, read ahead if that pays. Raises UsageMistake."""
        if not requests or not (self.uses_processes or len(paths) >= MIN_READ_AHEAD_TRACES):
            return open_trace
        return self.make_opener(paths, partial(query_all, convention, workload, tuple(dict.fromkeys(requests))))

    @property
    def uses_processes(self) -> bool:
        """Whether other processes read the traces."""
        return self.executor not in (None, SERIAL)

    def make_opener(self, paths: Sequence[Path], query: QueryTrace) -> TraceOpener:
        """Make the queries with the executor if there are several traces. Return a function that opens them. Raises
        UsageMistake.
        """
        if len(paths) < 2:
            return open_trace
        read_ahead = self._read_jobs([TraceJob(path, query) for path in paths])
        outcomes = dict(zip(paths, read_ahead, strict=False))  # shorter if one fails

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
        # If a process dies, the trace at fault is unknown, so one process reads the rest: the first trace lost then
        # is the one at fault.
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
    """Opens each trace once, for all conventions under which it is read."""

    def __init__(self, read_ahead: ReadAhead, query: QueryTrace) -> None:
        self._read_ahead, self._query = read_ahead, query
        self._open_traces: dict[Path, Trace] = {}

    def __call__(self, paths: Sequence[Path], *_: object) -> TraceOpener:
        """Return a function that opens the traces, or returns those that are open."""
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
    """Run the jobs and return their futures in order; those after a failed one may be cancelled, or missing."""
    futures: list[Future[ReadResult]] = []
    for job in jobs:
        futures.append(executor.submit(read_trace_job, job))
        if futures[-1].done():  # for executors that run a job on submission
            progress.show(len(futures))
            if _has_failed(futures[-1]):
                return futures
    pending_futures = set(futures)
    while pending_futures:
        wait(pending_futures, timeout=BAR_INTERVAL_S)  # skips a cancelled future whose executor has not noticed yet
        done_futures = {future for future in pending_futures if future.done()}
        pending_futures -= done_futures
        progress.show(len(futures) - len(pending_futures))
        if done_futures and any(map(_has_failed, done_futures)):
            failed_index = next(i for i, future in enumerate(futures) if future.done() and _has_failed(future))
            for later_future in futures[failed_index + 1 :]:
                later_future.cancel()
    return futures


def _has_failed(future: Future[ReadResult]) -> bool:
    """Return whether a finished future has no recorded answers."""
    return future.cancelled() or future.exception() is not None or future.result().error is not None


def _collect_results(
    jobs: Sequence[TraceJob], futures: Sequence[Future[ReadResult]], describe_death: Callable[[], str] | None = None
) -> Iterator[ReadResult]:
    """Yield the results of the futures, up to the first failed one.

    Stops before a job that was lost because a process died. If a single process reads, it died over that job, which is
    then reported.
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
