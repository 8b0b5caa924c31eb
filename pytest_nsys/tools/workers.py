"""Reads traces in fresh processes of this machine, or on a cluster through Dask, and explains why a worker failed.

Imported only where one of these is used, as most runs need neither.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import re
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, ParamSpec, TypeVar

from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.text_format import sanitize_line


class WorkerPool(ProcessPoolExecutor):
    """Runs work in fresh processes that share no state with this one: a fork would inherit its threads' locks and its
    GPU.
    """

    def __init__(self, number: int) -> None:
        self._context = _FreshContext()
        super().__init__(number, mp_context=self._context, initializer=_exit_with_parent)

    def describe_death(self) -> str:
        """Describe how the first process of a broken pool died that was not killed by the pool itself."""
        self.shutdown()  # after this all exit codes are known
        codes = [process.exitcode for process in self._context.started if process.exitcode]
        own_codes = [
            code for code in codes if code != -signal.SIGTERM
        ] or codes  # the pool itself terminates the others
        if not own_codes:
            return "for no reason that is known"
        return f"signal {-own_codes[0]}" if own_codes[0] < 0 else f"exit code {own_codes[0]}"

    def kill(self) -> None:
        """Kill every process, without waiting for its work."""
        for process in self._context.started:
            if process.pid is not None:  # None if it could not be started
                process.kill()


@contextlib.contextmanager
def open_pool(number: int) -> Iterator[WorkerPool]:
    """Open a pool of processes until the end of the block; if an exception ends the block, they are killed at once."""
    pool = WorkerPool(number)
    try:
        yield pool
    except BaseException:
        pool.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


class _FreshContext(SpawnContext):
    """Starts the processes of a pool, and keeps a list of them."""

    def __init__(self) -> None:
        self.started: list[SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]
        process = _FreshProcess(*args, **kwargs)
        self.started.append(process)
        return process


class _FreshProcess(SpawnProcess):
    """Represents a process that does not run the main module again, and that only its parent stops on Ctrl-C."""

    def start(self) -> None:
        """Start the process with an empty main module, and with Ctrl-C blocked."""
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            with _block_interrupts():
                super().start()
        finally:
            sys.modules["__main__"] = main


@contextlib.contextmanager
def _block_interrupts() -> Iterator[None]:
    """Suppress Ctrl-C for the processes that are started inside: they inherit the mask. Windows has no such mask."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def _exit_with_parent() -> None:
    """Make this pool process exit with its parent: if the parent was killed, it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def exit_after_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=exit_after_parent, daemon=True).start()


# Dask

# A running scheduler answers at once; Dask's default is to wait for half a minute.
CONNECT_TIMEOUT_S = 5
# Workers may join a little later than their scheduler.
WORKERS_TIMEOUT_S = 30
WATCH_INTERVAL_S = 1
MAX_PORT = 65_535
_HOST_AND_PORT = re.compile(r"(?:\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+):[0-9]{1,5}")

WorkP = ParamSpec("WorkP")
WorkT = TypeVar("WorkT")


@contextlib.contextmanager
def open_cluster(address: str) -> Iterator[Executor]:
    """Open the executor of a cluster whose scheduler is at ``address``. Raises UsageMistake if no worker there can read
    traces.
    """
    with _silence_dask():
        client = _open_client(address)
        try:
            _check_workers(client, address)
            executor = ClusterExecutor(client)
            try:
                yield executor
            finally:
                executor.shutdown(wait=False)
        finally:
            client.close()


class ClusterExecutor(Executor):
    """Runs work on Dask's own executor, and cancels pending work if the scheduler, or every worker, is lost.

    Workers count as lost after WORKERS_TIMEOUT_S. Dask itself would wait for workers for ever, and never completes a
    future that was running when the scheduler died.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._dask_executor: Executor = client.get_executor()
        self._futures: list[Future[Any]] = []
        self._done = threading.Event()
        threading.Thread(target=self._watch_workers, daemon=True).start()

    def submit(self, fn: Callable[WorkP, WorkT], /, *args: WorkP.args, **kwargs: WorkP.kwargs) -> Future[WorkT]:
        """Return a future that is cancelled if scheduler and workers are lost."""
        future = self._dask_executor.submit(fn, *args, **kwargs)
        self._futures.append(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002  Dask's has none
        """Cancel pending work, or wait for it."""
        self._done.set()
        self._dask_executor.shutdown(wait=wait)

    def _watch_workers(self) -> None:
        """Wait until the executor is shut down, and cancel pending work if no worker is left."""
        while not self._done.wait(WATCH_INTERVAL_S):
            try:
                self._client.wait_for_workers(1, timeout=WORKERS_TIMEOUT_S)
            except Exception:  # any error means that the scheduler is lost
                with contextlib.suppress(RuntimeError):  # closed meanwhile
                    self._client.loop.add_callback(self._cancel_pending)
                return

    def _cancel_pending(self) -> None:
        """Cancel pending work, in the thread in which Dask completes futures."""
        for future in self._futures:
            if not future.done() and future.cancel():
                future.set_running_or_notify_cancel()  # wakes up waiters


def _open_client(address: str) -> Any:
    """Connect to the scheduler. Raises UsageMistake if that fails."""
    label = f"dask:{sanitize_line(address, 80)}"
    try:
        import distributed
    except ImportError:
        raise UsageMistake(f"{label}: Dask is not installed: pip install 'pytest-nsys[dask]'") from None
    client: Any = distributed.Client
    try:
        _check_address(address)
        return client(address, timeout=CONNECT_TIMEOUT_S, set_as_default=False, name="pytest-nsys")
    except (OSError, ValueError, TypeError, ImportError) as error:
        reason = (
            f"no scheduler answered within {CONNECT_TIMEOUT_S} s" if isinstance(error, OSError) else "is not an address"
        )
        raise UsageMistake(f"{label}: {reason}: give the address that `dask scheduler` prints") from None


def _check_address(address: str) -> None:
    """Check the form of an address. Raises ValueError or ImportError for one that Dask cannot read."""
    from distributed.comm.registry import get_backend

    # Dask's client would take ten seconds to fail, with a traceback.
    scheme, mark, place = address.rpartition("://")
    if not _HOST_AND_PORT.fullmatch(place) or int(place.rpartition(":")[2]) > MAX_PORT:
        raise ValueError(address)
    get_backend(scheme if mark else "tcp")


def _check_workers(client: Any, address: str) -> None:
    """Check that the workers can read. Raises UsageMistake if there is none, or if one would read differently from this
    process.
    """
    label = f"dask:{sanitize_line(address, 80)}"
    try:
        client.wait_for_workers(1, timeout=WORKERS_TIMEOUT_S)
    except TimeoutError:
        raise UsageMistake(
            f"{label}: no worker joined within {WORKERS_TIMEOUT_S} s: start `dask worker {address}`"
        ) from None
    own_version = _read_own_version()
    for worker, worker_version in sorted(client.run(_read_own_version, on_error="return").items()):
        if isinstance(worker_version, BaseException) and "No module named 'pytest_nsys" in str(worker_version):
            raise UsageMistake(f"{label}: worker {worker} has no pytest-nsys: install version {own_version} there")
        if isinstance(worker_version, BaseException):
            raise UsageMistake(f"{label}: worker {worker} does not answer: {sanitize_line(str(worker_version))}")
        if worker_version != own_version:
            raise UsageMistake(
                f"{label}: worker {worker} has pytest-nsys {worker_version}: install version {own_version}, as here"
            )


def _read_own_version() -> str:
    from importlib.metadata import version

    return version("pytest-nsys")


@contextlib.contextmanager
def _silence_dask() -> Iterator[None]:
    """Silence Dask's own messages on standard error; this module reports errors in one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(ImportError):
            import distributed  # noqa: F401  sets the levels of its loggers
        logger_names = (name for name in logging.root.manager.loggerDict if name.startswith("distributed."))
        names = ["distributed", *logger_names, "tornado.application", "asyncio", "concurrent.futures"]
        previous_levels = {name: logging.getLogger(name).level for name in names}
        try:
            for name in names:
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
            yield
        finally:
            for name, level in previous_levels.items():
                logging.getLogger(name).setLevel(level)


def name_this_worker() -> str:
    """Return the name of this worker for messages: the Dask worker, or else the process."""
    worker = sys.modules.get("distributed.worker")
    if worker is not None:
        with contextlib.suppress(ValueError):  # Dask is imported, but this process is not one of its workers
            return f"Dask worker {worker.get_worker().address}"
    return f"process {os.getpid()}"


def explain_lost_worker(error: BaseException) -> str:
    """Explain in a few words why a cluster gave no answer."""
    last_worker = getattr(error, "last_worker", None)  # of distributed.scheduler.KilledWorker
    if last_worker is not None:
        return f"every Dask worker that read it died, the last was {last_worker.address}"
    if isinstance(error, ImportError):
        return f"a Dask worker lacks what it needs: {sanitize_line(str(error))}"
    return f"the executor did not answer: {type(error).__name__}: {sanitize_line(str(error))}"
