"""How does a terminal tell what happened? A line for each gate file, then each root with the reds that it explains.

Of the first root the worst red is told whole, and the others in a line: however many ranks, assertions and
configurations there are, it fits on a screen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import merged
from pytest_nsys.core.numbers import format_apart
from pytest_nsys.core.words import counted, no_command, printable
from pytest_nsys.gates.model import Outcome
from pytest_nsys.reports.session.headline import of_session
from pytest_nsys.reports.session.record import Record
from pytest_nsys.reports.session.roots import called_in, root_sentence
from pytest_nsys.reports.session.session import Session, counts_words
from pytest_nsys.reports.session.story import NotJudged, Red, Story, is_of_kernels, story_of
from pytest_nsys.reports.words.explanation import NOTE, crossed_words, place, reason_words
from pytest_nsys.reports.words.roots import both_words

SHOWN_FILES = 6
SHOWN_ROOTS = 3
SHOWN_REDS = 3
SHOWN_MISTAKES = 5
SHOWN_WARNINGS, SHOWN_NOTES = 1, 1
WARNED = "warned"


def story_lines(session: Session, width: int, *, explained: bool = True) -> list[str]:
    """The lines of a session; without those that explain the worst reds where not ``explained``."""
    story = session.story
    lines = [*_files(story, session.records, width), *_not_judged(story.not_judged, explained=explained)]
    lines += root_lines(story, most=SHOWN_ROOTS, explained=explained)
    if moved := [record for record in session.bad if record.state in (Outcome.ACCEPTED, Outcome.IMPROVED)]:
        explained = explained and not story.reds
        lines += root_lines(story_of(session.records, moved), most=SHOWN_ROOTS, explained=explained)
    return [each for line in lines for each in wrapped(line, width)]


def wrapped(line: str, width: int) -> list[str]:
    """A line as several that are no wider, indented below it; a command in a way that a shell takes when copied."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    if _COMMAND.match(line):
        return [*_command(line, width)]
    return [no_command(part) for part in wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)]


_COMMAND = re.compile(r"(  next:  |         ) pytest-nsys ")


def _command(line: str, width: int) -> Iterator[str]:
    """A command, at each end of a line but the last with a backslash; then what it is for."""
    command, _, what = line.partition("  (")
    options, told = command.split(" --"), ""
    quoted = "'" in command
    for number, option in enumerate(options):
        part = f" --{option}" if number else option
        if told and not quoted and len(told) + len(part) + 2 > width:
            yield f"{told} \\"
            told = " " * 11 + part
        else:
            told += part
    if what and len(told) + len(what) + 3 <= width:
        yield f"{told}  ({what}"
    else:
        yield from (told, f"{' ' * 10}({what}") if what else (told,)


def _files(story: Story, records: Sequence[Record], width: int) -> Iterator[str]:
    """Each gate file, with all of its configurations, in a line: what held, or how many did not; the first warning of
    its verdicts, and all that makes its traces doubtful.
    """
    by_file = grouped((record.file, record) for record in records)
    for file, own in [*by_file.items()][:SHOWN_FILES]:
        configurations = len({record.configuration for record in own} - {""})
        name = f"{file} ({counted(configurations, 'configuration')})" if configurations > 1 else own[0].address
        session = Session(tuple(own))
        said = of_session(session) if session.good else counts_words(own)
        found = {record.found for record in own} - {""}
        measured = f"; {found.pop()}" if len(found) == 1 else ""
        yield printable(_cut(f"{name}: {said[:1].lower()}{said[1:]}", width - len(measured)) + measured, width)
        warned = [f"warning: {line}" for line in _warnings(own, told=story.warning)]
        doubts = [note.labelled for note in merged(n for record in own for n in record.verdict.notes) if note.warning]
        yield from (f"  {line}" for line in (*_first_of(warned), *doubts))
    if len(by_file) > SHOWN_FILES:
        rest = [record for own in [*by_file.values()][SHOWN_FILES:] for record in own]
        yield f"… {counted(len(by_file) - SHOWN_FILES, 'gate file')} more: {counts_words(rest)}"


def _first_of(warnings: Iterable[str]) -> Iterator[str]:
    """The first of the warnings, and how many there are more."""
    each = [*dict.fromkeys(warnings)]
    most = len(each) if len(each) == SHOWN_WARNINGS + 1 else SHOWN_WARNINGS  # a fold of one is a line too
    yield from each[:most]
    if len(each) > most:
        yield f"… {counted(len(each) - most, 'more warning')} (-v shows them)"


def _warnings(records: Sequence[Record], *, told: bool) -> Iterator[str]:
    """What verdicts say beside their outcome; what is outside its limit with ``severity: warn``, unless that is
    ``told`` as the reds are.
    """
    for record in records:
        if record.outcome is Outcome.FAILED and record.state == WARNED and not told:
            yield f"{record.title}: {reason_words(record.verdict)}"
        yield from (f"{record.title}: {text}" for text in record.verdict.warnings)


