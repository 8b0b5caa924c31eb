"""What that a gate is judged by does a branch change, file by file? What a change means is for whoever reviews it."""

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
from pytest_nsys.core.words import counted, printable
from pytest_nsys.merge_base.base_files import INI_FILES, CommitFiles, Comparison, is_baseline

SHOWN_LINES = 200
"""Of the diff of a gate file."""


class FileKind(enum.StrEnum):
    """What a file is to a gate."""

    GATE_FILE = "gate file"
    BASELINE = "baseline"
    INI_FILE = "ini file"
    CONFTEST = "conftest"


@dataclass(frozen=True, slots=True)
class FileDifference:
    """A file that is another one at HEAD than at the merge base: new and deleted ones too."""

    file: str
    kind: FileKind
    added: int
    """Lines that HEAD has and the merge base has not."""

    removed: int
    """Lines that the merge base has and HEAD has not."""

    state: str
    """``new``, ``deleted``, ``changed``, or ``moved from``, with the path of before."""

    diff: Sequence[str] = ()
    """Of a gate file the lines of a unified diff."""

    @property
    def words(self) -> str:
        """``perf/gate.nsys.yaml: changed, +1 -2``."""
        return printable(f"{self.file}: {self.state}, +{self.added} -{self.removed}", 1000)


def list_differences(comparison: Comparison) -> list[FileDifference]:
    """Gate files, baselines, ini sections and conftest files that differ, in this order. Raises BaselineError."""
    base, head = comparison.base, comparison.head
    places = [
        place
        for place in sorted({*base.entries, *head.entries})
        if _kind_of(place) is not None and _name(base, place) != _name(head, place)
    ]
    before, now = base.read(places), head.read(places)
    moved = {_name(base, place): place for place in places if place in before and place not in now}
    found = []
    for place in places:
        kind, old, new = _kind_of(place), before.get(place, b""), now.get(place, b"")
        if kind is None or (kind is FileKind.INI_FILE and _pytest_section(place, old) == _pytest_section(place, new)):
            continue
        state = "changed" if place in before and place in now else "deleted" if place in before else "new"
        if state == "new" and (source := moved.get(_name(head, place))) is not None:
            state = f"moved from {source}"
        lines = [*_diff(place, old, new)]
        added, removed = (sum(line.startswith(sign) for line in lines[2:]) for sign in "+-")
        shown = lines[:SHOWN_LINES] if kind is FileKind.GATE_FILE else ()
        found.append(FileDifference(place, kind, added, removed, state, shown))
    return sorted(found, key=lambda each: ([*FileKind].index(each.kind), each.file))


def count_differences(differences: Sequence[FileDifference]) -> str:
    """``2 gate files, 1 baseline``; empty where nothing differs."""
    numbers = ((kind, sum(each.kind is kind for each in differences)) for kind in FileKind)
    return ", ".join(counted(count, kind) for kind, count in numbers if count)


def _kind_of(place: str) -> FileKind | None:
    name = posixpath.basename(place)
    if name.endswith(GATE_SUFFIX):
        return FileKind.GATE_FILE
    if name == "conftest.py":
        return FileKind.CONFTEST
    if name in INI_FILES:
        return FileKind.INI_FILE
    return FileKind.BASELINE if is_baseline(place) else None


def _name(files: CommitFiles, place: str) -> tuple[str, str] | None:
    entry = files.entries.get(place)
    return None if entry is None else (entry.mode, entry.name)


def _diff(place: str, old: bytes, new: bytes) -> Iterator[str]:
    before, after = (content.decode("utf-8", "replace").splitlines() for content in (old, new))
    for line in difflib.unified_diff(before, after, f"a/{place}", f"b/{place}", lineterm=""):
        yield printable(line, 500)


def _pytest_section(place: str, content: bytes) -> Any:
    """What an ini file says to pytest; all of it where that cannot be told."""
    name = posixpath.basename(place)
    try:
        text = content.decode()
        if name == "pyproject.toml":
            return tomllib.loads(text).get("tool", {}).get("pytest")
        if name in ("tox.ini", "setup.cfg"):
            parser = RawConfigParser(strict=False, allow_no_value=True)
            parser.read_string(text)
            return [dict(parser[one]) for one in ("pytest", "tool:pytest") if parser.has_section(one)] or None
    except (ValueError, AttributeError, Error):
        pass  # a file that nobody can read differs where its bytes do, which tells too much and hides nothing
    return content or None
