"""Which files that a gate depends on does a branch change?

It lists the changes; a reviewer decides what they mean.
"""

from __future__ import annotations

import difflib
import enum
import posixpath
import tomllib
from collections.abc import Iterator, Sequence
from configparser import Error, RawConfigParser
from dataclasses import dataclass
from typing import Any

from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.merge_base.base_files import INI_FILES, BaseComparison, CommitFiles, is_baseline

MAX_SHOWN_LINES = 200
"""How many lines of a gate file's diff are shown at most."""


class FileKind(enum.StrEnum):
    """Names the part that a file plays for a gate."""

    GATE_FILE = "gate file"
    BASELINE = "baseline"
    INI_FILE = "ini file"
    CONFTEST = "conftest"


@dataclass(frozen=True, slots=True)
class FileDifference:
    """Describes a file that differs between the merge base and HEAD, new and deleted ones too."""

    file: str
    kind: FileKind
    added: int
    """Number of lines that HEAD has and the merge base lacks."""

    removed: int
    """Number of lines that the merge base has and HEAD lacks."""

    state: str
    """``new``, ``deleted``, ``changed``, or ``moved from`` with the former path."""

    diff: Sequence[str] = ()
    """The lines of a unified diff, for a gate file only."""

    @property
    def text(self) -> str:
        """The change on one line: ``perf/gate.nsys.yaml: changed, +1 -2``."""
        return sanitize_line(f"{self.file}: {self.state}, +{self.added} -{self.removed}", 1000)


def list_differences(comparison: BaseComparison) -> list[FileDifference]:
    """List the gate files, baselines, ini sections and conftest files that differ, sorted by kind in this order. Raises
    BaselineError.
    """
    base, head = comparison.base, comparison.head
    places = [
        place
        for place in sorted({*base.entries, *head.entries})
        if _find_file_kind(place) is not None and _identify_file(base, place) != _identify_file(head, place)
    ]
    base_contents, head_contents = base.read_files(places), head.read_files(places)
    place_by_entry = {
        _identify_file(base, place): place for place in places if place in base_contents and place not in head_contents
    }
    differences = []
    for place in places:
        kind, old_content, new_content = (
            _find_file_kind(place),
            base_contents.get(place, b""),
            head_contents.get(place, b""),
        )
        if kind is None or (
            kind is FileKind.INI_FILE
            and _read_pytest_section(place, old_content) == _read_pytest_section(place, new_content)
        ):
            continue
        state = (
            "changed"
            if place in base_contents and place in head_contents
            else "deleted"
            if place in base_contents
            else "new"
        )
        if state == "new" and (source := place_by_entry.get(_identify_file(head, place))) is not None:
            state = f"moved from {source}"
        lines = [*_list_diff_lines(place, old_content, new_content)]
        added, removed = (sum(line.startswith(sign) for line in lines[2:]) for sign in "+-")
        shown_lines = lines[:MAX_SHOWN_LINES] if kind is FileKind.GATE_FILE else ()
        differences.append(FileDifference(place, kind, added, removed, state, shown_lines))
    return sorted(differences, key=lambda difference: ([*FileKind].index(difference.kind), difference.file))


def count_differences(differences: Sequence[FileDifference]) -> str:
    """Count the differing files by kind, as text: ``2 gate files, 1 baseline``; empty where nothing differs."""
    count_by_kind = ((kind, sum(difference.kind is kind for difference in differences)) for kind in FileKind)
    return ", ".join(format_count(count, kind) for kind, count in count_by_kind if count)


def _find_file_kind(place: str) -> FileKind | None:
    name = posixpath.basename(place)
    if name.endswith(GATE_SUFFIX):
        return FileKind.GATE_FILE
    if name == "conftest.py":
        return FileKind.CONFTEST
    if name in INI_FILES:
        return FileKind.INI_FILE
    return FileKind.BASELINE if is_baseline(place) else None


def _identify_file(files: CommitFiles, place: str) -> tuple[str, str] | None:
    entry = files.entries.get(place)
    return None if entry is None else (entry.mode, entry.object_name)


def _list_diff_lines(place: str, old_content: bytes, new_content: bytes) -> Iterator[str]:
    old_lines, new_lines = (content.decode("utf-8", "replace").splitlines() for content in (old_content, new_content))
    for line in difflib.unified_diff(old_lines, new_lines, f"a/{place}", f"b/{place}", lineterm=""):
        yield sanitize_line(line, 500)


def _read_pytest_section(place: str, content: bytes) -> Any:
    """Return the pytest section of an ini file, or the whole content if it cannot be parsed."""
    name = posixpath.basename(place)
    try:
        text = content.decode()
        if name == "pyproject.toml":
            return tomllib.loads(text).get("tool", {}).get("pytest")
        if name in ("tox.ini", "setup.cfg"):
            parser = RawConfigParser(strict=False, allow_no_value=True)
            parser.read_string(text)
            return [
                dict(parser[section]) for section in ("pytest", "tool:pytest") if parser.has_section(section)
            ] or None
    except (ValueError, AttributeError, Error):
        pass  # an unparsable file is compared by its bytes: that may report too much, and hides nothing
    return content or None
