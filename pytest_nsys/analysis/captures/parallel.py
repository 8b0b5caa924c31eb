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
from pytest_nsys.analysis.metrics.registry import Request, known_metric, metric_called
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import NothingMeasured, NsysError, TraceError
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.workload import Workload
from pytest_nsys.tools.executors import EVERY_S, SERIAL, Progress, executor_of
from pytest_nsys.traces.opening import open_trace
from pytest_nsys.traces.recorded import RecordedTrace, Recording

MANY = 16  # then they need not all be open at once
"""From how many traces on they are read ahead one after another, and closed, where no executor is named."""

GIVEN_UP = "the executor dropped it: its scheduler or all of its workers are gone"


Ask = Callable[[Trace], None]
"""Asks a trace whatever will be asked of it, and raises nothing; it is sent from process to process."""


class TraceJob(NamedTuple):
    """Describes one trace to read, and what asks it."""

    path: Path
    ask: Ask


class ReadResult(NamedTuple):
    """Holds what became of a job: the recording, or why the trace cannot be opened."""

    recording: Recording | None
    error: NsysError | None = None


def read(job: TraceJob) -> ReadResult:
    """Open the trace of a job and ask it, in any process."""
    trace = RecordedTrace(job.path, open_trace)
    with contextlib.closing(trace):
        try:
            _ = trace.format
        except NsysError as error:
            return ReadResult(None, _elsewhere(job.path, error))
        job.ask(cast(Trace, trace))
        return ReadResult(trace.recording())


def ask_all(convention: Convention, workload: Workload, requests: Sequence[Request], trace: Trace) -> None:
    """Ask the trace whatever measurements ask."""
    captures = Captures([Run([trace], convention, workload)])
    for question in _questions(captures, requests):
        with contextlib.suppress(Exception):  # goes wrong once more where the run is judged, and is told there
            question()


def _elsewhere(path: Path, error: NsysError) -> NsysError:
    """Return the error of a file; one that is missing here was seen by the sender, whose disks are not these."""
    if path.exists():
        return error
    from pytest_nsys.tools.workers import this_worker

    return TraceError(f"{path}: {this_worker()} does not find it: put traces on a disk that all readers share")


def _questions(captures: Captures, requests: Sequence[Request]) -> Iterator[Callable[[], object]]:
    """Yield what a gate or a command asks of a run, in the order in which it does it."""
    yield partial(captures.key, {})
    yield lambda: captures.facts
    for request in requests:
        metric = metric_called(request.metric or "")
        yield partial(captures.runs[0].measured, request.spec)
        if metric is not None:
            yield partial(_measure, captures, request)
        yield partial(captures.notes, request.spec, *filter(None, [metric]), bounds=request.bounds)


def _measure(captures: Captures, request: Request) -> None:
    """Measure the rows of all ranks; where one of them has an empty window, also those of each other rank by itself."""
    try:
        captures.measure(request)
    except NothingMeasured:
        for rank in captures.runs[0].ranks:
            with contextlib.suppress(NothingMeasured):
                captures.rows(known_metric(request.metric or ""), request.spec, frozenset({rank.number}))


Opener = Callable[[Path], Trace]


