"""What does a notebook show of an object? Modules that know how a type reads register a renderer here."""

from __future__ import annotations

from functools import singledispatch
from html import escape


@singledispatch
def _html(shown: object) -> str:
    return f"<pre>{escape(repr(shown))}</pre>"


register = _html.register
"""Register a function that renders the objects of a type."""


def html_of(shown: object) -> str:
    """Render an object as HTML, in which no text is markup."""
    return _html(shown)
