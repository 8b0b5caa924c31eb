"""What can go wrong, in classes that callers can distinguish? Each error carries one clear line for the user.

Every message says what is wrong, where, and what to do, with the word that was probably meant. Code that raises an
error puts each name in it on one line (:func:`pytest_nsys.core.text_format.sanitize_line`); no message controls a
terminal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pytest_nsys.core.text_format import sanitize_text

if TYPE_CHECKING:
    from pathlib import Path


class NsysError(Exception):
    """The base of all errors that are shown as one line, never as a traceback."""

    def __init__(self, text: str) -> None:
        super().__init__(sanitize_text(text))


class UsageMistake(NsysError):
    """Reports an invalid option or argument: a path that does not exist, an unknown metric."""


class NoTraceGiven(UsageMistake):
    """Reports that nobody named a trace, in a checkout that need not have one."""


class ArgumentMistake(UsageMistake, ValueError):
    """Reports an invalid argument of a function."""


class TraceError(NsysError):
    """Reports a trace that cannot be read or judged: not SQLite, truncated, no kernels, no anchor, empty window."""


class SeveralCaptures(UsageMistake, TraceError):
    """Reports files that are given as one run but are captures of several; the message ends in what to give instead.

    Callers that take several captures, such as pytest, append the option to use.
    """


class CaptureError(NsysError):
    """Reports a capture that cannot be taken, or that left no report: no nsys, a folder that cannot be written."""


class BaselineError(NsysError):
    """Reports a stored baseline that cannot be read, or must not be written."""


class IncomparableError(BaselineError):
    """Reports a run that cannot be added to the stored ones: nothing is stored, or it is from a different setup."""


class HistoryError(NsysError):
    """Reports a history database that is not ours, cannot be read or written, or is locked."""


class Mistake(NamedTuple):
    """Describes one mistake in a file; ``line`` and ``column`` count from 1, and are None if unknown."""

    file: str
    text: str
    line: int | None = None
    column: int | None = None

    @property
    def place(self) -> str:
        """``gate.nsys.yaml:3:5``, as far as it is known."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class GateFileError(NsysError):
    """Reports all mistakes of one gate file together, in its order."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = mistakes
        super().__init__("\n".join(map(str, mistakes)))


NEXT_LINE = "\n         "
"""Joins the lines of a message of several lines, so that they are aligned in a failed assertion."""


@contextlib.contextmanager
def prefix_errors(prefix: str) -> Iterator[None]:
    """Put ``prefix``, which names one of several traces, before the message of an error raised inside."""
    try:
        yield
    except NsysError as error:
        error_with_prefix = type(error)(f"{prefix}: {error}")
        vars(error_with_prefix).update(vars(error))
        raise error_with_prefix from error


@contextlib.contextmanager
def convert_os_errors(error_type: type[NsysError], message: str, advice: str = "") -> Iterator[None]:
    """Convert an OSError raised inside into a one-line error: ``message``, the reason, and the ``advice``."""
    try:
        yield
    except OSError as error:
        raise error_type(f"{message}: {error.strerror}{advice}") from error


class NoRows(NsysError):
    """Reports that a metric has no row where it was read, and why: others may have rows of the same window."""


class NothingMeasured(TraceError):
    """Reports a trace that can be read but holds nothing to judge: no kernels, no anchor, an empty window."""


def suggest_word(word: str, choices: Collection[str], cutoff: float = 0.6) -> str:
    """Return the closest choice as the end of a message, `` (did you mean 'overlap'?)``; empty if none is close."""
    import difflib  # only a mistake pays for this import

    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=cutoff)
    return f" (did you mean '{close[0]}'?)" if close else ""


def suggest_path(path: Path) -> str:
    """Return the closest name in the folder of a missing path as the end of a message; empty if none is close."""
    with contextlib.suppress(OSError):  # the folder is missing, too
        return suggest_word(path.name, sorted(neighbour.name for neighbour in path.parent.iterdir()))
    return ""


def suggest_or_list(word: str, choices: Collection[str], label: str) -> str:
    """Return the word that was probably meant, or all the choices after their label: ``: they are mesh, world``."""
    return suggest_word(word, choices) or f": {label} {', '.join(choices) or 'none'}"
