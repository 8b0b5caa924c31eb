"""Who else reads traces? Fresh processes of this machine, or a cluster through Dask; and why is there no answer?

Imported where one of them is used: most runs pay for none of this.
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
    """Runs work in fresh processes, which know nothing of this one: a fork would inherit its threads' locks and its
    GPU.
    """

    def __init__(self, number: int) -> None:
        self._context = _FreshContext()
        super().__init__(number, mp_context=self._context, initializer=_exit_with_parent)

    def describe_death(self) -> str:
        """Describe how the first process that died by itself did, once the pool is broken."""
        self.shutdown()  # when it returns, all exit codes are known
        codes = [process.exitcode for process in self._context.started if process.exitcode]
        own_codes = [
            code for code in codes if code != -signal.SIGTERM
        ] or codes  # the pool itself terminates the others
        if not own_codes:
            return "for no reason that is known"
        return f"signal {-own_codes[0]}" if own_codes[0] < 0 else f"exit code {own_codes[0]}"

    def kill(self) -> None:
        """Stop every process in the middle of what it does."""
        for process in self._context.started:
            if process.pid is not None:  # else it could not even be started
                process.kill()


@contextlib.contextmanager
def open_pool(number: int) -> Iterator[WorkerPool]:
    """Open a pool of processes until the end of the block; left by an exception, they are killed in the middle of their
    work.
    """
    pool = WorkerPool(number)
    try:
        yield pool
    except BaseException:
        pool.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


class _FreshContext(SpawnContext):
    """Starts processes, and remembers them."""

    def __init__(self) -> None:
        self.started: list[SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]
        process = _FreshProcess(*args, **kwargs)
        self.started.append(process)
        return process


class _FreshProcess(SpawnProcess):
    """Runs as a process that does not run the main module again, and that Ctrl-C reaches through its parent alone."""

    def start(self) -> None:
        """Start it with an empty main module, and with Ctrl-C blocked."""
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
    """Stop this process of a pool with its parent: after a parent that was killed it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def exit_after_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=exit_after_parent, daemon=True).start()


# Dask

# A scheduler that is there answers at once; Dask's own default waits for half a minute.
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
    """Open the executor of a cluster whose scheduler is at ``address``. Raises UsageMistake where nobody there can
    read.
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
    """Runs work on Dask's own executor, and cancels what is pending where the scheduler, or every worker, stays away.

    Every worker is away after WORKERS_TIMEOUT_S: Dask would wait for workers for ever, and forgets a result that was
    under way when the scheduler died.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._dask_executor: Executor = client.get_executor()
        self._futures: list[Future[Any]] = []
        self._done = threading.Event()
        threading.Thread(target=self._watch_workers, daemon=True).start()

    def submit(self, fn: Callable[WorkP, WorkT], /, *args: WorkP.args, **kwargs: WorkP.kwargs) -> Future[WorkT]:
        """Return a future that is cancelled where nobody is there any more to fulfil it."""
        future = self._dask_executor.submit(fn, *args, **kwargs)
        self._futures.append(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002  Dask's has none
        """Cancel what is pending, or wait for it."""
        self._done.set()
        self._dask_executor.shutdown(wait=wait)

    def _watch_workers(self) -> None:
        """Wait for the end, and cancel what is pending where no worker is left."""
        while not self._done.wait(WATCH_INTERVAL_S):
            try:
                self._client.wait_for_workers(1, timeout=WORKERS_TIMEOUT_S)
            except Exception:  # whatever Dask says, nobody is there
                with contextlib.suppress(RuntimeError):  # closed meanwhile
                    self._client.loop.add_callback(self._cancel_pending)
                return

    def _cancel_pending(self) -> None:
        """Cancel what is pending, in the thread in which Dask fulfils futures."""
        for future in self._futures:
            if not future.done() and future.cancel():
                future.set_running_or_notify_cancel()  # wakes up who waits for it


def _open_client(address: str) -> Any:
    """Connect to the scheduler. Raises UsageMistake where that cannot be done."""
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

    # A client that finds out by itself takes ten seconds to end, in a traceback.
    scheme, mark, place = address.rpartition("://")
    if not _HOST_AND_PORT.fullmatch(place) or int(place.rpartition(":")[2]) > MAX_PORT:
        raise ValueError(address)
    get_backend(scheme if mark else "tcp")


def _check_workers(client: Any, address: str) -> None:
    """Check that the workers can read. Raises UsageMistake where none is there, or one would read otherwise than this
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
    """Silence Dask's own reports on standard error; what matters of them is said in one line here."""
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
    """Return who reads here: the worker of Dask that this is, else the process."""
    worker = sys.modules.get("distributed.worker")
    if worker is not None:
        with contextlib.suppress(ValueError):  # Dask is imported here, but this is none of its workers
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
