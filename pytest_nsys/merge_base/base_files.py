"""Which files of the merge base does a gate depend on, and how are they written next to the work tree?

The module reads git objects and writes plain files, so that no attribute, filter or link of a tree acts on them. It
writes gate files, the files they name, stored baselines and ini files, and no program.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from pytest_nsys.core.errors import BaselineError, GateFileError
from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.gates.yaml_nodes import NodeReader, compose
from pytest_nsys.tools.git import (
    LINK_MODE,
    SHORT_HASH_LENGTH,
    SUBMODULE_MODE,
    TreeEntry,
    find_merge_base,
    find_outermost_repository,
    find_shared_git_folder,
    has_commit,
    list_tree,
    read_blobs,
    resolve_commit,
)

INI_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""The files in which pytest looks for settings."""

BASELINE_FILE_NAME = re.compile(r"[0-9a-f]{12}(?:\.window\.gz|\.json)")
"""Matches the names of files that :mod:`pytest_nsys.stored.baselines.store` writes, in any folder."""

RUN_FILE_KEYS = ("trace", "measurements")
"""The keys of a gate file that name the judged files; those are read from the work tree."""

MAX_PATH_LENGTH = 1000  # longer texts of a gate file are not taken for paths

# Linux counts a chain of more links as a loop (ELOOP).
MAX_LINKS = 40

_LFS_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:(?P<name>[0-9a-f]{64})\n"
)


@dataclass
class CommitFiles:
    """Holds the files of one commit of the repository at ``top``, with those of its submodules."""

    top: Path
    commit: str
    needs_lfs: bool = True  # whether a file that git LFS stores elsewhere is an error
    unknown_submodules: dict[str, str] = field(default_factory=dict)  # submodules that cannot be read, with the reason

    @cached_property
    def own_entries(self) -> dict[str, TreeEntry]:
        """Return the files and submodules that the tree of the commit lists, without what the submodules hold, by path.
        Raises BaselineError.
        """
        return list_tree(self.top, self.commit)

    @cached_property
    def entries(self) -> dict[str, TreeEntry]:
        """The entries of the commit and of its submodules, by path. Raises BaselineError."""
        entries = dict(self.own_entries)
        for place, entry in self.own_entries.items():
            if entry.mode == SUBMODULE_MODE and (store := self._find_submodule_repository(place)) is not None:
                if has_commit(store, entry.object_name):
                    submodule_entries = list_tree(store, entry.object_name)
                    entries |= {
                        f"{place}/{path}": submodule_entry for path, submodule_entry in submodule_entries.items()
                    }
                else:
                    command = f"git -C {sanitize_line(place)} fetch origin {entry.object_name}"
                    self.unknown_submodules[place] = (
                        f"has no commit {entry.object_name[:SHORT_HASH_LENGTH]}, which is recorded there: {command}"
                    )
            elif entry.mode == SUBMODULE_MODE:
                self.unknown_submodules[place] = "is not checked out: git submodule update --init"
        return entries

    def _find_submodule_repository(self, place: str) -> Path | None:
        """Return the repository of a submodule: its folder in the work tree, or git's own copy if nothing is checked
        out there.
        """
        folder = self.top / place
        if (folder / ".git").exists():
            return folder
        if ".gitmodules" not in self.own_entries:
            return None
        (content,) = read_blobs(self.top, [self.own_entries[".gitmodules"].object_name])
        for section in re.split(r"(?m)^\s*\[submodule ", content.decode("utf-8", "replace")):
            name = re.match(r'"([^"\n]+)"\]', section)
            if name is not None and re.search(rf"(?m)^\s*path\s*=\s*{re.escape(place)}\s*$", section):
                stored_repository = find_shared_git_folder(self.top) / "modules" / name[1]
                return stored_repository if stored_repository.is_dir() else None
        return None

    @cached_property
    def gate_files(self) -> list[str]:
        """The paths of all gate files, sorted. Raises BaselineError."""
        return sorted(place for place in self.entries if place.endswith(GATE_SUFFIX))

    def resolve(self, place: str) -> str | None:
        """Return the path after following links; None if it leaves the repository or loops."""
        for _ in range(MAX_LINKS):
            parts = place.split("/")
            parents = ("/".join(parts[: n + 1]) for n in range(len(parts)))
            link = next((parent for parent in parents if parent in self.links), None)
            if link is None:
                return place
            target = self.links[link]
            place = posixpath.normpath(posixpath.join(posixpath.dirname(link), target, place[len(link) + 1 :]))
            if target.startswith("/") or place.split("/")[0] == "..":
                return None
        return None

    @cached_property
    def links(self) -> dict[str, str]:
        """The target of each symbolic link of the commit, as written in the link."""
        links = [place for place, entry in self.entries.items() if entry.mode == LINK_MODE]
        return {
            place: content.decode("utf-8", "surrogateescape") for place, content in self._read_contents(links).items()
        }

    def is_folder(self, place: str) -> bool:
        """Return whether the commit has files below a path; the empty path is its top."""
        return not place or any(path.startswith(f"{place}/") for path in self.entries)

    def read_files(self, places: Iterable[str]) -> Mapping[str, bytes]:
        """Read what plain files held, by path; those that the commit lacks are left out.

        Raises BaselineError for a file that git LFS stores elsewhere.
        """
        known_entries = ((place, self.entries[place]) for place in dict.fromkeys(places) if place in self.entries)
        return self._read_contents(
            [place for place, entry in known_entries if entry.mode not in (LINK_MODE, SUBMODULE_MODE)]
        )

    def _read_contents(self, places: Sequence[str]) -> dict[str, bytes]:
        contents = {}
        for store, store_places in group_by_key((self.entries[place].store, place) for place in places).items():
            names = [self.entries[place].object_name for place in store_places]
            for place, content in zip(store_places, read_blobs(store, names), strict=True):
                contents[place] = self._read_lfs_file(place, content)
        return contents

    def _read_lfs_file(self, place: str, content: bytes) -> bytes:
        """Return the file that a git LFS pointer stands for; other content unchanged."""
        pointer = _LFS_POINTER.match(content)
        if pointer is None or not self.needs_lfs:
            return content
        name = pointer["name"].decode()
        lfs_object = find_shared_git_folder(self.top) / "lfs" / "objects" / name[:2] / name[2:4] / name
        if not lfs_object.is_file():
            subject = f"{sanitize_line(place)} at {self.commit[:SHORT_HASH_LENGTH]}"
            raise BaselineError(f"{subject} is a pointer of git LFS, whose file is not here: git lfs fetch --all")
        return lfs_object.read_bytes()