def _cut(said: str, width: int) -> str:
    """As much of a sentence as fits, to the end of a part of it."""
    while len(said) > width and (end := max(said.rfind(mark) for mark in (", ", ": ", "; "))) > 0:
        said = said[:end]
    return said


def _not_judged(mistakes: Sequence[NotJudged], *, explained: bool) -> Iterator[str]:
    """What kept assertions from being judged, once for the file."""
    bad = [mistake for mistake in mistakes if not all(record.good for record in mistake.records)]
    for number, mistake in enumerate(bad[:SHOWN_MISTAKES]):
        yield f"{mistake.outcome}: {mistake.message} ({_of(mistake.records)})"
        if explained and number < SHOWN_ROOTS:
            yield from _with_few_notes(mistake.records[0].explanation[1:])  # below the message
    if len(bad) > SHOWN_MISTAKES:
        rest = sum(len(mistake.records) for mistake in bad[SHOWN_MISTAKES:])
        yield f"… {counted(rest, 'more assertion')} not judged"


def _with_few_notes(explanation: Sequence[str]) -> Iterator[str]:
    """Without warnings, which stand below the gate file."""
    notes = [line for line in explanation if line.startswith(f"  {NOTE}")]
    yield from (line for line in explanation if line not in notes[SHOWN_NOTES:] and not line.startswith("  warning: "))


def _of(records: Sequence[Record]) -> str:
    """Of which assertions: the one, or how many of the file."""
    first = records[0]
    if len(records) == 1:
        return f"{first.assertion.location.at_line}: {first.title}"
    configurations = len({record.configuration for record in records})
    also = f", {counted(configurations, 'configuration')}" if configurations > 1 else ""
    return f"{counted(len(records), 'assertion')} of {first.file}{also}"


def root_lines(story: Story, *, most: int | None = None, explained: bool = False) -> Iterator[str]:
    """At ``most`` so many roots, each with its reds; where they are to be ``explained``, the worst red of the first
    root is told whole, and of each other root the worst red in a line.
    """
    parts = parts_of(story)
    several = sum(bool(words) for words, _ in parts) > 1
    for number, (words, reds) in enumerate(parts[:most]):
        if words:
            yield f"{number + 1}. {words}" if several else words
        whole = not explained or number == 0
        yield from _below(reds, "  " if words else "", most=SHOWN_REDS if whole else 1)
        if explained and whole:
            yield from _whole(reds[0].record)
    if most is not None and len(parts) > most:
        yield f"… {counted(len(parts) - most, 'more cause')} (-v shows them)"


def parts_of(story: Story) -> list[tuple[str, Sequence[Red]]]:
    """Each root with reds in a sentence, and those; then the reds below no root."""
    called = called_in(story)
    parts = [(root_sentence(root, story, called), root.reds) for root in story.roots if root.reds]
    return [*parts, *([("", story.unexplained)] if story.unexplained else [])]


def _below(reds: Sequence[Red], indent: str, *, most: int) -> Iterator[str]:
    """The reds of one root, at ``most`` so many lines: one for each assertion, that of the worst configuration, and for
    what several say.
    """
    groups = grouped((_told_as(red), red) for red in reds)
    for first, *same in [*groups.values()][:most]:
        record, records = first.record, [first.record, *(red.record for red in same)]
        name = record.full_name if same else record.title
        also = f" ({record.configuration}, …)" if same else ""
        if len({each.name for each in records}) > 1:
            name, also = _of(records), ""
        yield f"{indent}{record.state}  {name}: {reason_of(first)}{also}"
    if len(groups) > most:
        yield f"{indent}… {counted(len(groups) - most, 'more assertion')}"


def _told_as(red: Red) -> tuple[object, ...]:
    """What reds have in common that are one line: the sentence, or without a row what is said of it."""
    record = red.record
    return (record.file, record.line, record.name) if red.rows else (record.file, reason_of(red))


def reason_of(red: Red) -> str:
    """Why it is red, of its worst row below the root."""
    record, row = red.record, next(iter(red.rows), None)
    said = crossed_words(row, record.verdict) if row is not None else ""
    if row is not None and record.state == Outcome.IMPROVED and None not in (row.baseline, row.value):
        said = both_words(*format_apart(row.baseline or 0, row.value or 0, record.verdict.unit))
    if row is None or not said:  # as by a warning, or as an expected failure that did not happen
        return record.message.removeprefix(f"{record.full_name}: ")
    of_kernels = "the kernels of the step, " if is_of_kernels(record) else ""
    return of_kernels + ", ".join(filter(None, (said, place(row, record.verdict))))


def _whole(record: Record) -> Iterator[str]:
    """One red as its item tells it."""
    location, against = record.assertion.location, record.verdict.compared_with
    yield f"{location.at_line}: {record.assertion.sentence}"
    yield from _with_few_notes(record.explanation)
    if record.run:
        yield f"  run:    {record.run}" + (f" against {against}" if against else "")
