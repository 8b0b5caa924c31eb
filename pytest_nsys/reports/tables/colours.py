"""Which parts of a line have a colour on a terminal? Verdict words, and what got worse or better.

The lines are those that are printed without colours, so that both read the same.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping


class Tone(enum.StrEnum):
    """What a piece of text says; the value is its colour on a terminal."""

    BAD = "red"
    DOUBTFUL = "yellow"
    GOOD = "green"


_TONES: Mapping[str, Tone] = {
    **dict.fromkeys(("failed", "error", "incomparable", "no data", "worse", "gone", "red"), Tone.BAD),
    **dict.fromkeys(("warned", "waived", "xfailed", "expected", "inconclusive", "accepted"), Tone.DOUBTFUL),
    **dict.fromkeys(("undecided", "not judged", "nothing judged", "warning", "doubtful"), Tone.DOUBTFUL),
    **dict.fromkeys(("improved", "better", "passed", "nothing worse", "green"), Tone.GOOD),
}
"""The tone of each word that says how something ended."""

_WORDS = "|".join(sorted(_TONES, key=len, reverse=True))
_LEADING_WORD = re.compile(rf"^ *(?P<word>{_WORDS})(?=:|  )", re.IGNORECASE)
_COUNTS = re.compile(r": \d+ assertions?: .*$")
_COUNT = re.compile(rf"\b\d+ (?P<word>{_WORDS})\b")
_STEP = re.compile(r"\b[\d.]+% (?P<slower>slower)\b|\b[\d.]+% faster\b|\b(?P<times>\d+ times as long)\b")
_AMOUNT = r"(?P<amount>[+−-][\d.]+(?:%| [A-Za-z]+))(?=  |$)"
_LEADING_AMOUNT = re.compile(rf"^ +{_AMOUNT}")
_CELL = re.compile(rf"(?<=  ){_AMOUNT}")

Piece = tuple[str, Tone | None]
"""Some text of a line and its tone; None where it has no colour."""


def colour_lines(lines: Iterable[str]) -> Iterator[list[Piece]]:
    """Yield the pieces of each line, which together are the line.

    A change in a table has the tone of the verdict at the start of its line, or of the last verdict above it.
    """
    tone_above: Tone | None = None
    for line in lines:
        if not line.startswith(" "):
            tone_above = None
        spans: list[tuple[int, int, Tone]] = []
        tone_above = tone = _find_leading_tone(line, spans) or tone_above
        if amount := _LEADING_AMOUNT.search(line):  # a cause: by how much the time grew
            tone = Tone.BAD if amount["amount"][0] == "+" else Tone.GOOD
            spans.append((*amount.span("amount"), tone))
        elif tone in (Tone.BAD, Tone.GOOD):
            spans += [(*cell.span("amount"), tone) for cell in _CELL.finditer(line)]
        for step in _STEP.finditer(line):
            spans.append((*step.span(), Tone.BAD if step["slower"] or step["times"] else Tone.GOOD))
        if counts := _COUNTS.search(line):
            spans += [(*count.span(), _TONES[count["word"].lower()]) for count in _COUNT.finditer(line, counts.start())]
        yield [*_cut_at_spans(line, spans)]


def _find_leading_tone(line: str, spans: list[tuple[int, int, Tone]]) -> Tone | None:
    """Add the span of the verdict word at the start of a line, and return its tone; None where there is none."""
    if (word := _LEADING_WORD.match(line)) is None:
        return None
    tone = _TONES[word["word"].lower()]
    spans.append((*word.span("word"), tone))
    return tone


def _cut_at_spans(line: str, spans: Iterable[tuple[int, int, Tone]]) -> Iterator[Piece]:
    end = 0
    for span_start, span_end, tone in sorted(spans):
        if span_start >= end:
            yield line[end:span_start], None
            yield line[span_start:span_end], tone
            end = span_end
    yield line[end:], None
