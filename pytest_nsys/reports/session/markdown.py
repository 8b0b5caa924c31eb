"""How is a session shown on GitHub? As Markdown for a job summary or a comment, never over GitHub's size limit.

Text from a trace or gate file stands in code spans, where it cannot become markup, a mention or a link. Sentences of
our own that may contain such names are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import NextStep, Note, merge_notes
from pytest_nsys.core.numbers import choose_scale, format_distinctly
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.model import JudgedRow, Outcome, Verdict
from pytest_nsys.merge_base.base_verdict import TITLE, BaseVerdict
from pytest_nsys.merge_base.differences import count_differences
from pytest_nsys.reports.session.comparison_tables import MOVED_CAPTIONS, build_comparison_tables, describe_comparison
from pytest_nsys.reports.session.headline import as_sentence, format_headline
from pytest_nsys.reports.session.record import AssertionRecord, expects_no_row
from pytest_nsys.reports.session.session import (
    NOTHING_JUDGED,
    NotRunFile,
    Session,
    find_run_record,
    format_counts,
    group_by_address,
    list_baselines,
    list_window_sets,
)
from pytest_nsys.reports.session.story import NotJudged, RedAssertion, sort_worst_first
from pytest_nsys.reports.session.story_lines import SHOWN_REDS, describe_red_reason, list_story_parts
from pytest_nsys.reports.tables.formats import (
    CellKind,
    Column,
    Table,
    build_text_table,
    escape_markdown,
    make_number_column,
    make_number_columns,
)
from pytest_nsys.reports.words.cause_text import (
    MAX_PARTS,
    describe_leading_cause,
    describe_rows_of_one_cause,
    format_explained_change,
    format_row_labels,
    group_by_cause,
    list_cause_cells,
)
from pytest_nsys.reports.words.verdict_text import (
    ACCEPT_PURPOSE,
    SHOWN_DETAILS,
    build_difference_table,
    describe_row_limit,
    fold_alike_rows,
    format_baseline_change,
    format_row_place,
    format_value_and_limit,
    select_rows_to_show,
)
from pytest_nsys.reports.words.waterfall import build_waterfall_table, find_waterfall

MAX_BYTES = 900 * 1024
"""GitHub accepts 1 MiB per step in all: the rest is left to other summaries of the step."""

SHOWN_CAUSES = 3
SHOWN_NAMES = 10
SHOWN_RUNS = 2
MIN_FOLDED_ROWS = 5
"""A foldable table with at least this many rows is folded."""

FOREIGN_KINDS = (CellKind.LABEL, CellKind.NAME, CellKind.KERNEL)
"""Kinds of columns whose cells come from a trace or a gate file, and stand in code spans."""

DETAILS_START, DETAILS_END = "<details>", "</details>"
SHOWN_ASSERTIONS = 12
"""The first table has at most this many rows; the tables of the gate files have all."""


def format_code(text: str) -> str:
    """Return text as it is, in a code span; empty text stays empty."""
    clean = sanitize_line(text, 400)
    if not clean.strip():
        return ""
    # The fence is longer than any run of backticks in the text; a space separates it from backticks at either end.
    fence = "`" * (max((len(backticks) for backticks in re.findall("`+", clean)), default=0) + 1)
    pad = " " if clean[0] in "` " or clean[-1] in "` " else ""
    return f"{fence}{pad}{clean}{pad}{fence}"


def format_code_cell(text: str) -> str:
    """Return a code span for a table cell: ``|`` is escaped, because it ends a cell even inside code."""
    return format_code(text).replace("|", "\\|")


def escape_prose(text: str) -> str:
    """Return one of our sentences, escaped so that names in it cannot become markup."""
    # Beyond Markdown GitHub reads $ as mathematics and # as an issue's number; _ would make parts of names italic.
    return re.sub(r"([_$#])", r"\\\1", escape_markdown(text, 2000))


_SUMMARY_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "`": "&grave;"})


def escape_summary(text: str) -> str:
    """Return text for the title of a fold, which is HTML: Markdown in it would be shown as it is written."""
    # An empty comment keeps GitHub from reading a mention, an issue's number or mathematics.
    return re.sub(r"([@#$])", r"\1<!-- -->", sanitize_line(text, 2000).translate(_SUMMARY_ESCAPES))


def format_summary_code(text: str) -> str:
    """Return somebody else's text as code in the title of a fold."""
    return f"<code>{escape_summary(text)}</code>"


