"""What can go wrong, in classes that the outside tells apart: each carries one clear line for the person.

Every message says what is wrong, where, and what to do. Whoever raises one has already stripped control
characters from the names in it (:func:`pytest_nsys.model.printable`).
"""

from __future__ import annotations


class NsysError(Exception):
    """Base of all errors that end in one line for the person, never in a traceback."""


class UsageMistake(NsysError):
    """An option or argument that cannot be meant: a path that does not exist, an unknown metric."""


class TraceError(NsysError):
    """A trace that cannot be read or judged: not SQLite, truncated, no kernels, no anchor, empty window."""


class BaselineError(NsysError):
    """A stored baseline that cannot be read, or must not be written."""


class GateFileError(NsysError):
    """All mistakes of one gate file together, each as ``file:line:column: what (did you mean …)``."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class NothingMeasured(TraceError):
    """The trace can be read but holds nothing to judge: no kernels, no anchor, an empty window."""
