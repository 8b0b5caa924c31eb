"""What pytest sees of a verdict: two exceptions and a warning, to be named in ``xfail``, ``-W`` and ``except``.

Beside them what it sees where none was tried for.
"""

from __future__ import annotations

import pytest

from pytest_nsys.core.words import fit_to_print


class BadVerdict(AssertionError):
    """What pytest prints of a verdict that is not good, which commands no terminal."""

    def __init__(self, text: str) -> None:
        super().__init__(fit_to_print(text))


class GateFailed(BadVerdict):
    """The verdict *failed*: a row is outside its limit."""


class GateNotJudged(BadVerdict):
    """*No data* or *incomparable*: nothing was judged, which is no pass and no expected failure."""


class NotRun(pytest.skip.Exception):  # type: ignore[name-defined, misc]
    """No trace was given, so there is nothing to judge: a skip, which pytest counts and goes on."""


class NsysWarning(pytest.PytestWarning):
    """A gate that passed with something to say: a stale baseline, ``severity: warn``, an early warning."""

    def __init__(self, text: str) -> None:
        super().__init__(fit_to_print(text))
