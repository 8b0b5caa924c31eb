"""Which words of a profiler's own message may a report show? None that names a machine, a person, a path or a command
line.

Reports are shared with people who should not learn these names. So a word that may be such a name becomes ``…``:
anything quoted, an option and its argument, words with a slash, a sign or digits, and the names that the trace states.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from pytest_nsys.core.model import Diagnostic

HIDDEN_NAME = "…"

# Names this short would also be found inside ordinary words.
LONGEST_IGNORED_NAME = 2

# DEVICE_DISPLAY_NAME is what nsys calls the host.
_MACHINE_SETTING = re.compile(r"host|user|display_?name|machine|node", re.IGNORECASE)
_QUOTED_TEXT = re.compile(r"""(?<!\w)(['"`])(?:(?!\1).)*\1(?!\w)""")
_OPTION = re.compile(r"(?<!\S)--?[A-Za-z]\S*(?: (?!-)[^\s.,;:]+)?")
_POSSIBLE_NAME = re.compile(
    r"[/\\@=~$|<>{}]|[A-Za-z][-_.]*\d|\d[-_]*[A-Za-z]|[A-Za-z]{2}\.[A-Za-z]{2}|\d+(?:\.\d+){3}|:.*:"
)
_REPEATED_HIDDEN = re.compile(rf"{HIDDEN_NAME}(?:\W*{HIDDEN_NAME})+")


def list_private_names(settings: Iterable[tuple[object, object]]) -> list[str]:
    """Return the values of a trace's (name, value) settings that name a machine or a user."""
    return [
        str(value)
        for name, value in settings
        if _MACHINE_SETTING.search(str(name)) and len(str(value or "")) > LONGEST_IGNORED_NAME
    ]


def build_diagnostics(messages: Iterable[object], settings: Iterable[tuple[object, object]]) -> tuple[Diagnostic, ...]:
    """Return the messages of a trace, each with and without private names; ``settings`` state where the trace ran."""
    private = list_private_names(settings)
    return tuple(Diagnostic(str(text), hide_names(str(text), private)) for text in messages)


def hide_names(text: str, private_names: Collection[str] = ()) -> str:
    """Return the message with ``…`` for each word that may be a name; ``private_names`` certainly are."""
    names = {name.lower() for name in private_names}
    remaining_text = _OPTION.sub(HIDDEN_NAME, _QUOTED_TEXT.sub(HIDDEN_NAME, text))
    return _REPEATED_HIDDEN.sub(HIDDEN_NAME, " ".join(_hide_word(word, names) for word in remaining_text.split()))


def _hide_word(word: str, private_names: Collection[str]) -> str:
    core = word.strip(".,;:!?()[]'\"")
    is_name = core and (_POSSIBLE_NAME.search(core) or any(name in core.lower() for name in private_names))
    return word.replace(core, HIDDEN_NAME) if is_name else word
