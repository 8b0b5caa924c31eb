"""A trace that remembers what it was asked: the answers of a reader in another process stand in for the file.

The reader asks a :class:`RecordedTrace` whatever a measurement asks of a trace, and sends its :class:`Recording`. Here
another one answers from that, and opens the file for what nobody foresaw: so a recording may save time, and cannot
change a result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.tables import Kernels
from pytest_nsys.core.trace import Trace

Question = tuple[Hashable, ...]
"""The name of a method of :class:`~pytest_nsys.core.trace.Trace`, and its arguments."""


class Answer(NamedTuple):
    """What the method returned, or the error that it raised, and which processes were unasked for after it."""

    value: Any
    unasked: Set[int]


class Recording(NamedTuple):
    """The answers of one trace, and the class of its reader."""

    format: type
    answers: Mapping[Question, Answer]


class RecordedTrace:
    """A :class:`~pytest_nsys.core.trace.Trace` that answers what it knows, and asks the file for the rest.

    Every public method of the protocol is answered alike, also one that this module has never heard of.
    """

    def __init__(self, path: Path, open_trace: Callable[[Path], Trace], recording: Recording | None = None) -> None:
        self.path = path
        self._open_trace = open_trace
        self._format = recording.format if recording is not None else None
        self._answers: dict[Question, Answer] = dict(recording.answers) if recording is not None else {}
        self._unasked: set[int] = set()

    @cached_property
    def _file(self) -> Trace:
        return self._open_trace(self.path)

    @property
    def format(self) -> type:
        """The class of the reader. Raises TraceError where the file has to be opened, and cannot be."""
        return self._format or type(self._file)

    @property
    def inner(self) -> Trace:
        """The file. Raises TraceError where it cannot be opened."""
        return self._file

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)
        return partial(self._answer, method)

    def _answer(self, method: str, *arguments: object) -> Any:
        question = (method, *map(_frozen, arguments))
        if question not in self._answers:
            self._answers[question] = self._asked(method, arguments)
        answer = self._answers[question]
        self._unasked |= answer.unasked
        if isinstance(answer.value, NsysError):
            raise answer.value
        return answer.value

    def _asked(self, method: str, arguments: tuple[object, ...]) -> Answer:
        try:
            value = getattr(self._file, method)(*arguments)
        except NsysError as error:
            value = error
        return Answer(value, frozenset(self._file.unasked()))

    def unasked(self) -> Set[int]:
        """Processes that ran kernels in the spans asked for so far, but in no lane that was."""
        return self._unasked

    def recording(self) -> Recording:
        """All answers so far, in a form that goes from process to process."""
        answers = {question: Answer(_portable(a.value), a.unasked) for question, a in self._answers.items()}
        return Recording(self.format, answers)

    def close(self) -> None:
        """Let the file go; what is known of it stays."""
        if "_file" in self.__dict__:
            self._file.close()


def _frozen(argument: object) -> Hashable:
    """An argument as part of a question. Of kernels a digest: they would be as large as the answers."""
    match argument:
        case Kernels():
            columns = (argument.start_ns, argument.end_ns, argument.correlation)
            return hashlib.blake2b(b"".join(column.tobytes() for column in columns), digest_size=16).digest()
        case str() | bytes():
            return argument
        case Mapping():
            return frozenset((_frozen(key), _frozen(value)) for key, value in argument.items())
        case Set():
            return frozenset(map(_frozen, argument))
        case Sequence():
            return tuple(map(_frozen, argument))
        case Hashable():
            return argument
    raise TypeError(f"a trace was asked with {argument!r}, which cannot be remembered")


def _portable(value: Any) -> Any:
    """An answer that holds on to no file and is small: names that no kernel has stay behind."""
    match value:
        case Kernels():
            used = {*value.name, *value.full_name}
            return replace(value, names={number: value.names[number] for number in used if number in value.names})
        case Mapping():
            return {key: _portable(item) for key, item in value.items()}
    return value
