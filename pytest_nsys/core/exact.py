"""How is an exact value stored, so that it is read back as it was? A whole number as it is, any other as ``a/b``.

In JSON: ``123`` or ``"a/b"``. Where a column holds text alone: ``123`` or ``a/b``.
"""

from __future__ import annotations

import re
from fractions import Fraction

from pytest_nsys.core.model import Value, printable
from pytest_nsys.core.statistics import exact

Exact = int | str | None
"""A value as JSON has it; None where there is none."""

_TEXT = re.compile(r"(-?[0-9]{1,400})(?:/([1-9][0-9]{0,400}))?")


def as_exact(value: Value | None) -> Exact:
    """The value as JSON has it."""
    return value if value is None or isinstance(value, int) else f"{value.numerator}/{value.denominator}"


def exact_text(value: Value | None) -> str | None:
    """The value as text has it."""
    return None if value is None else str(value)


def from_exact(stored: Exact) -> Value | None:
    """The value that :func:`as_exact` or :func:`exact_text` wrote. Raises ValueError."""
    return None if stored is None else exact_value(stored)


def exact_value(stored: object) -> Value:
    """The same, of what must be there and may be anything. Raises ValueError."""
    if isinstance(stored, int) and not isinstance(stored, bool):
        return stored
    match = _TEXT.fullmatch(stored) if isinstance(stored, str) else None
    if match is None:
        raise ValueError(f'{printable(repr(stored), 60)} is no value: a whole number or "a/b"')
    return exact(Fraction(int(match[1]), int(match[2] or 1)))
