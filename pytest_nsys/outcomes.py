"""What does pytest see of a verdict? Two exceptions and a warning, to be named in ``xfail``, ``-W`` and ``except``.

There is also the skip of a gate without a trace.
"""

from __future__ import annotations

import pytest

from pytest_nsys.core.text_format import sanitize_text


class BadVerdict(AssertionError):
    """Raised for a verdict that is not good; its text cannot control a terminal."""

    def __init__(self, text: str) -> None:
        super().__init__(sanitize_text(text))


class GateFailed(BadVerdict):
    """Raised for the verdict *failed*: a row is outside its limit."""


class GateNotJudged(BadVerdict):
    """Raised for *no data* or *incomparable*: nothing was judged, which is neither a pass nor an expected failure."""


class NotRun(pytest.skip.Exception):  # type: ignore[name-defined, misc]
    """Skips a gate without a trace: pytest counts it and continues."""


class NsysWarning(pytest.PytestWarning):
    """Warns about a gate that passed with a reservation: a stale baseline, ``severity: warn``, an early warning."""

    def __init__(self, text: str) -> None:
        super().__init__(sanitize_text(text))
