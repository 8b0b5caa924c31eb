"""Fresh processes of this machine that read traces, and how one of them died."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any


class Processes(ProcessPoolExecutor):
    """Fresh processes, which know nothing of this one: a fork would inherit its threads' locks and its GPU."""

    def __init__(self, number: int) -> None:
        self._own = _Fresh()
        super().__init__(number, mp_context=self._own, initializer=_end_with_parent)

    def how_it_died(self) -> str:
        """How the first process that died by itself did, once the pool is broken."""
        self.shutdown()  # when it returns, all exit codes are known
        codes = [process.exitcode for process in self._own.started if process.exitcode]
        own = [code for code in codes if code != -signal.SIGTERM] or codes  # the pool itself terminates the others
        if not own:
            return "for no reason that is known"
        return f"signal {-own[0]}" if own[0] < 0 else f"exit code {own[0]}"

    def kill(self) -> None:
        """End every process in the middle of what it does."""
        for process in self._own.started:
            if process.pid is not None:  # else it could not even be started
                process.kill()


@contextlib.contextmanager
def processes(number: int) -> Iterator[Processes]:
    """The processes, until the end of the block; left by an exception, they are killed in the middle of their work."""
    pool = Processes(number)
    try:
        yield pool
    except BaseException:
        pool.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


class _Fresh(SpawnContext):
    """Starts processes, and remembers them."""

    def __init__(self) -> None:
        self.started: list[SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]
        process = _FreshProcess(*args, **kwargs)
        self.started.append(process)
        return process


class _FreshProcess(SpawnProcess):
    """A process that does not run the main module again, and that Ctrl-C reaches through its parent alone."""

    def start(self) -> None:
        """Start it with an empty main module, and with Ctrl-C blocked."""
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            with _interrupts_blocked():
                super().start()
        finally:
            sys.modules["__main__"] = main


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """What is started inherits it. Windows has no such mask."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """A pool's process outlives a parent that was killed: it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