def render_summary(session: Session, max_bytes: int = MAX_BYTES, *, verbose: bool = False) -> str:
    """Return the whole summary in Markdown, cut with a line that says so where it would be too long.

    With ``verbose`` it has every row of a comparison.
    """
    return cut_to_size(list(_render_parts(session, verbose=verbose)), max_bytes)


def cut_to_size(parts: Sequence[str], max_bytes: int) -> str:
    """Return the first parts (one or more lines each) that fit into ``max_bytes`` bytes, then a note of how much was
    cut.
    """
    whole = "".join(part + "\n" for part in parts)
    if len(whole.encode("utf-8", "replace")) <= max_bytes:
        return whole
    cut_note = "\n{}**Cut here: too long for GitHub.** {} more lines; the JSON report holds everything.\n"
    # 40 bytes are for the number in the note and for the end of a <details> that is open at the cut.
    room = max_bytes - len(cut_note.encode()) - 40
    part_count, size = 0, 0
    for part in parts:
        size += len(part.encode("utf-8", "replace")) + 1
        if size > room:
            break
        part_count += 1
    omitted_lines = sum(part.count("\n") + 1 for part in parts[part_count:])
    shown_text = "".join(part + "\n" for part in parts[:part_count])
    is_open = shown_text.count(f"\n{DETAILS_START}") > shown_text.count(f"\n{DETAILS_END}")
    return shown_text + cut_note.format(f"{DETAILS_END}\n\n" if is_open else "", omitted_lines)


def _render_parts(session: Session, *, verbose: bool) -> Iterator[str]:
    """Yield the lines of the summary in order: a sentence, a table from base to head, and what explains it."""
    yield from (f"## {_choose_session_mark(session)} {escape_prose(format_headline(session))}", "")
    tables = build_comparison_tables(session.comparison, verbose=verbose) if session.comparison is not None else []
    moved_tables = [table for table in tables if table.caption in MOVED_CAPTIONS]
    for table in moved_tables:
        yield from _render_table(_mark_rows(table))
    if session.comparison is None and session.records:
        yield from _render_table(_build_base_to_head_table(session))
    yield from (escape_prose(session.summary_line), "")
    if session.page_link is not None:
        yield from (f"[The page with both timelines]({session.page_link.url}) is {session.page_link.place}.", "")
    if session.bad:
        yield from (
            line
            for records in [*session.records_by_address.values()][:SHOWN_RUNS]
            if find_run_record(records).run
            for line in (f"{as_sentence(_describe_run(records))}.", "")
        )
    if session.comparison is not None:
        yield from (f"{escape_prose('. '.join(describe_comparison(session.comparison)))}.", "")
        yield from _render_comparison_tables([table for table in tables if table not in moved_tables])
    if session.merge_base is not None:
        yield from render_merge_base(session.merge_base, {record.full_explanation for record in session.bad})
    if session.mistakes:
        yield from ("### Not judged", "")
        for mistake in session.mistakes:
            yield f"- {format_code(mistake.place)}: {escape_prose(mistake.text)}"
        yield ""
    if session.not_run:
        yield from ("### Not run", "", *map(_format_not_run, session.not_run), "")
    if session.refreshed:
        refreshed_lines = (f"- {escape_prose(line.strip())}" for line in session.refreshed)
        yield from ("### Baselines that this run wrote", "", *refreshed_lines, "")
    yield from _render_story_parts(session)
    for records in group_by_key((record.file, record) for record in session.records).values():
        yield from _render_gate_file(records)


BAD_MARK, WARNING_MARK, GOOD_MARK = "❌", "⚠️", "✅"
_MARK_BY_ROW_STATE = {
    **dict.fromkeys(("worse", "gone"), BAD_MARK),
    **dict.fromkeys(("better", "within"), GOOD_MARK),
}
"""The mark of each state of a compared row; other states deserve a look."""


def _choose_session_mark(session: Session) -> str:
    """Return the mark of the headline: never the good one for a session that is not good."""
    if session.good:
        return GOOD_MARK if all(_choose_mark(record) == GOOD_MARK for record in session.records) else WARNING_MARK
    return WARNING_MARK if session.verdict == NOTHING_JUDGED else BAD_MARK


def _choose_mark(record: AssertionRecord) -> str:
    if not record.good:
        return BAD_MARK
    return GOOD_MARK if record.state in (Outcome.PASSED, Outcome.IMPROVED, "xfailed") else WARNING_MARK


