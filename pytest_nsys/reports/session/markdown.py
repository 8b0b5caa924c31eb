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
"""GitHub takes 1 MiB for all that a step writes: some is left to others."""

SHOWN_CAUSES = 3
SHOWN_NAMES = 10
SHOWN_RUNS = 2
FOLDED = 5
"""From so many rows on, a table that may be folded away is."""

SOMEBODYS = (CellKind.LABEL, CellKind.NAME)
"""What columns hold that is in code spans."""

OPENS, CLOSES = "<details>", "</details>"
HEAD = 2
"""The lines of a table before its rows."""


def code(text: str) -> str:
    """``text`` as it is, in a code span; empty text stays empty."""
    clean = printable(text, 400)
    if not clean.strip():
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", clean)), default=0) + 1)
    pad = " " if clean[0] in "` " or clean[-1] in "` " else ""
    return f"{fence}{pad}{clean}{pad}{fence}"


def cell(text: str) -> str:
    """A code span for a table, which ends its cell at any bar but an escaped one, also inside code."""
    return code(text).replace("|", "\\|")


def prose(text: str) -> str:
    """A sentence of ours that may hold somebody else's names."""
    return re.sub(r"([_$#])", r"\\\1", escape_markdown(text, 2000))


def summary(session: Session, at_most_bytes: int = AT_MOST_BYTES, *, verbose: bool = False) -> str:
    """The whole summary; cut with a line that says so where it would be too long. ``verbose`` has every row of a
    comparison.
    """
    return cut(list(_parts(session, verbose=verbose)), at_most_bytes)


def cut(parts: Sequence[str], at_most_bytes: int) -> str:
    """As many of the parts, a line or more each, as fit."""
    whole = "".join(part + "\n" for part in parts)
    if len(whole.encode("utf-8", "replace")) <= at_most_bytes:
        return whole
    said = "\n{}**Cut here: too long for GitHub.** {} more lines; the JSON report holds everything.\n"
    room = at_most_bytes - len(said.encode()) - 40
    kept, size = 0, 0
    for part in parts:
        size += len(part.encode("utf-8", "replace")) + 1
        if size > room:
            break
        kept += 1
    left = sum(part.count("\n") + 1 for part in parts[kept:])
    shown = "".join(part + "\n" for part in parts[:kept])
    is_open = shown.count(f"\n{OPENS}") > shown.count(f"\n{CLOSES}")
    return shown + said.format(f"{CLOSES}\n\n" if is_open else "", left)


