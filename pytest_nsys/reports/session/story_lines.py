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
    """Return the lines that tell of a session; those that explain the worst reds only ``with_explanation``."""
    story = session.story
    lines = [*_files(story, session.records, width), *_not_judged(story.not_judged, explained=explained)]
    lines += root_lines(story, most=SHOWN_ROOTS, explained=explained)
    if changed_records := [record for record in session.bad if record.state in (Outcome.ACCEPTED, Outcome.IMPROVED)]:
        explained = explained and not story.reds
        lines += root_lines(story_of(session.records, changed_records), most=SHOWN_ROOTS, explained=explained)
    return [part for line in lines for part in wrapped(line, width)]


def wrapped(line: str, width: int) -> list[str]:
    """Return a line as several that are no wider, indented below it; a command breaks so that a shell takes it when
    copied.
    """
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    if _COMMAND.match(line):
        return [*_command(line, width)]
    return [no_command(part) for part in wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)]


_COMMAND = re.compile(r"(  next:  |         ) pytest-nsys ")


def _command(line: str, width: int) -> Iterator[str]:
    """Yield a command on several lines, each but the last with a backslash at its end; then what it is for."""
    command, _, purpose = line.partition("  (")
    options, line_part = command.split(" --"), ""
    has_quotes = "'" in command
    for number, option in enumerate(options):
        part = f" --{option}" if number else option
        if line_part and not has_quotes and len(line_part) + len(part) + 2 > width:
            yield f"{line_part} \\"
            line_part = " " * 11 + part
        else:
            line_part += part
    if purpose and len(line_part) + len(purpose) + 3 <= width:
        yield f"{line_part}  ({purpose}"
    else:
        yield from (line_part, f"{' ' * 10}({purpose}") if purpose else (line_part,)


def _files(story: Story, records: Sequence[Record], width: int) -> Iterator[str]:
    """Yield a line for each gate file with all of its configurations: what held, or how many did not.

    Below it stand the first warning of its verdicts, and all that makes its traces doubtful.
    """
    by_file = grouped((record.file, record) for record in records)
    for file, file_records in [*by_file.items()][:SHOWN_FILES]:
        configurations = len({record.configuration for record in file_records} - {""})
        name = f"{file} ({counted(configurations, 'configuration')})" if configurations > 1 else file_records[0].address
        session = Session(tuple(file_records))
        result = of_session(session) if session.good else counts_words(file_records)
        detected_conventions = {record.found for record in file_records} - {""}
        convention_text = f"; {detected_conventions.pop()}" if len(detected_conventions) == 1 else ""
        yield printable(
            _cut(f"{name}: {result[:1].lower()}{result[1:]}", width - len(convention_text)) + convention_text, width
        )
        warning_lines = [f"warning: {line}" for line in _warnings(file_records, told=story.warning)]
        doubts = [
            note.labelled
            for note in merged(note for record in file_records for note in record.verdict.notes)
            if note.warning
        ]
        yield from (f"  {line}" for line in (*_first_of(warning_lines), *doubts))
    if len(by_file) > SHOWN_FILES:
        other_records = [record for file_records in [*by_file.values()][SHOWN_FILES:] for record in file_records]
        yield f"… {counted(len(by_file) - SHOWN_FILES, 'gate file')} more: {counts_words(other_records)}"


def _first_of(warnings: Iterable[str]) -> Iterator[str]:
    """Yield the first of the warnings, and how many more there are."""
    distinct = [*dict.fromkeys(warnings)]
    limit = len(distinct) if len(distinct) == SHOWN_WARNINGS + 1 else SHOWN_WARNINGS  # a fold of one is a line too
    yield from distinct[:limit]
    if len(distinct) > limit:
        yield f"… {counted(len(distinct) - limit, 'more warning')} (-v shows them)"


def _warnings(records: Sequence[Record], *, told: bool) -> Iterator[str]:
    """Yield what verdicts warn of.

    An assertion that is outside its limit with ``severity: warn`` warns too, unless that ``is_told`` as the reds are.
    """
    for record in records:
        if record.outcome is Outcome.FAILED and record.state == WARNED and not told:
            yield f"{record.title}: {reason_words(record.verdict)}"
        yield from (f"{record.title}: {text}" for text in record.verdict.warnings)


def _cut(said: str, width: int) -> str:
    """Return as much of a sentence as fits, to the end of a part of it."""
    while len(said) > width and (end := max(said.rfind(separator) for separator in (", ", ": ", "; "))) > 0:
        said = said[:end]
    return said


