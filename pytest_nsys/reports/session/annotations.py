"""What does GitHub show at the lines of a gate file? Workflow commands, escaped, at most ten of a kind.

GitHub shows ten annotations of each kind per step and silently drops the rest; here the last one counts the rest.
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.reports.session.headline import format_headline
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.session import Session
from pytest_nsys.reports.session.story import UNJUDGED_OUTCOMES

MAX_ANNOTATIONS = 10
MAX_TEXT = 4000
KINDS = ("error", "warning", "notice")
KIND_BY_GOOD_STATE = {
    **dict.fromkeys(("warned", "improved", "inconclusive", "accepted"), "warning"),
    **dict.fromkeys(("waived", "xfailed"), "notice"),
}
"""The kind of annotation for an assertion that pytest takes as passed, by its state; other states have none."""


class Annotation(NamedTuple):
    """Describes one annotation at a line of a file."""

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


def render_annotations(session: Session, resolve_path: Callable[[str], str] = str) -> list[str]:
    """Return the workflow commands, a line each. ``resolve_path`` turns a file name into a path in the repository."""
    annotations_by_kind: dict[str, list[Annotation]] = {kind: [] for kind in KINDS}
    for annotation in _list_annotations(session, resolve_path):
        annotations_by_kind[annotation.kind].append(annotation)
    return [
        str(annotation) for same_kind in annotations_by_kind.values() for annotation in _limit_annotations(same_kind)
    ]


def _limit_annotations(annotations: list[Annotation]) -> list[Annotation]:
    """Return at most ten annotations of one kind; the last one says how many were left out."""
    if len(annotations) <= MAX_ANNOTATIONS:
        return annotations
    last = annotations[MAX_ANNOTATIONS - 1]
    omitted_count = len(annotations) - MAX_ANNOTATIONS
    text = f"{last.text}\n… and {omitted_count} more of this kind, in the summary of the job"
    return [*annotations[: MAX_ANNOTATIONS - 1], last._replace(text=text)]


def _list_annotations(session: Session, resolve_path: Callable[[str], str]) -> Iterator[Annotation]:
    """Yield the annotations of a session: what kept it from being judged, then its assertions."""
    if session.merge_base is not None and session.merge_base.is_red:
        text = "\n".join(session.merge_base.render_lines())[:MAX_TEXT]
        yield Annotation("error", "", None, "nsys gate: the merge base is red", text)
    for mistake in session.mistakes:
        yield Annotation("error", resolve_path(mistake.file), mistake.line, "nsys gate: not judged", mistake.text)
    if not session.records and not session.mistakes:
        yield Annotation("error", "", None, "nsys gate: nothing judged", session.headline)
    for file in session.not_run if session.records else ():
        yield Annotation(
            "warning", resolve_path(file.file), None, "nsys gate: not run", sanitize_line(file.why, MAX_TEXT)
        )
    yield from _annotate_records(session, resolve_path)


def _annotate_records(session: Session, resolve_path: Callable[[str], str]) -> Iterator[Annotation]:
    """Yield the annotations of assertions, first the assertion that the headline names, with the headline as its text.

    Configurations of one gate-file line that ended alike share an annotation. So do assertions of a file that one
    problem kept from being judged.
    """
    leading_record = next((red.record for red in session.story.reds), None)
    records = sorted(session.records, key=lambda record: record is not leading_record)
    for records_alike in group_by_key((_find_group_key(record), record) for record in records).values():
        if (kind := _choose_kind(records_alike[0])) is None:
            continue
        sentences = (
            [_describe_verdict(records_alike[0])]
            if records_alike[0] is not leading_record
            else [format_headline(session), _describe_verdict(records_alike[0])]
        )
        yield Annotation(
            kind,
            resolve_path(records_alike[0].file),
            records_alike[0].line,
            _format_annotation_title(records_alike),
            "\n".join(sentences)[:MAX_TEXT],
        )


def _find_group_key(record: AssertionRecord) -> tuple[object, ...]:
    """Return the key by which records are grouped: those with equal keys share an annotation."""
    group_values = (record.message,) if record.state in UNJUDGED_OUTCOMES else (record.line, record.name)
    return record.file, record.state, record.good, *group_values


def _choose_kind(record: AssertionRecord) -> str | None:
    return KIND_BY_GOOD_STATE.get(record.state) if record.good else "error"


def _format_annotation_title(records_alike: list[AssertionRecord]) -> str:
    first, state = records_alike[0], records_alike[0].state
    if len(records_alike) == 1:
        return sanitize_line(f"{state}: {first.title}", 300)
    if state in UNJUDGED_OUTCOMES:
        return f"{state}: {len(records_alike)} assertions"
    return sanitize_line(f"{state}: {first.full_name} in {len(records_alike)} configurations", 300)


def _describe_verdict(record: AssertionRecord) -> str:
    """Return the full text of a verdict; if pytest takes it as passed, its warnings too."""
    text = "\n".join(sanitize_line(line, 1000) for line in record.explanation or [record.message])[:MAX_TEXT]
    warnings = [sanitize_line(warning, 1000) for warning in record.verdict.warnings] if record.good else []
    return "\n".join([text, *(warning for warning in warnings if warning not in text)])
