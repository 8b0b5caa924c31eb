"""How does a terminal show what happened? A line for each gate file, then each root with the failed assertions that it
explains.

Only the worst failed assertion of the first root is shown in full, each other one on a line, so that everything fits on
a screen however many ranks, assertions and configurations there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import COMMENT, merge_notes
from pytest_nsys.core.numbers import format_distinctly
from pytest_nsys.core.text_format import format_count, neutralize_commands, sanitize_line
from pytest_nsys.gates.model import Outcome
from pytest_nsys.reports.session.headline import format_headline
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.root_sentence import choose_story_names, format_root_sentence
from pytest_nsys.reports.session.session import Session, format_counts
from pytest_nsys.reports.session.story import NotJudged, RedAssertion, Story, build_story, measures_kernel_span
from pytest_nsys.reports.words.change_text import format_before_after
from pytest_nsys.reports.words.verdict_text import NOTE_PREFIX, describe_reason, format_crossed_limit, format_row_place

SHOWN_FILES = 6
SHOWN_ROOTS = 3
SHOWN_REDS = 3
SHOWN_MISTAKES = 5
SHOWN_WARNINGS, SHOWN_NOTES = 1, 1
WARNED = "warned"


def render_story_lines(session: Session, width: int, *, with_explanation: bool = True) -> list[str]:
    """Return the lines that show a session; explanations of the worst failures only ``with_explanation``."""
    story = session.story
    lines = [
        *_render_files(story, session.records, width),
        *_render_unjudged(story.not_judged, with_explanation=with_explanation),
    ]
    lines += render_root_lines(story, max_roots=SHOWN_ROOTS, with_explanation=with_explanation)
    if changed_records := [record for record in session.bad if record.state in (Outcome.ACCEPTED, Outcome.IMPROVED)]:
        with_explanation = with_explanation and not story.reds
        lines += render_root_lines(
            build_story(session.records, changed_records), max_roots=SHOWN_ROOTS, with_explanation=with_explanation
        )
    return [part for line in lines for part in wrap_line(line, width)]


def wrap_line(line: str, width: int) -> list[str]:
    """Return a line wrapped to ``width`` characters, continuation lines indented. Commands are broken so that they can
    be pasted into a shell.
    """
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    text, _, purpose = line.partition(COMMENT) if _STEP.match(line) else (line, "", "")
    if _COMMAND.match(line):
        lines = [*_wrap_command(text, width)]
    else:
        wrapped = wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)
        lines = [neutralize_commands(part) for part in wrapped]
    if not purpose:
        return lines
    joined_line = f"{lines[-1]}{COMMENT}{purpose}"
    return (
        [*lines[:-1], joined_line] if len(joined_line) <= width else [*lines, f"{' ' * 10}{COMMENT.strip()} {purpose}"]
    )


_STEP = re.compile(r"(  next:  |         ) ")
_COMMAND = re.compile(rf"{_STEP.pattern}pytest(-nsys)? ")


def _wrap_command(line: str, width: int) -> Iterator[str]:
    """Yield a command on several lines, all but the last ending in a backslash."""
    options, line_part = line.split(" --"), ""
    has_quotes = "'" in line
    for number, option in enumerate(options):
        part = f" --{option}" if number else option
        if line_part and not has_quotes and len(line_part) + len(part) + 2 > width:
            yield f"{line_part} \\"
            # Eleven spaces align it with the command, which follows "  next:  ".
            line_part = " " * 11 + part
        else:
            line_part += part
    yield line_part


def _render_files(story: Story, records: Sequence[AssertionRecord], width: int) -> Iterator[str]:
    """Yield a line for each gate file with all of its configurations: how many assertions held, or how many did not.

    Below each line come the first warnings of its verdicts, and all doubts about its traces.
    """
    by_file = group_by_key((record.file, record) for record in records)
    for file, file_records in [*by_file.items()][:SHOWN_FILES]:
        configurations = len({record.configuration for record in file_records} - {""})
        name = (
            f"{file} ({format_count(configurations, 'configuration')})"
            if configurations > 1
            else file_records[0].address
        )
        session = Session(tuple(file_records))
        result = format_headline(session) if session.good else format_counts(file_records)
        detected_conventions = {record.detected_convention for record in file_records} - {""}
        convention_text = f"; {detected_conventions.pop()}" if len(detected_conventions) == 1 else ""
        yield sanitize_line(
            _shorten_sentence(f"{name}: {result[:1].lower()}{result[1:]}", width - len(convention_text))
            + convention_text,
            width,
        )
        warning_lines = [f"warning: {line}" for line in _list_warnings(file_records, is_told=story.is_warning)]
        doubts = [
            note.labelled_text
            for note in merge_notes(note for record in file_records for note in record.verdict.notes)
            if note.warning
        ]
        yield from (f"  {line}" for line in (*_limit_warnings(warning_lines), *doubts))
    if len(by_file) > SHOWN_FILES:
        other_records = [record for file_records in [*by_file.values()][SHOWN_FILES:] for record in file_records]
        yield f"… {format_count(len(by_file) - SHOWN_FILES, 'gate file')} more: {format_counts(other_records)}"


def _limit_warnings(warnings: Iterable[str]) -> Iterator[str]:
    """Yield the first of the warnings, and how many more there are."""
    distinct = [*dict.fromkeys(warnings)]
    limit = len(distinct) if len(distinct) == SHOWN_WARNINGS + 1 else SHOWN_WARNINGS  # "1 more" would take a line too
    yield from distinct[:limit]
    if len(distinct) > limit:
        yield f"… {format_count(len(distinct) - limit, 'more warning')} (-v shows them)"


def _list_warnings(records: Sequence[AssertionRecord], *, is_told: bool) -> Iterator[str]:
    """Yield the warnings of verdicts.

    An assertion that is outside its limit with ``severity: warn`` is a warning too, unless ``is_told``: the story shows
    it already.
    """
    for record in records:
        if record.outcome is Outcome.FAILED and record.state == WARNED and not is_told:
            yield f"{record.title}: {describe_reason(record.verdict)}"
        yield from (f"{record.title}: {text}" for text in record.verdict.warnings)


def _shorten_sentence(sentence: str, width: int) -> str:
    """Return as much of a sentence as fits, cut at the end of a clause."""
    while len(sentence) > width and (end := max(sentence.rfind(separator) for separator in (", ", ": ", "; "))) > 0:
        sentence = sentence[:end]
    return sentence


def _render_unjudged(unjudged: Sequence[NotJudged], *, with_explanation: bool) -> Iterator[str]:
    """Yield why assertions could not be judged, each reason once per gate file."""
    bad = [reason for reason in unjudged if not all(record.good for record in reason.records)]
    for number, reason in enumerate(bad[:SHOWN_MISTAKES]):
        yield f"{reason.outcome}: {reason.message} ({_describe_records(reason.records)})"
        if with_explanation and number < SHOWN_ROOTS:
            yield from _limit_notes(reason.records[0].explanation[1:])  # its first line is the message
    if len(bad) > SHOWN_MISTAKES:
        omitted_count = sum(len(reason.records) for reason in bad[SHOWN_MISTAKES:])
        yield f"… {format_count(omitted_count, 'more assertion')} not judged"


def _limit_notes(explanation: Sequence[str]) -> Iterator[str]:
    """Yield the lines of an explanation with only its first note, and without warnings, which the gate file's lines
    show.
    """
    notes = [line for line in explanation if line.startswith(f"  {NOTE_PREFIX}")]
    yield from (line for line in explanation if line not in notes[SHOWN_NOTES:] and not line.startswith("  warning: "))


def _describe_records(records: Sequence[AssertionRecord]) -> str:
    """Return which assertions these are: the name of a single one, or how many of the gate file."""
    first = records[0]
    if len(records) == 1:
        return f"{first.assertion.location.file_and_line}: {first.title}"
    configurations = len({record.configuration for record in records})
    configuration_text = f", {format_count(configurations, 'configuration')}" if configurations > 1 else ""
    return f"{format_count(len(records), 'assertion')} of {first.file}{configuration_text}"


def render_root_lines(story: Story, *, max_roots: int | None = None, with_explanation: bool = False) -> Iterator[str]:
    """Yield the lines of at most ``max_roots`` roots, each with its failed assertions.

    ``with_explanation`` shows the worst failed assertion of the first root in full, and that of each other root on one
    line.
    """
    parts = list_story_parts(story)
    is_numbered = sum(bool(sentence) for sentence, _ in parts) > 1
    for number, (sentence, reds) in enumerate(parts[:max_roots]):
        if sentence:
            yield f"{number + 1}. {sentence}" if is_numbered else sentence
        is_whole = not with_explanation or number == 0
        yield from _render_reds(reds, "  " if sentence else "", max_lines=SHOWN_REDS if is_whole else 1)
        if with_explanation and is_whole:
            yield from _render_whole_red(reds[0].record)
    if max_roots is not None and len(parts) > max_roots:
        yield f"… {format_count(len(parts) - max_roots, 'more cause')} (-v shows them)"


def list_story_parts(story: Story) -> list[tuple[str, Sequence[RedAssertion]]]:
    """Return a pair of sentence and failed assertions for each root that has any; then those without a root, with an
    empty sentence.
    """
    display_names = choose_story_names(story)
    parts = [(format_root_sentence(root, story, display_names), root.reds) for root in story.roots if root.reds]
    return [*parts, *([("", story.unexplained_reds)] if story.unexplained_reds else [])]


def _render_reds(reds: Sequence[RedAssertion], indent: str, *, max_lines: int) -> Iterator[str]:
    """Yield at most ``max_lines`` lines for the failed assertions of one root.

    Each assertion has one line, for its worst configuration; assertions whose lines would read the same share one.
    """
    groups = group_by_key((_find_line_key(red), red) for red in reds)
    for first, *other_reds in [*groups.values()][:max_lines]:
        record, records = first.record, [first.record, *(red.record for red in other_reds)]
        name = record.full_name if other_reds else record.title
        configuration_text = f" ({record.configuration}, …)" if other_reds else ""
        if len({alike.name for alike in records}) > 1:
            name, configuration_text = _describe_records(records), ""
        yield f"{indent}{record.state}  {name}: {describe_red_reason(first)}{configuration_text}"
    if len(groups) > max_lines:
        yield f"{indent}… {format_count(len(groups) - max_lines, 'more assertion')}"


def _find_line_key(red: RedAssertion) -> tuple[object, ...]:
    """Return the key by which failed assertions share a line: the gate-file sentence, or the reason if there is no
    row.
    """
    record = red.record
    return (record.file, record.line, record.name) if red.rows else (record.file, describe_red_reason(red))


def describe_red_reason(red: RedAssertion) -> str:
    """Return why an assertion failed, by its worst row that the root explains."""
    record, row = red.record, next(iter(red.rows), None)
    limit_text = format_crossed_limit(row, record.verdict) if row is not None else ""
    if row is not None and record.state == Outcome.IMPROVED and None not in (row.baseline, row.value):
        limit_text = format_before_after(*format_distinctly(row.baseline or 0, row.value or 0, record.verdict.unit))
    if row is None or not limit_text:  # for instance by a warning, or an expected failure that did not happen
        return record.message.removeprefix(f"{record.full_name}: ")
    of_kernels = "the kernels of the step, " if measures_kernel_span(record) else ""
    return of_kernels + ", ".join(filter(None, (limit_text, format_row_place(row, record.verdict))))


def _render_whole_red(record: AssertionRecord) -> Iterator[str]:
    """Yield the lines of one failed assertion as pytest shows them for its item."""
    location, baseline_path = record.assertion.location, record.verdict.compared_with
    yield f"{location.file_and_line}: {record.assertion.sentence}"
    yield from _limit_notes(record.explanation)
    if record.run:
        yield f"  run:    {record.run}" + (f" against {baseline_path}" if baseline_path else "")
