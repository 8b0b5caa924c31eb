"""Where are traces read: in this process, in several processes of this machine, or on a cluster through Dask?

Each is an executor of :mod:`concurrent.futures`, opened by :func:`open_executor` from one word. Long work shows a
progress bar on the terminal after two seconds, and wipes it at the end.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import ParamSpec, TextIO, TypeVar

from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.text_format import sanitize_line

SERIAL = "serial"
EXECUTOR_FORMS = f"{SERIAL}, processes:N, processes (one for each core), dask:ADDRESS (as in dask:tcp://host:8786)"
# A larger number is more than any machine's cores, and so a typing error.
MAX_PROCESSES = 1024

SubmitP = ParamSpec("SubmitP")
SubmitT = TypeVar("SubmitT")


def parse_executor(choice: str) -> tuple[str, str]:
    """Parse the word for an executor into its kind, and its number of processes or its address.

    It does not check whether the cluster exists. Raises UsageMistake for an unknown word.
    """
    kind, _, rest = choice.partition(":")
    if choice == SERIAL or (kind == "dask" and rest.strip()):
        return kind, rest
    if choice == "processes":
        return kind, str(_count_processors())
    if kind == "processes" and re.fullmatch(r"[0-9]{1,4}", rest) and 1 <= int(rest) <= MAX_PROCESSES:
        return kind, rest
    raise UsageMistake(f"'{sanitize_line(choice, 80)}' is not an executor: write {EXECUTOR_FORMS}")


def _count_processors() -> int:
    """Count the processors that this process may use; on macOS and Windows, all processors."""
    get_affinity = getattr(os, "sched_getaffinity", None)
    return len(get_affinity(0)) if get_affinity is not None else os.cpu_count() or 1


@contextlib.contextmanager
def open_executor(choice: str) -> Iterator[Executor]:
    """Open the executor until the end of the block; if an exception ends the block, running work is stopped.

    Raises UsageMistake for an unknown word, and if a cluster cannot be reached or has no worker.
    """
    kind, rest = parse_executor(choice)
    if kind == "dask":
        from pytest_nsys.tools.workers import open_cluster

        with open_cluster(rest) as executor:
            yield executor
    elif kind == "processes":
        from pytest_nsys.tools.workers import open_pool  # imported late: most runs need none of this

        with open_pool(int(rest)) as executor:
            yield executor
    else:
        yield SerialExecutor()


class SerialExecutor(Executor):
    """Runs submitted work immediately, in this process."""

    def submit(
        self, fn: Callable[SubmitP, SubmitT], /, *args: SubmitP.args, **kwargs: SubmitP.kwargs
    ) -> Future[SubmitT]:
        """Return the finished future. An Exception is kept in the future; KeyboardInterrupt and the like are raised."""
        future: Future[SubmitT] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


# Shorter work needs no bar.
BAR_DELAY_S = 2.0
# Drawing more often cannot be seen, and a slow terminal would delay the work.
BAR_INTERVAL_S = 0.1
PROGRESS_BAR_WIDTH = 30


def is_in_ci() -> bool:
    """Whether this runs in CI, by the variable that most CI systems set."""
    return os.environ.get("CI", "").strip().lower() not in ("", "0", "false")


def is_on_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal outside of CI, as a log of CI would keep every state of the line."""
    return stream.isatty() and not is_in_ci()


class ProgressBar:
    """Draws a bar on standard error, where it ``is_shown``; :meth:`wipe` takes it away."""

    def __init__(self, label: str, total: int, *, is_shown: bool) -> None:
        self._label, self._total, self._is_shown = label, total, is_shown
        self._next_s = time.monotonic() + BAR_DELAY_S
        self._is_drawn = False

    def show(self, done_count: int) -> None:
        """Draw the bar for ``done_count`` finished items, unless it was drawn less than BAR_INTERVAL_S ago."""
        now_s = time.monotonic()
        if not self._is_shown or now_s < self._next_s:
            return
        self._next_s = now_s + BAR_INTERVAL_S
        self._is_drawn = True
        filled_width = PROGRESS_BAR_WIDTH * done_count // self._total
        bar = "#" * filled_width + "-" * (PROGRESS_BAR_WIDTH - filled_width)
        print(f"\r{self._label} [{bar}] {done_count} of {self._total}\x1b[K", end="", file=sys.stderr, flush=True)

    def wipe(self) -> None:
        """Remove the bar from its line of the terminal."""
        if self._is_drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
