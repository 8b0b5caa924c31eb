"""Which files did the merge base have that a gate is judged by, and how are they laid out beside the work tree?

They are read as objects of git and written as plain files: no attribute, filter or link of a tree acts on them. Written
are gate files and what they name, stored baselines and ini files; no program of the repository is.
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
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.words import printable
from pytest_nsys.gates.yaml_nodes import NodeReader, compose
from pytest_nsys.tools.git import (
    LINK,
    SHORT,
    SUBMODULE,
    TreeEntry,
    commit_named,
    find_merge_base,
    has_commit,
    list_tree,
    outermost_repository,
    read_blobs,
    shared_git_folder,
)

INI_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""Where pytest looks for what is set."""

BASELINE_FILE = re.compile(r"[0-9a-f]{12}(?:\.window\.gz|\.json)")
"""How :mod:`pytest_nsys.stored.baselines.store` names what it writes, in whichever folder."""

OF_THE_RUN = ("trace", "measurements")
"""Keys of a gate file whose files are what is judged: those lie in the work tree."""

LONGEST_PATH = 1000

MOST_LINKS = 40
"""A chain of more links is a loop, as Linux has it."""

_LFS = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:(?P<name>[0-9a-f]{64})\n")


@dataclass
class CommitFiles:
    """The files of one commit of the repository at ``top``, with those of its submodules.

    ``unknown`` are the submodules of which the repository here has no files, each with why. ``needs_lfs``: a file that
    git LFS keeps elsewhere is an error.
    """

    top: Path
    commit: str
    needs_lfs: bool = True
    unknown: dict[str, str] = field(default_factory=dict)

    @cached_property
    def own(self) -> dict[str, TreeEntry]:
        """What the commit itself lists, by path. Raises BaselineError."""
        return list_tree(self.top, self.commit)

    @cached_property
    def entries(self) -> dict[str, TreeEntry]:
        """The same with the files of submodules. Raises BaselineError."""
        found = dict(self.own)
        for place, entry in self.own.items():
            if entry.mode == SUBMODULE and (store := self._store_of(place)) is not None:
                if has_commit(store, entry.name):
                    listed = list_tree(store, entry.name)
                    found |= {f"{place}/{path}": own for path, own in listed.items()}
                else:
                    fetch = f"git -C {printable(place)} fetch origin {entry.name}"
                    self.unknown[place] = f"has no commit {entry.name[:SHORT]}, which is recorded there: {fetch}"
            elif entry.mode == SUBMODULE:
                self.unknown[place] = "is not checked out: git submodule update --init"
        return found

    def _store_of(self, place: str) -> Path | None:
        """The repository of a submodule: in its place, or where git keeps it while nothing is checked out there."""
        folder = self.top / place
        if (folder / ".git").exists():
            return folder
        if ".gitmodules" not in self.own:
            return None
        (content,) = read_blobs(self.top, [self.own[".gitmodules"].name])
        for section in re.split(r"(?m)^\s*\[submodule ", content.decode("utf-8", "replace")):
            name = re.match(r'"([^"\n]+)"\]', section)
            if name is not None and re.search(rf"(?m)^\s*path\s*=\s*{re.escape(place)}\s*$", section):
                kept = shared_git_folder(self.top) / "modules" / name[1]
                return kept if kept.is_dir() else None
        return None

    @cached_property
    def gate_files(self) -> list[str]:
        """The paths of all gate files, sorted. Raises BaselineError."""
        return sorted(place for place in self.entries if place.endswith(GATE_SUFFIX))

    def resolve(self, place: str) -> str | None:
        """The path that links of the commit lead to; None where it is out of the repository, or a loop."""
        for _ in range(MOST_LINKS):
            parts = place.split("/")
            above = ("/".join(parts[: n + 1]) for n in range(len(parts)))
            link = next((each for each in above if each in self.links), None)
            if link is None:
                return place
            target = self.links[link]
            place = posixpath.normpath(posixpath.join(posixpath.dirname(link), target, place[len(link) + 1 :]))
            if target.startswith("/") or place.split("/")[0] == "..":
                return None
        return None

    @cached_property
    def links(self) -> dict[str, str]:
        """Where each link of the commit leads, as it is written."""
        links = [place for place, entry in self.entries.items() if entry.mode == LINK]
        return {place: content.decode("utf-8", "surrogateescape") for place, content in self._blobs(links).items()}

    def is_folder(self, place: str) -> bool:
        """Whether the commit has files below a path; it has below its top, the empty one."""
        return not place or any(each.startswith(f"{place}/") for each in self.entries)

    def read(self, places: Iterable[str]) -> Mapping[str, bytes]:
        """What plain files held, by path; those that the commit lacks are left out.

        Raises BaselineError for a file that git LFS keeps elsewhere.
        """
        known = ((place, self.entries[place]) for place in dict.fromkeys(places) if place in self.entries)
        return self._blobs([place for place, entry in known if entry.mode not in (LINK, SUBMODULE)])

    def _blobs(self, places: Sequence[str]) -> dict[str, bytes]:
        found = {}
        for store, own in grouped((self.entries[place].store, place) for place in places).items():
            names = [self.entries[place].name for place in own]
            for place, content in zip(own, read_blobs(store, names), strict=True):
                found[place] = self._from_lfs(place, content)
        return found

    def _from_lfs(self, place: str, content: bytes) -> bytes:
        """The file that a pointer of git LFS stands for."""
        pointer = _LFS.match(content)
        if pointer is None or not self.needs_lfs:
            return content
        name = pointer["name"].decode()
        kept = shared_git_folder(self.top) / "lfs" / "objects" / name[:2] / name[2:4] / name
        if not kept.is_file():
            what = f"{printable(place)} at {self.commit[:SHORT]}"
            raise BaselineError(f"{what} is a pointer of git LFS, whose file is not here: git lfs fetch --all")
        return kept.read_bytes()


