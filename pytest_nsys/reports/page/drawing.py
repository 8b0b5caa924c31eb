"""What do the pictures of the page share?"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

Drawn = dict[str, Any]
"""What a template draws, under the names that it uses."""

LEAST_LABELLED = Fraction(7, 100)
"""Of a picture's width that a part takes into which its name or share is written; the script knows better."""


def percent(share: Fraction) -> str:
    """``12.5%``."""
    return f"{float(100 * share):.3f}".rstrip("0").rstrip(".") + "%"
