"""What pytest sees of a verdict: two exceptions and a warning, to be named in ``xfail``, ``-W`` and ``except``."""

from __future__ import annotations

import pytest


class GateFailed(AssertionError):
    """The verdict *failed*: a row is outside its limit."""


class GateNotJudged(AssertionError):
    """*No data* or *incomparable*: nothing was judged, which is no pass and no expected failure."""


class NsysWarning(pytest.PytestWarning):
    """A gate that passed with something to say: a stale baseline, ``severity: warn``, an early warning."""
