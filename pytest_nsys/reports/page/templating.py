"""How does a page leave: one self-contained HTML file, light and dark, without network, every name escaped?

Templates are Jinja with autoescape on. What stands unescaped is ours alone: style, script, and JSON in which no
character could end its element.
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
from pytest_nsys.reports.tables.formats import sanitize_json

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

TemplateData = dict[str, Any]
"""What a template draws, under the names that it uses."""

CHARACTER_WIDTH_PX = 7
"""About so wide is a character of a label; a little wider than it is."""

LABEL_WIDTHS_PX = (290, 450, 600, 800, 1100)
"""Widths of a picture in pixels for which the style has a class of labels: narrower pictures go without these labels.
"""

NARROWEST_CLASS = f"over{LABEL_WIDTHS_PX[0]}"

TEMPLATE_FOLDER = Path(__file__).with_name("templates")


def render_page(name: str, *, interactive: bool, **values: Any) -> str:
    """Return the page of a template. An ``interactive`` page has timelines, and gets the script that zooms them."""
    from markupsafe import Markup

    script = _read_template_file("timeline.js") if interactive else ""
    text = load_template(name).render(
        style=Markup(_read_template_file("page.css")),
        script=Markup(script),
        policy=_build_security_policy(script),
        **values,
    )
    # Names from traces may hold lone surrogates, which no UTF-8 file can.
    return text.encode("utf-8", "replace").decode("utf-8")


@cache
def load_template(name: str) -> Template:
    """Return a template, which is compiled once in a process."""
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
    """Return a word of a command, in which no line breaks, while one may break before an option."""
    from markupsafe import Markup, escape

    return Markup("<span>{}</span>").format(word) if word.startswith("-") else escape(word)


def embed_json(value: Any) -> str:
    """Return JSON for a ``<script>``: nothing in it ends the element, whatever names it holds."""
    text = sanitize_json(json.dumps(value, separators=(",", ":")))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


LONG_WORD = 24
"""A word of more characters may break."""


def break_words(text: str) -> list[str]:
    """Return the text in pieces between which a line may break, besides at blanks.

    It breaks in long words: behind what is no letter or digit, else before a capital letter, and anywhere in what has
    neither.
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
"""The blank at which no line breaks."""

_BLANKS_TO_KEEP = re.compile(rf"(?<=\d) (?=(?:{'|'.join((*NANOSECONDS, *BYTES, 'pp'))})\b|→)|(?<=→) (?=\d)")


def keep_units_together(text: str) -> str:
    """Return the text in which no line parts a number from its unit, or from the number that it became."""
    return _BLANKS_TO_KEEP.sub(NO_BREAK, text)


def _read_template_file(name: str) -> str:
    return (TEMPLATE_FOLDER / name).read_text(encoding="utf-8")


def _build_security_policy(script: str) -> str:
    """Return what the browser may do: nothing over the network, and no script but this one."""
    script_source = f"; script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" if script else ""
    return f"default-src 'none'; style-src 'unsafe-inline'{script_source}; base-uri 'none'; form-action 'none'"


def choose_label(text: str, share: Fraction) -> tuple[str, str] | None:
    """Return a label and the class of pictures that have it, for what takes a share of a picture's width.

    Narrower pictures, in which it would reach beyond, go without it; None where every picture does. The script, which
    knows the width, writes its own labels.
    """
    needed_px = Fraction(CHARACTER_WIDTH_PX * (len(text) + 1))
    return next(((text, f"over{width}") for width in LABEL_WIDTHS_PX if share * width >= needed_px), None)


def format_css_percent(share: Fraction) -> str:
    """Return a share as CSS has it: ``12.5%``."""
    return f"{float(100 * share):.3f}".rstrip("0").rstrip(".") + "%"
