"""What can go wrong, in classes that the outside tells apart: each carries one clear line for the person.

Every message says what is wrong, where, and what to do, with the word that was probably meant. Whoever raises one makes
the names in it one line (:func:`pytest_nsys.core.words.printable`); no message commands a terminal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from pytest_nsys.core.words import fit_to_print


class NsysError(Exception):
    """Base of all errors that end in one line for the person, never in a traceback."""

    def __init__(self, text: str) -> None:
        super().__init__(fit_to_print(text))


class UsageMistake(NsysError):
    """An option or argument that cannot be meant: a path that does not exist, an unknown metric."""


class NoTraceGiven(UsageMistake):
    """Nobody named a trace, in a checkout that need not have one."""


class ArgumentMistake(UsageMistake, ValueError):
    """An argument of a function that cannot be meant."""


class TraceError(NsysError):
    """A trace that cannot be read or judged: not SQLite, truncated, no kernels, no anchor, empty window."""


class SeveralCaptures(UsageMistake, TraceError):
    """Files that are given as one run, and are captures of several: it ends in what to give instead.

    Who takes several captures, as pytest does, says behind it by which option.
    """


class CaptureError(NsysError):
    """A capture that cannot be taken, or that left no report: no nsys, a folder that cannot be written."""


class BaselineError(NsysError):
    """A stored baseline that cannot be read, or must not be written."""


class IncomparableError(BaselineError):
    """A run that cannot be added to what is stored: nothing is, or it is from a different setup."""


class HistoryError(NsysError):
    """A history database that is not ours, cannot be read or written, or is locked."""


class Mistake(NamedTuple):
    """What is wrong with a file; ``line`` and ``column`` count from 1, None where it is unknown."""

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
    """All mistakes of one gate file together, in its order."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = mistakes
        super().__init__("\n".join(map(str, mistakes)))


GOES_ON = "\n         "
"""Between the lines of a message that has several: as they stand below each other in a red."""


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """An error inside says which of several traces it is about."""
    try:
        yield
    except NsysError as error:
        named = type(error)(f"{what}: {error}")
        vars(named).update(vars(error))
        raise named from error


@contextlib.contextmanager
def one_line(kind: type[NsysError], what: str, then: str = "") -> Iterator[None]:
    """An OSError inside is one line for the person: ``what``, why, and what to do ``then``."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror}{then}") from error


class NoRows(NsysError):
    """What was asked of a metric has no row, and why: others may have rows of the same window."""


class NothingMeasured(TraceError):
    """The trace can be read but holds nothing to judge: no kernels, no anchor, an empty window."""


def did_you_mean(word: str, choices: Collection[str], cutoff: float = 0.6) -> str:
    """`` (did you mean 'overlap'?)`` to append to a mistake, empty where nothing is close."""
    import difflib  # only a mistake pays for this import

    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=cutoff)
    return f" (did you mean '{close[0]}'?)" if close else ""


def hint(word: str, choices: Collection[str], are: str) -> str:
    """The word that was probably meant, or all that there are: ``: they are mesh, world``."""
    return did_you_mean(word, choices) or f": {are} {', '.join(choices) or 'none'}"
