"""How does a session read on GitHub? Markdown for the summary of a job or a comment, never over its limit of size.

What comes from somebody else's trace or gate file stands in code spans, where nothing of it is markup, a mention or a
link; sentences of our own that may hold such names are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_nsys.core.model import Step, counted, printable
from pytest_nsys.gates.gate_changes import GateChanges
from pytest_nsys.reports.causes import labels_words, shared_words, signed
from pytest_nsys.reports.row_cells import NO_VALUE, number_cells
from pytest_nsys.reports.session.digest import Digest, LeftOut, left_out_groups, left_out_words, shared_causes
from pytest_nsys.reports.session.gate_changes import TITLES, UNTOLD, of_which, place
from pytest_nsys.reports.session.record import notes_of, state, steps_of
from pytest_nsys.reports.tables import escape_markdown

AT_MOST_BYTES = 900 * 1024
"""GitHub takes 1 MiB for all that a step writes: some is left to others."""

SHOWN_ROWS = 20
CHANGED_ROWS = 10
SHOWN_CAUSES = 10
SHOWN_NAMES = 10


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
    """A sentence of ours that may hold somebody else's names: no markup, and nobody is mentioned."""
    escaped = re.sub(r"([_$#])", r"\\\1", escape_markdown(printable(text, 2000)))
    return escaped.replace("@", "@<!-- -->")


def summary(digest: Digest, at_most_bytes: int = AT_MOST_BYTES) -> str:
    """The whole summary; cut with a line that says so where it would be too long."""
    return cut(list(_parts(digest)), at_most_bytes)


def cut(parts: Sequence[str], at_most_bytes: int) -> str:
    """As many of the parts, a line or more each, as fit."""
    whole = "".join(part + "\n" for part in parts)
    if len(whole.encode("utf-8", "replace")) <= at_most_bytes:
        return whole
    said = "\n**Cut here: too long for GitHub.** {} more lines; the JSON report holds everything.\n"
    room = at_most_bytes - len(said.encode()) - 20
    kept, size = 0, 0
    for part in parts:
        size += len(part.encode("utf-8", "replace")) + 1
        if size > room:
            break
        kept += 1
    left = sum(part.count("\n") + 1 for part in parts[kept:])
    return "".join(part + "\n" for part in parts[:kept]) + said.format(left)


def _parts(digest: Digest) -> Iterator[str]:
    yield from (f"## Performance gate: {digest.verdict}", "", f"{prose(digest.headline)}.", "")
    if digest.gate_changes is not None:
        yield from _gate_changes(digest.gate_changes)
    if digest.mistakes:
        yield from ("### Not judged", "")
        for mistake in digest.mistakes:
            where = ":".join(str(part) for part in (mistake.file, mistake.line, mistake.column) if part is not None)
            yield f"- {code(where)}: {prose(mistake.text)}"
        yield ""
    if digest.left_out:
        yield from ("### Left out", "", *map(_left_out, left_out_groups(digest.left_out).values()), "")
    if digest.changed_baselines:
        yield from _changed_baselines(digest.changed_baselines)
    else:
        yield from _list("Baselines that change", digest.baseline_changes)
    yield from _list("Baselines that this run wrote", digest.refreshed)
    for cause, reds in shared_causes(digest.records)[:SHOWN_CAUSES]:
        yield from (f"### One cause behind {len(reds)} assertions: {code(cause)}", "")
        yield from (*(f"- {code(name)}: {prose(shared_words(rows))}" for name, rows in reds.items()), "")
    for name, records in digest.files.items():
        yield from _gate_file(name, records)


def _left_out(group: Sequence[LeftOut]) -> str:
    names = [code(one.name) for one in group if one.name]
    more = [f"{len(names) - SHOWN_NAMES} more"] if len(names) > SHOWN_NAMES else []
    listed = f": {', '.join([*names[:SHOWN_NAMES], *more])}" if names else ""
    return f"- {code(group[0].file)}: {prose(left_out_words(group))}{listed}"