@dataclass(frozen=True)
class BaseComparison:
    """Holds the merge base of ``ref`` and HEAD, and HEAD itself."""

    ref: str
    base: CommitFiles
    head: CommitFiles

    @classmethod
    def find(cls, folder: Path, ref: str) -> BaseComparison:
        """Find the merge base in the repository around a folder.

        In a submodule, use the outer repository, which the pull request belongs to. Raises BaselineError where there is
        no git, no such ref, or no merge base.
        """
        top = find_outermost_repository(folder)
        commits = find_merge_base(top, ref), resolve_commit(top, "HEAD")
        return cls(ref, CommitFiles(top, commits[0]), CommitFiles(top, commits[1], needs_lfs=False))

    @property
    def base_text(self) -> str:
        """The merge base as shown in messages: ``1234abc (merge base of origin/main)``."""
        return sanitize_line(f"{self.base.commit[:SHORT_HASH_LENGTH]} (merge base of {self.ref})")

    @cached_property
    def changed_paths(self) -> list[str]:
        """The paths of all files that differ at HEAD: new, deleted, or a link in place of a file."""
        base_entries, head_entries = self.base.entries, self.head.entries
        return [
            place
            for place in sorted({*base_entries, *head_entries})
            if base_entries.get(place) != head_entries.get(place)
        ]

    @cached_property
    def missing_gate_files(self) -> list[str]:
        """The gate files of the merge base that HEAD lacks, or has in another form: as a link or a folder."""
        base_entries, head_entries = self.base.entries, self.head.entries
        return [
            place
            for place in self.base.gate_files
            if _identify_entry(head_entries.get(place)) != _identify_entry(base_entries[place])
        ]


def _identify_entry(entry: TreeEntry | None) -> tuple[bool, str]:
    """Return the identity of an entry's kind: no entry, a plain file, or a link, identified by its target."""
    return (False, "gone") if entry is None else (True, entry.object_name if entry.mode == LINK_MODE else "")


