"""How is our text printed where the encoding of a terminal or a log lacks its signs? A minus becomes a hyphen.

Python asks the stream's error handler for what the encoding lacks, so this is the one place, whoever prints.
"""

from __future__ import annotations

import codecs
import io

HANDLER = "pytest-nsys-plain"
PLAIN = {
    "\u2212": "-",
    "\u2013": "-",
    "\u2014": "-",
    "\u2026": "...",
    "\u2192": "->",
    "\u00d7": "x",
    "\u00b1": "+-",
    "\u2265": ">=",
    "\u2264": "<=",
    "\u00b7": ".",
    "\u00a0": " ",
    "\u202f": " ",
}
"""Signs of our texts, and what stands for them in ASCII."""


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    said = "".join(PLAIN.get(sign) or sign.encode("ascii", "backslashreplace").decode() for sign in lacking)
    return said, error.end


def print_plainly(stream: object) -> None:
    """Have a text stream print what its encoding lacks in plain signs, and the rest as escapes, in place of failing."""
    if isinstance(stream, io.TextIOWrapper):
        codecs.register_error(HANDLER, _plain)
        stream.reconfigure(errors=HANDLER)
