"""What does a notebook show of an object? What knows how it reads registers that for its type, which does not know."""

from __future__ import annotations

from functools import singledispatch
from html import escape


@singledispatch
def _html(shown: object) -> str:
    return f"<pre>{escape(repr(shown))}</pre>"


register = _html.register
"""Say how objects of a type are shown."""


def html_of(shown: object) -> str:
    """HTML, in which no text is markup."""
    return _html(shown)