def _mark_rows(table: Table) -> Table:
    """Return a table of compared rows with a mark before the state of each."""
    rows = [(f"{_MARK_BY_ROW_STATE.get(str(state), WARNING_MARK)} {state}", *cells) for state, *cells in table.rows]
    return replace(table, rows=rows)


def _build_base_to_head_table(session: Session) -> Table:
    """Return a row for each assertion, in its worst configuration: the reds first, those of one cause beside each
    other, and as many others as there is room for.
    """
    reds = [red for _, part_reds in list_story_parts(session.story) for red in part_reds]
    # An assertion that two causes explain stands with the first.
    row_by_identity = {red.record.identity: red.rows[0] for red in reversed(reds) if red.rows}
    order = {red.record.identity: number for number, red in enumerate(reversed(reds))}
    records = sorted(
        sort_worst_first(session.records),
        key=lambda record: (record.good, not record.needs_attention, -order.get(record.identity, -1)),
    )
    by_sentence = group_by_key((_identify_sentence(record), record) for record in records)
    cells = [
        _list_base_to_head_cells(first, row_by_identity.get(first.identity, first.verdict.nearest_row), len(others))
        for first, *others in by_sentence.values()
    ]
    figures = ("base", "head", "change")
    columns: list[str | Column] = ["", _make_name_column("assertion"), *make_number_columns(*figures), "limit", "where"]
    return build_text_table("", columns, cells, SHOWN_ASSERTIONS, max_length=2000)


def _list_base_to_head_cells(record: AssertionRecord, row: JudgedRow | None, other_count: int) -> tuple[str, ...]:
    """Return the cells of one assertion; of one that was not judged, the reason stands where the place would."""
    mark, name = (
        _keep_on_a_line(f"{_choose_mark(record)} {record.state}"),
        record.full_name if other_count else record.title,
    )
    configuration = f"{record.configuration}, {other_count} more" if other_count else ""
    if row is None or row.value is None or not record.worst["value"]:
        return mark, name, "", record.worst["value"], "", "", "; ".join(filter(None, (configuration, record.message)))
    if expects_no_row(record.assertion) and row.outcome is Outcome.PASSED:  # how many kernels were looked at
        return mark, name, "", record.worst["value"], "", "", configuration
    unit, base = record.verdict.unit, "—"
    head = format_value_and_limit(row, unit)[0]
    if row.baseline is not None:
        scale = choose_scale([row.baseline, row.value], unit)
        base, distinct_head = format_distinctly(row.baseline, row.value, unit, scale)
        # The one with more digits is seen to differ from the base and from the limit.
        head_beside_limit = distinct_head if row.limit is None else format_value_and_limit(row, unit, scale)[0]
        head = max(distinct_head, head_beside_limit, key=len)
    change = format_baseline_change(row, unit) if row.baseline is not None else ""
    limit = describe_row_limit(record.assertion, unit, row).partition(" (")[0]
    place = ", ".join(filter(None, (format_row_place(row, record.verdict), configuration)))
    return mark, name, *map(_keep_on_a_line, (base, head, change, limit)), place


def _keep_on_a_line(text: str) -> str:
    """Return a figure whose unit stays on its line, however narrow its column."""
    return text.replace(" ", "\u00a0")


def _render_comparison_tables(tables: Iterable[Table]) -> Iterator[str]:
    for table in tables:
        rows = "\n".join(_render_table(table)).rstrip("\n")
        if table.folded and len(table.rows) > MIN_FOLDED_ROWS:
            title = f"{escape_summary(table.caption)} ({len(table.rows) + table.omitted_count})"
            yield from _render_folded(title, [rows])
        else:
            yield from (f"### {escape_prose(table.caption)}", "", rows, "")


def _format_not_run(file: NotRunFile) -> str:
    return f"- {format_code(file.name)}: {format_count(len(file.assertions), 'assertion')}: {escape_prose(file.why)}"


