"""What does a notebook show of an object, and print() say? Modules that know how a type reads register here."""

from __future__ import annotations

from functools import singledispatch
from html import escape


@singledispatch
def _render_object_as_html(displayed: object) -> str:
    return f"<pre>{escape(repr(displayed))}</pre>"


@singledispatch
def _render_object_as_text(displayed: object) -> str:
    return repr(displayed)


register_renderer = _render_object_as_html.register
"""Register a function that renders the objects of a type as HTML."""

register_text_renderer = _render_object_as_text.register
"""Register a function that renders the objects of a type as lines of text."""


def render_object(displayed: object) -> str:
    """Render an object as HTML, in which no text is markup."""
    return _render_object_as_html(displayed)


def render_object_as_text(displayed: object) -> str:
    """Render an object as the text that print() writes."""
    return _render_object_as_text(displayed)
