"""What can go wrong, in classes that the outside tells apart? Each error carries one clear line for the person.

Every message says what is wrong, where, and what to do, with the word that was probably meant. Whoever raises one makes
the names in it one line (:func:`pytest_nsys.core.text_format.sanitize_line`); no message commands a terminal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from pytest_nsys.core.text_format import sanitize_text


class NsysError(Exception):
    """Serves as base of all errors that end in one line for the person, never in a traceback."""

    def __init__(self, text: str) -> None:
        super().__init__(sanitize_text(text))


class UsageMistake(NsysError):
    """Reports an option or argument that cannot be meant: a path that does not exist, an unknown metric."""


class NoTraceGiven(UsageMistake):
    """Reports that nobody named a trace, in a checkout that need not have one."""


class ArgumentMistake(UsageMistake, ValueError):
    """Reports an argument of a function that cannot be meant."""


class TraceError(NsysError):
    """Reports a trace that cannot be read or judged: not SQLite, truncated, no kernels, no anchor, empty window."""


class SeveralCaptures(UsageMistake, TraceError):
    """Reports files that are given as one run, and are captures of several: it ends in what to give instead.

    Who takes several captures, as pytest does, says behind it by which option.
    """


class CaptureError(NsysError):
    """Reports a capture that cannot be taken, or that left no report: no nsys, a folder that cannot be written."""


class BaselineError(NsysError):
    """Reports a stored baseline that cannot be read, or must not be written."""


class IncomparableError(BaselineError):
    """Reports a run that cannot be added to what is stored: nothing is, or it is from a different setup."""


class HistoryError(NsysError):
    """Reports a history database that is not ours, cannot be read or written, or is locked."""


class Mistake(NamedTuple):
    """Describes one mistake of a file; ``line`` and ``column`` count from 1, None where it is unknown."""

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
"""Joins the lines of a message that has several, so that they stand below each other in a red."""


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
    """Turn an OSError inside into an error of one line for the person: ``message``, why, and the ``advice``."""
    try:
        yield
    except OSError as error:
        raise error_type(f"{message}: {error.strerror}{advice}") from error


class NoRows(NsysError):
    """Reports that a metric has no row where it was read, and why: others may have rows of the same window."""


class NothingMeasured(TraceError):
    """Reports a trace that can be read but holds nothing to judge: no kernels, no anchor, an empty window."""


def suggest_word(word: str, choices: Collection[str], cutoff: float = 0.6) -> str:
    """Return an ending of a message with the closest choice, `` (did you mean 'overlap'?)``; empty where none is."""
    import difflib  # only a mistake pays for this import

    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=cutoff)
    return f" (did you mean '{close[0]}'?)" if close else ""


def suggest_or_list(word: str, choices: Collection[str], label: str) -> str:
    """Return the word that was probably meant, or all the choices after their label: ``: they are mesh, world``."""
    return suggest_word(word, choices) or f": {label} {', '.join(choices) or 'none'}"