@dataclass(frozen=True)
class ReadAhead:
    """Reads the traces of a run ahead by an executor."""

    # A name as for :func:`~pytest_nsys.tools.executors.open_executor`; None: in this process.
    executor: str | None = None
    shown: bool = False  # whether a terminal shows how far reading is

    def __call__(
        self, paths: Sequence[Path], convention: Convention, workload: Workload, requests: Sequence[Request]
    ) -> Opener:
        """Return what opens the traces, with what was read of them ahead where that was worth while. Raises
        UsageMistake.
        """
        if not requests or not (self.elsewhere or len(paths) >= MANY):
            return open_trace
        return self.asked(paths, partial(ask_all, convention, workload, tuple(dict.fromkeys(requests))))

    @property
    def elsewhere(self) -> bool:
        """Whether other processes read the traces."""
        return self.executor not in (None, SERIAL)

    def asked(self, paths: Sequence[Path], ask: Ask) -> Opener:
        """Ask the traces by the executor, where there are several. Return what opens them. Raises UsageMistake."""
        if len(paths) < 2:
            return open_trace
        read_ahead = self._read([TraceJob(path, ask) for path in paths])
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

    def _read(self, jobs: Sequence[TraceJob]) -> list[ReadResult]:
        """Return the outcomes in the order of the jobs, up to the first that failed."""
        # Where a process died nobody knows over which trace, so the rest is read by a single one: the first that is
        # lost then is the trace that it died over.
        progress = Progress("reading traces", len(jobs), shown=self.shown)
        try:
            with executor_of(self.executor or SERIAL) as executor:
                outcomes = [*_outcomes(jobs, _finished(executor, jobs, progress))]
            remaining_jobs = jobs[len(outcomes) :]
            if not remaining_jobs or (outcomes and outcomes[-1].error is not None):
                return outcomes
            from pytest_nsys.tools.workers import processes  # loaded already where it is needed

            with processes(1) as single_process:
                return [
                    *outcomes,
                    *_outcomes(
                        remaining_jobs, _finished(single_process, remaining_jobs, progress), single_process.how_it_died
                    ),
                ]
        finally:
            progress.end()


class OpenOnce:
    """Opens each trace once for all conventions that it is read under."""

    def __init__(self, reading: ReadAhead, ask: Ask) -> None:
        self._reading, self._ask = reading, ask
        self._opened: dict[Path, Trace] = {}

    def __call__(self, paths: Sequence[Path], *_: object) -> Opener:
        """Return what opens the traces, or returns those that are open."""
        new_paths = [path for path in paths if path not in self._opened]
        # Each convention asks little that none before it asked. Reading ahead pays only in other processes: here it
        # would cost more than it saves.
        opener = self._reading.asked(new_paths, self._ask) if self._reading.elsewhere else open_trace

        def open_cached(path: Path) -> Trace:
            if path not in self._opened:
                trace = RecordedTrace(path, open_trace) if opener is open_trace else opener(path)
                self._opened[path] = cast(Trace, trace)
            return self._opened[path]

        return open_cached


def _finished(executor: Executor, jobs: Sequence[TraceJob], progress: Progress) -> list[Future[ReadResult]]:
    """Run the jobs and return a future of each, in their order; those after one that failed may be cancelled, or not
    begun.
    """
    futures: list[Future[ReadResult]] = []
    for job in jobs:
        futures.append(executor.submit(read, job))
        if futures[-1].done():  # where a job is done as it is submitted
            progress.tell(len(futures))
            if _failed(futures[-1]):
                return futures
    pending_futures = set(futures)
    while pending_futures:
        wait(
            pending_futures, timeout=EVERY_S
        )  # passes over one that is cancelled and whose executor has not noticed yet
        done_futures = {future for future in pending_futures if future.done()}
        pending_futures -= done_futures
        progress.tell(len(futures) - len(pending_futures))
        if done_futures and any(map(_failed, done_futures)):
            failed_index = next(i for i, future in enumerate(futures) if future.done() and _failed(future))
            for later_future in futures[failed_index + 1 :]:
                later_future.cancel()
    return futures


def _failed(future: Future[ReadResult]) -> bool:
    """Whether a future that is done brought no recording."""
    return future.cancelled() or future.exception() is not None or future.result().error is not None


def _outcomes(
    jobs: Sequence[TraceJob], futures: Sequence[Future[ReadResult]], how_it_died: Callable[[], str] | None = None
) -> Iterator[ReadResult]:
    """Yield what the futures brought, up to the first that failed.

    Stops before a job that was lost because a process died, except where a single process reads: then it died over that
    job.
    """
    from pytest_nsys.tools.workers import why_lost  # loaded already where it is needed

    for job, future in zip(jobs, futures, strict=False):
        try:
            outcome = future.result()
        except BrokenExecutor:
            if how_it_died is None:
                return
            outcome = _lost(job, f"the process that read it died ({how_it_died()})")
        except CancelledError:
            outcome = _lost(job, GIVEN_UP)
        except Exception as error:
            outcome = _lost(job, why_lost(error))
        yield outcome
        if outcome.error is not None:
            return


def _lost(job: TraceJob, why: str) -> ReadResult:
    return ReadResult(None, TraceError(f"{job.path}: cannot be read: {why}"))