def render_merge_base(verdict: BaseVerdict, told_texts: Collection[str] = ()) -> Iterator[str]:
    """Yield lines on the verdict of the merge base's gate, and on which of its files the branch changes, with the
    diffs.

    ``told_texts`` are the texts of failed assertions that the summary shows elsewhere.
    """
    yield from (
        f"### {as_sentence(TITLE)}: {'red' if verdict.is_red else 'green'}",
        "",
        f"{escape_prose(verdict.headline)}.",
        "",
    )
    yield from (f"- {escape_prose(red.splitlines()[0])}" for red in verdict.reds if red in told_texts)
    yield ""
    untold_reds = [red for red in verdict.reds if red not in told_texts]
    for red in untold_reds[:SHOWN_CAUSES]:
        yield from (*format_code_block(red), "")
    if omitted_count := len(untold_reds[SHOWN_CAUSES:]):
        yield from (f"… {format_count(omitted_count, 'more red')}.", "")
    lines = [*verdict.accepted_texts, *(gate.text for gate in verdict.judged_gates)]
    lines += [f"new, judged by this branch alone: {path}" for path in verdict.new_paths]
    yield from (f"- {escape_prose(line)}" for line in (*lines, *verdict.notes))
    yield ""
    if verdict.differences:
        yield from (f"Differs from the merge base: {count_differences(verdict.differences)}.", "")
        yield from (f"- {escape_prose(difference.text)}" for difference in verdict.differences)
        yield ""
    for difference in verdict.differences:
        if difference.diff:
            yield from _render_folded(
                format_summary_code(difference.file), format_code_block("\n".join(difference.diff), "diff")
            )


def format_code_block(text: str, language: str = "") -> list[str]:
    """Return a text of several lines as a block of code, whatever it holds."""
    fence = "`" * max(3, 1 + max((len(backticks) for backticks in re.findall("`+", text)), default=0))
    return [f"{fence}{language}", *text.splitlines(), fence]


def _make_name_column(name: str) -> Column:
    return Column(name, CellKind.NAME)


def _render_table(table: Table) -> Iterator[str]:
    """Yield the lines of a table: names and labels in code spans, and how many rows were left out."""
    lines = table.render_markdown(_format_cell)
    yield from (*lines, "")
    if table.omitted_count:
        yield from (f"… {format_count(table.omitted_count, 'more row')}.", "")


def _format_cell(column: Column, text: str) -> str:
    if column.kind is CellKind.LIMIT:  # the tables of the gate files say where it comes from
        text = text.partition(" (")[0]
    return format_code_cell(text) if column.kind in FOREIGN_KINDS else escape_prose(text)


def _render_story_parts(session: Session) -> Iterator[str]:
    """Yield each root with the failed assertions that it explains, the worst one in full; other assertions that need
    attention are folded.
    """
    story, told_sentences = session.story, list[tuple[str, int, str]]()
    parts, accept_commands, folded_rows = list_story_parts(story), dict[str, str](), list[str]()
    for words, reds in parts[:SHOWN_CAUSES]:
        if len(parts) > 1:
            yield from (f"### {escape_prose(words or as_sentence(reds[0].record.state))}", "")
        if len(reds) > 1 and len(parts) > 1:
            yield from _render_table(_build_red_table(reds))
        worst_record = next((red.record for red in reds if _identify_sentence(red.record) not in told_sentences), None)
        if worst_record is not None:
            told_sentences.append(_identify_sentence(worst_record))
            yield from _render_worst_red(
                worst_record, [step for step in worst_record.next_steps if step.purpose != ACCEPT_PURPOSE]
            )
            folded_rows += _fold_rows(worst_record)
            accept_commands |= {
                step.command: step.purpose for step in worst_record.next_steps if step.purpose == ACCEPT_PURPOSE
            }
    for command, purpose in accept_commands.items():
        yield from (f"To {purpose}: {format_code(command)}", "")
    yield from folded_rows
    if story.not_judged:
        yield from ("### Not judged", "", *map(_format_unjudged, story.not_judged[:SHOWN_NAMES]), "")
    records_by_sentence = group_by_key(
        (_identify_sentence(record), record) for record in sort_worst_first(session.records) if record.needs_attention
    )
    other_records = [
        worst_record for sentence, (worst_record, *_) in records_by_sentence.items() if sentence not in told_sentences
    ]
    title = f"{format_count(len(other_records), 'other assertion')} to look at"
    rooted_sentences = {_identify_sentence(red.record) for root in story.roots for red in root.reds}
    yield from _render_folded(
        title,
        [
            line
            for record in other_records
            for line in _render_details(
                record, () if _identify_sentence(record) in rooted_sentences else record.next_steps
            )
        ],
    )


def _identify_sentence(record: AssertionRecord) -> tuple[str, int, str]:
    """Return the key of an assertion, which is equal in all configurations."""
    return record.file, record.line, record.name


