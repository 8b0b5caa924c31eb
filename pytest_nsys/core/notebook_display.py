"""What does a notebook show of an object? Modules that know how a type reads register a renderer here."""

from __future__ import annotations

from functools import singledispatch
from html import escape


@singledispatch
def _render_object_as_html(displayed: object) -> str:
    return f"<pre>{escape(repr(displayed))}</pre>"


register_renderer = _render_object_as_html.register
"""Register a function that renders the objects of a type."""


def render_object(displayed: object) -> str:
    """Render an object as HTML, in which no text is markup."""
    return _render_object_as_html(displayed)
