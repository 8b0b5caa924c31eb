"""Where are traces read, and how far is it? In this process, in some of this machine, or on a cluster through Dask.

Each is an executor of :mod:`concurrent.futures`, opened by :func:`open_executor` from one word. What takes long has a
line on the terminal, which comes after two seconds and leaves nothing behind.
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
# More processes than any machine has cores are a slip.
MAX_PROCESSES = 1024

SubmitP = ParamSpec("SubmitP")
SubmitT = TypeVar("SubmitT")


def parse_executor(choice: str) -> tuple[str, str]:
    """Parse the word for an executor into its kind, and its number of processes or its address.

    Whether a cluster is there is not looked at. Raises UsageMistake for a word that names none.
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
    """Count the processors that this process may use; on macOS and Windows, those that there are."""
    get_affinity = getattr(os, "sched_getaffinity", None)
    return len(get_affinity(0)) if get_affinity is not None else os.cpu_count() or 1


@contextlib.contextmanager
def open_executor(choice: str) -> Iterator[Executor]:
    """Open the executor until the end of the block; left by an exception, it stops what it was doing.

    Raises UsageMistake for a word that names none, and where a cluster cannot be reached or has nobody to read.
    """
    kind, rest = parse_executor(choice)
    if kind == "dask":
        from pytest_nsys.tools.workers import open_cluster

        with open_cluster(rest) as executor:
            yield executor
    elif kind == "processes":
        from pytest_nsys.tools.workers import open_pool  # most runs pay for none of this

        with open_pool(int(rest)) as executor:
            yield executor
    else:
        yield SerialExecutor()


class SerialExecutor(Executor):
    """Runs what is submitted at once, in this process."""

    def submit(
        self, fn: Callable[SubmitP, SubmitT], /, *args: SubmitP.args, **kwargs: SubmitP.kwargs
    ) -> Future[SubmitT]:
        """Return the finished future; an exception that is no Exception goes through."""
        future: Future[SubmitT] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


# What is done sooner needs no bar.
BAR_DELAY_S = 2.0
# More often nobody sees, and a slow terminal would hold up the work.
BAR_INTERVAL_S = 0.1
PROGRESS_BAR_WIDTH = 30


def is_in_ci() -> bool:
    """Whether CI runs this, by the variable that most of them set."""
    return os.environ.get("CI", "").strip().lower() not in ("", "0", "false")


def is_on_terminal(stream: TextIO) -> bool:
    """Whether a person looks at the stream: a log of CI would keep every state of the line."""
    return stream.isatty() and not is_in_ci()


class ProgressBar:
    """Draws a bar on standard error, where it ``is_shown``; :meth:`wipe` takes it away."""

    def __init__(self, label: str, total: int, *, is_shown: bool) -> None:
        self._label, self._total, self._is_shown = label, total, is_shown
        self._next_s = time.monotonic() + BAR_DELAY_S
        self._is_drawn = False

    def show(self, done_count: int) -> None:
        """Draw the bar for so many that are done, unless it was drawn a moment ago."""
        now_s = time.monotonic()
        if not self._is_shown or now_s < self._next_s:
            return
        self._next_s = now_s + BAR_INTERVAL_S
        self._is_drawn = True
        filled_width = PROGRESS_BAR_WIDTH * done_count // self._total
        bar = "#" * filled_width + "-" * (PROGRESS_BAR_WIDTH - filled_width)
        print(f"\r{self._label} [{bar}] {done_count} of {self._total}\x1b[K", end="", file=sys.stderr, flush=True)

    def wipe(self) -> None:
        """Remove the bar, and give its line back."""
        if self._is_drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
