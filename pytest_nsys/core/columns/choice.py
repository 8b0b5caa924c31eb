"""Plain Python or numpy? What is small is done before numpy is imported; what is large pays for the import once.

Plain Python works until it went through as many elements as it can in the time of the import: no run takes more than
that longer than it had to, whether one column is long or a thousand are short.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import ParamSpec, TypeVar

from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.words import printable

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")

FORCE = "PYTEST_NSYS_COLUMNS"
"""The environment variable that says ``python`` or ``numpy`` for every size, as the suite is run under each."""

FEW = 256
"""Below so many elements plain Python is done before numpy has begun."""

PATIENCE = 1_000_000
"""Elements that plain Python goes through in about the time of the import."""

OLDEST = (1, 25)


class Choice:
    """Which implementation is next."""

    def __init__(self, forced: str | None = None) -> None:
        self.forced = forced
        self._worked = 0

    def expect(self, elements: int) -> None:
        """So many elements are about to come: plain Python need not begin with them."""
        self._worked += elements

    def vectors(self, elements: int) -> ModuleType | None:
        """The module that works on this many with numpy; None where plain Python does. Raises UsageMistake."""
        if self.forced is not None:
            return self._as_forced()
        if elements < FEW:
            self._worked += elements
            return None
        if self._worked + elements < PATIENCE and "numpy" not in sys.modules:
            self._worked += elements
            return None
        return _vectors()

    def _as_forced(self) -> ModuleType | None:
        """Raises UsageMistake: a run that is meant for numpy must not be green in plain Python."""
        if self.forced == "python":
            return None
        if self.forced == "numpy" and (found := _vectors()) is not None:
            return found
        wanted = f"numpy {'.'.join(map(str, OLDEST))} or newer"
        raise UsageMistake(
            f"{FORCE}={printable(str(self.forced), 40)}: say python, or numpy where {wanted} is installed"
        )

    @property
    def lacks_numpy(self) -> bool:
        """Whether numpy is missing, broken or too old: plain Python says the same, and takes longer."""
        return self.forced is None and _vectors() is None


@functools.cache
def _vectors() -> ModuleType | None:
    try:
        numpy = importlib.import_module("numpy")
        if tuple(map(int, numpy.__version__.split(".")[:2])) < OLDEST:
            return None
        return importlib.import_module("pytest_nsys.core.columns.vectors")
    except Exception:  # nobody knows how a broken one fails
        return None


CHOICE = Choice(os.environ.get(FORCE))


def operation(plain: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
    """``plain``, or the function of its name in ``vectors``: its work grows with the last column that it is given."""
    name = plain.__name__

    @functools.wraps(plain)
    def chosen(*asked: Asked.args, **named: Asked.kwargs) -> Answer:
        last = (
            asked[-1] if not isinstance(asked[-1], int) else next(a for a in reversed(asked) if not isinstance(a, int))
        )
        vectors = CHOICE.vectors(len(last))  # type: ignore[arg-type]
        if vectors is None:
            return plain(*asked, **named)
        answer: Answer = getattr(vectors, name)(*asked, **named)
        return answer

    return chosen
