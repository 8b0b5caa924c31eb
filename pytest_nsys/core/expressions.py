"""How is a regular expression from an untrusted author matched in bounded time? A gate file may come from a fork.

``re`` backtracks, and a short expression can keep it busy for years on a name of 40 characters. It checks for signals
meanwhile, so a timer of CPU time can stop it: the only way without another engine, whose syntax would differ from the
one that gate files use. Threads get no signals, and Windows has no such timer; there, repeated groups are refused.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.text_format import sanitize_line

# Of the processor's time, that the names of a process may take together beyond ``TIME_PER_NAME_S`` for each.
TIME_LIMIT_S = 0.5

# Each name earns so much time, so that a trace with many names is not refused.
TIME_PER_NAME_S = 50e-6
# With one repetition alone there are few ways to try; the second multiplies them.
_REPETITION = re.compile(r"[*+{]|(?<!\()\?")
_REPEATED_GROUP = re.compile(r"\)[*+{]")
# There a blank or a comment may stand between a group and what repeats it.
_VERBOSE = re.compile(r"\(\?[a-zA-Z]*x")

MatchT = TypeVar("MatchT")


class _MatchTimeout(Exception):
    """Ends a match when the timer runs out."""


class Expression:
    """Holds one expression. Its methods raise TraceError if matching takes too long; ``key`` is its key in the gate
    file.

    Raises re.error for an invalid expression. With ``is_trusted`` it is one of our own, and needs no timer.
    """

    def __init__(self, key: str, text: str, *, is_trusted: bool = False) -> None:
        self._label = f"the {key} expression '{sanitize_line(text, 100)}'"
        self._pattern = re.compile(text)
        self._remaining_s = TIME_LIMIT_S
        self._repeats_group = _VERBOSE.search(text) is not None or _REPEATED_GROUP.search(text) is not None
        self._needs_timer = not is_trusted and (self._repeats_group or len(_REPETITION.findall(text)) > 1)

    @property
    def groups(self) -> frozenset[str]:
        """The names of the expression's groups."""
        return frozenset(self._pattern.groupindex)

    def fullmatch(self, name: str) -> re.Match[str] | None:
        """Match the whole name; return None where it does not match."""
        return self._run_with_time_limit(name, lambda: self._pattern.fullmatch(name))

    def find_last_group(self, name: str, group: str) -> str | None:
        """Return the text of the group at the last match that has it, None where none does."""

        def search_group() -> str | None:
            return next((m[group] for m in [*self._pattern.finditer(name)][::-1] if m[group]), None)

        return self._run_with_time_limit(name, search_group)

    def _run_with_time_limit(self, name: str, match_name: Callable[[], MatchT]) -> MatchT:
        """Run a match, with a timer if the expression might be slow. Raises TraceError if it takes too long."""
        if not self._needs_timer:
            return match_name()
        if (obstacle := _find_timer_obstacle()) is not None:
            if self._repeats_group:
                place, alternative = obstacle
                reason = (
                    f"repeats a group, which cannot be stopped {place}: write it without (…)* and (…)+{alternative}"
                )
                raise TraceError(f"{self._label} {reason}")
            return match_name()
        if self._remaining_s <= 0:
            raise self._make_slow_error(name)
        try:
            with self._limit_time():
                return match_name()
        except _MatchTimeout:
            self._remaining_s = 0
            raise self._make_slow_error(name) from None

    @contextmanager
    def _limit_time(self) -> Iterator[None]:
        """Stop what runs inside when the remaining time is used up, and book the time that it took."""
        previous_handler = signal.signal(signal.SIGVTALRM, _raise_timeout)
        began_s = time.process_time()
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, self._remaining_s)
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        finally:
            signal.signal(signal.SIGVTALRM, previous_handler or signal.SIG_DFL)
        self._remaining_s = min(TIME_LIMIT_S, self._remaining_s + TIME_PER_NAME_S - (time.process_time() - began_s))

    def _make_slow_error(self, name: str) -> TraceError:
        reason = f"is too slow on range names like '{sanitize_line(name, 60)}': it tries them in too many ways"
        return TraceError(f"{self._label} {reason}; write it without a repetition inside a repetition")


def _find_timer_obstacle() -> tuple[str, str] | None:
    """Find why no timer can stop a match here: return the place, and what else to do there. None if a timer works."""
    if not hasattr(signal, "setitimer"):
        return "on Windows", ""
    if threading.current_thread() is not threading.main_thread():
        return "where a cluster reads", ", or read without a cluster"
    return None


def _raise_timeout(*_: object) -> None:
    raise _MatchTimeout
