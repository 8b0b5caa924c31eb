"""How do the answers of a reader in another process replace the file of a trace?

The reader process makes on a :class:`RecordedTrace` all queries that measurements make, and sends its
:class:`TraceRecording`. In this process another RecordedTrace answers from that, and opens the file for any other
query: so a recording may save time, but cannot change a result.
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


class RecordedAnswer(NamedTuple):
    """Holds what a method of a trace returned, or the error that it raised."""

    value: Any
    unrequested_processes: Set[int]  # as list_unrequested_processes of the trace, after this question


class TraceRecording(NamedTuple):
    """Holds the answers of one trace, and the class of its reader."""

    format: type
    answers: Mapping[Question, RecordedAnswer]


class RecordedTrace:
    """Implements :class:`~pytest_nsys.core.trace.Trace` with recorded answers, and queries the file for the rest.

    Every public method of the protocol is answered in the same way, including any that is added later.
    """

    def __init__(
        self, path: Path, open_trace: Callable[[Path], Trace], recording: TraceRecording | None = None
    ) -> None:
        self.path = path
        self._open_trace = open_trace
        self._format = recording.format if recording is not None else None
        self._answers: dict[Question, RecordedAnswer] = dict(recording.answers) if recording is not None else {}
        self._unrequested_processes: set[int] = set()

    @cached_property
    def _file(self) -> Trace:
        return self._open_trace(self.path)

    @property
    def format(self) -> type:
        """The class of the reader. Raises TraceError if the file must be opened, and cannot be."""
        return self._format or type(self._file)

    @property
    def inner(self) -> Trace:
        """The file. Raises TraceError where it cannot be opened."""
        return self._file

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)
        return partial(self._answer_question, method)

    def _answer_question(self, method: str, *arguments: object) -> Any:
        """Return the recorded answer, else that of the file, which is then recorded. Raises the error if that was the
        answer.
        """
        question = (method, *map(_freeze_argument, arguments))
        if question not in self._answers:
            self._answers[question] = self._ask_file(method, arguments)
        answer = self._answers[question]
        self._unrequested_processes |= answer.unrequested_processes
        if isinstance(answer.value, NsysError):
            raise answer.value
        return answer.value

    def _ask_file(self, method: str, arguments: tuple[object, ...]) -> RecordedAnswer:
        try:
            value = getattr(self._file, method)(*arguments)
        except NsysError as error:
            value = error
        return RecordedAnswer(value, frozenset(self._file.list_unrequested_processes()))

    def list_unrequested_processes(self) -> Set[int]:
        """Return the processes that ran kernels in the spans read so far, but in no lane that was requested."""
        return self._unrequested_processes

    def make_recording(self) -> TraceRecording:
        """Return all answers so far, in a form that can be sent between processes."""
        answers = {
            question: RecordedAnswer(_make_portable(answer.value), answer.unrequested_processes)
            for question, answer in self._answers.items()
        }
        return TraceRecording(self.format, answers)

    def close(self) -> None:
        """Close the file; its answers stay."""
        # A file that no answer needed is not opened to be closed.
        if "_file" in self.__dict__:
            self._file.close()


def _freeze_argument(argument: object) -> Hashable:
    """Return an argument as a hashable part of a question. Raises TypeError for one that has no hash."""
    match argument:
        case Kernels():
            # A digest of kernels: they would be as large as the answers.
            columns = (argument.start_ns, argument.end_ns, argument.correlation)
            return hashlib.blake2b(b"".join(column.tobytes() for column in columns), digest_size=16).digest()
        case str() | bytes():
            return argument
        case Mapping():
            return frozenset((_freeze_argument(key), _freeze_argument(value)) for key, value in argument.items())
        case Set():
            return frozenset(map(_freeze_argument, argument))
        case Sequence():
            return tuple(map(_freeze_argument, argument))
        case Hashable():
            return argument
    raise TypeError(f"a trace was asked with {argument!r}, which cannot be remembered")


def _make_portable(value: Any) -> Any:
    """Return an answer that refers to no file and is small: names that no kernel has are left out."""
    match value:
        case Kernels():
            used_names = {*value.name, *value.full_name}
            return replace(value, names={number: value.names[number] for number in used_names if number in value.names})
        case Mapping():
            return {key: _make_portable(item) for key, item in value.items()}
    return value