def _build_red_table(reds: Sequence[RedAssertion]) -> Table:
    """Return a table with a row for each failed assertion, in its worst configuration."""
    by_assertion = group_by_key((_identify_sentence(red.record), red) for red in reds)
    rows = [
        (
            first.record.state,
            first.record.full_name if other_reds else first.record.title,
            describe_red_reason(first),
            f"{first.record.configuration}, {len(other_reds)} more" if other_reds else "",
        )
        for first, *other_reds in by_assertion.values()
    ]
    columns: list[str | Column] = ["verdict", _make_name_column("assertion"), "why"]
    columns += [_make_name_column("configuration")] if any(row[-1] for row in rows) else []
    return build_text_table("", columns, (row[: len(columns)] for row in rows), SHOWN_REDS, max_length=2000)


def _format_unjudged(unjudged: NotJudged) -> str:
    count = format_count(len(unjudged.records), "assertion")
    return f"- {format_code(unjudged.records[0].file)}: {count}: {unjudged.outcome}: {escape_prose(unjudged.message)}"


def _render_gate_file(records: Sequence[AssertionRecord]) -> Iterator[str]:
    """Yield the doubts about a gate file's traces, then its fold: a table for each configuration, failed assertions
    first, and the windows and notes.
    """
    configurations, lines = group_by_address(records), list[str]()
    title = records[0].file if len(configurations) > 1 else records[0].address
    for address, address_records in configurations.items():
        lines += [f"#### {format_code(address)}", ""] if len(configurations) > 1 else []
        lines += _render_assertion_table(address_records)
    doubts = [f"- **Doubtful**: {escape_prose(note.text)}" for note in _merge_notes(records) if note.warning]
    yield from (*doubts, "") if doubts else ()
    yield from _render_folded(
        f"{format_summary_code(title)}: {format_counts(records)}", [*lines, *_list_window_items(records)]
    )


def _describe_run(records: Sequence[AssertionRecord]) -> str:
    """Return what was judged, and against which baselines."""
    run, baselines = find_run_record(records).run, list_baselines(records)
    phrases = [f"run {format_code(run)}"] if run else []
    return "; ".join([*phrases, *([f"against {', '.join(map(format_code, baselines))}"] if baselines else [])])


def _render_assertion_table(records: Sequence[AssertionRecord]) -> Iterator[str]:
    """Yield the table of some assertions, those that failed first."""
    run_line = _describe_run(records)
    yield from (run_line, "") if run_line else ()
    columns = (
        "verdict",
        _make_name_column("assertion"),
        make_number_column("value"),
        "limit",
        make_number_column("headroom"),
        "smallest change",
        "worst row",
    )
    sorted_records = sorted(records, key=lambda record: (record.good, not record.needs_attention))
    yield from _render_table(build_text_table("", columns, map(_list_assertion_cells, sorted_records), max_length=2000))


def _list_window_items(records: Sequence[AssertionRecord]) -> list[str]:
    """Return list items with the windows, and then the notes and warnings, of some assertions."""
    windows = [(measured_as, window_lines) for measured_as, window_lines in list_window_sets(records) if window_lines]
    lines = [
        f"- {escape_prose(measured_as)}\n" + "\n".join(f"  - {escape_prose(window)}" for window in window_lines)
        for measured_as, window_lines in windows
    ]
    notes = [note.text for note in _merge_notes(records) if not note.warning]
    warnings = [text for record in records for text in record.verdict.warnings]
    return [*lines, *(f"- {escape_prose(note)}" for note in dict.fromkeys([*notes, *warnings]))]


def _merge_notes(records: Iterable[AssertionRecord]) -> Sequence[Note]:
    return merge_notes(note for record in records for note in record.verdict.notes)


def _render_folded(title: str, items: Sequence[str]) -> Iterator[str]:
    """Yield a folded list of items below a title; nothing without items."""
    if items:
        yield from (f"{DETAILS_START}<summary>{title}</summary>\n", *items, f"\n{DETAILS_END}\n")


def _list_assertion_cells(record: AssertionRecord) -> tuple[str, ...]:
    worst = record.worst
    place = worst["row"] + (f", worst of {record.rows}" if worst["row"] and record.rows > 1 and not record.good else "")
    reason = "" if worst["value"] else record.message
    cells = (record.full_name, worst["value"], worst["limit"], record.headroom, record.smallest_change, place or reason)
    return f"{_choose_mark(record)} {record.state}", *cells


def _render_worst_red(record: AssertionRecord, next_steps: Sequence[NextStep]) -> Iterator[str]:
    """Yield what the first table does not say of an assertion: what changed, why, and what to do next; its rows where
    no cause is known.
    """
    reasons = [*_render_reasons(record, is_same_told=False)]
    if not reasons:
        yield from (*_render_sentence(record), *_render_rows(record))
    yield from (*reasons, *_render_next_steps(next_steps))


