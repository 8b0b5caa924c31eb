"""What does GitHub show at the lines of a gate file? Workflow commands, escaped, at most ten of a kind.

GitHub shows ten annotations of each kind a step and drops the rest without a word; here the last one counts them.
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pytest_nsys.core.kept import grouped
from pytest_nsys.core.words import printable
from pytest_nsys.reports.session.headline import of_session
from pytest_nsys.reports.session.record import Record
from pytest_nsys.reports.session.session import Session
from pytest_nsys.reports.session.story import NOT_JUDGED

AT_MOST = 10
SHOWN_TEXT = 4000
KINDS = ("error", "warning", "notice")
KIND_OF_GOOD = {
    **dict.fromkeys(("warned", "improved", "inconclusive", "accepted"), "warning"),
    **dict.fromkeys(("waived", "xfailed"), "notice"),
}
"""The kind of annotation for an assertion that pytest takes as passed, by its state; other states have none."""


class Annotation(NamedTuple):
    """Describes one remark at a line of a file."""

    kind: str  # one of KINDS
    file: str
    line: int | None  # None where it is unknown
    title: str
    text: str

    def __str__(self) -> str:
        properties = {"file": self.file, "line": "" if self.line is None else str(self.line), "title": self.title}
        property_text = ",".join(f"{name}={escape_property(value)}" for name, value in properties.items() if value)
        return f"::{self.kind} {property_text}::{escape_data(self.text)}"


def escape_data(text: str) -> str:
    """Return the text of a workflow command, escaped."""
    clean = "".join(c if c.isprintable() or c in "\r\n" else "�" for c in text)
    return clean.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """Return the value of a property of a workflow command, escaped."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


def annotation_lines(session: Session, place: Callable[[str], str] = str) -> list[str]:
    """Return the workflow commands, a line each. ``resolve_path`` turns a file name into a path in the repository."""
    annotations_by_kind: dict[str, list[Annotation]] = {kind: [] for kind in KINDS}
    for annotation in _annotations(session, place):
        annotations_by_kind[annotation.kind].append(annotation)
    return [str(annotation) for same_kind in annotations_by_kind.values() for annotation in _cut(same_kind)]


def _cut(annotations: list[Annotation]) -> list[Annotation]:
    """Return at most ten annotations of one kind, of which the last says how many were left out."""
    if len(annotations) <= AT_MOST:
        return annotations
    last = annotations[AT_MOST - 1]
    omitted_count = len(annotations) - AT_MOST
    text = f"{last.text}\n… and {omitted_count} more of this kind, in the summary of the job"
    return [*annotations[: AT_MOST - 1], last._replace(text=text)]


def _annotations(session: Session, place: Callable[[str], str]) -> Iterator[Annotation]:
    """Yield the annotations of a session: what kept it from being judged, then its assertions."""
    if session.merge_base is not None and session.merge_base.red:
        text = "\n".join(session.merge_base.lines())[:SHOWN_TEXT]
        yield Annotation("error", "", None, "nsys gate: the merge base is red", text)
    for mistake in session.mistakes:
        yield Annotation("error", place(mistake.file), mistake.line, "nsys gate: not judged", mistake.text)
    if not session.records and not session.mistakes:
        yield Annotation("error", "", None, "nsys gate: nothing judged", session.headline)
    for file in session.not_run if session.records else ():
        yield Annotation("warning", place(file.file), None, "nsys gate: not run", printable(file.why, SHOWN_TEXT))
    yield from _of_records(session, place)


def _of_records(session: Session, place: Callable[[str], str]) -> Iterator[Annotation]:
    """Yield the annotations of assertions, what leads first with the sentence of the session.

    A line of a gate file has one remark for all configurations that ended alike, and so has what keeps assertions of a
    file from being judged.
    """
    leading_record = next((red.record for red in session.story.reds), None)
    records = sorted(session.records, key=lambda record: record is not leading_record)
    for records_alike in grouped((_told_by(record), record) for record in records).values():
        if (kind := _kind(records_alike[0])) is None:
            continue
        sentences = (
            [_told(records_alike[0])]
            if records_alike[0] is not leading_record
            else [of_session(session), _told(records_alike[0])]
        )
        yield Annotation(
            kind,
            place(records_alike[0].file),
            records_alike[0].line,
            _title(records_alike),
            "\n".join(sentences)[:SHOWN_TEXT],
        )


def _told_by(record: Record) -> tuple[object, ...]:
    """Return what records have in common that share an annotation."""
    distinguishing = (record.message,) if record.state in NOT_JUDGED else (record.line, record.name)
    return record.file, record.state, record.good, *distinguishing


def _kind(record: Record) -> str | None:
    return KIND_OF_GOOD.get(record.state) if record.good else "error"


def _title(same: list[Record]) -> str:
    first, state = same[0], same[0].state
    if len(same) == 1:
        return printable(f"{state}: {first.title}", 300)
    if state in NOT_JUDGED:
        return f"{state}: {len(same)} assertions"
    return printable(f"{state}: {first.full_name} in {len(same)} configurations", 300)


def _told(record: Record) -> str:
    """Return a verdict whole; of one that pytest takes as passed its warnings, too."""
    text = "\n".join(printable(line, 1000) for line in record.explanation or [record.message])[:SHOWN_TEXT]
    warnings = [printable(warning, 1000) for warning in record.verdict.warnings] if record.good else []
    return "\n".join([text, *(warning for warning in warnings if warning not in text)])
