"""How does a session read on GitHub? Markdown for the summary of a job or a comment, never over its limit of size.

What comes from somebody else's trace or gate file stands in code spans, where nothing of it is markup, a mention or a
link; sentences of our own that may hold such names are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from pytest_nsys.analysis.explain.parts import Explained
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Note, Step, merged
from pytest_nsys.core.words import counted, printable
from pytest_nsys.merge_base.base_verdict import TITLE, BaseVerdict
from pytest_nsys.merge_base.differences import count_differences
from pytest_nsys.reports.session.headline import as_sentence, of_session
from pytest_nsys.reports.session.record import Record
from pytest_nsys.reports.session.session import (
    NotRunFile,
    Session,
    by_address,
    counts_words,
    find_run,
    list_baselines,
    list_windows,
)
from pytest_nsys.reports.session.story import NotJudged, Red, worst_first
from pytest_nsys.reports.session.story_lines import SHOWN_REDS, parts_of, reason_of
from pytest_nsys.reports.session.two_sides import beside, tables
from pytest_nsys.reports.tables.formats import CellKind, Column, Table, escape_markdown, number, table_of
from pytest_nsys.reports.words.causes import (
    MOST_PARTS,
    by_cause,
    change_of,
    labels_words,
    leading_words,
    shared_words,
    why_cells,
)
from pytest_nsys.reports.words.explanation import (
    ACCEPT,
    SHOWN_DETAILS,
    difference_table,
    folded_table,
    rows_to_show,
)
from pytest_nsys.verdicts.comparison import Comparison

AT_MOST_BYTES = 900 * 1024
"""GitHub takes 1 MiB for all that a step writes: some of it is left to others."""

SHOWN_CAUSES = 3
SHOWN_NAMES = 10
SHOWN_RUNS = 2
FOLDED = 5
"""From so many rows on, a table that may be folded up is."""

SOMEBODYS = (CellKind.LABEL, CellKind.NAME)
"""Kinds of columns whose cells come from a trace or a gate file, and stand in code spans."""

OPENS, CLOSES = "<details>", "</details>"
HEAD = 2
"""How many lines of a table stand before its rows."""


def code(text: str) -> str:
    """Return text as it is, in a code span; empty text stays empty."""
    clean = printable(text, 400)
    if not clean.strip():
        return ""
    fence = "`" * (max((len(backticks) for backticks in re.findall("`+", clean)), default=0) + 1)
    pad = " " if clean[0] in "` " or clean[-1] in "` " else ""
    return f"{fence}{pad}{clean}{pad}{fence}"


def cell(text: str) -> str:
    """Return a code span for a cell of a table, which ends at any bar but an escaped one, also inside code."""
    return code(text).replace("|", "\\|")


def prose(text: str) -> str:
    """Return a sentence of ours, in which names that may stand in it are no markup."""
    return re.sub(r"([_$#])", r"\\\1", escape_markdown(text, 2000))


def summary(session: Session, at_most_bytes: int = AT_MOST_BYTES, *, verbose: bool = False) -> str:
    """Return the whole summary in Markdown, cut with a line that says so where it would be too long.

    With ``verbose`` it has every row of a comparison.
    """
    return cut(list(_parts(session, verbose=verbose)), at_most_bytes)


def cut(parts: Sequence[str], at_most_bytes: int) -> str:
    """Return as many of the parts, a line or more each, as fit, and how much was cut."""
    whole = "".join(part + "\n" for part in parts)
    if len(whole.encode("utf-8", "replace")) <= at_most_bytes:
        return whole
    cut_note = "\n{}**Cut here: too long for GitHub.** {} more lines; the JSON report holds everything.\n"
    # 40 bytes are for the number in the note and for the end of a <details> that is open at the cut.
    room = at_most_bytes - len(cut_note.encode()) - 40
    part_count, size = 0, 0
    for part in parts:
        size += len(part.encode("utf-8", "replace")) + 1
        if size > room:
            break
        part_count += 1
    omitted_lines = sum(part.count("\n") + 1 for part in parts[part_count:])
    shown_text = "".join(part + "\n" for part in parts[:part_count])
    is_open = shown_text.count(f"\n{OPENS}") > shown_text.count(f"\n{CLOSES}")
    return shown_text + cut_note.format(f"{CLOSES}\n\n" if is_open else "", omitted_lines)


def _parts(session: Session, *, verbose: bool) -> Iterator[str]:
    """Yield the lines of the summary in order."""
    yield from (f"## {prose(of_session(session))}", "")
    yield from (prose(session.in_short), "")
    if session.bad:
        yield from (
            line
            for records in [*session.files.values()][:SHOWN_RUNS]
            if find_run(records).run
            for line in (f"{as_sentence(_about(records))}.", "")
        )
    if session.comparison is not None:
        yield from _two_sides(session.comparison, verbose=verbose)
    if session.merge_base is not None:
        yield from merge_base_parts(session.merge_base, {record.explained for record in session.bad})
    if session.mistakes:
        yield from ("### Not judged", "")
        for mistake in session.mistakes:
            yield f"- {code(mistake.place)}: {prose(mistake.text)}"
        yield ""
    if session.not_run:
        yield from ("### Not run", "", *map(_not_run, session.not_run), "")
    if session.refreshed:
        refreshed_lines = (f"- {prose(line.strip())}" for line in session.refreshed)
        yield from ("### Baselines that this run wrote", "", *refreshed_lines, "")
    yield from _story(session)
    for records in grouped((record.file, record) for record in session.records).values():
        yield from _gate_file(records, folded=bool(session.bad))


def _two_sides(comparison: Comparison, *, verbose: bool) -> Iterator[str]:
    yield from (f"{prose('. '.join(beside(comparison)))}.", "")
    for table in tables(comparison, verbose=verbose):
        rows = "\n".join(_printed(table)).rstrip("\n")
        if table.folded and len(table.rows) > FOLDED:
            title = f"{prose(table.caption)} ({len(table.rows) + table.more})"
            yield from _folded(title, [rows])
        else:
            yield from (f"### {prose(table.caption)}", "", rows, "")


def _not_run(file: NotRunFile) -> str:
    return f"- {code(file.name)}: {counted(len(file.assertions), 'assertion')}: {prose(file.why)}"


def merge_base_parts(verdict: BaseVerdict, told: Collection[str] = ()) -> Iterator[str]:
    """Yield lines on what the gate of the merge base says, and on what of its files the branch changes, with the diffs.

    ``told_texts`` are the texts of reds that the summary tells elsewhere.
    """
    yield from (f"### {as_sentence(TITLE)}: {'red' if verdict.red else 'green'}", "", f"{prose(verdict.headline)}.", "")
    yield from (f"- {prose(red.splitlines()[0])}" for red in verdict.reds if red in told)
    yield ""
    untold_reds = [red for red in verdict.reds if red not in told]
    for red in untold_reds[:SHOWN_CAUSES]:
        yield from (*fenced(red), "")
    if omitted_count := len(untold_reds[SHOWN_CAUSES:]):
        yield from (f"… {counted(omitted_count, 'more red')}.", "")
    lines = [*verdict.accepted, *(gate.words for gate in verdict.judged)]
    lines += [f"new, judged by this branch alone: {path}" for path in verdict.new]
    yield from (f"- {prose(line)}" for line in (*lines, *verdict.notes))
    yield ""
    if verdict.differences:
        yield from (f"Differs from the merge base: {count_differences(verdict.differences)}.", "")
        yield from (f"- {prose(difference.words)}" for difference in verdict.differences)
        yield ""
    for difference in verdict.differences:
        if difference.diff:
            yield from _folded(code(difference.file), fenced("\n".join(difference.diff), "diff"))


def fenced(text: str, language: str = "") -> list[str]:
    """Return a text of several lines as a block of code, whatever it holds."""
    fence = "`" * max(3, 1 + max((len(backticks) for backticks in re.findall("`+", text)), default=0))
    return [f"{fence}{language}", *text.splitlines(), fence]


def _name(name: str) -> Column:
    return Column(name, CellKind.NAME)


def _printed(table: Table, bold: Sequence[int] = ()) -> Iterator[str]:
    """Yield the lines of a table: names and labels in code spans, and how many rows were left out.

    ``bold_rows`` are the rows whose first cell is bold.
    """
    lines = table.markdown(lambda column, text: (cell if column.kind in SOMEBODYS else prose)(text))
    for n in (n + HEAD for n in bold):
        lines[n] = re.sub(r"^\| (.*?) \|", r"| **\1** |", lines[n])
    yield from (*lines, "")
    if table.more:
        yield from (f"… {counted(table.more, 'more row')}.", "")


def _story(session: Session) -> Iterator[str]:
    """Yield each root with the reds that it explains, of which the worst is told whole; other open assertions are
    folded.
    """
    story, told_sentences = session.story, list[tuple[str, int, str]]()
    parts, accept_commands = parts_of(story), dict[str, str]()
    for words, reds in parts[:SHOWN_CAUSES]:
        if len(parts) > 1:
            yield from (f"### {prose(words or as_sentence(reds[0].record.state))}", "")
        elif len(reds) > 1:
            yield from ("### What failed for it", "")
        if len(reds) > 1:
            yield from _printed(_reds(reds))
        worst_record = next((red.record for red in reds if _sentence(red.record) not in told_sentences), None)
        if worst_record is not None:
            told_sentences.append(_sentence(worst_record))
            yield from _details(worst_record, [step for step in worst_record.next_steps if step.what != ACCEPT])
            accept_commands |= {step.command: step.what for step in worst_record.next_steps if step.what == ACCEPT}
    for command, purpose in accept_commands.items():
        yield from (f"To {purpose}: {code(command)}", "")
    if story.not_judged:
        yield from ("### Not judged", "", *map(_mistake, story.not_judged[:SHOWN_NAMES]), "")
    records_by_sentence = grouped(
        (_sentence(record), record) for record in worst_first(session.records) if record.is_open
    )
    other_records = [
        worst_record for sentence, (worst_record, *_) in records_by_sentence.items() if sentence not in told_sentences
    ]
    title = f"{counted(len(other_records), 'other assertion')} to look at"
    rooted_sentences = {_sentence(red.record) for root in story.roots for red in root.reds}
    yield from _folded(
        title,
        [
            line
            for record in other_records
            for line in _details(record, () if _sentence(record) in rooted_sentences else record.next_steps)
        ],
    )


def _sentence(record: Record) -> tuple[str, int, str]:
    """Return what an assertion has in common with itself in other configurations."""
    return record.file, record.line, record.name


def _reds(reds: Sequence[Red]) -> Table:
    """Return a table with a row for each assertion, of its worst configuration."""
    by_assertion = grouped((_sentence(red.record), red) for red in reds)
    rows = [
        (
            first.record.state,
            first.record.full_name if other_reds else first.record.title,
            reason_of(first),
            f"{first.record.configuration}, {len(other_reds)} more" if other_reds else "",
        )
        for first, *other_reds in by_assertion.values()
    ]
    columns: list[str | Column] = ["verdict", _name("assertion"), "why"]
    columns += [_name("configuration")] if any(row[-1] for row in rows) else []
    return table_of("", columns, (row[: len(columns)] for row in rows), SHOWN_REDS, longest=2000)


def _mistake(mistake: NotJudged) -> str:
    count = counted(len(mistake.records), "assertion")
    return f"- {code(mistake.records[0].file)}: {count}: {mistake.outcome}: {prose(mistake.message)}"


def _gate_file(records: Sequence[Record], *, folded: bool) -> Iterator[str]:
    """Yield the lines of a gate file: a table for each configuration, what failed first; folded where ``folded``."""
    configurations, lines = by_address(records), list[str]()
    title = records[0].file if len(configurations) > 1 else records[0].address
    for address, address_records in configurations.items():
        lines += [f"#### {code(address)}", ""] if len(configurations) > 1 else []
        lines += _table_of(address_records)
    windows = _windows(records)
    doubts = [f"- **Doubtful**: {prose(note.text)}" for note in _notes(records) if note.warning]
    if folded:
        yield from (*doubts, "") if doubts else ()
        yield from _folded(f"{code(title)}: {counts_words(records)}", [*lines, *windows])
    else:
        yield from (f"### {code(title)}", "", *([*doubts, ""] if doubts else []), *lines)
        yield from _folded("Windows and notes", windows)


def _about(records: Sequence[Record]) -> str:
    """Return what was judged, and against which baselines."""
    run, baselines = find_run(records).run, list_baselines(records)
    phrases = [f"run {code(run)}"] if run else []
    return "; ".join([*phrases, *([f"against {', '.join(map(code, baselines))}"] if baselines else [])])


def _table_of(records: Sequence[Record]) -> Iterator[str]:
    """Yield the table of some assertions, those that failed first."""
    run_line = _about(records)
    yield from (run_line, "") if run_line else ()
    columns = (
        "verdict",
        _name("assertion"),
        number("value"),
        "limit",
        number("headroom"),
        "smallest change",
        "worst row",
    )
    sorted_records = sorted(records, key=lambda record: (record.good, not record.is_open))
    bad_rows = range(sum(not record.good for record in sorted_records))
    yield from _printed(table_of("", columns, map(_cells, sorted_records), longest=2000), bad_rows)


def _windows(records: Sequence[Record]) -> list[str]:
    """Return list items with the windows, and then the notes and warnings, of some assertions."""
    windows = [(measured_as, window_lines) for measured_as, window_lines in list_windows(records) if window_lines]
    lines = [
        f"- {prose(measured_as)}\n" + "\n".join(f"  - {prose(window)}" for window in window_lines)
        for measured_as, window_lines in windows
    ]
    notes = [note.text for note in _notes(records) if not note.warning]
    warnings = [text for record in records for text in record.verdict.warnings]
    return [*lines, *(f"- {prose(note)}" for note in dict.fromkeys([*notes, *warnings]))]


def _notes(records: Iterable[Record]) -> Sequence[Note]:
    return merged(note for record in records for note in record.verdict.notes)


def _folded(title: str, items: Sequence[str]) -> Iterator[str]:
    """Yield items below a title at which they unfold; nothing without items."""
    if items:
        yield from (f"{OPENS}<summary>{title}</summary>\n", *items, f"\n{CLOSES}\n")


def _cells(record: Record) -> tuple[str, ...]:
    worst = record.worst
    place = worst["row"] + (f", worst of {record.rows}" if worst["row"] and record.rows > 1 and not record.good else "")
    reason = "" if worst["value"] else record.message
    cells = (record.full_name, worst["value"], worst["limit"], record.headroom, record.smallest_change, place or reason)
    return record.state, *cells


def _details(record: Record, next_steps: Sequence[Step]) -> Iterator[str]:
    """Yield all that is told of one assertion: its message, its rows, what changed, why, and what to do next."""
    verdict, sentence = record.verdict, record.assertion.sentence
    yield from (f"#### {record.state}: {code(record.title)} (line {record.line})", "")
    yield from (f"{prose(as_sentence(record.message))}.", "")
    if sentence not in ("", record.full_name):
        yield from (f"The sentence: {code(sentence)}", "")
    rows, same_text = folded_table(verdict, rows_to_show(verdict))
    for table in (rows, difference_table(verdict, 400)):
        yield from _printed(table) if table.rows else ()
    if same_text:
        yield from (f"{prose(as_sentence(same_text))}.", "")
    if verdict.details:
        yield from ("What changed:", "", *(f"- {prose(line)}" for line in verdict.details[:SHOWN_DETAILS]), "")
    yield from _causes(verdict.causes, same_told=bool(same_text))
    if next_steps:
        steps = [code(step.command) + (f" ({prose(step.what)})" if step.what else "") for step in next_steps]
        yield from ("Next:", "", *(f"- {step}" for step in steps), "")


def _causes(rows: Sequence[Explained], *, same_told: bool) -> Iterator[str]:
    """Yield what is behind the worst row, and a line for each group of rows with another cause."""
    for number_, (row, *same_rows) in enumerate(by_cause(rows)[:SHOWN_CAUSES]):
        cells = why_cells(row, MOST_PARTS)
        place, change = prose(labels_words(row.labels)), prose(change_of(row))
        if not cells:
            continue
        if number_:
            yield from (f"- {prose(shared_words([row, *same_rows]))}: {prose(leading_words(row))}", "")
            continue
        yield from (f"Why {place} changed{f' by {change}' if change else ''}:", "")
        yield from _printed(table_of("", (number(""), "cause"), cells, longest=400))
        yield from (f"The same: {prose(shared_words(same_rows))}.", "") if same_rows and not same_told else ()
