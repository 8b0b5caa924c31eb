"""How is a page rendered: as one self-contained HTML file, light and dark, without network, with every name escaped?

Templates are Jinja with autoescape on. Only our own style and script are unescaped, and JSON whose characters cannot
end its element.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from fractions import Fraction
from functools import cache
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_nsys.core.units import BYTES, NANOSECONDS
from pytest_nsys.core.version import make_page_url
from pytest_nsys.reports.tables.formats import sanitize_json

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

TemplateData = dict[str, Any]
"""The data of a template, by the names that it uses."""

CHARACTER_WIDTH_PX = 7
"""The assumed width of a label's character, slightly more than its real width."""

LABEL_WIDTHS_PX = (290, 450, 600, 800, 1100)
"""Widths of a picture in pixels for which the style has a class of labels: narrower pictures hide these labels."""

NARROWEST_CLASS = f"over{LABEL_WIDTHS_PX[0]}"

TEMPLATE_FOLDER = Path(__file__).with_name("templates")


def render_page(name: str, *, interactive: bool, **values: Any) -> str:
    """Return the page rendered from a template. An ``interactive`` page has timelines, and gets the script that zooms
    them.
    """
    from markupsafe import Markup

    script = _read_template_file("timeline.js") if interactive else ""
    text = load_template(name).render(
        style=Markup(_read_template_file("page.css")),
        script=Markup(script),
        policy=_build_security_policy(script),
        glossary_url=make_page_url("glossary"),
        **values,
    )
    # Names from traces may hold lone surrogates, which no UTF-8 file can.
    return text.encode("utf-8", "replace").decode("utf-8")


@cache
def load_template(name: str) -> Template:
    """Return a template; it is compiled once per process."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        loader=FileSystemLoader(TEMPLATE_FOLDER, encoding="utf-8"),
    )
    environment.filters["data"] = lambda value: Markup(embed_json(value))
    environment.filters["command"] = lambda value: Markup(" ").join(map(_format_command_word, str(value).split(" ")))
    environment.filters["breakable"] = lambda value: Markup("<wbr>").join(break_words(keep_units_together(str(value))))
    return environment.get_template(name)


def _format_command_word(word: str) -> Markup:
    """Return a word of a command as markup: no line break inside, but one allowed before an option."""
    from markupsafe import Markup, escape

    return Markup("<span>{}</span>").format(word) if word.startswith("-") else escape(word)


def embed_json(value: Any) -> str:
    """Return JSON for a ``<script>`` element, escaped so that no name in it can end the element."""
    text = sanitize_json(json.dumps(value, separators=(",", ":")))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


LONG_WORD = 24
"""A word with more characters may be broken."""


def break_words(text: str) -> list[str]:
    """Return the text in pieces; a line may break between them, in addition to spaces.

    Long words are split after characters that are not letters or digits, else before capital letters, else anywhere.
    """
    parts = [""]
    for word in re.findall(r"\S+|\s+", text):
        pieces = re.findall(r"[^\W_]+[\W_]*|[\W_]+", word) if len(word) > LONG_WORD else [word]
        finer = (re.findall(r"[A-Z]*[^A-Z]+|[A-Z]+", piece) if len(piece) > LONG_WORD else [piece] for piece in pieces)
        first_piece, *other_pieces = [
            piece[start : start + LONG_WORD] for piece in chain(*finer) for start in range(0, len(piece), LONG_WORD)
        ]
        parts[-1] += first_piece
        parts += other_pieces
    return parts


NO_BREAK = "\u00a0"
"""The no-break space."""

_BLANKS_TO_KEEP = re.compile(rf"(?<=\d) (?=(?:{'|'.join((*NANOSECONDS, *BYTES, 'pp'))})\b|→)|(?<=→) (?=\d)")


def keep_units_together(text: str) -> str:
    """Return the text with no-break spaces between a number and its unit, and within ``before → after``."""
    return _BLANKS_TO_KEEP.sub(NO_BREAK, text)


def _read_template_file(name: str) -> str:
    return (TEMPLATE_FOLDER / name).read_text(encoding="utf-8")


def _build_security_policy(script: str) -> str:
    """Return the content security policy: nothing over the network, and no script but this one."""
    script_source = f"; script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" if script else ""
    return f"default-src 'none'; style-src 'unsafe-inline'{script_source}; base-uri 'none'; form-action 'none'"


def choose_label(text: str, share: Fraction) -> tuple[str, str] | None:
    """Return a label and its CSS class, for an element that takes a ``share`` of a picture's width.

    The class hides the label in pictures that are too narrow for it; None if it fits into no picture. The script, which
    knows the real width, writes its own labels.
    """
    needed_px = Fraction(CHARACTER_WIDTH_PX * (len(text) + 1))
    return next(((text, f"over{width}") for width in LABEL_WIDTHS_PX if share * width >= needed_px), None)


def format_css_percent(share: Fraction) -> str:
    """Return a share in CSS syntax: ``12.5%``."""
    return f"{float(100 * share):.3f}".rstrip("0").rstrip(".") + "%"