def _list(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from (f"### {title}", "", *(f"- {prose(line.strip())}" for line in lines), "")


def _gate_changes(changes: GateChanges) -> Iterator[str]:
    """What a person who approves has to see first."""
    if changes.problem:
        yield from (f"**{UNTOLD}**: {prose(changes.problem)}.", "")
    for kind, title in TITLES.items():
        rows = [
            [cell(place(each)), each.change.key, *map(cell, (each.change.was, each.change.now, of_which(each)))]
            for each in changes.found
            if each.change.kind is kind
        ]
        if rows:
            yield from (f"### {title[:1].upper()}{title[1:]}", "")
            yield from _table(("where", "what", "was", "now", "assertion"), rows)


def _changed_baselines(files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each file with the reason stored in it, and a table of its rows; of a new or deleted file only their number."""
    yield from ("### Baselines that change", "")
    for file in files:
        why = f" Reason: {prose(file['reason'])}." if file["reason"] else ""
        yield from (f"{code(file['file'])}: {prose(file['about'])} since {prose(file['since'])}.{why}", "")
        rows = file["rows"] if file["state"] == "changed" else []
        if not rows:
            continue
        dimensions = list(dict.fromkeys(d for row in rows for d in row["labels"]))
        cells = [
            [
                cell(row["metric"]),
                *(cell(str(row["labels"].get(d, ""))) for d in dimensions),
                *(NO_VALUE if row[when] is None else prose(row[when]["text"]) for when in ("old", "new")),
                prose(row["change"]),
            ]
            for row in rows[:CHANGED_ROWS]
        ]
        head = ("metric", *map(cell, dimensions), "was", "now", "change")
        yield from _table(head, cells, frozenset(("was", "now", "change")))
        if len(rows) > CHANGED_ROWS:
            yield from (f"… {counted(len(rows) - CHANGED_ROWS, 'more row')}.", "")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str] = frozenset()) -> Iterator[str]:
    yield from (_row(head), _row(["---:" if name in right else "---" for name in head]))
    yield from map(_row, rows)
    yield ""


def _gate_file(name: str, records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from (f"### {code(name)}", "")
    run = next((r["run"] for r in records if r["run"]), "")
    baselines = dict.fromkeys(r["baseline"] for r in records if r["baseline"])
    about = [f"run {code(run)}"] if run else []
    about += [f"against {', '.join(map(code, baselines))}"] if baselines else []
    yield from ("; ".join(about), "") if about else ()
    head = ("verdict", "assertion", "value", "limit", "margin", "sees", "worst row")
    yield from _table(head, [_cells(record) for record in records], frozenset(("value", "margin")))
    for record in records:
        if not record["good"] or record["outcome"] in ("failed", "inconclusive", "improved"):
            yield from _details(record)
    yield from _about_windows(records)
    notes = dict.fromkeys(note for r in records for note in (*map(str, notes_of(r)), *r["warnings"]))
    if notes:
        said = "\n".join(f"- {prose(note)}" for note in notes)
        yield f"<details><summary>Notes ({len(notes)})</summary>\n\n{said}\n\n</details>\n"


def _cells(record: Mapping[str, Any]) -> list[str]:
    how = state(record)
    worst = prose(record["row"]) + (f", worst of {record['rows']}" if record["row"] and record["rows"] > 1 else "")
    return [
        how if record["good"] else f"**{how}**",
        cell(record["name"]),
        prose(record["value"]),
        prose(record["limit"]),
        prose(record["margin"] or (f"ceiling {record['ceiling']}" if record["ceiling"] else "")),
        prose(record["sees"]),
        worst or prose(record["message"]),
    ]


def _details(record: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"#### {state(record)}: {code(record['name'])} (line {record['line']})", "")
    message = prose(record["message"])
    yield from (f"{message[:1].upper()}{message[1:]}.", "")
    if record["sentence"] not in ("", record["name"]):
        yield from (f"The sentence: {code(record['sentence'])}", "")
    yield from _judged(record)
    if record["differences"]:
        rows = [[cell(d["name"]), cell(d["now"]), cell(d["baseline"])] for d in record["differences"]]
        yield from _table(("differs", "now", "baseline"), rows)
    yield from _causes(record)
    if record["next_steps"]:
        yield from ("Next:", "", *(f"- {_step(step)}" for step in steps_of(record)), "")


def _causes(record: Mapping[str, Any]) -> Iterator[str]:
    """Why each row is worse: all causes, the worst row's first; of rows with one leading cause the worst alone."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in record["causes"]:
        groups.setdefault(row["cause"], []).append(row)
    for row, *same in list(groups.values())[:SHOWN_ROWS]:
        parts = [[prose(signed(part["change_ns"])), cell(part["text"])] for part in row["parts"][:SHOWN_CAUSES]]
        if len(row["parts"]) > SHOWN_CAUSES:
            rest = row["parts"][SHOWN_CAUSES:]
            more = counted(len(rest), "smaller cause")
            parts.append([prose(signed(sum(part["change_ns"] for part in rest))), more])
        if row["unexplained_ns"]:
            parts.append([prose(signed(row["unexplained_ns"])), "not explained"])
        if parts:
            where = prose(labels_words(row["labels"]))
            yield from (f"Why {where} changed by {prose(signed(row['change_ns']))}:", "")
            yield from _table(("", "cause"), parts)
            yield from (f"The same in {prose(shared_words(same))}.", "") if same else ()


def _step(step: Step) -> str:
    """A command, and behind it in brackets what it is for."""
    return code(step.command) + (f" ({prose(step.what)})" if step.what else "")


def _judged(record: Mapping[str, Any]) -> Iterator[str]:
    """The rows that decided, worst first."""
    rows = [row for row in record["judged"] if row["outcome"] == record["outcome"] and not row["waived"]]
    if not rows:
        return
    dimensions = list(dict.fromkeys(d for row in rows for d in row["labels"]))
    stored = any(row["baseline"] is not None or row["limit"] is None for row in rows)
    tested = any(row["test"] for row in rows)
    numbers = ["now", *(["baseline", "change"] if stored else []), "limit"]
    lines = []
    for row in rows[:SHOWN_ROWS]:
        cells = [cell(str(row["labels"].get(d, ""))) for d in dimensions]
        cells += map(prose, number_cells(row, record, stored=stored))
        lines.append([*cells, *([prose(row["test"])] if tested else [])])
    head = [*map(cell, dimensions), *numbers, *(["test"] if tested else [])]
    yield from _table(head, lines, frozenset(numbers[:-1]))
    if len(rows) > SHOWN_ROWS:
        yield from (f"… {counted(len(rows) - SHOWN_ROWS, 'more row')}.", "")


def _about_windows(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    sets = dict.fromkeys((r["measured_as"], tuple(r["windows"])) for r in records if r["measured_as"])
    if sets:
        said = "\n".join(f"- {prose(how)}\n" + "\n".join(f"  - {prose(w)}" for w in windows) for how, windows in sets)
        yield f"<details><summary>Windows</summary>\n\n{said}\n\n</details>\n"