def _fold_rows(record: AssertionRecord) -> Iterator[str]:
    """Yield the fold with the rows of an assertion whose causes stand above; nothing of one that has none."""
    if any(_render_reasons(record, is_same_told=False)):
        title = f"The rows of {format_summary_code(record.title)} (line {record.line})"
        yield from _render_folded(title, [*_render_sentence(record), *_render_rows(record)])


def _render_details(record: AssertionRecord, next_steps: Sequence[NextStep]) -> Iterator[str]:
    """Yield everything about one assertion: its message, its rows, what changed, why, and what to do next."""
    yield from _render_sentence(record)
    yield from _render_rows(record)
    _, same_text = fold_alike_rows(record.verdict, select_rows_to_show(record.verdict))
    yield from _render_reasons(record, is_same_told=bool(same_text))
    yield from _render_next_steps(next_steps)


def _render_sentence(record: AssertionRecord) -> Iterator[str]:
    """Yield which sentence of the gate file it is, and how it ended."""
    sentence = record.assertion.sentence
    yield from (f"#### {record.state}: {format_code(record.title)} (line {record.line})", "")
    yield from (f"{escape_prose(as_sentence(record.message))}.", "")
    if sentence not in ("", record.full_name):
        yield from (f"The sentence: {format_code(sentence)}", "")


def _render_rows(record: AssertionRecord) -> Iterator[str]:
    """Yield the rows outside their limits, and which others are like them."""
    rows, same_text = fold_alike_rows(record.verdict, select_rows_to_show(record.verdict))
    yield from _render_table(rows) if rows.rows else ()
    if same_text:
        yield from (f"{escape_prose(as_sentence(same_text))}.", "")


def _render_reasons(record: AssertionRecord, *, is_same_told: bool) -> Iterator[str]:
    """Yield how the runs differ, what changed in the trace, and the causes."""
    verdict, differences = record.verdict, build_difference_table(record.verdict, 400)
    yield from _render_table(differences) if differences.rows else ()
    if verdict.details:
        yield from ("What changed:", "", *(f"- {escape_prose(line)}" for line in verdict.details[:SHOWN_DETAILS]), "")
    yield from _render_cause_parts(verdict, is_same_told=is_same_told)


def _render_next_steps(next_steps: Sequence[NextStep]) -> Iterator[str]:
    if next_steps:
        steps = [
            format_code(step.command) + (f" ({escape_prose(step.purpose)})" if step.purpose else "")
            for step in next_steps
        ]
        yield from ("Next:", "", *(f"- {step}" for step in steps), "")


def _render_cause_parts(verdict: Verdict, *, is_same_told: bool) -> Iterator[str]:
    """Yield the waterfall of the worst row, or its causes where it has none; then a line for each group of rows with
    another cause.
    """
    waterfall = find_waterfall(verdict)
    for number, (row, *same_rows) in enumerate(group_by_cause(verdict.causes)[:SHOWN_CAUSES]):
        cells = list_cause_cells(row, MAX_PARTS)
        place, change = escape_prose(format_row_labels(row.labels)), escape_prose(format_explained_change(row))
        if not cells:
            continue
        if number:
            yield from (
                f"- {escape_prose(describe_rows_of_one_cause([row, *same_rows]))}: "
                f"{escape_prose(describe_leading_cause(row))}",
                "",
            )
            continue
        drawn_row = next(
            (each for each in (row, *same_rows) if waterfall and waterfall.place == format_row_labels(each.labels)),
            None,
        )
        if waterfall is not None and drawn_row is not None:
            yield from (f"**{escape_prose(waterfall.title)}**", "")
            yield from _render_table(build_waterfall_table(waterfall))
            yield from (waterfall.axis_note, "") if waterfall.axis_note else ()
            same_rows = [each for each in (row, *same_rows) if each is not drawn_row]
        else:
            # Causes are times: a count or a share did not change by one.
            change = change if verdict.unit == TIME else ""
            yield from (f"Why {place} changed{f' by {change}' if change else ''}:", "")
            yield from _render_table(build_text_table("", (make_number_column(""), "cause"), cells, max_length=400))
        yield from (
            (f"Of the same cause: {escape_prose(describe_rows_of_one_cause(same_rows))}.", "")
            if same_rows and not is_same_told
            else ()
        )
