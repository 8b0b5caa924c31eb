"""What does pytest see of a verdict? Two exceptions and a warning, to be named in ``xfail``, ``-W`` and ``except``.

Beside them what it sees where no verdict was tried for.
"""

from __future__ import annotations

import pytest

from pytest_nsys.core.text_format import sanitize_text


class BadVerdict(AssertionError):
    """Tells pytest of a verdict that is not good, in a text that commands no terminal."""

    def __init__(self, text: str) -> None:
        super().__init__(sanitize_text(text))


class GateFailed(BadVerdict):
    """Tells pytest of the verdict *failed*: a row is outside its limit."""


class GateNotJudged(BadVerdict):
    """Tells pytest of *no data* or *incomparable*: nothing was judged, which is no pass and no expected failure."""


class NotRun(pytest.skip.Exception):  # type: ignore[name-defined, misc]
    """Skips a gate where no trace was given, so there is nothing to judge: pytest counts it and goes on."""


class NsysWarning(pytest.PytestWarning):
    """Warns of a gate that passed with something to say: a stale baseline, ``severity: warn``, an early warning."""

    def __init__(self, text: str) -> None:
        super().__init__(sanitize_text(text))
