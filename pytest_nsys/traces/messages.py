"""Which words of a profiler's own message may a report show? None that names a machine, a person, a path or a command
line.

Reports leave the machine; nobody asked for its name in them. So a word that can be such a name becomes ``…``: what is
quoted, an option and what follows it, what has a slash, a sign or digits in it, and the names that the trace knows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from pytest_nsys.core.model import Diagnostic

HIDDEN = "…"

# So short a name would be found in words that are none.
SHORTEST = 2

# DEVICE_DISPLAY_NAME is what nsys calls the host.
_OF_A_MACHINE = re.compile(r"host|user|display_?name|machine|node", re.IGNORECASE)
_QUOTED = re.compile(r"""(?<!\w)(['"`])(?:(?!\1).)*\1(?!\w)""")
_OPTION = re.compile(r"(?<!\S)--?[A-Za-z]\S*(?: (?!-)[^\s.,;:]+)?")
_NAMES = re.compile(r"[/\\@=~$|<>{}]|[A-Za-z][-_.]*\d|\d[-_]*[A-Za-z]|[A-Za-z]{2}\.[A-Za-z]{2}|\d+(?:\.\d+){3}|:.*:")
_REPEATED = re.compile(rf"{HIDDEN}(?:\W*{HIDDEN})+")


def names_in(stated: Iterable[tuple[object, object]]) -> list[str]:
    """Return the values of a trace's settings, name and value, that name a machine or a user."""
    return [
        str(value) for name, value in stated if _OF_A_MACHINE.search(str(name)) and len(str(value or "")) > SHORTEST
    ]


def diagnostics(messages: Iterable[object], stated: Iterable[tuple[object, object]]) -> tuple[Diagnostic, ...]:
    """Return the messages of a trace that states all these settings of where it ran, with and without names."""
    private = names_in(stated)
    return tuple(Diagnostic(str(text), without_names(str(text), private)) for text in messages)


def without_names(text: str, private: Collection[str] = ()) -> str:
    """Return the message with ``…`` for each word that can be a name; ``private_names`` are those that certainly
    are.
    """
    names = {name.lower() for name in private}
    remaining_text = _OPTION.sub(HIDDEN, _QUOTED.sub(HIDDEN, text))
    return _REPEATED.sub(HIDDEN, " ".join(_shown(word, names) for word in remaining_text.split()))


def _shown(word: str, private: Collection[str]) -> str:
    core = word.strip(".,;:!?()[]'\"")
    is_name = core and (_NAMES.search(core) or any(name in core.lower() for name in private))
    return word.replace(core, HIDDEN) if is_name else word