def write_base_files(files: CommitFiles, folder: Path, extra_paths: Iterable[str] = ()) -> list[str]:
    """Write the files that judging needs, and those of ``extra_paths``, into a folder.

    Returns the paths that gate files name, that the commit lacks and the work tree has. Raises BaselineError for a gate
    file that is a link out of the repository, and for one that git LFS stores elsewhere.
    """
    target_by_gate = {place: files.resolve(place) for place in files.gate_files}
    for place, target in target_by_gate.items():
        if target is None or target not in files.entries:
            problem = "a link to what the repository does not hold: make it a plain file"
            raise BaselineError(f"{sanitize_line(place)} at {files.commit[:SHORT_HASH_LENGTH]} is {problem}")
    source_by_path = _list_sources(files, lambda name: is_ini(name) or BASELINE_FILE_NAME.fullmatch(name) is not None)
    content_by_gate = {
        place: files.read_files([target])[target] for place, target in target_by_gate.items() if target is not None
    }
    named_paths, missing_paths = [*extra_paths], []
    for place, content in content_by_gate.items():
        for named_path in _list_named_files(place, content):
            file = posixpath.normpath(posixpath.join(posixpath.dirname(place), named_path))
            named_paths.append(file)
            if files.resolve(file) not in files.entries and (files.top / file).is_file():
                missing_paths.append(file)
    source_by_path |= {place: target for place in named_paths if (target := files.resolve(place)) is not None}
    _write_sources(files, folder, source_by_path)
    for place, content in content_by_gate.items():
        _write_inside(folder, place, content)
    return missing_paths


def write_baselines(files: CommitFiles, folder: Path) -> None:
    """Write the stored baselines alone, without their windows. Raises BaselineError."""
    _write_sources(files, folder, _list_sources(files, is_baseline))


def _list_sources(files: CommitFiles, is_selected: Callable[[str], bool]) -> dict[str, str]:
    """List the files whose names are selected, each with the path of the plain file that it is.

    A stored baseline may also lie below a linked folder.
    """
    selected = [place for place in files.entries if is_selected(posixpath.basename(place))]
    source_by_path = {place: target for place in selected if (target := files.resolve(place)) is not None}
    for link in files.links:
        if (target := files.resolve(link)) is not None and target not in files.entries:
            folder_prefix = f"{target}/" if target else ""
            baseline_places = (place for place in selected if place.startswith(folder_prefix) and not is_ini(place))
            source_by_path |= {f"{link}/{place.removeprefix(folder_prefix)}": place for place in baseline_places}
    return source_by_path


def _write_sources(files: CommitFiles, folder: Path, source_by_path: Mapping[str, str]) -> None:
    contents = files.read_files(source_by_path.values())
    for place, source in source_by_path.items():
        if source in contents:
            _write_inside(folder, place, contents[source])


def _write_inside(folder: Path, place: str, content: bytes) -> None:
    path = folder / place
    if ".." in path.parts:  # git never writes such a tree; a hand-made one is refused
        raise BaselineError(f"{sanitize_line(place)} leads out of the repository")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def is_ini(place: str) -> bool:
    """Return whether the file's name is one in which pytest looks for settings."""
    return posixpath.basename(place) in INI_FILES


def is_baseline(place: str) -> bool:
    """Return whether a file is a stored baseline, by its name."""
    return place.endswith(".json") and BASELINE_FILE_NAME.fullmatch(posixpath.basename(place)) is not None


def _list_named_files(place: str, content: bytes) -> Iterator[str]:
    """Yield every text of a gate file that may be the path of a file, except the judged files."""
    nodes: list[Node] = []
    with contextlib.suppress(GateFileError):  # judging the gate file reports it
        nodes.append(compose(content, NodeReader(Path(place))))
    for node in nodes:
        if isinstance(node, ScalarNode) and 0 < len(node.value) < MAX_PATH_LENGTH and "\n" not in node.value:
            yield node.value
        elif isinstance(node, MappingNode):
            nodes += [value for key, value in node.value if key.value not in RUN_FILE_KEYS]
        elif isinstance(node, SequenceNode):
            nodes += node.value
