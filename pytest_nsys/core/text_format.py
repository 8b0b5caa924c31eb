"""How do counts, labels, paths and a stranger's names become one line of text that any terminal can show?

Where the encoding of a terminal or a log lacks our signs a minus becomes a hyphen. Python asks the stream's error
handler for what the encoding lacks, so that is the one place, whoever prints.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

LabelPairs = Mapping[str, object] | Iterable[tuple[str, object]]
"""The coordinates of a row, each with its dimension."""

# Labels that say nothing without their dimension.
VAGUE_LABELS = ("other", "unknown")


def format_labels_in_full(labels: LabelPairs) -> str:
    """Format a row's labels, each with its dimension, as a history stores them: ``rank 0 stage stage2_f``."""
    return " ".join(f"{dimension} {label}" for dimension, label in _list_label_pairs(labels))


def format_labels(labels: LabelPairs) -> str:
    """Format a row's labels for people: a name speaks for itself, ``rank 0 stage2_f``, ``rank 0 no stage``."""
    return " ".join(_format_label(dimension, label) for dimension, label in _list_label_pairs(labels))


def _format_label(dimension: str, label: object) -> str:
    if label == "none":
        return f"no {dimension}"
    is_name = isinstance(label, str) and label[:1].isalpha() and label not in VAGUE_LABELS
    return str(label) if is_name else f"{dimension} {label}"


def _list_label_pairs(labels: LabelPairs) -> Iterable[tuple[str, object]]:
    return labels.items() if isinstance(labels, Mapping) else labels


def format_rank_ranges(numbers: Sequence[int]) -> str:
    """Format numbers of ranks as ranges: ``0–3, 5``."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def format_count(number: int, noun: str) -> str:
    """Format a count with its noun: ``1 row``, ``3 rows``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def limit_lines(lines: Sequence[str], limit: int, rest_text: str = "… {} more") -> list[str]:
    """Return the first ``limit`` lines, and a line that says how many there are besides."""
    rest = len(lines) - limit
    return [*lines[:limit], *([rest_text.format(rest)] if rest > 0 else [])]


def format_ranks(ranks: Sequence[int], limit: int = 8) -> str:
    """Format ranks as ``rank 3`` or ``ranks 0, 2``; of many the first, and ``…``."""
    rank_list = ", ".join(map(str, ranks[:limit])) + (" …" if len(ranks) > limit else "")
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {rank_list}"


def is_or_are(number: int) -> str:
    """Return ``is`` for one thing, ``are`` for several."""
    return "is" if number == 1 else "are"


# Azure Pipelines reads ``##[…]`` and ``##vso[…]`` anywhere in a line, GitHub Actions ``::…`` at its start.
_CI_COMMAND = re.compile(r"#(?=#\w*\[)|^(?:\s*:)(?=:)")


def neutralize_commands(text: str) -> str:
    """Return ``text`` in which a CI system finds no command: ``##[…]`` and ``##name[…]`` anywhere, ``::…`` at the
    start.
    """
    return _CI_COMMAND.sub(r"\g<0> ", text) if "##" in text or "::" in text else text


def sanitize_line(text: str, limit: int = 200) -> str:
    """Put ``text`` on one line, without control characters, cut at ``limit``: fit for a terminal, and for a log of CI.

    Names in a trace come from somebody else's program and may hold escape sequences, or what CI takes for a command.
    """
    text = neutralize_commands(_replace_controls(text[: limit + 1]))
    return text if len(text) <= limit else text[: limit - 1] + "…"


_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


def sanitize_text(text: str, *, keep_colours: bool = False) -> str:
    """Take out of lines of text what commands a terminal or a CI system: all that is printed goes through here.

    Who writes a line has made each name in it one line (:func:`sanitize_line`); this holds where one was forgotten.
    With ``keep_colours`` colours stay.
    """
    clean = _sanitize_coloured_line if keep_colours else _replace_controls
    return "\n".join(neutralize_commands(clean(line)) for line in text.split("\n"))


def _sanitize_coloured_line(line: str) -> str:
    pieces = _COLOUR.split(line)  # every other one is a colour
    return "".join(piece if number % 2 else _replace_controls(piece) for number, piece in enumerate(pieces))


# Spaces at which no line is broken: of our texts, and harmless.
_OUR_SPACES = "\u00a0\u202f"


def _replace_controls(text: str) -> str:
    """Put a sign in place of each control and format character: escapes, line ends, marks of direction."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _OUR_SPACES else "�" for c in text)


def has_words(reason: str) -> bool:
    """Whether a reason says anything: the … of a command that is shown does not."""
    return any(map(str.isalnum, reason))


def quote_command(words: Iterable[str]) -> str:
    """Quote words as a shell takes them, on one line without control characters: a file may have any name."""
    return " ".join(shlex.quote(word) if word.isprintable() else f"$'{_escape_word(word)}'" for word in words)


def _escape_word(word: str) -> str:
    characters = (c if c.isprintable() else "".join(f"\\x{byte:02x}" for byte in os.fsencode(c)) for c in word)
    return "".join(f"\\{c}" if c in "\\'" else c for c in characters)


def can_encode(text: str, encoding: str) -> bool:
    """Whether an encoding, as that of a terminal, has every character of ``text``."""
    try:
        text.encode(encoding)
    except (UnicodeError, LookupError):
        return False
    return True


def list_folders_up(start_folder: Path, root: Path | None = None) -> tuple[Path, ...]:
    """Return ``start_folder`` and those above it, up to ``root`` or the repository's top, whichever is higher."""
    folders = (start_folder, *start_folder.parents)
    tops = [folders.index(root)] if root in folders else []
    tops += [n for n, folder in enumerate(folders) if (folder / ".git").exists()][:1]
    return folders[: max(tops, default=0) + 1]


def shorten_paths(text: str, start_folder: Path | None = None, root: Path | None = None) -> str:
    """Shorten paths in a text to what a person in ``start_folder`` would type.

    A report leaves the machine, its folders need not.

    A folder itself, as the top of a repository, is called by its name.
    """
    if os.sep not in text:
        return text
    try:
        folders = list_folders_up(start_folder or Path.cwd(), root)
    except OSError:  # the folder is gone
        return text
    for n, folder in enumerate(folders):
        folder_pattern = rf"(?<![\w.~-]){re.escape(str(folder))}"
        text = re.sub(folder_pattern + re.escape(os.sep), (f"..{os.sep}" * n).replace("\\", "\\\\"), text)
        text = re.sub(rf"{folder_pattern}(?![\w.-])", folder.name.replace("\\", "\\\\"), text)
    return text


ERROR_HANDLER = "pytest-nsys-plain"
# Signs of our texts, and what stands for them in ASCII.
ASCII_SIGNS = {
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


def _replace_unencodable(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing_text = error.object[error.start : error.end]
    replacement = "".join(
        ASCII_SIGNS.get(sign) or sign.encode("ascii", "backslashreplace").decode() for sign in missing_text
    )
    return replacement, error.end


def configure_plain_output(stream: object) -> None:
    """Have a text stream print what its encoding lacks in plain signs, and the rest as escapes, in place of failing."""
    if isinstance(stream, io.TextIOWrapper):
        codecs.register_error(ERROR_HANDLER, _replace_unencodable)
        stream.reconfigure(errors=ERROR_HANDLER)