@dataclass(frozen=True)
class Comparison:
    """The merge base of ``ref`` and HEAD, and HEAD itself."""

    ref: str
    base: CommitFiles
    head: CommitFiles

    @classmethod
    def of(cls, folder: Path, ref: str) -> Comparison:
        """That of the repository around a folder; of a submodule that of the repository around it, whose pull request
        it is. Raises BaselineError where there is no git, no such ref, or no merge base.
        """
        top = outermost_repository(folder)
        commits = find_merge_base(top, ref), commit_named(top, "HEAD")
        return cls(ref, CommitFiles(top, commits[0]), CommitFiles(top, commits[1], needs_lfs=False))

    @property
    def words(self) -> str:
        """The merge base for people: ``1234abc (merge base of origin/main)``."""
        return printable(f"{self.base.commit[:SHORT]} (merge base of {self.ref})")

    @cached_property
    def changed(self) -> list[str]:
        """The paths of all files that are other ones at HEAD: new, deleted, or a link in place of a file."""
        before, now = self.base.entries, self.head.entries
        return [place for place in sorted({*before, *now}) if before.get(place) != now.get(place)]

    @cached_property
    def gone(self) -> list[str]:
        """The gate files of the merge base that HEAD lacks, or has as something else than it was: a link, a folder."""
        before, now = self.base.entries, self.head.entries
        return [place for place in self.base.gate_files if _kind(now.get(place)) != _kind(before[place])]


def _kind(entry: TreeEntry | None) -> tuple[bool, str]:
    """A plain file, or the link that it is; of a link its target counts."""
    return (False, "gone") if entry is None else (True, entry.name if entry.mode == LINK else "")


def write_base(files: CommitFiles, folder: Path, also: Iterable[str] = ()) -> list[str]:
    """Write what gates are judged by into a folder, and the files of ``also``. Returns the paths that gate files name
    and the commit lacks, while the work tree has them.

    Raises BaselineError for a gate file that is a link out of the repository, and for one that git LFS keeps elsewhere.
    """
    linked = {place: files.resolve(place) for place in files.gate_files}
    for place, target in linked.items():
        if target is None or target not in files.entries:
            what = "a link to what the repository does not hold: make it a plain file"
            raise BaselineError(f"{printable(place)} at {files.commit[:SHORT]} is {what}")
    kept = _places_of(files, lambda name: is_ini(name) or BASELINE_FILE.fullmatch(name) is not None)
    gates = {place: files.read([target])[target] for place, target in linked.items() if target is not None}
    named, absent = [*also], []
    for place, content in gates.items():
        for word in _named_files(place, content):
            file = posixpath.normpath(posixpath.join(posixpath.dirname(place), word))
            named.append(file)
            if files.resolve(file) not in files.entries and (files.top / file).is_file():
                absent.append(file)
    kept |= {place: target for place in named if (target := files.resolve(place)) is not None}
    _write_places(files, folder, kept)
    for place, content in gates.items():
        _write_inside(folder, place, content)
    return absent


def write_baselines(files: CommitFiles, folder: Path) -> None:
    """Write the stored baselines alone, without their windows. Raises BaselineError."""
    _write_places(files, folder, _places_of(files, is_baseline))


def _places_of(files: CommitFiles, is_meant: Callable[[str], bool]) -> dict[str, str]:
    """The files whose names are meant, each with the path of the plain file that it is; also below linked folders,
    where a stored baseline may be.
    """
    meant = [place for place in files.entries if is_meant(posixpath.basename(place))]
    found = {place: target for place in meant if (target := files.resolve(place)) is not None}
    for link in files.links:
        if (target := files.resolve(link)) is not None and target not in files.entries:
            below = f"{target}/" if target else ""
            stored = (place for place in meant if place.startswith(below) and not is_ini(place))
            found |= {f"{link}/{place.removeprefix(below)}": place for place in stored}
    return found


def _write_places(files: CommitFiles, folder: Path, places: Mapping[str, str]) -> None:
    contents = files.read(places.values())
    for place, source in places.items():
        if source in contents:
            _write_inside(folder, place, contents[source])


def _write_inside(folder: Path, place: str, content: bytes) -> None:
    path = folder / place
    if ".." in path.parts:  # git writes no such tree; whoever makes one by hand writes nothing here
        raise BaselineError(f"{printable(place)} leads out of the repository")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def is_ini(place: str) -> bool:
    """Whether pytest looks into a file for what is set, by its name."""
    return posixpath.basename(place) in INI_FILES


def is_baseline(place: str) -> bool:
    """Whether a file is a stored baseline by its name."""
    return place.endswith(".json") and BASELINE_FILE.fullmatch(posixpath.basename(place)) is not None


def _named_files(place: str, content: bytes) -> Iterator[str]:
    """Every text of a gate file that may be the path of a file, but for those of the run."""
    todo: list[Node] = []
    with contextlib.suppress(GateFileError):  # said where it is judged
        todo.append(compose(content, NodeReader(Path(place))))
    for node in todo:
        if isinstance(node, ScalarNode) and 0 < len(node.value) < LONGEST_PATH and "\n" not in node.value:
            yield node.value
        elif isinstance(node, MappingNode):
            todo += [value for key, value in node.value if key.value not in OF_THE_RUN]
        elif isinstance(node, SequenceNode):
            todo += node.value