def _parts(session: Session, *, verbose: bool) -> Iterator[str]:
    yield from (f"## {prose(of_session(session))}", "")
    yield from (prose(session.in_short), "")
    if session.bad:
        yield from (
            line
            for own in [*session.files.values()][:SHOWN_RUNS]
            if find_run(own).run
            for line in (f"{as_sentence(_about(own))}.", "")
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
        written = (f"- {prose(line.strip())}" for line in session.refreshed)
        yield from ("### Baselines that this run wrote", "", *written, "")
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
    """What the gate of the merge base says, and what of its files the branch changes, of gate files with the diff.

    ``told`` are texts of reds that stand beside it.
    """
    yield from (f"### {as_sentence(TITLE)}: {'red' if verdict.red else 'green'}", "", f"{prose(verdict.headline)}.", "")
    yield from (f"- {prose(red.splitlines()[0])}" for red in verdict.reds if red in told)
    yield ""
    own = [red for red in verdict.reds if red not in told]
    for red in own[:SHOWN_CAUSES]:
        yield from (*fenced(red), "")
    if left := len(own[SHOWN_CAUSES:]):
        yield from (f"… {counted(left, 'more red')}.", "")
    lines = [*verdict.accepted, *(gate.words for gate in verdict.judged)]
    lines += [f"new, judged by this branch alone: {path}" for path in verdict.new]
    yield from (f"- {prose(line)}" for line in (*lines, *verdict.notes))
    yield ""
    if verdict.differences:
        yield from (f"Differs from the merge base: {count_differences(verdict.differences)}.", "")
        yield from (f"- {prose(each.words)}" for each in verdict.differences)
        yield ""
    for each in verdict.differences:
        if each.diff:
            yield from _folded(code(each.file), fenced("\n".join(each.diff), "diff"))


def fenced(text: str, language: str = "") -> list[str]:
    """A text of several lines as a block of code, whatever it holds."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return [f"{fence}{language}", *text.splitlines(), fence]


def _name(name: str) -> Column:
    return Column(name, CellKind.NAME)


def _printed(table: Table, bold: Sequence[int] = ()) -> Iterator[str]:
    """A table: names and labels in code spans, and how many rows were left out; ``bold`` are the rows whose first cell
    is.
    """
    lines = table.markdown(lambda column, text: (cell if column.kind in SOMEBODYS else prose)(text))
    for n in (n + HEAD for n in bold):
        lines[n] = re.sub(r"^\| (.*?) \|", r"| **\1** |", lines[n])
    yield from (*lines, "")
    if table.more:
        yield from (f"… {counted(table.more, 'more row')}.", "")


def _story(session: Session) -> Iterator[str]:
    """Each root with the reds that it explains, of which the worst is told whole; the other open ones folded."""
    story, told = session.story, list[tuple[str, int, str]]()
    parts, accept = parts_of(story), dict[str, str]()
    for words, reds in parts[:SHOWN_CAUSES]:
        if len(parts) > 1:
            yield from (f"### {prose(words or as_sentence(reds[0].record.state))}", "")
        elif len(reds) > 1:
            yield from ("### What failed for it", "")
        if len(reds) > 1:
            yield from _printed(_reds(reds))
        first = next((red.record for red in reds if _sentence(red.record) not in told), None)
        if first is not None:
            told.append(_sentence(first))
            yield from _details(first, [step for step in first.next_steps if step.what != ACCEPT])
            accept |= {step.command: step.what for step in first.next_steps if step.what == ACCEPT}
    for command, what in accept.items():
        yield from (f"To {what}: {code(command)}", "")
    if story.not_judged:
        yield from ("### Not judged", "", *map(_mistake, story.not_judged[:SHOWN_NAMES]), "")
    rest = grouped((_sentence(record), record) for record in worst_first(session.records) if record.is_open)
    others = [first for sentence, (first, *_) in rest.items() if sentence not in told]
    title = f"{counted(len(others), 'other assertion')} to look at"
    below = {_sentence(red.record) for root in story.roots for red in root.reds}
    yield from _folded(
        title, [line for r in others for line in _details(r, () if _sentence(r) in below else r.next_steps)]
    )


def _sentence(record: Record) -> tuple[str, int, str]:
    """What assertions of several configurations have in common."""
    return record.file, record.line, record.name


def _reds(reds: Sequence[Red]) -> Table:
    """A row for each assertion, of the worst configuration."""
    by_assertion = grouped((_sentence(red.record), red) for red in reds)
    rows = [
        (
            first.record.state,
            first.record.full_name if same else first.record.title,
            reason_of(first),
            f"{first.record.configuration}, {len(same)} more" if same else "",
        )
        for first, *same in by_assertion.values()
    ]
    columns: list[str | Column] = ["verdict", _name("assertion"), "why"]
    columns += [_name("configuration")] if any(row[-1] for row in rows) else []
    return table_of("", columns, (row[: len(columns)] for row in rows), SHOWN_REDS, longest=2000)


def _mistake(mistake: NotJudged) -> str:
    what = counted(len(mistake.records), "assertion")
    return f"- {code(mistake.records[0].file)}: {what}: {mistake.outcome}: {prose(mistake.message)}"


def _gate_file(records: Sequence[Record], *, folded: bool) -> Iterator[str]:
    """A gate file, of which each configuration has a table, what failed first; in a session with reds folded."""
    configurations, lines = by_address(records), list[str]()
    title = records[0].file if len(configurations) > 1 else records[0].address
    for address, own in configurations.items():
        lines += [f"#### {code(address)}", ""] if len(configurations) > 1 else []
        lines += _table_of(own)
    windows = _windows(records)
    doubts = [f"- **Doubtful**: {prose(note.text)}" for note in _notes(records) if note.warning]
    if folded:
        yield from (*doubts, "") if doubts else ()
        yield from _folded(f"{code(title)}: {counts_words(records)}", [*lines, *windows])
    else:
        yield from (f"### {code(title)}", "", *([*doubts, ""] if doubts else []), *lines)
        yield from _folded("Windows and notes", windows)


def _about(records: Sequence[Record]) -> str:
    """What was judged, and against which baselines."""
    run, baselines = find_run(records).run, list_baselines(records)
    about = [f"run {code(run)}"] if run else []
    return "; ".join([*about, *([f"against {', '.join(map(code, baselines))}"] if baselines else [])])


def _table_of(records: Sequence[Record]) -> Iterator[str]:
    about = _about(records)
    yield from (about, "") if about else ()
    columns = (
        "verdict",
        _name("assertion"),
        number("value"),
        "limit",
        number("headroom"),
        "smallest change",
        "worst row",
    )
    told = sorted(records, key=lambda record: (record.good, not record.is_open))
    bad = range(sum(not record.good for record in told))
    yield from _printed(table_of("", columns, map(_cells, told), longest=2000), bad)


def _windows(records: Sequence[Record]) -> list[str]:
    windows = [(how, each) for how, each in list_windows(records) if each]
    lines = [f"- {prose(how)}\n" + "\n".join(f"  - {prose(w)}" for w in each) for how, each in windows]
    notes = [note.text for note in _notes(records) if not note.warning]
    warnings = [text for record in records for text in record.verdict.warnings]
    return [*lines, *(f"- {prose(note)}" for note in dict.fromkeys([*notes, *warnings]))]


def _notes(records: Iterable[Record]) -> Sequence[Note]:
    return merged(note for record in records for note in record.verdict.notes)


def _folded(title: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        yield from (f"{OPENS}<summary>{title}</summary>\n", *items, f"\n{CLOSES}\n")


def _cells(record: Record) -> tuple[str, ...]:
    worst = record.worst
    where = worst["row"] + (f", worst of {record.rows}" if worst["row"] and record.rows > 1 and not record.good else "")
    why = "" if worst["value"] else record.message
    told = (record.full_name, worst["value"], worst["limit"], record.headroom, record.smallest_change, where or why)
    return record.state, *told


def _details(record: Record, next_steps: Sequence[Step]) -> Iterator[str]:
    verdict, sentence = record.verdict, record.assertion.sentence
    yield from (f"#### {record.state}: {code(record.title)} (line {record.line})", "")
    yield from (f"{prose(as_sentence(record.message))}.", "")
    if sentence not in ("", record.full_name):
        yield from (f"The sentence: {code(sentence)}", "")
    rows, same = folded_table(verdict, rows_to_show(verdict))
    for table in (rows, difference_table(verdict, 400)):
        yield from _printed(table) if table.rows else ()
    if same:
        yield from (f"{prose(as_sentence(same))}.", "")
    if verdict.details:
        yield from ("What changed:", "", *(f"- {prose(line)}" for line in verdict.details[:SHOWN_DETAILS]), "")
    yield from _causes(verdict.causes, same_told=bool(same))
    if next_steps:
        steps = [code(step.command) + (f" ({prose(step.what)})" if step.what else "") for step in next_steps]
        yield from ("Next:", "", *(f"- {step}" for step in steps), "")


def _causes(rows: Sequence[Explained], *, same_told: bool) -> Iterator[str]:
    """What is behind the worst row, and the rows with another cause in a line each."""
    for number_, (row, *same) in enumerate(by_cause(rows)[:SHOWN_CAUSES]):
        cells = why_cells(row, MOST_PARTS)
        where, change = prose(labels_words(row.labels)), prose(change_of(row))
        if not cells:
            continue
        if number_:
            yield from (f"- {prose(shared_words([row, *same]))}: {prose(leading_words(row))}", "")
            continue
        yield from (f"Why {where} changed{f' by {change}' if change else ''}:", "")
        yield from _printed(table_of("", (number(""), "cause"), cells, longest=400))
        yield from (f"The same: {prose(shared_words(same))}.", "") if same and not same_told else ()