def _not_judged(mistakes: Sequence[NotJudged], *, explained: bool) -> Iterator[str]:
    """Yield what kept assertions from being judged, once for each file."""
    bad = [reason for reason in mistakes if not all(record.good for record in reason.records)]
    for number, reason in enumerate(bad[:SHOWN_MISTAKES]):
        yield f"{reason.outcome}: {reason.message} ({_of(reason.records)})"
        if explained and number < SHOWN_ROOTS:
            yield from _with_few_notes(reason.records[0].explanation[1:])  # its first line is the message
    if len(bad) > SHOWN_MISTAKES:
        omitted_count = sum(len(reason.records) for reason in bad[SHOWN_MISTAKES:])
        yield f"… {counted(omitted_count, 'more assertion')} not judged"


def _with_few_notes(explanation: Sequence[str]) -> Iterator[str]:
    """Yield the lines of an explanation with its first note alone, and without warnings, which stand below the gate
    file.
    """
    notes = [line for line in explanation if line.startswith(f"  {NOTE}")]
    yield from (line for line in explanation if line not in notes[SHOWN_NOTES:] and not line.startswith("  warning: "))


def _of(records: Sequence[Record]) -> str:
    """Return which assertions these are: the one, or how many of the file."""
    first = records[0]
    if len(records) == 1:
        return f"{first.assertion.location.at_line}: {first.title}"
    configurations = len({record.configuration for record in records})
    configuration_text = f", {counted(configurations, 'configuration')}" if configurations > 1 else ""
    return f"{counted(len(records), 'assertion')} of {first.file}{configuration_text}"


def root_lines(story: Story, *, most: int | None = None, explained: bool = False) -> Iterator[str]:
    """Yield at most ``max_roots`` roots, each with its reds.

    ``with_explanation`` tells the worst red of the first root whole, and of each other root the worst red in a line.
    """
    parts = parts_of(story)
    is_numbered = sum(bool(sentence) for sentence, _ in parts) > 1
    for number, (sentence, reds) in enumerate(parts[:most]):
        if sentence:
            yield f"{number + 1}. {sentence}" if is_numbered else sentence
        is_whole = not explained or number == 0
        yield from _below(reds, "  " if sentence else "", most=SHOWN_REDS if is_whole else 1)
        if explained and is_whole:
            yield from _whole(reds[0].record)
    if most is not None and len(parts) > most:
        yield f"… {counted(len(parts) - most, 'more cause')} (-v shows them)"


def parts_of(story: Story) -> list[tuple[str, Sequence[Red]]]:
    """Return each root that has reds as a sentence with its reds; then the reds without a root, with no sentence."""
    display_names = called_in(story)
    parts = [(root_sentence(root, story, display_names), root.reds) for root in story.roots if root.reds]
    return [*parts, *([("", story.unexplained)] if story.unexplained else [])]


def _below(reds: Sequence[Red], indent: str, *, most: int) -> Iterator[str]:
    """Yield at most ``max_lines`` lines for the reds of one root.

    There is one line for each assertion, of its worst configuration, and one for reds that say the same.
    """
    groups = grouped((_told_as(red), red) for red in reds)
    for first, *other_reds in [*groups.values()][:most]:
        record, records = first.record, [first.record, *(red.record for red in other_reds)]
        name = record.full_name if other_reds else record.title
        configuration_text = f" ({record.configuration}, …)" if other_reds else ""
        if len({alike.name for alike in records}) > 1:
            name, configuration_text = _of(records), ""
        yield f"{indent}{record.state}  {name}: {reason_of(first)}{configuration_text}"
    if len(groups) > most:
        yield f"{indent}… {counted(len(groups) - most, 'more assertion')}"


def _told_as(red: Red) -> tuple[object, ...]:
    """Return what reds have in common that share a line: the sentence, or without a row what is said of it."""
    record = red.record
    return (record.file, record.line, record.name) if red.rows else (record.file, reason_of(red))


def reason_of(red: Red) -> str:
    """Return why an assertion is red, by its worst row below the root."""
    record, row = red.record, next(iter(red.rows), None)
    limit_text = crossed_words(row, record.verdict) if row is not None else ""
    if row is not None and record.state == Outcome.IMPROVED and None not in (row.baseline, row.value):
        limit_text = both_words(*format_apart(row.baseline or 0, row.value or 0, record.verdict.unit))
    if row is None or not limit_text:  # as by a warning, or as an expected failure that did not happen
        return record.message.removeprefix(f"{record.full_name}: ")
    of_kernels = "the kernels of the step, " if is_of_kernels(record) else ""
    return of_kernels + ", ".join(filter(None, (limit_text, place(row, record.verdict))))


def _whole(record: Record) -> Iterator[str]:
    """Yield the lines of one red as pytest shows it at its item."""
    location, baseline_path = record.assertion.location, record.verdict.compared_with
    yield f"{location.at_line}: {record.assertion.sentence}"
    yield from _with_few_notes(record.explanation)
    if record.run:
        yield f"  run:    {record.run}" + (f" against {baseline_path}" if baseline_path else "")
